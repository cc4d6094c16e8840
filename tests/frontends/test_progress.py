"""How far a tool is, in the words of each front end."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py.frontends import AISDK, PLAIN_JSON, FrontEnd
from goaitools_py.frontends.agui import AGUI
from goaitools_py.types.events import ToolProgress, TurnStarted

from ._talk import parsed

REPORT = ToolProgress("c1", "climb", 1, 3.0, 12.0, "half way up", conversation_id="k", turn_ref="k-1")
MEMBERS = {"progress": 3.0, "total": 12.0, "message": "half way up"}


@pytest.mark.parametrize(
    ("front", "name", "data"),
    [
        (AISDK, "", {"type": "data-progress", "transient": True, "data": {"toolCallId": "c1", **MEMBERS}}),
        (PLAIN_JSON, "progress", {"id": "c1", **MEMBERS}),
        (
            AGUI,
            "",
            {"type": "CUSTOM", "name": "goaitools.progress", "value": {"toolCallId": "c1", **MEMBERS}},
        ),
    ],
    ids=["ai", "plain", "agui"],
)
def test_a_report_is_one_event(front: FrontEnd, name: str, data: dict[str, Any]) -> None:
    stream = front.stream()
    stream.feed(TurnStarted(conversation_id="k", turn_ref="k-1"))

    assert parsed(stream.feed(REPORT))[-1] == (name, data)


@pytest.mark.parametrize("front", [AISDK, PLAIN_JSON, AGUI], ids=["ai", "plain", "agui"])
def test_a_number_that_json_does_not_have_is_null(front: FrontEnd) -> None:
    stream = front.stream()
    stream.feed(TurnStarted(conversation_id="k", turn_ref="k-1"))
    odd = ToolProgress("c1", "climb", 1, float("inf"), float("nan"), turn_ref="k-1")

    (frame,) = stream.feed(odd)[-1:]
    assert b'"progress":null' in frame
    assert b'"total":null' in frame
