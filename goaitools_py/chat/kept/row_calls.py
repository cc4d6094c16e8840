"""One store and one key: their settings, and the wait for the store's answers.

Owns: the limit of each wait, and the time in which a failed call is tried again. Must never know: the purpose
of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...backends.base import Dialect
from ...base.values import Value
from ...state.codec import Codec
from ...turn.flow import Clock, Flow, Invoke, Sleep, Unanswered
from ...types.errors import StoreUnavailableError

__all__ = ["FIRST_WAIT", "LONGEST_WAIT", "RowCalls", "RowSettings"]

FIRST_WAIT: Final = 0.01
LONGEST_WAIT: Final = 0.25
"""Seconds between two tries. Each wait is twice as long as the wait before it."""

LEAST_ANSWER, LONGEST_ANSWER = 1.0, 60.0
"""Seconds for which one answer of the store is awaited: at least, and where no turn sets a limit."""


class RowSettings(Value, frozen=True, kw_only=True):
    """The settings of a key: they are the same for each use.

    `renewal`: takes a lease and its seconds, and makes an object that renews the lease in the background,
    from `start` to `end`.
    `undisturbed`: makes the call that takes or ends a lease; see `undisturbed`.
    `gate`: "queue" and "steer" wait for a lease that another worker holds, "reject" raises at once. With
    "steer" a send gives its message to that worker's turn meanwhile.
    `marks_waiting`: see `Plan`.
    `lease_ttl`: how long a lease lasts without a renewal, in seconds.
    `concurrent_turns`: True puts a turn behind another worker's turn instead of raising a conflict.
    `save_timeout`: for how many seconds the save of a paid turn, or the release of a lease, is tried again
    while the store is unavailable.
    `with_title`: True if the title is in a plain column beside the blob.
    `converts`: True if turns convert states of other provider APIs. Then the stored state may be of another
    API.
    `keep_branches`: True if an edit first copies the conversation to a key of its own.
    `auto_title`: True if the first message of a conversation becomes its title.
    `longest_wait`: seconds after which each call has ended, for a store without an attribute of this name. 0
    sets no limit to the wait for an answer; infinity means that a call may never end.
    `in_parts`: True if saves put closed history, archive and media into the store as parts of their own; see
    `parts`. A load follows the row, not this setting.
    `stop_every`: seconds between two looks of a turn at the stop flag; None if it does not look.
    """

    _unshown = frozenset({"key", "binding"})

    store: Any
    key: str
    codec: Codec
    binding: Any
    dialect: Dialect
    renewal: Callable[[Any, float], Any]
    undisturbed: Callable[..., Any]
    gate: str = "queue"
    marks_waiting: bool = False
    lease_ttl: float = 10.0
    concurrent_turns: bool = False
    save_timeout: float = 5.0
    with_title: bool = False
    in_parts: bool = False
    stop_every: float | None = None
    converts: bool = False
    keep_branches: bool = False
    auto_title: bool = False
    longest_wait: float = 0.0

    @property
    def reader(self) -> Dialect | None:
        """The dialect that reads the stored state; None: the dialect of the state's own provider API."""
        return None if self.converts else self.dialect


class RowCalls:
    """The calls of a store in one use of a key."""

    def __init__(self, settings: RowSettings) -> None:
        self.settings = settings
        self._deadline: float | None = None
        self._patient_until: float | None = None
        self.is_silent = False
        """True if the last call of the store got no answer in time."""
        self._pause = FIRST_WAIT

    def ask(
        self,
        call: Callable[..., Any],
        *args: Any,
        is_paid: bool = False,
    ) -> Flow[Any]:
        """Call the store. `StoreUnavailableError` if no answer comes in time; the call may still be done.

        Before a turn has called a model, it waits for an answer until its own time is over. After that
        (`is_paid`) it waits as long as a save is tried.

        Args:
            call: A method of the store.
            args: Its arguments.
            is_paid: True if model calls or tools were paid for.
        """
        longest: float = getattr(self.settings.store, "longest_wait", self.settings.longest_wait)
        if not longest:
            return (yield Invoke(call, args))
        self.is_silent = False  # an error of the store is an answer, too
        now = yield Clock()
        until = self._end_of_wait(now.monotonic, is_paid)
        # The driver gives up before this limit. So the call needs no thread and no task beside the turn.
        if until - now.monotonic >= longest:
            return (yield Invoke(call, args))
        try:
            return (yield Invoke(call, args, until))
        except Unanswered:
            self.is_silent = True
            if is_paid and self._patient_until is None:
                self._patient_until = until + LEAST_ANSWER  # other connections may do: look, and save again
            raise StoreUnavailableError(
                f"the store gave no answer within {until - now.monotonic:.1f} seconds: try again later"
            ) from None

    def asked_beside(self, call: Callable[..., Any], *args: Any) -> Flow[Any]:
        """As `ask` of a paid turn, for a call that the turn can do without: None if the store fails. The time
        in which the turn's save is tried again does not begin here."""
        until = self._patient_until
        try:
            return (yield from self.ask(call, *args, is_paid=True))
        except Exception:
            self._patient_until = until
            return None

    def _end_of_wait(self, now: float, is_paid: bool) -> float:
        if not is_paid:
            end = now + LONGEST_ANSWER if self._deadline is None else self._deadline
        elif self._patient_until is None:
            end = now + self.settings.save_timeout
        else:
            # All tries of a save share one end, so that a silent store holds the turn no longer than that.
            end = self._patient_until
        return max(end, now + LEAST_ANSWER)

    def _wait(self) -> Flow[bool]:
        """Wait before the unavailable store is tried again. False once `save_timeout` seconds have passed
        since the first failure."""
        now = yield Clock()
        if self._patient_until is None:
            self._patient_until = now.monotonic + self.settings.save_timeout
            self._pause = FIRST_WAIT
        if now.monotonic + self._pause > self._patient_until:
            return False
        yield Sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_WAIT)
        return True
