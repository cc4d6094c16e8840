"""Facts about `rawjson`: spans are verbatim, two readers agree, nothing hostile gets through."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py.base import json_scan, rawjson
from goaitools_py.base.rawjson import (
    MAX_DEPTH,
    RawJSONError,
    dumps,
    is_null,
    items,
    loads,
    members,
    names,
    one_line,
    replaced,
    shorn,
    spans,
    string,
    view,
    without,
)

DATA = Path(os.environ.get("GOAITOOLS_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
WIRES = ("openai-chat", "openai-responses", "anthropic-messages")
READERS: tuple[Callable[[bytes], object], ...] = (members, names, items, spans, loads)
# What may stand in an error text: our own words and one number.
ERROR_TEXT = re.compile(
    r"(not JSON: expected [a-z ]+|[a-zA-Z0-9 -]+|expected JSON that begins with [{[ or]+) \(at byte \d+\)"
)

fixed = settings(max_examples=100, deadline=None, derandomize=True, database=None)


# --------------------------------------------------------------------------------------- independent oracle


class Pairs(list[tuple[str, Any]]):
    """A JSON object as the standard library reads it, repeated keys and order kept."""


def refuse(constant: str) -> Any:
    raise ValueError(constant)


def oracle(data: bytes) -> Any:
    """The document as the standard library reads it; ValueError if it refuses."""
    return json.loads(data.decode(), object_pairs_hook=Pairs, parse_constant=refuse)


def nesting(value: Any) -> int:
    """How many containers lie inside one another in a value of `oracle`."""
    if isinstance(value, Pairs):
        return 1 + max((nesting(member) for _, member in value), default=0)
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


def assert_spans_are_verbatim(data: bytes, value: Any) -> None:
    """On every level: spans hold exactly what the oracle sees, and only punctuation lies between them."""
    found = spans(data)
    assert found == json_scan.scan(data)
    gaps, pieces, done = [], [], 0
    for span in found:
        gaps += (data[done : span.key_start], data[span.key_end : span.start])
        pieces += (gaps[-2], data[span.key_start : span.key_end], gaps[-1], data[span.start : span.end])
        done = span.end
    gaps.append(data[done:])
    assert b"".join((*pieces, gaps[-1])) == data
    assert not b"".join(gaps).strip(b" \t\r\n{}[],:")
    keys = [key for key, _ in value] if isinstance(value, Pairs) else [None] * len(value)
    assert [span.key for span in found] == keys
    for span, child in zip(found, [v for _, v in value] if isinstance(value, Pairs) else value, strict=True):
        raw = data[span.start : span.end]
        if isinstance(child, list):
            assert_spans_are_verbatim(raw, child)
        else:
            assert raw.strip() == raw
            assert repr(oracle(raw)) == repr(child)
    if isinstance(value, Pairs):
        assert members(data) == {span.key: data[span.start : span.end] for span in found}
    else:
        assert items(data) == [data[span.start : span.end] for span in found]


# ------------------------------------------------------------------------------------------ recorded traffic


def record_lines(wire: str) -> list[bytes]:
    path = DATA / "recorded" / f"{wire}.jsonl.zst"
    if not path.exists():
        pytest.skip(f"no recorded traffic at {path}")
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()


def recorded_documents(wire: str) -> Iterator[bytes]:
    """Every response body and every event of every stream, cut out of the records by the module itself."""
    for line in record_lines(wire):
        for exchange in items(members(line)["exchanges"]):
            response = members(members(exchange)["response"])
            if "body" in response:
                yield response["body"]
            for event in (string(response.get("sse", b'""')) or "").split("\n"):
                if event.startswith("data:") and event.removeprefix("data:").strip() != "[DONE]":
                    yield event.removeprefix("data:").strip().encode()


@pytest.mark.parametrize("wire", WIRES)
def test_every_recorded_reply_and_event_is_cut_verbatim_on_every_level(wire: str) -> None:
    """No byte of real traffic is lost, moved or changed, whichever reader cuts it."""
    count = 0
    for data in recorded_documents(wire):
        value = oracle(data)
        if isinstance(value, list):
            assert_spans_are_verbatim(data, value)
            count += 1

    assert count


@pytest.mark.parametrize("wire", WIRES)
def test_every_recorded_reply_and_event_reads_as_the_standard_library_reads_it(wire: str) -> None:
    """The view of real traffic has the values that `json.loads` gives, number by number."""
    for data in recorded_documents(wire):
        assert repr(loads(data)) == repr(json.loads(data))


@pytest.mark.parametrize("wire", WIRES)
def test_a_record_is_its_members_put_back(wire: str) -> None:
    """A whole record, requests included, is its own top-level values put back in their places."""
    for line in record_lines(wire):
        assert replaced(line, members(line)) == line


# ------------------------------------------------------------------------------------------- generated JSON

SPACES = ("", "", "", " ", "\n", "\t\r\n")
PIECES = (
    *"aé日\U0001f600\x7f\u2028{}[],:/ ",
    r"\"",
    r"\\",
    r"\/",
    r"\b\f\n\r\t",
    r"\u0000",
    r"\u00E9",
    r"\uD83D\uDE00",
)
LONE = (r"\ud800", r"\uDFFF", r"\udc00\ud800")
NUMBERS = ("0", "-0", "-1", "12345678901234567890123", "0.10", "-1.5E+3", "1e5", "18446744073709551615")


def generated(seed: int, pieces: tuple[str, ...] = (*PIECES, *LONE), opening: str = "[{") -> bytes:
    """A JSON container with any white space, escape and number spelling, keys repeated now and then."""
    rng = random.Random(seed)

    def space() -> str:
        return rng.choice(SPACES)

    def text() -> str:
        return '"' + "".join(rng.choices(pieces, k=rng.randrange(6))) + '"'

    def key() -> str:
        return rng.choice((text(), '"a"', r'"\u0061"', '"b"'))

    def container(kind: str, depth: int) -> str:
        parts = [space() + value(depth + 1) + space() for _ in range(rng.randrange(6 - depth))]
        if kind == "{":
            parts = [f"{space()}{key()}{space()}:{part}" for part in parts]
        return kind + (",".join(parts) or space()) + ("}" if kind == "{" else "]")

    def value(depth: int) -> str:
        if depth < 5 and rng.random() < 0.6:
            return container(rng.choice("[{"), depth)
        return rng.choice((text(), rng.choice(NUMBERS), rng.choice(("true", "false", "null"))))

    return (space() + container(rng.choice(opening), 0) + space()).encode()


SAMPLE = range(600)


def test_generated_json_is_cut_verbatim_on_every_level() -> None:
    """The spans joined with what lies between them equal the input, at every level of any JSON."""
    for seed in SAMPLE:
        data = generated(seed)
        assert_spans_are_verbatim(data, oracle(data))


def test_msgspec_takes_all_json_without_lone_surrogates() -> None:
    """The fast reader has to pass on nothing but lone surrogates."""
    for seed in SAMPLE:
        data = generated(seed, pieces=PIECES)
        decoder = rawjson._OBJECT if data.lstrip().startswith(b"{") else rawjson._ARRAY
        assert rawjson._accepted(decoder, data) is not None


def test_a_view_has_the_values_of_the_standard_library() -> None:
    """`loads` agrees with `json.loads` on any JSON, lone surrogates and long integers included."""
    for seed in SAMPLE:
        data = generated(seed)
        assert repr(loads(data)) == repr(json.loads(data.decode()))


SEEDS = (
    b'{"id":"c-1","n":-12.5e+3,"ok":true,"no":[null,false,{}],"deep":{"a":[[],[1,2]]}}',
    b' [ 1 , "a\\n\\u00e9\\ud83d\\ude00" ,\r\n\t{ "k" : "\\\\" , "k" : 0 } ] ',
    '{"é":"日本語","\\ud800":"\\udc00x"}'.encode(),
    b'["\\"", "\\\\\\"", "[{", "}]", 1e5, 0.10, 123456789012345678901234567890]',
)


def mutated(seed: int) -> bytes:
    """A JSON text with a few bytes changed, dropped, doubled or swapped."""
    rng = random.Random(seed)
    data = bytearray(SEEDS[seed % len(SEEDS)])
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.choice(b'{}[],:"\\0159.eE+-tfnul \n\t\x00\x1f\x7f\xff\xc3\xed')
            case 1:
                del data[at]
            case 2:
                data.insert(at, rng.choice(b'{}[],:"\\01.eE+- \n'))
            case _:
                data[at:at] = data[at : at + rng.randint(1, 8)]
    return bytes(data)


def test_damaged_json_is_refused_exactly_when_the_standard_library_refuses_it() -> None:
    """10,000 damaged texts: ours and `json` agree on each, and no error is anything but ours."""
    refused = 0
    for seed in range(10_000):
        data = mutated(seed)
        try:
            value = oracle(data)
        except ValueError:
            refused += 1
            for read in READERS:
                with pytest.raises(RawJSONError) as caught:
                    read(data)
                assert 0 <= caught.value.offset <= len(data)
        else:
            if "inf" not in repr(value):  # 1e890 is JSON; that it has no view is a fact of its own below
                assert repr(loads(data)) == repr(json.loads(data.decode()))
            if isinstance(value, list):
                assert_spans_are_verbatim(data, value)

    assert 5_000 < refused < 9_500


def test_the_fast_reader_never_takes_what_the_scanner_refuses() -> None:
    """Damaged text that msgspec accepts is JSON to the scanner; the reverse needs a surrogate escape."""
    only_scanner = 0
    for seed in range(10_000, 20_000):
        data = mutated(seed)
        fast = any(
            rawjson._accepted(decoder, data) is not None for decoder in (rawjson._OBJECT, rawjson._ARRAY)
        )
        try:
            slow = json_scan.scan(data, "{[") is not None
        except RawJSONError:
            slow = False
        if fast != slow:
            assert slow
            assert re.search(rb"\\u[dD][89a-fA-F]", data)
            only_scanner += 1

    assert only_scanner > 100


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"  ", 2),
        (b"[", 1),
        (b"{", 1),
        (b"[1", 2),
        (b"[1,]", 3),
        (b"[,1]", 1),
        (b"[1 2]", 3),
        (b"[1}", 2),
        (b"[1]]", 3),
        (b"[1] x", 4),
        (b'{"a"}', 1),
        (b'{"a":}', 5),
        (b'{"a":1,}', 7),
        (b'{"a":1]', 6),
        (b"{a:1}", 1),
        (b"{1:1}", 1),
        (b"['a']", 1),
        (b'["\n"]', 1),
        (b'["\x1f"]', 1),
        (b'["\\x"]', 1),
        (b'["\\u12g4"]', 1),
        (b'["\\"]', 1),
        (b"[01]", 2),
        (b"[1.]", 2),
        (b"[.5]", 1),
        (b"[+1]", 1),
        (b"[1e]", 2),
        (b"[- 1]", 1),
        (b"[0x10]", 2),
        (b"[NaN]", 1),
        (b"[Infinity]", 1),
        (b"[-Infinity]", 1),
        (b"[True]", 1),
        (b"[nul]", 1),
        (b"[nulll]", 5),
        (b"[1]\x00", 3),
        (b"[1\x0c]", 2),
        (b"\xef\xbb\xbf[1]", 0),
        (b'["\xff"]', 2),
        (b'["\xed\xa0\x80"]', 2),
        (b'{"\xc0\x80":1}', 2),
        (b"[/**/1]", 1),
        (b"<html>", 0),
    ],
)
@pytest.mark.parametrize("read", READERS)
def test_text_that_is_not_json_is_refused_by_every_reader(
    read: Callable[[bytes], object], data: bytes, offset: int
) -> None:
    """Each reader refuses it; the scanner names the byte, unless the reader wanted another kind."""
    with pytest.raises(RawJSONError, match=r"\(at byte \d+\)$") as caught:
        read(data)

    assert ERROR_TEXT.fullmatch(str(caught.value))
    assert caught.value.offset == offset or str(caught.value).startswith("expected JSON that begins with")
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("read", "data", "found_at"),
    [
        (members, b" [1]", 1),
        (members, b'"{}"', 0),
        (members, b"null", 0),
        (items, b'{"a":[]}', 0),
        (items, b"  1", 2),
        (spans, b'"[]"', 0),
        (without, b"[]", 0),
        (replaced, b"[1]", 0),
    ],
)
def test_another_kind_of_value_is_refused(read: Callable[..., object], data: bytes, found_at: int) -> None:
    """Valid JSON of another kind than the one asked for is an error that says what was expected."""
    arguments = {without: (["a"],), replaced: ({},)}.get(read, ())

    with pytest.raises(RawJSONError, match="expected JSON that begins with") as caught:
        read(data, *arguments)

    assert caught.value.offset == found_at


def test_an_error_survives_a_process_boundary() -> None:
    """The error pickles, as process pools need it to."""
    error = pickle.loads(pickle.dumps(RawJSONError("not UTF-8", 7)))

    assert (str(error), error.offset) == ("not UTF-8 (at byte 7)", 7)


# ----------------------------------------------------------------------------------- what msgspec refuses


@pytest.mark.parametrize(
    "value",
    [rb'"\ud800"', rb'"x\udc00y"', rb'["\ud800",1E400]', rb'{"a":"\udfff\ud83d"}'],
)
def test_lone_surrogates_are_cut_verbatim(value: bytes) -> None:
    """What msgspec refuses for a lone surrogate is cut out all the same, unchanged."""
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(value)

    assert members(b'{"v":' + value + b',"w":1}') == {"v": value, "w": b"1"}
    assert items(b"[ " + value + b" ]") == [value]


def test_a_key_may_be_a_lone_surrogate() -> None:
    """Keys decode as the standard library decodes them, lone surrogates included."""
    assert members(rb'{"\ud800":1}') == {"\ud800": b"1"}


@pytest.mark.parametrize("number", [b"1e5", b"1E400", b"-0", b"0.10", b"9" * 5000, b"18446744073709551616"])
def test_numbers_keep_their_spelling(number: bytes) -> None:
    """Numbers that a float or a round trip would respell come out as they went in."""
    assert members(b'{"n":' + number + b"}") == {"n": number}


@pytest.mark.parametrize("inner", [b'"a"', rb'"\ud800"'], ids=["fast", "slow"])
def test_the_last_of_repeated_keys_wins_in_the_place_of_the_first(inner: bytes) -> None:
    """Repeated keys read as in the standard library, and `spans` lists them all."""
    data = b'{"k":' + inner + rb',"z":0,"\u006b":2}'

    assert list(members(data).items()) == [("k", b"2"), ("z", b"0")]
    assert [span.key for span in spans(data)] == ["k", "z", "k"]


def test_a_repeated_key_cannot_mislead_the_search_for_spans() -> None:
    """Here the lengths of the last values lead from the first member to what looks like the end."""
    data = b'{"a":1,"b":22,"a":{"p":0,"kkkkkkk":9}}'

    assert [data[span.start : span.end] for span in spans(data)] == [b"1", b"22", b'{"p":0,"kkkkkkk":9}']


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_the_depth_limit_is_the_same_for_every_reader(opening: bytes, closing: bytes) -> None:
    """`MAX_DEPTH` containers are read by every reader and one more by none, whatever strings hold."""

    def nested(levels: int) -> bytes:
        # The string beside it holds brackets and escapes, so that counting brackets settles nothing.
        inner = opening * (levels - 1) + b"0" + closing * (levels - 1)
        return b'["\\\\\\"' + b"[{" * 70 + b'",' + inner + b"]"

    deepest, deeper = nested(MAX_DEPTH), nested(MAX_DEPTH + 1)

    assert nesting(oracle(deepest)) == MAX_DEPTH
    assert items(deepest) == [deepest[span.start : span.end] for span in json_scan.scan(deepest)]
    assert loads(deepest) == json.loads(deepest)
    for read in (items, spans, loads):
        with pytest.raises(RawJSONError, match="nested deeper than 64 levels"):
            read(deeper)


@pytest.mark.parametrize("beside", [rb'"\\"', rb'"\""', rb'"\\\""', rb'"\\\\"'])
def test_escaped_quotes_hide_no_depth(beside: bytes) -> None:
    """Depth between two strings is seen, however the first one's quotes and backslashes are escaped."""
    inner = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH

    for read in (items, loads):
        with pytest.raises(RawJSONError, match="nested deeper"):
            read(b"[" + beside + b"," + inner + b',"x"]')


