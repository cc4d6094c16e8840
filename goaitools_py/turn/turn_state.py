"""The position of a running turn: its state at this instant, and that state as a blob.

Owns: the state, the part of it that stays if the provider refuses the input, the messages that other threads
append, and the blobs of all this. Must never know: the order of a turn's steps, its costs, or its report.

Every change replaces one frozen state in one assignment. So an interruption, or another thread that asks for
a blob, always finds a complete state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from ..base.values import Value, replace
from ..open_turn import inbox, journal
from ..open_turn.acts import Begun
from ..open_turn.room import CALL_BYTES, RESULTS, Room
from ..state.codec import BlobLimits
from ..state.parts import Part
from ..state.records import InboxItem, Meta, digest8
from ..state.state import ConversationState, dump_state, new_state
from ..types.errors import StateTooLargeError
from ..types.messages import Message
from .plan import Plan
from .timing import Timing

__all__ = ["Arrival", "Rewrite", "Snapshot", "TurnState", "status_of"]

_NOT_BEGUN: Final = new_state("", id="", created=0)
"""The placeholder for the state until the turn begins. Compared by identity."""

_SPENT: Final = ("total", "aside", "cost", "ask_failed")
"""The fields of a state's meta data that count tokens and money. No step back undoes them."""


class Snapshot(Value, frozen=True):
    """The position of a turn at one instant.

    Attributes:
        state: The conversation.
        base: The conversation before the turn's messages entered it.
        without_input: The conversation without the messages that no model has accepted yet. It is left if
            the provider refuses them.
        is_given: True if `without_input` says the same as the given blob. The caller then gets that blob.
    """

    _unshown = frozenset({"state", "base", "without_input"})

    state: ConversationState
    base: ConversationState | None
    without_input: ConversationState | None
    is_given: bool


class Rewrite(NamedTuple):
    """A change of the stored history, which makes a provider take a request that it has refused.

    Attributes:
        made: Changes a state. A pure function. The same object if nothing has to change.
        told: Warns of the change. Takes the state before it, and the state after it.
    """

    made: Callable[[ConversationState], ConversationState]
    told: Callable[[ConversationState, ConversationState], None]


class Arrival(NamedTuple):
    """New messages that a turn is about to claim.

    Attributes:
        blob: The state with the claim. It grows from the stored state.
        enter: Makes it the turn's state. Safe to call twice.
        undo: Goes back to the state before. Safe to call twice.
    """

    blob: bytes
    enter: Callable[[], None]
    undo: Callable[[], None]


