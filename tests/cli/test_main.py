"""The command `goaitools` itself: what it offers, and its exit codes."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import goaitools_py
from goaitools_py.cli import main
from goaitools_py.cli.table import COMMANDS
from goaitools_py.states import state_from_messages

ROOT = Path(__file__).resolve().parents[2]


def test_alone_it_prints_its_help_as_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """No command is exit code 2, with every command named on standard error."""
    code = main([])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert all(re.search(rf"\n    {command}\s", err) for command in COMMANDS)


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """--help prints to standard output and is exit code 0."""
    assert main(["--help"]) == 0
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_help_fits_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal of that width; each command has a description."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*([name] if name else []), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 6


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers that run something: of the commands, and of their actions where they have some."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for word, child in action.choices.items():
            yield from leaves(child, f"{name} {word}".strip())
    if not inner:
        yield name, parser


def test_every_command_has_json() -> None:
    """Every command and every action of one, without an exception: `completion` gives its script as a value,
    `sim` its addresses, and `chat` the reply of --once."""
    root = argparse.ArgumentParser()
    commands = root.add_subparsers()
    for command in COMMANDS.values():
        command.add(commands)

    found = dict(leaves(root, ""))

    assert {"store init", "store migrate", "demo", "completion"} <= found.keys()
    assert [name for name, parser in found.items() if "--json" not in parser._option_string_actions] == []


def test_help_imports_no_command() -> None:
    """`goaitools --help` loads the table and none of the modules behind it."""
    program = (
        "import sys\nfrom goaitools_py.cli import main\nmain(['--help'])\nprint(*sys.modules, sep='\\n')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in ran.stdout.split() if name.startswith("goaitools_py.cli.")}
    assert loaded == {"goaitools_py.cli.table"}


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version of the package."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"goaitools {goaitools_py.__version__}\n"


@pytest.mark.parametrize(
    "argv", [["dance"], ["chat", "--colour"], ["sim", "--port", "http"], ["sim", "--port", "65536"]]
)
def test_what_no_command_knows_is_a_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown commands, options and values are exit code 2, and say so."""
    assert main(argv) == 2
    assert "usage: goaitools" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "advice"),
    [
        (["cost", "--store", "sqlite:///a.db", "--prefix", "ada"], "--prefix goes with --all"),
        (["export", "a.bin", "--markdown", "--json"], "give one of them"),
        (["chat", "--model", "sim:foo"], "'sim:openai', 'sim:openai-responses', 'sim:anthropic'"),
    ],
)
def test_options_that_do_not_fit_are_told(
    argv: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that would do nothing is a usage error."""
    assert main(argv) == 2
    assert advice in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [["inspect", "gone"], ["export", "gone"], ["store", "migrate", "sqlite:///gone", "--dry-run"]],
)
def test_a_file_that_is_not_there_is_named(
    argv: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 1
    told = capsys.readouterr().err
    assert "gone" in told
    assert "Errno" not in told


def test_the_script_is_the_command() -> None:
    """The package installs `goaitools`, which is this function."""
    (entry,) = entry_points(group="console_scripts", name="goaitools")
    assert entry.load() is main


def test_the_module_runs_as_the_command() -> None:
    """``python -m goaitools_py`` is the same command."""
    ran = subprocess.run(
        [sys.executable, "-m", "goaitools_py", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout) == (0, f"goaitools {goaitools_py.__version__}\n")


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    """`goaitools … | head -0` ends without a traceback."""
    blob = tmp_path / "state.bin"
    blob.write_bytes(state_from_messages("openai", [{"role": "user", "content": "x"}]))
    with subprocess.Popen(
        [sys.executable, "-m", "goaitools_py", "inspect", str(blob)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaints = process.stderr.read()

        assert process.wait(60) == 1
    assert complaints == ""
