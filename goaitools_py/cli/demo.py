"""`goaitools demo` and `goaitools sim`: a conversation that survives a restart, and the simulator.

Owns: the options of both commands, the simulator, the two processes, and the verdict. Must never know: the
text of the conversation, or how a request is answered.

The demonstration has three processes. This one replaces the provider: it serves the simulator, which answers
from the content of each request and remembers nothing. The other two are the application before and after a
restart. The second one gets only a SQLite file from the first.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .text_output import WIDTH, columns, counted, show_json

if TYPE_CHECKING:
    from ..sim import SimServer

__all__ = ["add_sim", "add_to"]

_HALVES = ("before", "after")
_STANDARD_ERROR = 2


def add_to(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        description="A conversation with tools, events, compaction and a restart, against the simulator.",
    )
    parser.add_argument("--keep", metavar="FILE", help="keep the database as this new file")
    parser.add_argument(
        "--json", action="store_true", help="print the verdict as JSON; the story goes to standard error"
    )
    # The command starts itself with this: the half to run, the simulator's address, the database.
    parser.add_argument("--half", nargs=3, help=argparse.SUPPRESS)
    parser.set_defaults(run=run, error=parser.error)


def run(args: argparse.Namespace) -> int:
    """Run the demonstration; 1 if the model forgot something or a request broke the provider's rules."""
    if args.half:
        from .demo_game import play

        half, base_url, database = args.half
        return play(half, base_url, Path(database))
    if args.keep and Path(args.keep).exists():
        args.error(f"{args.keep} exists; name a new file")
    from ..sim import SimServer

    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="goaitools-"))
        database = Path(args.keep or Path(folder, "demo.sqlite3")).absolute()
        sim = opened.enter_context(SimServer())
        began = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
            why = _demonstrate(sim, database, aside=args.json)
            seconds = time.monotonic() - began
            _tell(why, sim, seconds, kept=database if args.keep else None)
        if args.json:
            show_json(
                {
                    "passed": not why,
                    "problem": why or None,
                    "seconds": round(seconds, 1),
                    "requests": len(sim.requests),
                    "database": str(database) if args.keep else None,
                }
            )
        return 1 if why else 0


def _demonstrate(sim: SimServer, database: Path, *, aside: bool) -> str:
    """Play both halves. Returns the problem; "" if there is no problem."""
    _introduce(database)
    for half in _HALVES:
        if code := _run_half(half, sim, database, aside=aside):
            return f"the process {half} the restart ended with exit code {code}"
    return f"a request broke the provider's rules: {sim.problems[0]}" if sim.problems else ""


def _tell(why: str, sim: SimServer, seconds: float, *, kept: Path | None) -> None:
    from .demo_game import KEY

    if why:
        print(f"\nFAILED: {why}", flush=True)
        return
    print(f"\nPASSED in {seconds:.1f} s. After the restart the simulated model")
    print("still knew the player's name and score.")
    print(f"The simulator got {counted(len(sim.requests), 'request')}; none broke a rule of the provider.")
    if kept is not None:
        print(f"Look into the state: goaitools inspect --store {kept} --key {KEY} --show")


def _introduce(database: Path) -> None:
    print("goaitools demo: a conversation that survives a restart\n")
    facts = (
        ("model", "simulated: no language model, no network; it knows only what stands in each request"),
        ("state", f"one blob of bytes, in one row of {database}"),
        ("compaction", "above 12 messages: the first turn and the last two stay"),
        ("cached", "tokens that were sent before, byte for byte; neither a restart nor an event loses them"),
    )
    for label, text in facts:
        print(*columns(label, text, width=12), sep="\n")
    sys.stdout.flush()


def _run_half(half: str, sim: SimServer, database: Path, *, aside: bool) -> int:
    """Run a process. `aside`: it prints to standard error."""
    command = [sys.executable, "-m", "goaitools_py", "demo", "--half", half, sim.base_url, str(database)]
    with subprocess.Popen(command, stdout=_STANDARD_ERROR if aside else None) as process:
        print("\n" + f"-- process {process.pid}, {half} the restart ".ljust(WIDTH, "-"), flush=True)
        code = process.wait()
    if not code:
        print(f"\n  Process {process.pid} has ended. What is left of it is the database.", flush=True)
    return code


def add_sim(commands: Any) -> None:
    """Add the command to argparse's list of commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sim",
        description="Serve the offline simulator of a model provider on this machine until Ctrl-C. "
        "It speaks the provider APIs openai, openai-responses and anthropic.",
    )
    parser.add_argument("--port", type=_port, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--json", action="store_true", help="print the addresses as one line of JSON")
    parser.add_argument(
        "--rules", metavar="HOST", help="refuse what this host refuses, such as groq or ollama"
    )
    parser.add_argument("--vague", action="store_true", help='refuse with "Bad request" alone')
    parser.set_defaults(run=run_sim)


def run_sim(args: argparse.Namespace) -> int:
    """Serve. The simulator introduces itself, and prints its address."""
    from ..sim import serve

    try:
        serve(args.port, as_json=args.json, rules=args.rules, vague=args.vague)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number between 0 and 65535, not {text!r}")
    return int(text)
