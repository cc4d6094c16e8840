"""The process that is killed: it goes on with a conversation from the row that the last one left.

Started once, it forks for every job that comes in on stdin, and tells on stdout how far the fork has got. A
fork knows its job and what is in the files, nothing else; it never ends well unless nobody kills it.
Its provider is the offline simulator without a socket, which refuses every request that breaks a rule.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goaitools_py import Approve, AsyncChat, Chat, ModelSettings, ToolContext, ToolReturn, tool, user
from goaitools_py.backends.base import BackendError, ModelRequest, ResponseHead
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.sim import Prompt, Reply, SimServer
from goaitools_py.state import apart
from goaitools_py.states import inspect_state
from goaitools_py.stores import SQLiteStore
from goaitools_py.turn.edges import async_edge

KEY = "conversation"
SHAPES = (
    (("charge", "book", "ship"),),
    (("charge",), ("book",), ("ship",)),
    (("book", "charge"), ("ship",)),
)
"""How a turn asks for its three tools: at once, one by one, or two and one."""
SLOW_SECONDS = 0.004
SETTINGS: dict[str, dict[str, Any]] = {
    "openai": {},
    "openai-responses": {"reasoning_effort": "low"},
    "anthropic": {"thinking_budget_tokens": 1024},
}
"""Replies are thought over, and signed, where the wire has that."""

assert async_edge  # imported here, so that no fork has to


def text_of(turn: int, shape: int) -> str:
    """What the user says in a turn."""
    return f"Turn {turn}, shape {shape}."


def answer_of(turn: int) -> str:
    """What the model says at a turn's end."""
    return f"Turn {turn} is done."


def plan_of(text: str) -> tuple[int, tuple[tuple[tuple[str, str], ...], ...]]:
    """A turn's number, and for each of its replies with calls the tools and their orders."""
    turn, shape = map(int, re.findall(r"\d+", text))
    return turn, tuple(tuple((name, f"{turn}-{name}") for name in step) for step in SHAPES[shape])


