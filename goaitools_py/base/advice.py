"""Makes the errors of a programmer's mistakes say how to do it right.

Owns: the names that Python's own errors show, the advice if a class is made with wrong arguments, and the
error for a missing package of an extra. Must never know: the purpose of a class, or which packages an extra
has.

Python names the class that defines a method: the error of a wrong call of `Chat` would name an internal
class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FunctionType
from typing import Any, TypeVar, cast

__all__ = ["advised", "missing_extra_error", "own_names"]

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., None])

_PACKAGE = __name__.partition(".")[0]


def own_names(cls: type[C]) -> type[C]:
    """Give a class copies of the public methods that it inherits within this package, under its own name."""
    for base in cls.__mro__[1:]:
        if base.__module__.partition(".")[0] != _PACKAGE:
            continue
        for name, method in vars(base).items():
            if isinstance(method, FunctionType) and name[0] != "_" and getattr(cls, name) is method:
                setattr(cls, name, _renamed(method, f"{cls.__name__}.{name}"))
    return cls


def _renamed(method: FunctionType, name: str) -> FunctionType:
    inner = getattr(method, "__wrapped__", None)
    if isinstance(inner, FunctionType) and method.__module__ == inner.__module__:
        # A context manager calls the generator function inside of it, and Python's errors name that one.
        if inspect.isgeneratorfunction(inner):
            return cast("FunctionType", contextmanager(_renamed(inner, name)))
        if inspect.isasyncgenfunction(inner):
            return cast("FunctionType", asynccontextmanager(_renamed(inner, name)))
    copy = FunctionType(
        method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
    )
    copy.__kwdefaults__ = method.__kwdefaults__
    functools.update_wrapper(copy, method)
    del copy.__wrapped__  # type: ignore[attr-defined]  # the copy does not call the original
    copy.__qualname__ = name
    return copy


def advised(advice: str) -> Callable[[F], F]:
    """Raise a `TypeError` with an advice for arguments that do not fit an ``__init__``.

    `advice`: the text of the error; ``{0}`` is the class.
    """

    def wrap(init: F) -> F:
        @functools.wraps(init)
        def made(self: object, *args: Any, **fields: Any) -> None:
            try:
                return init(self, *args, **fields)
            except TypeError:
                if _fits(init, (self, *args), fields):
                    raise
            raise TypeError(advice.format(type(self).__name__))

        return cast("F", made)

    return wrap


def _fits(init: Callable[..., None], args: tuple[Any, ...], fields: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(init).bind(*args, **fields)
    except TypeError:
        return False
    return True


def missing_extra_error(error: ModuleNotFoundError, what: str, extra: str) -> ModuleNotFoundError:
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
