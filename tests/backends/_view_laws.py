"""What holds for the view of a request on every provider API that has its entries one after another.

Owns: requests with a history, what the simulator and the rules say to one, and the laws of views. Must never
know: a rule of one provider API.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.host_rules import GUESSES, RULES
from goaitools_py.backends.protocols import EntryView, HostRules
from goaitools_py.backends.wire import grown_view
from goaitools_py.backends.wire.kept_views import KeptViews
from goaitools_py.base import rawjson
from goaitools_py.history.rewrite.mend import mended
from goaitools_py.sim.anthropic.rules import check_anthropic
from goaitools_py.sim.openai.responses_rules import check_openai_responses
from goaitools_py.testing import check_history

from ..history._damage import Words, damaged, random_history
from ..history._lenient import base_history, dumped, lenient
from ..history._recorded import recorded

__all__ = [
    "ALL",
    "STAGES",
    "base",
    "check_all_recorded",
    "check_damaged",
    "check_forms",
    "check_growing",
    "check_kept",
    "check_known_good",
    "check_mixtures",
    "check_odd_entries",
    "check_pieces",
    "flat",
    "forms_of",
    "parts_of",
    "problems",
    "recorded_of",
    "refusals",
    "said",
    "sent",
]

ALL = "".join(sorted(RULES))
STAGES = (*GUESSES, "ejmpr", "agjklmnprstux")
"""The letters that the engine guesses, and two sets with letters that exclude others."""

_REUSED = re.compile("`tool_use` ids must be unique|Duplicate '.*' item found with call_id")


def parts_of(history: Sequence[bytes], **members: Any) -> RequestParts:
    """A request with this history."""
    return RequestParts(model="some-model", history=list(history), **members)


def sent(dialect: Any, history: Sequence[bytes], letters: str, **members: Any) -> list[bytes]:
    """The entries of a history as a host with these rules gets them."""
    parts = parts_of(history, **members)
    return flat(dialect.request_view(parts, HostRules(letters=letters)).history)


def flat(pieces: Sequence[bytes]) -> list[bytes]:
    """The entries of pieces."""
    return [entry for piece in pieces if piece for entry in bytes(piece).split(b",\n")]


def forms_of(dialect: Any, entries: Sequence[bytes]) -> list[EntryView]:
    """The entries in the forms that every server takes."""
    return list(dialect.history_forms(entries))


def said(wire: str, entries: Sequence[bytes]) -> list[str]:
    """What the own host says to a request with this history and one more message of the user."""
    history = [json.loads(entry) for entry in [*entries, *Words(wire).user("And now?")]]
    check: dict[str, Callable[[Any], list[str]]] = {
        "openai-responses": lambda h: check_openai_responses({"model": "gpt", "input": h, "store": False}),
        "anthropic": lambda h: check_anthropic({"model": "claude", "max_tokens": 9, "messages": h}),
    }
    return check[wire](history)


def refusals(wire: str, entries: Sequence[bytes]) -> list[str]:
    """As `said`, but for ids of calls that come again in another turn: recorded hosts took them."""
    return [words for words in said(wire, entries) if not _REUSED.search(words)]


def problems(dialect: Any, entries: Sequence[bytes]) -> list[str]:
    """The rules that a history breaks."""
    return check_history(dialect, entries, open_end=True, unique_ids=False)


# ------------------------------------------------------------------------------------------- the laws


def check_known_good(wire: str, letters: str, *, times: int) -> None:
    """A history in the package's own words is the very object for a host that takes it."""
    dialect, dice = dialect_of(wire), random.Random(20261126)
    taken = 0
    while taken < times:
        entries = random_history(Words(wire), dice)
        if said(wire, entries):  # an id of a call is there twice
            continue
        taken += 1
        parts = parts_of([*entries, *Words(wire).user("And now?")])
        assert dialect.request_view(parts, HostRules(letters=letters)) is parts


def check_pieces(dialect: Any, history: Sequence[bytes], letters: str, dice: random.Random) -> None:
    """The pieces of a history do not matter, a second view changes nothing, unchanged pieces stay objects."""
    whole = sent(dialect, history, letters)
    pieces: list[bytes] = []
    left = list(history)
    while left:
        count = dice.randint(1, 4)
        pieces.append(b",\n".join(left[:count]))
        left = left[count:]
        pieces += [b""] * dice.randrange(2)
    parts = parts_of(pieces)
    viewed = dialect.request_view(parts, HostRules(letters=letters))
    assert flat(viewed.history) == whole
    again = dialect.request_view(viewed, HostRules(letters=letters))
    assert again.history is viewed.history or list(again.history) == list(viewed.history)
    at = 0
    for piece in (one for one in pieces if one):
        if flat([piece]) != whole[at : at + len(flat([piece]))]:
            break
        at += len(flat([piece]))
        if at < len(whole):  # the newest entry may be joined with the one before it
            assert any(piece is one for one in viewed.history)


