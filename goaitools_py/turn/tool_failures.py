"""What is told when a tool's code raises something unexpected.

Owns: the line in the log, and the warning. Must never know: what the model is told, or why a tool was called.

Neither has the exception's text or the arguments: both may hold message content. A `ToolError` is meant for
the model, and `AbortTurn` is an instruction; neither is told here.
"""

from __future__ import annotations

import inspect
import traceback
from types import CodeType
from typing import Any

from ..state.records import JournalCall
from ..types.errors import AbortTurn, ToolError
from .ledger import Ledger

__all__ = ["tell_failed"]


def tell_failed(
    ledger: Ledger, call: JournalCall, error: BaseException | None, function: Any, what: str = "raised"
) -> None:
    """Log an unexpected exception at ERROR, and warn of it; nothing for one that a tool raises on purpose.

    Args:
        ledger: The turn's books.
        call: The call that it happened in.
        error: What was raised, if anything was.
        function: The caller's function that ran; its innermost line is what the log names.
        what: What happened, before the exception's class.
    """
    if error is None or isinstance(error, (ToolError, AbortTurn)):
        return
    import logging  # not at the top: it is a tenth of what importing this package takes

    name = type(error).__name__
    logging.getLogger("goaitools_py.tool").error(
        "tool %s %s %s at %s (call %s)",
        call.name,
        what,
        name,
        _place(error, function),
        call.id,
        extra={"event": "tool.failed", "tool": call.name, "call_id": call.id, "error": name, **ledger.of},
    )
    ledger.warn(
        "tool_failed",
        f"tool {call.name!r} {what} {name} (call {call.id}); the log of goaitools_py says where",
    )


def _place(error: BaseException, function: Any) -> str:
    """File and line of the function's file where the exception passed last, and where it was raised, if that
    is elsewhere; the function's own line for one that did not pass it."""
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
