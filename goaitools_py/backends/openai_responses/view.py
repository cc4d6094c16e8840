"""A Responses request as a host with other rules takes it.

Owns: which items stand where in the sent history, the system messages, and the tools that a history needs.
Must never know: the form of one item (`forms` does), which host has which rules, or where the stored history
is.

=  ======================================================================================================
a  Messages of one role are joined. Templates of Gemma and Mistral behind a server want them to alternate
c  The reasoning of a reply with text and calls is left out: the template of gpt-oss answers "Cannot pass
   both content and thinking in an assistant message with tool calls!" (llama.cpp#19702, 2026-02). llama.cpp
   makes one message of a reply's items
e  A message of the model that says nothing is left out, with the reasoning that only it followed
l  A message of the user stands behind a reply at the end: "Assistant response prefill is incompatible with
   enable_thinking." (llama.cpp#20861)
s  A system message in the history becomes text of the user's: "System message must be at the beginning."
   (vllm#41114; ollama#17774, 2026-08). Those before the history become one
t  The tools that the history used are offered, and calls forbidden: LiteLLM answers "doesn't support tool
   calling without `tools=`" (litellm#24712, 2026-03)
u  A reply of one dot stands between a call's output and a message of the user: "Unexpected role 'user' after
   role 'tool'" (Mistral's models behind a server)
z  As "s", and the system messages before the history are a user's: templates of Gemma answer "System role
   not supported" (vllm#2964)
=  ======================================================================================================

The other letters change single items; see `forms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...base import rawjson
from ...base.values import replace
from ...types.render import system_block
from ...types.request_parts import ToolSpec
from ..base import RequestParts
from ..protocols import Change, HostRules
from ..wire.grown_view import Walk, viewed
from ..wire.narrowing import object_in, word
from ..wire.request import joined
from .forms import GIVEN, ItemFrame, item_view, kind_of
from .writing import function_tool

__all__ = ["request_view"]

_LETTERS: Final = frozenset("acdefhijlmprstuxz")

_ALWAYS_READ: Final = frozenset("fmp")
"""Any item may break these rules, so each is read once."""

_NEEDLES: Final = {
    "d": b'"developer"',
    "h": b'"arguments"',
    "i": b'id"',
    "j": b'id"',
    "r": b'"reasoning"',
    "x": b"[",
}
"""An item without these bytes keeps to the rule."""

_RENAMES: Final[frozenset[Change]] = frozenset({"left_out", "rewritten", "tool_renamed"})
"""The changes that may give an item another type, role or name. Behind the others it is not read again."""

_USERS: Final = b'{"role":"user"'
_DOT: Final = b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"."}]}'
_PLAIN_DOT: Final = b'{"type":"message","role":"assistant","content":"."}'
_GO_ON: Final = b'{"role":"user","content":"(Please go on.)"}'

_USED: Final = "A tool of this conversation. It cannot be called now."
_ANY: Final = {"type": "object", "properties": {}}


def request_view(parts: RequestParts, rules: HostRules, *, is_own: bool) -> RequestParts:
    """The request as a host with these rules takes it; see `ViewsHistory`. `is_own`: see `ItemFrame`."""
    letters = "".join(sorted(_LETTERS.intersection(rules.letters)))
    if not letters:
        return parts
    history, preamble = parts.history, parts.preamble
    if "z" in letters and preamble:
        history, preamble = [preamble, *history], b""
    whole = joined([piece for piece in history if piece])
    is_led = bool(preamble)
    rules_here = ("openai-responses", letters, is_own, is_led)
    found = viewed(rules_here, lambda: _Walked(letters, is_own=is_own, is_led=is_led), whole, history)
    walk = found.walk
    assert isinstance(walk, _Walked)
    changes: dict[str, Any] = {}
    if found.pieces is not parts.history:
        changes["history"] = found.pieces
    if is_led:
        preamble = _preamble(preamble, letters)
    if preamble != parts.preamble:
        changes["preamble"] = preamble
    if walk.names and "t" in letters and not parts.tools:
        tools = rawjson.dumps([_tool(name, kind) for name, kind in walk.names.items()])
        changes |= {"tools": tools, "forbid_tools": True}
    return replace(parts, **changes) if changes else parts


def _tool(name: str, kind: str) -> dict[str, Any]:
    if kind == "custom_tool_call":
        return {"type": "custom", "name": name, "description": _USED}
    return function_tool(ToolSpec(name=name, description=_USED, parameters=_ANY))


def _preamble(preamble: bytes, letters: str) -> bytes:
    """The system messages before the history: one of them by "s", of the role ``system`` by "d"."""
    entries = preamble.split(b",\n")
    if "s" in letters and len(entries) > 1:
        texts = [_text_of(view) for entry in entries if (view := object_in(entry)) is not None]
        entries = [rawjson.replaced(entries[0], {"content": rawjson.dumps("\n\n".join(texts))})]
    if "d" in letters:
        entries = [_renamed(entry) for entry in entries]
    return joined(entries)


def _renamed(entry: bytes) -> bytes:
    view = object_in(entry)
    if view is None or view.get("role") != "developer":
        return entry
    return rawjson.replaced(entry, {"role": b'"system"'})


class _Walked(Walk):
    """The walk over a history of items.

    Attributes:
        names: The tools that were called, by name the type of the item, in the order of their first calls.
    """

    __slots__ = (
        *("_frame", "_has_begun", "_has_gap", "_held", "_is_led", "_kind", "_letters", "_needles"),
        *("_waits", "names"),
    )

    def __init__(self, letters: str, *, is_own: bool, is_led: bool) -> None:
        self._letters = letters
        self._frame = ItemFrame(letters, is_own=is_own)
        self._needles = tuple({_NEEDLES[one] for one in letters if one in _NEEDLES})
        self._is_led = is_led
        self._has_begun = False
        self._held: list[tuple[str, bytes]] = []  # a reply's items, or with "a" a user's messages
        self._has_gap = False  # an item of the reply was left out
        self._waits = False  # an output stands at the end
        self._kind = ""
        self.names: dict[str, str] = {}

    def copy(self) -> _Walked:
        """A walk with the same state."""
        other = _Walked.__new__(_Walked)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._frame, other._held, other.names = self._frame.copy(), [*self._held], {**self.names}
        return other

    def take(self, entry: bytes) -> Sequence[bytes]:
        """The next item as it is sent."""
        is_users = entry.startswith(_USERS)
        view = None if is_users else object_in(entry)
        kind = "user" if is_users else kind_of(view) if view is not None else ""
        if kind in ("system", "developer") and self._goes_behind():
            assert view is not None
            text = _text_of(view)
            entry, kind, view = rawjson.dumps({"role": "user", "content": system_block(text)}), "user", None
            if not text:
                return ()
        self._has_begun = True
        if self._is_touched(entry):
            view = object_in(entry) if view is None else view
            if view is not None:
                log: list[Change] = []
                entry = item_view(entry, view, log, self._frame)
                if entry and not _RENAMES.isdisjoint(log):
                    view = object_in(entry)
                kind = kind_of(view) if view is not None else kind
        if not entry:
            self._has_gap = True
            return ()
        if view is not None and kind in _CALLS and (name := word(view, "name")):
            self.names.setdefault(name, kind)
        self._kind = kind
        return self._placed(kind, entry)

    def rest(self) -> Sequence[bytes]:
        """The items that were held back, and "l"."""
        left = self._done()
        is_open = any(kind.endswith(("_call", "_request")) for kind, _ in self._held)
        stays = "l" not in self._letters or self._kind != "assistant" or is_open
        return left if stays else [*left, _GO_ON]

    def _goes_behind(self) -> bool:
        """True if a system message that comes now is text of a user's."""
        return "z" in self._letters or ("s" in self._letters and (self._is_led or self._has_begun))

    def _is_touched(self, entry: bytes) -> bool:
        """True if a rule for single items may change this one."""
        return (
            not _ALWAYS_READ.isdisjoint(self._letters)
            or self._frame.follows_gone
            or any(needle in entry for needle in self._needles)
            or ("e" in self._letters and _MAYBE_EMPTY.search(entry) is not None)
        )

    def _placed(self, kind: str, entry: bytes) -> list[bytes]:
        """Hold an item back, or send it. Gives the items that were held before and are finished now."""
        is_output = kind.endswith("_output")
        if kind not in GIVEN and not is_output:
            done = self._done() if self._held and self._held[0][0] in GIVEN else []
            self._held = [(kind, entry)] if done else [*self._held, (kind, entry)]
            self._waits = False
            return done
        if kind == "user" and "a" in self._letters and self._held and self._held[0][0] == "user":
            self._held.append((kind, entry))
            return []
        done = self._done()
        self._held, self._has_gap = [], False
        if kind == "user" and self._waits and "u" in self._letters:
            done.append(_PLAIN_DOT if "x" in self._letters else _DOT)
        self._waits = is_output
        if kind == "user" and "a" in self._letters:
            self._held = [(kind, entry)]
            return done
        return [*done, entry]

    def _done(self) -> list[bytes]:
        """The held items, as they are sent if no item of the same reply follows."""
        held = self._held
        if not held:
            return []
        if held[0][0] == "user":
            return _as_one([entry for _, entry in held], "input_text")
        kinds = {kind for kind, _ in held}
        if "c" in self._letters and "assistant" in kinds and not kinds.isdisjoint(_CALLS):
            held = [(kind, entry) for kind, entry in held if kind != "reasoning"]
        while self._has_gap and held and held[-1][0] == "reasoning":
            held = held[:-1]
        return _neighbours_joined(held) if "a" in self._letters else [entry for _, entry in held]


