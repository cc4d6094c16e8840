"""Engines with replicas on this machine, and their faults: PostgreSQL, PgBouncer, Redis Cluster, Sentinel.

Owns: how each engine is set up, and who takes over after a fault. Must never know: a store, or a turn.

An engine is a context manager. `url` opens a store in it. `fault` makes a fault, and gives the seconds until
all nodes were back. PostgreSQL has no manager of its own, so this file promotes the standby.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from types import TracebackType
from typing import Any, Self

from ..stores._private import free_port
from .nodes import POSTGRES_USER, Node, program, until, workplace

__all__ = ["ENGINES", "FAULTS", "Engine"]

FAULTS = ("kill", "failover", "restart", "pause")
"""kill: kill -9 of the primary. failover: a planned one. restart: an orderly one. pause: for 15 seconds."""

PAUSE = 15.0
NOTICED = 1.0
"""Seconds until the manager of PostgreSQL promotes the standby after its primary was killed."""


class Engine:
    """A set of servers. Subclasses start them, and make the faults."""

    name = ""
    settings = ""
    """The settings that matter, for the table in the docs."""
    url = ""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.close()

    def start(self) -> None:
        """Start all servers, and wait until replication runs."""
        raise NotImplementedError

    def node(self, folder: Path, command: Callable[[int], list[str]], user: str | None = None) -> Node:
        """A server that ends with the engine."""
        node = Node(folder, command, user=user)
        self.stack.callback(node.close)
        return node

    def fault(self, kind: str) -> float:
        """Make a fault, and wait until all nodes are back and replication runs. Gives the seconds."""
        began = monotonic()
        getattr(self, kind)()
        until(self.is_whole, f"{self.name} is whole again after {kind}", 120.0)
        return monotonic() - began

    def is_whole(self) -> bool:
        """True if each node is up, and each replica follows its primary."""
        raise NotImplementedError


def waited(seconds: float) -> None:
    """Let some seconds pass."""
    end = monotonic() + seconds
    until(lambda: monotonic() >= end, "the time has passed", seconds + 60.0)


class Postgres(Engine):
    """A primary and a synchronous standby."""

    name = "postgres"
    settings = "synchronous_commit=on, synchronous_standby_names='*'"

    def start(self) -> None:
        folders = sorted(Path("/usr/lib/postgresql").glob("*/bin")) or [Path(program("initdb")).parent]
        self.bin = folders[-1]
        place = self.stack.enter_context(workplace(POSTGRES_USER))
        self.primary, self.standby = (
            self.node(place / name, self._command(place / name), POSTGRES_USER) for name in ("one", "two")
        )
        one = self.primary
        how = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        one.run(str(self.bin / "initdb"), "-D", str(one.folder), *how)
        one.start()
        until(lambda: self.asked(one, "SELECT 1"), "the primary answers")
        self._follow()
        self.asked(one, "CREATE DATABASE app")
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in (self.primary, self.standby))
        self.url = f"postgresql://postgres@{hosts}/app?target_session_attrs=read-write"

    def _command(self, folder: Path) -> Callable[[int], list[str]]:
        settings = ("shared_buffers=16MB", "max_connections=60", "unix_socket_directories=", "hot_standby=on")
        options = [text for each in settings for text in ("-c", each)]
        return lambda port: [
            str(self.bin / "postgres"), "-D", str(folder), "-p", str(port), "-h", "127.0.0.1", *options,
        ]  # fmt: skip

    def asked(self, node: Node, statement: str) -> list[Any]:
        """Run a statement on one node."""
        import psycopg

        address = f"postgresql://postgres@127.0.0.1:{node.port}/postgres"
        with psycopg.connect(address, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _follow(self) -> None:
        """Make the second node a new synchronous standby of the first."""
        two = self.standby
        two.run("rm", "-rf", str(two.folder))
        two.run(
            str(self.bin / "pg_basebackup"), "-D", str(two.folder), "-R", "-X", "stream", "-c", "fast",
            "-d", f"postgresql://postgres@127.0.0.1:{self.primary.port}/?application_name=standby",
        )  # fmt: skip
        # A node that is promoted has no standby yet, so it must not wait for one.
        with (two.folder / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")
        two.start()
        until(self._is_streaming, "the standby follows")
        self.asked(self.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.asked(self.primary, "SELECT pg_reload_conf()")
        until(self.is_whole, "the standby is synchronous")

    def _is_streaming(self) -> bool:
        return self.asked(self.primary, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'") != []

    def is_whole(self) -> bool:
        return self.asked(self.primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'") != []

    def promote(self) -> None:
        """Make the standby the primary, and the former primary, which is down, its standby."""
        self.asked(self.standby, "SELECT pg_promote()")
        self.primary, self.standby = self.standby, self.primary
        self._follow()

    def kill(self) -> None:
        self.primary.kill()
        waited(NOTICED)
        self.promote()

    def failover(self) -> None:
        self.primary.stop(signal.SIGINT)  # a fast shutdown: it waits until the standby has everything
        self.promote()

    def restart(self) -> None:
        self.primary.stop(signal.SIGINT)
        self.primary.start()

    def pause(self) -> None:
        self.primary.pause()
        waited(PAUSE)
        self.primary.go_on()


class PgBouncer(Postgres):
    """The same, with PgBouncer in transaction mode in front. Its manager tells it the new primary."""

    name = "pgbouncer"
    settings = "PgBouncer: pool_mode=transaction; PostgreSQL as above"

    def start(self) -> None:
        super().start()
        place = self.stack.enter_context(workplace(POSTGRES_USER))
        self._settings = place / "pgbouncer.ini"
        self._port = free_port()
        self._tell()
        path = [program("pgbouncer", Path("/usr/sbin")), str(self._settings)]
        self.pooler = self.node(place / "pooler", lambda _: path, POSTGRES_USER)
        self.pooler.start()
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/app"

    def _tell(self) -> None:
        self._settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self.primary.port} user=postgres\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 12\nserver_login_retry = 1\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        self._settings.chmod(0o644)

    def promote(self) -> None:
        self.asked(self.standby, "SELECT pg_promote()")
        self.primary, self.standby = self.standby, self.primary
        self._tell()
        self.pooler.stop(signal.SIGINT)
        self.pooler.start()
        self._follow()


class _Redis(Engine):
    """What Cluster and Sentinel share: nodes that write each change to their disks before they answer."""

    settings = "appendonly yes, appendfsync always"
    password = ""

    def redis(self, place: Path, *options: str) -> Node:
        """A server of Redis."""
        path = program("redis-server")
        folder = Path(mkdtemp(prefix="node-", dir=place))
        always = (
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--save",
            "",
            "--repl-diskless-sync-delay",
            "0",
        )

        def command(port: int) -> list[str]:
            where = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder))
            return [path, *where, *always, *options]

        node = self.node(folder, command)
        node.start()
        until(lambda: self.asked(node, "PING"), "a node of Redis answers")
        return node

    def asked(self, node: Node, *command: Any) -> Any:
        """Send a command to one node."""
        import redis

        with redis.Redis(port=node.port, socket_timeout=5.0, decode_responses=True) as client:
            return client.execute_command(*command)

    def replicas_of(self, node: Node) -> int:
        """How many replicas follow a node, with their links up. -1: it is no master."""
        found = self.asked(node, "INFO", "replication")
        if found["role"] != "master":
            return -1
        states = [found[f"slave{number}"]["state"] for number in range(found["connected_slaves"])]
        return states.count("online")

    def master(self) -> Node:
        """The node that the faults hit."""
        raise NotImplementedError

    def kill(self) -> None:
        hit = self.master()
        hit.kill()
        until(self._is_replaced(hit), "a replica has taken over")
        hit.start()

    def restart(self) -> None:
        hit = self.master()
        hit.stop()
        hit.start()

    def pause(self) -> None:
        hit = self.master()
        hit.pause()
        waited(PAUSE)
        hit.go_on()

    def _is_replaced(self, former: Node) -> Callable[[], bool]:
        return lambda: self.master() is not former


class Sentinel(_Redis):
    """A master with one replica, and three sentinels."""

    name = "sentinel"
    replicas = 1

    def start(self) -> None:
        place = self.stack.enter_context(workplace())
        self.nodes = [self.redis(place) for _ in range(1 + self.replicas)]
        for node in self.nodes[1:]:
            self.asked(node, "REPLICAOF", "127.0.0.1", self.nodes[0].port)
        until(self.is_whole_at_first, "the replicas follow")
        self.sentinels = [self._sentinel(place, number) for number in range(3)]
        until(self._all_know, "the sentinels know each other", 60.0)
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/main/0"

    def is_whole_at_first(self) -> bool:
        return self.replicas_of(self.nodes[0]) == self.replicas

    def _sentinel(self, place: Path, number: int) -> Node:
        path, file = program("redis-server"), place / f"sentinel-{number}.conf"
        node = self.node(place / f"sentinel-{number}", lambda port: [path, str(file), "--sentinel"])
        node.folder.mkdir()
        file.write_text(
            f"port {node.port}\nbind 127.0.0.1\ndir {node.folder}\n"
            f"sentinel monitor main 127.0.0.1 {self.nodes[0].port} 2\n"
            "sentinel down-after-milliseconds main 3000\nsentinel failover-timeout main 10000\n"
        )
        node.start()
        until(lambda: self.asked(node, "PING"), "a sentinel answers")
        return node

    def _all_know(self) -> bool:
        found = [self.asked(node, "SENTINEL", "MASTER", "main") for node in self.sentinels]
        return all(
            int(each["num-other-sentinels"]) == 2 and int(each["num-slaves"]) == self.replicas
            for each in found
        )

    def master(self) -> Node:
        _, port = self.asked(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
        return next(node for node in self.nodes if node.port == int(port))

    def failover(self) -> None:
        hit = self.master()
        self.asked(self.sentinels[0], "SENTINEL", "FAILOVER", "main")
        until(self._is_replaced(hit), "a replica has taken over")

    def is_whole(self) -> bool:
        return self.replicas_of(self.master()) == self.replicas and self._all_know()


class Sentinel2(Sentinel):
    """The same with two replicas."""

    name = "sentinel-2"
    replicas = 2


class Cluster(_Redis):
    """Three masters with one replica each. The faults hit one of them."""

    name = "cluster"
    replicas = 1
    settings = "appendonly yes, appendfsync always, cluster-node-timeout 3000"

    def start(self) -> None:
        place = self.stack.enter_context(workplace())
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "3000")
        self.nodes = [self.redis(place, *options) for _ in range(3 + 3 * self.replicas)]
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            if number < 3:
                bounds = number * 16_384 // 3, (number + 1) * 16_384 // 3 - 1
                self.asked(node, "CLUSTER", "ADDSLOTSRANGE", *bounds)
            self.asked(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self.asked(node, "CLUSTER", "MEET", "127.0.0.1", first.port)
        until(lambda: all(self._knows_all(node) for node in self.nodes), "all nodes know each other")
        for number, node in enumerate(self.nodes[3:]):
            its_id = self.asked(self.nodes[number % 3], "CLUSTER", "MYID")
            until(lambda node=node, id=its_id: self.asked(node, "CLUSTER", "REPLICATE", id), "it replicates")  # type: ignore[misc]
        self.hit = first
        until(self.is_whole, "the cluster is whole")
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.url = f"redis+cluster://{hosts}"

    def _knows_all(self, node: Node) -> bool:
        import redis

        with redis.Redis(port=node.port, socket_timeout=5.0) as client:
            return int(client.cluster("info")["cluster_known_nodes"]) == len(self.nodes)

    def _lines(self, node: Node) -> list[list[str]]:
        """A node's view of the cluster: rows of id, address, flags, the id of its master, …"""
        import redis

        with redis.Redis(port=node.port, socket_timeout=5.0) as client:
            client.set_response_callback("CLUSTER NODES", lambda answer, **_: answer)
            return [line.split() for line in client.execute_command("CLUSTER NODES").decode().splitlines()]

    def _at(self, address: str) -> Node:
        return next(node for node in self.nodes if address.startswith(f"127.0.0.1:{node.port}@"))

    def master(self) -> Node:
        """The master of the first slot, wherever it is now, as most nodes see it."""
        seen: Counter[str] = Counter()
        for node in self.nodes:
            with suppress(Exception):
                for _, address, flags, *_, slots in self._lines(node):
                    if "master" in flags and slots.startswith("0-"):
                        seen[address] += 1
        ((address, _),) = seen.most_common(1)
        return self._at(address)

    def failover(self) -> None:
        hit = self.master()
        its_id = self.asked(hit, "CLUSTER", "MYID")
        replica = next(line for line in self._lines(hit) if line[3] == its_id)
        self.asked(self._at(replica[1]), "CLUSTER", "FAILOVER")
        until(self._is_replaced(hit), "a replica has taken over")

    def is_whole(self) -> bool:
        import redis

        found = [self.replicas_of(node) for node in self.nodes]
        for node in self.nodes:
            with redis.Redis(port=node.port, socket_timeout=5.0) as client:
                if client.cluster("info")["cluster_state"] != "ok":
                    return False
        return sorted(found) == [-1] * 3 * self.replicas + [self.replicas] * 3


class Cluster2(Cluster):
    """The same with two replicas each."""

    name = "cluster-2"
    replicas = 2


ENGINES: dict[str, type[Engine]] = {
    kind.name: kind for kind in (Postgres, PgBouncer, Sentinel, Cluster, Sentinel2, Cluster2)
}
