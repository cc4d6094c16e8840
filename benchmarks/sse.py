"""What decoding a streamed reply costs per event, on each wire.

Owns: the two readers that are compared. Must never know: how time is taken.
"""

from __future__ import annotations

from collections.abc import Callable

from _report import Figure, Report, at_most, info
from _timing import interleaved
from _wires import WIRES, BenchedWire

from goaitools_py.backends.dialects import dialect_of

__all__ = ["run"]

_READ_BYTES = 16 * 1024


def run(*, short: bool = False) -> Report:
    """Decode one long answer, cut into events and into reads of 16 KiB, and read it with the SDK."""
    count = 200 if short else 1000
    figures: list[Figure] = []
    for wire in WIRES.values():
        figures += _of_one_wire(wire, count, short=short)
    return Report(
        title="Stream decoder: CPU per event",
        method=f"{count} words, one event each; CPU time of one thread; blocks interleaved; minima; the "
        "SDK's own typed stream reads the same bytes",
        figures=figures,
    )


def _of_one_wire(wire: BenchedWire, count: int, *, short: bool) -> list[Figure]:
    events = list(wire.events(count))
    whole = b"".join(events)
    reads = [whole[at : at + _READ_BYTES] for at in range(0, len(whole), _READ_BYTES)]
    sides: dict[str, Callable[[], object]] = {
        "events": lambda: _ours(wire.name, events),
        "reads": lambda: _ours(wire.name, reads),
        "sdk": lambda: wire.sdk_stream(whole),
    }
    found = interleaved(sides, short=short)
    per_event = {name: blocks.minimum / len(events) for name, blocks in found.items()}
    medians = {name: blocks.median / len(events) for name, blocks in found.items()}
    return [
        at_most(
            5.0,
            f"{wire.name}: one event per read",
            per_event["events"],
            "µs",
            note=f"median {medians['events']:.1f}",
        ),
        at_most(
            5.0,
            f"{wire.name}: reads of 16 KiB",
            per_event["reads"],
            "µs",
            note=f"median {medians['reads']:.1f}",
        ),
        info(
            f"{wire.name}: times less than the SDK's stream",
            per_event["sdk"] / per_event["reads"],
            "x",
            note=f"SDK {per_event['sdk']:.1f} µs",
        ),
    ]


def _ours(wire: str, chunks: list[bytes]) -> object:
    decoder = dialect_of(wire).decoder()
    for chunk in chunks:
        decoder.feed(chunk)
    return decoder.finish()
