"""Reads a stored conversation for clients: its newest turn, and the values that front ends take.

Owns: these readings of a snapshot, which turn an id of a client means, and the names in the metadata that
remember a stop. Must never know: HTTP, or how a turn is driven.

The metadata name the number of the stopped turn, and how many messages of the user it had then. A message
that comes later is not stopped, also if it has joined the same turn: the model had accepted nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ..frontends import Called, Piece, Returned, Said, Shown, Step, Waits, pieces_of, pieces_since
from ..frontends.reply_pieces import asked_in, is_shown_id, pieces_of_reply
from ..history.turns import History, HistoryTurn, replies
from ..open_turn.turn_ids import TURN_IDS_FACT
from ..state.records import digest8
from ..types.answers import PendingCall
from ..types.errors import TurnStoppedError
from ..types.events import TurnCompleted, TurnStarted
from ..types.messages import Message
from ..types.result import ChatResult
from .identity import NAME
from .runs import Run
from .serve_limits import MAX_DIGITS

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationSnapshot
    from ..chat.kept.summaries import Summaries

__all__ = [
    "GOES_ON",
    "SYNTHETIC",
    "Left",
    "MessageTurn",
    "TurnStatus",
    "behind_calls",
    "call_ids",
    "id_again",
    "ids_since",
    "is_marked",
    "left_by",
    "mark_again",
    "mark_of",
    "named_again",
    "newest_ref",
    "not_in_doubt",
    "number_named",
    "reply_of",
    "rows_of",
    "shown_id",
    "shown_of",
    "shown_pending",
    "tell_stopped",
    "tell_stored",
    "unfinished",
    "went_on_with",
    "with_message",
]

_STOPPED: Final = "goaitools.stopped"
"""The name in a conversation's metadata of the turn that a user has stopped: no process resumes it."""

_SAID: Final = "goaitools.stopped_said"
"""The name of the number of messages that the stopped turn had."""

_AGAIN: Final = "goaitools.again"
"""The name of the newest requests for a new reply that went on with an unfinished turn: of each the digest of
its id, and the number of the turn."""

_MOST_AGAIN: Final = 8

GOES_ON: Final[Mapping[str, str | None]] = {_STOPPED: None, _SAID: None}
"""The metadata of a turn that is not stopped any more."""

Left = Literal["unfinished", "messages", "stopped", ""]
"""A turn that `resume` finishes; messages without a turn, which `start` answers; a stopped turn; nothing."""

TurnStatus = Literal["running", "stopped", "waiting", "none"]
"""The status of the newest turn, for clients."""


def left_by(snapshot: ConversationSnapshot | None) -> Left:
    """Tell what to do next. A turn that failed or waits for answers does not count: its client decides."""
    if snapshot is None:
        return ""
    state, said = snapshot.info.state, _said(snapshot)
    if is_marked(snapshot):
        noted = snapshot.info.metadata.get(_SAID, "")
        most = int(noted) if noted.isdecimal() and len(noted) <= MAX_DIGITS else said.in_all
        if said.in_all <= most or state.status == "awaiting_tools":
            return "stopped"
        return "messages" if said.in_turn is not None and said.in_turn <= most else "unfinished"
    if state.failure is not None and state.failure[0] == TurnStoppedError.__name__:
        return "stopped"
    if state.status == "in_progress":
        return "unfinished"
    return "messages" if state.status == "complete" and said.behind else ""


def is_marked(snapshot: ConversationSnapshot) -> bool:
    """True if the metadata name the unfinished turn as stopped. Only the number counts: the same turn in a
    copy of the conversation has another id before it."""
    if snapshot.info.state.status == "complete":
        return False
    _, _, number = snapshot.info.metadata.get(_STOPPED, "").rpartition("-")
    return number == str(_number(snapshot))


