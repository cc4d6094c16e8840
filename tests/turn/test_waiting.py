"""Calls that wait for somebody outside: what waits, what an answer does, and what a new message does."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    BudgetExceededError,
    CheckpointError,
    CheckpointReady,
    Compactor,
    DeadlineExceededError,
    Deny,
    Image,
    KeepRecentTurns,
    LimitExceededError,
    Limits,
    MessageLimit,
    ModelReplied,
    ModelSettings,
    ProviderTool,
    ProviderUnavailableError,
    ToolFinished,
    ToolPendingError,
    ToolReturn,
    ToolStarted,
    TurnCompleted,
    event,
    tool,
    user,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, pending_calls, read_history, state_messages
from goaitools_py.testing import check_history
from goaitools_py.tools import MAX_RESULT_BYTES

from ._desk import Desk, clerk, codes, flags, look, pay, spends
from ._reading import CHAT, RESPONSES, call_ids, history_sent, result_ids, results, roles, users

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def ids(result: Any) -> list[str]:
    """The ids of the calls that wait."""
    return [call.id for call in result.pending]


# ------------------------------------------------------------------------------------------ what waits


def test_a_call_that_needs_an_approval_waits(face: Any, wire: str, run: Any) -> None:
    """The turn ends early: nothing ran, the state waits, and the result says for what."""
    desk = Desk(face, wire)
    desk.script([pay(5)])

    result = run(desk.chat(), user="Pay five.")

    (call,) = result.pending
    assert result.status == "awaiting_tools"
    assert (call.name, call.parsed, call.reason, call.kind) == ("pay", {"amount": 5}, "approval", "function")
    assert pending_calls(result.state) == result.pending
    assert (desk.effects, desk.asked, spends(result)) == ([], 1, 1)
    assert (result.iterations, result.tool_log, result.warnings) == (1, (), ())
    info = inspect_state(result.state)
    assert (info.status, info.open_calls) == ("awaiting_tools", 1)
    desk.check(result.state)


def test_what_was_said_beside_a_waiting_call_is_the_text(face: Any, wire: str, run: Any) -> None:
    """The text and the finish word of the reply that waits are in the result, also when it waits on."""
    desk = Desk(face, wire)

    result = desk.waiting(pay(5), clerk("May I?"), text="I would like to pay.")
    again = desk.chat().resume(result.state, {ids(result)[1]: ToolReturn("yes")})

    assert (result.text, again.text) == ("I would like to pay.",) * 2
    assert result.finish_reason == again.finish_reason != ""


@pytest.mark.parametrize(
    ("amount", "waits"), [(5, False), (500, True), (13, True)], ids=["small", "large", "raises"]
)
def test_a_function_says_which_calls_wait(face: Any, wire: str, amount: int, waits: bool) -> None:
    """It is asked with checked arguments; one that raises cannot say that the call is harmless."""
    seen: list[Any] = []

    def is_much(arguments: dict[str, Any]) -> bool:
        seen.append(arguments)
        if arguments["amount"] == 13:
            raise RuntimeError("unlucky")
        return bool(arguments["amount"] > 100)

    desk = Desk(face, wire, requires_approval=is_much)
    desk.script([pay(amount)], "Done.")

    result = desk.chat().chat(user="Pay.")

    assert seen == [{"amount": amount}]
    assert (result.status == "awaiting_tools") is waits
    assert desk.effects == ([] if waits else [f"pay {amount}"])
    assert desk.asked == (1 if waits else 2)


def test_arguments_that_do_not_fit_wait_for_nobody(face: Any, wire: str) -> None:
    """Nobody is asked about a call that could not run: the model is told what is wrong with it."""
    seen: list[Any] = []

    def note(arguments: dict[str, Any]) -> bool:
        seen.append(arguments)
        return True

    desk = Desk(face, wire, requires_approval=note)
    desk.script([pay("a lot"), ("clerk", {"why": 1})], "Sorry.")

    result = desk.chat().chat(user="Pay.")

    assert (result.status, seen, desk.effects) == ("complete", [], [])
    assert [record.flag for record in result.tool_log] == ["error", "error"]
    desk.check(result.state)


def test_other_calls_run_at_once_and_never_again(face: Any, wire: str, run: Any) -> None:
    """What waits for nobody does not wait; its result is kept, and each resume tells its own log."""
    desk = Desk(face, wire)
    desk.script([look("a"), pay(5), look("b"), clerk("Why?")], "All done.")

    first = run(desk.chat(), user="Everything.")
    assert desk.effects == ["look a", "look b"]
    second = desk.chat().resume(first.state, {ids(first)[0]: Approve()})
    third = desk.chat().resume(second.state, {ids(second)[0]: ToolReturn("because")})

    assert desk.effects == ["look a", "look b", "pay 5"]
    assert [call.name for call in first.pending] == ["pay", "clerk"]
    assert [call.name for call in second.pending] == ["clerk"]
    assert [record.call.name for record in first.tool_log] == ["look", "look"]
    assert [action.text for action in first.actions] == ["looked at a", "looked at b"]
    assert [action.text for action in second.actions] == ["paid 5"]
    assert [record.call.name for record in third.tool_log] == ["look", "pay", "look", "clerk"]
    assert (third.status, third.text, third.pending, third.actions) == ("complete", "All done.", (), ())
    assert results(third.state) == ["a is quiet", "paid 5", "b is quiet", "because"]
    assert [spends(result) for result in (first, second, third)] == [1, 0, 1]
    assert [result.iterations for result in (first, second, third)] == [1, 0, 1]
    assert third.total_usage.requests == desk.asked == 2
    desk.check(first.state, second.state, third.state)


def test_an_external_tool_is_never_run(face: Any, wire: str, run: Any) -> None:
    """Its call waits for a result from outside, and says so."""
    desk = Desk(face, wire)
    desk.script([clerk("Why?")], "Because.")

    result = run(desk.chat(), user="Ask.")
    done = desk.chat().resume(result.state, {ids(result)[0]: ToolReturn({"answer": 42})})

    assert [call.reason for call in result.pending] == ["external"]
    assert results(done.state) == ['{"answer":42}']
    assert [(r.flag, r.started) for r in done.tool_log] == [("ok", None)]
    assert flags(done.state) == {}


# --------------------------------------------------------------------------------------------- answers


def test_an_approved_call_runs_as_the_model_wrote_it(face: Any, wire: str) -> None:
    """It runs once, the model reads the result, and the turn ends as any other."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    desk.script("Paid.")

    result = desk.chat().resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert (result.status, result.text, result.pending) == ("complete", "Paid.", ())
    assert desk.effects == ["pay 5"]
    assert [(r.call.name, r.result, r.flag) for r in result.tool_log] == [("pay", "paid 5", "ok")]
    assert roles(result.state) == ["user", "assistant", "tool", "assistant"]
    assert call_ids(result.state) == result_ids(result.state) == ids(waiting)
    assert inspect_state(result.state).status == "complete"
    desk.check(result.state)


