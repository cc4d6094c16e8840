"""What every test of the simulation has."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from goaitools_py.state import apart


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversations of a run are short. With ``parts="store"`` they have many parts all the same."""
    monkeypatch.setattr(apart, "SMALL", 150)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A run lets many tools and saves fail, and each would be logged, also behind a failure's report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
