"""The examples run offline, do what they are there to show, and leave nothing behind."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from goaitools_py import inspect_state
from goaitools_py.sim import Fault
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import SimServer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))

SHOWS = {
    "hello_state": (
        r"model: \[simulated\] Noted: your name is Ada",
        r"model: \[simulated\] Your name is Ada",
    ),
    "game_tools": (
        r"get_score\(.*Red.*\) -> ok: 30",
        r"get_score\(.*Green.*\) -> error: There is no team Green",
        r"add_points\(.*\) -> ok: Blue has 50 points now",
        r"\* Blue got 5 points",
    ),
    "append_event": (r"4 events, 2 of them wait", r"\[simulated\] The score is 50 points.*Harrogate Theatre"),
    "compaction": (
        r"first_and_recent: 10 -> 6 messages",
        r"What is my name\?.*\[simulated\] Your name is Ada",
    ),
    "streaming": (
        r"<read_clock: ok> \[simulated\]\| read_clock:\| ten\|",
        r"gone after '\[simulated\]'",
        r"resumed: \[simulated\] read_clock: ten past four \(0 tools ran again\)",
    ),
    "crash_resume": (
        r"asked\)\nkilled: -9\nresumed: \[simulated\] get_price: 30 charge_card: charged, says the bank\n$",
    ),
    "approval_bot": (
        r"asked\)\n  \[bank\] 20 euros for order 7, .*\nMonday: awaiting_tools, \d+ bytes saved\nTuesday",
        r"approved refund {\"euros\":300,\"order\":9}\n  \[bank\] 300 euros for order 9, .*\nTo the customer",
        r"customer: \[simulated\] refund: 20 euros are on their way. refund: 300 euros are on their way.\n$",
    ),
    "webhook_bot": (
        r"m1 -> 200 (.*) \(1 model calls\)\nm1 -> 200 \1 \(0 model calls\)\nm2 -> 503 .* \(1 model calls\)\n",
        r"m3 -> 200 (.*Ada.*Team Red.*) \(1 model calls\)\nm2 -> 200 \1 \(0 model calls\)\n",
        r"m2 -> 409 .* \(0 model calls\)\n",
        r"In the state: My name is Ada. My team is Team Red. What is my name, and what is my team\?\n",
    ),
    "metered_backend": (
        r"\[simulated\] Your name is Ada",
        r"/chat/completions \d+ bytes, 200, [\d.]+ ms\n/chat/completions \d+ bytes, 200",
    ),
    "custom_backend": (
        r"\[fake\] Red has 30 points",
        r"\d+ bytes of the wire 'ollama'",
        r"\[fake\] \|Your \|name \|is \|Ada\.",
        r"the dialect keeps the contract",
    ),
}


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder to run in, and nothing in the environment that chooses a model, a store or a server."""
    for name in [name for name in os.environ if name.startswith(("GOAITOOLS_", "OPENAI_", "OLLAMA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in EXAMPLES.iterdir()}
    yield
    assert {path.name for path in EXAMPLES.iterdir()} - before <= {"__pycache__"}


@pytest.mark.parametrize("name", SHOWS)
def test_an_example_shows_its_idea(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An example runs offline, says that it is simulated, prints what it is about, and leaves no file."""
    file = EXAMPLES / f"{name}.py"
    runpy.run_path(str(file if file.exists() else file.with_suffix("")), run_name="__main__")

    printed = capsys.readouterr().out
    assert "(simulated: no language model is asked)" in printed
    for line in SHOWS[name]:
        assert re.search(line, printed), f"nothing like {line!r} in:\n{printed}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_small(file: Path) -> None:
    """An example has fewer than 60 lines, begins with its idea, and is run by a test of this module."""
    text = file.read_text(encoding="utf-8")

    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))
    assert file.stem in {*SHOWS, "fastapi_app"}


def test_a_whole_wire_is_small_too() -> None:
    """The one example in a folder is a dialect, a backend and a run, each of which begins with its idea."""
    folders = {path.parent for path in EXAMPLES.glob("*/*.py")}
    files = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("custom_backend/*.py")}

    assert {folder.name for folder in folders} == {"custom_backend"}
    assert files.keys() == {"ollama_dialect.py", "ollama_backend.py", "__main__.py"}
    assert sum(len(text.splitlines()) for text in files.values()) < 450
    assert all(ast.get_docstring(ast.parse(text)) for text in files.values())


# -------------------------------------------------------------------------------------- the web service


@pytest.fixture
def load_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Loads the service anew, as a restarted process would; its store is in the test's folder."""
    monkeypatch.setenv("GOAITOOLS_STORE", str(tmp_path / "users.db"))

    def load() -> Any:
        spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLES / "fastapi_app.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "fastapi_app", module)
        spec.loader.exec_module(module)
        return module.app

    return load


def test_the_service_remembers_each_user_across_a_restart(load_app: Callable[[], Any]) -> None:
    """After a restart each user is answered from a blob of their own, in replies labelled as simulated."""
    with TestClient(load_app()) as client:
        for user, name in (("a", "Ada"), ("b", "Bea")):
            client.post(f"/chat/{user}", json={"text": f"My name is {name}."})
            client.post(f"/chat/{user}", json={"text": f"My team is Team {name}."})

    with TestClient(load_app()) as client:
        asked = {"text": "What is my name, and what is my team?"}
        replies = [client.post(f"/chat/{user}", json=asked).json() for user in "ab"]

    assert replies == [
        {"text": f"[simulated] Your name is {name}. Your team is Team {name}.", "simulated": True}
        for name in ("Ada", "Bea")
    ]


def test_the_service_saves_the_state_of_a_failed_turn(
    load_app: Callable[[], Any], sim: SimServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that is down gives 503, and what the user said is in the store all the same."""
    monkeypatch.setenv("GOAITOOLS_MODEL", "openai:any")
    monkeypatch.setenv("OPENAI_BASE_URL", sim.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sim")
    sim.push(*[Fault.rate_limit(retry_after=0.001)] * 3)

    with TestClient(load_app()) as client:
        failed = client.post("/chat/ada", json={"text": "My name is Ada."})
        with SQLiteStore(tmp_path / "users.db") as store:
            saved = store.load("ada")
        again = client.post("/chat/ada", json={"text": "What is my name?"})

    assert failed.status_code == 503
    assert saved is not None
    assert inspect_state(saved.blob).status == "failed"
    assert again.json() == {"text": "[simulated] Your name is Ada.", "simulated": False}
