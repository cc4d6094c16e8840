"""The tokens that model calls consumed.

Owns: `Usage`, which errors and messages both carry. Must never know: a message, an error, or a price.
"""

from __future__ import annotations

from ..base.values import Value

__all__ = ["Usage"]


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
