"""Questions of an MCP server to the user (elicitation), as calls that wait inside of a tool call.

Owns: the ids and arguments of these calls, the answers to a server, and which call a question belongs to.
Must never know: a connection, or a turn.

A server asks while its tool runs. A person may take a day to answer, and another process may go on. So the
server is told "cancel", the call waits, and runs again from its beginning once the answer is there. Then the
server asks the same, and gets the answer at once. Answers to earlier questions of the call are kept in the
arguments of the question that waits.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ..tools import ToolContext, ToolReturn, Waiting
from ..types.answers import Approve, PendingCall, pending_inside, pending_text

if TYPE_CHECKING:
    from mcp_types import ElicitResult

__all__ = ["CallQuestions", "ServerQuestions"]

_ELICITATION: Final = "elicitation"
"""The name of a waiting call that is a server's question."""

Reply = dict[str, Any]
"""The answer to a server: the members of an ``ElicitResult``."""

_CANCEL: Final[Reply] = {"action": "cancel"}
_NOWHERE: Final[Reply] = {"action": "decline"}

_log = logging.getLogger("goaitools_py.tool")

_asking: ContextVar[CallQuestions | None] = ContextVar("goaitools_mcp_call", default=None)

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "null": (type(None),),
}
"""The types of a question's members. A form is flat: the protocol allows no others."""

_LENGTHS: Final = {"minLength": True, "maxLength": False}
_NUMBERS: Final = {"minimum": True, "maximum": False}
_BOUNDS: Final[Mapping[type, Mapping[str, bool]]] = {
    str: _LENGTHS,
    int: _NUMBERS,
    float: _NUMBERS,
    list: {"minItems": True, "maxItems": False},
}
"""By the type of a value: the bounds that a form may set, and whether each is the lowest one."""


class ServerQuestions:
    """The questions of one server, which is called `server` in them.

    All of it is used in the loop of the connection.
    """

    def __init__(self, server: str = "") -> None:
        self._server = server
        self._running: list[CallQuestions] = []

    @contextmanager
    def of(self, ctx: ToolContext[Any], tool: str) -> Iterator[CallQuestions]:
        """Take the questions of one call while it runs."""
        call = CallQuestions(ctx, tool, self._server)
        token = _asking.set(call)
        self._running.append(call)
        try:
            yield call
        finally:
            self._running.remove(call)
            _asking.reset(token)

    async def answer(self, context: Any, params: Any) -> ElicitResult:
        """Answer a question; a client of the package ``mcp`` calls this.

        Protocol versions in which the server sends questions by itself do not say which call one belongs to.
        If one call runs, the question belongs to it. If several run, the question is declined.
        """
        from mcp_types import ElicitResult

        call = _asking.get()
        if call is None and len(self._running) == 1:
            (call,) = self._running
        if call is None:
            facts = {"event": "mcp.declined", "calls": len(self._running)}
            _log.warning("a question of an MCP server belongs to no call: declined", extra=facts)
        return ElicitResult(**(_NOWHERE if call is None else call.answer(params)))


class CallQuestions:
    """The questions of one call: those with an answer from before, and those that wait now."""

    def __init__(self, ctx: ToolContext[Any], tool: str, server: str = "") -> None:
        self._by = {"tool": tool} | ({"server": server} if server else {})
        self._count: Counter[str] = Counter()
        self._open: dict[str, dict[str, Any]] = {}
        self._known: dict[str, Reply] = {}
        asked = {call.id.lstrip("/"): _object(call.arguments) for call in pending_inside("", ctx._asked)}
        for arguments in asked.values():
            self._known |= arguments.get("earlier") or {}
        for id, answer in ctx.answers.items():
            self._known[id] = _reply(answer)

    def answer(self, params: Any) -> Reply:
        """Give the user's answer to a question. A new question waits, and gets "cancel"."""
        asked: dict[str, Any] = {"message": params.message}
        if params.mode == "url":
            asked["url"] = params.url
        else:
            asked["schema"] = params.requested_schema
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:8]
        self._count[digest] += 1
        id = f"{digest}-{self._count[digest]}"
        reply = self._known.get(id)
        if reply is not None and reply["action"] == "accept" and params.mode != "url":
            problem = _problem(reply.get("content"), params.requested_schema)
            if problem is None:
                return reply
            del self._known[id]
            asked["problem"] = problem
        elif reply is not None:
            return {"action": reply["action"]}
        self._open[id] = asked
        return _CANCEL

    def check(self) -> None:
        """Raise Waiting if questions wait. The server's result of the call is then of no use."""
        if not self._open:
            return
        earlier = {"earlier": self._known} if self._known else {}
        raise Waiting(
            pending_text(
                PendingCall(
                    id=id,
                    name=_ELICITATION,
                    arguments=json.dumps({**self._by, **asked, **earlier}, ensure_ascii=False),
                    reason="external",
                )
                for id, asked in self._open.items()
            )
        )


