"""Facts about `goaitools_py.tools.schema`: from a function to a schema, from an answer to values."""

import dataclasses
import datetime
import decimal
import enum
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import typing
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Annotated, Any, Literal, Optional

import pytest
from jsonschema_rs import validator_for
from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from goaitools_py.tools import BadArguments, Tool, ToolContext, as_tools, tool
from goaitools_py.types.errors import ToolError
from goaitools_py.types.request_parts import ToolSpec


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


class Team(enum.Enum):
    BLUE = "blue"
    RED = "red"


class Place(BaseModel):
    """Somewhere on the map."""

    name: str
    floor: int = 0


@dataclasses.dataclass
class Move:
    to: Place
    steps: int


class Clue(TypedDict):
    title: str
    solved: bool


@tool
def get_score(ctx: ToolContext[Game], team: str) -> int:
    """Current score of one team.

    Args:
        team: Team name as the player typed it.
    """
    ctx.log_action(f"Read score of {team}", team=team)
    return ctx.deps.scores[team]


@pytest.fixture
def ctx() -> ToolContext[Game]:
    return ToolContext(deps=Game(), call_id="call_1", turn_id="turn_1", iteration=2, idempotency_key="key_1")


def parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    return Tool.from_function(function).spec().parameters


def problem(a_tool: Tool, arguments: str) -> str:
    with pytest.raises(BadArguments) as caught:
        a_tool.bind(arguments)
    return str(caught.value)


def module(source: str) -> ModuleType:
    """A module made of source text, so that one text can be tried with and without postponed annotations."""
    made = ModuleType("made_for_a_test")
    exec(compile(textwrap.dedent(source), "made_for_a_test", "exec", dont_inherit=True), made.__dict__)
    return made


def test_the_example_of_the_docs_gives_this_spec() -> None:
    """The context is not part of the schema, the docstring is split, and the return type is ignored."""
    assert get_score.spec(None) == ToolSpec(
        name="get_score",
        description="Current score of one team.",
        parameters={
            "type": "object",
            "properties": {
                "team": {"type": "string", "description": "Team name as the player typed it."},
            },
            "required": ["team"],
            "additionalProperties": False,
        },
    )


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    """No parameters is an object schema too."""

    def ping() -> str:
        return "pong"

    assert parameters(ping) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_plain_types_defaults_and_optionals() -> None:
    """What has a default is not required; None is a type of its own."""

    def book(
        seats: int,
        price: float,
        vip: bool = False,
        note: str | None = None,
        code: Optional[int] = None,  # noqa: UP045 - the older spelling is still common
        anything: Any = 1,
    ) -> None: ...

    assert parameters(book) == {
        "type": "object",
        "properties": {
            "seats": {"type": "integer"},
            "price": {"type": "number"},
            "vip": {"type": "boolean", "default": False},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "code": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "anything": {"default": 1},
        },
        "required": ["seats", "price"],
        "additionalProperties": False,
    }


def test_fields_literals_enums_and_collections() -> None:
    """`Field` limits and descriptions are kept, for a parameter and inside a list."""

    def place_bet(
        amount: Annotated[int, Field(ge=1, le=100, description="In points.")],
        team: Team,
        kind: Literal["win", "draw"] = "win",
        odds: Annotated[list[Annotated[float, Field(gt=1)]], Field(max_length=3)] = [],  # noqa: B006
        tags: Mapping[str, int] | None = None,
        when: datetime.date = datetime.date(2026, 1, 2),
    ) -> None: ...

    assert parameters(place_bet) == {
        "type": "object",
        "$defs": {"Team": {"type": "string", "enum": ["blue", "red"]}},
        "properties": {
            "amount": {"type": "integer", "minimum": 1, "maximum": 100, "description": "In points."},
            "team": {"$ref": "#/$defs/Team"},
            "kind": {"type": "string", "enum": ["win", "draw"], "default": "win"},
            "odds": {
                "type": "array",
                "items": {"type": "number", "exclusiveMinimum": 1},
                "maxItems": 3,
                "default": [],
            },
            "tags": {
                "anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}],
                "default": None,
            },
            "when": {"type": "string", "format": "date", "default": "2026-01-02"},
        },
        "required": ["amount", "team"],
        "additionalProperties": False,
    }


