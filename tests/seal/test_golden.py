"""What was once written is read for ever, and what was once refused stays refused: the frozen vectors."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Chat,
    StateAuthError,
    StateError,
    errors,
    inspect_state,
    pending_calls,
    read_history,
    rewrap,
    state_from_text,
    state_messages,
    state_to_text,
    tool,
)
from goaitools_py.state import blob
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.testing import ScriptedBackend, check_history

from . import _second
from ._golden import BAD, GOLDEN, GOOD, Vector, codec_of, smallest

CODECS = ["plain", "signed", "encrypted", "encrypted-client"]


def ids(vector: Vector) -> str:
    return vector.name


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def opened(given: bytes, vector: Vector) -> list[bytes] | None:
    """All that a blob holds, by the vector's key and binding; None for a typed error that carries it."""
    try:
        return [each.raw() for each in blob.decode(given, **vector.opening)]
    except StateError as error:
        carried = error.blob
    assert carried == given
    return None


# ------------------------------------------------------------------------------------------------ files


def test_the_vectors_are_those_that_were_written() -> None:
    """The files have the hashes that the provenance states: nobody wrote them anew."""
    text = (GOLDEN / "PROVENANCE.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"`(v1-\w+\.jsonl)`.*?`([0-9a-f]{64})`", text))

    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in GOLDEN.glob("*.jsonl")}

    assert found == stated
    assert len(found) == 2


def test_there_are_vectors_of_everything() -> None:
    """Each codec on each wire with each feature, and forty ways to be wrong in each suite."""
    features = {each.facts["feature"] for each in GOOD}
    wires = {each.facts["wire"] for each in GOOD}
    cells = {(each.codec, each.facts["wire"], each.facts["feature"]) for each in GOOD}

    assert (len(features), len(wires)) == (10, 3)
    assert cells >= {(c, w, f) for c in CODECS for w in wires for f in features - {"long"}}
    assert {c for c, _, f in cells if f == "long"} == {"plain", "signed", "encrypted"}
    assert all(sum(each.codec == codec for each in BAD) >= 40 for codec in CODECS[:3])


# ------------------------------------------------------------------------------------------------- good


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_is_read(vector: Vector) -> None:
    """Segments, entries and messages are those that were written then; the history is one to be sent."""
    segments = blob.decode(vector.blob, **vector.opening)
    messages = state_messages(vector.blob, **vector.opening)
    texts = [message.text[:60] for message in read_history(vector.blob, **vector.opening).all_messages()]

    found = [[int(s.kind), s.entries, s.raw_len, hashlib.sha256(s.raw()).hexdigest()] for s in segments]
    assert found == vector.facts["segments"]
    assert hashlib.sha256(canonical(messages)).hexdigest() == vector.facts["messages"]
    assert texts == vector.facts["texts"]
    assert check_history(vector.facts["wire"], messages) == []


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_a_second_reader_finds_the_same(vector: Vector) -> None:
    """A reader made from the drawn pages and other people's cryptography opens it, and no other way."""
    found = _second.opened(vector.blob, vector.secrets, vector.bound)

    described = [[s.kind, s.entries, len(s.raw), hashlib.sha256(s.raw).hexdigest()] for s in found]
    assert described == vector.facts["segments"]
    if vector.key:
        with pytest.raises(_second.Refused):
            _second.opened(vector.blob, vector.secrets, {"user": "Eve"})


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_goes_on(vector: Vector) -> None:
    """The next turn keeps every message that was there, and seals with the same codec."""

    @tool
    def look(place: str) -> str:
        """What there is at a place."""
        return place

    @tool(requires_approval=True)
    def pay(pounds: int) -> str:
        """Pay for the tea."""
        return f"Paid {pounds}."

    feature = vector.facts["feature"]
    tools = [look, pay] if feature == "waiting for an approval" else [look]
    backend = ScriptedBackend("Go on.", wire=vector.facts["wire"])
    chat = Chat(backend, codec=vector.opening["codec"], binding=vector.binding, tools=tools)
    before = state_messages(vector.blob, **vector.opening)
    info = inspect_state(vector.blob, **vector.opening)

    if feature in ("waiting for an approval", "broken off"):
        waiting = pending_calls(vector.blob, **vector.opening)
        done = chat.resume(vector.blob, {call.id: Approve() for call in waiting})
        before = before[: -len(waiting)] if waiting else before  # shown as they would close: not run
    else:
        done = chat.chat_with_state(vector.blob, user="And now?")

    after = state_messages(done.state, **vector.opening)
    assert after[: len(before)] == before
    assert check_history(vector.facts["wire"], after) == []
    assert inspect_state(done.state, **vector.opening).revision == info.revision + 1
    assert inspect_state(done.state, **vector.opening).turns == info.turns + 1
    assert blob.peek(done.state).suite == blob.peek(vector.blob).suite


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_what_was_written_is_written_again(vector: Vector) -> None:
    """Decoding, dumping, sealing by every other codec and the way through text lose nothing."""
    raws = opened(vector.blob, vector)
    state = load_state(vector.blob, **vector.opening)

    again = dump_state(state, **vector.opening)

    assert opened(again, vector) == raws
    assert state_from_text(state_to_text(vector.blob)) == vector.blob
    binding = {"room": "7"}
    for name in CODECS[1:]:
        target = codec_of(name, "C")
        moved = rewrap(vector.blob, **vector.opening, to=target, to_binding=binding)
        assert [each.raw() for each in blob.decode(moved, codec=target, binding=binding)] == raws
        back = rewrap(moved, target, binding=binding, to=vector.opening["codec"], to_binding=vector.binding)
        assert opened(back, vector) == raws


