"""What the options of `goaitools chat` open: a model, tools, a store and a conversation in it.

Owns: which options go together, and why a stored conversation cannot go on. Must never know: how it is talked
in.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .sealed import opened_with, refusal
from .terminal import printable

if TYPE_CHECKING:
    from .. import AsyncChat, Chat
    from ..stores import AsyncSQLiteStore, SQLiteStore
    from .session_file import AsyncFolderStore, FolderStore

__all__ = ["Opening", "opening_of"]


class Opening:
    """What was opened.

    Attributes:
        model: The text that named the model.
        key: The key of the conversation to begin with.
        codec: The `codec` and `binding` of its state; {} for a plain one.
    """

    def __init__(self, args: argparse.Namespace, tools: list[Any]) -> None:
        self._args, self._tools = args, tools
        self.model: str = args.model
        self._session = Path(args.session) if args.session else None
        self.key: str = self._session.stem if self._session else args.thread or "default"
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

    def store(self) -> SQLiteStore | FolderStore:
        """The store, for plain code."""
        if self._session:
            from .session_file import FolderStore

            return FolderStore(self._session.absolute().parent, self._session.suffix)
        from ..stores import SQLiteStore

        return SQLiteStore(self._args.store or ":memory:")

    def async_store(self) -> AsyncSQLiteStore | AsyncFolderStore:
        """The same store for an event loop."""
        if self._session:
            from .session_file import AsyncFolderStore

            return AsyncFolderStore(self._session.absolute().parent, self._session.suffix)
        from ..stores import AsyncSQLiteStore

        return AsyncSQLiteStore(self._args.store or ":memory:")

    @property
    def where(self) -> str:
        """Where the conversations are kept, for people."""
        if self._session:
            return f"kept in {printable(str(self._session.parent))}"
        if self._args.store:
            return f"kept in {printable(self._args.store)}"
        return "not kept (--store FILE keeps it)"

    def place(self, key: str) -> str:
        """The name of a conversation, for errors."""
        return f"conversation {key!r} in {self._session or self._args.store or 'memory'}"

    # -------------------------------------------------------------------------------------- the checks

    def check(self, chat: Any, key: str, blob: bytes | None) -> None:
        """Refuse a state that this chat cannot read, before the first line. Raises GoAIToolsError."""
        from ..errors import GoAIToolsError, StateAuthError, StateProviderError

        try:
            chat.append_to_state(blob)
        except StateAuthError as error:
            raise StateAuthError(f"{self.place(key)}: {refusal(self._args, error)}") from error
        except StateProviderError as error:
            raise GoAIToolsError(
                f"{self.place(key)}: this conversation belongs to the provider API {error.found!r}, and "
                f"--model {self.model} uses {error.expected!r}; go on with --model {error.found}:MODEL, or "
                "begin another conversation with --thread NAME"
            ) from error

    def _codec(self) -> dict[str, Any]:
        """The `codec` and `binding` of the conversation. Its header names the codec, so it must exist."""
        if self._args.key_env is not None and not self._blob:
            from ..errors import StoreError

            raise StoreError(
                f"--key-env opens a sealed conversation, and there is no {self.place(self.key)}; "
                "let its application begin it"
            )
        return opened_with(self._args, self._blob or b"", key=self.key)

    def _checked(self, kind: Any, backend: Any) -> Any:
        from ..prices import genai_price

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


def opening_of(args: argparse.Namespace) -> Opening:
    """Read the options. Wrong usage ends the command; GoAIToolsError if the conversation cannot be opened."""
    if not args.model:
        args.error(
            "no model: give --model openai:MODEL, openai-responses:MODEL or anthropic:MODEL, "
            "or set GOAITOOLS_MODEL; --model sim talks to the offline simulator"
        )
    if args.session and (args.store or args.thread):
        args.error("--session FILE is one conversation in a file: it goes without --store and --thread")
    if not args.session:
        args.store = args.store or os.environ.get("GOAITOOLS_STORE") or None
    from ..backends.by_name import backend_from_name
    from .toolbox import tools_named

    try:
        backend_from_name(args.model, is_async=False)
        tools = tools_named(args.tools)
        return Opening(args, tools)
    except ValueError as error:
        args.error(str(error))
        raise
