"""Facts about what the OpenAI Responses dialect writes, and how it reads written items back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from goaitools_py.backends.base import Dialect, ModelRequest, RequestParts
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.openai_responses.dialect import OpenAIResponsesDialect
from goaitools_py.base.rawjson import RawJSONError
from goaitools_py.types.messages import (
    Audio,
    Document,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    event,
    system,
    user,
)
from goaitools_py.types.render import with_context
from goaitools_py.types.request_parts import ProviderTool, ToolSpec

OPENAI = OpenAIResponsesDialect()
AZURE = OpenAIResponsesDialect("azure")
OTHER = OpenAIResponsesDialect("llm.example.org")
TOOL = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
PNG = Image.from_bytes(b"png")
PDF = Document.from_bytes(b"pdf", name="a.pdf")


@pytest.fixture(scope="module")
def validator(data_dir: Path) -> jsonschema_rs.Validator:
    """Holds requests to the type that OpenAI's SDK publishes."""
    path = data_dir / "schemas" / "sdk-openai-responses.schema.json"
    if not path.is_file():
        pytest.skip(f"no schema: {path.name} is not in the data directory")
    return jsonschema_rs.validator_for(json.loads(path.read_bytes()))


def entry_of(message: Message, dialect: OpenAIResponsesDialect = OPENAI) -> Any:
    (entry,) = dialect.entries([message])
    return json.loads(entry)


def request(dialect: OpenAIResponsesDialect = OPENAI, **parts: Any) -> ModelRequest:
    return dialect.request(RequestParts(**{"model": "m", "history": [b'{"role":"user"}'], **parts}))


def body(dialect: OpenAIResponsesDialect = OPENAI, **parts: Any) -> Any:
    return json.loads(request(dialect, **parts).body)


def test_the_dialect_is_one() -> None:
    """It has the protocol's shape, a fixed wire name, and a family."""
    dialect: Dialect = OpenAIResponsesDialect()

    assert (dialect.wire, dialect.family) == ("openai-responses", "openai")


# ------------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("message", "entry"),
    [
        (user("Hi"), '{"role":"user","content":"Hi"}'),
        (assistant("Hello"), '{"role":"assistant","content":"Hello"}'),
        (system("Be kind."), '{"role":"developer","content":"Be kind."}'),
        (
            event("+50", topic="score", id="e1"),
            '{"role":"user","content":"<app-event topic=\\"score\\" id=\\"e1\\">\\n+50\\n</app-event>"}',
        ),
        (
            user("a", "b"),
            '{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}',
        ),
        (
            with_context(user("Hi"), "12:04"),
            '{"role":"user","content":[{"type":"input_text","text":"<app-context>\\n12:04\\n</app-context>"},'
            '{"type":"input_text","text":"Hi"}]}',
        ),
    ],
)
def test_a_message_is_one_compact_line(message: Message, entry: str) -> None:
    """The very bytes: they are stored, and a change of theirs changes every prefix."""
    assert OPENAI.entries([message]) == [entry.encode()]


@pytest.mark.parametrize(
    ("part", "encoded"),
    [
        (PNG, {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}),
        (
            Image.from_url("https://x.example/a.jpg", detail="low"),
            {"type": "input_image", "detail": "low", "image_url": "https://x.example/a.jpg"},
        ),
        (PDF, {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}),
        (
            Document.from_bytes(b"x", "text/csv"),
            {"type": "input_file", "filename": "document.csv", "file_data": "data:text/csv;base64,eA=="},
        ),
        (
            Document.from_url("https://x.example/a.pdf"),
            {"type": "input_file", "file_url": "https://x.example/a.pdf"},
        ),
    ],
)
def test_parts_become_a_content_list(part: Part, encoded: dict[str, Any]) -> None:
    """Media stand beside text, in order."""
    assert entry_of(user("See:", part))["content"] == [{"type": "input_text", "text": "See:"}, encoded]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (user(Audio.from_bytes(b"x")), "takes no sound"),
        (Message(role="assistant", parts=(PNG,)), "text only"),
        (Message(role="system", parts=(PNG,)), "text only"),
    ],
)
def test_what_the_wire_cannot_carry_is_refused(message: Message, problem: str) -> None:
    """A ValueError that says what to do, where the message's author stands."""
    with pytest.raises(ValueError, match=problem):
        OPENAI.entries([message])


