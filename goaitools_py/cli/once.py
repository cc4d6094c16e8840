"""`goaitools chat --once TEXT`: one message and its reply, for scripts.

Owns: the output, and the exit code. Must never know: how a turn runs.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from .session import CONVERSATION
from .terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import ChatResult
    from ..types.answers import PendingCall
    from ..types.errors import GoAIToolsError
    from .opening import Opening

__all__ = ["run_once"]


def run_once(opening: Opening, text: str, *, as_json: bool = False) -> int:
    """Send one message. The exit code is 0 for a complete reply, else 1.

    Without `as_json` a failure raises, and the command prints it.
    """
    from ..types.errors import GoAIToolsError, ToolPendingError

    with opening.store() as store, opening.chat() as chat:
        conversation = chat.conversation(store, opening.key, **CONVERSATION)
        try:
            result = conversation.send(text)
        except ToolPendingError as error:
            if not as_json:
                raise GoAIToolsError(f"the conversation {_waits(error.pending)}") from None
            print(json.dumps(_failure(error), indent=2))
            return 1
        except GoAIToolsError as error:
            if not as_json:
                raise
            print(json.dumps(_failure(error), indent=2))
            return 1
    if as_json:
        print(json.dumps(_facts(opening.key, result), indent=2))
    elif result.text:
        print(printable(result.text))
    if result.status != "complete" and not as_json:
        print(f"goaitools: {_unfinished(result)}", file=sys.stderr)
    return 0 if result.status == "complete" else 1


def _unfinished(result: ChatResult) -> str:
    """Why a reply is not complete, and the next step if calls wait."""
    if not result.pending:
        return f"the reply is {result.status.replace('_', ' ')}"
    return f"the reply {_waits(result.pending)}"


def _waits(pending: Sequence[PendingCall]) -> str:
    names = ", ".join(call.name for call in pending)
    return (
        f"waits for answers to calls ({printable(names)}): run `goaitools chat` with the same options, "
        "without --once, and answer with /approve or /deny"
    )


def _facts(key: str, result: ChatResult) -> dict[str, Any]:
    cost = result.cost_usd
    return {
        "conversation": key,
        "text": result.text,
        "status": result.status,
        "finish_reason": result.finish_reason,
        "model": result.model,
        "usage": {
            "input_tokens": result.usage.input_tokens,
            "cached_input_tokens": result.usage.cached_input_tokens,
            "output_tokens": result.usage.output_tokens,
            "requests": result.usage.requests,
        },
        "cost_usd": None if cost is None else float(cost),
        "context_used": result.context_used,
        "tool_calls": [
            {
                "id": record.call.id,
                "name": record.call.name,
                "arguments": record.call.arguments,
                "result": record.result,
                "flag": record.flag,
            }
            for record in result.tool_log
        ],
        "pending": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "reason": call.reason}
            for call in result.pending
        ],
        "warnings": [warning.code for warning in result.warnings],
    }


def _failure(error: GoAIToolsError) -> dict[str, Any]:
    retryable = bool(getattr(error, "retryable", False))
    return {"error": {"type": type(error).__name__, "message": str(error), "retryable": retryable}}