def mark_of(snapshot: ConversationSnapshot) -> dict[str, str]:
    """The metadata that remember a stop of the unfinished turn, and how many messages it had then."""
    id = snapshot.info.state.conversation_id
    return {_STOPPED: f"{id}-{_number(snapshot)}", _SAID: str(_said(snapshot).in_all)}


def went_on_with(snapshot: ConversationSnapshot) -> dict[str, int]:
    """For the digest of a request's id the number of the unfinished turn that it went on with."""
    noted = snapshot.info.metadata.get(_AGAIN, "").split(",")
    pairs = [one.split(" ") for one in noted]
    return {
        pair[0]: int(pair[1])
        for pair in pairs
        if len(pair) == 2 and pair[1].isdecimal() and len(pair[1]) <= MAX_DIGITS
    }


def mark_again(snapshot: ConversationSnapshot, id: str) -> dict[str, str]:
    """The metadata that remember that a request goes on with the unfinished turn. `id`: its digest."""
    known = {one: number for one, number in went_on_with(snapshot).items() if one != id}
    known[id] = _number(snapshot)
    return {_AGAIN: ",".join(f"{id} {number}" for id, number in [*known.items()][-_MOST_AGAIN:])}


def _number(snapshot: ConversationSnapshot) -> int:
    """The number of the unfinished turn, which the history may not have yet."""
    return snapshot.info.state.turns_processed + 1


class _Said(NamedTuple):
    """How many messages of the user are in the unfinished turn (None: there is no turn yet), and wait behind
    it."""

    in_turn: int | None
    behind: int

    @property
    def in_all(self) -> int:
        return (self.in_turn or 0) + self.behind


def _said(snapshot: ConversationSnapshot) -> _Said:
    turns, waiting = snapshot.history.turns, _of_user(snapshot.history.waiting)
    is_open = bool(turns) and turns[-1].number == _number(snapshot)
    return _Said(_of_user(turns[-1].messages) if is_open else None, waiting)


def _of_user(messages: Sequence[Message]) -> int:
    return sum(message.role == "user" and not message.is_event for message in messages)


SYNTHETIC: Final = ("not_run", "unknown", "cancelled")
"""Flags of results that no tool has given."""


def newest_ref(snapshot: ConversationSnapshot) -> str:
    """Give the `turn_ref` of the newest turn; "" if there is no turn."""
    turns = snapshot.history.turns
    return f"{snapshot.info.state.conversation_id}-{turns[-1].number}" if turns else ""


def reply_of(snapshot: ConversationSnapshot, turn: HistoryTurn) -> tuple[str, tuple[HistoryTurn, ...]]:
    """Give the id of the reply with this turn, and all turns of this reply."""
    reply = next(one for one in replies(snapshot.history.turns) if any(of is turn for of in one))
    return f"{snapshot.info.state.conversation_id}-{reply[0].number}", reply


def id_again(turn_id: str, ref: str) -> str:
    """The turn id of a message that is answered again."""
    return f"{turn_id[:200]}~{ref[-50:]}"


def shown_id(snapshot: ConversationSnapshot, turn: HistoryTurn, said: int = 0) -> str:
    """The id that is shown of a message before the first reply of a turn: of the newest, or of number `said`,
    from 1."""
    said = said or sum(message.role == "user" and not message.is_event for message in asked_in(turn))
    return f"{snapshot.info.state.conversation_id}-{turn.number}u{said if said > 1 else ''}"


class MessageTurn(NamedTuple):
    """A turn, and the turn id that its message has; "" if the message was named by an id that is shown."""

    turn: HistoryTurn
    id: str


def with_message(snapshot: ConversationSnapshot, id: str) -> MessageTurn | None:
    """Find the turn with the message of this id, also if its reply was written again since."""
    before, prefix, found = 0, snapshot.info.state.conversation_id, None
    for turn in snapshot.history.turns:
        ids = [id, *_ids_since(id, prefix, range(before + 1, turn.number))]
        before = turn.number
        known = turn.facts.get(TURN_IDS_FACT, ())
        of_message = next((one for one in ids if digest8(one) in known), None)
        if of_message is not None:
            found = MessageTurn(turn, of_message)
        elif is_shown_id(id) and _shown_number(snapshot, id) == turn.number:
            found = MessageTurn(turn, "")
    return found


