"""Members of replies that no type of OpenAI has: content of an impossible shape, and sources beside the text.

Owns: the replacement for a content that is neither text nor a list of parts, and the places and shapes of the
lists of sources. Must never know: messages, roles or items.

No provider documents these replies, but gateways and servers under development send them. Every later request
with one of them would be refused, so the content is changed, always in the same way:

================================= =========================================================
received                          stored
================================= =========================================================
a number, a boolean, an object    its JSON as text
a list with strings in it         a text part for each of them
an object without a type          a text part of its ``text``, or of its JSON
a text part without text          the same part with the JSON of its ``text``, or ``""``
null in a list                    nothing
================================= =========================================================

Sources that a server names beside a reply, or in a member that only this server has:

========================== ===================================================================================
``citations``              addresses, in the order of the marks ``[1]``, ``[2]`` in the text, at the top:
                           Perplexity, xAI (in Responses too)
``search_results``         objects with ``url``, ``title``, ``snippet``, at the top: Perplexity
``web_search``             objects with ``link``, ``title``, ``content``, at the top: Zhipu
``executed_tools``         calls that Groq's compound models have run, in the message: the pages in
                           ``search_results.results`` and ``browser_results`` have ``url`` and ``title``
========================== ===================================================================================

Sources: the references of Perplexity, xAI, Z.ai and Groq (groq-python 0681348, types/chat), 2026-11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ...base import rawjson
from ...types.citations import Citation, citation_of
from ..wire.tolerance import as_dict, as_str

__all__ = ["BESIDE", "cited", "has_odd_content", "mended_content"]

_WORDS: Final = {"text": "text", "output_text": "text", "refusal": "refusal"}
"""The member that holds the text of a part, by the part's type."""


def has_odd_content(content: Any) -> bool:
    """True for content that is not null, text, or a list of typed parts."""
    if content is None or isinstance(content, str):
        return False
    return not isinstance(content, list) or any(map(_is_odd, content))


def mended_content(raw: bytes, *, text_type: str) -> bytes:
    """The content that replaces an odd one. `text_type`: the type of text parts on this provider API.

    Raises:
        RawJSONError: The content is not JSON.
    """
    if not raw.startswith(b"["):
        return rawjson.dumps(raw.decode())
    parts = [_mended(part, rawjson.view(part), text_type) for part in rawjson.items(raw)]
    return _list(part for part in parts if part)


def _is_odd(part: Any) -> bool:
    if not isinstance(part, dict):
        return True
    kind = part.get("type")
    if not isinstance(kind, str) or not kind:
        return True
    return kind in _WORDS and not isinstance(part.get(_WORDS[kind]), str)


def _mended(raw: bytes, part: Any, text_type: str) -> bytes:
    if part is None or not _is_odd(part):
        return b"" if part is None else raw
    if not isinstance(part, dict):
        return _text_part(raw if isinstance(part, str) else rawjson.dumps(raw.decode()), text_type)
    members = rawjson.members(raw)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _WORDS:
        words = members.get(_WORDS[kind], b'""')
        text = words if words == b'""' or rawjson.is_null(words) else rawjson.dumps(words.decode())
        return rawjson.replaced(raw, {_WORDS[kind]: b'""' if rawjson.is_null(text) else text})
    text = members["text"] if isinstance(part.get("text"), str) else rawjson.dumps(raw.decode())
    return _text_part(text, text_type)


def _text_part(text: bytes, text_type: str) -> bytes:
    return b'{"type":%s,"text":%s}' % (rawjson.dumps(text_type), text)


def _list(parts: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(parts) + b"]"


BESIDE: Final = ("citations", "search_results", "web_search")
"""The members beside the message that name sources."""

_MOST: Final = 256
"""The largest number of sources that are read from one list."""


def cited(beside: Mapping[str, bytes], executed: object = None) -> tuple[Citation, ...]:
    """The sources, each address once, in the order of the marks in the text.

    Args:
        beside: The raw lists of `BESIDE` that came.
        executed: The value of ``executed_tools``.
    """
    found: dict[str, Citation] = {}
    for raw in _items(beside.get("citations", b"")):
        page = rawjson.view_or_none(raw)
        page = {"url": page} if isinstance(page, str) else as_dict(page)
        _add(found, page, kind="citation", raw=raw)
    for name in BESIDE[1:]:
        for raw in _items(beside.get(name, b"")):
            _add(found, as_dict(rawjson.view_or_none(raw)), kind="search_result", raw=raw)
    for page in _executed(executed):
        _add(found, {**page, "content": None}, kind="search_result")  # the content is a whole page
    return tuple(found.values())


def _add(found: dict[str, Citation], page: Mapping[str, Any], *, kind: str, raw: bytes | None = None) -> None:
    """Add a source. A page with a title takes the place of the bare address."""
    url = as_str(page.get("url")) or as_str(page.get("link"))
    if not url or (url in found and found[url].title is not None):
        return
    said = {"title": page.get("title"), "cited_text": page.get("snippet") or page.get("content")}
    one = citation_of({"type": kind, "url": url, **said}, raw=raw)
    if one is not None:
        found[url] = one


def _items(raw: bytes) -> Iterable[bytes]:
    try:
        return rawjson.items(raw)[:_MOST] if raw.startswith(b"[") else ()
    except rawjson.RawJSONError:
        return ()


def _executed(calls: object) -> Iterator[dict[str, Any]]:
    for call in map(as_dict, calls) if isinstance(calls, list) else ():
        for results in (as_dict(call.get("search_results")).get("results"), call.get("browser_results")):
            yield from map(as_dict, results[:_MOST] if isinstance(results, list) else ())
