"""A bot in a channel: several people in one conversation, replies in messages of at most 2,000 characters.

A code block that is split is closed in one message and opened again in the next one. While the model works,
the channel sees that the bot types.
Install: pip install goaitools-py
"""

import asyncio
import os
from collections.abc import Awaitable, Iterator

from goaitools_py import AsyncChat, ChatResult
from goaitools_py.stores import AsyncMemoryStore

LIMIT = 2_000
FENCE = "```"
MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


def split(text: str, limit: int = LIMIT) -> Iterator[str]:
    """Divide a reply into messages of at most `limit` characters. Code blocks stay whole in each."""
    message, opened = "", ""  # opened: the line that begins the code block, such as ```py
    for line in text.splitlines():
        room = limit - 2 * len(FENCE + opened) - 4
        for piece in [line[at : at + room] for at in range(0, len(line), room)] or [""]:
            if len(message) + len(piece) + len(FENCE) + 1 > limit:
                yield message + FENCE * bool(opened)
                message = f"{opened}\n" * bool(opened)
            message += f"{piece}\n"
        if line.startswith(FENCE):
            opened = "" if opened else line
    yield message + FENCE * bool(opened)


async def typing(channel: str, work: Awaitable[ChatResult]) -> ChatResult:
    """Wait for a reply, and tell the channel every five seconds that the bot types."""
    reply = asyncio.ensure_future(work)
    while not reply.done():
        print(f"#{channel}: (the bot types)")
        await asyncio.wait([reply], timeout=5)
    return await reply


async def main() -> None:
    """Three messages of two people. The third one is delivered twice, and answered once."""
    said = [("1", "Ada", "I am here."), ("2", "Bob", "My team is Red."), ("3", "Bob", "What is my team?")]
    async with AsyncChat(MODEL, system="You guide a game.") as chat:
        channel = chat.conversation(AsyncMemoryStore(), "hall")
        for id, speaker, text in [*said, said[-1]]:
            result = await typing("hall", channel.send(text, speaker=speaker, turn_id=id))
            print(*(f"to {speaker}: {message.strip()}" for message in split(result.text)), sep="\n")


if __name__ == "__main__":
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    asyncio.run(main())
