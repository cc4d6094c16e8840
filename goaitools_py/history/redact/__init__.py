"""Taking a text out of a state: find it, replace it, and keep a history within the rules of its provider API.

Owns: the search and the replacement in every place of a state. Must never know: a running turn, or a store.

Begin with `redaction.py`, the order of the steps. `entry_texts.py` changes one entry, and `json_tree.py` has
the members of providers' JSON that may not change.
"""
