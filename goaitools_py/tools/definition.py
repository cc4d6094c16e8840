"""What a tool is: a name, a description, a schema and something to run.

Owns: `Tool`, the `tool` decorator and the reading of tool lists. Must never know: a wire, a turn, a state.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from ..backends.base import ProviderTool, ToolSpec
from ..render import plain_json
from .arguments import check_arguments, parse_arguments
from .signature import Signature, local_names, needs_deps, takes_context

if TYPE_CHECKING:
    # Only type checkers need the defaults: they let `Tool` stand for `Tool[..., Any]`.
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["Tool", "as_tools", "external_tool", "refuse_async", "refuse_without_deps", "tool"]

# The narrowest of the providers' rules, OpenAI's; Anthropic's allows up to 128 characters.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KEPT = "__goaitools_tool__"


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """Something the model may call. It stays callable like the function it was made from.

    Made with `@tool`, with `Tool.from_function`, or with a schema of your own::

        Tool("roll", "Roll dice.", {"type": "object", "properties": {"sides": {"type": "integer"}}}, roll)

    Attributes:
        name: 1 to 64 letters, digits, ``_`` or ``-``.
        description: What the model is told; None takes a function's docstring.
        parameters: A JSON Schema object, a function from the turn's `deps` to one, or the signature that a
            schema is derived from. Of a schema of your own only the names of required and, with
            ``additionalProperties: false``, of unknown arguments are checked before `run`.
        run: Called with the arguments by keyword; first with the context, if its first parameter is
            annotated `ToolContext`.
        timeout: Seconds one call may take; None leaves it to the chat's `tool_timeout`.
        thread: Whether a sync tool runs in a worker thread; None leaves it to the chat's `tool_threads`.
        strict: Ask the provider to hold the model to the schema, where the wire can.
        idempotent: Running a call twice does no harm: one whose process died runs again, with the same
            `ToolContext.idempotency_key`.
        requires_approval: A call waits until `resume` approves it: always, or if this function of its
            arguments (a dict) says so. One that raises says so.
        external: `run` is never called: the result comes from outside, as a `ToolReturn` in `resume`.
    """

    name: str
    description: str | None = field(repr=False)
    parameters: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | Signature = field(repr=False)
    run: Callable[P, R] = field(repr=False)
    timeout: float | None = field(default=None, kw_only=True)
    thread: bool | None = field(default=None, kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    idempotent: bool = field(default=False, kw_only=True, repr=False)
    requires_approval: bool | Callable[[dict[str, Any]], bool] = field(
        default=False, kw_only=True, repr=False
    )
    external: bool = field(default=False, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"a tool's name must be str, not {type(self.name).__name__}")
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"a tool's name must be 1 to 64 letters, digits, '_' or '-', not {self.name!r}; "
                f"give it one with @tool(name=…)"
            )
        if not isinstance(self.parameters, (Mapping, Signature)) and not callable(self.parameters):
            raise TypeError(
                f"parameters of tool {self.name!r} must be a JSON Schema as a mapping, or a function from "
                f"deps to one, not {type(self.parameters).__name__}"
            )
        if not callable(self.run):
            raise TypeError(f"run of tool {self.name!r} must be callable, not {type(self.run).__name__}")
        if self.timeout is not None and not isinstance(self.timeout, (int, float)):
            raise TypeError(
                f"timeout of tool {self.name!r} must be a number of seconds, "
                f"not {type(self.timeout).__name__}"
            )
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout of tool {self.name!r} must be a positive number of seconds")
        if not isinstance(self.requires_approval, bool) and not callable(self.requires_approval):
            raise TypeError(
                f"requires_approval of tool {self.name!r} must be True, False or a function of the arguments"
            )
        if self.external and self.requires_approval:
            raise ValueError(
                f"tool {self.name!r} cannot be external and require an approval: whoever gives its result "
                "can deny it"
            )
        # What functools.update_wrapper does, on a frozen object.
        names = ("__module__", "__name__", "__qualname__", "__doc__")
        worn = {name: getattr(self.run, name) for name in names if hasattr(self.run, name)}
        self.__dict__.update(worn, __wrapped__=self.run)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with nothing checked or caught."""
        return self.run(*args, **kwargs)

    @classmethod
    def from_function(cls, function: Callable[P, R], /) -> Tool[P, R]:
        """Make a tool of a function or bound method: name, docstring and annotations say the rest.

        Raises:
            TypeError: A parameter has no annotation, or is of a kind that a model cannot fill in.
            ValueError: The function's name cannot be a tool's name.
        """
        signature = Signature.of(function, local_names(_caller()))
        return Tool(function.__name__, None, signature, function)

    @cached_property
    def is_async(self) -> bool:
        """True if `run` is declared with ``async def``."""
        called = getattr(self.run, "__call__", None)  # noqa: B004 - the method of a callable object
        return inspect.iscoroutinefunction(self.run) or inspect.iscoroutinefunction(called)

    @cached_property
    def takes_context(self) -> bool:
        """True if `run` wants a `ToolContext` first."""
        if isinstance(self.parameters, Signature):
            return self.parameters.takes_context
        return takes_context(self.run)

    def spec(self, deps: Any = None) -> ToolSpec:
        """What the wire is told. The same object each time, unless `parameters` is a function of `deps`.

        Raises:
            TypeError: A parameter's type has no JSON Schema, or its annotation cannot be evaluated.
        """
        if callable(self.parameters):
            return self._spec(self.parameters(deps))
        return self._static_spec

    @cached_property
    def needs_deps(self) -> bool:
        """True if `run` wants the context of a turn that has `deps`: ``ToolContext[Game]``, but not
        ``ToolContext``, ``ToolContext[Any]`` or ``ToolContext[Game | None]``."""
        if self.external:
            return False  # it is never run
        if isinstance(self.parameters, Signature):
            return self.parameters.needs_deps
        return needs_deps(self.run)

    def waits_for(
        self, arguments: dict[str, Any], failed: Callable[[Exception], None] | None = None
    ) -> Literal["", "approval", "external"]:
        """What a call with these bound arguments has to wait for; "" if it may run. `failed` is told what
        `requires_approval` raised."""
        if self.external:
            return "external"
        if isinstance(self.requires_approval, bool):
            return "approval" if self.requires_approval else ""
        try:
            return "approval" if self.requires_approval(dict(arguments)) else ""
        except Exception as exc:
            if failed is not None:
                failed(exc)
            return "approval"  # what cannot say that it is harmless is asked about

    def bind(self, arguments: str, deps: Any = None) -> dict[str, Any]:
        """Turn the model's arguments into the keyword arguments of `run`, as values of the annotated types.

        Args:
            arguments: JSON text as the model wrote it; blank text means no arguments.
            deps: As for `spec`.

        Raises:
            BadArguments: They do not fit; the text is for the model.
        """
        arguments = plain_json(arguments)
        if isinstance(self.parameters, Signature):
            return self.parameters.arguments.validate(arguments if arguments.strip() else "{}")
        values = parse_arguments(arguments)
        check_arguments(values, self.spec(deps).parameters)
        return values

    @cached_property
    def _static_spec(self) -> ToolSpec:
        if isinstance(self.parameters, Mapping):
            return self._spec(self.parameters)
        assert isinstance(self.parameters, Signature)
        arguments = self.parameters.arguments
        return self._spec(arguments.schema, arguments.description)

    def _spec(self, schema: Mapping[str, Any], docstring: str = "") -> ToolSpec:
        description = docstring if self.description is None else self.description
        return ToolSpec(name=self.name, description=description, parameters=schema, strict=self.strict)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    thread: bool | None = None,
    strict: bool = False,
    idempotent: bool = False,
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False,
    external: bool = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    thread: bool | None = None,
    strict: bool = False,
    idempotent: bool = False,
    requires_approval: bool | Callable[[dict[str, Any]], bool] = False,
    external: bool = False,
) -> Tool[..., Any] | Callable[[Callable[..., Any]], Tool[..., Any]]:
    """Make a tool of a function, sync or async: ``@tool``, or ``@tool(timeout=5)``.

    The schema comes from the annotations (``Annotated[int, Field(ge=0)]`` included), the descriptions from
    the docstring. A first parameter annotated `ToolContext` is given by the chat, not by the model.

    Args:
        function: The function, when used without parentheses.
        name: Instead of the function's name.
        description: Instead of the docstring's text; its ``Args:`` still describe the parameters.
        timeout: Seconds one call may take, instead of the chat's `tool_timeout`.
        thread: Instead of the chat's `tool_threads`.
        strict: Ask the provider to hold the model to the schema, where the wire can.
        idempotent, requires_approval, external: As for `Tool`.

    Raises:
        TypeError: A parameter has no annotation, or is of a kind that a model cannot fill in.
        ValueError: The name cannot be a tool's name.
    """
    names = local_names(_caller())

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        signature = Signature.of(function, names)
        return Tool(
            function.__name__ if name is None else name,
            description,
            signature,
            function,
            timeout=timeout,
            thread=thread,
            strict=strict,
            idempotent=idempotent,
            requires_approval=requires_approval,
            external=external,
        )

    return decorate if function is None else decorate(function)


