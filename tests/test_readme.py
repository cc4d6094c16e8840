"""The README and the pages beside it are run, not believed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from goaitools_py import Chat

from .stores._places import postgres_database

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").glob("*.md"))


def python_blocks(text: str) -> list[str]:
    """The fenced blocks of Python in a page."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)


WEBHOOK, HELLO, *OTHERS = python_blocks(README)


def printed_lines(code: str) -> list[str]:
    """What a block says that it prints: its lines that begin with ``#>``."""
    return [line.strip().removeprefix("#> ") for line in code.splitlines() if line.strip().startswith("#>")]


def section(heading: str) -> str:
    """The text under one second-level heading."""
    _, _, rest = README.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def offline() -> dict[str, str]:
    """The environment without anything that would choose a model, a store or a server."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("GOAITOOLS_", "OPENAI_"))
    }


def test_the_webhook_answers_each_message_once(tmp_path: Path) -> None:
    """Each delivery comes to a new process: what was answered is answered the same again, and tools run."""
    (tmp_path / "bot.py").write_text(f"{WEBHOOK}\nimport sys\nprint(*webhook(*sys.argv[1:]))\n", "utf-8")

    def deliver(message_id: str, text: str) -> str:
        return subprocess.run(
            [sys.executable, "bot.py", "ada", message_id, text],
            cwd=tmp_path,
            env=offline() | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    first = deliver("m1", "My name is Ada.")
    again = deliver("m1", "My name is Ada.")
    later = deliver("m2", "What is my name, and what is the score of Team Red?")

    assert first.startswith("200 [simulated] Noted: your name is Ada.")
    assert again == first
    assert "Your name is Ada." in later
    assert "30" in later


def test_the_webhook_is_fifteen_lines() -> None:
    """As its heading says."""
    assert sum(bool(line.strip()) for line in WEBHOOK.splitlines()) == 15


def test_the_first_conversation_survives_a_restart(tmp_path: Path) -> None:
    """Two processes run the block one after the other, and the second knows what the first was told."""
    (tmp_path / "hello.py").write_text(HELLO, encoding="utf-8")

    said = [
        subprocess.run(
            [sys.executable, "-W", "error", "hello.py"],
            cwd=tmp_path,
            env=offline() | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for _ in range(2)
    ]

    assert said[0].startswith("[simulated] Noted: your name is Ada.")
    assert said[1] == "[simulated] Your name is Ada.\n"


def test_the_first_conversation_is_short() -> None:
    """A conversation that survives a restart takes at most twelve lines."""
    assert len(HELLO.splitlines()) <= 12


def test_every_other_block_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blocks run in order, as one program, and print the lines that stand in their ``#>`` comments."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - offline().keys():
        monkeypatch.delenv(name)
    names: dict[str, object] = {"__name__": "readme"}
    printed = []

    try:
        for code in OTHERS:
            exec(compile(code, "README.md", "exec", dont_inherit=True), names)
            printed.append(capsys.readouterr().out.splitlines())
    finally:
        for value in names.values():
            if isinstance(value, Chat):
                value.close()

    assert printed == [printed_lines(code) for code in OTHERS]
    assert sum(map(len, printed)) > 8


@pytest.fixture
def private_postgres() -> Iterator[str]:
    """The URL of an empty PostgreSQL database, as drivers write it."""
    with postgres_database() as url:
        yield url.replace("postgresql+psycopg:", "postgresql:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_of_the_docs_does_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The blocks of a page run in order, as one program, and print the lines of their ``#>`` comments.

    A page that reads ``POSTGRES_URL`` is given a server's.
    """
    text = page.read_text(encoding="utf-8")
    blocks = python_blocks(text)
    env = offline() | {"PYTHONPATH": str(ROOT)}
    if "POSTGRES_URL" in text:
        env["POSTGRES_URL"] = request.getfixturevalue("private_postgres")
    end = "-- end of block --"
    (tmp_path / "page.py").write_text(f"\nprint({end!r})\n".join([*blocks, ""]), encoding="utf-8")

    ran = subprocess.run(
        [sys.executable, "-W", "error", "page.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 0, ran.stderr
    printed = [block.strip().splitlines() for block in ran.stdout.split(end)[:-1]]
    assert printed == [printed_lines(code) for code in blocks]


def test_a_recipe_is_short() -> None:
    """No block of the pages has more than twenty-five lines of code."""
    for page in PAGES:
        for code in python_blocks(page.read_text(encoding="utf-8")):
            lines = [line for line in code.splitlines() if line.strip() and not line.startswith("#>")]
            assert len(lines) <= 25, f"{page.name}: {lines[0]}"


@pytest.mark.parametrize("heading", ["Run", "Test"])
def test_a_section_is_one_line_of_shell(heading: str) -> None:
    """`## Run` and `## Test` hold exactly one fenced block each: shell, of one line."""
    fences = re.findall(r"^```(.*?)\n(.*?)^```$", section(heading), re.M | re.S)

    assert [language for language, _ in fences] == ["sh"]
    assert len(fences[0][1].splitlines()) == 1
    assert fences[0][1].startswith("python3 -m venv .venv && ")


def test_links_lead_somewhere() -> None:
    """Every relative link names a file of the repository."""
    for page in (ROOT / "README.md", *PAGES):
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))

        assert links or page.parent != ROOT
        assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_map_names_what_there_is() -> None:
    """The map names each module and folder at the package's top and in what it draws open, and no other."""
    drawn = section("A map of the package")
    top = ROOT / "goaitools_py"
    present = {
        path.name if path.is_file() else f"{path.name}/"
        for folder in (top, top / "turn", top / "state", top / "history", top / "backends")
        for path in folder.iterdir()
        if not path.name.startswith(("_", ".")) and (path.suffix == ".py" or (path / "__init__.py").exists())
    }

    named = set(re.findall(r"\w+\.py|\w+/", drawn.partition("The examples")[0])) - {"goaitools_py/"}

    assert named == present
