"""A store made of two functions of your own, for instance over columns of the user's row.

Owns: the arguments and results of the functions, and the errors made of their exceptions. Must never know:
    how the functions keep a blob.

::

    def load(user_id: str) -> Stored | None:
        row = db.execute("SELECT chat, chat_version, chat_at FROM users WHERE id = %s", [user_id]).fetchone()
        if row is None or row[0] is None:
            return None
        return Stored(blob=row[0], version=row[1], updated_at=row[2])

    def save(user_id: str, blob: bytes, expected: int | None) -> int | None:
        row = db.execute(
            "UPDATE users SET chat = %s, chat_version = chat_version + 1, chat_at = now() WHERE id = %s"
            " AND CASE WHEN %s THEN chat IS NULL ELSE chat IS NOT NULL AND chat_version = %s END"
            " RETURNING chat_version",
            [blob, user_id, expected is None, expected],
        ).fetchone()
        return row[0] if row else None

    store = CallableStore(load, save)

To forget a conversation, set ``chat`` to NULL and leave ``chat_version``: versions must not come again.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ..types.errors import StoreError, StoreUnavailableError
from . import common
from .base import Stored

__all__ = ["AsyncCallableStore", "CallableStore"]

T = TypeVar("T")


class CallableStore:
    """A store made of two functions. Prove it with `goaitools_py.testing.store_contract`.

    Args:
        load: Takes a key; returns the `Stored` entry under it, or None.
        save: Takes a key, a blob and the expected version, None for "nothing is stored yet". A parameter
            with the name `expected` gets the version by name, wherever it stands. In one atomic
            step it compares and saves, and returns the new version; None if it did not save, because
            another version is stored.

    An exception of a function becomes a `StoreUnavailableError`, and is its `sdk_error`; a `StoreError`
    passes. After an exception of `save` the blob is loaded once. If it is stored under a new version, the
    save was done.
    """

    def __init__(
        self,
        load: Callable[[str], Stored | None],
        save: Callable[[str, bytes, int | None], int | None],
    ) -> None:
        self._load = load
        self._save = _check("CallableStore", load, save)

    def load(self, key: str) -> Stored | None:
        """The entry that the load function returns for `key`."""
        common.check_key(key)
        with _errors("load"):
            found = self._load(key)
        return _stored(found)

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save with the save function."""
        common.check_key(key)
        try:
            with _errors("save"):
                version = self._save(key, blob, expected)
        except StoreUnavailableError as doubt:
            return _settled(doubt, self.load(key), blob, expected)
        return _version(version, expected)


class AsyncCallableStore:
    """`CallableStore` made of two async functions."""

    def __init__(
        self,
        load: Callable[[str], Awaitable[Stored | None]],
        save: Callable[[str, bytes, int | None], Awaitable[int | None]],
    ) -> None:
        self._load = load
        self._save = _check("AsyncCallableStore", load, save)

    async def load(self, key: str) -> Stored | None:
        """The entry that the load function returns for `key`."""
        common.check_key(key)
        with _errors("load"):
            found = await _awaitable("load", self._load(key))
        return _stored(found)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        """Save with the save function."""
        common.check_key(key)
        try:
            with _errors("save"):
                version = await _awaitable("save", self._save(key, blob, expected))
        except StoreUnavailableError as doubt:
            return _settled(doubt, await self.load(key), blob, expected)
        return _version(version, expected)


def _check(kind: str, load: Callable[..., Any], save: Callable[..., T]) -> Callable[..., T]:
    """Refuse functions with the wrong parameters, before a turn is paid for.

    Gives the save function in a form that takes a key, a blob and the expected version, in this order.
    """
    for name, function in (("load", load), ("save", save)):
        if not callable(function):
            raise TypeError(f"{kind} takes a function {_CALLS[name]}, not {type(function).__name__}")
    called = _by_name(save) if _names_expected(save) else save
    rows: tuple[tuple[str, Callable[..., Any], Callable[..., Any], tuple[str, ...]], ...] = (
        ("load", load, load, ("key",)),
        ("save", save, called, _TAKES),
    )
    for name, function, call, takes in rows:
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # written in C
            continue
        try:
            if call is function:
                bound = signature.bind(*takes)
            else:
                bound = signature.bind("key", "blob", expected="expected")
        except TypeError as error:
            raise TypeError(
                f"{kind} calls {_CALLS[name]}, and the given function does not fit: {error}"
            ) from None
        if moved := [one for one in takes if one in signature.parameters and bound.arguments.get(one) != one]:
            raise TypeError(
                f"{kind} calls {_CALLS[name]}, and the given function has {moved[0]} in another "
                "place: change the order of its parameters"
            )
        if kind == "CallableStore" and inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{kind} calls {_CALLS[name]}, and the given function is async; AsyncCallableStore takes "
                "async functions"
            )
    return called


_TAKES: Final = ("key", "blob", "expected")
_CALLS: Final = {"load": "load(key)", "save": "save(key, blob, expected)"}


def _names_expected(save: Callable[..., Any]) -> bool:
    try:
        found = inspect.signature(save).parameters.get("expected")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (found.KEYWORD_ONLY, found.POSITIONAL_OR_KEYWORD)


def _by_name(save: Callable[..., T]) -> Callable[[str, bytes, int | None], T]:
    return lambda key, blob, expected: save(key, blob, expected=expected)


class _NotAwaitableError(Exception):
    """A function of an `AsyncCallableStore` returned a value that cannot be awaited."""


def _awaitable(name: str, given: Awaitable[T]) -> Awaitable[T]:
    if not inspect.isawaitable(given):
        raise _NotAwaitableError(name)
    return given


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Catch every exception of the function: a turn that was paid for must not be lost."""
    try:
        yield
    except StoreError:
        raise
    except _NotAwaitableError:
        raise TypeError(
            f"the {name} function of an AsyncCallableStore must be async: it gave a value that cannot be "
            "awaited; CallableStore takes functions that are not async"
        ) from None
    except Exception as exc:
        failed = common.unavailable(f"the {name} function", exc)
        raise failed from failed.__cause__


def _stored(found: Stored | None) -> Stored | None:
    if found is None:
        return None
    if not isinstance(found, Stored):
        raise TypeError(f"the load function gave {type(found).__name__}; it gives a Stored, or None")
    if isinstance(found.blob, str):
        raise TypeError("the load function gave a blob that is a str; keep it in a column of bytes")
    return Stored(blob=bytes(found.blob), version=found.version, updated_at=found.updated_at)


def _version(version: int | None, expected: int | None) -> int:
    if version is None:
        raise common.conflict(expected)
    if not isinstance(version, int) or isinstance(version, bool):
        raise TypeError(
            f"the save function gave {type(version).__name__}; it gives the new version, None for a conflict"
        )
    return version


def _settled(doubt: StoreUnavailableError, stored: Stored | None, blob: bytes, expected: int | None) -> int:
    if stored is None or stored.version == expected or stored.blob != blob:
        raise doubt
    return stored.version
