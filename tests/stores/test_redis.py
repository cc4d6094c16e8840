"""The Redis store beyond the contract: time to live, clusters, listing piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncRedisCluster
from redis.crc import key_slot

from goaitools_py import StateConflictError, StoreUnavailableError
from goaitools_py.stores import AsyncRedisStore, RedisStore
from goaitools_py.stores.redis_keys import KeySpace
from goaitools_py.testing import store_contract

from ._places import Place
from ._private import private_redis, private_redis_cluster


@pytest.fixture
def client(place: Place) -> Iterator[Any]:
    """A client of the test server."""
    with redis.Redis.from_url(place.url.partition("#")[0]) as made:
        yield made


@pytest.fixture
def prefix(place: Place) -> str:
    """The key names that belong to the test."""
    return place.url.partition("#")[2]


here = pytest.mark.parametrize("place", ["redis"], indirect=True)


@here
def test_a_conversation_may_be_forgotten_in_time(client: Any, prefix: str) -> None:
    """With `ttl` each save begins the time anew; a store without it makes the conversation stay."""
    store = RedisStore(client, ttl=1_000.0, prefix=prefix)
    name = f"{prefix}:state:{{ada}}"

    version = store.save("ada", b"1", expected=None)
    assert 900_000 < client.pttl(name) <= 1_000_000
    client.pexpire(name, 5_000)
    version = store.save("ada", b"2", expected=version)
    assert 900_000 < client.pttl(name) <= 1_000_000

    RedisStore(client, prefix=prefix).save("ada", b"3", expected=version)
    assert client.pttl(name) == -1


@here
def test_what_was_forgotten_is_a_conflict(client: Any, prefix: str) -> None:
    """A save that comes after the end of a conversation does not bring back half of it."""
    store = RedisStore(client, ttl=1_000.0, prefix=prefix)
    version = store.save("ada", b"1", expected=None)
    client.pexpire(f"{prefix}:state:{{ada}}", 0)

    assert store.load("ada") is None
    with pytest.raises(StateConflictError):
        store.save("ada", b"2", expected=version)


@here
def test_a_command_that_is_sent_twice_is_done_once(client: Any, prefix: str) -> None:
    """Clients send again when a connection breaks: the second answer is the first's."""
    keys = KeySpace(prefix, None)
    save = keys.save("ada", b"blob", None)

    answers = [client.execute_command(*save.write()) for _ in range(3)]

    assert [save.written(answer) for answer in answers] == [save.version] * 3
    loaded = RedisStore(client, prefix=prefix).load("ada")
    assert loaded is not None
    assert loaded.version == save.version
    lease = keys.lease("ada", 60.0)
    assert [client.execute_command(*lease.take()) for _ in range(2)] == [1, 1]
    assert client.execute_command(*keys.lease("ada", 60.0).take()) == 0


@here
def test_all_keys_are_listed_a_piece_at_a_time(client: Any, prefix: str) -> None:
    """Redis hands out keys by the bucket: those over wait in the cursor, and none is left out."""
    store = RedisStore(client, prefix=prefix)
    keys = {f"user-{number}" for number in range(600)}
    for key in keys:
        store.save(key, b"", expected=None)
    store.save("other", b"", expected=None)

    found: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        page = store.list("user-", cursor=cursor, limit=7)
        assert len(page.keys) <= 7
        found += [entry.key for entry in page.keys]
        cursor, pages = page.cursor, pages + 1

    assert set(found) == keys
    assert len(found) == len(keys), "nobody resized the table meanwhile"


@here
@pytest.mark.parametrize("cursor", ["", "nonsense", "[", '["gone", 0, []]'])
def test_a_cursor_of_somebody_else_is_refused(client: Any, prefix: str, cursor: str) -> None:
    """A cursor that `list` did not give, or that names a node that has gone, is told."""
    with pytest.raises(ValueError, match="list from the beginning"):
        RedisStore(client, prefix=prefix).list(cursor=cursor)


@here
def test_a_key_of_another_kind_is_the_stores_error(client: Any, prefix: str) -> None:
    """Where somebody else's value is in the way, it is told and left alone."""
    client.set(f"{prefix}:state:{{ada}}", b"theirs")
    store = RedisStore(client, prefix=prefix)

    for call in (lambda: store.load("ada"), lambda: store.save("ada", b"mine", expected=None)):
        with pytest.raises(StoreUnavailableError) as caught:
            call()
        assert isinstance(caught.value.sdk_error, redis.ResponseError)

    assert client.get(f"{prefix}:state:{{ada}}") == b"theirs"


