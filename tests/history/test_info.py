"""What a state says of itself: roles, limits, settings, waiting calls, parts; and of a sealed one without its
key."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    UNBOUND,
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    ModelSettings,
    TurnLimit,
    event,
    system,
    tool,
)
from goaitools_py.base.values import replace
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain, Signed, rewrap
from goaitools_py.state.letters import LETTERS
from goaitools_py.state.state import closed_turns, dump_state, load_state
from goaitools_py.states import inspect_state, pending_calls
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.errors import (
    StateAuthError,
    StateCorruptError,
    StateFormatError,
    StateTooLargeError,
    StateVersionError,
)
from tests.compaction._histories import WIRES, Book, random_turn

RING = Keyring(Key(bytes(range(32))))
PICTURE = b"\x89PNG\r\n\x1a\n" + random.Random(5).randbytes(6000)
SEALED = [Signed(RING), Encrypted(RING), Encrypted(RING, visible_to="client")]


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each provider API."""
    return str(request.param)


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def rich(wire: str) -> bytes:
    """A state with an archive, media, sticky settings, a waiting call, turn ids and waiting events."""
    script = ["Hello.", "Again.", Calls([("pay", {"amount": 5})])]
    settings = ModelSettings(max_output_tokens=77)
    with Chat(ScriptedBackend(*script, wire=wire), tools=[pay], sticky_settings=True) as chat:
        state = chat.chat(user="Hello?", turn_id="t-1", settings=settings).state
        seen = [Image.from_bytes(PICTURE), Image.from_bytes(PICTURE[::-1])]
        state = chat.chat_with_state(state, user=["Once more?", *seen], turn_id="t-2").state
        cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
        state = chat.compact_state(state, cut).state
        state = chat.chat_with_state(state, user="Pay 5.", turn_id="t-3").state
        news = [event("Rain.", topic="weather"), event("It is 12:00.", topic="time", id="e-1"), event("Hm.")]
        return chat.append_to_state(state, *news)


def test_facts_of_a_rich_state(wire: str) -> None:
    """Each fact is what was done; none needs a message."""
    blob = rich(wire)

    info = inspect_state(blob)

    assert info.roles["user"] == 2
    assert info.roles["assistant"] >= 2
    assert "event" not in info.roles  # they wait
    assert info.sticky_settings == {"max_output_tokens": 77}
    assert info.pending == pending_calls(blob)
    assert [call.reason for call in info.pending] == ["approval"]
    assert (info.turn_ids, info.event_ids) == (3, 1)
    assert info.topics == ("weather", "time")
    assert (info.archive_records, info.media) == (1, 2)
    assert info.archive_bytes > 0
    assert info.media_bytes == 2 * len(PICTURE)
    assert (info.suite, info.key_id, info.is_sealed) == ("plain", 0, False)
    assert info.warning_level == ""
    assert set(info.filled) == {"blob_bytes", "decoded_bytes", "entries"}  # the model's window is not known


@pytest.mark.parametrize("seed", range(4))
def test_roles_are_those_of_the_entries(wire: str, seed: int) -> None:
    """Counted without a look at the entries, and equal to what the records of all turns say."""
    r = random.Random(f"info/{wire}/{seed}")
    book = Book(wire)
    for _ in range(r.choice([0, 1, 9, 70])):
        book.add(*random_turn(r, wire), *[system("Be kind.")] * (r.random() < 0.2))
    blob = dump_state(book.state)
    names = {"s": "system", "u": "user", "e": "event", "a": "assistant", "t": "tool"}
    letters = "".join(turn.letters for turn in closed_turns(load_state(blob)))

    info = inspect_state(blob)

    assert info.roles == {names[one]: letters.count(one) for one in LETTERS if one in letters}
    assert sum(info.roles.values()) == sum(segment.entries for segment in book.state.segments)


