"""The words by which servers say that a request is refused for its content, as one table.

Owns: codes and wordings of moderation, each with its source, and wordings about an account that look alike.
Must never know: a status, a provider API, the reaction to it.

Only answers with status 402 and 403 are searched: these mostly are about money and the key. Only the error's
own text is searched, without its quotations (`quoted`). All sources were looked at in 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any, Final

__all__ = ["is_moderation"]

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
