"""An error may quote what a user has written. Those words do not say what the error means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.backends.http.faults import fault_of_error, http_fault, own_words

WORDS = (
    "prompt is too long",
    "this exceeds the context window",
    "maximum context length",
    "an invalid signature in thinking block",
    "thinking blocks like these cannot be modified",
    "your account was suspended",
    "incorrect api key",
    "the request was blocked by guardrail",
    "our content policy was violated: the text was flagged",
    "rate limit, too many requests",
)
"""What a user may write: the very words that servers use."""

FORMS = (
    'The request is not valid: "{}"',
    "The request is not valid: '{}'",
    "The request is not valid: `{}`",
    "The request is not valid: \u201c{}\u201d",
    "Not valid: [{{'role': 'user', 'content': '{}'}}]",
    'Not valid: {{"role": "user", "content": "{}"}}',
    '"{}" is not valid',
    'It has an "odd" name: "he says: {}", and more',
    'Not valid: "{}',
)
"""How servers quote."""


@pytest.mark.parametrize("status", [400, 402, 403, 413, 422, 500])
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("form", FORMS)
def test_quoted_words_change_nothing(form: str, words: str, status: int) -> None:
    """Whatever a user writes, an error means the same, in whichever member it stands."""
    for member in ("message", "detail"):
        plain = http_fault(status, {}, json.dumps({"error": {member: form.format("Hello, you")}}).encode())
        found = http_fault(status, {}, json.dumps({"error": {member: form.format(words)}}).encode())
        assert found == plain
    inner = [fault_of_error({"message": form.format(said)}) for said in (words, "Hello, you")]
    assert inner[0] == inner[1]


@pytest.mark.parametrize("words", ["tokens per minute", "my quota", "too many requests"])
def test_a_quoted_rate_does_not_hide_an_overflow(words: str) -> None:
    """A user who writes of quotas has a history that is too long, all the same."""
    text = f"maximum context length is 8192 tokens, but the messages have 9000: 'I asked about {words}'"

    assert http_fault(400, {}, json.dumps({"error": {"message": text}}).encode()).kind == "context"


EMBEDDED = (
    'Error code: 400 - {"error": {"message": "prompt is too long: 9 tokens > 8"}}',
    "BadRequestError: {'error': {'message': \"This model's maximum context length is 8 tokens\"}}",
    json.dumps({"error": {"message": json.dumps({"error": {"message": "prompt is too long"}})}}),
    '"prompt is too long"',
    "`inputs` must have less than 8 tokens. Given: 9",
    "the model's maximum context length is 'eight'",
)
"""What gateways pass on: the words of the server behind them, in quotation marks, too."""


@pytest.mark.parametrize("text", EMBEDDED)
def test_the_words_of_the_server_behind_a_gateway_count(text: str) -> None:
    """As `message` of an error inside of the error."""
    assert http_fault(400, {}, json.dumps({"error": {"message": text}}).encode()).kind == "context"
    raw: Any = {"error": {"message": "Provider returned error", "metadata": {"raw": text}}}
    assert http_fault(400, {}, json.dumps(raw).encode()).kind == "context"


@pytest.mark.parametrize("unit", ["'", '"', "-'a", ' "a', '\\"', "\u201c", '{"message": "', "x' 'y "])
def test_it_takes_a_time_in_proportion(unit: str) -> None:
    """No text of quotation marks makes it slow."""
    assert isinstance(own_words(unit * 50_000), str)
