"""Servers that people run themselves, with Chat Completions: their rules, and how they reply.

Owns: their rows of the table, each with a source and a date. Must never know: how a rule reads a request, or
the rules that this package itself has for hosts.

Most rules are of a model's chat template. The name "vllm-gemma" is a server with one such model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from . import chat_histories as history
from . import chat_requests as request
from .error_shapes import llamacpp_error, ollama_error, openai_error, vllm_error
from .host import Host, HostRule, Waived
from .host_replies import Manner

__all__ = ["HOSTED", "OWN_SERVERS", "REASONS", "REASONS_CONTENT", "thinks_always"]

_RECORDED = "seen in recorded traffic"
_JINJA = "suitenumerique/conversations#197, 2025-12-05: Gemma 3 behind vLLM"

HOSTED: Final = (
    Waived("string too long", "OpenAI's own limit of 40 characters; ids of others are longer: " + _RECORDED),
    Waived(r"In context=\(", "OpenAI's own rules for strict schemas (recorded 400 of api.openai.com)"),
    Waived("Expected an array with maximum length 4,", "OpenAI's own limit of stop sequences"),
)
_OWN_SERVER: Final = (
    *HOSTED,
    Waived("array too long", "no limit in vllm protocol.py 002032ee, ollama openai.go fb307609, 2026-08"),
    Waived(
        "did not have response messages|must be a response to a preceeding message",
        "llama-server checks neither pairing nor order (measured, 2026-11); nor do vllm and ollama",
    ),
)

thinks_always = request.is_thinking()
REASONS: Final = Manner(reasoning="reasoning", thinks=thinks_always, plain=True)
REASONS_CONTENT: Final = Manner(reasoning="reasoning_content", thinks=thinks_always, plain=True)

# ------------------------------------------------------------------------------------- shared rules

_LATER_SYSTEM: Final = HostRule(
    name="system first",
    breaks=history.system_first,
    text="System message must be at the beginning.",
    source="vllm-project/vllm#41114, 2026-04-28; QwenLM/Qwen3.8#244, 2026-09-22",
)
_NO_USER: Final = HostRule(
    name="some user",
    breaks=history.has_user,
    text="No user query found in messages.",
    source="lmstudio-ai/lmstudio-bug-tracker#1586, 2026-03 (Qwen3.5's template)",
)
_THREE: Final = HostRule(
    name="not content, reasoning and calls",
    breaks=history.not_all_three,
    text="Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis "
    "message in one or the other, but not both.",
    source="ggml-org/llama.cpp#17040, 2025-11-07; #19701, 2026-02-18",
    status=500,
)
_NO_STREAM_OPTIONS: Final = HostRule(
    name="stream options with a stream",
    breaks=request.no_stream_options,
    text="Stream options can only be defined when `stream=True`.",
    source="vllm protocol.py 002032ee, 2026",
)

_VLLM: Final = Host(
    name="vllm",
    rules=(
        HostRule(
            name="no empty list of tools",
            breaks=request.no_empty_tools,
            text="When using `tool_choice`, `tools` must be set.",
            source="vllm protocol.py 002032ee, 2026",
        ),
        HostRule(
            name="no choice without tools",
            breaks=request.no_choice_without_tools,
            text="When using `tool_choice`, `tools` must be set.",
            source="vllm protocol.py 002032ee, 2026",
        ),
        _NO_STREAM_OPTIONS,
        HostRule(
            name="arguments are objects",
            breaks=history.arguments_are_objects,
            text="Extra data: line 1 column 1 (char 0)",
            source="vllm protocol.py 002032ee; vllm-project/vllm#45276, 2026-06-11",
        ),
    ),
    takes=_OWN_SERVER,
    shape=vllm_error,
    manner=replace(REASONS, call_id=lambda hexed, _, __: f"chatcmpl-tool-{hexed[:16]}"),
)
_LLAMACPP: Final = Host(
    name="llamacpp",
    rules=(
        HostRule(
            name="no prefill while thinking",
            breaks=history.one_prefill(most=0),
            text="Assistant response prefill is incompatible with enable_thinking.",
            source="ggml-org/llama.cpp#20861; server-chat.cpp 03eb25f3, 2026",
        ),
        HostRule(
            name="known parts",
            breaks=history.no_part("text", "image_url", "input_audio", "video_url", "media_marker"),
            text="unsupported content[].type",
            source="ggml-org/llama.cpp#17700, 2025-12-02",
            status=500,
        ),
        HostRule(
            name="no null without calls",
            breaks=history.no_null,
            text="Expected 'content' to be a string or an array",
            source="browser-use/browser-use#1635, 2025-05-10",
            status=500,
        ),
    ),
    takes=_OWN_SERVER,
    shape=llamacpp_error,
    manner=replace(REASONS_CONTENT, call_id=lambda hexed, _, __: hexed),
)

OWN_SERVERS: Final = (
    _VLLM,
    replace(
        _VLLM,
        name="vllm-gemma",
        rules=(
            HostRule(
                name="roles alternate",
                breaks=history.alternates(counts_results=False),
                text="Conversation roles must alternate user/assistant/user/assistant/...",
                source=f"{_JINJA}; assumed: calls and results are passed over, as by Mistral's template",
            ),
            *_VLLM.rules,
        ),
    ),
    replace(
        _VLLM,
        name="vllm-mistral",
        rules=(
            HostRule(
                name="roles alternate",
                breaks=history.alternates(counts_results=False),
                text="After the optional system message, conversation roles must alternate user and "
                "assistant "
                "roles except for tool calls and results.",
                source="charmbracelet/crush#279, 2026-01-14; nomic-ai/gpt4all#3273, 2024-12-12, quotes the "
                "template",
            ),
            *_VLLM.rules,
        ),
    ),
    replace(_VLLM, name="vllm-qwen", rules=(_LATER_SYSTEM, _NO_USER, *_VLLM.rules)),
    Host(
        name="ollama",
        rules=(
            HostRule(
                name="pictures in the request",
                breaks=history.no_part(picture=lambda url: url.startswith("data:")),
                text="invalid image input",
                source="ollama openai/openai.go fb307609, 2026-08",
            ),
            HostRule(
                name="known parts",
                breaks=history.no_part("text", "image_url"),
                text="invalid message format",
                source="ollama openai/openai.go fb307609, 2026-08",
            ),
            HostRule(
                name="no null without calls",
                breaks=history.no_null,
                text="invalid message content type: <nil>",
                source="ollama openai/openai.go fb307609, 2026-08",
            ),
            HostRule(
                name="arguments are objects",
                breaks=history.arguments_are_objects,
                text="invalid tool call arguments",
                source="ollama openai/openai.go fb307609, 2026-08",
            ),
        ),
        takes=_OWN_SERVER,
        shape=ollama_error,
        manner=replace(REASONS, call_id=lambda hexed, _, __: f"call_{hexed[:8]}"),
    ),
    _LLAMACPP,
    replace(_LLAMACPP, name="llamacpp-gpt-oss", rules=(_THREE, *_LLAMACPP.rules)),
    replace(
        _LLAMACPP,
        name="llamacpp-qwen",
        rules=(replace(_LATER_SYSTEM, status=500), replace(_NO_USER, status=500), *_LLAMACPP.rules),
    ),
    Host(
        name="lmstudio",
        rules=(
            replace(
                _THREE,
                text=f'Error rendering prompt with jinja template: "{_THREE.text}"',
                source="lmstudio-ai/lmstudio-bug-tracker#842, 2025-08-05",
                status=400,
            ),
            replace(_NO_USER, text=f'Error rendering prompt with jinja template: "{_NO_USER.text}"'),
        ),
        takes=_OWN_SERVER,
        shape=openai_error,
        manner=REASONS_CONTENT,
    ),
)
