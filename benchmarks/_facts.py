"""Facts to plant in a conversation, and a model that knows only the request that it gets.

Owns: the facts, the talk around them, and a simulated reader and summariser. Must never know: a policy.

No language model is here. The reader answers with the sentence of its prompt that has most of the question's
words. The summariser copies the sentences with the most figures, names and rare words, until its room is
full. Neither knows the templates of the facts.
"""

from __future__ import annotations

import html
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from goaitools_py.sim.model.prompt import Call, Prompt, Reply, Said

__all__ = ["SUMMARY_REQUEST", "TOOL", "Fact", "Reader", "Searcher", "planted", "small_talk"]

TOOL: Final = "look_up"
SUMMARY_REQUEST: Final = "Summarise the conversation above"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something said once: how it came in ("user", "tool", "event"), the question, a word of the answer."""

    way: str
    said: str
    asked: str
    value: str


_TEMPLATES: Final = (
    (
        "Remember to water the {plant} only on {day}.",
        "On which day only should one water the {plant}?",
        "day",
    ),
    (
        "Whoever opens the {thing} has to turn its wheel to {number}.",
        "To what must one turn the wheel, whoever opens the {thing}?",
        "number",
    ),
    (
        "We agreed with {person} on {number} crowns for the {thing}.",
        "How many crowns were agreed with {person} for the {thing}?",
        "number",
    ),
    (
        "Under no circumstances may {person} taste {food}.",
        "What may {person} taste under no circumstances?",
        "food",
    ),
    (
        "The ferryman hid the {thing} behind the {plant}.",
        "Behind what has the ferryman hidden the {thing}?",
        "plant",
    ),
    (
        "{person} prefers being woken by {food} smells.",
        "By which smells does {person} prefer being woken?",
        "food",
    ),
)
"""Not those that `goaitools_py.sim` reads ("my … is …", points, places): none of its rules takes these."""

_LISTS: Final = {
    "plant": "juniper fern laurel bramble willow heather sorrel thistle rowan alder hawthorn nettle",
    "day": "Mondays Tuesdays Wednesdays Thursdays Fridays Saturdays Sundays",
    "thing": "strongbox sluice organ lantern carriage telescope press barometer cupboard loom kiln anvil",
    "person": "Ottilie Bertram Rosalind Casimir Fenella Leopold Winifred Ambrose Griselda Percival",
    "food": "cinnamon walnut barley quince aniseed mustard caraway chestnut ginger marjoram",
}
_FILL: Final = {name: words.split() for name, words in _LISTS.items()}
_TALK: Final = (
    "we walked along the quiet street and nothing happened for a while",
    "it was getting late and the others were tired of waiting",
    "somebody hummed a tune that nobody else seemed to know",
    "the weather did what it always does at this time of the year",
    "perhaps we should go on, or perhaps we should rest a little",
)


def planted(seed: int, count: int) -> list[Fact]:
    """So many facts. Of one template no two share a word, so that no answer is right by chance."""
    chance = random.Random(seed)
    found: list[Fact] = []
    used: set[tuple[str, str]] = set()
    while len(found) < count:
        said, asked, slot = _TEMPLATES[len(found) % len(_TEMPLATES)]
        words = {name: chance.choice(of) for name, of in _FILL.items()} | {
            "number": str(chance.randint(21, 989))
        }
        taken = {(said, words[name]) for name in re.findall(r"{(\w+)}", said)}
        if not taken & used:
            used |= taken
            way = ("user", "tool", "event")[len(found) // len(_TEMPLATES) % 3]
            found.append(
                Fact(way=way, said=said.format(**words), asked=asked.format(**words), value=words[slot])
            )
    return found


def small_talk(chance: random.Random) -> str:
    """Some sentences without a fact."""
    return " ".join(chance.choice(_TALK).capitalize() + "." for _ in range(chance.randint(2, 4)))


# ------------------------------------------------------------------------------------------- the reader

_UNKNOWN: Final = "I do not know."
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]*")
_BLOCK: Final = re.compile(r"</?app-[^<>]*>")
_STEM: Final = re.compile(r"[\w]+")


def _words(text: str) -> set[str]:
    return {word[:5] for word in _STEM.findall(text.lower()) if len(word) > 3}


def _sentences(history: Iterable[Said]) -> list[str]:
    """What was said to the model, sentence by sentence; its own words count only where they are a summary."""
    found = []
    for said in history:
        text = _BLOCK.sub("\n", html.unescape(said.text))
        if said.role in ("user", "tool"):
            found += [match.strip() for match in _SENTENCE.findall(text) if match.strip()]
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """The simulated model: looks up what it is told to, summarises when asked, else answers by finding.

    Args:
        room: Words of a summary at most.
    """

    room: int = 300

    def __call__(self, prompt: Prompt) -> Reply:
        """Answer from nothing but the prompt."""
        newest = prompt.history[-1] if prompt.history else Said(role="user")
        if newest.role == "user" and SUMMARY_REQUEST in newest.text:
            body = newest.text.rpartition(SUMMARY_REQUEST)[0]  # a transcript, if the question came with one
            return Reply(content=self._summary([*prompt.history[:-1], Said(role="user", text=body)]))
        if newest.role == "user" and (wanted := re.search(rf"{TOOL} (\d+)", newest.text)):
            return Reply(tool_calls=(Call(name=TOOL, arguments=f'{{"page":{wanted[1]}}}'),))
        if newest.role == "user" and newest.text.rstrip().endswith("?"):
            return Reply(content=self._found(newest.text, prompt.history[:-1]))
        return Reply(
            content="Good. " + "I have heard that, and I go on listening to whatever comes next. " * 4
        )

    def _found(self, question: str, history: Sequence[Said]) -> str:
        wanted = _words(question)
        best = max(_sentences(history), key=lambda one: len(wanted & _words(one)), default="")
        return best if len(wanted & _words(best)) * 2 >= len(wanted) else _UNKNOWN

    def _summary(self, history: Sequence[Said]) -> str:
        """The most telling sentences, each once, in their order."""
        sentences = list(
            dict.fromkeys(re.sub(r"^(?:user|event|tool): ", "", one) for one in _sentences(history))
        )
        sentences = [
            one for one in sentences if not one.startswith(("assistant:", "Summary of the conversation"))
        ]
        common = Counter(word for one in sentences for word in _words(one))
        rank = sorted(sentences, key=lambda one: -_telling(one, common))
        kept: set[str] = set()
        left = self.room
        for one in rank:
            if (size := len(one.split())) <= left:
                kept.add(one)
                left -= size
        return " ".join(one for one in sentences if one in kept) or "Nothing was said."


_SUBJECTS: Final = {word for words in _FILL.values() for one in words for word in _words(one)}


@dataclass(frozen=True, slots=True)
class Searcher(Reader):
    """A reader that searches earlier turns, once, before it says that it does not know.

    A `careful` one knows which words name a thing or a person. It does not answer from a sentence about
    another one, as the plain reader does.
    """

    careful: bool = False

    def __call__(self, prompt: Prompt) -> Reply:
        """Answer from the prompt, or from what the tool `recall` has found."""
        history = prompt.history
        asked = next((at for at in reversed(range(len(history))) if history[at].role == "user"), 0)
        if history and history[-1].role == "tool" and history[asked].text.rstrip().endswith("?"):
            return Reply(content=self._found(history[asked].text, [*history[:asked], *history[asked + 1 :]]))
        reply = Reader.__call__(self, prompt)
        if reply.content != _UNKNOWN:
            return reply
        query = json.dumps({"query": history[asked].text})
        return Reply(tool_calls=(Call(name="recall", arguments=query),))

    def _found(self, question: str, history: Sequence[Said]) -> str:
        subjects = _words(question) & _SUBJECTS if self.careful else set()
        told = [Said(role="user", text=one) for one in _sentences(history) if subjects <= _words(one)]
        return Reader._found(self, question, told)


def _telling(sentence: str, common: Counter[str]) -> float:
    """Figures, names within the sentence, and words that are rare here, for each word of it."""
    words = sentence.split()
    names = sum(word[:1].isupper() for word in words[1:])
    figures = sum(any(letter.isdigit() for letter in word) for word in words)
    rare = sum(1 / common[word] for word in _words(sentence))
    return (2 * names + 2 * figures + rare) / len(words)
