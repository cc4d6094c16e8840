"""Facts about error answers: what each means, whether to try again, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.backends.base import Fault, FaultKind
from goaitools_py.backends.http.faults import fault_of_error, http_fault, retry_after


def answer(message: str = "no", **members: Any) -> bytes:
    return json.dumps({"error": {"message": message, **members}}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "rejected", False),
        (401, "auth", False),
        (402, "auth", False),
        (403, "auth", False),
        (404, "rejected", False),
        (408, "unavailable", True),
        (409, "unavailable", True),
        (413, "rejected", False),
        (418, "rejected", False),
        (422, "rejected", False),
        (429, "rate_limit", True),
        (500, "unavailable", True),
        (503, "unavailable", True),
        (529, "unavailable", True),
    ],
)
@pytest.mark.parametrize(
    "body", [answer(), b"<html>Bad Gateway</html>", b"", b"null", b"[]", b'"no"', b"\xff"]
)
def test_the_status_says_what_a_fault_is(status: int, kind: FaultKind, retryable: bool, body: bytes) -> None:
    """Whatever the body, a status has one meaning."""
    assert http_fault(status, {}, body) == Fault(kind=kind, retryable=retryable)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": "context_length_exceeded"}),
        (400, {"message": "This model's maximum context length is 8192 tokens. However, you requested 9000"}),
        (400, {"message": "Your input exceeds the context window of this model"}),
        (400, {"message": "Please reduce the length of the messages or completion."}),
        (400, {"message": "This model's maximum prompt length is 131072 but the request contains 537812"}),
        (400, {"message": "The input token count (1196265) exceeds the maximum number of tokens allowed"}),
        (413, {"message": "prompt is too long: 213462 tokens > 200000 maximum"}),
        (400, {"message": "prompt is too long: 205431 tokens > 200000 maximum"}),
        (400, {"message": "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000"}),
        (400, {"type": "model_context_window_exceeded"}),
        (422, {"message": "Too many tokens"}),
        (400, {"message": "x", "type": "exceed_context_size_error", "code": 400}),
        (400, {"message": "request (131168 tokens) exceeds the available context size (131072 tokens)"}),
        (500, {"message": "Context size has been exceeded.", "type": "server_error"}),
        (
            400,
            {"message": "Provider returned error", "metadata": {"raw": "maximum context length is 9 tokens"}},
        ),
    ],
)
def test_a_history_that_is_too_long_is_recognised(status: int, error: dict[str, Any]) -> None:
    """Servers word it differently; the engine can act on all of them."""
    fault = http_fault(status, {}, json.dumps({"error": error}).encode())

    assert (fault.kind, fault.retryable) == ("context", False)


@pytest.mark.parametrize(
    "error",
    [
        {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to "
            "a different conversation. Remove the block, or set "
            '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".',
        },
        {"message": "messages.1.content.0: Invalid signature in thinking block"},
        {"message": "messages.5.content.0: Invalid `data` in `redacted_thinking` block"},
        {
            "message": "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest "
            "assistant message cannot be modified. These blocks must remain as they were in the original "
            "response."
        },
        {"code": "invalid_encrypted_content", "message": "x"},
        {"message": "The encrypted content gAAAA could not be verified."},
    ],
)
def test_signed_blocks_that_do_not_fit_are_recognised(error: dict[str, Any]) -> None:
    """Sending them again cannot help, sending without them does."""
    fault = http_fault(400, {}, json.dumps({"type": "error", "error": error}).encode())

    assert (fault.kind, fault.retryable) == ("signature", False)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (529, "Invalid `signature` in `thinking` block"),
        (400, "Expected `thinking` or `redacted_thinking`, but found `text`"),
        (400, "messages.1: The final block in an assistant message cannot be `thinking`."),
        (400, "thinking.budget_tokens: the thinking block budget is too small"),
    ],
)
def test_other_words_about_thinking_are_no_signature(status: int, message: str) -> None:
    """They are about the request, and taking thinking out would not help."""
    assert http_fault(status, {}, answer(message)).kind in ("rejected", "unavailable")


def test_hostile_prose_is_searched_quickly() -> None:
    """A long text that only begins like a known one takes no longer for it."""
    message = "thinking blocks encrypted content invalid signature on " * 20_000

    assert http_fault(400, {}, answer(message)).kind == "rejected"


def test_a_rate_limit_that_speaks_of_tokens_is_a_rate_limit() -> None:
    """Waiting helps against it, cutting the history does not."""
    assert http_fault(429, {}, answer("Too many tokens per minute")).kind == "rate_limit"


def test_what_a_model_wrote_is_not_searched() -> None:
    """Only the server's own words decide, not a quoted generation."""
    body = answer("Tool call failed", failed_generation="the maximum context length")

    assert http_fault(400, {}, body).kind == "rejected"


def test_a_spent_quota_is_not_worth_a_retry() -> None:
    """429 with this code stays so until somebody pays."""
    fault = http_fault(429, {}, answer(code="insufficient_quota", type="insufficient_quota"))

    assert fault == Fault(kind="rate_limit", code="insufficient_quota", retryable=False)


