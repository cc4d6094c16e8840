"""Finds the operator of a server from its URL.

Owns: the endpoint family of a base URL. Must never know: an SDK, a request.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["checked_url", "endpoint_family", "is_plain_loopback"]

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
