"""A history that one server of an API wrote, at another that takes less.

No conversation is blocked, and what is stored stays as it came."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest

from goaitools_py import (
    Image,
    ModelSettings,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    Tool,
    ToolContext,
    event,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.dialects import dialect_of, host_of
from goaitools_py.backends.host_rules import joined_rules
from goaitools_py.base.values import replace
from goaitools_py.sim import Fault, Reply
from goaitools_py.state.closed_turns import Iteration
from goaitools_py.state.records import HostRow, JournalCall, OpenTurn, with_host
from goaitools_py.state.state import closed_entries, dump_state, load_state
from goaitools_py.states import (
    inspect_state,
    read_history,
    state_from_messages,
    state_messages,
    verify_state,
)
from goaitools_py.testing import Raw, ScriptedBackend, check_history

from ..conftest import Simulator
from ..history._damage import Words, damaged
from ..history._lenient import HABITS, base_history, dumped, is_form, lenient
from ._reading import call_ids, result_ids, results, users

LONG = "t.1:" + "0" * 70
"""An id of a call that no own host takes."""


def habitual(wire: str, *habits: str) -> list[dict[str, Any]]:
    """Two turns, with some habits of lenient servers."""
    history = base_history(Words(wire))
    for habit in habits:
        HABITS[wire][habit](history)
    return history


def codes(result: Any) -> list[str]:
    """The codes of a result's or an error's warnings."""
    return [warning.code for warning in result.warnings]


def habits_of(wire: str) -> list[str]:
    """The names of the habits, in order."""
    return sorted(HABITS[wire])


# ------------------------------------------------------------------------------------- any history


def test_a_refused_history_is_sent_in_another_form(own: Any, sim: Any, wire: str) -> None:
    """Each habit: two requests, the message is answered, and from then on the history is taken at once.

    The stored history has not changed."""
    chat = own()
    for habit in habits_of(wire):
        history = habitual(wire, habit)
        state = state_from_messages(wire, history)
        first = len(sim.requests)

        result = chat.chat_with_state(state, user="What is my name?")
        sent = len(sim.requests)
        after = chat.chat_with_state(result.state, user="And my name?")

        assert sent - first == 2, habit
        assert codes(result) in (["view_changed"], ["thinking_removed"]), habit
        if codes(result) == ["view_changed"]:
            assert state_messages(after.state)[: len(history)] == history, habit
        assert "What is my name?" in users(result.state), habit
        assert (codes(after), len(sim.requests) - sent) == ([], 1), habit
        assert state_messages(after.state)[: len(state_messages(result.state))] == state_messages(
            result.state
        ), habit
        assert verify_state(after.state) == ()


def test_an_import_with_repair_is_taken_at_once(own: Any, sim: Any, wire: str) -> None:
    """What every server takes in the narrow form is in it at the import. The rest waits for a refusal."""
    chat = own()
    for habit in habits_of(wire):
        state = state_from_messages(wire, habitual(wire, habit), repair=True)
        first = len(sim.requests)

        result = chat.chat_with_state(state, user="What is my name?")

        assert len(sim.requests) - first == (1 if is_form(habit) else 2), habit
        told = [[]] if is_form(habit) else [["view_changed"], ["thinking_removed"]]
        assert codes(result) in told, habit
        if not is_form(habit):
            continue
        (row,) = inspect_state(result.state).cuts
        assert row[1] in ("repaired", "unsigned"), habit
        if row[1] == "repaired":
            assert any(turn.facts.get("repaired") for turn in read_history(result.state).turns), habit


@pytest.mark.parametrize("repair", [False, True])
def test_random_histories_wedge_nothing(own: Any, sim: Any, wire: str, repair: bool) -> None:
    """40 histories: the first turn is answered, the second needs one request, and no message is lost."""
    chat = own()
    for seed in range(40):
        history, names = lenient(wire, random.Random(seed), times=random.Random(seed).randint(1, 4))
        state = state_from_messages(wire, history, repair=repair)
        first = len(sim.requests)

        result = chat.chat_with_state(state, user="What is two and two?")
        sent = len(sim.requests)
        after = chat.chat_with_state(result.state, user="And three?")

        told = (seed, names)
        assert sent - first <= (3 if repair else 4), told
        assert users(after.state)[-2:] == ["What is two and two?", "And three?"], told
        assert len(sim.requests) - sent == 1, told
        assert "view_changed" not in codes(after), told
        assert check_history(wire, state_messages(after.state), unique_ids=False) == [], told


def test_damaged_imports_wedge_nothing(own: Any, sim: Any, wire: str) -> None:
    """60 histories with members of any type, entries dropped, doubled or moved: repaired, and taken."""
    chat = own()
    for seed in range(60):
        dice = random.Random(seed)
        entries, names = lenient(wire, dice, times=dice.randrange(3))
        history = [_parsed(e) for e in damaged(dumped(entries), dice, times=dice.randint(1, 5))]
        state = state_from_messages(wire, history, repair=True)
        first = len(sim.requests)

        result = chat.chat_with_state(state, user="What is two and two?")
        sent = len(sim.requests)
        after = chat.chat_with_state(result.state, user="And three?")

        told = (seed, names)
        assert sent - first <= 3, told
        assert users(after.state)[-2:] == ["What is two and two?", "And three?"], told
        assert len(sim.requests) - sent == 1, told


def _parsed(entry: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(entry)
    return entry.decode()


# ----------------------------------------------------------------------------------- what is undone


def test_a_history_that_was_not_to_blame_stays_as_it_was(own: Any, sim: Any, run: Any, wire: str) -> None:
    """The message is poison: the other forms are refused, too, and then nothing was learned."""
    history = habitual(wire, habits_of(wire)[0])
    state = state_from_messages(wire, history)
    chat = own()
    sim.push(Fault.bad_request())  # the history is refused without it

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, state, user="poison")
    err = caught.value
    after = run(chat, err.state, user="What is my name?")

    assert [message.text for message in err.pending_input] == ["poison"]
    assert err.state == state
    assert codes(err) == []
    assert codes(after) == ["view_changed"]
    assert "poison" not in users(after.state)


@pytest.mark.parametrize("times", [1, 2])
def test_what_another_server_needs_is_kept(own: Any, sim: Any, run: Any, wire: str, times: int) -> None:
    """Refused once, the request without it is taken. It stays in the state, for the server that needs it."""
    history = base_history(Words(wire))
    for entry in history:
        if wire == "openai" and entry["role"] == "assistant":
            entry["reasoning_content"] = "Hm."  # DeepSeek refuses a history without it
        if wire == "openai-responses" and entry.get("type") == "function_call":
            entry["extra_content"] = {"google": {"thought_signature": "c2ln"}}
        if wire == "anthropic":
            entry["content"][-1]["cache_control"] = {"type": "ephemeral"}
            break
    state = state_from_messages(wire, history)
    assert state_messages(state_from_messages(wire, history, repair=True)) == history
    sim.push(*[Fault.bad_request()] * times)

    if times == 1:
        result = run(own(), state, user="poison")
        assert codes(result) == ["view_changed"]
        assert state_messages(result.state)[: len(history)] == history
        sent = json.loads(sim.requests[-1].body)
        assert not any(word in json.dumps(sent) for word in ("reasoning_content", "thought_signature"))
        return
    with pytest.raises(ProviderRejectedError) as caught:
        run(own(), state, user="poison")

    assert (caught.value.state, codes(caught.value)) == (state, [])
    assert len(sim.requests) == 2


def test_others_messages_are_not_blamed_for_the_history(own: Any, sim: Any, wire: str) -> None:
    """What had been put there before the turn is not blamed for the history, and is delivered later."""
    state = state_from_messages(wire, habitual(wire, habits_of(wire)[0]))
    chat = own()
    grown = chat.append_to_state(state, event("It rains.", id="rain-1"))

    result = chat.chat_with_state(grown, user="What is my name?")
    after = chat.chat_with_state(result.state, user="And the weather?")

    assert codes(after) == []
    assert sum("It rains." in json.dumps(message) for message in state_messages(after.state)) == 1


# --------------------------------------------------------------------------- the open turn, the archive


@pytest.mark.parametrize("state_of", ["done", "new"])
def test_an_open_turn_goes_on_at_another_server(
    own: Any, sim: Any, wire: str, scores: Any, state_of: str
) -> None:
    """A turn that a lenient server began goes on at the own host. Its tool runs once.

    The call, its result and its flag keep their id. Only the request has another one."""
    words = Words(wire)
    arguments = '{"team":"Red"}'
    entries = words.user("The score of Red?") + words.calls(LONG, arguments=arguments)
    entries = [entry.replace(b'"look"', b'"get_score"') for entry in entries]
    call = JournalCall(id=LONG, name="get_score", arguments=arguments)
    if state_of == "done":
        call = replace(call, state="done", flag="cancelled")
    opened = OpenTurn(
        at=0, entries=tuple(entries), iterations=(Iteration(roles="ua"),), messages=2, calls=(call,)
    )
    before = load_state(state_from_messages(wire, habitual(wire, habits_of(wire)[0])))
    seen: list[str] = []

    def get_score(ctx: ToolContext[None], team: str) -> str:
        """Current score of one team."""
        seen.append(ctx.call_id)
        return str(scores.get_score(team))

    chat = own(tools=[get_score])
    sim.push(Reply.text("7."))

    result = chat.resume(dump_state(replace(before, open=opened)))
    after = chat.chat_with_state(result.state, user="Sure?")

    assert call_ids(result.state)[-1] == result_ids(result.state)[-1] == LONG
    assert LONG not in sim.requests[-1].body.decode()
    assert seen == ([] if state_of == "done" else [LONG])
    flags = read_history(result.state).turns[-1].facts.get("flags")
    assert flags == ({LONG: "cancelled"} if state_of == "done" else None)
    assert codes(after) == []


# ---------------------------------------------------------------------------------- signed thinking


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize("repair", [False, True])
def test_thinking_stays_verbatim_if_whole_responses_come_back(
    sim: Any, own: Any, wire: str, repair: bool
) -> None:
    """``Message.model_dump()`` of signed replies: members go, and each thinking block is sent as it came."""
    chat = own()
    sim.push(Reply.text("Hello Ada.", thinking="A name."), Reply.text("Yes.", thinking="Hm."))
    before = chat.chat_with_state(None, user="My name is Ada.").state
    before = chat.chat_with_state(before, user="Well?").state
    history = state_messages(before)
    HABITS[wire]["responses passed back whole"](history)

    result = chat.chat_with_state(state_from_messages(wire, history, repair=repair), user="What is my name?")

    blocks = [_thoughts(messages) for messages in (state_messages(before), state_messages(result.state))]
    assert len(blocks[0]) == 2
    assert blocks[1][:2] == blocks[0]
    assert "thinking_removed" not in codes(result)


def _thoughts(history: list[Any]) -> list[Any]:
    return [
        block
        for message in history
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "thinking"
    ]


@pytest.mark.parametrize("wire", ["anthropic"])
def test_signed_thinking_stays_beside_thinking_without_a_signature(sim: Any, own: Any, wire: str) -> None:
    """Only what cannot be accepted leaves: the signed block was bound to a history without the other."""
    chat = own()
    sim.push(Reply.text("Hello Ada.", thinking="A name."))
    before = chat.chat_with_state(None, user="My name is Ada.").state
    (signed,) = _thoughts(state_messages(before))
    history = state_messages(before)
    history[1]["content"].insert(0, {"type": "thinking", "thinking": "Without."})

    result = chat.chat_with_state(state_from_messages(wire, history), user="What is my name?")

    assert signed in _thoughts(state_messages(result.state))
    assert _thoughts(json.loads(sim.requests[-1].body)["messages"])[:1] == [signed]
    assert codes(result) == ["view_changed"]


@pytest.mark.parametrize("wire", ["anthropic"])
def test_signed_thinking_is_not_sent_behind_a_change_that_a_model_reads(
    sim: Any, own: Any, wire: str
) -> None:
    """Behind another id of a call no signature is good. So it leaves before the server has to say so."""
    chat = own()
    sim.push(Reply.text("Hello Ada.", thinking="A name."))
    before = chat.chat_with_state(None, user="My name is Ada.").state
    history = habitual(wire, "ids with other characters") + state_messages(before)

    result = chat.chat_with_state(state_from_messages(wire, history), user="What is my name?")

    assert _thoughts(state_messages(result.state)[: len(history)]) == _thoughts(history)
    assert "view_changed" in codes(result)
    assert len(sim.requests) == 3


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_thinking_of_another_server_goes_although_no_words_name_it(
    face: Any, run: Any, wire: str, is_open: bool, scores: Any
) -> None:
    """A gateway says "Bad request" alone, to a history with two causes: other members, and signatures."""
    messages = habitual(wire, "responses passed back whole")
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "deepseek-1"}
    messages[1]["content"].insert(0, thought)
    given = state_from_messages(wire, messages)
    if is_open:
        words = Words(wire)
        arguments = '{"team":"Red"}'
        said, (call,) = words.user("The score of Red?"), words.calls("c9", arguments=arguments)
        call = call.replace(b'"look"', b'"get_score"').replace(
            b'[{"', json.dumps([thought])[:-1].encode() + b',{"', 1
        )
        asked = JournalCall(id="c9", name="get_score", arguments=arguments)
        opened = OpenTurn(
            at=0, entries=(*said, call), iterations=(Iteration(roles="ua"),), messages=2, calls=(asked,)
        )
        before = load_state(given)
        given = dump_state(replace(before, open=opened, meta=replace(before.meta, signed=True)))
    with Simulator(rules="litellm", vague=True) as gateway:
        gateway.wire, gateway.is_other = wire, True
        chat = face.on(gateway, tools=[scores.get_score])
        result = chat.resume(given) if is_open else run(chat, given, user="What is my name?")
        after = run(chat, result.state, user="Sure?")

        assert {"view_changed", "thinking_removed"} <= set(codes(result))
        assert "deepseek-1" not in json.dumps(state_messages(result.state))
        assert [len(request.problems) > 0 for request in gateway.requests][-2:] == [False, False]
        assert len(gateway.requests) <= 5
        assert codes(after) == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_the_thinking_of_an_open_turn_may_be_dropped_behind_a_changed_view(
    sim: Any, own: Any, wire: str, scores: Any
) -> None:
    """It stays in the state, and the request says that the server may drop it: one refusal, not two."""
    chat = own(tools=[scores.get_score])
    sim.push(Reply.calls(("get_score", '{"team":"Red"}'), thinking="Hm."), Fault.error(503, "overloaded"))
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(None, user="The score of Red?")
    other = load_state(state_from_messages(wire, habitual(wire, "ids with other characters")))
    opened = load_state(caught.value.state)
    meta = replace(other.meta, signed=True, model=opened.meta.model, family=opened.meta.family)
    meta = replace(meta, tools=opened.meta.tools, preamble=opened.meta.preamble)
    first = len(sim.requests)
    sim.push(Reply.text("7."))

    result = chat.resume(dump_state(replace(other, open=opened.open, meta=meta)))

    assert len(sim.requests) - first == 2
    assert "drop_block" in sim.requests[-1].body.decode()
    assert opened.open is not None
    assert opened.open.entries[-1] in closed_entries(load_state(result.state))
    assert scores.runs == ["Red"]


@pytest.mark.parametrize("words", ["no", "messages.1.content.0: Invalid `signature` in `thinking` block"])
def test_a_server_that_refuses_everything_is_asked_a_few_times(face: Any, words: str) -> None:
    """Also if a change is found again and again: here a message that is never taken out of an open turn."""
    thought = b'{"role":"user","content":[{"type":"thinking","thinking":"x","signature":"s"}]}'
    before = load_state(state_from_messages("anthropic", base_history(Words("anthropic"))))
    opened = OpenTurn(at=0, entries=(thought,), letters="u", messages=1)
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": words}})
    refused = BackendError("no", status=400, body=body.encode())
    backend = ScriptedBackend(*[refused] * 20, wire="anthropic")

    with pytest.raises(ProviderRejectedError):
        face.chat(backend).resume(dump_state(replace(before, open=opened)))

    assert 2 <= len(backend.requests) <= 4


# ----------------------------------------------------------------- a fallback between servers of one API


REPLIES = {
    "openai": {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}],
                    "reasoning_content": "Hm.",
                    "tool_calls": [
                        {"id": LONG, "function": {"name": "get_score", "arguments": '{"team":"Red"}'}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "openai-responses": {
        "status": "completed",
        "output": [
            {
                "type": "reasoning",
                "id": "think-1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
            {
                "type": "function_call",
                "id": "chatcmpl-1",
                "call_id": LONG,
                "name": "get_score",
                "arguments": '{"team":"Red"}',
            },
        ],
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "tool_use", "id": LONG, "name": "get_score", "input": {"team": "Red"}},
        ],
        "stop_reason": "tool_use",
    },
}
"""Replies of lenient servers that call a tool."""


def test_the_own_host_takes_up_a_turn_of_a_lenient_server(
    face: Any, sim: Any, wire: str, scores: Any
) -> None:
    """The first provider is down after its reply: its call has run, and the fallback reads the result."""
    body = json.dumps({"id": "r", "model": "m", "usage": {}, **REPLIES[wire]}).encode()
    first = ScriptedBackend(Raw.body(body), BackendError("down", status=503), wire=wire, model="lenient")
    host = sim.backend(is_async=face.is_async)
    host.dialect = dialect_of(wire)
    chat = face.chat(first, tools=[scores.get_score], fallbacks=[host])

    result = chat.chat_with_state(None, user="The score of Red?")
    (again,) = [face.chat(host, tools=[scores.get_score])]
    after = again.chat_with_state(result.state, user="Sure?")

    assert scores.runs == ["Red"]
    assert results(result.state) == ["Red has 7 points"]
    assert call_ids(result.state) == result_ids(result.state) == [LONG]
    assert users(after.state) == ["The score of Red?", "Sure?"]
    refused = [len(request.problems) > 0 for request in sim.requests]
    assert refused[-2:] == [False, False]
    assert refused[:-2] in ([True], [True, True])  # each refusal names one rule


# ------------------------------------------------------------------------ what a state remembers of hosts


def test_a_refusal_by_a_fallback_counts_as_the_failure_before(face: Any, wire: str, scores: Any) -> None:
    """The fallback refuses each form. The message stays, and the error is the first provider's."""
    down = BackendError("down", status=503)
    refused = BackendError("no", status=400, body=b'{"error":{"message":"no"}}')
    first = ScriptedBackend(down, "Hello.", wire=wire)
    second = ScriptedBackend(*[refused] * 5, wire=wire, model="other")
    chat = face.chat(first, fallbacks=[second])

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(None, user="Hello?")
    err = caught.value
    result = chat.resume(err.state)

    assert (err.retryable, err.pending_input, err.status_code) == (True, (), 400)
    assert "fallback" in str(err)
    assert (result.text, users(result.state)) == ("Hello.", ["Hello?"])


