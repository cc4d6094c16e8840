"""Recorded histories, which real providers have accepted, as values for tests of states.

Owns: which records are such histories. Must never know: what a test does with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..replay._recorded import read_records
from ..replay._wire_anthropic import ANTHROPIC
from ..replay._wire_chat import CHAT
from ..replay._wire_responses import RESPONSES

__all__ = ["recorded"]


def recorded(data_dir: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The histories of recorded requests that a provider accepted, with its answers, each with its provider
    API."""
    for wire in (CHAT, RESPONSES, ANTHROPIC):
        for record in read_records(data_dir / "recorded" / wire.recording, wire):
            for exchange in record.exchanges:
                if exchange.is_whole and not record.undrivable.get(exchange.at):
                    history = [dict(one) for one in exchange.history]
                    yield (
                        wire.name,
                        history[wire.lead(history) :] + [dict(one) for one in exchange.answer or ()],
                    )
