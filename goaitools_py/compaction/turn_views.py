"""Turns as a strategy reads and rewrites them.

Owns: `TurnView` and `Piece`, and the rule of pinned messages: the rest of a turn that a strategy drops.
Must never know: how a turn is stored, or which turns should stay.

A turn is a row of *pieces*: a message of the user, a reply of the model, or all results of one exchange. A
strategy drops whole turns or replaces pieces. Pieces that it does not replace keep the provider's bytes.

A pinned piece leaves the history in an emergency only. If a strategy drops its turn, the turn stays in its
place with its pinned pieces alone. This *remnant* does not count as a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ..base.values import Value, replace
from ..state.letters import ASSISTANT, LETTER_OF, ROLE_OF, SYSTEM, TOOL, Mark, is_pinned
from ..types.messages import Message, Role

__all__ = [
    "COMPACTED",
    "Piece",
    "TurnView",
    "Words",
    "note_of",
    "placed",
    "with_pinned",
    "without_oldest_pins",
]

COMPACTED: Final = "compacted"
"""The kind of a note that the provider's own compaction wrote."""

_RUNS: Final = frozenset((ASSISTANT, TOOL))
"""A run of one of these letters is one piece: the items of a reply, the results of an exchange."""


class Words(Protocol):
    """Reads and writes the entries of one provider API, and estimates their tokens."""

    def read(self, entries: Sequence[bytes]) -> tuple[Message, ...]: ...

    def write(
        self, messages: Sequence[Message], turn: Sequence[Message], flags: Mapping[str, Any]
    ) -> tuple[bytes, ...]:
        """Encode the messages of one piece.

        `turn` has the messages of the whole turn, with the kinds of its calls. `flags` has the flag of each
        result that is not "ok".
        """
        ...

    def is_settled(self, entries: Sequence[bytes]) -> bool:
        """False for a reply with calls of hosted tools if their results are in another entry."""
        ...

    def tokens(self, entries: Sequence[bytes]) -> int: ...

    def is_boundary(self, entry: bytes) -> bool:
        """True if the entry holds a compaction of the provider, which replaces everything before it."""
        ...


