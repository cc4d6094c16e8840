"""A provider is down, and the turn goes on with the next one: what goes along, counts, and is refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from goaitools_py import (
    AuthenticationError,
    LimitExceededError,
    Limits,
    ModelSettings,
    ProviderRejectedError,
    ProviderTool,
    ProviderUnavailableError,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.states import inspect_state, read_history
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn.beginning import Beginning
from goaitools_py.turn.plan import Outages
from goaitools_py.types.events import FellBack, TextDelta, TurnStarted

from ..conftest import Face

CALL = Calls([("look", {"at": "clock"})])
ran: list[str] = []


@tool
def look(at: str) -> str:
    """Look."""
    ran.append(at)
    return "ten o'clock"


def down(status: int | None = 503) -> BackendError:
    return BackendError("down", status=status)


def body(backend: Any, at: int = -1) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(backend.requests[at].body)
    return found


def test_the_next_provider_sees_what_was_done(face: Face) -> None:
    """The tool's result is in its request; the tool does not run again; the next turn is the first's."""
    ran.clear()
    own = ScriptedBackend(CALL, down(), "Back again.")
    other = ScriptedBackend("Ten.", wire="anthropic", model="other")
    chat = face.chat(own, tools=[look], fallbacks=[other])

    result = chat.chat_with_state(None, user="What time is it?")
    after = chat.chat_with_state(result.state, user="Thanks.")

    assert (ran, result.text, after.text) == (["clock"], "Ten.", "Back again.")
    assert "ten o'clock" in json.dumps(body(other))
    assert [inspect_state(one.state).wire for one in (result, after)] == ["anthropic", "openai"]
    assert "What time is it?" in json.dumps(body(own))


def test_several_are_down(face: Face) -> None:
    """Each is asked in order, and each is told of."""
    heard: list[Any] = []
    first, second = ScriptedBackend(down(), model="a"), ScriptedBackend(down(), wire="anthropic", model="b")
    third = ScriptedBackend("Yes.", wire="openai-responses", model="c")
    chat = face.chat(first, fallbacks=[second, third])

    result = chat.chat_with_state(None, user="Hello?", on_event=heard.append)

    told = [(one.failed, one.to, one.reason, one.status_code) for one in heard if isinstance(one, FellBack)]
    assert told == [
        ("openai:a", "anthropic:b", "ProviderUnavailableError", 503),
        ("anthropic:b", "openai-responses:c", "ProviderUnavailableError", 503),
    ]
    assert len([one for one in heard if isinstance(one, TurnStarted)]) == 1
    assert {one.turn_ref for one in heard} == {heard[-1].turn_ref}
    assert read_history(result.state).turns[0].facts["fallback"] == ["openai:a", "anthropic:b"]
    assert [warning.code for warning in result.warnings].count("fell_back") == 2


def test_a_model_of_the_same_provider_api_needs_no_conversion(face: Face) -> None:
    """Nothing is lost then, and the settings stay, but for the model."""
    own = ScriptedBackend(down(), model="a")
    other = ScriptedBackend("Yes.", model="b")
    settings = ModelSettings(model="a-large", seed=7, extra_body={"x": 1})
    chat = face.chat(own, fallbacks=[other], settings=settings)

    result = chat.chat_with_state(None, user="Hello?")

    sent = body(other)
    assert (sent["model"], sent["seed"], sent["x"]) == ("b", 7, 1)
    assert "state_converted" not in [warning.code for warning in result.warnings]
    assert read_history(result.state).turns[0].facts["fallback"] == ["openai:a-large"]


def test_another_provider_api_gets_what_it_has(face: Face) -> None:
    """A setting in the first one's words, or that the second does not have, would be refused."""
    own = ScriptedBackend(down())
    other = ScriptedBackend("Yes.", wire="anthropic", model="b")
    settings = ModelSettings(seed=7, max_output_tokens=99, extra_body={"x": 1})
    hosted = ProviderTool({"type": "web_search"})
    chat = face.chat(own, fallbacks=[other], settings=settings, tools=[look, hosted], system="Be kind.")

    chat.chat_with_state(None, user="Hello?")

    sent = body(other)
    assert sent["max_tokens"] == 99
    assert not {"seed", "x"} & sent.keys()
    assert [one["name"] for one in sent["tools"]] == ["look"]
    assert "Be kind." in json.dumps(sent["system"])


