"""`goaitools sim`: the simulator as a server of its own."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from goaitools_py.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT for another process")
def test_it_serves_until_interrupted() -> None:
    """It says that it is a simulator and where, answers there, and ends with 0 on Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, "-m", "goaitools_py", "sim"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            announced = process.stdout.readline()
            address = re.search(r"http://127\.0\.0\.1:\d+/v1", announced)
            assert address is not None
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"{address[0]}/models", timeout=10) as response:
                models = json.load(response)["data"]
            process.send_signal(signal.SIGINT)
            code = process.wait(10)
        finally:
            process.kill()

    assert "simulator" in announced
    assert models
    assert code == 0


def test_a_port_in_use_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    """A port that somebody else listens on is exit code 1 and one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code = main(["sim", "--port", str(taken.getsockname()[1])])

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
