"""The answer as a call of a tool: for servers that know tools, and no format for answers.

Owns: that tool. Must never know: a state, a turn.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, Final

from ..tools import Tool
from ..types.errors import ToolError
from .misfit import Misfit
from .shape import Shape
from .spec import Output
from .words import call_again_words

__all__ = ["answer_tool"]

_DESCRIPTION: Final = (
    "Give your final answer with this tool, once, when you are done with all else. The arguments are the "
    "answer."
)


def answer_tool(asked: Output[Any], shape: Shape) -> Tool[..., Any]:
    """Make the tool that the model answers with. An answer that does not fit is an error of the call. The
    model reads the error."""
    name = asked.name or "final_answer"

    def run(**arguments: Any) -> Any:
        try:
            value = shape.read(json.dumps(arguments))
        except Misfit as misfit:
            raise ToolError(call_again_words(misfit.problems)) from None
        return _checked(asked.validate, value)

    # It changes nothing outside, so it may run again, and needs no thread.
    return Tool(name, _DESCRIPTION, shape.schema, run, idempotent=True, thread=False)


def _checked(check: Callable[[Any], object] | None, value: Any) -> Any:
    if check is None:
        return "Taken."
    try:
        found = check(value)
    except ValueError as exc:
        raise ToolError(call_again_words([("", str(exc))])) from None
    return _awaited(found) if inspect.isawaitable(found) else "Taken."


async def _awaited(found: Any) -> str:
    try:
        await found
    except ValueError as exc:
        raise ToolError(call_again_words([("", str(exc))])) from None
    return "Taken."
