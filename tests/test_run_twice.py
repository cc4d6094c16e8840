"""What fails in a run is run once more, and what passes only then is counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import run_twice

FLAKY = """
from pathlib import Path

def test_good(): pass

def test_flaky():
    seen = Path(__file__).with_name("seen")
    was_there, _ = seen.exists(), seen.touch()
    assert was_there
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a test that fails the first time."""
    monkeypatch.setattr(run_twice, "ROOT", tmp_path)
    monkeypatch.setattr(run_twice, "FAILED", tmp_path / ".pytest_cache" / "v" / "cache" / "lastfailed")
    monkeypatch.setattr(run_twice, "NOTED", tmp_path / "build" / "noted.txt")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time of so small a run
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    return tmp_path


def run() -> int:
    return run_twice.main(["run", sys.executable, "-m", "pytest", "-q"])


def test_what_passes_the_second_time_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run passes; the report names the test, once."""
    assert run() == 0
    assert run_twice.main(["report"]) == 0
    assert "1 tests passed only the second time" in (told := capsys.readouterr().out)
    assert "test_flaky.py::test_flaky" in told

    assert run() == 0
    assert run_twice.main(["report"]) == 0
    assert "0 tests passed only the second time" in capsys.readouterr().out


def test_what_fails_twice_fails(project: Path) -> None:
    """It is not counted among those that passed at last, and these are still named."""
    (project / "test_broken.py").write_text("def test_broken(): assert False\n")

    assert run() == 1
    assert run_twice.NOTED.read_text() == "test_flaky.py::test_flaky\n"


def test_more_than_a_few_fail_the_report(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three may need a second run, four may not."""
    for count, code in ((3, 0), (4, 1)):
        run_twice.NOTED.parent.mkdir(exist_ok=True)
        run_twice.NOTED.write_text("".join(f"test_{number}\n" for number in range(count)))

        assert run_twice.main(["report"]) == code


def test_a_run_that_breaks_off_is_not_repeated(project: Path) -> None:
    """A file that cannot be read is no test that failed."""
    (project / "test_broken.py").write_text("nonsense(\n")

    assert run() == 2
    assert not (project / "seen").exists()
