"""A bot in a channel: several people in one conversation, and replies in messages that the platform takes.

A message has at most 2,000 characters on Discord and 4,096 on Telegram; on Slack 4,000 are recommended. A
code block that is split is closed in one message and opened again in the next one; links stay whole. While
the model works, the channel sees that the bot types.
Install: pip install goaitools-py
"""

import asyncio
import os
from collections.abc import Awaitable

from goaitools_py import AsyncChat, ChatResult
from goaitools_py.frontends import split_reply
from goaitools_py.stores import AsyncMemoryStore

LIMITS = {"discord": 2_000, "slack": 4_000, "telegram": 4_096}
MODEL = os.environ.get("GOAITOOLS_MODEL", "sim")


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
            messages = split_reply(result.text, LIMITS["discord"])
            print(*(f"to {speaker}: {message}" for message in messages), sep="\n")


if __name__ == "__main__":
    if MODEL.startswith("sim"):
        print("(simulated: no language model is asked)")
    asyncio.run(main())
