"""`goaitools chat`: one conversation, line by line, kept in a SQLite file.

Owns: what is read and what is printed. Must never know: how a turn runs, or how it is saved.

Replies go to standard output, all else to standard error, so that a pipe gets the replies only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .sealed import add_options, opened_with, refusal
from .terminal import counted, printable

if TYPE_CHECKING:
    from .. import Chat, ChatResult, Deny, PendingCall, TurnError
    from ..stores import Store

__all__ = ["Talk", "add_to", "typed_lines"]

SAVE_TIMEOUT: Final = 1.0
"""Seconds for which a save is tried again before the user is told. Somebody waits for the next line."""

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
    add_options(parser)
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
    from ..backends.by_name import backend_from_name
    from ..errors import StateAuthError
    from ..stores import SQLiteStore

    try:
        backend = backend_from_name(args.model, is_async=False)
    except ValueError as error:
        args.error(str(error))
    with SQLiteStore(args.store or ":memory:") as store:
        stored = store.load(args.thread)
        blob = stored.blob if stored else None
        with Chat(backend, system=args.system, on_bad_state="raise", **_opened(args, blob)) as chat:
            try:
                chat.append_to_state(blob)  # refuses, before anything is said, what this chat cannot read
            except StateAuthError as error:
                raise StateAuthError(f"{_place(args)}: {refusal(args, error)}") from error
            _welcome(args)
            return Talk(chat, store, args.thread).run(typed_lines())


def _opened(args: argparse.Namespace, blob: bytes | None) -> dict[str, Any]:
    """The `codec` and `binding` of the thread. Its header names the codec, so that it has to be there."""
    if args.key_env is not None and not blob:
        from ..errors import StoreError

        raise StoreError(
            f"--key-env opens a thread that is sealed, and there is no {_place(args)}; "
            "its application has to begin it"
        )
    return opened_with(args, blob or b"")


def _place(args: argparse.Namespace) -> str:
    return f"thread {args.thread!r} in {args.store or 'memory'}"


def _welcome(args: argparse.Namespace) -> None:
    kept = _place(args) if args.store else "not kept (--store FILE keeps it)"
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


class Talk:
    """Takes lines and answers them, in a conversation that is kept in a store.

    Somebody else may talk in it too: a turn of theirs that runs is not waited for, and one that was had
    meanwhile stays, with ours behind it.
    """

    def __init__(self, chat: Chat, store: Store, key: str) -> None:
        self._conversation = chat.conversation(
            store, key, gate="reject", concurrent_turns=True, save_timeout=SAVE_TIMEOUT
        )
        self._unsaved: TurnError | None = None
        self._failed = False

    def run(self, lines: Iterable[str]) -> int:
        """Answer every line; the exit code says whether the last turn succeeded and is saved."""
        self._say_what_is_open()
        for line in lines:
            line = line.strip()
            if line == "/quit":
                break
            if line:
                self._answer(line)
        self._save_rest()
        return 1 if self._failed or self._unsaved is not None else 0

    def _answer(self, line: str) -> None:
        from ..errors import StoreError, TurnInProgressError

        if not self._save_rest():
            _note("Your line was not sent.")
            return
        try:
            if line.startswith("/"):
                self._command(line)
            else:
                self._take(line)
        except (StoreError, TurnInProgressError) as error:
            self._failed = True
            _note(f"Failed: {error}")

    # ------------------------------------------------------------------------------------------- turns

    def _take(self, line: str) -> None:
        """Answer a line, and show the reply as it comes."""

        def streamed() -> ChatResult:
            with self._conversation.start(line) as turn:
                for piece in turn.text_deltas():
                    _show(piece)
                return turn.result()

        self._turn(streamed)

    def _resume(self, answers: Mapping[str, Deny] | None = None) -> None:
        from ..errors import NothingToResumeError, StateConflictError, StoreCommitError

        def at_once() -> ChatResult:
            try:
                result = self._conversation.resume(answers)
            except (StateConflictError, StoreCommitError) as error:
                _show(error.text)
                raise
            _show(result.text)
            return result

        try:
            self._turn(at_once)
        except NothingToResumeError:
            _note("There is nothing to resume.")

    def _turn(self, have: Callable[[], ChatResult]) -> None:
        """Have a turn, and say how it ended."""
        from ..errors import StateConflictError, StoreCommitError, ToolPendingError, TurnError

        try:
            self._finish(have())
        except KeyboardInterrupt:
            _show("\n")
            _note("Cancelled. What was said so far is kept; /resume asks again.")
        except StoreCommitError as error:
            _show("\n")
            self._keep_unsaved(error)
        except StateConflictError as error:
            if error.text:
                _show("\n")
            self._failed = True
            _note(f"Not kept: {error.__cause__ or error}")
        except TurnError as error:
            self._fail(error)
        except ToolPendingError as error:
            self._failed = True
            _note("Your line was not sent.")
            _note_waiting(_waiting(error.pending))

    def _deny(self, reason: str) -> None:
        """Deny every call that waits, and let the model go on."""
        from .. import Deny

        if waiting := _waiting(self._conversation.pending()):
            self._resume({call.id: Deny(reason) for call in waiting})
        else:
            _note("There is nothing to deny.")

    def _say_what_is_open(self) -> None:
        """What an earlier process left unfinished in this thread, and what can be done."""
        info = self._conversation.info()
        if info is None:
            return
        if waiting := _waiting(self._conversation.pending()):
            _note_waiting(waiting)
        elif info.state.status in ("in_progress", "failed"):
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

    def _fail(self, error: TurnError) -> None:
        """Say what happened and what to do; the conversation goes on from the error's state."""
        self._failed = True
        if error.partial_text:
            _show("\n")
        _note(f"{type(error).__name__}: {error}")
        if cause := error.sdk_error or error.__cause__:
            _note(f"Cause: {cause}")
        if error.retry_after is not None:
            _note(f"The provider asks to wait {error.retry_after:g} seconds.")
        if error.unsaved is not None:
            self._keep_unsaved(error)
        elif error.pending_input:
            _note("Your message was not accepted and is not kept: change it, or what the error names.")
        else:
            _note("Your message is kept: /resume asks again.")

    # ------------------------------------------------------------------------------- what was not saved

    def _keep_unsaved(self, error: TurnError) -> None:
        """A turn that the store did not take is saved before the next line is answered."""
        self._unsaved = error
        _note(f"Not saved: {error.unsaved}. The next line tries again.")

    def _save_rest(self) -> bool:
        """Save what the store did not take; False if it still does not."""
        from ..errors import StateConflictError, StoreError

        if self._unsaved is None:
            return True
        try:
            self._conversation.commit(self._unsaved)
        except StateConflictError as error:
            self._failed = True
            _note(f"Not kept: {error}")
        except StoreError as error:
            _note(f"Still not saved: {error}.")
            return False
        self._unsaved = None
        return True

    # ---------------------------------------------------------------------------------------- commands

    def _command(self, line: str) -> None:
        name, _, text = line.partition(" ")
        if name == "/event" and text.strip():
            from ..messages import event

            self._conversation.append(event(text.strip()))
        elif name == "/resume":
            self._resume()
        elif name == "/deny":
            self._deny(text.strip())
        elif name in ("/info", "/history"):
            self._report(name)
        else:
            _note(f"Commands: {COMMANDS}")

    def _report(self, name: str) -> None:
        from .report import history_lines, info_lines

        info = self._conversation.info()
        if info is None:
            _note("Nothing was said yet.")
            return
        if name == "/info":
            lines = info_lines(info.state, self._conversation.pending())
        else:
            lines = history_lines(self._conversation.history(), open_calls=info.state.open_calls)
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
