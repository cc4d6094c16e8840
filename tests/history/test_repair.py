"""Damaged histories are mended: every kind of damage, on every wire, always to the same valid bytes."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py import StateInvalidError
from goaitools_py.backends.anthropic import rules as anthropic_rules
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.openai_chat import rules as chat_rules
from goaitools_py.backends.openai_responses import rules as responses_rules
from goaitools_py.backends.protocols import HistoryFrame
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.history.rewrite.mend import mended, summary
from goaitools_py.history.rewrite.repair import checked, repaired
from goaitools_py.state.records import RULES_VERSION, CutFacts, cut_facts, digest8
from goaitools_py.state.state import closed_entries, closed_turns, dump_state, load_state
from goaitools_py.states import inspect_state, read_history, state_from_messages, state_messages
from goaitools_py.testing import check_history

from ..replay._recorded import read_lines
from ..replay._wire_anthropic import ANTHROPIC
from ..replay._wire_chat import CHAT
from ..replay._wire_responses import RESPONSES
from ._damage import Words, damaged, forged, random_history
from ._mended import UNKNOWN, assert_mended, mend, said

WIRES = ("openai", "openai-responses", "anthropic")
TOLD = {"openai": CHAT, "openai-responses": RESPONSES, "anthropic": ANTHROPIC}


# ------------------------------------------------------------------------------------ kinds of damage


Story = Callable[[Words], list[bytes]]

STORIES: dict[str, tuple[Story, dict[str, int], list[str]]] = {
    "a call without its result": (
        lambda w: w.user("q") + w.calls("c1") + w.says("done"),
        {"result_added": 1},
        ["u q", "a [c1]", f"t c1 {UNKNOWN}", "a done"],
    ),
    "a call at the very end": (
        lambda w: w.user("q") + w.calls("c1", "c2"),
        {"result_added": 2},
        ["u q", "a [c1 c2]", f"t c1 {UNKNOWN}", f"t c2 {UNKNOWN}"],
    ),
    "one result of two is missing, in call order": (
        lambda w: w.user("q") + w.calls("c1", "c2") + w.results("c2") + w.says("done"),
        {"result_added": 1},
        ["u q", "a [c1 c2]", f"t c1 {UNKNOWN}", "t c2 found c2", "a done"],
    ),
    "a result without a call": (
        lambda w: w.user("q") + w.results("c9") + w.says("done"),
        {"stray_result": 1},
        ["u q", "a done"],
    ),
    "the history begins with a result": (
        lambda w: w.results("c9") + w.says("done") + w.user("q") + w.says("yes"),
        {"stray_result": 1},
        ["a done", "u q", "a yes"],
    ),
    "a second result of the same call": (
        lambda w: w.user("q") + w.calls("c1") + w.results("c1") + w.results("c1", text="x") + w.says("done"),
        {"duplicate_result": 1},
        ["u q", "a [c1]", "t c1 found c1", "a done"],
    ),
    "the same result twice": (
        lambda w: w.user("q") + w.calls("c1") + w.results("c1") + w.results("c1") + w.says("done"),
        {"duplicate_result": 1},
        ["u q", "a [c1]", "t c1 found c1", "a done"],
    ),
    "a result behind the next question": (
        lambda w: w.user("q") + w.calls("c1") + w.user("well?") + w.results("c1") + w.says("done"),
        {"result_moved": 1},
        ["u q", "a [c1]", "t c1 found c1", "u well?", "a done"],
    ),
    "a result two turns later": (
        lambda w: w.user("q") + w.calls("c1") + w.user("r") + w.says("yes") + w.user("s") + w.results("c1"),
        {"result_moved": 1},
        ["u q", "a [c1]", "t c1 found c1", "u r", "a yes", "u s"],
    ),
    "a result behind two calls of its id": (
        lambda w: w.user("q") + w.calls("c1") + w.user("r") + w.calls("c1") + w.user("s") + w.results("c1"),
        {"result_added": 1, "result_moved": 1},
        ["u q", "a [c1]", f"t c1 {UNKNOWN}", "u r", "a [c1]", "t c1 found c1", "u s"],
    ),
    "a result before its call": (
        lambda w: w.user("q") + w.results("c1") + w.calls("c1") + w.says("done"),
        {"result_moved": 1},
        ["u q", "a [c1]", "t c1 found c1", "a done"],
    ),
    "a reply with a call twice": (
        lambda w: w.user("q") + w.calls("c1") * 2 + w.results("c1") + w.says("done"),
        {"duplicate_call": 1},
        ["u q", "a [c1]", "t c1 found c1", "a done"],
    ),
    "nothing but an empty message": (
        lambda w: [*w.user("q"), _empty(w), *w.says("done")],
        {"empty": 1},
        ["u q", "a done"],
    ),
    "bytes that are no JSON": (
        lambda w: [*w.user("q"), b'{"role":"us', *w.says("done"), b"null", b'"text"'],
        {"unreadable": 3},
        ["u q", "a done"],
    ),
    "a role that nobody knows": (
        lambda w: [*w.user("q"), b'{"role":"bot","content":"I pose as a user."}', *w.says("done")],
        {"empty": 1},
        ["u q", "a done"],
    ),
    "nothing that could be kept": (
        lambda w: [b"null", *w.results("c9"), b"[]"],
        {"stray_result": 1, "unreadable": 2},
        [],
    ),
}


def _empty(words: Words) -> bytes:
    return b'{"role":"user","content":[]}' if words.wire == "anthropic" else b'{"role":"user","content":null}'


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("story", STORIES)
def test_each_kind_of_damage_is_mended(wire: str, story: str) -> None:
    """What is left says what was meant, in an order that the provider takes; the log says what was done."""
    tell, kinds, told = STORIES[story]

    found = mend(wire, tell(Words(wire)))

    assert summary(found.log) == kinds
    assert said(wire, [one.entry for one in found.entries]) == told


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_that_was_put_in_is_flagged(wire: str) -> None:
    """Only results that no tool produced have a flag: that nobody knows what became of the call."""
    words = Words(wire)

    found = mend(wire, words.user("q") + words.calls("c1", "c2") + words.results("c1"))

    assert [dict(one.flags) for one in found.entries if one.flags] == [{"c2": "unknown"}]


@pytest.mark.parametrize("wire", WIRES)
def test_two_calls_of_one_id_get_an_id_each(wire: str) -> None:
    """Where a provider cannot tell calls apart, the later one and its result get an id of their own."""
    words = Words(wire)
    first, second = words.calls("c1"), words.calls("c1", arguments='{"other":1}')

    found = mend(
        wire, words.user("q") + first + second + words.results("c1") + words.results("c1", text="other")
    )

    views = dialect_of(wire).view([one.entry for one in found.entries])
    calls = [call.id for message in views for call in message.tool_calls]
    assert len(set(calls)) == 2
    assert calls[0] == "c1"
    assert {m.tool_call_id: m.text for m in views if m.role == "tool"} == {
        "c1": "found c1",
        calls[1]: "other",
    }
    assert found.log[0] == ("call_renamed", 2)


@pytest.mark.parametrize(
    ("wire", "broken"),
    [
        (
            "openai",
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"a": 1}}}
                ],
            },
        ),
        (
            "openai-responses",
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": {"a": 1}},
        ),
        (
            "anthropic",
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": '{"a":1}'}],
            },
        ),
    ],
)
def test_arguments_that_the_wire_refuses_are_written_anew(wire: str, broken: Any) -> None:
    """A call keeps what it was called with, in the form that its wire has for that."""
    words = Words(wire)

    found = mend(wire, [*words.user("q"), rawjson.dumps(broken), *words.results("c1"), *words.says("done")])

    views = dialect_of(wire).view([one.entry for one in found.entries])
    (call,) = (call for message in views for call in message.tool_calls)
    assert (call.id, call.name, call.parsed) == ("c1", "look", {"a": 1})
    assert summary(found.log) == {"rewritten": 1}
    assert said(wire, [one.entry for one in found.entries])[2] == "t c1 found c1"


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_before_the_damage_stays_byte_for_byte(wire: str) -> None:
    """The entries themselves come back, not copies that say the same."""
    words = Words(wire)
    good = words.user("q") + words.calls("c1") + words.results("c1") + words.thought(1) + words.says("done")

    found = mend(wire, good + words.user("r") + words.calls("c2"))

    assert all(one.entry is entry for one, entry in zip(found.entries, good, strict=False))


# ------------------------------------------------------------------------------------- of single wires


def test_calls_in_a_row_get_their_results_directly_behind_each() -> None:
    """Chat Completions wants results directly behind the message that called, whoever speaks after that."""
    words = Words("openai")
    entries = words.user("q") + words.calls("c1") + words.says("one moment") + words.results("c1")

    found = mend("openai", entries)

    assert said("openai", [one.entry for one in found.entries]) == [
        "u q",
        "a [c1]",
        "t c1 found c1",
        "a one moment",
    ]
    assert summary(found.log) == {"result_moved": 1}


def test_results_of_the_old_function_calls_stay() -> None:
    """Messages of role `function` answer no call by its id; damage elsewhere does not make them strays."""
    words = Words("openai")
    old = [
        b'{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}',
        b'{"role":"function","name":"f","content":"7"}',
    ]

    found = mend("openai", [*words.user("q"), *old, *words.says("7"), *words.results("c9")])

    assert [one.entry for one in found.entries][1:3] == old
    assert summary(found.log) == {"stray_result": 1}


REASONING = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}'


@pytest.mark.parametrize("behind", ["user", "results", "end"])
def test_reasoning_without_what_follows_it_goes(behind: str) -> None:
    """Reasoning belongs to the item behind it; without one it is refused, and nothing else goes with it."""
    words = Words("openai-responses")
    parts = {
        "user": [*words.user("q"), REASONING, *words.user("r"), *words.says("yes")],
        "results": [
            *words.user("q"),
            *words.calls("c1"),
            REASONING,
            *words.results("c1"),
            *words.user("r"),
            *words.says("yes"),
        ],
        "end": [*words.user("q"), *words.says("yes"), REASONING],
    }

    found = mend("openai-responses", parts[behind])

    assert [one.entry for one in found.entries] == [e for e in parts[behind] if e != REASONING]
    assert summary(found.log) == {"orphan": 1}


def test_reasoning_that_is_followed_stays() -> None:
    """Reasoning of whole replies is not touched by damage elsewhere."""
    words = Words("openai-responses")
    good = [
        *words.user("q"),
        REASONING,
        *words.calls("c1"),
        *words.results("c1"),
        REASONING,
        *words.says("y"),
    ]

    found = mend("openai-responses", [*good, *words.results("c9")])

    assert [one.entry for one in found.entries] == good


def test_reasoning_that_only_a_stray_stood_behind_stays() -> None:
    """Once the stray is gone, what the reasoning led to follows it."""
    words = Words("openai-responses")
    entries = [*words.user("q"), REASONING, *words.results("c9"), *words.says("yes")]

    found = mend("openai-responses", entries)

    assert [one.entry for one in found.entries] == [*words.user("q"), REASONING, *words.says("yes")]
    assert summary(found.log) == {"stray_result": 1}


def test_outputs_of_provider_tools_stay() -> None:
    """Results that the rules pair with no call of ours are not taken for strays."""
    words = Words("openai-responses")
    computer = [
        b'{"type":"computer_call","id":"cu_1","call_id":"c8","action":{"type":"screenshot"}}',
        b'{"type":"computer_call_output","call_id":"c8","output":{"type":"computer_screenshot"}}',
    ]
    good = [*words.user("q"), *computer, *words.says("yes")]

    found = mend("openai-responses", [*good, *words.results("c9")])

    assert [one.entry for one in found.entries] == good


def test_compaction_items_stay_if_they_are_whole() -> None:
    """The provider's own summary is kept as it is; one without its content says nothing."""
    words = Words("openai-responses")
    whole = b'{"type":"compaction","encrypted_content":"x"}'

    found = mend("openai-responses", [whole, *words.user("q"), b'{"type":"compaction"}', *words.says("yes")])

    assert [one.entry for one in found.entries] == [whole, *words.user("q"), *words.says("yes")]
    assert summary(found.log) == {"empty": 1}


