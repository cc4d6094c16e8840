"""A state as plain JSON values, and back, without losing a byte.

Owns: the shape of an export, its JSON Schema, and the checks of an import. Must never know: a provider's JSON
beyond "an object", or how a blob is packed.

An export has the text of each piece of the state as it is stored. So numbers like ``1e5``, the order of keys
and escapes survive, and so do values that a later release wrote. `transcript` repeats the conversation for
people and for programs that only read; an import does not look at it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.dialects import dialect_for
from ..backends.protocols import problems_of
from ..base.values import replace
from ..open_turn import journal, steps
from ..state import blob as blobs
from ..state.blob import IGNORABLE, Kind, Segment
from ..state.codec import PLAIN, Codec
from ..state.parts import ARCHIVE, ELSEWHERE, IGNORABLE_PARTS, MEDIA, RESULT, Part, new_part
from ..state.segments import stored_lines, stored_segment
from ..state.state import ConversationState, closed_entries, hard_limits, load_state, soft_limits, written
from ..state.whole_blobs import verify_state
from ..types.errors import StateInvalidError, StateVersionError
from .archive_reading import check_chain
from .turns import History, read_history

__all__ = ["EXPORT_SCHEMA", "EXPORT_VERSION", "as_base64", "export_state", "import_state"]

EXPORT_VERSION: Final = 1
"""The version of the shape of an export; see `EXPORT_SCHEMA`."""

_FORMAT: Final = "goaitools-state"
_SEGMENTS: Final = {"sealed": Kind.SEALED, "hot": Kind.HOT, "inbox": Kind.INBOX, "open": Kind.OPEN}
_PARTS: Final = {"archive": ARCHIVE, "media": MEDIA, "result": RESULT}

_COUNT: Final = {"type": "integer", "minimum": 0}
_BASE64: Final = {"type": "string", "contentEncoding": "base64"}
_TEXT: Final = {
    "description": "A text as it is stored; or its bytes in base64, where they are not UTF-8.",
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"base64": _BASE64},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ],
}

EXPORT_SCHEMA: Final[Mapping[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A conversation that export_state has written",
    "type": "object",
    "properties": {
        "format": {"const": _FORMAT},
        "version": {"const": EXPORT_VERSION},
        "wire": {"type": "string", "description": "The provider API of the entries."},
        "meta": {"type": "string", "description": "The facts of the conversation, as JSON text."},
        "segments": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"enum": list(_SEGMENTS)},
                    "entries": {
                        "type": "array",
                        "items": _TEXT,
                        "description": "Messages as the provider's JSON text, oldest first.",
                    },
                    "rows": {**_TEXT, "description": "What is stored of them, as JSON text."},
                },
                "required": ["kind", "entries", "rows"],
                "additionalProperties": False,
            },
        },
        "later": {
            "type": "array",
            "description": "Pieces of a newer release, which this one carries.",
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"type": "integer", "minimum": IGNORABLE.start, "maximum": IGNORABLE.stop - 1},
                    "count": _COUNT,
                    "base64": _BASE64,
                },
                "required": ["kind", "count", "base64"],
                "additionalProperties": False,
            },
        },
        "parts": {
            "type": "array",
            "description": "Archive, media and long results.",
            "items": {
                "type": "object",
                "properties": {
                    "kind": {
                        "oneOf": [
                            {"enum": list(_PARTS)},
                            {
                                "type": "integer",
                                "minimum": IGNORABLE_PARTS.start,
                                "maximum": IGNORABLE_PARTS.stop - 1,
                            },
                        ]
                    },
                    "count": _COUNT,
                    "content": _TEXT,
                },
                "required": ["kind", "count", "content"],
                "additionalProperties": False,
            },
        },
        "transcript": {
            "type": "object",
            "description": "The conversation for readers, with the archive. An import does not look at it.",
        },
    },
    "required": ["format", "version", "wire", "meta", "segments"],
    "additionalProperties": False,
}
"""The JSON Schema (draft 2020-12) of an export."""


def export_state(
    blob: bytes | bytearray | memoryview,
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    min_revision: int | None = None,
    dialect: Dialect | None = None,
) -> dict[str, Any]:
    """Give everything that a state holds as JSON-able values; `import_state` makes the state of them again.

    The export is not protected, also if the state is. It has all messages in plain text.

    Args:
        blob: The state.
        codec: How the blob is protected.
        binding: The owner, for a sealed blob.
        min_revision: The least revision that it may have.
        dialect: The dialect of a provider API that is not built in.

    Returns:
        A dict that `EXPORT_SCHEMA` describes.

    Raises:
        StateError: The blob cannot be read, or a part of it is damaged.
        ValueError: Parts of the state are kept in a store. `conversation.state()` gives it whole.
    """
    found = _stored(load_state(blob, codec=codec, binding=binding, min_revision=min_revision), codec, binding)
    # The values of that state are gone before they are read again: a million of them take 170 MB.
    history = read_history(blob, codec=codec, binding=binding, dialect=dialect, archived=True)
    return {**found, "transcript": _transcript(history)}


def _stored(state: ConversationState, codec: Codec, binding: Any) -> dict[str, Any]:
    """All of an export but the transcript."""
    if any(part.place == ELSEWHERE for part in state.parts):
        raise ValueError(
            "a store keeps parts of this state, and the blob does not have them: export conversation.state()"
        )
    (meta, *segments), parts, _ = written(state, soft_limits(codec))
    found: dict[str, Any] = {
        "format": _FORMAT,
        "version": EXPORT_VERSION,
        "wire": state.meta.wire,
        "meta": meta.raw().decode(),
        "segments": [_segment(one) for one in segments if one.kind in _SEGMENTS.values()],
    }
    if state.later:
        found["later"] = [
            {"kind": one.kind, "count": one.entries, "base64": as_base64(one.raw())} for one in state.later
        ]
    if parts:
        found["parts"] = [_part(part, codec, binding) for part in parts]
    return found


def _segment(segment: Segment) -> dict[str, Any]:
    name = next(name for name, kind in _SEGMENTS.items() if kind == segment.kind)
    entries, rows = stored_lines(segment)
    return {"kind": name, "entries": [_text(entry) for entry in entries], "rows": _text(rows)}


def _part(part: Part, codec: Codec, binding: Any) -> dict[str, Any]:
    name = next((name for name, kind in _PARTS.items() if kind == part.kind), part.kind)
    return {"kind": name, "count": part.entries, "content": _text(part.raw(codec, binding))}


def _text(data: bytes) -> Any:
    with suppress(UnicodeDecodeError):
        return data.decode()
    return {"base64": as_base64(data)}


def as_base64(data: bytes) -> str:
    """The bytes as text, for JSON."""
    return base64.b64encode(data).decode()


def _transcript(history: History) -> dict[str, Any]:
    """The turns as plain messages, without the blocks that the provider sealed."""
    turns = [
        {
            "number": turn.number,
            "started_at": turn.started_at.isoformat(),
            "completed_at": None if turn.completed_at is None else turn.completed_at.isoformat(),
            "metadata": dict(turn.metadata),
            "messages": [_message(message) for message in turn.messages],
        }
        for turn in history.turns
    ]
    return {"turns": turns, "waiting": [_message(message) for message in history.waiting]}


def _message(message: Any) -> dict[str, Any]:
    found = {"role": "event" if message.is_event else message.role, "text": message.text}
    if message.speaker:
        found["speaker"] = message.speaker
    if message.pinned is not None:
        found["pinned"] = message.pinned
    if message.tool_calls:
        found["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls
        ]
    if message.tool_call_id:
        found["tool_call_id"] = message.tool_call_id
    return found


# ------------------------------------------------------------------------------------------- import


def import_state(
    exported: Mapping[str, Any],
    *,
    codec: Codec = PLAIN,
    binding: Any = None,
    dialect: Dialect | None = None,
) -> bytes:
    """Make a state of an export. It has the same content, and the conversation can go on.

    The values may come from anywhere: all of them are checked, also that the provider would take the history.

    Args:
        exported: The result of `export_state`, also after it was written as JSON and read again.
        codec: How the new blob is protected. It may be another codec than before.
        binding: The owner, for a sealed blob.
        dialect: The dialect of a provider API that is not built in.

    Raises:
        TypeError: It is not a dict.
        StateVersionError: A newer release wrote it.
        StateInvalidError: It is no export, a value is not possible in a state, or the provider would refuse
            its history.
        StateTooLargeError: It is beyond the limits of the codec.
    """
    if not isinstance(exported, Mapping):
        raise TypeError(f"an export is a dict, not {type(exported).__name__}; read JSON text with json.loads")
    _check_head(exported)
    meta = exported.get("meta")
    if not isinstance(meta, str) or not meta:
        raise _invalid("it has no text 'meta'")
    segments = [blobs.segment(Kind.META, _bytes(meta, "'meta'"), 0)]
    listed = _list(exported, "segments")
    is_long = any(one.get("kind") == "sealed" for one in listed)
    segments += [_read_segment(one, is_minor=is_long and one.get("kind") == "hot") for one in listed]
    segments += [_read_later(one) for one in _list(exported, "later")]
    parts = [_read_part(one, codec) for one in _list(exported, "parts")]
    if [one.kind for one in segments] != sorted(one.kind for one in segments):
        raise _invalid("its segments are not in order")
    try:
        blob = blobs.encode(segments, parts, codec=codec, binding=binding, limits=hard_limits(codec))
    except ValueError as error:
        raise _invalid(str(error)) from None
    state = load_state(blob, codec=codec, binding=binding)
    _check(state, dialect_for(state.meta.wire, dialect))
    verify_state(blob, codec=codec, binding=binding)
    check_chain(state, codec, binding)
    return blob


def _check_head(exported: Mapping[str, Any]) -> None:
    if exported.get("format") != _FORMAT:
        raise _invalid(f"its format is not {_FORMAT!r}")
    version = exported.get("version")
    if type(version) is int and version > EXPORT_VERSION:
        raise StateVersionError(
            f"the export has version {version}, this release reads {EXPORT_VERSION}: use a newer release"
        )
    if version != EXPORT_VERSION:
        raise _invalid("it has no version that this release knows")


def _check(state: ConversationState, dialect: Dialect) -> None:
    """Refuse a history, an open turn or waiting messages that the provider does not take. A turn would trust
    them, and a load does not check them."""
    entries = closed_entries(state)
    opened = state.open.entries if state.open is not None else ()
    journal.check_journal(state, dialect)
    found = problems_of(dialect, [*entries, *opened], open_end=state.open is not None)
    if not found and state.inbox:
        ended = closed_entries(steps.close_turn(state, dialect))
        found = problems_of(dialect, [*ended, *(item.entry for item in state.inbox)])
    if found:
        raise _invalid(
            f"the provider would refuse its history ({found[0]}); state_from_messages(…, repair=True) mends "
            "messages"
        )


def _list(values: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = values.get(name, [])
    if not isinstance(found, (list, tuple)) or not all(isinstance(one, Mapping) for one in found):
        raise _invalid(f"{name!r} is not a list of objects")
    return found


def _read_segment(value: Mapping[str, Any], *, is_minor: bool) -> Segment:
    kind = _SEGMENTS.get(str(value.get("kind")))
    entries = value.get("entries")
    if kind is None or not isinstance(entries, (list, tuple)):
        raise _invalid("a segment has no kind that this release knows, or no entries")
    read = [_bytes(entry, "an entry") for entry in entries]
    if any(b"\n" in entry for entry in read):
        raise _invalid("an entry has a line break")
    rows = _bytes(value.get("rows"), "the rows of a segment")
    return stored_segment(kind, read, rows, is_minor=is_minor)


def _read_later(value: Mapping[str, Any]) -> Segment:
    kind, count = value.get("kind"), value.get("count")
    if type(kind) is not int or kind not in IGNORABLE or type(count) is not int or count < 0:
        raise _invalid("a piece of a newer release has an impossible kind or count")
    data = _bytes({"base64": value.get("base64")}, "a piece of a newer release")
    if not data:
        raise _invalid("a piece of a newer release is empty")
    return replace(blobs.segment(Kind.SEALED, data, count), kind=kind)


def _read_part(value: Mapping[str, Any], codec: Codec) -> Part:
    kind, count = value.get("kind"), value.get("count")
    known = _PARTS.get(kind) if isinstance(kind, str) else None
    if known is None and (type(kind) is not int or kind not in IGNORABLE_PARTS):
        raise _invalid("a part has no kind that this release knows")
    if type(count) is not int or not 0 <= count < 2**32:
        raise _invalid("a part has an impossible count")
    try:
        part = new_part(
            known or MEDIA, _bytes(value.get("content"), "a part"), count, compresses=codec.compresses
        )
    except ValueError as error:
        raise _invalid(str(error)) from None
    return part if known is not None else replace(part, kind=kind)


def _bytes(value: Any, what: str) -> bytes:
    with suppress(UnicodeEncodeError, binascii.Error, ValueError):
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, Mapping) and isinstance(value.get("base64"), str):
            return base64.b64decode(value["base64"], validate=True)
    raise _invalid(f"{what} is neither text nor base64")


def _invalid(found: str) -> StateInvalidError:
    return StateInvalidError(f"this is no export of a state that can be imported: {found}")
