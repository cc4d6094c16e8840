"""A turn that outlives the connections of its listeners.

Owns: the events so far, and how they are written for each listener. Must never know: HTTP, who starts a
turn, or where it is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace as replace_result
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from ..base.values import replace
from ..frontends import KEEP_ALIVE, AskError, FrontEnd, FrontStream, Piece
from ..frontends.bodies import numbered
from ..types.errors import GoAIToolsError
from ..types.events import (
    Compacted,
    ContextWarning,
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolPending,
    ToolProgress,
    TurnCompleted,
    TurnStarted,
)
from ..types.messages import Part, Text
from ..types.result import ChatResult
from .listeners import Pace
from .serve_limits import MAX_DIGITS

if TYPE_CHECKING:
    from ..chat.async_turn import AsyncTurn

__all__ = ["Run", "TookIn", "digest_of", "has_seen_end", "refused_input"]


class TookIn(Event, frozen=True):
    """The provider has taken messages of others into this turn. For workers only: front ends do not get it.

    `ids`: the digests of the turn ids of all messages of the turn.
    """

    ids: tuple[str, ...]


_TOLD: Final = (
    TextDelta, TurnStarted, ModelRequested, ReasoningDelta, ModelReplied, ToolFinished, ToolPending,
    ToolProgress, Compacted, ContextWarning, TurnCompleted, TookIn,
)  # fmt: skip
"""The events that a front end may write, and `TookIn`. The others hold states, and are not kept."""


_END: Final = ".end"
"""Stands before the number in the id of a stream's last event."""


def has_seen_end(last_id: str) -> bool:
    """True if a client has the stream that it names by its last event's id to the end."""
    return last_id.rpartition(".")[0].endswith(_END)


def digest_of(said: Sequence[Part]) -> str:
    """Make a digest of the user's message, to tell a repetition from another message."""
    parts = [[type(part).__name__, part] for part in said]
    return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest() if said else ""


class _Written:
    """The turn in one front end's format, for all listeners that see it from the same point."""

    def __init__(self, stream: FrontStream) -> None:
        self.stream = stream
        self.frames: list[bytes] = []
        self.read = 0
        self.has_ended = False
        self.end = 0
        """The number of the last frame, once it is there."""


