"""The example in C# compiles and talks to a running server, also over a bad network. Mono is Debian's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from goaitools_py import AsyncChat, tool
from goaitools_py.serve import serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._running import running
from ._weather import BAD, Weather
from ._world import World

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "csharp"
JSON = Path("/usr/lib/cli/Newtonsoft.Json-5.0/Newtonsoft.Json.dll")


@tool(external=True)
def roll(sides: int) -> int:
    """Roll a die of the game."""
    raise AssertionError


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example."""
    if shutil.which("mcs") is None or not JSON.exists():
        pytest.skip("no compiler of C#: `.ci/run` installs mono-mcs and libnewtonsoft-json5.0-cil")
    folder = tmp_path_factory.mktemp("csharp")
    shutil.copy(JSON, folder)
    out = folder / "Program.exe"
    sources = [str(EXAMPLE / name) for name in ("Npc.cs", "Program.cs")]
    command = ["mcs", "-warnaserror", f"-out:{out}", f"-r:{JSON}", "-r:System.Net.Http.dll", *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.parametrize("answers", [(), BAD])
def test_the_character_talks_over_a_bad_network(program: Path, answers: tuple[str, ...]) -> None:
    """Each bad answer is a wait. A turn that was done when its answer was lost asks no model again."""
    script = ScriptedBackend("Well met.", Calls([("roll", {"sides": 6})]), "A five!")
    app = Weather(serve(AsyncChat(script, tools=[roll]), AsyncMemoryStore(), key=World.whose), *answers)

    with running(app) as url:
        done = subprocess.run(
            ["mono", str(program), url, "game"], capture_output=True, text=True, timeout=120
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "left: nothing",
        "said: Well met.",
        f"waited: {len(answers)}",
        "said: A five!",
        "problem: 404 False",
    ]
    assert app.left == []
    assert len(script.requests) == 3
