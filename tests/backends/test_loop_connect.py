"""A connected socket for a name: one address beside the other, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py.backends import _loop_connect
from goaitools_py.backends._loop_connect import connected_socket

V4, V6 = socket.AF_INET, socket.AF_INET6


class Host:
    """A host whose addresses are ports of this machine: some listen, some refuse, some never answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[socket.socket] = []
        self.tried: list[str] = []
        self.never = asyncio.Event()
        self.addresses: list[tuple[Any, ...]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._attempt = _loop_connect._attempt
        monkeypatch.setattr(_loop_connect, "_resolved", self._resolved)
        monkeypatch.setattr(_loop_connect, "_attempt", self._counted)
        monkeypatch.setattr(_loop_connect, "_NEXT_ADDRESS_SECONDS", 0.001)

    def has(self, *kinds: str, family: int = V4) -> None:
        self.addresses += [(family, socket.SOCK_STREAM, 0, kind, None) for kind in kinds]

    async def _resolved(self, host: str, port: int) -> list[tuple[Any, ...]]:
        return self.addresses

    async def _counted(self, address: tuple[Any, ...]) -> socket.socket:
        kind = address[3]
        self.tried.append(kind)
        if kind == "silent":
            await self.never.wait()
        if kind == "refuses":
            raise ConnectionRefusedError(kind)
        made = await self._attempt((V4, *address[1:4], self._listening.getsockname()))
        self.opened.append(made)
        return made

    def close(self) -> None:
        self._listening.close()
        for made in self.opened:
            made.close()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    with contextlib.closing(Host(monkeypatch)) as made:
        yield made


def connect() -> socket.socket:
    async def main() -> socket.socket:
        async with asyncio.timeout(10):
            return await connected_socket("x.test", 1)

    return asyncio.run(main())


def test_the_first_address_that_answers_is_taken(host: Host) -> None:
    """An address that does not answer delays the next one only a little."""
    host.has("silent", "listens", "never tried")

    made = connect()

    assert host.opened == [made]
    assert made.fileno() >= 0
    assert host.tried == ["silent", "listens"]


def test_the_families_take_turns(host: Host) -> None:
    """After the first address comes one of the other family, whatever the order was."""
    host.has("silent", "refuses", family=V6)
    host.has("listens")

    connect()

    assert host.tried == ["silent", "listens"]


def test_a_refused_address_is_followed_by_the_next(host: Host) -> None:
    """No time is waited out for an address that says no."""
    host.has("refuses", "listens")

    connect()

    assert host.tried == ["refuses", "listens"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_host_that_refuses_everywhere_is_an_error(host: Host, count: int) -> None:
    """The failure of the first address is what the caller hears."""
    host.has(*["refuses"] * count)

    with pytest.raises(ConnectionRefusedError):
        connect()

    assert host.tried == ["refuses"] * count


@pytest.mark.parametrize("steps", range(12))
def test_a_cancelled_connect_leaves_no_socket_open(host: Host, steps: int) -> None:
    """Cancelled at any step, also in the moment of success, it closes every socket."""
    host.has("listens", "listens")

    async def main() -> socket.socket | None:
        connecting = asyncio.create_task(connected_socket("x.test", 1))
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        for _ in range(3):
            await asyncio.sleep(0)
        return None if connecting.cancelled() else connecting.result()

    kept = asyncio.run(main())

    assert [made for made in host.opened if made.fileno() >= 0] == ([kept] if kept else [])


def test_an_address_needs_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a numeric host no thread is asked; a name is looked up beside the loop."""
    looked_up: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            looked_up.append(host)
            return [(V4, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", look_up)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            for name in ("127.0.0.1", "localhost"):
                (await connected_socket(name, port)).close()

    asyncio.run(main())

    assert looked_up == ["localhost"]