@pytest.mark.parametrize(
    ("status", "said", "retryable"), [(500, "false", False), (400, "true", True), (500, "maybe", True)]
)
def test_the_server_may_overrule_the_status(status: int, said: str, retryable: bool) -> None:
    """``x-should-retry`` decides, as in the providers' own SDKs."""
    assert http_fault(status, {"X-Should-Retry": said}, answer()).retryable is retryable


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "model_not_found", "type": "invalid_request_error"}, "model_not_found"),
        ({"code": None, "type": "server_error"}, "server_error"),
        ({"code": 429, "type": "too_fast"}, "too_fast"),
        ({"code": 429}, "429"),
        (
            {"type": "invalid_request_error", "details": {"error_code": "compaction_misplaced"}},
            "compaction_misplaced",
        ),
        ({"type": "api_error", "details": {"error_code": "the secret is: plugh"}}, "api_error"),
        ({"type": "api_error", "details": ["plugh"]}, "api_error"),
        ({"code": "the secret is: plugh"}, ""),
        ({"code": "x" * 65}, ""),
        ({"code": ["a"]}, ""),
    ],
)
def test_the_code_is_a_name_never_prose(error: dict[str, Any], code: str) -> None:
    """A code goes into error texts and logs, so nothing that could quote a message passes for one."""
    assert http_fault(429, {}, json.dumps({"error": error}).encode()).code == code


def test_members_of_an_error_may_stand_at_the_top() -> None:
    """Mistral and FastAPI servers have no ``error`` object."""
    assert http_fault(422, {}, b'{"object":"error","type":"invalid","code":"3051"}').code == "3051"
    assert http_fault(422, {}, b'{"detail":"prompt is too long"}').kind == "context"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon", "date": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:27:18 GMT"}, 42.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT", "date": "Wed, 21 Oct 2026 07:27:18"}, None),
    ],
)
def test_the_wait_is_read_from_headers(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, then seconds, then a date against the answer's own date."""
    assert retry_after(headers) == seconds


def test_the_wait_is_part_of_the_fault() -> None:
    """Header names count in any letter case."""
    assert http_fault(429, {"Retry-After": "3"}, answer()).retry_after == 3.0


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"code": "rate_limit_exceeded"}, "rate_limit", True),
        ({"code": 429, "message": "slow down"}, "rate_limit", True),
        ({"code": "502"}, "unavailable", True),
        ({"type": "overloaded_error"}, "unavailable", True),
        ({"code": "invalid_api_key"}, "auth", False),
        ({"type": "invalid_request_error", "message": "prompt is too long"}, "context", False),
        ({"code": "context_length_exceeded"}, "context", False),
        ({"status_code": 400, "code": "tool_use_failed"}, "protocol", True),
        ({"code": "insufficient_quota"}, "rate_limit", False),
        ({"message": "boom"}, "protocol", True),
        ({"code": 7, "status": True}, "protocol", True),
        ("boom", "protocol", True),
        (["boom"], "protocol", True),
    ],
)
def test_an_error_inside_a_success_is_known_by_its_names(
    error: Any, kind: FaultKind, retryable: bool
) -> None:
    """The status says nothing there, so codes and types do."""
    fault = fault_of_error(error)

    assert (fault.kind, fault.retryable) == (kind, retryable)


GEMINI_DETAILS = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
REFUSED_KEYS = [
    # continuedev/continue#10778: xAI
    b'{"code":"Client specified an invalid argument","error":"Incorrect API key provided: sk***YA. You can '
    b'obtain an API key from https://console.x.ai."}',
    # cequence-io/openai-scala-client#109, google-gemini/gemini-cli#25198: Gemini's endpoint
    b'[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.",'
    b'"status":"INVALID_ARGUMENT"}}]',
    answer("API Key not found. Please pass a valid API key.", status="INVALID_ARGUMENT"),
    answer("Request failed", details=GEMINI_DETAILS),
    answer("Invalid API-key provided.", code="InvalidApiKey"),
    answer("no", type="authentication_error"),
    answer("Your request was refused", code="invalid_api_key"),
    b'"Missing API key"',
    b"API key is expired",
]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("body", REFUSED_KEYS)
def test_a_refused_key_under_another_status(status: int, body: bytes) -> None:
    """The body says what it is; nothing is tried again."""
    fault = http_fault(status, {}, body)

    assert (fault.kind, fault.retryable) == ("auth", False)


@pytest.mark.parametrize(
    "words",
    [
        "Invalid value: 'my API key is invalid'",
        "messages.1: 'Incorrect API key provided' is too long",
        "Invalid 'messages[0].content': expected a string",
        "Invalid key in tool_choice",
        "API keys are listed on the dashboard; the model does not exist",
        "Unknown parameter: 'api_key_id'",
    ],
)
def test_words_about_keys_elsewhere_are_no_refused_key(words: str) -> None:
    """An error may quote what a user has said."""
    assert http_fault(400, {}, answer(words)).kind == "rejected"


@pytest.mark.parametrize("status", [200, 404, 429, 500])
def test_words_about_keys_under_a_status_of_its_own(status: int) -> None:
    """Such a status means what it says."""
    assert http_fault(status, {}, answer("Incorrect API key provided")).kind != "auth"


def test_a_refused_key_inside_an_answer() -> None:
    """An error object in a 200 is classified by the same words."""
    error = {"message": "Incorrect API key provided", "type": "invalid_request_error"}

    assert fault_of_error(error).kind == "auth"
