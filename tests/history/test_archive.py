"""The archive: what cuts take out or change stays in the state, in order, within its bytes, never sent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace as replace_fields

from goaitools_py import Chat, Compactor, KeepRecentTurns, Summarize, TurnLimit, first_of
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.compaction import CompactorLike, ContextWindow
from goaitools_py.history import archive_keeping
from goaitools_py.history.archive_keeping import SHARED_BYTES
from goaitools_py.history.archive_reading import archive_of, is_undoable, undone
from goaitools_py.history.archive_records import Record
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain
from goaitools_py.state import media_rows
from goaitools_py.state.closed_turns import ClosedTurn, numbers_of, with_numbers
from goaitools_py.state.parts import ARCHIVE, new_part
from goaitools_py.state.records import cut_facts, digest8
from goaitools_py.state.state import ConversationState, closed_turns, dump_state, load_state
from goaitools_py.state.whole_blobs import detach
from goaitools_py.states import inspect_state, read_history, rewind_state, state_messages, verify_state
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend, check_history
from goaitools_py.types.errors import StateError, StateInvalidError
from tests.compaction._histories import WIRES, Book, random_turn
from tests.compaction.test_properties import COMPACTORS

PLENTY = 2**24


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def retaining(compactor: CompactorLike, most: int = PLENTY) -> CompactorLike:
    """The compactor, with an archive of so many bytes."""
    if isinstance(compactor, Compactor):
        return replace(compactor, retain=True, retain_bytes=most)
    return first_of(*[retaining(one, most) for one in _compactors(compactor)])


def _compactors(compactor: Any) -> tuple[CompactorLike, ...]:
    """The compactors that `first_of` asks."""
    found: tuple[CompactorLike, ...] = compactor.compactors
    return found


def _cut(wire: str, blob: bytes, compactor: CompactorLike) -> bytes:
    with Chat(ScriptedBackend("A key was found; Tom has it.", wire=wire)) as chat:
        return bytes(chat.compact_state(blob, compactor).state)


def _numbered(turns: list[ClosedTurn]) -> dict[int, ClosedTurn]:
    return dict(zip(numbers_of([turn.record for turn in turns]), turns, strict=True))


def _records(blob: bytes) -> list[Record]:
    return archive_of(load_state(blob), Plain())


def _drop(turns: int) -> Compactor:
    return Compactor(TurnLimit(1), KeepRecentTurns(turns), retain=True)


def _talk(wire: str, seed: int, turns: int) -> Book:
    r = random.Random(f"{wire}/{seed}")
    book = Book(wire)
    for _ in range(turns):
        book.add(*random_turn(r, wire))
    return book


def test_a_turn_does_not_read_the_journal_of_cuts(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It carries an archive without media for nothing: reading each row of the journal took 5 % of a turn."""
    blob = _cut(wire, dump_state(_talk(wire, 3, 6).state), _drop(2))
    read: list[Any] = []
    monkeypatch.setattr(media_rows, "cut_facts", read.append)

    with Chat(ScriptedBackend("Well.", wire=wire)) as chat:
        blob = chat.chat_with_state(blob, user="Go on.").state

    assert read == []
    assert len(_records(blob)) == 1


# -------------------------------------------------------------------------------------- the transcript


@pytest.mark.parametrize("seed", range(4))
def test_archive_and_live_turns_are_everything_ever_said(wire: str, seed: int) -> None:
    """Turns and cuts of all strategies, in any order: each turn is there once, its entries as they arrived,
    signed thinking included."""
    r = random.Random(f"{wire}/{seed}")
    book, said = Book(wire), {}
    for _ in range(8):
        for _ in range(r.randrange(1, 4)):
            book.add(*random_turn(r, wire))
            said[book.state.meta.processed] = closed_turns(book.state)[-1].entries
        name = r.choice(sorted(COMPACTORS))
        book.state = load_state(_cut(wire, dump_state(book.state), retaining(COMPACTORS[name])))

    blob = dump_state(book.state)
    found = dict(_numbered(closed_turns(book.state)))
    for record in reversed(_records(blob)):
        found |= _numbered(list(record.turns))
    found.pop(0, None)
    assert {number: turn.entries for number, turn in sorted(found.items())} == said
    history = read_history(blob, archived=True)
    assert [turn.number for turn in history.turns] == sorted(said)


