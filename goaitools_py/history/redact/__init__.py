"""Taking a text out of a state: find it, replace it, and keep a history within the rules of its provider API.

Owns: nothing; see its modules.
"""
