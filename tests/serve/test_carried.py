"""A server without a store: the client carries the state, and cannot read, change or swap it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from goaitools_py import AsyncChat
from goaitools_py.backends import BackendError
from goaitools_py.frontends import AGUI, AISDK
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.serve import Caller, ServeLimits, serve
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous, said

KEYS = Keyring(Key.generate())
LOOK = Calls([("look", {"at": "door"})], text="Hm.")
FIRE = Calls([("fire", {"at": "y"})])


class Carried(World):
    """The application without a store. Each user's states are bound to the user."""

    def __init__(self, *steps: Any, codec: Any = None, revisions: Any = None, **how: Any) -> None:
        super().__init__(*steps, codec=codec or Encrypted(KEYS))
        self.app = serve(self.chat, None, key=self.bound, revisions=revisions, **how)  # type: ignore[assignment]

    @staticmethod
    def bound(request: Request, name: str) -> Caller:
        who = World.whose(request, name)
        return Caller(who.key, owner=who.owner, binding={"user": who.owner}, trusted=who.trusted)


@pytest.mark.parametrize("codec", [Encrypted(KEYS), Signed(KEYS)], ids=["encrypted", "signed"])
@asynchronous
async def test_the_state_goes_there_and_back(codec: Any) -> None:
    world = Carried("One.", "Two.", codec=codec)
    status, first = await world.ask("POST", "/turns", said("First"))
    assert (status, first["text"], first["status"]) == (200, "One.", "complete")
    assert first["state"].startswith("gas1.")

    async with world.stream("POST", "/turns", said("Second", "m2", state=first["state"])) as answer:
        events = await answer.events()
    assert [name for name, _ in events if name != "text"] == ["started", "done"]
    state = events[-1][1]["state"]

    shown = (await world.ask("POST", "/messages", {"state": state}))[1]
    assert [one["text"] for one in shown["messages"]] == ["First", "One.", "Second", "Two."]
    assert b"First" in world.backend.requests[1].body
    # The message once more, with the state in which it is: no model is asked.
    again = (await world.ask("POST", "/turns", said("Second", "m2", state=state)))[1]
    assert (again["text"], again["duplicate"]) == ("Two.", True)
    assert len(world.backend.requests) == 2


@asynchronous
async def test_a_state_of_another_owner_or_key_is_refused() -> None:
    """Also on the routes that only read it. The text of the error quotes nothing."""
    world = Carried("One.")
    state = (await world.ask("POST", "/turns", said("Hi")))[1]["state"]
    other = Carried("One.", codec=Encrypted(Keyring(Key.generate())))
    foreign = (await other.ask("POST", "/turns", said("Hi")))[1]["state"]
    events, answers = [{"text": "It rains."}], {"c": {"approve": True}}
    for body in ({"text": "Hi", "turn_id": "m2"}, {"answers": answers}):
        for given, user in ((state, "bob"), (foreign, "ada")):
            status, problem = await world.ask("POST", "/turns", {**body, "state": given}, user=user)
            assert (status, problem["type"]) == (403, "urn:goaitools:StateAuthError")
            assert given not in str(problem)
    assert (await world.ask("POST", "/messages", {"state": state}, user="bob"))[0] == 403
    told = {"state": state, "events": events}
    assert (await world.ask("POST", "/events", told))[0] == 403  # a page may not tell events
    assert (await world.ask("POST", "/events", told, user="game"))[0] == 403  # nor a game those of Ada
    for wrong in ("gas1.", "gas1.AAAA", "x", f"{state[:-1]}~", 7, ["a"]):
        for route, body in (("/turns", said("Hi", "m2")), ("/messages", {})):
            assert (await world.ask("POST", route, {**body, "state": wrong}))[0] == 400
    assert len(world.backend.requests) == 1


@asynchronous
async def test_a_failed_turn_gives_the_state_so_far() -> None:
    """In JSON, and in a stream. With it the same message goes on, and the tool does not run again."""
    for accept in ("application/json", "text/event-stream"):
        world = Carried(LOOK, BackendError("away"), "Done.")
        world.held.set()
        async with world.asked("POST", "/turns", said(), headers={"accept": accept}) as answer:
            if "json" in accept:
                assert answer.status == 503
                problem = await answer.json()
            else:
                problem = (await answer.events())[-1][1]
        assert problem["type"] == "urn:goaitools:ProviderUnavailableError"

        status, rest = await world.ask("POST", "/turns", said(state=problem["state"]))
        assert (status, rest["text"]) == (200, "Done.")
        assert world.looked == ["door"]


