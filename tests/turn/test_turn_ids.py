"""A turn that comes again under the same id: one message, one reply, nothing paid for twice."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import (
    Approve,
    CheckpointError,
    Compactor,
    DeadlineExceededError,
    Image,
    KeepRecentTurns,
    LimitExceededError,
    Limits,
    MessageLimit,
    ModelSettings,
    ProviderRejectedError,
    TextDelta,
    ToolPendingError,
    TurnCompleted,
    TurnConflictError,
    TurnError,
    event,
    system,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import ContextWindow
from goaitools_py.sim import Fault, Reply
from goaitools_py.state.codec import LIMITS
from goaitools_py.state.state import load_state
from goaitools_py.states import read_history, state_messages
from goaitools_py.testing import Calls, ScriptedBackend

from ._desk import Desk, codes, look, pay, spends
from ._reading import LEAD, results, roles, users

DOWN = BackendError("down", kind="unavailable")
POISON = BackendError("no", status=400, headers={"content-type": "application/json"}, body=b'{"error":{}}')
CUT = Compactor(MessageLimit(1), KeepRecentTurns(1))
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def again(desk: Desk, state: bytes, **fields: Any) -> Any:
    """The same turn once more, in another process; the provider must not be asked."""
    asked, effects = desk.asked, list(desk.effects)
    result = desk.chat().chat_with_state(state, **fields)
    assert (desk.asked, desk.effects) == (asked, effects)
    return result


# ------------------------------------------------------------------------------------------- finished


def test_a_finished_turn_gives_its_reply_again(face: Any, wire: str, run: Any) -> None:
    """No call, no change of the state, and a result that says that it is an old one."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.")
    first = run(desk.chat(), user="Pay.", turn_id="m1")
    asked = desk.asked

    second = run(desk.chat(), first.state, user="Pay.", turn_id="m1")

    assert (second.text, second.status, second.duplicate) == ("Paid.", "complete", True)
    assert second.finish_reason == first.finish_reason != ""
    assert second.state == first.state
    assert (desk.asked, desk.effects) == (asked, ["pay 5"])
    assert (spends(second), second.iterations, second.total_usage) == (0, 0, first.total_usage)
    assert (second.tool_log, second.actions, second.pending, second.warnings) == ((), (), (), ())
    assert not first.duplicate


def test_a_repeated_turn_tells_its_listener_the_reply_once_more(face: Any, wire: str) -> None:
    """Nothing starts, but who shows the stream shows the reply; the handle has the result and the state."""
    desk = Desk(face, wire)
    desk.script("Hello.")
    state = desk.chat().chat(user="Hi.", turn_id="m1").state

    turn = desk.chat().start(state, user="Hi.", turn_id="m1")
    events = list(turn)

    assert [type(e) for e in events] == [TextDelta, TurnCompleted]
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Hello."]
    assert turn.result().duplicate
    assert turn.state == state


def test_later_turns_do_not_hide_it(face: Any, wire: str) -> None:
    """Its reply is found behind other turns, also when those wait or have failed."""
    desk = Desk(face, wire)
    desk.script("One.", "Two.", [pay(5)])
    state = desk.chat().chat(user="First.", turn_id="m1").state
    state = desk.chat().chat_with_state(state, user="Second.", turn_id="m2").state
    waiting = desk.chat().chat_with_state(state, user="Pay.", turn_id="m3").state
    desk.script(DOWN)
    with pytest.raises(TurnError) as caught:
        desk.chat().chat_with_state(state, user="Fourth.")

    for blob in (state, waiting, caught.value.state):
        for turn_id, said, text in (("m1", "First.", "One."), ("m2", "Second.", "Two.")):
            result = again(desk, blob, user=said, turn_id=turn_id)

            assert (result.text, result.duplicate, result.status) == (text, True, "complete")
            assert result.state == blob


@pytest.mark.parametrize(
    ("reply", "status", "text"),
    [
        (Reply.text("Once upon", finish="length"), "truncated", "Once upon"),
        (Reply.text("I must", finish="content_filter"), "refused", "I must"),
    ],
    ids=["truncated", "refused"],
)
def test_the_stored_reply_ends_as_it_ended(
    face: Any, sim: Any, wire: str, reply: Any, status: str, text: str
) -> None:
    """Status and finish word are those of the first time; after a cut the status and the text."""
    if wire == "anthropic" and status == "refused":
        reply = Reply.text(text, finish="refusal")
    chat = face.on(sim)
    sim.push(reply)
    first = chat.chat(user="Tell me.", turn_id="m1")

    second = chat.chat_with_state(first.state, user="Tell me.", turn_id="m1")
    later = chat.chat_with_state(first.state, user="And?", compactor=CUT).state
    third = chat.chat_with_state(later, user="Tell me.", turn_id="m1")

    assert (second.status, second.text, second.finish_reason) == (status, text, first.finish_reason)
    assert (third.status, third.text, third.duplicate) == (status, text, True)
    assert users(later) == ["And?"]
    assert len(sim.requests) == 2


