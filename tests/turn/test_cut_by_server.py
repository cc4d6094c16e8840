"""A server that cuts the prompt and says nothing: seen from its usage, told once, taken for its window."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from goaitools_py import Chat, ChatResult, ModelSettings
from goaitools_py.backends.base import Dialect, ModelRequest
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.read_entries import read_entries
from goaitools_py.compaction import (
    CompactionRequest,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    ServerToolClearing,
    TokenLimit,
)
from goaitools_py.open_turn.meter import Before, cut_at
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.segments import stored_segment
from goaitools_py.state.state import closed_turns, load_state
from goaitools_py.states import convert_state, inspect_state, state_from_messages
from goaitools_py.testing import Raw, ScriptedBackend
from goaitools_py.types.errors import StateError
from goaitools_py.types.messages import Message, Text, Usage
from goaitools_py.types.tokens import Gauge

from ..backends.test_bills import streamed, whole
from ._reading import ALL, ANTHROPIC, CHAT, RESPONSES
from ._talk import FORMS, Talk

FORM = pytest.mark.parametrize(("kept", "stream"), FORMS)
CODE = "context_cut_by_server"
STORY = "The guard walks to the gate and looks at the moor for a while before the bell rings. " * 10
"""170 words; about 190 tokens."""


def counted(wire: str, read: int, *, cached: int = 0, wrote: int = 3) -> Callable[[ModelRequest], Raw]:
    """A short answer to a prompt of so many tokens. `cached`: as many of them came from the cache."""
    if wire == CHAT:
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        usage: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": wrote, **details}
    elif wire == RESPONSES:
        details = {"input_tokens_details": {"cached_tokens": cached}}
        usage = {"input_tokens": read, "output_tokens": wrote, **details}
    else:
        usage = {"input_tokens": read - cached, "output_tokens": wrote, "cache_read_input_tokens": cached}

    def answer(request: ModelRequest) -> Raw:
        return Raw([streamed(wire, usage)]) if request.stream else Raw.body(whole(wire, usage))

    return answer


class Ollama:
    """A server that takes so many tokens, and cuts longer prompts; it counts a token for each five bytes."""

    def __init__(self, wire: str, window: int, *, left: float = 0.5) -> None:
        self.wire, self.window, self.left = wire, window, left
        self.counts: list[int] = []

    def __call__(self, request: ModelRequest) -> Raw:
        size = len(request.body) // 5
        self.counts.append(size if size <= self.window else int(self.window * self.left))
        return counted(self.wire, self.counts[-1])(request)


def codes(result: ChatResult) -> list[str]:
    return [warning.code for warning in result.warnings if warning.code == CODE]


@FORM
@pytest.mark.parametrize("wire", ALL)
def test_a_long_message_that_was_cut(face: Any, wire: str, kept: bool, stream: bool) -> None:
    """60,000 words were sent, and 2,050 tokens counted. It is told once."""
    backend = ScriptedBackend(*[counted(wire, read) for read in (2_050, 2_053, 2_048)], wire=wire)
    talk = Talk(face, face.chat(backend), kept=kept, streamed=stream)

    first, *later = talk.say("word " * 60_000), talk.say("And?"), talk.say("Well?")

    assert codes(first) == [CODE]
    assert [codes(one) for one in later] == [[], []]
    assert first.context_used > 60_000
    assert later[-1].context_used > first.context_used
    assert first.context_fraction == pytest.approx(first.context_used / 2_050)
    assert inspect_state(first.state).context_window == 2_050
    assert first.usage.input_tokens == 2_050  # what is billed is what the server has counted


@FORM
@pytest.mark.parametrize("left", [0.5, 0.7])
@pytest.mark.parametrize("wire", ALL)
def test_a_history_that_outgrows_the_window(
    face: Any, wire: str, left: float, kept: bool, stream: bool
) -> None:
    """The count falls although the history has grown, and no compactor has cut anything."""
    server = Ollama(wire, 2_500, left=left)
    backend = ScriptedBackend(*[server] * 16, wire=wire)
    talk = Talk(face, face.chat(backend), kept=kept, streamed=stream)

    results = [talk.say(STORY) for _ in range(16)]

    fell = next(at for at, count in enumerate(server.counts) if at and count < server.counts[at - 1])
    assert [at for at, one in enumerate(results) if codes(one)] == [fell]
    assert results[-1].context_used > server.counts[-1]


@FORM
@pytest.mark.parametrize("strategy", [KeepRecentTurns(2), DropOldest(target_tokens=600)])
@pytest.mark.parametrize("wire", ALL)
def test_compaction_begins(face: Any, wire: str, strategy: Any, kept: bool, stream: bool) -> None:
    """Long before the compactor's own limit, which the server's window never reaches."""
    server = Ollama(wire, 2_500)
    backend = ScriptedBackend(*[server] * 20, wire=wire)
    chat = face.chat(backend, compactor=Compactor(TokenLimit(100_000), strategy))
    talk = Talk(face, chat, kept=kept, streamed=stream)

    results = [talk.say(STORY) for _ in range(20)]

    told = [at for at, one in enumerate(results) if codes(one)]
    cuts = [at for at, one in enumerate(results) if one.compaction is not None]
    assert len(told) == 1
    assert cuts[0] in (told[0], told[0] + 1)
    assert all(count <= 2_500 for count in server.counts)
    window = inspect_state(results[-1].state).context_window
    assert all(one.context_used <= window for one in results[cuts[0] + 1 :])
    assert len(cuts) <= 7  # each cut is deep, and a turn without need makes none


@pytest.mark.parametrize("wire", ALL)
def test_no_compaction_without_a_compactor(face: Any, wire: str, run: Any) -> None:
    """The history stays whole; only the warning says what the server does."""
    server = Ollama(wire, 1_500)
    backend = ScriptedBackend(*[server] * 14, wire=wire)
    chat, state = face.chat(backend), None
    for _ in range(14):
        state = run(chat, state, user=STORY).state

    assert inspect_state(state).turns == 14


# ------------------------------------------------------------------------------------ what is no sign


def talks_on(face: Any, wire: str, run: Any, *reads: Any, said: str = STORY, **fields: Any) -> list[str]:
    """The codes of a conversation in which the server counts these tokens."""
    steps = [one if callable(one) else counted(wire, one) for one in reads]
    chat = face.chat(ScriptedBackend(*steps, wire=wire), **fields)
    state, found = None, list[str]()
    for _ in reads:
        result = run(chat, state, user=said)
        state = result.state
        found += codes(result)
    return found


@pytest.mark.parametrize("wire", ALL)
def test_a_server_that_counts_only_what_is_new_is_none(face: Any, wire: str, run: Any) -> None:
    """Its cache has the rest, and it does not say so."""
    assert talks_on(face, wire, run, 300, 210, 215, 205, 230, 200) == []


@pytest.mark.parametrize("wire", [CHAT])
def test_a_server_that_counts_only_what_is_new_and_long_is_none(face: Any, wire: str, run: Any) -> None:
    """The last reply is new to such a server, too."""
    usage = {"prompt_tokens": 1_000, "completion_tokens": 800}
    body = json.loads(whole(wire, usage))
    body["choices"][0]["message"]["content"] = STORY * 4
    reply = Raw.body(json.dumps(body).encode())

    assert talks_on(face, wire, run, *[lambda request: reply] * 6) == []


@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
def test_a_server_that_counts_its_cache_apart_is_none(face: Any, wire: str, run: Any) -> None:
    """It names more cached tokens than input."""
    reads: list[Any] = [200 * at for at in range(1, 11)]
    reads += [counted(wire, 1_000, cached=1_200 + 200 * at) for at in range(5)]

    assert talks_on(face, wire, run, *reads) == []


@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_a_cache_that_is_within_the_input_is_none(face: Any, wire: str, run: Any) -> None:
    """Anthropic's three counts make the input."""
    reads = [counted(wire, 250 * at, cached=200 * at) for at in range(1, 8)]

    assert talks_on(face, wire, run, *reads) == []


