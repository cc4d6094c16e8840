"""The parts of the chat screen: texts, cards of tool calls, and the prompt.

Owns: how each looks. Must never know: a conversation.

All texts come from outside. So Textual's markup in them is not read, and control characters are escaped.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Button, Markdown, Static, TextArea

from ..arguments import pretty
from ..terminal import printable
from ..transcript import CallShown, clipped

__all__ = ["Card", "Note", "Prompt", "Reply", "Said"]

_OUTPUT_LINES: Final = 6


class Said(Static):
    """A message of the user, or an event."""

    def __init__(self, text: str, *, who: str = "user") -> None:
        super().__init__(printable(text), markup=False, classes=f"said {who}")


class Note(Static):
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


class Reply(Markdown):
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


class Prompt(TextArea):
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