def test_a_limited_turn_is_finished_too(face: Any, wire: str) -> None:
    """At its limit a turn ends with a status of its own, which the second delivery gets as well."""
    desk = Desk(face, wire)
    desk.script([look("a")], "Enough.")
    first = desk.chat(limits=Limits(max_iterations=1)).chat(user="Look.", turn_id="m1")

    second = again(desk, first.state, user="Look.", turn_id="m1")

    assert (first.status, second.status, second.text) == ("limited", "limited", "Enough.")


def test_calls_that_came_anyway_do_not_hide_the_reply(face: Any, wire: str) -> None:
    """A last reply with calls that were not allowed has its text, from the history and from the ring."""
    desk = Desk(face, wire)
    desk.backend.then(Calls([look("a")]), Calls([look("b")], text="One more."), "Two.")
    first = desk.chat(limits=Limits(max_iterations=1)).chat(user="Look.", turn_id="m1")
    later = desk.chat().chat_with_state(first.state, user="And?", compactor=CUT)

    assert (first.status, first.text) == ("limited", "One more.")
    for state in (first.state, later.state):
        assert again(desk, state, user="Look.", turn_id="m1").text == "One more."


# ---------------------------------------------------------------------------------- after compactions


def test_a_reply_outlives_its_turn(face: Any, wire: str, run: Any) -> None:
    """A cut takes the turn, and leaves the text of its last reply."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.", "Two.", "Three.")
    state = run(desk.chat(), user="Pay.", turn_id="m1").state
    state = run(desk.chat(), state, user="Second.", turn_id="m2", compactor=CUT).state
    state = run(desk.chat(), state, user="Third.").state
    by_hand = desk.chat().compact_state(state, CUT).state

    assert users(by_hand) == ["Third."]
    for turn_id, said, text in (("m1", "Pay.", "Paid."), ("m2", "Second.", "Two.")):
        result = again(desk, by_hand, user=said, turn_id=turn_id)
        assert (result.text, result.duplicate, result.status) == (text, True, "complete")
        assert result.state == by_hand


def test_a_reply_outlives_a_rewriting_of_its_turn(face: Any, wire: str) -> None:
    """Of the turn its system message stays, and so does its id; what it had answered is told again."""
    chat = face.chat(ScriptedBackend("First.", *["Noted."] * 3, wire=wire))
    asked = [user("Hello?"), system("Be terse.")]
    state = chat.chat(messages=asked, turn_id="m1").state
    state = chat.run_turns(state, ["Note 0", "Note 1", "Note 2"]).state
    window = ContextWindow(max_messages=4, min_recent_turns=1)

    once = chat.compact_state(state, window).state
    twice = chat.compact_state(once, CUT).state

    assert "First." not in str(state_messages(once))
    assert "terse" in str(state_messages(once))
    for blob in (once, twice):
        result = chat.chat_with_state(blob, messages=asked, turn_id="m1")
        assert (result.text, result.duplicate) == ("First.", True)


def test_an_emergency_cut_keeps_the_reply(face: Any, sim: Any, wire: str) -> None:
    """Also a cut that nobody asked for, made because the provider refused the history."""
    chat = face.on(sim)
    sim.push(Reply.text("One."), Reply.text("Two."), Fault.context_length(), Reply.text("Three."))
    state = chat.chat(user="First.", turn_id="m1").state
    state = chat.chat_with_state(state, user="Second.", turn_id="m2").state
    state = chat.chat_with_state(state, user="Third.", turn_id="m3").state

    texts = [
        chat.chat_with_state(state, user=said, turn_id=id).text
        for id, said in (("m1", "First."), ("m2", "Second."), ("m3", "Third."))
    ]

    assert texts == ["One.", "Two.", "Three."]
    assert "First." not in users(state)
    assert len(sim.requests) == 4
    assert sim.problems == []


def test_a_long_reply_is_kept_in_part(face: Any, wire: str) -> None:
    """A text of a turn that was cut is bounded by 16 KiB; one that is still there is whole."""
    desk = Desk(face, wire)
    long = "word " * 10_000
    desk.script(long, "Two.")
    state = desk.chat().chat(user="Tell me.", turn_id="m1").state
    whole = again(desk, state, user="Tell me.", turn_id="m1")
    state = desk.chat().chat_with_state(state, user="Second.", compactor=CUT).state

    part = again(desk, state, user="Tell me.", turn_id="m1")

    assert whole.text == long
    assert long.startswith(part.text)
    assert 16_000 < len(part.text) <= 16 * 1024


LONG = {
    "ascii": "a" * 20_000,
    "emoji": "\N{FOX FACE}" * 20_000,
    "escaped": '\x01"\\\n' * 5_000,
    "surrogates": "\ud83e " * 10_000,
}


@pytest.mark.parametrize("wire", ["openai"])
@pytest.mark.parametrize("kind", LONG)
def test_sixty_four_long_replies_fit_into_the_meta_data(face: Any, wire: str, kind: str) -> None:
    """Whatever they are made of: after cuts the newest replies are kept, and every id is still known."""
    desk = Desk(face, wire)
    state = None
    for number in range(66):
        desk.script(f"{number} {LONG[kind]}")
        state = (
            desk.chat(compactor=CUT).chat_with_state(state, user=f"No. {number}", turn_id=f"m{number}").state
        )
    assert state is not None

    found = [again(desk, state, user=f"No. {n}", turn_id=f"m{n}") for n in range(2, 66)]

    assert load_state(state).meta.cuts[-1][1] != "emergency"
    assert all(result.duplicate for result in found)
    assert found[-1].text.startswith("65 ")
    assert found[-2].text.startswith("64 ")
    assert found[0].text == ""
    kept = [result.text for result in found if result.text]
    assert 2 <= len(kept) < 64
    assert _meta_bytes(state) < LIMITS.max_meta_bytes


def _meta_bytes(state: bytes) -> int:
    from goaitools_py.state.segments import meta_segment

    loaded = load_state(state)
    return meta_segment(loaded.meta, loaded.extras).raw_len


def test_the_sixty_fifth_id_forgets_the_first(face: Any, wire: str) -> None:
    """64 are known; a forgotten one is a new turn."""
    desk = Desk(face, wire)
    state = None
    for number in range(65):
        desk.script(f"Reply {number}.")
        state = desk.chat().chat_with_state(state, user=f"No. {number}", turn_id=f"m{number}").state
    assert state is not None

    second = again(desk, state, user="No. 1", turn_id="m1")
    desk.script("Once more.")
    first = desk.chat().chat_with_state(state, user="No. 0", turn_id="m0")

    assert (second.text, second.duplicate) == ("Reply 1.", True)
    assert (first.text, first.duplicate) == ("Once more.", False)
    assert users(first.state).count("No. 0") == 2


def test_ids_survive_what_rewrites_the_history(face: Any, sim: Any, wire: str) -> None:
    """Thinking that is taken out of closed turns leaves their ids and replies where they are."""
    think = {
        "anthropic": ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
        "openai-responses": ModelSettings(reasoning_effort="low"),
    }.get(wire, ModelSettings())
    chat = face.on(sim, settings=think)
    sim.push(Reply.text("One.", thinking="Hm."), Reply.text("Two.", thinking="Hm."))
    state = chat.chat(user="First.", turn_id="m1", system="You are a clerk.").state

    changed = chat.chat_with_state(state, user="Second.", turn_id="m2", system="You are a librarian.")
    first = chat.chat_with_state(changed.state, user="First.", turn_id="m1")

    assert ("thinking_removed" in codes(changed)) is (wire != "openai")
    assert (first.text, first.duplicate) == ("One.", True)
    assert len(sim.requests) == 2


# ------------------------------------------------------------------------------------- other messages

SAID = [user("Look:", Image(data=PNG, media_type="image/png")), user("And this.")]
OTHER = {
    "text": {"messages": [user("Look!", Image(data=PNG, media_type="image/png")), user("And this.")]},
    "media": {
        "messages": [user("Look:", Image(data=PNG + b"\0", media_type="image/png")), user("And this.")]
    },
    "order": {"messages": SAID[::-1]},
    "more": {"messages": SAID, "user": "And that."},
    "less": {"messages": SAID[:1]},
    "an event": {"messages": [*SAID, event("A door opens.")]},
    "none": {},
}


@pytest.mark.parametrize("state", ["finished", "failed", "waiting", "cut"])
@pytest.mark.parametrize("other", OTHER)
def test_the_same_id_with_other_messages_is_a_conflict(face: Any, wire: str, other: str, state: str) -> None:
    """Told before anything is called, whatever became of the first turn; nothing of it is quoted."""
    desk = Desk(face, wire)
    blob = _after(desk, state)
    asked = desk.asked

    with pytest.raises(TurnConflictError, match="turn_id") as caught:
        desk.chat().chat_with_state(blob, turn_id="m1", **OTHER[other])

    assert "Look" not in str(caught.value)
    assert desk.asked == asked


def _after(desk: Desk, state: str) -> bytes:
    if state == "failed":
        desk.script(DOWN)
        with pytest.raises(TurnError) as caught:
            desk.chat().chat(messages=SAID, turn_id="m1")
        return caught.value.state
    desk.script([pay(5)] if state == "waiting" else "Nice.")
    blob: bytes = desk.chat().chat(messages=SAID, turn_id="m1").state
    if state == "cut":
        desk.script("Two.")
        blob = desk.chat().chat_with_state(blob, user="Second.", compactor=CUT).state
        assert users(blob) == ["Second."]
    return blob


@pytest.mark.parametrize(
    "fields",
    [
        {"context": "It is nine."},
        {"context": "It is ten."},
        {"context": None, "system": "You are a librarian."},
        {"system": None},
        {"metadata": {"try": "2"}},
        {"settings": ModelSettings(temperature=0.1)},
        {"tools": []},
    ],
    ids=["same", "other context", "other system", "no system", "metadata", "settings", "tools"],
)
def test_only_the_messages_count(face: Any, wire: str, fields: dict[str, Any]) -> None:
    """Context, preamble, settings and tools may differ: it is the same turn all the same."""
    desk = Desk(face, wire)
    desk.script("Hello.")
    base = {"system": "You are a clerk.", "context": "It is nine.", "user": "Hi.", "turn_id": "m1"}
    state = desk.chat().chat(**base).state

    result = again(desk, state, **{**base, **fields})

    assert (result.text, result.duplicate, result.state) == ("Hello.", True, state)


def test_leading_system_messages_are_preamble(face: Any, wire: str) -> None:
    """They do not count either; one that stands further behind is said, and does."""
    desk = Desk(face, wire)
    desk.script("Hello.")
    state = desk.chat().chat(messages=[system("A."), user("Hi.")], turn_id="m1").state

    assert again(desk, state, messages=[system("B."), user("Hi.")], turn_id="m1").duplicate
    assert again(desk, state, user="Hi.", turn_id="m1").duplicate
    with pytest.raises(TurnConflictError):
        desk.chat().chat_with_state(state, messages=[user("Hi."), system("A.")], turn_id="m1")


# ---------------------------------------------------------------------------------------- unfinished


def test_a_first_call_that_failed_is_made_again(face: Any, wire: str, run: Any) -> None:
    """The message is in the error's state, and the second delivery does not double it."""
    desk = Desk(face, wire)
    desk.script("Hello.", DOWN, DOWN, "Sorry for that.")
    state = desk.chat().chat(user="Hi.").state
    with pytest.raises(TurnError) as first:
        run(desk.chat(), state, user="And now?", turn_id="m1", context="It is nine.")
    with pytest.raises(TurnError) as second:
        run(desk.chat(), first.value.state, user="And now?", turn_id="m1", context="It is nine.")

    result = run(desk.chat(), second.value.state, user="And now?", turn_id="m1", context="It is nine.")

    assert (result.text, result.duplicate) == ("Sorry for that.", False)
    assert [text.count("And now?") for text in users(result.state)] == [0, 1]
    assert desk.sent().count("It is nine.") == 1
    assert again(desk, result.state, user="And now?", turn_id="m1").text == "Sorry for that."
    desk.check(first.value.state, result.state)


