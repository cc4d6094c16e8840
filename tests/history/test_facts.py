"""What a state records of its turns, cuts and itself: numbers, models, times, digests, title and metadata."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace as replace_fields

from goaitools_py import (
    Chat,
    Compactor,
    KeepRecentTurns,
    ModelSettings,
    Text,
    TurnError,
    TurnLimit,
    event,
    tool,
    user,
)
from goaitools_py.base.values import replace
from goaitools_py.state.closed_turns import ClosedTurn
from goaitools_py.state.records import OpenTurn, cut_facts
from goaitools_py.state.row_codec import CutEnd, IterationEnd, cut_end, iteration_end
from goaitools_py.state.state import closed_entries, closed_turns, dump_state, load_state, rebuild
from goaitools_py.states import (
    fork_state,
    inspect_state,
    read_history,
    rebase_state,
    rewind_state,
    state_from_messages,
    state_messages,
    update_state,
)
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import StateInvalidError

WIRES = ("openai", "openai-responses", "anthropic")
CUT = Compactor(TurnLimit(2), KeepRecentTurns(2))


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each provider API."""
    return str(request.param)


def talk(wire: str, turns: int, *, state: bytes | None = None, **fields: Any) -> bytes:
    """A conversation of some turns, all of them alike."""
    with Chat(ScriptedBackend(*["Yes."] * turns, wire=wire), **fields) as chat:
        for _ in range(turns):
            state = chat.chat_with_state(state, user="Hello?").state
    assert state is not None
    return state


def numbers(state: bytes) -> list[int]:
    return [turn.number for turn in read_history(state).turns]


# -------------------------------------------------------------------------------------------- numbers


def test_turns_keep_their_numbers(wire: str) -> None:
    """Through cuts, rewinds and new turns each turn has its own number; a note has none."""
    five = talk(wire, 5)
    with Chat(ScriptedBackend(wire=wire)) as chat:
        cut = chat.compact_state(five, CUT).state
    more = talk(wire, 2, state=cut)
    rewound = rewind_state(more, 1)
    again = talk(wire, 2, state=rewound)

    assert numbers(five) == [1, 2, 3, 4, 5]
    assert [number for number in numbers(cut) if number] == [4, 5]
    assert [number for number in numbers(more) if number] == [4, 5, 6, 7]
    assert [number for number in numbers(rewound) if number] == [4, 5, 6]
    assert [number for number in numbers(again) if number] == [4, 5, 6, 8, 9]


def test_a_number_is_stored_only_where_it_does_not_follow(wire: str) -> None:
    """Without a cut no turn has the fact; after a rewind only the turn behind the gap has it."""
    plain = read_history(talk(wire, 3))
    behind = read_history(talk(wire, 2, state=rewind_state(talk(wire, 3), 1)))

    assert all("n" not in turn.facts for turn in plain.turns)
    assert [turn.facts.get("n") for turn in behind.turns] == [None, None, 4, None]


def test_joined_turns_are_numbered_behind_theirs(wire: str) -> None:
    """Turns that two workers had at once get numbers one after the other."""
    base = talk(wire, 2)
    mine, theirs = talk(wire, 2, state=base), talk(wire, 1, state=base, system="Be kind.")

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    assert numbers(joined) == [1, 2, 3, 4, 5]
    assert numbers(talk(wire, 1, state=joined)) == [1, 2, 3, 4, 5, 6]


def test_a_turn_of_the_millisecond_of_a_cut_can_be_rewound(wire: str, monkeypatch: Any) -> None:
    """Which turns are younger than a cut is told by their numbers, not by a clock."""
    import goaitools_py.turn.edges.sync_edge as edge

    now = edge.time.time_ns()
    monkeypatch.setattr(edge.time, "time_ns", lambda: now)
    with Chat(ScriptedBackend(*["Yes."] * 4, wire=wire)) as chat:
        state = None
        for _ in range(3):
            state = chat.chat_with_state(state, user="Hello?").state
        cut = chat.compact_state(state, CUT).state
        after = chat.chat_with_state(cut, user="Hello?").state

    assert [n for n in numbers(rewind_state(after, 1)) if n] == [n for n in numbers(cut) if n]
    with pytest.raises(ValueError, match="since the newest cut"):
        rewind_state(after, 2)


def test_numbers_of_an_import(wire: str) -> None:
    """An imported history begins with number 1, also where two of its turns are equal."""
    state = state_from_messages(wire, state_messages(talk(wire, 3)))

    assert numbers(state) == [1, 2, 3]
    assert numbers(talk(wire, 1, state=state)) == [1, 2, 3, 4]


