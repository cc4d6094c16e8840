"""How many tokens messages are: estimates, and what a conversation's real usages have taught about it.

Owns: the counter that needs no vocabulary, and the arithmetic from one real usage to the next request's.
Must never know: a state, a turn, a provider's JSON.

A provider says what a request took. So what has to be estimated is only what came since: the reply, whose
tokens the provider counted too, and a few new messages. Their estimate is multiplied by what the same
estimate was worth in this conversation so far (`Gauge.scale`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from .media import media_tokens
from .messages import Message, Text, Usage
from .values import Value, replace

__all__ = [
    "FRAMES",
    "RATES",
    "Frames",
    "Gauge",
    "Rates",
    "ReasoningStays",
    "Said",
    "TokenCounter",
    "TokenEstimate",
    "learned",
    "text_tokens",
]


class TokenCounter(Protocol):
    """Says how many tokens a message is when it is a part of a request."""

    def count(self, message: Message, /) -> int:
        """Tokens of the message, its role's frame included."""
        ...


# --------------------------------------------------------------------------------------- the estimate

_LETTERS: Final = bytes(range(65, 91)) + bytes(range(97, 123))
_DIGITS: Final = b"0123456789"
_BLANKS: Final = b" \t"
_BREAKS: Final = b"\r\n"
_BEYOND: Final = bytes(range(128, 256))


class Rates(Value, frozen=True, kw_only=True):
    """Tokens per byte of text, by class of byte.

    Attributes:
        letter: ASCII letters. Common words are one token, and the blank before a word belongs to it.
        digit: ASCII digits.
        blank: Spaces and tabs.
        line_break: Carriage returns and newlines.
        beyond_ascii: Bytes of characters beyond ASCII.
        sign: All other bytes.
        word: How many letters and digits one word has at most, on average. What a text has beyond that is no
            words: keys, hashes, Base64.
        dense: Tokens that each such byte takes in addition.
    """

    letter: float
    digit: float
    blank: float
    line_break: float
    beyond_ascii: float
    sign: float
    word: float
    dense: float


RATES: Rates = Rates(
    letter=0.11,
    digit=0.55,
    blank=0.55,
    line_break=0.45,
    beyond_ascii=0.4,
    sign=0.55,
    word=9.0,
    dense=0.6,
)
"""Fitted to recorded answers that were nothing but text, OpenAI's and Anthropic's, whose output tokens the
provider counted. benchmarks/token_fit.py says how good they are for sources that they were not fitted to."""


def text_tokens(data: bytes) -> float:
    """Tokens of UTF-8 text by its classes of bytes, about those of OpenAI's vocabularies."""
    rates = RATES
    rest = data.translate(None, _LETTERS)
    letters = len(data) - len(rest)
    digits = len(rest) - len(rest := rest.translate(None, _DIGITS))
    between = len(rest)
    blanks = len(rest) - len(rest := rest.translate(None, _BLANKS))
    breaks = len(rest) - len(rest := rest.translate(None, _BREAKS))
    beyond = len(rest) - len(rest := rest.translate(None, _BEYOND))
    tokens = (
        letters * rates.letter
        + digits * rates.digit
        + blanks * rates.blank
        + breaks * rates.line_break
        + beyond * rates.beyond_ascii
        + len(rest) * rates.sign
    )
    excess = letters + digits - (between + 1) * rates.word
    return tokens + excess * rates.dense if excess > 0 else tokens


class Frames(Value, frozen=True, kw_only=True):
    """What a provider's prompt holds around the words, in tokens.

    Attributes:
        density: How many tokens its vocabulary needs where OpenAI's older ones need one.
        said: Around a message.
        result: Around a tool's result.
        call: Around a call.
        parallel: Around the results of calls that a model made at once, beyond what each takes alone.
        event: Around an event.
    """

    density: float
    said: float
    result: float
    call: float
    parallel: float
    event: float = 24.0


FRAMES: dict[str, Frames] = {
    "openai": Frames(density=1.1, said=5.0, result=8.0, call=4.0, parallel=0.0),
    "openai-responses": Frames(density=1.1, said=5.0, result=11.0, call=6.0, parallel=17.0),
    "anthropic": Frames(density=1.25, said=4.0, result=14.0, call=12.0, parallel=42.0),
}
"""By provider API. Fitted to the differences between successive recorded usages."""


