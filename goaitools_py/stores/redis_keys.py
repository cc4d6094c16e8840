"""What a Redis store sends, and what the answers mean.

Owns: key names, scripts, commands as tuples. Must never know: a client, or what is in a blob.

A conversation is a hash with the fields ``blob``, ``version``, ``updated_at`` and ``save``, a token of the
save that wrote it. Clients send a command again when a connection breaks. The token lets the script tell
that from somebody else's save, so that a save is done once and neither lost nor refused.

Every command names one key, so that a cluster can take it. The braces are Redis's hash tag: what belongs
to a conversation lies on the same node.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from . import rules
from .base import Stored, StoredKey

__all__ = ["Command", "KeySpace", "KeyWalk", "LeaseKey", "Save", "stored_keys"]

Command = tuple[str | bytes | int, ...]

_SAVE = b"""
local found = redis.call('HMGET', KEYS[1], 'version', 'save')
if found[2] == ARGV[4] then return 1 end
if (found[1] or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'blob', ARGV[2], 'version', ARGV[3], 'save', ARGV[4], 'updated_at', ARGV[5])
if ARGV[6] == '' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[6]) end
return 1
"""
_DELETE = b"""
local version = redis.call('HGET', KEYS[1], 'version')
if not version then return 0 end
if ARGV[1] ~= '' and ARGV[1] ~= version then return -1 end
return redis.call('DEL', KEYS[1])
"""
_TAKE = b"""
if redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
"""
_RENEW = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_RELEASE = b"""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


_GLOB = re.compile(rb"[*?\[\]\\]")
_SCANNED_AT_ONCE = 256
_SCANS_PER_PAGE = 64


class KeySpace:
    """The keys of one store in a server."""

    def __init__(self, prefix: str, ttl: float | None) -> None:
        self._state = f"{prefix}:state:".encode()
        self._lease = f"{prefix}:lease:".encode()
        self._ttl_ms = b"" if ttl is None else b"%d" % max(1, round(ttl * 1000))

    def state(self, key: str) -> bytes:
        """The name of the hash of a conversation."""
        return self._state + b"{%b}" % rules.check_key(key).encode()

    def load(self, key: str) -> Command:
        """Ask for a conversation."""
        return "HMGET", self.state(key), "blob", "version", "updated_at"

    def loaded(self, answer: list[bytes | None]) -> Stored | None:
        """What the answer to `load` holds."""
        blob, version, at = answer
        if blob is None or version is None or at is None:
            return None
        return Stored(blob=blob, version=int(version), updated_at=rules.as_time(int(at)))

    def save(self, key: str, blob: bytes, expected: int | None) -> Save:
        """A save of a conversation."""
        return Save(self.state(key), bytes(blob), expected, self._ttl_ms)

    def delete(self, key: str, expected: int | None) -> Command:
        """Forget a conversation. Answers 1 if it did, 0 if nothing was there, -1 for another version."""
        return "EVAL", _DELETE, 1, self.state(key), b"" if expected is None else b"%d" % expected

    def deleted(self, answer: int, expected: int | None) -> bool:
        """What the answer to `delete` means."""
        if answer < 0:
            raise rules.conflict(expected)
        return answer == 1

    def lease(self, key: str, ttl: float) -> LeaseKey:
        """The lease of a conversation."""
        name = self._lease + b"{%b}" % rules.check_key(key).encode()
        return LeaseKey(name, max(1, round(rules.check_ttl(ttl) * 1000)))

    def walk(self, nodes: Sequence[str], prefix: str, cursor: str | None, limit: int) -> KeyWalk:
        """A walk over the keys of some servers, for one page of a listing."""
        rules.check_page(prefix, limit)
        return KeyWalk(self._state + b"{", nodes, prefix, cursor, limit)

    def listed(self, key: str) -> Command:
        """Ask for what a listing tells of a key."""
        return "HMGET", self.state(key), "version", "updated_at"


