"""Provisional. Typed answers: the values of `output_type=`, and their options.

Owns: the public names. Must never know: a turn, a provider API. Nothing of pydantic is imported until a type
is used.
"""

from __future__ import annotations

from ..types.errors import OutputError
from ..types.events import OutputDelta
from .spec import Output

__all__ = ["Output", "OutputDelta", "OutputError"]
