"""The operations on a state outside a turn: read, write, append, cut, branch, join.

Owns: pure functions, a state in and a state or facts out. Must never know: a running turn, a socket, a store.

Begin with `turns.py` to read a state, `additions.py` to append, `branch.py` to fork, `rebase.py` to join.
`rewrite/` cuts and repairs a history, `redact/` removes a text, `translate/` changes the provider API.
"""
