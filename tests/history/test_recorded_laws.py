"""The functions on states, on conversations that real providers have had.

A fixed sample, or all of them if GOAITOOLS_ALL_CONVERSATIONS is set.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit
from goaitools_py.states import (
    diff_states,
    export_state,
    import_state,
    read_history,
    redact_state,
    state_from_messages,
    to_markdown,
    undo_cut,
)
from goaitools_py.testing import ScriptedBackend, check_history
from tests import _history_laws as laws

from ._planted import traces
from ._recorded import recorded

EACH = 1 if os.environ.get("GOAITOOLS_ALL_CONVERSATIONS") else 13
CUT = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True, retain_bytes=2**22)


@pytest.fixture(scope="module")
def blobs(data_dir: Path) -> list[tuple[str, bytes]]:
    """Recorded conversations as states, each with its provider API."""
    found = []
    for wire, history in list(recorded(data_dir))[::EACH]:
        try:
            blob = state_from_messages(wire, history, repair=True, conversation_id="c", created_ms=0)
        except ValueError:
            continue  # a history that begins with an instruction, say
        found.append((wire, blob))
    assert min(Counter(wire for wire, _ in found).values()) >= 10
    return found


def test_the_laws_of_a_history_hold(blobs: list[tuple[str, bytes]]) -> None:
    """Its JSON fits the published schema; calls stand with their results; nothing is told twice."""
    for _, blob in blobs:
        laws.check(blob)
        assert to_markdown(blob)


def test_an_export_is_byte_exact(blobs: list[tuple[str, bytes]]) -> None:
    """As JSON and back, and the two do not differ."""
    for _, blob in blobs:
        told = json.loads(json.dumps(export_state(blob)))
        assert import_state(told) == blob
        assert diff_states(blob, import_state(told)).first is None


def test_an_archive_and_what_is_left_are_the_whole_conversation(blobs: list[tuple[str, bytes]]) -> None:
    """After a cut and one more turn, `archived=True` tells all of it, in the form of the schema."""
    for wire, blob in blobs:
        with Chat(ScriptedBackend("Bye.", wire=wire)) as chat:
            more = chat.chat_with_state(blob, user="Is that all?", on_pending="deny").state
            cut = chat.compact_state(more, CUT).state
        whole, left = laws.check(more), laws.check(cut)
        every = read_history(cut, archived=True)

        laws.CHECK.validate(json.loads(json.dumps(every.to_dict())))
        assert [one.said for one in every.all_messages()] == [one.said for one in whole.all_messages()]
        # Of other turns only pinned messages are left: those of the system.
        assert len([turn for turn in left.turns if any(one.role != "system" for one in turn.messages)]) == 1
        if len(whole.turns) > 1:
            assert [one.said for one in read_history(undo_cut(cut)).all_messages()] == [
                one.said for one in whole.all_messages()
            ]


def test_a_word_is_taken_out(blobs: list[tuple[str, bytes]]) -> None:
    """The longest word that was said leaves no trace, and the provider takes what is left."""
    for wire, blob in blobs:
        said = " ".join(message.text for message in read_history(blob).all_messages())
        word = max(re.findall(r"[A-Za-z]{6,}", said), key=len, default="")
        if not word:
            continue
        done = redact_state(blob, word)
        laws.check(done.state)
        assert check_history(wire, _entries(done.state), unique_ids=False) == []
        if not done.kept and not done.sealed:
            assert traces(done.state, word) == 0


def _entries(blob: bytes) -> list[bytes]:
    from goaitools_py.state.state import closed_entries, load_state

    return list(closed_entries(load_state(blob)))
