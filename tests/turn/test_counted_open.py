"""A fresh conversation has cost nothing, and the tokens of an unfinished turn can be counted."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import Limits, TurnError, event
from goaitools_py.backends.base import BackendError
from goaitools_py.states import inspect_state
from goaitools_py.testing import Raw

from ._desk import Desk, pay

DOWN = BackendError("down", kind="unavailable")


def test_a_fresh_conversation_has_cost_nothing(face: Any, wire: str) -> None:
    """Not an unknown sum: a limit on its whole cost lets it begin, and the first price is the total."""
    desk = Desk(face, wire)
    desk.script("Hello.")
    chat = desk.chat(prices=lambda _: Decimal("0.5"))

    state = chat.append_to_state(None, event("Ada won."))
    result = chat.chat_with_state(state, limits=Limits(conversation_max_cost_usd=1))

    assert inspect_state(state).total_cost_usd == Decimal(0)
    assert result.total_cost_usd == Decimal("0.5")


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
@pytest.mark.parametrize(
    ("waits", "said", "found", "not_found"),
    [
        (False, None, "paid 5", "not run"),  # as `resume` would send it
        (False, "And?", "And?", "not run"),  # as a new message would, behind the closed turn
        (True, None, "not run", "paid 5"),
        (True, "And?", "not run", "paid 5"),
    ],
)
def test_an_unfinished_turn_is_counted(
    face: Any, wire: str, waits: bool, said: str | None, found: str, not_found: str
) -> None:
    """What is counted is a request that the provider takes: each call has a result, real or flagged."""
    desk = Desk(face, wire, requires_approval=waits)
    desk.script([pay(5)])
    if waits:
        state = desk.chat().chat(user="Pay.").state
    else:
        desk.script(DOWN)
        with pytest.raises(TurnError) as caught:
            desk.chat().chat(user="Pay.")
        state = caught.value.state
    desk.backend.then(Raw.body(b'{"input_tokens": 7, "object": "response.input_tokens"}'))
    chat = desk.chat().inner
    fields = {} if said is None else {"user": said}
    if waits and said is None:
        state = chat.append_to_state(state, event("It rains."))

    counted = chat.count_tokens(state, **fields)

    assert (face.run(counted) if face.is_async else counted) == 7
    assert (found in desk.sent(), not_found in desk.sent()) == (True, False)
    desk.check(state)
