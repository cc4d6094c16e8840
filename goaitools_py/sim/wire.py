"""The protocol of a provider API in the simulator. A new provider API is one more file with this shape.

Owns: the protocol between the server and a provider API. Must never know: a particular provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .http_values import Body, Headers, Response
from .model.prompt import Call, Prompt, Reply
from .model.token_counts import Tokens
from .openai.common_rules import Refusal

__all__ = ["REQUEST_ID", "SimExchange", "SimSummary", "Wire"]

REQUEST_ID = b"req_sim_------"
"""A body holds this where it names the request. The server replaces it by the request's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSummary:
    """A compaction inside a reply: the summary of the history, and the tokens that it took."""

    text: str = field(repr=False)
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SimExchange:
    """A prompt and its reply, ready to be written. `calls` have ids; `key` names the exchange (hex).

    `summary`: the provider's compaction of the history, if it made one.
    """

    prompt: Prompt
    reply: Reply
    calls: Sequence[Call]
    tokens: Tokens
    key: str
    summary: SimSummary | None = None


class Wire(Protocol):
    """One endpoint of one provider, as pure functions."""

    @property
    def name(self) -> str:
        """Its name for `SimServer.base_url_for`, such as "openai"."""
        ...

    @property
    def path(self) -> str:
        """The path of requests, such as "/v1/chat/completions"."""
        ...

    @property
    def count_path(self) -> str:
        """The path for a count of input tokens; "" if the provider does not count."""
        ...

    def count_body(self, body: Body) -> Body:
        """Turn a request for a count into the request that is counted."""
        ...

    def count(self, tokens: int) -> Response:
        """The answer to a request for a count."""
        ...

    @property
    def compact_path(self) -> str:
        """The path for a compaction of the history; "" if the provider cannot compact."""
        ...

    def compacts(self, body: Body) -> bool:
        """True if a request to `path` asks for a compaction instead of a reply."""
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
        """The provider's error for a body that is not a JSON object."""
        ...

    def not_found(self, method: str, path: str) -> Refusal:
        """The provider's error for an unknown method or path; sent with 404."""
        ...

    def refusals(self, body: Body) -> list[Refusal]:
        """Every rule that the request breaks; the provider answers with the first. [] for a valid request."""
        ...

    def prompt(self, body: Body) -> Prompt:
        """The prompt that the model gets from a valid request."""
        ...

    def answer(self, exchange: SimExchange) -> Response:
        """The reply as JSON, or as events, one for each piece."""
        ...

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """A 200 response with an empty list of choices, or null in its place."""
        ...

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """An error response."""
        ...

    def error_event(self, refusal: Refusal) -> bytes:
        """An error as an event in the middle of a stream."""
        ...
