"""The only places where a turn meets threads, clocks, event loops and the caller's functions.

Owns: carrying out what a turn asks for, once for plain code and once for async code. Must never know: why it
is asked.
"""