def test_the_transcript_reads_as_the_conversation_did_without_cuts(wire: str) -> None:
    """The same words and tools as of the state that was never cut; live turns only without `archived`."""
    book = _talk(wire, 1, 9)
    whole = read_history(dump_state(book.state))

    blob = _cut(wire, dump_state(book.state), _drop(2))
    again = _cut(wire, blob, retaining(Compactor(TurnLimit(1), Summarize(keep_turns=1))))

    read = read_history(again, archived=True)
    assert [(turn.number, turn.messages) for turn in read.turns] == [
        (turn.number, turn.messages) for turn in whole.turns
    ]
    assert [turn.started_at for turn in read.turns] == [turn.started_at for turn in whole.turns]
    assert len(read_history(again).turns) < len(whole.turns)


def test_rewound_turns_are_not_in_the_transcript(wire: str) -> None:
    """A turn that was taken back after the cut is in neither part of it."""
    book = _talk(wire, 2, 5)
    book.state = load_state(_cut(wire, dump_state(book.state), _drop(2)))
    for step in (random_turn(random.Random("a"), wire), random_turn(random.Random("b"), wire)):
        book.add(*step)

    blob = _cut(wire, rewind_state(dump_state(book.state)), _drop(1))

    assert [turn.number for turn in read_history(blob, archived=True).turns] == [1, 2, 3, 4, 5, 6]


def test_without_retain_no_byte_changes(wire: str) -> None:
    """No archive, no digest of a record, no mark at a turn."""
    blob = dump_state(_talk(wire, 3, 6).state)

    cut = _cut(wire, blob, Compactor(TurnLimit(1), KeepRecentTurns(2)))

    state = load_state(cut)
    assert not state.parts
    assert not any("c" in turn.record.facts for turn in closed_turns(state))
    assert cut[7] == 0
    (row,) = state.meta.cuts
    assert b"record" not in bytes(row.more)
    assert read_history(cut, archived=True) == read_history(cut)


def test_a_record_names_its_cut_and_the_record_before_it(wire: str) -> None:
    """The journal of cuts names the newest record, and each record the one before."""
    book = _talk(wire, 4, 6)
    blob = _cut(wire, dump_state(book.state), _drop(3))
    blob = _cut(wire, blob, _drop(1))

    first, second = _records(blob)

    named = [facts.record for row in load_state(blob).meta.cuts if (facts := cut_facts(row)) is not None]
    assert (first.previous, second.previous) == ("", first.digest)
    assert named == [first.digest, second.digest]
    assert (first.number, first.by, first.wire) == (6, "KeepRecentTurns", wire)
    assert first.before.messages == book.state.meta.messages
    old = with_numbers(closed_turns(book.state))
    assert list(first.turns) == [old[place] for place in first.places]


