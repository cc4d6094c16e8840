"""All wires, both chats, unary and streamed, against aimock: a server that this project did not write.

What a request said is read in aimock's journal, so it is aimock's understanding of our bytes that counts,
not our own. aimock runs strictly: a request that no fixture of the test matches is refused.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from goaitools_py import (
    AuthenticationError,
    Compactor,
    KeepRecentTurns,
    ModelSettings,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    ReasoningDelta,
    StreamInterruptedError,
    TextDelta,
    TokenLimit,
    ToolCall,
    TurnError,
    event,
)
from goaitools_py.states import inspect_state, read_history

LONG = "A rather long answer, which comes in many pieces, each of them at most twenty characters long."
ODD = '“Ada” — naïve\n\t"quoted" \\back\\ </script> 🙂 \u2028 \x7f e\u0301 {"a": [1]}'
"""Text that only survives if nobody rewrites it on the way."""


def says(text: str, *, to: str = "", **response: Any) -> dict[str, Any]:
    """A fixture that answers with text, if the last user message has `to` in it."""
    return {"match": {"userMessage": to} if to else {}, "response": {"content": text, **response}}


def calls(*named: tuple[str, dict[str, Any]], **response: Any) -> dict[str, Any]:
    """A fixture that answers with tool calls, as long as the turn has no tool result."""
    wanted = [{"name": name, "arguments": arguments} for name, arguments in named]
    return {"match": {"hasToolResult": False}, "response": {"toolCalls": wanted, **response}}


def fails(status: int, **more: Any) -> dict[str, Any]:
    """A fixture that answers the test's first request with an HTTP error."""
    error = {"message": "it says so", "type": "some_error"}
    return {"match": {"sequenceIndex": 0}, "response": {"error": error, "status": status, **more}}


class Board:
    """A tool that counts its runs."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_score(self, team: str) -> str:
        """Current score of one team.

        Args:
            team: The team's name.
        """
        self.asked.append(team)
        return f"{team} has {len(self.asked)} points"


# ------------------------------------------------------------------------------------------ turns of text


def test_a_plain_turn(scene: Any, run: Any) -> None:
    """A question arrives behind the preamble, and the answer is the server's."""
    scene.answers(says(ODD, to="Hello?"))
    chat = scene.chat(system="You are a guide.")

    result = run(chat, user="Hello?")

    assert (result.text, result.status, result.model) == (ODD, "complete", "aimock")
    assert scene.transcripts == [[("system", "You are a guide."), ("user", "Hello?")]]
    assert scene.entries[0]["body"].get("stream", False) is run.is_streamed


