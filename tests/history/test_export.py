"""Export and import give back every byte; what is changed on the way is refused."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, event, tool
from goaitools_py.base.values import replace
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain, Signed
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.media import digest_of
from goaitools_py.state.parts import MEDIA, new_part
from goaitools_py.state.records import MediaRow
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import (
    EXPORT_SCHEMA,
    export_state,
    import_state,
    inspect_state,
    read_history,
    state_messages,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import StateError, StateInvalidError, StateTooLargeError, StateVersionError
from tests.compaction._histories import WIRES, Book, random_turn

CHECK = jsonschema_rs.validator_for(dict(EXPORT_SCHEMA))


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def rich(wire: str) -> bytes:
    """A state with an archive, a waiting call, a waiting event, metadata and a turn id."""
    script = ["Hello.", "Again.", Calls([("pay", {"amount": 5})])]
    with Chat(ScriptedBackend(*script, wire=wire), tools=[pay]) as chat:
        state = chat.append_to_state(b"", event("It rains. ☔ \ud800"))
        state = chat.run_turns(state, ["Hello?", "Once more?"]).state
        cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
        state = chat.compact_state(state, cut).state
        state = chat.chat_with_state(state, user="Pay 5.", turn_id="t-1", metadata={"a": "b"}).state
        return chat.append_to_state(state, event("It stops."))


def through_json(exported: dict[str, Any]) -> dict[str, Any]:
    """As another program gets it."""
    found: dict[str, Any] = json.loads(json.dumps(exported))
    CHECK.validate(found)
    return found


def test_there_and_back_is_the_same_blob(wire: str) -> None:
    """Archive, open turn, inbox, turn ids and all: the very bytes."""
    blob = rich(wire)

    exported = through_json(export_state(blob))

    assert import_state(exported) == blob
    assert [one["kind"] for one in exported["parts"]] == ["archive"]
    assert read_history(blob, archived=True) == read_history(import_state(exported), archived=True)


@pytest.mark.parametrize("seed", range(12))
def test_random_conversations_come_back(wire: str, seed: int) -> None:
    """Any history, of any size and shape; sealed states too, under the same key or another."""
    print("seed", seed)
    r = random.Random(f"export/{wire}/{seed}")
    book = Book(wire)
    for _ in range(r.choice([0, 1, 5, 60])):
        book.add(*random_turn(r, wire))
    key = Keyring(Key.generate())
    codec = r.choice([Plain(), Signed(key), Encrypted(key)])
    owner = None if isinstance(codec, Plain) else {"user": "ada"}
    blob = dump_state(book.state, codec=codec, binding=owner)

    exported = through_json(export_state(blob, codec=codec, binding=owner))
    back = import_state(exported, codec=codec, binding=owner)

    assert import_state(exported) == dump_state(book.state)
    assert state_messages(back, codec=codec, binding=owner) == state_messages(dump_state(book.state))
    assert (
        inspect_state(import_state(exported)).turns == inspect_state(back, codec=codec, binding=owner).turns
    )


def test_what_a_later_release_wrote_comes_back(wire: str) -> None:
    """Unknown names, segments and parts are carried byte for byte."""
    state = load_state(rich(wire))
    segment = replace(blobs.segment(Kind.SEALED, b"of tomorrow" * 20, 1), kind=40)
    part = replace(new_part(MEDIA, b"\xff of tomorrow", 1), kind=100)
    extras = {"mood": msgspec.Raw(b'{"calm":1e5}')}
    blob = dump_state(replace(state, extras=extras, later=(segment,), parts=(*state.parts, part)))

    back = import_state(through_json(export_state(blob)))

    assert load_state(back).extras == load_state(blob).extras
    assert [one.raw() for one in load_state(back).later] == [one.raw() for one in load_state(blob).later]
    kinds = [(part.kind, part.raw(Plain())) for part in load_state(blob).parts]
    assert [(part.kind, part.raw(Plain())) for part in load_state(back).parts] == kinds


def test_media_come_back(wire: str) -> None:
    """Bytes that are no text stand in base64."""
    state = load_state(rich(wire))
    part = new_part(MEDIA, bytes(range(256)) * 20, 1)
    rows = (MediaRow(digest_of(part.raw(Plain())).decode(), 999),)
    meta = msgspec.structs.replace(state.meta, media=rows)
    blob = dump_state(replace(state, meta=meta, parts=(*state.parts, part)))

    exported = through_json(export_state(blob))

    assert "base64" in exported["parts"][1]["content"]
    assert import_state(exported) == blob
    verify_state(import_state(exported))


def test_the_transcript_is_for_readers_only(wire: str) -> None:
    """It says what was said, and an import does not look at it."""
    exported = through_json(export_state(rich(wire)))
    said = [message["text"] for turn in exported["transcript"]["turns"] for message in turn["messages"]]

    assert "Pay 5." in said
    exported["transcript"] = {"turns": "nonsense"}
    assert import_state(exported) == rich_again(exported)


def rich_again(exported: dict[str, Any]) -> bytes:
    """The same import without a transcript."""
    return import_state({name: value for name, value in exported.items() if name != "transcript"})


# ------------------------------------------------------------------------------------------- hostile


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in an export."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        found += places(inner, (*path, name))
    return found


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\ud800",
    "{}",
    [],
    {},
    ["a"],
    {"base64": "?"},
    "[" * 9000,
)


@pytest.mark.parametrize("seed", range(4))
def test_any_change_is_a_typed_error_or_a_state(wire: str, seed: int) -> None:
    """Whatever stands at any place: a `StateError`, or a state that can be read."""
    print("seed", seed)
    r = random.Random(f"odd/{wire}/{seed}")
    exported = through_json(export_state(rich(wire)))
    exported.pop("transcript")
    for _ in range(150):
        changed = copy.deepcopy(exported)
        *path, last = r.choice(places(changed))
        inner: Any = changed
        for step in path:
            inner = inner[step]
        if r.random() < 0.2:
            del inner[last]
        else:
            inner[last] = r.choice(ODD)
        try:
            blob = import_state(changed)
        except StateError:
            continue
        read_history(blob, archived=True)
        state_messages(blob)


def test_what_is_refused_says_what_was_found(wire: str) -> None:
    """Each text names the place, and no content."""
    exported = through_json(export_state(rich(wire)))

    def refused(error: type[Exception], match: str, **changes: Any) -> None:
        with pytest.raises(error, match=match):
            import_state({**exported, **changes})

    refused(StateInvalidError, "format", format="other")
    refused(StateVersionError, "newer release", version=2)
    refused(StateInvalidError, "version", version="1")
    refused(StateInvalidError, "meta", meta=5)
    refused(StateInvalidError, "list of objects", segments=[1])
    refused(StateInvalidError, "no kind", segments=[{"kind": "cold", "entries": [], "rows": ""}])
    refused(StateInvalidError, "line break", segments=[{"kind": "hot", "entries": ["{\n}"], "rows": ""}])
    refused(StateInvalidError, "order", segments=[*exported["segments"][::-1]])
    with pytest.raises(TypeError, match=r"json\.loads"):
        import_state(json.dumps(exported))  # type: ignore[arg-type]
    many = Book(wire)
    for _ in range(30):
        many.add(*random_turn(random.Random(1), wire))
    with pytest.raises(StateTooLargeError):
        import_state(export_state(dump_state(many.state)), codec=Plain(limits=BlobLimits(max_entries=16)))


def test_a_history_that_the_provider_would_refuse_is_refused(wire: str) -> None:
    """A result without its call, say. A turn would trust an imported state."""
    book = Book(wire)
    book.add(*random_turn(random.Random(1), wire))
    exported = through_json(export_state(dump_state(book.state)))
    (segment,) = exported["segments"]
    segment["entries"] = [
        '{"role":"tool","tool_call_id":"nowhere","content":"x"}' for _ in segment["entries"]
    ]

    with pytest.raises(StateInvalidError, match="refuse"):
        import_state(exported)


def test_a_head_without_its_parts_is_not_exported() -> None:
    """A store keeps them; the error says how to get the whole."""
    from goaitools_py.state.whole_blobs import detach

    head, parts = detach(rich("openai"))

    assert parts
    with pytest.raises(ValueError, match=r"conversation\.state"):
        export_state(head)
