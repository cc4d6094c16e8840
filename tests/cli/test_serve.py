"""`goaitools serve`: a page in the browser, by command."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from goaitools_py import AsyncChat
from goaitools_py.cli import main
from goaitools_py.cli import serve as serve_command
from goaitools_py.cli.store_urls import shown_url
from goaitools_py.serve.page.page_app import page_app
from goaitools_py.stores import AsyncMemoryStore

from ..stores._places import place_of

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def served(*options: str, cwd: Path, env: dict[str, str] | None = None) -> Iterator[tuple[str, str, Any]]:
    """The command in a process of its own: its address, what it printed, and the process."""
    command = [sys.executable, "-m", "goaitools_py", "serve", "--port", "0", *options]
    given = {name: value for name, value in os.environ.items() if not name.startswith("GOAITOOLS_")}
    given |= {"PYTHONPATH": str(ROOT), **(env or {})}
    with subprocess.Popen(
        command, cwd=cwd, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = "".join(process.stdout.readline() for _ in range(1 if "--json" in options else 3))
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", lines)
            assert found is not None, (lines, process.stderr and process.stderr.read())
            yield found[0], lines, process
        finally:
            process.kill()


def asked(address: str, path: str, body: Any = None, **headers: str) -> Any:
    """A request, and its JSON."""
    data = None if body is None else json.dumps(body).encode()
    sent = {"content-type": "application/json", **headers}
    request = urllib.request.Request(f"{address}{path}", data=data, headers=sent)
    with OPENER.open(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read() or b"null")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT for another process")
def test_the_demo_is_served_until_interrupted(tmp_path: Path) -> None:
    """It says that it is a simulator, keeps what was said in a file, and ends with 0 on Ctrl-C."""
    with served("--demo", "--store", "chat.db", cwd=tmp_path) as (address, lines, process):
        about = asked(address, "about")
        said = {"text": "My name is Ada. Look around the Theatre.", "turn_id": "m1"}
        answer = asked(address, "api/conversations/hall/turns", said)
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE)
        errors = process.stderr.read()

    assert "simulator" in lines
    assert "chat.db" in lines
    assert (about["simulated"], bool(about["hints"])) == (True, True)
    assert answer["text"] == "[simulated] look_around: a stage, and a locked box."
    assert (code, errors) == (0, "")
    assert (tmp_path / "chat.db").exists()


def test_a_chat_of_ones_own_is_served(tmp_path: Path) -> None:
    """With its own tools and system text; a browser must show the token that the environment has."""
    (tmp_path / "app.py").write_text(
        textwrap.dedent(
            """
            from goaitools_py import AsyncChat, tool

            @tool
            def get_score(team: str) -> int:
                "Score of a team."
                return 30

            chat = AsyncChat("sim", tools=[get_score])
            """
        )
    )
    options = ("app:chat", "--auth-env", "PAGE_TOKEN")
    with served(*options, "--json", cwd=tmp_path, env={"PAGE_TOKEN": "t" * 16}) as (address, line, _):
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked(address, "about")
        bearer = {"authorization": f"Bearer {'t' * 16}"}
        said = {"text": "Get the score of Red.", "turn_id": "m1"}
        answer = asked(address, "api/conversations/hall/turns", said, **bearer)

    refused.value.close()
    assert refused.value.code == 401
    assert "get_score: 30" in answer["text"]
    facts = json.loads(line)
    assert (facts["url"], facts["model"], facts["simulated"]) == (address, "app:chat", False)
    assert (facts["store"], facts["token_env"]) == (None, "PAGE_TOKEN")


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ([], "127.0.0.1", 200),
        ([], "localhost", 200),
        ([], "10.0.0.7", 421),
        ([], "chat.example", 421),
        (["chat.example", "Chat2.Example"], "chat.example:443", 200),
        (["chat.example", "Chat2.Example"], "CHAT2.example", 200),
        (["chat.example"], "10.0.0.7", 200),
        (["chat.example"], "evil.example", 421),
        (["chat.example"], "chat.example.evil.example", 421),
    ],
)
def test_browsers_reach_it_under_its_own_names_only(
    allowed: list[str], host: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that --allow-host gives; without it those of this machine. A page whose foreign name was
    bound to this address is refused, and so is a page of another origin. Nobody listens on a port here."""
    answers: list[int] = []

    async def asked_once(args: Any, opened: Any, settings: Any, listener: Any) -> None:
        async with AsyncChat("sim") as chat:
            transport = httpx.ASGITransport(page_app(chat, AsyncMemoryStore(), settings))
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                for origin in (f"http://{host}", "http://evil.example"):
                    sent = {"host": host, "origin": origin}
                    answers.append((await client.get("/about", headers=sent)).status_code)

    monkeypatch.setattr(serve_command, "_serve", asked_once)
    names = [option for name in allowed for option in ("--allow-host", name)]

    assert main(["serve", "--demo", "--port", "0", *names]) == 0
    assert answers == [status, 403 if status == 200 else 421]


