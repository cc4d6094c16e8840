"""What a turn is in the words of each front end: live, stopped, failed, and read again from the history."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Approve, Chat, Deny, TextDelta, ToolCall, event
from goaitools_py.backends import BackendError
from goaitools_py.frontends import AISDK, PLAIN_JSON, Called, FrontEnd, Said, Step, pieces_of, pieces_since
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, Raw, ScriptedBackend
from goaitools_py.types.events import ModelRequested, ToolFinished, TurnStarted

from ._talk import conversation, fire, frames, parsed, shown

FRONTS = [AISDK, PLAIN_JSON]


def types(written: list[bytes]) -> list[str]:
    return [data if data == "[DONE]" else data["type"] for _, data in parsed(written)]


def names(written: list[bytes]) -> list[str]:
    return [name for name, _ in parsed(written)]


# --------------------------------------------------------------------------------------------- AI SDK


def test_a_turn_is_chunks_in_order() -> None:
    talk = conversation(Calls([("look", {"at": "x"})], text="Hm.", reasoning="Dark."), "Done.")

    written = frames(AISDK, talk.start("Look", turn_id="m1"))

    kinds = types(written)
    assert kinds[0] == "start"
    assert kinds[-3:] == ["finish-step", "finish", "[DONE]"]
    assert [kind for kind in kinds if not kind.endswith("-delta")][1:-3] == [
        "start-step", "reasoning-start", "text-start", "reasoning-end", "text-end",
        "tool-input-available", "tool-output-available", "finish-step",
        "start-step", "text-start", "text-end",
    ]  # fmt: skip
    chunks = [data for _, data in parsed(written[:-1])]
    assert chunks[0] == {"type": "start", "messageId": "hall-1"}
    assert {"type": "tool-output-available", "toolCallId": "call_1_0", "output": {"seen": "x"}} in chunks
    assert chunks[-1]["finishReason"] == "stop"
    assert chunks[-1]["messageMetadata"]["status"] == "complete"


def test_an_approval_is_asked_for_and_given() -> None:
    talk = conversation(Calls([("fire", {"at": "y"})]), "Hit.")

    asked = frames(AISDK, talk.start("Fire", turn_id="m1"))
    given = frames(AISDK, talk.start_resume({"call_1_0": Approve()}), goes_on=True)

    request = {"type": "tool-approval-request", "toolCallId": "call_1_0", "approvalId": "call_1_0"}
    assert parsed(asked)[3][1] == request
    assert parsed(asked)[-2][1]["finishReason"] == "tool-calls"
    assert types(given)[:4] == ["start", "tool-output-available", "finish-step", "start-step"]


def test_a_result_of_a_call_that_the_client_never_saw_is_left_out() -> None:
    """The client's own reader fails on such a chunk."""
    stream = AISDK.stream()
    stream.feed(TurnStarted(conversation_id="k", turn_ref="k-1"))

    assert stream.feed(ToolFinished("c1", "look", 1, "denied", 0.0)) == []
    assert AISDK.stream(goes_on=True).feed(ToolFinished("c1", "look", 1, "denied", 0.0)) != []


def test_a_request_that_is_sent_again_begins_no_step() -> None:
    """A retry shows nothing: nothing of the first reply was told."""
    stream = AISDK.stream()
    once = [frame for at in (1, 1) for frame in stream.feed(ModelRequested(at, 100, turn_ref="k-1"))]

    assert types(once) == ["start", "start-step"]


def test_arguments_that_are_no_json_are_an_error_of_the_input() -> None:
    talk = conversation(Calls([("look", "{at")]), "Sorry.")

    chunks = [data for _, data in parsed(frames(AISDK, talk.start("Look", turn_id="m1"))[:-1])]

    kinds = [chunk["type"] for chunk in chunks if chunk["type"].startswith("tool-")]
    assert kinds == ["tool-input-error", "tool-output-error"]
    (call,) = [part for part in shown(AISDK, talk)[1]["parts"] if part["type"] == "dynamic-tool"]
    assert (call["state"], call["input"]) == ("output-error", "{at")


