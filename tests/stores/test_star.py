"""`from goaitools_py.stores import *` works without the extras."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from goaitools_py.stores import *
import goaitools_py.stores as stores
assert SQLiteStore and RedisStore and LeaseHeldError
for name, package in (("SQLAlchemyStore", "sqlalchemy"), ("AsyncDjangoStore", "django")):
    assert (name in globals()) is (package not in sys.argv), name
    if package in sys.argv:
        try:
            getattr(stores, name)
        except ModuleNotFoundError as error:
            assert "goaitools-py[" in str(error), error
        else:
            raise AssertionError(name)
"""


@pytest.mark.parametrize("lacking", [["sqlalchemy", "django"], ["django"], []])
def test_a_star_gives_what_is_installed(lacking: list[str]) -> None:
    """A store whose package is missing is left out; by its name it still says what to install."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *lacking], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
