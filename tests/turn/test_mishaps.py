"""Failures in odd places: the turn keeps what it has, and the conversation goes on."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from goaitools_py import (
    CheckpointError,
    Compactor,
    DeadlineExceededError,
    Image,
    KeepRecentTurns,
    ModelReplied,
    ModelSettings,
    ProviderRejectedError,
    ProviderUnavailableError,
    StateInvalidError,
    StateSizeError,
    TokenLimit,
    Tool,
    ToolStarted,
    event,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.base.values import replace
from goaitools_py.state.records import Meta
from goaitools_py.state.state import ConversationState, dump_state, load_state
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history

REPLY = b'{"choices":[{"message":{"role":"assistant","content":"fine"},"finish_reason":"stop"}]}'
STREAMED = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"all of it"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def test_a_message_that_never_fits_does_not_cost_the_history(face: Any) -> None:
    """A picture beyond the size limit is refused, and every earlier turn is still there."""
    backend = ScriptedBackend(*["yes"] * 6)
    chat = face.chat(backend)
    state = chat.run_turns(None, ["a", "b", "c", "d", "e", "f"]).state
    picture = Image.from_bytes(b"\x89PNG" * 5_000_000)

    with pytest.raises(StateSizeError, match="nothing was sent") as caught:
        chat.chat_with_state(state, messages=[user("look", picture)])

    assert caught.value.state == state
    assert [len(message.parts) for message in caught.value.pending_input] == [2]
    assert len(backend.requests) == 6


def test_a_backend_that_fails_in_its_own_way_loses_no_tool_result(face: Any) -> None:
    """Any exception of a backend becomes a typed error with the state; `resume` runs no tool again."""
    runs: list[int] = []

    def note(number: int) -> str:
        """Note a number."""
        runs.append(number)
        return "noted"

    backend = ScriptedBackend(Calls([("note", {"number": 7})]), RuntimeError("secret detail"), "done")
    chat = face.chat(backend, tools=[note])

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat(user="note 7")
    result = chat.resume(caught.value.state)

    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert (result.text, runs) == ("done", [7])


@pytest.mark.parametrize("after", [b"", BackendError("reset", kind="interrupted")], ids=["end", "reset"])
def test_a_reply_that_had_ended_is_whole_whatever_follows(face: Any, after: Any) -> None:
    """What the connection does after the terminal event does not matter to the reply."""
    chat = face.chat(ScriptedBackend(Raw([STREAMED, after])))

    result = chat.start(None, user="go").result()

    assert (result.text, result.status) == ("all of it", "complete")


def test_a_connection_that_stays_open_after_the_reply_is_not_waited_for(face: Any) -> None:
    """After the terminal event nothing more is read."""
    unread = BackendError("must not be read", kind="interrupted")
    backend = ScriptedBackend(Raw([STREAMED, unread]), "next")
    chat = face.chat(backend)

    state = chat.start(None, user="go").result().state

    assert chat.chat_with_state(state, user="on").text == "next"


def test_a_failed_checkpoint_waits_for_the_tools_that_run(face: Any) -> None:
    """When `on_checkpoint` fails beside running tools, their results are kept; nothing else starts."""
    both = threading.Barrier(2, timeout=10)
    started: list[str] = []

    def meet(name: str) -> str:
        """Meet the other one."""
        started.append(name)
        if name != "late":
            both.wait()
        return f"{name} was there"

    blobs: list[bytes] = []

    def keep(blob: bytes) -> None:
        blobs.append(blob)
        if len(blobs) == 4:  # the reply, both starts, and now the first result
            raise OSError("disk full")

    calls = Calls([("meet", {"name": "one"}), ("meet", {"name": "two"}), ("meet", {"name": "late"})])
    chat = face.chat(ScriptedBackend(calls, "done"), tools=[meet], tool_threads=True, tool_concurrency=2)

    with pytest.raises(CheckpointError) as caught:
        chat.chat(user="go", on_checkpoint=keep)
    result = chat.resume(caught.value.state)

    assert [record.result for record in result.tool_log] == [
        "one was there",
        "two was there",
        "late was there",
    ]
    assert sorted(started) == ["late", "one", "two"]


def test_appending_from_a_tool_thread_loses_nothing(face: Any) -> None:
    """Messages appended while tools run reach the next request, and every result does too."""
    turns: list[Any] = []

    def tell(number: int) -> str:
        """Tell the turn something."""
        turns[0].append(event(f"thing {number}"))
        return f"told {number}"

    backend = ScriptedBackend(Calls([("tell", {"number": n}) for n in range(6)]), "done")
    chat = face.chat(backend, tools=[tell], tool_threads=True)
    turns.append(chat.start(None, user="go"))

    result = turns[0].result()

    said = [message.get("content") or "" for message in backend.bodies()[-1]["messages"]]
    assert [record.result for record in result.tool_log] == [f"told {n}" for n in range(6)]
    assert sum("thing " in str(text) for text in said) == 6
    assert check_history("openai", state_messages(result.state)) == []


def test_a_server_that_does_not_count_is_estimated(face: Any) -> None:
    """Without usage the history's tokens are estimated, so that a token limit still fires."""
    chat = face.chat(ScriptedBackend(*[Raw.body(REPLY)] * 12))
    compactor = Compactor(TokenLimit(200), KeepRecentTurns(2))
    state = None

    for _ in range(12):
        state = chat.chat_with_state(state, user="word " * 40, compactor=compactor).state

    assert inspect_state(state).turns <= 4


