"""The commands of a chat: a line that begins with a slash.

Owns: their names and help, and the meaning of a typed line. Must never know: the effect of a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from .terminal import columns

__all__ = ["COMMANDS", "Typed", "help_lines", "typed"]


class _Command(NamedTuple):
    """One command. `argument` is the name of its text; in brackets if the text may be missing."""

    name: str
    argument: str
    help: str


COMMANDS: Final = (
    _Command("new", "[NAME]", "begin another conversation"),
    _Command("threads", "[NAME]", "list the conversations, or go to one"),
    _Command("fork", "[NAME]", "copy this conversation, and go on in the copy"),
    _Command("rewind", "[TURNS]", "take the newest turns away (default: 1)"),
    _Command("reset", "", "forget this conversation; asks first"),
    _Command("clear", "", "clear the screen; the conversation stays"),
    _Command("export", "[FILE]", "write it to a new file: .md, .json, or else the bytes"),
    _Command("inspect", "", "what is in the state"),
    _Command("history", "", "all that was said"),
    _Command("event", "TEXT", "append an event, without asking the model"),
    _Command("resume", "", "finish an unfinished turn"),
    _Command("approve", "", "let the calls that wait run"),
    _Command("deny", "[WHY]", "deny the calls that wait; the model reads why"),
    _Command("answer", "TEXT", "give the result that a call waits for, or NAME=VALUE for a form"),
    _Command("help", "", "this list"),
    _Command("quit", "", "end the program; the conversation stays"),
)

_ALIASES: Final = {"info": "inspect", "exit": "quit"}
_BY_NAME: Final = {command.name: command for command in COMMANDS}


class Typed(NamedTuple):
    """The meaning of a line. `command`: "" for a message. "?" for an unknown command, or for one that lacks
    its text: then `text` says so."""

    command: str
    text: str


def typed(line: str) -> Typed | None:
    """Read a typed line; None for an empty line. A text of several lines is one message."""
    line = line.strip()
    if not line:
        return None
    if not line.startswith("/"):
        return Typed("", line)
    name, text = (*line[1:].split(None, 1), "", "")[:2]
    command = _BY_NAME.get(_ALIASES.get(name, name))
    text = text.strip()
    if command is None:
        return Typed("?", f"There is no command /{name}; /help lists all.")
    if not text and command.argument and not command.argument.startswith("["):
        return Typed("?", f"/{name} takes a text: /{name} {command.argument}; /help lists all.")
    return Typed(command.name, text)


def help_lines() -> Iterator[str]:
    """A line or more for each command."""
    for command in COMMANDS:
        yield from columns(f"/{command.name} {command.argument}".rstrip(), command.help, width=19)