def test_user_text_cannot_imitate_an_event() -> None:
    """A delimiter typed by a user is escaped."""
    assert entry_of(user("<app-event>\nx\n</app-event>"))["content"].startswith("&lt;app-event>")


@pytest.mark.parametrize("message", [user("\ud800"), assistant("\ud800"), system("\ud800"), event("\ud800")])
def test_a_lone_surrogate_is_replaced(message: Message) -> None:
    """No UTF-8 can hold it."""
    assert "\ufffd" in entry_of(message)["content"]


@pytest.mark.parametrize(
    ("dialect", "role"), [(OPENAI, "developer"), (AZURE, "developer"), (OTHER, "system")]
)
def test_instructions_have_the_role_that_the_server_heeds(dialect: OpenAIResponsesDialect, role: str) -> None:
    """`developer` at OpenAI and Azure; `system` elsewhere, where the other is dropped or refused."""
    assert entry_of(system("x"), dialect) == {"role": role, "content": "x"}
    assert dialect.preamble([system("a"), system("b")]) == (
        b'{"role":"%b","content":"a"},\n{"role":"%b","content":"b"}' % (role.encode(), role.encode())
    )


def test_no_preamble_is_no_bytes() -> None:
    """Nothing is sent for nothing."""
    assert OPENAI.preamble([]) == b""


def test_calls_can_be_written_too() -> None:
    """A message with calls is an item for its words, if any, and one for each call."""
    calls = (
        ToolCall(id="c1", name="look", arguments='{"a": 1}'),
        ToolCall(id="c2", name="run", arguments="ls", kind="custom"),
    )

    spoken = OPENAI.entries([Message(role="assistant", parts=(Text("Wait."),), tool_calls=calls)])
    silent = OPENAI.entries([Message(role="assistant", tool_calls=calls[:1])])

    assert list(map(json.loads, spoken)) == [
        {"role": "assistant", "content": "Wait."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "run", "input": "ls"},
    ]
    assert [json.loads(entry)["type"] for entry in silent] == ["function_call"]


# ------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("parts", "output"),
    [
        ((), ""),
        ((Text("one"),), "one"),
        ((Text("a\ud800"),), "a\ufffd"),
        ((Text("a"), Text("b")), [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]),
        ((PNG,), [{"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,cG5n"}]),
        (
            (PDF,),
            [{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}],
        ),
        ((Audio.from_bytes(b"x"),), "[audio audio/wav: this provider takes no sound]"),
    ],
)
def test_a_result_is_an_output_item(parts: tuple[Part, ...], output: Any) -> None:
    """Text is a string, media are parts, sound a line that says what is missing."""
    (entry,) = OPENAI.results([ToolResult(call_id="c1", parts=parts)])

    assert json.loads(entry) == {"type": "function_call_output", "call_id": "c1", "output": output}


def test_a_result_is_of_its_calls_kind() -> None:
    """A custom tool's call is answered by its own type of item."""
    results = [ToolResult(call_id="a"), ToolResult(call_id="b", kind="custom")]

    assert [json.loads(entry)["type"] for entry in OPENAI.results(results)] == [
        "function_call_output",
        "custom_tool_call_output",
    ]


