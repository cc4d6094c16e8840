"""An option in the wrong place is answered with where it belongs; help shows each face as it is."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    AsyncConversation,
    AsyncTurn,
    Chat,
    Conversation,
    Turn,
    user,
)
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.options import OPTION_NAMES, PER_TURN

KEPT = ["save", "gate", "concurrent_turns", "lease_ttl", "save_timeout"]
ELSEWHERE = [*KEPT, "codec", "dry_run", "answers", "store", "key", "base_url", "max_cost_usd", "idempotent"]
OPTIONS = sorted(OPTION_NAMES)
TURN = ["chat", "chat_with_state", "start", "resume", "run_turns", "count_tokens", "compact_state"]
KEPT_TURN = ["send", "start", "resume", "compact"]


@pytest.fixture(params=["sync", "async"])
def chat(request: Any) -> Any:
    """A chat of each colour whose provider must not be asked."""
    return (Chat if request.param == "sync" else AsyncChat)(ScriptedBackend())


@pytest.fixture
def conversation(chat: Any) -> Any:
    """A conversation of that chat."""
    return chat.conversation(MemoryStore() if type(chat) is Chat else AsyncMemoryStore(), "ada")


def refused(called: Any, *args: Any, **given: Any) -> str:
    """The text of the TypeError that a call raises, awaited or not."""

    def call() -> None:
        answer = called(*args, **given)
        if inspect.isawaitable(answer):
            answer.__await__().send(None)

    with pytest.raises(TypeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in TURN
        for name in ELSEWHERE
        if (method, name) != ("compact_state", "dry_run")
    ],
)
def test_what_is_no_option_of_a_turn_says_where_it_belongs(chat: Any, method: str, name: str) -> None:
    """Every method of a chat that takes options; nothing is sent."""
    args = [] if method == "chat" else [None, ["Hello."]] if method == "run_turns" else [None]

    text = refused(getattr(chat, method), *args, **{name: 1})

    assert re.search(rf"'{name}'.*belongs to", text), text


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (method, name)
        for method in KEPT_TURN
        for name in ELSEWHERE
        if (method, name) not in {("compact", "dry_run"), ("send", "gate"), ("start", "gate")}
    ],
)
def test_a_kept_conversation_says_where_it_belongs(conversation: Any, method: str, name: str) -> None:
    """Every method of a conversation that takes options."""

    text = refused(getattr(conversation, method), **{name: 1})

    assert re.search(rf"'{name}'.*belongs to", text), text


@pytest.mark.parametrize("name", [*KEPT, "dry_run", "answers", "base_url"])
@pytest.mark.parametrize("face", [Chat, AsyncChat])
def test_a_chat_says_where_it_belongs(face: Any, name: str) -> None:
    """What cannot be a default of a chat either."""
    text = refused(face, ScriptedBackend(), **{name: 1})

    assert re.search(rf"'{name}'.*belongs to", text), text


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_turns_is_not_one_of_other_methods(chat: Any, conversation: Any, name: str) -> None:
    """Making, forking, appending: the text names the turn, and the chat if the option may be a default."""
    store = MemoryStore() if type(chat) is Chat else AsyncMemoryStore()
    calls = [
        (chat.conversation, (store, "bob")),
        (chat.append_to_state, (None, user("Hello."))),
        (conversation.append, (user("Hello."),)),
        (conversation.fork, ("bob",)),
        (conversation.rewind, ()),
        (conversation.undo_cut, ()),
    ]

    for called, args in calls:
        if name in inspect.signature(called).parameters:
            continue
        text = refused(called, *args, **{name: 1})
        assert re.search(rf"{called.__name__}\(\).*'{name}'.*belongs to .*{name}=…", text), text
        assert ("Chat(" in text) is (name not in PER_TURN)


def test_what_is_unknown_everywhere_has_no_place(chat: Any) -> None:
    """A name that nothing has is told as such."""
    text = refused(chat.append_to_state, None, user("Hello."), wholly_unknown=1)

    assert text == "append_to_state() has no option 'wholly_unknown', and no turn has"


# ------------------------------------------------------------------------------------------------- help

TWINS = [(Chat, AsyncChat), (Conversation, AsyncConversation), (Turn, AsyncTurn)]


def methods(face: type[Any]) -> dict[str, Any]:
    """The public methods of a class by name."""
    return {
        name: member
        for name, member in inspect.getmembers(face)
        if not name.startswith("_") and callable(member)
    }


@pytest.mark.parametrize(("sync", "twin"), TWINS, ids=lambda face: face.__name__)
def test_the_async_twin_has_help_of_its_own(sync: type[Any], twin: type[Any]) -> None:
    """Each method is documented whole where it stands: what it does, what it takes and raises; no reference
    to the other colour takes the place of it."""
    assert twin.__doc__
    assert not twin.__doc__.startswith("As `")
    for name, method in methods(twin).items():
        doc = inspect.getdoc(method) or ""
        other = getattr(sync, name, None)
        shared = getattr(other, "__code__", 0) is getattr(method, "__code__", None)
        assert doc, f"{twin.__name__}.{name}"
        assert shared or not doc.startswith("As `"), f"{twin.__name__}.{name}"
        if inspect.iscoroutinefunction(method) and name in vars(sync):
            sections = [
                word for word in ("Args:", "Returns:", "Raises:") if word in (inspect.getdoc(other) or "")
            ]
            assert [word for word in sections if word not in doc] == [], f"{twin.__name__}.{name}"
            assert len(doc) > 0.7 * len(inspect.getdoc(other) or ""), f"{twin.__name__}.{name}"


@pytest.mark.parametrize("face", [face for pair in TWINS for face in pair], ids=lambda face: face.__name__)
def test_completion_offers_only_documented_methods(face: type[Any]) -> None:
    """Each name that completion offers on a class has a docstring."""
    offered = [name for name in dir(face) if not name.startswith("_")]

    assert offered
    assert [name for name in offered if not inspect.getdoc(inspect.getattr_static(face, name))] == []
