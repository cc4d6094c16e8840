"""The admin's page of a conversation: cost, status, calls that wait, and messages. It changes nothing.

Owns: the page's content, as escaped HTML. Must never know: a chat, or how a turn runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from ..base.advice import missing_extra_error

try:
    from django.contrib import admin
    from django.http import HttpRequest
    from django.utils.html import format_html, format_html_join
except ModuleNotFoundError as error:
    raise missing_extra_error(error, "ConversationAdmin", "django") from None

from ..base.escaping import visible
from ..history.info import StateInfo, inspect_state, pending_calls
from ..history.turns import History, read_history
from ..state.codec import PLAIN, Codec
from ..types.answers import PendingCall
from ..types.errors import StateError
from ..types.messages import Message

__all__ = ["ConversationAdmin"]

_PRE = '<pre style="white-space: pre-wrap; margin: 0">{}</pre>'


class ConversationAdmin(admin.ModelAdmin):
    """A read-only page for a model made of `AbstractConversation`: register it with the model.

    All messages are shown as text. No user may add, change or delete a row here, whatever the permissions
    are; to see a row a user needs the permission to view it.

    Attributes:
        codec: How the states are protected. `binding` says for whom.
        newest: How many of the newest turns are shown.
    """

    codec: Codec = PLAIN
    newest: int = 50

    list_display = ("key", "title", "status", "turns", "cost", "updated_at")
    list_filter = ("status",)
    search_fields = ("key", "title")
    ordering = ("-updated_at",)
    fields = (
        *("key", "title", "status", "updated_at", "turns", "total_tokens"),
        *("cost", "size", "pending", "messages"),
    )
    readonly_fields = fields

    def binding(self, row: Any) -> Any:
        """The owner of a row's sealed state; override it if states are sealed with a binding."""
        return None

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No user may add a row here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No user may change a row here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No user may delete a row here."""
        return False

    @admin.display(description="cost", ordering="cost_nano_dollars")
    def cost(self, row: Any) -> str:
        """The cost of the conversation, in US dollars."""
        nano = row.cost_nano_dollars
        return "unknown" if nano is None else f"${Decimal(nano).scaleb(-9):.6f}"

    @admin.display(description="size")
    def size(self, row: Any) -> str:
        """The size of the state."""
        info = self._read(row, inspect_state)
        if not isinstance(info, StateInfo):
            return f"{len(row.blob):,} bytes"
        sealed = ", sealed" if info.is_sealed else ""
        return f"{len(row.blob):,} bytes{sealed}, format {info.format_version}"

    @admin.display(description="calls that wait")
    def pending(self, row: Any) -> str:
        """The calls that wait for an answer, with their arguments."""
        found = self._read(row, pending_calls)
        if isinstance(found, str):
            return found
        calls: tuple[PendingCall, ...] = found
        rows = ((call.name, call.reason, call.id, call.shown) for call in calls)
        table = "<p><b>{}</b> ({}, {})</p>" + _PRE
        return format_html_join("", table, rows) or "none"

    @admin.display(description="messages")
    def messages(self, row: Any) -> str:
        """The newest turns, oldest first."""
        found = self._read(row, read_history)
        if isinstance(found, str):
            return found
        history: History = found
        turns = history.turns[-self.newest :]
        left_out = len(history.turns) - len(turns)
        shown = format_html_join(
            "",
            "<h4>Turn {} &middot; {} &middot; {}</h4>{}",
            (
                (turn.number, turn.status, f"{turn.started_at:%Y-%m-%d %H:%M:%S} UTC", _said(turn.messages))
                for turn in turns
            ),
        )
        waiting = _said(history.waiting)
        note = f"{left_out} older turns are not shown." if left_out else ""
        return format_html("<p>{}</p>{}{}", note, shown, waiting)

    def _read(self, row: Any, how: Any) -> Any:
        """Call a reader with the state; give a sentence instead if the state cannot be read."""
        try:
            return how(row.blob, codec=self.codec, binding=self.binding(row))
        except StateError as error:
            return f"The state cannot be read: {type(error).__name__}."


def _said(messages: Iterable[Message]) -> str:
    rows = []
    for message in messages:
        who = f"{message.role}, {message.speaker}" if message.speaker else message.role
        files = [part.media_type for part in message.parts if hasattr(part, "media_type")]
        calls = [f"{call.name}({visible(call.arguments)})" for call in message.tool_calls]
        text = "\n".join([message.text, *(f"[{kind}]" for kind in files), *calls]).strip("\n")
        rows.append((who, text))
    return format_html_join("", "<p><b>{}</b></p>" + _PRE, rows)
