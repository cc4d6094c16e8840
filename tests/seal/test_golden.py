"""What was once written is read for ever, and what was once refused stays refused: the frozen vectors."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Compactor,
    KeepRecentTurns,
    StateAuthError,
    StateError,
    TurnLimit,
    tool,
)
from goaitools_py.backends.dialects import dialect_of, known_dialect
from goaitools_py.history.branch import before_message
from goaitools_py.history.message_places import owners_in
from goaitools_py.open_turn.inbox import said_by_others, withdrawn
from goaitools_py.open_turn.turn_ids import is_finished, key_of, stored_reply
from goaitools_py.seal import rewrap
from goaitools_py.state import blob
from goaitools_py.state.apart import StateHead
from goaitools_py.state.blob_header import peek
from goaitools_py.state.records import digest8
from goaitools_py.state.state import closed_entries, dump_state, load_state
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import (
    inspect_state,
    pending_calls,
    read_history,
    rewind_state,
    state_from_text,
    state_messages,
    state_to_text,
    undo_cut,
    verify_state,
)
from goaitools_py.stores import MemoryStore
from goaitools_py.stores.layout import StoredPart
from goaitools_py.testing import ScriptedBackend, check_history
from goaitools_py.types import errors

from . import _second
from ._golden import (
    ACTIONS,
    ANEW,
    ARCHIVED,
    BAD,
    FACTS,
    GOLDEN,
    GOOD,
    HOSTS,
    LATER,
    MEDIA,
    OWN,
    PARTED,
    PINS,
    RESULTS,
    UNSENT,
    WAITING,
    Vector,
    codec_of,
    smallest,
)
from ._later import VALUE

CODECS = ["plain", "signed", "encrypted", "encrypted-client"]


def ids(vector: Vector) -> str:
    return vector.name


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def opened(given: bytes, vector: Vector) -> list[bytes] | None:
    """All that a blob holds, by the vector's key and binding; None for a typed error that carries it."""
    try:
        return [each.raw() for each in blob.decode(given, **vector.opening)]
    except StateError as error:
        carried = error.blob
    assert carried == given
    return None


# ------------------------------------------------------------------------------------------------ files


def test_the_vectors_are_those_that_were_written() -> None:
    """The files have the hashes that the provenance states: nobody wrote them anew."""
    text = (GOLDEN / "PROVENANCE.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"`(v1-\w+\.jsonl)`.*?`([0-9a-f]{64})`", text))

    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in GOLDEN.glob("*.jsonl")}

    assert found == stated
    assert len(found) == 15


def test_there_are_vectors_of_everything() -> None:
    """Each codec on each wire with each feature, and forty ways to be wrong in each suite."""
    features = {each.facts["feature"] for each in GOOD}
    wires = {each.facts["wire"] for each in GOOD}
    cells = {(each.codec, each.facts["wire"], each.facts["feature"]) for each in GOOD}

    assert (len(features), len(wires)) == (10, 3)
    assert cells >= {(c, w, f) for c in CODECS for w in wires for f in features - {"long"}}
    assert {c for c, _, f in cells if f == "long"} == {"plain", "signed", "encrypted"}
    assert all(sum(each.codec == codec for each in BAD) >= 40 for codec in CODECS[:3])


def test_each_file_has_each_codec_on_each_wire() -> None:
    """Blobs of a later release have three suites; the fourth codec is one of them with other visibility."""
    cells = {(codec, each.facts["wire"]) for codec in CODECS for each in GOOD}
    files = (ARCHIVED, MEDIA, FACTS, UNSENT, PINS, RESULTS, ACTIONS, WAITING, OWN, ANEW, HOSTS, PARTED)

    assert len(cells) == 12
    assert [{(each.codec, each.facts["wire"]) for each in vectors} == cells for vectors in files] == [
        True
    ] * 12
    assert {(each.codec, each.facts["wire"]) for each in LATER} == {
        cell for cell in cells if cell[0] != CODECS[3]
    }


