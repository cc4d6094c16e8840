"""`goaitools chat`: lines in, replies out, every turn kept."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, StoreUnavailableError, Tool
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.dialects import WIRES
from goaitools_py.cli import main
from goaitools_py.cli.chat_command import add_to as chat_options
from goaitools_py.cli.chat_options import opening_of
from goaitools_py.cli.line_chat import LineChat, typed_lines
from goaitools_py.cli.session import CONVERSATION
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state import apart
from goaitools_py.state.blob_header import peek
from goaitools_py.states import inspect_state, read_history
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend

NAME, SCORE = "My name is Ada.", "Ada reached Harrogate Theatre: +50 points"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tester's own model and store stay out of it."""
    monkeypatch.delenv("GOAITOOLS_MODEL", raising=False)
    monkeypatch.delenv("GOAITOOLS_STORE", raising=False)


@pytest.fixture
def store() -> Iterator[SQLiteStore]:
    """An empty store in memory."""
    with SQLiteStore(":memory:") as made:
        yield made


def _type(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def _talk(store: Any, lines: Iterable[str], *steps: Any) -> int:
    """A conversation with a scripted model in the thread "ada"."""
    return LineChat(Chat(ScriptedBackend(*steps)), store, "ada").run(lines)


def _said(store: SQLiteStore, key: str = "ada") -> list[str]:
    """The stored conversation, waiting messages included."""
    stored = store.load(key)
    return [message.text for message in read_history(stored.blob).all_messages()] if stored else []


# ------------------------------------------------------------------------------------- the command


def test_without_a_model_it_says_how_to_name_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No model is a usage error that names the simulator; it is never chosen silently."""
    _type(monkeypatch, NAME)

    code = main(["chat"])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "--model sim" in err
    assert "GOAITOOLS_MODEL" in err


@pytest.mark.parametrize("model", ["gpt", "openai:", "telegraph:x"])
def test_a_model_that_nobody_knows_is_a_usage_error(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is no backend's is exit code 2 and says what would be."""
    _type(monkeypatch)

    assert main(["chat", "--model", model]) == 2
    assert "openai:MODEL" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["chat"], ["chat", "--help"], ["chat", "--model", "telegraph:x"]])
