"""The words by which servers refuse a request: the history is too long, or the content is not allowed.

Owns: the codes and wordings of both, each with its source, and wordings that look alike but mean something
else. Must never know: a status, a provider API, the reaction to it.

A wording is searched in the error's own text only, without its quotations, in upper or lower case. Two errors
are not an overflow: a `max_tokens` that is too large by itself, because a shorter history would not help; and
a limit of tokens per minute, because waiting helps. Moderation is looked for only in answers with status 402
and 403: these mostly are about money and the key. All sources were looked at in 2026-11; "table" is the list
of `earendil-works/pi`, packages/ai/src/utils/overflow.ts at commit 17c253c; its maintainers send overlong
requests to the servers.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = ["CODES", "WORDINGS", "Wording", "is_moderation", "is_overflow"]


class Wording(NamedTuple):
    """One wording: the servers that use it, a regular expression, and where it was seen."""

    servers: str
    words: str
    source: str


CODES: Final = {
    "context_length_exceeded": "OpenAI, Azure, Groq, Cerebras; bytedance/deer-flow#310",
    "exceed_context_size_error": "llama.cpp; ggml-org/llama.cpp#15780",
    "model_context_window_exceeded": "Anthropic, z.ai; table",
    "too_many_prompt_tokens": "Perplexity; symfony/ai, .../Bridge/Perplexity/ResultConverter.php",
}
"""Codes and types of errors with this one meaning, and where they were seen."""

WORDINGS: Final = (
    Wording(
        "OpenAI, Azure, DeepSeek, vLLM, OpenRouter, NVIDIA NIM, SGLang, LiteLLM",
        "maximum context length",
        "bytedance/deer-flow#310, evalstate/fast-agent#621, vllm-project/vllm#20409, table, "
        "Alishahryar1/free-claude-code#391",
    ),
    Wording(
        "Ollama, its cloud", "model maximum context length", "seen in the tests of several public clients"
    ),
    Wording("OpenAI", "exceeds? the context window", "table"),
    Wording(
        "OpenAI, Azure",
        "input tokens exceed the configured limit",
        "BerriAI/litellm, litellm/litellm_core_utils/exception_mapping_utils.py at 002b24d",
    ),
    Wording("OpenAI, Groq, Cerebras", "reduce the length of the messages", "table"),
    Wording(
        "Cerebras",
        r"current length is \d+ while limit is \d+",
        "BerriAI/litellm, litellm/litellm_core_utils/exception_mapping_utils.py at 002b24d",
    ),
    Wording("many", "context[ _]length[ _]exceeded|context window (?:is )?(?:full|exceeded)", "table"),
    Wording("Anthropic", "prompt is too long", "earendil-works/pi#102, stackblitz/bolt.new#2449"),
    Wording(
        "Anthropic, for input and max_tokens together",
        "exceed context limit",
        "BerriAI/litellm, litellm/litellm_core_utils/exception_mapping_utils.py at 002b24d",
    ),
    Wording("Bedrock", "input is too long", "aws-samples/bedrock-chat#95"),
    Wording(
        "Gemini, Vertex AI", "input token count.{0,40} exceeds the maximum", "google-gemini/gemini-cli#6678"
    ),
    Wording("xAI", r"maximum prompt length is \d+", "cline/cline#3120"),
    Wording(
        "Mistral",
        r"too large for model with \d+ maximum context length",
        "table",
    ),
    Wording(
        "Together, SGLang",
        "is longer than the model'?s context length",
        "QwenLM/Qwen3#1321, table",
    ),
    Wording(
        "vLLM", "is longer than the maximum model length", "vllm-project/vllm#12165, xorbitsai/inference#3785"
    ),
    Wording("vLLM", r"prompt contains (?:at least )?\d+ input tokens", "AIDotNet/OpenCowork#82"),
    Wording("OpenRouter, Poolside", "exceeds (?:the )?maximum allowed input length", "table"),
    Wording("Hugging Face TGI", "`inputs` must have less than", "h2oai/h2ogpt#373"),
    Wording(
        "Hugging Face TGI, Together",
        "`inputs` tokens [+] `max_new_tokens` must be",
        "barun-saha/slide-deck-ai#44, bytedance/UI-TARS-desktop#626",
    ),
    Wording("llama.cpp", "exceeds the available context size", "ItzCrazyKns/Vane#1031"),
    Wording("llama.cpp, in mid-generation", "context size has been exceeded", "ggml-org/llama.cpp#15780"),
    Wording("LM Studio", "greater than the context length", "table"),
    Wording("Ollama", "prompt too long; exceeded (?:max )?context length", "table"),
    Wording(
        "Cohere",
        "too many tokens: ",
        "cohere-ai/sandbox-topically#4",
    ),
    Wording("Perplexity", "total length of all messages is too long", "symfony/ai, as for its code"),
    Wording("Perplexity", "user input tokens exceeds", "symfony/ai, as for its code"),
    Wording(
        "Perplexity",
        "following a prompt of length .{0,40} exceeds the max limit",
        "OpenRouterTeam/ai-sdk-provider#121",
    ),
    Wording("GitHub Copilot", r"prompt token count of \d+ exceeds the limit", "table"),
    Wording("MiniMax", "context window exceeds limit", "table"),
    Wording("Moonshot (Kimi)", "exceeded model token limit", "table"),
    Wording(
        "DashScope (Qwen)",
        "range of input length should be",
        "table of openxjarvis/pi-mono-python at 95c8dc1",
    ),
    Wording(
        "z.ai (GLM)",
        "prompt exceeds max length",
        "its code 1261; seen in the tests of several public clients",
    ),
    Wording("a gateway", "exceed max message tokens", "seen in the tests of a public client, unnamed"),
    Wording("Replicate", r"max input length is \d+ tokens", "run-llama/llama_index#7974"),
    Wording("LiteLLM", "ContextWindowExceededError", "entropy-research/Devon#88"),
    Wording("servers without a name", "too many tokens|token limit exceeded", "table"),
)
"""Each wording, with the servers that use it, and where it was seen."""

_RATE: Final = (
    r"rate[ _-]?limit|throttl|too many requests|please wait before"  # Bedrock: "Too many tokens, please wait"
    r"|(?:tokens?|requests?) per (?:second|minute|hour|day)|\b[TR]P[MD]\b|quota"
)
"""Words of a rate limit. They count more than any other words of the text."""

_OUTPUT: Final = (
    r"is too large: (?P<output>\d+).{0,80}?maximum context length is (?P<window>\d+)",  # vLLM
    r"maximum context length is (?P<window>\d+).{0,120}?requested (?P<output>\d+) output tokens",  # vLLM
    # OpenAI, DeepSeek, vLLM, OpenRouter
    r"maximum context length is (?P<window>\d+)"
    r".{0,160}?(?P<output>\d+) (?:in|for) the (?:completion|output)",
    r"must be <= (?P<window>\d+).{0,80}?(?P<output>\d+) `max_new_tokens`",  # TGI
    r"context limit: \d+ [+] (?P<output>\d+) > (?P<window>\d+)",  # Anthropic
)
"""Texts that name both numbers: how much output was asked for, and how much fits into the context."""


class _Patterns(NamedTuple):
    overflow: re.Pattern[str]
    rate: re.Pattern[str]
    output: tuple[re.Pattern[str], ...]


@cache
def _patterns() -> _Patterns:
    # Compiled at the first error: at import they would take a twentieth of its time.
    return _Patterns(
        re.compile("|".join(wording.words for wording in WORDINGS), re.IGNORECASE),
        re.compile(_RATE, re.IGNORECASE),
        tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _OUTPUT),
    )


def is_overflow(text: str) -> bool:
    """True if a server's text says that the history is too long, so that it would take a shorter one."""
    patterns = _patterns()
    if not patterns.overflow.search(text) or patterns.rate.search(text):
        return False
    found = next(filter(None, (pattern.search(text) for pattern in patterns.output)), None)
    return found is None or int(found["output"][:18]) < int(found["window"][:18])


