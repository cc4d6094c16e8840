"""Which dialect reads a state.

Owns: the choice between a built-in dialect and a dialect of the caller. Must never know: why the state is
read.
"""

from __future__ import annotations

from ..backends.base import Dialect
from ..backends.dialects import WIRES, dialect_of
from ..types.errors import StateProviderError

__all__ = ["dialect_for", "known_dialect"]


def dialect_for(wire: str, dialect: Dialect | None) -> Dialect:
    """The dialect of a state's provider API. `dialect`: for a provider API that is not built in.

    Raises `StateProviderError` if neither `dialect` nor a built-in dialect fits.
    """
    if dialect is not None and dialect.wire == wire:
        return dialect
    if dialect is not None or wire not in WIRES:
        known = dialect.wire if dialect is not None else ", ".join(WIRES)
        raise StateProviderError(
            f"the state's entries are of the wire {wire[:40]!r}, and the dialects at hand read {known}; pass "
            "the dialect= that wrote them",
            expected=known,
            found=wire,
        )
    return dialect_of(wire)


def known_dialect(wire: str) -> Dialect | None:
    """The dialect of a built-in provider API; None for another name."""
    return dialect_of(wire) if wire in WIRES else None
