"""The tool ``recall``: the model searches the turns that cuts removed from the history.

Owns: the description of the tool for the model, and a call's access to the archive of the running turn. Must
never know: how texts are ranked, or which place keeps a part of the archive.

The tool is offered from the first turn on, although the archive is still empty. Tools stand at the beginning
of a request, so adding a tool later would make the provider's whole cache useless.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from ..compaction.compactor import RECALL
from ..tools import Tool, ToolContext
from ..types.errors import ToolError
from .flow import Flow, ReadParts
from .ledger import Ledger
from .plan import Plan
from .report import Recalled

__all__ = ["ready_to_run", "tools_of"]

DESCRIPTION: Final = (
    "Search the earlier turns of this conversation that are no longer shown. They are complete, word for "
    "word. Call it before you say that you do not know or do not remember something, and whenever exact "
    "names, numbers, dates or wording from earlier matter. Do not call it for what stands in the "
    "conversation above."
)

PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Names, things, numbers that the passage would contain.",
        },
        "page": {
            "type": "integer",
            "description": "2 for the next best passages, if the first did not tell.",
            "default": 1,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}

_MOST_QUERY: Final = 2_000


class _RecallTool(Tool[..., Any]):
    """The tool before a call; `ready_to_run` gives it the archive. `max_tokens`: the size of an answer."""

    max_tokens: int = 0


def _without_archive(query: str, page: int = 1) -> str:
    raise ToolError("Earlier turns cannot be searched here.")


@lru_cache(maxsize=64)
def _recall_tool(max_tokens: int) -> _RecallTool:
    """The same object each time, so that the encoded list of tools is found again."""
    made = _RecallTool(RECALL, DESCRIPTION, PARAMETERS, _without_archive, idempotent=True)
    object.__setattr__(made, "max_tokens", max_tokens)
    return made


def tools_of(plan: Plan) -> tuple[Any, ...]:
    """The tools of a turn: the caller's, and the compactor's own.

    Raises:
        ValueError: A tool of the caller has the reserved name.
    """
    compactor = plan.options.compactor if plan.usual_compactor is None else plan.usual_compactor
    max_tokens: int = getattr(compactor, "recalled_tokens", 0)
    if not max_tokens:
        return plan.tools
    if any(getattr(tool, "name", None) == RECALL for tool in plan.tools):
        raise ValueError(
            "two tools are called 'recall': the compactor's own, because of recall=True, and one of tools=; "
            "rename that one with @tool(name=…)"
        )
    return (*plan.tools, _recall_tool(max_tokens))


def ready_to_run(ledger: Ledger, tool: Tool[..., Any]) -> Flow[Tool[..., Any]]:
    """Give the recall tool the archive of this instant; another tool stays as it is.

    Parts of the archive that a store keeps are loaded now. If the store fails, the model is told.
    """
    if not isinstance(tool, _RecallTool):
        return tool
    # Not at the top: most conversations are never searched.
    from ..history.recall_archive import page_of, passages_of, searched_parts

    state, dialect, plan = ledger.state, ledger.dialect, ledger.plan
    elsewhere = tuple(part.digest for part in searched_parts(state) if not part.is_here)
    loaded: dict[bytes, bytes] = {}
    failed = ""
    if elsewhere:
        try:
            loaded = yield ReadParts(elsewhere)
        except Exception as exc:
            failed = type(exc).__name__
    max_tokens = tool.max_tokens

    def recall(context: ToolContext, query: str, page: int = 1) -> str:
        if failed:
            raise ToolError(f"Earlier turns cannot be searched now ({failed}). Try again later.")
        if not isinstance(query, str) or not isinstance(page, int):
            raise ToolError("query must be text, and page a whole number from 1 on.")
        passages = passages_of(
            state,
            dialect,
            codec=plan.codec,
            binding=plan.options.binding,
            loaded=loaded,
            dialect_of=plan.dialect_of,
        )
        found = page_of(passages, query[:_MOST_QUERY], page=page, max_tokens=max_tokens)
        context._actions.append(Recalled("searched earlier turns", {"turns": found.numbers}))
        return found.text + _lacking(len(elsewhere) - len(loaded))

    own: Callable[..., Any] = recall
    return dataclasses.replace(tool, run=own)


def _lacking(parts: int) -> str:
    """The note for an answer if some parts of the archive could not be loaded from a store."""
    return "\n\nOther earlier turns are kept elsewhere and cannot be searched here." if parts > 0 else ""
