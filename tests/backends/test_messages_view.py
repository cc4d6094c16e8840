"""Messages requests as hosts with other rules take them: each letter, the laws of views, and pictures."""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.anthropic.pictures import picture_size, skipped_pictures
from goaitools_py.backends.protocols import HostRules, NarrowedHistory, narrowed_history
from goaitools_py.base import rawjson

from ..history._damage import Words, random_history
from ..history._lenient import HABITS, base_history, dumped, is_form
from . import _view_laws as laws

WIRE = "anthropic"
DIALECT = AnthropicDialect()
WORDS = Words(WIRE)
HERE = "acefijklmprstuvwz"
"""The letters that this provider API has a rule for."""


def text(words: str) -> str:
    return f'{{"type":"text","text":{json.dumps(words)}}}'


def message(role: str, *blocks: str) -> str:
    return '{{"role":"{}","content":[{}]}}'.format(role, ",".join(blocks))


def user(words: str) -> str:
    return message("user", text(words))


def says(words: str) -> str:
    return message("assistant", text(words))


def call(id: str = "c1") -> str:
    return f'{{"type":"tool_use","id":"{id}","name":"look","input":{{}}}}'


def result(id: str = "c1") -> str:
    return f'{{"type":"tool_result","tool_use_id":"{id}","content":[{{"type":"text","text":"5"}}]}}'


THOUGHT = '{"type":"thinking","thinking":"Hm."}'
SIGNED = '{"signature" : "c2ln", "type":"thinking","thinking":"h\\u00e9"}'
NO_THOUGHT = '{"type":"thinking","thinking":"","signature":""}'
IMAGE = '{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}'
SYSTEM = '{"role":"system","content":"Be brief."}'
BLOCK = message("user", text("<app-system>\nBe brief.\n</app-system>"))
NOTE = text("[audio: left out, because the provider does not take it here]")

