"""A conversation as one value, and that value as bytes.

Owns: what a state is made of and how it is written. Must never know: how a turn runs, or a wire.
"""
