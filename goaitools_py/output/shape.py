"""A type as a JSON Schema, and a model's text as a value of the type.

Owns: all use of pydantic for answers. Must never know: a turn, a provider API. It is imported when the first
type is used, because pydantic loads slowly.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from ..backends.wire.strict_schema import referred
from ..base.values import Value
from ..tools.arguments import problems_of
from ..types.render import valid_text
from .misfit import Misfit

__all__ = ["AnswerShape", "shape_of"]

WRAPPED: Final = "value"
"""The only property of the object around a type that is no object itself. OpenAI takes objects only."""

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]+")
_FENCED: Final = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)
_MAX_NAME: Final = 64


class AnswerShape(Value, frozen=True, kw_only=True):
    """A type, ready to be asked for.

    Attributes:
        name: The type's name, with the characters that a provider takes.
        schema: Its JSON Schema, of an object.
        is_wrapped: True if the object is not the type's own: its property `WRAPPED` has the value. A model
            that writes the value alone is understood, too.
        adapter: Reads the object.
        bare: Reads the value alone.
    """

    _unshown = frozenset({"schema"})

    name: str
    schema: Mapping[str, Any]
    is_wrapped: bool
    adapter: TypeAdapter[Any]
    bare: TypeAdapter[Any]

    def read(self, text: str) -> Any:
        """The value in a model's text: the JSON alone, in a code fence, or between other words.

        Raises:
            Misfit: The text holds no JSON, or JSON that does not fit the type.
        """
        first: Misfit | None = None
        if valid_text(text) is not text:  # JSON of a provider may hold it, and UTF-8 may not
            raise Misfit([("", "has half of a character (a lone surrogate)")])
        for found in _candidates(text):
            try:
                return self._value(found)
            except _NoJSON as exc:
                first = first or Misfit([("", f"is not valid JSON: {exc}")])
        assert first is not None
        raise first

    def _value(self, text: str) -> Any:
        try:
            value = self.adapter.validate_json(text)
        except ValidationError as error:
            details = error.errors(include_url=False)
            if details[0]["type"] == "json_invalid" and not details[0]["loc"]:
                raise _NoJSON(_words_of(details[0]["ctx"]["error"])) from None
            given = from_json(text)
            if self.is_wrapped and not (isinstance(given, dict) and given.keys() == {WRAPPED}):
                with contextlib.suppress(Exception):  # the model was asked for the wrapped form
                    return self.bare.validate_json(text)
            found = problems_of(details, given)
        except Exception as error:  # a validator may raise anything; its text may hold content
            found = [("", f"was refused by a check ({type(error).__name__})")]
        else:
            return getattr(value, WRAPPED) if self.is_wrapped else value
        raise Misfit(found)

    def partial(self, text: str) -> Any:
        """Give the JSON values in the beginning of an answer, as far as they have come; None without one."""
        start = re.search(r"[\[{]", text)
        if start is None:
            return None
        try:
            found = from_json(text[start.start() :].encode(), allow_partial="trailing-strings")
        except ValueError:  # UnicodeEncodeError is one
            return None
        if not self.is_wrapped:
            return found
        return found.get(WRAPPED) if isinstance(found, dict) else None


class _NoJSON(Exception):  # noqa: N818 - goes no further than this file
    """A text is not JSON."""


def _words_of(error: str) -> str:
    return "it nests too deep" if "recursion limit" in error else error


def _candidates(text: str) -> list[str]:
    """Where in a text the JSON may be: all of it, a fenced part, or all between the outer brackets."""
    found = [text]
    if (fenced := _FENCED.search(text)) is not None:
        found.append(fenced[1])
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    end = max(text.rfind("}"), text.rfind("]"))
    if starts and end > min(starts):
        found.append(text[min(starts) : end + 1])
    return found


# ------------------------------------------------------------------------------------------- types


def shape_of(of: Any, name: str = "") -> AnswerShape:
    """The shape of a type. It is made once for each type.

    Raises:
        TypeError: pydantic cannot describe the type as JSON Schema.
    """
    try:
        hash(of)
    except TypeError:  # such as Annotated with a list in it
        return _made(of, name)
    # Unions with their members in another order are equal, and their schemas are not. So the text is in the
    # key.
    return _kept(of, repr(of), name)


@lru_cache(maxsize=256)
def _kept(of: Any, written: str, name: str) -> AnswerShape:
    return _made(of, name)


def _made(of: Any, name: str) -> AnswerShape:
    name = name or _name_of(of)
    if inspect.isroutine(of) or isinstance(of, partial):
        raise TypeError(f"output_type is {_called(of)}, a function; it takes a type, and validate= a check")
    try:
        bare: TypeAdapter[Any] = TypeAdapter(of)
        adapter = bare
        schema = adapter.json_schema(schema_generator=_AnswerSchema)
        is_wrapped = not _is_object(schema)
        if is_wrapped:
            fields: dict[str, Any] = {WRAPPED: (of, ...)}
            adapter = TypeAdapter(create_model(name, **fields))
            schema = adapter.json_schema(schema_generator=_AnswerSchema)
    except Exception as error:
        raise _unusable(of, error) from error
    return AnswerShape(name=name, schema=schema, is_wrapped=is_wrapped, adapter=adapter, bare=bare)


def _called(of: Any) -> str:
    return getattr(of, "__name__", type(of).__name__)


def _name_of(of: Any) -> str:
    found = of.__name__ if isinstance(of, type) and not hasattr(of, "__origin__") else ""
    return _NOT_IN_NAMES.sub("_", found).strip("_")[:_MAX_NAME] or "Answer"


def _is_object(schema: Mapping[str, Any]) -> bool:
    found: Any = schema
    seen = 0
    while isinstance(found, Mapping) and "$ref" in found and seen < len(schema.get("$defs", ())) + 1:
        found, seen = referred(schema, found["$ref"]), seen + 1
    return isinstance(found, Mapping) and found.get("type") == "object"


class _AnswerSchema(GenerateJsonSchema):
    # A default that JSON cannot express, such as a sentinel object, is left out without a warning.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base


def _unusable(of: Any, error: Exception) -> TypeError:
    advice = "use a pydantic model, dataclass, TypedDict, list[…], Literal, or a union of these"
    if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
        advice = "before Python 3.12 take TypedDict from typing_extensions instead of typing"
    return TypeError(f"output_type is {of!r}, for which there is no JSON Schema; {advice}")