def as_tools(
    values: Iterable[Tool[..., Any] | Callable[..., Any] | ProviderTool],
) -> tuple[Tool[..., Any] | ProviderTool, ...]:
    """Read a list of tools as a caller gives it: plain functions become tools, once and for all.

    Raises:
        TypeError: A value is no tool and cannot become one; the text says why.
        ValueError: Two tools have the same name, or a function's name cannot be a tool's name.
    """
    tools = tuple(value if isinstance(value, (Tool, ProviderTool)) else _kept(value) for value in values)
    names: set[str] = set()
    for each in tools:
        if isinstance(each, ProviderTool):
            continue
        if each.name in names:
            raise ValueError(f"two tools are called {each.name!r}; rename one with @tool(name=…)")
        names.add(each.name)
    return tools


def external_tool(name: str) -> Tool[..., Any]:
    """A tool of which only the name is known: its calls, with whatever arguments, wait for a result."""
    return _Unknown(
        name if _NAME.fullmatch(name) else "unnamed", None, {"type": "object"}, _never, external=True
    )


def _never() -> None:
    raise AssertionError("a tool whose results come from outside was run")


class _Unknown(Tool[..., Any]):
    """A tool whose arguments nobody here can check, such as the free text of a custom tool."""

    def bind(self, arguments: str, deps: Any = None) -> dict[str, Any]:
        """Nothing: whoever runs the call reads its arguments."""
        return {}


