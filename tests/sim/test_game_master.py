"""The simulated model answers from what stands in the request, and from nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.sim import Call, GameMaster, Offer, Prompt, Reply, Said

EVENT = '<app-event topic="score" id="e-1">\n{}\n</app-event>'


def user(text: str) -> Said:
    return Said(role="user", text=text)


def assistant(text: str) -> Said:
    return Said(role="assistant", text=text)


def tool(name: str, **properties: Any) -> Offer:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Offer(name=name, parameters=schema)


def ask(*history: Said, seed: int = 0, **prompt: Any) -> Reply:
    content = repr(history).encode()
    return GameMaster(seed)(Prompt(model="sim", history=history, content=content, **prompt))


def called(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in reply.tool_calls]


TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
GET_SCORE = tool("get_score", team=TEXT)
AWARD_POINTS = tool("award_points", team=TEXT, points=WHOLE)


# -------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "words", ["My name is Ada.", "my name is Ada and I like chess", "I'm Ada!", "Call me Ada"]
)
def test_knows_a_name_that_is_in_the_history(words: str) -> None:
    """A name that the player gave in an earlier message is known."""
    reply = ask(user(words), assistant("Hello."), user("What is my name?"))

    assert reply.content == "[simulated] Your name is Ada."


def test_does_not_know_a_name_that_is_gone_from_the_history() -> None:
    """Lost history shows: without the message that gave it, the name is unknown."""
    reply = ask(user("Hello."), assistant("Hello, Ada."), user("What is my name?"))

    assert reply.content == "[simulated] I do not know your name."


def test_the_newest_statement_counts() -> None:
    """A later statement replaces an earlier one."""
    reply = ask(
        user("My team is Red."),
        assistant("ok"),
        user("My team is Blue."),
        assistant("ok"),
        user("Tell me my team"),
    )

    assert reply.content == "[simulated] Your team is Blue."


def test_events_add_points() -> None:
    """Points are the sum of what the events in the history gave and took."""
    events = [
        user(EVENT.format("Ada reached Harrogate Theatre: +50 points")),
        user(EVENT.format("Ada lost 20 points")),
    ]

    reply = ask(*events, user("What is my score?"))

    assert reply.content == "[simulated] The score is 30 points."


def test_text_of_a_player_gives_no_points() -> None:
    """Only an event block gives points; a player who claims some has none."""
    reply = ask(user("Ada reached the moon: +50 points"), assistant("ok"), user("What is my score?"))

    assert reply.content == "[simulated] I know of no points."


def test_context_states_the_score_and_events_add_to_it() -> None:
    """The newest context block sets the score; an event after it adds."""
    context = user("<app-context>\nScore: 120, Place: Leeds\n</app-context>\nHello.")

    reply = ask(
        context,
        assistant("Hi."),
        user(EVENT.format("Bo earned 5 points")),
        user("My points? And where am I?"),
    )

    assert reply.content == "[simulated] The score is 125 points. You are at Leeds."


def test_escaped_events_are_read_as_written() -> None:
    """What an application escaped in an event is read back."""
    reply = ask(user(EVENT.format("Tom &amp; Ada &lt;3 chess")), user("What happened?"))

    assert reply.content == "[simulated] This happened: Tom & Ada <3 chess."


def test_counts_the_messages_of_the_user() -> None:
    """The count is of user messages with words; event blocks are not messages of the user."""
    history = [
        user("One."),
        assistant("ok"),
        user(EVENT.format("rain")),
        user("How many messages have I sent?"),
    ]

    assert ask(*history).content == "[simulated] You have sent 2 messages."
    assert ask(*history[2:]).content == "[simulated] You have sent 1 messages."


def test_an_event_without_a_question_is_acknowledged() -> None:
    """Asked nothing, the model says which event it saw."""
    reply = ask(user("Hi."), assistant("Hi."), user(EVENT.format("Ada won 5 points")))

    assert "Noted: Ada won 5 points." in reply.content


def test_attachments_are_counted() -> None:
    """Parts that are not text are noticed."""
    reply = ask(Said(role="user", text="Look.", media=2))

    assert "I received 2 attachments." in reply.content


def test_a_note_is_read_for_facts_and_is_no_message() -> None:
    """A summary in a note, also one of a summary, keeps facts, place, events, points and the count."""
    first = (
        '<app-note kind="summary">\n[simulated] Summary of 4 messages. '
        "The player's name is Ada. The place is the Old Mill. "
        "Event: Ada reached the Old Mill: +50 points. Score so far: 50 points.\n</app-note>"
    )

    summary = ask(user(first), user("My colour is green."), user("Please summarise this.")).content
    again = f'<app-note kind="summary">\n{summary}\n</app-note>'
    reply = ask(user(again), user("What is my name, my colour, my score, where am I, and what happened?"))

    assert "Summary of 6 messages." in summary
    for known in ("name is Ada", "colour is green", "50 points", "at the Old Mill", "+50 points"):
        assert known in reply.content


def test_a_transcript_is_read_line_by_line() -> None:
    """What another model said of a conversation counts its lines, and takes its events for events."""
    told = "user: My name is Ada.\n\nassistant: Noted.\n\nevent: Tom scored 7 points\n\nuser: Go on."

    summary = ask(user(f"{told}\n\nSummarise the conversation.")).content

    assert "Summary of 2 messages." in summary
    assert "name is Ada" in summary
    assert "Score so far: 7 points." in summary


def test_a_summary_carries_the_facts_over() -> None:
    """What a summary says is known when the summary stands in place of the history."""
    history = [
        user("My name is Ada."),
        assistant("ok"),
        user(EVENT.format("Ada won 50 points")),
        assistant("ok"),
    ]

    summary = ask(*history, user("Please summarise the conversation."))
    reply = ask(user(summary.content), user("What is my name, and my score?"))

    assert reply.content == "[simulated] Your name is Ada. The score is 50 points."


# -------------------------------------------------------------------------------- labels, repetition


def test_every_text_is_labelled() -> None:
    """Each reply in words begins with the mark."""
    replies = [ask(user(words)) for words in ("Hi.", "What is my name?", "Summarise.", "")]

    assert all(reply.content.startswith("[simulated] ") for reply in replies)


def test_the_same_prompt_and_seed_get_the_same_reply() -> None:
    """Chance is drawn from the prompt and the seed, so a run can be repeated, and seeds differ."""
    history = (user("Tell me a story."),)

    assert ask(*history, seed=1) == ask(*history, seed=1)
    assert len({ask(*history, seed=seed).content for seed in range(20)}) > 1


# --------------------------------------------------------------------------------------------- tools


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("What is the score of Red?", [("get_score", {"team": "Red"})]),
        ("use get_score for 'blue team', please", [("get_score", {"team": "blue team"})]),
        ("Get the score of team red", [("get_score", {"team": "red"})]),
        (
            "Award 50 points to Harrogate Theatre.",
            [("award_points", {"team": "Harrogate Theatre", "points": 50})],
        ),
        ("Get the score of Red and Blue.", [("get_score", {"team": "Red"}), ("get_score", {"team": "Blue"})]),
        (
            "Award 5 points to Red and get the score of Blue",
            [("award_points", {"team": "Red", "points": 5}), ("get_score", {"team": "Blue"})],
        ),
        ("Hello there, and good day to you.", []),
        ("What is my name?", []),
    ],
)
def test_words_become_calls(words: str, expected: list[tuple[str, Any]]) -> None:
    """Tools are called when the player names them, with arguments out of the player's words."""
    reply = ask(user(words), offers=(GET_SCORE, AWARD_POINTS))

    assert called(reply) == expected


