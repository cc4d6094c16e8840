"""Kept conversations: a button press that is delivered again, or that is pressed too late."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Approve, Deny, NothingToResumeError, tool
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said

PAID: list[int] = []


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    PAID.append(amount)
    return f"paid {amount}"


def desk(kept: Threads, store: Any, *steps: Any, save: str = "turn") -> tuple[Any, ScriptedBackend]:
    """A conversation at which payments wait."""
    PAID.clear()
    backend = ScriptedBackend(*steps)
    return kept(backend, store, save=save, chat={"tools": [pay], "tool_threads": False}), backend


def test_a_button_press_that_comes_three_times(kept: Threads, store: FaultyStore, save: str) -> None:
    """One payment, one reply; each delivery gets it, and nothing is saved again."""
    conversation, backend = desk(kept, store, Calls([("pay", {"amount": 5})]), "Paid.", save=save)
    (call,) = conversation.send("Pay.").pending
    first = conversation.resume({call.id: Approve()})
    saved = list(store.saves)

    for answer in (Approve(), Approve(), Deny("too late")):
        result = conversation.resume({call.id: answer})

        assert (result.text, result.duplicate, result.state) == ("Paid.", True, first.state)
    assert (PAID, len(backend.requests), store.saves) == ([5], 2, saved)
    assert not first.duplicate


def test_a_button_press_behind_a_later_message(kept: Threads, leasing: LeasingStore, save: str) -> None:
    """The conversation has gone on: the press gets its own reply, and the lease is given back."""
    conversation, _ = desk(kept, leasing, Calls([("pay", {"amount": 5})]), "Paid.", "Welcome.", save=save)
    (call,) = conversation.send("Pay.").pending
    conversation.resume({call.id: Approve()})
    conversation.send("Thanks.")

    assert conversation.resume({call.id: Approve()}).text == "Paid."
    assert said(blob_in(leasing))[-1] == "Welcome."
    assert PAID == [5]


def test_there_is_nothing_to_resume(kept: Threads, store: FaultyStore, save: str) -> None:
    """Where nothing is stored, and where all is said; nothing is saved."""
    conversation, backend = desk(kept, store, "Hello.", save=save)

    with pytest.raises(NothingToResumeError):
        conversation.resume()
    assert store.saves == []
    conversation.send("Hello?")
    saved = list(store.saves)
    with pytest.raises(NothingToResumeError):
        conversation.resume()

    assert (store.saves, len(backend.requests)) == (saved, 1)
