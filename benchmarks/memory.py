"""What a chat keeps of the conversations that it has served: nothing.

Owns: the many conversations, and the count of what is left. Must never know: where a chat keeps things.
"""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc
from collections.abc import Iterator

from _conversations import MODEL, instant_client
from _report import Report, at_most

from goaitools_py import Chat
from goaitools_py.backends.openai.backends import OpenAIChatBackend

__all__ = ["run"]

_WARM_UP = 50
_TRACED = 150
_SLACK_OBJECTS = 100
"""Objects that may come and go by themselves: caches of the interpreter and the SDK."""
_SLACK_BLOCKS = 450
"""Memory blocks likewise; 0 to 250 were seen. A conversation that is held has more than one block."""
_SLACK_BYTES = 20_000


def run(*, short: bool = False) -> Report:
    """Serve 10,000 conversations of one turn, through the SDK; `short` serves 500."""
    conversations = 500 if short else 10_000
    chat = Chat(OpenAIChatBackend(MODEL, http_client=instant_client(), api_key="sk-none"))
    names = itertools.count()
    _serve(chat, names, _WARM_UP)
    objects, blocks = _counts()
    stored = _serve(chat, names, conversations)
    more_objects, more_blocks = _counts()
    left = _bytes_left(chat, names)
    return Report(
        title=f"Memory: one chat has served {conversations:,} conversations",
        method=f"one turn each through the SDK, blobs of {stored / conversations:,.0f} bytes not kept by the "
        "caller; gc.get_objects and sys.getallocatedblocks after gc.collect, against the same chat after a "
        "warm-up; bytes by tracemalloc",
        figures=[
            at_most(_SLACK_OBJECTS, "objects left", more_objects - objects, "objects", timed=False),
            at_most(_SLACK_BLOCKS, "memory blocks left", more_blocks - blocks, "blocks", timed=False),
            at_most(_SLACK_BYTES, f"left by {_TRACED} more of them", left, "bytes", timed=False),
        ],
    )


def _serve(chat: Chat, names: Iterator[int], conversations: int) -> int:
    """Begin so many conversations; how many bytes their blobs had."""
    said = (f"My ticket is {next(names)}." for _ in range(conversations))
    return sum(len(chat.chat_with_state(None, user=text).state) for text in said)


def _counts() -> tuple[int, int]:
    gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks()


def _bytes_left(chat: Chat, names: Iterator[int]) -> int:
    """Traced bytes that conversations leave behind; tracing is slow, so they are few."""
    tracemalloc.start()
    try:
        _serve(chat, names, _WARM_UP)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        _serve(chat, names, _TRACED)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
