"""Typed answers for calls that get their result from outside: text, JSON, or the values of a form.

Owns: how a typed answer is read, and how a server's question is shown. Must never know: where an answer goes.

A question of an MCP server is a call with the name "elicitation". Its arguments have the message, and a form
or an address.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..types.messages import parsed_arguments
from .terminal import printable

if TYPE_CHECKING:
    from ..types.answers import PendingCall

__all__ = ["is_address", "question_lines", "typed_answer"]

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
