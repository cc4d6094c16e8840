"""A process dies inside a turn: another one goes on from what was kept, with every effect counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from goaitools_py import Approve, Deny, ToolReturn, TurnError, Usage, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.states import inspect_state, pending_calls, read_history
from goaitools_py.testing import Calls

from ._desk import Desk, clerk, codes, flags, look, pay, spends
from ._reading import results, roles, users

UNKNOWN = "The outcome of this tool call is unknown: it may or may not have taken effect."


class Killed(BaseException):
    """The process ends: nothing of this package may hold it up."""


def checkpoints(desk: Desk, *steps: Any, **fields: Any) -> list[bytes]:
    """What a process kept of a turn that ran to its end; each blob is where it might have been killed."""
    kept: list[bytes] = []
    desk.script(*steps)
    desk.chat(on_checkpoint=kept.append).chat_with_state(None, user="Go on.", **fields)
    return kept


def in_doubt(desk: Desk, *calls: tuple[str, Any]) -> bytes:
    """A checkpoint in which the first call had started, and what came of it is not known."""
    kept = checkpoints(desk, list(calls), "Nobody hears this.")
    desk.effects.clear()
    desk.keys.clear()
    return next(blob for blob in kept if [call.reason for call in pending_calls(blob)] == ["in_doubt"])


# ------------------------------------------------------------------------- killed at every instant


@pytest.mark.parametrize("idempotent", [False, True], ids=["not idempotent", "idempotent"])
def test_killed_anywhere_a_turn_goes_on(face: Any, wire: str, idempotent: bool) -> None:
    """Rows 17 and 18: from each checkpoint finished results are reused, calls that had not begun run once,
    and one that had begun runs again only if that does no harm; each reply is paid for once."""
    desk = Desk(face, wire, requires_approval=False, idempotent=idempotent)
    kept = checkpoints(desk, [pay(1), pay(2)], [pay(3)], "Done.")
    paid_for = [inspect_state(blob).total_usage.requests for blob in kept]
    keys = dict(zip(desk.effects, desk.keys, strict=True))
    after_each = [0, 0, 1, 1, 2, 2, 2, 3]  # how many tools had ended at each of the eight checkpoints
    assert [inspect_state(blob).status for blob in kept] == [*["in_progress"] * len(after_each), "complete"]

    for blob, ended, requests in zip(kept[:-1], after_each, paid_for[:-1], strict=True):
        desk.effects.clear()
        desk.keys.clear()
        asked = desk.asked
        doubt = pending_calls(blob)
        script = [Calls([pay(3)]), "Done."] if requests == 1 else ["Done."]
        desk.script(*script)

        result = desk.chat().resume(blob)

        started = ended + len(doubt)
        expected = ["pay 1", "pay 2", "pay 3"][ended if idempotent else started :]
        assert desk.effects == expected
        assert desk.keys == [keys[effect] for effect in expected]
        assert desk.asked - asked == 3 - requests == spends(result)
        assert result.total_usage.requests == 3
        assert Counter(flags(result.state).values()) == Counter({} if idempotent else {"unknown": len(doubt)})
        assert [len(r.call.arguments) > 0 for r in result.tool_log] == [True] * len(result.tool_log)
        assert roles(result.state) == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
        desk.check(blob, result.state)


def test_a_process_that_is_killed_in_a_tool_leaves_a_call_in_doubt(face: Any, wire: str) -> None:
    """The last checkpoint before the end says which call had started; the effect may have taken place."""
    desk = Desk(face, wire)
    waiting = desk.waiting(look("a"), pay(5))
    kept: list[bytes] = []
    (id,) = (call.id for call in waiting.pending)

    def keep(blob: bytes) -> None:
        kept.append(blob)
        if len(kept) == 2:
            raise Killed

    with pytest.raises(Killed):
        desk.chat(on_checkpoint=keep).resume(waiting.state, {id: Approve()})
    desk.script("Done.")
    result = desk.chat().resume(kept[0])

    assert desk.effects == ["look a", "pay 5"]
    assert [(call.id, call.name, call.reason) for call in pending_calls(kept[0])] == [(id, "pay", "in_doubt")]
    assert results(result.state) == ["a is quiet", UNKNOWN]
    assert flags(result.state) == {id: "unknown"}
    assert [(r.flag, r.synthetic) for r in result.tool_log] == [("ok", False), ("unknown", True)]
    desk.check(kept[0], result.state)


# -------------------------------------------------------------------------------- what can be said of it


@pytest.mark.parametrize(
    ("answer", "effects", "told", "flag"),
    [
        (None, [], UNKNOWN, "unknown"),
        (Approve(), ["pay 5"], "paid 5", None),
        (Approve({"amount": 4}), ["pay 4"], "paid 4", None),
        (Deny("It was undone."), [], "This tool call was denied: It was undone.", "denied"),
        (ToolReturn("paid 5, says the bank"), [], "paid 5, says the bank", None),
        (ToolReturn("it failed", is_error=True), [], "it failed", "error"),
    ],
    ids=["nothing", "again", "again, other arguments", "denied", "result", "error"],
)
@pytest.mark.parametrize("requires_approval", [False, True], ids=["free", "with approval"])
def test_an_answer_ends_the_doubt(
    face: Any,
    wire: str,
    answer: Any,
    effects: list[str],
    told: str,
    flag: str | None,
    requires_approval: bool,
) -> None:
    """Who knows what came of the call says so; without a word the model is told that nobody knows."""
    desk = Desk(face, wire, requires_approval=False)
    blob = in_doubt(desk, pay(5))
    desk.pay_options["requires_approval"] = requires_approval
    (call,) = pending_calls(blob)
    desk.script("Done.")

    result = desk.chat().resume(blob, None if answer is None else {call.id: answer})

    assert (call.reason, call.parsed) == ("in_doubt", {"amount": 5})
    assert (result.status, desk.effects) == ("complete", effects)
    assert results(result.state) == [told]
    assert flags(result.state) == ({} if flag is None else {call.id: flag})
    desk.check(result.state)


def test_a_call_in_doubt_runs_again_with_its_key(face: Any, wire: str) -> None:
    """A service that knows the key does the work once, whether the tool is idempotent or was approved."""
    desk = Desk(face, wire, requires_approval=False, idempotent=True)
    desk.script([pay(5)], "Done.", "Done.", "Done.")
    kept: list[bytes] = []
    desk.chat(on_checkpoint=kept.append).chat(user="Pay.")
    (call,) = pending_calls(kept[1])

    desk.chat().resume(kept[1])
    desk.chat().resume(kept[1], {call.id: Approve()})

    assert len(desk.keys) == 3
    assert len(set(desk.keys)) == 1


def test_an_idempotent_call_is_not_approved_twice(face: Any, wire: str) -> None:
    """It had been approved when its process died: it runs again without asking anybody."""
    desk = Desk(face, wire, idempotent=True)
    waiting = desk.waiting(pay(5))
    kept: list[bytes] = []
    desk.script("Done.", "Done.")
    answers = {call.id: Approve({"amount": 4}) for call in waiting.pending}
    desk.chat(on_checkpoint=kept.append).resume(waiting.state, answers)

    result = desk.chat().resume(kept[0])

    assert desk.effects == ["pay 4", "pay 4"]
    assert len(set(desk.keys)) == 1
    assert (result.status, flags(result.state)) == ("complete", {})


def test_an_idempotent_tool_that_is_gone_cannot_run_again(face: Any, wire: str) -> None:
    """Without the tool nobody knows that it was idempotent: the outcome is unknown."""
    desk = Desk(face, wire, requires_approval=False, idempotent=True)
    blob = in_doubt(desk, pay(5))
    desk.script("Done.")

    result = desk.chat(tools=[]).resume(blob)

    assert (desk.effects, results(result.state)) == ([], [UNKNOWN])


def test_a_refused_answer_leaves_the_doubt(face: Any, wire: str) -> None:
    """An answer that fits nothing runs nothing, not even what would have run without it."""
    desk = Desk(face, wire, requires_approval=False, idempotent=True)
    blob = in_doubt(desk, pay(5), look("a"))
    asked = desk.asked

    for answers in ({"nobody": Approve()}, {pending_calls(blob)[0].id: Approve({"amount": "much"})}):
        with pytest.raises(ValueError, match="call"):
            desk.chat().resume(blob, answers)

    assert (desk.effects, desk.asked) == ([], asked)


def test_some_are_in_doubt_and_some_wait(face: Any, wire: str) -> None:
    """One blob may hold both; what is in doubt is settled by the resume, what waits waits on."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(1), pay(2), clerk("Why?"))
    first, second, third = (call.id for call in waiting.pending)
    kept: list[bytes] = []
    desk.chat(on_checkpoint=kept.append).resume(waiting.state, {first: Approve()})
    blob = kept[0]

    settled = desk.chat().resume(blob)
    desk.script("Done.")
    result = desk.chat().resume(settled.state, {second: Approve(), third: ToolReturn("because")})

    assert [call.reason for call in pending_calls(blob)] == ["in_doubt", "approval", "external"]
    assert [call.reason for call in settled.pending] == ["approval", "external"]
    assert desk.effects == ["pay 1", "pay 2"]
    assert results(result.state) == [UNKNOWN, "paid 2", "because"]
    assert flags(result.state) == {first: "unknown"}
    desk.check(blob, settled.state, result.state)


