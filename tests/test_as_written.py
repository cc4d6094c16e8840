"""What a person approves is what runs: arguments are shown, and answers are sent, as they are written.

The page in a browser is tested in `tests/independent/frontends/test_page.py`.
"""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from goaitools_py import Approve, AsyncChat, Chat, PendingCall, ToolReturn, tool
from goaitools_py.base.escaping import visible
from goaitools_py.cli.summary_lines import pretty, waiting_lines
from goaitools_py.frontends import AGUI, AISDK, PLAIN_JSON, FrontEnd
from goaitools_py.frontends.aisdk_messages import input_of, output_of
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import Tool
from goaitools_py.types.messages import ToolCall

ARGUMENTS = (
    '{"z": 1.10, "account": 12345678901234567891, "7": 1e999, "to": "Eve", "to": "\u202eyB\u200b\U000e0041"}'
)
"""Numbers that a float changes, a name twice, a name that JavaScript puts first, unseen characters."""

WRITTEN = ["1.10", "12345678901234567891", "1e999"]


def waits(arguments: str = ARGUMENTS) -> PendingCall:
    return PendingCall(id="c1", name="pay", arguments=arguments, reason="approval")


@pytest.mark.parametrize(
    "control",
    [*"\u202e\u202a\u2066\u2069\u200e\u200f\u061c\u2028\u200b\ufeff\xad\x1b", "\ud800", "\U000e0041"],
)
def test_what_turns_text_around_is_shown(control: str) -> None:
    """As an escape of JSON, with which the text means the same; a second time nothing changes."""
    shown = visible(f'{{"a": "x{control}y"}}')
    assert control not in shown
    assert shown.isascii()
    assert json.loads(shown) == {"a": f"x{control}y"}
    assert visible(shown) == shown


def test_text_that_is_seen_stays() -> None:
    """Scripts that run from right to left, emoji with joiners, lines and tabs."""
    text = "שלום\n\tفارسی می\u200cخواهم 👨\u200d👩\u200d👧 naïve 漢字"
    assert visible(text) == text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"n": 1.10, "m": 12345678901234567891, "a": 1e999}', "n: 1.10, m: 12345678901234567891, a: 1e999"),
        ('{"to": "Ada", "to": "Eve"}', "to: Ada, to: Eve"),
        ('{"code": "5", "is": "true"}', 'code: "5", is: "true"'),
        ('{"a": "1, b: 2"}', 'a: "1, b: 2"'),
        ('{"a, b": 1}', '"a, b": 1'),
        ('{"a": "\\u202eB", "b": "\u202eB"}', 'a: "\\u202eB", b: "\\u202eB"'),
        ('{"a": {"b": 1.0, "b": "\u200e"}}', 'a: {"b": 1.0, "b": "\\u200e"}'),
        ('{"a": "\\ud800"}', 'a: "\\ud800"'),
        ("\u202e{", "\\u202e{"),
    ],
)  # fmt: skip
def test_a_card_shows_arguments_as_written(arguments: str, shown: str) -> None:
    """No string can be taken for a number, or for another member."""
    assert pretty(arguments) == shown


def test_lines_show_what_is_approved() -> None:
    """The terminal without the app."""
    text = "\n".join(waiting_lines([waits()]))
    assert all(number in text for number in WRITTEN)
    assert "to: Eve, to: " in text
    assert "\\u202e" in text
    assert not set(text) & set("\u202e\u200b\U000e0041")


def test_a_result_shows_what_waits() -> None:
    """`show()`, and `shown` for a program of your own."""

    any_tool = Tool("pay", "Pay.", {"type": "object"}, lambda **_: "paid", requires_approval=True)
    result = Chat(ScriptedBackend(Calls([("pay", ARGUMENTS)])), tools=[any_tool]).chat(user="Pay.")
    out = io.StringIO()
    result.show(file=out)
    (call,) = result.pending
    assert call.arguments == ARGUMENTS
    assert call.shown in out.getvalue()
    assert all(number in call.shown for number in WRITTEN)
    assert call.shown.isascii()


# ---------------------------------------------------------------------------------------- what is sent

TYPED = ["1.10", "1e999", "-0", "12345678901234567891", "1" * 5000, '{"a":1.10}', '{"a":1,"a":2}', "[1e999]",
         "1.0", "true", '{"b":1,"a":[12345678901234567891]}', '"1.10"', "0.1"]  # fmt: skip


