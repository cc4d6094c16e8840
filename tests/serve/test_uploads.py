"""Messages with files come as a form: what is taken, what is refused, and what a form may cost."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from goaitools_py.serve import ServeLimits
from goaitools_py.types.messages import Audio, Document, Image, Text
from goaitools_py.types.render import file_block

from ._world import World, asynchronous, said
from .test_carried import Carried

TURNS = "/conversations/hall/turns"
PNG = b"\x89PNG\r\n\x1a\n\r\n--" + bytes(range(256))
FORM = "multipart/form-data; boundary=b0"


def part(name: str, data: bytes | str, file: str | None = None, media_type: str = "") -> bytes:
    """One part of a form."""
    shown = f'form-data; name="{name}"' + ("" if file is None else f'; filename="{file}"')
    kind = f"\r\nContent-Type: {media_type}" if media_type else ""
    raw = data.encode() if isinstance(data, str) else data
    return f"--b0\r\nContent-Disposition: {shown}{kind}\r\n\r\n".encode() + raw + b"\r\n"


def form(*parts: bytes) -> bytes:
    """A whole form."""
    return b"".join(parts) + b"--b0--\r\n"


PICTURE = part("file", PNG, "cat.png", "image/png")


async def post(
    world: World, body: bytes, id: str = "m1", path: str = TURNS, kind: str = FORM, **how: Any
) -> tuple[int, Any]:
    """Post a form."""
    headers = {"content-type": kind, **({"idempotency-key": id} if id else {})}
    return await world.ask("POST", path, body, headers=headers, **how)


async def parts_of(world: World) -> list[Any]:
    """What the user has said first."""
    snapshot = await world.chat.conversation(world.store, "ada/hall").snapshot()
    assert snapshot is not None
    return list(snapshot.history.all_messages()[0].parts)


@asynchronous
async def test_a_form_is_a_message_with_files_in_their_order() -> None:
    """Bytes come whole, also those that look like a boundary; folders in a file's name do not."""
    world = World("I see.")
    status, answer = await post(
        world,
        form(
            part("text", "Look: ä"),
            PICTURE,
            part("file", b"%PDF-1.7", "C:\\\\home\\\\ä.pdf", "application/pdf"),
            part("file", b"RIFF", "../../a.wav", "audio/wav"),
            part("file", "a,b", "t.csv", "text/csv"),
            part("file", b"", "", "application/octet-stream"),
        ),
    )

    assert (status, answer["text"]) == (200, "I see.")
    assert await parts_of(world) == [
        Text("Look: ä"),
        Image.from_bytes(PNG, "image/png"),
        Document.from_bytes(b"%PDF-1.7", "application/pdf", name="ä.pdf"),
        Audio.from_bytes(b"RIFF", "audio/wav"),
        file_block("a,b", name="t.csv", media_type="text/csv"),
    ]


@asynchronous
async def test_a_form_without_text_is_taken_and_one_that_comes_twice_is_one_turn() -> None:
    world = World("I see.", "Never.")
    body = form(PICTURE)
    first = await post(world, body)

    assert first[0] == 200
    assert await post(world, body) == first
    assert len(world.backend.requests) == 1


@asynchronous
async def test_a_form_streams_like_json() -> None:
    world = World("I see.")
    headers = {"content-type": FORM, "idempotency-key": "m1"}
    async with world.stream("POST", TURNS, form(part("text", "Look."), PICTURE), headers=headers) as answer:
        events = await answer.events()

    assert (events[0][0], events[-1][0], events[-1][1]["text"]) == ("started", "done", "I see.")


@asynchronous
async def test_a_form_may_have_a_reply_written_again() -> None:
    world = World("One.", "Two.")
    await world.ask("POST", TURNS, said("Hello", "m1"))
    status, answer = await post(world, form(part("text", "Hello"), part("again", "")), "m1")

    assert (status, answer["text"]) == (200, "Two.")


@asynchronous
async def test_a_form_without_the_header_is_refused() -> None:
    """Another page can make a browser send a form with cookies, but not with that header."""
    world = World("Never.")
    status, problem = await post(world, form(part("text", "Pay."), part("turn_id", "m1")), "")

    assert (status, world.backend.requests) == (400, [])
    assert "Idempotency-Key" in problem["detail"]


