"""A conversation sent through the library turn by turn, with a bill for each request.

Owns: the scripted provider, its clock, and how a request's bytes become the parts of a prompt.
Must never know: which policies there are, or what is made of the bills.

Turns, cuts and requests are the library's own. What is made up: the answers are those of the conversation,
a summary is a text of `SUMMARY_TOKENS`, a provider's compaction an opaque one of as many, and tokens are the
library's own estimate (`TokenEstimate`), which is also what the library is told as usage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec
from _conversations import JSON, Turn
from _prompt_cache import PRICE_LISTS, Paid, Part, PriceList, PromptCache, p95

from goaitools_py import Chat, Limits, Tool, ToolContext, user
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import frames_of
from goaitools_py.compaction.summary import INSTRUCTION
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.testing.scripted import Raw
from goaitools_py.turn.edges import sync_edge as edge
from goaitools_py.types.tokens import TokenEstimate, text_tokens

__all__ = ["SUMMARY_TOKENS", "Bill", "Case", "replay"]

SUMMARY_TOKENS: Final = 400
_SUMMARY: Final = " ".join(["They said what they want, and the second half of it is done."] * 38)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_DENSITY: Final = {"openai-responses": 1.1, "anthropic": 1.25}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A conversation, and how fast it goes. `tools` and `system` surround it in every request."""

    name: str
    turns: Sequence[Turn]
    system: str = ""
    tools: Sequence[JSON] = ()
    seconds_between: float = 30.0


