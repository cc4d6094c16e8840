"""A conversation goes to another provider API: what is said there is the same, and each loss is named."""

from __future__ import annotations

import json
import random
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    ChatResult,
    Compactor,
    Image,
    KeepRecentTurns,
    Message,
    TurnLimit,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import failed_calls
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain
from goaitools_py.sim import SimServer
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import (
    Conversion,
    Loss,
    convert_state,
    inspect_state,
    pending_calls,
    read_history,
    rewind_state,
    state_from_messages,
    state_messages,
    undo_cut,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.errors import StateAuthError, StateCorruptError, StateTooLargeError
from tests.compaction._histories import WIRES, Book, Said, random_turn

from ._bombs import bomb
from ._recorded import recorded

PAIRS = list(permutations(WIRES, 2))


@pytest.fixture(params=PAIRS, ids=lambda pair: "-to-".join(pair))
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """From which provider API to which."""
    found: tuple[str, str] = request.param
    return found


def heard(message: Message) -> Any:
    """What a message says in any provider API. Ids may differ, and so may the spelling of arguments."""
    calls = tuple((call.name, json.dumps(call.parsed, sort_keys=True)) for call in message.tool_calls)
    return (message.role, message.text, calls, message.is_event, message.topic)


def story(blob: bytes) -> list[Any]:
    return [heard(message) for message in read_history(blob).all_messages()]


def paired(blob: bytes) -> list[tuple[str, str]]:
    """Each result with the arguments of its call."""
    found: list[tuple[str, str]] = []
    asked: dict[str, str] = {}
    for message in read_history(blob).all_messages():
        asked |= {call.id: json.dumps(call.parsed, sort_keys=True) for call in message.tool_calls}
        if message.role == "tool":
            assert message.tool_call_id is not None
            found.append((asked[message.tool_call_id], message.text))
    return found


def refused(wire: str, blob: bytes) -> list[str]:
    """What the simulator refuses in a request with this history and one more message."""
    dialect = dialect_of(wire)
    said = dialect.entries([user("And now?")])
    parts = RequestParts(model="sim-model", history=[*load_state(blob).history(), *said])
    request = dialect.request(parts)
    sim = SimServer()
    headers = {"anthropic-version": "2026-10-21", **request.headers}
    path = request.path if request.path.startswith("/v1") else f"/v1{request.path}"
    response = sim.respond("POST", path, headers, request.body)
    return [*sim.problems, *([] if response.status == 200 else [f"status {response.status}"])]


def random_blob(wire: str, seed: int, *, text_only: bool = False) -> bytes:
    r = random.Random(f"translate/{wire}/{seed}")
    book = Book(wire)
    for _ in range(r.choice([1, 3, 8])):
        turn = random_turn(r, wire)
        if text_only:
            turn = [_without_media(step) for step in turn]
        book.add(*turn, metadata={"n": str(seed)})
    return dump_state(book.state)


def _without_media(step: Any) -> Any:
    from goaitools_py.base.values import replace
    from goaitools_py.types.messages import Text

    if isinstance(step, Message):
        return replace(step, parts=tuple(part for part in step.parts if isinstance(part, Text)))
    results = tuple(tuple(part for part in own if isinstance(part, Text)) for own in step.results)
    return Said(step.text, step.calls, step.reasoning, results)


# ------------------------------------------------------------------------------------------ random ones


@pytest.mark.parametrize("seed", range(20))
def test_a_random_conversation_is_the_same_elsewhere(pair: tuple[str, str], seed: int) -> None:
    """Texts, calls, results, events and context blocks are equal; the other provider takes the history."""
    wire, to = pair
    blob = random_blob(wire, seed, text_only=True)

    found = convert_state(blob, to)

    assert check_history(to, state_messages(found.state)) == []
    assert story(found.state) == story(blob)
    assert paired(found.state) == paired(blob)
    assert {loss.kind for loss in found.losses} <= {"thinking"}
    verify_state(found.state)


@pytest.mark.parametrize("seed", range(20))
def test_there_and_back_is_the_same_conversation(pair: tuple[str, str], seed: int) -> None:
    """With pictures, documents and sounds: what did not go along is counted, all else comes back."""
    wire, to = pair
    blob = random_blob(wire, seed)

    there = convert_state(blob, to)
    back = convert_state(there.state, wire)

    assert check_history(wire, state_messages(back.state)) == []
    lost = sum(loss.count for loss in there.losses if loss.kind == "media")
    media = [part for message in read_history(blob).all_messages() for part in message.parts]
    left = [part for message in read_history(back.state).all_messages() for part in message.parts]
    assert _media(media) - _media(left) == lost
    if not lost:
        assert story(back.state) == story(blob)
    assert len(story(back.state)) == len(story(blob))
    assert paired_calls(back.state) == paired_calls(blob)


def _media(parts: list[Any]) -> int:
    return sum(type(part).__name__ in ("Image", "Document", "Audio") for part in parts)


def paired_calls(blob: bytes) -> list[str]:
    return [call for call, _ in paired(blob)]


@pytest.mark.parametrize("seed", range(6))
def test_the_simulator_takes_it(pair: tuple[str, str], seed: int) -> None:
    """The other provider's simulator, which refuses what the provider refuses, goes on with it."""
    wire, to = pair

    assert refused(to, convert_state(random_blob(wire, seed), to).state) == []


def test_equal_states_give_equal_results_and_a_common_beginning_stays(pair: tuple[str, str]) -> None:
    """So the states of two workers that grew from one can still be joined after a conversion."""
    wire, to = pair
    r = random.Random(5)
    book = Book(wire)
    for _ in range(4):
        book.add(*random_turn(r, wire))
    short = dump_state(book.state)
    book.add(*random_turn(r, wire))
    long = dump_state(book.state)

    assert convert_state(short, to) == convert_state(short, to)
    first = state_messages(convert_state(short, to).state)
    assert state_messages(convert_state(long, to).state)[: len(first)] == first


# ----------------------------------------------------------------------------------------- what goes along


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


PAID: list[int] = []


def rich(wire: str) -> bytes:
    """A state with an archive, a waiting call, a waiting event, metadata, a title and a turn id."""
    script = ["Hello.", "Again.", "Third.", Calls([("pay", {"amount": 5})], text="Let me pay.")]
    with Chat(ScriptedBackend(*script, wire=wire), tools=[pay], system="Be kind.") as chat:
        state = chat.append_to_state(b"", event("It rains. ☔", topic="weather"))
        state = chat.run_turns(state, ["Hello?", "Once more?"], context="Monday").state
        cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
        state = chat.compact_state(state, cut).state
        state = chat.chat_with_state(
            state, messages=[user("A third.", speaker="Ada")], metadata={"a": "b"}, turn_id="t-1"
        ).state
        state = chat.chat_with_state(state, user="Pay 5.", turn_id="t-2").state
        return chat.append_to_state(state, event("It stops.", topic="weather"))


def test_facts_go_along(pair: tuple[str, str]) -> None:
    """Numbers, times, usage, metadata, speakers, waiting messages, turn ids and the archive."""
    wire, to = pair
    blob = rich(wire)

    found = convert_state(blob, to)

    was, now = read_history(blob), read_history(found.state)
    for old, new in zip(was.turns, now.turns, strict=True):
        assert (old.number, old.started_at, old.completed_at) == (
            new.number,
            new.started_at,
            new.completed_at,
        )
        assert (old.metadata, old.failure) == (new.metadata, new.failure)
        for before, after in zip(old.iterations, new.iterations, strict=True):
            assert before.usage == after.usage
            assert (before.model, before.finish_reason) == (after.model, after.finish_reason)
    assert [message.speaker for message in now.all_messages() if message.speaker] == ["Ada"]
    assert [heard(message) for message in was.waiting] == [heard(message) for message in now.waiting]
    old_info, new_info = inspect_state(blob), inspect_state(found.state)
    assert (new_info.wire, new_info.turns, new_info.status) == (to, old_info.turns, old_info.status)
    assert new_info.total_usage == old_info.total_usage
    assert load_state(found.state).meta.cuts[-1].by == "converted"
    whole = read_history(found.state, archived=True)
    assert [turn.number for turn in whole.turns] == [
        turn.number for turn in read_history(blob, archived=True).turns
    ]
    assert whole.turns[0].messages[-1].text == "Hello."
    assert Loss(0, "archive", 1) in found.losses


def test_a_waiting_call_is_answered_elsewhere(pair: tuple[str, str]) -> None:
    """The approval comes after the move: the tool runs once, and the turn ends."""
    wire, to = pair
    PAID.clear()
    blob = convert_state(rich(wire), to).state
    (call,) = pending_calls(blob)
    with Chat(ScriptedBackend("Done.", wire=to), tools=[pay], system="Be kind.") as chat:
        result = chat.resume(blob, {call.id: Approve()})
        again = chat.resume(result.state, {call.id: Approve()})

    assert (PAID, result.text, result.status) == ([5], "Done.", "complete")
    assert again.duplicate
    assert check_history(to, state_messages(result.state)) == []
    assert pending_calls(rich(wire))[0].arguments == call.arguments


def test_a_turn_id_is_known_elsewhere(pair: tuple[str, str]) -> None:
    """A message that was answered before the move and is delivered again gets its stored reply."""
    wire, to = pair
    blob = convert_state(rich(wire), to).state
    with Chat(ScriptedBackend("No.", wire=to), tools=[pay], on_pending="queue") as chat:
        result = chat.chat_with_state(blob, messages=[user("A third.")], turn_id="t-1")

    assert (result.duplicate, result.text) == (True, "Third.")


def codes(result: ChatResult) -> set[str]:
    return {warning.code for warning in result.warnings}


def test_only_a_new_model_is_told_after_a_move(pair: tuple[str, str]) -> None:
    """The preamble and the tools are written in another way, which is no change of them."""
    wire, to = pair
    with Chat(ScriptedBackend("Hello.", wire=wire, model="m"), tools=[pay], system="Be kind.") as chat:
        state = chat.chat_with_state(None, user="Hello?").state
    blob = convert_state(state, to).state
    with Chat(ScriptedBackend("Hi.", "Hi.", wire=to, model="m"), tools=[pay]) as chat:
        told = codes(chat.chat_with_state(blob, user="You?", system="Be kind."))
        bare = codes(chat.chat_with_state(blob, user="You?"))

    assert not told & {"preamble_changed", "tools_changed", "preamble_missing"}
    assert "preamble_missing" in bare


def test_a_cut_from_before_the_move_is_not_undone(pair: tuple[str, str]) -> None:
    """Its turns are written in the other provider's JSON. Later turns can be taken back."""
    wire, to = pair
    blob = convert_state(rich(wire), to).state

    with pytest.raises(ValueError, match="cannot be undone"):
        undo_cut(rewind_state(blob))
    assert [turn.number for turn in read_history(rewind_state(blob, 2)).turns] == [2]


def test_a_sealed_state_stays_sealed(pair: tuple[str, str]) -> None:
    """Under the same key, for the same owner."""
    wire, to = pair
    codec, owner = Encrypted(Keyring(Key.generate())), {"user": "ada"}
    blob = dump_state(load_state(rich(wire)), codec=codec, binding=owner)

    found = convert_state(blob, to, codec=codec, binding=owner)

    assert read_history(found.state, codec=codec, binding=owner).turns
    with pytest.raises(StateAuthError):
        convert_state(found.state, wire, codec=codec, binding={"user": "eve"})
    with pytest.raises(StateAuthError):
        convert_state(blob, to, codec=codec, binding=owner, min_revision=99)


def test_a_state_of_that_provider_api_is_returned_as_it_is(wire: str) -> None:
    """Not one byte changes."""
    blob = rich(wire)

    assert convert_state(blob, wire) == Conversion(blob, ())
    with pytest.raises(ValueError, match="to must be one of openai, openai-responses, anthropic"):
        convert_state(blob, "openai-chat")
    with pytest.raises(StateCorruptError):
        convert_state(blob[:60] + bytes([blob[60] ^ 1]) + blob[61:], "anthropic")


# -------------------------------------------------------------------------------------------- losses


SECRET = "the-thinking-nobody-may-read"
TALK: dict[str, list[dict[str, Any]]] = {
    "openai": [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": "Hello.", "reasoning_content": SECRET},
    ],
    "openai-responses": [
        {"role": "user", "content": "Hello?"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": SECRET}],
            "encrypted_content": SECRET,
        },
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "fox"}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "Hello.",
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url": "https://a.invalid",
                            "title": "A",
                            "start_index": 0,
                            "end_index": 5,
                        }
                    ],
                }
            ],
        },
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "Hello?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": SECRET, "signature": SECRET},
                {"type": "redacted_thinking", "data": SECRET},
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "fox"},
                },
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1",
                    "content": [
                        {
                            "type": "web_search_result",
                            "url": "https://a.invalid",
                            "title": "A fox",
                            "encrypted_content": SECRET,
                        }
                    ],
                },
                {"type": "text", "text": "Hello."},
            ],
        },
    ],
}
LOST = {
    "openai": [("thinking", 1)],
    "openai-responses": [("citations", 1), ("hosted_tool", 1), ("thinking", 1)],
    "anthropic": [("hosted_tool", 2), ("thinking", 2)],
}
HEARD = {
    "openai": "Hello.",
    "openai-responses": '[web_search: {"action": {"query": "fox"}}]\nHello.',
    "anthropic": '[web_search: {"query": "fox"}]\n'
    '[web_search result: [{"url": "https://a.invalid", "title": "A fox"}]]\nHello.',
}


