"""One thread ends what lasts too long, and nothing else."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from goaitools_py.base import watch as watch_module
from goaitools_py.base.watch import Watch

SHORT = 0.02
LONG = 300.0
PATIENCE = 60.0
"""Seconds after which a test fails that should have been told long before."""


class Wait:
    """Something that can be ended, and that knows whether it was."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.watch = Watch(self.ended.set)


def test_what_lasts_too_long_is_ended() -> None:
    """Whoever waits is told that it was ended from beside."""
    wait = Wait()

    wait.watch.set(SHORT)

    assert wait.ended.wait(PATIENCE)
    assert wait.watch.has_rung


def test_what_is_over_is_left_alone() -> None:
    """Its time comes and nobody is called: a later one that was is the proof."""
    over, other = Wait(), Wait()
    over.watch.set(SHORT)
    over.watch.close()

    other.watch.set(2 * SHORT)

    assert other.ended.wait(PATIENCE)
    assert not over.ended.is_set()
    assert not over.watch.has_rung


def test_a_time_can_be_moved() -> None:
    """To later, and to sooner than anything that the thread sleeps for."""
    later, sooner, other = Wait(), Wait(), Wait()
    later.watch.set(SHORT)
    later.watch.set(LONG)
    sooner.watch.set(LONG)
    sooner.watch.set(2 * SHORT)
    other.watch.set(3 * SHORT)

    assert sooner.ended.wait(PATIENCE)
    assert other.ended.wait(PATIENCE)
    assert not later.ended.is_set()
    later.watch.close()


def test_it_rings_once_and_never_early() -> None:
    """A caller asks the clock whether its time is up, and must hear yes."""
    calls: list[float] = []
    rung = threading.Event()

    def end() -> None:
        calls.append(time.monotonic())
        rung.set()

    for number in range(20):
        watch, ends = Watch(end), time.monotonic() + 0.005
        watch.set(0.006)
        watch.set(0.005)
        assert rung.wait(PATIENCE)
        watch.set(0.001)
        rung.clear()

        assert len(calls) == number + 1
        assert calls[-1] >= ends


def test_all_share_one_thread() -> None:
    """A thousand of them start no second one, and none is held on to once it is closed."""
    waits = [Wait() for _ in range(1000)]
    for wait in waits:
        wait.watch.set(LONG)

    threads = [thread for thread in threading.enumerate() if thread.name == "goaitools-watch"]
    for wait in waits:
        wait.watch.close()

    assert len(threads) == 1
    assert not watch_module._dog._watches & {wait.watch for wait in waits}


def test_what_ends_a_wait_may_fail() -> None:
    """The thread goes on for the others."""

    def fail() -> None:
        raise OSError

    broken, wait = Watch(fail), Wait()
    broken.set(SHORT)
    wait.watch.set(2 * SHORT)

    assert wait.ended.wait(PATIENCE)
    assert broken.has_rung


def test_without_a_thread_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no more threads: such a wait has only its own limit, and later ones are tried again."""
    monkeypatch.setattr(watch_module, "_dog", watch_module._Dog())
    wait, other = Wait(), Wait()

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        wait.watch.set(LONG)
    other.watch.set(SHORT)

    assert other.ended.wait(PATIENCE)
    assert not wait.watch.has_rung


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    """A child has none of its parent's threads; what lasts too long in it is ended all the same."""
    first = Wait()
    first.watch.set(LONG)
    pid = os.fork()
    if pid == 0:
        wait = Wait()
        wait.watch.set(SHORT)
        os._exit(0 if wait.ended.wait(PATIENCE) else 1)

    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    first.watch.close()
    assert status == 0
