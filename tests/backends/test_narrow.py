"""Narrowing against the simulator's own rules: what a host refuses becomes what it takes."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import HostRules, NarrowedHistory, narrowed_history
from goaitools_py.base import rawjson
from goaitools_py.history.rewrite.mend import mended
from goaitools_py.sim.anthropic.rules import check_anthropic
from goaitools_py.sim.openai.chat_rules import check_openai
from goaitools_py.sim.openai.responses_rules import check_openai_responses
from goaitools_py.testing import check_history

from ..history._damage import Words, damaged, random_history
from ..history._lenient import HABITS, base_history, dumped, is_form, lenient

WIRES = ("openai", "openai-responses", "anthropic")
HABITUAL = [(wire, name) for wire in WIRES for name in HABITS[wire]]
_REUSED = re.compile("`tool_use` ids must be unique|Duplicate '.*' item found with call_id")


def narrowed(wire: str, entries: Sequence[bytes], *, fully: bool) -> NarrowedHistory:
    """The entries as the own host of a provider API takes them."""
    return narrowed_history(dialect_of(wire), entries, HostRules(fully=fully))


def refusals(wire: str, entries: Sequence[bytes]) -> list[str]:
    """As `said`, but for ids of calls that come again in another turn: recorded hosts took them."""
    return [words for words in said(wire, entries) if not _REUSED.search(words)]


def said(wire: str, entries: Sequence[bytes]) -> list[str]:
    """What the own host says to a request with this history and one more message of the user."""
    history = [json.loads(entry) for entry in [*entries, *Words(wire).user("And now?")]]
    check: dict[str, Callable[[Any], list[str]]] = {
        "openai": lambda h: check_openai({"model": "gpt", "messages": h}),
        "openai-responses": lambda h: check_openai_responses({"model": "gpt", "input": h, "store": False}),
        "anthropic": lambda h: check_anthropic({"model": "claude", "max_tokens": 9, "messages": h}),
    }
    return check[wire](history)


def settled(wire: str, found: NarrowedHistory) -> list[bytes]:
    """The narrowed entries, and what they lack now repaired, as both users of them do it."""
    left = [entry for entry in found.entries if entry]
    return [one.entry for one in mended(left, dialect_of(wire)).entries]


@pytest.mark.parametrize(("wire", "habit"), HABITUAL)
def test_each_habit_is_valid_refused_and_narrowed(wire: str, habit: str) -> None:
    """By the wide rules it is a history; the host refuses it, and takes what becomes of it."""
    history = base_history(Words(wire))
    HABITS[wire][habit](history)
    entries = dumped(history)
    assert check_history(wire, entries, unique_ids=False) == []
    assert refusals(wire, entries) != []

    formed, found = (narrowed(wire, entries, fully=fully) for fully in (False, True))

    assert refusals(wire, settled(wire, found)) == []
    assert (refusals(wire, settled(wire, formed)) == []) == is_form(habit)
    assert {at for _, at in found.log} == {
        at for at, (new, old) in enumerate(zip(found.entries, entries, strict=True)) if new is not old
    }


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fully", [False, True])
def test_what_the_host_takes_stays_the_very_object(wire: str, fully: bool) -> None:
    """Random histories in the package's own words, 200 of them: not one byte changes."""
    dice = random.Random(20261125)
    taken = 0
    while taken < 200:
        entries = random_history(Words(wire), dice)
        if said(wire, entries):  # an id of a call is there twice
            continue
        taken += 1
        found = narrowed(wire, entries, fully=fully)
        assert found.log == ()
        assert all(new is old for new, old in zip(found.entries, entries, strict=True))


@pytest.mark.parametrize("wire", WIRES)
def test_any_mixture_of_habits_is_narrowed(wire: str) -> None:
    """300 random histories, each with some habits: the host takes them, and a second time nothing changes."""
    for seed in range(300):
        dice = random.Random(seed)
        history, names = lenient(wire, dice, times=dice.randint(1, 5))
        entries = dumped(history)
        assert check_history(wire, entries, unique_ids=False) == [], (seed, names)

        found = narrowed(wire, entries, fully=True)
        once = settled(wire, found)

        assert said(wire, once) == [], (seed, names)
        assert narrowed(wire, once, fully=True).log == (), (seed, names)
        untouched = [new for new, old in zip(found.entries, entries, strict=True) if new == old]
        assert all(any(new is old for old in entries) for new in untouched), (seed, names)


