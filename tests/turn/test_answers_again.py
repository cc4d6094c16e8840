"""An answer that is delivered again: the first one holds, and its reply is given once more."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    Approve,
    ClearToolResults,
    Compactor,
    Deny,
    GoAIToolsError,
    KeepRecentTurns,
    MessageLimit,
    NothingToResumeError,
    ProviderUnavailableError,
    TextDelta,
    Tool,
    ToolReturn,
    TurnCompleted,
    event,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.states import pending_calls, state_from_messages, state_messages

from ._desk import Desk, clerk, codes, look, pay, spends
from ._reading import users

DOWN = BackendError("down", kind="unavailable")


class Buttons:
    """A desk at which one payment waited, and was answered."""

    def __init__(self, face: Any, wire: str) -> None:
        self.desk = Desk(face, wire)

    def answered(self, answer: Any = None, *, call: Any = None, reply: Any = "Done.") -> tuple[Any, str, Any]:
        """The waiting result, the call's id, and the result of its first answer."""
        waiting = self.desk.waiting(call or pay(5))
        (pending,) = waiting.pending
        self.desk.script(reply)
        return waiting, pending.id, self.resume(waiting.state, {pending.id: answer or Approve()})

    def resume(self, state: bytes, answers: Any, **fields: Any) -> Any:
        return self.desk.chat().resume(state, answers, **fields)

    def again(self, state: bytes, answers: Any) -> Any:
        """The answers once more: no model is asked, and no tool runs."""
        asked, effects = self.desk.asked, list(self.desk.effects)
        result = self.resume(state, answers)
        assert (self.desk.asked, self.desk.effects) == (asked, effects)
        assert (result.duplicate, spends(result), result.iterations) == (True, 0, 0)
        assert result.state == state
        self.desk.check(result.state)
        return result


@pytest.fixture
def buttons(face: Any, wire: str) -> Buttons:
    return Buttons(face, wire)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (pay(5), Approve()),
        (pay(5), Deny("no")),
        (pay(5), ToolReturn("paid")),
        (clerk("?"), ToolReturn("yes")),
    ],
)
def test_the_same_answer_three_times(buttons: Buttons, call: Any, answer: Any) -> None:
    """The tool runs once, the model is asked once, and each delivery gets the reply."""
    _, id, first = buttons.answered(answer, call=call)

    for _ in range(2):
        result = buttons.again(first.state, {id: answer})

        assert (result.text, result.status, codes(result)) == ("Done.", "complete", [])
        assert result.finish_reason == first.finish_reason != ""
        assert result.total_usage == first.total_usage
    assert not first.duplicate


def test_a_listener_is_told_the_reply_once_more(buttons: Buttons) -> None:
    """Who shows the stream shows the reply; nothing starts."""
    _, id, first = buttons.answered()
    seen: list[Any] = []

    buttons.desk.chat().resume(first.state, {id: Approve()}, on_event=seen.append)

    assert [type(one) for one in seen] == [TextDelta, TurnCompleted]
    assert seen[0].text == "Done."


def test_later_turns_do_not_hide_the_reply(buttons: Buttons) -> None:
    """The answered turn's own reply, behind other turns, a failed one and events that nobody has seen."""
    _, id, first = buttons.answered()
    buttons.desk.script("Welcome.", DOWN)
    later = buttons.desk.chat().chat_with_state(first.state, user="Thanks.").state
    with pytest.raises(ProviderUnavailableError) as caught:
        buttons.desk.chat().chat_with_state(later, user="Hello?")
    states = (later, caught.value.state, buttons.desk.chat().append_to_state(later, event("It rains.")))

    for state in states:
        assert buttons.again(state, {id: Approve()}).text == "Done."


def test_another_answer_is_ignored_and_told(buttons: Buttons) -> None:
    """The first answer holds, whatever comes later; a warning says that there was another one."""
    _, approved, first = buttons.answered(Approve())
    _, denied, second = buttons.answered(Deny("no"))
    _, returned, third = buttons.answered(ToolReturn("paid"))

    for state, id, answer in (
        (first.state, approved, Deny("wait")),
        (first.state, approved, ToolReturn("paid 6")),
        (second.state, denied, Approve()),
        (second.state, denied, ToolReturn("paid")),
        (third.state, returned, ToolReturn("paid", is_error=True)),
        (third.state, returned, Deny()),
    ):
        result = buttons.again(state, {id: answer})

        assert (result.text, codes(result)) == ("Done.", ["answer_ignored"])
    assert buttons.again(first.state, {approved: ToolReturn("paid 5")}).warnings == ()


