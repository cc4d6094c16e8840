"""Writes the keywords of a chat's methods out in their signatures, for `help()`, Jupyter and other tools.

Owns: the expansion of ``**fields: Unpack[ChatFields]`` into one keyword for each option. Must never know: a
turn, or the effect of an option.

Type checkers read ``Unpack`` themselves. `inspect.signature` does not: it would show ``**fields``. To make
all signatures takes milliseconds, so each is made when a tool asks for it: `inspect.signature` follows
``__wrapped__`` up to an object with a ``__signature__``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from inspect import Parameter, Signature

__all__ = ["keywords_written_out"]

C = TypeVar("C")

_HAS_KEYWORDS = 0x08  # inspect.CO_VARKEYWORDS; `inspect` is slow to import


def keywords_written_out(cls: type[C]) -> type[C]:
    """Give each method of a class that takes options by name a signature that names them all."""
    for base in cls.__mro__[:-1]:
        for method in vars(base).values():
            if isinstance(method, FunctionType) and method.__code__.co_flags & _HAS_KEYWORDS:
                inner = getattr(method, "__wrapped__", method)
                if not isinstance(inner, _Shown):  # else a subclass shares the method
                    method.__wrapped__ = _Shown(inner)  # type: ignore[attr-defined]
    return cls


class _Shown:
    """A method as tools see it. Its signature is made when one of them asks."""

    def __init__(self, method: FunctionType) -> None:
        # A copy, because a function that leads back to itself would be a loop for `inspect.unwrap`.
        copy = FunctionType(
            method.__code__, method.__globals__, method.__name__, method.__defaults__, method.__closure__
        )
        copy.__kwdefaults__, copy.__annotations__ = method.__kwdefaults__, method.__annotations__
        self.__wrapped__: Callable[..., Any] = copy

    @property
    def __signature__(self) -> Signature:
        import inspect

        shown = inspect.signature(self.__wrapped__)
        *own, last = shown.parameters.values()
        declared = str(last.annotation)
        if not declared.startswith("Unpack["):
            return shown
        names = {one.name for one in own}
        return shown.replace(parameters=[*own, *_parameters(declared[len("Unpack[") : -1], names)])


def _parameters(declared: str, taken: set[str]) -> list[Parameter]:
    """The keywords of a class of `fields`, in the order of `ChatOptions`."""
    from inspect import Parameter

    from ..types.options import UNSET, ChatOptions
    from . import fields

    table: dict[str, Any] = getattr(fields, declared).__annotations__
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=UNSET, annotation=_text(table[name]))
        for name in ChatOptions.__struct_fields__
        if name in table and name not in taken
    ]


def _text(annotation: Any) -> str:
    """An annotation as it stands in the file: a TypedDict holds it as a `ForwardRef`."""
    return getattr(annotation, "__forward_arg__", None) or str(annotation)
