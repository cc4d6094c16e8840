"""Nothing that was said, and no key, leaks into errors, logs, events or reprs.

Excepted is what a tool raised: that is the application's own exception, at the `__cause__` of a
`ToolFailedError`. What an SDK raised is at `sdk_error`, which nothing prints.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from goaitools_py import (
    AbortTurn,
    Approve,
    Chat,
    Compactor,
    Deny,
    GoAIToolsError,
    KeepRecentTurns,
    Limits,
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
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, pending_calls, read_history
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.options import ChatOptions

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
    "quota": ([Fault.quota()], {}),
    **{
        str(status): (
            [Fault.error(status, f"canary-reply canary-user {KEY}", code="canary-user is bad")] * 3,
            {},
        )
        for status in (402, 403, 404, 405, 407, 408, 409, 413, 418, 422, 446, 451, 500, 503, 529)
    },
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
    "limit": ([calls("whisper")], {"limits": Limits(max_iterations=1), "on_limit": "raise"}),
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
    assert_silent(*(vars(record) for record in caplog.records if record.name.startswith("goaitools_py")))
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


class Unsayable:
    """No JSON says it, and its repr is talkative."""

    def __repr__(self) -> str:
        return "canary-argument"


MISTAKES: dict[str, dict[str, Any]] = {
    "no text": {"user": {"canary-user": 1}},
    "a part that is none": {"user": ["canary-user", {"canary-user": 1}]},
    "a reply as the user's": {"user": assistant("canary-user")},
    "no messages": {"user": None, "messages": [{"role": "user", "content": "canary-user"}]},
    "messages as text": {"user": None, "messages": "canary-user"},
    "system": {"system": {"canary-system": 1}},
    "context": {"context": ["canary-context"]},
    "metadata": {"metadata": {"canary-user": {"canary-user": 1}}},
    "metadata as a list": {"metadata": ["canary-user"]},
    "too much metadata": {"metadata": {"x": "canary-user" * 100_000}},
    "a message beyond the limits": {"user": "canary-user " * 2_000_000},
    "speaker": {"speaker": {"canary-user": 1}},
    "a long speaker": {"speaker": "canary-user" * 100},
    "turn_id": {"turn_id": {"canary-user": 1}},
    "a long turn_id": {"turn_id": "canary-user" * 1_000},
    "tools": {"tools": ["canary-argument"]},
    "settings": {"settings": {"canary-header": 1}},
    "binding": {"binding": "canary-user"},
}
"""What a caller gives a turn, and no turn takes."""


@pytest.mark.parametrize("name", MISTAKES)
def test_a_callers_mistake_is_not_quoted(face: Any, wire: str, run: Any, name: str) -> None:
    """The error of an option that cannot be taken says its kind or its size; a message that is refused for
    its size does not stand in the error's text either."""
    chat = face.chat(ScriptedBackend("canary-reply", wire=wire))

    with pytest.raises((TypeError, ValueError, GoAIToolsError)) as caught:
        run(chat, **{"user": "canary-user", **MISTAKES[name]})

    assert_silent(caught.value)


ANSWERS: dict[str, Any] = {
    "another member": Approve({"place": "x", "canary-argument": 1}),
    "a member of a member": Approve({"place": "x", "seats": {"canary-argument": "canary-argument"}}),
    "a value": Approve({"place": {"canary-argument": 1}}),
    "a name that imitates the list": Approve({"place": "x", "y\n- place: canary-argument": 1}),
    "what the validator refuses": Approve({"place": "canary-argument"}),
    "no JSON": Approve('{"canary-argument'),
    "no object": Approve('["canary-argument"]'),
    "unsayable": Approve({"place": Unsayable()}),
    "half a pair": Approve({"canary-argument\ud800": "\ud800"}),
    "no answer": {"canary-argument": 1},
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_does_not_fit_is_not_quoted(face: Any, wire: str, name: str) -> None:
    """Of the names in approved arguments the error has those that the tool declares, and no others."""

    def checked(place: str) -> str:
        if place.startswith("canary"):
            raise ToolError(f"There is no {place}.")
        return place

    @tool(requires_approval=True)
    def book(place: Annotated[str, AfterValidator(checked)], seats: dict[str, int] | None = None) -> str:
        """Book it."""
        raise AssertionError("it was run")

    asked = Calls([("book", {"place": "x"})])
    chat = face.chat(ScriptedBackend(asked, "canary-reply", wire=wire), tools=[book])
    waiting = chat.chat(user="canary-user")

    with pytest.raises((TypeError, ValueError)) as caught:
        chat.resume(waiting.state, {waiting.pending[0].id: ANSWERS[name]})

    assert_silent(caught.value)


@pytest.mark.parametrize("codec", [Signed, Encrypted])
def test_a_seal_that_does_not_open_is_not_quoted(face: Any, wire: str, codec: Any) -> None:
    """Neither the owner, nor the key, nor what is sealed: for a wrong owner or key, none, damage, and age."""
    own, other = (codec(Keyring(Key(bytes([number]) * 32))) for number in (1, 2))
    chat = face.chat(ScriptedBackend(*["canary-reply"] * 3, wire=wire), codec=own)
    ada = {"binding": {"canary-user": "canary-user"}}
    state = chat.chat(user="canary-user", **ada).state
    strange = face.chat(ScriptedBackend(wire=wire), codec=other)
    attempts: list[tuple[Any, bytes, dict[str, Any]]] = [
        (chat, state, {}),
        (chat, state, {"binding": {"canary-user": "canary-header"}}),
        (chat, state, {"binding": {"canary-user": Deps()}}),
        (chat, state, {"binding": Deps()}),
        (chat, state, {**ada, "min_revision": 99}),
        (chat, state[:-3], ada),
        (chat, state[:40], ada),
        (chat, state[:60] + b"canary-user" + state[71:], ada),
        (strange, state, ada),
        (face.chat(ScriptedBackend(wire=wire)), state, {}),
    ]

    for tried, given, how in attempts:
        with pytest.raises((TypeError, ValueError, GoAIToolsError)) as caught:
            tried.chat_with_state(given, user="canary-user", **how)
        assert_silent(caught.value)
        assert "01" * 16 not in str(caught.value)
    assert_silent(own, other, own.keyring if hasattr(own, "keyring") else own)


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
