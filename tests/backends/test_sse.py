"""Facts about `EventSplitter`: the data of events, however the bytes were cut and the lines ended."""

from __future__ import annotations

import pytest

from goaitools_py.backends.http import sse
from goaitools_py.backends.http.sse import EventSplitter, EventTooLongError

STREAM = (
    b"\xef\xbb\xbfdata: first\n"
    b"\n"
    b": a comment\n"
    b"event: note\n"
    b'data: {"a":"\xe2\x80\xa8"}\n'
    b"\n"
    b"data:no space\n"
    b"id: 7\n"
    b"\n"
    b"\n"
    b"data: one\n"
    b"data\n"
    b"data:  two\n"
    b"\n"
    b"retry: 10\n"
    b"\n"
    b"data: [DONE]\n"
    b"\n"
)
EVENTS = [b"first", b'{"a":"\xe2\x80\xa8"}', b"no space", b"one\n\n two", b"[DONE]"]


def split(*chunks: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [event for chunk in chunks for event in splitter.feed(chunk)]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_events_are_the_same_whatever_ends_a_line(line_end: bytes) -> None:
    """The three line ends of the standard are one."""
    assert split(STREAM.replace(b"\n", line_end)) == EVENTS


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_cut_anywhere_changes_nothing(line_end: bytes) -> None:
    """Two chunks give the same events as one, even if cut inside a CRLF or the mark at the start."""
    stream = STREAM.replace(b"\n", line_end)

    assert all(split(stream[:cut], stream[cut:]) == EVENTS for cut in range(len(stream) + 1))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_single_bytes_make_the_same_events(line_end: bytes) -> None:
    """A stream may arrive byte by byte, with empty chunks between."""
    stream = STREAM.replace(b"\n", line_end)

    assert split(*(chunk for at in range(len(stream)) for chunk in (stream[at : at + 1], b""))) == EVENTS


def test_an_event_is_out_as_soon_as_its_blank_line_is() -> None:
    """Nothing waits for the next chunk."""
    splitter = EventSplitter()

    assert splitter.feed(b"data: a\r\n\r") == [b"a"]
    assert splitter.feed(b"\ndata: b\r\n\r\n") == [b"b"]


@pytest.mark.parametrize("rest", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r"])
def test_an_event_without_its_blank_line_is_cut_off(rest: bytes) -> None:
    """Until the stream is over: then it counts if it is whole JSON, or the word for the end."""
    assert split(b"data: a\n\n" + rest) == [b"a"]

    splitter = EventSplitter()
    splitter.feed(b"data: a\n\n" + rest)
    assert splitter.has_rest
    assert splitter.feed(b"\n\n") == [b"[DONE]"]
    assert not splitter.has_rest


@pytest.mark.parametrize(
    "rest", [b"", b"data: {", b'data: {"a":1', b"data: [DONE", b'event: x\nid: {"a":1}', b"data: a"]
)
def test_an_event_that_is_not_whole_is_cut_off(rest: bytes) -> None:
    splitter = EventSplitter()
    splitter.feed(rest)

    assert not splitter.has_rest
    assert splitter.feed(b"\n\n") == split(rest + b"\n\n")  # and nothing of it is lost


def test_two_lines_of_json_are_two_events() -> None:
    """Where a blank line is missing; JSON over several lines is one event, as the standard says."""
    assert split(b'data: {"a":1}\ndata: {"b":2}\n\n') == [b'{"a":1}', b'{"b":2}']
    assert split(b'data: {"a":\ndata: {"b":2}\ndata: }\n\n') == [b'{"a":\n{"b":2}\n}']


def test_an_event_of_many_lines_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is two events without a blank line costs no more with each line."""
    looked: list[int] = []
    is_whole = sse._is_whole

    def counted(data: bytes) -> bool:
        looked.append(len(data))
        return is_whole(data)

    monkeypatch.setattr(sse, "_is_whole", counted)

    assert len(split(b"data: {\n" + b"data: {}\n" * 1000 + b"\n")) == 1
    assert sum(looked) < 1000


def test_a_mark_is_skipped_at_the_start_only() -> None:
    """A byte order mark later on belongs to its line, and so hides the field."""
    assert split(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


@pytest.mark.parametrize(
    ("chunks", "events"),
    [
        ([b"data: a\n", b"data: b\n\n"], [b"a\nb"]),
        ([b": half", b"data: b\n\n", b"data: c\n\n"], [b"c"]),
        ([b"data: a\rdata: b\n\n"], [b"a\nb"]),
        ([b"data: a\r\n\n"], [b"a"]),
        ([b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n", b"data: c\n\n"], [b"a", b"c"]),
    ],
)
def test_a_chunk_that_looks_like_an_event_may_be_a_part_of_one(
    chunks: list[bytes], events: list[bytes]
) -> None:
    """What went before, and a CR inside, decide; a mark can only stand before everything."""
    assert split(*chunks) == events


def test_fields_that_only_begin_like_data_are_skipped() -> None:
    """``database:`` is another field."""
    assert split(b"database: x\ndata : y\n\n") == []


def test_a_long_line_in_small_chunks_is_joined_once() -> None:
    """A line of many chunks costs its length, not the square of it: its pieces are kept apart."""
    splitter = EventSplitter()
    for _ in range(1000):
        assert splitter.feed(b"data: " if not splitter._line else b"x" * 100) == []

    assert len(splitter._line) == 1000
    assert splitter.feed(b"\n\n") == [b"x" * 99_900]


# --------------------------------------------------------------------------------------- the limit


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"x" * 100],
        [b"x"] * 101,
        [b": " + b"x" * 100],
        [b"data: x\n"] * 51,
        [b"data\n"] * 101,
        [b"data: a\n\ndata: " + b"x" * 60, b"x" * 60],
        [b"data: " + b"x" * 101 + b"\n\n"],
        [b"data: a\n\ndata: " + b"x" * 101 + b"\n\ndata: b\n\n"],
    ],
    ids=["line", "bytes", "comment", "lines", "empty lines", "after an event", "whole", "between events"],
)
def test_an_event_beyond_the_limit_is_refused(chunks: list[bytes]) -> None:
    """Nothing that a server sends can make a splitter hold more, or hand out more at once."""
    splitter = EventSplitter(limit=100)

    with pytest.raises(EventTooLongError, match="larger than 100 bytes"):
        list(map(splitter.feed, chunks))


def test_a_line_that_has_ended_counts_no_more() -> None:
    """What was handed out, and what was skipped, is no longer held."""
    splitter = EventSplitter(limit=100)
    for _ in range(3):
        assert (
            splitter.feed(b"data: " + b"x" * 60) == splitter.feed(b"x\n") == splitter.feed(b"data: y\n") == []
        )
        assert splitter.feed(b"\n") == [b"x" * 61 + b"\ny"]
        assert splitter.feed(b": " + b"x" * 60) == splitter.feed(b"x\n\n") == []


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_limit_is_for_one_event_not_for_a_stream(size: int) -> None:
    """Any number of events and comments may pass, in reads of any size."""
    stream = (b": ping\n\n" * 20 + b"data: " + b"x" * 80 + b"\n\n") * 20
    splitter = EventSplitter(limit=100)

    events = [event for at in range(0, len(stream), size) for event in splitter.feed(stream[at : at + size])]

    assert events == [b"x" * 80] * 20
