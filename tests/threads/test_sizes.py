"""Turns that outgrow their limits: nothing that was done is lost, and the next message is answered."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from goaitools_py import BlobLimits, Plain, StateSizeError, event, inspect_state, tool
from goaitools_py.messages import Image
from goaitools_py.state.state import load_state
from goaitools_py.testing import Calls, ScriptedBackend

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
