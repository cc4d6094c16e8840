"""What a caller may ask of a turn: options, model settings, limits, and how they are merged.

Owns: the frozen option values, their defaults and precedence. Must never know: how a turn runs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

from .messages import Message, Part
from .values import Value, field

__all__ = ["UNSET", "ChatOptions", "Limits", "ModelSettings", "Resolved", "Unset"]

T = TypeVar("T")


class Unset:
    """The type of `UNSET`: an option that was not given, which is not the same as None (off)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset()


class ModelSettings(Value, frozen=True, kw_only=True):
    """How the model is asked to answer. Not given: left to the provider. None: switched off again.

    `max_output_tokens` and `thinking_budget_tokens` count tokens. `tool_choice` is "auto", "none",
    "required" or a tool's name and holds for the first model call of a turn. `extra_body` and
    `extra_headers` are merged into the request as they are and never stored.
    """

    unshown = frozenset({"extra_body", "extra_headers"})

    model: str | Unset | None = UNSET
    max_output_tokens: int | Unset | None = UNSET
    temperature: float | Unset | None = UNSET
    top_p: float | Unset | None = UNSET
    reasoning_effort: str | Unset | None = UNSET
    thinking_budget_tokens: int | Unset | None = UNSET
    stop: str | Sequence[str] | Unset | None = UNSET
    seed: int | Unset | None = UNSET
    parallel_tool_calls: bool | Unset | None = UNSET
    tool_choice: str | Unset | None = UNSET
    prompt_cache_key: str | Unset | None = UNSET
    extra_body: Mapping[str, Any] | Unset | None = UNSET
    extra_headers: Mapping[str, str] | Unset | None = UNSET

    def given(self) -> dict[str, Any]:
        """The settings that were given, None included."""
        return {name: value for name in SETTING_NAMES if (value := getattr(self, name)) is not UNSET}


SETTING_NAMES: Final = ModelSettings.__struct_fields__


class Limits(Value, frozen=True, kw_only=True):
    """Ceilings for one turn and for the conversation's whole life. Tokens are input plus output."""

    max_tool_calls: int | None = None
    max_tokens: int | None = None
    conversation_max_tokens: int | None = None


class ChatOptions(Value, frozen=True, kw_only=True):
    """Options of a call, or a chat's defaults. Every field is also a keyword of the chat's methods.

    A field that is UNSET was not given; None switches a default off.
    Precedence: keywords > options > the chat's defaults > what the state keeps (`sticky_settings`).

    Attributes:
        user: Shorthand for one trailing `user(...)`: text, or a list of parts.
        messages: Messages in order. The leading run of system messages is preamble and not stored.
        system: Preamble text: sent first on every call, never stored.
        context: What changes each turn (clock, score, place). Stored with the message, not repeated
            while unchanged.
        tools: What the model may call: functions, `Tool`, or `ProviderTool`.
        deps: Handed to tools as ``ctx.deps``; never stored.
        settings: `ModelSettings`, merged field by field.
        sticky_settings: True: reasoning, output limit and sampling of earlier turns hold until overridden.
        compactor: When and how the history shrinks. None: only when the provider or a limit refuses it.
        max_iterations: Model calls with tools in one turn.
        limits: `Limits` for the turn and the conversation.
        on_limit: At a turn's limit: "answer" asks once more without tools, "raise" raises.
        timeout: Seconds for the whole turn, None for no deadline.
        tool_timeout: Seconds for one tool call.
        tool_concurrency: How many tools run at the same time, where they run in threads or tasks.
        tool_threads: True: sync tools run in worker threads. Default: False on Chat, True on AsyncChat.
        tool_errors: "to_model" tells the model; "raise" ends the turn after the other tools have run.
        conversation_id: Part of every idempotency key; fixed at the first turn.
        on_event: Called with every event; what it raises is logged, never propagated.
        on_checkpoint: Called with a resumable blob after each reply and around each tool.
        on_bad_state: "fresh", "raise" or None (damaged or foreign: fresh; newer or unauthentic: raise).
        binding: For sealed codecs: what the blob belongs to.
        metadata: Stored with the turn.
    """

    unshown = frozenset({"user", "messages", "system", "context", "deps", "binding", "metadata"})

    user: str | Sequence[Part | str] | Unset | None = UNSET
    messages: Sequence[Message] | Unset | None = UNSET
    system: str | Unset | None = UNSET
    context: str | Unset | None = UNSET
    tools: Sequence[Any] | Unset | None = UNSET
    deps: Any = UNSET
    settings: ModelSettings | Unset | None = UNSET
    sticky_settings: bool | Unset = UNSET
    compactor: Any = UNSET
    max_iterations: int | Unset = UNSET
    limits: Limits | Unset | None = UNSET
    on_limit: Literal["answer", "raise"] | Unset = UNSET
    timeout: float | Unset | None = UNSET
    tool_timeout: float | Unset | None = UNSET
    tool_concurrency: int | Unset = UNSET
    tool_threads: bool | Unset = UNSET
    tool_errors: Literal["to_model", "raise"] | Unset = UNSET
    conversation_id: str | Unset | None = UNSET
    on_event: Callable[[Any], object] | Unset | None = UNSET
    on_checkpoint: Callable[[bytes], object] | Unset | None = UNSET
    on_bad_state: Literal["fresh", "raise"] | Unset | None = UNSET
    binding: Any = UNSET
    metadata: Mapping[str, str] | Unset | None = UNSET

    def given(self) -> dict[str, Any]:
        """The options that were given, None included."""
        return {name: value for name in OPTION_NAMES if (value := getattr(self, name)) is not UNSET}