# ------------------------------------------------------------------------------------------------- good


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_is_read(vector: Vector) -> None:
    """Segments, entries and messages are those that were written then; the history is one to be sent."""
    segments = blob.decode(vector.blob, **vector.opening)
    messages = state_messages(vector.blob, **vector.opening)
    texts = [message.text[:60] for message in read_history(vector.blob, **vector.opening).all_messages()]

    found = [[int(s.kind), s.entries, s.raw_len, hashlib.sha256(s.raw()).hexdigest()] for s in segments]
    assert found == vector.facts["segments"]
    assert hashlib.sha256(canonical(messages)).hexdigest() == vector.facts["messages"]
    assert texts == vector.facts["texts"]
    assert check_history(vector.facts["wire"], messages) == []


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_a_second_reader_finds_the_same(vector: Vector) -> None:
    """A reader made from the drawn pages and other people's cryptography opens it, and no other way."""
    found = _second.opened(vector.blob, vector.secrets, vector.bound)

    described = [[s.kind, s.entries, len(s.raw), hashlib.sha256(s.raw).hexdigest()] for s in found]
    assert described == vector.facts["segments"]
    if vector.key:
        with pytest.raises(_second.Refused):
            _second.opened(vector.blob, vector.secrets, {"user": "Eve"})


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_goes_on(vector: Vector) -> None:
    """The next turn keeps every message that was there, and seals with the same codec."""

    @tool
    def look(place: str) -> str:
        """What there is at a place."""
        return place

    @tool(requires_approval=True)
    def pay(pounds: int) -> str:
        """Pay for the tea."""
        return f"Paid {pounds}."

    feature = vector.facts["feature"]
    tools = [look, pay] if feature == "waiting for an approval" else [look]
    backend = ScriptedBackend("Go on.", wire=vector.facts["wire"])
    chat = Chat(backend, codec=vector.opening["codec"], binding=vector.binding, tools=tools)
    before = state_messages(vector.blob, **vector.opening)
    info = inspect_state(vector.blob, **vector.opening)

    if feature in ("waiting for an approval", "broken off"):
        waiting = pending_calls(vector.blob, **vector.opening)
        done = chat.resume(vector.blob, {call.id: Approve() for call in waiting})
        before = before[: -len(waiting)] if waiting else before  # shown as they would close: not run
    else:
        done = chat.chat_with_state(vector.blob, user="And now?")

    after = state_messages(done.state, **vector.opening)
    assert after[: len(before)] == before
    assert check_history(vector.facts["wire"], after) == []
    assert inspect_state(done.state, **vector.opening).revision == info.revision + 1
    assert inspect_state(done.state, **vector.opening).turns == info.turns + 1
    assert peek(done.state).suite == peek(vector.blob).suite


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_is_written_again(vector: Vector) -> None:
    """Decoding, dumping, sealing by every other codec and the way through text lose nothing."""
    raws = opened(vector.blob, vector)
    state = load_state(vector.blob, **vector.opening)

    again = dump_state(state, **vector.opening)

    assert opened(again, vector) == raws
    assert state_from_text(state_to_text(vector.blob)) == vector.blob
    binding = {"room": "7"}
    for name in CODECS[1:]:
        target = codec_of(name, "C")
        moved = rewrap(vector.blob, **vector.opening, to=target, to_binding=binding)
        assert [each.raw() for each in blob.decode(moved, codec=target, binding=binding)] == raws
        back = rewrap(moved, target, binding=binding, to=vector.opening["codec"], to_binding=vector.binding)
        assert opened(back, vector) == raws


# ---------------------------------------------------------------------------------------------- archive


