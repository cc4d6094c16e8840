"""Ten mistakes of the first hour: each is one error, or one warning, with its place and the cure.

Owns: the texts that a beginner reads. Must never know: how a turn finds the mistake.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    PLAIN,
    AsyncChat,
    AuthenticationError,
    Chat,
    ModelSettings,
    ProviderRejectedError,
    StateFormatError,
    ToolContext,
    tool,
)
from goaitools_py.backends import AnthropicBackend, OpenAIChatBackend, OpenAIResponsesBackend
from goaitools_py.sim import Fault, SimServer
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

APIS: list[tuple[str, Callable[..., Any], str]] = [
    ("openai", OpenAIChatBackend, "OPENAI_API_KEY"),
    ("openai-responses", OpenAIResponsesBackend, "OPENAI_API_KEY"),
    ("anthropic", AnthropicBackend, "ANTHROPIC_API_KEY"),
]
each_api = pytest.mark.parametrize(("api", "backend", "variable"), APIS, ids=[name for name, _, _ in APIS])


@tool
def get_score(ctx: ToolContext[dict[str, int]], team: str) -> int:
    """Current score of one team."""
    return ctx.deps[team]


def told(error: BaseException, *words: str) -> None:
    """The text has one line and these words."""
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error), str(error)


@each_api
def test_no_key(api: str, backend: Any, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, before anything is sent."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    with Chat(f"{api}:MODEL") as chat, pytest.raises(AuthenticationError) as found:
        chat.chat(user="Hello.")

    told(found.value, f"environment variable {variable}", "api_key=")


@each_api
def test_a_wrong_key(api: str, backend: Any, variable: str) -> None:
    """The variable that it may come from is named, and the key is not."""
    with SimServer() as sim, Chat(backend("m", base_url=sim.base_url_for(api), api_key="sk-mine")) as chat:
        sim.push(Fault.unauthorized())
        with pytest.raises(AuthenticationError) as found:
            chat.chat(user="Hello.")

    told(found.value, variable, "api_key=", "401")
    assert "sk-mine" not in str(found.value)


@each_api
@pytest.mark.parametrize("of_the_turn", [False, True])
def test_a_wrong_model(api: str, backend: Any, variable: str, of_the_turn: bool) -> None:
    """The model that was asked is named."""
    with SimServer() as sim, Chat(backend("right", base_url=sim.base_url_for(api), api_key="k")) as chat:
        sim.push(Fault.not_found())
        settings = ModelSettings(model="wrong") if of_the_turn else None
        with pytest.raises(ProviderRejectedError) as found:
            chat.chat(user="Hello.", settings=settings)

    told(found.value, f"model's name {'wrong' if of_the_turn else 'right'!r}", "base_url=")


def test_a_parameter_without_an_annotation() -> None:
    """The function and its parameter are named."""

    def look(place):  # type: ignore[no-untyped-def]
        """Look at a place."""

    with pytest.raises(TypeError) as found:
        Chat("sim", tools=[look])

    told(found.value, "'place'", "look()", "place: str")


@pytest.mark.parametrize("chat", [Chat, AsyncChat])
def test_forgotten_deps(chat: Any) -> None:
    """The tool and the argument are named, before a model is asked."""
    scripted = ScriptedBackend(Calls([("get_score", {"team": "Red"})]))

    def ask() -> object:
        given = chat(scripted, tools=[get_score]).chat(user="The score?")
        return asyncio.run(given) if inspect.iscoroutine(given) else given

    with pytest.raises(TypeError) as found:
        ask()

    told(found.value, "'get_score'", "deps=")
    assert scripted.requests == []


def test_a_result_in_place_of_its_state() -> None:
    """The attribute is named."""
    with Chat(ScriptedBackend("Hello.")) as chat:
        result = chat.chat(user="Hello.")
        with pytest.raises(TypeError) as found:
            chat.chat_with_state(result, user="And now?")  # type: ignore[arg-type]

    told(found.value, "ChatResult", ".state")


def test_text_in_place_of_bytes() -> None:
    """Its form is recognised, and the function that reads it is named."""
    with Chat(ScriptedBackend("Hello.")) as chat:
        state = chat.chat(user="Hello.").state
        with pytest.raises(StateFormatError) as found:
            chat.chat_with_state(base64.b64encode(state).decode(), user="Now?")  # type: ignore[arg-type]

    told(found.value, "bytes", "base64.b64decode")


def test_a_chat_in_a_running_loop() -> None:
    """The warning names the caller's line, and the class to use."""

    async def ask() -> None:
        Chat(ScriptedBackend("Hello.")).chat(user="Hello.")
        await asyncio.sleep(0)

    with pytest.warns(RuntimeWarning, match="use AsyncChat, and await") as found:
        asyncio.run(ask())

    (warning,) = found
    assert warning.filename == __file__
    lines, start = inspect.getsourcelines(test_a_chat_in_a_running_loop)
    assert ".chat(user=" in lines[warning.lineno - start]


