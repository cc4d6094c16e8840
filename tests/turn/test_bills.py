"""What a server bills reaches whoever asks for it: results, limits, prices, the size of the context."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import BudgetExceededError, Limits
from goaitools_py.backends.base import ModelRequest
from goaitools_py.compaction import Compactor, DropOldest, TokenLimit
from goaitools_py.prices import Charge
from goaitools_py.states import inspect_state, read_history
from goaitools_py.testing import Raw, ScriptedBackend

from ..backends.test_bills import streamed, whole
from ._reading import ALL, ANTHROPIC, CHAT, RESPONSES
from ._talk import FORMS, Talk

FORM = pytest.mark.parametrize(("kept", "stream"), FORMS)

XAI: dict[str, Any] = {
    "prompt_tokens": 12,
    "completion_tokens": 1,
    "completion_tokens_details": {"reasoning_tokens": 386},
    "total_tokens": 399,
    "cost_in_usd_ticks": 318_319_000,
}
GROK = {
    "input_tokens": 12,
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 386},
    "total_tokens": 399,
    "cost_in_usd_ticks": 318_319_000,
}
ADVISED: dict[str, Any] = {
    "input_tokens": 2417,
    "output_tokens": 133,
    "iterations": [
        {"type": "message", "input_tokens": 1128, "output_tokens": 121},
        {"type": "advisor_message", "input_tokens": 2529, "output_tokens": 38, "model": "wise"},
        {"type": "message", "input_tokens": 1289, "output_tokens": 12},
    ],
}
USAGES = {CHAT: XAI, RESPONSES: GROK, ANTHROPIC: ADVISED}
BILLED = {CHAT: 399, RESPONSES: 399, ANTHROPIC: 2417 + 133 + 2529 + 38}
CONTEXT = {CHAT: 13, RESPONSES: 13, ANTHROPIC: 1301}
"""Input and visible output of the newest run."""


def answers(wire: str, usage: dict[str, Any]) -> Callable[[ModelRequest], Raw]:
    """A short answer with this usage, in the form that was asked for."""

    def answer(request: ModelRequest) -> Raw:
        return Raw([streamed(wire, usage)]) if request.stream else Raw.body(whole(wire, usage))

    return answer


def talk_of(face: Any, wire: str, kept: bool, stream: bool, *, turns: int = 1, **fields: Any) -> Talk:
    backend = ScriptedBackend(*[answers(wire, USAGES[wire])] * turns, wire=wire, context_window=10_000)
    return Talk(face, face.chat(backend, **fields), kept=kept, streamed=stream)


@FORM
@pytest.mark.parametrize("wire", ALL)
def test_the_whole_bill_is_in_the_result(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """Of the turn, of the conversation, of the stored turn; visible tokens are never below 0."""
    result = talk_of(face, wire, kept, stream).say("Why?")

    assert result.usage.total_tokens == result.total_usage.total_tokens == BILLED[wire]
    assert inspect_state(result.state).total_usage == result.total_usage
    assert result.usage.requests == 1
    assert result.usage.output_tokens > result.usage.reasoning_tokens
    assert read_history(result.state).turns[-1].usage.total_tokens == BILLED[wire] - (
        result.aside_usage.total_tokens
    )


@FORM
@pytest.mark.parametrize("wire", ALL)
def test_the_context_is_that_of_the_newest_run(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """Reasoning that is not sent back and runs before or beside it are no part of the next request."""
    result = talk_of(face, wire, kept, stream).say("Why?")

    assert result.context_used == CONTEXT[wire]
    assert result.context_fraction == pytest.approx(CONTEXT[wire] / 10_000)


@FORM
@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_no_cut_comes_early(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """The trigger asks for the size of the context, and not for the sum of what its runs read."""
    compactor = Compactor(TokenLimit(2_000), DropOldest(target_tokens=100))
    talk = talk_of(face, wire, kept, stream, turns=3, compactor=compactor)

    assert [talk.say("Why?").compaction for _ in range(3)] == [None] * 3


@FORM
@pytest.mark.parametrize("wire", ALL)
def test_limits_count_the_whole_bill(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """A conversation's limit just below what one turn took: the next turn sends nothing."""
    talk = talk_of(face, wire, kept, stream, turns=2, limits=Limits(conversation_max_tokens=BILLED[wire]))
    talk.say("Why?")

    with pytest.raises(BudgetExceededError, match=f"has used {BILLED[wire]} tokens"):
        talk.say("And then?")


@FORM
@pytest.mark.parametrize("wire", ALL)
def test_a_price_list_gets_each_run_and_what_the_server_says(
    face: Any, wire: str, kept: bool, stream: bool
) -> None:
    """An advisor by its own model's name; a cost that the server names is in the charge."""
    seen: list[Charge] = []

    def prices(charge: Charge) -> Decimal | None:
        seen.append(charge)
        return Decimal(charge.usage.total_tokens)

    result = talk_of(face, wire, kept, stream, prices=prices).say("Why?")

    assert result.cost_usd == result.total_cost_usd == BILLED[wire]
    named = None if wire == ANTHROPIC else Decimal("0.0318319")
    assert {one.cost_usd for one in seen} == {named}
    assert [one.model for one in seen if one.usage.output_tokens == 38] == ["wise"] * (wire == ANTHROPIC)


@FORM
@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
def test_a_named_cost_is_the_price(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """With no price list, and with one that does not know the model."""
    result = talk_of(face, wire, kept, stream).say("Why?")
    assert result.cost_usd == Decimal("0.0318319")

    result = talk_of(face, wire, kept, stream, prices=lambda charge: None).say("Why?")
    assert result.cost_usd == result.total_cost_usd == Decimal("0.0318319")
    assert result.warnings == ()


@FORM
@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_a_named_cost_includes_the_runs_beside(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """A gateway that names the cost of the request: it is booked once."""
    usage = ADVISED | {"cost": 0.25, "is_byok": False}
    backend = ScriptedBackend(answers(wire, usage), wire=wire)
    talk = Talk(face, face.chat(backend, prices=lambda charge: None), kept=kept, streamed=stream)

    result = talk.say("Why?")

    assert result.cost_usd == result.total_cost_usd == Decimal("0.25")
    assert result.aside_usage.total_tokens == 2567


@pytest.mark.parametrize("wire", [CHAT])
def test_money_is_limited_by_what_the_server_says(face: Any, wire: str, run: Any) -> None:
    """The next request is not sent."""
    costly = XAI | {"cost_in_usd_ticks": 2 * 10**10}
    backend = ScriptedBackend(answers(wire, costly), wire=wire)
    chat = face.chat(
        backend,
        prices=lambda charge: charge.cost_usd or Decimal(0),
        limits=Limits(conversation_max_cost_usd=2),
    )
    state = run(chat, user="Why?").state

    with pytest.raises(BudgetExceededError, match="has cost"):
        run(chat, state, user="And then?")

    assert len(backend.requests) == 1