@pytest.mark.parametrize("vector", ARCHIVED, ids=ids)
def test_an_archive_that_was_written_is_read(vector: Vector) -> None:
    """Parts and messages are those that were written then, the transcript is whole, and all of it checks."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    codec, binding = vector.opening["codec"], vector.binding

    assert verify_state(vector.blob, **vector.opening) == ()
    parts = [
        [part.kind, part.entries, part.raw_len, hashlib.sha256(part.raw(codec, binding)).hexdigest()]
        for part in state.parts
    ]
    assert parts == facts["parts"]
    assert hashed(vector.blob, vector) == facts["messages"]
    whole = read_history(vector.blob, **vector.opening, archived=True)
    assert [message.text[:60] for message in whole.all_messages()] == facts["texts"]
    assert [turn.number for turn in whole.turns] == list(range(1, len(whole.turns) + 1))


@pytest.mark.parametrize("vector", ARCHIVED, ids=ids)
def test_an_archive_that_was_written_leads_back(vector: Vector) -> None:
    """By an undo, and by each number of turns; the next turn keeps the archive."""
    facts = vector.facts

    assert hashed(undo_cut(vector.blob, **vector.opening), vector) == facts["undone"]
    for turns, expected in enumerate(facts["rewound"], 1):
        back = rewind_state(vector.blob, turns, **vector.opening)
        assert hashed(back, vector) == expected
        assert check_history(facts["wire"], state_messages(back, **vector.opening)) == []
    backend = ScriptedBackend("Go on.", wire=facts["wire"])
    with Chat(backend, codec=vector.opening["codec"], binding=vector.binding) as chat:
        after = chat.chat_with_state(vector.blob, user="And now?").state
    assert verify_state(after, **vector.opening) == ()
    whole = read_history(after, **vector.opening, archived=True)
    assert [message.text[:60] for message in whole.all_messages()] == [*facts["texts"], "And now?", "Go on."]


# ------------------------------------------------------------------------------------------------ media


@pytest.mark.parametrize("vector", MEDIA, ids=ids)
def test_media_that_were_written_are_read(vector: Vector) -> None:
    """Segments, parts and rows are those that were written then, and each entry is whole, byte for byte."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    codec, binding = vector.opening["codec"], vector.binding
    segments, parts = blob.decode_whole(vector.blob, **vector.opening)

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    assert [[p.kind, p.entries, p.raw_len, sha(p.raw(codec, binding))] for p in parts] == facts["parts"]
    assert [[row.digest, row.archived] for row in state.meta.media] == facts["media"]
    assert [sha(entry) for entry in closed_entries(state)] == facts["entries"]
    assert [sha(entry) for entry in (state.open.entries if state.open else ())] == facts["open"]
    assert [sha(item.entry) for item in state.inbox] == facts["waiting"]
    assert hashed(vector.blob, vector) == facts["messages"]
    assert shown(vector.blob, vector) == facts["shown"]


@pytest.mark.parametrize("vector", MEDIA, ids=ids)
def test_media_that_were_written_go_on(vector: Vector) -> None:
    """Written again they are the same; a turn, a fork and an undo keep them."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    raws = [each.raw() for each in blob.decode(vector.blob, **vector.opening)]

    assert opened(dump_state(state, **vector.opening), vector) == raws
    backend = ScriptedBackend("Go on.", wire=facts["wire"])
    with Chat(backend, codec=vector.opening["codec"], binding=vector.binding) as chat:
        after = chat.chat_with_state(vector.blob, user="And now?", on_pending="deny").state
    assert verify_state(after, **vector.opening) == ()
    entries = [sha(entry) for entry in closed_entries(load_state(after, **vector.opening))]
    assert entries[: len(facts["entries"])] == facts["entries"]
    named = {row.digest for row in load_state(after, **vector.opening).meta.media}
    if (facts["wire"], facts["feature"]) == ("openai", "shown by a tool"):
        assert not named  # results of tools are text there: the picture was in the open journal only
    else:
        assert named == {digest for digest, _ in facts["media"]}
    if facts["feature"] == "cut away":
        back = undo_cut(after, **vector.opening)
        assert [line[:60] for line, *_ in shown(back, vector)][-2:] == ["And now?", "Go on."]


# ------------------------------------------------------------------------------------------------ facts


@pytest.mark.parametrize("vector", FACTS, ids=ids)
def test_facts_that_were_written_are_read(vector: Vector) -> None:
    """Seconds of calls, speakers and typed answers are those that were written, and are written again."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)
    history = read_history(vector.blob, **vector.opening)

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    assert state.meta.output == facts["output"]
    assert (list(state.open.facts["answers"]) if state.open is not None else []) == facts["answers"]
    assert [[call.name, call.seconds] for call in history.tool_calls()] == facts["calls"]
    assert [[message.speaker, message.said] for message in history.all_messages()] == facts["said"]
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]


