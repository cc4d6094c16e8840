"""What a provider does with the context by itself, asked for behind the one strategy `ProviderCompaction`.

A portable compactor: where the wire or the host has no such thing, the strategy's own way is what happens.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py import (
    NO_COMPACTION,
    ClearToolResults,
    Compactor,
    MessageLimit,
    ModelSettings,
    Summarize,
    TokenLimit,
    TurnLimit,
    any_of,
    first_of,
)
from goaitools_py.compaction import (
    ContextWindow,
    ProviderCompaction,
    ServerCompaction,
    ServerThinkingClearing,
    ServerToolClearing,
)
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, read_history, state_messages
from goaitools_py.testing import check_history

COMPACT = ServerCompaction(above_tokens=60_000)
CLEAR = ServerToolClearing(keep=2)
FORGET = ServerThinkingClearing(keep=3)
NEVER = TurnLimit(10_000)
HERE: dict[str, Any] = {
    "openai": None,
    "openai-responses": [{"type": "compaction", "compact_threshold": 60_000}],
    "anthropic": {
        "edits": [
            {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 2}},
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}},
        ]
    },
}
"""What each wire's own host gets of a clearing and a compaction."""
TALK = " It was a long day, and there was much to see on the way from the station to the harbour." * 6


def by_itself(*edits: Any, **fields: Any) -> ProviderCompaction:
    return ProviderCompaction(context_management=edits, **fields)


def asked(sim: Any) -> list[Any]:
    """What each request said of the context, None where it said nothing."""
    return [request.parsed.get("context_management") for request in sim.requests]


def betas(sim: Any, request: int = -1) -> list[str]:
    """The betas that a request names, the newest one unless another is meant."""
    return [name for name in sim.requests[request].headers.get("anthropic-beta", "").split(",") if name]


def test_every_request_asks_as_far_as_the_wire_can(own: Any, sim: Any, run: Any, scores: Any) -> None:
    """In each request of each turn, though no trigger fires; a wire that has none of it gets none of it."""
    sim.push(Reply.calls(("get_score", '{"team":"red"}')))
    chat = own(tools=[scores.get_score], compactor=Compactor(NEVER, by_itself(CLEAR, COMPACT)))

    first = run(chat, None, user="What is the score?")
    run(chat, first.state, user="And now?")

    assert asked(sim) == [HERE[sim.wire]] * 3
    assert betas(sim) == (
        ["compact-2026-01-12", "context-management-2025-06-27"] if sim.wire == "anthropic" else []
    )
    assert first.compaction is None
    assert sim.problems == []


def test_a_host_that_is_not_known_is_not_asked(face: Any, sim: Any, run: Any) -> None:
    """It might take no notice, and the compactor goes on by its own way: here a summary."""
    chat = face.on(sim, compactor=Compactor(MessageLimit(4), by_itself(CLEAR, COMPACT, keep_turns=1)))
    state = chat.run_turns(None, ["My name is Ada." + TALK, "Note 2." + TALK, "Note 3." + TALK]).state

    after = run(chat, state, user="What is my name?")

    assert not any(asked(sim))
    assert "Ada" in after.text
    notes = [turn.facts.get("note") for turn in read_history(after.state).turns]
    assert notes[0] == ("summary" if sim.wire == "openai" else "compacted")
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai"])
def test_the_fallback_is_the_callers(own: Any, sim: Any, wire: str) -> None:
    """What clears tool results where no provider does."""

    def look() -> str:
        """Look around."""
        return TALK

    sim.push(*[Reply.calls(("look", "{}")), Reply.text("A harbour.")] * 2)
    here = by_itself(CLEAR, keep_turns=1, fallback=ClearToolResults(keep=1, at_least=1))
    chat = own(tools=[look])
    state = chat.run_turns(None, ["One?", "Two?", "Three."]).state

    report = chat.compact_state(state, Compactor(NEVER, here))

    assert (report.outcome, report.rewritten_turns, report.removed_turns) == ("compacted", 1, 0)
    assert not any(asked(sim))


