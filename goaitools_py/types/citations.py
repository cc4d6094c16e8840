"""The sources that a reply names: pages, files and documents that the provider's search found.

Owns: `Citation`, and reading the providers' own objects. Must never know: where a reply holds them.

Shapes: ``annotations`` of OpenAI Chat Completions (``{"type": "url_citation", "url_citation": {…}}``) and of
Responses (members beside ``type``), ``citations`` of Anthropic's text blocks (openai 3.54, anthropic 1.11).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.values import Value, replace
from .render import valid_text

__all__ = ["Citation", "citation_of", "citations_of_rows", "rows_of_citations", "shifted"]

_MOST = 256
"""The number of citations of one reply that are kept."""


class Citation(Value, frozen=True, kw_only=True):
    """One source of a reply.

    Attributes:
        kind: The provider's word for it, such as "url_citation" or "char_location".
        url: The address; None for a source without one.
        title: The title of a page or document, or the name of a file.
        start: Where the passage that relies on the source begins in the reply's text, in characters. None if
            the provider does not say.
        end: Where the passage ends, exclusive.
        quoted: The source's own words, if the provider quotes them.
        raw: The provider's JSON, if the stored message cannot hold it (Chat Completions). Else None, because
            it is in `Message.raw`.
    """

    _unshown = frozenset({"url", "title", "quoted", "raw"})

    kind: str
    url: str | None = None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    quoted: str | None = None
    raw: bytes | None = None


def citation_of(
    given: object,
    *,
    start: int | None = None,
    end: int | None = None,
    offset: int = 0,
    raw: bytes | None = None,
) -> Citation | None:
    """Read a provider's citation object; None if it is not one.

    Args:
        given: The object as Python values.
        start: Where the passage begins, if the object itself does not say it.
        end: Where the passage ends.
        offset: Characters of the reply's text before the text in which the object counts.
        raw: The object's bytes, if they are kept.
    """
    if not isinstance(given, Mapping) or not isinstance(kind := given.get("type"), str) or not kind:
        return None
    inner = given.get(kind)
    body = inner if isinstance(inner, Mapping) else given
    if start is None:
        start, end = _place(body.get("start_index"), offset), _place(body.get("end_index"), offset)
    return Citation(
        kind=valid_text(kind),
        url=_text(body, "url", "source"),
        title=_text(body, "title", "document_title", "filename", "name"),
        start=start,
        end=end,
        quoted=_text(body, "cited_text", "content"),
        raw=raw,
    )


def _text(body: Mapping[str, Any], *keys: str) -> str | None:
    return next(
        (valid_text(value) for key in keys if isinstance(value := body.get(key), str) and value), None
    )


def _place(value: object, offset: int) -> int | None:
    return value + offset if type(value) is int and 0 <= value < 2**53 else None


def shifted(citations: Iterable[Citation], by: int) -> tuple[Citation, ...]:
    """Move the citations' places by this number of characters."""
    return tuple(
        replace(
            one,
            start=None if one.start is None else one.start + by,
            end=None if one.end is None else one.end + by,
        )
        for one in citations
    )


def rows_of_citations(citations: Sequence[Citation], *, reply: int) -> list[dict[str, Any]]:
    """The citations as a turn's facts store them. `reply` is the index of the reply in the turn, from 0."""
    return [{"reply": reply, **_row(one)} for one in citations[:_MOST]]


def _row(one: Citation) -> dict[str, Any]:
    raw = None if one.raw is None else one.raw.decode("utf-8", "replace")
    row = {"kind": one.kind, "url": one.url, "title": one.title, "start": one.start, "end": one.end}
    return {
        name: value for name, value in {**row, "quoted": one.quoted, "raw": raw}.items() if value is not None
    }


def citations_of_rows(rows: object) -> tuple[Citation, ...]:
    """The citations in a turn's facts. A row that is not a citation is left out."""
    found: list[Citation] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("kind"), str):
            raw = _text(row, "raw")
            found.append(
                Citation(
                    kind=row["kind"],
                    url=_text(row, "url"),
                    title=_text(row, "title"),
                    start=_place(row.get("start"), 0),
                    end=_place(row.get("end"), 0),
                    quoted=_text(row, "quoted"),
                    raw=None if raw is None else raw.encode(),
                )
            )
    return tuple(found)
