"""Facts about refusals: which rule a server's words name, and that a user's words name none."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from goaitools_py.backends.base import Fault
from goaitools_py.backends.host_rules import RULES
from goaitools_py.backends.http.faults import fault_of_error, http_fault
from goaitools_py.backends.http.rule_words import RULE_WORDINGS, rules_in
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect


def answer(status: int, body: Any) -> Fault:
    """The fault of an answer as the dialect reads it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return OpenAIChatDialect("api.example.com").fault(status, {}, data)


def error(message: str, **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


def forbidden(*loc: Any) -> dict[str, Any]:
    """An item of pydantic's list, with the user's words in it."""
    words = "roles must alternate, the System message must be at the beginning"
    return {"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted", "input": words}


LLAMA = (
    "\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n"
    "...first %}\u21b5            {{- raise_exception('System message must be at the beginnin...\n"
    "                                           ^\nError: Jinja Exception: "
)
LLAMA_CUT = (
    "\n------------\nWhile executing CallExpression at line 296, column 36 in source:\n"
    '...g %}\u21b5                {{- raise_exception("Cannot pass both content and thinking ...\n'
    "                                           ^\nError: Jinja Exception: "
)
BOTH = (
    "Cannot pass both content and thinking in an assistant message with tool calls! Put the analysis message "
    "in one or the other, but not both."
)
SATISFIED = (
    "'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property '{}' is "
)
CEREBRAS = "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is "
SIGNATURE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, "
    "function call `default_api:look` , position 2. Please refer to https://ai.google.dev/gemini-api/docs."
)
MISTRAL_ORDER = {
    "object": "error",
    "message": "Unexpected role 'user' after role 'tool'",
    "type": "invalid_request_message_order",
    "param": None,
    "code": "3230",
}
WORKERS = (
    "AiError: Bad input: Error: oneOf at '/' not met, 0 matches: required properties at '/' are 'prompt', "
    "Type mismatch of '/messages/{}/content', '{}' not in 'string'"
)

