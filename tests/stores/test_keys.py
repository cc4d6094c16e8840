"""Two keys are one only if all their characters are: in every store, for each thing that a key names.

A key is often made of a user's name. If two of them shared a row, a lease or a part, one user would read what
another one has said.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import random
import unicodedata
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from goaitools_py.stores import StoredPart
from goaitools_py.stores.common import is_listed
from goaitools_py.stores.redis_keys import KeySpace
from goaitools_py.types.errors import LeaseHeldError

from ._places import KINDS, Place, async_opened, maker, opened

NEAR = (
    "ada", "Ada", "ADA", "ada ", " ada", "ada\t", "ada\n", "\nada", "ada\r", "ada\x0b", "ada\x1f",
    "ada\u3000", "a", "á", "a\u0301", "ä", "å", "Å", "\u212b", "ß", "ss", "ẞ", "i", "İ", "ı", "i\u0307",
    "ﬁ", "fi", "ｗ", "w", "æ", "ae", "ñ", "n", "ø", "o", "ç", "c", "й", "и", "가", "\u1100\u1161", "か",
    "カ", "が", "か\u3099", "ｶ", "ﾊ", "👋", "👋🏽", "👋\ufe0f", "❤", "❤\ufe0f", "a\u200b", "a\u200d",
    "a\u00ad", "\ufeffa", "\u202ea", "a\u2028", "1", "01", "1.0", "1e0", "+1", "-0", "0", "０", "¹", "١",
    "None", "null", "NULL", "nan", "true", "True", "x'61'", "}", "{", "{}", "}{", "}}", "{a}", "{a}b",
    "a}b", "{a", "}a", "}ada", "{ada}", "\x01", "\x7f", "\x80", "\x9f", "\xff", ".", "..", "...", "./a",
    "../a", "a/..", "a/", "/a", "/", "//", "a//", "\\", "a\\", "c:", "con", "nul", "~", "a~", "*", "?",
    "[a]", "[^b]", "a*", "%", "a%", "_", "__", "a_", "'", '"', "''", "`", ";", "--", "#", "$1", "%s",
    "%%s", ":k", "goaitools", "goaitools:state:{ada}", ":state:", "ada.unreadable", "ada.unreadable.",
    "ada.unreadable.0123456789abcdef", "ada.unreadable.0123456789abcdef01234567x",
    "ada.unreadable.0123456789ABCDEF01234567", "k" * 511, "k" * 512, "K" * 512, "é" * 256,
    "e" * 255 + "k", "👋" * 128, "\U0010ffff", "\ue000", "\ud7ff", "\uffff",
)  # fmt: skip
"""Keys that an engine could take for each other: by case, accents, width, normal form, spaces, numbers,
patterns, separators, length."""


def near_keys() -> list[str]:
    """The keys above, in each normal form, and mixed at random. No two are equal."""
    seed = 20261125
    print("seed", seed)
    r = random.Random(seed)
    found = dict.fromkeys(NEAR)
    for key in NEAR:
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            found[unicodedata.normalize(form, key)] = None
        found |= dict.fromkeys((key.upper(), key.lower(), key.casefold(), key + " ", key.swapcase()))
    short = [key for key in NEAR if len(key) < 9]
    found |= dict.fromkeys("".join(r.sample(short, 3)) for _ in range(60))
    return [key for key in found if 1 <= len(key.encode()) <= 512]


async def done(value: Any) -> Any:
    """The result of a step of a store of either kind."""
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def used(place: Place) -> Any:
    """A store of any kind."""
    async with AsyncExitStack() as stack:
        if place.kind.startswith(("memory", "callable")):
            yield maker(place)()
        elif "async" in place.kind:
            yield await stack.enter_async_context(async_opened(place))
        else:
            yield stack.enter_context(opened(place))


async def leased(stack: AsyncExitStack, store: Any, key: str) -> None:
    """Hold a lease until the end of the stack."""
    lease = store.lease(key, 60.0)
    if hasattr(lease, "__aenter__"):
        await stack.enter_async_context(lease)
    else:
        stack.enter_context(lease)


def can(store: Any, what: str) -> bool:
    return hasattr(store, what)


def part_of(key: str) -> StoredPart:
    data = b"part of " + key.encode()
    return StoredPart(name=hashlib.sha256(data).digest(), kind=64, data=data)


async def listed(store: Any, prefix: str) -> list[str]:
    """All keys with a prefix, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        page = await done(store.list(prefix, cursor=cursor, limit=97))
        found += [one.key for one in page.keys]
        if (cursor := page.cursor) is None:
            return found


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_no_two_keys_share_anything(place: Place) -> None:
    """Neither a row, its facts and its stop flag, nor a part, nor a lease. A listing gives each key once, as
    it was saved, under its own prefixes only. A delete takes one."""
    keys = near_keys()
    assert len(keys) > 400

    async def all_of_it() -> None:
        async with used(place) as store:
            versions = {}
            for key in keys:
                assert await done(store.load(key)) is None, ascii(key)
                versions[key] = await done(store.save(key, b"blob of " + key.encode(), expected=None))
            if can(store, "save_parts"):
                for key in keys:
                    own = part_of(key)
                    saved = store.save_parts(
                        key, b"blob of " + key.encode(), [own], [], expected=versions[key]
                    )
                    versions[key] = await done(saved)
            for key in keys:
                found = await done(store.load(key))
                assert (found.blob, found.version) == (b"blob of " + key.encode(), versions[key]), ascii(key)
                if can(store, "load_head"):
                    head = await done(store.load_head(key))
                    assert [part.data for part in head.parts] == [b"part of " + key.encode()], ascii(key)
            if can(store, "set_stop"):
                for key in keys[::2]:
                    assert await done(store.set_stop(key)), ascii(key)
                stopped = [key for key in keys if await done(store.stop_requested(key))]
                assert stopped == keys[::2]
            if can(store, "lease"):
                async with AsyncExitStack() as stack:
                    for key in keys:
                        await leased(stack, store, key)  # refused, if another key had the same lease
                    for key in keys[:20]:
                        async with AsyncExitStack() as again:
                            with pytest.raises(LeaseHeldError):
                                await leased(again, store, key)
            if can(store, "list"):
                for prefix in ("", *keys[::7], *(key[:1] for key in keys[::11])):
                    expected = sorted(
                        key for key in keys if key.startswith(prefix) and is_listed(key, prefix)
                    )
                    assert sorted(await listed(store, prefix)) == expected, ascii(prefix)
            if can(store, "delete"):
                for key in keys[::3]:
                    assert await done(store.delete(key)), ascii(key)
                left = [key for key in keys if await done(store.load(key)) is not None]
                assert left == [key for at, key in enumerate(keys) if at % 3]

    asyncio.run(all_of_it())