def test_a_result_of_the_wrong_kind_is_written_anew() -> None:
    """A custom tool's output cannot answer a function call; what it says can."""
    words = Words("openai-responses")
    wrong = b'{"type":"custom_tool_call_output","call_id":"c1","output":"seven"}'

    found = mend("openai-responses", [*words.user("q"), *words.calls("c1"), wrong, *words.says("yes")])

    assert rawjson.loads(found.entries[2].entry)["type"] == "function_call_output"
    assert said("openai-responses", [found.entries[2].entry]) == ["t c1 seven"]
    assert summary(found.log) == {"rewritten": 1}


def _block_message(*blocks: Any, role: str = "user") -> bytes:
    return rawjson.dumps({"role": role, "content": list(blocks)})


def _result(id: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "tool_result",
        "tool_use_id": id,
        "content": [{"type": "text", "text": f"r {id}"}],
        **more,
    }


def test_results_in_several_messages_become_one_verbatim() -> None:
    """Anthropic wants all results in the next message; blocks move with every member that they have."""
    words = Words("anthropic")
    first, second = _result("c1", is_error=True, later="kept"), _result("c2", cache_control={"type": "x"})

    found = mend(
        "anthropic",
        [*words.user("q"), *words.calls("c1", "c2"), _block_message(second), _block_message(first)],
    )

    assert rawjson.loads(found.entries[2].entry)["content"] == [second, first]
    assert summary(found.log) == {"result_moved": 1}


