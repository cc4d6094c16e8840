"""The bound that a trigger compares first, because it costs nothing, is never below the size of the blob."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, Image, KeepRecentTurns, event, tool, user
from goaitools_py.compaction import CompactionRequest
from goaitools_py.testing import Calls, ScriptedBackend
from tests.compaction._histories import WIRES

BYTES = 6_000


def noise(seed: int) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(BYTES)


def text(seed: int) -> str:
    """A text that compresses little."""
    return base64.b85encode(noise(seed)).decode()


class Looking:
    """A trigger that notes the bound and the size, and never fires."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def __call__(self, request: CompactionRequest) -> bool:
        self.seen.append((request.most_blob_bytes, request.blob_bytes))
        return False


@tool
def look(place: str) -> str:
    """Look."""
    return text(len(place))


@tool
def draw(place: str) -> Image:
    """Draw."""
    return Image.from_bytes(noise(len(place)), media_type="image/png")


STEPS: dict[str, Any] = {
    "short replies": ["Hello.", "Well."],
    "a long reply": [text(1), "Well."],
    "long arguments": [Calls([("look", {"place": text(2)})]), "Seen.", "Well."],
    "results": [Calls([("look", {"place": "a"}), ("look", {"place": "b"})]), "Seen.", "Well."],
    "pictures": [Calls([("draw", {"place": "a"}), ("draw", {"place": "b"})]), "Drawn.", "Well."],
}


@pytest.mark.parametrize("said", [text(3), "Hello?"], ids=["long", "short"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("wire", WIRES)
def test_no_blob_is_larger_than_the_bound(wire: str, steps: str, said: str) -> None:
    """Before each request and after each turn: with what was given, and with what came since."""
    looking = Looking()
    backend = ScriptedBackend("Hi.", *STEPS[steps], wire=wire)
    chat = Chat(backend, tools=[look, draw], compactor=Compactor(looking, KeepRecentTurns(1)))

    state = chat.append_to_state(None, event(said), user(said))
    for _ in range(3):
        result = chat.chat_with_state(state, user=said)
        assert result.warnings == ()
        state = chat.append_to_state(result.state, event(said))

    backend.assert_finished()
    assert len(looking.seen) >= 3
    assert [(most, size) for most, size in looking.seen if most < size] == []
