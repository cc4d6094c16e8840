"""What a typed line means, and what the header says: pure functions."""

from __future__ import annotations

from decimal import Decimal

import pytest

from goaitools_py.cli.chat_input import COMMANDS, check_name, copy_name, free_name, help_lines, typed
from goaitools_py.cli.conversions import file_name
from goaitools_py.cli.summary_lines import HeaderFacts, clipped, dollars, gauge, header_lines, pretty, short
from goaitools_py.cli.text_output import WIDTH

# ------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("  Hello \n", ("", "Hello")),
        ("one\ntwo", ("", "one\ntwo")),
        ("/new", ("new", "")),
        ("/new  ada ", ("new", "ada")),
        ("/info", ("inspect", "")),
        ("/event It\nrains", ("event", "It\nrains")),
        ("/exit", ("quit", "")),
    ],
)
def test_a_line_is_a_message_or_a_command(line: str, read: tuple[str, str]) -> None:
    """A slash begins a command; its text is the rest; a text of several lines is one message."""
    assert typed(line) == read


@pytest.mark.parametrize("line", ["", "  ", "\n\n"])
def test_an_empty_line_is_nothing(line: str) -> None:
    """It is not sent."""
    assert typed(line) is None


@pytest.mark.parametrize(
    ("line", "told"), [("/dance", "no command /dance"), ("/event", "/event TEXT"), ("/", "no command /;")]
)
def test_a_command_that_cannot_be_is_told(line: str, told: str) -> None:
    """An unknown command, or one without the text that it needs, never becomes a message."""
    read = typed(line)

    assert read is not None
    assert read.command == "?"
    assert told in read.text


def test_the_help_has_every_command_and_fits() -> None:
    """One line or more for each, at most as wide as a terminal."""
    lines = list(help_lines())

    begun = [line.split()[0] for line in lines if line.startswith("  /")]
    assert begun == [f"/{command.name}" for command in COMMANDS]
    assert max(map(len, lines)) <= WIDTH == 80


# --------------------------------------------------------------------------------------------- header

FACTS = HeaderFacts(
    "ada: The journey", turns=12, tokens_in=32_100, tokens_out=950, context=5_000, fraction=0.34,
    cost=Decimal("0.01234"),
)  # fmt: skip


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40, 30])
def test_the_header_says_all_in_any_width(width: int) -> None:
    """A narrow terminal gets more lines; no fact is lost, and no line is longer than it."""
    lines = header_lines(FACTS, "ready", width)

    assert max(map(len, lines)) <= width
    facts = ["ada: The journey", "12 turns", "32.1k in 950 out", "███░░░░░ 34%", "$0.0123", "ready"]
    assert " │ ".join(lines).split(" │ ") == facts


def test_a_name_cannot_fill_the_header() -> None:
    """A long name is cut, and control characters and line breaks in it are not sent to the terminal."""
    (line,) = header_lines(HeaderFacts("a\nb\x1b" + "c" * 300), "ready", 80)

    assert line.startswith("a b\\u001bccc")
    assert "…" in line


def test_without_a_known_window_the_header_counts_tokens() -> None:
    """No bar is drawn of a part that is not known."""
    assert "context 5.0k" in header_lines(FACTS._replace(fraction=None), "ready", 100)[0]


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0.0, "░░░░ 0%"), (0.5, "██░░ 50%"), (1.0, "████ 100%"), (1.7, "████ 170%")],
)
def test_a_gauge_is_never_longer_than_itself(fraction: float, shown: str) -> None:
    """A history beyond the window fills it, and the number says how far beyond."""
    assert gauge(fraction, 4) == shown


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (999, "999"), (1_000, "1.0k"), (123_456, "123k"), (2_500_000, "2.5M")]
)
def test_numbers_are_short(number: int, shown: str) -> None:
    """Four digits at most, and a letter."""
    assert short(number) == shown


@pytest.mark.parametrize(
    ("cost", "shown"), [("0", "$0.00"), ("0.00006", "$0.0001"), ("1.239", "$1.24"), ("1234", "$1,234.00")]
)
def test_small_amounts_have_more_digits(cost: str, shown: str) -> None:
    """A turn of a hundredth of a cent is not free."""
    assert dollars(Decimal(cost)) == shown


# ---------------------------------------------------------------------------------------------- names


def test_names_are_free() -> None:
    """A new conversation and a copy get names that nothing has."""
    assert free_name({"chat-1", "ada"}) == "chat-2"
    assert copy_name("ada", {"ada", "ada-2"}) == "ada-3"
    assert copy_name("ada-2", {"ada", "ada-2"}) == "ada-3"


@pytest.mark.parametrize("name", ["a\nb", "\x1b", "x" * 513])
def test_a_name_is_one_line(name: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="one line"):
        check_name(name)


def test_a_file_name_holds_no_path() -> None:
    """A key with slashes or dots names a file in the current folder."""
    assert file_name("../etc/pass wd") == "_etc_pass_wd.md"
    assert file_name("///") == "_.md"


# ---------------------------------------------------------------------------------------------- cards


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"place": "Theatre", "codes": [1, 2]}', "place: Theatre, codes: [1, 2]"),
        ("", ""),
        ("{broken \x1b", "{broken \\u001b"),
        ("[1]", "[1]"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_are_shown_for_people(arguments: str, shown: str) -> None:
    """An object becomes names and values; all else is shown as it came."""
    assert pretty(arguments) == shown


def test_a_long_output_is_clipped() -> None:
    """The card says how much is left out."""
    assert clipped("1\n2\n3\n4", 2) == "1\n2\n… 2 lines more"
    assert clipped("1\n2", 2) == "1\n2"
