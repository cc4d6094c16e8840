"""Turns as a strategy reads and rewrites them.

Owns: `TurnView` and `Piece`. Must never know: how a turn is stored, or which turns should stay.

A turn is a row of *pieces*: a message of the user, a reply of the model, or all results of one exchange. A
strategy drops whole turns or replaces pieces. Pieces that it does not replace keep the provider's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ..base.values import Value, replace
from ..state.letters import ASSISTANT, LETTER_OF, ROLE_OF, TOOL
from ..types.messages import Message, Role

__all__ = ["COMPACTED", "Piece", "TurnView", "Words", "note_of"]

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

    `iteration` is the number of its model call in the turn, counted from 1.
    """

    _unshown = frozenset({"entries", "words"})

    role: Role
    iteration: int
    entries: tuple[bytes, ...]
    letters: str
    words: Words

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
    """

    _unshown = frozenset({"entries", "words", "facts"})

    position: int
    message_count: int
    tokens: int
    entries: tuple[bytes, ...]
    roles: tuple[str, ...]
    words: Words
    facts: Mapping[str, Any] = {}
    seconds: float = 0.0
    id: str = ""

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
                    )
                )
                at += end - start
                start = end
        return tuple(pieces)

    def rewritten(self, piece: Piece, *messages: Message) -> Piece:
        """The piece with other messages. Without any message the piece is removed."""
        flags = self.facts.get("flags", {})
        entries = self.words.write(messages, self.messages, flags) if messages else ()
        letter = LETTER_OF[messages[0].role] if messages else ""
        role = messages[0].role if messages else piece.role
        return replace(piece, role=role, entries=entries, letters=letter * len(entries))

    def with_pieces(self, pieces: Sequence[Piece]) -> TurnView:
        """The turn made of these pieces, in order."""
        roles = [""] * len(self.roles)
        for piece in pieces:
            roles[piece.iteration - 1] += piece.letters
        entries = tuple(entry for piece in pieces for entry in piece.entries)
        return replace(
            self,
            entries=entries,
            roles=tuple(roles),
            message_count=len(self.words.read(entries)),
            tokens=self.words.tokens(entries) if self.is_sent else 0,
            id="",
        )


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
