"""A cassette replays what it recorded, holds no key, and says how a request has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import ModelSettings, ProviderTool, RateLimitError, tool
from goaitools_py.backends import BackendError, ModelRequest
from goaitools_py.sim import Fault
from goaitools_py.states import state_messages
from goaitools_py.testing import Calls, Cassette, ScriptedBackend, SimServer

WIRES = ("openai", "openai-responses", "anthropic")
KEY = "sk-very-secret-key-4711"


@tool
def get_score(team: str) -> int:
    """Current score of one team."""
    return 30


def talk(face: Any, backend: Any, *, system: str = "You are a guide.", stream: bool = False) -> Any:
    """Two turns, one with a tool."""
    chat = face.chat(backend, system=system, tools=[get_score], context="It is noon.")
    one = chat.chat(user="My name is Ada.")
    turn = chat.start(one.state, user="Get the score: Red")
    return turn.result() if stream else chat.chat_with_state(one.state, user="Get the score: Red")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_was_recorded_is_replayed(face: Any, wire: str, stream: bool, tmp_path: Path) -> None:
    """Without the server, the history is the same byte for byte; and each request was made."""
    path = tmp_path / "deep" / "talk.jsonl"
    with SimServer() as sim:
        recording = Cassette(path, mode="record")
        real = face.backend("sim-model", wire=wire, base_url=sim.base_url_for(wire), api_key=KEY)
        first = talk(face, recording.backend(real), stream=stream)
        face.run(real.aclose()) if face.is_async else real.close()
    written = path.read_text(encoding="utf-8")

    with Cassette(path) as cassette:
        second = talk(face, cassette.backend(), stream=stream)

    assert (second.text, second.usage) == (first.text, first.usage)
    assert state_messages(second.state) == state_messages(first.state)
    assert len(written.splitlines()) == 4
    assert KEY not in written
    assert "sim-model" in written.splitlines()[0]


def made(face: Any, path: Path, **how: Any) -> None:
    """A cassette of one exchange."""
    recording = Cassette(path, mode="record", **how)
    face.chat(recording.backend(ScriptedBackend("Hello.", "Again."))).chat(user="Hi, sk-abcdefghijklmnop!")


def test_a_changed_request_is_told(face: Any, tmp_path: Path) -> None:
    """By the lines that differ; and a request too many, or one too few."""
    path = tmp_path / "one.jsonl"
    made(face, path)

    with pytest.raises(AssertionError) as changed:
        face.chat(Cassette(path).backend(), system="Be kind.").chat(user="Hi, sk-abcdefghijklmnop!")
    cassette = Cassette(path)
    chat = face.chat(cassette.backend())
    state = chat.chat(user="Hi, sk-abcdefghijklmnop!").state
    with pytest.raises(AssertionError, match=r"request 2 came, but the cassette one\.jsonl has 1"):
        chat.chat_with_state(state, user="More.")
    with pytest.raises(AssertionError, match="1 of 1 recorded requests were not made"), Cassette(path):
        pass

    lines = str(changed.value).splitlines()
    assert "record it again with GOAITOOLS_RECORD=1" in lines[0]
    assert '+    "content": "Be kind.",' in lines
    assert not any(line.startswith("-") and "Hi," in line for line in lines)


def test_no_key_is_written(face: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looks like one, the values of such variables, members of such names, and one's own words."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", 'odd"token\u00e94711')
    path = tmp_path / "one.jsonl"
    secrets = ['odd"token\u00e94711', "sk-abcdefghijklmnop", "Harrogate-4711", "inner-4711"]
    server = ProviderTool({"type": "mcp", "server_label": "x", "authorization": "inner-4711"})
    said = " ".join(secrets[:3])
    how: dict[str, Any] = {
        "tools": [server],
        "settings": ModelSettings(extra_headers={"X-Key": "headed-4711"}),
    }

    recording = Cassette(path, mode="record", scrub=["Harrogate-4711"])
    face.chat(recording.backend(ScriptedBackend(f"You said {said}.")), **how).chat(user=said)
    written = path.read_text(encoding="utf-8")
    with Cassette(path, scrub=["Harrogate-4711"]) as cassette:
        text = face.chat(cassette.backend(), **how).chat(user=said).text

    assert [one for one in (*secrets, "4711") if one in written] == []
    assert text == "You said [scrubbed] [scrubbed] [scrubbed]."
    assert path.stat().st_mode & 0o777 <= 0o666
    assert list(tmp_path.iterdir()) == [path]


def test_errors_are_replayed(face: Any, tmp_path: Path) -> None:
    """A refusal before the headers, and a stream that breaks off."""
    path = tmp_path / "errors.jsonl"
    with SimServer() as sim:
        sim.push(Fault.rate_limit(retry_after=7))
        recording = Cassette(path, mode="record")
        real = face.backend("sim-model", base_url=sim.base_url, api_key=KEY, max_retries=0)
        with pytest.raises(RateLimitError):
            face.chat(recording.backend(real)).chat(user="Hi.")
        face.run(real.aclose()) if face.is_async else real.close()

    with Cassette(path) as cassette, pytest.raises(RateLimitError) as error:
        face.chat(cassette.backend()).chat(user="Hi.")

    assert error.value.retry_after == 7


def test_a_body_that_breaks_off_is_replayed(face: Any, tmp_path: Path) -> None:
    """With the same error after the same bytes."""
    from goaitools_py import ProviderUnavailableError
    from goaitools_py.testing import Raw

    path = tmp_path / "broken.jsonl"
    chunks: Any = [b'{"id": "\xff', BackendError("lost", kind="interrupted")]
    recording = Cassette(path, mode="record")
    with pytest.raises(ProviderUnavailableError):
        face.chat(recording.backend(ScriptedBackend(Raw(chunks)))).chat(user="Hi.")

    with Cassette(path) as cassette, pytest.raises(ProviderUnavailableError):
        face.chat(cassette.backend()).chat(user="Hi.")


def test_the_mode_is_that_of_the_environment(
    face: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replays unless it is told to record; and says what is wrong with a file."""
    path = tmp_path / "one.jsonl"
    with pytest.raises(FileNotFoundError, match="GOAITOOLS_RECORD=1"):
        Cassette(path)
    monkeypatch.setenv("GOAITOOLS_RECORD", "1")
    assert Cassette(path).is_recording
    assert Cassette(path, mode="record").is_recording
    with pytest.raises(TypeError, match="needs the real backend"):
        Cassette(path).backend()
    path.write_text(json.dumps({"cassette": 2}), encoding="utf-8")
    with pytest.raises(ValueError, match="no cassette of version 1"):
        Cassette(path, mode="replay")
    with pytest.raises(ValueError, match="mode must be"):
        Cassette(path, mode="new")  # type: ignore[arg-type]


