"""A tool that fails in a way of its own is told: in the log, as a warning, or before the turn begins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pytest
from pydantic import AfterValidator

from goaitools_py import AbortTurn, Chat, Tool, ToolContext, ToolError, ToolFailedError, tool
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

SECRET = "canary"
HERE = str(Path(__file__))
T = TypeVar("T")


@dataclass
class Game:
    """What tools work on."""

    score: int = 7


def line_of(words: str) -> int:
    """The number of the only line of this file that ends with these words."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.endswith(words))
    return found


@tool
def broken(text: str) -> str:
    """Raises in its own line."""
    raise KeyError(SECRET)  # own line


@tool
def deeper(text: str) -> str:
    """Raises in code that it calls, of another file."""
    return Path(f"/nowhere/{text}").read_text(encoding="utf-8")  # deeper line


def passes_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@tool
@passes_on
def wrapped(text: str) -> str:
    """Raises behind a decorator."""
    raise LookupError(SECRET)  # wrapped line


@tool
def odd(text: str) -> Any:
    """Returns what no result can be."""
    return Endless()


@tool
def meant(text: str) -> str:
    """Raises words for the model."""
    raise ToolError(SECRET)


@tool
def leaves(text: str) -> str:
    """Ends the turn."""
    raise AbortTurn


def refuse(text: str) -> str:
    raise ZeroDivisionError(SECRET)  # check line


@tool
def checks(text: Annotated[str, AfterValidator(refuse)]) -> str:
    """Has a validator that fails."""
    return text


@tool(requires_approval=lambda arguments: bool(1 / 0))
def asks(text: str) -> str:
    """Cannot say whether it needs an approval."""
    return text


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The lines at ERROR about tools."""
    with caplog.at_level(logging.DEBUG):
        yield lambda: [
            record.getMessage()
            for record in caplog.records
            if record.name == "goaitools_py.tool" and record.levelno == logging.ERROR
        ]
    assert not any(record.exc_info for record in caplog.records if record.name.startswith("goaitools_py"))
    assert not any(SECRET in record.getMessage() for record in caplog.records)


def codes(result: Any) -> list[str]:
    return [warning.code for warning in result.warnings]


def calls(name: str) -> Calls:
    return Calls([(name, {"text": SECRET})])


FAILING = [
    (broken, "raised KeyError", f"{HERE}:{line_of('# own line')}"),
    (deeper, "raised FileNotFoundError", f"{HERE}:{line_of('# deeper line')}, raised in "),
    (wrapped, "raised LookupError", f"{HERE}:{line_of('# wrapped line')}"),
    (checks, "could not check its arguments: ZeroDivisionError", f"{HERE}:{line_of('# check line')}"),
]


@pytest.mark.parametrize(("failing", "what", "where"), FAILING, ids=lambda value: getattr(value, "name", ""))
def test_an_unexpected_exception_is_logged_and_a_warning(
    face: Any, run: Any, wire: str, logged: Any, failing: Any, what: str, where: str
) -> None:
    """The log names tool, class, file, line and call; nothing that was said, and not the exception's text."""
    chat = face.chat(ScriptedBackend(calls(failing.name), "Oh.", wire=wire), tools=[failing])

    result = run(chat, user="Go on.")

    (record,) = result.tool_log
    (line,) = logged()
    assert line.startswith(f"tool {failing.name} {what} at {where}")
    assert line.endswith(f"(call {record.call.id})")
    assert codes(result) == ["tool_failed"]
    assert what in result.warnings[0].message
    assert SECRET not in repr(result.warnings)
    assert record.flag == "error"


class Endless:
    """A call's result that fails while it is written."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize("threads", [False, True])
def test_a_result_that_fails_is_a_failure_of_its_tool(face: Any, logged: Any, threads: bool) -> None:
    """The log names the function that returned it; where the tool runs makes no difference."""
    chat = face.chat(ScriptedBackend(calls("odd"), "Oh."), tools=[odd], tool_threads=threads)

    result = chat.chat(user="Go on.")

    assert codes(result) == ["tool_failed"]
    (line,) = logged()
    assert line.startswith(f"tool odd raised RuntimeError at {HERE}:")


def test_who_cannot_say_whether_to_wait_waits_and_is_told(face: Any, wire: str, logged: Any) -> None:
    """The call waits for an approval, as documented, and the log says why."""
    chat = face.chat(ScriptedBackend(calls("asks"), wire=wire), tools=[asks])

    result = chat.chat(user="Go on.")

    assert result.status == "awaiting_tools"
    assert codes(result) == ["tool_failed"]
    assert "could not say whether it waits: ZeroDivisionError" in logged()[0]


@pytest.mark.parametrize("name", ["meant", "unknown"])
def test_what_is_expected_is_not_told(face: Any, logged: Any, name: str) -> None:
    """A `ToolError` and an unknown name are words for the model."""
    chat = face.chat(ScriptedBackend(calls(name), "Oh."), tools=[meant])

    result = chat.chat(user="Go on.")

    assert codes(result) == []
    assert logged() == []


@pytest.mark.parametrize(("failing", "told"), [(broken, ["tool_failed"]), (leaves, [])])
def test_a_turn_that_ends_with_its_tool_tells_it_too(face: Any, logged: Any, failing: Any, told: Any) -> None:
    """The error carries the warning; ending a turn on purpose is no failure of the tool."""
    chat = face.chat(ScriptedBackend(calls(failing.name)), tools=[failing], tool_errors="raise")

    with pytest.raises(ToolFailedError) as caught:
        chat.chat(user="Go on.")

    assert codes(caught.value) == told
    assert len(logged()) == len(told)


def test_each_failure_is_told(face: Any, logged: Any) -> None:
    """Two calls, two lines, two warnings, each with its call's id."""
    both = Calls([("broken", {"text": "a"}), ("broken", {"text": "b"})])
    chat = face.chat(ScriptedBackend(both, "Oh."), tools=[broken])

    result = chat.chat(user="Go on.")

    assert codes(result) == ["tool_failed", "tool_failed"]
    assert sorted(line.rsplit(" ", 1)[1] for line in logged()) == sorted(
        f"{record.call.id})" for record in result.tool_log
    )


