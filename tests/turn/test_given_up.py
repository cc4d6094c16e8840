"""What a turn leaves that is given up, and what is said to one that ends: nothing is lost, or in doubt."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    CheckpointReady,
    ProviderUnavailableError,
    StreamInterruptedError,
    TextDelta,
    ToolContext,
    ToolFinished,
    ToolStarted,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.sim import Fault
from goaitools_py.states import inspect_state, pending_calls, read_history, rewind_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn import turn_state
from goaitools_py.turn.edges import async_edge, sync_edge
from goaitools_py.turn.flow import Moment

from ._desk import Desk, pay
from ._reading import LEAD

DOWN = BackendError("down", kind="unavailable")


def is_started(state: bytes) -> bool:
    """Whether a call of the open turn is journaled as started."""
    return "in_doubt" in [call.reason for call in pending_calls(state)]


def events(state: bytes) -> list[str]:
    """What was told to a conversation, by the text of its events."""
    return [message.text for message in read_history(state).all_messages() if message.is_event]


# --------------------------------------------------------------------------------------- tools


def numbered(face: Any, ran: list[int]) -> Any:
    """A tool of which several calls run beside each other."""
    if face.is_async:

        @tool
        async def step(number: int) -> str:
            """Take a step."""
            ran.append(number)
            return f"Step {number}."
    else:

        @tool(thread=True)
        def step(number: int) -> str:
            """Take a step."""
            ran.append(number)
            return f"Step {number}."

    return step


def let_threads_end() -> None:
    for thread in threading.enumerate():
        if thread.name == "goaitools-tool":
            thread.join(60)


def test_results_that_nobody_has_read_yet_are_kept(face: Any) -> None:
    """A reader that leaves at the first result leaves none of the others behind in doubt."""
    ran: list[int] = []
    calls = Calls([("step", {"number": number}) for number in range(3)])
    chat = face.chat(ScriptedBackend(calls, "Three steps."), tools=[numbered(face, ran)])
    turn = chat.start(None, user="Go.")

    for found in turn:
        if isinstance(found, ToolFinished):
            let_threads_end()
            break
    turn.cancel()
    result = chat.resume(turn.state)

    assert sorted(ran) == [0, 1, 2]
    assert [(record.flag, record.result) for record in result.tool_log] == [
        ("ok", "Step 0."),
        ("ok", "Step 1."),
        ("ok", "Step 2."),
    ]


@pytest.mark.parametrize("kind", [CheckpointReady, ToolStarted])
def test_a_call_that_has_not_started_is_not_in_doubt(face: Any, wire: str, kind: type) -> None:
    """A turn that is left between a call's checkpoint and its start runs it when it is resumed."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.")
    turn = desk.chat().start(None, user="Pay.")

    for found in turn:
        if isinstance(found, kind) and is_started(turn.state):
            break
    turn.cancel()
    assert desk.effects == []
    result = desk.chat().resume(turn.state)

    assert (desk.effects, [record.flag for record in result.tool_log]) == (["pay 5"], ["ok"])


