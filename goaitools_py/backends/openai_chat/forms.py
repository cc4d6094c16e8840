"""One Chat Completions message in the form that a host takes.

Owns: the forms of messages, their calls and their parts, by the letters of a host's rules. Must never know:
the order of messages, or which host has which rules.

Quotations are answers with status 400, OpenAI's unless another server is named. Members and parts: openai
3.57, types/chat, *_param.py.

=  ===============================  ====================================================================
f  ``tool_calls: []``               "Invalid 'messages[1].tool_calls': empty array" (openai-node#1341)
   ids of calls                     "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a
                                    string with maximum length 40" (vercel/ai#5171)
   names of functions               ``[a-zA-Z0-9_-]{1,64}``: "does not match pattern" (agno#5116)
   ``name`` of a message            "Expected a string that matches the pattern '^[^\\s<|\\\\/>]+$'"; 64
                                    characters at most
   a call without ``type``          "Missing required parameter: 'messages[1].tool_calls[0].type'"
   ``content: []`` beside calls     "Invalid 'messages[4].content': empty array" (langchainjs#11416)
   ``image_url`` that is text       the type is an object with `url`; compatible servers take both
   ``input_text``, ``output_text``  parts of the Responses API; here they are ``text``
m  other members                    "Unknown parameter: 'messages[1]…'" and "Additional properties are not
                                    allowed", by model: some members pass on some models
p  a part without its text          "Missing required parameter: 'messages[1].content[0].text'"
   other parts                      an assistant's are text and refusal, a tool's and a system message's
                                    text: "Image URLs are only allowed for messages with role 'user'"
   ``audio``                        its id expires after an hour, and no other server knows it. The text of
                                    the sound is the message's content
i  ids of calls                     Mistral: "must be a-z, A-Z, 0-9, with a length of 9" (code 3280)
k  reasoning is missing             also in a message without calls: DeepSeek wants it there, too, behind a
                                    call (kimi-cli#2141, openclaw#73417, 2026-05). " ", because Kimi refuses
                                    "" (gemini-cli-pro#36)
c  content, reasoning and calls     the template of gpt-oss: "Cannot pass both content and thinking in an
                                    assistant message with tool calls!" (llama.cpp#19702, 2026-02)
g  a missing thought signature      the value that Gemini's documentation names (ai.google.dev/gemini-api/
                                    docs/thought-signatures, 2026-11). It is put into every step, also of
                                    earlier turns, so that later requests begin with the same bytes
h  arguments that are no object     vLLM: "Extra data: line 1 column 1" (vllm#45276); now the object that they
                                    mean, or "{}"
=  ===============================  ====================================================================

An assistant's message that says nothing after a change is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

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
    ids_of,
    nine_id,
    note,
    object_in,
    short_id,
    text_in,
    word,
)
from ..wire.tolerance import as_dict
from .rules import is_silent

__all__ = ["LETTERS", "forms", "message_view", "unique_calls"]

LETTERS: Final = frozenset("cdefghijkmnpqrxy")
"""The letters of the rules for one message."""

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
_NULLS: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Members that must not be null."""

_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_TEXT: Final = frozenset({"text"})
_ALL_PARTS: Final = _PARTS["user"] | _PARTS["assistant"]

_WORDS: Final = frozenset({"text", "refusal"})
"""Parts of text; the member with the text has the same name."""

_THOUGHTS: Final = frozenset({"thinking", "reasoning", "reasoning_content", "redacted_thinking"})
"""Parts with reasoning."""

_REASONING: Final = ("reasoning", "reasoning_content", "reasoning_details", "thinking", "thinking_blocks")
"""Members with reasoning."""

_OTHER_NAMES: Final = frozenset({"input_text", "output_text"})

_SKIP: Final = "skip_thought_signature_validator"


# --------------------------------------------------------------------------------------------- ids


def _long_id(id: str) -> str:
    return id if len(id) <= _MAX_ID else digest_id(id)


