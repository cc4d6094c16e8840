"""Blocks of a history that need a beta or a tool in each later request, as long as they are in it.

Owns: which blocks these are, the betas that they need, and the sent copy of a history with missing tools.
Must never know: a request's other members, or where a block came from.

=========================================== ===========================================================
block                                       every request that holds it needs
=========================================== ===========================================================
``mcp_tool_use``, ``mcp_tool_result``       the beta ``mcp-client-2025-11-20``
``mcp_tool_listing``                        the beta ``mcp-client-2026-09-15``
``advisor_tool_result``, and the            the beta ``advisor-tool-2026-03-01``, and the advisor among the
``server_tool_use`` of the advisor          tools. Without the tool, the sent copy has text in their place
``fallback``                                the beta ``server-side-fallback-2026-07-01``
``tool_addition``, ``tool_removal``         the beta ``mid-conversation-tool-changes-2026-07-01``. No reply
                                            has them, but messages that are imported may
``compaction`` inside a reply               the beta ``compact-2026-01-12``
``tool_search_tool_result``                 each tool that it names. Without one, the sent copy has text
=========================================== ===========================================================

Sources: only the beta types of the request have these blocks (anthropic 2.14, types/content_block_param and
types/beta/beta_content_block_param), and a block that a request may not have is answered with 400. The betas
are in platform.claude.com/docs: mcp-connector, advisor-tool, refusals-and-fallback. The advisor's blocks
without its beta or its tool: agentforce314/clawcodex#178. "Tool reference '…' not found in available tools"
(400): code-yeongyu/senpi#437, and `ToolReferenceUnresolvedError` of anthropic 2.14.

A reply with one of these blocks marks the state (`Reply.carried`), so that no later request has to search the
history. If a caller names another version of a beta in `extra_headers`, only that version is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ...base import rawjson

__all__ = [
    "add_beta",
    "betas_beside",
    "betas_of",
    "header_of",
    "marks_of",
    "named_betas",
    "sent_without_tools",
]

_COMPACTED: Final = "compacted"
_MCP, _LISTING, _ADVISOR, _FALLBACK = "mcp", "mcp listing", "advisor", "fallback"
_SEARCH, _CHANGES = "tool search", "tool changes"

_BETAS: Final[Mapping[str, str]] = {
    _COMPACTED: "compact-2026-01-12",
    _MCP: "mcp-client-2025-11-20",
    _LISTING: "mcp-client-2026-09-15",
    _ADVISOR: "advisor-tool-2026-03-01",
    _FALLBACK: "server-side-fallback-2026-07-01",
    _CHANGES: "mid-conversation-tool-changes-2026-07-01",
}

_OURS: Final = frozenset(_BETAS.values())

_MARK_OF: Final[Mapping[str, str]] = {
    "compaction": _COMPACTED,
    "mcp_tool_use": _MCP,
    "mcp_tool_result": _MCP,
    "mcp_tool_listing": _LISTING,
    "advisor_tool_result": _ADVISOR,
    "fallback": _FALLBACK,
    "tool_addition": _CHANGES,
    "tool_removal": _CHANGES,
    "tool_search_tool_result": _SEARCH,
}

_ADVICE: Final = b'"advisor'
_FOUND: Final = b'"tool_search_tool_result"'
_VERSION: Final = re.compile(r"-\d{4}-\d{2}-\d{2}$")


def marks_of(blocks: Iterable[tuple[str, str | None]]) -> dict[str, tuple[str, int]]:
    """The marks that these blocks set for later requests, in the form of `Reply.carried`.

    `blocks`: type and name of each.
    """
    found: dict[str, tuple[str, int]] = {}
    for kind, name in blocks:
        mark = _ADVISOR if kind == "server_tool_use" and name == "advisor" else _MARK_OF.get(kind)
        if mark is not None:
            found[mark] = (_BETAS.get(mark, "in a reply"), 0)
    return found


def betas_of(carried: Mapping[str, str], named: Iterable[str]) -> list[str]:
    """The betas that a history with these marks needs, without the betas that the caller names."""
    known = {_feature(beta) for beta in named}
    newest: dict[str, str] = {}
    for mark in carried:
        beta = _BETAS.get(mark)
        if beta is not None and (feature := _feature(beta)) not in known:
            newest[feature] = max(beta, newest.get(feature, ""))
    return list(newest.values())


def betas_beside(standing: Iterable[str], of_request: Iterable[str]) -> list[str]:
    """The betas of a request, without our versions of features that a client's own betas already name."""
    known = {_feature(beta) for beta in standing}
    return [beta for beta in of_request if beta not in _OURS or _feature(beta) not in known]


