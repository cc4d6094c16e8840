"""One item of a Responses history in the form that a host takes.

Owns: the forms of items and their parts, by the letters of a host's rules, and which items lose their id.
Must never know: the order of calls and results, or which host has which rules.

Quotations are OpenAI's answers with status 400, unless another server is named. Members and parts: openai
3.57, types/responses, *_param.py. "f" are the forms that every server takes.

===  =============================  ====================================================================
f    parts of an assistant's        "Invalid value: 'input_text'. Supported values are: 'output_text' and
     message                        'refusal'" (rust-genai#119); of other messages and of outputs the
                                    reverse
fp   ``item_reference``             "Item with id 'msg_…' not found": requests here have ``store: false``,
                                    so nothing is stored that it could name
fj   ``call_id``                    "Invalid 'input[2].call_id': string too long. Expected a string with
                                    maximum length 64" (dyad#4304). By "i" and "j" other servers' lengths
fj   names of functions             "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'"
ij   a call's id that an earlier    "Duplicate 'function_call' item found with call_id"; recorded hosts took
     call has                       it
fj   ``id`` of an item              "Duplicate item found with id" (OpenRouterTeam/ai-sdk-provider#254);
                                    64 characters at most; "Expected an ID that begins with 'msg'". It
                                    names nothing, because nothing is stored, so the item goes without
fj   reasoning that is there twice  the same; the second one goes
r    reasoning without its          "Item with id 'rs_…' not found. Items are not persisted when `store` is
     encrypted form                 set to false" (vercel/ai#7543)
r    any reasoning, at other hosts  llama.cpp: "item['content'] is not an array", also of encrypted reasoning
                                    (tools/server/server-chat.cpp at 03eb25f, 2026-08)
p    items of other types           "Invalid value: '…'. Supported values are: 'message', 'reasoning', …";
                                    Ollama: "unknown input item type" (openai/responses.go at 017eb8a,
                                    2026-08), llama.cpp: "Cannot determine type of 'item'". These two take
                                    messages, reasoning, functions and their outputs
p    a part without its text        "Missing required parameter: 'input[1].content[0].text'"
p    other parts                    "Invalid value: 'input_image'. Supported values are: …". Ollama and
                                    llama.cpp take no files and no refusals, llama.cpp no pictures in outputs
p    an assistant's message         llama.cpp takes it only with its type
m    other members                  "Unknown parameter: 'input[2].status'"
d    the role ``developer``         chat templates do not have it
e    empty text                     a host behind a gateway may refuse it
h    arguments that are no object   vLLM: "Extra data: line 1 column 1" (vllm#45276, 2026-06). Ollama: "failed
                                    to parse function call arguments"
x    lists of parts                 a host may take text only
===  =============================  ====================================================================

An item that follows removed reasoning loses its id, or the server refuses it "without its required
'reasoning' item". Records of a hosted tool's work need an id, so they go along; see `item_units`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ...base import rawjson
from ..protocols import Change, EntryView
from ..wire.answer import stored_arguments
from ..wire.narrowing import (
    AnsweredIds,
    Edit,
    Ids,
    clean_name,
    digest_id,
    distinct,
    each,
    nine_id,
    note,
    object_in,
    short_id,
    text_in,
    word,
)

__all__ = ["GIVEN", "OUTPUTS", "ItemFrame", "forms", "item_view", "kind_of", "unique_calls"]

_MAX_ID: Final = 64
_MAX_NAME: Final = 128

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
"""Items that answer a call of the caller's tools."""
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

_RENAMED: Final = _CALLS | OUTPUTS
"""Items that may get another `call_id`. Calls of provider tools are stored whole beside their answers."""

GIVEN: Final = frozenset({"user", "system", "developer"})
"""Messages that no model wrote."""

_MENDED: Final = frozenset({*GIVEN, "assistant", "reasoning"}) | _RENAMED
"""The items that each server takes, and the calls of custom tools, which become calls of functions."""

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
    **dict.fromkeys(GIVEN, frozenset({"type", "role", "content", "id", "status"})),
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

_OF_PARTS: Final = "efmpx"
"""The letters that change the content of a message or an output."""

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


