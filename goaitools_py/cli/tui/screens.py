"""The two screens that open above the chat: a list of conversations, and a question.

Owns: their keys and looks. Must never know: a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, OptionList, Static
from textual.widgets.option_list import Option

from ..terminal import printable
from ..told import key_line, newest_first

if TYPE_CHECKING:
    from ...stores import StoredKey

__all__ = ["ListScreen", "QuestionScreen"]


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
