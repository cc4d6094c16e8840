"""Reads requests in plain JSON.

Owns: the request's members. Must never know: a stream, or a stored state.

A message: ``{"text" | "parts", "turn_id", "context"?, "metadata"?, "again"?}``. With ``again``, the id of a
reply or "" for the newest one, that reply is written again, and the message is the one it answers. Answers:
``{"answers": {call_id: answer}}``, each ``{"approve": true, "arguments"?}``, ``{"deny": reason}`` or
``{"return": value, "is_error"?}``. The URL names the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...types.answers import Answer, Approve, Deny, ToolReturn
from ...types.messages import Part, Text
from ..base import Ask, AskError
from ..bodies import MAX_ID_CHARACTERS, json_object, media_of, members_at, span_at, text_of, value_of

__all__ = ["read"]

_MEMBERS = frozenset({"text", "parts", "turn_id", "context", "metadata", "answers"})
_AGAIN = frozenset({"again"})
_CARRIED = frozenset({"state", "conversation"})


def read(body: bytes, *, carries: bool = False) -> Ask:
    """Read a body. Raises `AskError` if its form is wrong; an unknown member is an error, too.

    `carries`: the client carries the state, and may name the conversation.
    """
    found = json_object(body)
    members = _MEMBERS | (_CARRIED if carries else _AGAIN)
    if unknown := found.keys() - members:
        known = ", ".join(sorted(members))
        raise AskError(f"{len(unknown)} of the body's members are unknown; the members are {known}")
    context = found.get("context")
    if context is not None and not isinstance(context, str):
        raise AskError("context must be text")
    said = _said(found)
    answers = _answers(found.get("answers"), body)
    if bool(said) is bool(answers):
        raise AskError("the body must have one of text, parts and answers")
    again = found.get("again")
    if again is not None and not (isinstance(again, str) and len(again) <= MAX_ID_CHARACTERS and said):
        raise AskError("again is the id of a reply, and goes with the message that it answers")
    return Ask(
        conversation=text_of(found, "conversation") if "conversation" in found else "",
        state=text_of(found, "state", most=None) if found.get("state") is not None else None,
        said=said,
        again=again,
        turn_id=text_of(found, "turn_id") if "turn_id" in found else None,
        answers=answers,
        context=context,
        metadata=_metadata(found.get("metadata")),
    )


def _said(found: dict[str, Any]) -> tuple[Part, ...]:
    if "text" in found and "parts" in found:
        raise AskError("the body must have one of text, parts and answers")
    if "text" in found:
        return (Text(text_of(found, "text", most=None)),)
    if "parts" not in found:
        return ()
    parts = found["parts"]
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise AskError("parts must be a list of objects with at least one of them")
    return tuple(_part(part) for part in parts)


def _part(part: dict[str, Any]) -> Part:
    if part.get("type") == "text":
        return Text(text_of(part, "text", most=None))
    if part.get("type") == "file":
        name = text_of(part, "name") if part.get("name") else None
        return media_of(text_of(part, "url", most=None), text_of(part, "media_type"), name)
    raise AskError("the type of a part must be text or file")


def _metadata(found: object) -> Mapping[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise AskError("metadata must be an object whose values are text")
    return found


def _answers(found: object, body: bytes) -> dict[str, Answer]:
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise AskError("answers must be an object of objects, by call id")
    spans = members_at(body, "answers")
    return {id: _answer(one, spans.get(id)) for id, one in found.items()}


def _answer(one: dict[str, Any], span: bytes | None) -> Answer:
    def as_written(name: str, read: Any) -> Any:
        return value_of(None if span is None else span_at(span, name), read)

    match one:
        case {"approve": True, **rest} if rest.keys() <= {"arguments"}:
            arguments = rest.get("arguments")
            if arguments is not None and not isinstance(arguments, dict):
                raise AskError("the arguments of an approval must be an object")
            if arguments is None:
                return Approve()
            return Approve(as_written("arguments", arguments))
        case {"deny": str(reason), **rest} if not rest:
            return Deny(reason)
        case {"return": value, **rest} if rest.keys() <= {"is_error"}:
            is_error = rest.get("is_error", False)
            if not isinstance(is_error, bool):
                raise AskError("is_error must be true or false")
            return ToolReturn(as_written("return", value), is_error=is_error)
    raise AskError("an answer must be {approve: true}, {deny: reason} or {return: value}")
