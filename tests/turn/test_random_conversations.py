"""Random conversations on every wire: never wedged, never lost, and the prefix only grows.

A conversation is 20 to 60 steps drawn from a seed: turns with tools and faults, resumes, forks, restarts.
After each step `World` checks every blob that a caller could hold, and that a plain turn still works on it.
``GOAITOOLS_RANDOM_SEEDS=200`` runs so many seeds per wire and colour instead of a few, ``=100:200`` those
from 100 on. A failure prints the seed and the steps that are left after dropping all that do not matter.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from goaitools_py import ModelSettings, ProviderRejectedError, ProviderTool, TurnError, event
from goaitools_py.sim import Fault, Reply
from goaitools_py.states import inspect_state, state_messages

from ._random_known import Broken
from ._random_steps import Said, Step, draw, shown
from ._random_world import World
from ._reading import read_body

FEW = 2
SHRINK_RUNS = 120


def seeds() -> range:
    """The seeds of this run."""
    first, _, more = os.environ.get("GOAITOOLS_RANDOM_SEEDS", f"0:{FEW}").rpartition(":")
    begin = int(first or 0)
    return range(begin, begin + int(more))


def steps_of(seed: int, wire: str) -> list[Step]:
    """The steps of one conversation."""
    return [draw(seed, number, wire) for number in range(random.Random(seed).randrange(20, 61))]


def play(steps: Sequence[Step], face: Any, sim: Any, clock: Any) -> Counter[str]:
    """Carry the steps out on a simulator of their own; what was done, by kind. Raises `Broken`."""
    with World(face, type(sim), clock, sim.wire) as world:
        for number, step in enumerate(steps):
            try:
                world.run(step)
            except Broken as exc:
                exc.add_note(f"in step {number}")
                raise
        return world.tally


def failure(steps: Sequence[Step], *place: Any) -> str:
    """What breaks, "" if nothing does."""
    try:
        play(steps, *place)
    except Broken as exc:
        return str(exc)
    return ""


def simpler(step: Step) -> Iterator[Step]:
    """The step with less in it, one thing at a time."""
    for at in range(len(step.script)):
        yield replace(step, script=(*step.script[:at], *step.script[at + 1 :]))
    for at, said in enumerate(step.script):
        for field in fields(Said):
            if field.name not in ("kind", "calls") and getattr(said, field.name) != field.default:
                plain = replace(said, **{field.name: field.default})
                yield replace(step, script=(*step.script[:at], plain, *step.script[at + 1 :]))
        if len(said.calls) > 1:
            plain = replace(said, calls=said.calls[:-1], ids=said.ids[: len(said.calls) - 1])
            yield replace(step, script=(*step.script[:at], plain, *step.script[at + 1 :]))
    for field in fields(Step):
        if field.name not in ("kind", "script") and getattr(step, field.name) != field.default:
            yield replace(step, **{field.name: field.default})


def shrink(steps: list[Step], words: str, *place: Any) -> list[Step]:
    """Fewer and simpler steps that break in the same way."""
    left = SHRINK_RUNS

    def breaks(tried: list[Step]) -> bool:
        nonlocal left
        left -= 1
        return left > 0 and failure(tried, *place)[:24] == words[:24]

    size = max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fewer and breaks(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    for at in range(len(steps)):
        is_simpler = True
        while is_simpler and left > 0:
            is_simpler = False
            for step in simpler(steps[at]):
                tried = [*steps[:at], step, *steps[at + 1 :]]
                if breaks(tried):
                    steps, is_simpler = tried, True
                    break
    return steps


@pytest.mark.parametrize("seed", seeds())
def test_a_random_conversation(face: Any, sim: Any, clock: Any, seed: int) -> None:
    """Whatever happens, nothing is lost, nothing happens twice, and the next turn works."""
    steps = steps_of(seed, sim.wire)

    words = failure(steps, face, sim, clock)

    if words:
        left = shrink(steps, words, face, sim, clock)
        pytest.fail(f"seed {seed} on {sim.wire}: {words}\nleft of {len(steps)} steps: {shown(left)}")


# ------------------------------------------------------------- what they found, each as small as it got


def test_a_message_survives_a_cut_a_broken_stream_and_a_413(face: Any, sim: Any) -> None:
    """The cut is undone when size was not the history's fault, and a message accepted since waits again."""
    chat = face.on(sim, max_retries=2)
    before = chat.chat(user="My name is Ada.").state
    broken = Fault.cut_stream(1, reply=Reply.text("Hm."))
    sim.push(Fault.context_length(), broken, Fault.too_large())

    with pytest.raises(ProviderRejectedError) as caught:
        chat.start(before, user="What is my name?").result()
    err = caught.value

    assert [message.text for message in err.pending_input] == ["What is my name?"]
    assert [message["role"] for message in state_messages(err.state)[:1]] == ["user"]
    assert inspect_state(err.state).turns == 1


