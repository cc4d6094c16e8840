"""How many planted facts a conversation still knows at its end, under each policy, and for how many tokens.

Owns: the conversations, the questions, the count. Must never know: how a policy, or the reader, works.

It shows what stands in the last requests, because the simulated reader has nothing else: a dropped turn is
gone, and a kept one is there word for word. It shows nothing about a language model: how well it summarises,
or finds a fact in its prompt. The simulated summary copies sentences; a real one does better on what matters
and may be wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from _facts import SUMMARY_REQUEST, TOOL, Fact, Reader, Searcher, planted, small_talk
from _policies import policies, with_tools
from _report import Figure, Report, info

from goaitools_py import NO_COMPACTION, Chat, Compactor, KeepRecentTurns, TokenLimit, event, tool
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.base.values import replace
from goaitools_py.sim import SimServer
from goaitools_py.sim.model.game_master import GameMaster

__all__ = ["FACTS", "SEED", "TURNS", "Kept", "run", "spoken", "talk"]

SEED: Final = 90_210
TURNS: Final = 120
FACTS: Final = 36
LIMIT: Final = 3_000
"""Tokens; small, so that all policies have to act several times in so many turns."""
_SHORT: Final = (
    "keep everything",
    "drop everything",
    "drop oldest, to 25 %",
    "collapse",
    "summarise, keep 2 turns",
    "Compactor.never_forgets",
    "keep 2 turns, recall",
)


@dataclass(slots=True)
class Kept:
    """Facts that were answered, what the talk had taken before, and how each way in which they came did."""

    asked: int = 0
    known: int = 0
    tokens: int = 0
    ways: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        return 100 * self.known / self.asked


def run(*, short: bool = False) -> Report:
    """Plant, talk, ask. `short`: one conversation of half the length, and a row of each kind."""
    seeds, turns = range(SEED, SEED + (1 if short else 4)), TURNS // 2 if short else TURNS
    rows = {name: row for name, row in _rows().items() if not short or name.startswith(_SHORT)}
    figures = [_figure(name, policy, model, seeds, turns) for name, (policy, model) in rows.items()]
    return Report(
        title="Facts still known at the end, per cent",
        method=f"{FACTS} facts planted at random turns of {turns} (a third each said by the user, told by a "
        "tool, sent as events), asked for at the end, each question by itself; "
        f"seeds from {SEED}; compaction at {LIMIT:,} tokens; the simulator answers from its prompt alone. "
        "Proves what stands in the requests; proves nothing of how well a language model summarises: this "
        "summary copies telling sentences, 300 words of them; the simulator's own was made for other facts",
        figures=figures,
    )


def _rows() -> Mapping[str, tuple[Any, Any]]:
    made = dict(policies(LIMIT, LIMIT)) | dict(with_tools(LIMIT))
    reader = Reader()
    names = (
        "drop oldest, to 75 %",
        "drop oldest, to 50 %",
        "drop oldest, to 25 %",
        "clear tool results, each turn",
        "clear tool results, a sixth of all at a time",
        "collapse tool exchanges",
        "summarise, keep 4 turns",
        "summarise, keep 2 turns",
    )
    own = "summarise, keep 2 turns; the simulator's own summary"
    presets = {name: getattr(Compactor, name)("sim") for name in ("default", "cheap", "never_forgets")}
    recalling = {
        **{f"Compactor.{name}": replace(made, trigger=TokenLimit(LIMIT)) for name, made in presets.items()},
        "keep 2 turns, recall": Compactor(TokenLimit(LIMIT), KeepRecentTurns(2), recall=True),
    }
    return {
        "keep everything (upper bound)": (NO_COMPACTION, reader),
        "drop everything but the last turn (lower bound)": (Compactor(_always, KeepRecentTurns(1)), reader),
        **{name: (made[name](None), reader) for name in names},
        own: (made["summarise, keep 2 turns"](None), _with_own_summary),
        **{name: (policy, Searcher()) for name, policy in recalling.items()},
        **{f"{name}; careful reader": (policy, Searcher(careful=True)) for name, policy in recalling.items()},
    }


def _always(request: object) -> bool:
    return True


def _never(request: object) -> bool:
    return False


def _with_own_summary(prompt: Any) -> Any:
    """The reader, but summaries are written by the simulator's game master."""
    newest = prompt.history[-1].text if prompt.history else ""
    return (GameMaster() if SUMMARY_REQUEST in newest else Reader())(prompt)


def _figure(name: str, policy: Any, model: Callable[[Any], Any], seeds: Sequence[int], turns: int) -> Figure:
    kept = Kept()
    for seed in seeds:
        talk(seed, policy, model, kept, turns=turns)
    ways = ", ".join(f"{way} {known}/{asked}" for way, (known, asked) in sorted(kept.ways.items()))
    note = f"{kept.tokens // len(seeds):,} tokens until then; {ways}"
    return info(name, kept.share, "%", timed=False, note=note)


def talk(seed: int, policy: Any, model: Callable[[Any], Any], kept: Kept, *, turns: int) -> None:
    """One conversation; the answers are counted in `kept`."""
    facts = planted(seed, FACTS)
    with spoken(seed, policy, model, turns=turns, facts=facts) as (chat, state):
        kept.tokens += chat.chat_with_state(state, user="Thank you.").total_usage.total_tokens
        for fact in facts:
            answer = chat.chat_with_state(state, user=fact.asked, compactor=_uncut(policy)).text
            known = fact.value in re.findall(r"\w+", answer)
            kept.asked += 1
            kept.known += known
            before = kept.ways.get(fact.way, (0, 0))
            kept.ways[fact.way] = (before[0] + known, before[1] + 1)


def _uncut(policy: Any) -> Any:
    """A compactor that cuts nothing, and offers the tool of the policy."""
    return replace(policy, trigger=_never) if getattr(policy, "recalled_tokens", 0) else NO_COMPACTION


@contextmanager
def spoken(
    seed: int, policy: Any, model: Callable[[Any], Any], *, turns: int, facts: Sequence[Fact]
) -> Iterator[tuple[Chat, bytes]]:
    """A conversation with the facts in it: the chat, and the state after its last turn."""
    chance = random.Random(seed + 1)
    places = dict(zip(chance.sample(range(turns), len(facts)), facts, strict=True))

    @tool(name=TOOL)
    def look_up(page: int) -> str:
        """A page of the almanac."""
        return f"{places[page].said if page in places else ''} {small_talk(random.Random(page))}"

    with SimServer(model=model) as sim:
        backend = OpenAIChatBackend("sim", base_url=sim.base_url, api_key="sim")
        with Chat(backend, system="Listen, and answer.", tools=[look_up], compactor=policy) as chat:
            state = b""
            for number in range(turns):
                state = _one_turn(chat, state, number, places.get(number), chance)
            yield chat, state


def _one_turn(chat: Chat, state: bytes, number: int, fact: Fact | None, chance: random.Random) -> bytes:
    words = small_talk(chance)
    if (fact is not None and fact.way == "tool") or (fact is None and number % 5 == 0):
        words += f" Now {TOOL} {number}."
    elif fact is not None and fact.way == "user":
        words += f" {fact.said} {small_talk(chance)}"
    elif fact is not None:
        state = chat.append_to_state(state, event(fact.said))
    return chat.chat_with_state(state, user=words).state
