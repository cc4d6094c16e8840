"""The simulator as a process of its own.

Owns: the words on the terminal. Must never know: how a request is answered.
"""

from __future__ import annotations

import contextlib
import sys
import threading

from .server import SimServer

__all__ = ["serve"]


def serve(port: int, *, host: str = "127.0.0.1", seed: int = 0) -> None:
    """Serve until interrupted (Ctrl-C). Says on standard output that it is a simulator, and where it is.

    Args:
        port: 0 takes a free one.
    """
    with SimServer(host=host, port=port, seed=seed, max_recorded=0) as sim:
        sys.stdout.write(
            f"goaitools simulator (no language model, nothing leaves this machine): {sim.base_url}\n"
            f"for Anthropic's client: {sim.base_url_for('anthropic')}\n"
        )
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
