"""Tokens before anybody counts them: the estimate, what real usages teach it, pictures, vocabularies."""

from __future__ import annotations

import base64
import random
import struct
import sys
import types
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import Document, Image, Message, Text, ToolCall, Usage, assistant, event, user
from goaitools_py.backends.base import Reply
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import frames_of
from goaitools_py.open_turn.meter import booked, count_entries, gauge_of, unanchored
from goaitools_py.state.records import Meta, dollars_of, with_cost
from goaitools_py.states import estimate_tokens, inspect_state, state_from_messages
from goaitools_py.tokens import Frames, TiktokenCounter, TokenEstimate
from goaitools_py.types.messages import ToolResult
from goaitools_py.types.token_rules import image_size, media_tokens
from goaitools_py.types.tokens import ExchangeEstimate, Gauge, learned, text_tokens

WIRES = ("openai", "openai-responses", "anthropic")


def rates(wire: str) -> Frames:
    """The numbers of a built-in provider API."""
    return frames_of(dialect_of(wire))


PROSE = "The harbour was quiet that morning, and the boats lay still under a thin layer of fog. " * 20

# ------------------------------------------------------------------------------------------- the estimate


def test_prose_is_cheaper_than_data() -> None:
    """Four to five bytes of English make a token, two to three of JSON with numbers."""
    data = b'{"id":48213,"at":"2026-11-21T10:20:30","x":[1.5,2.25,-3.125]}' * 20

    assert 4.0 < len(PROSE.encode()) / text_tokens(PROSE.encode()) < 5.2
    assert 1.5 < len(data) / text_tokens(data) < 3.0


def test_every_byte_counts_once() -> None:
    """The estimate of two texts together is that of both apart, whatever is in them."""
    texts = ["Łódź 12\n", "\t{}[]", "日本語", "🎉 ok", ""]

    apart = sum(text_tokens(text.encode()) for text in texts)

    assert text_tokens("".join(texts).encode()) == pytest.approx(apart)
    assert all(text_tokens(bytes([byte])) > 0 for byte in range(256))


def test_text_that_is_no_words_is_dear() -> None:
    """Base64 takes more than half a token for each character; long words cost as before."""
    data = base64.b64encode(random.Random(7).randbytes(9_000))

    assert 0.45 < text_tokens(data) / len(data) < 0.75
    assert text_tokens(b"remember " * 50) == pytest.approx(50 * (8 * 0.11 + 0.55))
    mixed = text_tokens(PROSE.encode() + data)
    assert mixed == pytest.approx(text_tokens(PROSE.encode()) + text_tokens(data), rel=0.25)


@pytest.mark.parametrize(
    ("wire", "together"), [("openai", False), ("openai-responses", True), ("anthropic", True)]
)
def test_results_of_calls_made_at_once_take_a_block(wire: str, together: bool) -> None:
    """Responses and Messages write such results into a block of their own; one result alone has none."""
    estimate = TokenEstimate(rates(wire))
    one, other = (Message(role="tool", parts=(Text("7"),), tool_call_id=id) for id in ("a", "b"))
    dialect = dialect_of(wire)
    both = dialect.results([ToolResult(call_id=id, parts=(Text("7"),)) for id in ("a", "b")])

    assert estimate.between([one]) == estimate.between([user("1"), one, user("2"), other]) == 0
    assert (estimate.between([one, other]) > 10) is together
    apart = estimate.count(one) + estimate.count(other)
    assert count_entries(both, dialect) == apart + estimate.between([one, other])


def test_a_message_has_a_frame() -> None:
    """Even an empty message takes tokens; an event takes more, for its block; a call, for its name."""
    count = TokenEstimate().count
    call = ToolCall(id="c1", name="get_score", arguments='{"team":"Red"}')

    assert count(Message(role="user")) >= 1
    assert count(event("It rains.")) > count(user("It rains.")) + 10
    assert count(Message(role="assistant", tool_calls=(call,))) > count(Message(role="assistant")) + 4


def test_a_dialect_without_numbers_is_counted_all_the_same() -> None:
    """It is taken for Chat Completions."""
    bare: Any = object()
    assert frames_of(bare) == frames_of(dialect_of("openai"))