def test_an_error_that_would_be_refused_is_written_again() -> None:
    """Anthropic takes text in an error, and nothing else. Other results of the message keep their mark."""
    words = Words("anthropic")
    empty, failed = _result("c1", is_error=True, content=[]), _result("c2", is_error=True)

    found = mend("anthropic", [*words.user("q"), *words.calls("c1", "c2"), _block_message(empty, failed)])

    first, second = rawjson.loads(found.entries[2].entry)["content"]
    assert first["is_error"]
    assert first["content"][0]["type"] == "text"
    assert second == failed
    assert "rewritten" in summary(found.log)


def test_text_before_results_goes_behind_them() -> None:
    """In a message with results nothing may stand before them."""
    words = Words("anthropic")
    text = {"type": "text", "text": "and another thing"}
    entries = [*words.user("q"), *words.calls("c1"), _block_message(text, _result("c1")), *words.says("yes")]

    found = mend("anthropic", entries)

    assert said("anthropic", [one.entry for one in found.entries]) == [
        "u q",
        "a [c1]",
        "t c1 r c1",
        "u and another thing",
        "a yes",
    ]


def test_a_message_that_was_whole_is_the_very_message_again() -> None:
    """Results with a text behind them, which nobody had to take apart, keep their bytes."""
    words = Words("anthropic")
    whole = _block_message(_result("c1"), _result("c2"), {"type": "text", "text": "well?"})

    found = mend("anthropic", [*words.user("q"), *words.calls("c1", "c2"), whole, *words.calls("c3")])

    assert found.entries[2].entry is whole
    assert summary(found.log) == {"result_added": 1}


