"""`output_type=` in turns: the value, retries, what stays in the history, and what an error keeps."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from goaitools_py import Approve, AsyncChat, Chat, ChatResult, Limits, ModelSettings, TextDelta, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.base import rawjson
from goaitools_py.output import Output, OutputDelta, OutputError
from goaitools_py.output.wanted import wanted
from goaitools_py.states import inspect_state, read_history, verify_state
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, Raw, ScriptedBackend
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.turn.answer import _Partials
from goaitools_py.types.errors import LimitExceededError, ProviderUnavailableError, TurnError

WIRES = ("openai", "openai-responses", "anthropic")
GOOD = '{"guilty":true,"years":3}'
BAD = '{"guilty":true,"years":"many"}'


class Verdict(BaseModel):
    guilty: bool
    years: int


VERDICT = Verdict(guilty=True, years=3)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def desk(wire: str, *steps: Any, **how: Any) -> tuple[Chat, ScriptedBackend]:
    backend = ScriptedBackend(*steps, wire=wire, **how)
    return Chat(backend), backend


def formats(backend: ScriptedBackend) -> list[Any]:
    """The format of each request; None for none."""
    found = []
    for body in backend.bodies():
        inner = body.get("response_format") or (body.get("output_config") or body.get("text") or {}).get(
            "format"
        )
        found.append(inner and (inner.get("schema") or inner["json_schema"]["schema"]))
    return found


def lines(state: bytes) -> list[str]:
    """Who said what, turn by turn."""
    assert verify_state(state) == ()
    turns = read_history(state).turns
    return [f"{message.role}: {message.text}" for turn in turns for message in turn.messages]


def sent(backend: ScriptedBackend) -> list[Any]:
    body = backend.bodies()[-1]
    history: list[Any] = body.get("messages") or body["input"]
    return history


# ------------------------------------------------------------------------------------------ the value


def test_the_answer_is_a_value(wire: str) -> None:
    """The schema goes in the provider's own format, and the text stays beside the value."""
    chat, backend = desk(wire, GOOD)

    result = chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    assert (result.output, result.text, result.status) == (VERDICT, GOOD, "complete")
    assert formats(backend)[0]["required"] == ["guilty", "years"]
    assert formats(backend)[0]["additionalProperties"] is False
    assert lines(result.state) == ["user: Judge.", f"assistant: {GOOD}"]


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (list[Verdict], f'{{"value":[{GOOD}]}}', [VERDICT]),
        (Literal["yes", "no"], '{"value":"no"}', "no"),
        (Verdict | None, '{"value":null}', None),
        (Output(int), '{"value":4}', 4),
    ],
)
def test_types_that_are_no_objects_are_wrapped(wire: str, of: Any, text: str, value: Any) -> None:
    """OpenAI takes only objects, so the value is the one property of an object, everywhere."""
    chat, backend = desk(wire, text)

    assert chat.chat(user="Judge.", output_type=of).output == value
    assert list(formats(backend)[0]["properties"]) == ["value"]


def test_a_turn_without_a_type_has_no_value(wire: str) -> None:
    """And no format is sent, also behind a turn that had one."""
    chat, backend = desk(wire, GOOD, GOOD)
    first = chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    assert chat.chat_with_state(first.state, user="Again.").output is None
    assert formats(backend)[1] is None


def test_an_answer_that_was_cut_off_has_no_value_and_is_not_asked_again(wire: str) -> None:
    """The reply has its status."""
    chat, _ = desk(wire, _cut_off(wire))

    result = chat.chat(user="Judge.", output_type=Verdict)

    assert (result.output, result.status) == (None, "truncated")


def _cut_off(wire: str) -> Any:
    shape: Any = SHAPES[wire]
    body = shape.reply('{"guilty":', (), reasoning="", model="m", number=1, sent=1)
    if wire == "openai":
        body["choices"][0]["finish_reason"] = "length"
    elif wire == "anthropic":
        body["stop_reason"] = "max_tokens"
    else:
        body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return Raw.body(rawjson.dumps(body))


