"""A conversation as a value, and its way to bytes and back."""

from __future__ import annotations

import os
import random
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    Chat,
    GoAIToolsError,
    StateInvalidError,
    StateProviderError,
    event,
    inspect_state,
    read_history,
    state_from_messages,
    state_messages,
)
from goaitools_py import blob as blobs
from goaitools_py.blob import Kind
from goaitools_py.messages import Image, Text, Usage
from goaitools_py.records import InboxItem, Iteration, JournalCall, OpenTurn, TurnRecord, usage_of, usage_row
from goaitools_py.segments import turn_records
from goaitools_py.state import (
    SEAL_BYTES,
    ConversationState,
    dump_state,
    load_state,
    new_state,
    rebuild,
    with_turn,
)
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.values import replace

USER = b'{"role":"user","content":"hello"}'
REPLY = b'{"role":"assistant","content":"hi"}'


def record(at: int = 5, **facts: Any) -> TurnRecord:
    usage = Usage(input_tokens=10, cached_input_tokens=4, output_tokens=2, requests=1)
    iteration = Iteration(roles="ua", finish_reason="stop", usage=usage, start=1, ms=830)
    return TurnRecord(at=at, messages=2, iterations=(iteration,), facts=facts)


def conversation(turns: int = 2, entry: bytes = REPLY) -> ConversationState:
    state = new_state("openai", id="c-1", created=1_763_727_600_123)
    for number in range(turns):
        state = with_turn(state, (USER, entry), record(number))
    return state


def test_a_state_comes_back_as_it_was() -> None:
    """Meta, turns, inbox and the open turn's journal survive the way through bytes."""
    calls = (
        JournalCall(id="a", name="f", arguments='{"x":1}', state="done", parts=(Text("5"),), seconds=0.5),
        JournalCall(id="b", name="g", arguments="{", state="started", started=2.5),
        JournalCall(id="c", name="h", arguments="", state="done", parts=(Image.from_bytes(b"png"),)),
    )
    opened = OpenTurn(
        at=9, entries=(USER, REPLY), iterations=record().iterations, messages=2, calls=calls, partial="so"
    )
    waiting = (InboxItem(entry=USER, letter="e", topic="score"),)
    before = replace(conversation(), open=opened, inbox=waiting)

    after = load_state(dump_state(before))

    assert (after.meta, after.open, after.inbox) == (before.meta, before.open, before.inbox)
    assert turn_records(after.segments[0]) == turn_records(before.segments[0])
    assert b"".join(after.history()) == b"".join(before.history())


def test_meta_keys_of_a_later_release_survive() -> None:
    """What this release does not know is kept byte for byte when it writes the state again."""
    segments = list(blobs.decode(dump_state(conversation())))
    later = segments[0].raw()[:-1] + b',"mood":{"calm":1e5}}'
    segments[0] = blobs.segment(Kind.META, later, 0)

    again = dump_state(load_state(blobs.encode(segments)))

    assert b'"mood":{"calm":1e5}' in blobs.decode(again)[0].raw()
    assert load_state(again).meta.id == "c-1"


def test_the_meta_does_not_grow_with_the_history() -> None:
    """A hundred turns change numbers in the meta, not its size."""
    few = blobs.decode(dump_state(conversation(1)))[0].raw_len
    many = blobs.decode(dump_state(conversation(100)))[0].raw_len

    assert many == few


def test_a_large_tail_is_sealed_and_not_compressed_again() -> None:
    """Beyond 64 KiB the hot segment is sealed; later turns carry its very bytes along."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"abc " * 5000)
    state = load_state(dump_state(conversation(5, entry)))
    assert [segment.kind for segment in state.segments] == [Kind.SEALED, Kind.HOT]

    grown = with_turn(state, (USER, REPLY), record())

    assert state.sealed[0].raw_len >= SEAL_BYTES
    assert grown.sealed[0] is state.sealed[0]


def test_rebuilding_packs_the_same_turns() -> None:
    """A rebuilt history has the turns it was given, in order, in segments of bounded size."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"xyz " * 3000)
    turns = [((USER, entry), record(number)) for number in range(20)]

    state = load_state(dump_state(rebuild(conversation(0), turns)))

    found = [turn for segment in state.segments for turn in turn_records(segment)]
    assert found == [turn for _, turn in turns]
    assert all(segment.raw_len < 2 * SEAL_BYTES for segment in state.segments)


def test_a_state_of_another_wire_is_named() -> None:
    """A foreign state says whose it is, what was expected, and what to do."""
    blob = dump_state(new_state("anthropic", id="x", created=0))

    with pytest.raises(StateProviderError, match=r"'anthropic'.*'openai'.*state=None") as caught:
        load_state(blob, wire="openai")

    assert (caught.value.expected, caught.value.found, caught.value.blob) == ("openai", "anthropic", blob)


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=1, reasoning_tokens=2, requests=3)])
def test_usage_survives_its_row(usage: Usage) -> None:
    """A usage is stored as a row of numbers and comes back equal."""
    assert usage_of(usage_row(usage)) == usage


