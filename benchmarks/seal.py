"""What each seal costs: one round of the codec, load and save, of histories of 2, 20 and 200 KB.

Owns: that round for each codec. Must never know: how time is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _conversations import compact, corpus
from _report import Figure, Report, info
from _timing import interleaved

from goaitools_py import PLAIN
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.state import dump_state, load_state, with_turn
from goaitools_py.states import state_from_messages

__all__ = ["run"]

_KILOBYTES = (2, 20, 200)
_BINDING = {"tenant": "acme", "user": "ada"}
_ADDED = [
    compact({"role": "user", "content": "And is my second bag still on the reservation?"}),
    compact({"role": "assistant", "content": "Yes, it is: two bags, both free of charge."}),
]


def run(*, short: bool = False) -> Report:
    """Measure every size with every codec."""
    ring = Keyring(Key.generate())
    codecs: dict[str, tuple[Any, Any]] = {
        "plain": (PLAIN, None),
        "signed": (Signed(ring), _BINDING),
        "encrypted": (Encrypted(ring), _BINDING),
        "encrypted, client": (Encrypted(ring, visible_to="client"), _BINDING),
    }
    figures: list[Figure] = []
    for kilobytes in _KILOBYTES:
        messages = _history(kilobytes * 1000)
        blobs = {
            name: state_from_messages("openai", messages, codec=codec, binding=binding)
            for name, (codec, binding) in codecs.items()
        }
        found = interleaved(
            {name: _round(blobs[name], codec, binding) for name, (codec, binding) in codecs.items()},
            short=short,
        )
        plain = found["plain"].minimum
        for name, blocks in found.items():
            more = "" if name == "plain" else f"{blocks.minimum - plain:+,.0f} µs against plain, "
            figures.append(
                info(
                    f"{kilobytes:>3} KB: {name}",
                    blocks.minimum,
                    "µs",
                    note=f"{more}{len(blobs[name]):,} bytes, median {blocks.median:,.0f}",
                )
            )
    return Report(
        title="Seals: load, append two messages, save",
        method=f"CPU time of one thread; {corpus().source}; blocks interleaved; minima. The size is that of "
        "the messages' JSON. A client's blob is not compressed, which saves time and costs bytes",
        figures=figures,
    )


def _history(size: int) -> list[dict[str, Any]]:
    """Messages of whole turns with about `size` bytes of JSON."""
    found: list[dict[str, Any]] = []
    left = size
    for turn in corpus().of_length(2000):
        for message in turn:
            found.append(dict(message))
            left -= len(compact(message))
        if left <= 0:
            break
    return found


def _round(blob: bytes, codec: Any, binding: Any) -> Callable[[], bytes]:
    turn = TurnRecord(at=0, messages=2, iterations=(Iteration(roles="ua"),))

    def load_and_save() -> bytes:
        state = load_state(blob, wire="openai", codec=codec, binding=binding)
        return dump_state(with_turn(state, ClosedTurn(_ADDED, turn)), codec=codec, binding=binding)

    return load_and_save
