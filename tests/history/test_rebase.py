"""Two states that grew from one are joined: nothing is lost or doubled or asked again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    PLAIN,
    Chat,
    Compactor,
    MessageLimit,
    StateConflictError,
    Tool,
    ToolReturn,
    TurnError,
    assistant,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.base.values import replace
from goaitools_py.compaction import MiddleOut
from goaitools_py.history.additions import (
    append_messages,
    claim_waiting,
    update_state,
    withdraw_message,
)
from goaitools_py.history.rebase import holds_state
from goaitools_py.open_turn.inbox import released
from goaitools_py.state.records import with_cut
from goaitools_py.state.state import closed_turns, dump_state, load_state, rebuild
from goaitools_py.states import (
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    rewind_state,
    state_messages,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history

WIRES = ("openai", "openai-responses", "anthropic")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each wire."""
    return str(request.param)


@pytest.fixture
def base(wire: str) -> bytes:
    """A conversation of one turn."""
    return chat(wire, "Noted.").chat(user="My name is Ada.").state


def chat(wire: str, *script: Any, **fields: Any) -> Chat:
    return Chat(ScriptedBackend(*script, wire=wire), **fields)


def said(blob: bytes) -> list[str]:
    """Every text of the conversation, the waiting ones last."""
    return [message.text for message in read_history(blob).all_messages() if message.role != "tool"]


@tool
def pay() -> str:
    """Pay."""
    return "paid"


def check(wire: str, blob: bytes) -> None:
    assert check_history(wire, state_messages(blob)) == []


def test_what_nobody_else_touched_is_mine(wire: str, base: bytes) -> None:
    """If the store still has the base there is nothing to join."""
    mine = chat(wire, "Hello.").chat_with_state(base, user="Hello.").state

    assert rebase_state(mine, base=base, theirs=base) == mine


def test_an_event_of_theirs_waits_behind_my_turn(wire: str, base: bytes) -> None:
    """It came while the model answered: no model has seen it, and the next turn takes it along."""
    backend = ScriptedBackend("Hello.", "You won.", wire=wire)
    mine = Chat(backend).chat_with_state(base, user="Hello.").state
    theirs = Chat(backend).append_to_state(base, event("Ada won.", id="e-1"))

    joined = rebase_state(mine, base=base, theirs=theirs)
    after = Chat(backend).chat_with_state(joined, user="And now?")

    assert said(joined) == ["My name is Ada.", "Noted.", "Hello.", "Hello.", "Ada won."]
    assert said(after.state)[-4:] == ["Hello.", "Ada won.", "And now?", "You won."]
    assert inspect_state(joined).total_usage == inspect_state(mine).total_usage
    check(wire, after.state)


def test_an_event_of_mine_waits_behind_their_turn(wire: str, base: bytes) -> None:
    """An append never loses against a turn."""
    theirs = chat(wire, "Hello.").chat_with_state(base, user="Hello.").state
    mine = chat(wire).append_to_state(base, event("Ada won."))

    joined = rebase_state(mine, base=base, theirs=theirs)

    assert said(joined) == ["My name is Ada.", "Noted.", "Hello.", "Hello.", "Ada won."]
    assert inspect_state(joined).revision > inspect_state(theirs).revision
    check(wire, joined)


def test_appended_messages_of_both_stay(wire: str, base: bytes) -> None:
    """Theirs first; an event of both enters once, of an unseen topic the newer stays."""
    one = chat(wire)
    theirs = one.append_to_state(base, event("Rain.", topic="weather"), event("Goal!", id="g"))
    mine = one.append_to_state(base, event("Goal!", id="g"), event("Sun.", topic="weather"), user("Well?"))

    joined = rebase_state(mine, base=base, theirs=theirs)

    assert said(joined)[2:] == ["Goal!", "Sun.", "Well?"]
    assert one.append_to_state(joined, event("Goal!", id="g")) == joined


def test_two_turns_are_a_conflict(wire: str, base: bytes) -> None:
    """The model answered each without knowing the other: nobody puts them together unasked."""
    mine = chat(wire, "I.").chat_with_state(base, user="Me?").state
    theirs = chat(wire, "They.").chat_with_state(base, user="Them?").state

    with pytest.raises(StateConflictError, match="concurrent_turns"):
        rebase_state(mine, base=base, theirs=theirs)