# -------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    "message",
    [
        user("Hi"),
        user("Hi", PNG),
        user(Image.from_url("https://x.example/a.png", detail="high")),
        user("Read", PDF),
        user(Document.from_url("https://x.example/a.pdf")),
        event("+50", topic="score", id="e1"),
        event("<&>"),
        with_context(user("Hi"), "12:04"),
        assistant("Hello"),
        system("Be kind."),
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments="{}"),)),
        Message(role="assistant", tool_calls=(ToolCall(id="c", name="f", arguments="x", kind="custom"),)),
        Message(role="tool", tool_call_id="c", parts=(Text("ok"),)),
        Message(role="tool", tool_call_id="c", parts=(Text("ok"), Text("too"))),
    ],
)
@pytest.mark.parametrize("dialect", [OPENAI, OTHER])
def test_what_was_written_reads_back(message: Message, dialect: OpenAIResponsesDialect) -> None:
    """Writing and reading are inverse, images' default detail aside."""
    entries = dialect.entries([message])

    (seen,) = dialect.view(entries)

    parts = [
        Image(**{**{f: getattr(p, f) for f in p.__struct_fields__}, "detail": p.detail or "auto"})
        if isinstance(p, Image)
        else p
        for p in message.parts
    ]
    assert (seen.role, list(seen.parts), seen.tool_calls) == (message.role, parts, message.tool_calls)
    assert (seen.is_event, seen.topic, seen.event_id) == (message.is_event, message.topic, message.event_id)
    assert seen.tool_call_id == message.tool_call_id
    assert seen.raw == entries[0]


def items(*items: Any) -> list[bytes]:
    return [json.dumps(item).encode() for item in items]


REASONING = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {
    "type": "message",
    "id": "msg",
    "role": "assistant",
    "status": "completed",
    "content": [
        {"type": "output_text", "text": "Look", "annotations": []},
        {"type": "refusal", "refusal": " no"},
    ],
}
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}


def test_the_items_of_a_reply_are_one_message() -> None:
    """Reasoning, words, calls and hosted tools' records, until something that is not the model's."""
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {}}
    found: dict[str, Any] = {
        "type": "tool_search_output",
        "call_id": None,
        "execution": "server",
        "tools": [],
    }
    entries = items({"role": "user", "content": "Hi"}, REASONING, search, found, SAID, CALL, OUTPUT, SAID)

    messages = OPENAI.view(entries)

    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    reply = messages[1]
    assert (reply.text, reply.reasoning) == ("Look no", "Hm.")
    assert reply.tool_calls == (ToolCall(id="c1", name="look", arguments="{}"),)
    assert reply.raw == b",\n".join(entries[1:6])


def test_a_callers_assistant_message_is_its_own() -> None:
    """A greeting that the caller wrote is not part of the reply after it."""
    messages = OPENAI.view([*OPENAI.entries([assistant("Welcome!")]), *items(REASONING, SAID)])

    assert [message.text for message in messages] == ["Welcome!", "Look no"]


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "message", "role": "developer", "content": "x"}, "system"),
        ({"role": "system", "content": [{"type": "input_text", "text": "x"}]}, "system"),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "system"),
        ({"type": "configuration_update", "reasoning": {"effort": "low"}}, "system"),
        ({"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}, "tool"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "x"}, "tool"),
        ({"type": "computer_call_output", "call_id": "c", "output": {}}, "tool"),
        ({"type": "shell_call_output", "call_id": "c", "output": []}, "tool"),
        ({"type": "shell_call_output", "id": "so_1", "call_id": "c", "output": []}, "assistant"),
        ({"type": "tool_search_output", "execution": "client", "call_id": "c", "tools": []}, "tool"),
        ({"type": "compaction", "id": "cmp", "encrypted_content": "x"}, "assistant"),
        ({"type": "never_heard_of", "x": 1}, "assistant"),
        ({"role": "assistant", "content": "x"}, "assistant"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}, "assistant"),
        ({"role": "user", "content": None}, "user"),
        ({"role": 7}, "user"),
        ({}, "user"),
        ({"type": 5, "content": 3}, "user"),
    ],
)
def test_a_view_takes_whatever_is_an_object(item: Any, role: str) -> None:
    """One message for any entry, with the role that stands nearest, and its very bytes."""
    entries = items(item)

    (message,) = OPENAI.view(entries)

    assert (message.role, message.raw) == (role, entries[0])


@pytest.mark.parametrize("entry", [b"[]", b'"x"', b"null", b"{", b"", b"\xff"])
def test_a_view_of_something_else_is_a_raw_json_error(entry: bytes) -> None:
    """What no provider wrote is refused, not guessed at."""
    with pytest.raises(RawJSONError):
        OPENAI.view([entry])


