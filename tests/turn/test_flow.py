"""The two drivers: they carry the same flow out alike, whatever way it ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from goaitools_py.turn.edges.async_driver import AsyncDriver
from goaitools_py.turn.edges.driver import Driver
from goaitools_py.turn.flow import (
    BusyError,
    Clock,
    Effect,
    Emit,
    Flow,
    Interrupted,
    Sleep,
)
from goaitools_py.types.events import TurnStarted

Answers = Callable[[Effect], Any]


class Edge:
    """Answers effects with a function and notes what it was asked for and told."""

    def __init__(self, answer: Answers = lambda effect: type(effect).__name__) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.closed = 0

    def perform(self, effect: Effect) -> Any:
        self.asked.append(type(effect).__name__)
        return self.answer(effect)

    def interrupt(self) -> None:
        self.asked.append("interrupt")

    def close(self) -> None:
        self.closed += 1


class AsyncEdge(Edge):
    """As `Edge`; an answer that can be awaited is."""

    async def perform(self, effect: Effect) -> Any:
        answer = super().perform(effect)
        return await answer if asyncio.isfuture(answer) else answer

    async def interrupt(self) -> None:
        super().interrupt()

    async def aclose(self) -> None:
        self.closed += 1


class Drive:
    """A driver of either colour on its edge, stepped in plain code."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self._runner = asyncio.Runner()
        self.edge: Any = None
        self.driver: Any = None

    def start(self, flow: Flow[Any], answer: Answers | None = None) -> Drive:
        made = AsyncEdge if self.is_async else Edge
        self.edge = made(answer) if answer is not None else made()
        self.driver = (AsyncDriver if self.is_async else Driver)(flow, self.edge)
        return self

    def step(self) -> Any:
        return self._runner.run(self.driver.step()) if self.is_async else self.driver.step()

    def events(self) -> list[str]:
        found = []
        while (event := self.step()) is not None:
            found.append(event.conversation_id)
        return found

    def give_up(self) -> None:
        if self.is_async:
            self._runner.run(self.driver.aclose())
        else:
            self.driver.close()

    def close(self) -> None:
        self._runner.close()


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Iterator[Drive]:
    """Each test runs once with `Driver` and once with `AsyncDriver`."""
    made = Drive(request.param == "async")
    yield made
    made.close()


def toy(ended: list[str]) -> Flow[str]:
    """Asks for the time, tells it, waits, and returns."""
    try:
        now = yield Clock()
        yield Emit(TurnStarted(now))
        try:
            slept = yield Sleep(1.0)
        except ValueError:
            slept = "woken"
        yield Emit(TurnStarted(slept))
        return f"{now}, {slept}"
    finally:
        ended.append("flow")


def fail(error: BaseException) -> Answers:
    """Answers everything but the wait, which fails."""

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Sleep):
            raise error
        return "noon"

    return answer


def test_a_flow_gets_its_answers_and_tells_its_events(drive: Drive) -> None:
    """Effects are carried out in order, events come out one per step, and the result is there at the end."""
    ended: list[str] = []
    drive.start(toy(ended))

    assert drive.events() == ["Clock", "Sleep"]
    assert drive.edge.asked == ["Clock", "Sleep"]
    assert drive.driver.result == "Clock, Sleep"
    assert drive.driver.done
    assert ended == ["flow"]


def test_a_flow_runs_only_as_far_as_the_next_event(drive: Drive) -> None:
    """Nothing happens before the first step, and nothing beyond the event that a step returned."""
    drive.start(toy([]))
    before = list(drive.edge.asked)

    drive.step()

    assert before == []
    assert drive.edge.asked == ["Clock"]
    assert not drive.driver.done


def test_a_failure_can_be_answered_by_the_flow(drive: Drive) -> None:
    """What an effect raises is raised where the flow asked for it, and the flow may go on."""
    drive.start(toy([]), fail(ValueError()))

    assert drive.events() == ["noon", "woken"]
    assert drive.driver.error is None


@pytest.mark.parametrize("error", [LookupError("lost"), KeyboardInterrupt(), SystemExit()], ids=repr)
def test_a_failure_that_the_flow_lets_pass_ends_it(drive: Drive, error: BaseException) -> None:
    """Its `finally` blocks run, the edge is closed, and whoever took the step gets that same exception."""
    ended: list[str] = []
    drive.start(toy(ended), fail(error))
    drive.step()

    with pytest.raises(type(error)) as caught:
        drive.step()

    assert caught.value is error
    assert ended == ["flow"]
    assert drive.edge.closed == 1
    assert drive.driver.error is (error if isinstance(error, Exception) else None)


