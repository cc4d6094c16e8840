"""The version of this package.

Owns: `__version__`; ``pyproject.toml`` has the same value. Must never know: its users.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
