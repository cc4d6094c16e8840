"""The parts of a request that several provider APIs write in the same way: media, tools, cache key, body.

Owns: the bytes that do not depend on the provider API. Must never know: a role, a reply.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ...base import rawjson
from ...types.messages import Audio, Document, Image
from ...types.render import user_text
from ...types.request_parts import ProviderTool, ToolSpec
from ..base import RequestParts
from ..capabilities import capabilities

__all__ = [
    "IMAGE_TYPES",
    "TOOL_CHOICES",
    "body_of",
    "cache_key",
    "check_cache_key",
    "check_image",
    "file_name",
    "image_problem",
    "inline_url",
    "joined",
    "placeholder",
    "sets_breakpoint",
    "tool_list",
    "with_breakpoint",
]

_BETWEEN: Final = b",\n"

_MAX_CACHE_KEY: Final = 64
"""The longest `prompt_cache_key`. OpenAI and Azure answer 400 to a longer one
(theopenco/llmgateway#3110)."""

TOOL_CHOICES: Final = frozenset({"auto", "none", "required"})
"""The values of `tool_choice` that do not name a tool."""


# --------------------------------------------------------------------------------------------- media


IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The pictures that Anthropic and OpenAI take (anthropic 2.14, types/base64_image_source_param; OpenAI's 400:
"Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']")."""


def image_problem(part: Image, wire: str, *, is_strict: bool) -> str:
    """Why a provider API does not take a picture's bytes; "" if it does, or if they are not there.

    `is_strict`: True for the provider itself. A compatible server may take other pictures.
    """
    kind = part.media_type.partition(";")[0].strip().lower()
    if part.data is None or kind in IMAGE_TYPES or (kind.startswith("image/") and not is_strict):
        return ""
    return f"the provider API {wire!r} takes JPEG, PNG, GIF and WebP images, not {part.media_type}"


def check_image(part: Image, wire: str, *, is_strict: bool) -> None:
    """Raise `ValueError` for a picture that the provider does not take, with the text of `image_problem`."""
    if why := image_problem(part, wire, is_strict=is_strict):
        raise ValueError(why)


def file_name(part: Document) -> str:
    """The document's name, or one made from its type, because these provider APIs need a file name."""
    import mimetypes  # most programs send text only

    return user_text(part.name or "document" + (mimetypes.guess_extension(part.media_type) or ""))


def inline_url(part: Image | Document) -> str:
    """The part's bytes as a ``data:`` URL."""
    return f"data:{part.media_type};base64,{part.base64()}"


def placeholder(part: Image | Document | Audio, why: str) -> str:
    """A line of text that replaces a part which the provider API does not take."""
    return user_text(f"[{type(part).__name__.lower()} {part.media_type}: {why}]")


# --------------------------------------------------------------------------------------------- tools


def tool_list(
    tools: Sequence[ToolSpec | ProviderTool], function: Callable[[ToolSpec], dict[str, Any]]
) -> bytes:
    """Write the tool list; b"" without tools.

    Functions come first, sorted by name. Provider tools follow, sorted by the digest of their JSON. The keys
    of a schema keep their order, because the model reads them in that order.

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
    """Derive a key of fixed length from the conversation's id. It does not reveal the id."""
    return "gas-" + hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def check_cache_key(key: str) -> None:
    """Raise `ValueError` for a key that the server would refuse."""
    if len(key) > _MAX_CACHE_KEY:
        raise ValueError(f"prompt_cache_key takes {_MAX_CACHE_KEY} characters at most; got {len(key)}")


def sets_breakpoint(parts: RequestParts, family: str) -> bool:
    """True if the request should end a cached prefix after its preamble: at OpenAI itself, for models with
    breakpoints, and while the cache can be read before it expires."""
    return family == "openai" and parts.cache_marks and capabilities(parts.model).reads_breakpoints


def with_breakpoint(preamble: bytes, kind: str) -> bytes:
    """The sent copy of a preamble, with a breakpoint at the end of its last message.

    Newer models find a prefix in the cache only if it ends at a breakpoint. They set one near the newest
    message themselves; after a cut only this one is found (developers.openai.com, prompt caching).

    Args:
        preamble: Joined entries.
        kind: The type of a text part on this provider API.
    """
    before, joint, last = preamble.rpartition(_BETWEEN)
    message = rawjson.loads(last)
    if not isinstance(message.get("content"), str):
        return preamble
    text = {"type": kind, "text": message["content"], "prompt_cache_breakpoint": {"mode": "explicit"}}
    return before + joint + rawjson.dumps({**message, "content": [text]})


# -------------------------------------------------------------------------------------------- bodies


def joined(entries: Iterable[bytes]) -> bytes:
    """Join entries into one piece of history."""
    return _BETWEEN.join(entries)


_name = lru_cache(maxsize=256)(rawjson.dumps)
"""A member's name as JSON. Cached, because every request has the same few names."""


def body_of(members: Mapping[str, bytes], history: Iterable[bytes], *, key: str) -> bytes:
    """Write the body with one join. A member with the value b"" is left out.

    Args:
        members: The JSON of each member, in the order of the body. The value of `key` is ignored.
        history: Pieces of history; they are not read.
        key: The member that holds the history as an array.
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
