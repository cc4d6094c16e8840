"""Token counts that grow with the request, and a prompt cache of prefixes.

Owns: the computation of usage. Must never know: the meaning of the counted bytes.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from .prompt import Reply

__all__ = ["BLOCK_TOKENS", "PrefixCache", "Tokens", "cut", "estimate", "estimate_bytes", "reply_tokens"]

_BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 32
"""The block size of cached prefixes, in tokens (OpenAI: 128)."""
_BLOCK_BYTES = BLOCK_TOKENS * _BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token counts of one exchange. `prompt` includes `cached` (read) and `written` to the cache."""

    prompt: int
    cached: int
    completion: int
    written: int = 0


def estimate(content: bytes) -> int:
    """Tokens of these bytes: four bytes each, rounded up."""
    return estimate_bytes(len(content))


def estimate_bytes(length: int) -> int:
    """The tokens of this number of bytes."""
    return -(-length // _BYTES_PER_TOKEN)


def reply_tokens(reply: Reply) -> int:
    """Tokens of a reply: thinking, text, refusal, and the names and arguments of its calls."""
    words = [reply.thinking, reply.content, reply.refused]
    for call in (*reply.hosted, *reply.tool_calls):
        words += [call.name, call.arguments]
    return estimate("".join(words).encode("utf-8", "replace"))


def cut(reply: Reply, max_tokens: int | None) -> Reply:
    """The reply cut at an output limit. The arguments of a cut call end in the middle."""
    if max_tokens is None or reply_tokens(reply) <= max_tokens:
        return reply
    length = max_tokens * _BYTES_PER_TOKEN
    calls = tuple(replace(call, arguments=call.arguments[:length]) for call in reply.tool_calls[:1])
    return replace(reply, content=reply.content[:length], tool_calls=calls, finish="length")


class PrefixCache:
    """Remembers the prefixes of earlier requests, block by block, as digests. Safe for threads.

    Args:
        max_blocks: The largest number of blocks; the least recently used are dropped (65,536 take 8 MB).
    """

    def __init__(self, max_blocks: int = 65_536) -> None:
        self._max_blocks = max_blocks
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, model: str, content: bytes) -> int:
        """Tokens of the longest prefix of an earlier request of this model. Remembers this one."""
        digest = hashlib.blake2b(model.encode("utf-8", "replace"), digest_size=16)
        blocks = []
        for start in range(0, len(content) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
            digest.update(content[start : start + _BLOCK_BYTES])
            blocks.append(digest.digest())
        with self._lock:
            hits = next((n for n, block in enumerate(blocks) if block not in self._seen), len(blocks))
            for block in blocks:
                self._seen[block] = None
                self._seen.move_to_end(block)
            while len(self._seen) > self._max_blocks:
                self._seen.popitem(last=False)
        return hits * BLOCK_TOKENS
