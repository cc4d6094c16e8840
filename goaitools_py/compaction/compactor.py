"""The compactor: a trigger, a strategy, and the way of the turns that a cut removes.

Owns: `Compactor` and its presets, and the note in a history that tells the model of its tool ``recall``: the
note's text, where it stands, and when it is left out. Must never know: how that tool searches, who else makes
a cut, or how a state is stored.

``benchmarks/recall_cost.py`` and ``benchmarks/facts.py`` compare the presets; docs/compaction.md has the
figures.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from ..backends.capabilities import capabilities
from ..backends.dialects import WIRES
from ..base.values import Given, replace
from ..types.request_parts import ContextEdit
from .base import (
    BeforeCut,
    CompactionRequest,
    Kept,
    NoChange,
    Planned,
    Strategy,
    Trigger,
    TriggerFailed,
    check_function,
    check_strategy,
    check_trigger,
    edits_of,
    name_of,
    of_turns,
)
from .strategies import KeepRecentTurns, check_count
from .summary import Summarize
from .triggers import TokenLimit
from .turn_views import TurnView

__all__ = ["RECALL", "RETAIN_BYTES", "Compactor", "with_recall_note"]

RECALL: Final = "recall"
"""The name of the tool that searches the archive, and the kind of the note."""

RECALL_NOTE: Final = (
    "Earlier turns of this conversation are no longer shown. They are kept word for word: the tool recall "
    "searches them."
)


def with_recall_note(request: CompactionRequest, turns: Any) -> Any:
    """Put a note in front of the turns in a strategy's answer, if a cut removes turns.

    Beside the provider's own compaction there is no note: the provider has signed the entries behind it.
    """
    if isinstance(turns, Generator):
        return _noted_later(request, turns)
    if isinstance(turns, Planned):
        return replace(turns, turns=with_recall_note(request, turns.turns))
    if isinstance(turns, NoChange):
        return turns
    if isinstance(turns, Kept):
        return replace(turns, turns=with_recall_note(request, turns.turns))
    kept = tuple(turns)
    if not all(isinstance(turn, TurnView) for turn in kept):
        return turns  # `checked_turns` reports the mistake
    stays = {turn.position for turn in kept}
    dropped = [turn for turn in request.turns if not turn.note and turn.position not in stays]
    gone = sum(turn.entry_bytes - turn.pinned_bytes for turn in dropped)
    if not gone or any(turn.note == RECALL or turn.has_boundary for turn in kept):
        return turns
    at = next((at for at, turn in enumerate(kept) if not turn.note), len(kept))
    old = next((turn for turn in request.turns if turn.note == RECALL), None)
    if old is not None and all(turn.position < old.position for turn in kept[:at]):
        return (*kept[:at], old, *kept[at:])
    note = request.note(RECALL_NOTE, kind=RECALL)
    return (*kept[:at], note, *kept[at:]) if old is not None or note.entry_bytes < gone else turns


def _noted_later(request: CompactionRequest, asks: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    return with_recall_note(request, (yield from asks))


# ----------------------------------------------------------------------------------------- the compactor


RETAIN_BYTES: Final = 65_536
"""How many stored bytes of changed or removed turns stay in a blob, unless a compactor says otherwise."""

RECALL_TOKENS: Final = 600
"""The size of an answer of the tool ``recall``, if there is no limit of tokens to take a part of."""

LEAST_RECALL_TOKENS: Final = 100

_USUAL: Final = 8_000
_LOW: Final = 5_000
"""Where a cut without a summary costs least of the limits that were compared."""

_LEAST: Final = 1_000
"""Tokens for the history. With less the trigger would fire in nearly each turn."""

_KEEPS: Final = 2
_LONG_ARCHIVE: Final = 2**20


class Compactor(Given, frozen=True):
    """Keep the turns that `strategy` keeps, when `trigger` fires.

    ``Compactor(any_of(TokenLimit(8_000), MessageLimit(40)), KeepRecentTurns(6))``

    `before_cut` is called with the turns that are removed or rewritten, in their old form. On an `AsyncChat`
    it may be async. If it raises, nothing is removed.

    It is called *before* the cut, because a state that is saved after the cut no longer has the turns. So it
    may get turns that are not removed after all: the process may crash, or the provider may refuse the
    shorter history too, and the cut is undone. These turns come again. Store each turn under its
    `TurnView.id`, and a turn that comes twice is stored once. A rewritten turn has a new id.

    `retain` keeps removed and changed turns in the state, as its archive. The archive is never sent.
    ``read_history(state, archived=True)`` reads it. `retain_bytes` is how many bytes of the blob it may take,
    as they are stored; the oldest part goes first. Parts of the archive that a store keeps do not count.

    `recall` gives the model the tool ``recall``, which searches the archive, and `retain` with it. A cut
    leaves a note that says so. An answer of the tool has at most `recall_tokens` tokens, as this package
    estimates them. None: an eighth of the trigger's `TokenLimit`; 600 without one.
    """

    trigger: Trigger
    strategy: Strategy
    before_cut: BeforeCut | None = None
    retain: bool = False
    retain_bytes: int = RETAIN_BYTES
    recall: bool = False
    recall_tokens: int | None = None

    def __post_init__(self) -> None:
        check_trigger(self.trigger)
        check_strategy(self.strategy)
        if self.before_cut is not None:
            check_function("a function for before_cut=", self.before_cut)
        if not isinstance(self.retain, bool):
            raise TypeError(f"retain must be True or False, got {type(self.retain).__name__}")
        if not isinstance(self.retain_bytes, int) or isinstance(self.retain_bytes, bool):
            raise TypeError(f"retain_bytes must be an int, got {type(self.retain_bytes).__name__}")
        if self.retain_bytes < 1:
            raise ValueError(f"retain_bytes must be at least 1, got {self.retain_bytes}")
        if not isinstance(self.recall, bool):
            raise TypeError(f"recall must be True or False, got {type(self.recall).__name__}")
        tokens = self.recall_tokens
        if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool)):
            raise TypeError(f"recall_tokens must be an int or None, got {type(tokens).__name__}")
        if tokens is not None and tokens < LEAST_RECALL_TOKENS:
            raise ValueError(f"recall_tokens must be at least {LEAST_RECALL_TOKENS}, got {tokens}")

    @classmethod
    def default(cls, model: Any, *, beside: int = 0) -> Compactor:
        """Make the usual compactor: above 8,000 tokens of history a summary replaces all turns but the last
        two. The turns stay in the archive (`retain`), so that a cut can be undone.

        Args:
            model: The chat's model, by name ("openai:MODEL" or "MODEL"), or its backend. The limit is at
                most half of its context window.
            beside: The tokens that each request has beside the history: tools, and `system=`.

        Raises:
            TypeError: `model` is neither a name nor a backend.
            ValueError: The window is too small for `beside`.
        """
        return cls(_limit(_USUAL, model, beside), Summarize(keep_turns=_KEEPS), retain=True)

    @classmethod
    def cheap(cls, model: Any, *, beside: int = 0) -> Compactor:
        """Make the cheapest compactor: above 5,000 tokens of history it keeps the last two turns, and nothing
        of the others. Arguments and errors as of `default`."""
        return cls(_limit(_LOW, model, beside), KeepRecentTurns(_KEEPS))

    @classmethod
    def never_forgets(cls, model: Any, *, beside: int = 0) -> Compactor:
        """Make the compactor that loses no turn. Above 5,000 tokens of history a summary replaces all turns
        but the last two, and the model can search all of them (`recall`).

        Up to 1 MiB of the blob is the archive, after compression; then its oldest part goes. In a store with
        ``parts="store"`` nothing goes. Arguments and errors as of `default`.
        """
        return cls(
            _limit(_LOW, model, beside),
            Summarize(keep_turns=_KEEPS),
            retain_bytes=_LONG_ARCHIVE,
            recall=True,
            recall_tokens=RECALL_TOKENS,
        )

    def plan(self, request: CompactionRequest, *, force: bool = False) -> Planned | None:
        """Plan the cut; None if the trigger does not fire, or if no cut reaches its limit now."""
        if not force and (not self._fires(request) or request.rests(self)):
            return None
        turns = self.strategy(request)
        return Planned(
            by=name_of(self.strategy),
            turns=with_recall_note(request, turns) if self.recall else turns,
            before_cut=self.before_cut,
            retain_bytes=self.retained_bytes,
            compactor=self,
            preserve_system=getattr(self.strategy, "preserve_system", True),
        )

    def is_above(self, request: CompactionRequest) -> bool:
        """True if the trigger fires because of a size: it would not fire for an empty history. A trigger that
        fires for another reason, such as a pause, has no limit that a cut could reach."""
        try:
            empty = of_turns(request, ())
            return request.is_cut_by_server or (self.trigger(request) and not self.trigger(empty))
        except Exception:  # `plan` reports the exception of a trigger
            return False

    @property
    def retained_bytes(self) -> int:
        """How many stored bytes of removed and changed turns the archive keeps; 0 without `retain` or
        `recall`."""
        return self.retain_bytes if self.retain or self.recall else 0

    @property
    def recalled_tokens(self) -> int:
        """How many tokens an answer of the tool ``recall`` may have; 0 without the tool."""
        if not self.recall:
            return 0
        limit = getattr(self.trigger, "token_limit", None)
        usual = RECALL_TOKENS if limit is None else max(LEAST_RECALL_TOKENS, limit // 8)
        return usual if self.recall_tokens is None else self.recall_tokens

    def _fires(self, request: CompactionRequest) -> bool:
        try:
            return request.is_cut_by_server or self.trigger(request)
        except Exception as exc:
            raise TriggerFailed(name_of(self.trigger)) from exc

    @property
    def context_management(self) -> Sequence[ContextEdit]:
        """The context edits that each request asks the provider for, as the strategy says."""
        return edits_of(self.strategy)


# --------------------------------------------------------------------------------------------- presets


def _limit(history: int, model: Any, beside: int) -> TokenLimit:
    """The limit: `history` tokens of history, but all together at most half of the model's window."""
    check_count("beside", beside, 0)
    window = _window(model)
    limit = history + beside
    if window is not None and limit > window // 2:
        limit = window // 2
        if limit < beside + _LEAST:
            raise ValueError(
                f"half of the model's context window is {limit} tokens, and {beside} of them are taken "
                f"(beside=): too few are left for a history; expected {_LEAST} or more"
            )
    return TokenLimit(limit)


def _window(model: Any) -> int | None:
    """The context window of a backend, or of a model's name with or without its provider; None if unknown."""
    if isinstance(model, str):
        return capabilities(model.partition(":")[2] if _has_provider(model) else model).context_window
    window = getattr(model, "context_window", None)
    name = getattr(model, "model", None)
    if not hasattr(model, "dialect"):
        raise TypeError(
            f"expected a model's name such as 'openai:MODEL', or a backend; got {type(model).__name__}"
        )
    if isinstance(window, int):
        return window
    return capabilities(name).context_window if isinstance(name, str) else None


def _has_provider(model: str) -> bool:
    return model.split(":", 1)[0] in (*WIRES, "sim")
