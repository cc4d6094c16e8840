"""The gate: how many requests go out at a time, in which order, and how all of them wait after a refusal."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, DeadlineExceededError, RateLimitError, tool
from goaitools_py.backends import BackendError, gated
from goaitools_py.backends.gate import Gate, Ticket, gate_of, group_of
from goaitools_py.sim import Fault
from goaitools_py.testing import Calls, ScriptedBackend, SimServer

from ._clients import BACKENDS, backend_over

WIRES = list(BACKENDS)
LATEST = 30.0


class Limited(ScriptedBackend):
    """A provider that refuses what comes while it answers `most` others; counts what it took and refused."""

    def __init__(self, most: int, **how: Any) -> None:
        super().__init__(**how)
        self.most = most
        self.taken = self.refused = self.inside = self.highest = 0

    async def asend(self, request: Any) -> Any:
        self.inside += 1
        self.highest = max(self.highest, self.inside)
        try:
            if self.inside > self.most:
                self.refused += 1
                raise BackendError("slow down", status=429, headers={"retry-after-ms": "20"})
            for _ in range(3):
                await asyncio.sleep(0)
            self.taken += 1
            self.then("Fine.")
            return await super().asend(request)
        finally:
            self.inside -= 1


async def converse(backend: Any, count: int) -> int:
    """So many conversations at once; how many got their answer."""
    chat = AsyncChat(backend, timeout=LATEST)
    results = await asyncio.gather(
        *(chat.chat_with_state(None, user=f"Hello {number}.") for number in range(count)),
        return_exceptions=True,
    )
    return sum(getattr(result, "text", "") == "Fine." for result in results)


def test_500_conversations_make_no_storm() -> None:
    """Without a gate nearly all are refused, again and again. With one that fits, none is."""
    open_, narrow = Limited(8, max_retries=2), Limited(8, max_retries=2)

    alone = asyncio.run(converse(open_, 500))
    behind = asyncio.run(converse(gated(narrow, max_concurrent_calls=8), 500))

    assert (behind, narrow.refused, narrow.highest, narrow.taken) == (500, 0, 8, 500)
    assert open_.refused > 500
    assert alone < 500


def test_a_gate_that_is_too_wide_finds_its_width() -> None:
    """Each refusal holds all, then halves what goes out at a time: few are refused, and all get through."""
    provider = Limited(4, max_retries=5)

    assert asyncio.run(converse(gated(provider, max_concurrent_calls=32), 200)) == 200
    assert 1 <= provider.refused < 100


def test_a_place_is_free_again_whatever_happens(face: Any) -> None:
    """After replies, errors, streams that are given up and exceptions of any kind."""
    steps = [
        "One.",
        BackendError("no", status=400),
        "Two.",
        KeyboardInterrupt(),
        "Three.",
        Calls([("look", {})]),
        "Four.",
    ]
    backend = ScriptedBackend(*steps)
    ran = []

    @tool
    def look() -> str:
        """Look, and ask another chat behind the same gate."""
        ran.append(1)
        return "dark"

    chat = face.chat(gated(backend, max_concurrent_calls=1), tools=[look], timeout=LATEST)
    texts = []
    for step in range(6):
        try:
            result = chat.start(None, user="Hi.").result() if step % 2 else chat.chat(user="Hi.")
            texts.append(result.text)
        except BaseException as exc:
            texts.append(type(exc).__name__)

    assert texts == ["One.", "ProviderRejectedError", "Two.", "KeyboardInterrupt", "Three.", "Four."]
    assert ran == [1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_may_ask_behind_the_same_gate(face: Any, stream: bool) -> None:
    """While tools run, the turn has no place: so a chat inside of a tool does not wait for its own turn."""
    backend = ScriptedBackend(Calls([("ask", {})]), "Inner.", "Outer.")
    only = gated(backend, max_concurrent_calls=1)
    inner = Chat(only, timeout=LATEST)

    @tool
    def ask() -> str:
        """Ask another chat."""
        return inner.chat(user="You?").text

    chat = face.chat(only, tools=[ask], timeout=LATEST)

    assert (chat.start(None, user="Hi.").result() if stream else chat.chat(user="Hi.")).text == "Outer."


def test_who_shares_a_gate() -> None:
    """One server, one key, one model; a key is not kept as it is."""
    client = object()
    same = [group_of("openai", "m", url, "a-key", None) for url in ("http://x/v1", "http://x/v1/")]
    others = [
        group_of("anthropic", "m", "http://x/v1", "a-key", None),
        group_of("openai", "n", "http://x/v1", "a-key", None),
        group_of("openai", "m", "http://y/v1", "a-key", None),
        group_of("openai", "m", "http://x/v1", "b-key", None),
        group_of("openai", "m", "http://x/v1", lambda: "a-key", None),
        group_of("openai", "m", "http://x/v1", None, None),
        group_of("openai", "m", "http://x/v1", None, client),
    ]

    assert same[0] == same[1]
    assert len({same[0], *others}) == 8
    assert "a-key" not in repr(same)


@pytest.mark.parametrize("wire", WIRES)
def test_a_retry_after_holds_all_of_one_key(face: Any, wire: str) -> None:
    """Other chats of the same key and model wait as well; those with another key do not."""
    with SimServer() as sim:
        root = sim.base_url_for(wire).removesuffix("/v1")
        how = {"is_async": face.is_async, "opened": [], "max_concurrent_calls": 4}
        made = [backend_over("own", wire, root, api_key=key, **how) for key in ("a-key", "a-key", "b-key")]
        first, same, other = (face.chat(backend, timeout=LATEST) for backend in made)
        sim.push(Fault.rate_limit(retry_after_ms=700))

        with pytest.raises(RateLimitError):
            first.chat(user="Hello.")
        began = time.monotonic()
        other.chat(user="Hello.")
        same.chat(user="Hello.")
        held = time.monotonic() - began
        for backend in made:
            face.run(backend.aclose()) if face.is_async else backend.close()

    assert held >= 0.6
    assert [request.status for request in sim.requests] == [429, 200, 200]


@pytest.mark.parametrize("wire", WIRES)
def test_chats_by_name_share_a_gate(face: Any, wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with one name and key, whichever of them was made first; a chat without the option has none."""
    with SimServer() as sim:
        vendor = wire.split("-")[0]
        url = sim.base_url_for(wire)
        monkeypatch.setenv(f"{vendor.upper()}_BASE_URL", url)
        monkeypatch.setenv(f"{vendor.upper()}_API_KEY", "a-key")
        first, second = (face.chat(f"{wire}:m", max_concurrent_calls=1, timeout=LATEST) for _ in range(2))
        open_ = face.chat(f"{wire}:m", timeout=LATEST)
        gate = gate_of(group_of(vendor, "m", None, None, None))
        other = Ticket(1, lambda: None)
        assert first.chat(user="Hello.").text
        assert gate.ask(other) == 0.0

        for chat in (first, second):
            with pytest.raises(DeadlineExceededError):
                chat.chat(user="Hello.", timeout=0.05)
        assert open_.chat(user="Hello.").text
        gate.leave(other)
        assert second.chat(user="Hello.").text

    assert len(sim.requests) == 3


