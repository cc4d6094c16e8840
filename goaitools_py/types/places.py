"""Names that are no options of a turn, and where each belongs.

Owns: the table of places. Must never know: the meaning of an option, or which method was called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CHAT_NAMES", "known_names", "place_of"]

_KEPT: Final = "the kept conversation: chat.conversation(store, key, {}=…)"
_BACKEND: Final = "the backend: Chat(OpenAIChatBackend(MODEL, {}=…))"
_LIMITS: Final = "the limits: limits=Limits({}=…)"
_TOOL: Final = "a tool: @tool({}=…)"

CHAT_NAMES: Final = (
    "codec", "telemetry", "max_concurrent_calls", "fallbacks", "fallback_rest", "log_content", "write_format",
)  # fmt: skip
"""Options of a chat that are not defaults for its turns."""

_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "save",
            "gate",
            "concurrent_turns",
            "lease_ttl",
            "save_timeout",
            "plain_title",
            "parts",
            "stop_every",
        ),
        _KEPT,
    ),
    **dict.fromkeys(
        ("base_url", "api_key", "client", "http_client", "max_retries", "context_window"), _BACKEND
    ),
    **dict.fromkeys(
        ("max_tool_calls", "max_cost_usd", "conversation_max_tokens", "conversation_max_cost_usd"), _LIMITS
    ),
    **dict.fromkeys(("requires_approval", "external", "idempotent", "thread"), _TOOL),
    "codec": "the chat: Chat(MODEL, codec=…)",
    "telemetry": "the chat: Chat(MODEL, telemetry=…)",
    "max_concurrent_calls": "the chat: Chat(MODEL, max_concurrent_calls=…)",
    "fallbacks": "the chat: Chat(MODEL, fallbacks=[…])",
    "fallback_rest": "the chat: Chat(MODEL, fallbacks=[…], fallback_rest=…)",
    "log_content": "the chat: Chat(MODEL, log_content=…)",
    "write_format": "the chat: Chat(MODEL, write_format=…)",
    "dry_run": "a compaction: chat.compact_state(state, dry_run=…) or conversation.compact(dry_run=…)",
    "answers": "resume, without a name: chat.resume(state, answers) or conversation.resume(answers)",
    "state": "the first place, without a name: chat.chat_with_state(state, …); a kept conversation loads its "
    "own",
    "store": "chat.conversation(store, key), which is then used without it",
    "key": "chat.conversation(store, key), which is then used without it",
}
"""By option: where it belongs. ``{}`` stands for its name."""


def known_names() -> tuple[str, ...]:
    """The names of the table, for a guess at a misspelt one."""
    return tuple(_PLACES)


def place_of(name: str) -> str | None:
    """Describe the place of an option that no turn has. None for an unknown name."""
    place = _PLACES.get(name)
    return None if place is None else place.format(name)
