"""Hosts of Chat Completions that serve models of others: their rules, and how they reply.

Owns: their rows of the table, each with a source and a date. Must never know: how a rule reads a request, or
the rules that this package itself has for hosts.
"""

from __future__ import annotations

from typing import Final

from . import chat_histories as history
from . import chat_requests as request
from .error_shapes import cloudflare_error, litellm_error, numbered_error, openai_error, together_error
from .host import Host, HostRule
from .host_replies import Manner
from .own_servers import HOSTED, REASONS, REASONS_CONTENT, thinks_always

__all__ = ["CHAT_GATEWAYS"]

CHAT_GATEWAYS: Final = (
    Host(
        name="together",
        rules=(
            HostRule(
                name="no developer",
                breaks=history.no_role("developer"),
                text="Input validation error",
                source="earendil-works/pi compat table, 2026; the words: mozilla-ai/any-llm#714, 2026-01-06",
            ),
            HostRule(
                name="no strict tools",
                breaks=request.no_strict,
                text="Input validation error",
                source="earendil-works/pi compat table, 2026; the words: mozilla-ai/any-llm#714, 2026-01-06",
            ),
            HostRule(
                name="no picture in a result",
                breaks=history.mentions_part("tool", kind="image_url"),
                text="Input validation error",
                source="earendil-works/pi compat table, 2026; the words: mozilla-ai/any-llm#714, 2026-01-06",
            ),
        ),
        takes=HOSTED,
        shape=together_error,
        manner=REASONS,
    ),
    Host(
        name="fireworks",
        rules=(
            HostRule(
                name="no empty schema",
                breaks=request.no_empty_schema,
                text="JSON Schema not supported: could not understand the instance `{}`.",
                source="earendil-works/pi#5352, 2026-06-03",
            ),
            HostRule(
                name="nothing beside $ref",
                breaks=request.nothing_beside_ref("default"),
                text="JSON Schema not supported: could not understand the instance at '{}.",  # words unknown
                source="earendil-works/pi#5352, 2026-06-03",
            ),
        ),
        takes=HOSTED,
        shape=openai_error,
        manner=REASONS_CONTENT,
    ),
    Host(
        name="openrouter",
        takes=HOSTED,
        shape=numbered_error,
        manner=Manner(
            reasoning="details",
            thinks=thinks_always,
            plain=True,
            call_id=lambda hexed, name, _: f"tool_{name}_{hexed[:20]}",
        ),
    ),
    Host(
        name="perplexity",
        rules=(
            HostRule(
                name="roles alternate",
                breaks=history.alternates(counts_results=True),
                text="After the (optional) system message(s), user or tool message(s) should alternate with "
                "assistant message(s).",
                source="bieniu/ha-perplexity#117, 2026-04-01",
                type="invalid_message",
            ),
        ),
        takes=HOSTED,
        shape=numbered_error,
        manner=Manner(plain=True),
    ),
    Host(
        name="cloudflare",
        rules=(
            HostRule(
                name="content is text",
                breaks=history.content_is_text,
                text="AiError: Bad input: Error: oneOf at '/' not met, 0 matches: required properties at "
                "'/' are "
                "'prompt', Type mismatch of '/messages/{}' not in 'string'",
                source="anomalyco/opencode#30381, 2026-06-02; TencentCloud/TencentDB-Agent-Memory#1313, "
                "2026-09-09",
            ),
        ),
        takes=HOSTED,
        shape=cloudflare_error,
        manner=Manner(plain=True),
    ),
    Host(
        name="litellm",
        rules=(
            HostRule(
                name="tools beside calls",
                breaks=request.tools_with_calls,
                text="litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without "
                "`tools=` "
                "param specified. Pass `tools=` param OR set `litellm.modify_params = True` // "
                "`litellm_settings::modify_params: True` to add dummy tool to the request.",
                source="camel-ai/owl#532, 2025-05-14; BerriAI/litellm#24712, 2026-03",
            ),
        ),
        takes=HOSTED,
        shape=litellm_error,
        manner=REASONS_CONTENT,
    ),
)
