"""Tools: functions that a model may call, their schemas, their results, and one call of one of them.

Owns: everything about a tool by itself. Must never know: the engine, a provider's wire, a state.

`definition` says what a tool is, `signature` and `schema` derive it from a function, `arguments` reads what
the model wrote, `call` runs it, `results` writes what it returned, `context` is what it is told meanwhile.
"""

from __future__ import annotations

from .arguments import BadArguments
from .call import Outcome, begin_call, finish_call, run_call
from .context import Action, ToolContext
from .definition import Tool, as_tools, external_tool, refuse_async, refuse_without_deps, tool
from .results import MAX_RESULT_BYTES, MAX_RESULT_MEDIA_BYTES, ToolReturn, result_parts

__all__ = [
    "MAX_RESULT_BYTES",
    "MAX_RESULT_MEDIA_BYTES",
    "Action",
    "BadArguments",
    "Outcome",
    "Tool",
    "ToolContext",
    "ToolReturn",
    "as_tools",
    "begin_call",
    "external_tool",
    "finish_call",
    "refuse_async",
    "refuse_without_deps",
    "result_parts",
    "run_call",
    "tool",
]
