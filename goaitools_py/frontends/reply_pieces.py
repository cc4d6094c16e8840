"""A reply as a sequence of pieces: text, reasoning, calls and results, in the order of their making.

Owns: the pieces, how events and histories become pieces, the ids of a turn's
messages, and how a long reply becomes several messages. So a live stream and a history that is read later say
the same, under the same ids. Must never know: a front end's protocol.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple, cast

from ..base.values import Value
from ..history.turns import HistoryIteration, HistoryTurn
from ..types.answers import INSIDE, PendingCall
from ..types.events import (
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolPending,
)
from ..types.messages import CallKind, Message, Text, ToolCall

__all__ = [
    "Called",
    "Piece",
    "Reasoned",
    "Returned",
    "Said",
    "Step",
    "TurnIds",
    "Waits",
    "asked_in",
    "is_shown_id",
    "parts_of",
    "pieces_of",
    "pieces_of_event",
    "pieces_of_reply",
    "pieces_since",
    "said_in",
    "split_reply",
    "turn_ids",
]


class Piece(Value, frozen=True):
    """Base of all pieces of a reply."""


class Step(Piece, frozen=True):
    """The model is asked. The following pieces belong to its next reply."""


class Reasoned(Piece, frozen=True):
    """Reasoning of the model, or a part of it."""

    _unshown = frozenset({"text"})
    text: str


class Said(Piece, frozen=True):
    """Visible text, or a part of it."""

    _unshown = frozenset({"text"})
    text: str


class Called(Piece, frozen=True):
    """The model calls a tool. For a tool that is a chat, also each call of this chat that waits."""

    call: ToolCall


class Returned(Piece, frozen=True):
    """A call has its result: the text that the model reads, and the flag of `ToolResult`."""

    _unshown = frozenset({"output"})
    call_id: str
    flag: str
    output: str


class Waits(Piece, frozen=True):
    """A call waits for an answer. `reason`: as in `PendingCall`."""

    call_id: str
    reason: str


def pieces_of_event(event: Event) -> tuple[Piece, ...]:
    """Give the pieces that an event of a running turn adds to the reply."""
    match event:
        case TextDelta():
            return (Said(event.text),)
        case ReasoningDelta():
            return (Reasoned(event.text),)
        case ModelRequested():
            return (Step(),)
        case ModelReplied():
            return tuple(Called(call) for call in event.tool_calls)
        case ToolFinished():
            return (Returned(event.call_id, event.flag, event.output),)
        case ToolPending():
            waits = Waits(event.call_id, event.reason)
            if INSIDE not in event.call_id:
                return (waits,)
            kind = cast(CallKind, event.kind)
            call = ToolCall(id=event.call_id, name=event.name, arguments=event.arguments, kind=kind)
            return Called(call), waits
    return ()


def pieces_of(turn: HistoryTurn, pending: Sequence[PendingCall] = ()) -> tuple[Piece, ...]:
    """Give the pieces of a stored reply.

    Args:
        turn: The turn. An unfinished one, too.
        pending: The calls that wait for an answer. The history of an unfinished turn has placeholders for
            their results; a `Waits` replaces each of them. Calls of another chat that wait inside of a call
            are not in this history: a `Called` for each stands before its `Waits`.
    """
    reasons = {call.id: call.reason for call in pending}
    inside: dict[str, list[Piece]] = {}
    for call in pending:
        outer, is_inside, _ = call.id.partition(INSIDE)
        if is_inside:
            made = ToolCall(id=call.id, name=call.name, arguments=call.arguments, kind=call.kind)
            inside.setdefault(outer, []).extend([Called(made), Waits(call.id, call.reason)])
    flags = turn.facts.get("flags", {})
    found: list[Piece] = []

    def results(messages: Sequence[Message]) -> None:
        for message in messages:
            if message.role == "tool" and message.tool_call_id is not None:
                id = message.tool_call_id
                if id in reasons:
                    found.append(Waits(id, reasons[id]))
                elif id in inside:
                    found.extend(inside[id])
                else:
                    found.append(Returned(id, flags.get(id, "ok"), message.text))

    for iteration in turn.iterations:
        sent, reply, unread = parts_of(iteration)
        results(sent)
        if reply:
            found.extend(_pieces_of_reply(reply))
        results(unread)
    if partial := turn.facts.get("interrupted"):
        found += (Step(), Said(partial))
    return tuple(found)


def pieces_of_reply(turns: Sequence[HistoryTurn], pending: Sequence[PendingCall] = ()) -> tuple[Piece, ...]:
    """Give the pieces of one of the `replies`. `pending`: as in `pieces_of`."""
    return tuple(piece for turn in turns for piece in pieces_of(turn, pending))


def parts_of(
    iteration: HistoryIteration,
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Divide an iteration into the messages that were sent, the reply, and results that no model has read."""
    messages = iteration.messages
    end = len(messages)
    while iteration.is_reply and end and messages[end - 1].role == "tool":
        end -= 1
    if end and messages[end - 1].role != "assistant":  # the reply is empty
        end = len(messages)
    begin = end
    while begin and messages[begin - 1].role == "assistant":
        begin -= 1
    return messages[:begin], messages[begin:end], messages[end:]


