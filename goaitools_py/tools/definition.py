"""The class of a tool: a name, a description, a schema and a function.

Owns: `Tool`, the `tool` decorator, and reading a list of tools. Must never know: a provider API, a turn, a
state.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, overload

from ..types.render import argument_object, valid_json
from ..types.request_parts import ProviderTool, ToolSpec
from .arguments import check_arguments, parse_arguments
from .signature import Signature, local_names, needs_deps, takes_context

if TYPE_CHECKING:
    # Type checkers need the defaults: with them `Tool` means `Tool[..., Any]`.
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["Tool", "as_tools", "external_tool", "refuse_async", "refuse_without_deps", "tool"]

# OpenAI's rule, the strictest one; Anthropic allows up to 128 characters.
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""Gemini refuses a name that begins with a digit or a dash (ai.google.dev, function calling, 2026-11)."""

_SENT_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A name that a model may have written."""

_KEPT = "__goaitools_tool__"


def _no_function(*_: object, **__: object) -> Any:
    """Stand in for the function of an external tool without one."""
    raise TypeError("an external tool has no function: its result comes with resume, as a ToolReturn")


@dataclass(frozen=True, eq=False)
class Tool(Generic[P, R]):
    """Something that the model may call. It can be called like the function it was made from.

    Make one with `@tool`, with `Tool.from_function`, or with a schema of your own::

        Tool("roll", "Roll dice.", {"type": "object", "properties": {"sides": {"type": "integer"}}}, roll)
        Tool("ask_a_human", "Ask the support team.", {"type": "object"}, external=True)

    Attributes:
        name: 1 to 64 letters, digits, ``_`` or ``-``, with a letter or ``_`` first.
        description: The description for the model; None takes a function's docstring.
        parameters: A JSON Schema object, a function from the turn's `deps` to one, or the signature from
            which the schema is derived. With a schema of your own, only the names of the arguments are
            checked before `run`: a required one is missing, or an unknown one comes although
            ``additionalProperties`` is false.
        run: Called with the arguments by keyword. If its first parameter is annotated `ToolContext`, it gets
            the context first. An external tool needs no function.
        timeout: Seconds for one call; None takes `Timeouts.tool` of the chat.
        thread: True: a sync tool runs in a worker thread. None takes the chat's `tool_threads`.
        strict: Ask the provider to enforce the schema, where the provider API can.
        idempotent: True: a call may safely run twice. After a crash the call runs again, with the same
            `ToolContext.idempotency_key`.
        requires_approval: True: a call waits until `resume` approves it. Or a function of the arguments (a
            dict) that says whether this call waits; if the function raises, the call waits.
        external: True: nothing runs here. The result comes from outside, as a `ToolReturn` in `resume`.
    """

    name: str
    description: str | None = field(repr=False)
    parameters: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] | Signature = field(repr=False)
    run: Callable[P, R] = field(default=_no_function, repr=False)
    timeout: float | None = field(default=None, kw_only=True)
    thread: bool | None = field(default=None, kw_only=True)
    strict: bool = field(default=False, kw_only=True)
    idempotent: bool = field(default=False, kw_only=True, repr=False)
    requires_approval: bool | Callable[[dict[str, Any]], bool] = field(
        default=False, kw_only=True, repr=False
    )
    external: bool = field(default=False, kw_only=True, repr=False)

    _names: ClassVar[re.Pattern[str]] = _NAME

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"a tool's name must be str, not {type(self.name).__name__}")
        if not self._names.fullmatch(self.name):
            raise ValueError(
                f"a tool's name must be 1 to 64 letters, digits, '_' or '-', and begin with a letter or '_', "
                f"not {self.name!r}; "
                f"give it one with @tool(name=…)"
            )
        if isinstance(self.parameters, Mapping):
            _object_schema(self.name, self.parameters)
        elif not isinstance(self.parameters, Signature) and not callable(self.parameters):
            raise TypeError(
                f"parameters of tool {self.name!r} must be a JSON Schema as a mapping, or a function from "
                f"deps to one, not {type(self.parameters).__name__}"
            )
        if self.run is _no_function and not self.external:
            raise TypeError(
                f"tool {self.name!r} has no function: pass run=…, or external=True if its result comes "
                "from outside"
            )
        if not callable(self.run):
            raise TypeError(f"run of tool {self.name!r} must be callable, not {type(self.run).__name__}")
        if self._is(inspect.isasyncgenfunction):
            raise TypeError(
                f"the function of tool {self.name!r} is an async generator: it has a yield; a tool gives one "
                "result, so collect what it yields in a list, and return that"
            )
        if not isinstance(self.description, (str, NoneType)):
            raise TypeError(
                f"description of tool {self.name!r} must be str, not {type(self.description).__name__}"
            )
        for option in ("thread", "strict", "idempotent", "external"):
            value = getattr(self, option)
            if not isinstance(value, bool) and not (value is None and option == "thread"):
                raise TypeError(
                    f"{option} of tool {self.name!r} must be True or False, not {type(value).__name__}"
                )
        if self.timeout is not None and (
            isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float))
        ):
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
                f"tool {self.name!r} cannot be external and require an approval: leave requires_approval out "
                "and answer the call with Deny"
            )
        if self.run is _no_function:
            self.__dict__.update(__name__=self.name, __doc__=self.description)
            return
        # The same as functools.update_wrapper, on a frozen object.
        names = ("__module__", "__name__", "__qualname__", "__doc__")
        worn = {name: getattr(self.run, name) for name in names if hasattr(self.run, name)}
        self.__dict__.update(worn, __wrapped__=self.run)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly: no check of the arguments, no handling of errors."""
        return self.run(*args, **kwargs)

    @classmethod
    def from_function(cls, function: Callable[P, R], /) -> Tool[P, R]:
        """Make a tool of a function or bound method, from its name, docstring and annotations.

        Raises:
            TypeError: A parameter has no annotation, or is of a kind that a model cannot fill in.
            ValueError: The function's name cannot be a tool's name.
        """
        signature = Signature.of(function, local_names(_caller()))
        return Tool(function.__name__, None, signature, function)

    @cached_property
    def is_async(self) -> bool:
        """True if `run` is declared with ``async def``."""
        return self._is(inspect.iscoroutinefunction)

    def _is(self, kind: Callable[[object], bool]) -> bool:
        """Whether `run`, or the method of a callable object, is a function of a kind."""
        called = getattr(self.run, "__call__", None)  # noqa: B004 - the method of a callable object
        return kind(self.run) or kind(called)

    @cached_property
    def takes_context(self) -> bool:
        """True if `run` wants a `ToolContext` first."""
        if isinstance(self.parameters, Signature):
            return self.parameters.takes_context
        return takes_context(self.run)

    def spec(self, deps: Any = None) -> ToolSpec:
        """The description for the provider. The same object each time, unless `parameters` is a function.

        Raises:
            TypeError: A parameter's type has no JSON Schema, or its annotation cannot be evaluated.
        """
        if callable(self.parameters):
            return self._spec(_object_schema(self.name, self.parameters(deps)))
        return self._static_spec

    @cached_property
    def needs_deps(self) -> bool:
        """True if `run` needs a turn with `deps`: it wants ``ToolContext[Game]``, and not ``ToolContext``,
        ``ToolContext[Any]`` or ``ToolContext[Game | None]``."""
        if self.external:
            return False  # it is never run
        if isinstance(self.parameters, Signature):
            return self.parameters.needs_deps
        return needs_deps(self.run)

    def waits_for(
        self, arguments: dict[str, Any], failed: Callable[[Exception], None] | None = None
    ) -> Literal["", "approval", "external"]:
        """Tell if a call with these bound arguments waits, and for which input; "" if it may run. If
        `requires_approval` raises, `failed` is called with the exception."""
        if self.external:
            return "external"
        if isinstance(self.requires_approval, bool):
            return "approval" if self.requires_approval else ""
        try:
            return "approval" if self.requires_approval(dict(arguments)) else ""
        except Exception as exc:
            if failed is not None:
                failed(exc)
            return "approval"  # the call was not shown to be harmless

    def bind(self, arguments: str, deps: Any = None) -> dict[str, Any]:
        """Read the model's arguments as the keyword arguments of `run`, converted to the annotated types.

        Args:
            arguments: JSON text as the model wrote it. Blank text and null mean no arguments.
            deps: As for `spec`.

        Raises:
            BadArguments: The arguments do not fit. The text is for the model.
        """
        arguments = valid_json(argument_object(arguments))
        if isinstance(self.parameters, Signature):
            return self.parameters.arguments.validate(arguments)
        values = parse_arguments(arguments)
        check_arguments(values, self.spec(deps).parameters)
        return values

    @cached_property
    def _static_spec(self) -> ToolSpec:
        if isinstance(self.parameters, Mapping):
            return self._spec(_object_schema(self.name, self.parameters))
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

    The schema comes from the annotations (``Annotated[int, Field(ge=0)]`` too), the descriptions from the
    docstring. If the first parameter is annotated `ToolContext`, the chat fills it in and the model does not
    see it.

    Args:
        function: The function, when used without parentheses.
        name: Replaces the function's name.
        description: Replaces the docstring's text. Its ``Args:`` still describe the parameters.
        timeout: Seconds for one call; replaces `Timeouts.tool` of the chat.
        thread: Replaces the chat's `tool_threads`.
        strict: Ask the provider to enforce the schema, where the provider API can.
        idempotent, requires_approval, external: As for `Tool`.

    Raises:
        TypeError: A parameter has no annotation, or is of a kind that a model cannot fill in.
        ValueError: The name cannot be a tool's name.
    """
    names = local_names(_caller())

    def decorate(function: Callable[..., Any]) -> Tool[..., Any]:
        if isinstance(function, Tool):
            raise TypeError(f"{function.name!r} is a Tool already; give all options in one @tool(…)")
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
    """Read a list of tools as a caller gives it. Plain functions become tools, which are then kept.

    Raises:
        TypeError: A value is not a tool and cannot become one; the text says why.
        ValueError: Two tools have the same name, or a function's name cannot be a tool's name.
    """
    tools = tuple(value if isinstance(value, (Tool, ProviderTool)) else _kept(value) for value in values)
    names: set[str] = set()
    for each in tools:
        if isinstance(each, ProviderTool):
            continue
        if each.name in names:
            raise ValueError(
                f"two tools are called {each.name!r}; rename one with @tool(name=…), those of an MCP server "
                "with MCPTools(…, prefix=…)"
            )
        names.add(each.name)
    return tools


def external_tool(name: str) -> Tool[..., Any]:
    """Make an external tool from its name alone. Its calls may have any arguments."""
    shown = name if _SENT_NAME.fullmatch(name) else "unnamed"
    return _Unknown(shown, None, {"type": "object"}, external=True)


def _object_schema(name: str, schema: Any) -> Mapping[str, Any]:
    """The schema of a tool's arguments. All provider APIs refuse one that is not of the type "object"; a
    schema that names no type is one.

    Raises TypeError or ValueError for a schema of another type.
    """
    if not isinstance(schema, Mapping):
        raise TypeError(
            f"the function for the parameters of tool {name!r} must give a JSON Schema as a dict, "
            f"not {type(schema).__name__}"
        )
    kind = schema.get("type")
    if kind is None:
        return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}
    if kind != "object":
        raise ValueError(
            f"the arguments of tool {name!r} are a JSON object, so its schema must have the type 'object', "
            f"not {kind!r}"
        )
    return schema


class _Unknown(Tool[..., Any]):
    """A tool with arguments that cannot be checked here, such as the free text of a custom tool."""

    _names: ClassVar[re.Pattern[str]] = _SENT_NAME

    def bind(self, arguments: str, deps: Any = None) -> dict[str, Any]:
        """No arguments: the program that runs the call reads them itself."""
        return {}


def refuse_async(tools: Iterable[Tool[..., Any] | ProviderTool]) -> None:
    """Refuse tools that a chat without an event loop cannot run.

    Raises:
        TypeError: One of them is declared with ``async def``.
    """
    for each in tools:
        if isinstance(each, Tool) and each.is_async:
            raise TypeError(
                f"tool {each.name!r} is async, and a Chat runs no event loop: "
                f"use AsyncChat, or write the tool with a plain def; open MCPTools with a plain 'with'"
            )


def refuse_without_deps(tools: Iterable[Tool[..., Any] | ProviderTool], deps: Any) -> None:
    """Refuse tools that need `deps` in a turn without `deps`.

    Raises:
        TypeError: A tool's context is annotated ``ToolContext[X]``, and there are no `deps`.
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
    """The tool of a plain function. It is made once and kept as an attribute of the function."""
    if inspect.ismethod(function):
        # `obj.method` is a new object each time. Its signature, the costly part, is kept for all of them.
        return Tool(function.__name__, None, Signature.of_method(function), function)
    kept = getattr(function, _KEPT, None)
    # functools.wraps and others copy a function's __dict__, and with it the tool of another function.
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
