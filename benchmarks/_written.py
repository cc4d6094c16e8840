"""Databases of a benchmark's own, and meters of the bytes that they write.

Owns: how a server is started on a free port and ended, and what counts as written. Must never know: who
writes.

A server that others use writes for them, too. So each server here is empty, and has one user. PostgreSQL
refuses to run as root; then it runs as the user `postgres`.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["AbsentError", "Cost", "Database", "database"]

_READY_WITHIN = 60.0
_FOLDERS = (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/sbin"))


class AbsentError(Exception):
    """The server's program is not installed."""


class Cost(NamedTuple):
    """Bytes that the database has written, and microseconds of CPU of the server's processes.

    `images`: the bytes among `written` that are images of whole pages. Only "PostgreSQL as installed" has
    them.
    """

    written: int
    server: float
    images: int = 0


def _unknown() -> int:
    return 0


class Database(NamedTuple):
    """A database and its meter.

    Attributes:
        url: For SQLAlchemy, or of Redis; the path of a file of SQLite.
        cost: Calls a function, and gives the cost of the call to the database.
        stored: Counts the bytes that all data take now, on the disk or in memory. 0 where it is not measured.
        commands: Counts the statements or scripts so far. 0 where it is not measured.
    """

    url: str
    cost: Callable[[Callable[[], object]], Cost]
    stored: Callable[[], int] = _unknown
    commands: Callable[[], int] = _unknown


@contextmanager
def database(name: str) -> Iterator[Database]:
    """An empty database of an engine: "SQLite", "PostgreSQL", "MariaDB" or "Redis"; or "PostgreSQL as
    installed", with the settings that it comes with, or "Redis Cluster", three masters. Raises
    `AbsentError`."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="goaitools-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield stack.enter_context(_ENGINES[name](folder))


# --------------------------------------------------------------------------------------- the engines


@contextmanager
def _sqlite(folder: Path) -> Iterator[Database]:
    """What is written is the write-ahead log. It is emptied before each call."""
    path = folder / "bench.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as beside:
        beside.execute("PRAGMA journal_mode=WAL").fetchall()
        beside.execute("SELECT 1 FROM sqlite_master").fetchall()  # else its first checkpoint fails as busy

        def cost(act: Callable[[], object]) -> Cost:
            [(busy, _, _)] = beside.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert not busy
            act()
            return Cost(Path(f"{path}-wal").stat().st_size, 0.0)

        yield Database(str(path), cost)


_FOR_ONE_TURN = ("full_page_writes=off", "autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=8GB")
_AS_INSTALLED = ("wal_keep_size=16GB",)  # so that the log can be read afterwards


@contextmanager
def _postgres(folder: Path, settings: Sequence[str] = _FOR_ONE_TURN) -> Iterator[Database]:
    """What is written is the write-ahead log. As installed, it includes the images of whole pages, one for
    each page that is changed for the first time after a checkpoint; a call begins with one."""
    import psycopg

    user = _owner("postgres", folder)
    data = folder / "data"
    made = [_program("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    _run([*made, "--locale=C", "--no-sync"], user, folder)
    port = _free_port()
    options = ["-p", str(port), "-h", "127.0.0.1", "-k", ""]
    for setting in settings:
        options += ["-c", setting]
    command = [_program("postgres"), "-D", str(data), *options]
    with _running(command, port, user, folder, signal.SIGINT) as server:
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        until = time.monotonic() + _READY_WITHIN
        while True:  # it takes connections before it can serve them
            try:
                beside = psycopg.connect(url, autocommit=True)
                break
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        with beside:

            def asked(question: str) -> Any:
                row = beside.execute(question.encode()).fetchone()
                assert row is not None
                return row[0]

            def total() -> int:
                return int(asked("SELECT pg_current_wal_insert_lsn() - '0/0'"))

            def with_images(act: Callable[[], object]) -> Cost:
                beside.execute("CHECKPOINT")
                first = asked("SELECT pg_current_wal_insert_lsn()")
                found = _difference(total, [server])(act)
                last = asked("SELECT pg_current_wal_flush_lsn()")
                return found._replace(images=_images(data, first, last))

            yield Database(
                url,
                with_images if settings is _AS_INSTALLED else _difference(total, [server]),
                lambda: int(asked("SELECT pg_database_size('postgres')")),
                # Each step of the store is a statement, and each statement is a transaction.
                lambda: int(asked("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'")),
            )


def _images(data: Path, first: str, last: str) -> int:
    """Count the bytes of page images in a part of PostgreSQL's log."""
    command = [_program("pg_waldump"), "-z", "-p", str(data / "pg_wal"), "-s", first, "-e", last]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    line = next(line for line in told.splitlines() if line.startswith("Total"))
    # Total, the number of records, their bytes with the share, the bytes of the images with the share, …
    return int(re.sub(r"\[.*?\]", " ", line).split()[3])


@contextmanager
def _mariadb(folder: Path) -> Iterator[Database]:
    """What is written is InnoDB's redo log."""
    import pymysql

    user = "root" if os.getuid() == 0 else None
    data, port = folder / "data", _free_port()
    as_user = [f"--user={user}"] if user else []
    install = [_program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", *as_user]
    _run([*install, "--auth-root-authentication-method=normal", "--skip-test-db"], None, folder)
    command = [_program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}", *as_user]
    command += ["--bind-address=127.0.0.1", f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}"]
    with (
        _running(command, port, None, folder, signal.SIGTERM) as server,
        closing(pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)) as beside,
    ):
        cursor: Any = beside.cursor()
        cursor.execute("CREATE DATABASE bench")

        def total() -> int:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'")
            return int(cursor.fetchone()[1])

        url = f"mysql+pymysql://root@127.0.0.1:{port}/bench?read_timeout=30"
        yield Database(url, _difference(total, [server]))


