"""Convert states between provider APIs. Messages, calls and results go along, and each loss is named.

Owns: the way of a state from one provider API to another. Must never know: a backend or a turn.

Begin with `state.py`, which has `convert_state`. `entries.py` converts the entries and counts the losses.
"""
