"""Values, JSON and processes, for all other rooms; and the version of the package, as in pyproject.toml."""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
