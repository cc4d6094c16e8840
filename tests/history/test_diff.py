"""What differs between two states, and what a reader sees of one."""

from __future__ import annotations

import json
import random
import re

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, event
from goaitools_py.state.state import dump_state
from goaitools_py.states import diff_states, read_history, rewind_state, to_markdown, update_state
from goaitools_py.testing import ScriptedBackend
from tests.compaction._histories import WIRES, Book, random_turn


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def grown(wire: str, seed: int, turns: int) -> list[bytes]:
    """The states of a conversation after each turn."""
    r = random.Random(f"diff/{wire}/{seed}")
    book = Book(wire)
    states = [dump_state(book.state)]
    for _ in range(turns):
        book.add(*random_turn(r, wire))
        states.append(dump_state(book.state))
    return states


@pytest.mark.parametrize("seed", range(4))
def test_laws(wire: str, seed: int) -> None:
    """Nothing differs from itself; what one direction adds the other removes; turns are named by number."""
    print("seed", seed)
    states = grown(wire, seed, 8)
    r = random.Random(seed)
    for _ in range(6):
        early, late = sorted(r.sample(range(len(states)), 2))
        found, back = diff_states(states[early], states[late]), diff_states(states[late], states[early])
        assert found.added == back.removed == tuple(range(early + 1, late + 1))
        assert found.removed == found.changed == back.changed == ()
        assert found.first == back.first == early + 1
        assert {name: pair[::-1] for name, pair in found.facts.items()} == dict(back.facts)
        assert bool(found)
        assert json.loads(json.dumps(found.to_dict()))["added"] == list(found.added)
    for state in states:
        assert not diff_states(state, state)


def test_cuts_rewinds_and_events_are_told(wire: str) -> None:
    """Removed turns, a note, what waits, and the facts that changed."""
    *_, before = grown(wire, 9, 6)
    with Chat(ScriptedBackend("Noted.", wire=wire)) as chat:
        cut = chat.compact_state(before, Compactor(TurnLimit(1), KeepRecentTurns(2))).state
        waits = chat.append_to_state(before, event("It rains."))

    oldest = read_history(before).turns[:4]
    pinned = {turn.number for turn in oldest if any(one.role == "system" for one in turn.messages)}
    assert diff_states(before, cut).removed == tuple(sorted({1, 2, 3, 4} - pinned))
    assert diff_states(before, cut).cuts == (0, 1)
    assert diff_states(before, waits).waiting == (0, 1)
    assert diff_states(before, rewind_state(before, 2)).removed == (5, 6)
    titled = diff_states(before, update_state(before, title="Secret plans"))
    assert titled.facts["title"] == ("", "Secret plans")
    assert "Secret" not in repr(titled)


# ------------------------------------------------------------------------------------------ Markdown


HOSTILE = "# Not a heading\n```\n## Turn 99\n<script>alert(1)</script>\n````\n\x1b[31mred\u202e"


def test_what_is_said_cannot_change_the_document(wire: str) -> None:
    """Headings are those of the turns; every text stands inside a fence; no control character is left."""
    with Chat(ScriptedBackend(HOSTILE, wire=wire)) as chat:
        state = chat.chat_with_state(None, user=HOSTILE).state

    document = to_markdown(chat.append_to_state(state, event(HOSTILE)))

    outside = re.sub(r"^(`{3,})\w*\n.*?^\1$", "", document, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^#.*", outside, re.MULTILINE)[0] == "# Conversation"
    assert len(re.findall(r"^#+ ", outside, re.MULTILINE)) == 3  # the document, the turn, what waits
    assert "script" not in outside
    assert document.count("alert(1)") == 3
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", document)


@pytest.mark.parametrize("seed", range(3))
def test_every_text_is_in_the_document(wire: str, seed: int) -> None:
    """Of any history, and with calls and media."""
    blob = grown(wire, seed, 5)[-1]

    document = to_markdown(blob)

    for message in read_history(blob).all_messages():
        assert message.text in document
        for call in message.tool_calls:
            assert call.arguments in document
