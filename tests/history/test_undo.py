"""A cut undone: its turns come back as they were, and turns since follow them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields

from goaitools_py import PLAIN, Chat, Compactor, KeepRecentTurns, StateConflictError, TurnLimit, event, tool
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.archive_keeping import Retention
from goaitools_py.history.archive_reading import archive_of, is_undoable, undone
from goaitools_py.history.rewrite.repair import repaired
from goaitools_py.history.rewrite.rewritten import is_signed, unsign
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.codec import LIMITS
from goaitools_py.state.state import ConversationState, closed_turns, dump_state, load_state
from goaitools_py.state.whole_blobs import detach
from goaitools_py.states import (
    History,
    fork_state,
    inspect_state,
    read_history,
    rebase_state,
    rewind_state,
    state_messages,
    undo_cut,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.errors import StateAuthError, StateInvalidError
from tests.compaction._histories import WIRES, Book, random_turn
from tests.compaction.test_properties import COMPACTORS
from tests.history._damage import Words, damaged, forged, random_history
from tests.history.test_archive import BEFORE, retaining

RING = Keyring(Key(b"k" * 32))
CODECS: dict[str, Any] = {
    "plain": {},
    "signed": {"codec": Signed(RING), "binding": {"user": "1"}},
    "encrypted": {"codec": Encrypted(RING), "binding": {"user": "1"}},
    "client": {"codec": Encrypted(RING, visible_to="client"), "binding": {"user": "1"}},
}
DROP = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(CODECS))
def sealed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the blobs are protected, as options."""
    return dict(CODECS[request.param])


def cut(wire: str, blob: bytes, compactor: Any = DROP, **sealed: Any) -> bytes:
    with Chat(ScriptedBackend("A key was found; Tom has it.", wire=wire), **sealed) as chat:
        return bytes(chat.compact_state(blob, compactor).state)


def talk(wire: str, seed: object, turns: int) -> Book:
    r, book = random.Random(f"{wire}/{seed}"), Book(wire)
    for _ in range(turns):
        book.add(*random_turn(r, wire))
    return book


def told(state: ConversationState) -> dict[str, Any]:
    return {name: getattr(state.meta, name) for name in (*BEFORE, "gap")}


# --------------------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize("seed", range(3))
def test_without_a_turn_since_the_state_is_the_old_one(wire: str, sealed: Any, seed: int) -> None:
    """Entries, rows and the listed meta data, for cuts of all strategies upon each other."""
    r = random.Random(f"{wire}/{seed}")
    book = talk(wire, seed, r.randrange(4, 9))
    blob, before = dump_state(book.state, **sealed), []
    for _ in range(3):
        compactor = retaining(COMPACTORS[r.choice(sorted(COMPACTORS))])
        smaller = cut(wire, blob, compactor, **sealed)
        if smaller != blob:
            before.append(blob)
            blob = smaller

    for number, old in enumerate(reversed(before), 1):
        known = load_state(old, **sealed)
        revision = inspect_state(blob, **sealed).revision
        blob = undo_cut(blob, **sealed, min_revision=revision)
        state = load_state(blob, **sealed)
        assert [turn.entries for turn in closed_turns(state)] == [t.entries for t in closed_turns(known)]
        assert [s.raw() for s in state.segments] == [s.raw() for s in known.segments]
        assert told(state) == told(known)
        assert (
            len(archive_of(state, sealed.get("codec", PLAIN), sealed.get("binding"))) == len(before) - number
        )
        assert state.meta.rev == revision + 1
        assert verify_state(blob, **sealed) == ()
    assert before
    with pytest.raises(ValueError, match="there is no cut to undo"):
        undo_cut(blob, **sealed)


@pytest.mark.parametrize("seed", range(4))
def test_turns_since_follow_the_turns_that_come_back(wire: str, seed: int) -> None:
    """Cuts and turns in any order, then all cuts undone: the history is each turn in order. A turn is as it
    was if it is from before all cuts; others have lost their signed blocks, and nothing else."""
    r = random.Random(f"{wire}/{seed}/since")
    book, said, first = Book(wire), {}, 0
    cuts = 0
    for _ in range(4):
        for _ in range(r.randrange(1, 5)):
            book.add(*random_turn(r, wire))
            said[book.state.meta.processed] = closed_turns(book.state)[-1].entries
        compactor = retaining(COMPACTORS[r.choice(sorted(COMPACTORS))])
        blob = cut(wire, dump_state(book.state), compactor)
        state = load_state(blob)
        if state.meta.cuts != book.state.meta.cuts:
            first = first or book.state.meta.processed
            cuts += 1
        book.state = state
    for _ in range(2):
        book.add(*random_turn(r, wire))
        said[book.state.meta.processed] = closed_turns(book.state)[-1].entries

    blob = dump_state(book.state)
    for _ in range(cuts):
        blob = undo_cut(blob)
        assert check_history(wire, state_messages(blob)) == []
        assert verify_state(blob) == ()
        whole = read_history(blob, archived=True)
        assert [turn.number for turn in whole.turns] == sorted(said)

    state = load_state(blob)
    turns = closed_turns(state)
    assert cuts
    assert not state.parts
    assert [turn.number for turn in read_history(blob).turns] == sorted(said)
    for number, turn in enumerate(turns, 1):
        unsigned = [entry for entry in book.dialect.unsigned(said[number]) if entry]
        assert list(turn.entries) == (list(said[number]) if number <= first else unsigned)
    assert state.meta.messages == sum(turn.record.messages for turn in turns)
    assert state.meta.turns == len(turns) == state.meta.processed
    assert state.meta.signed == any(is_signed(turn.entries, book.dialect) for turn in turns)
    assert not state.meta.context


