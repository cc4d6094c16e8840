"""What a provider does with the context by itself: asked for in neutral words, refused where nobody would.

The simulator holds the requests to the providers' published shapes; recorded ones are in the tests of the
dialects.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaClearThinking20251015EditParam
from pydantic import TypeAdapter

from goaitools_py import Compactor, MessageLimit, ModelSettings, ProviderRejectedError, Summarize
from goaitools_py.compaction import (
    ProviderCompaction,
    ServerCompaction,
    ServerThinkingClearing,
    ServerToolClearing,
)
from goaitools_py.sim.http_values import JSON, Response
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import check_history

COMPACT = ServerCompaction(above_tokens=50_000)
CLEAR = ServerToolClearing(above_tokens=30_000, keep=2, at_least_tokens=5_000, keep_tools=["look"])
CLEARED = {
    "type": "clear_tool_uses_20250919",
    "trigger": {"type": "input_tokens", "value": 30_000},
    "keep": {"type": "tool_uses", "value": 2},
    "clear_at_least": {"type": "input_tokens", "value": 5_000},
    "exclude_tools": ["look"],
}
COMPACTED = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}}
SPENT = {"type": "compaction", "input_tokens": 55_000, "output_tokens": 125}


def wanting(*edits: Any, **settings: Any) -> ModelSettings:
    return ModelSettings(context_management=edits, **settings)


def betas(request: Any) -> list[str]:
    """The betas that a request names."""
    return [name for name in request.headers.get("anthropic-beta", "").split(",") if name]


def with_compaction() -> Response:
    """A reply in the midst of which Anthropic has compacted what stood before it."""
    answer = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "sim-model",
        "content": [
            {"type": "compaction", "content": "The player is called Ada."},
            {"type": "text", "text": "Hello, Ada."},
        ],
        "stop_reason": "end_turn",
        "context_management": {"applied_edits": []},
        "usage": {"input_tokens": 220, "output_tokens": 9, "iterations": [SPENT, {"type": "message"}]},
    }
    return Response(headers=JSON, pieces=(json.dumps(answer).encode(),))


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize(
    ("edits", "member", "named"),
    [
        ((CLEAR,), [CLEARED], ["context-management-2025-06-27"]),
        ((COMPACT,), [COMPACTED], ["compact-2026-01-12"]),
        ((CLEAR, COMPACT), [CLEARED, COMPACTED], ["compact-2026-01-12", "context-management-2025-06-27"]),
        (
            (ServerToolClearing(clear_inputs=True),),
            [{"type": "clear_tool_uses_20250919", "clear_tool_inputs": True}],
            ["context-management-2025-06-27"],
        ),
        (
            (ServerCompaction(above_tokens=60_000, instructions="Keep names."),),
            [
                {
                    "type": "compact_20260112",
                    "trigger": {"type": "input_tokens", "value": 60_000},
                    "instructions": "Keep names.",
                }
            ],
            ["compact-2026-01-12"],
        ),
    ],
)
def test_anthropic_gets_edits_and_their_betas(
    own: Any, sim: Any, wire: str, edits: Any, member: Any, named: list[str]
) -> None:
    """Each edit as the published types have it, and the betas beside those that the caller names."""
    settings = wanting(*edits, extra_headers={"anthropic-beta": "x"})

    own(settings=settings).chat(user="Hello.")

    assert sim.requests[-1].parsed["context_management"] == {"edits": member}
    assert betas(sim.requests[-1]) == ["x", *named]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize(
    ("edit", "member"),
    [
        (ServerThinkingClearing(), {}),
        (ServerThinkingClearing(keep="all"), {"keep": "all"}),
        (ServerThinkingClearing(keep=2), {"keep": {"type": "thinking_turns", "value": 2}}),
    ],
)
def test_the_clearing_of_thinking_comes_first(
    own: Any, sim: Any, wire: str, edit: Any, member: dict[str, Any]
) -> None:
    """Anthropic's documents want it there; the published type takes it as it is."""
    settings = wanting(CLEAR, COMPACT, edit, thinking_budget_tokens=1024)

    own(settings=settings).chat(user="Hello.")

    sent = sim.requests[-1].parsed["context_management"]
    assert sent == {"edits": [{"type": "clear_thinking_20251015", **member}, CLEARED, COMPACTED]}
    first = sent["edits"][0]
    assert TypeAdapter(BetaClearThinking20251015EditParam).validate_python(first) == first
    assert betas(sim.requests[-1]) == ["compact-2026-01-12", "context-management-2025-06-27"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_the_clearing_of_thinking_needs_thinking(own: Any, sim: Any, wire: str) -> None:
    """As a setting it is sent as it is, and the provider says no."""
    with pytest.raises(ProviderRejectedError):
        own().chat(user="Hello.", settings=wanting(ServerThinkingClearing()))

    assert "requires `thinking`" in sim.problems[0]


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_openai_gets_a_threshold(own: Any, sim: Any, wire: str) -> None:
    """One entry, with the provider's own name for it."""
    own(settings=wanting(ServerCompaction(above_tokens=2_000))).chat(user="Hello.")

    entries = [{"type": "compaction", "compact_threshold": 2_000}]
    assert sim.requests[-1].parsed["context_management"] == entries
    assert sim.problems == []


@pytest.mark.parametrize(
    ("wire", "is_own", "edit", "words"),
    [
        ("openai", True, COMPACT, "provider API 'openai' has no context_management"),
        ("openai-responses", True, CLEAR, "clears no tool results"),
        ("openai-responses", True, ServerCompaction(above_tokens=9, instructions="All."), "no instructions"),
        ("openai-responses", True, ServerThinkingClearing(keep=1), "clears no reasoning"),
        ("openai-responses", False, COMPACT, "'local' is not known to have"),
        ("anthropic", False, CLEAR, "'local' is not known to have"),
    ],
)
def test_who_has_no_such_thing_is_not_asked(
    face: Any, own: Any, sim: Any, is_own: bool, edit: Any, words: str
) -> None:
    """A server might take no notice: the wish is refused before anything is sent."""
    chat = own() if is_own else face.on(sim)

    with pytest.raises(ValueError, match=words):
        chat.chat(user="Hello.", settings=wanting(edit))

    assert sim.requests == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_the_simulator_refuses_as_the_provider_would(own: Any, sim: Any, wire: str) -> None:
    """A compaction below 50,000 tokens is a 400."""
    with pytest.raises(ProviderRejectedError):
        own().chat(user="Hello.", settings=wanting(ServerCompaction(above_tokens=49_999)))

    assert "at least 50000" in sim.problems[0]


@pytest.mark.parametrize("wire", ["anthropic"])
def test_what_a_compaction_inside_a_reply_took_is_booked_apart(own: Any, sim: Any, wire: str) -> None:
    """It is in the turn's usage and in the conversation's totals, and no part of the context that follows."""
    sim.push(with_compaction())

    result = own(settings=wanting(COMPACT)).chat(user="I am Ada.")
    info = inspect_state(result.state)

    assert (result.usage.input_tokens, result.usage.output_tokens) == (55_220, 134)
    assert (result.usage.requests, result.aside_usage.input_tokens) == (1, 55_000)
    assert info.total_usage.input_tokens == 55_220
    assert info.tokens < 1_000


@pytest.mark.parametrize("wire", ["anthropic"])
def test_a_compaction_inside_a_reply_keeps_its_beta(own: Any, sim: Any, wire: str) -> None:
    """Its block is sent back in later turns, with or without the setting, and every such request names it."""
    sim.push(with_compaction())
    chat = own()
    before = chat.run_turns(None, ["One.", "Two."], settings=wanting(COMPACT)).state

    later = chat.chat_with_state(before, user="Three.")

    assert betas(sim.requests[-1]) == ["compact-2026-01-12"]
    assert "context_management" not in sim.requests[-1].parsed
    assert sim.problems == []
    assert check_history(wire, state_messages(later.state)) == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_what_stands_before_it_is_dropped_without_a_question(own: Any, sim: Any, wire: str) -> None:
    """`ProviderCompaction` finds it in the history."""
    chat = own(settings=wanting(COMPACT))
    first = chat.run_turns(None, ["One.", "Two."]).state
    sim.push(with_compaction())
    state = chat.chat_with_state(first, user="Three.").state
    asked = len(sim.requests)

    report = chat.compact_state(state, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=1)))
    after = chat.chat_with_state(report.state, user="Four.")

    assert (report.outcome, report.removed_turns, len(sim.requests)) == ("compacted", 2, asked + 1)
    assert len(read_history(after.state).turns) == 2
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_the_providers_compaction_on_demand_does_without(own: Any, sim: Any, wire: str) -> None:
    """Its request takes no other editing of the context."""
    chat = own(settings=wanting(COMPACT))
    state = chat.run_turns(None, ["One. " * 90, "Two.", "Three."]).state

    report = chat.compact_state(state, Compactor(MessageLimit(1), ProviderCompaction(keep_turns=1)))

    assert report.outcome == "compacted"
    assert "context_management" not in sim.requests[-1].parsed
    assert betas(sim.requests[-1]) == (["compact-2026-09-04"] if wire == "anthropic" else [])
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
def test_a_summary_is_asked_as_the_conversation_asks(own: Any, sim: Any, wire: str) -> None:
    """The setting is a part of the requests whose cache the question is to find."""
    chat = own(settings=wanting(COMPACT))
    state = chat.run_turns(None, ["One. " * 90, "Two.", "Three."]).state

    chat.compact_state(state, Compactor(MessageLimit(1), Summarize(keep_turns=1)))

    assert sim.requests[-1].parsed["context_management"] == sim.requests[0].parsed["context_management"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["anthropic"])
def test_the_setting_is_recorded_with_the_turn(own: Any, sim: Any, wire: str) -> None:
    """As the other settings are, in words that tell one edit from another."""
    result = own(settings=wanting(COMPACT, ServerToolClearing(keep=4))).chat(user="Hello.")

    stored = read_history(result.state).turns[0].facts["settings"]["context_management"]
    assert [one["type"] for one in stored] == ["ServerCompaction", "ServerToolClearing"]
    assert stored[0]["above_tokens"] == 50_000


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ServerCompaction(above_tokens=0), ValueError),
        (lambda: ServerCompaction(above_tokens=True), TypeError),
        (lambda: ServerToolClearing(keep=-1), ValueError),
        (lambda: ServerThinkingClearing(keep=0), ValueError),
        (lambda: ServerToolClearing(keep_tools="look"), TypeError),
        (lambda: wanting({"type": "compaction"}), TypeError),
        (lambda: ModelSettings(context_management=COMPACT), TypeError),  # type: ignore[arg-type]
    ],
)
def test_a_wish_that_is_none_is_refused_where_it_is_written(make: Any, error: type[Exception]) -> None:
    """Caller mistakes are told at once."""
    with pytest.raises(error):
        make()
