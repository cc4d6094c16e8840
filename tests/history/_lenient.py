"""Histories as lenient servers and their clients write them: valid by wide rules, refused by the own host.

Owns: one function for each habit, by provider API, and random histories with some of them.
Must never know: how anything is narrowed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from goaitools_py.base import rawjson

from ._damage import Words, random_history

__all__ = ["HABITS", "base_history", "dumped", "is_form", "lenient"]

Entry = dict[str, Any]
Habit = Callable[[list[Entry]], None]

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
LONG = "chatcmpl-tool-" + "0123456789" * 6


def base_history(words: Words) -> list[Entry]:
    """Two turns, one of them with two calls; everything is in the package's own words."""
    entries = [
        *(words.user("My name is Ada.") + words.calls("c1", "c2") + words.results("c1", "c2")),
        *(words.says("Hello Ada.") + words.user("Well?") + words.says("Yes.")),
    ]
    return [json.loads(entry) for entry in entries]


def lenient(wire: str, dice: random.Random, *, times: int) -> tuple[list[Entry], list[str]]:
    """A random history with some habits, and their names."""
    entries = [json.loads(entry) for entry in random_history(Words(wire), dice)]
    names = dice.sample(sorted(HABITS[wire]), min(times, len(HABITS[wire])))
    for name in names:
        HABITS[wire][name](entries)
    return entries, names


def _renamed(text: str, old: str, new: str) -> str:
    return text.replace(json.dumps(old), json.dumps(new))


def _everywhere(entries: list[Entry], change: Callable[[str], str]) -> None:
    entries[:] = [json.loads(change(json.dumps(entry))) for entry in entries]


def _named_anew(entries: list[Entry], key: str, made: Callable[[str], str]) -> None:
    """Give each call another id, and its results too."""
    ids = {found for entry in entries for found in _found(entry, key)}
    for id in sorted(ids):
        _everywhere(entries, lambda text, id=id: _renamed(text, id, made(id)))  # type: ignore[misc]


