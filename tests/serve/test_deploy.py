"""The files of examples/deploy/ run: both servers, their end while a stream runs, and nginx before them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from goaitools_py import Chat
from goaitools_py.serve import ServeLimits
from goaitools_py.sim import Fault, Reply, SimServer
from goaitools_py.stores import PostgresStore
from tests.stores._places import postgres_database
from tests.stores._private import _program, free_port, private_pgbouncer, private_redis, wait_for

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
ROOT = DEPLOY.parents[1]
SERVERS = ["uvicorn", "gunicorn"]
GOOD = (0, -signal.SIGTERM)
"""Exit codes of a good end: uvicorn passes the signal on at its end. systemd takes both as good."""

pytestmark = [pytest.mark.heavy, pytest.mark.service]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_database() as url:
        plain = re.sub(r"^postgresql\+\w+:", "postgresql:", url)
        with PostgresStore.open(plain) as store:
            store.make_tables()
        yield plain


class Running:
    """A server of the folder, and its model."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, sim: SimServer, log: Path) -> None:
        self.process, self.port, self.sim, self.log = process, port, sim, log
        self.gate = threading.Event()
        sim.push(Fault.hold(after=2, gate=self.gate, reply=Reply.text("Many words come here.")))

    def stop(self) -> int:
        """Wait until the server has stopped; give its exit code."""
        return self.process.wait(60)


@contextmanager
def served(kind: str, database: str, folder: Path, **env: str) -> Iterator[Running]:
    """Run a server as its file says, on a free port, with one worker."""
    port, log = free_port(), folder / f"{kind}.log"
    token = hashlib.sha256(b"s-1").hexdigest()
    command = [str(DEPLOY / "uvicorn.sh")]
    if kind == "gunicorn":
        pytest.importorskip("gunicorn")
        command = ["gunicorn", "-c", str(DEPLOY / "gunicorn.conf.py"), "--no-control-socket", "app:app"]
    # The programs stand beside the interpreter; here the modules are run in their place.
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in SERVERS:
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
        (programs / name).chmod(0o755)
    with SimServer() as sim, log.open("wb") as out:
        chosen = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{DEPLOY}",
            "OPENAI_BASE_URL": sim.base_url,
            "OPENAI_API_KEY": "any",
            "GOAITOOLS_MODEL": "openai:m",
            "APP_DATABASE": database,
            "APP_USERS": f"{token}=ada",
            "APP_PORT": str(port),
            "APP_BIND": f"127.0.0.1:{port}",
            "APP_WORKERS": "1",
            **env,
        }
        process = subprocess.Popen(command, env=chosen, cwd=DEPLOY, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_for(lambda: is_ready(port, process, log), "the server is ready")
            yield Running(process, port, sim, log)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def is_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-3_000:]
    try:
        found = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
    except httpx.HTTPError:
        return False
    return found.json() == {"status": "ready"}


def client(port: int) -> httpx.Client:
    headers = {"authorization": "Bearer s-1", "accept": "text/event-stream"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60)


def message(id: str, text: str = "Hello") -> dict[str, str]:
    return {"text": text, "turn_id": id}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_stops_lets_a_stream_end(kind: str, database: str, tmp_path: Path) -> None:
    """The client has the last event, the reply is stored, and the exit code is a good one."""
    path = f"/conversations/{kind}/turns"
    with served(kind, database, tmp_path) as server, client(server.port) as http:
        with http.stream("POST", path, json=message("m1")) as stream:
            seen = ""
            for piece in stream.iter_text():
                seen += piece
                if "event: text" in seen and not server.gate.is_set():
                    server.process.send_signal(signal.SIGTERM)
                    wait_for(lambda: not takes_connections(server.port), "the server listens no more")
                    server.gate.set()
        assert "event: done" in seen
        assert server.stop() in GOOD, server.log.read_text()[-3_000:]
    assert texts(database, f"ada/{kind}") == ["Hello", "Many words come here."]


