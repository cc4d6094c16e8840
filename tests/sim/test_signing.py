"""Signatures of thinking: every change before a block is found, and every legal replay passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from goaitools_py.sim import Reply, SimServer

HEADERS = {"anthropic-version": "2026-10-21"}
DROP = {**HEADERS, "anthropic-beta": "other-2026-01-01, thinking-binding-controls-2026-08-01"}
TOOL = {"name": "get_score", "input_schema": {"type": "object", "properties": {"team": {"type": "string"}}}}
Request = dict[str, Any]


def post(sim: SimServer, request: Request, headers: dict[str, str] = HEADERS) -> tuple[int, Any]:
    response = sim.respond("POST", "/v1/messages", headers, orjson.dumps(request))
    return response.status, orjson.loads(response.body)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def request(*messages: Any, **more: Any) -> Request:
    return {
        "model": "claude-sim",
        "max_tokens": 4096,
        "thinking": {"type": "adaptive"},
        "system": "You are a game master.",
        "tools": [TOOL],
        "messages": list(messages),
        **more,
    }


def said(sim: SimServer, asked: Request, reply: Reply, headers: dict[str, str] = HEADERS) -> Request:
    """The request of the next turn: the reply and a new question appended."""
    sim.push(reply)
    status, message = post(sim, asked, headers)
    assert status == 200, message
    answers = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "7"}
        for block in message["content"]
        if block["type"] == "tool_use"
    ]
    turn = {"role": "assistant", "content": message["content"]}
    following = {"role": "user", "content": answers} if answers else user("Go on.")
    return {**asked, "messages": [*asked["messages"], turn, following]}


@pytest.fixture
def sim() -> SimServer:
    return SimServer()


@pytest.fixture
def history(sim: SimServer) -> Request:
    """Turns with thinking at messages 1 (a tool call), 3 and 5 (redacted), and a question after them."""
    grown = request(user("Score of Red? 1.50"))
    grown = said(sim, grown, Reply.calls(("get_score", '{"team":"Red","x":1.50}'), thinking="One."))
    grown = said(sim, grown, Reply.text("Seven.", thinking="Two."))
    return said(sim, grown, Reply.text("Well.", redacted=True))


def test_every_reply_begins_with_signed_thinking(history: Request) -> None:
    """The replies of a request that asks for thinking hold it first, open or redacted."""
    first, second, third = (history["messages"][index]["content"][0] for index in (1, 3, 5))

    assert (first["type"], first["thinking"]) == ("thinking", "One.")
    assert (second["type"], second["thinking"]) == ("thinking", "Two.")
    assert set(third) == {"type", "data"}
    assert len({first["signature"], second["signature"], third["data"]}) == 3


# ------------------------------------------------------------------------------------- legal replays


def marked(sent: Request) -> None:
    sent["cache_control"] = {"type": "ephemeral"}
    sent["tools"][0]["cache_control"] = {"type": "ephemeral"}
    sent["messages"][2]["content"][0]["cache_control"] = {"type": "ephemeral"}


def first_as_marked_blocks(sent: Request) -> None:
    text = sent["messages"][0]["content"]
    marks = {"type": "ephemeral", "ttl": "1h"}
    sent["messages"][0]["content"] = [{"type": "text", "text": text, "cache_control": marks}]


def system_as_blocks(sent: Request) -> None:
    sent["system"] = [{"type": "text", "text": sent["system"], "citations": None}]


def stripped(count: int) -> Callable[[Request], None]:
    def strip(sent: Request) -> None:
        for index in (1, 3, 5)[:count]:
            del sent["messages"][index]["content"][0]

    return strip


def members_in_another_order(sent: Request) -> None:
    for message in sent["messages"]:
        if isinstance(message["content"], list):
            message["content"] = [dict(reversed(block.items())) for block in message["content"]]


def other_settings(sent: Request) -> None:
    sent["max_tokens"], sent["tool_choice"] = 100, {"type": "none"}
    sent["thinking"] = {"type": "disabled"}


def appended(sent: Request) -> None:
    sent["messages"] += [{"role": "assistant", "content": "Yes."}, user("More?")]


def split_turn(sent: Request) -> None:
    content = sent["messages"][1]["content"]
    sent["messages"][1:2] = [
        {"role": "assistant", "content": content[:1]},
        {"role": "assistant", "content": content[1:]},
    ]


LEGAL = {
    "as it came": lambda sent: None,
    "cache marks": marked,
    "a mark that makes blocks of a string": first_as_marked_blocks,
    "the system prompt as blocks": system_as_blocks,
    "the first thinking taken out": stripped(1),
    "the first two taken out": stripped(2),
    "all thinking taken out": stripped(3),
    "a block's members in another order": members_in_another_order,
    "other settings": other_settings,
    "something appended": appended,
    "one turn in two messages": split_turn,
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_replays_pass(sim: SimServer, history: Request, name: str) -> None:
    """What the provider allows is neither refused nor dropped, and nothing of it goes unseen."""
    sent = copy.deepcopy(history)
    LEGAL[name](sent)

    status, message = post(sim, sent, DROP)

    assert (status, message.get("input_transformations")) == (200, [])
    assert post(sim, sent)[0] == 200


def test_another_spelling_is_the_same(sim: SimServer, history: Request) -> None:
    """White space and escapes may change: the provider compares what is said."""
    text = orjson.dumps(history, option=orjson.OPT_INDENT_2).replace(b"Seven.", b"\\u0053even.")

    response = sim.respond("POST", "/v1/messages", HEADERS, text)

    assert response.status == 200


def test_another_simulator_knows_the_signatures(history: Request) -> None:
    """Nothing is remembered: a fresh server verifies what another one signed."""
    status, _ = post(SimServer(seed=5), history)

    assert status == 200


# ------------------------------------------------------------------------------------------- changes


def set_at(value: Any, *path: Any) -> Callable[[Request], None]:
    def change(sent: Request) -> None:
        inner: Any = sent
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value

    return change


def remove(*path: Any) -> Callable[[Request], None]:
    def change(sent: Request) -> None:
        inner: Any = sent
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


def reordered(sent: Request) -> None:
    block = sent["messages"][1]["content"][1]
    block["input"] = dict(reversed(block["input"].items()))


def more_tools(sent: Request) -> None:
    sent["tools"].append({**TOOL, "name": "other"})


def swapped(sent: Request) -> None:
    first, second = sent["messages"][1]["content"], sent["messages"][3]["content"]
    first[0], second[0] = second[0], first[0]


def inserted(sent: Request) -> None:
    sent["messages"].insert(1, user("By the way."))


def without_first_exchange(sent: Request) -> None:
    del sent["messages"][1:3]


CHANGES: dict[str, tuple[Callable[[Request], None], str, str]] = {
    "system": (set_at("Other.", "system"), "messages.1.content.0", "`system`."),
    "no system": (remove("system"), "messages.1.content.0", "`system`."),
    "a tool's schema": (
        set_at({"type": "object"}, "tools", 0, "input_schema"),
        "messages.1.content.0",
        "`tools`.",
    ),
    "one more tool": (more_tools, "messages.1.content.0", "`tools`."),
    "no tools": (remove("tools"), "messages.1.content.0", "`tools`."),
    "the first message": (
        set_at("Hm?", "messages", 0, "content"),
        "messages.1.content.0",
        "`messages`.",
    ),
    "a message put in": (inserted, "messages.2.content.0", "`messages`."),
    "a tool's result": (
        set_at("8", "messages", 2, "content", 0, "content"),
        "messages.3.content.0",
        "`messages`.",
    ),
    "a result's flag": (
        set_at(True, "messages", 2, "content", 0, "is_error"),
        "messages.3.content.0",
        "`messages`.",
    ),
    "arguments": (
        set_at("Blue", "messages", 1, "content", 1, "input", "team"),
        "messages.3.content.0",
        "`messages`.",
    ),
    "the order of arguments": (reordered, "messages.3.content.0", "`messages`."),
    "a mark's name in arguments": (
        set_at(None, "messages", 1, "content", 1, "input", "cache_control"),
        "messages.3.content.0",
        "`messages`.",
    ),
    "the answer before the last": (
        set_at("8.", "messages", 3, "content", 1, "text"),
        "messages.5.content.0",
        "`messages`.",
    ),
    "an exchange cut out": (without_first_exchange, "messages.1.content.0", "`messages`."),
    "thinking cut out in the middle": (
        remove("messages", 3, "content", 0),
        "messages.5.content.0",
        "a thinking block before it was left out or moved.",
    ),
    "thinking swapped": (swapped, "messages.1.content.0", "`messages`."),
}
FORGED: dict[str, tuple[Callable[[Request], None], str]] = {
    "thinking text": (set_at("One!", "messages", 1, "content", 0, "thinking"), "messages.1.content.0"),
    "empty thinking": (set_at("", "messages", 1, "content", 0, "thinking"), "messages.1.content.0"),
    "signature": (set_at("A" * 80, "messages", 1, "content", 0, "signature"), "messages.1.content.0"),
    "no signature": (set_at("", "messages", 3, "content", 0, "signature"), "messages.3.content.0"),
    "not base64": (set_at("é%", "messages", 3, "content", 0, "signature"), "messages.3.content.0"),
    "redacted data": (set_at("AAAA", "messages", 5, "content", 0, "data"), "messages.5.content.0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_found(sim: SimServer, history: Request, name: str) -> None:
    """A change before a block is a 400 that names the first block behind it and what changed."""
    change, path, named = CHANGES[name]
    sent = copy.deepcopy(history)
    change(sent)

    status, body = post(sim, sent)

    message = body["error"]["message"]
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert message.startswith(f"{path}: Invalid `")
    assert "The block is bound to a different conversation." in message
    assert message.endswith(f"Changed since then: {named}")


def test_fractions_are_compared_as_they_are_spelled(sim: SimServer) -> None:
    """1.50 that comes back as 1.5 is a change, though it is the same number."""
    asked = request(user("Score?"))
    grown = said(sim, asked, Reply.calls(("get_score", '{"x":0.25}'), thinking="One."))
    sent = orjson.dumps(said(sim, grown, Reply.text("Done.", thinking="Two.")))

    same = sim.respond("POST", "/v1/messages", HEADERS, sent)
    other = sim.respond("POST", "/v1/messages", HEADERS, sent.replace(b"0.25", b"0.250"))

    assert (same.status, other.status) == (200, 400)
    assert b"messages.3.content.0" in other.body


@pytest.mark.parametrize("name", CHANGES)
def test_failing_blocks_are_dropped_on_demand(sim: SimServer, history: Request, name: str) -> None:
    """With drop_block the same request passes, and the report names the first block that had to go."""
    change, path, _ = CHANGES[name]
    sent = copy.deepcopy(history)
    change(sent)
    sent["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}

    status, message = post(sim, sent, DROP)

    assert status == 200
    first = {"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"}
    assert message["input_transformations"][0] == first


@pytest.mark.parametrize("name", FORGED)
def test_a_modified_block_is_never_taken(sim: SimServer, history: Request, name: str) -> None:
    """A block that was not signed like this is a 400, whether or not blocks may be dropped."""
    change, path = FORGED[name]
    sent = copy.deepcopy(history)
    change(sent)
    dropping = copy.deepcopy(sent)
    dropping["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}

    answers = [post(sim, sent), post(sim, dropping, DROP)]

    for status, body in answers:
        assert status == 400
        assert body["error"]["message"].startswith(f"{path}: Invalid `")
        assert "different conversation" not in body["error"]["message"]


def test_a_redacted_block_is_no_open_one(sim: SimServer, history: Request) -> None:
    """The data of redacted thinking is no signature of thinking that anyone writes."""
    sent = copy.deepcopy(history)
    data = sent["messages"][5]["content"][0]["data"]
    sent["messages"][5]["content"][0] = {"type": "thinking", "thinking": "", "signature": data}

    assert post(sim, sent)[0] == 400


# -------------------------------------------------------------------------------------------- models


def test_another_model_does_not_get_the_thinking(sim: SimServer, history: Request) -> None:
    """A changed model drops its predecessor's thinking without an error, and says so only if asked."""
    sent = {**history, "model": "claude-other"}

    status, silent = post(sim, sent)
    _, told = post(sim, sent, DROP)

    assert status == 200
    assert "input_transformations" not in silent
    assert told["input_transformations"] == [
        {
            "type": "thinking_dropped",
            "path": f"messages.{index}.content.0",
            "reason": "model_binding_mismatch",
        }
        for index in (1, 3, 5)
    ]
    assert told["usage"]["input_tokens"] < post(sim, history)[1]["usage"]["input_tokens"]