def text_of(answer: Any) -> str:
    """The result that the model reads."""
    ask = Tool("ask", "Ask.", {"type": "object"}, external=True)
    chat = Chat(ScriptedBackend(Calls([("ask", {})]), "Fine."), tools=[ask])
    result = chat.chat(user="Ask.")
    done = chat.resume(result.state, {result.pending[0].id: answer})
    return done.tool_log[-1].result


@pytest.mark.parametrize("typed", TYPED, ids=lambda typed: typed[:20])
@pytest.mark.parametrize("front", ["plain", "aisdk"])
def test_a_result_reaches_the_model_as_typed(front: str, typed: str) -> None:
    """Of JSON each character, of a string its text."""
    if front == "plain":
        asked = PLAIN_JSON.read(b'{"answers": {"c1": {"return": %s}}}' % typed.encode())
    else:
        part = {"type": "dynamic-tool", "toolCallId": "c1", "state": "output-available", "output": "HERE"}
        messages = [
            {"id": "m", "role": "user", "parts": []},
            {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": "x"}, part]},
        ]
        asked = AISDK.read(json.dumps({"id": "t", "messages": messages}).replace('"HERE"', typed).encode())
    answer = asked.answers["c1"]
    assert isinstance(answer, ToolReturn)
    assert text_of(answer) == (json.loads(typed) if typed.startswith('"') else typed)


@pytest.mark.parametrize("front", [PLAIN_JSON, AGUI], ids=["plain", "agui"])
def test_changed_arguments_run_as_typed(front: FrontEnd) -> None:
    """A number beyond 64 bits is no float, and a fraction keeps its digits."""
    arguments = '{"account": 123456789012345678901234567890, "rate": 1.10}'
    approval = {"approved": True, "arguments": "HERE"}
    entry = {"interruptId": "c1", "status": "resolved", "payload": approval}
    body = (
        {"answers": {"c1": {"approve": True, "arguments": "HERE"}}}
        if front is PLAIN_JSON
        else {"threadId": "t", "runId": "r", "messages": [], "resume": [entry]}
    )
    answer = front.read(json.dumps(body).replace('"HERE"', arguments).encode()).answers["c1"]
    assert answer == Approve(arguments)


def test_a_body_that_nests_too_deep_to_be_cut_is_read_as_before() -> None:
    """The text as it was written is a service; without it the values are the same."""
    deep = "[" * 80 + "]" * 80
    body = f'{{"answers": {{"c1": {{"return": [{deep}, 1.10]}}}}}}'
    answer = PLAIN_JSON.read(body.encode()).answers["c1"]
    assert isinstance(answer, ToolReturn)
    assert answer.value[1] == 1.1


@pytest.mark.parametrize(
    "arguments",
    ['{"account":12345678901234567891}', '{"a":1e999}', '{"a":1,"a":2}', '{"b":1,"7":2}',
     '{"a":0.1234567890123456789}', '{"a":9007199254740993}'],
)  # fmt: skip
def test_a_page_of_the_ai_sdk_gets_text_where_it_would_read_other_values(arguments: str) -> None:
    """Its `input` is read by JSON.parse. So is the output of a tool."""
    call = ToolCall(id="c1", name="pay", arguments=arguments)
    assert input_of(call) == (arguments, True)
    assert output_of(arguments) == arguments


@pytest.mark.parametrize(
    "arguments", ['{"a":1.0}', '{"a":9007199254740991,"b":0.1}', '{"7":1}', '{"a":[{"a":1},{"a":1e3}]}']
)
def test_other_arguments_are_values(arguments: str) -> None:
    """JavaScript reads them with their values, in their order."""
    call = ToolCall(id="c1", name="pay", arguments=arguments)
    assert input_of(call) == (json.loads(arguments), True)


def test_the_number_that_is_shown_is_the_number_that_runs() -> None:
    """From the model to the tool, for the asynchronous chat."""
    paid: list[int] = []

    @tool(requires_approval=True)
    def pay(account: int) -> str:
        """Pay."""
        paid.append(account)
        return "paid"

    async def talk() -> None:
        backend = ScriptedBackend(Calls([("pay", '{"account": 12345678901234567891}')]), "Done.")
        chat = AsyncChat(backend, tools=[pay])
        result = await chat.chat(user="Pay.")
        (call,) = result.pending
        assert call.shown == '{"account": 12345678901234567891}'
        answers = PLAIN_JSON.read(json.dumps({"answers": {call.id: {"approve": True}}}).encode()).answers
        await chat.resume(result.state, answers)

    asyncio.run(talk())
    assert paid == [12345678901234567891]
