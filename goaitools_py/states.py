"""Stable. Functions on states: read, fork, join, import and export a conversation without a model.

All are pure: a state in, a value or a state out. They need no key and no SDK of a provider. Those that open a
state take ``codec=`` and ``binding=`` as the chat does that wrote it.

Owns: the one public door to them. Must never know: a turn.
"""

from .chat.handles import Step
from .history.additions import update_state
from .history.branch import EditError, fork_state, rewind_state, undo_cut
from .history.convert.entries import Loss, LossKind
from .history.convert.state import Conversion, convert_state
from .history.diff import StateDiff, diff_states
from .history.export import EXPORT_SCHEMA, export_state, import_state
from .history.import_messages import import_goaitools_state, state_from_messages, state_messages
from .history.info import StateInfo, estimate_tokens, inspect_state, pending_calls
from .history.rebase import rebase_state
from .history.redact.redaction import RedactedPlace, Redaction, redact_state
from .history.stored_states import load_state, save_state, upgrade_state, verify_state
from .history.transcript import History, HistoryCall, HistoryIteration, HistoryMatch, HistoryTurn
from .history.transcript_json import HISTORY_SCHEMA, RESULT_SCHEMA
from .history.turns import read_history, to_markdown
from .state.blob_header import FORMAT_VERSIONS
from .state.whole_blobs import state_from_text, state_to_text

__all__ = [
    "EXPORT_SCHEMA",
    "FORMAT_VERSIONS",
    "HISTORY_SCHEMA",
    "RESULT_SCHEMA",
    "Conversion",
    "EditError",
    "History",
    "HistoryCall",
    "HistoryIteration",
    "HistoryMatch",
    "HistoryTurn",
    "Loss",
    "LossKind",
    "RedactedPlace",
    "Redaction",
    "StateDiff",
    "StateInfo",
    "Step",
    "convert_state",
    "diff_states",
    "estimate_tokens",
    "export_state",
    "fork_state",
    "import_goaitools_state",
    "import_state",
    "inspect_state",
    "load_state",
    "pending_calls",
    "read_history",
    "rebase_state",
    "redact_state",
    "rewind_state",
    "save_state",
    "state_from_messages",
    "state_from_text",
    "state_messages",
    "state_to_text",
    "to_markdown",
    "undo_cut",
    "update_state",
    "upgrade_state",
    "verify_state",
]
