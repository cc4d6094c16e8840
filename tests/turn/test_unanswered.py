"""A message whose turn failed, and that is delivered again behind a newer message: it gets its answer."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ProviderRejectedError,
    TurnConflictError,
    TurnError,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.open_turn.turn_ids import TURN_IDS_FACT, UNANSWERED, given_up
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.records import Meta, RingRow
from goaitools_py.states import read_history, rebase_state, rewind_state
from goaitools_py.testing import Calls, Raw, ScriptedBackend

from ._desk import Desk, codes, pay
from ._reading import results, users

DOWN = BackendError("down", kind="unavailable")
POISON = BackendError("no", status=400, headers={"content-type": "application/json"}, body=b'{"error":{}}')
CUT = Compactor(MessageLimit(2), KeepRecentTurns(1))
SAID = 'Refund "my" 5 euros.\nNow!'
QUOTED = "Refund my 5 euros Now"


class Failed:
    """A turn that ran a tool, and then its provider was down; and a turn of a newer message behind it."""

    def __init__(self, face: Any, wire: str, *then: Any) -> None:
        self.desk = Desk(face, wire, requires_approval=False)
        self.desk.script([pay(5)], DOWN)
        with pytest.raises(TurnError) as caught:
            self.desk.chat().chat(user=SAID, turn_id="m1")
        self.state = caught.value.state
        self.desk.script(*then or ["Welcome."])
        self.later = self.say(self.state, "Thanks.", "m2") if not then else None

    def say(self, state: bytes, said: str, turn_id: str | None, **fields: Any) -> Any:
        return self.desk.chat().chat_with_state(state, user=said, turn_id=turn_id, **fields)

    def fails(self, state: bytes, said: str, turn_id: str | None) -> bytes:
        with pytest.raises(TurnError) as caught:
            self.say(state, said, turn_id)
        return bytes(caught.value.state)

    def told(self, number: int = -1) -> int:
        """How many reminders a request had."""
        return self.desk.sent(number).count("was delivered once more")


@pytest.fixture
def failed(face: Any, wire: str) -> Failed:
    return Failed(face, wire)


def test_it_is_answered_in_a_turn_of_its_own(failed: Failed, run: Any) -> None:
    """No tool runs again, the message is there once, and a reminder names it by its words alone."""
    desk = failed.desk
    desk.script("Refunded.")

    result = run(desk.chat(), failed.later.state, user=SAID, turn_id="m1")

    assert (result.text, result.duplicate, result.status) == ("Refunded.", False, "complete")
    assert (desk.effects, results(result.state)) == (["pay 5"], ["paid 5"])
    assert users(result.state)[:2] == [SAID, "Thanks."]
    assert failed.told() == 1
    (reminder,) = (m for m in read_history(result.state).all_messages() if m.is_event)
    assert f'words "{QUOTED}" has no answer' in reminder.text.replace("\\", "")
    desk.check(result.state)


def test_it_is_answered_once(failed: Failed) -> None:
    """From then on it is a finished turn like others; so is the newer one."""
    desk = failed.desk
    desk.script("Refunded.", "Good night.")
    done = failed.say(failed.later.state, SAID, "m1")
    night = failed.say(done.state, "Good night.", "m3")
    asked = desk.asked

    for state in (done.state, night.state):
        for said, turn_id, text in ((SAID, "m1", "Refunded."), ("Thanks.", "m2", "Welcome.")):
            again = failed.say(state, said, turn_id)
            assert (again.text, again.duplicate, again.state) == (text, True, state)
    assert desk.asked == asked


def test_it_has_the_key_of_its_first_try(failed: Failed) -> None:
    """A model that calls the tool all the same is told by the key that it is the same call."""
    failed.desk.script([pay(5)], "Refunded.")

    failed.say(failed.later.state, SAID, "m1")

    assert failed.desk.keys[0] == failed.desk.keys[1]


def test_other_words_under_its_id_are_a_conflict(failed: Failed) -> None:
    """As under any id that was used."""
    with pytest.raises(TurnConflictError):
        failed.say(failed.later.state, "Pay 6.", "m1")


def test_a_reminder_that_fails_is_not_given_twice(failed: Failed) -> None:
    """The next delivery goes on with the one that waits."""
    desk = failed.desk
    desk.script(DOWN, DOWN, "Refunded.")
    state = failed.fails(failed.later.state, SAID, "m1")
    state = failed.fails(state, SAID, "m1")

    result = failed.say(state, SAID, "m1")

    assert (result.text, failed.told()) == ("Refunded.", 1)


def test_a_reminder_that_is_refused_is_given_again(failed: Failed) -> None:
    """The provider took nothing in, so that the turn is as unanswered as before."""
    failed.desk.script(POISON, "Refunded.")
    with pytest.raises(ProviderRejectedError) as caught:
        failed.say(failed.later.state, SAID, "m1")

    result = failed.say(caught.value.state, SAID, "m1")

    assert (result.text, result.duplicate, failed.told()) == ("Refunded.", False, 1)
    assert users(result.state)[:2] == [SAID, "Thanks."]


def test_a_newer_turn_that_failed_too_is_gone_on_with(face: Any, wire: str) -> None:
    """One reply for both, and both know it: before the provider took the newer message, and after."""
    for steps in ([DOWN], [[pay(6)], DOWN]):
        failed = Failed(face, wire, *steps)
        state = failed.fails(failed.state, "Thanks.", "m2")
        failed.desk.script("To both.")

        result = failed.say(state, SAID, "m1")

        assert (result.text, result.duplicate, codes(result), failed.told()) == ("To both.", False, [], 1)
        assert [one for one in users(result.state) if one in (SAID, "Thanks.")] == [SAID, "Thanks."]
        for said, turn_id in ((SAID, "m1"), ("Thanks.", "m2")):
            again = failed.say(result.state, said, turn_id)
            assert (again.text, again.duplicate) == ("To both.", True)
        assert failed.desk.effects == ["pay 5", "pay 6"][: len(steps)]


def test_a_newer_turn_that_waits_is_not_disturbed(face: Any, wire: str) -> None:
    """The reminder waits with it for the answer, and the reply is one to both."""
    failed = Failed(face, wire, [pay(6)])
    failed.desk.pay_options["requires_approval"] = True
    waiting = failed.say(failed.state, "Pay six.", "m2")
    assert waiting.status == "awaiting_tools"

    still = failed.say(waiting.state, SAID, "m1")

    assert (still.status, still.pending) == ("awaiting_tools", waiting.pending)
    failed.desk.script("To both.")
    done = failed.desk.chat().resume(still.state, {still.pending[0].id: Approve()})
    assert (done.text, failed.told()) == ("To both.", 1)
    assert failed.say(done.state, SAID, "m1").text == "To both."


def test_a_cut_that_takes_its_tools_gives_the_turn_up(failed: Failed) -> None:
    """A model that no longer sees what ran would run it again: the stored end of the turn is the answer."""
    failed.desk.script("Night.")
    cut = failed.say(failed.later.state, "Good night.", "m3", compactor=CUT)
    assert users(cut.state) == ["Good night."]

    result = failed.say(cut.state, SAID, "m1")

    assert (result.text, result.duplicate, result.status) == ("", True, "truncated")
    assert (failed.desk.effects, result.state) == (["pay 5"], cut.state)


@pytest.mark.parametrize("roles", ["uat", "u"])
def test_only_a_turn_with_calls_is_given_up(roles: str) -> None:
    """A turn without any has done nothing that could happen twice, so its message is asked again."""
    record = TurnRecord(at=1, messages=1, iterations=(Iteration(roles=roles),), facts={TURN_IDS_FACT: ["id"]})
    meta = Meta(wire="openai", ring=tuple(RingRow(id, "said", UNANSWERED, "") for id in ("id", "other")))

    ring = given_up(meta, [ClosedTurn((b"{}",) * len(roles), record)]).ring

    assert [row[2] for row in ring] == ["truncated" if "t" in roles else UNANSWERED, UNANSWERED]


def test_a_message_that_was_taken_back_is_said_again(failed: Failed) -> None:
    """A rewind beyond the failed turn took it away."""
    failed.desk.script("Refunded.")

    result = failed.say(rewind_state(failed.later.state, 2), SAID, "m1")

    assert (result.text, users(result.state)) == ("Refunded.", [SAID])


def test_without_words_it_is_pointed_at(face: Any, wire: str) -> None:
    """A message of signs alone has no words to name it by."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], DOWN, "Hi.", "Here.")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat(messages=[user("?!")], turn_id="m1")
    later = desk.chat().chat_with_state(caught.value.state, user="Thanks.").state

    result = desk.chat().chat_with_state(later, messages=[user("?!")], turn_id="m1")

    assert result.text == "Here."
    assert "The message further up has no answer" in desk.sent()


