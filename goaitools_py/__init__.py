"""Stable. Stateful chat with language models: a conversation is one opaque value.

This module has the names that most chats need: chats, options, messages, tools, answers, errors, events, and
the usual triggers and strategies. Other names have public modules of their own.

Stable, as this module is:

- `goaitools_py.states`: functions on states that need no model: read, fork, join, import.
- `goaitools_py.stores`: places for states.
- `goaitools_py.compaction`: all triggers and strategies, and the types for your own.
- `goaitools_py.seal`: codecs with a key.
- `goaitools_py.tokens`, `goaitools_py.prices`: count tokens; prices.
- `goaitools_py.backends`: connections to providers.
- `goaitools_py.testing`: a scripted backend, and contracts for your own stores and dialects.

Provisional: `goaitools_py.serve`, `.frontends`, `.mcp`, `.telemetry`, `.output`, `.integrations`, `.sim`.
`docs/versions.md` says which changes each word allows.
"""

from typing import TYPE_CHECKING

from .base import __version__ as __version__
from .chat.async_chat import AsyncChat
from .chat.async_turn import AsyncTurn
from .chat.chat import Chat
from .chat.sync_turn import Turn
from .compaction import (
    NO_COMPACTION,
    ClearToolResults,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    Summarize,
    TokenLimit,
    TurnLimit,
    all_of,
    any_of,
    first_of,
)
from .state.codec import PLAIN, UNBOUND
from .tools import Action, Tool, ToolContext, ToolReturn, tool
from .types.answers import Approve, Deny, PendingCall
from .types.errors import (
    AbortTurn,
    AuthenticationError,
    BudgetExceededError,
    CheckpointError,
    CompactionError,
    ContextTooLongError,
    DeadlineExceededError,
    GoAIToolsError,
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
    StatePartMissingError,
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
from .types.events import (
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
    ToolPending,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from .types.messages import (
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
from .types.options import UNSET, ChatOptions, Limits, ModelSettings, Timeouts
from .types.request_parts import ProviderTool
from .types.result import ChatResult
from .types.turn_warnings import TurnWarning

if TYPE_CHECKING:
    from .chat.async_conversation import AsyncConversation
    from .chat.conversation import Conversation
else:

    def __getattr__(name):
        """Conversations are loaded when they are asked for; many processes never do."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .chat.async_conversation import AsyncConversation
        from .chat.conversation import Conversation

        globals().update(AsyncConversation=AsyncConversation, Conversation=Conversation)
        return globals()[name]

    def __dir__():
        """The public names and modules, also those that are not loaded yet."""
        return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})


_MODULES = (
    "backends",
    "compaction",
    "frontends",
    "integrations",
    "mcp",
    "output",
    "prices",
    "seal",
    "serve",
    "sim",
    "states",
    "stores",
    "telemetry",
    "testing",
    "tokens",
)
"""The public modules. Every other module may change in any release."""

__all__ = [
    "NO_COMPACTION",
    "PLAIN",
    "UNBOUND",
    "UNSET",
    "AbortTurn",
    "Action",
    "Appended",
    "Approve",
    "AsyncChat",
    "AsyncConversation",
    "AsyncTurn",
    "Audio",
    "AuthenticationError",
    "BudgetExceededError",
    "Chat",
    "ChatOptions",
    "ChatResult",
    "CheckpointError",
    "CheckpointReady",
    "ClearToolResults",
    "Compacted",
    "CompactionError",
    "Compactor",
    "ContextTooLongError",
    "ContextWarning",
    "Conversation",
    "DeadlineExceededError",
    "Deny",
    "Document",
    "DropOldest",
    "Event",
    "GoAIToolsError",
    "Image",
    "KeepRecentTurns",
    "LimitExceededError",
    "Limits",
    "Message",
    "MessageLimit",
    "ModelReplied",
    "ModelRequested",
    "ModelSettings",
    "NothingToResumeError",
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
    "StateInvalidError",
    "StatePartMissingError",
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
    "Timeouts",
    "TokenLimit",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFailedError",
    "ToolFinished",
    "ToolPending",
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
    "TurnWarning",
    "Usage",
    "all_of",
    "any_of",
    "assistant",
    "event",
    "first_of",
    "system",
    "tool",
    "user",
]
