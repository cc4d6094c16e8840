"""What model calls cost: the list over genai-prices, and what it says of what it does not know."""

from __future__ import annotations

import socket
import sys
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import Chat, Usage
from goaitools_py.prices import Charge, genai_price
from goaitools_py.states import read_history
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.messages import Usage as UsageType
from goaitools_py.types.usage import cost, nano_dollars, priced, total

genai_prices = pytest.importorskip("genai_prices")

NOVEMBER_2025 = 1_763_000_000_000


def usage(**counts: int) -> UsageType:
    return Usage(**{"input_tokens": 1_000_000, "requests": 1, **counts})


def test_a_known_model_has_a_price() -> None:
    """A million input tokens of gpt-4o were 2.50 dollars, and half of that from the cache."""
    whole = cost(usage(), "gpt-4o", wire="openai", at_ms=NOVEMBER_2025)
    cached = cost(usage(cached_input_tokens=1_000_000), "gpt-4o", wire="openai", at_ms=NOVEMBER_2025)

    assert (whole, cached) == (Decimal("2.5"), Decimal("1.25"))


def test_cache_writes_and_output_have_their_own_prices() -> None:
    """Anthropic: input 3, written 3.75, read 0.30, output 15 dollars for a million of claude-sonnet-4-5."""

    def price(**counts: int) -> Decimal | None:
        return cost(usage(**counts), "claude-sonnet-4-5", wire="anthropic", at_ms=NOVEMBER_2025)

    small = {"input_tokens": 100_000}
    assert price(**small) == Decimal("0.3")
    assert price(**small, cache_write_tokens=100_000) == Decimal("0.375")
    assert price(**small, cached_input_tokens=100_000) == Decimal("0.03")
    assert price(input_tokens=0, output_tokens=100_000) == Decimal("1.5")


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("no-such-model", "openai"),
        ("gpt-4o", "local"),
        ("gpt-4o", "gateway.example.org"),
        ("claude-sonnet-4-5", "openai"),
        ("", "openai"),
    ],
)
def test_what_is_not_known_is_unknown(model: str, family: str) -> None:
    """A model without a price, a server on this machine, a host that nobody lists: None, never 0."""
    assert genai_price(Charge(model=model, usage=usage(), wire="openai", family=family)) is None


def test_a_dated_or_hosted_name_is_found() -> None:
    """A snapshot's name, and a model at Azure or at another company's host, have prices."""
    dated = Charge(model="gpt-4o-2024-08-06", usage=usage(), wire="openai", family="openai")
    azure = Charge(model="gpt-4o", usage=usage(), wire="openai", family="azure")
    mistral = Charge(model="mistral-large-latest", usage=usage(), wire="openai", family="api.mistral.ai")

    assert all(genai_price(charge) for charge in (dated, azure, mistral))


def test_a_usage_that_cannot_be_is_priced_all_the_same() -> None:
    """More cached than input tokens, as some servers report, is cut to the input."""
    wild = Usage(input_tokens=10, cached_input_tokens=5_000, cache_write_tokens=700, output_tokens=1)

    assert genai_price(Charge(model="gpt-4o", usage=wild, family="openai")) is not None


def test_without_the_extra_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """genai-prices is not needed: without it a price is None."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)

    assert cost(usage(), "gpt-4o", wire="openai") is None


def test_no_price_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is the one that was installed; nothing asks the network for a newer one."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a price was fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    assert cost(usage(), "gpt-4o", wire="openai") is not None


def test_the_model_that_was_asked_for_is_the_second_guess() -> None:
    """A deployment's own name in the reply, or an alias in the request: one known name is enough."""

    def prices(charge: Charge) -> Decimal | None:
        return Decimal(1) if charge.model == "gpt-4o" else None

    assert priced(prices, Charge(model="my-deployment"), "gpt-4o") == 1
    assert priced(prices, Charge(model="gpt-4o"), "my-alias") == 1
    assert priced(prices, Charge(model="a"), "b") is None


def test_one_unknown_makes_the_sum_unknown() -> None:
    """A bill that leaves something out is no bill; an empty one is nothing."""
    assert total([Decimal(1), Decimal(2)]) == 3
    assert total([Decimal(1), None]) is None
    assert total([]) == 0


def test_billionths_are_rounded() -> None:
    """A fraction of a billionth is rounded to the nearer one."""
    assert nano_dollars(Decimal("0.0000000015")) == 2
    assert nano_dollars(Decimal("2.5")) == 2_500_000_000


@pytest.mark.parametrize(("given", "dollars"), [(0.1, "0.1"), (2, "2"), (Decimal("0.3"), "0.3")])
def test_a_number_is_a_price(given: Any, dollars: str) -> None:
    """A float ended the turn with a TypeError after the reply was paid for."""
    result = Chat(ScriptedBackend("Hi."), prices=lambda charge: given).chat(user="Hello.")

    assert (result.text, result.cost_usd, result.total_cost_usd) == (
        "Hi.",
        Decimal(dollars),
        Decimal(dollars),
    )
    assert read_history(result.state).turns[0].cost(prices=lambda charge: given) == Decimal(dollars)


NO_PRICES: list[Any] = ["0.1", True, float("nan"), float("inf"), Decimal("Infinity"), -1.0, [], object()]
TOO_MUCH: list[Any] = [10**9, Decimal("1E+20"), Decimal("1E+400"), 1e300, 10**400, 10**5000]


@pytest.mark.parametrize("given", [*NO_PRICES, *TOO_MUCH], ids=range(len(NO_PRICES) + len(TOO_MUCH)))
def test_what_is_no_price_does_not_end_the_turn(given: Any) -> None:
    """The cost is unknown, and a warning says so."""
    result = Chat(ScriptedBackend("Hi."), prices=lambda charge: given).chat(user="Hello.")

    assert (result.text, result.cost_usd) == ("Hi.", None)
    assert [warning.code for warning in result.warnings] == ["price_unknown"]


def test_a_cost_that_the_provider_names_is_the_price() -> None:
    """Whatever the list says of the model; a list of the caller's own comes first."""
    named = Charge(model="gpt-4o", usage=usage(), family="openai", cost_usd=Decimal("0.5"))

    assert genai_price(named) == Decimal("0.5")
    assert genai_price(Charge(model="mine", family="local", cost_usd=Decimal(0))) == 0
    assert priced(lambda charge: None, named, "gpt-4o") == Decimal("0.5")
    assert priced(lambda charge: Decimal(2), named, "gpt-4o") == 2
