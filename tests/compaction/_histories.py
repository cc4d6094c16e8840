"""Histories to compact: drawn from a seed, or real ones, as states of any wire without a provider.

Owns: how a neutral turn becomes a closed turn of a state. Must never know: a strategy, or what must hold.

A model's replies are written in their wire's own JSON, with signed reasoning where a wire has it, and read
by its dialect, as if a provider had sent them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from goaitools_py import Audio, Document, Image, Message, ToolResult, event, system, user
from goaitools_py.backends.base import Dialect
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.letters import Mark
from goaitools_py.state.state import ConversationState, new_state, with_turn
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.types.messages import Part, Text
from goaitools_py.types.render import with_context

WIRES = ("openai", "openai-responses", "anthropic")
PIXEL = b"\x89PNG\r\n\x1a\n"
WORDS = ("the", "quick", "fox", "found", "a", "small", "brass", "key", "under", "stage", "and", "gave", "it")


@dataclass(frozen=True)
class Said:
    """What a model says: text, calls (name and arguments), reasoning."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: str = ""
    results: tuple[tuple[Part, ...], ...] = ()
    """One for each call."""


@dataclass
class Book:
    """A state that grows by whole turns."""

    wire: str
    state: ConversationState = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.dialect: Dialect = dialect_of(self.wire)
        self.state = new_state(self.wire, id="c-1", created=1_700_000_000_000)

    def add(self, *steps: Message | Said, **facts: Any) -> None:
        """Append one closed turn, and what is recorded with it."""
        entries: list[bytes] = []
        letters = ""
        iterations: list[Iteration] = []
        messages = 0
        signed = False
        marks: dict[int, Mark] = {}
        for step in steps:
            if isinstance(step, Message):
                new = self.dialect.entries([step])
                if step.pinned is not None:
                    marks[len(letters)] = Mark(None, step.pinned)
                letters += ("e" if step.is_event else step.role[0]) * len(new)
                entries += new
                messages += 1
                continue
            self.count += 1
            body = SHAPES[self.wire].reply(
                step.text, step.calls, reasoning=step.reasoning, model="m", number=self.count, sent=400
            )
            reply = self.dialect.reply(rawjson.dumps(body))
            signed = signed or reply.signed
            entries += reply.entries
            one = Iteration(roles="", usage=reply.usage)
            iterations.append(one.with_roles(letters + "a" * len(reply.entries), marks))
            messages += 1
            marks = {}
            results = [
                ToolResult(call_id=call.id, name=call.name, parts=parts, kind=call.kind)
                for call, parts in zip(reply.calls, step.results, strict=True)
            ]
            new = self.dialect.results(results)
            letters = "t" * len(new)
            entries += new
            messages += len(results)
        if letters:
            iterations.append(Iteration(roles="").with_roles(letters, marks))
        meta = self.state.meta
        record = TurnRecord(
            at=1000 * (meta.processed + 1),
            messages=messages,
            iterations=tuple(iterations),
            facts=facts,
        )
        grown = with_turn(self.state, ClosedTurn(tuple(entries), record))
        meta = msgspec.structs.replace(
            meta,
            messages=meta.messages + messages,
            turns=meta.turns + 1,
            processed=meta.processed + 1,
            tokens=grown.history_bytes() // 4,
            signed=meta.signed or signed,
            systems=meta.systems or any("s" in one.roles for one in iterations),
        )
        self.state = replace(grown, meta=meta)


# ----------------------------------------------------------------------------------------------- random


def random_turn(
    r: random.Random, wire: str, *, large_media: bool = False, pins: float = 0.0
) -> list[Message | Said]:
    """One turn: what may come before the user's words, these, exchanges, and most often a last reply.

    `large_media`: each medium has one of three contents of 5,000 bytes, and not a small one of its own.
    `pins`: how many of the given messages are pinned or unpinned against the rule of their role.
    """
    steps = _turn(r, wire, large_media)
    if pins:
        if r.random() < pins:
            steps.insert(r.randrange(2), system(_words(r, 6)))
        for at, step in enumerate(steps):
            if isinstance(step, Message) and r.random() < pins and b"app-context" not in step.text.encode():
                steps[at] = replace(step, pinned=step.role != "system")
    return steps


