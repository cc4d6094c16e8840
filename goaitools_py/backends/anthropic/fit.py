"""Fits settings that were written for another model to a Claude model.

Owns: which kept or handed-on settings Claude models refuse, and their replacements.
Must never know: a request's bytes, or where a setting was kept.

The facts by model are in `backends.capabilities`. The facts for all models, with their sources:

- A forced tool, a temperature other than 1 and a `top_p` below 0.95 do not go with thinking
  (platform.claude.com/docs, build-with-claude/extended-thinking, "Feature compatibility").
- A budget is 1,024 tokens or more, and below `max_tokens` (anthropic 2.14,
  types/thinking_config_enabled_param).
- Temperatures end at 1 (anthropic 1.2, types/message_create_params). OpenAI's end at 2.
- "stop_sequences: each stop sequence must contain non-whitespace" (400).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...types.request_parts import ServerThinkingClearing
from ...types.tokens import Frames
from ..capabilities import Capabilities
from ..wire.fitting import Fitting, fit_effort, fit_limit, near_effort

__all__ = [
    "FRAMES",
    "fit",
    "is_claude",
    "take_max_tokens",
    "thinking_member",
    "thinks_manually",
    "unbound_thinking",
]

FRAMES: Final = Frames(
    density=1.25,
    said=4.0,
    result=14.0,
    call=12.0,
    parallel=42.0,
    image=800,
    page=1_600,
    by_tiles=False,
    keeps_reasoning=True,
)
"""A page of a PDF: "1,500-3,000 tokens per page" of text, and the page as a picture
(platform.claude.com/docs/en/build-with-claude/pdf-support); a recorded page of little text was 1,590."""

_LEAST_BUDGET: Final = 1_024
_LEAST_TOP_P: Final = 0.95
_SAMPLING: Final = ("temperature", "top_p")
_ABOVE_HIGH: Final = ("xhigh", "max")


def fit(fitting: Fitting, *, samples: bool) -> None:
    """Fit the kept settings.

    Args:
        fitting: The settings; they are changed.
        samples: True if the host and the version of its API take sampling settings at all.
    """
    thought = _thinks(fitting)
    if fitting.is_kept("extra_body"):
        _body(fitting)
    fit_effort(fitting)
    fit_limit(fitting)
    _tools(fitting)
    _thinking(fitting)
    _sampling(fitting, samples)
    _stops(fitting)
    if thought and not _thinks(fitting):
        _edits(fitting)


def _tools(fitting: Fitting) -> None:
    if fitting.known.forced_tools is False and _forces(fitting):
        fitting.drop("tool_choice", f"{fitting.model} cannot be forced to call a tool")


def _forces(fitting: Fitting) -> bool:
    return fitting.has_tools and fitting.settings.get("tool_choice") not in (None, "auto", "none")


# ------------------------------------------------------------------------------------------ thinking


def _thinking(fitting: Fitting) -> None:
    budget = fitting.settings.get("thinking_budget_tokens")
    if budget is None:
        return
    if not fitting.is_kept("thinking_budget_tokens"):
        _beside_a_given_budget(fitting, budget)
    elif _own_thinking(fitting) is not None:
        fitting.drop("thinking_budget_tokens", "extra_body says how the model thinks")
    elif budget:
        _budget(fitting, budget)
    else:
        _no_thinking(fitting)


def _beside_a_given_budget(fitting: Fitting, budget: int) -> None:
    limit = fitting.kept("max_output_tokens")
    if budget and limit is not None and limit <= budget:
        fitting.drop("max_output_tokens", "it leaves nothing beside the thinking budget")
    if budget and _forces(fitting):
        fitting.drop("tool_choice", "a tool cannot be forced while the model thinks")


def _budget(fitting: Fitting, budget: int) -> None:
    """A kept budget: as it is, as adaptive thinking, or not at all."""
    name, types, model = "thinking_budget_tokens", fitting.known.thinking, fitting.model
    if types is not None and "enabled" not in types:
        if _forces(fitting) or "adaptive" not in types:
            fitting.drop(name, f"{model} takes no thinking budget")
        else:
            _think(fitting, {"type": "adaptive"}, f"{model} takes no budget, and thinks adaptively")
        return
    if _forces(fitting):
        if fitting.is_kept("tool_choice"):
            fitting.drop("tool_choice", "a tool cannot be forced while the model thinks")
        else:
            fitting.drop(name, "the model cannot think while a tool is forced")
            return
    if types is not None and budget < _LEAST_BUDGET:
        fitting.change(name, _LEAST_BUDGET, "the least that the provider API takes")
    limit = fitting.settings.get("max_output_tokens")
    if limit is not None and limit <= fitting.settings[name]:
        fitting.drop(name, f"max_output_tokens={limit} leaves nothing beside it")


def _no_thinking(fitting: Fitting) -> None:
    """A kept budget of 0 switches thinking off, where that is possible."""
    name, types, model = "thinking_budget_tokens", fitting.known.thinking, fitting.model
    if types is None:
        return
    if "disabled" not in types:
        if "between_tools" in types:
            _think(fitting, {"type": "between_tools"}, f"the least that {model} thinks")
        else:
            fitting.drop(name, f"the thinking of {model} takes no switch")
    elif fitting.known.keeps_thinking_above_high and fitting.settings.get("reasoning_effort") in _ABOVE_HIGH:
        why = f"{model} thinks at any effort above 'high'"
        if fitting.is_kept("reasoning_effort"):
            fitting.change("reasoning_effort", "high", why)
        else:
            fitting.drop(name, why)


def _think(fitting: Fitting, thinking: Mapping[str, Any], why: str) -> None:
    """Put a thinking configuration in the budget's place."""
    fitting.drop("thinking_budget_tokens", why)
    body = fitting.settings.get("extra_body", {})
    fitting.settings["extra_body"] = {**body, "thinking": thinking}


