"""What a caller may get wrong: a typed answer that says what was found and what to do, and nothing lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    ChatOptions,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ModelSettings,
    ProviderRejectedError,
    StateCorruptError,
    StateDiscarded,
    StateFormatError,
    StateProviderError,
    StateVersionError,
    event,
    tool,
)
from goaitools_py.backends.dialects import WIRES
from goaitools_py.seal import Key, Keyring, Signed
from goaitools_py.sim import Fault
from goaitools_py.state.codec import PLAIN
from goaitools_py.state.state import dump_state, new_state
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import ScriptedBackend

GO_JSON = b'{"version":1,"provider":"openai","messages":[{"role":"user","content":"hi"}]}'


@pytest.fixture
def state() -> bytes:
    """A good state."""
    return Chat(ScriptedBackend("Welcome.")).chat(user="My name is Ada.").state


def flipped(blob: bytes) -> bytes:
    """The blob with one bit of its body changed."""
    return blob[:-3] + bytes([blob[-3] ^ 1]) + blob[-2:]


UNREADABLE: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "JSON of the Go library": (lambda blob: GO_JSON, StateFormatError, "JSON|Go"),
    "random bytes": (lambda blob: b"\x00\x01\x02" * 40, StateFormatError, "state"),
    "cut off": (lambda blob: blob[: len(blob) // 2], StateCorruptError, "damaged|cut|missing"),
    "one bit flipped": (flipped, StateCorruptError, "damaged"),
}
FOREIGN = (
    lambda blob: dump_state(new_state("anthropic", id="x", created=1), codec=PLAIN),
    StateProviderError,
    "'anthropic'.*'openai'",
)
NEWER = (lambda blob: blob[:4] + b"\x09" + blob[5:], StateVersionError, "newer|upgrade|version")


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_state_starts_afresh_and_is_handed_back(
    face: Any, run: Any, state: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By default the turn succeeds without the past. A warning says so, the log has it as an error, and the
    result holds the bytes."""
    damage, error, _ = UNREADABLE[name]
    given = damage(state)
    backend = ScriptedBackend("Who are you?")

    with caplog.at_level("INFO", "goaitools_py"):
        result = run(face.chat(backend), given, user="Who am I?")

    assert type(result.discarded) is error
    found = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [error.__name__ in record.getMessage() for record in found] == [True]
    assert result.discarded.blob == given
    assert [w.code for w in result.warnings] == ["state_discarded"]
    assert len(state_messages(result.state)) == 2
    assert inspect_state(result.state).revision == 1


