"""A turn that somebody stops from elsewhere: it ends soon, and what it came to is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from goaitools_py import Chat, TextDelta, ToolFinished, ToolStarted
from goaitools_py.states import inspect_state, read_history
from goaitools_py.stores import MemoryStore, TurnStoppedError
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said

SOON = 1e-9
LONG = " ".join(f"word{number}" for number in range(40))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_stop_ends_a_streamed_reply(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """The piece that came is stored, no more is read, and the flag is gone; the next message is answered."""
    backend = ScriptedBackend("Hello.", LONG, "Yes?")
    conversation = kept(backend, leasing, save=save, stop_every=SOON)
    elsewhere = kept(ScriptedBackend(), leasing)
    conversation.send("Hello?")
    heard: list[str] = []

    turn = conversation.start("Tell me a story.")

    def read() -> None:
        for event in turn:
            if isinstance(event, TextDelta):
                heard.append(event.text)
                assert elsewhere.is_running()
                assert elsewhere.stop()

    with pytest.raises(TurnStoppedError) as caught:
        read()
    error = caught.value
    assert heard
    assert len("".join(heard)) < len(LONG)
    assert error.partial_text == "".join(heard)
    assert (error.state, error.unsaved) == (blob_in(leasing), None)
    assert inspect_state(error.state).failure == ("TurnStoppedError", "")
    assert not leasing.inner.stop_requested("ada")
    assert not elsewhere.is_running()
    after = conversation.send("Never mind.")
    assert (after.text, [warning.code for warning in after.warnings]) == ("Yes?", ["turn_closed"])


def test_a_stopped_turn_can_be_resumed(kept: Threads, leasing: LeasingStore) -> None:
    """The tool that ran is done: the turn stops before the next model call, and `resume` makes that one."""
    backend = ScriptedBackend("Hello.", Calls([("add", {"a": 1, "b": 2})]), "Three.")
    ran: list[str] = []

    def listen(event: Any) -> None:
        if isinstance(event, ToolStarted):
            leasing.inner.set_stop("ada")  # as `stop` of another worker does
        elif isinstance(event, ToolFinished):
            ran.append(event.output)

    conversation = kept(backend, leasing, stop_every=SOON, chat={"tools": [add]})
    conversation.send("Hello?")

    with pytest.raises(TurnStoppedError, match="resume"):
        conversation.send("1 + 2?", on_event=listen)
    requests = len(backend.requests)
    resumed = conversation.resume()

    assert (ran, requests) == (["3"], 2)
    assert (resumed.text, len(backend.requests)) == ("Three.", 3)
    assert said(blob_in(leasing))[-1] == "Three."


def test_an_exit_in_a_look_at_the_flag_loses_no_reply(kept: Threads, save: str) -> None:
    """Ctrl-C, while the store is asked whether the turn is to stop. What has come is kept.

    The last look comes when the reply is whole, so it is stored as the reply, with its usage.
    """

    class Interrupting(LeasingStore):
        left = -1

        def stop_requested(self, key: str) -> bool:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().stop_requested(key)

    kept_texts: list[str] = []
    for look in range(2, 60):  # the first one comes before the turn has begun
        leasing = Interrupting()
        conversation = kept(ScriptedBackend("Hello.", LONG), leasing, save=save, stop_every=SOON)
        conversation.send("Hello?")
        leasing.left = look
        try:
            for _ in conversation.start("Tell me a story."):
                pass
        except KeyboardInterrupt:
            pass
        else:
            break
        kept_texts.append(said(blob_in(leasing))[-1])
    assert len(kept_texts) > 10
    assert kept_texts[-1] == LONG


def test_a_stop_that_comes_too_late_is_forgotten(kept: Threads, leasing: LeasingStore) -> None:
    """A flag from before the turn does not end it."""
    conversation = kept(ScriptedBackend("Hello.", LONG), leasing, stop_every=SOON)
    conversation.send("Hello?")
    conversation.stop()

    assert conversation.send("A story?").text == LONG


def test_a_short_turn_looks_once(kept: Threads, leasing: LeasingStore) -> None:
    """Within the time between two looks, only the flag of an earlier turn is looked for; without the option
    nothing is."""
    kept(ScriptedBackend(LONG), leasing, stop_every=60.0).send("Hello?")
    assert leasing.looks == 1

    kept(ScriptedBackend(LONG), leasing).send("Hello?")
    assert leasing.looks == 1


class Interrupted(LeasingStore):
    """Something is done before and after each step of a question."""

    meanwhile: Any = None

    def is_held(self, key: str) -> bool:
        self._do()
        answer = super().is_held(key)
        self._do()
        return answer

    @contextmanager
    def lease(self, key: str, ttl: float) -> Iterator[Any]:
        with super().lease(key, ttl) as lease:
            self._do()
            yield lease

    def _do(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            self.meanwhile = meanwhile


def test_a_question_disturbs_no_turn(kept: Threads) -> None:
    """Turns that begin and end at each step of `is_running` are answered, also with `gate="reject"`."""
    store = Interrupted()
    worker = kept_plainly(store, *["Hello."] * 9)
    asks = kept(ScriptedBackend(), store)
    texts: list[str] = []

    def take_a_turn() -> None:
        texts.append(worker.send("Hello?").text)

    for _ in range(3):
        store.meanwhile = take_a_turn
        assert not asks.is_running()
        store.meanwhile = None

    assert texts == ["Hello."] * 6


def kept_plainly(store: Any, *script: str) -> Any:
    """A conversation that takes no turn while another one runs, without an event loop."""
    return Chat(ScriptedBackend(*script)).conversation(store, "ada", gate="reject")


class LeasesOfItsOwn(LeasingStore):
    """Only `lease` is changed: `is_held` asks for other leases."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = MemoryStore()

    def lease(self, key: str, ttl: float) -> Any:
        return self.leases.lease(key, ttl)


