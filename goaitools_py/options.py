"""What a caller may ask of a turn: options, model settings, limits, and how they are merged.

Owns: the frozen option values, their checks, defaults and precedence. Must never know: how a turn runs.

A value that no turn could use is refused before anything is called; the text names its type, never
its content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from .context_management import ContextEdit, check_edits
from .messages import Message, Part
from .values import Value, field

if TYPE_CHECKING:
    from .prices import Prices
    from .tokens import TokenCounter

__all__ = ["UNSET", "ChatOptions", "Limits", "ModelSettings", "Resolved", "Unset"]

T = TypeVar("T")

Said: TypeAlias = str | Part | Sequence[Part | str]
"""What a user says: text, a part, or a list of them."""


class Unset:
    """The type of `UNSET`: an option that was not given, which is not the same as None (off)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSET"  # copies of options, here or in another process, hold this very object


UNSET: Final = Unset()


# ---------------------------------------------------------------------------- what a value has to be

_Check: TypeAlias = Callable[[str, Any], None]
"""Raises TypeError or ValueError if the option of this name cannot have this value."""

MAX_ID_CHARACTERS: Final = 256
"""The longest `conversation_id` and model name: a state keeps them."""

MIN_RESULT_BYTES: Final = 256
"""A tool result of fewer bytes would hold little beside the note about what was cut off."""

MAX_SECONDS: Final = 2_147_483
"""The longest timeout, almost 25 days: a socket counts milliseconds in 31 bits."""


