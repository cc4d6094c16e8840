"""A closed history in parts: which segments become parts and are joined, and the way to a head and back."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from goaitools_py.base.values import replace
from goaitools_py.seal import BlobLimits, Encrypted, Key, Keyring, Plain, Signed
from goaitools_py.state import apart
from goaitools_py.state.apart import StateHead, joins
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.codec import PLAIN, hard_limits
from goaitools_py.state.parts import ELSEWHERE, SEALED_HISTORY
from goaitools_py.state.state import (
    ConversationState,
    closed_turns,
    dump_state,
    load_state,
    new_state,
    rebuild,
    with_turn,
)
from goaitools_py.state.whole_blobs import parts_of, verify_state
from goaitools_py.types.errors import (
    StateAuthError,
    StateCorruptError,
    StatePartMissingError,
    StateTooLargeError,
)

KIB = 1024
KEY, OLD_KEY = Key.generate(), Key.generate()
CODECS: dict[str, tuple[Any, Any]] = {
    "plain": (PLAIN, None),
    "signed": (Signed(Keyring(KEY)), {"user": "ada"}),
    "encrypted": (Encrypted(Keyring(KEY)), {"user": "ada"}),
    "client": (Encrypted(Keyring(KEY), visible_to="client"), {"user": "ada"}),
}


@pytest.fixture(params=CODECS)
def sealed(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Codec and binding of each suite."""
    codec, binding = CODECS[request.param]
    return {"codec": codec, "binding": binding}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "SMALL", 150)