_MOST_GONE: Final = 32
"""How many of the turns that went before a turn may have had its message: the oldest, and the newest."""


def _ids_since(id: str, prefix: str, gone: range) -> list[str]:
    """The ids that a message may have, if its reply in one of these turns was written again."""
    oldest, newest = gone[:_MOST_GONE], gone[_MOST_GONE:][-_MOST_GONE:]
    return [id_again(id, f"{prefix}-{number}") for number in (*oldest, *newest)]


def ids_since(snapshot: ConversationSnapshot, id: str, *, is_found: bool) -> list[str]:
    """The ids that a message may have now, if its reply was written again since it had this one.

    `is_found`: only the id of a message in a turn, or perhaps of one that waits.
    """
    found = with_message(snapshot, id)
    if found is not None:
        return [found.id] if found.id not in ("", id) else []
    if is_found and not snapshot.history.waiting:
        return []
    turns, newest = snapshot.history.turns, _number(snapshot)
    before = turns[-1].number if turns else 0  # else it waits: its turn has failed
    return _ids_since(id, snapshot.info.state.conversation_id, range(before + 1, newest))[-_MOST_TRIED:]


_MOST_TRIED: Final = 8


def number_named(snapshot: ConversationSnapshot, id: str) -> int:
    """The number of the turn with a message of this id; 0 if there is none."""
    found = with_message(snapshot, id)
    return _shown_number(snapshot, id) if found is None else found.turn.number


def _shown_number(snapshot: ConversationSnapshot, id: str) -> int:
    """The number of the turn in an id that is shown; 0 for another id."""
    prefix = re.escape(snapshot.info.state.conversation_id)
    found = re.fullmatch(rf"{prefix}-(\d{{1,12}})(?:u\d*|\.\d+)?", id)
    return 0 if found is None else int(found[1])


def named_again(snapshot: ConversationSnapshot) -> dict[str, str]:
    """The `turn_ref` of the unfinished turn, and the id of its reply, if an earlier turn gave that the id."""
    turns = snapshot.history.turns
    if not turns or turns[-1].number != _number(snapshot):
        return {}
    own, ref = newest_ref(snapshot), reply_of(snapshot, turns[-1])[0]
    return {own: ref} if own != ref else {}


def call_ids(pieces: Sequence[Piece]) -> set[str]:
    """Give the ids of the calls among pieces."""
    return {piece.call.id for piece in pieces if isinstance(piece, Called)}


def unfinished(snapshot: ConversationSnapshot, given: Collection[str]) -> tuple[Piece, ...]:
    """Give the pieces of an unfinished turn that stay when it goes on.

    Left out: text that broke off, because the model writes it anew, and placeholders for the results of the
    newest calls. The run tells the real results when they come.
    """
    turns = snapshot.history.turns
    if not turns or turns[-1].number != _number(snapshot):
        return ()  # messages wait, and the turn before is over
    turn = turns[-1]
    found = list(pieces_of_reply(reply_of(snapshot, turn)[1], snapshot.pending))
    if turn.facts.get("interrupted"):
        del found[-2:]
    while found and isinstance(found[-1], Step):
        found.pop()
    last = behind_calls(found)
    return tuple(
        piece
        for at, piece in enumerate(found)
        if not (isinstance(piece, Waits) and (piece.call_id in given or piece.reason == "in_doubt"))
        and not (at >= last and isinstance(piece, Returned) and piece.flag in SYNTHETIC)
    )


