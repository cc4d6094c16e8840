"""Another chat as a tool: its own conversation, its approvals, its cost, and no effect twice."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import Approve, AsyncChat, Chat, Deny, Limits, ToolContext, ToolReturn, tool
from goaitools_py.states import pending_calls, read_history, redact_state, verify_state
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

WIRES = ["openai", "openai-responses", "anthropic"]
ASK = Calls([("clerk", {"message": "Refund it."})])


class World:
    """An outer and an inner chat, their scripts, and what the inner tools did."""

    def __init__(
        self, face: Any, wire: str, outer: list[Any], inner: list[Any], tools: Any = (), **how: Any
    ) -> None:
        self.paid: list[int] = []

        @tool(requires_approval=True)
        def refund(euros: int) -> str:
            """Pay money back."""
            self.paid.append(euros)
            return f"paid {euros}"

        self.face = face
        self.inner = ScriptedBackend(*inner, wire=wire)
        self.outer = ScriptedBackend(*outer, wire=wire)
        self.store = AsyncMemoryStore() if face.is_async else MemoryStore()
        self.clerk: Any = (AsyncChat if face.is_async else Chat)(self.inner, tools=tools or [refund])
        made = self.clerk.as_tool("clerk", "Ask about money.", store=self.store, **how)
        self.chat = face.chat(self.outer, tools=[made], prices=lambda _: Decimal("0.5"))

    def begin(self, **fields: Any) -> Any:
        """The first turn of the outer conversation."""
        return self.chat.chat(**fields, conversation_id="c-1")

    def kept(self, key: str = "c-1/clerk") -> Any:
        """The history of the inner conversation."""
        found = self.store.load(key)
        stored = self.face.run(found) if self.face.is_async else found
        return read_history(stored.blob)


@pytest.mark.parametrize("wire", WIRES)
def test_a_chat_answers_another(face: Any, wire: str) -> None:
    """The outer model reads its reply; the inner conversation goes on from call to call."""
    world = World(face, wire, [ASK, "Thanks.", ASK, "Again."], ["First.", "Second."])

    one = world.begin(user="Ask.")
    two = world.chat.chat_with_state(one.state, user="Ask again.")

    assert [record.result for record in (*one.tool_log, *two.tool_log)] == ["First.", "Second."]
    assert [turn.text for turn in world.kept().turns] == ["First.", "Second."]
    assert (one.usage.requests, one.iterations, one.aside_usage.requests) == (3, 2, 1)
    assert (two.total_usage.requests, two.cost_usd, two.total_cost_usd) == (6, Decimal("1.5"), Decimal("3.0"))


@pytest.mark.parametrize("wire", WIRES)
def test_its_approvals_come_up(face: Any, wire: str) -> None:
    """They are answered through the outer conversation, and a second answer changes nothing."""
    refunds = [Calls([("refund", {"euros": euros})]) for euros in (5, 6)]
    world = World(face, wire, [ASK, "Thanks.", "Later."], [*refunds, "Both are paid."])

    first = world.begin(user="Ask.")
    (five,) = first.pending
    second = world.chat.resume(first.state, {five.id: Approve()})
    (six,) = second.pending
    again = world.chat.resume(second.state, {five.id: Approve()})
    last = world.chat.resume(again.state, {six.id: Approve()})
    late = world.chat.resume(last.state, {six.id: Approve()})

    assert (five.name, five.parsed, five.reason) == ("refund", {"euros": 5}, "approval")
    assert pending_calls(second.state) == second.pending == again.pending
    assert (again.status, again.duplicate, again.usage.requests) == ("awaiting_tools", True, 0)
    assert (last.text, world.paid) == ("Thanks.", [5, 6])
    assert (late.text, late.duplicate) == ("Thanks.", True)
    assert last.total_usage.requests == 5
    assert [verify_state(one.state) for one in (first, second, last)] == [()] * 3


def test_a_denial_goes_in(face: Any) -> None:
    """The inner model reads it; the other ways to end the call leave the inner conversation usable."""
    refund = Calls([("refund", {"euros": 5})])
    world = World(
        face,
        "openai",
        [ASK, "No.", ASK, "Never mind.", ASK, "Fine."],
        [refund, "Not paid.", refund, "Hello."],
    )

    waits = world.begin(user="Ask.")
    one = world.chat.resume(waits.state, {waits.pending[0].id: Deny("too much")})
    two = world.chat.chat_with_state(one.state, user="Ask.")
    outer_id = two.pending[0].id.partition("/")[0]
    two = world.chat.resume(two.state, {outer_id: ToolReturn("The clerk has gone home.")})
    three = world.chat.chat_with_state(two.state, user="Ask.")

    assert [one.text, two.text, three.text] == ["No.", "Never mind.", "Fine."]
    assert one.tool_log[-1].result == "Not paid."
    assert three.tool_log[-1].result == "Hello."
    assert world.paid == []
    with pytest.raises(ValueError, match="no call"):
        world.chat.resume(waits.state, {"nobody/x": Approve()})


def test_a_new_message_denies_what_waits_inside(face: Any) -> None:
    """As with any call that waits."""
    world = World(face, "openai", [ASK, "Hello."], [Calls([("refund", {"euros": 5})])])

    waits = world.begin(user="Ask.")
    result = world.chat.chat_with_state(waits.state, user="Forget it.", on_pending="deny")

    assert (result.text, world.paid, verify_state(result.state)) == ("Hello.", [], ())


def test_a_crash_asks_nobody_twice(face: Any) -> None:
    """A state from before the call's result runs the call again, which gives the stored reply."""
    world = World(face, "openai", [ASK, "Thanks.", "Thanks."], ["First."])
    blobs: list[bytes] = []
    world.begin(user="Ask.", on_checkpoint=blobs.append)
    started = next(blob for blob in blobs if blob != b"" and pending_calls(blob))

    result = world.chat.resume(started)

    assert (result.text, result.tool_log[0].result, len(world.inner.requests)) == ("Thanks.", "First.", 1)
    assert result.usage.requests == 1