@pytest.mark.parametrize(
    ("position", "raw"),
    [
        (0, b"[]"),
        (0, b'{"wire":5}'),
        (0, b'{"id":"no wire"}'),
        (0, b'{"wire":"openai","total":"many"}'),
        (1, b"no columns"),
        (1, USER + b"\n[[]]"),
        (1, USER + b'\n[0,1,[["uu","",0,0,0,0,0,0,0]]]'),
        (1, USER + b",\n" + USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]]]'),
        (1, USER + b"\n" + b"[" * 5000),
        (2, USER + b'\n["e"]'),
        (2, USER + b"\n"),
        (3, USER + b'\n{"at":"now"}'),
        (3, USER + b'\n{"at":1,"letters":"uu"}'),
        (3, USER + b'\n{"at":1,"calls":[{"id":"a","name":"b","parts":[{"kind":"gif"}]}]}'),
        (3, USER + b'\n{"at":1,"calls":[{"id":"a","name":"b","parts":[{"kind":"image","data":"?"}]}]}'),
    ],
)
def test_content_that_breaks_a_rule_is_invalid(position: int, raw: bytes) -> None:
    """A blob with a right digest and wrong content is a `StateInvalidError`, before anything is sent."""
    whole = replace(
        conversation(1),
        inbox=(InboxItem(entry=USER, letter="u"),),
        open=OpenTurn(at=1, entries=(USER,), letters="u"),
    )
    segments = list(blobs.decode(dump_state(whole)))
    entries = 0 if position == 0 else raw.count(b",\n") + 1
    segments[position] = blobs.segment(segments[position].kind, raw, entries)

    with pytest.raises(StateInvalidError):
        read_history(blobs.encode(segments))


def _sample() -> bytes:
    """A state with everything in it: sealed and hot turns, tool calls, an inbox, an open turn."""

    def look(place: str) -> str:
        """Look around."""
        return f"nothing at {place}"

    backend = ScriptedBackend(Calls([("look", {"place": "é"})]), "done", Calls([("look", {"place": "x"})]))
    chat = Chat(backend, system="guide", tools=[look])
    state = chat.chat_with_state(None, user="look around", context="noon").state
    turn = chat.start(state, user="again")
    for found in turn:
        if type(found).__name__ == "ToolStarted":
            break
    return chat.append_to_state(turn.state, event("rain", topic="weather", id="w1"))


def test_mutated_content_never_raises_an_untyped_error() -> None:
    """Whatever stands inside a well-sealed blob, reading it and going on from it fails typed, or works."""
    seed = int(os.environ.get("GOAITOOLS_FUZZ_SEED", "20261121"))
    print(f"seed {seed}")
    dice = random.Random(seed)
    segments = blobs.decode(_sample())
    assert len(segments) == 4
    outcomes = {"read": 0, "refused": 0}

    for _ in range(int(os.environ.get("GOAITOOLS_STATE_FUZZ", "3000"))):
        mutated = list(segments)
        position = dice.randrange(len(segments))
        raw = bytearray(mutated[position].raw())
        for _ in range(dice.choice((1, 1, 2, 5))):
            at = dice.randrange(len(raw))
            match dice.randrange(4):
                case 0:
                    raw[at] = dice.randrange(256)
                case 1:
                    del raw[at : at + dice.randrange(1, 9)]
                case 2:
                    raw[at:at] = dice.choice(
                        (b'"', b"{", b"]", b",\n", b"\n", b"null", b"-1", b"\\ud800", b"1e999")
                    )
                case _:
                    cut = dice.randrange(at, len(raw))
                    raw[at:at] = raw[at : min(cut, at + 40)]
            if not raw:
                raw.extend(b"{}")
        given = mutated[position]
        mutated[position] = blobs.segment(given.kind, bytes(raw), given.entries)
        blob = blobs.encode(mutated)
        try:
            inspect_state(blob)
            read_history(blob)
            state_messages(blob)
            chat = Chat(ScriptedBackend("fine"))
            grown = chat.append_to_state(blob, event("more"))
            chat.chat_with_state(grown, user="go on", on_bad_state="raise")
            outcomes["read"] += 1
        except GoAIToolsError:
            outcomes["refused"] += 1

    assert all(outcomes.values()), outcomes


def test_messages_go_in_and_come_out() -> None:
    """`state_from_messages` and `state_messages` are each other's inverse."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]

    blob = state_from_messages("openai", messages)

    assert state_messages(blob) == messages
    assert [len(turn.iterations) for turn in read_history(blob).turns] == [2, 1]
    assert inspect_state(blob).messages == 5


def test_messages_that_no_provider_takes_are_refused() -> None:
    """An imported history is checked, and a system prompt is not taken for history."""
    with pytest.raises(ValueError, match="refuse"):
        state_from_messages("openai", [{"role": "tool", "tool_call_id": "x", "content": "?"}])
    with pytest.raises(ValueError, match="system="):
        state_from_messages("openai", [{"role": "system", "content": "be nice"}])
    with pytest.raises(ValueError, match="wire"):
        state_from_messages("telegraph", [])


def test_meta_is_small() -> None:
    """Everything that is not given is left out of the meta."""
    raw = blobs.decode(dump_state(conversation(1)))[0].raw()

    assert msgspec.json.decode(raw).keys() <= {"wire", "id", "created"}