def test_the_result_is_copied_with_its_value() -> None:
    """Also to another process."""
    result = desk("openai", GOOD)[0].chat(user="Judge.", output_type=Verdict)

    copied: ChatResult[Verdict] = pickle.loads(pickle.dumps(result))

    assert copied.output == VERDICT
    assert tuple(copied) == (result.text, result.state)
    assert "guilty" not in repr(result)


# -------------------------------------------------------------------------------------------- retries


def test_a_model_that_errs_is_told_and_asked_again(wire: str) -> None:
    """The problems name fields. The failed attempt leaves the history; its call stays in the books."""
    chat, backend = desk(wire, BAD, GOOD, "Thanks.")

    result = chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    assert result.output == VERDICT
    assert (result.iterations, result.usage.requests) == (2, 2)
    told = str(sent(backend)[-1])
    assert "years: should be a valid integer" in told
    assert "many" not in told
    assert lines(result.state) == ["user: Judge.", f"assistant: {GOOD}"]
    assert len(read_history(result.state).turns[0].iterations) == 2
    chat.chat_with_state(result.state, user="Thank you.")
    assert "many" not in str(sent(backend))
    assert "does not fit" not in str(sent(backend))


def test_attempts_stay_if_asked(wire: str) -> None:
    """With what the model was told."""
    chat, _ = desk(wire, BAD, GOOD)

    result = chat.chat(user="Judge.", output_type=Output(Verdict, keep_attempts=True))

    said = lines(result.state)
    assert [line.split(":")[0] for line in said] == ["user", "assistant", "user", "assistant"]
    assert said[1].endswith(BAD)


def test_no_retry_if_not_asked(wire: str) -> None:
    """`retries=0` takes the first answer, or none."""
    chat, backend = desk(wire, BAD)

    with pytest.raises(OutputError):
        chat.chat(user="Judge.", output_type=Output(Verdict, retries=0))

    assert len(backend.requests) == 1


def test_a_check_of_the_caller_s_refuses(wire: str) -> None:
    """Its words go to the model."""
    chat, backend = desk(wire, '{"guilty":true,"years":99}', GOOD)

    def check(verdict: Verdict) -> None:
        if verdict.years > 10:
            raise ValueError("At most ten years.")

    result = chat.chat(user="Judge.", output_type=Output(Verdict, validate=check))

    assert result.output == VERDICT
    assert "At most ten years." in str(sent(backend)[-1])


def test_a_check_that_breaks_costs_nothing(wire: str) -> None:
    """Another exception ends the turn; the answer is in the state, and is not paid for again."""
    chat, backend = desk(wire, GOOD)

    def check(verdict: Verdict) -> None:
        raise KeyError("a mistake")

    with pytest.raises(TurnError) as error:
        chat.chat(user="Judge.", output_type=Output(Verdict, validate=check))

    assert isinstance(error.value.__cause__, KeyError)
    assert chat.resume(error.value.state, output_type=Verdict).output == VERDICT
    assert len(backend.requests) == 1


async def _async_check(verdict: Verdict) -> None:
    if verdict.years > 10:
        raise ValueError("At most ten years.")


def test_a_check_may_be_async(wire: str) -> None:
    """On an `AsyncChat`."""
    backend = ScriptedBackend('{"guilty":true,"years":99}', GOOD, wire=wire)
    asked = Output(Verdict, validate=_async_check)

    result = asyncio.run(AsyncChat(backend).chat(user="Judge.", output_type=asked))

    assert result.output == VERDICT


# ------------------------------------------------------------------------------------ nothing is lost


def test_an_error_has_the_paid_answer(wire: str) -> None:
    """In `text`, in `state` and in the books; its words hold no content. `resume` asks again."""
    chat, backend = desk(wire, BAD, "no", GOOD)

    with pytest.raises(OutputError) as error:
        chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    failed = error.value
    assert failed.text == "no"
    assert failed.usage.requests == 2
    assert failed.errors[0][1].startswith("is not valid JSON")
    assert "2 answers of the model did not fit Verdict (1 problem " in str(failed)
    assert inspect_state(failed.state).status == "failed"
    result = chat.resume(failed.state, output_type=Verdict)
    assert (result.output, result.iterations, result.total_usage.requests) == (VERDICT, 1, 3)
    assert lines(result.state) == ["user: Judge.", f"assistant: {GOOD}"]
    assert "is not valid JSON" in str(sent(backend)[-1])