# -------------------------------------------------------------------------------------------------- bad


@pytest.mark.parametrize("vector", BAD, ids=ids)
def test_what_is_wrong_is_refused(vector: Vector) -> None:
    """The error is of the class that was stated, carries the blob, and has no cause that could tell more."""
    error = getattr(errors, vector.facts["error"])

    with pytest.raises(StateError) as caught:
        [each.raw() for each in blob.decode(vector.blob, **vector.opening)]

    assert type(caught.value) is error
    assert caught.value.blob == vector.blob
    assert (caught.value.__cause__, caught.value.__context__) == (None, None) or error is not StateAuthError


@pytest.mark.parametrize("vector", BAD, ids=ids)
def test_a_second_reader_refuses_it_too(vector: Vector) -> None:
    """Whatever is beyond a limit aside, both readers agree on what is wrong."""
    is_limit = vector.facts["error"] == "StateTooLargeError"
    is_other_suite = vector.facts["error"] == "StateAuthError" and ", is " in vector.name

    try:
        _second.opened(vector.blob, vector.secrets, vector.bound)
    except _second.Refused:
        return

    assert is_limit or is_other_suite


# --------------------------------------------------------------------------------------------- damages


def bits_and_cuts(whole: bytes) -> Iterator[bytes]:
    """Every single bit flipped, every beginning, every byte left out."""
    for at in range(len(whole)):
        for bit in range(8):
            yield whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        yield whole[:at]
        yield whole[:at] + whole[at + 1 :]


@pytest.mark.parametrize("vector", GOOD, ids=ids)
def test_every_bit_counts(vector: Vector) -> None:
    """Each bit, each truncation, each byte left out, and at each place one byte put in: refused."""
    whole = vector.blob
    rng = random.Random(len(whole))

    accepted = [d for d in bits_and_cuts(whole) if d != whole and opened(d, vector) is not None]
    for at in range(len(whole) + 1):
        for byte in (rng.randrange(256), whole[at - 1]):
            grown = whole[:at] + bytes([byte]) + whole[at:]
            if opened(grown, vector) is not None:
                accepted.append(grown)

    assert accepted == []


@pytest.mark.parametrize("codec", CODECS)
def test_every_byte_put_in_is_refused(codec: str) -> None:
    """Of one blob of each codec: every byte at every place."""
    vector = smallest(codec)
    whole = vector.blob

    accepted = [
        (at, byte)
        for at in range(len(whole) + 1)
        for byte in range(256)
        if opened(whole[:at] + bytes([byte]) + whole[at:], vector) is not None
    ]

    assert accepted == []


@pytest.mark.parametrize("codec", CODECS[1:])
def test_every_letter_of_a_text_counts(codec: str) -> None:
    """The text form too: no letter can be changed, left out or put in."""
    vector = smallest(codec)
    text = state_to_text(vector.blob)
    rng = random.Random(5)
    letters = "ABCabc019-_+/=. \n"
    changed = [text[:at] + rng.choice(letters) + text[at + 1 :] for at in range(len(text))]
    changed += [text[:at] + text[at + 1 :] for at in range(len(text))]
    changed += [text[:at] + rng.choice(letters) + text[at:] for at in range(len(text) + 1)]

    accepted = []
    for each in changed:
        try:
            accepted.append(blob.decode(state_from_text(each), **vector.opening))
        except StateError:
            continue

    assert len(accepted) == changed.count(text)
