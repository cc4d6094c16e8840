"""Checks of the values of options.

Owns: the checks, one function for each kind of value. Must never know: which option takes which check, or
the effect of an option. An error text names the type of a value, never its content.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final, TypeAlias

__all__ = ["MAX_ID_CHARACTERS", "MAX_SECONDS", "MIN_RESULT_BYTES", "Check"]

Check: TypeAlias = Callable[[str, Any], None]
"""Takes the name of an option and its value. Raises TypeError or ValueError for an unusable value."""

MAX_ID_CHARACTERS: Final = 256
"""The longest `conversation_id` and model name. A state keeps both."""

MIN_RESULT_BYTES: Final = 256
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


def result_bytes(name: str, value: Any) -> None:
    positive(name, value)
    if value < MIN_RESULT_BYTES:
        raise ValueError(f"{name} must be at least {MIN_RESULT_BYTES}, got {value}")


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
