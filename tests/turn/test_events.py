"""Events say whose they are and what happened, and not what was said."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

import pytest

from goaitools_py import (
    Appended,
    AsyncChat,
    Chat,
    Compacted,
    Compactor,
    KeepRecentTurns,
    MessageLimit,
    ModelReplied,
    StateDiscarded,
    StateSaved,
    StoreCommitError,
    TextDelta,
    ToolContext,
    ToolStarted,
    TurnCompleted,
    TurnError,
    event,
    tool,
)
from goaitools_py.backends.base import BackendError
from goaitools_py.compaction import CompactionReport
from goaitools_py.states import inspect_state, rewind_state
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

LOOK = Calls([("look", {})], "canary")
DOWN = BackendError("no", status=500)
EVERY_TURN = Compactor(MessageLimit(1), KeepRecentTurns(1))


def look(ctx: ToolContext) -> str:
    """Look around."""
    ctx.log_action(ctx.turn_id)
    return "canary"


def refs(events: list[Any]) -> set[tuple[str, str]]:
    """Whose these events are."""
    return {(one.conversation_id, one.turn_ref) for one in events}


def turn(chat: Any, state: bytes | None, **fields: Any) -> tuple[str, Any, list[Any]]:
    """A turn's ref, its result or error, and its events, which are all of one turn."""
    events: list[Any] = []
    run = chat.resume if fields.pop("resume", False) else chat.chat_with_state
    try:
        outcome: Any = run(state, on_event=events.append, **fields)
    except TurnError as error:
        outcome = error
    ((conversation, ref),) = refs(events)
    assert conversation == inspect_state(outcome.state).conversation_id
    return ref, outcome, events


# ------------------------------------------------------------------------------------------- whose it is


def test_every_event_of_a_turn_says_whose_it_is(face: Any, wire: str) -> None:
    """Deltas, calls, tools, checkpoints, compactions and the end: one conversation, one turn, and the same
    name that the tools know."""
    script = ["canary", LOOK, "canary"]
    chat = face.chat(ScriptedBackend(*script, wire=wire), tools=[look], compactor=EVERY_TURN)
    first, begun, _ = turn(chat, None, user="canary")

    second, result, events = turn(chat, begun.state, user="canary", context_marks=(0.000001,))

    assert first != second
    assert [action.text for action in result.actions] == [second]
    assert {type(one).__name__ for one in events} >= {
        "TurnStarted", "ModelRequested", "TextDelta", "ModelReplied", "ToolStarted", "ToolFinished",
        "CheckpointReady", "Compacted", "TurnCompleted",
    }  # fmt: skip


def test_a_turn_keeps_its_ref_wherever_it_is_finished(face: Any, wire: str) -> None:
    """It failed before the first reply, and after a tool; each time another process goes on."""
    chat = face.chat(ScriptedBackend(DOWN, LOOK, DOWN, "Done.", wire=wire), tools=[look])
    first, error, _ = turn(chat, None, user="Look.")
    again = face.chat(chat.inner._backend, tools=[look])

    second, error, _ = turn(again, bytes(error.state), resume=True)
    third, result, events = turn(again, bytes(error.state), resume=True)

    assert first == second == third
    assert isinstance(events[-1], TurnCompleted)
    assert result.text == "Done."


def test_no_ref_is_given_twice(face: Any, wire: str) -> None:
    """Not after a cut, a rewind, a turn that failed, or a waiting one that was denied."""

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        raise AssertionError

    steps = ["1", "2", "3", "4" * 9, LOOK, DOWN, "5", Calls([("pay", {})]), "6"]
    chat = face.chat(ScriptedBackend(*steps, wire=wire), tools=[look, pay])
    found: list[str] = []

    def said(state: bytes | None, **fields: Any) -> bytes:
        ref, outcome, _ = turn(chat, state, user="Go on.", **fields)
        found.append(ref)
        return bytes(outcome.state)

    state = rewind_state(said(said(said(None))), 2)
    state = said(state)
    state = chat.compact_state(state, EVERY_TURN).state
    state = said(state)  # fails behind a tool
    state = said(state)  # closes it
    state = said(state)  # waits
    said(state, on_pending="deny")

    assert len(found) == 8
    assert len(set(found)) == 8


