"""The tool ``recall``: the model searches the turns that cuts removed, and reads results that are kept whole.

Owns: the description of the tool for the model, a call's access to archive and results of the running turn,
the pages of a result, and how much of results a turn keeps. Must never know: how texts are ranked, or which
place keeps a part.

The tool is offered from the first turn on, although there is nothing to recall yet. Tools stand at the
beginning of a request, so adding a tool later would make the provider's whole cache useless.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from ..base.values import replace
from ..compaction.compactor import RECALL, RETAIN_BYTES
from ..open_turn.journal import Keeping
from ..state.media_rows import result_named
from ..state.parts import Part
from ..tools import Tool, ToolContext
from ..tools.call import end_of_lines
from ..types.errors import StateError, ToolError
from .flow import Flow, ReadParts
from .ledger import Ledger
from .plan import Plan
from .report import Recalled

__all__ = ["is_recall", "keeping_of", "ready_to_run", "result_page", "tools_of"]

DESCRIPTION: Final = (
    "Search the earlier turns of this conversation that are no longer shown. They are complete, word for "
    "word. Call it before you say that you do not know or do not remember something, and whenever exact "
    "names, numbers, dates or wording from earlier matter. Do not call it for what stands in the "
    "conversation above."
)

_QUERY: Final = {
    "type": "string",
    "description": "Names, things, numbers that the passage would contain.",
}

PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "query": _QUERY,
        "page": {
            "type": "integer",
            "description": "2 for the next best passages, if the first did not tell.",
            "default": 1,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}

RESULTS: Final = (
    "Read the whole of a tool result that was too long. Its beginning and its end are shown, and the note "
    "between them has its name. Call it before you answer from the part that is left out."
)

_RESULT_PARAMETERS: Final = {
    "result": {"type": "string", "description": "The name of a result, from the note in it."},
    "page": {"type": "integer", "description": "2 for the second page of the result.", "default": 1},
}

_MOST_QUERY: Final = 2_000
_PAGE_BYTES: Final = 16 * 1024
"""The most bytes of a result in a page; about 4,000 tokens."""
_HEAD_BYTES: Final = 128
"""An upper bound of the first line of a page."""
_TOKEN_BYTES: Final = 4


class _RecallTool(Tool[..., Any]):
    """The tool before a call; `ready_to_run` gives it archive and results.

    `max_tokens`: the size of an answer; 0 if there is no archive to search.
    """

    max_tokens: int = 0


def _without_archive(query: str = "", page: int = 1, result: str = "") -> str:
    raise ToolError("Earlier turns cannot be searched here.")


@lru_cache(maxsize=64)
def _recall_tool(max_tokens: int, has_results: bool) -> _RecallTool:
    """The same object each time, so that the encoded list of tools is found again."""
    description, parameters = DESCRIPTION, PARAMETERS
    if has_results:
        description = f"{DESCRIPTION} With result instead of query: {RESULTS}" if max_tokens else RESULTS
        searched = {"query": _QUERY} if max_tokens else {}
        parameters = {
            "type": "object",
            "properties": {**searched, **_RESULT_PARAMETERS},
            "required": [] if max_tokens else ["result"],
            "additionalProperties": False,
        }
    made = _RecallTool(RECALL, description, parameters, _without_archive, idempotent=True)
    object.__setattr__(made, "max_tokens", max_tokens)
    return made


def is_recall(tool: Any) -> bool:
    """True for the tool of this file. Its results are pages of kept texts, and are not kept again."""
    return isinstance(tool, _RecallTool)


def keeping_of(ledger: Ledger) -> Keeping | None:
    """How long this turn keeps results whole; None if it cuts them.

    In the blob they take as many bytes as the archive may take. With parts in a store they take half of the
    limit of a blob: everything that leaves the store, such as an export, is one blob.
    """
    options, soft = ledger.options, ledger.room.soft
    if options.keep_results == "cut":
        return None
    most = soft.max_blob_bytes // 2
    if not ledger.plan.in_parts:
        most = min(most, ledger.retained_bytes or RETAIN_BYTES)
    return Keeping(
        shown_bytes=options.max_tool_result_bytes,
        most_bytes=most,
        limits=soft,
        codec=ledger.plan.codec,
        binding=options.binding,
    )


def tools_of(plan: Plan) -> tuple[Any, ...]:
    """The tools of a turn: the caller's, and ``recall`` if the compactor or `keep_results` offers it.

    Raises:
        ValueError: A tool of the caller has the reserved name.
    """
    compactor = plan.options.compactor if plan.usual_compactor is None else plan.usual_compactor
    max_tokens: int = getattr(compactor, "recalled_tokens", 0)
    has_results = plan.options.keep_results == "store"
    if not (max_tokens or has_results):
        return plan.tools
    if any(getattr(tool, "name", None) == RECALL for tool in plan.tools):
        raise ValueError(
            "two tools are called 'recall': the one of recall=True or keep_results='store', and one of "
            "tools=; rename that one with @tool(name=…)"
        )
    return (*plan.tools, _recall_tool(max_tokens, has_results))


def ready_to_run(ledger: Ledger, tool: Tool[..., Any], given: Mapping[str, Any]) -> Flow[Tool[..., Any]]:
    """Give the recall tool the archive, or the result, of this instant; another tool stays as it is.

    Parts that a store keeps are loaded now. If the store fails, the model is told. `given`: the arguments.
    """
    if not isinstance(tool, _RecallTool):
        return tool
    if given.get("result"):
        return dataclasses.replace(tool, run=(yield from _reader(ledger, tool, given["result"])))
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

    def recall(context: ToolContext, query: str = "", page: int = 1, result: str = "") -> str:
        if not max_tokens:
            raise ToolError("result must be the name of a result, from the note in it.")
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


# -------------------------------------------------------------------------------------------- results


def _reader(ledger: Ledger, tool: _RecallTool, name: Any) -> Flow[Callable[..., Any]]:
    """The function that gives a page of one result."""
    plan = ledger.plan
    is_name = isinstance(name, str) and re.fullmatch(r"[0-9a-f]{8}", name) is not None
    part = result_named(ledger.state.parts, int(name, 16)) if is_name else None
    failed = ""
    if part is not None and not part.is_here:
        try:
            loaded = yield ReadParts((part.digest,))
            found = loaded.get(part.digest)
            part = None if found is None else replace(part, stored=found)
        except Exception as exc:
            failed = type(exc).__name__
    most = min(ledger.options.max_tool_result_bytes - _HEAD_BYTES, _PAGE_BYTES)
    if tool.max_tokens:
        most = min(most, _TOKEN_BYTES * tool.max_tokens)

    def read(context: ToolContext, query: str = "", page: int = 1, result: str = "") -> str:
        if failed:
            raise ToolError(f"The result cannot be read now ({failed}). Try again later.")
        if not isinstance(page, int):
            raise ToolError("page must be a whole number from 1 on.")
        if part is None:
            raise ToolError("There is no result of this name, or it is no longer kept.")
        return result_page(_opened(part, plan.codec, plan.options.binding), name, page, most)

    return read


def _opened(part: Part, codec: Any, binding: Any) -> bytes:
    try:
        return part.raw(codec, binding)
    except StateError:
        raise ToolError("The result is damaged, and cannot be read.") from None


def result_page(raw: bytes, name: str, page: int, most: int) -> str:
    """One page of a result, behind a line that says where it stands. All pages together have the whole text.

    Args:
        raw: The whole text, in UTF-8.
        name: The name of the result.
        page: From 1 on.
        most: The most bytes of text in a page.

    Raises:
        ToolError: The text has no page of this number.
    """
    ends = [0]
    while ends[-1] < len(raw):
        rest = raw[ends[-1] : ends[-1] + most + 1]
        ends.append(ends[-1] + max(1, end_of_lines(rest, most)))
    pages = len(ends) - 1
    if not 1 <= page <= pages:
        raise ToolError(f"Result {name} has the pages 1 to {pages}; there is no page {page}.")
    begin, end = ends[page - 1], ends[page]
    head = f"[page {page} of {pages} of result {name}, bytes {begin + 1:,} to {end:,} of {len(raw):,}]\n"
    return head + raw[begin:end].decode("utf-8", "replace")