def test_a_state_remembers_eight_hosts() -> None:
    """The oldest goes, a host that is seen again becomes the newest, and letters of a later release stay."""
    rows: tuple[HostRow, ...] = ()
    for number in range(9):
        rows = with_host(rows, f"{number:08x}", "ar")
    rows = with_host(rows, f"{3:08x}", joined_rules("ar\u00e9", "k"))

    assert [row.host for row in rows] == [f"{number:08x}" for number in (1, 2, 4, 5, 6, 7, 8, 3)]
    assert rows[-1].rules == "ak\u00e9"


@pytest.mark.parametrize(
    ("base_url", "host"),
    [
        (None, ""),
        ("https://api.openai.com/v1", ""),
        ("https://api.mistral.ai/v1", "api.mistral.ai"),
        ("http://127.0.0.1:11434/v1", "127.0.0.1:11434"),
        ("http://[::1]:8080/v1", "::1:8080"),
        ("http://127.0.0.1:99999/v1", "127.0.0.1"),
    ],
)
def test_hosts_are_told_apart_by_their_port(base_url: str | None, host: str) -> None:
    """Two local servers with other ports are two hosts. The companies' own hosts have no name."""
    assert host_of(base_url) == host


# -------------------------------------------------------- a server that refuses what its own model wrote


