"""An answer that does not fit its type, and the texts for a model about it.

Owns: `Misfit`, and these texts. Must never know: pydantic, so that a turn can catch a misfit without loading
that; or how a text is sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["Misfit", "call_again_words", "problem_words", "schema_words"]

_MOST: Final = 20


class Misfit(Exception):  # noqa: N818 - the model's mistake, not a fault
    """An answer does not fit. `problems`: pairs of a field and its fault; the field "" is the whole answer.

    The names of fields may be the model's, so the exception has no text.
    """

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.problems = tuple(problems[:_MOST])


_MOST_SHOWN: Final = 10
_LONGEST: Final = 120


def schema_words(schema: Mapping[str, Any]) -> str:
    """The request to answer in JSON, with the schema."""
    written = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return (
        "Give your final answer as one JSON value that fits this JSON Schema. Write nothing else: no other "
        f"words, no code fence.\n{written}"
    )


def problem_words(problems: Sequence[tuple[str, str]]) -> str:
    """Say why an answer does not fit, and ask for another one. `problems`: pairs of a field and its fault;
    the field "" is the whole answer."""
    return "\n".join(
        (
            "The answer above does not fit what was asked for:",
            *_lines(problems),
            "Answer again, with the whole JSON value and nothing else.",
        )
    )


def call_again_words(problems: Sequence[tuple[str, str]]) -> str:
    """As `problem_words`, for an answer in the arguments of a tool's call."""
    return "\n".join(
        (
            "The answer in this call does not fit what was asked for:",
            *_lines(problems),
            "Call the tool again, with the whole answer.",
        )
    )


def _lines(problems: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f"- {field[:_LONGEST] or 'the answer'}: {problem}" for field, problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"- and {len(problems) - _MOST_SHOWN} more")
    return lines