def test_a_new_message_closes_a_call_in_doubt(face: Any, wire: str, run: Any) -> None:
    """Nobody waits for it: the turn closes, the model reads that the outcome is unknown."""
    desk = Desk(face, wire, requires_approval=False, idempotent=True)
    blob = in_doubt(desk, pay(5), look("a"))
    desk.script("Very well.")

    result = run(desk.chat(), blob, user="Never mind.")

    assert desk.effects == []
    assert results(result.state) == [UNKNOWN, "This tool was not run."]
    assert codes(result) == ["turn_closed"]
    assert users(result.state) == ["Go on.", "Never mind."]
    desk.check(result.state)


@pytest.mark.parametrize("on_pending", ["raise", "deny", "queue"])
def test_a_doubt_alone_does_not_wait(face: Any, wire: str, on_pending: str) -> None:
    """`on_pending` is about calls that wait for somebody; one in doubt is no reason to refuse a message."""
    desk = Desk(face, wire, requires_approval=False)
    blob = in_doubt(desk, pay(5))
    desk.script("Very well.")

    result = desk.chat().chat_with_state(blob, user="Never mind.", on_pending=on_pending)

    assert (result.status, results(result.state)) == ("complete", [UNKNOWN])


def test_a_tool_that_kills_its_process_is_in_doubt(face: Any, wire: str) -> None:
    """What ends the process passes through unchanged; the handle's state knows that the call had started."""
    # An event loop cannot be used again after the others of these.
    for ending in (Killed,) if face.is_async else (Killed, KeyboardInterrupt, SystemExit):
        desk = Desk(face, wire, requires_approval=False)

        desk.script([pay(5)])
        turn = desk.chat(tools=[_dying(desk, ending)]).start(None, user="Pay.")
        with pytest.raises(ending):
            turn.result()
        (call,) = pending_calls(turn.state)
        desk.script("Done.")

        result = desk.chat().resume(turn.state, {call.id: ToolReturn("paid, says the bank")})

        assert call.reason == "in_doubt"
        assert desk.effects == ["pay 5"]
        assert results(result.state) == ["paid, says the bank"]
        desk.check(turn.state, result.state)