@pytest.mark.parametrize("name", [*UNREADABLE, "a newer version"])
def test_an_unreadable_state_can_raise(
    face: Any, run: Any, state: bytes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `on_bad_state="raise"` nothing is sent; the text says what was found."""
    damage, error, words = {**UNREADABLE, "a newer version": NEWER}[name]
    given = damage(state)
    backend = ScriptedBackend()

    with pytest.raises(error, match=words) as caught:
        run(face.chat(backend, on_bad_state="raise"), given, user="Who am I?")

    assert caught.value.blob == given
    assert backend.requests == []
    assert caplog.records == []


PAIRS = [(one, two) for one in WIRES for two in WIRES if one != two]


@pytest.mark.parametrize(("written", "asked"), PAIRS)
@pytest.mark.parametrize("on_bad_state", ["fresh", None, "raise"])
def test_another_provider_api_is_a_mistake_in_the_configuration(
    face: Any, run: Any, written: str, asked: str, on_bad_state: Any
) -> None:
    """It raises whatever `on_bad_state` says; the text names both APIs and what can be done."""
    given = face.chat(ScriptedBackend("Hello Ada.", wire=written)).chat(user="I am Ada.").state
    backend = ScriptedBackend(wire=asked)

    with pytest.raises(StateProviderError) as caught:
        run(face.chat(backend, on_bad_state=on_bad_state), given, user="Who am I?")

    told = str(caught.value)
    for words in (
        f"written by '{written}'",
        f"chat on '{written}'",
        "state=None",
        "on_foreign_state='fresh'",
    ):
        assert words in told
    assert f"uses '{asked}'" in told
    assert (caught.value.found, caught.value.expected) == (written, asked)
    assert caught.value.blob == given
    assert "Ada" not in told
    assert backend.requests == []


@pytest.mark.parametrize(("written", "asked"), PAIRS)
def test_a_foreign_state_can_be_left_behind(face: Any, run: Any, written: str, asked: str) -> None:
    """`on_foreign_state="fresh"` begins a conversation of its own, and hands the old bytes back."""
    given = face.chat(ScriptedBackend("Hello Ada.", wire=written)).chat(user="I am Ada.").state
    chat = face.chat(ScriptedBackend("Who are you?", wire=asked), on_bad_state="raise")

    result = run(chat, given, user="Who am I?", on_foreign_state="fresh")

    assert type(result.discarded) is StateProviderError
    assert result.discarded.blob == given
    assert [w.code for w in result.warnings] == ["state_discarded"]
    (warning,) = result.warnings
    assert f"'{written}'" in warning.message
    assert f"'{asked}'" in warning.message
    assert "on_foreign_state" not in warning.message  # what was just given is no advice
    assert inspect_state(result.state).wire == asked
    assert inspect_state(result.state).conversation_id != inspect_state(given).conversation_id


def test_compacting_a_foreign_state_names_the_state_first(face: Any) -> None:
    """A compactor does not help with a state that this chat cannot read, so none is asked for."""
    given = face.chat(ScriptedBackend("Hello Ada.", wire="openai")).chat(user="I am Ada.").state

    with pytest.raises(StateProviderError, match="written by 'openai'"):
        face.chat(ScriptedBackend(wire="anthropic")).compact_state(given)


@pytest.mark.parametrize("on_bad_state", [None, "raise", "fresh"])
def test_a_newer_state_always_raises(face: Any, run: Any, state: bytes, on_bad_state: Any) -> None:
    """It is no damage: during a rolling deploy an older worker must never replace what a newer one wrote."""
    given = NEWER[0](state)
    backend = ScriptedBackend("Who are you?")
    chat = face.chat(backend)

    with pytest.raises(StateVersionError) as caught:
        run(chat, given, user="Who am I?", on_bad_state=on_bad_state)

    assert caught.value.blob == given
    assert backend.requests == []


@pytest.mark.parametrize("name", [*UNREADABLE, "a newer version", "another provider API"])
@pytest.mark.parametrize("method", ["append_to_state", "resume", "compact_state"])
def test_what_cannot_be_read_is_never_overwritten(face: Any, state: bytes, name: str, method: str) -> None:
    """Appending, resuming and compacting raise whatever the options say."""
    damage, error, _ = {**UNREADABLE, "a newer version": NEWER, "another provider API": FOREIGN}[name]
    compactor = Compactor(MessageLimit(1), KeepRecentTurns(1))
    chat = face.chat(ScriptedBackend(), on_bad_state="fresh", on_foreign_state="fresh", compactor=compactor)
    arguments = (event("Rain begins."),) if method == "append_to_state" else ()

    with pytest.raises(error):
        getattr(chat, method)(damage(state), *arguments)


def test_a_discarded_state_leaves_a_valid_one_behind_a_failure(face: Any, sim: Any, state: bytes) -> None:
    """When the fresh turn is refused, its error's state can be used: it is not the damaged blob again."""
    chat = face.on(sim)
    sim.push(Fault.bad_request())

    with pytest.raises(ProviderRejectedError) as caught:
        chat.chat_with_state(flipped(state), user="poison")

    assert inspect_state(caught.value.state).messages == 0
    assert chat.chat_with_state(caught.value.state, user="Hello.").discarded is None


def test_a_listener_is_told_of_a_discarded_state(face: Any, state: bytes) -> None:
    """The event carries the error with the bytes."""
    events = list(face.chat(ScriptedBackend("Hello.")).start(flipped(state), user="Hello."))

    (told,) = [e for e in events if isinstance(e, StateDiscarded)]
    assert told.error.blob == flipped(state)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("a text", StateFormatError, "bytes.*text"),
        (7, TypeError, "bytes.*int"),
        ({"role": "user"}, TypeError, "bytes.*dict"),
        ([b"x"], TypeError, "bytes.*list"),
    ],
)
def test_a_state_must_be_bytes(face: Any, value: Any, error: Any, words: str) -> None:
    """Anything else is refused, naming what it is, before anything is sent."""
    backend = ScriptedBackend()

    with pytest.raises(error, match=words):
        face.chat(backend).chat_with_state(value, user="Hello.")

    assert backend.requests == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_bytes_is_a_state(face: Any, state: bytes, kind: Any) -> None:
    """What a database driver hands out is taken as it is, and not changed."""
    given = kind(state)

    result = face.chat(ScriptedBackend("Hello.")).chat_with_state(given, user="Hello.")

    assert len(state_messages(result.state)) == 4
    assert bytes(given) == state