def test_bad_base64_is_kept_out_of_a_view() -> None:
    """The part is there, without bytes."""
    file = {"type": "input_file", "filename": "a", "file_data": "data:application/pdf;base64,x"}
    (message,) = OPENAI.view(items({"role": "user", "content": [file, {"type": "input_file"}]}))

    (part,) = message.parts
    assert isinstance(part, Document)
    assert part.data is None


# -------------------------------------------------------------------------------------------- tools


def test_tools_are_functions_with_a_schema() -> None:
    """The shape of one tool; `strict` is always said, since the server's own default is not ours."""
    tool = ToolSpec(name="a", description="A.", parameters={"z": {}, "b": {}}, strict=True)

    assert OPENAI.tools([tool, TOOL]) == (
        b'[{"type":"function","name":"a","description":"A.","parameters":{"z":{},"b":{}},"strict":true},'
        b'{"type":"function","name":"look","description":"Look.",'
        b'"parameters":{"type":"object","properties":{}},"strict":false}]'
    )


def test_tools_are_byte_equal_in_any_order() -> None:
    """Their order on the wire is canonical, provider tools included; it is that of the chat wire."""
    a, b = (ToolSpec(name=name, description="", parameters={}) for name in "ab")
    search = ProviderTool({"type": "web_search", "size": {"y": 1, "x": 2}})
    code = ProviderTool({"type": "code_interpreter", "container": {"type": "auto"}})

    encoded = OPENAI.tools([b, code, a, search])

    assert encoded == OPENAI.tools([search, a, code, b])
    kinds = [tool["type"] for tool in json.loads(encoded)]
    assert kinds == [tool["type"] for tool in json.loads(OpenAIChatDialect().tools([a, b, search, code]))]
    assert OPENAI.tools([]) == b""


# ------------------------------------------------------------------------------------------ requests


def test_a_request_is_spliced() -> None:
    """model, tools, input, settings, in this order: the order in which a cached prefix can grow."""
    made = request(
        history=[b'{"role":"user","content":"a"},\n{"role":"assistant","content":"b"}', b'{"c":1}'],
        preamble=OPENAI.preamble([system("S")]),
        tools=OPENAI.tools([TOOL])[:1] + b"]",
        settings={"temperature": 0.5},
    )

    assert made.body == (
        b'{"model":"m","tools":[],"input":[{"role":"developer","content":"S"},\n'
        b'{"role":"user","content":"a"},\n{"role":"assistant","content":"b"},\n{"c":1}],'
        b'"temperature":0.5,"store":false,"include":["reasoning.encrypted_content"]}'
    )
    assert (made.path, made.stream) == ("/responses", False)


def test_the_history_is_never_parsed() -> None:
    """Whatever the pieces are, they stand in the body as they came."""
    assert b'"input":[not json at all,\n\xff]' in request(history=[b"not json at all", b"\xff"]).body


@pytest.mark.parametrize(
    ("settings", "members"),
    [
        ({"max_output_tokens": 99}, {"max_output_tokens": 99}),
        ({"temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0, "top_p": 0.5}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        (
            {"reasoning_effort": "low", "extra_body": {"reasoning": {"summary": "auto"}}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            {"reasoning_effort": "low", "extra_body": {"reasoning": {"effort": "high"}}},
            {"reasoning": {"effort": "high"}},
        ),
        ({"extra_body": {"reasoning": None}, "reasoning_effort": "low"}, {}),
        ({"prompt_cache_key": "k"}, {"prompt_cache_key": "k"}),
        ({"model": "other"}, {}),
        ({"extra_body": {"text": {"verbosity": "low"}}}, {"text": {"verbosity": "low"}}),
        ({"extra_body": {"truncation": "disabled", "store": False, "background": False}}, {}),
        ({"extra_body": {"previous_response_id": None, "conversation": None, "prompt": None}}, {}),
    ],
)
@pytest.mark.parametrize("dialect", [OPENAI, OTHER])
def test_settings_become_members(
    settings: dict[str, Any], members: dict[str, Any], dialect: OpenAIResponsesDialect
) -> None:
    """Each setting under the wire's name, at every server; nothing else is added."""
    sent = body(dialect, settings=settings)

    fixed = {"model": "m", "input": [{"role": "user"}], "store": False}
    fixed["include"] = ["reasoning.encrypted_content"]
    harmless = settings.get("extra_body", {}).keys() - members.keys()
    assert {
        key: value for key, value in sent.items() if key not in harmless or key in fixed
    } == fixed | members


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        (
            ["web_search_call.action.sources"],
            ["web_search_call.action.sources", "reasoning.encrypted_content"],
        ),
        (["reasoning.encrypted_content"], ["reasoning.encrypted_content"]),
        ([], ["reasoning.encrypted_content"]),
        (None, ["reasoning.encrypted_content"]),
    ],
)
def test_encrypted_reasoning_is_always_asked_for(wanted: Any, sent: list[str]) -> None:
    """What else is wanted stands beside it: without it the next turn would lose the reasoning."""
    assert body(settings={"extra_body": {"include": wanted}})["include"] == sent