def test_the_fallbacks_of_a_chat_by_name_have_its_limit(face: Any) -> None:
    """As far as they are given by name."""
    backend = ScriptedBackend()
    make = AsyncChat if face.is_async else Chat
    chat: Any = make("openai:m", max_concurrent_calls=3, fallbacks=["anthropic:n", backend])

    assert [getattr(one, "_options", None) for one in chat._backends] == [
        {"max_concurrent_calls": 3},
        {"max_concurrent_calls": 3},
        None,
    ]


@pytest.mark.parametrize(
    ("backend", "given", "error"),
    [
        ("openai:m", 0, ValueError),
        ("openai:m", True, TypeError),
        ("openai:m", "8", TypeError),
        (ScriptedBackend(), 8, TypeError),
    ],
)
def test_what_a_chat_refuses_as_its_limit(face: Any, backend: Any, given: Any, error: Any) -> None:
    """When it is made, and not with its first turn; a backend object has an option of its own."""
    with pytest.raises(error, match="max_concurrent_calls"):
        face.chat(backend, max_concurrent_calls=given)


def test_a_long_hold_is_an_error_at_once() -> None:
    """Nobody waits for longer than its turn may last, and nothing is sent."""
    backend = ScriptedBackend(BackendError("no", status=429, headers={"retry-after": "400"}), "Never.")
    chat = Chat(gated(backend, max_concurrent_calls=2), timeout=LATEST)

    for _ in range(3):
        with pytest.raises(RateLimitError) as error:
            chat.chat(user="Hello.")
        assert error.value.retry_after is not None
        assert 300 < error.value.retry_after < 450

    assert len(backend.requests) == 1


