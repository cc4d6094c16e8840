"""A server on the loopback that notes each request as it came, and random configurations of clients.

Owns: what arrived, the answers in turn, the configurations by seed. Must never know: what a test compares.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Answer", "Arrived", "Configuration", "Post", "Wire", "configuration", "wire"]


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request as it came: `at` is "server", or "proxy" if it came to the proxy."""

    at: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says to one request."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b'{"ok":true}'
    is_chunked: bool = False
    is_cut: bool = False
    """True if the connection ends before the answer does."""

    def bytes(self) -> bytes:
        named = [*self.headers, ("Content-Type", "application/json")]
        if self.is_chunked:
            named.append(("Transfer-Encoding", "chunked"))
            pieces = [self.body[at : at + 7] for at in range(0, len(self.body), 7)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            named.append(("Content-Length", str(len(self.body) + 9 * self.is_cut)))
            body = self.body
        lines = "".join(f"{name}: {value}\r\n" for name, value in named)
        return f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode() + body


class Wire:
    """A server and a proxy. Both note what comes, and answer from one list."""

    def __init__(self) -> None:
        self.arrived: list[Arrived] = []
        self.answers: list[Answer] = []
        self.port = self.proxy_port = self.other_port = 0

    def starts(self, answers: list[Answer]) -> None:
        """Forget what came, and give these answers from now on; after them ``{"ok":true}``."""
        self.arrived, self.answers = [], list(answers)

    def _handler(self, at: str) -> type[socketserver.StreamRequestHandler]:
        world = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    while world._one(at, self.rfile, self.wfile):
                        pass

        return Handler

    def _one(self, at: str, given: Any, out: Any) -> bool:
        line = given.readline().decode("latin-1").split()
        if len(line) != 3:
            return False
        headers = []
        while (text := given.readline().decode("latin-1").rstrip("\r\n")) != "":
            name, _, value = text.partition(":")
            headers.append((name, value.strip()))
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        body = given.read(length)
        self.arrived.append(Arrived(at, line[0], line[1], tuple(headers), body))
        answer = self.answers.pop(0) if self.answers else Answer()
        out.write(answer.bytes())
        out.flush()
        return not answer.is_cut


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


@contextlib.contextmanager
def wire() -> Iterator[Wire]:
    """The server, its proxy, and a server of another origin."""
    world = Wire()
    with contextlib.ExitStack() as open_:
        for name, at in (("port", "server"), ("proxy_port", "proxy"), ("other_port", "other")):
            server = open_.enter_context(_Server(("127.0.0.1", 0), world._handler(at)))
            setattr(world, name, server.server_address[1])
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            open_.callback(server.shutdown)
        yield world


# --------------------------------------------------------------------------------- what varies by seed


@dataclass(frozen=True, slots=True)
class Post:
    """One post: its bytes, what it asks for, and how things change before it.

    `change` is a word for what the owner of the client does first; `test_lane.py` knows how.
    """

    body: bytes = field(repr=False)
    headers: tuple[tuple[str, str], ...]
    is_streamed: bool
    timeout: float | None
    change: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a client is set up, and what is posted with it."""

    seed: int
    api: str
    is_async: bool
    kind: str
    """Who made the clients: "own", "http_client", "classic", "client", "aiohttp" (an `http_client` over it),
    or "http" (the backend, by ``http="aiohttp"``)."""
    way: str
    """"direct", "proxy" (the client's own), or "environment" (a proxy that the environment names)."""
    path: str
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the SDK's client."""
    http_options: dict[str, Any] = field(default_factory=dict)
    """Options of the HTTP client, except hooks and authentication."""
    hooks: tuple[str, ...] = ()
    auth: str = ""
    has_turning_key: bool = False
    """True if a function gives the key, another one each time."""
    posts: tuple[Post, ...] = field(default=(), repr=False)


_APIS: Final = ("openai", "openai-responses", "anthropic")
_CHANGES: Final = ("", "", "", "", "http header", "params", "cookie", "no cookies", "default header", "hook")


def configuration(seed: int, *, over_aiohttp: bool = False) -> Configuration:
    """The configuration of a seed. `over_aiohttp`: one of the kinds "aiohttp" and "http"."""
    dice = random.Random(seed)
    is_async = dice.random() < 0.5
    kind = dice.choice(["own", "own", "http_client", "http_client", "http_client", "classic", "client"])
    if is_async and dice.random() < 0.15:
        kind = "aiohttp"
    if over_aiohttp:
        is_async, kind = True, dice.choice(["aiohttp", "http"])
    api = dice.choice(_APIS)
    has_http = kind in ("http_client", "classic", "aiohttp")
    hooks = tuple(word for word in ("request", "response", "counting") if dice.random() < 0.25)
    options = _options(dice, api)
    has_turning_key = api != "anthropic" and dice.random() < 0.15
    may_redirect = not (has_http or has_turning_key or "default_query" in options)
    return Configuration(
        seed=seed,
        api=api,
        is_async=is_async,
        kind=kind,
        way=dice.choice(["direct", "direct", "direct", "environment", "proxy" if has_http else "direct"]),
        path=dice.choice(["", "/v1", "/v1/", "/deep/er", "/a%20b/v1"]),
        options=options,
        http_options=_http_options(dice) if has_http else {},
        hooks=hooks if has_http else (),
        auth=dice.choice(["", "", "basic", "signing"]) if has_http else "",
        has_turning_key=has_turning_key,
        posts=tuple(_post(dice, may_redirect) for _ in range(dice.randint(3, 6))),
    )


def _options(dice: random.Random, api: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if dice.random() < 0.3:
        names = dice.sample(["X-Tenant", "user-agent", "Accept-Language", "X-Stainless-OS"], 2)
        given["default_headers"] = {name: dice.choice(["a", "b c", "5.0"]) for name in names}
    if dice.random() < 0.2:
        given["default_query"] = {"q": dice.choice(["1", "a b"]), "list": ["x", "y"]}
    if dice.random() < 0.3:
        given["timeout"] = dice.choice([7.0, 30, ("timeout", 9.0, 2.0)])
    if api == "anthropic" and dice.random() < 0.25:
        given["auth_token"] = "token-1"
    if api != "anthropic" and dice.random() < 0.3:
        given["organization"] = "org-1"
    if api != "anthropic" and dice.random() < 0.3:
        given["project"] = "project-1"
    return given


def _http_options(dice: random.Random) -> dict[str, Any]:
    given: dict[str, Any] = {"follow_redirects": dice.random() < 0.5}
    if dice.random() < 0.4:
        given["headers"] = {dice.choice(["X-Standing", "User-Agent", "Accept"]): "mine"}
    if dice.random() < 0.2:
        given["params"] = {"page": "2"}
    if dice.random() < 0.3:
        given["cookies"] = {"own": "1"}
    if dice.random() < 0.3:
        given["timeout"] = dice.choice([8.0, 20.0])
    return given


def _post(dice: random.Random, may_redirect: bool) -> Post:
    headers = {}
    if dice.random() < 0.2:
        headers["x-own"] = dice.choice(["1", "2", "5.0"])
    return Post(
        body=b'{"n":"%s"}' % (b"x" * dice.choice([0, 1, 40, 70_000])),
        headers=tuple(headers.items()),
        is_streamed=dice.random() < 0.3,
        timeout=dice.choice([None, 5.0, 5.0, 5.0, 4.25, 60.5]),
        change=dice.choice(_CHANGES),
        answers=_answers(dice, may_redirect),
    )


def _answers(dice: random.Random, may_redirect: bool) -> tuple[Answer, ...]:
    lot = dice.random()
    if lot < 0.06 and may_redirect:
        return (Answer(dice.choice([307, 308]), (("Location", "/moved?to=here"),), b"gone"), Answer())
    if lot < 0.1 and may_redirect:
        return (Answer(dice.choice([302, 303]), (("Location", "seen"),), b""), Answer())
    if lot < 0.22:
        return (
            Answer(dice.choice([400, 401, 404, 429, 500, 529]), (("x-request-id", "r1"),), b'{"error":{}}'),
        )
    if lot < 0.26:
        return (Answer(dice.choice([200, 500]), is_cut=True),)
    headers: tuple[tuple[str, str], ...] = ()
    if dice.random() < 0.3:
        headers += (("Set-Cookie", f"seen={dice.randint(1, 9)}; Path=/"),)
    if dice.random() < 0.2:
        packed = gzip.compress(b'{"packed":true}', mtime=0)
        return (Answer(headers=(*headers, ("Content-Encoding", "gzip")), body=packed),)
    return (Answer(headers=headers, is_chunked=dice.random() < 0.3),)
