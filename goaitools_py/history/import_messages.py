"""A provider's own messages from a state, and a state from messages or from a state of the Go library.

Owns: the places where turns begin in a list of messages, the checks of the messages, the two shapes of the Go
library's JSON, and the members of it that are kept. Must never know: a backend, an SDK, or how a blob is
packed.

The Go library goaitools writes
``{"version": 1, "provider": "openai", "processed_length": n, "messages": [...]}``
(github.com/m0rjc/goaitools, state.go at commit 2210390): the messages have the shape of Chat Completions, and
a model has seen the first `n`. An earlier sketch has
``{"version": 1, "messages": [...], "metadata": {...}}``.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

import msgspec

from ..backends.base import Dialect
from ..backends.dialects import dialect_for, dialect_of
from ..backends.protocols import (
    ChecksHistory,
    EntryView,
    MarksHistory,
    ViewsHistory,
    is_read,
    lacks,
    narrowed_history,
    problems_of,
)
from ..backends.read_entries import parse_entries
from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..base.values import replace
from ..open_turn import steps
from ..state.closed_turns import ClosedTurn, Iteration, TurnRecord
from ..state.codec import PLAIN, Codec, check_limit
from ..state.letters import ASSISTANT, LETTER_OF, SYSTEM, USER, InboxLetter
from ..state.records import InboxItem, fresh_id, with_cut
from ..state.state import (
    ConversationState,
    closed_entries,
    dump_state,
    hard_limits,
    load_state,
    new_state,
    rebuild,
)
from ..types.errors import StateFormatError, StateInvalidError, StateProviderError, StateVersionError
from ..types.messages import Message
from ..types.options import check_options
from ..types.render import valid_text
from .additions import MAX_METADATA_BYTES
from .rewrite.mend import Entry, Mended, mended
from .rewrite.repair import checked, noted
from .rewrite.rewritten import is_signed, unsigned_turns

__all__ = ["import_goaitools_state", "state_from_messages", "state_messages"]


def state_messages(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> list[Any]:
    """Export a conversation as messages in the provider's own JSON shape, the waiting messages last.

    `dialect`: the dialect of a provider API that is not built in.

    Raises `StateError` if the blob cannot be read.
    """
    state = load_state(blob, codec=codec, binding=binding, min_revision=min_revision)
    dialect = dialect_for(state.meta.wire, dialect)
    state, _ = checked(steps.close_turn(state, dialect), dialect)
    entries = closed_entries(state)
    entries.extend(item.entry for item in state.inbox)
    return parse_entries(entries)


def _check_messages(messages: Any, *, repair: bool) -> None:
    """Raise TypeError for anything but a list of dicts. A repair drops entries that are no dicts."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    for message in messages:
        if not repair and not isinstance(message, Mapping):
            raise TypeError(
                f"each message must be a dict of the provider API's JSON, not {type(message).__name__}"
            )


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
    """Make a state of messages in the provider's own JSON shape.

    If an earlier call of the history has the same id, a call and its result get a new id. Some servers refuse
    one id twice, and a result would answer two calls. The same messages get the same ids. The change is noted
    as a repair, and signed thinking is left out then. Without `repair` nothing else changes.

    A turn begins at each user message that follows a reply. The result depends on the arguments alone if
    `conversation_id` and `created_ms` are given.

    Args:
        wire: The provider API of the messages.
        messages: The messages. Leading system messages are refused: pass them as ``system=`` with each call.
        conversation_id: A part of every idempotency key. Without it the id is random, so that two imported
            conversations never share a key.
        created_ms: When the conversation began, in milliseconds since 1970; None: now.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        dialect: The dialect of a provider API that is not built in.
        repair: Mend errors that the provider would refuse, such as calls without results or ids that are too
            long. The facts of each turn ("repaired", by kind) and the cuts of the state list the repairs.
            Added results have the flag "unknown". Entries that only some servers refuse stay, because others
            need them, such as thinking without a signature. A turn takes them out if its server refuses them.

    Raises:
        TypeError: `messages` is no list, or it holds other values than dicts and `repair` is False.
        ValueError: The provider API is unknown, the first message is a system message, the provider would
            refuse the history, or `repair` is True and the dialect has no `ChecksHistory`.
    """
    _check_messages(messages, repair=repair)
    dialect = dialect or dialect_of(wire)
    if dialect.wire != wire:
        raise ValueError(f"the dialect is of the wire {dialect.wire!r}, not {wire!r}")
    check_options({"conversation_id": conversation_id})
    entries = [rawjson.dumps(message) for message in messages]
    state = _state_of_entries(
        entries, dialect, conversation_id=conversation_id, created_ms=created_ms, repair=repair
    )
    return dump_state(state, codec=codec, binding=binding)