def test_a_later_call_that_failed_is_made_again(face: Any, wire: str, run: Any) -> None:
    """What the tools did is kept: only the call that failed is paid for again."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], DOWN, "Paid.")
    with pytest.raises(TurnError) as caught:
        run(desk.chat(), user="Pay.", turn_id="m1")

    result = run(desk.chat(), caught.value.state, user="Pay.", turn_id="m1")

    assert (result.text, desk.effects, desk.asked) == ("Paid.", ["pay 5"], 3)
    assert roles(result.state) == ["user", "assistant", "tool", "assistant"]
    assert result.warnings == ()
    assert again(desk, result.state, user="Pay.", turn_id="m1").duplicate
    desk.check(result.state)


@pytest.mark.parametrize("number", range(4))
def test_a_killed_process_is_followed_by_the_next_delivery(face: Any, wire: str, number: int) -> None:
    """From each checkpoint the same message goes on as `resume` would: nothing begun is run again."""
    desk = Desk(face, wire, requires_approval=False)
    kept: list[bytes] = []
    desk.script([look("a")], [pay(5)], "Done.")
    desk.chat(on_checkpoint=kept.append).chat(user="Pay.", turn_id="m1")
    desk.effects.clear()
    asked, blob = desk.asked, kept[number]
    desk.script(*([[pay(5)]] if number < 3 else []), "Done.")

    result = desk.chat().chat_with_state(blob, user="Pay.", turn_id="m1")

    assert desk.effects == [["look a", "pay 5"], ["pay 5"], ["pay 5"], ["pay 5"]][number]
    assert desk.asked - asked == (1 if number == 3 else 2)
    assert users(result.state) == ["Pay."]
    assert result.total_usage.requests == 3
    assert again(desk, result.state, user="Pay.", turn_id="m1").text == "Done."
    desk.check(blob, result.state)


def test_a_failed_checkpoint_leaves_the_turn_unfinished(face: Any, wire: str) -> None:
    """The reply that was paid for is in the error's state; the tool that did not start runs once."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.")

    def fail(blob: bytes) -> None:
        raise OSError

    with pytest.raises(CheckpointError) as caught:
        desk.chat(on_checkpoint=fail).chat(user="Pay.", turn_id="m1")
    result = desk.chat().chat_with_state(caught.value.state, user="Pay.", turn_id="m1")

    assert (result.text, desk.effects, desk.asked) == ("Paid.", ["pay 5"], 2)
    assert users(result.state) == ["Pay."]