def append_line(path: str, **line: Any) -> None:
    """Add a line to a log; it is on the disk when this returns."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, json.dumps(line).encode() + b"\n")
        os.fsync(log)
    finally:
        os.close(log)


def tell(at: str, **more: Any) -> None:
    """Say how far this process has got; one write, so that lines are whole."""
    os.write(1, json.dumps({"at": at, **more}).encode() + b"\n")


def _given(answers: dict[str, str | None]) -> dict[str, Any]:
    """The answers of somebody who has looked what each call did: its receipt, or that it may run, although an
    earlier life that was allowed to run it may have been killed in it."""
    return {id: Approve(again=True) if text is None else ToolReturn(text) for id, text in answers.items()}


class Reporter:
    """Tells of every point that is passed, and at the one that the job names waits for the kill."""

    def __init__(self, hold: list[Any] | None) -> None:
        self._hold = tuple(hold) if hold else None
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.has_results = False
        """A tool has ended since the last save."""

    def __call__(self, at: str, **more: Any) -> None:
        with self._lock:
            self._passed[at] += 1
            self.has_results = (self.has_results or at == "out") and not at.startswith("saved")
            is_held = (at, self._passed[at]) == self._hold
        tell(at, held=is_held, **more)
        if is_held:
            time.sleep(60)
            os._exit(9)  # nobody came to kill it


# --------------------------------------------------------------------------------------- the outside


class Shop:
    """The remote side of the tools: an effect is a line in its log."""

    def __init__(self, log: str, report: Reporter) -> None:
        self._log, self._report = log, report

    def steps(self, ctx: ToolContext[Any], name: str, order: str) -> Iterator[None]:
        """Take an order; a slow tool waits at each yield."""
        self._report("in", order=order)
        self._report("tool")
        yield
        append_line(self._log, tool=name, order=order, key=ctx.idempotency_key)
        self._report("effect")
        yield
        self._report("out", order=order)

    def do(self, ctx: ToolContext[Any], name: str, order: str) -> str:
        """Take an order at once."""
        for _ in self.steps(ctx, name, order):
            pass
        return f"receipt of {order}"


@tool
def charge(ctx: ToolContext[Shop], order: str) -> str:
    """Charge a card, which must not happen twice."""
    return ctx.deps.do(ctx, "charge", order)


@tool(idempotent=True)
def book(ctx: ToolContext[Shop], order: str) -> str:
    """Book a seat; the other side knows a booking by its key."""
    return ctx.deps.do(ctx, "book", order)


@tool(name="ship")
def ship(ctx: ToolContext[Shop], order: str) -> str:
    """Ship a parcel, slowly."""
    for _ in ctx.deps.steps(ctx, "ship", order):
        time.sleep(SLOW_SECONDS)
    return f"receipt of {order}"


@tool(name="ship")
async def ship_async(ctx: ToolContext[Shop], order: str) -> str:
    """Ship a parcel, slowly."""
    for _ in ctx.deps.steps(ctx, "ship", order):
        await asyncio.sleep(SLOW_SECONDS)
    return f"receipt of {order}"


class Provider:
    """A backend of both colours: the simulator, and a log of the replies that it was asked to make."""

    model: str | None = "sim-model"
    max_retries = 0
    context_window = None

    def __init__(self, job: dict[str, Any], report: Reporter) -> None:
        self.dialect = dialect_of(job["wire"])
        self._log, self._attempt, self._report = job["requests"], job["attempt"], report
        self._sim = SimServer(model=self._decide)

    def _decide(self, prompt: Prompt) -> Reply:
        """The next step of the turn that was spoken last: the first one whose calls were not made yet."""
        at = max(n for n, said in enumerate(prompt.history) if said.role == "user" and said.text)
        turn, steps = plan_of(prompt.history[at].text)
        made = {json.loads(call.arguments)["order"] for said in prompt.history[at:] for call in said.calls}
        step = sum(steps[n][0][1] in made for n in range(len(steps)))
        digest = hashlib.sha256(prompt.content).hexdigest()[:16]
        append_line(self._log, turn=turn, step=step, digest=digest, attempt=self._attempt)
        self._report("asking")
        thinking = "What comes next?" if prompt.thinks else ""
        if step == len(steps):
            return Reply.text(answer_of(turn), thinking=thinking)
        # As from a real provider, a reply that is made again has other ids.
        ids = tuple(f"call_{self._attempt}_{order}" for _, order in steps[step])
        calls = [(name, json.dumps({"order": order})) for name, order in steps[step]]
        return Reply.calls(*calls, ids=ids, thinking=thinking)

    def _answer(self, request: ModelRequest) -> Response:
        path = request.path if request.path.startswith("/v1/") else f"/v1{request.path}"
        headers = {**request.headers, "anthropic-version": "2023-06-01"}
        answer = self._sim.respond("POST", path, headers, request.body)
        if answer.status != 200:
            raise BackendError(f"refused: {self._sim.problems}", status=answer.status, body=answer.body)
        self._report("replied")
        return Response(dict(answer.headers), list(answer.pieces), self._report)

    def send(self, request: ModelRequest) -> Any:
        return self._answer(request)

    async def asend(self, request: ModelRequest) -> Any:
        return AsyncResponse(self._answer(request))

    def close(self) -> None:
        """Nothing is open."""

    async def aclose(self) -> None:
        """Nothing is open."""


class Response:
    """A response that is read piece by piece."""

    def __init__(self, headers: dict[str, str], pieces: list[bytes], report: Reporter) -> None:
        self.head = ResponseHead(status=200, headers=headers)
        self._pieces, self._report = pieces, report

    def read(self) -> bytes:
        self._report("reading")
        return self._pieces.pop(0) if self._pieces else b""

    def close(self) -> None:
        """Nothing is open."""


class AsyncResponse:
    """The same, awaited."""

    def __init__(self, response: Response) -> None:
        self.head, self._response = response.head, response

    async def read(self) -> bytes:
        return self._response.read()

    async def aclose(self) -> None:
        """Nothing is open."""


# ---------------------------------------------------------------------------------- the conversation


class Conversation:
    """One life of the process, as an application would write it."""

    def __init__(self, job: dict[str, Any], report: Reporter) -> None:
        self._job, self._report = job, report
        self._store = SQLiteStore(job["db"])
        row = self._store.load(KEY)
        self._blob = row.blob if row is not None else None
        self._version = row.version if row is not None else None
        self._runner = asyncio.Runner() if job["is_async"] else None
        fields: dict[str, Any] = {
            "tools": [charge, book, ship_async if job["is_async"] else ship],
            "deps": Shop(job["effects"], report),
            "system": "You run a shop.",
            "tool_threads": job["threads"],
            "settings": ModelSettings(**SETTINGS[job["wire"]]),
        }
        if job["checkpoints"]:
            fields["on_checkpoint"] = self._keep
        if job["stream"]:
            fields["on_event"] = lambda _: None
        self._chat: Any = (AsyncChat if job["is_async"] else Chat)(Provider(job, report), **fields)

    def _keep(self, blob: bytes) -> None:
        """Save, if nobody else has since the last time."""
        what = " a result" if self._report.has_results else ""
        self._report(f"saving{what}")
        self._version = self._store.save(KEY, blob, expected=self._version)
        self._blob = blob
        self._report(f"saved{what}")

    def _turn(self, method: str, *args: Any, **fields: Any) -> None:
        answer = getattr(self._chat, method)(self._blob, *args, **fields)
        result = answer if self._runner is None else self._runner.run(answer)
        self._report("ending")
        if not result.duplicate:
            self._keep(result.state)

    def go_on(self) -> None:
        """Finish what is unfinished, and say what was not said yet."""
        if answers := self._job["answers"]:
            given = _given(answers)
            self._turn("resume", given)
        texts = self._job["texts"]
        if self._job["by_id"]:  # every message comes again until it is answered
            for text in texts:
                self._turn("chat_with_state", user=text, turn_id=text, conversation_id="a conversation")
            return
        while True:  # every message is put into the row first
            info = inspect_state(self._blob) if self._blob else None
            if info is not None and info.status == "in_progress":
                self._turn("resume")
            elif info is not None and info.waiting_messages:
                self._turn("chat_with_state")
            elif info is None or info.turns_processed < len(texts):
                said = user(texts[info.turns_processed if info is not None else 0])
                self._keep(self._chat.append_to_state(self._blob, said))
            else:
                return


class KeptConversation:
    """One life of the process with `chat.conversation`, which saves every checkpoint."""

    def __init__(self, job: dict[str, Any], report: Reporter) -> None:
        self._job = job
        self._runner = asyncio.Runner() if job["is_async"] else None
        store = ReportingStore(SQLiteStore(job["db"]), report)
        fields: dict[str, Any] = {
            "tools": [charge, book, ship_async if job["is_async"] else ship],
            "deps": Shop(job["effects"], report),
            "system": "You run a shop.",
            "tool_threads": job["threads"],
            "settings": ModelSettings(**SETTINGS[job["wire"]]),
        }
        if job["stream"]:
            fields["on_event"] = lambda _: None
        chat: Any = (AsyncChat if job["is_async"] else Chat)(Provider(job, report), **fields)
        kept = AwaitedStore(store) if job["is_async"] else store
        apart.SMALL = 150  # so that its short history has parts
        self._conversation: Any = chat.conversation(kept, KEY, save="checkpoint", parts=job["parts"])

    def _do(self, method: str, *args: Any, **fields: Any) -> Any:
        answer = getattr(self._conversation, method)(*args, **fields)
        return answer if self._runner is None else self._runner.run(answer)

    def go_on(self) -> None:
        """Finish what is unfinished, and say what was not said yet."""
        if answers := self._job["answers"]:
            given = _given(answers)
            self._do("resume", given)
        texts = self._job["texts"]
        if self._job["by_id"]:
            for text in texts:
                self._do("send", text, turn_id=text)
            return
        while True:
            info = self._do("info")
            if info is not None and info.state.status == "in_progress":
                self._do("resume")
            elif info is None or info.state.turns_processed < len(texts):
                self._do("send", texts[info.state.turns_processed if info is not None else 0])
            else:
                return


class ReportingStore:
    """A store without leases, which tells when it saves: a killed holder's lease would only cost time."""

    def __init__(self, store: SQLiteStore, report: Reporter) -> None:
        self.load, self.load_head, self.load_parts = store.load, store.load_head, store.load_parts
        self._store, self._report = store, report

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        what = " a result" if self._report.has_results else ""
        self._report(f"saving{what}")
        version = self._store.save(key, blob, expected=expected)
        self._report(f"saved{what}")
        return version

    def save_parts(self, *args: Any, expected: int | None, facts: Any = None) -> int:
        what = " a result" if self._report.has_results else ""
        self._report(f"saving{what}")
        version = self._store.save_parts(*args, expected=expected, facts=facts)
        self._report(f"saved{what}")
        return version


