"""Rules of hosts of Chat Completions for the messages of a request.

Owns: reading the messages for one rule at a time. Must never know: which host has which rule, or the
words of a refusal.

Each function is a rule, or makes one. It reads an untrusted body: a message of a wrong shape is passed over,
because the company's own rules refuse it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .host import Breaks

__all__ = [
    "alternates",
    "arguments_are_objects",
    "call_after_user",
    "calls_have_reasoning",
    "calls_signed",
    "content_is_text",
    "ends_open",
    "has_user",
    "ids_match",
    "mentions_part",
    "no_empty_content",
    "no_member",
    "no_mute_assistant",
    "no_null",
    "no_part",
    "no_role",
    "not_all_three",
    "one_prefill",
    "one_system",
    "only_members",
    "results_answer",
    "system_first",
    "user_not_after",
]

JSON = Mapping[str, Any]


def _messages(body: JSON) -> Iterator[tuple[int, JSON]]:
    """The messages with their places, without messages of a wrong shape."""
    found = body.get("messages")
    for at, message in enumerate(found if isinstance(found, list) else ()):
        if isinstance(message, dict) and isinstance(message.get("role"), str):
            yield at, message


def _replies(body: JSON) -> Iterator[tuple[int, JSON]]:
    return ((at, message) for at, message in _messages(body) if message["role"] == "assistant")


def _calls(message: JSON) -> list[JSON]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _parts(message: JSON) -> list[JSON]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _function(call: JSON) -> JSON:
    function = call.get("function")
    return function if isinstance(function, dict) else {}


# ------------------------------------------------------------------------------------------- roles


def no_role(role: str) -> Breaks:
    """No message has this role. Names the message's place."""

    def breaks(body: JSON) -> str | None:
        return next((str(at) for at, message in _messages(body) if message["role"] == role), None)

    return breaks


def system_first(body: JSON) -> str | None:
    """A system message is the first message, and there is no second."""
    return next((str(at) for at, message in _messages(body) if at and message["role"] == "system"), None)


def one_system(body: JSON) -> str | None:
    """No second system message follows the first directly."""
    roles = [message["role"] for _, message in _messages(body)]
    return "1" if roles[:2] == ["system", "system"] else None


def alternates(*, counts_results: bool) -> Breaks:
    """After the leading system messages a user speaks, then the assistant, and so on. Names the place.

    Args:
        counts_results: True: all results of one reply speak as a user does, and the reply with the calls as
            an assistant does. False: calls and results are passed over.
    """

    def breaks(body: JSON) -> str | None:
        turns: list[tuple[int, str]] = []
        for at, message in _messages(body):
            role = message["role"]
            if role in ("system", "developer") and not turns:
                continue
            if not counts_results and (role == "tool" or _calls(message)):
                continue
            if role == "tool" and turns and turns[-1][1] == "tool":
                continue
            turns.append((at, role))
        for nth, (at, role) in enumerate(turns):
            if (role in ("user", "tool")) is (nth % 2 == 1) or role in ("system", "developer"):
                return str(at)
        return None

    return breaks


def user_not_after(role: str) -> Breaks:
    """No user speaks directly after this role."""

    def breaks(body: JSON) -> str | None:
        before = ""
        for at, message in _messages(body):
            if message["role"] == "user" and before == role:
                return str(at)
            before = message["role"]
        return None

    return breaks


def ends_open(body: JSON) -> str | None:
    """The last message is a user's or a result; an assistant's only as a prefix. Names its role."""
    last = list(_messages(body))[-1:]
    if not last or last[0][1]["role"] in ("user", "tool") or last[0][1].get("prefix"):
        return None
    return str(last[0][1]["role"])


def one_prefill(*, most: int) -> Breaks:
    """At most so many assistant messages are at the end."""

    def breaks(body: JSON) -> str | None:
        roles = [message["role"] for _, message in _messages(body)]
        return str(len(roles) - 1) if roles[-most - 1 :] == ["assistant"] * (most + 1) else None

    return breaks


def has_user(body: JSON) -> str | None:
    """Some user speaks."""
    roles = [message["role"] for _, message in _messages(body)]
    return "" if roles and "user" not in roles else None


def call_after_user(body: JSON) -> str | None:
    """A reply with calls follows a user's message or a result."""
    before = ""
    for at, message in _messages(body):
        if message["role"] in ("system", "developer"):
            continue
        if _calls(message) and before not in ("user", "tool"):
            return str(at)
        before = message["role"]
    return None


# ------------------------------------------------------------------------------------------ content


def content_is_text(body: JSON) -> str | None:
    """Every content is a text. Names the place and the kind that is not one."""
    for at, message in _messages(body):
        content = message.get("content")
        if not isinstance(content, str):
            kind = "array" if isinstance(content, list) else "null" if content is None else "object"
            return f"{at}/content', '{kind}"
    return None


def no_null(body: JSON) -> str | None:
    """A message without calls has content."""
    for at, message in _messages(body):
        if message.get("content") is None and not _calls(message):
            return str(at)
    return None


