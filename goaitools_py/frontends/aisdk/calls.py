"""Tool calls and results in the values of the AI SDK, alike in a stream and in a history.

Owns: these values. Must never know: whether they are streamed or stored.
"""

from __future__ import annotations

from typing import Any

import orjson

from ...base import rawjson
from ...types.answers import INSIDE
from ...types.messages import ToolCall
from ..bodies import changes

__all__ = ["BAD_INPUT", "input_of", "is_inside", "output_of"]

BAD_INPUT = "The arguments are not valid JSON."


def input_of(call: ToolCall) -> tuple[Any, bool]:
    """Give the arguments of a call as a JSON value, and whether a tool can take them.

    The free text of a custom tool is good as it is; a function's arguments that are not JSON are not good. A
    value that nests deeper than an answer can is given as text. So is a value that a page would read wrong.
    """
    if call.kind == "custom":
        return call.arguments, True
    try:
        return _writable(call.arguments or "{}"), True
    except ValueError:
        return call.arguments, False


def is_inside(call: ToolCall) -> bool:
    """True for a call that waits inside of another call: the outer call runs a chat as a tool."""
    return INSIDE in call.id


def output_of(text: str) -> Any:
    """The text of a result as a client gets it: an object or a list if it is one in JSON, else the text."""
    if text[:1] in ("{", "["):
        try:
            return _writable(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _writable(text: str) -> Any:
    """Read JSON. Give the text itself if an answer cannot hold the value, or a page would read other values.

    A model, or a tool that reads text of strangers, may nest JSON deeper than the writer allows. JavaScript
    reads another number for 12345678901234567891, and only one of two equal names.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        rawjson.view(text.encode())  # it may have a number that no float can hold
        return text
    try:
        orjson.dumps([[[[[[[[value]]]]]]]])  # an answer adds fewer levels
    except TypeError:
        return text
    return text if changes(text, by_value=True) else value