@pytest.mark.parametrize("vector", FACTS, ids=ids)
def test_facts_that_were_written_go_on(vector: Vector) -> None:
    """The next turn keeps every entry of the history."""
    backend = ScriptedBackend("Go on.", wire=vector.facts["wire"])
    before = [sha(entry) for entry in closed_entries(load_state(vector.blob, **vector.opening))]
    with Chat(backend, codec=vector.opening["codec"], binding=vector.binding) as chat:
        after = chat.chat_with_state(vector.blob, user="And now?").state

    assert verify_state(after, **vector.opening) == ()
    assert [sha(entry) for entry in closed_entries(load_state(after, **vector.opening))][
        : len(before)
    ] == before


@pytest.mark.parametrize("vector", UNSENT, ids=ids)
def test_refused_turns_that_were_written_are_read(vector: Vector) -> None:
    """They are in the history, in no request, and are written again as they were."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    assert [turn.is_sent for turn in read_history(vector.blob, **vector.opening).turns] == facts["sent"]
    assert sha(b"".join(bytes(one) for one in state.history())) == facts["history"]
    assert b"Tell me that." not in b"".join(bytes(one) for one in state.history())
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]


@pytest.mark.parametrize("vector", ACTIONS, ids=ids)
def test_actions_that_were_written_are_read(vector: Vector) -> None:
    """They are with their turns, and are written again as they were."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)
    turns = read_history(vector.blob, **vector.opening).turns

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    assert [[[one.text, dict(one.data)] for one in turn.actions] for turn in turns] == facts["actions"]
    assert facts["actions"][0][-1][1] == {"left_out": 1}
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]


@pytest.mark.parametrize("vector", WAITING, ids=ids)
def test_claimed_messages_that_were_written_are_read(vector: Vector) -> None:
    """Their speakers, ids and marks are known, and are written again as they were. Only the message that is
    not claimed can be withdrawn."""
    state = load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)

    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == vector.facts["segments"]
    assert [[item.speaker, item.id, item.is_taken] for item in state.inbox] == vector.facts["waiting"]
    assert [taken for *_, taken in vector.facts["waiting"]] == [True, True, False]
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]
    left = [len(withdrawn(state, item.id).inbox) for item in state.inbox]
    assert left == [3, 3, 2]


