"""Relays for tests, in memory and in a real Redis.

Owns: their keys, which are removed afterwards. Must never know: what a test expects.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from goaitools_py.serve import MemoryRelay, RedisRelay

__all__ = ["REDIS", "relays"]

REDIS = os.environ.get("GOAITOOLS_TEST_REDIS") or "redis://127.0.0.1:6379/0"


@asynccontextmanager
async def relays(kind: str, count: int = 2, **how: Any) -> AsyncIterator[Sequence[Any]]:
    """A relay as each of several workers has it. Keys of Redis are removed."""
    if kind == "memory":
        yield [MemoryRelay()] * count
        return
    redis = pytest.importorskip("redis.asyncio")
    prefix = f"goaitools-test-{secrets.token_hex(6)}"
    clients = [redis.Redis.from_url(REDIS, decode_responses=bool(at)) for at in range(count)]
    try:
        await clients[0].ping()
    except redis.RedisError:
        if os.environ.get("CI"):
            raise
        pytest.skip("no Redis")
    try:
        yield [RedisRelay(client, prefix=prefix, **how) for client in clients]
    finally:
        keys = [key async for key in clients[0].scan_iter(match=f"{prefix}*")]
        for key in keys:
            await clients[0].delete(key)
        for client in clients:
            await client.aclose()
