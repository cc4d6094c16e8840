"""Call ids that come twice in one history become unique: at an import, at a conversion, and where turns are
put behind turns that they have not grown from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, tool
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import ViewsHistory
from goaitools_py.base.values import replace
from goaitools_py.history.convert.state import translated
from goaitools_py.state.codec import LIMITS
from goaitools_py.state.state import closed_turns, load_state, rebuild
from goaitools_py.states import (
    convert_state,
    inspect_state,
    read_history,
    rebase_state,
    state_from_messages,
    state_messages,
    undo_cut,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.messages import Text, ToolCall, ToolResult, assistant, user

JSON = dict[str, Any]
WIRES = ("openai", "openai-responses", "anthropic")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each provider API."""
    return str(request.param)


def said(wire: str, text: str, *, by: str = "user") -> list[JSON]:
    message = user(text) if by == "user" else assistant(text)
    return [json.loads(entry) for entry in dialect_of(wire).entries([message])]


def exchange(wire: str, *ids: str, texts: Sequence[str], **more: Any) -> list[JSON]:
    """A reply with these calls, and their results."""
    if wire == "openai":
        calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
        made: list[JSON] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    elif wire == "anthropic":
        blocks = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ids]
        made = [{"role": "assistant", "content": [*more.get("first", ()), *blocks]}]
    else:
        made = [{"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} for id in ids]
    results = [ToolResult(call_id=id, parts=(Text(text),)) for id, text in zip(ids, texts, strict=True)]
    return [*made, *(json.loads(entry) for entry in dialect_of(wire).results(results))]


def history(wire: str) -> list[JSON]:
    """Three exchanges with the calls "c1", in the second one beside "c2"."""
    return [
        *said(wire, "One?"), *exchange(wire, "c1", texts=["first"]), *said(wire, "A.", by="model"),
        *said(wire, "Two?"), *exchange(wire, "c1", "c2", texts=["second", "beside"]),
        *exchange(wire, "c1", texts=["third"]), *said(wire, "B.", by="model"),
    ]  # fmt: skip


def calls_of(state: bytes) -> list[ToolCall]:
    return [call for message in read_history(state).all_messages() for call in message.tool_calls]


def answers(state: bytes) -> dict[str, str]:
    """The text of each result, by its call."""
    found = read_history(state).all_messages()
    return {one.tool_call_id or "": one.text for one in found if one.role == "tool"}


def imported(wire: str, messages: Sequence[JSON], **more: Any) -> bytes:
    return state_from_messages(wire, messages, conversation_id="c", created_ms=1, **more)


@pytest.mark.parametrize("repair", [False, True])
def test_an_import_makes_ids_unique(wire: str, repair: bool) -> None:
    """The first call keeps its id, each result stands with its call, and the change is noted."""
    state = imported(wire, history(wire), repair=repair)

    ids = [call.id for call in calls_of(state)]
    assert len(set(ids)) == 4
    assert (ids[0], ids[2]) == ("c1", "c2")
    found = answers(state)
    assert [found[id] for id in ids] == ["first", "second", "beside", "third"]
    assert check_history(wire, state_messages(state)) == []
    (cut,) = inspect_state(state).cuts
    assert cut[1] == "repaired"
    facts = [turn.record.facts.get("repaired") for turn in closed_turns(load_state(state))]
    assert facts == [None, {"call_renamed": 4}]


@pytest.mark.parametrize("repair", [False, True])
def test_the_same_messages_get_the_same_ids(wire: str, repair: bool) -> None:
    """In each import, whatever follows them."""
    whole = history(wire)
    more = [*whole, *said(wire, "Three?"), *exchange(wire, "c1", texts=["4th"]), *said(wire, "C.", by="m")]

    assert imported(wire, whole, repair=repair) == imported(wire, whole, repair=repair)
    ids, longer = (
        [call.id for call in calls_of(imported(wire, one, repair=repair))] for one in (whole, more)
    )
    assert longer[:4] == ids
    assert len(set(longer)) == 5


def test_without_a_second_id_no_byte_changes(wire: str) -> None:
    """Nothing is noted either."""
    messages = [*said(wire, "One?"), *exchange(wire, "c1", "c2", texts=["a", "b"]), *said(wire, "A.", by="m")]
    state = imported(wire, messages)

    assert state_messages(state) == messages
    assert inspect_state(state).cuts == ()


def test_a_new_id_is_nobody_elses(wire: str) -> None:
    """A history that has been imported once, and goes on with the old id."""
    once = state_messages(imported(wire, history(wire)))
    again = [*once, *said(wire, "Three?"), *exchange(wire, "c1", texts=["4th"]), *said(wire, "C.", by="m")]

    ids = [call.id for call in calls_of(imported(wire, again))]

    assert len(set(ids)) == len(ids) == 5


def test_an_added_result_has_its_flag_under_the_new_id(wire: str) -> None:
    """A repair adds the result that the second call lacks."""
    broken = [entry for entry in history(wire) if "third" not in json.dumps(entry)]

    state = imported(wire, broken, repair=True)

    last = calls_of(state)[-1].id
    assert last != "c1"
    assert answers(state)[last] != "third"
    (flags,) = [turn.record.facts["flags"] for turn in closed_turns(load_state(state)) if turn.record.facts]
    assert flags == {last: "unknown"}


def test_signed_thinking_goes_with_the_change() -> None:
    """It is bound to what stood before it."""
    signed = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    wire = "anthropic"
    messages = [
        *said(wire, "One?"),
        *exchange(wire, "c1", texts=["a"], first=[signed]),
        *said(wire, "A.", by="m"),
    ]
    assert "thinking" in json.dumps(state_messages(imported(wire, messages)))

    state = imported(wire, [*messages, *messages])

    assert "thinking" not in json.dumps(state_messages(state))
    assert inspect_state(state).messages


def test_a_turn_goes_on(face: Any, wire: str) -> None:
    """The request holds unique ids."""
    backend = ScriptedBackend("Yes.", wire=wire)

    face.chat(backend).chat_with_state(imported(wire, history(wire)), user="Sure?")

    body = json.loads(backend.requests[0].body)
    sent = body.get("messages") or body["input"]
    assert check_history(wire, [one for one in sent if one.get("role") != "system"]) == []


def test_a_hostile_history_takes_no_long_time(wire: str) -> None:
    """Three thousand calls with one id."""
    pair = [json.dumps(entry).encode() for entry in exchange(wire, "c1", texts=["x"])]
    before = time.thread_time()

    dialect = dialect_of(wire)
    assert isinstance(dialect, ViewsHistory)
    found = dialect.unique_calls(pair * 3_000)

    assert time.thread_time() - before < 10
    assert len({one.ids.get("c1", "c1") for one in found}) == 3_000


# -------------------------------------------------------------------------------------- conversions


def with_one_id(state: bytes, target: str) -> Any:
    """The state as an older release could hold it: all calls have the id "c1"."""
    known = load_state(state)
    turns = []
    for turn in closed_turns(known):
        entries = []
        for entry in turn.entries:
            for call in calls_of(state):
                if call.id != "c2":
                    entry = entry.replace(b'"%s"' % call.id.encode(), b'"c1"')
            entries.append(entry)
        turns.append(replace(turn, entries=tuple(entries)))
    return rebuild(known, turns)


@pytest.mark.parametrize("to", WIRES)
def test_a_conversion_makes_ids_unique(wire: str, to: str) -> None:
    """Also of a state from before the imports did; each is a loss of its turn."""
    if wire == to:
        return
    state = with_one_id(imported(wire, history(wire)), to)

    found, losses = translated(state, dialect_of(wire), dialect_of(to), limits=LIMITS)
    again, _ = translated(state, dialect_of(wire), dialect_of(to), limits=LIMITS)

    entries = [entry for turn in closed_turns(found) for entry in turn.entries]
    assert check_history(to, [json.loads(entry) for entry in entries]) == []
    assert [(loss.turn, loss.count) for loss in losses if loss.kind == "call_id"] == [(2, 2)]
    assert not [loss for loss in losses if loss.kind == "mended"]
    assert entries == [entry for turn in closed_turns(again) for entry in turn.entries]
    messages = dialect_of(to).view(entries)
    results = {one.tool_call_id: one.text for one in messages if one.role == "tool"}
    ids = [call.id for message in messages for call in message.tool_calls]
    assert [results[id] for id in ids] == ["first", "second", "beside", "third"]


# ------------------------------------------------------------------- turns behind turns that are not theirs


@tool
def pay(sum: int) -> str:
    """Pay."""
    if sum < 0:
        raise ValueError("no such sum")
    return f"paid {sum}"


def paying(state: bytes, sum: int, wire: str) -> bytes:
    """A turn with a call, said to a server that counts its calls: the first one always has the same id."""
    script = Calls([("pay", {"sum": sum})]), f"Done {sum}."
    return Chat(ScriptedBackend(*script, wire=wire), tools=[pay]).chat_with_state(state, user="Pay.").state


def told(wire: str, *texts: str) -> bytes:
    return Chat(ScriptedBackend(*texts, wire=wire)).run_turns(None, list(texts)).state


def test_a_turn_behind_anothers_turn(wire: str) -> None:
    """Theirs stays as it was. My call gets another id, and so do its result and the flag of that."""
    base = told(wire, "Hello.")
    theirs, mine = paying(base, 1, wire), paying(base, -2, wire)
    (id,) = {call.id for state in (theirs, mine) for call in calls_of(state)}

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    assert check_history(wire, state_messages(joined)) == []
    assert state_messages(joined)[: len(state_messages(theirs))] == state_messages(theirs)
    first, second = (call.id for call in calls_of(joined))
    assert first == id
    assert answers(joined)[first] == "paid 1"
    assert answers(joined)[second] == answers(mine)[id]
    flags = [turn.record.facts.get("flags") for turn in closed_turns(load_state(joined))]
    assert flags == [None, None, {second: "error"}]
    assert rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True) == joined


def test_three_turns_of_one_base(wire: str) -> None:
    """Also if the base has the id too: then both turns have made the same new id of it."""
    base = paying(told(wire, "Hello."), 0, wire)
    first, second, third = (paying(base, sum, wire) for sum in (1, 2, 3))

    joined = rebase_state(second, base=base, theirs=first, concurrent_turns=True)
    joined = rebase_state(third, base=base, theirs=joined, concurrent_turns=True)

    assert check_history(wire, state_messages(joined)) == []
    found = answers(joined)
    assert [found[call.id] for call in calls_of(joined)] == ["paid 0", "paid 1", "paid 2", "paid 3"]


@pytest.mark.parametrize("to", WIRES)
def test_a_turn_behind_a_converted_one(wire: str, to: str) -> None:
    """Two providers that count their calls."""
    base = told(wire, "Hello.")
    theirs = paying(convert_state(base, to=to).state, 1, to)
    mine = paying(base, 2, wire)

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    assert check_history(wire, state_messages(joined)) == []
    found = answers(joined)
    assert [found[call.id] for call in calls_of(joined)] == ["paid 1", "paid 2"]


def test_turns_behind_a_cut_that_is_undone(wire: str) -> None:
    """No request had the cut turns when the newer call got its id. They come back as they were."""
    before = paying(paying(told(wire, "Hello."), 1, wire), 2, wire)
    dropping = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
    cut = Chat(ScriptedBackend(wire=wire)).compact_state(before, dropping).state
    assert len(calls_of(cut)) == 1

    back = undo_cut(paying(cut, 3, wire))

    assert check_history(wire, state_messages(back)) == []
    assert state_messages(back)[: len(state_messages(before))] == state_messages(before)
    found = answers(back)
    assert [found[call.id] for call in calls_of(back)] == ["paid 1", "paid 2", "paid 3"]


def test_other_ids_stay(wire: str) -> None:
    """My turn is put behind theirs byte for byte."""
    base = told(wire, "Hello.")
    theirs = Chat(ScriptedBackend("Yes.", wire=wire)).chat_with_state(base, user="Well?").state
    mine = paying(base, 1, wire)

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    own = len(state_messages(base))
    assert state_messages(joined) == [*state_messages(theirs), *state_messages(mine)[own:]]


# ----------------------------------------------------------------------------------- real histories


def conversations(data_dir: Path) -> Iterator[list[JSON]]:
    for name in ("tau-airline-gpt4o", "sweagent"):
        path = data_dir / "conversations" / f"{name}.jsonl.zst"
        if not path.is_file():
            pytest.skip(f"no recorded conversations: {path.name} is not in the data directory")
        with path.open("rb") as file:
            for line in zstandard.ZstdDecompressor().stream_reader(file).read().splitlines():
                yield json.loads(line)["messages"]


@pytest.mark.parametrize("repair", [False, True])
def test_recorded_conversations(data_dir: Path, repair: bool) -> None:
    """Each is imported with unique ids, the same texts in the same order, and goes to the other APIs."""
    renamed = 0
    for messages in conversations(data_dir):
        messages = messages[sum(one["role"] == "system" for one in messages[:1]) :]
        state = imported("openai", messages, repair=repair)
        ids = [call.id for call in calls_of(state)]
        assert len(ids) == len(set(ids))
        assert check_history("openai", state_messages(state)) == []
        given = [one["content"] for one in messages if one["role"] == "tool"]
        if repair is False:
            assert [one["content"] for one in state_messages(state) if one["role"] == "tool"] == given
        renamed += bool(inspect_state(state).cuts)
        for to in () if repair else WIRES[1:]:
            converted = convert_state(state, to=to)
            assert check_history(to, state_messages(converted.state)) == []
            assert not [loss for loss in converted.losses if loss.kind in ("call_id", "mended")]
    assert renamed == 35
