"""The checks of `goaitools doctor` that need no store.

Owns: versions, environment variables, servers and the clock. Must never know: how a finding is printed. The
value of a variable with a key is never in a finding.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final, Literal, NamedTuple

__all__ = ["Finding", "clock", "reached", "servers", "variables", "versions"]

Status = Literal["ok", "note", "problem"]

_NEEDED: Final = ("openai", "anthropic", "httpx", "orjson", "msgspec", "zstandard", "pydantic")
_EXTRAS: Final = {
    "aiohttp": "aiohttp",
    "asyncpg": "asyncpg",
    "crypto": "cryptography",
    "django": "django",
    "mcp": "mcp",
    "otel": "opentelemetry-api",
    "prices": "genai-prices",
    "psycopg": "psycopg",
    "redis": "redis",
    "serve": "starlette",
    "sqlalchemy": "sqlalchemy",
    "tiktoken": "tiktoken",
    "tui": "textual",
}
"""By extra: the first of its packages."""
_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY")
_SETTINGS: Final = (
    "GOAITOOLS_MODEL",
    "GOAITOOLS_STORE",
    "OPENAI_BASE_URL",
    "ANTHROPIC_BASE_URL",
    "HTTPS_PROXY",
)
_SERVERS: Final = (
    ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1"),
    ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    ("azure", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", ""),
)
_FIRST_YEAR: Final = 2026
"""A correct clock cannot be before this release."""
_SKEW: Final = 30.0
"""Seconds that a clock may differ from a server's: seals with `max_age` and leases work up to there."""


class Finding(NamedTuple):
    """The result of a check: "ok", "note" for a setting that may be intended, or "problem"."""

    name: str
    status: Status
    text: str


# ----------------------------------------------------------------------------------- installed packages


def versions() -> Iterator[Finding]:
    """Python, the package, its dependencies, and the installed extras."""
    from .. import __version__
    from ..state.blob_header import FORMAT_VERSIONS

    yield Finding("goaitools-py", "ok", f"{__version__}, state format {', '.join(map(str, FORMAT_VERSIONS))}")
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in _NEEDED:
        version = _version(name)
        yield Finding(name, "ok" if version else "problem", version or f"is missing: pip install {name}")
    found = {extra: _version(package) for extra, package in _EXTRAS.items()}
    there = [f"{extra} ({version})" for extra, version in found.items() if version]
    lacking = [extra for extra, version in found.items() if not version]
    yield Finding("extras", "ok", ", ".join(there) or "none")
    if lacking:
        yield Finding(
            "extras not there",
            "note",
            f"{', '.join(lacking)}; for example pip install 'goaitools-py[{lacking[0]}]'",
        )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


# ------------------------------------------------------------------------------------------- variables


def variables() -> Iterator[Finding]:
    """Which variables are set. The value of a key is not shown; a URL is shown without name and password."""
    from .stores import shown_url

    for name in _KEYS:
        value = os.environ.get(name)
        if value is None:
            yield Finding(name, "note", "not set")
        elif value != value.strip() or not value:
            yield Finding(name, "problem", "empty, or with white space around it: set it again")
        else:
            yield Finding(name, "ok", "set")
    for name in _SETTINGS:
        if value := os.environ.get(name):
            shown = value.rpartition("@")[2] if name == "HTTPS_PROXY" else shown_url(value)
            yield Finding(name, "ok", shown)


# --------------------------------------------------------------------------------------------- servers


def servers() -> list[tuple[str, str]]:
    """Name and base URL of each server with a key or a URL in the environment."""
    found = []
    for name, key, variable, usual in _SERVERS:
        url = os.environ.get(variable) or (usual if os.environ.get(key) else "")
        if url:
            found.append((name, url))
    return found


def reached(server: tuple[str, str], timeout: float, dates: list[float]) -> Finding:
    """Ask a server without a key. Any answer shows that it is reachable. `dates`: gets the seconds by which
    this machine's clock is ahead of the server's."""
    import httpx

    from .stores import shown_url

    name, url = f"server {server[0]}", server[1]
    began = time.monotonic()
    try:
        answer = httpx.get(url, timeout=timeout)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(
            name,
            "problem",
            f"{shown_url(url)} cannot be reached ({type(error).__name__}): check network and URL",
        )
    if (date := answer.headers.get("date")) and (at := _seconds(date)) is not None:
        dates.append(time.time() - at)
    seconds = time.monotonic() - began
    return Finding(name, "ok", f"{shown_url(url)} answers (HTTP {answer.status_code}, {seconds:.2f} s)")


def _seconds(date: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def clock(ahead: Sequence[float]) -> Finding:
    """Compare the clock with the clocks of the servers that answered, and with the year of the release."""
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if time.gmtime(now).tm_year < _FIRST_YEAR:
        return Finding("clock", "problem", f"{shown} is before this release: set the clock")
    if not ahead:
        return Finding("clock", "ok", f"{shown}; no server was asked for its time")
    most = max(ahead, key=abs)
    if abs(most) > _SKEW:
        side = "ahead of" if most > 0 else "behind"
        return Finding("clock", "problem", f"{shown}, {abs(most):,.0f} s {side} a server: synchronize it")
    return Finding("clock", "ok", f"{shown}, as the servers have it")
