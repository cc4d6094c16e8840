"""Makes repeated call ids of a history unique. Entries in, entries out.

Owns: which call gets another id, and that its result follows it. Must never know: a host's other rules.

Chat Completions takes a second call with the id of an answered one, and real histories have them: servers
count ids from 0 in each reply, and 32 of 128 recorded conversations of one agent have an id twice. Anthropic
refuses it: "`tool_use` ids must be unique" (anthropics/claude-code#8612). A reader who looks for the result
of a call by its id finds the wrong one.

The first call keeps its id. Neighbouring calls with one id stay as they are: servers refuse these, so a
repair has mended them before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...base import rawjson
from .narrowing import Change, Edit, Narrow, each, fresh_id, object_in, word

__all__ = ["distinct"]


class _Ids:
    """The ids of calls, in the order of a history."""

    def __init__(self, used: set[str]) -> None:
        self._used = used
        self._now: dict[str, str] = {}
        self._answered: set[str] = set()
        self._times: dict[str, int] = {}
        self.changed: dict[str, str] = {}

    def call(self, edit: Edit, key: str) -> None:
        """A member has the id of a call that is made here."""
        id = rawjson.string(edit.members.get(key, b"")) or ""
        if id in self._answered:
            self._answered.discard(id)
            self._now[id] = fresh_id(id, self._times, self._used)
            self._used.add(self._now[id])
        self._put(edit, key, id)

    def result(self, edit: Edit, key: str) -> None:
        """A member has the id of the call that is answered here: the newest one with this id."""
        id = rawjson.string(edit.members.get(key, b"")) or ""
        self._answered.add(id)
        self._put(edit, key, id)

    def _put(self, edit: Edit, key: str, id: str) -> None:
        if (new := self._now.get(id, id)) != id:
            self.changed[id] = new
            edit.put(key, rawjson.dumps(new), "call_renamed")


def distinct(wire: str, entries: Sequence[bytes]) -> list[Narrow]:
    """The entries with unique ids for answered calls. An unchanged entry comes back as the same object, also
    every entry of a provider API without rules here."""
    change = _CHANGES.get(wire)
    views = [object_in(entry) for entry in entries] if change is not None else []
    known = [id for view in views if view is not None for id in _CALLED[wire](view)]
    if change is None or len(known) == len(set(known)):
        return [Narrow(entry) for entry in entries]
    ids = _Ids(set(known))
    return [_changed(entry, view, ids, change) for entry, view in zip(entries, views, strict=True)]


def _changed(
    entry: bytes, view: Mapping[str, Any] | None, ids: _Ids, change: Callable[[Edit, Any, _Ids], None]
) -> Narrow:
    if view is None:
        return Narrow(entry)
    log: list[Change] = []
    edit = Edit(entry, log)
    ids.changed = {}
    change(edit, view, ids)
    return Narrow(edit.done(), log, ids.changed)


# ------------------------------------------------------------------------------- each provider API


def _chat_calls(view: Mapping[str, Any]) -> Iterator[str]:
    yield from _ids_of(view.get("tool_calls"), "id")


def _chat(edit: Edit, view: Mapping[str, Any], ids: _Ids) -> None:
    if isinstance(view.get("tool_calls"), list):
        edit.put("tool_calls", each(edit.members["tool_calls"], partial(_chat_call, edit.log, ids)), None)
    ids.result(edit, "tool_call_id")


def _chat_call(log: list[Change], ids: _Ids, raw: bytes) -> bytes:
    if object_in(raw) is None:
        return raw
    edit = Edit(raw, log)
    ids.call(edit, "id")
    return edit.done()


def _item_calls(view: Mapping[str, Any]) -> Iterator[str]:
    if _makes_call(view):
        yield word(view, "call_id")


def _makes_call(view: Mapping[str, Any]) -> bool:
    return bool(word(view, "call_id")) and not word(view, "type").endswith("_output")


def _item(edit: Edit, view: Mapping[str, Any], ids: _Ids) -> None:
    (ids.call if _makes_call(view) else ids.result)(edit, "call_id")


def _block_calls(view: Mapping[str, Any]) -> Iterator[str]:
    content = view.get("content")
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    yield from _ids_of([one for one in blocks if one.get("type") == "tool_use"], "id")


def _blocks(edit: Edit, view: Mapping[str, Any], ids: _Ids) -> None:
    if isinstance(view.get("content"), list):
        edit.put("content", each(edit.members["content"], partial(_block, edit.log, ids)), None)


def _block(log: list[Change], ids: _Ids, raw: bytes) -> bytes:
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


def _ids_of(calls: object, key: str) -> Iterator[str]:
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and (id := word(call, key)):
            yield id


_CALLED: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "openai": _chat_calls,
    "openai-responses": _item_calls,
    "anthropic": _block_calls,
}
_CHANGES: Mapping[str, Callable[[Edit, Any, _Ids], None]] = {
    "openai": _chat,
    "openai-responses": _item,
    "anthropic": _blocks,
}