_PLAIN_OUT: Final = frozenset({"output_text"})
_PLAIN_IN: Final = frozenset({"input_text", "input_image"})
_PLAIN_OUTPUT: Final = frozenset({"input_text"})
"""The parts that each server takes, of an assistant's message, of another one, and of a call's output."""

_EMPTY: Final = "(empty)"


def _call_id(id: str) -> str:
    """The id of a call as OpenAI takes it."""
    return id if len(id) <= _MAX_ID else digest_id(id)


class ItemFrame:
    """The rules for all items of a history, and the facts of the items so far.

    Args:
        letters: The letters of the rules.
        is_own: True for the company's own hosts: they know more items than others.
    """

    __slots__ = ("_all", "follows_gone", "ids", "is_own", "letters", "seen")

    def __init__(self, letters: str, *, is_own: bool) -> None:
        self.letters = letters
        self._all = frozenset(letters)
        self.is_own = is_own
        rule = nine_id if "i" in letters else short_id if "j" in letters else _call_id
        self.ids = Ids(rule, unique="i" in letters or "j" in letters)
        self.seen: set[str] = set()
        self.follows_gone = False

    def copy(self) -> ItemFrame:
        """A frame with the same state, to go on with by itself."""
        other = ItemFrame(self.letters, is_own=self.is_own)
        other.ids, other.seen, other.follows_gone = self.ids.copy(), set(self.seen), self.follows_gone
        return other

    def done(self, edit: Edit) -> bytes:
        """The changed object. At an import no other byte changes; a sent copy may lose white space."""
        return edit.done() if self.letters == "f" else edit.rebuilt()

    def has(self, letters: str) -> bool:
        """True if one of these letters holds."""
        return not self._all.isdisjoint(letters)


def forms(entries: Sequence[bytes]) -> Iterator[EntryView]:
    """Each item in the forms that every server of this provider API takes; see `ViewsHistory`."""
    frame = ItemFrame("f", is_own=True)
    for entry in entries:
        view = object_in(entry)
        if view is None:
            yield EntryView(entry)
            continue
        log: list[Change] = []
        frame.ids.begin()
        yield EntryView(item_view(entry, view, log, frame), log, frame.ids.changed)


def item_view(entry: bytes, view: Mapping[str, Any], log: list[Change], frame: ItemFrame) -> bytes:
    """One item as a host takes it: the same object if nothing changes, b"" if nothing is left of it.

    Args:
        entry: The item.
        view: Its value.
        log: Gets the kinds of the changes.
        frame: The rules. It learns of the item's ids.
    """
    kind = kind_of(view)
    if not kind:
        return entry
    if kind == "item_reference" and frame.has("fp"):
        log.append("reference")
        return b""
    if "p" in frame.letters and kind not in (_KNOWN if frame.is_own else _MENDED):
        return _other_item(kind, log, frame)
    id = view.get("id")
    is_known = isinstance(id, str) and id in frame.seen
    if kind == "reasoning" and (is_known or _goes(view, frame)):
        frame.follows_gone = True
        log.append("thinking")
        return b""
    if kind in GIVEN or kind.endswith("_output") or kind == "reasoning":
        frame.follows_gone = False
    if (is_known or frame.follows_gone) and kind in _GO_ALONG:
        log.append("item_id")
        return b""
    if isinstance(id, str) and frame.has("fj"):
        frame.seen.add(id)
    goes_without = is_known or frame.follows_gone or (frame.has("fj") and _is_odd_id(id, kind))
    if not goes_without and _is_plain(view, kind, frame):
        return entry
    edit = Edit(entry, log)
    if goes_without:
        _free(edit, kind)
    return b"" if _item(edit, view, kind, frame) else frame.done(edit)


_PLAIN: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"type", "id", "role", "status", "content"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status"}),
    "function_call_output": frozenset({"type", "call_id", "output"}),
}
_PLAIN_PART: Final = frozenset({"type", "text", "annotations"})


