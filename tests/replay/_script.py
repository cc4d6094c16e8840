"""A conversation in the provider's own JSON, taken apart into what a chat is told and what it is answered.

Owns: the steps of a rebuilt conversation. Must never know: where the conversation was recorded, how the
steps are carried out, or a particular wire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from goaitools_py import Message, Text

from ._wire import JSON, Result, Said, Spoken, Wire

__all__ = ["Answer", "Ask", "Calls", "Endpoint", "Script", "script"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the provider answers: the very bytes. `of` names the exchange, None for a stand-in.

    `is_paused`: the provider wants it sent back unchanged, to go on with it.
    """

    body: bytes = field(repr=False)
    status: int = 200
    content_type: str = "application/json"
    of: int | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything of a request that belongs to the client rather than to the conversation.

    `preamble` is what the system says outside of the history.
    """

    url: str = ""
    is_streamed: bool = False
    body: JSON = field(default_factory=dict, repr=False)
    preamble: tuple[Message, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One model call.

    Attributes:
        results: Results of the calls that the last answer made: call id and content, in order.
        messages: What the client says beside them.
    """

    results: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    messages: tuple[Message, ...] = field(default=(), repr=False)
    answer: Answer
    endpoint: Endpoint = Endpoint()

    def goes_on(self, before: Ask) -> bool:
        """True if a turn that made the call `before` comes to this one by itself."""
        ours, theirs = self.endpoint, before.endpoint
        is_same = (ours.url, ours.is_streamed, ours.preamble) == (
            theirs.url,
            theirs.is_streamed,
            theirs.preamble,
        ) and all(ours.body.get(key) == theirs.body.get(key) for key in ("model", "tools"))
        return (bool(self.results) or before.answer.is_paused) and not self.messages and is_same


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """Asks that one call of a chat makes. `resumes`: it finishes a turn whose tools have run."""

    asks: tuple[Ask, ...]

    @property
    def resumes(self) -> bool:
        return bool(self.asks[0].results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A conversation taken apart.

    Attributes:
        preamble: What the system says before everything else in the history.
        calls: The calls of a chat that make the conversation.
        results, messages: At the end, what nothing answers.
        names: What tools are called in answers that were made up.
    """

    wire: Wire = field(repr=False)
    preamble: tuple[Message, ...] = field(repr=False)
    calls: tuple[Calls, ...]
    results: tuple[tuple[str, Any], ...] = field(repr=False)
    messages: tuple[Message, ...] = field(repr=False)
    names: tuple[str, ...] = ()


def script(
    wire: Wire,
    history: Sequence[JSON],
    *,
    answers: Mapping[tuple[int, ...], Answer] = MappingProxyType({}),
    last: Answer | None = None,
    endpoints: Mapping[int | None, Endpoint] = MappingProxyType({}),
) -> Script:
    """Take a conversation apart.

    What the assistant says at the positions in `answers` comes from there. What it says elsewhere is made
    up as a provider would have sent it, if there is something that it answers; else the client put the
    words into its mouth.

    Args:
        last: What the provider answers to the whole of `history`.
        endpoints: By `Answer.of`, where and how the client asked.
    """
    lead = wire.lead(history)
    given = {places[0]: answer for places, answer in answers.items()}
    covered = {place for places in answers for place in places}
    asks: list[Ask] = []
    results: list[tuple[str, Any]] = []
    said: list[Message] = []
    spoken: list[JSON] = []
    names: list[str] = []

    def ask(answer: Answer) -> None:
        nearby = asks[-1].endpoint if asks else next(iter(endpoints.values()), Endpoint())
        endpoint = endpoints.get(answer.of) or replace(nearby, is_streamed=False)
        asks.append(Ask(results=tuple(results), messages=tuple(said), answer=answer, endpoint=endpoint))
        results.clear()
        said.clear()

    def close() -> None:
        """Make an answer of what was spoken, or a message if it answers nothing."""
        if not spoken:
            return
        text = wire.text(spoken)
        if wire.calls(spoken) or (text and (results or said)):
            names.extend(wire.call_names(spoken))
            ask(Answer(body=wire.completion(spoken, len(asks) + 1)))
        elif text:
            said.append(Message(role="assistant", parts=(Text(text),)))
        spoken.clear()

    for at, element in enumerate(history[lead:], lead):
        if at in covered:
            close()
            if at in given:
                ask(given[at])
            continue
        for move in wire.moves(element):
            if isinstance(move, Spoken):
                if not wire.runs_together:
                    close()
                spoken.append(move.element)
                continue
            close()
            if isinstance(move, Result):
                results.append((move.call_id, move.content))
            else:
                said.append(move.message)
    close()
    if last is not None:
        ask(last)
    return Script(
        wire=wire,
        preamble=_messages(wire, history[:lead]),
        calls=_grouped(asks),
        results=tuple(results),
        messages=tuple(said),
        names=tuple(dict.fromkeys(names)),
    )


def _messages(wire: Wire, elements: Sequence[JSON]) -> tuple[Message, ...]:
    moves = [move for element in elements for move in wire.moves(element)]
    return tuple(move.message for move in moves if isinstance(move, Said))


def _grouped(asks: Sequence[Ask]) -> tuple[Calls, ...]:
    groups: list[list[Ask]] = []
    for at, ask in enumerate(asks):
        if at and ask.goes_on(asks[at - 1]):
            groups[-1].append(ask)
        else:
            groups.append([ask])
    return tuple(Calls(asks=tuple(group)) for group in groups)
