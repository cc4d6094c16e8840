"""Pinned messages: each one stays through every cut, once, in order, byte for byte. In need they go last."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    ClearToolResults,
    Compactor,
    DropOldest,
    Image,
    KeepRecentTurns,
    Message,
    MessageLimit,
    Summarize,
    TokenLimit,
    TurnLimit,
    any_of,
    event,
    first_of,
    system,
    user,
)
from goaitools_py.base.values import replace
from goaitools_py.compaction import (
    ByteLimit,
    CollapseToolExchanges,
    CompactionRequest,
    CompactorLike,
    ContextWindow,
    DropMedia,
    MiddleOut,
    PendingLimit,
    ProviderCompaction,
    TurnView,
)
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.sim import Fault
from goaitools_py.state.closed_turns import ClosedTurn
from goaitools_py.state.state import (
    ConversationState,
    closed_entries,
    closed_turns,
    dump_state,
    load_state,
    rebuild,
)
from goaitools_py.states import (
    HistoryTurn,
    convert_state,
    export_state,
    fork_state,
    import_state,
    inspect_state,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_from_messages,
    state_messages,
    undo_cut,
)
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend, check_history

from ._histories import WIRES, Book, Said, random_turn

ALWAYS = TurnLimit(1)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def only_newest(request: CompactionRequest) -> Sequence[TurnView]:
    return request.turns[-1:]


def only_oldest(request: CompactionRequest) -> Sequence[TurnView]:
    return request.turns[:1]


def only_replies(request: CompactionRequest) -> Sequence[TurnView]:
    """Take each message that is no reply, and no result, out of each turn but the newest."""
    return [
        turn.with_pieces([piece for piece in turn.pieces if piece.role in ("assistant", "tool")])
        if turn is not request.turns[-1] and any(piece.role == "assistant" for piece in turn.pieces)
        else turn
        for turn in request.turns
    ]


def reworded(request: CompactionRequest) -> Sequence[TurnView]:
    """Try to say something else in each given message."""
    return [
        turn.with_pieces(
            [
                turn.rewritten(piece, *[replace(one, parts=user("…").parts) for one in piece.messages])
                if piece.role in ("user", "system")
                else piece
                for piece in turn.pieces
            ]
        )
        for turn in request.turns
    ]


STRATEGIES: dict[str, tuple[Any, int]] = {
    "recent": (KeepRecentTurns(2), 2),
    "recent, tools": (KeepRecentTurns(2, notes_tools=True), 2),
    "oldest": (DropOldest(target_tokens=800, min_recent_turns=2), 2),
    "oldest, messages": (DropOldest(target_messages=9), 1),
    "middle": (MiddleOut(first=1, last=2), 2),
    "clear": (ClearToolResults(keep=0, at_least=1), 0),
    "collapse": (CollapseToolExchanges(keep_turns=1, at_least=1), 1),
    "media": (DropMedia(after_turns=1, at_least=1), 1),
    "summary": (Summarize(keep_turns=2), 2),
    "provider": (ProviderCompaction(keep_turns=2), 2),
    "newest": (only_newest, 1),
    "first": (only_oldest, 0),
    "replies": (only_replies, 1),
    "reworded": (reworded, 0),
}
NAMED = ("oldest_first", "middle_out", "recent_turns_only", "summary")
COMPACTORS: dict[str, tuple[CompactorLike, int]] = {
    **{name: (Compactor(ALWAYS, strategy), least) for name, (strategy, least) in STRATEGIES.items()},
    **{
        f"window, {name}": (ContextWindow(max_messages=20, min_recent_turns=3, strategy=name), 3)
        for name in NAMED
    },
    **{
        f"window of {name}": (ContextWindow(max_messages=20, min_recent_turns=4, strategy=strategy), 4)
        for name, (strategy, _) in STRATEGIES.items()
        if name not in ("clear", "media", "reworded", "replies", "collapse")
    },
    "first of": (
        first_of(
            Compactor(ALWAYS, DropMedia(after_turns=2)),
            Compactor(ALWAYS, KeepRecentTurns(2), retain=True),
            Compactor(ALWAYS, DropOldest(target_messages=6)),
        ),
        1,
    ),
    "recall": (Compactor(ALWAYS, KeepRecentTurns(2), recall=True), 2),
}


class Pinned(Book):
    """A book that knows which of its entries are pinned, in order."""

    def __init__(self, wire: str) -> None:
        super().__init__(wire)
        self.__post_init__()
        self.pins: list[bytes] = []

    def add(self, *steps: Message | Said, **facts: Any) -> None:
        numbered = [
            replace(step, parts=(*step.parts, *user(f" no. {len(self.pins)}.{at}").parts))
            if isinstance(step, Message) and _is_pinned(step)
            else step
            for at, step in enumerate(steps)
        ]
        for step in numbered:
            if isinstance(step, Message) and _is_pinned(step):
                self.pins += self.dialect.entries([step])
        super().add(*numbered, **facts)


def _is_pinned(message: Message) -> bool:
    return message.role == "system" if message.pinned is None else message.pinned


def _grown(wire: str, seed: int, r: random.Random) -> Iterator[tuple[Pinned, str]]:
    book = Pinned(wire)
    for cut in range(3):
        for _ in range(r.randrange(3, 7)):
            book.add(*random_turn(r, wire, pins=0.3))
        yield book, f"wire={wire} seed={seed} cut={cut}"


def _asked(wire: str, blob: bytes, compactor: CompactorLike) -> Any:
    with Chat(ScriptedBackend(*["A key was found."] * 2, wire=wire)) as chat:
        return chat.compact_state(blob, compactor)


def _turns(book: Pinned, state: Any) -> list[ClosedTurn]:
    """The turns with more than pinned messages, without notes."""
    pins = set(book.pins)
    turns = closed_turns(state)
    return [turn for turn in turns if "note" not in turn.record.facts and set(turn.entries) - pins]


@pytest.mark.parametrize("name", COMPACTORS)
def test_pinned_messages_stay(wire: str, name: str) -> None:
    """After each cut every pinned message is there, once, in its order and byte for byte, the newest turns
    stay, and the provider takes the history. A second and a third cut change nothing of this."""
    compactor, least = COMPACTORS[name]
    cuts = 0
    for seed in range(3):
        r = random.Random(f"{wire}/{name}/{seed}")
        for book, case in _grown(wire, seed, r):
            before = _turns(book, book.state)
            report = _asked(wire, dump_state(book.state), compactor)
            after = load_state(report.state)
            assert report.outcome in ("compacted", "no_change"), f"{case}: {report}"
            cuts += report.outcome == "compacted"

            entries = closed_entries(after)
            assert [entry for entry in entries if entry in set(book.pins)] == book.pins, case
            assert _newest(_turns(book, after), least) == _newest(before, least), case
            assert check_history(wire, state_messages(report.state), unique_ids=False) == [], case
            book.state = after
            again = closed_entries(load_state(_asked(wire, report.state, compactor).state))
            assert [entry for entry in again if entry in set(book.pins)] == book.pins, case
    assert cuts or (name in ("provider", "window of provider") and wire == "openai"), "nothing was cut"


@pytest.mark.parametrize("name", COMPACTORS)
def test_flags_go_with_their_calls(wire: str, name: str) -> None:
    """A turn of which a cut leaves the pinned messages has no flag of a call that is gone."""
    compactor, _ = COMPACTORS[name]
    for book, case in _grown(wire, 0, random.Random(f"{wire}/{name}")):
        blob = dump_state(_flagged(book.state))
        assert all(set(_flags(turn)) == {call.id for call in turn.calls} for turn in read_history(blob).turns)

        report = _asked(wire, blob, compactor)

        for turn in read_history(report.state).turns:
            assert set(_flags(turn)) == {call.id for call in turn.calls}, case


def _flags(turn: HistoryTurn) -> dict[str, str]:
    return dict(turn.facts.get("flags", {}))


def _flagged(state: ConversationState) -> ConversationState:
    """The state with a flag for each call."""
    calls = [turn.calls for turn in read_history(dump_state(state)).turns]
    return rebuild(
        state,
        [
            replace(turn, record=replace(turn.record, facts={**turn.record.facts, "flags": flags}))
            if (flags := {call.id: "error" for call in made})
            else turn
            for turn, made in zip(closed_turns(state), calls, strict=True)
        ],
    )


def _newest(turns: Sequence[ClosedTurn], count: int) -> list[int]:
    return [turn.record.at for turn in turns[len(turns) - count :]] if count else []


# ------------------------------------------------------------------------------------------- whole turns


TRIGGERS: tuple[Any, ...] = (
    TurnLimit(3),
    MessageLimit(9),
    TokenLimit(150),
    ByteLimit(900),
    PendingLimit(1),
    any_of(TurnLimit(5), TokenLimit(400)),
    lambda request: request.turn_count % 2 == 1,
)
_MARK = re.compile(rb"pin-(\d+)-")


class Talk:
    """Turns of either colour, on a state or in a store, with pinned messages that are numbered."""

    def __init__(self, face: Any, backend: Any, kept: bool, seed: str, **fields: Any) -> None:
        self.face, self.backend = face, backend
        self.chat = face.chat(backend, **fields)
        self.conversation: Any = None
        if kept:
            store = AsyncMemoryStore() if face.is_async else MemoryStore()
            self.conversation = self.chat.inner.conversation(store, "ada")
        self.state: bytes | None = None
        self.size = 60
        self.lost = 0
        self.pins: list[int] = []
        self.numbers = count()
        self.r = random.Random(seed)
        self.results: list[Any] = []

    def _pin(self) -> str:
        number = next(self.numbers)
        self.pins.append(number)
        return f"pin-{number}- {'x' * self.r.randrange(self.size)}"

    def _drawn(self, pins: float) -> list[Message]:
        given: list[Message] = [event("It rains.")] if self.r.random() < 0.3 else []
        for _ in range(self.r.choice((0, 0, 1, 2)) if self.r.random() < 2 * pins else 0):
            given.append(self.r.choice((event, user))(self._pin(), pinned=True))
        given.append(user(f"Go on. {'y' * self.r.randrange(120)}"))
        if self.r.random() < pins:
            given.append(system(self._pin()))
        if self.r.random() < 0.2:
            given.append(system("Not for long.", pinned=False))
        return given

    def turn(self, pins: float = 0.3, **fields: Any) -> Any:
        """Say something; in a third of the turns a part of it was appended before."""
        given = self._drawn(pins)
        if self.r.random() < 0.3:
            early, given = given[:-1], given[-1:]
            given = given if given[0].role == "user" else [user("And?"), *given]
            self._append(early)
        fields["messages"] = given
        if self.r.random() < 0.3:
            fields["context"] = f"Room {self.r.randrange(3)}"
        if self.conversation is None:
            result = self.chat.chat_with_state(self.state, **fields)
        else:
            result = self._do(self.conversation.send(**fields))
        self.state = result.state
        self.results.append(result)
        return result

    def _append(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        if self.conversation is None:
            self.state = self.chat.append_to_state(self.state, *messages)
        else:
            self._do(self.conversation.append(*messages))

    def _do(self, answer: Any) -> Any:
        return self.face.run(answer) if self.face.is_async else answer

    def stored(self) -> list[int]:
        assert self.state is not None
        found = [
            entry
            for turn in closed_turns(load_state(self.state))
            for entry, letter in zip(turn.entries, turn.letters, strict=True)
            if letter != "a"  # the simulator quotes what it reads
        ]
        return [int(number) for number in _MARK.findall(b"\n".join(found))]


@pytest.mark.parametrize("kept", [False, True], ids=["bare", "kept"])
def test_every_request_has_all_pins(face: Any, wire: str, kept: bool) -> None:
    """Whatever a compactor does between turns, the model reads each pinned message once, in order."""
    cuts = 0
    drawn = random.Random(f"{wire}/{kept}/{face.is_async}").sample(sorted(STRATEGIES), 7)
    for name in drawn:
        strategy, _ = STRATEGIES[name]
        seed = f"{wire}/{name}/{kept}"
        r = random.Random(seed)
        compactor = Compactor(r.choice(TRIGGERS), strategy, retain=r.random() < 0.5)
        backend = ScriptedBackend(*["Noted, and done."] * 80, wire=wire)
        talk = Talk(face, backend, kept, seed, compactor=compactor)
        for number in range(12):
            result = talk.turn()
            case = f"{seed} turn {number}"
            cuts += result.compaction is not None and result.compaction.outcome == "compacted"

            assert talk.stored() == talk.pins, case
            asked = [[int(one) for one in _MARK.findall(request.body)] for request in backend.requests]
            assert all(one == talk.pins[: len(one)] for one in asked), case
            told = {one.code for one in result.warnings}
            assert "pinned_dropped" not in told, case
            assert "compaction_failed" not in told or name == "provider", case
            marked = [
                message
                for message in read_history(result.state).all_messages()
                if _MARK.search(message.text.encode())
            ]
            assert [one.pinned for one in marked] == [
                None if one.role == "system" else True for one in marked
            ], case
    assert cuts > 10, drawn


# ---------------------------------------------------------------------------------------------- in need


def _check_need(talk: Talk, before: Any, result: Any, case: str) -> int:
    """Pins are missing only if everything else is gone, the oldest first, and each one is named."""
    state = load_state(result.state)
    stored = talk.stored()
    lost = len(talk.pins) - len(stored)
    assert stored == talk.pins[lost:], case
    told = [one.message for one in result.warnings if one.code == "pinned_dropped"]
    assert sum(one.count(" of turn ") for one in told) == lost, case
    if lost:
        closed = closed_turns(state)[:-1]  # the last one has just been said
        assert not any(set(turn.letters) & {"a", "t"} for turn in closed), case
        cuts = inspect_state(result.state).cuts
        rows = [row[3] for row in cuts if row[1] == "pinned_dropped"]
        assert rows[-1] == lost if len(cuts) == 16 else sum(rows) == talk.lost + lost, case
    talk.lost += lost
    del talk.pins[:lost]
    return lost


@pytest.mark.parametrize("kept", [False, True], ids=["bare", "kept"])
def test_pins_go_last_when_the_provider_refuses(face: Any, sim: Any, kept: bool) -> None:
    """Each refusal of the size makes one cut, and as many of them empty the history in the end."""
    lost = 0
    for seed in range(4):
        sim.clear()
        talk = Talk(face, sim.backend(is_async=face.is_async), kept, f"{sim.wire}/{seed}")
        talk.size = 60 if seed % 2 else 900
        for _ in range(5):
            talk.turn(0.5)
        for number in range(8):
            before = talk.state
            sim.push(Fault.context_length())
            result = talk.turn(0.0)
            gone = _check_need(talk, before, result, f"seed {seed}, refusal {number}")
            lost += gone
            told = {one.code for one in result.warnings}
            assert ("pinned_dropped" in told) == bool(gone)
            assert "emergency_cut" in told
        assert sim.problems == []
    assert lost


def test_pins_go_last_when_a_state_is_full(face: Any, wire: str) -> None:
    """A state that is full of pinned messages drops the oldest ones, and only then."""
    lost = cuts = 0
    for seed in range(3):
        for limits in (BlobLimits(max_entries=24), BlobLimits(max_decoded_bytes=16_384)):
            backend = ScriptedBackend(*["Noted."] * 80, wire=wire)
            talk = Talk(face, backend, False, f"{wire}/{seed}", codec=Plain(limits=limits))
            for number in range(40):
                before = talk.state
                result = talk.turn(0.4)
                cuts += "emergency_cut" in {one.code for one in result.warnings}
                lost += _check_need(talk, before, result, f"seed {seed}, turn {number}, {limits}")
    assert lost
    assert cuts


# ---------------------------------------------------------------------------------------------- one by one


def _said(blob: bytes) -> list[tuple[str, bool | None]]:
    return [
        (message.said, message.pinned)
        for message in read_history(blob).all_messages()
        if message.role != "assistant"
    ]


def _talked(wire: str, *, keeps: Any = None) -> tuple[bytes, list[tuple[str, bool | None]]]:
    """Three turns and a waiting message; each kind of message is pinned once."""
    chat = Chat(ScriptedBackend(*["Noted."] * 9, wire=wire), compactor=keeps)
    state = chat.chat_with_state(
        None, messages=[user("a", pinned=True, speaker="Ada"), user("b", speaker="Bo"), system("c")]
    ).state
    state = chat.chat_with_state(state, messages=[user("d"), event("e", pinned=True)]).state
    state = chat.chat_with_state(state, messages=[user("f"), system("g", pinned=False)]).state
    state = chat.append_to_state(state, event("h", pinned=True), event("i"))
    told = [("a", True), ("b", None), ("c", None), ("d", None), ("e", True), ("f", None), ("g", False)]
    return state, [*told, ("h", True), ("i", None)]


def test_a_pin_is_recorded_with_its_message(wire: str) -> None:
    """Only where it differs from the rule of the role, and every way of a state carries it."""
    state, told = _talked(wire)

    assert _said(state) == told
    assert _said(import_state(export_state(state))) == told
    assert _said(fork_state(state)) == told
    assert _said(redact_state(state, "Noted").state) == told
    assert _said(redact_state(state, "Ada").state) == told
    for other in WIRES:
        assert _said(convert_state(state, other).state) == told, other
    assert _said(rewind_state(state, turns=1)) == [*told[:5], *told[7:]]
    ends = [one.more for turn in closed_turns(load_state(state)) for one in turn.record.iterations]
    assert ends == [b'{"who":[[0,"Ada"],[1,"Bo"]],"pin":[[0,1]]}', b'{"pin":[[1,1]]}', b'{"pin":[[1,0]]}']


def test_a_pin_comes_along_when_two_states_are_joined(wire: str) -> None:
    """What one worker said, pinned, stands behind what another one said."""
    chat = Chat(ScriptedBackend(*["Noted."] * 9, wire=wire))
    base = chat.chat(user="Hello.").state
    mine = chat.chat_with_state(base, messages=[user("a", pinned=True)]).state
    theirs = chat.append_to_state(base, event("b", pinned=True))

    joined = rebase_state(mine, base=base, theirs=theirs)

    assert sorted(one for one in _said(joined) if one[1]) == [("a", True), ("b", True)]


def test_a_cut_keeps_speakers_and_numbers(wire: str) -> None:
    """What is left of a turn has its number, its time and the speaker of each message, and can come back."""
    state, _ = _talked(wire)
    before = read_history(state)

    report = _asked(wire, state, Compactor(ALWAYS, KeepRecentTurns(1), retain=True))
    after = read_history(report.state)

    assert [[one.said for one in turn.messages] for turn in after.turns] == [
        ["a", "c"],
        ["e"],
        ["f", "g", "Noted."],
    ]
    assert [(turn.number, turn.started_at) for turn in after.turns] == [
        (turn.number, turn.started_at) for turn in before.turns
    ]
    assert after.turns[0].messages[0].speaker == "Ada"
    assert report.removed_turns == 0
    assert report.rewritten_turns == 2
    assert _said(undo_cut(report.state)) == _said(state)
    whole = read_history(report.state, archived=True)
    assert [turn.messages for turn in whole.turns] == [turn.messages for turn in before.turns]
    second = _asked(wire, report.state, Compactor(ALWAYS, KeepRecentTurns(1), retain=True))
    assert second.state == report.state


def test_a_speaker_stays_with_the_message_that_is_left(wire: str) -> None:
    """The first message of a turn goes, and the second one keeps its own speaker."""
    chat = Chat(ScriptedBackend(*["Noted."] * 3, wire=wire))
    said = [user("a", speaker="Ada"), user("b", speaker="Bo", pinned=True)]
    state = chat.chat(messages=said, context="A hall.").state
    state = chat.chat_with_state(state, user="c").state

    left = read_history(_asked(wire, state, Compactor(ALWAYS, KeepRecentTurns(1))).state)

    first = left.turns[0].messages
    assert [(one.said, one.speaker, one.pinned) for one in first] == [("b", "Bo", True)]


def test_system_messages_may_go(wire: str) -> None:
    """With `preserve_system=False` they go with their turns, in any strategy; pinned ones do not."""
    state, _ = _talked(wire)
    for strategy in (*NAMED, KeepRecentTurns(1), only_newest):
        window = ContextWindow(
            max_messages=1,
            min_recent_turns=1,
            preserve_system=False,
            strategy=strategy,  # type: ignore[arg-type]
        )
        left = [said for said, _ in _said(_asked(wire, state, window).state) if len(said) == 1]

        kept = ["a", "b", "c"] if strategy == "middle_out" else ["a"]
        assert left == [*kept, "e", "f", "g", "h", "i"], strategy


def test_an_imported_system_message_is_pinned() -> None:
    """A history of another library has no marks, so the rule of the roles holds."""
    entries = [
        {"role": role, "content": text}
        for turn in "abc"
        for role, text in (("user", turn), ("system", f"{turn} it is"), ("assistant", "Noted."))
    ]
    state = state_from_messages("openai", entries)

    left = _asked("openai", state, Compactor(ALWAYS, KeepRecentTurns(1)))

    assert [said for said, _ in _said(left.state)] == ["a it is", "b it is", "c", "c it is"]


def test_the_tools_of_dropped_turns_are_noted(wire: str) -> None:
    """`notes_tools` says which tools were called, and how often; a second cut adds to the numbers."""
    strategy = Compactor(ALWAYS, KeepRecentTurns(1, notes_tools=True))
    book = Book(wire)
    look = Said(calls=(("look", {"at": "x" * 300}),), results=(user("A wall.").parts,))
    two = Said(calls=(("look", {}), ("take", {})), results=(user("A wall." * 99).parts, user("It.").parts))
    book.add(user("a"), look, Said("Noted."))
    book.add(user("b"), two, Said("Noted."))
    book.add(user("c"), Said("Noted."))

    first = _asked(wire, dump_state(book.state), strategy).state
    book.state = load_state(first)
    book.add(user("d"), Said("Noted."))
    plain = _asked(wire, dump_state(book.state), strategy).state
    book.state = load_state(plain)
    book.add(user("e"), look, Said("Noted."))
    book.add(user("f"), Said("Noted."))
    second = _asked(wire, dump_state(book.state), strategy).state

    notes = [read_history(one).turns[0].messages[0].text for one in (first, plain, second)]
    assert all(note.startswith('<app-note kind="tools">') for note in notes)
    assert [re.findall(r"\w+ \(\d+\)", note) for note in notes] == [
        ["look (2)", "take (1)"],
        ["look (2)", "take (1)"],
        ["take (1)", "look (3)"],
    ]
    assert [len(read_history(one).turns) for one in (first, plain, second)] == [2, 2, 2]


def test_no_piece_that_is_pinned_can_be_rewritten(wire: str) -> None:
    """`TurnView.rewritten` gives the piece itself, and media in it stay."""
    book = Book(wire)
    picture = Image.from_bytes(b"\x89PNG" + bytes(300))
    book.add(user("a", picture, pinned=True), user("b", picture), Said("Noted."))
    book.add(user("c"), Said("Noted."))
    seen: list[Any] = []

    def strategy(request: CompactionRequest) -> Any:
        pinned, other, _ = request.turns[0].pieces
        seen.append(
            (request.turns[0].rewritten(pinned, user("z")) is pinned, pinned.is_pinned, other.is_pinned)
        )
        return DropMedia(after_turns=1, at_least=1)(request)

    report = _asked(wire, dump_state(book.state), Compactor(ALWAYS, strategy))

    assert seen == [(True, True, False)]
    parts = [len(one.parts) for one in read_history(report.state).turns[0].messages[:2]]
    kinds = [type(one.parts[1]).__name__ for one in read_history(report.state).turns[0].messages[:2]]
    assert (parts, kinds) == ([2, 2], ["Image", "Text"])


@pytest.mark.parametrize("make", [user, event, system])
def test_a_pin_is_a_bool(make: Any) -> None:
    """Anything else is a mistake."""
    with pytest.raises(TypeError, match="pinned must be True or False"):
        make("a", pinned=1)


def test_a_message_without_a_pin_costs_nothing(wire: str) -> None:
    """States and exports of conversations without pins have the bytes that they had before."""
    chat = Chat(ScriptedBackend("Noted.", wire=wire))
    state = chat.chat(messages=[user("a"), event("b"), system("c")]).state

    assert [one.more for turn in closed_turns(load_state(state)) for one in turn.record.iterations] == [b""]
    assert not any("pinned" in one.to_dict() for one in read_history(state).all_messages())