@pytest.mark.parametrize("wire", ALL)
def test_finds_of_a_hosted_tool_are_none(face: Any, wire: str, run: Any) -> None:
    """They were counted once, and are not sent again."""
    assert (
        talks_on(face, wire, run, *(300 * at for at in range(1, 8)), 9_000, 2_700, 3_000, 8_000, 3_600) == []
    )


@pytest.mark.parametrize("wire", ALL)
def test_scripts_of_few_tokens_are_none(face: Any, wire: str, run: Any) -> None:
    """A vocabulary that writes several Chinese characters as one token: the estimate is a multiple."""
    said = "守卫走到门口看了一会儿沼泽然后钟声响起" * 20
    reads = [*(110 * at for at in range(1, 11)), 3_000, 1_320, 1_430]  # and finds of a hosted tool
    assert talks_on(face, wire, run, *reads, said=said) == []


@pytest.mark.parametrize("wire", ALL)
def test_a_server_without_a_count_is_none(face: Any, wire: str, run: Any) -> None:
    """It says 0."""
    assert talks_on(face, wire, run, *[0] * 4, said="word " * 5_000) == []


@pytest.mark.parametrize("wire", ALL)
def test_a_cut_of_ours_is_none(face: Any, wire: str, run: Any) -> None:
    """The count falls after each, and the next one is measured anew."""
    compactor = Compactor(TokenLimit(900), KeepRecentTurns(1))
    server = Ollama(wire, 10**6)

    assert talks_on(face, wire, run, *[server] * 14, compactor=compactor) == []
    assert any(after < before for before, after in zip(server.counts, server.counts[1:], strict=False))


