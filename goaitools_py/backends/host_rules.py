"""The rules of hosts: forms of a request that one host of a provider API takes, and another refuses.

Owns: the letters of the rules, and which letters exclude each other. Must never know: a provider's JSON, a
host's name, or the reaction to a refusal.

A history is stored as it came. Only the request gets the form of a host (`ViewsHistory.request_view`).
A letter stands for one rule, on every provider API that has it. States keep the letters that a host was found
to have, so a letter never changes its meaning. A release that does not know a letter keeps and ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["GUESSES", "RULES", "joined_rules", "known_letters", "rule_names"]

RULES: Final[Mapping[str, str]] = {
    "a": "roles alternate: neighbouring messages of one role are joined",
    "c": "no reasoning beside content and calls in one message: the reasoning is left out",
    "d": "no role `developer`: it is `system`",
    "e": "no empty text: null beside calls (reasoning: a space), and an assistant's mute message is left out",
    "f": "names of tools and authors, types of calls and of parts are as the provider's own host takes them",
    "g": "the first call of each step has a thought signature",
    "h": "arguments of calls are JSON objects",
    "i": "ids of calls have nine letters or digits",
    "j": "ids of calls have at most 40 letters, digits, dashes and underscores",
    "k": "an assistant's message has reasoning, in the member `reasoning_content`",
    "l": "the last message is from a user or a tool",
    "m": "no members that the request type does not have",
    "n": "no null: the content beside calls is text",
    "o": "no forced tool choice: the model chooses",
    "p": "parts are of the kinds that the strictest host takes; others are a line of text",
    "q": "reasoning is sent back in the member `reasoning`",
    "r": "no reasoning: members, parts and blocks with unsigned thinking are left out",
    "s": "one system message, at the beginning: later ones are text of the next user message",
    "t": "a history with calls needs tools: the used ones are offered, and calling is forbidden",
    "u": "no user message after a tool result: a short assistant's text stands between",
    "v": "at most 20 pictures: older ones are a line of text",
    "w": "above 20 pictures none has more than 2,000 pixels: if one has, older ones are a line of text",
    "x": "content is text, not a list of parts",
    "y": "no names of authors",
    "z": "no system message: its text is that of a user message",
}
"""The meaning of each letter, in words for warnings and pages."""

GUESSES: Final = ("efhjmpr", "adfhijlmnprstuxy", "adefghijklmpstuxy")
"""The rules to try in turn after a refusal whose words name no rule: first the forms of the strictest host,
then the shape of the history too, then the forms of the other hosts."""

_EXCLUDES: Final[Mapping[str, str]] = {
    "e": "n",
    "n": "e",
    "i": "j",
    "j": "i",
    "k": "rq",
    "q": "kr",
    "r": "kq",
    "s": "z",
    "z": "s",
}


def joined_rules(older: str, newer: str) -> str:
    """The letters of both, sorted. A newer letter replaces the older letters that it excludes."""
    replaced = {gone for letter in newer for gone in _EXCLUDES.get(letter, "")}
    kept = [letter for letter in older if letter not in replaced]
    return "".join(sorted({*kept, *newer}))


def rule_names(letters: str) -> str:
    """The rules in words, for a warning."""
    return "; ".join(RULES[letter].partition(":")[0] for letter in letters if letter in RULES)


def known_letters(letters: Iterable[str]) -> str:
    """The letters that this release knows."""
    return "".join(letter for letter in letters if letter in RULES)
