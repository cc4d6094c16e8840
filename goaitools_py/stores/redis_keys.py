"""The commands of a Redis store, and the meaning of the answers.

Owns: key names, scripts, commands as tuples. Must never know: a client, or the contents of a blob.

A conversation is a hash with the columns of `layout` as its fields, and a field ``save``: a token of the save
that wrote it. Clients send a command again when a connection breaks. The token tells the script whether the
stored version comes from this save or from another client's. So a save is done once, and is neither lost nor
refused. An empty column has no field.

The parts of a conversation are another hash: a field for each part, called ``<kind>:<name>``. Its name has
the same hash tag (the braces), so both hashes lie on the same node of a cluster, and one script changes
both.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from . import common
from .base import RowFacts, Stored, StoredHead, StoredKey, StoredPart
from .layout import PLAIN_COLUMNS, facts_of, plain_values

__all__ = [
    "Command",
    "KeySpace",
    "KeyWalk",
    "LeaseKey",
    "RecentWalk",
    "SaveCommand",
    "by_digest",
    "stored_keys",
]

Command = tuple[str | bytes | int, ...]


@cache
def _digest(script: bytes) -> str:
    return hashlib.sha1(script, usedforsecurity=False).hexdigest()


def by_digest(command: Command) -> Command:
    """The command that names a script by its digest, for servers that know the script already."""
    name, script, *rest = command
    return ("EVALSHA", _digest(script), *rest) if name == "EVAL" and isinstance(script, bytes) else command


_SAVE = b"""
local found = redis.call('HMGET', KEYS[1], 'version', 'save')
local function release()
    if ARGV[7] ~= '' and redis.call('GET', KEYS[3]) == ARGV[7] then redis.call('DEL', KEYS[3]) end
    return 1
end
if found[2] == ARGV[4] then
    redis.call('HSET', KEYS[1], 'save', ARGV[4])
    return release()
end
if (found[1] or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'blob', ARGV[2], 'version', ARGV[3], 'save', ARGV[4], 'updated_at', ARGV[5])
local at = 9
for _ = 1, tonumber(ARGV[8]) do
    if ARGV[at + 1] == '' then redis.call('HDEL', KEYS[1], ARGV[at])
    else redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
    at = at + 2
end
local gone, drops = {}, tonumber(ARGV[at])
for i = at + 1, at + drops do gone[ARGV[i]] = true end
if drops > 0 then
    for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
        if gone[string.sub(field, string.find(field, ':', 1, true) + 1)] then
            redis.call('HDEL', KEYS[2], field)
        end
    end
end
for i = at + drops + 1, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
for i = 1, 2 do
    if ARGV[6] == '' then redis.call('PERSIST', KEYS[i]) else redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
