"""Checks money, tokens and bytes before the first paid call, and bytes again when the state is written.

Owns: the limits of a conversation and of its state, and the cut that makes room. Must never know: a turn's
own limits (`limits`), or a model's reply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..open_turn import journal
from ..open_turn.room import CALL_BYTES, RESULTS
from ..state.records import dollars_of, usage_of
from ..state.state import ConversationState
from ..types.errors import BudgetExceededError, StateSizeError, StateTooLargeError
from ..types.messages import Message
from . import shrink
from .flow import Flow
from .ledger import Ledger

__all__ = ["NOT_STORED", "check_budget", "check_queue", "check_size", "written"]

NOT_STORED: Final = frozenset({"extra_body", "extra_headers"})
"""Settings that no state keeps."""


def check_budget(ledger: Ledger, model: str) -> None:
    """Raise `BudgetExceededError` if the conversation has reached a limit that it must not pass."""
    limits = ledger.options.limits
    if limits is None:
        return
    meta = ledger.state.meta
    spent, most = usage_of(meta.total).total_tokens, limits.conversation_max_tokens
    if most is not None and spent >= most:
        raise _over_budget(ledger, f"this conversation has used {spent} tokens of its {most}")
    if not limits.limits_cost:
        return
    if not ledger.knows_price(model):
        raise _over_budget(
            ledger,
            "there is a limit on costs, and no price is known for the model: pass prices=, or "
            "pip install 'goaitools-py[prices]', or leave the limit out",
        )
    dollars = limits.conversation_max_cost_usd
    if dollars is None:
        return
    cost = dollars_of(meta)
    if cost is None:
        raise _over_budget(
            ledger,
            "there is a limit on the conversation's cost, and what it has cost so far is not known: some "
            "calls were made without prices=",
        )
    if cost >= dollars:
        raise _over_budget(ledger, f"this conversation has cost {cost} US dollars of its {dollars}")


def _over_budget(ledger: Ledger, text: str) -> BudgetExceededError:
    ledger.leave_waiting()
    return ledger.error(BudgetExceededError, f"{text}; nothing was sent", drop_input=True)


def check_size(ledger: Ledger) -> Flow[None]:
    """Make sure, before the first paid call, that the new state will fit.

    An open turn may go on up to the hard limits.
    """
    room, state = ledger.room, ledger.state
    more = _facts_bytes(ledger)
    problem = room.soft_problem(state, more=more)
    if problem is None:
        return
    is_open = state.open is not None
    if is_open and (problem := room.problem(state, RESULTS, more=more)) is None:
        return

    def fits(cut: ConversationState) -> bool:
        found = room.problem(cut, RESULTS, more=more) if is_open else room.soft_problem(cut, more=more)
        return found is None

    if (yield from shrink.cut_to_limits(ledger, problem, fits, least=0)):
        return
    raise ledger.error(StateSizeError, f"{problem}; nothing was sent", drop_input=True) from problem


def check_queue(ledger: Ledger, before: ConversationState, messages: tuple[Message, ...]) -> Flow[None]:
    """Make sure that the messages behind a waiting turn leave room for its end.

    If they do not, the caller gets the new messages back, and earlier waiting messages stay.

    Args:
        ledger: The turn's books, with the queued state.
        before: The state without the new messages.
        messages: The new messages.
    """
    room, state = ledger.room, ledger.state
    problem = room.problem_alone(state, more=journal.unfinished(state) * CALL_BYTES)
    if problem is None:
        problem = room.soft_problem(state)
        if problem is None or (yield from shrink.cut_to_limits(ledger, problem, _within(ledger), least=0)):
            return
    # The caller gets the new messages back, so the error's state must not have them.
    ledger.begin(before, before, has_grown=False)
    error = ledger.error(StateSizeError, f"{problem}; the message was not queued, nothing was sent")
    error.pending_input = messages
    raise error from problem


def written(ledger: Ledger, status: str) -> Flow[bytes | StateTooLargeError]:
    """The state as a blob within the soft limits, after one cut if necessary. The newest turn stays.

    If a cut does not help either, the state has not changed, and the error is returned.
    """
    try:
        return ledger.encode(status)
    except StateTooLargeError as exc:
        problem = exc
    least = 0 if ledger.state.open is not None else 1
    if (yield from shrink.cut_to_limits(ledger, problem, _within(ledger), least=least)):
        return ledger.encode(status)
    return problem


def _within(ledger: Ledger) -> Callable[[ConversationState], bool]:
    return lambda state: ledger.room.soft_problem(state) is None


def _facts_bytes(ledger: Ledger) -> int:
    """The most bytes that the turn will record beside its messages."""
    options = ledger.options
    if not (options.metadata or options.settings):
        return 0
    stored = {name: value for name, value in options.settings.items() if name not in NOT_STORED}
    return 6 * sum(len(str(known)) for known in (options.metadata, stored) if known)
