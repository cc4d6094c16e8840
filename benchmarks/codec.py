"""What the codec alone costs: load, splice into a request, append a turn, save.

Owns: that round and the JSON round beside it. Must never know: how time is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from _conversations import ANSWER_TEXT, MODEL, compact, corpus
from _report import Figure, Report, at_most, info
from _timing import interleaved

from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.state import dump_state, load_state, with_turn
from goaitools_py.states import state_from_messages

__all__ = ["run"]

_TARGETS = {2: None, 10: 50.0, 50: None, 200: 150.0, 1000: 300.0}
_QUESTION = {"role": "user", "content": "And is my second bag still on the reservation?"}
_REPLY = {"role": "assistant", "content": ANSWER_TEXT}


def run(*, short: bool = False) -> Report:
    """Measure every size."""
    figures: list[Figure] = []
    for size, target in _TARGETS.items():
        found = interleaved(_sides(size), short=short)
        ours, plain = found["ours"], found["json"]
        name = f"{size:>4} messages"
        note = (
            f"{plain.minimum / ours.minimum:.1f} times less than the json module, median {ours.median:,.0f}"
        )
        line = info if target is None else _with_target(target)
        figures.append(line(name, ours.minimum, "µs", note=note))
    return Report(
        title="Codec alone: load, splice, append two messages, save",
        method=f"CPU time of one thread; {corpus().source}; blocks interleaved; minima. "
        "The json module does json.loads, append, json.dumps of the body, json.dumps of the blob",
        figures=figures,
    )


def _with_target(target: float) -> Callable[..., Figure]:
    def line(name: str, value: float, unit: str, *, note: str) -> Figure:
        return at_most(target, name, value, unit, note=note)

    return line


def _sides(size: int) -> dict[str, Callable[[], object]]:
    history = [dict(message) for turn in corpus().of_length(size) for message in turn]
    dialect = dialect_of("openai")
    blob, json_blob = state_from_messages("openai", history), json.dumps(history)
    added = (compact(_QUESTION), compact(_REPLY))

    def ours() -> object:
        state = load_state(blob, wire=dialect.wire)
        spliced: list[Any] = state.history()
        dialect.request(RequestParts(model=MODEL, history=[*spliced, added[0]]))
        record = TurnRecord(at=0, messages=2, iterations=(Iteration(roles="ua"),))
        return dump_state(with_turn(state, ClosedTurn(added, record)))

    def plain() -> object:
        messages = json.loads(json_blob)
        messages.append(_QUESTION)
        json.dumps({"model": MODEL, "messages": messages})
        messages.append(_REPLY)
        return json.dumps(messages)

    return {"ours": ours, "json": plain}
