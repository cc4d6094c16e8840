"""A conversation as a value, and its way to bytes and back."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    Chat,
    GoAIToolsError,
    ProviderUnavailableError,
    StateInvalidError,
    StateProviderError,
    event,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.read_entries import read_entries
from goaitools_py.base.values import replace
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.records import CutRow, InboxItem, JournalCall, OpenTurn, usage_of, usage_row
from goaitools_py.state.segments import turn_records
from goaitools_py.state.state import (
    FULL_BYTES,
    SEAL_BYTES,
    ConversationState,
    closed_turns,
    dump_state,
    load_state,
    new_state,
    rebuild,
    with_turn,
)
from goaitools_py.states import inspect_state, read_history, state_from_messages, state_messages
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Image, Text, Usage

USER = b'{"role":"user","content":"hello"}'
REPLY = b'{"role":"assistant","content":"hi"}'


def record(at: int = 5, **facts: Any) -> TurnRecord:
    usage = Usage(input_tokens=10, cached_input_tokens=4, output_tokens=2, requests=1)
    iteration = Iteration(roles="ua", finish_reason="stop", usage=usage, start=1, ms=830)
    return TurnRecord(at=at, messages=2, iterations=(iteration,), facts=facts)


def turn(user: bytes, reply: bytes, at: int = 5) -> ClosedTurn:
    return ClosedTurn((user, reply), record(at))


def conversation(turns: int = 2, entry: bytes = REPLY) -> ConversationState:
    state = new_state("openai", id="c-1", created=1_763_727_600_123)
    for number in range(turns):
        state = with_turn(state, turn(USER, entry, number))
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
    """From 32 KiB on the hot segment is sealed; later turns carry its very bytes along."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"abc " * 5000)
    state = load_state(dump_state(conversation(3, entry)))
    assert [segment.kind for segment in state.segments] == [Kind.SEALED, Kind.HOT]

    grown = with_turn(state, turn(USER, REPLY))

    assert state.sealed[0].raw_len >= SEAL_BYTES
    assert grown.sealed[0] is state.sealed[0]


def test_a_small_sealed_segment_takes_in_the_next_one() -> None:
    """So a long history is in few pieces, each of 64 KiB or more but the last; nothing of it is lost."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"abc " * 1000)
    state = conversation(0)
    for number in range(60):
        state = load_state(dump_state(with_turn(state, turn(USER, entry, number))))

    sizes = [segment.raw_len for segment in state.sealed]
    assert len(sizes) >= 3
    assert all(FULL_BYTES <= size < FULL_BYTES + 2 * len(entry) + SEAL_BYTES for size in sizes[:-1])
    assert closed_turns(state) == [turn(USER, entry, number) for number in range(60)]


def test_a_rebuilt_history_is_packed_like_one_that_grew() -> None:
    """An import and a cut leave the segments that turns would have made."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"abc " * 1000)
    turns = [turn(USER, entry, number) for number in range(60)]
    grown = conversation(0)

    for number, one in enumerate(turns, 1):
        grown = with_turn(grown, one)
        rebuilt = rebuild(conversation(0), turns[:number])

        assert [s.entries for s in rebuilt.segments] == [s.entries for s in grown.segments], number
        assert [s.raw() for s in rebuilt.segments] == [s.raw() for s in grown.segments]


def test_rebuilding_packs_the_same_turns() -> None:
    """A rebuilt history has the turns it was given, in order, in segments of bounded size."""
    entry = b'{"role":"assistant","content":"%s"}' % (b"xyz " * 3000)
    turns = [turn(USER, entry, number) for number in range(20)]

    state = load_state(dump_state(rebuild(conversation(0), turns)))

    found = [row for segment in state.segments for row in turn_records(segment)]
    assert found == [one.record for one in turns]
    assert all(segment.raw_len < 2 * FULL_BYTES for segment in state.segments)


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


def damaged(position: int, raw: bytes) -> bytes:
    """A well-sealed blob of meta, history, inbox and open turn, with the content of one segment replaced."""
    whole = replace(
        conversation(1),
        inbox=(InboxItem(entry=USER, letter="u"),),
        open=OpenTurn(at=1, entries=(USER,), letters="u"),
    )
    segments = list(blobs.decode(dump_state(whole)))
    entries = 0 if position == 0 else raw.count(b",\n") + 1
    segments[position] = blobs.segment(segments[position].kind, raw, entries)
    return blobs.encode(segments)


def meta(**fields: Any) -> bytes:
    return json.dumps({"wire": "openai", **fields}).encode()


def opened(**fields: Any) -> bytes:
    """An open turn that has its reply."""
    row = {"at": 1, "messages": 2, "iterations": [["ua", "", 0, 0, 0, 0, 0, 0, 0]], **fields}
    return USER + b",\n" + REPLY + b"\n" + json.dumps(row).encode()


