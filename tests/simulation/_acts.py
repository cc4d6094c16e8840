"""From an act to the flow of the package that carries it out.

Owns: how a conversation is made for a worker, and what each kind of act calls. Must never know: faults,
the order of steps, or which promises are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from goaitools_py import Approve, Chat, Compactor, Conversation, Deny, KeepRecentTurns, MessageLimit, event
from goaitools_py.base.values import replace
from goaitools_py.chat.kept import branches, changes
from goaitools_py.chat.kept.parts import LOADED
from goaitools_py.chat.kept.steering import stop_flow, withdraw_flow
from goaitools_py.chat.kept.turn import KeptTurn
from goaitools_py.history.additions import append_messages, update_state
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.state.records import digest8
from goaitools_py.states import pending_calls
from goaitools_py.turn.flow import Flow, Invoke
from goaitools_py.turn.plan import Outages
from goaitools_py.types.answers import Answers

from ._bank import TOOLS, Bank, Teller
from ._provider import REFUSED, Provider, directive
from ._schedule import Act, Schedule
from ._store import Port
from ._worker import LEASE_SECONDS, Renewal, Worker

__all__ = ["Desk"]

TIGHT: Final = BlobLimits(max_blob_bytes=8_192, max_decoded_bytes=32_768, max_entries=64)
COMPACTOR: Final = Compactor(MessageLimit(2), KeepRecentTurns(1))
ARCHIVING: Final = Compactor(MessageLimit(2), KeepRecentTurns(1), retain=True)
"""What it cuts out goes into the archive, and with ``parts="store"`` into parts."""
RECALLING: Final = Compactor(MessageLimit(4), KeepRecentTurns(1), recall=True)
STOP_SECONDS: Final = 0.1
REST_SECONDS: Final = 2.0


@cache
def chat_of(wire: str, is_tight: bool, converts: bool, fallback: str, recalls: bool) -> Chat:
    """The chat of all runs of a kind: it keeps nothing of them, for a run has outages of its own."""
    fields: dict[str, Any] = {"on_foreign_state": "convert"} if converts else {}
    return Chat(
        Provider(wire),
        codec=Plain(limits=TIGHT) if is_tight else Plain(),
        tools=TOOLS,
        fallbacks=[Provider(fallback)] if fallback else (),
        compactor=RECALLING if recalls else None,
        **fields,
    )


@cache
def usual_conversation(chat: Chat, save: str, behind: bool, stops: bool) -> Conversation:
    """A conversation with the settings that all of its kind have."""
    place: Any = Port(None, "")  # type: ignore[arg-type]
    return chat.conversation(
        place,
        "k",
        save=save,  # type: ignore[arg-type]
        lease_ttl=LEASE_SECONDS,
        concurrent_turns=behind,
        stop_every=STOP_SECONDS if stops else None,
    )


def message_text(act: Act, *, redacts: bool) -> str:
    """What a message says. `redacts`: also something that may be taken out again."""
    refused = f" {REFUSED}" if act.is_refused else ""
    return directive(act.id, act.rounds) + refused + (secret(act.id) if redacts else "")


def event_text(id: int, *, redacts: bool) -> str:
    """What an appended event says."""
    return f"[[e{id}]]" + (secret(id) if redacts else "")


def secret(id: int) -> str:
    """What only one message or event says."""
    return f"((s{id}))"


class Plainly:
    """A flow that leaves nothing to settle."""

    is_settled = True

    def __init__(self, flow: Callable[[], Flow[Any]]) -> None:
        self.run = flow

    def settle(self) -> Flow[None]:
        """Nothing is left."""
        raise AssertionError("nothing is left to settle")


class Answering:
    """Somebody looks which calls wait, and answers them."""

    def __init__(self, worker: Worker, desk: Desk) -> None:
        self._worker = worker
        self._desk = desk
        self._turn: KeptTurn | None = None

    @property
    def is_settled(self) -> bool:
        """As the turn; before it nothing is to be settled."""
        return self._turn is None or self._turn.is_settled

    def run(self) -> Flow[Any]:
        """Load, answer, resume."""
        act = self._worker.act
        found = yield Invoke(self._worker.port.load, (act.key,))
        given: Answers = {}
        if self._worker.given is not None:  # a copy gives what the process gave that it is a copy of
            given = self._worker.given
        elif act.kind == "answer_again":
            given = self._desk.given.get(act.key, {})
        elif found is not None:
            answer = Approve() if act.choice < 0.8 else Deny("no")
            blob = self._worker.port.rows.whole(act.key, kinds=LOADED)
            waiting = [call for call in pending_calls(blob) if call.reason == "approval"]
            given = {call.id: answer for call in waiting}
        if not given:
            return None
        if self._worker.given is None:
            self._worker.given = self._desk.given[act.key] = given
        self._turn = self._desk.turn(self._worker, None, resume=True, answers=given)
        return (yield from self._turn.run())

    def settle(self) -> Flow[None]:
        """As the turn."""
        assert self._turn is not None
        return self._turn.settle()


class Desk:
    """Makes the work of a run's acts. `given`: the answers that were given last, by conversation."""

    def __init__(
        self, schedule: Schedule, bank: Bank, wall: Callable[[], int], cancel: Callable[[Worker], None]
    ) -> None:
        self.given: dict[str, Mapping[str, Any]] = {}
        self._schedule = schedule
        self._redacts = schedule.redacts
        self._outages = Outages(REST_SECONDS)
        self._bank = bank
        self._wall = wall
        self._cancel = cancel

    def chat(self, act: Act) -> Chat:
        """The chat of the worker that has this act."""
        schedule = self._schedule
        wire = act.wire or schedule.wire
        return chat_of(wire, schedule.is_tight, schedule.converts, schedule.fallback, schedule.recalls)

    def work(self, worker: Worker) -> Any:
        """What a worker does for its act."""
        act = worker.act
        kept = self._conversation(worker)
        settings = kept._settings
        if act.says:
            fields = {"turn_id": f"t{act.id}"} if act.has_id else {}
            if act.kind == "edit":
                fields["edit"] = f"t{act.target}"
            pending = "deny" if act.kind == "final" else ("raise", "deny", "queue")[int(act.choice * 3)]
            text = message_text(act, redacts=self._redacts)
            return self._turn(kept, worker, text, {**fields, "on_pending": pending})
        match act.kind:
            case "resume":
                return self._turn(kept, worker, None, {}, resume=True)
            case "answer" | "answer_again":
                return Answering(worker, self)
            case "append":
                return Plainly(partial(changes.append_flow, settings, partial(self._append, act)))
            case "withdraw":
                return Plainly(partial(withdraw_flow, settings, digest8(f"e{act.target}")))
            case "update":
                grow = partial(self._updated, act)
                return Plainly(partial(changes.append_flow, settings, grow, count=None))
            case "compact":
                compactor = ARCHIVING if self._schedule.archives(act) else COMPACTOR
                return kept._compaction(compactor, False, {}, if_due=int(act.choice * 4) % 2 == 1)[0]
            case "undo":
                return Plainly(partial(changes.undo_flow, settings))
            case "rewind":
                return Plainly(partial(changes.rewind_flow, settings, 1))
            case "reset":
                return Plainly(partial(changes.reset_flow, settings))
            case "erase":
                return kept._erasure()
            case "redact":
                return kept._redaction(secret(act.target), "[redacted]")
            case "stop":
                return Plainly(partial(stop_flow, settings))
            case "cancel":
                return Plainly(partial(self._cancelling, worker))
            case "fork":
                other = replace(settings, key=f"f{act.id}")
                return Plainly(partial(branches.fork_flow, settings, other))
            case _:
                raise AssertionError(act.kind)

    def inner(self, worker: Worker, turn_id: str) -> Any:
        """What the other conversation of a hand-off is asked."""
        text = message_text(worker.act, redacts=False)
        return self.turn(worker, text, fields={"turn_id": turn_id, "on_pending": "deny"})

    def _cancelling(self, worker: Worker) -> Flow[None]:
        yield Invoke(self._cancel, (worker,))

    def commit(self, error: Any, worker: Worker) -> Any:
        """The work that saves what an error carries."""
        kept = self._conversation(worker)
        return Plainly(lambda: kept._committing(error))

    def turn(self, worker: Worker, text: str | None, *, fields: Any = None, **how: Any) -> KeptTurn:
        """A turn of the worker's conversation."""
        return self._turn(self._conversation(worker), worker, text, fields or {}, **how)

    def _turn(
        self, kept: Conversation, worker: Worker, text: str | None, fields: Mapping[str, Any], **how: Any
    ) -> KeptTurn:
        deps = Teller(self._bank, worker.act.key)
        work, _ = kept._work(text, None, {"deps": deps, **fields}, **how)
        # Copies of a process have one claim.
        claim = worker.name if work._plan.claim else ""
        work._plan = replace(work._plan, new_id=worker.new_id, claim=claim, outages=self._outages)
        return work

    def _conversation(self, worker: Worker) -> Conversation:
        # A conversation costs as much as some steps, so one is made of each kind, and changed for its worker.
        schedule, act = self._schedule, worker.act
        usual = usual_conversation(self.chat(act), act.save, schedule.behind, schedule.stops)
        steers = schedule.steers and hasattr(worker.port, "lease")
        settings = replace(
            usual._settings,
            store=worker.port,
            key=act.key,
            gate="reject" if act.choice < 0.2 else "steer" if steers else "queue",
            marks_waiting=steers,
            keep_branches=act.keeps_branch,
            # Some workers still write whole blobs: they undo the layout of the others, and lose nothing.
            in_parts=schedule.parts and act.id % 7 != 3,
            renewal=lambda lease, ttl: Renewal(worker, lease, ttl),
        )
        return Conversation(usual._ports, settings, usual._save)

    def _append(self, act: Act, blob: bytes) -> bytes:
        said = event(event_text(act.id, redacts=self._redacts), id=f"e{act.id}")
        return self._grown(act, blob, said)

    def _updated(self, act: Act, blob: bytes) -> bytes:
        known = blob or self._grown(act, b"")
        about = {f"u{act.id}": "told"}
        return update_state(known, title=f"title {act.id}", metadata=about, codec=self.chat(act)._codec)

    def _grown(self, act: Act, blob: bytes, *said: Any) -> bytes:
        chat = self.chat(act)
        return append_messages(
            blob,
            said,
            chat._dialect,
            codec=chat._codec,
            binding=None,
            min_revision=None,
            fresh_id=changes.conversation_id(act.key),
            now_ms=self._wall(),
            converts=self._schedule.converts,
        )
