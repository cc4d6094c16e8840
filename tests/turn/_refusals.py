"""What providers are documented to refuse of a request's settings, as a server would see the body.

It is written from the providers' pages, and knows nothing of how the package fits settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

FIVE: Final = ("low", "medium", "high", "xhigh", "max")


class Claude(NamedTuple):
    """A Claude model: what it takes."""

    thinking: tuple[str, ...]
    efforts: tuple[str, ...]
    most: int
    sampling: str = "none"
    forced: bool = True
    always_above_high: bool = False


class GPT(NamedTuple):
    """A model of OpenAI: what it takes."""

    efforts: tuple[str, ...]
    most: int
    sampling: str = "all"
    default: str = ""
    stops: bool = True
    parallel: bool = True
    tools_unreasoned: bool = False


CLAUDES: Final = {
    "claude-opus-5-5": Claude(("adaptive",), FIVE, 128_000, forced=False),
    "claude-fable-5-1": Claude(("adaptive",), FIVE, 128_000, forced=False),
    "claude-sonnet-5-5": Claude(("adaptive", "between_tools"), FIVE, 128_000, forced=False),
    "claude-haiku-5-5": Claude(("adaptive", "disabled"), FIVE, 128_000, always_above_high=True),
    "claude-fable-5": Claude(("adaptive",), FIVE, 128_000),
    "claude-opus-5": Claude(("adaptive", "disabled"), FIVE, 128_000, always_above_high=True),
    "claude-opus-4-8": Claude(("adaptive", "disabled"), FIVE, 128_000),
    "claude-sonnet-5": Claude(("adaptive", "disabled"), FIVE, 128_000),
    "claude-opus-4-6": Claude(
        ("adaptive", "enabled", "disabled"), ("low", "medium", "high", "max"), 128_000, "one"
    ),
    "claude-opus-4-5": Claude(("enabled", "disabled"), ("low", "medium", "high"), 64_000, "one"),
    "claude-haiku-4-5-20251001": Claude(("enabled", "disabled"), (), 64_000, "one"),
    "claude-opus-4-1": Claude(("enabled", "disabled"), (), 32_000, "one"),
    "claude-sonnet-4-0": Claude(("enabled", "disabled"), (), 64_000, "all"),
    "claude-3-haiku-20240307": Claude((), (), 4_096, "all"),
}

GPTS: Final = {
    "gpt-4o": GPT((), 16_384),
    "gpt-4.1-mini": GPT((), 32_768),
    "gpt-5": GPT(("minimal", "low", "medium", "high"), 128_000, "none", stops=False),
    "gpt-5-codex": GPT(("low", "medium", "high"), 128_000, "none", stops=False),
    "gpt-5.1": GPT(("none", "low", "medium", "high"), 128_000, "unreasoned", "none", stops=False),
    "gpt-5.2": GPT(("none", "low", "medium", "high", "xhigh"), 128_000, "unreasoned", "none", stops=False),
    "gpt-5.6-sol": GPT(("none", *FIVE), 128_000, "unreasoned", "medium", tools_unreasoned=True),
    "o3": GPT(("low", "medium", "high"), 100_000, "none", stops=False, parallel=False),
    "o3-mini": GPT(("low", "medium", "high"), 100_000, "none", parallel=False),
    "o4-mini": GPT(("low", "medium", "high"), 100_000, "none", stops=False, parallel=False),
}


def refusals(wire: str, model: str, body: dict[str, Any]) -> list[str]:
    """Why the provider answers 400 to this body; nothing if it does not."""
    if wire == "anthropic":
        return list(_claude(CLAUDES[model], body))
    return list(_gpt(GPTS[model], body, wire == "openai-responses"))


def _claude(known: Claude, body: dict[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    effort = (body.get("output_config") or {}).get("effort")
    kind, budget, limit = thinking.get("type"), thinking.get("budget_tokens"), body["max_tokens"]
    thinks = kind in ("enabled", "adaptive")
    if kind is not None and kind not in known.thinking:
        yield f"thinking.type {kind}"
    if (budget is not None) is not (kind == "enabled"):
        yield "budget_tokens"
    if budget is not None and not 1_024 <= budget < limit:
        yield f"budget_tokens {budget} of {limit}"
    if kind == "disabled" and known.always_above_high and effort in ("xhigh", "max"):
        yield f"disabled at {effort}"
    if effort is not None and effort not in known.efforts:
        yield f"effort {effort}"
    if not 1 <= limit <= known.most:
        yield f"max_tokens {limit}"
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool") and (thinks or not known.forced):
        yield "forced tool"
    warmth, top_p = body.get("temperature"), body.get("top_p")
    if known.sampling == "none" and (warmth is not None or top_p is not None):
        yield "sampling"
    if known.sampling == "one" and warmth is not None and top_p is not None:
        yield "temperature and top_p"
    if warmth is not None and (not 0 <= warmth <= 1 or (thinks and warmth != 1)):
        yield f"temperature {warmth}"
    if top_p is not None and thinks and top_p < 0.95:
        yield f"top_p {top_p}"
    if any(not word.strip() for word in body.get("stop_sequences", ())):
        yield "stop_sequences"


def _gpt(known: GPT, body: dict[str, Any], is_responses: bool) -> Iterator[str]:
    if is_responses:
        effort, limit, least = (body.get("reasoning") or {}).get("effort"), body.get("max_output_tokens"), 16
    else:
        effort, limit, least = body.get("reasoning_effort"), body.get("max_completion_tokens"), 1
    if effort is not None and effort not in known.efforts:
        yield f"effort {effort}"
    if limit is not None and not least <= limit <= known.most:
        yield f"limit {limit}"
    if known.tools_unreasoned and not is_responses and body.get("tools") and effort not in (None, "none"):
        yield "function tools with reasoning_effort"
    reasons = known.sampling == "none" or (
        known.sampling == "unreasoned" and (effort or known.default) != "none"
    )
    plain = {"temperature": 1, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0}
    for name, value in plain.items():
        if reasons and body.get(name, value) != value:
            yield name
    stop = body.get("stop")
    if stop is not None and (not known.stops or (isinstance(stop, list) and len(stop) > 4)):
        yield "stop"
    if "parallel_tool_calls" in body and not known.parallel:
        yield "parallel_tool_calls"
