"""A Chat Completions request as a host takes it, by the letters of its rules.

Owns: the order of the sent messages, the preamble and the tools of a view. Must never know: the members of
one message (see `forms`), or which host has which rules.

The rules are applied in one order: first the rules for each message, then one system message (``s``, ``z``),
then roles that alternate (``a``), a user's message behind a tool's (``u``), and the end (``l``). Where two
rules exclude each other, ``r`` counts more than ``q``, ``q`` more than ``k``, ``i`` more than ``j``, ``c``
more than ``k``, ``n`` more than ``e``, ``z`` more than ``s``.

A longer history begins with the bytes of the shorter one, so that prompt caches stay valid. It cannot where

* ``a`` joins a new message with the last one,
* ``s`` puts the text of a system message, which was the last one, into a new message of the user,
* ``l`` had added a message behind the assistant's,
* ``v`` leaves out pictures. Ten at a time, so that this is rare,
* ``t`` offers one more tool: the tools stand before the messages.

A kept view grows with its conversation (`grown_view`). Without one the result is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from ...base import rawjson
from ...base.values import replace
from ...types.render import system_block, valid_text
from ..base import RequestParts
from ..protocols import HostRules
from ..wire.grown_view import Walk, viewed
from ..wire.kept_views import BETWEEN
from ..wire.narrowing import note, object_in, rebuilt, word
from ..wire.tolerance import as_dict, members_of
from .forms import LETTERS, message_view

__all__ = ["request_view"]

_SYSTEM: Final = ("system", "developer")
_DOT: Final = {role: rawjson.dumps({"role": role, "content": "."}) for role in ("user", "assistant")}

_MOST_PICTURES: Final = 20
_AT_ONCE: Final = 10


def request_view(parts: RequestParts, rules: HostRules) -> RequestParts:
    """The request as a host with these rules takes it; the same object if nothing changes.

    A pure function. See `ViewsHistory`.
    """
    letters = _ordered(rules.letters, has_tools=bool(parts.tools))
    if not letters:
        return parts
    whole = BETWEEN.join([piece for piece in parts.history if piece])
    preamble = _preamble(parts.preamble, letters) if parts.preamble else b""
    pieces, talk = _viewed(parts, whole, letters, preamble, 0)
    if talk.pictures > _MOST_PICTURES:
        over = talk.pictures - _MOST_PICTURES
        pieces, talk = _viewed(parts, whole, letters, preamble, -(-over // _AT_ONCE) * _AT_ONCE)
    if talk.lead:
        preamble = _all_joined([preamble, *talk.lead])
    if "z" in letters and whole:
        preamble = b""
    changed: dict[str, Any] = {}
    if pieces is not parts.history:
        changed["history"] = pieces
    if preamble != parts.preamble:
        changed["preamble"] = preamble
    if talk.tools:
        changed |= {"tools": _offered(talk.tools), "forbid_tools": True}
    return replace(parts, **changed) if changed else parts


def _ordered(letters: str, *, has_tools: bool) -> str:
    """The letters that count in this request, without those that another one excludes."""
    found = {letter for letter in letters if letter in _ALL}
    if "w" in letters:  # a server of Anthropic's models; to measure pictures would take too long
        found.add("v")
    if has_tools:
        found.discard("t")
    for stronger, weaker in (("r", "kq"), ("q", "k"), ("i", "j"), ("z", "s")):
        if stronger in found:
            found -= set(weaker)
    return "".join(sorted(found))


_ALL: Final = LETTERS | frozenset("alstuvz")


def _preamble(preamble: bytes, letters: str) -> bytes:
    """The leading system messages, as one if the host takes one only."""
    entries = preamble.split(BETWEEN)
    made = entries
    if not LETTERS.isdisjoint(letters):
        made = [one if _PLAIN.fullmatch(one) else message_view(one, letters) for one in entries]
    if len(made) > 1 and ("s" in letters or "a" in letters):
        return _all_joined(made)
    is_same = all(new is old for new, old in zip(made, entries, strict=True))
    return preamble if is_same else BETWEEN.join(made)


def _offered(tools: Mapping[str, str]) -> bytes:
    """The tools that a history used, so that it may have calls. The model is forbidden to call them."""
    made: list[dict[str, Any]] = []
    for name, kind in sorted(tools.items()):
        empty = {} if kind == "custom" else {"parameters": {"type": "object", "properties": {}}}
        made.append({"type": kind, kind: {"name": name, **empty}})
    return rawjson.dumps(made)


# ------------------------------------------------------------------------------------- the messages


def _viewed(
    parts: RequestParts, whole: bytes, letters: str, preamble: bytes, left_out: int
) -> tuple[Sequence[bytes], _Talk]:
    """The sent pieces of the history. `left_out`: how many of its first pictures are left out."""
    rules = ("openai", letters, left_out, preamble if "z" in letters else bool(preamble))
    found = viewed(rules, lambda: _Talk(letters, preamble, left_out), whole, parts.history)
    assert isinstance(found.walk, _Talk)
    return found.pieces, found.walk


class _Talk(Walk):
    """The messages of a history as they are sent, one after another.

    Attributes:
        last: The last message, which may still be joined with the next; b"" before the first.
        role: Its role.
        waiting: Texts of system messages for the next message of the user.
        lead: System messages at the beginning, which become a part of the preamble.
        tools: The kinds of the used tools, by name.
        pictures: How many pictures there were.
    """

    __slots__ = (
        "_has_preamble",
        "_left_out",
        "_letters",
        "_needles",
        "_out",
        "last",
        "lead",
        "pictures",
        "role",
        "tools",
        "waiting",
    )

    def __init__(self, letters: str, preamble: bytes, left_out: int) -> None:
        self._letters = letters
        self._left_out = left_out
        self._needles = _needles(letters)
        self._has_preamble = bool(preamble)
        self._out: list[bytes] = []
        self.last = b""
        self.role = ""
        self.lead: tuple[bytes, ...] = ()
        self.tools: Mapping[str, str] = {}
        self.pictures = 0
        self.waiting: tuple[str, ...] = ()
        if "z" in letters and preamble:
            self.waiting = tuple(map(_text, preamble.split(BETWEEN)))

    def copy(self) -> Self:
        made = type(self).__new__(type(self))
        for name in _Talk.__slots__:
            setattr(made, name, getattr(self, name))
        made._out = []
        return made

    def take(self, entry: bytes) -> Sequence[bytes]:
        self._add(entry)
        out, self._out = self._out, []
        return out

    def rest(self) -> Sequence[bytes]:
        if not self.waiting and not ("l" in self._letters and self.role == "assistant"):
            return (self.last,) if self.last else ()
        end = self.copy()
        end._place(_of_texts(self.waiting) if self.waiting else _DOT["user"], "user")
        return (*end._out, end.last)

    def _add(self, entry: bytes) -> None:
        role = _role(entry)
        if self._may_change(entry, role):
            entry = message_view(entry, self._letters)
            if not entry:
                return
        if role == "developer" and "d" in self._letters:
            role = "system"
        if "t" in self._letters and b'"tool_calls"' in entry:
            self.tools = {**self.tools, **_called(entry)}
        if "v" in self._letters and b'"image_url"' in entry:
            entry = self._seen(entry)
        is_first = self.role in ("", *_SYSTEM)
        if role in _SYSTEM and not (_ONE_SYSTEM if is_first else _FIRST_SYSTEM).isdisjoint(self._letters):
            self._system(entry, role)
            return
        if self.waiting and role == "user":
            entry = _behind_texts(self.waiting, entry)
            self.waiting = ()
        elif self.waiting:
            self._place(_of_texts(self.waiting), "user")
            self.waiting = ()
        self._place(entry, role)

    def _may_change(self, entry: bytes, role: str) -> bool:
        if self._needles is not None:
            return any(needle in entry for needle in self._needles)
        if role == "assistant" and "k" in self._letters:
            return True
        return not (_PLAIN_NINE if "i" in self._letters else _PLAIN).fullmatch(entry)

    def _system(self, entry: bytes, role: str) -> None:
        if "z" in self._letters or self.role not in ("", *_SYSTEM):
            self.waiting = (*self.waiting, _text(entry))
        elif self._has_preamble:
            self.lead = (*self.lead, entry)
        elif self.last:
            self.last = _joined(self.last, entry) or self.last
        else:
            self._push(entry, role)

    def _place(self, entry: bytes, role: str) -> None:
        if "a" in self._letters:
            if role == self.role and role in _JOINED and (made := _joined(self.last, entry)):
                self.last = made
                return
            if role == "assistant" and self.role in ("", *_SYSTEM):
                self._push(_DOT["user"], "user")
        if "u" in self._letters and role == "user" and self.role == "tool":
            dot = _DOT["assistant"]
            self._push(message_view(dot, "k") if "k" in self._letters else dot, "assistant")
        self._push(entry, role)

    def _push(self, entry: bytes, role: str) -> None:
        if self.last:
            self._out.append(self.last)
        self.last, self.role = entry, role

    def _seen(self, entry: bytes) -> bytes:
        """Count the pictures of a message, and leave out those that are too old."""
        members = members_of(entry)
        content = members.get("content", b"")
        if not content.startswith(b"["):
            return entry
        made: list[bytes] = []
        is_changed = False
        for part in rawjson.items(content):
            kept = part
            if word(object_in(part) or {}, "type") == "image_url":
                self.pictures += 1
                if self.pictures <= self._left_out:
                    kept, is_changed = _NO_PICTURE, True
            made.append(kept)
        return rebuilt({**members, "content": b"[" + b",".join(made) + b"]"}) if is_changed else entry


_NO_PICTURE: Final = rawjson.dumps({"type": "text", "text": note("image_url")})
_FIRST_SYSTEM: Final = frozenset("sz")
_ONE_SYSTEM: Final = frozenset("asz")
"""Rules for a system message behind others, and for several at the beginning."""
_JOINED: Final = frozenset({"user", "assistant", *_SYSTEM})

_FORM: Final = (
    rb'\{"role":"(?:(?:system|user|assistant)|tool","tool_call_id":"%s)",'
    rb'"content":"(?:[^"\\]++|\\.)++"\}'
)
_PLAIN: Final = re.compile(_FORM % rb"[a-zA-Z0-9_-]{1,40}")
_PLAIN_NINE: Final = re.compile(_FORM % rb"[a-zA-Z0-9]{9}")
"""Messages that break no rule for one message, except one of the assistant's without reasoning."""

