"""A program is killed at each of its effects: one that is right survives, and each mistake is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat, Image, ToolContext, tool
from goaitools_py.state import apart
from goaitools_py.state.codec import PLAIN
from goaitools_py.state.parts import MEDIA, SEALED_HISTORY
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.stores import AsyncMemoryStore, AsyncSQLiteStore, MemoryStore, SQLiteStore, Stored
from goaitools_py.testing import Calls, crash_points

WIRES = ("openai", "openai-responses", "anthropic")


class Bank:
    """The world outside: payments, each with the key that it came under."""

    def __init__(self) -> None:
        self.payments: list[tuple[str, int]] = []
        self.keys: set[str] = set()

    def tools(self, *, idempotent: bool, careful: bool = True) -> list[Any]:
        """`careful`: a key that was seen is not paid again."""

        @tool(idempotent=idempotent)
        def pay(ctx: ToolContext[Any], euros: int) -> str:
            """Pay."""
            if not (careful and ctx.idempotency_key in self.keys):
                self.keys.add(ctx.idempotency_key)
                self.payments.append((ctx.idempotency_key, euros))
            return f"paid {euros}"

        return [pay]

    def done(self) -> list[int]:
        """The effects, by their sums: keys differ from run to run."""
        return [euros for _, euros in self.payments]


SCRIPT: list[tuple[str, list[Any]]] = [
    ("Pay 5 and 6.", [Calls([("pay", {"euros": 5}), ("pay", {"euros": 6})]), "Both are paid."]),
    ("And 7, then 8.", [Calls([("pay", {"euros": 7})]), Calls([("pay", {"euros": 8})]), "Done."]),
]


def maker(is_async: bool, tools: list[Any]) -> Callable[[Any], Any]:
    return lambda backend: (AsyncChat if is_async else Chat)(backend, tools=tools)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_program_that_is_right_survives(wire: str, is_async: bool, idempotent: bool) -> None:
    """At each request, save, and beginning and end of a lease. Only a tool that may not run again is ever in
    doubt."""
    bank = Bank()

    report = crash_points(
        maker(is_async, bank.tools(idempotent=idempotent)), SCRIPT, effects=bank.done, wire=wire
    )

    assert set(report.points) == {"before a load", *SAVES, *LEASES}
    assert sum(report.points.values()) > 30
    assert bool(report.in_doubt) is not idempotent


SAVES = ("before a save", "after a save", "before a request", "after a request")
LEASES = ("before a lease", "after a lease", "before a release", "after a release")


@pytest.mark.parametrize("has_leases", [False, True])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_store_may_have_leases_or_not(is_async: bool, has_leases: bool) -> None:
    """One with the plain steps alone is used with these, and no lease of a dead life is in the way."""
    bank, made = Bank(), []

    def make() -> Any:
        store: Any = AsyncMemoryStore() if is_async else MemoryStore()
        made.append(store)
        names = ("load", "save", "lease") if has_leases else ("load", "save")
        return SimpleNamespace(**{name: getattr(store, name) for name in names})

    chat = maker(is_async, bank.tools(idempotent=True))
    report = crash_points(chat, SCRIPT, make_store=make, effects=bank.done)

    assert set(report.points) == {"before a load", *SAVES, *(LEASES if has_leases else ())}
    assert len(made) == sum(report.points.values()) + 1


def test_a_store_of_ones_own_is_used(tmp_path: Path) -> None:
    """A new one for each run."""
    made: list[Any] = []

    def make() -> Any:
        made.append(SQLiteStore(tmp_path / f"{len(made)}.db"))
        return made[-1]

    bank = Bank()
    chat = maker(False, bank.tools(idempotent=True))
    report = crash_points(chat, SCRIPT[:1], make_store=make, effects=bank.done)
    for store in made:
        store.close()

    assert len(made) == sum(report.points.values()) + 1


@pytest.mark.parametrize("kind", ["combined", "single"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_parts_beside_the_state(is_async: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that a tool took stands in the store: a kill leaves no head without its parts."""
    made: list[Any] = []

    def make() -> Any:
        store = (AsyncSQLiteStore if is_async else SQLiteStore)(":memory:")
        made.append(store)
        if kind == "combined":
            return store
        names = ("load", "save", "lease", "load_head", "load_parts", "save_parts")
        return SimpleNamespace(**{name: getattr(store, name) for name in names})

    @tool(idempotent=True)
    def look() -> Image:
        """Take a picture."""
        return Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)

    bank = Bank()
    script: list[tuple[str, list[Any]]] = [
        ("Look, then pay.", [Calls([("look", {})]), Calls([("pay", {"euros": 5})]), "Done."]),
        ("Thanks.", ["You are welcome."]),
    ]
    monkeypatch.setattr(apart, "SMALL", 1)  # the first turn becomes a part

    report = crash_points(
        maker(is_async, [*bank.tools(idempotent=True), look]),
        script,
        make_store=make,
        effects=bank.done,
        wire="anthropic",
        parts="store",
    )

    async def heads() -> list[Any]:
        keys = [(await store.list()).keys[0].key for store in made]
        found = [await store.load_head(key) for store, key in zip(made, keys, strict=True)]
        for store in made:
            await store.aclose()
        return found

    if is_async:
        found = asyncio.run(heads())
    else:
        found = [store.load_head(store.list().keys[0].key) for store in made]
        for store in made:
            store.close()
    assert sum(report.points.values()) + 1 == len(made) > 20
    assert all(
        {part.name for part in head.parts}
        == {part.digest for part in parts_of(head.blob, codec=PLAIN, binding=None)}
        for head in found
    )
    assert all({part.kind for part in head.parts} == {SEALED_HISTORY, MEDIA} for head in found)
    assert ("before a release" in report.points) is (kind == "single")


