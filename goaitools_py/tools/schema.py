"""A function's parameters as JSON Schema, and the model's JSON as arguments of real Python types.

Owns: everything done with pydantic and docstrings. Must never know: contexts, results, running.
Imported on the first need of a schema, because pydantic and docstring_parser take a while to load.
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
from pydantic_core import ErrorDetails, from_json

from ..errors import ToolError
from ..values import Value
from .arguments import MISSING, NOT_AN_OBJECT, TOO_DEEP, UNKNOWN, BadArguments
from .signature import Signature

__all__ = ["Arguments", "read_arguments"]

_MAPS_OF_SCHEMAS = ("properties", "$defs", "patternProperties")
_NOT_SCHEMAS = ("default", "const", "enum", "examples", "discriminator")
_JSON_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Arguments(Value, frozen=True, kw_only=True):
    """What a model is told about a function and its parameters, and how its answer becomes arguments.

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
        """Turn JSON text into keyword arguments; those left to the function's defaults are left out.

        Raises:
            BadArguments: The text does not fit. A validator of the caller's is quoted only if it raised
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


def read_arguments(signature: Signature) -> Arguments:
    """Derive schema and validator from annotations and docstring.

    Raises:
        TypeError: A parameter has a type that pydantic cannot describe; the text says which.
    """
    description, documented = _read_docstring(signature.function)
    fields: dict[str, Any] = {}
    names: dict[str, tuple[str, bool]] = {}
    for parameter in signature.parameters[signature.takes_context :]:
        # The model's own names are p0, p1, …: a parameter may be called `schema`, `copy` or `_x`,
        # which a pydantic model cannot.
        key = f"p{len(fields)}"
        hint = _described(signature.types[parameter.name], documented.get(parameter.name))
        has_default = parameter.default is not parameter.empty
        if isinstance(parameter.default, FieldInfo):  # pydantic's other spelling: x: int = Field(3, ge=0)
            hint, has_default = Annotated[hint, parameter.default], False
        info = Field(parameter.default, alias=parameter.name) if has_default else Field(alias=parameter.name)
        fields[key] = (hint, info)
        names[parameter.name] = (key, has_default)
    try:
        config = ConfigDict(extra="forbid")
        model: type[BaseModel] = create_model(signature.function.__name__, __config__=config, **fields)
        schema = _untitled(model.model_json_schema(schema_generator=_Generator))
    except Exception as error:
        raise _unusable(signature) from error
    return Arguments(description=description, schema=schema, _model=model, _fields=names)


# ------------------------------------------------------------------------------------------- schemas


class _Generator(GenerateJsonSchema):
    # A default that JSON cannot express, such as a sentinel, is left out without a warning.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in the base


def _untitled(schema: Any) -> Any:
    """The schema without titles: pydantic derives them from names, so they tell the model nothing."""
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
    # First among the metadata, where a description given with Field(…) has the last word.
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


def _unusable(signature: Signature) -> TypeError:
    for name, hint in signature.types.items():
        try:
            TypeAdapter(hint).json_schema(schema_generator=_Generator)
        except Exception as error:
            advice = (
                "use plain types, dataclasses, TypedDicts or pydantic models, and hand over services as deps"
            )
            if isinstance(error, PydanticUserError) and error.code == "typed-dict-version":
                advice = "before Python 3.12 take TypedDict from typing_extensions instead of typing"
            return TypeError(
                f"parameter {name!r} of {signature.function.__qualname__}() has the type {hint!r}, for which "
                f"there is no JSON Schema; {advice}"
            )
    return TypeError(f"the parameters of {signature.function.__qualname__}() give no JSON Schema")


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
    values = from_json(text)
    problems: dict[str, list[str]] = {}
    for detail in details:
        found = problems.setdefault(_path(detail, values), [])
        if (problem := _problem(detail)) not in found:
            found.append(problem)
    # Two findings about one field are the branches of a union.
    return BadArguments.from_problems([(path, " or ".join(found)) for path, found in problems.items()])


def _path(detail: ErrorDetails, values: Any) -> str:
    """Where the fault is, as in ``teams[2].name``.

    pydantic's own location also names the branches of unions and the kinds of validators; what does not
    lead into the given values is one of these, unless it is the name of something missing.
    """
    path = ""
    location: Sequence[int | str] = detail["loc"]
    for index, step in enumerate(location):
        is_item = isinstance(values, list) and isinstance(step, int) and step < len(values)
        if is_item or (isinstance(values, dict) and step in values):
            values = values[step]
        elif detail["type"] != "missing" or index < len(location) - 1:
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _problem(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return MISSING
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of models; of dataclasses
        return UNKNOWN
    if kind == "union_tag_invalid":  # pydantic's text quotes the value
        return f"its {context['discriminator']} should be one of {context['expected_tags']}"
    if isinstance(context.get("error"), Exception):  # a validator of the caller's: its text may hold anything
        return "is not valid"
    problem = detail["msg"][:1].lower() + detail["msg"][1:]
    problem = problem.removeprefix("input ")
    if kind.endswith("_type") and (found := _JSON_TYPES.get(type(detail["input"]))):
        problem += f", got {found}"
    return problem