# ------------------------------------------------------------------------------------------ cuts


def test_a_cut_says_what_it_took(wire: str) -> None:
    """Its row has the number of turns until then, and size and digest of the entries that are gone."""
    five = talk(wire, 5)
    entries = closed_entries(load_state(five))
    with Chat(ScriptedBackend(wire=wire)) as chat:
        cut = load_state(chat.compact_state(five, CUT).state)

    facts = cut_facts(cut.meta.cuts[-1])
    gone = [entry for entry in entries if entry in entries[:6]][:6]
    digest = urlsafe_b64encode(hashlib.sha256(b",\n".join(gone).replace(b",\n", b"\n")).digest()[:8])[:11]
    assert facts is not None
    assert facts.number == 5
    assert facts.size == sum(map(len, gone))
    assert facts.digest == digest.decode()


# ------------------------------------------------------------------------------------ models and times


def test_each_iteration_names_its_model(wire: str) -> None:
    """Also after the model of a conversation has changed, and changed back."""
    state = None
    with Chat(ScriptedBackend(*["Yes."] * 4, wire=wire)) as chat:
        for model in ("one", "one", "two", "one"):
            settings = ModelSettings(model=model)
            state = chat.chat_with_state(state, user="Hello?", settings=settings).state
    assert state is not None

    models = [iteration.model for turn in read_history(state).turns for iteration in turn.iterations]
    assert models == ["one", "one", "two", "one"]
    family = load_state(state).meta.family
    assert load_state(state).meta.models == ((family, "one"), (family, "two"))


def test_one_model_takes_no_room(wire: str) -> None:
    """Nothing is stored of models while there is one."""
    assert load_state(talk(wire, 2)).meta.models == ()


def test_a_seventeenth_model_is_not_known(wire: str) -> None:
    """Its iterations say so, and no other one is told in its place."""
    state = None
    with Chat(ScriptedBackend(*["Yes."] * 18, wire=wire)) as chat:
        for number in range(18):
            settings = ModelSettings(model=f"model-{number}")
            state = chat.chat_with_state(state, user="Hello?", settings=settings).state
    assert state is not None

    models = [iteration.model for turn in read_history(state).turns for iteration in turn.iterations]
    assert models == [f"model-{number}" for number in range(16)] + ["", ""]


def test_when_a_turn_was_completed(wire: str) -> None:
    """With its last reply, or later where its last call was made long after that."""

    @tool
    def look() -> str:
        """Look around."""
        return "A key."

    with Chat(ScriptedBackend(Calls([("look", {})]), "A key.", wire=wire), tools=[look]) as chat:
        state = chat.chat_with_state(None, user="Look!").state
    turn = read_history(state).turns[0]

    assert turn.completed_at is not None
    assert abs(turn.completed_at - turn.iterations[-1].completed_at) <= timedelta(milliseconds=100)


# -------------------------------------------------------------------------------- title and metadata


def test_title_and_metadata_stay(wire: str) -> None:
    """Through turns, cuts, forks and rewinds, and the model sees nothing of them."""
    state = update_state(talk(wire, 4), title="The lost key", metadata={"level": "3", "guild": "red"})
    state = update_state(state, metadata={"guild": None, "rank": "1"})
    messages = state_messages(state)
    with Chat(ScriptedBackend("Yes.", wire=wire)) as chat:
        turned = chat.chat_with_state(state, user="Hello?").state
        later = [turned, chat.compact_state(turned, CUT).state, fork_state(turned), rewind_state(turned, 1)]

    for one in (state, *later):
        info = inspect_state(one)
        assert (info.title, info.metadata) == ("The lost key", {"level": "3", "rank": "1"})
        assert "The lost key" not in repr(info)
    assert messages == state_messages(state)
    assert "lost key" not in str(state_messages(turned))