def _not(name: str, value: Any, expected: str, advice: str = "") -> TypeError:
    found = "None" if value is None else type(value).__name__
    return TypeError(f"{name} must be {expected}, not {found}{advice and '; '}{advice}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _is_utf8(text: str) -> bool:
    with suppress(UnicodeEncodeError):  # it holds the text: nothing must be raised while it is handled
        text.encode()
        return True
    return False


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _not(name, value, "str")


def _kept_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _not(name, value, "str", f"pass {name}=str(…)")
    if len(value) > MAX_ID_CHARACTERS:
        raise ValueError(f"{name} must have at most {MAX_ID_CHARACTERS} characters, got {len(value)}")
    _encodable(name, value)


def _telling_text(name: str, value: Any) -> None:
    _kept_text(name, value)
    if not value:
        raise ValueError(
            f"{name} is empty, so that every turn would be taken for the same; pass None for none"
        )


def _encodable(name: str, text: str) -> None:
    if not _is_utf8(text):
        raise ValueError(f"{name} holds a lone surrogate, which UTF-8 cannot write; put U+FFFD in its place")


def _texts(name: str, value: Any) -> None:
    if not isinstance(value, str) and not _is_list(value):
        raise _not(name, value, "str or a list of str")
    for item in value:
        if not isinstance(item, str):
            raise _not(f"each item of {name}", item, "str")


def _text_map(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _not(name, value, "a dict that maps text to text")
    for text in (*value.keys(), *value.values()):
        if not isinstance(text, str):
            raise _not(f"each key and value of {name}", text, "str")
        _encodable(name, text)


def _headers(name: str, value: Any) -> None:
    _text_map(name, value)
    if not all(text.isascii() and text.isprintable() for text in (*value.keys(), *value.values())):
        raise ValueError(f"{name} must hold printable ASCII, as HTTP headers do; encode what is not")


def _mapping(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _not(name, value, "a dict")


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise _not(name, value, "True or False")


def _whole(name: str, value: Any) -> None:
    if not _is_whole(value):
        raise _not(name, value, "an int")


def _positive(name: str, value: Any) -> None:
    if not _is_whole(value):
        raise _not(name, value, "a positive int")
    if value < 1:
        raise ValueError(f"{name} must be a positive int, got {value}")


def _result_bytes(name: str, value: Any) -> None:
    _positive(name, value)
    if value < MIN_RESULT_BYTES:
        raise ValueError(f"{name} must be at least {MIN_RESULT_BYTES}, got {value}")


def _finite(name: str, value: Any) -> None:
    if not _is_number(value):
        raise _not(name, value, "a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}; leave it out for the default")


def _seconds(name: str, value: Any) -> None:
    if not _is_number(value):
        raise _not(name, value, "a positive number of seconds", "pass None for no limit")
    if not value > 0:  # NaN is not greater than anything
        raise ValueError(f"{name} must be a positive number of seconds, got {value}; pass None for no limit")
    if value > MAX_SECONDS:
        raise ValueError(f"{name} must be at most {MAX_SECONDS} seconds; pass None for no limit")


def _list(name: str, value: Any) -> None:
    if not _is_list(value):
        raise _not(name, value, "a list or tuple", f"pass {name}=[…]")


def _callback(name: str, value: Any) -> None:
    if not callable(value):
        raise _not(name, value, "a function of one argument", "pass None to leave it out")


def _compactor(name: str, value: Any) -> None:
    if isinstance(value, type) or not callable(getattr(value, "plan", None)):
        raise _not(name, value, "a Compactor", "pass Compactor(trigger, strategy)")


def _counter(name: str, value: Any) -> None:
    if isinstance(value, type) or not callable(getattr(value, "count", None)):
        raise _not(name, value, "a TokenCounter", "pass an object with count(message) -> int")


def _marks(name: str, value: Any) -> None:
    _list(name, value)
    for mark in value:
        _finite(f"each of {name}", mark)
    if any(not 0 < mark <= 1 for mark in value) or list(value) != sorted(set(value)):
        raise ValueError(f"{name} must be rising parts of the context window, such as (0.7, 0.9)")


def _dollars(name: str, value: Any) -> None:
    if not isinstance(value, Decimal):
        _finite(name, value)
    if not math.isfinite(value) or not value > 0:
        raise ValueError(f"{name} must be a positive number of US dollars, got {value}")


def _or_none(check: _Check) -> _Check:
    def check_unless_none(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return check_unless_none


def _one_of(*choices: str | None) -> _Check:
    expected = ", ".join(map(repr, choices))

    def check(name: str, value: Any) -> None:
        if value not in choices:
            found = repr(value[:20]) if isinstance(value, str) else type(value).__name__
            raise ValueError(f"{name} must be one of {expected}; got {found}")

    return check


# ------------------------------------------------------------------------------------- the values


class ModelSettings(Value, frozen=True, kw_only=True):
    """How the model is asked to answer. Not given: left to the provider. None: switched off again.

    `max_output_tokens` and `thinking_budget_tokens` count tokens. `tool_choice` is "auto", "none",
    "required" or a tool's name and holds for the first model call of a turn. `extra_body` and
    `extra_headers` are merged into the request as they are and never stored. `context_management` is what
    the provider does with the context by itself: `ServerCompaction`, `ServerToolClearing`,
    `ServerThinkingClearing`. It wins over what a compactor's `ProviderCompaction` asks for; None asks for
    nothing.

    Raises:
        TypeError: A value is of a type that no wire takes.
        ValueError: A number that JSON lacks, a header that HTTP lacks, or a model name of no use.
    """

    unshown = frozenset({"stop", "prompt_cache_key", "extra_body", "extra_headers"})

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
    context_management: Sequence[ContextEdit] | Unset | None = UNSET

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if value is not None:
                _SETTING_CHECKS[name](name, value)

    def given(self) -> dict[str, Any]:
        """The settings that were given, None included."""
        return {name: value for name in SETTING_NAMES if (value := getattr(self, name)) is not UNSET}


SETTING_NAMES: Final = ModelSettings.__struct_fields__
_SETTING_CHECKS: Final[Mapping[str, _Check]] = {
    "model": _kept_text,
    "max_output_tokens": _whole,
    "temperature": _finite,
    "top_p": _finite,
    "reasoning_effort": _text,
    "thinking_budget_tokens": _whole,
    "stop": _texts,
    "seed": _whole,
    "parallel_tool_calls": _flag,
    "tool_choice": _text,
    "prompt_cache_key": _text,
    "extra_body": _mapping,
    "extra_headers": _headers,
    "context_management": check_edits,
}


class Limits(Value, frozen=True, kw_only=True):
    """Ceilings for one turn and for the conversation's whole life. Tokens are input plus output. A turn that
    is resumed has what it had left: its calls of before count, their costs at today's price.

    Costs are in US dollars, by the chat's `prices`, or by genai-prices where the extra ``[prices]`` is
    installed. With a ceiling on costs, a price that nobody knows is a `BudgetExceededError` before the first
    call; so is a conversation with earlier calls of unknown price, if its whole life has the ceiling.

    Raises:
        TypeError: A ceiling is neither a number nor None; one on calls or tokens is not whole.
        ValueError: A ceiling on calls or tokens is below 1, one on costs is not above 0.
    """

    max_tool_calls: int | None = None
    max_tokens: int | None = None
    conversation_max_tokens: int | None = None
    max_cost_usd: Decimal | float | None = None
    conversation_max_cost_usd: Decimal | float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if (value := getattr(self, name)) is not None:
                (_dollars if name.endswith("_usd") else _positive)(name, value)

    @property
    def limits_cost(self) -> bool:
        """True if there is a ceiling on costs."""
        return self.max_cost_usd is not None or self.conversation_max_cost_usd is not None


class ChatOptions(Value, frozen=True, kw_only=True):
    """Options of a call, or a chat's defaults. Every field is also a keyword of the chat's methods.

    A field that is UNSET was not given; None switches a default off.
    Precedence: keywords > options > the chat's defaults > what the state keeps (`sticky_settings`).

    Attributes:
        user: Shorthand for one trailing `user(...)`: text, a part, or a list of them.
        messages: Messages in order. The leading run of system messages is preamble and not stored.
        system: Preamble text: sent first on every call, never stored.
        context: What changes each turn (clock, score, place). Stored with the message, not repeated
            while unchanged.
        tools: What the model may call: functions, `Tool`, or `ProviderTool`.
        deps: Handed to tools as ``ctx.deps``; never stored. TypeError before anything is sent if a tool wants
            ``ToolContext[X]`` and there are none.
        settings: `ModelSettings`, merged field by field.
        sticky_settings: True: reasoning, output limit and sampling of earlier turns hold until overridden.
        compactor: When and how the history shrinks. None: only when the provider or a limit refuses it.
        cold_after: Seconds of silence after which the provider's prompt cache is taken for gone. After such
            a pause a turn's first request sets no cache marks, which cost and would not be read, and
            `CompactionRequest.is_cold` is true. None: never.
        token_counter: A `TokenCounter` for what no usage has counted yet. None: `TokenEstimate`. What it
            says is calibrated against the real usages of the conversation all the same.
        context_marks: Parts of the model's context window, and of the state's limits on bytes and entries;
            the first turn to end beyond one says so, with a `ContextWarning` and in the result's warnings.
        prices: What model calls cost: a function from `Charge` to Decimal, or to None for what it does not
            know. It keeps the conversation's total. None: `ChatResult.cost_usd` asks genai-prices, if that
            is installed, and no total is kept.
        max_iterations: Model calls with tools in one turn, those of before a `resume` included.
        limits: `Limits` for the turn and the conversation.
        on_limit: At a turn's limit: "answer" asks once more without tools, "raise" raises.
        timeout: Seconds for the whole turn, None for no deadline; a `resume` has as many again. On `Chat` a
            tool or a callback that runs in the caller's thread is not cut short.
        call_timeout: Seconds for one model call, its body included; a compactor's own questions too. A call
            that takes longer is tried again like one that failed, while the turn has time and nothing of the
            reply was shown.
        first_delta_timeout: Seconds until a streamed reply has begun, with text, reasoning or a call; pings
            do not count. What takes longer is tried again. A reply that is not streamed has no first delta.
        tool_timeout: Seconds for one tool call.
        tool_concurrency: How many tools run at the same time, where they run in threads or tasks.
        tool_threads: True: sync tools run in worker threads. Default: False on Chat, True on AsyncChat.
        max_tool_result_bytes: Bytes of text (UTF-8) of one tool result; what is beyond is cut off, with a
            note for the model. At least 256. Default: 262,144.
        tool_errors: "to_model" tells the model; "raise" ends the turn after the other tools have run.
        turn_id: The caller's id of this turn, such as a webhook's message id. The same id again, with the
            same messages: the stored reply if the turn is finished, else the turn goes on, or is answered
            now if a newer message closed it without a reply; see docs/turns.md.
        on_pending: What a new message does on a state that waits for answers: "raise", "deny" what waits,
            or "queue" the message until the `resume`.
        conversation_id: Part of every idempotency key; kept with the state until another one is given.
        on_event: Called with every event; what it raises is logged, never propagated.
        on_checkpoint: Called with a resumable blob after each reply and around each tool; the last one is the
            result's.
        on_bad_state: What a turn does with a state that cannot be read: "fresh", "raise", or None: begin a
            fresh conversation in place of a damaged one, and raise for a newer or unauthentic one. What is
            replaced is in `ChatResult.discarded`.
        on_foreign_state: What a turn does with a state of another provider API, which is whole: "raise", or
            "fresh" to begin a fresh conversation in its place.
        binding: For sealed codecs: what the blob belongs to, such as ``{"user": "ada"}``, or `UNBOUND`.
        min_revision: Refuse a state older than this (`StateInfo.revision` of what was saved last), and none
            at all; a fresh conversation has revision 1 after its first turn.
        metadata: Stored with the turn, also with one whose first request fails; a `resume` adds its own.
    """

    unshown = frozenset({"user", "messages", "system", "context", "deps", "binding", "metadata"})

    user: Said | Unset | None = UNSET
    messages: Sequence[Message] | Unset | None = UNSET
    system: str | Unset | None = UNSET
    context: str | Unset | None = UNSET
    tools: Sequence[Any] | Unset | None = UNSET
    deps: Any = UNSET
    settings: ModelSettings | Unset | None = UNSET
    sticky_settings: bool | Unset = UNSET
    compactor: Any = UNSET
    cold_after: float | Unset | None = UNSET
    token_counter: TokenCounter | Unset | None = UNSET
    context_marks: Sequence[float] | Unset = UNSET
    prices: Prices | Unset | None = UNSET
    max_iterations: int | Unset = UNSET
    limits: Limits | Unset | None = UNSET
    on_limit: Literal["answer", "raise"] | Unset = UNSET
    timeout: float | Unset | None = UNSET
    call_timeout: float | Unset | None = UNSET
    first_delta_timeout: float | Unset | None = UNSET
    tool_timeout: float | Unset | None = UNSET
    tool_concurrency: int | Unset = UNSET
    tool_threads: bool | Unset = UNSET
    max_tool_result_bytes: int | Unset = UNSET
    tool_errors: Literal["to_model", "raise"] | Unset = UNSET
    turn_id: str | Unset | None = UNSET
    on_pending: Literal["raise", "deny", "queue"] | Unset = UNSET
    conversation_id: str | Unset | None = UNSET
    on_event: Callable[[Any], object] | Unset | None = UNSET
    on_checkpoint: Callable[[bytes], object] | Unset | None = UNSET
    on_bad_state: Literal["fresh", "raise"] | Unset | None = UNSET
    on_foreign_state: Literal["raise", "fresh"] | Unset = UNSET
    binding: Any = UNSET
    metadata: Mapping[str, str] | Unset | None = UNSET
    min_revision: int | Unset | None = UNSET

    def given(self) -> dict[str, Any]:
        """The options that were given, None included."""
        return {name: value for name in OPTION_NAMES if (value := getattr(self, name)) is not UNSET}


OPTION_NAMES: Final = ChatOptions.__struct_fields__
_OPTION_SET: Final = frozenset(OPTION_NAMES)
PER_TURN: Final = frozenset({"user", "messages", "turn_id", "conversation_id", "metadata", "min_revision"})


class Resolved(Value, frozen=True, kw_only=True):
    """Options after merging: every field has a value, `settings` holds only what was given."""

    unshown = frozenset({"user", "system", "context", "deps", "settings", "binding", "metadata", "messages"})

    user: Said | None = None
    messages: Sequence[Message] | None = ()
    system: str | None = None
    context: str | None = None
    tools: Sequence[Any] | None = ()
    deps: Any = None
    settings: dict[str, Any] = field(default_factory=dict)
    sticky_settings: bool = False
    compactor: Any = None
    cold_after: float | None = None
    token_counter: TokenCounter | None = None
    context_marks: Sequence[float] = (0.7, 0.9)
    prices: Prices | None = None
    max_iterations: int = 10
    limits: Limits | None = None
    on_limit: Literal["answer", "raise"] = "answer"
    timeout: float | None = 300.0
    call_timeout: float | None = None
    first_delta_timeout: float | None = None
    tool_timeout: float | None = 60.0
    tool_concurrency: int = 8
    tool_threads: bool = False
    max_tool_result_bytes: int = 256 * 1024
    tool_errors: Literal["to_model", "raise"] = "to_model"
    turn_id: str | None = None
    on_pending: Literal["raise", "deny", "queue"] = "raise"
    conversation_id: str | None = None
    on_event: Callable[[Any], object] | None = None
    on_checkpoint: Callable[[bytes], object] | None = None
    on_bad_state: Literal["fresh", "raise"] | None = None
    on_foreign_state: Literal["raise", "fresh"] = "raise"
    binding: Any = None
    metadata: Mapping[str, str] | None = None
    min_revision: int | None = None


def given_options(options: ChatOptions | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What a call gave: its `ChatOptions`, overridden by its keywords. TypeError for an unknown option."""
    if options is not None and not isinstance(options, ChatOptions):
        advice = "pass text as user=…" if isinstance(options, str) else "pass single ones by name"
        raise TypeError(f"options must be ChatOptions, not {type(options).__name__}; {advice}")
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


_LATER: Final = frozenset({"output_type"})
_SAID: Final = "what the user says is user=…"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "stream": "streaming is a method, start(…) in place of chat(…), which takes the same options",
    "message": _SAID,
    "prompt": _SAID,
    "input": _SAID,
    "history": "what was said before is the state of the last turn, or messages=[…]",
}
"""Names from other libraries, and where it is here what they mean."""


def _unknown(name: str) -> str:
    if name in _LATER:
        return f"the option {name!r} comes with a later release; this one does not have it"
    if name in _ELSEWHERE:
        return f"unknown option {name!r}; {_ELSEWHERE[name]}"
    import difflib  # only a mistake needs it

    if name in SETTING_NAMES:
        return f"unknown option {name!r}: it is a model setting; pass settings=ModelSettings({name}=…)"
    close = difflib.get_close_matches(name, OPTION_NAMES + SETTING_NAMES, n=1)
    if not close:
        return f"unknown option {name!r}; the options are {', '.join(OPTION_NAMES)}"
    meant = f"settings=ModelSettings({close[0]}=…)" if close[0] in SETTING_NAMES else repr(close[0])
    return f"unknown option {name!r}; did you mean {meant}?"


def _is_settings(name: str, value: Any) -> None:
    if not isinstance(value, ModelSettings):
        raise _not(name, value, "ModelSettings", "pass ModelSettings(temperature=…)")


def _is_limits(name: str, value: Any) -> None:
    if not isinstance(value, Limits):
        raise _not(name, value, "Limits", "pass Limits(max_tool_calls=…)")


def _settings(value: Any) -> dict[str, Any]:
    _is_settings("settings", value)
    given: dict[str, Any] = value.given()
    return given


_CHECKS: Final[Mapping[str, _Check]] = {
    "messages": _or_none(_list),
    "system": _or_none(_text),
    "context": _or_none(_text),
    "tools": _or_none(_list),
    "settings": _or_none(_is_settings),
    "sticky_settings": _flag,
    "compactor": _or_none(_compactor),
    "cold_after": _or_none(_seconds),
    "token_counter": _or_none(_counter),
    "context_marks": _marks,
    "prices": _or_none(_callback),
    "max_iterations": _positive,
    "limits": _or_none(_is_limits),
    "on_limit": _one_of("answer", "raise"),
    "timeout": _or_none(_seconds),
    "call_timeout": _or_none(_seconds),
    "first_delta_timeout": _or_none(_seconds),
    "tool_timeout": _or_none(_seconds),
    "tool_concurrency": _positive,
    "tool_threads": _flag,
    "max_tool_result_bytes": _result_bytes,
    "tool_errors": _one_of("to_model", "raise"),
    "turn_id": _or_none(_telling_text),
    "on_pending": _one_of("raise", "deny", "queue"),
    "conversation_id": _or_none(_kept_text),
    "on_event": _or_none(_callback),
    "on_checkpoint": _or_none(_callback),
    "on_bad_state": _one_of("fresh", "raise", None),
    "on_foreign_state": _one_of("raise", "fresh"),
    "metadata": _or_none(_text_map),
    "min_revision": _or_none(_whole),
}
"""`user` is checked where it becomes a message; `deps` and `binding` may be anything."""


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse values that no turn could use, before anything is called.

    Args:
        given: The options that were given, by name; nothing is spent on the others.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value of the right type that cannot be meant: not finite, too long, no such choice.
    """
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)


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