def _feature(beta: str) -> str:
    """The feature of a beta, without its version. The versions of ``compact`` are different features."""
    return beta if beta.startswith("compact-") else _VERSION.sub("", beta)


def sent_without_tools(history: Sequence[bytes], carried: Mapping[str, str], tools: bytes) -> Sequence[bytes]:
    """The history with text in the place of hosted work, if the request does not have the tool for it.

    Args:
        history: Pieces of entries joined by ``,\\n``, unread.
        carried: The marks of the state.
        tools: The request's tools, as compact JSON; b"" without tools.
    """
    advised = _ADVISOR in carried and b'"type":"advisor_' not in tools
    searched = _SEARCH in carried and b'"type":"mcp_toolset"' not in tools
    if not advised and not searched:
        return history
    names = _names(tools) if searched else frozenset()
    return [_rewritten(piece, advised, names if searched else None) for piece in history]


def _names(tools: bytes) -> frozenset[Any]:
    listed = rawjson.loads(tools) if tools else []
    return frozenset(tool.get("name") for tool in listed if isinstance(tool, dict))


def _rewritten(piece: bytes, advised: bool, names: frozenset[Any] | None) -> bytes:
    whole = bytes(piece)
    if not (advised and _ADVICE in whole) and not (names is not None and _FOUND in whole):
        return piece
    return b",\n".join(_entry(entry, advised, names) for entry in whole.split(b",\n"))


def _entry(entry: bytes, advised: bool, names: frozenset[Any] | None) -> bytes:
    if _ADVICE not in entry and _FOUND not in entry:
        return entry
    content = rawjson.members(entry).get("content", b"")
    if not content.startswith(b"[") or not entry.startswith(b'{"role":"assistant"'):
        return entry
    raws = rawjson.items(content)
    blocks = [rawjson.view(raw) for raw in raws]
    gone = {
        block.get("tool_use_id")
        for block in blocks
        if isinstance(block, dict) and _is_gone(block, advised, names)
    }
    kept: list[bytes] = []
    for raw, block in zip(raws, blocks, strict=True):
        if not isinstance(block, dict):
            kept.append(raw)
        elif _is_gone(block, advised, names) or (
            block.get("type") == "server_tool_use"
            and (block.get("id") in gone or (advised and block.get("name") == "advisor"))
        ):
            kept.append(_as_text(block))
        else:
            kept.append(raw)
    return rawjson.replaced(entry, {"content": b"[" + b",".join(kept) + b"]"})


def _is_gone(block: Mapping[str, Any], advised: bool, names: frozenset[Any] | None) -> bool:
    if block.get("type") == "advisor_tool_result":
        return advised
    if block.get("type") != "tool_search_tool_result" or names is None:
        return False
    return not _references(block.get("content")) <= names


def _references(content: Any) -> set[Any]:
    listed = content.get("tool_references") if isinstance(content, dict) else None
    return {one.get("tool_name") for one in listed or () if isinstance(one, dict)}


def _as_text(block: Mapping[str, Any]) -> bytes:
    from ..wire.reply_pieces import Said
    from .translate import reply_pieces  # only a history whose tools are gone needs it

    entry = rawjson.dumps({"role": "assistant", "content": [dict(block)]})
    words = "".join(piece.text for piece in reply_pieces([entry]) if isinstance(piece, Said))
    return rawjson.dumps({"type": "text", "text": words})


# ------------------------------------------------------------------------------------------- headers


_BETAS_HEADER: Final = "anthropic-beta"


def header_of(headers: Mapping[str, str], name: str) -> str | None:
    """A header in any case of its name; None if it is missing."""
    return next((value for key, value in headers.items() if key.lower() == name), None)


def named_betas(headers: Mapping[str, str]) -> list[str]:
    """The betas that the headers name."""
    return [name.strip() for name in (header_of(headers, _BETAS_HEADER) or "").split(",") if name.strip()]


def add_beta(headers: dict[str, str], beta: str) -> None:
    """Add a beta to those that the caller's headers name."""
    key = next((key for key in headers if key.lower() == _BETAS_HEADER), _BETAS_HEADER)
    known = named_betas(headers)
    headers[key] = ",".join(known if beta in known else [*known, beta])
