"""What holds for every compactor and every history, on all wires: drawn from printed seeds, and real ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    Chat,
    ClearToolResults,
    Compactor,
    DropOldest,
    KeepRecentTurns,
    Summarize,
    TurnLimit,
    first_of,
)
from goaitools_py.compaction import (
    CollapseToolExchanges,
    CompactionReport,
    CompactorLike,
    ContextWindow,
    DropMedia,
    MiddleOut,
    NoChange,
)
from goaitools_py.history.rewrite.cut import compaction_request
from goaitools_py.state.closed_turns import TurnRecord, numbers_of
from goaitools_py.state.state import ConversationState, closed_entries, closed_turns, dump_state, load_state
from goaitools_py.states import inspect_state, state_messages
from goaitools_py.testing import ScriptedBackend, check_history

from ._histories import WIRES, Book, Message, Said, conversations, random_turn

SEEDS = range(6)
TARGET = 1_500
MESSAGES = 14


def _on(strategy: Any) -> Compactor:
    return Compactor(TurnLimit(1), strategy)


COMPACTORS: dict[str, CompactorLike] = {
    "recent": _on(KeepRecentTurns(2)),
    "oldest, tokens": _on(DropOldest(target_tokens=TARGET, min_recent_turns=2)),
    "oldest, messages": _on(DropOldest(target_messages=MESSAGES)),
    "middle": _on(MiddleOut(first=1, last=2)),
    "middle, no note": _on(MiddleOut(first=2, last=1, note="")),
    "clear": _on(ClearToolResults(keep=2, at_least=1)),
    "clear all": _on(ClearToolResults(keep=0)),
    "collapse": _on(CollapseToolExchanges(keep_turns=1, at_least=1)),
    "media": _on(DropMedia(after_turns=1, at_least=1)),
    "summary": _on(Summarize(keep_turns=2)),
    "window": ContextWindow(max_tokens=int(TARGET / 0.4), min_recent_turns=2),
    "window, both": ContextWindow(max_tokens=9_000, max_messages=int(MESSAGES / 0.4), min_recent_turns=1),
    "window, middle": ContextWindow(
        max_messages=int(MESSAGES / 0.4), min_recent_turns=2, strategy="middle_out"
    ),
    "window, recent": ContextWindow(max_messages=30, min_recent_turns=2, strategy="recent_turns_only"),
    "window, summary": ContextWindow(max_messages=30, min_recent_turns=2, strategy="summary"),
    "window, own": ContextWindow(max_messages=30, strategy=KeepRecentTurns(3), preserve_system=False),
    "function": _on(lambda request: (request.turns[0], *request.turns[1:][-2:])),
    "ladder": first_of(
        _on(DropMedia(after_turns=2)),
        _on(ClearToolResults(keep=2)),
        _on(CollapseToolExchanges(keep_turns=1)),
        _on(Summarize(keep_turns=2)),
        _on(DropOldest(target_tokens=TARGET)),
    ),
}
STEPS = {"ladder": 5}
"""How often a composition may find something before it finds nothing; a strategy alone does so once."""
TOKENS = {"oldest, tokens", "window"}
COUNTS = {"oldest, messages", "window, both", "window, middle"}
PARTIAL = {"clear", "clear all", "collapse", "media"}
"""Those that drop no turn."""


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _compacted(wire: str, blob: bytes, compactor: CompactorLike) -> CompactionReport:
    """Compact with a model that writes the same short summary whenever it is asked."""
    with Chat(ScriptedBackend("A key was found; Tom has it.", wire=wire)) as chat:
        return chat.compact_state(blob, compactor)


def _drawn(wire: str, seed: int) -> Iterator[tuple[Book, str]]:
    """A book that has grown by some turns, three times; what is done to it in between stays."""
    r = random.Random(f"{wire}/{seed}")
    book = Book(wire)
    for round in range(3):
        for _ in range(r.randrange(1, 7)):
            book.add(*random_turn(r, wire))
        yield book, f"wire={wire} seed={seed} round={round}"


@pytest.mark.parametrize("name", COMPACTORS)
def test_random_histories(wire: str, name: str) -> None:
    """Valid, never empty, newest turn and newest context kept, within its target or told why not, and the
    second time nothing is left to do; also when more is said after a cut, and it is cut again."""
    for seed in SEEDS:
        for book, case in _drawn(wire, seed):
            report = _check(wire, book.state, name, case)
            book.state = load_state(report.state)


@pytest.mark.parametrize("name", COMPACTORS)
@pytest.mark.parametrize("file", ["tau-airline-gpt4o", "sgd", "sweagent"])
def test_real_histories(data_dir: Path, wire: str, file: str, name: str) -> None:
    """The same holds for conversations that people and models really had."""
    found = list(conversations(data_dir, file, 2))

    assert len(found) == 2
    for number, turns in enumerate(found):
        book = Book(wire)
        for turn in turns:
            book.add(*turn)
        _check(wire, book.state, name, f"{file} {number}")


def _check(wire: str, state: ConversationState, name: str, case: str) -> CompactionReport:
    blob = dump_state(state)
    copy = bytes(bytearray(blob))

    report = _compacted(wire, blob, COMPACTORS[name])

    assert blob == copy, case
    assert report.outcome in ("compacted", "no_change"), f"{case}: {report}"
    after = load_state(report.state)
    assert check_history(wire, state_messages(report.state), unique_ids=False) == [], case
    info = inspect_state(report.state)
    turns = closed_turns(after)
    assert turns, case
    assert info.turns == len(turns), case
    assert info.messages == sum(turn.record.messages for turn in turns) == report.messages_after, case
    if report.outcome == "no_change":
        assert report.state == blob, case
    else:
        assert info.turns_processed == state.meta.processed, case
        assert len(after.meta.cuts) == len(state.meta.cuts) + 1, case
        assert report.removed_turns + report.rewritten_turns > 0, case
        _check_turns(wire, state, after, name, case)
    _check_target(name, report, case)
    _check_fixed(wire, report, name, case)
    _check_pure(state, COMPACTORS[name], case)
    return report


def _entries(entries: Sequence[bytes]) -> list[bytes]:
    """Entries without those that carry a context block, which a cut may move."""
    return [entry for entry in entries if b"<app-context>" not in entry]


def _check_turns(wire: str, state: ConversationState, after: ConversationState, name: str, case: str) -> None:
    """What stays is, byte for byte, what was there; the newest turn and the newest context stay."""
    dialect = Book(wire).dialect
    before = {turn.record.at: turn for turn in closed_turns(state) if not turn.record.facts.get("note")}
    turns = closed_turns(after)
    kept = [turn for turn in turns if not turn.record.facts.get("note")]
    numbers = _numbers(after)
    assert {at: number for at, number in numbers.items() if number} == {
        at: number
        for at, number in _numbers(state).items()
        if at in {turn.record.at for turn in kept} and number
    }, case
    for turn in kept:
        entries, record = turn.entries, turn.record
        old: Sequence[bytes] = before[record.at].entries
        if record.facts.get("rewritten"):
            continue
        if state.meta.signed:
            old = [entry for entry in dialect.unsigned(old) if entry]
        assert _facts(record) == _facts(before[record.at].record), case
        if any(b"<app-context>" in entry for entry in (*old, *entries)):
            continue
        assert list(entries) == list(old), case
    newest, last = turns[-1], closed_turns(state)[-1]
    assert newest.record.at == last.record.at, case
    assert _said_by_user(newest.entries, dialect)[-1:] == _said_by_user(last.entries, dialect)[-1:], case
    assert not after.meta.signed, case
    old_blocks, blocks = _blocks(state), _blocks(after)
    assert blocks == old_blocks[-1:], case
    if name in PARTIAL:
        assert len(kept) == len(before), case


def _numbers(state: ConversationState) -> dict[int, int]:
    """When each turn that is no note began, and its number."""
    records = [turn.record for turn in closed_turns(state)]
    pairs = zip(records, numbers_of(records), strict=True)
    return {record.at: number for record, number in pairs if not record.facts.get("note")}


def _facts(record: TurnRecord) -> dict[str, Any]:
    """The facts without the number, which is left out where it follows from the turn before."""
    return {name: value for name, value in record.facts.items() if name != "n"}


def _said_by_user(entries: Sequence[bytes], dialect: Any) -> list[str]:
    messages = dialect.view(tuple(entries))
    return [
        "".join(getattr(part, "text", "") for part in one.parts[-1:])
        for one in messages
        if one.role == "user"
    ]


def _blocks(state: ConversationState) -> list[bytes]:
    found = b"".join(closed_entries(state))
    return [piece.partition(b"</app-context>")[0] for piece in found.split(b"<app-context>")[1:]]


def _check_target(name: str, report: CompactionReport, case: str) -> None:
    if name in TOKENS:
        assert report.tokens_after <= TARGET or report.reason, f"{case}: {report}"
    if name in COUNTS:
        assert report.messages_after <= MESSAGES + 2 or report.reason, f"{case}: {report}"
    if report.outcome == "compacted":
        assert report.bytes_after < report.bytes_before, f"{case}: {report}"


def _check_fixed(wire: str, report: CompactionReport, name: str, case: str) -> None:
    """Done again, it finds nothing to do."""
    for _ in range(STEPS.get(name, 1)):
        again = _compacted(wire, report.state, COMPACTORS[name])
        if again.outcome == "no_change":
            assert again.state == report.state, case
            return
        report = again
    assert _compacted(wire, report.state, COMPACTORS[name]).outcome == "no_change", f"{case}: {report}"


def _check_pure(state: ConversationState, compactor: CompactorLike, case: str) -> None:
    """Asked twice, a compactor says the same, and what it looks at is as it was."""
    dialect = Book(state.meta.wire).dialect
    request = compaction_request(state, dialect, blob_bytes=lambda: 0)
    turns = request.turns
    copies = [(view.entries, view.roles) for view in turns]

    answers = [compactor.plan(request, force=True) for _ in range(2)]

    said = [_shown(planned.turns if planned is not None else None) for planned in answers]
    assert said[0] == said[1], case
    assert request.turns is turns, case
    assert [(view.entries, view.roles) for view in turns] == copies, case


def _shown(turns: Any) -> Any:
    """An answer so that it can be compared; a generator's first question stands for it."""
    if isinstance(turns, Iterator):
        try:
            question: Any = next(turns)
        except StopIteration as stop:
            return _shown(stop.value)
        return [view.entries for view in question.turns], question.instruction
    if turns is None or isinstance(turns, NoChange):
        return turns
    kept = getattr(turns, "turns", turns)
    return [(view.position, view.entries, view.roles) for view in kept]


def test_the_drawn_histories_are_what_they_are_drawn_for() -> None:
    """Calls, media, events, contexts, system messages, reasoning and turns without a last reply all occur."""
    seen: set[str] = set()
    for seed in SEEDS:
        for wire in WIRES:
            r = random.Random(f"{wire}/{seed}")
            for step in (step for _ in range(12) for step in random_turn(r, wire)):
                if isinstance(step, Said):
                    seen |= {"calls"} if step.calls else {"reply"}
                    seen |= {"reasoning"} if step.reasoning else set()
                elif isinstance(step, Message):
                    seen.add("event" if step.is_event else step.role)
                    seen |= {type(part).__name__ for part in step.parts}

    assert seen >= {"calls", "reply", "reasoning", "event", "user", "system", "Text", "BlockText", "Image"}