def test_limits_and_costs_count_on(face: Face) -> None:
    """What the first provider was paid for is in the result, and in the limits of the turn."""
    prices = lambda charge: Decimal(charge.usage.total_tokens)  # noqa: E731
    own = ScriptedBackend(CALL, down(), model="a")
    other = ScriptedBackend("Ten.", wire="anthropic", model="b")
    chat = face.chat(own, tools=[look], fallbacks=[other], prices=prices)

    result = chat.chat_with_state(None, user="What time is it?")

    iterations = read_history(result.state).turns[0].iterations
    tokens = sum(one.usage.total_tokens for one in iterations)
    assert [one.model for one in iterations] == ["a", "b"]
    assert result.usage.total_tokens == result.total_usage.total_tokens == tokens
    assert (result.cost_usd, result.total_cost_usd) == (Decimal(tokens), Decimal(tokens))
    assert (result.iterations, len(result.tool_log)) == (2, 1)


@pytest.mark.parametrize(
    ("limits", "calls"), [(Limits(max_tool_calls=1), 1), (Limits(max_tokens=1), 1), (None, 1)]
)
def test_a_limit_that_the_first_provider_has_reached_holds(face: Face, limits: Any, calls: int) -> None:
    """The next provider is asked for one last answer, without tools; or the turn ends with the error."""
    ran.clear()
    fields = {"limits": limits} if limits else {"limits": Limits(max_iterations=1)}
    own = ScriptedBackend(CALL, down(), model="a")
    other = ScriptedBackend(CALL, wire="anthropic", model="b")
    chat = face.chat(own, tools=[look], fallbacks=[other], **fields)

    result = chat.chat_with_state(None, user="What time is it?")

    assert (len(ran), result.status) == (calls, "limited")
    strict = face.chat(ScriptedBackend(CALL), tools=[look], fallbacks=[other], on_limit="raise", **fields)
    with pytest.raises(LimitExceededError):
        strict.chat_with_state(None, user="What time is it?")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (BackendError("no", status=400, body=b"{}"), ProviderRejectedError),
        (BackendError("no", status=401, body=b"{}"), AuthenticationError),
        (RuntimeError("a mistake in the backend"), ProviderUnavailableError),
    ],
)
def test_only_a_provider_that_is_down_is_replaced(face: Face, fault: Exception, error: type) -> None:
    """A request that one provider refuses is wrong elsewhere too; a mistake must be seen."""
    other = ScriptedBackend("Yes.", wire="anthropic", model="b")

    with pytest.raises(error):
        face.chat(ScriptedBackend(fault), fallbacks=[other]).chat_with_state(None, user="Hello?")

    assert other.requests == []


class OwnDialect(OpenAIChatDialect, frozen=True):
    """A dialect without `TranslatesReplies`: no conversion can write a reply of it."""

    wire: ClassVar[str] = "of-another-package"
    reply_pieces: ClassVar[Any] = None


class OwnBackend:
    """A backend of both colours that must not be asked."""

    dialect = OwnDialect()
    model = "b"
    max_retries = 0
    context_window = None

    def send(self, request: Any) -> Any:
        raise AssertionError("it was asked")

    asend = send

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def test_a_fallback_that_cannot_take_the_turn_up(face: Face) -> None:
    """The first provider's error comes, with its state, and a note of the second's."""
    chat = face.chat(ScriptedBackend(down(), "Back."), fallbacks=[OwnBackend()])

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(None, user="Hello?")

    assert "TranslatesReplies" in caught.value.__notes__[0]
    assert "docs/own_wire.md" in caught.value.__notes__[0]
    assert chat.resume(caught.value.state).text == "Back."


def test_text_that_was_shown_does_not_count(face: Face) -> None:
    """A stream broke off after some words. The next provider's reply is whole, and the only one stored."""
    from goaitools_py.sim import Fault, Reply

    from ..conftest import Simulator

    with Simulator() as sim:
        other = ScriptedBackend("A whole answer.", wire="anthropic", model="b")
        chat = face.on(sim, fallbacks=[other])
        sim.push(Fault.cut_stream(4, reply=Reply.text("Once upon a time there was a fox.")))

        turn = chat.start(None, user="Tell me.")
        events = list(turn)
        result = turn.result()

    before = next(at for at, one in enumerate(events) if isinstance(one, FellBack))
    shown = "".join(one.text for one in events[before:] if isinstance(one, TextDelta))
    assert any(isinstance(one, TextDelta) for one in events[:before])
    assert shown == result.text == "A whole answer."
    assert [message.text for message in read_history(result.state).all_messages()] == [
        "Tell me.",
        "A whole answer.",
    ]


