"""Triggers: when a history should shrink.

Owns: small callables from `CompactionRequest` to bool. Must never know: how it shrinks.

A trigger is asked before every request of a turn and once after the turn, so it should cost little.
Choose a trigger that fires rarely, with a strategy that cuts deeply: after each cut the prefix is new, and
the provider's prompt cache does not have it.
"""

from __future__ import annotations

from .base import CompactionRequest, OwnTrigger, Trigger, check_trigger

__all__ = [
    "ByteLimit",
    "ColdCache",
    "MessageLimit",
    "PendingLimit",
    "TokenLimit",
    "TurnLimit",
    "all_of",
    "any_of",
]


class MessageLimit(OwnTrigger, frozen=True):
    """Fires above `max_messages` neutral messages: one per role message, one per tool result."""

    max_messages: int

    def __post_init__(self) -> None:
        _positive("MessageLimit", self.max_messages)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.message_count > self.max_messages


class TokenLimit(OwnTrigger, frozen=True):
    """Fires above `max_tokens`: the last request's real usage, plus an estimate of the changes since."""

    max_tokens: int

    def __post_init__(self) -> None:
        _positive("TokenLimit", self.max_tokens)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.token_count > self.max_tokens

    @property
    def token_limit(self) -> int:
        """The limit, for values that are a part of it."""
        return self.max_tokens


class ByteLimit(OwnTrigger, frozen=True):
    """Fires if the state, encoded as a blob, has more than `max_bytes`.

    The state is encoded for the check only if the last blob and the new messages together could exceed the
    limit.
    """

    max_bytes: int

    def __post_init__(self) -> None:
        _positive("ByteLimit", self.max_bytes)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.most_blob_bytes > self.max_bytes and request.blob_bytes > self.max_bytes


class TurnLimit(OwnTrigger, frozen=True):
    """Fires above `max_turns` closed turns. A turn is the user's input with its replies and tool results."""

    max_turns: int

    def __post_init__(self) -> None:
        _positive("TurnLimit", self.max_turns)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.turn_count > self.max_turns


class PendingLimit(OwnTrigger, frozen=True):
    """Fires above `max_messages` messages that were appended or just said and that no model has seen."""

    max_messages: int

    def __post_init__(self) -> None:
        _positive("PendingLimit", self.max_messages)

    def __call__(self, request: CompactionRequest) -> bool:
        return request.pending_count > self.max_messages


class ColdCache(OwnTrigger, frozen=True):
    """Fires when the conversation was silent for longer than `ChatOptions.cold_after`.

    The provider's cache has then expired, so a cut costs no cached tokens:
    ``first_of(Compactor(all_of(ColdCache(), TokenLimit(4_000)), KeepRecentTurns(3)), usual)``.
    """

    def __call__(self, request: CompactionRequest) -> bool:
        return request.is_cold


def _positive(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} takes a positive whole number, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} takes a positive whole number, got {value}")


class _Any(OwnTrigger, frozen=True):
    triggers: tuple[Trigger, ...]

    def __call__(self, request: CompactionRequest) -> bool:
        return any(trigger(request) for trigger in self.triggers)

    @property
    def token_limit(self) -> int | None:
        """The least limit of tokens among the triggers; None without one."""
        return _least_token_limit(self.triggers)


class _All(OwnTrigger, frozen=True):
    triggers: tuple[Trigger, ...]

    def __call__(self, request: CompactionRequest) -> bool:
        return all(trigger(request) for trigger in self.triggers)

    @property
    def token_limit(self) -> int | None:
        """The least limit of tokens among the triggers; None without one."""
        return _least_token_limit(self.triggers)


def _least_token_limit(triggers: tuple[Trigger, ...]) -> int | None:
    limits = [getattr(trigger, "token_limit", None) for trigger in triggers]
    return min((limit for limit in limits if limit is not None), default=None)


def any_of(*triggers: Trigger) -> Trigger:
    """Fire if at least one of the triggers fires."""
    return _Any(_some(triggers))


def all_of(*triggers: Trigger) -> Trigger:
    """Fire if all of the triggers fire."""
    return _All(_some(triggers))


def _some(triggers: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    if not triggers:
        raise ValueError("name at least one trigger")
    for trigger in triggers:
        check_trigger(trigger)
    return triggers
