"""Another chat as a tool: its own conversation, kept in a store.

Owns: the tool's arguments, the choice of the conversation of a call, and the tool's result. Must never know:
the inside of a turn of either chat.

Each call is one message to the inner conversation, under the call's idempotency key. After a crash the call
runs again. It gets the stored reply if the inner turn had ended; else the inner turn continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..tools import Tool, ToolContext, Waiting
from ..types.answers import pending_text
from ..types.errors import ToolError, TurnError
from ..types.result import ChatResult

__all__ = ["hand_off", "hand_off_async"]

Conversations = Callable[[str], Any]

_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "What to say. It is all that the other one reads."}
    },
    "required": ["message"],
    "additionalProperties": False,
}


def hand_off(
    name: str,
    description: str,
    open_: Conversations,
    key: Callable[[ToolContext[Any]], str] | None,
    fields: Mapping[str, Any],
) -> Tool[..., str]:
    """The tool of a `Chat`. `open_`: gives the conversation of a key."""

    def run(ctx: ToolContext[Any], message: str) -> str:
        kept = open_(_key(ctx, name, key))
        try:
            if ctx.answers:
                result = kept.resume(ctx.answers, **_given(ctx, fields))
            else:
                result = kept.send(message, **_given(ctx, fields), turn_id=ctx.idempotency_key)
        except TurnError as error:
            raise _failed(ctx, name, error) from None
        return _reply(ctx, result)

    return _tool(name, description, run, fields.get("timeout"))


def hand_off_async(
    name: str,
    description: str,
    open_: Conversations,
    key: Callable[[ToolContext[Any]], str] | None,
    fields: Mapping[str, Any],
) -> Tool[..., Any]:
    """As `hand_off`, of an `AsyncChat`."""

    async def run(ctx: ToolContext[Any], message: str) -> str:
        kept = open_(_key(ctx, name, key))
        try:
            if ctx.answers:
                result = await kept.resume(ctx.answers, **_given(ctx, fields))
            else:
                result = await kept.send(message, **_given(ctx, fields), turn_id=ctx.idempotency_key)
        except TurnError as error:
            raise _failed(ctx, name, error) from None
        return _reply(ctx, result)

    return _tool(name, description, run, fields.get("timeout"))


def _tool(name: str, description: str, run: Callable[..., Any], timeout: float | None) -> Tool[..., Any]:
    return Tool(name, description, _PARAMETERS, run, timeout=timeout, idempotent=True)


def _key(ctx: ToolContext[Any], name: str, key: Callable[[ToolContext[Any]], str] | None) -> str:
    return f"{ctx.conversation_id}/{name}" if key is None else key(ctx)


def _given(ctx: ToolContext[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    # The inner conversation may have a waiting call of an earlier turn. The outer model was told that it was
    # denied.
    deps = {} if ctx.deps is None else {"deps": ctx.deps}
    return {**deps, "on_pending": "deny", **fields}


def _reply(ctx: ToolContext[Any], result: ChatResult) -> str:
    """The text for the outer model. Raises Waiting if calls of the inner turn wait for answers."""
    ctx.add_bill(result.bill)
    for action in result.actions:
        ctx.log_action(action.text, **action.data)
    if result.status == "awaiting_tools":
        raise Waiting(pending_text(result.pending))
    return result.text


def _failed(ctx: ToolContext[Any], name: str, error: TurnError) -> ToolError:
    """The error text for the outer model, if the inner turn failed. The inner conversation has kept its
    progress."""
    if error.bill is not None:
        ctx.add_bill(error.bill)
    return ToolError(f"{name} could not answer ({type(error).__name__}).")