def test_a_record_that_is_missing_or_changed_is_found(wire: str) -> None:
    """`verify_state` follows the digests: the journal names the newest record, each record the one before."""
    book, r = Book(wire), random.Random(wire)
    for _ in range(3):
        book.add(*random_turn(r, wire))
        book.add(*random_turn(r, wire))
        compactor = retaining(Compactor(TurnLimit(1), KeepRecentTurns(1)))
        book.state = load_state(_cut(wire, dump_state(book.state), compactor))
    (part,) = book.state.parts
    text, _, lines = part.raw(Plain()).rpartition(b"\n")
    entries, columns = text.split(b",\n"), rawjson.items(b"[" + lines + b"]")
    _, second, third = [at for at, column in enumerate(columns) if column[:1] == b"{"]
    counts = [sum(len(turn.entries) for turn in record.turns) for record in archive_of(book.state, Plain())]

    def state(kept: list[bytes], rows: list[bytes], count: int) -> bytes:
        raw = b",\n".join(kept) + b"\n" + b",".join(rows)
        return dump_state(replace(book.state, parts=(new_part(ARCHIVE, raw, count),)))

    assert verify_state(state(entries, columns, 3)) == ()
    assert verify_state(state(entries[counts[0] :], columns[second:], 2)) == (), "the oldest may go"
    changed = [entries[0].replace(b"e", b"a"), *entries[1:]]
    without_second = [*entries[: counts[0]], *entries[counts[0] + counts[1] :]]
    assert changed != entries
    for damaged in (
        state(entries[: -counts[2]], columns[:third], 2),
        state(without_second, [*columns[:second], *columns[third:]], 2),
        state(changed, columns, 3),
        state(entries, [*columns[:second], *columns[third:]], 2),
        state(entries, columns[1:], 3),
        state(entries[1:], columns, 3),
    ):
        with pytest.raises(StateError) as caught:
            verify_state(damaged)
        assert caught.value.blob == damaged


ODD: list[Any] = [
    {"places": []},
    {"places": [0, 1]},
    {"places": [-1, 0, 1]},
    {"places": [1, 0, 2]},
    {"places": [0, 0, 1]},
    {"places": [0, 1, 7]},
    {"places": [0, 1, 2**60]},
    {"places": [0, 1, 2.5]},
    {"places": "012"},
    {"stays": [1, 0]},
    {"stays": [0, 0]},
    {"stays": [-1]},
    {"stays": [10**300]},
    {"stays": {"0": 1}},
    {"n": -1},
    {"wire": 7},
    {"before": []},
    {"before": {"gauge": "x"}},
    {"before": {"messages": None}},
]


@pytest.mark.parametrize("odd", [*ODD, {"stays": [0, 1, 90]}, {"stays": [90]}], ids=str)
def test_an_odd_record_is_an_error_of_its_own_or_none(wire: str, odd: Any) -> None:
    """A right digest does not say who wrote a record. Each reader raises the same error for it."""
    blob = _cut(wire, dump_state(_talk(wire, 10, 6).state), _drop(3))
    state = load_state(blob)
    (part,), (row,) = state.parts, state.meta.cuts
    lines = part.raw(Plain()).rpartition(b"\n")[2]
    head, *rows = rawjson.items(b"[" + lines + b"]")
    known = {**json.loads(head), "places": [0, 1, 2], "stays": [0, 1, 2], **odd}
    taken = [turn for record in archive_of(state, Plain()) for turn in record.turns][:3]
    entries = [entry for turn in taken for entry in turn.entries]
    columns = [json.dumps(known).encode()[:-1] + b',"more":1e400}', *rows[:3]]
    named = {**json.loads(bytes(row.more)), "record": digest8(b"\n".join([*columns, *entries]))}
    raw = b",\n".join(entries) + b"\n" + b",".join(columns)
    meta = replace_fields(state.meta, cuts=(row._replace(more=Raw(json.dumps(named).encode())),))
    damaged = dump_state(replace(state, meta=meta, parts=(new_part(ARCHIVE, raw, 1),)))

    found = [_error_of(use, damaged) for use in _USES]

    if odd in ODD:
        assert {type(error) for error in found} == {StateInvalidError}
        assert not any("1e400" in str(error) for error in found)
    else:  # it would be right for another history
        assert {type(error) for error in found} <= {StateInvalidError, ValueError, type(None)}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_part_without_records(count: int) -> None:
    """It is an error to whoever reads it, and the next cut begins a part of its own."""
    state = load_state(_cut("openai", dump_state(_talk("openai", 11, 6).state), _drop(3)))
    damaged = dump_state(replace(state, parts=(new_part(ARCHIVE, b"\n", count),)))

    assert {type(_error_of(use, damaged)) for use in _USES} == {StateInvalidError}
    again = _cut("openai", damaged, _drop(1))
    assert [part.entries for part in load_state(again).parts] == [count, 1]
    assert is_undoable(load_state(again), Plain())
    with Chat(ScriptedBackend("Yes.")) as chat:
        assert chat.chat_with_state(again, user="Hello?").text == "Yes."