@pytest.mark.filterwarnings("error")
def test_await_on_a_chat() -> None:
    """It is one error, which names the class to use, and no model was asked."""
    scripted = ScriptedBackend("Hello.")
    chat, fields = Chat(scripted), {"user": "Hello."}
    conversation = chat.conversation(MemoryStore(), "ada")

    async def ask(n: int) -> None:
        if n == 0:
            await chat.chat(user="Hello.")  # type: ignore[misc]
        if n == 1:
            await chat.chat(**fields)  # type: ignore[misc,arg-type]
        if n == 2:
            _, _ = await chat.chat_with_state(None, user="Hello.")  # type: ignore[misc]
        await conversation.send("Hello.")  # type: ignore[misc]

    for n in range(4):
        with pytest.raises(TypeError) as found:
            asyncio.run(ask(n))
        told(found.value, "await on a Chat", "use AsyncChat")
    assert scripted.requests == []


def test_with_of_the_other_colour() -> None:
    """The error names the class, and the word, that go together."""

    async def enter() -> None:
        async with Chat("sim"):  # type: ignore[attr-defined]
            pass

    with pytest.raises(TypeError) as found:
        asyncio.run(enter())
    told(found.value, "'async with' on a Chat", "AsyncChat")
    with pytest.raises(TypeError) as found, AsyncChat("sim"):  # type: ignore[attr-defined]
        pass
    told(found.value, "'with' on an AsyncChat", "'async with'")


def test_no_warning_without_a_loop_or_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread the loop goes on; a notebook has a loop of its own."""

    def ask() -> str:
        return Chat(ScriptedBackend("Hello.")).chat(user="Hello.").text

    async def in_a_thread() -> str:
        return await asyncio.to_thread(ask)

    async def in_a_cell() -> str:
        return ask()

    assert asyncio.run(in_a_thread()) == "Hello."
    monkeypatch.setitem(__import__("sys").modules, "ipykernel", inspect)
    assert asyncio.run(in_a_cell()) == "Hello."


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Chat("sim", temperature=0.2), ("'temperature'", "settings=ModelSettings(temperature=…)")),
        (lambda: Chat("sim", turn_id="m1"), ("'turn_id'", "pass it to the call")),
        (lambda: Chat("sim").chat(user="x", codec=PLAIN), ("'codec'", "Chat(MODEL, codec=…)")),
        (lambda: Chat("sim", api_key="x"), ("'api_key'", "OpenAIChatBackend(MODEL, api_key=…)")),
        (lambda: Chat("sim").chat("Hello."), ("options", "user=")),
        (lambda: ModelSettings(max_tokens=5), ("'max_tokens'", "'max_output_tokens'")),  # type: ignore[call-arg]
    ],
)
def test_an_option_in_the_wrong_place(call: Callable[[], object], words: tuple[str, ...]) -> None:
    """The option and its place are named."""
    with pytest.raises(TypeError) as found:
        call()

    told(found.value, *words)