def test_an_answer_that_does_not_fit_may_be_taken_as_text(wire: str) -> None:
    """`resume` without a type asks no model."""
    chat, backend = desk(wire, BAD, "no")
    with pytest.raises(OutputError) as error:
        chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    result = chat.resume(error.value.state)

    assert (result.text, result.output, result.status) == ("no", None, "complete")
    assert lines(result.state) == ["user: Judge.", "assistant: no"]
    assert len(backend.requests) == 2


def test_a_new_message_goes_on_behind_a_failed_answer(wire: str) -> None:
    """Only the last attempt is in the history then, and the model hears no more of problems."""
    chat, backend = desk(wire, BAD, "no", "Hello.")
    with pytest.raises(OutputError) as error:
        chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    result = chat.chat_with_state(error.value.state, user="Never mind.")

    assert lines(result.state) == ["user: Judge.", "assistant: no", "user: Never mind.", "assistant: Hello."]
    assert "does not fit" not in str(sent(backend))


def test_a_failure_between_two_attempts_is_taken_up(wire: str) -> None:
    """The stored answer is looked at again, and the model is told once."""
    chat, backend = desk(wire, BAD, BackendError("gone", status=503), GOOD)
    with pytest.raises(ProviderUnavailableError) as error:
        chat.chat_with_state(None, user="Judge.", output_type=Verdict)

    result = chat.resume(error.value.state, output_type=Verdict)

    assert result.output == VERDICT
    assert str(sent(backend)).count("does not fit") == 1
    assert lines(result.state) == ["user: Judge.", f"assistant: {GOOD}"]


def test_an_answer_is_not_paid_for_twice(wire: str) -> None:
    """Each checkpoint can be resumed; one with a whole answer asks no model."""
    kept: list[bytes] = []
    chat, backend = desk(wire, GOOD)
    chat.chat_with_state(None, user="Judge.", output_type=Verdict, on_checkpoint=kept.append)

    result = chat.resume(kept[0], output_type=Verdict)

    assert result.output == VERDICT
    assert len(backend.requests) == 1


def test_a_limit_ends_the_attempts(wire: str) -> None:
    """A turn at its limit is asked once more without a check of its answer, or raises."""
    chat, _ = desk(wire, BAD, BAD)
    result = chat.chat(user="Judge.", output_type=Output(Verdict, retries=5), limits=Limits(max_iterations=1))
    assert (result.status, result.output) == ("limited", None)

    chat, _ = desk(wire, BAD)
    with pytest.raises(LimitExceededError) as error:
        chat.chat(
            user="J.",
            output_type=Output(Verdict, retries=5),
            limits=Limits(max_iterations=1),
            on_limit="raise",
        )
    assert inspect_state(error.value.state).status == "failed"


def test_what_a_provider_cannot_take_is_refused_before_anything_is_sent() -> None:
    """With the place in the type; a type without a schema, too."""

    class Free(BaseModel):
        scores: dict[str, int]

    chat, backend = desk("anthropic")
    with pytest.raises(ValueError, match=r"have no place for Free\.scores: it is a dict with keys"):
        chat.chat(user="J.", output_type=Free)
    with pytest.raises(TypeError, match="no JSON Schema"):
        chat.chat(user="J.", output_type=object())
    with pytest.raises(TypeError, match="'output_type' belongs to one turn"):
        Chat(backend, output_type=Free)  # type: ignore[call-arg]
    assert backend.requests == []


# -------------------------------------------------------------------------- tools, stores, other turns


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is dark"


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def test_it_works_with_tools(wire: str) -> None:
    """The format goes with each request; an attempt between calls leaves the history without them."""
    chat, backend = desk(
        wire, Calls([("look", {"place": "hall"})]), BAD, Calls([("look", {"place": "x"})]), GOOD
    )

    result = chat.chat(user="Judge.", output_type=Verdict, tools=[look])

    assert result.output == VERDICT
    assert [shape is not None for shape in formats(backend)] == [True] * 4
    assert [record.result for record in result.tool_log] == ["hall is dark", "x is dark"]
    said = lines(result.state)
    assert [line.split(":")[0] for line in said] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert "many" not in "".join(said)