def _own_thinking(fitting: Fitting) -> Any:
    return fitting.settings.get("extra_body", {}).get("thinking")


def _thinks(fitting: Fitting) -> bool:
    """True if the settings ask for thinking."""
    own = _own_thinking(fitting)
    if isinstance(own, Mapping):
        return own.get("type") in ("adaptive", "enabled")
    return bool(fitting.settings.get("thinking_budget_tokens"))


# ------------------------------------------------------------------------------------------ the rest


def _sampling(fitting: Fitting, samples: bool) -> None:
    known, model = fitting.known.sampling, fitting.model
    for name in _SAMPLING:
        if known == "refused":
            fitting.drop(name, f"{model} takes no sampling settings")
        elif not samples:
            fitting.drop(name, "this version of the provider API takes no sampling settings")
    warmth = fitting.kept("temperature")
    if warmth is not None and warmth > 1:
        fitting.change("temperature", 1.0, "the most that the provider API takes")
    if _thinks(fitting):
        if fitting.settings.get("temperature") != 1:
            fitting.drop("temperature", "a model that thinks takes none but 1")
        if fitting.settings.get("top_p", 1) < _LEAST_TOP_P:
            fitting.drop("top_p", f"a model that thinks takes none below {_LEAST_TOP_P}")
    if known == "one" and all(name in fitting.settings for name in _SAMPLING):
        fitting.drop(
            "top_p" if fitting.is_kept("top_p") else "temperature",
            f"{model} does not take temperature and top_p together",
        )


def _stops(fitting: Fitting) -> None:
    stop = fitting.kept("stop")
    if stop is None:
        return
    given = [stop] if isinstance(stop, str) else list(stop)
    words = [word for word in given if word.strip()]
    if len(words) == len(given):
        return
    if words:
        fitting.settings["stop"] = words
        fitting.note("a stop sequence of white space is left out: the provider API takes none")
    else:
        fitting.drop("stop", "the provider API takes no stop sequence of white space")


