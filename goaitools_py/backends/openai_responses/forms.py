"""Narrows a Responses history to the forms that api.openai.com takes.

Owns: the forms of items there, and which items lose their id. Must never know: the order of calls and
results.

Quotations are OpenAI's answers with status 400. Members and parts: openai 3.57, types/responses, *_param.py.

===================================  ====================================================================
parts of an assistant's message      "Invalid value: 'input_text'. Supported values are: 'output_text' and
                                     'refusal'" (rust-genai#119); of other messages and of outputs the
                                     reverse
``item_reference``                   "Item with id 'msg_…' not found": requests here have ``store: false``,
                                     so nothing is stored that it could name
``call_id``                          "Invalid 'input[2].call_id': string too long. Expected a string with
                                     maximum length 64" (dyad#4304)
names of functions                   "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'"
a call's id that an earlier call     "Duplicate 'function_call' item found with call_id"; recorded hosts took
has (fully)                          it
``id`` of an item                    "Duplicate item found with id" (OpenRouterTeam/ai-sdk-provider#254);
                                     64 characters at most; "Expected an ID that begins with 'msg'". It
                                     names nothing, because nothing is stored, so the item goes without
reasoning that is there twice        the same; the second one goes
reasoning without its encrypted      "Item with id 'rs_…' not found. Items are not persisted when `store` is
form (fully)                         set to false" (vercel/ai#7543)
items of other types (fully)         "Invalid value: '…'. Supported values are: 'message', 'reasoning', …"
a part without its text (fully)      "Missing required parameter: 'input[1].content[0].text'"
other members (fully)                "Unknown parameter: 'input[2].status'"
other parts (fully)                  "Invalid value: 'input_image'. Supported values are: …"
===================================  ====================================================================

An item that follows removed reasoning loses its id, or the server refuses it "without its required
'reasoning' item". Records of a hosted tool's work need an id, so they go along; see `item_units`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

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
    note,
    object_in,
    text_in,
    word,
)

__all__ = ["history", "unique_calls"]

_MAX_ID: Final = 64
_MAX_NAME: Final = 128

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_KNOWN: Final = frozenset(
    {
        *("assistant", "user", "system", "developer", "reasoning", "compaction", "compaction_trigger"),
        *("additional_tools", "configuration_update", "program", "program_output", "mcp_list_tools"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("computer_call", "computer_call_output", "local_shell_call", "local_shell_call_output"),
        *("shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output"),
        *("tool_search_call", "tool_search_output", "mcp_call"),
        *("mcp_approval_request", "mcp_approval_response"),
    }
)
"""The roles of messages, and the types of other items."""

_RENAMED: Final = _CALLS | _OUTPUTS
"""Items that may get another `call_id`. Calls of provider tools are stored whole beside their answers."""

_GIVEN: Final = frozenset({"user", "system", "developer"})

_PREFIXES: Final[Mapping[str, str]] = {
    "assistant": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
"""How the id of an item begins."""

_GO_ALONG: Final = frozenset(
    {"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call"}
)

_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "assistant": frozenset({"type", "role", "content", "phase", "id", "status"}),
    **dict.fromkeys(_GIVEN, frozenset({"type", "role", "content", "id", "status"})),
    "function_call": frozenset(
        {"type", "call_id", "name", "arguments", "id", "status", "namespace", "caller", "async"}
    ),
    "custom_tool_call": frozenset({"type", "call_id", "name", "input", "id", "namespace", "caller", "async"}),
    "function_call_output": frozenset(
        {"type", "call_id", "output", "id", "status", "caller", "name", "namespace"}
    ),
    "custom_tool_call_output": frozenset({"type", "call_id", "output", "id", "caller"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})
_OUT: Final = frozenset({"output_text", "refusal"})
_IN: Final = frozenset({"input_text", "input_image", "input_file", "input_audio"})

_NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "refusal": ("refusal",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_id", "file_url"),
    "input_audio": ("input_audio",),
}

_PART_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}


def _call_id(id: str) -> str:
    """The id of a call as OpenAI takes it."""
    return id if len(id) <= _MAX_ID else digest_id(id)


def history(entries: Sequence[bytes], fully: bool) -> Iterator[EntryView]:
    """Each item as OpenAI takes it."""
    seen: set[str] = set()
    ids = Ids(_call_id, unique=fully)
    follows_gone = False
    for entry in entries:
        view = object_in(entry)
        kind = _kind(view) if view is not None else ""
        if view is None or not kind:
            yield EntryView(entry)
            continue
        if kind == "item_reference":
            yield EntryView(b"", ("reference",))
            continue
        if fully and kind not in _KNOWN:
            yield EntryView(b"", ("left_out",))
            continue
        id = view.get("id")
        is_known = isinstance(id, str) and id in seen
        if kind == "reasoning" and _goes(view, is_known=is_known, fully=fully):
            follows_gone = True
            yield EntryView(b"", ("thinking",))
            continue
        if kind in _GIVEN or kind.endswith("_output") or kind == "reasoning":
            follows_gone = False
        if (is_known or follows_gone) and kind in _GO_ALONG:
            yield EntryView(b"", ("item_id",))
            continue
        log: list[Change] = []
        edit = Edit(entry, log)
        if is_known or follows_gone or _is_odd_id(id, kind):
            _free(edit, kind)
        if isinstance(id, str) and "id" in edit.members:
            seen.add(id)
        ids.begin()
        _item(edit, view, kind, ids, fully)
        yield EntryView(edit.done(), log, ids.changed)


def _kind(item: Mapping[str, Any]) -> str:
    """The role of a message, the type of another item; "" if both are missing."""
    kind = item.get("type")
    found = item.get("role") if kind in (None, "message") else kind
    return found if isinstance(found, str) else ""


def _goes(item: Mapping[str, Any], *, is_known: bool, fully: bool) -> bool:
    """True for reasoning that the server refuses."""
    if is_known:
        return True
    sealed = item.get("encrypted_content")
    if not sealed:
        return fully
    return fully and _is_odd_id(item.get("id"), "reasoning")


def _is_odd_id(id: object, kind: str) -> bool:
    if not isinstance(id, str):
        return id is not None
    return len(id) > _MAX_ID or not id.startswith(_PREFIXES.get(kind, ""))


def _free(edit: Edit, kind: str) -> None:
    """Take the id out of an item that may go without."""
    if kind in ("assistant", *_RENAMED, *_GIVEN):
        edit.drop("id", "item_id")
        if kind == "assistant" and "id" in edit.members and "type" not in edit.members:
            edit.put("type", b'"message"', None)  # without both it would be a message of the caller's


def _item(edit: Edit, view: Mapping[str, Any], kind: str, ids: Ids, fully: bool) -> None:
    if kind in _OUTPUTS:
        ids.result(edit, "call_id")
    elif kind in _CALLS:
        ids.call(edit, "call_id")
        name = view.get("name")
        if isinstance(name, str) and name and clean_name(name, limit=_MAX_NAME) != name:
            edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    member = "output" if kind in _OUTPUTS else "content"
    if (kind in _GIVEN or kind in _OUTPUTS or kind == "assistant") and isinstance(view.get(member), list):
        change = partial(_part, is_out=kind == "assistant", log=edit.log, fully=fully)
        edit.put(member, each(edit.members[member], change), None)
    if fully and kind in _MEMBERS:
        _strip(edit, view, kind)


def _strip(edit: Edit, view: Mapping[str, Any], kind: str) -> None:
    edit.keep_only(_MEMBERS[kind])
    for key, value in view.items():
        if value is None and key != "content":
            edit.drop(key, "members")
    if kind == "reasoning" and view.get("content", 0) is None:
        edit.drop("content", "members")


def _is_whole(part: Mapping[str, Any], kind: str) -> bool:
    """True if a part has its content. Texts may lack it; see `text_in`."""
    needed = _NEEDED.get(kind)
    return needed is None or any(isinstance(part.get(key), (str, dict)) for key in needed)


def _part(raw: bytes, *, is_out: bool, log: list[Change], fully: bool) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    kind = word(view, "type")
    own, text = (_OUT, "output_text") if is_out else (_IN, "input_text")
    edit = Edit(raw, log)
    if kind not in own and kind in _TEXTS and isinstance(view.get("text"), str):
        kind = text
        edit.put("type", rawjson.dumps(text), "rewritten")
        edit.keep_only(_PART_MEMBERS[text])
    elif kind == "refusal" and not is_out and isinstance(view.get("refusal"), str):
        log.append("rewritten")
        return rawjson.dumps({"type": text, "text": view["refusal"]})
    elif fully and (kind not in own or not _is_whole(view, kind)):
        log.append("left_out")
        return rawjson.dumps({"type": text, "text": note(kind)})
    if fully and kind in _PART_MEMBERS:
        if kind in _TEXTS:
            edit.put("text", text_in(edit.members.get("text")), "rewritten")
        edit.keep_only(_PART_MEMBERS[kind])
        if view.get("logprobs", 0) is None:
            edit.drop("logprobs", "members")
    return edit.done()


# ----------------------------------------------------------------------------------------- repeated ids


def unique_calls(entries: Sequence[bytes]) -> list[EntryView]:
    """The entries with unique ids for answered calls; see `ViewsHistory`."""
    return distinct(entries, _ids_called, _rename_call)


def _ids_called(view: Mapping[str, Any]) -> Iterator[str]:
    if _makes_call(view):
        yield word(view, "call_id")


def _makes_call(view: Mapping[str, Any]) -> bool:
    return bool(word(view, "call_id")) and not word(view, "type").endswith("_output")


def _rename_call(edit: Edit, view: Mapping[str, Any], ids: AnsweredIds) -> None:
    (ids.call if _makes_call(view) else ids.result)(edit, "call_id")
