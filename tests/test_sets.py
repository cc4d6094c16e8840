"""The README's line and the rest of `.ci/run` together are all tests; `.ci/long` has all long forms."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from ._sets import HEAVY, SERVICE, SLOW
from .conftest import sample

TESTS = Path(__file__).parent
ROOT = TESTS.parent
MARKERS = ("quick", "heavy", "service")
PROGRAMS = re.compile(
    "AIMOCK|BENCHMARKS|CASES|CHROMIUM|FRONTENDS|LLAMA_.*|MCP|MODEL|PAGE_ONLY|RECORD|STORE|TEST_.*|.*_SEED|COVERAGE"
)
"""Variables that choose no long form, but a program, a place, a seed, or who runs the tests."""
PYTEST = re.compile(r"-m pytest (?P<options>.*)$", re.MULTILINE)


def expressions(text: str) -> list[str]:
    """The marker expression of every run of pytest in a text; "True" where a run names none."""
    found = [re.search(r'-m "([^"]+)"', run["options"]) for run in PYTEST.finditer(text)]
    return [one[1] if one else "True" for one in found]


def short_line() -> str:
    """The README's test line."""
    _, _, section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Test\n")
    return section.split("```")[1].removeprefix("sh\n").strip()


def test_nothing_is_left_out_of_both_runs() -> None:
    """Whatever markers a test has, the README's line or `.ci/run` selects it, and no test runs in both."""
    [short] = expressions(short_line())
    rest = [found for found in expressions((ROOT / ".ci/run").read_text(encoding="utf-8")) if found != "True"]

    assert len(rest) == 1
    for values in itertools.product([False, True], repeat=len(MARKERS)):
        markers = dict(zip(MARKERS, values, strict=True))
        selected = [eval(text, {}, markers) for text in (short, *rest)]
        assert selected.count(True) == 1, f"{markers} is in {selected.count(True)} of both runs"


def test_each_long_form_has_its_part() -> None:
    """A variable that makes a test longer is set in `.ci/long`, and what is set there is read by a test."""
    read = {
        name
        for path in TESTS.rglob("*.py")
        for name in re.findall(r"GOAITOOLS_([A-Z_]+)", path.read_text(encoding="utf-8"))
        if not PROGRAMS.fullmatch(name)
    }
    long = (ROOT / ".ci/long").read_text(encoding="utf-8")

    assert read == set(re.findall(r"GOAITOOLS_([A-Z_]+)=", long))
    assert [path for path in re.findall(r"tests/\S+", long) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [*HEAVY, *SERVICE, *SLOW])
def test_the_tables_name_what_is_there(name: str) -> None:
    """A file that has moved, or a test that has another name now, is not left out by its old name."""
    file, _, function = name.partition("::")

    assert (TESTS / file).exists()
    assert not function or f"def {function}(" in (TESTS / file).read_text(encoding="utf-8")


def test_a_test_has_one_marker_at_most(request: pytest.FixtureRequest) -> None:
    """The three sets do not overlap."""
    for item in request.session.items:
        found = [marker.name for marker in item.iter_markers() if marker.name in MARKERS]
        assert len(found) <= 1, item.nodeid


def test_a_sample_of_cases_is_the_same_each_time_and_keeps_the_quick_one() -> None:
    """`.ci/run` runs a sample of long tables, `.ci/long cases` all."""
    cases = [Case(f"tests/test_it.py::test_it[{number}]", number == 7) for number in range(40)]

    kept = sample(cases, 16)

    assert len(kept) == 16
    assert cases[7] in kept
    assert kept == sample(list(cases), 16)
    assert [case for case in kept if case in sample(cases, 5)] == sample(cases, 5)
    assert kept == sorted(kept, key=cases.index)
    assert sample(cases, 40) == cases
    heavy = [Case(f"tests/test_it.py::test_heavy[{number}]", False, "heavy") for number in range(40)]
    assert sample(heavy, 16) == heavy
    assert "GOAITOOLS_CASES=" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "cases()" in (ROOT / ".ci/long").read_text(encoding="utf-8")


class Case:
    """A case as pytest collects it, with one marker or none."""

    def __init__(self, nodeid: str, is_quick: bool, marker: str = "") -> None:
        self.nodeid = nodeid
        self._marker = "quick" if is_quick else marker

    def get_closest_marker(self, name: str) -> object:
        return name if name == self._marker else None
