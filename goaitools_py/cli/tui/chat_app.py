"""The app: one chat screen, its keys, and the steps of a session carried out on it.

Owns: keys, which flow runs now, and the header. Must never know: the meaning of a line (`session`), or how a
turn runs.

One flow runs at a time. Escape stops the turn in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import Footer, Static
from textual.worker import Worker

from ..conversions import write_new
from ..session import CONVERSATION, Session
from ..session_steps import (
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
    drive_async,
)
from ..summary_lines import HeaderFacts, header_lines, reply_line, transcript
from .widgets import Board, Card, ListScreen, PromptBox, QuestionScreen

if TYPE_CHECKING:
    from ... import AsyncChat, AsyncTurn, ChatResult
    from ...stores import AsyncStore, StoredKey
    from ...types.answers import Answer

__all__ = ["ChatApp"]

_BUSY, _READY = "busy", "ready"
_MARGIN = 2
"""Columns beside the header's text."""


class ChatApp(App[None]):
    """A chat in a terminal.

    Args:
        chat: Answers the messages.
        store: Keeps the conversations; a `Listing` too.
        key: The conversation to begin with.
        codec: The `codec` and `binding` of sealed conversations; {} for plain ones.
        check: Raises a GoAIToolsError for a state that this chat cannot read.
        about: The text above an empty conversation.
        clock: Gives the time in seconds.
    """

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "goaitools"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("ctrl+n", "line('/new')", "New"),
        Binding("ctrl+o", "line('/threads')", "Switch"),
        Binding("ctrl+r", "line('/reset')", "Reset"),
        Binding("escape", "stop", "Stop"),
        Binding("ctrl+q", "quit", "Quit", priority=True),
    ]

    def __init__(
        self,
        chat: AsyncChat,
        store: AsyncStore,
        key: str,
        *,
        codec: Mapping[str, Any] | None = None,
        check: Callable[[str, bytes], None] = lambda key, blob: None,
        about: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._chat, self._store, self._check, self._about = chat, store, check, about
        self._session = Session(key, codec)
        self._conversation = self._kept(key)
        self._facts, self._status = HeaderFacts(key), _BUSY
        self._job: Worker[None] | None = None
        self._turn: AsyncTurn | None = None
        self._is_stopped = False
        self._is_leaving = False
        self._answers: dict[str, Answer] = {}
        self.left_to_say: list[str] = []
        """Texts of the session that came while the app ended."""

    @property
    def failed(self) -> bool:
        """True if the last turn failed, or was not saved."""
        return self._session.failed

    @property
    def is_busy(self) -> bool:
        """True while a flow runs."""
        return self._job is not None and not self._job.is_finished

    async def until_idle(self) -> None:
        """Wait until no flow runs."""
        while self.is_busy and self._job is not None:
            await self._job.wait()

    # --------------------------------------------------------------------------------------- the screen

    def compose(self) -> ComposeResult:
        """Header, conversation, prompt, keys."""
        yield Static(id="header", markup=False)
        yield Board()
        yield PromptBox()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Show the conversation."""
        self._board = self.query_one(Board)
        self._prompt = self.query_one(PromptBox)
        self._prompt.focus()
        self._begin(self._opened())
        self.run_worker(self._warm_up(), group="warm up")

    async def _opened(self) -> None:
        await self._show_stored()
        await self._drive(self._session.begin())

    async def _warm_up(self) -> None:
        from ...types.errors import GoAIToolsError

        with contextlib.suppress(GoAIToolsError):  # the first turn reports it
            await self._chat.warm_up()

    def on_resize(self, event: events.Resize) -> None:
        """Lay the header out anew."""
        self._show_header(width=event.size.width)

    def _show_header(self, *, status: str = "", width: int = 0) -> None:
        self._status = status or self._status
        lines = header_lines(self._facts, self._status, max(1, (width or self.size.width) - _MARGIN))
        self.query_one("#header", Static).update("\n".join(lines))

    async def _show_stored(self) -> None:
        found = await drive_async(self._session.snapshot(), self._do)
        await self._board.show_all(transcript(found.history, found.pending) if found is not None else ())
        if found is None and self._about:
            await self._board.say(f"{self._about}\n/help lists the commands.")

    # ------------------------------------------------------------------------------------------ the keys

    def action_line(self, line: str) -> None:
        """Act as if this line were typed."""
        self._answer(line)

    def on_prompt_box_sent(self, event: PromptBox.Sent) -> None:
        """Answer the typed text. While a reply is coming it stays in the prompt."""
        if event.text.strip() and self._answer(event.text):
            self._prompt.clear()

    def on_card_answered(self, event: Card.Answered) -> None:
        """Use the answer to a call as soon as no other flow runs."""
        from ... import Approve, Deny

        self._answers[event.call_id] = Approve() if event.is_approved else Deny("The user denied it.")
        if not self.is_busy:
            self._begin(self._settled())

    async def action_stop(self) -> None:
        """Stop the running turn. Its text so far is kept."""
        if self._turn is not None:
            self._is_stopped = True
            await self._turn.cancel()

    async def action_quit(self) -> None:
        """Stop the running turn, save the unsaved turn, and end."""
        self.run_worker(self._left(), group="quit", exclusive=True)

    async def _left(self) -> None:
        self._is_leaving = True
        for screen in self.screen_stack[1:]:  # a question that is open is answered with no
            screen.dismiss(None)
        await self.action_stop()
        await self.until_idle()
        await self._drive(self._session.end())
        self.exit()

    def _answer(self, line: str) -> bool:
        if self.is_busy:
            self._show_header(status="busy: Esc stops the reply")
            return False
        self._begin(self._drive(self._session.answer(line)))
        return True

    # ------------------------------------------------------------------------------------------- the flows

    def _begin(self, work: Any) -> None:
        self._show_header(status=_BUSY)
        self._job = self.run_worker(self._job_of(work), group="flow")

    async def _job_of(self, work: Any) -> None:
        """Run a flow, and then use the answers that came meanwhile."""
        await work
        await self._settled()
        await self._show_facts()

    async def _settled(self) -> None:
        while self._answers and not self._is_leaving:
            answers, self._answers = self._answers, {}
            await self._drive(self._session.settle(answers))

    async def _show_facts(self) -> None:
        from ...types.errors import GoAIToolsError

        try:
            self._facts = await drive_async(self._session.facts(), self._do)
        except GoAIToolsError as error:
            await self._do(Say(f"Failed: {error}"))
        self._show_header()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show that the app is ready, as soon as it accepts a message."""
        if event.worker is self._job and event.worker.is_finished:
            self._show_header(status=_READY)

    async def _drive(self, flow: Flow[Any]) -> None:
        await drive_async(flow, self._do)

    async def _do(self, step: Step) -> Any:
        match step:
            case Say(text, kind):
                if self._is_leaving:
                    self.left_to_say.append(text)
                await self._board.say(text, kind)
            case ShowWaiting(calls):
                await self._board.reopen(calls)
            case CallMethod(method, arguments):
                return await getattr(self._conversation, method)(*arguments)
            case RunTurn():
                return await self._run_turn(step)
            case Confirm(question):
                return await self._asked(QuestionScreen(question))
            case Keys():
                return await self._keys()
            case Choose(found, at_hand):
                return await self._asked(ListScreen(found, at_hand))
            case Open(key):
                await self._open(key)
            case ShowChanged():
                await self._show_stored()
            case Clear():
                await self._board.clear()
            case Write(path, data):
                await asyncio.to_thread(write_new, path, data)
            case Quit():
                await self.action_quit()
        return None

    async def _asked(self, screen: Any) -> Any:
        return await self.push_screen_wait(screen)

    def _kept(self, key: str) -> Any:
        return self._chat.conversation(self._store, key, **CONVERSATION)

    async def _open(self, key: str) -> None:
        stored = await self._store.load(key)
        if stored is not None:
            self._check(key, stored.blob)
        self._conversation = self._kept(key)

    async def _keys(self) -> list[StoredKey]:
        found: list[StoredKey] = []
        cursor: str | None = None
        while True:
            page = await self._store.list(cursor=cursor)  # type: ignore[attr-defined]
            found += page.keys
            if (cursor := page.cursor) is None:
                return found

    async def _run_turn(self, step: RunTurn) -> ChatResult | None:
        """Run a turn, and show it as it comes; None if it was stopped."""
        self._is_stopped = False
        began = self._clock()
        await self._board.begin(step.said)
        self._show_header(status="waits for its turn")
        self._turn = (
            self._conversation.start_resume(step.answers)
            if step.said is None
            else self._conversation.start(step.said)
        )
        result: ChatResult | None = None
        try:
            async with self._turn as turn:
                async for event in turn:
                    status = await self._board.show(event)
                    if status and status != self._status:
                        self._show_header(status=status)
                result = await turn.result()
        except RuntimeError:
            if not self._is_stopped:
                raise
        finally:
            self._turn = None
            await self._board.end(result)
        if result is not None:
            await self._board.say(reply_line(result, self._clock() - began))
        return result
