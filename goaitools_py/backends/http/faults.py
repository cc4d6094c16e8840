"""Classifies error answers of all provider APIs: kind, code, and whether and when to try again.

Owns: status codes, retry headers, the words by which servers refuse a history that is too long, or signed for
another conversation, and which words are a server's own. Must never know: a reply, a socket.

A server may quote the message that it refuses. A user who writes "prompt is too long" or "your account is
blocked" must not decide the kind of the error. So a quotation with a space in it is left out. Two kinds stay:
a name in quotation marks, such as a field or a model, and the words of a server behind a gateway, which stand
in a ``"message"`` of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from ...base import rawjson
from ..base import Fault, FaultKind
from .refusals import CODES, is_moderation, is_overflow

__all__ = ["fault_of_error", "http_fault", "own_words", "retry_after"]

_SIGNATURE_CODES: Final = frozenset(
    {
        "invalid_encrypted_content",  # OpenAI: reasoning that the key's organization cannot read
    }
)

# A rate limit may speak of tokens, too. So only answers that can mean the request itself are searched.
_CONTEXT_STATUSES: Final = frozenset({400, 413, 422, 500})

# Anthropic's, as of 2026-11: platform.claude.com/docs, ".../preserved-thinking/fix-bound-to-a-different-
# conversation", anthropics/anthropic-sdk-python#1598, anthropics/claude-code#63284.
_SIGNATURE_WORDS: Final = re.compile(
    "|".join(
        (
            "invalid `?(?:signature|data)`? in `?(?:redacted_)?thinking`? block",
            "bound to a different conversation",
            "thinking`? blocks? .{0,80}cannot be modified",
            "encrypted content .{0,400}could not be verified",  # OpenAI
        )
    ),
    re.IGNORECASE,
)
_SIGNATURE_STATUSES: Final = frozenset({400, 422})

# Names of errors inside an answer with status 200, where the status says nothing.
_STATUS_OF_NAME: Final = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "insufficient_quota": 429,
    "internal_server_error": 500,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "model_context_window_exceeded": 400,
    "model_not_found": 404,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "server_is_overloaded": 503,
    "service_unavailable": 503,
    "timeout": 408,
    "too_many_prompt_tokens": 400,
    "timeout_error": 504,
}

_CODE: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


def http_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """Classify an answer with an error status. `body` may be anything, such as HTML."""
    try:
        answer = rawjson.loads(body)
    except ValueError:
        answer = _plain_text(body)
    if isinstance(answer, list) and len(answer) == 1:  # Gemini's endpoint: google-gemini/gemini-cli#6678
        answer = answer[0]
    # Mistral and FastAPI servers put the error's members at the top.
    error = (
        answer.get("error") or _first(answer.get("errors")) or answer if isinstance(answer, dict) else answer
    )
    return _classify(status, error, headers)


def _first(errors: object) -> object:
    """Cloudflare's errors: a list, or one object."""
    return errors[0] if isinstance(errors, list) and errors else errors


def fault_of_error(error: object) -> Fault:
    """Classify an error object inside an answer with status 200; kind "protocol" for an unknown error."""
    status = _inner_status(error)
    if status is None and (_refuses_content(error) or _named_rules(error)[0]):
        status = 400
    if status is None:
        return Fault(kind="protocol", code=_code(error), retryable=True)
    return _classify(status, error, {})


