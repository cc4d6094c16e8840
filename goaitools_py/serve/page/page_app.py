"""The page's ASGI application: the page itself, the server for conversations under /api, and the inspector.

Owns: the table of routes, their handlers, and the spelling of a store's keys as names in addresses. Must
never know: an HTTP server, or how a turn runs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from ...base.values import Value
from ...chat.async_chat import AsyncChat
from ...chat.kept.facade import ConversationSnapshot, PartsPlace
from ...chat.kept.summaries import listing_of
from ...frontends import PLAIN_JSON, AskError
from ...frontends.plain import pending_of
from ...history.export import import_state
from ...history.info import inspect_state
from ...stores.base import AsyncLeasing, AsyncListing, AsyncStore
from .. import Caller, ServeLimits, serve
from ..app import ServeGate, place_of_parts
from ..guard import COOKIE, SCRIPTS, Guard, cookie_of
from ..history_view import shown_pending
from ..http import Handler, guarded, json_response, no_content, probes, problem_response, read_body
from ..serve_limits import MAX_DIGITS
from .inspection import diff_of, facts_of, numbers_of_turns, raw_of, removed_of

if TYPE_CHECKING:
    from ...chat.async_conversation import AsyncConversation

__all__ = ["PageSettings", "key_of", "name_of", "page_app"]

_LIMITS: Final = ServeLimits(body_bytes=20_000_000, turns_per_owner=64, keep_seconds=0.0, grace_seconds=5.0)
"""`keep_seconds` is 0: the page reads the history after a turn, and a turn that is taken back must not come
again."""

_LOGIN: Final = ServeLimits(body_bytes=16_384)
_OWNER: Final = "page"
_ROWS: Final = 200
_STYLE: Final = re.compile(r"<style>(.*?)</style>", re.S)


class PageSettings(Value, frozen=True, kw_only=True):
    """How a page is served.

    Attributes:
        model: The model's name on the page; "" for an unknown one.
        is_simulated: The replies are simulated, and the page says so all the time.
        read_only: The page shows conversations and changes nothing. No model is asked.
        token: The token that a browser must show once; None: everybody who reaches the server may use it.
        hosts: Names that the server has beside localhost and its addresses.
        only_loopback: The server listens on the loopback.
        hints: Messages to begin with, which the page offers in an empty conversation.
    """

    _unshown = frozenset({"token"})

    model: str = ""
    is_simulated: bool = False
    read_only: bool = False
    token: str | None = None
    hosts: tuple[str, ...] = ()
    only_loopback: bool = True
    hints: tuple[str, ...] = ()


def page_app(
    chat: AsyncChat,
    store: AsyncStore,
    settings: PageSettings,
    *,
    binding: Callable[[str], Any] = lambda key: None,
    limits: ServeLimits = _LIMITS,
    lease_ttl: float = 10.0,
    parts: PartsPlace | None = None,
    gate: ServeGate | None = None,
) -> Starlette:
    """Make the application. Its address must be the root of its host.

    Args:
        chat: Runs the turns. It is not closed.
        store: Has the conversations. It is not closed.
        settings: See there.
        binding: For sealed states: from a key to the owner of its conversation.
        limits: As for `serve`.
        lease_ttl: As for `serve`.
        parts: As for `serve`.
        gate: As for `serve`. None: "steer" if the store has leases.
    """
    gate = gate or ("steer" if isinstance(store, AsyncLeasing) else "reject")
    return _Page(chat, store, settings, binding, limits, lease_ttl, place_of_parts(store, parts), gate).app


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def script(request: Request) -> Response:
        return Response(_file(name), media_type="text/javascript")

    return script


@cache
def _policy() -> str:
    """The page may run its own script, have its own style, and talk to this server. Texts become no HTML."""
    style = _STYLE.search(_file("index.html"))
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self'; style-src 'sha256-{digest}'; connect-src 'self'; "
        "img-src 'self' data:; media-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


class _Page:
    def __init__(
        self,
        chat: AsyncChat,
        store: AsyncStore,
        settings: PageSettings,
        binding: Callable[[str], Any],
        limits: ServeLimits,
        lease_ttl: float,
        parts: PartsPlace,
        gate: ServeGate,
    ) -> None:
        self._chat, self._store, self._settings = chat, store, settings
        self._binding, self._limits, self._parts = binding, limits, parts
        self._steers = gate == "steer"
        how: dict[str, Any] = {"limits": limits, "lease_ttl": lease_ttl, "parts": parts, "gate": gate}
        self._serve = serve(chat, store, key=self._caller, frontends=(), **how)
        one = "/conversations/{name}"
        self.app = Starlette(
            routes=[
                Route("/", self._index),
                *probes(self._serve.is_ready),
                *(Route(f"/{name}", _script(name)) for name in SCRIPTS),
                _route("POST", "/login", self._login),
                _route("GET", "/about", self._about),
                _route("GET", "/conversations", self._list),
                _route("GET", one, self._view),
                _route("GET", f"{one}/facts", self._facts),
                _route("GET", f"{one}/removed", self._removed),
                _route("GET", f"{one}/turns/{{number}}/raw", self._raw),
                _route("GET", f"{one}/turns/{{number}}/diff", self._diff),
                _route("POST", f"{one}/fork", self._fork),
                _route("POST", f"{one}/rewind", self._rewind),
                Mount("/api", app=self._serve),
            ],
            middleware=[
                Middleware(
                    Guard,
                    hosts=settings.hosts,
                    only_loopback=settings.only_loopback,
                    token=settings.token,
                    read_only=settings.read_only,
                    policy=_policy(),
                )
            ],
            lifespan=lambda _: self._serve.running(),
            exception_handlers={HTTPException: lambda _, error: problem_response(error)},
        )

    def _caller(self, request: Request, name: str) -> Caller:
        key = key_of(name)
        return Caller(key, owner=_OWNER, binding=self._binding(key))

    def _open(self, request: Request) -> AsyncConversation:
        return self._conversation(key_of(request.path_params["name"]))

    def _conversation(self, key: str) -> AsyncConversation:
        binding = self._binding(key)
        return self._chat.conversation(self._store, key, gate="reject", binding=binding, parts=self._parts)

    # ---------------------------------------------------------------------------------------- the page

    async def _index(self, request: Request) -> Response:
        return Response(_file("index.html"), media_type="text/html")

    async def _login(self, request: Request) -> Response:
        found = await self._body(request, "token", limits=_LOGIN)  # from somebody who is not known yet
        given, token = found["token"], self._settings.token
        response = no_content()
        if token is None:
            return response
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), token.encode()):
            raise HTTPException(401)
        is_secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie_of(token), httponly=True, samesite="strict", secure=is_secure)
        return response

    async def _about(self, request: Request) -> Response:
        settings = self._settings
        return json_response(
            {
                "model": settings.model,
                "simulated": settings.is_simulated,
                "read_only": settings.read_only,
                "steers": self._steers,
                "hints": list(settings.hints),
                "body_bytes": self._limits.body_bytes,
            }
        )

    # ------------------------------------------------------------------------------------ conversations

    async def _list(self, request: Request) -> Response:
        if not isinstance(self._store, AsyncListing):
            return json_response({"conversations": [], "cursor": None})
        ask, _ = listing_of(self._store, "", request.query_params.get("cursor"), _ROWS)
        try:
            page = await ask()
        except ValueError:
            raise AskError("the cursor is not one that this server gave") from None
        rows = []
        for row in page.keys:
            facts = row.facts
            nano = facts.cost_nano_dollars if facts else None
            rows.append(
                {
                    "name": name_of(row.key),
                    "key": row.key,
                    "version": str(row.version),
                    "updated_at": row.updated_at.isoformat(),
                    "title": facts.title if facts else "",
                    "status": facts.status if facts else "",
                    "running": self._serve.is_running(row.key),
                    "turns": facts.turns if facts else None,
                    "cost_usd": None if nano is None else nano / 1e9,
                }
            )
        return json_response({"conversations": rows, "cursor": page.cursor})

    async def _view(self, request: Request) -> Response:
        caller = self._caller(request, request.path_params["name"])
        snapshot, status = await self._serve.seen(caller)
        return json_response({"key": caller.key, "turn_status": status, **_shown(snapshot)})

    async def _rewind(self, request: Request) -> Response:
        """Remove a turn and all newer ones. The page names the turn by its number, so a page that is not up
        to date removes the turn that it shows."""
        before = _number((await self._body(request, "before"))["before"], "before")
        conversation = self._open(request)
        numbers = numbers_of_turns(await self._blob(conversation))
        if before not in numbers:
            raise HTTPException(404)
        await _rewound(conversation, sum(one >= before for one in numbers))
        return no_content()

    async def _fork(self, request: Request) -> Response:
        """Copy a conversation: all of it, or up to a turn."""
        after = (await self._body(request, "after"))["after"]
        if after is not None:
            after = _number(after, "after")
        original = self._open(request)
        numbers = numbers_of_turns(await self._blob(original))
        if after is not None and after not in numbers:
            raise HTTPException(404)
        newer = 0 if after is None else sum(one > after for one in numbers)
        key = _key_of_copy(original.key, secrets.token_hex(3))
        copy = await original.fork(key, binding=self._binding(key))
        if newer:
            try:
                await _rewound(copy, newer)
            except AskError:
                await copy.reset()
                raise
        return json_response({"name": name_of(key), "key": key})

    # -------------------------------------------------------------------------------------- inspector

    async def _facts(self, request: Request) -> Response:
        return json_response(facts_of(await self._blob(self._open(request))))

    async def _removed(self, request: Request) -> Response:
        return json_response(removed_of(await self._blob(self._open(request))))

    async def _raw(self, request: Request) -> Response:
        found = raw_of(await self._blob(self._open(request)), _turn_of(request))
        if found is None:
            raise HTTPException(404)
        return json_response(found)

    async def _diff(self, request: Request) -> Response:
        number, since = _turn_of(request), request.query_params.get("since")
        if since is not None and not (_is_number(since) and int(since) < number):
            raise AskError("since must be the number of an earlier turn, or 0")
        blob = await self._blob(self._open(request))
        try:
            found = diff_of(blob, number, None if since is None else int(since))
        except ValueError as error:
            raise AskError("a cut since then has changed what stood there") from error
        if found is None:
            raise HTTPException(404)
        return json_response(found)

    async def _blob(self, conversation: AsyncConversation) -> bytes:
        """The whole state, opened: the functions on states then need no key."""
        blob = await conversation.state()
        if blob is None:
            raise HTTPException(404)
        if inspect_state(blob).suite == "plain":
            return blob
        exported = await conversation.export()
        assert exported is not None
        return import_state(exported["state"])

    async def _body(self, request: Request, *names: str, limits: ServeLimits | None = None) -> dict[str, Any]:
        try:
            found = orjson.loads(await read_body(request, limits or self._limits))
        except orjson.JSONDecodeError:
            raise AskError("the body is not JSON") from None
        if not isinstance(found, dict) or found.keys() != set(names):
            raise AskError(f"the body must be an object with {_and(names)}")
        return found


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)


def _route(method: str, path: str, handler: Handler) -> Route:
    return Route(path, guarded(handler), methods=[method])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS


def _turn_of(request: Request) -> int:
    """The number of a turn in the address. A converter of the route would fail on thousands of digits."""
    number = request.path_params["number"]
    if not _is_number(number):
        raise HTTPException(404)
    return int(number)


def _number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise AskError(f"{name} must be the number of a turn")
    return value


async def _rewound(conversation: AsyncConversation, turns: int) -> None:
    try:
        await conversation.rewind(turns)
    except ValueError as error:
        raise AskError("not so many turns can go: a cut stands before them") from error


def _shown(snapshot: ConversationSnapshot | None) -> dict[str, Any]:
    """Give a conversation as the page shows it. None: it has not begun."""
    if snapshot is None:
        return {"version": None, "title": "", "status": "", "model": "", "pending": [], "messages": []}
    info, pending = snapshot.info, shown_pending(snapshot)
    state = info.state
    return {
        "version": str(info.version),
        "title": info.title,
        "status": state.status,
        "model": state.model,
        "failure": None if state.failure is None else state.failure[0],
        "pending": pending_of(pending),
        "messages": PLAIN_JSON.history(
            snapshot.history, conversation_id=state.conversation_id, pending=pending
        ),
    }


_PLAIN: Final = re.compile(r"[A-Za-z0-9._@:+-]{1,128}")
_SIGN: Final = "~"
_MOST: Final = 128


def name_of(key: str) -> str | None:
    """Spell a key as a name. None for a key that is too long: no address leads to it.

    A key of letters, digits and ``. _ @ : + -`` is its own name. Any other is ``~`` and its UTF-8 in base64.
    """
    if _PLAIN.fullmatch(key) and key.strip("."):
        return key
    name = _SIGN + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    return name if len(name) <= _MOST else None


def key_of(name: str) -> str:
    """Give the key of a name. Raises `AskError` for a name that `name_of` does not write."""
    key = _decoded(name[1:]) if name.startswith(_SIGN) else name
    if not key or "\0" in key or name_of(key) != name:
        raise AskError("this is not the name of a conversation")
    return key


def _decoded(coded: str) -> str:
    try:
        return base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):  # also for text that is not ASCII
        return ""


def _key_of_copy(key: str, mark: str) -> str:
    """Give a key for a copy: the key, or as much of it as an address has room for, and a mark behind it."""
    while name_of(copy := f"{key}-{mark}") is None:
        key = key[:-1]
    return copy