def _state_of_entries(
    entries: Sequence[bytes],
    dialect: Dialect,
    *,
    conversation_id: str | None = None,
    created_ms: int | None = None,
    repair: bool = False,
    may_lead: bool = False,
) -> ConversationState:
    """As `state_from_messages`, of the JSON text of each message. Its bytes are kept, except repeated ids of
    calls.

    Args:
        entries: One JSON object each, without a line break.
        dialect: The dialect of the provider API.
        conversation_id: The id; None makes a random one.
        created_ms: When the conversation began; None: now.
        repair: Mend errors that the provider would refuse.
        may_lead: Take a leading system message as a part of the history.

    Raises ValueError as `state_from_messages`.
    """
    wire, given = dialect.wire, len(entries)
    found, is_reread = _mended(entries, dialect) if repair else (None, False)
    if found is not None:
        entries = [one.entry for one in found.entries]
    views = [dialect.view([entry]) for entry in entries]
    if views and views[0] and views[0][0].role == "system" and not may_lead:
        raise ValueError("the messages begin with a system message: it is not stored; pass it as system=")
    if problems := problems_of(dialect, entries):
        raise ValueError(f"the provider would refuse this history: {problems[0]}")
    apart = dialect.unique_calls(entries) if isinstance(dialect, ViewsHistory) else ()
    if any(one.changes for one in apart):
        found, is_reread = _apart(entries, apart, found), True
        entries = [one.entry for one in apart]
        views = [dialect.view([entry]) for entry in entries]
    turns = _split_turns(entries, views, dialect)
    state = new_state(
        wire,
        id=conversation_id or fresh_id(),
        created=time.time_ns() // 1_000_000 if created_ms is None else created_ms,
    )
    cuts = state.meta.cuts
    if found is not None and found.log:
        turns = noted(turns, found)
        if is_reread:  # signed blocks are bound to their prefix
            turns = unsigned_turns(turns, dialect)
        turns = [turn for turn in turns if turn.entries]
        entries = [entry for turn in turns for entry in turn.entries]
        cuts = with_cut(state.meta, 0, "repaired", 0, max(0, given - len(entries)))
    state = rebuild(state, turns)
    meta = msgspec.structs.replace(
        state.meta,
        cuts=cuts,
        rev=1,
        messages=sum(turn.record.messages for turn in turns),
        turns=len(turns),
        processed=len(turns),
        systems=any(view[0].role == "system" for view in views if view),
        signed=is_signed(entries, dialect),
        carry=dict(dialect.marks(entries)) if isinstance(dialect, MarksHistory) else {},
    )
    return replace(state, meta=meta)


def _mended(entries: Sequence[bytes], dialect: Dialect) -> tuple[Mended, bool]:
    """The history as its provider takes it, in forms that every server of the API takes. True: the text for a
    model has changed."""
    if missing := lacks(dialect, ChecksHistory):
        raise ValueError(f"repair=True has no rules to repair by: {missing}")
    formed = narrowed_history(dialect, entries)
    left = [entry for entry in formed.entries if entry]
    # A change counts for the entry that now has the place of the changed entry.
    places = list(accumulate(map(bool, formed.entries), initial=0))
    changes = tuple((kind, min(places[at], max(len(left) - 1, 0))) for kind, at in formed.log)
    with suppress(StateInvalidError):
        found = mended(left, dialect)
        log = tuple(sorted((*changes, *found.log), key=lambda row: row[1]))
        is_reread = bool(found.log) or any(is_read(kind) for kind, _ in changes)
        return Mended(entries=found.entries, log=log), is_reread
    raise ValueError("the provider would refuse this history, and it cannot be repaired")