def test_an_answer_among_new_ones_goes_on(buttons: Buttons) -> None:
    """What is new is taken, what is old is left out: the whole form may be sent each time."""
    waiting = buttons.desk.waiting(pay(5), pay(6))
    one, two = (call.id for call in waiting.pending)
    first = buttons.resume(waiting.state, {one: Approve()})
    assert [call.id for call in first.pending] == [two]
    buttons.desk.script("Both paid.")

    both = buttons.resume(first.state, {one: Deny("late"), two: Approve()})

    assert (both.text, both.duplicate, codes(both)) == ("Both paid.", False, ["answer_ignored"])
    assert buttons.desk.effects == ["pay 5", "pay 6"]
    assert buttons.again(both.state, {two: Approve(), one: Approve()}).text == "Both paid."


def test_an_answer_to_a_turn_that_still_waits(buttons: Buttons) -> None:
    """Nothing goes on: the result names what waits, in the same exchange and in the next one."""
    waiting = buttons.desk.waiting(pay(5), pay(6))
    one, two = (call.id for call in waiting.pending)
    first = buttons.resume(waiting.state, {one: Approve()})
    buttons.desk.script([pay(7)])
    second = buttons.resume(first.state, {two: Approve()})
    (three,) = (call.id for call in second.pending)

    for state, answers, left in (
        (first.state, {one: Approve()}, two),
        (second.state, {one: Approve(), two: Approve()}, three),
    ):
        result = buttons.again(state, answers)

        assert result.status == "awaiting_tools"
        assert [call.id for call in result.pending] == [left]


def test_an_answer_to_a_turn_that_failed_goes_on(buttons: Buttons) -> None:
    """The first delivery ran the tool, and its model was down: the second one asks it."""
    waiting = buttons.desk.waiting(pay(5))
    (id,) = (call.id for call in waiting.pending)
    buttons.desk.script(DOWN)
    with pytest.raises(ProviderUnavailableError) as caught:
        buttons.resume(waiting.state, {id: Approve()})
    buttons.desk.script("Paid.")

    result = buttons.resume(caught.value.state, {id: Approve()})

    assert (result.text, result.duplicate, codes(result)) == ("Paid.", False, [])
    assert buttons.desk.effects == ["pay 5"]


def test_an_answer_after_the_next_message(buttons: Buttons) -> None:
    """The message denied the call. The model has read that and answered: that is the reply."""
    waiting = buttons.desk.waiting(pay(5))
    (id,) = (call.id for call in waiting.pending)
    buttons.desk.script("Never mind.")
    state = buttons.desk.chat().chat_with_state(waiting.state, user="Stop!", on_pending="deny").state

    result = buttons.again(state, {id: Approve()})

    assert (result.text, codes(result)) == ("Never mind.", ["answer_ignored"])
    assert buttons.desk.effects == []
    assert buttons.again(state, {id: Deny()}).warnings == ()


def test_an_answer_after_a_message_that_failed(buttons: Buttons) -> None:
    """Nobody has answered yet: the unfinished turn goes on, and its reply is the answer."""
    waiting = buttons.desk.waiting(pay(5))
    (id,) = (call.id for call in waiting.pending)
    buttons.desk.script(DOWN)
    with pytest.raises(ProviderUnavailableError) as caught:
        buttons.desk.chat().chat_with_state(waiting.state, user="Stop!", on_pending="deny")
    buttons.desk.script("Stopped.")

    result = buttons.resume(caught.value.state, {id: Approve()})

    assert (result.text, result.duplicate, codes(result)) == ("Stopped.", False, ["answer_ignored"])
    assert (users(result.state), buttons.desk.effects) == (["Go on.", "Stop!"], [])


def test_an_imported_history_knows_its_calls(buttons: Buttons) -> None:
    """The calls are found in the messages, not in a list beside them."""
    _, id, first = buttons.answered()
    imported = state_from_messages(buttons.desk.wire, state_messages(first.state))

    assert buttons.again(imported, {id: Approve()}).text == "Done."


def test_an_unknown_call_is_a_mistake(buttons: Buttons) -> None:
    """An id that is nowhere is refused, alone and beside one that was answered."""
    _, id, first = buttons.answered()
    asked = buttons.desk.asked
    waiting = buttons.desk.waiting(pay(6), state=first.state)

    for state in (first.state, waiting.state):
        for answers in ({"nowhere": Approve()}, {"nowhere": Approve(), id: Approve()}):
            with pytest.raises(ValueError, match=r"nothing to resume|no call 'nowhere'"):
                buttons.resume(state, answers)
    with pytest.raises(TypeError, match="an answer must be"):
        buttons.resume(first.state, {id: "yes"})
    assert buttons.desk.asked == asked + 1