def no_mute_assistant(body: JSON) -> str | None:
    """An assistant says something: a text, or calls without the empty text."""
    for at, message in _replies(body):
        content = message.get("content")
        if content == "" if _calls(message) else not content:
            return str(at)
    return None


def no_empty_content(body: JSON) -> str | None:
    """No content is an empty list. No text is empty but beside calls, and in a result."""
    for at, message in _messages(body):
        content = message.get("content")
        if content == [] or (content == "" and message["role"] != "tool" and not _calls(message)):
            return str(at)
    return None


def mentions_part(*roles: str, kind: str) -> Breaks:
    """No message of these roles has a part of this kind."""

    def breaks(body: JSON) -> str | None:
        for at, message in _messages(body):
            if message["role"] in roles and any(part.get("type") == kind for part in _parts(message)):
                return str(at)
        return None

    return breaks


def no_part(*allowed: str, picture: Callable[[str], bool] | None = None) -> Breaks:
    """Every part is of an allowed kind, and every picture has an address that is taken.

    Without `picture`, all addresses are taken; with it, only pictures are looked at.
    """

    def breaks(body: JSON) -> str | None:
        for at, message in _messages(body):
            for part in _parts(message):
                if picture is None:
                    if part.get("type") not in allowed:
                        return str(at)
                elif part.get("type") == "image_url":
                    found = part.get("image_url")
                    url = found.get("url") if isinstance(found, dict) else found
                    if isinstance(url, str) and not picture(url):
                        return str(at)
        return None

    return breaks


# ---------------------------------------------------------------------------------------- reasoning


def calls_have_reasoning(*, may_be_empty: bool, thinks: Callable[[JSON], bool]) -> Breaks:
    """While the model thinks, a reply with calls has `reasoning_content`. Names the message's place."""

    def breaks(body: JSON) -> str | None:
        if not thinks(body):
            return None
        for at, message in _replies(body):
            found = message.get("reasoning_content")
            if _calls(message) and not (isinstance(found, str) and (found or may_be_empty)):
                return str(at)
        return None

    return breaks


def not_all_three(body: JSON) -> str | None:
    """No reply has content, reasoning and calls together."""
    for at, message in _replies(body):
        if message.get("content") and message.get("reasoning_content") and _calls(message):
            return str(at)
    return None


def calls_signed(*, thinks: Callable[[JSON], bool]) -> Breaks:
    """The first call of each reply behind the newest user's message has a thought signature. Names the tool
    and the place of the message."""

    def breaks(body: JSON) -> str | None:
        messages = list(_messages(body))
        newest = max((at for at, message in messages if message["role"] == "user"), default=0)
        if not thinks(body):
            return None
        for at, message in _replies(body):
            calls = _calls(message)
            if at < newest or not calls:
                continue
            extra = calls[0].get("extra_content")
            google = extra.get("google") if isinstance(extra, dict) else None
            if not (isinstance(google, dict) and google.get("thought_signature")):
                return f"`default_api:{_function(calls[0]).get('name')}` , position {at + 1}"
        return None

    return breaks


# ----------------------------------------------------------------------------------- members and ids


def no_member(role: str, key: str, *, unless: Callable[[JSON], bool] | None = None) -> Breaks:
    """No message of this role has this member. Names the message's place."""

    def breaks(body: JSON) -> str | None:
        if unless is not None and unless(body):
            return None
        return next((str(at) for at, m in _messages(body) if m["role"] == role and key in m), None)

    return breaks


def only_members(messages: Mapping[str, Sequence[str]], calls: Sequence[str]) -> Breaks:
    """Messages and calls have no other members than these. Names the path of the member."""

    def breaks(body: JSON) -> str | None:
        for at, message in _messages(body):
            role = message["role"]
            for key in message:
                if key not in messages.get(role, (key,)):
                    return f"messages.{at}.{role}.{key}"
            for nth, call in enumerate(_calls(message)):
                for key in call:
                    if key not in calls:
                        return f"messages.{at}.{role}.tool_calls.{nth}.{key}"
        return None

    return breaks


def ids_match(pattern: re.Pattern[str]) -> Breaks:
    """Every id of a call matches. Names the id."""

    def breaks(body: JSON) -> str | None:
        for _, message in _messages(body):
            for found in (*(call.get("id") for call in _calls(message)), message.get("tool_call_id")):
                if isinstance(found, str) and not pattern.fullmatch(found):
                    return found
        return None

    return breaks


def results_answer(body: JSON) -> str | None:
    """Every result answers a call before it. Names the id."""
    known: set[Any] = set()
    for _, message in _messages(body):
        known |= {str(call.get("id")) for call in _calls(message)}
        if message["role"] == "tool" and str(message.get("tool_call_id")) not in known:
            return str(message.get("tool_call_id"))
    return None


def arguments_are_objects(body: JSON) -> str | None:
    """The arguments of every call are a JSON object. Names the message's place."""
    for at, message in _messages(body):
        for call in _calls(message):
            try:
                value = json.loads(str(_function(call).get("arguments")))
            except (ValueError, RecursionError):
                return str(at)
            if not isinstance(value, dict):
                return str(at)
    return None
