"""What a server's URL says about whose server it is.

Owns: the endpoint family of a base URL. Must never know: an SDK, a request.
"""

from __future__ import annotations

__all__ = ["endpoint_family", "is_plain_loopback"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AZURE = (".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


def endpoint_family(base_url: str | None) -> str:
    """Name the family that a base URL belongs to.

    Returns:
        "openai" for api.openai.com, its regions, and no URL at all; "azure" for Azure's resource hosts;
        "local" for this machine; for every other server its host name, without the port.
    """
    if not base_url:
        return "openai"
    host = _host(base_url)
    if host == "api.openai.com" or host.endswith(".api.openai.com"):
        return "openai"
    if host.endswith(_AZURE):
        return "azure"
    return "local" if host in _LOOPBACK else host


def is_plain_loopback(base_url: str | None) -> bool:
    """True for ``http://`` on this machine."""
    return bool(base_url) and str(base_url).startswith("http://") and _host(str(base_url)) in _LOOPBACK


def _host(base_url: str) -> str:
    from urllib.parse import urlsplit  # not at the top: a backend named by a string may never need it

    return urlsplit(base_url).hostname or ""