@pytest.mark.parametrize("with_calls", [True, False])
def test_a_reply_that_broke_off_is_none(face: Any, wire: str, with_calls: bool) -> None:
    """Also with text of it shown, or said beside its calls: it is no answer to the message."""
    desk = Desk(face, wire, requires_approval=False)
    if with_calls:
        desk.backend.then(Calls([pay(5)], text="One moment."), DOWN)
    else:
        desk.backend.then(_broken(wire))
    with pytest.raises(TurnError) as caught:
        desk.chat().start(None, user="Pay.", turn_id="m1").result()
    desk.script("Welcome.", "Paid.")
    later = desk.chat().chat_with_state(caught.value.state, user="Thanks.").state

    result = desk.chat().chat_with_state(later, user="Pay.", turn_id="m1")

    assert (result.text, result.duplicate) == ("Paid.", False)
    assert [one for one in users(result.state) if one in ("Pay.", "Thanks.")] == ["Pay.", "Thanks."]
    assert desk.effects == ["pay 5"][:with_calls]


def test_an_answer_beside_another_turn_is_kept(failed: Failed) -> None:
    """Somebody else had a turn while the message was answered: both stand, and it is answered once."""
    failed.desk.script("Refunded.", "Good night.")
    base = failed.later.state
    mine = failed.say(base, SAID, "m1").state
    theirs = failed.say(base, "Good night.", "m3").state

    both = rebase_state(mine, base=base, theirs=theirs, concurrent_turns=True)

    again = failed.say(both, SAID, "m1")
    assert (again.text, again.duplicate, again.state) == ("Refunded.", True, both)
    failed.desk.check(both)


def _broken(wire: str) -> Any:
    """A stream whose provider goes away behind its first piece."""
    whole = ScriptedBackend("One moment, please.", wire=wire)
    shape = whole._shape
    assert shape is not None
    body = shape.reply("One moment, please.", (), reasoning="", model="m", number=1, sent=1)
    chunks = shape.as_events(body)
    return Raw(chunks[: len(chunks) // 2])
