"""The parts of the chat screen: texts, cards of tool calls, the prompt, a list of conversations, and a
question.

Owns: how each looks, and the keys of the two screens that open above the chat. Must never know: a
conversation, or a store.

All texts come from outside. So Textual's markup in them is not read, and control characters are escaped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Button, Markdown, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from ..summary_lines import CallShown, clipped, key_line, newest_first, pretty
from ..text_output import printable

if TYPE_CHECKING:
    from ...stores import StoredKey

__all__ = ["Card", "ListScreen", "NoteText", "PromptBox", "QuestionScreen", "ReplyText", "SaidText"]

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
