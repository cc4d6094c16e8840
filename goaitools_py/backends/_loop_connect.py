"""A connected socket for a name, on the event loop of `asyncio`.

Owns: resolving, and trying one address beside the other (RFC 8305). Must never know: what is sent.

`loop.create_connection(happy_eyeballs_delay=…)` does this too, but loses a socket that has just connected
when it is cancelled in that moment (seen with Python 3.11); here nothing is left behind.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

__all__ = ["connected_socket"]

_NEXT_ADDRESS_SECONDS: Final = 0.25
"""How long one address may take until the next is tried beside it; what RFC 8305 recommends."""

_Address: TypeAlias = tuple[Any, ...]
"""Family, type, protocol, name and address, as `getaddrinfo` gives them."""


async def connected_socket(host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that answers. Raises `OSError`."""
    addresses = _alternating(await _resolved(host, port))
    if len(addresses) == 1:
        return await _attempt(addresses[0])
    attempts: list[asyncio.Task[socket.socket]] = []
    winner = None
    try:
        for address in addresses:
            attempts.append(asyncio.create_task(_attempt(address)))
            winner = await _first_success(attempts, _NEXT_ADDRESS_SECONDS)
            if winner is not None:
                break
        else:
            winner = await _first_success(attempts, None)
        return (winner or attempts[0]).result()
    finally:
        for attempt in attempts:
            if attempt is not winner:
                attempt.add_done_callback(_let_go)
                attempt.cancel()


async def _resolved(host: str, port: int) -> Sequence[_Address]:
    try:  # an address needs no thread
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _alternating(addresses: Sequence[_Address]) -> list[_Address]:
    """The families in turns, so that one that leads nowhere delays a connection once only."""
    first = addresses[0][0]
    own = [each for each in addresses if each[0] == first]
    other = [each for each in addresses if each[0] != first]
    return [each for pair in itertools.zip_longest(own, other) for each in pair if each is not None]


async def _attempt(address: _Address) -> socket.socket:
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


async def _first_success(
    attempts: list[asyncio.Task[socket.socket]], seconds: float | None
) -> asyncio.Task[socket.socket] | None:
    """The first attempt that connects; None once all have failed, or the time is up."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    while True:
        pending = [each for each in attempts if not each.done()]
        for each in attempts:
            if each.done() and each.exception() is None:
                return each
        left = None if until is None else until - loop.time()
        if not pending or (left is not None and left <= 0):
            return None
        await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)


def _let_go(attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()