class TokenEstimate(Value, frozen=True):
    """Counts without a vocabulary: by classes of bytes, and by size for pictures and documents.

    Args:
        wire: Whose prompt format to think of; an unknown one is taken for "openai".
    """

    wire: str = "openai"

    def count(self, message: Message, /) -> int:
        """Tokens of the message, its role's frame included; at least 1."""
        frames = FRAMES.get(self.wire) or FRAMES["openai"]
        words = 0.0
        size = frames.result if message.role == "tool" else frames.said
        if message.is_event:
            size += frames.event
        for part in message.parts:
            if isinstance(part, Text):
                words += text_tokens(part.text.encode("utf-8", "replace"))
            else:
                size += media_tokens(part, self.wire)
        for call in message.tool_calls:
            size += frames.call
            words += text_tokens(f"{call.name}{call.arguments}".encode("utf-8", "replace"))
        return max(1, round(size + words * frames.density))

    def between(self, messages: Sequence[Message]) -> int:
        """Tokens that messages take together beyond what each takes alone.

        A provider writes the results of calls that were made at once into a block of their own.
        """
        blocks, before = 0, 0
        for message in messages:
            before = before + 1 if message.role == "tool" else 0
            blocks += before == 2
        return round(blocks * (FRAMES.get(self.wire) or FRAMES["openai"]).parallel)


# ------------------------------------------------------------------------- what a conversation teaches

ReasoningStays: TypeAlias = Literal["never", "loop", "always"]
"""Until when a reply's reasoning is a part of later requests, as their usage counts them: not at all; while
the results of its calls go back; or as long as the reply."""

_PRIOR: Final = 150.0
"""How many estimated tokens the first guess counts for against what a conversation teaches."""
_MEMORY: Final = 3_000.0
"""So many of the newest estimated tokens are remembered: a conversation's words change slowly."""
_BOUNDS: Final = (0.4, 2.5)
"""Beyond these a difference between two usages says something else: a hosted tool read pages, a server
added words of its own."""
_MARGIN: Final = 4


class Gauge(Value, frozen=True, kw_only=True):
    """What is known of a conversation's tokens: a few numbers, however long it is.

    Attributes:
        tokens: What the next request holds before anything new is said; what surrounds the history
            (preamble, tools) is a part of it.
        is_anchored: True if `tokens` comes from a real usage, and nothing before its end was rewritten.
        frame: How many of these surround the history, as far as it is known.
        thinking: How many of these are reasoning that leaves when the open turn ends.
        estimated: The estimate for the newest messages whose real size became known.
        real: Their real size.
    """

    tokens: int = 0
    is_anchored: bool = False
    frame: int = 0
    thinking: int = 0
    estimated: int = 0
    real: int = 0

    @property
    def scale(self) -> float:
        """What one estimated token is worth here."""
        return (self.real + _PRIOR) / (self.estimated + _PRIOR)

    def expected(self, estimate: float) -> int:
        """Input tokens of the next request if messages of this estimate are added."""
        return self.tokens + round(estimate * self.scale)


class Said(Value, frozen=True, kw_only=True):
    """A request and its reply, as estimates.

    Attributes:
        sent: What the request added to the one before it.
        has_media: Whether pictures, documents or sound were in that: it teaches nothing about words.
        replied: The reply's text and calls.
        has_reasoning: The reply holds reasoning, whether or not the usage tells it apart.
        goes_on: The reply has calls that will be answered: its turn is not over.
        stays: What becomes of this reply's reasoning.
    """

    sent: int
    has_media: bool = False
    replied: int = 0
    has_reasoning: bool = False
    goes_on: bool = False
    stays: ReasoningStays = "loop"


def learned(gauge: Gauge, usage: Usage, said: Said) -> Gauge:
    """The gauge after a request and its reply, and what the provider counted for them.

    A usage without input tokens, as of a server that counts nothing, leaves everything to the estimates.
    """
    if not usage.input_tokens:
        return replace(gauge, tokens=gauge.expected(said.sent + said.replied), is_anchored=False)
    if gauge.is_anchored:
        if said.sent and not said.has_media:
            gauge = _taught(gauge, said.sent, usage.input_tokens - gauge.tokens)
    else:
        history = gauge.tokens - gauge.frame
        gauge = replace(gauge, frame=max(0, usage.input_tokens - history - round(said.sent * gauge.scale)))
    visible = usage.output_tokens - usage.reasoning_tokens
    thought = usage.reasoning_tokens
    if said.has_reasoning or thought:
        # Reported in steps of 64, or not told apart at all: no more than what the words can be.
        likely = round(said.replied * gauge.scale) + _MARGIN
        if visible > likely:
            visible, thought = likely, usage.output_tokens - likely
    kept = thought if said.stays == "always" or (said.stays == "loop" and said.goes_on) else 0
    tokens, thinking = usage.input_tokens + visible + kept, 0
    if said.stays != "always":
        if said.goes_on:
            thinking = gauge.thinking + kept
        else:
            tokens -= min(gauge.thinking, usage.input_tokens)
    return replace(gauge, tokens=tokens, is_anchored=True, thinking=thinking)


def _taught(gauge: Gauge, sent: int, took: int) -> Gauge:
    low, high = _BOUNDS
    if not low * sent <= took <= high * sent:
        return gauge
    estimated, real = gauge.estimated, gauge.real
    if estimated > _MEMORY:
        estimated, real = round(_MEMORY), round(real * _MEMORY / estimated)
    return replace(gauge, estimated=estimated + sent, real=real + took)
