"""An answer that does not fit its type.

Owns: `Misfit`. Must never know: pydantic, so that a turn can catch it without loading that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["Misfit"]

_MOST: Final = 20


class Misfit(Exception):  # noqa: N818 - the model's mistake, not a fault
    """An answer does not fit. `problems`: pairs of a field and its fault; the field "" is the whole answer.

    The names of fields may be the model's, so the exception has no text.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.problems = tuple(problems[:_MOST])
