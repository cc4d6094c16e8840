"""Turns a server's descriptions of its tools into values of this package. Pure.

Owns: names that every provider takes, which tools wait for an approval, and results as parts. Must never
know: a connection.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from ..tools import ToolReturn
from ..types.messages import Audio, Document, Image, Part, Text

__all__ = ["Approve", "checked_only", "named", "returned", "schema_of", "waits"]

Approve: TypeAlias = Literal["destructive", "all", "none"] | Callable[[str, dict[str, Any]], bool]

_OTHER: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST: Final = 64


def named(names: Iterable[str], prefix: str) -> dict[str, str]:
    """Map each tool's name at its server to the name that a model reads, in the order of the latter.

    Raises:
        ValueError: Two tools would have one name, or a name has no usable character.
    """
    found: dict[str, str] = {}
    for name in names:
        short = _OTHER.sub("_", f"{prefix}{name}")
        if short[:1].isdigit() or short.startswith("-"):
            short = f"_{short}"  # Gemini refuses such a name
        short = short[:_LONGEST]
        if not short:
            raise ValueError("a tool of the MCP server has no name")
        if short in found.values():
            raise ValueError(
                f"two tools of the MCP server would be called {short!r}: choose some of them with only=[…]"
            )
        found[name] = short
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def schema_of(schema: Any, name: str) -> dict[str, Any]:
    """Copy a tool's schema, so that its bytes stay the same if the server's object changes.

    Raises:
        ValueError: It is not the schema of an object. `name`: the tool, for the error.
    """
    copied: dict[str, Any] = json.loads(json.dumps(schema or {}))
    if copied.get("type", "object") != "object":
        raise ValueError(
            f"the input schema of the MCP tool {name!r} is not that of an object, so no model can call it; "
            "leave the tool out with only=[…]"
        )
    return {"type": "object", **copied}


def _json_of(value: Any) -> str:
    """A structured result as JSON. JSON has no NaN and no infinity: they become strings."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        named: Any = json.loads(json.dumps(value), parse_constant=str)
        return json.dumps(named, ensure_ascii=False)


def waits(annotations: Any, approve: Approve, name: str) -> bool | Callable[[dict[str, Any]], bool]:
    """Whether calls of a tool wait for an approval.

    Args:
        annotations: The server's hints on the tool, or None. They are claims of the server.
        approve: As for `MCPTools`.
        name: The tool's name at the server.
    """
    if callable(approve):
        return lambda arguments: approve(name, arguments)
    if approve != "destructive":
        return approve == "all"
    if annotations is None:
        return True
    return annotations.read_only_hint is not True and annotations.destructive_hint is not False


def returned(result: Any) -> ToolReturn:
    """A server's result as a tool's. Media are parts; links are text."""
    parts: list[Part] = [part for block in result.content for part in _parts(block)]
    if not any(isinstance(part, Text) for part in parts) and result.structured_content is not None:
        parts.append(Text(_json_of(result.structured_content)))
    return ToolReturn(parts or "", is_error=bool(result.is_error))


def _parts(block: Any) -> list[Part]:
    match block.type:
        case "text":
            return [Text(block.text)]
        case "image":
            return [_media(Image, block.data, block.mime_type)]
        case "audio":
            return [_media(Audio, block.data, block.mime_type)]
        case "resource_link":
            words = " ".join(text for text in (block.name, block.description) if text)
            return [Text(f"[resource {block.uri}] {words}".rstrip())]
        case "resource":
            held = block.resource
            if hasattr(held, "text"):
                return [Text(f"[resource {held.uri}]\n{held.text}")]
            kind = held.mime_type or "application/octet-stream"
            if kind.startswith("image/"):
                return [_media(Image, held.blob, kind)]
            if kind == "application/pdf":
                return [_media(Document, held.blob, kind)]
            return [Text(f"[resource {held.uri}: {kind}, {len(held.blob) * 3 // 4} bytes, left out]")]
    return [Text(f"[content of the unknown type {block.type!r}]")]


def _media(kind: type[Image] | type[Audio] | type[Document], data: str, media_type: str) -> Part:
    try:
        return kind.from_bytes(base64.b64decode(data, validate=True), media_type)
    except (binascii.Error, ValueError):
        return Text(f"[{kind.__name__.lower()} that could not be read]")


def checked_only(only: Iterable[str] | None, there: Mapping[str, Any]) -> list[str]:
    """The names of `only` that the server has, which must be all of them; every name without `only`."""
    if only is None:
        return list(there)
    missing = [name for name in only if name not in there]
    if missing:
        known = ", ".join(map(repr, there))
        raise ValueError(f"the MCP server has no tool {', '.join(map(repr, missing))}; it has {known}")
    return list(only)
