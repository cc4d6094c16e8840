"""What an agent's span and metrics say: who has answered, and what it and the agents in it have used."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from goaitools_py import Approve, Deny, ModelSettings, Tool, ToolContext, TurnError, __version__, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.telemetry import conventions
from goaitools_py.testing import Calls, ScriptedBackend

from ..conftest import TurnFace
from ._seen import Seen, attributes

WIRES = ("openai", "openai-responses", "anthropic")


def got(face: Any, answer: Any) -> Any:
    """What a method of a conversation gives, in either colour."""
    return face.run(answer) if face.is_async else answer


def new_store(face: Any) -> Any:
    """An empty store of this colour."""
    return AsyncMemoryStore() if face.is_async else MemoryStore()


@tool
def documented(team: str) -> str:
    """Current score of one team.

    Args:
        team: Its name.
    """
    return "30"


@tool(description="Replaced.")
def replaced(team: str) -> str:
    """Not this."""
    return "30"


def _scored(ctx: ToolContext[Any], team: str) -> str:
    """Scored by hand."""
    return "30"


def _schema(deps: Any) -> dict[str, Any]:
    _asked.append(deps)
    return {"type": "object", "properties": {"team": {"type": "string"}}}


_asked: list[Any] = []
BY_DEPS = Tool("by_deps", "Depends on the turn.", _schema, _scored)
UNDESCRIBED = Tool("undescribed", None, _schema, _scored)
BY_FUNCTION = Tool.from_function(_scored)


@pytest.mark.parametrize(
    ("given", "described"),
    [
        (documented, "Current score of one team."),
        (replaced, "Replaced."),
        (BY_FUNCTION, "Scored by hand."),
        (BY_DEPS, "Depends on the turn."),
        (UNDESCRIBED, None),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_tool_is_described_as_the_model_reads_it(
    face: Any, seen: Seen, given: Any, described: str | None
) -> None:
    """However it was made. A schema that depends on the turn is not asked for once more."""
    _asked.clear()
    plain = face.chat(ScriptedBackend(Calls([(given.name, {"team": "Red"})]), "Yes."), tools=[given])
    plain.chat(user="Hi.")
    before = len(_asked)
    _asked.clear()
    backend = ScriptedBackend(Calls([(given.name, {"team": "Red"})]), "Yes.")

    face.chat(backend, tools=[given], telemetry=seen.telemetry()).chat(user="Hi.")

    (called,) = seen.of("execute_tool")
    assert attributes(called).get("gen_ai.tool.description") == described
    assert len(_asked) == before


def test_the_scope_has_a_version_and_a_schema(face: Any, seen: Seen) -> None:
    """Of the spans and of the metrics."""
    face.chat(ScriptedBackend("Yes."), telemetry=seen.telemetry()).chat(user="Hi.")

    scopes = [span.instrumentation_scope for span in seen.spans]
    data: Any = seen.reader.get_metrics_data()
    scopes += [scope.scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    assert {(scope.name, scope.version, scope.schema_url) for scope in scopes if scope is not None} == {
        ("goaitools_py", __version__, conventions.SCHEMA_URL)
    }


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kept", [False, True], ids=["bare", "kept"])
@pytest.mark.parametrize("to", WIRES)
def test_a_turn_has_the_names_of_the_provider_that_has_answered(
    face: Any, seen: Seen, to: str, kept: bool, streamed: bool
) -> None:
    """And each call those of the provider that was asked."""
    own = "openai" if to == "anthropic" else "anthropic"
    chat = face.chat(
        ScriptedBackend(BackendError("down", status=503), wire=own, model="first"),
        fallbacks=[ScriptedBackend("Yes.", wire=to, model="second")],
        settings=ModelSettings(model="first-large"),
        telemetry=seen.telemetry(agent="guide"),
    )

    if kept:
        talk = chat.inner.conversation(new_store(face), "ada")
        _ = TurnFace(talk.start("Hi."), face.run).result() if streamed else got(face, talk.send("Hi."))
    else:
        _ = chat.start(None, user="Hi.").result() if streamed else chat.chat(user="Hi.")

    def names(told: Any) -> tuple[str, str]:
        return told["gen_ai.provider.name"], told["gen_ai.request.model"]

    provider = "anthropic" if to == "anthropic" else "openai"
    first, second = seen.of("chat")
    assert names(attributes(first)) == (own, "first-large")
    assert (first.name, second.name) == ("chat first-large", "chat second")
    assert names(attributes(second)) == (provider, "second")
    assert names(attributes(seen.of("invoke_agent")[0])) == (provider, "second")
    (point,) = seen.metrics()["gen_ai.invoke_agent.duration"].data.data_points
    assert names(point.attributes) == (provider, "second")


def test_the_next_turn_has_the_names_of_the_provider_that_it_begins_with(face: Any, seen: Seen) -> None:
    """The first one could not be reached, and rests: the turn begins with the next one."""
    chat = face.chat(
        ScriptedBackend(BackendError("no route"), wire="openai", model="first"),
        fallbacks=[ScriptedBackend("Yes.", "Yes.", wire="anthropic", model="second")],
        telemetry=seen.telemetry(),
    )

    chat.chat(user="Hi.")
    chat.chat(user="Hi.")

    told = [attributes(span) for span in seen.of("invoke_agent")]
    assert [(one["gen_ai.provider.name"], one["gen_ai.request.model"]) for one in told] == [
        ("anthropic", "second"),
        ("anthropic", "second"),
    ]


def test_a_turn_that_all_have_refused_has_the_names_of_the_last(face: Any, seen: Seen) -> None:
    """It is the one whose error the caller gets."""
    chat = face.chat(
        ScriptedBackend(BackendError("down", status=503), model="first"),
        fallbacks=[ScriptedBackend(BackendError("down", status=529), wire="anthropic", model="second")],
        telemetry=seen.telemetry(),
    )

    with pytest.raises(TurnError):
        chat.chat(user="Hi.")

    told = attributes(seen.of("invoke_agent")[0])
    assert (told["gen_ai.provider.name"], told["gen_ai.request.model"], told["error.type"]) == (
        "anthropic",
        "second",
        "529",
    )


def counted(seen: Seen, name: str) -> dict[str, tuple[int, int]]:
    """By agent: how many invocations were counted, and the sum of their calls."""
    points = seen.metrics()[name].data.data_points
    return {point.attributes.get("gen_ai.agent.name", ""): (point.count, point.sum) for point in points}


INFERENCE, TOOLS = "gen_ai.invoke_agent.inference_calls", "gen_ai.invoke_agent.tool_calls"


def test_the_calls_of_an_agent_are_counted(face: Any, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that failed count, too, and an agent without any call of a tool counts as 0."""
    from goaitools_py.turn import retry

    monkeypatch.setattr(retry, "FIRST_PAUSE_SECONDS", 0.001)

    @tool
    def boom(at: Annotated[int, "a number"]) -> str:
        """Fail."""
        raise ValueError("no")

    busy = BackendError("busy", status=503)
    calls = Calls([("boom", {"at": 1}), ("boom", {"at": 2})])
    backend = ScriptedBackend(busy, calls, "Sorry.", max_retries=1)
    face.chat(backend, tools=[boom], telemetry=seen.telemetry(agent="a")).chat(user="Hi.")
    face.chat(ScriptedBackend("Yes."), telemetry=seen.telemetry(agent="b")).chat(user="Hi.")

    assert counted(seen, INFERENCE) == {"a": (1, 3), "b": (1, 1)}
    assert counted(seen, TOOLS) == {"a": (1, 2), "b": (1, 0)}


