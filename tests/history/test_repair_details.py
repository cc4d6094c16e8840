"""Single decisions of a repair: which call a result goes to, what stays, and what the report says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.backends.anthropic import rules as anthropic_rules
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.openai_chat import rules as chat_rules
from goaitools_py.backends.openai_responses import rules as responses_rules
from goaitools_py.backends.protocols import HistoryFrame
from goaitools_py.base import rawjson
from goaitools_py.history.rewrite.mend import mended, summary

from ._damage import Words, damaged, random_history
from ._mended import UNKNOWN, assert_mended, mend, said

WIRES = ("openai", "openai-responses", "anthropic")


def message(*blocks: Any, role: str = "assistant") -> bytes:
    """A message of blocks, as the Anthropic API has it."""
    return rawjson.dumps({"role": role, "content": list(blocks)})


HOSTED = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
SEARCHES = {"type": "text", "text": "I search."}


def reasoning(number: int) -> bytes:
    """A reasoning item of the Responses API."""
    item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x"}
    return rawjson.dumps(item)


# ------------------------------------------------------------------------ which call a result goes to


@pytest.mark.parametrize("wire", WIRES)
def test_a_late_result_goes_to_the_nearest_call_before_it(wire: str) -> None:
    """Of two calls with one id, a result between them belongs to the first."""
    w = Words(wire)
    entries = w.user("q") + w.calls("c1") + w.user("r") + w.results("c1") + w.user("s") + w.calls("c1")

    found = mend(wire, entries)

    assert said(wire, [one.entry for one in found.entries]) == [
        *("u q", "a [c1]", "t c1 found c1", "u r", "u s", "a [c1]", f"t c1 {UNKNOWN}")
    ]
    assert summary(found.log) == {"result_added": 1, "result_moved": 1}


@pytest.mark.parametrize("wire", WIRES)
def test_of_two_late_results_the_first_stays(wire: str) -> None:
    """One that stands behind a reply, and one behind a question: their order in the history decides."""
    w = Words(wire)
    entries = [
        *(w.user("q") + w.calls("c1") + w.user("r") + w.calls("c2") + w.results("c2")),
        *(w.says("done") + w.results("c1", text="first") + w.user("s") + w.results("c1", text="second")),
    ]

    found = mend(wire, entries)

    assert said(wire, [one.entry for one in found.entries])[2] == "t c1 first"
    assert summary(found.log) == {"duplicate_result": 1, "result_moved": 1}
    assert ("duplicate_result", len(entries) - 1) in found.log


def test_a_result_that_is_added_joins_a_message_of_results_and_text() -> None:
    """All results of an exchange are in one message: one that begins with results is joined, and cut behind
    them, also where it ends with something else."""
    w = Words("anthropic")
    results = [rawjson.loads(entry) for id in ("c2", "c3") for entry in w.results(id)]
    blocks = [block for one in results for block in one["content"]]
    mixed = message(*blocks, {"type": "text", "text": "and now?"}, role="user")
    entries = [*w.user("q"), *w.calls("c1", "c2", "c3"), mixed, *w.says("one")]

    found = mend("anthropic", entries)

    assert said("anthropic", [one.entry for one in found.entries]) == [
        *("u q", "a [c1 c2 c3]", f"t c1 {UNKNOWN}", "t c2 found c2", "t c3 found c3", "u and now?", "a one")
    ]
    assert [one.letter for one in found.entries] == ["u", "a", "t", "u", "a"]
    assert summary(found.log) == {"result_added": 1}


@pytest.mark.parametrize("wire", WIRES)
def test_a_copy_of_a_result_is_not_the_result_of_a_later_call(wire: str) -> None:
    """The later call of the same id may have found something else: its outcome is unknown."""
    w = Words(wire)
    entries = w.user("q") + w.calls("c1") + w.results("c1") * 2 + w.user("r") + w.calls("c1")

    found = mend(wire, entries)

    assert said(wire, [one.entry for one in found.entries]) == [
        *("u q", "a [c1]", "t c1 found c1", "u r", "a [c1]", f"t c1 {UNKNOWN}")
    ]
    assert summary(found.log) == {"duplicate_result": 1, "result_added": 1}


# ------------------------------------------------------------------------------------ what stays


@pytest.mark.parametrize("missing", ["id", "name"])
@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_the_text_beside_a_call_without_id_or_name_stays(wire: str, missing: str) -> None:
    """Only the call that cannot be named goes; what the model said, and its other calls, stay."""
    w = Words(wire)
    calls: list[dict[str, Any]] = (
        [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}} for n in (1, 2)]
        if wire == "anthropic"
        else [
            {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            for n in (1, 2)
        ]
    )
    holder = calls[0]["function"] if wire == "openai" and missing == "name" else calls[0]
    del holder[missing]
    broken = (
        message({"type": "text", "text": "I look."}, *calls)
        if wire == "anthropic"
        else rawjson.dumps({"role": "assistant", "content": "I look.", "tool_calls": calls})
    )

    found = mend(wire, [*w.user("q"), broken, *w.results("c2"), *w.says("done")])

    assert said(wire, [one.entry for one in found.entries]) == [
        "u q",
        "a I look.[c2]",
        "t c2 found c2",
        "a done",
    ]
    assert summary(found.log) == {"rewritten": 1}


def test_only_the_reasoning_without_its_item_goes() -> None:
    """In one reply, reasoning that is followed by what was said stays when other reasoning goes."""
    w = Words("openai-responses")
    kept = [*w.user("q"), reasoning(1), reasoning(2), *w.says("yes")]
    after = [*w.user("r"), *w.says("and")]

    found = mend("openai-responses", [*kept, reasoning(3), *after])

    assert [one.entry for one in found.entries] == [*kept, *after]
    assert found.log == (("orphan", 4),)


def test_reasoning_before_a_call_stays() -> None:
    """A call follows it as well as a message does, also while its result is not there yet."""
    w = Words("openai-responses")
    entries = [*w.user("q"), reasoning(1), *w.calls("c1"), reasoning(2), *w.user("r"), *w.says("and")]

    found = mend("openai-responses", entries)

    kept = [one.entry for one in found.entries if one.source is not None]
    assert kept == [one for one in entries if one != reasoning(2)]
    assert summary(found.log) == {"orphan": 1, "result_added": 1}


def test_a_call_without_its_result_and_reasoning_without_its_item_are_both_told() -> None:
    """A round that is mended in two ways reports both."""
    w = Words("openai-responses")

    found = mend("openai-responses", [*w.user("q"), *w.calls("c1"), reasoning(1), *w.user("r")])

    assert summary(found.log) == {"orphan": 1, "result_added": 1}


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_that_was_put_in_is_told_where_the_reply_ends(wire: str) -> None:
    """The report names the last entry of what was said in a row, behind which the result stands."""
    w = Words(wire)

    found = mend(wire, w.user("q") + w.says("I look.") + w.calls("c1") + w.user("r"))

    assert found.log == (("result_added", 2),)


def test_a_hosted_call_beside_a_call_of_ours_stays() -> None:
    """A result that is put in stands where nothing else has to go, if there is such a place."""
    w = Words("anthropic")
    paused = message(SEARCHES, HOSTED)
    entries = [*w.user("q"), *w.calls("c1"), paused, *w.user("r"), *w.says("yes")]

    found = mend("anthropic", entries)

    assert [one.entry for one in found.entries if one.source is not None] == entries
    assert summary(found.log) == {"result_added": 1}


@pytest.mark.parametrize("between", ["stray", "unreadable", "empty"])
def test_a_hosted_call_is_settled_with_all_that_was_said_in_a_row(between: str) -> None:
    """What stood behind an unfinished hosted call goes; the next reply then does not finish that call."""
    w = Words("anthropic")
    goes = {"stray": w.results("c9"), "unreadable": [b"null"], "empty": [message(role="user")]}[between]
    entries = [*w.user("q"), message(SEARCHES, HOSTED), *goes, *w.says("yes"), *w.user("r"), *w.says("and")]

    found = mend("anthropic", entries)

    assert said("anthropic", [one.entry for one in found.entries]) == [
        *("u q", "a I search.", "a yes", "u r", "a and")
    ]
    assert summary(found.log)["unfinished"] == 1


def test_a_message_that_was_whole_has_the_letter_of_its_first_part() -> None:
    """A message of results with a text behind them counts as results."""
    w = Words("anthropic")
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "7"}
    whole = message(result, {"type": "text", "text": "well?"}, role="user")

    found = mend("anthropic", [*w.user("q"), *w.calls("c1"), whole, *w.calls("c2")])

    assert [one.letter for one in found.entries] == ["u", "a", "t", "a", "t"]


# ---------------------------------------------------------------------- rules that nobody knows yet


def refuse(monkeypatch: pytest.MonkeyPatch, words: bytes) -> None:
    """From now on the rules refuse each history that holds these bytes."""

    def check(original: Any, messages: Sequence[Any], frame: HistoryFrame) -> Iterator[str]:
        yield from original(messages, frame)
        if any(words in one for one in messages):
            yield "banned"

    for rules in (chat_rules, responses_rules, anthropic_rules):
        monkeypatch.setattr(rules, "problems", partial(check, rules.problems))


@pytest.mark.parametrize("wire", WIRES)
def test_calls_that_nothing_helps_go_and_the_text_stays(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under a rule that no other mending knows: the reply stays without its calls and results."""
    w = Words(wire)
    text = w.says("I look.")
    good = w.user("q") + w.calls("c2") + w.results("c2") + w.says("one")
    refuse(monkeypatch, b'"c1"')
    calls = w.calls("c1")
    if wire != "openai-responses":
        value = rawjson.loads(calls[0])
        says = rawjson.loads(text[0])["content"]
        own = value["content"] if wire == "anthropic" else says
        blocks = [{"type": "text", "text": "I look."}, *own] if wire == "anthropic" else own
        text, calls = [], [rawjson.dumps({**value, "content": blocks})]

    found = mend(wire, good + w.user("r") + text + calls + w.results("c1") + w.user("s"))

    assert said(wire, [one.entry for one in found.entries])[-3:] == ["u r", "a I look.", "u s"]
    assert [one.entry for one in found.entries][: len(good)] == good
    assert summary(found.log) == {"calls_removed": 1}
    assert [found.entries[-2].source, found.log[0][1]] == [len(good) + 1] * 2


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_of_calls_that_nothing_helps_is_told_as_a_reply_that_went(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is left without the calls, the report says that the reply is gone."""
    w = Words(wire)
    refuse(monkeypatch, b'"c1"')

    found = mend(wire, w.user("q") + w.calls("c1") + w.results("c1") + w.user("r"))

    assert said(wire, [one.entry for one in found.entries]) == ["u q", "u r"]
    assert found.log == (("reply_removed", 1),)


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_that_nothing_helps_goes(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions before and behind it stay, and the report says where it stood."""
    w = Words(wire)
    entries = w.user("q") + w.says("banned") + w.user("r") + w.says("yes")
    refuse(monkeypatch, b"banned")

    found = mend(wire, entries)

    assert said(wire, [one.entry for one in found.entries]) == ["u q", "u r", "a yes"]
    assert found.log == (("reply_removed", 1),)


# --------------------------------------------------------------------------------- random histories

OF_PROVIDERS: dict[str, list[bytes]] = {
    "openai": [
        b'{"role":"assistant","content":"x","tool_calls":'
        b'[{"id":"c1","type":"custom","custom":{"name":"f","input":"x"}}]}',
        b'{"role":"system","content":"x"}',
        b'{"role":"assistant","content":"plain"}',
    ],
    "openai-responses": [
        b'{"type":"computer_call","id":"cu_1","call_id":"c8","action":{"type":"screenshot"}}',
        b'{"type":"computer_call_output","call_id":"c8","output":{"type":"computer_screenshot"}}',
        b'{"type":"custom_tool_call","call_id":"c7","name":"f","input":"x"}',
        b'{"type":"custom_tool_call_output","call_id":"c7","output":"x"}',
        b'{"type":"mcp_approval_request","id":"m1","name":"n","arguments":"{}","server_label":"x"}',
        b'{"type":"mcp_approval_response","approval_request_id":"m1","approve":true}',
        b'{"type":"web_search_call","id":"w1","status":"completed"}',
        b'{"type":"function_call","call_id":"c8","name":"f","arguments":"{}"}',
        b'{"role":"assistant","content":"plain"}',
        reasoning(1),
    ],
    "anthropic": [
        message(SEARCHES, HOSTED),
        message(HOSTED, {"type": "tool_use", "id": "c1", "name": "look", "input": {}}),
        message(HOSTED),
        b'{"role":"system","content":"x"}',
    ],
}


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), wire=st.sampled_from(WIRES))
def test_random_damage_beside_provider_tools_is_mended(seed: int, wire: str) -> None:
    """Also with tools that the provider runs, or that the client runs for it, in any place."""
    dice = random.Random(seed)
    history = random_history(Words(wire), dice)[:10]
    for _ in range(dice.randint(1, 4)):
        history.insert(dice.randint(0, len(history)), dice.choice(OF_PROVIDERS[wire]))

    assert_mended(wire, damaged(history, dice, times=dice.randint(0, 3)))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), wire=st.sampled_from(WIRES))
