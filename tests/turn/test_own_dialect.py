"""A dialect of a user's own: with the optional protocols it is served as the built-in ones.

Without them the user is told so."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from goaitools_py import ChatOptions, ProviderRejectedError, ProviderUnavailableError, StateProviderError
from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import BackendError, Dialect
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.protocols import (
    ChecksHistory,
    SplitsResults,
    TranslatesReplies,
    ViewsHistory,
    lacks,
)
from goaitools_py.states import (
    convert_state,
    inspect_state,
    read_history,
    state_from_messages,
    state_messages,
)
from goaitools_py.testing import (
    Calls,
    ScriptedBackend,
    check_history,
    dialect_contract,
)
from goaitools_py.testing._reply_shapes import SHAPES

from ..conftest import Face
from ..history._damage import Words
from ..testing.test_dialect_contract import samples_of

WIRE = "of-another-package"


class OwnChat(OpenAIChatDialect, frozen=True):
    """A provider API of another name, in the form of Chat Completions."""

    wire: ClassVar[str] = WIRE


class OwnMessages(AnthropicDialect, frozen=True):
    """A provider API of another name, in the form of Anthropic's."""

    wire: ClassVar[str] = WIRE


class Bare(OpenAIChatDialect, frozen=True):
    """A dialect with none of the four protocols."""

    wire: ClassVar[str] = WIRE
    history_problems: ClassVar[Any] = None
    history_view: ClassVar[Any] = None
    reply_pieces: ClassVar[Any] = None


class Unsplit(AnthropicDialect, frozen=True):
    """A dialect that puts several results into one entry, and cannot split them."""

    wire: ClassVar[str] = WIRE
    split_results: ClassVar[Any] = None


OWN: dict[str, tuple[Dialect, Any]] = {
    "openai": (OwnChat(), SHAPES["openai"]),
    "anthropic": (OwnMessages(), SHAPES["anthropic"]),
}


@pytest.fixture(params=OWN)
def like(request: pytest.FixtureRequest) -> str:
    """The built-in provider API that the own one is like."""
    return str(request.param)


def own(like: str, *script: Any) -> ScriptedBackend:
    """A backend of the provider API of another package."""
    dialect, shape = OWN[like]
    return ScriptedBackend(*script, dialect=dialect, shape=shape, model="m")


def refused() -> BackendError:
    """The server refuses the form of the history."""
    body = json.dumps({"error": {"type": "invalid_request_error", "message": "no"}}).encode()
    return BackendError("refused", kind="rejected", status=400, body=body)


def down() -> BackendError:
    """The provider does not answer."""
    return BackendError("no answer", kind="unavailable", status=503)


def broken(like: str) -> list[Any]:
    """A history in which a call has no result."""
    w = Words(like)
    return [
        json.loads(one) for one in [*w.user("Look."), *w.calls("c1", "c2"), *w.user("And?"), *w.says("Yes.")]
    ]


# -------------------------------------------------------------------------------------------- with them


def test_its_history_is_repaired_at_the_import(like: str) -> None:
    """As that of the built-in provider API: the same repairs, and nothing is wrong afterwards."""
    dialect, _ = OWN[like]
    blob = state_from_messages(WIRE, broken(like), dialect=dialect, repair=True)
    built_in = state_from_messages(like, broken(like), repair=True)

    messages = state_messages(blob, dialect=dialect)

    assert messages == state_messages(built_in)
    assert check_history(dialect, messages) == []


def test_an_import_that_is_not_repaired_is_refused(like: str) -> None:
    """The rules of the dialect say why."""
    with pytest.raises(ValueError, match="the provider would refuse this history"):
        state_from_messages(WIRE, broken(like), dialect=OWN[like][0])


def test_its_history_is_narrowed_after_a_refusal(face: Face, like: str) -> None:
    """Ids that only some servers take get another form, and the turn goes on."""
    w = Words(like)
    long = "t.1:" + "0" * 70
    history = [*w.user("Look."), *w.calls(long), *w.results(long), *w.says("Done.")]
    dialect, _ = OWN[like]
    blob = state_from_messages(WIRE, [json.loads(one) for one in history], dialect=dialect)
    backend = own(like, refused(), "Fine.")

    result = face.chat(backend).chat_with_state(blob, user="And now?")

    assert result.text == "Fine."
    quoted = f'"{long}"'.encode()
    assert quoted in backend.requests[0].body
    assert quoted not in backend.requests[1].body


@pytest.mark.parametrize("other", ["openai", "openai-responses", "anthropic"])
def test_its_states_are_converted_to_and_from(like: str, other: str) -> None:
    """Texts, calls and results go along in both directions."""
    dialect, _ = OWN[like]
    w = Words(other)
    said = [*w.user("Look."), *w.calls("c1", "c2"), *w.results("c1", "c2"), *w.says("Two rooms.")]
    blob = state_from_messages(other, [json.loads(one) for one in said])

    there = convert_state(blob, WIRE, dialect=dialect)
    back = convert_state(there.state, other, source=dialect)

    assert inspect_state(there.state).wire == WIRE
    assert check_history(dialect, state_messages(there.state, dialect=dialect)) == []
    texts = [message.text for message in read_history(blob).all_messages()]
    assert [one.text for one in read_history(there.state, dialect=dialect).all_messages()] == texts
    assert [one.text for one in read_history(back.state).all_messages()] == texts


