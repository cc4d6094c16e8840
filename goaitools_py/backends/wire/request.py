"""The parts of a request that several provider APIs write in the same way.

Owns: media, tools, the cache key, the merge of a caller's `extra_body`, the body's bytes, and the same parts
for another endpoint, for example to count tokens. Must never know: a role, a reply, a provider API's own
members.

The rule for `extra_body`:

1. A member of `extra_body` wins over the setting that writes the same member.
2. None leaves the member out of the request, also if a setting wrote it.
3. The objects in `MERGED` are merged, one level deep: a setting gives one part of them and `extra_body`
   another. Where both give the same key, `extra_body` wins. Every other object is replaced as a whole,
   because most of them are variants with a ``type``, and a mixture of two variants is not valid.
4. Items that a dialect needs in a list stay in it, behind the caller's.
5. A member that would take over the history, the way of answering, or the conversation's state is a
   `ValueError`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ...base import rawjson
from ...base.rawjson import RawJSONError
from ...base.values import Value, replace
from ...types.messages import Audio, Document, Image
from ...types.render import user_text
from ...types.request_parts import ProviderTool, ToolSpec
from ..base import ModelRequest, ProtocolFault, RequestParts
from ..capabilities import capabilities

__all__ = [
    "MERGED",
    "TOOL_CHOICES",
    "WRITTEN_HERE",
    "Refused",
    "body_of",
    "cache_key",
    "check_cache_key",
    "check_context_edits",
    "check_image",
    "count_of",
    "cut_down",
    "encoded",
    "file_name",
    "image_problem",
    "inline_url",
    "joined",
    "placeholder",
    "sets_breakpoint",
    "tool_list",
    "with_breakpoint",
    "with_extra",
]

_BETWEEN: Final = b",\n"

_MAX_CACHE_KEY: Final = 64
"""The longest `prompt_cache_key`. OpenAI and Azure answer 400 to a longer one
(theopenco/llmgateway#3110)."""

TOOL_CHOICES: Final = frozenset({"auto", "none", "required"})
"""The values of `tool_choice` that do not name a tool."""


# --------------------------------------------------------------------------------------------- media


_IMAGE_TYPES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The pictures that Anthropic and OpenAI take (anthropic 2.14, types/base64_image_source_param; OpenAI's 400:
"Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp']")."""


def image_problem(part: Image, wire: str, *, is_strict: bool) -> str:
    """Why a provider API does not take a picture's bytes; "" if it does, or if they are not there.

    `is_strict`: True for the provider itself. A compatible server may take other pictures.
    """
    kind = part.media_type.partition(";")[0].strip().lower()
    if part.data is None or kind in _IMAGE_TYPES or (kind.startswith("image/") and not is_strict):
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
    encoded = [rawjson.dumps(function(_in_common_form(tool))) for tool in functions]
    encoded += sorted(hosted, key=lambda raw: hashlib.sha256(raw).digest())
    return b"[" + b",".join(encoded) + b"]" if encoded else b""


def _in_common_form(tool: ToolSpec) -> ToolSpec:
    from .tool_schema import common_parameters  # a list of tools is written once, and many chats have none

    parameters = common_parameters(tool.parameters)
    return tool if parameters is tool.parameters else replace(tool, parameters=parameters)


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


MERGED: Final = frozenset({"reasoning", "thinking", "output_config", "text"})
"""Objects with a part that an option writes: `reasoning_effort`, `thinking_budget_tokens`, `output_type`."""


class Refused(Value, frozen=True):
    """Why a member may not be set, and the values that are allowed nevertheless."""

    why: str
    but: tuple[Any, ...] = ()


WRITTEN_HERE: Final = Refused("the chat writes it itself")


def with_extra(
    values: Mapping[str, Any],
    extra: Mapping[str, Any],
    *,
    refused: Mapping[str, Refused],
    needed: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any]:
    """The members that settings write, with `extra_body` merged in. None: leave the member out.

    Args:
        values: Members that settings write, by name.
        extra: The caller's `extra_body`.
        refused: Members that `extra_body` may not set.
        needed: Items that a request always has, as a list for each member.

    Raises:
        ValueError: `extra_body` sets a member that it may not set.
        TypeError: The value in `extra_body` for one of `needed` is not a list.
    """
    for key, refusal in refused.items():
        if key in extra and extra[key] not in refusal.but:
            raise ValueError(f"extra_body cannot set {key!r}: {refusal.why}")
    merged = dict(values)
    for key, value in extra.items():
        ours = values.get(key)
        if key in MERGED and isinstance(value, Mapping) and isinstance(ours, Mapping):
            merged[key] = {**ours, **value}
        else:
            merged[key] = value
    for key, items in (needed or {}).items():
        given = merged.get(key)
        if given is None:
            given = ()
        elif not isinstance(given, (list, tuple)):
            raise TypeError(f"{key!r} in extra_body must be a list, not {type(given).__name__}")
        merged[key] = [*given, *(item for item in items if item not in given)]
    return merged


def encoded(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Each member as JSON; b"", which `body_of` leaves out, for None."""
    return {key: b"" if value is None else rawjson.dumps(value) for key, value in values.items()}


def cut_down(request: ModelRequest, path: str, members: Collection[str]) -> ModelRequest:
    """The request for another path, with only these members. The bytes of their values do not change."""
    kept = (
        rawjson.dumps(name) + b":" + value
        for name, value in rawjson.members(request.body).items()
        if name in members
    )
    return replace(request, path=path, body=b"{" + b",".join(kept) + b"}", stream=False)


def count_of(body: bytes) -> int:
    """The number in an answer such as ``{"input_tokens": 14}``. Raises `ProtocolFault`."""
    try:
        found = rawjson.view(body)
    except RawJSONError:
        found = None
    count = found.get("input_tokens") if isinstance(found, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ProtocolFault("the response to a count is not an object with input_tokens")
    return count


def check_context_edits(family: str, known: Collection[str]) -> None:
    """Raise `ValueError` for a host that is not known to edit contexts; most would ignore the request."""
    if family not in known:
        raise ValueError(
            f"the server {family!r} is not known to have context_management; leave the setting out and use a "
            "compactor, or, if the server has it, send its own member by extra_body"
        )
