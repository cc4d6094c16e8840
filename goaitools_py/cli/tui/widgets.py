"""The parts of the chat screen: texts, cards of tool calls, the prompt, a list of conversations, a question,
and the board that shows a conversation and its running turn.

Owns: how each looks, which widget an entry or an event becomes, and the keys of the two screens that open
above the chat. Must never know: a store, how a turn runs, or the app's keys.

All texts come from outside. So Textual's markup in them is not read, and control characters are escaped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Markdown, OptionList, Static, TextArea
from textual.widgets.option_list import Option

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
from ..summary_lines import (
    CallShown,
    Entry,
    TextShown,
    clipped,
    key_line,
    newest_first,
    outcome,
    pretty,
    waits_words,
)
from ..text_output import counted, printable

if TYPE_CHECKING:
    from ... import ChatResult
    from ...stores import StoredKey

__all__ = ["Board", "Card", "ListScreen", "NoteText", "PromptBox", "QuestionScreen", "ReplyText", "SaidText"]

_OUTPUT_LINES: Final = 6


class SaidText(Static):
    """A message of the user, or an event."""

    def __init__(self, text: str, *, who: str = "user") -> None:
        super().__init__(printable(text), markup=False, classes=f"said {who}")


class NoteText(Static):
    """A text of this program. A "report" answers a command."""

    def __init__(self, text: str, kind: str = "note") -> None:
        super().__init__(printable(text), markup=False, classes=kind)


def _parser() -> MarkdownIt:
    """Make a parser that drops no text.

    The screen has no HTML, so a tag stays as it was written, and a line of XML stays a line. A link, an image
    and a definition of a link would lose their address, and an entity would become another character. So
    these stay as text, too.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline", "reference", "link", "image", "autolink", "entity"])
    parser.core.ruler.push("line_breaks", _keep_line_breaks)
    return parser


def _keep_line_breaks(state: StateCore) -> None:
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "softbreak":
                token.type = "hardbreak"


class ReplyText(Markdown):
    """A reply of the model. Its pieces are shown together if they come faster than they can be drawn."""

    def __init__(self, text: str = "") -> None:
        super().__init__(printable(text), parser_factory=_parser, open_links=False)
        self._pieces: list[str] = []
        self._has_more = asyncio.Event()
        self._is_over = False
        self._painting: asyncio.Task[None] | None = None

    def write(self, piece: str) -> None:
        """Add a piece of the text."""
        self._pieces.append(printable(piece))
        self._has_more.set()
        if self._painting is None:
            self._painting = asyncio.create_task(self._paint())

    async def finish(self) -> None:
        """Wait until all pieces are shown."""
        self._is_over = True
        self._has_more.set()
        if self._painting is not None:
            await self._painting

    async def _paint(self) -> None:
        while not (self._is_over and not self._pieces):
            await self._has_more.wait()
            self._has_more.clear()
            text = "".join(self._pieces)
            self._pieces.clear()
            if text:
                await self.append(text)


class Card(Vertical):
    """A tool call: its name, arguments and state; its result, or two buttons if it waits for an approval."""

    class Answered(Message):
        """The user has pressed a button."""

        def __init__(self, call_id: str, *, is_approved: bool) -> None:
            super().__init__()
            self.call_id, self.is_approved = call_id, is_approved

    def __init__(self, call: CallShown) -> None:
        super().__init__(classes="card")
        self._call = call
        self._is_drawn = False

    @property
    def call(self) -> CallShown:
        """The call that the card shows."""
        return self._call

    def compose(self) -> ComposeResult:
        """Texts and buttons; `show` decides which are seen."""
        yield Static(markup=False, classes="head")
        yield Static(markup=False, classes="arguments")
        yield Static(markup=False, classes="output")
        with Horizontal(classes="buttons"):
            yield Button("Approve", variant="success", classes="approve", compact=True)
            yield Button("Deny", variant="error", classes="deny", compact=True)

    def on_mount(self) -> None:
        """Show the call."""
        self._is_drawn = True
        self.show(self._call)

    def show(self, call: CallShown) -> None:
        """Show another state of the call."""
        self._call = call
        if not self._is_drawn:
            return
        arguments, output = pretty(call.arguments), clipped(call.output, _OUTPUT_LINES)
        self.query_one(".head", Static).update(printable(f"⚙ {call.name} · {call.state}"))
        for name, text in (("arguments", arguments), ("output", output)):
            widget = self.query_one(f".{name}", Static)
            widget.update(text)
            widget.display = bool(text)
        self.query_one(".buttons").display = bool(call.waits)
        self.query_one(".approve").display = call.waits == "approval"
        self.set_class(bool(call.waits), "waits")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Tell the app, once."""
        event.stop()
        self.query_one(".buttons").display = False
        self.post_message(self.Answered(self._call.id, is_approved=event.button.has_class("approve")))


class PromptBox(TextArea):
    """The input field. Enter sends; a paste may have any number of lines."""

    BINDINGS: ClassVar = [("ctrl+j", "new_line", "New line")]

    class Sent(Message):
        """The user has pressed Enter."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            soft_wrap=True,
            compact=True,
            placeholder="Message, or /help",
            highlight_cursor_line=False,
        )

    def on_text_area_changed(self) -> None:
        """Show how long the text is, below it."""
        self.border_subtitle = counted(len(self.text), "character") if self.text else ""

    def on_key(self, event: events.Key) -> None:
        """Send the text at Enter. The text area handles every other key."""
        if event.key == "enter":
            event.stop()
            event.prevent_default()  # else the text area adds a line
            self.post_message(self.Sent(self.text))

    def on_paste(self, event: events.Paste) -> None:
        """Insert all lines of a paste, with one form of line end."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.insert(text)

    def action_new_line(self) -> None:
        """Begin another line of the same message."""
        self.insert("\n")


class ListScreen(ModalScreen["str | None"]):
    """The conversations, the newest first. Enter chooses one, Escape leaves without a choice."""

    BINDINGS: ClassVar = [("escape", "dismiss(None)", "Back")]

    def __init__(self, found: Sequence[StoredKey], at_hand: str) -> None:
        super().__init__()
        self._found, self._at_hand = newest_first(found), at_hand

    def compose(self) -> ComposeResult:
        """A title, the list, and the keys."""
        keys = [stored.key for stored in self._found]
        options = OptionList(*(Option(Content(printable(key_line(stored)))) for stored in self._found))
        options.highlighted = keys.index(self._at_hand) if self._at_hand in keys else None
        with Vertical(classes="dialog"):
            yield Static("Conversations" if keys else "There is no conversation yet.", markup=False)
            yield options
            yield Static("Enter: go to it   Esc: back", markup=False, classes="keys")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Give the chosen key."""
        event.stop()
        self.dismiss(self._found[event.option_index].key)


class QuestionScreen(ModalScreen[bool]):
    """A question with the answers yes and no. No has the focus."""

    BINDINGS: ClassVar = [
        ("escape,n", "dismiss(False)", "No"),
        ("y", "dismiss(True)", "Yes"),
        ("left,right", "app.focus_next", "Other answer"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question and two buttons."""
        with Vertical(classes="dialog"):
            yield Static(printable(self._question), markup=False, classes="question")
            with Horizontal(classes="buttons"):
                yield Button("No", id="no", compact=True)
                yield Button("Yes", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """Focus the button that changes nothing, for a user who only presses Enter."""
        self.query_one("#no").focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Give the answer."""
        event.stop()
        self.dismiss(event.button.id == "yes")


# --------------------------------------------------------------------------------------------- the board


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
