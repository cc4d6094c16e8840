"""Media are cut out of entries, stored once, and put back exactly; bad references are refused in bounds."""

from __future__ import annotations

import base64
import random
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.seal import PLAIN, BlobLimits, Plain
from goaitools_py.state.blob import Kind, decode, encode, segment
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.media import LEAST_BYTES, cut_out, digest_of, put_back, references, shortened
from goaitools_py.state.parts import MAX_PART_BYTES, MEDIA, new_part
from goaitools_py.state.records import MAX_MEDIA, InboxItem, MediaRow
from goaitools_py.state.segments import JOIN
from goaitools_py.state.state import (
    ConversationState,
    closed_entries,
    dump_state,
    load_state,
    new_state,
    rebuild,
    with_turn,
)
from goaitools_py.state.whole_blobs import detach
from goaitools_py.states import inspect_state, verify_state
from goaitools_py.types.errors import StateError, StateInvalidError, StateTooLargeError, StateVersionError


def picture(seed: int, size: int = 5_000) -> bytes:
    return random.Random(seed).randbytes(size)


def entry(*texts: str) -> bytes:
    return rawjson.dumps({"role": "user", "content": [{"type": "image", "data": text} for text in texts]})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def turn(*entries: bytes) -> ClosedTurn:
    record = TurnRecord(at=0, messages=len(entries), iterations=(Iteration(roles="u" * len(entries)),))
    return ClosedTurn(tuple(entries), record)


def state_with(*entries: bytes) -> ConversationState:
    return with_turn(new_state("openai", id="c", created=0), turn(*entries))


# ------------------------------------------------------------------------------------- what is cut out


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        (b64(picture(1, LEAST_BYTES)), True),
        (b64(picture(1, LEAST_BYTES - 1)), False),
        (b64(picture(1, LEAST_BYTES + 1)), True),
        (b64(picture(1, LEAST_BYTES + 2)), True),
        ("data:image/png;base64," + b64(picture(1, 6_000)), True),
        ("data:text/plain;name=a,b," + b64(picture(1, 6_000)), True),
        (b64(picture(1, 6_001)).rstrip("="), False),
        (b64(picture(1, 6_001))[:-3] + "B==", False),
        (base64.urlsafe_b64encode(picture(1, 6_000)).decode(), False),
        (b64(picture(1, 6_000)) + " ", False),
        ("x," + b64(picture(1, 6_000)), False),
        (b64(picture(1, 3_000)) + "=" + b64(picture(1, 3_000)), False),
        ("word " * 2_000, False),
    ],
)
def test_what_is_cut_out(text: str, is_cut: bool) -> None:
    """Canonical base64 of at least 4,096 bytes, after an optional beginning of a data URL."""
    given = entry(text, "short")

    (stored,), media = cut_out([given])

    assert (media is not None) == is_cut
    assert (b"\xff" in stored) == is_cut
    assert len(references(stored)) == is_cut
    if media is None:
        assert stored is given
    else:
        assert len(stored) < 300
        assert put_back(stored, media) == given
        rawjson.members(stored.replace(b"\xff", b""))
        rawjson.members(shortened(stored))


def test_base64_with_escaped_slashes_stays() -> None:
    """Some servers write a slash in JSON as two characters. Another way to write it would be other bytes."""
    given = entry(b64(picture(2))).replace(b"/", b"\\/")

    assert cut_out([given]) == ([given], None)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=30),
            st.integers(LEAST_BYTES - 4, LEAST_BYTES + 4).map(lambda size: b64(picture(3, size))),
            st.integers(0, 2).map(lambda seed: "data:image/png;base64," + b64(picture(seed))),
            st.integers(0, 2).map(lambda seed: b64(picture(seed)) + '"\\'),
        ),
        max_size=5,
    )
)
def test_what_is_cut_out_comes_back(texts: list[str]) -> None:
    """Whatever stands around it, and however often it is there."""
    given = [entry(*texts), entry(*texts[:1])]

    stored, media = cut_out(given)

    assert [put_back(one, media or {}) for one in stored] == given
    assert {digest_of(medium.part.raw(PLAIN)) for medium in (media or {}).values()} == set(media or {})


# --------------------------------------------------------------------------------------- in a state


def test_equal_pictures_are_stored_once() -> None:
    """Twenty times the same picture, in the inbox, in one turn and in many: one part."""
    data = picture(4, 150_000)
    url = "data:image/png;base64," + b64(data)
    state = state_with(entry(b64(data)), entry(url, url))
    for number in range(17):
        state = with_turn(state, turn(entry(str(number), url)))
    state = replace(state, inbox=(InboxItem(entry=entry(url), letter="u"),))

    blob = dump_state(state)

    assert len(blob) < 160_000
    loaded = load_state(blob)
    assert closed_entries(loaded) == closed_entries(state)
    assert loaded.inbox == state.inbox
    assert loaded.history_bytes() == state.history_bytes() > 3_000_000
    assert [bytes(piece) for piece in loaded.history()] == [bytes(piece) for piece in state.history()]
    assert b"\xff" not in b"".join(loaded.history())
    assert [len(part.raw(PLAIN)) for part in loaded.parts] == [150_000]
    assert dump_state(loaded) == blob
    assert verify_state(blob) == ()


