"""Facts about the blocks inside a conversation: what they look like, and that nobody can forge one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goaitools_py import Chat
from goaitools_py.base.escaping import as_written
from goaitools_py.states import to_markdown
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.messages import Message, Text, user
from goaitools_py.types.render import (
    BlockText,
    EventBlock,
    context_block,
    event_block,
    file_block,
    files_in,
    read_event,
    read_system,
    read_text,
    system_block,
    user_text,
    valid_text,
    with_context,
)

fixed = settings(max_examples=200, deadline=None, derandomize=True, database=None)
# Texts in which the interesting characters and words are not rare.
texts = st.lists(
    st.sampled_from(
        [
            "<",
            ">",
            "&",
            '"',
            "\n",
            "\r",
            "/",
            "app-event",
            "APP-Context",
            "app-",
            "note",
            "-system",
            "ap",
            "&lt;",
            "&amp;",
            "&#10;",
            "x",
            "é",
        ]
    )
    | st.text(max_size=3)
).map("".join)
DELIMITER = re.compile(r"</?app-(event|context|note|system)", re.IGNORECASE)
CUT = "|".join(
    re.escape(word[:end])
    for word in ("app-event", "app-context", "app-note", "app-system", "app-file")
    for end in range(len(word) - 1, -1, -1)
)
OUTSIDE = re.compile(rf"</?app-(?:event|context|note|system)|</?(?:{CUT})\Z", re.IGNORECASE)
"""A delimiter, or the beginning of one at the very end."""


def test_an_event_is_a_delimited_block() -> None:
    """What a model reads of an event."""
    block = event_block("Ada reached Harrogate Theatre: +50 points", topic="score", id="e-17")

    assert block == (
        '<app-event topic="score" id="e-17">\nAda reached Harrogate Theatre: +50 points\n</app-event>'
    )


def test_a_context_is_a_delimited_block() -> None:
    """What a model reads of a context."""
    assert context_block("12:04, R&D") == "<app-context>\n12:04, R&amp;D\n</app-context>"


def test_a_system_message_may_be_a_delimited_block() -> None:
    """What a model reads of an instruction for which it knows no role."""
    assert system_block("Be <brief>.") == "<app-system>\nBe &lt;brief&gt;.\n</app-system>"


@fixed
@given(text=texts)
def test_a_system_block_reads_back_as_it_was(text: str) -> None:
    """Escaping loses nothing, and no user's text reads as one."""
    assert read_system(system_block(text)) == text
    assert read_system(user_text(system_block(text))) is None
    assert len(DELIMITER.findall(system_block(text))) == 2


def test_an_event_needs_neither_topic_nor_id() -> None:
    """An attribute that was not given is not there; an empty one is."""
    assert event_block("x") == "<app-event>\nx\n</app-event>"
    assert event_block("x", topic="") == '<app-event topic="">\nx\n</app-event>'


@fixed
@given(text=texts, topic=st.none() | texts, id=st.none() | texts)
def test_an_event_reads_back_as_it_was(text: str, topic: str | None, id: str | None) -> None:
    """Escaping loses nothing."""
    block = event_block(text, topic=topic, id=id)

    assert read_event(block) == EventBlock(text=text, topic=topic, id=id)


@fixed
@given(text=texts, topic=texts)
def test_no_text_opens_or_closes_the_block_it_stands_in(text: str, topic: str) -> None:
    """An event holds one opening and one closing delimiter, whatever it tells."""
    assert len(DELIMITER.findall(event_block(text, topic=topic))) == 2
    assert len(DELIMITER.findall(context_block(text))) == 2


@fixed
@given(text=texts)
def test_user_text_holds_no_delimiter(text: str) -> None:
    """A user cannot imitate an event or a context, in any letter case."""
    assert not DELIMITER.search(user_text(text))
    assert read_event(user_text(event_block(text))) is None


@fixed
@given(text=texts)
def test_user_text_changes_nothing_but_delimiters(text: str) -> None:
    """Of a delimiter, or the beginning of one at the end, only the ``<`` is written otherwise."""
    spared = OUTSIDE.sub(lambda found: "&lt;" + found[0][1:], text)

    assert user_text(text) == spared


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("<app-eve", "&lt;app-eve"),
        ("so: <", "so: &lt;"),
        ("</", "&lt;/"),
        ("</APP-n", "&lt;/APP-n"),
        ("<app-evil", "<app-evil"),
        ("a <b", "a <b"),
        ("<a", "&lt;a"),
        ("<ap>", "<ap>"),
    ],
)
def test_the_beginning_of_a_delimiter_at_the_end_is_one(text: str, written: str) -> None:
    """What follows may be its rest: another part, another message. A page shows it as it was."""
    assert user_text(text) == written
    assert as_written(written) == text