def called(**fields: Any) -> bytes:
    return opened(calls=[{"id": "a", "name": "b", **fields}])


META: dict[str, bytes] = {
    "no object": b"[]",
    "no wire": b'{"id":"no wire"}',
    "wire of a number": b'{"wire":5}',
    "wire too long": meta(wire="o" * 65),
    "id too long": meta(id="i" * 257),
    "model too long": meta(model="m" * 257),
    "status too long": meta(status="s" * 65),
    "total no list": meta(total="many"),
    "total too long": meta(total=[1] * 17),
    "total too large": meta(total=[2**53 + 1]),
    "usage negative": meta(usage=[-1]),
    "tokens negative": meta(tokens=-1),
    "tokens too large": meta(tokens=10**400),
    "revision too large": meta(rev=2**53 + 1),
    "created negative": meta(created=-1),
    "too many events": meta(events=["e"] * 65),
    "event too long": meta(events=["e" * 65]),
    "too many cuts": meta(cuts=[[0, "x", 1, 1]] * 65),
    "cut negative": meta(cuts=[[0, "x", -1, 1]]),
    "sticky too deep": b'{"wire":"openai","sticky":{"a":%s%s}}' % (b"[" * 200, b"]" * 200),
}
INBOX: dict[str, bytes] = {
    "columns too short": USER + b'\n["e"]',
    "no columns": USER + b"\n",
    "two letters": USER + b'\n["uu","",""]',
    "no letter": USER + b'\n["","",""]',
    "letter of a tool": USER + b'\n["t","",""]',
    "topic of a number": USER + b'\n["e",5,""]',
    "topic too long": USER + b'\n["e","%s",""]' % (b"t" * 257),
    "mark too long": USER + b'\n["e","","%s"]' % (b"m" * 65),
    "entry of a number": b'5\n["u","",""]',
    "entry of a list": b'[]\n["u","",""]',
    "entry of no JSON": b'nope\n["u","",""]',
}
OPEN: dict[str, bytes] = {
    "no time": USER + b'\n{"at":"now"}',
    "time negative": opened(at=-1),
    "too many letters": USER + b'\n{"at":1,"letters":"uu"}',
    "tokens too large": opened(iterations=[["ua", "", 2**53 + 1, 0, 0, 0, 0, 0, 0]]),
    "entry of no JSON": b'nope\n{"at":1,"letters":"u"}',
    "messages negative": opened(messages=-1),
    "flags no object": opened(facts={"flags": 5}),
    "flag of a number": opened(facts={"flags": {"a": 5}}),
    "interrupted by a number": opened(facts={"interrupted": 5}),
    "answers no list": opened(facts={"answers": 5}),
    "answers that are no places": opened(facts={"answers": [{}]}),
    "a negative place of an answer": opened(facts={"answers": [-1]}),
    "a status of a number": opened(facts={"status": 5}),
    "citations no list": opened(facts={"citations": 5}),
    "acts no list": opened(facts={"acts": {}}),
    "an act of a number": opened(facts={"acts": [5]}),
    "an act without a text": opened(facts={"acts": [[]]}),
    "data of an act that is no object": opened(facts={"acts": [["a", 5]]}),
    "facts too deep": opened().replace(b'{"at"', b'{"facts":{"a":%s%s},"at"' % (b"[" * 200, b"]" * 200)),
    "calls without a reply": USER + b'\n{"at":1,"letters":"u","calls":[{"id":"a","name":"b"}]}',
    "calls before the reply": opened(
        iterations=[["u", "", 0, 0, 0, 0, 0, 0, 0]], letters="a", calls=[{"id": "a", "name": "b"}]
    ),
    "calls of the user": opened(
        iterations=[["au", "", 0, 0, 0, 0, 0, 0, 0]], calls=[{"id": "a", "name": "b"}]
    ),
    "calls with one id": opened(calls=[{"id": "a", "name": "b"}] * 2),
    "call without id": called(id=""),
    "call started before all": called(started=-1),
    "call takes forever": called(seconds=1e300),
    "part of no kind": called(parts=[{"url": "x"}]),
    "part with a number": called(parts=[{"kind": "image", "media_type": "image/png", "url": 5}]),
    "part of no base64": called(parts=[{"kind": "image", "data": "?"}]),
}
TURNS: dict[str, bytes] = {
    "no columns": b"no columns",
    "empty turn": USER + b"\n[[]]",
    "too many roles": USER + b'\n[0,1,[["uu","",0,0,0,0,0,0,0]]]',
    "too few roles": USER + b",\n" + USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]]]',
    "nested without end": USER + b"\n" + b"[" * 5000,
    "role on two lines": USER + b",\n" + USER + b'\n[0,1,[["u\\n","",0,0,0,0,0,0,0]]]',
    "time negative": USER + b'\n[-1,1,[["u","",0,0,0,0,0,0,0]]]',
    "tokens too large": USER + b'\n[0,1,[["u","",9007199254740993,0,0,0,0,0,0]]]',
    "facts no object": USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]],[]]',
    "flags no object": USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]],{"flags":5}]',
    "flag of a number": USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]],{"flags":{"a":5}}]',
    "interrupted by a number": USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]],{"interrupted":5}]',
    "facts too deep": USER + b'\n[0,1,[["u","",0,0,0,0,0,0,0]],{"a":%s%s}]' % (b"[" * 200, b"]" * 200),
    "entry of a number": b'5\n[0,1,[["u","",0,0,0,0,0,0,0]]]',
}