def _pieces_of_reply(reply: Sequence[Message]) -> list[Piece]:
    found: list[Piece] = [Step()]
    if reasoning := "".join(message.reasoning for message in reply):
        found.append(Reasoned(reasoning))
    if said := "".join(message.said for message in reply):
        found.append(Said(said))
    found.extend(Called(call) for message in reply for call in message.tool_calls)
    return found


def pieces_since(pieces: Sequence[Piece], call_ids: Collection[str]) -> tuple[Piece, ...]:
    """Leave out the pieces that a client saw before it answered calls: all up to the step of these calls.

    The results of that step stay. All pieces stay if no piece is a call with one of these ids.
    """
    made = [at for at, one in enumerate(pieces) if isinstance(one, Called) and one.call.id in call_ids]
    return tuple(pieces[made[-1] + 1 :]) if made else tuple(pieces)


class TurnIds(NamedTuple):
    """The ids of a turn's messages. `said`: one for each message that is not the reply."""

    reply: str
    said: Iterator[str]


def turn_ids(conversation_id: str, turn: HistoryTurn) -> TurnIds:
    """Name the messages of a turn. The reply has the turn's `turn_ref`, see `Event`."""
    ref = f"{conversation_id}-{turn.number}"
    return TurnIds(ref, _ids(ref, said_in(turn)))


def _ids(ref: str, messages: Sequence[Message]) -> Iterator[str]:
    # A greeting does not count among the messages of the user: an edit names these by their number.
    numbers = {"user": 0, "assistant": 0}
    for message in messages:
        number = numbers[message.role] = numbers[message.role] + 1
        yield f"{ref}{'u' if message.role == 'user' else 'g'}{number if number > 1 else ''}"


_SHOWN: Final = re.compile(r"-(?:\d{1,12}u\d{0,6}|waiting-\d{1,6})$")


def is_shown_id(id: str) -> bool:
    """True for an id that histories give to messages of the user; see `turn_ids`."""
    return _SHOWN.search(id) is not None


def said_in(turn: HistoryTurn) -> list[Message]:
    """Give the messages of a turn that people see, without its reply: messages of the user, and greetings of
    the application."""
    sent = [message for iteration in turn.iterations for message in parts_of(iteration)[0]]
    return [one for one in sent if one.role in ("user", "assistant") and not one.is_event and _is_shown(one)]


def asked_in(turn: HistoryTurn) -> tuple[Message, ...]:
    """Give the messages that stand before the first reply of a turn."""
    return parts_of(turn.iterations[0])[0] if turn.iterations else ()


def _is_shown(message: Message) -> bool:
    return bool(message.said) or any(not isinstance(part, Text) for part in message.parts)


# ------------------------------------------------------------------ a long reply in several messages