def test_it_names_every_wire(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks how to name a model, or names none that there is, reads all that can be named."""
    main(arguments)

    said = " ".join("".join(capsys.readouterr()).split())
    assert [wire for wire in WIRES if f"{wire}:MODEL" not in said] == []


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_on_each_wire(
    wire: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulator is talked with on each wire, in two runs; what is kept can be looked into."""
    store = str(tmp_path / "chat.sqlite3")
    arguments = ["chat", "--model", f"sim:{wire}", "--store", store]
    _type(monkeypatch, NAME)
    assert main(arguments) == 0
    capsys.readouterr()
    _type(monkeypatch, "What is my name?")

    code = main(arguments)

    assert code == 0
    assert "Your name is Ada" in capsys.readouterr().out
    assert main(["inspect", "--store", store, "--show"]) == 0
    out = capsys.readouterr().out
    assert f"provider API  {wire}, endpoint local\n" in out
    assert NAME in out


def test_a_conversation_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run twice on the same file, the second run knows what was said in the first, events included."""
    store = str(tmp_path / "chat.sqlite3")
    _type(monkeypatch, NAME, f"/event {SCORE}")
    assert main(["chat", "--model", "sim", "--store", store, "--thread", "ada"]) == 0
    capsys.readouterr()
    _type(monkeypatch, "What is my name, and what is my score?")

    code = main(["chat", "--model", "sim", "--store", store, "--thread", "ada"])

    out, err = capsys.readouterr()
    assert code == 0
    assert out == "[simulated] Your name is Ada. The score is 50 points.\n"
    assert "Replies are simulated" in err


def test_a_history_in_parts_is_read_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row decides how it is read: commands look into it, and the chat goes on with it."""
    monkeypatch.setattr(apart, "SMALL", 1)
    path = tmp_path / "chat.sqlite3"
    with SQLiteStore(path) as kept, Chat("sim") as chat:
        conversation = chat.conversation(kept, "ada", parts="store")
        for text in (NAME, "Hello.", "Hello again."):
            conversation.send(text)
        found = kept.load_head("ada")
    assert found is not None
    assert found.parts
    where = ["--store", str(path), "--key", "ada"]
    for command in (["inspect", "--show"], ["cost"], ["export"]):
        assert main([*command, *where]) == 0
        assert command == ["cost"] or NAME in capsys.readouterr().out
    _type(monkeypatch, "What is my name?")

    assert main(["chat", "--model", "sim", "--store", str(path), "--thread", "ada"]) == 0

    assert capsys.readouterr().out.endswith("[simulated] Your name is Ada.\n")
    with SQLiteStore(path) as kept:
        assert _said(kept)[0] == NAME
        found = kept.load_head("ada")
    assert found is not None
    assert not found.parts


def test_model_and_store_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """GOAITOOLS_MODEL and GOAITOOLS_STORE stand in for the options."""
    monkeypatch.setenv("GOAITOOLS_MODEL", "sim")
    monkeypatch.setenv("GOAITOOLS_STORE", str(tmp_path / "chat.sqlite3"))
    _type(monkeypatch, f"/event {SCORE}")

    assert main(["chat"]) == 0

    assert "Replies are simulated" in capsys.readouterr().err
    with SQLiteStore(tmp_path / "chat.sqlite3") as store:
        assert _said(store, "default") == [SCORE]


@pytest.mark.parametrize("table", [[], ["--table", "talks"]])
def test_a_store_may_be_named_by_its_url(
    table: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The URL and the table that the other commands take. The table is made with the first save."""
    url = f"sqlite:///{tmp_path / 'chat.sqlite3'}"
    arguments = ["chat", "--model", "sim", "--store", url, "--key", "ada", *table]
    _type(monkeypatch, NAME)
    assert main(arguments) == 0
    capsys.readouterr()
    _type(monkeypatch, "What is my name?", "/threads")

    assert main(arguments) == 0

    out = capsys.readouterr().out
    assert "Your name is Ada" in out
    assert "* ada, 2 turns" in out
    assert main(["inspect", "--store", url, "--key", "ada", "--show", *table]) == 0
    assert NAME in capsys.readouterr().out


@pytest.mark.parametrize("where", ["file", "table", "session", "memory"])
def test_the_app_s_store_is_the_same(where: str, tmp_path: Path) -> None:
    """A conversation of an event loop is saved where line mode looks for it, in each kind of place."""
    url = f"sqlite:///{tmp_path / 'chat.sqlite3'}"
    options = {
        "file": ["--store", url],
        "table": ["--store", url, "--table", "talks"],
        "session": ["--session", str(tmp_path / "ada.goai")],
        "memory": [],
    }[where]
    root = argparse.ArgumentParser()
    chat_options(root.add_subparsers())
    opening = opening_of(root.parse_args(["chat", "--model", "sim", *options]))

    async def talk() -> None:
        async with opening.async_store() as store, opening.async_chat() as chat:
            result = await chat.conversation(store, opening.key, **CONVERSATION).send(NAME)
            assert result.status == "complete"
            assert [found.key for found in (await store.list()).keys] == [opening.key]

    asyncio.run(talk())
    with opening.store() as store:
        stored = store.load(opening.key)
    assert (stored is None) is (where == "memory")
    if stored is not None:
        assert NAME in [message.text for message in read_history(stored.blob).all_messages()]


def test_a_server_that_does_not_answer_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, before anything is said."""
    pytest.importorskip("redis")
    _type(monkeypatch, NAME)

    assert main(["chat", "--model", "sim", "--store", "redis://:s3cret@127.0.0.1:1/0"]) == 1

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "s3cret" not in err


def test_a_table_without_a_store_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would name nothing."""
    _type(monkeypatch)

    assert main(["chat", "--model", "sim", "--table", "talks"]) == 2
    assert "name the --store URL too" in capsys.readouterr().err


def test_a_blob_that_cannot_be_read_is_not_talked_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged state ends the command before anything is said, and stays as it is."""
    path = tmp_path / "chat.sqlite3"
    with SQLiteStore(path) as store:
        store.save("default", b"damaged", expected=None)
    _type(monkeypatch)

    assert main(["chat", "--model", "sim", "--store", str(path)]) == 1

    assert capsys.readouterr().out == ""
    with SQLiteStore(path) as store:
        stored = store.load("default")
    assert stored is not None
    assert stored.blob == b"damaged"


def test_another_wire_s_conversation_is_not_talked_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thread of another provider ends the command before anything is said, naming both."""
    store = str(tmp_path / "chat.sqlite3")
    _type(monkeypatch, NAME)
    assert main(["chat", "--model", "sim:anthropic", "--store", store]) == 0
    capsys.readouterr()
    _type(monkeypatch)

    assert main(["chat", "--model", "sim:openai", "--store", store]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert "anthropic" in err
    assert "openai" in err


def test_without_a_key_the_conversation_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A provider without a key fails at the first turn, by the name of the variable to set."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _type(monkeypatch, NAME)

    assert main(["chat", "--model", "openai:some-model"]) == 1

    assert "OPENAI_API_KEY" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ sealed threads

KEY = Key(bytes(range(32)))
OPENS = ["--key-env", "STATE_KEY", "--binding", "user=ada"]
CODECS = [
    Signed(Keyring(KEY)),
    Encrypted(Keyring(KEY)),
    Encrypted(Keyring(KEY), visible_to="client"),
]


@pytest.fixture(params=CODECS, ids=["signed", "encrypted", "encrypted for clients"])
def sealed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store with a thread that an application has sealed, and the codec."""
    monkeypatch.setenv("STATE_KEY", KEY.to_text())
    chat = Chat(ScriptedBackend("Hello Ada."), codec=request.param)
    with SQLiteStore(tmp_path / "sealed.sqlite3") as store:
        chat.conversation(store, "default", binding={"user": "ada"}).send(NAME)
    return str(tmp_path / "sealed.sqlite3"), request.param


def test_a_sealed_thread_goes_on_under_its_seal(sealed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its key and binding it is talked in; what is stored then is what its application can open."""
    path, codec = sealed
    _type(monkeypatch, "What is my name?")

    assert main(["chat", "--model", "sim", "--store", path, *OPENS]) == 0

    with SQLiteStore(path) as store:
        stored = store.load("default")
    assert stored is not None
    history = read_history(stored.blob, codec=codec, binding={"user": "ada"})
    assert [message.text for message in history.all_messages()][:3:2] == [NAME, "What is my name?"]
    assert bool(peek(stored.blob).compression) is codec.compresses


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "the state is sealed; name the environment variable with its key: --key-env NAME"),
        (["--key-env", "STATE_KEY"], "refused: the key in STATE_KEY"),
        ([*OPENS, "--thread", "bob"], "there is no conversation 'bob'"),
    ],
)
def test_a_sealed_thread_that_is_not_opened_is_not_talked_over(
    options: list[str],
    said: str,
    sealed: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without its key or binding the command ends before anything is said, and says what to name."""
    path, _ = sealed
    with SQLiteStore(path) as store:
        before = store.load("default")
    _type(monkeypatch, "Hello?")

    assert main(["chat", "--model", "sim", "--store", path, *options]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    with SQLiteStore(path) as store:
        assert store.load("default") == before
        assert len(store.list().keys) == 1


def test_a_binding_without_a_key_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A conversation that is not sealed belongs to nobody."""
    _type(monkeypatch)

    assert main(["chat", "--model", "sim", "--binding", "user=ada"]) == 2

    assert "--key-env NAME" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------- turns


def test_replies_go_to_standard_output_and_nothing_else_does(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets the replies, one after the other; empty lines ask nothing."""
    assert _talk(store, ["Hi\n", "\n", "  Bye  \n"], "Hello.", "Farewell.") == 0

    assert capsys.readouterr() == ("Hello.\nFarewell.\n", "")
    assert _said(store) == ["Hi", "Hello.", "Bye", "Farewell."]


def test_every_turn_is_saved_at_once(store: SQLiteStore) -> None:
    """Before the next line is read, the turn before it is in the store."""
    seen: list[list[str]] = []

    def lines() -> Iterator[str]:
        for line in ("one", "two"):
            yield line
            seen.append(_said(store))

    _talk(store, lines(), "1", "2")

    assert seen == [["one", "1"], ["one", "1", "two", "2"]]


def test_control_characters_of_a_reply_are_shown_not_sent(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model cannot steer the terminal."""
    _talk(store, ["Hi"], "\x1b[2Jgone")

    assert capsys.readouterr().out == "\\u001b[2Jgone\n"


def test_quit_ends_before_the_rest(store: SQLiteStore) -> None:
    """What follows /quit is not read."""
    assert _talk(store, ["Hi", "/quit", "more"], "Hello.") == 0
    assert _said(store) == ["Hi", "Hello."]


# ----------------------------------------------------------------------------------------- commands


def test_an_event_waits_for_the_next_turn(store: SQLiteStore) -> None:
    """/event asks no model; the next turn takes the event along, before the user's words."""
    _talk(store, [f"/event {SCORE}", "And?"], "Noted.")

    assert _said(store) == [SCORE, "And?", "Noted."]


def test_info_and_history_show_the_state(store: SQLiteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """/info has the counts, /history the words."""
    _talk(store, ["Hi", "/info", "/history"], "Hello.")

    out = capsys.readouterr().out
    assert "  messages      2, and 0 that no model has seen\n" in out
    assert "  user       Hi\n  assistant  Hello.\n" in out


@pytest.mark.parametrize("command", ["/info", "/history"])
def test_there_is_nothing_to_show_at_first(
    command: str, store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the first turn the commands say so."""
    assert _talk(store, [command]) == 0
    assert capsys.readouterr() == ("", "Nothing was said yet.\n")


@pytest.mark.parametrize("line", ["/dance", "/event", "/event  ", "/information"])
def test_an_unknown_command_says_where_the_known_ones_are(
    line: str, store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that begins with a slash never goes to the model."""
    assert _talk(store, [line]) == 0
    assert "/help lists all" in capsys.readouterr().err


# ----------------------------------------------------------------------------------- when it fails


def test_a_failed_turn_is_kept_and_resumed(store: SQLiteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """After an outage the message is in the store, and /resume gets the answer to it."""
    assert _talk(store, ["Hi"], BackendError("down")) == 1
    assert _said(store) == ["Hi"]
    assert "/resume asks again" in capsys.readouterr().err

    assert _talk(store, ["/resume"], "Hello.") == 0

    assert _said(store) == ["Hi", "Hello."]
    assert capsys.readouterr().out == "Hello.\n"


def test_a_conversation_goes_on_after_a_failure(store: SQLiteStore) -> None:
    """The next line is answered, and the model sees both."""
    assert _talk(store, ["Hi", "Hello?"], BackendError("down"), "Here.") == 0
    assert _said(store) == ["Hi", "Hello?", "Here."]


def test_a_message_that_the_provider_refuses_is_not_kept(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused message would be refused for ever: it leaves the conversation, and the text says so."""
    assert _talk(store, ["Hi", "bad"], "Hello.", BackendError("no", status=400)) == 1

    assert _said(store) == ["Hi", "Hello."]
    assert "not accepted" in capsys.readouterr().err


def test_a_wait_that_the_provider_asks_for_is_told(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retry-After is printed in seconds."""
    _talk(store, ["Hi"], BackendError("slow down", status=429, headers={"retry-after": "600"}))

    assert "wait 600 seconds" in capsys.readouterr().err


def test_a_failed_resume_can_be_tried_again(store: SQLiteStore) -> None:
    """Each failure keeps the message; the exit code is that of the last attempt."""
    assert _talk(store, ["Hi", "/resume"], BackendError("down"), BackendError("down")) == 1
    assert _talk(store, ["/resume"], "Hello.") == 0


def test_there_may_be_nothing_to_resume(store: SQLiteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """On a finished turn, and before the first, /resume says so and asks no model."""
    assert _talk(store, ["/resume", "Hi", "/resume"], "Hello.") == 0
    assert capsys.readouterr().err.count("nothing to resume") == 2


def test_an_interrupted_reply_keeps_the_conversation(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C during a reply ends the reply only: its question is kept and can be resumed."""

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    assert _talk(store, ["Hi", "More", "/resume"], "Hello.", interrupted, "Sure.") == 0

    assert _said(store) == ["Hi", "Hello.", "More", "Sure."]
    assert "Cancelled" in capsys.readouterr().err


# -------------------------------------------------------------------- what another process left open


@pytest.fixture
def waiting(store: SQLiteStore) -> str:
    """The thread "ada" waits for an approval and a result; the ids of the two calls."""
    door = Tool("open_door", "Open.", {"type": "object"}, print, requires_approval=True)
    guard = Tool("ask_guard", "Ask.", {"type": "object"}, external=True)
    calls = Calls([("open_door", {"code": 987654321012}), ("ask_guard", {})])
    result = Chat(ScriptedBackend(calls), tools=[door, guard]).chat(user="Open the door.")
    store.save("ada", result.state, expected=None)
    return "\n".join(f"  pending       {call.name} {call.id}" for call in result.pending)


def test_a_line_does_not_pass_by_calls_that_wait(
    store: SQLiteStore, waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line on a conversation that waits is not sent: what waits is named, by name and id, and stays."""
    before = store.load("ada")

    assert _talk(store, ["Hello?"]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert "Your line was not sent.\nThis conversation waits for 2 answers:\n" in err
    assert all(err.count(line) == 2 for line in waiting.splitlines())  # at the beginning, and now
    assert err.count("code: 987654321012") == 2  # what a person approves
    assert store.load("ada") == before


def test_a_resume_that_still_waits_says_so(
    store: SQLiteStore, waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """/resume answers nothing by itself: it asks no model, prints no empty reply, and what waits waits."""
    assert _talk(store, ["/resume"]) == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("waits for 2 answers") == 2
    stored = store.load("ada")
    assert stored is not None
    assert inspect_state(stored.blob).status == "awaiting_tools"


def test_calls_that_wait_can_be_denied(
    store: SQLiteStore, waiting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """/deny WHY denies all that waits, the model reads why, and the conversation goes on."""
    assert _talk(store, ["/deny It is late.", "Thanks", "/deny"], "Then not.", "Bye.") == 0

    out, err = capsys.readouterr()
    assert out == "Then not.\nBye.\n"
    assert "There is nothing to deny." in err
    said = _said(store)
    assert said[2:] == ["This tool call was denied: It is late."] * 2 + ["Then not.", "Thanks", "Bye."]


def test_an_unfinished_turn_is_announced(store: SQLiteStore, capsys: pytest.CaptureFixture[str]) -> None:
    """Who opens a thread whose last turn broke off reads how to finish it."""
    _talk(store, ["Hi"], BackendError("down"))
    capsys.readouterr()

    assert _talk(store, ["/resume"], "Hello.") == 0
    assert "The last turn is unfinished: /resume finishes it" in capsys.readouterr().err

    assert _talk(store, []) == 0
    assert capsys.readouterr() == ("", "")


# --------------------------------------------------------------------------------- somebody else


def test_what_somebody_else_said_between_two_lines_is_kept(store: SQLiteStore) -> None:
    """Each line goes behind what is stored by then, and the model sees all of it."""

    def lines() -> Iterator[str]:
        yield "mine"
        _talk(store, ["theirs"], "B.")
        yield "next"

    _talk(store, lines(), "A.", "C.")

    assert _said(store) == ["mine", "A.", "theirs", "B.", "next", "C."]


def test_a_turn_that_runs_elsewhere_is_not_waited_for(
    store: SQLiteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """While another process has a turn, a line is refused at once, nothing is called, and it is told."""
    with store.lease("ada", 60.0):
        assert _talk(store, ["Hi"]) == 1

    assert "another turn runs on this conversation" in capsys.readouterr().err
    assert _said(store) == []


class Failing(SQLiteStore):
    """A store that saves nothing while it is told so."""

    fails = False

    def save(self, key: str, blob: bytes, *, expected: int | None) -> int:
        if self.fails:
            raise StoreUnavailableError("the disk is full")
        return super().save(key, blob, expected=expected)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    """An empty store in memory that can fail; the command does not wait for it."""
    monkeypatch.setattr("goaitools_py.cli.line_chat.SAVE_TIMEOUT", 0.0)
    with Failing(":memory:") as made:
        yield made


def _as_it_fails(failing: Failing, step: Any) -> Any:
    """A step of the script: the store fails from here on, as the model answers."""

    def fails(_: object) -> Any:
        failing.fails = True
        if isinstance(step, BaseException):
            raise step
        return step

    return fails


@pytest.mark.parametrize("failed_resume", [False, True])
def test_a_turn_that_was_not_saved_is_saved_before_the_next(
    failing: Failing, failed_resume: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reply is shown, what it came to is saved later, and no model is asked for it again."""
    if failed_resume:
        _talk(failing, ["one"], BackendError("down"))

    def lines() -> Iterator[str]:
        yield "/resume" if failed_resume else "one"
        failing.fails = False
        yield "two"

    code = _talk(failing, lines(), _as_it_fails(failing, "1"), "2")

    out, err = capsys.readouterr()
    assert (code, out) == (0, "1\n2\n")
    assert "Not saved: the disk is full. The next line tries again." in err
    assert _said(failing) == ["one", "1", "two", "2"]


def test_a_failed_turn_that_was_not_saved_is_saved_before_the_next(failing: Failing) -> None:
    """What the user said to a model that was down is not lost to a store that was down as well."""

    def lines() -> Iterator[str]:
        yield "one"
        failing.fails = False
        yield "two"

    assert _talk(failing, lines(), _as_it_fails(failing, BackendError("down")), "2") == 0

    assert _said(failing) == ["one", "two", "2"]


def test_while_a_turn_cannot_be_saved_no_line_is_sent(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line behind a turn that is nowhere would lose it: it waits, and the exit code says so."""
    assert _talk(failing, ["one", "two", "/info"], _as_it_fails(failing, "1")) == 1

    err = capsys.readouterr().err
    assert err.count("Your line was not sent.") == 2
    assert err.count("Still not saved: the disk is full.") == 3  # the last time at the end


def test_a_line_that_the_store_refuses_asks_no_model(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the user says is saved before the model is asked: with a store that fails it costs nothing."""
    failing.fails = True

    assert _talk(failing, ["one"]) == 1

    assert "Failed: the disk is full" in capsys.readouterr().err
    assert _said(failing) == []


def test_a_command_that_the_store_refuses_does_not_end_the_conversation(
    failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    """An event that could not be kept is told, and the next line is answered."""

    def lines() -> Iterator[str]:
        failing.fails = True
        yield f"/event {SCORE}"
        failing.fails = False
        yield "Hi"

    assert _talk(failing, lines(), "Hello.") == 0

    assert "Failed: the disk is full" in capsys.readouterr().err
    assert _said(failing) == ["Hi", "Hello."]


def test_a_thread_that_was_deleted_begins_anew(store: SQLiteStore) -> None:
    """If the conversation was deleted between two lines, it is not brought back."""

    def lines() -> Iterator[str]:
        yield "one"
        store.delete("ada")
        yield "two"

    assert _talk(store, lines(), "1", "2") == 0

    assert _said(store) == ["two", "2"]


@pytest.mark.parametrize("step", ["1", BackendError("down")], ids=["complete", "failed"])
def test_a_thread_that_is_deleted_during_a_turn_stays_deleted(
    store: SQLiteStore, step: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A turn that has nothing left to stand behind is told, and the next one begins anew."""
    assert _talk(store, ["zero"], "0") == 0

    def deleting(request: Any) -> Any:
        store.delete("ada")
        if isinstance(step, BackendError):
            raise step
        return step

    assert _talk(store, ["one", "two"], deleting, "2") == 0

    assert "deleted meanwhile" in capsys.readouterr().err
    assert _said(store) == ["two", "2"]


# ------------------------------------------------------------------------------------- a terminal


def test_ctrl_c_at_the_prompt_clears_the_line(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C between two turns ends neither the conversation nor the command; Ctrl-D does."""
    typed: Iterator[str | type[BaseException]] = iter(["Hi", KeyboardInterrupt, "More", EOFError])

    def typing(prompt: str) -> str:
        line = next(typed)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", typing)

    _talk(store, typed_lines(), "Hello.", "Sure.")

    assert _said(store) == ["Hi", "Hello.", "More", "Sure."]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_prompt() -> None:
    """On a terminal lines are prompted for, and Ctrl-D ends the command with 0."""
    import pty
    import select

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(Path(__file__).resolve().parents[2])
        os.execv(sys.executable, [sys.executable, "-m", "goaitools_py", "chat", "--lines", "--model", "sim"])
    shown = b""

    def wait_for(text: bytes, count: int = 1) -> None:
        nonlocal shown
        while shown.count(text) < count:
            assert select.select([terminal], [], [], 60)[0], shown
            shown += os.read(terminal, 4096)

    try:
        wait_for(b"you> ")
        os.write(terminal, NAME.encode() + b"\n")
        wait_for(b"your name is Ada")
        wait_for(b"you> ", 2)
        os.write(terminal, b"\x04")
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == 0


def test_a_thread_of_another_provider_api_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Both provider APIs, the option that goes on, the option that begins anew; no option of Python's."""
    file = tmp_path / "chats.db"
    with SQLiteStore(file) as store:
        chat = Chat(ScriptedBackend("Hello Ada.", wire="anthropic"))
        chat.conversation(store, "ada").send(NAME)
    _type(monkeypatch, "Who am I?")

    code = main(["chat", "--model", "sim:openai", "--store", str(file), "--thread", "ada"])

    told = capsys.readouterr().err
    assert code == 1
    assert "conversation 'ada'" in told
    assert "provider API 'anthropic'" in told
    assert "--model anthropic:MODEL" in told
    assert "--key KEY" in told
    assert not any(word in told for word in ("on_foreign_state", "state=None", "state_messages"))


# ------------------------------------------------------------------------------------- one message


@pytest.mark.parametrize("text", ["", "  "])
def test_once_needs_a_message(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty variable in a script is wrong usage, in one line."""
    assert main(["chat", "--model", "sim", "--once", text]) == 2
    assert capsys.readouterr().err.endswith("error: --once needs a message, and this one is empty\n")


def test_once_says_what_a_waiting_reply_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The calls that wait, and where they are answered; the same for the next message."""
    (tmp_path / "desk_tools.py").write_text(
        "from goaitools_py import tool\n"
        "@tool(requires_approval=True)\n"
        "def refund(euros: int) -> str:\n"
        "    'Pay money back.'\n"
        "    return 'paid'\n"
    )
    monkeypatch.chdir(tmp_path)
    line = ["chat", "--model", "sim", "--tools", "desk_tools:refund", "--store", "desk.db", "--once"]
    waits = (
        "waits for answers to calls (refund): run `goaitools chat` with the same options, without --once, "
        "and answer with /approve or /deny\n"
    )

    assert main([*line, "Refund 30 euros."]) == 1
    assert capsys.readouterr().err == f"goaitools: the reply {waits}"
    assert main([*line, "Hello?"]) == 1
    assert capsys.readouterr().err == f"goaitools: the conversation {waits}"
