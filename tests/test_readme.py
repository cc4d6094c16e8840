"""The README and the pages beside it are run, and their tables are compared with the code."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from goaitools_py import Chat
from goaitools_py.cli import _parser
from goaitools_py.cli import table as commands
from goaitools_py.cli.chat_input import COMMANDS
from goaitools_py.types import errors, events
from goaitools_py.types.options import OPTION_NAMES, resolve

from .stores._places import postgres_database

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TOP = [page for page in PAGES if page.parent == ROOT / "docs"]


def python_blocks(text: str) -> list[str]:
    """The fenced blocks of Python in a page."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


HELLO, BOT = python_blocks(README)


def printed_lines(code: str) -> list[str]:
    """What a block says that it prints: its lines that begin with ``#>``."""
    return [line.strip().removeprefix("#> ") for line in code.splitlines() if line.strip().startswith("#>")]


def code_lines(code: str) -> list[str]:
    """The lines of a block that are neither empty nor say what is printed."""
    return [line for line in code.splitlines() if line.strip() and not line.strip().startswith("#>")]


def section(heading: str) -> str:
    """The text under one second-level heading."""
    _, _, rest = README.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def offline() -> dict[str, str]:
    """The environment without anything that would choose a model, a store or a server."""
    chosen = {
        name: value for name, value in os.environ.items() if not name.startswith(("GOAITOOLS_", "OPENAI_"))
    }
    return chosen | {"PYTHONPATH": str(ROOT)}


def run(file: str, folder: Path, *arguments: str, says: str = "") -> str:
    """What a program prints, in a process of its own where warnings are errors."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", file, *arguments],
        cwd=folder,
        env=offline(),
        input=says,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# ------------------------------------------------------------------------------------------- README


def test_the_readme_can_be_read() -> None:
    """It has at most 150 lines, a first program of ten and a recipe of fifteen."""
    assert len(README.splitlines()) <= 150
    assert len(HELLO.splitlines()) <= 10
    assert len(code_lines(BOT)) <= 15


def test_the_first_program_remembers(tmp_path: Path) -> None:
    """It talks, stops and starts: the second process knows what the first was told."""
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")

    first = run("hello.py", tmp_path, says="My name is Ada.\n\n")
    second = run("hello.py", tmp_path, says="What is my name?\n\n")

    assert first.startswith("you: [simulated] Noted: your name is Ada.")
    assert second == "you: [simulated] Your name is Ada.\nyou: "


def test_the_bot_answers_each_message_once(tmp_path: Path) -> None:
    """Each delivery comes to a new process. What comes twice gets its reply again; tools run."""
    (tmp_path / "bot.py").write_text(f"{BOT}\nimport sys\nprint(*webhook(*sys.argv[1:]))\n", "utf-8")

    first = run("bot.py", tmp_path, "ada", "m1", "My name is Ada.")
    again = run("bot.py", tmp_path, "ada", "m1", "My name is Ada.")
    later = run("bot.py", tmp_path, "ada", "m2", "What is my name, and what is the score of Team Red?")

    photo = run("bot.py", tmp_path, "ada", "m3", "")

    assert first.startswith("200 [simulated] Noted: your name is Ada.")
    assert photo.startswith("200 ")
    assert again == first
    assert "Your name is Ada." in later
    assert "30" in later


@pytest.mark.parametrize("heading", ["Run", "Test"])
def test_a_section_is_one_line_of_shell(heading: str) -> None:
    """`## Run` and `## Test` hold exactly one fenced block each: shell, of one line."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```$", section(heading), re.M | re.S)

    assert [language for language, _ in fences] == ["sh"]
    assert len(fences[0][1].splitlines()) == 1
    assert fences[0][1].startswith("python3 -m venv .venv && ")


def test_each_page_is_linked() -> None:
    """From the README a reader comes to the index of pages and to the list of examples, which have all."""
    programs = {path.stem for path in (ROOT / "examples").glob("*.py") if path.stem[0] != "_"}
    listed = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    pages = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")

    assert {"docs/index.md", "examples/README.md"} <= set(re.findall(r"\]\(([^)#]+)", README))
    assert programs - set(re.findall(r"\]\((\w+)\.py\)", listed)) == set()
    assert {page.name for page in TOP} - {"index.md"} - set(re.findall(r"\]\((\w+\.md)\)", pages)) == set()


# -------------------------------------------------------------------------------------------- pages


@pytest.fixture
def private_postgres() -> Iterator[str]:
    """The URL of an empty PostgreSQL database, as drivers write it."""
    with postgres_database() as url:
        yield url.replace("postgresql+psycopg:", "postgresql:")


RUN = ("docs", "start", "how_to")
"""Folders of pages with programs."""


