"""The rules that every store follows: keys, versions, times, pages, and the texts of the errors.

Owns: these rules, as pure functions. Must never know: an engine, a column (`layout`), or a blob's contents.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta

from ..types.errors import (
    LeaseHeldError,
    StateConflictError,
    StoreError,
    StoreUnavailableError,
    UnderlyingError,
)
from .layout import MAX_KEY_BYTES

__all__ = [
    "MAX_KEY_BYTES",
    "after_prefix",
    "as_ms",
    "as_time",
    "aside_range",
    "bad_cursor",
    "check_key",
    "check_lifetime",
    "check_page",
    "check_ttl",
    "conflict",
    "held",
    "is_listed",
    "new_version",
    "not_open",
    "older_layout",
    "other_loop",
    "unavailable",
]

_FIRST_VERSIONS = 2**48
_LONGEST = 86_400 * 36_525
"""Seconds of 100 years. Redis refuses times beyond 64 bits of milliseconds, with its own error at a save."""


def check_key(key: str) -> str:
    """Return the key if every engine can keep it unchanged. Else raise ValueError; its text omits the key."""
    if not _checked(key):
        raise ValueError("the key is empty; use one of at least 1 character, such as the id of a user")
    return key


def _checked(key: str) -> str:
    """Return a key, or a prefix of keys, which may be empty."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError("the key holds half a surrogate pair, which is no text; use another key") from None
    if size > MAX_KEY_BYTES:
        raise ValueError(
            f"the key has {size} bytes of UTF-8, a store keeps at most {MAX_KEY_BYTES}; use a shorter one, "
            "such as a digest"
        )
    if "\0" in key:
        raise ValueError("the key holds a NUL character, which databases refuse; use another key")
    return key


def check_page(prefix: str, limit: int, cursor: str | None = None) -> None:
    """Raise ValueError for an unusable prefix or limit, or for a cursor that cannot be a key.

    A cursor may be forged by the visitor of a web page. Give `cursor` only if the store's cursors are keys.
    """
    _checked(prefix)
    if limit < 1:
        raise ValueError(f"limit is {limit}; a page holds at least 1 key")
    if cursor is not None:
        try:
            _checked(cursor)
        except ValueError:
            raise bad_cursor() from None


def recent_cursor(at_ms: int, key: str) -> str:
    """The cursor behind a row of ``recent``: the time of its save, and its key."""
    return f"{at_ms} {key}"


def read_recent(prefix: str, limit: int, before: str | None, *, digits: int = 14) -> tuple[int, str] | None:
    """Read a cursor of ``recent``; None without one. It may be forged. `digits`: at most so many in the time.

    Raises:
        ValueError: The prefix, the limit or the cursor is unusable.
    """
    check_page(prefix, limit)
    if before is None:
        return None
    at, has_key, key = before.partition(" ")
    try:
        if not has_key or not at.isdecimal() or not at.isascii() or len(at) > digits:
            raise bad_cursor()
        return int(at), _checked(key)
    except ValueError:
        raise bad_cursor() from None


def bad_cursor() -> ValueError:
    """The error for a cursor that this store never gave."""
    return ValueError("the cursor is not one that `list` gave; list from the beginning")


_SET_ASIDE = re.compile(r"\.unreadable\.[0-9a-f]{24}")
"""The end of the keys under which kept conversations set unreadable bytes aside."""
_END_LENGTH = len(".unreadable.") + 24


def is_listed(key: str, prefix: str) -> bool:
    """Whether a listing shows a key that begins with `prefix`.

    Unreadable bytes that were set aside are not a conversation. They are listed only for a prefix that
    reaches into the end of their keys, such as ``"ada.unreadable."``. A key that differs from
    ``<key>.unreadable.<24 hexadecimal digits>`` in any way is the application's own.
    """
    of, end = key[:-_END_LENGTH], key[-_END_LENGTH:]
    return not of or _SET_ASIDE.fullmatch(end) is None or prefix.startswith(f"{of}.unreadable.")


def aside_range(key: str) -> tuple[str, str]:
    """The first key of bytes that a conversation has set aside, and a key behind the last one."""
    return f"{key}.unreadable.", f"{key}.unreadable/"


