"""The role letters: one letter for the role of each stored entry.

Owns: the only table of role letters, and the rule which messages are pinned. Must never know: an entry, or
who reads the letters.

A turn record has one string of letters for each iteration, one letter for each entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from ..types.messages import Message, Role

__all__ = [
    "ASSISTANT",
    "EVENT",
    "GIVEN",
    "LETTERS",
    "LETTER_OF",
    "ROLE_OF",
    "SYSTEM",
    "TOOL",
    "USER",
    "InboxLetter",
    "Mark",
    "is_pinned",
    "letter_of",
]

SYSTEM: Final = "s"
USER: Final = "u"
EVENT: Final = "e"
"""A message of the application that is sent with the user's role; see `messages.event`."""
ASSISTANT: Final = "a"
TOOL: Final = "t"

ROLE_OF: Final[Mapping[str, Role]] = MappingProxyType(
    {SYSTEM: "system", USER: "user", EVENT: "user", ASSISTANT: "assistant", TOOL: "tool"}
)
LETTER_OF: Final[Mapping[Role, str]] = MappingProxyType(
    {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}
)

LETTERS: Final = "".join(ROLE_OF)
"""Every letter that this release knows."""

InboxLetter: TypeAlias = Literal["s", "u", "e", "a"]
"""The letters of messages that a caller may give: all but tool results."""


GIVEN: Final = frozenset((SYSTEM, USER, EVENT))
"""The letters of messages that the application or the user gave."""


class Mark(NamedTuple):
    """The record of a given message. `pinned`: None if it follows the rule of its role."""

    speaker: str | None = None
    pinned: bool | None = None


def is_pinned(letter: str, pinned: bool | None) -> bool:
    """Tell whether a cut keeps a message when it drops its turn. `pinned`: its mark; None without one."""
    return letter == SYSTEM if pinned is None else pinned and letter in GIVEN


def letter_of(message: Message) -> str:
    """The role letter of a message; an event has its own."""
    return EVENT if message.is_event else LETTER_OF[message.role]
