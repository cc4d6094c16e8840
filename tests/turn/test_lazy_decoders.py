"""A wire of one's own whose decoder hands its deltas out lazily."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from goaitools_py import TextDelta
from goaitools_py.backends.base import Delta, StreamDecoder
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.testing import Calls, ScriptedBackend


class Lazy:
    """The wire's decoder, with `feed` as a way of handing out what it made."""

    def __init__(self, decoder: StreamDecoder, hand_out: Callable[[Iterable[Delta]], Any]) -> None:
        self._decoder = decoder
        self._hand_out = hand_out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def feed(self, chunk: bytes) -> Any:
        def work() -> Iterator[Delta]:
            yield from self._decoder.feed(chunk)

        return self._hand_out(work())


@pytest.mark.parametrize("hand_out", [iter, tuple, list, itertools.chain])
def test_no_delta_is_lost(face: Any, wire: str, hand_out: Any) -> None:
    """Whatever `feed` returns: the text is told piece by piece, tools run, and the reply is whole."""
    looks: list[str] = []

    def look(place: str) -> str:
        """Look."""
        looks.append(place)
        return "quiet"

    class LazyDialect(type(dialect_of(wire))):  # type: ignore[misc]
        def decoder(self) -> Any:
            return Lazy(super().decoder(), hand_out)

    script = [Calls([("look", {"place": "hall"})], "One moment please."), "It is all quiet there."]
    backend = ScriptedBackend(*script, wire=wire)
    backend.dialect = LazyDialect()

    turn = face.chat(backend, tools=[look]).start(None, user="Look.")
    told = [one.text for one in turn if isinstance(one, TextDelta)]

    assert "".join(told) == "One moment please.It is all quiet there."
    assert len(told) > 4
    assert looks == ["hall"]
    assert turn.result().text == "It is all quiet there."