class KeyWalk:
    """A walk over keys, server by server, until a page is full: ask, answer, and so on.

    Redis hands out keys by the bucket, often more than were asked for: those over wait in the cursor.
    """

    def __init__(
        self, begin: bytes, nodes: Sequence[str], prefix: str, cursor: str | None, limit: int
    ) -> None:
        self._begin = begin
        self._nodes = sorted(nodes)
        self._prefix = prefix
        self._pattern = _GLOB.sub(rb"\\\g<0>", begin + prefix.encode()) + b"*"
        self._limit = limit
        self._scans = 0
        self._node: str | None
        self._node, self._at, self._found = _position(cursor, self._nodes)

    def ask(self) -> tuple[str, Command] | None:
        """The next node and what to ask it; None if the page is full, or the walk long enough."""
        if self._node is None or len(self._found) >= self._limit or self._scans == _SCANS_PER_PAGE:
            return None
        self._scans += 1
        count = max(self._limit, _SCANNED_AT_ONCE)
        return self._node, ("SCAN", self._at, "MATCH", self._pattern, "COUNT", count)

    def answer(self, scanned: tuple[Any, list[bytes]]) -> None:
        """Take in what the node said. A cluster's client tells its name along with the position."""
        at, names = scanned
        self._at = next(iter(at.values())) if isinstance(at, dict) else at
        for name in names:
            key = name[len(self._begin) : -1].decode()
            if key not in self._found and rules.is_listed(key, self._prefix):
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
        return None if self._node is None and not left else json.dumps([self._node, self._at, left])


def stored_keys(keys: list[str], answers: list[list[bytes | None]]) -> tuple[StoredKey, ...]:
    """What the answers to `KeySpace.listed` say; keys that have gone meanwhile are left out."""
    return tuple(
        StoredKey(key=key, version=int(version), updated_at=rules.as_time(int(at)))
        for key, (version, at) in zip(keys, answers, strict=True)
        if version is not None and at is not None
    )


class Save:
    """One save. However often its command is sent, it is done once, and answered alike."""

    def __init__(self, name: bytes, blob: bytes, expected: int | None, ttl_ms: bytes) -> None:
        self._name = name
        self._blob = blob
        self._expected = expected
        self._ttl_ms = ttl_ms
        self._token = secrets.token_bytes(12)
        self.version = rules.new_version(expected)

    def write(self) -> Command:
        """Compare and save. Answers 1 if it did, 0 if another version is stored."""
        expected = b"" if self._expected is None else b"%d" % self._expected
        now = b"%d" % rules.as_ms(datetime.now(UTC))
        version = b"%d" % self.version
        return "EVAL", _SAVE, 1, self._name, expected, self._blob, version, self._token, now, self._ttl_ms

    def written(self, answer: int) -> int:
        """What the answer to `write` means: the new version, or a conflict."""
        if not answer:
            raise rules.conflict(self._expected)
        return self.version

    def look(self) -> Command:
        """Ask which save wrote what is stored."""
        return "HGET", self._name, "save"

    def is_stored(self, answer: bytes | None) -> bool:
        """Whether the answer to `look` names this save."""
        return answer == self._token


class LeaseKey:
    """One holder's lease: a key with a random value that Redis forgets in time. Each answers 1 or 0."""

    def __init__(self, name: bytes, ttl_ms: int) -> None:
        self._name = name
        self._ttl_ms = ttl_ms
        self._token = secrets.token_bytes(12)

    def take(self) -> Command:
        """Begin it, unless somebody holds one."""
        return "EVAL", _TAKE, 1, self._name, self._token, self._ttl_ms

    def renew(self) -> Command:
        """Begin the `ttl` anew, unless it ran out."""
        return "EVAL", _RENEW, 1, self._name, self._token, self._ttl_ms

    def release(self) -> Command:
        """End it, if it is still this one."""
        return "EVAL", _RELEASE, 1, self._name, self._token


def _position(cursor: str | None, nodes: list[str]) -> tuple[str | None, Any, list[str]]:
    if cursor is None:
        return nodes[0], 0, []
    try:
        node, at, found = json.loads(cursor)
    except ValueError:
        raise ValueError("the cursor is not one that `list` gave; list from the beginning") from None
    if node is not None and node not in nodes:
        raise ValueError("the cluster has other nodes than when `list` began; list from the beginning")
    return node, at, found