@pytest.mark.parametrize("wanted", ["web_search_call.results", 5, {"a": 1}])
def test_what_a_request_includes_is_a_list(wanted: Any) -> None:
    """A text would be taken apart into letters."""
    with pytest.raises(TypeError, match="'include' in extra_body must be a list, not"):
        body(settings={"extra_body": {"include": wanted}})


@pytest.mark.parametrize(
    "settings", [{"stop": ["x"]}, {"seed": 1}, {"thinking_budget_tokens": 5}, {"never_heard_of": 1}]
)
def test_a_setting_that_the_wire_lacks_is_refused(settings: dict[str, Any]) -> None:
    """A ValueError that names it, and the way around."""
    with pytest.raises(ValueError, match=f"{next(iter(settings))!r}; send .* by extra_body"):
        request(settings=settings)


@pytest.mark.parametrize(
    "extra",
    [
        {"input": []},
        {"stream": True},
        {"store": True},
        {"store": None},
        {"previous_response_id": "resp_1"},
        {"conversation": {"id": "conv_1"}},
        {"prompt": {"id": "p"}},
        {"background": True},
        {"truncation": "auto"},
    ],
)
def test_the_server_must_keep_and_rewrite_nothing(extra: dict[str, Any]) -> None:
    """An extra_body that moves the conversation to the server, or changes it there, is refused by name."""
    (name,) = extra

    with pytest.raises(ValueError, match=f"extra_body cannot set '{name}': "):
        request(settings={"extra_body": extra})


def test_settings_about_tools_need_tools() -> None:
    """Without tools the server refuses both."""
    settings = {"tool_choice": "required", "parallel_tool_calls": False}

    assert not body(settings=settings).keys() & settings.keys()
    assert body(settings=settings, tools=OPENAI.tools([TOOL])).items() >= settings.items()


def test_one_function_can_be_asked_for() -> None:
    """By its name, which stands at the top on this wire."""
    sent = body(settings={"tool_choice": "look"}, tools=OPENAI.tools([TOOL]))

    assert sent["tool_choice"] == {"type": "function", "name": "look"}


def test_tools_can_be_forbidden_without_a_changed_prefix() -> None:
    """The same bytes up to the history's end, and no call."""
    tools = OPENAI.tools([TOOL])
    free = request(tools=tools, settings={"tool_choice": "required"}).body
    forbidden = request(tools=tools, settings={"tool_choice": "required"}, forbid_tools=True).body

    assert json.loads(forbidden)["tool_choice"] == "none"
    assert forbidden.startswith(free[: free.index(b',"tool_choice"')])
    assert "tool_choice" not in body(forbid_tools=True)


def test_a_conversation_has_its_own_cache_key() -> None:
    """The chat wire's rule: a digest of the id at OpenAI and Azure, nothing elsewhere; a setting wins."""
    chat = OpenAIChatDialect().request(RequestParts(model="m", history=[], cache_key="conv"))

    assert body(cache_key="conv")["prompt_cache_key"] == json.loads(chat.body)["prompt_cache_key"]
    assert "prompt_cache_key" in body(AZURE, cache_key="conv")
    assert "prompt_cache_key" not in body(OTHER, cache_key="conv")
    own = {"prompt_cache_key": "mine"}
    assert body(cache_key="conv", settings=own)["prompt_cache_key"] == "mine"
    with pytest.raises(ValueError, match="64 characters"):
        request(settings={"prompt_cache_key": "k" * 65})