def test_the_setting_wins(own: Any, sim: Any, run: Any) -> None:
    """The compactor's wishes are not added to it, and none of them go along where it is off."""
    chat = own(compactor=Compactor(NEVER, by_itself(CLEAR, COMPACT)))
    later = ServerCompaction(above_tokens=70_000)

    run(chat, None, user="One.", settings=ModelSettings(context_management=None))
    run(chat, None, user="Two.", settings=ModelSettings(extra_body={"context_management": None}))
    if sim.wire != "openai":
        run(chat, None, user="Three.", settings=ModelSettings(context_management=[later]))

    said = json.dumps(asked(sim)[2:])
    assert asked(sim)[:2] == [None, None]
    assert betas(sim, 0) == betas(sim, 1) == []
    assert ("70000" in said, "60000" in said) == (sim.wire != "openai", False)
    assert "context-management-2025-06-27" not in betas(sim)


@pytest.mark.parametrize(("wire", "edit"), [("openai-responses", CLEAR), ("anthropic", COMPACT)])
def test_the_setting_is_still_refused_where_nobody_has_it(
    face: Any, own: Any, sim: Any, wire: str, edit: Any
) -> None:
    """A compactor beside it changes nothing: what is set outright is done or refused."""
    chat = (own if wire == "openai-responses" else lambda **fields: face.on(sim, **fields))(
        compactor=Compactor(NEVER, by_itself(edit))
    )

    with pytest.raises(ValueError, match=r"clears no tool results|is not known to have"):
        chat.chat(user="Hello.", settings=ModelSettings(context_management=[edit]))

    chat.chat(user="Hello.")
    assert asked(sim) == [None]


@pytest.mark.parametrize("wire", ["anthropic", "openai-responses"])
@pytest.mark.parametrize(
    "compactor",
    [
        Compactor(any_of(NEVER, TokenLimit(10**6)), by_itself(CLEAR, COMPACT)),
        first_of(Compactor(NEVER, Summarize()), Compactor(NEVER, by_itself(CLEAR, COMPACT))),
        first_of(
            Compactor(NEVER, by_itself(CLEAR)), NO_COMPACTION, Compactor(NEVER, by_itself(CLEAR, COMPACT))
        ),
        first_of(first_of(Compactor(NEVER, by_itself(CLEAR, COMPACT))), Compactor(NEVER, Summarize())),
        first_of(
            Compactor(NEVER, by_itself(CLEAR, COMPACT)),
            Compactor(NEVER, by_itself(ServerToolClearing(keep=9), ServerCompaction(above_tokens=90_000))),
        ),
        ContextWindow(max_tokens=10**6, strategy=by_itself(CLEAR, COMPACT)),
    ],
)
def test_in_every_composition(own: Any, sim: Any, wire: str, compactor: Any) -> None:
    """Wherever the strategy stands; of each kind of wish the first one counts."""
    own(compactor=compactor).chat(user="Hello.")

    assert asked(sim) == [HERE[wire]]
    assert sim.problems == []


@pytest.mark.parametrize(
    "compactor",
    [None, NO_COMPACTION, Compactor(NEVER, ProviderCompaction()), ContextWindow(max_tokens=10**6)],
)
def test_no_wish_no_word(own: Any, sim: Any, compactor: Any) -> None:
    """The bytes of a request are those of a chat without a compactor."""
    own(compactor=compactor).chat(user="Hello.", conversation_id="c")
    own().chat(user="Hello.", conversation_id="c")

    assert sim.requests[0].body == sim.requests[1].body