def test_an_effect_that_comes_twice_is_found() -> None:
    """A tool that says that it may run again, and does not look at its key."""
    bank = Bank()

    with pytest.raises(AssertionError, match=r"1 effects came twice, or should not have come: \d"):
        crash_points(maker(False, bank.tools(idempotent=True, careful=False)), SCRIPT, effects=bank.done)


class Forgetful(MemoryStore):
    """Gives the blob before the newest one."""

    before: Stored | None = None

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        stored = super().load(key)
        version = super().save(key, blob, expected=expected)
        self.before = stored and Stored(blob=stored.blob, version=version, updated_at=stored.updated_at)
        return version

    def load(self, key: str) -> Stored | None:
        return self.before or super().load(key)


class Late(AsyncMemoryStore):
    """As `Forgetful`, awaited."""

    before: Stored | None = None

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        stored = await super().load(key)
        version = await super().save(key, blob, expected=expected)
        self.before = stored and Stored(blob=stored.blob, version=version, updated_at=stored.updated_at)
        return version

    async def load(self, key: str) -> Stored | None:
        return self.before or await super().load(key)


@pytest.mark.parametrize(("is_async", "store"), [(False, Forgetful), (True, Late)])
def test_a_store_that_loses_is_found(is_async: bool, store: Any) -> None:
    """Effects come twice, replies are missing, or the history is not that of the run without a kill."""
    bank = Bank()

    with pytest.raises(AssertionError, match=r"\d+ findings:"):
        crash_points(
            maker(is_async, bank.tools(idempotent=False)), SCRIPT, make_store=store, effects=bank.done
        )


def test_a_script_that_ends_too_soon_is_told() -> None:
    """And one in which two turns say the same is refused."""
    bank = Bank()
    make = maker(False, bank.tools(idempotent=True))

    with pytest.raises(AssertionError, match="without a kill: request 2 has no reply in the script"):
        crash_points(make, [("Pay.", [Calls([("pay", {"euros": 5})])])])
    with pytest.raises(ValueError, match="a text of its own"):
        crash_points(make, [("Hi.", ["Hello."]), ("Hi.", ["Hello."])])
    with pytest.raises(ValueError, match="a text of its own"):
        crash_points(make, [])
