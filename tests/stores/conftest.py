"""An empty place for each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ._places import Place, place_of


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place for the kind that the test names as its parameter."""
    with place_of(request.param, tmp_path) as made:
        yield made
