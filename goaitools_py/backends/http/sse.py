"""Splits the bytes of an event stream into the data of its events.

Owns: line ends, comments and the ends of events in ``text/event-stream``.
Must never know: a provider, the meaning of an event.
"""

from __future__ import annotations

from typing import Final

from ...base import rawjson

__all__ = ["MAX_EVENT_BYTES", "EventSplitter", "EventTooLongError"]

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""How large one event may be. The largest ones of these provider APIs are a whole reply, or a base64
image."""

_LF: Final = 0x0A
_BOM: Final = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """An event, or an unfinished line, is larger than a splitter may hold."""


class EventSplitter:
    """Takes chunks that were cut anywhere, and returns the data of each event that they complete.

    It follows "Interpreting an event stream" of the WHATWG HTML standard: lines end in LF, CRLF or CR, a
    leading byte order mark and comments are skipped, several ``data`` lines of one event are joined by LF.
    Only the data of an event counts. The fields ``event``, ``id`` and ``retry`` are skipped, because servers
    of these provider APIs do not set them reliably.

    It is more tolerant than the standard in two places, as servers and proxies leave blank lines out. Two
    ``data`` lines are two events if the first is a JSON object and the second begins as JSON. And `has_rest`
    reports a last event without its blank line that is whole JSON. Another last event counts as cut off.

    Args:
        limit: The largest number of bytes in an event, and in the buffer of an incomplete one.
    """

    __slots__ = ("_at_start", "_cr_before", "_data", "_data_size", "_limit", "_line", "_line_size")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._limit = limit
        self._at_start = True
        self._cr_before = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events they completed, without the last LF.

        Raises:
            EventTooLongError: An event is larger than the limit. The stream cannot be read any further.
        """
        held = self._line_size + self._data_size
        if not held and len(chunk) <= self._limit and (data := _one_event(chunk)) is not None:
            self._at_start = self._cr_before = False
            return [data]
        events = self._split(chunk)
        if held + len(chunk) > self._limit:
            held = self._line_size + self._data_size
            if max((held, *map(len, events))) > self._limit:
                raise EventTooLongError(f"an event of the stream is larger than {self._limit} bytes")
        return events

    def _split(self, chunk: bytes) -> list[bytes]:
        if self._cr_before and chunk:
            self._cr_before = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        lines = chunk.splitlines()
        ended = chunk[-1] in b"\r\n"
        self._cr_before = chunk[-1] == 0x0D
        if self._line:
            # Collected and joined once: joined at each chunk, a long line would take quadratic time.
            self._line.append(lines[0])
            if len(lines) == 1 and not ended:
                self._line_size += len(chunk)
                return []
            lines[0] = b"".join(self._line)
            self._line.clear()
            self._line_size = 0
        if not ended:
            self._line.append(lines.pop())
            self._line_size = len(self._line[0])
        if lines and self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        data = self._data
        known = len(data)
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
                    known = self._data_size = 0
            elif line.startswith(b"data:"):
                value = line[6:] if line.startswith(b"data: ") else line[5:]
                # Only an event of one line is looked at, once: JSON over many lines costs its length then.
                if len(data) == 1 and value[:1] in (b"{", b"[") and _is_whole(data[0]):
                    events.append(data.pop())
                    known = self._data_size = 0
                data.append(value)
            elif line == b"data":
                data.append(b"")
        if len(data) > known:
            self._data_size += sum(len(line) + 1 for line in data[known:])
        return events

    @property
    def has_rest(self) -> bool:
        """True if a last event is whole but lacks its blank line: if the stream ends here, feed it
        that line."""
        data = list(self._data)
        line = b"".join(self._line)
        if line.startswith(b"data:"):
            value = line[5:].removeprefix(b" ")
            if data and _is_whole(b"\n".join(data)):
                return _is_whole(value)
            data.append(value)
        return bool(data) and _is_whole(b"\n".join(data))


def _is_whole(data: bytes) -> bool:
    """True for a JSON object, and for the word that ends a stream."""
    data = data.strip()
    if data == b"[DONE]":
        return True
    if not data.startswith(b"{") or not data.endswith(b"}"):
        return False
    try:
        rawjson.members(data)
    except rawjson.RawJSONError:
        return False
    return True


def _one_event(chunk: bytes) -> bytes | None:
    """The data, if the bytes are exactly one event in the form in which most servers write it; else None."""
    start = chunk[:6]
    if start == b"data: ":
        at = 6
    elif start == b"event:":
        at = chunk.find(b"\n") + 7
        if chunk[at - 6 : at] != b"data: ":
            return None
    else:
        return None
    end = len(chunk) - 2
    if chunk.find(b"\n", at) != end or chunk[-1] != _LF or chunk.find(b"\r") >= 0:
        return None
    return chunk[at:end]
