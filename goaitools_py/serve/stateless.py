"""A server without a store: each client carries the state of its conversation.

Owns: the routes, and how they read and return a state. Must never know: the format of a front end.

A turn ends with its connection, because no other client would get the new state.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace as replace_result
from typing import Any, Final, TypeAlias

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ..base.values import replace
from ..chat.async_chat import AsyncChat
from ..chat.async_turn import AsyncTurn
from ..frontends import (
    PLAIN_JSON,
    Ask,
    AskError,
    CarryingFrontEnd,
    FrontEnd,
    Problem,
    ProblemError,
    problem_of,
)
from ..frontends.bodies import state_of
from ..frontends.plain import pending_of, result_of
from ..open_turn.turn_ids import key_of, said_under
from ..state.state import load_state
from ..states import inspect_state, pending_calls, read_history, state_from_text, state_to_text
from ..types.errors import NothingToResumeError, StateAuthError, StateError, StateTooLargeError
from ..types.events import TurnCompleted
from ..types.messages import Part, Text, user
from ..types.options import UNSET
from ..types.turn_warnings import TurnWarning
from .guard import host_check
from .http import Handler, json_response, probes, problem_response, read_body, route
from .hub import Hub
from .identity import Caller, KeyFunction, NotTrusted, caller_of, checked_binding
from .openapi import stateless_document_of
from .request_bodies import events_of, read_message
from .runs import Run, refused_input
from .serve_limits import ServeLimits

__all__ = ["Revisions", "StatelessApp"]

Newest: TypeAlias = "Callable[[Caller], int | Awaitable[int | None] | None]"
Keep: TypeAlias = "Callable[[Caller, int], Awaitable[None] | None]"
Revisions: TypeAlias = "tuple[Newest, Keep]"
"""Two functions, which may be coroutine functions: one gives the revision of the newest state of a
conversation, or None; one keeps it."""


class StatelessApp(Starlette):
    """The application that `serve` makes without a store."""

    def __init__(
        self,
        chat: AsyncChat,
        key: KeyFunction,
        frontends: Sequence[FrontEnd],
        limits: ServeLimits,
        revisions: Revisions | None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        self._chat = chat
        self._whose = key
        self._limits = limits
        self._revisions = revisions
        self._hub = Hub(limits)
        self._numbers = itertools.count()
        self._plain = PLAIN_JSON.carrying()
        self._frontends = tuple(frontends)
        routes = [
            route("POST", "/turns", self._turn),
            route("POST", "/answers", self._turn),
            route("POST", "/events", self._events),
            route("POST", "/messages", self._messages),
            route("GET", "/openapi.json", self._openapi),
            *probes(self.is_ready),
        ]
        for front in frontends:
            if not isinstance(front, CarryingFrontEnd):
                raise TypeError(f"clients of {front.name} cannot carry a state; serve needs a store for it")
            routes.append(route("POST", f"/{front.name}", self._post_in(front.carrying())))
        super().__init__(
            routes=routes,
            lifespan=lambda _: self.running(),
            middleware=host_check(hosts),
            exception_handlers={HTTPException: lambda _, error: problem_response(error)},
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Warm the chat up, and at the end wait for running turns; see `ServeApp.running`."""
        await self._chat.warm_up()
        self._hub.open()
        try:
            yield
        finally:
            await self._hub.close()

    async def is_ready(self) -> bool:
        """True if turns may begin: the server does not stop."""
        return self._hub.is_open

    # --------------------------------------------------------------------------------------- routes

    async def _caller(self, request: Request, name: str) -> Caller:
        return checked_binding(await caller_of(self._whose, request, name), self._chat.codec)

    async def _turn(self, request: Request) -> Response:
        ask = await read_message(request, self._limits, self._plain, carries=True)
        caller = await self._caller(request, ask.conversation)
        if (ask.context is not None or ask.metadata) and not caller.trusted:
            raise NotTrusted
        with _states_of_the_client():
            run = await self._run(caller, ask)
        if "text/event-stream" in request.headers.get("accept", ""):
            return await self._streamed(run, self._plain, goes_on=not ask.said)
        try:
            await run.over()
        finally:
            await self._leave(run)
        if run.error is not None:
            return _failed(run.error)
        if run.result is None:
            return problem_response(HTTPException(503))
        return json_response({**result_of(run.result, run.turn_ref), **state_of(run.result)})

    def _post_in(self, front: FrontEnd) -> Handler:
        async def post(request: Request) -> Response:
            ask = front.read(await read_body(request, self._limits))
            caller = await self._caller(request, ask.conversation)
            with _states_of_the_client():
                run = await self._run(caller, ask)
            return await self._streamed(run, front, goes_on=not ask.said)

        return post

    async def _events(self, request: Request) -> Response:
        found = _object(await read_body(request, self._limits), {"state", "events", "conversation"})
        caller = await self._caller(request, _text(found, "conversation"))
        rows = found.get("events")
        if not caller.trusted:
            raise NotTrusted
        if not isinstance(rows, list) or not 1 <= len(rows) <= self._limits.events:
            raise AskError(f"events must be a list of 1 to {self._limits.events} events")
        newest = await self._newest(caller)
        events = events_of(rows)
        with _states_of_the_client():
            state = self._chat.append_to_state(
                _state(_text(found, "state") or None), *events, binding=caller.binding, min_revision=newest
            )
        await self._keep(caller, state)
        return json_response({"state": state_to_text(state)})

    async def _openapi(self, request: Request) -> Response:
        return json_response(
            stateless_document_of(self._frontends, url=request.scope.get("root_path") or "/")
        )

    async def _messages(self, request: Request) -> Response:
        found = _object(await read_body(request, self._limits), {"state", "conversation"})
        caller = await self._caller(request, _text(found, "conversation"))
        how: dict[str, Any] = {"codec": self._chat.codec, "binding": caller.binding}
        with _states_of_the_client():
            state = _state(_text(found, "state") or None)
            if state is None:
                return json_response({"messages": [], "pending": []})
            pending = pending_calls(state, **how)
            id, history = inspect_state(state, **how).conversation_id, read_history(state, **how)
        messages = PLAIN_JSON.history(history, conversation_id=id, pending=pending)
        return json_response({"messages": messages, "pending": pending_of(pending)})

    # ---------------------------------------------------------------------------------------- turns

    async def _run(self, caller: Caller, ask: Ask) -> Run:
        state = _state(ask.state)
        options = dict(caller.options)
        if ask.said:
            self._check_room(state, ask, caller)
        if ask.context is not None:
            options["context"] = ask.context
        if ask.metadata:
            options["metadata"] = {**options.get("metadata", {}), **ask.metadata}
        options |= {"binding": caller.binding, "min_revision": await self._newest(caller)}
        if ask.said:
            try:
                turn = self._chat.start(state, user=list(ask.said), turn_id=ask.turn_id, **options)
            except ValueError as error:
                raise AskError("the message cannot be taken: it is empty, or no text may hold it") from error
        else:
            turn = self._resumed(state, ask, options)
        key = f"{next(self._numbers)}"  # each state may have a turn of its own
        return self._hub.start(
            key,
            caller.owner or caller.key,
            lambda run: self._drive(run, caller, turn, ask.said),
            carries=True,
        )

    @property
    def _state_bytes(self) -> int:
        """The longest state, as text, that a client can keep."""
        limits = self._limits
        return limits.body_bytes * 9 // 10 if limits.state_bytes is None else limits.state_bytes

    def _check_room(self, state: bytes | None, ask: Ask, caller: Caller) -> None:
        """Refuse a message if the client could not keep the new state, before a model is asked.

        A compactor makes room in the history. So with a compactor only the message and the records beside
        the history count. A message that the state has already takes no more room.
        """
        most = self._state_bytes
        if len(ask.state or "") + 2 * sum(map(_size, ask.said)) < most - _AROUND:
            return
        if state is not None and ask.turn_id is not None:
            meta = load_state(state, codec=self._chat.codec, binding=caller.binding).meta
            if said_under(meta, key_of(ask.turn_id, ())) is not None:
                return
        message = user(*ask.said)
        whole, alone = (
            len(state_to_text(self._chat.append_to_state(before, message, binding=caller.binding)))
            for before in (state, None)
        )
        if whole <= most:
            return
        if state is not None and self._has_compactor(caller):
            info = inspect_state(state, codec=self._chat.codec, binding=caller.binding)
            records = max(0, info.blob_bytes - info.history_bytes - _RECORDS)
            if alone + records * 4 // 3 <= most:
                return
        raise ProblemError(
            Problem(
                code=StateTooLargeError.__name__,
                status=413,
                title="That is too long.",
                detail=f"with this message the state has {whole:,} bytes as text, and the client can keep "
                f"{most:,}; the message alone takes {alone:,}: "
                + ("send a shorter message" if alone > most else "begin a new conversation"),
            )
        )

    def _resumed(self, state: bytes | None, ask: Ask, options: dict[str, Any]) -> AsyncTurn[Any]:
        if state is None:
            raise NothingToResumeError("no state came with the answers")
        given = {"codec": self._chat.codec, "binding": options["binding"]}
        answers = ask.answers_to(pending_calls(state, **given))
        if not answers and inspect_state(state, **given).status not in ("in_progress", "failed"):
            raise NothingToResumeError("no call waits for these answers")
        return self._chat.start_resume(state, answers or None, **options)

    async def _drive(self, run: Run, caller: Caller, turn: AsyncTurn[Any], said: Sequence[Part]) -> None:
        completed: TurnCompleted | None = None
        async with turn:
            run.turn = turn
            if run.was_stopped:
                return
            with _states_of_the_client(), refused_input(run, said):
                async for event in turn:
                    if isinstance(event, TurnCompleted):
                        completed = event
                    else:
                        run.hear(event)
        if completed is not None:
            await self._keep(caller, completed.result.state)
            run.tell(self._measured(completed))

    def _has_compactor(self, caller: Caller) -> bool:
        given = caller.options.get("compactor", UNSET)
        return (self._chat._usual_compactor if given is UNSET else given) is not None

    def _measured(self, completed: TurnCompleted) -> TurnCompleted:
        """The end of a turn, with a warning if the client cannot keep the new state."""
        result, most = completed.result, self._state_bytes
        found = len(state_to_text(result.state)) if result.state else 0
        if found <= most:
            return completed
        warning = TurnWarning("state_too_large", f"the state has {found} bytes as text, the limit is {most}")
        return replace(completed, result=replace_result(result, warnings=(*result.warnings, warning)))

    async def _streamed(self, run: Run, front: FrontEnd, *, goes_on: bool) -> Response:
        try:
            await run.begun()
        except BaseException:
            await self._leave(run)
            raise
        if run.is_over and run.error is not None and not run.turn_ref:
            self._hub.forget(run.key)
            return _failed(run.error)

        async def frames() -> AsyncIterator[bytes]:
            try:
                async for piece in run.follow(
                    front, goes_on=goes_on, keep_alive=self._limits.keep_alive_seconds
                ):
                    yield piece
            finally:
                await self._leave(run)

        return StreamingResponse(frames(), headers=dict(front.headers))

    async def _leave(self, run: Run) -> None:
        """Forget the run, and stop it if it is not over: no other client would get the rest."""
        self._hub.forget(run.key)
        if not run.is_over:
            await run.stop()

    async def _newest(self, caller: Caller) -> int | None:
        if self._revisions is None:
            return None
        found = self._revisions[0](caller)
        return await found if inspect.isawaitable(found) else found

    async def _keep(self, caller: Caller, state: bytes) -> None:
        if self._revisions is not None and state:
            info = inspect_state(state, codec=self._chat.codec, binding=caller.binding)
            kept = self._revisions[1](caller, info.revision)
            if inspect.isawaitable(kept):
                await kept


