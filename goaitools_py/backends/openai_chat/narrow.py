"""Narrows a Chat Completions history to the forms that api.openai.com takes.

Owns: the forms of messages and their parts there. Must never know: the order of messages.

Quotations are OpenAI's answers with status 400. Members and parts: openai 3.57, types/chat, *_param.py.

===================================  ====================================================================
``tool_calls: []``                   "Invalid 'messages[1].tool_calls': empty array" (openai-node#1341)
ids of calls                         "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a
                                     string with maximum length 40" (vercel/ai#5171)
names of functions                   ``[a-zA-Z0-9_-]{1,64}``: "does not match pattern" (agno#5116)
``name`` of a message                "Expected a string that matches the pattern '^[^\\s<|\\\\/>]+$'"; 64
                                     characters at most
a call without ``type``              "Missing required parameter: 'messages[1].tool_calls[0].type'"
``content: []`` beside calls         "Invalid 'messages[4].content': empty array" (langchainjs#11416)
``image_url`` that is text           the type is an object with `url`; compatible servers take both
``input_text``, ``output_text``      parts of the Responses API; here they are ``text``
other members (fully)                "Unknown parameter: 'messages[1]…'" and "Additional properties are not
                                     allowed", by model: some members pass on some models
a part without its text (fully)      "Missing required parameter: 'messages[1].content[0].text'"
other parts (fully)                  an assistant's are text and refusal, a tool's and a system message's
                                     text: "Image URLs are only allowed for messages with role 'user'"
===================================  ====================================================================
an assistant's message without       Moonshot: "message … with role 'assistant' must not be empty"
content (fully)                      (kimi-code#1985). It goes
``content: ""`` beside calls (fully) the same; now null
===================================  ====================================================================

The id of a sound (``audio``) is left out fully: it expires after an hour, and no other server knows it. The
text of the sound is the message's content.
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
    note,
    object_in,
    text_in,
    word,
)
from .rules import is_silent

__all__ = ["history", "unique_calls"]

_MAX_ID: Final = 40
_MAX_NAME: Final = 64

_SPEAKER: Final = re.compile(r"[^\s<|\\/>]{1,64}")

_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "audio", "tool_calls", "function_call"}),
    # `name` is not in the type; OpenAI's own examples sent it for years.
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
    "function": frozenset({"role", "content", "name"}),
}

_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_TEXT: Final = frozenset({"text"})

_WORDS: Final = frozenset({"text", "refusal"})
"""Parts of text; the member with the text has the same name."""

_THOUGHTS: Final = frozenset({"thinking", "reasoning", "reasoning_content", "redacted_thinking"})

_OTHER_NAMES: Final = frozenset({"input_text", "output_text"})


def _call_id(id: str) -> str:
    """The id of a call as OpenAI takes it."""
    return id if len(id) <= _MAX_ID else digest_id(id)


def history(entries: Sequence[bytes], fully: bool) -> Iterator[EntryView]:
    """Each message as OpenAI takes it."""
    ids = Ids(_call_id, unique=False)  # in another turn an id may come again
    for entry in entries:
        view = object_in(entry)
        if view is None:
            yield EntryView(entry)
            continue
        log: list[Change] = []
        ids.begin()
        yield EntryView(_message(entry, view, log, ids, fully), log, ids.changed)


def _message(entry: bytes, view: Mapping[str, Any], log: list[Change], ids: Ids, fully: bool) -> bytes:
    edit = Edit(entry, log)
    role = word(view, "role")
    if fully and role == "assistant" and is_silent(view):
        log.append("empty")
        return b""
    calls = view.get("tool_calls")
    if calls == []:
        edit.drop("tool_calls", "members")
    elif isinstance(calls, list):
        change = partial(_call, log=log, ids=ids, fully=fully)
        edit.put("tool_calls", each(edit.members["tool_calls"], change), None)
    ids.result(edit, "tool_call_id")
    if isinstance(view.get("function_call"), dict):
        called = _function(edit.members["function_call"], "arguments", log, fully)
        edit.put("function_call", called, None)
    _author(edit, view, role)
    _content(edit, view, role, fully)
    if fully and role in _MEMBERS:
        edit.keep_only(_MEMBERS[role])
        for key in ("tool_calls", "function_call", "refusal", "audio"):
            if key in view and view[key] is None:
                edit.drop(key, "members")
        if "audio" in edit.members and view["audio"] is not None:
            edit.drop("audio", "left_out")
            if not view.get("content") and not view.get("tool_calls"):
                edit.put("content", rawjson.dumps(note("audio")), None)
    return edit.done()


def _author(edit: Edit, view: Mapping[str, Any], role: str) -> None:
    name = view.get("name")
    if name is None:
        return
    if role == "function":
        if isinstance(name, str) and clean_name(name, limit=_MAX_NAME) != name:
            edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    elif not isinstance(name, str) or not name:
        edit.drop("name", "speaker_renamed")
    elif not _SPEAKER.fullmatch(name):
        edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "speaker_renamed")


# -------------------------------------------------------------------------------------------- calls


def _call(raw: bytes, *, log: list[Change], ids: Ids, fully: bool) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    edit = Edit(raw, log)
    ids.call(edit, "id")
    kind = "custom" if isinstance(view.get("custom"), dict) and not view.get("function") else "function"
    if view.get("type") is None:
        edit.put("type", rawjson.dumps(kind), "rewritten")
    if isinstance(view.get(kind), dict):
        written = "input" if kind == "custom" else "arguments"
        edit.put(kind, _function(edit.members[kind], written, log, fully), None)
    if fully:
        edit.keep_only({"id", "type", kind})
    return edit.done()


def _function(raw: bytes, written: str, log: list[Change], fully: bool) -> bytes:
    edit = Edit(raw, log)
    name = rawjson.string(edit.members.get("name", b""))
    if name and clean_name(name, limit=_MAX_NAME) != name:
        edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    if fully:
        edit.keep_only({"name", written})
    return edit.done()


# -------------------------------------------------------------------------------------------- parts


def _content(edit: Edit, view: Mapping[str, Any], role: str, fully: bool) -> None:
    has_calls = bool(view.get("tool_calls")) or isinstance(view.get("function_call"), dict)
    content = view.get("content")
    if not isinstance(content, list):
        if content is None and role == "assistant" and view.get("tool_calls") == []:
            edit.put("content", b'""', "rewritten")
        if content == "" and fully and role == "assistant" and view.get("tool_calls"):
            edit.put("content", b"null", "empty")
        return
    raw = each(edit.members["content"], partial(_part, role=role, log=edit.log, fully=fully))
    if role == "assistant" and not rawjson.items(raw):
        edit.put("content", b"null" if has_calls else b'""', "rewritten")
    else:
        edit.put("content", raw, None)


def _part(raw: bytes, *, role: str, log: list[Change], fully: bool) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    kind = word(view, "type")
    edit = Edit(raw, log)
    if kind in _OTHER_NAMES and isinstance(view.get("text"), str):
        kind = "text"
        edit.put("type", b'"text"', "rewritten")
    if kind == "image_url" and isinstance(view.get("image_url"), str):
        edit.put("image_url", b'{"url":%s}' % edit.members["image_url"], "rewritten")
        view = {**view, "image_url": {"url": view["image_url"]}}
    if not fully or role not in _MEMBERS:
        return edit.done()
    if role != "user" and kind in _THOUGHTS:
        log.append("thinking")
        return b""
    if kind not in _PARTS.get(role, _TEXT) or (kind not in _WORDS and not isinstance(view.get(kind), dict)):
        log.append("left_out")
        return rawjson.dumps({"type": "text", "text": note(kind)})
    if kind in _WORDS:
        edit.put(kind, text_in(edit.members.get(kind)), "rewritten")
    edit.keep_only({"type", kind, "prompt_cache_breakpoint"})
    return edit.done()


# ----------------------------------------------------------------------------------------- repeated ids


def unique_calls(entries: Sequence[bytes]) -> list[EntryView]:
    """The entries with unique ids for answered calls; see `ViewsHistory`."""
    return distinct(entries, _ids_called, _rename_calls)


def _ids_called(view: Mapping[str, Any]) -> Iterator[str]:
    yield from ids_of(view.get("tool_calls"), "id")


def _rename_calls(edit: Edit, view: Mapping[str, Any], ids: AnsweredIds) -> None:
    if isinstance(view.get("tool_calls"), list):
        edit.put("tool_calls", each(edit.members["tool_calls"], partial(_rename_call, edit.log, ids)), None)
    ids.result(edit, "tool_call_id")


def _rename_call(log: list[Change], ids: AnsweredIds, raw: bytes) -> bytes:
    if object_in(raw) is None:
        return raw
    edit = Edit(raw, log)
    ids.call(edit, "id")
    return edit.done()
