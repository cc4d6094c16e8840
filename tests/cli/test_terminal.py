"""Text on a terminal: what it may hold, and how it is laid out."""

from __future__ import annotations

import pytest

from goaitools_py.cli.text_output import WIDTH, columns, counted, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\u001b[2J"),
        ("a\rb\x07", "a\\u000db\\u0007"),
        ("\x9b31m", "\\u009b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_would_steer_the_terminal_is_escaped(text: str, shown: str) -> None:
    """Control characters, direction marks and lone surrogates become visible."""
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "line\n\tline", "Ä ☃ 😀", "👩\u200d🚀", "שלום"])
def test_ordinary_text_stays(text: str) -> None:
    """Letters of every script, emoji, line breaks and tabs pass."""
    assert printable(text) == text


def test_columns_align_and_wrap() -> None:
    """The label stands once; every line begins in the same column and ends within the width."""
    lines = list(columns("user", "word " * 60, width=10))

    assert lines[0].startswith("  user      word")
    assert all(line.startswith(" " * 12 + "word") for line in lines[1:])
    assert max(map(len, lines)) <= WIDTH


def test_columns_keep_line_breaks() -> None:
    """Each line of the text is a line of its own, empty ones too."""
    assert list(columns("a", "1\n\n2", width=3)) == ["  a  1", "", "     2"]


@pytest.mark.parametrize(("number", "text"), [(0, "0 turns"), (1, "1 turn"), (1204, "1,204 turns")])
def test_a_number_has_its_noun(number: int, text: str) -> None:
    """One is singular, all else plural, thousands have a comma."""
    assert counted(number, "turn") == text
