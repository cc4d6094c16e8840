"""The rule of state columns in every object mapper: they take bytes only, and do not show them.

Owns: that one rule. Must never know: an object mapper, a database, or the content of a blob.
"""

from __future__ import annotations

from typing import Any

from ..state.blob_header import peek

__all__ = ["StateBytes", "column_bytes"]


class StateBytes(bytes):
    """The bytes of a state. Their text form is their size: for logs, tracebacks and admin pages."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<state of {len(self)} bytes>"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)


def column_bytes(value: Any) -> StateBytes | None:
    """Convert a value for a column: to None, or to its bytes.

    Raises:
        StateFormatError: The value is text; the error names the likely damage.
        TypeError: It is neither bytes nor text.
    """
    if value is None or isinstance(value, StateBytes):
        return value
    if not isinstance(value, (bytes, bytearray, memoryview)):
        peek(value)  # raises for all that is not bytes
    return StateBytes(value)
