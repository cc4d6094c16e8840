"""`run_turns`: whatever ends it, the turns that were paid for are in somebody's hands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    AsyncChat,
    BudgetExceededError,
    ChatOptions,
    Limits,
    ProviderRejectedError,
    ProviderUnavailableError,
    StateFormatError,
    Tool,
    ToolPendingError,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.chat.series import Series
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state
from goaitools_py.testing import ScriptedBackend

from ._desk import Desk, pay
from ._reading import users

TEXTS = ["One.", "Two.", "Three.", "Four."]
DOWN = BackendError("down", kind="unavailable")
POISON = BackendError("no", status=400, headers={"content-type": "application/json"}, body=b'{"error":{}}')


class Stop(BaseException):
    """An exit, as Ctrl-C is one; this one cannot be taken for the test run's own."""


def go_on(desk: Desk, state: bytes, left: tuple[str, ...], *answers: str) -> list[str]:
    """Finish the broken turn if it holds one, and say the rest; all texts that the user said."""
    desk.script(*answers)
    chat = desk.chat()
    if state and state_is_open(state):
        state = chat.resume(state).state
    if left:
        state = chat.run_turns(state, left).state
    desk.check(state)
    return users(state)


def state_is_open(state: bytes) -> bool:
    return inspect_state(state).status in ("failed", "in_progress")


def test_it_stops_at_a_turn_that_waits(face: Any, wire: str) -> None:
    """The result is the waiting turn's; the texts that were not said are in it."""
    desk = Desk(face, wire)
    desk.script("1.", [pay(5)])

    result = desk.chat().run_turns(None, TEXTS)

    assert (result.status, result.turns_left) == ("awaiting_tools", ("Three.", "Four."))
    assert users(result.state) == ["One.", "Two."]
    assert [call.name for call in result.pending] == ["pay"]
    desk.script("Paid.")
    paid = desk.chat().resume(result.state, {result.pending[0].id: Approve()})
    desk.script("3.", "4.")
    last = desk.chat().run_turns(paid.state, result.turns_left)
    assert (last.text, last.turns_left, users(last.state)) == ("4.", (), TEXTS)
    assert desk.effects == ["pay 5"]


def test_the_last_turn_may_wait(face: Any, wire: str) -> None:
    """Then there is nothing left to say."""
    desk = Desk(face, wire)
    desk.script("1.", [pay(5)])

    result = desk.chat().run_turns(None, TEXTS[:2])

    assert (result.status, result.turns_left) == ("awaiting_tools", ())


@pytest.mark.parametrize("as_default", [True, False])
def test_who_says_what_a_new_message_does_is_not_stopped(face: Any, wire: str, as_default: bool) -> None:
    """`on_pending="deny"` denies what waits, "queue" lets the texts wait with it, and all are said."""
    desk = Desk(face, wire)
    desk.script("1.", [pay(5)], "3.", "4.")
    denied = (
        desk.chat(on_pending="deny").run_turns(None, TEXTS)
        if as_default
        else desk.chat().run_turns(None, TEXTS, ChatOptions(on_pending="deny"))
    )
    desk.script("1.", [pay(5)])
    queued = desk.chat().run_turns(None, TEXTS, on_pending="queue")

    assert (denied.text, denied.turns_left, users(denied.state)) == ("4.", (), TEXTS)
    assert (queued.status, queued.turns_left, users(queued.state)) == ("awaiting_tools", (), TEXTS)
    assert desk.effects == []


@pytest.mark.parametrize(
    "reply", [Reply.text("2", finish="length"), Reply.text("2", finish="content_filter")], ids=["cut", "no"]
)
def test_a_truncated_or_refused_reply_does_not_stop_it(face: Any, sim: Any, wire: str, reply: Any) -> None:
    """It is in the history, and the next text follows."""
    if wire == "anthropic" and reply.finish == "content_filter":
        reply = Reply.text("2", finish="refusal")
    for one in (Reply.text("1"), reply, Reply.text("3"), Reply.text("4")):
        sim.push(one)

    result = face.on(sim).run_turns(None, TEXTS)

    assert (result.text, result.status, result.turns_left, users(result.state)) == (
        "4",
        "complete",
        (),
        TEXTS,
    )


