"""The rules of known hosts, in one dated table, so that the first request is right.

Owns: the rows, each with its date and source. Must never know: how a rule changes a request, or which rules
were learned from a refusal.

Most rules are of a model or of a route, and are learned from the refusal. A row stands here only if the host
is sure to have the rule, and if a host without it would lose nothing that matters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from .host_rules import joined_rules
from .protocols import HostRules

__all__ = ["ROWS", "KnownHost", "known_rules"]


class KnownHost(NamedTuple):
    """The rules of one host.

    Attributes:
        wire: The provider API.
        host: The endpoint family, or the host with its port. A ``*`` at its beginning stands for any text.
        model: The model's name, in lower case. A ``*`` at its beginning or end stands for any text.
        letters: Letters of `host_rules.RULES`.
        since: The month in which this was first seen.
        source: Where it was seen.
    """

    wire: str
    host: str
    model: str
    letters: str
    since: str
    source: str


ROWS: Final = (
    KnownHost(
        "anthropic",
        "anthropic",
        "*",
        "w",
        "2026-09",
        "platform.claude.com/docs, vision; can1357/oh-my-pi#10633",
    ),
    KnownHost("anthropic", "aws", "*", "w", "2026-09", "as for Anthropic"),
    KnownHost("anthropic", "foundry", "*", "w", "2026-09", "as for Anthropic"),
    KnownHost(
        "anthropic", "claude.googleapis.com", "*", "sw", "2026-09", "neurolink#1772 (s); as for Anthropic"
    ),
    KnownHost(
        "anthropic", "api.deepseek.com", "*", "k", "2026-05", "hermes-agent#22313; QwenLM/qwen-code#3788"
    ),
    KnownHost(
        "openai-responses", "*:11434", "*", "p", "2026-08", "ollama/ollama openai/responses.go at 017eb8a"
    ),
    KnownHost(
        "openai",
        "api.deepseek.com",
        "*",
        "dk",
        "2025-12",
        "api-docs.deepseek.com, guides/thinking_mode: turns with calls need `reasoning_content` in all later "
        "requests, other turns ignore it; anomalyco/opencode#17523, MoonshotAI/kimi-cli#2141; no role "
        "`developer`: earendil-works/pi#1048, theopenco/llmgateway#3462",
    ),
    KnownHost(
        "openai",
        "*.moonshot.ai",
        "*",
        "e",
        "2025-07",
        "lobehub/lobehub#8419, MoonshotAI/kimi-code#1985: an assistant's message 'must not be empty'; "
        "BerriAI/litellm#42186: nor may a text part",
    ),
    KnownHost("openai", "*.moonshot.cn", "*", "e", "2025-07", "lobehub/lobehub#8419"),
    KnownHost(
        "openai",
        "*.moonshot.ai",
        "kimi-*",
        "k",
        "2026-01",
        "continuedev/continue#11600, openclaw/openclaw#74846: 'reasoning_content is missing in assistant "
        "tool call message'; models moonshot-v1 do not think (continue#11806)",
    ),
    KnownHost("openai", "*.moonshot.cn", "kimi-*", "k", "2026-01", "continuedev/continue#11600"),
    KnownHost(
        "openai",
        "api.mistral.ai",
        "*",
        "iluy",
        "2025-05",
        "mistralai/mistral-vibe#1075 (i, code 3280); 0xPlaygrounds/rig#1130 (l); charmbracelet/crush#1590, "
        "BerriAI/litellm#30835 (y: closed request types, but its own `index` of a call is taken back); "
        "avante-corp/avante.nvim#2562 (u, code 3230)",
    ),
    KnownHost(
        "openai",
        "api.groq.com",
        "*",
        "y",
        "2024-09",
        "console.groq.com/docs/openai: `messages[].name` is not supported, seen 2026-11",
    ),
    KnownHost(
        "openai",
        "api.groq.com",
        "openai/gpt-oss-*",
        "q",
        "2026-05",
        "janhq/jan#8136: 'reasoning_content' is unsupported; groq-python 0681348, types/chat: `reasoning` is "
        "a member of an assistant's message",
    ),
    KnownHost("openai", "api.groq.com", "qwen/qwen3*", "q", "2026-05", "as for gpt-oss"),
    KnownHost(
        "openai",
        "api.groq.com",
        "meta-llama/*",
        "r",
        "2026-04",
        "NousResearch/hermes-agent#11089; vercel/ai#8057: models that do not think take no reasoning",
    ),
    KnownHost("openai", "api.groq.com", "llama-*", "r", "2026-04", "as for meta-llama"),
    KnownHost(
        "openai",
        "api.groq.com",
        "moonshotai/kimi-k2-instruct*",
        "r",
        "2025-08",
        "vercel/ai#8057: 'reasoning is not supported with this model'; musistudio/claude-code-router#1204",
    ),
    KnownHost(
        "openai",
        "api.cerebras.ai",
        "*",
        "dq",
        "2026-05",
        "QwenLM/qwen-code#11045, proxysoul/Empryo#209: takes `reasoning`, and answers 400 `wrong_api_format` "
        "to `reasoning_content`; docs of agentjido/req_llm: no role `developer`",
    ),
    KnownHost(
        "openai",
        "generativelanguage.googleapis.com",
        "*",
        "g",
        "2025-11",
        "ai.google.dev/gemini-api/docs/thought-signatures; securo-finance/securo#884",
    ),
    KnownHost(
        "openai",
        "*aiplatform.googleapis.com",
        "google/gemini-*",
        "g",
        "2025-11",
        "cloud.google.com/vertex-ai, thought signatures; dify-official-plugins#2088",
    ),
    KnownHost(
        "openai",
        "api.perplexity.ai",
        "*",
        "a",
        "2024-02",
        "edenai/edenai-apis#144, perplexityai/api-discussion#265: 'user and assistant roles should be "
        "alternating'",
    ),
    KnownHost(
        "openai",
        "api.cloudflare.com",
        "*",
        "n",
        "2025-12",
        "TencentCloud/TencentDB-Agent-Memory#1313, zeroclaw-labs/zeroclaw#9493: null content is refused",
    ),
    KnownHost(
        "openai", "gateway.ai.cloudflare.com", "*workers-ai/*", "n", "2025-12", "zeroclaw-labs/zeroclaw#9493"
    ),
    KnownHost(
        "openai",
        "*.minimax.io",
        "*",
        "s",
        "2026-05",
        "can1357/oh-my-pi#954: 'invalid chat setting (2013)', 'invalid message role: system (2013)'",
    ),
    KnownHost(
        "openai", "*.minimaxi.com", "*", "s", "2026-05", "can1357/oh-my-pi#955; netease-youdao/LobsterAI#104"
    ),
    KnownHost(
        "openai",
        "*.aliyuncs.com",
        "*",
        "d",
        "2025-12",
        "DayuanJiang/next-ai-draw-io#304, proma-ai/Proma#1496, DashScope's page of error codes",
    ),
    KnownHost("openai", "api.together.xyz", "*", "d", "2026-05", "earendil-works/pi, its table of servers"),
    KnownHost("openai", "api.together.ai", "*", "d", "2026-05", "earendil-works/pi, its table of servers"),
    KnownHost(
        "openai",
        "ollama.com",
        "*",
        "q",
        "2026-08",
        "ollama/ollama fb307609, openai.go: only `reasoning` is read",
    ),
    KnownHost("openai", "*:11434", "*", "q", "2026-08", "as for ollama.com"),
)
"""All rows that match count."""

_NONE: Final = HostRules()


@lru_cache(maxsize=256)
def known_rules(wire: str, family: str, host: str, model: str) -> HostRules:
    """The rules that a host is known to have for a model.

    Args:
        wire: The provider API.
        family: The endpoint family.
        host: The host and port; "" for the provider's own.
        model: The model's name.
    """
    found, name = "", model.lower()
    for row in ROWS:
        if row.wire == wire and (_fits(row.host, family) or _fits(row.host, host)) and _fits(row.model, name):
            found = joined_rules(found, row.letters)
    return HostRules(letters=found) if found else _NONE


def _fits(pattern: str, name: str) -> bool:
    """`fnmatch` would compile a regular expression for each pattern: 3 ms of the first turn."""
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "*":
        return pattern[1:-1] in name
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
