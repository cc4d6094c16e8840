"""Facts about `goaitools_py.tools.signature`: what the annotations of a function mean."""

import gc
import textwrap
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from goaitools_py.tools import CallOutcome, Tool, ToolContext, run_call, tool
from goaitools_py.types.messages import Text


class Game:
    """The kind of thing an application hands to its tools."""

    def __init__(self) -> None:
        self.scores = {"blue": 3}


@pytest.fixture
def ctx() -> ToolContext[Game]:
    return ToolContext(deps=Game(), call_id="call_1", turn_id="turn_1", iteration=2, idempotency_key="key_1")


def parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    return Tool.from_function(function).spec().parameters


def text_of(outcome: CallOutcome) -> str:
    return "".join(part.text for part in outcome.parts if isinstance(part, Text))


def module(source: str) -> ModuleType:
    """A module made of source text, so that one text can be tried with and without postponed annotations."""
    made = ModuleType("made_for_a_test")
    exec(compile(textwrap.dedent(source), "made_for_a_test", "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["now", "postponed"])
@pytest.mark.parametrize(
    "annotation",
    ["ToolContext", "ToolContext[Game]", "tools.ToolContext[Game]", "Ctx[Game]", "ToolContext[list[Game]]"],
)
def test_a_first_parameter_annotated_as_context_is_not_for_the_model(annotation: str, future: str) -> None:
    """However the annotation is spelled or imported, and whether it is evaluated at once or later."""
    made = module(
        f"{future}from goaitools_py import tools\n"
        "from goaitools_py.tools import ToolContext, tool\n"
        "from goaitools_py.tools import ToolContext as Ctx\n"
        "class Game: ...\n"
        "@tool\n"
        f"def f(anything: {annotation}, x: int) -> int:\n    return anything.iteration + x\n"
    )

    assert made.f.takes_context
    assert list(made.f.spec().parameters["properties"]) == ["x"]
    assert text_of(run_call(made.f, ToolContext(deps=None, iteration=4), {"x": 1})) == "5"


def test_a_context_of_a_type_known_only_to_type_checkers() -> None:
    """Types imported under TYPE_CHECKING are common for deps, and for return values."""
    made = module(
        """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from goaitools_py.tools import tool
        if TYPE_CHECKING:
            from goaitools_py.tools import ToolContext
            from somewhere import Game, Score
        @tool
        def f(ctx: ToolContext[Game], x: int) -> Score: ...
        """
    )

    assert made.f.takes_context
    assert list(made.f.spec().parameters["properties"]) == ["x"]


def test_local_types_in_postponed_annotations() -> None:
    """A decorated function may use types of the function that it is defined in."""
    made = module(
        """
        from __future__ import annotations
        from pydantic import BaseModel
        from goaitools_py.tools import Tool, tool
        def make():
            class Point(BaseModel):
                x: int
            @tool
            def bare(p: Point) -> int: return p.x
            @tool(timeout=1)
            def with_options(p: list[Point]) -> int: return p[0].x
            def plain(p: Point | None) -> int: return p.x
            return bare, with_options, Tool.from_function(plain)
        """
    )
    bare, with_options, plain = made.make()

    assert bare.run(**bare.bind('{"p": {"x": 7}}')) == 7
    assert with_options.run(**with_options.bind('{"p": [{"x": 7}]}')) == 7
    assert plain.run(**plain.bind('{"p": {"x": 7}}')) == 7


def test_types_may_be_defined_after_the_tool() -> None:
    """Annotations are evaluated at the first need, not at the decorator."""
    made = module(
        """
        from __future__ import annotations
        from goaitools_py.tools import tool
        @tool
        def f(mood: Mood) -> None: ...
        import enum
        class Mood(enum.Enum):
            GOOD = "good"
        """
    )

    assert made.f.spec().parameters["$defs"] == {"Mood": {"type": "string", "enum": ["good"]}}


def test_a_local_object_is_not_kept_alive_by_a_tool() -> None:
    """Of the frame around a decorator only the names in the annotations are kept."""

    class Big: ...

    def make() -> tuple[Tool, weakref.ref[Big]]:
        big = Big()

        @tool
        def f(x: "int") -> None: ...

        return f, weakref.ref(big)

    f, big = make()
    f.spec()
    gc.collect()

    assert big() is None


def test_only_an_annotation_makes_a_context() -> None:
    """A parameter that happens to be called ctx is the model's to fill in."""

    def f(ctx: str) -> str:
        return ctx

    assert not Tool.from_function(f).takes_context
    assert list(parameters(f)["properties"]) == ["ctx"]


@pytest.mark.parametrize(
    "signature", ["x: int, ctx: ToolContext", "*, ctx: ToolContext", "*, ctx: 'ToolContext[int]'"]
)
def test_a_context_elsewhere_is_refused(signature: str) -> None:
    """Anywhere but first, a context would silently become the model's."""
    made = module(
        f"from goaitools_py.tools import ToolContext, tool\n@tool\ndef f({signature}) -> None: ...\n"
    )

    with pytest.raises(TypeError, match=r"'ctx' of f\(\) is a ToolContext; it must be the first parameter"):
        made.f.spec()


def test_a_hand_written_tool_gets_the_context_if_it_is_annotated(ctx: ToolContext[Game]) -> None:
    """With a schema of one's own the rule is the same: the annotation decides, not the name."""

    def with_context(ctx: ToolContext[Game], **given: Any) -> str:
        return f"{ctx.call_id} {given}"

    def with_string(ctx: "ToolContext[Unknown]", **given: Any) -> str:  # type: ignore[name-defined]  # noqa: F821
        return f"{ctx.call_id} {given}"

    def without(ctx: str) -> str:
        return ctx

    def run(function: Callable[..., Any], given: dict[str, Any]) -> str:
        return text_of(run_call(Tool("t", "", {"type": "object"}, function), ctx, given))

    assert run(with_context, {"a": 1}) == "call_1 {'a': 1}"
    assert run(with_string, {"a": 1}) == "call_1 {'a': 1}"
    assert run(without, {"ctx": "mine"}) == "mine"
    assert run(dict, {"a": 1}) == '{"a":1}'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "class DB: ...\ndef f(x: int, db: DB): ...",
            r"parameter 'db' of f\(\) has the type <class .*DB'>, for which",
        ),
        ("from typing import Callable\ndef f(c: Callable): ...", r"parameter 'c' of f\(\) has the type"),
        (
            "def f(x: int, y: 'Nowhere'): ...",
            r"cannot evaluate the annotation 'Nowhere' of parameter 'y' of f\(\)",
        ),
        ("def f(y: 'list['): ...", r"cannot evaluate the annotation 'list\[' of parameter 'y'"),
        ("def f(y: 'str.nothing'): ...", r"cannot evaluate the annotation 'str.nothing' of parameter 'y'"),
    ],
)
def test_types_without_a_schema_are_refused_at_the_spec(source: str, message: str) -> None:
    """The error says which parameter of which function; the cause is chained."""
    f = vars(module(source))["f"]

    with pytest.raises(TypeError, match=message) as caught:
        Tool.from_function(f).spec()

    assert caught.value.__cause__ is not None
