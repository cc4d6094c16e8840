"""Reads a Python function as a tool: its parameters, their types, and whether it takes a context.

Owns: which functions can be tools. Must never know: pydantic, JSON, or how tools run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType, MethodType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .tool_context import ToolContext

if TYPE_CHECKING:
    from .schema import Arguments

__all__ = ["Signature", "local_names", "needs_deps", "takes_context"]

# Used when an annotation cannot be evaluated, as in `ctx: ToolContext[Game]` with `Game` imported under
# TYPE_CHECKING. Only the context can do without its type: every other parameter needs a schema.
_LOOKS_LIKE_CONTEXT = re.compile(r"(\w+\.)*ToolContext(\[.*\])?", re.DOTALL)
_MAY_BE_NONE = re.compile(r"\b(None|Any|object|Optional)\b")
_CONTEXTS = ("ctx", "context")
"""Names that a first parameter has which is meant as the context."""
_KEPT = "__goaitools_signature__"


@dataclass(frozen=True, eq=False)
class Signature:
    """The parameters of a tool function. Types are evaluated when they are needed, so a type may be defined
    after the function.

    `names` are the local names that the annotations use, in addition to the module's.
    """

    function: Callable[..., Any] = field(repr=False)
    parameters: tuple[inspect.Parameter, ...]
    names: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Signature:
        """Read a function or a bound method.

        Args:
            function: A function or bound method.
            names: Names that string annotations may use, in addition to the function's globals.

        Raises:
            TypeError: It is not a function, or has a parameter that a model cannot fill in.
        """
        if not (inspect.isfunction(function) or inspect.ismethod(function)):
            raise TypeError(
                f"a tool must be a Tool, a ProviderTool, a function or a bound method, not {_found(function)}"
            )
        parameters = tuple(inspect.signature(function).parameters.values())
        for parameter in parameters:
            _refuse_unfillable(function, parameter)
        mentioned = set(re.findall(r"\w+", " ".join(str(parameter.annotation) for parameter in parameters)))
        used = {name: value for name, value in (names or {}).items() if name in mentioned}
        return cls(function, parameters, used)

    @classmethod
    def of_method(cls, method: MethodType) -> Signature:
        """As `of`, for a bound method. The signature is read once and kept on the method's function.

        ``obj.method`` is a new object each time, and the kept signature must not keep `obj` alive.
        """
        function = method.__func__
        kept = getattr(function, _KEPT, None)
        # functools.wraps and others copy a function's __dict__, and with it another function's signature.
        if not isinstance(kept, cls) or kept.function is not function:
            kept = cls(function, cls.of(method).parameters, {})
            setattr(function, _KEPT, kept)
        return kept

    @cached_property
    def takes_context(self) -> bool:
        """True if the first parameter is annotated `ToolContext`."""
        return _is_context(self.function, self.parameters[:1], self.names)

    @cached_property
    def needs_deps(self) -> bool:
        """True if the first parameter is annotated `ToolContext[X]` and X is never None."""
        return self.takes_context and _needs_deps(self.function, self.parameters[0], self.names)

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The type of each parameter that the model fills in, by name, in order.

        Raises:
            TypeError: An annotation cannot be evaluated, or a `ToolContext` stands in the wrong place.
        """
        types = {}
        for parameter in self.parameters[self.takes_context :]:
            try:
                hint = _evaluate(self.function, parameter.annotation, self.names)
            except Exception as error:
                raise TypeError(
                    f"cannot evaluate the annotation {parameter.annotation!r} of parameter "
                    f"{parameter.name!r} of {self.function.__qualname__}(): {error}. Import or define the "
                    f"type at module level (not under TYPE_CHECKING), or decorate the function with @tool "
                    f"where the type is defined"
                ) from error
            if (get_origin(hint) or hint) is ToolContext:
                raise TypeError(
                    f"parameter {parameter.name!r} of {self.function.__qualname__}() is a ToolContext; "
                    f"it must be the first parameter, and not keyword-only"
                )
            types[parameter.name] = hint
        return types

    @cached_property
    def arguments(self) -> Arguments:
        """The parameters as JSON Schema and validator. Imports pydantic and docstring_parser."""
        from .schema import read_arguments

        parameters = self.parameters[self.takes_context :]
        return read_arguments(self.function, parameters, self.types)


