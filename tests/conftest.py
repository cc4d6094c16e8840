"""Shared by all tests: both chats behind one face, the data directory, and no way out to the network."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import random
import socket
import sqlite3
import ssl
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import AsyncChat, AsyncTurn, Chat, ChatResult, Event, Turn, backends
from goaitools_py.base.values import replace
from goaitools_py.compaction import CompactionReport
from goaitools_py.sim import SimServer
from goaitools_py.states import Step

from ._sets import HEAVY, SERVICE, SERVICES, SLOW, WHOLE_FILES

ROOT = Path(__file__).resolve().parent.parent

# Many containers forbid bytecode files. Then each worker rewrites the assertions of all tests again, and each
# process that a test starts compiles the package again: half of the time of the suite.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test asks another machine. Reading the certificates of all authorities for each HTTP client took three
# quarters of the first turn of each chat. Without them an HTTP client trusts nobody.
ssl.SSLContext.load_verify_locations = lambda *_, **__: None  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------ logging


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Each test begins and ends with the root logger at Python's own level. A package may set it up for the
    whole process, as MCP's server does: then a later test would see no record."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(logging.WARNING)
    for handler in root.handlers[:]:
        if handler not in handlers and type(handler).__module__.partition(".")[0] != "_pytest":
            root.removeHandler(handler)


# ------------------------------------------------------------------------- an exception that is handled


@pytest.fixture(autouse=True)
def _nothing_handled() -> Iterator[None]:
    """No test leaves behind an exception that Python takes for one being handled: each later error of the
    thread would have it as its context. See `in_own_thread`."""
    yield
    left = sys.exc_info()[0]
    assert left is None, f"the test has left {left.__name__} behind as an exception that is being handled"


# ------------------------------------------------------------------------------ files that stay open


@pytest.fixture(autouse=True)
def _no_file_left_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test closes each SQLite file that it opens.

    Otherwise Python 3.13 warns when the garbage collector finds the connection, which is in any later test.
    """
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", noted)
    yield
    left = [one for one in opened if _is_open(one)]
    for one in left:
        with contextlib.suppress(sqlite3.Error):  # it belongs to another thread
            one.close()
    assert not left, f"the test has left {len(left)} SQLite connections open"


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        _ = connection.total_changes
    except sqlite3.ProgrammingError:
        return False
    return True


# ------------------------------------------------------------------------------------------ the network


_escaped: list[str] = []


def _check_host(host: Any) -> None:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost"):
        return
    try:
        is_local = ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        _escaped.append(name)
        raise OSError(f"a test asked for {name!r}")


@pytest.fixture(autouse=True, scope="session")
def _guarded_sockets() -> Iterator[None]:
    """No socket of the test run reaches any host but this one."""
    patch = pytest.MonkeyPatch()
    look_up = socket.getaddrinfo

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                _check_host(address[0])
            return original(self, address)

        return connect

    def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        _check_host(host)
        return look_up(host, *args, **kwargs)

    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name)))
    patch.setattr(socket, "getaddrinfo", guarded_look_up)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        patch.delenv(name, raising=False)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def _nothing_escapes() -> Iterator[None]:
    """A test fails if anything in it, on any thread, asked for another host."""
    _escaped.clear()
    yield
    assert not _escaped, f"requests escaped to {', '.join(_escaped)}"


# --------------------------------------------------------------------------------------------- the data


