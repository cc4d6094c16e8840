"""Shared by the chaos tests: one simulator, one set of chats, and a clock that skips waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..turn.conftest import SkippingClock, clock
from ._house import House

__all__ = ["SkippingClock", "clock"]


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    """The simulator and the chats that all cells share: nothing of one fault may show in the next cell."""
    with House() as made:
        yield made
