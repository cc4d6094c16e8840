"""The checks of `goaitools doctor --live`: questions to a model, and the package's assumptions about replies.

Owns: the table `CHECKS`, its questions, and the comparisons. Must never know: how a call is made, or how a
result is printed. A check returns a note. If a reply differs, it raises an error of `live_model`. Notes
consist of fixed words, numbers, names of error classes and codes: no reply is quoted.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .live_model import DiffersError, Live, LiveCheck, NotOfferedError, SkippedError, told

if TYPE_CHECKING:
    from .. import ChatResult, Tool

__all__ = ["CHECKS"]

_GREET: Final = "My name is Ada. Greet me by my name, in one short sentence."
_WHO: Final = "What is my name? Answer with the name only."
_STORY: Final = (
    "My name is Ada. My town is Harrogate. My team is Red. My colour is green. "
    "Write a long story about all of this."
)
_RED: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAKElEQVR4nO3NsQ0AAAzCMP5/un0CNkuZ41wybXsHAA"
    "AAAAAAAAAAxR4yw/wuPL6QkAAAAABJRU5ErkJggg=="
)
"""A PNG of 32 by 32 red pixels."""
_CACHED_RULES: Final = 66
"""Lines of the cached text, some 18 tokens each: OpenAI and most Claude models cache from 1,024 tokens."""


def _complete(result: ChatResult, *words: str) -> None:
    if result.status != "complete":
        raise DiffersError(f"the reply is {result.status.replace('_', ' ')}{_advice(result)}")
    if not all(word in result.text for word in words):
        raise DiffersError("the reply does not have the word that was asked for")


def _advice(result: ChatResult) -> str:
    return ": a larger --max-output may help" if result.status == "truncated" else ""


# ------------------------------------------------------------------------------------ text and streams


def _first(live: Live) -> ChatResult:
    return live.once("first", lambda live: live.say(None, _GREET))


def _streamed(live: Live) -> tuple[ChatResult, list[Any]]:
    name = "My name is Zoë 東京 🙂. Greet me by my whole name, with its emoji."
    return live.once("streamed", lambda live: live.stream(None, name))


def plain(live: Live) -> str:
    """A reply in one piece."""
    _complete(_first(live), "Ada")
    return ""


def usage(live: Live) -> str:
    """The tokens of that reply."""
    return _counted(_first(live))


def stream(live: Live) -> str:
    """A streamed text: its pieces are the reply."""
    from ..types.events import TextDelta

    result, events = _streamed(live)
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    _complete(result)
    if not pieces or "".join(pieces) != result.text:
        raise DiffersError("the pieces are not the text of the reply")
    return f"{len(pieces)} pieces"


def usage_in_stream(live: Live) -> str:
    """The tokens of the stream."""
    return _counted(_streamed(live)[0])


def unicode(live: Live) -> str:
    """Letters, ideographs and an emoji are sent and come back."""
    _complete(_streamed(live)[0], "Zoë", "東京", "🙂")
    return ""


def _counted(result: ChatResult) -> str:
    if not result.usage.input_tokens or not result.usage.output_tokens:
        raise DiffersError("no tokens in, or no tokens out")
    return ""


def second_turn(live: Live) -> str:
    """The history, as the model wrote it, goes back."""
    _complete(live.say(_first(live).state, _WHO), "Ada")
    return ""


def system_prompt(live: Live) -> str:
    """The system text reaches the model."""
    _complete(live.say(None, _WHO, system="You are a game guide. The user's name is Ada."), "Ada")
    return ""


def odd_name(live: Live) -> str:
    """A speaker's name with quotation marks, brackets and an accent."""
    _complete(live.say(None, _GREET, speaker='Zoë "Z" O’Neil <1> \\ {x}'))
    return ""


# ------------------------------------------------------------------------------------------- the tools


def _tool() -> Tool[..., Any]:
    from .. import Tool

    team = {"type": "string", "description": "The team's name."}
    schema = {
        "type": "object",
        "properties": {"team": team},
        "required": ["team"],
        "additionalProperties": False,
    }
    return Tool("get-score_V2", "The present score of one team.", schema, external=True)


def _one_call(live: Live) -> ChatResult:
    asked = "Call get-score_V2 for the team Red. Then say the score."
    return live.once("one_call", lambda live: live.say(None, asked, tools=[_tool()]))


def _two_calls(live: Live) -> ChatResult:
    asked = "Call get-score_V2 for the team Red and for the team Blue, both at once. Then say both scores."
    return live.once("two_calls", lambda live: live.say(None, asked, tools=[_tool()]))


def _teams(result: ChatResult) -> list[str]:
    """The teams in the calls' arguments; "" for arguments that do not fit the schema."""
    found = []
    for call in result.pending:
        try:
            value = call.parsed.get("team") if call.name == "get-score_V2" else None
        except (ValueError, AttributeError):
            value = None
        found.append(value if isinstance(value, str) else "")
    return sorted(found)


