"""What went wrong is told: in the error, in the state, and where the caller's own functions fail."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from goaitools_py import (
    CheckpointError,
    Message,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StateError,
    StateProviderError,
    StreamInterruptedError,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.base.values import replace
from goaitools_py.prices import Charge
from goaitools_py.state import blob
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import estimate_tokens, inspect_state, read_history, rewind_state
from goaitools_py.testing import Calls, ScriptedBackend

LOOK = Calls([("look", {})])


def look() -> str:
    """Look around."""
    return "A door."


def too_many() -> BackendError:
    return BackendError(
        "no",
        status=429,
        headers={"content-type": "application/json", "retry-after": "400"},
        body=b'{"error":{"message":"canary","code":"slow_down","type":"slow_down"}}',
    )


def dollar(charge: Charge) -> Decimal:
    """A dollar a call."""
    return Decimal(1)


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


def failed_late(face: Any, wire: str, **fields: Any) -> Any:
    """The error of a turn whose second request is refused, after a tool has run."""
    chat = face.chat(ScriptedBackend(LOOK, too_many(), wire=wire), tools=[look], **fields)
    with pytest.raises(RateLimitError) as caught:
        chat.chat(user="Look.")
    return caught.value


# ---------------------------------------------------------------------------------------- what it cost


def test_an_error_says_what_its_turn_cost(face: Any, wire: str) -> None:
    """Every call that was paid for is in it; without any it is 0, and unknown is None."""
    assert failed_late(face, wire, prices=dollar).cost_usd == 1
    assert failed_late(face, wire, prices=lambda charge: None).cost_usd is None
    chat = face.chat(ScriptedBackend(too_many(), wire=wire), prices=dollar)

    with pytest.raises(RateLimitError) as caught:
        chat.chat(user="Hello.")

    assert caught.value.cost_usd == 0


def test_a_refreshed_error_has_the_whole_cost(face: Any, wire: str) -> None:
    """A checkpoint that fails beside running tools is made new at the turn's end; its bill is whole too."""
    chat = face.chat(ScriptedBackend(LOOK, wire=wire), tools=[look], prices=dollar)

    with pytest.raises(CheckpointError) as caught:
        chat.chat(user="Look.", on_checkpoint=lambda state: 1 / 0)

    assert caught.value.cost_usd == 1
    assert caught.value.cost_usd == Decimal(caught.value.usage.requests)


# --------------------------------------------------------------------------- the reason, with the turn


def test_the_reason_is_stored_with_the_turn(face: Any, wire: str) -> None:
    """Class and code, no words; readable from the state, and in the history once a new turn has closed it."""
    error = failed_late(face, wire)
    assert inspect_state(error.state).failure == ("RateLimitError", error.code)
    assert read_history(error.state).turns[-1].failure == ("RateLimitError", error.code)
    assert b"canary" not in b"".join(segment.raw() for segment in blob.decode(error.state))

    chat = face.chat(ScriptedBackend("Good.", wire=wire), tools=[look])
    result = chat.chat_with_state(error.state, user="Forget it.")

    assert inspect_state(result.state).failure is None
    assert [turn.failure for turn in read_history(result.state).turns] == [
        ("RateLimitError", error.code),
        None,
    ]


def test_the_reason_of_a_turn_that_never_began_is_there_too(face: Any, wire: str) -> None:
    """No model has accepted anything: the state says why, until the turn goes on or is taken back."""
    chat = face.chat(ScriptedBackend(too_many(), "Hello.", wire=wire))
    with pytest.raises(RateLimitError) as caught:
        chat.chat(user="Hello.")
    state = caught.value.state
    assert inspect_state(state).failure == ("RateLimitError", caught.value.code)
    assert inspect_state(chat.append_to_state(state)).failure is not None

    result = chat.resume(state)

    assert inspect_state(result.state).failure is None
    assert result.text == "Hello."