def test_text_comes_in_pieces(scene: Any) -> None:
    """A streamed answer is heard piece by piece, and nothing of it is lost."""
    scene.answers(says(LONG))
    chat = scene.chat()

    turn = chat.start(None, user="Hello?")
    pieces = [heard.text for heard in turn if isinstance(heard, TextDelta)]

    assert len(pieces) == -(-len(LONG) // 20)
    assert "".join(pieces) == turn.result().text == LONG


def test_the_second_request_carries_the_first_answer(scene: Any, run: Any) -> None:
    """What was said, odd characters and all, is in the next request as it was said."""
    scene.answers(says(ODD, to="First"), says("And this.", to="Second"))
    chat = scene.chat()

    first = run(chat, user=f"First {ODD}")
    second = run(chat, first.state, user="Second")

    assert second.text == "And this."
    assert scene.transcripts[1] == [("user", f"First {ODD}"), ("assistant", ODD), ("user", "Second")]


def test_a_conversation_only_grows(scene: Any, run: Any) -> None:
    """Each request says all that the one before it said, its answer, and the new question."""
    scene.answers(*(says(f"Answer {n}.", to=f"Question {n}.") for n in range(12)))
    chat = scene.chat(system="You are a guide.")

    state = None
    for n in range(12):
        state = run(chat, state, user=f"Question {n}.").state

    asked = scene.transcripts
    assert [len(said) for said in asked] == [2 * n + 2 for n in range(12)]
    for earlier, later in itertools.pairwise(asked):
        assert later[: len(earlier)] == earlier


def test_a_conversation_survives_a_restart(scene: Any, run: Any) -> None:
    """Another chat on another backend goes on from the bytes, with an event that was added in between."""
    scene.answers(says("Hello Ada.", to="I am Ada."), says("Ada, with 50 points.", to="Who am I?"))
    state = run(scene.chat(), user="I am Ada.").state
    kept = bytes(bytearray(state))

    later = scene.chat()
    result = run(later, later.append_to_state(kept, event("+50 points")), user="Who am I?")

    assert result.text == "Ada, with 50 points."
    said = scene.transcripts[1]
    assert said[:2] == [("user", "I am Ada."), ("assistant", "Hello Ada.")]
    assert said[-1][0] == "user"
    assert "+50 points" in "".join(text for role, text in said[2:] if role == "user")
    assert inspect_state(result.state).turns == 2


@pytest.mark.parametrize("word", ["length", "stop"])
def test_why_the_answer_ended(scene: Any, run: Any, word: str) -> None:
    """An answer that was cut is a result which says so; the conversation goes on with what had come."""
    scene.answers(says("I was about to", to="Go on", finishReason=word), says("Yes.", to="Really?"))
    chat = scene.chat()

    result = run(chat, user="Go on")
    after = run(chat, result.state, user="Really?")

    assert (result.text, result.status) == (
        "I was about to",
        "truncated" if word == "length" else "complete",
    )
    assert after.text == "Yes."
    assert scene.transcripts[1][1] == ("assistant", "I was about to")


# -------------------------------------------------------------------------------------------------- tools


def test_a_tool_loop(scene: Any, run: Any) -> None:
    """A call is run once, its result goes back beside the very call, and the next turn knows both."""
    board = Board()
    scene.answers(
        calls(("get_score", {"team": ODD})), says("One point.", to="How many?"), says("Bye.", to="Thanks.")
    )
    chat = scene.chat(tools=[board.get_score])

    result = run(chat, user="How many?")

    (record,) = result.tool_log
    assert (result.text, result.iterations, board.asked) == ("One point.", 2, [ODD])
    assert isinstance(record.call, ToolCall)
    asked = scene.transcripts
    call = ("call", record.call.id, "get_score", record.call.arguments)
    assert asked == [
        [("user", "How many?")],
        [("user", "How many?"), call, ("result", record.call.id, f"{ODD} has 1 points")],
    ]
    assert json.loads(record.call.arguments) == {"team": ODD}


def test_the_turn_after_a_tool_loop(scene: Any, run: Any) -> None:
    """Calls and results of an earlier turn stand unchanged before the next question."""
    board = Board()
    scene.answers(
        says("Bye.", to="Thanks."), calls(("get_score", {"team": "red"})), says("One point.", to="How many?")
    )
    chat = scene.chat(tools=[board.get_score])

    state = run(chat, user="How many?").state
    result = run(chat, state, user="Thanks.")

    assert (result.text, board.asked) == ("Bye.", ["red"])
    asked = scene.transcripts
    assert asked[2] == [*asked[1], ("assistant", "One point."), ("user", "Thanks.")]
    assert read_history(result.state).turns[0].iterations[0].tool_calls[0].name == "get_score"


def test_the_tool_is_described(scene: Any, run: Any) -> None:
    """The server reads the tool's name, description and parameters out of every request of the loop."""
    board = Board()
    scene.answers(calls(("get_score", {"team": "red"})), says("Done."))
    chat = scene.chat(tools=[board.get_score])

    run(chat, user="How many?")

    tools = [entry["body"]["tools"] for entry in scene.entries]
    assert tools[0] == tools[1]
    (described,) = tools[0]
    assert described["function"]["name"] == "get_score"
    assert described["function"]["description"] == "Current score of one team."
    assert described["function"]["parameters"]["properties"]["team"]["type"] == "string"


def test_parallel_calls(scene: Any, run: Any) -> None:
    """Calls of one reply are all run, and their results go back together, in order, each by its id."""
    board = Board()
    teams = ["red", "green", "blue"]
    scene.answers(calls(*(("get_score", {"team": team}) for team in teams)), says("Three of them."))
    chat = scene.chat(tools=[board.get_score], tool_concurrency=1)

    result = run(chat, user="How many?")

    ids = [record.call.id for record in result.tool_log]
    assert (result.text, board.asked) == ("Three of them.", teams)
    assert len(set(ids)) == 3
    said = scene.transcripts[1]
    assert said[0] == ("user", "How many?")
    assert [(kind, id) for kind, id, *_ in said[1:]] == [
        *(("call", id) for id in ids),
        *(("result", id) for id in ids),
    ]
    assert [result[-1] for result in said[4:]] == [
        "red has 1 points",
        "green has 2 points",
        "blue has 3 points",
    ]


def test_text_around_calls(scene: Any, run: Any) -> None:
    """A reply that talks before and between its calls keeps its words and its calls."""
    board = Board()
    blocks = [
        {"type": "text", "text": "Let me see."},
        {"type": "toolCall", "name": "get_score", "arguments": {"team": "red"}},
        {"type": "text", "text": "And the other."},
        {"type": "toolCall", "name": "get_score", "arguments": {"team": "blue"}},
    ]
    scene.answers({"match": {"hasToolResult": False}, "response": {"blocks": blocks}}, says("Two of them."))
    chat = scene.chat(tools=[board.get_score], tool_concurrency=1)

    result = run(chat, user="How many?")

    assert (result.text, board.asked) == ("Two of them.", ["red", "blue"])
    said = scene.transcripts[1]
    assert "".join(text for kind, text, *_ in said if kind == "assistant") == "Let me see.And the other."
    assert [part[1] for part in said if part[0] == "call"] == [record.call.id for record in result.tool_log]


def test_an_unknown_tool(scene: Any, run: Any) -> None:
    """A call of a tool that there is not goes back as an error that the model can read."""
    board = Board()
    scene.answers(calls(("drop_tables", {})), says("Sorry."))
    chat = scene.chat(tools=[board.get_score])

    result = run(chat, user="How many?")

    assert (result.text, board.asked) == ("Sorry.", [])
    kind, _, text = scene.transcripts[1][-1]
    assert kind == "result"
    assert "no tool of this name" in text


def test_thinking_before_calls(scene: Any, run: Any, wire: str) -> None:
    """Thinking is heard, and goes back before its call: aimock refuses a signed one that is not there."""
    board = Board()
    thought = "First the score, then the answer."
    scene.answers(calls(("get_score", {"team": "red"}), reasoning=thought), says("One.", reasoning=thought))
    signed = wire == "anthropic"
    settings = ModelSettings(max_output_tokens=4096, thinking_budget_tokens=1024 if signed else None)
    chat = scene.chat(model="claude-sonnet-4-5" if signed else "o3", tools=[board.get_score])

    heard: list[Any] = []
    on_event = heard.append if run.is_streamed else None
    result = run(chat, user="How many?", settings=settings, on_event=on_event)
    after = run(chat, result.state, user="How many?", settings=settings)

    assert (result.text, after.text, board.asked) == ("One.", "One.", ["red", "red"])
    assert scene.statuses == [200] * 4
    if wire == "openai":  # on the other two aimock's journal leaves thinking out
        sent = scene.entries[3]["body"]["messages"]
        assert [m["reasoning_content"] for m in sent if m["role"] == "assistant"] == [thought] * 3
    if run.is_streamed:
        assert "".join(e.text for e in heard if isinstance(e, ReasoningDelta)) == 2 * thought


# -------------------------------------------------------------------------------------------------- usage


def test_usage_is_the_servers(scene: Any, run: Any) -> None:
    """Token counts are what the server reports, and add up over a conversation."""
    scene.answers(says("Hello.", usage={"input_tokens": 11, "output_tokens": 7, **_CHAT_USAGE}))
    chat = scene.chat()

    first = run(chat, user="Hello?")
    second = run(chat, first.state, user="Hello?")

    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.requests) == (11, 7, 1)
    assert (second.total_usage.input_tokens, second.total_usage.output_tokens) == (22, 14)