def test_nothing_to_resume_has_an_error_of_its_own(buttons: Buttons) -> None:
    """Of this package, and a ValueError as it was. Nothing was called."""
    _, _, first = buttons.answered()
    asked = buttons.desk.asked

    for state, answers in ((first.state, None), (first.state, {}), (None, None), (b"", {"x": Approve()})):
        with pytest.raises(NothingToResumeError, match="nothing to resume") as caught:
            buttons.resume(state, answers)

        assert isinstance(caught.value, GoAIToolsError)
        assert isinstance(caught.value, ValueError)
    assert buttons.desk.asked == asked


def test_a_turn_that_a_cut_took_is_forgotten(buttons: Buttons) -> None:
    """Its calls are unknown then: the answer is a mistake, and nothing runs."""
    _, id, first = buttons.answered()
    buttons.desk.script("Welcome.")
    cut = Compactor(MessageLimit(1), KeepRecentTurns(1))
    state = buttons.desk.chat().chat_with_state(first.state, user="Thanks.", compactor=cut).state

    with pytest.raises(ValueError, match="nothing to resume"):
        buttons.resume(state, {id: Approve()})
    assert buttons.desk.effects == ["pay 5"]


def test_a_look_needs_no_answer(buttons: Buttons) -> None:
    """A call that never waited has its result as well: an answer to it changes nothing."""
    buttons.desk.script([look("hall")], "Quiet.")
    state = buttons.desk.chat().chat(user="Look.").state
    (id,) = (
        call["id"] if "id" in call else call["call_id"]
        for call in calls_in(buttons.desk.wire, state_messages(state))
    )

    assert buttons.again(state, {id: ToolReturn("burning")}).text == "Quiet."


def calls_in(wire: str, messages: list[Any]) -> list[Any]:
    """The calls of a history, in the wire's own JSON."""
    if wire == "openai":
        return [call for message in messages for call in message.get("tool_calls") or ()]
    if wire == "openai-responses":
        return [{"call_id": item["call_id"]} for item in messages if item.get("type") == "function_call"]
    return [
        block
        for message in messages
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block.get("type") == "tool_use"
    ]


@pytest.mark.parametrize("answer", [Approve(), ToolReturn("paid 5"), Deny("no")])
def test_an_answer_to_a_call_in_doubt(buttons: Buttons, answer: Any) -> None:
    """It is one like others: given again, in the failed turn and after its end, it changes nothing."""
    desk = buttons.desk
    desk.pay_options["requires_approval"] = False
    desk.script([pay(5)])
    states: list[bytes] = []
    with pytest.raises(Died):
        desk.chat(tools=[dying(desk.tools()[0])], on_checkpoint=states.append).chat(user="Pay.")
    (call,) = pending_calls(states[-1])
    assert call.reason == "in_doubt"
    desk.script(DOWN)
    with pytest.raises(ProviderUnavailableError) as caught:
        buttons.resume(states[-1], {call.id: answer})
    effects = list(desk.effects)
    desk.script("Done.")

    done = buttons.resume(caught.value.state, {call.id: answer})

    assert (done.text, done.duplicate, codes(done), desk.effects) == ("Done.", False, [], effects)
    assert buttons.again(done.state, {call.id: answer}).text == "Done."


class Died(BaseException):
    """The process ends here."""


def dying(tool: Any) -> Any:
    """A tool of the same name in whose midst the process ends."""

    def run(**_: Any) -> Any:
        raise Died

    return Tool(name=tool.name, description="Pay.", parameters={"type": "object"}, run=run)


@pytest.mark.parametrize("value", ["long " * 1_000, {"long": "x" * 5_000}])
def test_an_answer_that_was_cut_is_no_other_answer(face: Any, wire: str, value: Any) -> None:
    """The same answer again is the same, whatever limit its text was stored under."""
    desk = Desk(face, wire)
    waiting = desk.waiting(clerk("?"))
    answers = {waiting.pending[0].id: ToolReturn(value)}
    desk.script("Done.")
    chat = desk.chat(max_tool_result_bytes=512)
    first = chat.resume(waiting.state, answers)

    again = chat.resume(first.state, answers)

    assert (again.text, again.duplicate, codes(again)) == ("Done.", True, [])


def test_an_answer_that_a_compaction_cleared_is_no_other_answer(face: Any, wire: str) -> None:
    """What the first answer said is not there any more, so nothing can be said of the second."""
    desk = Desk(face, wire)
    waiting = desk.waiting(clerk("?"))
    answers = {waiting.pending[0].id: ToolReturn("long " * 1_000)}
    desk.script("Done.", "Welcome.")
    chat = desk.chat(compactor=Compactor(MessageLimit(3), ClearToolResults(keep=0)))
    first = chat.resume(waiting.state, answers)
    later = chat.chat_with_state(first.state, user="Thanks.")
    assert "long long" not in str(state_messages(later.state))

    again = chat.resume(later.state, answers)

    assert (again.text, again.duplicate, codes(again)) == ("Done.", True, [])
