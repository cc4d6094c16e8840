"""The conversations that policies are compared on, with the limit that suits each.

Owns: where they come from, how long they are, how fast they go. Must never know: a policy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from _conversations import JSON, Turn, corpus, records, turns_of
from _replay import Case

__all__ = ["SEED", "Measured", "airline", "plain", "real_chat", "services", "short_ones"]

SEED: Final = 20_261_121

_TEXT: Final = (
    "the of lamp door river market under after seven letter silver question garden answer people before "
    "window night carry story which paper listen winter mountain because morning several island bread "
    "without colour follow again between captain harbour little number perhaps station through wooden"
)
_WORDS: Final = _TEXT.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A case, and where its policies act: at `limit` tokens of a request, of which `history` are history."""

    case: Case
    limit: int
    history: int


def plain(turns: int, *, seconds_between: float = 30.0, limit: int = 8_000) -> Measured:
    """A made-up chat without tools: questions of 20 to 70 words, answers of 80 to 220, from a fixed seed."""
    chance = random.Random(SEED)

    def said(least: int, most: int) -> str:
        return " ".join(chance.choice(_WORDS) for _ in range(chance.randint(least, most))).capitalize() + "."

    case = Case(
        name=f"plain chat, {turns} turns" + (", cold" if seconds_between > 3600 else ""),
        turns=[
            ({"role": "user", "content": said(20, 70)}, {"role": "assistant", "content": said(80, 220)})
            for _ in range(turns)
        ],
        system="You are the guide of a game. Answer in plain words.",
        seconds_between=seconds_between,
    )
    return Measured(case=case, limit=limit, history=limit)


def airline(turns: int) -> Measured | None:
    """Airline desks with tools, one after another; 4,000 tokens of a request are their policy and tools."""
    found = corpus()
    if not found.tools:
        return None
    every = (turn for conversation in found.conversations for turn in conversation)
    case = Case(
        name=f"airline desk with tools, {turns} turns",
        turns=list(islice(every, turns)),
        system=found.system,
        tools=found.tools,
    )
    return Measured(case=case, limit=12_000, history=8_000)


def services(turns: int) -> Measured | None:
    """Short errands (buses, films, tables) with tools, one after another."""
    every = records("sgd")
    if not every:
        return None
    some: list[Turn] = []
    tools: dict[str, JSON] = {}
    for record in every:
        some += _whole(record)
        tools |= {tool["function"]["name"]: tool for tool in record["tools"]}
        if len(some) >= turns:
            break
    case = Case(name=f"errands with tools, {turns} turns", turns=some[:turns], tools=tuple(tools.values()))
    return Measured(case=case, limit=12_000, history=8_000)


def real_chat(turns: int) -> Measured | None:
    """What one programmer asked an assistant over months, one chat after another."""
    every = (turn for record in records("aider") for turn in _whole(record))
    some = [turn for turn in islice(every, turns) if sum(len(one["content"]) for one in turn) < 20_000]
    if not some:
        return None
    case = Case(name=f"real chat, {len(some)} turns", turns=some)
    return Measured(case=case, limit=8_000, history=8_000)


def short_ones(each: int) -> Iterator[Measured]:
    """Whole conversations as they were, some of every file: none gets near a limit."""
    for name in ("tau-airline-gpt4o", "sgd", "mtbench101", "oasst-eval"):
        for record in records(name)[:each]:
            first = record["messages"][0]
            system = first["content"] if first["role"] == "system" else ""
            if turns := _whole(record):
                case = Case(
                    name=f"{name} {record['id']}", turns=turns, system=system, tools=record.get("tools", ())
                )
                yield Measured(case=case, limit=12_000, history=8_000)


def _whole(record: JSON) -> Sequence[Turn]:
    """The turns that begin with a user's message."""
    return [turn for turn in turns_of(record["messages"]) if _begins_well(turn)]


def _begins_well(turn: Sequence[Any]) -> bool:
    return bool(turn[0]["role"] == "user" and len(turn) > 1)