def test_what_belongs_to_a_conversation_is_on_one_node() -> None:
    """State and lease have the same hash tag, so the same slot; other conversations have others."""
    keys = KeySpace("goaitools", None)
    slots = set()
    for key in ("ada", "bob", "a b", "{", "a{b", "你好", "}", "}ada", "}{ada}", "{}"):
        state = keys.state(key)
        lease = keys.lease(key, 1.0).take()[3]
        assert isinstance(lease, bytes)
        assert key_slot(state) == key_slot(lease) == key_slot(keys.parts(key))
        slots.add(key_slot(state))
    assert len(slots) == 7  # all keys that begin with a closing brace share a slot; "{" and "{}" do, too


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """A cluster of two nodes."""
    with private_redis_cluster(tmp_path_factory.mktemp("cluster")) as ports:
        yield ports


def test_a_cluster_keeps_the_contract(cluster: list[int]) -> None:
    """Over a cluster's client everything holds, listing over all nodes included."""

    @contextmanager
    def make_store() -> Iterator[RedisStore]:
        with redis.RedisCluster(host="127.0.0.1", port=cluster[0]) as client:
            yield RedisStore(client)

    store_contract(make_store)


def test_a_cluster_keeps_the_contract_in_async_code(cluster: list[int]) -> None:
    """The same over the async client, which has to find the nodes first."""

    @asynccontextmanager
    async def make_store() -> AsyncIterator[AsyncRedisStore]:
        async with AsyncRedisCluster(host="127.0.0.1", port=cluster[0]) as client:
            yield AsyncRedisStore(client)

    store_contract(make_store)


def test_keys_with_braces_are_kept_in_a_cluster(cluster: list[int]) -> None:
    """Also those that begin with a closing brace, which make an empty hash tag; a listing finds them."""
    keys = {"}", "}x", "}{x}", "{", "{}", "x}y", "x"}
    with redis.RedisCluster(host="127.0.0.1", port=cluster[0]) as client:
        store = RedisStore(client, prefix="braces")
        for key in keys:
            assert store.save(key, key.encode(), expected=None)
        found = {key: stored.blob for key in keys if (stored := store.load(key)) is not None}
        listed = {entry.key for entry in store.list("").keys}
        closing = {entry.key for entry in store.list("}").keys}
        for key in keys:
            with store.lease(key, 5.0):
                assert store.delete(key)

    assert found == {key: key.encode() for key in keys}
    assert listed == keys
    assert closing == {"}", "}x", "}{x}"}


def test_a_cluster_that_is_gone_is_the_stores_error() -> None:
    """What redis-py raises then is no `RedisError`, and its text may name anything."""

    class Gone:
        def execute_command(self, *command: Any, **how: Any) -> Any:
            raise redis.exceptions.RedisClusterException(f"cannot be connected: {command}")

    with pytest.raises(StoreUnavailableError) as caught:
        RedisStore(Gone()).load("Harrogate")  # type: ignore[arg-type]

    assert "Harrogate" not in str(caught.value)


def test_a_cluster_really_has_parts(cluster: list[int]) -> None:
    """The contract's keys were on both nodes: one node alone would prove nothing."""
    with redis.RedisCluster(host="127.0.0.1", port=cluster[0]) as client:
        store = RedisStore(client, prefix="parts")
        for number in range(20):
            store.save(f"chat-{number}", b"blob", expected=None)
        sizes = [node.redis_connection.dbsize() for node in client.get_primaries()]

        listed = {entry.key for entry in store.list("chat-").keys}

    assert len(sizes) == 2
    assert min(sizes) > 0
    assert listed == {f"chat-{number}" for number in range(20)}


def test_a_full_server_is_the_stores_error(tmp_path: Path) -> None:
    """A server that has no memory left refuses a save: nothing is lost, and it is told."""
    with private_redis(tmp_path, "--maxmemory", "1") as server, redis.Redis(port=server.port) as client:
        store = RedisStore(client)

        with pytest.raises(StoreUnavailableError) as caught:
            store.save("ada", b"blob", expected=None)

        assert "OutOfMemory" in str(caught.value)
        assert store.load("ada") is None