@pytest.mark.parametrize("arguments", [{"amount": 4}, '{"amount": 4}'], ids=["mapping", "text"])
def test_a_call_is_approved_with_other_arguments(face: Any, wire: str, arguments: Any) -> None:
    """The tool gets the given ones, the log has them too; what the model wrote stays in the history."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    before = state_messages(waiting.state)[:2]
    desk.script("Paid.")

    result = desk.chat().resume(waiting.state, {ids(waiting)[0]: Approve(arguments)})

    assert desk.effects == ["pay 4"]
    assert [(r.call.parsed, r.result) for r in result.tool_log] == [({"amount": 4}, "paid 4")]
    assert state_messages(result.state)[:2] == before
    desk.check(result.state)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"amount": "very secret"},
        {"amount": b"secret"},
        {"amount": float("nan")},
        "very secret",
        "[]",
        "",
        [5],
    ],
    ids=["none", "of a wrong type", "no JSON", "nan", "no JSON text", "no object", "empty", "list"],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    face: Any, wire: str, arguments: Any
) -> None:
    """A mistake in one answer holds all of them up; the text does not repeat what was given."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), pay(6))
    good, bad = ids(waiting)

    with pytest.raises(ValueError, match="pay") as caught:
        desk.chat().resume(waiting.state, {good: Approve(), bad: Approve(arguments)})

    assert "secret" not in str(caught.value)
    assert bad in str(caught.value)
    assert (desk.effects, desk.asked) == ([], 1)


@pytest.mark.parametrize("reason", ["", "It is too much."], ids=["no reason", "reason"])
def test_a_denied_call_does_not_run(face: Any, wire: str, reason: str) -> None:
    """The model reads that it was denied, and why; the result is flagged."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), clerk("May I?"))
    desk.script("I see.")

    result = desk.chat().resume(waiting.state, dict.fromkeys(ids(waiting), Deny(reason)))

    told = f"This tool call was denied: {reason}" if reason else "This tool call was denied."
    assert desk.effects == []
    assert results(result.state) == [told, told]
    assert told in desk.sent()
    assert flags(result.state) == dict.fromkeys(ids(waiting), "denied")
    assert [(r.flag, r.synthetic) for r in result.tool_log] == [("denied", True)] * 2
    desk.check(result.state)


def test_a_reason_is_bounded_like_any_result(face: Any, wire: str) -> None:
    """It stays in the history: what is too long is cut, and what UTF-8 cannot write is replaced."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    desk.script("I see.")

    result = desk.chat().resume(waiting.state, {ids(waiting)[0]: Deny("\ud800" + "no " * 200_000)})

    (told,) = results(result.state)
    assert told.startswith("This tool call was denied: \N{REPLACEMENT CHARACTER}no no")
    assert told.endswith("characters removed]")
    assert len(told) <= MAX_RESULT_BYTES