def test_a_failure_is_told_and_counted(face: Any) -> None:
    """The inner turn's error is a result for the outer model, and what it cost is not lost."""
    world = World(
        face, "openai", [ASK, "Sorry."], [Calls([("refund", {"euros": "x"})]), RuntimeError("secret")]
    )

    result = world.begin(user="Ask.")

    assert (result.text, result.tool_log[0].flag) == ("Sorry.", "error")
    assert result.tool_log[0].result.startswith("clerk could not answer (")
    assert "secret" not in result.tool_log[0].result
    assert result.usage.requests == 3


def test_what_is_used_inside_counts_for_limits(face: Any) -> None:
    """One call of the inner chat costs half a dollar, and the turn may cost one."""
    world = World(face, "openai", [ASK, "Limited."], ["First."])

    result = world.begin(user="Ask.", limits=Limits(max_cost_usd=Decimal(1)))

    assert (result.status, result.cost_usd) == ("limited", Decimal("1.5"))


def test_a_key_and_deps_of_its_own(face: Any) -> None:
    """The key comes from the context, and the inner tools get the outer deps."""
    seen: list[Any] = []

    @tool
    def look(ctx: ToolContext[str]) -> str:
        """Look."""
        seen.append((ctx.deps, ctx.conversation_id))
        return "dark"

    world = World(
        face,
        "openai",
        [ASK, "Fine."],
        [Calls([("look", {})]), "Dark."],
        key=lambda ctx: "k-" + ctx.deps,
        tools=[look],
    )

    world.begin(user="Ask.", deps="Ada")

    assert seen == [("Ada", "k-Ada")]
    assert len(world.kept("k-Ada").turns) == 1


def test_what_waits_inside_is_redacted(face: Any) -> None:
    """A secret in the arguments of an inner call leaves the outer state."""

    @tool(requires_approval=True)
    def send(to: str) -> str:
        """Send it."""
        return to

    secret = 'Ada "4711"\n\u00e9'
    world = World(face, "openai", [ASK], [Calls([("send", {"to": secret})])], tools=[send])
    state = world.begin(user="Ask.").state

    redacted = redact_state(state, secret).state

    assert pending_calls(state)[0].parsed == {"to": secret}
    assert "4711" not in str([call.arguments for call in pending_calls(redacted)])
    assert verify_state(redacted) == ()


def test_an_option_is_checked_when_the_tool_is_made(face: Any) -> None:
    """And not when a model calls it."""
    world = World(face, "openai", [], [])

    with pytest.raises((TypeError, ValueError)):
        world.clerk.as_tool("clerk", "Ask.", store=world.store, timeout_seconds=3)
    with pytest.raises(ValueError, match="tool's name"):
        world.clerk.as_tool("the clerk", "Ask.", store=world.store)


@pytest.mark.parametrize("wire", WIRES)
def test_two_calls_at_a_time_leave_each_other_s_questions(face: Any, wire: str) -> None:
    """The first one waits for an approval. The second one is told so, and denies nothing."""
    both = Calls([("clerk", {"message": "Refund 5."}), ("clerk", {"message": "Refund 6."})])
    refunds = [Calls([("refund", {"euros": euros})]) for euros in (5, 6)]
    world = World(face, wire, [both, ASK, "Thanks."], [refunds[0], "Five.", refunds[1], "Six."])

    result = world.begin(user="Ask.")
    for _ in range(2):
        (call,) = result.pending
        result = world.chat.resume(result.state, {call.id: Approve()})

    assert (world.paid, result.text) == ([5, 6], "Thanks.")
    records = result.tool_log
    assert [record.result for record in records][-1] == "Six."
    assert "waits for an answer to your other call" in str(
        read_history(result.state).turns[0].messages[3].said
    )
    assert verify_state(result.state) == ()