_RECORDS: Final = 1_000
"""Bytes. A new state has about as much beside its history."""

_AROUND: Final = 4_096
"""Bytes. A state without its texts is smaller than this."""


def _size(part: Part) -> int:
    """At least the bytes of a part in a state, before they become text."""
    return (
        2 * len(part.text.encode("utf-8", "replace")) if isinstance(part, Text) else 2 * len(part.data or b"")
    )


@contextmanager
def _states_of_the_client() -> Iterator[None]:
    """Treat a state that cannot be opened as the client's fault: it is old, changed, or of another owner."""
    try:
        yield
    except StateTooLargeError:
        raise
    except StateError as error:
        status = 403 if isinstance(error, StateAuthError) else 400
        title = problem_of(error).title
        raise ProblemError(Problem(code=type(error).__name__, status=status, title=title)) from None


def _failed(error: BaseException) -> Response:
    """The problem, with the state so far: the message, finished tool results, paid replies are in it."""
    response = problem_response(error)
    state = state_of(error)
    if not state:
        return response
    body = orjson.dumps({**orjson.loads(response.body), **state})
    headers = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return Response(body, response.status_code, headers, media_type="application/problem+json")


def _state(text: str | None) -> bytes | None:
    return None if text is None else state_from_text(text)


def _object(body: bytes, members: set[str]) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AskError("the body is not JSON") from None
    if not isinstance(found, dict) or found.keys() - members:
        raise AskError(f"the body must be an object with {', '.join(sorted(members))}")
    return found


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if value is not None and not isinstance(value, str):
        raise AskError(f"{name} must be text")
    return value or ""