def _id_rule(letters: str) -> Callable[[str], str]:
    if "i" in letters:
        return nine_id
    if "j" in letters:
        return short_id
    return _long_id if "f" in letters else str


# ---------------------------------------------------------------------------------------- messages


class _Work(NamedTuple):
    """The changes of a message.

    Attributes:
        letters: The rules.
        ids: Gives the ids of calls.
        log: Gets the kind of each change.
        is_stored: True: the result is stored, so that each byte stays which no rule is about.
    """

    letters: str
    ids: Ids
    log: list[Change]
    is_stored: bool = False

    def edit(self, raw: bytes) -> Edit:
        return Edit(raw, self.log)

    def done(self, edit: Edit) -> bytes:
        return edit.done() if self.is_stored else edit.rebuilt()


def forms(entries: Sequence[bytes]) -> Iterator[EntryView]:
    """Each message in the forms that every server of this provider API takes; see `ViewsHistory`."""
    ids = Ids(_long_id, unique=False)  # in another turn an id may come again
    for entry in entries:
        view = object_in(entry)
        if view is None:
            yield EntryView(entry)
            continue
        log: list[Change] = []
        ids.begin()
        work = _Work("f", ids, log, is_stored=True)
        yield EntryView(_message(entry, view, work), log, ids.changed)


def message_view(entry: bytes, letters: str) -> bytes:
    """One message as a host with these rules takes it: the same object if nothing changes, b"" if nothing is
    left of it. Anything but a JSON object stays."""
    view = object_in(entry)
    if view is None:
        return entry
    return _message(entry, view, _Work(letters, Ids(_id_rule(letters), unique=False), []))


def _message(entry: bytes, view: Mapping[str, Any], work: _Work) -> bytes:
    edit, letters = work.edit(entry), work.letters
    role = word(view, "role")
    if "d" in letters and role == "developer":
        edit.put("role", b'"system"', "rewritten")
        role = "system"
    calls = view.get("tool_calls")
    if calls == [] and ("f" in letters or "m" in letters):
        edit.drop("tool_calls", "members")
    elif calls and isinstance(calls, list) and not _IN_CALLS.isdisjoint(letters):
        _calls(edit, work)
    work.ids.result(edit, "tool_call_id")
    if isinstance(view.get("function_call"), dict):
        called = _function(edit.members["function_call"], "arguments", work)
        edit.put("function_call", called, None)
    _author(edit, view, role, letters)
    is_bare = role == "assistant" and _reasoning(edit, view, letters)
    _content(edit, view, role, work, is_bare=is_bare)
    if "p" in letters and role == "assistant" and view.get("audio") is not None:
        edit.drop("audio", "left_out")
        if not view.get("content") and not view.get("tool_calls"):
            edit.put("content", rawjson.dumps(note("audio")), None)
    if "m" in letters and role in _MEMBERS:
        kept = {"reasoning_content"} if "k" in letters else {"reasoning"} if "q" in letters else set()
        edit.keep_only(_MEMBERS[role] | kept)
        for key in _NULLS:
            if key in view and view[key] is None:
                edit.drop(key, "members")
    made = work.done(edit)
    if role == "assistant" and not _LEAVES_OUT.isdisjoint(letters) and _is_empty(view, made):
        work.log.append("empty")
        return b""
    return made


_IN_CALLS: Final = frozenset("fghijm")
"""Rules for a call."""

_LEAVES_OUT: Final = frozenset("emprx")
"""Rules that a message without content breaks, or that may take the content of a message."""


def _is_empty(view: Mapping[str, Any], made: bytes) -> bool:
    if isinstance(view.get("content"), str) and view["content"]:
        return False  # nearly all; the text of a message never goes
    found = object_in(made)
    return found is not None and is_silent(found)


