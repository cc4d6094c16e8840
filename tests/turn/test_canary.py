"""Nothing that was said, and no key, leaks into errors, logs, events or reprs.

Excepted is what a tool raised: that is the application's own exception, at the `__cause__` of a
`ToolFailedError`. What an SDK raised is at `sdk_error`, which nothing prints.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    AbortTurn,
    Approve,
    Chat,
    Compactor,
    Deny,
    GoAIToolsError,
    KeepRecentTurns,
    MessageLimit,
    ModelSettings,
    ToolContext,
    ToolError,
    ToolFailedError,
    ToolPendingError,
    ToolReturn,
    assistant,
    event,
    system,
    tool,
    user,
)
from goaitools_py.options import ChatOptions
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, pending_calls, read_history
from goaitools_py.testing import Calls, ScriptedBackend

from ._reading import ANTHROPIC, CHAT, LEAD, RESPONSES

KEY = "sk-canary-key"
SECRETS = (
    KEY,
    "canary-user",
    "canary-system",
    "canary-context",
    "canary-event",
    "canary-reply",
    "canary-thought",
    "canary-argument",
    "canary-result",
    "canary-exception",
    "canary-deps",
    "canary-header",
)


class Deps:
    """Something of the application's own, with a talkative repr."""

    def __repr__(self) -> str:
        return "canary-deps"


@tool
def whisper(ctx: ToolContext[Any], secret: str) -> str:
    """Whisper it."""
    ctx.log_action("canary-result", note="canary-result")
    return "canary-result"


@tool
def fail(secret: str) -> str:
    """Raise with it."""
    raise LookupError("canary-exception")


@tool
def refuse(secret: str) -> str:
    """Raise with it, for the model."""
    raise ToolError("canary-exception")


@tool
def leave(secret: str) -> str:
    """End the turn."""
    raise AbortTurn("canary-exception")


def calls(*names: str, finish: str | None = None) -> Reply:
    """A reply that calls tools with a secret argument."""
    made = ((name, '{"secret":"canary-argument"}') for name in names)
    return Reply.calls(*made, text="canary-reply", thinking="canary-thought", finish=finish)


ODD_CALLS = {
    CHAT: b'{"choices":[{"message":{"role":"assistant","tool_calls":["canary-reply"]}}]}',
    RESPONSES: b'{"status":"completed","output":["canary-reply"]}',
    ANTHROPIC: b'{"content":["canary-reply"],"stop_reason":"tool_use"}',
}
"""Answers with something else where a call should be."""

MARKED = {
    CHAT: {"user": "canary-header"},
    RESPONSES: {"user": "canary-header"},
    ANTHROPIC: {"metadata": {"user_id": "canary-header"}},
}
"""A secret in a member of the request that each provider takes."""


def words_after(sim: Any, spoil: Any, words: int) -> Fault:
    """A fault that spoils a stream after so many words of its text."""
    fault: Fault = spoil(
        after=LEAD[sim.wire] + words, reply=Reply.text("canary-reply canary-reply canary-reply")
    )
    return fault


