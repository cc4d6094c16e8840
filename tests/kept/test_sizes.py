"""Turns that outgrow their limits: nothing that was done is lost, and the next message is answered."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from goaitools_py import StateSizeError, ToolReturn, event, tool
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.state.state import load_state
from goaitools_py.states import inspect_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Image

from .conftest import blob_in

WIRES = ("openai", "openai-responses", "anthropic")


def noise(seed: int, size: int) -> str:
    """Text that does not compress."""
    letters = string.ascii_letters + string.digits
    return "".join(random.Random(seed).choices(letters, k=size))


def picture(seed: int, size: int) -> Image:
    """A picture that does not compress."""
    return Image.from_bytes(random.Random(seed).randbytes(size))


class Box:
    """A tool with effects that are counted."""

    def __init__(self, returns: Any) -> None:
        self.runs: list[int] = []
        self._returns = returns

    def tools(self) -> list[Any]:
        @tool
        def take(number: int) -> Any:
            """Take one."""
            self.runs.append(number)
            return self._returns(number)

        return [take]


def calls(count: int) -> Calls:
    return Calls([("take", {"number": number}) for number in range(count)])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("in_threads", [False, True])
def test_texts_that_do_not_fit_end_the_turn_and_nothing_is_lost(
    kept: Any, store: Any, save: str, wire: str, in_threads: bool
) -> None:
    """Each tool that ran has its record in the row; the others did not run; the turn can be finished."""
    box = Box(lambda number: noise(number, 6_144))
    backend = ScriptedBackend(calls(7), "Six kilobytes each.", "Welcome.", wire=wire)
    chat = {
        "tools": box.tools(),
        "codec": Plain(limits=BlobLimits(max_blob_bytes=10_000)),
        "tool_threads": in_threads,
        "tool_concurrency": 2,
    }
    talk = kept(backend, store, chat=chat, save=save)
    talk.append(event("The gate opens."))

    with pytest.raises(StateSizeError) as caught:
        talk.send("Take them.", turn_id="m1")
    err = caught.value

    assert err.state == blob_in(store)
    assert "result of tool 'take'" in str(err)
    assert "6,144 bytes" in str(err)
    assert "max_blob_bytes" in str(err)
    ran = len(box.runs)
    assert 2 <= ran < 7
    state = load_state(err.state, codec=chat["codec"])
    assert state.open is not None
    assert [call.state for call in state.open.calls] == ["done"] * 7
    assert [call.flag for call in state.open.calls] == ["ok"] * ran + ["not_run"] * (7 - ran)
    assert [len(record.result) for record in err.tool_log if record.flag == "ok"] == [6_144] * ran
    assert "The gate opens." in str(backend.bodies()[-1])

    again = kept(backend, store, chat=chat, save=save).send("Take them.", turn_id="m1")

    assert (again.text, len(box.runs)) == ("Six kilobytes each.", ran)
    assert kept(backend, store, chat=chat, save=save).send("Thanks.").text == "Welcome."


@pytest.mark.parametrize("wire", WIRES)
def test_pictures_that_do_not_fit_become_text(kept: Any, store: Any, save: str, wire: str) -> None:
    """All tools run; the model reads which pictures were left out, and the turn is complete."""
    box = Box(lambda number: picture(number, 50_000))
    limits = BlobLimits(max_blob_bytes=250_000)
    backend = ScriptedBackend(calls(10), "Ten pictures.", "Welcome.", wire=wire)
    chat = {"tools": box.tools(), "codec": Plain(limits=limits), "tool_threads": False}
    talk = kept(backend, store, chat=chat, save=save)

    result = talk.send("Take them.")

    assert (result.text, result.status, box.runs) == ("Ten pictures.", "complete", list(range(10)))
    assert [warning.code for warning in result.warnings].count("result_left_out") == 1
    left_out = [record for record in result.tool_log if "image/png" in record.result]
    assert 0 < len(left_out) < 10
    assert "50,000 bytes" in left_out[-1].result
    assert len(blob_in(store)) <= limits.max_blob_bytes
    assert inspect_state(blob_in(store), codec=chat["codec"]).turns == 1
    assert kept(backend, store, chat=chat, save=save).send("Thanks.").text == "Welcome."


@tool(external=True)
def fetch(number: int) -> str:
    """Fetch one from outside."""
    raise AssertionError("an external tool was run")


def fetching(kept: Any, store: Any, save: str, backend: ScriptedBackend, limits: BlobLimits) -> Any:
    """A conversation with a tool whose results come from outside."""
    chat = {"tools": [fetch], "codec": Plain(limits=limits)}
    return kept(backend, store, chat=chat, save=save)


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("together", [False, True])
def test_pictures_from_outside_that_do_not_fit_become_text(
    kept: Any, store: Any, save: str, wire: str, together: bool
) -> None:
    """As a tool's own: every answer is taken, and the model reads which pictures were left out."""
    limits = BlobLimits(max_blob_bytes=250_000)
    asked = Calls([("fetch", {"number": number}) for number in range(10)])
    backend = ScriptedBackend(asked, "Ten pictures.", "Welcome.", wire=wire)
    talk = fetching(kept, store, save, backend, limits)
    waiting = talk.send("Fetch them.").pending
    answers = {call.id: ToolReturn(picture(at, 50_000)) for at, call in enumerate(waiting)}

    told: list[str] = []
    for part in [answers] if together else [{id: answer} for id, answer in answers.items()]:
        result = talk.resume(part)
        told += [warning.code for warning in result.warnings]
        assert len(blob_in(store)) <= limits.max_blob_bytes

    assert (result.text, result.status) == ("Ten pictures.", "complete")
    assert "result_left_out" in told
    assert "image left out: image/png, 50,000 bytes" in str(backend.bodies()[-1])
    again = talk.resume(answers)
    assert (again.duplicate, [one.code for one in again.warnings if one.code == "answer_ignored"]) == (
        True,
        [],
    )
    assert talk.send("Thanks.").text == "Welcome."


