"""What happens to a conversation in fifteen mishaps, here and with other libraries: an optional run.

Owns: the mishaps, what is counted, and the tables. Must never know: a library; `behaviour_apps/` has one app
for each, written as its own documentation shows.

``python benchmarks/behaviour.py [--only NAME …] [--into docs/behaviour.md]``

Each app runs in processes of its own, and talks over loopback to the simulator of a provider. A kill is a
SIGKILL. Every cell of the tables is counted by the run. No time is judged. A library that is not installed is
left out and named:

    pip install openai-agents 'pydantic-ai-slim[openai,anthropic]' langchain langchain-openai \
        langchain-anthropic langgraph langgraph-checkpoint-sqlite
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import platform
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # measure this checkout, whatever else is installed

from _report import put_into  # noqa: E402

from goaitools_py.sim import Fault, Prompt, Reply, Response, Said, SimServer  # noqa: E402

APPS = Path(__file__).resolve().parent / "behaviour_apps"
WAIT = 90.0
"""Seconds until an app that gives no answer counts as an error."""
LONGEST_BODY = 1_000_000
"""Bytes of a request that the simulated model has room for."""


@dataclass(frozen=True, slots=True)
class Library:
    """An app, and where its newest row is. `newer` makes a row as a later release could write it."""

    name: str
    app: str
    packages: tuple[str, ...]
    file: str
    table: str
    column: str
    order: str
    newer: Callable[[bytes], bytes]


def _last(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda row: new.join(row.rsplit(old, 1))


LIBRARIES: Final = (
    Library(
        "this package",
        "ours.py",
        (),
        "ours.db",
        "goaitools_state",
        "blob",
        "key",
        lambda row: row[:4] + b"\x02" + row[5:],
    ),
    Library(
        "pydantic-ai",
        "pydantic_ai_app.py",
        ("pydantic-ai-slim",),
        "pydantic.db",
        "conversations",
        "value",
        "key",
        _last(b'"part_kind":"text"', b'"part_kind":"text-of-later"'),
    ),
    Library(
        "openai-agents",
        "openai_agents_app.py",
        ("openai-agents",),
        "agents.db",
        "agent_messages",
        "message_data",
        "id DESC",
        _last(b'"type": "message"', b'"type": "message-of-later"'),
    ),
    Library(
        "LangGraph",
        "langgraph_app.py",
        ("langgraph", "langchain", "langgraph-checkpoint-sqlite"),
        "graph.db",
        "checkpoints",
        "checkpoint",
        "checkpoint_id DESC",
        _last(b"AIMessage", b"AIMessagX"),
    ),
)


# ------------------------------------------------------------------------------------------ the provider


class Provider(SimServer):
    """The simulator with weather: `faults` answer requests that `strikes` chooses."""

    def __init__(self) -> None:
        self.strikes: Callable[[Mapping[str, Any]], bool] = lambda body: True
        self.faults: list[Fault] = []
        self.seconds = 0.0
        self.seen: tuple[Said, ...] = ()
        super().__init__(model=self._say, pause=0.02)

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """As the simulator does, and first of all the weather and the room for the request."""
        time.sleep(self.seconds)  # as long as a model takes; nothing is judged by it
        if len(body) > LONGEST_BODY:
            self.push(Fault.context_length())
        elif self.faults and self.strikes(json.loads(body)):
            self.push(self.faults.pop(0))
        return super().respond(method, path, headers, body)

    def _say(self, prompt: Prompt) -> Reply:
        self.seen = prompt.history
        asked = next(said.text for said in reversed(prompt.history) if said.role == "user")
        thinking = "Which amount?" if prompt.thinks else ""
        called = re.search(r"(Pay|Refund) (\d+) euros|Read the (report)", asked)
        if called and prompt.history[-1].role == "user":
            name = (called[1] or called[3]).lower()
            arguments = json.dumps({"euros": int(called[2])}) if called[2] else "{}"
            return Reply.calls((name, arguments), thinking=thinking)
        return Reply.text(f"[simulated] The answer to: {asked}", thinking=thinking)

    @property
    def answered(self) -> int:
        """Requests that got an answer, and cost money."""
        return sum(one.status == 200 for one in self.requests)


# ------------------------------------------------------------------------------------ an app in a process


class Nursery:
    """Makes the processes of one app: it has loaded its packages, and forks."""

    def __init__(self, library: Library) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(APPS / "shell.py"), str(APPS / library.app)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def start(self, environment: Mapping[str, str]) -> int:
        """Start a process with these variables; gives its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(environment) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


