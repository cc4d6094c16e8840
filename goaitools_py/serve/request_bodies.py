"""Reads the bodies of requests: a message of the user, also as a form with files, and events.

Owns: the fields of the form and its limits, and the members of events. Must never know: a route, or who runs
a turn.

A page of another site can make a browser send a form (``multipart/form-data``) without asking first, but not
with a header of its own. So a form is taken only with ``Idempotency-Key``, which is the id of the message,
too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import Request

from ..frontends import Ask, AskError, FrontEnd
from ..frontends.bodies import MAX_ID_CHARACTERS, part_of
from ..types.messages import Part, Text
from ..types.messages import event as event_message
from .http import read_body, take_body
from .serve_limits import ServeLimits

__all__ = ["event_rows", "events_by_name", "events_of", "read_message", "read_title"]


def events_of(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Make messages of events that a client sends. Raises `AskError` for anything else."""
    made = []
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not row["text"]:
            raise AskError("an event must be an object with text")
        if row.keys() - {"text", "topic", "id"}:
            raise AskError("an event has text, topic and id")
        try:
            made.append(event_message(row["text"], topic=row.get("topic"), id=row.get("id")))
        except (TypeError, ValueError) as error:
            raise AskError("the topic or the id of an event cannot be taken") from error
    return made


def event_rows(body: bytes, most: int) -> list[Any]:
    """Read a list of events."""
    found = _json(body)
    if not isinstance(found, list) or len(found) > most:
        raise AskError(f"the body must be a list of at most {most} events")
    return found


def events_by_name(body: bytes, most: int) -> dict[str, Any]:
    """Read lists of events by the names of conversations. The lists are not looked at."""
    found = _json(body)
    if not isinstance(found, dict) or len(found) > most:
        raise AskError(f"the body must be an object with at most {most} members")
    return found


def read_title(body: bytes) -> str:
    """Read the new title of a conversation."""
    found = _json(body)
    title = found.get("title") if isinstance(found, dict) and found.keys() == {"title"} else None
    if not isinstance(title, str) or len(title) > MAX_ID_CHARACTERS:
        raise AskError(f"the body must be an object with a title of at most {MAX_ID_CHARACTERS} characters")
    return title


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise AskError("the body is not JSON") from None


_FORM: Final = "multipart/form-data"
_FILE: Final = "file"
_FIELDS: Final = frozenset({"text", "edit", "again"})
_CARRIED: Final = frozenset({"text", "conversation", "state"})
_FOLDERS: Final = re.compile(r"[/\\]")
_EMPTY_FILES: Final = 100
"""How many parts of a form may be empty files. A part of a few bytes costs as much time as a file."""


async def read_message(
    request: Request, limits: ServeLimits, front: FrontEnd, *, carries: bool = False
) -> Ask:
    """Read the user's message. A form has ``text``, any number of ``file``, and ``edit`` or ``again``.

    Args:
        request: The request; its body is read here.
        limits: The limits of a body.
        front: Reads a body that is JSON.
        carries: The client carries the state: the form has ``state`` and ``conversation``, and not ``edit``
            or ``again``.

    Raises:
        AskError: The body cannot be read. The text says why, and quotes nothing of it.
        HTTPException: It is too long (413), too slow (408), or neither JSON nor a form (415).
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _FORM:
        return front.read(await read_body(request, limits))
    id = request.headers.get("idempotency-key", "")
    if not 1 <= len(id) <= MAX_ID_CHARACTERS:
        raise AskError("a form needs the header Idempotency-Key, of 1 to 256 characters: the message's id")
    form = await _form_of(request, limits, _CARRIED if carries else _FIELDS)
    if {"edit", "again"} <= form.fields.keys():
        raise AskError("a form has one of edit and again")
    if not form.said:
        raise AskError("a turn needs a field text with at least one character, or a file that is not empty")
    return Ask(
        conversation=_short(form.fields.get("conversation", ""), "conversation"),
        state=form.fields.get("state") or None,
        edit=_short(form.fields["edit"], "edit") if form.fields.get("edit") else None,
        again=_short(form.fields["again"], "again") if "again" in form.fields else None,
        said=form.said,
        turn_id=id,
    )


def _short(value: str, name: str) -> str:
    if len(value) > MAX_ID_CHARACTERS:
        raise AskError(f"{name} must have at most {MAX_ID_CHARACTERS} characters, got {len(value)}")
    return value


async def _form_of(request: Request, limits: ServeLimits, names: frozenset[str]) -> _Form:
    _, options = parse_options_header(request.headers["content-type"])
    boundary = options.get(b"boundary")
    if not boundary:
        raise AskError("the header Content-Type of a form must name its boundary")
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":
        raise AskError("a form must be UTF-8")
    form = _Form(names, limits.files)
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        await take_body(request, parser.write, limits.upload_bytes, limits.upload_seconds)
        parser.finalize()
    except FormParserError:
        raise AskError("the body is not a form as its header Content-Type says") from None
    if not form.is_over:
        raise AskError("the form ends before its last boundary")
    return form


class _Form:
    """A form as it comes. The caller bounds the length of the body, and so the size of the form."""

    def __init__(self, names: frozenset[str], files: int) -> None:
        self.fields: dict[str, str] = {}
        self.said: tuple[Part, ...] = ()
        self.is_over = False
        self._names, self._files = names, files
        self._left = len(names) + files + _EMPTY_FILES
        self._header = [bytearray(), bytearray()]
        self._headers: dict[str, str] = {}
        self._data = bytearray()

    def callbacks(self) -> dict[str, object]:
        """Give the functions that the parser calls."""
        return {
            "on_part_begin": self._part_begins,
            "on_part_data": lambda data, start, end: self._data.extend(data[start:end]),
            "on_part_end": self._part_ends,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._header_ends,
            "on_end": self._ends,
        }

    def _ends(self) -> None:
        self.is_over = True

    def _part_begins(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise HTTPException(413)
        self._headers, self._data = {}, bytearray()

    def _header_ends(self) -> None:
        # The parser reads header values as Latin-1. Decode the bytes in the same way, so no byte changes.
        name, value = (bytes(one).decode("latin-1") for one in self._header)
        self._headers[name.strip().lower()] = value
        self._header = [bytearray(), bytearray()]

    def _part_ends(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition"))
        name = _utf_8(options.get(b"name", b""), "the name of a field")
        if name == _FILE and b"filename" in options:
            self._take_file(_utf_8(options[b"filename"], "the name of a file"))
        elif name in self._names and name not in self.fields:
            self.fields[name] = _utf_8(bytes(self._data), f"the field {name}")
            if name == "text" and self.fields[name]:
                self.said += (Text(self.fields[name]),)
        else:
            known = ", ".join(sorted(self._names))
            raise AskError(f"the fields of a form are {known}, each once, and {_FILE}, which has a file name")

    def _take_file(self, name: str) -> None:
        # Some clients send folders. A browser sends an empty file without a name if the user chose no file.
        name = "".join(filter(str.isprintable, _FOLDERS.split(name)[-1])).strip()
        if not name and not self._data:
            return
        media_type = self._headers.get("content-type", "").strip()
        if not media_type:
            raise AskError("a file of a form needs the header Content-Type")
        self._files -= 1
        if self._files < 0:
            raise HTTPException(413)
        self.said += (
            part_of(
                bytes(self._data), _short(media_type, "Content-Type"), _short(name, "a file's name") or None
            ),
        )


def _utf_8(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise AskError(f"{what} is not UTF-8") from None
