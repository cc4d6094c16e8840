"""What a provider wire is to the simulator; a new wire is one more file that has this shape.

Owns: the protocol between the server and a wire. Must never know: a particular provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .body import Body
from .prompt import Call, Prompt, Reply
from .refusals import Refusal
from .response import Headers, Response
from .tokens import Tokens

__all__ = ["Exchange", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A prompt and its reply, ready to be written: `calls` have ids, `key` names the exchange (hex)."""

    prompt: Prompt
    reply: Reply
    calls: Sequence[Call]
    tokens: Tokens
    key: str


class Wire(Protocol):
    """One endpoint of one provider, as pure functions."""

    @property
    def path(self) -> str:
        """Where requests are posted, such as "/v1/chat/completions"."""
        ...

    def refusals(self, values: Mapping[str, Any]) -> list[Refusal]:
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
