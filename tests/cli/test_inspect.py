"""`goaitools inspect`: facts of a blob, content only when asked, one line when there is something wrong."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from goaitools_py import (
    PLAIN,
    UNBOUND,
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    MessageLimit,
    Tool,
    TurnError,
    event,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.cli import main
from goaitools_py.cli.text_output import columns
from goaitools_py.seal import Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.states import pending_calls, state_to_text, update_state
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import Calls, ScriptedBackend

ROOT = Path(__file__).resolve().parents[2]


def look_around(place: str) -> str:
    """What there is to see."""
    return f"a clock in the {place}"


@pytest.fixture
def blob() -> bytes:
    """A conversation with a tool call, a cut, and an event that waits."""
    backend = ScriptedBackend("Hello Ada.", Calls([("look_around", {"place": "station"})]), "A clock.")
    chat = Chat(
        backend,
        system="Be a guide.",
        tools=[look_around],
        compactor=Compactor(MessageLimit(5), KeepRecentTurns(1)),
    )
    result = chat.run_turns(None, ["I am Ada.", "Look around."])
    return chat.append_to_state(result.state, event("Rain began"))


@pytest.fixture
def file(blob: bytes, tmp_path: Path) -> Path:
    """The blob in a file."""
    path = tmp_path / "state.bin"
    path.write_bytes(blob)
    return path


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


# -------------------------------------------------------------------------------------------- facts


def test_it_says_what_the_blob_says_of_itself(
    file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Provider API, model, counts, sizes and cuts are there, each on a line with its label."""
    assert main(["inspect", str(file)]) == 0

    out = capsys.readouterr().out.replace("\n" + " " * 16, " ")  # wrapped lines
    facts = dict(line.strip().split(maxsplit=1) for line in out.partition("\n\n")[0].splitlines())
    assert facts["provider"].startswith("API  openai")
    assert facts["model"] == "scripted"
    assert facts["status"] == "complete"
    assert facts["turns"] == "1 in the history, 2 ever"
    assert facts["messages"] == "4, and 1 that no model has seen"
    assert facts["size"].startswith(f"{len(blob):,} bytes")
    assert facts["cut"].endswith("by KeepRecentTurns: 1 turn and 2 messages removed")


