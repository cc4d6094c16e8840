"""Triggers: when a history should shrink.

Owns: small callables from `CompactionRequest` to bool. Must never know: how it shrinks.
"""

from __future__ import annotations

from ..values import Value
from .base import CompactionRequest, Trigger

__all__ = ["MessageLimit", "TokenLimit", "all_of", "any_of"]


class MessageLimit(Value, frozen=True):
    """Fires above `max_messages` neutral messages: one per role message, one per tool result."""

    max_messages: int

    def __post_init__(self) -> None:
        _positive("MessageLimit", self.max_messages)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.message_count > self.max_messages


class TokenLimit(Value, frozen=True):
    """Fires above `max_tokens` of history: the last real usage plus an estimate of what changed since."""

    max_tokens: int

    def __post_init__(self) -> None:
        _positive("TokenLimit", self.max_tokens)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.token_count > self.max_tokens


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} takes a positive whole number, got {value!r}")


class _Any(Value, frozen=True):
    triggers: tuple[Trigger, ...]

    def __call__(self, request: CompactionRequest) -> bool:
        return any(trigger(request) for trigger in self.triggers)


class _All(Value, frozen=True):
    triggers: tuple[Trigger, ...]

    def __call__(self, request: CompactionRequest) -> bool:
        return all(trigger(request) for trigger in self.triggers)


def any_of(*triggers: Trigger) -> Trigger:
    """Fires if one of the triggers fires."""
    return _Any(_some(triggers))


def all_of(*triggers: Trigger) -> Trigger:
    """Fires if all of the triggers fire."""
    return _All(_some(triggers))


def _some(triggers: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    if not triggers:
        raise ValueError("name at least one trigger")
    return triggers
