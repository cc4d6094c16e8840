"""Three small apps of users under pyright in its strict mode. mypy reads them with `tests/typing`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .conftest import ROOT, installed

APPS = ROOT / "tests" / "typing" / "apps"


def complaints(folder: Path) -> list[str]:
    """What pyright says of the files in a folder; it asserts that there are some."""
    settings: dict[str, Any] = {
        "include": ["*.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    program = installed("pyright", "pyright") / "node_modules" / "pyright" / "index.js"
    done = subprocess.run(
        ["node", str(program), "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py"))), done.stdout
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
    ]


def test_apps_of_users_are_clean(tmp_path: Path) -> None:
    """Nothing is unknown, partially unknown, or wrong; and a wrong line is found."""
    for app in APPS.glob("*.py"):
        (tmp_path / app.name).write_bytes(app.read_bytes())
    wrong = (APPS / "bot.py").read_text(encoding="utf-8").replace("send(text, turn_id=", "send(text, turn=")
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")

    found = complaints(tmp_path)

    assert found
    assert [one for one in found if not one.startswith("wrong.py:")] == []
    assert any('No overloads for "send"' in one for one in found)
