"""What every test of the simulation has."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A run lets many tools and saves fail, and each would be logged, also behind a failure's report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
