"""The JSON object that may stand at the end of a row: of an iteration, of a cut, of a waiting message.

Owns: the names in these objects that this release knows, and their reading. Must never know: how a row is
stored, or how an operation uses these values.

Later releases add names to these objects. This release keeps an object byte for byte, for as long as it keeps
the row. Reading never fails. A known name with an odd value counts as absent. Unknown names are skipped, and
their values are not read: they may be numbers beyond all types, as ``1e400``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from ..base import rawjson
from ..base.rawjson import RawJSONError
from .bounds import MAX_NAME, Count, Label, Name, bounded
from .row_json import decoder_of

__all__ = [
    "NO_MORE",
    "CutEnd",
    "InboxEnd",
    "IterationEnd",
    "are_speakers",
    "cut_end",
    "inbox_end",
    "iteration_end",
    "iteration_facts",
    "known_end",
    "with_seconds",
]

NO_MORE: Final = msgspec.Raw(b"")
"""No object at the end of a row. A row of the meta data may end with one JSON object, to which later releases
add names. This release keeps that object byte for byte, for as long as it keeps the row."""


_Speaker: TypeAlias = tuple[Count, Name]


class IterationEnd(msgspec.Struct, frozen=True):
    """The object of an iteration.

    `m`: the place of its model among `Meta.models`. `who`: its speakers, each as the place among the messages
    of the user, counted from 0, and the name. `q`: the provider's id of the request. `s`: how long each call
    of its reply ran, in milliseconds, without calls that the provider ran itself; absent if all are 0.
    """

    m: Count = 0
    who: tuple[_Speaker, ...] = ()
    q: Name = ""
    s: tuple[Count, ...] = ()


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
    """The object of a waiting message. `who`: the speaker."""

    who: Name | None = None


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


def iteration_facts(index: int, who: Any, request_id: str = "") -> bytes:
    """Write the object at the end of an iteration's row: the place of its model, its speakers, and the id of
    the request; b"" without these facts."""
    facts: dict[str, Any] = {"m": index} if index else {}
    if who:
        facts["who"] = who
    if request_id:
        facts["q"] = request_id[:MAX_NAME]
    return msgspec.json.encode(facts) if facts else b""


def with_seconds(raw: bytes, seconds: Sequence[float]) -> bytes:
    """Add to the object at the end of an iteration's row how long each call of its reply ran. All other
    members stay byte for byte. Gives the same object if each call took less than a millisecond."""
    times = [bounded(round(one * 1000)) for one in seconds]
    if not any(times) or iteration_end(raw).s:
        return raw
    column = b'"s":' + msgspec.json.encode(times)
    return raw[:-1] + b"," + column + b"}" if len(raw) > 2 else b"{" + column + b"}"


def are_speakers(rows: Any) -> bool:
    """Tell whether a value is a list of speakers, [[place, name], …]."""
    with suppress(msgspec.ValidationError):
        msgspec.convert(rows, tuple[_Speaker, ...])
        return True
    return False
