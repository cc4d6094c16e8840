"""The ASGI application: its routes and their handlers.

Owns: the table of routes. Must never know: how a turn runs, or the format of a front end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Literal, TypeAlias, overload

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..base.values import replace
from ..chat.async_chat import AsyncChat
from ..chat.kept.facade import ConversationSnapshot, PartsPlace, Save
from ..chat.kept.summaries import listing_of, summaries_of
from ..frontends import AISDK, PLAIN_JSON, Ask, AskError, FrontEnd, SnapshotFrontEnd
from ..frontends.bodies import MAX_ID_CHARACTERS
from ..frontends.plain import pending_of, result_of
from ..state.codec import SUITE_PLAIN, UNBOUND
from ..stores.base import AsyncLeasing, AsyncListing, AsyncParted, AsyncStopping, AsyncStore
from ..types.options import PER_TURN
from .guard import checked_hosts, host_check, is_own_page
from .history_view import TurnStatus, rows_of, shown_of, shown_pending
from .http import (
    TURN_STATUS,
    Handler,
    answered,
    json_response,
    no_content,
    private,
    probes,
    problem_response,
    read_body,
    route,
    streamed,
)
from .hub import Behind, Hub
from .identity import BadCallerError, Caller, KeyFunction, NotTrusted, caller_of
from .listeners import Listeners, Seat
from .openapi import document_of
from .relay import Relay
from .request_bodies import event_rows, events_by_name, events_of, read_message, read_title
from .requests import ConversationRequest
from .runs import Run, has_seen_end
from .serve_limits import MAX_DIGITS, ServeLimits
from .stateless import Revisions, StatelessApp

__all__ = ["ServeApp", "ServeGate", "place_of_parts", "serve"]

CompactWhen: TypeAlias = Literal["turn", "after"]
ServeGate: TypeAlias = Literal["reject", "steer"]

_RECONNECTS: Final = frozenset({AISDK.name})
"""The front ends with clients that continue a turn by a GET."""


@overload
def serve(
    chat: AsyncChat,
    store: AsyncStore,
    *,
    key: KeyFunction,
    frontends: Sequence[FrontEnd] = (AISDK,),
    save: Save = "checkpoint",
    parts: PartsPlace | None = None,
    lease_ttl: float = 10.0,
    stop_every: float = 1.0,
    gate: ServeGate = "reject",
    compact: CompactWhen = "turn",
    keep_branches: bool = False,
    limits: ServeLimits | None = None,
    relay: Relay | None = None,
    allowed_hosts: Sequence[str] | None = None,
) -> ServeApp: ...
@overload
def serve(
    chat: AsyncChat,
    store: None,
    *,
    key: KeyFunction,
    frontends: Sequence[FrontEnd] = (AISDK,),
    limits: ServeLimits | None = None,
    revisions: Revisions | None = None,
    allowed_hosts: Sequence[str] | None = None,
) -> StatelessApp: ...
def serve(
    chat: AsyncChat,
    store: AsyncStore | None,
    *,
    key: KeyFunction,
    frontends: Sequence[FrontEnd] = (AISDK,),
    save: Save = "checkpoint",
    parts: PartsPlace | None = None,
    lease_ttl: float = 10.0,
    stop_every: float = 1.0,
    gate: ServeGate = "reject",
    compact: CompactWhen = "turn",
    keep_branches: bool = False,
    limits: ServeLimits | None = None,
    relay: Relay | None = None,
    revisions: Revisions | None = None,
    allowed_hosts: Sequence[str] | None = None,
) -> ServeApp | StatelessApp:
    """Make an ASGI application over the conversations of a store.

    Run it alone, or mount it: ``app.mount("/chat", serve(…))``. Servers do not start mounted applications, so
    then put ``async with chat_app.running():`` into the lifespan of the outer one.

    Args:
        chat: An `AsyncChat`. It is not closed.
        store: An ``Async…`` store. It is not closed. None: each client carries the state of its conversation,
            and `chat` needs a codec with a key.
        key: From a request and the client's name of a conversation to `Caller`: the owner, and the key in the
            store. Raise `Refused` in it. It may be a coroutine function.
        frontends: The front ends beside plain JSON, each under its name.
        save: As for `AsyncChat.conversation`.
        parts: As for `AsyncChat.conversation`. None: "store" with a store that keeps parts, else "inline".
        lease_ttl: As for `AsyncChat.conversation`.
        stop_every: As for `AsyncChat.conversation`, if the store has a stop flag: a stop then reaches a turn
            that another process runs.
        gate: For a new message while a turn runs. "reject": it is answered 409. "steer": the turn that runs
            reads it, as with `AsyncChat.conversation`, and the request is answered with that turn. The store
            needs leases.
        compact: "turn": a due compaction is a part of its turn, as everywhere. "after": it is made when the
            turn is saved and answered, and no client waits for it. The next message of the conversation drops
            it. A turn cuts only if the provider or a limit refuses its history. `ColdCache`, and a trigger
            like it that asks for a pause, does not fire then.
        keep_branches: As for `AsyncChat.conversation`: the branch that an edit, or a reply that is written
            again, leaves is a conversation of its own, with the name ``<name>.branch.<revision>``.
        limits: The limits of the server.
        relay: Shows the turns of each worker to the others, such as `RedisRelay`. None: each worker sees its
            own. It is not closed.
        revisions: Without a store, two functions that notice an older state: ``newest(who)`` gives the
            revision of the newest state, or None, and ``keep(who, revision)`` keeps it.
        allowed_hosts: The names under which browsers reach the server, without ports, such as
            ``["chat.example.org"]``. A request that names another host is answered 421, one from a page of
            another origin 403. None: neither is checked.

    Raises:
        TypeError: An argument is of the wrong type, such as a `Chat`, or a store that is not ``Async…``, or
            ``compact="after"`` or ``gate="steer"`` is given without a store, or the store has no leases.
        ValueError: Neither a store nor a codec with a key; or a value that no server could use.
    """
    if not isinstance(chat, AsyncChat):
        raise TypeError(f"serve takes an AsyncChat, not {type(chat).__name__}")
    if not callable(key):
        raise TypeError("key must be a function of a request and a name; it says whose conversation it is")
    if limits is not None and not isinstance(limits, ServeLimits):
        raise TypeError(f"limits must be ServeLimits, not {type(limits).__name__}; pass ServeLimits(turns=…)")
    _check_frontends(frontends)
    _check_relay(relay)
    hosts = None if allowed_hosts is None else checked_hosts(allowed_hosts)
    if gate not in ("reject", "steer"):
        raise ValueError(f"gate must be 'reject' or 'steer'; got {gate!r}")
    if compact not in ("turn", "after"):
        raise ValueError(f"compact must be 'turn' or 'after'; got {compact!r}")
    if store is None:
        if gate != "reject":
            raise TypeError('gate="steer" needs a store: without one each request has a state of its own')
        if compact != "turn":
            raise TypeError('compact="after" needs a store: without one the client has the state by then')
        if chat.codec.suite == SUITE_PLAIN:
            raise ValueError(
                "without a store the client carries the state, so the chat needs a codec with a key, such as "
                "Signed(Keyring(key)) or Encrypted(Keyring(key)); or give serve a store"
            )
        return StatelessApp(chat, key, frontends, limits or ServeLimits(), revisions, hosts)
    how: dict[str, Any] = {"save": save, "parts": place_of_parts(store, parts), "lease_ttl": lease_ttl}
    how |= {"keep_branches": keep_branches, "auto_title": True, "gate": gate}
    if isinstance(store, AsyncStopping):
        how["stop_every"] = stop_every
    # A store, or an option of its conversations, that does not fit is refused here, and not at each request.
    chat.conversation(store, "any", binding=None if chat.codec.suite == SUITE_PLAIN else UNBOUND, **how)
    is_after = compact == "after"
    return ServeApp(chat, store, key, tuple(frontends), how, limits or ServeLimits(), relay, hosts, is_after)


def place_of_parts(store: AsyncStore, parts: PartsPlace | None) -> PartsPlace:
    """Choose where the parts of a server's conversations stand. `parts`: the wish of the caller."""
    return parts if parts is not None else "store" if isinstance(store, AsyncParted) else "inline"