end
return release()
"""
_NOTED = b"""
for i = 4, #KEYS do
    redis.call('ZADD', KEYS[i], ARGV[5], KEYS[1])
    if ARGV[6] == '' then redis.call('PERSIST', KEYS[i])
    else
        redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', '(' .. string.format('%.0f', ARGV[5] - ARGV[6]))
        redis.call('PEXPIRE', KEYS[i], ARGV[6])
    end
end
return release()
"""
_SAVE_NOTED = _SAVE.removesuffix(b"return release()\n") + _NOTED
"""A save that also notes its time in sorted sets: KEYS from the fourth on."""
_READ_HEAD = b"""
local found = redis.call('HMGET', state, 'blob', 'version', 'updated_at')
if not found[2] then return found end
for _, name in ipairs(redis.call('HKEYS', parts)) do
    local wanted = #kinds == 0
    for _, kind in ipairs(kinds) do
        if string.sub(name, 1, #kind + 1) == kind .. ':' then wanted = true end
    end
    if wanted then
        found[#found + 1] = name
        found[#found + 1] = redis.call('HGET', parts, name)
    end
end
return found
"""
_HEAD = b"local state, parts, kinds = KEYS[1], KEYS[2], ARGV" + _READ_HEAD
_TOUCH = b"""
local token = redis.call('HGET', KEYS[1], 'save')
if token then redis.call('HSET', KEYS[1], 'save', token) end
"""
"""Changes nothing, but is a write: replicas that confirm it have each write before it, too."""
_TOUCH_AND_LOAD = _TOUCH + b"return redis.call('HMGET', KEYS[1], 'blob', 'version', 'updated_at')"
_TOUCH_AND_HEAD = _TOUCH + _HEAD
_PARTS = b"""
local found, wanted = {}, {}
for _, name in ipairs(ARGV) do wanted[name] = true end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if wanted[string.sub(field, string.find(field, ':', 1, true) + 1)] then
        found[#found + 1] = field
        found[#found + 1] = redis.call('HGET', KEYS[1], field)
    end
end
return found
"""
_DELETE = b"""
local version = redis.call('HGET', KEYS[1], 'version')
if not version then return 0 end
if ARGV[1] ~= '' and ARGV[1] ~= version then return -1 end
redis.call('DEL', KEYS[2])
for i = 3, #KEYS do redis.call('ZREM', KEYS[i], KEYS[1]) end
return redis.call('DEL', KEYS[1])
"""
_STOP = b"""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
if ARGV[1] == '1' then redis.call('HSET', KEYS[1], 'stop_requested', 1)
else redis.call('HDEL', KEYS[1], 'stop_requested') end
return 1
"""
_TAKE = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
"""
_TAKE_OR_LEAVE = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2])
elseif not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
"""
_TAKE_AND_LOAD = _TAKE_OR_LEAVE + b"return redis.call('HMGET', KEYS[2], 'blob', 'version', 'updated_at')\n"
_TAKE_AND_HEAD = (
    _TAKE_OR_LEAVE + b"local state, parts, kinds = KEYS[2], KEYS[3], {unpack(ARGV, 3)}" + _READ_HEAD
)
_RENEW = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_RELEASE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


_PLAIN = [column.name for column in PLAIN_COLUMNS]
_GLOB = re.compile(rb"[*?\[\]\\]")
_SCANNED_AT_ONCE = 256
_SCANS_PER_PAGE = 64


class KeySpace:
    """The keys of one store in a server."""

    def __init__(
        self, prefix: str, ttl: float | None, *, touches: bool = False, recent: bool = False
    ) -> None:
        """`touches`: a load is a write too, so that replicas can confirm it. See `redis_waits`."""
        self._touches = touches
        self._recent = f"{prefix}:recent:".encode()
        self._is_recent = recent
        self._state = f"{prefix}:state:".encode()
        self._parts = f"{prefix}:parts:".encode()
        self._lease = f"{prefix}:lease:".encode()
        self._ttl_ms = b"" if ttl is None else b"%d" % max(1, round(common.check_lifetime(ttl) * 1000))

    def state(self, key: str) -> bytes:
        """The name of the hash of a conversation."""
        return self._state + b"{%b}" % _tag(common.check_key(key))

    def parts(self, key: str) -> bytes:
        """The name of the hash of its parts."""
        return self._parts + b"{%b}" % _tag(key)

    def recents(self, key: str) -> tuple[bytes, ...]:
        """The names of the sorted sets with the time of a key's saves: of all keys, and of the keys with each
        beginning of this key that ends in a slash. () if no set is kept."""
        if not self._is_recent:
            return ()
        ends = (at for at, letter in enumerate(key, 1) if letter == "/")
        return tuple(self._recent + key[:end].encode() for end in (0, *ends))

    def recent(self, prefix: str, before: str | None, limit: int) -> RecentWalk:
        """A walk over a sorted set, for one page of the keys that were saved last."""
        folder = prefix[: prefix.rfind("/") + 1]
        name = self._recent + folder.encode()
        cursor = common.read_recent(prefix, limit, before)
        behind = None if cursor is None else (cursor[0], self.state(cursor[1]))
        return RecentWalk(self._state + b"{", name, prefix, behind, limit)

    def load(self, key: str) -> Command:
        """Ask for a conversation."""
        if self._touches:
            return "EVAL", _TOUCH_AND_LOAD, 1, self.state(key)
        return "HMGET", self.state(key), "blob", "version", "updated_at"

    def loaded(self, answer: list[bytes | None]) -> Stored | None:
        """Read the answer to `load`."""
        blob, version, at = answer
        if blob is None or version is None or at is None:
            return None
        return Stored(blob=blob, version=int(version), updated_at=common.as_time(int(at)))

    def save(
        self,
        key: str,
        blob: bytes,
        expected: int | None,
        facts: RowFacts | None = None,
        new: Collection[StoredPart] = (),
        gone: Collection[bytes] = (),
        lease: LeaseKey | None = None,
    ) -> SaveCommand:
        """A save of a conversation and its parts. If it succeeds, it also ends `lease`."""
        names = (self.state(key), self.parts(key), self._lease_name(key), *self.recents(key))
        token = b"" if lease is None else lease.token
        return SaveCommand(names, bytes(blob), expected, self._ttl_ms, facts, new, gone, token)

    def load_head(self, key: str, kinds: Collection[int] | None) -> Command:
        """Ask for a conversation and its parts of some kinds. None: all kinds. Empty: no parts."""
        if kinds is not None and not kinds:
            return self.load(key)
        asked = () if kinds is None else tuple(b"%d" % kind for kind in kinds)
        script = _TOUCH_AND_HEAD if self._touches else _HEAD
        return "EVAL", script, 2, self.state(key), self.parts(key), *asked

    def loaded_head(self, answer: list[bytes | None]) -> StoredHead | None:
        """Read the answer to `load_head`."""
        row = self.loaded(answer[:3])
        if row is None:
            return None
        parts = self.loaded_parts(answer[3:])
        return StoredHead(blob=row.blob, version=row.version, updated_at=row.updated_at, parts=parts)

    def load_parts(self, key: str, names: Collection[bytes]) -> Command:
        """Ask for parts by their names."""
        common.check_key(key)
        return "EVAL", _PARTS, 1, self.parts(key), *names

    def loaded_parts(self, answer: list[bytes | None]) -> tuple[StoredPart, ...]:
        """Read the answer to `load_parts`."""
        return tuple(
            _part(field, data)
            for field, data in zip(answer[::2], answer[1::2], strict=True)
            if field is not None and data is not None
        )

    def set_stop(self, key: str, is_wanted: bool) -> Command:
        """Set or clear the stop flag. The answer is 1, or 0 if nothing is stored."""
        return "EVAL", _STOP, 1, self.state(key), b"1" if is_wanted else b"0"

    def stop_requested(self, key: str) -> Command:
        """Ask for the stop flag."""
        return "HGET", self.state(key), "stop_requested"

    def delete(self, key: str, expected: int | None) -> Command:
        """Delete a conversation. Answers: 1 if it was deleted, 0 if it was missing, -1 for another
        version."""
        wanted = b"" if expected is None else b"%d" % expected
        names = (self.state(key), self.parts(key), *self.recents(key))
        return "EVAL", _DELETE, len(names), *names, wanted

    def deleted(self, answer: int, expected: int | None) -> bool:
        """Read the answer to `delete`: True if the conversation was deleted. Raises `StateConflictError`."""
        if answer < 0:
            raise common.conflict(expected)
        return answer == 1

    def lease(self, key: str, ttl: float) -> LeaseKey:
        """The lease of a conversation."""
        return LeaseKey(self._lease_name(key), max(1, round(common.check_ttl(ttl) * 1000)))

    def is_held(self, key: str) -> Command:
        """Ask whether a conversation is leased: 1 or 0."""
        return "EXISTS", self._lease_name(key)

    def _lease_name(self, key: str) -> bytes:
        return self._lease + b"{%b}" % _tag(common.check_key(key))

    def lease_and_load(self, key: str, lease: LeaseKey) -> Command:
        """Begin a lease, and ask for the conversation. The answer is None if another holder has a lease."""
        return lease.take_and(_TAKE_AND_LOAD, (self.state(key),))

    def lease_and_load_head(self, key: str, lease: LeaseKey, kinds: Collection[int] | None) -> Command:
        """As `lease_and_load`, with the parts of some kinds. None: all kinds."""
        if kinds is not None and not kinds:
            return self.lease_and_load(key, lease)
        asked = () if kinds is None else tuple(b"%d" % kind for kind in kinds)
        return lease.take_and(_TAKE_AND_HEAD, (self.state(key), self.parts(key)), asked)

    def walk(self, nodes: Sequence[str], prefix: str, cursor: str | None, limit: int) -> KeyWalk:
        """A walk over the keys of some servers, for one page of a listing."""
        common.check_page(prefix, limit)
        return KeyWalk(self._state + b"{", nodes, prefix, cursor, limit)

    def listed(self, key: str) -> Command:
        """Ask for the fields of a key that a listing shows."""
        return "HMGET", self.state(key), "version", "updated_at", *_PLAIN


class KeyWalk:
    """A walk over keys, server by server, until a page is full. Call `ask` and `answer` in turn.

    Redis returns keys by the bucket, often more than it was asked for. The cursor keeps the surplus keys.
    """

    def __init__(
        self, begin: bytes, nodes: Sequence[str], prefix: str, cursor: str | None, limit: int
    ) -> None:
        self._begin = begin
        self._nodes = sorted(nodes)
        self._prefix = prefix
        self._pattern = _GLOB.sub(rb"\\\g<0>", begin + _tag(prefix)) + b"*"
        self._limit = limit
        self._scans = 0
        self._node: str | None
        self._node, self._at, found = _position(cursor, self._nodes)
        self._found = [key for key in found if key.startswith(prefix) and common.is_listed(key, prefix)]

    def ask(self) -> tuple[str, Command] | None:
        """The next node and its command. None if the page is full, or after 64 scans."""
        if self._node is None or len(self._found) >= self._limit or self._scans == _SCANS_PER_PAGE:
            return None
        self._scans += 1
        count = max(self._limit, _SCANNED_AT_ONCE)
        return self._node, ("SCAN", self._at, "MATCH", self._pattern, "COUNT", count)

    def answer(self, scanned: tuple[Any, list[bytes]]) -> None:
        """Take in the answer of a node. A cluster's client gives the node's name along with the position."""
        at, names = scanned
        self._at = next(iter(at.values())) if isinstance(at, dict) else at
        for name in names:
            key = name[len(self._begin) : -1].decode().removeprefix("\0")
            # The name of the key "{a" begins like the name of the prefix "{a}": both have a brace there.
            is_ours = key.startswith(self._prefix) and common.is_listed(key, self._prefix)
            if is_ours and key not in self._found:
                self._found.append(key)
        if not self._at:
            self._node = next((other for other in self._nodes if other > str(self._node)), None)

    @property
    def keys(self) -> list[str]:
        """The keys of the page."""
        return self._found[: self._limit]

    @property
    def cursor(self) -> str | None:
        """Where the next page begins; None if this is the last."""
        left = self._found[self._limit :]
        if self._node is None and not left:
            return None
        return json.dumps([None if self._node is None else _mark(self._node), self._at, left])


class RecentWalk:
    """A walk over a sorted set, from the newest time on, until a page is full. Call `ask` and `answer` in
    turn. Only a prefix that does not end in a slash meets keys that are not of the page."""

    def __init__(
        self, begin: bytes, name: bytes, prefix: str, behind: tuple[int, bytes] | None, limit: int
    ) -> None:
        self._begin = begin
        self._name = name
        self._prefix = prefix
        self._behind = behind
        self._limit = limit
        self._scans = self._skip = 0
        self._found: list[tuple[int, str]] = []
        self._is_over = False

    def ask(self) -> Command | None:
        """The next command. None if the page is full, or after 64 commands."""
        if self._is_over or len(self._found) > self._limit or self._scans == _SCANS_PER_PAGE:
            return None
        self._scans += 1
        count = max(self._limit + 1, _SCANNED_AT_ONCE)
        newest = b"+inf" if self._behind is None else b"%d" % self._behind[0]
        return "ZREVRANGEBYSCORE", self._name, newest, "-inf", "WITHSCORES", "LIMIT", self._skip, count

    def answer(self, rows: Sequence[Any]) -> None:
        """Take in the answer. Clients give pairs, or names and times in turn."""
        are_pairs = bool(rows) and isinstance(rows[0], (list, tuple))
        pairs = rows if are_pairs else zip(rows[::2], rows[1::2], strict=True)
        count = 0
        behind = self._behind
        for name, score in pairs:
            count += 1
            place = (int(float(score)), name)
            if behind is not None and place >= behind:
                continue  # of the same millisecond as the last one
            behind = place
            key = name[len(self._begin) : -1].decode().removeprefix("\0")
            if key.startswith(self._prefix):
                self._found.append((place[0], key))
        # The next command begins at the last row. A number of rows to skip would be wrong after a deletion.
        self._skip = self._skip + count if behind == self._behind else 0
        self._behind = behind
        self._is_over = count < max(self._limit + 1, _SCANNED_AT_ONCE)

    @property
    def keys(self) -> list[str]:
        """The keys of the page."""
        shown = (key for _, key in self._found[: self._limit])
        return [key for key in shown if common.is_listed(key, self._prefix)]

    @property
    def cursor(self) -> str | None:
        """Where the next page begins; None if this is the last."""
        if len(self._found) > self._limit:
            return common.recent_cursor(*self._found[self._limit - 1])
        return None


def stored_keys(keys: list[str], answers: list[list[bytes | None]]) -> tuple[StoredKey, ...]:
    """Read the answers to `KeySpace.listed`. Keys that were deleted meanwhile are left out."""
    return tuple(
        StoredKey(key=key, version=int(version), updated_at=common.as_time(int(at)), facts=_facts(plain))
        for key, (version, at, *plain) in zip(keys, answers, strict=True)
        if version is not None and at is not None
    )


class SaveCommand:
    """One save. Its command may be sent several times: Redis saves once, and gives the same answer."""

    def __init__(
        self,
        names: tuple[bytes, ...],
        blob: bytes,
        expected: int | None,
        ttl_ms: bytes,
        facts: RowFacts | None,
        new: Collection[StoredPart],
        gone: Collection[bytes],
        lease_token: bytes = b"",
    ) -> None:
        self._names = names
        self._lease_token = lease_token
        self._blob = blob
        self._expected = expected
        self._ttl_ms = ttl_ms
        self._facts = facts
        self._new = {_field(part.kind, part.name): part.data for part in new}
        self._gone = frozenset(gone) - {part.name for part in new}
        self._token = secrets.token_bytes(12)
        self.version = common.new_version(expected)

    def write(self) -> Command:
        """Compare and save. The answer is 1 if it saved, 0 if another version is stored."""
        expected = b"" if self._expected is None else b"%d" % self._expected
        now = b"%d" % common.as_ms(datetime.now(UTC))
        plain = plain_values(self._facts)
        return (
            "EVAL", _SAVE if len(self._names) == 3 else _SAVE_NOTED, len(self._names), *self._names,
            expected, self._blob, b"%d" % self.version, self._token, now, self._ttl_ms, self._lease_token,
            len(plain), *(text for name, value in plain.items() for text in (name, _text(value))),
            len(self._gone), *self._gone,
            *(text for field, data in self._new.items() for text in (field, data)),
        )  # fmt: skip

    def written(self, answer: int) -> int:
        """Read the answer to `write`: return the new version, or raise `StateConflictError`."""
        if not answer:
            raise common.conflict(self._expected)
        return self.version

    def look(self) -> Command:
        """Ask for the token of the save that wrote the stored version."""
        return "HGET", self._names[0], "save"

    def is_stored(self, answer: bytes | None) -> bool:
        """Whether the answer to `look` names this save."""
        return answer == self._token


class LeaseKey:
    """One holder's lease: a key with a random value, which Redis deletes in time. The answers are 1 or 0."""

    def __init__(self, name: bytes, ttl_ms: int) -> None:
        self._name = name
        self._ttl_ms = ttl_ms
        self.token = secrets.token_bytes(12)

    def take_and(self, script: bytes, others: tuple[bytes, ...], more: tuple[bytes, ...] = ()) -> Command:
        """Begin the lease in a script that also works on other keys. `more`: arguments of the script."""
        return "EVAL", script, 1 + len(others), self._name, *others, self.token, self._ttl_ms, *more

    def take(self) -> Command:
        """Begin the lease, unless another holder has one."""
        return "EVAL", _TAKE, 1, self._name, self.token, self._ttl_ms

    def renew(self) -> Command:
        """Begin the `ttl` anew, unless the lease ran out."""
        return "EVAL", _RENEW, 1, self._name, self.token, self._ttl_ms

    def release(self) -> Command:
        """End the lease, if the key still holds the token of this holder."""
        return "EVAL", _RELEASE, 1, self._name, self.token


def _tag(key: str) -> bytes:
    """The text in the braces. Redis takes the text before the first closing brace as the hash tag. If it
    is empty, Redis hashes the whole name. So a key that begins with a closing brace gets a NUL before it;
    no key contains a NUL."""
    return key.encode() if not key.startswith("}") else b"\0" + key.encode()


def _field(kind: int, name: bytes) -> bytes:
    return b"%d:%b" % (kind, name)


def _part(field: bytes, data: bytes) -> StoredPart:
    kind, _, name = field.partition(b":")
    return StoredPart(name=name, kind=int(kind), data=data)


def _text(value: str | int | None) -> bytes:
    return b"" if value is None else str(value).encode()


def _facts(plain: Sequence[bytes | None]) -> RowFacts | None:
    title, status, *numbers = plain
    texts = [None if text is None else text.decode() for text in (title, status)]
    return facts_of((*texts, *(None if number is None else int(number) for number in numbers)))


def _position(cursor: str | None, nodes: list[str]) -> tuple[str | None, Any, list[str]]:
    """Read a cursor: the node, the position there, and keys that were found. The cursor may be forged."""
    if cursor is None:
        return nodes[0], 0, []
    try:
        node, at, found = json.loads(cursor)
        if type(at) is not int or not 0 <= at < 2**64 or not isinstance(found, list):
            raise ValueError
        for key in found:
            common.check_key(key)
    except (ValueError, TypeError, RecursionError):
        raise common.bad_cursor() from None
    named = next((name for name in nodes if _mark(name) == node), None)
    if node is not None and named is None:
        raise ValueError("the cluster has other nodes than when `list` began; list from the beginning")
    return named, at, found


def _mark(node: str) -> str:
    """A node's name in a cursor, as a digest. The name is an address in a private network, and web pages may
    show cursors."""
    return node and hashlib.sha256(node.encode()).hexdigest()[:16]
