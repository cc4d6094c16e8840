"""The options of a turn: model settings, limits, and how they are merged.

Owns: the frozen option values, the table of their defaults and checks, and their precedence.
Must never know: how a turn runs.

A value that no turn could use is refused before anything is called. The error names the type of the value,
never its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from ..base.values import Given, Value
from . import option_help as checks
from .messages import Message, Part
from .option_help import CHAT_NAMES, misplaced_option, unknown_option
from .request_parts import ContextEdit, check_edits

if TYPE_CHECKING:
    from .tokens import TokenCounter
    from .usage import Prices

__all__ = ["UNSET", "ChatOptions", "Limits", "ModelSettings", "Resolved", "Timeouts", "Unset"]

T = TypeVar("T")

UserInput: TypeAlias = str | Part | Sequence[Part | str]
"""The user's input: text, a part, or a list of them."""


class Unset:
    """The type of `UNSET`: an option that was not given, which is not the same as None (off)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSET"  # copies of options, also in another process, hold this same object


UNSET: Final = Unset()


# ------------------------------------------------------------------------------------- the values


class ModelSettings(Given, frozen=True, kw_only=True):
    """Settings for the replies of the model.

    The provider decides about a setting that is not given. None switches off a setting of the chat or, with
    `sticky_settings`, of an earlier turn.

    Attributes:
        model: Another model for this turn, instead of the backend's.
        max_output_tokens: Tokens of one reply, thinking included where the provider counts it. Anthropic
            requires a limit: 8,192, unless this setting or the model's table entry says otherwise.
        temperature, top_p: Sampling. Anthropic's newest API version has none. An older model takes it with
            `extra_headers={"anthropic-version": "2023-06-01"}`.
        reasoning_effort: The provider's word for how much the model thinks, such as "low".
        thinking_budget_tokens: Tokens for thinking; 0 switches thinking off.
        stop: A text, or a list of texts, that ends the reply.
        seed: A number for repeatable sampling.
        frequency_penalty, presence_penalty: From -2 to 2. Above 0, words that the reply already has become
            less likely: by their count (frequency), or once they appear (presence).
        parallel_tool_calls: False: at most one tool call in a reply.
        tool_choice: "auto", "none", "required" or a tool's name, for the first model call of a turn.
        prompt_cache_key: A key of your own for the provider's prompt cache.
        extra_body: Members for the request's body; never stored. They win over settings, and None leaves
            a member out. The objects `reasoning`, `thinking`, `output_config` and `text` are merged one
            level deep with the members that options write, and every other object is replaced. Members that
            would take over the history, the streaming or the state, such as `messages`, `input`, `stream` and
            `store`, are a ValueError.
        extra_headers: HTTP headers for each request. Never stored.
        context_management: The provider's own cuts of the context: `ServerCompaction`,
            `ServerToolClearing`, `ServerThinkingClearing`. The setting wins over a compactor's
            `ProviderCompaction`. None asks for no cut.

    A setting that the provider API does not have is a ValueError before anything is sent.

    Raises:
        TypeError: A value is of a type that no provider API takes.
        ValueError: A number that JSON does not have, a header that HTTP does not have, or an unusable
            model name.
    """

    _unshown = frozenset({"stop", "prompt_cache_key", "extra_body", "extra_headers"})

    model: str | Unset | None = UNSET
    max_output_tokens: int | Unset | None = UNSET
    temperature: float | Unset | None = UNSET
    top_p: float | Unset | None = UNSET
    reasoning_effort: str | Unset | None = UNSET
    thinking_budget_tokens: int | Unset | None = UNSET
    stop: str | Sequence[str] | Unset | None = UNSET
    seed: int | Unset | None = UNSET
    frequency_penalty: float | Unset | None = UNSET
    presence_penalty: float | Unset | None = UNSET
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
        return _given(self)


SETTING_NAMES: Final = ModelSettings.__struct_fields__
_SETTING_CHECKS: Final[Mapping[str, checks.Check]] = {
    "model": checks.kept_text,
    "max_output_tokens": checks.whole,
    "temperature": checks.finite,
    "top_p": checks.finite,
    "reasoning_effort": checks.text,
    "thinking_budget_tokens": checks.whole,
    "stop": checks.texts,
    "seed": checks.whole,
    "frequency_penalty": checks.finite,
    "presence_penalty": checks.finite,
    "parallel_tool_calls": checks.flag,
    "tool_choice": checks.text,
    "prompt_cache_key": checks.text,
    "extra_body": checks.members,
    "extra_headers": checks.headers,
    "context_management": check_edits,
}


class Limits(Given, frozen=True, kw_only=True):
    """Limits for one turn, and for the whole life of a conversation. UNSET: inherited. None: no limit.

    Tokens are input plus output. A resumed turn has the rest of its limits: its earlier calls count, and
    their cost is computed with today's prices.

    Costs are in US dollars. They come from the chat's `prices`, or from genai-prices where the extra
    ``[prices]`` is installed. With a limit on costs, an unknown price is a `BudgetExceededError` before the
    first call. With `conversation_max_cost_usd` earlier calls of unknown price raise it too.

    Attributes:
        max_iterations: Model calls with tools in one turn. Calls before a `resume` count, too. Default: 10.
        max_tool_calls: Tool calls of one turn.
        max_tokens: Tokens of one turn.
        conversation_max_tokens: Tokens of the conversation's life.
        max_cost_usd: US dollars for one turn.
        conversation_max_cost_usd: US dollars for the conversation's life.

    Raises:
        TypeError: A limit is neither a number nor None; one on calls or tokens is not a whole number.
        ValueError: A limit on calls or tokens is below 1; one on costs is not above 0.
    """

    max_iterations: int | Unset = UNSET
    max_tool_calls: int | Unset | None = UNSET
    max_tokens: int | Unset | None = UNSET
    conversation_max_tokens: int | Unset | None = UNSET
    max_cost_usd: Decimal | float | Unset | None = UNSET
    conversation_max_cost_usd: Decimal | float | Unset | None = UNSET

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if value is not None or name == "max_iterations":
                (checks.dollars if name.endswith("_usd") else checks.positive)(name, value)

    def given(self) -> dict[str, Any]:
        """The limits that were given, None included."""
        return _given(self)


class Timeouts(Given, frozen=True, kw_only=True):
    """Time limits in seconds. UNSET: inherited. None: no limit.

    Attributes:
        turn: The whole turn. A `resume` has the same time again. A tool or callback that runs in the thread
            of a `Chat`'s caller is not cut short. Default: 300.
        call: One model call, its body included; also each call of a compactor. A call that takes longer is
            retried like one that failed, while the turn has time left and no part of the reply was shown.
        first_delta: Until a streamed reply begins with text, reasoning or a call; pings do not count. A
            reply that takes longer is retried. It has no effect on replies that are not streamed.
        tool: One tool call. Default: 60.

    Raises:
        TypeError: A time is not a number.
        ValueError: A time is not above 0.
    """

    turn: float | Unset | None = UNSET
    call: float | Unset | None = UNSET
    first_delta: float | Unset | None = UNSET
    tool: float | Unset | None = UNSET

    def __post_init__(self) -> None:
        for name, value in self.given().items():
            if value is not None:
                checks.seconds(f"timeout, {name}", value)

    def given(self) -> dict[str, Any]:
        """The time limits that were given, None included."""
        return _given(self)


def _given(value: Any) -> dict[str, Any]:
    fields = value.__struct_fields__
    return {name: found for name in fields if (found := getattr(value, name)) is not UNSET}


class ChatOptions(Given, frozen=True, kw_only=True):
    """Options of a call, or a chat's defaults. Every field is also a keyword of the chat's methods.

    UNSET means that a field was not given. None switches a default off.
    Precedence: keywords > options > the chat's defaults > settings in the state (`sticky_settings`).

    Attributes:
        user: The user's input: text, a part, or a list of them. It becomes the last message.
        messages: Messages in order. The system messages at the beginning are preamble and are not stored.
        system: Preamble text. It is sent first in every request and never stored.
        context: Facts that change from turn to turn (clock, score, place). They are stored with the message,
            and are not repeated while they stay the same.
        tools: The tools that the model may call: functions, `Tool`, or `ProviderTool`.
        deps: Tools get it as ``ctx.deps``; never stored. If a tool wants ``ToolContext[X]`` and there are
            no deps, the call raises TypeError before it sends anything.
        settings: `ModelSettings`, merged field by field.
        sticky_settings: True: reasoning, thinking, output limit, sampling and penalties of earlier turns stay
            in force until they are overridden.
        compactor: When and how the history shrinks. None: only when the provider or a limit refuses it.
        cold_after: Seconds without a request after which the provider's prompt cache counts as expired. The
            first request after such a pause sets no cache marks, because they cost money and would not be
            read; `CompactionRequest.is_cold` is then true. None: never.
        record_ids: True: the state keeps the provider's id of each request, for support tickets; some 30
            bytes for each model call, which do not compress. `HistoryIteration.request_id` has it.
        record_actions: True: the state keeps the actions that tools log with ``ctx.log_action``, up to 16 KiB
            in a turn. `HistoryTurn.actions` has them; no model reads them.
        token_counter: A `TokenCounter` for messages that no usage has counted yet. None: `TokenEstimate`.
            Its numbers are calibrated with the real usage of the conversation in both cases.
        context_marks: Fractions of the model's context window, and of the state's limits on bytes and
            entries. The first turn that ends above one emits a `ContextWarning` and adds a warning to its
            result.
        prices: The price list: a function from `Charge` to Decimal, or to None for an unknown price.
            With it, the conversation's total is kept. None: `ChatResult.cost_usd` asks genai-prices,
            if that is installed, and no total is kept.
        limits: `Limits` for the turn and the conversation, merged field by field.
        keep_partial: For a reply that broke off or was stopped, when a new message closes its turn. True: its
            text stays in the history as the model's words. False: no model reads it.
        on_limit: At a turn's limit: "answer" asks the model once more, without tools; "raise" raises.
        timeout: Seconds for the whole turn, or `Timeouts`, merged field by field. None: the turn has no
            deadline.
        tool_concurrency: How many tools run at the same time, where they run in threads or tasks.
        tool_threads: True: sync tools run in worker threads. Default: False on Chat, True on AsyncChat.
        max_tool_result_bytes: UTF-8 bytes of text of one tool result. The rest is cut off, and a note tells
            the model. At least 256. Default: 262,144.
        keep_results: "store" keeps a longer text whole in the conversation, beside the messages. The model
            reads its beginning and its end, and gets the tool ``recall`` for the rest. "cut" keeps nothing.
        tool_errors: "to_model" tells the model; "raise" ends the turn after the other tools have run.
        turn_id: Your id of this turn, such as a webhook's message id. If the same id comes again with the
            same messages: a finished turn gives its stored reply, an unfinished turn continues. A turn that a
            newer message closed without a reply is answered now; see docs/turns.md.
        edit: The message of the user that `user` replaces: its turn's number or id (`HistoryTurn.number`,
            `HistoryTurn.id`), its `turn_id`, or the id that a front end shows. That message and everything
            after it leave the history once the provider takes the new one. Usage and cost stay counted.
            `states.EditError` if the message is not there, or stands before the newest cut.
        on_pending: If a new message meets a state that waits for answers: "raise", "deny" the waiting
            calls, or "queue" the message until the `resume`.
        conversation_id: Part of every idempotency key. The state keeps it until a turn begins with another
            one; an unfinished turn keeps its own. A kept conversation uses its key, and refuses this option.
        on_event: Called with every event. Its exceptions are logged, never propagated.
        on_checkpoint: Called with a resumable blob after each reply and around each tool call. The last one
            is the result's state.
        on_bad_state: For a state that cannot be read. "fresh" starts a new conversation; "raise" raises.
            None: a damaged state gives a new conversation, and an unauthentic one raises. The replaced state
            is in `ChatResult.discarded`. A state of a newer release always raises.
        on_foreign_state: For an undamaged state of another provider API: "raise", "fresh" to start a new
            conversation, or "convert" to continue it. A conversion drops the thinking, and a warning lists
            other losses; see docs/convert.md.
        binding: For sealed codecs: the owner of the blob, such as ``{"user": "ada"}``, or `UNBOUND`.
        min_revision: Refuse a state that is older than this (`StateInfo.revision` of the last saved state),
            and a missing or damaged one. A new conversation has revision 1 after its first turn.
        speaker: The author of `user`, where several people talk in one conversation; 1 to 256 characters.
        metadata: Stored with the turn, even if its first request fails. A `resume` adds its own.
        output_type: The type of the answer, in `ChatResult.output`: a pydantic model, dataclass, TypedDict,
            ``list[…]``, `Literal` or union, or ``Output(…)`` of one. None: text.
    """

    _unshown = frozenset(
        {"user", "messages", "speaker", "system", "context", "deps", "binding", "metadata", "edit"}
    )

    user: UserInput | Unset | None = UNSET
    messages: Sequence[Message] | Unset | None = UNSET
    speaker: str | Unset | None = UNSET
    system: str | Unset | None = UNSET
    context: str | Unset | None = UNSET
    tools: Sequence[Any] | Unset | None = UNSET
    deps: Any = UNSET
    settings: ModelSettings | Unset | None = UNSET
    sticky_settings: bool | Unset = UNSET
    compactor: Any = UNSET
    cold_after: float | Unset | None = UNSET
    record_ids: bool | Unset = UNSET
    record_actions: bool | Unset = UNSET
    token_counter: TokenCounter | Unset | None = UNSET
    context_marks: Sequence[float] | Unset = UNSET
    prices: Prices | Unset | None = UNSET
    limits: Limits | Unset | None = UNSET
    keep_partial: bool | Unset = UNSET
    on_limit: Literal["answer", "raise"] | Unset = UNSET
    timeout: float | Timeouts | Unset | None = UNSET
    tool_concurrency: int | Unset = UNSET
    tool_threads: bool | Unset = UNSET
    max_tool_result_bytes: int | Unset = UNSET
    keep_results: Literal["cut", "store"] | Unset = UNSET
    tool_errors: Literal["to_model", "raise"] | Unset = UNSET
    turn_id: str | Unset | None = UNSET
    edit: int | str | Unset | None = UNSET
    on_pending: Literal["raise", "deny", "queue"] | Unset = UNSET
    conversation_id: str | Unset | None = UNSET
    on_event: Callable[[Any], object] | Unset | None = UNSET
    on_checkpoint: Callable[[bytes], object] | Unset | None = UNSET
    on_bad_state: Literal["fresh", "raise"] | Unset | None = UNSET
    on_foreign_state: Literal["raise", "fresh", "convert"] | Unset = UNSET
    binding: Any = UNSET
    metadata: Mapping[str, str] | Unset | None = UNSET
    min_revision: int | Unset | None = UNSET
    output_type: Any = UNSET

    def given(self) -> dict[str, Any]:
        """The options that were given, None included."""
        return _given(self)


OPTION_NAMES: Final = ChatOptions.__struct_fields__


class MergedLimits(Value, frozen=True, kw_only=True):
    """The limits of a turn after merging, without the number of iterations; see `Limits`. None: no limit."""

    max_tool_calls: int | None = None
    max_tokens: int | None = None
    conversation_max_tokens: int | None = None
    max_cost_usd: Decimal | float | None = None
    conversation_max_cost_usd: Decimal | float | None = None

    @property
    def limits_cost(self) -> bool:
        """True if there is a limit on costs."""
        return self.max_cost_usd is not None or self.conversation_max_cost_usd is not None


class Resolved(Value, frozen=True, kw_only=True):
    """Options after merging: every field has a value, `settings` holds only the given settings.

    `timeout` is the turn's time. The other time limits and the number of iterations have fields of their own.
    """

    _unshown = frozenset(
        {
            "user",
            "speaker",
            "system",
            "context",
            "deps",
            "settings",
            "binding",
            "metadata",
            "messages",
            "edit",
        }
    )

    user: UserInput | None
    messages: Sequence[Message] | None
    speaker: str | None
    system: str | None
    context: str | None
    tools: Sequence[Any] | None
    deps: Any
    settings: dict[str, Any]
    sticky_settings: bool
    compactor: Any
    cold_after: float | None
    record_ids: bool
    record_actions: bool
    token_counter: TokenCounter | None
    context_marks: Sequence[float]
    prices: Prices | None
    max_iterations: int
    limits: MergedLimits | None
    keep_partial: bool
    on_limit: Literal["answer", "raise"]
    timeout: float | None
    call_timeout: float | None
    first_delta_timeout: float | None
    tool_timeout: float | None
    tool_concurrency: int
    tool_threads: bool
    max_tool_result_bytes: int
    keep_results: Literal["cut", "store"]
    tool_errors: Literal["to_model", "raise"]
    turn_id: str | None
    edit: int | str | None
    on_pending: Literal["raise", "deny", "queue"]
    conversation_id: str | None
    on_event: Callable[[Any], object] | None
    on_checkpoint: Callable[[bytes], object] | None
    on_bad_state: Literal["fresh", "raise"] | None
    on_foreign_state: Literal["raise", "fresh", "convert"]
    binding: Any
    metadata: Mapping[str, str] | None
    min_revision: int | None
    output_type: Any


def given_options(
    options: ChatOptions | None, keywords: Mapping[str, Any], *, of_chat: bool = False
) -> dict[str, Any]:
    """The options that a call gave: its `ChatOptions`, overridden by its keywords.

    Raises TypeError for an unknown option. `of_chat`: True if a chat is made: it has further options.
    """
    if options is not None and not isinstance(options, ChatOptions):
        raise TypeError(f"options must be ChatOptions, not {type(options).__name__}; {_by_name(options)}")
    given = options.given() if options is not None else {}
    for name, value in keywords.items():
        if name not in _OPTIONS:
            of_call = (*(one for one in OPTION_NAMES if one not in PER_TURN), *CHAT_NAMES)
            raise TypeError(unknown_option(name, of_call if of_chat else OPTION_NAMES, SETTING_NAMES))
        if value is UNSET:
            continue
        if name in given and name in _BY_FIELD:
            value = _merged(name, given[name], value)
        given[name] = value
    return given


def _by_name(value: Any) -> str:
    """How to give a value that stands in the place of the options."""
    if isinstance(value, str):
        return "pass a text by name: what the user says is user=…, the instructions are system=…"
    for name, kind in (("settings", ModelSettings), ("limits", Limits), ("timeout", Timeouts)):
        if isinstance(value, kind):
            return f"pass it by name: {name}=…"
    return "pass single ones by name"


def _is_settings(name: str, value: Any) -> None:
    if not isinstance(value, ModelSettings):
        raise checks.wrong_type(name, value, "ModelSettings", "pass ModelSettings(temperature=…)")


def _is_limits(name: str, value: Any) -> None:
    if not isinstance(value, Limits):
        raise checks.wrong_type(name, value, "Limits", "pass Limits(max_tool_calls=…)")


def _is_timeout(name: str, value: Any) -> None:
    if not isinstance(value, Timeouts):
        checks.seconds(name, value)


def _settings(value: Any) -> dict[str, Any]:
    _is_settings("settings", value)
    given: dict[str, Any] = value.given()
    return given


def _limits(value: Any) -> dict[str, Any]:
    _is_limits("limits", value)
    given: dict[str, Any] = value.given()
    return given


def _timeouts(value: Any) -> dict[str, Any]:
    if isinstance(value, Timeouts):
        return value.given()
    if value is not None:
        checks.seconds("timeout", value)
    return {"turn": value}


_BY_FIELD: Final[Mapping[str, tuple[Callable[[Any], dict[str, Any]], type]]] = {
    "settings": (_settings, ModelSettings),
    "limits": (_limits, Limits),
    "timeout": (_timeouts, Timeouts),
}
"""Options merged field by field: for each, the function that gives its fields, and the class made of them."""


def _merged(name: str, base: Any, own: Any) -> Any:
    """An option's value that has the fields of `own`, and those of `base` that `own` does not give.

    None for settings or limits has no fields: it switches off what was given before.
    """
    fields, kind = _BY_FIELD[name]
    if name != "timeout" and (base is None or own is None):
        return own
    return kind(**{**fields(base), **fields(own)})


CONTEXT_MARKS: Final = (0.7, 0.9)
"""The default of `context_marks`."""


_MOST_ITERATIONS: Final = 10
"""The default of `Limits.max_iterations`."""


class _OptionRow(NamedTuple):
    default: Any
    """The value if neither the call nor the chat gives the option."""
    check: checks.Check | None = None
    """None: any value will do, or the value is checked where it is used."""
    per_turn: bool = False
    """True: the option belongs to one turn, and a chat takes no default for it."""


_OPTIONS: Final[Mapping[str, _OptionRow]] = {
    "user": _OptionRow(None, per_turn=True),
    "messages": _OptionRow((), checks.or_none(checks.sequence), per_turn=True),
    "speaker": _OptionRow(None, checks.or_none(checks.kept_text), per_turn=True),
    "system": _OptionRow(None, checks.or_none(checks.text)),
    "context": _OptionRow(None, checks.or_none(checks.text)),
    "tools": _OptionRow((), checks.or_none(checks.sequence)),
    "deps": _OptionRow(None),
    "settings": _OptionRow(None, checks.or_none(_is_settings)),
    "sticky_settings": _OptionRow(False, checks.flag),
    "compactor": _OptionRow(None, checks.or_none(checks.compactor)),
    "cold_after": _OptionRow(None, checks.or_none(checks.seconds)),
    "record_ids": _OptionRow(False, checks.flag),
    "record_actions": _OptionRow(False, checks.flag),
    "token_counter": _OptionRow(None, checks.or_none(checks.counter)),
    "context_marks": _OptionRow(CONTEXT_MARKS, checks.marks),
    "prices": _OptionRow(None, checks.or_none(checks.callback)),
    "limits": _OptionRow(Limits(max_iterations=_MOST_ITERATIONS), checks.or_none(_is_limits)),
    "keep_partial": _OptionRow(False, checks.flag),
    "on_limit": _OptionRow("answer", checks.one_of("answer", "raise")),
    "timeout": _OptionRow(Timeouts(turn=300.0, tool=60.0), checks.or_none(_is_timeout)),
    "tool_concurrency": _OptionRow(8, checks.positive),
    "tool_threads": _OptionRow(False, checks.flag),
    "max_tool_result_bytes": _OptionRow(256 * 1024, checks.result_bytes),
    "keep_results": _OptionRow("cut", checks.one_of("cut", "store")),
    "tool_errors": _OptionRow("to_model", checks.one_of("to_model", "raise")),
    "turn_id": _OptionRow(None, checks.or_none(checks.telling_text), per_turn=True),
    "edit": _OptionRow(None, checks.or_none(checks.named_turn), per_turn=True),
    "on_pending": _OptionRow("raise", checks.one_of("raise", "deny", "queue")),
    "conversation_id": _OptionRow(None, checks.or_none(checks.naming_text), per_turn=True),
    "on_event": _OptionRow(None, checks.or_none(checks.callback)),
    "on_checkpoint": _OptionRow(None, checks.or_none(checks.callback)),
    "on_bad_state": _OptionRow(None, checks.one_of("fresh", "raise", None)),
    "on_foreign_state": _OptionRow("raise", checks.one_of("raise", "fresh", "convert")),
    "binding": _OptionRow(None),
    "metadata": _OptionRow(None, checks.or_none(checks.text_map), per_turn=True),
    "min_revision": _OptionRow(None, checks.or_none(checks.whole), per_turn=True),
    "output_type": _OptionRow(None, per_turn=True),
}
"""The one table of options: the default, the check, and whether the option belongs to one turn.