# ------------------------------------------------------------------------------------ single items

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})

_MAYBE_EMPTY: Final = re.compile(rb':\s*(?:"(?:[\s\x80-\xff]|\\(?:u[0-9a-fA-F]{4}|.))*+"|\[\s*+\]|null)')
"""Text of white space. Text in other alphabets only is found, too, and then read."""


def _text_of(view: Mapping[str, Any]) -> str:
    content = view.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n\n".join([word(part, "text") for part in parts if isinstance(part, dict) and part.get("text")])


def _neighbours_joined(items: Sequence[tuple[str, bytes]]) -> list[bytes]:
    """The items of a reply, with one message where two stood side by side."""
    runs: list[tuple[str, list[bytes]]] = []
    for kind, entry in items:
        if runs and kind == runs[-1][0] == "assistant":
            runs[-1][1].append(entry)
        else:
            runs.append((kind, [entry]))
    return [one for _, entries in runs for one in _as_one(entries, "output_text")]


def _as_one(entries: list[bytes], text: str) -> list[bytes]:
    """One message with the parts of all, and the other members of the first. The entries themselves if there
    is one only, or one that is no JSON. `text`: the type of a part that is text."""
    if len(entries) == 1:
        return entries
    try:
        contents = [rawjson.members(entry).get("content", b"[]") for entry in entries]
    except rawjson.RawJSONError:
        return entries
    if all(content.startswith(b'"') for content in contents):
        made = rawjson.dumps("\n\n".join([rawjson.string(content) or "" for content in contents]))
    else:
        parts = [part for content in contents for part in _raw_parts(content, text)]
        made = b"[" + b",".join(parts) + b"]"
    return [rawjson.replaced(entries[0], {"content": made})]


def _raw_parts(content: bytes, text: str) -> list[bytes]:
    if content.startswith(b'"'):
        return [b'{"type":%s,"text":%s}' % (rawjson.dumps(text), content)]
    return rawjson.items(content) if content.startswith(b"[") else []
