"""How much of a history a cut may keep, computed from the limits and the sizes."""

from __future__ import annotations

import pytest

from goaitools_py.history.rewrite.cut import _targets
from goaitools_py.open_turn.room import Size
from goaitools_py.state.codec import BlobLimits

LIMITS = BlobLimits(max_blob_bytes=10_000, max_decoded_bytes=40_000, max_entries=100, max_segments=50)
CLOSED = Size(blob=6_000, decoded=12_000, entries=60, segments=10)
"""The closed turns, whose entries have 8,000 bytes in these tests."""


@pytest.mark.parametrize(
    ("size", "share", "most_bytes", "most_entries"),
    [
        # All of it is closed turns. The blob is the tightest: (0.5 * 10,000) / 6,000 of the bytes.
        (CLOSED, 0.5, 6_666, 50),
        # 2,000 bytes and 30 entries are none of them, and stay: (5,000 - 2,000) / 6,000; 50 - 30 entries.
        (Size(blob=8_000, decoded=14_000, entries=90, segments=12), 0.5, 4_000, 20),
        # The decoded bytes are tighter: (0.5 * 40,000 - 17,000) / 12,000.
        (Size(blob=6_000, decoded=29_000, entries=60, segments=10), 0.5, 2_000, 50),
        # The segments are tighter: (0.5 * 50 - 20) / 10.
        (Size(blob=6_000, decoded=12_000, entries=60, segments=30), 0.5, 4_000, 50),
        # What stays is more than the share already.
        (Size(blob=12_000, decoded=18_000, entries=120, segments=10), 0.5, 0, 0),
    ],
)
def test_the_tightest_limit_decides(size: Size, share: float, most_bytes: int, most_entries: int) -> None:
    """What is no closed turn stays, and takes its part of each limit."""
    (_, first), (_, second) = _targets(LIMITS, share, size, CLOSED, 8_000)

    assert (first, second) == (most_bytes, most_entries)
