"""Spans and metrics are those of the conventions, nest as things happen, and have no content unless asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace

from goaitools_py import (
    Chat,
    Compactor,
    KeepRecentTurns,
    ModelSettings,
    ToolError,
    TurnError,
    TurnLimit,
    tool,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.testing import Calls, ScriptedBackend

from ._seen import Seen, attributes
from ._tables import CONTENT, METRICS, SPANS

WIRES = ("openai", "openai-responses", "anthropic")
PROVIDERS = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool
def get_score(team: str) -> str:
    """Current score of one team."""
    with trace.get_tracer("database").start_as_current_span("SELECT"):
        return "canary-result"


CALL = Reply.calls(("get_score", '{"team":"canary-argument"}'))


def turn(chat: Any, *, streamed: bool, **fields: Any) -> Any:
    return chat.start(None, **fields).result() if streamed else chat.chat(**fields)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_the_spans_of_a_turn_are_those_of_the_conventions(
    face: Any, sim: Any, seen: Seen, wire: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, kinds, attributes and parents; a tool's own span nests in that of its call."""
    monkeypatch.setattr(trace, "get_tracer", lambda name, *_, **__: seen.tracers.get_tracer(name))
    telemetry = seen.telemetry(agent="guide")
    settings = ModelSettings(max_output_tokens=500)
    chat = face.on(sim, tools=[get_score], telemetry=telemetry, settings=settings)
    sim.push(CALL, Reply.text("canary-reply"))

    result = turn(chat, streamed=streamed, user="canary-user", conversation_id="ada")

    (agent,), chats, (called,) = seen.of("invoke_agent"), seen.of("chat"), seen.of("execute_tool")
    (own,) = [one for one in seen.spans if one.name == "SELECT"]
    assert agent.name == "invoke_agent guide"
    assert [one.name for one in chats] == ["chat sim-model"] * 2
    assert called.name == "execute_tool get_score"
    assert len(seen.spans) == 5
    for span in (agent, *chats, called):
        told = attributes(span)
        kind, required, optional = SPANS[told["gen_ai.operation.name"]]
        names = {name for name in told if not name.startswith("goaitools.")}
        assert span.kind.name == kind
        assert required <= names <= required | optional
        assert "canary" not in str(told)
        assert told["gen_ai.conversation.id"] == "ada"
        assert span.status.is_ok or span.status.is_unset
    for span in (*chats, called):
        assert span.parent is not None
        assert span.parent.span_id == agent.context.span_id
        assert agent.start_time <= span.start_time <= span.end_time <= agent.end_time
    assert own.parent is not None
    assert own.parent.span_id == called.context.span_id
    assert agent.parent is None
    last = attributes(chats[-1])
    assert last["gen_ai.provider.name"] == PROVIDERS[wire]
    assert last["gen_ai.request.max_tokens"] == 500
    assert last["gen_ai.response.model"] == result.model
    assert last["gen_ai.response.id"]
    assert last["gen_ai.response.finish_reasons"] == (result.finish_reason,)
    assert ("gen_ai.request.stream" in last) is streamed
    assert ("gen_ai.response.time_to_first_chunk" in last) is streamed
    spent = [attributes(one) for one in chats]
    assert sum(one["gen_ai.usage.input_tokens"] for one in spent) == result.usage.input_tokens
    assert attributes(agent)["gen_ai.usage.output_tokens"] == result.usage.output_tokens
    assert attributes(agent)["goaitools.turn.status"] == "complete"


def test_content_is_written_on_request(face: Any, seen: Seen) -> None:
    """And by no other name than the conventions'."""
    chat = face.chat(
        ScriptedBackend(Calls([("get_score", {"team": "canary-argument"})]), "canary-reply"),
        tools=[get_score],
        telemetry=seen.telemetry(content=True),
    )

    chat.chat(user="canary-user")

    (agent,), chats, (called,) = seen.of("invoke_agent"), seen.of("chat"), seen.of("execute_tool")
    assert "canary-user" in attributes(agent)["gen_ai.input.messages"]
    assert "canary-argument" in attributes(chats[0])["gen_ai.output.messages"]
    assert "canary-reply" in attributes(chats[1])["gen_ai.output.messages"]
    assert "canary-argument" in attributes(called)["gen_ai.tool.call.arguments"]
    assert attributes(called)["gen_ai.tool.call.result"] == "canary-result"
    for span in (agent, *chats, called):
        own = {"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"} | CONTENT
        assert all(name in own for name, value in attributes(span).items() if "canary" in str(value))


