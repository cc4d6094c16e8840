"""The facts that a save gives to the store, for the plain columns beside the blob.

Owns: the choice of numbers from a state's meta data, and the rule when the title stays out. Must never know:
a store.
"""

from __future__ import annotations

from ...state.codec import SUITE_PLAIN, Codec
from ...state.records import Meta, usage_of
from ...stores.layout import RowFacts

__all__ = ["row_facts", "shows_title"]


def row_facts(meta: Meta, *, with_title: bool) -> RowFacts:
    """Make the facts of a state from its meta data. The cost is None if the price of a call is unknown."""
    known, unknown = (*meta.cost, 0, 0)[:2]
    has_unknown = bool(unknown) or (not meta.cost and bool(meta.total))
    return RowFacts(
        title=meta.title if with_title else "",
        status=meta.status,
        turns=meta.processed,
        total_tokens=usage_of(meta.total).total_tokens,
        cost_nano_dollars=None if has_unknown else known,
    )


def shows_title(codec: Codec, plain_title: bool | None) -> bool:
    """True if the title may be in a plain column beside the blob. `plain_title` None: only if the blob is
    plain too."""
    return codec.suite == SUITE_PLAIN if plain_title is None else plain_title
