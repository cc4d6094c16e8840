"""A writer of "version 1.1": a blob of this release with a name that it does not know in every place.

Owns: which places there are, and how each looks with something new in it. Must never know: the package's
code; it reads and seals with the second reader and writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _second
from ._second import SecondSegment

__all__ = ["SEGMENTS", "VALUE", "body_of", "columns", "resealed", "rewritten", "said", "written_by_later"]

VALUE = rb'[1e5,1E+2,-0.0,{"a\u0062": "\u00e9\ud83d\ude00", "a":1 },123456789012345678901]'
"""JSON that no parser and writer gives back as it is: it survives only as bytes."""

SEGMENTS = [SecondSegment(40, 0, b"\x00\xff\n anything"), SecondSegment(40, 3, b"x" * 700)]
SEGMENTS.append(SecondSegment(63, 0, b"{}"))
"""Segments that a release which does not know them carries."""

_MARK = "\ue000@@"


def body_of(segments: Sequence[SecondSegment]) -> bytes:
    """A body that stores every segment as it is."""
    return b"".join(
        b"".join(map(_second.leb128, (each.kind, len(each.raw), len(each.raw), each.entries))) + each.raw
        for each in segments
    )


def resealed(
    segments: Sequence[SecondSegment],
    suite: int = 0,
    secret: bytes = b"",
    binding: Mapping[str, str] | None = None,
) -> bytes:
    """The segments in a blob with a fitting seal."""
    header = _second.header_of(suite, 2, sum(len(each.raw) for each in segments), secret)
    return _second.sealed(header, body_of(segments), secret, binding)


def columns(segment: SecondSegment) -> Any:
    """The last line of a segment as a list of rows; of an open turn its one object."""
    line = segment.raw.rpartition(b"\n")[2]
    return json.loads(line if segment.kind == 4 else b"[" + line + b"]")


def said(segment: SecondSegment) -> bytes:
    """The entries of a segment, joined."""
    return segment.raw.rpartition(b"\n")[0]


def rewritten(segment: SecondSegment, change: Callable[[Any], Any]) -> SecondSegment:
    """A segment with another last line, or a meta with other members. `_MARK` becomes `VALUE`."""
    if segment.kind == 0:
        return segment._replace(raw=_text(change(json.loads(segment.raw))))
    line = _text(change(columns(segment)))
    if segment.kind != 4:
        line = line[1:-1]
    return segment._replace(raw=said(segment) + b"\n" + line)


def _text(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return text.replace(json.dumps(_MARK, ensure_ascii=False).encode(), VALUE)


def written_by_later(segments: Sequence[SecondSegment]) -> list[SecondSegment]:
    """The segments with an unknown name in every place that allows one, and segments of later kinds."""
    return [*(rewritten(each, _CHANGES[each.kind]) for each in segments), *SEGMENTS]


def _ended(row: Any, name: str) -> Any:
    """The row with one more name in the object at its end."""
    if row and isinstance(row[-1], dict):
        return [*row[:-1], {**row[-1], name: _MARK}]
    return [*row, {name: _MARK}]


def _meta(meta: Any) -> Any:
    rows = {name: [_ended(row, f"new_{name}") for row in meta.get(name, ())] for name in _META_ROWS}
    return {**meta, **{name: found for name, found in rows.items() if found}, "new_meta": _MARK}


_META_ROWS = ("cuts", "turn", "ring")


def _iteration(row: Any) -> Any:
    return _ended(row, "new_iteration")


def _turns(rows: Any) -> Any:
    return [
        [
            at,
            count,
            [_iteration(one) for one in iterations],
            {**dict(*facts), "new_fact": _MARK},
        ]
        for at, count, iterations, *facts in rows
    ]


def _inbox(rows: Any) -> Any:
    return [_ended(row, "new_inbox") for row in rows]


def _open(row: Any) -> Any:
    calls = [
        {
            **call,
            **({"parts": [{**part, "new_part": _MARK} for part in call["parts"]]} if "parts" in call else {}),
            "new_call": _MARK,
        }
        for call in row.get("calls", ())
    ]
    return {
        **row,
        "iterations": [_iteration(one) for one in row.get("iterations", ())],
        "facts": {**row.get("facts", {}), "new_fact": _MARK},
        **({"calls": calls} if calls else {}),
        "new_open": _MARK,
    }


_CHANGES: Mapping[int, Callable[[Any], Any]] = {0: _meta, 1: _turns, 2: _turns, 3: _inbox, 4: _open}
