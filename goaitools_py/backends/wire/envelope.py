"""Reads the outermost object of a provider's JSON, even if a member has an unexpected type or nests too deep.

Owns: the lenient reader for the envelopes of all provider APIs, and the cut of replies that nest deeper than
the JSON reader allows. Must never know: any envelope, or the meaning of a reply.

A dialect names the members that it wants in a `msgspec.Struct`. msgspec reads almost every reply in one
pass. It refuses a reply in which a member has another type than the struct says, or in which a string holds
half an emoji. That reply is paid for, so it is read again, member by member: a member that cannot be read
takes its default, and the others keep their values.

In a reply that nests too deep, a container below the deepest level becomes null. The arguments of a tool
call are not changed silently. An object of arguments becomes a JSON string of its own text, which every
dialect reads as the arguments that the model wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin

import msgspec

from ...base import rawjson
from ...base.values import replace
from ..base import ProtocolFault, Reply

__all__ = ["REFUSALS", "Envelope", "error_in", "read_again", "shallow"]

REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for JSON that a more tolerant reader may still understand."""

_MAX_DIGITS: Final = 15
"""The longest whole number that every JSON reader holds exactly."""

_T = TypeVar("_T", bound=msgspec.Struct)


class Envelope(Generic[_T]):
    """The reader of one kind of object.

    The members' types may be ``str``, ``int``, ``msgspec.Raw``, another struct, a list of these, each of them
    or None, and ``Any`` for the value of an error. Every member needs a default.
    """

    def __init__(self, kind: type[_T]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind)

    def read(self, data: bytes | msgspec.Raw) -> _T:
        """Read an object.

        Raises:
            RawJSONError: It is not a JSON object.
        """
        try:
            return self._decoder.decode(data)
        except REFUSALS:
            return _by_member(self._kind, bytes(data))


def _by_member(kind: type[_T], data: bytes) -> _T:
    members = rawjson.members(data)
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in members:
            value = _value(field.type, members[field.encode_name])
            if value is not None:
                values[field.name] = value
    return kind(**values)


def _value(type: Any, raw: bytes) -> Any:
    """The member's value; None for the default."""
    if type is msgspec.Raw:
        return msgspec.Raw(raw)
    if type is Any:
        return error_in(raw)
    if get_origin(type) in (Union, UnionType):
        (type,) = (one for one in get_args(type) if one is not NoneType)
        return None if rawjson.is_null(raw) else _value(type, raw)
    if type is str:
        return rawjson.string(raw)
    if type is int:
        return int(raw) if raw.isdigit() and len(raw) <= _MAX_DIGITS else None
    if get_origin(type) is list:
        (item,) = get_args(type)
        return [_item(item, one) for one in rawjson.items(raw)] if raw.startswith(b"[") else None
    return _by_member(type, raw) if raw.startswith(b"{") else None


def _item(type: Any, raw: bytes) -> Any:
    """An element keeps its place in the list: one that cannot be read is an empty object."""
    value = _value(type, raw)
    return type() if value is None else value


def error_in(raw: bytes) -> object:
    """The error in a reply: None without one, and a word if the error cannot be read.

    An error that cannot be read is still an error.
    """
    if rawjson.is_null(raw):
        return None
    try:
        return rawjson.loads(raw)
    except rawjson.RawJSONError:
        return "unreadable"


_ARGUMENTS: Final = ("arguments", "input")
"""Members with a model's input for a tool: Chat Completions and Responses; Anthropic."""


def shallow(data: bytes) -> bytes:
    """Cut containers that nest too deep; `data` itself if nothing is cut."""
    return rawjson.pruned(data, as_text=_ARGUMENTS)


def _without_done(body: bytes) -> bytes:
    """A body without the word that ends a stream, which some proxies put behind a whole body, too."""
    if not body[-32:].rstrip().endswith(b"[DONE]"):
        return body
    left = body.rstrip()[: -len(b"[DONE]")].rstrip()
    left = left.removesuffix(b"data:").rstrip()
    return left if left.endswith(b"}") else body


def read_again(body: bytes, read: Callable[[bytes], Reply]) -> Reply:
    """Read a body, without ``[DONE]`` behind it. If it cannot be read, cut the deepest containers and read it
    once more.

    Raises:
        ProtocolFault: The body is not a reply in either form.
    """
    body = _without_done(body)
    try:
        return read(body)
    except ProtocolFault:
        cut = shallow(body)
        if cut is body:
            raise
    return replace(read(cut), cut=True)
