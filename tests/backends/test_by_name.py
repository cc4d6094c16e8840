"""Backend strings: what they name, and that naming one loads and opens nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import openai
import pytest

from goaitools_py.backends import AsyncBackend, Backend, BackendError, openai_backends
from goaitools_py.backends.base import ModelRequest
from goaitools_py.backends.by_name import backend_from_name

Colour = Literal["sync", "async"]

REQUEST = ModelRequest(
    path="/chat/completions", body=b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
)


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    return request.param


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def named(colour: Colour, name: str) -> Any:
    return (
        backend_from_name(name, is_async=True)
        if colour == "async"
        else backend_from_name(name, is_async=False)
    )


def send(backend: Any) -> bytes:
    """Post a request through a lazy backend of either colour; the answer's body."""

    async def main() -> bytes:
        try:
            exchange = await backend.asend(REQUEST)
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
        exchange = backend.send(REQUEST)
        body = b"".join(iter(exchange.read, b""))
        exchange.close()
        return body
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai:gpt-5.6", "gpt-5.6"),
        ("openai:qwen3:8b", "qwen3:8b"),
        ("openai:ft:gpt-5.6:org::id", "ft:gpt-5.6:org::id"),
        ("sim", "sim-game-master"),
        ("sim:openai", "sim-game-master"),
    ],
)
def test_name_gives_wire_and_model(colour: Colour, name: str, model: str) -> None:
    """Everything after the first colon is the model; the simulator has a model of its own."""
    backend = named(colour, name)

    assert (backend.dialect.wire, backend.model, backend.max_retries) == ("openai", model, 2)
    assert isinstance(backend, AsyncBackend if colour == "async" else Backend)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("anthropic:claude", "comes with a later version; available are 'openai:MODEL'"),
        ("openai-responses:gpt-5.6", "comes with a later version; available are 'openai:MODEL'"),
        ("sim:anthropic", "comes with a later version; available are 'openai:MODEL'"),
        ("gpt-5.6", "unknown backend 'gpt-5.6'; available are 'openai:MODEL'"),
        ("sim:gpt-5.6", "unknown backend 'sim:gpt-5.6'; available are"),
        ("", "unknown backend ''; available are"),
        ("openai", "names no model; write 'openai:MODEL'"),
        ("openai:", "names no model; write 'openai:MODEL'"),
    ],
)
def test_other_names_are_refused(colour: Colour, name: str, text: str) -> None:
    """A name that stands for nothing is refused with the names that do."""
    with pytest.raises(ValueError, match=text):
        named(colour, name)


def test_naming_a_backend_loads_no_sdk() -> None:
    """A backend string, its dialect and its model need neither an SDK nor a socket nor the simulator."""
    code = """if True:
        import sys
        from goaitools_py.backends.by_name import backend_from_name
        for name in ("openai:m", "sim"):
            for is_async in (False, True):
                backend = backend_from_name(name, is_async=is_async)
                assert backend.dialect.wire == "openai" and backend.model
        heavy = {"openai", "httpx", "httpx2", "anthropic", "asyncio", "goaitools_py.sim.server"}
        print(sorted(heavy & set(sys.modules)))
    """

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


def test_family_is_that_of_the_environment(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    """The family is that of OPENAI_BASE_URL when first asked for, even after the naming, and stays."""
    backend = named(colour, "openai:m")

    monkeypatch.setenv("OPENAI_BASE_URL", "https://openrouter.ai/api/v1")
    first = backend.dialect.family
    monkeypatch.setenv("OPENAI_BASE_URL", "https://other.test/v1")

    assert (first, backend.dialect.family) == ("openrouter.ai", "openrouter.ai")


def test_family_without_environment_is_openai(colour: Colour) -> None:
    """Without OPENAI_BASE_URL the server is OpenAI's."""
    assert named(colour, "openai:m").dialect.family == "openai"


def test_missing_key_is_an_auth_failure_of_the_call(colour: Colour) -> None:
    """A turn without a key ends as one whose credentials were refused, and says which variable to set."""
    with pytest.raises(BackendError, match="set OPENAI_API_KEY") as caught:
        send(named(colour, "openai:m"))

    assert caught.value.kind == "auth"
    assert isinstance(caught.value.__cause__, openai.OpenAIError)


def test_threads_that_come_first_together_share_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads make the first call at the same time, one backend is made."""
    made: list[object] = []
    together = threading.Barrier(4)

    class Counted:
        def __init__(self, *_: Any, **__: Any) -> None:
            made.append(self)

        def send(self, _: ModelRequest) -> Any:
            return self

    monkeypatch.setattr(openai_backends, "OpenAIChatBackend", Counted)
    backend = backend_from_name("openai:m", is_async=False)

    def first_call(_: int) -> object:
        together.wait(10)
        return backend.send(REQUEST)

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(first_call, range(4)))

    assert len(made) == 1
    assert answers == set(made)


def test_closing_what_was_never_used_is_fine(colour: Colour) -> None:
    """A backend that was named but never called closes without connecting."""
    backend = named(colour, "openai:m")

    if colour == "async":
        asyncio.run(backend.aclose())
    else:
        backend.close()


@pytest.mark.parametrize("name", ["sim", "sim:openai"])
def test_simulator_answers(colour: Colour, name: str) -> None:
    """ "sim" starts the simulator at the first call, speaks to it, and stops it at close, more than once."""
    backend = named(colour, name)

    bodies = [send(backend), send(backend)]

    assert all(b'"choices"' in body for body in bodies)
