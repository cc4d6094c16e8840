"""A model of the providers' prompt caches, and of what a request costs with them.

Owns: the rules, the prices, and the arithmetic. Must never know: a wire's JSON, or who asks.

It is a model, made from the providers' documents; no provider was asked. A prompt is a row of parts, each
with its tokens. A cache knows rows; two rows are equal up to their first different part. Prices are dollars
for a million tokens, as in genai-prices 0.2.3 (2026); prices that rise for very long requests are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PRICE_LISTS", "Paid", "Part", "PriceList", "PromptCache", "p95"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt that is equal or different as a whole; `marked`: a prefix may end behind it.
    `role`: the author, "" for tools and system text."""

    identity: bytes
    tokens: int
    marked: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """A model, what its tokens cost, and the rules of its provider's cache.

    Attributes:
        model: Whose prices these are.
        cheaper: The list of the model that writes summaries where a cheaper one does.
        minimum: The shortest prefix that is cached, in tokens.
        step: A hit is counted in whole steps of so many tokens.
        seconds: A prefix that is not used for so long is gone.
        breakpoints: None: each prefix of a request is cached. "marked": those that end at a marked part,
            "last": these, and the whole request.
        lookback: Before each breakpoint so many parts are tried for a cached prefix; None: all.
    """

    name: str
    wire: str
    model: str
    read: float
    cached: float
    written: float
    output: float
    minimum: int = 1024
    step: int = 1
    seconds: float
    breakpoints: str | None = None
    lookback: int | None = None
    cheaper: PriceList | None = field(default=None, repr=False)

    def dollars(self, paid: Paid) -> float:
        """What a request costs."""
        plain = paid.tokens - paid.cached - paid.written
        spent = plain * self.read + paid.cached * self.cached + paid.written * self.written
        return (spent + paid.output * self.output) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """A request's tokens; `cached`, read from the cache, and `written` to it are parts of `tokens`."""

    tokens: int
    cached: int = 0
    written: int = 0
    output: int = 0


# Automatic caching: an exact prefix from 1,024 tokens on, in steps of 128; gone after minutes without use,
# an hour at most (here 10 minutes, the documents say "5 to 10"); writing costs nothing extra
# (platform.openai.com, prompt caching; openai 3.54, docstrings).
_AUTOMATIC: Final = {"wire": "openai-responses", "step": 128, "seconds": 600.0}
# Breakpoints: an implicit one at the newest message and those that the request sets (the library sets one
# behind tools and instructions), no limit on looking back, 30 minutes.
_IMPLICIT: Final = {"wire": "openai-responses", "seconds": 1800.0, "breakpoints": "last"}
# cache_control: up to 4 marks, 20 blocks of lookback before each, 5 minutes from the last use, written at
# 1.25 times the price (platform.claude.com, prompt caching).
_MARKED: Final = {"wire": "anthropic", "seconds": 300.0, "breakpoints": "marked", "lookback": 20}


def _list(
    rules: Mapping[str, object], model: str, *prices: float, cheaper: PriceList | None = None
) -> PriceList:
    read, cached, written, output = prices
    given: dict[str, object] = {"read": read, "cached": cached, "written": written, "output": output}
    return PriceList(name=model, model=model, cheaper=cheaper, **given, **rules)  # type: ignore[arg-type]


PRICE_LISTS: Final = (
    _list(
        _MARKED,
        "claude-sonnet-5",
        2,
        0.2,
        2.5,
        10,
        cheaper=_list(_MARKED, "claude-haiku-4-5", 1, 0.1, 1.25, 5),
    ),
    _list(
        _AUTOMATIC,
        "gpt-5.4",
        2.5,
        0.25,
        2.5,
        15,
        cheaper=_list(_AUTOMATIC, "gpt-5.4-mini", 0.75, 0.075, 0.75, 4.5),
    ),
    _list(
        _IMPLICIT,
        "gpt-5.6-terra",
        2,
        0.2,
        2.5,
        12,
        cheaper=_list(_AUTOMATIC, "gpt-5.4-mini", 0.75, 0.075, 0.75, 4.5),
    ),
    _list(
        _AUTOMATIC,
        "gpt-4o",
        2.5,
        1.25,
        2.5,
        10,
        cheaper=_list(_AUTOMATIC, "gpt-4o-mini", 0.15, 0.075, 0.15, 0.6),
    ),
)
"""The first three read caches at a tenth of the price, the last at half."""


class PromptCache:
    """One provider's cache, for one conversation. Other clients' requests do not fill it or push it out."""

    def __init__(self, prices: PriceList) -> None:
        self.prices = prices
        self._next: dict[tuple[int, bytes], int] = {}
        self._used: dict[int, float] = {}

    def send(self, parts: Sequence[Part], *, at: float, output: int) -> Paid:
        """What a request at this second reads, writes and takes."""
        rules = self.prices
        ends, nodes = self._path(parts)
        stops = self._breakpoints(parts)
        hit = self._hit(stops, nodes, at)
        cached = ends[hit] // rules.step * rules.step if hit >= 0 else 0
        if cached < rules.minimum:
            cached, hit = 0, -1
        written = 0
        for stop in stops:
            if ends[stop] >= rules.minimum:
                self._used[nodes[stop]] = at  # written now, or read as a part of what is longer
                written = max(written, ends[stop] - cached)
        if hit >= 0:
            self._used[nodes[hit]] = at
        return Paid(
            tokens=ends[-1], cached=cached, written=written if rules.breakpoints else 0, output=output
        )

    def _path(self, parts: Sequence[Part]) -> tuple[list[int], list[int]]:
        """Where each part ends, in tokens, and the number of the prefix that ends with it."""
        ends, nodes = [], []
        total = node = 0
        for part in parts:
            total += part.tokens
            node = self._next.setdefault((node, part.identity), len(self._next) + 1)
            ends.append(total)
            nodes.append(node)
        return ends, nodes

    def _breakpoints(self, parts: Sequence[Part]) -> Sequence[int]:
        if self.prices.breakpoints is None:
            return range(len(parts))
        stops = [number for number, part in enumerate(parts) if part.marked]
        newest = len(parts) - 1
        return [*stops, newest] if self.prices.breakpoints == "last" and newest not in stops else stops

    def _hit(self, stops: Sequence[int], nodes: Sequence[int], at: float) -> int:
        """The longest prefix that is still there; -1 for none."""
        back = self.prices.lookback
        for stop in reversed(stops):
            first = 0 if back is None else max(0, stop - back)
            for number in range(stop, first - 1, -1):
                used = self._used.get(nodes[number])
                if used is not None and at - used <= self.prices.seconds:
                    return number
            if back is None:
                break  # it has looked at everything
        return -1


def p95(values: Sequence[int]) -> int:
    """The value that 95 % do not exceed."""
    return sorted(values)[max(0, -(-95 * len(values) // 100) - 1)]
