"""A client that knows only the OpenAPI document attacks a running server: with what the document allows, and
with what it does not.

No answer is a 500, none has a status, a content type or a body that the document does not name. 500 requests,
or as many as `GOAITOOLS_SCHEMATHESIS` says, such as 50000.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from goaitools_py import AsyncChat, tool
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.serve import Caller, ServeLimits, serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._running import running
from ._world import World

REQUESTS = int(os.environ.get("GOAITOOLS_SCHEMATHESIS", "500"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
NAMES = ["hall", "gate", "yard", "a+b@c:d~e"]
"""Conversations that exist, or that many requests name: so requests meet each other's turns."""


@tool(requires_approval=True)
def fire(at: str) -> str:
    """Fire at something."""
    return f"hit {at}"


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """A server on loopback: "hall" has a turn, and in "gate" a call waits."""
    store = AsyncMemoryStore()

    async def prepared() -> None:
        script = ScriptedBackend("Hello.", Calls([("fire", {"at": "y"})]))
        async with AsyncChat(script, tools=[fire]) as chat:
            for name in ("hall", "gate"):
                await chat.conversation(store, f"game/{name}", save="checkpoint").send("Hi", turn_id="m1")

    asyncio.run(prepared())
    chat = AsyncChat("sim", tools=[fire])
    app = serve(chat, store, key=World.whose, frontends=(AISDK, AGUI), limits=ServeLimits(keep_seconds=1))
    with running(app) as url:
        yield url


@pytest.fixture(scope="module")
def carried_url() -> Iterator[str]:
    """A server on loopback that keeps nothing."""

    def whose(request: Any, name: str) -> Caller:
        who = World.whose(request, name)
        return Caller(who.key, owner=who.owner, binding={"user": who.owner}, trusted=who.trusted)

    chat = AsyncChat("sim", tools=[fire], codec=Encrypted(Keyring(Key.generate())))
    with running(serve(chat, None, key=whose)) as url:
        yield url


def test_no_request_breaks_the_server(base_url: str) -> None:
    statuses = attacked(base_url, REQUESTS * 4 // 5)

    assert {200, 204, 400, 401, 403} <= set(statuses), statuses


def test_no_request_breaks_a_server_without_a_store(carried_url: str) -> None:
    statuses = attacked(carried_url, REQUESTS // 5)

    assert {200, 400, 401, 403} <= set(statuses), statuses


def attacked(base_url: str, count: int) -> Counter[int]:
    """Attack a server with about `count` requests. Each operation gets its share: one half is as the document
    allows, one is not."""
    found = requests.get(f"{base_url}/openapi.json", timeout=30)
    assert found.status_code == 200
    operations = [one.ok() for one in schemathesis.openapi.from_dict(found.json()).get_all_operations()]
    statuses: Counter[int] = Counter()
    share = max(1, count // (2 * len(operations)))
    with requests.Session() as session:
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                attack(operation, mode, share, session, base_url, statuses)

    assert statuses.total() >= count * 0.8, statuses
    return statuses


def attack(
    operation: Any, mode: GenerationMode, share: int, session: Any, base_url: str, statuses: Counter[int]
) -> None:
    """Send `share` requests to an operation. The seed is fixed: it fails again if it fails once."""

    @seed(4711)
    @settings(
        max_examples=share,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy(generation_mode=mode),
        name=st.sampled_from([*NAMES, None]),
        user=st.sampled_from(["game", "game", "game", "ada", "bad", None]),
        streams=st.booleans(),
    )
    def send(case: Any, name: str | None, user: str | None, streams: bool) -> None:
        if name is not None and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = name
        headers = {
            **({"x-user": user} if user else {}),
            **({"accept": "text/event-stream"} if streams else {}),
        }
        response = case.call(base_url=base_url, session=session, headers=headers, timeout=30)
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    try:
        send()
    except BaseException as error:
        error.add_note(f"operation {operation.label}, {mode.name}, seed 4711")
        raise
