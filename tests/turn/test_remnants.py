"""What a history holds of earlier turns makes no later request that the provider is known to refuse."""

from __future__ import annotations

import json
import typing
from typing import Any, Final

import pytest
from anthropic.types import ContentBlockParam
from anthropic.types.beta import BetaContentBlockParam

from goaitools_py import Compactor, MessageLimit, ModelSettings, ProviderTool, Summarize, tool
from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.base import BackendError
from goaitools_py.states import inspect_state, state_from_messages
from goaitools_py.testing import Raw, ScriptedBackend

from ..conftest import Face
from ._answers import anthropic_answer

TEXT: Final = {"type": "text", "text": "Done."}
BLOCKS: Final[dict[str, list[dict[str, Any]]]] = {
    "mcp": [
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "roll", "server_name": "dice", "input": {}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [{"type": "text", "text": "6"}],
        },
    ],
    "listing": [{"type": "mcp_tool_listing", "mcp_server_name": "dice", "tools": []}],
    "advisor": [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "advisor", "input": {}},
        {
            "type": "advisor_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "advisor_result", "text": "Turn left."},
        },
    ],
    "fallback": [
        {
            "type": "fallback",
            "from": {"model": "claude-fable-5-1"},
            "to": {"model": "claude-opus-5"},
            "trigger": None,
        }
    ],
    "compaction": [{"type": "compaction", "content": "Earlier: a game."}],
    "search": [
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "tool_search_tool_regex", "input": {}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_2",
            "content": {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "look"}],
            },
        },
    ],
}
BETA: Final = {
    "mcp_tool_use": "mcp-client-",
    "mcp_tool_result": "mcp-client-",
    "mcp_tool_listing": "mcp-client-2026-09-15",
    "advisor_tool_result": "advisor-tool-",
    "fallback": "server-side-fallback-",
    "compaction": "compact-",
    "tool_addition": "mid-conversation-tool-changes-",
    "tool_removal": "mid-conversation-tool-changes-",
}
"""The beginning of the beta that the provider wants for each type of block."""

ADVISOR: Final = ProviderTool({"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5"})


@tool
def look(place: str) -> str:
    """Look at a place."""
    return place


def kinds(union: Any) -> set[str]:
    """The types of blocks that a union of the SDK names."""
    found: set[str] = set()
    for one in typing.get_args(union):
        if isinstance(one, type):
            found |= set(typing.get_args(typing.get_type_hints(one)["type"]))
    return found


ONLY_BETA: Final = kinds(BetaContentBlockParam) - kinds(ContentBlockParam)


def named(request: Any) -> list[str]:
    """The betas that a request names."""
    return [one for one in request.headers.get("anthropic-beta", "").split(",") if one]


def blocks(request: Any) -> list[dict[str, Any]]:
    """All blocks of a request's messages."""
    messages = json.loads(request.body)["messages"]
    return [block for one in messages if isinstance(one["content"], list) for block in one["content"]]


def check(request: Any) -> None:
    """Fail for what the provider is known to refuse of the history in a request."""
    body = json.loads(request.body)
    tools = body.get("tools", [])
    for block in blocks(request):
        kind = block["type"]
        if kind in ONLY_BETA:
            assert any(beta.startswith(BETA[kind]) for beta in named(request)), (kind, named(request))
        if kind == "advisor_tool_result" or block.get("name") == "advisor":
            assert any(one.get("type", "").startswith("advisor_") for one in tools), kind
        if kind == "tool_search_tool_result":
            names = {one["tool_name"] for one in block["content"]["tool_references"]}
            assert names <= {one.get("name") for one in tools}, names
    assert len(named(request)) == len(set(named(request)))


def backend(*steps: Any, **how: Any) -> ScriptedBackend:
    return ScriptedBackend(*steps, wire="anthropic", **{"model": "claude-opus-4-8", **how})


def first(face: Face, name: str, **how: Any) -> bytes:
    """A state whose first reply holds these blocks."""
    tools = [look, ADVISOR] if name in ("advisor", "search") else []
    own = backend(anthropic_answer(*BLOCKS[name], TEXT))
    state: bytes = face.chat(own, tools=tools, **how).chat(user="Hi.").state
    return state


def test_every_block_of_a_beta_is_known() -> None:
    """A release of the SDK with a new block has to be looked at."""
    assert set(BETA) == ONLY_BETA


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("listens", [False, True], ids=["unary", "streamed"])
def test_a_later_turn_is_taken_without_the_tool_and_the_header(face: Face, name: str, listens: bool) -> None:
    """As somebody writes it who uses the tool for one turn."""
    how = {"on_event": lambda event: None} if listens else {}
    state = first(face, name, **how)
    own = backend("Hello.", "Hello.")
    chat = face.chat(own, **how)

    after = chat.run_turns(state, ["And now?", "And now?"])

    for request in own.requests:
        check(request)
    assert after.text == "Hello."
    assert b"Turn left." in own.requests[-1].body or name != "advisor"


@pytest.mark.parametrize("name", BLOCKS)
def test_a_later_turn_with_the_tool_has_the_blocks_as_they_came(face: Face, name: str) -> None:
    """Nothing is rewritten where nothing has to be."""
    state = first(face, name)
    own = backend("Hello.")
    tools = [look, ADVISOR] if name in ("advisor", "search") else []

    face.chat(own, tools=tools).chat_with_state(state, user="And now?")

    check(own.requests[0])
    for block in BLOCKS[name]:
        assert block in blocks(own.requests[0])