_USES: Sequence[Callable[[bytes], object]] = (
    verify_state,
    lambda blob: rewind_state(blob, 2),
    lambda blob: read_history(blob, archived=True),
    lambda blob: is_undoable(load_state(blob), Plain()),
)


def _error_of(use: Callable[[bytes], object], blob: bytes) -> Exception | None:
    try:
        use(blob)
    except Exception as error:
        return error
    return None


def test_an_archive_in_a_store(wire: str) -> None:
    """The rows stay heads, `retain_bytes` does not count what the store keeps, and the whole state has it."""
    compactor = Compactor(TurnLimit(2), KeepRecentTurns(1), retain=True, retain_bytes=1_000)
    with Chat(ScriptedBackend(*["Noted."] * 30, wire=wire), compactor=compactor) as chat:
        talk = chat.conversation(MemoryStore(), "ada", parts="store")
        for number in range(20):
            talk.send(f"Note {number}: " + random.Random(number).randbytes(100).hex())

        whole = talk.state()

    assert whole is not None
    read = read_history(whole, archived=True)
    assert [turn.number for turn in read.turns] == list(range(1, 21))
    assert sum(part.stored_len for part in load_state(whole).parts) > 1_000
    assert verify_state(whole) == ()


# ------------------------------------------------------------------------------------------- how much


def test_the_oldest_part_goes_first_and_the_journal_says_so(wire: str) -> None:
    """The archive takes at most `retain_bytes` as stored; what is left is the newest."""
    most = 12_000
    r, book = random.Random(wire), Book(wire)
    for _ in range(30):
        for _ in range(3):
            book.add(*random_turn(r, wire))
        compactor = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True, retain_bytes=most)
        book.state = load_state(_cut(wire, dump_state(book.state), compactor))

    blob = dump_state(book.state)
    kept = [part for part in book.state.parts if part.kind == ARCHIVE]
    assert 0 < sum(part.stored_len for part in kept) <= most
    assert any(row.by == "evicted" for row in book.state.meta.cuts)
    turns = read_history(blob, archived=True).turns
    numbers = [turn.number for turn in turns if not turn.facts.get("rewritten")]  # no remnants
    assert numbers == list(range(numbers[0], 91))
    assert 1 < numbers[0] < 88


def test_the_archive_in_a_blob_is_bounded_inflated_too(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader refuses more than a fixed multiple of a blob's size, so a cut drops the oldest part before."""
    most = 60_000
    monkeypatch.setattr(archive_keeping, "most_inflated", lambda limits: most)
    monkeypatch.setattr(archive_keeping, "SHARED_BYTES", 100)
    r, book = random.Random(wire), Book(wire)
    for _ in range(20):
        for _ in range(3):
            book.add(*random_turn(r, wire))
        compactor = retaining(Compactor(TurnLimit(1), KeepRecentTurns(1)))
        book.state = load_state(_cut(wire, dump_state(book.state), compactor))

    kept = [part for part in book.state.parts if part.kind == ARCHIVE]
    assert 0 < len(kept) < 20
    assert sum(part.raw_len for part in kept) <= most // 2
    assert any(row.by == "evicted" for row in book.state.meta.cuts)


def test_records_share_parts(wire: str) -> None:
    """With room enough, many small records stand in one part of up to 256 KiB."""
    book, r = Book(wire), random.Random(wire)
    for _ in range(12):
        book.add(*random_turn(r, wire))
        book.add(*random_turn(r, wire))
        compactor = retaining(Compactor(TurnLimit(1), KeepRecentTurns(1)))
        book.state = load_state(_cut(wire, dump_state(book.state), compactor))

    (part,) = book.state.parts
    assert (part.kind, part.entries) == (ARCHIVE, 12)
    assert part.raw_len <= SHARED_BYTES


def test_a_record_beyond_the_archive_is_not_kept(wire: str) -> None:
    """Nothing else goes for it; the journal says so."""
    blob = dump_state(_talk(wire, 5, 6).state)

    cut = _cut(wire, blob, Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True, retain_bytes=64))

    assert not load_state(cut).parts
    assert [row.by for row in load_state(cut).meta.cuts] == ["KeepRecentTurns", "evicted"]


