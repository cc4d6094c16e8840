"""The end of a turn that steers: what came at the end, and what an earlier process left there.

Owns: whether a turn that has its last reply ends with it, or asks once more. Must never know: the steps
before the last reply, or how a turn is closed.

A turn that steers looks for new messages behind its last reply. A process may die at that place, or the
provider may refuse the new messages. The last reply was paid for, so the turn still ends with it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..backends.base import Reply
from ..base.values import replace
from ..open_turn import attempts, inbox, steps
from ..open_turn.turn_ids import reply_text
from ..state.records import IDS_KEPT
from ..state.state import ConversationState
from ..types.errors import BudgetExceededError, TurnError, TurnStoppedError
from ..types.events import TextDelta
from . import limits
from .answer import TypedAnswer
from .flow import Emit, Flow
from .ledger import Ledger, ReturnPoint
from .limits import check_budget
from .request import Voice

__all__ = ["LastReply", "goes_on", "has_reply", "is_spent", "or_ended", "stored_end"]


class LastReply(NamedTuple):
    """The end of a turn that goes on with new messages: its last reply, and the position with them."""

    reply: Reply
    point: ReturnPoint
    is_stored: bool = False
    """True if an earlier process got the reply."""


def has_reply(state: ConversationState) -> bool:
    """True if an earlier process left the open turn behind its last reply."""
    return steps.has_ended(state) or (state.open is not None and attempts.ends_with_answer(state.open))


def stored_end(ledger: Ledger, answer: TypedAnswer | None, voice: Voice) -> Flow[Reply | LastReply | None]:
    """Take up a turn that an earlier process left behind its last reply, which is not paid for again.

    Returns the reply if the turn is over with it; the reply and the position if messages that came at its
    end are left to send; None if the turn has to go on.
    """
    opened = ledger.state.open
    if opened is None or not has_reply(ledger.state):
        return None
    is_answer = not steps.has_ended(ledger.state)  # it was not checked yet
    word = opened.iterations[-1].finish_reason
    reply = Reply(entries=(), text=reply_text(opened.closed(), ledger.dialect), finish_reason=word)
    # Without a requested type any text is an answer: an earlier call of the chat has asked for a type.
    asked = ledger.state
    if answer is not None and not (yield from answer.fits(reply.text, is_new=False)):
        told, ledger.state = ledger.state, asked
        check_budget(ledger, voice.model)
        ledger.state = told
        return None
    if ledger.has_own_waiting:  # the messages of this delivery came at the end of that turn
        check_budget(ledger, voice.model)
        if is_answer:
            ledger.state = steps.reopened(attempts.without_marks(ledger.state, ledger.dialect))
        return None
    if ledger.listening and reply.text:
        yield Emit(TextDelta(reply.text, ledger.iteration, **ledger.event_ids))
    if is_answer or not ledger.asks or is_spent(ledger, voice):
        ledger.drop_words()
        ledger.state = steps.with_metadata(ledger.state, ledger.options.metadata)
        return reply
    ledger.has_ended = True
    return LastReply(reply, ledger.return_point(), True)


def is_spent(ledger: Ledger, voice: Voice) -> bool:
    """True if a turn that is over must not ask for more: its time or a limit is used up."""
    now = ledger.state
    try:
        return (
            ledger.is_late or limits.reached(ledger) is not None or limits.is_over_budget(ledger, voice.model)
        )
    except BudgetExceededError:  # the price of the reply is unknown: it was paid for, and is the answer
        ledger.state = now
        return True


def goes_on(ledger: Ledger, voice: Voice, reply: Reply, before: ConversationState) -> Flow[LastReply | None]:
    """Look for new messages at the end of a turn that steers. If some came, the turn is open again with
    them, for one more model call. None: the turn is over.

    At a limit of the turn or of the conversation the messages wait for the next one.

    Args:
        ledger: The books of the turn.
        voice: The speaker of the next request.
        reply: The turn's last reply.
        before: The state with that reply, before it closed the turn.
    """
    yield from ledger.tick()
    if is_spent(ledger, voice) or not (yield from ledger.take_in(steps.reopened(before))):
        return None
    ledger.has_ended = True
    return LastReply(reply, ledger.return_point())


def or_ended(ledger: Ledger, asking: Flow[Reply], ended: LastReply) -> Flow[Reply]:
    """Ask once more. If the call fails before the provider has taken the new messages, the turn ends with
    its last reply, and they wait for the next turn."""
    given = ended.point.position.state
    try:
        return (yield from asking)
    except TurnStoppedError:
        raise  # nobody goes on with it unless a user asks
    except TurnError as exc:
        opened = ledger.state.open
        if opened is None or given.open is None or opened.entries is not given.open.entries:
            raise
        failure = type(exc).__name__
    events = (*given.meta.events, *ledger.state.meta.events)
    ledger.go_back(ended.point)
    if ended.is_stored:
        ledger.drop_words()
    meta = msgspec.structs.replace(ledger.state.meta, events=tuple(dict.fromkeys(events))[-IDS_KEPT:])
    ledger.state = inbox.released(replace(ledger.state, meta=meta))
    ledger.warn(
        "left_waiting",
        f"the model call for new messages failed ({failure}): the turn ended before them, and they wait "
        "for the next turn",
    )
    return ended.reply
