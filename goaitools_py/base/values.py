"""The base class of this package's values: frozen, slotted, and with a repr that shows no content.

Owns: the base class. Must never know: any particular value.

It is a `msgspec.Struct` and not a dataclass, because defining one takes 0.04 ms instead of 1 ms. With a
hundred values that is most of the package's import time. Change a value with `replace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, dataclass_transform

from msgspec import NODEFAULT, Struct, StructMeta, field
from msgspec.structs import replace

__all__ = ["ByShape", "Given", "Value", "field", "replace"]


class Value(Struct, frozen=True):
    """A frozen value. Fields named in `_unshown` are left out of its repr: content, blobs, secrets."""

    _unshown: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self._unshown
        )
        return f"{type(self).__name__}({', '.join(shown)})"


if TYPE_CHECKING:
    from abc import ABCMeta as _ProtocolMeta
else:
    _ProtocolMeta = type(Protocol)


class ByShape(_ProtocolMeta):
    """The metaclass of protocols that users' objects are compared with.

    A wrapper that passes every other name on with ``__getattr__`` has the shape of the object in it. From
    Python 3.12 on ``isinstance`` with a protocol does not see such names, so a wrapped store would lose its
    leases. This compares as Python 3.11 does.
    """

    def __instancecheck__(cls, one: object) -> bool:  # noqa: N805 - a metaclass
        if not cls.__dict__.get("_is_protocol"):  # a class that inherits from a protocol
            return super().__instancecheck__(one)
        members = _members.get(cls)
        if members is None:
            members = _members[cls] = [(name, callable(getattr(cls, name, None))) for name in _names(cls)]
        for name, is_method in members:
            found = getattr(one, name, _ABSENT)
            if found is _ABSENT or (is_method and found is None):
                return False
        return True


_ABSENT: Final = object()
_members: Final[dict[type, list[tuple[str, bool]]]] = {}


def _names(shape: type) -> Iterable[str]:
    """The members of a protocol. Only Python 3.13 has a public function for them."""
    found = [
        name
        for one in shape.__mro__
        if vars(one).get("_is_protocol")
        for name in (*vars(one), *one.__annotations__)
    ]
    return {name for name in found if not name.startswith("_") or name == "__call__"}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _GivenMeta(StructMeta):
    """Names the class and its fields in the error of a wrong argument. msgspec names neither."""

    if not TYPE_CHECKING:  # a type checker knows the fields

        @property
        def __signature__(cls) -> Any:  # noqa: N805 - a metaclass
            """The signature for `help` and `inspect.signature`. msgspec's own property evaluates the
            annotations, and raises NameError for a name that only type checkers import."""
            return _signature(cls)

        def __call__(cls, *args: Any, **fields: Any) -> Any:  # noqa: N805 - a metaclass
            try:
                return super().__call__(*args, **fields)
            except TypeError:
                problem = _misfit(cls, args, fields)
                if problem is None:  # a check of the class refused a value
                    raise
            raise TypeError(problem)


class Given(Value, metaclass=_GivenMeta, frozen=True):
    """A value that programs make by hand. The error for a wrong argument names the fields."""

    _made_by: ClassVar[str] = ""
    """The call that makes it, if that is not a call of the class."""


def _misfit(cls: Any, args: tuple[Any, ...], fields: Mapping[str, Any]) -> str | None:
    """The error text for a call that does not fit the fields of a value; None if it fits."""
    made, names, positional = cls.__name__, cls.__struct_fields__, cls.__match_args__
    for name in fields:
        if name not in names:
            import difflib  # imported only for a mistake

            close = difflib.get_close_matches(name, names, n=1)
            advice = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names)}"
            return f"{made} has no {name!r}; {advice}"
    if len(args) > len(positional):
        most = f"at most {len(positional)} without a name" if positional else "each value by name"
        return f"{made} takes {most}: {_call(cls)}"
    if doubled := [name for name in positional[: len(args)] if name in fields]:
        return f"{made} was given {doubled[0]!r} twice"
    given = {*positional[: len(args)], *fields}
    if missing := [name for name in _required(cls) if name not in given]:
        return f"{made} needs {' and '.join(map(repr, missing))}: {_call(cls)}"
    return None


def _signature(cls: Any) -> Any:
    """The fields as parameters, with their annotations as text."""
    import inspect  # imported only on use

    annotations: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        annotations |= inspect.get_annotations(each)
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    defaults = (NODEFAULT,) * (len(fields) - len(defaults)) + defaults
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if name in cls.__match_args__
            else inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is NODEFAULT else default,
            annotation=annotations.get(name, inspect.Parameter.empty),
        )
        for name, default in zip(fields, defaults, strict=True)
    ]
    return inspect.Signature(parameters)


def _required(cls: Any) -> list[str]:
    return [name for name, each in _signature(cls).parameters.items() if each.default is each.empty]


def _call(cls: Any) -> str:
    """The text of a call: with its first four fields, or as `_made_by` says."""
    if cls._made_by:
        return str(cls._made_by)
    positional = {*cls.__match_args__} & {*_required(cls)}
    shown = [name if name in positional else f"{name}=…" for name in cls.__struct_fields__]
    return f"{cls.__name__}({', '.join(shown[:4])}{', …' if len(shown) > 4 else ''})"
