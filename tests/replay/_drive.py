"""Carries out a script: every call of the chat with a new chat, the state as bytes in between.

Owns: the two colours, the provider that answers with given bytes, tools that return given results.
Must never know: where a script came from, what is right about a request, or a particular wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import httpx2

from goaitools_py import (
    AsyncChat,
    Chat,
    ChatResult,
    CheckpointError,
    Limits,
    Message,
    Tool,
    ToolContext,
    TurnError,
    user,
)
from goaitools_py.states import inspect_state
from goaitools_py.testing import Raw, ScriptedBackend

from ._script import Answer, Ask, Calls, Endpoint, Script
from ._wire import Wire

__all__ = [
    "GO_ON",
    "Colour",
    "Driven",
    "Failed",
    "NotDrivable",
    "Tools",
    "drive",
    "recorded_tools",
    "scripted",
    "served",
    "spoken",
]

GO_ON = "Go on."
"""What is said where the recorded client asked again with nothing new to say."""


class Colour:
    """Either colour's chat and backend, used in plain code."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async
        self._runner = asyncio.Runner() if is_async else None

    def settle(self, answer: Any) -> Any:
        """The answer; on the async side, once it has been awaited."""
        if self._runner is None:
            return answer

        async def wait() -> Any:
            return await answer

        return self._runner.run(wait())

    def chat(self, backend: Any, **defaults: Any) -> Any:
        """A chat whose tools run one after another in this thread."""
        made = AsyncChat if self.is_async else Chat
        return made(
            backend, tool_threads=False, timeout=None, limits=Limits(max_iterations=10_000), **defaults
        )

    def backend(self, wire: Wire, model: str, **options: Any) -> Any:
        """A backend of this colour over the wire's official SDK."""
        return wire.backend(is_async=self.is_async)(model, **options)

    def http_client(self, handler: Callable[[httpx2.Request], httpx2.Response]) -> Any:
        made = httpx2.AsyncClient if self.is_async else httpx2.Client
        return made(transport=httpx2.MockTransport(handler))

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


# ----------------------------------------------------------------------------------------- the provider


class _Provider:
    """Answers each request with the next of the given answers; the last one again if it was an error."""

    def __init__(self, wire: Wire, asks: Sequence[Ask]) -> None:
        self._wire = wire
        self._asks = asks
        self.sent: list[bytes] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request.content)
        ask = self._asks[min(len(self.sent), len(self._asks)) - 1]
        assert str(request.url) == ask.endpoint.url
        answer = ask.answer
        if len(self.sent) > len(self._asks) and answer.status == 200:
            answer = Answer(body=spoken(self._wire, "Nothing more was recorded."))
        headers = {"content-type": answer.content_type}
        return httpx2.Response(answer.status, content=answer.body, headers=headers)


def spoken(wire: Wire, text: str) -> bytes:
    """A whole answer that says a text."""
    return wire.completion([{"role": "assistant", "content": text}])


def served(wire: Wire, colour: Colour, asks: Sequence[Ask]) -> tuple[Any, list[bytes]]:
    """A backend over the official SDK whose network is a `_Provider`; and the bodies that it was sent."""
    provider = _Provider(wire, asks)
    endpoint = asks[0].endpoint
    base, _, query = endpoint.url.partition(wire.path)
    backend = colour.backend(
        wire,
        endpoint.body.get("model") or "unnamed",
        http_client=colour.http_client(provider),
        base_url=base,
        api_key="recorded",
        max_retries=0,
        default_query=dict(parse_qsl(query.removeprefix("?"))),
    )
    return backend, provider.sent


class _Sent(Sequence[bytes]):
    """The bodies that a scripted backend was sent."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    def __len__(self) -> int:
        return len(self._backend.requests)

    def __getitem__(self, at: Any) -> Any:
        return [request.body for request in self._backend.requests][at]


def scripted(wire: Wire, colour: Colour, asks: Sequence[Ask]) -> tuple[Any, Sequence[bytes]]:
    """A backend that answers without any HTTP."""
    backend = ScriptedBackend(*(Raw.body(ask.answer.body) for ask in asks), wire=wire.name)
    return backend, _Sent(backend)


# ------------------------------------------------------------------------------------------------ tools


class Tools:
    """Tools that return recorded results. Calls whose ids were rewritten get theirs in order."""

    def __init__(self, results: Iterable[tuple[str, Any]]) -> None:
        self._results = list(results)

    def run(self, context: ToolContext[Any], /, **arguments: Any) -> Any:
        if not self._results:
            return "nothing was recorded"
        ids = [call_id for call_id, _ in self._results]
        at = ids.index(context.call_id) if context.call_id in ids else 0
        return self._results.pop(at)[1]


# ---------------------------------------------------------------------------------------------- driving


class NotDrivable(Exception):
    """A rule of the package stops what the recorded client went on with; the text says which."""


class _Pause(Exception):
    """The process ends here: tools have run, the model has not been asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A call of the chat that ended in an error: what it was given and raised, and the requests it made.

    `last` is the last of them; it may say less than the first one of its ask, if that was cut and sent again,
    or say it in another form. `first` is that first one.
    """

    story: Script = field(repr=False)
    calls: Calls
    state: bytes | None = field(repr=False)
    error: TurnError
    made: int
    last: bytes = field(repr=False)
    first: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What became of a script.

    Attributes:
        sent: The request bodies, the first one of each ask that was made, in order.
        again: Bodies of further requests of an ask: it was cut, or had to do without signed blocks.
        asks: The asks that were made.
        states: The blob after each call of the chat.
    """

    asks: tuple[Ask, ...] = field(repr=False)
    sent: tuple[bytes, ...] = field(repr=False)
    again: tuple[bytes, ...] = field(default=(), repr=False)
    states: tuple[bytes, ...] = field(repr=False)
    result: ChatResult | None = field(default=None, repr=False)
    failed: Failed | None = None