def takes_context(function: Callable[..., Any]) -> bool:
    """True if the first parameter of any callable is annotated `ToolContext`."""
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    return _is_context(function, parameters[:1], {})


def needs_deps(function: Callable[..., Any]) -> bool:
    """True if the first parameter of any callable is annotated `ToolContext[X]` and X is never None."""
    if not takes_context(function):
        return False
    return _needs_deps(function, next(iter(inspect.signature(function).parameters.values())), {})


def local_names(frame: FrameType | None) -> Mapping[str, Any]:
    """The local names of the function or class body that `frame` runs; {} for a module's frame."""
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    return frame.f_locals


def _found(value: Any) -> str:
    """Name the value in a tool's place, and the remedy, for an error text."""
    found = type(value).__name__
    if isinstance(value, type):
        return f"the class {value.__name__}; give a function"
    if callable(value):
        return f"{found}; wrap it in a def"
    is_many = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    return f"{found}; give what is in it one by one: tools=[*…]" if is_many else found


def _refuse_unfillable(function: Callable[..., Any], parameter: inspect.Parameter) -> None:
    where = f"of {function.__qualname__}()"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(
            f"parameter {str(parameter).split(':')[0]!r} {where} takes any number of arguments; "
            f"a model needs them named one by one, or a Tool with a schema of your own"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(f"parameter {parameter.name!r} {where} is positional-only; remove the '/' after it")
    if parameter.annotation is parameter.empty:
        raise TypeError(
            f"parameter {parameter.name!r} {where} has no annotation; write its type, "
            f"as in '{parameter.name}: {'ToolContext' if parameter.name in _CONTEXTS else 'str'}' "
            "(a first parameter may be a ToolContext)"
        )


def _is_context(
    function: Callable[..., Any], first: tuple[inspect.Parameter, ...], names: Mapping[str, Any]
) -> bool:
    if not first or first[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        return False
    annotation = first[0].annotation
    try:
        hint = _evaluate(function, annotation, names)
    except Exception:
        return isinstance(annotation, str) and _LOOKS_LIKE_CONTEXT.fullmatch(annotation) is not None
    return (get_origin(hint) or hint) is ToolContext


def _needs_deps(function: Callable[..., Any], parameter: inspect.Parameter, names: Mapping[str, Any]) -> bool:
    try:
        hint = _evaluate(function, parameter.annotation, names)
    except Exception:
        # The annotation cannot be evaluated, so its text decides; see `_LOOKS_LIKE_CONTEXT`.
        _, _, words = str(parameter.annotation).partition("[")
        return bool(words) and not _MAY_BE_NONE.search(words)
    return all(map(_is_never_none, get_args(hint)[:1])) and bool(get_args(hint))


def _is_never_none(hint: Any) -> bool:
    """True for a type that does not allow None. A type variable may allow it."""
    hint = getattr(hint, "__value__", hint)  # the type behind a `type` statement
    if hint in (Any, object, None, type(None)) or isinstance(hint, (TypeVar, str, ForwardRef)):
        return False
    if get_origin(hint) is Annotated:
        return _is_never_none(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_never_none, get_args(hint)))
    return True


def _evaluate(function: Callable[..., Any], annotation: Any, names: Mapping[str, Any]) -> Any:
    def holder() -> None: ...

    # Each annotation by itself, because a return type that cannot be evaluated must not matter.
    holder.__annotations__ = {"it": annotation}
    module = getattr(inspect.unwrap(function), "__globals__", {})
    return get_type_hints(holder, module, dict(names), include_extras=True)["it"]