@pytest.mark.parametrize(
    ("given", "error"),
    [("anthropic:b", TypeError), (5, TypeError), ([5], TypeError), (["nothing:b"], ValueError)],
)
def test_what_is_no_fallback(face: Face, given: Any, error: type) -> None:
    """It is refused when the chat is made."""
    with pytest.raises(error):
        face.chat(ScriptedBackend(), fallbacks=given)


def test_a_fallback_needs_a_model(face: Face) -> None:
    """In the middle of a turn it would be too late to say so."""
    with pytest.raises(ValueError, match="needs a model"):
        face.chat(ScriptedBackend(), fallbacks=[face.backend(None, wire="anthropic", api_key="k")])


def test_a_name_connects_at_its_first_call(face: Face) -> None:
    """So a chat with fallbacks needs no key of theirs to be made, and the simulator is a name too."""
    with pytest.raises(ProviderUnavailableError):
        face.chat(ScriptedBackend(down())).chat_with_state(None, user="Hello?")

    chat = face.chat(ScriptedBackend(down()), fallbacks=["sim:anthropic"])

    assert chat.chat_with_state(None, user="Hello?").text.startswith("[simulated]")


# ------------------------------------------------------------------------------- a provider that rests


def test_a_provider_that_cannot_be_reached_is_not_waited_for_again(face: Face) -> None:
    """The next turn begins with the fallback, is told so, and keeps its message, its id and its settings."""
    heard: list[Any] = []
    own = ScriptedBackend(down(None), model="a")
    other = ScriptedBackend("One.", "Two.", wire="anthropic", model="b")
    settings = ModelSettings(model="a-large", seed=7, max_output_tokens=99)
    chat = face.chat(own, fallbacks=[other], settings=settings, fallback_rest=3600)
    first = chat.chat_with_state(None, user="Hello?")

    result = chat.chat_with_state(first.state, user="Again?", turn_id="t-2", on_event=heard.append)
    again = chat.chat_with_state(result.state, user="Again?", turn_id="t-2")

    assert (len(own.requests), len(other.requests)) == (1, 2)
    assert (result.text, again.duplicate) == ("Two.", True)
    assert body(other)["max_tokens"] == 99
    assert "seed" not in body(other)
    told = [one for one in heard if isinstance(one, (TurnStarted, FellBack))]
    assert [type(one) for one in told] == [TurnStarted, FellBack]
    assert (told[1].failed, told[1].to, told[1].turn_ref) == (
        "openai:a-large",
        "anthropic:b",
        told[0].turn_ref,
    )
    assert [warning.code for warning in result.warnings].count("fell_back") == 1
    assert read_history(result.state).turns[-1].facts["fallback"] == ["openai:a-large"]


def test_a_status_is_no_reason_to_rest(face: Face) -> None:
    """A server that answers costs no long wait."""
    own = ScriptedBackend(down(503), "Back.")
    chat = face.chat(own, fallbacks=[ScriptedBackend("One.", wire="anthropic", model="b")])
    first = chat.chat_with_state(None, user="Hello?")

    assert chat.chat_with_state(first.state, user="Again?").text == "Back."


def test_the_provider_that_rests_is_the_last_resort(face: Face) -> None:
    """If the others are down too, it is asked after all, with its own settings; then it rests no more."""
    own = ScriptedBackend(down(None), "Back.", "Still there.", model="a")
    other = ScriptedBackend("One.", down(503), wire="anthropic", model="b")
    settings = ModelSettings(model="a-large", seed=7)
    chat = face.chat(own, fallbacks=[other], settings=settings, fallback_rest=3600, tools=[look])
    first = chat.chat_with_state(None, user="Hello?")

    second = chat.chat_with_state(first.state, user="Again?")
    third = chat.chat_with_state(second.state, user="And now?")

    assert (second.text, third.text) == ("Back.", "Still there.")
    assert (body(own)["model"], body(own)["seed"]) == ("a-large", 7)
    assert read_history(second.state).turns[-1].facts["fallback"] == ["openai:a-large", "anthropic:b"]
    assert "fallback" not in read_history(third.state).turns[-1].facts


def test_without_a_rest_each_turn_asks_it_first(face: Face) -> None:
    """0 switches it off."""
    own = ScriptedBackend(down(None), "Back.")
    other = ScriptedBackend("One.", wire="anthropic", model="b")
    chat = face.chat(own, fallbacks=[other], fallback_rest=0)
    first = chat.chat_with_state(None, user="Hello?")

    assert chat.chat_with_state(first.state, user="Again?").text == "Back."