def test_a_state_grows_as_if_it_were_built_at_once() -> None:
    """Hot and sealed segments with and without pictures; also when it is written and read after each turn."""
    turns = [turn(entry(b64(picture(n % 5)), "word " * (n * 400 % 3_000))) for n in range(40)]
    state = grown = new_state("openai", id="c", created=0)
    for one in turns:
        state = with_turn(state, one)
        grown = load_state(dump_state(with_turn(grown, one)))

    built = rebuild(new_state("openai", id="c", created=0), turns)

    assert len(state.sealed) > 1
    assert dump_state(state) == dump_state(grown) == dump_state(built)
    assert closed_entries(state) == [entry for one in turns for entry in one.entries]


def test_media_that_no_entry_names_leave() -> None:
    """After a cut, the rows and parts of what went are gone; without any, a blob has no directory."""
    turns = [turn(entry(b64(picture(n)))) for n in range(3)]
    state = load_state(dump_state(rebuild(new_state("openai", id="c", created=0), turns)))

    two = load_state(dump_state(rebuild(state, turns[1:])))
    none = dump_state(rebuild(two, [turn(b'{"role":"user"}')]))

    assert [row.digest.encode() for row in state.meta.media] == [digest_of(picture(n)) for n in range(3)]
    assert [row.digest.encode() for row in two.meta.media] == [digest_of(picture(n)) for n in (1, 2)]
    assert [part.raw(PLAIN) for part in two.parts] == [picture(1), picture(2)]
    assert none[7] == 0
    assert load_state(none).meta.media == ()


def test_the_end_of_a_row_stays() -> None:
    """A later release adds names there."""
    state = load_state(dump_state(state_with(entry(b64(picture(1))))))
    (row,) = state.meta.media
    row = row._replace(more=msgspec.Raw(b'{"tokens":1e3}'))
    meta = msgspec.structs.replace(state.meta, media=(row,))

    again = load_state(dump_state(with_turn(replace(state, meta=meta), turn(entry(b64(picture(2)))))))

    assert [bytes(row.more) for row in again.meta.media] == [b'{"tokens":1e3}', b""]


@pytest.mark.parametrize(
    "limits",
    [BlobLimits(max_media_bytes=11_000), BlobLimits(max_segments=8), BlobLimits(max_meta_bytes=8 * 2**10)],
)
def test_media_beyond_the_limits_stay_in_their_entries(limits: BlobLimits) -> None:
    """The first ones are stored once, and all come back; nothing is refused for being a picture."""
    entries = [entry(b64(picture(n)), b64(picture(n))) for n in range(20)]
    codec = Plain(limits=limits)
    state = state_with(*entries)

    blob = dump_state(state, codec=codec)

    loaded = load_state(blob, codec=codec)
    assert 0 < len(loaded.parts) < 20
    assert closed_entries(loaded) == entries
    assert loaded.history_bytes() == state.history_bytes()
    assert dump_state(loaded, codec=codec) == blob
    verify_state(blob, codec=codec)


def test_there_are_at_most_so_many_media() -> None:
    """A state of many small pictures: the others stay in their entries."""
    entries = [entry(b64(picture(n, LEAST_BYTES))) for n in range(MAX_MEDIA + 3)]

    loaded = load_state(dump_state(state_with(*entries)))

    assert len(loaded.parts) == len(loaded.meta.media) == MAX_MEDIA
    assert closed_entries(loaded) == entries


def test_a_medium_that_is_too_large_for_a_part_stays() -> None:
    """A part has at most 8 MiB."""
    given = entry(b64(bytes(MAX_PART_BYTES + 1)))

    assert cut_out([given]) == ([given], None)


def test_put_back_counts_for_the_limit() -> None:
    """Writing and reading: the inflated bytes are those with all media in their entries."""
    text = b64(picture(1, 100_000))
    state = state_with(*[entry(text)] * 8)
    small = Plain(limits=BlobLimits(max_decoded_bytes=1_000_000))
    smaller = Plain(limits=BlobLimits(max_decoded_bytes=500_000))

    with pytest.raises(StateTooLargeError) as caught:
        dump_state(state, codec=small)
    assert caught.value.limit_name == "max_decoded_bytes"

    blob = dump_state(state)
    assert closed_entries(load_state(blob, codec=small)) == closed_entries(state)  # twice the limit
    with pytest.raises(StateTooLargeError) as caught:
        load_state(blob, codec=smaller)
    assert caught.value.limit_name == "max_decoded_bytes"


def test_a_head_without_its_media_can_be_described() -> None:
    """Its history needs them, and says so."""
    blob = dump_state(state_with(entry(b64(picture(1)))))

    head, (part,) = detach(blob)

    assert part.kind == MEDIA
    assert inspect_state(head).history_bytes == inspect_state(blob).history_bytes
    with pytest.raises(StateError, match="is not in the blob"):
        closed_entries(load_state(head))