def test_an_exit_can_be_seen_by_the_flow(drive: Drive) -> None:
    """The flow may note something on the way of an exit, which goes on all the same."""
    seen: list[str] = []

    def flow() -> Flow[None]:
        try:
            yield Sleep(1.0)
        except BaseException as exc:
            seen.append(type(exc).__name__)
            raise

    drive.start(flow(), fail(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        drive.step()

    assert seen == ["KeyboardInterrupt"]


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_giving_up_runs_the_finally_blocks(drive: Drive, steps: int) -> None:
    """At whatever event, the flow is closed there and has no result; what has not begun never begins."""
    ended: list[str] = []
    drive.start(toy(ended))
    for _ in range(steps):
        drive.step()

    drive.give_up()

    assert ended == (["flow"] if steps else [])
    assert drive.driver.done
    assert drive.driver.result is None
    assert drive.step() is None
    assert len(drive.edge.asked) == steps


@pytest.mark.parametrize("error", [None, LookupError("lost")], ids=["ended", "failed"])
def test_the_edge_is_closed_once(drive: Drive, error: BaseException | None) -> None:
    """Further steps and closing what has ended do nothing."""
    drive.start(toy([]), fail(error) if error is not None else None)
    with contextlib.suppress(LookupError):
        drive.events()

    drive.give_up()
    drive.step()
    drive.give_up()

    assert drive.edge.closed == 1


def test_the_edge_of_a_flow_given_up_is_closed_once(drive: Drive) -> None:
    """Giving up twice is once."""
    drive.start(toy([]))
    drive.step()

    drive.give_up()
    drive.give_up()

    assert drive.edge.closed == 1


def test_the_edge_is_closed_where_a_finally_block_fails(drive: Drive) -> None:
    """A flow whose tidying fails does not keep the connection."""

    def flow() -> Flow[None]:
        try:
            yield Emit(TurnStarted("now"))
        finally:
            raise LookupError("untidy")

    drive.start(flow())
    drive.step()

    with pytest.raises(LookupError):
        drive.give_up()

    assert drive.edge.closed == 1


@pytest.mark.parametrize("steps", [1, 3], ids=["given up", "ended"])
def test_a_closing_that_is_broken_into_is_done_once_more(
    drive: Drive, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the caller, and the connection is closed all the same."""

    def close(edge: Edge) -> None:
        edge.closed += 1
        if edge.closed == 1:
            raise KeyboardInterrupt

    async def aclose(edge: Edge) -> None:
        close(edge)

    monkeypatch.setattr(Edge, "close", close)
    monkeypatch.setattr(AsyncEdge, "aclose", aclose)
    drive.start(toy([]))
    for _ in range(steps - 1):
        drive.step()

    with pytest.raises(KeyboardInterrupt):
        drive.step() if steps == 3 else drive.give_up()

    assert drive.edge.closed == 2
    assert drive.driver.done
    assert drive.step() is None


# -------------------------------------------------------------------------------- ended from beside


def stopped_at_sleep(outcome: Callable[[], Any]) -> tuple[Edge, Driver[str], list[str], list[Any]]:
    """A flow that is given up by another thread during its wait, which then ends with `outcome`."""
    ended: list[str] = []
    seen: list[Any] = []

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Sleep):
            other = threading.Thread(target=driver.close)
            other.start()
            other.join()
            return outcome()
        return "noon"

    def flow() -> Flow[str]:
        try:
            yield Clock()
            try:
                seen.append((yield Sleep(1.0)))
            except BaseException as exc:
                seen.append(type(exc).__name__)
                raise
            yield Clock()
            return "whole"
        finally:
            ended.append("flow")

    edge = Edge(answer)
    driver = Driver(flow(), edge)
    return edge, driver, ended, seen


def interrupted() -> Any:
    raise Interrupted


def exiting() -> Any:
    raise KeyboardInterrupt


def test_a_step_given_up_from_beside_is_interrupted_and_ends() -> None:
    """The edge is told to end its wait, the flow sees no failure, and the step says that it is over."""
    edge, driver, ended, seen = stopped_at_sleep(interrupted)

    assert driver.step() is None

    assert edge.asked == ["Clock", "Sleep", "interrupt"]
    assert seen == ["GeneratorExit"]
    assert ended == ["flow"]
    assert edge.closed == 1
    assert driver.error is None


def test_an_answer_that_is_there_still_reaches_a_flow_given_up() -> None:
    """What has happened can be noted; the next effect is not carried out."""
    edge, driver, ended, seen = stopped_at_sleep(lambda: "slept")

    assert driver.step() is None

    assert seen == ["slept"]
    assert edge.asked == ["Clock", "Sleep", "interrupt"]
    assert ended == ["flow"]
    assert driver.result is None


def test_an_exit_in_a_step_given_up_is_not_swallowed() -> None:
    """It belongs to whoever takes the step, and the flow sees it on its way."""
    edge, driver, _, seen = stopped_at_sleep(exiting)

    with pytest.raises(KeyboardInterrupt):
        driver.step()

    assert seen == ["KeyboardInterrupt"]
    assert edge.closed == 1


def test_giving_up_between_two_steps_of_another_thread_closes_at_once() -> None:
    """No step runs, so nothing has to be waited for."""
    edge = Edge()
    driver = Driver(toy([]), edge)
    driver.step()

    other = threading.Thread(target=driver.close)
    other.start()
    other.join()

    assert edge.closed == 1
    assert driver.step() is None


def test_a_step_while_another_thread_closes_is_the_end() -> None:
    """The reader comes back in the very moment in which the flow is given up: that is no second reader."""
    stepped: list[Any] = []

    class SlowToClose(Edge):
        def close(self) -> None:
            super().close()
            stepped.append(driver.step())

    edge = SlowToClose()
    driver = Driver(toy([]), edge)
    driver.step()

    driver.close()

    assert stepped == [None]
    assert edge.closed == 1


def test_a_flow_is_stepped_by_one_reader_at_a_time(drive: Drive) -> None:
    """A step inside a step is refused with words, and the outer one goes on."""
    refused: list[str] = []

    def answer(effect: Effect) -> Any:
        try:
            step = drive.driver.step()
            if drive.is_async:
                step.send(None)
        except RuntimeError as exc:
            refused.append(str(exc))
        return "noon"

    drive.start(toy([]), answer)

    assert drive.events() == ["noon", "noon"]
    assert len(refused) == 2
    assert all("one reader at a time" in text for text in refused)


def test_a_second_reader_leaves_the_first_unharmed_however_late_it_is_told() -> None:
    """The first reader's step ends while the second hears that the seat was taken."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        def perform(self, effect: Effect) -> Any:
            inside.set()
            go_on.wait(60)

        def interrupt(self) -> None:
            raise AssertionError("nobody gives the flow up")

        def close(self) -> None:
            raise AssertionError("nobody gives the flow up")

    def endless() -> Flow[None]:
        while True:
            yield Clock()
            yield Emit(TurnStarted("now"))

    driver = Driver(endless(), Slow())
    first = threading.Thread(target=driver.step)

    def when_busy(frame: Any, event: str, arg: Any) -> Any:
        if event == "exception" and arg[0] is BusyError:
            go_on.set()
            first.join(60)
        return when_busy

    def second() -> None:
        sys.settrace(when_busy)
        try:
            with pytest.raises(BusyError):
                driver.step()
        finally:
            sys.settrace(None)

    first.start()
    assert inside.wait(60)
    other = threading.Thread(target=second)
    other.start()
    other.join(60)

    assert not driver.done
    assert driver.step() == TurnStarted("now")


def test_a_reader_between_two_events_sees_the_end_of_a_flow_that_is_being_closed() -> None:
    """As in plain code: who has asked for the next event is told that there is none."""

    class Slow:
        async def perform(self, effect: Effect) -> Any:
            return None

        async def interrupt(self) -> None:
            return None

        async def aclose(self) -> None:
            await asyncio.sleep(0.01)

    def endless() -> Flow[None]:
        while True:
            yield Emit(TurnStarted("now"))

    async def main() -> list[Any]:
        driver = AsyncDriver(endless(), Slow())
        seen = [await driver.step()]
        closing = asyncio.create_task(driver.aclose())
        await asyncio.sleep(0)
        seen.append(await driver.step())
        await closing
        return seen

    assert asyncio.run(main()) == [TurnStarted("now"), None]
