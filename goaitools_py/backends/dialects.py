"""Dialects by the name of their provider API, and the operator of a server by its URL.

Owns: which name means which dialect, when the caller's own dialect counts, and which URL means which
operator. Must never know: a connection, or why a state is read.

A dialect's module is imported when it is first needed, because most programs use one.
"""

from __future__ import annotations

from functools import lru_cache

from ..types.errors import StateProviderError
from .base import Dialect

__all__ = [
    "WIRES",
    "checked_url",
    "dialect_for",
    "dialect_of",
    "endpoint_family",
    "is_plain_loopback",
    "known_dialect",
]

WIRES = ("openai", "openai-responses", "anthropic")
"""The provider APIs of the states that this release can read."""


def dialect_of(wire: str, *, family: str | None = None, model: str = "") -> Dialect:
    """The dialect of a provider API.

    Args:
        wire: One of `WIRES`.
        family: The operator of the endpoint; None for the company that made the provider API.
        model: The model, if the dialect's requests depend on it; "" if unknown.

    Raises:
        ValueError: This release does not have the provider API.
    """
    match wire:
        case "openai":
            from .openai_chat.dialect import OpenAIChatDialect

            return OpenAIChatDialect(family or "openai")
        case "openai-responses":
            from .openai_responses.dialect import OpenAIResponsesDialect

            return OpenAIResponsesDialect(family or "openai")
        case "anthropic":
            from .anthropic.dialect import AnthropicDialect

            return AnthropicDialect(family=family or "anthropic", model=model)
    raise ValueError(
        f"this release cannot read entries of the provider API {wire!r}; it speaks {', '.join(WIRES)}"
    )


_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OWN = {"openai": "api.openai.com", "anthropic": "api.anthropic.com"}
_AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")
_AWS = ("bedrock-mantle.", "bedrock-runtime.", "aws-external-anthropic.")
"""Prefixes of the hosts that both SDKs use for an AWS region, such as bedrock-mantle.us-east-1.api.aws."""
_AWS_ENDS = (".api.aws", ".amazonaws.com")


def checked_url(base_url: object) -> None:
    """Raise ValueError for an address without its scheme: no request would ever get there."""
    if isinstance(base_url, str) and base_url and not base_url.startswith(("http://", "https://")):
        raise ValueError("base_url must begin with http:// or https://, such as http://127.0.0.1:11434/v1")


@lru_cache(maxsize=256)
def endpoint_family(base_url: str | None, wire: str = "openai") -> str:
    """Name the family that a base URL belongs to.

    Args:
        base_url: None or "" for the SDK's default.
        wire: The provider API of the server.

    Returns:
        "openai" and "anthropic" for the companies' own hosts and their regions; "azure" for Azure's resource
        hosts, which on "anthropic" are "foundry"; "aws" for Bedrock and Anthropic's gateway at AWS;
        "local" for this machine; for every other server its host name, without the port.
    """
    if not base_url:
        return "anthropic" if wire == "anthropic" else "openai"
    host = _host(base_url)
    for company, own in _OWN.items():
        if host == own or host.endswith("." + own):
            return company
    if host.endswith(_AZURE):
        return "foundry" if wire == "anthropic" else "azure"
    if host.startswith(_AWS) and host.endswith(_AWS_ENDS):
        return "aws"
    return "local" if host in _LOOPBACK else host


def is_plain_loopback(base_url: str | None) -> bool:
    """True for ``http://`` on this machine."""
    return bool(base_url) and str(base_url).startswith("http://") and _host(str(base_url)) in _LOOPBACK


def _host(base_url: str) -> str:
    from urllib.parse import urlsplit  # not at the top: a backend named by a string may never need it

    return urlsplit(base_url).hostname or ""


def dialect_for(wire: str, dialect: Dialect | None) -> Dialect:
    """The dialect of a state's provider API. `dialect`: for a provider API that is not built in.

    Raises `StateProviderError` if neither `dialect` nor a built-in dialect fits.
    """
    if dialect is not None and dialect.wire == wire:
        return dialect
    if dialect is not None or wire not in WIRES:
        known = dialect.wire if dialect is not None else ", ".join(WIRES)
        raise StateProviderError(
            f"the state's entries are of the wire {wire[:40]!r}, and the dialects at hand read {known}; pass "
            "the dialect= that wrote them",
            expected=known,
            found=wire,
        )
    return dialect_of(wire)


def known_dialect(wire: str) -> Dialect | None:
    """The dialect of a built-in provider API; None for another name."""
    return dialect_of(wire) if wire in WIRES else None
