"""Nothing that was said, and no key, stands in what a server logs, or in what it tells of an error.

Whatever fails: the provider, a tool, the store at any of its steps, the function that says whose a
conversation is, the relay, or the client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from goaitools_py import ToolError, tool
from goaitools_py.backends import BackendError
from goaitools_py.seal import Encrypted
from goaitools_py.serve import MemoryRelay, Refused, serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls
from goaitools_py.types.errors import StoreUnavailableError

from ._world import World, asynchronous
from .test_carried import KEYS, Carried

CANARIES = tuple(
    f"canary-{what}" for what in ("said", "reply", "argument", "result", "raised", "id", "key", "event")
)
HALL = "/conversations/hall"


@tool
def whisper(secret: str) -> str:
    """Whisper it."""
    return "canary-result"


@tool
def fail(secret: str) -> str:
    """Raise with it."""
    raise LookupError("canary-raised")


@tool
def refuse(secret: str) -> str:
    """Raise with it, for the model."""
    raise ToolError("canary-raised")


class Failing(AsyncMemoryStore):
    """Fails at its n-th step, with an error that quotes what it was given."""

    def __init__(self, at: int, error: Any) -> None:
        super().__init__()
        self.left, self.error = at, error

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error

    async def save(self, key: str, blob: bytes, **how: Any) -> int:
        self._step()
        return await super().save(key, blob, **how)

    async def load_head(self, key: str, **how: Any) -> Any:
        self._step()
        return await super().load_head(key, **how)

    async def save_parts(self, key: str, *save: Any, **how: Any) -> int:
        self._step()
        return await super().save_parts(key, *save, **how)

    async def stop_requested(self, key: str) -> bool:
        self._step()
        return await super().stop_requested(key)

    async def delete(self, key: str, **how: Any) -> bool:
        self._step()
        return await super().delete(key, **how)


class FailingRelay(MemoryRelay):
    """Fails whatever it is asked."""

    async def open(self, key: str, run: Any) -> None:
        raise OSError(f"canary-key {key}")

    async def find(self, key: str) -> Any:
        raise OSError(f"canary-key {key}")


def undecodable() -> Exception:
    """An error of Python's own that holds the whole text."""
    try:
        b"canary-said \xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


ERRORS = (RuntimeError("canary-raised"), KeyError("canary-key"), undecodable(), StoreUnavailableError("away"))


def shown(records: list[logging.LogRecord]) -> Iterator[str]:
    """All that a handler may write of the records."""
    for record in records:
        yield record.getMessage()
        yield repr(record.args)
        yield repr(
            {name: value for name, value in vars(record).items() if name not in ("args", "msg", "exc_info")}
        )
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1])).split("\n")
            yield "\n".join(line for line in lines if not line.startswith("    "))  # but the lines of code


async def driven(world: Any, routes: dict[str, str], state: str | None = None) -> list[tuple[int, bytes]]:
    """Ask a server for all that a client asks for. Gives the answers that tell of an error."""
    more: dict[str, Any] = {} if state is None else {"state": state}
    said = {"text": "canary-said", "turn_id": "canary-id", **more}
    form = "multipart/form-data; boundary="
    file = {"type": "file", "url": "canary-said", "media_type": "x"}
    events = [{"text": "canary-event"}]
    message = {
        "id": "m3",
        "role": "user",
        "parts": [{"type": "text", "text": "canary-said"}],
        "metadata": more,
    }
    agui = {"threadId": "hall", "runId": "r", "messages": []}
    asked: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", routes["turns"], said, {}),
        ("POST", routes["turns"], {**said, "turn_id": "m2"}, {"accept": "text/event-stream"}),
        ("POST", routes["turns"], {**said, "parts": [file]}, {}),
        ("POST", routes["turns"], {"canary-said": 1, **more}, {}),
        ("POST", routes["turns"], b'{"canary-said', {}),
        ("POST", routes["turns"], b"canary-said", {"content-type": f"{form}canary-said"}),
        ("POST", routes["turns"], b"canary-said", {"content-type": f"{form}b", "idempotency-key": "x"}),
        ("POST", routes["answers"], {"answers": {"canary-id": {"deny": "canary-said"}}, **more}, {}),
        ("POST", routes["events"], events if state is None else {"events": events, **more}, {}),
        ("POST", "/aisdk", {"id": "hall", "messages": [message]}, {}),
    ]  # fmt: skip
    if state is None:
        asked += [
            ("GET", HALL, None, {}), ("GET", f"{HALL}/messages", None, {}),
            ("GET", f"{HALL}/turns/current", None, {}), ("DELETE", f"{HALL}/turns/current", None, {}),
            ("POST", f"{HALL}/turns/current", {"canary-said": 1}, {}),
            ("GET", "/conversations?cursor=canary-key", None, {}),
            ("POST", "/events", {"hall": [{"text": "canary-event", "topic": ["canary-event"]}]}, {}),
            ("POST", "/agui", agui, {}), ("DELETE", HALL, None, {}),
        ]  # fmt: skip
    told = []
    for method, path, body, headers in asked:
        async with world.asked(method, path, body, user="game", headers=headers) as answer:
            found = await answer.body()
        if answer.status >= 400 or b"urn:goaitools" in found or b'"error"' in found:
            told.append((answer.status, found))
    return told


