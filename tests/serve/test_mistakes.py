"""Mistakes in the program around a server: told where they are made, and never told as the client's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from goaitools_py import AsyncChat, Chat
from goaitools_py.frontends import AISDK
from goaitools_py.seal import BlobLimits, Key, Keyring, Signed
from goaitools_py.serve import Caller, RedisRelay, ServeLimits, serve
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend


def sealed() -> AsyncChat:
    """A chat whose states have an owner."""
    return AsyncChat(ScriptedBackend("Hello."), codec=Signed(Keyring(Key.generate())))


def given(**how: Any) -> Any:
    """A server over a store, with these arguments."""
    chat = how.pop("chat", None) or AsyncChat(ScriptedBackend("Hello."))
    store = how.pop("store", None) or AsyncMemoryStore()
    return serve(chat, store, **{"key": lambda request, name: Caller(name), **how})


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a chat of the other colour": (lambda: given(chat=Chat("sim")), "serve takes an AsyncChat, not Chat"),
    "a store of the other colour": (
        lambda: given(store=MemoryStore()),
        "a conversation of AsyncChat needs an Async… store; got MemoryStore",
    ),
    "one front end": (
        lambda: given(frontends=AISDK),
        "frontends must be a list of front ends of goaitools_py.frontends, such as [AISDK, AGUI]; "
        "got one alone",
    ),
    "the name of a front end": (
        lambda: given(frontends=["aisdk"]),
        "frontends must be a list of front ends of goaitools_py.frontends, such as [AISDK, AGUI]; got str",
    ),
    "a dict of limits": (
        lambda: given(limits={"turns": 5}),
        "limits must be ServeLimits, not dict; pass ServeLimits(turns=…)",
    ),
    "a URL for a relay": (
        lambda: given(relay="redis://127.0.0.1"),
        "relay must be a Relay, such as RedisRelay(redis.asyncio.Redis.from_url(url)); got str",
    ),
    "a client of the other colour": (
        lambda: RedisRelay(redis.Redis()),  # type: ignore[arg-type]
        "RedisRelay takes a client of redis.asyncio, not one of redis: "
        "RedisRelay(redis.asyncio.Redis.from_url(url))",
    ),
    "a misspelt limit": (
        lambda: ServeLimits(turn=5),  # type: ignore[call-arg]
        "ServeLimits has no 'turn'; did you mean 'turns'?",
    ),
    "a misspelt limit of states": (
        lambda: BlobLimits(max_entrys=5),  # type: ignore[call-arg]
        "BlobLimits has no 'max_entrys'; did you mean 'max_entries'?",
    ),
    "a misspelt fact": (
        lambda: Caller("k", option={}),  # type: ignore[call-arg]
        "Caller has no 'option'; did you mean 'options'?",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_refuses_what_it_cannot_serve_with(name: str) -> None:
    """Where it is made: otherwise each request would be a 500."""
    call, text = REFUSED[name]

    with pytest.raises(TypeError) as caught:
        call()

    assert str(caught.value) == text


def test_a_setting_of_the_conversations_is_checked_when_the_server_is_made() -> None:
    """Each request makes a conversation with it."""
    with pytest.raises(ValueError, match="save must be 'turn' or 'checkpoint'; got 'checkpoints'"):
        given(save="checkpoints")


WHOSE: dict[str, tuple[Any, str]] = {
    "a key alone": ("ada/hall", "the key function must return Caller, not str"),
    "a number": (Caller(17), "Caller.key must be str, not int; pass str(…)"),  # type: ignore[arg-type]
    "an owner that is a number": (Caller("ada", owner=17), "Caller.owner must be str, not int; pass str(…)"),  # type: ignore[arg-type]
    "no key": (Caller(""), "Caller.key is empty: make it of your user and of the name that the client gave"),
    "a misspelt option": (
        Caller("ada", options={"dep": 1}),
        "Caller.options: unknown option 'dep'; did you mean 'deps'?",
    ),
    "a bad option": (
        Caller("ada", options={"timeout": -1}),
        "Caller.options: timeout must be a positive number of seconds, got -1; pass None for no limit",
    ),
    "an option of the server's": (
        Caller("ada", options={"turn_id": "m1"}),
        "Caller.options must not have 'turn_id': the server sets it",
    ),
    "a binding among the options": (
        Caller("ada", options={"binding": {"user": "ada"}}),
        "Caller.options must not have 'binding': it is Caller.binding",
    ),
    "a binding without a key": (
        Caller("ada", binding={"user": "ada"}),
        "Caller does not fit the chat: a plain blob authenticates nothing, so it cannot be bound to an "
        "owner; expected binding=None, or a signed or encrypted codec",
    ),
}


@pytest.mark.parametrize("name", WHOSE)
def test_an_answer_of_the_key_function_is_the_programs_fault(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets a 500 without a word of it; the log says what is wrong."""
    who, text = WHOSE[name]
    with TestClient(given(key=lambda request, name: who)) as client:
        answer = client.post("/conversations/hall/turns", json={"text": "Hi.", "turn_id": "m1"})

    assert (answer.status_code, answer.json()["type"]) == (500, "urn:goaitools:InternalError")
    assert caplog.messages == [f"a request of the server failed with {text}"]


@pytest.mark.parametrize("path", ["/turns", "/messages"])
@pytest.mark.parametrize("binding", [None, "ada"])
def test_a_carried_state_without_its_owner_is_the_programs_fault(
    path: str, binding: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It was told to the client as a file that the model does not take."""
    app = serve(sealed(), None, key=lambda request, name: Caller("ada", binding=binding))
    with TestClient(app) as client:
        answer = client.post(path, json={"text": "Hi."} if path == "/turns" else {"state": None})

    assert (answer.status_code, answer.json()["type"]) == (500, "urn:goaitools:InternalError")
    assert caplog.messages[0].startswith("a request of the server failed with Caller.binding: ")


def test_a_fault_of_the_key_function_is_told_with_its_line(caplog: pytest.LogCaptureFixture) -> None:
    """Its class alone does not lead to it. Its text may quote the request, so it is left out."""
    caplog.set_level(logging.ERROR, "goaitools_py")

    def whose(request: Any, name: str) -> Caller:
        return Caller({}[f"secret {name}"])

    with TestClient(given(key=whose)) as client:
        answer = client.post("/conversations/hall/turns", json={"text": "Hi.", "turn_id": "m1"})

    line = whose.__code__.co_firstlineno + 1
    assert answer.status_code == 500
    assert caplog.messages == [f"a request of the server failed with KeyError, raised at {__file__}:{line}"]
