"""The app on a terminal: what keys do, and what the screen shows."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.sim import Fault, Reply
from goaitools_py.states import load_state, read_history
from goaitools_py.stores import SQLiteStore

NAME = "My name is Ada."
OPEN = Reply.calls(("open_box", '{"code": 1815}'))


def test_a_message_is_typed_and_answered(place: Any) -> None:
    """The reply is shown and kept, and the header counts."""

    async def play(app: Any) -> None:
        await app.press(*"My name is Ada.")
        assert "15 characters" in app.text
        await app.press("enter")
        await app.settle()
        assert "characters" not in app.text
        assert re.search(r"\d+\.\d s, 1 iteration, \d+ tokens in, \d+ out", app.text)

        assert "My name is Ada." in app.text
        assert "your name is Ada" in app.text
        assert app.lines[0].startswith(" ada │ 1 turn │ ")
        assert app.lines[0].endswith("│ ready")
        assert app.app._prompt.text == ""

    place.run(play)
    assert place.said()[0] == NAME


def test_a_reply_streams_as_markdown(place: Any) -> None:
    """What has come is shown while the rest is still on its way, as Markdown."""
    gate = threading.Event()
    text = "# Title\n\nSome **bold** words and `code`.\n\n- one\n- two\n"
    place.sim.push(Fault.hold(gate, after=30), Reply.text(text))

    async def play(app: Any) -> None:
        place.sim.clear()
        place.sim.push(Fault.hold(gate, after=8))
        await app.send("Tell me a long story about the Theatre, please.")
        await app.status("answering")
        assert app.app.is_busy
        gate.set()
        await app.settle()

        place.sim.push(Reply.text(text))
        await app.say("Again")
        assert "**" not in app.text
        assert "`" not in app.text
        assert "Some bold words and code." in app.text
        assert "• one" in app.text

    place.run(play)


WRITTEN = (
    "Use Vec<String> and Map<K, List<V>>.",
    "<source>",
    '<item id="1">one</item>',
    "</source>",
    "<!-- a comment -->",
    '<?xml version="1.0"?>',
    "<li>in a list",
    "<q>quoted",
    "<td>cell",
    "Title <T>",
    "[a link](https://there.test/a)",
    "![a picture](https://there.test/p)",
    "<https://there.test/b>",
    "&lt;b&gt;",
    "[ref]: https://there.test/c",
    "[red]no markup[/red]",
)
"""What a reply says, and the screen must show, as it is written."""


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_reply_keeps_what_looks_like_html(is_stored: bool, place: Any) -> None:
    """Tags, generics, XML, links and entities are shown as written, in each block."""
    first, source, item, end, comment, xml, entry, quote, cell, title, *rest = WRITTEN
    text = "\n\n".join(
        [
            *(first, f"{source}\n{item}\n{end}", comment, xml, f"- {entry}", f"> {quote}", f"# {title}"),
            *(*rest, f"| a | b |\n|---|---|\n| {cell} | x |"),
        ]
    )
    place.sim.push(Reply.text(text))

    async def play(app: Any) -> None:
        await app.say("Write it.")
        check(app)

    async def read(app: Any) -> None:
        check(app)

    def check(app: Any) -> None:
        assert [one for one in WRITTEN if one not in app.text] == []
        lines = [line.strip() for line in app.lines]
        assert lines[lines.index(source) : lines.index(source) + 3] == [source, item, end]

    place.run(play, size=(80, 70))
    if is_stored:
        place.run(read, size=(80, 70))


def test_other_texts_keep_what_looks_like_html(place: Any) -> None:
    """Messages, titles, arguments, results and questions are shown as written."""
    odd = "Vec<String> <b>x</b> [red]y[/red]"
    place.sim.push(
        Reply.calls(("look", json.dumps({"place": odd})), ("open_box", json.dumps({"code": 1, "why": odd})))
    )

    async def play(app: Any) -> None:
        await app.say(f"user {odd}")
        assert f"user {odd}" in app.text
        assert app.text.count(odd) >= 4
        assert f"The {odd} has a clock." in app.text

        await app.app._conversation.update(title=f"title {odd}")
        await app.press("ctrl+o")
        await app.pilot.pause()
        assert f"title {odd}" in app.text

    place.run(play, size=(120, 60))


def test_escape_stops_a_reply(place: Any) -> None:
    """What was said stays, the prompt works again, and the next message is answered."""
    gate = threading.Event()
    place.sim.push(Fault.hold(gate, after=4))

    async def play(app: Any) -> None:
        await app.send(NAME)
        await app.status("answering")
        await app.press("escape")
        await app.settle()

        assert "Cancelled. What was said so far is kept" in app.text
        gate.set()
        await app.say("What is my name?")
        assert "Your name is Ada" in app.text

    place.run(play)
    assert place.said()[0] == NAME


def test_escape_stops_waiting_for_another_program(place: Any) -> None:
    """While another program has a turn, the app waits; Escape gives up, and says that nothing was sent."""

    async def play(app: Any) -> None:
        with SQLiteStore(place.path) as store, store.lease("ada", 60.0):
            await app.send(NAME)
            await app.status("waits for its turn")
            await app.press("escape")
            await app.settle()
            assert "Cancelled before it began. Your line was not sent." in app.text
        await app.say("Hello?")
        assert app.lines[0].startswith(" ada │ 1 turn")

    place.run(play)
    assert NAME not in place.said()


def test_while_a_reply_comes_a_line_stays_in_the_prompt(place: Any) -> None:
    """Nothing that was typed is lost, and nothing is sent twice."""
    gate = threading.Event()
    place.sim.push(Fault.hold(gate, after=4))

    async def play(app: Any) -> None:
        await app.send(NAME)
        await app.status("answering")
        await app.send("And now?")

        assert app.app._prompt.text == "And now?"
        assert "busy: Esc stops the reply" in app.lines[0]
        gate.set()
        await app.settle()
        await app.press("enter")
        await app.settle()
        assert app.app._prompt.text == ""

    place.run(play)
    assert [text for text in place.said() if text in (NAME, "And now?")] == [NAME, "And now?"]


# -------------------------------------------------------------------------------------------- tools


def test_a_tool_call_is_a_card(place: Any) -> None:
    """Its name, arguments and result stand in one box."""
    place.sim.push(Reply.calls(("look", '{"place": "Station"}')), Reply.text("A clock."))

    async def play(app: Any) -> None:
        await app.say("Look around.")

        assert "⚙ look · done" in app.text
        assert "place: Station" in app.text
        assert "The Station has a clock." in app.text

    place.run(play)


@pytest.mark.parametrize(("button", "state"), [(".approve", "done"), (".deny", "denied")])
def test_a_call_that_waits_has_two_buttons(button: str, state: str, place: Any) -> None:
    """Approve runs the call, Deny does not; the model goes on with either, and the card says which."""
    place.sim.push(OPEN, Reply.text("So be it."))

    async def play(app: Any) -> None:
        await app.say("Open the box.")
        assert "⚙ open_box · waits for your approval" in app.text
        assert "Approve" in app.text

        await app.pilot.click(button)
        await app.settle()

        assert f"⚙ open_box · {state}" in app.text
        assert "Approve" not in app.text
        assert ("It opens: a silver key." in app.text) is (state == "done")
        assert "So be it." in app.text

    place.run(play)


def test_two_calls_may_be_answered_at_once(place: Any) -> None:
    """An answer that is given while another one is carried out is not lost."""
    place.sim.push(
        Reply.calls(("open_box", '{"code": 1}'), ("open_box", '{"code": 1815}')), Reply.text("One of two.")
    )

    async def play(app: Any) -> None:
        await app.say("Try both.")
        for card in app.app.query("Card"):
            card.query_one(".deny" if "1815" not in card.call.arguments else ".approve").press()
        await app.pilot.pause()
        await app.settle()

        assert [card.call.state for card in app.app.query("Card")] == ["denied", "done"]
        assert "One of two." in app.text

    place.run(play)


def test_a_call_waits_for_the_next_program(place: Any) -> None:
    """The card and its buttons are there again after a restart, and /approve does what the button does."""
    place.sim.push(OPEN, Reply.text("So be it."))

    async def ask(app: Any) -> None:
        await app.say("Open the box.")

    async def answer(app: Any) -> None:
        assert "⚙ open_box · waits for your approval" in app.text
        await app.say("/approve")
        assert "It opens: a silver key." in app.text
        assert "So be it." in app.text

    place.run(ask)
    place.run(answer)


# ------------------------------------------------------------------------------------ conversations


def test_a_new_conversation_and_back(place: Any) -> None:
    """ctrl+n begins one, ctrl+o lists all; what is shown is always the one at hand."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.press("ctrl+n")
        await app.settle()
        assert app.lines[0].startswith(" chat-1 │ 0 turns")
        assert NAME not in app.text

        await app.say("I am Bob.")
        await app.press("ctrl+o")
        await app.pilot.pause()
        assert "Conversations" in app.text
        assert "ada, 1 turn" in app.text
        await app.press("down", "enter")
        await app.settle()

        assert app.lines[0].startswith(" ada │ 1 turn")
        assert NAME in app.text
        assert "I am Bob." not in app.text

    place.run(play)
    assert place.keys() == {"ada", "chat-1"}


