"""`goaitools cost`: tokens and money of a conversation, or of all conversations of a store.

Owns: the command's options and the tables. Must never know: the price of a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from .source import Source, add_source, opened_source
from .store_urls import has_store, opened_store, shown_url
from .text_output import WIDTH, add_json, columns, printable, show_json

if TYPE_CHECKING:
    from ..history.info import StateInfo
    from ..stores import StoredKey
    from ..types.messages import Usage

__all__ = ["add_to"]

_LABEL: Final = 17
_NUMBER: Final = 13
_NANO: Final = Decimal(10) ** 9
_UNKNOWN: Final = "unknown"


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "cost",
        description="Say what a conversation has consumed, in tokens and US dollars: its whole life, and by "
        "model what its history still names. With --all, a line for each conversation of a store.",
    )
    add_source(parser)
    parser.add_argument("--all", action="store_true", help="all conversations of the store; no key is needed")
    parser.add_argument("--prefix", metavar="TEXT", default="", help="with --all: keys that begin with this")
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Print the tokens and the money."""
    if args.all:
        if args.state is not None or not has_store(args):
            args.error("--all needs a --store URL, and no STATE")
        return _all(args)
    if args.prefix:
        args.error("--prefix goes with --all")
    with opened_source(args) as source:
        facts = _facts(source)
    if args.json:
        show_json(facts)
        return 0
    models = facts.pop("models")
    for name, value in facts.items():
        text = f"{value:,}" if isinstance(value, int) else str(value or _UNKNOWN)
        for line in columns(name.replace("_", " "), text, width=_LABEL):
            print(line)
    if models:
        print()
        print(*_table(models), sep="\n")
    return 0


def _facts(source: Source) -> dict[str, Any]:
    from ..history.info import inspect_state

    info = inspect_state(source.blob, **source.opened)
    return {
        "conversation": info.conversation_id,
        "turns": info.turns_processed,
        **_tokens(info.total_usage),
        "aside_tokens": info.aside_usage.total_tokens,
        "cost_usd": None if info.total_cost_usd is None else _dollars(info.total_cost_usd),
        "models": _models(source, info),
    }


def _tokens(usage: Usage) -> dict[str, int]:
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }


def _models(source: Source, info: StateInfo) -> list[dict[str, Any]]:
    """By model: the calls in the history, and their cost by the list of genai-prices."""
    from ..history.turns import read_history
    from ..types.messages import Usage
    from ..types.usage import cost, total

    usages: dict[str, Usage] = {}
    costs: dict[str, list[Decimal | None]] = {}
    for turn in read_history(source.blob, **source.opened).turns:
        for one in turn.iterations:
            if not one.usage.requests and not one.usage.total_tokens:
                continue
            usages[one.model] = usages.get(one.model, Usage()) + one.usage
            at = int(one.started_at.timestamp() * 1000)
            found = cost(one.usage, one.model, wire=info.wire, family=info.endpoint, at_ms=at)
            costs.setdefault(one.model, []).append(found)
    return [
        {"model": model, **_tokens(usage), "list_price_usd": _or_none(total(costs[model]))}
        for model, usage in usages.items()
    ]


def _or_none(dollars: Decimal | None) -> str | None:
    return None if dollars is None else _dollars(dollars)


def _dollars(amount: Decimal) -> str:
    """At least cents, and no more than six digits behind the point."""
    text = f"{amount:.6f}".rstrip("0")
    return text + "0" * max(0, 2 - len(text.partition(".")[2]))


def _table(models: Iterable[dict[str, Any]]) -> Iterator[str]:
    heads = ("requests", "input", "output", "list price $")
    left = WIDTH - _NUMBER * len(heads)
    yield "  model".ljust(left) + "".join(head.rjust(_NUMBER) for head in heads)
    for row in models:
        numbers = (f"{row['requests']:,}", f"{row['input_tokens']:,}", f"{row['output_tokens']:,}")
        name = _cut(row["model"] or _UNKNOWN, left)
        yield name + "".join(text.rjust(_NUMBER) for text in (*numbers, row["list_price_usd"] or _UNKNOWN))


def _cut(text: str, width: int) -> str:
    text = printable(text).replace("\n", " ").replace("\t", " ")
    room = width - 3
    return f"  {text if len(text) <= room else text[: room - 1] + '…'}".ljust(width)


# ------------------------------------------------------------------------------------------- a store


def _all(args: argparse.Namespace) -> int:
    """A line for each conversation, made of the store's plain columns: no state is opened."""
    rows: list[dict[str, Any]] = []
    with opened_store(args.store, args.table) as store:
        cursor = None
        while True:
            page = store.list(args.prefix, cursor=cursor, limit=500)
            rows += map(_row, page.keys)
            cursor = page.cursor
            if cursor is None:
                break
    known = [row["cost_usd"] for row in rows if row["cost_usd"] is not None]
    sums = {
        "conversations": len(rows),
        "turns": sum(row["turns"] or 0 for row in rows),
        "total_tokens": sum(row["total_tokens"] or 0 for row in rows),
        "cost_usd": _dollars(sum(map(Decimal, known), Decimal(0))) if known or not rows else None,
        "unknown_costs": sum(row["cost_usd"] is None for row in rows),
    }
    if args.json:
        show_json({"store": shown_url(args.store), **sums, "rows": rows})
        return 0
    left = WIDTH - 3 * _NUMBER
    print("  key".ljust(left) + "".join(head.rjust(_NUMBER) for head in ("turns", "tokens", "cost $")))
    for row in rows:
        _line(_cut(row["key"], left), row)
    _line("  all".ljust(left), sums)
    if sums["unknown_costs"]:
        print(f"  The cost of {sums['unknown_costs']:,} of them is unknown, and not in the sum.")
    return 0


def _line(name: str, row: dict[str, Any]) -> None:
    values = (row["turns"], row["total_tokens"])
    numbers = [_UNKNOWN if value is None else f"{value:,}" for value in values]
    print(name + "".join(text.rjust(_NUMBER) for text in (*numbers, row["cost_usd"] or _UNKNOWN)))


def _row(one: StoredKey) -> dict[str, Any]:
    facts = one.facts
    nano = None if facts is None else facts.cost_nano_dollars
    return {
        "key": one.key,
        "turns": None if facts is None else facts.turns,
        "total_tokens": None if facts is None else facts.total_tokens,
        "cost_usd": None if nano is None else _dollars(nano / _NANO),
    }
