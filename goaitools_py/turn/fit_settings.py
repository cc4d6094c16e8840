"""Fits settings that were written for another model, so that no provider refuses them.

Owns: the removal of settings that do not fit the model of a turn. Must never know: which settings a model
refuses.

Settings for another model come from three places. The state keeps a setting (`sticky_settings`). A fallback
gets the settings of the chat's own model. A call names another model but takes the chat's default settings. A
setting that the caller writes for the model itself is sent unchanged, and the provider's error is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..backends.base import Dialect, RequestParts
from ..backends.protocols import FitsSettings, Fitted
from ..tools import Tool

__all__ = ["fit_settings"]

_HEADERS: Final = "extra_headers"
_ANY_TOOL: Final = frozenset({"auto", "none", "required"})


def fit_settings(
    dialect: Dialect, given: Mapping[str, Any], kept: Mapping[str, Any], *, model: str, tools: Sequence[Any]
) -> Fitted:
    """The given settings, and the kept settings without those that the model is known to refuse.

    Args:
        dialect: The provider API.
        given: The settings that the caller wrote for this model.
        kept: The settings for another model, or for an earlier turn. No name is in both.
        model: The model of the request.
        tools: The tools of the turn.
    """
    notes: list[str] = []
    left: dict[str, Any] = {}
    # With the headers: a beta header may be what makes a setting acceptable.
    headers = {name: found[name] for found in (kept, given) for name in (_HEADERS,) if name in found}
    for name, value in kept.items():
        if not _is_sendable(dialect, model, {**headers, name: value}):
            notes.append(f"{name} is left out: the provider API {dialect.wire!r} does not take it here")
        elif name == "tool_choice" and not _is_there(value, tools):
            notes.append("tool_choice is left out: it names a tool that is not there")
        else:
            left[name] = value
    found = Fitted({**left, **given})
    if isinstance(dialect, FitsSettings):
        found = dialect.fitted(given, left, model=model, has_tools=bool(tools))
        notes += found.notes
    if left and not _is_sendable(dialect, model, found.settings) and _is_sendable(dialect, model, given):
        found = Fitted(given)
        notes = [*notes, f"{', '.join(left)} are left out: they do not go with the turn's own settings"]
    return Fitted(found.settings, tuple(notes))


def _is_sendable(dialect: Dialect, model: str, settings: Mapping[str, Any]) -> bool:
    """True if the provider API can write these settings into a request."""
    try:
        dialect.request(RequestParts(model=model, history=(), settings=settings))
    except (TypeError, ValueError):
        return False
    return True


def _is_there(choice: Any, tools: Sequence[Any]) -> bool:
    """True if a model can follow a `tool_choice`. A provider's own tool may have any name."""
    if choice in _ANY_TOOL or not tools:
        return True
    return any(not isinstance(tool, Tool) or tool.name == choice for tool in tools)
