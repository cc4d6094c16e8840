"""The times of one model call: whole, until its first delta, and what is left of the turn for its body.

A stalled server is waited for as long as the tiny limit says; whoever gives up first is noted by the server.
A reply that has to come in such a time may be asked for again and again (`PERSISTENT`), for a busy machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from goaitools_py import (
    CompactionError,
    Compactor,
    DeadlineExceededError,
    MessageLimit,
    ProviderUnavailableError,
    RateLimitError,
    StreamInterruptedError,
    Summarize,
    TextDelta,
    Timeouts,
    tool,
)
from goaitools_py.backends.base import BackendError, ModelRequest, ResponseHead
from goaitools_py.base import rawjson
from goaitools_py.compaction import ProviderCompaction
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state
from goaitools_py.turn.edges.async_edge import AwaitingEdge
from goaitools_py.turn.flow import CallModel, ReadChunk

from ._reading import LEAD, roles, users
from ._stalling import STALL, Script, StallingServer, Words

SHORT = 0.1
"""Seconds that a stalled server is waited for."""

PERSISTENT: dict[str, Any] = {"max_retries": 50}
"""For a turn under the test's clock, where pauses between tries take no time."""

TICK = 0.02
"""Seconds, where no server has to keep up."""


def pause() -> None:
    """A server that takes its time, but does not stall."""
    time.sleep(2 * SHORT)


@pytest.fixture
def server(wire: str) -> Iterator[StallingServer]:
    """A server that stalls where it is told to."""
    made = StallingServer(wire)
    yield made
    made.close()


@pytest.fixture
def words(wire: str) -> Words:
    """What it says."""
    return Words(wire, "Once upon a time.")


@pytest.fixture
def on(face: Any, server: StallingServer) -> Any:
    """Makes chats that ask it."""

    def make(*, max_retries: int = 0, **fields: Any) -> Any:
        backend = face.backend(
            wire=server.wire, base_url=server.base_url, api_key="none", max_retries=max_retries
        )
        return face.chat(backend, **{"timeout": 20, **fields})  # a rule that is broken fails, not hangs

    return make


# ------------------------------------------------------------------------------ what is left of the turn


def test_a_body_that_stalls_late_ends_with_the_turn(
    on: Any, server: StallingServer, words: Words, run: Any, clock: Any
) -> None:
    """A body has what is left of the turn's time, not all of it once more: after 299.9 of 300 s, 0.1 s."""
    begins = words.lead + words.first if run.is_streamed else words.body[:20]
    server.push([lambda: clock.advance(300 - SHORT), begins, STALL])

    with pytest.raises(DeadlineExceededError, match="timeout of 300 s") as caught:
        run(on(timeout=300), user="Tell me a story.")
    err = caught.value

    assert server.end() == "client left"
    assert (roles(err.state), users(err.state)) == (["user"], ["Tell me a story."])


def test_a_body_that_never_begins_ends_with_the_turn(
    on: Any, server: StallingServer, run: Any, clock: Any
) -> None:
    """Headers that took almost all of the time leave the body what is left."""
    server.push([lambda: clock.advance(300 - SHORT), b"", STALL])

    with pytest.raises(DeadlineExceededError):
        run(on(timeout=300), user="Hello.")

    assert server.end() == "client left"


def test_a_body_that_drips_for_ever_ends_with_the_turn(face: Any, sim: Any, run: Any) -> None:
    """Pings between the pieces of a body, or blanks in a JSON body, extend nothing."""
    chat = face.on(sim, timeout=2 * SHORT)
    sim.push(Fault.pings(after=1))

    with pytest.raises(DeadlineExceededError) as caught:
        run(chat, user="Hello.")

    assert inspect_state(caught.value.state).status == "failed"


@pytest.mark.parametrize("run", ["unary"], indirect=True)
def test_a_whole_body_whose_end_does_not_come_is_kept(
    on: Any, server: StallingServer, words: Words, run: Any, clock: Any
) -> None:
    """An answer that is paid for and there is taken, though the connection never says that it is over."""
    server.then = lambda _: [words.body, STALL]

    result = run(on(timeout=Timeouts(turn=None, call=SHORT), **PERSISTENT), user="Tell me a story.")

    assert (result.status, result.text) == ("complete", "Once upon a time.")