@pytest.mark.parametrize("vector", OWN, ids=ids)
def test_waiting_messages_know_their_turn(vector: Vector) -> None:
    """Turn, speaker, pin and topic are known, and are written again as they were. A second delivery knows its
    own."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    waiting = [[item.turn, item.speaker, item.pinned, item.topic] for item in state.inbox]
    assert waiting == facts["waiting"]
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]
    if facts["feature"] != "unanswered":
        first = key_of("m-1", ())
        assert is_finished(state.meta, first)
        assert [item.is_taken for item in state.inbox] == ([True] if facts["feature"] == "late" else [])
        last = "It is open." if facts["feature"] == "same_call" else "It is locked."
        opened_ids = None if state.open is None else state.open.facts["same_call"]
        assert opened_ids == ([first.id] if facts["feature"] == "same_call_waits" else None)
        assert stored_reply(state, first, known_dialect(state.meta.wire)).text == last
        return
    for turn_id in ("m-1", "m-2"):
        others = said_by_others(state, digest8(turn_id), None).items
        own = [item for item in state.inbox if item not in others]
        assert [item.speaker for item in own if item.speaker] == ["Tom"]
        assert all(item.turn == digest8(turn_id) for item in own)


@pytest.mark.parametrize("vector", RESULTS, ids=ids)
def test_results_that_were_kept_whole_are_read(vector: Vector) -> None:
    """Each call has all of its result, and the parts are written again as they were."""
    facts, state = vector.facts, load_state(vector.blob, **vector.opening)

    assert verify_state(vector.blob, **vector.opening) == ()
    segments = blob.decode(vector.blob, **vector.opening)
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == facts["segments"]
    again = dump_state(state, **vector.opening)
    for given in (vector.blob, again):
        calls = read_history(given, **vector.opening).tool_calls()
        assert [call.whole and sha(call.whole.encode()) for call in calls] == facts["results"]
        parts = parts_of(given, **vector.opening)
        found = [[p.kind, p.entries, p.raw_len, sha(p.raw(**vector.opening))] for p in parts]
        assert found == facts["parts"]
    assert sum(result is not None for result in facts["results"]) == len(facts["parts"]) == 3
    assert opened(again, vector) == [each.raw() for each in segments]


@pytest.mark.parametrize("vector", PINS, ids=ids)
def test_pins_that_were_written_are_read(vector: Vector) -> None:
    """Each message has its pin, the state is written again as it was, and the next cut keeps the pins."""
    state = load_state(vector.blob, **vector.opening)
    segments = blob.decode(vector.blob, **vector.opening)
    turns = read_history(vector.blob, **vector.opening).turns

    assert verify_state(vector.blob, **vector.opening) == ()
    assert [[int(s.kind), s.entries, s.raw_len, sha(s.raw())] for s in segments] == vector.facts["segments"]
    assert [
        [turn.number, one.said, one.speaker, one.pinned] for turn in turns for one in turn.messages
    ] == vector.facts["said"]
    assert opened(dump_state(state, **vector.opening), vector) == [each.raw() for each in segments]
    backend = ScriptedBackend("Go on.", wire=vector.facts["wire"])
    cut = Compactor(TurnLimit(1), KeepRecentTurns(1))
    with Chat(backend, codec=vector.opening["codec"], binding=vector.binding, compactor=cut) as chat:
        after = chat.chat_with_state(vector.blob, user="And now?", on_pending="deny").state
    left = [one.said for one in read_history(after, **vector.opening).all_messages()]
    pinned = ["I am Ada.", "It is noon.", "The lamp is lit.", "And wake me."]
    assert left == [*pinned, *left[4:]]
    assert left[4:] == ["It is dark.", "And now?", "Go on."]


def shown(blob: bytes, vector: Vector) -> list[list[str]]:
    """The text of each message of the whole transcript, and the hash of each medium in it."""
    history = read_history(blob, **vector.opening, archived=True)
    return [
        [message.text[:60], *[sha(part.data) for part in message.parts if getattr(part, "data", None)]]
        for message in history.all_messages()
    ]


def sha(data: bytes) -> str:
    """A hash as the vectors have it."""
    return hashlib.sha256(data).hexdigest()


def hashed(blob: bytes, vector: Vector) -> str:
    """The hash of a state's messages."""
    return hashlib.sha256(canonical(state_messages(blob, **vector.opening))).hexdigest()


# ------------------------------------------------------------------------------- hosts, parts, later ones


@pytest.mark.parametrize("vector", ANEW, ids=ids)
def test_messages_that_were_written_anew_are_found(vector: Vector) -> None:
    """Each by its turn id. A second delivery of them has the reply."""
    opened = load_state(vector.blob, **vector.opening)
    wire = vector.facts["wire"]

    assert [one.said for one in opened.meta.ring] == vector.facts["said"]
    assert owners_in(opened, 1, dialect_of(wire)) == vector.facts["owners"]
    edited = before_message(opened, "m-2", dialect_of(wire), codec=vector.opening["codec"])
    assert [item.turn for item in edited.inbox] == [vector.facts["owners"][0], ""]
    chat = Chat(ScriptedBackend(wire=wire), codec=codec_of(vector.codec, vector.key))
    result = chat.chat_with_state(vector.blob, user="I am lost.", turn_id="m-2", binding=vector.binding)
    assert (result.duplicate, result.text) == (True, "Straight on.")