def _is_plain(view: Mapping[str, Any], kind: str, frame: ItemFrame) -> bool:
    """True for an item that keeps to all rules: text, calls and outputs as OpenAI and this package write
    them. Most items are so, and to see it takes a tenth of the time that an `Edit` takes."""
    keys = _PLAIN.get(kind)
    if keys is None or not view.keys() <= keys or None in view.values():
        return False
    if kind == "function_call":
        name = view.get("name")
        is_clean = isinstance(name, str) and clean_name(name, limit=_MAX_NAME) == name
        return is_clean and "h" not in frame.letters and frame.ids.stay([view.get("call_id")], ())
    if kind == "function_call_output":
        return _is_words(view.get("output")) and frame.ids.stay((), [view.get("call_id")])
    content = view.get("content")
    if kind == "user" or isinstance(content, str):
        return _is_words(content) and (kind == "user" or "type" in view)
    parts = content if isinstance(content, list) and "x" not in frame.letters and "type" in view else []
    return bool(parts) and all(map(_is_plain_part, parts))


def _is_plain_part(part: object) -> bool:
    is_text = isinstance(part, dict) and part.get("type") == "output_text" and part.keys() <= _PLAIN_PART
    return is_text and _is_words(part["text"] if isinstance(part, dict) and "text" in part else None)


def _is_words(text: object) -> bool:
    return isinstance(text, str) and text != "" and not text.isspace()


def kind_of(item: Mapping[str, Any]) -> str:
    """The role of a message, the type of another item; "" if both are missing."""
    kind = item.get("type")
    found = item.get("role") if kind in (None, "message") else kind
    return found if isinstance(found, str) else ""


def _other_item(kind: str, log: list[Change], frame: ItemFrame) -> bytes:
    """An item that the host does not know: a line of the model's text for a call, nothing for the rest."""
    log.append("left_out")
    if frame.is_own or kind in _GO_ALONG or not kind.endswith(("_call", "_request")):
        return b""
    text = {"type": "output_text", "text": note(kind)}
    return rawjson.dumps({"type": "message", "role": "assistant", "content": [text]})


def _goes(item: Mapping[str, Any], frame: ItemFrame) -> bool:
    """True for reasoning that the server refuses."""
    if "r" not in frame.letters:
        return False
    if not frame.is_own or not item.get("encrypted_content"):
        return True
    return _is_odd_id(item.get("id"), "reasoning")


def _is_odd_id(id: object, kind: str) -> bool:
    if not isinstance(id, str):
        return id is not None
    return len(id) > _MAX_ID or not id.startswith(_PREFIXES.get(kind, ""))


def _free(edit: Edit, kind: str) -> None:
    """Take the id out of an item that may go without."""
    if kind in ("assistant", *_RENAMED, *GIVEN):
        edit.drop("id", "item_id")
        if kind == "assistant" and "id" in edit.members and "type" not in edit.members:
            edit.put("type", b'"message"', None)  # without both it would be a message of the caller's


def _item(edit: Edit, view: Mapping[str, Any], kind: str, frame: ItemFrame) -> bool:
    """Change one item. True if nothing is left of it."""
    letters = frame.letters
    if kind in OUTPUTS and frame.has("fij"):
        frame.ids.result(edit, "call_id")
    elif kind in _CALLS and frame.has("fij"):
        frame.ids.call(edit, "call_id")
        name = view.get("name")
        if isinstance(name, str) and name and clean_name(name, limit=_MAX_NAME) != name:
            edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    if kind == "function_call" and "h" in letters:
        given = rawjson.string(edit.members.get("arguments", b"")) or ""
        meant = stored_arguments(given, kind="function", family="")
        if meant != given:
            edit.put("arguments", rawjson.dumps(meant), "rewritten")
    if kind == "developer" and "d" in letters:
        edit.put("role", b'"system"', "rewritten")
    if "p" in letters and not frame.is_own:
        _plain(edit, view, kind)
    if frame.has(_OF_PARTS) and (kind in GIVEN or kind in OUTPUTS or kind == "assistant"):
        member = "output" if kind in OUTPUTS else "content"
        if _said(edit, view.get(member), member, kind, frame):
            return True
    if "m" in letters and kind in _MEMBERS:
        _strip(edit, view, kind)
    return False


