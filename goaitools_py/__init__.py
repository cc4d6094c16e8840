"""Stateful chat with language models whose whole state is one opaque value.

A map of the package, outermost first::

    cli            the `goaitools` command
    chat           Chat, AsyncChat and the handle of a running turn
    conversation   a conversation that is kept in a store;  threads: its rules
    options        what a caller may ask for;  result, events, errors: what comes back
    messages       messages, parts, calls, usage;  values: what every value is
    edges          who carries the effects of a turn out: plain, async
    turn           one turn, written once, as a generator of effects:
        engine         what happens in which order;  flow: the effects
        asking         one model call;  calling: the tool calls of one reply
        inbox          what no model has seen;  journal: the unfinished turn
        ledger         the turn's books, errors made of them
        answers        calls that wait;  turn_ids: turns that come again
        shrink, cut    cuts during a turn, and what they do to a state;  repair: histories nobody would take
        meter          how large the next request will be
    history        states without a model: append, compact, branch, rebase, info, turns, convert, estimate
    tokens         how many tokens messages are;  media, vocabulary: pictures, tiktoken;  prices: their cost
    compaction     triggers and strategies
    tools          functions that the model may call
    backends       provider wires: a pure dialect and a thin connection each
    render         how events and context look;  reading: stored entries in neutral words
    state          a conversation as a value;  in it blob: that value as bytes, the format drawn
    seal           codecs with a key
    rawjson        cuts verbatim spans out of JSON
    stores         where blobs are kept;  integrations: columns for them
    sim            the offline provider simulator;  testing: scripted backend, checks
"""

from typing import TYPE_CHECKING

from .backends.base import ProviderTool
from .chat import AsyncChat, Chat
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
from .context_management import ServerCompaction, ServerThinkingClearing, ServerToolClearing
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
    NothingToResumeError,
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
    Appended,
    CheckpointReady,
    Compacted,
    ContextWarning,
    Event,
    ModelReplied,
    ModelRequested,
    ReasoningDelta,
    StateDiscarded,
    StateSaved,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from .handles import AsyncTurn, Turn
from .history.convert import state_from_messages, state_messages
from .history.estimate import estimate_tokens
from .history.info import StateInfo, inspect_state, pending_calls
from .history.turns import History, HistoryIteration, HistoryTurn, read_history
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
from .state.codec import PLAIN, UNBOUND, BlobLimits, Codec, Plain
from .tokens import TokenCounter, TokenEstimate
from .tools import Action, Tool, ToolContext, ToolReturn, tool
from .turn.answers import Approve, Deny, PendingCall
from .vocabulary import TiktokenCounter

if TYPE_CHECKING:
    from .conversation import AsyncConversation, Conversation, ConversationInfo
    from .history.branch import fork_state, rewind_state
    from .history.rebase import rebase_state
    from .seal import Encrypted, Key, Keyring, Signed
    from .state.reseal import rewrap
    from .state.text import state_from_text, state_to_text
else:

    def __getattr__(name):
        """What seals and what branches is loaded when it is asked for; most processes never do."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .conversation import AsyncConversation, Conversation, ConversationInfo
        from .history.branch import fork_state, rewind_state
        from .history.rebase import rebase_state
        from .seal import Encrypted, Key, Keyring, Signed
        from .state.reseal import rewrap
        from .state.text import state_from_text, state_to_text

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
    "Appended",
    "Approve",
    "AskModel",
    "AskProvider",
    "AsyncChat",
    "AsyncConversation",
    "AsyncTurn",
    "Audio",
    "AuthenticationError",
    "BlobLimits",
    "BudgetExceededError",
    "ByteLimit",
    "Charge",
    "Chat",
    "ChatOptions",
    "ChatResult",
    "CheckpointError",
    "CheckpointReady",
    "ClearToolResults",
    "Codec",
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
    "NothingToResumeError",
    "PendingCall",
    "PendingLimit",
    "Plain",
    "Prices",
    "ProviderCompaction",
    "ProviderProtocolError",
    "ProviderRejectedError",
    "ProviderTool",
    "ProviderUnavailableError",
    "RateLimitError",
    "ReasoningDelta",
    "ServerCompaction",
    "ServerThinkingClearing",
    "ServerToolClearing",
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
    "StateSaved",
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
