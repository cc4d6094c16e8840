"""The bounds of stored numbers and names, rows as compact JSON, and the object at the end of a row.

Owns: the bounds, as types for the reader and as functions for the writer; how a value becomes JSON, lone
surrogates included; the check of depth before a decoder runs; and the names that this release knows in the
JSON object that may stand at the end of a row: of an iteration, of a cut, of a waiting message. Must never
know: how a row is stored, or how an operation uses these values.

Later releases add names to these objects. This release keeps an object byte for byte, for as long as it keeps
the row. Reading never fails. A known name with an odd value counts as absent. Unknown names are skipped, and
their values are not read: they may be numbers beyond all types, as ``1e400``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from ..base import rawjson
from ..base.rawjson import RawJSONError
from ..types.errors import StateError
from ..types.render import valid_bytes

__all__ = [
    "MAX_COUNT",
    "MAX_LABEL",
    "MAX_NAME",
    "NO_MORE",
    "REFUSALS",
    "Amount",
    "Count",
    "CutEnd",
    "InboxEnd",
    "IterationEnd",
    "Label",
    "Name",
    "are_pins",
    "are_speakers",
    "as_json",
    "bounded",
    "bounded_row",
    "cut_end",
    "decoded",
    "decoder_of",
    "inbox_end",
    "inbox_facts",
    "iteration_end",
    "iteration_facts",
    "known_end",
    "with_marks",
    "with_seconds",
    "with_taken",
]

MAX_COUNT: Final = 2**53
"""The largest stored number. Every JSON reader reads whole numbers up to this one exactly."""
MAX_LABEL: Final = 64
MAX_NAME: Final = 256
# msgspec enforces these bounds when it reads a state. The writer cuts each value to them.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=MAX_COUNT)]
Label: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


def bounded(count: int) -> int:
    """Bring a count within 0 and `MAX_COUNT`. A provider, or a clock that was set back, gives any number."""
    return count if 0 <= count <= MAX_COUNT else min(max(count, 0), MAX_COUNT)


def bounded_row(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Apply `bounded` to each of one or more counts. The same tuple if all are within the bounds."""
    if min(counts) >= 0 and max(counts) <= MAX_COUNT:
        return counts
    return tuple(map(bounded, counts))


_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Make the strict decoder of a type, once. It is for rows that few states have."""
    return msgspec.json.Decoder(kind)


def as_json(value: Any) -> bytes:
    """Write compact JSON. Lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _without_surrogates(value)


def _without_surrogates(value: Any) -> bytes:
    """As `as_json`, for a value with lone surrogates. Marks stand for raw members until the last step."""
    # Text of a conversation could hold a fixed mark, and raw members would then be put into its strings.
    mark = os.urandom(16).hex()
    aside: list[bytes] = []

    def put_aside(raw: object) -> str:
        if not isinstance(raw, msgspec.Raw):
            raise TypeError(f"a state cannot hold {type(raw).__name__}")
        aside.append(bytes(raw))
        return f"{mark}-{len(aside) - 1}-"

    text = rawjson.dumps(msgspec.to_builtins(value, enc_hook=put_aside))
    for number, raw in enumerate(aside):
        text = text.replace(f'"{mark}-{number}-"'.encode(), raw)
    return text


REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RawJSONError)


def decoded(decoder: msgspec.json.Decoder[_T], data: bytes, refused: Callable[[bytes], StateError]) -> _T:
    """Decode with strict types. The error is raised outside the handler: the inner error holds the data."""
    with suppress(*REFUSALS):
        # First check the depth, at most `MAX_DEPTH`: C reads deeper values than Python can write again.
        (rawjson.items if data[:1] == b"[" else rawjson.members)(data)
        try:
            return decoder.decode(data)
        except msgspec.DecodeError:
            if (plain := valid_bytes(data)) is data:
                raise
            return decoder.decode(plain)  # another writer may escape a lone surrogate, which C refuses
    raise refused(data)


NO_MORE: Final = msgspec.Raw(b"")
"""No object at the end of a row. A row of the meta data may end with one JSON object, to which later releases
add names. This release keeps that object byte for byte, for as long as it keeps the row."""


_Speaker: TypeAlias = tuple[Count, Name]
_Bit: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1)]
_Pin: TypeAlias = tuple[Count, _Bit]


class IterationEnd(msgspec.Struct, frozen=True):
    """The object of an iteration.

    `m`: the place of its model among `Meta.models`. `who`: its speakers, each as the place among the messages
    of the user, counted from 0, and the name. `q`: the provider's id of the request. `s`: how long each call
    of its reply ran, in milliseconds, without calls that the provider ran itself; absent if all are 0.
    `pin`: the messages that are pinned or unpinned against the rule of their role, each as the place among
    the messages of the application and the user (letters s, u and e), counted from 0, and 1 or 0.
    """

    m: Count = 0
    who: tuple[_Speaker, ...] = ()
    q: Name = ""
    s: tuple[Count, ...] = ()
    pin: tuple[_Pin, ...] = ()


class CutEnd(msgspec.Struct, frozen=True):
    """The object of a cut's row.

    `n`: how many turns had been closed before the cut; None if the row does not say so. `size`, `sum`: the
    bytes and a digest of the entries that it took out. `record`: the digest of its record in the archive.
    """

    n: Count | None = None
    size: Count = 0
    sum: Label = ""
    record: Label = ""