def test_conversations_share_no_ref(face: Any, wire: str) -> None:
    """Two that begin alike, and one that is told its id."""
    chat = face.chat(ScriptedBackend(*["Hello."] * 3, wire=wire))

    found = {turn(chat, None, user="Hello.")[0] for _ in range(2)}
    named, _, events = turn(chat, None, user="Hello.", conversation_id="ada")

    assert len(found) == 2
    assert named == "ada-1"
    assert events[0].conversation_id == "ada"


def test_a_turn_that_comes_again_has_the_ref_of_the_first(face: Any, wire: str) -> None:
    """While the history tells which it was; then none, rather than a wrong one."""
    chat = face.chat(ScriptedBackend(*["Hello."] * 4, wire=wire))
    first, result, _ = turn(chat, None, user="Hello.", turn_id="m-1")
    second, result, _ = turn(chat, result.state, user="And?", turn_id="m-2")

    again, _, events = turn(chat, result.state, user="Hello.", turn_id="m-1")
    assert again == first
    assert {type(one) for one in events} == {TextDelta, TurnCompleted}

    assert turn(chat, result.state, user="And?", turn_id="m-2")[0] == second
    cut = chat.compact_state(result.state, EVERY_TURN).state
    assert turn(chat, cut, user="Hello.", turn_id="m-1")[0] == ""


def test_a_state_that_was_discarded_is_told_of_the_new_conversation(face: Any, wire: str) -> None:
    """Its events are all of the one that began in its place."""
    chat = face.chat(ScriptedBackend("Hello.", "Hello.", wire=wire))
    state = chat.chat(user="Hello.").state

    ref, result, events = turn(chat, state[:-1], user="Hello.")

    assert isinstance(events[0], StateDiscarded)
    assert ref == f"{inspect_state(result.state).conversation_id}-1"


# ------------------------------------------------------------------------------------------ what it tells


def test_what_an_event_tells_is_complete_and_silent(face: Any, sim: Any, wire: str) -> None:
    """Through a real socket: every field is JSON; nothing of what was said but in the deltas."""
    from goaitools_py.sim import Reply

    def boom(request: Any) -> Any:
        raise LookupError("canary")

    chat = face.on(sim, tools=[look], prices=lambda charge: Decimal("0.25"), compactor=Compactor(boom, boom))
    sim.push(Reply.calls(("look", "{}")), Reply.text("canary", thinking="canary"))

    ref, result, events = turn(chat, None, user="canary", system="canary")

    told = [one.to_dict() for one in events]
    for one, facts in zip(events, told, strict=True):
        shown = (set(one.__struct_fields__) | {"type"}) - {"blob", "state", "result", "body"}
        assert set(facts) >= shown - one._content
        assert set(one.to_dict(content=True)) >= shown
        assert json.loads(json.dumps(facts)) == facts
        assert facts["turn_ref"] == ref
        if not facts["type"].endswith("Delta"):
            assert "canary" not in json.dumps(facts)
    replies = [facts for facts in told if facts["type"] == "ModelReplied"]
    assert [facts["iteration"] for facts in replies] == [1, 2]
    assert tuple(facts["request_id"] for facts in replies) == result.request_ids
    assert all(facts["model"] == result.model and facts["seconds"] > 0 for facts in replies)
    assert replies[-1]["finish_reason"] == result.finish_reason
    assert sum(facts["usage"]["requests"] for facts in replies) == result.usage.requests == 2
    last = told[-1]
    assert last["type"] == "TurnCompleted"
    assert (last["status"], last["cost_usd"], last["tool_calls"]) == ("complete", 0.5, 1)
    assert last["usage"]["output_tokens"] == result.usage.output_tokens
    assert last["warnings"] == ["compaction_failed"]


def test_an_exception_of_the_callers_shows_its_class_only() -> None:
    """Its text may say anything."""
    report = CompactionReport(outcome="failed", error=LookupError("canary"))

    facts = Compacted(report, conversation_id="c", turn_ref="c-1").to_dict()

    assert facts["report"]["error"] == {"error": "LookupError"}