def test_the_same_turn_is_not_put_behind_itself(wire: str, base: bytes) -> None:
    """Not if theirs is mine or grew from mine, nor if a cut of mine left old turns beside new ones."""
    one = chat(wire, *["Noted."] * 4)
    mine = one.chat_with_state(base, user="Me?").state
    grown = one.append_to_state(mine, event("Goal!"))
    old = one.run_turns(base, ["Note 1", "Note 2", "Note 3"]).state
    cut = one.compact_state(old, Compactor(MessageLimit(1), MiddleOut(first=2, last=1, note=""))).state

    assert rebase_state(mine, base=base, theirs=mine, concurrent_turns=True) == mine
    with pytest.raises(StateConflictError, match="same turn"):
        rebase_state(mine, base=base, theirs=grown, concurrent_turns=True)
    with pytest.raises(StateConflictError, match="same turn"):
        rebase_state(cut, base=base, theirs=mine, concurrent_turns=True)


def test_two_turns_one_behind_the_other(wire: str, base: bytes) -> None:
    """On demand theirs stays and mine follows; usage, turn ids and counts are those of both."""
    backend = ScriptedBackend("They.", "I.", "More.", wire=wire)
    one = Chat(backend)
    theirs = one.chat_with_state(base, user="Them?", turn_id="t").state
    mine = one.chat_with_state(base, user="Me?", turn_id="m").state

    joined = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    assert said(joined)[2:] == ["Them?", "They.", "Me?", "I."]
    assert inspect_state(joined).turns_processed == 3
    assert inspect_state(joined).total_usage.requests == 3
    for turn_id, text in (("t", "They."), ("m", "I.")):
        asked = {"t": "Them?", "m": "Me?"}[turn_id]
        assert one.chat_with_state(joined, user=asked, turn_id=turn_id).text == text
    check(wire, one.chat_with_state(joined, user="More?").state)


def test_a_message_that_both_answered_is_a_conflict(wire: str, base: bytes) -> None:
    """It would be in the history twice."""
    waiting = chat(wire).append_to_state(base, user("Anybody?"))
    mine = chat(wire, "I.").chat_with_state(waiting).state
    theirs = chat(wire, "They.").chat_with_state(waiting).state

    with pytest.raises(StateConflictError, match="same waiting messages"):
        rebase_state(mine, base=waiting, theirs=theirs, concurrent_turns=True)


def test_a_message_that_i_answered_waits_no_more(wire: str, base: bytes) -> None:
    """They appended while I answered what waited: only what they added still waits."""
    waiting = chat(wire).append_to_state(base, user("Anybody?"))
    mine = chat(wire, "I.").chat_with_state(waiting).state
    theirs = chat(wire).append_to_state(waiting, event("Rain."))

    assert said(rebase_state(mine, base=waiting, theirs=theirs))[2:] == ["Anybody?", "I.", "Rain."]


def test_a_failed_turn_is_rebased_with_its_message(wire: str, base: bytes) -> None:
    """The message that no model has answered goes behind their turn, once, and `resume` answers it."""
    failing = ScriptedBackend(BackendError("down"), wire=wire)
    failing.max_retries = 0
    with pytest.raises(TurnError) as caught:
        Chat(failing).chat_with_state(base, user="Me?")
    theirs = chat(wire, "They.").chat_with_state(base, user="Them?").state

    joined = rebase_state(caught.value.state, base=base, theirs=theirs)
    resumed = chat(wire, "I.").resume(joined)

    assert said(resumed.state)[2:] == ["Them?", "They.", "Me?", "I."]
    check(wire, resumed.state)


