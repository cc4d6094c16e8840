"""Facts about `goaitools_py.tools.call`: every return value as parts of a message."""

import dataclasses
import datetime
import decimal
import enum
import re
import uuid
from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py import Chat, tool
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.tools import MAX_RESULT_BYTES, ToolReturn, result_parts
from goaitools_py.tools.call import MAX_RESULT_MEDIA_BYTES
from goaitools_py.types.messages import Audio, Document, Image, Part, Text


class Team(enum.Enum):
    BLUE = "blue"
    RED = "red"


class Place(BaseModel):
    """Somewhere on the map."""

    name: str
    floor: int = 0


@dataclasses.dataclass
class Move:
    to: Place
    steps: int


PICTURE = Image.from_bytes(b"png")


class Opaque:
    """Something that JSON has no word for."""

    def __repr__(self) -> str:
        return "SECRET"


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("plain text", (Text("plain text"),)),
        ("", (Text(""),)),
        (None, (Text("null"),)),
        (True, (Text("true"),)),
        (3, (Text("3"),)),
        (1.5, (Text("1.5"),)),
        ({"a": [1, "ä"]}, (Text('{"a":[1,"ä"]}'),)),
        (["a", "b"], (Text('["a","b"]'),)),
        ((), (Text("[]"),)),
        ({7}, (Text("[7]"),)),
        ({datetime.date(2026, 1, 2): Team.RED}, (Text('{"2026-01-02":"red"}'),)),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), (Text('"2026-01-02T03:04:00Z"'),)),
        (datetime.timedelta(hours=1), (Text('"PT1H"'),)),
        (decimal.Decimal("1.10"), (Text('"1.10"'),)),
        (uuid.UUID(int=1), (Text('"00000000-0000-0000-0000-000000000001"'),)),
        (Team.BLUE, (Text('"blue"'),)),
        (b"text", (Text('"text"'),)),
        (10**40, (Text("1" + "0" * 40),)),
        (Place(name="Gate"), (Text('{"name":"Gate","floor":0}'),)),
        ([Move(to=Place(name="Gate"), steps=1)], (Text('[{"to":{"name":"Gate","floor":0},"steps":1}]'),)),
        (PICTURE, (PICTURE,)),
        (Text("t"), (Text("t"),)),
        (["see", PICTURE, {"a": 1}], (Text("see"), PICTURE, Text('{"a":1}'))),
        ((PICTURE, PICTURE), (PICTURE, PICTURE)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_parts(value: Any, parts: tuple[Part, ...]) -> None:
    """Text as it is, parts as they are, everything else as JSON."""
    assert result_parts(value) == (parts, False)


def test_a_tool_return_says_whether_it_is_an_error() -> None:
    """Its value is treated like any other, nested ones too."""
    assert result_parts(ToolReturn({"a": 1})) == ((Text('{"a":1}'),), False)
    assert result_parts(ToolReturn("sold out", is_error=True)) == ((Text("sold out"),), True)
    assert result_parts(ToolReturn(ToolReturn("x", is_error=True))) == ((Text("x"),), True)
    assert result_parts(ToolReturn(Opaque()))[1] is True


def a_cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def a_tower() -> list[Any]:
    tower: list[Any] = []
    for _ in range(5_000):
        tower = [tower]
    return tower


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Opaque(), "Opaque"),
        ({"a": [1, Opaque()]}, "Opaque"),
        (["SECRET", PICTURE, Opaque()], "Opaque"),
        (b"\xff", "bytes"),
        (Opaque, "type"),
        (a_cycle(), "list"),
        (a_tower(), "list"),
        ({"SECRET": "\ud800"}, "dict"),
    ],
    ids=["object", "nested", "among parts", "bytes", "class", "cycle", "tower", "surrogate"],
)
def test_what_json_cannot_express_is_an_error_that_names_the_type(value: Any, named: str) -> None:
    """And nothing else of it."""
    parts, is_error = result_parts(value)

    assert is_error
    assert parts == (Text(f"The tool returned a value of type {named}, which cannot be written as JSON."),)


def test_text_of_a_result_is_always_utf8() -> None:
    """A lone surrogate would break the state, so it is replaced."""
    assert result_parts("a\ud800b") == ((Text("a\ufffdb"),), False)