def test_a_raised_recursion_limit_does_not_let_depth_through_to_the_c_stack() -> None:
    """A million brackets are refused even where the interpreter was told that recursion is fine."""
    script = (
        "import sys; sys.setrecursionlimit(10**7)\n"
        "from goaitools_py.base.rawjson import RawJSONError, items, loads\n"
        "for read in (items, loads):\n"
        "    for text in (b'[' * 10**6 + b']' * 10**6, b'[' + b'{\"a\":' * 10**6):\n"
        "        try: read(text)\n"
        "        except RawJSONError: print('refused')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 4)


# --------------------------------------------------------------------------------------------- rewriting


@pytest.mark.parametrize(
    ("data", "keys", "expected"),
    [
        (b'{"a":1,"b":2,"c":3}', "a", b'{"b":2,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', "b", b'{"a":1,"c":3}'),
        (b'{"a":1,"b":2,"c":3}', "c", b'{"a":1,"b":2}'),
        (b'{"a":1,"b":2,"c":3}', "ac", b'{"b":2}'),
        (b'{"a":1,"b":2,"c":3}', "ab", b'{"c":3}'),
        (b'{"a":1,"b":2,"c":3}', "abc", b"{}"),
        (b'{ "a" : 1 , "b" : 2 }', "a", b'{ "b" : 2 }'),
        (b'{ "a" : 1 , "b" : 2 }', "b", b'{ "a" : 1 }'),
        (b'{ "a" : 1 }', "a", b"{  }"),
        (b'{"a":1,"b":2,"a":3}', "a", b'{"b":2}'),
        (b'{"\\u0061":1,"b":2}', "a", b'{"b":2}'),
        (b'{"a":"\\ud800","b":2}', "b", b'{"a":"\\ud800"}'),
        (b'{"n":{"a":1},"a":[1,2]}', "a", b'{"n":{"a":1}}'),
    ],
)
def test_a_member_is_cut_with_its_comma(data: bytes, keys: str, expected: bytes) -> None:
    """What is left is an object, and every byte of the other members and around them stays."""
    assert without(data, set(keys)) == expected


@pytest.mark.parametrize("data", [b"{ }", b'{"a":\n1}'])
def test_cutting_nothing_returns_the_same_object(data: bytes) -> None:
    """Without a member to cut, the caller gets the very bytes back."""
    assert without(data, ["zz"]) is data


def test_cutting_members_changes_nothing_else() -> None:
    """The kept members are there, in order and byte for byte, and no cut one is."""
    for seed in SAMPLE:
        data = generated(seed, opening="{")
        keys = ({"a"}, {"b"}, {"a", "b", ""})[seed % 3]

        cut = without(data, keys)

        kept = [(s.key, data[s.key_start : s.end]) for s in spans(data) if s.key not in keys]
        assert [(s.key, cut[s.key_start : s.end]) for s in spans(cut)] == kept


TAILS = [
    b',"a":null',
    b' , "b" : [] ',
    b',"c":{}',
    b',"a":""',
    b',"b":"\\""',
    b',"b":[[]]',
    b',"b":{"a":null}',
    b',"b":[{}]',
    b',"c":",\\"a\\":null"',
    b',"\\u0061":null',
    b',"a\xc3\xa9":null',
    b',"c":0',
]
"""What an object may end with, some of it last and empty, some of it made to look so."""


def test_a_shorn_object_is_one_without_its_members() -> None:
    """Byte for byte, whatever an object ends with, is there twice, or spells in another way."""
    told_apart = 0
    for seed in range(2000):
        rng = random.Random(seed)
        body = generated(seed % 97, opening="{") if seed % 3 else b'{"x":1}'
        tail = b"".join(rng.choices(TAILS, k=rng.randrange(5)))
        data = body[: body.rindex(b"}")] + tail + b" }" * (seed % 2) + b"}" * (1 - seed % 2)
        if not members(body):
            data = data.replace(b",", b"", 1)
        keys = set(rng.sample(["a", "b", "c", "x"], k=rng.randrange(1, 4)))

        assert shorn(data, keys) == without(data, keys), (seed, data, keys)
        told_apart += without(data, keys) != data
    assert told_apart > 1000


def test_shearing_does_not_read_the_rest() -> None:
    """The common end of a provider's message, without a reader of JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("goaitools_py.base.rawjson.without", None)

        cut = shorn(
            b'{"role":"assistant","content":"a,b","refusal":null, "annotations": [] }',
            {"refusal", "annotations"},
        )

    assert cut == b'{"role":"assistant","content":"a,b" }'


@pytest.mark.parametrize(
    ("data", "new", "expected"),
    [
        (b'{"a":1,"b":2}', {"a": b"[]"}, b'{"a":[],"b":2}'),
        (b'{ "a" : 1 , "b" : 2 }', {"b": b"{}", "a": b"0"}, b'{ "a" : 0 , "b" : {} }'),
        (b'{"a":1}', {"c": b"3", "d": b"4"}, b'{"a":1,"c":3,"d":4}'),
        (b'{"a":1 }\n', {"c": b"3"}, b'{"a":1,"c":3 }\n'),
        (b"{}", {"c": b"3", "d": b"4"}, b'{"c":3,"d":4}'),
        (b" { } ", {"c": b"3"}, b' {"c":3 } '),
        (b'{"a":1,"a":2}', {"a": b"9"}, b'{"a":9,"a":9}'),
        (b'{"a":1}', {'"\n': b"3"}, b'{"a":1,"\\"\\n":3}'),
        (b'{"a":"\\ud800"}', {"b": b'"\\udc00"'}, b'{"a":"\\ud800","b":"\\udc00"}'),
        (b'{"a":1}', {}, b'{"a":1}'),
    ],
)
def test_a_value_is_replaced_in_place_and_a_new_one_appended(
    data: bytes, new: dict[str, bytes], expected: bytes
) -> None:
    """Only the named values change; members that were missing come last."""
    assert replaced(data, new) == expected


def test_replacing_members_changes_nothing_else() -> None:
    """A replaced object reads as the old one updated, all other values byte for byte."""
    for seed in SAMPLE:
        data = generated(seed, opening="{")
        new = ({"a": b"[]"}, {"new": b'"here"'}, {"b": b"0", "new": b"1", "a": b"{}"})[seed % 3]

        assert members(replaced(data, new)) == members(data) | new


def test_one_line_changes_white_space_only() -> None:
    """One line has no newline, nothing around it, and reads as before."""
    for seed in SAMPLE:
        data = generated(seed)

        line = one_line(data)

        assert b"\n" not in line
        assert line == line.strip()
        assert repr(oracle(line)) == repr(oracle(data))
        assert one_line(line) is line


def test_one_line_keeps_the_escapes_of_a_string() -> None:
    """Newlines between tokens become spaces, an escaped newline in a string stays what it is."""
    assert one_line(b'\n{"a":\n"x\\n",\r\n"b":1}\r\n') == b'{"a": "x\\n",\r "b":1}'


# ------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"[%s]" % (b"9" * 4300), [10**4300 - 1]),
        (rb'"\ud800"', "\ud800"),
        (rb'{"\udc00":"\ud83d\ude00"}', {"\udc00": "\U0001f600"}),
        (
            rb'["\ud800",123456789012345678901234567890,-1.5]',
            ["\ud800", 123456789012345678901234567890, -1.5],
        ),
        (b" null ", None),
        (b"1.7976931348623157e308", 1.7976931348623157e308),
    ],
)
def test_a_view_is_exact(data: bytes, value: Any) -> None:
    """Integers beyond 64 bits and lone surrogates read as exactly what was written."""
    assert repr(loads(data)) == repr(value)


@pytest.mark.parametrize(
    "data",
    [b"[1e999]", b"[-1e999]", b"1.7976931348623159e308", b"[%s]" % (b"9" * 5000), rb'["\ud800",1e999]'],
)
def test_a_number_that_python_cannot_hold_is_refused(data: bytes) -> None:
    """A view is never infinite, and the refusal does not carry the digits along."""
    with pytest.raises(RawJSONError, match="a number that is too large") as caught:
        loads(data)

    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[1e999,-1e999]", [sys.float_info.max, -sys.float_info.max]),
        (b"[%s]" % (b"9" * 5000), [sys.float_info.max]),
        (rb'["\ud800",1e999]', ["\ud800", sys.float_info.max]),
        (b'{"a":18446744073709551617}', {"a": 18446744073709551617}),
    ],
)
def test_a_look_at_what_is_stored_never_fails_for_a_number(data: bytes, value: Any) -> None:
    """What no Python number can hold is the largest float in a view; everything else is exact."""
    assert view(data) == value


def test_a_look_at_what_is_no_json_fails() -> None:
    """A view is of JSON only."""
    with pytest.raises(RawJSONError):
        view(b"[NaN]")


@pytest.mark.parametrize(
    ("data", "text"),
    [(b'"a\\u00e9\\n"', "aé\n"), (rb'"\ud800"', "\ud800"), (b"null", None), (b"[]", None), (b"1", None)],
)
def test_a_string_span_reads_as_its_text(data: bytes, text: str | None) -> None:
    """A string gives its text, anything else None."""
    assert string(data) == text


def test_a_broken_string_is_refused() -> None:
    """What begins as a string and is none is an error, not None."""
    with pytest.raises(RawJSONError):
        string(b'"abc')


def test_only_null_is_null() -> None:
    """The word null is null, and the string of it is not."""
    assert is_null(b"null")
    assert not is_null(b'"null"')


# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True], "b": "é\n"}, '{"a":[1,null,true],"b":"é\\n"}'),
        (("x", ("y",)), '["x",["y"]]'),
        ("a\ud800b", '"a\ufffdb"'),
        ({"\udc00": ["\udfff"]}, '{"\ufffd":["\ufffd"]}'),
        ("\ud83d" + "\ude00", '"\U0001f600"'),
        ({"n": 2**70, "s": "é\u2028"}, '{"n":1180591620717411303424,"s":"é\u2028"}'),
        (
            {"n": 2**70, "x": None, "f": 0.1, "t": (1, 2)},
            '{"n":1180591620717411303424,"x":null,"f":0.1,"t":[1,2]}',
        ),
    ],
)
def test_values_are_written_compactly(value: Any, text: str) -> None:
    """No space, no escape without need; what UTF-8 cannot say is replaced, a split pair is joined."""
    assert dumps(value) == text.encode()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("company", [None, 2**70, "\ud800"])
def test_a_float_that_json_lacks_is_refused(number: float, company: Any) -> None:
    """NaN and the infinities are never written as null, wherever they hide and whatever is beside them."""
    with pytest.raises(ValueError, match="no NaN and no infinity"):
        dumps({"x": company, "a": [({"b": number},)]})


def test_too_deep_a_value_is_refused() -> None:
    """What `loads` would refuse is not written, a cycle included."""
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    cycle: list[Any] = []
    cycle.append(cycle)

    assert loads(dumps(value)) == value
    for bad in ([value], ["\ud800", value], cycle):
        with pytest.raises(ValueError, match="nested deeper"):
            dumps(bad)


def test_an_endless_integer_is_refused() -> None:
    """An integer beyond Python's digit limit is a ValueError."""
    with pytest.raises(ValueError, match="limit"):
        dumps(10**5000)


@dataclasses.dataclass
class Record:
    """Something that is not a JSON value."""

    secret: str = "s3cret"


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", Record(), datetime.datetime(2026, 1, 1), {1: 2}, {"a": {None: 1}}],
    ids=["object", "set", "bytes", "dataclass", "datetime", "int key", "None key"],
)
@pytest.mark.parametrize("company", ["x", "\ud800", 2**70])
def test_what_is_not_a_json_value_is_refused(value: Any, company: Any) -> None:
    """Nothing is turned into JSON by guessing, and the refusal names a type, not a value."""
    with pytest.raises(TypeError) as caught:
        dumps([company, value])

    assert "s3cret" not in str(caught.value)


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=15,
)