_NEEDLES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "c": (b'"tool_calls"',),
    "d": (b'"developer"',),
    "g": (b'"tool_calls"',),
    "h": (b'"tool_calls"',),
    "i": (b'"tool_call',),
    "j": (b'"tool_call',),
    "q": (b'"reasoning_content"',),
    "r": (b"reasoning", b"thinking"),
    "x": (b'"type"', b"[]"),
    "y": (b'"name"',),
}
"""What a message must have so that a rule can change it. Rules without a row may change any message."""


def _needles(letters: str) -> tuple[bytes, ...] | None:
    """The bytes of which a message has one if a rule changes it; None if any message may change."""
    own = sorted(LETTERS.intersection(letters))
    if any(letter not in _NEEDLES for letter in own):
        return None
    return tuple({needle: None for letter in own for needle in _NEEDLES[letter]})


# ------------------------------------------------------------------------------------- one message


class _Head(msgspec.Struct):
    role: Any = None


_HEAD_OF: Final = msgspec.json.Decoder(_Head)
_ROLE: Final = re.compile(rb'\{"role":"([a-z]+)"')


def _role(entry: bytes) -> str:
    if (found := _ROLE.match(entry)) is not None:
        return found[1].decode()
    try:
        role = _HEAD_OF.decode(entry).role
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        role = (object_in(entry) or {}).get("role")
    return role if isinstance(role, str) else ""


