"""Requests for privacy: a kept conversation without a text, as an export, or erased.

Owns: which rows of a store belong to a conversation, and the order in which they are changed. Must never
know: an engine of a store, or how a text is taken out of a state.

A conversation has a row of its own, with its parts. Bytes that could not be read may be kept aside, under
keys that begin with the conversation's key; see `Row.set_aside`. A redaction and an erasure hold the lease.
So they wait for a turn that runs, and no turn begins meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...base.values import replace
from ...history.export import as_base64, export_state
from ...history.redact.matching import Match
from ...history.redact.redaction import RedactedPlace, Redaction, marked_redacted, redact_state
from ...state.apart import whole
from ...state.state import load_meta
from ...turn.flow import Flow, computed
from ...types.errors import StateConflictError, StateError
from .row import Row, aside_prefix, is_aside
from .row_calls import RowSettings

if TYPE_CHECKING:
    from ...stores.base import Stored, StoredPage

__all__ = ["KeptPrivacy", "erasing", "export_flow", "redacting"]

_FORMAT: Final = "goaitools-conversation"
"""The value of the member "format" in an exported conversation."""

_TRIES: Final = 100
"""How often a row is changed again because another worker has saved meanwhile."""


class KeptPrivacy:
    """A redaction or an erasure of a kept conversation, under its lease."""

    unsaved: Exception | None = None

    def __init__(
        self, settings: RowSettings, act: Callable[[Row], Flow[Any]], *, timeout: float | None
    ) -> None:
        self._row = Row(settings)
        self._act = act
        self._timeout = timeout
        self.is_settled = False

    def run(self) -> Flow[Any]:
        """Run it, from the lease to the last row."""
        try:
            yield from self._row.take_lease(self._timeout, is_whole=True)
            found = yield from self._act(self._row)
        except Exception:
            yield from self.settle()
            raise
        yield from self.settle()
        return found

    def settle(self) -> Flow[None]:
        """Give the lease back."""
        yield from self._row.release()
        self.is_settled = True


# --------------------------------------------------------------------------------------- redaction


def redacting(match: Match, with_: str, *, listening: bool = False) -> Callable[[Row], Flow[Redaction]]:
    """Redact a text in a conversation, and in its bytes aside.

    Bytes aside that cannot be read cannot be searched, so they are deleted.
    """

    def act(row: Row) -> Flow[Redaction]:
        found = yield from _redacted(row, match, with_)
        if listening and row.has_saved:
            yield from row.tell()
        # After the row: a copy that a worker without the lease has moved aside meanwhile is in this list.
        aside = yield from _keys_aside(row.settings)
        if aside is None:
            return replace(found, erased=None)
        count = erased = 0
        for key in aside:
            beside = Row(replace(row.settings, key=key))
            try:
                count += (yield from _redacted(beside, match, with_)).count
            except StateError:
                erased += bool((yield from beside.ask(row.settings.store.delete, key)))
        place = RedactedPlace(where="set_aside", turn=None, count=count)
        places = (*found.places, place) if count else found.places
        return replace(found, count=found.count + count, places=places, erased=erased)

    return act


def _redacted(row: Row, match: Match, with_: str) -> Flow[Redaction]:
    """Redact one row. After a conflict it is loaded and redacted again."""
    settings = row.settings
    for left in range(_TRIES, -1, -1):
        yield from row.load(is_whole=True)
        if not row.stored:
            return Redaction(state=b"", count=0, places=(), kept=0, unsigned=0, sealed=0, dropped=0)
        meta = load_meta(row.stored, codec=settings.codec, binding=settings.binding)
        redact = partial(
            redact_state,
            row.stored,
            match,
            with_,
            codec=settings.codec,
            binding=settings.binding,
            dialect=settings.dialect if meta.wire == settings.dialect.wire else None,
        )
        found = yield from computed(redact)
        is_same = found.state == row.stored
        if is_same and not row.has_unlisted and callable(getattr(settings.store, "lease", None)):
            return replace(found, state=whole(row.stored))
        try:
            if is_same and not row.has_unlisted:
                # Without leases a turn may run that has loaded an older row, which had the text. The mark
                # keeps it from being put behind this row.
                mark = partial(marked_redacted, row.stored, codec=settings.codec, binding=settings.binding)
                found = replace(found, state=(yield from computed(mark)))
                yield from row.commit(found.state, most=0, is_paid=False)
            elif is_same:  # parts that no head lists may have the text, and nothing can redact them
                yield from row.overwrite(row.stored)
            else:
                # No rebase: another worker's additions may have the text, too. They are loaded and redacted.
                yield from row.commit(found.state, most=0, is_paid=False)
        except StateConflictError:
            if not left:
                raise
            continue
        return replace(found, state=whole(found.state))
    raise AssertionError


# ------------------------------------------------------------------------------------------ export


def export_flow(settings: RowSettings) -> Flow[dict[str, Any] | None]:
    """Give all that is stored of a conversation as JSON-able values; None if nothing is stored."""
    found = yield from _exported(settings)
    aside: list[dict[str, Any]] = []
    for key in (yield from _keys_aside(settings)) or ():
        one = yield from _exported(replace(settings, key=key))
        if one is not None:
            aside.append(one)
    if found is None and not aside:
        return None
    found = found or {"key": settings.key, "saved_at": None, "state": None}
    return {"format": _FORMAT, "version": 1, **found, "set_aside": aside}


def _exported(settings: RowSettings) -> Flow[dict[str, Any] | None]:
    """One row. Bytes that cannot be read are given as base64."""
    row = Row(settings)
    stored: Stored | None = yield from row.load(is_whole=True, tolerates_damage=True)
    if stored is None:
        return None
    found: dict[str, Any] = {"key": settings.key, "saved_at": stored.updated_at.isoformat(), "state": None}
    with suppress(StateError):
        # A damaged part makes the state unreadable, so the export has its bytes as base64.
        if row.damage is not None:
            raise row.damage
        codec, binding = settings.codec, settings.binding
        wire = load_meta(row.stored, codec=codec, binding=binding).wire
        dialect = settings.dialect if wire == settings.dialect.wire else None
        export = partial(export_state, row.stored, codec=codec, binding=binding, dialect=dialect)
        found["state"] = yield from computed(export)
    if found["state"] is None:
        found["base64"] = as_base64(row.stored)
        if parts := getattr(stored, "parts", ()):
            found["parts"] = [as_base64(part.data) for part in parts]
    return found


# ----------------------------------------------------------------------------------------- erasure


def erasing(settings: RowSettings) -> Callable[[Row], Flow[int]]:
    """Delete all rows of a conversation: its own with the parts, and the bytes aside. Gives their number.

    Raises TypeError if the store cannot delete, or cannot list.
    """
    store = settings.store
    if not callable(getattr(store, "delete", None)) or not callable(getattr(store, "list", None)):
        raise TypeError(
            f"erase needs a store with delete() and list(), and {type(store).__name__} lacks one: delete the "
            f"row of the key yourself, and the rows of keys that begin with it and '.unreadable.'"
        )

    def act(row: Row) -> Flow[int]:
        count = 0
        # Until nothing is left: another worker may save between a list and a delete.
        for _ in range(_TRIES):
            keys = [settings.key, *((yield from _keys_aside(settings)) or ())]
            gone = 0
            for key in keys:
                gone += bool((yield from row.ask(store.delete, key)))
            count += gone
            if not gone:
                return count
        raise StateConflictError("another worker saves the conversation again and again: stop it first")

    return act


def _keys_aside(settings: RowSettings) -> Flow[list[str] | None]:
    """The keys of the bytes aside; None if the store cannot list."""
    if not callable(getattr(settings.store, "list", None)):
        return None
    prefix, found, cursor = aside_prefix(settings.key), [], None
    while True:
        page: StoredPage = yield from Row(settings).ask(_listed, settings.store, prefix, cursor)
        found += [one.key for one in page.keys if is_aside(one.key, settings.key)]
        cursor = page.cursor
        if cursor is None:
            return found


def _listed(store: Any, prefix: str, cursor: str | None) -> Any:
    return store.list(prefix, cursor=cursor)