def test_an_unknown_cost_is_none(face: Any, wire: str) -> None:
    """And never 0."""
    chat = face.chat(ScriptedBackend("Hello.", wire=wire), prices=lambda charge: None)

    _, _, events = turn(chat, None, user="Hello.")

    assert events[-1].to_dict()["cost_usd"] is None


# ------------------------------------------------------------------------------------------ beside turns


def test_an_append_and_a_compaction_are_told(face: Any, wire: str) -> None:
    """The chat's default observer hears of them, as of the turn before; of nothing if nothing changed."""
    events: list[Any] = []
    chat = face.chat(ScriptedBackend(*["Hello."] * 2, wire=wire), on_event=events.append)
    state = chat.run_turns(None, ["Hello.", "Hello."]).state
    identity = inspect_state(state).conversation_id
    events.clear()

    appended = chat.append_to_state(state, event("Rain.", id="e-1"), event("Wind."))
    total = inspect_state(state).total_usage
    assert events == [Appended(2, 4, total, conversation_id=identity, turn_ref=f"{identity}-2")]
    chat.append_to_state(appended, event("Rain.", id="e-1"))
    chat.append_to_state(appended)
    assert len(events) == 1

    report = chat.compact_state(appended, EVERY_TURN, dry_run=True)
    assert len(events) == 1
    report = chat.compact_state(appended, EVERY_TURN)

    assert [type(one) for one in events[1:]] == [Compacted]
    assert events[1].report.removed_turns == report.removed_turns == 1
    assert refs(events) == {(identity, f"{identity}-2")}
    mine: list[Any] = []
    chat.compact_state(appended, Compactor(MessageLimit(1), KeepRecentTurns(5)), on_event=mine.append)
    assert [one.report.outcome for one in mine] == ["no_change"]
    assert len(events) == 2


def test_a_failing_observer_harms_nothing_beside_turns(face: Any) -> None:
    """As in a turn."""
    chat = face.chat(ScriptedBackend("Hello.", "Hello."), on_event=lambda told: 1 / 0)
    state = chat.run_turns(None, ["Hello.", "Hello."]).state

    assert chat.append_to_state(state, event("Rain.")) != state
    assert chat.compact_state(state, EVERY_TURN).outcome == "compacted"


def test_an_async_observer_hears_of_an_append() -> None:
    """It runs as a task of the loop; without one the append is made all the same."""
    heard: list[Any] = []

    async def hear(told: Any) -> None:
        await asyncio.sleep(0)
        heard.append(told)

    chat = AsyncChat(ScriptedBackend(), on_event=hear)

    async def append() -> bytes:
        made = chat.append_to_state(None, event("Rain."))
        while not heard:
            await asyncio.sleep(0)
        return made

    assert asyncio.run(append())
    assert [type(one) for one in heard] == [Appended]
    assert chat.append_to_state(None, event("Rain."))
    assert len(heard) == 1


class Kept:
    """A conversation in a store, of either colour, and what its observer heard."""

    def __init__(
        self,
        face: Any,
        *steps: Any,
        store: Any = None,
        save: str = "turn",
        wire: str = "openai",
        parts: Any = "inline",
        **fields: Any,
    ) -> None:
        self.events: list[Any] = []
        self._face = face
        self.chat = face.chat(ScriptedBackend(*steps, wire=wire), on_event=self.events.append, **fields)
        self.store = store or (AsyncMemoryStore() if face.is_async else MemoryStore())
        self.inner = self.chat.inner.conversation(self.store, "ada", save=save, parts=parts)

    def do(self, name: str, *args: Any, **fields: Any) -> Any:
        made = getattr(self.inner, name)(*args, **fields)
        return self._face.run(made) if self._face.is_async else made

    def saved(self) -> list[StateSaved]:
        return [one for one in self.events if isinstance(one, StateSaved)]


@pytest.mark.parametrize("save", ["turn", "checkpoint"])
def test_each_save_is_told(face: Any, save: str) -> None:
    """With the version that the store has given, and before the turn is said to be complete."""
    kept = Kept(face, LOOK, "Done.", save=save, tools=[look])

    result = kept.do("send", "Look.")

    saved = kept.saved()
    versions = [one.version for one in saved]
    assert versions == sorted(set(versions))
    assert saved[-1].version == kept.do("info").version
    assert saved[-1].blob_bytes == len(result.state)
    assert isinstance(kept.events[-1], TurnCompleted)
    assert refs(kept.events) == {("ada", "ada-1")}
    assert len(saved) > 3 or save == "turn"