def shown_pending(snapshot: ConversationSnapshot) -> tuple[PendingCall, ...]:
    """Give the calls that a page shows as unfinished, without calls in doubt of a turn that was stopped."""
    return not_in_doubt(snapshot.pending) if left_by(snapshot) == "stopped" else snapshot.pending


def not_in_doubt(pending: Sequence[PendingCall]) -> tuple[PendingCall, ...]:
    """Leave out the calls with an outcome in doubt: no client can answer them."""
    return tuple(call for call in pending if call.reason != "in_doubt")


def behind_calls(pieces: Sequence[Piece]) -> int:
    """Where the results of the newest calls begin."""
    return 1 + max((at for at, piece in enumerate(pieces) if isinstance(piece, (Called, Said))), default=-1)


def tell_stored(
    run: Run,
    snapshot: ConversationSnapshot,
    turn: HistoryTurn | None,
    answered: Collection[str],
    result: ChatResult | None = None,
) -> None:
    """Fill a run with the reply that a stored turn is in: the turn of the run's `turn_ref`, else `turn`.

    Args:
        run: A run without events.
        snapshot: The stored conversation with the turn.
        turn: The turn; None if the history may lack it. Then the text of the result is the reply.
        answered: The ids of the calls that the client has answered; it holds the pieces before them.
        result: The result of the turn, if it is known.
    """
    id = snapshot.info.state.conversation_id
    turn = next((one for one in snapshot.history.turns if f"{id}-{one.number}" == run.turn_ref), turn)
    if turn is None:
        assert result is not None
        run.before, run.turn_ref = (Step(), Said(result.text)), ""
        run.tell(TurnCompleted(result=result, conversation_id=id))
        return
    ref, reply = reply_of(snapshot, turn)
    is_open = reply[-1].number == _number(snapshot)
    pieces = unfinished(snapshot, ()) if is_open else pieces_of_reply(reply, snapshot.pending)
    if result is None:
        text = "".join(piece.text for piece in pieces_of(turn) if isinstance(piece, Said))
        waits = snapshot.info.state.status == "awaiting_tools"
        status: Any = "awaiting_tools" if waits else "complete"
        result = ChatResult(
            text=text, state=b"", status=status, pending=snapshot.pending if waits else (), duplicate=True
        )
    run.before, run.since = pieces, pieces_since(pieces, answered) if answered else ()
    run.turn_ref = ref
    run.tell(TurnCompleted(result=result, conversation_id=id, turn_ref=ref))


def tell_stopped(run: Run, snapshot: ConversationSnapshot) -> None:
    """Fill a run with the newest reply, up to the point of its stop. The run has no events yet."""
    run.was_stopped = True
    if snapshot.history.turns:
        ref, reply = reply_of(snapshot, snapshot.history.turns[-1])
        run.before = pieces_of_reply(reply, shown_pending(snapshot))
        run.tell(TurnStarted(conversation_id=snapshot.info.state.conversation_id, turn_ref=ref))


def shown_of(snapshot: ConversationSnapshot | None) -> Shown:
    """Give a conversation as a front end shows it; an empty history if it is not stored."""
    if snapshot is None:
        return Shown(history=History(turns=()), conversation_id="")
    id = snapshot.info.state.conversation_id
    return Shown(history=snapshot.history, conversation_id=id, pending=shown_pending(snapshot))


def rows_of(page: Summaries, prefix: str) -> list[dict[str, Any]]:
    """Give the rows of a list of conversations, by the names that a client may use.

    The client has sent the cursor: a store that trusts it may list rows of another user. These are left
    out.
    """
    return [
        {
            "name": name,
            "updated_at": row.updated_at.isoformat(),
            "title": row.title,
            "status": row.status,
            "turns": row.turns,
            "cost_usd": None if row.cost_usd is None else float(row.cost_usd),
        }
        for row in page.rows
        if row.key.startswith(prefix) and NAME.fullmatch(name := row.key.removeprefix(prefix))
    ]