def turn(number: int, size: int = 100) -> ClosedTurn:
    """A turn of random words. Odd sizes of base64 make a medium of it."""
    words = random.Random(number)
    said = " ".join(str(words.random()) for _ in range(1 + size // 20))
    entries = (
        b'{"role":"user","content":"%s"}' % said.encode(),
        b'{"role":"assistant","content":"%d"}' % number,
    )
    record = TurnRecord(at=number, messages=2, iterations=(Iteration(roles="ua"),))
    return ClosedTurn(entries, record)


def picture(number: int) -> ClosedTurn:
    """A turn with a picture large enough to be a medium."""
    import base64

    data = base64.b64encode(random.Random(number).randbytes(6_000))
    entry = b'{"role":"user","content":"data:image/png;base64,%s"}' % data
    record = TurnRecord(at=number, messages=1, iterations=(Iteration(roles="u"),))
    return ClosedTurn((entry,), record)


def empty(*, is_apart: bool = True) -> ConversationState:
    return replace(new_state("openai", id="one", created=1), is_apart=is_apart)


def grown(turns: list[ClosedTurn], **how: Any) -> ConversationState:
    state = empty(**how)
    for each in turns:
        state = with_turn(state, each)
    return state


def head_of(state: ConversationState, **sealed: Any) -> StateHead:
    found = dump_state(state, **sealed)
    assert isinstance(found, StateHead)
    return found


def history(names: StateHead) -> list[bytes]:
    """The names of the parts with history, oldest first."""
    parts = parts_of(bytes(names), codec=names.codec, binding=names.binding)
    assert all(part.place == ELSEWHERE for part in parts)
    return [part.digest for part in parts if part.kind == SEALED_HISTORY]


# ------------------------------------------------------------------------------------------- joining


def as_the_rule_says(sizes: list[int], new: int) -> int:
    """The rule of the format's paper, with its own numbers: levels below 16, 64 and 256 KiB."""

    def level(size: int) -> int:
        return sum(size >= edge * KIB for edge in (16, 64, 256))

    count = 0
    while True:
        rest = sizes[: len(sizes) - count]
        own = new + sum(sizes[len(sizes) - count :]) + 2 * count
        fitting, size = 0, own
        while fitting < len(rest) and level(rest[-1 - fitting]) <= level(own):
            size += rest[-1 - fitting] + 2
            if size > 256 * KIB:
                break
            fitting += 1
        if fitting < 3:
            return count
        count += fitting


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_joined_as_the_rule_says(seed: int) -> None:
    """A random history of new parts, up to one larger than a join may be."""
    dice = random.Random(seed)
    sizes: list[int] = []
    written = total = 0
    for _ in range(600):
        new = dice.choice([4, 4, 4, 5, 6, 9, 20, 70, 300]) * KIB + dice.randrange(900)
        count = joins(sizes, new)
        assert count == as_the_rule_says(sizes, new)
        joined = new + sum(sizes[len(sizes) - count :]) + 2 * count
        assert not count or joined <= apart.CAP
        sizes[len(sizes) - count :] = [joined]
        written, total = written + joined, total + new

    print(f"{len(sizes)} parts, each byte written {written / total:.1f} times")
    assert written < 4 * total


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_small_turns_leave_few_parts(size: int) -> None:
    """2.5 MiB of closed history: parts of 64 KiB and more, and at most nine smaller ones."""
    sizes: list[int] = []
    new = size * KIB + 200
    for _ in range(2_500 // size):
        count = joins(sizes, new)
        sizes[len(sizes) - count :] = [new + sum(sizes[len(sizes) - count :])]

    assert len([one for one in sizes if one < 64 * KIB]) <= 9
    assert len(sizes) <= 45


@pytest.mark.usefixtures("_small")
def test_a_short_history_has_no_parts(sealed: dict[str, Any]) -> None:
    """Its head is the blob that it would be anyway."""
    state = grown([turn(1, 20)])

    head = head_of(state, **sealed)

    assert (head.names, head.at_hand) == ({}, {})
    if sealed["codec"].suite != 0x21:
        assert bytes(head) == dump_state(replace(state, is_apart=False), **sealed)


# ------------------------------------------------------------------------------- a head, and a whole blob


@pytest.mark.usefixtures("_small")
def test_a_history_in_parts_is_the_same_history(sealed: dict[str, Any]) -> None:
    """Loaded and saved with each turn, it has the turns of a history that was never in parts."""
    state, plain, kept = empty(), empty(is_apart=False), dict[bytes, bytes]()
    most = 0
    for number in range(60):
        added = picture(number % 5) if number % 7 == 3 else turn(number, 40 * (number % 6))
        state, plain = with_turn(state, added), with_turn(plain, added)
        head = head_of(state, **sealed)
        new = {name: data for name, data in head.at_hand.items() if name not in kept}
        most = max(most, len(head.names))
        assert len(new) <= 2
        kept = {name: data for name, data in (kept | new).items() if name in head.names}
        assert kept.keys() == head.names.keys()

        whole = head.whole
        assert type(whole) is bytes
        assert verify_state(whole, **sealed) == ()
        assert SEALED_HISTORY not in {part.kind for part in parts_of(whole, **sealed)}
        assert closed_turns(load_state(whole, **sealed)) == closed_turns(plain)
        state = load_state(StateHead.of(bytes(head), kept, head.names, **sealed), **sealed)
        assert closed_turns(state) == closed_turns(plain)
        assert b",\n".join(state.history()) == b",\n".join(plain.history())
        assert state.history_bytes() == plain.history_bytes()
        assert head_of(state, **sealed).at_hand == kept
    assert most > 4


@pytest.mark.usefixtures("_small")
def test_a_loaded_part_is_carried(sealed: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither compressed nor encrypted again: the head has the very bytes that were loaded."""
    head = head_of(grown([turn(number) for number in range(5)]), **sealed)
    state = load_state(head, **sealed)
    made: list[int] = []
    compress = apart.frames.compress
    monkeypatch.setattr(apart.frames, "compress", lambda *of: made.append(len(of[0])) or compress(*of))

    again = head_of(replace(state, hot=None), **sealed)

    for name in history(again):
        assert again.at_hand[name] is head.at_hand[name]
    if sealed["codec"].compresses:
        assert len(made) <= 1  # the meta data


@pytest.mark.usefixtures("_small")
def test_a_new_part_is_sealed_once(sealed: dict[str, Any]) -> None:
    """Each checkpoint of a turn lists it under the same name, though encryption is random."""
    state = grown([turn(number) for number in range(5)])

    first = head_of(state, **sealed)
    second = head_of(with_turn(state, turn(9, 20)), **sealed)

    assert first.names
    assert first.names.keys() <= second.names.keys()
    assert head_of(state, **sealed).names == first.names


@pytest.mark.usefixtures("_small")
def test_equal_turns_are_one_part() -> None:
    """Imported turns have no times, so two segments may be equal: the name stands twice, the bytes once."""
    state = grown([turn(1, 200), turn(1, 200), turn(1, 200)])

    head = head_of(state)

    assert history(head)[0] == history(head)[1]
    assert len(head.names) == len(head.at_hand) == 1
    assert len(closed_turns(load_state(head))) == 3
    assert len(closed_turns(load_state(head.whole))) == 3


@pytest.mark.usefixtures("_small")
def test_a_whole_blob_becomes_a_head(sealed: dict[str, Any]) -> None:
    """With the segments that it has: its boundaries mean nothing."""
    plain = grown([turn(number, 9_000) for number in range(20)], is_apart=False)
    assert len(plain.sealed) > 1
    state = replace(load_state(dump_state(plain, **sealed), **sealed), is_apart=True)

    head = head_of(state, **sealed)

    assert len(history(head)) == len(plain.sealed)
    assert closed_turns(load_state(head.whole, **sealed)) == closed_turns(plain)


def test_a_segment_beyond_the_largest_part_stays_in_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so do all later ones, because parts come first in the order of the history."""
    monkeypatch.setattr(apart, "SMALL", 150)
    monkeypatch.setattr(apart, "MAX_PART_BYTES", 2_000)
    turns = [turn(1), turn(2), turn(3, 3_000), turn(4), turn(5)]

    head = head_of(grown(turns))

    assert len(history(head)) == 2
    assert len(load_state(head).sealed) == 4
    assert [one.entries for one in closed_turns(load_state(head))] == [one.entries for one in turns]
    again = head_of(with_turn(load_state(head), turn(6)))
    assert [one.entries for one in closed_turns(load_state(again.whole))][-1] == turn(6).entries


# ------------------------------------------------------------------------------------------ rewriting


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("gone", [1, 5, 20])
def test_a_rewrite_keeps_the_parts_before_it(sealed: dict[str, Any], gone: int) -> None:
    """Parts are cut anew from the first turn on that has changed."""
    state = grown([picture(number) if number == 2 else turn(number, 300) for number in range(30)])
    before = head_of(state, **sealed)
    loaded = load_state(before, **sealed)
    turns = closed_turns(loaded)

    after = head_of(rebuild(loaded, turns[: len(turns) - gone]), **sealed)

    reached, kept = 0, []
    for name, segment in zip(history(before), loaded.sealed, strict=True):
        reached += segment.entries
        if reached > sum(len(each.entries) for each in turns[: len(turns) - gone]):
            break
        kept.append(name)
    assert history(after)[: len(kept)] == kept
    assert len(after.at_hand.keys() - before.at_hand.keys()) <= 5
    assert closed_turns(load_state(after, **sealed)) == turns[: len(turns) - gone]
    assert head_of(rebuild(loaded, turns), **sealed).names == before.names


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("changed", [0, 7, 29])
def test_a_changed_turn_replaces_its_part(changed: int) -> None:
    """The bytes of the old turn are in no part of the new head."""
    turns = [turn(number, 300) for number in range(30)]
    state = load_state(head_of(grown(turns)))
    other = ClosedTurn(
        (b'{"role":"user","content":"[redacted]"}', turns[changed].entries[1]), turns[changed].record
    )
    wanted = [*turns[:changed], other, *turns[changed + 1 :]]

    made = rebuild(state, wanted)

    assert [each.entries for each in closed_turns(made)] == [each.entries for each in wanted]
    assert not any(turns[changed].entries[0] in segment.raw() for segment in made.segments)
    assert [each.entries for each in closed_turns(load_state(head_of(made).whole))] == [
        each.entries for each in wanted
    ]


# -------------------------------------------------------------------------------------- keys and limits


@pytest.mark.usefixtures("_small")
def test_a_new_key_seals_the_parts_anew() -> None:
    """With the next head: after it the old key opens nothing that the head needs."""
    binding = {"user": "ada"}
    old = Encrypted(Keyring(OLD_KEY))
    both = Encrypted(Keyring(KEY, OLD_KEY))
    head = head_of(grown([picture(2), *[turn(number) for number in range(9)]]), codec=old, binding=binding)

    state = load_state(
        StateHead.of(bytes(head), head.at_hand, head.names, both, binding), codec=both, binding=binding
    )
    first, second = (head_of(state, codec=both, binding=binding) for _ in range(2))

    assert not first.names.keys() & head.names.keys()
    assert first.names == second.names
    new = Encrypted(Keyring(KEY))
    found = load_state(
        StateHead.of(bytes(first), first.at_hand, first.names, new, binding), codec=new, binding=binding
    )
    assert closed_turns(found) == closed_turns(state)


@pytest.mark.usefixtures("_small")
def test_parts_of_another_owner_are_refused() -> None:
    """A store that gives another conversation's part under its own name is found out."""
    codec = CODECS["encrypted"][0]
    head = head_of(grown([turn(number) for number in range(5)]), codec=codec, binding={"user": "ada"})
    name = history(head)[0]
    other = apart.Part(
        kind=SEALED_HISTORY, entries=2, raw_len=10, stored_len=len(head.at_hand[name]), digest=name,
        stored=head.at_hand[name], suite=0x21,
    )  # fmt: skip

    with pytest.raises(StateAuthError):
        apart.sealed_history(other, codec, {"user": "bea"})


@pytest.mark.usefixtures("_small")
def test_missing_and_spoilt_parts(sealed: dict[str, Any]) -> None:
    """A part that is not there is no damage; bytes that do not have the name are."""
    head = head_of(grown([picture(2), *[turn(number) for number in range(9)]]), **sealed)
    for name in head.names:
        data = head.at_hand[name]
        spoilt = {**head.at_hand, name: data[:-1] + bytes([data[-1] ^ 1])}
        with pytest.raises(StateCorruptError):
            load_state(StateHead.of(bytes(head), spoilt, head.names, **sealed), **sealed)
    for name in history(head):
        rest = {other: data for other, data in head.at_hand.items() if other != name}
        with pytest.raises(StatePartMissingError) as caught:
            load_state(StateHead.of(bytes(head), rest, head.names, **sealed), **sealed)
        assert caught.value.digest == name.hex()
    with pytest.raises(StatePartMissingError):
        load_state(bytes(head), **sealed)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("limit", ["max_blob_bytes", "max_decoded_bytes", "max_entries", "max_segments"])
def test_limits_count_body_and_parts_together(limit: str) -> None:
    """A head within the limits has a whole blob within the limits, and a reader has the same limits."""
    state = grown([turn(number, 90_000) for number in range(12)])
    head = head_of(state)
    sizes = {
        "max_blob_bytes": head.size,
        "max_decoded_bytes": sum(one.raw_len for one in state.segments) + 200,
        "max_entries": sum(one.entries for one in state.segments),
        "max_segments": len(state.segments) + 1,
    }
    least = sizes[limit] - (300 if limit == "max_decoded_bytes" else 1)

    with pytest.raises(StateTooLargeError) as caught:
        dump_state(state, limits=msgspec.structs.replace(hard_limits(PLAIN), **{limit: least}))
    assert caught.value.limit_name == limit
    with pytest.raises(StateTooLargeError):
        load_state(head, limits=msgspec.structs.replace(hard_limits(PLAIN), **{limit: least}))
    enough = BlobLimits(**{limit: max(sizes[limit], 4 * KIB)})
    assert load_state(dump_state(state, codec=Plain(limits=enough))).sealed
    assert len(head.whole) <= head.size
