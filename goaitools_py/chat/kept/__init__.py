"""A conversation that is kept in a store: the order of load, turn and save.

Owns: the rules of that order. Must never know: a certain store, or whether the caller is sync or async.

Begin with `turn.py`, the flow of one turn. `row.py` saves the state, also if the store gives no answer, and
`row_calls.py` limits the wait for each answer.
"""
