"""Responses requests as hosts with other rules take them: each letter, and the laws of views."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.backends.protocols import HostRules

from ..history._damage import Words, random_history
from ..history._lenient import HABITS, base_history, dumped, is_form
from . import _view_laws as laws

WIRE = "openai-responses"
OWN = OpenAIResponsesDialect()
OTHER = OpenAIResponsesDialect(family="local", host="127.0.0.1:11434")
WORDS = Words(WIRE)
HERE = "acdefijlmprstuxz"
"""The letters that this provider API has a rule for."""


def user(words: str) -> str:
    return f'{{"role":"user","content":{json.dumps(words)}}}'


def says(words: str, id: str = "msg_1") -> str:
    part = f'{{"type":"output_text","text":{json.dumps(words)},"annotations":[]}}'
    return f'{{"type":"message","id":"{id}","role":"assistant","status":"completed","content":[{part}]}}'


def free(item: str) -> str:
    """The item without its id."""
    return item.replace('"id":"msg_1",', "").replace('"id":"fc_1",', "")


def call(id: str = "c1") -> str:
    return f'{{"type":"function_call","id":"fc_1","call_id":"{id}","name":"look","arguments":"{{}}"}}'


def output(id: str = "c1") -> str:
    return f'{{"type":"function_call_output","call_id":"{id}","output":"5"}}'


THOUGHT = '{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}'
SEALED = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2VjcmV0"}'
SEARCH = '{"type":"web_search_call","id":"ws_1","status":"completed","action":{}}'
SYSTEM = '{"role":"developer","content":"Be brief."}'
BLOCK = user("<app-system>\nBe brief.\n</app-system>")
DOT = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"."}]}'
PICTURE = '{"type":"input_image","image_url":"https://example.com/a.png"}'
FILE = '{"type":"input_file","file_id":"file_1"}'
EMPTY = '{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[]}'
TYPED = '{"role":"assistant","content":"b","type":"message"}'


def note(kind: str, text: str = "input_text") -> str:
    return f'{{"type":"{text}","text":"[{kind}: left out, because the provider does not take it here]"}}'


def output_of(part: str) -> str:
    return f'{{"type":"function_call_output","call_id":"c1","output":[{part}]}}'


def said(kind: str) -> str:
    return '{{"type":"message","role":"assistant","content":[{}]}}'.format(note(kind, "output_text"))


Case = tuple[OpenAIResponsesDialect, str, list[str], list[str]]
CASES: list[Case] = [
    (OTHER, "a", [user("a"), user("b"), says("c")], [user("a\n\nb"), says("c")]),
    (
        OTHER,
        "a",
        [user("a"), f'{{"role":"user","content":[{PICTURE}]}}'],
        [f'{{"role":"user","content":[{{"type":"input_text","text":"a"}},{PICTURE}]}}'],
    ),
    (OTHER, "a", [says("a"), call(), output(), says("b")], []),
    (OTHER, "a", [TYPED, TYPED], ['{"role":"assistant","content":"b\\n\\nb","type":"message"}']),
    (OTHER, "c", [user("a"), THOUGHT, says("b"), call(), output()], [user("a"), says("b"), call(), output()]),
    (OTHER, "c", [user("a"), THOUGHT, call(), output(), THOUGHT, says("b")], []),
    (OTHER, "d", [user("a"), SYSTEM], [user("a"), SYSTEM.replace("developer", "system")]),
    (OTHER, "e", [user("a"), SEALED, EMPTY, user("b")], [user("a"), user("b")]),
    (OTHER, "e", [user("a"), SEALED, EMPTY, call(), output()], [user("a"), SEALED, call(), output()]),
    (OTHER, "e", [user("")], [user("(empty)")]),
    (OTHER, "e", [call(), output().replace('"5"', '""')], [call(), output().replace('"5"', '"(empty)"')]),
    (OWN, "f", [call().replace("look", "a.b")], [call().replace("look", "a_b")]),
    (OTHER, "h", [call().replace('"{}"', '"{\\"a\\":1}{"'), output()], [call(), output()]),
    (OTHER, "h", [call().replace('"{}"', '"{\\"a\\":1}"'), output()], []),
    (OWN, "j", [says("a"), user("b"), says("c")], [says("a"), user("b"), free(says("c"))]),
    (OTHER, "l", [user("a"), says("b")], [user("a"), says("b"), user("(Please go on.)")]),
    (OTHER, "l", [user("a"), says("b"), call()], []),
    (OTHER, "l", [user("a"), call(), says("b")], []),
    (OWN, "m", ['{"role":"user","content":"a","author":"b"}'], [user("a")]),
    (
        OWN,
        "m",
        [call().replace('"{}"}', '"{}","status":null,"parsed_arguments":1}')],
        [call()],
    ),
    (OWN, "p", [user("a"), '{"type":"thing","id":"t"}', says("b")], [user("a"), says("b")]),
    (OWN, "p", [user("a"), SEARCH, FILE and f'{{"role":"user","content":[{FILE}]}}'], []),
    (OTHER, "p", [user("a"), SEARCH, says("b")], [user("a"), says("b")]),
    (
        OTHER,
        "p",
        [f'{{"role":"user","content":[{FILE}]}}'],
        ['{{"role":"user","content":[{}]}}'.format(note("input_file"))],
    ),
    (OTHER, "p", ['{"role":"assistant","content":"b"}'], [TYPED]),
    (
        OTHER,
        "p",
        ['{"type":"custom_tool_call","call_id":"c1","name":"look","input":"x"}'],
        ['{"type":"function_call","call_id":"c1","name":"look","arguments":"{\\"input\\":\\"x\\"}"}'],
    ),
    (
        OTHER,
        "p",
        [
            '{"type":"computer_call","id":"cu_1","call_id":"c1","action":{}}',
            '{"type":"computer_call_output","call_id":"c1","output":{}}',
            says("b"),
        ],
        [said("computer_call"), says("b")],
    ),
    (
        OTHER,
        "p",
        [call(), output_of(PICTURE)],
        [call(), output_of(note("input_image"))],
    ),
    (
        OTHER,
        "p",
        ['{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}'],
        ['{"type":"message","role":"assistant","content":[{"type":"output_text","text":"no"}]}'],
    ),
    (OWN, "p", ['{"type":"item_reference","id":"msg_1"}', user("a")], [user("a")]),
    (
        OWN,
        "r",
        [user("a"), THOUGHT, says("b"), user("c"), SEALED, says("d", "msg_2")],
        [user("a"), free(says("b"))],
    ),
    (OWN, "r", [user("a"), THOUGHT, SEARCH, says("b")], [user("a"), free(says("b"))]),
    (
        OTHER,
        "r",
        [user("a"), SEALED, call(), output(), says("b")],
        [user("a"), free(call()), output(), says("b")],
    ),
    (OTHER, "s", [user("a"), SYSTEM, says("b")], [user("a"), BLOCK, says("b")]),
    (OTHER, "s", [SYSTEM, user("a")], []),
    (OTHER, "z", [SYSTEM, user("a")], [BLOCK, user("a")]),
    (OTHER, "u", [call(), output(), user("b")], [call(), output(), DOT, user("b")]),
    (OTHER, "u", [call(), output(), says("b"), user("c")], []),
    (
        OTHER,
        "x",
        [f'{{"role":"user","content":[{{"type":"input_text","text":"a"}},{PICTURE}]}}'],
        [user("a\n\n[input_image: left out, because the provider does not take it here]")],
    ),
    (
        OTHER,
        "x",
        [says("b")],
        ['{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":"b"}'],
    ),
]


@pytest.mark.parametrize(("dialect", "letter", "given", "made"), CASES)
def test_a_letter_changes_what_its_rule_is_about(
    dialect: OpenAIResponsesDialect, letter: str, given: list[str], made: list[str]
) -> None:
    """No other byte changes. [] stands for no change. A shorter result is the beginning."""
    history = [entry.encode() for entry in given]
    parts = laws.parts_of(history)

    viewed = dialect.request_view(parts, HostRules(letters=letter))

    expected = [entry.encode() for entry in made or given]
    found = laws.flat(viewed.history)
    assert found[: len(expected)] == expected
    assert len(found) == len(expected) or found[len(expected) :] == history[-(len(found) - len(expected)) :]
    assert (viewed is parts) == (found == history)


@pytest.mark.parametrize(("letter", "length", "alphabet"), [("i", 9, str.isalnum), ("j", 40, str.isascii)])
def test_ids_have_the_length_that_a_host_takes(letter: str, length: int, alphabet: Any) -> None:
    """A call and its output have the same one, two calls two, and a repeated id of another turn a new one."""
    long = "chatcmpl-tool-" + "0123456789" * 6
    turn = [*WORDS.user("q"), *WORDS.calls(long, "c1:2"), *WORDS.results(long, "c1:2")]

    found = [json.loads(entry) for entry in laws.sent(OTHER, [*turn, *WORDS.says("a"), *turn], letter)]

    ids = [item["call_id"] for item in found if "call_id" in item]
    assert ids[:2] == ids[2:4]
    assert ids[4:6] == ids[6:]
    assert len(set(ids)) == 4
    assert all(len(id) <= length and alphabet(id) for id in ids)


def test_used_tools_are_offered_and_forbidden() -> None:
    """Only to a request without tools, in the order of the first calls, custom ones as custom tools."""
    custom = '{"type":"custom_tool_call","call_id":"c2","name":"find","input":"x"}'
    history = [call().encode(), custom.encode(), call("c3").encode()]
    parts = laws.parts_of(history)

    viewed = OTHER.request_view(parts, HostRules(letters="t"))
    plain = OTHER.request_view(parts, HostRules(letters="pt"))

    assert [(tool["type"], tool["name"]) for tool in json.loads(viewed.tools)] == [
        ("function", "look"),
        ("custom", "find"),
    ]
    assert viewed.forbid_tools
    assert viewed.history is parts.history
    assert json.loads(OTHER.request(viewed).body)["tool_choice"] == "none"
    assert {tool["type"] for tool in json.loads(plain.tools)} == {"function"}
    with_tools = laws.parts_of(history, tools=b'[{"type":"function","name":"x"}]')
    assert OTHER.request_view(with_tools, HostRules(letters="t")) is with_tools
    without_calls = laws.parts_of(WORDS.user("a"))
    assert OTHER.request_view(without_calls, HostRules(letters="t")) is without_calls


def test_the_system_messages_before_a_history() -> None:
    """They become one by "s", of another role by "d", a user's by "z". One behind them is a user's by "s"."""
    preamble = b'{"role":"developer","content":"Be"},\n{"role":"developer","content":"brief."}'
    parts = laws.parts_of([SYSTEM.encode(), *WORDS.user("a")], preamble=preamble)

    one = OWN.request_view(parts, HostRules(letters="s"))
    renamed = OWN.request_view(parts, HostRules(letters="d"))
    users = OWN.request_view(parts, HostRules(letters="z"))

    assert one.preamble == b'{"role":"developer","content":"Be\\n\\nbrief."}'
    assert laws.flat(one.history) == [BLOCK.encode(), *WORDS.user("a")]
    assert renamed.preamble == preamble.replace(b"developer", b"system")
    assert users.preamble == b""
    assert [json.loads(entry)["role"] for entry in laws.flat(users.history)] == ["user"] * 4
    single = laws.parts_of(WORDS.user("a"), preamble=b'{"role":"system","content":"Be"}')
    assert OWN.request_view(single, HostRules(letters="ds")) is single


# ------------------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize("letters", ["", "k", "q", "defjlmprs"])
def test_what_the_host_takes_stays_the_very_request(letters: str) -> None:
    """Histories in the package's own words keep to nearly all rules."""
    laws.check_known_good(WIRE, letters, times=60)