def test_models_dataclasses_and_typed_dicts_nest() -> None:
    """Titles go, but a property that is called "title" stays."""

    def play(move: Move, clues: list[Clue], start: Place = Place(name="Gate")) -> None: ...  # noqa: B008

    assert parameters(play) == {
        "type": "object",
        "$defs": {
            "Place": {
                "type": "object",
                "description": "Somewhere on the map.",
                "properties": {"name": {"type": "string"}, "floor": {"type": "integer", "default": 0}},
                "required": ["name"],
            },
            "Move": {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/Place"}, "steps": {"type": "integer"}},
                "required": ["to", "steps"],
                "additionalProperties": False,
            },
            "Clue": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "solved": {"type": "boolean"}},
                "required": ["title", "solved"],
                "additionalProperties": False,
            },
        },
        "properties": {
            "move": {"$ref": "#/$defs/Move"},
            "clues": {"type": "array", "items": {"$ref": "#/$defs/Clue"}},
            "start": {"$ref": "#/$defs/Place", "default": {"name": "Gate", "floor": 0}},
        },
        "required": ["move", "clues"],
        "additionalProperties": False,
    }


def test_a_typed_dict_of_typing_is_told_where_to_come_from() -> None:
    """Pydantic reads it from Python 3.12 on. Before, the text does not advise what was tried."""

    class Clue(typing.TypedDict):
        title: str

    def look(clues: list[Clue]) -> None: ...

    if sys.version_info >= (3, 12):
        assert list(parameters(look)["properties"]) == ["clues"]
        return
    with pytest.raises(TypeError, match=r"'clues' of .*take TypedDict from typing_extensions"):
        parameters(look)


def test_a_title_that_is_data_stays() -> None:
    """Only the keyword goes: defaults and enums may hold what looks like one."""

    def note(entry: dict[str, str] = {"title": "x"}, title: Literal["title"] = "title") -> None: ...  # noqa: B006

    properties = parameters(note)["properties"]

    assert properties["entry"]["default"] == {"title": "x"}
    assert properties["title"] == {"type": "string", "const": "title", "default": "title"}


@pytest.mark.parametrize(
    "name", ["schema", "copy", "json", "model_config", "_hidden", "__odd", "p0", "self", "cls"]
)
def test_any_python_name_can_be_a_parameter(name: str) -> None:
    """Names that a pydantic model reserves are no one's problem."""
    function = vars(module(f"def f(p1: int, {name}: str) -> str:\n    return {name}"))["f"]
    a_tool = Tool.from_function(function)

    arguments = a_tool.bind(json.dumps({"p1": 1, name: "x"}))

    assert list(a_tool.spec().parameters["properties"]) == ["p1", name]
    assert function(**arguments) == "x"


def test_a_default_that_json_cannot_express_is_left_out() -> None:
    """A sentinel default makes a parameter optional; nothing warns."""
    missing = object()

    def f(x: int = missing) -> bool:  # type: ignore[assignment]
        return x is missing

    a_tool = Tool.from_function(f)

    assert a_tool.spec().parameters["properties"] == {"x": {"type": "integer"}}
    assert a_tool.run(**a_tool.bind("{}")) is True


def test_a_field_as_default_works_like_in_pydantic() -> None:
    """``x: int = Field(3, ge=1)`` describes the parameter, and the tool gets 3, not the Field."""

    def f(x: int = Field(3, ge=1), y: str = Field(description="Why.")) -> tuple[int, str]:
        return x, y

    a_tool = Tool.from_function(f)

    assert a_tool.spec().parameters["required"] == ["y"]
    assert a_tool.spec().parameters["properties"] == {
        "x": {"type": "integer", "minimum": 1, "default": 3},
        "y": {"type": "string", "description": "Why."},
    }
    assert a_tool.run(**a_tool.bind('{"y": "so"}')) == (3, "so")


GOOGLE = """Sum of two.

    The longer story,
    on two lines.

    Args:
        a: First
            of them.
        b (int): Second.

    Returns:
        The sum.
    """


NUMPY = """Sum of two.

    The longer story,
    on two lines.

    Parameters
    ----------
    a : int
        First
        of them.
    b : int
        Second.

    Returns
    -------
    int
        The sum.
    """


