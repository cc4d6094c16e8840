"""The version of this package.

Owns: `__version__`; ``pyproject.toml`` has the same. Must never know: what uses it.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
