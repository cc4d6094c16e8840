"""`goaitools doctor`: checks the packages, settings and servers of this machine; with `--live`, a model, too.

Owns: the command's options, the checks with their expected results and their order, and the report. Must
never know: an engine of a store. The value of a variable with a key is never in a finding. All that is done
in a store happens under one new key.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple

from .store_urls import add_store, has_store, lacking_limit, opened_store, shown_url
from .text_output import add_json, columns, show_json

__all__ = [
    "CHECKS",
    "Finding",
    "add_to",
    "clock",
    "contract",
    "new_key",
    "reached",
    "servers",
    "variables",
    "versions",
]

Status = Literal["ok", "note", "problem"]

_NEEDED: Final = (
    *("openai", "anthropic", "httpx2", "httpcore2", "httpx", "anyio", "docstring-parser"),
    *("msgspec", "orjson", "pydantic", "pydantic-core", "zstandard"),
)
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
    if (date := answer.headers.get("date")) and (at := _time_of(date)) is not None:
        dates.append(time.time() - at)
    seconds = time.monotonic() - began
    return Finding(name, "ok", f"{shown_url(url)} answers (HTTP {answer.status_code}, {seconds:.2f} s)")


def _time_of(date: str) -> float | None:
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


# ------------------------------------------------------------------------------------------- the command


_SIGNS: Final = {"ok": "ok", "note": "-", "problem": "!!"}
_WIDTH: Final = 27
_TIMEOUT: Final = 5.0


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        description="Say what is installed, which keys are set (never their values), which servers can be "
        "reached, whether a store keeps what it is given, and whether the clock is right. A server is asked "
        "without a key, if its key or its URL is set.",
    )
    add_store(
        parser,
        what="check this store, with a conversation that is deleted again",
        otherwise="$GOAITOOLS_STORE",
    )
    parser.add_argument("--contract", action="store_true", help="check all of the store's protocol (seconds)")
    parser.add_argument("--offline", action="store_true", help="ask no server of a provider")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="S",
        help="seconds for a server (default: 5), or for a turn of --live (default: 60)",
    )
    parser.add_argument(
        "--live",
        metavar="API:MODEL",
        help="ask this model, with your key, for all that the package relies on, and print a report. It asks "
        "before it spends: about a cent with a small model",
    )
    parser.add_argument("--yes", action="store_true", help="with --live: do not ask")
    parser.add_argument(
        "--max-output",
        type=_tokens,
        metavar="N",
        help="with --live: tokens of one reply (default: 64; 512 for a model that is known to think always)",
    )
    parser.add_argument(
        "--overflow",
        type=_tokens,
        nargs="?",
        const=0,
        metavar="TOKENS",
        help="with --live: also send a text above the model's context, of so many tokens if it is not known",
    )
    add_json(parser)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Run the checks; 1 if one of them found a problem."""
    if args.live is not None:
        return _live(args)
    if args.yes or args.max_output is not None or args.overflow is not None:
        args.error("--yes, --max-output and --overflow go with --live API:MODEL")
    if args.contract and not has_store(args):
        args.error("--contract needs a --store URL")
    found = []
    for finding in _findings(args):
        found.append(finding)
        if not args.json:
            sign = f"{_SIGNS[finding.status]:>2}  {finding.name}"
            print(*columns(sign, finding.text, width=_WIDTH), sep="\n", flush=True)
    problems = sum(finding.status == "problem" for finding in found)
    if args.json:
        show_json({"problems": problems, "findings": [finding._asdict() for finding in found]})
    elif problems:
        print(f"\n{problems} {'problem' if problems == 1 else 'problems'}, marked with !!")
    else:
        print("\nno problems")
    return 1 if problems else 0


def _live(args: argparse.Namespace) -> int:
    from .live import run_live

    if args.contract or args.offline:
        args.error("--live asks a model, and nothing else: it goes without --contract and --offline")
    return run_live(args)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"a number of seconds above 0, not {text!r}")
    return seconds


def _tokens(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"a number of tokens above 0, not {text!r}")
    return int(text)


def _findings(args: argparse.Namespace) -> Iterator[Finding]:

    yield from versions()
    yield from variables()
    dates: list[float] = []
    if not args.offline:
        for server in servers():
            yield reached(server, args.timeout or _TIMEOUT, dates)
    yield clock(dates)
    if has_store(args):
        yield from _store(args)


def _store(args: argparse.Namespace) -> Iterator[Finding]:
    from ..types.errors import GoAIToolsError

    name = shown_url(args.store)
    try:
        with opened_store(args.store, args.table) as store:
            yield Finding("store", "ok", f"{name}: {type(store).__name__}")
            if setting := lacking_limit(args.store):
                yield Finding(
                    "store timeout",
                    "note",
                    f"a client of this URL alone waits without a limit for an answer: give it {setting}",
                )
            key = new_key()
            try:
                for check in CHECKS:
                    finding = check(store, key)
                    yield finding
                    if check is CHECKS[0] and finding.status == "problem":
                        break  # the other checks build on it
            finally:
                if hasattr(store, "delete"):
                    store.delete(key)
            if args.contract:
                with opened_store(args.store, args.table) as other:
                    yield contract(store, other)
    except (GoAIToolsError, OSError) as error:
        yield Finding("store", "problem", f"{name}: {error}")