def _reply(answer: Any) -> Reply:
    """Write an answer of the caller for the server."""
    if isinstance(answer, ToolReturn) and not answer.is_error:
        value = _object(answer.value) if isinstance(answer.value, str) else answer.value
        return {"action": "accept", "content": dict(value) if isinstance(value, Mapping) else {}}
    if isinstance(answer, Approve):
        arguments = answer.arguments
        value = _object(arguments) if isinstance(arguments, str) else dict(arguments or {})
        return {"action": "accept", "content": value}
    return {"action": "decline"}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _problem(content: Any, schema: Any) -> str | None:
    """Name the fault of an answer, by the names and types of the form; None for a good answer.

    A part of the form that this package does not understand allows everything: the server checks, too.
    """
    content = content if isinstance(content, dict) else {}
    members = schema.get("properties")
    members = members if isinstance(members, dict) else {}
    required = schema.get("required")
    needed = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    if missing := [name for name in needed if name not in content]:
        return f"the answer lacks {', '.join(missing)}"
    if unknown := [name for name in content if name not in members]:
        return (
            f"the answer has {len(unknown)} members that the form does not have: it has {', '.join(members)}"
        )
    problems = (_member_problem(name, value, members[name]) for name, value in content.items())
    return next((problem for problem in problems if problem is not None), None)


def _member_problem(name: str, value: Any, wanted: Any) -> str | None:
    """Name the fault of one member's value, or None. `wanted`: the form's schema of this member."""
    if not isinstance(wanted, dict):
        return None
    said = wanted.get("type")
    kinds = [kind for kind in (said if isinstance(said, list) else [said]) if isinstance(kind, str)]
    if kinds and not any(_is_of(value, kind) for kind in kinds):
        return f"{name} must be of the type {' or '.join(kinds)}"
    choices = _choices(wanted)
    if choices is not None and value not in choices:
        return f"{name} must be one of the values that the form names"
    measured: Any = len(value) if isinstance(value, (str, list)) else value
    for bound, is_lowest in _BOUNDS.get(type(value), {}).items():
        limit = wanted.get(bound)
        if isinstance(limit, (int, float)) and (measured < limit if is_lowest else measured > limit):
            return f"{name} does not keep to {bound}, which is {limit}"
    items = wanted.get("items")
    if isinstance(value, list):
        found = (_member_problem(f"an item of {name}", item, items) for item in value)
        return next((problem for problem in found if problem is not None), None)
    return None


def _is_of(value: Any, kind: str) -> bool:
    """Whether a value is of a JSON type. A type that this package does not know has every value."""
    types = _TYPES.get(kind)
    return types is None or (isinstance(value, types) and (bool in types or not isinstance(value, bool)))


def _choices(wanted: Mapping[str, Any]) -> list[Any] | None:
    """Give the values that a member may have; None if the form does not list them."""
    for name in ("enum", "oneOf", "anyOf"):
        named = wanted.get(name)
        if not isinstance(named, list):
            continue
        if name == "enum":
            return named
        if all(isinstance(one, dict) and "const" in one for one in named):
            return [one["const"] for one in named]
    return None
