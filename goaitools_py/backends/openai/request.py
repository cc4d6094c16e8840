"""What requests of both OpenAI wires write alike: media, the tool list, the cache key, the spliced body.

Owns: the bytes that do not depend on which of the two wires it is. Must never know: a role, an answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ... import rawjson
from ...messages import Audio, Document, Image
from ...render import user_text
from ..base import ProviderTool, RequestParts, ToolSpec
from ..capabilities import capabilities

__all__ = [
    "TOOL_CHOICES",
    "body_of",
    "cache_key",
    "check_cache_key",
    "file_name",
    "inline_url",
    "joined",
    "placeholder",
    "sets_breakpoint",
    "tool_list",
    "with_breakpoint",
]

_BETWEEN: Final = b",\n"

_MAX_CACHE_KEY: Final = 64
"""Characters of a `prompt_cache_key`; OpenAI and Azure answer 400 to more (theopenco/llmgateway#3110)."""

TOOL_CHOICES: Final = frozenset({"auto", "none", "required"})
"""Choices that are no tool's name."""


# --------------------------------------------------------------------------------------------- media


def file_name(part: Document) -> str:
    """The document's name, or one made of its type: a file needs one on these wires."""
    import mimetypes  # most programs send text only

    return user_text(part.name or "document" + (mimetypes.guess_extension(part.media_type) or ""))


def inline_url(part: Image | Document) -> str:
    """The part's bytes as a ``data:`` URL."""
    return f"data:{part.media_type};base64,{part.base64()}"


def placeholder(part: Image | Document | Audio, why: str) -> str:
    """A line of text in place of a part that the wire has no room for."""
    return user_text(f"[{type(part).__name__.lower()} {part.media_type}: {why}]")


# --------------------------------------------------------------------------------------------- tools


def tool_list(
    tools: Sequence[ToolSpec | ProviderTool], function: Callable[[ToolSpec], dict[str, Any]]
) -> bytes:
    """Write the tool list; b"" for none.

    Functions come first, by name; provider tools follow, by digest of their sorted JSON. The order of a
    schema's own keys is its author's and is kept: it is the order in which a model reads them.

    Args:
        tools: In any order.
        function: Writes one function tool.
    """
    functions = sorted((tool for tool in tools if isinstance(tool, ToolSpec)), key=lambda tool: tool.name)
    hosted = (_sorted_json(tool.raw) for tool in tools if isinstance(tool, ProviderTool))
    encoded = [rawjson.dumps(function(tool)) for tool in functions]
    encoded += sorted(hosted, key=lambda raw: hashlib.sha256(raw).digest())
    return b"[" + b",".join(encoded) + b"]" if encoded else b""


def _sorted_json(raw: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(raw), sort_keys=True, separators=(",", ":")).encode()


# ----------------------------------------------------------------------------------------- cache key


def cache_key(conversation_id: str) -> str:
    """A key as stable as the conversation's id, of a fixed length, that does not tell the id."""
    return "gas-" + hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def check_cache_key(key: str) -> None:
    """Refuse a key that the server would refuse. Raises `ValueError`."""
    if len(key) > _MAX_CACHE_KEY:
        raise ValueError(f"prompt_cache_key takes {_MAX_CACHE_KEY} characters at most; got {len(key)}")


def sets_breakpoint(parts: RequestParts, family: str) -> bool:
    """Whether this request ends a cached prefix behind its preamble: at OpenAI itself, for models that know
    such, and not for a cache that nobody will read in time."""
    return family == "openai" and parts.cache_marks and capabilities(parts.model).reads_breakpoints


def with_breakpoint(preamble: bytes, kind: str) -> bytes:
    """The sent copy of a preamble, whose last message says that a cached prefix may end with it.

    Newer models find nothing in the cache but what ends at a breakpoint, and set one near the newest message
    by themselves: behind a cut it is this one alone that is found (developers.openai.com, prompt caching).

    Args:
        preamble: Entries, joined.
        kind: The wire's name of a part that is text.
    """
    before, joint, last = preamble.rpartition(_BETWEEN)
    message = rawjson.loads(last)
    if not isinstance(message.get("content"), str):
        return preamble
    text = {"type": kind, "text": message["content"], "prompt_cache_breakpoint": {"mode": "explicit"}}
    return before + joint + rawjson.dumps({**message, "content": [text]})


# -------------------------------------------------------------------------------------------- bodies


def joined(entries: Iterable[bytes]) -> bytes:
    """Entries as one piece of history."""
    return _BETWEEN.join(entries)


_name = lru_cache(maxsize=256)(rawjson.dumps)
"""A member's name as JSON: every request has the same few."""


def body_of(members: Mapping[str, bytes], history: Iterable[bytes], *, key: str) -> bytes:
    """Write the body with one join; a member without a value is left out.

    Args:
        members: Each member's JSON, in the order in which they are to stand.
        history: Pieces of history, unread; they stand in the array `key`, where `members` names it.
        key: The member that holds the history.
    """
    pieces: list[bytes] = []
    for name, value in members.items():
        if name == key:
            pieces += (b",", _name(key), b":[", *_spliced(history), b"]")
        elif value:
            pieces += (b",", _name(name), b":", value)
    pieces[0] = b"{"
    return b"".join((*pieces, b"}"))


def _spliced(pieces: Iterable[bytes]) -> list[bytes]:
    spliced: list[bytes] = []
    for piece in pieces:
        if piece:
            spliced += (_BETWEEN, piece)
    return spliced[1:]