def test_it_works_with_approvals(wire: str) -> None:
    """A turn that waits has no value yet."""
    chat, _ = desk(wire, Calls([("pay", {"euros": 5})]), GOOD)
    waits = chat.chat_with_state(None, user="Judge.", output_type=Verdict, tools=[pay])
    assert (waits.output, waits.status) == (None, "awaiting_tools")

    answers = {call.id: Approve() for call in waits.pending}
    result = chat.resume(waits.state, answers, output_type=Verdict, tools=[pay])

    assert result.output == VERDICT


@pytest.mark.parametrize("save", ["turn", "checkpoint"])
def test_it_works_in_a_store(wire: str, save: Any) -> None:
    """A message that comes twice is answered once, with the value; a failed one goes on."""
    chat, backend = desk(wire, BAD, "no", GOOD)
    conversation = chat.conversation(MemoryStore(), "ada", save=save)
    with pytest.raises(OutputError):
        conversation.send("Judge.", turn_id="1", output_type=Verdict)

    first = conversation.send("Judge.", turn_id="1", output_type=Verdict)
    second = conversation.send("Judge.", turn_id="1", output_type=Verdict)

    assert (first.output, first.duplicate) == (VERDICT, False)
    assert (second.output, second.duplicate) == (VERDICT, True)
    assert len(backend.requests) == 3
    assert lines(conversation.state() or b"") == ["user: Judge.", f"assistant: {GOOD}"]


def test_thinking_behind_a_failed_attempt_leaves_with_it() -> None:
    """It was sealed together with the attempt; thinking before the attempt stays."""
    chat, _ = desk(
        "anthropic",
        Calls([("look", {"place": "hall"})], reasoning="First."),
        Calls([], BAD, reasoning="Second."),
        Calls([], GOOD, reasoning="Third."),
    )

    result = chat.chat(user="Judge.", output_type=Verdict, tools=[look])

    raw = str([message.raw for turn in read_history(result.state).turns for message in turn.messages])
    assert ("First." in raw, "Second." in raw, "Third." in raw) == (True, False, False)
    assert result.output == VERDICT


def test_a_changed_format_is_a_warning(wire: str) -> None:
    """Not the first one, and not the same one again."""
    chat, _ = desk(wire, GOOD, GOOD, '{"value":1}')
    first = chat.chat_with_state(None, user="Judge.", output_type=Verdict)
    again = chat.chat_with_state(first.state, user="Judge.", output_type=Verdict)
    other = chat.chat_with_state(again.state, user="Count.", output_type=Output(int, mode="native"))

    assert [w.code for w in (*first.warnings, *again.warnings)] == []
    assert [w.code for w in other.warnings] == ["output_changed"]


@pytest.mark.parametrize("when", ["first", "after a tool", "second turn"])
@pytest.mark.parametrize("other", WIRES)
def test_the_format_of_another_provider_is_no_warning(wire: str, other: str, when: str) -> None:
    """Each provider API writes the same type in its own way. That the provider changed is told already."""
    down = BackendError("down", status=503)
    begun: dict[str, list[Any]] = {
        "first": [],
        "after a tool": [Calls([("look", {"place": "hall"})])],
        "second turn": [GOOD],
    }
    own = ScriptedBackend(*begun[when], down, wire=wire, model="a")
    chat = Chat(own, tools=[look], fallbacks=[ScriptedBackend(GOOD, wire=other, model="b")])

    state = chat.chat(user="Judge.", output_type=Verdict).state if when == "second turn" else None
    result = chat.chat_with_state(state, user="Judge.", output_type=Verdict)

    codes = [warning.code for warning in result.warnings]
    assert (result.output, "fell_back" in codes) == (VERDICT, True)
    assert "output_changed" not in codes


# --------------------------------------------------------------------------------------- asked in words


