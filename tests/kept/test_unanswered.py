"""Kept conversations: a message whose turn failed, delivered again behind a newer one."""

from __future__ import annotations

import pytest

from goaitools_py import TurnError, tool
from goaitools_py.backends.base import BackendError
from goaitools_py.testing import Calls, ScriptedBackend

from .conftest import FaultyStore, LeasingStore, Threads, blob_in, said

DOWN = BackendError("down", kind="unavailable")


@pytest.mark.parametrize("leases", [True, False])
def test_it_is_answered_and_its_tools_do_not_run_again(
    kept: Threads, store: FaultyStore, leasing: LeasingStore, save: str, leases: bool
) -> None:
    """The first delivery failed behind its tool; the last ones get the reply that is stored now."""
    ran: list[int] = []

    @tool
    def refund(euros: int) -> str:
        """Refund an amount."""
        ran.append(euros)
        return f"refunded {euros}"

    kept_in = leasing if leases else store
    backend = ScriptedBackend(Calls([("refund", {"euros": 5})]), DOWN, "Welcome.", "Refunded.")
    conversation = kept(backend, kept_in, save=save, chat={"tools": [refund], "tool_threads": False})
    with pytest.raises(TurnError):
        conversation.send("My money back!", turn_id="m-1")
    conversation.send("Thanks.", turn_id="m-2")

    answered = conversation.send("My money back!", turn_id="m-1")
    again = conversation.send("My money back!", turn_id="m-1")

    assert (answered.text, answered.duplicate) == ("Refunded.", False)
    assert (again.text, again.duplicate, again.state) == ("Refunded.", True, answered.state)
    assert (ran, len(backend.requests)) == ([5], 4)
    assert said(blob_in(kept_in)).count("My money back!") == 1
