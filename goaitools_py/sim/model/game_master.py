"""The simulated model: a small game master that guides players and keeps their score.

Owns: the replies, and reading a history for facts about the player, each time from its beginning. Must never
know: a provider API, a clock, or another request.

It is not a language model. It answers from the content of the request, so a fact that is no longer in the
history is forgotten, and the replies show that. Every reply to a person is marked as simulated. The same
prompt and seed give the same reply.

Events and context are blocks that applications put into user messages: ``<app-event …>…</app-event>`` and
``<app-context>…</app-context>``, with text escaped as in HTML. A note, ``<app-note …>…</app-note>``, replaces
earlier messages. A transcript has lines that name the speaker.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any

from .prompt import Call, Prompt, Reply, Said
from .schema_values import call_anyway, filled, wanted_calls

__all__ = ["MARK", "Facts", "GameMaster", "spoken"]

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
        facts = _read_facts(prompt.history)
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
    news = _read_facts(turn)
    for topic, value in news.known.items():
        yield f"Noted: your {topic} is {value}."
    for event in news.events:
        yield f"Noted: {event}."
    if media := sum(said.media for said in turn):
        yield f"I received {media} attachment{'s' if media > 1 else ''}."


def _heard(facts: Facts) -> str:
    return f"(Your message {facts.messages}.)"


def _summary(facts: Facts) -> str:
    lines = [f"{_SUMMARY_MARK} {facts.messages} messages."]
    lines += [f"The player's {topic} is {value}." for topic, value in facts.known.items()]
    lines += [f"The place is {facts.place}."] if facts.place else []
    lines += [f"Event: {event}." for event in facts.events]
    lines += [f"Score so far: {facts.points} points."] if facts.points is not None else []
    return " ".join(lines)


_SUMMARY_MARK = "Summary of"
"""The beginning of a summary. A message with it is read for facts, whatever its role."""

_BLOCK = re.compile(r"<app-(event|context)\b[^<>]*>([^<]*)</app-\1\s*>")
_NOTE = re.compile(r"<app-note\b[^<>]*>([^<]*)</app-note\s*>")
_SPOKEN_LINE = re.compile(r"^user: ", re.M)
_EVENT_LINE = re.compile(r"^event: (.+)$", re.M)
_END = r"(?=\s+(?:and|but)\s|[.,;!?\n]|$)"
_FACT = re.compile(rf"\b(?:my|the (?:player|user)'s)\s+((?:\w+\s+){{0,2}}?\w+)\s+is\s+(.+?){_END}", re.I)
_NAME = re.compile(r"(?:\b[Ii] am|\b[Ii]['’]m|\b[Cc]all me)\s+([A-Z][\w-]*(?:\s+[A-Z][\w-]*)*)")
_GAIN = re.compile(r"(?:\b(scored|earned|won|gained|lost)\s+|([+-])\s?)(\d+)\s*(?:points?|pts)\b", re.I)
_TOTAL = re.compile(r"\b(?:score|points)\b\D{0,12}?(-?\d+)|(-?\d+)\s*points\b", re.I)
_SUMMARY_TOTAL = re.compile(r"Score so far: (-?\d+) points")
_SUMMARY_COUNT = re.compile(rf"{_SUMMARY_MARK} (\d+) messages")
_SUMMARY_PLACE = re.compile(r"The place is (.+?)\.(?=\s|$)")
_SUMMARY_EVENT = re.compile(r"\bEvent: (.+?)\.(?= Event: | Score so far: |\n|$)")
_PLACE = re.compile(
    rf"\b(?:reached|entered|arrived (?:at|in)|went to|(?:place|location)\s*[:=])\s*(.+?)(?:(?=:)|{_END})",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts in the history. `points` is None if they are not mentioned; `context` is the newest block."""

    known: Mapping[str, str] = field(default_factory=dict)
    points: int | None = None
    place: str = ""
    events: tuple[str, ...] = ()
    context: str = ""
    messages: int = 0
    """The user's messages with text of the user, not only blocks."""


def spoken(text: str) -> str:
    """The text of a message without event blocks, context blocks and notes."""
    return _NOTE.sub("", _BLOCK.sub("", text)).strip()


def _read_facts(history: Sequence[Said]) -> Facts:
    """Read a history; a later statement replaces an earlier one."""
    known: dict[str, str] = {}
    points: int | None = None
    place = context = ""
    events: list[str] = []
    messages = 0
    for said in history:
        if said.role not in ("user", "system") and _SUMMARY_MARK not in said.text:
            continue
        words = spoken(said.text)
        if said.role == "user" and (words or said.media):
            messages += max(1, len(_SPOKEN_LINE.findall(words)))
        told = "\n".join([*map(html.unescape, _NOTE.findall(said.text)), words])
        known |= {key.lower(): value.strip() for key, value in _FACT.findall(told)}
        if names := _NAME.findall(told):
            known["name"] = names[-1]
        if _SUMMARY_MARK in told:
            points = next((int(total) for total in reversed(_SUMMARY_TOTAL.findall(told))), points)
            place = next(reversed(_SUMMARY_PLACE.findall(told)), place)
            events += _SUMMARY_EVENT.findall(told)
            if said.role != "assistant":
                messages += sum(map(int, _SUMMARY_COUNT.findall(told)))
        blocks = [(kind, html.unescape(escaped).strip()) for kind, escaped in _BLOCK.findall(said.text)]
        for kind, block in (*blocks, *(("event", line.strip()) for line in _EVENT_LINE.findall(words))):
            place = next((found[1].strip() for found in _PLACE.finditer(block)), place)
            if kind == "event":
                events.append(block)
                gains = _GAIN.findall(block)
                if gains:
                    points = (points or 0) + sum(map(_gain, gains))
            else:
                context = block
                if total := _TOTAL.search(block):
                    points = int(total[1] or total[2])
    return Facts(
        known=known, points=points, place=place, events=tuple(events), context=context, messages=messages
    )


def _gain(found: tuple[str, str, str]) -> int:
    verb, sign, number = found
    return -int(number) if sign == "-" or verb.lower() == "lost" else int(number)