def test_a_result_is_given_from_outside(face: Any, wire: str) -> None:
    """A value, an error, or parts of any kind, for a call of either kind; nothing is run."""
    desk = Desk(face, wire)
    waiting = desk.waiting(clerk("a"), pay(5), clerk("b"))
    desk.script("I see.")
    parts = ["This is it:", Image(data=PNG, media_type="image/png")]

    result = desk.chat().resume(
        waiting.state,
        dict(
            zip(
                ids(waiting),
                [ToolReturn({"n": 1}), ToolReturn("no money", is_error=True), ToolReturn(parts)],
                strict=True,
            )
        ),
    )

    assert desk.effects == []
    *told, last = results(result.state)
    assert told == ['{"n":1}', "no money"]
    assert last.startswith("This is it:")
    assert flags(result.state) == {ids(waiting)[1]: "error"}
    assert ("iVBORw0KGgo" in desk.sent()) is (wire != CHAT)  # its results hold text only
    desk.check(result.state)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_answers_may_come_one_by_one_in_any_order(face: Any, wire: str, order: tuple[int, ...]) -> None:
    """The model is asked once, after the last answer; results stand in call order."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), clerk("Why?"), pay(3))
    answers = dict(zip(ids(waiting), [Approve(), ToolReturn("because"), Deny()], strict=True))
    desk.script("Done.")

    result = waiting
    for number in order:
        assert result.status == "awaiting_tools"
        assert desk.asked == 1
        call = ids(waiting)[number]
        result = desk.chat().resume(result.state, {call: answers[call]})

    assert (result.status, desk.asked, desk.effects) == ("complete", 2, ["pay 1"])
    assert results(result.state) == ["paid 1", "because", "This tool call was denied."]
    desk.check(result.state)


def test_all_answers_at_once_run_in_call_order(face: Any, wire: str) -> None:
    """Whatever order the answers have."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), pay(2), pay(3))
    desk.script("Done.")

    result = desk.chat().resume(waiting.state, {id: Approve() for id in reversed(ids(waiting))})

    assert desk.effects == ["pay 1", "pay 2", "pay 3"]
    assert results(result.state) == ["paid 1", "paid 2", "paid 3"]


def test_without_an_answer_it_waits_on(face: Any, wire: str) -> None:
    """A resume with nothing to say calls nobody and gives back what it was given to wait for."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1))

    for answers in (None, dict[str, Any]()):
        result = desk.chat().resume(waiting.state, answers)

        assert (result.status, result.pending) == ("awaiting_tools", waiting.pending)
        assert (desk.asked, desk.effects, spends(result)) == (1, [], 0)


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"call_nobody": Approve()}, ValueError, "call_nobody"),
        ({"DONE": Approve()}, ValueError, "waits"),
        ({"WAITS": True}, TypeError, "bool"),
        ({"WAITS": "yes"}, TypeError, "str"),
        ({"WAITS": Approve}, TypeError, r"must be Approve\(\)"),
        ({"WAITS": None}, TypeError, "NoneType"),
        ([Approve()], TypeError, "dict"),
        (Approve(), TypeError, "dict"),
        ({"CLERK": Approve()}, ValueError, "external"),
        ({"CLERK": Approve({"question": "?"})}, ValueError, "external"),
        ({"WAITS": Approve({"amout": 5})}, ValueError, r"(?s)not fit .* 'pay'.*- amount: is required"),
    ],
    ids=[
        "unknown id",
        "done",
        "bool",
        "text",
        "class",
        "None",
        "list",
        "no dict",
        "external",
        "external, args",
        "other args",
    ],
)
def test_an_answer_that_fits_no_call_is_refused(
    face: Any, wire: str, answer: Any, error: type[Exception], words: str
) -> None:
    """The caller's mistake is told before anything runs, and the state still waits."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5), clerk("Why?"))
    names = {"DONE": call_ids(waiting.state)[0], "WAITS": ids(waiting)[0], "CLERK": ids(waiting)[1]}
    if isinstance(answer, dict):
        answer = {names.get(id, id): value for id, value in answer.items()}

    with pytest.raises(error, match=words):
        desk.chat().resume(waiting.state, answer)

    assert (desk.asked, desk.effects) == (1, ["look a"])
    assert pending_calls(waiting.state) == waiting.pending


def test_an_approval_needs_the_tool(face: Any, wire: str) -> None:
    """Without the tool a call cannot be approved; it can be denied, or answered from outside."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    (id,) = ids(waiting)
    desk.script("Done.")

    with pytest.raises(ValueError, match="tools="):
        desk.chat(tools=[]).resume(waiting.state, {id: Approve()})
    assert desk.asked == 1
    result = desk.chat(tools=[]).resume(waiting.state, {id: ToolReturn("paid by hand")})

    assert (result.status, results(result.state)) == ("complete", ["paid by hand"])


def test_a_complete_state_takes_no_answers(face: Any, wire: str) -> None:
    """After the last answer the turn is over; other answers are a mistake that runs nothing."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    desk.script("Done.")
    answers = {ids(waiting)[0]: Approve()}
    done = desk.chat().resume(waiting.state, answers)

    with pytest.raises(ValueError, match="nothing to resume"):
        desk.chat().resume(done.state, {"another": Approve()})

    assert (desk.effects, desk.asked) == (["pay 5"], 2)