def test_a_turn_that_was_finished_has_no_failure(face: Any, wire: str) -> None:
    """Resumed in another process; also every checkpoint on the way says that it goes on."""
    error = failed_late(face, wire)
    chat = face.chat(ScriptedBackend(LOOK, "Done.", wire=wire), tools=[look])
    kept: list[bytes] = []

    result = chat.resume(error.state, on_checkpoint=kept.append)

    assert kept
    assert all(inspect_state(state).failure is None for state in kept)
    assert [turn.failure for turn in read_history(result.state).turns] == [None]


def test_the_newest_reason_counts(face: Any, wire: str) -> None:
    """A turn that fails again in another way says that."""
    error = failed_late(face, wire)
    chat = face.chat(ScriptedBackend(BackendError("no", status=500), wire=wire), tools=[look])
    with pytest.raises(ProviderUnavailableError) as caught:
        chat.resume(error.state)

    assert inspect_state(caught.value.state).failure == ("ProviderUnavailableError", caught.value.code)


def test_what_is_taken_back_leaves_no_reason(face: Any, wire: str) -> None:
    """A poisonous first message is not in the state, and neither is what became of it."""
    refused = BackendError("no", status=400, body=b'{"error":{"message":"canary"}}')
    chat = face.chat(ScriptedBackend("Hello.", refused, wire=wire))
    before = chat.chat(user="Hello.").state

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(before, user="Poison.")

    assert caught.value.state == before


def test_a_rewind_takes_the_reason_along(face: Any, wire: str) -> None:
    """The unfinished turn goes, and with it why it failed."""
    state = rewind_state(failed_late(face, wire).state)

    assert inspect_state(state).failure is None


def test_a_reply_that_broke_off_says_why(face: Any, sim: Any, wire: str) -> None:
    """Through a real socket: the partial text and the reason stand beside each other."""
    from goaitools_py.sim import Fault

    chat = face.on(sim)
    sim.push(Fault.reset(after=1))
    turn = chat.start(None, user="A story.")

    with pytest.raises(StreamInterruptedError) as caught:
        turn.result()

    assert inspect_state(caught.value.state).failure == ("StreamInterruptedError", caught.value.code)


@pytest.mark.parametrize("row", [["a", "b", "c"], [1], "text"])
def test_a_reason_that_nobody_wrote_is_refused(face: Any, row: Any) -> None:
    """What is read is checked like every other fact."""
    state = load_state(failed_late(face, "openai").state)
    assert state.open is not None
    forged = replace(state, open=replace(state.open, facts={**state.open.facts, "failed": row}))

    with pytest.raises(StateError):
        load_state(dump_state(forged))


# ----------------------------------------------------------------------------- the caller's own functions


class Counter:
    """Counts in a way of its own."""

    def __init__(self, count: Any) -> None:
        self._count = count

    def count(self, message: Message, /) -> int:
        if isinstance(self._count, Exception):
            raise self._count
        return self._count  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [LookupError("canary"), -5, 1.5, None])
def test_a_token_counter_that_fails_is_told_once(face: Any, run: Any, wire: str, count: Any) -> None:
    """The turn succeeds on estimates, and one warning says what is wrong with the counter."""
    chat = face.chat(ScriptedBackend(LOOK, "Done.", wire=wire), tools=[look])
    plain = face.chat(ScriptedBackend(LOOK, "Done.", wire=wire), tools=[look])

    result = run(chat, user="Look.", token_counter=Counter(count))

    assert codes(result) == ["token_counter_failed"]
    assert "canary" not in result.warnings[0].message
    assert result.context_used == run(plain, user="Look.").context_used
    estimate = estimate_tokens(result.state)
    assert estimate_tokens(result.state, counter=Counter(count)) == estimate


def test_estimating_a_state_of_another_wire_is_a_state_error() -> None:
    """As everything else that reads a state whose wire nobody here knows."""
    state = load_state(_plain_state())
    foreign = dump_state(replace(state, meta=msgspec.structs.replace(state.meta, wire="marsian")))

    with pytest.raises(StateProviderError, match="marsian"):
        estimate_tokens(foreign)


def _plain_state() -> bytes:
    from goaitools_py import Chat

    return Chat(ScriptedBackend("Hello.")).chat(user="Hello.").state