def refuse_async(tools: Iterable[Tool[..., Any] | ProviderTool]) -> None:
    """Make sure that a chat without an event loop can run all these tools.

    Raises:
        TypeError: One of them is declared with ``async def``.
    """
    for each in tools:
        if isinstance(each, Tool) and each.is_async:
            raise TypeError(
                f"tool {each.name!r} is async, and a Chat runs no event loop: "
                f"use AsyncChat, or write the tool with a plain def"
            )


def refuse_without_deps(tools: Iterable[Tool[..., Any] | ProviderTool], deps: Any) -> None:
    """Make sure that no tool is run without the `deps` that its annotation says it works on.

    Raises:
        TypeError: One of them needs `deps`, and there are none.
    """
    if deps is not None:
        return
    for each in tools:
        if isinstance(each, Tool) and each.needs_deps:
            raise TypeError(
                f"tool {each.name!r} wants a ToolContext with deps, and there are none: pass deps=…, or "
                "annotate its context as ToolContext[… | None] if it can do without"
            )


def _kept(function: Callable[..., Any]) -> Tool[..., Any]:
    """The tool of a plain function, made at its first use and kept on the function, to live as long as it."""
    if inspect.ismethod(function):
        # `obj.method` is a new object each time; what is costly, its signature, is kept for all of them.
        return Tool(function.__name__, None, Signature.of_method(function), function)
    kept = getattr(function, _KEPT, None)
    # Whatever copies a function's __dict__, such as functools.wraps, copies the kept tool too.
    if not isinstance(kept, Tool) or kept.run is not function:
        signature = Signature.of(function)
        kept = Tool(function.__name__, None, signature, function)
        setattr(function, _KEPT, kept)
    return kept


def _caller() -> FrameType | None:
    """The frame that called our caller."""
    frame = inspect.currentframe()
    ours = frame and frame.f_back
    return ours and ours.f_back
