"""One message of a Messages history in the form that a host takes.

Owns: the forms of messages and their blocks, by the letters of a host's rules. Must never know: the order of
messages, or which host has which rules.

Quotations are Anthropic's answers with status 400, unless another server is named. Members and blocks:
anthropic 2.14, types/*_param.py and types/beta/*_param.py. "f" are the forms that every server takes.

===  =============================  ====================================================================
fm   other members of a message     "messages.1.usage: Extra inputs are not permitted": a response that was
                                    passed back whole (``Message.model_dump()``)
fj   ids of calls                   "Input should match pattern '^[a-zA-Z0-9_-]+$'" ("tool_use.id: String
                                    should match"). By "i" and "j" other servers' lengths, too
ij   a call's id that an earlier    "`tool_use` ids must be unique" (anthropics/claude-code#8612); a
     call has                       recorded request with one passed
fj   names of tools                 "tool_use.name: String should have at most 200 characters"; tools have
                                    ``[a-zA-Z0-9_-]{1,128}``, and a reply's names are stored so
fm   cache marks                    "A maximum of 4 blocks with cache_control may be provided. Found 5."
                                    Up to three are the request's own
fm   ``cache_control`` of thinking  no thinking block has it
fm   ``caller: null``               the type takes an object only
fm   ``file_id`` of a citation      no type of a citation has it
fr   thinking in a user's message   "Input tag 'thinking' found using 'type' does not match any of the
                                    expected tags"
fp   texts of the Responses API     the same; their type is ``text`` here
r    thinking without signature     "thinking.signature: Field required" (earendil-works/pi#1523)
r    redacted thinking without data the same
p    hosted calls of other servers  "server_tool_use.id: String should match pattern
                                    '^srvtoolu_[a-zA-Z0-9_]+$'"; they go with their results
p    other blocks                   "Input tag '…' found using 'type' does not match any of the expected
                                    tags"; from version 2026-10-21 on a document of an assistant's, too
m    other members of a block       "Extra inputs are not permitted"
m    ``citations`` of a user's text the same, from version 2026-10-21 on
e    text of white space            "text content blocks must be non-empty"; Bedrock behind a gateway also
                                    refuses white space (vercel/ai#14618, 2026-05)
k    a reply without thinking       DeepSeek: "The `content[].thinking` in the thinking mode must be passed
                                    back to the API", also of turns that had none. An empty block is taken
                                    (hermes-agent#22313, 2026-05; QwenLM/qwen-code#3788, 2026-05)
c    text, thinking and calls       the template of gpt-oss: "Cannot pass both content and thinking in an
                                    assistant message with tool calls!" (llama.cpp#19702, 2026-02)
v    more than 20 pictures          see `pictures`
===  =============================  ====================================================================

Signed thinking stays as it is, but for "c". It is bound to the history that Anthropic had taken, so the
signature can still be good after members and marks are gone.
"""

from __future__ import annotations

import re
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
    ids_of,
    nine_id,
    note,
    object_in,
    short_id,
    word,
)
from .pictures import LEFT_OUT

