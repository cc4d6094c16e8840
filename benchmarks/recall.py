"""How many planted facts the tool ``recall`` gives back, with the planted question as the query.

Owns: the conversations, the queries, the count. Must never know: how texts are ranked.

It shows what a page holds if the model asks in the words of the question. It shows nothing of whether a
language model asks, or in which words. Questions and facts are made up, and share words or forms of words: a
search by words does not find a synonym.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from _facts import Reader, planted
from _identifiers import WAYS, identified
from _languages import LANGUAGES, Language
from _report import Figure, Report, at_least, info
from facts import FACTS, SEED, TURNS, spoken

from goaitools_py import Chat, Compactor, KeepRecentTurns, TokenLimit, TurnLimit
from goaitools_py.history.recall_archive import Passage, page_of, passages_of
from goaitools_py.state.codec import PLAIN
from goaitools_py.state.state import load_state
from goaitools_py.testing import ScriptedBackend

__all__ = ["run"]

PAGE: Final = 1_000
USUAL: Final = 600
WANTED: Final = 95.0
"""Per cent of the facts that a page of `PAGE` tokens has to hold."""

LANGUAGE_TURNS: Final = 60
CODES_FOUND: Final = 99.0
"""Per cent of the facts with an identifier that a page of `PAGE` tokens has to hold."""

CODE_TURNS: Final = 500
_LONG_TURN: Final = 7
"""One of so many turns of the conversation with identifiers is long."""

_PLENTY: Final = 2**22


@dataclass(slots=True)
class Found:
    """Facts that were asked for, and how many the first page held, and the first two."""

    asked: int = 0
    on_first: int = 0
    on_two: int = 0
    characters: int = 0

    def note(self) -> str:
        return (
            f"{self.on_first} of {self.asked}; {100 * self.on_two / self.asked:.0f} % on two pages; "
            f"{self.characters // self.asked:,} characters a page"
        )


def run(*, short: bool = False) -> Report:
    """Plant, cut, search. `short`: one conversation of half the length, and one for each language."""
    seeds = range(SEED, SEED + (1 if short else 4))
    turns = TURNS // 2 if short else TURNS
    talks = [_talk(seed, turns) for seed in seeds]
    figures = []
    for size in (PAGE, USUAL):
        found = Found()
        for passages, facts in talks:
            _count(found, passages, [(fact.asked, fact.value) for fact in facts], size)
        figures.append(_figure(f"planted facts, page of {size:,} tokens", found, size))
    every = Found()
    rows = []
    for name, language in LANGUAGES.items():
        own = Found()
        for seed in seeds:
            passages = _foreign(language, seed)
            for found in (own, every):
                _count(found, passages, [(told.asked, told.value) for told in language.facts], PAGE)
        rows.append(info(f"{name}, page of {PAGE:,} tokens", _share(own), "%", timed=False, note=own.note()))
    figures += _identifier_figures(seeds)
    figures.append(_figure(f"all {len(LANGUAGES)} languages, page of {PAGE:,} tokens", every, PAGE))
    return Report(
        title="Recall: planted facts on the first page, per cent",
        method=f"{FACTS} facts planted at random turns of {turns}, as in the benchmark of facts, "
        f"{CODE_TURNS} turns with 200 facts that an identifier names, "
        f"and {LANGUAGE_TURNS} turns for each language with six facts in their midst; all turns but the "
        f"last are cut; the question is the query; seeds from {SEED}; sizes are this library's estimate. "
        "Proves what a page holds; proves nothing of whether a model asks",
        figures=[*figures, *rows],
    )


def _figure(name: str, found: Found, size: int, wanted: float = WANTED) -> Figure:
    if size < PAGE:
        return info(name, _share(found), "%", timed=False, note=found.note())
    return at_least(wanted, name, _share(found), "%", timed=False, note=found.note())


def _identifier_figures(seeds: range) -> list[Figure]:
    """A figure for each way to ask for the facts with an identifier."""
    every = {way: Found() for way in WAYS}
    for seed in seeds:
        facts = identified(seed)
        passages = _with_identifiers(seed, [fact.said for fact in facts])
        for fact in facts:
            for way, query in zip(WAYS, fact.asked, strict=False):
                _count(every[way], passages, [(query, fact.value)], PAGE)
    names = {way: f"identifiers, {way}, page of {PAGE:,} tokens" for way in WAYS}
    return [_figure(names[way], every[way], PAGE, CODES_FOUND) for way in WAYS]


def _with_identifiers(seed: int, said: Sequence[str]) -> Sequence[Passage]:
    """A conversation with each fact in a turn of its own, all but its last turn cut."""
    chance = random.Random(seed)
    talk = LANGUAGES["English"].talk
    places = dict(zip(chance.sample(range(CODE_TURNS - 1), len(said)), said, strict=True))
    texts = []
    for turn in range(CODE_TURNS):
        words = chance.choices(talk, k=60 if turn % _LONG_TURN == 0 else 3)
        words.insert(chance.randrange(len(words)), places.get(turn, ""))
        texts.append(" ".join(words))
    script = ScriptedBackend(*["I see."] * CODE_TURNS)
    with Chat(script, compactor=_recalling(TurnLimit(CODE_TURNS - 1), keep=1)) as chat:
        return passages_of(load_state(chat.run_turns(None, texts).state), script.dialect, codec=PLAIN)


def _share(found: Found) -> float:
    return 100 * found.on_first / found.asked


def _count(found: Found, passages: Sequence[Passage], asked: Sequence[tuple[str, str]], size: int) -> None:
    for query, value in asked:
        pages = [page_of(passages, query, page=page, max_tokens=size).text for page in (1, 2)]
        held = [value in page for page in pages]
        found.asked += 1
        found.on_first += held[0]
        found.on_two += any(held)
        found.characters += len(pages[0])


def _talk(seed: int, turns: int) -> tuple[Sequence[Passage], Sequence[Any]]:
    """A conversation of the benchmark of facts, all but its last turn cut; the facts are in what was cut."""
    facts = planted(seed, FACTS)
    compactor = _recalling(TokenLimit(3_000), keep=2)
    with spoken(seed, compactor, Reader(), turns=turns, facts=facts) as (chat, state):
        dialect = chat._backend.dialect
        cut = chat.compact_state(state, _recalling(TurnLimit(1), keep=1)).state
    passages = passages_of(load_state(cut), dialect, codec=PLAIN)
    said = "\n".join(passage.text for passage in passages)
    return passages, [fact for fact in facts if fact.said in said]


def _recalling(trigger: Any, *, keep: int) -> Compactor:
    return Compactor(trigger, KeepRecentTurns(keep), recall=True, retain_bytes=_PLENTY)


def _foreign(language: Language, seed: int) -> Sequence[Passage]:
    """A conversation in one language, all but its last turn cut."""
    chance = random.Random(seed)
    at = chance.sample(range(LANGUAGE_TURNS - 1), len(language.facts))
    places = dict(zip(at, language.facts, strict=True))
    script = ScriptedBackend(*_answers(language, chance))
    compactor = _recalling(TurnLimit(LANGUAGE_TURNS - 1), keep=1)
    with Chat(script, compactor=compactor) as chat:
        texts = []
        for turn in range(LANGUAGE_TURNS):
            talk = chance.sample(language.talk, 2)
            texts.append(" ".join([*talk, *([places[turn].said] if turn in places else [])]))
        state = chat.run_turns(None, texts).state
        return passages_of(load_state(state), script.dialect, codec=PLAIN)


def _answers(language: Language, chance: random.Random) -> Iterator[str]:
    for _ in range(LANGUAGE_TURNS):
        yield " ".join(chance.sample(language.talk, 2))
