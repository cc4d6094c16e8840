"""The results of turns and compactions.

Owns: these frozen values. Must never know: how they are made.

`ChatResult.status` says why a turn ended; a warning (`turn_warnings`) names the limit of a limited turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TextIO

from msgspec.structs import asdict

from ..base.values import Value
from .citations import Citation
from .messages import ToolRecord, Usage, call_dict
from .turn_warnings import TurnWarning
from .usage import Bill

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..base.display import ShownText
    from .answers import PendingCall
    from .errors import StateError

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

__all__ = [
    "Action",
    "ChatResult",
    "CompactionOutcome",
    "CompactionReport",
    "RecallReport",
    "Status",
    "state_bytes",
]

Status = Literal["complete", "awaiting_tools", "truncated", "refused", "limited", "in_progress"]

CompactionOutcome = Literal["compacted", "no_change", "invalid", "failed"]


class CompactionReport(Value, frozen=True, kw_only=True):
    """The outcome of a compaction.

    Messages are counted as `history` shows them. Bytes are sizes of the stored entries. Tokens are estimates
    of the closed history.

    Attributes:
        outcome: "compacted"; "no_change": there was nothing to do, or the result would not be better;
            "invalid": the compactor's answer could not be used; "failed": it raised, or its model did not
            answer. Only "compacted" has changed the history.
        by: The strategy's name.
        reason: Why it did nothing, or less than was asked for; without content.
        removed_turns: How many turns it removed.
        rewritten_turns: In how many turns it replaced parts.
        usage: The usage of the strategy's own model calls; part of the turn's usage.
        state: Set by `compact_state` only.
        error: The exception that your trigger, strategy or `before_cut` raised, for your own log.
    """

    _unshown = frozenset({"state", "error"})

    outcome: CompactionOutcome
    by: str = ""
    reason: str = ""
    removed_turns: int = 0
    rewritten_turns: int = 0
    removed_messages: int = 0
    usage: Usage = Usage()
    messages_before: int = 0
    messages_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    state: bytes = b""
    error: Exception | None = None


class RecallReport(Value, frozen=True, kw_only=True):
    """The model's use of the tool ``recall`` in one turn; see ``Compactor(…, recall=True)``.

    Attributes:
        calls: How often it searched.
        hits: How many searches found a passage.
        turns: The numbers of the turns that the model could read.
    """

    calls: int = 0
    hits: int = 0
    turns: tuple[int, ...] = ()

    @property
    def misses(self) -> int:
        """How many searches found nothing."""
        return self.calls - self.hits


class Action(Value, frozen=True):
    """Something that a tool did, as it says: text for people, data for programs.

    A state has it only with ``record_actions=True``: see `HistoryTurn.actions`.
    """

    _unshown = frozenset({"text", "data"})

    text: str
    data: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatResult(tuple[str, bytes], Generic[T]):
    """The outcome of a turn; it is the tuple ``(text, state)``, so that ``text, state = …`` is typed.

    Attributes:
        text: The last reply's visible text.
        state: The new blob: save it, and give it to the next call.
        status: "complete"; "awaiting_tools": calls wait for answers; "truncated": the reply reached a limit
            of its length; "refused": the model refused; "limited": the turn reached one of its limits;
            "in_progress": a step of the chat's method `step` ended, and the turn did not.
        finish_reason: The provider's own word for the end of the reply.
        pending: Calls that wait for an answer from outside; empty unless `status` is "awaiting_tools".
        usage: The usage of this turn, with all its model calls. After a `resume` it has only the calls since
            then, and so have `cost_usd`, `bill`, `iterations`, `actions` and `request_ids`: the errors and
            results of a turn add up.
        total_usage: The usage of the conversation in its whole life, across compactions.
        aside_usage: The part of `total_usage` that paid for summaries and similar calls.
        total_cost_usd: The cost of the conversation in its whole life, in US dollars. It is recorded only
            with `prices=`, or with a limit on costs. None means unknown.
        iterations: How many model calls this turn made.
        actions: The actions that tools logged with ``ctx.log_action``.
        tool_log: Every tool call with its result, in order. After a `resume`, also earlier calls with results
            that no model had read.
        compaction: Set if the history was compacted.
        context_used: The size of the next request without new messages, in tokens.
        context_fraction: The part of the model's context window in use (1.0: all of it); None if the window
            is unknown.
        warnings: Problems of a turn that succeeded; docs/event_fields.md has the codes.
        discarded: The error of the given state, if a fresh one was begun in its place: it is damaged, or of
            another provider API. Its bytes are in ``discarded.blob``.
        citations: The sources that the reply names (web search, documents). Their positions count characters
            of `text`.
        duplicate: True if this is the stored reply to an earlier call: with the same `turn_id`, or with the
            same answers to `resume`.
        model: The model that answered, as the provider names it.
        request_ids: The provider's ids, one per model call that reported one.
        recall: The model's searches among earlier turns; None if it searched nothing.
        output: The answer as a value of the `output_type`. None without an `output_type`, and unless `status`
            is "complete". A `duplicate` has it if the stored reply fits the type.
        turns_left: For `run_turns` that stopped because this turn waits: the texts that were not sent.
    """

    text: str = field(repr=False)
    state: bytes = field(repr=False)
    status: Status = "complete"
    finish_reason: str = ""
    pending: tuple[PendingCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    total_usage: Usage = field(default_factory=Usage)
    aside_usage: Usage = field(default_factory=Usage)
    total_cost_usd: Decimal | None = None
    iterations: int = 0
    actions: tuple[Any, ...] = field(default=(), repr=False)
    tool_log: tuple[ToolRecord, ...] = ()
    compaction: CompactionReport | None = None
    context_used: int = 0
    context_fraction: float | None = None
    warnings: tuple[TurnWarning, ...] = ()
    discarded: StateError | None = field(default=None, repr=False)
    duplicate: bool = False
    model: str = ""
    request_ids: tuple[str, ...] = ()
    turns_left: tuple[str, ...] = field(default=(), repr=False)
    citations: tuple[Citation, ...] = ()
    recall: RecallReport | None = None
    bill: Bill = field(default_factory=Bill, repr=False)
    output: T | None = field(default=None, repr=False)

    @cached_property
    def cost_usd(self) -> Decimal | None:
        """The cost of this turn with all its calls, in US dollars; None means unknown.

        Without `prices=` the first read asks genai-prices, if the extra ``[prices]`` is installed.
        """
        return self.bill.cost_usd

    def to_dict(self, *, content: bool = False) -> dict[str, Any]:
        """The result as JSON-able values, which `RESULT_SCHEMA` of `goaitools_py.states` describes.

        It has no state: give that as it is, or as text with `state_to_text`. Amounts of money are floats. An
        error is named by its class. pydantic writes values of `output`, or of the data of an action, that are
        no JSON values.

        Args:
            content: True for a client: also the texts, the arguments and results of calls, actions,
                citations, the `output`, and `turns_left`. False for logs.
        """
        compaction = self.compaction
        found = {
            "version": 1,
            "status": self.status,
            "finish_reason": self.finish_reason,
            "model": self.model,
            "usage": asdict(self.usage),
            "total_usage": asdict(self.total_usage),
            "aside_usage": asdict(self.aside_usage),
            "cost_usd": _money(self.cost_usd),
            "total_cost_usd": _money(self.total_cost_usd),
            "iterations": self.iterations,
            "tool_log": [_record(record, content) for record in self.tool_log],
            "pending": [_pending(call, content) for call in self.pending],
            "compaction": None if compaction is None else _compaction(compaction),
            "recall": None if self.recall is None else {**asdict(self.recall), "turns": [*self.recall.turns]},
            "context_used": self.context_used,
            "context_fraction": self.context_fraction,
            "warnings": [asdict(one) for one in self.warnings],
            "discarded": _class(self.discarded),
            "duplicate": self.duplicate,
            "request_ids": list(self.request_ids),
        }
        return found | self._said() if content else found

    def _said(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "actions": [{"text": one.text, "data": _plain(dict(one.data))} for one in self.actions],
            "citations": [_without(asdict(one), "raw") for one in self.citations],
            "turns_left": list(self.turns_left),
            "output": _plain(self.output),
        }

    def show(self, *, file: TextIO | None = None) -> None:
        """Print the turn with its content: its tool calls, its reply and the waiting calls.

        ``print(result)`` shows no content, so that results may be logged. `file`: where to; None is standard
        output.
        """
        from ..base.display import print_rows

        print_rows(self._rows(), file)

    def _repr_html_(self) -> str:
        """The same for a notebook, which calls this for the last value of a cell."""
        from ..base.display import as_html

        return as_html(self._rows())

    def _rows(self) -> Iterator[ShownText]:
        from ..base.display import ShownText

        for record in self.tool_log:
            flag = "" if record.flag == "ok" else f" [{record.flag}]"
            yield ShownText("call", f"{record.call.name}({record.call.arguments}){flag} -> {record.result}")
        yield ShownText("assistant", self.text or "(no text)")
        if self.output is not None:
            yield ShownText("output", repr(self.output))
        for call in self.pending:
            yield ShownText("waits", f"{call.name}({call.shown})")
        for warning in self.warnings:
            yield ShownText("warning", f"{warning.code}: {warning.message}")
        yield ShownText(f"({self.status}, {self.model or 'no model'}, {self.usage.total_tokens} tokens)")

    def __new__(cls, *, text: str, state: bytes, **_: Any) -> Self:
        return tuple.__new__(cls, (text, state))

    # The tuple's own second item may be a state that is not made yet.

    def __iter__(self) -> Iterator[Any]:
        return iter((tuple.__getitem__(self, 0), self.state))

    def __getitem__(self, at: Any) -> Any:
        return tuple(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __contains__(self, item: object) -> bool:
        return item in tuple(self)

    def __add__(self, other: Any) -> Any:
        return tuple(self) + other

    def __mul__(self, times: Any) -> Any:
        return tuple(self) * times

    __rmul__ = __mul__

    def index(self, item: Any, *bounds: Any) -> int:
        """As of a tuple."""
        return tuple(self).index(item, *bounds)

    def count(self, item: Any) -> int:
        """As of a tuple."""
        return tuple(self).count(item)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        # The arguments of `__new__` for a copy, here or in another process. Then the other fields are set.
        return (), {"text": self.text, "state": self.state}


def state_bytes(result: ChatResult[Any]) -> int:
    """Count the bytes of a result's state as they are stored. It does not make the state."""
    found = vars(result)["state"]
    return getattr(found, "size", None) or len(found)