CASES: list[tuple[str, list[str], list[str]]] = [
    ("a", [user("a"), user("b"), says("c")], [message("user", text("a"), text("b")), says("c")]),
    ("a", ['{"role":"user","content":"a"}', user("b")], [message("user", text("a"), text("b"))]),
    ("a", [user("a"), says("b"), says("c")], [user("a"), message("assistant", text("b"), text("c"))]),
    (
        "a",
        [user("a"), message("assistant", call()), message("user", result()), user("b")],
        [user("a"), message("assistant", call()), message("user", result(), text("b"))],
    ),
    (
        "c",
        [user("a"), message("assistant", THOUGHT, text("b"), call()), message("user", result())],
        [user("a"), message("assistant", text("b"), call()), message("user", result())],
    ),
    (
        "c",
        [user("a"), message("assistant", THOUGHT, call())],
        [user("a"), message("assistant", THOUGHT, call())],
    ),
    (
        "c",
        [user("a"), message("assistant", THOUGHT, text("b"))],
        [user("a"), message("assistant", THOUGHT, text("b"))],
    ),
    ("e", [message("user", text("a"), text(" \n"))], [user("a")]),
    ("e", [message("user", text("\u3000"))], [user("(empty)")]),
    ("e", [user("a"), '{"role":"assistant","content":""}', user("b")], [user("a"), user("b")]),
    ("e", [user("a"), says(""), user("b")], [user("a"), user("b")]),
    (
        "e",
        [message("user", '{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":""}]}')],
        [
            message(
                "user",
                '{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"(empty)"}]}',
            )
        ],
    ),
    (
        "i",
        [message("assistant", call("toolu_123")), message("user", result("toolu_123"))],
        [message("assistant", call("QmIw2u9wd")), message("user", result("QmIw2u9wd"))],
    ),
    ("i", [message("assistant", call("abcdef123"))], [message("assistant", call("abcdef123"))]),
    (
        "j",
        [message("assistant", call("look:1")), message("user", result("look:1"))],
        [
            message("assistant", call("call_c57b3c3ae7a3a7a0a6f5c5d4")),
            message("user", result("call_c57b3c3ae7a3a7a0a6f5c5d4")),
        ],
    ),
    ("k", [user("a"), message("assistant", call())], [user("a"), message("assistant", NO_THOUGHT, call())]),
    ("k", [user("a"), says("b")], [user("a"), message("assistant", NO_THOUGHT, text("b"))]),
    (
        "k",
        [user("a"), message("assistant", THOUGHT, call())],
        [user("a"), message("assistant", THOUGHT, call())],
    ),
    ("l", [user("a"), says("b")], [user("a"), says("b"), user("(Please go on.)")]),
    (
        "m",
        ['{"role":"assistant","content":[{"type":"text","text":"b","parsed":1}],"usage":{}}'],
        [says("b")],
    ),
    (
        "m",
        ['{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}'],
        [user("a")],
    ),
    ("p", ['{"role":"user","content":[{"type":"audio","data":"x"}]}'], [message("user", NOTE)]),
    ("p", ['{"role":"user","content":["a"]}'], [user("a")]),
    (
        "p",
        [message("assistant", text("a"), '{"type":"server_tool_use","id":"call_1","name":"s","input":{}}')],
        [says("a")],
    ),
    (
        "p",
        [
            message("assistant", SIGNED, '{"type":"server_tool_use","id":"call_1","name":"s","input":{}}'),
            user("b"),
        ],
        [user("b")],
    ),
    ("r", [message("assistant", THOUGHT, SIGNED, call())], [message("assistant", SIGNED, call())]),
    ("r", [user("a"), message("assistant", THOUGHT), user("b")], [user("a"), user("b")]),
    ("r", [message("assistant", '{"type":"redacted_thinking"}', text("b"))], [says("b")]),
    ("s", [user("a"), SYSTEM, says("b")], [user("a"), BLOCK, says("b")]),
    (
        "s",
        [user("a"), '{"role":"system","content":[{"type":"tool_addition","name":"x"}]}', says("b")],
        [user("a"), says("b")],
    ),
    ("z", [user("a"), SYSTEM, says("b")], [user("a"), BLOCK, says("b")]),
    (
        "u",
        [message("assistant", call()), message("user", result()), user("b")],
        [message("assistant", call()), message("user", result()), says("."), user("b")],
    ),
    (
        "u",
        [message("assistant", call()), message("user", result(), text("b")), says("c")],
        [message("assistant", call()), message("user", result()), says("."), user("b"), says("c")],
    ),
    ("u", [message("assistant", call()), message("user", result()), says("c"), user("d")], []),
]


@pytest.mark.parametrize(("letter", "given", "made"), CASES)
def test_a_letter_changes_what_its_rule_is_about(letter: str, given: list[str], made: list[str]) -> None:
    """No other byte changes. [] stands for no change."""
    history = [entry.encode() for entry in given]
    parts = laws.parts_of(history)

    viewed = DIALECT.request_view(parts, HostRules(letters=letter))

    expected = [entry.encode() for entry in made or given]
    if letter in "ij" and expected != history:
        assert _shape(laws.flat(viewed.history)) == _shape(expected)
    else:
        assert laws.flat(viewed.history) == expected
    assert (viewed is parts) == (expected == history)


def _shape(history: Sequence[bytes]) -> list[str]:
    """The history with numbered ids."""
    found: dict[str, int] = {}
    whole = [json.loads(entry) for entry in history]
    for entry in whole:
        for block in entry["content"]:
            for key in ("id", "tool_use_id"):
                if key in block:
                    block[key] = found.setdefault(f"{len(block[key])}{block[key]}", len(found))
    return [json.dumps(entry) for entry in whole] + [id[:1] for id in found]


def test_unchanged_pieces_at_both_ends_stay_the_very_objects() -> None:
    """They may be megabytes of pictures. Empty pieces do not matter."""
    first, last = b",\n".join([*WORDS.user("a"), *WORDS.says("b")]), b",\n".join(WORDS.user("c") * 2)
    middle = SYSTEM.encode()

    viewed = DIALECT.request_view(laws.parts_of([first, b"", middle, last]), HostRules(letters="s"))

    assert viewed.history[0] is first
    assert viewed.history[-1] is last
    assert list(viewed.history[1:-1]) == [BLOCK.encode()]