@pytest.mark.parametrize("wire", ["openai"])
def test_a_whole_stream_whose_end_does_not_come_is_kept(
    on: Any, server: StallingServer, words: Words, clock: Any
) -> None:
    """A finish reason makes a reply whole; the last event is waited for only as long as there is time."""
    server.then = lambda _: [words.whole(stream=True).removesuffix(words.last), STALL]

    result = (
        on(timeout=Timeouts(turn=None, call=SHORT), **PERSISTENT)
        .start(None, user="Tell me a story.")
        .result()
    )

    assert (result.status, result.text) == ("complete", "Once upon a time.")


def test_a_wait_that_is_far_too_long_is_refused_at_once(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """`Retry-After: 400` under a deadline is told to the caller without a pause."""
    chat = face.on(sim, max_retries=5, timeout=300)
    sim.push(Fault.rate_limit(retry_after=400))

    with pytest.raises(RateLimitError) as caught:
        run(chat, user="Hello.")

    assert (caught.value.retry_after, caught.value.retryable) == (400.0, True)
    assert clock.naps == []
    assert len(sim.requests) == 1


# ------------------------------------------------------------------------------------------ Timeouts.call


def test_a_call_that_takes_too_long_is_tried_again(
    on: Any, server: StallingServer, words: Words, run: Any, clock: Any
) -> None:
    """Nothing was shown, so the engine's own rules for retries hold."""
    begins = words.lead if run.is_streamed else words.body[:20]
    good = words.whole(stream=run.is_streamed)
    server.push([STALL], [begins, STALL])
    server.then = lambda _: [good]

    result = run(on(timeout=Timeouts(turn=None, call=SHORT), **PERSISTENT), user="Tell me a story.")

    assert (result.status, result.text) == ("complete", "Once upon a time.")
    assert sorted(server.end() for _ in range(3)) == ["client left", "client left", "whole"]
    assert len(clock.naps) >= 2
    assert roles(result.state) == ["user", "assistant"]


def test_a_call_that_always_takes_too_long_says_which_time_passed(
    on: Any, server: StallingServer, words: Words, run: Any
) -> None:
    """The error names the option, is retryable, and `resume` goes on from its state."""
    begins = words.lead if run.is_streamed else words.body[:20]
    server.push([begins, STALL], [words.whole(stream=False)])
    chat = on(timeout=Timeouts(call=SHORT))

    with pytest.raises(ProviderUnavailableError, match=r"Timeouts\(call=0\.1\) s.*a larger limit") as caught:
        run(chat, user="Tell me a story.")
    err = caught.value

    assert err.retryable
    assert (roles(err.state), users(err.state)) == (["user"], ["Tell me a story."])
    assert chat.resume(err.state, timeout=Timeouts(call=None)).text == "Once upon a time."


def test_a_call_that_takes_too_long_behind_a_word_is_not_tried_again(
    on: Any, server: StallingServer, words: Words, clock: Any
) -> None:
    """What was shown cannot be taken back: the error carries it and says which time passed."""
    server.then = lambda _: [words.lead + words.first, STALL]
    chat = on(timeout=Timeouts(turn=None, call=SHORT), **PERSISTENT)
    turn = chat.start(None, user="Tell me a story.")

    with pytest.raises(
        StreamInterruptedError, match=r"not end within timeout=Timeouts\(call=0\.1\) s"
    ) as caught:
        turn.result()
    err = caught.value

    server.then = lambda _: [words.body]

    assert err.retryable
    assert err.partial_text == "Once "
    assert chat.resume(err.state, timeout=Timeouts(call=None)).text == "Once upon a time."


def test_pings_do_not_prolong_a_call(face: Any, sim: Any, run: Any) -> None:
    """A body that only keeps itself alive is out of time like one that says nothing."""
    chat = face.on(sim, timeout=Timeouts(turn=20, call=SHORT))
    sim.push(Fault.pings(after=1))

    with pytest.raises(ProviderUnavailableError, match=r"Timeouts\(call=") as caught:
        run(chat, user="Hello.")

    assert caught.value.retryable


def test_each_call_of_a_turn_has_its_own_time(face: Any, sim: Any, run: Any, clock: Any) -> None:
    """Tools, and the calls before, do not count."""

    @tool
    def dig(depth: int) -> str:
        """Dig for long."""
        clock.advance(100)
        return "gold"

    chat = face.on(sim, tools=[dig], timeout=Timeouts(call=60), tool_threads=False)
    sim.push(Reply.calls(("dig", '{"depth":1}')), Reply.calls(("dig", '{"depth":2}')))

    assert run(chat, user="Dig.").status == "complete"


ASKING = [
    *((wire, Summarize(keep_turns=1)) for wire in ("openai", "openai-responses", "anthropic")),
    *((wire, ProviderCompaction(keep_turns=1, fallback=None)) for wire in ("openai-responses", "anthropic")),
]


@pytest.mark.parametrize("begins", [False, True], ids=["no-headers", "a-part"])
@pytest.mark.parametrize(("wire", "strategy"), ASKING)
def test_a_question_of_a_strategy_takes_no_longer_than_a_call(
    on: Any, server: StallingServer, words: Words, strategy: Any, begins: bool
) -> None:
    """A summary and a provider's compaction are model calls: the time that these have bounds them too."""
    server.then = lambda _: [words.body]
    state = on().run_turns(None, ["One.", "Two.", "Three."]).state
    server.then = lambda _: [words.body[:20], STALL] if begins else [STALL]

    with pytest.raises(CompactionError, match="call_timeout"):
        on(timeout=Timeouts(call=SHORT)).compact_state(state, Compactor(MessageLimit(1), strategy))

    ends = [server.end() for _ in server.requests]
    assert ends in (["whole"] * 3 + ["client left"], ["whole"] * 3)  # on a busy machine it may never arrive


def test_a_question_that_took_too_long_is_asked_again(
    on: Any, server: StallingServer, words: Words, clock: Any
) -> None:
    """The second try has a time of its own, and its answer is taken."""
    server.then = lambda _: [words.body]
    state = on().run_turns(None, ["One. " * 90, "Two.", "Three."]).state
    server.push([STALL])

    report = on(timeout=Timeouts(turn=None, call=SHORT), **PERSISTENT).compact_state(
        state, Compactor(MessageLimit(1), Summarize(keep_turns=1))
    )

    assert report.outcome == "compacted"


# ----------------------------------------------------------------------------------- Timeouts.first_delta


def test_a_stream_that_does_not_begin_is_tried_again(
    on: Any, server: StallingServer, words: Words, clock: Any
) -> None:
    """Neither headers nor the events that lead a stream in are a beginning."""
    server.push([STALL], [words.lead, STALL])
    server.then = lambda _: [words.whole(stream=True)]
    chat = on(timeout=Timeouts(turn=None, first_delta=SHORT), **PERSISTENT)

    result = chat.start(None, user="Tell me a story.").result()

    assert (result.status, result.text) == ("complete", "Once upon a time.")
    assert sorted(server.end() for _ in range(3)) == ["client left", "client left", "whole"]


def test_pings_are_no_beginning(face: Any, sim: Any) -> None:
    """A stream that only keeps itself alive has not begun."""
    chat = face.on(sim, timeout=Timeouts(turn=20, first_delta=SHORT))
    sim.push(Fault.pings(after=LEAD[sim.wire]))

    with pytest.raises(
        ProviderUnavailableError, match=r"did not begin within timeout=Timeouts\(first_delta=0\.1\) s"
    ) as caught:
        chat.start(None, user="Hello.").result()

    assert caught.value.retryable
    assert (roles(caught.value.state), users(caught.value.state)) == (["user"], ["Hello."])


def test_a_stream_that_has_begun_may_pause(on: Any, server: StallingServer, words: Words, clock: Any) -> None:
    """The time until the first delta is no limit for anything after it."""
    server.then = lambda _: [words.lead + words.first, pause, words.rest]
    turn = on(timeout=Timeouts(turn=None, first_delta=SHORT), **PERSISTENT).start(
        None, user="Tell me a story."
    )

    said = [event.text for event in turn if isinstance(event, TextDelta)]

    assert "".join(said) == "Once upon a time."
    assert turn.result().status == "complete"


def test_a_call_is_a_beginning_too(
    on: Any, server: StallingServer, wire: str, words: Words, clock: Any
) -> None:
    """A reply that only calls tools has no visible delta, and has begun all the same."""

    @tool
    def dig(depth: int) -> str:
        """Dig."""
        return "gold"

    calls = Words(wire, "", ("dig", {"depth": 1}))

    def script(request: Any) -> Script:
        if b"gold" in rawjson.dumps(request):
            return [words.whole(stream=True)]
        return [calls.lead + calls.first, pause, calls.rest]

    server.then = script

    result = (
        on(timeout=Timeouts(turn=None, first_delta=SHORT), tools=[dig], **PERSISTENT)
        .start(None, user="Dig.")
        .result()
    )

    assert [record.result for record in result.tool_log] == ["gold"]


def test_a_reply_that_is_not_streamed_has_no_first_delta(
    on: Any, server: StallingServer, words: Words
) -> None:
    """A chat's default for its streams does not break its other calls, whose bodies come all at once."""
    server.push([pause, words.body])

    result = on(timeout=Timeouts(first_delta=SHORT)).chat(user="Tell me a story.")

    assert result.text == "Once upon a time."
    assert len(server.requests) == 1


def test_the_turns_own_end_is_named_first(on: Any, server: StallingServer) -> None:
    """Where the turn's time is up too, nothing is tried again and the error is the deadline's."""
    server.push([STALL])
    chat = on(timeout=Timeouts(turn=SHORT, call=SHORT, first_delta=SHORT), max_retries=3)

    with pytest.raises(DeadlineExceededError):
        chat.start(None, user="Hello.").result()

    assert len(server.requests) == 1


# -------------------------------------------------------------------------------- the async edge's alarm


class Waiting:
    """An exchange whose read does what a test says."""

    head = ResponseHead(status=200)

    def __init__(self, read: Any) -> None:
        self.read = read
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def performing(exchange: Waiting) -> AwaitingEdge:
    """An edge with this exchange open."""

    class Backend:
        async def asend(self, _: Any) -> Waiting:
            return exchange

    return AwaitingEdge(cast(Any, Backend()))


REQUEST = ModelRequest(path="/", body=b"")


def within(seconds: float) -> ReadChunk:
    """A read that may take so long."""
    return ReadChunk(time.monotonic() + seconds)


def test_a_cancellation_of_the_callers_is_not_taken_for_a_timeout() -> None:
    """Both at once: the task was cancelled, and stays so, whatever the time."""
    seen: list[BaseException] = []

    async def read() -> bytes:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(TICK, task.cancel)
        time.sleep(3 * TICK)  # the loop finds both due, the alarm first
        await asyncio.sleep(20)
        return b""

    async def main() -> int:
        edge = performing(Waiting(read))
        await edge.perform(CallModel(REQUEST))
        try:
            await edge.perform(within(TICK / 2))
        except BaseException as exc:
            seen.append(exc)
        await edge.aclose()
        task = asyncio.current_task()
        assert task is not None
        asked = task.cancelling()
        task.uncancel()
        return asked

    assert asyncio.run(main()) == 1
    assert [type(exc) for exc in seen] == [asyncio.CancelledError]


def test_waits_that_end_in_time_leave_nothing_behind() -> None:
    """A task that read in time is not cancelled later, and no timer holds a closed edge."""

    async def read() -> bytes:
        await asyncio.sleep(0)
        return b"x"

    async def main() -> None:
        exchange = Waiting(read)
        edge = performing(exchange)
        await edge.perform(CallModel(REQUEST))
        soon, late = within(TICK), within(20.0)
        assert [await edge.perform(soon) for _ in range(3)] == [b"x"] * 3
        await asyncio.sleep(3 * TICK)
        assert [await edge.perform(late) for _ in range(3)] == [b"x"] * 3
        timer = edge._wait._timer
        assert timer is not None
        await edge.aclose()
        assert exchange.closed
        assert timer.cancelled()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(main())


def test_each_wait_has_its_own_time() -> None:
    """A later end takes the place of an earlier one, and the other way round."""
    waits = [0.0, 3 * TICK, 60.0]

    async def read() -> bytes:
        await asyncio.sleep(waits.pop(0))
        return b"x"

    async def main() -> None:
        edge = performing(Waiting(read))
        await edge.perform(CallModel(REQUEST))
        assert await edge.perform(within(TICK)) == b"x"
        assert await edge.perform(within(60.0)) == b"x"
        with pytest.raises(BackendError) as caught:
            await asyncio.wait_for(edge.perform(within(TICK)), 5)
        assert caught.value.timed_out
        await edge.aclose()

    asyncio.run(main())
    assert waits == []