@pytest.mark.parametrize(("most", "level"), [(1.0, "at_limit"), (0.8, "approaching"), (0.5, "")])
def test_the_warning_level_is_that_of_the_fullest_limit(wire: str, most: float, level: str) -> None:
    """Of tokens, bytes and entries; by the default marks."""
    r = random.Random(f"level/{wire}")
    book = Book(wire)
    for _ in range(60):
        book.add(*random_turn(r, wire))
    blob = dump_state(book.state)
    codec = Plain(limits=BlobLimits(max_blob_bytes=int(len(blob) / most) + 1))

    info = inspect_state(blob, codec=codec)

    assert info.filled["blob_bytes"] == pytest.approx(most, abs=0.01)
    assert info.warning_level == level


def test_tokens_count_for_the_level() -> None:
    """A known context window that is nearly full."""
    with Chat(ScriptedBackend("Hello.", model="gpt-4o")) as chat:
        blob = chat.chat(user="Hi.").state
    state = load_state(blob)

    full = replace(state, meta=msgspec.structs.replace(state.meta, tokens=127_000))

    info = inspect_state(dump_state(full))

    assert info.filled["tokens"] == info.context_fraction
    assert info.warning_level == "at_limit"


@pytest.mark.parametrize("codec", SEALED, ids=["signed", "encrypted", "client"])
def test_a_sealed_state_says_what_anybody_can_read(wire: str, codec: Any) -> None:
    """Without the key: header and directory. With it: all. With another: nothing."""
    plain = rich(wire)
    blob = rewrap(plain, Plain(), to=codec, to_binding=UNBOUND)
    known = inspect_state(blob, codec=codec, binding=UNBOUND)

    info = inspect_state(blob)

    assert (info.status, info.is_sealed) == ("sealed", True)
    assert info.suite == {0x11: "signed", 0x21: "encrypted"}[codec.suite]
    assert info.key_id == RING.primary.id == known.key_id
    assert info.blob_bytes == len(blob)
    for name in ("archive_bytes", "archive_records", "media_bytes", "media", "format_version"):
        assert getattr(info, name) == getattr(known, name)
    assert (info.turns, info.messages, info.title, dict(info.roles)) == (0, 0, "", {})
    assert known.roles == inspect_state(plain).roles
    with pytest.raises(StateAuthError):
        inspect_state(blob, min_revision=0)
    with pytest.raises(StateAuthError):
        inspect_state(blob, codec=type(codec)(Keyring(Key(bytes(32)))), binding=UNBOUND)
    with pytest.raises(StateAuthError):
        pending_calls(blob)


@pytest.mark.parametrize("codec", SEALED, ids=["signed", "encrypted", "client"])
def test_a_damaged_outline_is_refused(codec: Any) -> None:
    """A header that is cut off or of tomorrow, and a directory that cannot be."""
    blob = rewrap(rich("openai"), Plain(), to=codec, to_binding=UNBOUND)
    end = 16 + {0x11: 32, 0x21: 64}[codec.suite]

    for error, bad in (
        (StateCorruptError, blob[:12]),
        (StateCorruptError, blob[:end]),
        (StateCorruptError, blob[: end + 30]),
        (StateVersionError, blob[:end] + b"\x02\x05" + blob[end + 2 :]),
        (StateCorruptError, blob[:end] + b"\x02\x40\x00\x00\x00\x00" + blob[end + 6 :]),
        (StateVersionError, blob[:4] + b"\x63" + blob[5:]),
        (StateVersionError, blob[:5] + b"\x31" + blob[6:]),
        (StateVersionError, blob[:end] + b"\x00" + blob[end + 1 :]),
        (StateFormatError, b"x" + blob),
    ):
        with pytest.raises((StateCorruptError, StateVersionError, StateFormatError)) as caught:
            inspect_state(bad)
        assert isinstance(caught.value, error)


def test_hostile_outlines_raise_typed_errors() -> None:
    """Whatever the bytes behind the header are."""
    r = random.Random(7)
    blob = rewrap(rich("openai"), Plain(), to=SEALED[1], to_binding=UNBOUND)
    for _ in range(400):
        bad = bytearray(blob)
        for _ in range(r.randrange(1, 4)):
            bad[r.randrange(6, 130)] = r.randrange(256)
        try:
            info = inspect_state(bytes(bad))
        except (StateCorruptError, StateVersionError, StateFormatError, StateTooLargeError):
            continue
        assert info.is_sealed
