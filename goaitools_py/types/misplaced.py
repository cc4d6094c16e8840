"""Options given in the wrong place, and where each belongs.

Owns: the error of a method that takes no options of turns. Must never know: the meaning of an option.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .options import OPTION_NAMES, PER_TURN
from .places import known_names, place_of

__all__ = ["refuse_misplaced"]

_A_TURN: Final = "each turn: chat.chat_with_state(state, {0}=…) or conversation.send({0}=…)"
_A_STATE: Final = (
    "each turn of a state: chat.chat_with_state(state, {0}=…); a kept conversation has its key for an id"
)
_ANY_TURN: Final = "the chat, for all its turns: Chat(MODEL, {0}=…); or one turn: conversation.send({0}=…)"


def refuse_misplaced(method: str, given: Iterable[str]) -> None:
    """Raise TypeError for the first name that was given to a method that takes no options of turns.

    Args:
        method: The method's name.
        given: The names of the keywords that it does not have.
    """
    for name in given:
        place = place_of(name)
        if place is None and name in OPTION_NAMES:
            each = _A_STATE if name == "conversation_id" else _A_TURN
            place = (each if name in PER_TURN else _ANY_TURN).format(name)
        found = f"{method}() has no option {name!r}"
        raise TypeError(f"{found}: it belongs to {place}" if place is not None else f"{found}{_guess(name)}")


def _guess(name: str) -> str:
    import difflib  # imported only for a mistake

    close = difflib.get_close_matches(name, (*known_names(), *OPTION_NAMES), n=1, cutoff=0.75)
    return f"; did you mean {close[0]!r}?" if close else ", and no turn has"