def _called(entry: bytes) -> dict[str, str]:
    """The kinds of the tools that a message calls, by name."""
    calls = (object_in(entry) or {}).get("tool_calls")
    found: dict[str, str] = {}
    for call in calls if isinstance(calls, list) else ():
        for kind in ("function", "custom"):
            if name := word(as_dict(as_dict(call).get(kind)), "name"):
                found[name] = kind
    return found


def _text(entry: bytes) -> str:
    """The text of a system message."""
    content = (object_in(entry) or {}).get("content")
    if isinstance(content, str):
        return content
    parts = map(as_dict, content if isinstance(content, list) else ())
    return "\n\n".join(text for part in parts if (text := word(part, "text")))


def _of_texts(texts: Iterable[str]) -> bytes:
    """A message of the user with the texts of system messages. A user's own text cannot look like it."""
    blocks = [system_block(valid_text(text)) for text in texts]
    return rawjson.dumps({"role": "user", "content": "\n\n".join(blocks)})


def _behind_texts(texts: Iterable[str], entry: bytes) -> bytes:
    before, members = _of_texts(texts), members_of(entry)
    content = _contents(members_of(before)["content"], members.get("content", b"null"))
    return rebuilt({**members, "content": content}) if content else BETWEEN.join((before, entry))


def _all_joined(entries: Sequence[bytes]) -> bytes:
    """Messages of one role as one; those with an odd content stay apart."""
    made = [entries[0]]
    for entry in entries[1:]:
        one = _joined(made[-1], entry)
        made[-1:] = [one] if one else [made[-1], entry]
    return BETWEEN.join(made)


def _joined(first: bytes, second: bytes) -> bytes:
    """Two messages as one, with the members of the second, and a blank line between two texts. b"" if calls,
    or an odd content, stand in the way."""
    one, two = members_of(first), members_of(second)
    if one.get("tool_calls", b"[]") not in (b"[]", b"null") or "function_call" in one:
        return b""
    before, after = one.get("content", b"null"), two.get("content", b"null")
    content = _contents(before, after)
    if not content:
        return b""
    made = {**two, "content": content}
    if one.get("name") != two.get("name"):
        made.pop("name", None)
    return rebuilt(made)


_EMPTY: Final = (b"null", b'""', b"[]")


def _contents(before: bytes, after: bytes) -> bytes:
    if before in _EMPTY or after in _EMPTY:
        return after if before in _EMPTY else before
    if before.startswith(b'"') and after.startswith(b'"'):
        return before[:-1] + rb"\n\n" + after[1:]
    lists: list[bytes] = []
    for content in (before, after):
        if content.startswith(b'"'):
            lists.append(b'{"type":"text","text":%s}' % content)
        elif content.startswith(b"["):
            lists += rawjson.items(content)
        else:
            return b""
    return b"[" + b",".join(lists) + b"]"
