"""The hosts of the Messages API: their rules, in their own words, and how they reply.

Owns: the table, with a source and a date beside every row, and how its rules read a request. Must never know:
the rules that this package itself has for hosts.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .error_shapes import bare_message, litellm_error, minimax_error, openai_error
from .host import Host, HostRule, Waived
from .host_replies import Manner

__all__ = ["MESSAGES_HOSTS"]

JSON = Mapping[str, Any]
_MANY, _MOST_PIXELS = 20, 2000


def _blocks(body: JSON) -> Iterator[tuple[str, str, JSON]]:
    """Path, role and value of every block, those within results included."""
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for nth, block in enumerate(content if isinstance(content, list) else ()):
            if not isinstance(block, dict):
                continue
            path, role = f"messages.{at}.content.{nth}", str(message.get("role"))
            yield path, role, block
            inner = block.get("content") if block.get("type") == "tool_result" else None
            for place, part in enumerate(inner if isinstance(inner, list) else ()):
                if isinstance(part, dict):
                    yield f"{path}.tool_result.content.{place}", role, part


def _large_among_many(body: JSON) -> str | None:
    """Above 20 pictures, each has at most 2,000 pixels in both directions. Names the path."""
    pictures = [(path, block) for path, _, block in _blocks(body) if block.get("type") == "image"]
    if len(pictures) <= _MANY:
        return None
    return next((path for path, block in pictures if max(_size(block.get("source"))) > _MOST_PIXELS), None)


def _size(source: Any) -> tuple[int, int]:
    """Width and height of a PNG, GIF or JPEG; zeros for any other data."""
    try:
        data = base64.b64decode(source["data"])
        if data.startswith(b"\x89PNG"):
            return struct.unpack(">II", data[16:24])
        if data.startswith(b"GIF8"):
            return struct.unpack("<HH", data[6:10])
        return _jpeg(data)
    except (KeyError, TypeError, ValueError, IndexError, struct.error, binascii.Error):
        return 0, 0


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while data[at] == 0xFF:
        mark, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0


def _marks_the_whole(body: JSON) -> str | None:
    return "" if body.get("cache_control") is not None else None


def _system_messages(body: JSON) -> str | None:
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("role") == "system":
            return str(at)
    return None


def _tools_with_calls(body: JSON) -> str | None:
    used = any(block.get("type") in ("tool_use", "tool_result") for _, _, block in _blocks(body))
    return "" if used and not body.get("tools") else None


def _thinks(body: JSON) -> bool:
    thinking = body.get("thinking")
    return not (isinstance(thinking, dict) and thinking.get("type") == "disabled")


def _calls_have_thinking(body: JSON) -> str | None:
    """While the model thinks, a reply with calls has a thinking block, which may be empty."""
    if not _thinks(body):
        return None
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        kinds = [b.get("type") for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        if message.get("role") == "assistant" and "tool_use" in kinds and "thinking" not in kinds:
            return str(at)
    return None


_TOP_MARK: Final = HostRule(
    name="no mark of the whole request",
    breaks=_marks_the_whole,
    text="cache_control: Extra inputs are not permitted",
    source="UKGovernmentBEIS/inspect_ai#3851, 2026-05-06; BerriAI/litellm#26320, 2026-04-23",
)

MESSAGES_HOSTS: Final = (
    Host(
        name="anthropic",
        rules=(
            HostRule(
                name="small pictures among many",
                breaks=_large_among_many,
                text="{}.image.source.base64.data: At least one of the image dimensions exceed max "
                "allowed size "
                "for many-image requests: 2000 pixels",
                source="anthropics/claude-code#52220, 2026-04-23; platform.claude.com, vision",
            ),
        ),
    ),
    Host(name="bedrock", rules=(_TOP_MARK,), shape=bare_message),
    Host(
        name="vertex",
        rules=(
            HostRule(
                name="no system messages",
                breaks=_system_messages,
                text="role 'system' is not supported on this model",
                source="neurolink#1772, 2026-09; anthropics/claude-code#61412, 2026-05-22",
            ),
            _TOP_MARK,
        ),
    ),
    Host(
        name="litellm",
        rules=(
            HostRule(
                name="tools beside calls",
                breaks=_tools_with_calls,
                text="litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without "
                "`tools=` "
                "param specified. Pass `tools=` param OR set `litellm.modify_params = True` // "
                "`litellm_settings::modify_params: True` to add dummy tool to the request.",
                source="camel-ai/owl#532, 2025-05-14; BerriAI/litellm#24712, 2026-03",
            ),
        ),
        shape=litellm_error,
    ),
    Host(
        name="deepseek",
        rules=(
            HostRule(
                name="thinking beside calls",
                breaks=_calls_have_thinking,
                text="The `content[].thinking` in the thinking mode must be passed back to the API.",
                source="decolua/9router#2397, 2026-07-05; NousResearch/hermes-agent#22313, 2026-05",
                code="invalid_request_error",
            ),
        ),
        takes=(
            Waived(
                "Invalid `(signature|data)`", "its thinking is not sealed: the text itself is passed back"
            ),
            Waived(
                "Extra inputs are not permitted", "api-docs.deepseek.com guides/anthropic_api: ignored, 2026"
            ),
        ),
        shape=openai_error,
        manner=Manner(thinks=_thinks, signature="deepseek-"),
    ),
    Host(
        name="minimax",
        rules=(
            HostRule(
                name="no system messages",
                breaks=_system_messages,
                text="invalid params, chat content has invalid message role: system (2013)",
                source="MiniMax-AI/MiniMax-M2.7#43, 2026-05-29",
            ),
        ),
        shape=minimax_error,
    ),
)