def takes_connections(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
    except httpx.HTTPError:
        return False
    return True


def texts(database: str, key: str) -> list[str]:
    """The texts of a stored conversation."""
    with PostgresStore.open(database) as store:
        snapshot = Chat("sim").conversation(store, key, parts="store").snapshot()
    assert snapshot is not None
    return [one.text for turn in snapshot.history.turns for one in turn.messages]


def test_a_turn_that_is_longer_than_the_streams_may_take_is_stored(database: str, tmp_path: Path) -> None:
    """The stream is cut. The turn goes on for `grace_seconds`, and the next process answers the message that
    comes again, without asking the model."""
    with served("uvicorn", database, tmp_path, APP_STREAM_SECONDS="1") as server, client(server.port) as http:
        with http.stream("POST", "/conversations/long/turns", json=message("m1")) as stream:
            seen = ""
            with suppress(httpx.HTTPError):
                for piece in stream.iter_text():
                    seen += piece
                    if "event: text" in seen:
                        server.process.send_signal(signal.SIGTERM)
        assert "event: done" not in seen
        server.gate.set()
        assert server.stop() in GOOD, server.log.read_text()[-3_000:]
    assert texts(database, "ada/long") == ["Hello", "Many words come here."]
    with served("uvicorn", database, tmp_path) as server, client(server.port) as http:
        again = http.post("/conversations/long/turns", json=message("m1")).text
        assert "Many words come here." in again
        assert server.sim.requests == []


def test_nginx_passes_events_as_they_come(database: str, tmp_path: Path) -> None:
    """The first words are there while the model still writes. Probes do not pass."""
    nginx = _program("nginx", Path("/usr/sbin"))
    with served("uvicorn", database, tmp_path) as server:
        port = free_port()
        text = (DEPLOY / "nginx.conf").read_text()
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace(":8080", f":{port}")
        places = "".join(
            f"{name}_temp_path {tmp_path}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        settings = tmp_path / "nginx.conf"
        settings.write_text(
            f"daemon off;\nuser root;\npid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{places}{text}}}\n"
        )
        command = [nginx, "-e", "stderr", "-p", str(tmp_path), "-c", str(settings)]
        before = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_for(lambda: takes_connections(port), "nginx listens")
            with client(port) as http:
                assert {http.get(path).status_code for path in ("/healthz", "/readyz")} == {404}
                with http.stream("POST", "/conversations/nginx/turns", json=message("m1")) as stream:
                    seen = ""
                    for piece in stream.iter_text():
                        seen += piece
                        if "event: text" in seen:
                            server.gate.set()
                assert "event: done" in seen
        finally:
            before.terminate()
            before.wait(30)


def test_turns_are_stored_by_way_of_pgbouncer(database: str, tmp_path: Path) -> None:
    """In transaction mode. Nothing is set for it."""
    with (
        private_pgbouncer(database) as url,
        served("uvicorn", url, tmp_path) as server,
        client(server.port) as http,
    ):
        server.gate.set()
        for number in range(3):
            assert "event: done" in http.post("/conversations/pooled/turns", json=message(f"m{number}")).text
    assert len(texts(database, "ada/pooled")) == 6


def test_a_rolling_deploy_loses_no_stream(database: str, tmp_path: Path) -> None:
    """The old process ends while its turn runs. A page that follows at the new one has all of it."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    with (
        private_redis(tmp_path) as redis,
        served("uvicorn", database, tmp_path / "old", APP_REDIS=f"redis://127.0.0.1:{redis.port}") as old,
        served("uvicorn", database, tmp_path / "new", APP_REDIS=f"redis://127.0.0.1:{redis.port}") as new,
        client(old.port) as first,
        client(new.port) as second,
    ):
        with first.stream("POST", "/conversations/rolling/turns", json=message("m1")) as begun:
            pieces = begun.iter_text()
            next(pieces)
            with second.stream("GET", "/conversations/rolling/turns/current") as followed:
                seen = ""
                for piece in followed.iter_text():
                    seen += piece
                    if "event: text" in seen and not old.gate.is_set():
                        old.process.send_signal(signal.SIGTERM)
                        old.gate.set()
            assert "event: done" in seen
            assert "event: done" in "".join(pieces)
        assert old.stop() in GOOD
        assert "Many words come here." in second.post("/conversations/rolling/turns", json=message("m1")).text
        assert new.sim.requests == []


def test_a_backup_is_restored(database: str, tmp_path: Path) -> None:
    """With the lines of the page. The conversation goes on behind the dump."""
    page = (ROOT / "docs" / "operate.md").read_text()
    dump, restore = re.findall(r"^pg_\w+ .*$", page, re.M)
    shell = {**os.environ, "URL": database}
    with PostgresStore.open(database) as store, Chat("sim") as chat:
        conversation = chat.conversation(store, "ada/backup", parts="store")
        conversation.send("My name is Ada.", turn_id="m1")
        _program("pg_dump")
        subprocess.run(dump, shell=True, check=True, cwd=tmp_path, env=shell)
        conversation.send("This is lost.", turn_id="m2")
        subprocess.run(restore, shell=True, check=True, cwd=tmp_path, env=shell)
        assert conversation.send("My name is Ada.", turn_id="m1").duplicate
        assert "Ada" in conversation.send("What is my name?", turn_id="m3").text
    assert len(texts(database, "ada/backup")) == 4


# ------------------------------------------------------------------- what is not run is read


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """With this folder in the place of /srv/goaitools."""
    analyze = _program("systemd-analyze")
    unit = tmp_path / "goaitools.service"
    text = (DEPLOY / "goaitools.service").read_text()
    unit.write_text(text.replace("/srv/goaitools/uvicorn.sh", str(DEPLOY / "uvicorn.sh")))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True)
    assert [line for line in done.stderr.splitlines() if "goaitools" in line] == []


def test_the_times_of_the_files_fit_together() -> None:
    """Who stops a process waits longer than it needs; who has a connection idle closes it first."""
    texts = {path.name: path.read_text() for path in DEPLOY.iterdir() if path.is_file()}

    def number(file: str, pattern: str) -> int:
        found = re.findall(pattern, texts[file])
        assert len(found) == 1, (file, pattern, found)
        return int(found[0])

    grace = number("app.py", r"grace_seconds=(\d+)")
    needed = number("uvicorn.sh", r"APP_STREAM_SECONDS:-(\d+)") + 2 * grace
    assert number("goaitools.service", r"TimeoutStopSec=(\d+)") >= needed + 10
    assert number("Containerfile", r"--stop-timeout (\d+)") >= needed + 10
    assert number("gunicorn.conf.py", r"graceful_timeout = (\d+)") >= 2 * grace
    idle = number("nginx.conf", r"keepalive_timeout (\d+)s")
    for file, pattern in (("uvicorn.sh", r"keep-alive (\d+)"), ("gunicorn.conf.py", r"keepalive = (\d+)")):
        assert number(file, pattern) > idle
    assert number("nginx.conf", r"proxy_read_timeout (\d+)s") > 2 * ServeLimits().keep_alive_seconds
    assert number("nginx.conf", r"body_size (\d+)m") * 10**6 >= ServeLimits().upload_bytes


def test_the_container_has_the_files_that_it_copies() -> None:
    """No container is built here: this machine has no daemon for it."""
    text = (DEPLOY / "Containerfile").read_text()
    copied = re.findall(r"^COPY (.+) \./$", text, re.M)[0].split()
    assert all((DEPLOY / name).is_file() for name in copied)
    assert os.access(DEPLOY / "uvicorn.sh", os.X_OK)
    check = json.loads(re.findall(r"^HEALTHCHECK .*CMD (\[.*\])$", text, re.M)[0])
    compile(check[2], "HEALTHCHECK", "exec")
