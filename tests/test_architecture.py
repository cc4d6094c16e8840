"""docs/architecture.md, the table of rooms and the tree of folders say the same."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from .test_imports import PACKAGE, ROOMS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def script_of(name: str) -> ModuleType:
    """A script of docs/; it is not part of any package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def draw_house() -> ModuleType:
    """The script that draws the picture."""
    return script_of("draw_house")


def section(heading: str) -> str:
    """The text under a heading of the page."""
    _, found, rest = PAGE.partition(f"\n## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def test_the_tables_of_the_reference_are_the_codes() -> None:
    """`python docs/write_tables.py` writes exactly what is committed."""
    script = script_of("write_tables")

    for name in script.TABLES:
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert script.written(name, page) == page, f"{name} is old: run `python docs/write_tables.py`"


def test_the_picture_is_the_tables() -> None:
    """`python docs/draw_house.py` writes exactly what is committed."""
    script = draw_house()

    assert script.table() == {name: row.split() for name, row in ROOMS.items()}
    assert script.PICTURE.read_text(encoding="utf-8") == script.drawn(script.table()), (
        "the table of rooms has changed: run `python docs/draw_house.py` and commit the picture"
    )


def test_imports_point_down_in_the_picture() -> None:
    """A room stands on a higher level than all rooms that it may import from."""
    script = draw_house()
    levels = script.levels(script.table())

    assert all(levels[name] > levels[other] for name, row in ROOMS.items() for other in row.split())


def test_the_page_has_a_row_for_each_folder() -> None:
    """The page's table, the package's folders, and the folders of the import table are the same."""
    rows = set(re.findall(r"^\| `(\w+)/` \|", section("The rooms"), re.MULTILINE))
    of_table = set(ROOMS) & FOLDERS
    placed = {folder for _, folders in draw_house().COLUMNS for folder in folders}

    assert rows == FOLDERS == of_table == placed


PROMISES = re.findall(
    r"^\| \*\*.*$", (ROOT / "docs" / "promises.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("line", PROMISES)
def test_a_promise_names_files_that_exist(line: str) -> None:
    """Each promise is kept somewhere, and tested somewhere."""
    _, _, kept, tested, _ = line.split("|")

    assert len(PROMISES) == 5
    for name in (files := re.findall(r"`([^`]+)`", kept)):
        assert (PACKAGE / name).exists(), name
    for name in (tests := re.findall(r"`([^`]+)`", tested)):
        assert (ROOT / name).is_file(), name
    assert files
    assert tests


def test_a_turn_as_data_names_files_that_exist() -> None:
    """The drawing of a turn is of this package."""
    named = set(re.findall(r"[a-z_]+(?:/[a-z_]+)*\.py", section("A turn as data")))

    assert len(named) > 8
    for name in named:
        assert (PACKAGE / name).exists(), name


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_is_short_and_whole(page: Path) -> None:
    """At most 40 lines, always in the same four sections, and in the list of all decisions."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)

    assert len(text.splitlines()) <= 40
    assert headings == ["Context", "Decision", "Tried and measured", "Consequences"]
    assert f"({page.name})" in (page.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [ROOT / "docs/architecture.md", ROOT / "docs/promises.md", *DECISIONS],
    ids=lambda page: page.stem,
)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """A path in backticks is a file or folder of the project or of the package."""
    for name in re.findall(r"`([\w./]+/[\w./]*|[\w/]+\.(?:py|md|svg))`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists() or (PACKAGE / name).exists(), name


def test_there_are_ten_decisions() -> None:
    """One page for each decision that looks odd."""
    assert len(DECISIONS) >= 10