class Worker:
    """One process of an app."""

    def __init__(self, nursery: Nursery, folder: Path, provider: Provider, *, thinks: bool) -> None:
        pipes = [folder / f"{name}-{time.monotonic_ns()}" for name in ("in", "out")]
        for pipe in pipes:
            os.mkfifo(pipe)
        given = {
            "APP_FOLDER": str(folder),
            "APP_THINKS": str(int(thinks)),
            "APP_URL": provider.base_url,
            "APP_ANTHROPIC_URL": provider.base_url_for("anthropic"),
            "APP_IN": str(pipes[0]),
            "APP_OUT": str(pipes[1]),
        }
        self._pid = nursery.start(given)
        self._in, self._out = pipes[0].open("wb"), pipes[1].open("rb")
        if self._line() != "ready":
            raise RuntimeError(f"the app does not start:\n{(folder / 'log').read_text()}")

    def ask(self, do: str, **arguments: str) -> None:
        """Send a request; `answer` has to follow, or `kill`."""
        self._in.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._in.flush()

    def answer(self) -> dict[str, str]:
        """What the app answered: ``text`` or ``error``."""
        line = self._line()
        found: dict[str, str] = json.loads(line) if line else {"error": "no answer"}
        return found

    def kill(self) -> None:
        """End it at once, as a machine does that loses its power."""
        os.kill(self._pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End it: its input ends. It is killed if it goes on for ten seconds."""
        self._in.close()
        if not select.select([self._out], [], [], 10)[0]:
            os.kill(self._pid, signal.SIGKILL)
        self._out.read()  # ends with the process
        self._out.close()

    def _line(self) -> str:
        ready, _, _ = select.select([self._out], [], [], WAIT)
        return self._out.readline().decode().strip() if ready else ""


class World:
    """One mishap of one library: the user, the platform that delivers messages, and what they see."""

    def __init__(
        self, library: Library, nursery: Nursery, folder: Path, provider: Provider, *, thinks: bool
    ) -> None:
        self.library, self.folder, self.provider = library, folder, provider
        self._nursery, self._thinks = nursery, thinks
        self.errors: list[str] = []
        self.said: dict[str, None] = {}
        self.heard: dict[str, None] = {}
        self.fact = ""
        self._workers: list[Worker] = []

    def worker(self) -> Worker:
        """A new process of the app."""
        self._workers.append(Worker(self._nursery, self.folder, self.provider, thinks=self._thinks))
        return self._workers[-1]

    def deliver(self, worker: Worker, id: str, text: str, *, tries: int = 1) -> None:
        """Deliver a message until it is answered, as a platform does."""
        self.said[text] = None
        for _ in range(tries):
            worker.ask("send", id=id, text=text)
            if self.take(worker):
                return

    def take(self, worker: Worker) -> bool:
        """Wait for an answer, and keep what the user sees. True if it is no error."""
        found = worker.answer()
        if "error" in found:
            self.errors.append(found["error"])
        elif found["text"].startswith("[simulated]"):
            self.heard[found["text"]] = None
        return "error" not in found

    def stall(self, where: str, seconds: float) -> None:
        """From now on the tool stops for so long, before it pays or after."""
        (self.folder / f"stall-{where}").write_text(str(seconds))

    def kill_in_tool(self, worker: Worker) -> None:
        """Kill the process when its tool has stopped."""
        for _ in range(int(WAIT / 0.02)):
            if (self.folder / "stalled").exists():
                break
            time.sleep(0.02)
        else:
            raise RuntimeError(f"{self.library.name}: the tool has not begun")
        worker.kill()
        self._workers.remove(worker)
        for stall in self.folder.glob("stall*"):
            stall.unlink()

    def row(self) -> bytes:
        """The newest stored bytes."""
        at = self.library
        with closing(sqlite3.connect(self.folder / at.file)) as database:
            query = f"SELECT {at.column} FROM {at.table} ORDER BY {at.order} LIMIT 1"
            found = database.execute(query).fetchone()[0]
        return found.encode() if isinstance(found, str) else bytes(found)

    def replace(self, old: bytes, new: bytes) -> bool:
        """Replace stored bytes, wherever they are. False if they are not there any more."""
        at = self.library
        with closing(sqlite3.connect(self.folder / at.file, timeout=30)) as database, database:
            found = database.execute(f"SELECT rowid, {at.column} FROM {at.table}").fetchall()
            for rowid, value in found:
                is_text = isinstance(value, str)
                if (value.encode() if is_text else value) == old:
                    given = new.decode(errors="replace") if is_text else new
                    change = f"UPDATE {at.table} SET {at.column} = ? WHERE rowid = ?"
                    database.execute(change, (given, rowid))
                    return True
        return False

    def stores(self, piece: bytes) -> bool:
        """Whether a table has these bytes in a value."""
        for path in self.folder.glob("*.db"):
            with closing(sqlite3.connect(path)) as database:
                tables = [
                    row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
                ]
                for table in tables:
                    for row in database.execute(f"SELECT * FROM [{table}]"):
                        values = (v.encode() if isinstance(v, str) else v for v in row)
                        if any(isinstance(v, bytes) and piece in v for v in values):
                            return True
        return False

    def close_workers(self) -> None:
        """End all processes."""
        while self._workers:
            self._workers.pop().close()


# --------------------------------------------------------------------------------------------- the mishaps


def leaves(world: World) -> None:
    """The user reads the first words of an answer, closes the page, and asks again later."""
    worker = world.worker()
    world.deliver(worker, "m1", "My name is Ada.")
    text = "Tell me a long story, please, with a dragon, a lamp, a wizard and a very long end."
    worker.ask("leave", id="m2", text=text)
    world.take(worker)
    world.heard = {said: None for said in world.heard if said.endswith("Ada.")}  # the piece is no answer
    world.close_workers()
    world.deliver(world.worker(), "m2", text)


def twice(world: World) -> None:
    """The platform delivers a message to two workers at the same time."""
    together(world, [("m1", "Pay 5 euros."), ("m1", "Pay 5 euros.")])


def again(world: World) -> None:
    """The platform has lost the answer, and delivers the message again."""
    worker = world.worker()
    world.deliver(worker, "m1", "Pay 5 euros.")
    world.deliver(worker, "m1", "Pay 5 euros.")


def tabs(world: World) -> None:
    """Two tabs of the browser send a message each at the same time."""
    together(world, [("m1", "I like tea."), ("m2", "I like cake.")])


def together(world: World, messages: Sequence[tuple[str, str]]) -> None:
    """Deliver messages to a worker each, at the same time. What ends in an error is delivered once more."""
    world.provider.seconds = 0.5
    workers = [world.worker() for _ in messages]
    for worker, (id, text) in zip(workers, messages, strict=True):
        world.said[text] = None
        worker.ask("send", id=id, text=text)
    for worker, (id, text), done in zip(workers, messages, [world.take(w) for w in workers], strict=True):
        if not done:
            world.deliver(worker, id, text)
    world.provider.seconds = 0.0


def killed_after(world: World) -> None:
    """The process dies when the tool has paid, before its result is stored."""
    killed(world, "after")


def killed_before(world: World) -> None:
    """The process dies in the tool, before it pays."""
    killed(world, "before")


def killed(world: World, where: str) -> None:
    """Kill the process in its tool, and deliver the message again."""
    world.stall(where, 600)
    worker = world.worker()
    world.said["Pay 5 euros."] = None
    worker.ask("send", id="m1", text="Pay 5 euros.")
    world.kill_in_tool(worker)
    world.deliver(world.worker(), "m1", "Pay 5 euros.", tries=3)


def pressed_twice(world: World) -> None:
    """A call waits for an approval. The next day two processes get the click at the same time."""
    world.deliver(world.worker(), "m1", "Refund 5 euros.")
    world.close_workers()
    world.stall("before", 0.5)
    workers = [world.worker(), world.worker()]
    for worker in workers:
        worker.ask("approve")
    for worker in workers:
        world.take(worker)


def damaged(world: World) -> None:
    """The second half of the newest row is lost."""
    worker = world.worker()
    world.deliver(worker, "m1", "My name is Ada.")
    world.deliver(worker, "m2", "I like tea.")
    world.close_workers()
    row = world.row()
    half = row[: len(row) // 2]
    world.replace(row, half)
    world.deliver(world.worker(), "m3", "I like cake.", tries=2)
    world.fact = "the damaged bytes are kept" if world.stores(half) else "the damaged bytes are gone"


def storm(world: World) -> None:
    """The provider answers eight requests with 429."""
    worker = world.worker()
    world.deliver(worker, "m1", "My name is Ada.")
    world.provider.faults = [Fault.rate_limit(retry_after_ms=10) for _ in range(8)]
    world.deliver(worker, "m2", "I like tea.", tries=6)


def down(world: World) -> None:
    """The tool has paid, and the provider answers the next eight requests with 503."""
    world.provider.strikes = lambda body: '"tool"' in json.dumps(body.get("messages", ()))
    world.provider.faults = [Fault.server_error(503) for _ in range(8)]
    world.deliver(world.worker(), "m1", "Pay 5 euros.", tries=6)


def cut(world: World) -> None:
    """Six turns with signed thinking and tools. The app keeps the newest turns, as its library shows."""
    worker = world.worker()
    for turn in range(1, 7):
        world.deliver(worker, f"m{turn}", f"Pay {turn} euros.")
    refused = sum(one.status == 400 for one in world.provider.requests)
    world.fact = f"{refused} requests refused"
    world.said.clear()
    world.heard.clear()


def newer(world: World) -> None:
    """A later release has written the row. An old worker gets a message, and then a new one."""
    worker = world.worker()
    world.deliver(worker, "m1", "My name is Ada.")
    world.deliver(worker, "m2", "I like tea.")
    world.close_workers()
    row = world.row()
    later = world.library.newer(row)
    assert later != row
    world.replace(row, later)
    world.deliver(world.worker(), "m3", "I like cake.")
    world.close_workers()
    stays = world.replace(later, row)  # the worker of the later release can read it
    world.fact = f"the row {'stays' if stays else 'is written over'}"
    if world.errors:
        world.deliver(world.worker(), "m3", "I like cake.")


def long_output(world: World) -> None:
    """A tool gives 2,000,000 bytes, and the model has room for half of it."""
    world.deliver(world.worker(), "m1", "Read the report.", tries=3)


def edited(world: World) -> None:
    """The user changes the newest message."""
    worker = world.worker()
    world.deliver(worker, "m1", "My name is Ada.")
    world.deliver(worker, "m2", "I like tea.")
    del world.said["I like tea."]
    world.heard.popitem()
    world.said["I like cake."] = None
    worker.ask("edit", text="I like cake.")
    world.take(worker)
    world.close_workers()
    sent = any("I like tea." in said.text for said in world.provider.seen)
    kept = ", and still stored" if world.stores(b"I like tea.") else ""
    world.fact = f"the old text is {'still' if sent else 'not'} sent{kept}"


def plain(world: World) -> None:
    """What another program reads out of the database without the library."""
    world.deliver(world.worker(), "m1", "My name is Ada.")
    world.close_workers()
    world.fact = f"readable with SQL alone: {'yes' if _as_json(world) else 'no'}"


def _as_json(world: World) -> bool:
    try:
        json.loads(world.row())
    except ValueError:
        return False
    return world.stores(b"My name is Ada.")


@dataclass(frozen=True, slots=True)
class Mishap:
    """A row of the table. `tools`, `calls`: how often the tool runs, and the model is asked, without it."""

    name: str
    run: Callable[[World], None]
    tools: int
    calls: int
    thinks: bool = False


MISHAPS: Final = (
    Mishap("a listener leaves and comes back", leaves, 0, 2),
    Mishap("a message delivered twice, at the same time", twice, 1, 2),
    Mishap("a finished message delivered again", again, 1, 2),
    Mishap("two tabs at the same time", tabs, 0, 2),
    Mishap("killed in a tool, after it paid", killed_after, 1, 2),
    Mishap("killed in a tool, before it paid", killed_before, 1, 2),
    Mishap("an approval pressed twice, the next day", pressed_twice, 1, 2),
    Mishap("a damaged row", damaged, 0, 3),
    Mishap("a storm of 429", storm, 0, 2),
    Mishap("the provider down in mid-turn", down, 1, 2),
    Mishap("a cut history with signed thinking", cut, 6, 12, thinks=True),
    Mishap("a row of a newer release", newer, 0, 3),
    Mishap("a long tool output", long_output, 0, 2),
    Mishap("an edited message", edited, 0, 3),
    Mishap("the row without the library", plain, 0, 1),
)
SHOWN: Final = (1, 3, 4, 6, 12)
"""The rows of the README."""


# ------------------------------------------------------------------------------------------- what is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one library did in one mishap.

    Attributes:
        tools: How often the tool did its work.
        calls: Requests that the provider answered, and billed.
        lost: Messages of the user, and answers that the user has seen, which are not in the next request.
        doubled: Surplus copies of such messages in the next request.
        errors: Errors that the user saw, by the class of the exception.
        next: "" if the next message is answered, else the error.
        fact: A finding of this mishap alone.
    """

    tools: int
    calls: int
    lost: int
    doubled: int
    errors: Sequence[str]
    next: str
    fact: str = ""

    def phrase(self, mishap: Mishap) -> str:
        """How it differs from a conversation without the mishap; "as planned" if it does not."""
        found = []
        if self.tools != mishap.tools:
            found.append(f"tool ran {self.tools} times" if self.tools else "tool did not run")
        if self.calls > mishap.calls:
            found.append(_many(self.calls - mishap.calls, "call") + " more")
        found += [
            f"{count} {word}" for word, count in (("lost", self.lost), ("doubled", self.doubled)) if count
        ]
        if self.errors:
            found.append(_many(len(self.errors), "error"))
        if self.next:
            found.append("**stuck**")
        return ", ".join(found) or "as planned"

    def faults(self, mishap: Mishap) -> tuple[int, ...]:
        """The numbers that should be 0, for a comparison."""
        tools, calls = abs(self.tools - mishap.tools), max(0, self.calls - mishap.calls)
        return tools, calls, self.lost, self.doubled, len(self.errors), int(bool(self.next))


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def measure(library: Library, nursery: Nursery, mishap: Mishap) -> Outcome:
    """Run one mishap, then one more message in a new process."""
    with tempfile.TemporaryDirectory() as name, Provider() as provider:
        folder = Path(name)
        world = World(library, nursery, folder, provider, thinks=mishap.thinks)
        try:
            mishap.run(world)
            world.close_workers()
            provider.faults.clear()
            effects = folder / "effects"
            tools = len(effects.read_text().splitlines()) if effects.exists() else 0
            calls, errors = provider.answered, tuple(world.errors)
            provider.seen = ()
            worker = world.worker()
            worker.ask("send", id="next", text="Go on.")
            found = worker.answer()
        finally:
            world.close_workers()
        texts = [said.text for said in provider.seen if said.role in ("user", "assistant")]
        expected = [*world.said, *world.heard]
        counts = [sum(text in one and _same_kind(text, one) for one in texts) for text in expected]
        stuck = "error" in found
        return Outcome(
            tools=tools,
            calls=calls,
            lost=0 if stuck else counts.count(0),
            doubled=0 if stuck else sum(count - 1 for count in counts if count > 1),
            errors=errors,
            next=found.get("error", ""),
            fact=world.fact,
        )


def _same_kind(text: str, other: str) -> bool:
    """An answer quotes its question: the two are not the same message."""
    return text.startswith("[simulated]") == other.startswith("[simulated]")


def lines_of_code(path: Path) -> int:
    """Lines with code: no empty ones, no comments, no docstrings."""
    text = path.read_text(encoding="utf-8")
    left = set(range(1, len(text.splitlines()) + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = text.splitlines()
    return sum(bool(lines[at - 1].strip()) and not lines[at - 1].lstrip().startswith("#") for at in left)


# ---------------------------------------------------------------------------------------------- the tables

Found = dict[str, dict[str, Outcome]]
"""Outcomes by mishap and library."""


def as_text(found: Found) -> str:
    """For a terminal."""
    lines = []
    for mishap in MISHAPS:
        for name, one in found.get(mishap.name, {}).items():
            values = f"tools {one.tools}, calls {one.calls}, lost {one.lost}, doubled {one.doubled}"
            ends = f"errors {_errors(one)}, next {one.next or 'answered'}"
            lines.append(f"{mishap.name:<44} {name:<14} {values}, {ends}; {one.fact}".rstrip("; "))
    return "\n".join(lines)


def _errors(one: Outcome) -> str:
    names = sorted(set(one.errors))
    return f"{len(one.errors)} ({', '.join(names)})" if names else "0"


def as_markdown(found: Found, which: Sequence[Mishap], *, facts: bool = True) -> str:
    """For a page: a row for each mishap, and how each library differs from a run without it."""
    names = list(dict.fromkeys(name for mishap in which for name in found.get(mishap.name, {})))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for mishap in which:
        if not (row := found.get(mishap.name)):
            continue
        cells = []
        for name in names:
            one = row[name]
            numbers = f"{one.tools} / {one.calls}"
            cells.append(f"{numbers}: {one.phrase(mishap)}" if facts else one.phrase(mishap))
            if facts and one.fact:
                cells[-1] += f"; {one.fact}"
            if facts and (told := sorted({*one.errors, *filter(None, [one.next])})):
                cells[-1] += f" ({', '.join(f'`{error}`' for error in told)})"
        planned = f" ({mishap.tools} / {mishap.calls})" if facts else ""
        lines.append(f"| {mishap.name}{planned} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def better(found: Found) -> str:
    """Where a library has no number that is worse than ours, and one that is better."""
    lines = []
    for mishap in MISHAPS:
        if (ours := found.get(mishap.name, {}).get(LIBRARIES[0].name)) is None:
            continue
        names = [
            name
            for name, one in found[mishap.name].items()
            if (theirs := one.faults(mishap)) != (mine := ours.faults(mishap))
            and all(a <= b for a, b in zip(theirs, mine, strict=True))
        ]
        if names:
            lines.append(f"{mishap.name} ({', '.join(names)})")
    return f"By these numbers better than this package: {'; '.join(lines) or 'nothing'}."


def versions(present: Sequence[Library]) -> str:
    """What ran, and when."""
    packages = sorted({package for library in present for package in library.packages} | {"openai"})
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    told = ", ".join(f"{package} {version(package)}" for package in packages)
    return f"{day}, Python {platform.python_version()}, {told}"


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for, and print both tables."""
    parser = argparse.ArgumentParser(description="What happens to a conversation in mishaps.")
    known = [mishap.run.__name__ for mishap in MISHAPS]
    parser.add_argument("--only", nargs="+", choices=known, metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--apps", nargs="+", metavar="APP", help="only these files of behaviour_apps")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args(arguments)
    present, absent = [], []
    for library in LIBRARIES:
        if options.apps and library.app not in options.apps:
            continue
        try:
            for package in library.packages:
                version(package)
            present.append(library)
        except PackageNotFoundError as error:
            absent.append(f"{library.name} (pip install {error.name})")
    found: Found = {}
    for library in present:
        with closing(Nursery(library)) as nursery:
            for mishap in MISHAPS:
                if not options.only or mishap.run.__name__ in options.only:
                    one = measure(library, nursery, mishap)
                    found.setdefault(mishap.name, {})[library.name] = one
                    print(as_text({mishap.name: {library.name: one}}), flush=True)
    code = {library.name: lines_of_code(APPS / library.app) for library in present}
    print(f"\nlines of code: {code}\nnot installed, so not measured: {', '.join(absent) or 'nothing'}")
    lines = "| lines of code | " + " | ".join(str(count) for count in code.values()) + " |"
    table = f"Measured on {versions(present)}.\n\n{as_markdown(found, MISHAPS)}\n{lines}\n\n{better(found)}"
    print(f"\n{table}\n\nFor the README:\n\n{as_markdown(found, [MISHAPS[at] for at in SHOWN], facts=False)}")
    if options.into is not None:
        put_into(options.into, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
