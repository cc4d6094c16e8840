"""Stable. Backends: a pure dialect for each provider API, and a thin layer over the provider's own SDK.

Owns: the public names of the backends, and the names that a dialect of your own needs. Must never know: the
engine, a state.

Begin with `base.py`: it has the two protocols, `Dialect` and `Backend`. Each provider API has a folder, which
begins with its `dialect.py`. `wire/` has code for several provider APIs, and `http/` sends the requests.

Importing this package imports no SDK; making a backend does. The names that only a dialect of your own needs
are loaded when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .anthropic.backends import AnthropicBackend, AsyncAnthropicBackend
from .base import (
    AsyncBackend,
    AsyncExchange,
    Backend,
    BackendError,
    Delta,
    Dialect,
    Exchange,
    Fault,
    ModelRequest,
    ProtocolFault,
    Reply,
    RequestParts,
    ResponseHead,
    StreamDecoder,
)
from .gate import gated
from .http.client import async_http_client
from .openai.backends import (
    AsyncOpenAIChatBackend,
    AsyncOpenAIResponsesBackend,
    OpenAIChatBackend,
    OpenAIResponsesBackend,
)

if TYPE_CHECKING:
    from ..base import rawjson
    from ..types.render import BlockText, event_block, read_event, user_text, valid_text
    from ..types.request_parts import ProviderTool, ToolSpec
    from ..types.tokens import Frames
    from .protocols import (
        Change,
        ChecksHistory,
        CompactsHistory,
        CountsTokens,
        EditsContext,
        EntryView,
        EstimatesTokens,
        FitsSettings,
        Fitted,
        HistoryFrame,
        HostRules,
        MarksHistory,
        RunsProviderTools,
        SplitsResults,
        TranslatesReplies,
        ViewsHistory,
        WritesOutput,
    )
    from .wire.reply_pieces import Called, LossKind, Lost, Piece, Said

__all__ = [
    "AnthropicBackend",
    "AsyncAnthropicBackend",
    "AsyncBackend",
    "AsyncExchange",
    "AsyncOpenAIChatBackend",
    "AsyncOpenAIResponsesBackend",
    "Backend",
    "BackendError",
    "BlockText",
    "Called",
    "Change",
    "ChecksHistory",
    "CompactsHistory",
    "CountsTokens",
    "Delta",
    "Dialect",
    "EditsContext",
    "EntryView",
    "EstimatesTokens",
    "Exchange",
    "Fault",
    "FitsSettings",
    "Fitted",
    "Frames",
    "HistoryFrame",
    "HostRules",
    "LossKind",
    "Lost",
    "MarksHistory",
    "ModelRequest",
    "OpenAIChatBackend",
    "OpenAIResponsesBackend",
    "Piece",
    "ProtocolFault",
    "ProviderTool",
    "Reply",
    "RequestParts",
    "ResponseHead",
    "RunsProviderTools",
    "Said",
    "SplitsResults",
    "StreamDecoder",
    "ToolSpec",
    "TranslatesReplies",
    "ViewsHistory",
    "WritesOutput",
    "async_http_client",
    "event_block",
    "gated",
    "rawjson",
    "read_event",
    "user_text",
    "valid_text",
]


def __getattr__(name: str) -> Any:
    if name == "rawjson":
        from ..base import rawjson

        return rawjson
    if name in __all__:
        from ..types import render, request_parts
        from . import protocols
        from .wire import reply_pieces

        for module in (protocols, reply_pieces, render, request_parts):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
