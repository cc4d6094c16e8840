"""The forms in which hosts write their errors.

Owns: the JSON around the words of a refusal. Must never know: a rule, or the words themselves.

Each form has its source beside it. A form gets the status and the refusal, and gives the status to send and
the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..openai.common_rules import Refusal

__all__ = [
    "Shape",
    "bare_message",
    "cerebras_error",
    "cloudflare_error",
    "dashscope_error",
    "google_list",
    "groq_error",
    "litellm_error",
    "llamacpp_error",
    "minimax_error",
    "mistral_error",
    "moonshot_error",
    "numbered_error",
    "ollama_error",
    "openai_error",
    "together_error",
    "vllm_error",
    "xai_error",
]

Shape: TypeAlias = Callable[[int, Refusal], tuple[int, Any]]

_EXTRA = "extra_forbidden"
_BASE_CODES = {401: 1004, 402: 1008, 429: 1002}
_GOOGLE_WORDS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED"}
_GOOGLE_WORDS |= {404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def _named(refusal: Refusal) -> dict[str, Any]:
    return {"message": refusal.message, "type": refusal.type}


def openai_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """OpenAI's own form. DeepSeek's on each provider API (decolua/9router#2397, 2026-07-05)."""
    return status, {"error": {**_named(refusal), "param": refusal.param, "code": refusal.code}}


def moonshot_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """Message and type only (AstrBotDevs/AstrBot#7200, 2026-03-30)."""
    return status, {"error": _named(refusal)}


def groq_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """A code only where there is one (seen in recorded traffic; NousResearch/hermes-agent#11089, 2026-04)."""
    code = {} if refusal.code is None else {"code": refusal.code}
    return status, {"error": {**_named(refusal), **code}}


def together_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """An id beside the error (seen in recorded traffic)."""
    return status, {"id": "sim", **openai_error(status, refusal)[1]}


def mistral_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """Members at the top (editor-code-assistant/eca#233, 2025-12-13). An unknown member: FastAPI's ``detail``
    (zeroclaw-labs/zeroclaw#2693, 2026-03-04)."""
    if refusal.code == _EXTRA:
        place: list[str | int] = [
            int(at) if at.isdecimal() else at for at in (refusal.param or "").split(".")
        ]
        detail = {"type": _EXTRA, "loc": ["body", *place], "msg": refusal.message, "input": None}
        return status, {"detail": [detail]}
    return status, {"object": "error", **_named(refusal), "param": None, "code": refusal.code}


def cerebras_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """Members at the top (Kilo-Org/kilocode#10375, 2026-05-19)."""
    return status, {**_named(refusal), "param": refusal.param, "code": refusal.code}


def xai_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """A sentence as the code, and the message as the error (AstrBotDevs/AstrBot#6447, 2026-03-16)."""
    words = "Client specified an invalid argument" if status == 400 else refusal.code or refusal.type
    return status, {"code": words, "error": refusal.message}


def google_list(status: int, refusal: Refusal) -> tuple[int, Any]:
    """A list with one error (TokenRhythm/opensquilla#225, 2026-06-08)."""
    word = _GOOGLE_WORDS.get(status, "INTERNAL")
    return status, [{"error": {"code": status, "message": refusal.message, "status": word}}]


def vllm_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """A class of Python as the type, the status as the code (vllm protocol.py 002032ee)."""
    kind = "BadRequestError" if status == 400 else "InternalServerError" if status >= 500 else refusal.type
    return status, {"error": {"message": refusal.message, "type": kind, "param": None, "code": status}}


def llamacpp_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """The status as the code (ggml-org/llama.cpp#17040, 2025-11-07; #17700, 2025-12-02)."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return status, {"error": {"code": status, "message": refusal.message, "type": kind}}


def ollama_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """OpenAI's form, always without parameter and code (ollama openai/openai.go fb307609, 2026-08)."""
    kind = "api_error" if status >= 500 else "invalid_request_error"
    return status, {"error": {"message": refusal.message, "type": kind, "param": None, "code": None}}


def dashscope_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """OpenAI's form, with ids beside it (cloudwego/eino#994, 2026-04-24)."""
    return status, {**openai_error(status, refusal)[1], "id": "chatcmpl-sim", "request_id": "sim"}


def numbered_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """The status as the code: Perplexity (bieniu/ha-perplexity#117, 2026-04-01), OpenRouter (seen in recorded
    traffic)."""
    return status, {"error": {**_named(refusal), "code": status}}


def minimax_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """An account's errors come with status 200 (QwenLM/qwen-code#8322); a bad request has the status in its
    error (temm1e-labs/temm1e#59, 2026-04-21)."""
    number = 1008 if refusal.code == "insufficient_quota" else _BASE_CODES.get(status)
    if number is not None:
        told = {"status_code": number, "status_msg": refusal.message}
        return 200, {"id": "", "choices": None, "created": 0, "model": "", "object": "", "base_resp": told}
    error = {"type": "bad_request_error", "message": refusal.message, "http_code": str(status)}
    return status, {"type": "error", "error": error, "request_id": "sim"}


def cloudflare_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """Cloudflare's envelope (anomalyco/opencode#30381, 2026-06-02)."""
    code = 5006 if status == 400 else status
    told = {"message": refusal.message, "code": code}
    return status, {"errors": told, "success": False, "result": {}, "messages": []}


def litellm_error(status: int, refusal: Refusal) -> tuple[int, Any]:
    """The status as text (camel-ai/owl#532, 2025-05-14)."""
    return status, {"error": {"message": refusal.message, "type": "None", "param": None, "code": str(status)}}


def bare_message(status: int, refusal: Refusal) -> tuple[int, Any]:
    """Nothing but the message: Bedrock (UKGovernmentBEIS/inspect_ai#3851, 2026-05-06)."""
    return status, {"message": refusal.message}