def test_the_environment_says_whether_content_is_written(monkeypatch: pytest.MonkeyPatch, seen: Seen) -> None:
    """If the program leaves it to the environment."""
    assert not seen.telemetry(content=None).content
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    assert seen.telemetry(content=None).content
    assert not seen.telemetry().content


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_failures_and_retries_have_spans_of_their_own(
    face: Any, sim: Any, seen: Seen, wire: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is one span, with the status as its error; that of the turn has the last one's."""
    from goaitools_py.turn import retry

    monkeypatch.setattr(retry, "FIRST_PAUSE_SECONDS", 0.001)
    chat = face.on(sim, max_retries=1, telemetry=seen.telemetry())
    sim.push(Fault.error(503, "canary"), Fault.error(503, "canary"))

    with pytest.raises(TurnError):
        turn(chat, streamed=streamed, user="Hi.")

    (agent,) = seen.of("invoke_agent")
    assert [attributes(one)["error.type"] for one in (*seen.of("chat"), agent)] == ["503", "503", "503"]
    assert not any(one.status.is_ok or one.status.is_unset for one in (*seen.of("chat"), agent))
    assert "canary" not in str([attributes(one) for one in seen.spans])
    waited = seen.metrics()["goaitools.turn.wait"].data.data_points[0]
    assert waited.sum > 0


def test_a_retry_that_succeeds_is_no_failed_turn(
    face: Any, sim: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request is an error, the second is not, and the turn is none."""
    from goaitools_py.turn import retry

    monkeypatch.setattr(retry, "FIRST_PAUSE_SECONDS", 0.001)
    chat = face.on(sim, max_retries=1, telemetry=seen.telemetry())
    sim.push(Fault.error(503, "busy"), Reply.text("Yes."))

    chat.chat(user="Hi.")

    assert ["error.type" in attributes(one) for one in seen.of("chat")] == [True, False]
    assert "error.type" not in attributes(seen.of("invoke_agent")[0])


def test_a_tool_that_fails_is_an_error_of_its_span(face: Any, seen: Seen) -> None:
    """By the class of what it raised; the turn goes on."""

    @tool
    def boom() -> None:
        """Fail."""
        raise ToolError("canary")

    chat = face.chat(
        ScriptedBackend(Calls([("boom", {})]), "Sorry."), tools=[boom], telemetry=seen.telemetry()
    )

    chat.chat(user="Hi.")

    (called,) = seen.of("execute_tool")
    assert attributes(called)["error.type"] == "ToolError"
    assert attributes(called)["goaitools.tool.flag"] == "error"
    assert "canary" not in str(attributes(called))
    assert "error.type" not in attributes(seen.of("invoke_agent")[0])


def test_a_turn_that_is_left_ends_its_spans(face: Any, seen: Seen) -> None:
    """All of them, and none is an error."""
    chat = face.chat(ScriptedBackend("Hello."), telemetry=seen.telemetry())
    handle = chat.start(None, user="Hi.")

    next(iter(handle))
    handle.cancel()

    (agent,) = seen.of("invoke_agent")
    assert attributes(agent)["goaitools.turn.status"] == "left"
    assert "error.type" not in attributes(agent)
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_cut_is_told_and_its_question_has_a_span(face: Any, seen: Seen) -> None:
    """`gen_ai.conversation.compacted` is true or missing, never false."""
    chat = face.chat(
        ScriptedBackend(*["Yes."] * 3),
        compactor=Compactor(TurnLimit(1), KeepRecentTurns(1)),
        telemetry=seen.telemetry(),
    )

    first = chat.chat(user="a")
    chat.chat_with_state(first.state, user="b")

    told = [attributes(one) for one in seen.of("invoke_agent")]
    assert [one.get("gen_ai.conversation.compacted") for one in told] == [None, True]


def test_metrics_are_those_of_the_conventions(face: Any, seen: Seen) -> None:
    """Units, and boundaries of buckets."""
    chat = face.chat(
        ScriptedBackend(Calls([("get_score", {"team": "Red"})]), "Yes."),
        tools=[get_score],
        telemetry=seen.telemetry(agent="guide"),
    )

    result = chat.chat(user="Hi.")

    found = seen.metrics()
    for name, (unit, bounds) in METRICS.items():
        assert found[name].unit == unit
        assert list(found[name].data.data_points[0].explicit_bounds) == bounds
    points = found["gen_ai.client.token.usage"].data.data_points
    sums = {point.attributes["gen_ai.token.type"]: point.sum for point in points}
    assert sums == {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
    assert found["gen_ai.execute_tool.duration"].data.data_points[0].count == 1
    assert found["goaitools.state.bytes"].data.data_points[0].sum == len(result.state)
    (whole,) = found["gen_ai.invoke_agent.duration"].data.data_points
    assert whole.attributes["gen_ai.agent.name"] == "guide"


def test_there_is_one_chat_span_beside_the_sdks_own_instrumentation(
    face: Any, sim: Any, seen: Seen, wire: str
) -> None:
    """Both SDKs are instrumented: openai by a package, anthropic by itself. The request passes below them."""
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    trace.set_tracer_provider(seen.tracers)  # the global one, which holds for the whole process
    instrumentor = OpenAIInstrumentor()
    instrumentor.instrument(tracer_provider=seen.tracers, meter_provider=seen.meters)
    try:
        chat = face.on(sim, telemetry=seen.telemetry())
        sim.push(Reply.text("Yes."))
        chat.chat(user="Hi.")
    finally:
        instrumentor.uninstrument()

    assert sorted(one.name for one in seen.spans) == ["chat sim-model", "invoke_agent"]


def test_nothing_is_imported_without_it() -> None:
    """Neither the API nor the module: a turn without telemetry loads none of it. Both SDKs may."""
    code = (
        "import sys; from goaitools_py import Chat; from goaitools_py.testing import ScriptedBackend; "
        "Chat(ScriptedBackend('Yes.')).chat(user='Hi.'); "
        "found = ('opentelemetry', 'goaitools_py.telemetry'); "
        "print([name for name in sys.modules if name.startswith(found)])"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout.strip() == "[]"


def test_what_is_no_telemetry_is_refused() -> None:
    """Before any turn, with the way to make one."""
    with pytest.raises(TypeError, match=r"Telemetry\(\)"):
        Chat("sim", telemetry=True)  # type: ignore[arg-type]
