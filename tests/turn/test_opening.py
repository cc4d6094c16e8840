"""The first bytes of an answer: how long they are waited for, and how many of them may be blank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from goaitools_py.backends.base import BackendError, ProtocolFault
from goaitools_py.turn.flow import Moment
from goaitools_py.turn.receive import read_opening
from goaitools_py.turn.timing import CallTimes

MOST = 8


def read(
    *chunks: tuple[float, bytes], content_type: str = "application/json"
) -> tuple[tuple[bytes, bool], set[float | None]]:
    """What these bytes are taken for, and until when they were waited for: 5 seconds until the reply begins,
    100 for all of it."""
    ledger: Any = SimpleNamespace(now=Moment(0, 0.0))
    times = CallTimes.begin(0.0, turn=None, call=100.0, first=5.0)
    flow = read_opening(ledger, times, content_type, max_bytes=MOST)
    effect: Any = next(flow)
    ends = {effect.until}
    for at, chunk in chunks:
        try:
            effect = flow.send((Moment(round(at * 1000), at), chunk))
        except StopIteration as stop:
            return stop.value, ends
        ends.add(effect.until)
    raise AssertionError("it waits for more")


@pytest.mark.parametrize(
    ("chunks", "found"),
    [
        ([b"data: 1"], (b"data: 1", True)),
        ([b" ", b"\n", b"event: a"], (b" \nevent: a", True)),
        ([b'{"id":'], (b'{"id":', False)),
        ([b"  ", b"<html>"], (b"  <html>", False)),
        ([b"da", b"ta:"], (b"data:", True)),
        ([b"", b""], (b"", False)),
        ([b" ", b""], (b" ", False)),
        ([b"hello"], (b"hello", False)),
    ],
)
def test_the_first_bytes_tell_a_stream_from_a_body(chunks: list[bytes], found: tuple[bytes, bool]) -> None:
    """Blanks, and the beginning of a field's name, tell nothing yet. The end, or any other byte, does."""
    assert read(*[(1.0, chunk) for chunk in chunks])[0] == found


@pytest.mark.parametrize("chunk", [b"", b"hello"])
def test_where_the_bytes_tell_nothing_the_content_type_does(chunk: bytes) -> None:
    """An empty answer may be an empty stream."""
    assert read((1.0, chunk), content_type="text/event-stream")[0] == (chunk, True)


def test_the_reply_has_to_begin_in_its_time() -> None:
    """Each wait ends then; and so do blanks that keep coming, which are no beginning."""
    assert read((4.9, b" "), (4.99, b"{"))[1] == {5.0}
    with pytest.raises(BackendError, match="took too long") as caught:
        read((4.9, b" "), (5.0, b" "))
    assert caught.value.timed_out


def test_blanks_are_read_up_to_the_limit() -> None:
    """One more is refused."""
    assert read((1.0, b" " * MOST), (1.0, b"{"))[0] == (b" " * MOST + b"{", False)
    with pytest.raises(ProtocolFault, match=f"larger than {MOST} bytes"):
        read((1.0, b" " * (MOST + 1)), (1.0, b"{"))
