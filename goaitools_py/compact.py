"""Compacting a blob outside a turn.

Owns: one pure step from blob to report. Must never know: a backend's connection.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .backends import rules
from .backends.base import Dialect
from .blob import Codec
from .compaction.base import InvalidPlan, apply_compactor
from .cut import compaction_request, cut_to
from .errors import CompactionError
from .records import digest8
from .result import CompactionReport
from .state import closed_turns, dump_state, hard_limits, load_state
from .values import replace

__all__ = ["compact_blob"]


def compact_blob(
    blob: bytes,
    compactor: Any,
    dialect: Dialect,
    *,
    codec: Codec,
    binding: Any,
    dry_run: bool,
    now_ms: int,
) -> CompactionReport:
    """Run the compactor whatever its trigger says. With `dry_run` the report's state is the given blob.

    Raises:
        StateError: The blob cannot be read.
        CompactionError: The compactor raised, or kept something that no provider would take.
        ValueError: There is no compactor.
    """
    if compactor is None:
        raise ValueError("there is no compactor: give one to compact_state, or to the chat as compactor=")
    state = load_state(blob, wire=dialect.wire, codec=codec, binding=binding)
    request = compaction_request(state, dialect)
    unchanged = CompactionReport(
        outcome="no_change",
        messages_before=state.meta.messages,
        messages_after=state.meta.messages,
        bytes_before=request.history_bytes,
        bytes_after=request.history_bytes,
        tokens_before=request.token_count,
        tokens_after=request.token_count,
        state=blob,
    )
    try:
        planned = apply_compactor(compactor, request, force=True)
    except InvalidPlan as exc:
        raise CompactionError(f"{exc}; the state is unchanged") from exc
    except Exception as exc:
        raise CompactionError(f"the compactor raised {type(exc).__name__}; the state is unchanged") from exc
    if planned is None:
        return unchanged
    name, kept = planned
    cut, report = cut_to(state, request, kept, dialect, by=name, at=max(0, now_ms - state.meta.created))
    if dialect.wire in rules.WIRES:
        entries = [entry for turn, _ in closed_turns(cut) for entry in turn]
        if problems := rules.check_history(dialect.wire, entries, unique_ids=False):
            raise CompactionError(f"{name} left a history that the provider would refuse: {problems[0]}")
    if dry_run:
        return replace(report, state=blob)
    meta = msgspec.structs.replace(cut.meta, rev=cut.meta.rev + 1, parent=digest8(blob[:112]))
    new = dump_state(replace(cut, meta=meta), codec=codec, binding=binding, limits=hard_limits(codec))
    return replace(report, state=new)
