"""The prompt for the simulated model, its reply, and the opaque part of a compaction, as values.

Owns: the values between a provider API and the model, which no provider API shapes. Must never know: which
provider is imitated, or who writes a summary.

A real provider encrypts the opaque part of a compaction. Here it holds the compacted messages, so that
signatures over them can still be checked after it. A model reads only the summary.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..http_values import EVENT_STREAM, JSON, Response

__all__ = ["REQUEST", "Call", "Model", "Offer", "Prompt", "Reply", "Said", "opened", "sealed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call. `id`: None lets the simulator make one; "" is a call without an id."""

    name: str
    arguments: str = field(repr=False)
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One message of the history. `media` counts its parts that are not text."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = field(default="", repr=False)
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    media: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A function tool that the model may call; `parameters` is its JSON Schema."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    description: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Everything the model sees.

    Attributes:
        content: The bytes that a provider would cache: tools and messages as they were sent. The same for a
            unary and a streamed request.
        thinks: True if the request asks for thinking, on a provider API that has it.
        must_call: True if the request requires a tool call; `offers` holds only tools that may be called.
        max_tokens: The reply is cut after this number of tokens; None for no limit.
        cacheable: The number of bytes of `content` that may be cached; None for all.
        shortened: Makes, from a summary, the prompt that is answered after the provider has compacted. None:
            the provider does not compact before it answers.
        compact_above: The provider compacts after a text reply that brings the tokens above this number.
        schema: The JSON Schema of the answer, if the request asks for JSON.
        kept: Data that the provider API needs to write the answer. The model does not read it.
    """

    model: str
    history: tuple[Said, ...]
    content: bytes = field(repr=False)
    offers: tuple[Offer, ...] = ()
    must_call: bool = False
    parallel: bool = True
    max_tokens: int | None = None
    stream: bool = False
    stream_usage: bool = False
    thinks: bool = False
    cacheable: int | None = None
    shortened: Callable[[str], Prompt] | None = field(default=None, repr=False)
    compact_above: int | None = None
    schema: Mapping[str, Any] | None = field(default=None, repr=False)
    kept: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply of the model. Queue a scripted one with `SimServer.push`.

    Attributes:
        thinking: Thinking before the answer, on provider APIs that have it.
        redacted: True: the thinking is sent in unreadable form.
        hosted: Calls of tools that the provider itself runs, made but not yet answered.
        toolset: The provider's client toolset that has `tool_calls` as its members (Anthropic's API).
        container: The id of the machine on which the provider's tools ran. Anthropic's API recognises ids
            that begin with "container_sim".
        finish: The provider's finish reason. None: the reason that fits the reply; "" is sent unchanged.
        usage: False leaves the token counts out.
    """

    content: str = field(default="", repr=False)
    tool_calls: tuple[Call, ...] = ()
    refused: str = field(default="", repr=False)
    finish: str | None = None
    usage: bool = True
    thinking: str = field(default="", repr=False)
    redacted: bool = False
    hosted: tuple[Call, ...] = ()
    container: str = ""
    toolset: str = ""

    @classmethod
    def text(
        cls,
        content: str,
        *,
        finish: str | None = None,
        usage: bool = True,
        thinking: str = "",
        redacted: bool = False,
        container: str = "",
    ) -> Reply:
        """Say something. ``finish="length"`` or ``"content_filter"`` makes a reply that was cut off."""
        return cls(
            content=content,
            finish=finish,
            usage=usage,
            thinking=thinking,
            redacted=redacted,
            container=container,
        )

    @classmethod
    def calls(
        cls,
        *calls: tuple[str, str],
        ids: tuple[str | None, ...] = (),
        text: str = "",
        finish: str | None = None,
        usage: bool = True,
        thinking: str = "",
        redacted: bool = False,
        toolset: str = "",
    ) -> Reply:
        """Call tools: ``Reply.calls(("get_score", '{"team":"red"}'))``.

        Args:
            calls: Name and arguments of each; the arguments are text and may be broken JSON.
            ids: Call ids in order: equal ones, "" to leave an id out, None for one of the simulator's.
            text: The text beside the calls.
            finish: "stop" or "" as some servers say, "length" for calls that were cut off.
            usage: False leaves the token counts out.
            toolset: The names are members of this client toolset, such as "computer" (Anthropic's API).
        """
        padded = (*ids, *(None,) * (len(calls) - len(ids)))
        made = tuple(
            Call(name=name, arguments=arguments, id=id)
            for (name, arguments), id in zip(calls, padded, strict=True)
        )
        return cls(
            content=text,
            tool_calls=made,
            finish=finish,
            usage=usage,
            thinking=thinking,
            redacted=redacted,
            toolset=toolset,
        )

    @classmethod
    def pause(
        cls,
        text: str = "",
        *,
        tool: str = "web_search",
        arguments: str = '{"query":"the score"}',
        thinking: str = "",
        redacted: bool = False,
        container: str = "",
    ) -> Reply:
        """Pause during a hosted tool. The client sends the reply again unchanged (``pause_turn``)."""
        return cls(
            content=text,
            hosted=(Call(name=tool, arguments=arguments),),
            finish="pause_turn",
            thinking=thinking,
            redacted=redacted,
            container=container,
        )

    @classmethod
    def refusal(cls, refused: str) -> Reply:
        """Refuse, in the provider's own member for refusals."""
        return cls(refused=refused)

    @classmethod
    def raw(
        cls,
        body: bytes,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        streamed: bool = False,
    ) -> Response:
        """Answer with exactly these bytes, whatever the request is.

        Args:
            headers: ``content-type: application/json`` if None.
            streamed: Send the body as one HTTP chunk instead of with its length.
        """
        given = JSON if headers is None else tuple(headers.items())
        return Response(status=status, headers=given, pieces=(body,), streamed=streamed)

    @classmethod
    def sse(cls, body: bytes) -> Response:
        """Answer with exactly this event stream, and end the response cleanly."""
        return Response(headers=EVENT_STREAM, pieces=(body,), streamed=True)


Model: TypeAlias = Callable[[Prompt], Reply]


REQUEST = "Summarise the conversation above."
"""The newest message, which asks the simulated model for a summary."""

_MARK = "simulated:"
_MAX_BYTES = 4 * 2**20


def sealed(summary: str, history: Sequence[Mapping[str, Any]]) -> str:
    """A summary, and the messages or items that it replaces."""
    packed = json.dumps({"summary": summary, "history": list(history)}, separators=(",", ":"))
    return _MARK + base64.urlsafe_b64encode(zlib.compress(packed.encode("utf-8", "replace"))).decode("ascii")


def opened(content: Any) -> tuple[str, list[dict[str, Any]]] | None:
    """Read the text of `sealed`; None for any other text."""
    if not isinstance(content, str) or not content.startswith(_MARK):
        return None
    try:
        inflate = zlib.decompressobj()
        packed = inflate.decompress(base64.b64decode(content[len(_MARK) :], altchars=b"-_"), _MAX_BYTES)
        found = json.loads(packed)
        return str(found["summary"]), list(found["history"])
    except (ValueError, KeyError, TypeError, zlib.error):
        return None