def _classify(status: int, error: object, headers: Mapping[str, str]) -> Fault:
    """The fault of a status, refined by the error object and the retry headers."""
    headers = {name.lower(): value for name, value in headers.items()}
    code = _code(error)
    kind = _kind(status, error)
    rules = ""
    if status in _CONTEXT_STATUSES and kind in ("rejected", "unavailable"):
        rules, is_of_template = _named_rules(error)
        if status == 500 and (rules or is_of_template):
            kind = "rejected"
    retryable = kind in _MAY_PASS and "insufficient_quota" not in _names(error)
    # OpenAI and Anthropic may overrule the status by this header; their SDKs obey it before anything else.
    if (overruled := headers.get("x-should-retry")) in ("true", "false"):
        retryable = overruled == "true"
    return Fault(kind=kind, code=code, retryable=retryable, retry_after=retry_after(headers), rules=rules)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, or None. `headers` have lower-case names.

    A date counts only together with the answer's own ``Date``, because this module never reads a clock.
    """
    if (seconds := _number(headers.get("retry-after-ms"))) is not None:
        return seconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if value is None or "date" not in headers:
        return None
    from email.utils import parsedate_to_datetime  # slow to import, and few servers send a date

    try:
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers["date"])
    except (TypeError, ValueError):  # not dates; or one with a zone and one without
        return None
    return max(wait.total_seconds(), 0.0)


_MAY_PASS: Final = frozenset({"unavailable", "rate_limit", "protocol"})

_BLAMES_REPLY: Final = frozenset(
    {
        "json_validate_failed",  # Groq: browser-use#2133, 2025-06
        "output_parse_failed",  # Groq: gpt-oss wrote something that is no message
        "tool_use_failed",  # Groq: blogminhquy/javis-os#63, 2026-08
    }
)
"""Codes by which a server refuses what its own model has written. The request is not to blame, and another
try often succeeds."""

_REPLY_WORDS: Final = re.compile(
    r"failed to generate (?:a )?tool[ _]calls?\b",  # Cerebras: vybestack/llxprt-code#221, 2025-09
    re.IGNORECASE,
)
_REPLY_STATUSES: Final = frozenset({400, 422})


def _kind(status: int, error: object) -> FaultKind:
    if status in _REPLY_STATUSES and (
        not _BLAMES_REPLY.isdisjoint(_names(error)) or _REPLY_WORDS.match(_words(error))
    ):
        return "protocol"
    if not CODES.keys().isdisjoint(_names(error)):
        return "context"
    if status in _CONTEXT_STATUSES and is_overflow(_words(error)):
        return "context"
    if not _SIGNATURE_CODES.isdisjoint(_names(error)):
        return "signature"
    if status in _SIGNATURE_STATUSES and _SIGNATURE_WORDS.search(_words(error)):
        return "signature"
    if status in _KEY_STATUSES and _refuses_key(error):
        return "auth"
    if status in _ABOUT_KEY:
        return "rejected" if status in _MAY_MODERATE and _refuses_content(error) else "auth"
    if status == 429:
        return "rate_limit"
    if status in _PASSING or status >= 500:
        return "unavailable"
    return "rejected"


_ABOUT_KEY: Final = frozenset({401, 402, 403, 407})
"""The key, its credit, or a proxy's credentials: only the owner can help."""

_KEY_STATUSES: Final = frozenset({400, 422})
"""Statuses about the request. Some servers refuse a key with them."""

_KEY_CODES: Final = frozenset(
    {"API_KEY_INVALID", "InvalidApiKey", "authentication_error", "invalid_api_key", "unauthorized"}
)
_KEY_WORDS: Final = re.compile(
    # Only at the beginning: an error may quote, without marks, what a user has written.
    r"\W*(?:"
    r"(?:incorrect|invalid|wrong|missing|expired|unknown) (?:x-)?api[ _-]?key\b"  # xAI: continue#10778
    r"|(?:the )?api[ _-]?key (?:is )?(?:not valid|not found|invalid|incorrect|expired|missing|required)"
    r")",  # Gemini: cequence-io/openai-scala-client#109, google-gemini/gemini-cli#25198
    re.IGNORECASE,
)


def _refuses_key(error: object) -> bool:
    """True for an error about the key with a status that has another meaning."""
    names = _names(error)
    details = error.get("details") if isinstance(error, dict) else None
    for one in details if isinstance(details, list) else ():
        if isinstance(one, dict) and isinstance(reason := one.get("reason"), str):  # google.rpc.ErrorInfo
            names.add(reason)
    return not _KEY_CODES.isdisjoint(names) or _KEY_WORDS.match(_words(error)) is not None


_MAY_MODERATE: Final = frozenset({402, 403})
"""OpenRouter and xAI answer 403 to a flagged message, guardrails of gateways 402 or 403."""

_PASSING: Final = frozenset({408, 409, 423, 425, 499})
"""A timeout, a conflict, a lock, too early, and a gateway that gave up waiting."""


def _refuses_content(error: object) -> bool:
    names = _names(error)
    if isinstance(error, dict) and isinstance(inner := error.get("innererror"), dict):
        names |= _names(inner)
    return is_moderation(error, names, _words(error))


def _named_rules(error: object) -> tuple[str, bool]:
    """The rules that the server's words name. True: they are the words of a model's template."""
    from .rule_words import is_of_template, refusal_text, rules_in  # few programs see a refusal

    text = refusal_text(error, own_words)
    return rules_in(text), is_of_template(text)