# --------------------------------------------------------------------------------- what usages teach it


def used(input: int, output: int = 0, reasoning: int = 0) -> Usage:
    return Usage(input_tokens=input, output_tokens=output, reasoning_tokens=reasoning, requests=1)


def test_the_next_request_is_the_last_one_and_its_reply() -> None:
    """Input and output of the last call are what the next request begins with."""
    gauge = learned(Gauge(), used(1_000, 50), ExchangeEstimate(sent=100, replied=45))

    assert gauge.is_anchored
    assert gauge.expected(0) == 1_050
    assert gauge.frame == 900  # what was sent is 100 of the 1,000; preamble and tools are the rest


def test_a_conversation_teaches_what_its_words_are_worth() -> None:
    """Where each estimated token is really two, the tenth prediction is within a tenth of the truth."""
    gauge, real = learned(Gauge(), used(100), ExchangeEstimate(sent=100)), 100

    for _ in range(9):
        real += 200
        gauge = learned(gauge, used(real), ExchangeEstimate(sent=100))

    assert gauge.expected(100) == pytest.approx(real + 200, abs=20)
    assert gauge.scale > 1.8


def test_a_difference_that_words_cannot_explain_teaches_nothing() -> None:
    """A hosted tool that read pages, or media, leaves the scale as it was."""
    gauge = learned(Gauge(), used(100), ExchangeEstimate(sent=100))

    assert learned(gauge, used(9_000), ExchangeEstimate(sent=100)).scale == gauge.scale
    assert learned(gauge, used(220), ExchangeEstimate(sent=100, has_media=True)).scale == gauge.scale


@pytest.mark.parametrize(
    ("stays", "goes_on", "expected"),
    [("never", True, 120), ("loop", True, 420), ("loop", False, 120), ("always", False, 420)],
)
def test_reasoning_counts_as_long_as_its_wire_sends_it(stays: Any, goes_on: bool, expected: int) -> None:
    """Reasoning is not input at all, only while results go back, or for ever."""
    said = ExchangeEstimate(sent=90, replied=20, has_reasoning=True, goes_on=goes_on, stays=stays)

    assert learned(Gauge(), used(100, 320, 300), said).expected(0) == expected


def test_reasoning_of_a_loop_leaves_with_its_turn() -> None:
    """What the loop's requests held of it is not in the request after the turn's last reply."""
    loop = learned(Gauge(), used(100, 320, 300), ExchangeEstimate(sent=90, replied=20, goes_on=True))
    last = learned(loop, used(430, 10), ExchangeEstimate(sent=10, replied=10))

    assert loop.expected(10) == 430
    assert last.expected(0) == 430 + 10 - 300


def test_reasoning_that_nobody_tells_apart_is_bounded_by_the_words() -> None:
    """Older usages count thinking as output; a reply of one word is not 1,800 tokens of history."""
    said = ExchangeEstimate(sent=60, replied=6, has_reasoning=True)

    assert learned(Gauge(), used(67, 1_849), said).expected(0) < 90


def test_a_server_that_counts_nothing_is_estimated() -> None:
    """Without a usage the estimates add up, and the first real one anchors again."""
    dark = learned(
        learned(Gauge(), Usage(), ExchangeEstimate(sent=40, replied=60)),
        Usage(),
        ExchangeEstimate(sent=40, replied=60),
    )

    assert dark.expected(0) == 200
    assert not dark.is_anchored
    assert learned(dark, used(500, 5), ExchangeEstimate(sent=10)).expected(0) == 505


def test_a_changed_prefix_is_learnt_anew() -> None:
    """After another preamble the next usage is not compared with the last: it says what surrounds the history
    now, not what words are worth."""
    dialect = dialect_of("openai")
    hello = dialect.entries([user(PROSE)])
    meta = booked(Meta(wire="openai"), hello, Reply(entries=(), usage=used(5_000, 10)), dialect)
    before = gauge_of(meta)
    more = before.tokens + 2 * count_entries(hello, dialect)  # as if these words were twice as many tokens

    meta = booked(unanchored(meta), hello, Reply(entries=(), usage=used(more, 10)), dialect)

    assert gauge_of(meta).scale == before.scale
    assert gauge_of(meta).frame > before.frame
    assert gauge_of(meta).expected(0) == more + 10


