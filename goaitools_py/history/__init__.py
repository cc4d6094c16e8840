"""The operations on a state outside a turn: read, write, append, cut, branch, join.

Owns: the pure functions of the package. Must never know: the engine of a turn's facade, a socket or a store.
"""
