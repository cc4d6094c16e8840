"""The commands of a chat line by line, and `--once`, `--session` and `--tools`."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, tool
from goaitools_py.cli import main
from goaitools_py.cli.line_chat import LineChat
from goaitools_py.states import import_state, inspect_state, read_history
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend

NAME = "My name is Ada."


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the tester, and a folder of its own for files."""
    monkeypatch.delenv("GOAITOOLS_MODEL", raising=False)
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.fixture
def store() -> Any:
    """An empty store in memory."""
    with SQLiteStore(":memory:") as made:
        yield made


@tool(requires_approval=True)
def open_box(code: int) -> str:
    """Open the box.

    Args:
        code: Four digits.
    """
    return f"It opens with {code}."


def _talk(store: Any, lines: list[str], *steps: Any) -> int:
    return LineChat(Chat(ScriptedBackend(*steps), tools=[open_box]), store, "ada").run(lines)


def _said(store: Any, key: str = "ada") -> list[str]:
    stored = store.load(key)
    return [message.said for message in read_history(stored.blob).all_messages()] if stored else []


def test_each_reply_says_what_it_took(
    store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds, iterations and tokens, on a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _talk(store, ["Hello.", "/resume"], "Hello, Ada.")

    shown = capsys.readouterr()
    assert shown.out == "Hello, Ada.\n"
    assert len(re.findall(r"^\d+\.\d s, 1 iteration, \d+ tokens in, \d+ out$", shown.err, re.M)) == 1


# ----------------------------------------------------------------------------------------- commands


def test_new_conversations_and_back(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """/new begins one, /threads lists them with a star at the one at hand, and goes to one."""
    lines = ["Hi", "/new", "Hello", "/threads", "/threads ada", "Bye", "/new ada", "/threads eve"]

    assert _talk(store, lines, "1", "2", "3") == 0

    out, err = capsys.readouterr()
    assert _said(store, "ada") == ["Hi", "1", "Bye", "3"]
    assert _said(store, "chat-1") == ["Hello", "2"]
    assert "* chat-1, 1 turn, 2" in out
    assert "  ada, 1 turn, 2" in out
    assert "There is a conversation 'ada' already" in err
    assert "There is no conversation 'eve'" in err


def test_fork_and_rewind(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """/fork goes on in a copy; /rewind takes turns away there, and the first one keeps them."""
    lines = ["Hi", "More", "/fork", "/rewind 1", "Else", "/rewind x", "/rewind 9", "/fork ada"]

    assert _talk(store, lines, "1", "2", "3") == 1  # the last two commands cannot be done

    err = capsys.readouterr().err
    assert _said(store, "ada") == ["Hi", "1", "More", "2"]
    assert _said(store, "ada-2") == ["Hi", "1", "Else", "3"]
    assert "/rewind takes a number of turns." in err
    assert err.count("Failed: ") == 2


@pytest.mark.parametrize(("answer", "left"), [("yes", []), ("no", ["Hi", "1"]), ("", ["Hi", "1"])])
def test_reset_asks_first(
    answer: str, left: list[str], store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next line is the answer, and is not sent; only a yes forgets."""
    assert _talk(store, ["Hi", "/reset", answer], "1") == 0

    assert _said(store) == left
    assert "Forget conversation 'ada' with 1 turn? Type yes:" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["/fork", "/rewind", "/reset", "/export", "/inspect", "/history"])
def test_a_command_on_an_empty_conversation(
    line: str, store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to do it with, and that is said."""
    assert _talk(store, [line]) == 0

    assert capsys.readouterr() == ("", "Nothing was said yet.\n")
    assert store.list().keys == ()


def test_approve_lets_a_call_run(store: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The call and its result are told on standard error; only replies go to standard output."""
    script = (Calls([("open_box", {"code": 1815})]), "Open.")

    assert _talk(store, ["/approve", "Open it", "/approve"], *script) == 0

    out, err = capsys.readouterr()
    assert out == "Open.\n"
    assert "There is nothing to approve." in err
    assert 'tool open_box {"code": 1815}' in err or 'tool open_box {"code":1815}' in err
    assert "tool open_box: It opens with 1815." in err


def test_exports(store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Markdown, JSON that can be imported, and the bytes; a file that is there stays."""
    lines = ["Hi", "/export", "/export a.json", "/export a.state", "/export a.state"]

    assert _talk(store, lines, "Hello.") == 1

    stored = store.load("ada")
    assert "Hello." in (tmp_path / "ada.md").read_text("utf-8")
    assert read_history(import_state(json.loads((tmp_path / "a.json").read_text("utf-8")))).turns
    assert (tmp_path / "a.state").read_bytes() == stored.blob
    assert "File exists" in capsys.readouterr().err


def test_a_text_of_several_lines_is_one_message(store: Any) -> None:
    """As a terminal gives them after a paste."""
    _talk(store, ["one\ntwo\n"], "1")

    assert _said(store) == ["one\ntwo", "1"]


# --------------------------------------------------------------------------------- options of the command


def test_once_prints_the_reply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One message, one reply, and the next call goes on."""
    arguments = ["chat", "--model", "sim", "--store", "chat.db", "--once"]

    assert main([*arguments, NAME]) == 0
    capsys.readouterr()
    assert main([*arguments, "What is my name?"]) == 0

    assert capsys.readouterr() == ("[simulated] Your name is Ada.\n", "")


def test_once_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dash is the whole of standard input as one message."""
    monkeypatch.setattr("sys.stdin", io.StringIO("My name\nis Ada."))

    assert main(["chat", "--model", "sim", "--session", "ada.goai", "--once", "-"]) == 0
    assert read_history(Path("ada.goai").read_bytes()).all_messages()[0].said == "My name\nis Ada."


def test_once_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The object has the reply and its facts."""
    assert main(["chat", "--model", "sim", "--session", "ada.goai", "--json", "--once", NAME]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["text"].startswith("[simulated]")
    assert (facts["conversation"], facts["status"], facts["pending"]) == ("ada", "complete", [])
    assert facts["usage"]["input_tokens"] > 0


def test_once_as_json_tells_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A turn that fails is an object with an error, and exit code 1."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert main(["chat", "--model", "openai:x", "--session", "ada.goai", "--json", "--once", NAME]) == 1

    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "AuthenticationError"
    assert error["retryable"] is False
    assert inspect_state(Path("ada.goai").read_bytes()).status == "failed"


def test_a_tool_that_waits_is_no_complete_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The call is in the object, and the exit code is 1."""
    (tmp_path / "boxes_of_once.py").write_text(
        "from goaitools_py import tool\n\n"
        "@tool(requires_approval=True)\n"
        "def open_box(code: int) -> str:\n    'Open the box.'\n    return 'Open.'\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    arguments = ["--model", "sim", "--tools", "boxes_of_once:open_box", "--session", "a.goai", "--json"]

    assert main(["chat", *arguments, "--once", "Open the box with code 1815."]) == 1

    facts = json.loads(capsys.readouterr().out)
    assert facts["status"] == "awaiting_tools"
    assert [call["name"] for call in facts["pending"]] == ["open_box"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--json"], "--json goes with --once"),
        (["--session", "a.goai", "--store", "x.db"], "--session FILE is one conversation"),
        (["--session", "a.goai", "--thread", "x"], "--session FILE is one conversation"),
        (["--tools", "nothing"], "--tools is MODULE:NAME"),
        (["--tools", "no_such_module_here:x"], "there is no module 'no_such_module_here'"),
        (["--tools", "json:nothing"], "the module 'json' has no 'nothing'"),
        (["--tools", "json:JSONDecodeError.no"], "the module 'json' has no"),
        (["--tools", "math:pi"], "tool"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and one line says why; nothing is written."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    assert main(["chat", "--model", "sim", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_a_session_file_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A state in a file is a conversation; a fork is a file beside it."""
    arguments = ["chat", "--model", "sim", "--session", "ada.goai"]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{NAME}\n/fork bob\n/threads\n"))
    assert main(arguments) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("What is my name?\n"))
    assert main(arguments) == 0

    out = capsys.readouterr().out
    assert "Your name is Ada" in out
    assert "* bob, " in out
    assert {path.name for path in Path().iterdir()} == {"ada.goai", "bob.goai"}


def test_a_file_that_is_no_state_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """--session never writes over another file."""
    Path("notes.txt").write_text("not a state")

    assert main(["chat", "--model", "sim", "--session", "notes.txt"]) == 1
    assert Path("notes.txt").read_text() == "not a state"
    assert "goaitools: " in capsys.readouterr().err


def test_another_conversation_that_cannot_be_read_is_not_gone_to(
    store: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one at hand stays at hand."""
    store.save("bad", b"damaged", expected=None)

    def check(key: str, blob: bytes) -> None:
        Chat(ScriptedBackend(), on_bad_state="raise").append_to_state(blob)

    talk = LineChat(Chat(ScriptedBackend("1")), store, "ada", check=check)

    assert talk.run(["/threads bad", "Hi"]) == 0
    assert _said(store) == ["Hi", "1"]
    assert "Failed: " in capsys.readouterr().err


def test_on_a_terminal_without_the_extra_it_talks_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line mode stays, and says what brings the app."""
    monkeypatch.setattr("goaitools_py.cli.chat_command._is_terminal", lambda: True)
    monkeypatch.setattr("goaitools_py.cli.chat_command.find_spec", lambda name: None)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{NAME}\n"))

    assert main(["chat", "--model", "sim"]) == 0

    out, err = capsys.readouterr()
    assert "your name is Ada" in out
    assert "goaitools-py[tui]" in err


def test_on_a_terminal_it_is_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra the app is started, unless --lines says not to."""
    started: list[str] = []
    monkeypatch.setattr("goaitools_py.cli.chat_command._is_terminal", lambda: True)
    monkeypatch.setattr("goaitools_py.cli.tui.run_app", lambda opening: started.append(opening.key) or 0)

    assert main(["chat", "--model", "sim", "--thread", "ada"]) == 0
    assert main(["chat", "--model", "sim", "--lines"]) == 0
    assert started == ["ada"]