@pytest.mark.parametrize("vector", HOSTS, ids=ids)
def test_known_hosts_are_read_and_stay(vector: Vector) -> None:
    """The rules of each host, also after a turn at another one."""
    opened = load_state(vector.blob, **vector.opening)

    assert [[row.host, row.rules] for row in opened.meta.hosts] == vector.facts["hosts"]
    chat = Chat(ScriptedBackend("Yes.", wire=vector.facts["wire"]), codec=codec_of(vector.codec, vector.key))
    state = chat.chat_with_state(vector.blob, user="Still?", binding=vector.binding).state
    assert load_state(state, **vector.opening).meta.hosts == opened.meta.hosts


def beside(vector: Vector) -> dict[bytes, bytes]:
    """The parts beside a head, by name."""
    found = [base64.b64decode(data) for _, data in vector.facts["beside"]]
    return {hashlib.sha256(data).digest(): data for data in found}


@pytest.mark.parametrize("vector", PARTED, ids=ids)
def test_a_head_and_its_parts_are_one_conversation(vector: Vector) -> None:
    """Parts of each kind: the messages, the whole transcript and the long result."""
    kinds = {kind for kind, _ in vector.facts["beside"]}
    codec = codec_of(vector.codec, vector.key)

    whole = StateHead.loaded(vector.blob, beside(vector), codec, vector.binding).whole

    assert kinds == {1, 64, 65, 66}
    history = read_history(whole, **vector.opening, archived=True)
    results = [call.whole and sha(call.whole.encode()) for call in history.tool_calls()]
    assert hashed(whole, vector) == vector.facts["messages"]
    assert [message.text[:20] for message in history.all_messages()] == vector.facts["texts"]
    assert results == vector.facts["results"]
    assert verify_state(whole, **vector.opening) == ()


@pytest.mark.parametrize("vector", PARTED, ids=ids)
def test_a_conversation_of_parts_goes_on(vector: Vector) -> None:
    """In a store that has the head and the parts; without its closed history it is refused by name."""
    codec, parts = codec_of(vector.codec, vector.key), beside(vector)
    kinds = {hashlib.sha256(base64.b64decode(data)).digest(): kind for kind, data in vector.facts["beside"]}
    store, lost = MemoryStore(), MemoryStore()
    stored = [StoredPart(name=name, kind=kinds[name], data=data) for name, data in parts.items()]
    store.save_parts("k", vector.blob, stored, (), expected=None)
    lost.save_parts("k", vector.blob, [one for one in stored if one.kind != 1], (), expected=None)
    backend = ScriptedBackend("Yes.", wire=vector.facts["wire"])
    chat = Chat(backend, codec=codec)

    result = chat.conversation(store, "k", parts="store", binding=vector.binding).send("Still there?")

    assert result.text == "Yes."
    said = [message.text[:20] for message in read_history(result.state, **vector.opening).all_messages()]
    assert vector.facts["texts"][-1] in said
    with pytest.raises(StateError, match="part"):
        chat.conversation(lost, "k", parts="store", binding=vector.binding).send("Still there?")


@pytest.mark.parametrize("vector", LATER, ids=ids)
def test_what_a_later_release_wrote_is_read_and_kept(vector: Vector) -> None:
    """Its messages are read. A dump of the loaded state has each unknown name with its bytes, and each
    segment as it was. The row of an unfinished turn is written anew around those names.
    """
    again = dump_state(load_state(vector.blob, **vector.opening), **vector.opening)

    found = [[s.kind, s.entries, len(s.raw), sha(s.raw)] for s in written(again, vector)]
    assert [one for one in found if one[0] != 4] == [one for one in vector.facts["segments"] if one[0] != 4]
    assert unknown(again, vector) == unknown(vector.blob, vector) != []
    assert hashed(vector.blob, vector) == vector.facts["messages"]


