"""What known hosts of Chat Completions are known to need, in one dated table.

Owns: the rows, each with its source. Must never know: a request, or what a refusal says.

With a row the first request to a host is right. Most rules are of a model or of its template, so they are
learned from a refusal. Here stand those of a host itself, or of its own models, and only those that do no
harm where they should not be needed any more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ..host_rules import joined_rules

__all__ = ["AS_OF", "HOSTS", "HostRow", "known_letters_of"]

AS_OF: Final = "2026-11"


class HostRow(NamedTuple):
    """One row of the table.

    Attributes:
        family: The family of an endpoint. A ``*`` at its beginning stands for any text.
        model: The model's name, in lower case. A ``*`` at its end stands for any text.
        letters: The rules, each a letter of `host_rules.RULES`.
        since: When it was first seen.
        source: Where it was seen.
    """

    family: str
    model: str
    letters: str
    since: str
    source: str


HOSTS: Final = (
    HostRow(
        "api.deepseek.com",
        "*",
        "dk",
        "2025-12",
        "api-docs.deepseek.com, guides/thinking_mode: turns with calls need `reasoning_content` in all later "
        "requests, other turns ignore it; anomalyco/opencode#17523, MoonshotAI/kimi-cli#2141; no role "
        "`developer`: earendil-works/pi#1048, theopenco/llmgateway#3462",
    ),
    HostRow(
        "*.moonshot.ai",
        "*",
        "e",
        "2026-07",
        "MoonshotAI/kimi-code#1985: an assistant's message 'must not be empty'",
    ),
    HostRow("*.moonshot.cn", "*", "e", "2026-07", "MoonshotAI/kimi-code#1985"),
    HostRow(
        "*.moonshot.ai",
        "kimi-*",
        "k",
        "2026-01",
        "continuedev/continue#11600, openclaw/openclaw#74846: 'reasoning_content is missing in assistant "
        "tool call message'; models moonshot-v1 do not think (continue#11806)",
    ),
    HostRow("*.moonshot.cn", "kimi-*", "k", "2026-01", "continuedev/continue#11600"),
    HostRow(
        "api.mistral.ai",
        "*",
        "ilmuy",
        "2025-05",
        "mistralai/mistral-vibe#1075 (i, code 3280); 0xPlaygrounds/rig#1130 (l); charmbracelet/crush#1590, "
        "BerriAI/litellm#30835 (m, y: closed request types); avante-corp/avante.nvim#2562 (u, code 3230)",
    ),
    HostRow(
        "api.groq.com",
        "*",
        "y",
        "2024-09",
        "console.groq.com/docs/openai: `messages[].name` is not supported, seen 2026-11",
    ),
    HostRow(
        "api.groq.com",
        "openai/gpt-oss-*",
        "q",
        "2026-05",
        "janhq/jan#8136: 'reasoning_content' is unsupported; groq-python 0681348, types/chat: `reasoning` is "
        "a member of an assistant's message",
    ),
    HostRow("api.groq.com", "qwen/qwen3*", "q", "2026-05", "as for gpt-oss"),
    HostRow(
        "api.groq.com",
        "meta-llama/*",
        "r",
        "2026-04",
        "NousResearch/hermes-agent#11089; vercel/ai#8057: models that do not think take no reasoning",
    ),
    HostRow("api.groq.com", "llama-*", "r", "2026-04", "as for meta-llama"),
    HostRow(
        "api.cerebras.ai",
        "*",
        "dq",
        "2026-05",
        "QwenLM/qwen-code#11045, proxysoul/Empryo#209: takes `reasoning`, and answers 400 `wrong_api_format` "
        "to `reasoning_content`; docs of agentjido/req_llm: no role `developer`",
    ),
    HostRow(
        "generativelanguage.googleapis.com",
        "*",
        "g",
        "2025-11",
        "ai.google.dev/gemini-api/docs/thought-signatures; securo-finance/securo#884",
    ),
    HostRow(
        "*aiplatform.googleapis.com",
        "google/gemini-*",
        "g",
        "2025-11",
        "cloud.google.com/vertex-ai, thought signatures; dify-official-plugins#2088",
    ),
    HostRow(
        "api.perplexity.ai",
        "*",
        "a",
        "2024-02",
        "perplexityai/api-discussion#265: 'user and assistant roles should be alternating'",
    ),
    HostRow(
        "api.cloudflare.com",
        "*",
        "n",
        "2025-12",
        "TencentCloud/TencentDB-Agent-Memory#1313, zeroclaw-labs/zeroclaw#9493: null content is refused",
    ),
    HostRow("gateway.ai.cloudflare.com", "*workers-ai/*", "n", "2025-12", "zeroclaw-labs/zeroclaw#9493"),
    HostRow(
        "*.minimax.io",
        "*",
        "s",
        "2026-05",
        "can1357/oh-my-pi#954: 'invalid chat setting (2013)', 'invalid message role: system (2013)'",
    ),
    HostRow("*.minimaxi.com", "*", "s", "2026-05", "can1357/oh-my-pi#954"),
    HostRow("*.aliyuncs.com", "*", "d", "2025-10", "cloudwego/eino#994, DashScope's page of error codes"),
    HostRow("api.together.xyz", "*", "d", "2026-05", "earendil-works/pi, its table of servers"),
    HostRow("api.together.ai", "*", "d", "2026-05", "earendil-works/pi, its table of servers"),
    HostRow("ollama.com", "*", "q", "2026-08", "ollama/ollama fb307609, openai.go: only `reasoning` is read"),
)
"""A later row's letters are added to those of the rows before it."""


@lru_cache(maxsize=256)
def known_letters_of(family: str, model: str) -> str:
    """The letters of a host for a model, sorted; "" for an unknown host.

    Args:
        family: The family of the endpoint, as `OpenAIChatDialect.family`.
        model: The model's name.
    """
    found = ""
    for row in HOSTS:
        if _fits(row.family, family.lower()) and _fits(row.model, model.lower()):
            found = joined_rules(found, row.letters)
    return found


def _fits(pattern: str, name: str) -> bool:
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "*":
        return pattern[1:-1] in name
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
