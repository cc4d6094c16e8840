"""Values, JSON, processes and time limits, for all other rooms; and the version, as in pyproject.toml.

Owns: tools that every room may use. Must never know: a message.

Begin with `values.py`, the base class of frozen values, and `rawjson.py`, which cuts pieces out of JSON.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