def test_models_may_take_turns(sim: SimServer, history: Request) -> None:
    """Each model's own thinking stays good, however often the other one answered in between."""
    there = said(sim, {**history, "model": "claude-other"}, Reply.text("Hm.", thinking="Other."))
    back = said(sim, {**there, "model": "claude-sim"}, Reply.text("Ah.", thinking="Mine."))
    again = said(sim, {**back, "model": "claude-other"}, Reply.text("Oh.", thinking="Other."))

    _, message = post(sim, again, DROP)

    dropped = [entry["path"] for entry in message["input_transformations"]]
    assert dropped == [f"messages.{index}.content.0" for index in (1, 3, 5, 9)]


def test_thinking_after_a_drop_is_good(sim: SimServer, history: Request) -> None:
    """What was thought after blocks were dropped passes for as long as they go on being dropped."""
    damaged = {**history, "system": "Other."}
    damaged["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    grown = said(sim, damaged, Reply.text("New.", thinking="New."), DROP)

    status, message = post(sim, grown, DROP)

    assert status == 200
    dropped = [entry["path"] for entry in message["input_transformations"]]
    assert dropped == [f"messages.{index}.content.0" for index in (1, 3, 5)]


def test_thinking_after_stripping_is_good(sim: SimServer, history: Request) -> None:
    """A history whose old thinking was taken out goes on with new thinking, and never with the old."""
    stripped_history = copy.deepcopy(history)
    stripped(3)(stripped_history)
    grown = said(sim, stripped_history, Reply.text("New.", thinking="New."))
    put_back = {**grown, "messages": [*history["messages"][:6], *grown["messages"][6:]]}

    assert post(sim, grown)[0] == 200
    status, body = post(sim, put_back)
    assert status == 400
    assert body["error"]["message"].startswith("messages.7.content.0")


# ----------------------------------------------------------------------------------- forms of thinking


def test_omitted_thinking_still_signs(sim: SimServer) -> None:
    """With display omitted the text is empty, the signature is there, and the block must come back."""
    asked = request(user("Hello."), thinking={"type": "adaptive", "display": "omitted"})
    grown = said(sim, asked, Reply.text("Hi.", thinking="Secret."))

    block = grown["messages"][1]["content"][0]

    assert (block["thinking"], len(block["signature"])) == ("", 80)
    assert post(sim, grown)[0] == 200


def test_no_thinking_unless_asked_for(sim: SimServer) -> None:
    """A request without thinking gets none."""
    asked = request(user("Hello."))
    del asked["thinking"]

    _, message = post(sim, asked)

    assert [block["type"] for block in message["content"]] == ["text"]


def test_thinking_after_a_pause_is_bound_to_what_came_before(sim: SimServer) -> None:
    """A continued reply's thinking stands behind the hosted tool's result, and passes in both forms."""
    asked = request(user("Search."))
    sim.push(Reply.pause("Searching.", thinking="Search."), Reply.text("Found.", thinking="Read."))
    _, paused = post(sim, asked)
    turn = {"role": "assistant", "content": paused["content"]}
    _, rest = post(sim, {**asked, "messages": [*asked["messages"], turn]})
    ending = {"role": "assistant", "content": rest["content"]}
    whole = {"role": "assistant", "content": paused["content"] + rest["content"]}

    assert [block["type"] for block in rest["content"]] == ["web_search_tool_result", "thinking", "text"]
    assert post(sim, {**asked, "messages": [*asked["messages"], turn, ending, user("More?")]})[0] == 200
    assert post(sim, {**asked, "messages": [*asked["messages"], whole, user("More?")]})[0] == 200
    del ending["content"][0]
    assert post(sim, {**asked, "messages": [*asked["messages"], turn, ending, user("More?")]})[0] == 400


def test_the_control_needs_its_header(sim: SimServer, history: Request) -> None:
    """block_binding without the beta header is refused, and the refusal names the header."""
    sent = {**history, "thinking": {"type": "adaptive", "block_binding": {}}}

    status, body = post(sim, sent)

    assert status == 400
    assert "thinking-binding-controls-2026-08-01" in body["error"]["message"]
    assert post(sim, sent, DROP)[0] == 200