def test_ids_are_of_nine_letters_or_digits() -> None:
    """A call and its result have the same one, two calls two, and a repeated id of another turn a new one."""
    turn = [*WORDS.user("q"), *WORDS.calls("toolu_1", "toolu_2"), *WORDS.results("toolu_1", "toolu_2")]

    found = laws.sent(DIALECT, [*turn, *WORDS.says("a"), *turn], "i")

    ids = [
        [block.get("id") or block["tool_use_id"] for block in json.loads(entry)["content"]]
        for entry in found
        if b"tool_" in entry
    ]
    assert ids[0] == ids[1]
    assert ids[2] == ids[3]
    made = {id for four in ids for id in four}
    assert len(made) == 4
    assert all(len(id) == 9 and id.isalnum() and id.isascii() for id in made)


def test_used_tools_are_offered_and_forbidden() -> None:
    """Only to a request without tools, in the order of the first calls."""
    calls = [call("c1"), call("c2").replace("look", "find"), call("c3")]
    history = [message("assistant", *calls).encode()]
    parts = laws.parts_of(history)

    viewed = DIALECT.request_view(parts, HostRules(letters="t"))

    assert [tool["name"] for tool in json.loads(viewed.tools)] == ["look", "find"]
    assert viewed.forbid_tools
    assert viewed.history is parts.history
    body = json.loads(DIALECT.request(viewed).body)
    assert body["tool_choice"] == {"type": "none"}
    with_tools = laws.parts_of(history, tools=b'[{"name":"x"}]')
    assert DIALECT.request_view(with_tools, HostRules(letters="t")) is with_tools
    without_calls = laws.parts_of(WORDS.user("a"))
    assert DIALECT.request_view(without_calls, HostRules(letters="t")) is without_calls


def test_the_system_text_becomes_a_users_message() -> None:
    """By "z", and joined with the first message by "a"."""
    preamble = b'[{"type":"text","text":"Be brief."}]'
    parts = laws.parts_of(WORDS.user("a"), preamble=preamble)

    apart = DIALECT.request_view(parts, HostRules(letters="z"))
    joined = DIALECT.request_view(parts, HostRules(letters="az"))

    assert apart.preamble == joined.preamble == b""
    assert laws.flat(apart.history) == [BLOCK.encode(), *WORDS.user("a")]
    assert len(laws.flat(joined.history)) == 1
    assert DIALECT.request_view(parts, HostRules(letters="s")) is parts


def test_signed_thinking_behind_a_change_is_reported() -> None:
    """The provider is asked to drop blocks that do not fit. What a model never read does not count."""
    signed = message("assistant", SIGNED, text("b")).encode()
    before, after = user("a").encode(), SYSTEM.encode()
    odd = b'{"role":"assistant","content":[{"type":"text","text":"b","parsed":1}]}'

    def unbound(history: list[bytes], letters: str) -> bool:
        return DIALECT.request_view(laws.parts_of(history), HostRules(letters=letters)).drop_signed

    assert unbound([before, after, signed], "s")
    assert not unbound([before, signed, before, after], "s")
    assert not unbound([before, after, *WORDS.says("b")], "s")
    assert not unbound([before, odd, before, signed], "m")
    assert unbound(
        [before, message("assistant", SIGNED, call()).encode(), message("user", result()).encode()], "t"
    )
    assert not unbound([before, before, signed], "a")


def test_signed_thinking_stays_verbatim_beside_what_goes() -> None:
    """Its bytes are the given ones, odd spaces included, also where all around it changes."""
    entry = b'{"role":"assistant","content":[%s,%s,%s],"usage":{}}'
    given = entry % (THOUGHT.encode(), SIGNED.encode(), call("t.1").encode())

    (made,) = laws.sent(DIALECT, [given], "ejmpr")

    assert rawjson.items(rawjson.members(made)["content"])[0] == SIGNED.encode()