@contextmanager
def _redis(folder: Path) -> Iterator[Database]:
    """What is written is the append-only file."""
    # Else a write may wait for the sync of another turn's.
    with _redis_server(folder, "--appendfsync", "no") as (port, server, client):
        yield _redis_database(f"redis://127.0.0.1:{port}/0", [client], [server])


@contextmanager
def _redis_cluster(folder: Path) -> Iterator[Database]:
    """Three masters without replicas; their disks are synced each second, as it is the default."""
    with ExitStack() as stack:
        nodes = []
        for number in range(3):
            own = folder / str(number)
            own.mkdir()
            bus = _free_port()
            started = _redis_server(own, "--cluster-enabled", "yes", "--cluster-port", str(bus))
            nodes.append((*stack.enter_context(started), bus))
        for number, (_, _, client, _) in enumerate(nodes):
            bounds = number * 16_384 // 3, (number + 1) * 16_384 // 3 - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", *bounds)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER MEET", "127.0.0.1", nodes[0][0], nodes[0][3])
        until = time.monotonic() + _READY_WITHIN
        while not all(_is_whole(client) for _, _, client, _ in nodes):
            if time.monotonic() > until:
                raise AbsentError("the nodes of the cluster do not find each other")
            time.sleep(0.05)
        hosts = ",".join(f"127.0.0.1:{port}" for port, *_ in nodes)
        clients, servers = [node[2] for node in nodes], [node[1] for node in nodes]
        yield _redis_database(f"redis+cluster://{hosts}", clients, servers)


def _is_whole(client: Any) -> bool:
    told = client.cluster("info")
    return told["cluster_state"] == "ok" and int(told["cluster_known_nodes"]) == 3


@contextmanager
def _redis_server(folder: Path, *options: str) -> Iterator[tuple[int, int, Any]]:
    """A server's port, the number of its process, and a client."""
    import redis

    port = _free_port()
    command = [_program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", *options]
    with _running(command, port, None, folder, signal.SIGTERM) as server, redis.Redis(port=port) as client:
        yield port, server, client


def _redis_database(url: str, clients: Sequence[Any], servers: Sequence[int]) -> Database:
    def sum_of(section: str, name: str) -> int:
        return sum(int(client.info(section)[name]) for client in clients)

    def scripts() -> int:
        told = [client.info("commandstats") for client in clients]
        names = ("cmdstat_eval", "cmdstat_evalsha")
        return sum(each[name]["calls"] for each in told for name in names if name in each)

    cost = _difference(lambda: sum_of("persistence", "aof_current_size"), servers)
    return Database(url, cost, lambda: sum_of("memory", "used_memory"), scripts)


def _difference(total: Callable[[], int], servers: Sequence[int]) -> Callable[[Callable[[], object]], Cost]:
    """Compare before and after. `total`: all bytes so far; `servers`: the numbers of the processes."""

    def cost(act: Callable[[], object]) -> Cost:
        before, began = total(), sum(map(_nanoseconds, servers))
        act()
        took = sum(map(_nanoseconds, servers)) - began
        return Cost(total() - before, took / 1000)

    return cost


def _nanoseconds(server: int) -> int:
    """CPU time of all threads of a process and its children, where Linux counts it; else 0."""
    spent = 0
    with suppress(OSError):  # of the children that have ended, in ticks: a connection's process, say
        ended = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[13:15]
        spent += sum(map(int, ended)) * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))
    for task in Path(f"/proc/{server}/task").glob("*"):
        with suppress(OSError, ValueError):  # a thread that ends meanwhile
            spent += int((task / "schedstat").read_text().split()[0])
            spent += sum(map(_nanoseconds, map(int, (task / "children").read_text().split())))
    return spent


_ENGINES = {
    "PostgreSQL": _postgres,
    "PostgreSQL as installed": partial(_postgres, settings=_AS_INSTALLED),
    "Redis": _redis,
    "Redis Cluster": _redis_cluster,
    "MariaDB": _mariadb,
    "SQLite": _sqlite,
}


# ---------------------------------------------------------------------------------------- processes


def _program(name: str) -> str:
    found = shutil.which(name) or next((str(f / name) for f in _FOLDERS if (f / name).exists()), None)
    if found is None:
        raise AbsentError(name)
    return found


def _owner(name: str, folder: Path) -> str | None:
    """The user who runs a server that root may not run. The folder is that user's then."""
    if os.getuid() != 0:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise AbsentError(f"a user {name}, as root cannot run the server") from None
    os.chown(folder, found.pw_uid, found.pw_gid)
    return name


def _run(command: list[str], user: str | None, folder: Path) -> None:
    groups: Any = [] if user else None
    subprocess.run(command, check=True, capture_output=True, user=user, extra_groups=groups, cwd=folder)


@contextmanager
def _running(
    command: list[str], port: int, user: str | None, folder: Path, end: signal.Signals
) -> Iterator[int]:
    """A server that takes connections; gives the number of its process."""
    groups: Any = [] if user else None
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, user=user, extra_groups=groups, cwd=folder
        )
    try:
        until = time.monotonic() + _READY_WITHIN
        while not _takes_connections(port):
            if process.poll() is not None or time.monotonic() > until:
                raise AbsentError(f"{command[0]}: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(end)
        process.wait(_READY_WITHIN)


def _takes_connections(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5.0):
        return True
    return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
