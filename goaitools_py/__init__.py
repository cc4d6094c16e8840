"""Stateful chat with language models whose whole state is one opaque value.

A map of the package, outermost first::

    cli          the `goaitools` command
    chat         Chat, AsyncChat and the handle of a running turn
    conversation a conversation that is kept in a store; its parts:
        threads      what is done in which order    row     one key of a store
        kept         however a turn ends, it is saved    leases  kept alive
    options      what a caller may ask for;  result, events, errors: what comes back
    messages     messages, parts, calls, usage;  values: what every value is
    engine       the turn, written once; its parts:
        asking       one model call          calling     the tool calls of one reply
        inbox        what no model has seen   journal     the unfinished turn
        shrink       cuts during a turn       ledger      the turn's books, errors made of them
        answers      calls that wait          turn_ids    turns that come again
    flow         the effects a turn asks for;  edge, async_edge: who carries them out
    append, compact, history, estimate    states without a model;  counting: asking the provider for a count
    rebase, branch    two states become one, one becomes two
    tokens       how many tokens messages are;  media, vocabulary: pictures, tiktoken;  meter: a state's
    prices       what model calls cost
    compaction   triggers and strategies;  cut: what they do to a state
    tools        functions that the model may call
    backends     provider wires: a pure dialect and a thin connection each
    render       how events and context look;  reading: stored entries in neutral words
    state        a conversation as a value;  records, segments: its parts, and their bytes
    blob         segments to one sealed value;  frames, dictionary: how they are compressed
    seal         codecs with a key;  reseal: one blob under another key;  text: a blob as text
    rawjson      cuts verbatim spans out of JSON
    stores       where blobs are kept
    sim          the offline provider simulator;  testing: scripted backend, checks
"""

from typing import TYPE_CHECKING

from .answers import Approve, Deny, PendingCall
from .backends.base import ProviderTool
from .blob import PLAIN, UNBOUND
from .chat import AsyncChat, AsyncTurn, Chat, Turn
from .compaction import (
    NO_COMPACTION,
    AskModel,
    AskProvider,
    ByteLimit,
    ClearToolResults,
    ColdCache,
    CollapseToolExchanges,
    CompactionRequest,
    Compactor,
    ContextWindow,
    DropMedia,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    MiddleOut,
    ModelAnswer,
    NoChange,
    PendingLimit,
    ProviderCompaction,
    Summarize,
    TokenLimit,
    TurnLimit,
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
    LeaseHeldError,
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
from .estimate import estimate_tokens
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
from .prices import Charge, Prices, genai_price
from .result import ChatResult, CompactionReport, TurnWarning
from .tokens import TokenCounter, TokenEstimate
from .tools import Action, Tool, ToolContext, ToolReturn, tool
from .vocabulary import TiktokenCounter

if TYPE_CHECKING:
    from .branch import fork_state, rewind_state
    from .conversation import AsyncConversation, Conversation, ConversationInfo
    from .rebase import rebase_state
    from .reseal import rewrap
    from .seal import Encrypted, Key, Keyring, Signed
    from .text import state_from_text, state_to_text
else:

    def __getattr__(name):
        """What seals and what branches is loaded when it is asked for; most processes never do."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .branch import fork_state, rewind_state
        from .conversation import AsyncConversation, Conversation, ConversationInfo
        from .rebase import rebase_state
        from .reseal import rewrap
        from .seal import Encrypted, Key, Keyring, Signed
        from .text import state_from_text, state_to_text

        globals().update(
            AsyncConversation=AsyncConversation,
            Conversation=Conversation,
            ConversationInfo=ConversationInfo,
            Encrypted=Encrypted,
            Key=Key,
            Keyring=Keyring,
            Signed=Signed,
            fork_state=fork_state,
            rebase_state=rebase_state,
            rewind_state=rewind_state,
            rewrap=rewrap,
            state_from_text=state_from_text,
            state_to_text=state_to_text,
        )
        return globals()[name]


__version__ = "0.1.0.dev0"

__all__ = [
    "NO_COMPACTION",
    "PLAIN",
    "UNBOUND",
    "UNSET",
    "AbortTurn",
    "Action",
    "Approve",
    "AskModel",
    "AskProvider",
    "AsyncChat",
    "AsyncConversation",
    "AsyncTurn",
    "Audio",
    "AuthenticationError",
    "BudgetExceededError",
    "ByteLimit",
    "Charge",
    "Chat",
    "ChatOptions",
    "ChatResult",
    "CheckpointError",
    "CheckpointReady",
    "ClearToolResults",
    "ColdCache",
    "CollapseToolExchanges",
    "Compacted",
    "CompactionError",
    "CompactionReport",
    "CompactionRequest",
    "Compactor",
    "ContextTooLongError",
    "ContextWarning",
    "ContextWindow",
    "Conversation",
    "ConversationInfo",
    "DeadlineExceededError",
    "Deny",
    "Document",
    "DropMedia",
    "DropOldest",
    "Encrypted",
    "Event",
    "GoAIToolsError",
    "History",
    "HistoryIteration",
    "HistoryTurn",
    "Image",
    "KeepRecentTurns",
    "Key",
    "Keyring",
    "LeaseHeldError",
    "LimitExceededError",
    "Limits",
    "Message",
    "MessageLimit",
    "MiddleOut",
    "ModelAnswer",
    "ModelReplied",
    "ModelRequested",
    "ModelSettings",
    "NoChange",
    "PendingCall",
    "PendingLimit",
    "Prices",
    "ProviderCompaction",
    "ProviderProtocolError",
    "ProviderRejectedError",
    "ProviderTool",
    "ProviderUnavailableError",
    "RateLimitError",
    "ReasoningDelta",
    "Signed",
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
    "Summarize",
    "Text",
    "TextDelta",
    "TiktokenCounter",
    "TokenCounter",
    "TokenEstimate",
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
    "TurnLimit",
    "TurnStarted",
    "TurnView",
    "TurnWarning",
    "Usage",
    "all_of",
    "any_of",
    "assistant",
    "estimate_tokens",
    "event",
    "first_of",
    "fork_state",
    "genai_price",
    "inspect_state",
    "pending_calls",
    "read_history",
    "rebase_state",
    "rewind_state",
    "rewrap",
    "state_from_messages",
    "state_from_text",
    "state_messages",
    "state_to_text",
    "system",
    "tool",
    "user",
]
