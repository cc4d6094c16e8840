"""The answer that a turn is to give: a type with its shape, and how it is asked for.

Owns: the choice between the provider's own format, words, and a tool that takes the answer as the arguments
of its call, for servers that know tools and no format for answers. Must never know: a state beyond its meta
data, how a turn runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..backends.base import Dialect
from ..backends.protocols import WritesOutput
from ..base.values import Value
from ..state.records import Meta, digest8
from ..tools import Tool
from ..types.errors import ToolError
from ..types.render import argument_object
from . import SHORT_TOKENS, Output
from .misfit import Misfit, call_again_words, schema_words
from .shape import AnswerShape, shape_of

__all__ = ["Wanted", "wanted"]

_MOST_DOUBTS: Final = 3


class Wanted(Value, frozen=True, kw_only=True):
    """A type that a turn is to answer with.

    Attributes:
        asked: The caller's value.
        shape: The type as a schema.
        tool: The tool that the model answers with; None in the other modes.
    """

    asked: Output[Any]
    shape: AnswerShape
    tool: Tool[..., Any] | None = None

    def last_answer(self, calls: Sequence[str]) -> Any:
        """The value in the last of these calls' arguments that has one; None without any."""
        for arguments in reversed(calls):
            try:
                return self.shape.read(argument_object(arguments))
            except Misfit:
                continue
        return None

    @property
    def words(self) -> str:
        """The type as a request in words."""
        return schema_words(self.shape.schema)

    @property
    def doubts(self) -> str:
        """Why a server may have refused a request with the format of this type; "" if nothing speaks for
        it."""
        from ..backends.wire.schema_refusals import doubtful  # only a refused request asks

        places = doubtful(self.shape.schema, self.asked.name or self.shape.name)
        if not places:
            return ""
        more = f", and {len(places) - _MOST_DOUBTS} more" if len(places) > _MOST_DOUBTS else ""
        return (
            f"the type of the answer may be why, for many servers have no place in a format for this: "
            f"{'; '.join(places[:_MOST_DOUBTS])}{more}. Output(…, mode='prompt') asks for it in words"
        )

    def format(self, dialect: Dialect, meta: Meta) -> bytes:
        """The provider's format for the answer; b"" if the type is to be asked for in words.

        On provider APIs with a prompt cache the format belongs to the cached prefix. So "auto" takes the
        format only if the last request had the same, or if the history is short.

        Raises:
            ValueError: The provider cannot take the schema, or has no format and the mode is "native".
        """
        mode, shape = self.asked.mode, self.shape
        if mode in ("prompt", "tool"):
            return b""
        if not isinstance(dialect, WritesOutput):
            if mode == "native":
                raise ValueError(
                    f"the provider API {dialect.wire!r} has no format for answers in JSON; use mode='prompt'"
                )
            return b""
        written = dialect.output(self.asked.name or shape.name, shape.schema, strict=self.asked.strict)
        if not written:
            if mode == "native":
                raise ValueError(
                    f"the host {dialect.family!r} has no format for answers in JSON; use mode='prompt' or "
                    "mode='tool'"
                )
            return b""
        if mode == "native" or meta.tokens < SHORT_TOKENS or digest8(written) == meta.output:
            return written
        return b""


def wanted(output_type: Any) -> Wanted:
    """Read the option `output_type`.

    Raises:
        TypeError: It is no type that JSON Schema can describe.
    """
    asked = Output.given(output_type)
    shape = shape_of(asked.of, asked.name)
    return Wanted(asked=asked, shape=shape, tool=_answer_tool(asked, shape) if asked.mode == "tool" else None)


_DESCRIPTION: Final = (
    "Give your final answer with this tool, once, when you are done with all else. The arguments are the "
    "answer."
)


def _answer_tool(asked: Output[Any], shape: AnswerShape) -> Tool[..., Any]:
    """Make the tool that the model answers with. An answer that does not fit is an error of the call. The
    model reads the error."""
    name = asked.name or "final_answer"

    def run(**arguments: Any) -> Any:
        try:
            value = shape.read(json.dumps(arguments))
        except Misfit as misfit:
            raise ToolError(call_again_words(misfit.problems)) from None
        return _checked(asked.validate, value)

    # It changes nothing outside, so it may run again, and needs no thread.
    return Tool(name, _DESCRIPTION, shape.schema, run, idempotent=True, thread=False)


def _checked(check: Callable[[Any], object] | None, value: Any) -> Any:
    if check is None:
        return "Taken."
    try:
        found = check(value)
    except ValueError as exc:
        raise ToolError(call_again_words([("", str(exc))])) from None
    return _awaited(found) if inspect.isawaitable(found) else "Taken."


async def _awaited(found: Any) -> str:
    try:
        await found
    except ValueError as exc:
        raise ToolError(call_again_words([("", str(exc))])) from None
    return "Taken."