@dataclass(slots=True)
class Bill:
    """What a conversation took at one provider.

    `answers` are the dollars for what the model said, which is the same under every policy; `contexts` the
    tokens of each request but those for summaries.
    """

    prices: PriceList
    requests: int = 0
    tokens: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    dollars: float = 0.0
    answers: float = 0.0
    contexts: list[int] = field(default_factory=list)

    def add(self, paid: Paid, prices: PriceList | None = None, *, aside: bool = False) -> None:
        """Put a request on the bill; `aside`: it asked for a summary, and is not the conversation's own."""
        self.requests += 1
        self.tokens += paid.tokens
        self.cached += paid.cached
        self.written += paid.written
        self.output += paid.output
        self.dollars += (prices or self.prices).dollars(paid)
        if not aside:
            self.contexts.append(paid.tokens)
            self.answers += paid.output * self.prices.output / 1e6

    @property
    def own(self) -> float:
        """Dollars that a policy answers for: all input, and what its summaries say."""
        return self.dollars - self.answers

    def joined(self, other: Bill) -> Bill:
        """Both bills as one."""
        names = ("requests", "tokens", "cached", "written", "output", "dollars", "answers", "contexts")
        return Bill(self.prices, **{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def mean_context(self) -> float:
        return sum(self.contexts) / len(self.contexts)

    @property
    def p95_context(self) -> int:
        return p95(self.contexts)

    @property
    def cached_share(self) -> float:
        """Per cent of all input."""
        return 100 * self.cached / self.tokens


Policy = Callable[["Provider"], Any]
"""From the provider, which has a cheaper model to offer, to a compactor."""


def replay(
    case: Case,
    policy: Policy,
    wire: str,
    *,
    lists: Sequence[PriceList] = PRICE_LISTS,
    window: int | None = None,
    asks: int = 0,
    **fields: Any,
) -> dict[str, Bill]:
    """Have a conversation under a policy; a bill for each price list of the wire.

    `window`: bill each request as if so many tokens of its newest messages were all of the history. It is
    what clients do that trim before every call; this library never does. `asks`: each turn of so many
    searches earlier turns first, once some were cut. `fields`: of the chat.
    """
    provider = Provider(wire, [one for one in lists if one.wire == wire], window, asks)
    with provider.clock(), Chat(provider.backend, system=case.system or None, **fields) as chat:
        state = b""
        tools = [_tool(one, provider.results) for one in case.tools]
        compactor = policy(provider)
        for turn in case.turns:
            provider.begin(turn, case.seconds_between)
            said = [user(one["content"]) for one in turn if one["role"] == "user"]
            result = chat.chat_with_state(
                state, messages=said, tools=tools, compactor=compactor, limits=Limits(max_iterations=100)
            )
            state = result.state
            failed = [one.message for one in result.warnings if one.code == "compaction_failed"]
            if failed or provider.left:
                raise AssertionError(f"{case.name}: the replay went astray: {failed or provider.left}")
    return {bill.prices.name: bill for bill in provider.bills}


def _tool(schema: JSON, results: Mapping[str, str]) -> Tool:
    function = schema["function"]

    def run(ctx: ToolContext, **arguments: Any) -> str:
        return results[ctx.call_id]

    return Tool(function["name"], function.get("description"), function["parameters"], run)


class Provider:
    """A scripted provider that says what a conversation says, and bills each request by several lists."""

    def __init__(
        self, wire: str, lists: Sequence[PriceList], window: int | None = None, asks: int = 0
    ) -> None:
        self.wire = wire
        self.asks = asks
        self._turns = 0
        self._query = ""
        self._said_before: list[str] = []
        self.window = window
        self.caches = [PromptCache(one) for one in lists]
        self.bills = [Bill(one) for one in lists]
        # Requests are the same for each list, but that marks are set for a model that reads them.
        model = max(lists, key=lambda one: one.breakpoints is not None).model
        self.backend = ScriptedBackend(wire=wire, model=model)
        self.cheaper = ScriptedBackend(wire=wire, model=model + "-cheaper")
        self.results: dict[str, str] = {}
        self.left: list[tuple[str, list[JSON]]] = []
        self._results: list[str] = []
        self._seconds = 1_700_000_000.0
        self._parts: dict[bytes, tuple[Part, ...]] = {}
        self._shape: Any = SHAPES["anthropic"] if wire == "anthropic" else SHAPES["openai-responses"]
        self._estimate = TokenEstimate(frames_of(dialect_of(wire)))
        self._number = 0

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The library's clock, as long as this lasts: it stands still within a turn."""
        faked = SimpleNamespace(
            **{name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
        )
        faked.time_ns = lambda: int(self._seconds * 1e9)
        with patch.object(edge, "time", faked):
            yield

    def begin(self, turn: Turn, seconds: float) -> None:
        """Time goes by, and the next turn's replies are got ready."""
        self._seconds += seconds
        self._turns += 1
        self._query = self._next_query(turn)
        self.left = [
            (one.get("content") or "", list(one.get("tool_calls") or ()))
            for one in turn
            if one["role"] == "assistant"
        ]
        self._results = [one["content"] for one in turn if one["role"] == "tool"]
        for backend, step in ((self.backend, self._answer), (self.cheaper, self._summarise_cheaply)):
            backend.requests.clear()
            backend.then(*[step] * (len(self.left) + 4))

    def _next_query(self, turn: Turn) -> str:
        """What this turn searches: words of an early turn; "" if it does not search."""
        words = str(turn[0]["content"]).split()[:8]
        self._said_before.append(" ".join(words))
        if not self.asks or self._turns % self.asks:
            return ""
        return self._said_before[self._turns // 3]

    # ------------------------------------------------------------------------------------ answering

    def _answer(self, request: ModelRequest) -> Raw:
        self._number += 1
        parts = self._prompt(request.body)
        if request.path.endswith("/compact") or b'"compaction":{' in request.body[-4096:]:
            return self._compacted(request, parts)
        if _asks_for_summary(request.body):
            return self._said(parts, _SUMMARY, (), aside=True)
        if self._query and _NOTED in request.body:
            query, self._query = self._query, ""
            return self._said(parts, "", [("recall", json.dumps({"query": query}))], recalls=True)
        text, calls = self.left.pop(0)
        return self._said(
            parts, text, [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
        )

    def _said(
        self,
        parts: Sequence[Part],
        text: str,
        calls: Sequence[tuple[str, str]],
        *,
        aside: bool = False,
        recalls: bool = False,
    ) -> Raw:
        body = dict(self._shape.reply(text, calls, reasoning="", model="m", number=self._number, sent=0))
        words = text + "".join(name + arguments for name, arguments in calls)
        said = SUMMARY_TOKENS if aside else self._tokens(words.encode())
        body["usage"] = self._billed(parts, said, aside, recalls=recalls)
        for place in range(0 if recalls else len(calls)):
            prefix = "toolu" if self.wire == "anthropic" else "call"
            self.results[f"{prefix}_{self._number}_{place}"] = self._results.pop(0)
        return Raw.body(json.dumps(body).encode())

    def _billed(
        self, parts: Sequence[Part], output: int, aside: bool, *, recalls: bool = False
    ) -> dict[str, Any]:
        paid = Paid(tokens=0)
        for cache, bill in reversed(list(zip(self.caches, self.bills, strict=True))):
            paid = cache.send(parts, at=self._seconds, output=output)
            bill.add(paid, aside=aside or recalls)  # a search is no answer that each policy has
        return _usage(self.wire, paid)

    def _compacted(self, request: ModelRequest, parts: Sequence[Part]) -> Raw:
        """Opaque, and so large; OpenAI gives the user's messages back before it."""
        opaque = {"type": "compaction", "encrypted_content": "x" * 4 * SUMMARY_TOKENS}
        usage = self._billed(parts, SUMMARY_TOKENS, True)
        if self.wire == "anthropic":
            body: dict[str, Any] = dict(
                SHAPES["anthropic"].reply("", (), reasoning="", model="m", number=self._number, sent=0)
            )
            spent = {"type": "compaction", **usage}
            body |= {
                "content": [opaque],
                "stop_reason": "compaction",
                "usage": {"input_tokens": 0, "output_tokens": 0, "iterations": [spent]},
            }
            return Raw.body(json.dumps(body).encode())
        said = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": one["content"]}]}
            if isinstance(one["content"], str)
            else one
            for one in json.loads(request.body)["input"]
            if one.get("role") == "user"
        ]
        made = {"id": f"cmp_{self._number}", **opaque}
        return Raw.body(
            json.dumps(
                {
                    "id": f"resp_{self._number}",
                    "object": "response.compaction",
                    "created_at": 0,
                    "output": [*said, made],
                    "usage": usage,
                }
            ).encode()
        )

    def _summarise_cheaply(self, request: ModelRequest) -> Raw:
        """The other model gets a transcript, of which its cache has nothing."""
        self._number += 1
        tokens = sum(part.tokens for part in self._prompt(request.body))
        for bill in self.bills:
            assert bill.prices.cheaper is not None
            paid = Paid(
                tokens=tokens, written=tokens if self.wire == "anthropic" else 0, output=SUMMARY_TOKENS
            )
            bill.add(paid, bill.prices.cheaper, aside=True)
        body = dict(self._shape.reply(_SUMMARY, (), reasoning="", model="c", number=self._number, sent=0))
        body["usage"] = _usage(self.wire, Paid(tokens=tokens, output=SUMMARY_TOKENS))
        return Raw.body(json.dumps(body).encode())

    # -------------------------------------------------------------------------- a request's bytes, as parts

    def _prompt(self, body: bytes) -> list[Part]:
        """Tools, system, messages: in this order providers read a prompt. A mark is no part of it."""
        found = _MEMBERS.decode(body)
        parts: list[Part] = []
        for name in ("tools", "system"):
            if name in found:
                parts += self._kept(bytes(found[name]), self._surrounding)
        for piece in _ITEMS.decode(found["messages" if self.wire == "anthropic" else "input"]):
            parts += self._kept(bytes(piece), self._message)
        if self.window is not None:
            parts = self._trimmed(parts, self.window)
        if "cache_control" in found:
            parts[-1] = Part(parts[-1].identity, parts[-1].tokens, True)
        return parts

    def _trimmed(self, parts: Sequence[Part], tokens: int) -> list[Part]:
        """What surrounds the history, and its newest messages from a user's on, as providers want it: so the
        running turn stays whole."""
        start = sum(not part.role for part in parts)
        begins = [at for at in range(start, len(parts)) if parts[at].role == "user"]
        first = begins[-1]
        for at in reversed(begins):
            if sum(part.tokens for part in parts[at:]) > tokens:
                break
            first = at
        return [*parts[:start], *parts[first:]]

    def _kept(self, raw: bytes, read: Callable[[bytes], tuple[Part, ...]]) -> tuple[Part, ...]:
        if raw not in self._parts:
            self._parts[raw] = read(raw)
        return self._parts[raw]

    def _surrounding(self, raw: bytes) -> tuple[Part, ...]:
        blocks = json.loads(raw)
        found = []
        for block in blocks:
            marked = block.pop("cache_control", None) is not None
            words = json.dumps(block).encode()
            found.append(Part(words, self._tokens(words), marked))
        return tuple(found)

    def _role(self, message: JSON, block: JSON) -> str:
        """Whose a part is; "" for what surrounds the history."""
        kind = block.get("type")
        if kind in ("tool_result", "function_call_output"):
            return "tool"
        role = str(message.get("role", "assistant"))
        return "" if role in ("developer", "system") else role

    def _message(self, raw: bytes) -> tuple[Part, ...]:
        """One part for each block of a message, one for each item."""
        message = json.loads(raw)
        content = message.get("content")
        if self.wire != "anthropic" or not isinstance(content, list):
            marked = b'"prompt_cache_breakpoint"' in raw
            return (Part(raw, self._counted(raw, message), marked, self._role(message, message)),)
        found = []
        for block in content:
            entry = json.dumps({"role": message["role"], "content": [block]}).encode()
            found.append(Part(entry, self._counted(entry, block), False, self._role(message, block)))
        return tuple(found)

    def _counted(self, entry: bytes, part: JSON) -> int:
        if part.get("type") == "compaction":
            return len(part["encrypted_content"]) // 4
        if part.get("role") in ("developer", "system"):
            content = part["content"]
            words = content if isinstance(content, str) else "".join(one["text"] for one in content)
            return self._tokens(words.encode())
        return sum(map(self._estimate.count, self.backend.dialect.view((entry,))))

    def _tokens(self, words: bytes) -> int:
        return max(1, round(text_tokens(words) * _DENSITY[self.wire]))


_NOTED: Final = b"the tool recall searches them"


def _asks_for_summary(body: bytes) -> bool:
    return json.dumps(INSTRUCTION[:60]).encode()[1:-1] in body[-6000:]


def _usage(wire: str, paid: Paid) -> dict[str, Any]:
    if wire == "anthropic":
        return {
            "input_tokens": paid.tokens - paid.cached - paid.written,
            "cache_creation_input_tokens": paid.written,
            "cache_read_input_tokens": paid.cached,
            "output_tokens": paid.output,
        }
    return {
        "input_tokens": paid.tokens,
        "input_tokens_details": {"cached_tokens": paid.cached},
        "output_tokens": paid.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": paid.tokens + paid.output,
    }
