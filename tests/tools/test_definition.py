"""Facts about `goaitools_py.tools.definition`: what a tool is, and what can become one."""

import dataclasses
import functools
import gc
import inspect
import os
import re
import subprocess
import sys
import textwrap
import weakref
from collections.abc import AsyncIterator, Callable
from types import ModuleType
from typing import Any

import pytest

from goaitools_py import ChatOptions
from goaitools_py.tools import Tool, ToolContext, as_tools, refuse_async, tool
from goaitools_py.types.request_parts import ProviderTool


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


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


def module(source: str) -> ModuleType:
    """A module made of source text, so that one text can be tried with and without postponed annotations."""
    made = ModuleType("made_for_a_test")
    exec(compile(textwrap.dedent(source), "made_for_a_test", "exec", dont_inherit=True), made.__dict__)
    return made


def test_a_decorated_function_stays_callable_like_the_function(ctx: ToolContext[Game]) -> None:
    """A tool is tested by calling it, with a context of one's own."""
    assert get_score(ctx, "blue") == 3
    assert get_score(ctx, team="blue") == 3


def test_a_decorated_function_keeps_its_name_docstring_and_signature() -> None:
    """Documentation tools see the function, not a Tool object."""
    assert isinstance(get_score, Tool)
    assert get_score.__name__ == "get_score"  # type: ignore[attr-defined]
    assert (inspect.getdoc(get_score) or "").startswith("Current score")
    assert list(inspect.signature(get_score).parameters) == ["ctx", "team"]