def test_a_turn_may_wait_several_times(face: Any, wire: str) -> None:
    """Each reply may bring calls that wait; earlier results stay, and ids name the calls of the last one."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1))
    desk.script([look("a"), pay(2)], [pay(3), clerk("Enough?")], "Done.")

    second = desk.chat().resume(waiting.state, {ids(waiting)[0]: Approve()})
    assert [call.parsed for call in second.pending] == [{"amount": 2}]
    with pytest.raises(ValueError, match="waits"):
        desk.chat().resume(second.state, {"another": Approve()})
    third = desk.chat().resume(second.state, {ids(second)[0]: Deny("no")})
    half = desk.chat().resume(third.state, {ids(third)[1]: ToolReturn("yes")})
    done = desk.chat().resume(half.state, {ids(half)[0]: Approve()})

    assert done.status == "complete"
    assert desk.effects == ["pay 1", "look a", "pay 3"]
    assert (desk.asked, done.total_usage.requests) == (4, 4)
    assert roles(done.state).count("assistant") == 4
    assert users(done.state) == ["Go on."]
    assert len(read_history(done.state).turns) == 1
    desk.check(waiting.state, second.state, third.state, half.state, done.state)


def test_a_turn_that_waited_ends_like_one_that_did_not(face: Any, wire: str) -> None:
    """What the model reads after an approval is what it would have read without one."""
    free, asked = Desk(face, wire, requires_approval=False), Desk(face, wire)
    for desk in (free, asked):
        desk.script([look("a"), pay(5)], "Done.")

    straight = free.chat().chat(user="Pay.")
    waiting = asked.chat().chat(user="Pay.")
    resumed = asked.chat().resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert asked.sent() == free.sent()
    assert state_messages(resumed.state) == state_messages(straight.state)
    assert resumed.total_usage == straight.total_usage


# ------------------------------------------------------------------------------------- the waiting blob


def test_a_waiting_state_is_only_bytes(face: Any, wire: str) -> None:
    """Days later another process reads it in every way there is, and answers; closed, it is valid."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5), text="One moment.")
    blob = bytes(bytearray(waiting.state))
    other = Desk(face, wire)
    other.backend = desk.backend
    other.script("Paid.")

    (call,) = pending_calls(memoryview(blob))
    history = read_history(blob)
    result = other.chat().resume(blob, {call.id: Approve()})

    assert len(history.turns) == 1
    assert results(blob) == ["a is quiet", "This tool was not run."]
    assert flags(blob) == {call.id: "not_run"}
    assert result.text == "Paid."
    assert (desk.effects, other.effects) == (["look a"], ["pay 5"])
    desk.check(blob, result.state)


def test_a_waiting_state_is_not_compacted(face: Any, wire: str, run: Any) -> None:
    """The compactor is asked again when the turn is over."""
    desk = Desk(face, wire)
    compactor = Compactor(lambda request: not request.pending_count, KeepRecentTurns(1))
    desk.script("One.", "Two.", [pay(5)], "Paid.")
    before = desk.chat().run_turns(None, ["First.", "Second."]).state

    waiting = run(desk.chat(compactor=compactor), before, user="Pay.")
    result = desk.chat(compactor=compactor).resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert (waiting.compaction, waiting.warnings) == (None, ())
    assert users(waiting.state) == ["First.", "Second.", "Pay."]
    assert result.compaction is not None
    assert users(result.state) == ["Pay."]
    desk.check(waiting.state, result.state)


def test_an_event_waits_with_a_waiting_turn(face: Any, wire: str) -> None:
    """What is appended meanwhile goes to the model with the results, behind them, exactly once."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))

    blob = desk.chat().append_to_state(waiting.state, event("The shop closes."), user("Hurry."))
    desk.script("Paid.", "Yes.")
    assert inspect_state(blob).status == "awaiting_tools"
    assert pending_calls(blob) == waiting.pending
    result = desk.chat().resume(blob, {ids(waiting)[0]: Approve()})
    after = desk.chat().chat_with_state(result.state, user="And?")

    assert roles(after.state) == [
        "user",
        "assistant",
        "tool",
        *["user"] * 2,
        "assistant",
        "user",
        "assistant",
    ]
    assert desk.sent().count("The shop closes.") == desk.sent().count("Hurry.") == 1
    desk.check(blob, result.state, after.state)


def test_a_cut_does_not_break_a_waiting_turn(face: Any, wire: str) -> None:
    """Outside a turn the closed turns may go; what waits stays as it is."""
    desk = Desk(face, wire)
    desk.script("One.", "Two.")
    before = desk.chat().run_turns(None, ["First.", "Second."]).state
    waiting = desk.waiting(look("a"), pay(5), state=before)

    report = desk.chat().compact_state(waiting.state, Compactor(MessageLimit(1), KeepRecentTurns(1)))
    desk.script("Paid.")
    result = desk.chat().resume(report.state, {ids(waiting)[0]: Approve()})

    assert report.removed_turns == 1
    assert inspect_state(report.state).status == "awaiting_tools"
    assert pending_calls(report.state) == waiting.pending
    assert users(result.state) == ["Second.", "Go on."]
    assert desk.effects == ["look a", "pay 5"]
    desk.check(report.state, result.state)


def test_no_stored_state_holds_an_approval(face: Any, wire: str) -> None:
    """An answer counts once its call starts: a checkpoint before shows what the model asked for, no more."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), pay(2))
    first, second = ids(waiting)
    desk.script("Done.")
    kept: list[bytes] = []

    desk.chat(on_checkpoint=kept.append).resume(
        waiting.state, {first: Approve({"amount": 10}), second: Approve({"amount": 20})}
    )

    assert desk.effects == ["pay 10", "pay 20"]
    pending = [[(c.id, c.reason, c.parsed["amount"]) for c in pending_calls(blob)] for blob in kept]
    assert pending == [
        [(first, "in_doubt", 10), (second, "approval", 2)],
        [(second, "approval", 2)],
        [(second, "in_doubt", 20)],
        [],
        [],
    ]