def test_text_up_to_the_limit_is_untouched() -> None:
    """The limit counts bytes."""
    text = "ä" * (MAX_RESULT_BYTES // 2)

    assert result_parts(text) == ((Text(text),), False)


@pytest.mark.parametrize("letter", ["a", "ä", "€", "😀"])
def test_text_beyond_the_limit_is_cut_with_a_count(letter: str) -> None:
    """Kept characters and the count add up; the whole stays within the limit and is valid UTF-8."""
    text = letter * (MAX_RESULT_BYTES // len(letter.encode()) + 1)

    parts, is_error = result_parts(text)

    assert not is_error
    (part,) = parts
    assert isinstance(part, Text)
    found = re.fullmatch(rf"({letter}+)\n\[(\d+) characters removed\]", part.text)
    assert found is not None
    assert len(found[1]) + int(found[2]) == len(text)
    assert MAX_RESULT_BYTES - 70 < len(part.text.encode()) <= MAX_RESULT_BYTES


def test_nothing_follows_a_cut() -> None:
    """A shorter part is not kept merely because the cut fell between two characters and left some bytes."""
    parts, _ = result_parts(["a" + "€" * MAX_RESULT_BYTES, PICTURE, "b"])

    assert [type(part) for part in parts] == [Text, Image]


def test_the_limit_is_for_all_text_of_a_result() -> None:
    """Pictures stay; after the cut no more text follows, and the note counts all that is gone."""
    half = "x" * (MAX_RESULT_BYTES * 2 // 3)

    parts, _ = result_parts([half, PICTURE, half, PICTURE, "small"])

    assert [type(part) for part in parts] == [Text, Image, Text, Image]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    kept, note = text.split("\n")
    assert note == f"[{2 * len(half) + 5 - len(kept)} characters removed]"
    assert len(text.encode()) <= MAX_RESULT_BYTES


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (Image.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES + 1)), "image"),
        (Document.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES + 1)), "document"),
        (Audio.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES + 1)), "audio"),
        (Image(media_type="image/png", url="data:" + "A" * (MAX_RESULT_MEDIA_BYTES - 4)), "image"),
    ],
    ids=["image", "document", "audio", "data URL"],
)
def test_a_medium_beyond_the_limit_is_left_out_with_a_note(part: Part, kind: str) -> None:
    """The note stands in its place and tells the model kind and size; the other parts stay."""
    parts, is_error = result_parts(["before", part, PICTURE])

    assert not is_error
    note = Text(f"[{kind} of {MAX_RESULT_MEDIA_BYTES + 1} bytes left out: too large]")
    assert parts == (Text("before"), note, PICTURE)


def test_a_medium_up_to_the_limit_is_untouched() -> None:
    """The limit counts bytes, not the base64 that carries them."""
    part = Image.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES))

    assert result_parts(part) == ((part,), False)


def test_the_media_limit_is_for_all_media_of_a_result() -> None:
    """One that no longer fits is left out; a smaller one after it may still fit."""
    half = Image.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES * 2 // 3))

    parts, _ = result_parts([half, half, PICTURE])

    assert [type(part) for part in parts] == [Image, Text, Image]


def test_notes_about_media_count_as_text() -> None:
    """However many media are left out, the result stays within the limit of text."""
    large = Image.from_bytes(bytes(MAX_RESULT_MEDIA_BYTES + 1))

    parts, _ = result_parts([large] * 10_000)

    assert sum(len(part.text) for part in parts if isinstance(part, Text)) <= MAX_RESULT_BYTES


def test_a_huge_picture_does_not_cost_the_turn() -> None:
    """A tool's 30 MB picture would make a state that nobody can write; the model reads a note instead."""

    @tool
    def look() -> Any:
        """Look around."""
        return Image.from_bytes(bytes(30 * 2**20))

    result = Chat(ScriptedBackend(Calls([("look", {})]), "Too large."), tools=[look]).chat(user="Look!")

    assert result.text == "Too large."
    assert "image of 31457280 bytes" in result.tool_log[0].result
    assert len(result.state) < 10_000