def test_an_unfinished_turn_takes_their_events(wire: str, base: bytes) -> None:
    """A checkpoint of a running turn can be joined with an append; the turn then goes on."""
    ran: list[int] = []

    @tool
    def count(number: int) -> str:
        """Count."""
        ran.append(number)
        return "counted"

    kept: list[bytes] = []
    one = chat(wire, Calls([("count", '{"number": 1}')]), "One.", tools=[count])
    one.chat_with_state(base, user="Count.", on_checkpoint=kept.append)
    theirs = one.append_to_state(base, event("Rain."))

    joined = rebase_state(kept[2], base=base, theirs=theirs)
    resumed = chat(wire, "One, and rain.", tools=[count]).resume(joined)

    assert ran == [1]
    assert said(resumed.state)[-1] == "One, and rain."
    assert "Rain." in said(resumed.state)
    check(wire, resumed.state)


def test_beside_an_unfinished_turn_no_turn_can_stand(wire: str, base: bytes) -> None:
    """Nobody could say in which order they would go on."""
    kept: list[bytes] = []

    @tool
    def count() -> str:
        """Count."""
        return "counted"

    one = chat(wire, Calls([("count", "{}")]), "One.", tools=[count])
    one.chat_with_state(base, user="Count.", on_checkpoint=kept.append)
    theirs = chat(wire, "They.").chat_with_state(base, user="Them?").state

    with pytest.raises(StateConflictError, match="unfinished"):
        rebase_state(kept[0], base=base, theirs=theirs, concurrent_turns=True)


def test_strangers_are_not_joined(wire: str, base: bytes) -> None:
    """Two conversations that only look alike are a conflict, and so is one that is older than the base."""
    other = chat(wire, "Noted.", "No.").run_turns(None, ["My name is Bob.", "No."]).state
    newer = chat(wire, "Hello.").chat_with_state(base, user="Hello.").state

    with pytest.raises(StateConflictError, match="grow"):
        rebase_state(newer, base=newer, theirs=base)
    if inspect_state(other).created_at != inspect_state(base).created_at:
        with pytest.raises(StateConflictError, match="grow"):
            rebase_state(newer, base=base, theirs=other)


def test_a_conversation_that_both_began(wire: str) -> None:
    """Two first messages at the same time: appended ones go together, two turns only on demand."""
    theirs = chat(wire, "They.").chat(user="Them?").state
    mine = chat(wire).append_to_state(None, event("Rain."))
    turn = chat(wire, "I.").chat(user="Me?").state

    assert said(rebase_state(mine, base=None, theirs=theirs)) == ["Them?", "They.", "Rain."]
    with pytest.raises(StateConflictError):
        rebase_state(turn, base=b"", theirs=theirs)
    joined = rebase_state(turn, base=b"", theirs=theirs, concurrent_turns=True)
    assert said(joined) == ["Them?", "They.", "Me?", "I."]
    assert inspect_state(joined).conversation_id == inspect_state(theirs).conversation_id


def test_assistants_words_can_wait_too(wire: str, base: bytes) -> None:
    """Whatever may be appended may be rebased."""
    theirs = chat(wire, "They.").chat_with_state(base, user="Them?").state
    mine = chat(wire).append_to_state(base, assistant("By the way."), user("Yes?"))

    assert said(rebase_state(mine, base=base, theirs=theirs))[-2:] == ["By the way.", "Yes?"]


def test_two_beginnings_have_the_time_of_the_first(wire: str) -> None:
    """Others who know the first one can still join; when a turn was had stays as it was."""
    dialect = ScriptedBackend(wire=wire).dialect
    theirs = append_messages(
        b"",
        [event("Ada won.")],
        dialect,
        codec=PLAIN,
        binding=None,
        min_revision=None,
        fresh_id="ada",
        now_ms=1_000_000,
    )
    mine = chat(wire, "Hello.").chat(user="Hello?").state

    joined = rebase_state(mine, base=None, theirs=theirs)
    third = rebase_state(chat(wire).append_to_state(theirs, event("Bob won.")), base=theirs, theirs=joined)

    assert inspect_state(joined).created_at == inspect_state(theirs).created_at
    assert inspect_state(joined).updated_at == inspect_state(mine).updated_at
    assert read_history(joined).turns[0].started_at == read_history(mine).turns[0].started_at
    assert said(third) == ["Hello?", "Hello.", "Ada won.", "Bob won."]


