"""How some thirty servers say that a history is too long, and what only sounds like it."""
# ruff: noqa: E501 - the servers' own words

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from goaitools_py.backends.http.faults import fault_of_error, http_fault
from goaitools_py.backends.http.refusals import CODES, WORDINGS, is_overflow


def error(message: str, **members: Any) -> Any:
    return {"error": {"message": message, **members}}


SAID: list[tuple[str, int, Any]] = [
    (
        "OpenAI",
        400,
        error(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens. "
            "Please reduce the length of the messages.",
            type="invalid_request_error",
            param="messages",
            code="context_length_exceeded",
        ),
    ),
    (
        "OpenAI, old",
        400,
        error(
            "This model's maximum context length is 4097 tokens, however you requested 4116 tokens (3860 in your "
            "prompt; 256 for the completion). Please reduce your prompt; or completion length.",
            type="invalid_request_error",
        ),
    ),
    (
        "OpenAI Responses",
        400,
        error("Your input exceeds the context window of this model. Please adjust your input and try again."),
    ),
    (
        "Azure",
        400,
        error(
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 428548 tokens."
        ),
    ),
    (
        "Anthropic",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 202095 tokens > 200000 maximum",
            },
        },
    ),
    (
        "Anthropic, with max_tokens",
        400,
        error(
            "input length and `max_tokens` exceed context limit: 198981 + 21333 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
    ),
    ("Anthropic, by its type", 400, error("x", type="model_context_window_exceeded")),
    ("Bedrock", 400, {"message": "Input is too long for requested model."}),
    (
        "Gemini",
        400,
        [
            error(
                "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
                code=400,
                status="INVALID_ARGUMENT",
            )
        ],
    ),
    (
        "Vertex AI",
        400,
        error("The input token count exceeds the maximum number of tokens allowed (1048576).", code=400),
    ),
    (
        "Mistral",
        400,
        {
            "object": "error",
            "message": "Prompt contains 200000 tokens and 0 draft tokens, too large for model with 131072 maximum "
            "context length",
            "type": "invalid_request_error",
            "code": "3051",
        },
    ),
    (
        "Groq",
        400,
        error(
            "Please reduce the length of the messages or completion.",
            type="invalid_request_error",
            code="context_length_exceeded",
        ),
    ),
    ("Groq, in words alone", 400, error("Please reduce the length of the messages or completion.")),
    (
        "Together",
        422,
        error("The input (516368 tokens) is longer than the model's context length (262144 tokens)."),
    ),
    (
        "Together, old",
        422,
        error(
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32768. Given: 30512 `inputs` "
            "tokens and 8192 `max_new_tokens`"
        ),
    ),
    ("Ollama, its cloud", 400, error("The prompt is too long: 131084, model maximum context length: 131071")),
    (
        "DeepSeek",
        400,
        error(
            "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the "
            "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            type="invalid_request_error",
            code="invalid_request_error",
        ),
    ),
    (
        "xAI",
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        },
    ),
    (
        "Cohere",
        400,
        {
            "message": "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048 - received "
            "6354. Try using a shorter prompt or a smaller max_tokens value."
        },
    ),
    (
        "OpenRouter",
        400,
        error(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 tokens (1463 "
            "of text input, 131000 in the output). Please reduce the length of either one.",
            code=400,
        ),
    ),
    (
        "OpenRouter, Poolside",
        400,
        error("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
    ),
    (
        "LiteLLM",
        400,
        error(
            "litellm.ContextWindowExceededError: litellm.BadRequestError: the conversation is over the limit",
            type=None,
            code="400",
        ),
    ),
    (
        "LiteLLM over vLLM",
        400,
        error("Requested token count exceeds the model's maximum context length of 131072 tokens."),
    ),
    (
        "vLLM",
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
            "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "code": 400,
        },
    ),
    (
        "vLLM, new",
        400,
        error(
            "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your "
            "prompt contains at least 134145 input tokens, for a total of at least 262145 tokens. Please reduce the "
            "length of the input prompt or the number of requested output tokens."
        ),
    ),
    ("vLLM, without a limit", 400, error("the prompt contains at least 134145 input tokens")),
    (
        "vLLM, of a prompt",
        400,
        error("The decoder prompt (length 21535) is longer than the maximum model length of 16384."),
    ),
    (
        "vLLM, where a shorter history leaves room for the output",
        400,
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096 "
            "tokens and your request has 2104 input tokens (2000 > 4096 - 2104)."
        ),
    ),
    (
        "SGLang",
        400,
        {
            "object": "error",
            "message": "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    (
        "TGI",
        422,
        {
            "error": "Input validation error: `inputs` must have less than 2048 tokens. Given: 2222",
            "error_type": "validation",
        },
    ),
    (
        "TGI, in all",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 65537. Given: 79993 `inputs` "
            "tokens and 1024 `max_new_tokens`",
            "error_type": "validation",
        },
    ),
    (
        "llama.cpp",
        400,
        error(
            "request (481909 tokens) exceeds the available context size (32768 tokens), try increasing it",
            code=400,
            type="exceed_context_size_error",
        ),
    ),
    (
        "llama.cpp, in words alone",
        400,
        error("the request exceeds the available context size, try increasing it"),
    ),
    (
        "llama.cpp, in the middle",
        500,
        error("Context size has been exceeded.", code=500, type="server_error"),
    ),
    (
        "LM Studio",
        400,
        {
            "error": "Trying to keep the first 9000 tokens when context the overflows. However, the number of tokens to "
            "keep from the initial prompt is greater than the context length."
        },
    ),
    (
        "Ollama",
        400,
        {
            "StatusCode": 400,
            "Status": "400 Bad Request",
            "error": "prompt too long; exceeded max context length by 4 tokens",
        },
    ),
    ("Ollama, compatible", 400, error("prompt too long; exceeded max context length by 100918 tokens")),
    ("Perplexity", 400, error("x", type="too_many_prompt_tokens", code=400)),
    (
        "Perplexity, in words alone",
        400,
        error("The total length of all messages is too long."),
    ),
    ("Perplexity, with a limit", 400, error("User input tokens exceeds 127072 tokens")),
    (
        "Perplexity, behind OpenRouter",
        400,
        error(
            "Provider returned error",
            code=400,
            metadata={
                "raw": '{"error":{"message":"Requested 115120 to generate tokens, following a prompt of length 40055, '
                'which exceeds the max limit of 128000 tokens."}}'
            },
        ),
    ),
    (
        "Cerebras",
        400,
        {
            "message": "Please reduce the length of the messages or completion. Current length is 8292 while limit is "
            "8192",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
    ),
    ("Cerebras, in words alone", 400, {"message": "Current length is 8292 while limit is 8192"}),
    (
        "NVIDIA NIM",
        400,
        error(
            "This model's maximum context length is 196608 tokens. However, your messages resulted in 199906 tokens. "
            "Please reduce the length of the messages.",
            type="Bad Request",
            code=400,
        ),
    ),
    ("GitHub Copilot", 400, error("prompt token count of 240000 exceeds the limit of 200000")),
    ("MiniMax", 400, error("invalid params, context window exceeds limit")),
    ("Moonshot", 400, error("Your request exceeded model token limit: 262144 (requested: 300000)")),
    (
        "DashScope",
        400,
        error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]"),
    ),
    ("z.ai", 400, error("Prompt exceeds max length", code="1261")),
    ("a gateway", 400, error("Total tokens of image and text exceed max message tokens.")),
    (
        "Replicate",
        400,
        {"detail": "Your input is too long. Max input length is 4096 tokens, but you supplied 5441 tokens."},
    ),
    ("a server without a name", 400, error("context length exceeded")),
    ("another", 422, error("Too many tokens")),
]