def test_thinking_never_becomes_text_and_hosted_work_does(pair: tuple[str, str]) -> None:
    """Each loss has its turn, its kind and its count; no byte of the thinking is left."""
    wire, to = pair

    found = convert_state(state_from_messages(wire, TALK[wire]), to)

    assert found.losses == tuple(Loss(1, kind, count) for kind, count in LOST[wire])  # type: ignore[arg-type]
    assert SECRET not in json.dumps(state_messages(found.state))
    assert read_history(found.state).all_messages()[1].text == HEARD[wire]
    assert SECRET not in repr(found)
    assert "fox" not in repr(found)


def test_citations_still_point_at_their_words() -> None:
    """The text for the search stands before the reply's own text, so the places move with it."""
    said = TALK["openai-responses"]
    reply = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": said[1:]}
    with SimServer() as sim:
        from goaitools_py.backends import OpenAIResponsesBackend
        from goaitools_py.sim import Reply

        backend = OpenAIResponsesBackend("m", base_url=sim.base_url_for("openai-responses"), api_key="k")
        with Chat(backend) as chat:
            sim.push(Reply.raw(json.dumps(reply).encode()))
            blob = chat.chat(user="Hello?").state
        backend.close()

    (turn,) = read_history(convert_state(blob, "anthropic").state).turns

    (citation,) = turn.citations
    assert turn.messages[-1].text[citation.start : citation.end] == "Hello"