@pytest.mark.parametrize("wire", WIRES)
def test_a_text_from_outside_that_does_not_fit_is_refused_and_its_call_waits(
    kept: Any, store: Any, save: str, wire: str
) -> None:
    """Whoever answers still has the text, and can answer with less."""
    limits = BlobLimits(max_blob_bytes=10_000)
    asked = Calls([("fetch", {"number": number}) for number in range(2)])
    backend = ScriptedBackend(asked, "Two.", "Welcome.", wire=wire)
    talk = fetching(kept, store, save, backend, limits)
    first, second = (call.id for call in talk.send("Fetch them.").pending)
    talk.resume({first: ToolReturn(noise(1, 6_144))})
    before = blob_in(store)

    for size in (6_144, 20_000):
        with pytest.raises(StateSizeError) as caught:
            talk.resume({second: ToolReturn(noise(2, size))})
        assert "result of tool 'fetch'" in str(caught.value)
        assert "calls still wait" in str(caught.value)
        assert [call.id for call in talk.pending()] == [second]
        assert len(backend.requests) == 1
    assert load_state(blob_in(store), codec=Plain(limits=limits)).open == (
        load_state(before, codec=Plain(limits=limits)).open
    )

    assert talk.resume({second: ToolReturn("short")}).text == "Two."
    assert talk.send("Thanks.").text == "Welcome."


@pytest.mark.parametrize("wire", WIRES)
def test_a_queue_that_is_full_takes_no_more_and_the_turn_can_end(
    kept: Any, store: Any, save: str, wire: str
) -> None:
    """The message that does not fit comes back; those that were queued before stay, and are answered."""
    limits = BlobLimits(max_blob_bytes=10_000)
    backend = ScriptedBackend(Calls([("fetch", {"number": 1})]), "To all.", "Welcome.", wire=wire)
    talk = fetching(kept, store, save, backend, limits)
    (call,) = talk.send("Fetch it.", turn_id="m0").pending
    texts = [noise(at, 3_500) for at in range(5)]

    refused: list[StateSizeError] = []
    for at, text in enumerate(texts):
        try:
            talk.send(text, turn_id=f"q{at}", on_pending="queue")
        except StateSizeError as exc:
            refused.append(exc)

    taken = len(texts) - len(refused)
    assert 0 < taken < len(texts)
    assert [[message.text for message in err.pending_input] for err in refused] == [
        [text] for text in texts[taken:]
    ]
    assert all("not queued" in str(err) for err in refused)
    assert refused[-1].state == blob_in(store)
    assert len(blob_in(store)) <= limits.max_blob_bytes
    assert talk.resume({call.id: ToolReturn("fetched")}).text == "To all."
    sent = str(backend.bodies()[-1])
    assert [text in sent for text in texts] == [at < taken for at in range(len(texts))]
    assert talk.send("Thanks.").text == "Welcome."