@fixed
@given(pieces=st.lists(texts, max_size=5))
def test_pieces_make_no_block_together(pieces: list[str]) -> None:
    """However a text is cut into parts and messages."""
    assert not DELIMITER.search("".join(map(user_text, pieces)))


@pytest.mark.parametrize("text", ["", "hello", "a < b && c > d", "<app-eve ", "<b>é</b> &lt;app-event&gt;"])
def test_ordinary_user_text_is_the_same_object(text: str) -> None:
    """The usual case costs no copy."""
    assert user_text(text) is text


@pytest.mark.parametrize(
    ("text", "readable"),
    [("a\ud800b", "a\ufffdb"), ("\udfff\ud800", "\ufffd\ufffd"), ("\ud83d\ude00", "😀"), ("é😀", "é😀")],
)
def test_lone_surrogates_become_replacement_characters(text: str, readable: str) -> None:
    """What UTF-8 cannot hold is replaced; halves that belong together are joined."""
    assert valid_text(text) == readable
    assert user_text(text) == readable
    assert event_block(text) == event_block(readable)


def test_context_is_the_first_part_of_a_message() -> None:
    """The user's own words follow unchanged."""
    message = user("where am I?")

    with_place = with_context(message, "the <station>")

    assert with_place.parts == (
        BlockText("<app-context>\nthe &lt;station&gt;\n</app-context>"),
        Text("where am I?"),
    )
    assert message.parts == (Text("where am I?"),)


def test_a_stored_context_block_reads_back_as_context() -> None:
    """Only a text that is exactly one block is one; a user's is not."""
    assert type(read_text(context_block("here"))) is BlockText
    assert type(read_text(context_block("here") + " ")) is Text
    assert type(read_text(user_text(context_block("here")))) is Text


@pytest.mark.parametrize(
    "text",
    [
        "<app-event>x</app-event>",
        "<app-event>\nx\n</app-event>\n",
        "<app-event>\n<b>\n</app-event>",
        "<app-event>\na\n</app-event>\n<app-event>\nb\n</app-event>",
        '<app-event id="1" topic="2">\nx\n</app-event>',
        "hello",
    ],
)
def test_only_a_block_of_ours_is_an_event(text: str) -> None:
    """Whatever this package would not have written is ordinary text."""
    assert read_event(text) is None


@pytest.mark.parametrize(
    "text", ["", "plain", "a < b && Vec<String>\n", "</app-file>", "<app-file name=", "<", "\n", "x</app-fil"]
)
@pytest.mark.parametrize("name", ["notes.txt", 'a"b<c>&.md', "", "a\nb"])
def test_a_file_of_text_comes_back_as_it_was(text: str, name: str) -> None:
    """Its name, type and text; a program in it stays readable for the model."""
    block = file_block(text, name=name, media_type="text/csv; charset=utf-8")
    message = Message(role="user", parts=(read_text(block.text), Text("What is this?")))
    (file,) = files_in(message)
    assert (file.name or "", file.media_type, file.data) == (name, "text/csv", text.encode())
    assert message.said == "What is this?"
    assert "Vec<String>" not in text or "Vec<String>" in block.text
    assert isinstance(read_text(block.text), BlockText)


def test_no_user_can_imitate_a_file() -> None:
    block = file_block("x", name="a.txt", media_type="text/plain").text
    assert files_in(Message(role="user", parts=(read_text(user_text(block)),))) == ()
    inner = file_block(f"{block}", name="b.txt", media_type="nonsense").text
    (file,) = files_in(Message(role="user", parts=(read_text(inner),)))
    assert (file.name, file.media_type, file.data) == ("b.txt", "text/plain", block.encode())


def test_a_document_for_people_has_the_file_apart() -> None:
    """Its name, and its text in a block of its own."""
    block = file_block("Vec<String>", name="a.rs", media_type="text/x-rust")
    with Chat(ScriptedBackend("Hi.")) as chat:
        state = chat.chat(user=[block, Text("What is this?")]).state
    lines = to_markdown(state).splitlines()
    assert "- document a.rs of type text/x-rust, 11 bytes" in lines
    assert lines[lines.index("What is this?") - 1] == lines[lines.index("Vec<String>") - 1] == "```text"
