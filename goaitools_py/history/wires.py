"""Which dialect reads a state.

Owns: the choice between the wires that are built in and one that a caller brings. Must never know: what
it is read for.
"""

from __future__ import annotations

from ..backends.base import Dialect
from ..backends.dialects import WIRES, dialect_of
from ..errors import StateProviderError

__all__ = ["dialect_for"]


def dialect_for(wire: str, dialect: Dialect | None) -> Dialect:
    """The dialect of a state's wire; `dialect` is that of a wire which is not built in.

    Raises `StateProviderError` if there is none.
    """
    if dialect is not None and dialect.wire == wire:
        return dialect
    if dialect is not None or wire not in WIRES:
        known = dialect.wire if dialect is not None else ", ".join(WIRES)
        raise StateProviderError(
            f"the state's entries are of the wire {wire[:40]!r}, and what is here reads {known}; pass the "
            "dialect= that wrote them",
            expected=known,
            found=wire,
        )
    return dialect_of(wire)