class Piece(Value, frozen=True, kw_only=True):
    """A part of a turn that is kept or replaced as a whole.

    `iteration` is the number of its model call in the turn, counted from 1. `pinned`: True or False if the
    message is pinned or unpinned against the rule of its role. `speaker`: the speaker of a user's message.
    """

    _unshown = frozenset({"entries", "words", "speaker"})

    role: Role
    iteration: int
    entries: tuple[bytes, ...]
    letters: str
    words: Words
    pinned: bool | None = None
    speaker: str | None = None

    @property
    def is_pinned(self) -> bool:
        """True if the piece stays when a strategy drops its turn. It cannot be rewritten."""
        return is_pinned(self.letters[:1], self.pinned)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The piece as neutral messages; parsed when this is read."""
        return self.words.read(self.entries)

    @property
    def is_settled(self) -> bool:
        """False for a reply with calls of hosted tools if their results are in another entry."""
        return self.words.is_settled(self.entries)


class TurnView(Value, frozen=True, kw_only=True):
    """One closed turn of the history: the user's input, the model's replies, the tools' results.

    Attributes:
        position: The turn's index, 0 for the oldest; -1 for a turn that a strategy wrote.
        message_count: Neutral messages: one per role message, one per tool result.
        tokens: An estimate.
        entries: The stored bytes, one item for each element of the provider's history.
        roles: For each model call of the turn, a letter for each entry; see `state.closed_turns`.
        facts: The recorded facts of the turn.
        seconds: When the turn began, in seconds since the beginning of the conversation.
        id: A key to store the turn under. Equal turns with equal bytes have the same id in every process;
            other turns have another. "" for a turn that a strategy wrote or rewrote.
        marks: Speakers and pins, by the place of the message among `entries`.
    """

    _unshown = frozenset({"entries", "words", "facts", "marks"})

    position: int
    message_count: int
    tokens: int
    entries: tuple[bytes, ...]
    roles: tuple[str, ...]
    words: Words
    facts: Mapping[str, Any] = {}
    seconds: float = 0.0
    id: str = ""
    marks: Mapping[int, Mark] = {}

    @property
    def pinned_entries(self) -> tuple[bytes, ...]:
        """The stored entries of the pinned messages."""
        letters = "".join(self.roles)
        if not self.marks and SYSTEM not in letters:
            return ()
        marks = [self.marks.get(at, _NO_MARK).pinned for at in range(len(letters))]
        rows = zip(self.entries, letters, marks, strict=True)
        return tuple([entry for entry, letter, mark in rows if is_pinned(letter, mark)])

    @property
    def pinned_bytes(self) -> int:
        """The size of the stored entries of the pinned messages."""
        return sum(map(len, self.pinned_entries))

    @property
    def is_turn(self) -> bool:
        """False for a note, and for a turn of which only pinned messages are left."""
        return not self.note and len(self.pinned_entries) < len(self.entries)

    @property
    def entry_bytes(self) -> int:
        """The size of the stored entries."""
        return sum(map(len, self.entries))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn as neutral messages; parsed when this is read."""
        return self.words.read(self.entries)

    @property
    def is_sent(self) -> bool:
        """False if no request has the turn, because the provider would refuse it. It has 0 tokens."""
        return not self.facts.get("unsent")

    @property
    def note(self) -> str:
        """The kind of a note that a strategy wrote, such as "summary"; "" for a real turn."""
        return str(self.facts.get("note", ""))

    @property
    def has_boundary(self) -> bool:
        """True if the provider compacted everything before this turn."""
        return any(map(self.words.is_boundary, self.entries))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The turn, piece by piece."""
        pieces: list[Piece] = []
        at = 0
        marks = self.marks
        for iteration, letters in enumerate(self.roles, start=1):
            start = 0
            while start < len(letters):
                letter = letters[start]
                end = start + 1
                while letter in _RUNS and end < len(letters) and letters[end] == letter:
                    end += 1
                pieces.append(
                    Piece(
                        role=ROLE_OF[letter],
                        iteration=iteration,
                        entries=self.entries[at : at + end - start],
                        letters=letters[start:end],
                        words=self.words,
                        **(marks[at]._asdict() if at in marks else {}),
                    )
                )
                at += end - start
                start = end
        return tuple(pieces)

    def rewritten(self, piece: Piece, *messages: Message) -> Piece:
        """The piece with other messages. Without any message the piece is removed. A pinned piece stays as it
        is."""
        if piece.is_pinned:
            return piece
        flags = self.facts.get("flags", {})
        entries = self.words.write(messages, self.messages, flags) if messages else ()
        letter = LETTER_OF[messages[0].role] if messages else ""
        role = messages[0].role if messages else piece.role
        return replace(piece, role=role, entries=entries, letters=letter * len(entries))

    def with_pieces(self, pieces: Sequence[Piece]) -> TurnView:
        """The turn made of these pieces, in order."""
        roles = [""] * len(self.roles)
        marks: dict[int, Mark] = {}
        at = 0
        for piece in pieces:
            roles[piece.iteration - 1] += piece.letters
            if piece.pinned is not None or piece.speaker is not None:
                marks[at] = Mark(piece.speaker, piece.pinned)
            at += len(piece.entries)
        entries = tuple(entry for piece in pieces for entry in piece.entries)
        return replace(
            self,
            entries=entries,
            roles=tuple(roles),
            message_count=len(self.words.read(entries)),
            tokens=self.words.tokens(entries) if self.is_sent else 0,
            id="",
            marks=marks,
        )


_NO_MARK: Final = Mark()


# ------------------------------------------------------------------------------------- pinned messages


def with_pinned(
    offered: Sequence[TurnView], kept: Sequence[TurnView], *, keeps_systems: bool = True
) -> tuple[TurnView, ...]:
    """The turns that a strategy keeps, and the pinned messages that they lack. A dropped turn stays in its
    place with its pinned messages alone. A rewritten turn gets them back.

    Args:
        offered: The turns of the request.
        kept: The turns that the strategy keeps, in order, and its notes.
        keeps_systems: False: a system message without a mark of its own is not pinned.
    """
    pinned = {turn.position: pieces for turn in offered if (pieces := _pinned(turn, keeps_systems))}
    if not pinned:
        return tuple(kept)
    stays = {turn.position for turn in kept}
    whole = set(map(id, offered))
    remnants = [
        turn if len(pinned[turn.position]) == len(turn.entries) else turn.with_pieces(pinned[turn.position])
        for turn in offered
        if turn.position in pinned and turn.position not in stays
    ]
    completed = [
        turn if id(turn) in whole else _completed(turn, pinned.get(turn.position, ())) for turn in kept
    ]
    return placed(completed, remnants)


def placed(kept: Sequence[TurnView], others: Sequence[TurnView]) -> tuple[TurnView, ...]:
    """The turns that stay, and other turns of the request in their places among them, behind the notes."""
    left = list(others)
    found: list[TurnView] = []
    for turn in kept:
        while turn.position >= 0 and left and left[0].position < turn.position:
            found.append(left.pop(0))
        found.append(turn)
    return (*found, *left)


def _pinned(turn: TurnView, keeps_systems: bool) -> list[Piece]:
    if not turn.pinned_entries:
        return []
    return [piece for piece in turn.pieces if piece.is_pinned and (keeps_systems or piece.pinned)]


def _completed(turn: TurnView, pinned: Sequence[Piece]) -> TurnView:
    """The rewritten turn with all its pinned messages, in order. Those that it lacks stand before the reply
    of their model call, where no call waits for a result."""
    own = [piece.entries for piece in turn.pieces if piece.is_pinned]
    if not any(piece.entries not in own for piece in pinned):
        return turn
    entries = {piece.entries for piece in pinned}
    pieces = [piece for piece in turn.pieces if piece.entries not in entries]
    for piece in reversed(pinned):
        at = next(
            (
                at
                for at, one in enumerate(pieces)
                if one.iteration > piece.iteration
                or (one.iteration == piece.iteration and (one.role == "assistant" or one in pinned))
            ),
            len(pieces),
        )
        pieces.insert(at, piece)
    return turn.with_pieces(pieces)


def without_oldest_pins(
    turns: Sequence[TurnView], most: int, *, but: Sequence[TurnView] = ()
) -> tuple[TurnView, ...]:
    """Drop the oldest pinned messages until all of them have at most so many bytes.

    `but`: turns that stay whole. All other turns have pinned messages only.
    """
    left = sum(turn.pinned_bytes for turn in turns)
    found: list[TurnView] = []
    for turn in turns:
        if left <= most or turn.note or any(turn is one for one in but):
            found.append(turn)
            continue
        pieces = list(turn.pieces)
        while pieces and left > most:
            left -= sum(map(len, pieces.pop(0).entries))
        if pieces:
            found.append(turn.with_pieces(pieces))
    return tuple(found)


def note_of(words: Words, entries: Sequence[bytes], kind: str) -> TurnView:
    """Make the turn, a note of this kind, that replaces others."""
    letters = "".join(LETTER_OF[words.read((entry,))[0].role] for entry in entries)
    return TurnView(
        position=-1,
        message_count=len(words.read(tuple(entries))),
        tokens=words.tokens(entries),
        entries=tuple(entries),
        roles=(letters,),
        words=words,
        facts={"note": kind},
    )
