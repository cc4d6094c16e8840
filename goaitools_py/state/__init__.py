"""A conversation as one value, and that value as bytes.

Owns: the pieces of a state and how they are written. Must never know: how a turn runs, or a wire.
"""
