"""Whoever calls something public wrongly reads names that are public: no class of the inside."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import goaitools_py
from goaitools_py import AsyncChat, AsyncConversation, AsyncTurn, Chat, Conversation, Image, Turn
from goaitools_py.backends import AnthropicBackend, OpenAIChatBackend
from goaitools_py.chat.facade import Facade
from goaitools_py.stores import MemoryStore
from goaitools_py.testing import ScriptedBackend

HOMES = (
    "",
    ".backends",
    ".backends.base",
    ".compaction",
    ".types.events",
    ".types.errors",
    ".frontends",
    ".mcp",
    ".output",
    ".prices",
    ".types.render",
    ".seal",
    ".serve",
    ".sim",
    ".states",
    ".stores",
    ".telemetry",
    ".testing",
    ".tokens",
    ".tools",
)
"""The modules whose names users import."""

LOADS = ("TiktokenCounter",)
"""What downloads a file when it is made."""

CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"no_such_name": 1}),
    ((object(),), {}),
    ((object(), object()), {"no_such_name": 1}),
    ((1,) * 40, {}),
]


def public() -> Iterator[tuple[str, Any]]:
    """Every public callable by its name, with the methods of the classes."""
    seen: set[int] = set()
    for home in HOMES:
        module = importlib.import_module(f"goaitools_py{home}")
        for name in module.__all__:
            found = getattr(module, name)
            if not callable(found) or id(found) in seen or name in LOADS:
                continue
            seen.add(id(found))
            yield name, found
            if inspect.isclass(found):
                for method, function in inspect.getmembers(found, inspect.isroutine):
                    if method[0] != "_":
                        yield f"{name}.{method}", function


PUBLIC = dict(public())
KNOWN = {name.partition(".")[0] for name in PUBLIC}


def of_the_inside() -> set[str]:
    """The names of classes and private functions in the package that no user imports."""
    found: set[str] = set()
    for info in pkgutil.walk_packages(goaitools_py.__path__, "goaitools_py."):
        if ".cli" in info.name or ".integrations.django" in info.name or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if isinstance(value, (type, types.FunctionType)) and value.__module__ == info.name:
                found.add(name)
    return {name for name in found - KNOWN if name[0] == "_" or name[0].isupper()}


INSIDE = of_the_inside()


def texts(call: Callable[..., Any]) -> Iterator[str]:
    """What wrong calls answer, if they are type errors."""
    for args, given in CALLS:
        try:
            made = call(*args, **given)
            if inspect.iscoroutine(made):
                made.close()
        except TypeError as error:
            yield str(error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise


def test_there_is_something_to_look_at() -> None:
    """The names that users know, and those that they do not."""
    assert {"Chat", "Chat.append_to_state", "Image.base64", "PostgresStore.load"} <= PUBLIC.keys()
    assert {"Facade", "KeptFacade", "Handle", "_Media", "_OpenAIBackend"} <= INSIDE


@pytest.mark.parametrize("name", [name for name in PUBLIC if "." not in name])
def test_no_wrong_call_names_a_class_of_the_inside(name: str) -> None:
    """Constructors, functions and methods, called with nothing, with too much and with an unknown name."""
    for label, called in PUBLIC.items():
        if label == name or label.startswith(f"{name}."):
            for text in texts(called):
                words = set(re.findall(r"\w+", text))
                assert not words & INSIDE, (label, text)
                assert "<locals>" not in text, (label, text)


@pytest.mark.parametrize("make", [Chat, AsyncChat])
@pytest.mark.parametrize(
    ("args", "given"),
    [((), {}), ((), {"backend": "sim"}), ((), {"model": "gpt-4o"}), (("sim", None, 3), {})],
)
def test_a_chat_says_how_it_is_made(make: Any, args: Any, given: Any) -> None:
    """What stands without a name, and what to write."""
    with pytest.raises(TypeError) as caught:
        make(*args, **given)

    name = make.__name__
    assert str(caught.value).startswith(f"{name} takes a backend, and then ChatOptions, without a name")
    assert f"{name}('openai:MODEL', system='Be kind.')" in str(caught.value)


@pytest.mark.parametrize(
    ("made", "by"),
    [
        (Conversation, "chat.conversation(store, key)"),
        (AsyncConversation, "chat.conversation(store, key)"),
        (Turn, "chat.start(state, user=…)"),
        (AsyncTurn, "chat.start(state, user=…)"),
    ],
)
def test_what_is_not_made_by_hand_says_who_makes_it(made: Any, by: str) -> None:
    """Its own arguments would mean nothing to a user."""
    with pytest.raises(TypeError) as caught:
        made("ada")

    assert str(caught.value).startswith(f"{made.__name__} is made by {by}")


def test_an_error_of_the_right_call_stays_itself() -> None:
    """The advice is for arguments that do not fit, and not for values of a wrong type."""
    with pytest.raises(TypeError, match="codec must be PLAIN"):
        Chat("sim", codec=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unknown option 'sytem'; did you mean 'system'"):
        Chat("sim", sytem="")  # type: ignore[call-arg]


def test_renamed_methods_are_the_same_ones() -> None:
    """They cost no further call, and help shows their arguments."""
    chat = Chat(ScriptedBackend("Hi."))
    conversation = chat.conversation(MemoryStore(), "ada")

    assert conversation.key == "ada"
    assert Image.base64.__qualname__ == "Image.base64"
    assert Image.from_bytes(b"\x89PNG", "image/png").base64() == "iVBORw=="
    assert "state" in inspect.signature(Chat.append_to_state).parameters
    assert inspect.signature(Chat).parameters.keys() >= {"backend", "codec", "fallbacks"}
    assert Chat.append_to_state.__code__ is Facade.append_to_state.__code__
    for backend in (OpenAIChatBackend, AnthropicBackend):
        with pytest.raises(TypeError, match=rf"^{backend.__name__} takes a model without a name"):
            backend("a", "b")  # type: ignore[misc]
