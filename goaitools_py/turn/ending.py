"""The end of a turn: the answer that an earlier process left there, and the messages that came meanwhile.

Owns: whether a call that has a last reply ends with it, or asks once more. Must never know: the steps before
the last reply, or how a turn is closed.

A turn that steers looks for new messages behind its last reply. If some came, the same call goes on with a
turn for them. The turn before is closed by then, so its reply stays if the new one fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..backends.base import Reply
from ..base.values import replace
from ..open_turn import attempts, inbox
from ..open_turn.turn_ids import SAME_CALL, reply_text
from ..state.records import IDS_KEPT, CutRow
from ..state.state import closed_turns
from ..types.errors import TurnError, TurnStoppedError
from ..types.messages import event
from . import limits
from .answer import TypedAnswer
from .flow import Flow
from .ledger import Ledger, ReturnPoint
from .request import Voice

__all__ = ["LastReply", "goes_on", "or_ended", "stored_answer", "with_type"]


class LastReply(NamedTuple):
    """The last reply of a turn behind which messages came, and the position with them."""

    reply: Reply
    point: ReturnPoint
    event_ids: dict[str, str]


def stored_answer(ledger: Ledger, answer: TypedAnswer | None, voice: Voice) -> Flow[Reply | None]:
    """The answer that an earlier process left unchecked, which is not paid for again. None without one, or if
    it does not fit: the turn has to go on.

    Without a requested type any text is an answer: an earlier call of the chat has asked for a type.
    """
    opened, asked = ledger.state.open, ledger.state
    if opened is None or not attempts.ends_with_answer(opened):
        return None
    text = reply_text(opened.closed(), ledger.dialect)
    if answer is None or (yield from answer.fits(text, is_new=False)):
        return Reply(entries=(), text=text, finish_reason=opened.iterations[-1].finish_reason)
    told, ledger.state = ledger.state, asked
    limits.check_budget(ledger, voice.model)
    ledger.state = told
    return None


def goes_on(ledger: Ledger, voice: Voice, reply: Reply) -> Flow[LastReply | None]:
    """Look for new messages behind the last reply of a turn that steers, and begin a turn of them. None: the
    call is over. At a limit of the turn or of the conversation the messages wait."""
    yield from ledger.tick()
    if _is_spent(ledger, voice) or not (yield from ledger.take_in()):
        return None
    ids = ledger.event_ids
    ledger.begin_later()
    return LastReply(reply, ledger.return_point(), ids)


def with_type(ledger: Ledger, words: str) -> None:
    """Put the description of the answer's type into the inbox, if a cut took it out of this call's turns.

    Right before the request: else a turn that ends before it would leave the description to a later one.
    """
    entry = ledger.dialect.entries([event(words, topic=inbox.FORMAT)])[0]
    for turn in reversed(closed_turns(ledger.state)):
        if entry in turn.entries:
            return
        if SAME_CALL not in turn.record.facts:
            break
    ledger.state = attempts.asked_in_words(ledger.state, words, ledger.dialect, turn=ledger.own)


def _is_spent(ledger: Ledger, voice: Voice) -> bool:
    """True if a turn that is over must not ask for more: its time or a limit is used up."""
    return ledger.is_late or limits.reached(ledger) is not None or limits.is_over_budget(ledger, voice.model)


def _is_behind(cuts: Sequence[CutRow], known: Sequence[CutRow]) -> bool:
    return tuple(cuts[: len(known)]) == tuple(known)


def or_ended(ledger: Ledger, asking: Flow[Reply], ended: LastReply) -> Flow[Reply]:
    """Ask once more. If the call fails before the provider has taken the new messages, the last reply is the
    result, and they wait for the next turn."""
    try:
        return (yield from asking)
    except TurnError as exc:
        # Of a stop the stored state has to tell: no process goes on unless a user asks.
        if ledger.state.open is not None or isinstance(exc, TurnStoppedError):
            raise
        failure = type(exc).__name__
    finally:
        ledger.has_ended = False
    events = (*ended.point.position.state.meta.events, *ledger.state.meta.events)
    before = {item.claimed("") for item in ended.point.position.state.inbox if item.topic == inbox.FORMAT}
    # A compactor's cut stays, unless it was undone: its summary may be paid for.
    cuts = ledger.state.meta.cuts
    stays = (
        one for one in reversed(ledger.tried.compacted) if _is_behind(cuts, one.position.state.meta.cuts)
    )
    ledger.go_back(next(stays, ended.point))
    waits = [item for item in ledger.state.inbox if item.topic != inbox.FORMAT or item.claimed("") in before]
    # A refusal has taken out all that waited, also messages that were appended during the request.
    there = Counter(item.claimed("") for item in waits)
    for item in ledger.dropped:
        there[item.claimed("")] -= 1
        if there[item.claimed("")] < 0 and item.topic != inbox.FORMAT:
            # A newer event replaces an older one of its topic.
            waits = [one for one in waits if not one.topic or one.topic != item.topic]
            waits.append(item)
    events = (*events, *[item.event for item in waits if item.event])
    ledger.state = replace(ledger.state, inbox=tuple(waits))
    ledger.event_ids = ended.event_ids
    meta = msgspec.structs.replace(ledger.state.meta, events=tuple(dict.fromkeys(events))[-IDS_KEPT:])
    ledger.state = inbox.released(replace(ledger.state, meta=meta))
    ledger.warn(
        "left_waiting",
        f"the model call for new messages failed ({failure}): the turn ended before them, and they wait "
        "for the next turn",
    )
    return ended.reply
