"""Short lines of a chat: its header, tool calls with their arguments, stored entries, conversations.

Owns: these lines, how they fit a width, and which result belongs to which call. Must never know: a screen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ..base import rawjson
from ..base.escaping import visible
from .text_output import WIDTH, counted, printable

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationInfo
    from ..history.turns import History
    from ..stores import StoredKey
    from ..types.answers import PendingCall
    from ..types.events import ToolFinished, ToolStarted
    from ..types.messages import Message
    from ..types.result import ChatResult

__all__ = [
    "CallShown",
    "Entry",
    "HeaderFacts",
    "TextShown",
    "call_line",
    "clipped",
    "dollars",
    "gauge",
    "header_facts",
    "header_lines",
    "key_line",
    "key_lines",
    "newest_first",
    "outcome",
    "pretty",
    "result_line",
    "short",
    "shortened",
    "transcript",
    "waiting_lines",
    "waits_words",
]

_WORDS: Final = {
    "ok": "done",
    "error": "failed",
}


def call_line(event: ToolStarted) -> str:
    """A call that begins: "tool get_score {…}"."""
    return _line(f"tool {event.name} {visible(event.arguments)}")


def result_line(event: ToolFinished) -> str:
    """A call that has ended: "tool get_score: 30"."""
    state = f" ({outcome(event.flag)})" if event.flag != "ok" else ""
    return _line(f"tool {event.name}{state}: {event.output}")


def reply_line(result: ChatResult, seconds: float) -> str:
    """Sum up a reply: seconds, iterations, and tokens in and out."""
    usage = result.usage
    count = counted(result.iterations, "iteration")
    return f"{seconds:.1f} s, {count}, {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def outcome(flag: str) -> str:
    """The flag of a tool's result in words."""
    return _WORDS.get(flag, flag.replace("_", " "))


def waiting_lines(waiting: Sequence[PendingCall]) -> Iterator[str]:
    """The calls that wait, and the commands that answer them."""
    from .chat_input import question_lines
    from .state_report import pending_lines

    yield f"This conversation waits for {counted(len(waiting), 'answer')}:"
    for call in waiting:
        yield from pending_lines([call])
        asked = list(question_lines(call))
        yield from asked or [f"  {pretty(call.arguments)}"]
    yield "/approve lets them run; /deny WHY denies them, and the model reads why."
    if any(call.reason == "external" for call in waiting):
        yield "/answer TEXT gives the first result that is waited for; a form takes /answer NAME=VALUE."


def key_line(stored: StoredKey) -> str:
    """A conversation of a store: its name, and the facts of the store's plain columns."""
    facts = stored.facts
    title = f": {facts.title}" if facts is not None and facts.title else ""
    turns = f", {counted(facts.turns, 'turn')}" if facts is not None and facts.turns is not None else ""
    open_ = f", {facts.status.replace('_', ' ')}" if facts and facts.status not in ("", "complete") else ""
    return f"{stored.key}{title}{turns}{open_}, {stored.updated_at:%Y-%m-%d %H:%M}"


def key_lines(found: Sequence[StoredKey], at_hand: str) -> Iterator[str]:
    """The conversations, the newest first; the current one has a star."""
    for stored in newest_first(found):
        yield _line(f"{'*' if stored.key == at_hand else ' '} {key_line(stored)}")


def newest_first(found: Sequence[StoredKey]) -> list[StoredKey]:
    """The conversations in the order of a list."""
    return sorted(found, key=lambda stored: (stored.updated_at, stored.key), reverse=True)


def _line(text: str) -> str:
    return shortened(" ".join(printable(text).split("\n")), WIDTH)


def pretty(arguments: str) -> str:
    """The arguments of a call for people: "place: Theatre, code: 1815" of a JSON object, else the text.

    Numbers, repeated names and the order stay as in the text.
    """
    try:
        data = arguments.encode()
        found = rawjson.spans(data)
    except ValueError:  # no JSON, nested too deep, or with half a character
        return visible(arguments)
    if not found or found[0].key is None:
        return visible(arguments)
    return ", ".join(f"{_bare(span.key or '')}: {_value(data[span.start : span.end])}" for span in found)


def _value(data: bytes) -> str:
    text = rawjson.string(data)
    return visible(data.decode()) if text is None else _bare(text)


def _bare(text: str) -> str:
    """A string without its quotation marks, if it cannot be taken for a number or for several values."""
    is_plain = _PLAIN.fullmatch(text) and text not in _LITERALS and visible(text) == text
    return text if is_plain else visible(json.dumps(text, ensure_ascii=False))


_PLAIN: Final = re.compile(r"[^\W\d](?:[\w .'/@!?-]*[\w.!?])?")
_LITERALS: Final = frozenset({"true", "false", "null"})


_SEPARATOR: Final = " │ "
_GAUGE_WIDTH: Final = 8
_MAX_NAME: Final = 28


