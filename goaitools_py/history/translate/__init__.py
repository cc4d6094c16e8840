"""States between provider APIs: what was said, called and found goes along, and each loss is named.

Owns: nothing; the rooms are `losses`, `entries`, `state` and `door`. Must never know: a backend or a turn.
"""
