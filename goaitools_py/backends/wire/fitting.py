"""Fits settings that were written for another model: the changes that all provider APIs share.

Owns: `Fitting`, the settings while they are fitted, and the rules that depend on the model alone.
Must never know: a provider API's own members, or where a setting was kept.

Settings that a caller wrote for the model are never changed here. If a provider refuses one, its error is the
answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..capabilities import EFFORTS, Capabilities
from ..protocols import Fitted

__all__ = ["Fitting", "fit_effort", "fit_limit", "near_effort"]

_RANK: Final = {word: place for place, word in enumerate(EFFORTS)}


class Fitting:
    """The settings of one request while they are fitted to its model.

    Attributes:
        model: The model's name.
        known: The model's known capabilities.
        has_tools: True if the request offers tools.
        settings: All settings, the given ones over the kept ones.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        kept: Mapping[str, Any],
        *,
        model: str,
        known: Capabilities,
        has_tools: bool,
    ) -> None:
        self.model, self.known, self.has_tools = model, known, has_tools
        self.settings: dict[str, Any] = {**kept, **given}
        self._kept = {name for name in kept if name not in given}
        self._notes: list[str] = []

    def is_kept(self, *names: str) -> bool:
        """True if one of these settings was kept, and is still among the settings."""
        return any(name in self._kept and name in self.settings for name in names)

    def kept(self, name: str) -> Any:
        """The value of a kept setting; None if it is not set."""
        return self.settings.get(name) if name in self._kept else None

    def drop(self, name: str, why: str) -> None:
        """Leave a kept setting out. A given one stays."""
        if self.is_kept(name):
            del self.settings[name]
            self._notes.append(f"{name} is left out: {why}")

    def change(self, name: str, value: Any, why: str) -> None:
        """Give a kept setting another value. A given one stays."""
        if self.is_kept(name) and self.settings[name] != value:
            self.settings[name] = value
            self._notes.append(f"{name} is now {value!r}: {why}")

    def note(self, text: str) -> None:
        """Tell of another change."""
        self._notes.append(text)

    @property
    def fitted(self) -> Fitted:
        """The settings as they are now."""
        return Fitted(self.settings, tuple(self._notes))


def near_effort(word: str, known: tuple[str, ...]) -> str | None:
    """The strongest effort that a model takes and that is not above `word`; else the weakest that it takes.

    None: the model takes no effort, or the word is not in `EFFORTS`.
    """
    rank = _RANK.get(word)
    if rank is None or not known:
        return None
    below = [one for one in known if _RANK[one] <= rank]
    return below[-1] if below else known[0]


def fit_effort(fitting: Fitting) -> None:
    """Change a kept `reasoning_effort` to a word that the model takes."""
    word, words = fitting.kept("reasoning_effort"), fitting.known.efforts
    if word is None or words is None or word in words:
        return
    near = near_effort(word, words)
    if near is None:
        why = "does not take that word" if words else "takes no effort"
        fitting.drop("reasoning_effort", f"{fitting.model} {why}")
    else:
        fitting.change("reasoning_effort", near, f"{fitting.model} does not take the word before")


def fit_limit(fitting: Fitting, *, least: int = 1) -> None:
    """Bring a kept `max_output_tokens` between the least and the most that the model takes."""
    limit, most = fitting.kept("max_output_tokens"), fitting.known.max_output_tokens
    if limit is None:
        return
    if most is not None and limit > most:
        fitting.change("max_output_tokens", most, f"the most that {fitting.model} takes")
    elif limit < least:
        fitting.change("max_output_tokens", least, "the least that the provider API takes")
