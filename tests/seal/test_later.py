"""What a later release writes: this one carries it byte for byte, or raises; it never loses it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    PLAIN,
    UNBOUND,
    Approve,
    Chat,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    StateVersionError,
    event,
    tool,
)
from goaitools_py.base.values import replace
from goaitools_py.history.redact.rows import known_record, strip_unknown
from goaitools_py.open_turn import journal
from goaitools_py.seal import Encrypted, Key, Keyring, Signed, rewrap
from goaitools_py.state.closed_turns import FACTS
from goaitools_py.state.records import OpenTurn
from goaitools_py.state.state import closed_turns, dump_state, load_state, rebuild
from goaitools_py.states import (
    fork_state,
    inspect_state,
    read_history,
    rebase_state,
    rewind_state,
    state_messages,
)
from goaitools_py.testing import Calls, ScriptedBackend

from . import _later, _second
from ._golden import GOOD, Vector
from ._later import VALUE

SECRET = bytes(range(32))
BOUND = {"user": "ada"}
_RING = Keyring(Key(SECRET))
SUITES: dict[str, tuple[int, Any, bytes, Any]] = {
    "plain": (0x00, PLAIN, b"", None),
    "signed": (0x11, Signed(_RING), SECRET, BOUND),
    "encrypted": (0x21, Encrypted(_RING), SECRET, BOUND),
}


@tool
def look(place: str) -> str:
    """What there is at a place."""
    return f"A theatre in {place}."


@tool(requires_approval=True)
def pay(pounds: int) -> str:
    """Pay for the tea."""
    return f"Paid {pounds}."


def chat_of(wire: str, *steps: Any, **options: Any) -> Chat:
    return Chat(ScriptedBackend(*steps, wire=wire), tools=[look, pay], **options)


def conversation(wire: str, *, is_open: bool = True, **options: Any) -> bytes:
    """A blob with rows of every kind: closed turns, a cut, ids, an inbox and an open turn with calls."""
    steps = [Calls([("look", {"place": f"Leeds {n}"})]) if n % 2 else f"Answer {n}." for n in range(9)]
    chat = chat_of(wire, *steps, *["Answer."] * 5, **options)
    state = b""
    for n in range(5):
        state = chat.chat_with_state(
            state or None,
            user=f"Question {n}?",
            turn_id=f"turn {n}",
            metadata={"n": str(n)},
            compactor=Compactor(MessageLimit(7), KeepRecentTurns(3)) if n == 4 else None,
        ).state
    if is_open:
        calls = Calls([("look", {"place": "York"}), ("pay", {"pounds": 5})], "One moment.")
        state = chat_of(wire, calls, **options).chat_with_state(state, user="Pay!", turn_id="open").state
    return chat.append_to_state(state, event("It rains.", topic="weather", id="e1"))


def later_of(blob: bytes, suite: str = "plain") -> bytes:
    number, _, secret, binding = SUITES[suite]
    found = _second.opened(blob, [secret] if secret else (), binding)
    return _later.resealed(_later.written_by_later(found), number, secret, binding)


def names_in(blob: bytes, suite: str = "plain") -> Counter[bytes]:
    """How often each unknown name stands in the blob with its value, byte for byte."""
    _, _, secret, binding = SUITES[suite]
    found: Counter[bytes] = Counter()
    for each in _second.opened(blob, [secret] if secret else (), binding):
        if each.kind > 31:
            found[repr(each).encode()] += 1
            continue
        for name in b"meta cuts turn ring iteration fact inbox open call part".split():
            found[name] += each.raw.count(b'"new_%s":%s' % (name, VALUE))
    return +found


# ---------------------------------------------------------------------------------------------- kept


@pytest.mark.parametrize("suite", SUITES)
def test_what_a_later_release_added_is_written_again(wire: str, suite: str) -> None:
    """An unknown name in every place, and segments of kinds 40 and 63: loaded, dumped, and all is there."""
    _, codec, _, binding = SUITES[suite]
    options = {"codec": codec, "binding": binding}
    given = later_of(conversation(wire, **options), suite)
    before = names_in(given, suite)
    assert len(before) == 13, before

    again = dump_state(load_state(given, **options), **options)

    assert names_in(again, suite) == before
    _, _, secret, bound = SUITES[suite]
    secrets = [secret] if secret else ()
    for old, new in zip(
        _second.opened(given, secrets, bound), _second.opened(again, secrets, bound), strict=True
    ):
        assert (new.kind, new.entries) == (old.kind, old.entries)
        if old.kind not in (0, 4):  # there this release writes its own names first
            assert new.raw == old.raw


@pytest.mark.parametrize("suite", SUITES)
def test_what_a_later_release_wrote_is_read(wire: str, suite: str) -> None:
    """A reader sees the conversation, and the unknown facts as values."""
    _, codec, _, binding = SUITES[suite]
    options = {"codec": codec, "binding": binding}
    blob = conversation(wire, **options)
    given = later_of(blob, suite)

    assert state_messages(given, **options) == state_messages(blob, **options)
    assert inspect_state(given, **options).cuts == inspect_state(blob, **options).cuts
    facts = [turn.facts for turn in read_history(given, **options).turns]
    assert all(one["new_fact"][:2] == [1e5, 1e2] for one in facts)


def _append(state: bytes, wire: str, dice: random.Random) -> bytes:
    return chat_of(wire).append_to_state(state, event(f"It is {dice.randrange(10**6)}."))


def _turn(state: bytes, wire: str, dice: random.Random) -> bytes:
    chat = chat_of(wire, Calls([("look", {"place": "Hull"})]), f"Said {dice.randrange(10**6)}.")
    return chat.chat_with_state(state, user=f"And {dice.randrange(10**6)}?", turn_id=str(dice.random())).state


def _fork(state: bytes, wire: str, dice: random.Random) -> bytes:
    return fork_state(state)


def _moved(state: bytes, wire: str, dice: random.Random) -> bytes:
    there = rewrap(state, PLAIN, to=Encrypted(_RING, visible_to="client"), to_binding=BOUND)
    return rewrap(there, Encrypted(_RING), binding=BOUND, to=PLAIN, to_binding=UNBOUND)


def _cut(state: bytes, wire: str, dice: random.Random) -> bytes:
    chat = chat_of(wire, compactor=Compactor(MessageLimit(1), KeepRecentTurns(dice.randrange(2, 5))))
    return chat.compact_state(state).state


def _rewound(state: bytes, wire: str, dice: random.Random) -> bytes:
    cuts = [cut[0] for cut in inspect_state(state).cuts if cut[2] or cut[3]]
    turns = read_history(state).turns
    since = [turn for turn in turns if not cuts or turn.started_at > max(cuts)]
    return rewind_state(state, 1) if len(since) > 1 else state


def _joined(state: bytes, wire: str, dice: random.Random) -> bytes:
    return rebase_state(_append(state, wire, dice), base=state, theirs=_turn(state, wire, dice))


STEPS: list[Callable[[bytes, str, random.Random], bytes]] = [
    _append,
    _turn,
    _fork,
    _moved,
    _cut,
    _rewound,
    _joined,
]


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_of_this_release_keep_it(wire: str, seed: int) -> None:
    """Meta, segments and ids are all there at the end; a turn has what was added to it while it is there."""
    dice = random.Random(seed)
    state = later_of(conversation(wire, is_open=False))
    before = names_in(state)
    turns = closed_turns(load_state(state))
    first = 5 - len(turns)  # there was a cut
    labels = {f"Question {first + n}?": len(turn.record.iterations) for n, turn in enumerate(turns)}

    for _ in range(8):
        state = dice.choice(STEPS)(state, wire, dice)
        after, said = names_in(state), repr(state_messages(state))
        left = {label: count for label, count in labels.items() if label in said}
        for name, count in before.items():
            if name == b"iteration":
                assert after[name] == sum(left.values()), name
            elif name == b"fact":
                assert after[name] == len(left), name
            elif name == b"inbox":
                assert after[name] in (0, count), name
            else:
                assert after[name] == count, name


def test_an_open_turn_keeps_it_until_it_is_closed(wire: str) -> None:
    """Its own names and those of a call stay while it waits; those of its iterations go into the history."""
    state = later_of(conversation(wire))
    before = names_in(state)

    waiting = chat_of(wire).append_to_state(state, event("Still raining."))
    (call,) = journal.pending(load_state(waiting))
    done = chat_of(wire, "Paid.").resume(waiting, {call.id: Approve()}).state

    assert names_in(waiting) == before
    after = names_in(done)
    gone = {b"open", b"call", b"part", b"inbox", b"turn"}
    assert {name: after[name] for name in before if name not in gone} == {
        name: count + (before[b"turn"] if name == b"ring" else 0)
        for name, count in before.items()
        if name not in gone
    } | {b"ring": after[b"ring"]}
    assert not any(after[name] for name in (b"open", b"call", b"part"))


def test_half_a_surrogate_beside_it_does_not_change_it() -> None:
    """The slow way of writing text that UTF-8 cannot hold leaves the bytes of a later release alone."""
    first = Chat(ScriptedBackend("Fine.")).chat(user="Hello.").state
    state = load_state(later_of(first))
    (turn,) = closed_turns(state)
    record = turn.record
    assert set(record.facts) - FACTS == {"new_fact"}

    opened = OpenTurn(at=1, partial="half: \ud800", facts=record.facts)
    grown = dump_state(replace(state, open=opened))

    assert names_in(grown)[b"fact"] == 2
    again = load_state(grown).open
    assert again is not None
    assert (again.partial, again.facts) == ("half: \ufffd", record.facts)


def test_who_drops_it_counts_it(wire: str) -> None:
    """A step that must not carry what it does not understand knows how much that was."""
    before = load_state(conversation(wire))
    state = load_state(later_of(dump_state(before)))

    plain, count = strip_unknown(state)

    assert names_in(dump_state(plain)) == Counter()
    assert count == sum(names_in(dump_state(state)).values())
    assert strip_unknown(plain) == (plain, 0)
    assert (plain.inbox, plain.open, plain.parts) == (before.inbox, before.open, before.parts)
    assert read_history(dump_state(plain)) == read_history(dump_state(before))
    names = set(type(before.meta).__struct_fields__)
    assert {name for name in names if getattr(plain.meta, name) != getattr(before.meta, name)} == set()


@pytest.mark.parametrize("room", ["facts", "iteration"])
def test_a_row_with_one_unknown_name_is_written_anew(wire: str, room: str) -> None:
    """A closed turn whose facts, or whose iterations only, have a name of a later release."""
    state = load_state(conversation(wire, is_open=False))
    first, *rest = closed_turns(state)
    record = first.record
    if room == "facts":
        changed = replace(record, facts={**record.facts, "new_fact": 1})
    else:
        more = (replace(record.iterations[0], more=b'{"new_end":1}'), *record.iterations[1:])
        changed = replace(record, iterations=more)
    later = rebuild(state, [replace(first, record=changed), *rest])

    plain, count = strip_unknown(later)

    assert count == 1
    assert closed_turns(plain)[0].record == known_record(changed)[0] != changed
    assert list(closed_turns(plain))[1:] == rest


def test_nothing_of_this_release_is_taken_for_a_later_ones(vectors: list[Vector]) -> None:
    """Every fact, key and row of the frozen blobs is known."""
    for vector in vectors:
        assert strip_unknown(load_state(vector.blob))[1] == 0


@pytest.fixture(name="vectors")
def _vectors() -> list[Vector]:
    return [vector for vector in GOOD if vector.codec == "plain"]


# ------------------------------------------------------------------------------------------- refused


def _changed(kind: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda found: [_later.rewritten(each, change) if each.kind == kind else each for each in found]


def _with(**members: Any) -> Callable[[Any], Any]:
    return lambda row: {**row, **members}


def _call(**members: Any) -> Callable[[Any], Any]:
    return lambda row: {**row, "calls": [{**call, **members} for call in row["calls"]]}


def _lettered(rows: Any) -> Any:
    rows[0][2][0][0] = "d" + rows[0][2][0][0][1:]
    return rows


def _longer(rows: Any) -> Any:
    rows[0][2][0] += [{}, 5]
    return rows


def _not_an_object(rows: Any) -> Any:
    rows[0][2][0] += [5]
    return rows


def _more(name: str, *values: Any) -> Callable[[Any], Any]:
    return lambda meta: {**meta, name: [[*row, *values] for row in meta[name]]}


REFUSED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "kind 5": lambda found: [*found, _second.SecondSegment(5, 0, b"{}")],
    "kind 31": lambda found: [*found, _second.SecondSegment(31, 0, b"{}")],
    "kind 64 in the body": lambda found: [*found, _second.SecondSegment(64, 0, b"{}")],
    "kind 70 in the body": lambda found: [*found, _second.SecondSegment(70, 0, b"{}")],
    "letter d of a turn": _changed(2, _lettered),
    "letter d of the inbox": _changed(3, lambda rows: [["d", *row[1:]] for row in rows]),
    "letter d of the open turn": _changed(4, _with(letters="d")),
    "letter d of an open iteration": _changed(
        4, lambda row: {**row, "iterations": [["d" + one[0], *one[1:]] for one in row["iterations"]]}
    ),
    "state of a call": _changed(4, _call(state="paused")),
    "flag of a call": _changed(4, _call(flag="late")),
    "reason of a call": _changed(4, _call(reason="payment")),
    "kind of a call": _changed(4, _call(kind="remote")),
    "part of a result": _changed(4, _call(parts=[{"kind": "video"}])),
    "two elements behind an iteration": _changed(2, _longer),
    "a number behind an iteration": _changed(2, _not_an_object),
    "an element behind a turn": _changed(2, lambda rows: [[*(*row, {})[:4], 5] for row in rows]),
    "a number behind a cut": _changed(0, _more("cuts", 5)),
    "two elements behind a cut": _changed(0, _more("cuts", {}, {})),
    "a text behind an id": _changed(0, _more("turn", "x")),
    "a list behind a finished id": _changed(0, _more("ring", [])),
    "two elements behind the inbox": _changed(3, lambda rows: [[*row, {}, 1] for row in rows]),
}


@pytest.mark.parametrize("policy", ["fresh", None])
@pytest.mark.parametrize("name", REFUSED)
def test_what_must_be_understood_is_a_newer_release(name: str, policy: Any) -> None:
    """It is `StateVersionError`, never damage: nothing is sent, and no fresh conversation begins."""
    blob = conversation("openai")
    given = _later.resealed(REFUSED[name](_second.opened(blob)))
    chat = chat_of("openai", on_bad_state=policy)

    for act in (lambda: read_history(given), lambda: chat.append_to_state(given, event("E."))):
        if "turn" in name or ("iteration" in name and "open" not in name):
            act = lambda: read_history(given)  # noqa: E731 - a turn does not read the closed history
        with pytest.raises(StateVersionError) as caught:
            act()
        assert caught.value.__context__ is None
    if "turn" not in name and "iteration" not in name:
        with pytest.raises(StateVersionError) as caught:
            chat.chat_with_state(given, user="Go on.")
        assert caught.value.blob == given


def test_suite_31_is_a_newer_release() -> None:
    """A suite byte that is not known is no damage."""
    blob = bytearray(conversation("openai"))
    blob[5] = 0x31

    with pytest.raises(StateVersionError, match="suite 0x31"):
        load_state(bytes(blob))
