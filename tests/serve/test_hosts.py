"""A page of another name whose address is this server (DNS rebinding), and a page of another origin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from goaitools_py import AsyncChat
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.serve import Caller, serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend

from ._world import World, asynchronous, said

HALL = "/conversations/hall"
OURS = ["chat.example", "[::1]", "Chat2.Example"]

HOSTS = [
    ("chat.example", 200), ("CHAT.example:8080", 200), ("chat.example.", 200), ("[::1]:8000", 200),
    ("chat2.example", 200),
    ("evil.example", 421), ("chat.example.evil.example", 421), ("xchat.example", 421),
    ("chat.example@evil", 421),
    ("chat.example:80:80", 421), ("chat.example evil.example", 421), ("chat.example,evil.example", 421),
    ("127.0.0.1", 421), ("localhost", 421), ("", 421), ("chat.example/", 421), ("[::2]", 421), (":80", 421),
    ("chat.example\n", 421), ("ch\u00e4t.example", 421), ("chatxexample", 421),
]  # fmt: skip

ORIGINS = [
    ("https://chat.example", 200), ("http://chat.example:3000", 200), ("HTTPS://CHAT.EXAMPLE", 200),
    ("https://evil.example", 403), ("null", 403), ("", 403), ("chat.example", 403),
    ("https://chat.example.evil.example", 403), ("https://chat.example@evil.example", 403),
    ("https://evil.example/chat.example", 403), ("file://chat.example", 403), ("https://", 403),
    ("https://chat.example https://evil.example", 403), ("ftp://chat.example", 403),
]  # fmt: skip


@pytest.mark.parametrize(("host", "status"), HOSTS)
@asynchronous
async def test_only_our_hosts_are_answered(host: str, status: int) -> None:
    """The name counts, in any case, without its port; nothing of a refused request reaches a turn."""
    world = World("One.", allowed_hosts=OURS)
    got, body = await world.ask("POST", f"{HALL}/turns", said(), headers={"host": host})
    assert got == status
    assert len(world.backend.requests) == (status == 200)
    if status == 421:
        assert body["type"] == "urn:goaitools:HTTP421"
        assert "example" not in str(body)


@pytest.mark.parametrize(("origin", "status"), ORIGINS)
@pytest.mark.parametrize("method", ["POST", "GET"])
@asynchronous
async def test_only_pages_of_our_hosts_may_ask(origin: str, status: int, method: str) -> None:
    """An origin is a page's: its host must be one of ours. A program that is no browser sends none."""
    world = World("One.", "Two.", allowed_hosts=OURS)
    headers = {"host": "chat.example"}
    assert (await world.ask("POST", f"{HALL}/turns", said(), headers=headers))[0] == 200
    path = f"{HALL}/turns" if method == "POST" else HALL
    got, _ = await world.ask(method, path, said(id="m2"), headers={**headers, "origin": origin})
    assert got == status


@asynchronous
async def test_a_request_names_its_host_once() -> None:
    """No host is no host of ours, and of two the proxy before us may have read the other one."""
    world = World("One.", allowed_hosts=OURS)
    sent: list[Any] = []
    for hosts in ([], [b"chat.example"] * 2, [b"chat.example", b"evil.example"]):
        scope = {"type": "http", "method": "GET", "path": HALL, "headers": [(b"host", one) for one in hosts],
                 "query_string": b"", "root_path": ""}  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        await world.app(scope, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [421] * 3


@asynchronous
async def test_a_mounted_server_and_one_without_a_store_look_too() -> None:
    """Wherever the application stands."""
    chat = AsyncChat(ScriptedBackend("One."), codec=Encrypted(Keyring(Key.generate())))

    def whose(request: Request, name: str) -> Caller:
        return Caller("k", binding={"user": "ada"})

    carried = serve(chat, None, key=whose, allowed_hosts=OURS)
    kept = serve(chat, AsyncMemoryStore(), key=whose, allowed_hosts=OURS)
    for app in (carried, Starlette(routes=[Mount("/chat", app=kept)])):
        for host, refused in (("evil.example", True), ("chat.example", False)):
            world = World()
            world.app = app  # type: ignore[assignment]
            path = "/openapi.json" if app is carried else "/chat/openapi.json"
            assert ((await world.ask("GET", path, headers={"host": host}))[0] == 421) is refused


def test_what_is_no_name_of_a_host_is_refused_at_once() -> None:
    """A value that no request could have, or that would let nothing pass."""
    for wrong in ([], ["https://chat.example"], ["chat.example:80"], ["*"], [""], ["a b"], [7]):
        with pytest.raises(ValueError, match="allowed_hosts"):
            World(allowed_hosts=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list of names"):
        World(allowed_hosts="chat.example")  # type: ignore[arg-type]


class Silent(AsyncMemoryStore):
    """A store that fails, or gives no answer."""

    how = ""

    async def load(self, key: str) -> Any:
        if self.how == "fails":
            raise OSError("Harrogate-4711")
        if self.how == "silent":
            await asyncio.sleep(60)
        return await super().load(key)


@asynchronous
async def test_probes_tell_whether_the_process_takes_turns(caplog: Any, monkeypatch: Any) -> None:
    """Without a login, under any host, and without a secret. A server that stops is alive, and not ready."""
    monkeypatch.setattr("goaitools_py.serve.http._READY_WITHIN", 0.01)
    store = Silent()
    world = World("Done.", store=store, allowed_hosts=["chat.example"])
    probe = {"user": None, "headers": {"host": "10.0.0.7:8000"}}
    alive, ready, not_ready = ((code, {"status": text}) for code, text in PROBED)
    async with world.app.running():
        assert (await world.ask("GET", "/openapi.json", **probe))[0] == 421
        for how, expected in (("", ready), ("fails", not_ready), ("silent", not_ready), ("", ready)):
            store.how = how
            assert await world.ask("GET", "/healthz", **probe) == alive
            assert await world.ask("GET", "/readyz", **probe) == expected
        async with world.asked("GET", "/readyz", **probe) as answer:
            assert answer.headers["cache-control"] == "no-store"
    assert await world.ask("GET", "/healthz", **probe) == alive
    assert await world.ask("GET", "/readyz", **probe) == not_ready
    assert "the store failed with OSError" in caplog.text
    assert "Harrogate" not in caplog.text
    assert world.backend.requests == []


PROBED = ((200, "alive"), (200, "ready"), (503, "not ready"))
