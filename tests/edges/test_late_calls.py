"""A blocking call in another thread: it is in time, late, or interrupted, and its thread serves the next."""

from __future__ import annotations

import queue
import random
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py.base import late_calls
from goaitools_py.base.late_calls import call_with_timeout
from goaitools_py.base.process import PerProcess

Idle = PerProcess[list[Any]]


def never(value: object) -> None:
    """What comes in time is not discarded."""
    raise AssertionError(value)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Idle]:
    """The threads that wait for a call: none at first. They wait for long, and end with the test."""
    idle = Idle(lambda inherited: [])
    monkeypatch.setattr(late_calls, "IDLE_SECONDS", 60.0)
    monkeypatch.setattr(late_calls, "_idle", idle)
    yield idle
    monkeypatch.setattr(late_calls, "IDLE_SECONDS", 0.01)
    for worker in tuple(idle.get()):
        idle.get().remove(worker)
        worker.begin((lambda: None, lambda: None))
    patience = time.monotonic() + 60
    while idle.get() and time.monotonic() < patience:
        time.sleep(0.001)


def test_what_comes_in_time_is_returned_or_raised() -> None:
    """As if it had been called here."""
    assert call_with_timeout(5.0, lambda: 7, never) == 7
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(5.0, lambda: 1 / 0, never)


def test_what_comes_too_late_is_discarded() -> None:
    """Once, in the thread that it came in; nobody waits for it."""
    go, discarded = threading.Event(), queue.SimpleQueue[str]()

    def call() -> str:
        go.wait(60)
        return "late"

    with pytest.raises(TimeoutError):
        call_with_timeout(0.02, call, discarded.put)
    go.set()

    assert discarded.get(timeout=60) == "late"


def test_a_call_that_is_interrupted_is_discarded() -> None:
    """Ctrl-C while it waits: what comes then is closed, not lost."""
    go, discarded, interrupts = threading.Event(), queue.SimpleQueue[str](), list[int]()
    main = threading.main_thread().ident
    assert threading.get_ident() == main
    assert main is not None

    def interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        if len(interrupts) == 1:
            raise KeyboardInterrupt

    def call() -> str:
        # Again and again: a signal just before a lock begins to wait does not end that wait.
        while not interrupts and not go.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            go.wait(0.01)
        go.wait(60)
        return "late"

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            call_with_timeout(60.0, call, discarded.put)
        go.set()
        assert discarded.get(timeout=60) == "late"
    finally:
        signal.signal(signal.SIGINT, before)


def _thread_of_a_call() -> threading.Thread:
    return call_with_timeout(60.0, threading.current_thread, never)


def test_calls_in_a_row_share_a_thread(idle: Idle) -> None:
    """A new one costs four times as much. Calls at the same time have a thread each."""

    first = _thread_of_a_call()
    inner = call_with_timeout(60.0, _thread_of_a_call, never)

    assert first is not threading.current_thread()
    assert inner is not first
    assert {_thread_of_a_call(), _thread_of_a_call()} <= {first, inner}


def test_a_thread_that_is_late_comes_back(idle: Idle) -> None:
    """When its call has ended, and what it gave was discarded."""
    go, threads = threading.Event(), queue.SimpleQueue[threading.Thread]()

    def call() -> threading.Thread:
        go.wait(60)
        return threading.current_thread()

    with pytest.raises(TimeoutError):
        call_with_timeout(0.01, call, threads.put)
    other = _thread_of_a_call()
    go.set()
    late = threads.get(timeout=60)
    until = time.monotonic() + 60
    while len(idle.get()) < 2 and time.monotonic() < until:
        time.sleep(0.001)

    assert other is not late
    assert _thread_of_a_call() is late


def test_a_thread_without_calls_ends(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next call has another one."""
    monkeypatch.setattr(late_calls, "IDLE_SECONDS", 0.01)

    thread = _thread_of_a_call()
    thread.join(60)

    assert not thread.is_alive()
    assert idle.get() == []
    assert _thread_of_a_call() is not thread


def test_threads_that_end_lose_no_call(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is answered, also one that comes in the moment in which its thread gives up."""
    monkeypatch.setattr(late_calls, "IDLE_SECONDS", 0.0005)
    pauses = random.Random(7)
    wrong: list[int] = []

    def calls() -> None:
        for number in range(300):
            if call_with_timeout(60.0, lambda number=number: number, never) != number:  # type: ignore[misc]
                wrong.append(number)
            time.sleep(pauses.random() * 0.001)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_a_thread_that_waits_refers_to_no_call() -> None:
    """What was called and what it gave are gone as soon as the caller has let go of them."""

    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)

    def call(value: Big = big) -> Big:
        return value

    assert call_with_timeout(60.0, call, never) is big
    del big, call

    assert gone() is None


def test_no_more_threads(idle: Idle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is made here: late, but made."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert _thread_of_a_call() is threading.current_thread()
    assert _thread_of_a_call() is not threading.current_thread()
