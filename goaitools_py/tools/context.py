"""What a running tool is told about its call, and what it tells back beside its result.

Owns: `ToolContext` and `Action`. Must never know: how a tool is described, found or run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from ..values import Value, field
from .results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    # Only type checkers need the default: it lets `ctx: ToolContext` stand for `ToolContext[Any]`.
    from typing_extensions import TypeVar

    DepsT = TypeVar("DepsT", default=Any)
else:
    from typing import TypeVar

    DepsT = TypeVar("DepsT")

__all__ = ["Action", "ToolContext"]


class Action(Value, frozen=True):
    """One thing a tool says it did: words for people, and data for programs. Never stored in a state."""

    unshown = frozenset({"text", "data"})

    text: str
    data: Mapping[str, Any] = {}


class ToolContext(Value, Generic[DepsT], frozen=True, kw_only=True):
    """The first argument of a tool that asks for one; the model does not see it.

    A tool is tested by calling it: ``get_score(ToolContext(deps=Game()), "blue")``.

    Attributes:
        deps: The very object given as `deps` for this turn.
        call_id: The provider's id of this call.
        turn_id: What names the turn in logs, the same after a `resume`: the conversation's id and the turn's
            number. It is not the option `turn_id`, of which a state keeps only a digest.
        iteration: The model call that asked for the tool, counted from 1, and anew after a `resume`.
        idempotency_key: The same text whenever this call is run again; hand it to services that take one.
        max_result_bytes: Text of the result beyond so many bytes of UTF-8 is cut off.
    """

    unshown = frozenset({"deps", "_actions"})

    deps: DepsT
    call_id: str = ""
    turn_id: str = ""
    iteration: int = 0
    idempotency_key: str = ""
    max_result_bytes: int = MAX_RESULT_BYTES
    _actions: list[Action] = field(default_factory=list)

    def log_action(self, text: str, /, **data: Any) -> None:
        """Note what this call did, for the `actions` of the turn's result; the model does not see it."""
        self._actions.append(Action(text, data))

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was logged so far, in order."""
        return tuple(self._actions)