def test_a_complete_answer_is_not_asked_for_again(face: Any) -> None:
    """A state taken at the very end of a turn holds the closed turn."""
    backend = ScriptedBackend("the answer")
    chat = face.chat(backend)
    turn = chat.start(None, user="go")

    snapshots = [turn.state for found in turn if isinstance(found, ModelReplied)]

    assert [message.text for message in read_history(snapshots[0]).all_messages()] == ["go", "the answer"]
    with pytest.raises(ValueError, match="nothing to resume"):
        chat.resume(snapshots[0])


def test_a_snapshot_between_the_tools_resumes_without_running_them_again(face: Any) -> None:
    """A state taken when a tool starts is resumable; the call is in doubt and not run twice."""
    backend = ScriptedBackend(Calls([("pay", {"amount": 3})]), "paid", "resumed")
    chat = face.chat(backend, tools=[pay])
    turn = chat.start(None, user="pay 3")
    snapshots = [turn.state for found in turn if isinstance(found, ToolStarted)]

    result = chat.resume(snapshots[0])

    assert [(record.flag, record.synthetic) for record in result.tool_log] == [("unknown", True)]


def test_stored_settings_cannot_smuggle_anything_in(face: Any) -> None:
    """Only the settings that may stick are taken from a state."""
    sticky = {"extra_headers": {"Authorization": "x"}, "model": "other", "temperature": 0.5, "later": 1}
    blob = dump_state(ConversationState(meta=Meta(wire="openai", id="i", sticky=sticky)))
    backend = ScriptedBackend("fine")

    face.chat(backend, sticky_settings=True).chat_with_state(blob, user="go")

    body = backend.bodies()[0]
    assert (body["model"], body["temperature"], "later" in body) == ("scripted", 0.5, False)
    assert "Authorization" not in backend.requests[0].headers


def test_a_context_alone_is_nothing_to_answer(face: Any) -> None:
    """`context=` rides on a message; without one there is nothing new, and no model is asked."""
    backend = ScriptedBackend("fine")
    chat = face.chat(backend)
    state = chat.chat(user="go").state

    for call in (chat.resume, chat.chat_with_state):
        with pytest.raises(ValueError, match="nothing"):
            call(state, context="noon")

    assert len(backend.requests) == 1


def test_refused_messages_can_be_sent_again_with_their_context(face: Any) -> None:
    """`pending_input` goes back in as it is: the context in front of it is not doubled."""
    refusal = BackendError("400", status=400, body=b'{"error":{"message":"no"}}')
    backend = ScriptedBackend(refusal, "fine")
    chat = face.chat(backend, context="noon")

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat(user="hello")
    chat.chat_with_state(caught.value.state, messages=caught.value.pending_input)

    first, second = (body["messages"] for body in backend.bodies())
    assert first == second


def test_a_failure_after_a_discarded_state_names_the_old_bytes(face: Any) -> None:
    """When a damaged state was set aside and the provider fails too, the error holds the damaged bytes."""
    down = BackendError("down")
    chat = face.chat(ScriptedBackend(down))

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(b"\xf5GAS damaged", user="hello")

    assert caught.value.discarded is not None
    assert caught.value.discarded.blob == b"\xf5GAS damaged"
    assert [warning.code for warning in caught.value.warnings] == ["state_discarded"]


def test_a_schema_that_fails_while_checking_is_told_to_the_model(face: Any) -> None:
    """A tool whose schema cannot check the arguments gives an error result, not a lost turn."""
    schemas = iter([{"type": "object", "properties": {}}])
    odd = Tool("odd", "Odd.", lambda deps: next(schemas), lambda: "never")
    chat = face.chat(ScriptedBackend(Calls([("odd", {})]), "done"), tools=[odd])

    result = chat.chat(user="go")

    assert [record.flag for record in result.tool_log] == ["error"]
    assert result.text == "done"


def test_a_binding_without_a_keyed_codec_is_refused_before_anything_is_sent(face: Any) -> None:
    """A plain blob cannot be bound; that is said before a model is paid."""
    backend = ScriptedBackend("fine")

    with pytest.raises(ValueError, match="plain"):
        face.chat(backend).chat(user="go", binding={"tenant": "t"})

    assert backend.requests == []