_GREETING = 'messages: first message must use the "user" role'
"""The dialect sends a message of the user before a history that begins with the assistant's."""


@pytest.mark.parametrize("wire", WIRES)
def test_a_damaged_history_is_taken_after_repair_and_narrowing(wire: str) -> None:
    """Members that are missing or of any type, entries dropped, doubled or moved: 400 histories."""
    for seed in range(400):
        dice = random.Random(seed)
        history, names = lenient(wire, dice, times=dice.randrange(3))
        entries = damaged(dumped(history), dice, times=dice.randint(1, 5))
        sound = [one.entry for one in mended(entries, dialect_of(wire)).entries]

        found = settled(wire, narrowed(wire, sound, fully=True))

        refused = [words for words in said(wire, found) if words != _GREETING]
        assert refused == [], (seed, names)


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_that_is_no_history_raises(wire: str) -> None:
    """500 damaged histories, with members that are missing or of any other type."""
    for seed in range(500):
        dice = random.Random(seed)
        history, names = lenient(wire, dice, times=2)
        entries = damaged(dumped(history), dice, times=4)
        for fully in (False, True):
            found = narrowed(wire, entries, fully=fully)
            again = narrowed(wire, entries, fully=fully)
            assert found == again, (seed, names)
            for new, old in zip(found.entries, entries, strict=True):
                assert new is old or not new or isinstance(rawjson.loads(new), dict), (seed, names)


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_and_its_result_are_renamed_alike(wire: str) -> None:
    """Two calls stay two, what each is called now is told, and ids that the host takes stay."""
    words, dialect = Words(wire), dialect_of(wire)
    ids = ["c1", "t.1:0", "x" * 65, "x" * 66, "é" * 70, "a b"]
    entries = [entry for id in ids for entry in words.calls(id) + words.results(id)]

    found = narrowed(wire, entries, fully=True)

    pairs = [dialect.view(found.entries[at : at + 2]) for at in range(0, len(entries), 2)]
    made = [call.id for call, _ in pairs for call in call.tool_calls]
    assert [result.tool_call_id for _, result in pairs] == made
    assert len(set(made)) == len(ids)
    assert made[0] == "c1"
    assert refusals(wire, words.user("q") + [entry for entry in found.entries if entry]) == []
    told = {old: new for renamed in found.ids for old, new in renamed.items()}
    assert told == {old: new for old, new in zip(ids, made, strict=True) if old != new}


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_an_id_of_two_turns_is_renamed_where_a_host_refuses_it(wire: str) -> None:
    """The later call gets another id, and so does its result. An import leaves it: recorded hosts took it."""
    words = Words(wire)
    turn = [*words.user("q"), *words.calls("c1"), *words.results("c1"), *words.says("a")]
    turn = [entry.replace(b'"id":"msg_a",', b"") for entry in turn]

    found = narrowed(wire, turn * 3, fully=True)

    assert narrowed(wire, turn * 3, fully=False).log == ()
    assert _REUSED.search(" ".join(said(wire, turn * 3)))
    assert said(wire, found.entries) == []
    assert [at for _, at in found.log] == [5, 6, 9, 10]
    assert found.entries[:4] == tuple(turn)


@pytest.mark.parametrize("wire", WIRES)
def test_a_hostile_history_takes_no_longer_than_its_length(wire: str) -> None:
    """20,000 calls with one id, in one entry and in as many: seconds, not hours."""
    calls = Words(wire).calls(*["t.1"] * 20_000)
    began = time.process_time()

    found = narrowed(wire, calls, fully=True)
    apart = narrowed(wire, Words(wire).calls("t.1") * 20_000, fully=True)

    assert time.process_time() - began < 20
    assert len(apart.entries) == 20_000
    if wire == "anthropic":
        assert len(set(_ids_in(found.entries))) == len(set(_ids_in(apart.entries))) == 20_000


def _ids_in(entries: Sequence[bytes]) -> list[str]:
    return [block["id"] for entry in entries for block in json.loads(entry)["content"]]