@asynchronous
async def test_calls_are_answered_with_the_state_that_waits_for_them() -> None:
    world = Carried(FIRE, "Hit.")
    waiting = (await world.ask("POST", "/turns", said()))[1]
    assert waiting["status"] == "awaiting_tools"
    yes = {waiting["pending"][0]["id"]: {"approve": True}}
    assert (await world.ask("POST", "/answers", {"answers": yes}))[0] == 409
    forged = {"answers": {"c9": {"approve": True}}, "state": waiting["state"]}
    assert (await world.ask("POST", "/answers", forged))[0] == 409

    done = (await world.ask("POST", "/answers", {"answers": yes, "state": waiting["state"]}))[1]

    assert (done["text"], world.looked) == ("Hit.", ["y"])


@asynchronous
async def test_a_game_server_appends_events() -> None:
    world = Carried("I know.")
    lamp = {"text": "The lamp goes out.", "topic": "lamp"}
    status, told = await world.ask("POST", "/events", {"events": [lamp]}, user="game")
    assert status == 200
    more = (await world.ask("POST", "/events", {"events": [lamp], "state": told["state"]}, user="game"))[1]
    await world.ask("POST", "/turns", said("What is new?", state=more["state"]), user="game")
    assert b"lamp goes out" in world.backend.requests[0].body
    for wrong in ([], {}, {"events": []}, {"events": [{"x": 1}]}, {"events": [lamp], "a": 1}, b"{"):
        assert (await world.ask("POST", "/events", wrong, user="game"))[0] == 400
    assert (await world.ask("POST", "/turns", said(context="x")))[0] == 403


@asynchronous
async def test_an_older_state_is_noticed() -> None:
    """With the two functions, which may be awaited. Each conversation has its own number."""
    newest: dict[str, int] = {}

    async def keep(who: Caller, revision: int) -> None:
        newest[who.key] = revision

    world = Carried("One.", "Two.", "Other.", revisions=(lambda who: newest.get(who.key), keep))
    first = (await world.ask("POST", "/turns", said("First", conversation="hall")))[1]
    second = said("Second", "m2", state=first["state"], conversation="hall")
    assert (await world.ask("POST", "/turns", second))[0] == 200
    status, problem = await world.ask("POST", "/turns", {**second, "turn_id": "m3"})
    assert (status, problem["type"]) == (403, "urn:goaitools:StateAuthError")
    for state in (
        None,
        first["state"][:-4],
        "gas1.AAAA",
    ):  # no way around
        around = await world.ask("POST", "/turns", said("Third", "m5", state=state, conversation="hall"))
        assert around[0] in (400, 403)
    assert newest["ada/hall"] == 2
    assert (await world.ask("POST", "/turns", said("New", "m4", conversation="mill")))[0] == 200
    assert newest.keys() == {"ada/hall", "ada/mill"}


@asynchronous
async def test_a_page_of_the_ai_sdk_carries_the_newest_state() -> None:
    """It is the metadata of its replies. A reply that failed has the state so far, too."""
    world = Carried("One.", LOOK, BackendError("away"), "Done.")
    world.held.set()
    messages: list[dict[str, Any]] = []

    async def sent(text: str, id: str) -> list[tuple[str, Any]]:
        user = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
        if not messages or messages[-1]["id"] != id:
            messages.append(user)
        async with world.asked("POST", "/aisdk", {"id": "hall", "messages": messages}) as answer:
            assert answer.status == 200
            events = await answer.events()
        metadata = [data["messageMetadata"] for _, data in events if "messageMetadata" in data]
        messages.append({"id": f"r{id}", "role": "assistant", "parts": [], "metadata": metadata[-1]})
        return events

    await sent("First", "m1")
    assert [name for name, _ in await sent("Second", "m2")][-2:] == ["message-metadata", "error"]
    messages.append({"id": "m2", "role": "user", "parts": [{"type": "text", "text": "Second"}]})
    events = await sent("Second", "m2")

    assert "".join(data["delta"] for name, data in events if name == "text-delta").endswith("Done.")
    assert world.looked == ["door"]
    assert b"First" in world.backend.requests[-1].body


@asynchronous
async def test_a_turn_ends_with_its_connection_and_turns_have_limits() -> None:
    world = Carried(LOOK, LOOK, "One.", limits=ServeLimits(turns_per_owner=1))
    async with world.stream("POST", "/turns", said()):
        await world.is_inside.wait()
        assert (await world.ask("POST", "/turns", said("Else", "m2")))[0] == 429
    world.is_inside.clear()
    asked = asyncio.create_task(world.ask("POST", "/turns", said()))
    await world.is_inside.wait()
    world.held.set()
    assert (await asked)[1]["text"] == "One."
    assert not world.app._hub._owners


def test_a_server_without_a_store_needs_a_key() -> None:
    backend = ScriptedBackend()
    with pytest.raises(ValueError, match="codec with a key"):
        serve(AsyncChat(backend), None, key=World.whose)
    sealed = AsyncChat(backend, codec=Signed(KEYS))
    with pytest.raises(TypeError, match="cannot carry a state"):
        serve(sealed, None, key=World.whose, frontends=(AGUI,))
    assert serve(sealed, AsyncMemoryStore(), key=World.whose)
    assert AISDK.carrying().name == "aisdk"
