"""A Messages request as a host with other rules takes it.

Owns: which messages stand where in the sent history, and the tools that a history needs. Must never know: the
form of one message (`forms` does), which host has which rules, or where the stored history is.

=  ======================================================================================================
a  Messages of one role are joined. Templates of Gemma and Mistral want user and assistant to alternate;
   Anthropic itself takes neighbours
l  A message of the user stands behind a reply at the end: "The conversation must end with a user message"
s  A system message in the history becomes a user's message with a block: Vertex answers "role 'system' is
   not supported on this model" (neurolink#1772, 2026-09), Zhipu 422 (GLM-5#74, 2026-05)
t  The tools that the history used are offered, and calls forbidden: LiteLLM answers "doesn't support tool
   calling without `tools=`" (litellm#24712, 2026-03), Converse needs toolConfig (pydantic-ai#5929, 2026-06)
u  A reply of one dot stands between results and words of the user: "Unexpected role 'user' after role
   'tool'" (Mistral's models behind a gateway)
w  As "v", but only if a picture is known to be too large; see `pictures`
z  As "s", and the system text of the request is a user's message before the history: templates of Gemma
   behind a server answer "System role not supported" (vllm#2964)
=  ======================================================================================================

The other letters change single messages; see `forms`. Signed thinking is bound to everything before it. If a
model reads something else before it now, the provider is asked to drop the blocks that do not fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ...base import rawjson
from ...base.values import replace
from ...types.request_parts import ToolSpec
from ..base import RequestParts
from ..protocols import Change, HostRules, is_read
from ..wire.grown_view import Walk, viewed
from ..wire.narrowing import object_in, word
from ..wire.request import joined
from . import writing
from .forms import Frame, message_view
from .pictures import skipped_pictures
from .sent_history import as_users

__all__ = ["request_view"]

_LETTERS: Final = frozenset("acefijklmprstuz")
"""The letters that change a history by themselves. "v" and "w" do so with the number of pictures."""

_ALWAYS_READ: Final = frozenset("fmp")
"""Any message may break these rules, so each is read once."""

_NEEDLES: Final = {
    "c": b'thinking"',
    "i": b"tool_",
    "j": b"tool_",
    "k": b'"assistant"',
    "r": b'thinking"',
    "v": b'"image"',
}
"""A message without these bytes keeps to the rule."""

_SIGNED: Final = re.compile(rb'"signature"\s*:\s*"[^"]')

_DOT: Final = b'{"role":"assistant","content":[{"type":"text","text":"."}]}'
_GO_ON: Final = b'{"role":"user","content":[{"type":"text","text":"(Please go on.)"}]}'

_USED: Final = "A tool of this conversation. It cannot be called now."
_ANY: Final = {"type": "object", "properties": {}}


def request_view(parts: RequestParts, rules: HostRules) -> RequestParts:
    """The request as a host with these rules takes it; see `ViewsHistory`."""
    letters = "".join(sorted(_LETTERS.intersection(rules.letters)))
    if "r" in letters:  # it excludes "k"
        letters = letters.replace("k", "")
    counts = "v" in rules.letters or ("w" in rules.letters and parts.has_media)
    if not letters and not counts:
        return parts
    history = parts.history
    if "z" in letters and parts.preamble:
        history = [_as_lead(parts.preamble), *history]
    whole = joined([piece for piece in history if piece])
    skipped = 0
    if counts:
        skipped = skipped_pictures(whole, only_large="v" not in rules.letters)
    if skipped:
        letters += "v"
    if not letters:
        return parts
    rules_here = ("anthropic", letters, skipped)
    found = viewed(rules_here, lambda: _Messages(letters, skipped), whole, history)
    walk = found.walk
    assert isinstance(walk, _Messages)
    changes: dict[str, Any] = {}
    if found.pieces is not parts.history:
        changes["history"] = found.pieces
    if "z" in letters and parts.preamble:
        changes["preamble"] = b""
    if walk.names and "t" in letters and not parts.tools:
        changes |= {"tools": _tools(walk.names), "forbid_tools": True}
    if walk.is_unbound or (walk.is_signed and "tools" in changes):
        changes["drop_signed"] = True
    if skipped:
        changes["left_out"] = {"image": skipped}
    return replace(parts, **changes) if changes else parts


def _as_lead(preamble: bytes) -> bytes:
    """The system text of a request as a message of the user."""
    return as_users(b'{"role":"system","content":%s}' % preamble)


def _tools(names: Sequence[str]) -> bytes:
    """Tools with these names, in the order of their first calls."""
    specs = [ToolSpec(name=name, description=_USED, parameters=_ANY) for name in names]
    return rawjson.dumps([writing.function(spec) for spec in specs])


class _Messages(Walk):
    """The walk over a history of messages.

    Attributes:
        names: The names of the tools that were called, in the order of their first calls.
        is_signed: True if some thinking has a signature.
        is_unbound: True if a signature stands behind something that a model reads otherwise now.
    """

    __slots__ = (
        "_frame",
        "_held",
        "_is_open",
        "_is_reread",
        "_letters",
        "_needles",
        "_role",
        "_waits",
        "is_signed",
        "is_unbound",
        "names",
    )

    def __init__(self, letters: str, skipped: int) -> None:
        self._letters = letters
        self._frame = Frame(letters, skipped=skipped)
        self._needles = tuple({_NEEDLES[one] for one in letters if one in _NEEDLES})
        self._role = ""
        self._is_open = False  # the newest message has calls
        self._held: list[bytes] = []  # "a": the newest messages, all of one role
        self._waits = False  # "u": results stand at the end
        self._is_reread = False
        self.names: list[str] = []
        self.is_signed = False
        self.is_unbound = False

    def copy(self) -> _Messages:
        """A walk with the same state."""
        other = _Messages.__new__(_Messages)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._frame, other._held, other.names = self._frame.copy(), [*self._held], [*self.names]
        return other

    def take(self, entry: bytes) -> Sequence[bytes]:
        """The next message as it is sent."""
        role, sent = _role_of(entry), entry
        if role == "system" and ("s" in self._letters or "z" in self._letters):
            role, sent = "user", as_users(entry) if object_in(entry) is not None else entry
            self._is_reread = True
            if not sent:
                return ()
        if self._is_touched(sent):
            sent = self._changed(sent)
        if _SIGNED.search(sent):
            self.is_signed = True
            self.is_unbound = self.is_unbound or self._is_reread
        if not sent:
            return ()
        if "t" in self._letters and role == "assistant" and b'"tool_use"' in sent:
            self._learn(sent)
        made = self._parted(sent, role) if "u" in self._letters else [(role, sent)]
        self._role, self._is_open = role, b'tool_use"' in sent
        if "a" not in self._letters:
            return [one for _, one in made]
        return [done for role, one in made for done in self._hold(role, one)]

    def rest(self) -> Sequence[bytes]:
        """The messages that were held back, and "l"."""
        left = [*_as_one(self._held)]
        if "l" in self._letters and self._role == "assistant" and not self._is_open:
            left.append(_GO_ON)
        return left

    def _is_touched(self, entry: bytes) -> bool:
        """True if a rule for single messages may change this one."""
        return (
            not _ALWAYS_READ.isdisjoint(self._letters)
            or any(needle in entry for needle in self._needles)
            or ("e" in self._letters and _may_be_empty(entry))
        )

    def _changed(self, entry: bytes) -> bytes:
        view = object_in(entry)
        if view is None:
            return entry
        log: list[Change] = []
        sent = message_view(entry, view, log, self._frame)
        self._is_reread = self._is_reread or any(map(is_read, log))
        return sent

    def _learn(self, entry: bytes) -> None:
        for block in _blocks_in(entry):
            name = word(block, "name")
            if block.get("type") == "tool_use" and name and name not in self.names:
                self.names.append(name)

    def _parted(self, entry: bytes, role: str) -> list[tuple[str, bytes]]:
        """The message, with a dot between the results of calls and the words of the user."""
        if role == "assistant":
            self._waits = False
            return [(role, entry)]
        results, others = _split(entry) if b'"tool_result"' in entry else (b"", entry)
        made = [(role, results)] if results else []
        if others and (results or self._waits):
            self._is_reread = True
            made.append(("assistant", _DOT))
        self._waits = not others
        return [*made, (role, others)] if others else made

    def _hold(self, role: str, entry: bytes) -> list[bytes]:
        """Hold a message back until one of the other role comes. Gives the message that was held before."""
        held = self._held
        if held and _role_of(held[0]) == role and role != "system":
            held.append(entry)
            return []
        self._held = [entry]
        return _as_one(held)


# --------------------------------------------------------------------------------- single messages

_STARTS: Final = {
    b'{"role":"user"': "user",
    b'{"role":"assistant"': "assistant",
    b'{"role":"system"': "system",
}


def _role_of(entry: bytes) -> str:
    for start, role in _STARTS.items():
        if entry.startswith(start):
            return role
    view = object_in(entry)
    return word(view, "role") if view is not None else ""


_MAYBE_EMPTY: Final = re.compile(rb':\s*(?:"(?:[\s\x80-\xff]|\\(?:u[0-9a-fA-F]{4}|.))*+"|\[\s*+\]|null)')
"""Text of white space. Text in other alphabets only is found, too, and then read."""


def _may_be_empty(entry: bytes) -> bool:
    return _MAYBE_EMPTY.search(entry) is not None or b'"content"' not in entry


def _blocks_in(entry: bytes) -> list[dict[str, Any]]:
    view = object_in(entry)
    content = view.get("content") if view is not None else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _split(entry: bytes) -> tuple[bytes, bytes]:
    """The results of a message, and its other blocks, each as a message; b"" for none. The message itself if
    it has only one kind."""
    try:
        members = rawjson.members(entry)
        blocks = rawjson.items(members.get("content", b""))
    except rawjson.RawJSONError:
        return b"", entry
    results: list[bytes] = []
    others: list[bytes] = []
    for block in blocks:
        view = object_in(block)
        (results if view is not None and view.get("type") == "tool_result" else others).append(block)
    if not results or not others:
        return (b"", entry) if others else (entry, b"")
    return writing.with_blocks(entry, results), writing.with_blocks(entry, others)


def _as_one(entries: list[bytes]) -> list[bytes]:
    """One message with the blocks of all, and the other members of the first. The entries themselves if there
    is one at most, or one that is no JSON."""
    if len(entries) < 2:
        return entries
    try:
        blocks = [block for entry in entries for block in _raw_blocks(entry)]
    except rawjson.RawJSONError:
        return entries
    return [writing.with_blocks(entries[0], blocks)]


def _raw_blocks(entry: bytes) -> list[bytes]:
    content = rawjson.members(entry).get("content", b"[]")
    if content.startswith(b"["):
        return rawjson.items(content)
    return [b'{"type":"text","text":' + content + b"}"] if content.startswith(b'"') else []