`user` is checked where it becomes a message. `AsyncChat` changes the default of `tool_threads`."""

DEFAULTS: Final[Mapping[str, Any]] = {name: option.default for name, option in _OPTIONS.items()}
PER_TURN: Final = frozenset(name for name, option in _OPTIONS.items() if option.per_turn)


def refuse_misplaced(method: str, given: Iterable[str]) -> None:
    """Raise TypeError for the first keyword that was given to a method which takes no options of turns.

    Args:
        method: The method's name.
        given: The names of the keywords that it does not have.
    """
    for name in given:
        raise TypeError(misplaced_option(method, name, OPTION_NAMES, PER_TURN))


def check_options(given: Mapping[str, Any]) -> None:
    """Refuse values that no turn could use, before anything is called.

    Args:
        given: The options that were given, by name. Defaults need no check.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: The type is right, the value is not: not finite, too long, or not one of the choices.
    """
    for name, value in given.items():
        option = _OPTIONS.get(name)
        if option is not None and option.check is not None:
            option.check(name, value)


def check_defaults(given: Mapping[str, Any]) -> None:
    """Refuse options that belong to one turn as a chat's defaults."""
    for name in given:
        if name in PER_TURN:
            raise TypeError(
                f"{name!r} belongs to one turn and cannot be a chat's default; pass it to the call"
            )
    check_options(given)


