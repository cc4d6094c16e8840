"""`goaitools chat`: a conversation in the terminal, or with `--once TEXT` one message and its reply.

Owns: the options, which of the three ways to talk they ask for (the app, lines, or one message), and the
output of one message. Must never know: how a line is answered, or how a turn runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .codec_options import add_options
from .session import CONVERSATION
from .store_urls import add_store
from .text_output import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import ChatResult
    from ..types.answers import PendingCall
    from ..types.errors import GoAIToolsError
    from .chat_options import Opening

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        description="Talk with a model: in an app on a terminal, else line by line. /help lists commands.",
    )
    parser.add_argument(
        "--model",
        metavar="API:MODEL",
        default=os.environ.get("GOAITOOLS_MODEL"),
        help="openai:MODEL, openai-responses:MODEL or anthropic:MODEL; or sim, sim:API for the offline "
        "simulator (default: $GOAITOOLS_MODEL)",
    )
    add_store(
        parser,
        what="the store that keeps the conversations; a SQLite file is made if missing",
        otherwise="$GOAITOOLS_STORE, else they are not kept",
    )
    parser.add_argument(
        "--key",
        "--thread",
        dest="key",
        metavar="KEY",
        help="the conversation's key in the store (default: default)",
    )
    parser.add_argument(
        "--session", metavar="FILE", help="keep the conversation in a file of its own, in place of --store"
    )
    add_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="instructions for the model, never stored")
    parser.add_argument(
        "--tools",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="a tool, or a list of tools, of a Python module; may be given again",
    )
    parser.add_argument(
        "--mcp",
        metavar="URL|COMMAND",
        action="append",
        default=[],
        help="tools of an MCP server: its URL, or the command that starts it; may be given again",
    )
    parser.add_argument("--once", metavar="TEXT", help="send one message, print the reply, end; - reads it")
    parser.add_argument("--json", action="store_true", help="with --once: the reply and its facts as JSON")
    parser.add_argument("--lines", action="store_true", help="talk line by line, on a terminal too")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. The exit code is 1 if the last turn failed."""
    if args.json and args.once is None:
        args.error("--json goes with --once TEXT")
    from .chat_options import opening_of, tools_of_servers

    with tools_of_servers(args.mcp) as tools:
        opening = opening_of(args, tools)
        if args.once is not None:
            text = sys.stdin.read() if args.once == "-" else args.once
            if not text.strip():
                args.error("--once needs a message, and this one is empty")
            return _run_once(opening, text, as_json=args.json)
        return _talk(opening, on_screen=_is_terminal() and not args.lines)


def _talk(opening: Opening, *, on_screen: bool) -> int:
    if on_screen and find_spec("textual") is not None:
        from .tui import run_app

        return run_app(opening)
    from .line_chat import run_lines

    return run_lines(opening, hint="pip install 'goaitools-py[tui]' brings the app" if on_screen else "")


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def _run_once(opening: Opening, text: str, *, as_json: bool = False) -> int:
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
