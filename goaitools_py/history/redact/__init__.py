"""Taking a text out of a state: find it, replace it, and keep a history that the provider accepts.

Owns: nothing; see its modules.
"""
