"""A message that replaces an earlier one, by HTTP, in each protocol: the AI SDK, AG-UI and plain JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from goaitools_py.backends.base import BackendError
from goaitools_py.serve import ServeLimits
from goaitools_py.testing import Calls

from ._world import World, asynchronous, said

REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
PROTOCOLS = ("aisdk", "agui", "plain")
SHORT = ServeLimits(keep_seconds=0)


async def say(world: World, protocol: str, text: str, id: str, *, edit: str = "") -> tuple[int, str]:
    """Say something, with `edit` in place of an earlier message; give the status, and the reply's text."""
    if protocol == "plain":
        body: Any = said(text, f"{id}-{text}" if edit else id, **({"edit": edit} if edit else {}))
        path = "/conversations/hall/turns"
    elif protocol == "aisdk":
        message = {"id": edit or id, "role": "user", "parts": [{"type": "text", "text": text}]}
        body = {"id": "hall", "messages": [message], "trigger": "submit-message"}
        body |= {"messageId": edit} if edit else {}
        path = "/aisdk"
    else:
        message = {"id": edit or id, "role": "user", "content": text}
        body = {"threadId": "hall", "runId": "r", "messages": [message]}
        path = "/agui"
    async with world.asked("POST", path, body) as answer:
        if answer.status != 200:
            return answer.status, (await answer.json())["type"].rpartition(":")[2]
        if protocol == "plain":
            return 200, (await answer.json())["text"]
        return 200, "".join(data.get("delta", "") for _, data in await answer.events())


async def texts(world: World) -> list[str]:
    shown = (await world.ask("GET", "/conversations/hall/messages"))[1]
    return [one["text"] for one in shown]


async def ids(world: World, protocol: str) -> list[str]:
    """The ids of the user's messages, as a page that is loaded again gets them."""
    path = "/conversations/hall" if protocol == "plain" else f"/{protocol}/hall"
    shown = (await world.ask("GET", f"{path}/messages"))[1]
    return [one["id"] for one in shown if one["role"] == "user"]


@pytest.mark.parametrize("knows", ["its own id", "the shown id"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@asynchronous
async def test_a_message_is_edited_again_and_again(protocol: str, knows: str) -> None:
    """Each edit replaces the one before it, under the id that the client knows."""
    world = World("One.", "Two.", "Three.", "B.", "C.", "B once more.", limits=SHORT)
    for n in (1, 2, 3):
        await say(world, protocol, f"say {n}", f"m{n}")
    edit = "m2" if knows == "its own id" else (await ids(world, protocol))[1]

    assert await say(world, protocol, "B", "e", edit=edit) == (200, "B.")
    assert await texts(world) == ["say 1", "One.", "B", "B."]
    await asyncio.sleep(0)
    assert await say(world, protocol, "B", "e", edit=edit) == (200, "B.")  # delivered twice
    assert len(world.backend.requests) == 4
    if protocol == "plain":  # each of its messages has an id of its own
        edit = (await ids(world, protocol))[1]
    assert await say(world, protocol, "C", "f", edit=edit) == (200, "C.")
    if protocol == "plain":
        edit = (await ids(world, protocol))[1]
    assert await say(world, protocol, "B", "g", edit=edit) == (200, "B once more.")
    assert await texts(world) == ["say 1", "One.", "B", "B once more."]
    assert b"say 2" not in world.backend.requests[-1].body
    assert b"say 3" not in world.backend.requests[-1].body


@pytest.mark.parametrize("protocol", PROTOCOLS)
@asynchronous
async def test_a_refused_edit_leaves_the_conversation(protocol: str) -> None:
    world = World("One.", "Two.", REFUSED, REFUSED, REFUSED)
    await say(world, protocol, "say 1", "m1")
    await say(world, protocol, "say 2", "m2")

    await say(world, protocol, "poison", "e", edit="m1")

    assert await texts(world) == ["say 1", "One.", "say 2", "Two."]


@pytest.mark.parametrize("edit", ["ada/hall-7u", "of-the-client", "bob/hall-1u"])
@pytest.mark.parametrize("protocol", ["aisdk", "plain"])
@asynchronous
async def test_an_unknown_message_is_not_edited(protocol: str, edit: str) -> None:
    """It was answered 200, and appended. Now nothing is called, and the answer says why."""
    world = World("One.")
    await say(world, protocol, "say 1", "m1")

    assert await say(world, protocol, "changed", "e", edit=edit) == (409, "EditError")
    assert await texts(world) == ["say 1", "One."]
    assert len(world.backend.requests) == 1


@asynchronous
async def test_an_id_of_ag_ui_that_is_new_is_a_new_message() -> None:
    """That protocol has no word for an edit: a known id with another text is one."""
    world = World("One.", "Two.", "New.")
    await say(world, "agui", "say 1", "m1")
    await say(world, "agui", "say 2", "m2")
    assert await texts(world) == ["say 1", "One.", "say 2", "Two."]
    assert await say(world, "agui", "changed", "m1") == (200, "New.")
    assert await texts(world) == ["changed", "New."]


@asynchronous
async def test_an_edit_while_a_call_waits() -> None:
    """The turn that waits goes, and so does its call."""
    world = World("One.", Calls([("fire", {"at": "y"})]), "New.")
    await say(world, "aisdk", "say 1", "m1")
    await say(world, "aisdk", "fire!", "m2")
    assert await say(world, "aisdk", "do not fire", "x", edit="m2") == (200, "New.")
    assert await texts(world) == ["say 1", "One.", "do not fire", "New."]
    assert world.looked == []


@asynchronous
async def test_the_branch_is_a_conversation_of_the_same_user() -> None:
    """With `keep_branches` it stands in the list, and goes on."""
    world = World("One.", "Two.", "New.", "More.", keep_branches=True)
    await say(world, "plain", "say 1", "m1")
    await say(world, "plain", "say 2", "m2")
    status, result = await world.ask(
        "POST", "/conversations/hall/turns", said("changed", "e", edit="ada/hall-1u")
    )
    assert (status, result["warnings"]) == (200, ["branch_kept"])

    names = [row["name"] for row in (await world.ask("GET", "/conversations"))[1]["conversations"]]
    (branch,) = (name for name in names if name != "hall")
    shown = (await world.ask("GET", f"/conversations/{branch}/messages"))[1]
    assert [one["text"] for one in shown] == ["say 1", "One.", "say 2", "Two."]
    assert (await world.ask("POST", f"/conversations/{branch}/turns", said("on", "m9")))[1]["text"] == "More."
    assert await texts(world) == ["changed", "New."]


@asynchronous
async def test_bodies_with_both_are_refused() -> None:
    world = World()
    for body in (said(edit="a", again="b"), said(edit=3), {"answers": {"a": {"deny": "no"}}, "edit": "a"}):
        assert (await world.ask("POST", "/conversations/hall/turns", body))[0] == 400
