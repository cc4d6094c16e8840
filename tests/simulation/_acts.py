"""From an act to the flow of the package that carries it out.

Owns: how a conversation is made for a worker, and what each kind of act calls. Must never know: faults,
the order of steps, or which promises are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final

from goaitools_py import Approve, Chat, Compactor, Conversation, Deny, KeepRecentTurns, MessageLimit, event
from goaitools_py.history.append import append_messages
from goaitools_py.history.open.answers import Answers
from goaitools_py.kept import changes
from goaitools_py.kept.turn import KeptTurn
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.states import pending_calls
from goaitools_py.turn.flow import Flow, Invoke
from goaitools_py.values import replace

from ._bank import TOOLS, Bank, Teller
from ._provider import Provider, directive
from ._schedule import Act
from ._store import Port
from ._worker import LEASE_SECONDS, Renewal, Worker

__all__ = ["Desk", "event_text"]

TIGHT: Final = BlobLimits(max_blob_bytes=8_192, max_decoded_bytes=32_768, max_entries=64)
COMPACTOR: Final = Compactor(MessageLimit(2), KeepRecentTurns(1))
ARCHIVING: Final = Compactor(MessageLimit(2), KeepRecentTurns(1), retain=True)
"""What it cuts out goes into parts."""


@cache
def chat_of(wire: str, is_tight: bool) -> Chat:
    """The chat of all runs of a kind: it keeps nothing of them."""
    return Chat(Provider(wire), codec=Plain(limits=TIGHT) if is_tight else Plain(), tools=TOOLS)


@cache
def usual_conversation(chat: Chat, save: str, behind: bool) -> Conversation:
    """A conversation with the settings that all of its kind have."""
    place: Any = Port(None, "")  # type: ignore[arg-type]
    return chat.conversation(
        place,
        "k",
        save=save,  # type: ignore[arg-type]
        lease_ttl=LEASE_SECONDS,
        concurrent_turns=behind,
    )


def event_text(id: int) -> str:
    """What an appended event says."""
    return f"[[e{id}]]"


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
            waiting = [call for call in pending_calls(found.blob) if call.reason == "approval"]
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
        self,
        *,
        wire: str,
        is_tight: bool,
        behind: bool,
        in_parts: bool,
        bank: Bank,
        wall: Callable[[], int],
    ) -> None:
        self.chat = chat_of(wire, is_tight)
        self.given: dict[str, Mapping[str, Any]] = {}
        self._behind = behind
        self._in_parts = in_parts
        self._bank = bank
        self._wall = wall

    def work(self, worker: Worker) -> Any:
        """What a worker does for its act."""
        act = worker.act
        kept = self._conversation(worker)
        settings = kept._settings
        match act.kind:
            case "send" | "again" | "final":
                fields = {"turn_id": f"t{act.id}"} if act.has_id else {}
                pending = "deny" if act.kind == "final" else ("raise", "deny", "queue")[int(act.choice * 3)]
                text = directive(act.id, act.rounds)
                return self._turn(kept, worker, text, {**fields, "on_pending": pending})
            case "resume":
                return self._turn(kept, worker, None, {}, resume=True)
            case "answer" | "answer_again":
                return Answering(worker, self)
            case "append":
                return Plainly(partial(changes.append_flow, settings, partial(self._append, act)))
            case "compact":
                return kept._compaction(ARCHIVING if self._in_parts else COMPACTOR, False, {})[0]
            case "rewind":
                return Plainly(partial(changes.rewind_flow, settings, 1))
            case "reset":
                return Plainly(partial(changes.reset_flow, settings))
            case "fork":
                other = replace(settings, key=f"f{act.id}")
                return Plainly(partial(changes.fork_flow, settings, other))
            case _:
                raise AssertionError(act.kind)

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
        work._plan = replace(work._plan, new_id=worker.new_id)
        return work

    def _conversation(self, worker: Worker) -> Conversation:
        # A conversation costs as much as some steps, so one is made of each kind, and changed for its worker.
        usual = usual_conversation(self.chat, worker.act.save, self._behind)
        settings = replace(
            usual._settings,
            store=worker.port,
            key=worker.act.key,
            gate="reject" if worker.act.choice < 0.2 else "queue",
            in_parts=self._in_parts,
            renewal=lambda lease, ttl: Renewal(worker, lease, ttl),
        )
        return Conversation(usual._ports, settings, usual._save)

    def _append(self, act: Act, blob: bytes) -> bytes:
        return append_messages(
            blob,
            [event(event_text(act.id), id=f"e{act.id}")],
            self.chat._dialect,
            codec=self.chat._codec,
            binding=None,
            min_revision=None,
            fresh_id=changes.conversation_id(act.key),
            now_ms=self._wall(),
        )