def _apart(entries: Sequence[bytes], apart: Sequence[EntryView], found: Mended | None) -> Mended:
    """The history with unique ids of calls, which is noted as a repair."""
    if found is None:
        same = tuple([Entry(entry=entry, source=at, letter="") for at, entry in enumerate(entries)])
        found = Mended(entries=same, log=())
    made: list[Entry] = []
    log = list(found.log)
    place = 0
    for old, new in zip(found.entries, apart, strict=True):
        flags = {new.ids.get(id, id): flag for id, flag in old.flags.items()}
        made.append(replace(old, entry=new.entry, flags=flags) if new.changes else old)
        place = place if old.source is None else old.source  # an added entry has the place before it
        log += [(kind, place) for kind in new.changes]
    return Mended(entries=tuple(made), log=tuple(sorted(log, key=lambda row: row[1])))


def _split_turns(
    entries: Sequence[bytes], views: Sequence[tuple[Message, ...]], dialect: Dialect
) -> list[ClosedTurn]:
    turns: list[ClosedTurn] = []
    own: list[bytes] = []
    letters = ""

    def finish() -> None:
        iterations = tuple(Iteration(roles=roles) for roles in _iterations(letters))
        count = len(dialect.view(own))
        record = TurnRecord(at=0, messages=count, iterations=iterations)
        turns.append(ClosedTurn(tuple(own), record))

    for entry, view in zip(entries, views, strict=True):
        letter = LETTER_OF.get(view[0].role, USER)
        if letter == USER and letters.endswith(ASSISTANT):
            finish()
            own, letters = [], ""
        own.append(entry)
        letters += letter
    if own:
        finish()
    return turns


def _iterations(letters: str) -> list[str]:
    """Cut the letters of a turn after each reply: "uattaa" becomes "ua" and "ttaa"."""
    return re.findall(rf"[^{ASSISTANT}]*{ASSISTANT}+|[^{ASSISTANT}]+$", letters)


_WIRE: Final = "openai"
_VERSION: Final = 1
_KNOWN: Final = frozenset({"version", "provider", "processed_length", "messages", "metadata"})
_GZIP: Final = b"\x1f\x8b"
_LETTERS: Final[Mapping[str, InboxLetter]] = {"user": USER, "system": SYSTEM}


def import_goaitools_state(
    data: bytes | bytearray | memoryview,
    *,
    conversation_id: str | None = None,
    created_ms: int | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Make a state for the provider API "openai" of a state of the Go library goaitools.

    Each message keeps its bytes, with members that this library does not know. Messages that no model had
    seen wait, as after `append_to_state`. Histories that the provider would refuse are mended. The metadata
    of the second shape, and unknown members of the whole, become the conversation's metadata. Texts stay as
    they are, and other values become JSON text.

    Args:
        data: The JSON, as the Go library stored it, or gzipped.
        conversation_id: A part of every idempotency key. None: a random one.
        created_ms: When the conversation began, in milliseconds since 1970; None: now.
        codec: How the new blob is protected.
        binding: The owner, for a sealed blob.

    Raises:
        TypeError: It is not bytes.
        StateFormatError: It does not have one of the two shapes.
        StateVersionError: Its version is not 1.
        StateProviderError: Its provider is not "openai".
        StateInvalidError: A message is not a JSON object, or the history cannot be mended.
        StateTooLargeError: It is beyond the limits of the codec.
        ValueError: Its metadata take more than 4 KiB.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"a Go state is bytes of JSON, not {type(data).__name__}")
    check_options({"conversation_id": conversation_id})
    limits = hard_limits(codec)
    inflated = _inflated(bytes(data), limits.max_decoded_bytes)
    check_limit("max_values", limits.max_values, rawjson.count_values(inflated, most=limits.max_values))
    found = _members(inflated)
    _check_head(found)
    entries = _entries(found["messages"], limits.max_entries)
    roles = [rawjson.string(rawjson.members(entry).get("role", b"null")) or "" for entry in entries]
    seen = _seen(found, roles)
    dialect = dialect_of(_WIRE)
    try:
        state = _state_of_entries(
            entries[:seen],
            dialect,
            conversation_id=conversation_id,
            created_ms=created_ms,
            repair=True,
            may_lead=True,
        )
    except ValueError:
        raise StateInvalidError(
            "the history of the Go state cannot be mended; nothing was imported"
        ) from None
    waiting = tuple(
        InboxItem(entry=entry, letter=_LETTERS[role])
        for entry, role in zip(entries[seen:], roles[seen:], strict=True)
    )
    meta = msgspec.structs.replace(state.meta, about=_about(found))
    return dump_state(replace(state, meta=meta, inbox=waiting), codec=codec, binding=binding)


