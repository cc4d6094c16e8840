"""Rewrites of a stored history: cuts and repairs, and the values that depend on them.

Owns: pure steps, a state in and a state out. Must never know: a running turn, an effect, a chat.

Begin with `cut.py` for compaction, `repair.py` for a history that a provider refuses; `mend/` is its inside.
"""
