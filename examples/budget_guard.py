"""A budget: limits in tokens and dollars, and what to do at a limit.

Before the model's context window is full, a `ContextWarning` comes: then the history is summarised. A spent
limit raises an error before anything is called, and the error has the message.
Install: pip install goaitools-py
"""

import os
from decimal import Decimal

from goaitools_py import BudgetExceededError, Chat, Compactor, Limits, Summarize, TokenLimit
from goaitools_py.backends import OpenAIChatBackend
from goaitools_py.prices import Charge
from goaitools_py.sim import SimServer

WIRE, _, MODEL = os.environ.get("GOAITOOLS_MODEL", "sim").partition(":")
WINDOW = 1_200  # tokens, as if the model had so few; a known model's real window is known


def prices(charge: Charge) -> Decimal | None:
    """Our own price list: what a call costs in US dollars. None: unknown, and nothing is called."""
    if charge.model not in ("sim-game-master", MODEL):
        return None
    return Decimal(2 * charge.usage.input_tokens + 10 * charge.usage.output_tokens) / 1_000_000


def talk(chat: Chat) -> None:
    """Go on until the money is spent, then with more of it."""
    state, budget = b"", Limits(max_tokens=20_000, conversation_max_cost_usd=Decimal("0.04"))
    for number in range(1, 100):
        text = f"I open door {number}, and behind it there is another long corridor with many doors."
        try:
            result = chat.chat_with_state(state, user=text, limits=budget)
        except BudgetExceededError as error:
            print(f"{number}: the money is spent; {len(error.pending_input)} message is kept")
            more = Limits(conversation_max_cost_usd=1)
            result = chat.chat_with_state(error.state, messages=error.pending_input, limits=more)
            print(f"{number}: with more of it, {result.status}")
            return
        state = result.state
        if any(warning.code == "context_mark" for warning in result.warnings):
            report = chat.compact_state(state, Compactor(TokenLimit(WINDOW), Summarize(keep_turns=2)))
            print(f"{number}: {result.context_fraction:.0%} full, ${result.total_cost_usd}; {report.outcome}")
            state = report.state


def main() -> None:
    """Talk on a small budget."""
    with SimServer() as sim:
        url, model = (sim.base_url, "sim-game-master") if WIRE == "sim" else (None, MODEL)
        if url:
            print("(simulated: no language model is asked)")
        key = "sim" if url else None
        backend = OpenAIChatBackend(model, base_url=url, api_key=key, context_window=WINDOW)
        with Chat(backend, system="You are a guide.", prices=prices) as chat:
            talk(chat)


if __name__ == "__main__":
    main()
