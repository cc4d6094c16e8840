"""Facts about models by name, in one table, as of 2026-11.

Owns: facts about models, each with its source. Must never know: a provider API, a request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from ..base.values import Value, replace

__all__ = ["EFFORTS", "Capabilities", "capabilities"]

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The providers' words for how much a model thinks, from the least to the most."""


class Capabilities(Value, frozen=True, kw_only=True):
    """The settings and parts that a model accepts. None means unknown. The caller's own value always wins.

    Attributes:
        context_window: Input tokens that fit; None if not known.
        default_output_tokens: The output limit where the provider API needs one, as Anthropic's does.
            Thinking counts towards it.
        takes_system_messages: True: a system message may stand in the middle of the history. False for
            unknown models.
        binds_thinking: True: a signed thinking block is valid only after the same prefix with which it was
            made. These models think by default.
        reads_breakpoints: True: the provider's cache finds only prefixes that end at a breakpoint.
        max_output_tokens: The largest output limit that is taken.
        efforts: The words of `EFFORTS` that the model takes; () if it takes no effort at all.
        default_effort: The effort without a word.
        thinking: The types of a thinking configuration that are taken (Anthropic).
        keeps_thinking_above_high: True: thinking cannot be switched off at an effort above "high".
        sampling: Which sampling settings are taken. "free": all. "one": not temperature and top_p together.
            "unreasoned": only at the effort "none". "refused": none.
        forced_tools: False: a request that forces a tool call is refused.
        stops: False: stop sequences are refused.
        parallel_switch: False: the switch for parallel tool calls is refused.
        reasons_with_tools: False: on Chat Completions, tools need the effort "none".
    """

    context_window: int | None = None
    default_output_tokens: int = 8_192
    takes_system_messages: bool = False
    binds_thinking: bool | None = None
    reads_breakpoints: bool = False
    max_output_tokens: int | None = None
    efforts: tuple[str, ...] | None = None
    default_effort: str | None = None
    thinking: tuple[str, ...] | None = None
    keeps_thinking_above_high: bool = False
    sampling: Literal["free", "one", "unreasoned", "refused"] | None = None
    forced_tools: bool | None = None
    stops: bool | None = None
    parallel_switch: bool | None = None
    reasons_with_tools: bool | None = None


_FIVE: Final = EFFORTS[2:]

_GPT_5: Final = Capabilities(
    context_window=272_000,  # 400,000 in all, 128,000 of them for the answer
    max_output_tokens=128_000,
    efforts=("minimal", "low", "medium", "high"),
    default_effort="medium",
    sampling="refused",
    stops=False,
)
_GPT_5_CODEX: Final = replace(_GPT_5, efforts=("low", "medium", "high"))
_GPT_5_PRO: Final = Capabilities(context_window=272_000, efforts=("high",), sampling="refused", stops=False)
_GPT_5_1: Final = replace(
    _GPT_5, efforts=("none", "low", "medium", "high"), default_effort="none", sampling="unreasoned"
)
_GPT_5_2: Final = Capabilities(
    max_output_tokens=128_000,
    efforts=EFFORTS[:1] + EFFORTS[2:6],
    default_effort="none",
    sampling="unreasoned",
)
_GPT_5_6: Final = Capabilities(
    reads_breakpoints=True,
    max_output_tokens=128_000,
    efforts=EFFORTS[:1] + EFFORTS[2:],
    default_effort="medium",
    sampling="unreasoned",
    reasons_with_tools=False,
)
_GPT_6: Final = Capabilities(reads_breakpoints=True, sampling="unreasoned")
_O_MINI: Final = Capabilities(
    context_window=200_000,
    max_output_tokens=100_000,
    efforts=("low", "medium", "high"),
    default_effort="medium",
    sampling="refused",
    parallel_switch=False,
)
_O: Final = replace(_O_MINI, stops=False)

