"""Convert states between provider APIs. Messages, calls and results go along, and each loss is named.

Owns: nothing; the rooms are `losses`, `entries`, `state` and `door`. Must never know: a backend or a turn.
"""
