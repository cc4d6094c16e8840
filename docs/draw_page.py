"""Draws `docs/page.png` and `docs/page_dark.png`: the page of `goaitools serve --demo`, as Chromium shows it.

    python docs/draw_page.py       # writes the pictures; a test fails while the page shows other text

It needs node, Chromium (Debian's, or `GOAITOOLS_CHROMIUM`) and the driver that `.ci/run` installs into
`build/frontends/page`. The texts that can be seen stand in the picture's file, too, as a text chunk of PNG.

Owns: what is said in the picture, and its texts. Must never know: how the page draws.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import struct
import tempfile
import zlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PICTURE: Final = HERE / "page.png"
DRIVER: Final = Path(os.environ.get("GOAITOOLS_FRONTENDS") or HERE.parent / "build" / "frontends") / "page"
CHROMIUM: Final = os.environ.get("GOAITOOLS_CHROMIUM") or shutil.which("chromium")
SAID: Final = (
    "My name is Ada. Look around the Theatre.",
    "What is my name, and what happened?",
    "Add points to Red: 5.",
)
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_NAME: Final = b"Description"


async def drawn() -> tuple[bytes, bytes]:
    """The picture as PNG, light and dark, each with its texts."""
    import uvicorn

    from goaitools_py.cli.demo_game import HINTS, demo_chat
    from goaitools_py.serve.page.page_app import PageSettings, page_app
    from goaitools_py.stores import AsyncMemoryStore

    settings = PageSettings(model="simulator", is_simulated=True, hints=HINTS)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        app = page_app(demo_chat(stack), AsyncMemoryStore(), settings)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        picture = Path(folder, "page.png")
        try:
            node = await asyncio.create_subprocess_exec(
                "node", HERE / "draw_page.mjs", DRIVER, str(CHROMIUM), url, picture, *SAID,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, wrong = await node.communicate()
        finally:
            server.should_exit = True
            await task
        if node.returncode:
            raise RuntimeError(wrong.decode())
        shown = [_steady(text) for text in json.loads(out)]
        dark = picture.with_stem("page_dark").read_bytes()
        return _with_texts(picture.read_bytes(), shown), _with_texts(dark, shown)


def _steady(text: str) -> str:
    """The text without a duration, which is another one each time."""
    return re.sub(r"\d+ ms|\d+\.\d s", "… ms", text)


def _with_texts(png: bytes, shown: list[str]) -> bytes:
    """The picture with the texts before its last chunk."""
    chunk = _NAME + b"\0\0\0\0\0" + "\n".join(shown).encode()
    end = len(png) - 12
    checked = b"iTXt" + chunk
    added = struct.pack(">I", len(chunk)) + checked + struct.pack(">I", zlib.crc32(checked))
    return png[:end] + added + png[end:]


def texts(png: bytes) -> list[str]:
    """What can be read in the picture, piece by piece."""
    at = len(_SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        if kind == b"iTXt" and data.startswith(_NAME):
            return data[len(_NAME) + 5 :].decode().split("\n")
        at += size + 12
    return []


if __name__ == "__main__":
    light, dark = asyncio.run(drawn())
    PICTURE.write_bytes(light)
    PICTURE.with_stem("page_dark").write_bytes(dark)