REST = """Sum of two.

    The longer story,
    on two lines.

    :param a: First
        of them.
    :param int b: Second.
    :returns: The sum.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings_of_three_styles_say_the_same(docstring: str) -> None:
    """The text before the sections is the description; sections describe the parameters."""

    def add(a: int, b: int) -> int:
        return a + b

    add.__doc__ = docstring
    spec = Tool.from_function(add).spec()

    assert spec.description == "Sum of two.\n\nThe longer story,\non two lines."
    assert spec.parameters["properties"] == {
        "a": {"type": "integer", "description": "First\nof them."},
        "b": {"type": "integer", "description": "Second."},
    }


def test_one_numpy_line_may_describe_two_parameters() -> None:
    """``x, y : int`` describes both."""

    def plot(x: int, y: int) -> None:
        """Plot.

        Parameters
        ----------
        x, y : int
            In metres.
        """

    assert [value["description"] for value in parameters(plot)["properties"].values()] == ["In metres."] * 2


def test_a_description_in_a_field_wins_over_the_docstring() -> None:
    """What stands next to the type is the newer word."""

    def f(a: Annotated[int, Field(description="From the field.")], b: Annotated[int, Field(ge=0)]) -> None:
        """F.

        Args:
            a: From the docstring.
            b: From the docstring.
        """

    assert parameters(f)["properties"] == {
        "a": {"type": "integer", "description": "From the field."},
        "b": {"type": "integer", "minimum": 0, "description": "From the docstring."},
    }


@pytest.mark.parametrize("docstring", [None, "", "   "])
def test_no_docstring_is_an_empty_description(docstring: str | None) -> None:
    """Nothing is invented."""

    def f(a: int) -> None: ...

    f.__doc__ = docstring

    assert Tool.from_function(f).spec().description == ""


def test_schemas_are_valid_json_schema_and_accept_what_the_tool_accepts() -> None:
    """An independent validator agrees with the derived schema."""

    def play(move: Move, clues: list[Clue], team: Team = Team.RED, note: str | None = None) -> None: ...

    a_tool = Tool.from_function(play)
    check = validator_for(dict(a_tool.spec().parameters))
    good = {
        "move": {"to": {"name": "Gate"}, "steps": 2},
        "clues": [{"title": "x", "solved": True}],
        "team": "blue",
    }
    bad = good | {"team": "green"}

    assert check.is_valid(good)
    assert not check.is_valid(bad)
    assert a_tool.bind(json.dumps(good))["team"] is Team.BLUE
    assert problem(a_tool, json.dumps(bad))


def test_schema_bytes_are_equal_in_every_process() -> None:
    """Hash randomisation must not reach the request: a prompt cache lives on equal bytes."""
    source = (
        "import json\n"
        "from goaitools_py.tools import tool\n"
        "@tool\n"
        "def f(tags: set[str] = set('abcdef'), x: frozenset[str] = frozenset('xyz')) -> None: ...\n"
        "print(json.dumps(f.spec().parameters))\n"
    )
    outputs = {_run_python(source, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")}

    assert len(outputs) == 1


def test_arguments_become_values_of_the_annotated_types() -> None:
    """The tool gets a date, an Enum, a model, not strings and dicts."""

    def f(
        day: datetime.date, team: Team, move: Move, clue: Clue, seen: set[int], cost: decimal.Decimal
    ) -> None: ...

    bound = Tool.from_function(f).bind(
        '{"day": "2026-03-01", "team": "red", "move": {"to": {"name": "Gate"}, "steps": 2},'
        ' "clue": {"title": "t", "solved": false}, "seen": [1, 1, 2], "cost": 1.10}'
    )

    assert bound == {
        "day": datetime.date(2026, 3, 1),
        "team": Team.RED,
        "move": Move(to=Place(name="Gate"), steps=2),
        "clue": {"title": "t", "solved": False},
        "seen": {1, 2},
        "cost": decimal.Decimal("1.10"),
    }


def test_arguments_left_out_are_left_to_the_function() -> None:
    """The function's own default applies, as the very same object."""
    shared: list[int] = []

    def f(a: int, b: list[int] = shared, c: str | None = "x") -> bool:
        return b is shared

    bound = Tool.from_function(f).bind('{"a": 1, "c": null}')

    assert bound == {"a": 1, "c": None}
    assert f(**bound)


