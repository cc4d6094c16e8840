"""Estimates how many tokens messages are, and corrects the estimates with a conversation's real usage.

Owns: the counter that needs no vocabulary, and the step from one real usage to the next request's size.
Must never know: a state, a turn, a provider's JSON.

The provider reports the size of each request. Only later messages have to be estimated: the reply, with
tokens that the provider also reports, and a few new messages. Their estimate is multiplied by the ratio of
real to estimated tokens in this conversation so far (`Gauge.scale`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

from ..base.values import Value, replace
from .messages import Message, Text, Usage
from .token_rules import MediaRates, TiktokenCounter, media_tokens

__all__ = [
    "RATES",
    "ExchangeEstimate",
    "Frames",
    "Gauge",
    "Rates",
    "ReasoningStays",
    "TiktokenCounter",
    "TokenCounter",
    "TokenEstimate",
    "learned",
    "needs_reply",
    "text_tokens",
]


class TokenCounter(Protocol):
    """Counts the tokens of a message as a part of a request."""

    def count(self, message: Message, /) -> int:
        """The message's tokens, with the tokens that the provider adds for its role."""
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
        letter: ASCII letters. A common word is one token, and the space before it belongs to that token.
        digit: ASCII digits.
        blank: Spaces and tabs.
        line_break: Carriage returns and newlines.
        beyond_ascii: Bytes of characters beyond ASCII.
        sign: All other bytes.
        word: The longest average word, in letters and digits. Text above that average is not words, but
            keys, hashes or Base64.
        dense: Additional tokens for each byte above that average.
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
"""Fitted to recorded text replies of OpenAI and Anthropic with known output tokens.
benchmarks/token_fit.py measures the error for texts that the fit did not use."""


def text_tokens(data: bytes) -> float:
    """Estimate the tokens of UTF-8 text from its classes of bytes, for OpenAI's vocabularies."""
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


class Frames(MediaRates, frozen=True, kw_only=True):
    """Tokens that a provider adds around the text of messages, and those of pictures and documents.

    Attributes:
        density: Tokens of this provider's vocabulary for one token of OpenAI's older vocabularies.
        said: For a message.
        result: For a tool's result.
        call: For a call.
        parallel: For the results of several calls of one reply, in addition to `result` for each.
        event: For an event.
        keeps_reasoning: True if the input of later requests contains reasoning that no text shows.

    The defaults are for Chat Completions, and for a dialect without numbers of its own. All numbers are
    fitted to the differences between consecutive recorded usages.
    """

    density: float = 1.1
    said: float = 5.0
    result: float = 8.0
    call: float = 4.0
    parallel: float = 0.0
    event: float = 24.0
    keeps_reasoning: bool = False


class TokenEstimate(Value, frozen=True):
    """Counts without a vocabulary: text by classes of bytes, pictures and documents by size.

    Args:
        frames: The tokens around messages: the `frames` of a backend's dialect.
    """

    frames: Frames = Frames()

    def count(self, message: Message, /) -> int:
        """The message's tokens, with the tokens that the provider adds for its role; at least 1."""
        frames = self.frames
        words = 0.0
        size = frames.result if message.role == "tool" else frames.said
        if message.is_event:
            size += frames.event
        for part in message.parts:
            if isinstance(part, Text):
                words += text_tokens(part.text.encode("utf-8", "replace"))
            else:
                size += media_tokens(part, frames)
        for call in message.tool_calls:
            size += frames.call
            words += text_tokens(f"{call.name}{call.arguments}".encode("utf-8", "replace"))
        return max(1, round(size + words * frames.density))

    def between(self, messages: Sequence[Message]) -> int:
        """Tokens that the messages take together, in addition to the sum of each.

        A provider writes the results of several calls of one reply into an additional block.
        """
        blocks, before = 0, 0
        for message in messages:
            before = before + 1 if message.role == "tool" else 0
            blocks += before == 2
        return round(blocks * self.frames.parallel)


# -------------------------------------------------------------------- learned from the conversation

ReasoningStays: TypeAlias = Literal["never", "loop", "always"]
"""How long later requests contain a reply's reasoning, as their usage counts it: never; while its tool loop
runs; or as long as they contain the reply."""

_PRIOR: Final = 150.0
"""The weight of the initial scale of 1, in estimated tokens, against the conversation's own ratio."""
_MEMORY: Final = 3_000.0
"""The number of newest estimated tokens that the scale uses. A conversation's style changes slowly."""
_BOUNDS: Final = (0.4, 2.5)
"""A ratio outside these bounds has another cause: a hosted tool read pages, or the server added text."""
_MARGIN: Final = 4


class Gauge(Value, frozen=True, kw_only=True):
    """The knowledge about a conversation's tokens: a few numbers, for a conversation of any length.

    Attributes:
        tokens: The size of the next request without new messages, with preamble and tools.
        is_anchored: True if `tokens` comes from a real usage and nothing it counted was rewritten since.
        frame: The part of `tokens` that preamble and tools take, as far as it is known.
        thinking: The part of `tokens` that is reasoning and is no longer sent when the open turn ends.
        estimated: The estimate for the newest messages of known real size.
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
        """Real tokens for one estimated token in this conversation."""
        return (self.real + _PRIOR) / (self.estimated + _PRIOR)

    def expected(self, estimate: float) -> int:
        """Input tokens of the next request, if messages with this estimate are added."""
        return self.tokens + round(estimate * self.scale)


class ExchangeEstimate(Value, frozen=True, kw_only=True):
    """Estimates for a request and its reply.

    Attributes:
        sent: The tokens that the request added to the previous one.
        has_media: True if pictures, documents or sound are in `sent`. The scale of text learns nothing then.
        replied: The reply's text and calls; 0 if `needs_reply` says that it does not count.
        has_reasoning: True if the reply holds reasoning, even if the usage does not count it separately.
        goes_on: True if the reply has calls that will be answered: the turn continues.
        stays: How long later requests contain this reply's reasoning.
    """

    sent: int
    has_media: bool = False
    replied: int = 0
    has_reasoning: bool = False
    goes_on: bool = False
    stays: ReasoningStays = "loop"


def needs_reply(usage: Usage, *, has_reasoning: bool) -> bool:
    """True if `learned` needs an estimate of the reply: its usage does not tell the visible part."""
    return not usage.input_tokens or has_reasoning or bool(usage.reasoning_tokens)


def learned(gauge: Gauge, usage: Usage, said: ExchangeEstimate) -> Gauge:
    """Update the gauge with a request, its reply, and the provider's usage for both.

    If the usage has no input tokens, because the server counts nothing, the estimates are used.
    """
    if not usage.input_tokens:
        return replace(gauge, tokens=gauge.expected(said.sent + said.replied), is_anchored=False)
    if gauge.is_anchored:
        if said.sent and not said.has_media:
            gauge = _taught(gauge, said.sent, usage.input_tokens - gauge.tokens)
    else:
        history = gauge.tokens - gauge.frame
        gauge = replace(gauge, frame=max(0, usage.input_tokens - history - round(said.sent * gauge.scale)))
    thought = min(usage.reasoning_tokens, usage.output_tokens)
    visible = usage.output_tokens - thought
    if needs_reply(usage, has_reasoning=said.has_reasoning):
        # Some servers report reasoning in steps of 64 or not at all: limit the visible part by its estimate.
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
