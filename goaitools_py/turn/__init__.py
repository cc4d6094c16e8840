"""One turn, written once for plain and for async code, without a socket or a clock.

Owns: the requests to the model and the tools, their order, and the books, which hold even if the turn fails.
Must never know: who carries its requests out (`edges`), or where states are kept (`stores`).

Begin with `engine.py`, the order of a turn's steps. `docs/architecture.md` shows a turn in twelve stops.
"""