def _inflated(data: bytes, most: int) -> bytes:
    """Undo gzip, never beyond `most` bytes."""
    check_limit("max_decoded_bytes", most, len(data))
    if data[:2] != _GZIP:
        return data
    inflater = zlib.decompressobj(wbits=31)
    found: bytes | None = None
    with suppress(zlib.error):
        found = inflater.decompress(data, most + 1)
    if found is None or (not inflater.eof and len(found) <= most):
        raise StateFormatError("the Go state is gzipped, and the gzip data are damaged", blob=data)
    check_limit("max_decoded_bytes", most, len(found))
    return found


def _members(data: bytes) -> dict[str, bytes]:
    with suppress(RawJSONError):
        found = {name: bytes(value) for name, value in rawjson.members(data).items()}
        if "messages" in found and "version" in found:
            return found
    raise StateFormatError(
        "this is no state of the Go library: expected a JSON object with 'version' and 'messages'", blob=data
    )


def _check_head(found: Mapping[str, bytes]) -> None:
    version = rawjson.view_or_none(found["version"])
    if version != _VERSION or type(version) is not int:
        shown = version if type(version) is int else type(version).__name__
        raise StateVersionError(f"the Go state has version {shown}, expected {_VERSION}")
    provider = rawjson.view_or_none(found.get("provider", b'"openai"'))
    if provider not in ("openai", ""):
        shown = provider[:40] if isinstance(provider, str) else type(provider).__name__
        raise StateProviderError(
            f"the Go state is of the provider {shown!r}, and only 'openai' can be read",
            expected=_WIRE,
            found=shown,
        )


def _entries(raw: bytes, most: int) -> list[bytes]:
    if raw.strip() == b"null":  # Go writes a nil slice as null
        return []
    with suppress(RawJSONError):
        items = rawjson.items(raw)
        check_limit("max_entries", most, len(items))
        # A JSON string cannot hold a raw line break, so each line break here is between values.
        entries = [bytes(item).replace(b"\r", b" ").replace(b"\n", b" ") for item in items]
        for entry in entries:
            rawjson.members(entry)
        return entries
    raise StateInvalidError("'messages' of the Go state is not a list of JSON objects; nothing was imported")


def _seen(found: Mapping[str, bytes], roles: Sequence[str]) -> int:
    """The number of messages that a model has seen: from the state, or up to the last reply. Only messages of
    users and of the system can wait."""
    said = rawjson.view_or_none(found["processed_length"]) if "processed_length" in found else None
    first = len(roles)
    while first and roles[first - 1] in _LETTERS:
        first -= 1
    return min(max(said, first), len(roles)) if type(said) is int else first


def _about(found: Mapping[str, bytes]) -> dict[str, str]:
    given = rawjson.view_or_none(found["metadata"]) if "metadata" in found else None
    about: dict[str, str] = {}
    if isinstance(given, Mapping):
        members = rawjson.members(found["metadata"])
        about = {
            name: value if isinstance(value, str) else bytes(members[name]).decode()
            for name, value in given.items()
        }
    about |= {name: raw.decode() for name, raw in found.items() if name not in _KNOWN}
    about = {valid_text(name): valid_text(value) for name, value in about.items()}
    if about and (size := len(msgspec.json.encode(about))) > MAX_METADATA_BYTES:
        raise ValueError(
            f"the metadata of the Go state take {size} bytes, and at most {MAX_METADATA_BYTES} are stored"
        )
    return about