def test_a_tool_is_frozen() -> None:
    """A shared tool cannot be changed by one of its users."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_score.name = "other"  # type: ignore[misc]


def test_a_tool_can_be_varied_by_replacing_fields() -> None:
    """`dataclasses.replace` gives the same tool under another name."""
    renamed = dataclasses.replace(get_score, name="score_of")

    assert renamed.spec().name == "score_of"
    assert get_score.spec().name == "get_score"


def test_the_repr_of_a_tool_shows_no_function_and_no_schema() -> None:
    """A repr is for logs."""
    assert repr(get_score) == "Tool(name='get_score', timeout=None, thread=None, strict=False)"


def test_the_decorator_with_options_sets_them() -> None:
    """Every option of the decorator arrives on the tool and, where the wire needs it, in the spec."""

    @tool(name="lookup", description="Look it up.", timeout=2.5, thread=False, strict=True)
    def find(word: str) -> str:
        """Ignored.

        Args:
            word: What to look for.
        """
        return word

    spec = find.spec()

    assert (find.name, find.timeout, find.thread, find.strict) == ("lookup", 2.5, False, True)
    assert (spec.name, spec.description, spec.strict) == ("lookup", "Look it up.", True)
    assert spec.parameters["properties"]["word"]["description"] == "What to look for."


@pytest.mark.parametrize("option", ["approval", "extern", "timout"])
def test_the_decorator_refuses_options_it_does_not_have(option: str) -> None:
    """An option that would do nothing is a TypeError, not a silent promise."""
    with pytest.raises(TypeError, match=option):
        tool(**{option: True})  # type: ignore[call-overload]


def test_async_tools_are_known_as_such() -> None:
    """`is_async` follows the declaration, for functions, methods and callable objects."""

    async def slow(x: int) -> int:
        return x

    class Service:
        async def call(self, x: int) -> int:
            return x

        async def __call__(self, x: int) -> int:
            return x

    schema = {"type": "object"}

    assert tool(slow).is_async
    assert Tool.from_function(Service().call).is_async
    assert Tool("t", "", schema, Service()).is_async
    assert Tool("t", "", schema, functools.partial(slow, 1)).is_async
    assert not get_score.is_async


def test_an_async_generator_is_no_tool() -> None:
    """It would give the model an error whenever it is called, so it is refused where it is given. A generator
    gives the list of what it yields."""

    async def watch(x: int) -> AsyncIterator[int]:
        yield x

    class Service:
        async def __call__(self, x: int) -> AsyncIterator[int]:
            yield x

    makers: list[Callable[[], object]] = [
        lambda: tool(watch),
        lambda: tool(name="w")(watch),
        lambda: as_tools([watch]),
        lambda: Tool("w", "", {"type": "object"}, watch),
        lambda: Tool("w", "", {"type": "object"}, Service()),
    ]
    for make in makers:
        with pytest.raises(TypeError, match=r"async generator.*collect what it yields in a list"):
            make()


@pytest.mark.parametrize("schema", [{}, {"properties": {"word": {"type": "string"}}}, {"type": None}])
def test_a_schema_without_a_type_is_an_objects(schema: dict[str, Any]) -> None:
    """All provider APIs want the type to be said, and it can be no other."""
    for parameters in (schema, lambda deps: schema):
        spec = Tool("find", "", parameters, print).spec(None)
        assert spec.parameters == {**schema, "type": "object"}


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        ({"type": "array"}, ValueError, "must have the type 'object', not 'array'"),
        ({"type": ["object", "null"]}, ValueError, "must have the type 'object'"),
        ([], TypeError, "not list"),
        ("{}", TypeError, "not str"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_a_schema_that_no_provider_takes_is_refused(schema: Any, kind: type[Exception], words: str) -> None:
    """Where it is given, or where the function gives it, and before anything is sent."""
    with pytest.raises(kind, match=words):
        Tool("find", "", schema, print)
    with pytest.raises(kind, match=words):
        Tool("find", "", lambda deps: schema, print).spec(None)


def test_a_spec_is_made_once() -> None:
    """Every turn asks for the spec; a static one is the same object."""
    assert get_score.spec(None) is get_score.spec(Game())


def test_functions_methods_and_provider_tools_are_taken() -> None:
    """A list may mix everything that can be a tool; order is kept."""

    class Desk:
        def __init__(self, name: str) -> None:
            self.name = name

        def greet(self, who: str) -> str:
            """Greet somebody."""
            return f"{self.name} greets {who}"

    def plain(x: int) -> int:
        return x

    hosted = ProviderTool({"type": "web_search"})
    tools = as_tools([plain, get_score, hosted, Desk("Ada").greet])

    assert [getattr(each, "name", None) for each in tools] == ["plain", "get_score", None, "greet"]
    assert tools[1] is get_score
    assert tools[2] is hosted
    assert isinstance(tools[3], Tool)
    assert tools[3].spec().description == "Greet somebody."
    assert list(tools[3].spec().parameters["properties"]) == ["who"]
    assert tools[3](who="Bob") == "Ada greets Bob"


def test_a_plain_function_becomes_a_tool_once() -> None:
    """Every turn reads the list again; that must cost nothing."""

    def plain(x: int) -> int:
        return x

    assert as_tools([plain])[0] is as_tools([plain])[0]


def test_methods_share_a_schema_but_not_an_object() -> None:
    """A bound method is a new object at each access; its signature is read once, its object is its own."""

    class Desk:
        def __init__(self, name: str) -> None:
            self.name = name

        def sign(self, text: str) -> str:
            return f"{text}, {self.name}"

    ada, bob = Desk("Ada"), Desk("Bob")
    (first,), (second,) = as_tools([ada.sign]), as_tools([bob.sign])

    assert isinstance(first, Tool)
    assert isinstance(second, Tool)
    assert first.parameters is second.parameters
    assert (first(text="Hi"), second(text="Hi")) == ("Hi, Ada", "Hi, Bob")


def test_an_object_whose_method_was_a_tool_can_go() -> None:
    """What is kept for a method does not hold its object."""

    class Desk:
        def sign(self, text: str) -> str:
            return text

    desk = Desk()
    gone = weakref.ref(desk)
    as_tools([desk.sign])[0].spec(None)  # type: ignore[union-attr]
    del desk
    gc.collect()

    assert gone() is None


def test_a_function_that_was_a_tool_can_go() -> None:
    """Functions made for one request are not kept for ever."""

    def make() -> weakref.ref[Any]:
        def plain(x: int) -> int:
            return x

        as_tools([plain])[0].spec(None)  # type: ignore[union-attr]
        return weakref.ref(plain)

    gone = make()
    gc.collect()

    assert gone() is None


def test_a_wrapper_is_not_taken_for_the_function_it_wraps() -> None:
    """`functools.wraps` copies attributes, kept tools included; the wrapper must still be what runs."""

    def plain(x: int) -> str:
        return "plain"

    class Desk:
        def method(self, x: int) -> str:
            return "plain"

    desk = Desk()
    as_tools([plain, desk.method])

    @functools.wraps(plain)
    def wrapper(x: int) -> str:
        return "wrapper"

    def other(self: Desk, y: int) -> str:
        return "wrapper"

    other.__dict__.update(vars(Desk.method))
    Desk.other = other  # type: ignore[attr-defined]
    first, second = as_tools([wrapper]) + as_tools([desk.other])  # type: ignore[attr-defined]

    assert isinstance(first, Tool)
    assert isinstance(second, Tool)
    assert first.run(x=1) == "wrapper"
    assert list(first.spec().parameters["properties"]) == ["x"]
    assert list(second.spec().parameters["properties"]) == ["y"]


def test_two_tools_of_one_name_are_refused() -> None:
    """The error names the name."""

    @tool(name="get_score")
    def other(team: str) -> str:
        return team

    with pytest.raises(ValueError, match="two tools are called 'get_score'"):
        as_tools([get_score, other])


def test_provider_tools_are_not_looked_into() -> None:
    """They belong to the wire; two equal ones pass."""
    hosted = ProviderTool({"name": "get_score"})

    assert as_tools([get_score, hosted, hosted]) == (get_score, hosted, hosted)


def test_a_provider_tool_does_not_show_a_key() -> None:
    """An MCP server's entry holds one, and options are printed and logged."""
    hosted = ProviderTool({"type": "mcp", "authorization": "sesame-open"})

    assert repr(hosted) == "ProviderTool()"
    assert "sesame-open" not in repr(ChatOptions(tools=[hosted]))