def test_escape_leaves_the_list(place: Any) -> None:
    """Escape goes back to the same conversation."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.press("ctrl+o")
        await app.pilot.pause()
        await app.press("escape")
        await app.settle()

        assert app.lines[0].startswith(" ada │ 1 turn")
        assert "Conversations" not in app.text

    place.run(play)


@pytest.mark.parametrize(("key", "is_gone"), [("y", True), ("n", False), ("escape", False), ("enter", False)])
def test_reset_asks_first(key: str, is_gone: bool, place: Any) -> None:
    """ctrl+r asks; only a yes forgets the conversation."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.press("ctrl+r")
        await app.pilot.pause()
        assert "Forget conversation 'ada' with 1 turn?" in app.text
        await app.press(key)
        await app.settle()

        assert (NAME in app.text) is not is_gone

    place.run(play)
    assert (place.said() == []) is is_gone


def test_rewind_and_fork(place: Any) -> None:
    """/rewind takes the newest turn from the screen and the store; /fork goes on in a copy."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.say("Look at this.")
        await app.say("/fork")
        assert app.lines[0].startswith(" ada-2 │ 2 turns")
        await app.say("/rewind")
        assert "Look at this." not in app.text
        assert NAME in app.text

    place.run(play)
    assert "Look at this." in place.said("ada")
    assert "Look at this." not in place.said("ada-2")


def test_exports(place: Any, tmp_path: Path) -> None:
    """/export writes what the file's name asks for, and never over a file."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.say("/export")
        await app.say("/export copy.state")
        assert "Written to copy.state." in app.text
        await app.say("/export copy.state")
        assert "Failed: [Errno 17] File exists" in app.text

    place.run(play)
    assert NAME in (tmp_path / "ada.md").read_text("utf-8")
    assert read_history(load_state(tmp_path / "copy.state")).turns[0].messages[0].said == NAME
    assert (tmp_path / "copy.state").stat().st_mode & 0o077 == 0