def test_a_conversation_goes_on_after_a_cut_is_undone(face: Any, wire: str) -> None:
    """The model reads the turns that came back and the turns since, each once."""
    backend = ScriptedBackend(*[f"Noted {n}." for n in range(6)], wire=wire)
    chat = face.chat(backend)
    state = chat.run_turns(None, [f"Note {n}" for n in range(4)]).state
    state = chat.chat_with_state(cut(wire, state), user="Note 4").state

    after = chat.chat_with_state(undo_cut(state), user="Note 5")

    said = [message.text for message in read_history(after.state).all_messages()]
    assert said == [text for n in range(6) for text in (f"Note {n}", f"Noted {n}.")]
    sent = rawjson.dumps(backend.bodies()[-1]).decode()
    assert [sent.count(f'Note {n}"') for n in range(6)] == [1] * 6


def test_the_tokens_of_turns_since_are_estimated(wire: str) -> None:
    """The size of the next request is about what it would be without the cut; no usage anchors it."""
    with Chat(ScriptedBackend(*["Noted: a blue door."] * 9, wire=wire), compactor=DROP) as chat:
        state = chat.run_turns(None, [f"I open door {n}, and look around." for n in range(3)]).state
        other = chat.run_turns(state, ["One more, please."], compactor=None).state
        whole = chat.run_turns(
            None,
            [*[f"I open door {n}, and look around." for n in range(3)], "One more, please."],
            compactor=None,
        ).state
    back = undo_cut(other)

    info = inspect_state(back)
    assert info.turns == 4
    assert inspect_state(other).tokens < info.tokens
    assert 0.8 < info.tokens / inspect_state(whole).tokens < 1.25
    assert load_state(back).meta.gauge[:1] in ((), (0,))


# ------------------------------------------------------------------------------------------ refused


def test_an_unfinished_turn_is_refused(wire: str) -> None:
    """The error says what to do, and that works."""

    @tool(external=True)
    def ask() -> str:
        """Ask somebody."""
        raise AssertionError

    blob = cut(wire, dump_state(talk(wire, 1, 5).state))
    with Chat(ScriptedBackend(Calls([("ask", {})]), wire=wire), tools=[ask]) as chat:
        waiting = chat.chat_with_state(blob, user="Ask!").state

    with pytest.raises(ValueError, match="rewind_state"):
        undo_cut(waiting)
    assert inspect_state(undo_cut(rewind_state(waiting))).turns == 5


def test_a_cut_without_a_record_is_refused(wire: str) -> None:
    """A cut without `retain`, one whose record is elsewhere, and a conversation without cuts."""
    plain = dump_state(talk(wire, 2, 5).state)
    lossy = cut(wire, plain, Compactor(TurnLimit(1), KeepRecentTurns(2)))

    with pytest.raises(ValueError, match="there is no cut to undo"):
        undo_cut(plain)
    with pytest.raises(ValueError, match=r"'KeepRecentTurns'.*has no record.*rewind_state"):
        undo_cut(lossy)
    with pytest.raises(ValueError, match=r"kept elsewhere.*conversation.state"):
        undo_cut(detach(cut(wire, plain))[0])
    with pytest.raises(ValueError, match="has no record"):
        undo_cut(cut(wire, cut(wire, plain), Compactor(TurnLimit(1), KeepRecentTurns(1))))


def test_an_old_blob_is_refused(wire: str) -> None:
    """`min_revision` is that of `load_state`."""
    blob = cut(wire, dump_state(talk(wire, 3, 5).state))

    with pytest.raises(StateAuthError):
        undo_cut(blob, min_revision=99)


