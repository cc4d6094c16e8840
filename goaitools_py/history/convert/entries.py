"""Entries of one provider API as entries of another.

Owns: which message becomes which entries, the ids of calls, and the losses. Must never know: a turn's record,
or a state.

The dialects read and write the messages of a user, the system or a tool. `TranslatesReplies` takes a
model's reply apart. The same history always becomes the same entries, and each turn depends only on the turns
before it. So two states with a common beginning still have it after the conversion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from ...backends.base import Dialect
from ...backends.protocols import TranslatesReplies, failed_calls, lacks
from ...backends.read_entries import read_entries
from ...backends.wire.answer import clean_name
from ...backends.wire.reply_pieces import Called, LossKind, Lost, Piece, reply_text
from ...backends.wire.request import placeholder
from ...base.values import Value, replace
from ...state.codec import BlobLimits, check_limit
from ...state.letters import ASSISTANT, TOOL, letter_of
from ...state.records import MAX_OPEN_CALLS
from ...types.errors import StateProviderError, StateTooLargeError
from ...types.messages import CallKind, Image, Message, Part, ResultFlag, Text, ToolCall, ToolResult

__all__ = ["Books", "Loss", "LossKind", "Moved", "Translator", "summary"]

_JOIN: Final = b",\n"
_EMPTY: Final = "[empty message]"
_UNREAD: Final = "[a part that this provider cannot be shown]"
_NOT_TAKEN: Final = "this provider takes none of its kind"
_CALL_VALUES: Final = 10
"""The fewest JSON values of a call with its result, in Anthropic's form. On other APIs a result is an entry.
So each conversation within its limits is converted. A state from another program may have a million calls of
one value, and each of them takes 50 µs."""


class Moved(Value, frozen=True, kw_only=True):
    """Entries of the other provider API, one letter for each, and where text was put into the reply.

    `shifts`: for each insertion the place in the reply's own text, and its length.
    `failed`: the ids of calls with a result that reports an error.
    """

    _unshown = frozenset({"entries"})

    entries: tuple[bytes, ...] = ()
    letters: str = ""
    shifts: tuple[tuple[int, int], ...] = ()
    failed: frozenset[str] = frozenset()


class Translator:
    """Converts the entries of one conversation to another provider API, in order.

    Args:
        source: Reads the entries.
        target: Writes the new entries.
        limits: How large the state may be. A call with its result counts as ten JSON values.

    Attributes:
        books: Where losses are counted.

    Raises:
        StateProviderError: One of the dialects has no `TranslatesReplies`.

    Its methods raise `StateTooLargeError` for more calls or results than the limits allow, and for a reply
    with more than any reply has that this package wrote.
    """

    def __init__(self, source: Dialect, target: Dialect, limits: BlobLimits) -> None:
        if not (isinstance(source, TranslatesReplies) and isinstance(target, TranslatesReplies)):
            missing = lacks(source, TranslatesReplies) or lacks(target, TranslatesReplies)
            raise StateProviderError(
                f"the state is of {source.wire!r} and cannot be converted to {target.wire!r}: {missing}",
                expected=target.wire,
                found=source.wire,
            )
        self.source = source
        self.target = target
        self._from: TranslatesReplies = source
        self._to: TranslatesReplies = target
        self.books = Books()
        self._limits = limits
        self._calls_so_far = self._results_so_far = 0
        self._ids: dict[str, str] = {}
        self._taken: set[str] = set()
        self._called: dict[str, int] = {}
        self._kinds: dict[str, CallKind] = {}

    def takes(self, kind: LossKind) -> bool:
        """True if the other provider API has values of this kind."""
        return kind not in self._to.losses

    def id(self, old: str) -> str:
        """The id on the other provider API: the new id of the newest call with this old id."""
        if old not in self._ids:
            new = self._to.call_id(old)
            self._name(old, self._to.call_id(old, taken=True) if new in self._taken else new)
        return self._ids[old]

    def _name(self, old: str, new: str) -> None:
        self._ids[old] = new
        self._taken.add(new)

    def _call_again(self, old: str) -> None:
        """Give a call an id of its own if an earlier one has its id: only some servers take one id twice."""
        times = self._called[old] = self._called.get(old, 0) + 1
        if times > 1:
            self.books.lose("call_id")
            self._name(old, self._to.call_id(f"{old}/{times}", taken=True))

    def moved(self, entries: Sequence[bytes], letters: str, flags: Mapping[str, ResultFlag]) -> Moved:
        """The entries of one iteration: first the entries that were sent, then the reply.

        Args:
            entries: The entries.
            letters: Their role letters.
            flags: The flags of results, by the old ids.
        """
        found: list[bytes] = []
        new = ""
        shifts: list[tuple[int, int]] = []
        failed: set[str] = set()
        for is_reply, own in groupby(zip(letters, entries, strict=True), lambda one: one[0] == ASSISTANT):
            messages = read_entries(self.source, [entry for _, entry in own])
            for role, run in groupby(messages, lambda message: message.role):
                run_of = list(run)
                if role == "tool":
                    made, bad = self._results(run_of, flags)
                    failed |= bad
                    letter = TOOL
                elif role == "assistant":
                    made = []
                    for message in run_of:
                        entries_of, places = self._reply(message)
                        made += entries_of
                        shifts += places
                    letter = ASSISTANT
                else:
                    for message in run_of:
                        own_entries = self.said(message)
                        found += own_entries
                        new += (ASSISTANT if is_reply else letter_of(message)) * len(own_entries)
                    continue
                found += made
                new += (ASSISTANT if is_reply else letter) * len(made)
        return Moved(entries=tuple(found), letters=new, shifts=tuple(shifts), failed=frozenset(failed))

    def _counted(self, so_far: int, more: int) -> int:
        """The number of calls, or of results, with those of one reply."""
        if more > MAX_OPEN_CALLS:
            found = f"{more} calls or results, expected at most {MAX_OPEN_CALLS}"
            raise StateTooLargeError(f"a reply in the history has {found}; the state cannot be converted")
        check_limit("max_values", self._limits.max_values, _CALL_VALUES * (so_far + more))
        return so_far + more

    # ------------------------------------------------------------------------------------- a reply

    def _reply(self, message: Message) -> tuple[list[bytes], list[tuple[int, int]]]:
        pieces = list(self._from.reply_pieces((message.raw or b"").split(_JOIN)))
        calls: list[ToolCall] = []
        self._calls_so_far = self._counted(
            self._calls_so_far, sum(isinstance(piece, Called) for piece in pieces)
        )
        for piece in pieces:
            if isinstance(piece, Lost):
                self.books.lose(piece.kind, piece.count)
            elif isinstance(piece, Called):
                calls.append(self._call(piece.call))
        return self._written(pieces, calls)

    def _written(
        self, pieces: Sequence[Piece], calls: Sequence[ToolCall]
    ) -> tuple[list[bytes], list[tuple[int, int]]]:
        text, places = reply_text(pieces)
        if not text and not calls:
            self.books.lose("empty")
            return [], []
        entries, odd = self._to.write_reply(text, calls)
        self.books.lose("arguments", odd)
        if not entries:
            self.books.lose("empty")
        return entries, places

    def _call(self, call: ToolCall) -> ToolCall:
        name = clean_name(call.name, limit=self._to.longest_tool_name)
        if name is not None:
            self.books.lose("tool_name")
        kind: CallKind = call.kind
        if kind == "provider":
            self.books.lose("provider_call")
            kind = "function"
        elif kind == "custom" and not self.takes("custom_call"):
            self.books.lose("custom_call")
        self._call_again(call.id)
        id = self.id(call.id)
        self._kinds[id] = kind
        return replace(call, id=id, name=name or call.name, kind=kind)

    # ------------------------------------------------------------------------------------ results

    def _results(
        self, messages: Sequence[Message], flags: Mapping[str, ResultFlag]
    ) -> tuple[list[bytes], set[str]]:
        self._results_so_far = self._counted(self._results_so_far, len(messages))
        failed: set[str] = set()
        failed_of: dict[bytes, frozenset[str]] = {}  # an entry with the results of many calls is read once
        results: list[ToolResult] = []
        for message in messages:
            old = message.tool_call_id or ""
            if not old:
                self.books.lose("unread")  # no call is named that it could belong to
                continue
            flag = flags.get(old, "ok")
            id = self.id(old)
            raw = message.raw or b""
            if flag == "ok" and raw not in failed_of:
                failed_of[raw] = failed_calls(self.source, raw)
            if flag == "ok" and old in failed_of[raw]:
                flag = "error"
                failed.add(id)
            self.books.lose("unread", message.unread)
            self._lose_details(message.parts)
            kind = self._kinds.get(id, "function")
            results.append(ToolResult(call_id=id, parts=message.parts, flag=flag, kind=kind))
        entries = self.target.results(results)
        self._lose_media([result.parts for result in results], entries)
        return entries, failed

    # -------------------------------------------------------------------------- other messages

    def said(self, message: Message) -> list[bytes]:
        """The entries of a message of the user or the system."""
        self.books.lose("unread", message.unread)
        self._lose_details(message.parts)
        parts = tuple(message.parts)
        if not parts:
            self.books.lose("empty", not message.unread)
            parts = (Text(_UNREAD if message.unread else _EMPTY),)
        bare = replace(message, parts=parts, raw=None)
        with suppress(ValueError):
            return self.target.entries([bare])
        return self.target.entries([replace(bare, parts=tuple(self._taken_parts(bare)))])

    def _taken_parts(self, message: Message) -> Iterator[Part]:
        """The parts, with a line of text in place of each that the other provider API does not take."""
        is_blank = True
        for part in message.parts:
            if isinstance(part, Text):
                is_blank = is_blank and not part.text.strip()
                yield part
                continue
            is_blank = False
            taken: Part = Text(placeholder(part, _NOT_TAKEN))
            with suppress(ValueError):
                self.target.entries([Message(role="user", parts=(part,))])
                taken = part
            self.books.lose("media", taken is not part)
            yield taken
        if is_blank:
            self.books.lose("empty")
            yield Text(_EMPTY)

    def _lose_media(self, parts: Sequence[Sequence[Part]], entries: Sequence[bytes]) -> None:
        """Count the pictures, documents and sounds that the dialect has replaced by a line of text."""
        given = sum(not isinstance(part, Text) for own in parts for part in own)
        if given:
            messages = read_entries(self.target, entries)
            left = sum(not isinstance(part, Text) for message in messages for part in message.parts)
            self.books.lose("media", given - left)

    def _lose_details(self, parts: Sequence[Part]) -> None:
        if not self.takes("image_detail"):
            details = [part.detail for part in parts if isinstance(part, Image)]
            self.books.lose("image_detail", sum(detail not in (None, "auto") for detail in details))


class Loss(Value, frozen=True):
    """Something that did not go along to the other provider API.

    Attributes:
        turn: The number of the turn, as in `HistoryTurn.number`. 0: it belongs to no turn, or to a note of a
            compaction.
        kind: The kind of the lost value; the page on conversion explains each word.
        count: How many there were in this turn.
    """

    turn: int
    kind: LossKind
    count: int


class Books:
    """Counts losses. `turn` is the number of the turn that is being converted."""

    def __init__(self) -> None:
        self.turn = 0
        self._counts: Counter[tuple[int, LossKind]] = Counter()

    def lose(self, kind: LossKind, count: int = 1) -> None:
        """Count something of the present turn."""
        if count:
            self._counts[self.turn, kind] += count

    def losses(self) -> tuple[Loss, ...]:
        """Everything that was counted, by turn and kind."""
        return tuple(Loss(turn, kind, count) for (turn, kind), count in sorted(self._counts.items()))


def summary(losses: Iterable[Loss]) -> dict[str, int]:
    """The losses of a whole conversation: how many of each kind, sorted by kind."""
    found: Counter[str] = Counter()
    for loss in losses:
        found[loss.kind] += loss.count
    return dict(sorted(found.items()))
