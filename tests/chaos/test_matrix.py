"""Every fault on every wire, sync and async, at a turn's first call and after a tool: nothing is wedged."""

from __future__ import annotations

from typing import Any

import pytest

from ..turn._reading import ALL
from ._house import House, Meeting
from ._table import ROWS, Absent, cells, meetings


@pytest.mark.parametrize(
    ("row", "wire", "mode", "colour", "after_tool"),
    [pytest.param(*each, id=name) for name, *each in meetings()],
)
def test_a_fault_ends_as_the_table_says(
    house: House, clock: Any, row: Any, wire: str, mode: Any, colour: str, after_tool: bool
) -> None:
    """The error is the table's, the state is whole, nothing happens twice, and every way on works."""
    before = house.known_ada(wire, colour)
    meeting = Meeting(
        house=house,
        clock=clock,
        row=row,
        wire=wire,
        colour=colour,
        mode=mode,
        after_tool=after_tool,
        before=before,
    )

    end = meeting.run()

    meeting.check_end(end)
    meeting.check_state(end)
    meeting.check_ways_on(end)


@pytest.mark.parametrize("after_tool", [False, True])
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("wire", ALL)
def test_a_refused_request_behind_a_models_refusal(
    house: House, clock: Any, wire: str, colour: str, after_tool: bool
) -> None:
    """A model's refusal is in the history: where a request is refused, another form of it may be tried."""
    lines = {row.name: row for row in ROWS}
    refused = [(row, mode) for row, on, mode in cells() if on == wire and row.is_poison[wire]]

    def met(row: Any, mode: Any, asked: str, before: bytes) -> bytes:
        meeting = Meeting(
            house=house,
            clock=clock,
            row=row,
            wire=wire,
            colour=colour,
            mode=mode,
            after_tool=after_tool and row.is_poison[wire],
            before=before,
            asked=asked,
        )
        end = meeting.run()
        meeting.check_end(end)
        meeting.check_state(end)
        return end.state

    state = met(lines["refusal"], "unary", "Will you?", house.known_ada(wire, colour))
    for number, (row, mode) in enumerate(refused):
        met(row, mode, f"And {number}?", state)

    assert len(refused) > 5


def test_no_fault_is_left_out_in_silence() -> None:
    """Each line says what it is on every wire, or why a wire cannot have it."""
    names = [line.name for line in ROWS]
    reasons = [order.reason for line in ROWS for order in line.order.values() if isinstance(order, Absent)]
    met = {(line.name, wire) for line, wire, _ in cells()}

    assert len(set(names)) == len(names)
    assert all(set(line.order) == set(ALL) for line in ROWS)
    assert all(len(reason.split()) > 3 for reason in reasons)
    assert len(met) + len(reasons) == len(names) * len(ALL)