def test_every_answer_that_ends_a_call_is_kept_at_once(face: Any, wire: str) -> None:
    """The first checkpoint, and a turn that it breaks off, have all denials and results that were given."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), clerk("Who?"))
    first, second = ids(waiting)

    def keep(_: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(CheckpointError) as caught:
        desk.chat(on_checkpoint=keep).resume(waiting.state, {first: Deny(), second: ToolReturn("Ada.")})

    assert pending_calls(caught.value.state) == ()
    assert results(caught.value.state)[1] == "Ada."
    desk.check(caught.value.state)


def test_an_exit_leaves_every_answer_that_ends_a_call(face: Any, wire: str) -> None:
    """Ctrl-C at any event of a resume, its first one too: the state of the turn has what was given, and
    waits for the approval unless its call has started."""
    for stop in itertools.count():
        desk = Desk(face, wire)
        waiting = desk.waiting(pay(1), clerk("Who?"), pay(2))
        first, second, third = ids(waiting)
        desk.script("Done.", "Done after all.")
        seen = itertools.count()

        def leave(_: Any, seen: Any = seen, stop: int = stop) -> None:
            if next(seen) == stop:
                raise KeyboardInterrupt

        turn = desk.chat().inner._turn(
            waiting.state,
            None,
            {"on_event": leave},
            resume=True,
            answers={first: Deny(), second: ToolReturn("Ada."), third: Approve()},
        )
        try:
            face.run(turn.result()) if face.is_async else turn.result()
        except KeyboardInterrupt:
            blob = turn.state
        else:
            break
        left = pending_calls(blob)
        waits = {call.id: Approve() for call in left if call.reason == "approval"}
        if inspect_state(blob).status != "complete":
            blob = desk.chat().resume(blob, waits).state

        assert {call.id for call in left} <= {third}
        assert results(blob)[1] == "Ada."
        assert flags(blob)[first] == "denied"
        assert desk.effects.count("pay 2") <= 1
        desk.check(blob)
    assert stop > 6


def test_the_same_answers_work_again_after_an_exit(face: Any, wire: str) -> None:
    """Whoever has only the given state gives them once more: it has not changed."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), clerk("Who?"))
    answers = dict(zip(ids(waiting), [Approve(), ToolReturn("Ada.")], strict=True))
    desk.script("Done.")

    def leave(_: Any) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        desk.chat().resume(waiting.state, answers, on_event=leave)
    result = desk.chat().resume(waiting.state, answers)

    assert (result.status, desk.effects, desk.asked) == ("complete", ["pay 1"], 2)
    desk.check(result.state)


def test_a_spent_budget_keeps_what_was_answered(face: Any, wire: str) -> None:
    """The error's state goes on without the answers."""
    desk = Desk(face, wire)
    waiting = desk.waiting(clerk("Who?"))
    answers = {ids(waiting)[0]: ToolReturn("Ada.")}
    desk.script("Done.")

    with pytest.raises(BudgetExceededError) as caught:
        desk.chat(limits=Limits(conversation_max_tokens=1)).resume(waiting.state, answers)
    result = desk.chat().resume(caught.value.state)

    assert (result.status, results(result.state)) == ("complete", ["Ada."])


@pytest.mark.parametrize(
    ("failing", "ran"), [(0, []), (1, ["pay 10"]), (2, ["pay 10"]), (3, ["pay 10", "pay 20"])]
)
def test_an_approval_is_not_kept_behind_a_failed_checkpoint(
    face: Any, wire: str, failing: int, ran: list[str]
) -> None:
    """What was not started waits again, with the model's arguments; what ran never runs again."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), pay(2))
    answers = dict(zip(ids(waiting), [Approve({"amount": 10}), Approve({"amount": 20})], strict=True))
    seen: list[bytes] = []

    def keep(blob: bytes) -> None:
        seen.append(blob)
        if len(seen) == failing + 1:
            raise OSError("disk full")

    with pytest.raises(CheckpointError) as caught:
        desk.chat(on_checkpoint=keep).resume(waiting.state, answers)
    blob = caught.value.state
    assert desk.effects == ran
    left = pending_calls(blob)
    desk.script("Done.")
    result = desk.chat().resume(blob, {call.id: answers[call.id] for call in left})

    assert left == waiting.pending[len(ran) :]
    assert desk.effects == ["pay 10", "pay 20"]
    assert (result.status, desk.asked) == ("complete", 2)
    assert flags(result.state) == {}
    desk.check(blob, result.state)


def test_an_approval_is_not_kept_behind_a_deadline(face: Any, wire: str, clock: Any) -> None:
    """A call that was approved and could not start in time waits again, as the model wrote it."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), pay(2))
    answers = {id: Approve({"amount": 10}) for id in ids(waiting)}

    @tool(name="pay", requires_approval=True)
    def pay_slowly(amount: int) -> str:
        """Pay."""
        clock.advance(100)
        desk.effects.append(f"pay {amount}")
        return "paid"

    with pytest.raises(DeadlineExceededError) as caught:
        desk.chat(tools=[pay_slowly], timeout=50).resume(waiting.state, answers)

    assert desk.effects == ["pay 10"]
    assert pending_calls(caught.value.state) == waiting.pending[1:]
    assert desk.asked == 1


# --------------------------------------------------------------------------- a new message while it waits