_CODES: Final = frozenset(
    {
        "content_filter",  # Azure, OpenAI
        "content_policy_violation",  # OpenAI
        "contentfilter",  # Azure, in `innererror`
        "data_inspection_failed",  # DashScope
        "datainspectionfailed",  # DashScope
        "guardrail_intervened",  # Bedrock, behind gateways
        "moderation_blocked",  # OpenAI, images
        "responsibleaipolicyviolation",  # Azure
        "safety_violation",
        "sensitive_words_detected",  # gateways of the one-api family
    }
)
"""Codes and types of errors with this one meaning, in lower case."""

_MEMBERS: Final = ("reasons", "flagged_input")
"""Members of ``metadata`` that OpenRouter's moderation writes (openrouter.ai/docs, errors)."""

_WORDS: Final = (
    r"violat.{0,20}(?:usage guideline|content polic|usage polic|safety)",  # xAI: NativeTavern#83
    "safety_check",  # xAI
    "content safety check",  # Azure API Management, policy llm-content-safety, answers 403
    r"(?:input|prompt|content|messages?|request|text) (?:was|were|is|are|has been|have been) "
    r"(?:flagged|blocked|moderated|filtered)",  # OpenRouter: "your input was flagged"
    "blocked (?:by|due to) .{0,40}(?:guardrail|moderation|security configuration|content)",  # Cloudflare 2016
    "guardrail",  # Bedrock, Portkey, WSO2, Databricks
    "content (?:filter|moderation|management policy)",  # Azure, gateways
    "inappropriate content",  # DashScope
)
_ACCOUNT: Final = (
    r"\b(?:(?:account|organi[sz]ation|project|api[ _-]?key)\b.{0,40}|user (?:was|is|has been) )"
    r"\b(?:flagged|disabled|blocked|suspended|banned|deactivated)"  # not "the user message was blocked"
)
"""Words for a blocked account: another message would be refused as well. They count only if they come first.
Words after those of moderation may be the user's, without quotation marks. A message that is given back in
vain can be sent again, but one that stays blocks the conversation."""

_LONGEST: Final = 8192
"""Characters of a text that are searched."""

_pattern = cache(re.compile)


def is_moderation(error: object, names: Collection[str], words: str) -> bool:
    """Tell whether an error refuses the content of a request.

    Args:
        error: The error object of the answer.
        names: Its codes and types.
        words: Its text, without quotations.
    """
    metadata: Any = error.get("metadata") if isinstance(error, dict) else None
    if isinstance(metadata, dict) and any(metadata.get(name) for name in _MEMBERS):
        return True
    if any(name.lower() in _CODES for name in names):
        return True
    said = words[:_LONGEST].lower()
    found = _pattern("|".join(_WORDS)).search(said)
    return found is not None and not _pattern(_ACCOUNT).search(said, 0, found.end())
