"""A conflict with a row that is the base of a save, or that holds the same turn, is none.

A server that changes its role may refuse a save as if another worker had been first. The stores here do that
a number of times, or for ever. The rule holds on every provider API, in both colours, whole and in parts.
"""

from __future__ import annotations

import inspect
from contextlib import closing
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, StateConflictError, StoreCommitError, StoreUnavailableError
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.testing._store_case import Loop

from .conftest import said

SAVES = ("save", "save_parts", "save_and_release", "save_parts_and_release")


class Refusing:
    """A store that refuses saves as conflicts, before it has done them (`lands` False) or after."""

    def __init__(self, store: Any, *, lands: bool) -> None:
        self._store, self._lands = store, lands
        self.left = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in SAVES:
            return method

        def refused(*args: Any, **fields: Any) -> Any:
            if not self.left:
                return method(*args, **fields)
            self.left -= 1
            if self._lands:
                self._lands = False
                done = method(*args, **fields)
                if inspect.isawaitable(done):
                    return self._later(done)
            raise StateConflictError("another worker was first")

        return refused

    @staticmethod
    async def _later(done: Any) -> None:
        await done
        raise StateConflictError("another worker was first")


class Case:
    """A conversation in one colour, behind blocking calls."""

    def __init__(self, loop: Loop, is_async: bool, wire: str, parts: Any, *, lands: bool, **how: Any) -> None:
        self._loop = loop
        self.store = Refusing((AsyncMemoryStore if is_async else MemoryStore)(), lands=lands)
        self._make = lambda backend: (AsyncChat if is_async else Chat)(backend).conversation(
            self.store, "ada", parts=parts, **how
        )
        self._wire = wire
        self.elsewhere("One.", "Two.", "Three.")

    def elsewhere(self, *script: str) -> None:
        """Go on with another chat, as another process does."""
        self.backend = ScriptedBackend(*script, wire=self._wire)
        self._kept: Any = self._make(self.backend)

    def do(self, method: str, *args: Any, **fields: Any) -> Any:
        """Call a method of the conversation."""
        made = getattr(self._kept, method)(*args, **fields)
        return self._loop.run(made) if inspect.isawaitable(made) else made


every = pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
colours = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
places = pytest.mark.parametrize("parts", ["inline", "store"])


@every
@colours
@places
@pytest.mark.parametrize("lands", [False, True], ids=["refused", "done"])
@pytest.mark.parametrize("times", [1, 3, 8])
def test_a_paid_turn_is_saved(wire: str, is_async: bool, parts: str, lands: bool, times: int) -> None:
    """However often it is refused within `save_timeout`, and the model is asked once."""
    with closing(Loop()) as loop:
        case = Case(loop, is_async, wire, parts, lands=lands)
        case.do("send", "1")
        case.store.left = times
        assert case.do("send", "2", turn_id="two").text == "Two."
        assert case.do("send", "2", turn_id="two").text == "Two."
        assert len(case.backend.requests) == 2
        assert said(case.do("state")) == ["1", "One.", "2", "Two."]


@every
@colours
@places
def test_a_refusal_that_lasts_is_a_commit_error(wire: str, is_async: bool, parts: str) -> None:
    """Not a conflict: `commit(err)`, and then the same `turn_id`, give the reply without another call."""
    with closing(Loop()) as loop:
        case = Case(loop, is_async, wire, parts, lands=False, save_timeout=0.05)
        case.do("send", "1")
        case.store.left = 1_000
        with pytest.raises(StoreCommitError) as caught:
            case.do("send", "2", turn_id="two")
        assert isinstance(caught.value.unsaved, StoreUnavailableError)
        assert caught.value.text == "Two."
        case.store.left = 0
        case.do("commit", caught.value)
        assert case.do("send", "2", turn_id="two").text == "Two."
        assert len(case.backend.requests) == 2


@every
@colours
@places
def test_a_turn_that_another_worker_finished_is_committed(wire: str, is_async: bool, parts: str) -> None:
    """The same `turn_id` was sent to it in between: `commit` of the first try finds it there."""
    with closing(Loop()) as loop:
        case = Case(loop, is_async, wire, parts, lands=False, save_timeout=0.05)
        case.do("send", "1")
        case.store.left = 1_000
        with pytest.raises(StoreCommitError) as caught:
            case.do("send", "2", turn_id="two")
        case.store.left = 0
        case.elsewhere("Three.")
        assert case.do("send", "2", turn_id="two").text == "Three."
        stored = case.do("commit", caught.value)
        assert said(stored) == said(case.do("state")) == ["1", "One.", "2", "Three."]