def _author(edit: Edit, view: Mapping[str, Any], role: str, letters: str) -> None:
    name = view.get("name")
    if name is None:
        return
    if role == "function":
        if "f" in letters and isinstance(name, str) and clean_name(name, limit=_MAX_NAME) != name:
            edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    elif "y" in letters:
        edit.drop("name", "members")
    elif "f" not in letters:
        return
    elif not isinstance(name, str) or not name:
        edit.drop("name", "speaker_renamed")
    elif not _SPEAKER.fullmatch(name):
        edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "speaker_renamed")


# --------------------------------------------------------------------------------------- reasoning


def _reasoning(edit: Edit, view: Mapping[str, Any], letters: str) -> bool:
    """The members with reasoning as the host takes them. True if reasoning is left out of this message."""
    if "r" in letters or ("c" in letters and view.get("tool_calls") and _has_text(view.get("content"))):
        for key in _REASONING:
            edit.drop(key, "thinking")
        return True
    given = word(view, "reasoning_content")
    if "q" in letters and "reasoning_content" in edit.members:
        if given and not word(view, "reasoning"):
            edit.put("reasoning", edit.members["reasoning_content"], "rewritten")
        edit.drop("reasoning_content", "members")
    elif "k" in letters and not (given or _may_stay_empty(view, letters)):
        edit.put("reasoning_content", rawjson.dumps(word(view, "reasoning") or " "), "rewritten")
        edit.drop("reasoning", "members")
    return False


def _may_stay_empty(view: Mapping[str, Any], letters: str) -> bool:
    """True for an empty text: DeepSeek has taken its own back (recorded traffic). Moonshot, which takes no
    empty text, refuses it beside calls."""
    is_refused = "e" in letters and view.get("tool_calls")
    return isinstance(view.get("reasoning_content"), str) and not is_refused


def _has_text(content: object) -> bool:
    if not isinstance(content, list):
        return bool(content)
    return any(word(part, "text") for part in map(as_dict, content))


# -------------------------------------------------------------------------------------------- calls


def _calls(edit: Edit, work: _Work) -> None:
    raw = each(edit.members["tool_calls"], partial(_call, work=work))
    if "g" in work.letters:
        first, *others = rawjson.items(raw)
        signed = _signed(first, work)
        if signed is not first:
            raw = b"[" + b",".join((signed, *others)) + b"]"
    edit.put("tool_calls", raw, None)


def _call(raw: bytes, *, work: _Work) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    edit, letters = work.edit(raw), work.letters
    work.ids.call(edit, "id")
    kind = "custom" if isinstance(view.get("custom"), dict) and not view.get("function") else "function"
    if "f" in letters and view.get("type") is None:
        edit.put("type", rawjson.dumps(kind), "rewritten")
    if isinstance(view.get(kind), dict):
        written = "input" if kind == "custom" else "arguments"
        edit.put(kind, _function(edit.members[kind], written, work), None)
    if "m" in letters:
        edit.keep_only({"id", "type", kind, *(("extra_content",) if "g" in letters else ())})
    return work.done(edit)


def _function(raw: bytes, written: str, work: _Work) -> bytes:
    if _FUNCTION.isdisjoint(work.letters):
        return raw
    edit, letters = work.edit(raw), work.letters
    name = rawjson.string(edit.members.get("name", b""))
    if "f" in letters and name and clean_name(name, limit=_MAX_NAME) != name:
        edit.put("name", rawjson.dumps(clean_name(name, limit=_MAX_NAME)), "tool_renamed")
    if "h" in letters and written == "arguments":
        given = rawjson.string(edit.members.get(written, b"")) or ""
        meant = stored_arguments(given, kind="function", family="")
        if meant != given:
            edit.put(written, rawjson.dumps(meant), "rewritten")
    if "m" in letters:
        edit.keep_only({"name", written})
    return work.done(edit)


_FUNCTION: Final = frozenset("fhm")
"""Rules for the inside of a call."""