def data_folder() -> Path:
    """Where recorded traffic is looked for. A clone does not bring it."""
    return Path(os.environ.get("GOAITOOLS_TEST_DATA") or ROOT.parent / "shared" / "data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Recorded traffic, conversations and schemas; tests that need them skip where they are absent."""
    path = data_folder()
    if not path.is_dir():
        pytest.skip("no test data: set GOAITOOLS_TEST_DATA to a directory with recorded/ and conversations/")
    return path


# -------------------------------------------------------------------------------- which tests run when


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave files unread, of which `-m quick` takes no test; not those that the command line names."""
    if config.option.markexpr != "quick" or not collection_path.is_relative_to(ROOT / "tests"):
        return None
    named = {(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args}
    place = collection_path.relative_to(ROOT / "tests").as_posix() + "/" * collection_path.is_dir()
    return (place.startswith(WHOLE_FILES) and collection_path not in named) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Let every second worker read the files from the last to the first.

    The first run in a clone writes bytecode. In this way each of two workers writes half of it.
    """
    report: pytest.CollectReport = yield
    worker = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if isinstance(collector, pytest.Directory) and int(worker.removeprefix("gw")) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector never look at what stays until the end: modules and tests.

    It would look through half a gigabyte again and again, and once more in each test that collects.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Give the cases of a test function their markers. `-m quick` keeps no case that it would not run."""
    made = yield
    if isinstance(made, list):
        mark(made)
        made = sample(made, int(os.environ.get("GOAITOOLS_CASES") or len(made)))
        if collector.config.option.markexpr == "quick":
            return [case for case in made if case.get_closest_marker("quick")]
    return made


def mark(cases: list[Any]) -> None:
    """Give each case of a test function its marker: by the tables of `_sets`, and `quick` to one of them.

    Which case that is, the function's name decides: so some run sync and some async, and all provider APIs
    have their turn.
    """
    alternatives = []
    named = ""
    for item in cases:
        named, _, case = item.nodeid.removeprefix("tests/").partition("[")
        if item.get_closest_marker("service") or item.get_closest_marker("heavy"):
            continue
        if named.startswith(SERVICE) or SERVICES.search(case) or "data_dir" in item.fixturenames:
            item.add_marker("service")
        elif named.startswith(HEAVY):
            item.add_marker("heavy")
        elif not named.startswith(SLOW):
            alternatives.append(item)
    if alternatives:
        alternatives[zlib.crc32(named.encode()) % len(alternatives)].add_marker("quick")


def sample(cases: list[Any], most: int) -> list[Any]:
    """At most so many cases of a test function, drawn by its name, so that every run has the same ones.

    The quick case stays, and fewer cases are some of the more. Heavy tests have short forms of their own.
    """
    if len(cases) <= most or any(case.get_closest_marker("heavy") for case in cases):
        return cases
    draw = random.Random(cases[0].nodeid.partition("[")[0])
    kept = [case for case in cases if case.get_closest_marker("quick")]
    others = [case for case in cases if case not in kept]
    draw.shuffle(others)
    kept += others[: max(0, most - len(kept))]
    return [case for case in cases if case in kept]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all workers one order before pytest groups them by fixtures: they have read the files in two."""
    items.sort(key=lambda item: item.path)


# ---------------------------------------------------------------------------------- time of each file


LONG_SECONDS = 20
"""CPU seconds above which a file of tests is named at the end of a run: its long form is for `.ci/long`."""

_cpu_seconds: Counter[str] = Counter()
_cpu_before = 0.0


def _cpu_now() -> float:
    """CPU seconds of this process and of the processes that it has waited for."""
    return sum(os.times()[:4])


def pytest_runtest_setup() -> None:
    """Begin to count with the first test, so that the reading of the files counts for none."""
    global _cpu_before
    _cpu_before = _cpu_before or _cpu_now()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what a test and its fixtures have used since the test before."""
    global _cpu_before
    report = yield
    if report.when == "teardown":
        before, _cpu_before = _cpu_before, _cpu_now()
        report.user_properties.append(("cpu_seconds", _cpu_before - before))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the files that took long."""
    long = [(file, used) for file, used in _cpu_seconds.most_common() if used > LONG_SECONDS]
    if long:
        terminalreporter.section(f"files above {LONG_SECONDS} CPU seconds", "-")
        for file, used in long:
            terminalreporter.write_line(f"{used:7.0f}  {file}")


# ----------------------------------------------------------------------------------- skips in CI


ALLOWED_SKIPS: tuple[str, ...] = (
    "another zstd release",
    "no browser",
    "no llama-server",
    "no fish",
    "no zsh",
    "no nginx",
    "no compiler of C#",
    "Python 3.11 has no eager tasks",
    "calls are traced already",  # by the run that measures coverage
    "the whole walk takes minutes",  # `.ci/long walk`
)
"""Reasons (their beginnings) that may be skipped for in CI."""

WITHOUT_DATA: tuple[str, ...] = (
    "no conversations",
    "no data at",
    "no recorded",
    "no request schema",
    "no schema",
    "no test data",
    "the conversations of the test data",
)
"""Reasons to skip that CI allows where the folder of recorded traffic is absent, as in a clone. Where it is
there, a lost file is a failure."""

_skipped: list[tuple[str, str]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note every skip with its reason, and the time."""
    for name, value in report.user_properties:
        if name == "cpu_seconds":
            _cpu_seconds[report.nodeid.partition("::")[0]] += float(str(value))
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skip that is not allowed by name is a failure."""
    allowed = ALLOWED_SKIPS if data_folder().is_dir() else ALLOWED_SKIPS + WITHOUT_DATA
    unwanted = [(node, why) for node, why in _skipped if not why.startswith(allowed)]
    if os.environ.get("CI") and unwanted and not hasattr(session.config, "workerinput"):
        for node, why in unwanted:
            print(f"\nskipped, which CI does not allow: {node}: {why}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# ------------------------------------------------------------------------------ both chats, one face


class TurnFace:
    """A turn of either colour, driven in plain code."""

    def __init__(self, turn: Turn | AsyncTurn, run: Callable[[Any], Any]) -> None:
        self.turn = turn
        self._run = run

    def __iter__(self) -> Iterator[Event]:
        if isinstance(self.turn, Turn):
            yield from self.turn
            return
        events = aiter(self.turn)
        while True:
            try:
                yield self._run(anext(events))
            except StopAsyncIteration:
                return

    def result(self) -> ChatResult:
        answer: Any = self.turn.result()
        return answer if isinstance(self.turn, Turn) else self._run(answer)

    def cancel(self) -> None:
        answer = self.turn.cancel()
        if answer is not None:
            self._run(answer)

    def append(self, *messages: Any) -> None:
        self.turn.append(*messages)

    @property
    def state(self) -> bytes:
        return self.turn.state


class ChatFace:
    """A chat of either colour with the methods of `Chat`."""

    def __init__(self, chat: Chat | AsyncChat, run: Callable[[Any], Any]) -> None:
        self.inner = chat
        self._run = run

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self.inner, name)(*args, **kwargs)
        return answer if isinstance(self.inner, Chat) else self._run(answer)

    def chat(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._call("chat", *args, **kwargs)  # type: ignore[no-any-return]

    def chat_with_state(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._call("chat_with_state", *args, **kwargs)  # type: ignore[no-any-return]

    def resume(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._call("resume", *args, **kwargs)  # type: ignore[no-any-return]

    def run_turns(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._call("run_turns", *args, **kwargs)  # type: ignore[no-any-return]

    def compact_state(self, *args: Any, **kwargs: Any) -> CompactionReport:
        return self._call("compact_state", *args, **kwargs)  # type: ignore[no-any-return]

    def append_to_state(self, *args: Any, **kwargs: Any) -> bytes:
        return self.inner.append_to_state(*args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> Step:
        return self._call("step", *args, **kwargs)  # type: ignore[no-any-return]

    def start(self, *args: Any, **kwargs: Any) -> TurnFace:
        return TurnFace(self.inner.start(*args, **kwargs), self._run)

    def start_resume(self, *args: Any, **kwargs: Any) -> TurnFace:
        return TurnFace(self.inner.start_resume(*args, **kwargs), self._run)


BACKENDS = {
    "openai": "OpenAIChatBackend",
    "openai-responses": "OpenAIResponsesBackend",
    "anthropic": "AnthropicBackend",
}


class Simulator(SimServer):
    """The offline simulator, and the wire that a test speaks with it."""

    wire = "openai"
    is_other = False
    """True: it is one of many hosts of its API. False: it stands for the provider's own host, whose rules are
    known, so that a turn tries few other forms after a refusal."""

    def backend(self, model: str | None = "sim-model", *, is_async: bool, **kwargs: Any) -> Any:
        """A backend of the simulator's wire, which asks it through the official SDK and a real socket."""
        name = ("Async" if is_async else "") + BACKENDS[self.wire]
        options = {"base_url": self.base_url_for(self.wire), "api_key": "sim", "max_retries": 0, **kwargs}
        made = getattr(backends, name)(model, **options)
        if not self.is_other:
            made.dialect = replace(made.dialect, host="")
        return made


class Face:
    """Makes chats of one colour. `is_async` says which."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self._runner = asyncio.Runner() if is_async else None
        self._open: list[Any] = []

    def run(self, awaitable: Any) -> Any:
        """Await something on this face's event loop."""
        assert self._runner is not None

        async def wait() -> Any:
            return await awaitable

        return self._runner.run(wait())

    def chat(self, backend: Any, *args: Any, **kwargs: Any) -> ChatFace:
        """A chat on a backend, or on a backend's name."""
        made = (AsyncChat if self.is_async else Chat)(backend, *args, **kwargs)
        self._open.append(made)
        return ChatFace(made, self.run)

    def backend(self, model: str | None = "sim-model", *, wire: str = "openai", **kwargs: Any) -> Any:
        """A backend of this colour."""
        name = ("Async" if self.is_async else "") + BACKENDS[wire]
        return getattr(backends, name)(model, **kwargs)

    def on(self, sim: Simulator, *, max_retries: int = 0, **kwargs: Any) -> ChatFace:
        """A chat that talks to a simulator through the official SDK and a real socket."""
        backend = sim.backend(is_async=self.is_async, max_retries=max_retries)
        self._open.append(backend)
        return self.chat(backend, **kwargs)

    def close(self) -> None:
        for made in reversed(self._open):
            with contextlib.suppress(Exception):
                if self.is_async:
                    self.run(made.aclose())
                else:
                    made.close()
        if self._runner is not None:
            self._runner.close()


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Each test that asks for it runs once with `Chat` and once with `AsyncChat`."""
    made = Face(request.param == "async")
    yield made
    made.close()


@pytest.fixture
def wire() -> str:
    """The wire that a test speaks with the simulator, Chat Completions unless it says otherwise."""
    return "openai"


@pytest.fixture
def sim(wire: str) -> Iterator[Simulator]:
    """The offline simulator on a loopback port."""
    with Simulator() as server:
        server.wire = wire
        yield server