def test_nothing_that_was_said_is_printed_unasked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --show neither a message, a call nor a result appears, as text or as JSON."""
    assert main(["inspect", str(file)]) == 0
    assert main(["inspect", str(file), "--json"]) == 0

    out = capsys.readouterr().out
    assert all(said not in out for said in ("Look around", "look_around", "station", "clock", "Rain"))


def test_title_and_metadata_are_content(
    blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines and JSON have them with --show, and not without."""
    path = tmp_path / "state.bin"
    path.write_bytes(update_state(blob, title="Ada's day", metadata={"user": "u-17"}))
    assert main(["inspect", str(path)]) == 0
    assert main(["inspect", str(path), "--json"]) == 0
    unasked = capsys.readouterr().out
    assert "Ada's day" not in unasked
    assert "u-17" not in unasked

    assert main(["inspect", str(path), "--show"]) == 0
    lines = capsys.readouterr().out
    assert main(["inspect", str(path), "--show", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)

    assert "  title         Ada's day\n" in lines
    assert "  metadata      user=u-17\n" in lines
    assert (facts["title"], facts["metadata"]) == ("Ada's day", {"user": "u-17"})


def test_show_prints_the_conversation(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--show adds every message with its role, tool calls, results and what waits."""
    assert main(["inspect", str(file), "--show"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "  user       Look around." in lines
    assert '  assistant  calls look_around {"place":"station"}' in lines
    assert "  tool       a clock in the station" in lines
    assert "  assistant  A clock." in lines
    assert lines[-2:] == ["waiting, not yet seen by a model", "  event      Rain began"]


def test_json_is_for_programs(file: Path, blob: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object with the fields of `StateInfo`; times are ISO 8601."""
    assert main(["inspect", str(file), "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["blob_bytes"] == len(blob)
    assert facts["total_usage"]["requests"] == 3
    assert facts["created_at"].endswith("Z")
    assert "history" not in facts


def test_json_with_show_has_the_provider_s_messages(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json --show adds the history in the provider's own shape."""
    assert main(["inspect", str(file), "--json", "--show"]) == 0

    history = json.loads(capsys.readouterr().out)["history"]
    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant", "user"]


def test_an_unfinished_turn_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A blob of a turn that broke off says that resume finishes it."""
    with pytest.raises(TurnError) as caught:
        Chat(ScriptedBackend(BackendError("down"))).chat(user="Hi")
    path = tmp_path / "state.bin"
    path.write_bytes(caught.value.state)

    assert main(["inspect", str(path)]) == 0

    assert "failed: the last turn broke off; resume finishes it" in capsys.readouterr().out


@pytest.fixture
def waiting(tmp_path: Path) -> Path:
    """A file with a turn of three calls: one waits for an approval, one for its result, one is done."""
    ask = Tool("ask_guard", "Ask.", {"type": "object"}, external=True)
    door = Tool("open_door", "Open.", {"type": "object"}, look_around, requires_approval=True)
    calls = Calls(
        [("open_door", {"code": 987654321012}), ("ask_guard", {}), ("look_around", {"place": "hall"})]
    )
    chat = Chat(ScriptedBackend(calls), tools=[ask, door, look_around])
    path = tmp_path / "waiting.bin"
    path.write_bytes(chat.chat(user="Open the door.").state)
    return path


def test_calls_that_wait_are_named(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status counts the answers that a turn waits for; each call has its name, id and reason."""
    ids = [call.id for call in pending_calls(waiting.read_bytes())]

    assert main(["inspect", str(waiting)]) == 0

    out = capsys.readouterr().out
    assert "  status        waits for 2 answers; give them to resume\n" in out
    assert f"  pending       open_door {ids[0]}: waits for an approval\n" in out
    assert f"  pending       ask_guard {ids[1]}: waits for its result from outside\n" in out
    assert out.count("pending") == 2
    assert "987654321012" not in out


def test_show_prints_what_a_call_was_given(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--show adds the arguments of a call that waits, and says that its turn is unfinished."""
    assert main(["inspect", str(waiting), "--show"]) == 0

    lines = capsys.readouterr().out.splitlines()
    pending = next(n for n, line in enumerate(lines) if "waits for an approval" in line)
    assert lines[pending + 1].strip() == '{"code":987654321012}'
    assert any(
        line.startswith("turn 1") and line.endswith("unfinished: shown as it would close now")
        for line in lines
    )


def test_json_has_the_calls_that_wait(waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json lists them with their reasons, and their arguments with --show only."""
    assert main(["inspect", str(waiting), "--json"]) == 0
    unasked = json.loads(capsys.readouterr().out)["pending"]
    assert main(["inspect", str(waiting), "--json", "--show"]) == 0
    asked = json.loads(capsys.readouterr().out)["pending"]

    assert [(call["name"], call["reason"]) for call in unasked] == [
        ("open_door", "approval"),
        ("ask_guard", "external"),
    ]
    assert all(call.keys() == {"id", "name", "reason"} for call in unasked)
    assert [call["arguments"] for call in asked] == ['{"code":987654321012}', "{}"]


def test_a_call_in_doubt_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A turn whose process died inside a tool is unfinished, and the call may have taken effect."""
    blobs: list[bytes] = []

    def die() -> None:
        """End the process."""
        raise KeyboardInterrupt

    chat = Chat(ScriptedBackend(Calls([("die", {})])), tools=[die], on_checkpoint=blobs.append)
    with pytest.raises(KeyboardInterrupt):
        chat.chat(user="Hi")
    path = tmp_path / "state.bin"
    path.write_bytes(blobs[-1])

    assert main(["inspect", str(path)]) == 0

    out = capsys.readouterr().out
    assert "  status        unfinished: the last turn did not end; resume finishes it\n" in out
    assert "had started and not finished" in out


def test_control_characters_are_shown_not_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A message cannot steer the terminal of whoever inspects it."""
    path = tmp_path / "state.bin"
    path.write_bytes(Chat(ScriptedBackend("\x1b]0;owned\x07")).chat(user="Hi").state)

    assert main(["inspect", str(path), "--show"]) == 0

    assert "\x1b" not in capsys.readouterr().out


# ------------------------------------------------------------------------------------------ sources


def test_a_dash_is_standard_input(
    blob: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-` reads the blob's bytes from standard input."""
    _stdin(monkeypatch, blob)

    assert main(["inspect", "-", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["blob_bytes"] == len(blob)


@pytest.mark.parametrize("end", ["", "\n", " \r\n"])
def test_the_text_of_a_state_is_read_too(
    end: str,
    file: Path,
    blob: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file, or standard input, with what `state_to_text` wrote says what the bytes say."""
    main(["inspect", str(file), "--show"])
    said = capsys.readouterr().out
    text = (state_to_text(blob) + end).encode()
    (tmp_path / "state.txt").write_bytes(text)
    _stdin(monkeypatch, text)

    assert main(["inspect", str(tmp_path / "state.txt"), "--show"]) == 0
    assert main(["inspect", "-", "--show"]) == 0

    assert capsys.readouterr().out == said * 2


def test_a_damaged_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What begins as a state's text and is none is exit code 1, and names the file."""
    path = tmp_path / "state.txt"
    path.write_bytes(b"gas1.\xff?")

    assert main(["inspect", str(path)]) == 1

    err = capsys.readouterr().err
    assert err.startswith(f"goaitools: {path}: this state's text is damaged")
    assert err.count("\n") == 1


def test_a_thread_of_a_store_can_be_inspected(
    blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--store and --thread name a blob in a SQLite file."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        store.save("ada", blob, expected=None)

    assert main(["inspect", "--store", str(path), "--thread", "ada", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["blob_bytes"] == len(blob)


def test_parts_that_a_store_keeps_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the row keeps beside its head is read with it, as by the other commands."""
    path = tmp_path / "states.sqlite3"
    chat = Chat(
        ScriptedBackend(*(f"Reply {n}." for n in range(6))),
        compactor=Compactor(MessageLimit(5), KeepRecentTurns(1), retain=True),
    )
    with SQLiteStore(path) as store:
        conversation = chat.conversation(store, "ada", parts="store")
        for n in range(6):
            conversation.send(f"Question {n}?")
        stored = store.load("ada")
    assert stored is not None

    assert main(["inspect", "--store", f"sqlite:///{path}", "--thread", "ada", "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["archive_records"] >= 1
    assert facts["blob_bytes"] > len(stored.blob)


def test_a_sealed_row_without_its_key_says_what_anybody_can_read(
    blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a sealed file does."""
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        sealed = _sealed(blob, tmp_path, Signed(RING)).read_bytes()
        store.save("ada", sealed, expected=None)

    assert main(["inspect", "--store", str(path), "--key", "ada", "--json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert (facts["status"], facts["suite"], facts["blob_bytes"]) == ("sealed", "signed", len(sealed))


@pytest.mark.parametrize("argv", [[], ["state.bin", "--store", "states.sqlite3"]])
def test_a_source_is_named_exactly_once(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No source and two sources are usage errors."""
    assert main(["inspect", *argv]) == 2
    assert "a STATE (a file, or - for standard input) or a --store URL" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["inbox", "open turn"])
def test_a_head_without_its_picture_says_what_is_missing(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bytes of a row whose picture stands beside it in the store. Read from the store it is whole."""
    ask = Tool("ask_guard", "Ask.", {"type": "object"}, external=True)
    chat = Chat(ScriptedBackend(Calls([("ask_guard", {})])), tools=[ask])
    picture = user("Look.", Image.from_bytes(random.Random(5).randbytes(9000), media_type="image/png"))
    path = tmp_path / "states.sqlite3"
    with SQLiteStore(path) as store:
        conversation = chat.conversation(store, "ada", parts="store")
        if place == "inbox":
            conversation.append(picture)
        else:
            conversation.send(messages=[picture])
        stored = store.load("ada")
    assert stored is not None
    (tmp_path / "head.bin").write_bytes(stored.blob)

    assert main(["inspect", str(tmp_path / "head.bin")]) == 1

    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "is not in the blob" in err
    assert main(["inspect", "--store", str(path), "--key", "ada", "--show"]) == 0
    assert "Look." in capsys.readouterr().out


# ----------------------------------------------------------------------------------------- problems


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda blob: b"", "empty"),
        (lambda blob: blob[:-7], "cut|truncated|bytes"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "damaged|changed|digest"),
        (lambda blob: blob.hex().encode(), "hex"),
        (lambda blob: b'[{"role":"user"}]', "not a state"),
    ],
)
def test_a_bad_blob_is_one_line_and_exit_code_1(
    damage: object,
    said: str,
    blob: bytes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damage is named in one line that begins with the source, and nothing goes to standard output."""
    path = tmp_path / "state.bin"
    path.write_bytes(damage(blob))  # type: ignore[operator]

    code = main(["inspect", str(path)])

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith(f"goaitools: {path}: ")
    assert err.count("\n") == 1
    assert any(word in err for word in said.split("|")), err


def test_a_missing_file_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path that leads nowhere is exit code 1 and names the path."""
    assert main(["inspect", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_a_missing_store_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inspecting a store that does not exist is a problem, and creates no file."""
    path = tmp_path / "states.sqlite3"

    assert main(["inspect", "--store", str(path)]) == 1

    assert "no store" in capsys.readouterr().err
    assert not path.exists()


def test_a_missing_thread_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that the store does not hold is exit code 1 and says how to name another."""
    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        store.save("ada", b"", expected=None)

    assert main(["inspect", "--store", str(tmp_path / "states.sqlite3")]) == 1

    assert "'default'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "; the store is empty"),
        (2, "; name one with --key: 'a0', 'a1'"),
        (10, "--key: 'a0', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8', 'a9'"),
        (11, "--key: 'a0', 'a1', 'a10', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8', …"),
    ],
)
def test_a_missing_thread_names_those_that_there_are(
    count: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to ten of them, in order, and a sign where there are more."""
    with SQLiteStore(tmp_path / "states.sqlite3") as store:
        for number in range(count):
            store.save(f"a{number}", b"", expected=None)

    assert main(["inspect", "--store", str(tmp_path / "states.sqlite3"), "--thread", "bob"]) == 1

    assert capsys.readouterr().err.endswith(f"{said}\n")


# ------------------------------------------------------------------------------------ sealed states

KEY = Key(bytes(range(32)))
RING = Keyring(KEY)
BINDING = {"user": "ada", "tenant": "red"}
OPENS = ["--key-env", "STATE_KEY", "--binding", "tenant=red", "--binding", "user=ada"]
CODECS = [Signed(RING), Encrypted(RING), Encrypted(RING, visible_to="client")]


@pytest.fixture
def _key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_KEY", f"{KEY.to_text()}\n")


def _sealed(blob: bytes, tmp_path: Path, codec: Signed | Encrypted, binding: object = BINDING) -> Path:
    path = tmp_path / "sealed.bin"
    path.write_bytes(rewrap(blob, PLAIN, to=codec, to_binding=binding))
    return path


@pytest.mark.usefixtures("_key_in_the_environment")
@pytest.mark.parametrize("codec", CODECS, ids=["signed", "encrypted", "encrypted for clients"])
@pytest.mark.parametrize("form", [[], ["--show"], ["--json", "--show"]], ids=" ".join)
def test_a_sealed_state_is_read_with_its_key(
    codec: Signed | Encrypted,
    form: list[str],
    blob: bytes,
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The key comes from an environment variable; what is said of the state is what a plain one says."""
    sealed = _sealed(blob, tmp_path, codec)
    assert main(["inspect", str(file), *form]) == 0
    plain = capsys.readouterr().out

    assert main(["inspect", str(sealed), *OPENS, *form]) == 0

    sized = re.compile(r".*(size|blob_bytes|  key  |suite|key_id|max_blob|state  ).*\n")
    assert sized.sub("", capsys.readouterr().out) == sized.sub("", plain)


@pytest.mark.usefixtures("_key_in_the_environment")
def test_an_unbound_state_needs_no_binding(
    blob: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --binding the state is one that may be anybody's."""
    sealed = _sealed(blob, tmp_path, Signed(RING), UNBOUND)

    assert main(["inspect", str(sealed), "--key-env", "STATE_KEY"]) == 0

    assert "turns" in capsys.readouterr().out


@pytest.mark.parametrize("codec", CODECS[:2], ids=["signed", "encrypted"])
@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        (["--show"], KEY, "sealed; name the environment variable with its key: --key-env NAME"),
        (["--key-env", "STATE_KEY"], KEY, "refused: the key in STATE_KEY"),
        ([*OPENS, "--binding", "user=bob"], KEY, "refused: the key in STATE_KEY"),
        (OPENS, Key(bytes(32)), "refused: the key in STATE_KEY"),
    ],
    ids=["no key", "no binding", "another binding", "another key"],
)
def test_a_refused_state_is_one_line(
    codec: Signed | Encrypted,
    options: list[str],
    key: Key,
    said: str,
    blob: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a key does not open is exit code 1, in words of the command's options, without the key."""
    monkeypatch.setenv("STATE_KEY", key.to_text())
    sealed = _sealed(blob, tmp_path, codec)

    code = main(["inspect", str(sealed), *options])

    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert err.startswith(f"goaitools: {sealed}: the state ")
    assert err.count("\n") == 1
    assert said in err
    assert key.to_text() not in err


@pytest.mark.usefixtures("_key_in_the_environment")
def test_a_plain_state_is_no_sealed_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for a key's word does not get a state that anybody could have written."""
    assert main(["inspect", str(file), *OPENS]) == 1
    assert "is not sealed" in capsys.readouterr().err


@pytest.mark.usefixtures("_key_in_the_environment")
def test_a_damaged_sealed_state_is_told_as_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes without a header are no matter of keys."""
    path = tmp_path / "state.bin"
    path.write_bytes(b"damaged")

    assert main(["inspect", str(path), *OPENS]) == 1

    assert "not a state" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "key", "said"),
    [
        (["--key-env", "STATE_KEY"], None, "no environment variable STATE_KEY"),
        (["--key-env", "STATE_KEY"], "", "no environment variable STATE_KEY"),
        (["--key-env", "STATE_KEY"], KEY.to_text()[:-1], "not the text of a key"),
        (["--key-env", "STATE_KEY", "--binding", "ada"], KEY.to_text(), "NAME=VALUE"),
        (["--key-env", "STATE_KEY", "--binding", "=ada"], KEY.to_text(), "NAME=VALUE"),
        (["--binding", "user=ada"], None, "--key-env NAME"),
    ],
)
def test_wrong_options_of_a_key_are_wrong_usage(
    options: list[str],
    key: str | None,
    said: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A variable without a key and a binding without a name are exit code 2; no key is shown."""
    monkeypatch.delenv("STATE_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("STATE_KEY", key)

    assert main(["inspect", str(file), *options]) == 2

    err = capsys.readouterr().err
    assert said in err
    assert not key or key not in err


def test_encrypted_without_its_package_says_what_to_install(
    blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where `cryptography` is missing, an encrypted state is exit code 1 and says what installs it."""
    monkeypatch.setenv("STATE_KEY", KEY.to_text())
    sealed = _sealed(blob, tmp_path, Encrypted(RING))
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)

    assert main(["inspect", str(sealed), *OPENS]) == 1

    err = capsys.readouterr().err
    assert "goaitools-py[crypto]" in err
    assert err.count("\n") == 1


# --------------------------------------------------------------------------------------- light feet


def test_it_loads_no_sdk(file: Path) -> None:
    """Inspecting imports neither an SDK nor an HTTP client, pydantic or asyncio; it never waits for them."""
    program = (
        "import sys\n"
        "from goaitools_py.cli import main\n"
        f"code = main(['inspect', {str(file)!r}, '--show'])\n"
        "heavy = {'openai', 'anthropic', 'httpx', 'httpx2', 'pydantic', 'asyncio', 'sqlite3'}\n"
        "print(code, sorted(heavy & set(sys.modules)))\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )

    assert ran.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("length", [10, 58, 59, 2_949, 2_950, 2_951, 100_000])
def test_a_long_word_is_whole_in_its_lines(length: int) -> None:
    """Each line is full, however long the word is, and what stands around it stays where it was."""
    word = "".join(random.Random(1).choices("abcdef", k=length))

    lines = list(columns("label", f"one {word} two", width=19))

    assert all(len(line) <= 80 for line in lines)
    assert "".join(line[21:] for line in lines).replace(" ", "") == f"one{word}two"
    assert len(lines) <= length // 59 + 3