class Run:
    """One turn: running, or over and kept for a while.

    Attributes:
        id: Unique among all runs of all processes.
        key: The conversation's key.
        owner: The turns of one owner are counted together.
        turn_id: The client's id of the message; "" for a turn that goes on.
        said: The parts of the user's message.
        answered: The calls that the request answered.
        taken: The digests of the turn ids that the turns of this call have had, once there are more than its
            own.
        before: The pieces of the turn from before this run.
        since: The pieces of `before` that a client lacks if it answered these calls.
        turn_ref: The `turn_ref` of the first turn of the reply; "" until it is known. All events have it: a
            client shows later turns of the same call as a part of this reply.
        named_again: The `turn_ref` of a turn that goes on, and the one of the reply with it, if they differ.
        error: The exception of the turn.
        result: The result of the turn, without its state unless `carries` is set.
        carries: True if the client keeps the state, and no store does.
        was_stopped: True for a turn that was cancelled.
        has_started: True once its turn has begun. The message is saved then, however the turn ends.
        has_news: True once there is something to send. Then `before` has its final value.
        is_ending: True once no more events come.
        is_over: True once nothing more comes.
        is_lost: True for a run of another process if its end will not come.
        is_copy: True for a run that shows the turn of another run.
        has_no_server: True if the server stopped before the turn could begin.
    """

    def __init__(
        self,
        id: str,
        key: str,
        owner: str,
        *,
        turn_id: str = "",
        said: tuple[Part, ...] = (),
        answered: Collection[str] = (),
        before: Sequence[Piece] = (),
        since: Sequence[Piece] = (),
        said_digest: str | None = None,
        carries: bool = False,
        named_again: Mapping[str, str] | None = None,
    ) -> None:
        self.id = id
        self.key = key
        self.owner = owner
        self.turn_id = turn_id
        self.said = said
        self.answered = frozenset(answered)
        self.before = tuple(before)
        self.since = tuple(since)
        self.taken: tuple[str, ...] = ()
        self.turn_ref = ""
        self.named_again = dict(named_again or {})
        self.error: BaseException | None = None
        self.result: ChatResult | None = None
        self.was_stopped = self.has_started = False
        self.has_news = self.is_ending = self.is_over = False
        self.is_lost = self.is_copy = self.has_no_server = False
        self.carries = carries
        self.turn: AsyncTurn | None = None
        self.announce: Callable[[], Awaitable[None]] | None = None
        """Tells other processes of the run, before a listener gets its first event."""
        self.last_words: Callable[[], Awaitable[None]] | None = None
        """Tells other processes how the run ended, before a listener gets the end."""
        self.events: list[Event] = []
        """The events that front ends may write, and `TookIn`, in order."""
        self._said_digest = said_digest
        self._pace = Pace()
        self._written: dict[tuple[str, bool], _Written] = {}
        self._news = asyncio.Event()
        self._begun = asyncio.Event()

    @property
    def is_good(self) -> bool:
        """True unless the turn failed or was stopped: a repeated message gets this run again."""
        return self.error is None and not self.was_stopped

    @cached_property
    def said_digest(self) -> str:
        """The digest of the user's message."""
        return digest_of(self.said) if self._said_digest is None else self._said_digest

    def hear(self, event: Event) -> None:
        """Add an event of a turn that runs here. Only some of a tool's reports are added; see `Pace`."""
        if not isinstance(event, ToolProgress) or self._pace.tells(event):
            self.tell(event)

    def tell(self, event: Event) -> None:
        """Add an event of the turn."""
        if not isinstance(event, _TOLD):
            return
        if isinstance(event, TurnCompleted):
            self.result = event.result if self.carries else replace_result(event.result, state=b"")
            event = replace(event, result=self.result)
        if isinstance(event, TookIn):
            self.taken = tuple(dict.fromkeys((*self.taken, *event.ids)))
        if ref := event.turn_ref:
            if isinstance(event, TurnStarted) or not self.turn_ref:
                self.turn_ref = self.named_again.get(ref, ref)
            if ref != self.turn_ref:
                event = replace(event, turn_ref=self.turn_ref)
        self.events.append(event)
        self._wake()
        if not isinstance(event, TurnStarted):
            self._begin()

    def found_before(self, before: Sequence[Piece], named_again: Mapping[str, str]) -> None:
        """Set the pieces of the turn from before this run, and its reply, while there is no news."""
        self.before, self.named_again = tuple(before), dict(named_again)
        begun, self.events, self.turn_ref = self.events, [], ""
        for event in begun:
            self.tell(event)

    def finish(self) -> None:
        """Say that the end comes next; `error` and `was_stopped` have their final values."""
        self.is_ending = True
        self._begin()
        self._wake()

    def end(self) -> None:
        """Say that nothing more comes."""
        self.is_over, self.turn = True, None
        self._begin()
        self._wake()

    @property
    def is_unsaved(self) -> bool:
        """True while a cancelled turn would lose the user's message."""
        return bool(self.said) and not self.has_started

    async def stop(self) -> None:
        """Cancel the turn. A message that is not saved yet is saved first, by the task that drives the turn:
        wait for `over`."""
        self.was_stopped = True
        if self.turn is not None and not self.is_unsaved:
            await self.turn.cancel()

    def lose(self, error: Exception) -> None:
        """Say that the end of the run will not come: its listeners are cut off, and may come back."""
        self.is_lost, self.error = True, error
        self.end()

    async def copy(self, other: Run) -> None:
        """Become the same as another run, of this process or of another one, to its end. This run must have
        no events before."""
        self.is_copy = True
        await other.begun()
        self.id, self.before, self.since = other.id, other.before, other.since
        told = 0
        while True:
            is_over, new = other.is_over, other.events[told:]
            for event in new:
                self.tell(event)
            told += len(new)
            if is_over:
                self.was_stopped, self.is_lost, self.error = other.was_stopped, other.is_lost, other.error
                return
            await other.news_within(None)

    async def begun(self) -> None:
        """Wait until there is something to send, or an error instead of it, or another turn is awaited."""
        await self._begun.wait()

    def waits_long(self) -> None:
        """Say that this run waits for another turn: its listeners get comments until there is more."""
        self._begun.set()

    def _begin(self) -> None:
        self.has_news = True
        self._begun.set()

    async def over(self) -> None:
        """Wait for the end."""
        while not self.is_over:
            await self._news.wait()

    async def news_within(self, seconds: float | None) -> bool:
        """Wait for the next event, or the end. False if neither comes within `seconds`."""
        return await _in_time(self._news, seconds)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # ----------------------------------------------------------------------------------- listeners

    def frames(self, front: FrontEnd, *, goes_on: bool = False) -> list[bytes]:
        """Give everything so far in a front end's format."""
        if not self.has_news:
            return []  # the pieces from before may still come
        kind = (front.name, goes_on)
        written = self._written.get(kind)
        if written is None:
            before = self.since if goes_on else self.before
            written = self._written[kind] = _Written(front.stream(before=before, goes_on=goes_on))
        for event in self.events[written.read :]:
            if isinstance(event, TookIn):
                continue
            written.frames += written.stream.feed(event)
            if isinstance(event, TurnCompleted):
                written.end = len(written.frames)
        written.read = len(self.events)
        if self.is_over and not self.is_lost and not written.has_ended:
            written.has_ended = True
            if self.was_stopped:
                written.frames += written.stream.stop()
            elif self.error is not None:
                written.frames += written.stream.fail(self.error)
            written.end = len(written.frames)
        return written.frames

    async def follow(
        self, front: FrontEnd, *, goes_on: bool = False, last_id: str = "", keep_alive: float = 15.0
    ) -> AsyncIterator[bytes]:
        """Replay the run and follow it to its end.

        Args:
            front: The front end of the listener.
            goes_on: As in `FrontEnd.stream`.
            last_id: The last id that the listener has seen. The id of another run is ignored.
            keep_alive: Seconds without news until a comment is sent.
        """
        named, _, number = last_id.rpartition(".")
        named = named.removesuffix(_END)
        seen = int(number) if number.isdecimal() and len(number) <= MAX_DIGITS else 0
        at: int | None = None
        while True:
            news = self._news
            frames, is_over = self.frames(front, goes_on=goes_on), self.is_over
            if frames and at is None:  # a run that is a copy has its id by now
                at = seen if named == self.id else 0
            if at is not None and at < len(frames):
                end = self._written[front.name, goes_on].end
                new = [
                    numbered(frame, f"{self.id}{_END if n == end else ''}.{n}")
                    for n, frame in enumerate(frames[at:], at + 1)
                ]
                at = len(frames)
                yield b"".join(new)
            if is_over:
                return
            if news is self._news and not await _in_time(news, keep_alive):
                yield KEEP_ALIVE


async def _in_time(news: asyncio.Event, seconds: float | None) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True


@contextmanager
def refused_input(run: Run, said: Sequence[Part] = ()) -> Iterator[None]:
    """Raise `AskError` if the turn fails with a ValueError before it begins. Then the client sent a file that
    the provider API does not know, or arguments that the tool does not have.

    `said`: the message. The error names the media types of its files: only the types that the ValueError
    names, or else all.
    """
    try:
        yield
    except ValueError as error:
        if run.events or isinstance(error, GoAIToolsError):
            raise
        types = {part.media_type.partition(";")[0].strip() for part in said if not isinstance(part, Text)}
        refused = sorted({one for one in types if one in str(error)} or types)
        raise AskError(
            f"the model does not take a file of this type: {', '.join(refused)}"
            if refused
            else "the model does not take this message, or the tool does not take these arguments"
        ) from error
