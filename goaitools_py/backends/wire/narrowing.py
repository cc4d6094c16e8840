"""The tools of narrowing: one JSON object that is changed member by member, and valid ids and names.

Owns: splicing, so that unchanged bytes stay as given, and other ids for repeated calls. Must never know: a
particular provider API.

Repeated ids: Chat Completions takes a second call with the id of an answered one, and real histories have
them: servers count ids from 0 in each reply, and 32 of 128 recorded conversations of one agent have an id
twice. Anthropic refuses it: "`tool_use` ids must be unique" (anthropics/claude-code#8612). A reader who looks
for the result of a call by its id finds the wrong one.

The first call keeps its id. Neighbouring calls with one id stay as they are: servers refuse these, so a
repair has mended them before.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from ...base import rawjson
from ..protocols import Change, EntryView

__all__ = [
    "AnsweredIds",
    "Edit",
    "Ids",
    "clean_name",
    "digest_id",
    "distinct",
    "each",
    "fresh_id",
    "ids_of",
    "nine_id",
    "note",
    "object_in",
    "rebuilt",
    "short_id",
    "text_in",
    "word",
]


class Edit:
    """Takes out or replaces members of one JSON object. Every other byte stays.

    Args:
        raw: The object.
        log: Gets the kind of each change.
    """

    __slots__ = ("_gone", "_put", "log", "members", "raw")

    def __init__(self, raw: bytes, log: list[Change]) -> None:
        self.raw = raw
        self.log = log
        self.members: Mapping[str, bytes] = rawjson.members(raw)
        self._gone: set[str] = set()
        self._put: dict[str, bytes] = {}

    def drop(self, key: str, kind: Change) -> None:
        """Take a member out, if it is there."""
        if key in self.members and key not in self._gone:
            self._gone.add(key)
            self.log.append(kind)

    def keep_only(self, keys: Collection[str], kind: Change = "members") -> None:
        """Take out every member with another key."""
        for key in self.members:
            if key not in keys:
                self.drop(key, kind)

    def put(self, key: str, value: bytes, kind: Change | None) -> None:
        """Give a member another value. None as `kind`: the changes inside of it are logged already."""
        if value is self.members.get(key) and key not in self._put:
            return
        self._put[key] = value
        if kind is not None:
            self.log.append(kind)

    def done(self) -> bytes:
        """The object now; the same bytes object if nothing changed."""
        raw = rawjson.without(self.raw, self._gone) if self._gone else self.raw
        put = {key: value for key, value in self._put.items() if key not in self._gone}
        return rawjson.replaced(raw, put) if put else raw

    def rebuilt(self) -> bytes:
        """As `done`, ten times as fast. White space between members goes, if anything changes."""
        if not self._gone and not self._put:
            return self.raw
        made = {**self.members, **self._put}
        return rebuilt({key: value for key, value in made.items() if key not in self._gone})


def rebuilt(members: Mapping[str, bytes]) -> bytes:
    """An object of these members. Their bytes stay."""
    return b"{" + b",".join([_name(key) + b":" + value for key, value in members.items()]) + b"}"


_name = lru_cache(maxsize=256)(rawjson.dumps)
"""A member's name as JSON. Cached, because messages have few names."""


class Ids:
    """The ids of calls, in the order of a history.

    Args:
        valid: Gives an id that the host takes. It depends on the given id alone.
        unique: True: a call gets another id if an earlier call of the history has its own.
    """

    __slots__ = ("_now", "_times", "_used", "_valid", "changed", "unique")

    def __init__(self, valid: Callable[[str], str], *, unique: bool) -> None:
        self._valid = valid
        self.unique = unique
        self._now: dict[str, str] = {}
        self._used: set[str] = set()
        self._times: dict[str, int] = {}
        self.changed: dict[str, str] = {}
        """The new ids since `begin`, by the given ids."""

    def begin(self) -> None:
        """The next entry begins."""
        self.changed = {}

    def copy(self) -> Ids:
        """The same ids, to go on with by itself."""
        other = Ids(self._valid, unique=self.unique)
        other._now, other._used, other._times = dict(self._now), set(self._used), dict(self._times)
        return other

    def call(self, edit: Edit, key: str) -> None:
        """A member has the id of a call that is made here."""
        id = rawjson.string(edit.members.get(key, b""))
        if not id:
            return
        new = self._valid(id)
        if self.unique and new in self._used:
            new = self._valid(fresh_id(id, self._times, self._used))
        self._used.add(new)
        self._now[id] = new
        self._put(edit, key, id, new)

    def stay(self, calls: Sequence[object], results: Sequence[object]) -> bool:
        """True if all calls and results of an entry keep their ids. Then these calls are known from now on;
        else they are not."""
        for id in calls:
            if not isinstance(id, str) or self._valid(id) != id or id in self._used:
                return False
        if len(calls) > 1 and len(calls) != len(set(calls)):
            return False
        for id in results:
            if not isinstance(id, str) or (self._now.get(id) or self._valid(id)) != id:
                return False
        known = [id for id in calls if isinstance(id, str)]
        self._used.update(known)
        self._now.update(zip(known, known, strict=True))
        return True

    def result(self, edit: Edit, key: str) -> None:
        """A member has the id of the call that is answered here: the newest one with this id."""
        id = rawjson.string(edit.members.get(key, b""))
        if id:
            self._put(edit, key, id, self._now.get(id) or self._valid(id))

    def _put(self, edit: Edit, key: str, id: str, new: str) -> None:
        if new != id:
            self.changed[id] = new
            edit.put(key, rawjson.dumps(new), "call_renamed")