def test_a_turn_that_fails_carries_what_is_left(face: Any, wire: str) -> None:
    """The failed turn's text is in the error's state, so that it is not left."""
    desk = Desk(face, wire)
    desk.script("1.", DOWN)

    with pytest.raises(ProviderUnavailableError) as caught:
        desk.chat().run_turns(None, TEXTS)

    assert (users(caught.value.state), caught.value.turns_left) == (TEXTS[:2], ("Three.", "Four."))
    assert go_on(desk, caught.value.state, caught.value.turns_left, "2.", "3.", "4.") == TEXTS


def test_a_text_that_is_handed_back_is_not_left_too(face: Any, wire: str) -> None:
    """What the provider refused is in `pending_input`, once."""
    desk = Desk(face, wire)
    desk.script("1.", POISON)

    with pytest.raises(ProviderRejectedError) as caught:
        desk.chat().run_turns(None, TEXTS)

    error = caught.value
    assert [message.text for message in error.pending_input] == ["Two."]
    assert (users(error.state), error.turns_left) == (["One."], ("Three.", "Four."))


def test_a_spent_budget_hands_the_text_back(face: Any, wire: str) -> None:
    """The turns before it are paid for, and in the state."""
    desk = Desk(face, wire)
    desk.script("1.", "2.", "3.")

    with pytest.raises(BudgetExceededError) as caught:
        desk.chat().run_turns(None, TEXTS, limits=Limits(conversation_max_tokens=1))

    error = caught.value
    assert (users(error.state), [m.text for m in error.pending_input]) == (["One."], ["Two."])
    assert error.turns_left == ("Three.", "Four.")


