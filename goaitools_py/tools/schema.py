"""Writes a function's parameters as JSON Schema, and reads the model's JSON as Python values.

Owns: all use of pydantic and docstring_parser. Must never know: contexts, results, how a tool runs.
It is imported when the first schema is needed, because pydantic and docstring_parser load slowly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

import docstring_parser
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from ..base.values import Value
from ..types.errors import ToolError
from .arguments import NOT_AN_OBJECT, TOO_DEEP, BadArguments, problems_of

__all__ = ["Arguments", "read_arguments"]

_MAPS_OF_SCHEMAS = ("properties", "$defs", "patternProperties")
_NOT_SCHEMAS = ("default", "const", "enum", "examples", "discriminator")


class Arguments(Value, frozen=True, kw_only=True):
    """The description of a function and its parameters for a model, and the way from its answer to arguments.

    Attributes:
        description: The docstring without its sections.
        schema: A JSON Schema object without titles; equal functions give equal bytes in every process.
    """

    description: str
    schema: Mapping[str, Any]
    _model: type[BaseModel]
    # Parameter name -> (the model's field, whether the function has a default of its own).
    _fields: Mapping[str, tuple[str, bool]]

    def validate(self, text: str) -> dict[str, Any]:
        """Turn JSON text into keyword arguments, without arguments that the function's defaults fill.

        Raises:
            BadArguments: The text does not fit. The error quotes the caller's validator only if it raised
                `ToolError` or `PydanticCustomError`.
        """
        try:
            values = self._model.model_validate_json(text)
        except ValidationError as error:
            raise _bad_arguments(text, error) from None
        except ToolError as error:
            raise BadArguments(str(error)) from error
        except Exception as error:
            # A validator may raise anything; that must not end the turn.
            raise BadArguments(f"{type(error).__name__} while checking the arguments.") from error
        return {
            name: getattr(values, key)
            for name, (key, has_default) in self._fields.items()
            if not has_default or key in values.model_fields_set
        }


def read_arguments(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], types: Mapping[str, Any]
) -> Arguments:
    """Derive schema and validator from annotations and docstring.

    Args:
        function: The function to call; its docstring describes the parameters.
        parameters: Those that the model fills in.
        types: The evaluated annotation of each, by name.

    Raises:
        TypeError: A parameter has a type that pydantic cannot describe; the text says which.
    """
    description, documented = _read_docstring(function)
    fields: dict[str, Any] = {}
    names: dict[str, tuple[str, bool]] = {}
    for parameter in parameters:
        # The model's own names are p0, p1, …: a parameter may be called `schema`, `copy` or `_x`,
        # which a pydantic model cannot.
        key = f"p{len(fields)}"
        hint = _described(types[parameter.name], documented.get(parameter.name))
        has_default = parameter.default is not parameter.empty
        if isinstance(parameter.default, FieldInfo):  # pydantic's other spelling: x: int = Field(3, ge=0)
            hint, has_default = Annotated[hint, parameter.default], False
        info = Field(parameter.default, alias=parameter.name) if has_default else Field(alias=parameter.name)
        fields[key] = (hint, info)
        names[parameter.name] = (key, has_default)
    try:
        config = ConfigDict(extra="forbid")
        model: type[BaseModel] = create_model(function.__name__, __config__=config, **fields)
        schema = _untitled(model.model_json_schema(schema_generator=_ParameterSchema))
    except Exception as error:
        raise _unusable(function, types) from error
    return Arguments(description=description, schema=schema, _model=model, _fields=names)


# ------------------------------------------------------------------------------------------- schemas


class _ParameterSchema(GenerateJsonSchema):
    # A default that JSON cannot express, such as a sentinel object, is left out without a warning.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base


def _untitled(schema: Any) -> Any:
    """The schema without titles. pydantic derives them from names, so they tell the model nothing new."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value
        if key in _NOT_SCHEMAS
        else {name: _untitled(item) for name, item in value.items()}
        if key in _MAPS_OF_SCHEMAS
        else _untitled(value)
        for key, value in schema.items()
        if key != "title"
    }


def _described(hint: Any, description: str | None) -> Any:
    if description is None:
        return hint
    if get_origin(hint) is not Annotated:
        return Annotated[hint, Field(description=description)]
    # First in the metadata, so that a description in the caller's own Field(…) wins.
    bare, *metadata = get_args(hint)
    return Annotated[bare, Field(description=description), *metadata]


def _read_docstring(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    text = inspect.getdoc(function) or ""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    documented = {
        name.strip(): parameter.description
        for parameter in parsed.params
        for name in parameter.arg_name.split(",")  # numpy style: "x, y : int"
        if parameter.description
    }
    return (parsed.description or "").strip(), documented


def _unusable(function: Callable[..., Any], types: Mapping[str, Any]) -> TypeError:
    for name, hint in types.items():
        try:
            TypeAdapter(hint).json_schema(schema_generator=_ParameterSchema)
        except Exception as error:
            advice = (
                "use plain types, dataclasses, TypedDicts or pydantic models, and hand over services as deps"
            )
            if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
                advice = "before Python 3.12 take TypedDict from typing_extensions instead of typing"
            return TypeError(
                f"parameter {name!r} of {function.__qualname__}() has the type {hint!r}, for which "
                f"there is no JSON Schema; {advice}"
            )
    return TypeError(f"the parameters of {function.__qualname__}() give no JSON Schema")


# -------------------------------------------------------------------------------------------- errors


def _bad_arguments(text: str, error: ValidationError) -> BadArguments:
    details = error.errors(include_url=False)
    first = details[0]
    if first["type"] == "json_invalid":
        if "recursion limit" in first["ctx"]["error"]:
            return BadArguments(TOO_DEEP)
        return BadArguments(f"The arguments are not valid JSON: {first['ctx']['error']}")
    if not first["loc"]:
        return BadArguments(
            NOT_AN_OBJECT if first["type"] == "model_type" else "The arguments are not valid."
        )
    return BadArguments.from_problems(problems_of(details, from_json(text)))