def _plain(edit: Edit, view: Mapping[str, Any], kind: str) -> None:
    """Change an item to a type that each server knows."""
    if kind == "assistant" and "type" not in view:
        edit.put("type", b'"message"', "rewritten")
    elif kind == "custom_tool_call":
        edit.put("type", b'"function_call"', "rewritten")
        edit.put("arguments", rawjson.dumps(rawjson.dumps({"input": word(view, "input")}).decode()), None)
        edit.drop("input", "rewritten")
    elif kind == "custom_tool_call_output":
        edit.put("type", b'"function_call_output"', "rewritten")


def _said(edit: Edit, content: object, member: str, kind: str, frame: ItemFrame) -> bool:
    """Change the content of a message or an output. True if a message says nothing."""
    letters, log = frame.letters, edit.log
    if isinstance(content, list):
        change = partial(_part, kind=kind, log=log, frame=frame)
        made = each(edit.members[member], change)
        if "x" in letters:
            log.append("rewritten")
            made = rawjson.dumps("\n\n".join(filter(None, map(_words, rawjson.items(made)))))
        edit.put(member, made, None)
        is_empty = made in (b"[]", b'""')
    else:
        is_empty = not content or (isinstance(content, str) and not content.strip())
    if "e" not in letters or not is_empty:
        return False
    log.append("empty")
    edit.put(member, rawjson.dumps(_EMPTY), None)
    return kind == "assistant"


def _words(raw: bytes) -> str:
    """The text of a part; a line about a part of another kind."""
    view = object_in(raw) or {}
    text = word(view, "text") or word(view, "refusal")
    return text if text or word(view, "type") in (*_TEXTS, "refusal") else note(word(view, "type"))


def _strip(edit: Edit, view: Mapping[str, Any], kind: str) -> None:
    edit.keep_only(_MEMBERS[kind])
    for key, value in view.items():
        if value is None and key != "content":
            edit.drop(key, "members")
    if kind == "reasoning" and view.get("content", 0) is None:
        edit.drop("content", "members")


def _is_whole(part: Mapping[str, Any], kind: str, frame: ItemFrame) -> bool:
    """True if a part has its content. Texts may lack it; see `text_in`."""
    needed = _NEEDED.get(kind)
    if kind == "input_image" and not frame.is_own:
        needed = ("image_url",)
    return needed is None or any(isinstance(part.get(key), (str, dict)) for key in needed)


def _parts_of(kind: str, frame: ItemFrame) -> frozenset[str]:
    """The kinds of parts that an item of this kind holds."""
    if frame.is_own or "p" not in frame.letters:
        return _OUT if kind == "assistant" else _IN
    return _PLAIN_OUT if kind == "assistant" else _PLAIN_OUTPUT if kind in OUTPUTS else _PLAIN_IN


def _part(raw: bytes, *, kind: str, log: list[Change], frame: ItemFrame) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    letters, found = frame.letters, word(view, "type")
    own, text = _parts_of(kind, frame), "output_text" if kind == "assistant" else "input_text"
    is_text = found in _TEXTS or found == "refusal"
    if "e" in letters and is_text and not (word(view, "text") or word(view, "refusal")).strip():
        log.append("empty")
        return b""
    edit = Edit(raw, log)
    if found not in own and found in _TEXTS and isinstance(view.get("text"), str) and frame.has("fp"):
        found = text
        edit.put("type", rawjson.dumps(text), "rewritten")
        edit.keep_only(_PART_MEMBERS[text])
    elif found == "refusal" and found not in own and isinstance(view.get("refusal"), str) and frame.has("fp"):
        log.append("rewritten")
        return rawjson.dumps({"type": text, "text": view["refusal"]})
    elif "p" in letters and (found not in own or not _is_whole(view, found, frame)):
        log.append("left_out")
        return rawjson.dumps({"type": text, "text": note(found)})
    if found in _PART_MEMBERS:
        if "p" in letters and found in _TEXTS:
            edit.put("text", text_in(edit.members.get("text")), "rewritten")
        if "m" in letters:
            edit.keep_only(_PART_MEMBERS[found])
            if view.get("logprobs", 0) is None:
                edit.drop("logprobs", "members")
    return frame.done(edit)


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
