"""Provisional. Columns for states in frameworks: one module for each.

Applications import them; nothing in this package does.
"""

__all__: list[str] = []