def test_an_exit_out_of_a_checkpoint_leaves_its_call_unstarted(face: Any, wire: str) -> None:
    """As an error of it does."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.")

    def keep(blob: bytes) -> None:
        if is_started(blob):
            raise KeyboardInterrupt

    turn = desk.chat(on_checkpoint=keep).start(None, user="Pay.")
    with pytest.raises(KeyboardInterrupt):
        turn.result()
    result = desk.chat().resume(turn.state)

    assert (desk.effects, [record.flag for record in result.tool_log]) == (["pay 5"], ["ok"])


# ----------------------------------------------------------------------------------- what is said


def test_a_turn_that_is_left_alone_has_the_partial_text(face: Any, sim: Any) -> None:
    """Nobody has to cancel it: at every instant its state has what has come so far, flagged."""
    turn = face.on(sim).start(None, user="Tell me a long story.")
    said: list[str] = []

    for found in turn:
        if isinstance(found, TextDelta):
            said.append(found.text)
            if len(said) == 2:
                break

    assert read_history(turn.state).turns[-1].facts["interrupted"].startswith("".join(said))
    result = turn.result()
    assert "interrupted" not in read_history(result.state).turns[-1].facts
    assert read_history(turn.state).turns[-1].facts == read_history(result.state).turns[-1].facts


def test_another_thread_may_look_at_any_instant(sim: Any) -> None:
    """What it sees is the text so far, flagged, or the whole reply, and never both."""
    said: list[str] = []

    def read() -> None:
        said.extend(turn.text_deltas())

    with Chat(sim.backend(is_async=False)) as chat:
        turn = chat.start(None, user="Tell me a long story.")
        reader = threading.Thread(target=read)
        reader.start()
        seen = {turn.state}
        while reader.is_alive():
            seen.add(turn.state)
        reader.join()
        whole = turn.result().text

    assert whole == "".join(said)
    for state in seen - {b""}:
        for stored in read_history(state).turns:
            partial = stored.facts.get("interrupted", "")
            texts = [message.text for message in stored.messages if message.role == "assistant"]
            assert whole.startswith(partial)
            assert texts in (([whole], []) if not partial else ([],))


def test_what_is_said_while_the_end_is_written_is_refused_or_kept(
    face: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no instant at which a message is taken and then in no state."""
    desk = Desk(face, wire, requires_approval=False)
    desk.script([pay(5)], "Paid.")
    turn = desk.chat().start(None, user="Pay.")
    taken: list[str] = []
    refused: list[str] = []
    dump = turn_state.dump_state

    def dump_late(*args: Any, **fields: Any) -> bytes:
        text = f"Event {len(taken)}."
        try:
            turn.append(event(text))
        except RuntimeError as exc:
            refused.append(str(exc))
        else:
            taken.append(text)
        return dump(*args, **fields)

    monkeypatch.setattr(turn_state, "dump_state", dump_late)
    result = turn.result()
    monkeypatch.undo()

    assert events(result.state) == taken
    assert len(taken) >= 2  # while checkpoints were written
    assert refused
    with pytest.raises(RuntimeError, match="the turn is over"):
        turn.append(event("Too late."))


