"""The input of a turn: the blob, the messages, the caller's options, and the providers that rest.

Owns: the frozen value `Plan`, and the times at which the providers of a chat did not answer. Must never know:
the use that the turn makes of them, or a clock.

A provider that could not be reached rests for some seconds, so that the next turns do not wait for it. The
first turn after the rest asks it again, and meanwhile the other turns do not. The threads and tasks of one
process share these notes. Two turns that read them at the same instant may both ask the provider; that costs
only time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..backends.base import Dialect
from ..base.values import Value, field
from ..state.codec import BlobLimits, Codec
from ..types.answers import Answers
from ..types.errors import StateError, TurnError
from ..types.messages import Message
from ..types.options import Resolved
from .flow import Flow

if TYPE_CHECKING:
    from ..output.wanted import Wanted
    from ..state.state import ConversationState

__all__ = ["Outages", "Plan", "Watch", "WatchesTurns"]


class Outages:
    """The resting places in a chat's list of providers: 0 is its own, 1 the first of the fallbacks.

    Args:
        seconds: The length of a rest; 0 for no rest.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until: dict[int, float] = {}

    def __bool__(self) -> bool:
        """True if a provider may be resting."""
        return bool(self._until)

    def note(self, place: int, now: float) -> None:
        """Note that a provider could not be reached."""
        if self.seconds:
            self._until[place] = now + self.seconds

    def clear(self, place: int) -> None:
        """Note that a provider has answered."""
        self._until.pop(place, None)

    def rests(self, place: int, now: float) -> bool:
        """True while a provider rests. The first call after the rest returns False and begins a new rest.

        So only the turn that got False asks the provider.
        """
        until = self._until.get(place)
        if until is None:
            return False
        if now < until:
            return True
        # The rest begins anew before the provider is asked: the other turns of these seconds do not wait
        # with this one.
        self._until[place] = now + self.seconds
        return False


Watch: TypeAlias = Callable[[Flow[Any]], Flow[Any]]
"""Wraps a flow to observe it. Every effect and answer passes unchanged."""


class WatchesTurns(Protocol):
    """The type of `Chat(telemetry=…)`: `goaitools_py.telemetry.Telemetry`, or an object of your own."""

    def watch(
        self,
        backend: Any,
        inner: Watch | None = None,
        *,
        model: str | None = None,
        settings: dict[str, Any] | None = None,
        output_type: str = "",
        messages: tuple[Any, ...] = (),
        is_turn: bool = True,
    ) -> Watch:
        """Make the function that traces one flow."""
        ...


class _Lost(Protocol):
    """A loss: its kind and its count."""

    @property
    def kind(self) -> str: ...
    @property
    def count(self) -> int: ...


Translate: TypeAlias = Callable[
    ["ConversationState", Dialect, Dialect, BlobLimits], tuple["ConversationState", Sequence[_Lost]]
]


def _untranslated(
    state: ConversationState, source: Dialect, target: Dialect, limits: BlobLimits
) -> tuple[ConversationState, Sequence[_Lost]]:
    raise AssertionError("a plan without a translator converts nothing")


class Plan(Value, frozen=True, kw_only=True):
    """Everything that a turn needs beside the state.

    Attributes:
        dialect: The translator for the provider API.
        options: The options of this call over the chat's defaults.
        codec: Protects blobs.
        new_id: Makes a random id: for a new conversation, and for a worker that claims tool calls.
        blob: The given state; b"" starts a conversation.
        waited: Seconds of the turn's `timeout` that passed before it began: in the wait for a lease, in
            loads, and in beginnings that another worker overtook.
        damage: The error that the loader has found in the given state; None without an error.
        model: The model of the backend, unless the settings name another.
        max_retries: The number of times that a model call is sent again after a passing fault.
        handed: Names of the settings that were written for another model. Settings that this model would
            refuse are translated or left out.
        context_window: The model's context window in tokens, as the backend was configured; None if it was
            not.
        stream: True if replies are streamed.
        listening: True if there are observers of events, or the flow is watched.
        watch: Wraps the turn's flow, to log or trace it; None for no wrapper.
        resume: True if the turn finishes the unfinished work of the state. A state without unfinished work is
            then an error.
        answers: Answers to waiting calls, by call id.
        preamble: The leading system messages; they are never stored.
        messages: The new messages.
        tools: The tools that the model may call.
        output: The type of the answer; None for text.
        usual_compactor: The chat's own compactor, if a compaction uses another one. The context edits that it
            asks of the provider stay a part of every request.
        is_shared: True if other workers may go on with this conversation. A call that must not run twice is
            then claimed before it starts.
        in_parts: True if a store keeps parts of the conversation beside its row.
        claims: True if the claim is kept by a separate effect, `Checkpoint` with `is_claim`. False if each
            start of a tool is kept as a checkpoint anyway.
        dialect_of: Gives the dialect of another built-in provider API by its name; None for an unknown name.
        one_step: True if the turn stops after one model call, or one round of tools.
        translate: Converts a state from the first dialect's provider API to the second's, within limits, and
            lists the losses.
        stands_for: The failure of the provider before, if this one is a fallback. A refusal by a fallback
            counts as that failure, and never blames the user's message: the provider before may take it.
        fallbacks: The backends that take over if the turn's own provider is down, in order.
        outages: The providers of the chat that could not be reached lately.
        titles: True if the first message of a conversation without a title becomes its title.
        checkpoints: True if the runner of the flow keeps each checkpoint, besides `on_checkpoint`.
        steers: True if the turn looks for new messages in the stored conversation before each model call
            after its first, and before its end; see `Look`.
        fresh_own: The mark of the messages of a turn without a `turn_id` in the inbox of a shared
            conversation; "" for no mark. With a `turn_id` the mark is its digest.
        claim: The mark that the turn puts on waiting messages, so that they cannot be withdrawn while a model
            reads them; "" for no mark.
    """

    _unshown = frozenset({"blob", "answers"})

    dialect: Dialect
    options: Resolved
    codec: Codec
    new_id: Callable[[], str]
    blob: bytes = b""
    waited: float = 0.0
    damage: StateError | None = None
    model: str | None = None
    max_retries: int = 2
    handed: frozenset[str] = frozenset()
    context_window: int | None = None
    stream: bool = False
    listening: bool = False
    watch: Watch | None = None
    resume: bool = False
    one_step: bool = False
    answers: Answers = field(default_factory=dict)
    preamble: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()
    tools: tuple[Any, ...] = ()
    output: Wanted | None = None
    usual_compactor: Any = None
    is_shared: bool = False
    in_parts: bool = False
    claims: bool = False
    titles: bool = False
    checkpoints: bool = False
    steers: bool = False
    fresh_own: str = ""
    claim: str = ""
    dialect_of: Callable[[str], Dialect | None] = lambda wire: None
    translate: Translate = _untranslated
    stands_for: TurnError | None = None
    fallbacks: tuple[Any, ...] = ()
    outages: Outages = Outages(0.0)