# ------------------------------------------------------------------------------------------- pictures


def png(width: int, height: int) -> bytes:
    return (
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
        + width.to_bytes(4)
        + height.to_bytes(4)
        + b"\x08\x02"
        + bytes(9)
    )


def jpeg(width: int, height: int, *, before: int = 1) -> bytes:
    segments = b"\xff\xe1" + (20_000).to_bytes(2) + bytes(19_998)
    frame = b"\xff\xc2\x00\x11\x08" + height.to_bytes(2) + width.to_bytes(2) + bytes(10)
    return b"\xff\xd8" + segments * before + b"\xff\xc4\x00\x04ab" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + bytes(20)


def webp(kind: bytes, width: int, height: int) -> bytes:
    if kind == b"VP8X":
        size = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        size = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + bytes(8)
    else:
        size = b"\x00\x00\x00\x9d\x01\x2a" + width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + bytes(4) + size + bytes(12)


PICTURES = [
    png(2001, 9),
    gif(9, 2001),
    jpeg(2001, 9),
    jpeg(9, 2001, before=3),
    webp(b"VP8X", 2001, 9),
    webp(b"VP8L", 9, 2001),
    webp(b"VP8 ", 2001, 9),
]


@pytest.mark.parametrize("data", PICTURES)
def test_the_size_of_a_picture_is_read_from_its_head(data: bytes) -> None:
    """Each of the four types, at each offset of base64."""
    assert sorted(picture_size(base64.b64encode(data))) == [9, 2001]
    assert sorted(picture_size(b"before " + base64.b64encode(data) + b'"}', 7)) == [9, 2001]


def test_hostile_pictures_are_read_to_a_bound() -> None:
    """Cut, empty and endless ones have no size, and cost little."""
    endless = base64.b64encode(b"\xff\xd8" + b"\xff\xe1\x00\x02" * 100_000)
    began = time.process_time()
    assert all(picture_size(endless) == (0, 0) for _ in range(100))
    assert time.process_time() - began < 2
    for data in PICTURES:
        whole = base64.b64encode(data)
        for end in range(60):
            picture_size(whole[:end])
    assert picture_size(b"!!!!") == (0, 0)


def shown(number: int, data: bytes | None = None) -> bytes:
    """A message of the user with a picture."""
    if data is None:
        return message("user", IMAGE.replace("a.png", f"{number}.png")).encode()
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    return rawjson.dumps({"role": "user", "content": [{"type": "image", "source": source}]})


def test_older_pictures_are_left_out_ten_at_once() -> None:
    """20 stay 20; 21 become 11, and so on up to 30. The request says how many are left out."""
    for count in range(1, 45):
        history = [shown(number) for number in range(count)]
        parts = laws.parts_of(history)
        viewed = DIALECT.request_view(parts, HostRules(letters="v"))
        kept = [entry for entry in laws.flat(viewed.history) if b'"image"' in entry]
        gone = 0 if count <= 20 else (count - 11) // 10 * 10
        assert kept == history[gone:]
        assert viewed.left_out == ({"image": gone} if gone else {})
        assert (viewed is parts) == (not gone)
        assert len(kept) <= 20


def test_pictures_of_results_count() -> None:
    """The oldest pictures may be a tool's."""
    inner = '{{"type":"tool_result","tool_use_id":"c1","content":[{},{}]}}'.format(IMAGE, text("b"))
    history = [message("assistant", call()).encode(), message("user", inner).encode(), *map(shown, range(20))]

    found = laws.sent(DIALECT, history, "v")

    assert b'"image"' not in found[1]
    assert json.loads(found[1])["content"][0]["content"][1] == {"type": "text", "text": "b"}
    assert laws.problems(DIALECT, found) == []


