"""Errors with Anthropic's texts: types by status, standard sentences, and errors about thinking.

Owns: the text and the shape of errors. Must never know: which rule was broken, or a request.

The sentences are from recorded responses, from platform.claude.com/docs (api/errors, build-with-claude/
preserved-thinking) and from public threads. The words after "Changed since then" are the simulator's own.
"""

from __future__ import annotations

from typing import Any

from ..openai.common_rules import Refusal
from ..wire import REQUEST_ID
from .signing import Broken

__all__ = ["NOT_FOUND", "NOT_JSON", "NO_THREADS", "broken_thinking", "error_object", "status_of"]

NOT_JSON = Refusal("The request body is not valid JSON.")
NOT_FOUND = Refusal("Not Found", type="not_found_error")
NO_THREADS = Refusal(
    "thread: message threads are not available; send the whole history.", None, "thread_unsupported_request"
)
"""The simulator remembers nothing. The official client knows this code and sends the history again."""
_TYPES = {
    200: "overloaded_error",
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OWN_TYPES = frozenset((*_TYPES.values(), "api_error"))
# Faults name OpenAI's codes; here they become Anthropic's types.
_SENTENCES = {
    "context_length_exceeded": "prompt is too long: 9001 tokens > 8192 maximum",
    "insufficient_quota": "Your credit balance is too low to access the Anthropic API.",
    "invalid_api_key": "invalid x-api-key",
    "model_not_found": "model: this-model-does-not-exist",
    "rate_limit_exceeded": "This request would exceed your account's rate limit. Please try again later.",
}
_STATUSES = {"insufficient_quota": 402}
_CHAIN = "a thinking block before it was left out or moved"


def status_of(status: int, refusal: Refusal) -> int:
    """The status that Anthropic sends where others send this one: an empty account has its own."""
    return _STATUSES.get(refusal.code or "", status)


def error_object(status: int, refusal: Refusal) -> dict[str, Any]:
    """The body of an error response; with status 200, an error instead of a reply."""
    kind = refusal.type
    if kind not in _OWN_TYPES or (kind == "invalid_request_error" and status != 200):
        kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    message = _SENTENCES.get(refusal.code or "", refusal.message)
    if refusal.type == "server_error":
        message = "Overloaded" if kind == "overloaded_error" else "Internal server error"
    error: dict[str, Any] = {"type": kind, "message": message}
    if refusal is NO_THREADS:
        error["details"] = {"error_code": refusal.code}
    return {
        "type": "error",
        "error": error,
        "request_id": REQUEST_ID.decode(),
    }


def broken_thinking(broken: Broken) -> Refusal:
    """The error for thinking that does not fit the prefix before it, or has no valid signature."""
    name = "signature" if broken.kind == "thinking" else "data"
    sentence = f"messages.{broken.message}.content.{broken.block}: Invalid `{name}` in `{broken.kind}` block"
    if not broken.changed:
        return Refusal(sentence)
    named = [f"`{name}`" for name in broken.changed if name != "chain"]
    named += [_CHAIN] if "chain" in broken.changed else []
    return Refusal(
        f"{sentence}. The block is bound to a different conversation. Remove the block, or set "
        '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block". '
        f"Changed since then: {', '.join(named)}."
    )