@pytest.mark.parametrize(("status", "word"), [("length", "length"), ("content_filter", "content-filter")])
def test_how_a_turn_ended_is_said_in_words_that_old_clients_know(status: str, word: str) -> None:
    body = (
        b'{"id":"r","object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"%s",'
        b'"message":{"role":"assistant","content":"Half"}}]}' % status.encode()
    )

    written = frames(AISDK, conversation(Raw.body(body)).start("Go", turn_id="m1"))

    assert parsed(written)[-2][1]["finishReason"] == word


# ---------------------------------------------------------------------------------------- plain events


def test_plain_events_have_names() -> None:
    talk = conversation(Calls([("look", {"at": "x"}), ("fire", {"at": "y"})], text="Now."), "Hit.")

    written = frames(PLAIN_JSON, talk.start("Fire", turn_id="m1"))

    assert [name for name in names(written) if name != "text"] == [
        "started", "tool_call", "tool_call", "tool_result", "pending", "done",
    ]  # fmt: skip
    done = parsed(written)[-1][1]
    assert (done["turn"], done["status"], done["text"]) == ("hall-1", "awaiting_tools", "Now.")
    assert done["pending"] == [
        {"id": "call_1_1", "name": "fire", "arguments": '{"at":"y"}', "reason": "approval"}
    ]


# ------------------------------------------------------------------------------------------------ both


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
def test_an_error_says_its_class_and_no_content(front: FrontEnd) -> None:
    talk = conversation(
        BackendError("Harrogate-4711 is down", status=429, headers={"retry-after": "7"}, body=b"Harrogate")
    )

    written = frames(front, talk.start("Harrogate-4711?", turn_id="m1"))

    text = b"".join(written).decode()
    assert "Harrogate" not in text
    assert "RateLimitError" in text
    assert "7" in text
    assert "error" in (types(written) if front is AISDK else names(written))


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
def test_a_stopped_turn_ends_its_stream(front: FrontEnd) -> None:
    stream = front.stream()
    written: list[bytes] = []
    with conversation("A long story.").start("Go", turn_id="m1") as turn:
        for told in turn:
            written += stream.feed(told)
            if isinstance(told, TextDelta):
                break
    written += stream.stop()

    end = {"aisdk": ["text-end", "finish-step", "abort", "[DONE]"], "plain": ["text", "stopped"]}[front.name]
    assert (types(written) if front is AISDK else names(written))[-len(end) :] == end


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
def test_a_stored_reply_is_written_like_a_live_one(front: FrontEnd) -> None:
    """The pieces of the history give the stream that the turn gave, with the text in one piece."""
    talk = conversation(Calls([("look", {"at": "x"}), ("fail", {"why": "dark"})], "Hm.", "I see."), "Done.")
    live = parsed(frames(front, talk.start("Look", turn_id="m1")))

    (turn,) = talk.history().turns
    stream = front.stream(before=pieces_of(turn))
    begun = stream.feed(TurnStarted(conversation_id="hall", turn_ref="hall-1"))
    again = parsed([*begun, *stream.stop()])

    end = {"aisdk": 2, "plain": 1}[front.name]
    assert _joined(again)[:-end] == _joined(live)[:-end]


