"""Stable. Functions on states: read, fork, join, import and export a conversation without a model.

All are pure: a state in, a value or a state out. They need no key and no SDK of a provider. Those that open a
state take ``codec=`` and ``binding=`` as the chat does that wrote it.

Owns: the one public door to them. Must never know: a turn.
"""

from .chat.stepping import Step
from .history.branch import fork_state, rewind_state
from .history.convert import state_from_messages, state_messages
from .history.diff import StateDiff, diff_states
from .history.export import EXPORT_SCHEMA, export_state, import_state
from .history.files import load_state, save_state
from .history.go_states import import_goaitools_state
from .history.info import StateInfo, inspect_state, pending_calls
from .history.markdown import to_markdown
from .history.rebase import rebase_state
from .history.redact.redaction import RedactedPlace, Redaction, redact_state
from .history.size import estimate_tokens
from .history.transcript import History, HistoryCall, HistoryIteration, HistoryMatch, HistoryTurn
from .history.transcript_json import HISTORY_SCHEMA, RESULT_SCHEMA
from .history.translate.door import Conversion, convert_state
from .history.translate.losses import Loss, LossKind
from .history.turns import read_history
from .history.undo import undo_cut
from .history.update import update_state
from .history.upgrade import upgrade_state
from .history.verify import verify_state
from .state.formats import FORMAT_VERSIONS
from .state.text import state_from_text, state_to_text

__all__ = [
    "EXPORT_SCHEMA",
    "FORMAT_VERSIONS",
    "HISTORY_SCHEMA",
    "RESULT_SCHEMA",
    "Conversion",
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
