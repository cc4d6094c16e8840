"""What a state has room for: marks that warn in time, small cuts, and what comes into a running turn."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from goaitools_py import (
    Compactor,
    ContextWarning,
    Deny,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    StateSizeError,
    StateTooLargeError,
    ToolContext,
    ToolReturn,
    TurnError,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.open_turn import room
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.state import unfinished_segments
from goaitools_py.state.state import closed_turns, load_state
from goaitools_py.states import pending_calls, read_history, state_from_messages
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.turn import shrink
from goaitools_py.turn.edges import async_edge, sync_edge
from goaitools_py.turn.flow import Moment
from goaitools_py.types.errors import StateInvalidError

from ..history._bombs import bomb

WIRES = ("openai", "openai-responses", "anthropic")


def marks(result: Any) -> list[str]:
    """What the result's warnings say of marks."""
    return [warning.message for warning in result.warnings if warning.code == "context_mark"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("limits", "of", "text"),
    [
        (BlobLimits(max_entries=20), "entries", "Hm."),
        (BlobLimits(max_decoded_bytes=20_000), "decoded_bytes", "y" * 2_000),
    ],
    ids=["entries", "bytes"],
)
def test_marks_of_the_states_limits_are_told_once(
    face: Any, run: Any, wire: str, limits: BlobLimits, of: str, text: str
) -> None:
    """At 70 and at 90 per cent of a limit there is a warning and an event, and none in between."""
    events: list[ContextWarning] = []
    backend = ScriptedBackend(*[text] * 10, wire=wire)
    chat = face.chat(
        backend,
        codec=Plain(limits=limits),
        on_event=lambda e: events.append(e) if isinstance(e, ContextWarning) else None,
    )
    state, told = None, []
    for number in range(9):
        result = run(chat, state, user=f"{number}")
        state = result.state
        told += marks(result)

    assert ["70%" in one for one in told] == [True, False]
    assert ["90%" in one for one in told] == [False, True]
    assert all(f"max_{of}={getattr(limits, 'max_' + of)}" in one for one in told)
    assert [(event.level, event.of) for event in events] == [("approaching", of), ("at_limit", of)]
    assert all(event.used >= 0.7 * event.limit for event in events)


