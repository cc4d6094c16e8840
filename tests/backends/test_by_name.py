"""Backend strings: what they name, and that naming one loads and opens nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import openai
import pytest

from goaitools_py import AsyncChat, AuthenticationError, Chat
from goaitools_py.backends import AsyncBackend, Backend, BackendError
from goaitools_py.backends.anthropic import backends as anthropic_backends
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.by_name import backend_from_name
from goaitools_py.backends.dialects import WIRES, dialect_of
from goaitools_py.backends.openai import backends as openai_backends
from goaitools_py.testing import ScriptedBackend

Colour = Literal["sync", "async"]

REQUESTS = {
    "openai": ModelRequest(
        path="/chat/completions", body=b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    ),
    "openai-responses": ModelRequest(
        path="/responses",
        body=b'{"model":"m","store":false,"input":[{"role":"user","content":"hi"}]}',
    ),
    "anthropic": ModelRequest(
        path="/v1/messages",
        body=b'{"model":"m","max_tokens":64,"messages":[{"role":"user","content":"hi"}]}',
    ),
}
REQUEST = REQUESTS["openai"]


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nowhere")  # where the anthropic SDK looks for profiles


def named(colour: Colour, name: str) -> Any:
    return (
        backend_from_name(name, is_async=True)
        if colour == "async"
        else backend_from_name(name, is_async=False)
    )


def send(backend: Any) -> bytes:
    """Post a request of its wire through a lazy backend of either colour; the answer's body."""
    request = REQUESTS[backend.dialect.wire]

    async def main() -> bytes:
        try:
            exchange = await backend.asend(request)
            body = b""
            while chunk := await exchange.read():
                body += chunk
            await exchange.aclose()
            return body
        finally:
            await backend.aclose()

    if hasattr(backend, "asend"):
        return asyncio.run(main())
    try:
        exchange = backend.send(request)
        body = b"".join(iter(exchange.read, b""))
        exchange.close()
        return body
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("name", "wire", "model"),
    [
        ("openai:gpt-5.6", "openai", "gpt-5.6"),
        ("openai:qwen3:8b", "openai", "qwen3:8b"),
        ("openai:ft:gpt-5.6:org::id", "openai", "ft:gpt-5.6:org::id"),
        ("openai-responses:gpt-5.6", "openai-responses", "gpt-5.6"),
        ("anthropic:claude-opus-5-5", "anthropic", "claude-opus-5-5"),
        ("anthropic:qwen3:8b", "anthropic", "qwen3:8b"),
        ("sim", "openai", "sim-game-master"),
        ("sim:openai", "openai", "sim-game-master"),
        ("sim:openai-responses", "openai-responses", "sim-game-master"),
        ("sim:anthropic", "anthropic", "sim-game-master"),
    ],
)
def test_name_gives_wire_and_model(colour: Colour, name: str, wire: str, model: str) -> None:
    """Everything after the first colon is the model; the simulator has a model of its own."""
    backend = named(colour, name)

    assert (backend.dialect.wire, backend.model, backend.max_retries) == (wire, model, 2)
    assert isinstance(backend, AsyncBackend if colour == "async" else Backend)


def test_anthropic_dialect_knows_the_model(colour: Colour) -> None:
    """What an Anthropic request may hold depends on the model, so its dialect is told which it is."""
    assert named(colour, "anthropic:claude-opus-5-5").dialect.model == "claude-opus-5-5"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpt-5.6", "unknown backend 'gpt-5.6'; available are 'openai:MODEL'"),
        ("claude", r"unknown backend 'claude'; .* 'anthropic:MODEL' \(Messages\)"),
        ("responses:gpt-5.6", r"unknown backend 'responses:gpt-5.6'; .* 'openai-responses:MODEL'"),
        ("sim:", "unknown backend 'sim:'; available are"),
        ("sim:gpt-5.6", "unknown backend 'sim:gpt-5.6'; available are"),
        ("", "unknown backend ''; available are"),
        ("openai", "names no model; write 'openai:MODEL'"),
        ("openai:", "names no model; write 'openai:MODEL'"),
        ("anthropic", "names no model; write 'anthropic:MODEL'"),
        ("openai-responses:", "names no model; write 'openai-responses:MODEL'"),
    ],
)
def test_other_names_are_refused(colour: Colour, name: str, text: str) -> None:
    """A name that stands for nothing is refused with the names that do."""
    with pytest.raises(ValueError, match=text):
        named(colour, name)


