"""The facts in the header of a chat.

Owns: which facts stand there, in which words, and how they fit a width. Must never know: a screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from .terminal import counted, printable

if TYPE_CHECKING:
    from ..chat.kept.facade import ConversationInfo

__all__ = ["HeaderFacts", "dollars", "gauge", "header_facts", "header_lines", "short", "shortened"]

_SEPARATOR: Final = " │ "
_GAUGE_WIDTH: Final = 8
_MAX_NAME: Final = 28


class HeaderFacts(NamedTuple):
    """The facts of one conversation.

    Attributes:
        name: Its key, and its title if it has one.
        turns: How many turns it has had.
        tokens_in: Input tokens of its life.
        tokens_out: Output tokens of its life.
        context: Tokens of the next request.
        fraction: The part of the model's context window in use; None if the window is not known.
        cost: US dollars; None if that is not known.
    """

    name: str
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    context: int = 0
    fraction: float | None = None
    cost: Decimal | None = None


def header_facts(key: str, info: ConversationInfo | None) -> HeaderFacts:
    """The facts of the conversation under a key. `info`: None if nothing is stored."""
    if info is None:
        return HeaderFacts(key)
    state = info.state
    return HeaderFacts(
        name=f"{key}: {info.title}" if info.title else key,
        turns=state.turns_processed,
        tokens_in=state.total_usage.input_tokens,
        tokens_out=state.total_usage.output_tokens,
        context=state.tokens,
        fraction=state.context_fraction,
        cost=state.total_cost_usd,
    )


def header_lines(facts: HeaderFacts, status: str, width: int) -> list[str]:
    """The header in lines of at most `width` characters. A narrow terminal gets more lines."""
    lines = [""]
    for piece in _pieces(facts, status):
        piece = shortened(piece, width)
        longer = f"{lines[-1]}{_SEPARATOR}{piece}" if lines[-1] else piece
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _pieces(facts: HeaderFacts, status: str) -> Iterator[str]:
    yield shortened(" ".join(printable(facts.name).split()), _MAX_NAME)
    yield counted(facts.turns, "turn")
    yield f"{short(facts.tokens_in)} in {short(facts.tokens_out)} out"
    yield gauge(facts.fraction) if facts.fraction is not None else f"context {short(facts.context)}"
    if facts.cost is not None:
        yield dollars(facts.cost)
    yield status


def gauge(fraction: float, width: int = _GAUGE_WIDTH) -> str:
    """A bar with the part that is used, and the number: "██░░░░░░ 23%"."""
    full = min(width, max(0, round(fraction * width)))
    return f"{'█' * full}{'░' * (width - full)} {fraction:.0%}"


def dollars(cost: Decimal) -> str:
    """An amount with as many digits as it needs: "$1.23", "$0.0045"."""
    return f"${cost:,.2f}" if cost >= 1 or not cost else f"${cost:.4f}"


def short(number: int) -> str:
    """A number in at most five characters: 950, 12.3k, 1.2M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.{1 if number < 100 * size else 0}f}{letter}"
    return str(number)


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis if it is longer."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"
