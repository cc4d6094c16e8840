"""A format version 0, which never existed: for tests of what happens when there is more than one version.

Its meta data call the provider API ``api`` and not ``wire``, and it has no place for parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from goaitools_py.state import formats
from goaitools_py.state.blob import Kind, Segment, segment
from goaitools_py.state.parts import Part

ZERO = 0


def _renamed(meta: Segment, old: str, new: str) -> Segment:
    members = msgspec.json.decode(meta.raw(), type=dict[str, msgspec.Raw])
    renamed = {new if name == old else name: value for name, value in members.items()}
    return segment(Kind.META, msgspec.json.encode(renamed), 0)


def _up(segments: Sequence[Segment], parts: Sequence[Part]) -> Any:
    return (_renamed(segments[0], "api", "wire"), *segments[1:]), tuple(parts)


def _down(segments: Sequence[Segment], parts: Sequence[Part]) -> Any:
    if parts:
        return None
    return (_renamed(segments[0], "wire", "api"), *segments[1:]), ()


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process know version 0 for the length of a test."""
    monkeypatch.setitem(formats.FORMAT_VERSIONS, ZERO, "the provider API is called api; no parts")
    monkeypatch.setitem(formats.OLDER, ZERO, formats.Steps(_up, _down))


def become_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process read version 0 only, as a worker of the older release does."""
    monkeypatch.delitem(formats.FORMAT_VERSIONS, 1)