def check_growing(dialect: Any, history: Sequence[bytes], letters: str, ends: Sequence[int]) -> None:
    """A longer history begins with the bytes of the shorter one."""
    before: list[bytes] = []
    for end in ends:
        now = sent(dialect, history[:end], letters)
        assert now[: len(before)] == before, (letters, end)
        before = now


def check_kept(dialect: Any, history: Sequence[bytes], letters: str, monkeypatch: Any) -> None:
    """A history that grew gives the same view as one that is seen for the first time."""
    grown = [sent(dialect, history[:end], letters) for end in range(1, len(history) + 1)]
    for end, found in enumerate(grown, 1):
        monkeypatch.setattr(grown_view, "_views", KeptViews())
        assert sent(dialect, history[:end], letters) == found
    with monkeypatch.context() as patched:  # all go on from the same walk, as forks of a conversation do
        middle = len(history) // 2
        sent(dialect, history[:middle], letters)
        patched.setattr(KeptViews, "keep", lambda *_: None)
        for end in range(middle + 1, len(history) + 1):
            assert sent(dialect, history[:end], letters) == grown[end - 1]


def check_mixtures(wire: str, letters: str, *, times: int, dialect: Any = None) -> None:
    """Random histories with habits of lenient servers: their views are valid, and the own host takes them."""
    dialect = dialect or dialect_of(wire)
    for seed in range(times):
        dice = random.Random(seed)
        history, names = lenient(wire, dice, times=dice.randint(1, 5))
        entries = dumped(history)
        found = sent(dialect, entries, letters)
        assert problems(dialect, found) == [], (seed, names)
        if set("ejmpr") <= set(letters) and dialect == dialect_of(wire):
            assert said(wire, found) == [], (seed, names)
        check_pieces(dialect, entries, letters, dice)


def check_damaged(wire: str, letters: str, *, times: int, dialect: Any = None) -> None:
    """A damaged history that was repaired is valid behind a view, too."""
    dialect = dialect or dialect_of(wire)
    for seed in range(times):
        dice = random.Random(seed)
        history, names = lenient(wire, dice, times=dice.randrange(3))
        entries = damaged(dumped(history), dice, times=dice.randint(1, 5))
        sound = [one.entry for one in mended(entries, dialect).entries]
        assert problems(dialect, sent(dialect, sound, letters)) == [], (seed, names)


def check_forms(wire: str, *, times: int) -> None:
    """Random histories in the package's own words stay the very objects at an import; mixtures of habits and
    damaged histories stay valid or odd, do not raise, and change once only."""
    dialect = dialect_of(wire)
    for seed in range(times):
        dice = random.Random(seed)
        own = random_history(Words(wire), dice)
        assert all(new.entry is old for new, old in zip(forms_of(dialect, own), own, strict=True))
        history, names = lenient(wire, dice, times=dice.randint(1, 4))
        entries = dumped(history)
        left = [view.entry for view in forms_of(dialect, entries) if view.entry]
        assert problems(dialect, left) == [], (seed, names)
        for odd in (entries, damaged(entries, dice, times=4), [b"nothing", *entries]):
            made = [view.entry for view in forms_of(dialect, odd) if view.entry]
            assert not any(view.changes for view in forms_of(dialect, made)), (seed, names)
            assert [one for one in made if one not in odd and not _is_object(one)] == []


def check_odd_entries(wire: str, letters: str, *, times: int, dialect: Any = None) -> None:
    """What is no history does not raise, and gives JSON objects where JSON objects were."""
    dialect = dialect or dialect_of(wire)
    for seed in range(times):
        dice = random.Random(seed)
        history, _ = lenient(wire, dice, times=2)
        entries = damaged(dumped(history), dice, times=4)
        entries.insert(dice.randrange(len(entries) + 1), dice.choice([b"nothing", b"[]", b'{"role":', b"5"]))
        found = sent(dialect, entries, letters)
        assert found == sent(dialect, entries, letters)
        assert [one for one in found if one not in entries and not _is_object(one)] == []


def _is_object(entry: bytes) -> bool:
    return isinstance(rawjson.loads(entry), dict)


def check_all_recorded(
    wire: str, letters: str, histories: Sequence[Sequence[bytes]], *, dialect: Any = None
) -> None:
    """Recorded histories stay valid."""
    dialect = dialect or dialect_of(wire)
    for history in histories:
        before = problems(dialect, history)
        after = problems(dialect, sent(dialect, history, letters))
        assert len(after) <= len(before), (letters, after)


def recorded_of(wire: str, data_dir: Path) -> Iterator[list[bytes]]:
    """The recorded histories of a provider API."""
    for name, history in recorded(data_dir):
        if name == wire:
            yield [rawjson.dumps(entry) for entry in history]


def base(wire: str) -> list[bytes]:
    """Two short turns, one of them with calls."""
    return dumped(base_history(Words(wire)))
