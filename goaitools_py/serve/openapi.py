"""The OpenAPI 3.1 document of a server: requests and answers of each route, for programs in any language.

Owns: the table of routes as data. Must never know: how a request is answered. The shapes of the JSON are made
from types (`shapes.py`); the tests attack a server with requests that this document allows or forbids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from ..frontends import FrontEnd
from .history_view import TurnStatus
from .shapes import CARRIED, SHAPES

__all__ = ["document_of", "stateless_document_of"]

Node = dict[str, Any]

_READ: Final = (400, 401, 403, 404, 500, 503)
_WRITE: Final = (400, 401, 403, 408, 409, 413, 415, 429, 500, 503)
_TURN: Final = (*_WRITE, 402, 422, 502, 504)
_ABOUT: Final = {
    400: "The request cannot be read.",
    401: "The key function knows no user.",
    402: "The budget of the conversation is used up.",
    403: "The user may not do that, or the caller is not trusted.",
    404: "Nothing is stored.",
    408: "The body did not arrive in time.",
    409: "A turn runs, a call waits for an answer, none does, or the id belongs to another message.",
    413: "The request, or the conversation, is too long.",
    415: "The body is not application/json, nor for a message a form.",
    422: "The model does not take that, or the turn took too many steps.",
    429: "Too many turns of this owner, or the provider's limit. Try again later.",
    500: "A tool or a program failed, or the conversation cannot be opened.",
    502: "The provider is not available.",
    503: "The provider or the store is busy, or too many turns run. Try again later.",
    504: "The turn took too long.",
}
_NAME: Final = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "The client's name of the conversation. It does not consist of dots alone.",
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._~@:+-]{1,128}$", "not": {"pattern": "^[.]+$"}},
}
_LAST_EVENT: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The id of the last event that the client has seen: the stream goes on behind it.",
    "schema": {"type": "string"},
}
_GOES_ON_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Any text. Without it the content type must be application/json: no page of another site "
    "can have a browser send one of them unasked.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 256},
}
_TURN_STATUS: Final = {
    "Turn-Status": {
        "description": "How the newest turn stands.",
        "schema": {"enum": list(get_args(TurnStatus))},
    }
}
_FOLLOWS: Final = {
    "aisdk": "The turn that runs. For a page of this origin, and a program that is no browser, an unfinished "
    "turn that was not stopped goes on; 204 if there is none.",
}
_EVENT: Final = {
    "type": "object",
    "description": "One server-sent event. Its data is JSON, or [DONE].",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["data"],
}
_STREAM: Final = {"text/event-stream": {"schema": _EVENT}}


def document_of(frontends: Sequence[FrontEnd] = (), *, url: str = "/") -> Node:
    """Make the document.

    Args:
        frontends: The front ends beside plain JSON.
        url: Where the server is, for clients that read the document from it.
    """
    paths = _plain()
    for front in frontends:
        paths |= _of(front)
    return _document(SHAPES, paths, url)


def stateless_document_of(frontends: Sequence[FrontEnd] = (), *, url: str = "/") -> Node:
    """Make the document of a server without a store: its clients carry the state."""
    turn = {200: {"description": "The result with the new state, or the turn as it goes.", "content":
                  {"application/json": {"schema": _ref("CarriedResult")}, **_STREAM}}}  # fmt: skip
    paths: Node = {
        "/turns": {
            "post": {
                **_operation("say", "Say something.", _TURN, turn),
                "parameters": [_idempotency_key()],
                "requestBody": _or_form(
                    {"anyOf": [_ref("CarriedText"), _ref("CarriedParts")]}, "conversation", "state"
                ),
            }
        },
        "/answers": {
            "post": {
                **_operation("answer", "Answer calls that wait.", _TURN, turn),
                "requestBody": _body(_ref("CarriedAnswers")),
            }
        },
        "/events": {
            "post": {
                **_operation("appendEvents", "Append events. For trusted callers.", _WRITE,
                             {200: _json("CarriedState")}),
                "requestBody": _body(_ref("CarriedEvents")),
            }
        },
        "/messages": {
            "post": {
                **_operation("listMessages", "Read a state.", _WRITE, {200: _json("CarriedMessages")}),
                "requestBody": _body(_ref("CarriedQuery")),
            }
        },
    }  # fmt: skip
    for front in frontends:
        path = f"/{front.name}"
        paths[path] = _of(front)[path]
    return _document(CARRIED, paths, url)


def _document(shapes: Sequence[type], paths: Node, url: str) -> Node:
    _, components = msgspec.json.schema_components(shapes, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Conversations",
            "version": "1",
            "description": "A server of goaitools-py. How a user signs in is up to the program that runs it.",
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _plain() -> Node:
    one = "/conversations/{name}"
    turn = _turn("The result, or with `Accept: text/event-stream` the turn as it goes.")
    return {
        "/conversations": {"get": _list()},
        one: {
            "get": _operation(
                "getConversation",
                "One conversation, and the calls that wait.",
                _READ,
                {200: _json("ConversationFacts")},
            ),
            "patch": {
                **_operation(
                    "renameConversation", "Give the conversation a title.", (*_WRITE, 404), {204: _none()}
                ),
                "requestBody": _body(_ref("Rename")),
            },
            "delete": _operation(
                "deleteConversation",
                "Stop the turn, and erase the conversation.",
                (*_READ, 409),
                {204: _none()},
            ),
            "parameters": [_NAME],
        },
        f"{one}/messages": {
            "get": _operation(
                "listMessages",
                "The history, oldest message first.",
                _READ,
                {200: _json_of({"type": "array", "items": _ref("ShownMessage")})},
            ),
            "parameters": [_NAME],
        },
        f"{one}/turns": {
            "post": {
                **_operation(
                    "say", "Say something. A message that comes twice is answered once.", _TURN, turn
                ),
                "parameters": [_idempotency_key()],
                "requestBody": _or_form(
                    {"anyOf": [_ref("TextMessage"), _ref("PartsMessage")]}, "edit", "again"
                ),
            },
            "parameters": [_NAME],
        },
        f"{one}/turns/current": {
            "get": {
                **_operation(
                    "follow",
                    "The turn that runs; 204 if none does. Nothing is begun.",
                    (*_READ, 409),
                    _told(_streamed("The events so far, and those that come.")),
                ),
                "parameters": [_LAST_EVENT],
            },
            "post": {
                **_operation(
                    "goOn",
                    "Go on with a turn that a process left, or answer messages that wait. 204 if there is "
                    "neither, or the turn was stopped. A turn that runs is followed.",
                    _TURN,
                    _told(turn),
                ),
                "parameters": [_GOES_ON_KEY],
                "requestBody": {**_body(_ref("GoOn")), "required": False},
            },
            "delete": _operation(
                "stop",
                "Stop the turn that runs, or that a process left. The answer comes when that is stored.",
                (*_READ, 409),
                {200: _json("Stopped")},
            ),
            "parameters": [_NAME],
        },
        f"{one}/answers": {
            "post": {
                **_operation("answer", "Answer calls that wait.", _TURN, turn),
                "requestBody": _body(_ref("Answers")),
            },
            "parameters": [_NAME],
        },
        f"{one}/events": {
            "post": {
                **_operation(
                    "appendEvents",
                    "Append events. No model is asked. For trusted callers.",
                    _WRITE,
                    {204: _none()},
                ),
                "requestBody": _body({"type": "array", "items": _ref("NewEvent")}),
            },
            "parameters": [_NAME],
        },
        "/events": {
            "post": {
                **_operation(
                    "appendEventsOfMany",
                    "Append events to many conversations, by name.",
                    _WRITE,
                    {
                        200: _json_of(
                            {
                                "type": "object",
                                "additionalProperties": {"anyOf": [_ref("Done"), _ref("ProblemDocument")]},
                            }
                        )
                    },
                ),
                "requestBody": _body(
                    {"type": "object", "additionalProperties": {"type": "array", "items": _ref("NewEvent")}}
                ),
            },
        },
    }


def _list() -> Node:
    cursor = {"name": "cursor", "in": "query", "schema": {"type": "string"}}
    limit = {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
    }
    about = _operation(
        "listConversations", "The user's conversations.", _READ, {200: _json("ConversationList")}
    )
    return {**about, "parameters": [cursor, limit]}


def _of(front: FrontEnd) -> Node:
    """The routes of a front end. Its own schema describes its bodies and streams."""
    name = front.name
    bodies = {
        "aisdk": ("AI SDK, `useChat`", {"id": _TEXT, "messages": _OBJECTS}),
        "agui": ("AG-UI, `HttpAgent`", {"threadId": _TEXT, "runId": _TEXT, "messages": _OBJECTS}),
    }
    about, members = bodies.get(name, (name, {}))
    body: Node = {"type": "object", "properties": members, "required": list(members)}
    stream = _streamed("The turn as it goes.")
    return {
        f"/{name}": {
            "post": {
                **_operation(f"{name}Post", f"The endpoint of {about}.", _TURN, stream),
                "requestBody": _body(body),
            },
        },
        f"/{name}/{{name}}/stream": {
            "get": {
                **_operation(
                    f"{name}Follow",
                    _FOLLOWS.get(name, "The turn that runs; 204 if none does. Nothing is begun."),
                    (*_READ, 409),
                    _told(stream),
                ),
                "parameters": [_LAST_EVENT],
            },
            "delete": _operation(
                f"{name}Stop", "Stop the turn that runs.", (*_READ, 409), {200: _json("Stopped")}
            ),
            "parameters": [_NAME],
        },
        f"/{name}/{{name}}/messages": {
            "get": _operation(
                f"{name}Messages", f"The history as messages of {about}.", _READ, {200: _json_of(_OBJECTS)}
            ),
            "parameters": [_NAME],
        },
    }


_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 256}
_OBJECTS: Final = {"type": "array", "items": {"type": "object"}}


def _operation(id: str, summary: str, problems: Sequence[int], responses: Mapping[int, Node]) -> Node:
    failed = {
        str(status): {
            "description": _ABOUT[status],
            "content": {"application/problem+json": {"schema": _ref("ProblemDocument")}},
        }
        for status in sorted(problems)
    }
    return {
        "operationId": id,
        "summary": summary,
        "responses": {**{str(status): one for status, one in responses.items()}, **failed},
    }


def _turn(about: str) -> dict[int, Node]:
    either = {"anyOf": [_ref("TurnResult"), _ref("StoppedTurn")]}
    return {200: {"description": about, "content": {"application/json": {"schema": either}, **_STREAM}}}


def _idempotency_key() -> Node:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The id of the message, if the body has no turn_id. A form needs it.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 256},
    }


def _body(schema: Node) -> Node:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _or_form(schema: Node, *fields: str) -> Node:
    """The same message as JSON, or as a form with files."""
    texts = {name: {"type": "string"} for name in ("text", *fields)}
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    form = {"type": "object", "properties": {**texts, "file": files}, "additionalProperties": False}
    return {
        "required": True,
        "content": {"application/json": {"schema": schema}, "multipart/form-data": {"schema": form}},
    }


def _json(name: str) -> Node:
    return _json_of(_ref(name))


def _json_of(schema: Node) -> Node:
    return {"description": "As asked for.", "content": {"application/json": {"schema": schema}}}


def _streamed(about: str) -> dict[int, Node]:
    return {200: {"description": about, "content": _STREAM}}


def _told(found: Mapping[int, Node]) -> dict[int, Node]:
    """The responses of a route that looks for a turn, and says how the newest one stands."""
    return {**found, 204: {**_none(), "headers": _TURN_STATUS}}


def _none() -> Node:
    return {"description": "There is nothing to say."}


def _ref(name: str) -> Node:
    return {"$ref": f"#/components/schemas/{name}"}