def unknown(blob: bytes, vector: Vector) -> list[bytes]:
    """The unknown names in a blob, each with its value, in order of name."""
    names = re.compile(rb'"new_\w+":' + re.escape(VALUE))
    return sorted(name for each in written(blob, vector) for name in names.findall(each.raw))


def written(blob: bytes, vector: Vector) -> list[_second.SecondSegment]:
    """The segments of a blob, as the second reader finds them."""
    return _second.opened(blob, vector.secrets, vector.bound)


# -------------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize("vector", BAD, ids=ids)
def test_what_is_wrong_is_refused(vector: Vector) -> None:
    """The error is of the class that was stated, carries the blob, and has no cause that could tell more."""
    error = getattr(errors, vector.facts["error"])
    if vector.name.endswith("an unknown kind"):
        error = errors.StateVersionError  # kind 5: reserved for a later release since, and no damage
    if vector.name == "encrypted, reserved byte 1":
        error = errors.StateAuthError  # the bit says since that there is a directory, which is not authentic

    with pytest.raises(StateError) as caught:
        [each.raw() for each in blob.decode(vector.blob, **vector.opening)]

    assert type(caught.value) is error
    assert caught.value.blob == vector.blob
    assert (caught.value.__cause__, caught.value.__context__) == (None, None) or error is not StateAuthError


@pytest.mark.parametrize("vector", BAD, ids=ids)
def test_a_second_reader_refuses_it_too(vector: Vector) -> None:
    """Whatever is beyond a limit aside, both readers agree on what is wrong."""
    is_limit = vector.facts["error"] == "StateTooLargeError"
    is_other_suite = vector.facts["error"] == "StateAuthError" and ", is " in vector.name

    try:
        _second.opened(vector.blob, vector.secrets, vector.bound)
    except _second.Refused:
        return

    assert is_limit or is_other_suite


# --------------------------------------------------------------------------------------------- damages


def bits_and_cuts(whole: bytes) -> Iterator[bytes]:
    """Every single bit flipped, every beginning, every byte left out."""
    for at in range(len(whole)):
        for bit in range(8):
            yield whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        yield whole[:at]
        yield whole[:at] + whole[at + 1 :]


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_every_bit_counts(vector: Vector) -> None:
    """Each bit, each truncation, each byte left out, and at each place one byte put in: refused."""
    whole = vector.blob
    rng = random.Random(len(whole))

    accepted = [d for d in bits_and_cuts(whole) if d != whole and opened(d, vector) is not None]
    for at in range(len(whole) + 1):
        for byte in (rng.randrange(256), whole[at - 1]):
            grown = whole[:at] + bytes([byte]) + whole[at:]
            if opened(grown, vector) is not None:
                accepted.append(grown)

    assert accepted == []


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_put_in_is_refused(codec: str) -> None:
    """Of one blob of each codec: every byte at every place."""
    vector = smallest(codec)
    whole = vector.blob

    accepted = [
        (at, byte)
        for at in range(len(whole) + 1)
        for byte in range(256)
        if opened(whole[:at] + bytes([byte]) + whole[at:], vector) is not None
    ]

    assert accepted == []


@pytest.mark.parametrize("codec", CODECS[1:])
def test_every_letter_of_a_text_counts(codec: str) -> None:
    """The text form too: no letter can be changed, left out or put in."""
    vector = smallest(codec)
    text = state_to_text(vector.blob)
    rng = random.Random(5)
    letters = "ABCabc019-_+/=. \n"
    changed = [text[:at] + rng.choice(letters) + text[at + 1 :] for at in range(len(text))]
    changed += [text[:at] + text[at + 1 :] for at in range(len(text))]
    changed += [text[:at] + rng.choice(letters) + text[at:] for at in range(len(text) + 1)]

    accepted = []
    for each in changed:
        try:
            accepted.append(blob.decode(state_from_text(each), **vector.opening))
        except StateError:
            continue

    assert len(accepted) == changed.count(text)