@pytest.mark.parametrize("first", ["openai", "anthropic"])
def test_its_backend_is_a_fallback(face: Face, like: str, first: str) -> None:
    """For a built-in provider API, and then the built-in one takes the state up again."""
    tool_call = Calls([("look", {})])
    chat = face.chat(
        ScriptedBackend("Hello.", down(), "Back.", wire=first), fallbacks=[own(like, tool_call, "Over here.")]
    )

    def look() -> str:
        """Look around."""
        return "A door."

    one = chat.chat_with_state(None, user="Hello?")
    two = chat.chat_with_state(one.state, user="And you?", tools=[look])
    three = chat.chat_with_state(two.state, user="And now?")

    assert (one.text, two.text, three.text) == ("Hello.", "Over here.", "Back.")
    assert inspect_state(two.state).wire == WIRE
    assert inspect_state(three.state).wire == first


def test_a_built_in_provider_is_its_fallback(face: Face, like: str) -> None:
    """The other direction: the own provider is down, and comes back."""
    backend = own(like, "Hello.", down(), "Back.")
    chat = face.chat(backend, fallbacks=[ScriptedBackend("Over here.", wire="openai-responses", model="b")])

    one = chat.chat_with_state(None, user="Hello?")
    two = chat.chat_with_state(one.state, user="And you?")
    three = chat.chat_with_state(two.state, user="And now?")

    assert (one.text, two.text, three.text) == ("Hello.", "Over here.", "Back.")


def test_the_contract_names_its_protocols(like: str) -> None:
    """It checks them, and says which there are."""
    found = dialect_contract(OWN[like][0], samples_of(like))

    assert {"ChecksHistory", "ViewsHistory", "TranslatesReplies"} <= set(found)
    assert ("SplitsResults" in found) == (like == "anthropic")


# ----------------------------------------------------------------------------------------- without them


def test_without_rules_an_import_is_not_repaired() -> None:
    """The error names the protocol and the page; without `repair` the state is made all the same."""
    with pytest.raises(ValueError, match=r"no ChecksHistory.*docs/own_wire\.md"):
        state_from_messages(WIRE, broken("openai"), dialect=Bare(), repair=True)

    blob = state_from_messages(WIRE, broken("openai"), dialect=Bare())

    assert state_messages(blob, dialect=Bare()) == broken("openai")


def test_without_protocols_a_refusal_is_a_plain_error(face: Face) -> None:
    """It says what is missing, and the state goes on."""
    blob = state_from_messages(WIRE, broken("openai"), dialect=Bare())
    backend = ScriptedBackend(refused(), "Fine.", dialect=Bare(), shape=SHAPES["openai"], model="m")
    chat = face.chat(backend)

    with pytest.raises(ProviderRejectedError, match=r"ChecksHistory and no ViewsHistory.*own_wire") as caught:
        chat.chat_with_state(blob, user="And now?")

    assert chat.chat_with_state(caught.value.state, user="And now?").text == "Fine."


def test_without_translation_nothing_is_converted(face: Face) -> None:
    """In a call as in a turn."""
    foreign = state_from_messages("openai", [{"role": "user", "content": "Hello."}])
    chat = face.chat(
        ScriptedBackend("Fine.", dialect=Bare(), shape=SHAPES["openai"], model="m"),
        ChatOptions(on_foreign_state="convert"),
    )

    with pytest.raises(StateProviderError, match=r"TranslatesReplies.*docs/own_wire\.md"):
        convert_state(foreign, WIRE, dialect=Bare())
    with pytest.raises(StateProviderError, match=r"TranslatesReplies.*docs/own_wire\.md"):
        chat.chat_with_state(foreign, user="Hello?")


def test_without_translation_it_is_no_fallback(face: Face) -> None:
    """The first provider's error comes, with a note that says why."""
    other = ScriptedBackend("Fine.", dialect=Bare(), shape=SHAPES["openai"], model="m")
    chat = face.chat(ScriptedBackend(down()), fallbacks=[other])

    with pytest.raises(ProviderUnavailableError) as caught:
        chat.chat_with_state(None, user="Hello?")

    assert "no TranslatesReplies" in caught.value.__notes__[0]


def test_results_that_cannot_be_split_are_not_repaired() -> None:
    """Nothing is lost in silence: the contract names the protocol too."""
    with pytest.raises(AssertionError, match="SplitsResults"):
        dialect_contract(Unsplit(), samples_of("anthropic"))

    w = Words("anthropic")
    history = [*w.user("q"), *w.calls("c1", "c2", "c3"), *w.results("c1", "c2"), *w.says("x")]
    with pytest.raises(ValueError, match="cannot be repaired"):
        state_from_messages(WIRE, [json.loads(one) for one in history], dialect=Unsplit(), repair=True)


def test_what_is_missing_is_named() -> None:
    """In one sentence; and nothing is said of a dialect that has everything."""
    assert lacks(dialect_of("anthropic"), ChecksHistory, ViewsHistory, SplitsResults, TranslatesReplies) == ""
    assert "no SplitsResults" in lacks(dialect_of("openai"), ChecksHistory, SplitsResults)