@pytest.mark.parametrize("wire", WIRES)
def test_naming_a_backend_loads_no_sdk(wire: str) -> None:
    """A backend string, its dialect and its model need no SDK, socket or simulator, and no other dialect."""
    code = f"""if True:
        import sys
        from goaitools_py.backends.by_name import backend_from_name
        for name in ("{wire}:m", "sim:{wire}"):
            for is_async in (False, True):
                backend = backend_from_name(name, is_async=is_async)
                assert backend.dialect.wire == "{wire}" and backend.model
        heavy = {{"openai", "httpx", "httpx2", "anthropic", "asyncio", "goaitools_py.sim.server"}}
        dialects = {{"openai_chat.dialect", "openai_responses.dialect", "anthropic.dialect"}}
        dialects = {{"goaitools_py.backends." + name for name in dialects}}
        print(sorted(heavy & set(sys.modules)), len(dialects & set(sys.modules)))
    """

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[] 1"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:m", "OPENAI_BASE_URL"),
        ("openai-responses:m", "OPENAI_BASE_URL"),
        ("anthropic:m", "ANTHROPIC_BASE_URL"),
    ],
)
def test_family_is_that_of_the_environment(
    colour: Colour, name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The family is that of the wire's variable when first asked for, even after the naming, and stays."""
    backend = named(colour, name)

    for either in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(either, "https://wrong.test")
    monkeypatch.setenv(variable, "https://openrouter.ai/api")
    first = backend.dialect.family
    monkeypatch.setenv(variable, "https://other.test")

    assert (first, backend.dialect.family) == ("openrouter.ai", "openrouter.ai")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("openai:m", "openai"),
        ("openai-responses:m", "openai"),
        ("anthropic:m", "anthropic"),
        ("sim:anthropic", "local"),
        ("sim:openai-responses", "local"),
    ],
)
def test_family_without_environment(colour: Colour, name: str, family: str) -> None:
    """Without a variable the server is that of the company that made the wire; the simulator's is local."""
    assert named(colour, name).dialect.family == family


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:m", "OPENAI_API_KEY"),
        ("openai-responses:m", "OPENAI_API_KEY"),
        ("anthropic:m", "ANTHROPIC_API_KEY"),
    ],
)
def test_missing_key_is_an_auth_failure_of_the_call(colour: Colour, name: str, variable: str) -> None:
    """A turn without a key ends as one whose credentials were refused, and says which variable to set."""
    with pytest.raises(BackendError, match=f"set {variable}") as caught:
        send(named(colour, name))

    assert caught.value.kind == "auth"
    assert (caught.value.key_variable, caught.value.bare().key_variable) == (variable, variable)
    with pytest.raises(
        AuthenticationError, match=f"set the environment variable {variable} or pass api_key="
    ):
        Chat(name).chat(user="Hi.")


def test_missing_key_keeps_the_sdks_reason() -> None:
    """What the SDK said stands behind the failure."""
    with pytest.raises(BackendError) as caught:
        send(named("sync", "openai:m"))

    assert isinstance(caught.value.sdk_error, openai.OpenAIError)


