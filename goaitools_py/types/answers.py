"""Calls that wait for an answer from outside, and the possible answers.

Owns: `PendingCall` and the answers as values. Must never know: a state, or a tool's function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias, get_args

from ..base.escaping import visible
from ..base.values import Given, Value
from .messages import CallKind, parsed_arguments

__all__ = [
    "Answer",
    "Answers",
    "Approve",
    "Deny",
    "InnerAnswers",
    "PendingCall",
    "PendingReason",
    "ToolReturn",
    "check_answer",
    "pending_inside",
    "pending_text",
]

INSIDE: Final = "/"
"""Stands between the id of a call and the id of a call that waits inside of it."""

PendingReason: TypeAlias = Literal["approval", "external", "in_doubt"]


class ToolReturn(Given, frozen=True):
    """A tool's result that says whether it is an error. `value` is anything that a tool may return."""

    _unshown = frozenset({"value"})

    value: Any
    is_error: bool = False


class Approve(Given, frozen=True):
    """Let a call run.

    Attributes:
        arguments: Other arguments than the model's: a mapping or JSON text. None: the model's.
        again: Let the call run even if an earlier approval has started it and the outcome is unknown. Without
            `again` the call does not run a second time, because this approval may be a redelivery of the
            earlier one.
    """

    _unshown = frozenset({"arguments"})

    arguments: Mapping[str, Any] | str | None = None
    again: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.again, bool):
            raise TypeError(f"again must be True or False, not {type(self.again).__name__}")


class Deny(Given, frozen=True):
    """Do not let a call run. The model reads `reason`."""

    _unshown = frozenset({"reason"})

    reason: str = ""


class InnerAnswers(Approve, frozen=True):
    """Let a call go on with answers to calls that wait inside of it. `given`: the answers, by those calls'
    ids."""

    _unshown = frozenset({"arguments", "given"})

    given: Mapping[str, Any] = {}


Answer: TypeAlias = Approve | Deny | ToolReturn
Answers: TypeAlias = Mapping[str, Answer]
"""Answers by call id."""


def check_answer(value: object) -> None:
    """Raise TypeError unless the value is an answer."""
    if not isinstance(value, (Approve, Deny, ToolReturn)):
        found = f"the class {value.__name__}: call it" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"an answer must be Approve(), Deny() or ToolReturn(), not {found}")


class PendingCall(Value, frozen=True, kw_only=True):
    """A call that waits for an answer in `resume`.

    Attributes:
        id: The id of the call. The answer to it is given under this id.
        name: The name of the tool.
        arguments: The JSON text that the model wrote, unchanged.
        reason: Why the call waits. "approval": the call runs after an `Approve`. "external": the result comes
            from outside, as a `ToolReturn`. "in_doubt": the call had started when its process died. Without
            an answer the model reads that the outcome is unknown, but an idempotent tool runs again.
        kind: "function" for a function tool. "custom" for a custom tool: its `arguments` are plain text.
            "provider" for a provider's tool that your program runs, such as a ``computer_call``: `name` is
            the type of the model's item, `arguments` is the whole item as JSON text, and `raw` is the item as
            a dict.
    """

    _unshown = frozenset({"arguments"})

    id: str
    name: str
    arguments: str
    reason: PendingReason
    kind: CallKind = "function"

    @property
    def parsed(self) -> Any:
        """The arguments as Python values.

        Raises ValueError if the arguments are not valid JSON, nest deeper than 100 levels, or have more than
        a million values.
        """
        return parsed_arguments(self.arguments)

    @property
    def shown(self) -> str:
        r"""The arguments for a person who decides: as written, with all digits, repeated names and order.

        Invisible characters, and characters that reverse text, are escapes such as ``\u202e``.
        """
        return visible(self.arguments)

    @property
    def raw(self) -> dict[str, Any] | None:
        """The provider's item as a dict for a call of kind "provider", else None."""
        return dict(self.parsed) if self.kind == "provider" else None


# ------------------------------------------------------------------------------- calls inside of a call


def pending_text(calls: Iterable[PendingCall]) -> str:
    """Calls that wait inside of a call, as the journal keeps them."""
    rows = [[call.id, call.name, call.arguments, call.reason, call.kind] for call in calls]
    return json.dumps(rows, ensure_ascii=False)


def pending_inside(outer: str, text: str) -> tuple[PendingCall, ...]:
    """The calls in a text of `pending_text`, under ids that begin with the outer id. () for other texts."""
    with suppress(ValueError, TypeError):
        return tuple(
            PendingCall(
                id=f"{outer}{INSIDE}{id}",
                name=str(name),
                arguments=str(arguments),
                reason=reason if reason in get_args(PendingReason) else "approval",
                kind=kind if kind in get_args(CallKind) else "function",
            )
            for id, name, arguments, reason, kind in parsed_arguments(text)
        )
    return ()