def test_clear_clears_the_screen_only(place: Any) -> None:
    """/clear takes nothing from the conversation."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.say("/clear")
        assert NAME not in app.text
        await app.say("What is my name?")
        assert "Your name is Ada" in app.text

    place.run(play)


@pytest.mark.parametrize("command", ["/help", "/inspect", "/history", "/dance", "/event", "/event It rains."])
def test_a_command_never_goes_to_the_model(command: str, place: Any) -> None:
    """All of them answer on the screen."""

    async def play(app: Any) -> None:
        await app.say(NAME)
        count = len(place.sim.requests)
        await app.say(command)
        assert len(place.sim.requests) == count

    place.run(play)


# -------------------------------------------------------------------------------- text of all kinds


def test_pasted_lines_are_one_message(place: Any) -> None:
    """A paste is not sent line by line, whatever its line ends are; ctrl+j begins a line, too."""

    async def play(app: Any) -> None:
        await app.paste("one\r\ntwo\rthree")
        assert place.sim.requests == []
        await app.press("ctrl+j", "x", "enter")
        await app.settle()

    place.run(play)
    assert place.said()[0] == "one\ntwo\nthree\nx"


def test_text_of_every_script_is_shown(place: Any) -> None:
    """Wide letters, emoji and right-to-left text go to the model and come back as they are."""
    text = "日本語 שלום 👩‍🚀 é ü"
    place.sim.push(Reply.text(f"You said {text}"))

    async def play(app: Any) -> None:
        await app.say(text)
        assert "日本語" in app.text
        assert "שלום" in app.text
        assert app.text.count("👩") == 2

    place.run(play)
    assert place.said() == [text, f"You said {text}"]


def test_a_text_cannot_steer_the_terminal_or_the_app(place: Any) -> None:
    """Control characters are shown as escapes, and Textual's markup is text."""
    place.sim.push(Reply.text("\x1b[2J[bold red]not markup[/]"))

    async def play(app: Any) -> None:
        await app.say("[@click=app.quit]press[/] \x1b[31m")
        assert "[@click=app.quit]press[/]" in app.text
        assert "\\u001b[2J" in app.text
        assert "\x1b" not in app.text
        assert "[bold red]not markup" in app.text

    place.run(play)