@pytest.mark.parametrize(("status", "body"), [pytest.param(*rest, id=server) for server, *rest in SAID])
def test_a_history_that_is_too_long_is_recognised(status: int, body: Any) -> None:
    """Whatever the server is, and whatever it wraps its words in."""
    fault = http_fault(status, {}, json.dumps(body).encode())

    assert (fault.kind, fault.retryable) == ("context", False)


def test_each_wording_of_the_table_is_tested() -> None:
    """Every row finds something that a server said, and every code stands in an error."""
    texts = [json.dumps(body, ensure_ascii=False) for _, _, body in SAID]

    assert len({server.partition(",")[0] for server, *_ in SAID}) >= 26
    for wording in WORDINGS:
        assert any(re.search(wording.words, text, re.IGNORECASE) for text in texts), wording
        assert wording.source
    for code in CODES:
        assert any(f'"{code}"' in text for text in texts), code


OTHERS: list[tuple[str, int, Any, str]] = [
    ("rate, Bedrock", 400, {"message": "Too many tokens, please wait before trying again."}, "rejected"),
    ("rate, Bedrock named", 500, error("ThrottlingException: Too many tokens"), "unavailable"),
    ("rate, 429", 429, error("Too many tokens per minute"), "rate_limit"),
    ("rate, 400", 400, error("Too many tokens per minute"), "rejected"),
    (
        "rate, OpenAI",
        429,
        error(
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 47000. "
            "The input or output tokens must be reduced in order to run successfully.",
            code="rate_limit_exceeded",
        ),
        "rate_limit",
    ),
    ("rate, token limit", 400, error("token limit exceeded: 10000 tokens per day"), "rejected"),
    (
        "rate, Anthropic",
        429,
        error("This request would exceed your organization's rate limit of 40,000 input tokens per minute"),
        "rate_limit",
    ),
    ("quota", 400, error("token limit exceeded for your quota"), "rejected"),
    (
        "output, OpenAI",
        400,
        error(
            "max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you provided 32000."
        ),
        "rejected",
    ),
    (
        "output, Anthropic",
        400,
        error(
            "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for this model"
        ),
        "rejected",
    ),
    (
        "output, Bedrock",
        400,
        {
            "message": "The maximum tokens you requested exceeds the model limit of 2048. Try again with a lower value."
        },
        "rejected",
    ),
    (
        "output, Databricks",
        400,
        {
            "error_code": "BAD_REQUEST",
            "message": "Bad request: rpc error: code = InvalidArgument desc = max_tokens (10000) cannot exceed 8192. "
            "Please reduce the length of max output tokens generated.",
        },
        "rejected",
    ),
    (
        "output as large as the window, vLLM",
        400,
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 4096 "
            "tokens and your request has 12 input tokens (8192 > 4096 - 12)."
        ),
        "rejected",
    ),
    (
        "output as large as the window, OpenAI",
        400,
        error(
            "This model's maximum context length is 4097 tokens. However, you requested 5012 tokens (12 in the messages, "
            "5000 in the completion). Please reduce the length of the messages or completion."
        ),
        "rejected",
    ),
    (
        "output as large as the window, vLLM new",
        400,
        error(
            "This model's maximum context length is 32768 tokens. However, you requested 65536 output tokens and your "
            "prompt contains at least 12 input tokens, for a total of at least 65548 tokens."
        ),
        "rejected",
    ),
    (
        "output as large as the window, TGI",
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 17 `inputs` "
            "tokens and 10000 `max_new_tokens`"
        },
        "rejected",
    ),
    (
        "output as large as the window, Anthropic",
        400,
        error("input length and `max_tokens` exceed context limit: 12 + 200000 > 200000"),
        "rejected",
    ),
    (
        "a parameter",
        400,
        error(
            "Invalid 'user': string too long. Expected a string with maximum length 64, but got 93",
            code="string_above_max_length",
        ),
        "rejected",
    ),
    ("an image", 400, error("image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"), "rejected"),
    (
        "tools",
        400,
        error("Invalid 'tools': array too long. Expected an array with maximum length 128"),
        "rejected",
    ),
]