def test_the_report_accounts_for_every_message(seed: int, wire: str) -> None:
    """Where entries were only dropped, doubled or moved: what is gone or new is in the report, by number."""
    dice = random.Random(seed)
    entries = random_history(Words(wire), dice)
    for _ in range(dice.randint(1, 5)):
        at, to = dice.randrange(len(entries)), dice.randrange(len(entries))
        mishap = dice.choice(("drop", "double", "move"))
        kept = entries[at] if mishap == "double" else entries.pop(at)
        if mishap != "drop":
            entries.insert(to, kept)
        if not entries:
            return
    view = dialect_of(wire).view

    found = mended(entries, dialect_of(wire))

    made = [one.entry for one in found.entries]
    log = summary(found.log)
    before, after = view(entries), view(made)
    told = Counter(one.text for one in before if one.role == "user")
    assert Counter(one.text for one in after if one.role == "user") == told
    real = [one for one in after if one.role == "tool" and one.text != UNKNOWN]
    flags = [flag for one in found.entries for flag in one.flags.values()]
    assert flags == ["unknown"] * log.get("result_added", 0)
    assert len(flags) + len(real) == sum(one.role == "tool" for one in after)
    gone = log.get("stray_result", 0) + log.get("duplicate_result", 0)
    assert len(real) + gone == sum(one.role == "tool" for one in before)
    places = [at for _, at in found.log]
    assert places == sorted(places)
    assert all(0 <= at < len(entries) for at in places)
    if found.log:
        letters = ["t" if view([one])[0].role == "tool" else view([one])[0].role[0] for one in made]
        assert [one.letter for one in found.entries] == letters