def test_a_new_message_is_refused_while_calls_wait(face: Any, wire: str, run: Any) -> None:
    """The default: an error that names what waits; nobody is called, and the state is as it was."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), clerk("Why?"))
    blob = bytes(waiting.state)

    with pytest.raises(ToolPendingError, match="2 tool calls") as caught:
        run(desk.chat(), blob, user="Never mind.")
    with pytest.raises(ToolPendingError):
        run(desk.chat(), blob)

    assert caught.value.pending == waiting.pending
    assert (desk.asked, desk.effects) == (1, [])
    assert blob == waiting.state


def test_a_new_message_may_deny_what_waits(face: Any, wire: str, run: Any) -> None:
    """The waiting turn closes with denied results, and the model reads them before the new message."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5))
    desk.script("Very well.")

    result = run(desk.chat(), waiting.state, user="Never mind.", on_pending="deny")

    turns = read_history(result.state).turns
    assert turns[0].facts["flags"] == {ids(waiting)[0]: "denied"}
    assert results(result.state) == ["a is quiet", "This tool call was denied."]
    assert codes(result) == ["turn_closed"]
    assert (result.text, desk.asked, desk.effects) == ("Very well.", 2, ["look a"])
    assert roles(result.state) == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert (result.status, result.pending, len(turns)) == ("complete", (), 2)
    desk.check(result.state)


def test_a_new_message_may_queue(face: Any, wire: str, run: Any) -> None:
    """It waits in the state, goes along after the results of the resume, and is there exactly once."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), text="One moment.")

    queued = run(desk.chat(), waiting.state, user="And hurry.", on_pending="queue")
    twice = run(desk.chat(), queued.state, user="Really.", on_pending="queue")
    desk.script("Paid.", "Yes.")
    done = desk.chat().resume(twice.state, {ids(waiting)[0]: Approve()})
    after = desk.chat().chat_with_state(done.state, user="Thanks.")

    assert (queued.status, queued.pending, queued.text) == ("awaiting_tools", waiting.pending, "One moment.")
    assert (spends(queued), queued.iterations, queued.warnings) == (0, 0, ())
    assert inspect_state(twice.state).waiting_messages == 2
    assert desk.asked == 3
    assert users(done.state) == ["Go on.", "And hurry.", "Really."]
    assert roles(done.state) == ["user", "assistant", "tool", "user", "user", "assistant"]
    assert users(after.state) == ["Go on.", "And hurry.", "Really.", "Thanks."]
    desk.check(queued.state, twice.state, done.state, after.state)


def test_metadata_of_a_waiting_turn_stays_with_it(face: Any, wire: str) -> None:
    """What came with the turn, with a message that queued and with the resume is stored, the newest first."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), metadata={"by": "ada", "from": "web"})
    queued = desk.chat().chat_with_state(
        waiting.state, user="Hurry.", on_pending="queue", metadata={"by": "bob", "at": "noon"}
    )
    desk.script("Paid.")

    done = desk.chat().resume(queued.state, {ids(waiting)[0]: Approve()}, metadata={"at": "night"})

    facts = [read_history(result.state).turns[-1].facts["metadata"] for result in (waiting, queued, done)]
    assert facts == [
        {"by": "ada", "from": "web"},
        {"by": "bob", "from": "web", "at": "noon"},
        {"by": "bob", "from": "web", "at": "night"},
    ]


def test_a_queued_message_is_taken_along_by_a_denial(face: Any, wire: str) -> None:
    """What queued before is not lost when a later message ends the waiting."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    queued = desk.chat().chat_with_state(waiting.state, user="Hurry.", on_pending="queue")
    desk.script("Very well.")

    result = desk.chat().chat_with_state(queued.state, user="Never mind.", on_pending="deny")

    assert users(result.state) == ["Go on.", "Hurry.", "Never mind."]
    assert desk.effects == []
    desk.check(result.state)


def test_a_denial_survives_a_failure_of_the_new_turn(face: Any, sim: Any, wire: str) -> None:
    """The state of the error has the denied result and the new message; resuming it asks nobody twice."""
    desk = Desk(face, wire)
    chat = face.on(sim, tools=desk.tools())
    sim.push(Reply.calls(("pay", '{"amount":5}')), Fault.server_error(), Reply.text("Very well."))
    waiting = chat.chat(user="Pay.")

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(waiting.state, user="Never mind.", on_pending="deny")
    result = chat.resume(caught.value.state)

    assert desk.effects == []
    assert users(result.state) == ["Pay.", "Never mind."]
    assert results(result.state) == ["This tool call was denied."]
    assert sim.problems == []


# ----------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    "fields",
    [{"limits": Limits(max_iterations=1)}, {"limits": Limits(max_tokens=1)}],
    ids=["iterations", "tokens"],
)
def test_a_turn_that_waits_at_its_limit_ends_there(
    face: Any, wire: str, run: Any, fields: dict[str, Any]
) -> None:
    """Nothing is asked while calls wait; once they are answered, the last call is what it would have been."""
    desk = Desk(face, wire)
    desk.script([pay(5)], "Paid.")

    waiting = run(desk.chat(**fields), user="Pay.")
    result = desk.chat(**fields).resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert (waiting.status, waiting.warnings) == ("awaiting_tools", ())
    assert (result.status, result.text, desk.effects) == ("limited", "Paid.", ["pay 5"])
    assert codes(result) == ["limit_reached"]
    desk.check(result.state)


def test_an_approval_gives_no_further_calls(face: Any, wire: str) -> None:
    """With `on_limit="raise"` the approved call runs, and the turn ends at the limit it had reached; a
    resume of that goes on by one more reply."""
    desk = Desk(face, wire)
    chat = desk.chat(limits=Limits(max_iterations=1), on_limit="raise")
    desk.script([pay(5)], "Paid.")
    waiting = chat.chat(user="Pay.")

    with pytest.raises(LimitExceededError) as caught:
        chat.resume(waiting.state, {ids(waiting)[0]: Approve()})
    asked = desk.asked
    result = chat.resume(caught.value.state)

    assert (asked, desk.effects) == (1, ["pay 5"])
    assert (result.status, result.text, desk.asked) == ("complete", "Paid.", 2)
    desk.check(result.state)


def test_approved_calls_count_as_calls(face: Any, wire: str) -> None:
    """Beyond `max_tool_calls` an approved call is answered as not run; one that waits does not count."""
    desk = Desk(face, wire)
    desk.script([look("a"), pay(1), pay(2)], "Done.")
    limits = Limits(max_tool_calls=2)

    waiting = desk.chat(limits=limits).chat(user="Pay.")
    result = desk.chat(limits=limits).resume(
        waiting.state, {id: Approve({"amount": 7}) for id in ids(waiting)}
    )

    assert len(waiting.pending) == 2
    assert desk.effects == ["look a", "pay 7"]
    assert [record.flag for record in result.tool_log] == ["ok", "ok", "not_run"]
    assert flags(result.state) == {ids(waiting)[1]: "not_run"}
    desk.check(result.state)


def test_a_resumed_turn_can_reach_its_limit(face: Any, wire: str) -> None:
    """With `on_limit="raise"` the approved call's result is kept, and runs never again."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    desk.script([look("a")], "Done.")

    with pytest.raises(LimitExceededError) as caught:
        desk.chat(limits=Limits(max_iterations=2), on_limit="raise").resume(
            waiting.state, {ids(waiting)[0]: Approve()}
        )
    result = desk.chat().resume(caught.value.state)

    assert desk.effects == ["pay 5", "look a"]
    assert (result.text, desk.asked) == ("Done.", 3)
    desk.check(result.state)


