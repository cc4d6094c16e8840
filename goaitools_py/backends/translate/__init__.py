"""Translates replies: the JSON of one provider API into neutral pieces, and pieces into the JSON of another.

Owns: which provider API is read and written where. Must never know: a state, a turn, or why it is asked.

Messages of a user, a tool or the system do not need this: the dialects read and write them. A model's reply
has parts that only its own provider API knows, such as signed thinking and the work of hosted tools. So each
provider API has a reader, which names the parts that are lost, and a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ...types.messages import ToolCall
from ..anthropic import translate as anthropic
from ..openai_chat import translate as openai_chat
from ..openai_responses import translate as openai_responses
from ..wire.pieces import Piece

__all__ = ["most_name", "pieces_of", "written"]


class _Api(NamedTuple):
    pieces: Callable[[Sequence[bytes]], Iterator[Piece]]
    written: Callable[[str, Sequence[ToolCall]], tuple[list[bytes], int]]
    most_name: int


_APIS: Final[Mapping[str, _Api]] = {
    "openai": _Api(openai_chat.pieces, openai_chat.written, openai_chat.MOST_NAME),
    "openai-responses": _Api(openai_responses.pieces, openai_responses.written, openai_responses.MOST_NAME),
    "anthropic": _Api(anthropic.pieces, anthropic.written, anthropic.MOST_NAME),
}


def pieces_of(wire: str, entries: Sequence[bytes]) -> list[Piece]:
    """The pieces of one reply, in order.

    Raises:
        RawJSONError: An entry is not a JSON object.
    """
    return list(_APIS[wire].pieces(entries))


def written(wire: str, text: str, calls: Sequence[ToolCall]) -> tuple[list[bytes], int]:
    """A reply as entries, and how many calls had arguments that this provider API does not take. No entries
    if nothing is left that it takes."""
    return _APIS[wire].written(text, calls)


def most_name(wire: str) -> int:
    """The longest name of a tool."""
    return _APIS[wire].most_name