def test_a_turn_whose_time_was_up_goes_on(face: Any, wire: str, clock: Any) -> None:
    """The deadline is of one try; the next delivery has its own."""
    desk = Desk(face, wire, requires_approval=False)

    def slowly(request: Any) -> Any:
        clock.advance(100)
        return Calls([pay(5)])

    desk.script(slowly, "Paid.")
    with pytest.raises(DeadlineExceededError) as caught:
        desk.chat(timeout=50).chat(user="Pay.", turn_id="m1")
    assert desk.effects == []

    result = desk.chat(timeout=50).chat_with_state(caught.value.state, user="Pay.", turn_id="m1")

    assert (result.text, desk.effects, desk.asked) == ("Paid.", ["pay 5"], 2)
    assert users(result.state) == ["Pay."]


def test_a_cancelled_stream_is_asked_for_again(face: Any, sim: Any, wire: str) -> None:
    """What had come is no answer: the second delivery asks again, and the message is there once."""
    chat = face.on(sim)
    sim.push(Reply.text("One of many words."), Reply.text("Whole."))
    turn = chat.start(None, user="Tell me.", turn_id="m1")
    for one in turn:
        if isinstance(one, TextDelta):
            break
    turn.cancel()

    result = chat.chat_with_state(turn.state, user="Tell me.", turn_id="m1")

    assert (result.text, result.duplicate) == ("Whole.", False)
    assert users(result.state) == ["Tell me."]
    assert sim.problems == []