def test_words_leave_the_cached_prefix_alone(wire: str) -> None:
    """The schema is in a message behind the user's: all earlier bytes of the request are as without it."""
    bodies = []
    for how in ({}, {"output_type": Output(Verdict, mode="prompt")}):
        chat, backend = desk(wire, "Hello.", GOOD)
        state = chat.chat_with_state(None, user="Hi.", conversation_id="c").state
        result = chat.chat_with_state(state, user="Judge.", **how)
        bodies.append(backend.requests[1].body)
        assert result.output == (VERDICT if how else None)

    plain, typed = bodies
    same = plain.index(b"Judge.") + len(b"Judge.")
    assert plain[:same] == typed[:same]
    assert b"JSON Schema" in typed[same:]
    assert b"JSON Schema" not in plain


def test_a_long_history_is_asked_in_words_unless_it_had_the_format(wire: str) -> None:
    """ "auto" keeps what the provider has cached."""
    chat, backend = desk(wire, "word " * 3000, GOOD)
    state = chat.chat_with_state(None, user="Tell me a lot. " * 200).state
    assert inspect_state(state).tokens > 1024

    result = chat.chat_with_state(state, user="Judge.", output_type=Verdict)

    assert (result.output, formats(backend)[1]) == (VERDICT, None)
    assert "JSON Schema" in str(sent(backend)[-1])
    assert [w.code for w in result.warnings] == []

    chat, backend = desk(wire, GOOD, GOOD)
    state = chat.chat_with_state(None, user="Tell me a lot. " * 500, output_type=Verdict).state
    chat.chat_with_state(state, user="Judge.", output_type=Verdict)
    assert formats(backend)[1] == formats(backend)[0]


def test_words_are_said_once_in_a_turn(wire: str) -> None:
    """Also in one that fails and goes on, or whose model errs."""
    asked: Any = Output(Verdict, mode="prompt")
    chat, backend = desk(wire, BackendError("gone", status=503), BAD, BackendError("gone", status=503), GOOD)
    with pytest.raises(ProviderUnavailableError) as error:
        chat.chat_with_state(None, user="Judge.", output_type=asked)
    with pytest.raises(ProviderUnavailableError) as again:
        chat.resume(error.value.state, output_type=asked)

    result = chat.resume(again.value.state, output_type=asked)

    assert result.output == VERDICT
    assert str(sent(backend)).count("JSON Schema") == 1
    assert len(lines(result.state)) == 3


# --------------------------------------------------------------------------------------- the simulator