SCRIPTS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "success": (
        [calls("whisper", "fail", "refuse"), Reply.text("canary-reply", thinking="canary-thought")],
        {},
    ),
    "401": ([Fault.error(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")], {}),
    "429": ([Fault.rate_limit()], {}),
    "400": ([Fault.bad_request("Your message 'canary-user' is bad.", code="canary-user is bad")], {}),
    "400 later": ([calls("whisper"), Fault.bad_request("canary-result")], {}),
    "too long": ([Fault.context_length()], {}),
    "page": ([Reply.raw(b"<html>canary-reply</html>")], {}),
    "broken JSON": ([lambda sim: Reply.raw(ODD_CALLS[sim.wire][:-12])], {}),
    "odd calls": ([lambda sim: Reply.raw(ODD_CALLS[sim.wire])], {}),
    "error body": ([Reply.raw(b'{"error":{"message":"canary-reply","code":"canary-reply no code"}}')], {}),
    "reset": ([lambda sim: words_after(sim, Fault.reset, 3)], {}),
    "error event": ([lambda sim: words_after(sim, Fault.error_event, 2)], {}),
    "tool raises": ([calls("fail")], {"tool_errors": "raise"}),
    "tool ends": ([calls("leave")], {}),
    "bad arguments": (
        [Reply.calls(("whisper", '{"canary-argument":'), ("shout", '{"secret":"canary-argument"}'))],
        {},
    ),
    "cut calls": ([calls("whisper", finish="length")], {}),
    "limit": ([calls("whisper")], {"max_iterations": 1, "on_limit": "raise"}),
    "checkpoint": ([calls("whisper")], {"on_checkpoint": lambda blob: 1 / 0}),
    "compactor": ([], {"compactor": Compactor(MessageLimit(1), lambda request: {"canary-reply": 1})}),
}


NOTHING_ELSE = ("TextDelta", "ReasoningDelta", "Message")
"""Values that are what was said, and nothing else: their `to_dict` has it."""


def words(value: Any, depth: int = 0) -> Iterator[str]:
    """What a value shows of itself when it is logged or printed."""
    yield repr(value)
    yield str(value)
    if isinstance(value, BaseException):
        yield repr(value.args)
        yield from traceback.format_exception_only(value)
        if isinstance(value, ToolFailedError):
            return
        printed = "".join(traceback.format_exception(value)).split("\n")
        yield "\n".join(line for line in printed if not line.startswith("    "))  # but the lines of code
        for link in (value.__cause__, value.__context__):
            if link is not None and depth < 8:
                yield from words(link, depth + 1)
    elif hasattr(value, "to_dict") and type(value).__name__ not in NOTHING_ELSE:
        yield repr(value.to_dict())


def assert_silent(*values: Any) -> None:
    """No secret in anything that the values show of themselves."""
    for value in values:
        for text in words(value):
            leaked = [secret for secret in SECRETS if secret in text]
            assert not leaked, f"{type(value).__name__} shows {leaked}: {text[:300]}"


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
def test_nothing_said_is_shown(
    face: Any, sim: Any, caplog: pytest.LogCaptureFixture, name: str, streamed: bool
) -> None:
    """Errors, results, events and log records, the SDK's too, name classes, counts and codes only."""
    script, fields = SCRIPTS[name]
    backend = sim.backend(is_async=face.is_async, api_key=KEY)
    settings = ModelSettings(extra_headers={"X-Secret": "canary-header"}, extra_body=MARKED[sim.wire])
    chat = face.chat(
        backend,
        system="canary-system",
        tools=[whisper, fail, refuse, leave],
        settings=settings,
        deps=Deps(),
        tool_threads=False,
    )
    before = chat.append_to_state(None, event("canary-event", topic="canary-event", id="canary-event"))
    sim.push(*(step(sim) if callable(step) else step for step in script))
    events: list[Any] = []
    fields = {"user": "canary-user", "context": "canary-context", "on_event": events.append, **fields}

    with caplog.at_level(logging.DEBUG):
        try:
            start = chat.start(before, **fields) if streamed else None
            outcome: Any = start.result() if start else chat.chat_with_state(before, **fields)
        except GoAIToolsError as err:
            outcome = err

    assert events
    assert sim.problems == []
    assert_silent(outcome, *events, *(record.getMessage() for record in caplog.records))
    assert_silent(*outcome.tool_log, outcome.usage, *(record.call for record in outcome.tool_log))
    if isinstance(outcome, GoAIToolsError):
        assert_silent(*outcome.pending_input)
    else:
        assert_silent(*outcome.actions, *outcome.warnings)
    if outcome.state:
        assert_silent(inspect_state(outcome.state))
        history = read_history(outcome.state)
        assert_silent(*history.turns, *history.all_messages())


def test_values_keep_silent(face: Any, sim: Any) -> None:
    """Messages, options, settings, chats and backends show kinds and sizes, never content or keys."""
    backend = sim.backend(is_async=face.is_async, api_key=KEY)
    options = ChatOptions(
        user="canary-user",
        system="canary-system",
        context="canary-context",
        deps=Deps(),
        settings=ModelSettings(extra_headers={"X": "canary-header"}, extra_body={"x": "canary-header"}),
        metadata={"x": "canary-user"},
    )

    assert_silent(
        user("canary-user"),
        assistant("canary-reply"),
        system("canary-system"),
        event("canary-event", topic="canary-event", id="canary-event"),
        user("canary-user").parts[0],
        options,
        backend,
        face.chat(backend, system="canary-system").inner,
    )


def test_what_waits_and_what_is_answered_keep_silent(face: Any, wire: str, run: Any) -> None:
    """Calls that wait show their tool and id, never the arguments; an answer shows neither what was approved
    nor why something was denied."""

    @tool(requires_approval=True)
    def pay(secret: str) -> str:
        """Pay."""
        return "canary-result"

    @tool(external=True)
    def clerk(secret: str) -> str:
        """Ask the clerk."""
        raise AssertionError("an external tool was run")

    arguments = {"secret": "canary-argument"}
    asked = Calls([("pay", arguments), ("pay", arguments), ("pay", arguments), ("clerk", arguments)])
    chat = face.chat(
        ScriptedBackend(asked, "canary-reply", wire=wire), tools=[pay, clerk], tool_threads=False
    )
    events: list[Any] = []

    waiting = run(chat, user="canary-user", on_event=events.append)
    with pytest.raises(ToolPendingError) as caught:
        run(chat, waiting.state, user="canary-user")
    given = (
        Approve({"secret": "canary-argument"}),
        Approve('{"secret":"canary-argument"}'),
        Deny("canary-exception"),
        ToolReturn("canary-result"),
    )
    answers = dict(zip((call.id for call in waiting.pending), given, strict=True))
    answered = chat.resume(waiting.state, answers, on_event=events.append)

    assert [call.reason for call in waiting.pending] == ["approval"] * 3 + ["external"]
    assert all("canary-argument" in call.arguments for call in waiting.pending)  # there for whoever asks
    assert_silent(waiting, waiting.pending, *waiting.pending, *pending_calls(waiting.state))
    assert_silent(caught.value, caught.value.pending)
    assert_silent(answers, *given)
    assert_silent(answered, *answered.tool_log, *events)


def test_a_damaged_state_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a blob turns out to be, its bytes are on `blob` and not in the text."""
    good = Chat(ScriptedBackend("canary-reply")).chat(user="canary-user").state
    for given in (b'{"messages":[{"content":"canary-user"}]}', b"canary-user" * 20, good[:-5], "canary-user"):
        with pytest.raises(GoAIToolsError) as caught:
            Chat(ScriptedBackend()).resume(given)  # type: ignore[arg-type]
        assert_silent(caught.value)
    assert caplog.records == []


def test_the_backstop_catches_leaks() -> None:
    """The check itself sees a secret in a text, a repr and a chained exception."""
    chained = ValueError("fine")
    chained.__context__ = KeyError("canary-user")
    for leaky in ("canary-user", ValueError("canary-user"), chained, {"x": KEY}):
        with pytest.raises(AssertionError, match="shows"):
            assert_silent(leaky)


def test_compacting_keeps_silent() -> None:
    """A report and a compaction request show counts."""
    seen: list[Any] = []

    def look(request: Any) -> Any:
        seen.extend((request, *request.turns))
        return request.turns[-1:]

    chat = Chat(ScriptedBackend(*["canary-reply"] * 2))
    state = chat.run_turns(None, ["canary-user", "canary-user"]).state
    report = chat.compact_state(state, Compactor(MessageLimit(1), look))

    assert_silent(report, *seen, KeepRecentTurns(1))