def call_of(wire: str, id: str, name: str, arguments: str) -> list[dict[str, Any]]:
    """A call and its failed result."""
    if wire == "anthropic":
        return [
            {"role": "user", "content": "?"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": id, "content": "no", "is_error": True},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ]
    if wire == "openai":
        call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": "no"},
            {"role": "user", "content": "Go on."},
        ]
    return [
        {"role": "user", "content": "?"},
        {"type": "function_call", "call_id": id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": id, "output": "no"},
        {"role": "user", "content": "Go on."},
    ]


PATTERNS = {"openai": ".{1,40}", "openai-responses": ".{1,64}", "anthropic": "[a-zA-Z0-9_-]{1,64}"}


@pytest.mark.parametrize("id", ["call_Ab-1", "functions.look:0", "x" * 41, "é"])
def test_ids_become_the_targets(pair: tuple[str, str], id: str) -> None:
    """An id that the other provider takes stays, so that answers to waiting calls find it. Others are made
    anew, and call and result stay together."""
    wire, to = pair
    blob = state_from_messages(wire, call_of(wire, id, "look", '{"at":1,"deep":true}'))

    messages = read_history(convert_state(blob, to).state).all_messages()

    (call,) = messages[1].tool_calls
    assert messages[2].tool_call_id == call.id
    assert (call.id == id) is bool(re.fullmatch(PATTERNS[to], id))
    assert re.fullmatch(PATTERNS[to], call.id)
    assert call.arguments == '{"at":1,"deep":true}'


def test_arguments_are_the_same_bytes() -> None:
    """Numbers, escapes and the order of members are those that the model wrote."""
    written = '{"b":1e5, "a":12345678901234567890123,"c":"\\u00e9\\/"}'
    blob = state_from_messages("openai", call_of("openai", "c1", "look", written))

    there = convert_state(blob, "anthropic").state
    back = convert_state(there, "openai-responses").state

    for state in (there, back):
        (call,) = read_history(state).all_messages()[1].tool_calls
        assert call.arguments == written


def test_a_failed_result_stays_failed() -> None:
    """Anthropic's JSON says it; elsewhere the facts of the turn keep it, and back there it is said again."""
    blob = state_from_messages("anthropic", call_of("anthropic", "toolu_1", "look", "{}"))

    there = convert_state(blob, "openai").state
    back = state_messages(convert_state(there, "anthropic").state)

    assert read_history(there).turns[0].facts["flags"] == {"toolu_1": "error"}
    assert any(block.get("is_error") for message in back for block in message["content"])


def test_an_entry_with_many_results_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them have failed. Else the time of a conversion grows with the square of their number."""
    ids = [f"toolu_{number}" for number in range(50)]
    uses = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ids]
    results = [{"type": "tool_result", "tool_use_id": id, "content": "no", "is_error": True} for id in ids]
    given = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
        {"role": "assistant", "content": "Yes."},
    ]
    read: list[bytes] = []

    def failed(dialect: Any, entry: bytes) -> frozenset[str]:
        read.append(entry)
        return failed_calls(dialect, entry)

    monkeypatch.setattr("goaitools_py.history.convert.entries.failed_calls", failed)

    there = convert_state(state_from_messages("anthropic", given), "openai").state

    assert read_history(there).turns[0].facts["flags"] == dict.fromkeys(ids, "error")
    assert len(read) == 1


def test_as_many_calls_are_converted_as_values_are_allowed() -> None:
    """A call with its result has ten values or more. A state from another program may have a million calls in
    one entry, and each takes a twentieth of a millisecond."""
    codec = Plain(limits=BlobLimits(max_values=2_000))
    few, many = (bomb("openai", "calls: zeros", calls) for calls in (250, 401))

    assert len(state_messages(convert_state(few, "anthropic", codec=codec).state)[1]["content"]) == 250
    with pytest.raises(StateTooLargeError, match="found 4010, expected at most max_values=4000"):
        convert_state(many, "anthropic", codec=codec)


def test_a_reply_with_a_million_calls_is_not_converted() -> None:
    """This package takes no such reply. So it is refused before any of them is read."""
    with pytest.raises(StateTooLargeError, match="has 30000 calls or results, expected at most 20000"):
        convert_state(bomb("anthropic", "calls: uses", 150_000), "openai")


@pytest.mark.parametrize("to", ["openai", "openai-responses"])
def test_only_the_failed_one_of_two_results_is_failed(to: str) -> None:
    """A result that the source does not call failed stays a good one, also beside one that is."""
    calls = [{"type": "tool_use", "id": id, "name": "look", "input": {}} for id in ("toolu_1", "toolu_2")]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "seen"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
    ]
    history = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
        {"role": "assistant", "content": "Well."},
    ]

    there = convert_state(state_from_messages("anthropic", history), to).state

    assert list(read_history(there).turns[0].facts["flags"].values()) == ["error"]
    assert [m.text for m in read_history(there).all_messages() if m.role == "tool"] == ["seen", "no"]


def test_parts_of_a_result_that_cannot_be_read_are_counted() -> None:
    """And so is what a picture in it loses."""
    picture = {"type": "input_image", "image_url": "https://a.invalid/a.png", "detail": "high"}
    history = [
        {"role": "user", "content": "?"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "seen"}, picture, {"type": "input_scent", "rose": 1}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well."}]},
    ]

    found = convert_state(state_from_messages("openai-responses", history), "anthropic")

    assert {loss.kind: loss.count for loss in found.losses} == {"unread": 1, "image_detail": 1}


@pytest.mark.parametrize("arguments", ["not json", "[1]", '"a"', "{" * 70])
@pytest.mark.parametrize("wire", ["openai", "openai-responses"])
def test_arguments_that_are_no_object(wire: str, arguments: str) -> None:
    """Anthropic takes objects only: the call has {} then, and the loss says so."""
    blob = state_from_messages(wire, call_of(wire, "c", "look", arguments))

    found = convert_state(blob, "anthropic")

    (call,) = read_history(found.state).all_messages()[1].tool_calls
    assert (call.arguments, [loss.kind for loss in found.losses]) == ("{}", ["arguments"])
    assert found.losses[0].turn == 1


def test_calls_of_a_providers_own_tools_become_calls_of_functions() -> None:
    """A screenshot goes along as the result; the call has the item's members as its arguments."""
    shot = "data:image/png;base64,iVBORw0KGgo="
    blob = state_from_messages(
        "openai-responses",
        [
            {"role": "user", "content": "Look."},
            {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "screenshot"}},
            {
                "type": "computer_call_output",
                "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": shot},
            },
            {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "print(1)"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "1"},
            {"role": "assistant", "content": "Seen."},
        ],
    )

    found = convert_state(blob, "anthropic")
    there = read_history(found.state).all_messages()

    assert [call.name for message in there for call in message.tool_calls] == ["computer_call", "run"]
    assert there[1].tool_calls[0].parsed == {"action": {"type": "screenshot"}}
    assert there[3].tool_calls[0].parsed == {"input": "print(1)"}
    assert [type(part).__name__ for part in there[2].parts] == ["Image"]
    assert {loss.kind for loss in found.losses} == {"provider_call", "custom_call"}
    assert convert_state(blob, "openai").losses == (Loss(1, "media", 1), Loss(1, "provider_call", 1))