class TurnState(Timing):
    """Holds the position of one turn.

    Attributes:
        plan: The input and the options of the turn.
        dialect: The translator for the provider API.
        state: The conversation at this instant. An empty value before the turn has begun.
        given: The state that the turn began from.
        grew_from: The blob that new blobs name as their parent; b"" without a parent.
        room: Computes the space that is left in the state.
        streamed: Returns the received text of a reply that is under way; None if no reply is.
        partial_text: The text of a reply that broke off.
        left_waiting: None at first. After the provider has refused a request with the messages that others
            had put into a shared conversation: these messages. They stay in the inbox, and the turn goes on
            without them.
        has_ended: True while only new messages of others keep the call from its end: its turn is closed,
            and nothing else is left to send.
        has_edited: True if the state has an edit, and is not the old one that a refusal leaves.
        same_call: The digests of the turn ids of this call's turns that are closed, if the turn steers. None:
            no turn of this call is closed.
        rewrites: The changes of the stored history that the turn tries. Its requests have them; the state
            gets them with a reply, because only a reply shows that they were right.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.options = plan.options
        self.dialect = plan.dialect
        self.state = _NOT_BEGUN
        self.given: ConversationState | None = None
        self.grew_from = plan.blob
        self.room = Room(plan.codec, plan.dialect)
        self.streamed: Callable[[], str] | None = None
        self.partial_text = ""
        self.left_waiting: inbox.Others | None = None
        self.has_ended = self.has_edited = False
        self.same_call: tuple[str, ...] | None = None
        self.rewrites: tuple[Rewrite, ...] = ()
        self._others: inbox.Others | None = None
        self._base: ConversationState | None = None
        self._without_input: ConversationState | None = None
        self._is_given = False
        self._unedited: ConversationState | None = None
        self._left_by_edit = 0
        self.dropped: tuple[InboxItem, ...] = ()
        self._lock = threading.Lock()
        self._appended: list[Message] = []
        self._is_closed = False
        self._newest: tuple[bytes, Meta] | None = None
        self._media: dict[bytes, Part] = {}

    @property
    def has_begun(self) -> bool:
        """True once the turn has a state."""
        return self.state is not _NOT_BEGUN

    @property
    def has_asked(self) -> bool:
        """True if the open turn has a reply already, in this process or before a `resume`."""
        return self.state.open is not None and bool(self.state.open.iterations)

    @property
    def at_ms(self) -> int:
        """Now, in milliseconds after the conversation began."""
        return max(0, self.now.wall_ms - self.state.meta.created)

    @property
    def own(self) -> str:
        """The mark of this turn's messages in the inbox; "" for no mark."""
        turn_id = self.options.turn_id
        return self.plan.fresh_own if turn_id is None else digest8(turn_id)

    # ---------------------------------------------------------------------------- forward and back

    def start_from(self, begun: Begun) -> None:
        """Begin with the given state, and with the same state after the turn's messages have entered it."""
        given = self.given = begun.given
        meta = given.meta
        if meta.processed or given.open is not None:
            self.idle_seconds = max(0.0, (self.now.wall_ms - meta.created - meta.updated) / 1000)
        if given.inbox and self.plan.is_shared:
            self._others = inbox.said_by_others(given, self.own, self.options.metadata)
        if begun.unedited is not None:  # else a fallback may go on with the edit
            self._unedited, self.has_edited = begun.unedited, True
            self._left_by_edit = len(given.inbox)
        self._base, self._without_input = given, self._unedited or begun.without_input
        is_as_before = self._unedited is not None or not given.inbox
        is_own = self._unedited is begun.unedited
        self._is_given = is_own and is_as_before and not begun.has_grown and self.grew_from == self.plan.blob
        # The state last: from this line on the turn has begun, and another thread may ask for its blob.
        self.state = begun.state

    def set_base(self, state: ConversationState) -> None:
        """Go on with this state. If the provider refuses the input, the turn falls back to it, without its
        inbox."""
        self._base = state
        if self._unedited is None:
            self._without_input = inbox.without_inbox(state)
            self._is_given = False
        self.state = state

    def forget_edit(self) -> ConversationState | None:
        """Undo the edit of this turn. The old state; None without an edit."""
        old, self._unedited, self.has_edited = self._unedited, None, False
        return old

    def position(self) -> Snapshot:
        """The turn's position now, for a later `step_back`."""
        return Snapshot(self.state, self._base, self._without_input, self._is_given)

    def step_back(self, snapshot: Snapshot) -> None:
        """Undo every later change of the state. New messages in the inbox stay, and so do the costs.

        A message that was accepted since then returns to the inbox. No turn holds it any more, so it would be
        lost otherwise.
        """
        now, state = self.state, snapshot.state
        if state.inbox != now.inbox:
            meta = msgspec.structs.replace(state.meta, events=now.meta.events)
            state = replace(state, inbox=inbox.merged(state.inbox, now.inbox), meta=meta)
        self._base, self._without_input, self._is_given = (
            snapshot.base,
            snapshot.without_input,
            snapshot.is_given,
        )
        self.state = _with_spent(state, now.meta)

    def keep_edit(self) -> None:
        """Note that the provider has answered the edit of this turn, if there is one: it stays."""
        self._unedited = None

    @property
    def is_only_asked(self) -> bool:
        """True while a turn that edits has no answer of the provider: the old history is not replaced yet."""
        now, given = self.state, self.given
        return (
            self._unedited is not None
            and given is not None
            and now.open is None
            and now.meta.processed == given.meta.processed
        )

    @property
    def tried_state(self) -> ConversationState:
        """The state with the changes of the history that the turn tries."""
        state = self.state
        for rewrite in self.rewrites:
            state = rewrite.made(state)
        return state

    def enter_rewrites(self) -> None:
        """Give the state the changes of the history that the turn tries.

        A change that a cut has made needless since it was tried is not told.
        """
        for rewrite in self.rewrites:
            before, self.state = self.state, rewrite.made(self.state)
            if self.state is not before:
                rewrite.told(before, self.state)

    def release(self) -> None:
        """Give back the claims of a turn that ends before a model has accepted a message: no request is under
        way any more. An open turn keeps them: whoever goes on with it sends its messages."""
        if self.plan.claim and self.state.open is None:
            self.state = inbox.released(self.state)

    def drop_input(self) -> tuple[Message, ...]:
        """Take the messages that no model has accepted out of the state, and return them.

        The messages of `left_waiting` stay. `dropped` notes all that waited.
        """
        state = self.state
        self.dropped = state.inbox
        if self._unedited is not None and self.given is not None and self.is_only_asked:
            # What waited behind the edit is in the old state, too: it waited there, or stood in a turn that
            # the edit took. A fallback was given the messages of the edit, too, behind those.
            mark = self.own
            known = {
                id(item)
                for item in self.given.inbox[: self._left_by_edit]
                if not (mark and item.turn == mark)
            }
            own = tuple([item for item in state.inbox if id(item) not in known])
            self.state, self._unedited = _with_spent(self._unedited, state.meta), None
            self.has_edited = False
            return inbox.inbox_messages(replace(state, inbox=own), self.dialect)
        if self.left_waiting is not None:
            pending = inbox.inbox_messages(replace(state, inbox=self.to_send()), self.dialect)
            base = state if state.open is not None or self._base is None else self._base
            left = inbox.without_inbox(base, but=self.left_waiting)
            # A turn that has ended releases them at its end: before, they are known by their identity.
            self.state = _with_spent(left if self.has_ended else inbox.released(left), state.meta)
            return pending
        pending = inbox.inbox_messages(state, self.dialect)
        # Back to the noted object and not to a copy: `is_as_given` compares by identity, and then returns
        # the given blob byte for byte.
        if state.open is None and self._without_input is not None:
            self.state = _with_spent(self._without_input, state.meta)
        else:
            self.state = inbox.without_inbox(state)
        return pending

    def leave_waiting(self) -> bool:
        """Let the turn go on without the messages of others.

        False if others have left no messages, if the turn goes on without them already, or if nothing else is
        left to send.

        Those messages may be the only copy: their authors were told that they are stored. So they are not
        returned to this turn's caller, who may be gone before the error arrives.
        """
        state = self.state
        if self._others is None or self.left_waiting is self._others or self.has_ended:
            return False
        others = self._others.among(state.inbox)
        if not others:
            return False
        if state.open is None and not inbox.asks(self._others.besides(state.inbox), self.dialect):
            return False
        self.left_waiting = self._others
        return True

    def drop_words(self) -> None:
        """Take the context and the description of an answer out of the inbox that this call has put there.
        The turn is over without them, and a later one would send them."""
        given, state = self.given, self.state
        assert given is not None
        known = set(map(id, given.inbox))
        items = tuple([one for one in state.inbox if id(one) in known or inbox.asks([one], self.dialect)])
        meta = msgspec.structs.replace(state.meta, context=given.meta.context, said=given.meta.said)
        self.state = replace(state, inbox=items, meta=meta)

    @property
    def asks(self) -> bool:
        """True if the next request has messages, and not only a context or the description of an answer."""
        return inbox.asks(self.to_send(), self.dialect)

    def to_send(self) -> tuple[InboxItem, ...]:
        """The messages of the inbox that the next request carries."""
        items = self.state.inbox
        return items if self.left_waiting is None else self.left_waiting.besides(items)

    @property
    def is_as_given(self) -> bool:
        """True if the state says the same as the given blob. That blob is then the state to return."""
        return not self.has_begun or (self._is_given and self.state is self._without_input)

    # -------------------------------------------------------------------- messages of other threads

    def append(self, messages: Sequence[Message]) -> None:
        """Take messages in from any thread. They enter the inbox before the next request.

        Raises:
            RuntimeError: The turn takes no more messages.
            StateTooLargeError: The state has no room for them beside the space that the turn still needs.
        """
        self.dialect.entries(messages)  # encode now, so that the author gets the error of a bad message
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the turn is over; use append_to_state on its state")
            if self.has_begun:
                grown = inbox.admit(self.state, [*self._appended, *messages], self.dialect)
                problem = self.room.problem(grown, RESULTS, more=journal.unfinished(grown) * CALL_BYTES)
                if problem is not None:
                    raise problem
            self._appended.extend(messages)

    def take_over(self, messages: Sequence[Message]) -> None:
        """Take in messages that a later provider's turn had taken, also behind `close`."""
        with self._lock:
            self._appended.extend(messages)

    def arrived(self, state: ConversationState, base: bytes, theirs: bytes) -> Arrival | None:
        """Join a state of this turn with the messages that came into the stored conversation, and claim them.

        None if no message came, or if there is no room for them: then they wait for the next turn.

        Args:
            state: The turn's state now, or the state before its end.
            base: The stored state that it grew from.
            theirs: The stored state now.
        """
        from ..history.rebase import with_arrived  # a plain turn does not need it

        plan, known, now = self.plan, self._others, self.state
        joined = with_arrived(state, base=base, theirs=theirs, codec=plan.codec, binding=self.options.binding)
        if joined is None:
            return None
        joined = inbox.claimed(joined, plan.claim)
        more = journal.unfinished(joined) * CALL_BYTES
        if self.room.problem(self.with_appended(joined), RESULTS, more=more) is not None:
            return None
        try:
            blob = self.written(self.with_appended(joined), "in_progress", self.room.hard, grew_from=theirs)
        except StateTooLargeError:
            return None
        # Their authors were told that they are stored: if the provider refuses them, they wait on.
        seen = set(map(id, state.inbox))
        fresh = [item for item in joined.inbox if id(item) not in seen]
        ids = {row.id for row in joined.meta.turn} - {row.id for row in state.meta.turn}
        others = inbox.Others(
            items=(*(known.items if known is not None else ()), *fresh),
            turn_ids=frozenset(ids | (known.turn_ids if known is not None else frozenset())),
            context=joined.meta.context,
            metadata=joined.meta.said,
        )
        grew_from = self.grew_from

        def enter() -> None:
            self.grew_from, self._others, self.state = theirs, others, joined

        def undo() -> None:
            self.grew_from, self._others, self.state = grew_from, known, now

        return Arrival(blob, enter, undo)

    def close(self) -> bool:
        """Refuse further messages. True if appended messages have not entered the inbox yet."""
        # Under the lock, so that `append` either comes before and is reported here, or raises.
        with self._lock:
            self._is_closed = True
            return bool(self._appended)

    @property
    def has_appended(self) -> bool:
        """True if appended messages have not entered the inbox yet."""
        return bool(self._appended)

    @property
    def has_own_waiting(self) -> bool:
        """True if messages of this turn have not been sent yet. A context alone, and the description of an
        answer, are no messages."""
        own = self.own
        waiting = [one for one in self.state.inbox if one.turn == own] if own else []
        return self.has_appended or inbox.asks(waiting, self.dialect)

    def admit_appended(self) -> None:
        """Move the appended messages into the inbox."""
        if self._appended:
            with self._lock:
                # The state first: an exit between the two lines must not lose the messages.
                self.state = inbox.admit(self.state, self._appended, self.dialect)
                self._appended = []

    def current(self) -> ConversationState:
        """The state with the appended messages, for any thread. This object does not change."""
        with self._lock:
            return self.with_appended(self.state) if self._appended else self.state

    def with_appended(self, state: ConversationState) -> ConversationState:
        """A state of the turn's own thread with the appended messages."""
        return inbox.admit(state, self._appended, self.dialect) if self._appended else state

    # -------------------------------------------------------------------------------------- as blobs

    def meta_of(self, blob: bytes) -> Meta | None:
        """The meta data of a blob, if it is the newest one that was made here."""
        newest = self._newest
        return newest[1] if newest is not None and newest[0] is blob else None

    def encode(self, status: str, *, limits: BlobLimits | None = None) -> bytes:
        """The state as a blob, one revision after the given blob. Without `limits` the soft limits hold."""
        return self.written(self.current(), status, limits or self.room.soft)

    def snapshot(self) -> bytes:
        """A complete blob of this instant, for any thread; the given blob before the turn has begun."""
        if not self.has_begun:
            return self.plan.blob
        state = self.current()
        # Read `streamed` after the state: it becomes None before a reply enters the state. So the blob never
        # has the text of one reply twice.
        streamed = self.streamed
        if streamed is not None:
            state = self.room.with_partial(state, streamed())
        return self.written(state, status_of(state, "in_progress"), self.room.hard)

    def written(
        self, state: ConversationState, status: str, limits: BlobLimits, *, grew_from: bytes | None = None
    ) -> bytes:
        """Write any state as a blob of this turn. `grew_from`: the blob before it, if it is another one."""
        parent = self.grew_from if grew_from is None else grew_from
        meta = msgspec.structs.replace(
            state.meta,
            rev=state.meta.rev + 1,
            parent=digest8(parent[:112]) if parent else "",
            updated=max(0, self.now.wall_ms - state.meta.created),
            status=status,
        )
        blob = dump_state(
            replace(state, meta=meta),
            codec=self.plan.codec,
            binding=self.options.binding,
            limits=limits,
            seen=self._media,
        )
        # One assignment of both: another thread must not get the meta data of one blob with another blob.
        self._newest = blob, meta
        return blob


def status_of(state: ConversationState, unfinished: str) -> str:
    """The status of a state: complete if nothing in it waits for a reply or an answer."""
    if journal.is_waiting(state):
        return "awaiting_tools"
    return unfinished if state.open is not None or state.inbox else "complete"


def _with_spent(state: ConversationState, meta: Meta) -> ConversationState:
    """An earlier state with the costs of `meta`; the same object if they are equal."""
    known = {name: getattr(meta, name) for name in _SPENT}
    if all(getattr(state.meta, name) == row for name, row in known.items()):
        return state
    return replace(state, meta=msgspec.structs.replace(state.meta, **known))