STORED = {"turns": f"{HALL}/turns", "answers": f"{HALL}/answers", "events": f"{HALL}/events"}
CARRIED = {"turns": "/turns", "answers": "/answers", "events": "/events"}
SAYS = '{"secret":"canary-argument"}'
SCRIPTS: dict[str, list[Any]] = {
    "replies": ["canary-reply"] * 9,
    "a tool that raises": [Calls([("fail", SAYS), ("refuse", SAYS), ("whisper", SAYS)]), "canary-reply"] * 5,
    "arguments that do not fit": [
        Calls([("whisper", {"canary-argument": 1}), ("shout", SAYS)]),
        "canary-reply",
    ]
    * 5,
    "a provider that fails": [BackendError("away")] * 40,
    "a provider that raises": [RuntimeError("canary-raised")] * 40,
    "a provider that refuses": [BackendError("no", kind="rejected")] * 40,
}


def assert_silent(caplog: pytest.LogCaptureFixture, told: list[tuple[int, bytes]]) -> None:
    """No canary in a record or in an answer, but for the names that the client itself has sent."""
    for text in shown(caplog.records):
        assert [one for one in CANARIES if one in text] == [], text[:600]
    for status, body in told:
        text = body.decode().replace('"canary-id"', "").replace('{"text":"canary-reply"}', "")
        assert [one for one in CANARIES if one in text and b"urn:goaitools" in body] == [], (
            status,
            text[:600],
        )


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("is_carried", [False, True], ids=["kept", "carried"])
@asynchronous
async def test_whatever_the_model_and_the_tools_do(
    script: str, is_carried: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        if is_carried:
            world: Any = World(
                "Well.", *SCRIPTS[script], more_tools=[whisper, fail, refuse], codec=Encrypted(KEYS)
            )
            world.app = serve(world.chat, None, key=Carried.bound)
            first = await world.ask("POST", "/turns", {"text": "canary-said", "turn_id": "m0"}, user="game")
            told = await driven(world, CARRIED, first[1]["state"])
        else:
            world = World(*SCRIPTS[script], more_tools=[whisper, fail, refuse])
            told = await driven(world, STORED)
    assert told
    assert_silent(caplog, told)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@asynchronous
async def test_whatever_step_of_the_store_fails(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for at in range(1, 26):
            store = Failing(at, error)
            world = World(
                *[Calls([("whisper", SAYS)]), "canary-reply"] * 5, store=store, more_tools=[whisper]
            )
            told = await driven(world, STORED)
            assert_silent(caplog, told)
            assert not any(b"Traceback" in body for _, body in told)
            caplog.clear()


@pytest.mark.parametrize("error", [*ERRORS, Refused(), Refused(401), "canary-key", None, 7], ids=repr)
@asynchronous
async def test_whatever_the_key_function_does(error: Any, caplog: pytest.LogCaptureFixture) -> None:
    def whose(request: Request, name: str) -> Any:
        if isinstance(error, BaseException):
            raise error
        return error

    world = World("canary-reply")
    world.app._whose = whose
    with caplog.at_level(logging.DEBUG):
        told = await driven(world, STORED)
    assert len(told) >= 15
    assert_silent(caplog, told)


@asynchronous
async def test_a_relay_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    world = World(*["canary-reply"] * 9, relay=FailingRelay())
    with caplog.at_level(logging.DEBUG):
        told = await driven(world, STORED)
    assert any("relay" in record.getMessage() for record in caplog.records)
    assert_silent(caplog, told)


@asynchronous
async def test_the_check_sees_a_leak(caplog: pytest.LogCaptureFixture) -> None:
    """In a record's text, in what it was given, and in an exception."""
    for how in ({"msg": "canary-said"}, {"msg": "%s", "args": ("canary-said",)}):
        with caplog.at_level(logging.DEBUG):
            logging.getLogger("goaitools_py").warning(how["msg"], *how.get("args", ()))
        with pytest.raises(AssertionError):
            assert_silent(caplog, [])
        caplog.clear()
    with pytest.raises(AssertionError):
        assert_silent(
            caplog, [(500, json.dumps({"type": "urn:goaitools:X", "title": "canary-reply"}).encode())]
        )
    await asyncio.sleep(0)