def test_a_strays_message_keeps_what_else_it_says() -> None:
    """Only the result goes; a text beside it stays, unless it is white space only."""
    words = Words("anthropic")
    text, blank = {"type": "text", "text": "hello"}, {"type": "text", "text": " "}
    stray = _result("c9")

    kept = mend("anthropic", [_block_message(stray, text), *words.says("yes")])
    gone = mend("anthropic", [_block_message(stray, blank), *words.says("yes")])

    assert said("anthropic", [one.entry for one in kept.entries]) == ["u hello", "a yes"]
    assert said("anthropic", [one.entry for one in gone.entries]) == ["a yes"]


def test_a_hosted_call_that_nobody_finished_goes() -> None:
    """A hosted tool's call without its result is refused before a user's message."""
    words = Words("anthropic")
    hosted = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    text = {"type": "text", "text": "I search."}

    found = mend(
        "anthropic",
        [
            *words.user("q"),
            _block_message(text, hosted, role="assistant"),
            *words.user("r"),
            *words.says("y"),
        ],
    )

    assert rawjson.loads(found.entries[1].entry)["content"] == [text]
    assert summary(found.log) == {"unfinished": 1}


def test_a_hosted_call_that_is_finished_later_stays() -> None:
    """Its result may come behind the results of the caller's own tools; damage elsewhere changes nothing."""
    words = Words("anthropic")
    hosted = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    own = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    good = [
        *words.user("q"),
        _block_message(hosted, own, role="assistant"),
        _block_message(_result("c1")),
        _block_message(result, {"type": "text", "text": "There."}, role="assistant"),
    ]

    found = mend("anthropic", [*good, *words.results("c9")])

    assert [one.entry for one in found.entries] == good


