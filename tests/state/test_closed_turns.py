"""A closed turn: its entries, letters and count of messages stay in step, whatever is done to it."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.letters import LETTER_OF, LETTERS, ROLE_OF
from goaitools_py.state.records import OpenTurn
from goaitools_py.state.turn_rows import letters_in, records_in, turn_columns


def turn(*roles: str, messages: int | None = None) -> ClosedTurn:
    """A turn whose entries say their place and letter. Every entry counts as a message unless told."""
    letters = "".join(roles)
    entries = tuple(f"{letter}{at}".encode() for at, letter in enumerate(letters))
    record = TurnRecord(
        at=5,
        messages=len(letters) if messages is None else messages,
        iterations=tuple(Iteration(roles=own, finish_reason="stop", ms=7) for own in roles),
        facts={"number": 3},
    )
    return ClosedTurn(entries, record)


def test_a_record_of_other_entries_is_refused() -> None:
    """Entries and record cannot get out of step: the value cannot be made."""
    with pytest.raises(ValueError, match="a turn has 1 entries, and its record describes 2"):
        ClosedTurn((b"u",), turn("ua").record)


def test_a_turn_does_not_show_its_entries() -> None:
    """Its repr says nothing of what was said."""
    assert "u0" not in repr(turn("ua"))


def test_each_iteration_has_its_own_entries() -> None:
    """They come in order, and no entry is in two of them."""
    found = [(one.roles, entries) for one, entries in turn("ua", "", "tta").by_iteration()]

    assert found == [("ua", (b"u0", b"a1")), ("", ()), ("tta", (b"t2", b"t3", b"a4"))]


@pytest.mark.parametrize(
    ("roles", "reply"),
    [
        (["ua"], [b"a1"]),
        (["uaa", "aa"], [b"a1", b"a2", b"a3", b"a4"]),  # the first reply was paused
        (["uaa", "ta"], [b"a4"]),
        (["uat"], [b"a1"]),  # results of calls that nobody answered
        (["ua", "u"], [b"a1"]),
        (["u"], []),
        ([], []),
    ],
    ids=["plain", "paused", "after results", "before results", "unanswered", "no reply", "nothing"],
)
def test_the_last_reply(roles: list[str], reply: list[bytes]) -> None:
    """The newest reply with the paused ones directly before it; what stands behind it is not in it."""
    assert list(turn(*roles).last_reply()) == reply


def test_what_is_taken_out_leaves_with_its_letter_and_its_message() -> None:
    """A message of the user's counts as one; a reply as one, once nothing of it is left."""
    whole = turn("uea", "ttaa", messages=6)

    left = whole.without({1, 2, 5})

    assert left.entries == (b"u0", b"t3", b"t4", b"a6")
    assert [one.roles for one in left.record.iterations] == ["u", "tta"]
    assert (
        left.record.messages == 6 - 1 - 1
    )  # the event, and the first reply; the second one has an entry left
    assert left.record.facts == whole.record.facts
    assert left.record.iterations[0].ms == 7


def test_nothing_taken_out_is_the_very_turn() -> None:
    """So that a history that needs no change is told by identity."""
    whole = turn("ua")

    assert whole.without(()) is whole
    assert whole.with_entries(list(whole.entries)) is whole


def test_other_entries_stand_in_the_same_places() -> None:
    """An empty one takes its entry out."""
    changed = turn("ua", "ta").with_entries([b"u0", b"", b"t2", b"other"])

    assert changed.entries == (b"u0", b"t2", b"other")
    assert [one.roles for one in changed.record.iterations] == ["u", "ta"]
    assert changed.record.messages == 3


def test_more_iterations_are_new_ones_and_fewer_are_refused() -> None:
    """What a model call consumed stays with the turn."""
    whole = turn("ua", "ta")

    longer = whole.with_iterations(["u", "ta", "u"], [b"u0", b"t2", b"a3", b"new"], messages=4)

    assert [(one.roles, one.ms) for one in longer.record.iterations] == [("u", 7), ("ta", 7), ("u", 0)]
    with pytest.raises(ValueError, match="2 iterations cannot become one of 1"):
        whole.with_iterations(["uata"], whole.entries, messages=4)


@pytest.mark.parametrize("roles", [["ua"], []])
def test_entries_of_the_user_before_all_others(roles: list[str]) -> None:
    """They belong to the first iteration, which is made where there is none."""
    grown = turn(*roles).with_user_entries([b"x", b"y"], messages=1)

    assert grown.entries[:2] == (b"x", b"y")
    assert grown.record.iterations[0].roles == "uu" + "".join(roles)
    assert grown.record.messages == len("".join(roles)) + 1


def test_an_open_turn_closes_with_its_unanswered_entries_as_an_iteration() -> None:
    """Without any it gets none."""
    opened = OpenTurn(
        at=5, entries=(b"u", b"a", b"t"), iterations=(Iteration(roles="ua"),), letters="t", messages=3
    )

    assert (opened.roles, opened.unanswered, opened.last_reply) == ("uat", (b"t",), (b"a",))
    assert [one.roles for one in opened.closed().record.iterations] == ["ua", "t"]
    done = OpenTurn(at=5, entries=(b"u", b"a"), iterations=(Iteration(roles="ua"),), messages=2)
    assert (done.unanswered, done.last_reply) == ((), (b"a",))
    assert [one.roles for one in done.closed().record.iterations] == ["ua"]


@given(
    roles=st.lists(st.text(LETTERS, max_size=6), max_size=4),
    gone=st.sets(st.integers(0, 23)),
)
def test_letters_and_entries_stay_in_step(roles: list[str], gone: set[int]) -> None:
    """Whatever is taken out, what is left stands in order, each entry under its own letter."""
    whole = turn(*roles)

    left = whole.without(gone)

    assert left.entries == tuple(e for at, e in enumerate(whole.entries) if at not in gone)
    assert left.letters == "".join(entry.decode()[0] for entry in left.entries)
    assert tuple(chain.from_iterable(own for _, own in left.by_iteration())) == left.entries
    assert len(left.record.iterations) == len(whole.record.iterations)
    assert set(left.last_reply()) <= {entry for entry in left.entries if entry.startswith(b"a")}


def test_the_table_of_letters_has_one_for_every_role() -> None:
    """Both directions agree; an event is of the user's role."""
    assert {ROLE_OF[letter]: letter for letter in LETTERS if letter != "e"} == dict(LETTER_OF)
    assert ROLE_OF["e"] == "user"


def test_facts_of_a_later_release_may_hold_half_a_pair() -> None:
    """Another writer may escape a lone surrogate. The rows are read, and the fact stays byte for byte."""
    columns = (
        rb'[0,2,[["ua","stop",1,0,0,1,0,0,1]],{"mood":"\ud800x","weight":1e5}],'
        rb'[5,2,[["ua","stop",1,0,0,1,0,0,1]],{"status":"a\ud800"}]'
    )

    records = records_in(columns)

    assert letters_in(columns) == {"u": 2, "a": 2}
    assert turn_columns(records[:1]) == columns.split(b",[5,2")[0]
    assert records[1].facts == {"status": "a\ufffd"}
