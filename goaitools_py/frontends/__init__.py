"""Provisional. Front ends: the protocols that pages, bots and games speak, as pure functions.

Owns: the public names of the front ends. Must never know: HTTP, a store, or who runs a turn.
Begin with `front_end.py`, the interface; `plain.py` is the simplest front end.

A front end reads a request's body, writes the events of a turn as server-sent events, and writes a history as
messages. `goaitools_py.serve` is a server with them; they work in any web framework.
"""

from __future__ import annotations

from .agui import AGUI
from .aisdk import AISDK
from .bodies import KEEP_ALIVE
from .front_end import (
    Ask,
    AskError,
    CarryingFrontEnd,
    FrontEnd,
    FrontStream,
    Problem,
    ProblemError,
    Shown,
    SnapshotFrontEnd,
    problem_of,
)
from .plain import PLAIN_JSON
from .reply_pieces import (
    Called,
    Piece,
    Reasoned,
    Returned,
    Said,
    Step,
    Waits,
    pieces_of,
    pieces_since,
    split_reply,
)

__all__ = [
    "AGUI",
    "AISDK",
    "KEEP_ALIVE",
    "PLAIN_JSON",
    "Ask",
    "AskError",
    "Called",
    "CarryingFrontEnd",
    "FrontEnd",
    "FrontStream",
    "Piece",
    "Problem",
    "ProblemError",
    "Reasoned",
    "Returned",
    "Said",
    "Shown",
    "SnapshotFrontEnd",
    "Step",
    "Waits",
    "pieces_of",
    "pieces_since",
    "problem_of",
    "split_reply",
]
