"""The process around each app: it reads requests as lines of JSON, and answers each with one line.

Owns: the protocol with `benchmarks/behaviour.py`, what the tools do to the world, and the settings of a case.
Must never know: a library. Its lines are not counted as lines of an app.

``python shell.py APP`` loads the packages of an app once. Then it makes a process of the app for each line of
its input, because loading them takes seconds. Each process is a real one, and may be killed.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

FOLDER = Path(os.environ.get("APP_FOLDER", "."))
URL, ANTHROPIC_URL = os.environ.get("APP_URL", ""), os.environ.get("APP_ANTHROPIC_URL", "")
THINKS = os.environ.get("APP_THINKS") == "1"
"""The case is the one with signed thinking: another provider API, and a history that is cut."""
MODEL = "sim-game-master"
SYSTEM = "You are a desk."


def pay(euros: int) -> str:
    """Pay once more: a line in a file. A case may let the tool stop before it or behind it."""
    _stall("before")
    with (FOLDER / "effects").open("a") as effects:
        effects.write(f"{euros}\n")
        effects.flush()
        os.fsync(effects.fileno())
    _stall("after")
    return f"Paid {euros} euros."


def report() -> str:
    """A long text: 2,000,000 bytes."""
    return "0123456789" * 200_000


def _stall(where: str) -> None:
    stalls = FOLDER / f"stall-{where}"
    if not stalls.exists():
        return
    seconds = float(stalls.read_text())
    (FOLDER / "stalled").touch()
    time.sleep(seconds)


def serve(*handlers: Callable[..., str]) -> None:
    """Answer requests until the input ends. An exception is an answer with the name of its class."""
    known = {handler.__name__: handler for handler in handlers}
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"text": str(known[asked.pop("do")](**asked))}
        except Exception as error:  # the user sees an error page
            traceback.print_exc()
            answer = {"error": type(error).__name__}
        print(json.dumps(answer), flush=True)


def main(app: Path) -> None:
    """Load what the app imports, then make a process for each line: its environment, as JSON."""
    for node in ast.walk(ast.parse(app.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            loaded = import_module(node.module)
            for name in node.names:  # some packages load a module when its name is asked for
                getattr(loaded, name.name)
    for sdk in ("openai.resources.chat", "anthropic.resources.messages"):  # some load it with the first call
        import_module(sdk)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets processes that have ended
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(app, json.loads(line))
        print(pid, flush=True)


def _become(app: Path, environment: dict[str, str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(environment)
    folder = Path(environment["APP_FOLDER"])
    pipes = [
        os.open(environment["APP_IN"], os.O_RDONLY),
        os.open(environment["APP_OUT"], os.O_WRONLY),
        os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ]
    for at, pipe in enumerate(pipes):
        os.dup2(pipe, at)
    sys.stdin = os.fdopen(0, closefd=False)
    code = 1
    try:
        runpy.run_path(str(app), run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