def object_in(raw: bytes) -> dict[str, Any] | None:
    """The value of a JSON object; None for anything else."""
    value = rawjson.view_or_none(raw)
    return value if isinstance(value, dict) else None


def word(view: Mapping[str, Any], key: str) -> str:
    """A member that is text; "" for another type."""
    value = view.get(key)
    return value if isinstance(value, str) else ""


def text_in(raw: bytes | None) -> bytes:
    """A member that must be text, as JSON. Another type becomes the text of its JSON; null becomes empty."""
    if raw is None or rawjson.is_null(raw):
        return b'""'
    return raw if raw.startswith(b'"') else rawjson.dumps(raw.decode("utf-8", "replace"))


def each(raw: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A JSON list with each element changed; b"" for an element takes it out.

    It is the very list if each element comes back as it was.
    """
    given = rawjson.items(raw)
    made = [change(one) for one in given]
    if all(new is old for new, old in zip(made, given, strict=True)):
        return raw
    return b"[" + b",".join(one for one in made if one) + b"]"


_UNCLEAN: Final = re.compile(r"[^a-zA-Z0-9_-]")

_NAMESPACE: Final = "functions."
"""Models that were trained with OpenAI's format put this before a tool's name. The tool's own name stands
behind it."""


def clean_name(name: str, *, limit: int) -> str:
    """A name of letters, digits, underscores and dashes, of at most `limit` characters."""
    if not _UNCLEAN.search(name) and 0 < len(name) <= limit:
        return name
    own = name.removeprefix(_NAMESPACE) or name
    return _UNCLEAN.sub("_", own)[:limit] or "unnamed"


_SHORT: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NINE: Final = re.compile(r"[a-zA-Z0-9]{9}")
_ALPHABET: Final = string.ascii_letters + string.digits


def short_id(id: str) -> str:
    """An id of at most 40 letters, digits, dashes and underscores."""
    return id if _SHORT.fullmatch(id) else digest_id(id)


def nine_id(id: str) -> str:
    """An id of nine letters or digits. There are 62^9, so two calls of a history do not get the same."""
    if _NINE.fullmatch(id):
        return id
    number = int.from_bytes(hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest())
    made = ""
    for _ in range(9):
        number, digit = divmod(number, len(_ALPHABET))
        made += _ALPHABET[digit]
    return made


def digest_id(id: str, prefix: str = "call_") -> str:
    """Make an id that every host takes from an id that some hosts refuse. Equal ids give equal ids."""
    return prefix + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def fresh_id(id: str, times: dict[str, int], used: Collection[str]) -> str:
    """An id for another call with this id, which no call has yet. `times`: how often each id came."""
    while True:
        # The count goes on: a hostile history may have 100,000 calls with one id.
        times[id] = times.get(id, 1) + 1
        new = digest_id(f"{id}/{times[id]}")
        if new not in used:
            return new


def note(kind: str) -> str:
    """The line of text in the place of a part. `kind`: the part's type, as it came."""
    name = "content" if not kind or _UNCLEAN.search(kind) or len(kind) > 40 else kind
    return f"[{name}: left out, because the provider does not take it here]"


# ----------------------------------------------------------------------------------------- repeated ids


class AnsweredIds:
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


def distinct(
    entries: Sequence[bytes],
    called: Callable[[Mapping[str, Any]], Iterator[str]],
    change: Callable[[Edit, Mapping[str, Any], AnsweredIds], None],
) -> list[EntryView]:
    """The entries with unique ids for answered calls. An unchanged entry comes back as the same object.

    Args:
        entries: A whole history, in order.
        called: Gives the ids of the calls in an entry.
        change: Replaces the ids of an entry's calls and results.
    """
    views = [object_in(entry) for entry in entries]
    known = [id for view in views if view is not None for id in called(view)]
    if len(known) == len(set(known)):
        return [EntryView(entry) for entry in entries]
    ids = AnsweredIds(set(known))
    return [_changed(entry, view, ids, change) for entry, view in zip(entries, views, strict=True)]


def _changed(
    entry: bytes,
    view: Mapping[str, Any] | None,
    ids: AnsweredIds,
    change: Callable[[Edit, Mapping[str, Any], AnsweredIds], None],
) -> EntryView:
    if view is None:
        return EntryView(entry)
    log: list[Change] = []
    edit = Edit(entry, log)
    ids.changed = {}
    change(edit, view, ids)
    return EntryView(edit.done(), log, ids.changed)


def ids_of(calls: object, key: str) -> Iterator[str]:
    """The ids in a list of objects."""
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and (id := word(call, key)):
            yield id
