"""A backend that answers from a script, for tests of programs that use this package.

Owns: the script, and the requests that came. Must never know: a network.
It is not a simulator: it gives the scripted replies for any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from ..backends.base import BackendError, Dialect, ModelRequest, ResponseHead
from ..backends.dialects import dialect_of
from ..base import rawjson
from ._reply_shapes import SHAPES

__all__ = ["Calls", "Raw", "ScriptedBackend", "Shape", "Step"]


@dataclass(frozen=True, slots=True)
class Calls:
    """A scripted reply that calls tools: pairs of name and arguments (a mapping, or raw JSON text).

    With `reasoning` the reply begins with it, in sealed blocks if the provider API has them. `calls` may
    be empty: ``Calls([], "Hello.", reasoning="They greet me.")`` is a reply with thinking and text only.

    Raises TypeError if `calls` is not a list of pairs, for example a pair without a list around it.
    """

    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = field(repr=False)
    text: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if found := _not_pairs(self.calls):
            raise TypeError(
                "Calls takes a list of pairs, each a tool's name and its arguments (a dict, or JSON text), "
                f"such as Calls([('charge', {{'euros': 5}})]); got {found}"
            )


def _not_pairs(calls: Any) -> str:
    """Describe a value that is not a list of pairs; "" if it is one."""
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        return type(calls).__name__
    for at, item in enumerate(calls):
        match item:
            case [str(), str() | Mapping()]:
                pass
            case _:
                return f"a {type(calls).__name__} whose item {at} is no such pair, but {type(item).__name__}"
    return ""


@dataclass(frozen=True, slots=True)
class Raw:
    """A scripted response body, sent unchanged. Each read of the response returns one of `chunks`."""

    chunks: Sequence[bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.chunks, (bytes, str)):
            raise TypeError(
                f"Raw takes a list of chunks, got {type(self.chunks).__name__}; "
                "of one body make Raw.body(b'…')"
            )

    @classmethod
    def body(cls, body: bytes) -> Raw:
        """One whole body."""
        return cls((body,))


class Shape(Protocol):
    """The JSON of scripted replies on one provider API. A module with these two functions is one, too."""

    def reply(
        self,
        text: str,
        calls: Sequence[tuple[str, Mapping[str, Any] | str]],
        *,
        reasoning: str,
        model: str,
        number: int,
        sent: int,
    ) -> Mapping[str, Any]:
        """The whole response, number `number` of the script, to a request of `sent` bytes. Call ids made of
        `number` and the call's position are unique in the script."""
        ...

    def as_events(self, body: Mapping[str, Any]) -> list[bytes]:
        """The same response as the chunks of a stream."""
        ...


Step: TypeAlias = str | Calls | Raw | BaseException | Callable[[ModelRequest], Any]
_ANSWERS: Final = (str, Calls, Raw, BaseException)
"""A step of the script, or the result of a step that is a function."""


def _no_step(given: object) -> str:
    """Say why the value is not a step, and how to write one."""
    expected = "a step is text, Calls, Raw, an exception, or a function from the request to one of these"
    if isinstance(given, type):
        return f"{expected}; got the class {given.__name__}: pass {given.__name__}(…)"
    forms: dict[type, str] = {
        list: ": pass steps one by one, ScriptedBackend(*steps)",
        tuple: ": pass steps one by one, ScriptedBackend(*steps)",
        bytes: ": a body as it is sent is Raw.body(b'…')",
    }
    return f"{expected}; got {type(given).__name__}{forms.get(type(given), '')}"


