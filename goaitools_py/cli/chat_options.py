"""Opens the objects that options name: a model, a store, a conversation, and a user's tools.

Owns: which options go together, why a stored conversation cannot go on, and the objects that `module:name`
and `--mcp` name. Must never know: how a conversation is led, or the effect of a tool.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .codec_options import opened_with, refusal
from .store_urls import TABLE, has_store, opened_store, shown_url, sqlite_path
from .text_output import printable

if TYPE_CHECKING:
    from .. import AsyncChat, Chat
    from ..stores import AsyncStore

__all__ = ["Opening", "object_named", "opening_of", "tools_named", "tools_of_servers"]

_MEMORY: Final = ":memory:"


class Opening:
    """The opened objects.

    Attributes:
        model: The text that named the model.
        key: The key of the conversation to begin with.
        codec: The `codec` and `binding` of its state; {} for a plain one.
    """

    def __init__(self, args: argparse.Namespace, tools: list[Any]) -> None:
        self._args, self._tools = args, tools
        self.model: str = args.model
        self._session = Path(args.session) if args.session else None
        self.key: str = self._session.stem if self._session else args.key or "default"
        with self.store() as store:
            stored = store.load(self.key)
        self._blob = stored.blob if stored else None
        self.codec: Mapping[str, Any] = self._codec()

    # --------------------------------------------------------------------------------------- the parts

    def chat(self) -> Chat:
        """A chat for plain code. Wrong usage ends the command."""
        from .. import Chat
        from ..backends.by_name import backend_from_name

        chat: Chat = self._checked(Chat, lambda: backend_from_name(self.model, is_async=False))
        return chat

    def async_chat(self) -> AsyncChat:
        """The same for an event loop."""
        from .. import AsyncChat
        from ..backends.by_name import backend_from_name

        chat: AsyncChat = self._checked(AsyncChat, lambda: backend_from_name(self.model, is_async=True))
        return chat

    @contextmanager
    def store(self) -> Iterator[Any]:
        """The store, open as long as the block runs, for plain code."""
        if self._session:
            from .chat_stores import FolderStore

            yield FolderStore(self._session.absolute().parent, self._session.suffix)
            return
        with opened_store(self._args.store or _MEMORY, self._args.table, make=True) as store:
            yield store

    @asynccontextmanager
    async def async_store(self) -> AsyncIterator[AsyncStore]:
        """The same store for an event loop."""
        path = None if self._session else sqlite_path(self._args.store or _MEMORY)
        if path is not None and self._args.table in (None, TABLE):
            from ..stores import AsyncSQLiteStore

            async with AsyncSQLiteStore(path) as sqlite:
                yield sqlite
            return
        from .chat_stores import FullThreadedStore, ThreadedStore

        with self.store() as store:
            yield ThreadedStore(store) if self._session else FullThreadedStore(store)

    @property
    def where(self) -> str:
        """Where the conversations are kept, for people."""
        if self._session:
            return f"kept in {printable(str(self._session.parent))}"
        if self._args.store:
            return f"kept in {printable(shown_url(self._args.store))}"
        return "not kept (--store FILE keeps it)"

    def place(self, key: str) -> str:
        """The name of a conversation, for errors."""
        store = shown_url(self._args.store) if self._args.store else "memory"
        return f"conversation {key!r} in {self._session or store}"

    # -------------------------------------------------------------------------------------- the checks

    def check(self, chat: Any, key: str, blob: bytes | None) -> None:
        """Refuse a state that this chat cannot read, before the first line. Raises GoAIToolsError."""
        from ..types.errors import GoAIToolsError, StateAuthError, StatePartMissingError, StateProviderError

        try:
            chat.append_to_state(blob)
        except StatePartMissingError:
            pass  # the last check of a head: the conversation loads its parts
        except StateAuthError as error:
            raise StateAuthError(f"{self.place(key)}: {refusal(self._args, error)}") from error
        except StateProviderError as error:
            raise GoAIToolsError(
                f"{self.place(key)}: this conversation belongs to the provider API {error.found!r}, and "
                f"--model {self.model} uses {error.expected!r}; go on with --model {error.found}:MODEL, or "
                "begin another conversation with --key KEY"
            ) from error

    def _codec(self) -> dict[str, Any]:
        """The `codec` and `binding` of the conversation. Its header names the codec, so it must exist."""
        if self._args.key_env is not None and not self._blob:
            from ..types.errors import StoreError

            raise StoreError(
                f"--key-env opens a sealed conversation, and there is no {self.place(self.key)}; "
                "let its application begin it"
            )
        return opened_with(self._args, self._blob or b"", key=self.key)

    def _checked(self, kind: Any, backend: Any) -> Any:
        from ..types.usage import genai_price

        try:
            chat = kind(
                backend(),
                system=self._args.system,
                tools=self._tools,
                prices=genai_price,
                on_bad_state="raise",
                **self.codec,
            )
        except (TypeError, ValueError) as error:
            self._args.error(str(error))
        self.check(chat, self.key, self._blob)
        return chat


def opening_of(args: argparse.Namespace, more: Sequence[Any] = ()) -> Opening:
    """Read the options. Wrong usage ends the command; GoAIToolsError if the conversation cannot be opened.

    `more`: further tools.
    """
    if not args.model:
        args.error(
            "no model: give --model openai:MODEL, openai-responses:MODEL or anthropic:MODEL, "
            "or set GOAITOOLS_MODEL; --model sim talks to the offline simulator"
        )
    if args.session and (args.store or args.key or args.table):
        args.error("--session FILE is one conversation in a file: it goes without --store and --key")
    if not args.session and not has_store(args) and args.table:
        args.error("--table names a table of a store: name the --store URL too")
    from ..backends.by_name import backend_from_name

    try:
        backend_from_name(args.model, is_async=False)
        tools = [*tools_named(args.tools), *more]
        return Opening(args, tools)
    except ValueError as error:
        args.error(str(error))
        raise


def tools_named(named: Sequence[str]) -> list[Any]:
    """The tools behind texts such as "game:tools": a tool, a function, or a list of these.

    A module is looked for in the current folder first. Raises ValueError that describes a mistake in the
    text. An exception inside the module passes, because its traceback helps its author.
    """
    return [tool for text in named for tool in _tools(text)]


@contextmanager
def tools_of_servers(servers: Sequence[str]) -> Iterator[list[Any]]:
    """The tools of MCP servers, connected as long as the block runs. A text is a URL, or a command.

    Raises GoAIToolsError for a server that cannot be reached, or without the extra.
    """
    if not servers:
        yield []
        return
    from ..types.errors import GoAIToolsError

    try:
        from mcp import StdioServerParameters
    except ImportError:
        raise GoAIToolsError("--mcp needs the extra: pip install 'goaitools-py[mcp]'") from None
    from ..mcp import MCPTools

    with ExitStack() as opened:
        tools: list[Any] = []
        for server in servers:
            place: Any = server
            if not server.startswith(("http://", "https://")):
                try:
                    command, *rest = shlex.split(server) or [server]
                except ValueError as error:
                    raise GoAIToolsError(f"--mcp {server}: this is no command: {error}") from None
                place = StdioServerParameters(command=command, args=rest)
            tools += opened.enter_context(MCPTools(place))
        yield tools


def _tools(text: str) -> list[Any]:
    found = object_named(text, f"--tools {text}")
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]


def object_named(text: str, label: str) -> Any:
    """The object behind a text such as "game:chat"; as `tools_named`. `label`: how an error calls it."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    module_name, colon, name = text.partition(":")
    if not module_name or not colon or not name:
        option = label.partition(" ")[0]
        raise ValueError(f"{option} is MODULE:NAME, such as game:tools, not {text!r}")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{label}: there is no module {error.name!r}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{label}: the module {module_name!r} has no {name!r}")
        found = getattr(found, part)
    return found