@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("openai", {"stream": True, "stream_options": {"include_obfuscation": False}}),
        ("azure", {"stream": True}),
        ("llm.example.org", {"stream": True}),
    ],
)
def test_a_streamed_request_says_so(family: str, members: dict[str, Any]) -> None:
    """Padding is declined where it is known to be sent."""
    dialect = OpenAIResponsesDialect(family)

    assert body(dialect, stream=True) == body(dialect) | members
    assert request(dialect, stream=True).stream


def test_extra_headers_go_with_the_request() -> None:
    """As they are."""
    assert request(settings={"extra_headers": {"x-a": "b"}}).headers == {"x-a": "b"}


def test_a_longer_history_only_adds_bytes() -> None:
    """The next request begins with the bytes of this one up to the end of its history."""
    first = request(tools=OPENAI.tools([TOOL]), history=[b'{"a":1}']).body
    second = request(tools=OPENAI.tools([TOOL]), history=[b'{"a":1}', b'{"b":2}']).body

    assert second.startswith(first[: first.index(b"]," + b'"store"')])


def test_everything_written_is_of_the_published_type(validator: jsonschema_rs.Validator) -> None:
    """Every kind of message, part, result, tool and setting, at OpenAI and elsewhere."""
    for dialect in (OPENAI, AZURE, OTHER):
        history = [
            *dialect.entries([user("Hi", PNG, PDF, Document.from_url("https://x.example/a.pdf"))]),
            *dialect.entries([event("x", topic="t", id="i"), assistant("Hello"), system("Now.")]),
            *dialect.entries(
                [Message(role="assistant", tool_calls=(ToolCall(id="a", name="f", arguments="{}"),))]
            ),
            *dialect.results(
                [
                    ToolResult(call_id="a", parts=(Text("x"), PNG, PDF)),
                    ToolResult(call_id="b", parts=(Text("x"), PNG, PDF), kind="custom"),
                    ToolResult(call_id="c"),
                ]
            ),
        ]
        made = dialect.request(
            RequestParts(
                model="gpt-5.6-sol",
                history=history,
                preamble=dialect.preamble([system("S")]),
                tools=dialect.tools([TOOL, ProviderTool({"type": "web_search"})]),
                settings={
                    "max_output_tokens": 16,
                    "temperature": 1.0,
                    "top_p": 0.5,
                    "reasoning_effort": "high",
                    "parallel_tool_calls": True,
                    "tool_choice": "look",
                    "extra_body": {"reasoning": {"summary": "auto"}, "include": ["web_search_call.results"]},
                },
                cache_key="conv",
            )
        )
        assert [error.message for error in validator.iter_errors(json.loads(made.body))] == []


# -------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"code": "invalid_encrypted_content", "message": "x"}, "signature"),
        (
            400,
            {"code": None, "message": "rs_1 was provided without its required following item."},
            "signature",
        ),
        (400, {"message": "msg_1 was provided without its required 'reasoning' item: 'rs_1'."}, "signature"),
        (404, {"message": "Items are not persisted when `store` is set to false."}, "signature"),
        (400, {"code": "context_length_exceeded", "message": "x"}, "context"),
        (400, {"message": "No tool output found for function call c1."}, "rejected"),
        (404, {"code": "model_not_found"}, "rejected"),
        (401, {"code": "invalid_api_key"}, "auth"),
        (429, {"code": "rate_limit_exceeded"}, "rate_limit"),
        (500, {"message": "was provided without its required"}, "unavailable"),
    ],
)
def test_error_answers_are_told_apart(status: int, error: Any, kind: str) -> None:
    """Reasoning that the server does not take back is a signature fault, whatever words it uses."""
    assert OPENAI.fault(status, {}, json.dumps({"error": error}).encode()).kind == kind
