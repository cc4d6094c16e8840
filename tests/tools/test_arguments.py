"""Facts about `goaitools_py.tools.arguments`: reading what a model wrote, whoever wrote the schema."""

import json
from typing import Any

import pytest

from goaitools_py.tools import BadArguments, Tool
from goaitools_py.types.request_parts import ToolSpec


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


def problem(a_tool: Tool, arguments: str) -> str:
    with pytest.raises(BadArguments) as caught:
        a_tool.bind(arguments)
    return str(caught.value)


def test_a_slip_in_the_json_is_located() -> None:
    """Line and column help the model; its text is not repeated."""
    hand_written: Tool = Tool("f", "", {"type": "object"}, dict)

    assert problem(hand_written, '{"x": 1,\n "SECRET" 2}') == (
        "The arguments are not valid JSON: Expecting ':' delimiter at line 2 column 11"
    )


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "{}", "null", " null ", "None", "undefined", "[]", '""', '"null"', '"{}"', '"\\n{}\\n"'],
)
def test_no_text_means_no_arguments(text: str) -> None:
    """Models that call a tool without parameters send anything from nothing to an empty object, and servers
    put it into a string once more."""

    def ping() -> None: ...

    assert Tool.from_function(ping).bind(text) == {}
    assert Tool("ping", "", {"type": "object"}, ping).bind(text) == {}


BROKEN = [
    ('{"x": ', "The arguments are not valid JSON"),
    ("nothing", "The arguments are not valid JSON"),
    ('{"x": 1}}', "The arguments are not valid JSON"),
    ("[" * 100_000, "The arguments nest too deep to be read"),
    ('{"x": ' + "9" * 5000 + "x}", "The arguments are not valid JSON"),
    ("[1]", "The arguments must be one JSON object."),
    ('"x"', "The arguments must be one JSON object."),
    ("7", "The arguments must be one JSON object."),
    ('"{', "The arguments are not valid JSON"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN, ids=range(len(BROKEN)))
def test_text_that_is_no_json_object_is_the_models_fault(text: str, message: str) -> None:
    """It is told so, without its own words; a tool from a function and a hand-written one agree."""

    def f(x: int) -> None: ...

    told = problem(Tool.from_function(f), text)

    assert told.startswith(message)
    assert problem(Tool("f", "", {"type": "object"}, f), text).startswith(message)


def test_an_object_in_a_string_is_read() -> None:
    """Some models and servers write the JSON of the arguments once too often; nothing else can be meant."""

    def f(x: int) -> None: ...

    text = json.dumps(json.dumps({"x": 1}))

    assert Tool.from_function(f).bind(text) == {"x": 1}
    assert Tool("f", "", {"type": "object"}, f).bind(text) == {"x": 1}
    assert problem(Tool.from_function(f), "null") == "Invalid arguments:\n- x: is required"


def test_many_problems_are_cut_short() -> None:
    """A model that makes up fields, or very long ones, does not fill its own context."""

    def f() -> None: ...

    told = problem(Tool.from_function(f), json.dumps({f"{n}_" + "x" * 500: 1 for n in range(40)}))

    assert len(told.split("\n")) == 12
    assert told.endswith("- and 30 more")
    assert len(told) < 2_000


def test_a_hand_written_schema_is_checked_for_names_only() -> None:
    """Required and unknown names; values are for the tool to judge, and there is no pydantic in it."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    strict: Tool = Tool("t", "T.", schema, dict)
    lax: Tool = Tool("t", "T.", {"type": "object", "required": ["a"]}, dict)
    pattern: Tool = Tool("t", "T.", schema | {"required": [], "patternProperties": {"^x": {}}}, dict)

    assert strict.bind('{"a": "not an integer", "b": null}') == {"a": "not an integer", "b": None}
    assert (
        problem(strict, '{"a": 1, "c": "SECRET"}')
        == "Invalid arguments:\n- b: is required\n- c: is not expected"
    )
    assert lax.bind('{"a": 1, "c": 2}') == {"a": 1, "c": 2}
    assert pattern.bind('{"x1": 1}') == {"x1": 1}


def test_a_schema_can_depend_on_deps() -> None:
    """A function from deps to a schema is asked at every spec and every bind."""

    def schema(deps: Game) -> dict[str, Any]:
        teams = sorted(deps.scores)
        return {"type": "object", "properties": {t: {} for t in teams}, "additionalProperties": False}

    a_tool: Tool = Tool("score", "Set scores.", parameters=schema, run=dict)
    game = Game()

    assert a_tool.spec(game).parameters["properties"] == {"blue": {}}
    with pytest.raises(BadArguments):
        a_tool.bind('{"red": 1}', game)
    game.scores["red"] = 0
    assert a_tool.bind('{"red": 1}', game) == {"red": 1}
    assert a_tool.spec(game) == ToolSpec(name="score", description="Set scores.", parameters=schema(game))