class AwaitedStore:
    """The same for async code."""

    def __init__(self, store: ReportingStore) -> None:
        self._store = store

    async def load(self, key: str) -> Any:
        return self._store.load(key)

    async def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        return self._store.save(key, blob, expected=expected)

    async def load_head(self, key: str, **fields: Any) -> Any:
        return self._store.load_head(key, **fields)

    async def load_parts(self, key: str, names: Any) -> Any:
        return self._store.load_parts(key, names)

    async def save_parts(self, *args: Any, **fields: Any) -> int:
        return self._store.save_parts(*args, **fields)


def live(job: dict[str, Any]) -> None:
    """One life, from the row on."""
    report = Reporter(job["hold"])
    conversation = (KeptConversation if job["kept"] else Conversation)(job, report)
    report("begun", pid=os.getpid())
    conversation.go_on()


def warm_up() -> None:
    """Load what a life loads, with conversations that nobody will ask for again."""
    job: dict[str, Any] = {"is_async": False, "threads": False, "checkpoints": True, "by_id": False}
    job |= {
        "hold": None,
        "answers": {},
        "attempt": 0,
        "texts": [text_of(0, 0)],
        "stream": False,
        "parts": "store",
    }
    with tempfile.TemporaryDirectory() as folder:
        for wire in SETTINGS:
            for kept in (False, True):
                files = {name: f"{folder}/{wire}.{kept}.{name}" for name in ("db", "effects", "requests")}
                live({**job, **files, "wire": wire, "kept": kept})


def serve() -> None:
    """Fork for each job. The pid of a fork stays its own until whoever may kill it says so."""
    warm_up()
    tell("ready")
    while line := sys.stdin.readline():
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                live(job)
                status = 0
            except BaseException:
                Path(job["errors"]).write_text(traceback.format_exc())
            finally:
                os._exit(status)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        tell("dead")
        sys.stdin.readline()
        tell("buried", exit=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    serve()