def _dying(desk: Desk, ending: type[BaseException]) -> Any:
    """The tool `pay`, whose process ends after the effect."""

    @tool(name="pay")
    def pay_and_die(amount: int) -> str:
        """Pay."""
        desk.effects.append(f"pay {amount}")
        raise ending

    return pay_and_die


def test_failures_after_the_answers_do_not_run_them_again(face: Any, wire: str) -> None:
    """Approved, run, and then the provider is down: the results are in the error's state, and go along."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5))
    desk.backend.then(BackendError("down", kind="unavailable"), BackendError("down", kind="unavailable"))

    with pytest.raises(TurnError) as first:
        desk.chat().resume(waiting.state, {call.id: Approve() for call in waiting.pending})
    with pytest.raises(TurnError) as second:
        desk.chat().resume(first.value.state)
    desk.script("Done.")
    result = desk.chat().resume(second.value.state)

    assert pending_calls(first.value.state) == ()
    assert first.value.usage == Usage()
    assert [r.result for r in second.value.tool_log] == ["paid 5"]
    assert (desk.effects, result.text) == (["pay 5"], "Done.")
    assert len(read_history(result.state).turns) == 1
    desk.check(first.value.state, second.value.state, result.state)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("idempotent", [False, True])
def test_an_approval_that_comes_again_runs_no_call_twice(
    face: Any, wire: str, again: bool, idempotent: bool
) -> None:
    """The process died in the tool that somebody had approved, and the press is delivered once more: the call
    runs again only if it may, or if the answer says so."""
    desk = Desk(face, wire, idempotent=idempotent)
    waiting = desk.waiting(pay(5))
    (id,) = (call.id for call in waiting.pending)
    kept: list[bytes] = []
    desk.script("Nobody hears this.")
    desk.chat(on_checkpoint=kept.append).resume(waiting.state, {id: Approve()})
    assert [call.reason for call in pending_calls(kept[0])] == ["in_doubt"]
    desk.effects.clear()

    desk.script("Done.")
    result = desk.chat().resume(kept[0], {id: Approve(again=again)})

    runs = again or idempotent
    assert desk.effects == (["pay 5"] if runs else [])
    assert results(result.state) == ["paid 5" if runs else UNKNOWN]
    desk.check(kept[0], result.state)