def test_known_hosts_leave_out_only_beside_a_large_picture() -> None:
    """By "w": not where all are small, and not where sizes are unknown. By "v": always."""
    small, large = [shown(n, png(2000, 2000)) for n in range(20)], shown(20, png(2001, 5))
    unknown = [shown(n) for n in range(21)]

    def gone(history: list[bytes], letters: str, **members: Any) -> int:
        parts = laws.parts_of(history, **members)
        return DIALECT.request_view(parts, HostRules(letters=letters)).left_out.get("image", 0)

    assert gone([*small, large], "w") == 10
    assert gone([*small, small[0]], "w") == 0
    assert gone([*small[:19], large], "w") == 0
    assert gone(unknown, "w") == 0
    assert gone(unknown, "v") == gone(unknown, "vw") == 10
    assert gone([*small, large], "w", has_media=False) == 0


def test_text_about_pictures_is_no_picture() -> None:
    """The words stand inside of strings there."""
    whole = b",\n".join(WORDS.user('"type":"image" "data":"iVBORw0KGgo" ') * 50)

    assert skipped_pictures(whole, only_large=False) == 0


# ------------------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize("letters", ["", "q", *[one for one in HERE if one not in "jk"], "ejmpr"])
def test_what_the_host_takes_stays_the_very_request(letters: str) -> None:
    """Histories in the package's own words keep to nearly all rules; "a", "i", "k" and "t" ask for more."""
    if not set(letters) & set("aitu"):
        laws.check_known_good(WIRE, letters, times=40)


@pytest.mark.parametrize("letters", [*HERE, *laws.STAGES, laws.ALL])
def test_random_histories_stay_valid(letters: str) -> None:
    """Histories with habits of lenient servers, in any pieces, seen twice."""
    laws.check_mixtures(WIRE, letters, times=30)


@pytest.mark.parametrize("letters", [*laws.STAGES, laws.ALL])
def test_damaged_histories_are_valid_after_repair_and_view(letters: str) -> None:
    """Members that are missing or of any type, entries dropped, doubled or moved."""
    laws.check_damaged(WIRE, letters, times=80)


@pytest.mark.parametrize("letters", ["a", "u", *laws.STAGES, laws.ALL])
def test_nothing_that_is_no_history_raises(letters: str) -> None:
    """Damaged histories, and entries that are not JSON."""
    laws.check_odd_entries(WIRE, letters, times=80)


@pytest.mark.parametrize("letters", [*(one for one in HERE if one not in "alv"), "ejmpr", "ejmprstu"])
def test_a_longer_history_begins_as_the_shorter_one(letters: str) -> None:
    """Prompt caches live on it. "a" joins, "l" adds to the end, "v" leaves ten out."""
    for seed in range(30):
        history = random_history(WORDS, random.Random(seed))
        history.insert(1, SYSTEM.encode())
        laws.check_growing(DIALECT, history, letters, range(1, len(history) + 1))