def test_blank_messages_get_a_word() -> None:
    """Anthropic refuses messages of white space; without the message the turn would lose its place."""
    blob = state_from_messages(
        "openai",
        [
            {"role": "user", "content": " "},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "Well?"},
            {"role": "assistant", "content": "Yes."},
        ],
    )

    found = convert_state(blob, "anthropic")

    assert check_history("anthropic", state_messages(found.state)) == []
    assert "[empty message]" in json.dumps(state_messages(found.state))
    assert Loss(1, "empty", 2) in found.losses


def test_what_a_later_release_added_is_counted() -> None:
    """It is not carried: nobody knows what it means for another provider."""
    import msgspec

    from goaitools_py.base.values import replace

    book = Book("openai")
    book.add(user("Hello?"), Said("Hello."), mood="calm")
    state = replace(book.state, extras={"mood": msgspec.Raw(b"1e5")})

    found = convert_state(dump_state(state), "anthropic")

    assert found.losses == (Loss(0, "later", 1), Loss(1, "later", 1))
    assert b"mood" not in dump_state(load_state(found.state))
    assert "mood" not in read_history(found.state).turns[0].facts


def test_settings_that_hold_are_those_the_other_provider_has(pair: tuple[str, str]) -> None:
    """A setting of an earlier turn that the other provider API refuses would make each turn fail."""
    from goaitools_py import ModelSettings

    wire, to = pair
    settings = ModelSettings(max_output_tokens=99, **({"seed": 1} if wire == "openai" else {}))
    with Chat(ScriptedBackend("Hello.", wire=wire), settings=settings) as chat:
        blob = chat.chat_with_state(None, user="Hello?", sticky_settings=True).state

    found = convert_state(blob, to)

    assert load_state(found.state).meta.sticky == {"max_output_tokens": 99}
    assert [loss.kind for loss in found.losses] == (["setting"] if wire == "openai" else [])