@pytest.mark.parametrize(
    ("position", "raw"),
    [
        pytest.param(position, raw, id=f"{part}: {name}")
        for position, part, cases in ((0, "meta", META), (2, "inbox", INBOX), (3, "open", OPEN))
        for name, raw in cases.items()
    ],
)
def test_content_that_breaks_a_rule_is_refused_on_loading(position: int, raw: bytes) -> None:
    """A blob with a right digest and wrong content is a `StateInvalidError`, before anything is sent."""
    backend = ScriptedBackend("fine")

    with pytest.raises(StateInvalidError) as caught:
        Chat(backend).chat_with_state(damaged(position, raw), user="go on", on_bad_state="raise")

    assert backend.requests == []
    assert caught.value.__context__ is None  # an inner error would quote the content


@pytest.mark.parametrize("name", TURNS)
def test_history_that_breaks_a_rule_is_refused_on_reading(name: str) -> None:
    """The closed history is not parsed by a turn; whoever reads it gets a `StateInvalidError`."""
    with pytest.raises(StateInvalidError) as caught:
        read_history(damaged(1, TURNS[name]))

    assert caught.value.__context__ is None


def test_what_a_good_state_holds_is_within_the_rules() -> None:
    """The cases above break one rule each: without their one flaw the same segments are read."""
    for position, raw in ((0, meta()), (2, USER + b'\n["e","t","m"]'), (3, opened()), (3, called())):
        assert load_state(damaged(position, raw)).meta.wire == "openai"


def test_an_entry_that_a_dialect_cannot_read_is_invalid() -> None:
    """Whatever ValueError a dialect raises, its text does not come along."""

    class Refusing:
        def view(self, entry: bytes) -> Any:
            raise ValueError(f"cannot read {entry!r}")

    with pytest.raises(StateInvalidError) as caught:
        read_entries(Refusing(), [b"secret"])  # type: ignore[arg-type]

    assert "secret" not in str(caught.value)
    assert (caught.value.__context__, caught.value.__cause__) == (None, None)


def test_a_state_is_never_written_unreadably() -> None:
    """Numbers that no state may hold, from a provider or a clock set back, are bounded; texts are cut."""
    usage = Usage(input_tokens=10**400, output_tokens=-5, requests=1)
    impossible = TurnRecord(
        at=-3, messages=2, iterations=(Iteration(roles="ua", usage=usage, start=-1, ms=2**70),)
    )
    call = JournalCall(id="a", name="f", arguments="", started=-1.0, seconds=-0.5)
    last = Iteration(roles="ua", usage=usage)
    state = with_turn(new_state("openai", id="i" * 256, created=0), ClosedTurn((USER, REPLY), impossible))
    written = msgspec.structs.replace(
        state.meta,
        model="m" * 300,
        rev=2**53 + 1,
        tokens=10**5000,
        updated=-1,
        total=usage_row(usage),
        cuts=(CutRow(5, "by", 1, -7),),
    )
    state = replace(
        state,
        meta=written,
        inbox=(InboxItem(entry=USER, letter="e", topic="t" * 300),),
        open=OpenTurn(at=-1, entries=(USER, REPLY), iterations=(last,), messages=2, calls=(call,)),
    )

    after = load_state(dump_state(state))

    assert (len(after.meta.model), after.meta.rev, after.meta.tokens) == (256, 2**53, 2**53)
    assert (after.meta.updated, after.meta.cuts) == (0, (CutRow(5, "by", 1, 0),))
    assert after.meta.total == (2**53, 0, 0, 0, 0, 1)
    assert after.inbox[0].topic == "t" * 256
    assert after.open is not None
    assert (after.open.at, after.open.calls[0].started, after.open.calls[0].seconds) == (0, 0, 0)
    (read,) = turn_records(after.segments[0])
    assert (read.at, read.iterations[0].start, read.iterations[0].ms) == (0, 0, 2**53)
    assert read.iterations[0].usage.input_tokens == 2**53


