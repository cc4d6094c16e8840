"""The actions of tools in the state, with `record_actions=True`: kept, bounded, and for readers only."""

from __future__ import annotations

import random
import string
from typing import Any

import msgspec
import pytest

from goaitools_py import Action, Chat, Compactor, KeepRecentTurns, ToolContext, TurnLimit, tool
from goaitools_py.frontends.plain import messages_of
from goaitools_py.open_turn.journal import MOST_ACTION_BYTES
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.states import (
    convert_state,
    export_state,
    import_state,
    read_history,
    redact_state,
    rewind_state,
    to_markdown,
)
from goaitools_py.testing import Calls, ScriptedBackend

BOTH = Calls([("take", {"item": "lamp"}), ("take", {"item": "rope"})])
TAKEN = (Action("took the lamp", {"item": "lamp"}), Action("took the rope", {"item": "rope"}))


@tool
def take(ctx: ToolContext, item: str) -> str:
    """Take an item."""
    ctx.log_action(f"took the {item}", item=item)
    return "You have it."


def actions(state: bytes, **how: Any) -> list[tuple[Action, ...]]:
    """The actions of each turn in a state."""
    return [turn.actions for turn in read_history(state, **how).turns]


def test_actions_stay_with_their_turn(face: Any, wire: str) -> None:
    """In the histories and the exports of each provider API. No request has them."""
    script = ScriptedBackend(BOTH, "Done.", "Bye.", wire=wire)
    chat = face.chat(script, tools=[take], record_actions=True)

    state = chat.run_turns(None, ["Take both.", "Bye."]).state

    assert actions(state) == [TAKEN, ()]
    rows = [{"text": one.text, "data": dict(one.data)} for one in TAKEN]
    assert read_history(state).to_dict()["turns"][0]["actions"] == rows
    assert "took the rope" in to_markdown(state)
    assert actions(import_state(export_state(state))) == [TAKEN, ()]
    assert messages_of(read_history(state), conversation_id="c")[1]["actions"] == rows
    assert not any(b"took the" in request.body for request in script.requests)


def test_a_state_has_no_actions_by_itself(wire: str) -> None:
    """Without the option nothing of them is stored; with it, a turn without actions is stored as before."""
    chat = Chat(ScriptedBackend(BOTH, "Done.", "Bye.", wire=wire), tools=[take])

    result = chat.chat(user="Take both.")

    assert result.actions == TAKEN
    assert actions(result.state) == [()]
    assert "acts" not in read_history(result.state).turns[0].facts
    plain = chat.chat_with_state(result.state, user="Bye.", record_actions=True).state
    assert "acts" not in read_history(plain).turns[1].facts


@pytest.mark.parametrize("size", [10, 300, 20_000])
def test_the_actions_of_a_turn_are_bounded(face: Any, wire: str, size: int) -> None:
    """The oldest stay, and the last one counts those that are left out."""

    @tool
    def work(ctx: ToolContext) -> str:
        """Work."""
        for number in range(1_000):
            ctx.log_action(f"{number} {'x' * size}", number=number)
        return "Done."

    chat = face.chat(
        ScriptedBackend(Calls([("work", {})]), Calls([("work", {})]), "Done.", wire=wire),
        tools=[work],
        record_actions=True,
    )

    result = chat.chat(user="Work.")

    *kept, last = actions(result.state)[0]
    assert len(result.actions) == 2_000
    assert tuple(kept) == result.actions[: len(kept)]
    assert last.data["left_out"] == 2_000 - len(kept)
    stored = len(msgspec.json.encode([[one.text, one.data] for one in kept]))
    assert MOST_ACTION_BYTES - size - 50 < stored <= MOST_ACTION_BYTES or size > MOST_ACTION_BYTES


def test_actions_are_there_once_after_a_restart(face: Any, wire: str) -> None:
    """They enter the state together with the result of their call, so no save loses or repeats them."""
    saved: list[bytes] = []
    script = ScriptedBackend(BOTH, KeyboardInterrupt(), wire=wire)
    chat = face.chat(script, tools=[take], record_actions=True, on_checkpoint=saved.append)
    with pytest.raises(KeyboardInterrupt):
        chat.chat(user="Take both.")

    for blob in saved:
        turn = read_history(blob).turns[-1]
        assert len(turn.actions) == sum(call.flag == "ok" for call in turn.calls)
    end = face.chat(ScriptedBackend("Done.", wire=wire), tools=[take]).resume(saved[-1])
    assert actions(end.state) == [TAKEN]


def test_any_data_of_a_tool_is_stored_as_json(wire: str) -> None:
    """Objects become text; data that cannot be written is left out, and the text stays."""

    @tool
    def odd(ctx: ToolContext) -> str:
        """Odd."""
        loop: list[Any] = []
        loop.append(loop)
        ctx.log_action("\ud800 odd", at=complex(1, 2), keys={1: b"x"}, none=None, inf=float("inf"))
        ctx.log_action("endless", loop=loop)
        return "ok"

    chat = Chat(ScriptedBackend(Calls([("odd", {})]), "Done.", wire=wire), tools=[odd], record_actions=True)

    found = actions(chat.chat(user="Go.").state)[0]

    assert found == (
        Action("? odd", {"at": "(1+2j)", "keys": {"1": "eA=="}, "none": None, "inf": None}),
        Action("endless"),
    )


def test_actions_go_with_their_turn(wire: str) -> None:
    """Through a conversion, an archive, a redaction and a rewind."""
    script = ScriptedBackend(BOTH, "Done.", BOTH, "Done.", "Bye.", wire=wire)
    chat = Chat(script, tools=[take], record_actions=True)
    state = chat.run_turns(None, ["Take both.", "Again.", "Bye."]).state

    other = "anthropic" if wire != "anthropic" else "openai"
    assert actions(convert_state(state, to=other).state) == [TAKEN, TAKEN, ()]
    assert actions(rewind_state(state, 2)) == [TAKEN]
    cut = chat.compact_state(state, Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)).state
    assert actions(cut)[-1] == ()
    assert actions(cut, archived=True) == [TAKEN, TAKEN, ()]
    for blob in (state, cut):
        redacted = redact_state(blob, "lamp").state
        assert "lamp" not in str(export_state(redacted))
        found = actions(redacted, archived=True)[0]
        assert [one.text for one in found] == ["took the [redacted]", "took the rope"]


def test_a_small_state_has_no_room_for_actions(wire: str) -> None:
    """The turn ends as without the option; its actions are in the result."""

    @tool
    def boast(ctx: ToolContext) -> str:
        """Boast."""
        ctx.log_action("".join(random.Random(7).choices(string.ascii_letters, k=9_000)))
        return "ok"

    codec = Plain(limits=BlobLimits(max_blob_bytes=6_000, max_decoded_bytes=16_384))
    chat = Chat(
        ScriptedBackend(Calls([("boast", {})]), "Done.", wire=wire),
        tools=[boast],
        record_actions=True,
        codec=codec,
    )

    result = chat.chat(user="Go.")

    assert result.text == "Done."
    assert [one.data for one in actions(result.state)[0]] == [{"left_out": 1}]
