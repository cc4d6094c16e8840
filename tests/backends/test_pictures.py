"""A picture that is none is refused alike on every provider API, and wherever it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Audio, Chat, Document, Image, tool, user
from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import Dialect
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import ToolResult

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
OWN: list[Dialect] = [
    OpenAIChatDialect(),
    OpenAIChatDialect("azure"),
    OpenAIResponsesDialect(),
    AnthropicDialect(),
    AnthropicDialect("server.example"),
]
OTHERS: list[Dialect] = [OpenAIChatDialect("server.example"), OpenAIResponsesDialect("server.example")]
NO_PICTURES = ["text/x-python", "application/pdf", "audio/wav", "imagex/png"]
FEW_TAKE = ["image/bmp", "image/tiff", "image/svg+xml"]
ALL_TAKE = ["image/jpeg", "image/png", "image/gif", "image/webp", "image/PNG"]


def named(dialect: Any) -> str:
    return f"{dialect.wire} {dialect.family}"


def picture(media_type: str) -> Image:
    """A picture as it may come out of a state, whose media type nobody has checked."""
    return Image(media_type=media_type, data=PNG)


@pytest.mark.parametrize("dialect", [*OWN, *OTHERS], ids=named)
@pytest.mark.parametrize("media_type", NO_PICTURES)
def test_what_is_no_picture_is_refused(dialect: Dialect, media_type: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match=f"takes JPEG, PNG, GIF and WebP images, not {media_type}"):
        dialect.entries([user("What is this?", picture(media_type))])


@pytest.mark.parametrize("media_type", FEW_TAKE)
def test_a_picture_that_providers_do_not_take_goes_to_other_servers_only(media_type: str) -> None:
    """A compatible server may know more kinds."""
    for dialect in OWN:
        with pytest.raises(ValueError, match="takes JPEG, PNG, GIF and WebP images"):
            dialect.entries([user("What is this?", picture(media_type))])
    for dialect in OTHERS:
        (entry,) = dialect.entries([user("What is this?", picture(media_type))])
        assert media_type.encode() in entry


@pytest.mark.parametrize("dialect", [*OWN, *OTHERS], ids=named)
def test_pictures_and_urls_are_taken(dialect: Dialect) -> None:
    """A URL says little of what is behind it."""
    for media_type in ALL_TAKE[:-1]:
        dialect.entries([user("What is this?", picture(media_type))])
    dialect.entries([user("What is this?", Image.from_url("https://example.org/picture.py"))])


@pytest.mark.parametrize("dialect", [*OWN, *OTHERS], ids=named)
def test_a_result_with_what_is_no_picture_is_a_line_of_text(dialect: Dialect) -> None:
    """The tool has run, and the turn goes on."""
    result = ToolResult(call_id="c1", name="look", parts=(picture("text/x-python"),))

    (entry,) = dialect.results([result])

    assert b"[image text/x-python:" in entry
    assert b"base64," not in entry


@pytest.mark.parametrize("name", ["sim", "sim:openai", "sim:openai-responses", "sim:anthropic"])
def test_the_simulator_agrees(name: str) -> None:
    """Whoever tries something offline learns it there."""
    with Chat(name) as chat, pytest.raises(ValueError, match="not text/x-python"):
        chat.chat(messages=[user("What is this?", picture("text/x-python"))])


def test_a_file_that_is_no_picture_is_refused_where_it_is_named(tmp_path: Path) -> None:
    """And the text says what to use."""
    path = tmp_path / "program.py"
    path.write_bytes(b"print()")

    with pytest.raises(ValueError, match=r"Image\.from_path takes a media type that begins with 'image/'"):
        Image.from_path(path)
    with pytest.raises(ValueError, match="got 'text/x-python'; for a document use Document, for text a str"):
        Image.from_bytes(b"print()", "text/x-python")
    with pytest.raises(ValueError, match="begins with 'audio/'"):
        Audio.from_bytes(b"print()", "text/x-python")
    assert Document.from_path(path).media_type == "text/x-python"
    assert Image.from_path(_named(tmp_path / "picture")).media_type == "image/png"


def _named(path: Path) -> Path:
    path.write_bytes(PNG)
    return path


def test_a_turn_goes_on_behind_such_a_result() -> None:
    """A tool that gives what is no picture."""

    @tool
    def look() -> Image:
        """Look."""
        return picture("text/x-python")

    backend = ScriptedBackend(Calls([("look", {})]), "A program.", wire="openai-responses")

    assert Chat(backend).chat(user="Look.", tools=[look]).text == "A program."
    assert b"[image text/x-python:" in backend.requests[1].body
