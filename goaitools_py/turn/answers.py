"""Calls that wait for somebody outside, and what he may answer.

Owns: `PendingCall` and the answers as values. Must never know: a state, a tool's function, or who asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from ..messages import CallKind
from ..tools.results import ToolReturn
from ..values import Value

__all__ = ["Answer", "Answers", "Approve", "Deny", "PendingCall", "PendingReason", "check_answer"]

PendingReason: TypeAlias = Literal["approval", "external", "in_doubt"]


class Approve(Value, frozen=True):
    """Let a call run, with the model's arguments or with others (a mapping, or JSON text).

    `again`: let it run also if an earlier approval has started it and what came of that is not known. Without
    it such a call does not run a second time: the approval may be the earlier one, delivered once more.
    """

    unshown = frozenset({"arguments"})

    arguments: Mapping[str, Any] | str | None = None
    again: bool = False


class Deny(Value, frozen=True):
    """Do not let a call run; the model reads `reason`."""

    unshown = frozenset({"reason"})

    reason: str = ""


Answer: TypeAlias = Approve | Deny | ToolReturn
Answers: TypeAlias = Mapping[str, Answer]
"""Answers by call id."""


def check_answer(value: object) -> None:
    """TypeError for something that is no answer."""
    if not isinstance(value, (Approve, Deny, ToolReturn)):
        raise TypeError(f"an answer must be Approve(), Deny() or ToolReturn(), not {type(value).__name__}")


class PendingCall(Value, frozen=True, kw_only=True):
    """A call that waits for an answer in `resume`.

    Attributes:
        id: The key of its answer.
        name: The tool.
        arguments: The raw JSON text as the model wrote it.
        reason: "approval": it runs once it is approved. "external": its result comes from outside, as a
            `ToolReturn`. "in_doubt": it had started when its process died; without an answer the model is
            told that its outcome is unknown, unless the tool is idempotent and runs again.
        kind: "provider" for a provider's tool that your program runs, such as a ``computer_call``: `name` is
            the type of the model's item, `arguments` the whole item as JSON text, and `raw` that as a dict.
            "custom" for a custom tool, whose `arguments` are plain text. "function" for all others.
    """

    unshown = frozenset({"arguments"})

    id: str
    name: str
    arguments: str
    reason: PendingReason
    kind: CallKind = "function"

    @property
    def parsed(self) -> Any:
        """The arguments as Python values; ValueError if the model wrote no valid JSON,
        or JSON that nests too deep for `json`."""
        try:
            return json.loads(self.arguments or "{}")
        except RecursionError:
            raise ValueError("the arguments nest too deep to be read") from None

    @property
    def raw(self) -> dict[str, Any] | None:
        """The provider's own item, for a call of kind "provider"; None for any other."""
        return dict(self.parsed) if self.kind == "provider" else None