# ------------------------------------------------------------------------- what stands before the history


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
@pytest.mark.parametrize("system", ["Be kind.", "Be brief."])
def test_thinking_that_does_not_fit_goes_with_the_next_turn(wire: str, system: str) -> None:
    """The preamble of a turn since the cut is another one: what comes back is not sent as it was signed."""
    book = Book(wire)
    while not book.state.meta.signed or book.state.meta.turns < 5:
        book.add(*random_turn(random.Random(f"{wire}/{book.count}"), wire))
    settings: dict[str, Any] = {"wire": wire}
    with Chat(ScriptedBackend(*["Yes."] * 3, **settings)) as chat:
        known = chat.chat_with_state(dump_state(book.state), user="Hello?", system="Be kind.").state
        signed = load_state(known).meta.signed
        blob = cut(wire, known)
        since = chat.chat_with_state(blob, user="And now?", system=system).state
        back = undo_cut(since)
        after = chat.chat_with_state(back, user="Well?", system=system)

    is_other = system != "Be kind."
    assert load_state(back).meta.unbound == (signed and is_other)
    gone = [warning for warning in after.warnings if warning.code == "thinking_removed"]
    assert bool(gone) == (signed and is_other)
    assert load_state(after.state).meta.signed == (signed and not is_other)


# ------------------------------------------------------------------------- changes without a compactor


def retention(most: int = 2**24) -> Retention:
    return Retention(most_bytes=most, codec=PLAIN, binding=None, limits=LIMITS)


@pytest.mark.parametrize("seed", range(3))
def test_signed_thinking_that_goes_is_in_the_archive(wire: str, seed: int) -> None:
    """Undone, entries, rows and the listed meta data are those from before; the transcript has it."""
    book = talk(wire, seed, 6)
    old = replace(book.state, meta=replace_fields(book.state.meta, rules=1))

    state = load_state(dump_state(unsign(old, book.dialect, at=9_000, retention=retention())))

    assert not any(is_signed(turn.entries, book.dialect) for turn in closed_turns(state))
    blob, before = dump_state(state), read_history(dump_state(old))
    assert verify_state(blob) == ()
    assert [turn.messages for turn in read_history(blob, archived=True).turns] == [
        turn.messages for turn in before.turns
    ]
    back = load_state(undo_cut(blob))
    assert [s.raw() for s in back.segments] == [s.raw() for s in old.segments]
    assert told(back) == told(old)
    assert not back.parts


@pytest.mark.parametrize("seed", range(12))
def test_what_a_repair_changes_is_in_the_archive(wire: str, seed: int) -> None:
    """Random damage, mended: undone, the damaged bytes are there again; the transcript is readable."""
    dice, words = random.Random(f"{wire}/{seed}"), Words(wire)
    entries = damaged(random_history(words, dice), dice, times=3)
    old = load_state(forged(words, entries, rules=0))
    try:
        state, log = repaired(old, words.dialect, retention=retention())
    except StateInvalidError:
        return  # what cannot be mended is refused as without an archive
    plain, same_log = repaired(old, words.dialect)

    assert log == same_log
    if not log:
        assert state is old
        return
    assert [turn.entries for turn in closed_turns(state)] == [turn.entries for turn in closed_turns(plain)]
    state = load_state(dump_state(state))
    assert verify_state(dump_state(state)) == ()
    assert read_history(dump_state(state), archived=True).turns
    assert is_undoable(state, PLAIN)
    back = undone(state, PLAIN)
    assert [s.raw() for s in back.segments] == [s.raw() for s in old.segments]
    assert told(back) == told(old)
    assert not back.parts


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_cut_is_undone_across_a_changed_preamble(wire: str) -> None:
    """Thinking before the cut, a cut, thinking since, another system text: one undo goes back before the
    cut. The next turn takes out what is signed over the old text."""
    thought = Calls([], "Noted.", reasoning="I see.")
    compactor = Compactor(TurnLimit(99), KeepRecentTurns(1), retain=True)
    with Chat(ScriptedBackend(*[thought] * 9, wire=wire), compactor=compactor) as chat:
        state = chat.run_turns(None, ["a", "b", "c"], system="Be kind.").state
        old = load_state(state)
        small = chat.compact_state(state, Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)).state
        state = chat.chat_with_state(small, user="d", system="Be kind.").state
        state = chat.chat_with_state(state, user="e", system="Be brief.").state
        assert [row.by for row in load_state(state).meta.cuts] == ["KeepRecentTurns", "unsigned"]
        assert verify_state(state) == ()

        for turns, left in ((1, "abcd"), (2, "abc"), (3, "ab")):
            rewound = rewind_state(state, turns)
            transcript = read_history(rewound, archived=True)
            assert [turn.messages[0].text for turn in transcript.turns] == list(left)
        back = undo_cut(state)
        assert [turn.messages[0].text for turn in read_history(back).turns] == list("abcde")
        assert [turn.entries for turn in closed_turns(load_state(back))[:3]] == [
            turn.entries for turn in closed_turns(old)
        ]
        assert load_state(back).meta.unbound
        after = chat.chat_with_state(back, user="f", system="Be brief.")

    assert [warning.code for warning in after.warnings] == ["thinking_removed"]
    newest = closed_turns(load_state(after.state))
    dialect = Book(wire).dialect
    assert [is_signed(turn.entries, dialect) for turn in newest] == [False] * 5 + [True]


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_a_rewind_goes_back_before_lost_thinking(wire: str) -> None:
    """What was taken out when the system text changed is there again if that turn is taken back."""
    thought = Calls([], "Noted.", reasoning="I see.")
    compactor = Compactor(TurnLimit(99), KeepRecentTurns(1), retain=True)
    with Chat(ScriptedBackend(*[thought] * 9, wire=wire), compactor=compactor) as chat:
        state = chat.run_turns(None, ["a", "b"], system="Be kind.").state
        later = chat.chat_with_state(state, user="c", system="Be brief.").state

    rewound = rewind_state(later, 2)
    back = load_state(rewound)
    assert closed_turns(back)[0].entries == closed_turns(load_state(state))[0].entries
    assert (back.meta.signed, back.meta.unbound) == (True, True), "signed over another system text"
    with Chat(ScriptedBackend("Noted.", wire=wire)) as chat:
        after = chat.chat_with_state(rewound, user="d", system="Be brief.")
    assert [warning.code for warning in after.warnings] == ["thinking_removed"]
    assert not load_state(after.state).meta.signed


