"""Media stored once, in whole conversations: each provider gets the bytes that it would get without."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    Message,
    ToolReturn,
    TurnLimit,
    event,
    tool,
    user,
)
from goaitools_py.history.archive_reading import archive_of
from goaitools_py.seal import PLAIN, BlobLimits, Encrypted, Key, Keyring, Plain
from goaitools_py.state import segments as segments_module
from goaitools_py.state import state as state_module
from goaitools_py.state import unfinished_segments as open_module
from goaitools_py.state.closed_turns import ClosedTurn, numbers_of
from goaitools_py.state.media import LEAST_BYTES
from goaitools_py.state.parts import ARCHIVE, MEDIA
from goaitools_py.state.state import closed_entries, closed_turns, dump_state, load_state
from goaitools_py.states import (
    export_state,
    fork_state,
    import_state,
    pending_calls,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_from_messages,
    state_messages,
    undo_cut,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend, check_history
from goaitools_py.types.errors import StateError
from goaitools_py.types.messages import Document, Text
from tests.compaction._histories import PIXEL, WIRES, Book, random_turn
from tests.compaction.test_properties import COMPACTORS
from tests.history.test_archive import retaining

SIZES = (LEAST_BYTES - 2, LEAST_BYTES - 1, LEAST_BYTES, LEAST_BYTES + 1, 6_000, 30_001)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _picture(r: random.Random) -> Image:
    size = r.choice(SIZES)
    return Image.from_bytes((PIXEL + random.Random(size + r.randrange(2)).randbytes(size))[:size])


def _medium(r: random.Random) -> Any:
    image = _picture(r)
    kinds: list[Any] = [
        image,
        image,
        Document.from_bytes(image.data or b"", name="play.pdf"),
        Image.from_url("data:image/png;base64," + base64.b64encode(image.data or b"").decode()),
        Text(base64.b64encode(image.data or b"").decode().rstrip("=")),
    ]
    return r.choice(kinds)


def _talk(face: Any, wire: str, seed: int, **fields: Any) -> tuple[list[bytes], bytes]:
    """A conversation with pictures everywhere: the bodies of its requests, and its state."""
    r = random.Random(f"{wire}/{seed}")

    @tool
    def look(place: str) -> Any:
        """Look at a place."""
        return ToolReturn([Text(place), *[_picture(r) for _ in range(r.randrange(3))]])

    steps: list[Any] = []
    for number in range(5):
        if r.random() < 0.6:
            steps.append(Calls([("look", {"place": f"{number}/{n}"}) for n in range(r.randrange(1, 3))]))
        steps.append(f"Answer {number}.")
    backend = ScriptedBackend(*steps, wire=wire)
    chat = face.chat(backend, tools=[look], **fields)
    state = None
    for number in range(5):
        if r.random() < 0.4:
            said: list[Message] = [event(f"Event {number}"), user(Text("Before."), _medium(r))]
            state = chat.append_to_state(state, *said)
        said_now = [f"Question {number}?", *[_medium(r) for _ in range(r.randrange(3))]]
        state = chat.chat_with_state(state, user=said_now, conversation_id="ada").state
    return [request.body for request in backend.requests], state


def _keep_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut nothing out, as if this did not exist."""
    for module in (segments_module, open_module, state_module):
        monkeypatch.setattr(module, "cut_out", lambda entries: (entries, None))


