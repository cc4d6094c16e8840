"""What is imported is declared, and what a text tells to install brings what the code then imports."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from goaitools_py.cli.doctor import _EXTRAS, _NEEDED
from tests._packages import (
    NAME,
    NOT_DECLARED,
    ROOT,
    all_of,
    declared,
    distributions,
    extras_at,
    extras_of,
    plain,
)

PACKAGE = ROOT / "goaitools_py"

NOT_IMPORTED = {
    "asyncmy": "a driver that SQLAlchemy imports",
    "mypy": "a program",
    "prometheus-client": "a block of docs/telemetry.md imports it",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "a program",
    "wrapt": "a limit that the instrumentation needs",
}
"""Requirements of the tests."""

FILES = [path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))]
NAMED = re.compile(r"goaitools[-_]py\[([\w,-]+)\]")


def test_every_import_of_the_package_is_declared() -> None:
    """In the base, or in the extra that the file is of. What a row of the tables allows is needed."""
    imported: set[str] = set()
    for file in FILES:
        found = distributions(PACKAGE / file, {"goaitools_py"})
        extra = {name for one in extras_at(file) for name in declared(one)}
        assert found <= {*declared(), *extra, *NOT_DECLARED}, file
        imported |= found

    assert {*declared(), *(name for one in extras_of() for name in declared(one))} <= imported
    assert set(NOT_DECLARED) <= imported


def test_every_import_of_the_tests_is_declared() -> None:
    """Of the benchmarks and the examples, too. Other libraries that a benchmark measures are not needed."""
    folders = ("tests", "examples", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    own = {"goaitools_py", *folders, *(path.stem for path in files)}
    peers = {"agents", "langgraph", "pydantic_ai"}
    peers |= {f"langchain{name}" for name in ("", "_anthropic", "_core", "_openai")}
    imported = {name for path in files for name in distributions(path, own | peers)}
    test = {name for name in declared("test") if name != "goaitools-py"}
    every = {*declared(), *test, *(name for one in extras_of() for name in declared(one))}

    assert imported <= every
    assert test - imported == set(NOT_IMPORTED)
    assert declared("test")["goaitools-py"] == "goaitools-py[all,docs]"
    assert declared("all")["goaitools-py"] == f"goaitools-py[{','.join(extras_of())}]"


def _texts() -> list[Path]:
    sources = [path for folder in ("goaitools_py", "examples") for path in (ROOT / folder).rglob("*.py")]
    return [*sources, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]


def _cannot_be_followed(path: Path, found: re.Match[str]) -> bool:
    """Whether a text names an extra in a way that a shell or pip does not take."""
    text, extras = found.string, set(found[1].split(","))
    around = text[found.start() - 1], text[found.end()]
    is_command = "install " in text[found.start() - 10 : found.start()] or "'" in around
    return (
        not found[0].startswith("goaitools-py[")
        or not extras <= {*extras_of(), "all"}
        or (is_command and around != ("'", "'"))
        or (path.is_relative_to(PACKAGE) and not extras <= extras_at(path.relative_to(PACKAGE).as_posix()))
    )


def test_a_text_that_names_an_extra_can_be_followed() -> None:
    """The name of the distribution, extras that there are, and quotation marks that a shell needs."""
    found = [(path, one) for path in _texts() for one in NAMED.finditer(path.read_text(encoding="utf-8"))]

    assert len(found) > 30
    assert [(path, one[0]) for path, one in found if _cannot_be_followed(path, one)] == []


def test_an_error_names_the_extra_of_its_file() -> None:
    """The last argument of `missing_extra_error` is the extra."""
    named = re.compile(r'missing_extra_error\(error, "[\w.]+", "(\w+)"\)')
    found = [(file, one) for file in FILES for one in named.findall((PACKAGE / file).read_text("utf-8"))]

    assert len(found) > 5
    assert [one for one in found if one[1] not in extras_at(one[0])] == []


@pytest.mark.parametrize("extra", extras_of())
def test_an_extra_brings_what_its_files_import(extra: str) -> None:
    """Without what this environment has by chance, such as the extras of the tests."""
    brought = {plain(name) for name in all_of([f"goaitools-py[{extra}]"])}

    for file in FILES:
        if extras_at(file) == {extra}:
            assert distributions(PACKAGE / file, {"goaitools_py"}) <= {*brought, *NOT_DECLARED}, file


def test_the_doctor_names_what_is_declared() -> None:
    """It looks for each requirement of the base, and for a package of each extra."""
    assert {plain(name) for name in _NEEDED} == set(declared())
    assert set(_EXTRAS) == set(extras_of())
    for extra, package in _EXTRAS.items():
        assert plain(package) in declared(extra)


def test_every_requirement_has_a_lower_bound() -> None:
    """The bounds of the package are those that `.ci/long lowest` installs."""
    for extra in (None, *extras_of()):
        for line in declared(extra).values():
            assert re.fullmatch(NAME.pattern + r"(\[[\w,]+\])?>=[\d.]+(,<\d+)?", line), line


def test_imports_for_a_type_checker_do_not_count(tmp_path: Path) -> None:
    """Those are of stubs. Imports by name count."""
    file = tmp_path / "one.py"
    file.write_text(
        "import typing\nif typing.TYPE_CHECKING:\n    import redis\nelse:\n    import orjson\n"
        "def f():\n    importlib.import_module('msgspec')\n    from opentelemetry.sdk import trace\n"
    )

    assert distributions(file, set()) == {"orjson", "msgspec", "opentelemetry-sdk"}
    assert "typing" in sys.stdlib_module_names


def _rows_of_the_page() -> list[tuple[str, ...]]:
    """Each row of the table of dependencies: name, bound, extra, what for, what it spares, licence."""
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w-]+)` \| ([\d.]+) \| (\w*) \| (.+) \| (.*) \| (.+) \|$", page, re.M)


def test_the_page_of_versions_has_the_lower_bounds() -> None:
    """Each row of the table is a requirement with its bound and its extra, and says what it is for."""
    assert {row[:3] for row in _rows_of_the_page()} == {
        (name, line.partition(">=")[2].partition(",")[0], extra or "")
        for extra in (None, *extras_of())
        for name, line in declared(extra).items()
    }


def test_the_page_of_versions_has_the_licences() -> None:
    """As the installed distributions state them. The lowest ones may state fewer."""
    kinds = re.compile(r"\b(?:Apache|BSD|L?GPL|MIT|MPL)\b")
    for name, bound, *_, licence in _rows_of_the_page():
        found = metadata.metadata(name)
        stated = [found.get("License-Expression") or found.get("License") or ""]
        stated += [one for one in found.get_all("Classifier", []) if one.startswith("License")]
        named, given = set(kinds.findall(licence)), set(kinds.findall(" ".join(stated)))
        # The table is of the newest: the lowest version may state fewer licences.
        assert given == named or (given < named and metadata.version(name) == bound), name
