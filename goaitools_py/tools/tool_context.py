"""The context of a running tool: information about the call, and a log of the tool's actions.

Owns: `ToolContext` and `Action`. Must never know: how a tool is described, found or run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from ..base.values import Value, field
from ..types.result import Action
from ..types.usage import Bill

if TYPE_CHECKING:
    # Type checkers need the default: with it `ctx: ToolContext` means `ToolContext[Any]`.
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

__all__ = ["MAX_RESULT_BYTES", "Action", "ToolContext", "Waiting"]


MAX_RESULT_BYTES = 256 * 1024
"""The longest text of one result, in UTF-8 bytes, with the note about the removed text. The option
`max_tool_result_bytes` changes it."""


class Waiting(Exception):  # noqa: N818 - no failure: the call waits for answers to calls inside of it
    """A tool raises it if its own calls wait for answers. `asks`: these calls, as JSON text."""

    def __init__(self, asks: str) -> None:
        super().__init__()
        self.asks = asks


class ToolContext(Value, Generic[DepsT], frozen=True, kw_only=True):
    """The first argument of a tool that asks for one; the model does not see it.

    A tool is tested by calling it: ``get_score(ToolContext(deps=Game()), "blue")``.

    Attributes:
        deps: The object that was given as `deps` for this turn.
        call_id: The provider's id of this call.
        turn_id: The option `turn_id`, if this call of the chat was given one. Else the turn's `turn_ref`: the
            conversation's id and the turn's number. A state keeps only a digest of the option, so a `resume`
            without it sees the `turn_ref`.
        iteration: The number of the model call that asked for the tool, as in `ModelRequested`.
        idempotency_key: The same text each time this call is run. Pass it to services that take one.
        max_result_bytes: The longest text of the result that the model reads, in UTF-8 bytes.
        conversation_id: The id of the conversation.
        answers: For a tool with calls of its own that waited, such as one of `Chat.as_tool`: the answers to
            them, by call id.
    """

    _unshown = frozenset(
        {"deps", "answers", "_actions", "_asked", "_beside", "_bills", "_heard", "_keeps", "_left"}
    )

    deps: DepsT
    call_id: str = ""
    turn_id: str = ""
    iteration: int = 1
    idempotency_key: str = ""
    max_result_bytes: int = MAX_RESULT_BYTES
    conversation_id: str = ""
    answers: Mapping[str, Any] = {}
    _asked: str = ""
    """The calls that waited, as `Waiting.asks` has them, when answers to some of them have come."""
    _beside: Callable[[], Sequence[str]] = tuple
    """Gives the idempotency keys of the other calls of the same reply."""
    _keeps: bool = False
    """True if a result beyond `max_result_bytes` is kept whole."""
    _actions: list[Action] = field(default_factory=list)
    _bills: list[Bill] = field(default_factory=list)
    _heard: list[Callable[[float, float | None, str], object]] = field(default_factory=list)
    """Functions that get the arguments of `report_progress`; empty if nothing listens to the turn."""
    _left: list[Callable[[], object]] = field(default_factory=list)

    def log_action(self, text: str, /, **data: Any) -> None:
        """Log an action of this call. It appears in the `actions` of the turn's result, not in the model's.

        TypeError if `text` is not text: pass other values in `data`.
        """
        if not isinstance(text, str):
            raise TypeError(f"log_action takes a str, and data by name, not {type(text).__name__}")
        self._actions.append(Action(text, data))

    def report_progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Say how far this call is. A listener of the turn gets a `ToolProgress`; the model reads nothing.

        Any thread may call this while the tool runs. For a tool that runs in the turn's own thread, the
        listener gets the reports when the tool ends.

        Args:
            progress: How far it is, in a unit of your own.
            total: The value of `progress` at the end, if you know it.
            message: The present step, for people.
        """
        for tell in self._heard:
            tell(progress, total, message)

    def add_bill(self, bill: Bill, /) -> None:
        """Add model calls that this tool made to the turn's usage and cost: ``ctx.add_bill(result.bill)``.

        They are part of `ChatResult.usage`, `aside_usage` and `cost_usd`, and count for the turn's limits.
        TypeError for a value that is not a bill, for example the result itself.
        """
        if not isinstance(bill, Bill):
            raise TypeError(f"add_bill takes result.bill, not {type(bill).__name__}")
        self._bills.append(bill)

    @property
    def bills(self) -> tuple[Bill, ...]:
        """The bills so far, in order."""
        return tuple(self._bills)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions so far, in order."""
        return tuple(self._actions)
