"""The recipe of docs/queue.md on real Celery workers and Redis: what comes twice or is killed counts once."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.sim import Prompt, Reply, SimServer

from ..stores._places import REDIS, redis_prefix

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "queue.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
RECIPE = "\n\n".join(BLOCKS)
LATEST = 120.0

OUTSIDE = """

import json, time

PREFIX, LOG = os.environ["QUEUE_TEST_PREFIX"], os.environ["QUEUE_TEST_LOG"]
STORE = RedisStore(redis.Redis.from_url(REDIS), prefix=PREFIX)
app.conf.broker_transport_options |= {"global_keyprefix": PREFIX + ":"}
app.conf.broker_transport_options |= json.loads(os.environ.get("QUEUE_TEST_BROKER", "{}"))
app.conf.task_default_queue = "q"


def note(*what):
    line = json.dumps([os.getpid(), *what]) + "\\n"
    with open(LOG, "ab", buffering=0) as log:
        log.write(line.encode())


def pay_back(key, euros):
    note("started", key, euros)
    if euros == 13 and not any(json.loads(line)[1:] == ["killed"] for line in open(LOG)):
        note("killed")
        time.sleep(120)
    note("paid", key, euros)


def deliver(user, text):
    note("said", user, text)


def ask_user(user, call_id, question):
    note("asked", user, call_id)
"""


def model(prompt: Prompt) -> Reply:
    """Calls the tool with the number that the user says, and then says what came of it."""
    last = prompt.history[-1]
    if last.role == "tool":
        return Reply.text(f"Done: {last.text}")
    (euros,) = re.findall(r"\d+", last.text)
    return Reply.calls(("refund", json.dumps({"euros": int(euros)})))


PUT = """
import json, sys, queue_bot
for name, *given in json.loads(sys.argv[1]):
    getattr(queue_bot, name).delay(*given)
"""


class Bot:
    """The recipe as a module, a worker that runs it, and the log of what it did outside."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder = folder
        self._env = env
        self._log = folder / "log"
        self._log.touch()
        (folder / "queue_bot.py").write_text(RECIPE + OUTSIDE, encoding="utf-8")

    @contextlib.contextmanager
    def worker(self, **broker: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A worker with two processes, which ends afterwards. `broker`: options of its transport."""
        command = ["celery", "-A", "queue_bot", "worker", "--pool=prefork", "-c", "2", "--loglevel=WARNING"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with (self._folder / "celery.log").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", *command, *quiet],
                cwd=self._folder,
                env=self._env | {"QUEUE_TEST_BROKER": json.dumps(broker)},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def delay(self, *calls: tuple[Any, ...]) -> None:
        """Put tasks into the queue: each a task's name and its arguments."""
        put = [sys.executable, "-c", PUT, json.dumps(calls)]
        subprocess.run(put, cwd=self._folder, env=self._env, timeout=60, check=True)

    def seen(self, kind: str) -> list[list[Any]]:
        """What was noted of one kind, without the process."""
        lines = map(json.loads, self._log.read_text(encoding="utf-8").splitlines())
        return [line[2:] for line in lines if line[1] == kind]

    def pid(self, kind: str) -> int:
        """The process that noted the first of a kind."""
        lines = map(json.loads, self._log.read_text(encoding="utf-8").splitlines())
        return next(int(line[0]) for line in lines if line[1] == kind)

    def wait(self, holds: Callable[[], bool]) -> None:
        """Until it holds."""
        until = time.monotonic() + LATEST
        while not holds():
            assert time.monotonic() < until, (self._folder / "celery.log").read_text(errors="replace")[
                -3_000:
            ]
            time.sleep(0.1)

    def _told(self) -> str:
        return (self._folder / "celery.log").read_text(errors="replace")[-3_000:]


@pytest.fixture
def bot(tmp_path: Path) -> Iterator[Bot]:
    """The bot, its model and its part of Redis."""
    if os.environ.get("CI") == "true":
        importlib.import_module("celery")
    else:
        pytest.importorskip("celery")
    with redis_prefix() as place, SimServer(model=model) as sim:
        own = {
            "REDIS_URL": REDIS,
            "QUEUE_TEST_PREFIX": place.partition("#")[2],
            "QUEUE_TEST_LOG": str(tmp_path / "log"),
            "GOAITOOLS_MODEL": "openai:m",
            "OPENAI_BASE_URL": sim.base_url,
            "OPENAI_API_KEY": "any",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PAGE.parents[1])]),
        }
        yield Bot(tmp_path, os.environ | own)


def test_effects_count_once(bot: Bot) -> None:
    """Duplicates at once and later, a process killed in the tool, a button pressed twice and a day later."""
    with bot.worker():
        bot.delay(
            *[("say", "ada", "m1", "Refund 5.")] * 3,
            ("say", "bea", "m1", "Refund 13."),
            ("say", "cid", "m1", "Refund 80."),
        )
        bot.wait(lambda: bool(bot.seen("killed")))
        os.kill(bot.pid("killed"), signal.SIGKILL)
        bot.wait(lambda: len(bot.seen("said")) == 4 and bool(bot.seen("asked")))
    ((_, call_id),) = bot.seen("asked")
    paid_before = sorted(euros for _, euros in bot.seen("paid"))

    with bot.worker():  # the next day, with workers that know nothing
        bot.delay(*[("answer", "cid", call_id, True)] * 2, ("say", "ada", "m1", "Refund 5."))
        bot.wait(lambda: len(bot.seen("said")) == 7)

    assert paid_before == [5, 13]
    assert sorted(euros for _, euros in bot.seen("paid")) == [5, 13, 80]
    keys = [(euros, key) for key, euros in bot.seen("started")]
    assert sorted(euros for euros, _ in keys) == [5, 13, 13, 80]
    assert len(set(keys)) == 3
    said = {(user, text) for user, text in bot.seen("said")}
    paid = (("ada", 5), ("bea", 13), ("cid", 80))
    assert said == {(user, f"Done: {euros} euros are on their way") for user, euros in paid}


def test_a_worker_that_is_killed_as_a_whole(bot: Bot) -> None:
    """Its first process and all others, in the tool. Nobody gives the task back then: Redis does, once the
    time in which it was to be done is over. Here that is a few seconds."""
    with bot.worker() as worker:
        bot.delay(("say", "bea", "m1", "Refund 13."))
        bot.wait(lambda: bool(bot.seen("killed")))
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    assert (bot.seen("paid"), bot.seen("said")) == ([], [])

    with bot.worker(visibility_timeout=3, unacked_restore_throttle=1):  # looks each 10 seconds, not each 100
        bot.wait(lambda: bool(bot.seen("said")))

    assert [euros for _, euros in bot.seen("paid")] == [13]
    assert len({key for key, _ in bot.seen("started")}) == 1
    assert {tuple(said) for said in bot.seen("said")} == {("bea", "Done: 13 euros are on their way")}
