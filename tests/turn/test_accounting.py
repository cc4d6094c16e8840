"""What a turn says of tokens, the context window and money, and the limits on them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    BudgetExceededError,
    Compactor,
    ContextWarning,
    DropOldest,
    KeepRecentTurns,
    LimitExceededError,
    Limits,
    Message,
    MessageLimit,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    ToolContext,
    Usage,
    event,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.open_turn import steps
from goaitools_py.open_turn.meter import gauge_of
from goaitools_py.prices import Charge
from goaitools_py.sim import Fault, Reply
from goaitools_py.state.state import load_state
from goaitools_py.states import estimate_tokens, inspect_state, read_history
from goaitools_py.testing import Raw, ScriptedBackend

RED = ("get_score", '{"team":"Red"}')


def dollar(charge: Charge) -> Decimal:
    """A dollar a call, whatever it is."""
    return Decimal(1)


def unknown(charge: Charge) -> None:
    """A price list that knows nothing."""


@tool
def get_score(ctx: ToolContext, team: str) -> int:
    """Current score of one team."""
    ctx.log_action("Read a score.")
    return 30


@tool(requires_approval=True)
def pay(ctx: ToolContext, euros: int) -> str:
    """Pay an amount."""
    ctx.log_action("Paid.")
    return "paid"


# ------------------------------------------------------------------------------------------------ tokens


def test_what_a_turn_consumed_adds_up_over_its_resumes(face: Any, sim: Any, run: Any) -> None:
    """An error, a result that waits and the last result each count their own calls; the sum is the
    conversation's life. The tool log also has calls from before, whose results no model had read."""
    chat = face.on(sim, tools=[get_score, pay], prices=dollar)
    sim.push(
        Reply.calls(RED),
        Fault.server_error(),
        Reply.calls(("pay", '{"euros":5}')),
        Reply.text("Paid."),
    )

    with pytest.raises(ProviderUnavailableError) as caught:
        run(chat, user="Pay.")
    waiting = chat.resume(caught.value.state)
    paid = chat.resume(waiting.state, {waiting.pending[0].id: Approve()})

    parts = (caught.value, waiting, paid)
    assert [part.usage.requests for part in parts] == [1, 1, 1]
    assert sum((part.usage for part in parts), Usage()) == paid.total_usage
    assert [part.cost_usd for part in parts] == [1, 1, 1]
    assert paid.total_cost_usd == 3
    assert (waiting.iterations, paid.iterations) == (1, 1)
    assert [len(result.request_ids) for result in (waiting, paid)] == [1, 1]
    assert [[action.text for action in result.actions] for result in (waiting, paid)] == [[], ["Paid."]]
    logs = [[record.call.name for record in part.tool_log] for part in parts]
    assert logs == [["get_score"], ["get_score"], ["pay"]]
    told = [call.name for call in read_history(paid.state).turns[-1].calls]
    assert told == ["get_score", "pay"]
    assert read_history(paid.state).turns[-1].usage == paid.total_usage


def test_a_turn_says_what_the_next_request_holds(face: Any, sim: Any, run: Any) -> None:
    """`context_used` is input and output of the last call, and so is what the blob says of itself."""
    chat = face.on(sim, system="You are a game guide.")

    result = run(chat, user="My name is Ada.")

    assert result.context_used == result.usage.total_tokens
    assert inspect_state(result.state).tokens == result.context_used
    assert estimate_tokens(result.state) == result.context_used


def test_what_waits_is_counted(face: Any, sim: Any) -> None:
    """An appended event is in the estimate before any model has seen it."""
    chat = face.on(sim)
    state = chat.chat(user="My name is Ada.").state

    waiting = chat.append_to_state(state, event("It rains. " * 50))

    assert estimate_tokens(waiting) > estimate_tokens(state) + 80
    assert inspect_state(waiting).tokens == inspect_state(state).tokens


