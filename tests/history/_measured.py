"""Measures functions on bombs: CPU seconds and peak memory, each in a process of its own.

``python -m tests.history._measured '{"wire": …, "values": …, "pairs": [[function, bomb], …]}'`` prints a JSON
list of [function, bomb, blob bytes, result, CPU seconds, MiB at the peak, decoded bytes].
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from time import process_time
from typing import Any

from goaitools_py.state.blob_header import peek
from goaitools_py.types.errors import GoAIToolsError

from ._bombs import bomb
from ._functions import FUNCTIONS, PREPARED

MOST_SECONDS = 40
"""A function that takes longer is killed."""
MOST_BYTES = 3 * 2**30


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _measured(function: str, blob: bytes, wire: str) -> list[Any]:
    """Call the function in a child of this process, whose modules are loaded already."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        import resource  # not at the top: Windows has none

        os.close(read)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before, start, result = _status("VmRSS"), process_time(), ""
        try:
            if function in PREPARED:
                given = PREPARED[function](blob)
                Path("/proc/self/clear_refs").write_text("5")
                before, start = _status("VmRSS"), process_time()
            else:
                given = blob
            FUNCTIONS[function](given, wire)
        except GoAIToolsError as error:
            result = type(error).__name__
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            result = (
                f"{type(error).__name__} at {where.filename.rpartition('goaitools_py')[2]}:{where.lineno}"
            )
        found = [result, process_time() - start, (_status("VmHWM") - before) / 1024]
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if not told:
        return [f"killed by signal {os.waitstatus_to_exitcode(status)}", float(MOST_SECONDS), 0.0]
    found: list[Any] = json.loads(told)
    return found


def main() -> None:
    """Measure all pairs; the blobs of one bomb are made once."""
    asked = json.loads(sys.argv[1])
    wire, found = asked["wire"], []
    small = bomb(wire, "member: zeros", 10)
    for function in FUNCTIONS.values():  # loads whatever is loaded once
        try:
            function(small, wire)
        except Exception:
            continue
    made: tuple[str, bytes] = "", b""
    for function, name in sorted(asked["pairs"], key=lambda pair: pair[1]):
        if made[0] != name:
            made = name, bomb(wire, name, asked["values"])
        blob = made[1]
        one = [function, name, len(blob), *_measured(function, blob, wire), peek(blob).decoded_len]
        found.append(one)
        if asked.get("tell"):
            print(json.dumps(one), flush=True)
    if not asked.get("tell"):
        print(json.dumps(found))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
