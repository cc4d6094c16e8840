"""A conversation as a file: for people, for programs, or as it is stored.

Owns: which form a file's name asks for, and that no file is overwritten. Must never know: a store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["exported", "file_name", "write_new"]

_UNSAFE: Final = re.compile(r"[^\w.-]+")


def exported(blob: bytes, path: str, opened: Mapping[str, Any]) -> bytes:
    """The bytes of the file: Markdown for ".md", the JSON of `export_state` for ".json", else the state.

    The state keeps its seal. Raises StateError if it cannot be read.
    """
    from ..states import export_state, to_markdown

    match os.path.splitext(path)[1].lower():
        case ".md":
            return to_markdown(blob, **opened).encode("utf-8", "replace")
        case ".json":
            return json.dumps(export_state(blob, **opened), indent=2).encode() + b"\n"
    return blob


def file_name(key: str) -> str:
    """The name of a Markdown file for a conversation, without signs that a file system may refuse."""
    return f"{_UNSAFE.sub('_', key)[:100].lstrip('.') or 'conversation'}.md"


def write_new(path: str, data: bytes) -> None:
    """Write a file that is not there yet, for its owner only. Raises OSError."""
    number = os.open(os.path.expanduser(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "wb") as file:
        file.write(data)
