"""Tools: functions that a model may call, their schemas, their calls and their results.

Owns: everything about a single tool. Must never know: the engine, a provider API, a state.

`definition` has the class of a tool. `signature` and `schema` derive it from a function. `arguments` reads
the model's text, `call` runs the function and writes the returned value, and `tool_context` has the object
that the function gets for the call.
"""

from __future__ import annotations

from ..types.answers import ToolReturn
from .arguments import BadArguments
from .call import (
    MAX_RESULT_MEDIA_BYTES,
    CallOutcome,
    begin_call,
    finish_call,
    result_parts,
    run_call,
)
from .definition import Tool, as_tools, external_tool, refuse_async, refuse_without_deps, tool
from .tool_context import MAX_RESULT_BYTES, Action, ToolContext, Waiting

__all__ = [
    "MAX_RESULT_BYTES",
    "MAX_RESULT_MEDIA_BYTES",
    "Action",
    "BadArguments",
    "CallOutcome",
    "Tool",
    "ToolContext",
    "ToolReturn",
    "Waiting",
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
