"""The error for a missing package of an extra.

Owns: the text of this error. Must never know: which packages an extra has.
"""

from __future__ import annotations

__all__ = ["lacking"]


def lacking(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """The error to raise in place of Python's own, which names only the missing module.

    Args:
        error: The error of the import.
        what: The part of this package that needs the import.
        extra: The extra that installs it.
    """
    missing = (error.name or "").partition(".")[0]
    if missing in ("", __name__.partition(".")[0]):  # a mistake in this package, not a missing extra
        return error
    return ModuleNotFoundError(
        f"{what} needs the package {missing}: pip install 'goaitools-py[{extra}]'", name=error.name
    )
