"""The meaning of typed text in a chat: commands, answers to calls, and names of conversations.

Owns: the commands with their help, how a typed answer is read, how a server's question is shown, and how a
new name is made. Must never know: the effect of a command, where an answer goes, or a store.

A question of an MCP server is a call with the name "elicitation". Its arguments have the message, and a form
or an address.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..types.messages import parsed_arguments
from .text_output import columns, printable

if TYPE_CHECKING:
    from ..types.answers import PendingCall

__all__ = [
    "COMMANDS",
    "MAX_BYTES",
    "Typed",
    "check_name",
    "copy_name",
    "free_name",
    "help_lines",
    "is_address",
    "question_lines",
    "typed",
    "typed_answer",
]


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


_QUESTION: Final = "elicitation"


def is_address(call: PendingCall) -> bool:
    """True for a question that asks the user to visit an address. An approval answers it."""
    return "url" in _question(call)


def question_lines(call: PendingCall) -> Iterator[str]:
    """A server's question, in lines. Nothing for other calls."""
    asked = _question(call)
    if not asked:
        return
    server = asked.get("server")
    who = f"{server} asks" if isinstance(server, str) and server else "asks"
    yield f"  {printable(who)}: {printable(str(asked['message']))}"
    if "url" in asked:
        yield f"  address: {printable(str(asked['url']))}"
    if form := ", ".join(_members(asked)):
        yield f"  form: {printable(form)}"
    if "problem" in asked:
        yield f"  the last answer: {printable(str(asked['problem']))}"


def typed_answer(call: PendingCall, text: str) -> Any:
    """Read the typed answer to a call: a JSON object, the values of a form as NAME=VALUE, or the text itself.

    Raises ValueError that says how to type the answer.
    """
    if text.startswith("{"):
        try:
            return parsed_arguments(text)
        except ValueError as error:
            raise ValueError(f"This is no JSON: {error}.") from None
    asked = _question(call)
    if not asked:
        return text
    form = _form(asked)
    names = list(form)
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    pairs = [word.partition("=")[::2] for word in words]
    if pairs and all(name in form for name, _ in pairs):
        return {name: _value(form[name], value) for name, value in pairs}
    if len(names) == 1:
        return {names[0]: _value(form[names[0]], text)}
    example = " ".join(f"{name}=VALUE" for name in names)
    raise ValueError(f"This question has a form: /answer {printable(example)}")


def _question(call: PendingCall) -> Mapping[str, Any]:
    """The arguments of a server's question; empty for another call."""
    if call.name != _QUESTION or call.reason != "external":
        return {}
    try:
        asked = call.parsed
    except ValueError:
        return {}
    is_one = isinstance(asked, dict) and "message" in asked and ("schema" in asked or "url" in asked)
    return asked if is_one else {}


def _form(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = asked.get("schema")
    members = schema.get("properties") if isinstance(schema, dict) else None
    return members if isinstance(members, dict) else {}


def _members(asked: Mapping[str, Any]) -> Iterator[str]:
    """Each member of a form with its type, its choices, and whether it may be left out."""
    schema = asked.get("schema")
    needed = schema.get("required") if isinstance(schema, dict) else None
    for name, wanted in _form(asked).items():
        said = wanted if isinstance(wanted, dict) else {}
        facts = [str(said["type"])] if "type" in said else []
        if isinstance(said.get("enum"), list):
            facts.append("one of " + ", ".join(map(str, said["enum"])))
        if not isinstance(needed, list) or name not in needed:
            facts.append("optional")
        yield f"{name} ({'; '.join(facts)})" if facts else name


def _value(wanted: Any, text: str) -> Any:
    """A value of a form: JSON where the form wants something other than text."""
    if isinstance(wanted, dict) and wanted.get("type") in ("integer", "number", "boolean", "array"):
        try:
            return parsed_arguments(text)
        except ValueError:
            return text  # the form says what is wrong with it
    return text


MAX_BYTES: Final = 512
_NUMBER: Final = re.compile(r"-\d+$")


def check_name(name: str) -> str:
    """Return the name. ValueError if a conversation cannot have it."""
    if not name.isprintable() or len(name.encode("utf-8", "replace")) > MAX_BYTES:
        raise ValueError(f"a name is one line of at most {MAX_BYTES} bytes")
    return name


def free_name(taken: Collection[str]) -> str:
    """A name for a new conversation: "chat-1", "chat-2", …"""
    return _next("chat", taken)


def copy_name(name: str, taken: Collection[str]) -> str:
    """A name for a copy: "ada-2" for a copy of "ada"."""
    return _next(_NUMBER.sub("", name) or name, {*taken, f"{name}-1"}, 2)


def _next(beginning: str, taken: Collection[str], first: int = 1) -> str:
    return next(name for number in count(first) if (name := f"{beginning}-{number}") not in taken)