def test_the_state_keeps_nothing_of_it(own: Any, sim: Any) -> None:
    """The wishes are the chat's, not the conversation's: the next chat may have others, or none."""
    compactor = Compactor(NEVER, by_itself(CLEAR, COMPACT))

    result = own(compactor=compactor).chat(user="Hello.", settings=ModelSettings(max_output_tokens=90))

    assert read_history(result.state).turns[0].facts["settings"] == {"max_output_tokens": 90}
    own().chat_with_state(result.state, user="And now?")
    assert asked(sim) == [HERE[sim.wire], None]


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize(
    ("settings", "clears"),
    [
        (ModelSettings(), False),
        (ModelSettings(thinking_budget_tokens=0), False),
        (ModelSettings(thinking_budget_tokens=1024), True),
        (ModelSettings(extra_body={"thinking": {"type": "adaptive"}}), True),
        (ModelSettings(thinking_budget_tokens=1024, extra_body={"thinking": {"type": "disabled"}}), False),
    ],
)
def test_thinking_is_cleared_where_a_request_asks_for_some(
    own: Any, sim: Any, wire: str, settings: ModelSettings, clears: bool
) -> None:
    """To any other it would be a 400. It comes first, whatever the order of the wishes."""
    own(compactor=Compactor(NEVER, by_itself(CLEAR, FORGET)), settings=settings).chat(user="Hello.")

    forget = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 3}}
    clear = HERE["anthropic"]["edits"][0]
    assert asked(sim) == [{"edits": [forget, clear] if clears else [clear]}]
    assert betas(sim) == ["context-management-2025-06-27"]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_instructions_go_where_they_are_taken(own: Any, sim: Any, wire: str) -> None:
    """OpenAI compacts after its own idea of what to keep; the setting would be refused."""
    edit = ServerCompaction(above_tokens=60_000, instructions="Keep names.")

    own(compactor=Compactor(NEVER, by_itself(edit))).chat(user="Hello.")

    assert asked(sim) == [HERE[wire]]


def test_a_dry_run_and_a_cut_by_hand_do_as_ever(own: Any, sim: Any) -> None:
    """`compact_state` does what it did: the strategy's own way, whatever the provider does by itself."""
    chat = own()
    state = chat.run_turns(None, [f"Note {n}." + TALK for n in range(4)]).state
    plain, wishing = (
        Compactor(NEVER, strategy)
        for strategy in (ProviderCompaction(keep_turns=1), by_itself(CLEAR, COMPACT, keep_turns=1))
    )

    dry = chat.compact_state(state, wishing, dry_run=True)
    report = chat.compact_state(state, wishing)

    usual = chat.compact_state(state, plain)
    assert dry.state == state
    assert (dry.outcome, dry.removed_turns) == (report.outcome, report.removed_turns) == ("compacted", 3)
    assert state_messages(report.state) == state_messages(usual.state)
    assert check_history(sim.wire, state_messages(report.state)) == []
    assert inspect_state(report.state).turns == 2
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_another_compactor_by_hand_asks_behind_the_same_requests(own: Any, sim: Any, wire: str) -> None:
    """What its strategy asks the model says of the context what every request of the conversation says: the
    wishes of the chat's compactor, and none of its own."""
    usual = Compactor(NEVER, by_itself(CLEAR, COMPACT))
    chat = own(compactor=usual)
    state = chat.run_turns(None, [f"Note {n}." + TALK for n in range(4)]).state
    before = len(sim.requests)

    for other in (Compactor(NEVER, Summarize(keep_turns=1)), Compactor(NEVER, by_itself(COMPACT))):
        chat.compact_state(state, other, dry_run=True)

    assert len(sim.requests) > before
    summary = asked(sim)[before]
    assert summary == asked(sim)[0] == HERE[wire]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ProviderCompaction(context_management=COMPACT), "must be a list"),  # type: ignore[arg-type]
        (lambda: by_itself({"type": "compaction"}), "each item"),
        (lambda: ServerThinkingClearing(keep="some"), "must be an int"),  # type: ignore[arg-type]
    ],
)
def test_a_wish_that_is_none_is_refused_where_it_is_written(make: Any, words: str) -> None:
    """Caller mistakes are told at once."""
    with pytest.raises(TypeError, match=words):
        make()


def test_a_compactor_of_the_callers_own_may_wish(own: Any, sim: Any) -> None:
    """It is seen by its shape; what is no wish is told before anything is sent."""

    class Mine:
        context_management: Any = (COMPACT,)

        def plan(self, request: Any, *, force: bool = False) -> None:
            return None

    mine = Mine()
    own(compactor=mine).chat(user="Hello.")
    mine.context_management = ["compaction"]

    with pytest.raises(TypeError, match="the compactor's context_management"):
        own(compactor=mine).chat(user="Hello.")

    assert [bool(said) for said in asked(sim)] == [sim.wire != "openai"]