# ---------------------------------------------------------------------------------- media kept once


def test_a_picture_that_is_stored_once_stays_so(pair: tuple[str, str]) -> None:
    """Shown twice, in a result, waiting and in the archive: it arrives everywhere, and still takes its room
    once. Its archived copy stays where it was."""
    wire, to = pair
    data = random.Random(7).randbytes(9000)
    picture = Image.from_bytes(data, media_type="image/png")

    @tool
    def look() -> list[Any]:
        """Look."""
        return ["A picture:", picture]

    cut = Compactor(TurnLimit(1), KeepRecentTurns(2), retain=True)
    with Chat(ScriptedBackend("A.", Calls([("look", {})]), "B.", "C.", wire=wire), tools=[look]) as chat:
        state = chat.chat_with_state(None, messages=[user("First.", picture)]).state
        state = chat.chat_with_state(state, user="Look.").state
        state = chat.chat_with_state(state, messages=[user("Again.", picture)]).state
        state = chat.compact_state(state, cut).state
        state = chat.append_to_state(state, user("And again.", picture))

    found = convert_state(state, to)

    shown = lambda blob: [  # noqa: E731
        part.data
        for message in read_history(blob, archived=True).all_messages()
        for part in message.parts
        if isinstance(part, Image)
    ]
    lost = sum(loss.count for loss in found.losses if loss.kind == "media")
    count = 3 if wire == "openai" else 4  # Chat Completions has no pictures in results
    assert shown(state) == [data] * count
    assert shown(found.state) == [data] * (count - lost)
    assert lost == (to == "openai")
    assert len(found.state) < 1.4 * len(data)
    assert inspect_state(found.state).media == 1
    verify_state(found.state)
    assert check_history(to, state_messages(found.state)) == []


# ------------------------------------------------------------------------------------------ real ones


def test_recorded_histories_survive(data_dir: Path) -> None:
    """Each history that a provider has accepted, to both other provider APIs and back."""
    count = 0
    for wire, history in recorded(data_dir):
        try:
            blob = state_from_messages(wire, history, repair=True, conversation_id="c", created_ms=0)
        except ValueError:
            continue  # a history that begins with an instruction, say
        for to in WIRES:
            found = convert_state(blob, to)
            assert check_history(to, state_messages(found.state), unique_ids=False) == []
            back = convert_state(found.state, wire)
            assert check_history(wire, state_messages(back.state), unique_ids=False) == []
            assert paired(back.state) == paired(found.state)
            if not refused(wire, blob):
                assert refused(to, found.state) == []
            count += 1
    assert count > 900