def test_a_counter_of_ones_own_is_asked(face: Any, sim: Any) -> None:
    """`token_counter` counts what no usage has counted: messages that wait, in neutral words."""
    seen: list[str] = []

    class Mine:
        def count(self, message: Message, /) -> int:
            seen.append(message.text)
            return 1_000

    chat = face.on(sim, token_counter=Mine())
    state = chat.chat(user="My name is Ada.").state

    assert "My name is Ada." in seen
    assert estimate_tokens(chat.append_to_state(state, event("Rain.")), counter=Mine()) > 800


def test_input_is_cached_or_not(face: Any, sim: Any) -> None:
    """Cached and uncached input add up to the whole."""
    usage = Usage(input_tokens=100, cached_input_tokens=60, cache_write_tokens=40)

    assert usage.uncached_input_tokens == 40
    assert Usage(input_tokens=1, cached_input_tokens=5).uncached_input_tokens == 0


def test_a_changed_preamble_is_no_news_of_the_words(face: Any, sim: Any) -> None:
    """The next usage says how much surrounds the history now, and is not compared with the last one."""
    chat = face.on(sim)
    first = chat.chat(user="My name is Ada.", system="Be brief.").state

    second = chat.chat_with_state(first, user="And yours?", system="Be very brief. " * 30).state

    frames = [gauge_of(load_state(state).meta).frame for state in (first, second)]
    assert frames[1] > frames[0] + 80


def test_what_nobody_answered_is_counted_when_its_turn_closes(face: Any, sim: Any) -> None:
    """A message that the provider took and did not answer is a part of the next request, and of its size."""
    chat = face.on(sim)
    before = chat.chat(user="My name is Ada.").state
    waiting = load_state(chat.append_to_state(before, user("Tell me a story. " * 50)))
    dialect = chat.inner._dialect
    opened = steps.accept(waiting, waiting.inbox, dialect, at=0)

    closed = steps.close_turn(opened, dialect)

    assert closed.meta.tokens > opened.meta.tokens + 150


def test_many_cuts_do_not_blur_how_large_the_history_is(face: Any) -> None:
    """A window that is cut at each turn stays as large as it was told: the tokens of the turns are not taken
    for something that surrounds them, cut by cut."""
    backend = ScriptedBackend(*["The answer is of about the same length every time. " * 4] * 40)
    chat = face.chat(backend)
    window = Compactor(lambda request: True, DropOldest(target_tokens=500))

    state = chat.run_turns(None, ["What is behind door number seven? " * 3] * 40, compactor=window).state

    gauge = gauge_of(load_state(state).meta)
    assert gauge.frame < 80
    assert 400 < gauge.tokens < 600


# ----------------------------------------------------------------------------------- the context window


def small(face: Any, sim: Any, window: int, **fields: Any) -> Any:
    backend = sim.backend(is_async=face.is_async, context_window=window)
    return face.chat(backend, **fields)


def warned(result: Any) -> list[str]:
    return [warning.message for warning in result.warnings if warning.code == "context_mark"]


def test_each_mark_is_told_once(face: Any, sim: Any) -> None:
    """At 70 % and at 90 % of the window, in an event and in the result; then never again."""
    chat = small(face, sim, 400)
    events: list[ContextWarning] = []
    state, told = None, []

    for _ in range(14):
        result = chat.chat_with_state(
            state,
            user="Tell me something about the weather in spring, please.",
            on_event=lambda e: events.append(e) if isinstance(e, ContextWarning) else None,
        )
        state = result.state
        told += warned(result)
        if result.context_used > 500:
            break

    assert [e.level for e in events] == ["approaching", "at_limit"]
    assert [e.limit for e in events] == [400, 400]
    assert 280 <= events[0].used < 360 <= events[1].used
    assert len(told) == 2
    assert "70%" in told[0]
    assert "90%" in told[1]


def test_a_history_that_shrank_is_told_of_again(face: Any, sim: Any) -> None:
    """The mark is kept in the state, and forgotten when a compaction brings the history below it."""
    chat = small(face, sim, 150)
    state = chat.run_turns(None, ["Tell me a story."] * 6).state

    shrunk = chat.compact_state(state, Compactor(MessageLimit(1), KeepRecentTurns(1))).state
    after = chat.chat_with_state(shrunk, user="Hm.")
    again = chat.run_turns(after.state, ["Tell me a story."] * 6)

    assert inspect_state(shrunk).tokens < 105
    assert not warned(after)
    assert inspect_state(again.state).tokens > 105