def _turn(r: random.Random, wire: str, large_media: bool) -> list[Message | Said]:
    steps: list[Message | Said] = []
    for _ in range(r.choice((0, 0, 0, 1, 2))):
        steps.append(event(_words(r, 6), topic=r.choice((None, "score")), id=None))
    parts: list[Any] = [Text(_words(r, r.randrange(1, 40)))]
    if r.random() < 0.2:
        parts.append(_medium(r, wire, large_media))
    said = user(*parts)
    if r.random() < 0.25:
        said = with_context(said, _words(r, 5))
    steps.append(said)
    if r.random() < 0.05:
        steps.append(system(_words(r, 6)))
    for _ in range(r.choice((0, 0, 0, 1, 1, 2, 4))):
        steps.append(_exchange(r, wire, large_media))
        if r.random() < 0.1:
            steps.append(event(_words(r, 5)))
    if not isinstance(steps[-1], Said) or r.random() < 0.9:
        steps.append(Said(_words(r, r.randrange(1, 60)), reasoning=_reasoning(r, wire)))
    return steps


def _exchange(r: random.Random, wire: str, large: bool) -> Said:
    count = r.choice((1, 1, 1, 2, 3))
    calls = tuple(("look", {"at": _words(r, 2), "deep": r.random() < 0.5}) for _ in range(count))
    return Said(
        _words(r, 5) if r.random() < 0.3 else "",
        calls,
        _reasoning(r, wire),
        tuple(_result(r, wire, large) for _ in range(count)),
    )


def _result(r: random.Random, wire: str, large: bool) -> tuple[Part, ...]:
    text = Text(_words(r, r.choice((1, 3, 30, 300))))
    return (text, _medium(r, wire, large)) if r.random() < 0.15 else (text,)


def _medium(r: random.Random, wire: str, large: bool) -> Part:
    data = PIXEL + (
        random.Random(r.randrange(3)).randbytes(5_000) if large else r.randbytes(r.choice((20, 3_000)))
    )
    made: list[Part] = [Image.from_bytes(data), Image.from_url("https://example.invalid/a.png")]
    made.append(Document.from_bytes(data, name="play.pdf"))
    if wire == "openai":
        made.append(Audio.from_bytes(data))
    return r.choice(made)


def _reasoning(r: random.Random, wire: str) -> str:
    return _words(r, 8) if wire != "openai" and r.random() < 0.4 else ""


def _words(r: random.Random, count: int) -> str:
    return " ".join(r.choice(WORDS) for _ in range(count))


# --------------------------------------------------------------------------------------- real histories


def conversations(data_dir: Path, name: str, count: int) -> Iterator[list[list[Message | Said]]]:
    """The first so many conversations of a file that have three turns or more, turn by turn."""
    with (data_dir / "conversations" / f"{name}.jsonl.zst").open("rb") as packed:
        lines = zstandard.ZstdDecompressor().stream_reader(packed).read().splitlines()
    for line in lines:
        if not count:
            return
        turns = _turns(json.loads(line)["messages"])
        if len(turns) >= 3:
            count -= 1
            yield turns


def _turns(messages: Sequence[dict[str, Any]]) -> list[list[Message | Said]]:
    turns: list[list[Message | Said]] = []
    for at, message in enumerate(messages):
        text = message.get("content") or ""
        if message["role"] == "user" and text.strip():
            turns.append([user(text)])
        elif message["role"] == "assistant" and turns:
            calls = message.get("tool_calls") or ()
            answers = {
                one["tool_call_id"]: one.get("content") or ""
                for one in messages[at + 1 : at + 1 + len(calls)]
                if one["role"] == "tool"
            }
            if not calls and not text.strip():
                continue
            turns[-1].append(
                Said(
                    text,
                    tuple((c["function"]["name"], _arguments(c["function"]["arguments"])) for c in calls),
                    "",
                    tuple((Text(answers.get(call["id"], "")),) for call in calls),
                )
            )
    return [turn for turn in turns if len(turn) > 1]


def _arguments(text: str) -> dict[str, Any]:
    given = json.loads(text or "{}")
    return given if isinstance(given, dict) else {}
