"""Functions of your own as a store: how they are called, and which are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from goaitools_py.stores import AsyncCallableStore, AsyncMemoryStore, CallableStore, MemoryStore


def by_position(key: str, blob: bytes, version: int | None) -> int | None:
    return _saved(key, blob, version)


def by_name(key: str, blob: bytes, *, expected: int | None) -> int | None:
    return _saved(key, blob, expected)


def between(key: str, blob: bytes, table: str = "chats", expected: int | None = None) -> int | None:
    assert table == "chats"
    return _saved(key, blob, expected)


def any_names(*given: Any) -> int | None:
    return _saved(*given)


def _saved(key: Any, blob: Any, expected: Any) -> int:
    assert (key, blob, expected) == ("ada", b"blob", 6)
    return 7


@pytest.mark.parametrize("save", [by_position, by_name, between, any_names])
def test_the_version_goes_where_it_is_expected(save: Any) -> None:
    """By its name if a parameter has it, else as the third."""

    async def later(*given: Any, **named: Any) -> Any:
        return save(*given, **named)

    later.__wrapped__ = save  # type: ignore[attr-defined]

    async def nothing(key: str) -> None:
        return None

    assert CallableStore(lambda key: None, save).save("ada", b"blob", expected=6) == 7
    assert asyncio.run(AsyncCallableStore(nothing, later).save("ada", b"blob", expected=6)) == 7


def test_the_methods_of_a_store_are_such_functions() -> None:
    """They take `expected` by name only."""
    inner = MemoryStore()
    store = CallableStore(inner.load, inner.save)
    version = store.save("ada", b"blob", expected=None)
    assert store.load("ada") == inner.load("ada")
    assert store.save("ada", b"more", expected=version) > version

    async def talk() -> None:
        inner = AsyncMemoryStore()
        store = AsyncCallableStore(inner.load, inner.save)
        await store.save("ada", b"blob", expected=None)
        assert await store.load("ada") == await inner.load("ada")

    asyncio.run(talk())


@pytest.mark.parametrize("kind", [CallableStore, AsyncCallableStore])
def test_a_function_with_another_order_is_refused(kind: Any) -> None:
    """It would save the version as the blob, or the blob under a wrong key."""
    for save in (
        lambda key, expected, blob: 1,
        lambda blob, key, expected: 1,
        lambda blob, key, version: 1,
        lambda key, version, blob: 1,
    ):
        with pytest.raises(TypeError, match=r"calls save\(key, blob, expected\), and the given function"):
            kind(lambda key: None, save)