# ---------------------------------------------------------------------------------- events, checkpoints


def test_a_waiting_turn_tells_its_listeners(face: Any, wire: str) -> None:
    """Who iterates it hears the reply, the calls that ran, and at the end a result that waits."""
    desk = Desk(face, wire)
    desk.script([look("a"), pay(5)])
    kept: list[bytes] = []

    turn = desk.chat(on_checkpoint=kept.append).start(None, user="Pay.")
    events = list(turn)

    (completed,) = (e for e in events if isinstance(e, TurnCompleted))
    assert completed is events[-1]
    assert completed.result.status == "awaiting_tools"
    assert completed.result.state == turn.state == turn.result().state
    assert [e.name for e in events if isinstance(e, ToolStarted)] == ["look"]
    assert [e.name for e in events if isinstance(e, ToolFinished)] == ["look"]
    assert [e.blob for e in events if isinstance(e, CheckpointReady)] == kept
    assert len([e for e in events if isinstance(e, ModelReplied)]) == 1
    desk.check(*kept, turn.state)


def test_a_resume_tells_its_listener(face: Any, wire: str) -> None:
    """Approved calls start and finish; what ran before is not told again."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5), clerk("Why?"))
    events: list[Any] = []

    desk.chat(on_event=events.append).resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert [e.name for e in events if isinstance(e, ToolStarted)] == ["pay"]
    assert [e.name for e in events if isinstance(e, ToolFinished)] == ["pay"]
    assert [e for e in events if isinstance(e, ModelReplied)] == []
    assert events[-1].result.status == "awaiting_tools"


def test_checkpoints_surround_an_approved_call(face: Any, wire: str) -> None:
    """One before it starts and one with its result; each goes on without running anything twice."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5))
    kept: list[tuple[bytes, int]] = []
    desk.script("Paid.")

    desk.chat(on_checkpoint=lambda blob: kept.append((blob, len(desk.effects)))).resume(
        waiting.state, {ids(waiting)[0]: Approve()}
    )

    assert [runs for _, runs in kept] == [1, 2, 2]
    assert [inspect_state(blob).open_calls for blob, _ in kept] == [1, 0, 0]
    assert [[c.reason for c in pending_calls(blob)] for blob, _ in kept] == [["in_doubt"], [], []]
    desk.check(*(blob for blob, _ in kept))


def test_the_reply_is_kept_before_anything_waits(face: Any, wire: str) -> None:
    """A process killed after the reply left a checkpoint from which the same calls wait, unpaid for."""
    desk = Desk(face, wire)
    desk.script([pay(5)])
    kept: list[bytes] = []
    waiting = desk.chat(on_checkpoint=kept.append).chat(user="Pay.")

    result = desk.chat().resume(kept[0])

    assert pending_calls(kept[0]) == ()
    assert (result.status, result.pending) == ("awaiting_tools", waiting.pending)
    assert (desk.asked, desk.effects) == (1, [])


# ------------------------------------------------------------------------------------- only some wires