def page_id(page: Path) -> str:
    """The path of a page below docs/, for the name of a test."""
    return page.stem if page.parent in (ROOT, ROOT / "docs") else f"{page.parent.name}/{page.stem}"


OWN_PROCESS = {"columns", "django", "how_to/django_site", "postgres"}
"""Pages that set up what a process has once, such as Django, or that need a database."""


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page_id(page) not in OWN_PROCESS and page.parent.name in RUN],
    ids=page_id,
)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks of a page run in order, as one program, and print the lines of their ``#>`` comments."""
    blocks = python_blocks(page.read_text(encoding="utf-8"))
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - offline().keys():
        monkeypatch.delenv(name)
    names: dict[str, object] = {"__name__": "page"}
    printed = []

    try:
        for code in blocks:
            exec(compile(code, str(page), "exec", dont_inherit=True), names)
            printed.append(capsys.readouterr().out.splitlines())
    finally:
        for value in names.values():
            if isinstance(value, Chat):
                value.close()

    assert printed == [printed_lines(code) for code in blocks]


@pytest.mark.service
@pytest.mark.parametrize("name", sorted(OWN_PROCESS))
def test_a_page_does_what_it_says_in_a_process_of_its_own(
    name: str, tmp_path: Path, private_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a page that needs a process of its own. ``POSTGRES_URL`` is an empty database."""
    blocks = python_blocks((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    monkeypatch.setenv("POSTGRES_URL", private_postgres)
    end = "-- end of block --"
    (tmp_path / "page.py").write_text(f"\nprint({end!r})\n".join([*blocks, ""]), encoding="utf-8")

    printed = [block.strip().splitlines() for block in run("page.py", tmp_path).split(end)[:-1]]

    assert printed == [printed_lines(code) for code in blocks]


def test_a_block_is_short() -> None:
    """No block of the pages has more than twenty-five lines of code, and none is left out of the run."""
    for page in (ROOT / "README.md", *PAGES):
        assert re.findall(r"^```python[^\n]+$", page.read_text(encoding="utf-8"), re.M) == [], page.name
        for code in python_blocks(page.read_text(encoding="utf-8")):
            assert len(code_lines(code)) <= 25, f"{page.name}: {code_lines(code)[0]}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository, and a heading that the file has."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", page.read_text(encoding="utf-8"))

    broken = [link for link, _ in links if not (page.parent / link).exists()]
    lost = [
        f"{link}#{anchor}"
        for link, anchor in links
        if anchor and link not in broken and anchor not in anchors(page.parent / link if link else page)
    ]

    assert broken == []
    assert lost == []


# ------------------------------------------------------------------------------------------- tables

# A comment such as ``<!-- fields: goaitools_py.ChatResult -->`` stands above each table that is compared.
_TABLE = re.compile(r"^<!-- (\w+)(?:: ([\w. ]+))? -->\n\n((?:\|.*\n)+)", re.M)
TABLES = {
    (kind, names): table
    for page in PAGES
    for kind, names, table in _TABLE.findall(page.read_text(encoding="utf-8") + "\n")
}


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]


def names_in(cell: str) -> list[str]:
    """The names in a cell, such as a and b in ```a`, `b(1)```."""
    return re.findall(r"`(\w+)(?:\([^`]*\))?`", cell)


def first_names(table: str) -> set[str]:
    """The names in the first column."""
    return {name for cells in rows(table) for name in names_in(cells[0])}


def found(dotted: str) -> Any:
    """What a dotted name stands for."""
    top, *rest = dotted.split(".")
    value: Any = importlib.import_module(top)
    for name in rest:
        if inspect.ismodule(value) and not hasattr(value, name):
            importlib.import_module(f"{value.__name__}.{name}")
        value = getattr(value, name)
    return value


def fields_of(owner: type) -> set[str]:
    """The public fields and properties of a value."""
    names = set(getattr(owner, "__struct_fields__", ()))
    if dataclasses.is_dataclass(owner):
        names |= {field.name for field in dataclasses.fields(owner)}
    names |= {
        name
        for base in owner.__mro__
        if base.__module__.startswith("goaitools_py")
        for name, value in vars(base).items()
        if isinstance(value, (property, cached_property))
    }
    return {name for name in names if not name.startswith("_")}


def attributes_of(owner: type) -> set[str]:
    """What an error adds to its bases: annotations, properties, and the keywords that it is made with."""
    made_with = inspect.signature(owner).parameters if "__init__" in vars(owner) else {}
    properties = {name for name, value in vars(owner).items() if isinstance(value, property)}
    inherited = {name for base in owner.__mro__[1:] for name in inspect.get_annotations(base)}
    return {*inspect.get_annotations(owner), *properties, *made_with} - inherited - {"message"}


_COMPARED = {
    "fields": fields_of,
    "attributes": attributes_of,
    "parameters": lambda owner: {
        name
        for name, parameter in inspect.signature(owner).parameters.items()
        if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY and name not in ("self", "misplaced")
    },
    "methods": lambda owner: {name for name, value in vars(owner).items() if isinstance(value, classmethod)},
    "codes": lambda owner: set(get_args(get_type_hints(owner)["code"])),
}
MUST_BE_THERE = {
    "fields": """
        ChatOptions ModelSettings Limits ChatResult Usage ToolRecord ToolCall PendingCall Message ToolContext
        compaction.CompactionReport types.citations.Citation states.StateInfo states.History
        states.HistoryTurn states.HistoryIteration prices.Charge seal.BlobLimits stores.Stored
        stores.StoredPage
        """,
    "attributes": "GoAIToolsError TurnError",
    "parameters": "tool Chat.conversation backends.OpenAIChatBackend",
    "methods": "sim.Fault",
    "codes": "TurnWarning",
}


def test_what_must_have_a_table_has_one() -> None:
    """Options, settings, limits, results, histories, errors and faults have one, and so have the events."""
    wanted = {
        (kind, f"goaitools_py.{name}") for kind, names in MUST_BE_THERE.items() for name in names.split()
    }

    assert wanted - TABLES.keys() == set()
    assert {("events", ""), ("errors", "")} <= TABLES.keys()


@pytest.mark.parametrize(("kind", "names"), [key for key in TABLES if key[0] in _COMPARED])
def test_a_table_names_what_there_is(kind: str, names: str) -> None:
    """A new field without a line in its table fails, and so does a line without a field."""
    owners = [found(name) for name in names.split()]
    there = set().union(*map(_COMPARED[kind], owners))
    methods = {name for owner in owners if kind == "fields" for name in dir(owner) if name[0] != "_"}

    written = first_names(TABLES[kind, names])

    assert sorted(there - written) == []
    assert sorted(written - there - methods) == []


def test_the_table_of_events_names_each_field() -> None:
    """Each event has a row for each of its fields, and "each event" for what all of them have."""
    written: dict[str, list[str]] = {}
    for event, _, field, _ in rows(TABLES["events", ""]):
        if event:
            written[current := event.strip("`")] = []
        written[current] += names_in(field)

    common = list(events.Event.__struct_fields__)
    there = {
        name: [field for field in getattr(events, name).__struct_fields__ if field not in common]
        for name in events.__all__
    }

    assert written.pop("each event") == common
    del there["Event"]
    assert {name: sorted(fields) for name, fields in written.items()} == {
        name: sorted(fields) for name, fields in there.items()
    }


def test_the_table_of_errors_names_each_error() -> None:
    """Each error that a caller may get has a row; the bases of the tree, and what tools raise, have none."""
    bases = {"GoAIToolsError", "StateError", "TurnError", "StoreError", "ToolError", "AbortTurn"}

    written = {
        name for name in first_names(TABLES["errors", ""]) if name.endswith("Error") and name != "TypeError"
    }

    assert written - {"ValueError"} == set(errors.__all__) - bases


def test_the_pages_of_the_command_line_name_each_option() -> None:
    """Each option of each command has a line, and so has each command of a chat's line; no other has one."""
    pages = ("command_line.md", "terminal.md")
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages)
    parsers = [_parser(named) for named in ([], *([name] for name in commands.COMMANDS))]
    known = {"--help", *(f"/{command.name}" for command in COMMANDS)}
    while parsers:
        for action in parsers.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            elif action.help != argparse.SUPPRESS:
                known |= set(action.option_strings)

    named = set(re.findall(r"(?<![\w/])(?:--[a-z][a-z-]+|/[a-z]+)(?=[ `\]])", page))

    assert named == {name for name in known if name[0] in "-/"} - {"-h", "-o", "--help"}


def test_the_table_of_options_gives_their_defaults() -> None:
    """A default in the table is the one that holds when nothing is given."""
    defaults = resolve({}, {})
    special = {"tool_threads", "conversation_id", "settings"}  # of the chat's colour; random; merged

    for option, written, _ in rows(TABLES["fields", "goaitools_py.ChatOptions"]):
        (name,) = names_in(option)
        value = getattr(defaults, name)
        shown = "none" if value is None else f"{value:,}" if type(value) is int else str(value)
        if isinstance(value, str):
            shown = f'"{value}"'
        if name not in special:
            assert written.strip("`") == shown, name
    assert len(OPTION_NAMES) == len(rows(TABLES["fields", "goaitools_py.ChatOptions"]))
