"""The state as a client carries it.

Owns: how a state is written into an answer. Must never know: a front end, or the content of a state.
"""

from __future__ import annotations

from ..state.whole_blobs import state_to_text

__all__ = ["state_of"]


def state_of(told: object) -> dict[str, str]:
    """Give the member ``state`` of a result, or of an error that carries the state so far; else nothing."""
    state = getattr(told, "state", None)
    return {"state": state_to_text(state)} if isinstance(state, bytes) and state else {}
