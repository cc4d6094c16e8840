"""The display of a conversation: its stored entries, and a turn as it runs.

Owns: which widget an entry or an event becomes. Must never know: how a turn runs, or a key of the keyboard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from textual.containers import VerticalScroll
from textual.widget import Widget

from ...types.events import (
    ModelReplied,
    ModelRequested,
    TextDelta,
    ToolFinished,
    ToolPending,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from ..summary_lines import CallShown, Entry, TextShown, outcome, waits_words
from .widgets import Card, NoteText, ReplyText, SaidText

if TYPE_CHECKING:
    from ... import ChatResult

__all__ = ["Board"]


class Board(VerticalScroll):
    """The part of the screen that scrolls."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="board")
        self._cards: dict[str, Card] = {}
        self._reply: ReplyText | None = None
        self._iteration = 0

    def on_mount(self) -> None:
        """Stay at the end as it grows."""
        self.anchor()

    # -------------------------------------------------------------------------------- stored entries

    async def clear(self) -> None:
        """Remove all entries."""
        self._cards.clear()
        self._reply = None
        await self.remove_children()

    async def show_all(self, entries: Iterable[Entry]) -> None:
        """Replace the shown entries with these."""
        await self.clear()
        widgets = [self._widget(entry) for entry in entries]
        await self.mount_all(widgets)
        self.anchor()

    def _widget(self, entry: Entry) -> Widget:
        if isinstance(entry, CallShown):
            return self._card(entry)
        match entry:
            case TextShown("assistant", text):
                return ReplyText(text)
            case TextShown("note", text):
                return NoteText(text)
            case TextShown(who, text):
                return SaidText(text, who=who)

    async def say(self, text: str, kind: str = "note") -> None:
        """Show a text of this program."""
        await self.mount(NoteText(text, kind))

    # ------------------------------------------------------------------------------ a turn that runs

    async def begin(self, said: str | None) -> None:
        """Begin a turn. With None the unfinished turn continues."""
        self._reply, self._iteration = None, 0
        if said is not None:
            await self.mount(SaidText(said))
        self.anchor()

    async def show(self, event: Any) -> str:
        """Show an event of the turn. Returns the new status for the header, "" for the same."""
        match event:
            case TurnStarted() | ModelRequested():
                return "thinking"
            case TextDelta(text=text) if text:
                await self._write(event)
                return "answering"
            case ModelReplied():
                await self._finish_reply()
                return "replied"
            case ToolStarted():
                await self._show_call(CallShown(event.call_id, event.name, event.arguments, "runs"))
                return f"runs {event.name}"
            case ToolProgress():
                part = f" {event.progress / event.total:.0%}" if event.total else ""
                return f"runs {event.name}{part}"
            case ToolFinished():
                known = self._cards.get(event.call_id)
                arguments = known.call.arguments if known else ""
                state = outcome(event.flag)
                await self._show_call(CallShown(event.call_id, event.name, arguments, state, event.output))
            case ToolPending():
                words = waits_words(event.reason)
                await self._show_call(
                    CallShown(event.call_id, event.name, event.arguments, words, waits=event.reason)
                )
        return ""

    async def end(self, result: ChatResult | None) -> None:
        """The turn is over: show results that no event has reported."""
        await self._finish_reply()
        for record in result.tool_log if result is not None else ():
            card, state = self._cards.get(record.call.id), outcome(record.flag)
            if card is not None and card.call.state != state:
                arguments = card.call.arguments
                card.show(CallShown(record.call.id, record.call.name, arguments, state, record.result))

    async def reopen(self, pending: Sequence[Any]) -> None:
        """Show the buttons of the calls that still wait, such as after a turn that failed."""
        for call in pending:
            await self._show_call(
                CallShown(call.id, call.name, call.arguments, waits_words(call.reason), waits=call.reason)
            )

    async def _write(self, event: TextDelta) -> None:
        if self._reply is None or event.iteration != self._iteration:
            await self._finish_reply()
            self._reply, self._iteration = ReplyText(), event.iteration
            await self.mount(self._reply)
        self._reply.write(event.text)

    async def _finish_reply(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.finish()

    async def _show_call(self, call: CallShown) -> None:
        if (card := self._cards.get(call.id)) is not None:
            card.show(call)
        else:
            await self.mount(self._card(call))

    def _card(self, call: CallShown) -> Card:
        card = self._cards[call.id] = Card(call)
        return card