def test_marks_are_ones_own(face: Any, sim: Any) -> None:
    """`context_marks=()` says nothing; a single low mark is the limit; nonsense is refused."""
    silent = small(face, sim, 10, context_marks=())
    low = small(face, sim, 10_000, context_marks=(0.001,))

    assert not warned(silent.chat(user="My name is Ada."))
    assert len(warned(low.chat(user="My name is Ada."))) == 1
    for wrong in ((0.9, 0.7), (0.0,), (1.5,), (0.5, 0.5)):
        with pytest.raises(ValueError, match="context_marks"):
            small(face, sim, 10, context_marks=wrong)


def test_an_unknown_window_warns_of_nothing(face: Any, sim: Any) -> None:
    """Without a window there is no fraction, but the tokens are told."""
    result = face.on(sim).chat(user="My name is Ada.")

    assert result.context_fraction is None
    assert result.context_used > 0
    assert not warned(result)


# ------------------------------------------------------------------------------------------------- costs


def test_each_call_of_a_turn_is_priced(face: Any, sim: Any, run: Any, scores: Any) -> None:
    """A turn of two model calls costs two dollars where each costs one; the next turn adds to the total."""
    chat = face.on(sim, tools=[scores.get_score], prices=dollar)
    sim.push(Reply.calls(RED), Reply.text("Seven."))

    first = run(chat, user="The score of Red?")
    second = run(chat, first.state, user="Thanks.")

    assert (first.cost_usd, first.total_cost_usd) == (2, 2)
    assert (second.cost_usd, second.total_cost_usd) == (1, 3)
    assert inspect_state(second.state).total_cost_usd == 3


def test_a_price_list_sees_what_it_needs(face: Any, sim: Any, wire: str) -> None:
    """The model that answered, the tokens, the wire, whose endpoint, and when."""
    seen: list[Charge] = []
    chat = face.on(sim, prices=lambda charge: seen.append(charge) or Decimal("0.25"))

    result = chat.chat(user="Hello.")

    (charge,) = seen
    assert charge.wire == wire
    assert charge.family == "local"
    assert charge.model == result.model
    assert charge.usage == result.usage
    assert charge.at_ms > 1_700_000_000_000


def test_an_unknown_price_sticks(face: Any, sim: Any) -> None:
    """One turn of unknown price makes the total unknown for ever, and the result says so; it is not 0."""
    chat = face.on(sim)
    first = chat.chat(user="Hello.", prices=unknown)

    second = chat.chat_with_state(first.state, user="Hello again.", prices=dollar)

    assert first.cost_usd is None
    assert [warning.code for warning in first.warnings] == ["price_unknown"]
    assert (second.cost_usd, second.total_cost_usd) == (1, None)


def test_turns_without_a_price_list_are_unknown_too(face: Any, sim: Any) -> None:
    """A list that comes late cannot know what was before it; no list is no warning."""
    chat = face.on(sim)
    first = chat.chat(user="Hello.")

    second = chat.chat_with_state(first.state, user="Hello again.", prices=dollar)

    assert (first.cost_usd, first.total_cost_usd, first.warnings) == (None, None, ())
    assert second.total_cost_usd is None


def test_a_price_list_that_raises_loses_nothing(face: Any, sim: Any) -> None:
    """The reply is paid for; its price is unknown, and the warning names the class of what was raised."""

    def broken(charge: Charge) -> Decimal:
        raise KeyError(charge.model)

    result = face.on(sim).chat(user="My name is Ada.", prices=broken)

    assert "Ada" in result.text
    assert result.cost_usd is None
    assert [(w.code, "KeyError" in w.message) for w in result.warnings] == [("price_unknown", True)]