def test_a_lone_surrogate_in_the_meta_is_replaced() -> None:
    """UTF-8 cannot hold it, and a paid turn must be written all the same."""
    state = new_state("openai", id="a\ud800", created=0)

    assert load_state(dump_state(state)).meta.id == "a\ufffd"


def _sample() -> bytes:
    """A state with everything in it: sealed and hot turns, tool calls, an inbox, an open turn."""

    def look(place: str) -> str:
        """Look around."""
        return f"nothing at {place}"

    backend = ScriptedBackend(Calls([("look", {"place": "é"})]), "done", Calls([("look", {"place": "x"})]))
    chat = Chat(backend, system="guide", tools=[look])
    state = chat.chat_with_state(None, user="look around", context="noon").state
    running = chat.start(state, user="again")
    for found in running:
        if type(found).__name__ == "ToolStarted":
            break
    return chat.append_to_state(running.state, event("rain", topic="weather", id="w1"))


TOO_LONG = BackendError("refused", status=400, body=b'{"error":{"code":"context_length_exceeded"}}')
ODD_BYTES = (b'"', b"{", b"]", b",\n", b"\n", b"null", b"-1", b"\\ud800", b"1e999")
ODD_NUMBERS = (-1, 0, 1, 2**53, 2**53 + 1, 10**400, 1.5, -0.5, 1e300)
KNOWN_NAMES = ("facts", "flags", "interrupted", "letters", "calls", "sticky", "seed")
ODD_VALUES: tuple[Any, ...] = (
    *ODD_NUMBERS,
    None,
    True,
    "",
    "u",
    "uu",
    "t",
    "x",
    "a" * 300,
    [],
    [[]],
    {},
    {"flags": 5},
)


def _other_bytes(dice: random.Random, segment: blobs.Segment) -> bytes:
    """The segment's content with bytes changed, removed, put in and said twice."""
    raw = bytearray(segment.raw())
    for _ in range(dice.choice((1, 1, 2, 5))):
        at = dice.randrange(len(raw))
        match dice.randrange(4):
            case 0:
                raw[at] = dice.randrange(256)
            case 1:
                del raw[at : at + dice.randrange(1, 9)]
            case 2:
                raw[at:at] = dice.choice(ODD_BYTES)
            case _:
                cut = dice.randrange(at, len(raw))
                raw[at:at] = raw[at : min(cut, at + 40)]
        if not raw:
            raw.extend(b"{}")
    return bytes(raw)


def _other_values(dice: random.Random, segment: blobs.Segment) -> bytes:
    """The segment's content as good JSON, with a number, letter, call or fact of its columns changed."""
    entries, line, columns = segment.raw().rpartition(b"\n")
    is_list = segment.kind not in (Kind.META, Kind.OPEN)
    root = [json.loads(b"[%s]" % columns if is_list else columns)]
    for _ in range(dice.choice((1, 1, 2))):
        holder, key = dice.choice(list(_places(root)))
        match dice.randrange(5):
            case 0 if isinstance(holder[key], str):
                holder[key] = "".join(dice.choices("sueatx", k=dice.randrange(4)))
            case 1 if isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            case 2 | 3 if isinstance(holder[key], dict):
                holder[key][dice.choice(KNOWN_NAMES)] = deepcopy(dice.choice(ODD_VALUES))
            case _:
                holder[key] = deepcopy(dice.choice(ODD_VALUES))
    raw = json.dumps(root[0], separators=(",", ":")).encode()
    return entries + line + (raw[1:-1] if is_list else raw)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield value, key
        yield from _places(item)


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
        given = mutated[position]
        mutate = dice.choice((_other_bytes, _other_values, _other_values))
        mutated[position] = blobs.segment(given.kind, mutate(dice, given), given.entries)
        blob = blobs.encode(mutated)
        backend = ScriptedBackend(*dice.choice((["fine"], [TOO_LONG, "fine"])))
        chat = Chat(backend, sticky_settings=True)
        try:
            inspect_state(blob)
            read_history(blob)
            state_messages(blob)
            grown = chat.append_to_state(blob, event("more"))
            if dice.randrange(2):
                chat.resume(grown)
            else:
                chat.chat_with_state(grown, user="go on", on_bad_state="raise")
            outcomes["read"] += 1
        except ProviderUnavailableError:
            raise  # nobody was unavailable: it hides an error of another kind
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
    with pytest.raises(ValueError, match="provider API 'telegraph'"):
        state_from_messages("telegraph", [])


def test_meta_is_small() -> None:
    """Everything that is not given is left out of the meta."""
    raw = blobs.decode(dump_state(conversation(1)))[0].raw()

    assert msgspec.json.decode(raw).keys() <= {"wire", "id", "created", "rules"}