_CLAUDE_NEWEST: Final = Capabilities(
    context_window=1_000_000,
    default_output_tokens=16_384,
    takes_system_messages=True,
    binds_thinking=True,
    max_output_tokens=128_000,
    efforts=_FIVE,
    thinking=("adaptive",),
    sampling="refused",
    forced_tools=False,
)
_CLAUDE_5: Final = replace(_CLAUDE_NEWEST, binds_thinking=False, forced_tools=None)
_CLAUDE_5_SWITCHED: Final = replace(_CLAUDE_5, thinking=("adaptive", "disabled"))
_CLAUDE_1M: Final = replace(_CLAUDE_5_SWITCHED, takes_system_messages=False)
_CLAUDE_4_6: Final = replace(
    _CLAUDE_1M,
    efforts=("low", "medium", "high", "max"),
    thinking=("adaptive", "enabled", "disabled"),
    sampling="one",
)
_CLAUDE_200K: Final = Capabilities(
    context_window=200_000,
    binds_thinking=False,
    max_output_tokens=64_000,
    efforts=(),
    thinking=("enabled", "disabled"),
)
_CLAUDE_4_5: Final = replace(_CLAUDE_200K, sampling="one")
_CLAUDE_3_5: Final = replace(_CLAUDE_200K, max_output_tokens=8_192, thinking=())
_CLAUDE_3: Final = replace(_CLAUDE_3_5, default_output_tokens=4_096, max_output_tokens=4_096)

