"""What a provider wire is to the simulator; a new wire is one more file that has this shape.

Owns: the protocol between the server and a wire. Must never know: a particular provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .body import Body
from .prompt import Call, Prompt, Reply
from .refusals import Refusal
from .response import Headers, Response
from .tokens import Tokens

__all__ = ["REQUEST_ID", "Exchange", "Summary", "Wire"]

REQUEST_ID = b"req_sim_------"
"""A wire writes this where its body names the request; the server puts the request's id in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a compaction inside a reply made of the history, and what it took."""

    text: str = field(repr=False)
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt and its reply, ready to be written: `calls` have ids, `key` names the exchange (hex).

    `summary`: what the provider compacted the history to by itself, if it did.
    """

    prompt: Prompt
    reply: Reply
    calls: Sequence[Call]
    tokens: Tokens
    key: str
    summary: Summary | None = None


class Wire(Protocol):
    """One endpoint of one provider, as pure functions."""

    @property
    def name(self) -> str:
        """What `SimServer.base_url_for` calls it, such as "openai"."""
        ...

    @property
    def path(self) -> str:
        """Where requests are posted, such as "/v1/chat/completions"."""
        ...

    @property
    def count_path(self) -> str:
        """Where a count of input tokens is asked for; "" if the provider does not count."""
        ...

    def count_body(self, body: Body) -> Body:
        """A request for a count as the request that is to be counted."""
        ...

    def count(self, tokens: int) -> Response:
        """The answer to a request for a count."""
        ...

    @property
    def compact_path(self) -> str:
        """Where a compaction of the history is asked for; "" if the provider has no place for that."""
        ...

    def compacts(self, body: Body) -> bool:
        """Whether a request to `path` asks for a compaction instead of a reply."""
        ...

    def compaction(self, body: Body, summary: str, tokens: Tokens) -> Response:
        """The answer to a request for a compaction."""
        ...

    @property
    def root(self) -> str:
        """The part of `path` that belongs to the base URL of the provider's SDK: "/v1" or ""."""
        ...

    @property
    def request_id_header(self) -> str:
        """The response header with the request's id, such as "x-request-id"."""
        ...

    @property
    def not_json(self) -> Refusal:
        """What the provider says to a body that is not a JSON object."""
        ...

    def not_found(self, method: str, path: str) -> Refusal:
        """What the provider says to a method or path that it does not have; sent with 404."""
        ...

    def refusals(self, body: Body) -> list[Refusal]:
        """Every rule that the request breaks; the first is what the provider answers. [] if it is fine."""
        ...

    def prompt(self, body: Body) -> Prompt:
        """What the model sees of a request that breaks no rule."""
        ...

    def answer(self, exchange: Exchange) -> Response:
        """The reply as JSON, or as events, one per piece."""
        ...

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A 200 whose list of answers is empty, or null."""
        ...

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """An error answer."""
        ...

    def error_event(self, refusal: Refusal) -> bytes:
        """An error as an event in mid-stream."""
        ...