GROQ = {
    "error": {
        "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more "
        "details.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": '<function=get_score({"team":"Red"}</function>',
    }
}
"""As Groq writes it."""


@pytest.mark.parametrize("times", [2, 3])
def test_a_malformed_call_of_the_model_does_not_cost_the_message(
    face: Any, run: Any, wire: str, scores: Any, clock: Any, times: int
) -> None:
    """Two more tries. Then the error is the provider's, and the message stays in the state.

    Nothing of what the model wrote is in the history."""
    refused = BackendError("no", status=400, body=json.dumps(GROQ).encode())
    backend = ScriptedBackend(*[refused] * times, "7.", "Sure.", wire=wire, max_retries=2)
    chat = face.chat(backend, tools=[scores.get_score])

    if times == 2:
        assert run(chat, None, user="The score of Red?").text == "7."
        return
    with pytest.raises(ProviderProtocolError) as caught:
        run(chat, None, user="The score of Red?")
    err = caught.value
    result = chat.resume(err.state)

    assert (err.retryable, err.pending_input, err.code) == (True, (), "tool_use_failed")
    assert err.partial_text == GROQ["error"]["failed_generation"]
    assert "failed_generation" not in repr(err) + str(err)
    assert len(backend.requests) == 4
    assert users(result.state) == ["The score of Red?"]
    assert "function=" not in json.dumps(state_messages(result.state))


