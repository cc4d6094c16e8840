"""What model calls cost, in US dollars.

Owns: `Charge`, the shape of a price list, and the one over the package genai-prices. Must never know: a turn,
a state, the network (the prices are those that genai-prices was released with).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from typing import Final, Protocol

from .messages import Usage
from .values import Value, replace

__all__ = ["Charge", "Prices", "cost", "genai_price", "nano_dollars", "priced", "total"]


class Charge(Value, frozen=True, kw_only=True):
    """One model call, as a price list sees it.

    Attributes:
        model: The model's name: as the provider calls the one that answered or, if that has no price, as it
            was asked for.
        usage: What the call consumed.
        wire: The wire that was spoken, such as "anthropic".
        family: Whose endpoint it was: "openai", "azure", "anthropic", "foundry", "aws", "local" or a host.
        at_ms: When, in milliseconds since the epoch; prices change.
    """

    model: str
    usage: Usage = Usage()
    wire: str = ""
    family: str = ""
    at_ms: int = 0


class Prices(Protocol):
    """A price list: any function from a `Charge` to US dollars. None means that it does not know."""

    def __call__(self, charge: Charge, /) -> Decimal | None: ...


def cost(usage: Usage, model: str, *, wire: str = "", family: str = "", at_ms: int = 0) -> Decimal | None:
    """What a usage costs by genai-prices; None if that is not installed or does not know the model.

    Args:
        usage: The tokens.
        model: The model's name.
        wire: The wire, such as "openai".
        family: The endpoint family; "" for the company that made the wire.
        at_ms: Milliseconds since the epoch, 0 for now.
    """
    return genai_price(Charge(model=model, usage=usage, wire=wire, family=family, at_ms=at_ms))


_PROVIDERS: Final = {
    "openai": "openai",
    "azure": "azure",
    "anthropic": "anthropic",
    "foundry": "azure",
    "aws": "aws",
    "claude.googleapis.com": "google",
}
"""What genai-prices calls the families that are not named by their host."""
_MAKERS: Final = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}


def genai_price(charge: Charge, /) -> Decimal | None:
    """The price list of genai-prices (the extra ``[prices]``), which is loaded when it is first asked.

    A model on this machine has no price; nor has one that the list does not name for its provider.
    """
    family = charge.family or _MAKERS.get(charge.wire, "")
    if family == "local" or not charge.model:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    usage = charge.usage
    # A provider that reports more cached than input tokens is not to be trusted with a bill.
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=min(usage.cache_write_tokens, usage.input_tokens - cached),
    )
    when = datetime.fromtimestamp(charge.at_ms / 1000, UTC) if charge.at_ms else None
    calculate = partial(genai_prices.calc_price, tokens, charge.model, genai_request_timestamp=when)
    try:
        if family in _PROVIDERS:
            return calculate(provider_id=_PROVIDERS[family]).total_price
        if family:
            return calculate(provider_api_url=f"https://{family}").total_price
        return calculate().total_price
    except LookupError:
        return None


_NANO: Final = Decimal(10) ** 9


def nano_dollars(dollars: Decimal) -> int:
    """Billionths of a dollar, rounded; a price list may give any Decimal."""
    return int((dollars * _NANO).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def priced(prices: Prices, charge: Charge, asked: str) -> Decimal | None:
    """What a call costs by the name of the model that answered, else by the one that was asked for."""
    found = prices(charge) if charge.model else None
    if found is None and asked != charge.model:
        found = prices(replace(charge, model=asked))
    return found


def total(costs: Iterable[Decimal | None]) -> Decimal | None:
    """The sum; None as soon as one is unknown."""
    found = Decimal(0)
    for one in costs:
        if one is None:
            return None
        found += one
    return found