@pytest.mark.parametrize("dialect", [OWN, OTHER])
@pytest.mark.parametrize("letters", [*HERE, *laws.STAGES, laws.ALL])
def test_random_histories_stay_valid(dialect: OpenAIResponsesDialect, letters: str) -> None:
    """Histories with habits of lenient servers, in any pieces, seen twice."""
    laws.check_mixtures(WIRE, letters, times=30, dialect=dialect)


@pytest.mark.parametrize("dialect", [OWN, OTHER])
@pytest.mark.parametrize("letters", [*laws.STAGES, laws.ALL])
def test_damaged_histories_are_valid_after_repair_and_view(
    dialect: OpenAIResponsesDialect, letters: str
) -> None:
    """Members that are missing or of any type, entries dropped, doubled or moved."""
    laws.check_damaged(WIRE, letters, times=80, dialect=dialect)


@pytest.mark.parametrize("letters", ["a", "u", *laws.STAGES, laws.ALL])
def test_nothing_that_is_no_history_raises(letters: str) -> None:
    """Damaged histories, and entries that are not JSON."""
    laws.check_odd_entries(WIRE, letters, times=80, dialect=OTHER)


@pytest.mark.parametrize("letters", [*(one for one in HERE if one not in "acl"), "ejmpr", "ejmprstux"])
def test_a_longer_history_begins_as_the_shorter_one(letters: str) -> None:
    """Prompt caches live on it. Requests end with a message of the user or with outputs."""
    for seed in range(30):
        history = random_history(WORDS, random.Random(seed))
        history.insert(1, SYSTEM.encode())
        ends = [
            at
            for at in range(1, len(history) + 1)
            if b'"role":"user"' in history[at - 1] or b'call_output"' in history[at - 1]
        ]
        laws.check_growing(OTHER, history, letters, ends)


