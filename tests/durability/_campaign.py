"""Kills the child process, over and over, and holds every row that it leaves against the logs.

Owns: when a kill comes, and what must be true after it. Must never know: how a life goes on.
The logs of the tools and of the provider, each line synced before its caller went on, are the truth; the row
is read from a copy of the files as the kill left them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from goaitools_py.chat.kept.full_row import load_row
from goaitools_py.states import HistoryTurn, inspect_state, pending_calls, read_history, state_messages
from goaitools_py.stores import SQLiteStore
from goaitools_py.testing import check_history

from ._child import KEY, answer_of, plan_of, text_of

CHILD = Path(__file__).with_name("_child.py")
TURNS = 3
MOST_KILLS = 10
"""Kills of one conversation; after them it may end."""

PLACES = ("inside a tool", "after a tool", "waiting", "reply not kept", "elsewhere")
INSIDE_A_TOOL = ("tool", "effect")
AFTER_A_TOOL = ("out", "saving a result", "saved a result")
"""Points that a life passes, by the place where a kill meets it there."""
SHARE = 0.2
"""So many of all kills must meet a process inside a tool, and as many right after one."""
MOST_MORE = 3
"""A campaign goes on until it has seen what it looks for, for so many times the kills that it was given."""
DEFECTS = (
    "duplicated effects",
    "lost messages",
    "effects claimed, not there",
    "invalid histories",
    "doubts not surfaced",
    "asked twice",
    "incomplete",
)


class Attempt:
    """One life of the child: what it told, and how it ended."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.exit = 0

    @property
    def is_killed(self) -> bool:
        """Whether it was SIGKILL that ended it."""
        return self.exit == -signal.SIGKILL

    @property
    def place(self) -> str:
        """Where the kill met it, one of `PLACES`."""
        place, inside = "elsewhere", 0
        for line in self.told:
            match line["at"]:
                case "asking":
                    place = "waiting"
                case "replied":
                    place = "reply not kept"
                case "in":
                    inside += 1
                case "out":
                    inside -= 1
                    place = "after a tool"
                case "saved" if place == "reply not kept":
                    place = "elsewhere"
                case "ending":
                    place = "elsewhere"
        return "inside a tool" if inside else place


class Child:
    """The fork server. `live` lets one fork go on with a conversation, and kills it."""

    def __init__(self, folder: Path) -> None:
        self.errors = folder / "errors.txt"
        self._server = subprocess.Popen(
            [sys.executable, str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._fork = 0
        while self._read()["at"] != "ready":
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fork:
            os.kill(self._fork, signal.SIGKILL)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(60)

    def _send(self, line: str) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line + "\n")

    def _read(self) -> dict[str, Any]:
        assert self._server.stdout is not None
        told: dict[str, Any] = json.loads(self._server.stdout.readline() or '{"at": "gone"}')
        assert told["at"] != "gone", "the fork server ended"
        return told

    def live(self, job: dict[str, Any], *, after: float | None = None) -> Attempt:
        """Run one life. It is killed `after` seconds, or where ``job["hold"]`` says, or not at all."""
        attempt = Attempt()
        self._send(json.dumps({**job, "errors": str(self.errors)}))
        while (line := self._read())["at"] != "dead":
            attempt.told.append(line)
            if line["at"] == "begun":
                self._fork = line["pid"]
                if after is not None:
                    time.sleep(after)
            if line.get("held") or (line["at"] == "begun" and after is not None):
                os.kill(self._fork, signal.SIGKILL)  # a dead one keeps its pid until it is buried
        self._fork = 0
        self._send("bury")
        attempt.exit = self._read()["exit"]
        assert attempt.is_killed or attempt.exit == 0, self.errors.read_text()
        return attempt


class Campaign:
    """Conversations of one wire and colour, and the kills that they survive."""

    def __init__(
        self,
        folder: Path,
        child: Child,
        *,
        wire: str,
        is_async: bool,
        seed: str,
        checkpoints: bool = True,
        kept: bool = False,
        parts: str = "inline",
    ) -> None:
        self.wire, self.is_async, self.checkpoints, self.kept = wire, is_async, checkpoints, kept
        self.parts = parts
        self.folder, self.child, self.random = folder, child, random.Random(seed)
        self.seconds_per_turn = 0.05
        self.kills: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self, kills: int) -> None:
        """Go on until so many kills have happened and nothing is `missing`; the last conversation ends.

        How many kills meet a tool depends on how busy the machine is: a kill that comes after a random time
        meets whatever the process does then. So a campaign that lacks something makes more kills, up to
        `MOST_MORE` times as many, instead of hoping for enough.
        """
        began = time.monotonic()
        Conversation(self, 0).run(0)
        self.seconds_per_turn = (time.monotonic() - began) / TURNS
        number = 0
        while (total := self.kills.total()) < kills or (self.missing() and total < MOST_MORE * kills):
            number += 1
            left = kills - total if total < kills else MOST_KILLS
            Conversation(self, number).run(min(left, MOST_KILLS))
        self.counts["conversations"] = number + 1

    def missing(self) -> list[str]:
        """What the campaign must have seen and has not seen yet, or not often enough."""
        if not self.checkpoints:
            return []
        total = max(1, self.kills.total())
        missing = [place for place in PLACES[:2] if self.kills[place] < SHARE * total]
        return missing + [name for name in ("answered", "unknown") if not self.counts[name]]

    def found(self, defect: str, words: str) -> None:
        """Note that something is wrong."""
        self.counts[defect] += 1
        self.problems.append(f"{defect}: {words}")

    def moment(self) -> tuple[list[Any] | None, float | None]:
        """When the next kill comes: at a point that is passed, or so many seconds after the beginning.

        What is `missing` comes before all else.
        """
        draw, pick = self.random.random(), self.random.choice
        lacks = [place for place in self.missing() if place in PLACES]
        if draw < 0.4 and not lacks:
            return None, self.random.uniform(0, 1.5) * self.seconds_per_turn
        if draw < 0.85 or lacks:
            is_inside = self.kills["inside a tool"] < self.kills["after a tool"]
            points = INSIDE_A_TOOL if is_inside else AFTER_A_TOOL
            return [pick(points), pick((1, 1, 2, 3))], None
        points = ("begun", "asking", "replied", "reading", "saving", "saved", "ending")
        return [pick(points), pick((1, 2, 3))], None


