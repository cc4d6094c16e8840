"""Reports problems with the results of tools: an unexpected exception, and media that the state cannot hold.

Owns: the line in the log, and the warnings. Must never know: the result for the model, or the reason for a
call.

The log line and the warning have neither the exception's text nor the arguments: both may hold message
content. A `ToolError` is meant for the model, and `AbortTurn` is an instruction: they are not reported here.
"""

from __future__ import annotations

import inspect
import traceback
from types import CodeType
from typing import Any

from ..state.records import JournalCall
from ..types.errors import AbortTurn, ToolError
from .ledger import Ledger

__all__ = ["tell_failed", "tell_left_out", "tell_not_kept"]


def tell_failed(
    ledger: Ledger, call: JournalCall, error: BaseException | None, function: Any, what: str = "raised"
) -> None:
    """Log an unexpected exception at ERROR, and warn of it. Ignore one that a tool raises on purpose.

    Args:
        ledger: The turn's books.
        call: The call that raised it.
        error: The exception; None if the call raised no exception.
        function: The caller's function that ran; the log names its innermost line.
        what: The verb before the exception's class in the text.
    """
    if error is None or isinstance(error, (ToolError, AbortTurn)):
        return
    import logging  # not at the top: it takes a tenth of the package's import time

    name = type(error).__name__
    logging.getLogger("goaitools_py.tool").error(
        "tool %s %s %s at %s (call %s)",
        call.name,
        what,
        name,
        _place(error, function),
        call.id,
        extra={
            "event": "tool.failed",
            "tool": call.name,
            "call_id": call.id,
            "error": name,
            **ledger.event_ids,
        },
    )
    ledger.warn(
        "tool_failed",
        f"tool {call.name!r} {what} {name} (call {call.id}); the log of goaitools_py says where",
    )


def _place(error: BaseException, function: Any) -> str:
    """The last line of the function's file in the traceback, and the line that raised, if it is elsewhere.

    The function's first line if the traceback has no line of its file.
    """
    code = _code_of(function)
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if code is None:
        return _line(*frames[-1]) if frames else "an unknown place"
    own = [at for at in frames if at[0].co_filename == code.co_filename]
    if not own:
        return f"{code.co_filename}:{code.co_firstlineno}"
    if own[-1] is frames[-1]:
        return _line(*own[-1])
    return f"{_line(*own[-1])}, raised in {_line(*frames[-1])},"


def _code_of(function: Any) -> CodeType | None:
    function = inspect.unwrap(getattr(function, "func", function))
    found = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None


def _line(code: CodeType, line: int) -> str:
    return f"{code.co_filename}:{line}"


def tell_left_out(ledger: Ledger, tool: str, media_type: str, size: int) -> None:
    """Warn, once in a turn, that media of a result are not in the state."""
    if any(one.code == "result_left_out" for one in ledger.report.warnings):
        return
    ledger.warn(
        "result_left_out",
        f"the state has no room for what tool {tool!r} returned ({media_type}, {size:,} bytes), and perhaps "
        "for more of this turn; the model reads type and size instead",
    )


def tell_not_kept(ledger: Ledger, tool: str, size: int) -> None:
    """Warn, once in a turn, that a long result is cut although it was to be kept whole."""
    ledger.report.warn_once(
        "result_left_out",
        f"the state cannot keep the whole result of tool {tool!r} ({size:,} bytes), and perhaps more of this "
        "turn; the model reads its beginning",
    )