def test_a_fallback_that_cannot_begin_leaves_the_turn_to_its_own_provider(face: Face) -> None:
    """No conversion reaches it; so the provider that rests is asked."""
    chat = face.chat(ScriptedBackend(down(None), "Back."), fallbacks=[OwnBackend()], fallback_rest=3600)
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(None, user="Hello?")

    assert chat.resume(caught.value.state).text == "Back."


def test_the_timeout_holds_if_a_fallback_cannot_begin(face: Face, clock: Any) -> None:
    """The turn's own provider gets the time that is left, not the whole timeout again."""

    class SlowDialect(OwnDialect, frozen=True):
        def entries(self, messages: Any) -> Any:
            clock.advance(8)
            raise ValueError("it takes no such message")

    class SlowBackend(OwnBackend):
        dialect = SlowDialect()

    own = ScriptedBackend(down(None), "Back.")
    chat = face.chat(own, fallbacks=[SlowBackend()], fallback_rest=3600)
    with pytest.raises(ProviderUnavailableError):
        chat.chat_with_state(None, user="Hello?")

    result = chat.chat_with_state(None, user="Hello?", timeout=10)

    assert result.text == "Back."
    assert own.requests[-1].timeout <= 2


def test_a_rest_ends_for_one_turn_at_a_time() -> None:
    """The first to ask after the seconds tries it; the others are still kept away."""
    outages = Outages(30.0)
    assert not outages
    outages.note(0, 100.0)
    assert outages
    assert [outages.rests(0, now) for now in (100.0, 129.9, 130.0, 130.0, 159.9, 160.0)] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]
    assert not outages.rests(1, 100.0)
    outages.clear(0)
    assert not outages


@pytest.mark.parametrize(
    ("given", "error"), [("30", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_what_is_no_rest(face: Face, given: Any, error: type) -> None:
    """It is refused when the chat is made."""
    with pytest.raises(error, match="fallback_rest"):
        face.chat(ScriptedBackend(), fallback_rest=given)


class RefusingDialect(OwnDialect, frozen=True):
    """It takes no message."""

    def entries(self, messages: Any) -> Any:
        raise ValueError("it takes no such message")


class RefusingBackend(OwnBackend):
    """It is never asked."""

    dialect = RefusingDialect()


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_message_for_a_turn_whose_provider_rests_is_not_lost(face: Face, wire: str, refuses: bool) -> None:
    """It is appended before the turn knows who is asked. The fallback may refuse the turn, too."""
    own = ScriptedBackend(down(None), "Home.", max_retries=0)
    other = ScriptedBackend("One.", "Two.", wire=wire, model="other")
    chat = face.chat(own, fallbacks=[RefusingBackend() if refuses else other], fallback_rest=3600)
    with pytest.raises(ProviderUnavailableError) if refuses else nullcontext():
        chat.chat_with_state(None, user="one")

    turn = chat.start(None, user="two")
    turn.append(user("Second."))
    result = turn.result()

    assert b"Second." in (own if refuses else other).requests[-1].body
    assert "Second." in [message.text for message in read_history(result.state).turns[-1].messages]


def test_a_message_for_a_fallback_that_cannot_begin_is_in_the_error(
    face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is appended while the fallback reads the state, and the author was told that it is taken."""
    own = ScriptedBackend(down(), "Home.", max_retries=0)
    chat = face.chat(own, fallbacks=[ScriptedBackend(wire="anthropic", model="other")])
    turn = chat.start(None, user="one")
    read = Beginning._read

    def appended(self: Any) -> Any:
        if self._plan.dialect.wire == "anthropic":
            turn.append(user("Second."))
            raise ValueError("cannot begin")
        return read(self)

    monkeypatch.setattr(Beginning, "_read", appended)
    with pytest.raises(ProviderUnavailableError) as caught:
        turn.result()
    monkeypatch.undo()

    assert "Second." in [message.text for message in read_history(caught.value.state).all_messages()]
    with pytest.raises(RuntimeError):
        turn.append(user("Third."))
    assert b"Second." in body_of(chat, own, caught.value.state)


def body_of(chat: Any, backend: Any, state: bytes) -> bytes:
    """The request of a resume."""
    chat.resume(state)
    sent: bytes = backend.requests[-1].body
    return sent
