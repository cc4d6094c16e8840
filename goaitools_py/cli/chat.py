"""`goaitools chat`: one conversation, line by line, kept in a SQLite file.

Owns: what is read, what is printed, when it is saved. Must never know: how a turn runs.

Replies go to standard output, all else to standard error, so that a pipe gets the replies only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .terminal import counted, printable

if TYPE_CHECKING:
    from .. import Chat, ChatResult, Deny, PendingCall, Turn, TurnError
    from .thread import Thread

__all__ = ["Conversation", "add_to", "typed_lines"]

COMMANDS = "/info  /history  /event TEXT  /resume  /deny WHY  /quit"


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        help="talk with a model, line by line",
        description=f"Talk with a model, line by line. Commands: {COMMANDS}",
    )
    parser.add_argument(
        "--model",
        metavar="WIRE:MODEL",
        default=os.environ.get("GOAITOOLS_MODEL"),
        help="openai:MODEL, openai-responses:MODEL or anthropic:MODEL; or sim, sim:WIRE for the offline "
        "simulator (default: $GOAITOOLS_MODEL)",
    )
    parser.add_argument(
        "--store",
        metavar="FILE",
        default=os.environ.get("GOAITOOLS_STORE"),
        help="SQLite file that keeps the conversation (default: $GOAITOOLS_STORE, else it is not kept)",
    )
    parser.add_argument(
        "--thread", metavar="NAME", default="default", help="its key there (default: %(default)s)"
    )
    parser.add_argument("--system", metavar="TEXT", help="instructions for the model, never stored")
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. 1 if the last turn failed and was not made good."""
    if not args.model:
        args.error(
            "no model: give --model openai:MODEL, openai-responses:MODEL or anthropic:MODEL, "
            "or set GOAITOOLS_MODEL; --model sim talks to the offline simulator"
        )
    from .. import Chat
    from ..stores import SQLiteStore
    from .thread import Thread

    try:
        chat = Chat(args.model, system=args.system, on_bad_state="raise")
    except ValueError as error:
        args.error(str(error))
    with chat, SQLiteStore(args.store or ":memory:") as store:
        thread = Thread(store, args.thread)
        chat.append_to_state(thread.blob)  # refuses, before anything is said, what this chat cannot read
        _welcome(args)
        return Conversation(chat, thread).run(typed_lines())


def _welcome(args: argparse.Namespace) -> None:
    kept = f"thread {args.thread!r} in {args.store}" if args.store else "not kept (--store FILE keeps it)"
    _note(f"{args.model}, {kept}")
    if args.model.partition(":")[0] == "sim":
        _note("Replies are simulated: no language model is asked, and nothing leaves this machine.")
    _note(f"Commands: {COMMANDS}")


