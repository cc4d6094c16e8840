"""Provisional. Columns for states in frameworks: one module for each.

Owns: how a framework's column holds a state. Must never know: how a turn runs.

Applications import these modules; the package itself does not. Begin with `sqlalchemy.py` or `django.py`.
"""

__all__: list[str] = []