# ---------------------------------------------------------------------------------- tools that need deps


Alias = ToolContext[Game]


@tool
def needing(ctx: ToolContext[Game], text: str) -> str:
    """Works on a game."""
    return f"{ctx.deps.score}"


@tool
def aliased(ctx: Alias, text: str) -> str:
    """Works on a game, under another name."""
    return f"{ctx.deps.score}"


def plain(ctx: ToolContext[Game], text: str) -> str:
    """A plain function that works on a game."""
    return f"{ctx.deps.score}"


def by_hand(ctx: ToolContext[Annotated[Game, "mine"]], text: str) -> str:
    return f"{ctx.deps.score}"


class Desk:
    """Tools that are methods."""

    def method(self, ctx: ToolContext[Game], text: str) -> str:
        """A method that works on a game."""
        return f"{ctx.deps.score}"


def unknown_type(ctx: ToolContext[NotHere], text: str) -> str:  # type: ignore[name-defined]  # noqa: F821
    return "a type of type checkers only"


SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
NEEDING = [
    needing,
    aliased,
    plain,
    Desk().method,
    Tool("by_hand", "By hand.", SCHEMA, by_hand),
    Tool("unknown_type", "By hand.", SCHEMA, unknown_type),
]


@tool
def bare(ctx: ToolContext, text: str) -> str:
    """Any deps, or none."""
    return "bare"


@tool
def anything(ctx: ToolContext[Any], text: str) -> str:
    """Any deps, or none."""
    return "anything"


@tool
def either(ctx: ToolContext[Game | None], text: str) -> str:
    """A game, or none."""
    return "either"


@tool
def nothing(ctx: ToolContext[None], text: str) -> str:
    """No deps."""
    return "nothing"


@tool
def generic(ctx: ToolContext[T], text: str) -> str:
    """Whatever there is."""
    return "generic"


@tool(external=True)
def elsewhere(ctx: ToolContext[Game], text: str) -> str:
    """Never run here."""
    raise AssertionError


def starts(face: Any, how: str, needs: Any, backend: ScriptedBackend) -> None:
    """Begin a turn in one of the ways there are, without deps."""
    chat = face.chat(backend, tools=[needs])
    if how in ("send", "conversation.start", "conversation.resume"):
        store = AsyncMemoryStore() if face.is_async else MemoryStore()
        kept = chat.inner.conversation(store, "ada")
        if how == "conversation.start":
            kept.start("Hello.")
            return
        begun = kept.send("Hello.") if how == "send" else kept.resume()
        if face.is_async:
            face.run(begun)
        return
    ways: dict[str, Callable[[], Any]] = {
        "chat": lambda: chat.chat(user="Hello."),
        "start": lambda: chat.start(None, user="Hello."),
        "resume": lambda: chat.resume(b"", None),
        "run_turns": lambda: chat.run_turns(None, ["Hello."]),
    }
    ways[how]()


WAYS = ["chat", "start", "resume", "run_turns", "send", "conversation.start", "conversation.resume"]


@pytest.mark.parametrize("how", WAYS)
def test_a_tool_that_needs_deps_is_refused_without(face: Any, how: str) -> None:
    """Before anything is sent, however the turn begins; the text names the tool and the option."""
    backend = ScriptedBackend()

    with pytest.raises(TypeError, match=r"'needing'.*deps="):
        starts(face, how, needing, backend)

    assert backend.requests == []


@pytest.mark.parametrize("needs", NEEDING, ids=lambda value: getattr(value, "__name__", "tool"))
def test_every_kind_of_tool_that_needs_deps_is_known(face: Any, needs: Any) -> None:
    """Decorated, plain, a method, with a schema of its own, with an alias, or a type that is not here."""
    backend = ScriptedBackend("Hello.")
    chat = face.chat(backend, tools=[needs])
    with pytest.raises(TypeError, match="deps="):
        chat.chat(user="Hello.")
    assert backend.requests == []

    assert chat.chat(user="Hello.", deps=Game()).text == "Hello."


@pytest.mark.parametrize("free", [bare, anything, either, nothing, generic], ids=lambda one: one.name)
def test_a_tool_that_can_do_without_deps_runs_without(face: Any, free: Any) -> None:
    """Its annotation says so."""
    chat = face.chat(ScriptedBackend(calls(free.name), "Done."), tools=[free])

    result = chat.chat(user="Go on.")

    assert [record.result for record in result.tool_log] == [free.name]
    assert result.warnings == ()


def test_what_runs_no_tool_needs_no_deps(face: Any) -> None:
    """A tool that is never run here, an append and a compaction; a falsy object is one all the same."""
    assert face.chat(ScriptedBackend("Hi."), tools=[elsewhere]).chat(user="Hello.").text == "Hi."
    chat = face.chat(ScriptedBackend("Hi."), tools=[needing])
    assert chat.chat(user="Hello.", deps=[]).text == "Hi."
    assert Chat(ScriptedBackend(), tools=[needing]).append_to_state(None) != b""