def test_forty_columns_are_enough(place: Any) -> None:
    """On a narrow terminal the header takes more lines, and nothing is cut off."""
    place.sim.push(OPEN)

    async def play(app: Any) -> None:
        await app.say("Open the box, please: I have waited for it all day.")
        assert max(map(len, app.lines)) <= 40
        text = " ".join(app.text.split())
        assert "ada │ 0 turns" in text or "ada │ 1 turn" in text
        assert "ready" in app.text
        assert "⚙ open_box · waits" in app.text
        assert "Approve" in app.text

        await app.pilot.resize_terminal(100, 30)
        await app.pilot.pause()
        assert app.lines[0].endswith("│ ready")

    place.run(play, size=(40, 30))


def test_no_color_means_no_color(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR every colour on the screen is a grey."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def play(app: Any) -> None:
        await app.say(NAME)
        assert "your name is Ada" in app.text
        colours = {
            colour.triplet
            for strip in app.app.screen._compositor.render_strips()
            for segment in strip.apply_filter(app.app._filters[-1], app.app.screen.styles.background)
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None and colour.triplet is not None
        }
        assert colours
        assert all(max(colour) - min(colour) <= 1 for colour in colours)

    place.run(play)


# ------------------------------------------------------------------------------------ ends and failures


def test_a_provider_that_fails_is_told(place: Any) -> None:
    """The text says what happened and what to do; /resume asks again."""
    place.sim.push(Fault.server_error(), Fault.server_error(), Fault.server_error())

    async def play(app: Any) -> None:
        await app.say(NAME)
        assert "Your message is kept: /resume asks again." in app.text
        place.sim.clear()
        await app.say("/resume")
        assert "your name is Ada" in app.text

    place.run(play)


def test_quit_in_mid_answer_keeps_the_conversation(place: Any) -> None:
    """ctrl+q while a reply comes: the message is there when the app starts again, and can be answered."""
    gate = threading.Event()
    place.sim.push(Fault.hold(gate, after=4))

    async def leave(app: Any) -> None:
        await app.send(NAME)
        await app.status("answering")
        await app.press("ctrl+q")
        await app.settle()
        assert app.app._exit

    async def come_back(app: Any) -> None:
        assert NAME in app.text
        assert "The last turn is unfinished: /resume finishes it" in app.text
        await app.say("/resume")
        assert "your name is Ada" in app.text

    place.run(leave)
    gate.set()
    place.run(come_back)


def test_quit_while_a_question_is_open(place: Any) -> None:
    """ctrl+q above a question answers it with no, and ends the app."""

    async def leave(app: Any) -> None:
        await app.say(NAME)
        await app.press("ctrl+r")
        await app.pilot.pause()
        await app.press("ctrl+q")
        await app.settle()
        assert app.app._exit

    place.run(leave)
    assert place.said()[0] == NAME


def test_what_cannot_be_read_is_not_gone_to(place: Any) -> None:
    """A damaged conversation is told, stays as it is, and the one at hand goes on."""
    with SQLiteStore(place.path) as store:
        store.save("bad", b"damaged", expected=None)

    async def play(app: Any) -> None:
        await app.say(NAME)
        await app.say("/threads bad")
        assert "Failed: " in app.text
        assert app.lines[0].startswith(" ada │ 1 turn")
        await app.say("What is my name?")
        assert "Your name is Ada" in app.text

    place.run(play)
    with SQLiteStore(place.path) as store:
        stored = store.load("bad")
    assert stored is not None
    assert stored.blob == b"damaged"