_CHAT_USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def test_a_server_that_counts_nothing(scene: Any, run: Any, wire: str) -> None:
    """A history is cut when it has grown too large, also if the server says that it used no tokens at all."""
    scene.answers(says(LONG, usage={"input_tokens": 0, "output_tokens": 0, **_NO_CHAT_USAGE}))
    chat = scene.chat(compactor=Compactor(TokenLimit(400), KeepRecentTurns(2)))

    state, cuts = None, 0
    for n in range(12):
        result = run(chat, state, user=f"Question {n}: {LONG}")
        state = result.state
        cuts += result.compaction is not None and result.compaction.outcome == "compacted"

    assert result.total_usage.requests == 12
    assert cuts > 0
    assert max(len(said) for said in scene.transcripts) < 24


_NO_CHAT_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


# ----------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, ProviderRejectedError),
        (429, RateLimitError),
        (500, ProviderUnavailableError),
        (503, ProviderUnavailableError),
        (529, ProviderUnavailableError),
    ],
)
def test_an_error_status(scene: Any, run: Any, status: int, error: type[TurnError]) -> None:
    """An HTTP error is one typed error; `resume` asks again, and the message is there once."""
    scene.answers(fails(status), says("Here I am."))
    chat = scene.chat()

    with pytest.raises(error) as caught:
        run(chat, user="Hello?")
    resumed = chat.resume(caught.value.state)

    assert caught.value.retryable is (status not in (401, 403, 404))
    assert caught.value.pending_input == ()
    assert resumed.text == "Here I am."
    assert scene.statuses == [status, 200]
    assert scene.transcripts == [[("user", "Hello?")]] * 2