# --------------------------------------------------------------------------------- random histories


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), times=st.integers(0, 6), wire=st.sampled_from(WIRES))
def test_random_damage_is_mended(seed: int, times: int, wire: str) -> None:
    """Valid, the same again, unchanged before the damage: whatever was dropped, doubled, swapped, moved."""
    dice = random.Random(seed)
    words = Words(wire)
    history = random_history(words, dice)
    assert check_history(wire, history, unique_ids=False) == []

    assert_mended(wire, damaged(history, dice, times=times))


@cache
def conversations(path: Path) -> list[list[Any]]:
    """Real conversations with tools, without their leading system messages."""
    found = []
    for name in ("tau-airline-gpt4o", "sgd", "sweagent"):
        for line in list(read_lines(path / "conversations" / f"{name}.jsonl.zst"))[:12]:
            messages = json.loads(line)["messages"]
            found.append(list(dropwhile(lambda message: message["role"] == "system", messages))[:40])
    return found


@pytest.mark.parametrize("wire", WIRES)
def test_damaged_real_conversations_are_mended(wire: str, data_dir: Path) -> None:
    """The same of real conversations, told in the words of each wire."""
    if not (data_dir / "conversations").is_dir():
        pytest.skip("no conversations in the data directory")
    seed = 20261121
    print(f"seed {seed}")
    dice = random.Random(seed)
    mends = 0

    for messages in conversations(data_dir):
        history = [rawjson.dumps(one) for one in TOLD[wire].told(messages)]
        for _ in range(3):
            bad = damaged(history, dice, times=dice.randint(1, 4))
            assert_mended(wire, bad)
            mends += len(mended(bad, dialect_of(wire)).log)

    assert mends > 100