@pytest.mark.parametrize(
    ("schema", "words", "expected"),
    [
        ({"enum": ["north", "south"]}, "Walk south!", "south"),
        ({"enum": ["north", "south"]}, "Walk.", "north"),
        ({"type": "boolean"}, "Walk.", True),
        ({"type": "boolean"}, "Do not walk.", False),
        ({"type": "number"}, "Walk 1.5 miles.", 1.5),
        ({"type": "integer", "minimum": 3}, "Walk.", 3),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "Walk 7 miles.", 7),
        ({"type": ["integer", "null"]}, "Walk 7 miles.", 7),
        ({"type": "array", "items": {"type": "integer"}}, "Walk 7 miles.", [7]),
        ({"$ref": "#/$defs/miles"}, "Walk 7 miles.", 7),
        ({"const": "fast"}, "Walk.", "fast"),
    ],
)
def test_arguments_follow_the_schema(schema: dict[str, Any], words: str, expected: Any) -> None:
    """Arguments have the type that the schema asks for, nested and referred types included."""
    parameters = {"properties": {"how": schema}, "required": ["how"], "$defs": {"miles": {"type": "integer"}}}

    reply = ask(user(words), offers=(Offer(name="walk", parameters=parameters),))

    assert called(reply) == [("walk", {"how": expected})]


def test_results_are_reported_word_for_word() -> None:
    """After a tool's result comes an answer that quotes it."""
    call = Call(id="c1", name="get_score", arguments='{"team":"Red"}')
    done = Said(role="tool", text='{"score": 1.50}', call_id="c1")

    reply = ask(
        user("Get the score of Red"),
        Said(role="assistant", calls=(call,)),
        done,
        offers=(GET_SCORE, AWARD_POINTS),
    )

    assert reply.content == '[simulated] get_score: {"score": 1.50}'
    assert reply.tool_calls == ()


def test_without_parallel_calls_one_comes_after_the_other() -> None:
    """A request that forbids parallel calls gets the second call after the first result."""
    words = user("Get the score of Red and Blue.")

    first = ask(words, offers=(GET_SCORE,), parallel=False)
    result = Said(role="tool", text="1", call_id="c1")
    second = ask(
        words, Said(role="assistant", calls=first.tool_calls), result, offers=(GET_SCORE,), parallel=False
    )

    assert called(first) == [("get_score", {"team": "Red"})]
    assert called(second) == [("get_score", {"team": "Blue"})]


def test_a_demanded_call_is_made() -> None:
    """A request that demands a call gets one, whatever the player said."""
    reply = ask(user("Hello."), offers=(GET_SCORE,), must_call=True)

    assert [call.name for call in reply.tool_calls] == ["get_score"]


def test_without_offers_nothing_is_called() -> None:
    """A player who asks for a tool that is not offered gets words."""
    reply = ask(user("Get the score of Red."))

    assert reply.tool_calls == ()
    assert reply.content