OPTION_NAMES: Final = ChatOptions.__struct_fields__
_OPTION_SET: Final = frozenset(OPTION_NAMES)
PER_TURN: Final = frozenset({"user", "messages", "conversation_id", "metadata"})


class Resolved(Value, frozen=True, kw_only=True):
    """Options after merging: every field has a value, `settings` holds only what was given."""

    unshown = frozenset({"user", "system", "context", "deps", "settings", "binding", "metadata", "messages"})

    user: str | Sequence[Part | str] | None = None
    messages: Sequence[Message] | None = ()
    system: str | None = None
    context: str | None = None
    tools: Sequence[Any] | None = ()
    deps: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    sticky_settings: bool = False
    compactor: Any = None
    max_iterations: int = 10
    limits: Limits | None = None
    on_limit: Literal["answer", "raise"] = "answer"
    timeout: float | None = 300.0
    tool_timeout: float | None = 60.0
    tool_concurrency: int = 8
    tool_threads: bool = False
    tool_errors: Literal["to_model", "raise"] = "to_model"
    conversation_id: str | None = None
    on_event: Callable[[Any], object] | None = None
    on_checkpoint: Callable[[bytes], object] | None = None
    on_bad_state: Literal["fresh", "raise"] | None = None
    binding: Any = None
    metadata: Mapping[str, str] | None = None


def given_options(options: ChatOptions | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What a call gave: its `ChatOptions`, overridden by its keywords. TypeError for an unknown option."""
    if options is not None and not isinstance(options, ChatOptions):
        raise TypeError(
            f"options must be ChatOptions, not {type(options).__name__}; pass single ones by name"
        )
    given = options.given() if options is not None else {}
    settings = given.get("settings")
    for name, value in keywords.items():
        if name not in _OPTION_SET:
            raise TypeError(_unknown(name))
        if value is UNSET:
            continue
        if name == "settings" and settings is not None and value is not None:
            value = ModelSettings(**{**_settings(settings), **_settings(value)})
        given[name] = value
    return given


_LATER: Final = frozenset({"turn_id", "on_pending", "output_type"})


def _unknown(name: str) -> str:
    if name in _LATER:
        return f"the option {name!r} comes with a later release; this one does not have it"
    close = difflib.get_close_matches(name, OPTION_NAMES + SETTING_NAMES, n=1)
    if name in SETTING_NAMES:
        return f"unknown option {name!r}: it is a model setting; pass settings=ModelSettings({name}=…)"
    hint = f"; did you mean {close[0]!r}?" if close else f"; the options are {', '.join(OPTION_NAMES)}"
    return f"unknown option {name!r}{hint}"


def _settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, ModelSettings):
        raise TypeError(f"settings must be ModelSettings, not {type(value).__name__}")
    return value.given()


_POSITIVE = ("max_iterations", "tool_concurrency", "timeout", "tool_timeout")
_CHOICES: Final[dict[str, tuple[Any, ...]]] = {
    "on_limit": ("answer", "raise"),
    "tool_errors": ("to_model", "raise"),
    "on_bad_state": ("fresh", "raise", None),
}


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse values that no turn could use, before anything is called."""
    for name in _POSITIVE:
        value = given.get(name)
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise ValueError(f"{name} must be a positive number, got {value!r}")
    metadata = given.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, Mapping)
        and all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items())
    ):
        raise TypeError("metadata must map text to text; it is stored with the turn")
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            expected = ", ".join(repr(choice) for choice in choices)
            raise ValueError(f"{name} must be one of {expected}; got {given[name]!r}")


def check_defaults(given: Mapping[str, Any]) -> None:
    """Refuse options that belong to one turn as a chat's defaults."""
    for name in given:
        if name in PER_TURN:
            raise TypeError(
                f"{name!r} belongs to one turn and cannot be a chat's default; pass it to the call"
            )
    check_options(given)


def resolve(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Resolved:
    """Merge a call's options over a chat's defaults; `settings` field by field."""
    check_options(given)
    merged = {**defaults, **given} if given else dict(defaults)
    base, own = defaults.get("settings"), given.get("settings")
    if base is None or ("settings" in given and own is None):
        merged["settings"] = _settings(own) if own is not None else {}
    elif own is None:
        merged["settings"] = _settings(base)
    else:
        merged["settings"] = {**_settings(base), **_settings(own)}
    return Resolved(**merged)