def test_a_turn_that_asks_nobody_counts_as_none(face: Any, seen: Seen) -> None:
    """The message came twice: the stored reply is given, and no model is asked."""
    chat = face.chat(ScriptedBackend("Yes."), telemetry=seen.telemetry(agent="a"))
    talk = chat.inner.conversation(new_store(face), "ada")

    got(face, talk.send("Hi.", turn_id="1"))
    got(face, talk.send("Hi.", turn_id="1"))

    assert counted(seen, INFERENCE) == {"a": (2, 1)}


@tool(requires_approval=True)
def refund(euros: int) -> str:
    """Pay money back."""
    return f"{euros} euros are on their way"


class Desk:
    """A desk that asks a clerk, and the clerk's tool waits for an answer."""

    def __init__(self, face: Any, seen: Seen) -> None:
        store = new_store(face)
        inner = ScriptedBackend(Calls([("refund", {"euros": 5})]), "Done.")
        outer = ScriptedBackend(Calls([("clerk", {"message": "Refund."})]), "You get them.")
        clerk = face.chat(inner, tools=[refund], telemetry=seen.telemetry(agent="clerk"))
        ask = clerk.inner.as_tool("clerk", "Ask.", store=store)
        desk = face.chat(outer, tools=[ask], telemetry=seen.telemetry(agent="desk"))
        self._face, self._talk = face, desk.inner.conversation(store, "ada")
        self.waiting = got(face, self._talk.send("5 euros back, please."))
        assert self.waiting.status == "awaiting_tools"

    def answer(self, answer: Any) -> None:
        """Answer what waits."""
        got(self._face, self._talk.resume({call.id: answer for call in self.waiting.pending}))