def test_the_same_turn_is_not_had_twice(wire: str, base: bytes) -> None:
    """Both sides know its id: its message enters once, and two replies to it are a conflict in any case."""
    mine = chat(wire, "Mine.").chat_with_state(base, user="Pay.", turn_id="m-1").state
    theirs = chat(wire, "Theirs.").chat_with_state(base, user="Pay.", turn_id="m-1").state
    with pytest.raises(TurnError) as caught:
        chat(wire, BackendError("down")).chat_with_state(base, user="Pay.", turn_id="m-1")
    failed = caught.value.state

    for one, two in ((mine, failed), (failed, mine)):
        assert said(rebase_state(one, base=base, theirs=two))[2:] == ["Pay.", "Mine."]
    assert said(rebase_state(failed, base=base, theirs=failed))[2:] == ["Pay."]
    with pytest.raises(StateConflictError, match="the same turn"):
        rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)


def test_what_was_taken_back_goes(wire: str, base: bytes) -> None:
    """A message that waited in the base and that the provider refused is in nobody's state any more; its
    event id may come again."""
    said_first = chat(wire).append_to_state(base, event("Poison.", id="e-1"))
    theirs = chat(wire).append_to_state(said_first, event("Ada won."))

    joined = rebase_state(base_as_new(base, said_first), base=said_first, theirs=theirs)
    again = chat(wire).append_to_state(joined, event("Poison.", id="e-1"))

    assert said(joined)[2:] == ["Ada won."]
    assert said(again)[2:] == ["Ada won.", "Poison."]


def test_what_theirs_took_back_does_not_come_back(wire: str, base: bytes) -> None:
    """It waited on in my state, whose turn went without it. Its author has it in their hands, and may say it
    again: its event id and its turn id are free."""
    happened = chat(wire).append_to_state(base, event("Poison.", id="e-1"))
    with pytest.raises(TurnError) as failed:
        chat(wire, BackendError("down")).chat_with_state(happened, user="Pay.", turn_id="m-1")
    waiting = failed.value.state
    turn = chat(wire, "Noted too.").chat_with_state(base, user="Mine.").state
    mine = rebase_state(turn, base=base, theirs=waiting)
    theirs = chat(wire).append_to_state(base_as_new(base, waiting), event("Ada won."))

    joined = rebase_state(mine, base=waiting, theirs=theirs)
    again = chat(wire).append_to_state(joined, event("Poison.", id="e-1"))
    again = chat(wire, "Paid.").chat_with_state(again, user="Pay.", turn_id="m-1").state

    assert said(mine)[2:] == ["Mine.", "Noted too.", "Poison.", "Pay."]
    assert said(joined)[2:] == ["Mine.", "Noted too.", "Ada won."]
    assert said(again)[4:] == ["Ada won.", "Poison.", "Pay.", "Paid."]
    check(wire, again)


@pytest.mark.parametrize("other", WIRES)
def test_two_beginnings_of_different_providers(wire: str, other: str) -> None:
    """One has a turn, and the other one only waits: it is converted, whoever was first."""
    turn = chat(wire, "Hello.").chat(user="Hello?", turn_id="m-1").state
    waits = chat(other).append_to_state(b"", event("Ada won.", id="e-1"))

    for one, two in ((turn, waits), (waits, turn)):
        joined = rebase_state(one, base=None, theirs=two)
        again = chat(wire).append_to_state(joined, event("Ada won.", id="e-1"))
        assert inspect_state(joined).wire == wire
        assert said(joined) == ["Hello?", "Hello.", "Ada won."]
        assert again == joined
        check(wire, joined)


def refused(wire: str, waiting: bytes, **how: Any) -> bytes:
    """What a worker is left with whose provider refused the request with all that waits."""
    refusal = BackendError("no", status=400, body=b"{}")
    with pytest.raises(TurnError) as caught:
        chat(wire, refusal).chat_with_state(waiting, user="Mine.", **how)
    return caught.value.state


