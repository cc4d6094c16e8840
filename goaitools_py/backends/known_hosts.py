"""What known hosts need in a request, in one dated table, so that the first request is right.

Owns: the rows for OpenAI Responses and Anthropic Messages, each with its source. Must never know: how a rule
changes a request, or what was learned from a refusal.

Most rules are of a model or of a route, and are learned from the refusal. A row stands here only if the host
is sure to have the rule, and if a host without it would lose nothing that matters.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

from .protocols import HostRules

__all__ = ["ROWS", "Row", "known_rules"]


class Row(NamedTuple):
    """The rules of one host.

    Attributes:
        wire: The provider API.
        host: A pattern for the endpoint family, or for the host with its port.
        model: A pattern for the model's name, in lower case.
        letters: Letters of `host_rules.RULES`.
        since: The month in which this was known, and the source.
    """

    wire: str
    host: str
    model: str
    letters: str
    since: str


ROWS: Final = (
    Row(
        "anthropic",
        "anthropic",
        "*",
        "w",
        "2026-09; platform.claude.com/docs, vision; can1357/oh-my-pi#10633",
    ),
    Row("anthropic", "aws", "*", "w", "2026-09; the same"),
    Row("anthropic", "foundry", "*", "w", "2026-09; the same"),
    Row("anthropic", "claude.googleapis.com", "*", "sw", '2026-09; the same; neurolink#1772 for "s"'),
    Row("anthropic", "api.deepseek.com", "*", "k", "2026-05; hermes-agent#22313; QwenLM/qwen-code#3788"),
    Row("openai-responses", "*:11434", "*", "p", "2026-08; ollama/ollama openai/responses.go at 017eb8a"),
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
    name = model.lower()
    found = {
        letter
        for row in ROWS
        if row.wire == wire and fnmatchcase(name, row.model)
        if fnmatchcase(family, row.host) or fnmatchcase(host, row.host)
        for letter in row.letters
    }
    return HostRules(letters="".join(sorted(found))) if found else _NONE