def test_a_wait_counts_toward_the_timeout(face: Any) -> None:
    """A place that does not come free in time ends the turn with its deadline, and the turn can go on."""
    backend = gated(ScriptedBackend("Later."), max_concurrent_calls=1, group="deadline")
    gate = gate_of(("own", "deadline"))
    other = Ticket(1, lambda: None)
    assert gate.ask(other) == 0.0

    with pytest.raises(DeadlineExceededError) as error:
        face.chat(backend).chat(user="Hello.", timeout=0.05)
    gate.leave(other)

    assert face.chat(backend).resume(error.value.state, timeout=LATEST).text == "Later."


def test_the_order_is_that_of_coming() -> None:
    """Threads and tasks stand in one queue."""
    gate, order, done = Gate(), [], threading.Event()
    first = Ticket(1, lambda: None)
    gate.ask(first)
    queue = [Ticket(1, lambda: None) for _ in range(50)]
    for ticket in queue:
        assert gate.ask(ticket) > 0
    gate.leave(queue[7])  # gives up

    gate.leave(first)
    while len(order) < 49:
        for number, ticket in enumerate(reversed(queue)):
            if number != 42 and not ticket.is_in and gate.ask(ticket) == 0.0:
                order.append(49 - number)
                gate.leave(ticket)
                break
    done.set()

    assert order == [number for number in range(50) if number != 7]


def test_threads_wait_in_a_gate() -> None:
    """At most three at a time, and each gets its answer."""
    inside, highest, lock = 0, 0, threading.Lock()

    def answer(request: Any) -> str:
        nonlocal inside, highest
        with lock:
            inside += 1
            highest = max(highest, inside)
        time.sleep(0.002)
        with lock:
            inside -= 1
        return "Fine."

    chat = Chat(gated(ScriptedBackend(*[answer] * 60), max_concurrent_calls=3), timeout=LATEST)
    with ThreadPoolExecutor(20) as pool:
        texts = [result.text for result in pool.map(lambda n: chat.chat(user=f"{n}"), range(60))]

    assert texts == ["Fine."] * 60
    assert 1 < highest <= 3


def test_a_lost_place_comes_back() -> None:
    """A response that nobody closes, and a task whose loop was closed, do not keep a place for ever."""
    backend = gated(ScriptedBackend("One.", "Two."), max_concurrent_calls=1, group="lost")
    gate = gate_of(("own", "lost"))
    exchange = backend.send(_request())
    dead = Ticket(1, _raises)
    assert gate.ask(dead) > 0

    del exchange
    gc.collect()

    assert Chat(backend, timeout=LATEST).chat(user="Hello.").text == "Two."


def _raises() -> None:
    raise RuntimeError("Event loop is closed")


def _request() -> Any:
    from goaitools_py.backends import ModelRequest

    return ModelRequest(path="/x", body=b"{}")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_has_gates_of_its_own() -> None:
    """A child does not wait for the requests of its parent's threads."""
    backend = gated(ScriptedBackend("Child.", "Parent."), max_concurrent_calls=1, group="fork")
    mine = gate_of(("own", "fork"))
    place = Ticket(1, lambda: None)
    assert mine.ask(place) == 0.0

    if not (child := os.fork()):
        code = 1
        try:
            code = 0 if Chat(backend, timeout=LATEST).chat(user="Hello.").text == "Child." else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("given", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_a_limit_is_a_number(given: Any, error: type[Exception]) -> None:
    """Of at least 1."""
    with pytest.raises(error, match="max_concurrent_calls must be"):
        gated(ScriptedBackend(), max_concurrent_calls=given)