def test_where_parts_stand_is_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--parts goes to the page; without it the store decides."""
    chosen: list[str | None] = []

    def noted(chat: Any, store: Any, settings: Any, *, parts: str | None, **how: Any) -> Any:
        chosen.append(parts)
        raise KeyboardInterrupt

    monkeypatch.setattr("goaitools_py.serve.page.page_app.page_app", noted)
    for given in ([], ["--parts", "store"], ["--parts", "inline"]):
        assert main(["serve", "--demo", "--port", "0", *given]) == 0
    assert chosen == [None, "store", "inline"]
    assert main(["serve", "--demo", "--parts", "beside"]) == 2
    assert "'store', 'inline'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sqlite", "sqlalchemy-sqlite", "postgresql", "mariadb", "redis"])
def test_a_store_is_named_by_its_url(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URL that the other commands take: the page goes on with what `goaitools chat` has begun, lists it,
    and shows its facts. What the page adds is there for `goaitools inspect`."""
    with place_of(kind, tmp_path) as place:
        url, _, prefix = place.url.partition("#")
        table = ["--table", prefix or "talks"] if kind != "sqlite" else []
        where = ["--store", url, *table]
        monkeypatch.setattr("sys.stdin", io.StringIO("My name is Ada.\n"))
        assert main(["chat", "--model", "sim", *where, "--key", "user-7/hall"]) == 0
        with served("--model", "sim", *where, "--json", cwd=tmp_path) as (address, line, _):
            [row] = asked(address, "conversations")["conversations"]
            said = {"text": "What is my name?", "turn_id": "m1"}
            answer = asked(address, f"api/conversations/{row['name']}/turns", said)
            facts = asked(address, f"conversations/{row['name']}/facts")
            [again] = asked(address, "conversations")["conversations"]
        capsys.readouterr()
        assert main(["inspect", *where, "--key", "user-7/hall", "--show"]) == 0

    assert (row["key"], row["turns"], again["turns"]) == ("user-7/hall", 1, 2)
    assert answer["text"] == "[simulated] Your name is Ada."
    assert [turn["said"] for turn in facts["turns"]] == ["What is my name?", "My name is Ada."]
    assert json.loads(line)["store"] == shown_url(url)
    assert "What is my name?" in capsys.readouterr().out


@pytest.mark.parametrize(
    "url",
    ["redis://:s3cret@127.0.0.1:1/0", "postgresql+psycopg://u:s3cret@127.0.0.1:1/db"],
    ids=["one", "two"],
)
def test_a_server_that_does_not_answer_is_told_without_its_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, before an address is printed."""
    pytest.importorskip("redis")

    assert main(["serve", "--demo", "--port", "0", "--store", url]) == 1

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "s3cret" not in err


WRONG = {
    "nothing to serve": ([], "--demo"),
    "two chats": (["--demo", "--model", "sim"], "one of"),
    "options of a model": (["--demo", "--system", "x"], "--system goes with --model"),
    "another host": (["--demo", "--host", "0.0.0.0"], "--auth-env"),
    "no token": (["--demo", "--auth-env", "NO_SUCH_VARIABLE"], "at least 16 characters"),
    "no module": (["no_such_module_of_anybody:chat"], "no module"),
    "no chat": (["json:dumps"], "no AsyncChat"),
    "a chat of the other kind": (["goaitools_py:Chat"], "no AsyncChat"),
    "no colon": (["json"], "MODULE:NAME"),
    "unknown model": (["--model", "nobody:x"], "unknown backend"),
    "a port": (["--demo", "--port", "70000"], "65535"),
    "a host with a scheme": (["--demo", "--allow-host", "https://chat.example"], "without scheme"),
    "a host with a port": (["--demo", "--allow-host", "chat.example:80"], "without scheme, port"),
    "any host": (["--demo", "--allow-host", "*"], "without scheme"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with 2, and says what to do."""
    monkeypatch.delenv("GOAITOOLS_MODEL", raising=False)
    options, text = WRONG[name]
    assert main(["serve", *options]) == 2
    assert text in capsys.readouterr().err


def test_a_port_in_use_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--demo", "--port", str(taken.getsockname()[1])]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("store", ["nobody://x", "postgresql+psycopg://u:secret@127.0.0.1:x/db"])
def test_a_store_that_is_none(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a problem of one line, without the password."""
    assert main(["serve", "--demo", "--port", "0", "--store", store]) == 1
    err = capsys.readouterr().err
    assert "cannot be opened" in err
    assert "secret" not in err
    assert err.count("\n") == 1
