"""The examples run offline, do what they are there to show, and leave nothing behind."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import importlib.util
import json
import os
import random
import re
import runpy
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from goaitools_py import Chat, Compactor, KeepRecentTurns
from goaitools_py.compaction import ByteLimit
from goaitools_py.frontends import split_reply
from goaitools_py.sim import Fault
from goaitools_py.states import inspect_state, read_history
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import ScriptedBackend, SimServer

from .replay._recorded import read_lines

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
    "cookie_session": (
        r"\[simulated\] Your name is Ada\. Your team is Red\.",
        r"the cookie has 1\d\d\d bytes, and 'Ada' is in it: False",
        r"the message needs \d,\d{3} bytes, and 3,196 fit",
        r"mallory: refused, with the cookie of Ada",
    ),
    "game_client_carries_state": (
        r"\[simulated\] Your name is Ada\. The score is 50 points\.",
        r"a state that is changed, from ada: refused",
        r"a state that is Ada's, from bob: refused",
        r"a state that is old, from ada: refused",
    ),
    "append_event": (r"4 events, 2 of them wait", r"\[simulated\] The score is 50 points.*Harrogate Theatre"),
    "compaction": (
        r"first_and_recent: 8 -> 4 messages",
        r"What is my name\?.*\[simulated\] Your name is Ada",
    ),
    "compaction_policies": (
        r"keep everything .*\[simulated\] Your name is Ada",
        r"the last 3 turns .*\[simulated\] I do not know your name",
        r"the beginning and the end .*\[simulated\] Your name is Ada",
        r"a summary .*\[simulated\] Your name is Ada",
        r"a ladder .*\[simulated\] Your name is Ada",
    ),
    "summarize_with_cheaper_model": (
        r"Summarize: compacted, 13 -> 5 messages\n  for \d+ tokens; 9 messages are in the archive\n",
        r"note: <app-note kind=\"summary\">\n.*\n\[simulated\] Summary of 4 messages\. The player's name is",
        r"model: \[simulated\] Your name is Ada\. The score is 50 points\.\n\d+ of \d+ tokens",
    ),
    "budget_guard": (
        r"asked\)\n\d+: 7\d% full, \$0\.\d+; compacted\n",
        r"(\d+): the money is spent; 1 message is kept\n\1: with more of it, complete\n$",
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
    "channel_bot": (
        r"#hall: \(the bot types\)\nto Ada: \[simulated\]",
        r"to Bob: \[simulated\] Noted: your team is Red",
        r"(to Bob: \[simulated\] Your team is Red\.)\n#hall: \(the bot types\)\n\1\n$",
    ),
    "mud_server": (
        r"This happened: A dragon was seen over the theatre: \+50 points",
        r"saved: [\d,]+ bytes for 50 characters\n\[simulated\] open_gate: The gate North .*name is Ada\.",
        r"{'tick': 2, 'gates': 1} 2 wait\n$",
    ),
    "approval_desk": (
        r"ada: awaiting_tools\nbob: awaiting_tools\n\[simulated\] Noted: your name is Eve",
        r"to ada: .*20 euros are on their way\.\nto bob: .*denied: More than 100 euros need the manager",
        r"left: 0\n$",
    ),
    "webhook_bot": (
        r"m1 -> 200 (.*) \(1 model calls\)\nm1 -> 200 \1 \(0 model calls\)\nm2 -> 503 .* \(1 model calls\)\n",
        r"m3 -> 200 (.*Ada.*Team Red.*) \(1 model calls\)\nm2 -> 200 \1 \(0 model calls\)\n",
        r"m2 -> 409 .* \(0 model calls\)\n",
        r"In the state: My name is Ada. My team is Team Red. What is my name, and what is my team\?\n",
    ),
    "redis_bot": (
        r"200 \[simulated\] Noted: your name is Ada",
        r"200 \(again\) (\[simulated\] get_score: 30 The score is 50 points.)\n200 \1\n",
        r"200 \[simulated\] Your name is Ada\. \(3 turns\)\n$",
    ),
    "metered_backend": (
        r"\[simulated\] Your name is Ada",
        r"/chat/completions \d+ bytes, 200, [\d.]+ ms\n/chat/completions \d+ bytes, 200",
    ),
    "django_field": (
        r"Noted: your name is Ada.*\n\(another request was faster; say it again\)\n",
        r"\[simulated\] Your name is Ada. The score is 1 points.\n<state of \d+ bytes>: complete\n$",
    ),
    "observability": (
        r"span  execute_tool get_score .*ok",
        r"span  invoke_agent guide .*ok",
        r"reply \[simulated\] get_score: 30 .* 2 model calls, 1 tool call",
    ),
    "custom_backend": (
        r"\[fake\] Red has 30 points",
        r"\d+ bytes of the wire 'ollama'",
        r"\[fake\] \|Your \|name \|is \|Ada\.",
        r"the dialect keeps the contract",
    ),
}

OWN_PROCESS = {"django_field", "observability"}
"""Django and the log are set up once in a process, and other tests do so too."""


def in_a_process(file: Path) -> str:
    """What an example prints in a process of its own, where warnings are errors."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


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
    if name in OWN_PROCESS:
        printed = in_a_process(file)
    else:
        runpy.run_path(str(file if file.exists() else file.with_suffix("")), run_name="__main__")
        printed = capsys.readouterr().out

    assert "(simulated: no language model is asked)" in printed
    for line in SHOWS[name]:
        assert re.search(line, printed), f"nothing like {line!r} in:\n{printed}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_small(file: Path) -> None:
    """An example has at most 62 lines, begins with its idea, and is run by a test of this module."""
    text = file.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 62
    assert ast.get_docstring(ast.parse(text))
    assert file.stem in {*SHOWS, "fastapi_app", "fastapi_sqlalchemy", "webchat_fastapi"}