@pytest.mark.parametrize("place", KINDS, indirect=True)
@pytest.mark.parametrize("key", ["", "a\0", "\0", "k" * 513, "é" * 257, "\ud800", "a\udfff"], ids=ascii)
def test_a_key_that_no_store_keeps_is_refused_by_each_step(place: Place, key: str) -> None:
    """With the same ValueError everywhere, before the engine is asked, and without the key in its text."""

    async def all_of_it() -> list[str]:
        steps: dict[str, Any] = {
            "load": (), "save": (b"x",), "delete": (), "set_stop": (), "stop_requested": (), "is_held": (),
            "load_head": (), "load_parts": ([b"\x01" * 32],), "save_parts": (b"x", [], []),
            "lease_and_load": (1.0,), "lease_and_load_head": (1.0,),
        }  # fmt: skip
        async with used(place) as store:
            tried = []
            for name, given in steps.items():
                if not can(store, name):
                    continue
                how = {"expected": None} if name.startswith("save") else {}
                with pytest.raises(ValueError, match="the key") as caught:
                    await done(getattr(store, name)(key, *given, **how))
                assert not key or key not in str(caught.value)
                tried.append(name)
            if can(store, "lease"):
                with pytest.raises(ValueError, match="the key"):
                    async with AsyncExitStack() as stack:
                        await leased(stack, store, key)
            return tried

    assert len(asyncio.run(all_of_it())) >= 2


def test_a_cursor_of_a_cluster_tells_no_address_of_a_server() -> None:
    """It goes to web pages. The next page begins at its node all the same."""
    nodes = ["10.0.0.7:6379", "10.0.0.8:6379"]
    space = KeySpace("goaitools", None)
    walk = space.walk(nodes, "ada/", None, 2)
    asked = walk.ask()
    assert asked is not None
    walk.answer((7, [space.state(f"ada/{number}") for number in range(3)]))
    assert walk.keys == ["ada/0", "ada/1"]
    cursor = walk.cursor

    assert cursor is not None
    assert "10.0" not in cursor
    again = space.walk(nodes, "ada/", cursor, 2)
    assert again.keys == ["ada/2"]
    node, command = again.ask() or ("", ())
    assert (node, command[1]) == ("10.0.0.7:6379", 7)
    for other in ("10.0.0.7:6379", "", "x", [], {}):
        with pytest.raises(ValueError, match="list from the beginning"):
            space.walk(nodes, "ada/", json.dumps([other, 0, []]), 2)