def test_a_stream_that_broke_off_is_asked_for_again(face: Any, sim: Any, wire: str) -> None:
    """Also when it was the provider who ended it."""
    chat = face.on(sim)
    sim.push(Fault.cut_stream(LEAD[wire] + 1, reply=Reply.text("One of many.")), Reply.text("Whole."))
    with pytest.raises(TurnError) as caught:
        chat.start(None, user="Tell me.", turn_id="m1").result()

    result = chat.chat_with_state(caught.value.state, user="Tell me.", turn_id="m1")

    assert (result.text, users(result.state)) == ("Whole.", ["Tell me."])
    assert sim.problems == []


def test_a_turn_that_raised_at_its_limit_goes_on(face: Any, wire: str) -> None:
    """`on_limit="raise"` does not finish it."""
    desk = Desk(face, wire)
    desk.script([look("a")], "Done.")
    with pytest.raises(LimitExceededError) as caught:
        desk.chat(limits=Limits(max_iterations=1), on_limit="raise").chat(user="Look.", turn_id="m1")

    result = desk.chat().chat_with_state(caught.value.state, user="Look.", turn_id="m1")

    assert (result.text, desk.effects, users(result.state)) == ("Done.", ["look a"], ["Look."])


@pytest.mark.parametrize("is_later", [False, True], ids=["first call", "later call"])
def test_poison_is_said_again_if_it_comes_again(face: Any, wire: str, is_later: bool) -> None:
    """A message that the provider refuses is in no state, so its id is not known either. A later call that
    is refused leaves the turn unfinished: it goes on, and no tool runs again."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script("Hello.")
    before = desk.chat().chat(user="Hi.").state
    desk.script(*([[pay(5)]] if is_later else []), POISON, "Fine.")

    with pytest.raises(ProviderRejectedError) as caught:
        desk.chat().chat_with_state(before, user="Poison.", turn_id="m1")
    result = desk.chat().chat_with_state(caught.value.state, user="Poison.", turn_id="m1")

    assert (caught.value.state == before) is not is_later
    assert (result.text, result.duplicate) == ("Fine.", False)
    assert users(result.state) == ["Hi.", "Poison."]
    assert desk.effects == (["pay 5"] if is_later else [])
    desk.check(result.state)


def test_poison_may_come_with_other_words(face: Any, wire: str) -> None:
    """What was refused was never said: the same id with another message is no conflict."""
    desk = Desk(face, wire)
    desk.script(POISON, "Fine.")
    with pytest.raises(ProviderRejectedError) as caught:
        desk.chat().chat(user="Poison.", turn_id="m1")

    result = desk.chat().chat_with_state(caught.value.state, user="Water.", turn_id="m1")

    assert (result.text, users(result.state)) == ("Fine.", ["Water."])


# ------------------------------------------------------------------------------------------- waiting


def test_a_waiting_turn_waits_again(face: Any, wire: str, run: Any) -> None:
    """The second delivery asks nobody, whatever `on_pending` says; after the answers it has the reply."""
    desk = Desk(face, wire)
    desk.script([look("a"), pay(5)], "Paid.")
    waiting = run(desk.chat(), user="Pay.", turn_id="m1")

    blob = waiting.state
    for on_pending in ("raise", "deny", "queue"):
        result = run(desk.chat(), blob, user="Pay.", turn_id="m1", on_pending=on_pending)
        assert (result.status, result.pending, result.duplicate) == ("awaiting_tools", waiting.pending, False)
        blob = result.state
    done = desk.chat().resume(blob, {waiting.pending[0].id: Approve()})
    late = again(desk, done.state, user="Pay.", turn_id="m1")

    assert (desk.asked, desk.effects) == (2, ["look a", "pay 5"])
    assert users(done.state) == ["Pay."]
    assert (late.text, late.status, late.duplicate) == ("Paid.", "complete", True)


def test_a_queued_message_is_queued_once(face: Any, wire: str) -> None:
    """Delivered twice while calls wait, it is there once; after the resume both ids have the reply."""
    desk = Desk(face, wire)
    desk.script([pay(5)], "Paid, and yes.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    queued = desk.chat().chat_with_state(waiting.state, user="Sure?", turn_id="m2", on_pending="queue")

    second = again(desk, queued.state, user="Sure?", turn_id="m2", on_pending="queue")
    other = again(desk, second.state, user="Sure?", turn_id="m2")
    with pytest.raises(TurnConflictError):
        desk.chat().chat_with_state(second.state, user="Really?", turn_id="m2", on_pending="queue")
    done = desk.chat().resume(other.state, {waiting.pending[0].id: Approve()})

    assert [result.status for result in (queued, second, other)] == ["awaiting_tools"] * 3
    assert users(done.state) == ["Pay.", "Sure?"]
    for turn_id, said in (("m1", "Pay."), ("m2", "Sure?")):
        late = again(desk, done.state, user=said, turn_id=turn_id)
        assert (late.text, late.duplicate) == ("Paid, and yes.", True)
    desk.check(done.state)


def test_a_refused_message_is_not_begun(face: Any, wire: str) -> None:
    """`on_pending="raise"` took nothing in: after the resume the message is a new turn."""
    desk = Desk(face, wire)
    desk.script([pay(5)], "Paid.", "Yes.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    with pytest.raises(ToolPendingError):
        desk.chat().chat_with_state(waiting.state, user="Sure?", turn_id="m2")

    done = desk.chat().resume(waiting.state, {waiting.pending[0].id: Approve()})
    after = desk.chat().chat_with_state(done.state, user="Sure?", turn_id="m2")

    assert (after.text, after.duplicate) == ("Yes.", False)
    assert users(after.state) == ["Pay.", "Sure?"]


def test_a_queued_message_that_is_refused_may_come_again(face: Any, wire: str) -> None:
    """The waiting turn goes on without the poison, and its end does not finish the id of the poison."""
    desk = Desk(face, wire)
    desk.script([pay(5)], POISON, "Paid.", "Better.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    queued = desk.chat().chat_with_state(waiting.state, user="Poison.", turn_id="m2", on_pending="queue")
    with pytest.raises(ProviderRejectedError) as caught:
        desk.chat().resume(queued.state, {waiting.pending[0].id: Approve()})
    done = desk.chat().resume(caught.value.state)

    second = desk.chat().chat_with_state(done.state, user="Poison.", turn_id="m2")

    assert [message.text for message in caught.value.pending_input] == ["Poison."]
    assert (second.text, second.duplicate) == ("Better.", False)
    assert users(second.state) == ["Pay.", "Poison."]
    assert again(desk, second.state, user="Pay.", turn_id="m1").text == "Paid."
    assert desk.effects == ["pay 5"]


def test_a_queued_message_does_not_end_with_a_denied_turn(face: Any, wire: str) -> None:
    """It goes to the model with the message that denied the turn, and has that turn's reply."""
    desk = Desk(face, wire)
    desk.script([pay(5)], "Very well.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    queued = desk.chat().chat_with_state(waiting.state, user="Sure?", turn_id="m2", on_pending="queue")

    done = desk.chat().chat_with_state(queued.state, user="No.", turn_id="m3", on_pending="deny")

    assert users(done.state) == ["Pay.", "Sure?", "No."]
    texts = {}
    for turn_id, said in (("m1", "Pay."), ("m2", "Sure?"), ("m3", "No.")):
        late = again(desk, done.state, user=said, turn_id=turn_id)
        assert late.duplicate
        texts[turn_id] = (late.text, late.status)
    assert texts == {
        "m1": ("", "truncated"),
        "m2": ("Very well.", "complete"),
        "m3": ("Very well.", "complete"),
    }


def test_a_queued_message_is_unfinished_until_it_is_answered(face: Any, wire: str) -> None:
    """The turn that it waited behind is over, but its own has failed: the second delivery goes on."""
    desk = Desk(face, wire)
    desk.script([pay(5)], DOWN, "To both: yes.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    queued = desk.chat().chat_with_state(waiting.state, user="Sure?", turn_id="m2", on_pending="queue")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat_with_state(queued.state, user="No.", turn_id="m3", on_pending="deny")

    assert again(desk, caught.value.state, user="Pay.", turn_id="m1").duplicate
    result = desk.chat().chat_with_state(caught.value.state, user="Sure?", turn_id="m2")

    assert (result.text, result.duplicate) == ("To both: yes.", False)
    assert users(result.state) == ["Pay.", "Sure?", "No."]
    assert again(desk, result.state, user="No.", turn_id="m3").text == "To both: yes."


def test_a_denied_turn_is_over(face: Any, wire: str) -> None:
    """Its second delivery does not bring it back: what it said before it was closed is all there is."""
    desk = Desk(face, wire)
    desk.backend.then(Calls([pay(5)], text="One moment."), "Very well.")
    waiting = desk.chat().chat(user="Pay.", turn_id="m1")
    done = desk.chat().chat_with_state(waiting.state, user="No.", on_pending="deny")

    late = again(desk, done.state, user="Pay.", turn_id="m1")

    assert (late.text, late.status, late.duplicate) == ("One moment.", "truncated", True)
    assert desk.effects == []


# -------------------------------------------------------------------------------------- several turns


def test_one_turn_may_take_up_two_ids(face: Any, wire: str) -> None:
    """The first message met a dead provider and went along with the second: both ids have the reply."""
    desk = Desk(face, wire)
    desk.script(DOWN, "To both: yes.", "Third.")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat(user="First?", turn_id="m1")
    both = desk.chat().chat_with_state(caught.value.state, user="Second?", turn_id="m2")
    third = desk.chat().chat_with_state(both.state, user="Third?", turn_id="m3", compactor=CUT)

    assert users(both.state) == ["First?", "Second?"]
    assert users(third.state) == ["Third?"]
    for blob in (both.state, third.state):
        for turn_id, said in (("m1", "First?"), ("m2", "Second?")):
            late = again(desk, blob, user=said, turn_id=turn_id)
            assert (late.text, late.duplicate) == ("To both: yes.", True)
    desk.check(both.state, third.state)


def test_the_first_of_two_comes_again_before_any_answer(face: Any, wire: str) -> None:
    """Both failed: either delivery goes on with both messages, each of which is there once."""
    desk = Desk(face, wire)
    desk.script(DOWN, DOWN, "To both: yes.")
    with pytest.raises(TurnError) as first:
        desk.chat().chat(user="First?", turn_id="m1")
    with pytest.raises(TurnError) as second:
        desk.chat().chat_with_state(first.value.state, user="Second?", turn_id="m2")

    result = desk.chat().chat_with_state(second.value.state, user="First?", turn_id="m1")

    assert users(result.state) == ["First?", "Second?"]
    assert again(desk, result.state, user="Second?", turn_id="m2").text == "To both: yes."


def test_a_turn_in_between_closes_an_unfinished_one(face: Any, wire: str) -> None:
    """Its reply came in part: the second delivery is answered, and runs nothing again."""
    desk = Desk(face, wire, requires_approval=False)
    desk.backend.then(Calls([pay(5)], text="One moment."), DOWN, "Hello.", "Paid.")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat(user="Pay.", turn_id="m1")
    between = desk.chat().chat_with_state(caught.value.state, user="Hi.", turn_id="m2")

    late = desk.chat().chat_with_state(between.state, user="Pay.", turn_id="m1")

    assert (late.text, late.status, late.duplicate) == ("Paid.", "complete", False)
    assert results(late.state) == ["paid 5"]
    assert again(desk, late.state, user="Hi.", turn_id="m2").text == "Hello."


def test_many_ids_in_one_unfinished_turn_stay_bounded(face: Any, wire: str) -> None:
    """A provider that is down for long: the newest 64 ids are known, and the state can be read."""
    desk = Desk(face, wire)
    state: bytes | None = None
    for number in range(70):
        desk.script(DOWN)
        with pytest.raises(TurnError) as caught:
            desk.chat().chat_with_state(state, user=f"No. {number}", turn_id=f"m{number}")
        state = caught.value.state
    desk.script("At last.")
    result = desk.chat().chat_with_state(state, user="Hello?")

    assert users(result.state) == [*(f"No. {number}" for number in range(70)), "Hello?"]
    assert again(desk, result.state, user="No. 69", turn_id="m69").text == "At last."
    assert again(desk, result.state, user="No. 6", turn_id="m6").text == "At last."


def test_a_resume_finishes_the_id(face: Any, wire: str) -> None:
    """However the turn ends, its id has the reply then."""
    desk = Desk(face, wire)
    desk.script(DOWN, "Hello.")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat(user="Hi.", turn_id="m1")

    result = desk.chat().resume(caught.value.state)

    assert again(desk, result.state, user="Hi.", turn_id="m1").text == "Hello."


def test_a_turn_without_an_id_after_one_with(face: Any, wire: str) -> None:
    """An id belongs to its own turn only."""
    desk = Desk(face, wire)
    desk.script("One.", "Two.")
    state = desk.chat().chat(user="Hi.", turn_id="m1").state
    state = desk.chat().chat_with_state(state, user="Hi.").state

    assert again(desk, state, user="Hi.", turn_id="m1").text == "One."
    assert [turn.facts.get("turn_ids", []) == [] for turn in read_history(state).turns] == [False, True]


def test_an_event_that_was_appended_is_no_part_of_the_turn(face: Any, wire: str) -> None:
    """What waited in the inbox does not count for the id, and goes along once."""
    desk = Desk(face, wire)
    state = desk.chat().append_to_state(None, event("A door opens.", id="e1"))
    desk.script(DOWN, "Hello.")
    with pytest.raises(TurnError) as caught:
        desk.chat().chat_with_state(state, user="Hi.", turn_id="m1")
    blob = desk.chat().append_to_state(caught.value.state, event("A door shuts.", id="e2"))

    result = desk.chat().chat_with_state(blob, user="Hi.", turn_id="m1")

    assert desk.sent().count("A door opens.") == desk.sent().count("A door shuts.") == 1
    assert again(desk, result.state, user="Hi.", turn_id="m1").duplicate


# ---------------------------------------------------------------------------------------- the option


def test_an_id_belongs_to_one_turn(face: Any) -> None:
    """It cannot be a chat's default."""
    with pytest.raises(TypeError, match="turn_id"):
        face.chat(ScriptedBackend(), turn_id="m1")


def test_without_an_id_nothing_is_stored(face: Any, wire: str) -> None:
    """The state of a turn without an id has no trace of ids; with one, no trace of its text."""
    desk = Desk(face, wire)
    desk.script("Hello.", "Hello.")

    plain = desk.chat().chat(user="Hi.").state
    known = desk.chat().chat(user="Hi.", turn_id="a secret of the webhook").state

    for state in (plain, known):
        meta = load_state(state).meta
        assert meta.turn == ()
        assert b"secret" not in repr((meta.ring, state_messages(state))).encode()
    assert load_state(plain).meta.ring == ()
    assert len(load_state(known).meta.ring) == 1
    assert "turn_ids" not in read_history(plain).turns[0].facts


def test_an_unreadable_state_knows_no_ids(face: Any, wire: str) -> None:
    """A fresh conversation begins, and the message is a new one there."""
    desk = Desk(face, wire)
    desk.script("Hello.", "Hello again.")
    state = desk.chat().chat(user="Hi.", turn_id="m1").state

    result = desk.chat().chat_with_state(state[:-9], user="Hi.", turn_id="m1")

    assert (result.text, result.duplicate) == ("Hello again.", False)
    assert result.discarded is not None


def test_a_reply_that_does_not_fit_is_not_asked_for_again(face: Any, wire: str) -> None:
    """The limit of the conversation is no reason to refuse a turn that is finished."""
    desk = Desk(face, wire)
    desk.script("Hello.")
    state = desk.chat().chat(user="Hi.", turn_id="m1").state

    result = again(desk, state, user="Hi.", turn_id="m1", limits=Limits(conversation_max_tokens=1))

    assert (result.text, result.duplicate) == ("Hello.", True)