def one_call(live: Live) -> str:
    """A call of a tool with a dash, an underscore, a capital and a digit in its name."""
    result = _one_call(live)
    if result.status != "awaiting_tools":
        raise DiffersError(f"no call: the reply is {result.status}{_advice(result)}")
    if _teams(result) != ["Red"]:
        raise DiffersError("the call has another name or other arguments")
    return ""


def its_result(live: Live) -> str:
    """The result goes back, and the reply uses it."""
    called = _one_call(live)
    if _teams(called) != ["Red"]:
        raise SkippedError("no such call came")
    _complete(_with_results(live, called, 42), "42")
    return ""


def two_calls(live: Live) -> str:
    """Two calls in one reply."""
    teams = _teams(_two_calls(live))
    if teams == ["Blue", "Red"]:
        return ""
    if teams in (["Red"], ["Blue"]):
        raise NotOfferedError("the model calls one at a time")
    raise DiffersError("the calls are not the two that were asked for")


def both_results(live: Live) -> str:
    """Both results go back."""
    called = _two_calls(live)
    if _teams(called) != ["Blue", "Red"]:
        raise SkippedError("no two calls came")
    _complete(_with_results(live, called, 42, 57), "42", "57")
    return ""


def _with_results(live: Live, called: ChatResult, *scores: int) -> ChatResult:
    from .. import ToolReturn

    answers = {call.id: ToolReturn(str(score)) for call, score in zip(called.pending, scores, strict=True)}
    return live.answer(called.state, answers, tools=[_tool()])


# ---------------------------------------------------------------- typed answers, thinking, pictures


@dataclass(frozen=True)
class TeamScore:
    """The type of the typed answer."""

    team: str
    points: int


def typed(live: Live) -> str:
    """An answer of a type, in the provider's own format for schemas."""
    result = live.say(None, "The team Red has 42 points.", output_type=TeamScore)
    _complete(result)
    if not isinstance(result.output, TeamScore) or result.output.points != 42:
        raise DiffersError("the value is another one")
    return "" if result.iterations == 1 else f"after {result.iterations} answers"


def _thought(live: Live) -> tuple[ChatResult, list[Any]]:
    asked = "How many of the numbers from 10 to 30 are prime? Answer with the number only."
    return live.once("thought", lambda live: live.stream(None, asked, **live.thinking))


def _has_thought(live: Live) -> bool:
    from ..types.events import ReasoningDelta

    result, events = _thought(live)
    return bool(result.usage.reasoning_tokens) or any(isinstance(one, ReasoningDelta) for one in events)


def thinking(live: Live) -> str:
    """The model thinks on request, and its thinking is visible or counted."""
    _complete(_thought(live)[0])
    if not _has_thought(live):
        raise NotOfferedError("taken, and no thinking was shown or counted")
    return ""


def thinking_sent_back(live: Live) -> str:
    """The next turn sends the thinking back as it came."""
    if not _has_thought(live):
        raise SkippedError("no thinking came")
    result = live.say(_thought(live)[0].state, "Add one to it.", **live.thinking)
    _complete(result)
    if any(warning.code.startswith("thinking_") for warning in result.warnings):
        raise DiffersError("the thinking was taken out of the history")
    return ""


def picture(live: Live) -> str:
    """The provider accepts a red square of 32 by 32 pixels."""
    from .. import Image

    asked = [
        "Which colour is this picture? Answer with one word.",
        Image.from_bytes(b64decode(_RED), "image/png"),
    ]
    result = live.say(None, asked)
    _complete(result)
    return "its colour was named" if "red" in result.text.lower() else "its colour was not named"


# -------------------------------------------------------------------------- counts, caches, and limits


def count(live: Live) -> str:
    """The provider's own count of a request's tokens."""
    try:
        found = live.chat.count_tokens(None, user=_GREET)
    except ValueError as error:
        raise NotOfferedError("this provider API has no such call") from error
    if found < 1:
        raise DiffersError("no tokens were counted")
    return f"{found} tokens"


def cache(live: Live) -> str:
    """Two calls with one long beginning: the second counts cached tokens."""
    rules = "\n".join(
        f"Rule {number} of the game: the player who reaches square {number * 7} gets {number} points."
        for number in range(1, _CACHED_RULES + 1)
    )
    first = live.say(None, "Say hello.", system=rules)
    second = live.say(None, "Say goodbye.", system=rules)
    _complete(first)
    _complete(second)
    if not second.usage.cached_input_tokens:
        raise NotOfferedError(
            f"no cached tokens of {second.usage.input_tokens}; the model may cache longer texts"
        )
    return f"{second.usage.cached_input_tokens} of {second.usage.input_tokens} tokens cached"


def _cut(live: Live) -> ChatResult:
    from .. import ModelSettings

    # 16 tokens are the least that the Responses API takes.
    return live.once("cut", lambda live: live.say(None, _STORY, settings=ModelSettings(max_output_tokens=16)))


def truncated(live: Live) -> str:
    """A reply that reaches its limit says so."""
    result = _cut(live)
    if result.status != "truncated":
        raise DiffersError(f"the reply is {result.status}")
    return ""


def after_truncated(live: Live) -> str:
    """The provider accepts a history with a reply that was cut off."""
    result = live.say(_cut(live).state, _WHO)
    _complete(result, "Ada")
    return ""


