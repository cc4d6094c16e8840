"""A server without a store measures the state that a client carries, before a turn is paid."""

from __future__ import annotations

import random
from typing import Any

import pytest

from goaitools_py import Compactor, KeepRecentTurns
from goaitools_py.backends import BackendError
from goaitools_py.compaction import ByteLimit
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.serve import ServeLimits

from ._world import asynchronous, said
from .test_carried import Carried

COOKIE = ServeLimits(state_bytes=4_000)
KEYS = Keyring(Key.generate())
CODECS = {"encrypted": Encrypted(KEYS, visible_to="client"), "signed": Signed(KEYS)}


def noise(number: int, size: int) -> str:
    """A text that no compression makes shorter than half."""
    return random.Random(number).randbytes(size).hex()[:size]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@asynchronous
async def test_a_conversation_that_outgrows_the_client_is_refused_unpaid(accept: str, codec: Any) -> None:
    """No answer but an announced one has a state beyond the limit, and no refused message was paid."""
    world = Carried(*["Well."] * 60, codec=codec, limits=COOKIE)
    state, paid = None, 0
    for number in range(60):
        body = said(noise(number, 120), f"m{number}", state=state)
        async with world.asked("POST", "/turns", body, headers={"accept": accept}) as answer:
            if answer.status == 413:
                problem = await answer.json()
                break
            result = await answer.json() if "json" in accept else (await answer.events())[-1][1]
        paid += 1
        assert len(result["state"]) <= 4_000 or "state_too_large" in result["warnings"]
        state = result["state"]
    assert paid > 3
    assert len(world.backend.requests) == paid
    assert problem["type"] == "urn:goaitools:StateTooLargeError"
    assert problem["retryable"] is False
    assert "the client can keep 4,000" in problem["detail"]
    assert problem["detail"].endswith("begin a new conversation")
    assert (await world.ask("POST", "/turns", said("Anew.", "new")))[0] == 200


@asynchronous
async def test_a_message_that_never_fits_is_refused_also_with_a_compactor() -> None:
    world = Carried("Well.", limits=COOKIE, codec=CODECS["encrypted"])
    world.chat._defaults["compactor"] = Compactor(ByteLimit(1_500), KeepRecentTurns(1))
    status, problem = await world.ask("POST", "/turns", said(noise(1, 4_500)))
    assert status == 413
    assert problem["detail"].endswith("send a shorter message")
    assert world.backend.requests == []


@asynchronous
async def test_a_compactor_makes_room() -> None:
    """The conversation goes on for ever, and every state fits. With ids of turns, which stay in the state, it
    ends with a refusal before a turn that cannot fit is paid."""
    for has_ids in (False, True):
        world = Carried(*["Well."] * 70, limits=COOKIE, codec=CODECS["encrypted"])
        world.chat._defaults["compactor"] = Compactor(ByteLimit(1_500), KeepRecentTurns(1))
        state, status, number = None, 200, 0
        while status == 200 and number < 70:
            number += 1
            id = {"turn_id": f"m{number}"} if has_ids else {}
            body = {"text": noise(number, 120), "state": state, **id}
            status, result = await world.ask("POST", "/turns", body)
            if status == 200:
                state = result["state"]
                assert len(state) <= 4_000 or result["warnings"] == ["state_too_large"]
        assert status == (413 if has_ids else 200)
        assert number > 20


@asynchronous
async def test_a_reply_beyond_the_limit_is_announced() -> None:
    world = Carried(noise(1, 9_000), limits=COOKIE)
    status, result = await world.ask("POST", "/turns", said())
    assert status == 200
    assert result["warnings"] == ["state_too_large"]


@asynchronous
async def test_the_same_message_again_is_answered_also_near_the_limit() -> None:
    """After a failure, and after a reply: the state has the message, so it takes no more room."""
    text = noise(3, 1_500)
    world = Carried(BackendError("away"), "Well.", limits=COOKIE, codec=CODECS["encrypted"])
    status, problem = await world.ask("POST", "/turns", said(text))
    assert status == 503
    status, result = await world.ask("POST", "/turns", said(text, state=problem["state"]))
    assert (status, result["text"]) == (200, "Well.")
    status, again = await world.ask("POST", "/turns", said(text, state=result["state"]))
    assert (status, again["duplicate"]) == (200, True)


@asynchronous
async def test_a_state_that_no_body_could_bring_back_is_refused() -> None:
    """Without a limit of its own the limit is that of a body."""
    world = Carried("Well.", "Well.", limits=ServeLimits(body_bytes=24_000))
    first = (await world.ask("POST", "/turns", said(noise(1, 17_000))))[1]["state"]
    status, problem = await world.ask("POST", "/turns", said(noise(2, 8_000), "m2", state=first))
    assert (status, problem["status"]) == (413, 413)
    assert len(world.backend.requests) == 1
