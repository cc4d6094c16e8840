"""What must hold in every run, and what is known of it so far.

Owns: the books of what was said, answered and taken away, and the checks. Must never know: the order of
steps, or how a fault is made.

- What was acknowledged is in the conversation or its archive, once: a message whose turn gave a result, or
  failed and was saved, and an event that was appended. Rewinds, resets, erasures, compactions without an
  archive, and `pending_input` take away openly.
- An edit takes away only together with its own message in place, and a branch has what it took.
- An event that was taken back is in no request that the provider took, and does not come back. One that
  waits, and that no turn has claimed, can be taken back.
- What is to be deleted is gone, and so is what a redaction takes out; it comes back only if it is said again.
- A cancelled turn leaves its message, and each reply that it got, in the conversation. A turn that ended does
  so too.
- A refused message that was handed back is not in the conversation.
- What an update said of a conversation stays until that is deleted.
- An effect that must not be repeated takes place once, however often its message is delivered.
- A message with a turn id is answered in the end, and each delivery gets the same reply.
- Nothing but the documented errors comes out.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from goaitools_py import (
    ChatResult,
    CompactionError,
    StateConflictError,
    StoreUnavailableError,
    ToolPendingError,
    TurnError,
    TurnInProgressError,
)
from goaitools_py.history.archive_reading import archive_of
from goaitools_py.state.codec import Codec
from goaitools_py.state.records import InboxItem
from goaitools_py.state.state import ConversationState, closed_entries, load_state
from goaitools_py.testing import check_history
from goaitools_py.types.errors import TurnStoppedError

from ._provider import as_seen
from ._schedule import WITH_TOOLS, Act, Schedule
from ._store import Save

__all__ = ["Promises", "ids_in", "inner_id"]

_MARK: Final = re.compile(rb"<<(m\d+):|\[\[(e\d+)\]\]|\(\((s\d+)\)\)")
_ANSWER: Final = re.compile(r"answer m\d+")
_REPLY: Final = re.compile(r"(?:answer )?(m\d+)")
INNER: Final = 1_000_000
"""What hand-offs say has numbers from here on: so many for each idempotency key, 100 for each message."""
DOCUMENTED: Final = (
    TurnError,
    StateConflictError,
    TurnInProgressError,
    StoreUnavailableError,
    ToolPendingError,
    CompactionError,
)
"""Errors that any act may end with."""


DELETES: Final = ("reset", "erase")
TAKES: Final = (*DELETES, "rewind", "compact", "redact", "undo")
"""Acts that take something away, or give it back."""


@lru_cache(maxsize=64)
def ids_in(blob: bytes, codec: Codec) -> Counter[str]:
    """The messages ("m1"), events ("e2") and texts ("s1") that a state holds, and how often."""
    return Counter(_marks(_text(blob, codec)))


def inner_id(call: str, number: int) -> int:
    """The number of what a hand-off says, by the id of its call, such as "m3.0.1", and by that of its key."""
    message, reply, at = (int(part) for part in call[1:].split("."))
    return INNER * (number + 1) + 100 * message + 10 * reply + at


def _marks(text: bytes) -> list[str]:
    return [(found[1] or found[2] or found[3]).decode() for found in _MARK.finditer(as_seen(text))]


@lru_cache(maxsize=64)
def _text(blob: bytes, codec: Codec) -> bytes:
    return b"\n".join(_entries(load_state(blob, codec=codec))) if blob else b""


def _entries(state: ConversationState) -> list[bytes]:
    entries = closed_entries(state)
    if state.open is not None:
        entries.extend(state.open.entries)
    return [*entries, *(item.entry for item in state.inbox)]


class Promises:
    """The books of one run. `problem` is the first promise that was broken, "" for none.

    `kept`: what was acknowledged, by conversation. `gone`: what was taken away openly. `cut`: what a
    compaction took out. `forgotten`: what was deleted. `back`: the refused messages that were handed back.
    `told`: the names that updates have set. `sent`, `withdrawn`: the events that requests had, and those that
    were taken back. `answered`: the newest message that was answered.
    """

    def __init__(self, schedule: Schedule, codec: Codec) -> None:
        self.problem = ""
        self.codec = codec
        self.is_tight = schedule.is_tight
        self.replayable: set[str] = set()
        self.undelivered: dict[int, Act] = {}
        self.answered: dict[str, Act] = {}
        self._cuts = schedule.recalls
        self._schedule = schedule
        self._looks = (
            schedule.is_tight
            or schedule.recalls
            or any(act.kind in (*TAKES, "resume", "withdraw", "edit") for act in schedule.acts)
        )
        self._kept: defaultdict[str, set[str]] = defaultdict(set)
        self._gone: defaultdict[str, set[str]] = defaultdict(set)
        self._cut: defaultdict[str, set[str]] = defaultdict(set)
        self._forgotten: defaultdict[str, set[str]] = defaultdict(set)
        self._branched: defaultdict[str, set[str]] = defaultdict(set)
        self._back: defaultdict[str, set[str]] = defaultdict(set)
        self._told: defaultdict[str, set[str]] = defaultdict(set)
        self._sent: defaultdict[str, set[str]] = defaultdict(set)
        self._withdrawn: defaultdict[str, set[str]] = defaultdict(set)
        self._waiting: dict[int, bytes] = {}
        self._stopped: set[str] = set()
        self._copied: set[str] = set()
        self._resumed: defaultdict[int, set[str]] = defaultdict(set)
        self._killed: set[int] = set()
        self._claimed: defaultdict[bytes, set[int]] = defaultdict(set)
        self._freed: set[str] = set()
        self._said_anew: set[str] = set()
        self._deletions: Counter[str] = Counter()
        self._found: dict[int, tuple[int, bool]] = {}
        self._begun: dict[int, int] = {}
        self._came: Counter[str] = Counter()
        self._came_before: dict[int, int] = {}

    def broken(self, what: str) -> None:
        """Note that a promise does not hold."""
        self.problem = self.problem or what

    def may_repeat(self, id: int) -> bool:
        """True if a message was taken away: who says it again says something new."""
        return f"m{id if id < INNER else id % INNER // 100}" in self.replayable

    # ---------------------------------------------------------------------------- what happens in a run

    def begun(self, act: Act, blob: bytes) -> None:
        """Note what an act finds: a message is delivered, a turn is stopped, something is to be deleted."""
        self._begun[act.id] = self._deletions[act.key]
        if act.kind in WITH_TOOLS and act.has_id:
            self.undelivered[act.id] = act
        elif act.kind == "stop":
            self._stopped.add(act.key)
        elif act.kind == "withdraw" and f"e{act.target}" in self._kept[act.key] - self._copied:
            self._waiting[act.id] = blob
        elif act.kind in DELETES:
            self._found[act.id] = self._deletions[act.key], bool(blob)
        elif act.kind == "redact":
            self._came_before[act.id] = self._came[f"s{act.target}"]
            self._found[act.id] = self._deletions[act.key], bool(ids_in(blob, self.codec)[f"s{act.target}"])

    def saved(self, save: Save, act: Act) -> None:
        """Note what a save takes away that is allowed to, and that nothing comes back. `act`: who made it."""
        if act.kind == "update":
            self._told[save.key].add(f"u{act.id}")
        if self._schedule.steers and (act.says or act.kind in ("resume", "answer", "answer_again")):
            self._claims(save, act)
        if not self._looks or ".branch." in save.key:
            return
        kind, key = act.kind, save.key
        before, after = ids_in(save.before, self.codec), ids_in(save.after, self.codec)
        lost, new = before.keys() - after.keys(), after.keys() - before.keys()
        forgotten = self._forgotten[key]
        for id in sorted(new & forgotten):
            # The first save of a fork may still be on its way when the fork is deleted.
            says = after[f"m{id[1:]}"] > before[f"m{id[1:]}"] or after[f"e{id[1:]}"] > before[f"e{id[1:]}"]
            if kind != "fork" and not (says and int(id[1:]) == act.id):
                self.broken(f"{id} was deleted in {key}, and came back with {kind} {act.id}")
        forgotten -= new
        self._said_anew |= self._gone[key] & new
        self._came.update(new)
        self._gone[key] -= new
        if kind in DELETES:
            self._deletions[key] += 1
            self._told.pop(key, None)
            self._back.pop(key, None)
        self._cut[key] -= new
        if kind == "edit" and ((out := lost - {f"m{act.id}"}) or f"m{act.id}" in new):
            self._edited_out(act, out, is_there=f"m{act.id}" in after)
            for item in self._inbox(save.after):  # what a turn had before the message waits again
                self._freed.update(_marks(item.entry))
            lost -= out
        if lost:
            self._taken(key, act, lost)

    def _edited_out(self, act: Act, out: set[str], *, is_there: bool) -> None:
        """Note what an edit took away. A cut may take more at the same time."""
        for gone in (self._gone[act.key], self.replayable):
            gone |= out | self._cut[act.key]  # it may undo a cut, and take away what stood there, too
        if self.is_tight or self._cuts:
            self._cut[act.key] |= out
        elif not is_there:
            self.broken(f"edit {act.id} took {', '.join(sorted(out))} away, and is not there itself")
        elif act.keeps_branch and f"m{act.id}" not in self._copied:  # both copies have one branch
            self._branched[act.key] |= out

    def check_branches(self, key: str, branches: Iterable[bytes]) -> None:
        """Check that the branches have what edits took out of a conversation."""
        held = {id for blob in branches for id in ids_in(blob, self.codec)}
        if lost := self._branched[key] - held - self._forgotten[key]:
            self.broken(f"{', '.join(sorted(lost))} was edited out of {key}, and no branch has it")

    def _claims(self, save: Save, act: Act) -> None:
        """Note which messages a turn has claimed, and which it has left waiting after a refusal.

        A request that had one of those, and no reply, does not count: no turn goes on from it. If a turn of
        another worker had claimed it, and that worker has lost its lease, it may send the message later. So
        may a copy of a process that gave up.
        """
        before = {item.claimed(""): item.claim for item in self._inbox(save.before)}
        for item in self._inbox(save.after):
            was = before.get(item.claimed(""), "")
            if item.claim and item.claim != was:
                self._claimed[item.entry].add(act.id)
            elif was and not item.claim:
                self._sent[save.key].difference_update(_marks(item.entry))
                if self._claimed[item.entry] - {act.id} or f"m{act.id}" in self._copied:
                    self._freed.update(_marks(item.entry))

    def _inbox(self, blob: bytes) -> tuple[InboxItem, ...]:
        return load_state(blob, codec=self.codec).inbox if blob else ()

    def _taken(self, key: str, act: Act, lost: set[str]) -> None:
        kind = act.kind
        if kind == "withdraw":
            self._gone[key] |= lost
            return
        if kind in DELETES:
            lost = lost | self._cut.pop(key, set())  # the ids of what was cut before go with the row
            self._forgotten[key] |= lost
        elif kind == "redact":
            self._forgotten[key] |= {id for id in lost if id[0] == "s"}
            lost = lost & self._forgotten[key]
        if kind in (*DELETES, "rewind"):
            self.replayable |= lost
        elif kind == "compact" or self._cuts or self.is_tight:
            self._cut[key] |= lost
            if self._schedule.archives(act):
                return
        elif kind != "redact":
            if kind == "resume":
                self._resumed[act.id] |= lost
                if act.id in self._killed:  # the save was on its way when its process was killed
                    self._gone[key] |= lost
            elif self._schedule.steers:
                # A copy takes back what both have brought, and a message is said anew after a deletion.
                self._gone[key] |= lost & (self._copied | self._said_anew) & {f"m{act.id}"}
            return
        self._gone[key] |= lost

    def ended(self, act: Act, result: Any, failure: BaseException | None, blob: bytes) -> None:
        """Note how an act ended, and check what its caller got. `blob`: what is stored."""
        if act.id in self._found and failure is None and blob:
            self._check_gone(act, blob)
        if failure is not None:
            self._failed(act, failure)
        elif isinstance(result, ChatResult):
            self._answered(act, result)
        elif act.kind == "append":
            self._keep(act.key, f"e{act.id}")
        elif act.kind == "withdraw" and act.id in self._waiting:
            self._taken_back(act, result, blob)

    def _taken_back(self, act: Act, is_back: bool, blob: bytes) -> None:
        """Check the answer to a withdrawal. The event was acknowledged before it began, and is not added
        once more."""
        key, id = act.key, f"e{act.target}"
        if is_back:
            self._withdrawn[key].add(id)
            self._check_sent(key)
        elif (
            blob
            and blob == self._waiting[act.id]
            and any(id in _marks(item.entry) for item in self._inbox(blob) if not item.is_taken)
        ):
            self.broken(f"{id} waits in {key}, and withdraw {act.id} did not take it back")

    def sent(self, key: str, body: bytes) -> None:
        """Note what a request of a conversation has, which the provider has taken."""
        if self._waiting or self._schedule.steers:
            self._sent[key].update(_marks(body))
            self._check_sent(key)

    def _check_sent(self, key: str) -> None:
        if sent := (self._withdrawn[key] & self._sent[key]) - self._freed:
            self.broken(f"{', '.join(sorted(sent))} was taken back in {key}, and is in a request")

    def _check_gone(self, act: Act, blob: bytes) -> None:
        deletions, was_there = self._found[act.id]
        if self._deletions[act.key] > deletions:
            return
        text, forgotten = f"s{act.target}", self._forgotten[act.key]
        if act.kind == "redact" and self._came[text] > self._came_before[act.id]:  # said anew meanwhile
            return
        is_there = act.kind in DELETES or text in ids_in(blob, self.codec)
        if was_there and is_there and text not in forgotten:
            self.broken(f"{act.kind} {act.id} ended, and what it was to take out of {act.key} is there")
        elif not is_there:
            forgotten.add(text)  # it may have stood in the archive alone

    def copied(self, act: Act) -> None:
        """Note that two processes say the same message: each may be told that it is refused, and one may add
        an event that was taken back meanwhile."""
        self._copied |= {f"m{act.id}", f"e{act.id}"}

    def killed(self, act: Act) -> None:
        """Note what died with a process. What waits alone, and is refused to a `resume`, is handed to it."""
        self._gone[act.key] |= self._resumed[act.id]
        self._killed.add(act.id)

    def stored(self, act: Act) -> None:
        """Note that a turn which the store did not take was committed."""
        self._keep(act.key, f"m{act.id}")

    def cancelled(self, act: Act, blob: bytes) -> None:
        """Check that the message of a turn that was cancelled after its first request is stored."""
        id = f"m{act.id}"
        if blob and not self._may_lack(act.key, id) and id not in ids_in(blob, self.codec):
            self.broken(f"{id} was asked in {act.key} and then cancelled, and is not stored")
        self._keep(act.key, id)

    def heard(self, act: Act, replies: list[str], blob: bytes) -> None:
        """Check that the replies that a turn got are stored."""
        text = _text(blob, self.codec)
        for reply in replies:
            found = _REPLY.match(reply)
            if blob and found and not self._may_lack(act.key, found[1]) and reply.encode() not in text:
                self.broken(f"the reply {reply!r} of {act.kind} {act.id} was paid for and is not stored")

    def _may_lack(self, key: str, id: str) -> bool:
        """True if a message may be out of the live history."""
        return self.is_tight or self._cuts or id in self._gone[key] or id in self._cut[key]

    def _keep(self, key: str, id: str) -> None:
        self._kept[key].add(id)

    def _answered(self, act: Act, result: ChatResult) -> None:
        if not act.says:
            return
        self._keep(act.key, f"m{act.id}")
        if self.undelivered.pop(act.id, None) is not None:
            self.answered[act.key] = act
        # A message that failed waits, and may be answered together with a later one.
        is_answer = _ANSWER.fullmatch(result.text) is not None
        if result.text == "hello" and not result.duplicate and f"m{act.id}" in self._cut[act.key]:
            is_answer = True  # the last reply is for late events, and the call for them saw no message
        if not is_answer and not (result.text == "" and (result.duplicate or result.status != "complete")):
            self.broken(f"m{act.id} was answered with {result.text!r}, status {result.status}")

    def _failed(self, act: Act, failure: BaseException) -> None:
        is_empty = act.kind in ("answer", "answer_again", "resume", "rewind", "undo", "fork", "edit")
        if not isinstance(failure, (*DOCUMENTED, ValueError) if is_empty else DOCUMENTED):
            text = f"{type(failure).__name__}: {failure}"
            self.broken(f"{act.kind} {act.id} ended with {text}; cause {failure.__cause__!r}")
            return
        if not isinstance(failure, TurnError):
            return
        if isinstance(failure, TurnStoppedError) and act.key not in self._stopped:
            self.broken(f"{act.kind} {act.id} was stopped, and nobody had asked for it")
        handed_back = _marks(b" ".join(message.text.encode() for message in failure.pending_input))
        self._gone[act.key].update(handed_back)
        if not act.says or failure.unsaved is not None:
            return
        if f"m{act.id}" not in handed_back:
            self._keep(act.key, f"m{act.id}")
        elif act.is_refused and self._begun[act.id] == self._deletions[act.key]:
            # After a deletion a delayed first save of this act may still begin the conversation anew.
            self._back[act.key].add(f"m{act.id}")

    # --------------------------------------------------------------------------------------- at the end

    def check(self, key: str, blob: bytes) -> None:
        """Check a conversation that has come to rest. `blob`: with all of its parts in it."""
        state = load_state(blob, codec=self.codec)
        entries = _entries(state)
        if problems := check_history(state.meta.wire, entries):
            self.broken(f"the history of {key} would be refused: {problems[0]}")
        found = Counter(_marks(b"\n".join(entries)))
        archived = self._archived(state)
        if lost := self._kept[key] - found.keys() - archived - self._gone[key]:
            self.broken(f"{', '.join(sorted(lost))} was acknowledged in {key} and is lost")
        if twice := [id for id, count in found.items() if count > 1 and not self._may_stand_twice(id)]:
            self.broken(f"{', '.join(twice)} stands in {key} twice")
        if back := archived & self._forgotten[key]:
            self.broken(f"{', '.join(sorted(back))} was deleted in {key} and is in its archive")
        # What was redacted while it waited is another message: it cannot be known for the one that came back.
        redacted = {f"m{id[1:]}" for id in self._forgotten[key]}
        if refused := (self._back[key] & found.keys()) - redacted - self._copied:
            self.broken(f"{', '.join(sorted(refused))} was refused and handed back, and is in {key}")
        if there := (self._withdrawn[key] & found.keys()) - self._freed:
            self.broken(f"{', '.join(sorted(there))} was taken back in {key}, and is there")
        if untold := self._told[key] - state.meta.about.keys():
            self.broken(f"{', '.join(sorted(untold))} was said of {key} and is lost")

    def _may_stand_twice(self, id: str) -> bool:
        return id[0] == "s" or (id[0] == "m" and self.may_repeat(int(id[1:]))) or id in self.replayable

    def _archived(self, state: ConversationState) -> set[str]:
        entries = [
            entry
            for record in archive_of(state, self.codec)
            for turn in record.turns
            for entry in turn.entries
        ]
        return set(_marks(b"\n".join(entries)))
