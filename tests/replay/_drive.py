"""Carries out a script: every call of the chat with a new chat, the state as bytes in between.

Owns: the two colours, the provider that answers with given bytes, tools that return given results.
Must never know: where a script came from, or what is right about a request.
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
    Message,
    ToolContext,
    TurnError,
    inspect_state,
    user,
)
from goaitools_py.backends import AsyncOpenAIChatBackend, OpenAIChatBackend
from goaitools_py.testing import Raw, ScriptedBackend

from ._script import Answer, Ask, Calls, Endpoint, Script, completion, settings_of, tools_of

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
]

GO_ON = {"role": "user", "content": "Go on."}
"""What is said where the recorded client asked again with nothing new to say."""

_PATH = "/chat/completions"


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
        return made(backend, tool_threads=False, timeout=None, max_iterations=10_000, **defaults)

    def backend(self, model: str | None, **options: Any) -> Any:
        return (AsyncOpenAIChatBackend if self.is_async else OpenAIChatBackend)(model, **options)

    def http_client(self, handler: Callable[[httpx2.Request], httpx2.Response]) -> Any:
        made = httpx2.AsyncClient if self.is_async else httpx2.Client
        return made(transport=httpx2.MockTransport(handler))

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


# ----------------------------------------------------------------------------------------- the provider


class _Provider:
    """Answers each request with the next of the given answers; the last one again if it was an error."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._asks = asks
        self.sent: list[bytes] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request.content)
        ask = self._asks[min(len(self.sent), len(self._asks)) - 1]
        assert str(request.url) == ask.endpoint.url
        answer = ask.answer
        if len(self.sent) > len(self._asks) and answer.status == 200:
            answer = Answer(body=completion({"role": "assistant", "content": "Nothing more was recorded."}))
        headers = {"content-type": answer.content_type}
        return httpx2.Response(answer.status, content=answer.body, headers=headers)


def served(colour: Colour, asks: Sequence[Ask]) -> tuple[Any, list[bytes]]:
    """A backend over the official SDK whose network is a `_Provider`; and the bodies that it was sent."""
    provider = _Provider(asks)
    base, _, query = asks[0].endpoint.url.partition(_PATH)
    backend = colour.backend(
        None,
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


def scripted(colour: Colour, asks: Sequence[Ask]) -> tuple[Any, Sequence[bytes]]:
    """A backend that answers without any HTTP."""
    backend = ScriptedBackend(*(Raw.body(ask.answer.body) for ask in asks))
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
    """A call of the chat that ended in an error: what it was given and raised, and the requests it made."""

    calls: Calls
    state: bytes | None = field(repr=False)
    error: TurnError
    made: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """What became of a script.

    Attributes:
        sent: The request bodies, one for each ask that was made, in order.
        asks: The asks that were made.
        states: The blob after each call of the chat.
    """

    asks: tuple[Ask, ...] = field(repr=False)
    sent: tuple[bytes, ...] = field(repr=False)
    states: tuple[bytes, ...] = field(repr=False)
    result: ChatResult | None = field(default=None, repr=False)
    failed: Failed | None = None


Connect = Callable[[Colour, Sequence[Ask]], tuple[Any, Sequence[bytes]]]
"""Makes a backend that gives the answers of some asks, and the list of what it is sent."""


def recorded_tools(endpoint: Endpoint, tools: Tools) -> Sequence[Any]:
    """The tools that the recorded client offered."""
    return tuple(tools_of(endpoint.body.get("tools") or (), tools.run))


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
        backend, bodies = connect(colour, calls.asks)
        own = Tools([*(each for ask in calls.asks[1:] for each in ask.results), *after])
        try:
            chat = colour.chat(backend, tools=recorded_tools(calls.asks[0].endpoint, own))
        except ValueError as refused:
            raise NotDrivable(f"its tools are refused: {refused}") from refused
        try:
            outcome = _call(colour, chat, state, script.preamble, calls, bodies)
            state = outcome.state
        except CheckpointError as paused:
            if not isinstance(paused.__cause__, _Pause):
                raise
            outcome, state = None, paused.state
        except TurnError as error:
            failed = Failed(calls=calls, state=state, error=error, made=len(bodies))
            made = min(len(bodies), len(calls.asks))
            asks += calls.asks[:made]
            sent += [*bodies[: made - 1], *bodies[-1:]]  # a request may have been cut and sent again
            return Driven(asks=tuple(asks), sent=tuple(sent), states=(*states, error.state), failed=failed)
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
    preamble: tuple[Message, ...],
    calls: Calls,
    sent: Sequence[bytes],
) -> ChatResult:
    """Make one call of the chat as the recorded client would have made it."""

    def pause(blob: bytes) -> None:
        if len(sent) == len(calls.asks) and not inspect_state(blob).open_calls:
            raise _Pause

    first = calls.asks[0]
    said = list(first.messages)
    if not said and not calls.resumes:
        said = [user(GO_ON["content"])]
    while state and said and said[0].role == "system":  # at the front of a call it would be preamble
        state = chat.append_to_state(state, said.pop(0))
    options: dict[str, Any] = {
        "messages": (*preamble, *said),
        "settings": settings_of(first.endpoint.body),
        "on_checkpoint": pause,
    }
    if first.endpoint.is_streamed and not calls.resumes:
        return colour.settle(chat.start(state, **options).result())  # type: ignore[no-any-return]
    if first.endpoint.is_streamed:  # `resume` streams if somebody listens
        options["on_event"] = lambda event: None
    call = chat.resume if calls.resumes else chat.chat_with_state
    return colour.settle(call(state, **options))  # type: ignore[no-any-return]