def test_rewritten_call_ids_stay_unique_across_a_resume(face: Any) -> None:
    """A server that repeats its ids gets fresh ones for them, also when the turn is resumed."""

    def same(_: Any) -> Raw:
        call = b'{"id":"call_0","type":"function","function":{"name":"pay","arguments":"{\\"amount\\":1}"}}'
        message = b'{"role":"assistant","content":null,"tool_calls":[' + call + b"]}"
        return Raw.body(b'{"choices":[{"message":' + message + b',"finish_reason":"tool_calls"}]}')

    def stop(blob: bytes) -> None:
        if inspect_state(blob).open_calls == 0:
            raise OSError("stop here")

    chat = face.chat(ScriptedBackend(same, same, same, "done"), tools=[pay])
    state = None
    call: Any = functools.partial(chat.chat, user="pay")
    for _ in range(3):
        with pytest.raises(CheckpointError) as caught:
            call(on_checkpoint=stop)
        state = caught.value.state
        call = functools.partial(chat.resume, state)

    result = chat.resume(state, settings=ModelSettings(temperature=0.0))

    ids = [call.id for message in read_history(result.state).all_messages() for call in message.tool_calls]
    assert len(ids) == len(set(ids)) == 3
    assert check_history("openai", state_messages(result.state)) == []


TOO_LARGE = BackendError("413", status=413, body=b"Payload Too Large")


def test_a_request_that_is_too_large_is_sent_once_more_with_less_history(face: Any) -> None:
    """A 413 that the history is to blame for costs old turns, not the conversation."""
    backend = ScriptedBackend("1", "2", "3", "4", TOO_LARGE, "fine")
    chat = face.chat(backend)
    state = chat.run_turns(None, ["a", "b", "c", "d"]).state

    result = chat.chat_with_state(state, user="e")

    assert result.text == "fine"
    assert [warning.code for warning in result.warnings] == ["emergency_cut"]
    assert len(backend.bodies()[-1]["messages"]) < len(backend.bodies()[-2]["messages"])


def test_a_message_that_is_too_large_leaves_the_history_alone(face: Any) -> None:
    """A 413 that a cut does not help is the new message's fault: the state is the one that was given."""
    backend = ScriptedBackend("1", "2", "3", "4", TOO_LARGE, TOO_LARGE, "fine")
    chat = face.chat(backend)
    state = chat.run_turns(None, ["a", "b", "c", "d"]).state

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(state, user="much too much")

    assert caught.value.state == state
    assert [message.text for message in caught.value.pending_input] == ["much too much"]
    assert chat.chat_with_state(caught.value.state, user="less").text == "fine"


@pytest.mark.parametrize("ids", [(), ("call_1_0", "made_up"), ("made_up",)])
def test_a_journal_of_other_calls_is_refused(face: Any, ids: tuple[str, ...]) -> None:
    """A state whose journal names calls that the reply did not make is invalid, and nothing is sent."""
    first = ScriptedBackend(Calls([("pay", {"amount": 1}), ("pay", {"amount": 2})]))
    turn = face.chat(first, tools=[pay]).start(None, user="pay")
    blob = next(turn.state for found in turn if isinstance(found, ToolStarted))
    state = load_state(blob)
    assert state.open is not None
    calls = tuple(replace(state.open.calls[0], id=name) for name in ids) or state.open.calls[:1]
    backend = ScriptedBackend("never")

    with pytest.raises(StateInvalidError, match="journal"):
        face.chat(backend, tools=[pay]).resume(
            dump_state(replace(state, open=replace(state.open, calls=calls)))
        )

    assert backend.requests == []


def test_a_message_appended_between_two_refusals_is_not_lost(face: Any) -> None:
    """What comes in while a request that is too large is cut and sent again is in `pending_input` too."""
    turns: list[Any] = []

    def refuse(_: Any) -> BackendError:
        turns[0].append(event(f"thing {len(backend.requests)}"))
        return TOO_LARGE

    backend = ScriptedBackend("1", "2", "3", "4", refuse, refuse)
    chat = face.chat(backend)
    state = chat.run_turns(None, ["a", "b", "c", "d"]).state
    turns.append(chat.start(state, user="e"))

    with pytest.raises(ProviderRejectedError) as caught:
        turns[0].result()

    assert [message.text for message in caught.value.pending_input] == ["e", "thing 5", "thing 6"]
    assert inspect_state(caught.value.state).turns == 4


def test_an_answer_that_comes_whole_at_the_last_moment_is_kept(face: Any, clock: Any) -> None:
    """A body that was complete when the deadline passed is an answer; one that was not is the deadline's."""

    def late(body: bytes) -> Any:
        def answer(_: Any) -> Raw:
            clock.advance(100)
            return Raw.body(body)

        return answer

    chat = face.chat(ScriptedBackend(late(REPLY), late(REPLY[:-5])), timeout=50.0)

    assert chat.chat(user="go").text == "fine"
    with pytest.raises(DeadlineExceededError):
        chat.chat(user="go")