@pytest.mark.parametrize("is_over", [True, False], ids=["closed", "open"])
def test_what_one_provider_refused_and_the_other_accepted_is_as_accepted(
    wire: str, base: bytes, is_over: bool
) -> None:
    """The same message and event waited for both workers. One got its reply: the `turn_id` and the event id
    stay in use, and neither is said once more. Only what still waits there is taken back."""
    unavailable = BackendError("down", status=503)
    happened = chat(wire).append_to_state(base, event("It rains.", id="e-1"))
    with pytest.raises(TurnError) as failed:
        chat(wire, unavailable).chat_with_state(happened, user="Pay.", turn_id="m-1")
    waiting = failed.value.state
    script = ["Paid."] if is_over else [Calls([("pay", {})]), unavailable]
    theirs_of = Chat(ScriptedBackend(*script, wire=wire), tools=[pay])
    if is_over:
        theirs = theirs_of.resume(waiting).state
    else:
        with pytest.raises(TurnError) as broken:
            theirs_of.resume(waiting)
        theirs = broken.value.state

    # A third message came while the model answered. So it waits in theirs, and was refused with the others.
    later = chat(wire).append_to_state(waiting, event("Poison.", id="e-2"))
    theirs = rebase_state(theirs, base=waiting, theirs=later)

    joined = rebase_state(refused(wire, later), base=later, theirs=theirs)
    rest = Chat(ScriptedBackend("Paid.", wire=wire), tools=[pay])
    again = rest.chat_with_state(joined, user="Pay.", turn_id="m-1").state
    again = rest.append_to_state(again, event("It rains.", id="e-1"))

    once = ["My name is Ada.", "Noted.", "It rains.", "Pay.", "Paid."]
    assert Counter(filter(None, said(again))) == Counter(once)
    again = rest.append_to_state(again, event("Poison.", id="e-2"))
    assert said(again)[-1] == "Poison."
    check(wire, again)


def test_a_cut_that_left_the_size_alone_is_kept(wire: str, base: bytes) -> None:
    """What I took out of the history is out of the joined one too, though something as long stands there."""
    state = load_state(base)
    turns = [
        replace(turn, entries=tuple(entry.replace(b"Ada", b"***") for entry in turn.entries))
        for turn in closed_turns(state)
    ]
    meta = msgspec.structs.replace(
        state.meta, rev=state.meta.rev + 1, cuts=with_cut(state.meta, 0, "redacted", 0, 0)
    )
    mine = dump_state(rebuild(replace(state, meta=meta), turns))
    theirs = chat(wire).append_to_state(base, event("It rains."))

    joined = rebase_state(mine, base=base, theirs=theirs)

    assert said(joined) == ["My name is ***.", "Noted.", "It rains."]
    check(wire, joined)


def base_as_new(old: bytes, before: bytes) -> bytes:
    """An old state as one of after another."""
    state = load_state(old)
    meta = msgspec.structs.replace(state.meta, rev=load_state(before).meta.rev + 1)
    return dump_state(replace(state, meta=meta))


def test_it_can_be_told_whether_a_state_was_saved(wire: str, base: bytes) -> None:
    """After a save that nobody answered: what is stored holds it, or not."""
    backend = ScriptedBackend("Mine.", "Later.", "Theirs.", wire=wire)
    turn = Chat(backend).chat_with_state(base, user="I?").state
    later = Chat(backend).chat_with_state(turn, user="Later?").state
    theirs = Chat(backend).chat_with_state(base, user="They?").state
    noted = Chat(backend).append_to_state(base, event("Ada won."))
    twice = Chat(backend).append_to_state(Chat(backend).append_to_state(turn, event("1")), event("2"))
    back = rewind_state(turn)

    for holds, mine in ((later, turn), (twice, turn), (turn, turn), (twice, turn)):
        assert holds_state(holds, mine, base=base)
    for holds, mine in ((theirs, turn), (base, turn), (base, noted), (turn, noted)):
        assert not holds_state(holds, mine, base=base)
    assert not holds_state(later, back, base=turn)


def rainy(wire: str, state: bytes, event_id: str | None = None) -> bytes:
    """The state with an event that waits, and can be withdrawn as "e1" if it has no id of its own."""
    return append_messages(
        state,
        [event("It rains.", id=event_id)],
        ScriptedBackend(wire=wire).dialect,
        codec=PLAIN,
        binding=None,
        min_revision=None,
        fresh_id="",
        now_ms=0,
        ids=["" if event_id else "e1"],
    )