def f_for_problems(
    name: str,
    age: int,
    team: Team = Team.RED,
    when: datetime.date | None = None,
    stops: list[Place] = [],  # noqa: B006
    pair: tuple[int, str] = (1, ""),
    choice: int | list[str] = 1,
    many: list[int] | set[int] = [],  # noqa: B006
    move: Move | None = None,
    size: Annotated[int, Field(ge=1, le=3)] = 1,
) -> None: ...


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"name": None}, ["name: should be a valid string, got null"]),
        ({"age": "SECRET"}, ["age: should be a valid integer, unable to parse string as an integer"]),
        ({"age": [1]}, ["age: should be a valid integer, got array"]),
        ({"team": "SECRET"}, ["team: should be 'blue' or 'red'"]),
        ({"when": "SECRET-SECRET"}, ["when: should be a valid date or datetime, invalid character in year"]),
        ({"stops": [{"name": "a"}, {"floor": 1}]}, ["stops[1].name: is required"]),
        (
            {"stops": [{"name": "a", "floor": "SECRET"}]},
            ["stops[0].floor: should be a valid integer, unable to"],
        ),
        ({"stops": [3]}, ["stops[0]: should be an object, got number"]),
        ({"stops": {"SECRET": 1}}, ["stops: should be a valid array, got object"]),
        ({"pair": [1]}, ["pair[1]: is required"]),
        (
            {"choice": {}},
            ["choice: should be a valid integer, got object or should be a valid array, got"],
        ),
        ({"many": "SECRET"}, ["many: should be a valid array, got string"]),
        ({"move": {"to": {"name": "x"}, "steps": 1, "fast": True}}, ["move.fast: is not expected"]),
        ({"size": 7}, ["size: should be less than or equal to 3"]),
        ({"extra": "SECRET", "more": 1}, ["extra: is not expected", "more: is not expected"]),
    ],
)
def test_what_is_wrong_is_said_per_field(fields: dict[str, Any], lines: list[str]) -> None:
    """Field and expectation, one line each; no value, no Python class, no link."""
    arguments = {"name": "n", "age": 1} | fields

    told = problem(Tool.from_function(f_for_problems), json.dumps(arguments)).split("\n")

    assert told[0] == "Invalid arguments:"
    assert len(told) == 1 + len(lines)
    for got, expected in zip(told[1:], lines, strict=True):
        assert got.startswith(f"- {expected}")
        assert got.count(expected) == 1
        assert not re.search(r"SECRET(?!:)|http|pydantic|class|Place|Move|dict", got)


def test_missing_arguments_are_all_named() -> None:
    """So that one more try is enough."""
    assert problem(Tool.from_function(f_for_problems), "") == (
        "Invalid arguments:\n- name: is required\n- age: is required"
    )


def test_a_tagged_union_names_its_tags() -> None:
    """The tag that was found is a value and stays out."""

    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]

    @tool
    def adopt(pet: Annotated[Cat | Dog, Field(discriminator="kind")]) -> None: ...

    assert problem(adopt, '{"pet": {"kind": "SECRET"}}') == (
        "Invalid arguments:\n- pet: its 'kind' should be one of 'cat', 'dog'"
    )
    assert problem(adopt, '{"pet": {"kind": "cat"}}') == "Invalid arguments:\n- pet.lives: is required"


def checked_by(check: Callable[[str], str]) -> Tool:
    def f(x: Annotated[str, AfterValidator(check)]) -> str:
        return x

    return Tool.from_function(f)


def raising(error: Exception) -> Callable[[str], str]:
    def check(value: str) -> str:
        raise error

    return check


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("SECRET"), "Invalid arguments:\n- x: is not valid"),
        (AssertionError("SECRET"), "Invalid arguments:\n- x: is not valid"),
        (PydanticCustomError("odd", "must be even"), "Invalid arguments:\n- x: must be even"),
        (ToolError("there is no such team"), "there is no such team"),
        (KeyError("SECRET"), "KeyError while checking the arguments."),
    ],
)
def test_a_validator_of_ones_own_speaks_only_when_it_means_to(error: Exception, told: str) -> None:
    """As with tools, the text of a chance exception may hold anything; it is always bad arguments."""
    assert problem(checked_by(raising(error)), '{"x": "SECRET"}') == told


def test_many_threads_may_need_one_schema_first() -> None:
    """The first need may come from several threads at once; all see the same schema."""

    def fresh(move: Move, team: Team, words: list[str]) -> None:
        """Fresh.

        Args:
            move: Where to.
        """

    together = threading.Barrier(8)

    def need(_: int) -> tuple[str, dict[str, Any]]:
        together.wait(timeout=60)
        (a_tool,) = as_tools([fresh])
        assert isinstance(a_tool, Tool)
        bound = a_tool.bind('{"move": {"to": {"name": "g"}, "steps": 1}, "team": "red", "words": []}')
        return json.dumps(a_tool.spec().parameters), bound

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(need, range(8)))

    assert results == [results[0]] * 8


def _run_python(source: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