def test_a_whole_wire_is_small_too() -> None:
    """This example is a dialect, a backend and a run, each of which begins with its idea. Files of a
    deployment stand in the other folder, and `tests/serve` runs them."""
    folders = {path.parent for path in EXAMPLES.glob("*/*.py")}
    files = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("custom_backend/*.py")}

    assert {folder.name for folder in folders} == {"custom_backend", "deploy"}
    assert files.keys() == {"ollama_dialect.py", "ollama_backend.py", "__main__.py"}
    assert sum(len(text.splitlines()) for text in files.values()) < 450
    assert all(ast.get_docstring(ast.parse(text)) for text in files.values())


# -------------------------------------------------------------------------------------- the web service


def load_example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An example as a module, loaded anew."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def load_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Loads the service anew, as a restarted process would; its store is in the test's folder."""
    monkeypatch.setenv("GOAITOOLS_STORE", str(tmp_path / "users.db"))
    return lambda: load_example("fastapi_app", monkeypatch).app


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


# ------------------------------------------------------------------------------------------ the web chat


def test_a_cookie_is_measured_before_a_model_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cookie is longer than what browsers keep: long messages are refused unpaid, a long reply is told."""
    example = load_example("cookie_session", monkeypatch)
    backend = ScriptedBackend(*["Well."] * 30, "y" * 5_000, "Again.")
    how = {"codec": example.chat.codec, "compactor": Compactor(ByteLimit(1_200), KeepRecentTurns(1))}
    example.chat.close()
    monkeypatch.setattr(example, "chat", Chat(backend, **how))
    cookies, sizes = "", random.Random(1)
    for number in range(30):
        _, header = example.answer(cookies, "ada", f"{number} " + "x" * sizes.choice([5, 100, 900, 1_200]))
        cookies = header.partition(";")[0]
        assert 0 < len(cookies) <= 4_096
    with pytest.raises(ValueError, match=r"needs 4,\d{3} bytes, and 3,196 fit: shorten it"):
        example.answer(cookies, "ada", "x" * 3_000)
    assert len(backend.requests) == 30
    reply, header = example.answer(cookies, "ada", "Tell me.")
    assert (header, reply.endswith("(I cannot remember this answer: it is too long.)")) == ("", True)
    assert example.answer(cookies, "ada", "And now?")[0] == "Again."


def test_the_web_chat_keeps_users_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each user has a conversation of their own, a reply streams, and without a login there is nothing."""
    monkeypatch.setenv("GOAITOOLS_STORE", str(tmp_path / "chat.db"))
    at = "/chat/conversations/hall"
    with TestClient(
        load_example("webchat_fastapi", monkeypatch).app, base_url="https://testserver"
    ) as client:
        assert client.post(f"{at}/turns", json={"text": "Hi", "turn_id": "m1"}).status_code == 401
        assert client.post("/login?user=A/b").status_code == 422
        assert 'id="say"' in client.get("/").text
        for user, name in (("ada", "Ada"), ("bea", "Bea")):
            assert client.post(f"/login?user={user}").status_code == 204
            said = {"text": f"My name is {name}.", "turn_id": "m1"}
            told = client.post(f"{at}/turns", json=said, headers={"accept": "text/event-stream"}).text
            assert told.count("event: done") == 1
            asked = {"text": "What is my name?", "turn_id": "m2"}
            assert f"name is {name}" in client.post(f"{at}/turns", json=asked).json()["text"]
            assert len(client.get(f"{at}/messages").json()) == 4
        assert client.delete(f"{at}/turns/current").json() == {"stopped": False}


