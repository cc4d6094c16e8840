"""Stable. Stateful chat with language models whose whole state is one opaque value.

What stands here is what a chat needs: chats, options, messages, tools, answers, errors, events, triggers and
strategies. Other names have modules of their own:

- `goaitools_py.states`: functions on states that need no model: reading, forking, joining, importing.
- `goaitools_py.compaction`: what a trigger or a strategy of your own is given.
- `goaitools_py.prices`, `goaitools_py.tokens`: prices, and counting tokens.
- `goaitools_py.seal`: codecs, their keys and limits.
- `goaitools_py.stores`, `goaitools_py.integrations`: where states are kept.
- `goaitools_py.backends`: connections to providers.
- `goaitools_py.sim`, `goaitools_py.testing`: the offline simulator, and a scripted backend for tests.
"""

from typing import TYPE_CHECKING

from .base.version import __version__ as __version__
from .chat.async_chat import AsyncChat
from .chat.chat import Chat
from .chat.handles import AsyncTurn, Turn
from .compaction import (
    NO_COMPACTION,
    ByteLimit,
    ClearToolResults,
    ColdCache,
    CollapseToolExchanges,
    Compactor,
    ContextWindow,
    DropMedia,
    DropOldest,
    KeepRecentTurns,
    MessageLimit,
    MiddleOut,
    PendingLimit,
    ProviderCompaction,
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
from .types.options import UNSET, ChatOptions, Limits, ModelSettings
from .types.result import ChatResult
from .types.tools import ProviderTool
from .types.turn_warnings import TurnWarning

if TYPE_CHECKING:
    from .chat.async_conversation import AsyncConversation
    from .chat.conversation import Conversation
    from .seal import Encrypted, Key, Keyring, Signed
else:

    def __getattr__(name):
        """Conversations and codecs with a key are loaded when they are asked for; many processes never do."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .chat.async_conversation import AsyncConversation
        from .chat.conversation import Conversation
        from .seal import Encrypted, Key, Keyring, Signed

        globals().update(
            AsyncConversation=AsyncConversation,
            Conversation=Conversation,
            Encrypted=Encrypted,
            Key=Key,
            Keyring=Keyring,
            Signed=Signed,
        )
        return globals()[name]

    def __dir__():
        """The public names, also those that are not loaded yet."""
        return sorted({*globals(), *__all__})


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
    "ByteLimit",
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
    "Compactor",
    "ContextTooLongError",
    "ContextWarning",
    "ContextWindow",
    "Conversation",
    "DeadlineExceededError",
    "Deny",
    "Document",
    "DropMedia",
    "DropOldest",
    "Encrypted",
    "Event",
    "GoAIToolsError",
    "Image",
    "KeepRecentTurns",
    "Key",
    "Keyring",
    "LimitExceededError",
    "Limits",
    "Message",
    "MessageLimit",
    "MiddleOut",
    "ModelReplied",
    "ModelRequested",
    "ModelSettings",
    "NothingToResumeError",
    "PendingCall",
    "PendingLimit",
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