class HeaderFacts(NamedTuple):
    """The facts of one conversation.

    Attributes:
        name: Its key, and its title if it has one.
        turns: How many turns it has had.
        tokens_in: Input tokens of its life.
        tokens_out: Output tokens of its life.
        context: Tokens of the next request.
        fraction: The part of the model's context window in use; None if the window is not known.
        cost: US dollars; None if that is not known.
    """

    name: str
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    context: int = 0
    fraction: float | None = None
    cost: Decimal | None = None


def header_facts(key: str, info: ConversationInfo | None) -> HeaderFacts:
    """The facts of the conversation under a key. `info`: None if nothing is stored."""
    if info is None:
        return HeaderFacts(key)
    state = info.state
    return HeaderFacts(
        name=f"{key}: {info.title}" if info.title else key,
        turns=state.turns_processed,
        tokens_in=state.total_usage.input_tokens,
        tokens_out=state.total_usage.output_tokens,
        context=state.tokens,
        fraction=state.context_fraction,
        cost=state.total_cost_usd,
    )


def header_lines(facts: HeaderFacts, status: str, width: int) -> list[str]:
    """The header in lines of at most `width` characters. A narrow terminal gets more lines."""
    lines = [""]
    for piece in _pieces(facts, status):
        piece = shortened(piece, width)
        longer = f"{lines[-1]}{_SEPARATOR}{piece}" if lines[-1] else piece
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _pieces(facts: HeaderFacts, status: str) -> Iterator[str]:
    yield shortened(" ".join(printable(facts.name).split()), _MAX_NAME)
    yield counted(facts.turns, "turn")
    yield f"{short(facts.tokens_in)} in {short(facts.tokens_out)} out"
    yield gauge(facts.fraction) if facts.fraction is not None else f"context {short(facts.context)}"
    if facts.cost is not None:
        yield dollars(facts.cost)
    yield status


def gauge(fraction: float, width: int = _GAUGE_WIDTH) -> str:
    """A bar with the part that is used, and the number: "██░░░░░░ 23%"."""
    full = min(width, max(0, round(fraction * width)))
    return f"{'█' * full}{'░' * (width - full)} {fraction:.0%}"


def dollars(cost: Decimal) -> str:
    """An amount with as many digits as it needs: "$1.23", "$0.0045"."""
    return f"${cost:,.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


def short(number: int) -> str:
    """A number in at most five characters: 950, 12.3k, 1.2M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.{1 if number < 100 * size else 0}f}{letter}"
    return str(number)


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


MAX_TURNS: Final = 50
"""A screen begins with the newest turns. `/history` shows all."""


class TextShown(NamedTuple):
    """A text: of the user, the model, an event or the system; or a "note" of this program."""

    who: Literal["user", "assistant", "event", "system", "note"]
    text: str


class CallShown(NamedTuple):
    """A tool call. `waits`: why it takes an answer, "" if it takes no answer; see `PendingCall.reason`."""

    id: str
    name: str
    arguments: str
    state: str
    output: str = ""
    waits: str = ""


Entry = TextShown | CallShown


def transcript(history: History, pending: Sequence[PendingCall]) -> Iterator[Entry]:
    """The entries of a conversation, the newest turns of a long one."""
    turns = history.turns[-MAX_TURNS:]
    if left := len(history.turns) - len(turns):
        yield TextShown("note", f"{counted(left, 'earlier turn')}: /history shows all.")
    messages = [message for turn in turns for message in turn.messages]
    results = {message.tool_call_id: message for message in messages if message.tool_call_id}
    waiting = {call.id: call for call in pending}
    for message in (*messages, *history.waiting):
        yield from _entries(message, results, waiting)


def _entries(
    message: Message, results: Mapping[str, Message], waiting: Mapping[str, PendingCall]
) -> Iterator[Entry]:
    if message.role != "tool" and (text := _text(message)):
        yield TextShown("event" if message.is_event else message.role, text)
    for call in message.tool_calls:
        result, wait = results.get(call.id), waiting.get(call.id)
        if wait is not None:
            yield CallShown(call.id, call.name, call.arguments, waits_words(wait.reason), waits=wait.reason)
        elif result is None:
            yield CallShown(call.id, call.name, call.arguments, "not run")
        else:
            yield CallShown(call.id, call.name, call.arguments, outcome("ok"), _text(result))


def waits_words(reason: str) -> str:
    """Why a call takes an answer, in words."""
    return {
        "approval": "waits for your approval",
        "external": "waits for its result from outside",
        "in_doubt": "had started; its outcome is unknown",
    }.get(reason, reason)


def _text(message: Message) -> str:
    """The author's text; a file is a line."""
    from ..types.render import files_in

    names = ((part, f" {part.name}" if part.name else "") for part in files_in(message))
    lines = (f"[{type(part).__name__.lower()}{name}, {part.media_type}]" for part, name in names)
    return "\n".join(filter(None, (message.said, *lines)))


def clipped(text: str, lines: int) -> str:
    """The first lines of a text, and how many are left."""
    every = printable(text).split("\n")
    left = len(every) - lines
    return "\n".join(every[:lines]) + (f"\n… {counted(left, 'line')} more" if left > 0 else "")
