"""What the tests of edits share: a provider that is down, and what a state has of ids and marks."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    TurnError,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.dialects import dialect_for
from goaitools_py.history.additions import hand_over
from goaitools_py.state.codec import PLAIN
from goaitools_py.state.records import digest8
from goaitools_py.state.state import ConversationState, dump_state, load_state
from goaitools_py.states import read_history

from .conftest import blob_in

DOWN = BackendError("down", status=503)
REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')


NAMES = {digest8(id): id for id in [*(f"m-{n}" for n in range(1, 10)), "e-1"]}
"""The turn ids of these tests, by their digests."""


def state_in(store: Any) -> ConversationState:
    return load_state(blob_in(store))


def rows_of(state: ConversationState) -> tuple[list[str], dict[str, str]]:
    """The turn ids that are not finished, and those of the ring with their status, by the known ids."""
    return [NAMES[row.id] for row in state.meta.turn], {NAMES[row.id]: row.status for row in state.meta.ring}


def waiting(state: ConversationState) -> list[tuple[str, str]]:
    """The texts that wait, each with the turn id of its mark."""
    found = read_history(dump_state(state)).waiting
    return [(one.text, NAMES.get(item.turn, "")) for one, item in zip(found, state.inbox, strict=True)]


def fails(conversation: Any, text: Any, **fields: Any) -> None:
    """Send a message to a provider that is down."""
    with pytest.raises(TurnError):
        conversation.send(text, **fields)


def put(store: Any, wire: str, text: str, turn_id: str) -> None:
    """A steering send has put its message into the row, and its process has died."""
    row = store.inner.load("ada")
    blob = hand_over(
        row.blob,
        [user(text)],
        dialect_for(wire, None),
        turn_id=turn_id,
        context=None,
        metadata=None,
        codec=PLAIN,
        binding=None,
        fresh_id="ada",
        now_ms=1_800_000_000_000,
    )
    store.inner.save("ada", blob, expected=row.version)
