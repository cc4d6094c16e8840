"""The title and metadata that an application gives a conversation.

Owns: how they enter a blob. Must never know: a turn, a provider's JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..base.values import replace
from ..state.codec import PLAIN, Codec
from ..state.records import digest8
from ..state.row_codec import MAX_NAME
from ..state.state import dump_state, hard_limits, load_state

__all__ = ["MAX_METADATA_BYTES", "check_update", "update_state"]

MAX_METADATA_BYTES: Final = 4096
"""The most that the metadata of a conversation take, as JSON."""


def update_state(
    blob: bytes | bytearray | memoryview,
    *,
    title: str | None = None,
    metadata: Mapping[str, str | None] | None = None,
    codec: Codec = PLAIN,
    binding: Any = None,
) -> bytes:
    """Set the title and metadata of a conversation, for people and lists. A model never sees them.

    Args:
        title: At most 256 characters; "" takes it away, None leaves it as it is.
        metadata: Names and values to set; a value of None takes its name away, other names stay. All names
            and values take at most 4 KiB as JSON.

    Raises:
        ValueError, TypeError: A title or metadata that cannot be stored.
        StateError: The blob cannot be read.
    """
    check_update(title, metadata)
    state = load_state(blob, codec=codec, binding=binding)
    about = {**state.meta.about, **(metadata or {})}
    about = {name: value for name, value in about.items() if value is not None}
    size = len(msgspec.json.encode(about))
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"the metadata take {size} bytes, and at most {MAX_METADATA_BYTES} are stored")
    meta = msgspec.structs.replace(
        state.meta,
        title=state.meta.title if title is None else title,
        about=about,
        rev=state.meta.rev + 1,
        parent=digest8(bytes(blob)[:112]),
    )
    return dump_state(replace(state, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))


def check_update(title: str | None, metadata: Mapping[str, str | None] | None) -> None:
    """Raise for a title or metadata that no state can hold."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title must be str, not {type(title).__name__}")
    if title is not None and len(title) > MAX_NAME:
        raise ValueError(f"the title has {len(title)} characters, and at most {MAX_NAME} are stored")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise TypeError(f"metadata must be a mapping, not {type(metadata).__name__}")
    for name, value in (metadata or {}).items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise TypeError("the names and values of metadata must be str; None as a value takes a name away")
    for text in (title or "", *(metadata or {}), *((metadata or {}).values())):
        if text is not None and not _is_writable(text):
            raise ValueError("a title or metadata hold a lone surrogate, which UTF-8 cannot write")


def _is_writable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
