"""A pytest fixture for the simulator.

Owns: the fixture. Must never know: a particular test.

Import it in a ``conftest.py``::

    from goaitools_py.testing.fixtures import sim_server
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..sim import SimServer

__all__ = ["sim_server"]


@pytest.fixture
def sim_server() -> Iterator[SimServer]:
    """A simulated provider on a loopback port, a new one for each test. `push` queues replies and faults."""
    with SimServer() as server:
        yield server