class _MadeLater:
    """The `state` of a result. A function in its place makes the state when it is read first; its attribute
    `size` is the number of stored bytes."""

    def __get__(self, result: Any, kind: Any = None) -> Any:
        if result is None:
            return self
        fields = vars(result)
        if "state" not in fields:  # the result is being made
            return tuple.__getitem__(result, 1)
        found = fields["state"]
        if callable(found):
            found = fields["state"] = found()
        return found

    def __set__(self, result: Any, state: Any) -> None:
        vars(result)["state"] = state


ChatResult.state = _MadeLater()  # type: ignore[assignment]


def _money(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _class(error: BaseException | None) -> str | None:
    return None if error is None else type(error).__name__


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _record(record: ToolRecord, content: bool) -> dict[str, Any]:
    found = {
        **call_dict(record.call),
        "result": record.result,
        "flag": record.flag,
        "iteration": record.iteration,
        "started": record.started,
        "seconds": record.seconds,
        "error": _class(record.error),
    }
    return found if content else _without(found, "arguments", "result")


def _pending(call: PendingCall, content: bool) -> dict[str, Any]:
    found = {name: getattr(call, name) for name in ("id", "name", "arguments", "kind", "reason")}
    return found if content else _without(found, "arguments")


def _compaction(report: CompactionReport) -> dict[str, Any]:
    return {
        **_without(asdict(report), "state", "error"),
        "usage": asdict(report.usage),
        "error": _class(report.error),
    }


def _plain(value: Any) -> Any:
    """Any value as JSON-able values."""
    if value is None or type(value) in (str, int, bool):
        return value
    from pydantic_core import to_jsonable_python  # on first need: it takes a while to load

    return to_jsonable_python(value, inf_nan_mode="null", fallback=str)
