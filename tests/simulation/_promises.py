"""What must hold in every run, and what is known of it so far.

Owns: the books of what was said, answered and taken away, and the checks. Must never know: the order of
steps, or how a fault is made.

- What was acknowledged is in the conversation, once: a message whose turn gave a result, or failed and was
  saved, and an event that was appended. Rewinds, resets, compactions and `pending_input` take away openly.
- An effect that must not be repeated takes place once, however often its message is delivered.
- A message with a turn id is answered in the end, and each delivery gets the same reply.
- Nothing but the documented errors comes out.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any, Final

from goaitools_py import (
    ChatResult,
    CompactionError,
    StateConflictError,
    StoreUnavailableError,
    ToolPendingError,
    TurnError,
    TurnInProgressError,
)
from goaitools_py.state.codec import Codec
from goaitools_py.state.state import closed_entries, load_state
from goaitools_py.testing import check_history

from ._schedule import Act
from ._store import Save

__all__ = ["Promises", "ids_in"]

_MARK: Final = re.compile(rb"<<(m\d+):|\[\[(e\d+)\]\]")
_ANSWER: Final = re.compile(r"answer m\d+")
DOCUMENTED: Final = (
    TurnError,
    StateConflictError,
    TurnInProgressError,
    StoreUnavailableError,
    ToolPendingError,
    CompactionError,
)
"""Errors that any act may end with."""


@lru_cache(maxsize=64)
def ids_in(blob: bytes, codec: Codec) -> Counter[str]:
    """The messages ("m1") and events ("e2") that a state holds, and how often."""
    if not blob:
        return Counter()
    return Counter(_marks(b"\n".join(_entries(blob, codec))))


def _marks(text: bytes) -> list[str]:
    return [(found[1] or found[2]).decode() for found in _MARK.finditer(text)]


def _entries(blob: bytes, codec: Codec) -> list[bytes]:
    state = load_state(blob, codec=codec)
    entries = closed_entries(state)
    if state.open is not None:
        entries.extend(state.open.entries)
    return [*entries, *(item.entry for item in state.inbox)]


class Promises:
    """The books of one run. `problem` is the first promise that was broken, "" for none."""

    def __init__(self, wire: str, codec: Codec, *, is_tight: bool) -> None:
        self.problem = ""
        self.wire = wire
        self.codec = codec
        self.is_tight = is_tight
        self.kept: dict[str, set[str]] = {}
        self.gone: set[str] = set()
        self.replayable: set[str] = set()
        self.cut: dict[str, set[str]] = {}
        self.undelivered: dict[int, Act] = {}

    def broken(self, what: str) -> None:
        """Note that a promise does not hold."""
        self.problem = self.problem or what

    def may_repeat(self, id: int) -> bool:
        """True if a message was taken away: who says it again says something new."""
        return f"m{id}" in self.replayable

    # ---------------------------------------------------------------------------- what happens in a run

    def begun(self, act: Act) -> None:
        """Note that a message is delivered."""
        if act.kind == "send" and act.has_id:
            self.undelivered[act.id] = act

    def saved(self, save: Save, kind: str) -> None:
        """Note what a save takes away that is allowed to. `kind`: of the act that made it."""
        if kind in ("rewind", "reset", "compact") or self.is_tight:
            gone = ids_in(save.before, self.codec).keys() - ids_in(save.after, self.codec).keys()
            self.gone |= gone
            if kind in ("rewind", "reset"):
                self.replayable |= gone
            else:
                self.cut.setdefault(save.key, set()).update(gone)
            if kind == "reset":  # the ids of what was cut before go with the row
                self.replayable |= self.cut.pop(save.key, set())

    def ended(self, act: Act, result: Any, failure: BaseException | None) -> None:
        """Note how an act ended, and check what its caller got."""
        if failure is not None:
            self._failed(act, failure)
        elif isinstance(result, ChatResult):
            self._answered(act, result)
        elif act.kind == "append":
            self._keep(act.key, f"e{act.id}")

    def stored(self, act: Act) -> None:
        """Note that a turn which the store did not take was committed."""
        self._keep(act.key, f"m{act.id}")

    def _keep(self, key: str, id: str) -> None:
        self.kept.setdefault(key, set()).add(id)

    def _answered(self, act: Act, result: ChatResult) -> None:
        if act.kind not in ("send", "again", "final"):
            return
        self._keep(act.key, f"m{act.id}")
        self.undelivered.pop(act.id, None)
        # A message that failed waits, and may be answered together with a later one.
        is_answer = _ANSWER.fullmatch(result.text) is not None
        if not is_answer and not (result.text == "" and (result.duplicate or result.status != "complete")):
            self.broken(f"m{act.id} was answered with {result.text!r}, status {result.status}")

    def _failed(self, act: Act, failure: BaseException) -> None:
        is_empty = act.kind in ("answer", "answer_again", "resume", "rewind", "fork")
        if not isinstance(failure, (*DOCUMENTED, ValueError) if is_empty else DOCUMENTED):
            text = f"{type(failure).__name__}: {failure}"
            self.broken(f"{act.kind} {act.id} ended with {text}; cause {failure.__cause__!r}")
            return
        if not isinstance(failure, TurnError):
            return
        handed_back = b" ".join(message.text.encode() for message in failure.pending_input)
        self.gone.update(_marks(handed_back))
        if act.kind in ("send", "again") and failure.unsaved is None and f"m{act.id}" not in self.gone:
            self._keep(act.key, f"m{act.id}")

    # --------------------------------------------------------------------------------------- at the end

    def check(self, key: str, blob: bytes) -> None:
        """Check a conversation that has come to rest."""
        entries = _entries(blob, self.codec)
        if problems := check_history(self.wire, entries):
            self.broken(f"the history of {key} would be refused: {problems[0]}")
        text = b"\n".join(entries)
        found = Counter(_marks(text))
        if lost := self.kept.get(key, set()) - found.keys() - self.gone:
            self.broken(f"{', '.join(sorted(lost))} was acknowledged in {key} and is lost")
        if twice := [id for id, count in found.items() if count > 1 and id not in self.replayable]:
            self.broken(f"{', '.join(twice)} stands in {key} twice")
