"""A reply that is written again, and a request that comes again: by HTTP, plain JSON and the AI SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from goaitools_py import Compactor, KeepRecentTurns, assistant, user
from goaitools_py.backends.base import BackendError
from goaitools_py.serve import ServeLimits
from goaitools_py.states import convert_state
from goaitools_py.testing import Calls, ScriptedBackend

from ._world import World, asynchronous, said
from .test_aisdk import LOOK, message, sent, text_of
from .test_edits import PROTOCOLS, say, texts

DOWN = BackendError("down", status=500, body=b"{}")
WIRES = ("openai", "openai-responses", "anthropic")
TURNS = "/conversations/hall/turns"
FORGETS = ServeLimits(keep_seconds=0)


def world_of(*steps: Any, wire: str = "openai", **fields: Any) -> World:
    world = World(backend=ScriptedBackend(*steps, wire=wire, max_retries=0), limits=FORGETS, **fields)
    world.held.set()
    return world


async def once_more(world: World, text: str, id: str, again: str) -> tuple[int, str]:
    status, body = await world.ask("POST", TURNS, {"text": text, "turn_id": id, "again": again})
    return status, body.get("text", body.get("type", "").rpartition(":")[2])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("named", ["", "ada/hall-2", "of-the-client"])
@pytest.mark.parametrize("steps", [[DOWN], [LOOK, DOWN]])
@asynchronous
async def test_a_failed_turn_goes_on_once(wire: str, named: str, steps: list[Any]) -> None:
    """The request comes twice, the second time at another worker: the first one has paid. A reply that failed
    may have an id of the client's own."""
    world = world_of("One.", *steps, "Two.", "Paid again.", wire=wire)
    async with world.app.running():
        await world.ask("POST", TURNS, said("say 1"))
        assert (await world.ask("POST", TURNS, said("say 2", "m2")))[0] == 503
        first = await once_more(world, "say 2", "a1", named)
        count = len(world.backend.requests)
        world.app = world.twin(None)
        async with world.app.running():
            second = await once_more(world, "say 2", "a1", named)
            other = await once_more(world, "say 2", "a2", "")
    assert first == (200, "Two.")
    assert second[0] == 200
    assert second[1].endswith("Two.")
    assert (len(world.backend.requests), other) == (count + 1, (200, "Paid again."))
    assert (await texts(world))[:2] == ["say 1", "One."]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("steps", [[DOWN], [LOOK, DOWN]])
@asynchronous
async def test_an_earlier_reply_while_the_newest_turn_has_failed(wire: str, steps: list[Any]) -> None:
    """The named one is written again, and not the newest."""
    world = world_of("One.", *steps, "New.", wire=wire)
    async with world.app.running():
        await world.ask("POST", TURNS, said("say 1"))
        await world.ask("POST", TURNS, said("say 2", "m2"))
        answers = [await once_more(world, "say 1", "a1", "ada/hall-1") for _ in range(2)]
    assert answers == [(200, "New.")] * 2
    assert await texts(world) == ["say 1", "New."]


@pytest.mark.parametrize("named", ["of-the-client", "ada/hall-7", "bob/hall-1"])
@asynchronous
async def test_an_unknown_reply_is_not_written_again(named: str) -> None:
    world = world_of("One.")
    await world.ask("POST", TURNS, said("say 1"))
    assert await once_more(world, "say 1", "a1", named) == (400, "AskError")
    assert await texts(world) == ["say 1", "One."]