def typed_lines() -> Iterator[str]:
    """Lines as they are typed or piped. On a terminal Ctrl-C clears the line and Ctrl-D ends."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - its import gives input() a history and an editor
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


class Conversation:
    """Takes lines, answers them, and saves the state after each."""

    def __init__(self, chat: Chat, thread: Thread) -> None:
        self._chat = chat
        self._thread = thread
        self._failed = False

    def run(self, lines: Iterable[str]) -> int:
        """Answer every line; the exit code says whether the last turn succeeded."""
        self._say_what_is_open()
        for line in lines:
            line = line.strip()
            if line == "/quit":
                break
            if line.startswith("/"):
                self._command(line)
            elif line:
                self._take(self._chat.start(self._thread.blob, user=line))
        return 1 if self._failed else 0

    # ------------------------------------------------------------------------------------------- turns

    def _take(self, turn: Turn) -> None:
        """Run a turn, show its reply as it comes, and keep its state however it ends."""
        from ..errors import ToolPendingError, TurnError

        try:
            with turn:
                for piece in turn.text_deltas():
                    _show(piece)
                result = turn.result()
        except KeyboardInterrupt:
            _show("\n")
            _note("Cancelled. What was said so far is kept; /resume asks again.")
            self._save(turn.state)
        except TurnError as error:
            self._fail(error)
        except ToolPendingError as error:
            self._failed = True
            _note("Your line was not sent.")
            _note_waiting(_waiting(error.pending))
        else:
            self._finish(result)

    def _resume(self, answers: Mapping[str, Deny] | None = None) -> None:
        from ..errors import TurnError

        try:
            result = self._chat.resume(self._thread.blob, answers)
        except ValueError:
            _note("There is nothing to resume.")
        except TurnError as error:
            self._fail(error)
        else:
            _show(result.text)
            self._finish(result)

    def _deny(self, reason: str) -> None:
        """Deny every call that waits, and let the model go on."""
        from .. import Deny

        if waiting := _waiting(self._pending()):
            self._resume({call.id: Deny(reason) for call in waiting})
        else:
            _note("There is nothing to deny.")

    def _pending(self) -> Sequence[PendingCall]:
        from ..history.info import pending_calls

        return pending_calls(self._thread.blob) if self._thread.blob else ()

    def _say_what_is_open(self) -> None:
        """What an earlier process left unfinished in this thread, and what can be done."""
        if not self._thread.blob:
            return
        from ..history.info import inspect_state

        if waiting := _waiting(self._pending()):
            _note_waiting(waiting)
        elif inspect_state(self._thread.blob).status in ("in_progress", "failed"):
            _note("The last turn is unfinished: /resume finishes it; a new line begins another.")

    def _finish(self, result: ChatResult) -> None:
        if result.text or result.status != "awaiting_tools":
            _show("\n")
        self._failed = False
        if result.status == "awaiting_tools":
            _note_waiting(_waiting(result.pending))
        elif result.status != "complete":
            _note(f"The reply is {result.status}.")
        for warning in result.warnings:
            _note(f"Warning: {warning.message}")
        if result.compaction is not None:
            _note(f"Compacted: {counted(result.compaction.removed_turns, 'turn')} removed.")
        self._save(result.state)

    def _fail(self, error: TurnError) -> None:
        """Say what happened and what to do; the conversation goes on from the error's state."""
        self._failed = True
        if error.partial_text:
            _show("\n")
        _note(f"{type(error).__name__}: {error}")
        if error.__cause__ is not None:
            _note(f"Cause: {error.__cause__}")
        if error.retry_after is not None:
            _note(f"The provider asks to wait {error.retry_after:g} seconds.")
        if error.pending_input:
            _note("Your message was not accepted and is not kept: change it, or what the error names.")
        else:
            _note("Your message is kept: /resume asks again.")
        if error.state:
            self._save(error.state)

    def _save(self, blob: bytes) -> None:
        from ..errors import StoreError

        try:
            aside = self._thread.save(blob)
        except StoreError as error:
            _note(f"Not saved: {error}. The next turn tries again.")
            self._failed = True
            return
        if aside is not None:
            _note("This thread was changed by somebody else, and goes on from there.")
            _note(f"Your version is kept as --thread {aside!r}.")

    # ---------------------------------------------------------------------------------------- commands

    def _command(self, line: str) -> None:
        name, _, text = line.partition(" ")
        if name == "/event" and text.strip():
            from ..messages import event

            self._save(self._chat.append_to_state(self._thread.blob, event(text.strip())))
        elif name == "/resume":
            self._resume()
        elif name == "/deny":
            self._deny(text.strip())
        elif name in ("/info", "/history"):
            self._report(name)
        else:
            _note(f"Commands: {COMMANDS}")

    def _report(self, name: str) -> None:
        if not self._thread.blob:
            _note("Nothing was said yet.")
            return
        from ..history.info import inspect_state
        from ..history.turns import read_history
        from .report import history_lines, info_lines

        blob = self._thread.blob
        info = inspect_state(blob)
        if name == "/info":
            lines = info_lines(info, self._pending())
        else:
            lines = history_lines(read_history(blob), open_calls=info.open_calls)
        print(*lines, sep="\n", flush=True)


def _waiting(pending: Sequence[PendingCall]) -> Sequence[PendingCall]:
    """Those that keep a new message from being sent; calls in doubt do not."""
    return [call for call in pending if call.reason != "in_doubt"]


def _note_waiting(waiting: Sequence[PendingCall]) -> None:
    """Which calls keep the conversation waiting. Their tools are elsewhere: here they can only be denied."""
    from .report import pending_lines

    _note(f"This conversation waits for {counted(len(waiting), 'answer')}:")
    for line in pending_lines(waiting):
        _note(line)
    _note("Its application answers with resume; /deny WHY denies, and lets the model go on.")


def _show(text: str) -> None:
    print(printable(text), end="", flush=True)


def _note(text: str) -> None:
    sys.stdout.flush()
    print(printable(text), file=sys.stderr, flush=True)
