"""The bounds of stored numbers and names.

Owns: these bounds, as types for the reader and as functions for the writer. Must never know: which record has
a number.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

__all__ = [
    "MAX_COUNT",
    "MAX_LABEL",
    "MAX_NAME",
    "Amount",
    "Count",
    "Label",
    "Name",
    "bounded",
    "bounded_row",
]


MAX_COUNT: Final = 2**53
"""The largest stored number. Every JSON reader reads whole numbers up to this one exactly."""
MAX_LABEL: Final = 64
MAX_NAME: Final = 256
# msgspec enforces these bounds when it reads a state. The writer cuts each value to them.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MAX_COUNT)]
Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


def bounded(count: int) -> int:
    """Bring a count within 0 and `MAX_COUNT`. A provider, or a clock that was set back, gives any number."""
    return count if 0 <= count <= MAX_COUNT else min(max(count, 0), MAX_COUNT)


def bounded_row(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Apply `bounded` to each of one or more counts. The same tuple if all are within the bounds."""
    if min(counts) >= 0 and max(counts) <= MAX_COUNT:
        return counts
    return tuple(map(bounded, counts))
