"""A conversation that is kept in a store: in which order it is loaded, run and saved.

Owns: those rules. Must never know: a certain store, or which colour the caller has.
"""
