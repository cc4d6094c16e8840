"""Another chat as a tool: its own conversation, kept in a store.

Owns: the tool's arguments, the choice of the conversation of a call, and the tool's result. Must never know:
the inside of a turn of either chat.

Each call is one message to the inner conversation, under the call's idempotency key. After a crash the call
runs again. It gets the stored reply if the inner turn had ended; else the inner turn continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..open_turn.turn_ids import TURN_IDS_FACT
from ..state.records import digest8
from ..tools import Tool, ToolContext, Waiting
from ..types.answers import pending_text
from ..types.errors import ToolError, ToolPendingError, TurnError
from ..types.result import ChatResult

if TYPE_CHECKING:
    from .kept.facade import ConversationSnapshot

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
                send = partial(kept.send, message, **_given(ctx, fields), turn_id=ctx.idempotency_key)
                try:
                    result = send()
                except ToolPendingError:
                    if "on_pending" in fields:
                        raise
                    _refuse_beside(ctx, name, kept.snapshot())
                    result = send(on_pending="deny")
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
                send = partial(kept.send, message, **_given(ctx, fields), turn_id=ctx.idempotency_key)
                try:
                    result = await send()
                except ToolPendingError:
                    if "on_pending" in fields:
                        raise
                    _refuse_beside(ctx, name, await kept.snapshot())
                    result = await send(on_pending="deny")
        except TurnError as error:
            raise _failed(ctx, name, error) from None
        return _reply(ctx, result)

    return _tool(name, description, run, fields.get("timeout"))


def _tool(name: str, description: str, run: Callable[..., Any], timeout: float | None) -> Tool[..., Any]:
    return Tool(name, description, _PARAMETERS, run, timeout=timeout, idempotent=True)


def _key(ctx: ToolContext[Any], name: str, key: Callable[[ToolContext[Any]], str] | None) -> str:
    return f"{ctx.conversation_id}/{name}" if key is None else key(ctx)


def _given(ctx: ToolContext[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    deps = {} if ctx.deps is None else {"deps": ctx.deps}
    return {**deps, "on_pending": "raise", **fields}


def _refuse_beside(ctx: ToolContext[Any], name: str, kept: ConversationSnapshot | None) -> None:
    """Raise if the inner conversation waits for another call of the same reply: its question is open.

    If it waits for a call of an earlier turn, that call can be denied: the outer model was told so.
    """
    turns = () if kept is None else kept.history.turns
    ids = turns[-1].facts.get(TURN_IDS_FACT, ()) if turns else ()
    if any(digest8(key) in ids for key in ctx._beside()):
        raise ToolError(
            f"{name} waits for an answer to your other call. Call it again when that one is over."
        )


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