@pytest.mark.parametrize("place", ["first", "newest"])
@pytest.mark.parametrize("id", ["its own", "the shown one"])
@pytest.mark.parametrize("named", ["nothing", "the message", "the reply"])
@asynchronous
async def test_each_click_of_the_ai_sdk_writes_a_new_reply(place: str, id: str, named: str) -> None:
    """Its requests have the id of the message that is answered. The message may be edited afterwards, too."""
    number = 1 if place == "first" else 2
    if (place, named) == ("first", "nothing"):
        return  # without a name it is the newest reply
    world = world_of("One.", "Two.", "A.", "B.", "C.", "D.", "Edited.")
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 2", "m2"))
    mine = f"m{number}" if id == "its own" else f"ada/hall-{number}u"
    reply = f"ada/hall-{number}"
    heard = []
    for _ in range(4):
        name = {"nothing": None, "the message": mine, "the reply": reply}[named]
        events = await sent(
            world,
            message(f"say {number}", mine),
            trigger="regenerate-message",
            **({} if name is None else {"messageId": name}),
        )
        heard.append(text_of(events))
        reply = events[0][1]["messageId"]
    assert heard == ["A.", "B.", "C.", "D."]
    for _ in range(2):  # the second time it is the same request
        assert text_of(await sent(world, message("changed", mine), messageId=mine)) == "Edited."
    before = [] if place == "first" else ["say 1", "One."]
    assert await texts(world) == [*before, "changed", "Edited."]