@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_edits_that_were_asked_for_are_none(face: Any, wire: str, run: Any) -> None:
    """The provider clears what it was told to clear."""
    settings = ModelSettings(context_management=(ServerToolClearing(),))

    assert talks_on(face, wire, run, 300, 2_000, 900, 700, said="word " * 600, settings=settings) == []


@pytest.mark.parametrize("wire", [RESPONSES])
def test_a_compaction_of_the_provider_is_none(face: Any, wire: str) -> None:
    """What stands before it stays in the history, and is not read (recorded so: 847 tokens, then 552)."""
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" * 400}
    body = json.loads(whole(wire, {"input_tokens": 1_900, "output_tokens": 300}))
    compacted = Raw.body(json.dumps({**body, "output": [*body["output"], item]}).encode())
    steps = [*(counted(wire, 220 * at) for at in range(1, 9)), compacted, counted(wire, 800)]
    backend = ScriptedBackend(*steps, wire=wire)
    chat, state, found = face.chat(backend), None, list[str]()
    for at in range(len(steps)):
        result = chat.chat_with_state(state, user=STORY if at < 9 else "And?")
        state, found = result.state, found + codes(result)

    assert found == []


@pytest.mark.parametrize("wire", [ANTHROPIC])
def test_a_refused_turn_is_none(face: Any, wire: str, run: Any) -> None:
    """It may be left out of later requests, however long it was."""
    refusal = json.loads(whole(wire, {"input_tokens": 1_600, "output_tokens": 3}))
    refusal["stop_reason"] = "refusal"
    steps = [Raw.body(json.dumps(refusal).encode()), counted(wire, 700), counted(wire, 710)]
    chat = face.chat(ScriptedBackend(*steps, wire=wire))
    first = chat.chat_with_state(None, user="word " * 1_500)
    second = chat.chat_with_state(first.state, user="And?")
    third = chat.chat_with_state(second.state, user="And?")

    assert first.status == "refused"
    assert [codes(one) for one in (first, second, third)] == [[], [], []]


def test_a_known_window_is_looked_at_without_the_history() -> None:
    """A server that cuts is seen again by the numbers alone, whatever the text is."""

    def load() -> list[bytes]:
        raise AssertionError("the history is read")

    def looks(left: int) -> int:
        usage, before = Usage(input_tokens=left), Before(size=lambda: 40_000, load=load)
        return cut_at(Gauge(tokens=5_000), usage, [b"{}"], before, lambda entries: ((), 0), window=2_050)

    assert [looks(left) for left in (1_900, 2_050, 2_300, 4_900)] == [2_050, 2_050, 2_300, 0]


@pytest.mark.parametrize("wire", ALL)
def test_a_strategy_sees_the_window(face: Any, wire: str, run: Any) -> None:
    """From the next turn's first request on."""
    seen: list[tuple[int | None, int | None]] = []

    def strategy(request: CompactionRequest) -> Any:
        seen.append((request.context_window, request.server_window))
        return request.turns

    state = run(face.chat(ScriptedBackend(counted(wire, 2_050), wire=wire)), user="word " * 9_000).state
    chat = face.chat(ScriptedBackend("Yes.", wire=wire), compactor=Compactor(TokenLimit(10**6), strategy))
    run(chat, state, user="And?")

    assert seen
    assert seen[0] == (2_050, 2_050)