_FENCE: Final = re.compile(r" {0,3}(?:(`{3,})[ \t]*([^`\n]*)|(~{3,})[ \t]*([^\n]*))\n?")
_WHOLE: Final = r"!?\[[^\]\n]*\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)|<?https?://[^\s<>]+>?|`[^`\n]+`"
"""Pieces that are never divided: a link, an address, a word of code."""
_WORD: Final = re.compile(rf"(?:{_WHOLE}|\S)+(?:[ \t]+(?:`{{3}}|~{{3}})\S*)*\s*|\s+")
"""A word with the spaces behind it. A fence in a line of text stays behind its word: at the beginning of a
message it would open a block of code."""
_OF_WORD: Final = re.compile(rf"{_WHOLE}|.", re.DOTALL)
_LEAST: Final = 100


def split_reply(text: str, limit: int) -> Iterator[str]:
    """Divide a reply into messages for a chat platform, at the ends of lines, else of words.

    A block of code that is divided is closed in one message, and opened again in the next. A link is not
    divided, and neither is a character of several code points, such as a flag; a link that is longer than a
    message is.

    Args:
        text: The reply, as Markdown.
        limit: The most units of UTF-16 in a message, from 100 on: 2,000 for Discord, 4,000 for Slack, 4,096
            for Telegram. No platform counts more units in a text.

    Raises:
        ValueError: `limit` is below 100.
    """
    if limit < _LEAST:
        raise ValueError(f"limit must be at least {_LEAST}, got {limit}")
    message: list[str] = []
    opened = end = ""  # the lines around the block of code, such as ```py and ```
    used = 0

    def take(piece: str) -> None:
        nonlocal used
        message.append(piece)
        used += _units(piece)

    def done() -> str:
        nonlocal used
        told = "".join(message).rstrip("\n") + (f"\n{end}" if end else "")
        message.clear()
        used = 0
        if opened:
            take(opened)
        return told

    for line in text.splitlines(keepends=True):
        fence = _FENCE.fullmatch(line)
        if fence is not None and not end:  # a block of code begins
            mark, words = fence[1] or fence[3], (fence[2] or fence[4] or "").split()
            first = f"{mark[: _LEAST // 4]}{words[0][:20] if words else ''}\n"
            if used and used + _units(first) + len(mark) + 20 > limit:
                yield done()
            opened, end = first, mark[: _LEAST // 4]
            take(line if _units(line) <= limit // 4 else first)
            continue
        if end and line.strip().startswith(end) and not line.strip().strip(end[0]):  # and here it ends
            take(f"{end}\n")
            opened = end = ""
            continue
        edge = len(end) + 1 if end else 0
        room = limit - _units(opened) - edge
        for piece in [line] if _units(line.rstrip("\n")) <= room else _divided(line, room):
            if used + _units(piece.rstrip("\n")) + edge > limit:
                yield done()
            take(piece)
    if "".join(message).strip():
        yield done()


def _divided(line: str, room: int) -> Iterator[str]:
    """Divide a line into words, and words that are too long into characters."""
    for word in _WORD.findall(line):
        if _units(word) <= room:
            yield word
            continue
        piece = ""
        for one in _OF_WORD.findall(word):
            for part in (one,) if _units(one) <= room else one:
                if piece and not _belongs(piece, part[0]):
                    yield piece
                    piece = ""
                piece += part
        yield piece


def _units(text: str) -> int:
    """The length in units of UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _belongs(before: str, after: str) -> bool:
    """True if a character is shown as one with the text before it (Unicode's rules for graphemes, UAX 29)."""
    import unicodedata  # not at the top: only a word that is longer than a message needs it

    last, code = before[-1], ord(after)
    if unicodedata.category(after) in ("Mn", "Mc", "Me") or after in "\u200c\u200d\u0e33\u0eb3":
        return True
    if last == "\u200d" or 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F:
        return True  # the rest of a family, the tone of a skin, the rest of a flag of a region
    if unicodedata.combining(last) == 9 or 0x1160 <= code <= 0x11FF:
        return True  # a virama joins two letters; letters of a Korean syllable
    if not 0x1F1E6 <= code <= 0x1F1FF:
        return False
    letters = len(before) - len(before.rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
    return letters % 2 == 1  # two such letters are a flag