class InboxEnd(msgspec.Struct, frozen=True):
    """The object of a waiting message.

    `who`: the speaker. `pin`: 1 if it is pinned, 0 if it is not; None: system messages are pinned, others are
    not. `id`: the id under which the message can be withdrawn; a message of a steering send has the digest of
    its turn id. `taken`: while a turn has claimed the message, the mark of that claim; True for one without a
    mark. `turn`: the digest of the id of the turn that the message was sent with, if it is not the `id`.
    """

    who: Name | None = None
    pin: _Bit | None = None
    id: Label = ""
    taken: Label | bool = ""
    turn: Label = ""


_End = TypeVar("_End", IterationEnd, CutEnd, InboxEnd)

_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError)


@cache
def _members_of(kind: type[IterationEnd | CutEnd | InboxEnd]) -> dict[str, msgspec.json.Decoder[Any]]:
    return {one.name: decoder_of(one.type) for one in msgspec.structs.fields(kind)}


def iteration_end(raw: bytes | msgspec.Raw) -> IterationEnd:
    """Read the object at the end of an iteration's row; b"": no object."""
    return _read(IterationEnd, bytes(raw))


def cut_end(raw: bytes | msgspec.Raw) -> CutEnd:
    """Read the object at the end of a cut's row; b"": no object."""
    return _read(CutEnd, bytes(raw))


def inbox_end(raw: bytes | msgspec.Raw) -> InboxEnd:
    """Read the object at the end of the row of a waiting message; b"": no object."""
    return _read(InboxEnd, bytes(raw))


def _read(kind: type[_End], raw: bytes) -> _End:
    if not raw:
        return kind()
    with suppress(*_REFUSALS):
        found: _End = decoder_of(kind).decode(raw)
        return found
    members: dict[str, Any] = {}
    with suppress(RawJSONError):
        for name, value in rawjson.members(raw).items():
            if (decoder := _members_of(kind).get(name)) is not None:
                with suppress(*_REFUSALS):
                    members[name] = decoder.decode(value)
    return kind(**members)


def known_end(kind: type[_End], raw: bytes | msgspec.Raw) -> tuple[bytes, int]:
    """Give an object at the end of a row with only the names that this release knows and can read, and how
    many others it has; b"" if nothing is left."""
    given = bytes(raw)
    if not given:
        return given, 0
    known, members = _members_of(kind), rawjson.members(given)
    gone = {name for name, value in members.items() if not _is_readable(known.get(name), value)}
    if len(gone) == len(members):
        return b"", max(1, len(gone))
    return rawjson.without(given, gone), len(gone)


def _is_readable(decoder: msgspec.json.Decoder[Any] | None, value: bytes) -> bool:
    if decoder is not None:
        with suppress(*_REFUSALS):
            decoder.decode(value)
            return True
    return False


def iteration_facts(index: int, who: Any, request_id: str = "", pin: Any = ()) -> bytes:
    """Write the object at the end of an iteration's row: the place of its model, its speakers, the id of the
    request, and its pins; b"" without these facts."""
    facts: dict[str, Any] = {"m": index} if index else {}
    if who:
        facts["who"] = who
    if request_id:
        facts["q"] = request_id[:MAX_NAME]
    if pin:
        facts["pin"] = pin
    return msgspec.json.encode(facts) if facts else b""


def inbox_facts(speaker: str | None, pinned: bool | None, id: str = "", turn: str = "") -> bytes:
    """Write the object at the end of the row of a waiting message; b"" without these facts."""
    if not speaker and not id and not turn and pinned is None:
        return b""
    named = (("who", speaker), ("id", id), ("turn", "" if turn == id else turn))
    facts: dict[str, Any] = {name: value for name, value in named if value}
    if pinned is not None:
        facts["pin"] = int(pinned)
    return msgspec.json.encode(facts)


def with_taken(raw: bytes, claim: str) -> bytes:
    """The object of a waiting message with the mark of a claim; "" takes the mark away. All other members
    stay byte for byte."""
    left = rawjson.without(raw, {"taken"}) if b'"taken"' in raw else raw
    if not claim:
        return left if left != b"{}" else b""
    column = b'"taken":' + msgspec.json.encode(claim) + b"}"
    return left[:-1] + b"," + column if len(left) > 2 else b"{" + column


def with_seconds(raw: bytes, seconds: Sequence[float]) -> bytes:
    """Add to the object at the end of an iteration's row how long each call of its reply ran. All other
    members stay byte for byte. Gives the same object if each call took less than a millisecond."""
    times = [bounded(round(one * 1000)) for one in seconds]
    if not any(times) or iteration_end(raw).s:
        return raw
    column = b'"s":' + msgspec.json.encode(times)
    return raw[:-1] + b"," + column + b"}" if len(raw) > 2 else b"{" + column + b"}"


def with_marks(raw: bytes, who: Sequence[Any], pin: Sequence[Any]) -> bytes:
    """Put other speakers and pins into the object at the end of an iteration's row. All other members stay
    byte for byte. Gives b"" if nothing is left."""
    rows = {name: rawjson.dumps(rows) for name, rows in (("who", who), ("pin", pin)) if rows}
    kept = rawjson.without(raw or b"{}", {"who", "pin"} - rows.keys())
    found = rawjson.replaced(kept, rows) if rows else kept
    return b"" if found == b"{}" else found


def are_pins(rows: Any) -> bool:
    """Tell whether a value is a list of pins, [[place, 0 or 1], …]."""
    with suppress(msgspec.ValidationError):
        msgspec.convert(rows, tuple[_Pin, ...])
        return True
    return False


def are_speakers(rows: Any) -> bool:
    """Tell whether a value is a list of speakers, [[place, name], …]."""
    with suppress(msgspec.ValidationError):
        msgspec.convert(rows, tuple[_Speaker, ...])
        return True
    return False
