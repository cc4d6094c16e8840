"""Stateful chat with language models whose whole state is one opaque value.

A map of the package, outermost first::

    cli          the `goaitools` command
    chat         Chat, AsyncChat and the handle of a running turn
    options      what a caller may ask for;  result, events, errors: what comes back
    messages     messages, parts, calls, usage;  values: what every value is
    engine       the turn, written once; its parts:
        asking       one model call          calling     the tool calls of one reply
        inbox        what no model has seen   journal     the unfinished turn
        shrink       cuts during a turn       ledger      the turn's books, errors made of them
        answers      calls that wait          turn_ids    turns that come again
    flow         the effects a turn asks for;  edge, async_edge: who carries them out
    append, compact, history    states without a model
    compaction   triggers and strategies;  cut: what they do to a state
    tools        functions that the model may call
    backends     provider wires: a pure dialect and a thin connection each
    render       how events and context look;  reading: stored entries in neutral words
    state        a conversation as a value;  records, segments: its parts, and their bytes
    blob         segments to one sealed value;  frames, dictionary: how they are compressed
    rawjson      cuts verbatim spans out of JSON
    stores       where blobs are kept
    sim          the offline provider simulator;  testing: scripted backend, checks
"""

from .answers import Approve, Deny, PendingCall
from .backends.base import ProviderTool
from .blob import PLAIN, UNBOUND
from .chat import AsyncChat, AsyncTurn, Chat, Turn
from .compaction import (
    NO_COMPACTION,
    CompactionRequest,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    TokenLimit,
    TurnView,
    all_of,
    any_of,
    first_of,
)
from .errors import (
    AbortTurn,
    AuthenticationError,
    BudgetExceededError,
    CheckpointError,
    CompactionError,
    ContextTooLongError,
    DeadlineExceededError,
    GoAIToolsError,
    LimitExceededError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StateAuthError,
    StateConflictError,
    StateCorruptError,
    StateError,
    StateFormatError,
    StateInvalidError,
    StateProviderError,
    StateSizeError,
    StateTooLargeError,
    StateVersionError,
    StoreCommitError,
    StoreError,
    StoreUnavailableError,
    StreamInterruptedError,
    ToolError,
    ToolFailedError,
    ToolPendingError,
    TurnConflictError,
    TurnError,
    TurnInProgressError,
)
from .events import (
    CheckpointReady,
    Compacted,
    ContextWarning,
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    StateDiscarded,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from .history import (
    History,
    HistoryIteration,
    HistoryTurn,
    StateInfo,
    inspect_state,
    pending_calls,
    read_history,
    state_from_messages,
    state_messages,
)
from .messages import (
    Audio,
    Document,
    Image,
    Message,
    Text,
    ToolCall,
    ToolRecord,
    ToolResult,
    Usage,
    assistant,
    event,
    system,
    user,
)
from .options import UNSET, ChatOptions, Limits, ModelSettings
from .result import ChatResult, CompactionReport, TurnWarning
from .tools import Action, Tool, ToolContext, ToolReturn, tool

__version__ = "0.1.0.dev0"

__all__ = [
    "NO_COMPACTION",
    "PLAIN",
    "UNBOUND",
    "UNSET",
    "AbortTurn",
    "Action",
    "Approve",
    "AsyncChat",
    "AsyncTurn",
    "Audio",
    "AuthenticationError",
    "BudgetExceededError",
    "Chat",
    "ChatOptions",
    "ChatResult",
    "CheckpointError",
    "CheckpointReady",
    "Compacted",
    "CompactionError",
    "CompactionReport",
    "CompactionRequest",
    "Compactor",
    "ContextTooLongError",
    "ContextWarning",
    "DeadlineExceededError",
    "Deny",
    "Document",
    "DropOldest",
    "Event",
    "GoAIToolsError",
    "History",
    "HistoryIteration",
    "HistoryTurn",
    "Image",
    "KeepRecentTurns",
    "LimitExceededError",
    "Limits",
    "Message",
    "MessageLimit",
    "ModelReplied",
    "ModelRequested",
    "ModelSettings",
    "PendingCall",
    "ProviderProtocolError",
    "ProviderRejectedError",
    "ProviderTool",
    "ProviderUnavailableError",
    "RateLimitError",
    "ReasoningDelta",
    "StateAuthError",
    "StateConflictError",
    "StateCorruptError",
    "StateDiscarded",
    "StateError",
    "StateFormatError",
    "StateInfo",
    "StateInvalidError",
    "StateProviderError",
    "StateSizeError",
    "StateTooLargeError",
    "StateVersionError",
    "StoreCommitError",
    "StoreError",
    "StoreUnavailableError",
    "StreamInterruptedError",
    "Text",
    "TextDelta",
    "TokenLimit",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailedError",
    "ToolFinished",
    "ToolPendingError",
    "ToolRecord",
    "ToolResult",
    "ToolReturn",
    "ToolStarted",
    "Turn",
    "TurnCompleted",
    "TurnConflictError",
    "TurnError",
    "TurnInProgressError",
    "TurnStarted",
    "TurnView",
    "TurnWarning",
    "Usage",
    "all_of",
    "any_of",
    "assistant",
    "event",
    "first_of",
    "inspect_state",
    "pending_calls",
    "read_history",
    "state_from_messages",
    "state_messages",
    "system",
    "tool",
    "user",
]