def test_a_history_that_grew_is_sent_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept walks change nothing, whatever the letters."""
    for letters, seed in itertools.product(["a", "c", "u", "ejmpr", laws.ALL], range(8)):
        history = random_history(WORDS, random.Random(seed))
        laws.check_kept(OTHER, history, letters, monkeypatch)


def test_recorded_histories_stay_valid(data_dir: Path) -> None:
    """All that providers accepted, at hosts with each letter and with all of them."""
    histories = list(laws.recorded_of(WIRE, data_dir))
    assert len(histories) > 100
    for dialect in (OWN, OTHER):
        for letters in [*laws.STAGES, laws.ALL]:
            laws.check_all_recorded(WIRE, letters, histories[::2], dialect=dialect)
        for letters in HERE:
            laws.check_all_recorded(WIRE, letters, histories[::7], dialect=dialect)


@pytest.mark.parametrize("letters", ["ejmpr", "a", "c", laws.ALL])
def test_a_hostile_history_takes_no_longer_than_its_length(letters: str) -> None:
    """5,000 calls with one id, and 5,000 neighbours of one role."""
    began = time.process_time()

    laws.sent(OTHER, WORDS.calls("t.1") * 5_000, letters)
    laws.sent(OTHER, WORDS.user("a") * 5_000, letters)
    laws.sent(OTHER, WORDS.says("a") * 5_000, letters)

    assert time.process_time() - began < 30


# ------------------------------------------------------------------------------------------- the forms


@pytest.mark.parametrize("habit", HABITS[WIRE])
def test_each_habit_is_valid_refused_and_viewed(habit: str) -> None:
    """By the wide rules it is a history; the host refuses it, and takes what becomes of it. What costs
    nothing is done at an import, too."""
    history = base_history(WORDS)
    HABITS[WIRE][habit](history)
    entries = dumped(history)
    assert laws.problems(OWN, entries) == []
    assert laws.refusals(WIRE, entries) != []

    formed = laws.forms_of(OWN, entries)

    assert laws.refusals(WIRE, laws.sent(OWN, entries, "ejmpr")) == []
    left = [view.entry for view in formed if view.entry]
    assert (laws.refusals(WIRE, left) == []) == is_form(habit)
    changed = [view.entry is not entry for view, entry in zip(formed, entries, strict=True)]
    assert [bool(view.changes) for view in formed] == changed
    assert all(not view.changes for view in laws.forms_of(OWN, left))


def test_an_import_changes_forms_only() -> None:
    """What every server takes stays as it is, and a second time nothing changes."""
    laws.check_forms(WIRE, times=60)


FORMS = [
    ('{"type":"item_reference","id":"msg_1"}', "", "reference"),
    (
        '{"role":"assistant","id":"chatcmpl-1","content":"x"}',
        '{"role":"assistant","content":"x","type":"message"}',
        "item_id",
    ),
    (
        '{"type":"function_call", "id":"call_1","call_id":"c","name":"a.b","arguments":"{}"}',
        '{"type":"function_call","call_id":"c","name":"a_b","arguments":"{}"}',
        "item_id tool_renamed",
    ),
    (
        '{"role":"user","content":[{"type":"refusal","refusal":"no"}]}',
        '{"role":"user","content":[{"type":"input_text","text":"no"}]}',
        "rewritten",
    ),
    (THOUGHT, THOUGHT, ""),
    (SEARCH, SEARCH, ""),
]


@pytest.mark.parametrize(("given", "made", "kinds"), FORMS)
def test_a_form_changes_and_no_other_byte(given: str, made: str, kinds: str) -> None:
    """What costs something stays at an import."""
    (view,) = laws.forms_of(OWN, [given.encode()])

    assert view.entry == made.encode()
    assert " ".join(view.changes) == kinds


def test_what_follows_removed_reasoning_loses_its_id() -> None:
    """Else the server refuses it without its reasoning. Records of hosted work need an id, and go along."""
    message = b'{"type":"message","role":"assistant","id":"msg_%d","status":"completed","content":[]}'
    thought, found, asked = SEALED.encode(), SEARCH.encode(), user("x").encode()
    entries = [thought, message % 1, asked, thought, found, message % 2, asked, message % 3]

    made = laws.forms_of(OWN, entries)

    assert [view.entry for view in made[:3]] == entries[:3]
    assert [view.entry for view in made[3:5]] == [b"", b""]
    assert b'"id"' not in made[5].entry
    assert [view.entry for view in made[6:]] == entries[6:]
    assert [list(view.changes) for view in made[3:6]] == [["thinking"], ["item_id"], ["item_id"]]


def test_known_hosts_need_no_refusal() -> None:
    """Ollama is known by its port."""
    assert OTHER.known_rules("some-model").letters == "p"
    assert OWN.known_rules("some-model").letters == ""
    assert (
        OpenAIResponsesDialect(family="local", host="127.0.0.1:8080").known_rules("some-model").letters == ""
    )
