"""Servers that this project did not write, for tests that talk to them over loopback.

Owns: where they are found, and how a test gets at them. Must never know: what a test expects.

aimock is the npm package that `package-lock.json` here pins; `.ci/run` installs it into `build/aimock`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import ChatResult

from ._aimock import Aimock, Scene
from ._running import running

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL_SCRIPT = "make_tiny_gguf.py"
AIMOCK = "node_modules/@copilotkit/aimock/dist/cli.js"


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def wire(request: pytest.FixtureRequest) -> str:
    """Each test that asks for it speaks all wires."""
    return str(request.param)


class Run:
    """Runs turns in one of two ways; what they leave behind is the same."""

    def __init__(self, is_streamed: bool) -> None:
        self.is_streamed = is_streamed

    def __call__(self, chat: Any, state: bytes | None = None, **fields: Any) -> ChatResult:
        if self.is_streamed:
            return chat.start(state, **fields).result()  # type: ignore[no-any-return]
        return chat.chat_with_state(state, **fields)  # type: ignore[no-any-return]


@pytest.fixture(params=["unary", "streamed"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each test that asks for it runs its turns once with `chat_with_state` and once with `start`."""
    return Run(request.param == "streamed")


@pytest.fixture(scope="session")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    """aimock on a free loopback port, one for each process that runs tests."""
    node = shutil.which("node")
    cli = Path(os.environ.get("GOAITOOLS_AIMOCK") or ROOT / "build" / "aimock") / AIMOCK
    if node is None or not cli.is_file():
        pytest.skip("no aimock: `.ci/run` installs it; or say in GOAITOOLS_AIMOCK where it is installed")
    place = tmp_path_factory.mktemp("aimock")
    script = place / "fixtures.json"
    script.write_text(
        json.dumps({"fixtures": [{"match": {"context": "nobody"}, "response": {"content": "?"}}]})
    )
    options = ["--strict", "--journal-max", "0", "--fixture-counts-max", "0"]
    command = [node, cli, "-h", "127.0.0.1", "-p", "0", "-f", script, *options]
    with running(*command, log=place / "output") as port:
        yield Aimock(port)


@pytest.fixture
def scene(aimock: Aimock, face: Any, wire: str) -> Iterator[Scene]:
    """The test's own part of aimock, spoken to on the test's wire by chats of the test's colour."""
    made = Scene(aimock, face, wire)
    yield made
    made.close()


@pytest.fixture(scope="session")
def llama_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that GOAITOOLS_LLAMA_MODEL names; else a small one, made here of this project's own words.

    The script that makes it lies beside the test data, and needs the packages gguf and numpy. Two thirds of
    the answers of its model hold thinking and a tool call.
    """
    if given := os.environ.get("GOAITOOLS_LLAMA_MODEL"):
        return Path(given)
    script = Path(os.environ.get("GOAITOOLS_TEST_TOOLS") or ROOT.parent / "shared" / "tools") / MODEL_SCRIPT
    if not script.is_file() or not all(map(find_spec, ("gguf", "numpy"))):
        pytest.skip(f"no llama-server model: set GOAITOOLS_LLAMA_MODEL, or install gguf for {MODEL_SCRIPT}")
    model = tmp_path_factory.mktemp("model") / "tiny.gguf"
    words = ROOT / "tests" / "golden" / "dictionary" / "corpus.txt"
    subprocess.run([sys.executable, script, model, words, "--think", "--tools"], check=True, timeout=300)
    return model


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of llama.cpp's server on a free loopback port, one for each process that runs tests."""
    program = os.environ.get("GOAITOOLS_LLAMA_SERVER")
    if not program:
        pytest.skip("no llama-server: set GOAITOOLS_LLAMA_SERVER")
    model = request.getfixturevalue("llama_model")
    place = ["--host", "127.0.0.1", "--port", "0", "--no-ui"]
    engine = ["-c", "65536", "-np", "2", "-t", "1", "--jinja", "--seed", "7"]
    log = tmp_path_factory.mktemp("llama") / "output"
    with running(program, "-m", model, *place, *engine, log=log) as port:
        yield f"http://127.0.0.1:{port}"
