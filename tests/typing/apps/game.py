"""A game that keeps states itself: bytes, a store of two functions, an own trigger. Read by type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from goaitools_py import (
    Chat,
    ChatOptions,
    ChatResult,
    Compactor,
    StateError,
    TurnError,
    assistant,
    event,
    user,
)
from goaitools_py.compaction import CompactionRequest, TurnView
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.stores import CallableStore, Stored

saves: dict[str, tuple[bytes, int]] = {}


def load(key: str) -> Stored | None:
    """The stored state of a player."""
    found = saves.get(key)
    return None if found is None else Stored(blob=found[0], version=found[1], updated_at=datetime.now(UTC))


def save(key: str, blob: bytes, expected: int | None) -> int | None:
    """Compare and swap."""
    version = saves[key][1] if key in saves else None
    if version != expected:
        return None
    saves[key] = blob, (version or 0) + 1
    return saves[key][1]


def is_long(request: CompactionRequest) -> bool:
    """A trigger."""
    return request.turn_count > 20


def newest(request: CompactionRequest) -> Sequence[TurnView]:
    """A strategy."""
    return request.turns[-5:]


codec = Signed(Keyring(Key.generate()))
chat = Chat("sim", ChatOptions(compactor=Compactor(is_long, newest)), codec=codec)
store = CallableStore(load, save)


def play(state: bytes | None, line: str) -> tuple[str, bytes]:
    """One line of the player, with the state of the save game."""
    try:
        text, after = chat.chat_with_state(state, user=line, binding={"player": "ada"})
    except TurnError as error:
        return error.partial_text, error.state
    return text, after


def begin(path: Path) -> ChatResult[None]:
    """A new game, from a file if there is one."""
    first = [user("Hello."), assistant("Welcome."), event("It rains.")]
    result = chat.chat(messages=first, binding={"player": "ada"})
    path.write_bytes(result.state)
    return result


def show(path: Path) -> str:
    """What a save game holds."""
    blob = path.read_bytes()
    try:
        info = inspect_state(blob, codec=codec, binding={"player": "ada"})
    except StateError as error:
        return f"unreadable: {type(error).__name__}, {len(error.blob)} bytes"
    messages = state_messages(blob, codec=codec, binding={"player": "ada"})
    turns = read_history(blob, codec=codec, binding={"player": "ada"}).turns
    return f"{info.turns} turns, {len(messages)} messages, {len(turns)} shown, {store.load('ada')}"
