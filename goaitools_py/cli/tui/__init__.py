"""The chat app on a terminal, drawn with Textual (the extra `tui`).

Owns: how the app is started and ended. Must never know: a widget. Textual is loaded when the app starts.
Begin with `chat_app.py`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..chat_options import Opening

__all__ = ["run_app"]


def run_app(opening: Opening) -> int:
    """Show the app until the user quits. The exit code is 1 if the last turn failed, or was not saved."""
    chat = opening.async_chat()

    async def run() -> int:
        from .chat_app import ChatApp

        async with opening.async_store() as store, chat:
            app = ChatApp(
                chat,
                store,
                opening.key,
                codec=opening.codec,
                check=lambda key, blob: opening.check(chat, key, blob),
                about=f"{opening.model}, {opening.where}",
            )
            await app.run_async()
            for line in app.left_to_say:
                print(line, file=sys.stderr)
            return app.return_code or int(app.failed)

    return asyncio.run(run())