# ------------------------------------------------------------------------------------------ the channel


LINK = re.compile(r"https?://[^\s<>()\[\]]+")
ODD = ["e\u0301", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "👍🏽", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "क्षि", "각", "a\u0300\u0323", "✌️"]
"""Characters that are made of several code points."""


OPENS = re.compile(r" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)")


def _code_of(text: str) -> str:
    """What is in a text, without white space, and without the lines that open and close code."""
    lines = [line for line in text.splitlines() if not OPENS.fullmatch(line)]
    return "".join("".join(lines).split())


def _check_split(text: str, messages: list[str], limit: int) -> None:
    """No message is too long, each has whole code blocks, and nothing is lost, changed or cut apart."""
    assert all(0 < len(one.encode("utf-16-le", "surrogatepass")) // 2 <= limit for one in messages)
    assert _code_of("\n".join(messages)) == _code_of(text)
    for message in messages:
        end = ""
        for line in message.splitlines():
            if not end and (found := OPENS.fullmatch(line)):
                end = (found[1] or found[2])[:25]
            elif end and line.strip().startswith(end) and not line.strip().strip(end[0]):
                end = ""
        assert end == "", "a message ends inside a block of code"
    for link in LINK.findall(text):
        if len(link) < limit // 2:
            assert any(link in message for message in messages)


@pytest.mark.parametrize("limit", [100, 2_000, 4_000, 4_096])
def test_a_long_reply_is_split(limit: int) -> None:
    code = [f"print({n})" for n in range(600)]
    links = [f"see [the docs](https://docs.test/a_(b)/{n}?q=1) and https://x.test/{n}." for n in range(200)]
    text = "\n".join(
        ["Here it is:", "```py", *code, "```", "So on " * 400, "", *links, "~~~", "```", "~~~", "The end."]
    )

    messages = list(split_reply(text, limit))

    _check_split(text, messages, limit)
    lines = [line for message in messages for line in message.splitlines()]
    assert [line for line in lines if line.startswith("print")] == code
    assert list(split_reply("Short.", limit)) == ["Short."]
    assert list(split_reply("", limit)) == []


@pytest.mark.parametrize("odd", ODD)
def test_no_character_is_cut_apart(odd: str) -> None:
    """Also where a word is longer than a message, at each place of the cut."""
    for before in range(12):
        text = "x" * before + odd * 300
        messages = list(split_reply(text, 100))
        _check_split(text, messages, 100)
        assert len(messages) > 1
        assert [message.lstrip("x").replace(odd, "") for message in messages] == [""] * len(messages)


@pytest.mark.parametrize("recording", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_recorded_replies_are_split(recording: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each platform, and for short messages, where there are many cuts."""
    limits = load_example("channel_bot", monkeypatch).LIMITS.values()
    texts: set[str] = set()
    for line in read_lines(data_dir / "recorded" / f"{recording}.jsonl.zst"):
        texts.update(_long_texts(json.loads(line)))
    assert len(texts) > 20
    print(f"{len(texts)} texts, {sum(map(len, texts)):,} characters")
    for text in sorted(texts, key=lambda one: hashlib.sha256(one.encode()).digest())[:150]:
        for limit in (100, *limits):
            _check_split(text, list(split_reply(text, limit)), limit)


def _long_texts(value: Any) -> Iterator[str]:
    """Texts of a recording that are too long for a short message."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _long_texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _long_texts(one)
    elif isinstance(value, str) and len(value) > 100 and "\n" in value:
        yield value


# ------------------------------------------------------------------------------- the service that streams


@pytest.fixture
def load_streaming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Loads the streaming service anew; its database is in the test's folder."""
    monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'users.db'}")
    return lambda: load_example("fastapi_sqlalchemy", monkeypatch).app


@pytest.fixture
def _provider(sim: SimServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streaming service asks a provider of the test's."""
    monkeypatch.setenv("GOAITOOLS_MODEL", "openai:any")
    monkeypatch.setenv("OPENAI_BASE_URL", sim.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sim")


def streamed(client: TestClient, user: str, text: str) -> tuple[list[str], str]:
    """The names of a reply's events, and its text."""
    body = client.post(f"/chat/{user}", params={"text": text}).text
    events = re.findall(r"^event: (.+)$", body, re.M)
    return events, "".join(map(json.loads, re.findall(r"^event: text\ndata: (.+)$", body, re.M)))


def has_row(database: Path, user: str) -> bool:
    """Whether there is a row of this user."""
    with closing(sqlite3.connect(database)) as db:
        return db.execute("SELECT 1 FROM user WHERE name = ?", [user]).fetchone() is not None


def state_in(database: Path, user: str) -> bytes:
    """The state in a user's row."""
    with closing(sqlite3.connect(database)) as db:
        (state,) = db.execute("SELECT state FROM user WHERE name = ?", [user]).fetchone()
    return bytes(state)


def test_a_streamed_reply_is_remembered_across_a_restart(load_streaming: Callable[[], Any]) -> None:
    """The reply comes in pieces, and a restarted service answers from the column."""
    with TestClient(load_streaming()) as client:
        told, _ = streamed(client, "a", "My name is Ada.")
    with TestClient(load_streaming()) as client:
        events, text = streamed(client, "a", "What is my name?")

    assert told.count("text") > 1
    assert events == ["text"] * (len(events) - 1) + ["done"]
    assert text == "[simulated] Your name is Ada."


@pytest.mark.usefixtures("_provider")
def test_a_failed_stream_is_saved_too(
    load_streaming: Callable[[], Any], sim: SimServer, tmp_path: Path
) -> None:
    """A provider that is down is an event; what the user said is in the column, and answered later."""
    sim.push(*[Fault.rate_limit(retry_after=0.001)] * 3)

    with TestClient(load_streaming()) as client:
        failed, _ = streamed(client, "ada", "My name is Ada.")
        between = inspect_state(state_in(tmp_path / "users.db", "ada"))
        _, text = streamed(client, "ada", "What is my name?")

    assert failed == ["failed"]
    assert between.status in ("failed", "in_progress")
    assert text == "[simulated] Your name is Ada."


@pytest.mark.usefixtures("_provider")
def test_a_stream_that_nobody_hears_is_saved_too(
    load_streaming: Callable[[], Any], sim: SimServer, tmp_path: Path
) -> None:
    """When the listener goes away while the model thinks, what there is of the turn is in the column."""
    sim.push(Fault.hold(threading.Event(), after=4))
    app = load_streaming()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/chat/ada",
        "query_string": b"text=My+name+is+Ada.",
        "headers": [],
    }

    async def run() -> bytes:
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message.get("body"):
                gone.set()

        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            for _ in range(400):  # the service may still be saving when its last word is sent
                if has_row(tmp_path / "users.db", "ada"):
                    break
                await asyncio.sleep(0.01)
            return state_in(tmp_path / "users.db", "ada")

    state = asyncio.run(run())

    assert "My name is Ada." in [message.text for message in read_history(state).all_messages()]
    assert inspect_state(state).status != "complete"
