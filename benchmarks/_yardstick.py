"""How fast this machine is, beside the one on which aims in microseconds were set.

Owns: the turn that both have run. Must never know: what else is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from _conversations import corpus
from _wires import WIRES

__all__ = ["THERE_US", "yardstick"]

THERE_US = 30_200.0
"""Microseconds of CPU time that the turn took there (AMD Zen 5, Python 3.11.7, openai 3.52), the median."""

_MESSAGES = 200
_QUESTION = "And is my second bag still on the reservation?"


def yardstick() -> Callable[[], Any]:
    """A turn without this library: 200 messages out of JSON, `chat.completions.create()`, JSON again."""
    wire = WIRES["openai"]
    client = wire.client(wire.instant())
    history = wire.translated(corpus().of_length(_MESSAGES))
    blob = json.dumps(history)
    return lambda: wire.plain(client, blob, _QUESTION)
