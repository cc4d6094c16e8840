"""The simulator as a process of its own.

Owns: the text on the terminal, and the wait for Ctrl-C. Must never know: how a request is answered.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading

from .server import WIRES, SimServer

__all__ = ["serve"]

_LOOK_SECONDS = 0.2
"""How often the waiting thread checks for a Ctrl-C that did not wake it."""


def serve(port: int, *, host: str = "127.0.0.1", seed: int = 0, as_json: bool = False) -> None:
    """Serve until Ctrl-C. Print that it is a simulator, and its address.

    Args:
        port: 0 takes a free one.
        host: The address to listen on.
        seed: For the choices of the simulated model.
        as_json: Print the addresses as one line of JSON: {"base_urls": {provider API: URL}}.
    """
    with SimServer(host=host, port=port, seed=seed, max_recorded=0) as sim, _until_interrupted():
        # The server answers before the first line is written, so Ctrl-C can come at any line from here on.
        sys.stdout.write(_addresses(sim) if as_json else _announcement(sim))
        sys.stdout.flush()
        _wait_for_ever()


def _announcement(sim: SimServer) -> str:
    return (
        f"goaitools simulator (no language model, nothing leaves this machine): {sim.base_url}\n"
        f"for Anthropic's client: {sim.base_url_for('anthropic')}\n"
    )


def _addresses(sim: SimServer) -> str:
    return json.dumps({"base_urls": {wire: sim.base_url_for(wire) for wire in WIRES}}) + "\n"


def _until_interrupted() -> contextlib.suppress:
    return contextlib.suppress(KeyboardInterrupt)


def _wait_for_ever() -> None:
    # One wait without a time limit can miss Ctrl-C: a signal that arrives just before the thread sleeps, or
    # on another thread, does not wake it. Python sees that signal when the wait ends, so it ends often.
    never = threading.Event()
    while not never.wait(_LOOK_SECONDS):
        pass