class Conversation:
    """One conversation: its files, its lives, and what was true after each."""

    def __init__(self, campaign: Campaign, number: int) -> None:
        self.campaign, self.number, self.random = campaign, number, campaign.random
        self.folder = campaign.folder / str(number)
        self.folder.mkdir()
        self.texts = [text_of(turn, self.random.randrange(3)) for turn in range(TURNS)]
        self.job: dict[str, Any] = {
            "db": str(self.folder / "rows.db"),
            "effects": str(self.folder / "effects.log"),
            "requests": str(self.folder / "requests.log"),
            "wire": campaign.wire,
            "is_async": campaign.is_async,
            "checkpoints": campaign.checkpoints,
            "kept": campaign.kept,
            "parts": campaign.parts,
            "texts": self.texts,
            "by_id": not campaign.checkpoints or self.random.random() < 0.5,
            "threads": self.random.random() < (0.5 if campaign.is_async else 0.3),
        }
        self.lives = 0
        self.kept: set[tuple[int, int]] = set()  # replies that the row had after the last life
        self.asked: dict[tuple[int, int], str] = {}
        self.said = 0
        self.twice: set[str] = set()
        self.entered: set[str] = set()  # orders that a tool began
        self.answered: dict[str, bool] = {}  # orders in doubt: was there an answer, the last time?

    def run(self, kills: int) -> None:
        """Live until everything is said, the first lives with a kill."""
        answers: dict[str, str | None] = {}
        while True:
            hold, after = self.campaign.moment() if kills else (None, None)
            self.lives += 1
            job = {
                **self.job,
                "attempt": self.lives,
                "hold": hold,
                "answers": answers,
                "stream": self.random.random() < 0.5,
            }
            attempt = self.campaign.child.live(job, after=after)
            self.entered |= {line["order"] for line in attempt.told if line["at"] == "in"}
            if attempt.is_killed:
                kills -= 1
                self.campaign.kills[attempt.place] += 1
            answers = self.check(is_end=not attempt.is_killed)
            if not attempt.is_killed:
                return

    def found(self, defect: str, words: str) -> None:
        """Note that something is wrong."""
        self.campaign.found(defect, f"{words} (conversation {self.number}, life {self.lives})")

    def row(self) -> bytes | None:
        """The row as it is in the files; they are not touched."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name in ("rows.db", "rows.db-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self.folder / name, copy / name)
        with SQLiteStore(copy / "rows.db") as store:
            row = load_row(store, KEY, lambda blob: {})  # raises if a part is missing
        return row.blob if row is not None else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """A log."""
        path = Path(self.job[name])
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    # ------------------------------------------------------------------------------ what must be true

    def check(self, *, is_end: bool) -> dict[str, str | None]:
        """Hold the row against the logs. Returns the answers that the next life is given, by call id."""
        effects = self.effects()
        if not self.campaign.checkpoints:
            return {}
        row = self.row()
        turns = read_history(row).turns if row is not None else ()
        if row is not None and (wrong := check_history(self.campaign.wire, state_messages(row))):
            self.found("invalid histories", wrong[0])
        self.check_messages(row, is_end=is_end)
        flags = {order: flag for turn in turns for order, flag in flags_of(turn).items()}
        for order, flag in flags.items():
            if flag == "ok" and order not in effects:
                self.found("effects claimed, not there", order)
        answers = self.check_doubts(row, flags, effects)
        self.check_requests(turns)
        if is_end:
            self.check_end(row, turns, flags)
        return answers

    def effects(self) -> set[str]:
        """What took effect, by the log; nothing may be there twice for its reader."""
        seen: dict[str, list[str]] = {}
        for line in self.lines("effects"):
            seen.setdefault(line["order"], []).append(line["key"])
        for order, keys in seen.items():
            known = set(keys) if is_idempotent(order) else keys
            if len(known) > 1 and order not in self.twice:
                self.twice.add(order)
                self.found("duplicated effects", order)
        return set(seen)

    def check_messages(self, row: bytes | None, *, is_end: bool) -> None:
        """What the user said is there once, and what was there stays."""
        history = read_history(row).all_messages() if row is not None else ()
        texts = [message.text for message in history if message.role == "user" and message.text]
        if texts != self.texts[: len(texts)] or len(texts) < (len(self.texts) if is_end else self.said):
            self.found("lost messages", f"{texts} of {self.texts}")
        self.said = len(texts)

    def check_doubts(
        self, row: bytes | None, flags: dict[str, str], effects: set[str]
    ) -> dict[str, str | None]:
        """Whatever a tool began has a result or is in doubt, and a doubt ends as it has to."""
        pending = pending_calls(row) if row is not None else ()
        doubts = {call.parsed["order"]: call for call in pending if call.reason == "in_doubt"}
        if len(doubts) < len(pending):
            self.found("doubts not surfaced", "a call waits that nobody has to approve")
        for order in self.entered | effects:
            if order not in doubts and flags.get(order) not in ("ok", "unknown"):
                self.found("doubts not surfaced", f"{order} is {flags.get(order)}")
        for order, flag in flags.items():
            if order in doubts:
                continue
            unanswered = order in self.answered and not self.answered[order]
            wanted = "unknown" if unanswered and not is_idempotent(order) else "ok"
            if flag not in (wanted, "not_run") or (flag == "not_run" and order in self.answered):
                self.found("doubts not surfaced", f"{order} is {flag}, not {wanted}")
        answers: dict[str, str | None] = {}
        for order, call in doubts.items():
            self.campaign.counts["in doubt"] += 1
            self.answered[order] = self.random.random() < 0.4
            if self.answered[order]:
                self.campaign.counts["answered"] += 1
                answers[call.id] = f"receipt of {order}" if order in effects else None
        return answers

    def check_requests(self, turns: tuple[HistoryTurn, ...]) -> None:
        """No reply that was in the row is made again; another is asked for in the same words."""
        lines = self.lines("requests")
        now = [line for line in lines if line["attempt"] == self.lives]
        places = [(line["turn"], line["step"]) for line in now]
        for place, line in zip(places, now, strict=True):
            if place in self.kept or places.count(place) > 1:
                self.found("asked twice", f"turn {place[0]}, reply {place[1]}")
            if self.asked.setdefault(place, line["digest"]) != line["digest"]:
                self.found("asked twice", f"turn {place[0]}, reply {place[1]}, in other words")
        self.kept = {place for turn in turns for place in replies_of(turn)}

    def check_end(self, row: bytes | None, turns: tuple[HistoryTurn, ...], flags: dict[str, str]) -> None:
        """The conversation is whole."""
        wanted = {order for text in self.texts for step in plan_of(text)[1] for _, order in step}
        places = {(n, s) for n, text in enumerate(self.texts) for s in range(len(plan_of(text)[1]) + 1)}
        is_whole = (
            row is not None
            and inspect_state(row).status == "complete"
            and not pending_calls(row)
            and [turn.messages[-1].text for turn in turns] == [answer_of(n) for n in range(TURNS)]
            and flags.keys() == wanted
            and set(flags.values()) <= {"ok", "unknown"}
            and self.kept == places == set(self.asked)
        )
        if not is_whole:
            self.found("incomplete", f"{flags}")
        self.campaign.counts["unknown"] += sum(flag == "unknown" for flag in flags.values())


def is_idempotent(order: str) -> bool:
    """Whether an order is of the tool that may run again."""
    return order.endswith("-book")


def flags_of(turn: HistoryTurn) -> dict[str, str]:
    """The flag of each result of a turn, by order, as the turn would close now."""
    flags = turn.facts.get("flags", {})
    calls = [call for message in turn.messages for call in message.tool_calls]
    orders = {call.parsed["order"]: flags.get(call.id, "ok") for call in calls}
    assert len(orders) == len(calls), "an order was made twice"
    return orders


def replies_of(turn: HistoryTurn) -> set[tuple[int, int]]:
    """Which of the replies of a turn are there, by turn and place."""
    said = [message.text for message in turn.messages if message.role == "user" and message.text]
    number, steps = plan_of(said[0])
    made = set(flags_of(turn))
    found = {(number, n) for n, step in enumerate(steps) if step[0][1] in made}
    if any(m.role == "assistant" and m.text == answer_of(number) for m in turn.messages):
        found.add((number, len(steps)))
    return found