def _joined(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The events with neighbouring pieces of text in one."""
    found: list[tuple[str, Any]] = []
    for name, data in events:
        kind = name or (data["type"] if isinstance(data, dict) else data)
        if found and found[-1][0] == kind and kind in ("text", "text-delta", "reasoning", "reasoning-delta"):
            for member in ("text", "delta"):
                if member in data:
                    found[-1][1][member] += data[member]
        else:
            found.append((kind, dict(data) if isinstance(data, dict) else data))
    return found


@pytest.mark.parametrize("front", FRONTS, ids=lambda front: front.name)
def test_a_history_is_messages_with_lasting_ids(front: FrontEnd) -> None:
    """Events and system text are not shown; a speaker is, in plain JSON."""
    talk = conversation("One.", Calls([("fire", {"at": "y"})]), "Hit.")
    talk.append(event("The lamp goes out."))
    talk.send("First", turn_id="m1", context="It is 10:20.")
    first = shown(front, talk)
    talk.send("Second", turn_id="m2")
    talk.resume({"call_2_0": Deny("no")})
    talk.append(event("It rains."))

    found = shown(front, talk)

    assert [message["id"] for message in found] == ["hall-1u", "hall-1", "hall-2u", "hall-2"]
    assert found[:2] == first
    assert "10:20" not in str(found)
    assert "lamp" not in str(found)
    assert ("output-denied" in str(found)) is (front is AISDK)


def test_an_answer_given_twice_continues_where_the_client_stood() -> None:
    """The client has all up to the calls that it answered; it needs their results, and what came then."""
    one, two = (ToolCall(id=id, name="fire", arguments="{}") for id in ("c1", "c2"))
    pieces = (Step(), Said("Now."), Called(one), Called(two), Said("then"))

    assert pieces_since(pieces, {"c1"}) == (Called(two), Said("then"))
    assert pieces_since(pieces, {"c2", "c1"}) == (Said("then"),)
    assert pieces_since(pieces, {"c9"}) == pieces


# ------------------------------------------------------------------------- another chat that is a tool


def test_calls_of_another_chat_are_shown_while_they_wait() -> None:
    """Live and after a reload: with name and arguments, behind the call around them, which has no result."""
    gunner = Chat(
        ScriptedBackend(Calls([("fire", {"at": "y"}), ("fire", {"at": "z"})]), "Hit."), tools=[fire]
    )
    tools = [gunner.as_tool("gunner", "Fires.", store=MemoryStore())]
    chat = Chat(ScriptedBackend(Calls([("gunner", {"message": "Fire!"})]), "Done."), tools=tools)
    talk = chat.conversation(MemoryStore(), "hall", save="checkpoint")

    asked = frames(AISDK, talk.start("Fire", turn_id="m1"))
    parts = shown(AISDK, talk)[-1]["parts"]
    plain = shown(PLAIN_JSON, talk)[-1]["pieces"]
    ids = ["call_1_0/call_1_0", "call_1_0/call_1_1"]
    given = frames(AISDK, talk.start_resume({ids[0]: Approve(), ids[1]: Deny("Too loud.")}), goes_on=True)

    chunks = [data for _, data in parsed(asked[:-1])]
    assert [data["toolCallId"] for data in chunks if data["type"] == "tool-approval-request"] == ids
    inputs = [data for data in chunks if data["type"] == "tool-input-available"]
    assert [(data["toolName"], data["input"]) for data in inputs[1:]] == [
        ("fire", {"at": "y"}), ("fire", {"at": "z"}),
    ]  # fmt: skip
    assert [part.get("state", "step") for part in parts] == [
        "step", "input-available", "step", "approval-requested", "approval-requested",
    ]  # fmt: skip
    assert [(piece["type"], piece["id"]) for piece in plain] == [
        ("tool_call", "call_1_0"),
        ("tool_call", ids[0]), ("pending", ids[0]), ("tool_call", ids[1]), ("pending", ids[1]),
    ]  # fmt: skip
    assert "tool-output-available" in types(given)
    assert [part.get("state", "step") for part in shown(AISDK, talk)[-1]["parts"]] == [
        "step", "output-available", "step", "done",
    ]  # fmt: skip


def test_a_client_that_answers_another_chats_calls_gets_only_what_it_lacks() -> None:
    """The pieces up to these calls are left out."""
    inner = ToolCall(id="c1/c2", name="fire", arguments="{}")
    told = (Step(), Said("Now."), Called(ToolCall(id="c1", name="gunner", arguments="{}")), Called(inner))

    assert pieces_since((*told, Step(), Said("Hit.")), {"c1/c2"}) == (Step(), Said("Hit."))
