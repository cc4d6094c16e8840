"""Turns as a strategy sees them: read, kept, rewritten, or written anew.

Owns: `TurnView` and `Piece`. Must never know: how a turn is stored, or which ones should stay.

A turn is a row of *pieces*: one message of the user, one reply of the model, all results of one exchange.
A strategy drops whole turns, or replaces pieces; what it does not touch keeps its provider's very bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from ..messages import Message, Role
from ..values import Value, replace

__all__ = ["COMPACTED", "Piece", "TurnView", "Words", "note_of"]

COMPACTED: Final = "compacted"
"""The kind of a note that is the provider's own compaction, in its own words."""

_ROLES: Final[Mapping[str, Role]] = {"s": "system", "u": "user", "e": "user", "a": "assistant", "t": "tool"}
_LETTERS: Final[Mapping[Role, str]] = {"system": "s", "user": "u", "assistant": "a", "tool": "t"}
_RUNS: Final = frozenset("at")
"""Letters of which a run is one piece: the items of a reply, the results of an exchange."""


class Words(Protocol):
    """A wire's words for a history: entries to messages and back, and an estimate of their tokens."""

    def read(self, entries: Sequence[bytes]) -> tuple[Message, ...]: ...

    def write(
        self, messages: Sequence[Message], turn: Sequence[Message], flags: Mapping[str, Any]
    ) -> tuple[bytes, ...]:
        """Encode messages of one piece; `turn` is the one that they belong to, for the kinds of its calls,
        `flags` says which of its results are no plain success."""
        ...

    def is_settled(self, entries: Sequence[bytes]) -> bool:
        """False for a reply that holds calls of hosted tools whose results are elsewhere."""
        ...

    def tokens(self, entries: Sequence[bytes]) -> int: ...

    def is_boundary(self, entry: bytes) -> bool:
        """True if the entry is, or holds, what the provider has made of all that stood before it."""
        ...


class Piece(Value, frozen=True, kw_only=True):
    """A part of a turn that stays or goes as one. `iteration` is the number of its model call in the turn."""

    unshown = frozenset({"entries", "words"})

    role: Role
    iteration: int
    entries: tuple[bytes, ...]
    letters: str
    words: Words

    @property
    def messages(self) -> tuple[Message, ...]:
        """The piece in neutral words; parsed when asked for."""
        return self.words.read(self.entries)

    @property
    def is_settled(self) -> bool:
        """False for a reply that holds calls of hosted tools whose results are elsewhere."""
        return self.words.is_settled(self.entries)


class TurnView(Value, frozen=True, kw_only=True):
    """One closed turn of the history: the user's input, the model's replies, the tools' results.

    Attributes:
        position: Its place, from 0 for the oldest; -1 for a turn that a strategy has written.
        message_count: Neutral messages: one per role message, one per tool result.
        tokens: An estimate.
        entries: What is stored, one for each element of the wire's history.
        roles: For each model call of the turn, a letter for each entry: s, u, e (event), a, t.
        facts: What is recorded with the turn.
        seconds: When the turn began, in seconds after the conversation did.
        id: The same for the same turn with the same bytes, in whatever process, and for no other: a key to
            keep it under. "" for a turn that a strategy has written, or rewritten.
    """

    unshown = frozenset({"entries", "words", "facts"})

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
        """The turn's messages in neutral words; parsed when asked for."""
        return self.words.read(self.entries)

    @property
    def note(self) -> str:
        """What kind of note a strategy wrote this turn as, such as "summary"; "" for a real turn."""
        return str(self.facts.get("note", ""))

    @property
    def has_boundary(self) -> bool:
        """True if the provider has compacted, in this turn, all that stands before it."""
        return any(map(self.words.is_boundary, self.entries))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The turn, piece by piece."""
        pieces: list[Piece] = []
        at = 0
        for iteration, letters in enumerate(self.roles):
            start = 0
            while start < len(letters):
                letter = letters[start]
                end = start + 1
                while letter in _RUNS and end < len(letters) and letters[end] == letter:
                    end += 1
                pieces.append(
                    Piece(
                        role=_ROLES[letter],
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
        """One of the turn's pieces, saying something else; with no message at all nothing of it is left."""
        flags = self.facts.get("flags", {})
        entries = self.words.write(messages, self.messages, flags) if messages else ()
        letter = _LETTERS[messages[0].role] if messages else ""
        role = messages[0].role if messages else piece.role
        return replace(piece, role=role, entries=entries, letters=letter * len(entries))

    def with_pieces(self, pieces: Sequence[Piece]) -> TurnView:
        """The turn made of these pieces, in order."""
        roles = [""] * len(self.roles)
        for piece in pieces:
            roles[piece.iteration] += piece.letters
        entries = tuple(entry for piece in pieces for entry in piece.entries)
        return replace(
            self,
            entries=entries,
            roles=tuple(roles),
            message_count=len(self.words.read(entries)),
            tokens=self.words.tokens(entries),
            id="",
        )


def note_of(words: Words, entries: Sequence[bytes], kind: str) -> TurnView:
    """A turn that stands for others, made of these entries."""
    letters = "".join(_LETTERS[words.read((entry,))[0].role] for entry in entries)
    return TurnView(
        position=-1,
        message_count=len(words.read(tuple(entries))),
        tokens=words.tokens(entries),
        entries=tuple(entries),
        roles=(letters,),
        words=words,
        facts={"note": kind},
    )
