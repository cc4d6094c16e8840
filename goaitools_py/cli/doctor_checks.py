"""The checks of `goaitools doctor`: versions, environment variables, servers, the clock, and a store.

Owns: the data and the expected result of each check. Must never know: how a finding is printed, or an engine
of a store. The value of a variable with a key is never in a finding. All that is done in a store happens
under one new key.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

__all__ = ["CHECKS", "Finding", "clock", "contract", "new_key", "reached", "servers", "variables", "versions"]

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
    from .store_urls import shown_url

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

    from .store_urls import shown_url

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


_RACERS: Final = 8
_STORE_SKEW: Final = 30.0


def new_key() -> str:
    """A key that no conversation has."""
    return f"goaitools-doctor-{secrets.token_hex(8)}"


def round_trip(store: Any, key: str) -> Finding:
    """Save bytes of every value and load them."""
    blob = b"\xf5GAS" + bytes(range(256)) * 4 + secrets.token_bytes(64)
    began = time.monotonic()
    version = store.save(key, blob, expected=None)
    found = store.load(key)
    seconds = time.monotonic() - began
    if found is None or bytes(found.blob) != blob or found.version != version:
        return Finding("store round trip", "problem", "it does not give back the bytes that it was given")
    return Finding("store round trip", "ok", f"{len(blob):,} bytes in {seconds * 1000:.0f} ms")


def race(store: Any, key: str) -> Finding:
    """Several threads save over the same version at once: one may win, and its bytes must be there."""
    from ..types.errors import StateConflictError

    version = store.load(key).version
    barrier = threading.Barrier(_RACERS)
    won: list[bytes] = []
    failed: list[str] = []

    def save(number: int) -> None:
        blob = b"\xf5GAS" + bytes([number]) * 32
        barrier.wait()
        try:
            store.save(key, blob, expected=version)
        except StateConflictError:
            return
        except Exception as error:
            failed.append(type(error).__name__)
        else:
            won.append(blob)

    racers = [threading.Thread(target=save, args=(number,)) for number in range(_RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    if failed:
        return Finding("store race", "problem", f"{len(failed)} of {_RACERS} saves failed: {failed[0]}")
    if len(won) != 1 or bytes(store.load(key).blob) != won[0]:
        return Finding(
            "store race",
            "problem",
            f"{len(won)} of {_RACERS} saves of one version won, expected 1: turns would be lost",
        )
    return Finding("store race", "ok", f"1 of {_RACERS} saves of one version won")


def lease(store: Any, key: str) -> Finding:
    """A lease that is held is refused to another holder."""
    from ..types.errors import LeaseHeldError

    if not hasattr(store, "lease"):
        return Finding("store lease", "note", "it has none: two workers may pay for one turn; one is kept")
    with store.lease(key, 10.0):
        try:
            with store.lease(key, 10.0):
                return Finding("store lease", "problem", "two holders got one lease")
        except LeaseHeldError:
            return Finding("store lease", "ok", "one holder at a time")


def store_clock(store: Any, key: str) -> Finding:
    """Compare the time of a save with this machine's clock."""
    ahead = time.time() - store.load(key).updated_at.timestamp()
    if abs(ahead) > _STORE_SKEW:
        side = "ahead of" if ahead > 0 else "behind"
        return Finding("store clock", "problem", f"this machine is {abs(ahead):,.0f} s {side} it")
    return Finding("store clock", "ok", "as this machine's")


CHECKS: Final = (round_trip, race, lease, store_clock)


def contract(store: Any, other: Any) -> Finding:
    """Check all of the protocol, as `store_contract` does for a store of your own."""
    from ..testing import store_contract

    stores = iter((store, other))
    try:
        store_contract(lambda: next(stores))
    except AssertionError as error:
        return Finding("store contract", "problem", str(error))
    return Finding("store contract", "ok", "all checks passed")