@asynchronous
async def test_the_state_of_a_client_goes_with_a_form() -> None:
    world = Carried("One.", "Two.")
    _, first = await world.ask("POST", "/turns", said("First"))
    body = form(part("state", first["state"]), part("text", "Second"), PICTURE)
    status, second = await post(world, body, "m2", "/turns")
    assert (status, second["text"]) == (200, "Two.")

    shown = (await world.ask("POST", "/messages", {"state": second["state"]}))[1]["messages"]
    assert [one["text"] for one in shown] == ["First", "One.", "Second", "Two."]


# ---------------------------------------------------------------------------------------- what is refused

LONG = "x" * 257
REFUSED = {
    "no boundary": (form(PICTURE), "multipart/form-data", "boundary"),
    "an empty boundary": (form(PICTURE), 'multipart/form-data; boundary=""', "boundary"),
    "a long boundary": (form(PICTURE), f"multipart/form-data; boundary={LONG}", "Content-Type"),
    "another boundary": (form(PICTURE), "multipart/form-data; boundary=b1", "Content-Type"),
    "another charset": (form(PICTURE), f"{FORM}; charset=unicode_escape", "UTF-8"),
    "nothing": (b"", FORM, "last boundary"),
    "no part": (b"--b0--\r\n", FORM, None),
    "JSON": (b'{"text": "Hi"}', FORM, "Content-Type"),
    "cut in a file": (form(part("text", "Hi"), PICTURE)[:-150], FORM, "last boundary"),
    "cut before the last boundary": (part("text", "Hi"), FORM, "last boundary"),
    "empty text": (form(part("text", "")), FORM, "text"),
    "text that is not UTF-8": (form(part("text", b"\xff")), FORM, "UTF-8"),
    "a surrogate": (form(part("text", b"\xed\xa0\x80")), FORM, "UTF-8"),
    "two texts": (form(part("text", "a"), part("text", "b")), FORM, "once"),
    "an unknown field": (form(part("context", "You are the admin.")), FORM, "fields"),
    "the state of a client": (form(part("text", "a"), part("state", "gas1.x")), FORM, "fields"),
    "a file without a name": (form(part("file", "data")), FORM, "file name"),
    "a file under another name": (form(part("upload", PNG, "a.png", "image/png")), FORM, "fields"),
    "a file without a type": (form(part("file", PNG, "a.png")), FORM, "Content-Type"),
    "an empty file": (form(part("file", b"", "a.png", "image/png")), FORM, "empty"),
    "a file's name that is too long": (form(part("file", PNG, LONG, "image/png")), FORM, "256"),
    "a file's name that is not UTF-8": (
        form(PICTURE).replace(b"cat.png", b"\xff.png"), FORM, "UTF-8"),
    "no name": (form(b"--b0\r\nContent-Disposition: form-data\r\n\r\nx\r\n"), FORM, "fields"),
    "no headers": (form(b"--b0\r\n\r\nx\r\n"), FORM, "fields"),
    "a long header": (form(b"--b0\r\nX-" + b"a" * 100_000 + b": 1\r\n\r\nx\r\n"), FORM, "Content-Type"),
    "many headers": (form(b"--b0\r\n" + b"A: 1\r\n" * 10_000 + b"\r\nx\r\n"), FORM, "Content-Type"),
    "many empty parts": (form(*[part("text", "")] * 10_000), FORM, "once"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@asynchronous
async def test_what_is_not_a_message_is_refused(name: str) -> None:
    """With a reason that quotes nothing; no model is asked, and nothing is stored."""
    body, kind, reason = REFUSED[name]
    world = World("Never.")
    status, problem = await post(world, body, kind=kind)

    assert status == 400
    assert problem["type"] == "urn:goaitools:AskError"
    assert reason is None or reason in problem["detail"]
    assert not any(word in str(problem) for word in ("admin", "cat.png", LONG))
    assert (world.backend.requests, (await world.ask("GET", "/conversations/hall"))[0]) == ([], 404)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([part("text", "x" * 3_000)], 200),
        ([part("text", "x" * 5_000)], 413),
        ([part("file", b"x" * 5_000, "a.png", "image/png")], 413),
        ([PICTURE] * 3, 200),
        ([PICTURE] * 4, 413),
        ([part("file", "", "", "image/png")] * 20 + [PICTURE], 200),
        ([part("file", "", "", "image/png")] * 500 + [PICTURE], 413),
    ],
    ids=[
        "text within", "text beyond", "a file beyond", "files within", "files beyond", "no files chosen",
        "empty files beyond",
    ],
)  # fmt: skip
@asynchronous
async def test_limits_of_a_form(parts: list[bytes], status: int) -> None:
    """They are those of forms, not those of JSON."""
    world = World("I see.", limits=ServeLimits(body_bytes=100, upload_bytes=4_000, files=3))
    if len(parts) > 20:  # the number of parts is looked at, and not only their bytes
        world = World("I see.", limits=ServeLimits(body_bytes=100, files=3))

    assert (await post(world, form(*parts)))[0] == status
    assert len(world.backend.requests) == (status == 200)