def check_ttl(ttl: float) -> float:
    """Return the seconds of a lease. Raise ValueError if no lease can last so long."""
    if not 0 < ttl < 86_400 * 20:
        raise ValueError(f"ttl is {ttl} seconds; a lease lasts more than 0 seconds and less than 20 days")
    return ttl


def check_lifetime(ttl: float) -> float:
    """Return the seconds that a store keeps a conversation. Raise an error for an unusable number.

    Zero is refused: in other stores it means "for ever", and here all conversations would be gone at once.
    """
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"ttl must be a number of seconds, not {type(ttl).__name__}; None is for ever")
    if not 0 < ttl < _LONGEST:
        raise ValueError(
            f"ttl must be more than 0 seconds and less than {_LONGEST:,}, got {ttl}; None is for ever"
        )
    return ttl


def new_version(expected: int | None) -> int:
    """The version that a save stores.

    A key's first version is random. So a deleted conversation and a new one under the same key have different
    versions, and a late save of the old one is a conflict instead of damage to the new one.
    """
    return 1 + secrets.randbelow(_FIRST_VERSIONS) if expected is None else expected + 1


def after_prefix(prefix: str) -> str | None:
    """The first text, in code point order, behind all texts that begin with `prefix`. None: no text
    follows."""
    while prefix:
        prefix, last = prefix[:-1], ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def as_ms(at: datetime) -> int:
    """A time as stored: milliseconds since 1970."""
    return round(at.timestamp() * 1000)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_micro(at: datetime) -> int:
    """A time in microseconds since 1970, for a store that keeps them."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def of_micro(micro: int) -> datetime:
    """The time of `as_micro`, in UTC. Raises ValueError for one that no clock shows."""
    try:
        return _EPOCH + timedelta(microseconds=micro)
    except OverflowError:
        raise bad_cursor() from None


def as_time(ms: int) -> datetime:
    """A stored time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def conflict(expected: int | None) -> StateConflictError:
    """The error of a save that names another version than the stored one."""
    if expected is None:
        return StateConflictError(
            "the store holds a state under this key already, and none was expected; load that, or choose "
            "another key"
        )
    return StateConflictError(
        f"the store does not hold version {expected} under this key any more; load again and redo the turn"
    )


def held() -> LeaseHeldError:
    """The error of `lease` while another holder has the lease."""
    return LeaseHeldError("another holder has the lease of this key; try again when it has ended")


_OTHER_LOOP = ("attached to a different loop", "bound to a different event loop", "Event loop is closed")


def other_loop(engine: str, error: BaseException) -> StoreError | None:
    """The error for connections that belong to another event loop; None for any other error. It is not a
    `StoreUnavailableError`, because waiting does not help."""
    if not isinstance(error, RuntimeError) or not any(words in str(error) for words in _OTHER_LOOP):
        return None
    return StoreError(
        f"the connections to {engine} belong to another event loop, or to one that has ended: make the pool, "
        "engine or client, and the store, in the event loop that uses them"
    ).because_of(error)


def not_open(what: str, advice: str, error: BaseException) -> StoreError:
    """The error of a store with a pool that is not open. It is not a `StoreUnavailableError`, because waiting
    does not help."""
    return StoreError(f"{what}: {advice}").because_of(error)


def unavailable(engine: str, error: BaseException) -> StoreError:
    """The error of a store after a failure of its engine. The engine's own error is at `sdk_error`. It is not
    printed: its text may quote a key, the parameters of a statement (so the blob), or a password in a URL.

    A `StoreUnavailableError`, except for connections of another event loop (`other_loop`).
    """
    if (misplaced := other_loop(engine, error)) is not None:
        return misplaced
    made = StoreUnavailableError(
        f"{engine} did not do what the store asked: {type(error).__name__}; the engine's own error is at "
        "err.sdk_error; try again later"
    )
    if not isinstance(error, (ValueError, LookupError)):
        return made.because_of(error)
    made.sdk_error, made.__cause__ = error, UnderlyingError.of(error)  # Python's own errors quote values
    return made


def older_layout(table: str) -> StoreError:
    """The error of a store with a table that lacks a column. It is not a `StoreUnavailableError`, because
    waiting does not help."""
    return StoreError(
        f"{table} of this store has the layout of an older version of this package, and lacks a column: run "
        "`goaitools store migrate URL` once, which keeps all rows"
    )