def test_calls_of_before_costs_were_kept_are_unknown() -> None:
    """A state that has a usage and no costs is one whose costs nobody knows."""
    old = Meta(wire="openai", total=(10, 0, 0, 5, 0, 1))

    assert dollars_of(old) is None
    assert dollars_of(with_cost(old, 1_000)) is None
    assert dollars_of(with_cost(Meta(wire="openai"), 1_000)) == Decimal("0.000001")


def test_the_state_keeps_five_numbers() -> None:
    """What was learnt survives in the meta, and its size does not grow with the conversation."""
    dialect, meta, real = dialect_of("anthropic"), Meta(wire="anthropic"), 0
    for _ in range(300):
        real += 500
        meta = booked(meta, dialect.entries([user(PROSE)]), Reply(entries=(), usage=used(real, 20)), dialect)
        real += 20

    assert len(meta.gauge) == 5
    assert gauge_of(meta).expected(0) == real
    assert gauge_of(meta).estimated < 5_000


class Counted:
    """A dialect, and a token counter, that note that they were asked."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.asked = 0
        self._dialect = dialect_of(wire)

    def view(self, entries: Any) -> Any:
        self.asked += 1
        return self._dialect.view(entries)

    def count(self, message: Message, /) -> int:
        self.asked += 1
        return 10


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("reply", "first", "asks"),
    [
        (Reply(entries=(), usage=used(1_000, 10)), False, False),
        (Reply(entries=(), usage=used(1_000, 10)), True, True),  # how much of it is preamble and tools
        (Reply(entries=(), text="Hi.", usage=Usage(requests=1)), False, True),  # the server counts nothing
        (Reply(entries=(), text="Hi.", usage=used(1_000, 90, 80)), False, True),  # what of it is visible
    ],
)
def test_estimates_are_made_only_where_they_are_asked_for(
    wire: str, reply: Reply, first: bool, asks: bool
) -> None:
    """Without a compactor the usage says how large the next request is, and no entry is read for it."""
    counted: Any = Counted(wire)
    sent = dialect_of(wire).entries([user(PROSE)])
    before = Meta(wire=wire)
    if not first:
        before = booked(before, sent, Reply(entries=(), usage=used(900, 10)), dialect_of(wire))

    without = booked(before, sent, reply, counted, counted, calibrates=False)

    assert (counted.asked > 0) == asks
    assert gauge_of(without).scale == gauge_of(before).scale
    asked = counted.asked
    calibrated = booked(before, sent, reply, counted, counted)
    assert counted.asked >= asked + 2
    assert gauge_of(without).tokens == gauge_of(calibrated).tokens


@pytest.mark.parametrize("broken", [b"not JSON", b'{"role":7}'])
def test_a_paid_reply_is_not_lost_for_want_of_a_number(broken: bytes) -> None:
    """An entry that nobody can read, and a counter that raises, are rough numbers instead."""

    class Failing:
        def count(self, message: Message, /) -> int:
            raise RuntimeError("no")

    reply = Reply(entries=(), text="Hello.")

    meta = booked(Meta(wire="openai"), [broken * 50], reply, dialect_of("openai"), Failing())

    assert meta.tokens > 0


# ------------------------------------------------------------------------------------------------ a blob


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_an_imported_history_is_estimated(wire: str) -> None:
    """`estimate_tokens` needs no real usage: bytes do for a history that came from elsewhere."""
    said = [{"role": "user", "content": PROSE}, {"role": "assistant", "content": PROSE}]

    blob = state_from_messages(wire, said)

    assert 2 * len(PROSE) / 6 < estimate_tokens(blob) < 2 * len(PROSE) / 3
    assert inspect_state(blob).context_fraction is None


# ------------------------------------------------------------------------------- pictures and documents


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 400, 301)
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc0\x00\x11\x08" + struct.pack(">HH", 301, 400) + bytes(12)
GIF = b"GIF89a" + struct.pack("<HH", 400, 301)
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (399).to_bytes(3, "little") + (300).to_bytes(3, "little")
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0/" + struct.pack("<I", 399 | 300 << 14)
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 400, 301)


@pytest.mark.parametrize("data", [PNG, JPEG, GIF, WEBP, WEBP_LOSSLESS, WEBP_LOSSY])
def test_a_picture_tells_its_size(data: bytes) -> None:
    """Width and height stand in the first bytes of every format that providers take."""
    assert image_size(data) == (400, 301)


@pytest.mark.parametrize("data", [b"", b"BM12", PNG[:20], JPEG[:12], WEBP[:20], b"\xff\xd8\x00\x00" * 5])
def test_a_broken_picture_has_no_size(data: bytes) -> None:
    """What is cut or of another format is no error: it gets the number for pictures of unknown size."""
    assert image_size(data) is None
    assert media_tokens(Image(data=data, media_type="image/png"), rates("anthropic")) == 800


def test_pictures_follow_the_published_rules() -> None:
    """Anthropic: pixels by 750. OpenAI: 85, and 170 for each tile of 512 pixels; low detail is flat."""
    large = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 8_000, 6_000)

    assert media_tokens(Image.from_bytes(PNG), rates("anthropic")) == 161
    assert media_tokens(Image.from_bytes(PNG), rates("openai")) == 85 + 170
    assert media_tokens(Image.from_bytes(PNG, detail="low"), rates("openai-responses")) == 85
    assert media_tokens(Image.from_bytes(large), rates("openai")) == 85 + 4 * 170
    assert media_tokens(Image.from_bytes(large), rates("anthropic")) == 1_600


@pytest.mark.parametrize("size", [(1, 4_096), (100_000, 1), (2**32 - 1, 1), (1, 1), (2**32 - 1, 2**32 - 1)])
def test_a_picture_of_any_shape_is_counted(size: tuple[int, int]) -> None:
    """A line of one pixel, and what a file only claims: an error here would end each later turn, too."""
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", *size)

    for wire in ("openai", "openai-responses", "anthropic"):
        assert 0 < media_tokens(Image.from_bytes(data), rates(wire)) <= 1_600


def test_a_document_counts_by_pages() -> None:
    """Pages of a PDF are counted, the tree of pages is none of them."""
    pdf = b"%PDF-1.4 /Type /Pages /Type /Page x /Type /Page y"

    assert media_tokens(Document.from_bytes(pdf), rates("anthropic")) == 3_200


# ------------------------------------------------------------------------------------- a real vocabulary


class _Encoding:
    def encode(self, text: str, **_: Any) -> list[str]:
        return text.split()


def _tiktoken(monkeypatch: pytest.MonkeyPatch, get_encoding: Any) -> None:
    """Put a stand-in for tiktoken in its place: the real one downloads its vocabulary."""

    def encoding_name_for_model(model: str) -> str:
        if model != "gpt-4o":
            raise KeyError(model)
        return "o200k_base"

    made = types.SimpleNamespace(encoding_name_for_model=encoding_name_for_model, get_encoding=get_encoding)
    monkeypatch.setitem(sys.modules, "tiktoken", made)


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-4o", "some-other"])
def test_tiktoken_counts_words_by_its_vocabulary(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """A model that it does not know gets the newest vocabulary."""
    asked: list[str] = []
    _tiktoken(monkeypatch, lambda name: asked.append(name) or _Encoding())

    counter = TiktokenCounter(model)

    assert asked == ["o200k_base"]
    assert counter.count(assistant("one two three")) == 4 + 3


def test_a_vocabulary_that_cannot_be_had_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network and no cache: the error names the variable and the way out, not a stack of sockets."""

    def unreachable(name: str) -> Any:
        raise ConnectionError(name)

    _tiktoken(monkeypatch, unreachable)

    with pytest.raises(RuntimeError, match=r"TIKTOKEN_CACHE_DIR.*TokenEstimate"):
        TiktokenCounter("gpt-4o")


def test_without_tiktoken_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed is an ImportError with the words to install it."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)

    with pytest.raises(ImportError, match=r"goaitools-py\[tiktoken\]"):
        TiktokenCounter("gpt-4o")


def test_a_text_of_nothing_is_a_message() -> None:
    """A part without text adds nothing to the frame."""
    count = TokenEstimate().count

    assert count(Message(role="user", parts=(Text(""),))) == count(Message(role="user"))