# ---------------------------------------------------------------------------------------------- blobs


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each full check of a history had, in order."""
    made: list[int] = []

    def counted(original: Any, messages: Any, frame: HistoryFrame) -> Iterator[str]:
        made.append(len(messages))
        yield from original(messages, frame)

    for rules in (chat_rules, responses_rules, anthropic_rules):
        monkeypatch.setattr(rules, "problems", partial(counted, rules.problems))
    return made


@pytest.mark.parametrize("wire", WIRES)
def test_a_state_of_today_is_not_checked(wire: str, checks: list[int]) -> None:
    """A state that says it is valid under the rules of today comes back as it is, and nothing is read."""
    words = Words(wire)
    state = load_state(forged(words, words.user("q") + words.calls("c1"), rules=RULES_VERSION))

    sound, log = checked(state, words.dialect)

    assert sound is state
    assert (log, checks) == ({}, [])


@pytest.mark.parametrize("wire", WIRES)
def test_a_valid_state_without_the_mark_is_checked_once(wire: str, checks: list[int]) -> None:
    """Its history stays the very same segments; only the mark is new, and it stays through a blob."""
    words = Words(wire)
    entries = words.user("q") + words.calls("c1") + words.results("c1") + words.says("done")
    state = load_state(forged(words, entries, rules=0))

    sound, log = checked(state, words.dialect)
    again, _ = checked(load_state(dump_state(sound)), words.dialect)

    assert (sound.sealed, log, sound.meta.cuts) == (state.sealed, {}, ())
    assert sound.hot is state.hot
    assert (state.meta.rules, sound.meta.rules, again.meta.rules) == (0, RULES_VERSION, RULES_VERSION)
    assert checks == [len(entries)]


@pytest.mark.parametrize("wire", WIRES)
def test_turns_stay_turns(wire: str) -> None:
    """Results are put into the turn of their call; other turns, times, reasons and facts stay."""
    words = Words(wire)
    entries = [
        *(words.user("q") + words.calls("c1", "c2") + words.results("c1", "c2")[:1] + words.says("one")),
        *(words.user("r") + words.calls("c3") + words.says("two")),
        *(words.user("s") + words.says("three")),
        *(words.user("t") + words.calls("c4")),
    ]
    state = load_state(forged(words, entries, rules=0))
    given_turns = closed_turns(state)

    sound, log = checked(state, words.dialect)

    turns = closed_turns(sound)
    assert [turn.record.facts["metadata"] for turn in turns] == [{"n": str(n)} for n in range(4)]
    assert turns[2] == given_turns[2]
    flags = {id: flag for turn in turns for id, flag in turn.record.facts.get("flags", {}).items()}
    assert flags["c3"] == flags["c4"] == "unknown"
    assert [turn.record.facts.get("repaired", {}).get("result_added") for turn in turns][1:] == [1, None, 1]
    for turn in turns:
        views = [words.dialect.view([entry])[0].role[0] for entry in turn.entries]
        assert turn.letters == "".join(views)
        assert turn.record.messages == len(words.dialect.view(turn.entries))
    assert sound.meta.messages == sum(turn.record.messages for turn in turns)
    assert sound.meta.cuts[-1][:3] == (9, "repaired", 0)
    assert log["result_added"] >= 2


@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_of_which_nothing_is_left_is_gone(wire: str) -> None:
    """What was done to it is a fact of the next one, and the journal of cuts counts it."""
    words = Words(wire)
    state = load_state(
        forged(
            words,
            [
                b'{"role":',
                *words.user("q"),
                *words.says("one"),
                b'{"rol":',
                *words.user("r"),
                *words.says("two"),
            ],
            rules=0,
        )
    )
    assert len(closed_turns(state, checked=False)) == 2
    lonely = load_state(forged(words, [b"null"], rules=0))

    sound, _ = checked(state, words.dialect)
    empty, _ = checked(lonely, words.dialect)

    assert [turn.record.facts["repaired"] for turn in closed_turns(sound)] == [{"unreadable": 1}] * 2
    assert (closed_turns(empty), empty.meta.turns, empty.meta.messages) == ([], 0, 0)
    assert empty.meta.cuts[-1][:4] == (9, "repaired", 1, 1)
    assert cut_facts(empty.meta.cuts[-1]) == CutFacts(number=1, size=4, digest=digest8(b"null"))


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_thinking_goes_when_the_history_was_mended(wire: str) -> None:
    """What was signed does not fit a rewritten history: it is taken out from its beginning, as by a cut."""
    words = Words(wire)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    answer = (
        words.thought(1) + words.says("one")
        if wire == "openai-responses"
        else [_block_message(thinking, {"type": "text", "text": "one"}, role="assistant")]
    )
    entries = words.user("q") + answer + words.user("r") + words.calls("c1")
    state = load_state(forged(words, entries, rules=0, signed=True))

    sound, _ = checked(state, words.dialect)

    raw = b"".join(closed_entries(sound))
    assert (sound.meta.signed, sound.meta.unbound) == (False, False)
    assert b"c2VjcmV0" not in raw
    assert b"thinking" not in raw
    assert said(wire, closed_entries(sound))[:2] == ["u q", "a one"]


def test_columns_that_cannot_be_read_are_beyond_repair() -> None:
    """Where nobody can say what belongs to which turn, the typed error is as it always was."""
    words = Words("openai")
    state = load_state(forged(words, words.user("q") + words.calls("c1"), rules=0))
    assert state.hot is not None
    broken = replace(state, hot=replace(state.hot, entries=7))

    with pytest.raises(StateInvalidError):
        checked(broken, words.dialect)


def test_a_wire_without_rules_is_left_alone() -> None:
    """Nobody knows what another wire's provider takes; its states are taken as they are."""
    words = Words("openai")
    state = load_state(forged(words, words.user("q") + words.calls("c1"), rules=0))

    class Other:
        wire = "telegraph"

    assert repaired(state, Other()) == (state, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("wire", WIRES)
def test_readers_show_what_the_next_turn_will_send(wire: str) -> None:
    """Also of a blob with entries that nobody can read; the blob stays as it is."""
    words = Words(wire)
    blob = forged(words, [*words.user("q"), b'{"role', *words.calls("c1"), *words.says("done")], rules=0)

    history = read_history(blob)
    messages = state_messages(blob)

    assert history.turns[0].facts["flags"] == {"c1": "unknown"}
    assert history.turns[0].facts["repaired"] == {"result_added": 1, "unreadable": 1}
    assert [message.text for message in history.all_messages()] == ["q", "", UNKNOWN, "done"]
    assert check_history(wire, messages) == []
    assert inspect_state(blob).cuts == ()


# Written by a release before the mark was there: two turns, the second of which called a tool.
UNMARKED = {
    "openai": (
        "9UdBUwEAAgAAAAOkAAAAAA2JKyg8SHADClhva5fye38Ac4wCACi1L/1gDABNAwAThAxdbD6UASLF7PClmhsxzglSUkpLTYmjvJTF"
        "slIdirrwiSSVWHZs7ufsY2c59JHxn6+OBRX8Tpx4Sqn2Z58FqWIjJYYc2JClEFq9D8GG9MngyV1lGVquPU+ImvAog+yxE7FuY3Oa"
        "KwgCyQGYBQYotS/9YJgB/QUAo4YTVVXRqcYpRkvNHNOkZowxhwI03rfXNc+7D+SyZHlz0KIoi/GVIHpZq2oIuqKlo94sD9Sv/7Dg"
        "xHfFiHvuv9GlX+eB6M11lFdhXcZ/jqwDKfzuGh1wK2g+0Vv0fqmJHD10kEARcydHgeIUhZlFmvRozKxqjaZBLfWiJmHOUfDNuUuB"
        "SjDNEqFS/rnELpElx48govR1SKhWA7EqUiYtDsmicEILOY3Orf7IfAqU/RH1ODY6M+Szwv7/pFnAdAI="
    ),
    "openai-responses": (
        "9UdBUwEAAgAAAAVPAAAAAEBQRq7mTGD5swb8jW3s9KMAd5kCACi1L/1gGQBtAwBjRA1dbDrNFcEcnrGxjDhhasJyTtNKPKW0FeJo"
        "L2WxrNSGg0ZTsfFxX0Cb+zn72FkOfWT856tjARX8W5wAV2rqU9BiO8FYMKZ2VlqZfCi70pWLqcs/B4phiSCXutD37Bpoy8J71ZTi"
        "glfKdFYQAtcCtggGKLUv/WA2A20KAHMPKlVV4SlOmJqwlJdaKqcYNd631zXPuw9ETlttjfKy8UaY7c7wYhmnvnLEeoIsXDFlWZgv"
        "ei+V0lqWuttWLDNFt7Y0X8mS5c1dCJoWwhxjhjtam6krS5ipBtGdZZzV4pyx3LTqzfJA/fqP9LUsg2WN/yzaNlhw4rtixD333+jS"
        "r/NA9OY6yquwLuM/B7bmZW3KShshhHBf+LIsClqW0lRGK+eLIc6ZWjhmHT/8rJwSrFShSUwEVMd0FiJvalQhJ36Gkdd3g3t8a1PY"
        "pxGjWRoS54MIsJ8+sjtkPfEzlBD6FoDuFsLH//sJpYcpq+8KBmfSNxB2dFYM34hdeOKFiqbJw4Fnr1vnsX1rSQTWVV8J1q5hvH9E"
        "+kiBjRTTvBVa7ZYT15iWfn4DRlqN1wqqugOErIkIwd0EIY9nmFIW8foyFvqOpNWEsIcqqQVNig=="
    ),
    "anthropic": (
        "9UdBUwEAAgAAAARJAAAAAK61tjHKkgnBQDUUf9luv6IAepICACi1L/1gEgCFAwDzxA5dbEh9Rp2ax1EqmXGibLVzijhOlpruvTdK"
        "aS01rZX2UhbLSnlIkyTTganB8hHa3M/Zx85y6CPjP18dCxT8VJxQldL4RbTK9osLWiVewkXrC3/F1FVIiMxq5WItOj8DS1InalN7"
        "prkMJfeWKSoIAukBtwYGKLUv/WA3Av0GANOHFlVV4clSdrLUVK2dIISRVmrmmKgZJxk13rfXNc+7D+Ry1/Zc+82yAdlkeXP62npR"
        "EaQrvKgF0lVufVlbJuNfb5YH6td/WHDiu2J0/S3LGIjeXEd5FdZl/OfIOjL8IpWYGDQA6soyZCulpVn3wGFHuTX41mVx+t/I/xp2"
        "pvwVXUMB/lkwj0bEMUn3K1HAH414c07/uZkhv4qwuS39gGYw8Gmlf4lidn8XyR/jH8OCP/2WJkl6WaXHgYb4G5E9Q33pFzS2sFhW"
        "kb8xQAZOOcJDlTvEZfs2RkFCJp3m4Bk="
    ),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_blob_from_before_the_mark_is_read(wire: str) -> None:
    """A blob without the mark is read, checked, and found valid: not a byte of its history changes."""
    blob = base64.b64decode(UNMARKED[wire])
    state = load_state(blob)

    sound, log = checked(state, dialect_of(wire))

    assert (state.meta.rules, sound.meta.rules, log) == (0, RULES_VERSION, {})
    assert closed_turns(sound) == closed_turns(state)
    assert read_history(blob).all_messages()[0].text == "My name is Ada."
    assert len(closed_turns(sound)) == 2


# --------------------------------------------------------------------------------------------- imports


@pytest.mark.parametrize("wire", WIRES)
def test_an_import_is_strict_unless_it_is_to_be_repaired(wire: str) -> None:
    """With `repair=True` the history is mended, and the state says what was done, and is marked."""
    words = Words(wire)
    entries = words.user("q") + words.calls("c1") + words.says("done") + words.user("r") + words.results("c7")
    messages = [rawjson.loads(entry) for entry in entries]
    with pytest.raises(ValueError, match="refuse"):
        state_from_messages(wire, messages)

    blob = state_from_messages(wire, messages, repair=True)

    assert check_history(wire, state_messages(blob)) == []
    assert [turn.facts for turn in read_history(blob).turns] == [
        {"flags": {"c1": "unknown"}, "repaired": {"result_added": 1}},
        {"repaired": {"stray_result": 1}},
    ]
    assert [row[1] for row in inspect_state(blob).cuts] == ["repaired"]
    assert load_state(blob).meta.rules == RULES_VERSION


@pytest.mark.parametrize("wire", WIRES)
def test_a_valid_import_is_the_same_with_and_without_repair(wire: str) -> None:
    """Repair is no other way of importing."""
    words = Words(wire)
    entries = words.user("q") + words.calls("c1") + words.results("c1") + words.says("done")
    messages = [rawjson.loads(entry) for entry in entries]

    repaired = state_from_messages(wire, messages, repair=True, conversation_id="c", created_ms=1)
    assert repaired == state_from_messages(wire, messages, conversation_id="c", created_ms=1)


def test_a_system_prompt_is_no_damage() -> None:
    """Repair does not take instructions away without a word: they go into `system=`, by their owner."""
    messages = [{"role": "system", "content": "Be kind."}, {"role": "tool", "content": "x"}]

    with pytest.raises(ValueError, match="system="):
        state_from_messages("openai", messages, repair=True)


def test_what_is_no_object_is_dropped_from_an_import() -> None:
    """An import may hold anything that JSON can say."""
    messages: list[Any] = [None, "text", {"role": "user", "content": "q"}, 7]

    blob = state_from_messages("openai", messages, repair=True)

    assert state_messages(blob) == [{"role": "user", "content": "q"}]


def _calls(ids: list[str]) -> bytes:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return rawjson.dumps({"role": "assistant", "content": None, "tool_calls": calls})


@pytest.mark.parametrize(
    ("ids", "answered"),
    [
        (["c"] * 12_000, ["c"] * 3),
        ([f"c{n}" for n in range(12_000)], [f"c{11_999 - n % 7}" for n in range(6_000)]),
    ],
    ids=["calls with one id", "many results of the last calls"],
)
def test_many_calls_are_mended_in_time(ids: list[str], answered: list[str]) -> None:
    """Mending takes time in proportion to the history, which may come from anywhere (2 s here; 11 and 18 s if
    each call hashes its entry, or each result looks at all calls)."""
    results = [rawjson.dumps({"role": "tool", "tool_call_id": id, "content": "x"}) for id in answered]
    start = time.process_time()

    found = mended([b'{"role":"user","content":"Hello."}', _calls(ids), *results], dialect_of("openai"))

    assert len(found.entries) == len(ids) + 2
    assert time.process_time() - start < 6


@pytest.mark.parametrize("odd", [b"null", b"7", b"[]", b'"c"'])
def test_what_is_no_call_among_calls_with_one_id_is_dropped(odd: bytes) -> None:
    """An element that is no object is not counted as a call, wherever calls are counted."""
    entry = _calls(["c", "c"]).replace(b'"tool_calls":[', b'"tool_calls":[' + odd + b",")
    results = [rawjson.dumps({"role": "tool", "tool_call_id": "c", "content": "x"})] * 2

    found = mended([b'{"role":"user","content":"Hello."}', entry, *results], dialect_of("openai"))

    messages = [rawjson.loads(one.entry) for one in found.entries]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [message["tool_call_id"] for message in messages[2:]] == ids
