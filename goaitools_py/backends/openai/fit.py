"""Fits settings that were written for another model to a model of OpenAI, on both of its APIs.

Owns: which kept or handed-on settings its models refuse, and their replacements.
Must never know: a request's bytes, or where a setting was kept.

The facts by model are in `backends.capabilities`. The facts for all models, with their sources:

- "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16" (Responses, 400;
  earendil-works/pi#6265).
- "Up to 4 sequences where the API will stop" (openai 3.54, types/chat/completion_create_params).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..wire.fitting import Fitting, fit_effort, fit_limit, near_effort

__all__ = ["LEAST_ON_RESPONSES", "fit"]

LEAST_ON_RESPONSES: Final = 16
"""The least `max_output_tokens` of the Responses API."""

_MOST_STOPS: Final = 4

_PLAIN: Final[Mapping[str, float]] = {
    "temperature": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
}
"""Sampling settings, and the one value that every model takes."""


def fit(fitting: Fitting, *, least: int = 1, tools_reason: bool = True) -> None:
    """Fit the kept settings.

    Args:
        fitting: The settings; they are changed.
        least: The least output limit of the provider API.
        tools_reason: False on an API where some models use tools only at the effort "none".
    """
    known, model = fitting.known, fitting.model
    if fitting.is_kept("extra_body"):
        _body(fitting)
    fit_effort(fitting)
    fit_limit(fitting, least=least)
    if fitting.has_tools and known.reasons_with_tools is False and not tools_reason:
        fitting.change("reasoning_effort", "none", f"{model} uses tools on this API only without reasoning")
    _sampling(fitting)
    if known.stops is False:
        fitting.drop("stop", f"{model} takes no stop sequences")
    stop = fitting.kept("stop")
    if stop is not None and not isinstance(stop, str) and len(stop) > _MOST_STOPS:
        fitting.settings["stop"] = list(stop)[:_MOST_STOPS]
        fitting.note(f"only the first {_MOST_STOPS} stop sequences are kept: the most that the API takes")
    if known.parallel_switch is False:
        fitting.drop("parallel_tool_calls", f"{model} does not take it")


def _sampling(fitting: Fitting) -> None:
    known, model = fitting.known, fitting.model
    if known.sampling not in ("refused", "unreasoned"):
        return
    effort = fitting.settings.get("reasoning_effort", known.default_effort)
    if known.sampling == "unreasoned":
        if effort == "none":
            return
        given = [name for name in _PLAIN if name in fitting.settings and not fitting.is_kept(name)]
        if given and known.default_effort == "none":
            fitting.drop("reasoning_effort", f"{model} takes {given[0]} only without reasoning")
            return
    for name, plain in _PLAIN.items():
        if fitting.settings.get(name) != plain:
            fitting.drop(name, f"{model} takes none while it reasons")


def _body(fitting: Fitting) -> None:
    """The members of a kept `extra_body` that a model is known to refuse."""
    known, body = fitting.known, dict(fitting.settings["extra_body"])
    if known.sampling == "refused":
        for name in (*_PLAIN, "logprobs", "top_logprobs", "logit_bias"):
            if name in body:
                del body[name]
                fitting.note(f"{name} in extra_body is left out: {fitting.model} takes none")
    if known.stops is False and "stop" in body:
        del body["stop"]
        fitting.note(f"stop in extra_body is left out: {fitting.model} takes no stop sequences")
    reasoning = body.get("reasoning")
    if isinstance(reasoning, Mapping) and (changed := _effort(reasoning, "effort", fitting)) is not None:
        body["reasoning"] = changed
        if not changed:
            del body["reasoning"]
    changed = _effort(body, "reasoning_effort", fitting)
    fitting.settings["extra_body"] = body if changed is None else changed


def _effort(members: Mapping[str, Any], name: str, fitting: Fitting) -> dict[str, Any] | None:
    """The members with an effort that the model takes; None if nothing has to change."""
    word, words = members.get(name), fitting.known.efforts
    if not isinstance(word, str) or words is None or word in words:
        return None
    near = near_effort(word, words)
    fitting.note(f"the effort in extra_body is changed: {fitting.model} does not take that word")
    rest = {key: value for key, value in members.items() if key != name}
    return rest if near is None else {**rest, name: near}
