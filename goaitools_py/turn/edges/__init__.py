"""The only places where a turn meets threads, clocks, event loops and the caller's functions.

Owns: carrying out a turn's effects, once for plain code and once for async code. Must never know: the reason
of an effect.

Begin with `sync_edge.py`, or `async_edge.py` with `wait.py` for its time limits. The drivers are the loops.
"""
