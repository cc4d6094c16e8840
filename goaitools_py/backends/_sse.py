"""Splits the bytes of an event stream into the data of its events.

Owns: line ends, comments and event borders of ``text/event-stream``.
Must never know: JSON, a provider, what an event means.
"""

from __future__ import annotations

__all__ = ["EventSplitter"]

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Feed it chunks, however they were cut; it returns the data of each event that became complete.

    Follows "Interpreting an event stream" of the WHATWG HTML standard: lines end in LF, CRLF or CR, a
    leading byte order mark and comments are skipped, several ``data`` lines of one event are joined by
    LF. Events are dispatched on their data alone: the ``event``, ``id`` and ``retry`` fields are skipped,
    because servers of these wires set or omit them at will.

    An event without its closing blank line at the end of the stream is *not* returned: as the standard
    says and the providers' own SDKs do, it counts as cut off.
    """

    __slots__ = ("_at_start", "_cr_before", "_data", "_line")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._at_start = True
        self._cr_before = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events they completed, without the last LF."""
        if self._cr_before and chunk:
            self._cr_before = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        lines = chunk.splitlines()
        ended = chunk[-1] in b"\r\n"
        self._cr_before = chunk[-1] == 0x0D
        if self._line:
            # Collected, not concatenated chunk by chunk: a long line in small cuts stays linear.
            self._line.append(lines[0])
            if len(lines) == 1 and not ended:
                return []
            lines[0] = b"".join(self._line)
            self._line.clear()
        if not ended:
            self._line.append(lines.pop())
        if lines and self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        return self._events(lines)

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line == b"data":
                data.append(b"")
        return events
