"""Narrows a Messages history to the forms that api.anthropic.com takes.

Owns: the forms of messages and their blocks there. Must never know: the order of calls and results.

Quotations are Anthropic's answers with status 400. Members and blocks: anthropic 2.14, types/*_param.py and
types/beta/*_param.py.

===================================  ====================================================================
other members of a message           "messages.1.usage: Extra inputs are not permitted": a response that was
                                     passed back whole (``Message.model_dump()``)
ids of calls                         "messages.1.content.0.tool_use.id: String should match pattern
                                     '^[a-zA-Z0-9_-]+$'"
a call's id that an earlier call     "`tool_use` ids must be unique" (anthropics/claude-code#8612); a
has (fully)                          recorded request with one passed
names of tools                       "tool_use.name: String should have at most 200 characters"; tools have
                                     ``[a-zA-Z0-9_-]{1,128}``, and a reply's names are stored so
cache marks                          "A maximum of 4 blocks with cache_control may be provided. Found 5."
                                     Up to three are the request's own
``cache_control`` of thinking        no thinking block has it
``caller: null``                     the type takes an object only
``file_id`` of a citation            no type of a citation has it
thinking in a user's message         "Input tag 'thinking' found using 'type' does not match any of the
                                     expected tags"
thinking without signature (fully)   "thinking.signature: Field required" (earendil-works/pi#1523)
redacted thinking without data       the same
(fully)
hosted calls of other servers        "server_tool_use.id: String should match pattern
(fully)                              '^srvtoolu_[a-zA-Z0-9_]+$'"; they go with their results
other members of a block (fully)     "Extra inputs are not permitted"
other blocks (fully)                 "Input tag '…' found using 'type' does not match any of the expected
                                     tags"; from version 2026-10-21 on a document of an assistant's, too
``citations`` of a user's text       "Extra inputs are not permitted", from version 2026-10-21 on
(fully)
===================================  ====================================================================

Signed thinking stays as it is. It is bound to the history that Anthropic had taken, so the signature can
still be good after members and marks are gone. If it is not, the server says so, and it is taken out then.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...base import rawjson
from ..protocols import Change, EntryView
from ..wire.narrowing import (
    AnsweredIds,
    Edit,
    Ids,
    clean_name,
    digest_id,
    distinct,
    each,
    ids_of,
    note,
    object_in,
    word,
)

__all__ = ["history", "unique_calls"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_HOSTED: Final = {"server_tool_use": re.compile(r"srvtoolu_[a-zA-Z0-9_]+"), "mcp_tool_use": _ID}
"""Calls that a host runs itself, and their ids there."""
_MAX_NAME: Final = 128

_MARK: Final = "cache_control"
_SPARE_MARKS: Final = 1
"""Marks that are left beside a request's own three: at its end, on the preamble, and on the tools."""

_MESSAGE: Final = frozenset({"role", "content"})
_SYSTEM: Final = frozenset({"role", "content", "clear_at", "output_config"})

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})

_BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text", _MARK, "citations"}),
    "image": frozenset({"source", _MARK, "transformations"}),
    "document": frozenset({"source", _MARK, "citations", "context", "title"}),
    "search_result": frozenset({"content", "source", "title", _MARK, "citations"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", _MARK, "caller", "toolset_name"}),
    "server_tool_use": frozenset({"id", "name", "input", _MARK, "caller"}),
    "tool_result": frozenset({"tool_use_id", _MARK, "content", "is_error", "toolset_name"}),
}
"""The members of blocks. Blocks of other types stay as they are."""

_RESULT: Final = "result"
"""Stands for a role where blocks are inside of a tool's result."""

_TAKEN: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"}),
    "assistant": frozenset(
        {
            *("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use"),
            *("container_upload", "compaction", "fallback", "mcp_tool_listing"),
        }
    ),
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
    _RESULT: frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"}),
}
"""The blocks that a message of a role holds. An assistant's also holds results of hosted calls."""

_TEXTS: Final = frozenset({"input_text", "output_text"})

_CALLS: Final = frozenset({"tool_use", "mcp_tool_use"})
_RESULTS: Final = frozenset({"tool_result", "mcp_tool_result"})


class _Frame(NamedTuple):
    """Values that hold for all blocks of a history."""

    fully: bool
    ids: Ids
    drops_marks: bool
    hosted: Collection[str]
    """The ids of hosted calls that the host can have made."""


def _call_id(id: str) -> str:
    """The id of a call as Anthropic takes it."""
    return id if not id or _ID.fullmatch(id) else digest_id(id)


def history(entries: Sequence[bytes], fully: bool) -> Iterator[EntryView]:
    """Each message as Anthropic takes it."""
    views = [object_in(entry) for entry in entries]
    blocks = [block for view in views if view is not None for block in _listed(view.get("content"))]
    marks = sum(map(_marks, blocks))
    hosted = {
        id
        for block in blocks
        if (pattern := _HOSTED.get(word(block, "type"))) and pattern.fullmatch(id := word(block, "id"))
    }
    ids, spare = Ids(_call_id, unique=fully), 0 if fully else _SPARE_MARKS
    frame = _Frame(fully, ids, drops_marks=marks > spare, hosted=hosted)
    for entry, view in zip(entries, views, strict=True):
        if view is None:
            yield EntryView(entry)
            continue
        log: list[Change] = []
        ids.begin()
        yield EntryView(_message(entry, view, log, frame), log, ids.changed)