def _signed(raw: bytes, work: _Work) -> bytes:
    """A call with a thought signature. Of several calls in one message Gemini signs the first only."""
    view = object_in(raw)
    if view is None:
        return raw
    more = as_dict(view.get("extra_content"))
    google = as_dict(more.get("google"))
    if word(google, "thought_signature"):
        return raw
    edit = work.edit(raw)
    made = {**more, "google": {**google, "thought_signature": _SKIP}}
    edit.put("extra_content", rawjson.dumps(made), "rewritten")
    return work.done(edit)


# -------------------------------------------------------------------------------------------- parts


def _content(edit: Edit, view: Mapping[str, Any], role: str, work: _Work, *, is_bare: bool) -> None:
    """The content as the host takes it. `is_bare`: without its reasoning."""
    letters = work.letters
    has_calls = bool(view.get("tool_calls")) or isinstance(view.get("function_call"), dict)
    content = view.get("content")
    if isinstance(content, list):
        _listed(edit, role, work, is_bare=is_bare, has_calls=has_calls)
    elif content is None:
        has_none = "f" in letters and role == "assistant" and view.get("tool_calls") == []
        if has_none or ("n" in letters and role != "function"):
            edit.put("content", b'""', "rewritten")
    elif content == "" and "e" in letters and "n" not in letters and view.get("tool_calls"):
        edit.put("content", b"null", "empty")


def _listed(edit: Edit, role: str, work: _Work, *, is_bare: bool, has_calls: bool) -> None:
    given, letters = edit.members["content"], work.letters
    raw = each(given, partial(_part, role=role, work=work, is_bare=is_bare))
    left = rawjson.items(raw)
    if not left and role == "assistant" and (raw is not given or not _ARRAYS.isdisjoint(letters)):
        raw = b"null" if has_calls and "n" not in letters else b'""'
        edit.put("content", raw, "rewritten")
    elif "x" in letters:
        edit.put("content", _as_text(left, role), "rewritten")
    else:
        edit.put("content", raw, None)


_ARRAYS: Final = frozenset("efnx")
"""Rules that an empty array of parts breaks."""


def _as_text(parts: Sequence[bytes], role: str) -> bytes:
    """The parts as one text. Servers cut a model's text anywhere, a user's parts are texts of their own."""
    texts: list[str] = []
    for part in map(object_in, parts):
        kind = word(part or {}, "type")
        if kind in _WORDS:
            texts.append(word(part or {}, kind))
        elif kind not in _THOUGHTS:
            texts.append(note(kind))
    return rawjson.dumps(("" if role == "assistant" else "\n\n").join(texts))


def _part(raw: bytes, *, role: str, work: _Work, is_bare: bool) -> bytes:
    view = object_in(raw)
    if view is None:
        return raw
    kind = word(view, "type")
    edit, letters, log = work.edit(raw), work.letters, work.log
    if "f" in letters and kind in _OTHER_NAMES and isinstance(view.get("text"), str):
        kind = "text"
        edit.put("type", b'"text"', "rewritten")
    if "f" in letters and kind == "image_url" and isinstance(view.get("image_url"), str):
        edit.put("image_url", b'{"url":%s}' % edit.members["image_url"], "rewritten")
        view = {**view, "image_url": {"url": view["image_url"]}}
    if kind in _THOUGHTS and role != "user" and (is_bare or "p" in letters):
        log.append("thinking")
        return b""
    if "e" in letters and role == "assistant" and kind == "text" and view.get("text") == "":
        log.append("empty")
        return b""
    if "p" in letters and role in _MEMBERS:
        if kind not in _PARTS.get(role, _TEXT) or not (kind in _WORDS or isinstance(view.get(kind), dict)):
            log.append("left_out")
            return rawjson.dumps({"type": "text", "text": note(kind)})
        if kind in _WORDS:
            edit.put(kind, text_in(edit.members.get(kind)), "rewritten")
    if "m" in letters and kind in _ALL_PARTS:
        edit.keep_only({"type", kind, "prompt_cache_breakpoint"})
    return work.done(edit)


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
