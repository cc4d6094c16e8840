"""Fits settings that were written for another model, so that no provider refuses them.

Owns: the removal of settings that do not fit the model of a turn, and the newest answers. Must never know:
which settings a model refuses.

Settings for another model come from three places. The state keeps a setting (`sticky_settings`). A fallback
gets the settings of the chat's own model. A call names another model but takes the chat's default settings. A
setting that the caller writes for the model itself is sent unchanged, and the provider's error is the answer.

The dialect is asked by writing a request for each setting. With six kept settings that took half as long as
the rest of a turn. The answer depends on the arguments alone, and so it is kept for the next turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..backends.base import Dialect, RequestParts
from ..backends.protocols import FitsSettings, Fitted
from ..tools import Tool

__all__ = ["fit_settings"]

_MOST_JUDGEMENTS: Final = 64
_LONGEST: Final = 1024
"""Characters. A setting with a longer text is judged each time."""
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})

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
    key = _key(dialect, given, kept, model, tools)
    if key is None:
        return _fitted(dialect, given, kept, model=model, tools=tools)
    answer = _judgements.get(key)
    if answer is None:
        answer = _Judgement(dialect, _fitted(dialect, given, kept, model=model, tools=tools))
        while len(_judgements) >= _MOST_JUDGEMENTS:
            _judgements.pop(next(iter(_judgements), key), None)  # another thread may have been here first
        _judgements[key] = answer
    return answer.fitted


class _Judgement(NamedTuple):
    """`dialect` keeps the object alive, so that Python does not reuse its id, which is in the key."""

    dialect: Dialect
    fitted: Fitted


_judgements: dict[tuple[object, ...], _Judgement] = {}


def _key(
    dialect: Dialect, given: Mapping[str, Any], kept: Mapping[str, Any], model: str, tools: Sequence[Any]
) -> tuple[object, ...] | None:
    """Everything that an answer depends on; None if a setting has a value that could change in place."""
    # The texts of the values: 1, 1.0 and True are equal, and are written in different ways.
    rows = []
    for settings in (given, kept):
        for name, value in settings.items():
            if type(value) not in _SCALARS or (type(value) is str and len(value) > _LONGEST):
                return None
            rows.append((name, repr(value)))
    names: tuple[str | None, ...] = ()
    if "tool_choice" in kept:
        names = tuple([tool.name if isinstance(tool, Tool) else None for tool in tools])
    return (id(dialect), model, bool(tools), names, len(given), *rows)


def _fitted(
    dialect: Dialect, given: Mapping[str, Any], kept: Mapping[str, Any], *, model: str, tools: Sequence[Any]
) -> Fitted:
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