_LONGEST_TEXT: Final = 4096


def _plain_text(body: bytes) -> str | None:
    """The text of a body that is not JSON; None for a page, or for a long body."""
    if len(body) > _LONGEST_TEXT or body.lstrip()[:1] in (b"<", b"{", b"[", b""):
        return None
    return body.decode("utf-8", "replace")


def _names(error: object) -> set[str]:
    if not isinstance(error, dict):
        return set()
    return {value for key in ("code", "type", "status") if isinstance(value := error.get(key), str)}


def _code(error: object) -> str:
    """The most exact name of the error. Never its text, because that may quote the request."""
    if not isinstance(error, dict):
        return ""
    details = error.get("details")  # Anthropic: the subject of an `invalid_request_error`
    inner = details.get("error_code") if isinstance(details, dict) else None
    values = [error.get("code"), inner, error.get("type")]
    values.sort(key=lambda value: not isinstance(value, str))
    for value in values:
        if isinstance(value, (str, int)) and _CODE.fullmatch(str(value)):
            return str(value)
    return ""


def _words(error: object) -> str:
    """The server's own text, without quotations. Only this text is searched for words with a meaning."""
    if isinstance(error, str):
        return own_words(error)
    if not isinstance(error, dict):
        return ""
    metadata = error.get("metadata")  # OpenRouter: the text of the provider behind it
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    said = (error.get("message"), error.get("detail"), raw)
    return "\n".join(own_words(words) for words in said if isinstance(words, str))


def _inner_status(error: object) -> int | None:
    if not isinstance(error, dict):
        return None
    for key in ("status_code", "code", "status"):
        value: Any = error.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value[:4])
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    for key in ("code", "type"):
        value = error.get(key)
        if isinstance(value, str) and value in _STATUS_OF_NAME:
            return _STATUS_OF_NAME[value]
    return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


_LONGEST: Final = 65_536
"""Characters of a text that are read."""

_MARK: Final = re.compile(r"(\\*)([\"'`“”«»])")
_CLOSING: Final = {'"': '"', "'": "'", "`": "`", "“": "”", "«": "»"}
"""The mark that ends a quotation, by the mark that begins it."""

_ALSO_ALONE: Final = "'`"
"""Marks that may stand without a second mark, such as an apostrophe. A text after another single mark is cut
off."""

_SERVERS: Final = re.compile(r"\\*[\"'](?:message|detail|error|msg)\\*[\"']\s*:\s*$|jinja template:\s*$")
"""The beginning of the words of a server behind a gateway: the name of a member, in quotation marks. Or of a
template: LM Studio (lmstudio-ai/lmstudio-bug-tracker#842)."""

_SPACE: Final = re.compile(r"\s")


def own_words(text: str, *, depth: int = 3) -> str:
    """Leave out the quotations of a text. `depth`: how many errors inside of errors are read."""
    text = text[:_LONGEST].strip()
    marks = list(_MARK.finditer(text))
    alone: set[tuple[str, str]] = set()
    kept: list[str] = []
    at = index = 0
    while index < len(marks):
        mark = marks[index]
        kind = (mark[1], mark[2])
        index += 1
        if mark[2] not in _CLOSING or kind in alone or _is_letter(text, mark.start() - 1):
            continue
        wanted = (mark[1], _CLOSING[mark[2]])
        last = next((k for k in range(index, len(marks)) if _ends(text, marks[k], wanted)), None)
        if last is None and mark[2] in _ALSO_ALONE:
            alone.add(kind)  # so that a text of many marks is not read once for each
            continue
        start, end = mark.start(), len(text) if last is None else marks[last].end()
        inner = text[mark.end() : end if last is None else marks[last].start()]
        kept.append(text[at:start])
        if (start == 0 and end == len(text)) or _SERVERS.search(text[max(0, start - 32) : start]):
            kept.append(own_words(inner.replace('\\"', '"'), depth=depth - 1) if depth else "")
        elif not _SPACE.search(inner):
            kept.append(text[start:end])
        at = end
        index = len(marks) if last is None else last + 1
    return "".join((*kept, text[at:]))


def _ends(text: str, mark: re.Match[str], wanted: tuple[str, str]) -> bool:
    return (mark[1], mark[2]) == wanted and not _is_letter(text, mark.end())


def _is_letter(text: str, at: int) -> bool:
    return 0 <= at < len(text) and (text[at].isalnum() or text[at] == "_")
