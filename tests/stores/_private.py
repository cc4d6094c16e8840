"""Servers of the tests' own, on free ports of this machine: they can be killed in the middle of things.

PostgreSQL refuses to run as root. Then it is run as the user `postgres`, in a folder that this user can read.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

_READY_WITHIN = 60.0
_NEVER = Event()


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    """Ask again and again until it is so."""
    for _ in range(int(_READY_WITHIN / 0.05)):
        if is_so():
            return
        _NEVER.wait(0.05)
    raise AssertionError(f"after {_READY_WITHIN:.0f} seconds still not: {what}")


def free_port() -> int:
    """A port that nobody has, nor a cluster's second port, 10,000 higher.

    Both are below those that Linux gives to connections, from 32,768 on: one of these may be taken before the
    server has started.
    """
    while True:
        port = 10_000 + secrets.randbelow(12_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            socket.create_server(("127.0.0.1", port + 10_000)).close()
            return port


class Server:
    """A server process that can be killed and started again with what is on its disk."""

    def __init__(
        self, command: list[str], port: int, *, user: str | None, log: Path, kill: signal.Signals
    ) -> None:
        self.port = port
        self._command = command
        self._user = user
        self._log = log
        self._kill = kill
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                user=self._user,
                extra_groups=[] if self._user else None,
            )
        wait_for(
            self._takes_connections, f"a server on port {self.port}; see {self._log.read_text()[-2_000:]}"
        )

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.send_signal(self._kill)
            self._process.wait(_READY_WITHIN)
            self._process = None

    def _takes_connections(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5.0):
            return True
        return False


def _program(name: str, *folders: Path) -> str:
    found = shutil.which(name) or next((str(f / name) for f in folders if (f / name).exists()), None)
    if found is None:
        pytest.skip(f"no {name}: install it, or put it on the PATH")
    return found


@contextmanager
def private_postgres() -> Iterator[Server]:
    """A PostgreSQL server, empty, that trusts everybody on this machine."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb, postgres = _program("initdb", *folders), _program("postgres", *folders)
    user: str | None = None
    folder = tempfile.mkdtemp(prefix="goaitools-pg-", dir="/tmp")
    try:
        if os.getuid() == 0:
            import pwd  # not at the top: Windows has none, and reads this file

            user = "postgres"
            try:
                owner = pwd.getpwnam(user)
            except KeyError:
                pytest.skip(
                    "no user postgres, and PostgreSQL does not run as root: run the tests as another user"
                )
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data = f"{folder}/data"
        subprocess.run(
            [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            user=user,
            extra_groups=[] if user else None,
            cwd=folder,
        )
        port = free_port()
        command = [
            postgres,
            "-D",
            data,
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-k",
            "",
            "-c",
            "shared_buffers=16MB",
        ]
        log = Path(folder) / "log"
        server = Server(command, port, user=user, log=log, kill=signal.SIGQUIT)
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def private_redis(folder: Path, *options: str, program: str = "redis-server") -> Iterator[Server]:
    """A Redis server, empty, that writes each change to its disk before it answers."""
    program, port = _program(program), free_port()
    data = folder / f"redis-{port}"
    data.mkdir()
    always = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data), *always, *options]
    server = Server(command, port, user=None, log=data / "log", kill=signal.SIGKILL)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def private_redis_cluster(
    folder: Path, nodes: int = 2, made: list[Server] | None = None
) -> Iterator[list[int]]:
    """A Redis cluster; gives the ports of its nodes, each of which holds a part of all slots. `made`: gets
    the nodes."""
    import redis

    with ExitStack() as stack:
        servers = [
            stack.enter_context(private_redis(folder, "--cluster-enabled", "yes")) for _ in range(nodes)
        ]
        if made is not None:
            made += servers
        ports = [server.port for server in servers]
        clients: list[Any] = [stack.enter_context(redis.Redis(port=port)) for port in ports]
        bounds = [16_384 * number // nodes for number in range(nodes + 1)]
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0], ports[0] + 10_000)

        def is_whole() -> bool:
            return all(client.cluster("info")["cluster_state"] == "ok" for client in clients)

        wait_for(is_whole, "the cluster's nodes know each other")
        yield ports


@contextmanager
def private_pgbouncer(url: str, mode: str = "transaction", servers: int = 3) -> Iterator[str]:
    """PgBouncer in front of a database, with so many connections to it; gives the URL by way of it.

    The test that uses it needs a PgBouncer before 1.21: later ones keep track of prepared statements.
    """
    import sqlalchemy

    program = _program("pgbouncer", Path("/usr/sbin"))
    told = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    version = tuple(int(number) for number in told.split()[1].split(".")[:2])
    if version >= (1, 21):
        pytest.skip("PgBouncer is 1.21 or newer here, and keeps prepared statements: an older one is tested")
    at, port = sqlalchemy.make_url(url), free_port()
    folder = tempfile.mkdtemp(prefix="goaitools-pgbouncer-", dir="/tmp")
    try:
        user = "postgres" if os.getuid() == 0 else None
        if user is not None:
            import pwd

            owner = pwd.getpwnam(user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"* = host={at.host} port={at.port or 5432} user={at.username}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {servers}\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        settings.chmod(0o644)
        log = Path(folder) / "log"
        server = Server([program, str(settings)], port, user=user, log=log, kill=signal.SIGINT)
        server.start()
        try:
            yield at.set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
