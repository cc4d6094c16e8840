"""What all stores do alike, as pure functions; and that naming one store loads no other's driver."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import backends, stores
from goaitools_py.base.values import ByShape
from goaitools_py.frontends import front_end
from goaitools_py.state import codec
from goaitools_py.stores import (
    AsyncCallableStore,
    AsyncDeleting,
    AsyncLeasing,
    AsyncListing,
    CallableStore,
    Deleting,
    Leasing,
    Listing,
    MemoryStore,
    Stored,
)
from goaitools_py.stores import common as rules

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("prefix", "after"),
    [
        ("", None),
        ("a", "b"),
        ("az", "a{"),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", None),
        ("\ud7ff", "\ue000"),
        ("\uffff", "\U00010000"),
    ],
)
def test_the_end_of_a_prefix(prefix: str, after: str | None) -> None:
    """What comes after all texts with a prefix is text itself, and in the order of UTF-8 too."""
    assert rules.after_prefix(prefix) == after
    if after is not None:
        inside = prefix + "\U0010ffff" * 3
        assert prefix < inside < after
        assert prefix.encode() < inside.encode() < after.encode()


@pytest.mark.parametrize("key", ["", "k" * 513, "é" * 257, "a\0b", "half \ud800"])
def test_a_key_that_cannot_be_kept_is_refused(key: str) -> None:
    """Empty, too long, NUL, half a surrogate pair: ValueError, which does not repeat the key."""
    with pytest.raises(ValueError, match="key") as caught:
        rules.check_key(key)

    assert not key or key not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_key_is_a_text() -> None:
    """Bytes or a number are a mistake of the caller."""
    with pytest.raises(TypeError, match="not int"):
        rules.check_key(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf"), 86_400.0 * 20])
def test_a_lease_has_a_length(ttl: float) -> None:
    """None, a negative or an endless one is refused: engines would take some of them for something else."""
    with pytest.raises(ValueError, match="ttl"), MemoryStore().lease("ada", ttl):
        raise AssertionError("it was taken")


def test_a_page_holds_something() -> None:
    """A limit of nothing would never end."""
    with pytest.raises(ValueError, match="limit"):
        MemoryStore().list(limit=0)


def test_first_versions_are_random_and_exact_everywhere() -> None:
    """They fit a double and a signed 64-bit column, with room for as many saves as there will be."""
    versions = {rules.new_version(None) for _ in range(1_000)}

    assert len(versions) == 1_000
    assert min(versions) > 0
    assert max(versions) < 2**49
    assert rules.new_version(41) == 42


def test_what_a_store_can_do_is_seen_by_its_shape() -> None:
    """`isinstance` with a protocol tells; nothing is inherited."""
    plain = CallableStore(lambda key: None, lambda key, blob, expected: 1)

    assert isinstance(MemoryStore(), Deleting)
    assert isinstance(MemoryStore(), Listing)
    assert isinstance(MemoryStore(), Leasing)
    assert not isinstance(plain, (Deleting, Listing, Leasing))
    for name in ("AsyncMemoryStore", "AsyncSQLiteStore", "AsyncSQLAlchemyStore", "AsyncRedisStore"):
        store = getattr(stores, name)
        assert issubclass(store, AsyncDeleting)
        assert issubclass(store, AsyncListing)
        assert issubclass(store, AsyncLeasing)


def test_a_function_that_gives_something_else_is_told() -> None:
    """What the functions of a callable store give is looked at: a mistake shows at its first call."""
    tuple_ = CallableStore(lambda key: (b"blob", 1), lambda key, blob, expected: True)  # type: ignore[arg-type,return-value]

    with pytest.raises(TypeError, match="gave tuple"):
        tuple_.load("ada")
    with pytest.raises(TypeError, match="gave bool"):
        tuple_.save("ada", b"", expected=None)


def test_a_text_column_is_told() -> None:
    """A blob that comes back as text was not kept in a column of bytes."""
    now = MemoryStore()
    now.save("ada", b"blob", expected=None)
    stored = now.load("ada")
    assert stored is not None
    text = Stored(blob="blob", version=1, updated_at=stored.updated_at)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="column of bytes"):
        CallableStore(lambda key: text, lambda key, blob, expected: 1).load("ada")


def test_a_memoryview_becomes_bytes() -> None:
    """Some drivers give a memoryview for a column of bytes."""
    kept = MemoryStore()
    kept.save("ada", b"blob", expected=None)
    stored = kept.load("ada")
    assert stored is not None
    view = Stored(blob=memoryview(b"blob"), version=1, updated_at=stored.updated_at)  # type: ignore[arg-type]

    loaded = CallableStore(lambda key: view, lambda key, blob, expected: 1).load("ada")

    assert loaded is not None
    assert type(loaded.blob) is bytes
    assert isinstance(AsyncCallableStore, type)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("MemoryStore", {"asyncio", "sqlite3", "sqlalchemy", "redis", "django"}),
        ("CallableStore", {"asyncio", "sqlite3", "sqlalchemy", "redis", "django"}),
        ("AsyncSQLiteStore", {"asyncio", "sqlalchemy", "redis", "django"}),
        ("RedisStore", {"asyncio", "sqlite3", "sqlalchemy", "redis", "django"}),
        ("AsyncSQLAlchemyStore", {"redis", "django", "psycopg", "pymysql", "greenlet"}),
    ],
)
def test_naming_a_store_loads_no_others_driver(name: str, foreign: set[str]) -> None:
    """Each store is loaded when it is first named, and its driver by whoever makes the client."""
    program = f"import sys\nfrom goaitools_py.stores import {name}\nprint(*sys.modules, sep='\\n')"

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )

    assert foreign & set(ran.stdout.split()) == set()


def test_a_name_that_is_no_store_is_no_attribute() -> None:
    """Asking for something else is an AttributeError."""
    with pytest.raises(AttributeError, match="MongoStore"):
        stores.MongoStore  # noqa: B018


def _undecodable() -> Exception:
    try:
        b"canary \xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        KeyError("canary"), ValueError("canary"), LookupError("canary"), _undecodable(),
        UnicodeEncodeError("latin-1", "canary \u65e5", 7, 8, "no such sign"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_an_error_of_pythons_own_in_a_driver_is_not_quoted(error: Exception) -> None:
    """A driver that reads a URL, or writes a text, raises errors that have a part of it."""
    made = rules.unavailable("the engine", error)

    assert made.sdk_error is error
    assert "canary" not in "".join(traceback.format_exception(made))
    link: BaseException | None = made
    while link is not None:
        assert "canary" not in f"{link} {link!r} {link.args!r}"
        link = link.__cause__
    assert type(error).__name__ in str(made.__cause__)


# ------------------------------------------------------------------------------------------------ shapes


class Wrapper:
    """Passes names on, as a wrapper that counts or logs does; it has no method of its own."""

    def __init__(self, members: dict[str, object]) -> None:
        self._members = members

    def __getattr__(self, name: str) -> object:
        try:
            return self._members[name]
        except KeyError:
            raise AttributeError(name) from None


SHAPES = [
    found
    for module in (stores.base, backends.base, backends.protocols, codec, front_end)
    for found in vars(module).values()
    if isinstance(found, ByShape) and found.__module__ == module.__name__
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrapper_has_the_shape_of_what_it_wraps(shape: Any) -> None:
    """On every Python. A wrapped store without a lease, say, would let two workers into one turn."""
    names = [name for one in shape.__mro__ for name in (*vars(one), *getattr(one, "__annotations__", ()))]
    names = [name for name in names if not name.startswith("_")] + ["__call__"] * ("__call__" in vars(shape))
    members: dict[str, object] = dict.fromkeys(names, len)
    assert members

    assert isinstance(Wrapper(members), shape)
    for name in members:
        assert not isinstance(Wrapper({**members, name: None}), shape) or not callable(
            getattr(shape, name, None)
        )
        del (without := dict(members))[name]
        assert not isinstance(Wrapper(without), shape), name


def test_the_shapes_are_all_protocols_that_objects_are_compared_with() -> None:
    """A protocol with the decorator alone would see other objects on Python 3.12."""
    files = [*ROOT.joinpath("goaitools_py").rglob("*.py")]
    marked = sum(path.read_text(encoding="utf-8").count("\n@runtime_checkable\n") for path in files)
    assert marked == len(SHAPES) > 30
