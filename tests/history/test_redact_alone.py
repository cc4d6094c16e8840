"""Each place of an unfinished turn that can hold text is searched, also if the text stands there only."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, Document, Image, tool
from goaitools_py.base.values import replace
from goaitools_py.history.redact.entry_texts import Redactor
from goaitools_py.history.redact.matching import Finder
from goaitools_py.history.redact.rows import open_without
from goaitools_py.state.records import JournalCall, OpenTurn
from goaitools_py.state.row_codec import iteration_facts
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import redact_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Text

from ._planted import traces

SECRET = "hunter2-ZQ9"
WIRES = ("openai", "openai-responses", "anthropic")


@tool(external=True)
def ask(question: str) -> str:
    """Ask."""
    raise AssertionError


def with_call(turn: OpenTurn, **fields: Any) -> OpenTurn:
    """The turn with its only call changed."""
    (call,) = turn.calls
    return replace(turn, calls=(replace(call, **fields),))


def with_part(turn: OpenTurn, *parts: Any) -> OpenTurn:
    """The turn with a result of its only call."""
    return with_call(turn, state="done", parts=parts)


def document(**fields: Any) -> Document:
    """A small document with one more thing."""
    return replace(Document.from_bytes(b"%PDF \xff"), **fields)


def is_in(blob: bytes) -> bool:
    """True if the text is in the state: as it is, or in a document, which is stored as base64."""
    opened = load_state(blob).open
    parts = [part for call in (opened.calls if opened else ()) for part in call.parts]
    return traces(blob, SECRET) > 0 or any(
        SECRET.encode() in (part.data or b"") for part in parts if isinstance(part, Document)
    )


PLACES: dict[str, Any] = {
    "entry": lambda turn: replace(
        turn, entries=(turn.entries[0].replace(b"Hello.", SECRET.encode()), *turn.entries[1:])
    ),
    "partial": lambda turn: replace(turn, partial=f"I am {SECRET}"),
    "fact": lambda turn: replace(turn, facts={**turn.facts, "metadata": {"k": SECRET}}),
    "request id": lambda turn: replace(
        turn, iterations=(replace(turn.iterations[0], more=iteration_facts(0, None, SECRET)),)
    ),
    "speaker": lambda turn: replace(
        turn, iterations=(replace(turn.iterations[0], more=iteration_facts(0, [[0, SECRET]])),)
    ),
    "finish reason": lambda turn: replace(
        turn, iterations=(replace(turn.iterations[0], finish_reason=SECRET),)
    ),
    "text of a result": lambda turn: with_part(turn, Text("a"), Text(f"It is {SECRET}.")),
    "address of a result": lambda turn: with_part(turn, Image.from_url(f"https://x.invalid/{SECRET}")),
    "name of a document": lambda turn: with_part(turn, document(name=f"{SECRET}.pdf")),
    "text of a document": lambda turn: with_part(
        turn, Document.from_bytes(f"It is {SECRET}.".encode(), media_type="text/plain")
    ),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("place", PLACES)
def test_a_text_in_one_place_of_an_unfinished_turn_goes(wire: str, place: str) -> None:
    """Every other place is left as it is."""
    asks = Calls([("ask", {"question": "?"})])
    state = load_state(Chat(ScriptedBackend(asks, wire=wire), tools=[ask]).chat(user="Hello.").state)
    assert state.open is not None
    opened = PLACES[place](state.open)
    blob = dump_state(replace(state, open=opened))
    assert is_in(blob)

    done = redact_state(blob, SECRET)

    new = load_state(done.state).open
    assert new is not None
    assert not is_in(done.state)
    assert done.count == 1
    assert sum(getattr(new, name) != getattr(opened, name) for name in OpenTurn.__struct_fields__) == 1


def test_nothing_is_written_anew_where_nothing_matches() -> None:
    """The very bytes come back."""
    asks = Calls([("ask", {"question": "?"})])
    blob = Chat(ScriptedBackend(asks), tools=[ask]).chat(user="Hello.").state

    assert redact_state(blob, SECRET).state == blob


@pytest.mark.parametrize("kind", ["function", "provider"])
def test_the_words_of_a_providers_item_stay(kind: Any) -> None:
    """The type of an item is the provider API's own word. Equal words in a function's call go."""
    name = "shell_call"
    said = f'{{"type":"{name}","text":"{name} me"}}'
    call = JournalCall(id="c1", name=name, arguments=said, kind=kind, state="done", parts=(Text(said),))
    turn = OpenTurn(at=0, entries=(), calls=(call,))

    (new,) = open_without(Redactor(Finder(name, "[redacted]")), turn).calls

    left = name if kind == "provider" else "[redacted]"
    assert (new.name == name) is (kind == "provider")
    assert new.arguments == f'{{"type":"{left}","text":"[redacted] me"}}'
    assert new.parts == (Text(new.arguments),)