def test_a_history_that_grew_is_sent_as_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept walks change nothing, whatever the letters."""
    for letters, seed in itertools.product(["a", "u", "ejmpr", laws.ALL], range(8)):
        history = random_history(WORDS, random.Random(seed))
        laws.check_kept(DIALECT, history, letters, monkeypatch)


def test_recorded_histories_stay_valid(data_dir: Path) -> None:
    """All that providers accepted, at hosts with each letter and with all of them."""
    histories = list(laws.recorded_of(WIRE, data_dir))
    assert len(histories) > 100
    for letters in [*laws.STAGES, laws.ALL]:
        laws.check_all_recorded(WIRE, letters, histories[::2])
    for letters in HERE:
        laws.check_all_recorded(WIRE, letters, histories[::7])


@pytest.mark.parametrize("letters", ["ejmpr", "a", "u", laws.ALL])
def test_a_hostile_history_takes_no_longer_than_its_length(letters: str) -> None:
    """5,000 calls with one id, in one entry and in as many, and 5,000 neighbours of one role."""
    began = time.process_time()

    laws.sent(DIALECT, WORDS.calls(*["t.1"] * 5_000), letters)
    laws.sent(DIALECT, WORDS.calls("t.1") * 5_000, letters)
    laws.sent(DIALECT, WORDS.user("a") * 5_000, letters)

    assert time.process_time() - began < 30


# ------------------------------------------------------------------------------------------- the forms


@pytest.mark.parametrize("habit", HABITS[WIRE])
def test_each_habit_is_valid_refused_and_viewed(habit: str) -> None:
    """By the wide rules it is a history; the host refuses it, and takes what becomes of it. What costs
    nothing is done at an import, too."""
    history = base_history(WORDS)
    HABITS[WIRE][habit](history)
    entries = dumped(history)
    assert laws.problems(DIALECT, entries) == []
    assert laws.refusals(WIRE, entries) != []

    formed = laws.forms_of(DIALECT, entries)

    assert laws.refusals(WIRE, laws.sent(DIALECT, entries, "ejmpr")) == []
    left = [view.entry for view in formed if view.entry]
    assert (laws.refusals(WIRE, left) == []) == is_form(habit)
    assert all(
        bool(view.changes) == (view.entry is not entry) for view, entry in zip(formed, entries, strict=True)
    )
    assert all(not view.changes for view in laws.forms_of(DIALECT, left))


def test_an_import_changes_forms_only() -> None:
    """What every server takes stays as it is, and a second time nothing changes."""
    laws.check_forms(WIRE, times=60)


FORMS = [
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
    (message("assistant", THOUGHT, text("x")), message("assistant", THOUGHT, text("x")), ""),
]


@pytest.mark.parametrize(("given", "made", "kinds"), FORMS)
def test_a_form_changes_and_no_other_byte(given: str, made: str, kinds: str) -> None:
    """Spaces, numbers and members that stay are the given ones. What costs something stays at an import."""
    (view,) = laws.forms_of(DIALECT, [given.encode()])

    assert view.entry == made.encode()
    assert " ".join(view.changes) == kinds


def test_one_cache_mark_stays_at_an_import() -> None:
    """It may be meant, and a request has room for one. A host that refuses members gets none."""
    entry = b'{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}'

    assert [view.changes for view in laws.forms_of(DIALECT, [entry])] == [[]]
    assert [view.changes for view in laws.forms_of(DIALECT, [entry] * 2)] == [["marks"], ["marks"]]
    assert b"cache_control" not in laws.sent(DIALECT, [entry], "m")[0]


def test_renamed_ids_are_told() -> None:
    """A call and its result get the same id, and the form says which."""
    entries = [*WORDS.calls("a b", "c1"), *WORDS.results("a b", "c1")]

    found = laws.forms_of(DIALECT, entries)

    (made,) = {view.ids["a b"] for view in found}
    assert all(set(view.ids) == {"a b"} and made.encode() in view.entry for view in found)


def test_an_id_of_two_turns_is_renamed_where_a_host_refuses_it() -> None:
    """The later call gets another id, and so does its result. An import leaves it: recorded hosts took it."""
    turn = [*WORDS.user("q"), *WORDS.calls("c1"), *WORDS.results("c1"), *WORDS.says("a")]

    found = laws.sent(DIALECT, turn * 3, "j")

    assert all(not view.changes for view in laws.forms_of(DIALECT, turn * 3))
    assert laws.said(WIRE, turn * 3) != []
    assert laws.said(WIRE, found) == []
    assert [at for at, (new, old) in enumerate(zip(found, turn * 3, strict=True)) if new != old] == [
        5,
        6,
        9,
        10,
    ]


def test_a_dialect_of_somebody_elses_has_no_forms() -> None:
    """Its entries and ids stay."""
    entries = (b'{"tool_calls":[]}', b"nothing")
    theirs: Any = object()

    assert narrowed_history(theirs, entries) == NarrowedHistory(entries, (), ({}, {}))


def test_known_hosts_need_no_refusal() -> None:
    """The table names what is sure, by the family of the endpoint."""

    def letters(family: str) -> str:
        return AnthropicDialect(family=family).known_rules("some-model").letters

    assert letters("anthropic") == "w"
    assert letters("claude.googleapis.com") == "sw"
    assert letters("api.deepseek.com") == "k"
    assert letters("gateway.example") == ""