def test_a_full_state_loses_its_archive_before_its_turns(face: Any) -> None:
    """A blob near its limit: the archive goes, all live turns stay."""
    r = random.Random(7)
    noise = ["".join(r.choices("abcdefghijklmnopqrstuvwxyz0123456789-", k=6_000)) for _ in range(8)]
    limits = BlobLimits(max_blob_bytes=26_000)
    compactor = Compactor(TurnLimit(4), KeepRecentTurns(2), retain=True)
    chat = face.chat(ScriptedBackend(*["Noted."] * 9), codec=Plain(limits=limits), compactor=compactor)
    state = chat.run_turns(None, noise[:5]).state
    before = inspect_state(state).turns
    assert any(part.kind == ARCHIVE for part in load_state(state).parts)

    for text in noise[5:7]:
        state = chat.chat_with_state(
            state, user=text, compactor=Compactor(TurnLimit(99), KeepRecentTurns(2))
        ).state

    after = load_state(state)
    assert not after.parts
    assert after.meta.turns == before + 2
    assert "emergency" not in [row.by for row in after.meta.cuts]


@pytest.mark.parametrize("visible_to", ["server", "client"])
def test_an_encrypted_archive(visible_to: Any) -> None:
    """Nothing of it is readable in the blob; more records join a part that is opened for them."""
    pytest.importorskip("cryptography")
    codec = Encrypted(Keyring(Key(b"k" * 32)), visible_to=visible_to)
    binding = {"user": "1"}
    compactor = Compactor(TurnLimit(2), KeepRecentTurns(1), retain=True)
    with Chat(ScriptedBackend(*["Noted."] * 9), codec=codec, binding=binding, compactor=compactor) as chat:
        state = chat.run_turns(None, [f"Secret {number}" for number in range(9)]).state

    (part,) = load_state(state, codec=codec, binding=binding).parts
    assert part.entries > 1
    read = read_history(state, codec=codec, binding=binding, archived=True)
    assert [turn.messages[0].text for turn in read.turns] == [f"Secret {number}" for number in range(9)]


