"""What may take long is computed in a thread of its own, so that an event loop goes on; no plain turn is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat
from goaitools_py.chat.kept import changes, facade, privacy
from goaitools_py.state.blob_header import may_take_long
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.turn import beginning
from tests.history._bombs import bomb


def watched(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """The threads in which a function of a module is called from now on."""
    real, threads = getattr(module, name), []

    def told(*args: Any, **given: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*args, **given)

    monkeypatch.setattr(module, name, told)
    return threads


WORK: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "redact": (privacy, "redact_state", lambda kept: kept.redact("Hello")),
    "export": (privacy, "export_state", lambda kept: kept.export()),
    "rewind": (changes, "rewind_state", lambda kept: kept.rewind()),
    "history": (facade, "read_history", lambda kept: kept.history()),
    "info": (facade, "inspect_state", lambda kept: kept.info()),
    "pending": (facade, "pending_calls", lambda kept: kept.pending()),
    "snapshot": (facade, "read_history", lambda kept: kept.snapshot()),
    "turn": (beginning, "load_state", lambda kept: kept.send("Hi.")),
}


def ran_in(monkeypatch: pytest.MonkeyPatch, name: str, blob: bytes) -> list[bool]:
    """Whether each call of the function ran in the thread of the event loop."""
    module, function, act = WORK[name]
    store = AsyncMemoryStore()
    threads = watched(monkeypatch, module, function)

    async def run() -> list[bool]:
        await store.save("k", blob, expected=None)
        async with AsyncChat(ScriptedBackend("Yes.", "Yes.")) as chat:
            await act(chat.conversation(store, "k"))
        return [thread == threading.get_ident() for thread in threads]

    return asyncio.run(run())


@pytest.mark.parametrize("name", WORK)
def test_a_large_state_leaves_the_loop_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of few stored bytes: its header says how much it inflates to."""
    blob = bomb("openai", "member: zeros", 200_000)
    assert len(blob) < 1_000
    assert may_take_long(blob)

    found = ran_in(monkeypatch, name, blob)

    assert found
    assert not any(found)


@pytest.mark.parametrize("name", ["turn", "history", "info", "pending"])
def test_a_small_state_needs_no_thread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread would cost more than the work."""
    with Chat(ScriptedBackend("Yes.")) as chat:
        blob = chat.chat(user="Hi.").state
    assert not may_take_long(blob)

    assert all(ran_in(monkeypatch, name, blob))