@pytest.mark.parametrize("wire", ["openai"])
def test_pings_behind_a_whole_reply_end_with_the_deadline(face: Any, sim: Any, wire: str) -> None:
    """All was said but the stream's last word: the deadline ends the wait, and the answer is kept."""
    sim.push(Fault.pings(after=3, reply=Reply.text("Hello.", usage=False)))

    result = face.on(sim).start(None, user="Hi.", timeout=0.5).result()

    assert (result.text, result.status) == ("Hello.", "complete")


@pytest.mark.parametrize("wire", ["anthropic"])
@pytest.mark.parametrize("appended", [False, True])
def test_a_message_behind_a_paused_reply_ends_the_search(
    face: Any, sim: Any, wire: str, appended: bool
) -> None:
    """The hosted call that nobody will answer goes, with a warning; the message is answered."""
    kept: list[bytes] = []
    chat = face.on(sim, tools=[ProviderTool({"type": "web_search_20250305", "name": "web_search"})])
    sim.push(Reply.pause("Let me search. "), Reply.text("Nothing."))
    chat.chat(user="What is the score?", on_checkpoint=kept.append)

    if appended:
        result = chat.resume(chat.append_to_state(kept[0], event("Rain begins.")))
    else:
        result = chat.resume(kept[0], user="Never mind.")

    assert result.status == "complete"
    assert [warning.code for warning in result.warnings] == ["calls_dropped"]
    assert "server_tool_use" not in str(state_messages(result.state))
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_a_call_behind_words_loses_its_reasoning_too(face: Any, sim: Any, wire: str) -> None:
    """Reasoning leads a whole reply: when it goes, words and calls behind it both lose their ids."""
    chat = face.on(sim, tools=[shrug], settings=ModelSettings(reasoning_effort="low"))
    sim.push(Reply.calls(("shrug", "{}"), text="Let me see.", thinking="Hm."))
    state = chat.chat(user="Well?").state

    result = chat.chat_with_state(state, user="And now?", system="You are a librarian.")

    assert "thinking_removed" in [warning.code for warning in result.warnings]
    assert sim.problems == []


@pytest.mark.parametrize("wire", ["openai-responses"])
def test_a_form_tried_in_vain_is_forgotten(face: Any, sim: Any, wire: str) -> None:
    """A refusal, then a stream in another form that breaks off: no reply, so the old bytes are sent again."""
    chat = face.on(sim)
    sim.push(Reply.refusal("No."))
    before = chat.chat_with_state(chat.chat(user="Well?").state, user="Why?").state
    first = read_body(sim.requests[-1].body).spans["input"].rstrip(b"]")
    sim.push(Fault.bad_request(), Fault.cut_stream(3, reply=Reply.text("Because.")))

    with pytest.raises(TurnError) as caught:
        chat.start(before, user="And now?").result()
    tried = read_body(sim.requests[-1].body).spans["input"]
    result = chat.resume(caught.value.state)

    assert not tried.startswith(first)
    assert read_body(sim.requests[-1].body).spans["input"].startswith(first)
    assert "view_changed" not in [warning.code for warning in (*caught.value.warnings, *result.warnings)]


def shrug() -> str:
    """Say nothing much."""
    return "Hm."