def test_a_provider_api_of_somebody_elses_has_no_rules() -> None:
    """Its entries and ids stay."""
    entries = (b'{"tool_calls":[]}', b"nothing")

    theirs: Any = object()

    found = narrowed_history(theirs, entries, HostRules(fully=True))

    assert found == NarrowedHistory(entries, (), ({}, {}))


# ------------------------------------------------------------------------------------- rule by rule


CHAT = [
    ('{"role":"assistant","content":"a","tool_calls":[]}', '{"role":"assistant","content":"a"}', "members"),
    (
        '{"role":"assistant","content":[],"tool_calls":[{"id":"c","type":"function","function":'
        '{"name":"f","arguments":"{}"}}]}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":'
        '{"name":"f","arguments":"{}"}}]}',
        "rewritten",
    ),
    (
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c", "function":'
        '{"name":"functions.f","arguments":"{\\"a\\": 1e5}"}}]}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c", "function":'
        '{"name":"f","arguments":"{\\"a\\": 1e5}"},"type":"function"}]}',
        "rewritten tool_renamed",
    ),
    (
        '{"role":"function","name":"a.b","content":"x"}',
        '{"role":"function","name":"a_b","content":"x"}',
        "tool_renamed",
    ),
    (
        '{"role":"user","content":[{"type":"image_url","image_url":"https://example.com/a.png"}]}',
        '{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}',
        "rewritten",
    ),
    ('{"role":"user","content":"x","name":""}', '{"role":"user","content":"x"}', "speaker_renamed"),
    (
        '{"role":"user","content":"x","name":"A <b>"}',
        '{"role":"user","content":"x","name":"A__b_"}',
        "speaker_renamed",
    ),
]
CHAT_FULLY = [
    (
        '{"role":"assistant","reasoning_content":"hm","content":"a","tool_calls":null}',
        '{"role":"assistant","content":"a"}',
        "members members",
    ),
    (
        '{"role":"assistant","content":null,"audio":{"id":"a1","data":"xx"}}',
        '{"role":"assistant","content":"[audio: left out, because the provider does not take it here]"}',
        "left_out",
    ),
    (
        '{"role":"assistant","content":"Hi.","audio":{"id":"a1"}}',
        '{"role":"assistant","content":"Hi."}',
        "left_out",
    ),
    (
        '{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}',
        '{"role":"user","content":[{"type":"text","text":"x"}]}',
        "members",
    ),
    (
        '{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","index":0,"function":'
        '{"name":"f","arguments":"{}","parsed_arguments":{}},"extra_content":{"google":{}}}]}',
        '{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":'
        '{"name":"f","arguments":"{}"}}]}',
        "members members members empty",
    ),
]
RESPONSES = [
    ('{"type":"item_reference","id":"msg_1"}', "", "reference"),
    (
        '{"role":"assistant","id":"chatcmpl-1","content":"x"}',
        '{"role":"assistant","content":"x","type":"message"}',
        "item_id",
    ),
    (
        '{"type":"function_call","id":"call_1","call_id":"c","name":"a.b","arguments":"{}"}',
        '{"type":"function_call","call_id":"c","name":"a_b","arguments":"{}"}',
        "item_id tool_renamed",
    ),
    (
        '{"role":"user","content":[{"type":"refusal","refusal":"no"}]}',
        '{"role":"user","content":[{"type":"input_text","text":"no"}]}',
        "rewritten",
    ),
]
RESPONSES_FULLY = [
    (
        '{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":null,"parsed_arguments":1}',
        '{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}',
        "members members",
    ),
    (
        '{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":'
        '[{"type":"output_text","text":"x","annotations":[],"parsed":{"a":1},"logprobs":null}]}',
        '{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":'
        '[{"type":"output_text","text":"x","annotations":[]}]}',
        "members members",
    ),
    ('{"type":"reasoning","id":"rs_1","summary":[],"content":null}', "", "thinking"),
]
ANTHROPIC = [
    (
        '{"id":"msg_1","role":"assistant","content":[{"type":"text","text":"x"}],"usage":{"a":1e5}}',
        '{"role":"assistant","content":[{"type":"text","text":"x"}]}',
        "members members",
    ),
    (
        '{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"a.b","input":{"n": 1e5},'
        '"caller":null}]}',
        '{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"a_b","input":{"n": 1e5}}]}',
        "tool_renamed members",
    ),
    (
        '{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s",'
        '"cache_control":{"type":"ephemeral"}},{"type":"text","text":"x"}]}',
        '{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},'
        '{"type":"text","text":"x"}]}',
        "marks",
    ),
    (
        '{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"char_location",'
        '"file_id":null}]}]}',
        '{"role":"assistant","content":[{"type":"text","text":"x","citations":[{"type":"char_location"}]}]}',
        "members",
    ),
    ('{"role":"user","content":[{"type":"thinking","thinking":"x","signature":"s"}]}', "", "thinking"),
]
CHAT_FULLY += [
    ('{"role":"assistant","content":""}', "", "empty"),
    ('{"role":"assistant","content":"","reasoning_content":"Hm."}', "", "empty"),
]
ANTHROPIC_FULLY = [
    (
        '{"role":"assistant","content":[{"type":"redacted_thinking"},{"type":"text","text":"x"}]}',
        '{"role":"assistant","content":[{"type":"text","text":"x"}]}',
        "thinking",
    ),
    (
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":'
        '[{"type":"input_audio","data":"x"}]}]}',
        '{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":'
        '[{"type":"text","text":"[input_audio: left out, because the provider does not take it here]"}]}]}',
        "left_out",
    ),
]
CASES = [
    *(("openai", False, *case) for case in CHAT),
    *(("openai", True, *case) for case in CHAT_FULLY),
    *(("openai-responses", False, *case) for case in RESPONSES),
    *(("openai-responses", True, *case) for case in RESPONSES_FULLY),
    *(("anthropic", False, *case) for case in ANTHROPIC),
    *(("anthropic", True, *case) for case in ANTHROPIC_FULLY),
]


