"""How often a turn asks its store: round trips on the wire, or statements of a file.

A turn whose archive and media stand beside its state asks as often as one without parts.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, Image
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Loop
from goaitools_py.testing._store_case import opened as entered

from ._places import Place, maker
from ._wire import wire_to

PICTURE = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(7_000))
"""It is a part, so the table of parts is made. While a database does not have it, a load asks twice."""

WARM = 8
"""Turns before the count: tables are made, statements prepared, scripts known."""

TRIPS = {
    "postgres": (3, 4),
    "postgres-async": (3, 4),
    "postgresql": (3, 4),
    "postgresql-asyncpg": (3, 4),
    "redis": (2, 4),
    "redis-async": (2, 4),
}
"""By kind: round trips of a turn with the combined steps, and with single ones."""


def singly(store: Any) -> Any:
    """The store with a `save_parts` of its own: it gets the single steps."""
    base = type(store)

    class Own(base):  # type: ignore[misc, valid-type]
        def save_parts(self, *save: Any, **how: Any) -> Any:
            return super().save_parts(*save, **how)

        def save(self, *save: Any, **how: Any) -> Any:
            return super().save(*save, **how)

    store.__class__ = Own
    return store


def trips_of(place: Place, *, parts: str, is_single: bool) -> list[int]:
    """The round trips of some turns."""
    with ExitStack() as stack:
        wire, detour = stack.enter_context(wire_to(place))
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(maker(detour), loop))
        if is_single:
            singly(store)
        is_async = "async" in place.kind
        chat: Any = (AsyncChat if is_async else Chat)(ScriptedBackend(*["Yes."] * (WARM + 3)))
        conversation = chat.conversation(store, f"ada-{parts}-{is_single}", parts=parts)
        found = []
        for number in range(WARM + 3):
            before = wire.trips
            sent = conversation.send("Hello?" if number else ["Look.", PICTURE])
            if is_async:
                loop.run(sent)
            found.append(wire.trips - before)
    return found[WARM:]


@pytest.mark.parametrize("place", [*TRIPS, "mariadb"], indirect=True)
def test_a_turn_with_parts_asks_as_often_as_a_plain_one(place: Place) -> None:
    """Take the lease and load; save, and give the lease back. A store with its own `save_parts` is asked for
    each step."""
    found = {
        (parts, is_single): trips_of(place, parts=parts, is_single=is_single)
        for parts in ("inline", "store")
        for is_single in (False, True)
    }

    if place.kind == "mariadb":  # SQLAlchemy sets the isolation level each time it takes a connection
        (plain,), (combined,), (single,) = (
            {*found[kind]} for kind in (("inline", False), ("store", False), ("store", True))
        )
        assert combined <= plain + 1
        assert combined <= single - 9
        return
    combined, single = TRIPS[place.kind]
    for parts in ("inline", "store"):
        assert found[parts, False] == [combined] * 3
        assert found[parts, True] == [single] * 3


def syncs_of(store: SQLiteStore, parts: str) -> int:
    """How often a turn makes SQLite sync the file: for each write of its own, and each transaction."""
    chat = Chat(ScriptedBackend("Yes.", "Yes."))
    conversation = chat.conversation(store, f"ada-{parts}", parts=parts)  # type: ignore[arg-type]
    conversation.send("Hello?")
    told: list[str] = []
    store._connection.set_trace_callback(told.append)
    conversation.send("Hello?")
    store._connection.set_trace_callback(None)
    syncs, is_inside, has_written = 0, False, False
    for statement in told:
        word = statement.split()[0]
        is_write = word in ("INSERT", "UPDATE", "DELETE")
        if word == "BEGIN":
            is_inside, has_written = True, False
        elif word == "COMMIT":
            syncs += has_written
            is_inside = False
        elif is_inside:
            has_written = has_written or is_write
        else:
            syncs += is_write
    return syncs


@pytest.mark.parametrize("parts", ["inline", "store"])
def test_a_file_is_synced_twice_in_a_turn(tmp_path: Path, parts: str) -> None:
    """For the lease, and for the save together with its end. With single steps it is once more."""
    with SQLiteStore(tmp_path / "a.db") as store, SQLiteStore(tmp_path / "b.db") as single:
        assert syncs_of(store, parts) == 2
        assert syncs_of(singly(single), parts) == 3
