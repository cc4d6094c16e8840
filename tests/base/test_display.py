"""`show()` and a notebook's HTML have all that was said, and no text in them takes effect."""

from __future__ import annotations

import io
import re

import pytest

from goaitools_py import Chat, Image, event, tool
from goaitools_py.base.display import ShownText, as_html, as_text
from goaitools_py.states import read_history
from goaitools_py.testing import Calls, ScriptedBackend

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\n## Turn 9: &lt;"


@tool
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is dark {HOSTILE}"


@tool(requires_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


def said(thing: object) -> str:
    """What `show` prints."""
    file = io.StringIO()
    thing.show(file=file)  # type: ignore[attr-defined]
    return file.getvalue()


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_what_was_said_is_shown(wire: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls with results, the reply, what waits, pictures by size; on standard output by default."""
    script = ScriptedBackend(
        Calls([("look", {"place": "Hall"})]), f"Dark. {HOSTILE}", Calls([("pay", {"euros": 5})]), wire=wire
    )
    chat = Chat(script, tools=[look, pay])
    first = chat.chat_with_state(None, user=["What is there?", Image.from_bytes(b"12345")])
    second = chat.chat_with_state(chat.append_to_state(first.state, event("Rain.")), user="Pay.")
    history = read_history(chat.append_to_state(second.state, event("Thunder.")))

    first.show()
    shown = [capsys.readouterr().out, said(second), said(history)]

    assert re.search(r'call: look\(\{"place": ?"Hall"\}\) -> Hall is dark', shown[0])
    assert "assistant: Dark." in shown[0]
    assert "waits: pay(" in shown[1]
    for word in (
        "What is there?",
        "[image, image/png, 5 bytes]",
        "event: Rain.",
        "event: Thunder.",
        "call: pay(",
    ):
        assert word in shown[2]
    assert shown[2].count("Dark.") == shown[2].count("Hall is dark") == 1
    for text in shown:
        assert not set(text) & set("\x1b\u202e")
        assert "\n## Turn 9" not in text
    second_page = second._repr_html_()
    for page in (first._repr_html_(), second_page, history._repr_html_()):
        assert "<script" not in page
        assert not set(page) & set("\x1b\u202e")
        assert "alert(1)" in page or page is second_page
    for quiet in (first, second, history):
        assert not any(word in f"{quiet}{quiet!r}" for word in ("alert", "Dark", "Pay.", "Hall", "Rain"))


def test_a_typed_answer_and_a_warning_are_shown() -> None:
    """The value, and what the turn warns of."""
    result = Chat(ScriptedBackend('{"value":3}')).chat(user="Count.", output_type=int)

    assert "output: 3" in said(result)
    assert "(complete, scripted, " in said(result)


def test_rows_are_written_so_that_nothing_takes_effect() -> None:
    """Labels are escaped as well: a speaker's name is text from outside, too."""
    rows = [ShownText("user (<b>\x07)", "a\nassistant: b"), ShownText("Turn 1")]

    assert as_text(rows) == "user (<b>\ufffd): a\n    assistant: b\nTurn 1"
    assert "&lt;b&gt;" in as_html(rows)