def test_an_archive_that_is_elsewhere_has_to_be_attached(wire: str) -> None:
    """The live turns are readable without it, the transcript is not."""
    head, _ = detach(_cut(wire, dump_state(_talk(wire, 6, 6).state), _drop(2)))

    assert read_history(head).turns
    with pytest.raises(StateError, match="attach"):
        read_history(head, archived=True)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"retain": 1}, "retain must be"),
        ({"retain_bytes": 0}, "at least 1"),
        ({"retain_bytes": 1.5}, "an int"),
    ],
)
def test_a_wrong_option_is_refused_at_once(fields: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        Compactor(TurnLimit(1), KeepRecentTurns(1), **fields)


# ------------------------------------------------------------------------------------------ going back

BEFORE = ("tokens", "gauge", "context", "signed", "unbound", "rules", "warned", "messages", "turns")


def _told(state: ConversationState) -> dict[str, Any]:
    return {name: getattr(state.meta, name) for name in BEFORE}


@pytest.mark.parametrize("seed", range(4))
def test_undone_cuts_give_back_entries_rows_and_meta(wire: str, seed: int) -> None:
    """Cuts of all strategies, one upon the other: undone in turn, each gives the state before it."""
    r = random.Random(f"{wire}/{seed}")
    book, states = Book(wire), []
    for _ in range(4):
        for _ in range(r.randrange(2, 5)):
            book.add(*random_turn(r, wire))
    for _ in range(4):
        name = r.choice(sorted(COMPACTORS))
        blob = _cut(wire, dump_state(book.state), retaining(COMPACTORS[name]))
        if blob != dump_state(book.state):
            states.append(book.state)
            book.state = load_state(blob)

    state = book.state
    for before in reversed(states):
        state = load_state(dump_state(undone(state, Plain())))
        assert closed_turns(state) == closed_turns(before)
        assert [s.raw() for s in state.segments] == [s.raw() for s in before.segments]
        assert _told(state) == _told(before)
        assert state.meta.gap == before.meta.gap
    assert not state.parts
    assert states
    assert not is_undoable(state, Plain())
    with pytest.raises(ValueError, match="cannot be undone"):
        undone(state, Plain())


def test_a_rewind_goes_back_across_cuts(wire: str) -> None:
    """What is left is what the conversation was then; the turns that went are in no transcript."""
    r, book, then = random.Random(wire), Book(wire), {}
    for number in range(1, 10):
        book.add(*random_turn(r, wire))
        then[number] = closed_turns(book.state)
        if number % 3 == 0:
            book.state = load_state(_cut(wire, dump_state(book.state), _drop(2)))
    blob = dump_state(book.state)

    for turns in (1, 4, 7, 8):
        back = rewind_state(blob, turns)
        assert [turn.number for turn in read_history(back, archived=True).turns] == list(range(1, 10 - turns))
        assert check_history(wire, state_messages(back)) == []
    early = load_state(rewind_state(blob, 7))
    assert [turn.entries for turn in closed_turns(early)] == [turn.entries for turn in then[2]]
    assert not early.parts
    assert early.meta.processed == 9


def test_a_rewind_stops_at_a_cut_whose_record_is_not_there(wire: str) -> None:
    """The error says how many turns can go."""
    book = _talk(wire, 8, 6)
    book.state = load_state(_cut(wire, dump_state(book.state), Compactor(TurnLimit(1), KeepRecentTurns(4))))
    book.add(*random_turn(random.Random("x"), wire))
    book.state = load_state(_cut(wire, dump_state(book.state), _drop(3)))
    blob = dump_state(book.state)

    assert load_state(rewind_state(blob, 1)).meta.turns
    with pytest.raises(ValueError, match="there is 1 turn since the newest cut, and 2 cannot go"):
        rewind_state(blob, 2)
    with pytest.raises(ValueError, match="there are 0 turns"):
        rewind_state(detach(blob)[0], 1)


def test_a_turn_that_was_changed_since_is_not_undone(wire: str) -> None:
    """A later cut without an archive stands between: what stayed may have changed."""
    book = _talk(wire, 9, 6)
    blob = _cut(wire, dump_state(book.state), _drop(4))

    blob = _cut(wire, blob, Compactor(TurnLimit(1), KeepRecentTurns(2)))

    assert not is_undoable(load_state(blob), Plain())


def test_a_context_window_keeps_an_archive(wire: str) -> None:
    """`retain` and `retain_bytes` are those of `Compactor`."""
    blob = dump_state(_talk(wire, 12, 6).state)
    window = ContextWindow(max_messages=1, min_recent_turns=2, retain=True)
    own = ContextWindow(max_messages=1, strategy=KeepRecentTurns(2), retain=True, retain_bytes=64)

    assert len(read_history(_cut(wire, blob, window), archived=True).turns) == 6
    assert [row.by for row in load_state(_cut(wire, blob, own)).meta.cuts][1:] == ["evicted"]
    assert ContextWindow(max_messages=1).retain is False