@pytest.mark.parametrize(
    ("status", "body", "kind"), [pytest.param(*rest, id=server) for server, *rest in OTHERS]
)
def test_what_a_shorter_history_would_not_help_is_no_overflow(status: int, body: Any, kind: str) -> None:
    """A limit on a rate, an output limit that is too large by itself, a parameter that is too long."""
    assert http_fault(status, {}, json.dumps(body).encode()).kind == kind


def test_an_overflow_inside_of_a_200_is_recognised() -> None:
    """A gateway's error event: its own code has no status, so its name stands for one."""
    assert fault_of_error({"type": "too_many_prompt_tokens", "message": "x"}).kind == "context"
    assert (
        fault_of_error(
            {"code": 400, "message": "prompt too long; exceeded max context length by 4 tokens"}
        ).kind
        == "context"
    )


def test_long_prose_is_searched_in_time() -> None:
    """Text that only begins like a known wording, many times over."""
    starts = ("maximum context length is 1 ", "input token count ", "is too large: 1 ", "must be <= 1 ")
    texts = [start * 20_000 for start in starts] + ["following a prompt of length " * 20_000, "1" * 500_000]
    began = time.thread_time()

    found = [is_overflow(text) for text in texts]

    assert time.thread_time() - began < 2.0
    assert found == [True, False, False, False, False, False]
