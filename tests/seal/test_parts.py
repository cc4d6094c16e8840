"""Parts: behind the body or elsewhere, listed under the seal, carried unopened, and never believed unread."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    PLAIN,
    UNBOUND,
    Chat,
    Compactor,
    KeepRecentTurns,
    StateCorruptError,
    StateError,
    StateTooLargeError,
    StateVersionError,
    TurnLimit,
    event,
)
from goaitools_py.base.values import replace
from goaitools_py.history.redact.rows import strip_unknown
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain, Signed, rewrap
from goaitools_py.state import parts as parts_module
from goaitools_py.state.blob_header import peek
from goaitools_py.state.media import digest_of
from goaitools_py.state.parts import (
    ARCHIVE,
    ELSEWHERE,
    INLINE,
    MAX_PART_BYTES,
    MEDIA,
    Part,
    most_inflated,
    new_part,
    sealed_for,
)
from goaitools_py.state.records import MediaRow
from goaitools_py.state.state import ConversationState, closed_turns, dump_state, hard_limits, load_state
from goaitools_py.state.whole_blobs import attach, detach, parts_of
from goaitools_py.states import fork_state, state_messages, verify_state
from goaitools_py.testing import ScriptedBackend

from . import _second
from ._second import SecondPart

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
BOUND = {"user": "ada"}
RING = Keyring(Key(OLD))
SUITES: dict[str, tuple[Any, bytes, Any]] = {
    "plain": (PLAIN, b"", None),
    "signed": (Signed(RING), OLD, BOUND),
    "encrypted": (Encrypted(RING), OLD, BOUND),
    "client": (Encrypted(RING, visible_to="client"), OLD, BOUND),
}


def archived() -> tuple[bytes, int]:
    """A part of an archive: its raw bytes, and how many records it has."""
    cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
    talk = Chat(ScriptedBackend(*["Long ago."] * 41), compactor=cut)
    (part,) = load_state(talk.run_turns(None, ["What was said long ago?"] * 41).state).parts
    return part.raw(PLAIN), part.entries


RECORD, RECORDS = archived()
PICTURE = random.Random(3).randbytes(5000)


@pytest.fixture(params=SUITES, name="opening")
def _opening(request: pytest.FixtureRequest) -> dict[str, Any]:
    codec, _, binding = SUITES[request.param]
    return {"codec": codec, "binding": binding}


def chat(*steps: str, **opening: Any) -> Chat:
    return Chat(ScriptedBackend(*steps), **opening)


def with_parts(opening: Mapping[str, Any], *parts: Part) -> bytes:
    state = load_state(chat("Hello.", **opening).chat(user="Hello?").state, **opening)
    return dump_state(holding(state, parts), **opening)


def holding(state: ConversationState, parts: tuple[Part, ...]) -> ConversationState:
    """The state with these parts, and with a row for each medium, which a record of the archive may name."""
    media = [part.raw(PLAIN) for part in parts if part.kind == MEDIA]
    rows = tuple(MediaRow(digest_of(raw).decode(), 1) for raw in media)
    return replace(state, parts=parts, meta=msgspec.structs.replace(state.meta, media=rows))


def both() -> tuple[Part, Part]:
    return new_part(ARCHIVE, RECORD, RECORDS), new_part(MEDIA, PICTURE, 1)


# ---------------------------------------------------------------------------------------------- kept


def test_parts_come_back(opening: dict[str, Any]) -> None:
    """An archive and a picture, with their bytes and how many records they hold."""
    blob = with_parts(opening, *both())

    found = parts_of(blob, **opening)

    assert [(part.kind, part.entries, part.raw(**opening)) for part in found] == [
        (ARCHIVE, RECORDS, RECORD),
        (MEDIA, 1, PICTURE),
    ]
    assert verify_state(blob, **opening) == ()
    assert peek(blob).flags == 1


@pytest.mark.parametrize("name", SUITES)
def test_a_second_reader_finds_the_same_parts(name: str) -> None:
    """A reader made from the drawn pages opens them; a second writer's are read."""
    codec, secret, binding = SUITES[name]
    opening = {"codec": codec, "binding": binding}
    blob = with_parts(opening, *both())

    segments, listed = _second.whole(blob, [secret] if secret else (), binding)

    assert [(part.kind, part.place, part.entries) for part in listed] == [(64, 0, 40), (65, 0, 1)]
    compression = blob[6]
    opened = [_second.part_bytes(part, blob[5], compression, secret, binding) for part in listed]
    assert opened == [RECORD, PICTURE]
    theirs = [
        _second.sealed_part(64, RECORD, 40, blob[5], secret, binding),
        _second.sealed_part(100, b"later", 0, blob[5], secret, binding),
    ]
    written = _second.sealed_whole(segments, theirs, blob[5], compression, secret, binding)
    assert [part.raw(**opening) for part in parts_of(written, **opening)] == [RECORD, b"later"]