def test_a_message_that_was_withdrawn_was_not_claimed(wire: str, base: bytes) -> None:
    """A claim adds nothing but its mark. Whoever lost its answer must not take a withdrawal for it."""
    plain = {"codec": PLAIN, "binding": None}
    waits = rainy(wire, base)
    mine = claim_waiting(waits, "c1", **plain)
    gone = withdraw_message(waits, "e1", **plain)
    more = chat(wire).append_to_state(mine, event("Ada won."))
    answered = chat(wire, "Noted.").resume(more).state

    assert load_state(mine).inbox[0].is_taken
    for holds in (mine, more, answered):
        assert holds_state(holds, mine, base=waits)
    for holds in (waits, gone):
        assert not holds_state(holds, mine, base=waits)


def test_one_turn_id_for_two_messages_loses_neither(wire: str, base: bytes) -> None:
    """That is a mistake of the caller. Two workers could not know of each other."""
    states = []
    for text in ("To the left.", "To the right."):
        model = Chat(ScriptedBackend(BackendError("down", status=503), wire=wire, max_retries=0))
        with pytest.raises(TurnError) as failed:
            model.chat_with_state(base, user=text, turn_id="m-1")
        states.append(failed.value.state)

    joined = rebase_state(states[1], base=base, theirs=states[0])

    assert said(joined)[-2:] == ["To the left.", "To the right."]
    assert said(rebase_state(states[0], base=base, theirs=states[0])).count("To the left.") == 1


@pytest.mark.parametrize("change", ["rewind", "compact"])
def test_a_claim_that_came_beside_a_change_of_the_history_stays(wire: str, base: bytes, change: str) -> None:
    """A model may read the message: it cannot be withdrawn, whichever of the two saves came first."""
    plain = {"codec": PLAIN, "binding": None}
    model = chat(wire, "Well.", "Good.")
    for name in ("Bob", "Eve"):
        base = model.chat_with_state(base, user=f"{name} came.").state
    waits = rainy(wire, base)
    claimed = claim_waiting(waits, "c1", **plain)
    if change == "rewind":
        changed = rewind_state(waits)
    else:
        changed = model.compact_state(
            waits, Compactor(MessageLimit(1), MiddleOut(first=1, last=1, note=""))
        ).state

    for mine, theirs in ((changed, claimed), (claimed, changed)):
        joined = rebase_state(mine, base=waits, theirs=theirs)
        assert [item.is_taken for item in load_state(joined).inbox] == [True]
        assert withdraw_message(joined, "e1", **plain) == joined
        check(wire, joined)

    freed = dump_state(released(load_state(claimed)))
    more = model.append_to_state(claimed, event("Ada won."))
    for mine, theirs in ((rewind_state(freed), more), (more, rewind_state(freed))):
        joined = rebase_state(mine, base=claimed, theirs=theirs)
        assert [item.is_taken for item in load_state(joined).inbox] == [False, False]
    joined = rebase_state(freed, base=claimed, theirs=more)
    assert [item.is_taken for item in load_state(joined).inbox] == [False, False]


def test_a_release_takes_no_other_claim_away(wire: str, base: bytes) -> None:
    """A worker has lost its lease, another one has claimed the message, and the first one releases it."""
    model = chat(wire)
    plain: dict[str, Any] = {"codec": PLAIN, "binding": None}
    own = rainy(wire, base)
    first = claim_waiting(own, "c1", **plain)
    mine = dump_state(released(load_state(first)))
    second = claim_waiting(model.append_to_state(first, event("Ada won.")), "c2", **plain)
    renamed = update_state(first, title="Rain")
    more = model.append_to_state(model.append_to_state(first, event("Ada won.")), event("Bob won."))

    claims = {
        name: [item.claim for item in load_state(rebase_state(mine, base=first, theirs=theirs)).inbox]
        for name, theirs in (("second", second), ("renamed", renamed), ("more", more))
    }

    assert claims == {"second": ["c2", ""], "renamed": [""], "more": ["", "", ""]}
    assert holds_state(mine, mine, base=first)
    for holds in (first, renamed, more):
        assert not holds_state(holds, mine, base=first)
    assert holds_state(model.append_to_state(mine, event("Bob won.")), mine, base=first)