# --------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"usr": "Hello."}, TypeError, "'usr'.*'user'"),
        ({"max_iterations": 3}, TypeError, r"limits=Limits\(max_iterations="),
        ({"temperature": 1.0}, TypeError, r"settings=ModelSettings\(temperature"),
        ({"wholly_unknown_thing": 1}, TypeError, "the options are user, messages"),
        ({"settings": {"temperature": 1}}, TypeError, "ModelSettings.*dict"),
        ({"timeout": -1}, ValueError, "timeout.*positive.*-1"),
        ({"on_limit": "stop"}, ValueError, "'answer', 'raise'.*'stop'"),
        ({"tool_errors": "ignore"}, ValueError, "'to_model', 'raise'.*'ignore'"),
        ({"on_bad_state": "ignore"}, ValueError, "'fresh', 'raise', None.*'ignore'"),
        ({"on_foreign_state": None}, ValueError, "'raise', 'fresh'.*NoneType"),
        ({"user": 7}, TypeError, "user must be text.*int"),
        ({"user": ""}, ValueError, "empty"),
        ({"user": b"bytes"}, TypeError, "user must be text.*bytes"),
        ({"messages": [{"role": "user"}]}, TypeError, r"user\(\).*dict"),
    ],
)
def test_an_option_that_cannot_be_is_refused(face: Any, fields: Any, error: Any, words: str) -> None:
    """The text names the option, what was found and what is expected; nothing is sent."""
    backend = ScriptedBackend()

    with pytest.raises(error, match=words):
        face.chat(backend).chat(**fields)

    assert backend.requests == []


@pytest.mark.parametrize("name", ["user", "messages", "conversation_id", "metadata"])
def test_what_belongs_to_a_turn_is_no_default(face: Any, name: str) -> None:
    """As a keyword or in `ChatOptions`, the chat refuses it by name when it is made."""
    value: Any = {"metadata": {}, "messages": ()}.get(name, "x")

    with pytest.raises(TypeError, match=f"'{name}' belongs to one turn"):
        face.chat(ScriptedBackend(), **{name: value})
    with pytest.raises(TypeError, match=f"'{name}' belongs to one turn"):
        face.chat(ScriptedBackend(), ChatOptions(**{name: value}))


def test_options_must_be_options(face: Any) -> None:
    """A dict in their place is refused with a way out."""
    with pytest.raises(TypeError, match=r"ChatOptions.*dict.*by name"):
        face.chat(ScriptedBackend()).chat({"user": "Hello."})


def test_a_setting_that_the_wire_lacks_is_refused(face: Any) -> None:
    """Before anything is sent, with the way to a server's own settings."""
    backend = ScriptedBackend()

    with pytest.raises(ValueError, match=r"thinking_budget_tokens.*extra_body"):
        face.chat(backend).chat(user="Hello.", settings=ModelSettings(thinking_budget_tokens=5))

    assert backend.requests == []


# ----------------------------------------------------------------------------------------- tools, backends


@pytest.mark.parametrize("choice", ["nosuch", "any", ""])
def test_a_tool_choice_must_name_a_tool(face: Any, choice: str) -> None:
    """No provider could follow another; nothing is sent, and the text names those that there are."""
    backend = ScriptedBackend("Never.")

    @tool
    def look() -> str:
        """Look around."""
        return ""

    with pytest.raises(ValueError, match="expected 'auto', 'none', 'required', or one of 'look'"):
        face.chat(backend).chat(user="Hi.", tools=[look], settings=ModelSettings(tool_choice=choice))
    assert backend.requests == []


