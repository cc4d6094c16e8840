"""What a tool reports as an error is a result that the provider takes, whatever it holds."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Compactor, Image, ToolError, ToolReturn, TurnLimit, tool
from goaitools_py.compaction import ClearToolResults, DropMedia
from goaitools_py.sim import Reply
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import check_history

from ._reading import ANTHROPIC

PICTURE = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))
ERRORS = {
    "nothing": "",
    "white space": " \n",
    "text": "no such team",
    "a picture": PICTURE,
    "text and a picture": ["no such team", PICTURE],
}

pytestmark = pytest.mark.parametrize("value", ERRORS.values(), ids=ERRORS)


def flags(result: Any) -> list[str]:
    """The flags of a turn's calls, in order."""
    return [record.flag for record in result.tool_log]


def has_picture(value: Any) -> bool:
    return value is PICTURE or (isinstance(value, list) and PICTURE in value)


def test_an_error_of_any_content_goes_to_the_model(face: Any, sim: Any, run: Any, value: Any) -> None:
    """Beside a result of another call, and in every later request; a picture in it is not lost."""

    def look(team: str) -> Any:
        """Look at a team."""
        return ToolReturn(value, is_error=team == "Red")

    chat = face.on(sim, tools=[look])
    sim.push(
        Reply.calls(("look", '{"team":"Red"}'), ("look", '{"team":"Blue"}')),
        Reply.text("I see."),
        Reply.text("Welcome."),
    )

    looked = run(chat, user="Look!")
    state = run(chat, looked.state, user="Thanks.").state

    assert sim.problems == []
    assert check_history(sim.wire, state_messages(state)) == []
    assert flags(looked) == ["error", "ok"]
    if sim.wire != "openai":  # which takes no picture in a result
        kept = [any(isinstance(part, Image) for part in m.parts) for m in read_history(state).all_messages()]
        assert any(kept) == has_picture(value)


def test_an_error_from_outside_of_any_content_goes_to_the_model(
    face: Any, sim: Any, run: Any, value: Any
) -> None:
    """The answer to a call that waits, and the raising of an error with the same words."""

    @tool(external=True)
    def look(team: str) -> str:
        """Look at a team."""
        raise NotImplementedError

    def hear(team: str) -> str:
        """Listen to a team."""
        raise ToolError(value if isinstance(value, str) else "")

    chat = face.on(sim, tools=[look, hear])
    sim.push(
        Reply.calls(("look", '{"team":"Red"}'), ("hear", '{"team":"Red"}')),
        Reply.text("I see."),
        Reply.text("Welcome."),
    )

    waiting = run(chat, user="Look!")
    told = chat.resume(waiting.state, {waiting.pending[0].id: ToolReturn(value, is_error=True)})
    run(chat, told.state, user="Thanks.")

    assert sim.problems == []
    assert {"error"} == set(flags(told))


@pytest.mark.parametrize("strategy", [ClearToolResults(keep=0), DropMedia(after_turns=1)], ids=repr)
@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_an_error_stays_valid_when_it_is_cleared(face: Any, sim: Any, strategy: Any, value: Any) -> None:
    """What compactions write in its place is taken, too."""

    def look(team: str) -> Any:
        """Look at a team."""
        return ToolReturn(value, is_error=True)

    chat = face.on(sim, tools=[look])
    sim.push(Reply.calls(("look", '{"team":"Red"}')), Reply.text("I see."))
    state = chat.chat(user="Look!").state
    sim.push(Reply.text("Hello."), Reply.text("Welcome."))
    state = chat.chat_with_state(state, user="Hello.").state

    state = chat.compact_state(state, Compactor(TurnLimit(1), strategy)).state
    chat.chat_with_state(state, user="Thanks.")

    assert sim.problems == []
    assert check_history(sim.wire, state_messages(state)) == []