def test_a_turn_carries_parts_as_they_are(opening: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn, append and fork: the same bytes; nothing is hashed, decrypted or inflated on the way."""
    blob = with_parts(opening, *both())
    before = [(part.digest, bytes(part.stored)) for part in parts_of(blob, **opening)]

    def never(*_: Any) -> Any:
        raise AssertionError("a part was opened")

    monkeypatch.setattr(parts_module, "packed_bytes", never)
    grown = chat("Fine.", **opening).chat_with_state(blob, user="And now?").state
    grown = chat(**opening).append_to_state(grown, event("It rains."))
    grown = fork_state(grown, **opening)

    assert [(part.digest, bytes(part.stored)) for part in parts_of(grown, **opening)] == before
    assert blob.endswith(b"".join(stored for _, stored in before))
    assert grown.endswith(b"".join(stored for _, stored in before))


def test_without_parts_nothing_changes(opening: dict[str, Any]) -> None:
    """A blob that has lost its parts again has no directory, and byte 7 is 0."""
    blob = with_parts(opening, *both())

    bare = dump_state(holding(load_state(blob, **opening), ()), **opening)

    assert peek(bare).flags == 0
    assert state_messages(bare, **opening) == state_messages(blob, **opening)


def test_the_same_new_part_is_encrypted_once(opening: dict[str, Any]) -> None:
    """Two checkpoints of a turn name the same digest, so a store keeps the part once."""
    state = load_state(with_parts(opening), **opening)
    state = holding(state, both())

    first, second = dump_state(state, **opening), dump_state(state, **opening)

    assert [p.digest for p in parts_of(first, **opening)] == [p.digest for p in parts_of(second, **opening)]


def test_parts_leave_and_come_back(opening: dict[str, Any]) -> None:
    """`detach` gives a head that turns go on with; `attach` makes it whole again, with the same parts."""
    blob = with_parts(opening, *both())

    head, taken = detach(blob, **opening)
    grown = chat("Fine.", **opening).chat_with_state(head, user="And now?").state
    again = attach(grown, {part.digest: bytes(part.stored) for part in taken}, **opening)

    assert len(head) < len(blob) - len(PICTURE)
    assert [part.place for part in parts_of(grown, **opening)] == [ELSEWHERE, ELSEWHERE]
    assert verify_state(head, **opening) == tuple(part.digest for part in taken)
    assert [part.raw(**opening) for part in parts_of(again, **opening)] == [RECORD, PICTURE]
    assert verify_state(again, **opening) == ()
    with pytest.raises(StateError, match="is not in the blob"):
        parts_of(head, **opening)[0].raw(**opening)
    with pytest.raises(StateCorruptError):
        attach(head, {taken[0].digest: b"forged"}, **opening)
    assert detach(head, **opening) == (head, ())
    assert attach(head, {}, **opening) == head


def test_a_part_of_sealed_history_is_history(opening: dict[str, Any]) -> None:
    """Kind 1 as a part is read as kind 1 in the body, and written there again."""
    state = load_state(with_parts(opening), **opening)
    assert state.hot is not None
    moved = replace(state, hot=None, parts=(new_part(1, state.hot.raw(), state.hot.entries),))
    blob = dump_state(moved, **opening)

    read = load_state(blob, **opening)

    assert [part.kind for part in parts_of(blob, **opening)] == [1]
    assert closed_turns(read) == closed_turns(state)
    assert parts_of(dump_state(read, **opening), **opening) == ()


def test_a_part_that_an_old_key_encrypted_is_encrypted_anew() -> None:
    """A turn does it, and so does `rewrap`; when no part is left, the old key can go."""
    rotating = Encrypted(Keyring(Key(NEW), Key(OLD)))
    only_new: dict[str, Any] = {"codec": Encrypted(Keyring(Key(NEW))), "binding": BOUND}
    blob = with_parts({"codec": Encrypted(RING), "binding": BOUND}, *both())

    grown = chat("Fine.", codec=rotating, binding=BOUND).chat_with_state(blob, user="And now?").state
    moved = rewrap(blob, rotating, binding=BOUND)

    for new in (grown, moved):
        assert [part.raw(**only_new) for part in parts_of(new, **only_new)] == [RECORD, PICTURE]
        assert rewrap(new, rotating, binding=BOUND) == new


@pytest.mark.parametrize("target", SUITES)
def test_rewrap_moves_parts_to_every_codec(opening: dict[str, Any], target: str) -> None:
    """To another suite, and to another owner."""
    codec, _, binding = SUITES[target]
    to_binding = {"user": "eve"} if binding else UNBOUND
    blob = with_parts(opening, *both())

    moved = rewrap(blob, **opening, to=codec, to_binding=to_binding)

    assert verify_state(moved, codec=codec, binding=to_binding) == ()
    raws = [part.raw(codec, to_binding) for part in parts_of(moved, codec=codec, binding=to_binding)]
    assert raws == [RECORD, PICTURE]


def test_a_part_belongs_to_its_owner_and_its_place() -> None:
    """An encrypted part does not open for another owner, as another kind, or with another count."""
    opening: dict[str, Any] = {"codec": Encrypted(RING), "binding": BOUND}
    (part,) = parts_of(with_parts(opening, new_part(ARCHIVE, RECORD, RECORDS)), **opening)

    changed = [replace(part, kind=MEDIA), replace(part, entries=41)]

    assert part.raw(**opening) == RECORD
    for each in changed:
        with pytest.raises(StateError):
            replace(each, _raw=None).raw(**opening)
    with pytest.raises(StateError):
        replace(part, _raw=None).raw(Encrypted(RING), {"user": "eve"})


# ------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("kind", [96, 100, 127])
def test_a_part_that_may_be_ignored_is_carried(kind: int) -> None:
    """And dropped, and counted, by a step that must not carry it."""
    theirs = _second.sealed_part(kind, b"of a later release", 7, 0)
    blob = _second.sealed_whole(_second.opened(with_parts({})), [theirs], 0, 2)

    grown = chat("Fine.").chat_with_state(blob, user="And now?").state

    (part,) = parts_of(grown)
    assert (part.kind, part.entries, bytes(part.stored)) == (kind, 7, b"of a later release")
    plain, count = strip_unknown(load_state(grown))
    assert (plain.parts, count) == ((), 1)


def _forged(parts: Sequence[SecondPart], **changes: Any) -> bytes:
    return _second.sealed_whole(_second.opened(with_parts({})), parts, 0, 2, **changes)


GOOD = _second.sealed_part(64, RECORD, 40, 0)
REFUSED: dict[str, tuple[bytes, type[StateError]]] = {
    "kind 67": (_forged([GOOD._replace(kind=67)]), StateVersionError),
    "kind 70": (_forged([GOOD._replace(kind=70)]), StateVersionError),
    "kind 95": (_forged([GOOD._replace(kind=95)]), StateVersionError),
    "kind 5": (_forged([GOOD._replace(kind=5)]), StateVersionError),
    "kind 200": (_forged([GOOD._replace(kind=200)]), StateVersionError),
    "place 2": (_forged([GOOD._replace(place=2)]), StateVersionError),
    "not in order": (_forged([GOOD._replace(kind=65), GOOD]), StateCorruptError),
    "no raw bytes": (_forged([GOOD._replace(raw_len=0)]), StateCorruptError),
    "more stored than raw": (_forged([GOOD._replace(raw_len=9)]), StateCorruptError),
    "nothing stored": (_forged([GOOD._replace(stored=b"")]), StateCorruptError),
    "larger than a part may be": (_forged([GOOD._replace(raw_len=MAX_PART_BYTES + 1)]), StateCorruptError),
    "a part that is not there": (_forged([GOOD], behind=b"")[: -len(RECORD)], StateCorruptError),
    "a byte behind the last part": (_forged([GOOD], behind=b"x"), StateCorruptError),
    "no parts": (_forged([]), StateVersionError),
    "a count beyond the end": (_forged([GOOD], count=1000), StateCorruptError),
    "a count of 4 billion": (_forged([GOOD], count=2**32 - 1), StateTooLargeError),
    "flags 2": (_forged([GOOD], flags=2), StateVersionError),
    "flags 3": (_forged([GOOD], flags=3), StateVersionError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_directory_that_cannot_be_is_refused(name: str) -> None:
    """What must be understood is a newer release; what cannot be is damage; both carry the blob."""
    blob, error = REFUSED[name]

    with pytest.raises(error) as caught:
        load_state(blob)

    assert type(caught.value) is error
    assert caught.value.blob == blob


def test_damage_in_a_part_shows_when_it_is_read() -> None:
    """A turn does not read the archive, and goes on; `verify_state` and a reader find the damage."""
    blob = bytearray(with_parts({}, *both()))
    blob[-1] ^= 1

    grown = chat("Fine.").chat_with_state(bytes(blob), user="And now?").state

    for damaged in (bytes(blob), grown):
        with pytest.raises(StateCorruptError, match="does not have the bytes") as caught:
            verify_state(damaged)
        assert caught.value.blob == damaged


def test_a_part_that_lies_about_its_size_allocates_nothing() -> None:
    """A frame of 8 KB that inflates to 256 MB, with a digest that fits: refused by its header."""
    import zstandard

    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(2**28))
    for raw_len in (MAX_PART_BYTES, 2**20, len(bomb) + 1):
        part = SecondPart(64, 0, raw_len, 1, bomb, hashlib.sha256(bomb).digest())
        (found,) = parts_of(_forged([part]))

        start = thread_time()
        with pytest.raises(StateCorruptError):
            found.raw(PLAIN)
        assert thread_time() - start < 0.5


@pytest.mark.parametrize("kind", [ARCHIVE, MEDIA])
def test_small_parts_that_inflate_to_gigabytes_are_refused_unopened(kind: int) -> None:
    """400 times 8 MiB in 130 KB, each part within its own limits: whoever read all would need 3 GB."""
    import zstandard

    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(MAX_PART_BYTES))
    part = SecondPart(kind, 0, MAX_PART_BYTES, 1, bomb, hashlib.sha256(bomb).digest())
    blob = _forged([part] * 400)

    assert len(blob) < 150_000
    for read in (parts_of, verify_state, load_state):
        with pytest.raises(StateTooLargeError, match="inflated") as caught:
            read(blob)
        assert caught.value.limit_name == "max_blob_bytes"
    assert len(parts_of(_forged([part] * 32))) == 32
    assert len(parts_of(_forged([part._replace(place=1)] * 400))) == 400, "what is elsewhere is not in memory"


@pytest.mark.parametrize("max_blob_bytes", [4 * 2**10, 2**18, 2**20, 4 * 2**20, 2**26])
@pytest.mark.parametrize("max_decoded_bytes", [16 * 2**10, 2**20, 16 * 2**20, 2**28])
def test_what_a_turn_has_room_for_is_never_refused_for_what_it_inflates_to(
    max_blob_bytes: int, max_decoded_bytes: int
) -> None:
    """The archive that a cut leaves, and media of zeros in all of the history, are within the limit."""
    soft = BlobLimits(max_blob_bytes=max_blob_bytes, max_decoded_bytes=max_decoded_bytes)
    hard = hard_limits(Plain(limits=soft))
    decoded = hard.max_decoded_bytes * 3 // 4  # in the history media are base64
    newest = MAX_PART_BYTES + decoded  # a record with all media of the history before it, which always stays

    archive = max(most_inflated(soft) // 2, newest)

    assert archive + decoded <= most_inflated(hard)
    assert most_inflated(hard) <= 64 * max_blob_bytes + 4 * MAX_PART_BYTES + 4 * max_decoded_bytes


def test_limits_count_what_is_stored() -> None:
    """Archive and media have limits of their own; what is in the blob counts for its size too."""
    archive, picture = both()
    for name in ("max_archive_bytes", "max_media_bytes"):
        codec = Plain(limits=BlobLimits(**{name: 10}))
        with pytest.raises(StateTooLargeError) as caught:
            with_parts({"codec": codec}, archive, picture)
        assert caught.value.limit_name == name
    with pytest.raises(StateTooLargeError) as caught:
        with_parts({"codec": Plain(limits=BlobLimits(max_blob_bytes=4096))}, archive, picture)
    assert caught.value.limit_name == "max_blob_bytes"
    head = detach(with_parts({}, archive, picture))[0]
    assert load_state(head, limits=BlobLimits(max_blob_bytes=4096)).parts[0].place == ELSEWHERE


@pytest.mark.parametrize(
    ("kind", "raw", "entries"),
    [(67, b"x", 0), (64, b"", 0), (64, bytes(MAX_PART_BYTES + 1), 0), (65, b"x", -1)],
)
def test_a_part_that_could_not_be_read_is_not_made(kind: int, raw: bytes, entries: int) -> None:
    """ValueError says why."""
    with pytest.raises(ValueError, match="part"):
        new_part(kind, raw, entries)


def test_a_frame_as_long_as_its_content_is_not_taken_for_it() -> None:
    """zstd may save as many bytes as its own heads take: the part is stored as it is."""
    base = random.Random(1).randbytes(700)
    contents = [base[: 700 - cut] + base[:again] for cut in range(0, 660, 5) for again in range(6, 40)]

    for raw in contents:
        part = sealed_for(new_part(ARCHIVE, raw, 1), Plain(), 2, None)
        assert replace(part, _raw=None).raw(Plain()) == raw


def test_a_part_elsewhere_cannot_be_sealed_anew() -> None:
    """It is refused before anything is written."""
    head, _ = detach(with_parts({}, *both()))

    with pytest.raises(ValueError, match="attach it first"):
        rewrap(head, PLAIN, to=Encrypted(RING), to_binding=BOUND)


@pytest.mark.parametrize("name", ["plain", "signed", "encrypted"])
def test_every_bit_before_the_parts_counts(name: str) -> None:
    """Of header, seal, directory and body; and of the parts each bit once they are read."""
    codec, _, binding = SUITES[name]
    opening = {"codec": codec, "binding": binding}
    blob = with_parts(opening, new_part(ARCHIVE, b"[]" * 20, 1), new_part(MEDIA, b"abc", 1))
    accepted, carried = [], 0
    for at in range(len(blob)):
        for bit in range(8):
            changed = blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :]
            try:
                verify_state(changed, **opening)
                accepted.append((at, bit))
            except StateError as error:
                carried += error.blob == changed
    for cut in (*range(len(blob)), -1):
        with pytest.raises(StateError):
            verify_state(blob[:cut], **opening)

    assert (accepted, carried) == ([], 8 * len(blob))


def test_random_directories_fail_typed_and_quickly() -> None:
    """Bytes changed anywhere behind the header, with a digest that fits again: typed, bounded, fast."""
    dice = random.Random(17)
    base = _forged([GOOD, GOOD._replace(kind=65), GOOD._replace(kind=96, place=1, stored=b"")])
    outcomes = {"read": 0, "refused": 0}
    slowest = 0.0
    for _ in range(20_000):
        changed = bytearray(base)
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(32, 32 + 160) if dice.random() < 0.8 else dice.randrange(32, len(base))
            changed[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        blob = _second.resealed_plain(bytes(changed))
        start = thread_time()
        try:
            for part in parts_of(blob):
                if part.place == INLINE:
                    part.raw(PLAIN)
            outcomes["read"] += 1
        except StateError:
            outcomes["refused"] += 1
        slowest = max(slowest, thread_time() - start)

    assert all(outcomes.values()), outcomes
    assert slowest < 0.5
