"""Objects with work left are finished when Python ends."""

from __future__ import annotations

import pytest

from goaitools_py.base import process


class Ends:
    """An object with work left, which may be interrupted."""

    def __init__(self, failure: type[BaseException] | None = None) -> None:
        self.failure = failure
        self.has_ended = False

    def end_with_python(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.has_ended = True


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exit_while_one_object_ends_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    """Ctrl-C is pressed twice, for example."""
    monkeypatch.setattr(process, "_all", {})
    first, second = Ends(failure), Ends()
    process.unfinished(first)
    process.unfinished(second)

    process._finish_all()

    assert second.has_ended
