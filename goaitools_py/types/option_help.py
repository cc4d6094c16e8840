"""Refuses wrong options: checks their values, and says where a name belongs that a method does not have.

Owns: the checks, one function for each kind of value; the table of the places of names; the texts of these
errors. Must never know: which option takes which check, or the effect of an option. An error text names the
type of a value, never its content.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, TypeAlias

__all__ = [
    "CHAT_NAMES",
    "MAX_ID_CHARACTERS",
    "MAX_SECONDS",
    "Check",
    "misplaced_option",
    "unknown_option",
]

Check: TypeAlias = Callable[[str, Any], None]
"""Takes the name of an option and its value. Raises TypeError or ValueError for an unusable value."""

MAX_ID_CHARACTERS: Final = 256
"""The longest `conversation_id` and model name. A state keeps both."""

_MIN_RESULT_BYTES: Final = 256
"""A shorter tool result would hold little more than the note about the cut."""

MAX_SECONDS: Final = 2_147_483
"""The longest timeout, almost 25 days, because a socket counts milliseconds in 31 bits."""


_HEADER_NAME: Final = r"[\w!#$%&'*+.^`|~-]+"
"""The name of an HTTP header (RFC 9110, section 5.6.2), as a pattern."""

_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})


def wrong_type(name: str, value: Any, expected: str, advice: str = "") -> TypeError:
    found = "None" if value is None else type(value).__name__
    if isinstance(value, type):
        found = f"the class {value.__name__}"
    return TypeError(f"{name} must be {expected}, not {found}{advice and '; '}{advice}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _is_utf8(text: str) -> bool:
    with suppress(UnicodeEncodeError):  # the error holds the text, so it must not become a context
        text.encode()
        return True
    return False


def text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise wrong_type(name, value, "str")


def kept_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise wrong_type(name, value, "str", f"pass {name}=str(…)")
    if len(value) > MAX_ID_CHARACTERS:
        raise ValueError(f"{name} must have at most {MAX_ID_CHARACTERS} characters, got {len(value)}")
    _encodable(name, value)


def telling_text(name: str, value: Any) -> None:
    kept_text(name, value)
    if not value:
        raise ValueError(
            f"{name} is empty, so all turns would count as the same one; pass None for no {name}"
        )


def naming_text(name: str, value: Any) -> None:
    kept_text(name, value)
    if not value:
        raise ValueError(f"{name} is empty, so it names nothing; pass None for a random one")


def _encodable(name: str, text: str) -> None:
    if not _is_utf8(text):
        raise ValueError(f"{name} holds a lone surrogate, which UTF-8 cannot write; put U+FFFD in its place")


def texts(name: str, value: Any) -> None:
    if not isinstance(value, str) and not _is_list(value):
        raise wrong_type(name, value, "str or a list of str")
    for item in value:
        if not isinstance(item, str):
            raise wrong_type(f"each item of {name}", item, "str")


def text_map(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dict that maps text to text")
    for text in (*value.keys(), *value.values()):
        if not isinstance(text, str):
            raise wrong_type(f"each key and value of {name}", text, "str")
        _encodable(name, text)


def headers(name: str, value: Any) -> None:
    text_map(name, value)
    if not all(text.isascii() and text.isprintable() for text in (*value.keys(), *value.values())):
        raise ValueError(f"{name} must hold printable ASCII, as HTTP headers do; encode what is not")
    for header in value:
        if not re.fullmatch(_HEADER_NAME, header, re.ASCII):
            raise ValueError(
                f"{name} has a name that is no HTTP header's; such a name has letters, digits and '-' only, "
                "as 'X-Team'"
            )
        if header.lower() in _FRAMING:
            raise ValueError(f"{name} cannot set {header!r}: it says where the body ends; leave it out")


def members(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(name, value, "a dict")
    for key in value:
        if not isinstance(key, str):
            raise wrong_type(f"each key of {name}", key, "str")


def flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")


def whole(name: str, value: Any) -> None:
    if not _is_whole(value):
        raise wrong_type(name, value, "an int")


def positive(name: str, value: Any) -> None:
    if not _is_whole(value):
        raise wrong_type(name, value, "a positive int")
    if value < 1:
        raise ValueError(f"{name} must be a positive int, got {value}")


def named_turn(name: str, value: Any) -> None:
    if isinstance(value, str):
        kept_text(name, value)
    elif not _is_whole(value):
        raise wrong_type(name, value, "an int or str", "pass the number or the id of a turn")


def result_bytes(name: str, value: Any) -> None:
    positive(name, value)
    if value < _MIN_RESULT_BYTES:
        raise ValueError(f"{name} must be at least {_MIN_RESULT_BYTES}, got {value}")


def finite(name: str, value: Any) -> None:
    if not _is_number(value):
        raise wrong_type(name, value, "a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value}; leave it out for the default")


def seconds(name: str, value: Any) -> None:
    if not _is_number(value):
        raise wrong_type(name, value, "a positive number of seconds", "pass None for no limit")
    if not value > 0:  # NaN is not greater than anything
        raise ValueError(f"{name} must be a positive number of seconds, got {value}; pass None for no limit")
    if value > MAX_SECONDS:
        raise ValueError(f"{name} must be at most {MAX_SECONDS} seconds; pass None for no limit")


def sequence(name: str, value: Any) -> None:
    if not _is_list(value):
        raise wrong_type(name, value, "a list or tuple", f"pass {name}=[…]")


def callback(name: str, value: Any) -> None:
    if not callable(value):
        raise wrong_type(name, value, "a function of one argument", "pass None to leave it out")


def compactor(name: str, value: Any) -> None:
    if isinstance(value, type) or not callable(getattr(value, "plan", None)):
        raise wrong_type(name, value, "a Compactor", "pass Compactor(trigger, strategy)")


def counter(name: str, value: Any) -> None:
    if isinstance(value, type) or not callable(getattr(value, "count", None)):
        raise wrong_type(name, value, "a TokenCounter", "pass an object with count(message) -> int")


def marks(name: str, value: Any) -> None:
    sequence(name, value)
    for mark in value:
        finite(f"each of {name}", mark)
    if any(not 0 < mark <= 1 for mark in value) or list(value) != sorted(set(value)):
        raise ValueError(f"{name} must be rising parts of the context window, such as (0.7, 0.9)")


def dollars(name: str, value: Any) -> None:
    if not isinstance(value, Decimal):
        finite(name, value)
    if not math.isfinite(value) or not value > 0:
        raise ValueError(f"{name} must be a positive number of US dollars, got {value}")


def or_none(check: Check) -> Check:
    def check_unless_none(name: str, value: Any) -> None:
        if value is not None:
            check(name, value)

    return check_unless_none


def one_of(*choices: str | None) -> Check:
    expected = ", ".join(map(repr, choices))

    def check(name: str, value: Any) -> None:
        if value not in choices:
            found = repr(value[:20]) if isinstance(value, str) else type(value).__name__
            raise ValueError(f"{name} must be one of {expected}; got {found}")

    return check


# ------------------------------------------------------------------------------- names and their places

_IN_STORE: Final = "the kept conversation: chat.conversation(store, key, {}=…)"
_BACKEND: Final = "the backend: Chat(OpenAIChatBackend(MODEL, {}=…))"
_LIMITS: Final = "the limits: limits=Limits({}=…)"
_TOOL: Final = "a tool: @tool({}=…)"

CHAT_NAMES: Final = (
    "codec", "telemetry", "max_concurrent_calls", "http", "fallbacks", "fallback_rest", "log_content",
)  # fmt: skip
"""Options of a chat that are not defaults for its turns."""

_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "save",
            "gate",
            "concurrent_turns",
            "lease_ttl",
            "save_timeout",
            "plain_title",
            "parts",
            "stop_every",
        ),
        _IN_STORE,
    ),
    **dict.fromkeys(
        ("base_url", "api_key", "client", "http_client", "max_retries", "context_window"), _BACKEND
    ),
    **dict.fromkeys(
        (
            "max_iterations",
            "max_tool_calls",
            "max_cost_usd",
            "conversation_max_tokens",
            "conversation_max_cost_usd",
        ),
        _LIMITS,
    ),
    **dict.fromkeys(("requires_approval", "external", "idempotent", "thread"), _TOOL),
    **{
        f"{name}_timeout": f"the timeouts: timeout=Timeouts({name}=…)"
        for name in ("call", "first_delta", "tool")
    },
    "codec": "the chat: Chat(MODEL, codec=…)",
    "telemetry": "the chat: Chat(MODEL, telemetry=…)",
    "max_concurrent_calls": "the chat: Chat(MODEL, max_concurrent_calls=…)",
    "http": "the chat: AsyncChat(MODEL, http='aiohttp')",
    "fallbacks": "the chat: Chat(MODEL, fallbacks=[…])",
    "fallback_rest": "the chat: Chat(MODEL, fallbacks=[…], fallback_rest=…)",
    "log_content": "the chat: Chat(MODEL, log_content=…)",
    "dry_run": "a compaction: chat.compact_state(state, dry_run=…) or conversation.compact(dry_run=…)",
    "answers": "resume, without a name: chat.resume(state, answers) or conversation.resume(answers)",
    "state": "the first place, without a name: chat.chat_with_state(state, …); a kept conversation loads its "
    "own",
    "store": "chat.conversation(store, key), which is then used without it",
    "key": "chat.conversation(store, key), which is then used without it",
}
"""By option: where it belongs. ``{}`` stands for its name."""

_A_TURN: Final = "each turn: chat.chat_with_state(state, {0}=…) or conversation.send({0}=…)"
_A_STATE: Final = (
    "each turn of a state: chat.chat_with_state(state, {0}=…); a kept conversation has its key for an id"
)
_ANY_TURN: Final = "the chat, for all its turns: Chat(MODEL, {0}=…); or one turn: conversation.send({0}=…)"

_SAID: Final = "what the user says is user=…"
_PART: Final = "it is a part of what the user says: user=['What is this?', Image.from_path(path)]"
_KEEPS: Final = "a conversation that is kept is chat.conversation(store, key)"
_LOGGED: Final = "what a turn does is in the log 'goaitools_py', see docs/logging.md"
_TYPED: Final = "the type of the answer is output_type=…, of chat, chat_with_state, start or send"
_ASKS: Final = "how often a turn asks the model is limits=Limits(max_iterations=…)"
_ELSEWHERE: Final[Mapping[str, str]] = {
    "stream": "streaming is a method, start(…) in place of chat(…), which takes the same options",
    **dict.fromkeys(("message", "prompt", "input", "text", "content", "question", "query", "say"), _SAID),
    **dict.fromkeys(("image", "images", "picture", "audio", "sound", "document", "documents"), _PART),
    **dict.fromkeys(("file", "files", "attachment", "attachments"), _PART),
    **dict.fromkeys(("memory", "session"), _KEEPS),
    **dict.fromkeys(("session_id", "thread_id", "chat_id"), f"your id is conversation_id=…; {_KEEPS}"),
    "user_id": "who speaks is speaker=…; whose conversation it is, its key says: conversation(store, key)",
    **dict.fromkeys(("log", "logging", "logger", "verbose", "debug"), _LOGGED),
    **dict.fromkeys(("callback", "callbacks", "on_token"), "what happens in a turn is told to on_event=…"),
    **dict.fromkeys(("max_steps", "max_turns"), _ASKS),
    "functions": "what the model may call is tools=[…]",
    "deadline": "seconds for the whole turn are timeout=…",
    "retries": "it is max_retries=… of the backend: Chat(OpenAIChatBackend(MODEL, max_retries=…))",
    "instructions": "the instructions for the model are system=…",
    "system_prompt": "the instructions for the model are system=…",
    "response_format": _TYPED,
    "response_model": _TYPED,
    "output_format": _TYPED,
    "result_type": _TYPED,
    "output_schema": _TYPED,
    "schema": _TYPED,
    "json_schema": _TYPED,
    "history": "what was said before is the state of the last turn, or messages=[…]",
}
"""Names that other libraries use, with the option of this package for the same purpose."""


def unknown_option(name: str, options: Sequence[str], settings: Sequence[str]) -> str:
    """The error text for a keyword that is no option.

    Args:
        name: The keyword.
        options: The options that the call takes.
        settings: The names of the model's settings.
    """
    if name in _ELSEWHERE:
        return f"unknown option {name!r}; {_ELSEWHERE[name]}"
    if (place := _place_of(name)) is not None:
        return f"{name!r} is no option of a turn: it belongs to {place}"
    import difflib  # imported only for a mistake

    if name in settings:
        return f"unknown option {name!r}: it is a model setting; pass settings=ModelSettings({name}=…)"
    close = difflib.get_close_matches(name, (*options, *settings, *_PLACES), n=1)
    if not close:
        return f"unknown option {name!r}; the options are {', '.join(options)}"
    found = close[0]
    if found in options:
        return f"unknown option {name!r}; did you mean {found!r}?"
    if found in settings:
        return f"unknown option {name!r}; did you mean settings=ModelSettings({found}=…)?"
    return f"unknown option {name!r}; did you mean {found!r}? It belongs to {_place_of(found)}"


def misplaced_option(method: str, name: str, options: Sequence[str], of_turn: Collection[str]) -> str:
    """The error text for a keyword that was given to a method which takes no options of turns.

    Args:
        method: The method's name.
        name: The keyword.
        options: The options of turns.
        of_turn: Those of them that belong to one turn, and are no option of a chat.
    """
    place = _place_of(name)
    if place is None and name in options:
        each = _A_STATE if name == "conversation_id" else _A_TURN
        place = (each if name in of_turn else _ANY_TURN).format(name)
    found = f"{method}() has no option {name!r}"
    if place is not None:
        return f"{found}: it belongs to {place}"
    import difflib  # imported only for a mistake

    close = difflib.get_close_matches(name, (*_PLACES, *options), n=1, cutoff=0.75)
    return f"{found}; did you mean {close[0]!r}?" if close else f"{found}, and no turn has"


def _place_of(name: str) -> str | None:
    """Describe the place of an option that no turn has. None for an unknown name."""
    place = _PLACES.get(name)
    return None if place is None else place.format(name)