@fixed
@given(json_values)
def test_what_is_written_reads_back(value: Any) -> None:
    """`loads(dumps(value))` is the value, and the text is one line."""
    text = dumps(value)

    assert loads(text) == value
    assert one_line(text) is text


# ------------------------------------------------------------------------------------------------ hostility

MEGA = 1_000_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"[" * MEGA, id="openings"),
        pytest.param(b'{"a":' * MEGA, id="objects"),
        pytest.param(b"[" * MEGA + b"]" * MEGA, id="deep but valid"),
        pytest.param(b"[]" * MEGA, id="many documents"),
        pytest.param(b'["' + b"x" * 5 * MEGA, id="endless string"),
        pytest.param(b'["' + b"\\" * (5 * MEGA + 1), id="backslashes"),
        pytest.param(b'["' + b"\\u00e" * MEGA, id="cut escapes"),
        pytest.param(b'"' * 5 * MEGA, id="quotes"),
        pytest.param(b" " * 5 * MEGA, id="spaces"),
        pytest.param(b"[" + b" " * MEGA + b"," + b" " * MEGA + b"]", id="spaces around a comma"),
        pytest.param((b"[" + b" " * 20_000) * 50, id="openings and spaces"),
        pytest.param(b'{"a"' + b" " * 5 * MEGA, id="no colon"),
        pytest.param(b"[" + b"1" * 5 * MEGA + b"x]", id="digits"),
        pytest.param(b"[" + b"1," * 100_000 + b"]", id="many elements"),
        pytest.param(b"[" + b"[]," * 100_000 + b"]", id="many empty arrays"),
    ],
)
def test_hostile_text_is_refused_in_linear_time(data: bytes) -> None:
    """Megabytes made to hurt a parser are refused within seconds of CPU time (quadratic would be hours)."""
    started = time.process_time()

    for read in READERS:
        with pytest.raises(RawJSONError):
            read(data)

    assert time.process_time() - started < 10


