"""Steps of a random conversation: plain values, drawn from a seed, to be printed and dropped one by one.

Owns: what may happen to a conversation, and how often. Must never know: how it is carried out or checked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Said", "Step", "draw", "shown"]


@dataclass(frozen=True)
class Said:
    """One thing that the provider does with a request: a reply, or a fault with the reply it spoils."""

    kind: str = "say"
    calls: tuple[tuple[str, str], ...] = ()
    """Tool and state of its arguments, for each call."""
    ids: tuple[str | None, ...] = ()
    text: bool = True
    thinking: bool = False
    redacted: bool = False
    finish: str | None = None
    container: bool = False
    fault: str = ""
    after: int | None = None


@dataclass(frozen=True)
class Step:
    """One thing that a caller does. Every default is the harmless choice: a case can be made plain."""

    kind: str = "turn"
    pick: float = 0.0
    """Which of the older blobs, where the step takes one: 0 the oldest, towards 1 the newest."""
    keep: int = 1
    streamed: bool = False
    says: tuple[str, ...] = ("user",)
    script: tuple[Said, ...] = ()
    system: int = 0
    tools: int = 1
    model: int = 0
    family: int = 0
    thinks: str = ""
    context: int = 0
    choice: str = ""
    sticky: bool = False
    compactor: str = ""
    iterations: int = 10
    max_calls: int = 0
    on_limit: str = "answer"
    tool_errors: str = "to_model"
    threads: bool | None = None
    retries: int = 0
    looks: tuple[int, ...] = ()
    """At which events the state of the running turn is looked at."""
    appends: tuple[tuple[int, str], ...] = ()
    """At which events something is appended to the running turn, and what."""
    stop: tuple[str, int] | None = None
    """How the turn is broken off, and at which event or checkpoint."""


KINDS = {"turn": 52, "resume": 20, "append": 7, "compact": 4, "restart": 3, "export": 3, "back": 11}
CALLED = ("act",) * 6 + ("fail", "grumble", "look", "abort", "wander", "wander", "dawdle", "nope", "we ird")
ARGUMENTS = ("ok",) * 9 + ("broken", "wrong", "list")
ERRORS = (
    *("500", "503", "529", "429", "429 wait", "quota", "401", "404"),
    *("400", "400", "400", "422", "413", "context", "context"),
)
HOLLOW = ("error body", "no choices", "null choices", "null", "broken", "html", "html 502")
BROKEN = ("error event", "reset", "reset", "hang up", "cut", "cut", "short")
IDS: tuple[tuple[str | None, ...], ...] = (
    *((),) * 8,
    ("call_a", "call_a", "call_a"),
    ("", "", ""),
    ("call_b",),
    (None, "call_a"),
)


def draw(seed: int, number: int, wire: str) -> Step:
    """Step `number` of a conversation; it depends on nothing that came before it."""
    r = random.Random(f"{seed}/{number}")
    kind = _weighted(r, KINDS)
    if kind in ("append", "compact", "restart", "export", "back"):
        return Step(
            kind=kind,
            pick=r.random(),
            keep=r.choice((1, 2, 4)),
            says=tuple(r.choice(("event", "event", "topic", "user", "system", "named")) for _ in range(2)),
        )
    streamed = r.random() < 0.65
    thinks = r.choice(("", "on", "on", "on", "off")) if wire != "openai" else ""
    has_hosted = wire == "anthropic" and r.random() < 0.25
    script = tuple(
        _said(r, wire, has_hosted) for _ in range(_weighted(r, {0: 25, 1: 25, 2: 25, 3: 15, 5: 10}))
    )
    return Step(
        kind=kind,
        streamed=streamed,
        says=_says(r) if kind == "turn" or r.random() < 0.3 else (),
        script=script,
        system=r.choice((0,) * 14 + (1, 1, 2)),
        tools=4 if has_hosted else r.choice((1,) * 14 + (0, 2, 3)),
        model=r.choice((0,) * 16 + (1,)),
        family=r.choice((0,) * 16 + (1,)),
        thinks=thinks,
        context=r.choice((0, 0, 0, 1, 2)),
        choice=r.choice(("",) * 12 + ("auto", "none", "one")),
        sticky=r.random() < 0.1,
        compactor=r.choice(("",) * 12 + ("recent", "drop", "raises", "empty", "never")),
        iterations=r.choice((10,) * 8 + (1, 2)),
        max_calls=r.choice((0,) * 8 + (1, 2)),
        on_limit=r.choice(("answer", "raise")),
        tool_errors=r.choice(("to_model",) * 6 + ("raise",)),
        threads=r.choice((None, None, True, False)),
        retries=r.choice((0, 0, 2)),
        looks=tuple(sorted({r.randrange(1, 40) for _ in range(r.randrange(4))})),
        appends=((r.randrange(1, 25), r.choice(("event", "topic", "user"))),) if r.random() < 0.2 else (),
        stop=_stop(r, streamed) if r.random() < 0.3 else None,
    )


def _weighted(r: random.Random, weights: dict[Any, int]) -> Any:
    return r.choices(list(weights), list(weights.values()))[0]


def _says(r: random.Random) -> tuple[str, ...]:
    if r.random() < 0.7:
        return ("user",)
    before = [r.choice(("event", "topic", "named", "user", "assistant")) for _ in range(r.randrange(3))]
    return (*before, r.choice(("user", "image")), *(["system"] if r.random() < 0.3 else []))


def _said(r: random.Random, wire: str, has_hosted: bool) -> Said:
    fault, after = "", None
    if r.random() < 0.35:
        fault = r.choice(r.choice((ERRORS, HOLLOW, BROKEN)))
        after = r.choice((0, 1, 2, 3, 4, 6, 9, 14)) if fault in BROKEN else None
        if fault in ("reset", "hang up") and r.random() < 0.3:
            after = None
    thinking = wire != "openai" and r.random() < 0.5
    common: dict[str, Any] = {"fault": fault, "after": after, "thinking": thinking}
    common["redacted"] = thinking and r.random() < 0.2
    kind = _weighted(r, {"say": 5, "calls": 7, "refuse": 1, "pause": 4 if has_hosted else 0})
    finish: str | None = None
    if kind in ("say", "calls"):
        finish = r.choice((None,) * 8 + ("length", "content_filter"))
    if kind == "calls" and wire == "openai" and r.random() < 0.1:
        finish = r.choice(("stop", ""))
    if kind == "calls":
        calls = tuple((r.choice(CALLED), r.choice(ARGUMENTS)) for _ in range(r.choice((1, 1, 1, 2, 3))))
        ids = r.choice(IDS)[: len(calls)]
        return Said(kind, calls, ids, r.random() < 0.4, finish=finish, **common)
    text = kind != "pause" or r.random() < 0.7
    return Said(kind, text=text, finish=finish, container=has_hosted and r.random() < 0.3, **common)


def _stop(r: random.Random, streamed: bool) -> tuple[str, int]:
    kinds = ["deadline", "refused checkpoint", "killed"]
    if streamed:
        kinds += ["cancel", "cancel", "break", "raise", "task", "pings"]
    kind = r.choice(kinds)
    return kind, r.randrange(1, 6) if kind in ("refused checkpoint", "killed") else r.randrange(0, 30)


# ---------------------------------------------------------------------------------------- printing


def shown(steps: Sequence[Step]) -> str:
    """The steps as Python, each with what differs from the defaults."""
    return "[\n" + "".join(f"    {_call(step)},\n" for step in steps) + "]"


def _call(value: Any) -> str:
    given = [
        f"{field.name}={_value(getattr(value, field.name))}"
        for field in fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(given)})"


def _value(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], Said):
        return "(" + "".join(f"{_call(said)}, " for said in value).rstrip() + ")"
    return repr(value)
