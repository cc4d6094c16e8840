"""The simulated model: a small game master that guides players and keeps their score.

Owns: the replies. Must never know: a provider API, a clock, or another request.

It is not a language model. It answers from the content of the request, so lost history becomes visible. Every
reply to a person is marked as simulated. The same prompt and seed give the same reply.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from .facts import SUMMARY_MARK, Facts, read_facts, spoken
from .fill import filled
from .prompt import Call, Prompt, Reply, Said
from .tool_use import call_anyway, wanted_calls

__all__ = ["MARK", "GameMaster"]

MARK = "[simulated]"
"""Begins every text that a person may read."""

_MAX_CALLS = 8
_SCENERY = (
    "The lamps flicker.",
    "Somewhere a door creaks.",
    "Rain taps on the roof.",
    "A distant clock strikes.",
    "The curtain stirs.",
)
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_ASKING = re.compile(r"\?|^\s*(?:what|which|who|where|when|how|tell|do you|say|repeat|remind)\b", re.I)
_MINE = re.compile(r"\bmy\s+((?:\w+\s*){1,3})", re.I)
_SUMMARISE = re.compile(r"\bsummari[sz]e\b|\bsummary\b(?! of\b)", re.I)
_ANSWERS = re.compile(r"\bfinal answer\b", re.I)
"""In the description of a tool that takes the answer itself."""
_MAX_ANSWERS = 8
"""How often one turn is answered by a tool that takes the answer."""
_TOPIC_END = re.compile(r"\s+(?:and|or|is|was|now|again|please|so|in|at|then)\b.*", re.I)


@dataclass(frozen=True, slots=True)
class GameMaster:
    """A model that plays a game master. `seed` changes only its choice of words."""

    seed: int = 0

    def __call__(self, prompt: Prompt) -> Reply:
        """Answer a prompt: first with the tool calls that the player asks for, then with text."""
        turn = _open_turn(prompt.history)
        words = "\n".join(spoken(said.text) for said in turn if said.role == "user")
        if calls := _calls(prompt, turn, words) or _answer(prompt, turn, words):
            return Reply(tool_calls=calls if prompt.parallel else calls[:1])
        if (schema := prompt.schema or _schema_in(turn)) is not None:
            return Reply(content=json.dumps(filled(schema, words), ensure_ascii=False))
        facts = read_facts(prompt.history)
        if _wants_summary(turn):
            return Reply(content=f"{MARK} {_summary(facts)}")
        sentences = [*_reports(turn), *_answers(words, facts)]
        if not sentences:
            sentences = [*_acknowledged(turn), self._scenery(prompt), _heard(facts)]
        return Reply(content=f"{MARK} {' '.join(sentences)}")

    def _scenery(self, prompt: Prompt) -> str:
        digest = hashlib.blake2b(prompt.content, salt=self.seed.to_bytes(16, "big", signed=True)).digest()
        return _SCENERY[digest[0] % len(_SCENERY)]


def _open_turn(history: Sequence[Said]) -> Sequence[Said]:
    """The messages since the last text reply."""
    start = 0
    for index, said in enumerate(history):
        if said.role == "assistant" and not said.calls:
            start = index + 1
    return history[start:]


def _schema_in(turn: Sequence[Said]) -> Mapping[str, Any] | None:
    """The newest JSON Schema that the application has written into the turn; None without one."""
    for said in reversed(turn):
        _, asked, rest = unescape(said.text).partition("JSON Schema")
        start = rest.find("{")
        if said.role == "user" and asked and start >= 0:
            try:
                found, _ = json.JSONDecoder().raw_decode(rest, start)
            except ValueError:
                continue
            return found if isinstance(found, dict) else None
    return None


def _wants_summary(turn: Sequence[Said]) -> bool:
    """True if the newest message asks for a summary. A summary in the history holds the same word."""
    return bool(turn) and turn[-1].role == "user" and bool(_SUMMARISE.search(turn[-1].text))


# ---------------------------------------------------------------------------------------- tool calls


def _calls(prompt: Prompt, turn: Sequence[Said], words: str) -> tuple[Call, ...]:
    """The calls that the player asks for and that this turn has not made yet."""
    done = Counter(call.name for said in turn for call in said.calls)
    left: list[Call] = []
    offers = [offer for offer in prompt.offers if not _ANSWERS.search(offer.description)]
    for call in wanted_calls(words, offers):
        if done[call.name]:
            done[call.name] -= 1
        else:
            left.append(call)
    if not left and prompt.must_call and len(offers) == len(prompt.offers) > 0:
        left = [call_anyway(words, offers[0])]
    return tuple(left[:_MAX_CALLS])


def _answer(prompt: Prompt, turn: Sequence[Said], words: str) -> tuple[Call, ...]:
    """The call of a tool that takes the answer itself, once all others are made. It comes again after a
    result, because the result names the answer's errors."""
    for offer in prompt.offers:
        if _ANSWERS.search(offer.description):
            made = sum(call.name == offer.name for said in turn for call in said.calls)
            if made < _MAX_ANSWERS:
                arguments = json.dumps(filled(offer.parameters, words), ensure_ascii=False)
                return (Call(name=offer.name, arguments=arguments),)
    return ()