def _check_frontends(frontends: Any) -> None:
    """Raise `TypeError` unless the value is a list of front ends."""
    each = frontends if isinstance(frontends, Sequence) and not isinstance(frontends, str) else (frontends,)
    wrong = [one for one in each if isinstance(one, type) or not hasattr(one, "stream")]
    if wrong or each is not frontends:
        found = type(wrong[0]).__name__ if wrong else "one alone"
        raise TypeError(
            f"frontends must be a list of front ends of goaitools_py.frontends, such as [AISDK, AGUI]; "
            f"got {found}"
        )


def _check_relay(relay: Any) -> None:
    """Raise `TypeError` for a value that is not a relay, for example a URL or a client."""
    if relay is not None and (isinstance(relay, type) or not hasattr(relay, "keep_every")):
        raise TypeError(
            f"relay must be a Relay, such as RedisRelay(redis.asyncio.Redis.from_url(url)); got "
            f"{type(relay).__name__}"
        )


class ServeApp(Starlette):
    """The application that `serve` makes."""

    def __init__(
        self,
        chat: AsyncChat,
        store: AsyncStore,
        key: KeyFunction,
        frontends: tuple[FrontEnd, ...],
        how: dict[str, Any],
        limits: ServeLimits,
        relay: Relay | None = None,
        hosts: frozenset[str] | None = None,
        compacts_after: bool = False,
    ) -> None:
        self._chat = chat
        self._compacts_after = compacts_after
        self._store = store
        self._whose = key
        self._how = how
        self._limits = limits
        self._frontends = frontends
        self._hub = Hub(limits, relay)
        self._listeners = Listeners(limits)
        super().__init__(
            routes=[
                *self._plain_routes(),
                *(route for front in frontends for route in self._routes_of(front)),
            ],
            lifespan=lambda _: self.running(),
            middleware=host_check(hosts),
            exception_handlers={HTTPException: lambda _, error: private(problem_response(error))},
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Warm the chat up, and at the end wait for running turns, for the lifespan of an outer application.

        Turns that are not over after `ServeLimits.grace_seconds` are cancelled and saved.
        """
        await self._chat.warm_up()
        self._hub.open()
        try:
            yield
        finally:
            await self._hub.close()

    def is_running(self, key: str) -> bool:
        """True while this process runs a turn of the conversation under this key."""
        return self._hub.running(key) is not None

    async def is_ready(self) -> bool:
        """True if turns may begin: the server does not stop, and the store answers. Raises the store's
        errors."""
        if self._hub.is_open:
            await self._store.load("goaitools.ready")
        return self._hub.is_open

    async def seen(self, caller: Caller) -> tuple[ConversationSnapshot | None, TurnStatus]:
        """Give the stored conversation, and the status of its newest turn: "running"; "stopped" by its user;
        "waiting": the turn or a message waits for a client to go on; else "none"."""
        return await self._request_for(caller).seen()

    # --------------------------------------------------------------------------------------- routes

    def _plain_routes(self) -> list[Route]:
        one = "/conversations/{name}"
        return [
            route("GET", "/conversations", self._list),
            route("GET", one, self._info),
            route("PATCH", one, self._rename),
            route("DELETE", one, self._erase),
            route("GET", f"{one}/messages", self._messages_in(PLAIN_JSON)),
            route("POST", f"{one}/turns", self._turn),
            route("GET", f"{one}/turns/current", self._follow_in(PLAIN_JSON)),
            route("POST", f"{one}/turns/current", self._go_on),
            route("DELETE", f"{one}/turns/current", self._stop),
            route("POST", f"{one}/answers", self._answers),
            route("POST", f"{one}/events", self._events),
            route("POST", "/events", self._events_of_many),
            route("GET", "/openapi.json", self._openapi),
            *probes(self.is_ready),
        ]

    def _routes_of(self, front: FrontEnd) -> list[Route]:
        return [
            route("POST", f"/{front.name}", self._post_in(front)),
            route("GET", f"/{front.name}/{{name}}/stream", self._follow_in(front)),
            route("DELETE", f"/{front.name}/{{name}}/stream", self._stop),
            route("GET", f"/{front.name}/{{name}}/messages", self._messages_in(front)),
        ]

    async def _caller(self, request: Request, name: str | None = None) -> Caller:
        name = request.path_params["name"] if name is None else name
        return await caller_of(self._whose, request, name)

    def _request_for(self, caller: Caller) -> ConversationRequest:
        try:
            conversation = self._chat.conversation(
                self._store, caller.key, binding=caller.binding, **self._how
            )
        except (TypeError, ValueError) as error:  # `serve` has checked all other arguments
            raise BadCallerError(f"Caller does not fit the chat: {error}") from None
        behind: Behind | None = None
        if self._compacts_after:
            options, compactor = self._chat._cuts_behind(caller.options)
            if compactor is not None:
                beside = {name: options[name] for name in options if name not in {*PER_TURN, "compactor"}}
                behind = partial(conversation.compact, compactor, if_due=True, **beside)
            caller = replace(caller, options=options)
        return ConversationRequest(
            self._hub,
            conversation,
            caller,
            behind=behind,
            steers=self._how["gate"] == "steer",
            has_leases=isinstance(self._store, AsyncLeasing),
            has_flag=isinstance(self._store, AsyncStopping),
            can_erase=isinstance(self._store, AsyncListing) and hasattr(self._store, "delete"),
        )

    # ------------------------------------------------------------------------------------ plain JSON

    async def _turn(self, request: Request) -> Response:
        caller = await self._caller(request)
        ask = await read_message(request, self._limits, PLAIN_JSON)
        if not ask.said:
            raise AskError("a turn needs text or parts; answers have an address of their own")
        if (ask.context is not None or ask.metadata) and not caller.trusted:
            raise NotTrusted
        id = ask.turn_id or request.headers.get("idempotency-key")
        if not id or len(id) > MAX_ID_CHARACTERS:
            raise AskError("a turn needs turn_id, or the header Idempotency-Key, of 1 to 256 characters")
        with self._seat(caller) as seat:
            return await self._replied(
                request,
                await self._run_of(self._request_for(caller), replace(ask, turn_id=id)),
                seat,
            )

    async def _answers(self, request: Request) -> Response:
        caller = await self._caller(request)
        ask = PLAIN_JSON.read(await read_body(request, self._limits))
        if not ask.answers:
            raise AskError("the body must have answers")
        with self._seat(caller) as seat:
            return await self._replied(
                request, await self._request_for(caller).answer(ask), seat, goes_on=True
            )

    def _seat(self, caller: Caller) -> AbstractContextManager[Seat]:
        """Take a place among the listeners before the turn begins: else the client could not follow it."""
        return self._listeners.seat(caller.owner or caller.key)

    async def _replied(self, request: Request, run: Run, seat: Seat, *, goes_on: bool = False) -> Response:
        """The run as a stream if the client wants one, else its result."""
        if _wants_stream(request):
            return await self._begun(request, run, PLAIN_JSON, seat, goes_on=goes_on)
        await run.over()
        if run.error is not None:
            return problem_response(run.error)
        if run.result is None:
            return json_response({"turn": run.turn_ref, "status": "stopped"})
        return json_response(result_of(run.result, run.turn_ref))

    async def _begun(
        self, request: Request, run: Run, front: FrontEnd, seat: Seat, *, goes_on: bool = False
    ) -> Response:
        """The stream, or a problem if the turn failed before it had begun."""
        await run.begun()
        if run.is_over and run.error is not None and not run.turn_ref:
            return problem_response(run.error)
        return await streamed(request, run, front, self._limits, seat, goes_on=goes_on)

    async def _info(self, request: Request) -> Response:
        snapshot, status = await self.seen(await self._caller(request))
        if snapshot is None:
            raise HTTPException(404)
        state = snapshot.info.state
        return json_response(
            {
                "title": snapshot.info.title,
                "status": state.status,
                "turn_status": status,
                "turns": state.turns_processed,
                "updated_at": snapshot.info.saved_at.isoformat(),
                "cost_usd": None if state.total_cost_usd is None else float(state.total_cost_usd),
                "pending": pending_of(shown_pending(snapshot)),
            }
        )

    async def _list(self, request: Request) -> Response:
        caller = await self._caller(request, "")
        if not caller.prefix or not isinstance(self._store, AsyncListing):
            raise HTTPException(404)
        cursor, limit = request.query_params.get("cursor"), request.query_params.get("limit", "100")
        if not limit.isdecimal() or len(limit) > MAX_DIGITS or not 1 <= int(limit) <= 1_000:
            raise AskError("limit must be 1 to 1000")
        ask, is_ordered = listing_of(self._store, caller.prefix, cursor, int(limit))
        try:
            page = summaries_of(await ask(), is_ordered=is_ordered)
        except ValueError:
            raise AskError("the cursor is not one that this server gave") from None
        rows = rows_of(page, caller.prefix)
        return json_response({"conversations": rows, "cursor": page.cursor, "ordered": is_ordered})

    async def _rename(self, request: Request) -> Response:
        caller = await self._caller(request)
        title = read_title(await read_body(request, self._limits))
        conversation = self._request_for(caller).conversation
        if await conversation.info() is None:
            raise HTTPException(404)
        await conversation.update(title=title)
        return no_content()

    async def _erase(self, request: Request) -> Response:
        await self._request_for(await self._caller(request)).forget()
        return no_content()

    async def _stop(self, request: Request) -> Response:
        return json_response({"stopped": await self._request_for(await self._caller(request)).stop()})

    async def _openapi(self, request: Request) -> Response:
        return json_response(document_of(self._frontends, url=request.scope.get("root_path") or "/"))

    async def _events(self, request: Request) -> Response:
        caller = await self._caller(request)
        rows = event_rows(await read_body(request, self._limits), self._limits.events)
        await self._append(caller, rows)
        return no_content()

    async def _events_of_many(self, request: Request) -> Response:
        found = events_by_name(await read_body(request, self._limits), self._limits.events)
        answer: dict[str, Any] = {}
        for name, rows in found.items():
            try:
                if not name or not isinstance(rows, list) or len(rows) > self._limits.events:
                    raise AskError("a member must be a list of events under a name")
                await self._append(await self._caller(request, name), rows)
                answer[name] = {"status": 204}
            except Exception as error:
                answer[name] = orjson.loads(answered(error).body)
        return json_response(answer)

    async def _append(self, caller: Caller, rows: Sequence[Any]) -> None:
        if not caller.trusted:
            raise NotTrusted
        if rows:
            await self._request_for(caller).conversation.append(*events_of(rows))

    # ------------------------------------------------------------------------------------ front ends

    def _post_in(self, front: FrontEnd) -> Handler:
        async def post(request: Request) -> Response:
            ask = front.read(await read_body(request, self._limits))
            if not ask.conversation:
                raise AskError("the request names no conversation")
            caller = await self._caller(request, ask.conversation)
            requested = self._request_for(caller)
            with self._seat(caller) as seat:
                if isinstance(front, SnapshotFrontEnd):
                    return await self._begun(request, *await self._with_snapshot(front, requested, ask), seat)
                run = await self._run_of(requested, ask)
                return await self._begun(request, run, front, seat, goes_on=not ask.said)

        return post

    async def _run_of(self, requested: ConversationRequest, ask: Ask) -> Run:
        if not ask.said:
            return await requested.answer(ask)
        if not ask.turn_id:
            raise AskError("the message has no id")
        return await (requested.say(ask) if ask.again is None else requested.again(ask))

    async def _with_snapshot(
        self, front: SnapshotFrontEnd, requested: ConversationRequest, ask: Ask
    ) -> tuple[Run, FrontEnd]:
        """The run, and the front end that answers this request. Without a message it begins with all that is
        stored."""
        if ask.said:
            return await self._run_of(requested, ask), front.answering(ask, None)
        run = await requested.catch_up(ask)
        await run.begun()
        snapshot = await requested.conversation.snapshot()
        return run, front.answering(ask, shown_of(snapshot))

    def _follow_in(self, front: FrontEnd) -> Handler:
        """The run as a stream. A GET goes on with a turn only if it is the reconnect of a front end, and only
        from a page of this origin: a page of another site can make a browser send any GET."""

        async def follow(request: Request) -> Response:
            caller = await self._caller(request)
            with self._seat(caller) as seat:
                goes_on = (
                    front.name in _RECONNECTS and request.method == "GET" and is_own_page(request.headers)
                )
                found = await self._request_for(caller).follow(
                    "turn" if goes_on else "", has_lost=_has_lost(request)
                )
                if not isinstance(found, Run):
                    return no_content({TURN_STATUS: found})
                return await streamed(request, found, front, self._limits, seat)

        return follow

    async def _go_on(self, request: Request) -> Response:
        """Go on with the turn or message that was left. As with every POST, another site cannot forge it."""
        caller = await self._caller(request)
        if not request.headers.get("idempotency-key"):
            body = await read_body(request, self._limits)
            if body.strip() not in (b"", b"{}"):
                raise AskError("the body must be empty, or an object without members")
        with self._seat(caller) as seat:
            found = await self._request_for(caller).follow("messages", has_lost=_has_lost(request))
            if not isinstance(found, Run):
                return no_content({TURN_STATUS: found})
            if _wants_stream(request):  # the turn may run at another worker, and begin here much later
                return await streamed(request, found, PLAIN_JSON, self._limits, seat)
            return await self._replied(request, found, seat)

    def _messages_in(self, front: FrontEnd) -> Handler:
        async def stored(request: Request) -> Response:
            snapshot = await self._request_for(await self._caller(request)).conversation.snapshot()
            shown = shown_of(snapshot)
            messages = front.history(
                shown.history, conversation_id=shown.conversation_id, pending=shown.pending
            )
            return json_response(messages)

        return stored


def _has_lost(request: Request) -> bool:
    """True if the client names an event that is not its stream's last one."""
    last_id = request.headers.get("last-event-id", "")
    return bool(last_id) and not has_seen_end(last_id)


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")