def test_genai_prices_is_asked_when_somebody_reads_the_cost(face: Any) -> None:
    """Without `prices=` the cost of a known model is looked up on demand, also in a copy of the result."""
    pytest.importorskip("genai_prices")
    body = (
        b'{"id":"c","object":"chat.completion","model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":'
        b'{"role":"assistant","content":"Hi."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,'
        b'"completion_tokens":0,"total_tokens":1000000}}'
    )
    chat = face.chat(ScriptedBackend(Raw.body(body), model="gpt-4o"))

    result = chat.chat(user="Hello.")

    assert result.cost_usd == Decimal("2.5")
    assert pickle.loads(pickle.dumps(result)).cost_usd == Decimal("2.5")


def test_a_repeated_turn_costs_nothing(face: Any, sim: Any) -> None:
    """No model was called: 0, and the total as it was."""
    chat = face.on(sim, prices=dollar)
    first = chat.chat(user="Hello.", turn_id="m1")

    again = chat.chat_with_state(first.state, user="Hello.", turn_id="m1")

    assert again.duplicate
    assert (again.cost_usd, again.total_cost_usd) == (0, 1)


# ------------------------------------------------------------------------------------------------ limits


def test_a_conversation_that_cost_enough_calls_nothing(face: Any, sim: Any, run: Any) -> None:
    """Before anything is sent: the message comes back, the state is the input."""
    chat = face.on(sim, prices=dollar)
    before = chat.chat(user="My name is Ada.").state

    with pytest.raises(BudgetExceededError, match="has cost 1") as caught:
        run(chat, before, user="Who am I?", limits=Limits(conversation_max_cost_usd=Decimal(1)))

    assert caught.value.state == before
    assert [m.text for m in caught.value.pending_input] == ["Who am I?"]
    assert len(sim.requests) == 1


def test_a_conversation_of_unknown_cost_is_over_any_limit(face: Any, sim: Any) -> None:
    """A limit cannot be held where nobody knows what was spent."""
    chat = face.on(sim)
    before = chat.chat(user="Hello.").state

    with pytest.raises(BudgetExceededError, match="not known"):
        chat.chat_with_state(
            before, user="And?", prices=dollar, limits=Limits(conversation_max_cost_usd=1_000)
        )
    assert len(sim.requests) == 1


@pytest.mark.parametrize("limits", [Limits(max_cost_usd=5), Limits(conversation_max_cost_usd=5)])
@pytest.mark.parametrize("prices", [unknown, None])
def test_an_unknown_price_raises_at_the_first(face: Any, sim: Any, limits: Limits, prices: Any) -> None:
    """With a limit on costs, a model without a price is not asked at all; the error says what to do."""
    chat = face.on(sim, prices=prices, limits=limits)

    with pytest.raises(BudgetExceededError, match=r"prices=.*goaitools-py\[prices\]"):
        chat.chat(user="Hello.")
    assert sim.requests == []


@pytest.mark.parametrize("on_limit", ["answer", "raise"])
def test_a_turn_that_cost_enough_is_ended(face: Any, sim: Any, scores: Any, on_limit: Any) -> None:
    """After the call that reached the limit its tools still run; then one last call, or the error."""
    chat = face.on(sim, tools=[scores.get_score], prices=dollar, limits=Limits(max_cost_usd=1))
    sim.push(Reply.calls(RED))

    if on_limit == "raise":
        with pytest.raises(LimitExceededError, match="max_cost_usd=1"):
            chat.chat(user="The score of Red?", on_limit="raise")
    else:
        result = chat.chat(user="The score of Red?")
        assert result.status == "limited"
        assert result.cost_usd == 2
    assert scores.runs == ["Red"]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), Decimal("NaN")])
def test_a_limit_on_costs_is_a_positive_number(value: Any) -> None:
    """What cannot be a sum of money is refused when it is given."""
    with pytest.raises(ValueError, match="max_cost_usd"):
        Limits(max_cost_usd=value)


def test_a_limit_on_costs_is_a_number() -> None:
    """Text is no sum of money."""
    with pytest.raises(TypeError, match="max_cost_usd"):
        Limits(max_cost_usd="5")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- the provider's own counts


COUNTING = pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])


def count(face: Any, chat: Any, *args: Any, **fields: Any) -> Any:
    return chat._call("count_tokens", *args, **fields)