def test_a_tool_needs_annotations(face: Any) -> None:
    """A parameter without a type is refused when the tool is given, naming both."""

    def look(place):  # type: ignore[no-untyped-def]
        """Look."""

    with pytest.raises(TypeError, match=r"'place'.*look\(\).*annotation"):
        face.chat(ScriptedBackend(), tools=[look])
    with pytest.raises(TypeError, match=r"'place'.*look\(\).*annotation"):
        face.chat(ScriptedBackend()).chat(user="Hello.", tools=[look])


def test_two_tools_of_one_name_are_refused(face: Any) -> None:
    """The model could not tell them apart."""

    def look(place: str) -> None:
        """Look."""

    with pytest.raises(ValueError, match="two tools are called 'look'"):
        face.chat(ScriptedBackend(), tools=[look, tool(name="look")(lambda: None)])


def test_a_sync_chat_refuses_an_async_tool() -> None:
    """When the chat gets it, not when the model calls it; the text names the way out."""

    @tool
    async def look(place: str) -> None:
        """Look."""

    with pytest.raises(TypeError, match=r"'look' is async.*AsyncChat"):
        Chat(ScriptedBackend(), tools=[look])
    backend = ScriptedBackend()
    with pytest.raises(TypeError, match=r"'look' is async.*AsyncChat"):
        Chat(backend).chat(user="Hello.", tools=[look])
    assert backend.requests == []
    AsyncChat(ScriptedBackend(), tools=[look])


def test_each_chat_wants_a_backend_of_its_colour(sim: Any) -> None:
    """A backend of the other colour, or none at all, is refused with a hint."""
    plain, awaited = sim.backend(is_async=False), sim.backend(is_async=True)

    with pytest.raises(TypeError, match=rf"Chat needs.*send\(\).*{type(awaited).__name__}.*AsyncChat"):
        Chat(awaited)
    with pytest.raises(TypeError, match=rf"AsyncChat needs.*asend\(\).*{type(plain).__name__}.*for Chat"):
        AsyncChat(plain)
    with pytest.raises(TypeError, match=r"'openai:MODEL'.*int"):
        Chat(7)  # type: ignore[arg-type]
    plain.close()
    asyncio.run(awaited.aclose())


def test_run_turns_wants_a_list_of_texts(face: Any) -> None:
    """One text is not a list of its letters."""
    for texts, error in (("Hello.", TypeError), (b"Hello.", TypeError), ([], ValueError)):
        with pytest.raises(error, match="list"):
            face.chat(ScriptedBackend()).run_turns(None, texts)


@pytest.mark.parametrize(
    ("texts", "fields", "error", "words"),
    [
        (["Hello.", 5], {}, TypeError, "user must be text or a list of parts, not int"),
        (["Hello.", ""], {}, ValueError, "some content"),
        (["Hello.", None], {}, TypeError, "one of them is None"),
        (["Hello.", "Bye."], {"turn_id": "m-1"}, ValueError, "turn_id names one turn"),
    ],
)
def test_run_turns_checks_everything_before_the_first_turn(
    face: Any, texts: Any, fields: Any, error: Any, words: str
) -> None:
    """The turns before a bad text would be paid for, and their state would be lost with the error."""
    backend = ScriptedBackend("paid")

    with pytest.raises(error, match=words):
        face.chat(backend).run_turns(None, texts, **fields)

    assert backend.requests == []


@pytest.mark.parametrize(
    ("codec", "found"),
    [(None, "NoneType"), ("signed", "str"), (Signed, "Signed"), (Keyring(Key.generate()), "Keyring")],
    ids=["None", "text", "class", "keyring"],
)
def test_a_codec_is_checked_when_a_chat_is_made(face: Any, codec: Any, found: str) -> None:
    """Not at its first call; the text says what could stand there."""
    with pytest.raises(TypeError, match=f"codec must be PLAIN, or .*Signed.*not {found};"):
        face.chat(ScriptedBackend(), codec=codec)


def test_the_class_of_a_backend_is_no_backend(face: Any) -> None:
    """Forgotten parentheses are told as any other wrong value."""
    with pytest.raises(TypeError, match=r"needs a backend with a?send\(\)"):
        face.chat(ScriptedBackend)