__all__ = ["Frame", "forms", "message_view", "unique_calls"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_HOSTED: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
"""The ids of calls that Anthropic runs itself. Calls of an MCP server have ids as other calls."""
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


_EMPTY: Final = b'{"type":"text","text":"(empty)"}'
_NO_THOUGHT: Final = b'{"type":"thinking","thinking":"","signature":""}'


def _call_id(id: str) -> str:
    """The id of a call as Anthropic takes it."""
    return id if not id or _ID.fullmatch(id) else digest_id(id)


class Frame:
    """The rules for all messages of a history, and the facts of the messages so far.

    Args:
        letters: The letters of the rules.
        skipped: So many pictures are left out, the oldest first.
    """

    __slots__ = ("_all", "drops_marks", "ids", "letters", "pictures", "skipped")

    def __init__(self, letters: str, *, skipped: int = 0) -> None:
        self.letters = letters
        self._all = frozenset(letters)
        self.drops_marks = "m" in letters
        rule = nine_id if "i" in letters else short_id if "j" in letters else _call_id
        self.ids = Ids(rule, unique="i" in letters or "j" in letters)
        self.skipped = skipped
        self.pictures = 0

    def copy(self) -> Frame:
        """A frame with the same state, to go on with by itself."""
        other = Frame(self.letters, skipped=self.skipped)
        other.drops_marks, other.ids, other.pictures = self.drops_marks, self.ids.copy(), self.pictures
        return other

    def done(self, edit: Edit) -> bytes:
        """The changed object. At an import no other byte changes; a sent copy may lose white space."""
        return edit.done() if self.letters == "f" else edit.rebuilt()

    def has(self, letters: str) -> bool:
        """True if one of these letters holds."""
        return not self._all.isdisjoint(letters)


def forms(entries: Sequence[bytes]) -> Iterator[EntryView]:
    """Each message in the forms that every server of this provider API takes; see `ViewsHistory`."""
    views = [object_in(entry) for entry in entries]
    marks = sum(_marks(block) for view in views if view is not None for block in _listed(view.get("content")))
    frame = Frame("f")
    frame.drops_marks = marks > _SPARE_MARKS
    for entry, view in zip(entries, views, strict=True):
        if view is None:
            yield EntryView(entry)
            continue
        log: list[Change] = []
        frame.ids.begin()
        yield EntryView(message_view(entry, view, log, frame), log, frame.ids.changed)


def _listed(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _marks(block: Mapping[str, Any]) -> int:
    return (block.get(_MARK) is not None) + sum(map(_marks, _inner(block)))


def _inner(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _listed(block.get("content")) if block.get("type") == "tool_result" else []


def message_view(entry: bytes, view: Mapping[str, Any], log: list[Change], frame: Frame) -> bytes:
    """One message as a host takes it: the same object if nothing changes, b"" if nothing is left of it.

    Args:
        entry: The message.
        view: Its value.
        log: Gets the kinds of the changes.
        frame: The rules. It learns of the message's calls and pictures.
    """
    if _is_plain(view, frame):
        return entry
    edit = Edit(entry, log)
    role = word(view, "role")
    if role in _TAKEN and frame.has("fm"):
        edit.keep_only(_SYSTEM if role == "system" else _MESSAGE)
    content = view.get("content")
    if isinstance(content, list) and content:
        given = rawjson.items(edit.members["content"])
        is_bare = "c" in frame.letters and role == "assistant" and _says_all(content)
        change = partial(_block, role=role, log=log, frame=frame, is_bare=is_bare)
        made = [block for one in given if (block := change(one))]
        if "k" in frame.letters and role == "assistant" and not is_bare and _lacks_thought(content):
            log.append("thinking")
            made.insert(0, _NO_THOUGHT)
        if len(made) != len(given) or any(new is not old for new, old in zip(made, given, strict=True)):
            made = _ended(made) if role == "assistant" else made
            edit.put("content", b"[" + b",".join(made) + b"]", None)
        if not made:
            if role == "assistant" or "e" not in frame.letters:
                return b""
            edit.put("content", b"[" + _EMPTY + b"]", None)
    elif "e" in frame.letters and (not content or (isinstance(content, str) and not content.strip())):
        log.append("empty")
        if role == "assistant":
            return b""
        edit.put("content", b"[" + _EMPTY + b"]", None)
    return frame.done(edit)


_TEXT: Final = frozenset({"type", "text"})
_USE: Final = frozenset({"type", "id", "name", "input"})
_ANSWER: Final = frozenset({"type", "tool_use_id", "content", "is_error"})


def _is_plain(view: Mapping[str, Any], frame: Frame) -> bool:
    """True for a message that keeps to all rules: text, calls and results as this package writes them, and
    signed thinking. Most messages are so, and to see it takes a tenth of the time that an `Edit` takes."""
    content, role, letters = view.get("content"), view.get("role"), frame.letters
    if view.keys() != _MESSAGE or role not in ("user", "assistant"):
        return False
    if isinstance(content, str):
        return content != "" and not content.isspace()
    if not isinstance(content, list) or not content or frame.skipped or ("k" in letters and role != "user"):
        return False
    calls: list[object] = []
    results: list[object] = []
    for block in content:
        if not isinstance(block, dict):
            return False
        kind = block.get("type")
        if kind == "text":
            if not _is_plain_text(block):
                return False
        elif kind == "tool_use" and role == "assistant" and block.keys() <= _USE:
            name = block.get("name")
            if not isinstance(name, str) or clean_name(name, limit=_MAX_NAME) != name:
                return False
            calls.append(block.get("id"))
        elif kind == "tool_result" and role == "user" and block.keys() <= _ANSWER:
            inner = block.get("content", "")
            if isinstance(inner, list) and not all(map(_is_plain_text, inner)):
                return False
            results.append(block.get("tool_use_id"))
        elif kind != "thinking" or role == "user" or "c" in letters or not _is_plain_thought(block):
            return False
    return frame.ids.stay(calls, results) if calls or results else True


def _is_plain_thought(block: Mapping[str, Any]) -> bool:
    return block.keys() <= _BLOCKS["thinking"] | {"type"} and _is_sealed(block)


def _is_plain_text(block: object) -> bool:
    if not isinstance(block, dict) or block.keys() != _TEXT:
        return False
    text = block["text"]
    return block["type"] == "text" and isinstance(text, str) and text != "" and not text.isspace()


def _ended(blocks: list[bytes]) -> list[bytes]:
    """The blocks without thinking at the end: "the final block in an assistant message cannot be
    `thinking`"."""
    end = len(blocks)
    while end and (view := object_in(blocks[end - 1])) is not None and word(view, "type") in _THINKING:
        end -= 1
    return blocks[:end]


def _says_all(content: Sequence[Any]) -> bool:
    """True for a message with both text and calls."""
    blocks = _listed(content)
    kinds = {word(block, "type") for block in blocks}
    return "tool_use" in kinds and any(word(block, "text").strip() for block in blocks)


def _lacks_thought(content: Sequence[Any]) -> bool:
    """True for a message without thinking."""
    return not any(word(block, "type") in _THINKING for block in _listed(content))


def _block(raw: bytes, *, role: str, log: list[Change], frame: Frame, is_bare: bool = False) -> bytes:
    view = object_in(raw)
    if view is None and "p" in frame.letters:
        log.append("rewritten")
        words = raw if raw.startswith(b'"') else rawjson.dumps(raw.decode("utf-8", "replace"))
        return b'{"type":"text","text":%s}' % words
    if view is None:
        return raw
    kind = word(view, "type")
    if kind in _THINKING:
        if is_bare or (role == "user" and frame.has("fr")) or _is_unsealed(view, role, frame):
            log.append("thinking")
            return b""
    elif "p" in frame.letters and role == "assistant" and _is_others(view, kind):
        log.append("left_out")
        return b""
    elif kind == "image":
        frame.pictures += 1
        if frame.pictures <= frame.skipped:
            log.append("left_out")
            return LEFT_OUT
    edit = Edit(raw, log)
    if kind in _TEXTS and isinstance(view.get("text"), str) and frame.has("fp"):
        kind = "text"
        edit.put("type", b'"text"', "rewritten")
    if kind == "text" and "e" in frame.letters and not word(view, "text").strip():
        log.append("empty")
        return b""
    if frame.has("fij"):
        _named(edit, view, kind, frame.ids)
    if frame.has("fm"):
        _bare(edit, view, kind, log, frame)
    if kind == "tool_result" and isinstance(view.get("content"), list):
        change = partial(_block, role=_RESULT, log=log, frame=frame)
        inner = each(edit.members["content"], change)
        edit.put("content", b"[" + _EMPTY + b"]" if inner == b"[]" and view["content"] else inner, None)
    is_taken = role not in _TAKEN or kind in _TAKEN[role] or _is_hosted_result(kind, role)
    if "p" in frame.letters and not is_taken:
        return _noted(kind, log)
    if "m" in frame.letters:
        if kind in _BLOCKS:
            edit.keep_only(_BLOCKS[kind] | {"type"})
        if kind == "text" and role == "user":
            edit.drop("citations", "members")
    return frame.done(edit)


def _bare(edit: Edit, view: Mapping[str, Any], kind: str, log: list[Change], frame: Frame) -> None:
    """Take members out that no type of a block has."""
    if edit.members.get("caller") == b"null":
        edit.drop("caller", "members")
    if frame.drops_marks or kind in _THINKING:
        edit.drop(_MARK, "marks")
    if isinstance(view.get("citations"), list):
        edit.put("citations", each(edit.members["citations"], partial(_citation, log=log)), None)


def _is_unsealed(view: Mapping[str, Any], role: str, frame: Frame) -> bool:
    return role == "assistant" and "r" in frame.letters and not _is_sealed(view)


def _is_hosted_result(kind: str, role: str) -> bool:
    return role == "assistant" and kind.endswith("_tool_result")


def _is_others(view: Mapping[str, Any], kind: str) -> bool:
    """True for a hosted call of another server, and for its result."""
    if kind == "server_tool_use":
        return not _HOSTED.fullmatch(word(view, "id"))
    if not _is_hosted_result(kind, "assistant"):
        return False
    pattern = _ID if kind == "mcp_tool_result" else _HOSTED
    return not pattern.fullmatch(word(view, "tool_use_id"))


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
