"""`goaitools serve`: a page in the browser for the conversations of a store.

Owns: the command's options, and which of them go together. Must never know: the contents of the page.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from .codec_options import add_options, add_seal, check_options, sealed_anew
from .store_urls import add_store

if TYPE_CHECKING:
    from .. import AsyncChat
    from ..serve.page.page_app import PageSettings

__all__ = ["add_to"]

_LEAST_TOKEN: Final = 16
_LOOPBACK: Final = "127.0.0.1"
_GRACE_SECONDS: Final = 5
_HTTPS: Final = (
    "a browser sends the token and all texts in plain; put TLS before it on a network you do not own"
)


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        description="Serve a page for your browser until Ctrl-C: talk, approve calls, and look into the "
        "state of each conversation of a store. It needs pip install 'goaitools-py[serve]' uvicorn.",
    )
    parser.add_argument(
        "app", nargs="?", metavar="MODULE:NAME", help="an AsyncChat of a Python module, such as app:chat"
    )
    parser.add_argument(
        "--model",
        metavar="API:MODEL",
        default=None,
        help="a chat with this model instead, as for goaitools chat (default: $GOAITOOLS_MODEL)",
    )
    parser.add_argument("--demo", action="store_true", help="a game on the offline simulator instead; no key")
    parser.add_argument("--system", metavar="TEXT", help="with --model: instructions for the model")
    parser.add_argument(
        "--tools",
        metavar="MODULE:NAME",
        action="append",
        default=[],
        help="with --model: a tool, or a list of tools, of a Python module; may be given again",
    )
    add_store(
        parser, what="show this store's conversations", otherwise="$GOAITOOLS_STORE, else they are not kept"
    )
    parser.add_argument(
        "--parts",
        choices=("store", "inline"),
        help="where parts of a conversation stand: beside its row, in the store's table of parts, or in the "
        "row (default: store)",
    )
    parser.add_argument("--port", type=_port, default=8765, help="port; 0 is a free one (default: 8765)")
    parser.add_argument(
        "--host", default=_LOOPBACK, help="address to listen on (default: 127.0.0.1, this machine alone)"
    )
    parser.add_argument(
        "--auth-env",
        metavar="NAME",
        help="environment variable with a token that a browser must show; needed beyond the loopback",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name under which browsers reach the server, such as chat.example.org; may be given again",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the address and its facts as one line of JSON"
    )
    parser.add_argument("--read-only", action="store_true", help="only show conversations; ask no model")
    add_options(parser)
    add_seal(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C. Wrong usage ends the command; OSError if a package is missing or a port taken."""
    opened = _chat_of(args)
    token = _token(args)
    for name, package in (("starlette", "'goaitools-py[serve]'"), ("uvicorn", "uvicorn")):
        if find_spec(name) is None:
            raise OSError(f"goaitools serve needs {name}: pip install {package}")
    from ..serve.guard import is_loopback
    from ..serve.page.page_app import PageSettings

    only_loopback = is_loopback(args.host)
    if not only_loopback and token is None:
        args.error(
            f"--host {args.host} lets others reach the page: give it a token with --auth-env NAME, "
            "or leave --host out"
        )
    if args.store is None and not args.demo:
        args.store = os.environ.get("GOAITOOLS_STORE") or None
    settings = PageSettings(
        model=opened.label,
        is_simulated=opened.is_simulated,
        read_only=args.read_only,
        token=token,
        hosts=_hosts(args),
        only_loopback=only_loopback and not args.allow_host,
        hints=opened.hints,
    )
    with _listening(args.host, args.port) as listener, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(args, opened, settings, listener))
    return 0


class _Opened:
    """The opened options: how a chat is made, and the page's words about it."""

    def __init__(
        self,
        made: Callable[[AsyncExitStack], Any],
        label: str,
        *,
        is_simulated: bool = False,
        hints: tuple[str, ...] = (),
        binding: Callable[[str], Any] = lambda key: None,
    ) -> None:
        self.made, self.label, self.is_simulated = made, label, is_simulated
        self.hints, self.binding = hints, binding


def _chat_of(args: argparse.Namespace) -> _Opened:
    if (args.app is not None) + (args.model is not None) + args.demo > 1:
        args.error("name one of MODULE:NAME, --model and --demo")
    if args.app is None and not args.demo:
        args.model = args.model or os.environ.get("GOAITOOLS_MODEL")
        if not args.model:
            args.error(
                "name a chat: MODULE:NAME, or --model openai:MODEL, openai-responses:MODEL, "
                "anthropic:MODEL or sim; --demo is a game on the offline simulator"
            )
    if args.model is None:
        for name in ("system", "tools", "key_env", "binding", "seal"):
            if getattr(args, name):
                args.error(f"--{name.replace('_', '-')} goes with --model: another chat has its own")
    check_options(args)
    try:
        if args.demo:
            from .demo_game import HINTS, demo_chat

            return _Opened(demo_chat, "simulator", is_simulated=True, hints=HINTS)
        return _of_app(args) if args.app is not None else _of_model(args)
    except ValueError as error:
        args.error(str(error))
        raise