def test_members_may_differ(face: Any, tmp_path: Path) -> None:
    """A name of the caller's own is left out of the comparison."""
    path = tmp_path / "one.jsonl"
    made(face, path, ignore=["seed"])

    with Cassette(path, ignore=["seed"]) as cassette:
        chat = face.chat(cassette.backend(), settings=ModelSettings(seed=5))
        assert chat.chat(user="Hi, sk-abcdefghijklmnop!").text == "Hello."


def test_text_of_any_kind_is_replayed(face: Any, tmp_path: Path) -> None:
    """Also characters that JSON leaves as they are, and that other programs take for the end of a line."""
    said = "one\u2028two\u2029three\u0085four\x1cfive \U0001f98a"
    path = tmp_path / "one.jsonl"
    backend = Cassette(path, mode="record").backend(ScriptedBackend(said, wire="anthropic"))
    face.chat(backend).chat(user=f"Say {said}!")

    with Cassette(path) as cassette:
        assert face.chat(cassette.backend()).chat(user=f"Say {said}!").text == said


def test_half_a_surrogate_pair_is_replayed(tmp_path: Path) -> None:
    """A body of JSON may have one."""
    path = tmp_path / "one.jsonl"
    request = ModelRequest(path="/v1/messages", body=rb'{"messages":[{"content":"half \ud83e"}]}')
    exchange = Cassette(path, mode="record").backend(ScriptedBackend("Hello.")).send(request)
    while exchange.read():
        pass
    exchange.close()

    with Cassette(path) as cassette:
        assert cassette.backend().send(request).head.status == 200


@tool
def get_user(user_id: str, prompt_cache_key: str) -> str:
    """A user."""
    return user_id


@pytest.mark.parametrize("wire", WIRES)
def test_a_name_of_this_package_in_a_tool_is_compared(face: Any, wire: str, tmp_path: Path) -> None:
    """Digests of the conversation's id are left out where they stand, and not wherever their name does."""

    def talk(cassette: Cassette, user_id: str) -> None:
        call = Calls([("get_user", {"user_id": user_id, "prompt_cache_key": "p"})])
        backend = cassette.backend(ScriptedBackend(call, "Done.", wire=wire))
        chat = face.chat(backend, tools=[get_user])
        assert chat.chat(user="Who?", conversation_id=f"c {user_id}").text == "Done."

    path = tmp_path / "one.jsonl"
    talk(Cassette(path, mode="record"), "7")
    with Cassette(path) as cassette:
        talk(cassette, "8")  # another conversation
    head, *takes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert all('"user_id": ' in json.dumps(take["request"]) for take in takes)

    takes[0]["request"]["body"]["tools"] = []
    path.write_text("\n".join(map(json.dumps, [head, *takes])), encoding="utf-8")
    with pytest.raises(AssertionError, match="request 1 is not the recorded one"):
        talk(Cassette(path), "7")