def _body(fitting: Fitting) -> None:
    """The members of a kept `extra_body` that a Claude model is known to refuse."""
    known, body = fitting.known, dict(fitting.settings["extra_body"])
    for name in ("temperature", "top_p", "top_k"):
        if name in body and known.sampling == "refused":
            del body[name]
            fitting.note(f"{name} in extra_body is left out: {fitting.model} takes no sampling settings")
    thinking, config = body.get("thinking"), body.get("output_config")
    if isinstance(thinking, Mapping) and not _is_taken(thinking, known):
        types = known.thinking or ()
        if thinking.get("type") == "enabled" and "adaptive" in types:
            body["thinking"] = {"type": "adaptive"}
            fitting.note(f"thinking in extra_body is now adaptive: {fitting.model} takes no budget")
        else:
            del body["thinking"]
            fitting.note(f"thinking in extra_body is left out: {fitting.model} does not take its type")
    if isinstance(config, Mapping) and isinstance(word := config.get("effort"), str):
        words = known.efforts
        if words is not None and word not in words:
            near = near_effort(word, words)
            rest = {key: value for key, value in config.items() if key != "effort"}
            body["output_config"] = rest if near is None else {**rest, "effort": near}
            if not body["output_config"]:
                del body["output_config"]
            fitting.note(f"the effort in extra_body is changed: {fitting.model} does not take that word")
    fitting.settings["extra_body"] = body


def _edits(fitting: Fitting) -> None:
    """Clearing of thinking is refused where a request asks for no thinking."""
    edits = fitting.kept("context_management") or ()
    left = tuple(one for one in edits if not isinstance(one, ServerThinkingClearing))
    if len(left) < len(edits):
        fitting.settings["context_management"] = left
        fitting.note("the clearing of thinking is left out: thinking is not asked for")


def _is_taken(thinking: Mapping[str, Any], known: Capabilities) -> bool:
    return known.thinking is None or thinking.get("type") in known.thinking


# ------------------------------------------------------------------------------- settings of a request


def thinking_member(budget: int) -> dict[str, Any]:
    """The member for a thinking budget; 0 forbids thinking."""
    return {"type": "enabled", "budget_tokens": budget} if budget else {"type": "disabled"}


def thinks_manually(values: Mapping[str, Any]) -> bool:
    """True if the request gives a budget for thinking."""
    thinking = values.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"


def is_claude(is_own: bool, known: Capabilities) -> bool:
    """True if the request goes to Anthropic's models, judged by the host and the model's name."""
    return is_own or known.binds_thinking is not None


def unbound_thinking(thinking: object, known: Capabilities) -> dict[str, Any] | None:
    """A thinking configuration that lets the server drop blocks; None if the type has no member for it."""
    if known.binds_thinking is False:
        return None
    given = {"type": "adaptive"} if thinking is None else thinking
    if not isinstance(given, Mapping) or given.get("type") not in ("adaptive", "enabled"):
        return None
    own = given.get("block_binding")
    binding = {**(own if isinstance(own, Mapping) else {}), "prefix_mismatch_behavior": "drop_block"}
    return {**given, "block_binding": binding}


def take_max_tokens(values: dict[str, Any], known: Capabilities) -> int:
    """Take the output limit out of the values. The default is the model's, added to a thinking budget."""
    given: int | None = values.pop("max_tokens", None)
    thinking = values.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if not isinstance(budget, int):
        budget = 0
    if given is None:
        default, most = known.default_output_tokens, known.max_output_tokens
        wanted = default if default > budget else budget + default
        return wanted if most is None or most <= budget else min(wanted, most)
    if budget and given <= budget:
        raise ValueError(
            f"max_output_tokens={given} leaves nothing beside the thinking budget of {budget} tokens, "
            "which counts towards it: raise the limit or lower the budget"
        )
    return given
