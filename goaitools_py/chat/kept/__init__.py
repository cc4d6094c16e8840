"""A conversation that is kept in a store: the order of load, turn and save.

Owns: the rules of that order. Must never know: a certain store, or whether the caller is sync or async.
"""
