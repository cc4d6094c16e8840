"""What starting costs: importing the package, and one `goaitools inspect`.

Owns: the fresh processes. Must never know: what an import does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from _conversations import ROOT, corpus
from _report import Report, at_most, info

from goaitools_py.states import state_from_messages

__all__ = ["run"]

_SDKS = ("openai", "anthropic")
_PROBE = "import sys, time, json{}; print(json.dumps([time.process_time() * 1000, sorted(sys.modules)]))"


def run(*, short: bool = False) -> Report:
    """Start fresh processes in turns: bare, ours, the SDK's."""
    runs = 1 if short else 7
    with tempfile.TemporaryDirectory() as directory:
        environment = _environment(directory)
        blob = Path(directory) / "conversation.blob"
        history = [message for turn in corpus().of_length(50) for message in turn]
        blob.write_bytes(state_from_messages("openai", history))
        cpu: dict[str, list[float]] = {"": [], ", goaitools_py": []}
        if not short:
            cpu[", openai"] = []
        walls: list[float] = []
        loaded: list[str] = []
        for number in range(runs + 1):
            for module, found in cpu.items():
                spent, modules = _probe(module, environment)
                found.append(spent)
                if module == ", goaitools_py":
                    loaded = modules
            walls.append(_inspect(blob, environment))
            if number == 0:  # the first round compiled the bytecode
                for found in (*cpu.values(), walls):
                    found.clear()
    median = {module: statistics.median(found) - statistics.median(cpu[""]) for module, found in cpu.items()}
    quickest = min(cpu[", goaitools_py"]) - min(cpu[""])
    return Report(
        title="Start: CPU of an import, wall time of a command",
        method=f"median of {runs} fresh processes in turns, less that of a bare interpreter; bytecode warm",
        figures=[
            at_most(
                60.0,
                "import goaitools_py",
                median[", goaitools_py"],
                "ms CPU",
                note=f"quickest {quickest:.0f}",
            ),
            *(
                info(f"import {name}, for comparison", median[f", {name}"], "ms CPU")
                for name in _SDKS
                if f", {name}" in median
            ),
            at_most(
                0.0,
                "provider SDKs that it loads",
                sum(name in loaded for name in _SDKS),
                "modules",
                timed=False,
            ),
            at_most(
                200.0,
                "goaitools inspect",
                statistics.median(walls),
                "ms wall",
                note=f"quickest {min(walls):.0f}, the interpreter included",
            ),
        ],
    )


def _environment(directory: str) -> Mapping[str, str]:
    # Bytecode goes to a place of our own: a tree that may not be written to would be compiled every time.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": directory, "PYTHONPATH": str(ROOT)}


def _probe(module: str, environment: Mapping[str, str]) -> tuple[float, list[str]]:
    command = [sys.executable, "-c", _PROBE.format(module)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    spent, modules = json.loads(done.stdout)
    return spent, modules


def _inspect(blob: Path, environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-m", "goaitools_py", "inspect", str(blob)]
    began = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1000
