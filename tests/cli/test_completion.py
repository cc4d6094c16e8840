"""`goaitools completion`: scripts with every command and every option, and bash as it uses them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from goaitools_py.cli import main
from goaitools_py.cli.table import COMMANDS

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def options(name: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The long options that the command's own help has."""
    assert main([name, "--help"]) == 0
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", capsys.readouterr().out.partition("options:")[2]))


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With its help, where the shell shows it."""
    text = script(shell, capsys)
    for name, command in COMMANDS.items():
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", text)
        assert shell == "bash" or command.help in text


@pytest.mark.parametrize("name", ["export", "upgrade", "doctor", "cost"])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_every_option_is_in_its_line(shell: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the command's help, beside the command's name."""
    lines = [line for line in script(shell, capsys).splitlines() if line.strip().startswith(f"{name})")]
    assert len(lines) == 1
    named = {option for option in options(name, capsys) if f" {option} " in f"{lines[0]} ".replace('"', " ")}
    assert {"--help", "--json"} <= named


def test_fish_has_a_line_for_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    """With -r where a value follows; the words of `store` and `completion` are offered."""
    lines = script("fish", capsys).splitlines()
    of_fork = [line for line in lines if "from fork'" in line]
    assert any(" -l to -r " in line for line in of_fork)
    assert any(" -s o -l out -r " in line for line in of_fork)
    assert any(" -l json -d " in line for line in of_fork)
    assert any("from completion' -f -a 'bash zsh fish'" in line for line in lines)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["goaitools", "ex"], ["export"]),
        (["goaitools", "re"], ["rewind", "redact"]),
        (["goaitools", "fork", "--t"], ["--table", "--thread", "--to"]),
        (["goaitools", "completion", ""], ["bash", "zsh", "fish", "-h", "--help"]),
        (["goaitools", "cost", "a.st"], ["a.state"]),
    ],
)
def test_bash_completes(
    typed: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real bash sources the script and is asked what it would offer."""
    bash = shutil.which("bash")
    assert bash is not None, "these tests run where bash is"
    (tmp_path / "a.state").write_bytes(b"")
    words = " ".join(f"'{word}'" for word in typed)
    asked = (
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; _goaitools; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ran = subprocess.run(
        [bash, "-c", f"{script('bash', capsys)}\n{asked}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.split() == expected


def test_another_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists those that are known."""
    assert main(["completion", "csh"]) == 2
    assert "bash" in capsys.readouterr().err
