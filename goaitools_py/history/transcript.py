"""A conversation in the classes of this package: its turns, iterations and calls, and searches in them.

Owns: `History` and its parts. Must never know: a provider's JSON, a stored entry, or how a state is read.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, TextIO, TypeAlias

from msgspec.structs import asdict

from ..base.display import ShownText, as_html, print_rows
from ..base.escaping import as_written
from ..base.values import Value
from ..types.answers import PendingReason
from ..types.citations import Citation, citations_of_rows
from ..types.messages import Message, Part, ResultFlag, Text, ToolCall, Usage, call_dict
from ..types.result import Action
from ..types.usage import Charge, Prices, genai_price, priced, total
from .transcript_json import HISTORY_VERSION

__all__ = ["History", "HistoryCall", "HistoryIteration", "HistoryMatch", "HistoryTurn", "TurnStatus"]

TurnStatus: TypeAlias = Literal[
    "complete",
    "truncated",
    "refused",
    "limited",
    "interrupted",
    "failed",
    "awaiting_tools",
    "in_progress",
]


class HistoryCall(ToolCall, frozen=True, kw_only=True):
    """A tool call with its result.

    Attributes:
        flag: The flag of the result; None while there is no result.
        parts: The result as the model reads it; () while there is no result.
        whole: The whole text of a result of which the model reads beginning and end (`keep_results="store"`).
            None if the model reads it all, or if the rest is not kept.
        seconds: How long the call ran, to the millisecond; None for a call that did not run, that ran less
            than a millisecond, or that has no recorded time.
        waits_for: "" for a call that has its result, or that has not begun. Else the kind of answer that
            `resume` takes; see `PendingCall.reason`.
    """

    _unshown = frozenset({"arguments", "parts", "whole"})

    flag: ResultFlag | None = None
    parts: tuple[Part, ...] = ()
    whole: str | None = None
    seconds: float | None = None
    waits_for: PendingReason | Literal[""] = ""

    @property
    def result(self) -> str | None:
        """The text of the result as its tool wrote it; None while there is no result."""
        if self.flag is None:
            return None
        if self.whole is not None:
            return self.whole
        return as_written("".join(part.text for part in self.parts if isinstance(part, Text)))

    @property
    def synthetic(self) -> bool:
        """True if no tool produced this result."""
        return self.flag not in (None, "ok", "error")


class HistoryIteration(Value, frozen=True, kw_only=True):
    """One model call of a turn: the messages that were sent with it, and the reply.

    Attributes:
        messages: The messages in order; in an unfinished turn also results that no model has read yet.
        calls: The calls of the reply, each with its result. The results themselves are messages of the next
            iteration, as they were sent with the next request.
        model: The model that was asked; "" if it is not known.
        endpoint: The server that was asked, as `StateInfo.endpoint`; "" if it is not known.
        wire: The provider API.
        request_id: The provider's id of the request, where the turn had `record_ids=True`; else "".
        number: Counted from 1 over the conversation, as `History.iteration` takes it.
        metadata: The caller's `metadata=` of its turn.
    """

    _unshown = frozenset({"metadata"})

    messages: tuple[Message, ...]
    finish_reason: str
    usage: Usage
    started_at: datetime
    completed_at: datetime
    model: str = ""
    request_id: str = ""
    calls: tuple[HistoryCall, ...] = ()
    endpoint: str = ""
    wire: str = ""
    number: int = 0
    metadata: Mapping[str, str] = {}

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model made in this iteration."""
        return tuple(call for message in self.messages for call in message.tool_calls)

    @property
    def is_reply(self) -> bool:
        """False for messages that no model has answered."""
        return bool(self.finish_reason or self.usage.requests)

    def cost(self, prices: Prices = genai_price) -> Decimal | None:
        """The cost of the model call, in US dollars; None if the price of its model is unknown.

        Args:
            prices: The price list; the default is the list of genai-prices, if it is installed.
        """
        if not self.is_reply:
            return Decimal(0)
        at_ms = round(self.started_at.timestamp() * 1000)
        charge = Charge(model=self.model, usage=self.usage, wire=self.wire, family=self.endpoint, at_ms=at_ms)
        return priced(prices, charge, self.model)


