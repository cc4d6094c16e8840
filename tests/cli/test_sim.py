"""`goaitools sim`: the simulator as a server of its own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goaitools_py.backends.dialects import WIRES
from goaitools_py.cli import main

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60
"""Seconds after which a process hangs; a busy machine may take many of them."""

needs_sigint = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT for another process")


@pytest.fixture(autouse=True)
def _interrupts_are_taken() -> Iterator[None]:
    """A shell starts what runs behind it with SIGINT ignored, and each process of ours would inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that is killed in the end, whatever happens."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@needs_sigint
def test_it_serves_until_interrupted() -> None:
    """It says that it is a simulator and where, answers there, and ends with 0 on Ctrl-C."""
    with running("-m", "goaitools_py", "sim") as process:
        assert process.stdout is not None
        announced = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/v1", announced)
        assert address is not None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{address[0]}/models", timeout=PATIENCE) as response:
            models = json.load(response)["data"]
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)

    assert "simulator" in announced
    assert models
    assert code == 0


@needs_sigint
def test_its_addresses_as_json() -> None:
    """One line, with the base URL for the client of each provider API."""
    with running("-m", "goaitools_py", "sim", "--json") as process:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())["base_urls"]
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{urls['openai']}/models", timeout=PATIENCE) as response:
            assert json.load(response)["data"]

    assert set(urls) == set(WIRES)
    assert urls["anthropic"] == urls["openai"].removesuffix("/v1")


WHEN = {
    "while the address is written": "signal.raise_signal(signal.SIGINT)",
    "on a thread that does not wait": "threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()",
}
PROGRAM = """
import signal, sys, threading
from goaitools_py.sim import serve

class Announced:
    write = sys.stdout.write

    def flush(self):
        sys.stdout = sys.__stdout__
        {interrupt}

sys.stdout = Announced()
serve(0)
"""


@needs_sigint
@pytest.mark.parametrize("interrupt", WHEN.values(), ids=WHEN)
def test_ctrl_c_ends_it_at_any_moment(interrupt: str) -> None:
    """Ctrl-C ends the server also before it waits, and when the signal does not reach the waiting thread."""
    with running("-c", PROGRAM.format(interrupt=interrupt)) as process:
        code = process.wait(PATIENCE)
        assert process.stderr is not None
        complaints = process.stderr.read()

    assert (code, complaints) == (0, "")


def test_a_port_in_use_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    """A port that somebody else listens on is exit code 1 and one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = main(["sim", "--port", str(taken.getsockname()[1])])

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.count("\n") == 1


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In words of the user, not of the program."""
    assert main(["sim", f"--port={port}"]) == 2
    assert f"a port is a number between 0 and 65535, not {port!r}" in capsys.readouterr().err