class ScriptedBackend:
    """Answers each request with the next step of a script, on both `Chat` and `AsyncChat`.

    Args:
        steps: Text, `Calls`, `Raw` bytes, an exception to raise (such as `BackendError`), or a function from
            the request to one of these. If the function raises anything but a `BackendError`, the test has
            a mistake, and the call raises an AssertionError.
        wire: The provider API of the replies: "openai", "openai-responses" or "anthropic".
        dialect: Your own dialect, instead of the default one of `wire`.
        shape: The JSON of replies for your own dialect. Without it the script takes only `Raw` steps.

    Raises:
        TypeError: A step has another type.
        ValueError: The provider API is unknown.

    Attributes:
        requests: Every `ModelRequest` so far, oldest first.
    """

    def __init__(
        self,
        *steps: Step,
        wire: str = "openai",
        dialect: Dialect | None = None,
        shape: Shape | None = None,
        model: str = "scripted",
        max_retries: int = 0,
        context_window: int | None = None,
    ) -> None:
        if dialect is None and wire not in SHAPES:
            raise ValueError(
                f"no wire {wire!r} to script; there are {', '.join(SHAPES)}, and dialect= takes your own"
            )
        self.dialect: Dialect = dialect if dialect is not None else dialect_of(wire)
        self._shape = shape or SHAPES.get(self.dialect.wire)
        self.model: str | None = model
        self.max_retries = max_retries
        self.context_window = context_window
        self.requests: list[ModelRequest] = []
        self._steps: list[Step] = []
        self.then(*steps)

    def then(self, *steps: Step) -> None:
        """Add steps to the end of the script. Raises TypeError for a value that is no step."""
        for step in steps:
            if not isinstance(step, _ANSWERS) and (isinstance(step, type) or not callable(step)):
                raise TypeError(_no_step(step))
        self._steps.extend(steps)

    def bodies(self) -> list[Any]:
        """The requests' bodies, parsed."""
        return [rawjson.loads(request.body) for request in self.requests]

    def assert_finished(self) -> None:
        """Raise AssertionError if a step of the script was not used."""
        if self._steps:
            raise AssertionError(f"{len(self._steps)} scripted steps were not used")

    def _next(self, request: ModelRequest) -> list[bytes]:
        self.requests.append(request)
        if not self._steps:
            raise AssertionError(f"request {len(self.requests)} came, but the script has no step for it")
        step: Any = self._steps.pop(0)
        if not isinstance(step, _ANSWERS):
            step = self._answer_of(step, request)
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Raw):
            return list(step.chunks)
        if self._shape is None:
            raise AssertionError(
                f"the wire {self.dialect.wire!r} has no shape for text and Calls; pass shape=, or script Raw"
            )
        said = step if isinstance(step, Calls) else Calls((), step)
        body = self._shape.reply(
            said.text,
            said.calls,
            reasoning=said.reasoning,
            model=self.model or "scripted",
            number=len(self.requests),
            sent=len(request.body),
        )
        return self._shape.as_events(body) if request.stream else [rawjson.dumps(body)]

    def _answer_of(self, step: Callable[[ModelRequest], Any], request: ModelRequest) -> Any:
        """The step that a function returns. Its exceptions become an AssertionError, because a chat would
        take them for a failure of the provider."""
        which = f"the function of request {len(self.requests)}"
        try:
            answer = step(request)
        except (BackendError, AssertionError):
            raise
        except Exception as exc:
            raise AssertionError(f"{which} raised {type(exc).__name__}: {exc}") from exc
        if not isinstance(answer, _ANSWERS):
            raise AssertionError(f"{which} returned what is no answer: {_no_step(answer)}")
        return answer

    def send(self, request: ModelRequest) -> ScriptedExchange:
        """Answer with the next step."""
        return ScriptedExchange(self._next(request), len(self.requests))

    async def asend(self, request: ModelRequest) -> AsyncScriptedExchange:
        """As `send`, awaited."""
        return AsyncScriptedExchange(self._next(request), len(self.requests))

    def close(self) -> None:
        """Do nothing: no connection is open."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


class _Chunks:
    def __init__(self, chunks: list[bytes], number: int) -> None:
        self.head = ResponseHead(status=200, request_id=f"scripted-{number}")
        self._chunks = list(chunks)

    def _take(self) -> bytes:
        chunk: Any = self._chunks.pop(0) if self._chunks else b""
        if isinstance(chunk, BackendError):
            raise chunk
        return bytes(chunk)


class ScriptedExchange(_Chunks):
    """The scripted response, read chunk by chunk."""

    def read(self) -> bytes:
        """The next chunk, b"" at the end."""
        return self._take()

    def close(self) -> None:
        """Do nothing: no connection is open."""


class AsyncScriptedExchange(_Chunks):
    """The scripted response, awaited."""

    async def read(self) -> bytes:
        """The next chunk, b"" at the end."""
        return self._take()

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
