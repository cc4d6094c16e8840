"""The picture of the app on docs/terminal.md is what the app draws today."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_picture_shows_what_the_app_draws() -> None:
    """`python docs/draw_terminal.py` writes the same text as is committed, and no address of another host."""
    spec = importlib.util.spec_from_file_location("draw_terminal", ROOT / "docs" / "draw_terminal.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    committed = script.PICTURE.read_text(encoding="utf-8")

    shown = script.texts(committed)
    assert shown == script.texts(asyncio.run(script.drawn()))
    assert "Approve" in shown
    assert set(re.findall(r"https?://[^\s\"')]+", committed)) <= {"http://www.w3.org/2000/svg"}
