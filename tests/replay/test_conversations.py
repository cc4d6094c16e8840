"""Facts about real conversations: rebuilt turn by turn, they come out of the state as they went in.

The model answers with the recorded words and the tools return the recorded results; every turn is a new
chat on the blob of the last one. Then one more turn is asked of the simulator, over a socket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import GoAIToolsError, rawjson, state_messages, user
from goaitools_py.sim import SimServer
from goaitools_py.testing import check_history

from ._drive import Colour, NotDrivable, Tools, drive, recorded_tools, scripted
from ._recorded import comparable, read_lines
from ._script import Endpoint, Script, script

JSON = Mapping[str, Any]

FILES = ("aider", "mtbench", "mtbench101", "oasst-eval", "sgd", "sweagent", "tau-airline-gpt4o")
FLOOR = 0.95
ASYNC_STRIDE = 4
"""On the async side every fourth conversation: the turn is the same code, and each costs a real socket."""


@pytest.fixture(scope="module")
def provider(colour: Colour) -> Iterator[tuple[SimServer, Any]]:
    """One simulator and one connection to it for all conversations of a colour."""
    with SimServer() as sim:
        backend = colour.backend("sim-model", base_url=sim.base_url, api_key="sim", max_retries=0)
        yield sim, backend
        colour.settle(backend.aclose() if colour.is_async else backend.close())


@pytest.mark.parametrize("name", FILES)
def test_conversations_are_kept_and_go_on(
    name: str,
    data_dir: Path,
    schema_problems: Callable[[bytes], list[str]],
    colour: Colour,
    provider: tuple[SimServer, Any],
) -> None:
    """At least 95 % of a file's conversations come back equal and get an answer to one more message."""
    path = data_dir / "conversations" / f"{name}.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no conversations: {path.name} is not in the data directory")
    total, failed = 0, []
    for line in islice(read_lines(path), 0, None, ASYNC_STRIDE if colour.is_async else 1):
        conversation = json.loads(line)
        total += 1
        if problem := problem_of(conversation, colour, *provider, schema_problems):
            failed.append(f"{conversation['id']}: {problem}")
    print(f"\n{name}: {total - len(failed)} of {total} conversations", *failed, sep="\n  ")

    assert total
    assert total - len(failed) >= FLOOR * total


def problem_of(
    conversation: JSON,
    colour: Colour,
    sim: SimServer,
    backend: Any,
    schema_problems: Callable[[bytes], list[str]],
) -> str:
    """What went wrong with a conversation; empty if nothing did."""
    story = script(conversation["messages"], endpoints={None: Endpoint(body={"tools": tools(conversation)})})
    try:
        driven = drive(colour, story, connect=scripted)
        state = driven.states[-1] if driven.states else None
        if not is_equal(state, conversation["messages"], story):
            return "its messages came back changed"
        if driven.sent and (found := schema_problems(driven.sent[-1])):
            return f"its last request is not of the published type: {', '.join(found)}"
        return go_on(state, story, colour, sim, backend)
    except (NotDrivable, GoAIToolsError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def tools(conversation: JSON) -> Sequence[JSON]:
    """The conversation's own tools; where it names none, open ones of the names that were called."""
    if conversation.get("tools"):
        own: Sequence[JSON] = conversation["tools"]
        return own
    calls = [call for message in conversation["messages"] for call in message.get("tool_calls") or ()]
    names = sorted({call["function"]["name"] for call in calls})
    return [{"type": "function", "function": {"name": name}} for name in names]


def is_equal(state: bytes | None, messages: Sequence[JSON], story: Script) -> bool:
    """Whether the state's messages are the conversation's, less the preamble and what was not said yet."""
    end = len(messages) - len(story.messages)
    theirs = [
        {key: value for key, value in message.items() if key != "name"}  # of a tool: the call says it
        for message in messages[len(story.preamble) : end]
    ]
    ours = with_reused_ids(state_messages(state) if state else [], theirs)
    return bool(comparable(ours) == comparable(theirs))


def with_reused_ids(ours: Sequence[JSON], theirs: Sequence[JSON]) -> list[JSON]:
    """Our messages with the recorded ids of calls whose id an earlier call had; those were rewritten."""
    seen: set[str] = set()
    reused: dict[str, str] = {}
    for message, recorded in zip(ours, theirs, strict=False):
        for call, known in zip(message.get("tool_calls", ()), recorded.get("tool_calls", ()), strict=False):
            if known["id"] in seen:
                reused[call["id"]] = known["id"]
            seen.add(known["id"])
    renamed: list[JSON] = []
    for message in ours:
        changed = dict(message)
        if message.get("tool_call_id") in reused:
            changed["tool_call_id"] = reused[message["tool_call_id"]]
        if "tool_calls" in message:
            calls = message["tool_calls"]
            changed["tool_calls"] = [{**call, "id": reused.get(call["id"], call["id"])} for call in calls]
        renamed.append(changed)
    return renamed


def go_on(state: bytes | None, story: Script, colour: Colour, sim: SimServer, backend: Any) -> str:
    """Ask one more thing of the simulator, and say what it found wrong with the requests."""
    sim.clear()
    endpoint = story.calls[-1].asks[0].endpoint if story.calls else Endpoint()
    chat = colour.chat(backend, tools=recorded_tools(endpoint, Tools(())))
    said = (*story.preamble, *story.messages, user("What was said first?"))
    result = colour.settle(chat.chat_with_state(state, messages=said))
    requests = sim.requests
    problems = [*sim.problems, *(f"status {one.status}" for one in requests if one.status != 200)]
    for one in requests:
        problems += check_history("openai", rawjson.items(rawjson.members(one.body)["messages"]))
    if result.status != "complete":
        problems.append(f"the turn ended as {result.status!r}")
    return "; ".join(problems)
