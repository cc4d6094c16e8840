"""dbos_bot.py: a turn as a step of a workflow, killed in the middle. Its effect counts once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from goaitools_py.sim import Fault, Reply, SimServer
from tests.stores._places import postgres_database
from tests.stores._private import wait_for

pytest.importorskip("dbos")

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"

pytestmark = [pytest.mark.heavy, pytest.mark.service]

PROGRAM = """
import os, signal
import dbos_bot
from dbos import DBOS

def killed(before, after):
    real = dbos_bot.charge_card
    def charge_card(key, euros):
        if before:
            os.kill(os.getpid(), signal.SIGKILL)
        real(key, euros)
        if after:
            os.kill(os.getpid(), signal.SIGKILL)
    return charge_card

where = os.environ.get("KILLED", "")
if where in ("before", "after"):
    dbos_bot.charge_card = killed(where == "before", where == "after")
if where == "delivering":
    import builtins
    real_print = print
    def killing(*args, **fields):
        real_print(*args, **fields)
        os.kill(os.getpid(), signal.SIGKILL)
    dbos_bot.print = killing
dbos_bot.launch()
print("reply:", dbos_bot.receive("ada", "m1", "Pay 30 euros."), flush=True)
DBOS.destroy()
"""


@pytest.fixture
def database() -> Iterator[str]:
    with postgres_database() as url:
        yield re.sub(r"^postgresql\+\w+:", "postgresql:", url)


@pytest.mark.parametrize("where", ["", "asking", "before", "after", "answering", "delivering"])
def test_a_killed_turn_goes_on_and_its_effect_counts_once(where: str, database: str) -> None:
    """Killed while the model is asked, right before the effect, right after it, while the model answers the
    result, and after the reply. The next process runs the workflow to its end."""
    gate = threading.Event()
    call, reply = Reply.calls(("charge", '{"euros": 30}')), Reply.text("It is paid.")
    with SimServer() as sim:
        held = {"asking": 0, "answering": 1}.get(where)
        for at, one in enumerate((call, reply)):
            sim.push(*([Fault.hold(gate=gate, reply=one)] if at == held else []), one)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(DEPLOY), *(path for path in sys.path if path)]),
            "GOAITOOLS_MODEL": "openai:m",
            "OPENAI_BASE_URL": sim.base_url,
            "OPENAI_API_KEY": "any",
            "APP_DATABASE": database,
            "DBOS__APPVERSION": "1",
        }
        command = [sys.executable, "-c", PROGRAM]
        first = subprocess.Popen(command, env=env | {"KILLED": where}, stdout=subprocess.PIPE, text=True)
        if held is not None:
            wait_for(lambda: len(sim.requests) > held, "the model is asked")
            first.kill()
        out, _ = first.communicate(timeout=60)
        if where:
            assert first.returncode == -9
            gate.set()
            again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
            assert again.returncode == 0, again.stderr[-3_000:]
            out = again.stdout
    assert "reply: It is paid." in out
    with psycopg.connect(database) as bank:
        assert bank.execute("SELECT euros FROM charges").fetchall() == [(30,)]