def _of_app(args: argparse.Namespace) -> _Opened:
    from .. import AsyncChat, Chat
    from .chat_options import object_named

    found = object_named(args.app, args.app)
    if isinstance(found, Chat):
        raise ValueError(
            f"{args.app} is a Chat; the server needs an AsyncChat, which takes the same arguments"
        )
    if not isinstance(found, AsyncChat):
        raise ValueError(f"{args.app} is no AsyncChat, but {type(found).__name__}")
    return _Opened(lambda _: found, args.app)


def _of_model(args: argparse.Namespace) -> _Opened:
    from .. import AsyncChat
    from ..types.usage import genai_price
    from .chat_options import tools_named

    try:
        chat = AsyncChat(
            args.model,
            system=args.system,
            tools=tools_named(args.tools),
            prices=genai_price,
            on_bad_state="raise",
            **({"codec": sealed["codec"]} if (sealed := sealed_anew(args)) else {}),
        )
    except TypeError as error:
        raise ValueError(str(error)) from error

    def made(stack: AsyncExitStack) -> AsyncChat:
        stack.push_async_callback(chat.aclose)
        return chat

    return _Opened(
        made,
        args.model,
        is_simulated=args.model.partition(":")[0] == "sim",
        binding=lambda key: sealed_anew(args, key=key).get("binding"),
    )


def _hosts(args: argparse.Namespace) -> tuple[str, ...]:
    from ..serve.guard import is_host

    for host in args.allow_host:
        if not is_host(host):
            args.error("--allow-host takes a name without scheme, port and path, such as chat.example.org")
    return tuple(args.allow_host)


def _token(args: argparse.Namespace) -> str | None:
    if args.auth_env is None:
        return None
    token = os.environ.get(args.auth_env, "")
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or token != token.strip():
        args.error(
            f"--auth-env: {args.auth_env} must hold a token of at least {_LEAST_TOKEN} characters, all "
            "ASCII, without a line break or a space at an end, such as openssl rand -hex 24 prints"
        )
    return token


@contextlib.contextmanager
def _listening(host: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=512)
    except OSError as error:
        raise OSError(
            f"cannot listen on {host}, port {port}: {error.strerror}; choose another --port"
        ) from error
    with listener:
        yield listener


async def _serve(
    args: argparse.Namespace, opened: _Opened, settings: PageSettings, listener: socket.socket
) -> None:
    import uvicorn

    from ..serve.page.page_app import page_app

    async with AsyncExitStack() as stack:
        chat = opened.made(stack)
        store = await stack.enter_async_context(_store(args))
        await store.list("", limit=1)  # report a store that does not answer now, in one line
        app = page_app(chat, store, settings, binding=opened.binding, parts=args.parts)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        _announce(args, opened, settings, listener.getsockname()[1])
        await uvicorn.Server(config).serve(sockets=[listener])


@asynccontextmanager
async def _store(args: argparse.Namespace) -> AsyncIterator[Any]:
    if args.store is None:
        from ..stores import AsyncMemoryStore

        yield AsyncMemoryStore()
        return
    from .store_urls import opened_async_store

    async with opened_async_store(args.store, args.table) as store:
        yield store


def _announce(args: argparse.Namespace, opened: _Opened, settings: PageSettings, port: int) -> None:
    from .store_urls import shown_url

    stored = shown_url(args.store) if args.store else None
    host = f"[{args.host}]" if ":" in args.host and not args.host.startswith("[") else args.host
    url = f"http://{host}:{port}/"
    if args.json:
        facts = {
            "url": url,
            "model": opened.label,
            "simulated": opened.is_simulated,
            "store": stored,
            "read_only": settings.read_only,
            "token_env": args.auth_env,
        }
        print(json.dumps(facts), flush=True)
        return
    print(f"goaitools serve: {url}  (Ctrl-C ends it)")
    if opened.is_simulated:
        print("The simulator answers. It is not a language model; its replies begin with [simulated].")
    else:
        print(f"model: {opened.label}")
    print(f"conversations: {stored or 'in memory; --store FILE keeps them'}")
    if settings.read_only:
        print("The page only shows conversations; no model is asked.")
    if settings.token is not None:
        print(f"A browser must show the token in {args.auth_env}.")
    if not settings.only_loopback:
        print(f"Without TLS {_HTTPS}.")
    print(end="", flush=True)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"a port is between 0 and 65535, not {text!r}")
    return int(text)
