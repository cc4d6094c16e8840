"""A result as JSON-able values: in the form of its schema, without a state, with content only if asked."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel

from goaitools_py import (
    ChatResult,
    Compactor,
    KeepRecentTurns,
    ToolContext,
    TurnLimit,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.states import RESULT_SCHEMA
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.citations import Citation
from goaitools_py.types.result import CompactionReport, RecallReport
from goaitools_py.types.turn_warnings import TurnWarning

from ..conftest import Face

CHECK = jsonschema_rs.validator_for(dict(RESULT_SCHEMA))


class Verdict(BaseModel):
    guilty: bool
    cost: Decimal


@tool
def look(ctx: ToolContext, at: str) -> str:
    """Look."""
    ctx.log_action("looked", at=at, when=Decimal("1.5"))
    if at == "sun":
        raise RuntimeError("too bright")
    return "ten o'clock"


@tool(requires_approval=True)
def pay(to: str) -> str:
    """Pay."""
    return to


def told(result: ChatResult[Any]) -> dict[str, Any]:
    """The result as JSON, in the form of the schema."""
    bare = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    found: dict[str, Any] = json.loads(json.dumps(result.to_dict(content=True), allow_nan=False))
    for one in (bare, found):
        CHECK.validate(one)
    assert found.keys() - bare.keys() == {"text", "actions", "citations", "turns_left", "output"}
    return found


def test_a_turn_with_tools(face: Face) -> None:
    """Calls, results, actions and what waits; an error is its class, and its text goes nowhere."""
    calls = Calls([("look", {"at": "clock"}), ("look", {"at": "sun"}), ("pay", {"to": "Eve"})])
    chat = face.chat(ScriptedBackend(calls), tools=[look, pay], prices=lambda _: Decimal("0.25"))

    found = told(chat.chat(user="Hello?"))

    assert (found["status"], found["cost_usd"], found["iterations"]) == ("awaiting_tools", 0.25, 1)
    log = [(one["name"], one["flag"], one["error"]) for one in found["tool_log"]]
    assert log == [("look", "ok", None), ("look", "error", "RuntimeError")]
    assert found["tool_log"][0]["result"] == "ten o'clock"
    assert [(one["name"], one["reason"]) for one in found["pending"]] == [("pay", "approval")]
    assert found["actions"][0] == {"text": "looked", "data": {"at": "clock", "when": "1.5"}}
    assert "too bright" not in json.dumps(found)
    assert "state" not in found


def test_an_answer_of_a_type(face: Face) -> None:
    """It is written as pydantic writes it."""
    chat = face.chat(ScriptedBackend('{"guilty": true, "cost": "1.50"}'))

    found = told(chat.chat(user="Well?", output_type=Verdict))

    assert found["output"] == {"guilty": True, "cost": "1.50"}


def test_a_turn_with_a_cut_and_a_warning(face: Face) -> None:
    """The compaction, what it cost, and the warnings."""
    chat = face.chat(
        ScriptedBackend("A.", "B.", "C."),
        compactor=Compactor(TurnLimit(1), KeepRecentTurns(1)),
        fallbacks=[ScriptedBackend("D.", model="other")],
    )
    state = chat.chat_with_state(None, user="1").state

    found = told(chat.chat_with_state(state, user="2"))

    assert found["compaction"]["outcome"] == "compacted"
    assert found["compaction"]["removed_turns"] == 1
    down = face.chat(
        ScriptedBackend(BackendError("down", status=503)), fallbacks=[ScriptedBackend("D.", model="b")]
    )
    assert [one["code"] for one in told(down.chat(user="Hello?"))["warnings"]] == ["fell_back"]


def test_each_field_is_told_or_left_out_by_name() -> None:
    """A new field of a result has to stand in the JSON, unless it is the state or the bill."""
    full = ChatResult(
        text="T",
        state=b"S",
        citations=(Citation(kind="url_citation", url="https://x", raw=b"{}"),),
        compaction=CompactionReport(outcome="failed", error=ValueError("secret")),
        recall=RecallReport(calls=2, hits=1, turns=(3, 4)),
        warnings=(TurnWarning("limit_reached", "so"),),
        context_fraction=0.5,
        total_cost_usd=Decimal("0.1"),
        output=float("nan"),
        turns_left=("next",),
    )

    found = told(full)

    assert set(found) - {"version", "cost_usd"} == set(ChatResult.__dataclass_fields__) - {"state", "bill"}
    assert found["recall"] == {"calls": 2, "hits": 1, "turns": [3, 4]}
    assert found["compaction"]["error"] == "ValueError"
    assert (found["output"], found["turns_left"]) == (None, ["next"])
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize("name", ["state", "text "])
def test_the_schema_refuses_what_it_does_not_name(name: str) -> None:
    """A client can rely on the names."""
    found = ChatResult(text="T", state=b"S").to_dict(content=True)

    assert CHECK.is_valid(found)
    assert not CHECK.is_valid({**found, name: "x"})
    assert not CHECK.is_valid({key: value for key, value in found.items() if key != "status"})
