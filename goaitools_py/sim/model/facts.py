"""Reads facts about the player from a conversation: facts, points, events, and the number of messages.

Owns: reading a history, each time from its beginning. Must never know: the question, or anything of an
earlier request. A fact that is no longer in the history is forgotten, and the replies must show that.

Events and context are blocks that applications put into user messages: ``<app-event …>…</app-event>`` and
``<app-context>…</app-context>``, with text escaped as in HTML. A note, ``<app-note …>…</app-note>``, replaces
earlier messages. A transcript has lines that name the speaker.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .prompt import Said

__all__ = ["SUMMARY_MARK", "Facts", "read_facts", "spoken"]

SUMMARY_MARK = "Summary of"
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
_SUMMARY_COUNT = re.compile(rf"{SUMMARY_MARK} (\d+) messages")
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


def read_facts(history: Sequence[Said]) -> Facts:
    """Read a history; a later statement replaces an earlier one."""
    known: dict[str, str] = {}
    points: int | None = None
    place = context = ""
    events: list[str] = []
    messages = 0
    for said in history:
        if said.role not in ("user", "system") and SUMMARY_MARK not in said.text:
            continue
        words = spoken(said.text)
        if said.role == "user" and (words or said.media):
            messages += max(1, len(_SPOKEN_LINE.findall(words)))
        told = "\n".join([*map(html.unescape, _NOTE.findall(said.text)), words])
        known |= {key.lower(): value.strip() for key, value in _FACT.findall(told)}
        if names := _NAME.findall(told):
            known["name"] = names[-1]
        if SUMMARY_MARK in told:
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
