"""Asks the provider how many tokens the next request has, without sending it to a model.

Owns: the flow from a plan to the provider's number. Must never know: a provider's endpoint, or how tokens are
estimated.
"""

from __future__ import annotations

from functools import partial

from ..backends.base import ProtocolFault
from ..backends.protocols import CountsTokens
from ..open_turn import inbox, journal, steps
from ..state.state import new_state
from ..types.errors import ProviderProtocolError
from .body import MAX_REPLY_BYTES
from .deadlines import CallTimes
from .flow import Flow
from .foreign import load_own
from .ledger import Ledger, Plan
from .model_failures import turn_error
from .request import request_parts, voice_of
from .retry import fetch, with_retries

__all__ = ["count_flow"]


def count_flow(plan: Plan) -> Flow[int]:
    """Count the input tokens of the request that a turn of this plan would begin with.

    Raises:
        StateError: The blob cannot be read.
        TurnError: The provider did not answer. The error's state is the given one.
        ValueError: The provider API has no endpoint that counts, or there is nothing to count.
    """
    dialect, options = plan.dialect, plan.options
    if not isinstance(dialect, CountsTokens):
        raise ValueError(
            f"the provider API {dialect.wire!r} has no endpoint that counts tokens (Anthropic Messages and "
            "OpenAI Responses have one); inspect_state(state).tokens is an estimate, based on the last usage "
            "that the provider told"
        )
    plan.codec.check(options.binding)
    ledger = Ledger(plan)
    yield from ledger.start_clock()
    if plan.blob:
        state, _ = load_own(plan)
        journal.check_journal(state, dialect)
    else:
        state = new_state(dialect.wire, id=plan.new_id(), created=ledger.now.wall_ms)
    voice = voice_of(plan, state.meta)[0]
    before = state if journal.ready(state) and not plan.messages else steps.close_turn(state, dialect)
    messages = list(plan.messages)
    if options.context is not None:
        before, messages = inbox.with_new_context(before, messages, options.context)
    asked = inbox.admit(before, messages, dialect)
    if not asked.inbox and asked.open is None:
        raise ValueError("a turn would send nothing new: pass user=… or messages=…, or append to the state")
    ledger.begin(state, asked, has_grown=False)
    request = dialect.count_request(request_parts(ledger, voice))

    def attempt() -> Flow[bytes]:
        yield from ledger.tick()
        ledger.check_deadline()
        # A count is not a model call, so only the turn's own time limit holds.
        times = CallTimes.begin(ledger.now.monotonic, turn=ledger.deadline, call=None, first=None)
        return (yield from fetch(ledger, request, times, max_bytes=MAX_REPLY_BYTES, dialect=dialect))

    body = yield from with_retries(ledger, attempt, error=partial(turn_error, ledger))
    try:
        return dialect.counted(body)
    except ProtocolFault as exc:
        raise ledger.error(
            ProviderProtocolError, "the provider answered 200 with something that is not a count"
        ) from exc