# --------------------------------------------------------------------------------- a forced choice of a tool


THINKS = {
    "error": {"message": "Thinking mode does not support this tool_choice", "type": "invalid_request_error"}
}
"""As DeepSeek writes it."""


def test_a_forced_choice_that_a_model_refuses_is_left_to_the_model(face: Any, wire: str, scores: Any) -> None:
    """It is asked otherwise, with a warning; the next turn asks so at once, and says so."""
    refused = BackendError("no", status=400, body=json.dumps(THINKS).encode())
    backend = ScriptedBackend(refused, "7.", "8.", wire=wire)
    chat = face.chat(backend, tools=[scores.get_score], settings=ModelSettings(tool_choice="required"))

    result = chat.chat_with_state(None, user="The score of Red?")
    after = chat.chat_with_state(result.state, user="And of Blue?")

    assert (result.text, codes(result)) == ("7.", ["view_changed"])
    assert (after.text, codes(after)) == ("8.", ["settings_changed"])
    sent = [json.loads(request.body).get("tool_choice") for request in backend.requests]
    assert sent[0] not in (None, "auto", {"type": "auto"})
    assert all(choice in (None, "auto", {"type": "auto"}) for choice in sent[1:])


def test_more_tools_than_the_host_takes_are_said_before_the_request(face: Any, wire: str) -> None:
    """At OpenAI, 128. The state is as before, and nothing was asked."""
    backend = ScriptedBackend("7.", wire=wire)
    tools = [Tool(f"look{number}", "Look.", {"type": "object"}, external=True) for number in range(129)]
    own = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}[wire]
    backend.dialect = dialect_of(wire, family=own)
    chat = face.chat(backend, tools=tools)

    if own == "anthropic":
        assert chat.chat_with_state(None, user="Hello?").text == "7."
        return
    with pytest.raises(ValueError, match="takes at most 128 tools in a request, and 129 were given"):
        chat.chat_with_state(None, user="Hello?")
    assert backend.requests == []


# ------------------------------------------------------------------------------------------- many pictures


def picture(number: int, width: int) -> Image:
    """The head of a PNG of this width, and some bytes."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4, "big") + (9).to_bytes(4, "big")
    return Image.from_bytes(head + bytes([number]) * 5000, "image/png")


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize("width", [2000, 2001])
def test_older_pictures_are_left_out_if_they_are_too_many_and_too_large(
    face: Any, wire: str, width: int
) -> None:
    """Anthropic takes more than 20 pictures only if none is larger. The stored history keeps all of them."""
    backend = ScriptedBackend("Many.", "Yes.", wire=wire)
    chat = face.chat(backend)
    before = chat.chat_with_state(None, messages=[user("Look.", *(picture(n, width) for n in range(21)))])

    result = chat.chat_with_state(before.state, user="Sure?")

    sent = [request.body.count(b'"image/png"') for request in backend.requests]
    if width == 2000:
        assert (sent, codes(result)) == ([21, 21], [])
        return
    assert sent[0] == 21
    assert 0 < sent[1] <= 20
    assert codes(result) == ["view_changed"]
    assert "image: " in result.warnings[0].message
    assert json.dumps(state_messages(result.state)).count('"image/png"') == 21