@pytest.mark.parametrize("wire", ALL)
@pytest.mark.parametrize(("bytes_per_token", "reads_all"), [(3, False), (5, False), (100, True)])
def test_an_imported_history_is_read_only_after_a_small_count(
    face: Any, wire: str, run: Any, monkeypatch: pytest.MonkeyPatch, bytes_per_token: int, reads_all: bool
) -> None:
    """Its tokens are unknown before its first turn. A usual count costs no look at the old entries."""
    history = [Message(role=role, parts=(Text(STORY),)) for role in ("user", "assistant")] * 20
    entries = dialect_of(wire).entries(history)
    state = state_from_messages(wire, [json.loads(entry) for entry in entries])
    read: list[int] = []

    def reading(dialect: Dialect, entries: Sequence[bytes]) -> tuple[Message, ...]:
        read.append(len(entries))
        return read_entries(dialect, entries)

    monkeypatch.setattr("goaitools_py.open_turn.meter.read_entries", reading)
    tokens = sum(map(len, entries)) // bytes_per_token
    run(face.chat(ScriptedBackend(counted(wire, tokens), wire=wire)), state, user="And?")

    assert (max(read, default=0) >= 40) is reads_all


# ---------------------------------------------------------------------------------- another window


@pytest.mark.parametrize("wire", ALL)
def test_a_larger_window_is_taken(face: Any, wire: str, run: Any) -> None:
    """The server was restarted with a larger `num_ctx`: what it counts is believed again."""
    backend = ScriptedBackend(*[counted(wire, read) for read in (600, 1_300, 1_500)], wire=wire)
    chat = face.chat(backend)
    first = run(chat, user="word " * 1_100)
    second = run(chat, first.state, user="And?")
    third = run(chat, second.state, user=STORY)

    assert [codes(one) for one in (first, second, third)] == [[CODE], [], []]
    assert second.context_used == pytest.approx(1_303, abs=20)
    assert inspect_state(third.state).context_window == 1_500


@pytest.mark.parametrize("wire", ALL)
def test_another_model_has_another_window(face: Any, wire: str, run: Any) -> None:
    """What one server could take says nothing of the next one; nor after a conversion."""
    cut = run(face.chat(ScriptedBackend(counted(wire, 600), wire=wire)), user="word " * 1_100)
    assert inspect_state(cut.state).context_window == 600

    other = ScriptedBackend(counted(wire, 1_300), wire=wire, model="another")
    result = run(face.chat(other), cut.state, user="And?")
    assert codes(result) == []
    assert inspect_state(result.state).context_window is None
    assert result.context_fraction is None

    to = ANTHROPIC if wire == CHAT else CHAT
    assert inspect_state(convert_state(cut.state, to=to).state).context_window is None


UNREADABLE: dict[str, tuple[bytes, bytes]] = {
    "an entry that is no object": (b"[]", b'[0,2,[["ua","",1,0,0,1,0,0,0]]]'),
    "an entry that is cut off": (b'{"role":"assis', b'[0,2,[["ua","",1,0,0,1,0,0,0]]]'),
    "facts of other types": (b"{}", b'[0,2,[["ua","",1,0,0,1,0,0,0]],{"flags":3}]'),
    "a letter of a later release": (b"{}", b'[0,2,[["uZ","",1,0,0,1,0,0,0]]]'),
    "more letters than entries": (b"{}", b'[0,2,[["uaa","",1,0,0,1,0,0,0]]]'),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("wire", ALL)
def test_a_paid_reply_is_stored_behind_a_turn_that_cannot_be_read(wire: str, name: str, stream: bool) -> None:
    """A usage far below the size of the history makes the books read that history. It is a forged one, and
    nobody has read it before."""
    entry, row = UNREADABLE[name]
    asked = json.dumps({"role": "user", "content": STORY * 20}).encode()
    meta = b'{"wire":"%s","id":"f","rev":1,"created":1,"turns":1,"processed":1,"messages":2,"rules":9}'
    hot = stored_segment(Kind.HOT, [asked, entry], row)
    blob = blobs.encode([blobs.segment(Kind.META, meta % wire.encode(), 0), hot])
    with pytest.raises(StateError):
        closed_turns(load_state(blob))

    with Chat(ScriptedBackend(counted(wire, 600), wire=wire)) as chat:
        if stream:
            result = chat.start(blob, user="Hi.", on_bad_state="raise").result()
        else:
            result = chat.chat_with_state(blob, user="Hi.", on_bad_state="raise")

    state = load_state(result.state)
    assert result.usage.input_tokens == 600
    assert (state.meta.processed, state.open, state.inbox) == (2, None, ())
    assert codes(result) == []
