"""What to say if a package of an extra is not installed.

Owns: the text of that error. Must never know: which packages an extra has.
"""

from __future__ import annotations

__all__ = ["lacking"]


def lacking(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
    """The error to raise in the place of one of Python's, which names the missing module alone.

    Args:
        error: What the import raised.
        what: What needs the package.
        extra: The extra that installs it.
    """
    missing = (error.name or "").partition(".")[0]
    if missing in ("", __name__.partition(".")[0]):  # a mistake in this package, and no missing extra
        return error
    return ModuleNotFoundError(
        f"{what} needs the package {missing}: pip install 'goaitools-py[{extra}]'", name=error.name
    )