def test_leases_of_a_subclass_are_asked_for() -> None:
    """A store that changes `lease` alone is asked by taking the lease."""
    store = LeasesOfItsOwn()
    conversation = kept_plainly(store)
    with store.leases.lease("ada", 60.0):
        assert conversation.is_running()
    assert not conversation.is_running()


def test_a_stop_needs_a_row_and_a_flag(kept: Threads, leasing: LeasingStore, store: FaultyStore) -> None:
    """What cannot be stopped says so."""
    assert kept(ScriptedBackend(), leasing).stop() is False
    with pytest.raises(TypeError, match="set_stop"):
        kept(ScriptedBackend(), store).stop()
    with pytest.raises(TypeError, match="leases"):
        kept(ScriptedBackend(), store).is_running()
    with pytest.raises(TypeError, match="set_stop"):
        kept(ScriptedBackend(), store, stop_every=1.0)
    for wrong in (0, -1.0, True, "1"):
        with pytest.raises(ValueError, match="stop_every"):
            kept(ScriptedBackend(), leasing, stop_every=wrong)


@pytest.mark.parametrize("pieces", range(1, 8))
def test_what_was_read_is_never_lost(kept: Threads, leasing: LeasingStore, pieces: int) -> None:
    """Wherever the stop comes: the words that a listener heard are in the state."""
    conversation = kept(ScriptedBackend("Hello.", "One two three."), leasing, stop_every=SOON)
    conversation.send("Hello?")
    heard: list[str] = []

    def listen(event: Any) -> None:
        if isinstance(event, TextDelta):
            heard.append(event.text)
            if len(heard) == pieces:
                leasing.inner.set_stop("ada")

    try:
        kept_text = conversation.send("Count.", on_event=listen).text
    except TurnStoppedError as error:
        kept_text = error.partial_text

    assert kept_text == "".join(heard)
    newest = read_history(blob_in(leasing)).all_messages()[-1]
    assert newest.text in (kept_text, "Count.")


class Ordered(LeasingStore):
    """Notes what is asked of it, and whether the flag was set and the lease held then."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, bool, bool]] = []

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        self._note("save", key)
        return super().save(key, blob, expected=expected)

    def set_stop(self, key: str, is_wanted: bool = True) -> bool:
        self._note("set" if is_wanted else "clear", key)
        return super().set_stop(key, is_wanted)

    def _note(self, what: str, key: str) -> None:
        self.asked.append((what, self.inner.stop_requested(key), self.inner.is_held(key)))


@pytest.mark.parametrize("is_lost", [False, True], ids=["saved", "not-saved"])
def test_the_flag_goes_after_what_the_stopped_turn_came_to_is_stored(kept: Threads, is_lost: bool) -> None:
    """A worker that dies between the two leaves the flag: nobody goes on with a turn that is to stop. And it
    goes before the lease does: it must not be a later turn's."""
    store = Ordered()
    conversation = kept(ScriptedBackend("Hello.", LONG, "Yes?"), store, stop_every=SOON, save_timeout=SOON)
    conversation.send("Hello?")
    store.asked.clear()

    def stop(event: Any) -> None:
        if isinstance(event, TextDelta):
            store.inner.set_stop("ada")
            store.faults = ["lost"] * 9 * is_lost

    with pytest.raises(TurnStoppedError):
        conversation.send("Tell me a story.", on_event=stop)

    assert store.asked[0] == ("save", True, True)
    assert store.inner.stop_requested("ada") is is_lost
    if not is_lost:
        assert store.asked == [("save", True, True), ("clear", True, True)]
    store.faults = []
    assert conversation.send("Never mind.").text == "Yes?"
    assert not store.inner.stop_requested("ada")
