"""How far a tool is, in the members that all front ends share.

Owns: these members. Must never know: a front end's protocol.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from ..types.events import ToolProgress

__all__ = ["progress_of"]


def progress_of(event: ToolProgress) -> dict[str, Any]:
    """Write a report. A number that JSON does not have, such as infinity, is None."""
    return {
        "progress": _number(event.progress),
        "total": _number(event.total),
        "message": event.message,
    }


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
