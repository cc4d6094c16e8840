"""A host of a provider API: its rules beside the company's own, and the provider API as this host serves it.

Owns: what a rule of a host is, and how it comes before the rules of the company that made the provider API.
Must never know: a particular host, or how this package fits its requests to hosts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ..http_values import Body, Headers, Response, dump
from ..model.prompt import Prompt
from ..model.token_counts import Tokens
from ..openai.common_rules import Refusal
from ..wire import SimExchange, Wire
from .error_shapes import Shape
from .host_replies import Manner, dressed, unsealed

__all__ = ["Breaks", "Host", "HostRule", "HostWire", "Waived"]

Breaks: TypeAlias = Callable[[Mapping[str, Any]], str | None]
"""Reads the members of a request. None if the rule is kept; else the place that breaks it, for the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
    """A reason for which a host refuses a request.

    Attributes:
        name: The rule's name. Hosts with the same rule in other words use the same name.
        text: The host's words, in which each ``{}`` stands for the place that `breaks` has named.
        source: Where the rule was read, with its date; or "seen in recorded traffic".
        param: The parameter that the refusal names, with ``{}`` as in `text`.
    """

    name: str
    breaks: Breaks
    text: str
    source: str
    status: int = 400
    code: str | None = None
    type: str = "invalid_request_error"
    param: str | None = None

    def refusal(self, values: Mapping[str, Any]) -> Refusal | None:
        """The host's refusal of a request, if the request breaks the rule."""
        place = self.breaks(values)
        if place is None:
            return None
        param = None if self.param is None else self.param.replace("{}", place)
        return Refusal(self.text.replace("{}", place), param, self.code, self.type, self.status)


@dataclass(frozen=True, slots=True)
class Waived:
    """Refusals of the company that a host does not make.

    Attributes:
        pattern: Found in the text of each.
        source: As of a rule.
    """

    pattern: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host of one provider API.

    Attributes:
        name: Its name for `SimServer`; one host has the same name on all its provider APIs.
        shape: Writes its errors. None: as the company does.
        manner: How its replies differ from the company's.
    """

    name: str
    rules: tuple[HostRule, ...] = ()
    takes: tuple[Waived, ...] = ()
    shape: Shape | None = None
    manner: Manner = field(default_factory=Manner)

    def refusals(self, values: Mapping[str, Any], own: Iterable[Refusal]) -> list[Refusal]:
        """The refusals of this host: by its own rules, then by the company's rules that it has too."""
        found = [refusal for rule in self.rules if (refusal := rule.refusal(values)) is not None]
        return found + [
            refusal
            for refusal in own
            if not any(re.search(taken.pattern, refusal.message) for taken in self.takes)
        ]


class HostWire:
    """A provider API as one host serves it."""

    def __init__(self, wire: Wire, host: Host) -> None:
        self._wire, self._host = wire, host

    @property
    def name(self) -> str:
        """The provider API's."""
        return self._wire.name

    @property
    def path(self) -> str:
        """The provider API's."""
        return self._wire.path

    @property
    def count_path(self) -> str:
        """The provider API's."""
        return self._wire.count_path

    @property
    def compact_path(self) -> str:
        """The provider API's."""
        return self._wire.compact_path

    @property
    def root(self) -> str:
        """The provider API's."""
        return self._wire.root

    @property
    def request_id_header(self) -> str:
        """The provider API's."""
        return self._wire.request_id_header

    @property
    def not_json(self) -> Refusal:
        """The provider API's."""
        return self._wire.not_json

    def not_found(self, method: str, path: str) -> Refusal:
        """The provider API's."""
        return self._wire.not_found(method, path)

    def count_body(self, body: Body) -> Body:
        """The provider API's."""
        return self._wire.count_body(body)

    def count(self, tokens: int) -> Response:
        """The provider API's."""
        return self._wire.count(tokens)

    def compacts(self, body: Body) -> bool:
        """The provider API's."""
        return self._wire.compacts(body)

    def compaction(self, body: Body, summary: str, tokens: Tokens) -> Response:
        """The provider API's."""
        return self._wire.compaction(unsealed(body, self._host.manner), summary, tokens)

    def hollow(self, prompt: Prompt, *, null: bool) -> Response:
        """The provider API's."""
        return self._wire.hollow(prompt, null=null)

    def error_event(self, refusal: Refusal) -> bytes:
        """The provider API's."""
        return self._wire.error_event(refusal)

    def refusals(self, body: Body) -> list[Refusal]:
        """The host's refusals come first, in its own words."""
        read = unsealed(body, self._host.manner)
        return self._host.refusals(body.values, self._wire.refusals(read))

    def prompt(self, body: Body) -> Prompt:
        """The prompt of a valid request. The model of some hosts always thinks."""
        prompt = self._wire.prompt(unsealed(body, self._host.manner))
        return replace(prompt, thinks=True) if self._host.manner.always_thinks(body.values) else prompt

    def answer(self, exchange: SimExchange) -> Response:
        """The reply as this host writes it."""
        return dressed(self._wire, exchange, self._host.manner)

    def error(self, status: int, refusal: Refusal, headers: Headers = ()) -> Response:
        """An error in the host's form. Some hosts send an error with status 200."""
        made = self._wire.error(status, refusal, headers)
        if self._host.shape is None:
            return made
        status, value = self._host.shape(made.status, refusal)
        return replace(made, status=status, pieces=(dump(value),))