# The first matching row wins. A name that ends with "*" is a prefix. (No patterns: to compile them would take
# 3 ms of the first turn.) A provider's prefix ("openai/", "us.anthropic.") and "ft:" are removed
# first. Sources:
# - OpenAI: the model pages at platform.openai.com/docs/models, in the reading of OpenAI's own client
#   (github.com/openai/codex, codex-rs/core/src/openai_model_info.rs). reads_breakpoints: prompt caching
#   guide, "GPT-5.6 models and later model families", and openai 3.54, types/responses.
# - Claude: platform.claude.com/docs/en/models/overview (windows), .../build-with-claude/preserved-thinking
#   (binds_thinking: "Starting with Claude Fable 5.1", and the supported models listed there), and for
#   system messages recorded 200s of opus-4-8 and fable-5, .../models/whats-new-claude-4-8 ("accepts
#   role: system") and docs.rs/gproxy-transform (sonnet-5 refuses them, as do all before opus-4-8).
# Settings that a model refuses:
# - Claude: platform.claude.com/docs, .../build-with-claude/thinking and .../effort (types, words by model),
#   .../models/{opus-5-5,sonnet-5-5,haiku-5-5,sonnet-5}/migration-guide (settings answered with 400),
#   .../whats-new-opus-5 (thinking cannot be switched off above "high"), AWS Bedrock's user guide
#   (claude-messages-adaptive-thinking: fable-5 and mythos-5). The models that refuse sampling are Anthropic's
#   list, as read by docs.memberjunction.org (RejectsSamplingParams). "This model does not support the effort
#   parameter": Oaklight/llm-rosetta#289 (haiku-4-5). One of temperature and top_p: comet-ml/opik#4307.
# - OpenAI: developers.openai.com/api/docs/guides/reasoning and .../deployment-checklist ("When reasoning
#   effort is not none, remove temperature, top_p"; tools on Chat Completions only at the effort "none");
#   effort words by model: learn.microsoft.com (@azure/ai-projects, ReasoningEffort), sst/opencode#4451,
#   bolna-ai/bolna#852; stop: huggingface/smolagents#1662, #1893, crewAIInc/crewAI#5144; the switch for
#   parallel calls: evalstate/fast-agent#279; output limits: charmbracelet/catwalk#41 and the model pages.
_TABLE: Final = (
    (
        "gpt-3.5-turbo*",
        Capabilities(context_window=16_385, max_output_tokens=4_096, efforts=(), sampling="free"),
    ),
    (
        "gpt-4.1*",
        Capabilities(context_window=1_047_576, max_output_tokens=32_768, efforts=(), sampling="free"),
    ),
    ("gpt-4o*", Capabilities(context_window=128_000, max_output_tokens=16_384, efforts=(), sampling="free")),
    ("gpt-5-chat*", Capabilities(context_window=128_000, max_output_tokens=16_384, efforts=())),
    ("gpt-5.1-chat*", Capabilities(context_window=128_000)),
    ("gpt-5", _GPT_5),
    ("gpt-5-codex*", _GPT_5_CODEX),
    ("gpt-5-pro*", _GPT_5_PRO),
    ("gpt-5-*", _GPT_5),
    ("gpt-5.1-codex-max*", replace(_GPT_5_CODEX, efforts=("low", "medium", "high", "xhigh"))),
    ("gpt-5.1-codex*", _GPT_5_CODEX),
    ("gpt-5.1*", _GPT_5_1),
    ("gpt-5.2", replace(_GPT_5_2, stops=False)),
    ("gpt-5.2-20*", replace(_GPT_5_2, stops=False)),
    ("gpt-5.4", _GPT_5_2),
    ("gpt-5.4-20*", _GPT_5_2),
    ("gpt-5.4-mini*", _GPT_5_2),
    ("gpt-5.4-nano*", _GPT_5_2),
    ("gpt-5.6*", _GPT_5_6),
    ("gpt-6-sol*", replace(_GPT_6, reasons_with_tools=False)),
    ("gpt-6-luna*", replace(_GPT_6, reasons_with_tools=False)),
    ("gpt-6*", _GPT_6),
    ("o3", _O),
    ("o3-mini*", _O_MINI),
    ("o3-*", _O),
    ("o4-mini*", _O),
    ("claude-fable-5-1", _CLAUDE_NEWEST),
    ("claude-fable-5-2", _CLAUDE_NEWEST),
    ("claude-mythos-5-1", _CLAUDE_NEWEST),
    ("claude-mythos-5-2", _CLAUDE_NEWEST),
    ("claude-opus-5-5", _CLAUDE_NEWEST),
    ("claude-sonnet-5-5", replace(_CLAUDE_NEWEST, thinking=("adaptive", "between_tools"))),
    (
        "claude-haiku-5-5",
        replace(
            _CLAUDE_NEWEST,
            thinking=("adaptive", "disabled"),
            keeps_thinking_above_high=True,
            forced_tools=None,
        ),
    ),
    ("claude-fable-5", _CLAUDE_5),
    ("claude-mythos-5", _CLAUDE_5),
    ("claude-opus-5", replace(_CLAUDE_5_SWITCHED, keeps_thinking_above_high=True)),
    ("claude-opus-4-8", _CLAUDE_5_SWITCHED),
    ("claude-sonnet-5", _CLAUDE_1M),
    ("claude-opus-4-6", _CLAUDE_4_6),
    ("claude-opus-4-7", _CLAUDE_1M),
    ("claude-sonnet-4-6", _CLAUDE_4_6),
    ("claude-opus-4", replace(_CLAUDE_200K, max_output_tokens=32_000)),
    ("claude-opus-4-0", replace(_CLAUDE_200K, max_output_tokens=32_000)),
    ("claude-opus-4-1", replace(_CLAUDE_4_5, max_output_tokens=32_000)),
    ("claude-opus-4-5", replace(_CLAUDE_4_5, efforts=("low", "medium", "high"))),
    ("claude-sonnet-4", _CLAUDE_200K),
    ("claude-sonnet-4-0", _CLAUDE_200K),
    ("claude-sonnet-4-5", _CLAUDE_4_5),
    ("claude-haiku-4-5", _CLAUDE_4_5),
    ("claude-3-5-*", _CLAUDE_3_5),
    ("claude-3-7-*", replace(_CLAUDE_200K, max_output_tokens=128_000)),
    ("claude-3-opus", _CLAUDE_3),
    ("claude-3-haiku", _CLAUDE_3),
)
_UNKNOWN: Final = Capabilities()


_CLAUDE_SUFFIX: Final = re.compile(r"(?:-latest|[-@]20\d{6})?(?:-v\d+(?::\d+)?)?$")
"""A snapshot's date, and the version that Bedrock adds."""


@lru_cache(maxsize=256)
def capabilities(model: str) -> Capabilities:
    """Look up a model by name. An unknown model gets the conservative values."""
    name = model.rpartition("/")[2].removeprefix("ft:").lower()
    if "claude-" in name:
        name = _CLAUDE_SUFFIX.sub("", name.rpartition("anthropic.")[2])  # Bedrock: "us.anthropic.claude-…"
    for known_name, known in _TABLE:
        if name.startswith(known_name[:-1]) if known_name.endswith("*") else name == known_name:
            return known
    return _UNKNOWN
