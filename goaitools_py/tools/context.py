"""The context of a running tool: information about the call, and a log of what the tool did.

Owns: `ToolContext` and `Action`. Must never know: how a tool is described, found or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from ..values import Value, field
from .results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    # Type checkers need the default: with it `ctx: ToolContext` means `ToolContext[Any]`.
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

__all__ = ["Action", "ToolContext"]


class Action(Value, frozen=True):
    """Something that a tool did, as it says: text for people, data for programs. Never stored in a state."""

    _unshown = frozenset({"text", "data"})

    text: str
    data: Mapping[str, Any] = {}


class ToolContext(Value, Generic[DepsT], frozen=True, kw_only=True):
    """The first argument of a tool that asks for one; the model does not see it.

    A tool is tested by calling it: ``get_score(ToolContext(deps=Game()), "blue")``.

    Attributes:
        deps: The object that was given as `deps` for this turn.
        call_id: The provider's id of this call.
        turn_id: The option `turn_id`, if this call of the chat was given one. Else the turn's `turn_ref`: the
            conversation's id and the turn's number. A state keeps only a digest of the option, so a `resume`
            without it sees the `turn_ref`.
        iteration: The model call of the turn that asked for the tool, counted from 1. The numbers go on after
            a `resume`.
        idempotency_key: The same text each time this call is run. Pass it to services that accept such keys.
        max_result_bytes: The longest text of the result, in UTF-8 bytes. The rest is cut off.
    """

    _unshown = frozenset({"deps", "_actions"})

    deps: DepsT
    call_id: str = ""
    turn_id: str = ""
    iteration: int = 1
    idempotency_key: str = ""
    max_result_bytes: int = MAX_RESULT_BYTES
    _actions: list[Action] = field(default_factory=list)

    def log_action(self, text: str, /, **data: Any) -> None:
        """Log what this call did. It appears in the `actions` of the turn's result, not in the model's."""
        self._actions.append(Action(text, data))

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was logged so far, in order."""
        return tuple(self._actions)