Connect = Callable[[Wire, Colour, Sequence[Ask]], tuple[Any, Sequence[bytes]]]
"""Makes a backend that gives the answers of some asks, and the list of what it is sent."""


def recorded_tools(story: Script, endpoint: Endpoint, tools: Tools) -> Sequence[Any]:
    """The tools that the recorded client offered, and open ones of names that made-up answers call."""
    offered = tuple(story.wire.tools(endpoint.body, tools.run))
    known = {tool.name for tool in offered if isinstance(tool, Tool)}
    return (*offered, *(Tool(name, "", _OPEN, tools.run) for name in story.names if name not in known))


_OPEN = {"type": "object", "properties": {}}


def drive(colour: Colour, script: Script, *, connect: Connect) -> Driven:
    """Drive a script to its end, or to its first error. What nothing answers at its end is left out.

    Raises:
        NotDrivable: A client of this package could not have gone on as the recorded one did.
    """
    state: bytes | None = None
    asks: list[Ask] = []
    sent: list[bytes] = []
    states: list[bytes] = []
    outcome: ChatResult | None = None
    following = [*(calls.asks[0].results for calls in script.calls[1:]), script.results]
    for calls, after in zip(script.calls, following, strict=False):
        backend, bodies = connect(script.wire, colour, calls.asks)
        own = Tools([*(each for ask in calls.asks[1:] for each in ask.results), *after])
        try:
            chat = colour.chat(backend, tools=recorded_tools(script, calls.asks[0].endpoint, own))
        except ValueError as refused:
            raise NotDrivable(f"its tools are refused: {refused}") from refused
        try:
            outcome = _call(colour, chat, state, script, calls, bodies)
            state = outcome.state
        except ValueError as refused:
            if bodies:
                raise
            # before anything was asked: the package takes no such words
            raise NotDrivable(f"its words are refused: {refused}") from refused
        except CheckpointError as paused:
            if not isinstance(paused.sdk_error, _Pause):
                raise
            outcome, state = None, paused.state
        except TurnError as error:
            failed = Failed(
                story=script,
                calls=calls,
                state=state,
                error=error,
                made=len(bodies),
                last=bytes(bodies[-1]),
                first=bytes(bodies[min(len(bodies), len(calls.asks)) - 1]),
            )
            made = min(len(bodies), len(calls.asks))
            asks += calls.asks[:made]
            sent += bodies[:made]
            return Driven(
                asks=tuple(asks),
                sent=tuple(sent),
                again=tuple(bodies[made:]),
                states=(*states, error.state),
                failed=failed,
            )
        _check_end(outcome, calls, made=len(bodies), is_awaited=bool(after))
        asks += calls.asks
        sent += bodies
        states.append(state)
    return Driven(asks=tuple(asks), sent=tuple(sent), states=tuple(states), result=outcome)


def _check_end(outcome: ChatResult | None, calls: Calls, *, made: int, is_awaited: bool) -> None:
    """Make sure that a call of the chat ended where the recording goes on; None means at a pause."""
    is_right = made == len(calls.asks) and not (is_awaited and outcome is not None)
    if not is_right and outcome is not None and outcome.status != "complete":
        raise NotDrivable(f"the turn ended as {outcome.status!r}")
    assert is_right, f"{len(calls.asks)} model calls were recorded, {made} made"


def _call(
    colour: Colour,
    chat: Any,
    state: bytes | None,
    story: Script,
    calls: Calls,
    sent: Sequence[bytes],
) -> ChatResult:
    """Make one call of the chat as the recorded client would have made it."""

    def pause(blob: bytes) -> None:
        info = inspect_state(blob)
        if len(sent) == len(calls.asks) and info.status == "in_progress" and not info.open_calls:
            raise _Pause

    first = calls.asks[0]
    said: list[Message] = list(first.messages)
    if not said and not calls.resumes:
        said = [user(GO_ON)]
    while state and said and said[0].role == "system":  # at the front of a call it would be preamble
        state = chat.append_to_state(state, said.pop(0))
    options: dict[str, Any] = {
        "messages": (*first.endpoint.preamble, *story.preamble, *said),
        "settings": story.wire.settings(first.endpoint.body),
        "on_checkpoint": pause,
        "on_pending": "deny",  # what the recorded client did not answer is closed before its next words
    }
    if first.endpoint.is_streamed and not calls.resumes:
        return colour.settle(chat.start(state, **options).result())  # type: ignore[no-any-return]
    if first.endpoint.is_streamed:  # `resume` streams if somebody listens
        options["on_event"] = lambda event: None
    call = chat.resume if calls.resumes else chat.chat_with_state
    return colour.settle(call(state, **options))  # type: ignore[no-any-return]
