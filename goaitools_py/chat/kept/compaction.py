"""The flow of a compaction of a kept conversation.

Owns: the order of lease, load, compaction and save. Must never know: the inside of a compactor, or which
store it is.
"""

from __future__ import annotations

from collections.abc import Callable

from ...base.values import replace
from ...turn.flow import Flow
from ...types.errors import CompactionError, StateConflictError
from ...types.result import CompactionReport
from .row import Row
from .row_calls import RowSettings

__all__ = ["KeptCompaction"]


class KeptCompaction:
    """A compaction of a kept conversation. As `KeptTurn`, but an abandoned compaction saves nothing."""

    unsaved: Exception | None = None

    def __init__(
        self,
        settings: RowSettings,
        compact: Callable[[bytes], Flow[CompactionReport]],
        *,
        timeout: float | None,
        listening: bool = False,
    ) -> None:
        self._row = Row(settings)
        self._compact = compact
        self._listening = listening
        self._timeout = timeout
        self.is_settled = False

    def run(self) -> Flow[CompactionReport]:
        """Run the compaction, from the lease to the save."""
        try:
            report = yield from self._run()
        except Exception:
            yield from self.settle()
            raise
        yield from self.settle()
        return report

    def _run(self) -> Flow[CompactionReport]:
        yield from self._row.take_lease(self._timeout)
        yield from self._row.load()
        try:
            report = yield from self._compact(self._row.stored)
        except CompactionError as exc:
            if exc.state:  # the history is unchanged, but tokens were spent
                yield from self._commit(exc.state)
            raise
        return replace(report, state=(yield from self._commit(report.state)))

    def _commit(self, blob: bytes) -> Flow[bytes]:
        try:
            stored = yield from self._row.commit(blob, is_last=True)
        except StateConflictError as exc:
            raise StateConflictError(
                f"{exc}; the compacted conversation is only in err.state, not in the store: compact again",
                state=blob,
                base=self._row.mine,
            ) from exc
        if self._listening:
            yield from self._row.tell()
        return stored

    def settle(self) -> Flow[None]:
        """Give the lease back."""
        yield from self._row.release()
        self.is_settled = True