def test_a_long_string_is_cut_in_linear_time() -> None:
    """Five megabytes in one string come out whole from either reader."""
    text = b'"' + b"x" * 5 * MEGA + b'"'

    assert items(b"[" + text + b"]") == [text]
    assert items(b"[" + text + rb',"\ud800"]') == [text, rb'"\ud800"']


FAR = b'"' + b"x" * 100_000 + b'"'
STRICT_ONLY = (
    rb'"\ud800"',
    rb'"\uDFFF"',
    rb'"\ud800\uD800"',
    rb'"\udc00\ud800 "',
    rb'"\\\ud800"',
    rb'"\ud83d\ude00\ud83d"',
    rb'{"\ud800":[1,{"a":"\uDbff"}]}',
    b"1e400",
    b"-1E+999",
    b"1e99999999999999999999",
    b"9" * 5_000,
    b"-" + b"9" * 400,
)
NO_JSON = (
    b"NaN",
    b"-Infinity",
    b"01",
    b"1.",
    b"+1",
    rb'"\ud8g0"',
    rb'"\ud80"',
    rb'"\q\ud800"',
    b'"\x01"',
    b"[1",
    b"]",
)


@pytest.mark.parametrize("odd", STRICT_ONLY)
def test_what_only_the_strict_reader_takes_may_stand_far_behind(odd: bytes) -> None:
    """A long text is JSON if its pieces are, although the fast reader refuses one of them."""
    texts = [b"[" + FAR + b"," + odd + b"]", b'{"a":' + FAR + b',"b":' + odd + b"}"]
    texts += [b"[0," + odd + b"," + FAR + b"," + odd + b"]", b'[{"a":[' + FAR + b"," + odd + b"]}]"]

    assert items(texts[0]) == [FAR, odd]
    assert members(texts[1]) == {"a": FAR, "b": odd}
    assert items(texts[2]) == [b"0", odd, FAR, odd]
    assert items(texts[3]) == [texts[3][1:-1]]
    for text in texts:
        assert [text[span.start : span.end] for span in spans(text)] == list(
            items(text) if text[:1] == b"[" else members(text).values()
        )
        assert json_scan.scan(text) == spans(text)
        rawjson.view(text)
    assert rawjson.view(texts[0])[1] == rawjson.view(odd)


