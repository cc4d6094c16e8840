"""The picture of the page in docs/page.md shows what the page shows today."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from types import ModuleType

import pytest

from .conftest import ROOT, installed


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """`docs/draw_page.py`."""
    spec = importlib.util.spec_from_file_location("draw_page", ROOT / "docs" / "draw_page.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_picture_shows_what_the_page_shows(script: ModuleType) -> None:
    """`python docs/draw_page.py` writes the same texts as are committed."""
    installed("page", "playwright-core")
    if script.CHROMIUM is None or shutil.which("node") is None:
        pytest.skip("no browser: `.ci/run` installs chromium and its driver")
    shown = script.texts(script.PICTURE.read_bytes())
    dark = script.texts(script.PICTURE.with_stem("page_dark").read_bytes())

    assert {*script.SAID, "needs your approval", "Approve", "Inspector", "Context"} <= set(shown)
    assert dark == shown
    assert [shown, shown] == [script.texts(picture) for picture in asyncio.run(script.drawn())]