def test_a_refused_message(scene: Any, run: Any) -> None:
    """A message that the server refuses is handed back, and the conversation goes on without it."""
    scene.answers(fails(400), says("Here I am."))
    chat = scene.chat()

    with pytest.raises(ProviderRejectedError) as caught:
        run(chat, user="Poison")
    result = run(chat, caught.value.state, user="Hello?")

    assert [message.text for message in caught.value.pending_input] == ["Poison"]
    assert result.text == "Here I am."
    assert scene.transcripts[1] == [("user", "Hello?")]


def test_a_rate_limit_that_passes(scene: Any, run: Any) -> None:
    """After a 429 the same request is sent again, and the turn is none the worse."""
    scene.answers(fails(429, retryAfter=0), says("Here I am."))
    chat = scene.chat(max_retries=2)

    result = run(chat, user="Hello?")

    assert result.text == "Here I am."
    assert scene.statuses == [429, 200]
    assert scene.transcripts == [[("user", "Hello?")]] * 2


def test_how_long_to_wait(scene: Any, run: Any) -> None:
    """A wait that is too long for the turn is not waited for; the error says how long it is."""
    scene.answers(fails(429, retryAfter=400))
    chat = scene.chat(max_retries=2)

    with pytest.raises(RateLimitError) as caught:
        run(chat, user="Hello?")

    assert (caught.value.retry_after, scene.statuses) == (400, [429])


@pytest.mark.parametrize(
    ("rates", "error", "status"),
    [
        ({"dropRate": 1}, ProviderUnavailableError, 500),
        ({"disconnectRate": 1}, ProviderUnavailableError, 0),
        ({"malformedRate": 1}, ProviderProtocolError, 200),
        ({"rateLimitRate": 1}, RateLimitError, 429),
    ],
)
def test_chaos(scene: Any, run: Any, rates: dict[str, float], error: type[TurnError], status: int) -> None:
    """A server in trouble in the middle of a tool loop costs no result: no tool runs twice."""
    board = Board()
    scene.answers(calls(("get_score", {"team": "red"})), says("One point."))

    def break_down(team: str) -> str:
        """Current score of one team."""
        scene.suffers(**rates)
        return board.get_score(team)

    break_down.__name__ = "get_score"
    chat = scene.chat(tools=[break_down])

    with pytest.raises(error) as caught:
        run(chat, user="How many?")
    scene.suffers()
    resumed = chat.resume(caught.value.state)

    assert caught.value.retryable
    assert (resumed.text, board.asked) == ("One point.", ["red"])
    assert scene.statuses == [200, status, 200]
    assert scene.transcripts[1] == scene.transcripts[2]


@pytest.mark.parametrize("events", [2, 9])
def test_a_cut_stream(scene: Any, events: int) -> None:
    """A stream that ends too early is an error with the text that had come; `resume` gets it whole."""
    text = 3 * LONG
    cut = says(text) | {"match": {"sequenceIndex": 0}, "truncateAfterChunks": events, "latency": 2}
    scene.answers(cut, says(text))
    chat = scene.chat(max_retries=0)

    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="Hello?").result()
    resumed = chat.resume(caught.value.state)

    partial = caught.value.partial_text
    assert text.startswith(partial)
    assert bool(partial) is (events > 2)
    assert resumed.text == text
    assert scene.entries[0]["response"]["interrupted"]
    assert scene.transcripts == [[("user", "Hello?")]] * 2


def test_a_stream_cut_inside_a_call(scene: Any) -> None:
    """A call whose arguments did not come to their end is not run."""
    board = Board()
    whole = calls(("get_score", {"team": "the red team from the other end of the town"}))
    cut = whole | {"match": {"sequenceIndex": 0}, "truncateAfterChunks": 4, "latency": 2}
    scene.answers(cut, whole, says("One point."))
    chat = scene.chat(tools=[board.get_score])

    with pytest.raises(StreamInterruptedError) as caught:
        chat.start(None, user="How many?").result()
    ran_before = list(board.asked)
    resumed = chat.resume(caught.value.state)

    assert ran_before == []
    assert (resumed.text, len(board.asked)) == ("One point.", 1)
    assert scene.transcripts[0] == scene.transcripts[1]