def _found(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        own = [value[key]] if isinstance(value.get(key), str) else []
        return own + [one for inner in value.values() for one in _found(inner, key)]
    return [one for inner in value for one in _found(inner, key)] if isinstance(value, list) else []


def _first(entries: list[Entry], **members: Any) -> Entry:
    return next(e for e in entries if all(e.get(key) == value for key, value in members.items()))


def _last(entries: list[Entry], **members: Any) -> Entry:
    return _first(entries[::-1], **members)


def _look_renamed(entries: list[Entry]) -> None:
    _everywhere(entries, lambda text: _renamed(text, "look", "functions.look"))


# ---------------------------------------------------------------------------------- Chat Completions


def _chat_calls(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.get("tool_calls")]


def _chat_no_calls(entries: list[Entry]) -> None:
    _last(entries, role="assistant")["tool_calls"] = []


def _chat_long_ids(entries: list[Entry]) -> None:
    _named_anew(entries, "tool_call_id", lambda id: LONG + id)


def _chat_speaker(entries: list[Entry]) -> None:
    _first(entries, role="user")["name"] = "Ada Lovelace"


def _chat_picture_in_result(entries: list[Entry]) -> None:
    for entry in entries:
        if entry["role"] == "tool":
            entry["content"] = [{"type": "text", "text": "found"}, PICTURE]


def _chat_picture_of_model(entries: list[Entry]) -> None:
    _last(entries, role="assistant")["content"] = [{"type": "text", "text": "Look:"}, PICTURE]


def _chat_only_picture_of_model(entries: list[Entry]) -> None:
    _last(entries, role="assistant")["content"] = [PICTURE]


def _chat_thoughts(entries: list[Entry]) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    _last(entries, role="assistant")["content"] = [thought, {"type": "text", "text": "Yes."}]


def _chat_responses_parts(entries: list[Entry]) -> None:
    _first(entries, role="user")["content"] = [{"type": "input_text", "text": "Hello."}]
    _last(entries, role="assistant")["content"] = [{"type": "output_text", "text": "Yes."}]


def _chat_film(entries: list[Entry]) -> None:
    film = {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}
    _first(entries, role="user")["content"] = [film]


# ----------------------------------------------------------------------------------------- Responses


def _items_own_parts(entries: list[Entry]) -> None:
    entry = _last(entries, role="assistant")
    entry["content"] = [{"type": "input_text", "text": "Yes."}]


def _items_models_parts(entries: list[Entry]) -> None:
    _first(entries, role="user")["content"] = [{"type": "output_text", "text": "Hello.", "annotations": []}]
    for entry in entries:
        if entry.get("type") == "function_call_output":
            entry["output"] = [{"type": "text", "text": "found"}]


def _items_reference(entries: list[Entry]) -> None:
    at = entries.index(_first(entries, role="user"))
    entries.insert(at + 1, {"type": "item_reference", "id": "msg_elsewhere"})


def _items_long_ids(entries: list[Entry]) -> None:
    _named_anew(entries, "call_id", lambda id: LONG + id)


def _items_twice(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.get("role") == "assistant":
            entry["id"] = "msg_same"


def _items_other_ids(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.get("role") == "assistant":
            entry["id"] = f"chatcmpl-{entry['id']}"


def _items_open_thought(entries: list[Entry]) -> None:
    thought = {"type": "reasoning", "id": "rs_open", "summary": [{"type": "summary_text", "text": "Hm."}]}
    entries.insert(entries.index(_last(entries, role="assistant")), thought)


def _items_picture_of_model(entries: list[Entry]) -> None:
    part = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}
    _last(entries, role="assistant")["content"] = [part]


# ----------------------------------------------------------------------------------------- Anthropic


def _whole_responses(entries: list[Entry]) -> None:
    more = {
        "id": "msg_1",
        "type": "message",
        "model": "claude",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1},
    }
    for entry in entries:
        if entry["role"] == "assistant":
            entry |= {**more, "stop_sequence": None, "container": None}


def _odd_ids(entries: list[Entry]) -> None:
    _named_anew(entries, "tool_use_id", lambda id: f"functions.look:{id}")


def _open_thinking(entries: list[Entry]) -> None:
    for n, signature in enumerate(({}, {"signature": ""}, {"signature": None})):
        replies = [entry for entry in entries if entry["role"] == "assistant"]
        if n < len(replies):
            replies[n]["content"].insert(0, {"type": "thinking", "thinking": "Hm.", **signature})


def _users_thinking(entries: list[Entry]) -> None:
    _first(entries, role="user")["content"].append({"type": "thinking", "thinking": "Hm.", "signature": "s"})


def _only_users_thinking(entries: list[Entry]) -> None:
    entries.insert(
        1, {"role": "user", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}
    )


def _many_marks(entries: list[Entry]) -> None:
    for entry in entries:
        entry["content"][-1]["cache_control"] = {"type": "ephemeral"}
    words = [{"type": "text", "text": f"word {n}", "cache_control": {"type": "ephemeral"}} for n in range(4)]
    _first(entries, role="user")["content"] += words


def _models_document(entries: list[Entry]) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    _last(entries, role="assistant")["content"].append({"type": "document", "source": source})


def _more_members(entries: list[Entry]) -> None:
    _last(entries, role="assistant")["content"][0]["parsed_output"] = None
    _first(entries, role="user")["content"][0]["id"] = "block_1"


def _users_citations(entries: list[Entry]) -> None:
    cited = {"type": "char_location", "cited_text": "a", "document_index": 0, "document_title": None}
    place = {"start_char_index": 0, "end_char_index": 1}
    _first(entries, role="user")["content"][0]["citations"] = [cited | place]


def _others_hosted_calls(entries: list[Entry]) -> None:
    call = {"type": "server_tool_use", "id": "call_1:2", "name": "web_search", "input": {"query": "x"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "call_1:2", "content": []}
    _last(entries, role="assistant")["content"][:0] = [call, result]


HABITS: Mapping[str, Mapping[str, Habit]] = {
    "openai": {
        "an empty list of calls": _chat_no_calls,
        "long ids": _chat_long_ids,
        "names with a dot": _look_renamed,
        "a name with a space": _chat_speaker,
        "a picture in a result": _chat_picture_in_result,
        "a picture of the model": _chat_picture_of_model,
        "only a picture of the model": _chat_only_picture_of_model,
        "thoughts as parts": _chat_thoughts,
        "a film": _chat_film,
        "parts of the Responses API": _chat_responses_parts,
    },
    "openai-responses": {
        "the user's parts at the model": _items_own_parts,
        "the model's parts at the user": _items_models_parts,
        "a reference": _items_reference,
        "long ids": _items_long_ids,
        "names with a dot": _look_renamed,
        "one id twice": _items_twice,
        "ids of another API": _items_other_ids,
        "reasoning without its encrypted form": _items_open_thought,
        "a picture of the model": _items_picture_of_model,
    },
    "anthropic": {
        "responses passed back whole": _whole_responses,
        "ids with other characters": _odd_ids,
        "thinking without a signature": _open_thinking,
        "thinking of the user": _users_thinking,
        "a user's message of thinking": _only_users_thinking,
        "many cache marks": _many_marks,
        "a document of the model": _models_document,
        "members that no type has": _more_members,
        "citations of the user": _users_citations,
        "hosted calls of another server": _others_hosted_calls,
    },
}
"""By provider API: each habit by name. It changes the entries in place."""

_NOT_FORMS = frozenset(
    {
        "a picture in a result",
        "a picture of the model",
        "only a picture of the model",
        "thoughts as parts",
        "a film",
        "reasoning without its encrypted form",
        "thinking without a signature",
        "a document of the model",
        "members that no type has",
        "citations of the user",
        "hosted calls of another server",
    }
)


def is_form(habit: str) -> bool:
    """True if an import mends the habit: any server takes the result, and nothing is lost."""
    return habit not in _NOT_FORMS


def dumped(entries: list[Entry]) -> list[bytes]:
    """The entries as they are stored."""
    return [rawjson.dumps(entry) for entry in entries]