def overflow(live: Live) -> str:
    """A text above the model's context."""
    from ..types.errors import ContextTooLongError

    if live.window is None:
        raise SkippedError("--overflow asks for it: a host that takes it bills all of it")
    window = live.window or live.known.context_window
    if not window:
        raise SkippedError("the model's context is not known: --overflow TOKENS")
    try:
        live.say(None, "a " * (window + window // 5))
    except ContextTooLongError as error:
        return told(error)
    raise DiffersError("it was answered: the host has a larger context, or cuts the prompt")


# ------------------------------------------------------------------------------ calls that must fail


def wrong_key(live: Live) -> str:
    """An invalid key."""
    from ..types.errors import AuthenticationError

    if live.is_simulated:
        raise SkippedError("the simulator has no keys")
    try:
        live.with_wrong_key(_GREET)
    except AuthenticationError as error:
        return told(error)
    raise NotOfferedError("the host takes any key")


def unknown_model(live: Live) -> str:
    """A model that does not exist."""
    from .. import ModelSettings
    from ..types.errors import ProviderRejectedError

    settings = ModelSettings(
        model="goaitools-doctor-no-such-model", max_output_tokens=live.max_output, reasoning_effort=None
    )
    try:
        live.say(None, _GREET, settings=settings)
    except ProviderRejectedError as error:
        return told(error)
    raise NotOfferedError("the host answers for any name")


def blank(live: Live) -> str:
    """A message of white space, and the turn after it. An empty one is refused before it is sent."""
    from ..types.errors import ProviderRejectedError

    try:
        live.chat.chat(user="")
    except ValueError:
        pass
    else:
        raise DiffersError("the package has sent an empty text")
    state: bytes | None = None
    try:
        state = live.say(None, " ").state
        came = "taken"
    except ValueError:
        came = "refused before it is sent"
    except ProviderRejectedError as error:
        state = error.state or None
        came = f"refused ({told(error)})"
    _complete(live.say(state, _GREET), "Ada")
    return f"white space is {came}"


def _stopped(live: Live) -> bytes | None:
    return live.once("stopped", lambda live: live.stop_in_stream(_STORY))


def cancelled(live: Live) -> str:
    """A stream that is stopped after its first text."""
    if _stopped(live) is None:
        raise DiffersError("the stream had no text")
    return "the host does not say what it bills for it"


def after_cancelled(live: Live) -> str:
    """The turn after a cancelled one knows the earlier messages."""
    state = _stopped(live)
    if state is None:
        raise SkippedError("the stream had no text")
    _complete(live.say(state, _WHO), "Ada")
    return ""


CHECKS: Final = (
    LiveCheck("plain text", "a complete reply that knows the message", plain),
    LiveCheck("usage of a reply", "tokens in and out", usage, calls=0, tokens_in=0),
    LiveCheck("a stream", "pieces that make up the reply", stream),
    LiveCheck("usage in a stream", "tokens in and out", usage_in_stream, calls=0, tokens_in=0),
    LiveCheck("Unicode and emoji", "they come back unchanged", unicode, calls=0, tokens_in=0),
    LiveCheck("a second turn", "the reply goes back as it came, and is known", second_turn),
    LiveCheck("a system text", "the reply knows it", system_prompt),
    LiveCheck("a speaker's odd name", "a complete reply", odd_name),
    LiveCheck("one tool call", "one call that fits the schema", one_call, tokens_in=800, is_optional=True),
    LiveCheck("its result", "the reply has read it", its_result, tokens_in=900),
    LiveCheck("two calls at once", "two calls in one reply", two_calls, tokens_in=800, is_optional=True),
    LiveCheck("both results", "the reply has read both", both_results, tokens_in=1000),
    LiveCheck("a typed answer", "JSON that fits the type", typed, calls=2, tokens_in=900, is_optional=True),
    LiveCheck("a picture", "a complete reply", picture, tokens_in=9000, is_optional=True),
    LiveCheck("thinking", "thinking that is shown or counted", thinking, is_optional=True, thinks=True),
    LiveCheck("thinking sent back", "the history is taken", thinking_sent_back, tokens_in=400, thinks=True),
    LiveCheck("a count of tokens", "a number", count, calls=0, is_optional=True),
    LiveCheck("a cache", "cached tokens are counted", cache, calls=2, tokens_in=3200),
    LiveCheck("a limit of 16 tokens", "the status truncated", truncated),
    LiveCheck("a turn after it", "the cut reply is taken", after_truncated),
    LiveCheck("an empty message", "taken or refused, and the next turn works", blank, calls=2, tokens_in=300),
    LiveCheck("a cancelled stream", "text, and then the end", cancelled),
    LiveCheck("a turn after that", "the message is known", after_cancelled),
    LiveCheck("a wrong key", "AuthenticationError", wrong_key, calls=0),
    LiveCheck("an unknown model", "ProviderRejectedError", unknown_model),
    LiveCheck("a context overflow", "ContextTooLongError", overflow, calls=0),
)
"""In this order. If the first gets no whole reply, the others are skipped."""