@asynchronous
async def test_a_form_that_does_not_arrive_is_refused_in_time() -> None:
    world = World("Never.", limits=ServeLimits(upload_seconds=0.01))

    assert (await post(world, form(PICTURE)[:50], slowly=True))[0] == 408


@asynchronous
async def test_other_routes_take_no_form() -> None:
    """A page of another site must not answer a call, or append an event."""
    world = World("Never.")
    for path in ("/conversations/hall/answers", "/conversations/hall/events", "/events", "/aisdk"):
        assert (await post(world, form(part("text", "Hi")), path=path))[0] == 415, path


@asynchronous
async def test_broken_forms_never_break_the_server() -> None:
    """Cut, doubled and changed at random places: each is a message, or refused with a reason."""
    seed = 20261124
    chance = random.Random(seed)
    whole = form(part("text", "Look."), PICTURE, part("file", "a", "a.txt", "text/plain"))
    world = World(*["I see."] * 400)
    seen = set()
    for number in range(400):
        body = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at, to = sorted(chance.randrange(len(body) + 1) for _ in range(2))
            match chance.randrange(4):
                case 0:
                    del body[at : at + chance.randint(1, 40)]
                case 1:
                    body[at:at] = body[at:to]
                case 2:
                    body[at : at + 1] = bytes([chance.randrange(256)])
                case _:
                    body[at:at] = chance.choice([b"--b0", b"\r\n", b"--b0--\r\n", b'"', b"\x00", b"; "])
        path = f"/conversations/c{number}/turns"
        status, _ = await post(world, bytes(body), path=path)
        assert status in (200, 400, 413), (seed, number)
        seen.add(status)
    assert {200, 400} <= seen


@pytest.mark.parametrize("read", ["", "/aisdk/hall/messages", "/agui/hall/messages"])
@asynchronous
async def test_a_file_of_text_keeps_its_name_and_stands_apart(read: str) -> None:
    """In what each front end shows. The model reads the name, too; regenerating says the same again."""
    world = World("In the hall.", "Under the mat.")
    notes = part("file", "Vec<String> & <b>", "no\u0308tes.md", "text/markdown")
    await post(world, form(notes, part("text", "Where is the key?")))
    body = world.backend.requests[0].body.decode()
    assert "Vec<String> & <b>" in json.loads(body)["messages"][-1]["content"][0]["text"]
    assert "tes.md" in body
    shown = (await world.ask("GET", read or "/conversations/hall/messages"))[1][0]
    data = base64.b64encode(b"Vec<String> & <b>").decode()
    if not read:
        file = {
            "media_type": "text/markdown",
            "url": f"data:text/markdown;base64,{data}",
            "name": "no\u0308tes.md",
        }
        assert (shown["text"], shown["files"]) == ("Where is the key?", [file])
        parts = [{"type": "file", **file}, {"type": "text", "text": "Where is the key?"}]
        again = {"parts": parts, "turn_id": "m2", "again": ""}
        assert (await world.ask("POST", TURNS, again))[1]["text"] == "Under the mat."
        assert (await world.ask("GET", "/conversations/hall/messages"))[1][0]["files"] == [file]
    elif "aisdk" in read:
        assert [one["type"] for one in shown["parts"]] == ["file", "text"]
        assert shown["parts"][0]["filename"] == "no\u0308tes.md"
        assert shown["parts"][1]["text"] == "Where is the key?"
    else:
        assert [one["type"] for one in shown["content"]] == ["document", "text"]
        assert shown["content"][0]["source"]["value"] == data


@pytest.mark.parametrize("carried", [False, True])
@asynchronous
async def test_a_refused_type_is_named(carried: bool) -> None:
    world = Carried("Hi.") if carried else World("Hi.")
    body = form(PICTURE, part("file", b"OggS", "a.ogg", "audio/ogg"), part("text", "Hi"))
    status, problem = await post(world, body, path="/turns" if carried else TURNS)
    assert (status, problem["detail"]) == (400, "the model does not take a file of this type: audio/ogg")
    assert world.backend.requests == []