def _reports(turn: Sequence[Said]) -> Iterator[str]:
    """The results of the turn's tools, word for word."""
    names = {call.id: call.name for said in turn for call in said.calls}
    for said in turn:
        if said.role == "tool":
            yield f"{names.get(said.call_id, 'tool')}: {said.text}"


# ------------------------------------------------------------------------------------------- answers


def _answers(words: str, facts: Facts) -> Iterator[str]:
    """One sentence for each question: the known fact, or that it is not known."""
    asked = " ".join(sentence for sentence in _SENTENCE.findall(words) if _ASKING.search(sentence))
    for owned in _MINE.findall(asked):
        topic = _TOPIC_END.sub("", owned.strip()).lower()
        if not re.search(r"\b(?:score|points)\b", topic):
            yield _known(topic, facts)
    if re.search(r"\bwho am i\b", asked, re.I):
        yield _known("name", facts)
    if re.search(r"\b(?:score|points)\b", asked, re.I):
        yield _points(facts)
    if re.search(r"\bhow many\b.*\bmessages?\b", asked, re.I):
        yield f"You have sent {facts.messages} messages."
    if re.search(r"\bwhere\b", asked, re.I):
        yield f"You are at {facts.place}." if facts.place else "I do not know where you are."
    if re.search(r"\b(?:happened|events?|news)\b", asked, re.I):
        yield f"This happened: {'; '.join(facts.events)}." if facts.events else "Nothing has happened."
    if re.search(r"\b(?:time|day|clock|context)\b", asked, re.I):
        yield f"I was told: {facts.context}" if facts.context else "Nobody told me."


def _known(topic: str, facts: Facts) -> str:
    value = facts.known.get(topic)
    return f"Your {topic} is {value}." if value else f"I do not know your {topic}."


def _points(facts: Facts) -> str:
    return "I know of no points." if facts.points is None else f"The score is {facts.points} points."


def _acknowledged(turn: Sequence[Said]) -> Iterator[str]:
    """The new things of the turn: facts, events, pictures."""
    news = read_facts(turn)
    for topic, value in news.known.items():
        yield f"Noted: your {topic} is {value}."
    for event in news.events:
        yield f"Noted: {event}."
    if media := sum(said.media for said in turn):
        yield f"I received {media} attachment{'s' if media > 1 else ''}."


def _heard(facts: Facts) -> str:
    return f"(Your message {facts.messages}.)"


def _summary(facts: Facts) -> str:
    lines = [f"{SUMMARY_MARK} {facts.messages} messages."]
    lines += [f"The player's {topic} is {value}." for topic, value in facts.known.items()]
    lines += [f"The place is {facts.place}."] if facts.place else []
    lines += [f"Event: {event}." for event in facts.events]
    lines += [f"Score so far: {facts.points} points."] if facts.points is not None else []
    return " ".join(lines)