def handed_settings(
    defaults: Mapping[str, Any], given: Mapping[str, Any], model: str | None
) -> frozenset[str]:
    """The chat's default settings that a call inherits although it names another model.

    `model`: the model of the chat's backend.
    """
    base, own = defaults.get("settings"), given.get("settings")
    if base is None or own is None or own.model in (UNSET, None, base.model or model):
        return frozenset()
    return frozenset(base.given()) - frozenset(own.given())


def resolve(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Resolved:
    """Merge a call's options over a chat's defaults; settings, limits and timeouts field by field."""
    check_options(given)
    merged = {**DEFAULTS, **defaults, **given}
    for name in _BY_FIELD:
        if name in given and name in defaults:
            merged[name] = _merged(name, defaults[name], given[name])
    merged["settings"] = _settings(merged["settings"]) if merged["settings"] else {}
    merged |= _flat_limits(merged["limits"]) if merged["limits"] is not DEFAULTS["limits"] else _NO_LIMITS
    merged |= _flat_timeouts(merged["timeout"]) if merged["timeout"] is not DEFAULTS["timeout"] else _USUAL
    return Resolved(**merged)


def _flat_limits(limits: Limits | None) -> dict[str, Any]:
    """The number of iterations, and the other limits; None without any."""
    given = limits.given() if limits is not None else {}
    iterations = given.pop("max_iterations", _MOST_ITERATIONS)
    is_limited = any(value is not None for value in given.values())
    return {"max_iterations": iterations, "limits": MergedLimits(**given) if is_limited else None}


def _flat_timeouts(timeout: Timeouts | float | None) -> dict[str, Any]:
    given = {**DEFAULTS["timeout"].given(), **_timeouts(timeout)}
    return {
        "timeout": given["turn"],
        "call_timeout": given.get("call"),
        "first_delta_timeout": given.get("first_delta"),
        "tool_timeout": given["tool"],
    }


_NO_LIMITS: Final = _flat_limits(DEFAULTS["limits"])
_USUAL: Final = _flat_timeouts(DEFAULTS["timeout"])
