"""The two doors of a state: a provider's own messages out of it, and into a new one.

Owns: where turns begin in a list of messages, and what is refused. Must never know: a backend or an SDK.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from .. import rawjson
from ..backends import rules
from ..backends.base import Dialect
from ..backends.dialects import dialect_of
from ..errors import StateInvalidError
from ..messages import Message
from ..options import check_options
from ..reading import parse_entries
from ..state.codec import PLAIN, Codec
from ..state.records import Iteration, TurnRecord, fresh_id, with_cut
from ..state.state import closed_turns, dump_state, load_state, new_state, rebuild
from ..turn import journal
from ..turn.mending import Mended, mended
from ..turn.repair import checked, noted
from ..turn.unsign import Turn, is_signed, unsigned_turns
from ..values import replace
from .wires import dialect_for

__all__ = ["state_from_messages", "state_messages"]


def state_messages(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> list[Any]:
    """The conversation in the provider's own JSON shape, waiting messages last; the door out.

    `dialect`: that of a wire which is not built in.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    state, _ = checked(journal.close_turn(state, dialect), dialect)
    entries = [entry for turn, _ in closed_turns(state) for entry in turn]
    entries.extend(item.entry for item in state.inbox)
    return parse_entries(entries)


_LETTERS = {"system": "s", "developer": "s", "user": "u", "assistant": "a", "tool": "t"}


def _check_messages(messages: Any, *, repair: bool) -> None:
    """A repair drops what is no message; else it is refused."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    for message in messages:
        if not repair and not isinstance(message, Mapping):
            raise TypeError(f"each message must be a dict of the wire's JSON, not {type(message).__name__}")


def state_from_messages(
    wire: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    conversation_id: str | None = None,
    created_ms: int | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
    repair: bool = False,
) -> bytes:
    """Make a state of messages in the provider's own JSON shape; the door in.

    A turn begins at each user message that follows an answer. Leading system messages are preamble and
    are refused: pass them as ``system=`` with each call. `dialect`: that of a wire which is not built in.

    `conversation_id`: part of every idempotency key. Without one it is random, so that no two imported
    conversations share a key. `created_ms`: when the conversation began, in milliseconds since 1970; without
    it, now. Give both for a result that depends on the messages alone.

    `repair`: mend what the provider would refuse, such as calls without results. What was done is in the
    facts of each turn ("repaired", by kind) and in the state's cuts; results that had to be put in are
    flagged "unknown".

    Raises:
        TypeError: `messages` is no list, or holds something else than dicts and is not to be repaired.
        ValueError: The wire is unknown, a leading system message, or the provider would refuse the history.
    """
    _check_messages(messages, repair=repair)
    dialect = dialect or dialect_of(wire)
    if dialect.wire != wire:
        raise ValueError(f"the dialect is of the wire {dialect.wire!r}, not {wire!r}")
    check_options({"conversation_id": conversation_id})
    entries = [rawjson.dumps(message) for message in messages]
    found = _mended(entries, dialect) if repair else None
    if found is not None:
        entries = [one.entry for one in found.entries]
    views = [dialect.view([entry]) for entry in entries]
    if views and views[0] and views[0][0].role == "system":
        raise ValueError("the messages begin with a system message: it is not stored; pass it as system=")
    problems = rules.check_history(wire, entries, unique_ids=False) if wire in rules.WIRES else []
    if problems:
        raise ValueError(f"the provider would refuse this history: {problems[0]}")
    turns: Sequence[Turn] = _split_turns(entries, views, dialect)
    state = new_state(
        wire,
        id=conversation_id or fresh_id(),
        created=time.time_ns() // 1_000_000 if created_ms is None else created_ms,
    )
    cuts = state.meta.cuts
    if found is not None and found.log:
        turns = [turn for turn in unsigned_turns(noted(turns, found), dialect) if turn[0]]
        entries = [entry for own, _ in turns for entry in own]
        cuts = with_cut(state.meta, 0, "repaired", 0, max(0, len(messages) - len(entries)))
    state = rebuild(state, turns)
    meta = msgspec.structs.replace(
        state.meta,
        cuts=cuts,
        rev=1,
        messages=sum(record.messages for _, record in turns),
        turns=len(turns),
        processed=len(turns),
        systems=any(view[0].role == "system" for view in views if view),
        signed=is_signed(entries, dialect),
    )
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding)


def _mended(entries: Sequence[bytes], dialect: Dialect) -> Mended:
    with suppress(StateInvalidError):
        return mended(entries, dialect)
    raise ValueError("the provider would refuse this history, and it cannot be repaired")


def _split_turns(
    entries: Sequence[bytes], views: Sequence[tuple[Message, ...]], dialect: Dialect
) -> list[tuple[list[bytes], TurnRecord]]:
    turns: list[tuple[list[bytes], TurnRecord]] = []
    own: list[bytes] = []
    letters = ""

    def finish() -> None:
        iterations = tuple(Iteration(roles=roles) for roles in _iterations(letters))
        count = len(dialect.view(own))
        # Equal turns are told apart by their numbers, as those of one millisecond are.
        facts = {"number": len(turns) + 1} if any(own == other for other, _ in turns) else {}
        turns.append((own, TurnRecord(at=0, messages=count, iterations=iterations, facts=facts)))

    for entry, view in zip(entries, views, strict=True):
        letter = _LETTERS.get(view[0].role, "u")
        if letter == "u" and letters.endswith("a"):
            finish()
            own, letters = [], ""
        own.append(entry)
        letters += letter
    if own:
        finish()
    return turns


def _iterations(letters: str) -> list[str]:
    """Cut a turn's letters after each reply: "uattaa" is "ua" and "ttaa"."""
    return re.findall(r"[^a]*a+|[^a]+$", letters)