@pytest.mark.parametrize("is_cut", [False, True], ids=["live", "cut"])
@pytest.mark.parametrize("event_id", [None, "rain"])
def test_a_message_that_was_answered_was_not_withdrawn(
    wire: str, base: bytes, event_id: str | None, is_cut: bool
) -> None:
    """Whoever lost the answer to a withdrawal must not take for it that a turn has the message."""
    plain = {"codec": PLAIN, "binding": None}
    for began in (b"", base):
        waits = rainy(wire, began, event_id)
        (waiting,) = load_state(waits).inbox
        mine = withdraw_message(waits, waiting.id, **plain)
        claimed = claim_waiting(waits, "c1", **plain)
        model = chat(wire, "Noted.", "And noted.", "Once more.")
        answered = model.resume(claimed).state
        later = model.chat_with_state(answered, user="More?").state
        behind = model.chat_with_state(mine, user="More?").state
        if is_cut:
            middle = Compactor(MessageLimit(1), MiddleOut(first=1, last=1, note=""))
            later = model.compact_state(later, middle).state
        if began:
            assert ("It rains." in said(later)) is not is_cut

        for holds in (mine, behind):
            assert holds_state(holds, mine, base=waits)
        for holds in (waits, claimed, answered):
            assert not holds_state(holds, mine, base=waits)
        if event_id or not is_cut:  # after a cut only the id of an event tells
            assert not holds_state(later, mine, base=waits)


def test_a_message_that_was_saved_is_found_though_others_went_on_with_the_turn(wire: str) -> None:
    """It waited beside a call; then others answered the call, and added more. No save names mine."""
    model = chat(wire, Calls([("pay", {})]), "Paid.", "Paid.", tools=[Tool("pay", "Pay.", {}, external=True)])
    base = model.chat_with_state(b"", user="Pay.").state
    answer = {call.id: ToolReturn("paid") for call in pending_calls(base)}
    mine = model.append_to_state(base, user("And then?"))
    own = model.append_to_state(model.resume(mine, answer).state, event("It rains."))
    others = model.append_to_state(model.resume(base, answer).state, event("It rains."))

    assert holds_state(own, mine, base=base)
    assert not holds_state(others, mine, base=base)
    assert said(own).count("And then?") == 1


@pytest.mark.parametrize("now", ["unclaimed", "released", "claimed anew"])
def test_a_turn_behind_another_one_takes_the_messages_that_it_has_answered(
    wire: str, base: bytes, now: str
) -> None:
    """Whichever claim they have by now: the next request has them once."""
    plain: dict[str, Any] = {"codec": PLAIN, "binding": None}
    waits = rainy(wire, base)
    claimed = waits if now == "unclaimed" else claim_waiting(waits, "c1", **plain)
    mine = chat(wire, "Noted.").chat_with_state(claimed, user="And?").state
    theirs = dump_state(released(load_state(claimed)))
    if now == "claimed anew":
        theirs = claim_waiting(theirs, "c2", **plain)
    theirs = rewind_state(theirs)

    joined = rebase_state(mine, base=claimed, theirs=theirs, concurrent_turns=True)

    assert said(joined).count("It rains.") == 1
    assert load_state(joined).inbox == ()
    check(wire, joined)


def test_a_turn_behind_another_one_releases_what_it_left(wire: str, base: bytes) -> None:
    """Its provider refused the message: it waits, and can be withdrawn."""
    plain: dict[str, Any] = {"codec": PLAIN, "binding": None}
    claimed = claim_waiting(rainy(wire, base), "c1", **plain)
    (kept,) = load_state(claimed).inbox
    answered = load_state(chat(wire, "Noted.").chat_with_state(base, user="And?").state)
    meta = msgspec.structs.replace(answered.meta, rev=answered.meta.rev + 2)
    mine = dump_state(replace(answered, inbox=(kept.claimed(""),), meta=meta))

    joined = rebase_state(mine, base=claimed, theirs=rewind_state(claimed), concurrent_turns=True)

    assert [item.is_taken for item in load_state(joined).inbox] == [False]
    assert withdraw_message(joined, "e1", **plain) != joined
    check(wire, joined)
