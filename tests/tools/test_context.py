"""Facts about `goaitools_py.tools.tool_context`: what a call is told, and what it logs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import Action, ToolContext, ToolReturn, run_call, tool


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


@pytest.fixture
def ctx() -> ToolContext[Game]:
    return ToolContext(deps=Game(), call_id="call_1", turn_id="turn_1", iteration=2, idempotency_key="key_1")


@pytest.mark.parametrize("text", [5, None, b"x", ["x"]])
def test_an_action_is_text(text: Any, ctx: ToolContext[Game]) -> None:
    """Anything else is refused where it is said; nothing is logged."""
    with pytest.raises(TypeError, match="log_action takes a str"):
        ctx.log_action(text)
    assert ctx.actions == ()


def test_a_context_tells_what_call_it_is(ctx: ToolContext[Game]) -> None:
    """The five facts of a call are plain attributes; a bare one needs deps only."""
    assert (ctx.call_id, ctx.turn_id, ctx.iteration, ctx.idempotency_key) == ("call_1", "turn_1", 2, "key_1")
    assert isinstance(ctx.deps, Game)
    assert ToolContext(deps=None).actions == ()


def test_a_context_logs_actions(ctx: ToolContext[Game]) -> None:
    """Actions come out in order, as values; data may use any name."""
    ctx.log_action("first")
    before = ctx.actions
    ctx.log_action("second", text="data", points=3)

    assert before == (Action("first"),)
    assert ctx.actions == (Action("first", {}), Action("second", {"text": "data", "points": 3}))


def test_reprs_of_contexts_and_actions_hold_no_content() -> None:
    """They end up in logs."""
    ctx = ToolContext(deps="the secret", call_id="call_1")
    ctx.log_action("the secret", key="the secret")

    shown = "call_id='call_1', turn_id='', iteration=1, idempotency_key='', max_result_bytes=262144, "
    shown += "conversation_id=''"
    assert repr(ctx) == f"ToolContext({shown})"
    assert "secret" not in repr(ctx.actions)
    assert "secret" not in repr(ToolReturn("the secret"))


def test_actions_of_one_context_may_come_from_many_threads() -> None:
    """A tool may fan out and log from its workers."""

    @tool
    def fan_out(ctx: ToolContext[None]) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: ctx.log_action("did", n=n), range(100)))

    outcome = run_call(fan_out, ToolContext(deps=None), {})

    assert sorted(action.data["n"] for action in outcome.actions) == list(range(100))


def test_what_is_no_bill_is_refused_in_the_tool(face: Any) -> None:
    """A result in place of its bill would end the turn after the tool, with each `resume` again."""
    chat = face.chat(ScriptedBackend("One."))
    inner = chat.chat(user="Count.")

    @tool
    def count(ctx: ToolContext) -> str:
        """Count with another model."""
        ctx.add_bill(inner)
        return "one"

    backend = ScriptedBackend(Calls([("count", {})]), "Done.")
    result = face.chat(backend, tools=[count]).chat(user="Count.")

    (record,) = result.tool_log
    assert (result.text, record.flag) == ("Done.", "error")
    assert str(record.error) == "add_bill takes result.bill, not ChatResult"
