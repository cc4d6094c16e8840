"""Commands and stores see all of a cluster, whichever of its nodes their URL names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from goaitools_py import Chat, StoreError, StoreUnavailableError
from goaitools_py.cli import main
from goaitools_py.cli.store_urls import opened_async_store, opened_store
from goaitools_py.stores import AsyncPostgresStore, AsyncRedisStore, PostgresStore, RedisStore
from goaitools_py.testing import ScriptedBackend, store_contract

from ..failover.engines import Cluster, Sentinel
from ..stores._places import postgres_database

CONVERSATIONS = 12


@pytest.fixture(scope="module")
def engine() -> Iterator[Cluster]:
    """A cluster of three masters with a replica each, and twelve conversations."""
    try:
        made = Cluster()
        made.__enter__()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    with made:
        with Chat(ScriptedBackend(*["Hi."] * CONVERSATIONS)) as chat, RedisStore.open(made.url) as store:
            for number in range(CONVERSATIONS):
                chat.conversation(store, f"chat-{number}").send("Hello.")
        yield made


@pytest.fixture(params=["node", "other-node", "cluster"])
def url(request: pytest.FixtureRequest, engine: Cluster) -> str:
    """A URL of one node, and of all."""
    if request.param == "cluster":
        return engine.url
    return f"redis://127.0.0.1:{engine.nodes[0 if request.param == 'node' else 2].port}/0"


def test_cost_counts_all_conversations(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not those of one node."""
    assert main(["cost", "--all", "--store", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["conversations"] == CONVERSATIONS


def test_upgrade_reads_all_conversations(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In the number that it reports."""
    assert main(["upgrade", "--store", url, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert CONVERSATIONS in found.values()


def test_doctor_and_init_reach_the_cluster(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The conversation of the doctor may be on any node."""
    assert main(["store", "init", url]) == 0
    assert main(["doctor", "--store", url]) == 0
    capsys.readouterr()


def test_a_server_sees_all_conversations(url: str) -> None:
    """`goaitools serve` opens the store this way."""

    async def listed() -> set[str]:
        async with opened_async_store(url) as store:
            return {entry.key for entry in (await store.list("chat-", limit=100)).keys}

    with opened_store(url) as store:
        found = {entry.key for entry in store.list("chat-", limit=100).keys}
    assert found == asyncio.run(listed()) == {f"chat-{number}" for number in range(CONVERSATIONS)}


def test_a_client_of_one_node_is_refused(engine: Cluster) -> None:
    """It would list a part of the conversations, and say nothing of the others."""
    with redis.Redis(port=engine.nodes[0].port) as client:
        store = RedisStore(client)
        with pytest.raises(StoreError, match=r"redis\+cluster://") as caught:
            store.list()
        assert not isinstance(caught.value, StoreUnavailableError)
        with pytest.raises(StoreError, match=r"redis\+cluster://"):
            _ = [store.load(f"chat-{number}") for number in range(CONVERSATIONS)]


@pytest.mark.parametrize("kind", [RedisStore, AsyncRedisStore])
def test_a_cluster_with_replicas_keeps_the_contract(engine: Cluster, kind: Any) -> None:
    """Each key waits for the replica of its own master."""
    store_contract(lambda: kind.open(engine.url, prefix=f"of-{kind.__name__}", wait_replicas=1))


def test_a_master_under_sentinel_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    """In both colours, and for commands. The parameters of the URL say for how many replicas to wait."""
    with Sentinel() as sentinel:
        url = f"{sentinel.url}?wait_replicas=1&wait_seconds=2"
        store_contract(lambda: RedisStore.open(url))
        store_contract(lambda: AsyncRedisStore.open(url))
        assert main(["doctor", "--store", url]) == 0
        assert sentinel.asked(sentinel.master(), "INFO", "commandstats")["cmdstat_wait"]["calls"] > 50
    capsys.readouterr()


def hosts_of(address: str) -> str:
    """The URL of a database with two hosts: nothing listens on the first one."""
    place, _, name = address.partition("://")[2].partition("/")
    user, _, host = place.rpartition("@")
    return f"postgresql://{user}@127.0.0.1:1,{host}/{name}"


def test_several_hosts_of_postgresql() -> None:
    """The first one is away: the stores, and the commands, use the one that takes writes."""
    with postgres_database() as address:
        url = hosts_of(address)
        with PostgresStore.open(url) as store:
            version = store.save("ada", b"1", expected=None)

        async def saved() -> Any:
            async with AsyncPostgresStore.open(url) as awaited, opened_async_store(url) as served:
                await awaited.save("ada", b"2", expected=version)
                return await served.load("ada")

        assert asyncio.run(saved()).blob == b"2"
        with opened_store(url) as opened:
            assert opened.load("ada").blob == b"2"