@pytest.mark.parametrize("name", BLOCKS)
def test_a_fallback_and_another_model_are_asked_in_the_same_way(face: Face, name: str) -> None:
    """The history goes along, and so does what it needs."""
    state = first(face, name)
    other = backend("Hello.", model="claude-opus-5")
    chat = face.chat(backend(BackendError("down", status=503)), fallbacks=[other])
    chat.chat_with_state(state, user="And now?")
    switched = backend("Hello.")
    settings = ModelSettings(model="claude-opus-5")
    face.chat(switched).chat_with_state(state, user="And now?", settings=settings)

    check(other.requests[0])
    check(switched.requests[0])


@pytest.mark.parametrize("name", BLOCKS)
def test_imported_messages_are_asked_in_the_same_way(face: Face, name: str) -> None:
    """No reply has marked their state."""
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": [*BLOCKS[name], TEXT]},
    ]
    own = backend("Hello.")

    face.chat(own).chat_with_state(state_from_messages("anthropic", messages), user="And now?")

    check(own.requests[0])


def test_imported_changes_of_tools_name_their_beta(face: Face) -> None:
    """They stand in messages that no model wrote."""
    change = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "look"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hi."}, change]},
        {"role": "assistant", "content": [TEXT]},
    ]
    own = backend("Hello.")

    face.chat(own, tools=[look]).chat_with_state(state_from_messages("anthropic", messages), user="And?")

    check(own.requests[0])
    assert change in blocks(own.requests[0])


@pytest.mark.parametrize("name", BLOCKS)
def test_a_summary_is_asked_for_in_the_same_way(face: Face, name: str) -> None:
    """The question stands behind the same history."""
    state = first(face, name)
    own = backend("A summary.", "Hello.")
    chat = face.chat(own, compactor=Compactor(MessageLimit(1), Summarize(keep_turns=1)))

    chat.run_turns(state, ["And now?"])
    after = backend(*["Hello."] * 3, "A summary.", "Hello.")
    chat = face.chat(after, compactor=Compactor(MessageLimit(4), Summarize(keep_turns=1)))
    chat.run_turns(state, ["One.", "Two.", "Three."])

    for request in (*own.requests, *after.requests):
        check(request)


def test_the_callers_own_version_of_a_beta_is_the_only_one(face: Face) -> None:
    """Another version beside it might be refused."""
    own = backend("Hello.")
    settings = ModelSettings(extra_headers={"Anthropic-Beta": "mcp-client-2027-01-01, other-2026-01-01"})

    face.chat(own).chat_with_state(first(face, "listing"), user="And now?", settings=settings)

    assert own.requests[0].headers["Anthropic-Beta"] == "mcp-client-2027-01-01, other-2026-01-01"


def test_the_newest_version_is_named_if_one_block_needs_it(face: Face) -> None:
    """Whichever of the blocks came last."""
    both = backend(
        anthropic_answer(*BLOCKS["listing"], TEXT), anthropic_answer(*BLOCKS["mcp"], TEXT), "Hello."
    )

    face.chat(both).run_turns(None, ["Hi.", "Hi.", "Hi."])

    assert named(both.requests[2]) == ["mcp-client-2026-09-15"]


def test_a_plain_history_names_no_beta(face: Face) -> None:
    """Nor does it mark the state."""
    own = backend("Hello.", "Hello.")

    face.chat(own).run_turns(None, ["Hi.", "Hi."])

    assert "anthropic-beta" not in own.requests[1].headers


def test_a_call_of_a_model_that_declined_is_not_run(face: Face) -> None:
    """What stands before the last fallback is left out of the history, and its tool does not start."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"place": "hall"}}
    more = {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"place": "attic"}}
    reply = anthropic_answer(use, *BLOCKS["fallback"], more, stop="tool_use")
    own = backend(reply, "Hello.")

    result = face.chat(own, tools=[look]).chat(user="Hi.")

    assert [record.call.id for record in result.tool_log] == ["toolu_2"]
    assert [block for block in blocks(own.requests[1]) if block["type"] == "tool_use"] == [more]
    assert BLOCKS["fallback"][0] in blocks(own.requests[1])


CONTAINER: Final = {"id": "container_1", "expires_at": "2999-01-01T00:00:00Z"}
CODE: Final = ProviderTool({"type": "code_execution_20260120", "name": "code_execution"})


def in_container(request: Any) -> Raw:
    """A reply that ran in a container."""
    body = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [TEXT],
        "stop_reason": "end_turn",
        "container": CONTAINER,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return Raw.body(json.dumps(body).encode())


def test_a_container_of_another_server_is_not_named(face: Face) -> None:
    """No other server knows it. Its own server is told of it."""
    state = face.chat(backend(in_container), tools=[CODE]).chat(user="Hi.").state
    same = backend("Hello.")
    other = backend("Hello.", dialect=AnthropicDialect("aws"), shape=_shape())

    for one in (same, other):
        face.chat(one, tools=[CODE]).chat_with_state(state, user="And now?")

    assert json.loads(same.requests[0].body)["container"] == "container_1"
    assert "container" not in json.loads(other.requests[0].body)
    assert inspect_state(state).wire == "anthropic"


def _shape() -> Any:
    from goaitools_py.testing._reply_shapes import SHAPES

    return SHAPES["anthropic"]


def test_a_container_that_has_expired_is_named_in_no_summary(face: Face) -> None:
    """As in the requests of turns."""

    def expired(request: Any) -> Raw:
        raw = in_container(request)
        return Raw([raw.chunks[0].replace(b"2999", b"1999")])

    state = face.chat(backend(expired), tools=[CODE]).chat(user="Hi.").state
    own = backend(*["Hello."] * 6)
    compactor = Compactor(MessageLimit(4), Summarize(keep_turns=1))

    face.chat(own, tools=[CODE], compactor=compactor).run_turns(state, ["One.", "Two.", "Three."])

    assert len(own.requests) > 3
    assert all("container" not in json.loads(one.body) for one in own.requests)