SEEN: list[tuple[str, int, Any]] = [
    # templates, with the status that their servers send
    ("s", 500, error(LLAMA + "System message must be at the beginning.", code=500, type="server_error")),
    ("c", 500, error(LLAMA_CUT + BOTH, code=500, type="server_error")),
    ("c", 500, error(f'{BOTH} at row 290, column 178:\n {{{{- raise_exception("{BOTH}") }}}}', code=500)),
    (
        "s",
        400,
        error(
            "Unable to generate parser for this template. Automatic parser generation failed: "
            + LLAMA
            + "System message\nmust be at the beginning."
        ),
    ),
    ("c", 400, error(f'Error rendering prompt with jinja template: "{BOTH}".\n\nThis is usually an issue')),
    ("s", 400, {"detail": "Chat template error: System message must be at the beginning."}),
    ("a", 400, error("Conversation roles must alternate user/assistant/user/assistant/...")),
    ("a", 500, error("After the optional system message, conversation roles must alternate user and ...")),
    ("z", 400, {"object": "error", "message": "System role not supported", "type": "BadRequestError"}),
    ("i", 500, error("Tool call id was call_49c89af0 but must be a-z, A-Z, 0-9, with a length of 9.")),
    ("x", 500, error('can only concatenate str (not "list") to str')),
    ("x", 500, error("image input is not supported - hint: if this is unexpected, you may need to provide")),
    ("d", 500, error(LLAMA + "Unexpected message role.")),
    # Mistral
    ("u", 400, MISTRAL_ORDER),
    (
        "u",
        400,
        error("Provider returned error", code=400, metadata={"raw": json.dumps(MISTRAL_ORDER)}),
    ),
    ("s", 400, {"object": "error", "message": "Unexpected role 'system' after role 'assistant'"}),
    ("a", 400, {"object": "error", "message": "Unexpected role 'assistant' after role 'assistant'"}),
    (
        "i",
        400,
        {
            "message": "Tool call id was toolu_01V but must be a-z, A-Z, 0-9, with a length of 9.",
            "code": "3280",
        },
    ),
    (
        "l",
        400,
        {
            "message": "Expected last role User or Tool (or Assistant with prefix True) for serving but got "
            "assistant"
        },
    ),
    ("e", 400, {"message": "Assistant message must have either content or tool_calls, but not none."}),
    ("mr", 422, {"detail": [forbidden("body", "messages", 1, "assistant", "reasoning_content")]}),
    ("my", 422, {"message": {"detail": [forbidden("body", "messages", 0, "user", "name")]}}),
    ("m", 422, {"message": [forbidden("body", "messages", 6, "assistant", "tool_calls", 0, "name")]}),
    ("", 422, {"detail": [forbidden("body", "tools")]}),
    ("", 422, {"message": json.dumps({"detail": [forbidden("body", "frequency_penalty")]})}),
    # others, Chat Completions
    (
        "a",
        400,
        error("After the (optional) system message(s), user and assistant roles should be alternating."),
    ),
    (
        "a",
        400,
        error(
            "After the (optional) system message(s), user or tool message(s) should alternate with "
            "assistant message(s)."
        ),
    ),
    (
        "ek",
        400,
        error("thinking is enabled but reasoning_content is missing in assistant tool call message at 2"),
    ),
    ("k", 400, error("The `reasoning_content` in the thinking mode must be passed back to the API.")),
    (
        "k",
        400,
        error(
            "[deepseek/x] [400]: Missing reasoning_content field in the assistant message at message index 2."
        ),
    ),
    (
        "q",
        400,
        {"message": CEREBRAS + "unsupported", "param": "validation_error", "code": "wrong_api_format"},
    ),
    ("q", 400, error(SATISFIED.format("reasoning_content") + "unsupported)]")),
    ("r", 400, error(SATISFIED.format("reasoning") + "unsupported)]")),
    ("y", 400, error(SATISFIED.format("name") + "unsupported)]")),
    ("m", 400, error(SATISFIED.format("annotations") + "unsupported)]")),
    ("g", 400, [error(SIGNATURE, code=400, status="INVALID_ARGUMENT")]),
    ("n", 400, {"errors": [{"message": WORKERS.format(2, "null"), "code": 5006}], "success": False}),
    ("x", 400, {"errors": {"message": WORKERS.format(0, "array"), "code": 5006}, "success": False}),
    (
        "n",
        400,
        {"errors": [{"message": "AiError: required properties at '/messages/11' are 'role,content'"}]},
    ),
    ("s", 400, error("invalid params, invalid chat setting (2013)")),
    ("s", 400, error("invalid params, invalid message role: system (2013)")),
    ("s", 400, error("messages[1].role must be either 'user' or 'assistant', but got 'system'")),
    ("s", 400, error("messages[1].role: unknown variant `system`, expected `user` or `assistant`")),
    (
        "s",
        422,
        {
            "detail": [
                {
                    "type": "literal_error",
                    "loc": ["body", "messages", 1, "role"],
                    "msg": "Input should be 'user' or 'assistant'",
                    "input": "system",
                }
            ]
        },
    ),
    ("e", 400, error("Invalid request: the message at position 1 with role 'assistant' must not be empty")),
    ("e", 400, error("Invalid request: text content is empty")),
    ("e", 400, error("Each message must have at least one content element.")),
    (
        "d",
        400,
        error(
            "Failed to deserialize the JSON body into the target type: messages[0].role: unknown variant "
            "`developer`, expected one of `system`, `user`, `assistant`, `tool` at line 1 column 58"
        ),
    ),
    (
        "d",
        400,
        error("developer is not one of ['system', 'assistant', 'user', 'tool', 'function'] - 'messages.0'"),
    ),
    ("l", 400, error("Assistant response prefill is incompatible with enable_thinking.")),
    ("l", 400, error("Cannot have 2 or more assistant messages at the end of the list.")),
    (
        "l",
        400,
        error("The last message of deepseek-reasoner must be a user message, or an assistant message"),
    ),
    (
        "j",
        400,
        error(
            "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length "
            "40, but got a string with length 64 instead."
        ),
    ),
    (
        "f",
        400,
        error(
            "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern. Expected a "
            "string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        ),
    ),
    (
        "f",
        400,
        error("Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1"),
    ),
    ("f", 400, error("Missing required parameter: 'messages[1].tool_calls[0].type'.")),
    (
        "f",
        400,
        error("Invalid 'messages[0].name': string does not match pattern. Expected a string that matches"),
    ),
    (
        "mr",
        400,
        error("Unknown parameter: 'messages[1].reasoning_content'.", param="messages[1].reasoning_content"),
    ),
    ("m", 400, error("Unknown parameter: 'messages[1].annotations'.", param="messages[1].annotations")),
    (
        "p",
        400,
        error("Image URLs are only allowed for messages with role 'user', but this message with role"),
    ),
    (
        "p",
        400,
        error(
            "Invalid value: 'thinking'. Supported values are: 'text', 'image_url'.",
            param="messages[1].content[0]",
        ),
    ),
    (
        "n",
        400,
        error("Invalid value for 'content': expected a string, got null.", param="messages.[1].content"),
    ),
    (
        "t",
        400,
        error(
            "litellm.UnsupportedParamsError: Anthropic doesn't support tool calling without `tools=` param "
            "specified. Pass `tools=` param OR set `litellm.modify_params = True`"
        ),
    ),
    ("r", 400, error("messages[1].reasoning: reasoning is not supported with this model")),
    ("d", 400, error("messages.0.role: value is not supported", param="validation_error")),
    ("a", 400, error("Please ensure that function call turn comes immediately after a user turn or after a")),
    ("a", 500, error(LLAMA + "No user query found in messages.")),
    ("p", 500, error("unsupported content[].type", type="server_error")),
    ("p", 400, error("invalid message format")),
    ("x", 400, error("invalid image input")),
    ("n", 500, error("Expected 'content' to be a string or an array")),
    ("n", 400, error("invalid message content type: <nil>")),
    ("h", 400, error("Extra data: line 1 column 1 (char 0)")),
    ("h", 400, error("invalid tool call arguments")),
    ("o", 400, error("Thinking mode does not support this tool_choice")),
    ("o", 400, error("tool_choice 'required' is incompatible with thinking enabled")),
    (
        "o",
        400,
        error("The tool_choice parameter does not support being set to required or object in thinking mode"),
    ),
    # Messages
    (
        "a",
        400,
        error('messages: roles must alternate between "user" and "assistant", but found multiple "user"'),
    ),
    ("e", 400, error("messages: text content blocks must be non-empty")),
    ("e", 400, error("The text field in the ContentBlock object at messages.1.content.0 is blank. Add text")),
    ("j", 400, error("messages.5.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")),
    ("k", 400, error("The `content[].thinking` in the thinking mode must be passed back to the API.")),
    (
        "l",
        400,
        error("This model does not support assistant message prefill. The conversation must end with a user"),
    ),
    ("m", 400, error("messages.65.content.1.tool_use.text: Extra inputs are not permitted")),
    ("r", 400, error("messages.1.content.0.thinking.signature: Field required")),
    ("s", 400, error("role 'system' is not supported on this model")),
    ("s", 400, error("messages[1].role: unknown variant `system`, expected `user` or `assistant` at line 1")),
    (
        "t",
        400,
        error("The toolConfig field must be defined when using toolUse and toolResult content blocks."),
    ),
    (
        "t",
        400,
        error(
            'litellm.BadRequestError: BedrockException - b\'{"message":"The toolConfig field must be defined '
            "when using toolUse and toolResult content blocks.\"}'"
        ),
    ),
    ("v", 400, error("Too many images and documents: 25 + 0 > 20")),
    (
        "w",
        400,
        error(
            "messages.3.content.1.image.source.base64.data: At least one of the image dimensions exceed max "
            "allowed size for many-image requests: 2000 pixels"
        ),
    ),
    # Responses
    ("fp", 400, error("Cannot determine type of 'item'")),
    ("r", 400, error("item['content'] is not an array")),
    ("p", 400, error("'input_file' is not supported by llamacpp at this moment")),
    ("p", 400, error("file inputs are not currently supported")),
    ("x", 400, error("Output of tool call should be 'Input text'")),
    (
        "r",
        400,
        error(
            "1 validation error: {'type': 'missing', 'loc': ('body', 'input', 3, "
            "'ResponseReasoningItemParam', 'id'), 'msg': 'Field required'}"
        ),
    ),
    (
        "j",
        400,
        error("Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64"),
    ),
    ("pr", 400, error('unknown input item type: "reasoning"')),
    ("m", 400, error("Unknown parameter: 'input[1].parsed_arguments'.", param="input[1].parsed_arguments")),
    (
        "p",
        400,
        error(
            "Invalid value: 'input_text'. Supported values are: 'output_text'.", param="input[1].content[0]"
        ),
    ),
]
"""Letters, status, and body, as servers sent them (2024-04 to 2026-11). Sources stand beside the wordings."""


@pytest.mark.parametrize(("letters", "status", "body"), SEEN)
def test_words_name_the_rule(letters: str, status: int, body: Any) -> None:
    """A refusal, not an outage: no retry helps."""
    fault = answer(status, body)

    assert (fault.rules, fault.kind, fault.retryable) == (letters, "rejected", False)


def test_each_letter_has_words() -> None:
    """Each is named by a text that was seen, and each wording has its source and known letters."""
    assert {letter for letters, _, _ in SEEN for letter in letters} == set(RULES)
    for wording in RULE_WORDINGS:
        assert set(wording.letters) <= set(RULES)
        assert wording.servers
        assert len(wording.source) > 8


NO_RULE: list[tuple[int, Any, str]] = [
    (400, error("Invalid schema for function 'look': In context=(), 'required' is required"), "rejected"),
    (400, error("Invalid value for temperature: only 1 is allowed for this model"), "rejected"),
    (
        400,
        error("This model's maximum context length is 8192 tokens. However, you requested 9000"),
        "context",
    ),
    (400, error("An assistant message with 'tool_calls' must be followed by tool messages"), "rejected"),
    (401, error("Incorrect API key provided; roles must alternate"), "auth"),
    (403, error("System message must be at the beginning."), "auth"),
    (404, error("The model does not exist; roles must alternate"), "rejected"),
    (429, error("Rate limit reached; roles must alternate"), "rate_limit"),
    (503, error("roles must alternate"), "unavailable"),
    (500, error("Internal server error"), "unavailable"),
    (500, error("The server had an error while processing your request", type="server_error"), "unavailable"),
    (500, b"Internal Server Error", "unavailable"),
    (500, b"<html>roles must alternate</html>", "unavailable"),
]


@pytest.mark.parametrize(("status", "body", "kind"), NO_RULE)
def test_other_words_and_statuses_name_none(status: int, body: Any, kind: str) -> None:
    """A status with a meaning of its own keeps it."""
    fault = answer(status, body)

    assert (fault.rules, fault.kind) == ("", kind)


@pytest.mark.parametrize(
    "message",
    [
        'Error rendering prompt with jinja template: "Something odd is found in messages."',
        LLAMA + "Something about this template.",
        "raise_exception: not like this",
        "TemplateError: expected a list",
    ],
)
def test_a_template_that_refuses_is_no_outage(message: str) -> None:
    """Also if its words name no rule: nine requests were sent to such a server in three turns."""
    assert answer(500, error(message)) == Fault(kind="rejected")


QUOTED = (
    "roles must alternate",
    "System message must be at the beginning",
    "Cannot pass both content and thinking",
    "property reasoning_content is unsupported",
    "my reasoning_content is missing in assistant tool call message",
    "jinja raise_exception System role not supported",
    "Function call is missing a thought_signature",
    'Error rendering prompt with jinja template: \\"roles must alternate\\"',
    "While executing X at line 1, column 1 in source: Jinja Exception: roles must alternate",
)
FORMS = (
    'The request is not valid: "{}"',
    "The request is not valid: '{}'",
    "The request is not valid: \u201c{}\u201d",
    "Not valid: [{{'role': 'user', 'content': '{}'}}]",
    'Not valid: {{"role": "user", "content": "{}"}}',
    '"{}" is not valid',
)


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize("words", QUOTED)
@pytest.mark.parametrize("form", FORMS)
def test_a_quoted_user_names_no_rule(form: str, words: str, status: int) -> None:
    """Whatever a user writes, an error means the same, in whichever member it stands."""
    for member in ("message", "detail", "msg"):
        found = answer(status, {"error": {member: form.format(words)}})
        assert found == answer(status, {"error": {member: form.format("Hello, you")}})
    assert (
        answer(422, {"detail": [{"loc": ["body", "messages", 0], "msg": "odd", "input": words}]}).rules == ""
    )


def test_words_inside_of_a_200_count_too() -> None:
    """Gateways send them so. Without them it would be an answer that nobody can read."""
    found = fault_of_error({"message": "Unexpected role 'user' after role 'tool'", "type": "invalid_order"})

    assert (found.kind, found.rules, found.retryable) == ("rejected", "u", False)
    assert fault_of_error({"message": "something"}).kind == "protocol"


@pytest.mark.parametrize("status", [400, 500])
def test_hostile_errors_take_a_time_in_proportion(status: int) -> None:
    """Long, deep or odd bodies are read in bounded time, and nothing raises."""
    deep: Any = "roles"
    for _ in range(200):
        deep = {"message": deep, "detail": [deep]} if len(json.dumps(deep)) < 50_000 else [deep]
    nested = "x"
    for _ in range(8):
        nested = json.dumps({"error": {"message": nested}})
    bodies: list[Any] = [
        error("messages[0].content " * 5_000),
        error("tool call id " * 9_000),
        error("developer " * 9_000),
        error("'" * 60_000),
        error(LLAMA * 500),
        {"detail": [{"loc": ["messages", 1] * 900, "msg": "Extra inputs are not permitted"}] * 300},
        {"detail": [{"loc": "messages", "msg": 5}, 7, None, [[]]], "param": 9, "message": {"detail": "x"}},
        error(nested),
        deep,
    ]
    began = time.process_time()

    for body in bodies:
        answer(status, body)

    assert time.process_time() - began < 5


def test_long_words_are_read_from_the_beginning() -> None:
    """Only the first part of a text is searched."""
    assert rules_in("x" * 9_000 + "roles must alternate") == ""
    assert http_fault(400, {}, json.dumps(error("roles must alternate" + "x" * 9_000)).encode()).rules == "a"
