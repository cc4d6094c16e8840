"""Copies of a kept conversation: forks, and the branches that edits leave.

Owns: the load and the save of a copy, and which copy of an edit stays. Must never know: a turn, or the kind
of store.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from ...base.values import replace
from ...history.branch import fork_state
from ...open_turn.turn_ids import id_rows
from ...state.apart import whole
from ...state.records import digest8
from ...state.state import load_state
from ...state.whole_blobs import rewrap
from ...turn.flow import Flow, computed
from ...types.errors import StateConflictError
from .changes import conversation_id
from .row import Row, branch_key
from .row_calls import RowSettings

__all__ = ["EditBranch", "fork_flow"]

MAX_BRANCHES: Final = 100
"""How many branches with the same key and revision an edit passes over."""


def fork_flow(settings: RowSettings, other: RowSettings, *, listening: bool = False) -> Flow[None]:
    """Copy the conversation to another key. Raises `StateConflictError` if that key has one already."""
    row = Row(settings)
    yield from row.load(is_whole=True)
    if not row.stored:
        raise ValueError("there is nothing to fork: nothing is stored under this key")
    beside = Row(other)
    yield from _copy_flow(settings, row.stored, beside)
    if listening:
        yield from beside.tell()


def _copy_flow(settings: RowSettings, stored: bytes, beside: Row) -> Flow[None]:
    """Copy a whole state to another row; see `fork_flow`."""
    other = beside.settings
    blob = yield from computed(
        partial(
            fork_state,
            stored,
            conversation_id=conversation_id(other.key),
            codec=settings.codec,
            binding=settings.binding,
        )
    )
    if other.binding != settings.binding:
        blob = rewrap(whole(blob), codec=settings.codec, binding=settings.binding, to_binding=other.binding)
    # `beside` has loaded nothing, so this save succeeds only under a key without a state.
    yield from beside.commit(blob, most=0, is_paid=False)


class EditBranch:
    """The copy of a conversation that one edit leaves as a branch. Each edit has a copy of its own: if it is
    refused, it deletes that copy, and no other edit relies on it."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._key = ""
        self._version: int | None = None
        self.is_needed = False  # a save of the edited conversation was tried

    @property
    def end(self) -> str:
        """The end of the copy's key; "" without a copy."""
        return self._key and self._key[self._key.rindex(".branch.") :]

    @property
    def is_kept(self) -> bool:
        """True if there is a copy, or if the settings ask for no copies."""
        return bool(self._key) or not self._row.settings.keep_branches

    def check_same_turns(self, given: bytes, turn_id: str | None) -> None:
        """Refuse an edit that begins anew behind a turn of another worker, which it would take out.

        Args:
            given: The state that the edit began from; b"" if it begins for the first time.
            turn_id: The id of the edit. Another worker may have done the same edit.

        Raises:
            StateConflictError: There is such a turn.
        """
        row = self._row
        if not given or not row.stored or row.damage is not None:
            return
        reading = {"codec": row.settings.codec, "binding": row.settings.binding}
        before, now = (load_state(blob, **reading).meta for blob in (given, row.stored))
        old, known = (
            {row.id: row.said for row in id_rows(meta)} if turn_id is not None else {}
            for meta in (before, now)
        )
        id = digest8(turn_id or "")
        # If the edited message has the same id, its row tells whether another worker has edited it.
        is_done = id in known and id not in old
        is_edited = id in old and old[id] != known.get(id)
        if is_edited or (not is_done and (before.created, before.processed) != (now.created, now.processed)):
            raise StateConflictError(
                "another worker had a turn on this conversation since the edit began, and nothing was "
                "called: look at the conversation, and edit it again"
            )

    def keep(self, given: bytes) -> Flow[None]:
        """Copy the conversation before its edit, if the settings say so."""
        settings = self._row.settings
        if not settings.keep_branches or self._key:
            return
        revision = load_state(given, codec=settings.codec, binding=settings.binding).meta.rev
        # After an exit in this method a copy may be there. It is not looked for: another edit may have made
        # the same one, and may delete it.
        for number in range(1, MAX_BRANCHES + 1):
            key = branch_key(settings.key, revision, number)
            beside = Row(replace(settings, key=key))
            try:
                yield from _copy_flow(settings, given, beside)
            except StateConflictError:
                # The copy of another edit, or the branch of a conversation that was deleted.
                if number < MAX_BRANCHES:
                    continue
                raise
            if beside.has_doubt and number < MAX_BRANCHES:
                # A save got no answer. So this may be the copy of another edit, which may delete it.
                continue
            self._key, self._version = key, beside.version
            return

    def drop(self) -> Flow[None]:
        """Delete the copy again: the edit was refused, or begins anew. If that fails, it stays.

        It also stays if the edit may be stored after all: then it may be the only copy.
        """
        key, version, store = self._key, self._version, self._row.settings.store
        self._key, self._version = "", None
        may_be_stored = self.is_needed and self._row.has_doubt
        if version is not None and not may_be_stored and hasattr(store, "delete"):
            with suppress(Exception):
                yield from self._row.ask(partial(store.delete, expected=version), key)
