"""Keeps the error of an unfinished turn beside the turn.

Owns: the place and the form of the kept error. Must never know: the error object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ..base.values import replace
from ..state.row_codec import MAX_LABEL
from ..state.state import ConversationState

__all__ = [
    "failure_in",
    "failure_of",
    "with_failure",
    "without_failure",
]

_FAILED: Final = "failed"
"""A fact of a turn that failed: the class of its error, and the provider's code if there is one."""


def with_failure(state: ConversationState, error: str, code: str) -> ConversationState:
    """The state, with the error of its unfinished turn. The same object without an unfinished turn.

    Before a model has accepted any message there is no open turn yet. Then the meta data has the error.
    """
    row = (error[:MAX_LABEL], code[:MAX_LABEL]) if code else (error[:MAX_LABEL],)
    turn = state.open
    if turn is not None:
        return replace(state, open=replace(turn, facts={**turn.facts, _FAILED: list(row)}))
    if state.inbox:
        return replace(state, meta=msgspec.structs.replace(state.meta, failed=row))
    return state


def without_failure(state: ConversationState) -> ConversationState:
    """The state without the error of its unfinished turn. The same object if it has no error."""
    turn = state.open
    if turn is not None and _FAILED in turn.facts:
        facts = {name: value for name, value in turn.facts.items() if name != _FAILED}
        state = replace(state, open=replace(turn, facts=facts))
    if state.meta.failed:
        state = replace(state, meta=msgspec.structs.replace(state.meta, failed=()))
    return state


def failure_of(state: ConversationState) -> tuple[str, str] | None:
    """Class and code of the error that the unfinished turn ended with; None without an error."""
    return failure_in(state.open.facts) if state.open is not None else _failure(state.meta.failed)


def failure_in(facts: Mapping[str, Any]) -> tuple[str, str] | None:
    """Class and code of the error in the facts of one turn; None without an error."""
    return _failure(facts.get(_FAILED, ()))


def _failure(row: Sequence[str]) -> tuple[str, str] | None:
    return (row[0], row[1] if len(row) > 1 else "") if row else None
