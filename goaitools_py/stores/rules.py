"""What every store does alike: keys, versions, times, pages, and the words of its errors.

Owns: these rules, as pure functions. Must never know: an engine, or what is in a blob.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

from ..errors import LeaseHeldError, StateConflictError, StoreUnavailableError

__all__ = [
    "MAX_KEY_BYTES",
    "after_prefix",
    "as_ms",
    "as_time",
    "check_key",
    "check_page",
    "check_ttl",
    "conflict",
    "held",
    "is_listed",
    "new_version",
    "unavailable",
]

MAX_KEY_BYTES = 512
"""The longest key, in bytes of UTF-8: what the indexes of all engines hold with room to spare."""

_FIRST_VERSIONS = 2**48


def check_key(key: str) -> str:
    """The key, if every engine keeps it as it is. ValueError, without the key, if not."""
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


def check_page(prefix: str, limit: int) -> None:
    """ValueError for what cannot be listed."""
    check_key(prefix)
    if limit < 1:
        raise ValueError(f"limit is {limit}; a page holds at least 1 key")


_SET_ASIDE = re.compile(r"\.unreadable\.[0-9a-f]{24}")
"""How a key ends under which a kept conversation sets bytes aside that it cannot read."""
_END_LENGTH = len(".unreadable.") + 24


def is_listed(key: str, prefix: str) -> bool:
    """Whether a listing shows a key that begins with `prefix`.

    Bytes that were set aside are no conversation: they are listed only for a prefix that reaches into the
    end of their keys, such as ``"ada.unreadable."``. A key that differs from ``<key>.unreadable.<24
    hexadecimal digits>`` in any way is the application's own.
    """
    of, end = key[:-_END_LENGTH], key[-_END_LENGTH:]
    return not of or _SET_ASIDE.fullmatch(end) is None or prefix.startswith(f"{of}.unreadable.")


def check_ttl(ttl: float) -> float:
    """The seconds that a lease lasts. ValueError for none."""
    if not 0 < ttl < 86_400 * 20:
        raise ValueError(f"ttl is {ttl} seconds; a lease lasts more than 0 seconds and less than 20 days")
    return ttl


def new_version(expected: int | None) -> int:
    """The version that a save gives.

    A key's first version is random. So a version of what was deleted does not come again when the key
    does, and a late save of the old conversation is a conflict instead of damage to the new one.
    """
    return 1 + secrets.randbelow(_FIRST_VERSIONS) if expected is None else expected + 1


def after_prefix(prefix: str) -> str | None:
    """The first text, in code point order, after all that begin with `prefix`; None if there is none."""
    while prefix:
        prefix, last = prefix[:-1], ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def as_ms(at: datetime) -> int:
    """A time as stored: milliseconds since 1970."""
    return round(at.timestamp() * 1000)


def as_time(ms: int) -> datetime:
    """A stored time, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def conflict(expected: int | None) -> StateConflictError:
    """What a save raises whose version is not the stored one."""
    if expected is None:
        return StateConflictError(
            "the store holds a state under this key already, and none was expected; load that, or choose "
            "another key"
        )
    return StateConflictError(
        f"the store does not hold version {expected} under this key any more; load again and redo the turn"
    )


def held() -> LeaseHeldError:
    """What `lease` raises while somebody else holds it."""
    return LeaseHeldError("somebody else holds the lease of this key; try again when it has ended")


def unavailable(engine: str, error: BaseException) -> StoreUnavailableError:
    """What a store raises whose engine failed. The engine's words may quote keys, or the parameters of a
    statement, and these are the blob: they are at `sdk_error`, and not in what is printed."""
    return StoreUnavailableError(
        f"{engine} did not do what the store asked: {type(error).__name__}; see the cause, try again later"
    ).because_of(error)
