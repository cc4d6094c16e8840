"""A conversation line by line: for pipes, and for terminals without the app.

Owns: input and output. Must never know: the meaning of a line, or how a turn runs.

Replies go to standard output, everything else to standard error. So a pipe gets only the replies.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .conversions import write_new
from .session import CONVERSATION, Session
from .session_steps import (
    CallMethod,
    Choose,
    Clear,
    Confirm,
    Flow,
    Keys,
    Open,
    Quit,
    RunTurn,
    Say,
    ShowChanged,
    ShowWaiting,
    Step,
    Write,
    drive,
)
from .summary_lines import call_line, key_lines, reply_line, result_line, waiting_lines
from .text_output import printable

if TYPE_CHECKING:
    from .. import Chat, ChatResult, Event
    from ..stores import Store, StoredKey
    from .chat_options import Opening

__all__ = ["LineChat", "run_lines", "typed_lines"]

SAVE_TIMEOUT: Final = 1.0
"""Seconds for which a failed save is retried before the user is told. The user waits meanwhile."""

_CLEAR: Final = "\x1b[2J\x1b[H"


def run_lines(opening: Opening, *, hint: str = "") -> int:
    """Talk until the input ends. The exit code is 1 if the last turn failed."""
    with opening.store() as store, opening.chat() as chat:
        _welcome(opening, hint)
        talk = LineChat(
            chat,
            store,
            opening.key,
            codec=opening.codec,
            check=lambda key, blob: opening.check(chat, key, blob),
        )
        return talk.run(typed_lines())


def _welcome(opening: Opening, hint: str) -> None:
    _note(f"{opening.model}, conversation {opening.key!r}, {opening.where}")
    if opening.model.partition(":")[0] == "sim":
        _note("Replies are simulated: no language model is asked, and nothing leaves this machine.")
    if hint:
        _note(hint)
    _note("/help lists the commands.")


def typed_lines() -> Iterator[str]:
    """The lines of the terminal or a pipe. On a terminal Ctrl-C clears the line and Ctrl-D ends the input.

    Lines that are pasted into a terminal are one text, where Python has GNU readline.
    """
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    with contextlib.suppress(ImportError):
        import readline  # its import gives input() a history and an editor

        if "libedit" not in (readline.__doc__ or ""):
            readline.parse_and_bind("set enable-bracketed-paste on")
    while True:
        try:
            line = input("you> ")
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
        else:
            yield line


class LineChat:
    """Answers lines in a conversation of a store. It does not wait for a turn of another program."""

    def __init__(
        self,
        chat: Chat,
        store: Store,
        key: str,
        *,
        codec: Mapping[str, Any] | None = None,
        check: Callable[[str, bytes], None] = lambda key, blob: None,
    ) -> None:
        self._chat, self._store, self._check = chat, store, check
        self._session = Session(key, codec)
        self._conversation = self._opened(key)
        self._lines: Iterator[str] = iter(())
        self._is_over = False

    def run(self, lines: Iterable[str]) -> int:
        """Answer every line. The exit code says whether the last turn succeeded and was saved."""
        self._lines = iter(lines)
        self._drive(self._session.begin())
        for line in self._lines:
            self._drive(self._session.answer(line))
            if self._is_over:
                break
        self._drive(self._session.end())
        return 1 if self._session.failed else 0

    def _drive(self, flow: Flow[Any]) -> None:
        drive(flow, self._do)

    def _do(self, step: Step) -> Any:
        match step:
            case Say(text, kind):
                (_report if kind == "report" else _note)(text)
            case ShowWaiting(calls):
                _note("\n".join(waiting_lines(calls)))
            case CallMethod(method, arguments):
                return getattr(self._conversation, method)(*arguments)
            case RunTurn():
                return self._turn(step)
            case Confirm(question):
                _note(f"{question} Type yes:")
                return next(self._lines, "").strip().lower() in ("yes", "y")
            case Keys():
                return self._keys()
            case Choose(found, at_hand):
                _report("\n".join(key_lines(found, at_hand)) or "There is no conversation yet.")
            case Open(key):
                self._conversation = self._opened(key)
            case Write(path, data):
                write_new(path, data)
            case Clear():
                if sys.stdout.isatty():
                    print(_CLEAR, end="", flush=True)
            case Quit():
                self._is_over = True
            case ShowChanged():
                pass
        return None

    def _opened(self, key: str) -> Any:
        stored = self._store.load(key)
        if stored is not None:
            self._check(key, stored.blob)
        return self._chat.conversation(
            self._store, key, gate="reject", save_timeout=SAVE_TIMEOUT, **CONVERSATION
        )

    def _keys(self) -> list[StoredKey]:
        found: list[StoredKey] = []
        cursor: str | None = None
        while True:
            page = self._store.list(cursor=cursor)  # type: ignore[attr-defined]
            found += page.keys
            if (cursor := page.cursor) is None:
                return found

    def _turn(self, step: RunTurn) -> ChatResult | None:
        """Run a turn, and show the reply as it comes. Ctrl-C ends it."""
        if step.said is None:
            turn = self._conversation.start_resume(step.answers)
        else:
            turn = self._conversation.start(step.said)
        shown, began = _Shown(), time.monotonic()
        try:
            with turn as running:
                for event in running:
                    shown.show(event)
                result: ChatResult = running.result()
        except KeyboardInterrupt:
            shown.end(is_open=True)
            return None
        except BaseException:
            shown.end()
            raise
        shown.end(is_open=result.status != "awaiting_tools")
        if sys.stdout.isatty():
            _note(reply_line(result, time.monotonic() - began))
        return result


class _Shown:
    """The output of a turn so far: pieces of text, and notes between them."""

    def __init__(self) -> None:
        self._is_in_line = False
        self._any = False

    def show(self, event: Event) -> None:
        from ..types.events import TextDelta, ToolFinished, ToolStarted

        if isinstance(event, TextDelta):
            self._is_in_line = self._any = True
            print(printable(event.text), end="", flush=True)
        elif isinstance(event, (ToolStarted, ToolFinished)):
            self._break()
            _note(call_line(event) if isinstance(event, ToolStarted) else result_line(event))

    def end(self, *, is_open: bool = False) -> None:
        """End the line. `is_open`: end a line without text, too."""
        if is_open and not self._any:
            self._is_in_line = True
        self._break()

    def _break(self) -> None:
        if self._is_in_line:
            self._is_in_line = False
            print(flush=True)


def _report(text: str) -> None:
    print(printable(text), flush=True)


def _note(text: str) -> None:
    sys.stdout.flush()
    print(printable(text), file=sys.stderr, flush=True)