def long_history(wire: str, turns: int, size: int = 4) -> list[dict[str, Any]]:
    """So many short turns, in words that all wires share."""
    history: list[dict[str, Any]] = []
    for number in range(turns):
        history += [
            {"role": "user", "content": f"{number} " + "q" * size},
            {"role": "assistant", "content": "a" * size},
        ]
    return history


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_cut_at_the_limit_of_entries_drops_no_more_than_it_must(
    face: Any, run: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,000 messages a twentieth goes, so that the next turns need no cut; on an event loop a large cut is
    computed beside it."""
    threads: list[int] = []

    def limit_cut(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.get_ident())
        return found(*args, **kwargs)

    found = shrink.limit_cut
    monkeypatch.setattr(shrink, "limit_cut", limit_cut)
    codec = Plain(limits=BlobLimits(max_entries=1_000))
    state = state_from_messages(wire, long_history(wire, 500, 300), codec=codec)
    backend = ScriptedBackend("Hm.", "Hm.", wire=wire)
    chat = face.chat(backend, codec=codec, context_marks=())

    result = run(chat, state, user="Once more.")
    after = run(chat, result.state, user="And again.")

    assert [warning.code for warning in result.warnings] == ["emergency_cut"]
    assert 0 < result.compaction.removed_messages <= 60
    assert after.warnings == ()
    assert len(threads) == 1
    assert (threads[0] == threading.get_ident()) is not face.is_async


@pytest.mark.parametrize("wire", WIRES)
def test_text_of_results_is_cut_to_the_option(face: Any, run: Any, wire: str) -> None:
    """`max_tool_result_bytes` holds for results, smaller or larger than the default, and the tool can read
    it."""

    @tool
    def peek(ctx: ToolContext[Any]) -> str:
        """Peek."""
        seen.append(ctx.max_result_bytes)
        return "z" * 300_000

    seen: list[int] = []

    backend = ScriptedBackend(Calls([("peek", {})]), "Much.", wire=wire)
    chat = face.chat(backend, tools=[peek], max_tool_result_bytes=1_000)
    (record,) = run(chat, None, user="Look.").tool_log
    assert len(record.result.encode()) <= 1_000
    assert "characters removed" in record.result

    backend.then(Calls([("peek", {})]), "Much.")
    (record,) = run(chat, None, user="Look.", max_tool_result_bytes=400_000).tool_log
    assert record.result == "z" * 300_000
    assert seen == [1_000, 400_000]


@pytest.mark.parametrize("wire", WIRES)
def test_a_message_too_large_for_a_running_turn_is_refused(face: Any, wire: str) -> None:
    """Its author is told, and the turn goes on."""
    refused: list[str] = []

    @tool
    def look() -> str:
        """Look around."""
        try:
            turn.append(user("y" * 30_000))
        except StateTooLargeError as exc:
            refused.append(exc.limit_name)
        turn.append(user("Also this."))
        return "quiet"

    backend = ScriptedBackend(Calls([("look", {})]), "Fine.", wire=wire)
    codec = Plain(limits=BlobLimits(max_decoded_bytes=17_000))
    turn = face.chat(backend, tools=[look], codec=codec, tool_threads=False).start(None, user="Look.")

    result = turn.result()

    assert (result.text, refused) == ("Fine.", ["max_decoded_bytes"])
    assert "Also this." in str(backend.bodies()[-1])


def test_a_note_begins_when_the_oldest_turn_did(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that a strategy wrote takes the start time of the first turn that is left."""
    ticks = count(1_000_000, 500)
    for edge in (sync_edge, async_edge):
        monkeypatch.setattr(edge, "_now", lambda: Moment(next(ticks), next(ticks) / 1000))
    backend = ScriptedBackend(*["Hm."] * 5)
    chat = face.chat(backend, timeout=None)
    state = chat.chat(user="First.").state
    state = chat.run_turns(state, ["1", "2", "3", "4"]).state
    state = chat.compact_state(state, Compactor(MessageLimit(1), KeepRecentTurns(4))).state
    before = [turn.record.at for turn in closed_turns(load_state(state))]

    def summed(request: Any) -> Any:
        return (request.note("Gone.", kind="gap"), *request.turns[2:])

    report = chat.compact_state(state, Compactor(MessageLimit(1), summed))
    after = [turn.record.at for turn in closed_turns(load_state(report.state))]

    assert 0 < before[0] < before[1] < before[2]
    assert after == [before[0], *before[2:]]


@tool(idempotent=True)
def nod() -> str:
    """Nod."""
    return "x"


@tool(requires_approval=True)
def asked() -> str:
    """Ask first."""
    return "x"


@tool(external=True)
def outside() -> str:
    """Elsewhere."""


SMALL = Plain(limits=BlobLimits(max_entries=100))
LEAST = Plain(limits=BlobLimits(max_entries=16))


def roomy(face: Any, wire: str, *script: Any, codec: Plain = SMALL, **fields: Any) -> Any:
    """A chat with a limit of entries that one reply can reach."""
    backend = ScriptedBackend(*script, wire=wire)
    tools = [nod, asked, outside]
    return face.chat(backend, codec=codec, tools=tools, limits=Limits(max_tool_calls=None), **fields)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("calls", [30, 60, 90, 120, 150, 170, 180, 195, 205, 300])
def test_a_reply_of_many_calls_leaves_a_state_that_goes_on(
    face: Any, run: Any, wire: str, calls: int
) -> None:
    """Around the limit of entries, and around twice the limit: an error has a state that can be read, and the
    next turn goes on with it. Where one entry has the results of all calls, their number does not matter."""
    saved: list[bytes] = []
    chat = roomy(
        face, wire, Calls([("nod", {})] * calls), "Done.", "Next.", "Next.", on_checkpoint=saved.append
    )

    try:
        result = run(chat, None, user="Go.")
        state, text = result.state, result.text
    except StateSizeError as error:
        state, text = error.state, error.text
    for blob in saved:
        load_state(blob, codec=SMALL)
    after = run(chat, state, user="And now?", on_pending="deny")

    messages = read_history(state, codec=SMALL).all_messages()
    done = [message.text for message in messages if message.role == "tool"]
    assert messages[0].text == "Go."
    assert after.text in ("Next.", "Done.")
    assert done[:128] in ([], ["x"] * min(calls, 128))  # at most so many are run of one reply
    assert len(done) in (0, calls)
    assert text == ("Done." if done else "")
    assert done or wire != "anthropic"


@pytest.mark.parametrize("codec", [LEAST, SMALL])
@pytest.mark.parametrize("name", ["asked", "outside"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_waits_can_be_answered(face: Any, wire: str, name: str, codec: Plain) -> None:
    """However many calls wait: a short answer to each of them reaches the model, and so does a denial."""
    waited, entries = 0, codec.limits.max_entries
    for calls in (entries * eighths // 8 - 1 for eighths in range(4, 17, 2)):
        for answer in (ToolReturn("so"), Deny("no")):
            chat = roomy(face, wire, Calls([(name, {})] * calls), "Done.", codec=codec)
            try:
                state = chat.chat_with_state(None, user="Go.").state
            except StateSizeError as error:
                state = error.state
            waiting = pending_calls(state, codec=codec)
            assert len(waiting) in (0, calls)
            if waiting:
                waited += 1
                try:
                    text = chat.resume(state, {call.id: answer for call in waiting}).text
                except StateSizeError as error:  # the paid reply does not fit any more: it is here
                    text = error.text
                assert text == "Done."
    assert waited >= 4


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_with_more_calls_than_a_turn_may_have_is_refused(
    face: Any, run: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tool starts, the text stays, and the next turn goes on."""
    for module in (room, unfinished_segments):
        monkeypatch.setattr(module, "MAX_OPEN_CALLS", 20)
    chat = roomy(face, wire, Calls([("nod", {})] * 20), "Done.", Calls([("nod", {})] * 21), "Next.")

    state = run(chat, None, user="Go.").state
    with pytest.raises(StateSizeError, match="has 21 calls, expected at most 20") as caught:
        run(chat, state, user="Again.")
    after = run(chat, caught.value.state, user="And now?")

    messages = read_history(after.state, codec=SMALL).all_messages()
    assert [message.text for message in messages if message.role == "tool"] == ["x"] * 20
    assert after.text == "Next."


@pytest.mark.parametrize("wire", WIRES)
def test_a_state_with_more_open_calls_is_refused(wire: str) -> None:
    """This package writes none; a foreign state may be one."""
    with pytest.raises(StateInvalidError, match="25000 calls, expected at most 20000"):
        load_state(bomb(wire, "open calls", 150_000))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("ends", [True, False], ids=["answered", "refused"])
def test_a_turn_keeps_its_number_over_a_cut_in_it(face: Any, run: Any, wire: str, ends: bool) -> None:
    """The cut that makes room for the second turn takes the first one: the second is still number 2, in each
    state on the way, in an error's, and for the turns behind it."""
    too_long = BackendError("too large", kind="rejected", status=413)
    saved: list[bytes] = []
    script = ["One.", Calls([("nod", {})]), too_long, "Two." if ends else too_long, "Three."]
    chat = face.chat(ScriptedBackend(*script, wire=wire), tools=[nod], on_checkpoint=saved.append)
    state = run(chat, None, user="First.").state

    try:
        state = run(chat, state, user="Second.").state
    except TurnError as error:
        state = error.state
    after = run(chat, state, user="Third.", on_pending="deny").state

    for blob in (*saved, state, after):
        turns = read_history(blob).turns
        assert {turn.messages[0].text: turn.number for turn in turns if turn.number} == {
            text: number
            for number, text in enumerate(("First.", "Second.", "Third."), 1)
            if text in {turn.messages[0].text for turn in turns}
        }