@pytest.mark.parametrize("answer", [Approve(), Deny("no")], ids=["approved", "denied"])
def test_a_hand_off_that_waits_is_counted_once(face: Any, seen: Seen, answer: Any) -> None:
    """It is one call of the outer agent. Its first run has ended in nothing that the model reads."""
    desk = Desk(face, seen)
    desk.answer(answer)

    runs = [one for one in seen.of("execute_tool") if attributes(one)["gen_ai.tool.name"] == "clerk"]
    assert [attributes(one)["goaitools.tool.flag"] for one in runs] == ["waiting", "ok"]
    assert not any("error.type" in attributes(one) for one in runs)
    durations = {
        point.attributes["gen_ai.tool.name"]: point.count
        for point in seen.metrics()["gen_ai.execute_tool.duration"].data.data_points
    }
    assert durations["clerk"] == 1
    is_run = isinstance(answer, Approve)
    assert counted(seen, TOOLS) == {"desk": (2, 1), "clerk": (2, int(is_run))}
    assert counted(seen, INFERENCE) == {"desk": (2, 2), "clerk": (2, 2)}


def test_tokens_of_an_agent_are_those_of_its_whole_tree(face: Any, seen: Seen) -> None:
    """As the conventions have it. The sum of the model calls is the sum of what is paid for."""
    desk = Desk(face, seen)
    desk.answer(Approve())

    def tokens(operation: str, kind: str, agent: str = "") -> int:
        return sum(
            attributes(one)[f"gen_ai.usage.{kind}_tokens"]
            for one in seen.of(operation)
            if attributes(one).get("gen_ai.agent.name", "") == agent
        )

    points = seen.metrics()["gen_ai.client.token.usage"].data.data_points
    for kind in ("input", "output"):
        paid = tokens("chat", kind)
        assert tokens("invoke_agent", kind, "desk") == paid
        assert 0 < tokens("invoke_agent", kind, "clerk") < paid
        assert sum(point.sum for point in points if point.attributes["gen_ai.token.type"] == kind) == paid


def test_a_call_of_a_tool_names_the_agent(face: Any, seen: Seen) -> None:
    """In its span, and in its metric."""
    backend = ScriptedBackend(Calls([("documented", {"team": "Red"})]), "Yes.")
    face.chat(backend, tools=[documented], telemetry=seen.telemetry(agent="a")).chat(user="Hi.")

    (point,) = seen.metrics()["gen_ai.execute_tool.duration"].data.data_points
    assert attributes(seen.of("execute_tool")[0])["gen_ai.agent.name"] == "a"
    assert point.attributes["gen_ai.agent.name"] == "a"
