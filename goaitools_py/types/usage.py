"""The tokens that model calls consumed, and their cost in US dollars.

Owns: `Usage`, `Charge`, the type of a price list, and the price list of the package genai-prices.
Must never know: a message, an error, a state, the network. The prices come from the installed genai-prices
release.

Other files read, store and show the counts of a `Usage`: `docs/architecture.md` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import partial
from typing import Any, Final, Protocol

from ..base.values import Value, replace

__all__ = ["Bill", "Charge", "Prices", "Usage", "cost", "genai_price", "nano_dollars", "priced", "total"]


class Usage(Value, frozen=True, kw_only=True):
    """Tokens that model calls consumed.

    `cached_input_tokens` and `cache_write_tokens` are included in `input_tokens`; `reasoning_tokens` are
    included in `output_tokens`. `requests` counts the calls.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    @property
    def uncached_input_tokens(self) -> int:
        """Input that was not read from the provider's prompt cache. It includes the tokens written to it."""
        return max(0, self.input_tokens - self.cached_input_tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            requests=self.requests + other.requests,
        )


class Charge(Value, frozen=True, kw_only=True):
    """One model call, for a price list.

    Attributes:
        model: The model's name. First the name in the provider's reply; if it has no price, the name in the
            request.
        usage: The tokens of the call.
        wire: The provider API, such as "anthropic".
        family: The operator of the endpoint: "openai", "azure", "anthropic", "foundry", "aws", "local" or a
            host name.
        at_ms: The time of the call, in milliseconds since the epoch, because prices change.
        cost_usd: The provider's own statement of the cost; None if the provider does not state it, and for a
            call of a stored turn.
    """

    model: str
    usage: Usage = Usage()
    wire: str = ""
    family: str = ""
    at_ms: int = 0
    cost_usd: Decimal | None = None


class Prices(Protocol):
    """A price list: any function from a `Charge` to US dollars, or to None for an unknown price."""

    def __call__(self, charge: Charge, /) -> Decimal | None: ...


def cost(usage: Usage, model: str, *, wire: str = "", family: str = "", at_ms: int = 0) -> Decimal | None:
    """The cost of a usage by genai-prices; None if that is not installed or does not know the model.

    Args:
        usage: The tokens.
        model: The model's name.
        wire: The provider API, such as "openai".
        family: The operator of the endpoint; "" for the company that made the provider API.
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
"""The names in genai-prices of the families that are not host names."""
_MAKERS: Final = {"openai": "openai", "openai-responses": "openai", "anthropic": "anthropic"}


def genai_price(charge: Charge, /) -> Decimal | None:
    """The price list of genai-prices (the extra ``[prices]``). It is loaded at the first call.

    A cost that the provider has named is the price. Else the result is None for a model on this machine, and
    for a model that is missing in its provider's list.
    """
    if charge.cost_usd is not None:
        return charge.cost_usd
    family = charge.family or _MAKERS.get(charge.wire, "")
    if family == "local" or not charge.model:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    usage = charge.usage
    # Some servers report more cached tokens than input tokens.
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

_TOO_MUCH: Final = Decimal(10) ** 9
"""US dollars that no model call costs. Much larger numbers have no billionths in Decimal's 28 digits."""


def nano_dollars(dollars: Decimal) -> int:
    """The amount in billionths of a dollar, rounded, because a price list may return any Decimal."""
    return int((dollars * _NANO).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def priced(prices: Prices, charge: Charge, asked: str) -> Decimal | None:
    """The call's price by the model's name in the reply. If that is unknown: by the name in the request, then
    the cost that the provider states.

    Raises TypeError or ValueError if `prices` did not return a price. An int or a float is a price.
    """
    found = _dollars(prices(charge)) if charge.model else None
    if found is None and asked != charge.model:
        found = _dollars(prices(replace(charge, model=asked)))
    return charge.cost_usd if found is None else found


def _dollars(found: Any) -> Decimal | None:
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        found = Decimal(str(found))  # so that 0.1 means a tenth, and not the nearest float
    if found is not None and not isinstance(found, Decimal):
        raise TypeError(f"prices must give a Decimal in US dollars or None, not {type(found).__name__}")
    if found is not None and not (found.is_finite() and abs(found) < _TOO_MUCH):
        raise ValueError("prices must give a finite number of US dollars, less than a billion")
    return found


def total(costs: Iterable[Decimal | None]) -> Decimal | None:
    """The sum; None if one of the costs is unknown."""
    found = Decimal(0)
    for one in costs:
        if one is None:
            return None
        found += one
    return found


class Bill(Value, frozen=True, kw_only=True):
    """A turn's model calls, each with the requested model, and their costs if they were booked."""

    charges: tuple[tuple[str, Charge], ...] = ()
    booked: tuple[Decimal | None, ...] | None = None

    @property
    def cost_usd(self) -> Decimal | None:
        """The sum of the costs; None if one of them is unknown."""
        if self.booked is not None:
            return total(self.booked)
        return total(priced(genai_price, charge, asked) for asked, charge in self.charges)