# ------------------------------------------------------------------------------------- forked and joined


def retained(wire: str, seed: object) -> bytes:
    """A conversation with two cuts and turns since."""
    book = talk(wire, seed, 5)
    for turns in (3, 2):
        book.state = load_state(cut(wire, dump_state(book.state), _keep(turns)))
        book.add(*random_turn(random.Random(f"{wire}/{turns}"), wire))
    return dump_state(book.state)


def _keep(turns: int) -> Compactor:
    return Compactor(TurnLimit(1), KeepRecentTurns(turns), retain=True)


def entries(blob: bytes) -> list[tuple[bytes, ...]]:
    return [turn.entries for turn in closed_turns(load_state(blob))]


def transcript(state: bytes) -> History:
    """The whole transcript, without the ids of its turns: these begin with that of the conversation."""
    history = read_history(state, archived=True)
    return History(turns=tuple(replace(turn, id="") for turn in history.turns), waiting=history.waiting)


def test_a_fork_has_the_archive(wire: str) -> None:
    """It reads as the original does, and goes back as far; neither changes the other."""
    state = retained(wire, "fork")
    fork = fork_state(state, conversation_id="b")

    assert verify_state(fork) == ()
    assert transcript(fork) == transcript(state)
    assert entries(undo_cut(fork)) == entries(undo_cut(state))
    assert entries(undo_cut(undo_cut(fork))) == entries(undo_cut(undo_cut(state)))
    assert entries(rewind_state(fork, 6)) == entries(rewind_state(state, 6))
    assert inspect_state(undo_cut(fork)).conversation_id == "b"


@pytest.mark.parametrize("is_mine", [True, False])
def test_a_cut_beside_an_append_keeps_its_record(wire: str, is_mine: bool) -> None:
    """Whichever of them was saved first: the archive is that of the side with the cut."""
    base = retained(wire, "rebase")
    smaller = cut(wire, base, _keep(1))
    with Chat(ScriptedBackend(wire=wire)) as chat:
        longer = chat.append_to_state(base, event("It rains."))
    mine, theirs = (smaller, longer) if is_mine else (longer, smaller)

    joined = rebase_state(mine, base=base, theirs=theirs)

    assert verify_state(joined) == ()
    assert entries(undo_cut(joined)) == entries(base)
    assert [message.text for message in read_history(undo_cut(joined)).waiting][-1:] == ["It rains."]


def test_two_cuts_conflict(wire: str) -> None:
    """Neither has the turns that the other one took out."""
    base = retained(wire, "two")

    with pytest.raises(StateConflictError):
        rebase_state(cut(wire, base, _keep(1)), base=base, theirs=cut(wire, base, _keep(2)))


def test_a_turn_behind_a_cut_of_another_worker(wire: str) -> None:
    """Joined when asked to: their archive stays, and my turn follows what an undo gives back."""
    base = dump_state(talk(wire, "behind", 5).state)
    with Chat(ScriptedBackend("Mine.", "Theirs.", wire=wire)) as chat:
        mine = chat.chat_with_state(base, user="My turn.").state
        theirs = chat.chat_with_state(cut(wire, base), user="Their turn.").state

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)
    back = undo_cut(joined)

    assert verify_state(joined) == ()
    assert entries(back)[:5] == entries(base)
    assert [turn.messages[0].text for turn in read_history(back).turns[5:]] == ["Their turn.", "My turn."]
    assert [turn.number for turn in read_history(joined, archived=True).turns] == list(range(1, 8))