def test_the_last_reply_goes_back_as_it_came(face: Any, sim: Any, wire: str) -> None:
    """Over a real socket, thinking and all: the answers follow the very bytes of the reply that waited."""
    desk = Desk(face, wire)
    think = {
        "anthropic": ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
        "openai-responses": ModelSettings(reasoning_effort="low"),
    }.get(wire, ModelSettings())
    chat = face.on(sim, tools=desk.tools(), settings=think)
    before = chat.chat(user="My name is Ada.").state
    sim.push(Reply.calls(("pay", '{"amount": 5}'), ("look", '{"place":"a"}'), text="So.", thinking="Hm."))

    waiting = chat.chat_with_state(before, user="Pay.")
    stored = state_messages(waiting.state)
    result = face.on(sim, tools=desk.tools(), settings=think).resume(
        waiting.state, {ids(waiting)[0]: Approve()}
    )

    end = len(stored) - (2 if wire != "anthropic" else 1)  # without the results of the closed view
    assert history_sent(sim.requests[-1])[-len(stored) :][:end] == stored[:end]
    assert codes(waiting) == codes(result) == []
    assert sorted(desk.effects) == ["look a", "pay 5"]
    assert sim.problems == []


BINDING = ModelSettings(model="claude-opus-5-5", thinking_budget_tokens=1024, max_output_tokens=4096)


@pytest.mark.parametrize("wire", ["anthropic"])
def test_open_thinking_that_does_not_fit_is_dropped(face: Any, sim: Any, wire: str) -> None:
    """Behind another preamble the provider is asked to drop the thinking."""
    desk = Desk(face, wire)
    chat = face.on(sim, tools=desk.tools(), settings=BINDING)
    before = chat.run_turns(None, ["My name is Ada.", "I like foxes."], system="You are a clerk.").state
    sim.push(Reply.calls(("pay", '{"amount":5}'), thinking="Hm."))
    waiting = chat.chat_with_state(before, user="Pay.", system="You are a clerk.")

    result = chat.resume(waiting.state, {ids(waiting)[0]: Approve()}, system="You are a librarian.")

    assert result.status == "complete"
    assert desk.effects == ["pay 5"]
    assert "drop_block" in str(sim.requests[-1].parsed["thinking"])
    assert "input_dropped" in codes(result)
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_a_cut_waits_while_open_thinking_is_signed(face: Any, sim: Any, wire: str) -> None:
    """It would not fit behind a cut: `compact_state` says that it waits, and cuts once the turn is over."""
    desk = Desk(face, wire)
    chat = face.on(sim, tools=desk.tools(), settings=BINDING, system="You are a clerk.")
    before = chat.run_turns(None, ["My name is Ada.", "I like foxes."]).state
    sim.push(Reply.calls(("pay", '{"amount":5}'), thinking="Hm."))
    waiting = chat.chat_with_state(before, user="Pay.")
    compactor = Compactor(MessageLimit(1), KeepRecentTurns(1))

    early = chat.compact_state(waiting.state, compactor)
    result = chat.resume(early.state, {ids(waiting)[0]: Approve()})
    late = chat.compact_state(result.state, compactor)

    assert (early.outcome, early.state) == ("no_change", waiting.state)
    assert "signed thinking" in early.reason
    assert codes(result) == []
    assert (late.outcome, late.removed_turns) == ("compacted", 2)
    assert sim.problems == []


@pytest.mark.parametrize("wire", [RESPONSES])
def test_a_custom_call_beside_a_waiting_one_keeps_its_kind(face: Any, sim: Any, wire: str) -> None:
    """Its result is of its own kind after the resume too, in call order."""
    desk = Desk(face, wire)
    draw = ProviderTool({"type": "custom", "name": "draw"})
    chat = face.on(sim, tools=[*desk.tools(), draw])
    sim.push(Reply.calls(("draw", "a fox"), ("pay", '{"amount":5}'), ids=("c1", "c2")), Reply.text("Done."))

    waiting = chat.chat(user="Both.")
    result = chat.resume(waiting.state, {"c1": ToolReturn("A fox."), "c2": Approve()})

    kinds = [item["type"] for item in state_messages(result.state) if "call_id" in item]
    assert kinds == ["custom_tool_call", "function_call", "custom_tool_call_output", "function_call_output"]
    assert [(call.id, call.kind, call.reason) for call in waiting.pending] == [
        ("c1", "custom", "external"),
        ("c2", "function", "approval"),
    ]
    assert desk.effects == ["pay 5"]
    assert check_history(RESPONSES, state_messages(waiting.state)) == []
    assert sim.problems == []


def test_a_context_overflow_at_a_resume_cuts_closed_turns_only(face: Any, sim: Any, wire: str) -> None:
    """The approved call has run when the provider refuses; it does not run again, and its result is read."""
    desk = Desk(face, wire)
    chat = face.on(sim, tools=desk.tools())
    before = chat.run_turns(None, ["My name is Ada.", "I like foxes."]).state
    sim.push(Reply.calls(("pay", '{"amount":5}')), Fault.context_length(), Reply.text("Paid."))
    waiting = chat.chat_with_state(before, user="Pay.")

    result = chat.resume(waiting.state, {ids(waiting)[0]: Approve()})

    assert "emergency_cut" in codes(result)
    assert desk.effects == ["pay 5"]
    assert (result.text, results(result.state)) == ("Paid.", ["paid 5"])
    assert users(result.state)[-1] == "Pay."
    assert sim.problems == []


def test_a_tool_that_no_longer_wants_an_approval_still_waits_for_it(face: Any, wire: str) -> None:
    """Who asked for an approval gets an answer: a changed tool does not run what waits by itself."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    ran: list[int] = []

    @tool
    def now_free(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    free = tool(name="pay")(now_free.run)
    result = desk.chat(tools=[free]).resume(waiting.state)

    assert (result.status, result.pending, ran) == ("awaiting_tools", waiting.pending, [])