@pytest.mark.parametrize("seed", range(6))
def test_a_provider_gets_the_same_bytes(
    face: Any, wire: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request, byte for byte; what readers get; and the blob holds no picture twice."""
    bodies, state = _talk(face, wire, seed)
    with monkeypatch.context() as patch:
        _keep_whole(patch)
        wanted, whole = _talk(face, wire, seed)

    assert bodies == wanted
    assert any(b'"data:image/png;base64,' in body or b'"base64"' in body for body in bodies)
    assert closed_entries(load_state(state)) == closed_entries(load_state(whole))
    assert state_messages(state) == state_messages(whole)
    assert read_history(state).all_messages() == read_history(whole).all_messages()
    assert not load_state(whole).parts
    assert any(part.kind == MEDIA for part in load_state(state).parts)
    assert verify_state(state) == ()


@pytest.mark.parametrize("visible_to", ["server", "client"])
def test_encrypted_media(face: Any, wire: str, visible_to: Any) -> None:
    """Of a picture nothing is readable in the blob, and the provider gets it all the same."""
    pytest.importorskip("cryptography")
    codec = Encrypted(Keyring(Key(b"k" * 32)), visible_to=visible_to)
    opening = {"codec": codec, "binding": {"user": "ada"}}

    bodies, state = _talk(face, wire, 1, **opening)
    plain, other = _talk(face, wire, 1)

    assert bodies == plain
    parts = load_state(state, **opening).parts
    assert len(parts) == len(load_state(other).parts) > 0
    assert not any(part.raw(**opening)[100:140] in state for part in parts)
    assert verify_state(state, **opening) == ()


def test_media_that_wait_for_an_answer(wire: str) -> None:
    """A picture in the journal of an unfinished turn, and in its messages, is stored once."""
    picture = Image.from_bytes(PIXEL + random.Random(1).randbytes(50_000))

    @tool
    def look() -> Any:
        """Look."""
        return ToolReturn([picture])

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "Paid."

    backend = ScriptedBackend(Calls([("look", {}), ("pay", {})]), "Done.", wire=wire)
    with Chat(backend, tools=[look, pay]) as chat:
        waiting = chat.chat(user=["Look at it.", picture])
        assert waiting.status == "awaiting_tools"
        assert len(waiting.state) < 55_000
        (part,) = load_state(waiting.state).parts
        assert part.raw(PLAIN) == picture.data

        result = chat.resume(waiting.state, {call.id: Approve() for call in pending_calls(waiting.state)})

    encoded = base64.b64encode(picture.data or b"")
    # A result of a tool on Chat Completions has no pictures: a text stands in their place.
    assert backend.requests[-1].body.count(encoded) == (1 if wire == "openai" else 2)
    assert len(result.state) < 55_000


def test_a_picture_that_the_provider_made() -> None:
    """An item of a reply goes back as it came, and is stored decoded."""
    made = base64.b64encode(random.Random(2).randbytes(9_000)).decode()
    messages = [
        {"role": "user", "content": "Draw a fox."},
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": made},
    ]

    state = state_from_messages("openai-responses", messages)

    assert len(state) < 10_000
    assert state_messages(state) == messages
    backend = ScriptedBackend("Thanks.", wire="openai-responses")
    with Chat(backend) as chat:
        chat.chat_with_state(state, user="Another?")
    assert made.encode() in backend.requests[0].body


# ------------------------------------------------------------------------------------- states of states


def test_a_state_made_of_states_has_its_media(face: Any, wire: str) -> None:
    """Fork, rewind, rebase, export and import: the entries are those of the same steps without the format."""
    _, state = _talk(face, wire, 3)
    entries = closed_entries(load_state(state))

    assert closed_entries(load_state(fork_state(state))) == entries
    back = rewind_state(state, 4)
    assert closed_entries(load_state(back)) == entries[: len(closed_entries(load_state(back)))]
    assert verify_state(back) == ()
    assert import_state(export_state(state)) == state

    picture = Image.from_bytes(PIXEL + random.Random(9).randbytes(8_000))
    chat = face.chat(ScriptedBackend("Mine.", wire=wire))
    mine = chat.chat_with_state(state, user=["And this?", picture]).state
    theirs = face.chat(ScriptedBackend(wire=wire)).append_to_state(state, user(Text("Wait."), picture))
    joined = rebase_state(mine, base=state, theirs=theirs)

    assert closed_entries(load_state(joined)) == closed_entries(load_state(mine))
    assert [item.entry for item in load_state(joined).inbox] == [
        item.entry for item in load_state(theirs).inbox
    ]
    assert len(load_state(joined).parts) == len(load_state(state).parts) + 1


def test_an_import_refuses_references_without_their_media(wire: str) -> None:
    """A row that is missing, a part that is another one."""
    with Chat(ScriptedBackend("A fox.", wire=wire)) as chat:
        picture = Image.from_bytes(PIXEL + random.Random(1).randbytes(6_000))
        exported = export_state(chat.chat(user=["What is this?", picture]).state)
    other = base64.b64encode(b"another").decode()

    with pytest.raises(StateError):
        import_state({**exported, "parts": []})
    part = {**exported["parts"][0], "content": {"base64": other}}
    with pytest.raises(StateError):
        import_state({**exported, "parts": [part]})


@pytest.mark.parametrize("visible_to", [None, "client"])
def test_a_redaction_searches_media_that_are_text(visible_to: Any) -> None:
    """Also in the archive, and no byte of the old document stays. A picture is not searched."""
    secret = "hunter2-ZQ9"
    document = Document.from_bytes(f"%PDF The key is {secret}. ".encode() * 400, name="a.pdf")
    (picture,) = _pictures(1)
    opening: dict[str, Any] = {}
    if visible_to:
        pytest.importorskip("cryptography")
        codec = Encrypted(Keyring(Key(b"k" * 32)), visible_to=visible_to)
        opening = {"codec": codec, "binding": {"user": "ada"}}
    with Chat(ScriptedBackend(*["Noted."] * 4, wire="anthropic"), **opening) as chat:
        state = chat.chat(user=["Read this.", document, picture]).state
        state = chat.chat_with_state(state, user="And?").state
        keep = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
        state = bytes(chat.compact_state(state, keep).state)
        state = chat.chat_with_state(state, user=["Once more.", document]).state
    assert len(load_state(state, **opening).parts) == 3

    found = redact_state(state, secret, **opening)

    assert found.count == 800
    assert verify_state(found.state, **opening) == ()
    whole = load_state(found.state, **opening)
    raws = [part.raw(**opening) if opening else part.raw(PLAIN) for part in whole.parts]
    assert not any(secret.encode() in raw for raw in raws)
    assert picture.data in raws
    history = read_history(found.state, archived=True, **opening)
    texts = [
        part.data for message in history.all_messages() for part in message.parts if hasattr(part, "data")
    ]
    assert [text.count(b"[redacted]") for text in texts if text] == [400, 0, 400]
    assert redact_state(found.state, secret, **opening).state == found.state


# ---------------------------------------------------------------------------------------------- archive


def _cutting(wire: str, most: int, *pictures: Image, turns: int = 4, **fields: Any) -> tuple[bytes, bytes]:
    """A conversation with a picture in each turn, before and after a cut that keeps one turn."""
    with Chat(ScriptedBackend(*["A fox."] * turns, wire=wire), **fields) as chat:
        state = None
        for number in range(turns):
            picture = pictures[number % len(pictures)]
            state = chat.chat_with_state(state, user=[f"What is picture {number}?", picture]).state
        assert state is not None
        compactor = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True, retain_bytes=most)
        return state, bytes(chat.compact_state(state, compactor).state)


def _pictures(count: int, size: int = 20_000) -> list[Image]:
    return [Image.from_bytes(PIXEL + random.Random(n).randbytes(size)) for n in range(count)]


def test_the_archive_shares_media_with_the_live_turns(wire: str) -> None:
    """What a cut took out is readable, and comes back, entry for entry."""
    (picture,) = _pictures(1)
    before, after = _cutting(wire, 64 * 1024, picture)

    state = load_state(after)
    assert [part.kind for part in state.parts] == [ARCHIVE, MEDIA]
    assert len(after) < 24_000
    assert verify_state(after) == ()
    read = read_history(after, archived=True)
    assert read.all_messages() == read_history(before).all_messages()
    assert closed_entries(load_state(undo_cut(after))) == closed_entries(load_state(before))
    assert len(closed_turns(load_state(rewind_state(after, 2)))) == 2
    assert import_state(export_state(after)) == after


@pytest.mark.parametrize("seed", range(4))
def test_archive_and_live_turns_are_everything_ever_said(wire: str, seed: int) -> None:
    """Turns with media, cuts of all strategies and undone cuts, in any order: each entry is as it arrived."""
    r = random.Random(f"{wire}/{seed}")
    book, said = Book(wire), {}
    for _ in range(6):
        for _ in range(r.randrange(1, 4)):
            book.add(*random_turn(r, wire, large_media=True))
            said[book.state.meta.processed] = closed_turns(book.state)[-1].entries
        before = dump_state(book.state)
        name = r.choice(sorted(COMPACTORS))
        with Chat(ScriptedBackend("A key was found; Tom has it.", wire=wire)) as chat:
            cut = bytes(chat.compact_state(before, retaining(COMPACTORS[name])).state)
        assert verify_state(cut) == ()
        if load_state(cut).meta.cuts != load_state(before).meta.cuts:
            assert closed_entries(load_state(undo_cut(cut))) == closed_entries(book.state)
        book.state = load_state(cut)

    found = _by_number(closed_turns(book.state))
    for record in reversed(archive_of(book.state, PLAIN)):
        found |= _by_number(record.turns)
    found.pop(0, None)
    assert found == said
    assert any(part.kind == MEDIA for part in book.state.parts)


def _by_number(turns: Sequence[ClosedTurn]) -> dict[int, tuple[bytes, ...]]:
    return {
        number: turn.entries
        for number, turn in zip(numbers_of([turn.record for turn in turns]), turns, strict=True)
    }


def test_media_of_the_archive_stay_until_their_record_goes(wire: str) -> None:
    """They are carried by turns, and leave with the record that names them."""
    pictures = _pictures(4)
    before, after = _cutting(wire, 2**20, *pictures)
    assert len(load_state(after).parts) == 1 + 4

    with Chat(ScriptedBackend(*["Yes."] * 9, wire=wire)) as chat:
        later = chat.run_turns(after, ["Do you remember?", "Really?"]).state
        assert len(load_state(later).parts) == 1 + 4
        assert closed_entries(load_state(undo_cut(later)))[: len(closed_entries(load_state(before)))] == (
            closed_entries(load_state(before))
        )
        small = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True, retain_bytes=30_000)
        cut = bytes(chat.compact_state(later, small).state)

    kinds = [part.kind for part in load_state(cut).parts]
    assert kinds == [ARCHIVE, MEDIA]  # the newest record, with the last picture
    assert verify_state(cut) == ()
    assert len(read_history(cut, archived=True).turns) == 3


def test_media_that_only_the_archive_has_count_for_its_bytes(wire: str) -> None:
    """A record whose pictures are too large for `retain_bytes` is not kept, as if they were in its text."""
    _, after = _cutting(wire, 50_000, *_pictures(4))

    state = load_state(after)
    assert [part.kind for part in state.parts] == [MEDIA]
    assert [row.by for row in state.meta.cuts] == ["KeepRecentTurns", "evicted"]


def test_media_beyond_the_limits_of_an_archive(wire: str) -> None:
    """Two cuts, under limits that leave room for few media: all is readable, and comes back."""
    limits = BlobLimits(max_meta_bytes=8 * 2**10)
    codec = Plain(limits=limits)
    before, after = _cutting(wire, 2**20, *_pictures(20, 5_000), turns=20, codec=codec)

    assert sum(part.kind == MEDIA for part in load_state(after, codec=codec).parts) <= 40
    read = read_history(after, archived=True, codec=codec)
    assert read.all_messages() == read_history(before, codec=codec).all_messages()
    back = undo_cut(after, codec=codec)
    assert closed_entries(load_state(back, codec=codec)) == closed_entries(load_state(before, codec=codec))
    check_history(wire, closed_entries(load_state(back, codec=codec)))