@pytest.mark.parametrize(
    ("name", "module", "backend_class"),
    [
        ("openai:m", openai_backends, "OpenAIChatBackend"),
        ("openai-responses:m", openai_backends, "OpenAIResponsesBackend"),
        ("anthropic:m", anthropic_backends, "AnthropicBackend"),
    ],
)
def test_threads_that_come_first_together_share_one_connection(
    name: str, module: Any, backend_class: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many threads make the first call at the same time, one backend is made."""
    made: list[object] = []
    together = threading.Barrier(4)

    class Counted:
        def __init__(self, *_: Any, **__: Any) -> None:
            made.append(self)

        def send(self, _: ModelRequest) -> Any:
            return self

    monkeypatch.setattr(module, backend_class, Counted)
    backend = backend_from_name(name, is_async=False)

    def first_call(_: int) -> object:
        together.wait(60)
        return backend.send(REQUEST)

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(first_call, range(4)))

    assert len(made) == 1
    assert answers == set(made)


@pytest.mark.parametrize("wire", WIRES)
def test_the_event_loop_goes_on_while_its_first_turns_connect(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK is imported and its client is made on another thread, once for all turns that wait for it."""
    loops_turn = threading.Event()
    made: list[threading.Thread] = []

    def slow(model: str) -> ScriptedBackend:
        made.append(threading.current_thread())
        assert loops_turn.wait(5)  # a loop that stands still does not set it
        return ScriptedBackend("One.", "Two.", "Three.", wire=wire)

    monkeypatch.setattr("goaitools_py.backends.by_name._async_class", lambda _: slow)

    async def main() -> list[str]:
        chat = AsyncChat(f"{wire}:m")
        turns = [asyncio.create_task(chat.chat(user="Hello.")) for _ in range(3)]
        while not made:
            await asyncio.sleep(0)
        loops_turn.set()
        return sorted([(await turn).text for turn in turns])

    assert asyncio.run(main()) == ["One.", "Three.", "Two."]
    assert len(made) == 1
    assert made[0] is not threading.current_thread()


def test_closing_what_was_never_used_is_fine(colour: Colour) -> None:
    """A backend that was named but never called closes without connecting."""
    backend = named(colour, "openai:m")

    if colour == "async":
        asyncio.run(backend.aclose())
    else:
        backend.close()


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("sim", b'"choices"'),
        ("sim:openai", b'"choices"'),
        ("sim:openai-responses", b'"output"'),
        ("sim:anthropic", b'"stop_reason"'),
    ],
)
def test_simulator_answers(colour: Colour, name: str, mark: bytes) -> None:
    """ "sim" starts the simulator at the first call, speaks to it, and stops it at close, more than once."""
    backend = named(colour, name)

    bodies = [send(backend), send(backend)]

    assert all(mark in body for body in bodies)


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_turn_with_the_simulator(colour: Colour, wire: str) -> None:
    """A chat named by a string runs two turns on each wire, and its state says which wire it is of."""

    def sync() -> str:
        with Chat(f"sim:{wire}") as chat:
            first = chat.chat_with_state(None, user="My name is Ada.")
            return chat.chat_with_state(first.state, user="What is my name?").text

    async def awaited() -> str:
        async with AsyncChat(f"sim:{wire}") as chat:
            first = await chat.chat_with_state(None, user="My name is Ada.")
            return (await chat.chat_with_state(first.state, user="What is my name?")).text

    assert "Ada" in (sync() if colour == "sync" else asyncio.run(awaited()))


# ------------------------------------------------------------------------------------------- dialects


@pytest.mark.parametrize("wire", WIRES)
def test_dialect_of_a_wire(wire: str) -> None:
    """Each wire's dialect is found by its name, with the company's own family unless told otherwise."""
    assert (dialect_of(wire).wire, dialect_of(wire).family) == (wire, wire.partition("-")[0])
    assert dialect_of(wire, family="local").family == "local"


def test_dialect_of_no_wire_is_refused() -> None:
    """A wire that nobody speaks is refused with those that are spoken."""
    with pytest.raises(
        ValueError, match="the provider API 'gopher'; it speaks openai, openai-responses, anthropic"
    ):
        dialect_of("gopher")