@pytest.mark.parametrize("parts", ["inline", "store"])
@pytest.mark.parametrize("save", ["turn", "checkpoint"])
def test_events_tell_how_large_the_conversation_is(face: Any, wire: str, save: str, parts: Any) -> None:
    """Messages and tokens of the whole life are those of the state, also as facts for a log."""
    kept = Kept(face, LOOK, "Done.", save=save, tools=[look], wire=wire, parts=parts)

    kept.do("send", "Look.")
    done = kept.events[-1]
    counted = {"message_count": done.message_count, "total_usage": done.result.total_usage}
    kept.do("append", event("Rain."))
    info = inspect_state(kept.do("state"))

    assert counted == {"message_count": 4, "total_usage": info.total_usage}
    appended = next(one for one in kept.events if isinstance(one, Appended))
    assert info.messages == 4
    for one in (done, kept.saved()[-2], kept.saved()[-1], appended):
        facts = one.to_dict()
        assert facts["message_count"] == 4
        assert facts["total_usage"]["requests"] == 2
        assert facts["total_usage"]["input_tokens"] == info.total_usage.input_tokens
    sizes = [one.message_count for one in kept.saved()]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 2 or save == "turn"


def test_what_is_done_beside_turns_is_told_too(face: Any) -> None:
    """Appends, compactions, forks and rewinds of a kept conversation."""
    kept = Kept(face, *["Hello."] * 3)
    for _ in range(3):
        kept.do("send", "Hello.")
    kept.events.clear()

    kept.do("append", event("Rain."))
    kept.do("fork", "bob")
    kept.do("rewind")
    kept.do("compact", EVERY_TURN)

    names = [type(one).__name__ for one in kept.events]
    assert names == ["Appended", "StateSaved", "StateSaved", "StateSaved", "Compacted", "StateSaved"]
    assert [one.conversation_id for one in kept.events] == ["ada", "ada", "bob", "ada", "ada", "ada"]
    assert {one.turn_ref for one in kept.events} == {"ada-3", "bob-3"}
    assert kept.events[-1].version == kept.do("info").version


def test_a_failed_and_a_given_up_turn_tell_their_save(face: Any) -> None:
    """However it ends, what is saved is told."""
    kept = Kept(face, DOWN, "A long story.")
    with pytest.raises(TurnError):
        kept.do("send", "Hello.")
    assert len(kept.saved()) == 1
    running = kept.inner.start("A story.")

    if face.is_async:

        async def stop() -> None:
            async for one in running:
                if isinstance(one, TextDelta):
                    break
            await running.cancel()

        face.run(stop())
    else:
        for one in running:
            if isinstance(one, TextDelta):
                break
        running.cancel()

    assert len(kept.saved()) == 2
    assert kept.saved()[-1].version == kept.do("info").version


def test_a_commit_that_is_made_up_for_is_told(face: Any) -> None:
    """The store was away at the turn's end; `commit` saves it later."""
    store: Any = AsyncMemoryStore() if face.is_async else MemoryStore()
    save, is_down = store.save, [True]

    def may_save(*args: Any, **fields: Any) -> Any:
        if is_down[0]:
            raise OSError("away")
        return save(*args, **fields)

    store.save = may_save
    kept = Kept(face, "Hello.", store=store)
    with pytest.raises(StoreCommitError) as caught:
        kept.do("send", "Hello.")
    assert kept.saved() == []
    is_down[0] = False

    kept.do("commit", caught.value)

    assert refs(list(kept.saved())) == {("ada", "ada-1")}


def test_tools_start_under_the_ref_of_their_turn() -> None:
    """One name in events and in the tool's context, in both."""
    seen: list[Any] = []
    chat = Chat(ScriptedBackend(LOOK, "Done."), tools=[look], on_event=seen.append)

    result = chat.chat(user="Look.")

    assert [one.turn_ref for one in seen if isinstance(one, ToolStarted)] == [result.actions[0].text]
    assert [one.finish_reason for one in seen if isinstance(one, ModelReplied)][-1] == result.finish_reason
