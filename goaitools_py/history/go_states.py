"""States of the Go library goaitools, as states of this one.

Owns: the two shapes of that JSON, and the members that are kept. Must never know: how a blob is packed.

The Go library writes ``{"version": 1, "provider": "openai", "processed_length": n, "messages": [...]}``
(github.com/m0rjc/goaitools, state.go at commit 2210390): the messages have the shape of Chat Completions, and
a model has seen the first `n`. An earlier sketch has
``{"version": 1, "messages": [...], "metadata": {...}}``.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from ..backends.dialects import dialect_of
from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..base.values import replace
from ..state.codec import PLAIN, Codec, check_limit
from ..state.letters import SYSTEM, USER, InboxLetter
from ..state.records import InboxItem
from ..state.state import dump_state, hard_limits
from ..types.errors import StateFormatError, StateInvalidError, StateProviderError, StateVersionError
from ..types.options import check_options
from ..types.render import plain
from .convert import state_of_entries
from .update import MAX_METADATA_BYTES

__all__ = ["import_goaitools_state"]

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
        state = state_of_entries(
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
    version = _value(found["version"])
    if version != _VERSION or type(version) is not int:
        shown = version if type(version) is int else type(version).__name__
        raise StateVersionError(f"the Go state has version {shown}, expected {_VERSION}")
    provider = _value(found.get("provider", b'"openai"'))
    if provider not in ("openai", ""):
        shown = provider[:40] if isinstance(provider, str) else type(provider).__name__
        raise StateProviderError(
            f"the Go state is of the provider {shown!r}, and only 'openai' can be read",
            expected=_WIRE,
            found=shown,
        )


def _value(raw: bytes) -> Any:
    with suppress(RawJSONError):
        return rawjson.view(raw)
    return None


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
    said = _value(found["processed_length"]) if "processed_length" in found else None
    first = len(roles)
    while first and roles[first - 1] in _LETTERS:
        first -= 1
    return min(max(said, first), len(roles)) if type(said) is int else first


def _about(found: Mapping[str, bytes]) -> dict[str, str]:
    given = _value(found["metadata"]) if "metadata" in found else None
    about: dict[str, str] = {}
    if isinstance(given, Mapping):
        members = rawjson.members(found["metadata"])
        about = {
            name: value if isinstance(value, str) else bytes(members[name]).decode()
            for name, value in given.items()
        }
    about |= {name: raw.decode() for name, raw in found.items() if name not in _KNOWN}
    about = {plain(name): plain(value) for name, value in about.items()}
    if about and (size := len(msgspec.json.encode(about))) > MAX_METADATA_BYTES:
        raise ValueError(
            f"the metadata of the Go state take {size} bytes, and at most {MAX_METADATA_BYTES} are stored"
        )
    return about
