"""Facts about models by name, in one dated table.

Owns: facts about models, each with its source. Must never know: a provider API, a request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ..values import Value

__all__ = ["AS_OF", "Capabilities", "capabilities"]

AS_OF: Final = "2026-11"


class Capabilities(Value, frozen=True, kw_only=True):
    """What a model accepts. None means unknown. The caller's own value always wins.

    Attributes:
        context_window: Input tokens that fit; None if not known.
        default_output_tokens: The output limit where the provider API needs one, as Anthropic's does.
            Thinking counts towards it.
        takes_system_messages: True: a system message may stand in the middle of the history. False for
            unknown models.
        binds_thinking: True: a signed thinking block is valid only after the same prefix with which it was
            made. Such a model thinks by default.
        reads_breakpoints: True: the provider's cache finds only prefixes that end at a breakpoint.
    """

    context_window: int | None = None
    default_output_tokens: int = 8_192
    takes_system_messages: bool = False
    binds_thinking: bool | None = None
    reads_breakpoints: bool = False


_GPT_NEWER: Final = Capabilities(reads_breakpoints=True)
_GPT_5: Final = Capabilities(context_window=272_000)  # 400,000 in all, 128,000 of them for the answer

_CLAUDE_NEWEST: Final = Capabilities(
    context_window=1_000_000, default_output_tokens=16_384, takes_system_messages=True, binds_thinking=True
)
_CLAUDE_5: Final = Capabilities(
    context_window=1_000_000, default_output_tokens=16_384, takes_system_messages=True, binds_thinking=False
)
_CLAUDE_1M: Final = Capabilities(context_window=1_000_000, default_output_tokens=16_384, binds_thinking=False)
_CLAUDE_200K: Final = Capabilities(context_window=200_000, binds_thinking=False)
_CLAUDE_3: Final = Capabilities(context_window=200_000, default_output_tokens=4_096, binds_thinking=False)

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
_TABLE: Final = (
    ("gpt-3.5-turbo*", Capabilities(context_window=16_385)),
    ("gpt-4.1*", Capabilities(context_window=1_047_576)),
    ("gpt-4o*", Capabilities(context_window=128_000)),
    ("gpt-5-chat*", Capabilities(context_window=128_000)),
    ("gpt-5.1-chat*", Capabilities(context_window=128_000)),
    ("gpt-5", _GPT_5),
    ("gpt-5-*", _GPT_5),
    ("gpt-5.1*", _GPT_5),
    ("gpt-5.6*", _GPT_NEWER),
    ("gpt-6*", _GPT_NEWER),
    ("o3", Capabilities(context_window=200_000)),
    ("o3-*", Capabilities(context_window=200_000)),
    ("o4-mini*", Capabilities(context_window=200_000)),
    ("claude-fable-5-1", _CLAUDE_NEWEST),
    ("claude-fable-5-2", _CLAUDE_NEWEST),
    ("claude-mythos-5-1", _CLAUDE_NEWEST),
    ("claude-mythos-5-2", _CLAUDE_NEWEST),
    ("claude-opus-5-5", _CLAUDE_NEWEST),
    ("claude-sonnet-5-5", _CLAUDE_NEWEST),
    ("claude-haiku-5-5", _CLAUDE_NEWEST),
    ("claude-fable-5", _CLAUDE_5),
    ("claude-mythos-5", _CLAUDE_5),
    ("claude-opus-5", _CLAUDE_5),
    ("claude-opus-4-8", _CLAUDE_5),
    ("claude-sonnet-5", _CLAUDE_1M),
    ("claude-opus-4-6", _CLAUDE_1M),
    ("claude-opus-4-7", _CLAUDE_1M),
    ("claude-sonnet-4-6", _CLAUDE_1M),
    ("claude-opus-4", _CLAUDE_200K),
    ("claude-opus-4-0", _CLAUDE_200K),
    ("claude-opus-4-1", _CLAUDE_200K),
    ("claude-opus-4-5", _CLAUDE_200K),
    ("claude-sonnet-4", _CLAUDE_200K),
    ("claude-sonnet-4-0", _CLAUDE_200K),
    ("claude-sonnet-4-5", _CLAUDE_200K),
    ("claude-haiku-4-5", _CLAUDE_200K),
    ("claude-3-5-*", _CLAUDE_200K),
    ("claude-3-7-*", _CLAUDE_200K),
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
