"""A redacted state has no trace of the secret, is accepted by the provider, and is otherwise the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.protocols import problems_of
from goaitools_py.seal import Encrypted, Key, Keyring, Plain, Signed
from goaitools_py.state.closed_turns import with_numbers
from goaitools_py.state.state import closed_turns, dump_state, load_state
from goaitools_py.states import redact_state, verify_state
from tests.compaction._histories import WIRES

from ._planted import SECRETS, conversation, has, traces


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("seed", range(20))
def test_no_trace_of_the_secret_is_left(wire: str, seed: int) -> None:
    """Any conversation, of any size; sealed or not; with archive, open turn, inbox."""
    print("seed", seed)
    r = random.Random(f"redact/{wire}/{seed}")
    secret = SECRETS[seed % len(SECRETS)]
    state = conversation(r, wire, secret, [3, 0, 12, 40][seed % 4])
    key = Keyring(Key.generate())
    codec = r.choice([Plain(), Signed(key), Encrypted(key), Encrypted(key, visible_to="client")])
    owner: Any = None if isinstance(codec, Plain) else {"user": "ada"}
    blob = dump_state(state, codec=codec, binding=owner)

    done = redact_state(blob, secret, codec=codec, binding=owner)

    assert traces(done.state, secret, codec, owner) == 0
    assert (done.count > 0) == (traces(blob, secret, codec, owner) > 0)
    verify_state(done.state, codec=codec, binding=owner)
    new = load_state(done.state, codec=codec, binding=owner)
    opened = new.open.entries if new.open is not None else ()
    entries = [entry for turn in closed_turns(new) for entry in turn.entries]
    assert problems_of(dialect_of(wire), [*entries, *opened], open_end=new.open is not None) == []
    assert new.meta.messages == sum(turn.record.messages for turn in closed_turns(new))
    again = redact_state(done.state, secret, codec=codec, binding=owner)
    assert (again.state, again.count, again.places) == (done.state, 0, ())
    dialect = dialect_of(wire)
    before, after = with_numbers(closed_turns(state)), with_numbers(closed_turns(new))
    assert len(before) == len(after)
    for old, turn in zip(before, after, strict=True):
        if not any(has(entry, secret) for entry in old.entries):
            assert turn.entries in (old.entries, tuple(filter(None, dialect.unsigned(old.entries))))