def test_a_turn_that_never_began_is_left_whole(face: Any, wire: str) -> None:
    """A state that waits, or cannot be read, is given back with every text."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5)).state

    with pytest.raises(ToolPendingError) as pending:
        desk.chat().run_turns(waiting, TEXTS)
    with pytest.raises(StateFormatError) as unreadable:
        desk.chat().run_turns(b"damaged", TEXTS, on_bad_state="raise")

    assert (getattr(pending.value, "state", None), pending.value.turns_left) == (waiting, tuple(TEXTS))
    assert (getattr(unreadable.value, "state", None), unreadable.value.turns_left) == (
        b"damaged",
        tuple(TEXTS),
    )


@pytest.mark.parametrize("place", ["tool", "provider", "event"])
def test_an_exit_carries_the_state_so_far(face: Any, wire: str, place: str) -> None:
    """Ctrl-C and its like, wherever they strike in the second turn."""
    desk = Desk(face, wire, requires_approval=False)

    def strike(*_: Any, **__: Any) -> Any:
        raise Stop

    tools = desk.tools()
    if place == "tool":
        desk.script("1.", [pay(5)])
        tools[0] = face_tool(strike)
        fields: dict[str, Any] = {}
    elif place == "provider":
        desk.script("1.", Stop())
        fields = {}
    else:
        desk.script("1.", "2.")
        seen: list[str] = []

        def on_event(event: Any) -> None:
            seen.append(type(event).__name__)
            if seen.count("ModelRequested") == 2:
                strike()

        fields = {"on_event": on_event}

    with pytest.raises(Stop) as caught:
        desk.chat(tools=tools).run_turns(None, TEXTS, **fields)

    state, left = caught.value.state, caught.value.turns_left  # type: ignore[attr-defined]
    assert (users(state), left) == (TEXTS[:2], ("Three.", "Four."))
    desk.script("2.")
    assert go_on(desk, state, left, "3.", "4.") == TEXTS


def face_tool(run: Any) -> Any:
    return Tool(
        name="pay",
        description="Pay.",
        parameters={"type": "object", "properties": {"amount": {"type": "integer"}}},
        run=run,
    )


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("name", "said"), [("begin", 1), ("end", 2)])
def test_an_exit_between_two_turns_loses_nothing(
    face: Any, wire: str, monkeypatch: pytest.MonkeyPatch, name: str, said: int, moment: str
) -> None:
    """At whatever step of the series: what was said is in the state, and the rest is left."""
    original = getattr(Series, name)
    calls = [0]

    def struck(self: Any, given: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2 and moment == "before":
            raise Stop
        answer = original(self, given)
        if calls[0] == 2:
            raise Stop
        return answer

    desk = Desk(face, wire)
    desk.script("1.", "2.")
    monkeypatch.setattr(Series, name, struck)
    with pytest.raises(Stop) as caught:
        desk.chat().run_turns(None, TEXTS)

    state, left = caught.value.state, caught.value.turns_left  # type: ignore[attr-defined]
    assert [*users(state), *left] == TEXTS
    assert len(users(state)) == said


def test_a_cancelled_series_carries_the_state_so_far() -> None:
    """`task.cancel()` strikes where the second turn waits for its provider."""

    async def cancelled() -> BaseException:
        reached = asyncio.Event()

        async def hang(*_: Any) -> Any:
            reached.set()
            await asyncio.Event().wait()

        backend = ScriptedBackend("1.", "2.")
        asend = backend.asend

        async def send(request: Any) -> Any:
            if len(backend.requests) == 1:
                await hang()
            return await asend(request)

        backend.asend = send  # type: ignore[method-assign]
        task = asyncio.ensure_future(AsyncChat(backend).run_turns(None, TEXTS))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value

    error: Any = asyncio.run(cancelled())

    assert (users(error.state), error.turns_left) == (TEXTS[:2], ("Three.", "Four."))


def test_what_the_user_says_is_given_once(face: Any) -> None:
    """`user=` beside the texts is refused."""
    desk = Desk(face, "openai")

    with pytest.raises(TypeError, match="list of texts"):
        desk.chat().run_turns(None, TEXTS, user="Five.")

    assert desk.asked == 0


@pytest.mark.parametrize(
    ("texts", "kind", "words"),
    [
        ("Hello.", TypeError, "list of texts, not str; for one write"),
        (b"Hello.", TypeError, "list of texts, not bytes"),
        (None, TypeError, "list of texts, not NoneType"),
        (5, TypeError, "list of texts, not int"),
        ([None], TypeError, "one of them is None"),
        ([5], TypeError, "user must be text"),
        ([], ValueError, "at least one text"),
        (iter(()), ValueError, "at least one text"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(
    face: Any, texts: Any, kind: type[Exception], words: str
) -> None:
    """One text is not a list of its letters. Another type is a TypeError, an empty list a ValueError. Nothing
    is asked."""
    desk = Desk(face, "openai")

    with pytest.raises(kind, match=words):
        desk.chat().run_turns(None, texts)

    assert desk.asked == 0


def test_what_the_first_turn_discarded_is_in_the_last_result(face: Any, wire: str) -> None:
    """The bytes of a state that cannot be used are handed out, however many turns follow."""
    desk = Desk(face, wire)
    desk.script("1.", "2.", "3.")

    result = desk.chat().run_turns(b"damaged", TEXTS[:3])

    assert (result.text, result.discarded.blob) == ("3.", b"damaged")
    assert [warning.code for warning in result.warnings] == ["state_discarded"]


def test_what_the_first_turn_discarded_is_in_a_later_error(face: Any, wire: str) -> None:
    """As in the result."""
    desk = Desk(face, wire)
    desk.script("1.", DOWN)

    with pytest.raises(ProviderUnavailableError) as caught:
        desk.chat().run_turns(b"damaged", TEXTS)

    assert caught.value.discarded is not None
    assert caught.value.discarded.blob == b"damaged"
