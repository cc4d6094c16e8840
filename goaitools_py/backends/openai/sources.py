"""Reads the sources that a server names beside a reply, or in a member that only this server has.

Owns: the places and shapes of these lists. Must never know: the stored form of the message.

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

__all__ = ["BESIDE", "cited"]

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
        page = _view(raw)
        page = {"url": page} if isinstance(page, str) else as_dict(page)
        _add(found, page, kind="citation", raw=raw)
    for name in BESIDE[1:]:
        for raw in _items(beside.get(name, b"")):
            _add(found, as_dict(_view(raw)), kind="search_result", raw=raw)
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


def _view(raw: bytes) -> Any:
    try:
        return rawjson.view(raw)
    except rawjson.RawJSONError:
        return None


def _executed(calls: object) -> Iterator[dict[str, Any]]:
    for call in map(as_dict, calls) if isinstance(calls, list) else ():
        for results in (as_dict(call.get("search_results")).get("results"), call.get("browser_results")):
            yield from map(as_dict, results[:_MOST] if isinstance(results, list) else ())
