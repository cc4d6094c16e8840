"""A list of conversations, without their blobs.

Owns: the fields of a row in a store's listing. Must never know: an engine, a blob, or the people who may see
the list.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ...base.values import Value
from ...turn.flow import Flow, Invoke
from .row import aside_prefix, is_aside

if TYPE_CHECKING:
    from ...stores.base import StoredKey, StoredPage

__all__ = ["Summaries", "Summary", "keys_aside", "listing_of", "summaries_flow", "summaries_of"]

_NANO: Final = Decimal("1e-9")


class Summary(Value, frozen=True, kw_only=True):
    """The columns of a stored conversation beside its blob.

    Attributes:
        key: The key it is kept under.
        updated_at: When it was saved last, in UTC.
        title: Up to 200 characters of its title; "" without a title, or if the title stays inside a sealed
            state.
        status: "complete", "awaiting_tools", "in_progress" or "failed"; "" if the last save did not say it.
        turns: How many turns there were; None if the last save did not say it.
        total_tokens: Input and output tokens of its life; None if the last save did not say it.
        cost_usd: Its cost in US dollars; None if that is not known.
    """

    _unshown = frozenset({"key", "title"})

    key: str
    updated_at: datetime
    title: str = ""
    status: str = ""
    turns: int | None = None
    total_tokens: int | None = None
    cost_usd: Decimal | None = None


class Summaries(Value, frozen=True):
    """One page of a list of conversations.

    Attributes:
        rows: At most `limit` rows. A shorter or empty page may not be the last one.
        cursor: The `cursor` for the next page; None after the last page.
        is_ordered: True if the conversation that was saved last comes first.
    """

    _unshown = frozenset({"cursor"})

    rows: tuple[Summary, ...]
    cursor: str | None = None
    is_ordered: bool = False


def listing_of(store: Any, prefix: str, cursor: str | None, limit: int) -> tuple[Callable[[], Any], bool]:
    """Give the call that lists a page of a store, the newest first if the store can, and whether it can.

    Raises:
        TypeError: The store cannot list.
    """
    if callable(recent := getattr(store, "recent", None)):
        return lambda: recent(prefix, before=cursor, limit=limit), True
    if not callable(getattr(store, "list", None)):
        raise TypeError(f"summaries needs a store with list(); {type(store).__name__} has none")
    return lambda: store.list(prefix, cursor=cursor, limit=limit), False


def summaries_of(page: StoredPage, *, is_ordered: bool = False) -> Summaries:
    """Read a page of a store's listing."""
    return Summaries(rows=tuple(map(_summary, page.keys)), cursor=page.cursor, is_ordered=is_ordered)


def summaries_flow(store: Any, prefix: str, cursor: str | None, limit: int) -> Flow[Summaries]:
    """List the conversations of a store, under keys that begin with `prefix`. See `listing_of`."""
    ask, is_ordered = listing_of(store, prefix, cursor, limit)
    page: StoredPage = yield Invoke(ask)
    return summaries_of(page, is_ordered=is_ordered)


def keys_aside(store: Any, key: str) -> list[str]:
    """List the keys of the bytes aside of a conversation, in a plain store that can list."""
    prefix, found, cursor = aside_prefix(key), [], None
    while True:
        page: StoredPage = store.list(prefix, cursor=cursor)
        found += [one.key for one in page.keys if is_aside(one.key, key)]
        cursor = page.cursor
        if cursor is None:
            return found


def _summary(row: StoredKey) -> Summary:
    facts = row.facts
    if facts is None:
        return Summary(key=row.key, updated_at=row.updated_at)
    nano = facts.cost_nano_dollars
    return Summary(
        key=row.key,
        updated_at=row.updated_at,
        title=facts.title,
        status=facts.status,
        turns=facts.turns,
        total_tokens=facts.total_tokens,
        cost_usd=None if nano is None else nano * _NANO,
    )