@pytest.mark.parametrize(("wire", "fully", "given", "made", "kinds"), CASES)
def test_a_rule_changes_its_form_and_no_other_byte(
    wire: str, fully: bool, given: str, made: str, kinds: str
) -> None:
    """Spaces, numbers and members that stay are the given ones. What costs something waits for a refusal."""
    found = narrowed(wire, [given.encode()], fully=fully)

    assert found.entries == (made.encode(),)
    assert " ".join(kind for kind, _ in found.log) == kinds
    if fully:
        assert narrowed(wire, [given.encode()], fully=False).log == ()


def test_signed_thinking_stays_verbatim_beside_what_goes() -> None:
    """Its bytes are the given ones, odd spaces included, also where all around it is narrowed."""
    thought = b'{"signature" : "c2ln", "type":"thinking","thinking":"h\\u00e9"}'
    open_thought = b'{"type":"thinking","thinking":"x"}'
    call = b'{"type":"tool_use","id":"t.1","name":"f","input":{}}'
    entry = b'{"role":"assistant","content":[%s,%s,%s],"usage":{}}' % (open_thought, thought, call)

    (made,) = narrowed("anthropic", [entry], fully=True).entries

    assert rawjson.items(rawjson.members(made)["content"])[0] == thought


def test_one_cache_mark_stays_at_an_import() -> None:
    """It may be meant, and a request has room for one. A host that refused the history gets none."""
    block = '{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}'

    assert narrowed("anthropic", [block.encode()], fully=False).log == ()
    assert narrowed("anthropic", [block.encode()] * 2, fully=False).log == (("marks", 0), ("marks", 1))
    assert narrowed("anthropic", [block.encode()], fully=True).log == (("marks", 0),)


def test_what_follows_removed_reasoning_loses_its_id() -> None:
    """Else the server refuses it without its reasoning. Records of hosted work need an id, and go along."""
    thought = b'{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2VjcmV0"}'
    found = b'{"type":"web_search_call","id":"ws_1","status":"completed","action":{}}'
    message = b'{"type":"message","role":"assistant","id":"msg_%d","status":"completed","content":[]}'
    asked = b'{"role":"user","content":"x"}'
    entries = [thought, message % 1, asked, thought, found, message % 2, asked, message % 3]

    made = narrowed("openai-responses", entries, fully=False)

    assert made.entries[:3] == tuple(entries[:3])
    assert made.entries[3:5] == (b"", b"")
    assert b'"id"' not in made.entries[5]
    assert made.entries[6:] == tuple(entries[6:])
    assert made.log == (("thinking", 3), ("item_id", 4), ("item_id", 5))
