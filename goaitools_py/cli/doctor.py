"""`goaitools doctor`: checks the packages, settings and servers of this machine; with `--live`, a model, too.

Owns: the command's options, the order of the checks, and the report. Must never know: how a check is done.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .store_urls import add_store, has_store, lacking_limit, opened_store, shown_url
from .text_output import add_json, columns, show_json

if TYPE_CHECKING:
    from .doctor_checks import Finding

__all__ = ["add_to"]

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
    from . import doctor_checks as checks

    yield from checks.versions()
    yield from checks.variables()
    dates: list[float] = []
    if not args.offline:
        for server in checks.servers():
            yield checks.reached(server, args.timeout or _TIMEOUT, dates)
    yield checks.clock(dates)
    if has_store(args):
        yield from _store(args)


def _store(args: argparse.Namespace) -> Iterator[Finding]:
    from ..types.errors import GoAIToolsError
    from . import doctor_checks as checks

    name = shown_url(args.store)
    try:
        with opened_store(args.store, args.table) as store:
            yield checks.Finding("store", "ok", f"{name}: {type(store).__name__}")
            if setting := lacking_limit(args.store):
                yield checks.Finding(
                    "store timeout",
                    "note",
                    f"a client of this URL alone waits without a limit for an answer: give it {setting}",
                )
            key = checks.new_key()
            try:
                for check in checks.CHECKS:
                    finding = check(store, key)
                    yield finding
                    if check is checks.CHECKS[0] and finding.status == "problem":
                        break  # the other checks build on it
            finally:
                if hasattr(store, "delete"):
                    store.delete(key)
            if args.contract:
                with opened_store(args.store, args.table) as other:
                    yield checks.contract(store, other)
    except (GoAIToolsError, OSError) as error:
        yield checks.Finding("store", "problem", f"{name}: {error}")