@pytest.mark.parametrize("raw", ["web_search", None, [{"type": "web_search"}]])
def test_a_provider_tool_is_an_object_of_the_wire(raw: Any) -> None:
    """Its name alone is a mistake that only the provider would tell, after the turn began."""
    with pytest.raises(TypeError, match=f"the provider's JSON object, not {type(raw).__name__}"):
        ProviderTool(raw)


@pytest.mark.parametrize("name", ["", "with space", "ä", "a.b", "x" * 65, "line\n"])
def test_names_that_a_wire_would_refuse_are_refused(name: str) -> None:
    """At the decorator, not at the first request."""
    with pytest.raises(ValueError, match="a tool's name must be 1 to 64 letters"):
        tool(name=name)(lambda: None)
    with pytest.raises(ValueError, match="a tool's name must be"):
        Tool(name, "", {"type": "object"}, print)


def test_a_lambda_needs_a_name() -> None:
    """Its own is not one, and the error says where to give it one."""
    with pytest.raises(ValueError, match=r"not '<lambda>'; give it one with @tool\(name=…\)"):
        as_tools([lambda: 1])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "def f(a: int, team): ...",
            "parameter 'team' of f() has no annotation; write its type, as in 'team: str'",
        ),
        ("def f(ctx): ...", "parameter 'ctx' of f() has no annotation"),
        ("def f(*names: str): ...", "parameter '*names' of f() takes any number of arguments"),
        ("def f(**names: str): ...", "parameter '**names' of f() takes any number of arguments"),
        ("def f(a: int, /): ...", "parameter 'a' of f() is positional-only; remove the '/' after it"),
        ("import functools\nf = functools.partial(print, 1)", "not partial; wrap it in a def"),
        ("class f: ...", "not the class f; give a function"),
        ("f = print", "not builtin_function_or_method; wrap it in a def"),
        ("f = 'name'", "a function or a bound method, not str"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_a_reason(source: str, message: str) -> None:
    """Both doors, the decorator and the list, name the function, the parameter and the way out."""
    f = vars(module(source))["f"]

    for door in (tool, tool(timeout=1), Tool.from_function, lambda value: as_tools([value])):
        with pytest.raises(TypeError, match=re.escape(message)):
            door(f)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_is_a_positive_number_of_seconds(seconds: float) -> None:
    """A tool that times out before it starts is a mistake."""
    with pytest.raises(ValueError, match="positive number of seconds"):
        tool(name="t", timeout=seconds)(lambda: None)


def test_hand_written_tools_are_checked_when_made() -> None:
    """A schema as text and a result instead of a function are mistakes of the first minute."""
    with pytest.raises(TypeError, match="parameters of tool 't' must be a JSON Schema as a mapping"):
        Tool("t", "", "{}", print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="run of tool 't' must be callable, not int"):
        Tool("t", "", {"type": "object"}, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tool's name must be str, not int"):
        Tool(3, "", {"type": "object"}, print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="timeout of tool 't' must be a number of seconds, not str"):
        Tool("t", "", {"type": "object"}, print, timeout="5")  # type: ignore[arg-type]


def test_a_sync_chat_can_refuse_async_tools() -> None:
    """The error names the tool and both ways out; sync and hosted tools pass."""

    @tool
    async def fetch(url: str) -> str:
        return url

    refuse_async([get_score, ProviderTool({"type": "web_search"})])
    with pytest.raises(
        TypeError, match=r"tool 'fetch' is async.* use AsyncChat, or write the tool with a plain def"
    ):
        refuse_async([get_score, fetch])


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


def test_importing_and_decorating_loads_nothing_heavy() -> None:
    """pydantic and docstring_parser wait for the first schema; a hand-written tool never needs them."""
    source = """
import sys
from goaitools_py.tools import Tool, ToolContext, as_tools, run_call, tool

@tool
def f(ctx: ToolContext[int], x: int) -> int:
    return x

def plain(x: int) -> int:
    return x

hand_written = Tool("t", "T.", {"type": "object"}, lambda **given: "text")
as_tools([f, plain, hand_written])
hand_written.spec(None)
outcome = run_call(hand_written, ToolContext(deps=None), hand_written.bind('{"a": 1}'))
heavy = {"pydantic", "pydantic_core", "docstring_parser", "asyncio", "openai", "anthropic"}
print(outcome.flag, sorted(heavy & set(sys.modules)))
f.spec(None)
print(sorted(heavy & set(sys.modules)))
"""

    first, second = _run_python(source).splitlines()

    assert first == "ok []"
    assert second == "['docstring_parser', 'pydantic', 'pydantic_core']"


def test_an_external_tool_needs_no_function() -> None:
    """Its result comes from outside: there is nothing to run here, and a call by mistake says so."""
    ask = Tool("ask_guard", "Ask the guard.", {"type": "object"}, external=True)

    assert ask.spec().name == "ask_guard"
    assert ask.spec().description == "Ask the guard."
    assert (ask.is_async, ask.takes_context, ask.needs_deps) == (False, False, False)
    assert ask.waits_for({}) == "external"
    assert dataclasses.replace(ask, name="ask_king").spec().name == "ask_king"
    with pytest.raises(TypeError, match=r"external.*has no function.*resume"):
        ask(place="gate")


def test_only_an_external_tool_needs_no_function() -> None:
    """A tool that is run here, and has nothing to run, is refused with both ways out."""
    with pytest.raises(TypeError, match=r"'ask_guard' has no function: pass run=.*external=True"):
        Tool("ask_guard", "Ask the guard.", {"type": "object"})


def test_an_empty_tool_of_a_provider_is_refused() -> None:
    """Each provider would refuse the request, and a turn would be lost to it."""
    with pytest.raises(ValueError, match="this one is empty"):
        ProviderTool({})
