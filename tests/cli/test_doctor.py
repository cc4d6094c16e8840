"""`goaitools doctor`: versions, keys, servers, a store, the clock; never the value of a key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import goaitools_py
from goaitools_py.cli import doctor as checks
from goaitools_py.cli import main
from goaitools_py.cli.store_urls import lacking_limit
from goaitools_py.stores import MemoryStore, SQLiteStore, Stored
from goaitools_py.types.errors import StateConflictError

from ..stores._places import mariadb_database

ROOT = Path(__file__).resolve().parents[2]
SECRET = "sk-Harrogate-4711"
NAMES = (*checks._KEYS, *checks._SETTINGS, "AZURE_OPENAI_ENDPOINT")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Any]:
    """A server on this machine that answers 401; `ahead` seconds off, with what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            self.send_response_only(401)
            self.send_header("Date", format_datetime(datetime.now(UTC) + found.off, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    asked: list[Any] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.off, found.asked = timedelta(), asked  # type: ignore[attr-defined]
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def url_of(server: Any) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    found = json.loads(capsys.readouterr().out)
    by_name = {one["name"]: (one["status"], one["text"]) for one in found["findings"]}
    assert found["problems"] == sum(status == "problem" for status, _ in by_name.values())
    return by_name


def test_it_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """Versions of the package, of Python and of what is needed; nothing is asked without a key."""
    assert main(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert found["goaitools-py"] == ("ok", f"{goaitools_py.__version__}, state format 1")
    assert found["python"][1].startswith(".".join(map(str, sys.version_info[:3])))
    assert found["OPENAI_API_KEY"] == ("note", "not set")
    assert "crypto (" in found["extras"][1]
    assert "no server was asked" in found["clock"][1]
    assert not any(name.startswith(("server", "store")) for name in found)


def test_what_is_missing_is_a_problem_or_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is needed, and an extra."""
    monkeypatch.setattr(checks, "_NEEDED", ("no-such-package",))
    monkeypatch.setattr(checks, "_EXTRAS", {"magic": "no-such-package"})
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "!!  no-such-package" in out
    assert "magic; for example pip install 'goaitools-py[magic]'" in " ".join(out.split())
    assert out.endswith("\n1 problem, marked with !!\n")


def test_a_server_is_asked_without_a_key(
    server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer will do. Neither the key nor the password of a URL is sent on or printed."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", url_of(server))
    monkeypatch.setenv("GOAITOOLS_STORE", f"postgresql+psycopg://ada:{SECRET}@127.0.0.1:1/x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {SECRET}\n")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTPS_PROXY", f"ada:{SECRET}@127.0.0.1:1")

    assert main(["doctor", "--json"]) == 1
    raw = capsys.readouterr()
    assert main(["doctor"]) == 1
    shown = capsys.readouterr()

    found = {one["name"]: (one["status"], one["text"]) for one in json.loads(raw.out)["findings"]}
    assert found["OPENAI_API_KEY"] == ("ok", "set")
    assert found["ANTHROPIC_API_KEY"][0] == "problem"
    assert found["server openai"][0] == "ok"
    assert "(HTTP 401," in found["server openai"][1]
    assert found["server anthropic"][0] == "problem"
    assert "(ConnectError): check network and URL" in found["server anthropic"][1]
    assert found["clock"] == ("ok", found["clock"][1])
    assert found["clock"][1].endswith("as the servers have it")
    assert found["GOAITOOLS_STORE"] == ("ok", "postgresql+psycopg://127.0.0.1:1/x")
    assert found["store"][0] == "problem"
    assert SECRET not in raw.out + raw.err + shown.out + shown.err
    assert SECRET not in str(server.asked)
    assert all(len(line) <= 80 for line in shown.out.splitlines())

    assert main(["doctor", "--offline", "--json"]) == 1
    assert not any(name.startswith("server") for name in findings(capsys))


@pytest.mark.parametrize(("minutes", "words"), [(5, "behind a server"), (-5, "ahead of a server")])
def test_a_wrong_clock_is_a_problem(
    minutes: int,
    words: str,
    server: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seals with max_age and leases need one that is right."""
    server.off = timedelta(minutes=minutes)
    monkeypatch.setenv("OPENAI_BASE_URL", url_of(server))
    assert main(["doctor", "--json"]) == 1
    status, text = findings(capsys)["clock"]
    assert status == "problem"
    assert words in text


def test_a_clock_before_the_release_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a battery."""
    monkeypatch.setattr(checks.time, "time", lambda: 86_400.0)
    assert checks.clock([])[:2] == ("clock", "problem")
    assert checks.clock([0.0]).text.startswith("1970-01-02")


# -------------------------------------------------------------------------------------------- the store


def test_a_store_is_checked_and_left_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Round trip, race, lease, clock, and all of the protocol if asked; no key stays."""
    with SQLiteStore(tmp_path / "chat.db") as store:
        store.save("ada", b"x", expected=None)
        assert main(["doctor", "--store", str(tmp_path / "chat.db"), "--json"]) == 0
        found = findings(capsys)
        assert [one.key for one in store.list().keys] == ["ada"]
    assert {name: status for name, (status, _) in found.items() if name.startswith("store")} == dict.fromkeys(
        ("store", "store round trip", "store race", "store lease", "store clock"), "ok"
    )
    assert found["store race"][1] == "1 of 8 saves of one version won"


@pytest.mark.parametrize(("query", "lacks"), [("", "read_timeout"), ("?read_timeout=5", "")])
def test_a_url_without_a_limit_is_named(query: str, lacks: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command itself waits for 10 seconds; a program of the user's, with this URL alone, for ever."""
    with mariadb_database() as url:
        assert main(["doctor", "--offline", "--store", url + query, "--json"]) == 0
    found = findings(capsys)
    assert found["store round trip"][0] == "ok"
    status, text = found.get("store timeout", ("", ""))
    assert (status, lacks in text) == ("note" if lacks else "", True)


@pytest.mark.parametrize(
    ("url", "lacks"),
    [
        ("chat.db", ""),
        ("postgresql+psycopg://h/x", ""),
        ("postgresql+asyncpg://h/x", "command_timeout"),
        ("redis://h/0?socket_timeout=5", ""),
    ],
)
def test_which_urls_have_no_limit(url: str, lacks: str) -> None:
    """psycopg has no such setting; there the store ends a silent connection."""
    assert lacking_limit(url) == lacks


def test_no_store_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong path is a problem."""
    assert main(["doctor", "--store", str(tmp_path / "no.db"), "--json"]) == 1
    assert findings(capsys)["store"] == (
        "problem",
        f"{tmp_path / 'no.db'}: there is no store {tmp_path / 'no.db'}",
    )
    assert os.listdir(tmp_path) == []
    assert main(["doctor", "--contract"]) == 2


def test_a_store_that_forgets_is_a_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other checks would have nothing to build on."""
    (tmp_path / "chat.db").write_bytes(b"")
    monkeypatch.setattr(SQLiteStore, "load", lambda self, key: None)
    assert main(["doctor", "--store", str(tmp_path / "chat.db"), "--json"]) == 1
    found = findings(capsys)
    assert found["store round trip"][0] == "problem"
    assert "store race" not in found


class Broken(MemoryStore):
    """A store with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def load(self, key: str) -> Stored | None:
        found = super().load(key)
        if found is None:
            return None
        blob = found.blob.replace(b"\x80", b"?") if self.fault == "text" else found.blob
        late = timedelta(minutes=5) if self.fault == "clock" else timedelta()
        return Stored(blob=blob, version=found.version, updated_at=found.updated_at - late)

    def save(self, key: str, blob: bytes, *, expected: int | None, facts: Any = None) -> int:
        if self.fault == "last wins" and expected is not None:
            found = super().load(key)
            return super().save(key, blob, expected=found and found.version)
        if self.fault == "breaks" and expected is not None:
            raise RuntimeError("no")
        return super().save(key, blob, expected=expected)

    def lease(self, key: str, ttl: float) -> Any:
        return super().lease(f"{key}{id(object())}" if self.fault == "lease" else key, ttl)


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("text", checks.round_trip, "does not give back the bytes"),
        ("last wins", checks.race, "of 8 saves of one version won, expected 1"),
        ("breaks", checks.race, "8 of 8 saves failed: RuntimeError"),
        ("clock", checks.store_clock, "300 s ahead of it"),
    ],
)
def test_a_broken_store_is_found(fault: str, check: Any, words: str) -> None:
    """Each fault by the check that looks for it."""
    store, key = Broken(fault), checks.new_key()
    if check is not checks.round_trip:
        checks.round_trip(store, key)
    finding = check(store, key)
    assert finding.status == "problem"
    assert words in finding.text


def test_a_lease_of_two_holders_is_found() -> None:
    """A store without leases gets a note."""

    class Two(MemoryStore):
        def lease(self, key: str, ttl: float) -> Any:
            from contextlib import nullcontext

            return nullcontext()

    assert checks.lease(Two(), "a").status == "problem"
    assert checks.lease(MemoryStore(), "a").status == "ok"
    assert checks.lease(object(), "a").status == "note"


def test_the_contract_tells_its_findings() -> None:
    """All of the protocol: here, a store that ignores versions."""
    store = Broken("last wins")
    finding = checks.contract(store, store)
    assert finding.status == "problem"
    assert "findings about Broken" in finding.text
    assert issubclass(StateConflictError, Exception)


def test_the_real_command(tmp_path: Path) -> None:
    """As a process, with a store."""
    with SQLiteStore(tmp_path / "chat.db") as store:
        store.save("ada", b"x", expected=None)
    ran = subprocess.run(
        [sys.executable, "-m", "goaitools_py", "doctor", "--store", str(tmp_path / "chat.db")],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in NAMES},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("\nno problems\n")