@pytest.mark.parametrize("odd", NO_JSON)
@pytest.mark.parametrize("before", [b"", rb'"\ud800",'], ids=["", "behind a surrogate"])
def test_an_error_far_behind_is_found(odd: bytes, before: bytes) -> None:
    text = b"[" + before + FAR + b"," + before + odd + b"]"

    for read in (items, spans, rawjson.loads, rawjson.view, json_scan.scan):
        with pytest.raises(RawJSONError):
            read(text)


# ------------------------------------------------------------------------------- the number of values


def _separators(text: bytes) -> int:
    """The commas and opening brackets of JSON outside of its strings, counted one by one."""
    count, at, is_inside = 0, 0, False
    while at < len(text):
        character = text[at : at + 1]
        if is_inside:
            at += character == b"\\"
            is_inside = character != b'"'
        elif character == b'"':
            is_inside = True
        else:
            count += character in b",[{"
        at += 1
    return count


@pytest.mark.parametrize("piece", [2, 7, 65536])
def test_values_are_counted_outside_of_strings_only(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of any size, with quotation marks, escapes and brackets in keys and strings."""
    monkeypatch.setattr(json_scan, "_PIECE_BYTES", piece)
    monkeypatch.setattr(json_scan, "MAX_DEPTH", 0)  # so that the short way out is not taken
    words = random.Random(7)

    def value(depth: int) -> Any:
        kind = words.randrange(5 if depth < 4 else 2)
        if kind < 2:
            return words.choice(["a,b", "[{", '\\"', ',"', "\\\\", "x", 1.5, None])
        if kind < 4:
            return [value(depth + 1) for _ in range(words.randrange(4))]
        return {words.choice(',"[\\') + str(n): value(depth + 1) for n in range(words.randrange(4))}

    for _ in range(300):
        text = json.dumps(value(0)).encode()
        count = _separators(text)
        for most in range(max(0, count - 1), count + 2):
            if json_scan.most_values(len(text)) > most:
                assert (rawjson.count_values(text, most=most) <= most) == (count <= most)


def test_a_long_text_of_few_values_is_taken() -> None:
    """Commas and brackets in a string are no values."""
    text = json.dumps({"text": ',"[{\\' * 100_000, "values": [1] * 50}).encode()

    assert rawjson.count_values(text, most=100) <= 100
    assert rawjson.count_values(text, most=49) > 49


def test_an_upper_bound_is_never_below_the_number() -> None:
    """Text of any shape, also the one with the most values for its bytes."""
    for text in (
        b"[]",
        b"[" + b"[]," * 500 + b"[]]",
        b"[" * 60 + b"]" * 60,
        b"{}" * 9,
        json.dumps([0] * 99).encode(),
    ):
        assert json_scan.most_values(len(text)) >= _separators(text)