def test_updates_beside_a_turn_are_joined(wire: str) -> None:
    """Each side's names stay; what one side took away is gone."""
    base = update_state(talk(wire, 1), title="Old", metadata={"a": "1", "b": "1"})
    mine = talk(wire, 1, state=update_state(base, metadata={"a": "2", "c": "2"}))
    theirs = update_state(base, title="New", metadata={"b": None, "d": "3"})

    info = inspect_state(rebase_state(mine, base=base, theirs=theirs))

    assert (info.title, info.metadata) == ("New", {"a": "2", "c": "2", "d": "3"})


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"title": "x" * 257}, ValueError, "257 characters"),
        ({"title": 7}, TypeError, "title must be str"),
        ({"metadata": {"a": 7}}, TypeError, "must be str"),
        ({"metadata": ["a"]}, TypeError, "must be a mapping"),
        ({"metadata": {"a": "x" * 5000}}, ValueError, "at most 4096"),
        ({"metadata": {"a": "\ud800"}}, ValueError, "lone surrogate"),
    ],
)
def test_what_cannot_be_stored_is_refused(fields: Any, error: type[Exception], words: str) -> None:
    """Before anything is written, with what was found and what is possible."""
    state = talk("openai", 1)

    with pytest.raises(error, match=words):
        update_state(state, **fields)


# ------------------------------------------------------------------------------------------- speakers


def test_speakers_stay_with_their_messages(wire: str) -> None:
    """While they wait, in closed turns, beside events and messages of nobody in particular, through a cut."""
    with Chat(ScriptedBackend(*["Yes."] * 4, wire=wire)) as chat:
        state = chat.chat_with_state(None, user="Old.").state
        state = chat.append_to_state(state, user("Hi.", speaker="Ada"), event("It rains."), user("Hm."))
        waiting = read_history(state).waiting
        state = chat.chat_with_state(state, messages=[user("Hello!", speaker="Tom")], context="Noon").state
        state = chat.chat_with_state(state, user=[Text("Well?")]).state
        cut = chat.compact_state(state, CUT).state

    assert [message.speaker for message in waiting] == ["Ada", None, None]
    for one in (state, cut):
        said = {message.said: message.speaker for message in read_history(one).all_messages()}
        assert {text: said[text] for text in ("Hi.", "Hm.", "Hello!", "Well?")} == {
            "Hi.": "Ada",
            "Hm.": None,
            "Hello!": "Tom",
            "Well?": None,
        }
    assert str(state_messages(state)).count("<app-speaker>Ada</app-speaker>") == 1
    assert "Ada" not in repr(waiting[0])


def test_speakers_of_a_turn_without_a_reply(wire: str) -> None:
    """A message whose request failed keeps its speaker, and so does one after the results of tools."""

    @tool
    def look() -> str:
        """Look around."""
        return "A key."

    backend = ScriptedBackend(Calls([("look", {})]), RuntimeError("down"), "A key.", wire=wire)
    with Chat(backend, tools=[look]) as chat:
        with pytest.raises(TurnError) as caught:
            chat.chat_with_state(None, messages=[user("Look!", speaker="Ada")])
        begun = chat.append_to_state(caught.value.state, user("Quick!", speaker="Tom"))
        ended = chat.resume(begun).state

    for one in (caught.value.state, begun, ended):
        said = {message.said: message.speaker for message in read_history(one).all_messages()}
        assert said["Look!"] == "Ada"
        assert said.get("Quick!", "Tom") == "Tom"


@pytest.mark.parametrize(
    ("speaker", "error"), [(7, TypeError), ("", ValueError), ("x" * 257, ValueError), ("\ud800", ValueError)]
)
def test_a_speaker_that_cannot_be_stored(speaker: Any, error: type[Exception]) -> None:
    """It is refused where the message is made."""
    with pytest.raises(error, match="speaker"):
        user("Hi.", speaker=speaker)


# ------------------------------------------------------------------------------------ odd ends of rows

ODD_ENDS = [
    b'{"x":1e400}',
    b'{"x":123456789012345678901234567890123456789}',
    b'{"m":1e400,"who":1e400,"n":1e400,"size":1e400,"sum":1e400,"record":1e400}',
    b'{"m":-1,"who":-1,"n":-1,"size":-1,"sum":-1,"record":-1}',
    b'{"m":"0","who":[7],"n":"5","size":[],"sum":{},"record":null}',
    b'{"m":true,"who":[["a",1]],"n":null,"size":null,"sum":null,"record":[]}',
    b'{"m":99,"who":[[0]],"n":9007199254740993}',
    b'{"who":[[1e400,"Ada"]]}',
    b'{"who":{"0":"Ada"}}',
    b'{"x":' + b"[" * 50 + b"]" * 50 + b"}",
    b"{}",
]


