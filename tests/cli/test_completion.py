"""`goaitools completion`: scripts with every command and every option, and bash as it uses them."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pyte
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
    of_fork = [line for line in lines if "runs fork'" in line]
    assert any(" -l to -r " in line for line in of_fork)
    assert any(" -s o -l out -r " in line for line in of_fork)
    assert any(" -l json -d " in line for line in of_fork)
    assert any("runs completion' -f -a 'bash zsh fish'" in line for line in lines)


def _files(folder: Path) -> None:
    for name in ("a.state", "a b.state"):
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["goaitools", "ex"], ["export"]),
        (["goaitools", "re"], ["rewind", "redact"]),
        (["goaitools", "fork", "--t"], ["--table", "--thread", "--to"]),
        (["goaitools", "completion", ""], ["bash", "zsh", "fish", "-h", "--help", "--json"]),
        (["goaitools", "cost", "a.st"], ["a.state"]),
        (["goaitools", "cost", "a b"], ["a b.state"]),
        (["goaitools", "export", "--out", ""], ["a b.state", "a.state"]),
        (["goaitools", "convert", "--to", "open"], ["openai", "openai-responses"]),
        (["goaitools", "import", "--seal", ""], ["signed", "encrypted", "client"]),
    ],
)
def test_bash_completes(
    typed: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real bash sources the script and is asked what it would offer."""
    bash = shutil.which("bash")
    assert bash is not None, "these tests run where bash is"
    _files(tmp_path)
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
    assert sorted(ran.stdout.splitlines()) == sorted(expected)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("goaitools ex", ["export"]),
        ("goaitools --v", ["--version"]),
        ("goaitools fork --t", ["--table", "--thread", "--to"]),
        ("goaitools completion ", ["bash", "fish", "zsh"]),
        ("goaitools cost a.st", ["a.state"]),
        ("goaitools convert --to open", ["openai", "openai-responses"]),
        ("goaitools inspect export --mark", []),  # a file that is called as a command
    ],
)
def test_fish_completes(
    typed: str, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real fish is asked what it would offer."""
    _files(tmp_path)
    (tmp_path / "script").write_text(script("fish", capsys))
    ran = subprocess.run(
        ["fish", "--no-config", "-c", f"source script; complete -C'{typed}'"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.partition("\t")[0] for line in ran.stdout.splitlines()] == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real zsh on a pseudo-terminal completes what is typed before each Tab."""
    _files(tmp_path)
    (tmp_path / "script").write_text(script("zsh", capsys))
    with _Zsh(tmp_path) as zsh:
        zsh.type("autoload -Uz compinit && compinit -u -D && source ./script; echo RE''ADY\n")
        zsh.wait_for("READY")
        for typed, completed in (
            ("goaitools exp", "goaitools export"),
            ("goaitools fork --thr", "goaitools fork --thread"),
            ("goaitools completion fi", "goaitools completion fish"),
            ("goaitools convert --to anth", "goaitools convert --to anthropic"),
            ("goaitools cost a.s", "goaitools cost a.state"),
        ):
            zsh.type(f"{typed}\t")
            zsh.wait_for(completed)
            zsh.type("\x15")  # Ctrl-U takes the line away


class _Zsh:
    """A shell on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        import pty  # not at the top: Windows has none, and reads this file

        environment = {**os.environ, "HOME": str(folder), "TERM": "xterm", "PS1": "$ "}
        self._ours, its = pty.openpty()
        self._process = subprocess.Popen(
            ["zsh", "-f", "-i"], cwd=folder, env=environment, start_new_session=True,
            stdin=its, stdout=its, stderr=its,
        )  # fmt: skip
        os.close(its)
        self._screen = pyte.Screen(200, 50)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> _Zsh:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._ours, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until the screen has this text."""
        ends = time.monotonic() + 60
        while text not in "\n".join(self._screen.display):
            readable = select.select([self._ours], [], [], max(0.0, ends - time.monotonic()))[0]
            assert readable, (text, [line.rstrip() for line in self._screen.display])
            self._stream.feed(os.read(self._ours, 65536))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_as_json(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--json gives the same script as a value."""
    printed = script(shell, capsys)

    assert main(["completion", shell, "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": printed}


def test_another_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists those that are known."""
    assert main(["completion", "csh"]) == 2
    assert "bash" in capsys.readouterr().err
