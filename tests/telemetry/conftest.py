"""Shared by the tests of telemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ._seen import Seen


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()