def test_what_is_said_while_an_error_is_made_is_in_its_state(
    face: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where the turn fails."""
    turn = face.chat(ScriptedBackend(DOWN, wire=wire)).start(None, user="Hi.")
    taken: list[str] = []
    dump = turn_state.dump_state

    def dump_late(*args: Any, **fields: Any) -> bytes:
        if len(taken) < 3:
            text = f"Event {len(taken)}."
            try:
                turn.append(event(text))
                taken.append(text)
            except RuntimeError:
                pass
        return dump(*args, **fields)

    monkeypatch.setattr(turn_state, "dump_state", dump_late)
    with pytest.raises(ProviderUnavailableError) as caught:
        turn.result()
    monkeypatch.undo()

    assert taken
    assert events(caught.value.state) == taken


def test_what_is_said_to_a_repeated_turn_waits_behind_it(face: Any, wire: str) -> None:
    """A redelivery asks no model; the event is answered with the next turn."""
    chat = face.chat(ScriptedBackend("Hello.", "Rain.", wire=wire))
    state = chat.chat(user="Hi.", turn_id="m1").state
    turn = chat.start(state, user="Hi.", turn_id="m1")

    turn.append(event("It rains."))
    result = turn.result()

    assert (result.text, result.duplicate, events(result.state)) == ("Hello.", True, ["It rains."])
    assert inspect_state(result.state).waiting_messages == 1
    assert chat.chat_with_state(result.state).text == "Rain."


def test_what_is_said_to_a_turn_is_something_to_answer(face: Any, wire: str) -> None:
    """A turn may begin with nothing but that."""
    chat = face.chat(ScriptedBackend("Hello.", "Rain.", wire=wire))
    turn = chat.start(chat.chat(user="Hi.").state)

    turn.append(event("It rains."))

    assert turn.result().text == "Rain."


# ---------------------------------------------------------------------------------- what a state says


def test_a_state_says_that_it_waits_whatever_else_happened(face: Any, wire: str) -> None:
    """Also in a checkpoint, and in the error of one that failed."""
    desk = Desk(face, wire)
    waiting = desk.waiting(pay(5), pay(7))
    first, second = (call.id for call in waiting.pending)
    kept: list[bytes] = []

    def keep(blob: bytes) -> None:
        kept.append(blob)
        if len(kept) == 2:
            raise OSError("disk full")

    with pytest.raises(TurnError) as caught:
        desk.chat(on_checkpoint=keep).resume(waiting.state, {first: Approve()})

    for blob in (*kept, caught.value.state):
        assert second in [call.id for call in pending_calls(blob)]
        assert inspect_state(blob).status == "awaiting_tools"


# ------------------------------------------------------------------------------------ idempotency keys


def keys_of(face: Any, *calls: Any, state: bytes | None = None, **fields: Any) -> tuple[list[str], Any]:
    """The keys that a tool is given in one turn, and the turn's result."""
    keys: list[str] = []

    @tool
    def pay(ctx: ToolContext[Any], to: str) -> str:
        """Pay somebody."""
        keys.append(ctx.idempotency_key)
        return "paid"

    backend = ScriptedBackend(*(Calls(list(call)) for call in calls), "Done.")
    result = face.chat(backend, tools=[pay]).chat_with_state(state, user="Pay.", **fields)
    return keys, result


BOB, EVE = ("pay", {"to": "Bob"}), ("pay", {"to": "Eve"})


def test_keys_differ_between_turns_iterations_places_and_arguments(face: Any) -> None:
    """Each effect that is meant has a key of its own."""
    first, result = keys_of(face, [BOB, BOB, EVE], [BOB], conversation_id="ada")
    later, _ = keys_of(face, [BOB, BOB, EVE], [BOB], state=result.state)

    assert len({*first, *later}) == 8


def test_keys_differ_after_a_reset(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that begins anew under the same id is another one."""
    first, _ = keys_of(face, [BOB], conversation_id="ada")
    later = Moment(time.time_ns() // 1_000_000 + 1_000, time.monotonic())
    for edge in (sync_edge, async_edge):
        monkeypatch.setattr(edge, "_now", lambda: later)
    second, _ = keys_of(face, [BOB], conversation_id="ada")

    assert first != second


def test_a_redelivered_turn_has_the_same_keys_even_if_no_state_was_kept(face: Any) -> None:
    """What the first try came to died with its process; the tool's other side still knows the key."""
    first, _ = keys_of(face, [BOB], [EVE], conversation_id="ada", turn_id="m1")
    again, _ = keys_of(face, [BOB], [EVE], conversation_id="ada", turn_id="m1")
    other, _ = keys_of(face, [BOB], [EVE], conversation_id="ada", turn_id="m2")

    assert first == again
    assert not {*first} & {*other}


def test_a_turn_that_was_taken_back_unfinished_has_other_keys_than_the_next(face: Any) -> None:
    """Its number is not given again."""
    keys: list[str] = []

    @tool
    def pay(ctx: ToolContext[Any], to: str) -> str:
        """Pay somebody."""
        keys.append(ctx.idempotency_key)
        return "paid"

    chat = face.chat(ScriptedBackend(Calls([BOB]), DOWN, Calls([BOB]), "Done."), tools=[pay])
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="Pay.")
    chat.chat_with_state(rewind_state(caught.value.state), user="Pay.")

    assert len(keys) == len({*keys}) == 2


# -------------------------------------------------------------------------------------------- usage


def test_a_stream_that_is_left_has_cost_what_it_said_so_far(face: Any, sim: Any) -> None:
    """Anthropic names a request's input tokens in its first event; the other wires name nothing before the
    end."""
    turn = face.on(sim).start(None, user="Tell me a long story.")
    for found in turn:
        if isinstance(found, TextDelta):
            break
    turn.cancel()

    total = inspect_state(turn.state).total_usage
    said_early = sim.wire == "anthropic"
    assert (total.requests, total.input_tokens > 0) == (int(said_early), said_early)


def test_a_stream_that_breaks_off_has_cost_what_it_said_so_far(face: Any, sim: Any) -> None:
    """It is in the error's usage, and in the conversation's."""
    sim.push(Fault.cut_stream(LEAD[sim.wire] + 2))
    with pytest.raises(StreamInterruptedError) as caught:
        face.on(sim).start(None, user="Tell me a long story.").result()

    error = caught.value
    assert error.usage == inspect_state(error.state).total_usage
    assert error.usage.requests == (1 if sim.wire == "anthropic" else 0)