# -------------------------------------------------------------------------------------------- hostile


def forged(
    *entries: bytes, rows: list[Any] | None = None, media: tuple[bytes, ...] = (), kind: Kind = Kind.HOT
) -> bytes:
    """A blob with these stored entries, under a fitting seal."""
    meta = {"wire": "openai", "id": "c", "media": [] if rows is None else rows}
    lines = {
        Kind.HOT: b'[0,%d,[["%s","",0,0,0,0,0,0,0]]]' % (len(entries), b"u" * len(entries)),
        Kind.INBOX: b",".join([b'["u","",""]'] * len(entries)),
        Kind.OPEN: b'{"at":0,"letters":"%s","messages":%d}' % (b"u" * len(entries), len(entries)),
    }
    raw = JOIN.join(entries) + b"\n" + lines[kind]
    segments = [segment(Kind.META, rawjson.dumps(meta), 0), segment(kind, raw, len(entries))]
    return encode(segments, [new_part(MEDIA, one, 1) for one in media])


NAME = digest_of(picture(1))
ROW = [NAME.decode(), 0]
NAMED = b'{"data":"\xff' + NAME + b'\xff"}'


@pytest.mark.parametrize("kind", [Kind.HOT, Kind.INBOX, Kind.OPEN])
@pytest.mark.parametrize(
    ("entry", "rows", "media"),
    [
        pytest.param(NAMED, [], (), id="no-media"),
        pytest.param(NAMED, [ROW], (), id="no-part"),
        pytest.param(NAMED, [], (picture(1),), id="no-row"),
        pytest.param(NAMED, [ROW, ROW], (picture(1), picture(1)), id="twice"),
        pytest.param(NAMED, [[digest_of(b"a").decode(), 0]], (picture(1),), id="another"),
        pytest.param(b'{"data":"\xff"}', [ROW], (picture(1),), id="one-mark"),
        pytest.param(b'{"data":"\xff\xff"}', [ROW], (picture(1),), id="no-name"),
        pytest.param(b'{"data":"\xff' + NAME[:42] + b'\xff"}', [ROW], (picture(1),), id="short"),
        pytest.param(NAMED, [["short", 0]], (picture(1),), id="bad-row"),
        pytest.param(NAMED, [[NAME.decode(), -1]], (picture(1),), id="bad-number"),
    ],
)
def test_references_that_do_not_fit_are_refused(
    kind: Kind, entry: bytes, rows: list[Any], media: tuple[bytes, ...]
) -> None:
    """With a typed error that quotes nothing; before anything is put back."""
    blob = forged(entry, rows=rows, media=media, kind=kind)

    with pytest.raises(StateInvalidError, match="the state cannot be used") as caught:
        closed_entries(load_state(blob))
    assert NAME.decode() not in str(caught.value)


@pytest.mark.parametrize("kind", [Kind.HOT, Kind.INBOX, Kind.OPEN])
def test_the_forger_can_also_write_a_sound_state(kind: Kind) -> None:
    """So the cases above fail for their reason."""
    state = load_state(forged(NAMED, rows=[ROW], media=(picture(1),), kind=kind))

    found = [*closed_entries(state), *(item.entry for item in state.inbox)]
    found += state.open.entries if state.open is not None else ()
    assert found == [b'{"data":"%s"}' % b64(picture(1)).encode()]


def test_a_row_with_more_elements_is_of_a_later_release() -> None:
    """It is not damage: nothing begins afresh."""
    with pytest.raises(StateVersionError, match="media"):
        load_state(forged(NAMED, rows=[[*ROW, 7]], media=(picture(1),)))


def test_a_bomb_of_references_is_refused_in_bounds() -> None:
    """300 KB that name 8 MiB twenty thousand times: an error, and no memory for what they would be."""
    data = bytes(MAX_PART_BYTES)
    name = digest_of(data)
    bomb = b'{"data":"%s"}' % (b"\xff%s\xff" % name * 20_000)
    blob = forged(bomb, rows=[[name.decode(), 0]], media=(data,))
    assert len(blob) < 300_000

    tracemalloc.start()
    try:
        with pytest.raises(StateTooLargeError) as caught:
            load_state(blob)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert caught.value.limit_name == "max_decoded_bytes"
    assert peak < 12 * 2**20


def test_a_medium_with_another_digest_is_found_by_verify_state() -> None:
    """A turn would send it; a check of the whole blob says so."""
    blob = forged(NAMED, rows=[ROW], media=(picture(2),))

    assert load_state(blob).meta.media == (MediaRow(NAME.decode(), 0),)
    with pytest.raises(StateError, match="digest"):
        verify_state(blob)


def test_without_media_a_blob_is_as_before() -> None:
    """No row, no directory, no mark, and the very entries."""
    entries = [entry("word " * 3_000), entry(b64(picture(1, LEAST_BYTES - 1)))]

    blob = dump_state(state_with(*entries))

    assert blob[7] == 0
    assert b"media" not in decode(blob)[0].raw()
    assert b"\n".join([JOIN.join(entries), b""]) in decode(blob)[1].raw()
