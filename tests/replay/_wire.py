"""What the replay has to know about a wire: where things stand in its JSON, and how a chat would say them.

Owns: the protocol that the wires' own files fill in, and the moves that a history consists of.
Must never know: a particular wire, how a thread is driven, or what is right about a request.

The *elements* of a history are what stands in a request's array, such as messages or items. An element
that the assistant said is *spoken*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from goaitools_py import Audio, Document, Image, Message, ModelSettings, ProviderTool, Text, Tool

if TYPE_CHECKING:
    from ._recorded import Exchange

__all__ = [
    "JSON",
    "Move",
    "Part",
    "Result",
    "Said",
    "Spoken",
    "Wire",
    "comparable",
    "joined",
    "placeholder",
    "sse_events",
]

JSON = Mapping[str, Any]
Part: TypeAlias = Text | Image | Document | Audio


@dataclass(frozen=True, slots=True)
class Said:
    """The client says something."""

    message: Message = field(repr=False)


@dataclass(frozen=True, slots=True)
class Result:
    """The client hands in what a call came to: anything that a tool may return."""

    call_id: str
    content: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Spoken:
    """The assistant says an element, or a part of what it says at once."""

    element: JSON = field(repr=False)


Move: TypeAlias = Said | Result | Spoken


class Wire(Protocol):
    """One wire, as pure functions over its JSON.

    Attributes:
        name: As the package calls it.
        recording: The file of recorded traffic.
        path: With what the URL of a model call ends, but for a query.
        key: Where in a request the history stands.
        first_party: Ends of hosts that hold requests to the published type.
        retired: Keys of a request that the published type has no more; an old version can be asked for.
        runs_together: Spoken elements that stand together are one answer.
    """

    name: str
    recording: str
    path: str
    key: str
    first_party: tuple[str, ...]
    retired: frozenset[str]
    runs_together: bool

    # requests

    def why_not(self, exchange: Exchange) -> str:
        """Why a stateless client could not have made this call; empty if it could."""
        ...

    def schema(self, exchange: Exchange | None) -> str:
        """The file with the published type of such a request; of any plain one for None."""
        ...

    def history(self, body: JSON) -> list[JSON]:
        """The elements that a request says, the shortest notation written out."""
        ...

    def lead(self, history: Sequence[JSON]) -> int:
        """How many elements a chat would take for preamble."""
        ...

    def preamble(self, body: JSON) -> tuple[Message, ...]:
        """What the system says outside of the history."""
        ...

    def moves(self, element: JSON) -> Iterator[Move]:
        """What an element says, neutrally."""
        ...

    def client_words(self, history: Sequence[JSON]) -> list[Any]:
        """What is said by anyone but the assistant, piece by piece, without names and ids.

        Parts that the package has no word for are placeholders."""
        ...

    def tools(self, body: JSON, run: Callable[..., Any]) -> Iterator[Tool[..., Any] | ProviderTool]:
        """The tools that a request offers, as tools that all run the same function."""
        ...

    def settings(self, body: JSON) -> ModelSettings:
        """The settings of a request; what has no name in the package goes into the body as it is."""
        ...

    # answers

    def answer(self, exchange: Exchange) -> list[JSON] | None:
        """The provider's answer as elements of a history; None if there is none."""
        ...

    def is_whole(self, exchange: Exchange) -> bool:
        """Whether the answer came to its end."""
        ...

    def is_paused(self, exchange: Exchange) -> bool:
        """Whether the provider wants its answer sent back to go on with it."""
        ...

    def places(self, history: Sequence[JSON], exchange: Exchange) -> tuple[int, ...]:
        """Where in a later history the answer of an exchange stands; () if it does not."""
        ...

    def is_spoken(self, element: JSON) -> bool:
        """Whether the assistant said an element."""
        ...

    def completion(self, spoken: Sequence[JSON], number: int = 0) -> bytes:
        """A whole unary body that says these elements, the so-many-th of a conversation."""
        ...

    def calls(self, spoken: Sequence[JSON]) -> list[str]:
        """The ids of the calls in spoken elements that wait for the client."""
        ...

    def call_names(self, spoken: Sequence[JSON]) -> list[str]:
        """The names of the tools that `calls` are for, in the same order."""
        ...

    def text(self, spoken: Sequence[JSON]) -> str:
        """The visible text of spoken elements."""
        ...

    def results(self, elements: Sequence[JSON]) -> dict[str, str]:
        """Call ids and texts of the results in elements."""
        ...

    def with_ids(self, spoken: Sequence[bytes], ids: Mapping[str, str]) -> list[bytes]:
        """Spoken elements with the ids of some calls replaced, everything else byte for byte."""
        ...

    # the rules

    def against_answer(self, ours: Sequence[bytes], exchange: Exchange) -> list[str]:
        """Say where replayed elements differ from the provider's own; empty if they are verbatim."""
        ...

    def same_value(self, exchange: Exchange) -> Mapping[str, str]:
        """Strings of the answer that the provider sent in more than one form: each form's one name."""
        ...

    # conversations of the chat wire, in this wire's words

    def told(self, messages: Sequence[JSON]) -> list[JSON]:
        """A conversation in the form of OpenAI's chat as a history of this wire, as the package writes it."""
        ...

    def told_tools(self, tools: Sequence[JSON]) -> list[JSON]:
        """Function tools of OpenAI's chat as this wire has them."""
        ...

    # connections

    def backend(self, *, is_async: bool) -> Callable[..., Any]:
        """The class of backends of one colour."""
        ...


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts of a message; one without any is an empty text."""
    return tuple(parts) or (Text(""),)


def placeholder(part: JSON) -> str:
    """The words that stand for a part which the package has no word for."""
    shown = {key: value for key, value in part.items() if key != "cache_control"}
    return f"[a part that this package has no word for: {json.dumps(shown)[:200]}]"


_TEXTS = ("text", "input_text", "output_text")


def comparable(value: Any) -> Any:
    """The value without what says nothing: null, empty, cache marks; a lone text part is its string."""
    if isinstance(value, Mapping):
        kept = {key: comparable(item) for key, item in value.items() if key != "cache_control"}
        kept = {key: item for key, item in kept.items() if item not in (None, "", [], {})}
        if "role" in kept and kept.get("type") == "message":
            del kept["type"]
        return kept["text"] if set(kept) == {"type", "text"} and kept["type"] in _TEXTS else kept
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return items[0] if len(items) == 1 and isinstance(items[0], str) else items
    return value


def sse_events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of an event stream, in order."""
    for line in text.splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data.startswith("{"):
            yield json.loads(data)
