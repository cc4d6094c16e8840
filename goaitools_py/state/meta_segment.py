"""Write the meta data of a state as a segment, and read it again.

Owns: the bounds of the meta data's fields as they are written, and the keys of a later release. Must never
know: the meaning of a field to a turn.

The segment is one JSON object. `forward_compat` reads it once more where the strict reader refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from ..base.json_scan import is_shallow
from ..base.rawjson import RawJSONError
from . import blob as blobs
from . import forward_compat
from .blob import Kind, Segment
from .records import CutRow, Meta
from .row_codec import MAX_NAME, REFUSALS, as_json, bounded, bounded_row

__all__ = ["meta_bytes", "meta_of", "meta_segment"]

_META = msgspec.json.Decoder(Meta)
_META_KEYS = frozenset(Meta.__struct_fields__)
_META_COUNTS = ("rev", "created", "updated", "messages", "turns", "processed", "tokens")
_counts_of = attrgetter(*_META_COUNTS)


def meta_segment(meta: Meta, extras: Mapping[str, msgspec.Raw]) -> Segment:
    """Write the meta data as a segment. `extras`: the keys of a later release, byte for byte."""
    raw = as_json(_writable(meta))
    if extras:
        raw = forward_compat.with_members(raw, extras)
    return blobs.segment(Kind.META, raw, 0)


def meta_bytes(meta: Meta) -> int:
    """Count the bytes of the meta data as they are written, without the keys of a later release."""
    return len(as_json(_writable(meta)))


def _writable(meta: Meta) -> Meta:
    """Bring the meta within the bounds of its fields. Beyond them a paid turn could not be read again."""
    changes: dict[str, Any] = {}
    counts: tuple[int, ...] = _counts_of(meta)
    if (possible := bounded_row(counts)) is not counts:
        changes.update(zip(_META_COUNTS, possible, strict=True))
    if len(meta.model) > MAX_NAME:
        changes["model"] = meta.model[:MAX_NAME]
    if meta.cuts:
        changes["cuts"] = _written_rows([_bounded_cut(cut) for cut in meta.cuts], _CUT)
    if meta.turn:
        changes["turn"] = _written_rows(meta.turn, _TURN_ID)
    if meta.ring:
        changes["ring"] = _written_rows(meta.ring, _RING)
    if meta.media:
        changes["media"] = _written_rows(meta.media, _TURN_ID)
    if meta.hosts:
        changes["hosts"] = _written_rows(meta.hosts, _TURN_ID)
    return msgspec.structs.replace(meta, **changes) if changes else meta


_CUT, _TURN_ID, _RING = itemgetter(0, 1, 2, 3), itemgetter(0, 1), itemgetter(0, 1, 2, 3)
_MORE = itemgetter(-1)


def _written_rows(
    rows: Sequence[tuple[Any, ...]], short: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """Leave out the object at the end of a row where it is empty."""
    if not any(map(_MORE, rows)):  # the usual case; `map` runs in C, and a state may remember 64 ids
        return list(map(short, rows))
    return [row if row[-1] else short(row) for row in rows]


def _bounded_cut(cut: CutRow) -> CutRow:
    if min(cut.at, cut.turns, cut.messages) >= 0:
        return cut
    return cut._replace(at=bounded(cut.at), turns=bounded(cut.turns), messages=bounded(cut.messages))


def meta_of(segment: Segment) -> tuple[Meta, Mapping[str, msgspec.Raw]]:
    """Read the meta data, and the keys of a later release byte for byte."""
    raw = segment.raw()
    meta = _known(raw)
    if meta is not None:
        return meta, {}
    with suppress(RawJSONError):
        own, extras = forward_compat.split_object(raw, _META_KEYS)
        if extras and (meta := _known(own)) is not None:
            return meta, extras
    # The rest is damage, or a value of a later release, which must not count as damage: `on_bad_state`
    # would begin a fresh conversation over it.
    raise forward_compat.refused_meta(raw)


def _known(raw: bytes) -> Meta | None:
    """The meta data in an object that has only keys of this release; None if it breaks a rule."""
    # Before msgspec reads it: C reads deeper JSON than Python can write again.
    if not is_shallow(raw):
        return None
    try:
        raw.decode()  # msgspec does not check the strings inside of raw values
        meta = _META.decode(raw)
    except REFUSALS:
        return None
    ends_well = (
        (not meta.cuts or _ends_well(meta.cuts))
        and (not meta.turn or _ends_well(meta.turn))
        and (not meta.ring or _ends_well(meta.ring))
        and (not meta.media or _ends_well(meta.media))
        and (not meta.hosts or _ends_well(meta.hosts))
    )
    return meta if ends_well else None


def _ends_well(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Tell whether each row ends with its own elements, as almost always, or with one object behind them."""
    if not any(map(_MORE, rows)):
        return True
    return all(not row[-1] or forward_compat.is_object(row[-1]) for row in rows)