def _listed(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _marks(block: Mapping[str, Any]) -> int:
    return (block.get(_MARK) is not None) + sum(map(_marks, _inner(block)))


def _inner(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _listed(block.get("content")) if block.get("type") == "tool_result" else []


def _message(entry: bytes, view: Mapping[str, Any], log: list[Change], frame: _Frame) -> bytes:
    edit = Edit(entry, log)
    role = word(view, "role")
    if role in _TAKEN:
        edit.keep_only(_SYSTEM if role == "system" else _MESSAGE)
    if isinstance(view.get("content"), list) and view["content"]:
        content = each(edit.members["content"], partial(_block, role=role, log=log, frame=frame))
        if not rawjson.items(content):
            return b""
        edit.put("content", content, None)
    return edit.done()


def _block(raw: bytes, *, role: str, log: list[Change], frame: _Frame) -> bytes:
    view = object_in(raw)
    if view is None and frame.fully:
        log.append("rewritten")
        words = raw if raw.startswith(b'"') else rawjson.dumps(raw.decode("utf-8", "replace"))
        return b'{"type":"text","text":%s}' % words
    if view is None:
        return raw
    kind = word(view, "type")
    if kind in _THINKING:
        if role == "user" or (frame.fully and role == "assistant" and not _is_sealed(view)):
            log.append("thinking")
            return b""
    elif frame.fully and role == "assistant" and _is_others(view, kind, frame.hosted):
        log.append("left_out")
        return b""
    edit = Edit(raw, log)
    if kind in _TEXTS and isinstance(view.get("text"), str):
        kind = "text"
        edit.put("type", b'"text"', "rewritten")
    _named(edit, view, kind, frame.ids)
    if edit.members.get("caller") == b"null":
        edit.drop("caller", "members")
    if frame.drops_marks or kind in _THINKING:
        edit.drop(_MARK, "marks")
    if isinstance(view.get("citations"), list):
        edit.put("citations", each(edit.members["citations"], partial(_citation, log=log)), None)
    if kind == "tool_result" and isinstance(view.get("content"), list):
        change = partial(_block, role=_RESULT, log=log, frame=frame)
        edit.put("content", each(edit.members["content"], change), None)
    if frame.fully:
        if role in _TAKEN and kind not in _TAKEN[role] and not _is_hosted_result(kind, role):
            return _noted(kind, log)
        if kind in _BLOCKS:
            edit.keep_only(_BLOCKS[kind] | {"type"})
        if kind == "text" and role == "user":
            edit.drop("citations", "members")
    return edit.done()


def _is_hosted_result(kind: str, role: str) -> bool:
    return role == "assistant" and kind.endswith("_tool_result")


def _is_others(view: Mapping[str, Any], kind: str, hosted: Collection[str]) -> bool:
    """True for a hosted call of another server, and for a result without a call of this one."""
    if kind == "server_tool_use":
        return word(view, "id") not in hosted
    return _is_hosted_result(kind, "assistant") and word(view, "tool_use_id") not in hosted


def _is_sealed(block: Mapping[str, Any]) -> bool:
    """True for thinking with a signature (its text may be empty), and for redacted thinking with data."""
    sealed = block.get("data" if block.get("type") == "redacted_thinking" else "signature")
    is_text = block.get("type") == "redacted_thinking" or isinstance(block.get("thinking"), str)
    return is_text and isinstance(sealed, str) and sealed != ""


def _named(edit: Edit, view: Mapping[str, Any], kind: str, ids: Ids) -> None:
    if kind in _CALLS:
        ids.call(edit, "id")
    elif kind in _RESULTS:
        ids.result(edit, "tool_use_id")
    name = view.get("name")
    if kind == "tool_use" and isinstance(name, str) and name and clean_name(name, limit=_MAX_NAME) != name:
        edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")


def _citation(raw: bytes, *, log: list[Change]) -> bytes:
    if object_in(raw) is None:
        return raw
    edit = Edit(raw, log)
    edit.drop("file_id", "members")
    return edit.done()


def _noted(kind: str, log: list[Change]) -> bytes:
    log.append("left_out")
    return rawjson.dumps({"type": "text", "text": note(kind)})


# ----------------------------------------------------------------------------------------- repeated ids


def unique_calls(entries: Sequence[bytes]) -> list[EntryView]:
    """The entries with unique ids for answered calls; see `ViewsHistory`."""
    return distinct(entries, _ids_called, _rename_calls)


def _ids_called(view: Mapping[str, Any]) -> Iterator[str]:
    content = view.get("content")
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    yield from ids_of([one for one in blocks if one.get("type") == "tool_use"], "id")


def _rename_calls(edit: Edit, view: Mapping[str, Any], ids: AnsweredIds) -> None:
    if isinstance(view.get("content"), list):
        edit.put("content", each(edit.members["content"], partial(_rename_block, edit.log, ids)), None)


def _rename_block(log: list[Change], ids: AnsweredIds, raw: bytes) -> bytes:
    view = object_in(raw)
    kind = word(view, "type") if view is not None else ""
    if kind not in ("tool_use", "tool_result"):
        return raw
    edit = Edit(raw, log)
    if kind == "tool_use":
        ids.call(edit, "id")
    else:
        ids.result(edit, "tool_use_id")
    return edit.done()
