"""The values that users hold: messages, options, results, errors, events, tokens, prices.

Owns: these values and their checks. Must never know: the code that makes them.

Begin with `messages.py`, `options.py` (the input of a turn) and `result.py` (its outcome).
"""