@COUNTING
def test_the_provider_counts_what_a_turn_would_send(face: Any, sim: Any) -> None:
    """The number is that of the turn's own request: state, preamble, tools and the new message."""

    def get_score(team: str) -> str:
        """Current score of one team."""
        return "7"

    chat = face.on(sim, system="You are a game guide.", tools=[get_score])
    state = chat.chat(user="My name is Ada.").state

    counted = count(face, chat, state, user="What is my name?")
    result = chat.chat_with_state(state, user="What is my name?")

    assert counted == result.usage.input_tokens
    assert [recorded.path.partition("?")[0] for recorded in sim.requests][1].endswith(
        ("/v1/messages/count_tokens", "/v1/responses/input_tokens")
    )
    assert sim.problems == []


@COUNTING
def test_counting_changes_and_costs_nothing(face: Any, sim: Any) -> None:
    """Settings that are no part of the prompt stay out of the request, and no model is asked."""
    chat = face.on(sim, limits=Limits(max_iterations=3))

    assert count(face, chat, None, user="Hello.") > 0
    (request,) = sim.requests
    assert not {"max_tokens", "stream", "store", "include", "prompt_cache_key"} & request.parsed.keys()


@pytest.mark.parametrize("wire", ["openai"])
def test_chat_completions_cannot_count(face: Any, sim: Any) -> None:
    """It has no such endpoint: the error names the wires that do, and nothing is sent."""
    with pytest.raises(ValueError, match=r"no endpoint that counts.*Responses"):
        count(face, face.on(sim), None, user="Hello.")
    assert sim.requests == []


@COUNTING
def test_there_must_be_something_to_count(face: Any, sim: Any) -> None:
    """As for a turn: a state without anything new is no request."""
    chat = face.on(sim)

    with pytest.raises(ValueError, match="nothing new"):
        count(face, chat, chat.chat(user="Hello.").state)


@COUNTING
def test_a_count_that_fails_is_an_error_of_the_turns_kind(face: Any, wire: str) -> None:
    """No answer, an answer that is none, a refusal: the same classes, and the state is the input."""
    wrong = Raw.body(b'{"tokens":7}')
    backend = ScriptedBackend(BackendError("no"), wrong, BackendError("no", status=400), wire=wire)
    chat = face.chat(backend)

    with pytest.raises(ProviderUnavailableError):
        count(face, chat, None, user="Hello.")
    with pytest.raises(ProviderProtocolError):
        count(face, chat, None, user="Hello.")
    with pytest.raises(ProviderRejectedError) as refused:
        count(face, chat, None, user="Hello.")
    assert [message.text for message in refused.value.pending_input] == ["Hello."]


@COUNTING
def test_a_count_is_tried_again(face: Any, wire: str, clock: Any) -> None:
    """A failure that may pass is waited for, as a model call's is."""
    backend = ScriptedBackend(BackendError("no"), Raw.body(b'{"input_tokens":14}'), wire=wire, max_retries=1)

    assert count(face, face.chat(backend), None, user="Hello.") == 14
    assert len(clock.naps) == 1


def test_faults_leave_the_books_right(face: Any, sim: Any) -> None:
    """A call that failed is not on the bill; its retry is, once."""
    chat = face.chat(sim.backend(is_async=face.is_async, max_retries=1), prices=dollar)
    sim.push(Fault.server_error())

    result = chat.chat(user="Hello.")

    assert (result.cost_usd, result.total_cost_usd, result.usage.requests) == (1, 1, 1)


def test_a_reply_that_is_booked_twice_is_on_the_bill_once(face: Any, sim: Any) -> None:
    """Ctrl-C between the bill and the state: the books are written anew, from before the reply."""

    class Interrupting:
        has_struck = False

        def count(self, message: Message, /) -> int:
            if not self.has_struck:
                self.has_struck = True
                raise KeyboardInterrupt
            return 5

    turn = face.on(sim, prices=dollar, token_counter=Interrupting()).start(None, user="Hello.")

    with pytest.raises(KeyboardInterrupt):
        turn.result()

    assert len(turn.turn._engine._ledger.spending.account.bill.charges) == 1
    assert inspect_state(turn.state).total_cost_usd == 1