@pytest.mark.parametrize("mode", ["native", "prompt"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_simulator_fills_the_schema(wire: str, mode: Any, stream: bool) -> None:
    """Behind its rules, whole and streamed."""
    asked = Output(Verdict, mode=mode)
    with Chat(f"sim:{wire}") as chat:
        if stream:
            with chat.start(None, user="Give 7 years.", output_type=asked) as turn:
                result: ChatResult[Verdict] = turn.result()
        else:
            result = chat.chat(user="Give 7 years.", output_type=asked)

    assert result.output == Verdict(guilty=True, years=7)
    assert result.iterations == 1


def test_settings_and_format_are_joined() -> None:
    """`reasoning_effort` and a member of `extra_body` stand beside the format."""
    effort = ModelSettings(reasoning_effort="low")
    chat, backend = desk("anthropic", GOOD)
    chat.chat(user="J.", output_type=Verdict, settings=effort)
    assert sorted(backend.bodies()[0]["output_config"]) == ["effort", "format"]

    chat, backend = desk("openai-responses", GOOD)
    wordy = ModelSettings(extra_body={"text": {"verbosity": "low"}})
    chat.chat(user="J.", output_type=Verdict, settings=wordy)
    assert sorted(backend.bodies()[0]["text"]) == ["format", "verbosity"]


# ------------------------------------------------------------------------------------ streams, one text


@pytest.mark.parametrize("mode", ["native", "prompt"])
def test_the_values_come_while_they_stream(wire: str, mode: Any) -> None:
    """Each is a beginning of the last one. The text comes too, and a failed attempt has partial values of its
    own."""
    chat, _ = desk(wire, BAD, GOOD)

    with chat.start(None, user="Judge.", output_type=Output(Verdict, mode=mode)) as turn:
        events = list(turn)

    partials = [(event.iteration, event.partial) for event in events if isinstance(event, OutputDelta)]
    assert (1, {"guilty": True, "years": "many"}) in partials
    assert partials[-1] == (2, {"guilty": True, "years": 3})
    assert [number for number, _ in partials] == sorted(number for number, _ in partials)
    assert len(partials) >= 2
    texts = [event.text for event in events if isinstance(event, TextDelta) and event.iteration == 2]
    assert "".join(texts) == GOOD
    assert turn.result().output == VERDICT
    assert "guilty" not in repr(events[-4:])
    shown = [event.to_dict() for event in events if isinstance(event, OutputDelta)]
    assert all("partial" not in facts for facts in shown)


def test_nothing_of_a_turn_without_a_type_is_read(wire: str) -> None:
    """A stream of JSON has no `OutputDelta` if nobody asked for a type."""
    chat, _ = desk(wire, GOOD)

    with chat.start(None, user="Judge.") as turn:
        assert not any(isinstance(event, OutputDelta) for event in turn)


def test_the_values_of_a_long_answer_cost_little() -> None:
    """An answer of 200,000 characters is read a few hundred times and not at each of its pieces."""
    asked = wanted(list[int])
    partials = _Partials(asked, "")
    pieces = ['{"value":[', *["12345, "] * 30_000, "1]}"]

    told = [partials.after(TextDelta(piece, 1)) for piece in pieces]

    seen = [event for event in told if event is not None]
    assert 100 < len(seen) < 1000
    assert isinstance(seen[-1], OutputDelta)
    assert len(seen[-1].partial) > 29_000


@pytest.mark.parametrize("given", [{}, {"system": "Read."}])
def test_a_value_is_read_out_of_a_text(wire: str, given: dict[str, Any]) -> None:
    """The model is told that the text is no request, unless it is told something else."""
    chat, backend = desk(wire, GOOD)

    assert chat.extract("Guilty, three years.", Verdict, **given) == VERDICT
    body = str(backend.bodies()[0])
    assert ("is a text to read" in body, "Read." in body) == (not given, bool(given))


def test_a_text_without_a_value_is_an_error(wire: str) -> None:
    """Also if the reply was cut off; what is no text or type is refused first."""
    chat, _ = desk(wire, _cut_off(wire), "no", "no")

    with pytest.raises(OutputError, match="the reply is 'truncated'") as error:
        chat.extract("Guilty.", Verdict)
    assert error.value.usage.requests == 1
    with pytest.raises(OutputError, match="2 answers of the model did not fit"):
        chat.extract("Guilty.", Verdict)
    with pytest.raises(TypeError, match="extract takes a text"):
        chat.extract(3, Verdict)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="needs a type"):
        chat.extract("Guilty.", None)


def test_both_colours_extract(wire: str) -> None:
    """On an `AsyncChat`, too."""
    backend = ScriptedBackend(GOOD, wire=wire)

    assert asyncio.run(AsyncChat(backend).extract("Guilty.", Verdict)) == VERDICT


def test_step_by_step(wire: str) -> None:
    """Each attempt is a step. The model is told why, and the retries count across the steps."""
    chat, backend = desk(wire, BAD, GOOD)
    first = chat.step(None, user="Judge.", output_type=Verdict)
    second = chat.step(first.state, output_type=Verdict)

    assert (first.status, second.status) == ("in_progress", "complete")
    assert second.result is not None
    assert second.result.output == VERDICT
    assert "does not fit" in str(sent(backend))
    assert lines(second.state) == ["user: Judge.", f"assistant: {GOOD}"]

    chat, _ = desk(wire, BAD, BAD, GOOD)
    step = chat.step(None, user="Judge.", output_type=Verdict)
    step = chat.step(step.state, output_type=Verdict)
    assert step.status == "failed"
    assert isinstance(step.error, OutputError)
    assert chat.resume(step.state, output_type=Verdict).output == VERDICT