@pytest.mark.parametrize("odd", ODD_ENDS, ids=range(len(ODD_ENDS)))
def test_odd_objects_at_the_end_of_rows_are_survived(wire: str, odd: bytes) -> None:
    """Of iterations, cuts and waiting messages: an odd value counts as absent, and the object stays."""
    with Chat(ScriptedBackend(*["Yes."] * 3, wire=wire)) as chat:
        five = chat.compact_state(talk(wire, 5), CUT).state
        state = load_state(chat.append_to_state(five, user("Hm.", speaker="Ada")))
        turns = [_with_end(turn, odd) for turn in closed_turns(state)]
        state = rebuild(state, turns)
        # Without facts, only the clock says which turns are younger than a cut; here all is done in some ms.
        cuts = tuple(row._replace(more=Raw(odd), at=row.at - 1) for row in state.meta.cuts)
        inbox = tuple(replace(item, more=odd) for item in state.inbox)
        given = dump_state(replace(state, meta=replace_fields(state.meta, cuts=cuts), inbox=inbox))

        read = read_history(given)
        assert cut_facts(load_state(given).meta.cuts[-1]) is None
        assert {message.speaker for message in (*read.all_messages(), *read.waiting)} == {None}
        assert inspect_state(given).turns == len(turns)
        again = chat.chat_with_state(given, user="Hello?", compactor=None).state
        later = [again, chat.compact_state(again, CUT).state, fork_state(again), rewind_state(again, 1)]
    for one in later:
        ends = [i.more for turn in closed_turns(load_state(one)) for i in turn.record.iterations]
        assert odd in ends
        assert odd in [bytes(row.more) for row in load_state(one).meta.cuts]
        assert read_history(one).turns


def _with_end(turn: ClosedTurn, end: bytes) -> ClosedTurn:
    iterations = tuple(replace(one, more=end) for one in turn.record.iterations)
    return replace(turn, record=replace(turn.record, iterations=iterations))


def test_an_odd_value_does_not_hide_the_others() -> None:
    """Beside a number beyond all types, or a name that is half a surrogate pair, the rest is read."""
    assert iteration_end(b'{"\\ud800":1,"m":3,"who":[[0,"Ada"]]}') == IterationEnd(3, ((0, "Ada"),))
    assert iteration_end(b'{"m":"x","who":[[0,"Ada"]],"x":1e400}') == IterationEnd(0, ((0, "Ada"),))
    assert cut_end(b'{"n":5,"size":-1,"sum":"abc"}') == CutEnd(5, 0, "abc")


@pytest.mark.parametrize("who", [7, "Ada", [["Ada", 0]], [[0]], [[0, "x" * 257]], [[-1, "Ada"]], {"0": "a"}])
def test_odd_speakers_of_an_unfinished_turn_are_refused(wire: str, who: Any) -> None:
    """The next reply would write them into a row: the state is refused when it is loaded."""
    state = load_state(talk(wire, 1))
    entry = closed_entries(state)[0]

    def unfinished(who: Any) -> bytes:
        turn = OpenTurn(at=0, entries=(entry,), letters="u", messages=1, facts={"who": who})
        return dump_state(replace(state, open=turn))

    assert load_state(unfinished([[0, "Ada"]])).open is not None
    with pytest.raises(StateInvalidError):
        load_state(unfinished(who))


# ---------------------------------------------------------------------------------------- request ids


def test_request_ids_are_kept_when_asked_for(face: Any, wire: str) -> None:
    """With each model call, beside speakers and other models, through a cut and a waiting turn; else none."""

    @tool
    def look() -> str:
        """Look around."""
        return "A key."

    backend = ScriptedBackend("Hi.", Calls([("look", {})]), "A key.", "Yes.", "No.", wire=wire)
    chat = face.chat(backend, tools=[look])
    state = chat.chat_with_state(None, user="Hello.").state
    result = chat.chat_with_state(
        state,
        messages=[user("Look!", speaker="Ada")],
        record_ids=True,
        settings=ModelSettings(model="other"),
    )
    state = chat.chat_with_state(result.state, user="Really?", record_ids=True).state
    cut = chat.compact_state(state, Compactor(TurnLimit(1), KeepRecentTurns(2))).state
    plain = chat.chat_with_state(cut, user="No?").state

    for one, ids in (
        (state, ["", "scripted-2", "scripted-3", "scripted-4"]),
        (cut, ["scripted-2", "scripted-3", "scripted-4"]),
        (plain, ["scripted-2", "scripted-3", "scripted-4", ""]),
    ):
        turns = read_history(one).turns
        assert [i.request_id for turn in turns for i in turn.iterations if i.finish_reason] == ids
    assert result.request_ids == ("scripted-2", "scripted-3")
    read = read_history(plain).turns[-3]
    assert {message.speaker for message in read.messages if message.role == "user"} == {"Ada"}
    assert read.iterations[0].model == "other"
