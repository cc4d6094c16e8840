"""Asking the provider how many tokens the next request has, without sending it to a model.

Owns: the flow from a plan to the provider's number. Must never know: a wire's endpoint, or how tokens are
estimated.
"""

from __future__ import annotations

from ..backends.base import CountsTokens, ProtocolFault
from ..errors import ProviderProtocolError
from ..state.state import load_state, new_state
from . import inbox, journal
from .asking import fetch, request_parts
from .flow import Flow
from .ledger import Ledger, Plan
from .voice import voice_of

__all__ = ["count_flow"]


def count_flow(plan: Plan) -> Flow[int]:
    """Count the input tokens of the request that a turn of this plan would begin with.

    Raises:
        StateError: The blob cannot be read.
        TurnError: The provider did not answer; the state is what it was.
        ValueError: The wire has no endpoint that counts, or there is nothing to count.
    """
    dialect, options = plan.dialect, plan.options
    if not isinstance(dialect, CountsTokens):
        raise ValueError(
            f"the wire {dialect.wire!r} has no endpoint that counts tokens (Anthropic Messages and OpenAI "
            "Responses have one); inspect_state(state).tokens estimates, anchored at the last real usage"
        )
    plan.codec.check(options.binding)
    ledger = Ledger(plan)
    yield from ledger.tick()
    if options.timeout is not None:
        ledger.deadline = ledger.now.monotonic + options.timeout
    if plan.blob:
        state = load_state(plan.blob, wire=dialect.wire, codec=plan.codec, binding=options.binding)
        journal.check_journal(state, dialect)
    else:
        state = new_state(dialect.wire, id=plan.new_id(), created=ledger.now.wall_ms)
    voice = voice_of(plan, state.meta)[0]
    before = state if journal.ready(state) and not plan.messages else journal.close_turn(state, dialect)
    messages = list(plan.messages)
    if options.context is not None:
        before, messages = inbox.with_new_context(before, messages, options.context)
    asked = inbox.admit(before, messages, dialect)
    if not asked.inbox and asked.open is None:
        raise ValueError("a turn would send nothing new: pass user=… or messages=…, or append to the state")
    ledger.begin(state, asked, has_grown=False)
    body = yield from fetch(ledger, dialect.count_request(request_parts(ledger, voice)))
    try:
        return dialect.counted(body)
    except ProtocolFault as exc:
        raise ledger.error(
            ProviderProtocolError, "the provider answered 200 with something that is not a count"
        ) from exc
