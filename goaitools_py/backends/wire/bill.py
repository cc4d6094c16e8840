"""Reads the consumption of a request from the server's usage object: tokens, and money.

Owns: how the counts of a usage object make one `Usage`, and how the usages of a stream make one object.
Must never know: which provider API a usage is of.

The servers count differently. Here, input and output together equal the server's own total:

====================================== ============================================================
the server's counts                    meaning
====================================== ============================================================
a total above input and output         the rest is reasoning, and is billed as output: xAI's
                                       endpoint (vercel/ai#12425: 1 + 386 of 399), Gemini's
                                       (Clarifai/clarifai-python#978: 424 of 1,016)
the same, with seconds of sound, or    the rest is input: Mistral's sound, a cache that is counted
with more cached tokens than input     apart
more reasoning than output             the reasoning is not in the output, also if the total
                                       disagrees: a gateway may have added it up itself
====================================== ============================================================

The counts are of 2026-11. The total of every other recorded usage is input and output (1,500 of 1,500).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ...base import rawjson
from ...types.messages import Usage
from .tolerance import MAX_COUNT, as_dict, count, is_hollow, members_of

__all__ = ["consumed", "cost_of", "merged"]


def consumed(
    *,
    read: int,
    written: int,
    total: int = 0,
    cached: int = 0,
    cache_write: int = 0,
    reasoning: int = 0,
    has_sound: bool = False,
) -> Usage:
    """The usage of one request from the counts of a server, which may leave tokens out that it bills.

    Args:
        read: The input.
        written: The output.
        total: The sum as the server states it; 0 if it does not.
        cached: Input from the cache.
        cache_write: Input that was written to the cache.
        reasoning: Reasoning, within the output or beside it.
        has_sound: True if the input holds sound that the server counts in seconds.
    """
    thought = reasoning if reasoning > written else 0
    missing = max(0, total - read - written)
    if missing and (has_sound or cached > read):
        read += max(0, missing - thought)
        missing = 0
    missing = max(missing, thought)
    return Usage(
        input_tokens=read if read <= MAX_COUNT else MAX_COUNT,
        cached_input_tokens=cached,
        cache_write_tokens=cache_write,
        output_tokens=count(written + missing) if missing else written,
        reasoning_tokens=max(reasoning, missing),
        requests=1,
    )


# -------------------------------------------------------------------------------------------- money

_TICKS: Final = Decimal(10) ** 10
"""xAI's ticks in a US dollar (docs.x.ai, "cost_in_usd_ticks", seen 2026-11)."""

_TOO_MUCH: Final = Decimal(10) ** 9
_AMOUNT: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


def cost_of(usage: Mapping[str, Any], metadata: object = None) -> Decimal | None:
    """The cost of the request in US dollars, as the server states it; None if it does not.

    xAI has ``cost_in_usd_ticks``, Perplexity ``cost.total_cost``, and OpenRouter ``cost``. With a user's own
    key of the provider behind it (``is_byok``), OpenRouter's cost is its fee, and the provider's bill is
    added. A ``cost`` of another server may be in any currency, so it does not count.

    `metadata`: the ``provider_metadata`` of a message. Vercel's AI Gateway has ``gateway.cost`` there, a text
    (vercel.com/docs/ai-gateway, seen 2026-11).
    """
    cost = usage.get("cost")
    if (gateway := as_dict(as_dict(metadata).get("gateway"))) and "cost" in gateway:
        return _text_number(gateway["cost"])
    if "cost_in_usd_ticks" in usage:
        found = _number(usage["cost_in_usd_ticks"])
        return None if found is None else found / _TICKS
    if isinstance(cost, dict):
        return _number(cost.get("total_cost"))
    if "is_byok" not in usage and "cost_details" not in usage:
        return None
    found = _number(cost)
    if found is None or usage.get("is_byok") is not True:
        return found
    behind = _number(as_dict(usage.get("cost_details")).get("upstream_inference_cost"))
    return None if behind is None else found + behind


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int) and value.bit_length() > 128:  # no bill, and slow to write as digits
        return None
    found = Decimal(str(value))
    return found if found.is_finite() and 0 <= found < _TOO_MUCH * _TICKS else None


def _text_number(value: Any) -> Decimal | None:
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value):
        return _number(value)
    return Decimal(value)


# ------------------------------------------------------------------------------------------- streams

_SIDES: Final = (("input", "prompt", "cache", "num_cached"), ("output", "completion"))
"""How the members of a usage begin that say something of the input, and of the output."""

_NOTHING: Final = frozenset({b"null", b"{}", b"[]"})

_LONGEST: Final = 8192
"""Bytes of a usage that is merged: about ten times a usual one. A stream may have a usage in each event, each
with other members."""


def merged(known: bytes, newer: bytes) -> bytes:
    """The usage of a stream after another event with one. Counts are totals, so each replaces the one before.

    If an event has only zeros for the input, or for the output, these do not count: some gateways end a
    stream with zeros. A zero beside another number counts (recorded of Anthropic: the first event has the
    cache that a compaction read, and the last one 0 beside the input that follows).
    """
    if known in (b"", b"null") or len(known) > _LONGEST:
        return newer
    members = dict(members_of(known))
    later = {key: value for key, value in members_of(newer).items() if value not in _NOTHING}
    counted = {_side(key) for key, value in later.items() if _counts(value)}
    members |= {key: value for key, value in later.items() if key not in members or _side(key) in counted}
    return b"{" + b",".join(rawjson.dumps(key) + b":" + value for key, value in members.items()) + b"}"


def _side(key: str) -> str:
    return next((side[0] for side in _SIDES if key.startswith(side)), key)


def _counts(value: bytes) -> bool:
    """True unless the value is 0, or an object of zeros."""
    try:
        return not is_hollow(rawjson.view(value))
    except rawjson.RawJSONError:
        return False
