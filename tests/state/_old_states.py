"""States that an upgrade has to write anew, and a worker of an older release."""

from __future__ import annotations

from typing import ClassVar

import pytest

from goaitools_py.state.blob_header import FORMAT_VERSIONS
from goaitools_py.state.codec import Plain


class Uncompressed(Plain, frozen=True):
    """Writes what `PLAIN` reads, without the compression that `PLAIN` writes."""

    compresses: ClassVar[bool] = False


def become_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read an earlier version only, as a worker of the release before this one does."""
    monkeypatch.setitem(FORMAT_VERSIONS, 0, "an earlier one")
    monkeypatch.delitem(FORMAT_VERSIONS, 1)
