"""Facts about real conversations: rebuilt turn by turn, they come out of the state as they went in.

The model answers with the recorded words, in the words of each wire, and the tools return the recorded
results; every turn is a new chat on the blob of the last one. Then one more turn is asked of the simulator,
over a socket.

Every conversation is rebuilt if GOAITOOLS_ALL_CONVERSATIONS is set; else a fixed sample of each file, which
is printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import GoAIToolsError, system, user
from goaitools_py.base import rawjson
from goaitools_py.sim import SimServer
from goaitools_py.states import state_messages
from goaitools_py.testing import check_history

from ._drive import Colour, NotDrivable, Tools, drive, recorded_tools, scripted
from ._recorded import read_lines
from ._rules import known_part
from ._script import Endpoint, Script, script
from ._wire import JSON, Wire, comparable
from ._wire_anthropic import ANTHROPIC
from ._wire_chat import CHAT
from ._wire_responses import RESPONSES

FILES = ("aider", "mtbench", "mtbench101", "oasst-eval", "sgd", "sweagent", "tau-airline-gpt4o")
FLOOR = 0.95
SAMPLE = {False: 120, True: 30}
"""So many of a file at most, by whether the colour is async: its turn is the same code."""


@pytest.fixture(scope="class", params=[CHAT, RESPONSES, ANTHROPIC], ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    """The facts hold on each wire."""
    found: Wire = request.param
    return found


@pytest.fixture(scope="class")
def provider(colour: Colour, wire: Wire) -> Iterator[tuple[SimServer, Any]]:
    """One simulator and one connection to it for all conversations of a colour and wire."""
    with SimServer() as sim:
        url = sim.base_url_for(wire.name)
        backend = colour.backend(wire, "sim-model", base_url=url, api_key="sim", max_retries=0)
        yield sim, backend
        colour.settle(backend.aclose() if colour.is_async else backend.close())


class TestConversations:
    """Seven files of real conversations."""

    @pytest.mark.parametrize("name", FILES)
    def test_conversations_are_kept_and_go_on(
        self,
        name: str,
        data_dir: Path,
        schema_problems: Callable[[str], Callable[[bytes], list[str]]],
        colour: Colour,
        wire: Wire,
        provider: tuple[SimServer, Any],
    ) -> None:
        """At least 95 % of a file's conversations come back equal and get an answer to one more message."""
        path = data_dir / "conversations" / f"{name}.jsonl.zst"
        if not path.is_file():
            pytest.skip(f"no conversations: {path.name} is not in the data directory")
        lines = list(read_lines(path))
        stride = (
            1 if os.environ.get("GOAITOOLS_ALL_CONVERSATIONS") else -(-len(lines) // SAMPLE[colour.is_async])
        )
        conversations = [json.loads(line) for line in lines[::stride]]

        problems = {
            one["id"]: problem_of(one, wire, colour, *provider, schema_problems) for one in conversations
        }

        failed = [f"{id}: {problem}" for id, problem in problems.items() if problem]
        kept = len(problems) - len(failed)
        print(f"\n{name}, one in {stride}: {kept} of {len(problems)}", *failed, sep="\n  ")
        assert len(problems) == len(conversations) > 0
        assert kept >= FLOOR * len(problems)


def problem_of(
    conversation: JSON,
    wire: Wire,
    colour: Colour,
    sim: SimServer,
    backend: Any,
    schema_problems: Callable[[str], Callable[[bytes], list[str]]],
) -> str:
    """What went wrong with a conversation; empty if nothing did."""
    messages = conversation["messages"]
    lead = list(takewhile(lambda message: message["role"] == "system", messages))
    told = wire.told(messages[len(lead) :])
    preamble = tuple(system(message["content"]) for message in lead)
    endpoint = Endpoint(body={"tools": wire.told_tools(tools(conversation))}, preamble=preamble)
    story = script(wire, told, endpoints={None: endpoint})
    try:
        driven = drive(colour, story, connect=scripted)
        state = driven.states[-1] if driven.states else None
        if not is_equal(wire, state, told[: len(told) - len(story.messages)]):
            return "its messages came back changed"
        if driven.sent and (found := schema_problems(wire.schema(None))(driven.sent[-1])):
            return f"its last request is not of the published type: {', '.join(found)}"
        return go_on(state, story, endpoint, colour, sim, backend)
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


def is_equal(wire: Wire, state: bytes | None, told: Sequence[JSON]) -> bool:
    """Whether the state's elements are the conversation's, but for what a provider adds to each."""
    theirs = [
        {key: value for key, value in element.items() if key != "name" or "role" not in element}
        for element in told
    ]
    ours = with_reused_ids(wire, state_messages(state) if state else [], theirs)
    known = [known_part(one, other) for one, other in zip(ours, theirs, strict=False)]
    return len(ours) == len(theirs) and bool(comparable(known) == comparable(theirs))


def with_reused_ids(wire: Wire, ours: Sequence[JSON], theirs: Sequence[JSON]) -> list[JSON]:
    """Our elements with the recorded ids of calls whose id an earlier call had; those were rewritten."""
    seen: set[str] = set()
    reused: dict[str, str] = {}
    for element, recorded in zip(ours, theirs, strict=False):
        if wire.is_spoken(element) and wire.is_spoken(recorded):
            for id, known in zip(wire.calls([element]), wire.calls([recorded]), strict=False):
                if known in seen:
                    reused[id] = known
                seen.add(known)
    text = json.dumps(list(ours))
    for id, known in reused.items():
        text = text.replace(json.dumps(id), json.dumps(known))
    renamed: list[JSON] = json.loads(text)
    return renamed


def go_on(
    state: bytes | None, story: Script, endpoint: Endpoint, colour: Colour, sim: SimServer, backend: Any
) -> str:
    """Ask one more thing of the simulator, and say what it found wrong with the requests."""
    sim.clear()
    wire = story.wire
    chat = colour.chat(backend, tools=recorded_tools(story, endpoint, Tools(())))
    said = (*endpoint.preamble, *story.messages, user("What was said first?"))
    result = colour.settle(chat.chat_with_state(state, messages=said))
    requests = sim.requests
    problems = [*sim.problems, *(f"status {one.status}" for one in requests if one.status != 200)]
    for one in requests:
        problems += check_history(wire.name, rawjson.items(rawjson.members(one.body)[wire.key]))
    if result.status != "complete":
        problems.append(f"the turn ended as {result.status!r}")
    return "; ".join(problems)
