"""What an archive costs each turn that does not use it: in the blob, and as parts in a store.

Owns: the same live history without an archive, with one in the blob, and with a large one in a store.
Must never know: how time is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec
from _conversations import corpus
from _report import Figure, Report, at_most, info
from _timing import interleaved
from _wires import WIRES

from goaitools_py import Chat, Compactor, KeepRecentTurns, MessageLimit
from goaitools_py.base.values import replace
from goaitools_py.state.state import closed_turns, dump_state, load_state, with_turn
from goaitools_py.states import state_from_messages
from goaitools_py.stores import MemoryStore

__all__ = ["run"]

QUESTION = "And is my second bag still on the reservation?"
INLINE_BYTES = 64 * 1024
LIVE = 40
"""Turns that stay in the history at each cut."""
_TOKENS = 300 * LIVE
"""What the model counts: at least what the live turns have. After far fewer, a turn reads them all."""
MANY = 10_000
"""Messages in the large archive."""


class _Still(MemoryStore):
    """A store that stands still: each turn loads the same row, and no save changes it."""

    is_still = False

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: Any = None) -> int:
        return 1 if self.is_still else super().save(key, blob, expected=expected, facts=facts)

    def save_parts(
        self, key: str, head: bytes, new: Any, gone: Any, *, expected: int | None, facts: Any = None
    ) -> int:
        if self.is_still:
            return 1
        return super().save_parts(key, head, new, gone, expected=expected, facts=facts)


def run(*, short: bool = False) -> Report:
    """Measure both. `short`: fewer rounds, and a tenth of the large archive."""
    wire = WIRES["openai"]
    chat = Chat(wire.backend(wire.instant(_TOKENS)))
    many = MANY // 10 if short else MANY
    plain, inline = _with_archive(chat, INLINE_BYTES, 4_000)
    found = interleaved(_inline(chat, plain, inline), short=short, clock=time.process_time_ns)
    figures: list[Figure] = [
        info("a turn without an archive", found["none"].minimum, "µs"),
        at_most(
            10.0,
            f"more with {(len(inline) - len(plain)) / 1024:.0f} KiB of archive in the blob",
            100 * (found["inline"].times(found["none"]) - 1),
            "%",
        ),
    ]
    plain, large = _with_archive(chat, 2**30, many)
    kept = interleaved(_kept(chat, plain, large), short=short, clock=time.process_time_ns)
    figures += [
        info("a kept turn without an archive", kept["none"].minimum, "µs"),
        at_most(
            40.0,
            f"more with {many:,} archived messages as parts in the store",
            100 * (kept["parts"].times(kept["none"]) - 1),
            "%",
        ),
    ]
    return Report(
        title="A turn beside an archive that it does not use",
        method=f"as for a whole turn, Chat Completions; {corpus().source}; the last {LIVE} turns are live; "
        "the store is a MemoryStore whose row stays as it is, so that each turn begins alike",
        figures=figures,
    )


def _inline(chat: Chat, plain: bytes, inline: bytes) -> dict[str, Callable[[], object]]:
    return {
        "none": lambda: chat.chat_with_state(plain, user=QUESTION),
        "inline": lambda: chat.chat_with_state(inline, user=QUESTION),
    }


def _kept(chat: Chat, plain: bytes, large: bytes) -> dict[str, Callable[[], object]]:
    sides: dict[str, Callable[[], object]] = {}
    for name, blob in (("none", plain), ("parts", large)):
        store = _Still()
        store.save("ada", blob, expected=None)
        conversation = chat.conversation(store, "ada", parts="store")
        conversation.send(QUESTION)  # its save puts the archive into the table of parts
        conversation.rewind()
        store.is_still = True
        sides[name] = lambda conversation=conversation: conversation.send(QUESTION)
    return sides


def _with_archive(chat: Chat, retain_bytes: int, messages: int) -> tuple[bytes, bytes]:
    """The live turns without an archive, and with one of what stood before them, made by cuts."""
    wire = WIRES["openai"]
    keep = Compactor(MessageLimit(1), KeepRecentTurns(LIVE), retain=True, retain_bytes=retain_bytes)
    turns = corpus().of_length(messages)
    state, said = b"", 0
    found = iter(turns)
    while said < messages and (part := list(islice(found, 400))):
        new = state_from_messages(wire.name, wire.translated(part))
        said += sum(len(turn) for turn in part)
        state = new if not state else _joined(state, new)
        state = chat.compact_state(state, keep).state
    dropped = Compactor(MessageLimit(1), KeepRecentTurns(LIVE))
    bare = chat.compact_state(
        state_from_messages(wire.name, wire.translated(list(turns)[-2 * LIVE :])), dropped
    )
    return bare.state, state


def _joined(state: bytes, new: bytes) -> bytes:
    """The first state with the turns of the second behind its own."""
    first, second = load_state(state), load_state(new)
    for turn in closed_turns(second):
        first = with_turn(first, turn)
    old, more = first.meta, second.meta
    counts = {name: getattr(old, name) + getattr(more, name) for name in ("messages", "turns", "processed")}
    return dump_state(
        replace(first, meta=msgspec.structs.replace(old, tokens=old.tokens + more.tokens, **counts))
    )
