"""A list of conversations with title, status, turns and cost: every store tells it without loading states."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat
from goaitools_py.chat.kept.summaries import Summaries, Summary
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Loop, opened

from ._places import KINDS, Place, maker

LISTING = [kind for kind in KINDS if not kind.startswith("callable")]


class Talks:
    """Conversations of a store of either colour."""

    def __init__(self, store: Any, loop: Loop) -> None:
        self.store = store
        self.loop = loop
        kind = AsyncChat if inspect.iscoroutinefunction(store.load) else Chat
        self._chat = kind(ScriptedBackend(*["Hello."] * 9), prices=lambda charge: Decimal("0.000001234"))

    def do(self, key: str, name: str, *args: Any, **fields: Any) -> Any:
        """Call a method of a conversation."""
        answer = getattr(self._chat.conversation(self.store, key), name)(*args, **fields)
        return self.loop.run(answer) if inspect.isawaitable(answer) else answer


def with_talks(place: Place, test: Callable[[Talks], None]) -> None:
    """Run a test with the conversations of a store at a place."""
    with closing(Loop()) as loop, opened(maker(place), loop) as store:
        test(Talks(store, loop))


def all_rows(talks: Talks, prefix: str, limit: int) -> list[Summary]:
    """The rows of all pages."""
    rows: list[Summary] = []
    cursor: str | None = None
    for _ in range(100):
        page: Summaries = talks.do("none", "summaries", prefix, cursor=cursor, limit=limit)
        assert len(page.rows) <= limit
        rows += page.rows
        cursor = page.cursor
        if cursor is None:
            return rows
    raise AssertionError("the list has no end")


@pytest.mark.parametrize("place", LISTING, indirect=True)
def test_every_store_tells_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Title, status, turns, cost and time, page by page; what another user has is not among them."""

    def test(talks: Talks) -> None:
        begun = datetime.now(UTC)
        for key in ("ada/1", "ada/2", "bob/1"):
            talks.do(key, "send", "Hello?")
        talks.do("ada/2", "send", "And now?")
        talks.do("ada/2", "update", title="Ämter & Würden")
        is_async = inspect.iscoroutinefunction(talks.store.load)
        monkeypatch.setattr(type(talks.store), "load", no_load_async if is_async else no_load)
        rows = {row.key: row for row in all_rows(talks, "ada/", 1)}

        assert rows.keys() == {"ada/1", "ada/2"}
        first, second = rows["ada/1"], rows["ada/2"]
        assert (first.title, first.status, first.turns) == ("", "complete", 1)
        assert (second.title, second.status, second.turns) == ("Ämter & Würden", "complete", 2)
        assert (first.cost_usd, second.cost_usd) == (Decimal("0.000001234"), Decimal("0.000002468"))
        assert second.total_tokens is not None
        assert first.total_tokens is not None
        assert second.total_tokens > first.total_tokens > 0
        assert timedelta(0) <= first.updated_at - begun + timedelta(seconds=1) < timedelta(minutes=5)
        assert "Würden" not in repr(second)
        assert "ada" not in repr(second)

    with_talks(place, test)


def no_load(*_: Any) -> Any:
    """Stands where a state would be loaded."""
    raise AssertionError("a state was loaded for a list")


async def no_load_async(*_: Any) -> Any:
    """The same of an async store."""
    no_load()


@pytest.mark.parametrize("place", ["memory", "sqlite", "memory-async"], indirect=True)
def test_a_save_without_facts_leaves_them_open(place: Place) -> None:
    """A row that was saved by hand has a key and a time."""

    def test(talks: Talks) -> None:
        saved = talks.store.save("ada/1", b"blob", expected=None)
        if inspect.isawaitable(saved):
            talks.loop.run(saved)
        (row,) = all_rows(talks, "ada/", 9)
        assert (row.key, row.title, row.status, row.turns, row.cost_usd) == ("ada/1", "", "", None, None)

    with_talks(place, test)


@pytest.mark.parametrize("place", ["callable", "callable-async"], indirect=True)
def test_a_store_that_cannot_list_says_so(place: Place) -> None:
    """No empty list, but an error that names the store."""

    def test(talks: Talks) -> None:
        with pytest.raises(TypeError, match=r"needs a store with list\(\); (Async)?CallableStore"):
            talks.do("none", "summaries", "")

    with_talks(place, test)