class HistoryTurn(Value, frozen=True, kw_only=True):
    """One turn: its iterations, and the stored facts (status, settings, metadata, flags).

    `number`: turns are counted from 1 over the life of the conversation, and each number is used once. A note
    that a compaction has left has number 0. `completed_at`: exact to 100 ms; None for a turn without a reply
    and without a recorded end, and for an unfinished turn. `id`: names the turn in events and logs, as
    `Event.turn_ref`; "" for a note.

    `status`: as the status of a result ("complete", "truncated", "refused", "limited"). "failed": it ended
    with an error, see `failure`. "interrupted": it was closed without a whole reply, and without an error.
    The last turn may be unfinished: "awaiting_tools", "in_progress", or "failed".
    """

    _unshown = frozenset({"facts", "iterations"})

    iterations: tuple[HistoryIteration, ...]
    started_at: datetime
    facts: Mapping[str, Any]
    number: int = 0
    completed_at: datetime | None = None
    id: str = ""
    status: TurnStatus = "complete"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn's messages in order."""
        return tuple(message for iteration in self.iterations for message in iteration.messages)

    @property
    def calls(self) -> tuple[HistoryCall, ...]:
        """The turn's tool calls in order, each with its result."""
        return tuple(call for iteration in self.iterations for call in iteration.calls)

    @property
    def text(self) -> str:
        """The text of the turn's last reply; "" without one."""
        found: list[str] = []
        for iteration in reversed(self.iterations):
            own: list[str] = []
            for message in reversed(iteration.messages):
                if message.role == "assistant":
                    own.append(message.text)
                elif message.role != "tool":
                    break
            found += own
            begins = iteration.messages[:1]
            if own and (begins[0].role != "assistant" or len(own) < len(iteration.messages)):
                break  # else the provider had paused the reply, and it began in the iteration before
        return "".join(reversed(found))

    @property
    def is_sent(self) -> bool:
        """False if later requests leave the turn out, because its provider refused it."""
        return not self.facts.get("unsent")

    @property
    def partial_text(self) -> str:
        """The text of a reply that broke off. It is in no message, and no model sees it."""
        return str(self.facts.get("interrupted", ""))

    @property
    def usage(self) -> Usage:
        """The tokens of the turn's model calls, as far as the history has them."""
        return sum((iteration.usage for iteration in self.iterations), Usage())

    @property
    def model(self) -> str:
        """The model of the turn's last reply; "" if it is not known."""
        return next((one.model for one in reversed(self.iterations) if one.model), "")

    def cost(self, prices: Prices = genai_price) -> Decimal | None:
        """The cost of the turn's model calls, in US dollars; None if a part is unknown.

        It is computed from the replies that the history has. The cost of broken replies and of summaries is
        in `StateInfo.total_cost_usd` only.

        Args:
            prices: The price list; the default is the list of genai-prices, if it is installed.
        """
        return total(iteration.cost(prices) for iteration in self.iterations)

    @property
    def speaker(self) -> str | None:
        """The speaker of the first message of the user that names one; None if no message does."""
        return next((message.speaker for message in self.messages if message.speaker), None)

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's `metadata=` of the turn."""
        return dict(self.facts.get("metadata", {}))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The model settings of the turn, by the names of `ModelSettings`."""
        found = self.facts.get("settings", {})
        return dict(found) if isinstance(found, Mapping) else {}

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that tools logged, where the turn had `record_actions=True`. If the state had no more
        room, the last one has ``data["left_out"]``: how many more there were."""
        return tuple(Action(*row) for row in self.facts.get("acts", ()))

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources that the replies of the turn named, in order. The places of a source count in the text
        of its own reply."""
        return citations_of_rows(self.facts.get("citations"))

    @property
    def failure(self) -> tuple[str, str] | None:
        """Class and code of the error that the turn ended with, such as ``("RateLimitError", "")``.

        None if the turn ended without an error, also if it did so after a resume.
        """
        row = self.facts.get("failed", ())
        return (row[0], row[1] if len(row) > 1 else "") if row else None


class HistoryMatch(Value, frozen=True, kw_only=True):
    """A message that `History.find` found.

    `turn`: its turn; None for a message that waits. `iteration`: the number of its model call, as
    `History.iteration` takes it; 0 for a message that waits.
    """

    message: Message
    turn: HistoryTurn | None = None
    iteration: int = 0


class History(Value, frozen=True, kw_only=True):
    """The turns of a conversation, oldest first. `waiting`: messages that no model has accepted yet."""

    turns: tuple[HistoryTurn, ...]
    waiting: tuple[Message, ...] = ()

    def __repr__(self) -> str:
        return f"<History: {len(self.turns)} turns, {len(self.waiting)} waiting messages>"

    def show(self, *, file: TextIO | None = None) -> None:
        """Print the conversation with all messages; ``print(history)`` shows no content.

        Thinking is left out. `file`: where to; None is standard output.
        """
        print_rows(self._rows(), file)

    def _repr_html_(self) -> str:
        """The same for a notebook, which calls this for the last value of a cell."""
        return as_html(self._rows())

    def _rows(self) -> Iterator[ShownText]:
        for turn in self.turns:
            name = f"Turn {turn.number}" if turn.number else "Note of a compaction"
            status = "" if turn.status == "complete" else f" ({turn.status})"
            yield ShownText(f"{name}, {turn.started_at:%Y-%m-%d %H:%M:%S} UTC{status}")
            for iteration in turn.iterations:
                for message in iteration.messages:
                    yield from _message_rows(message)
                for call in iteration.calls:
                    yield ShownText("call", f"{call.name}({_written(call)}){_outcome(call)}")
            for action in turn.actions:
                yield ShownText("action", action.text)
            if turn.partial_text:
                yield ShownText("assistant (broke off)", turn.partial_text)
        if self.waiting:
            yield ShownText("Waiting for the model")
        for message in self.waiting:
            yield from _message_rows(message)

    def all_messages(self) -> tuple[Message, ...]:
        """All messages; waiting messages are last."""
        return (*(message for turn in self.turns for message in turn.messages), *self.waiting)

    def iteration(self, number: int) -> HistoryIteration:
        """The n-th model call of the conversation, counted from 1. IndexError for any other number."""
        every = [iteration for turn in self.turns for iteration in turn.iterations]
        if not 1 <= number <= len(every):
            raise IndexError(f"iterations are counted from 1; this history has {len(every)}, not {number}")
        return every[number - 1]

    def iteration_messages(self, number: int) -> tuple[Message, ...]:
        """The messages of the n-th model call, counted from 1. IndexError for any other number."""
        return self.iteration(number).messages

    def tool_calls(self, name: str | None = None) -> tuple[HistoryCall, ...]:
        """The tool calls in order, each with its result. `name`: only the calls of one tool."""
        every = (call for turn in self.turns for call in turn.calls)
        return tuple(call for call in every if name is None or call.name == name)

    def find(self, text: str) -> tuple[HistoryMatch, ...]:
        """The messages that hold a text, in order. Upper and lower case count as equal.

        It searches the texts of authors (`Message.said`), the results of tools, and the names and arguments
        of calls. Raises ValueError for an empty text.
        """
        wanted = text.casefold()
        if not wanted:
            raise ValueError("find needs a text of at least one character; all_messages() has every message")
        return tuple(match for match in self._each() if _holds(match.message, wanted))

    def _each(self) -> Iterator[HistoryMatch]:
        for turn in self.turns:
            for iteration in turn.iterations:
                for message in iteration.messages:
                    yield HistoryMatch(message=message, turn=turn, iteration=iteration.number)
        for message in self.waiting:
            yield HistoryMatch(message=message)

    def to_dict(self, *, media: bool = False) -> dict[str, Any]:
        """The history as JSON-able values, which `HISTORY_SCHEMA` describes. It has all texts.

        A result is with its call, and not among the messages. A text that this library wrote, such as a
        context block, is marked ("block").

        Args:
            media: True to have the bytes of pictures, documents and sound too, in base64.
        """
        return {
            "version": HISTORY_VERSION,
            "turns": [_turn(turn, media) for turn in self.turns],
            "waiting": [message.to_dict(media=media) for message in self.waiting],
        }


def _outcome(call: HistoryCall) -> str:
    if call.result is None:
        return f" waits: {call.waits_for}" if call.waits_for else ""
    return f"{'' if call.flag == 'ok' else f' [{call.flag}]'} -> {call.result}"


def _holds(message: Message, wanted: str) -> bool:
    texts = (message.said, *(text for call in message.tool_calls for text in (call.name, _written(call))))
    return any(wanted in text.casefold() for text in texts)


def _written(call: ToolCall) -> str:
    """The arguments of a call, with escaped characters as plain ones."""
    if "\\u" in call.arguments:
        with suppress(ValueError):
            return json.dumps(call.parsed, ensure_ascii=False)
    return call.arguments


# ------------------------------------------------------------------------------------------------- JSON


def _turn(turn: HistoryTurn, media: bool) -> dict[str, Any]:
    cost, failure = turn.cost(), turn.failure
    joined = {call.id for call in turn.calls}
    return {
        "number": turn.number,
        "id": turn.id,
        "status": turn.status,
        "failure": None if failure is None else {"error": failure[0], "code": failure[1]},
        "started_at": turn.started_at.isoformat(),
        "completed_at": None if turn.completed_at is None else turn.completed_at.isoformat(),
        "text": turn.text,
        "partial_text": turn.partial_text,
        "usage": asdict(turn.usage),
        "cost_usd": None if cost is None else float(cost),
        "model": turn.model,
        "speaker": turn.speaker,
        "metadata": dict(turn.metadata),
        "settings": dict(turn.settings),
        "actions": [{"text": one.text, "data": dict(one.data)} for one in turn.actions],
        "citations": [
            {name: value for name, value in asdict(one).items() if name != "raw"} for one in turn.citations
        ],
        "iterations": [_iteration(one, joined, media) for one in turn.iterations],
    }


def _iteration(one: HistoryIteration, joined: Container[str], media: bool) -> dict[str, Any]:
    calls = iter(one.calls)
    return {
        "number": one.number,
        "model": one.model,
        "request_id": one.request_id,
        "finish_reason": one.finish_reason,
        "usage": asdict(one.usage),
        "started_at": one.started_at.isoformat(),
        "completed_at": one.completed_at.isoformat(),
        "messages": [
            _message(message, calls, media)
            for message in one.messages
            if message.role != "tool" or message.tool_call_id not in joined
        ],
    }


def _message(message: Message, calls: Iterator[HistoryCall], media: bool) -> dict[str, Any]:
    """One message, each of its calls with the result. `calls`: the next calls of its iteration."""
    found = message.to_dict(media=media)
    if message.tool_calls:
        found["tool_calls"] = [_call(next(calls), media) for _ in message.tool_calls]
    return found


def _call(call: HistoryCall, media: bool) -> dict[str, Any]:
    result = None
    if call.flag is not None:
        answer = Message(role="tool", parts=call.parts).to_dict(media=media)
        result = {"flag": call.flag, "parts": answer["parts"], "seconds": call.seconds}
        if call.whole is not None:
            result["whole"] = call.whole
    return {**call_dict(call), "result": result, "waits_for": call.waits_for or None}


def _message_rows(message: Message) -> Iterator[ShownText]:
    """A message: its text, its other parts by type and size, its calls. Results stand with their calls, and
    are not among these rows."""
    if message.role != "tool":
        name = "event" if message.is_event else message.role
        label = f"{name} ({message.speaker})" if message.speaker else name
        parts = [
            f"[{type(part).__name__.lower()}, {part.media_type}"
            + ("" if part.data is None else f", {len(part.data)} bytes")
            + "]"
            for part in message.parts
            if not isinstance(part, Text)
        ]
        if shown := "\n".join(filter(None, (message.said, *parts))):
            yield ShownText(label, shown)
