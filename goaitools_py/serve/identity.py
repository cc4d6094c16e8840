"""The client that asks, and the owner of the conversation.

Owns: the answer of the program's `key` function. Must never know: HTTP beyond a status, or a turn.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..base.values import Given, field
from ..frontends import AskError
from ..types.errors import GoAIToolsError
from ..types.options import check_options, given_options

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..state.codec import Codec

__all__ = ["BadCallerError", "Caller", "KeyFunction", "NotTrusted", "Refused", "caller_of", "checked_binding"]

NAME: Final = re.compile(r"[A-Za-z0-9._~@:+-]{1,128}")
"""Names that a client may give a conversation. No slash: it would make one key of two names."""


class Refused(GoAIToolsError):  # noqa: N818 - an answer, not a fault
    """Raise it in the `key` function: the request has no user (401), or this user may not (403).

    `status`: 401 or 403. No text of it is sent.
    """

    def __init__(self, status: int = 403) -> None:
        if status not in (401, 403):
            raise ValueError(f"status must be 401 or 403, got {status}")
        super().__init__("the key function refused the request")
        self.status = status


class NotTrusted(Refused):
    """The request is for programs for which the `key` function gives ``Caller(trusted=True)``."""


class BadCallerError(Exception):
    """The result of the `key` function cannot be used. The text has no content, so a log may have it."""


class Caller(Given, frozen=True):
    """The owner and the key of the conversation that a request is about.

    Attributes:
        key: The conversation's key in the store. Make it of the user whom you have authenticated and of the
            name, such as ``f"{user}/{name}"``.
        owner: The turns of one owner count together for `ServeLimits.turns_per_owner`; "" takes the key.
        prefix: The beginning of all keys of this user, such as ``f"{user}/"``, for the list of
            conversations; "" if there is no list.
        binding: For sealed codecs: the owner of the conversation.
        options: Options of each turn by name, such as ``{"deps": database}``; see `ChatOptions`.
        trusted: True if the caller is a program of yours, such as a game server. It may append events, and
            give turns `context` and `metadata`. A page may not: the model believes an event.
    """

    _unshown = frozenset({"key", "owner", "prefix", "binding", "options"})

    key: str
    owner: str = ""
    prefix: str = ""
    binding: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = False


KeyFunction: TypeAlias = "Callable[[Request, str], Caller | Awaitable[Caller]]"
"""From a request and the client's name of the conversation to `Caller`; raises `Refused`. The name is "" for
the list of conversations."""


_OURS: Final = frozenset(
    {"user", "messages", "turn_id", "edit", "conversation_id", "binding", "min_revision"}
)
"""Options that the server gives each turn itself."""


async def caller_of(key: KeyFunction, request: Request, name: str) -> Caller:
    """Ask the program for the owner of the conversation. Raises `AskError` for a name that no conversation
    may have, and `BadCallerError` for an answer that a turn cannot use: then the program is wrong, not the
    client."""
    if name and (NAME.fullmatch(name) is None or not name.strip(".")):
        raise AskError("the name of a conversation has 1 to 128 letters, digits and . _ ~ @ : + -")
    answer = key(request, name)
    found = await answer if inspect.isawaitable(answer) else answer
    if not isinstance(found, Caller):
        raise BadCallerError(f"the key function must return Caller, not {type(found).__name__}")
    for member in ("key", "owner", "prefix"):
        if not isinstance(getattr(found, member), str):
            kind = type(getattr(found, member)).__name__
            raise BadCallerError(f"Caller.{member} must be str, not {kind}; pass str(…)")
    if name and not found.key:
        raise BadCallerError("Caller.key is empty: make it of your user and of the name that the client gave")
    for option in found.options:
        if option in _OURS:
            advice = "it is Caller.binding" if option == "binding" else "the server sets it"
            raise BadCallerError(f"Caller.options must not have {option!r}: {advice}")
    try:
        check_options(given_options(None, found.options))
    except (TypeError, ValueError) as error:
        raise BadCallerError(f"Caller.options: {error}") from None
    return found


def checked_binding(caller: Caller, codec: Codec) -> Caller:
    """Refuse a binding that does not fit the codec, as `BadCallerError`."""
    try:
        codec.check(caller.binding)
    except (TypeError, ValueError) as error:
        raise BadCallerError(f"Caller.binding: {error}") from None
    return caller