@pytest.mark.parametrize("left", ["a cut", "an edit", "a redaction", "a rewind of others"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_that_comes_again_has_its_own_reply(left: str, protocol: str, wire: str) -> None:
    """Also if its turn is not in the history any more, or other turns around it are gone."""
    world = world_of("One.", "Two.", "Three.", wire=wire)
    await say(world, protocol, "say 1, secret", "m1")
    await say(world, protocol, "say 2", "m2")
    conversation = world.chat.conversation(world.store, "ada/hall")
    if left == "a cut":
        await conversation.compact(Compactor(lambda _: True, KeepRecentTurns(1)))
    elif left == "an edit":
        await conversation.send("say 3", edit=1)
    elif left == "a redaction":
        await conversation.redact("secret")
    else:
        await conversation.rewind()
    paid = len(world.backend.requests)

    assert await say(world, protocol, "say 1, secret", "m1") == (200, "One.")
    assert len(world.backend.requests) == paid
    async with world.stream("POST", TURNS, said("say 1, secret", "m1")) as answer:
        named = [data.get("turn") for name, data in await answer.events() if name in ("started", "done")]
    gone = left in ("a cut", "an edit")
    assert named == ["" if gone else "ada/hall-1"] * 2


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_reply_that_a_cut_has_taken_is_written_again(retain: bool, wire: str) -> None:
    """If the cut can be undone. Else the answer says so, and no model is asked."""
    world = world_of("One.", "Two.", "New.", wire=wire)
    for n in (1, 2):
        await world.ask("POST", TURNS, said(f"say {n}", f"m{n}"))
    conversation = world.chat.conversation(world.store, "ada/hall")
    await conversation.compact(Compactor(lambda _: True, KeepRecentTurns(1), retain=retain))

    answers = [await once_more(world, "say 1", "a1", "ada/hall-1") for _ in range(2)]

    assert answers == [(200, "New.") if retain else (409, "EditError")] * 2
    assert await texts(world) == (["say 1", "New."] if retain else ["say 2", "Two."])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_with_an_empty_reply_is_shown(protocol: str, wire: str) -> None:
    """The next request sends it, so a page shows it, too."""
    world = world_of("", "Next.", wire=wire)
    await say(world, protocol, "say 1", "m1")
    await say(world, protocol, "say 2", "m2")
    path = "/conversations/hall" if protocol == "plain" else f"/{protocol}/hall"
    shown = (await world.ask("GET", f"{path}/messages"))[1]
    assert [one["role"] for one in shown].count("user") == 2
    assert b"say 1" in world.backend.requests[-1].body


@pytest.mark.parametrize("named", ["", "ada/hall-2"])
@asynchronous
async def test_a_reply_that_waits_for_an_approval_is_written_again(named: str) -> None:
    """The call goes with its turn."""
    world = world_of("One.", Calls([("fire", {"at": "y"})]), "New.")
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert await once_more(world, "say 2", "a1", named) == (200, "New.")
    assert (await texts(world), world.looked) == (["say 1", "One.", "say 2", "New."], [])


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_that_was_refused_is_said_once_more(wire: str) -> None:
    """No reply of another message is written again for it, also if the request comes twice."""
    refused = [BackendError("no", status=400, body=b'{"error": {"message": "no"}}')] * 3
    world = world_of("One.", DOWN, *refused, "Two.", wire=wire)
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert (await once_more(world, "say 2", "a1", ""))[0] == 422
    assert await texts(world) == ["say 1", "One."]
    world.backend._steps.clear()
    world.backend.then("Two.")
    assert [await once_more(world, "say 2", "a1", "") for _ in range(2)] == [(200, "Two.")] * 2
    assert await texts(world) == ["say 1", "One.", "say 2", "Two."]


@pytest.mark.parametrize("id", ["m2", "ada/hall-waiting-1"])
@pytest.mark.parametrize("named", [True, False])
@asynchronous
async def test_each_click_behind_a_failure_of_the_ai_sdk(id: str, named: bool) -> None:
    """The first one goes on with the turn that failed. The page may have been loaded meanwhile."""
    world = world_of("One.", DOWN, "A.", "B.", "C.")
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 2", "m2"))
    clicks = []
    for _ in range(3):
        about = {"messageId": id} if named else {}
        events = await sent(world, message("say 2", id), trigger="regenerate-message", **about)
        clicks.append(text_of(events))
    assert clicks == ["A.", "B.", "C."]
    assert await texts(world) == ["say 1", "One.", "say 2", "C."]


@pytest.mark.parametrize("change", ["", "redact", "convert"])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_changed_message_is_edited(wire: str, change: str, again: bool) -> None:
    """Its bytes were redacted or converted meanwhile, and its reply may have been written again."""
    world = world_of("One.", *["Anew."] * again, "Edited.", "Never.", wire=wire)
    await sent(world, message("My number is 4711", "m1"))
    if again:
        await sent(world, message("My number is 4711", "m1"), trigger="regenerate-message")
    conversation = world.chat.conversation(world.store, "ada/hall")
    if change == "redact":
        await conversation.redact("4711")
    elif change == "convert":
        for to in ({*WIRES} - {wire}).pop(), wire:
            row = await world.store.load("ada/hall")
            blob = convert_state(row.blob, to).state
            await world.store.save("ada/hall", blob, expected=row.version)
    for _ in range(2):
        assert text_of(await sent(world, message("Hello", "m1"), messageId="m1")) == "Edited."
    assert await texts(world) == ["Hello", "Edited."]
    assert len(world.backend.requests) == 2 + again


@pytest.mark.parametrize("edit", ["ada/hall-1u5", "ada/hall-2u2", "ada/hall-1.3"])
@asynchronous
async def test_a_shown_id_without_a_message_is_not_edited(edit: str) -> None:
    world = world_of("One.", "Two.")
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert (await world.ask("POST", TURNS, said("changed", "e", edit=edit)))[0] == 409
    assert await texts(world) == ["say 1", "One.", "say 2", "Two."]


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_between_a_greeting_and_an_empty_reply_is_shown(wire: str) -> None:
    world = world_of("", "Next.", wire=wire)
    await world.chat.conversation(world.store, "ada/hall").append(assistant("Welcome!"))
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert await texts(world) == ["Welcome!", "say 1", "say 2", "Next."]


PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.parametrize("change", ["convert", "redact, convert", "convert, redact"])
@pytest.mark.parametrize("media", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_an_edit_that_comes_again_is_told(wire: str, change: str, media: bool) -> None:
    """Its bytes are others by then. It is not paid twice, and takes no later turn away."""
    world = world_of("One.", "Edited.", "Later.", wire=wire)
    picture = [{"type": "file", "mediaType": "image/png", "url": PNG}] if media else []
    edited = {**message("My number is 4711", "m1")}
    edited["parts"] = [*picture, *edited["parts"]]
    await sent(world, message("say 1", "m1"))
    assert text_of(await sent(world, edited, messageId="m1")) == "Edited."
    await sent(world, message("later", "m2"))
    for act in change.split(", "):
        if act == "redact":
            await world.chat.conversation(world.store, "ada/hall").redact("4711")
            continue
        for to in ({*WIRES} - {wire}).pop(), wire:
            row = await world.store.load("ada/hall")
            blob = convert_state(row.blob, to).state
            await world.store.save("ada/hall", blob, expected=row.version)

    assert text_of(await sent(world, edited, messageId="m1")) == "Edited."

    assert len(world.backend.requests) == 3
    assert (await texts(world))[-2:] == ["later", "Later."]


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_an_edit_that_failed_is_sent_again(wire: str, again: bool) -> None:
    """The reply of the message was written again before. The message waits by then, under its newer id."""
    world = world_of("One.", *["Anew."] * again, DOWN, "Edited.", wire=wire)
    await sent(world, message("say 1", "m1"))
    if again:
        await sent(world, message("say 1", "m1"), trigger="regenerate-message")
    await sent(world, message("changed", "m1"), messageId="m1")
    assert text_of(await sent(world, message("changed", "m1"), messageId="m1")) == "Edited."
    assert await texts(world) == ["changed", "Edited."]


@asynchronous
async def test_other_clients_edit_a_message_whose_reply_was_written_again() -> None:
    """AG-UI by the id of the message; plain JSON under an id of the edit, which may be edited again."""
    world = world_of("One.", "Anew.", "A.", "B.", "C.")
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 1", "m1"), trigger="regenerate-message")
    assert await say(world, "agui", "by agui", "m1") == (200, "A.")
    answers = [
        (await world.ask("POST", TURNS, said("by plain", "e1", edit="m1")))[1]["text"] for _ in range(2)
    ]
    assert answers == ["B.", "B."]
    assert (await world.ask("POST", TURNS, said("once more", "e2", edit="e1")))[1]["text"] == "C."
    assert await texts(world) == ["once more", "C."]


@asynchronous
async def test_an_old_reply_is_written_again_twice() -> None:
    """Many turns went with it the first time."""
    replies = [f"Reply {n}." for n in range(70)]
    world = world_of(*replies, "A.", "Next.", "B.")
    for n in range(70):
        await sent(world, message(f"say {n}", f"m{n}"))
    for text in ("A.", "B."):
        about = {"trigger": "regenerate-message", "messageId": "m0"}
        assert text_of(await sent(world, message("say 0", "m0"), **about)) == text
        if text == "A.":
            await sent(world, message("then", "n1"))
    assert await texts(world) == ["say 0", "B."]


@pytest.mark.parametrize("left", ["an edit", "a cut"])
@asynchronous
async def test_stored_replies_have_ids_of_their_own_in_ag_ui(left: str) -> None:
    world = world_of("One.", "Two.", "Three.")
    for n in (1, 2):
        await say(world, "agui", f"say {n}", f"m{n}")
    conversation = world.chat.conversation(world.store, "ada/hall")
    if left == "an edit":
        await conversation.send("say 3", edit=1)
    else:
        await conversation.compact(Compactor(lambda _: True, KeepRecentTurns(1)))
    ids = []
    for n in (1, 2):
        body = {
            "threadId": "hall",
            "runId": f"r{n}",
            "messages": [{"id": f"m{n}", "role": "user", "content": f"say {n}"}],
        }
        async with world.asked("POST", "/agui", body) as answer:
            ids += [data["messageId"] for name, data in await answer.events() if name == "TEXT_MESSAGE_START"]
    assert len({*ids}) == len(ids) == 2


@asynchronous
async def test_a_refused_message_with_the_text_of_another_one_is_said_once_more() -> None:
    """Its reply is asked for under the client's id, which no turn has: the other reply stays."""
    refused = [BackendError("no", status=400, body=b'{"error": {"message": "no"}}')] * 3
    world = world_of("One.", *refused, "Two.")
    await sent(world, message("yes", "m1"))
    await sent(world, message("yes", "m2"))
    world.backend._steps.clear()
    world.backend.then("Two.")
    assert text_of(await sent(world, message("yes", "m2"), trigger="regenerate-message")) == "Two."
    assert await texts(world) == ["yes", "One.", "yes", "Two."]


REFUSED = BackendError("no", status=400, body=b'{"error": {"message": "no"}}')
AFTERWARDS = (
    "nothing",
    "edit",
    "cut",
    "cut that can be undone",
    "rewind",
    "click",
    "other clicks",
    "failure",
)


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("named", ["", "ada/hall-2"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_what_goes_on_once_is_not_paid_again(afterwards: str, named: str, wire: str) -> None:
    """Whatever has happened to its turn since then: the reply is told, or the request is refused."""
    world = world_of("One.", DOWN, "Two.", wire=wire)
    conversation = world.chat.conversation(world.store, "ada/hall")
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert await once_more(world, "say 2", "a1", named) == (200, "Two.")
    is_told = afterwards in ("nothing", "other clicks", "failure")
    if afterwards == "edit":
        world.backend.then("Edited.")
        await conversation.send("changed", edit=2)
    elif afterwards.startswith("cut"):
        world.backend.then("Three.")
        await world.ask("POST", TURNS, said("say 3", "m3"))
        retain = "undone" in afterwards
        await conversation.compact(Compactor(lambda _: True, KeepRecentTurns(1), retain=retain))
    elif afterwards == "rewind":
        await conversation.rewind(2)
    elif afterwards == "click":
        world.backend.then("Anew.")
        assert await once_more(world, "say 2", "a2", "ada/hall-2") == (200, "Anew.")
    elif afterwards == "other clicks":
        for number in range(3, 6):
            world.backend.then(DOWN)
            await world.ask("POST", TURNS, said(f"say {number}", f"m{number}"))
            world.backend.then("Later.")
            assert await once_more(world, f"say {number}", f"b{number}", "") == (200, "Later.")
    elif afterwards == "failure":
        world.backend.then(DOWN)
        await world.ask("POST", TURNS, said("say 3", "m3"))
    count, before = len(world.backend.requests), await texts(world)

    for _ in range(2):
        answer = await once_more(world, "say 2", "a1", named)
        assert answer == ((200, "Two.") if is_told else (409, "TurnConflictError"))

    assert (len(world.backend.requests), await texts(world)) == (count, before)


@pytest.mark.parametrize("named", ["", "ada/hall-2"])
@asynchronous
async def test_a_request_whose_message_was_refused_has_no_other_reply(named: str) -> None:
    """The next message has the number that its turn had."""
    world = world_of("One.", DOWN, *[REFUSED] * 3)
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert (await once_more(world, "say 2", "a1", named))[0] == 422
    world.backend._steps.clear()
    world.backend.then("Three.")
    await world.ask("POST", TURNS, said("say 3", "m3"))
    assert await once_more(world, "say 2", "a1", named) == (409, "TurnConflictError")
    assert await texts(world) == ["say 1", "One.", "say 3", "Three."]


@pytest.mark.parametrize("how", ["plain", "AI SDK", "AI SDK by the message"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_refused_message_is_said_once_more_beside_a_failed_one(how: str, wire: str) -> None:
    """The failed one is another sender's. So it is not the one that is meant."""
    world = world_of("One.", *[REFUSED] * 3, wire=wire)
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 2", "m2"))
    world.backend._steps.clear()
    world.backend.then(DOWN)
    await sent(world, message("say 3", "m3"))
    world.backend.then("Both.")
    if how == "plain":
        assert await once_more(world, "say 2", "a1", "") == (200, "Both.")
    else:
        about = {"trigger": "regenerate-message", **({"messageId": "m2"} if "message" in how else {})}
        assert text_of(await sent(world, message("say 2", "m2"), **about)) == "Both."
    assert await texts(world) == ["say 1", "One.", "say 3", "say 2", "Both."]


@pytest.mark.parametrize("named", ["m2", "ada/hall-2u"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_the_named_one_of_two_messages_is_answered_again(named: str, wire: str) -> None:
    """The client has taken the newer one away with the reply."""
    world = world_of("One.", DOWN, "Both.", "Anew.", wire=wire)
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 2", "m2"))
    await sent(world, message("say 3", "m3"))
    assert await texts(world) == ["say 1", "One.", "say 2", "say 3", "Both."]
    about = {"trigger": "regenerate-message", "messageId": named}
    assert text_of(await sent(world, message("say 2", named), **about)) == "Anew."
    assert await texts(world) == ["say 1", "One.", "say 2", "Anew."]


@pytest.mark.parametrize("change", ["convert", "redact", "nothing"])
@pytest.mark.parametrize("first", ["an edit", "a click"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_an_edit_behind_a_reply_that_was_written_again(change: str, first: str, wire: str) -> None:
    """A request before it has failed, so that the message waits."""
    world = world_of("One.", "Anew.", DOWN, "Edited.", wire=wire)
    click = {"trigger": "regenerate-message", "messageId": "m1"}
    await sent(world, message("My number is 4711", "m1"))
    await sent(world, message("My number is 4711", "m1"), **click)
    if change == "redact":
        await world.chat.conversation(world.store, "ada/hall").redact("4711")
    elif change == "convert":
        for to in ({*WIRES} - {wire}).pop(), wire:
            row = await world.store.load("ada/hall")
            await world.store.save("ada/hall", convert_state(row.blob, to).state, expected=row.version)
    if first == "a click":
        await sent(world, message("My number is 4711", "m1"), **click)
    else:
        await sent(world, message("changed", "m1"), messageId="m1")
    assert text_of(await sent(world, message("changed", "m1"), messageId="m1")) == "Edited."
    assert await texts(world) == ["changed", "Edited."]


@pytest.mark.parametrize("how", ["plain", "AI SDK"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_refused_files_replace_no_other_files(how: str, wire: str) -> None:
    """Both messages have no text."""
    world = world_of("One.", *[REFUSED] * 3, wire=wire)
    pictures = [PNG, "data:image/png;base64,iVBORw0KGgoAAAA="]
    asked = [
        {"id": f"m{n}", "role": "user", "parts": [{"type": "file", "mediaType": "image/png", "url": url}]}
        for n, url in enumerate(pictures)
    ]
    for one in asked:
        await sent(world, one)
    world.backend._steps.clear()
    world.backend.then("Both.")
    if how == "plain":
        parts = [{"type": "file", "media_type": "image/png", "url": pictures[1]}]
        await world.ask("POST", TURNS, {"parts": parts, "turn_id": "a1", "again": ""})
    else:
        await sent(world, asked[1], trigger="regenerate-message")
    assert await texts(world) == ["", "One.", "", "Both."]
    assert all(url.rpartition(",")[2].encode() in world.backend.requests[-1].body for url in pictures)
    world.backend.then("Anew.")
    if how == "plain":
        await world.ask("POST", TURNS, {"parts": parts, "turn_id": "a2", "again": ""})
        assert await texts(world) == ["", "One.", "", "Anew."]


TEXT = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGVsbG8="}


@pytest.mark.parametrize("text", ["", "Read this."])
@pytest.mark.parametrize("how", ["plain", "AI SDK"])
@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_message_with_a_text_file_is_said_once(wire: str, failed: bool, how: str, text: str) -> None:
    """Its reply is written again, or its turn has failed. The page was loaded anew."""
    world = world_of("One.", DOWN if failed else "Two.", wire=wire)
    words = [{"type": "text", "text": text}] if text else []
    await sent(world, message("say 1", "m1"))
    await sent(world, {"id": "m2", "role": "user", "parts": [*words, TEXT]})
    world.backend.then("Anew.")
    if how == "plain":
        parts = [*words, {"type": "file", "media_type": "text/plain", "url": TEXT["url"]}]
        assert (await world.ask("POST", TURNS, {"parts": parts, "turn_id": "a1", "again": ""}))[0] == 200
    else:
        shown = "ada/hall-waiting-1" if failed else "ada/hall-2u"
        asked = {"id": shown, "role": "user", "parts": [*words, TEXT]}
        assert text_of(await sent(world, asked, trigger="regenerate-message")) == "Anew."
    assert world.backend.requests[-1].body.count(b"hello") == 1
    assert (await texts(world))[-1] == "Anew."


@asynchronous
async def test_a_click_of_the_ai_sdk_behind_a_cut_is_a_new_one() -> None:
    """The click before went on with the failed turn, and named its reply. The cut is undone."""
    world = world_of("One.", DOWN, "Two.", "Three.", "Anew.")
    await sent(world, message("say 1", "m1"))
    await sent(world, message("say 2", "m2"))
    click = {"trigger": "regenerate-message", "messageId": "ada/hall-2"}
    assert text_of(await sent(world, message("say 2", "m2"), **click)) == "Two."
    await sent(world, message("say 3", "m3"))
    conversation = world.chat.conversation(world.store, "ada/hall")
    await conversation.compact(Compactor(lambda _: True, KeepRecentTurns(1), retain=True))
    assert text_of(await sent(world, message("say 2", "m2"), **click)) == "Anew."
    assert await texts(world) == ["say 1", "One.", "say 2", "Anew."]


@asynchronous
async def test_a_refused_request_does_not_go_on_with_another_failed_turn() -> None:
    """That turn has the number that the refused one had."""
    world = world_of("One.", DOWN, *[REFUSED] * 3)
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    assert (await once_more(world, "say 2", "a1", "ada/hall-2"))[0] == 422
    world.backend._steps.clear()
    world.backend.then(DOWN)
    await world.ask("POST", TURNS, said("say 3", "m3"))
    assert await once_more(world, "say 2", "a1", "ada/hall-2") == (400, "AskError")
    assert await texts(world) == ["say 1", "One.", "say 3"]


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_again_answers_a_message_that_waits_behind_a_reply(wire: str) -> None:
    """It came during the call, and the call for it failed: the turn before is complete."""
    world = world_of("One.", "Late answer.", wire=wire)
    await world.ask("POST", TURNS, said("say 1"))
    await world.chat.conversation(world.store, "ada/hall").append(user("Late."))
    for _ in range(2):
        assert await once_more(world, "Late.", "a1", "") == (200, "Late answer.")
    assert await texts(world) == ["say 1", "One.", "Late.", "Late answer."]


@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_the_message_of_two_is_found_by_its_text(wire: str) -> None:
    """The client names their reply."""
    world = world_of("One.", DOWN, "Both.", "Anew.", wire=wire)
    for n in (1, 2, 3):
        await world.ask("POST", TURNS, said(f"say {n}", f"m{n}"))
    assert await once_more(world, "say 2", "a1", "ada/hall-2") == (200, "Anew.")
    assert await texts(world) == ["say 1", "One.", "say 2", "Anew."]


@asynchronous
async def test_the_newest_requests_are_noted() -> None:
    """Also one that was noted before."""
    world = world_of("One.", DOWN)
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    for id in ("a1", *(f"b{n}" for n in range(7)), "a1"):
        assert len(world.backend._steps) == 0
        world.backend.then("Two." if id == "a1" and len(world.backend.requests) > 3 else DOWN)
        answer = await once_more(world, "say 2", id, "")
    assert answer == (200, "Two.")
    world.backend.then(DOWN)
    await world.ask("POST", TURNS, said("say 3", "m3"))
    world.backend.then("Three.")
    assert await once_more(world, "say 3", "c1", "") == (200, "Three.")
    assert await once_more(world, "say 2", "a1", "") == (200, "Two.")
    conversation = await world.chat.conversation(world.store, "ada/hall").snapshot()
    assert len(conversation.info.metadata["goaitools.again"].split(",")) == 8


@pytest.mark.parametrize("how", ["plain", "AI SDK", "AI SDK, loaded again"])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_behind_a_greeting_a_reply_is_written_again(wire: str, how: str) -> None:
    """The application has greeted before the first message. The greeting stays."""
    world = world_of("One.", "Anew.", wire=wire)
    await world.chat.conversation(world.store, "ada/hall").append(assistant("Welcome!"))
    await sent(world, message("say 1", "m1"))
    if how == "plain":
        assert await once_more(world, "say 1", "a1", "") == (200, "Anew.")
    else:
        shown = (await world.ask("GET", "/aisdk/hall/messages"))[1][1]["id"]
        asked = message("say 1", "m1" if how == "AI SDK" else shown)
        assert text_of(await sent(world, asked, trigger="regenerate-message")) == "Anew."
    assert await texts(world) == ["Welcome!", "say 1", "Anew."]
    world.backend.then("Edited.")
    assert (await world.ask("POST", TURNS, said("changed", "e1", edit="ada/hall-2u")))[1]["text"] == "Edited."
    assert await texts(world) == ["Welcome!", "changed", "Edited."]


@pytest.mark.parametrize("named", [None, "m3", "ada/hall-2"])
@asynchronous
async def test_a_steered_reply_is_written_again(named: str | None) -> None:
    """It answers the message that steered."""
    world = World(
        backend=ScriptedBackend("One.", LOOK, "Two.", "Anew.", max_retries=0), limits=FORGETS, gate="steer"
    )
    await sent(world, message("say 1", "m1"))
    async with asyncio.TaskGroup() as group:
        group.create_task(sent(world, message("say 2", "m2")))
        await world.is_inside.wait()
        steers = group.create_task(sent(world, message("steer", "m3")))
        while "steer" not in str(await texts(world)):
            await asyncio.sleep(0)
        world.held.set()
        await steers
    about = {} if named is None else {"messageId": named}
    again = await sent(world, message("steer", "m3"), trigger="regenerate-message", **about)
    assert text_of(again) == "Anew."


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@asynchronous
async def test_a_picture_with_a_context_is_known(wire: str, failed: bool) -> None:
    """The context of a request is no part of its message."""
    world = world_of("One.", DOWN if failed else "Two.", "Anew.", wire=wire)
    parts = [{"type": "file", "media_type": "image/png", "url": PNG}]
    how: dict[str, Any] = {"parts": parts, "context": "It rains."}
    await world.ask("POST", TURNS, said("say 1"), user="game")
    await world.ask("POST", TURNS, {**how, "turn_id": "m2"}, user="game")
    world.backend._steps.clear()
    world.backend.then("Anew.")
    for _ in range(2):
        answer = await world.ask("POST", TURNS, {**how, "turn_id": "a1", "again": ""}, user="game")
        assert answer[1]["text"] == "Anew."
    shown = (await world.ask("GET", "/conversations/hall/messages", user="game"))[1]
    assert [one["text"] for one in shown] == ["say 1", "One.", "", "Anew."]


@pytest.mark.parametrize("first", [DOWN, "Two."])
@asynchronous
async def test_a_request_without_an_id_is_a_new_one(first: Any) -> None:
    """Plain JSON by the id of the message, also behind a failure."""
    world = world_of("One.", first, "A.", "B.")
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("say 2", "m2"))
    for text in ("A.", "B."):
        assert await once_more(world, "say 2", "m2", "m2") == (200, text)


@asynchronous
async def test_again_in_a_conversation_that_was_erased_is_paid_once() -> None:
    world = world_of("One.", "Two.")
    for _ in range(2):
        assert await once_more(world, "say 1", "a1", "") == (200, "One.")
    assert await texts(world) == ["say 1", "One."]


@asynchronous
async def test_an_escaped_text_is_known() -> None:
    """The message has failed, and holds what stands for a character."""
    world = world_of("One.", DOWN, "Two.")
    await world.ask("POST", TURNS, said("say 1"))
    await world.ask("POST", TURNS, said("&lt;app-context>x", "m2"))
    assert await once_more(world, "&lt;app-context>x", "a1", "") == (200, "Two.")
    assert (await texts(world))[-1] == "Two."
    assert len(await texts(world)) == 4
