"""Whatever the limits, and however large replies and results are: the next message is answered.

A conversation is some steps drawn from a seed, under limits drawn from it too. After each step a small event
is appended, and after most of them a small message sent, and both have to work.
``GOAITOOLS_SIZE_SEEDS=100:200`` runs other seeds than the few of every day.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from goaitools_py import StateSizeError, TurnError, event, tool
from goaitools_py.seal import BlobLimits, Plain
from goaitools_py.state.state import load_state
from goaitools_py.testing import Calls, Raw, ScriptedBackend, check_history
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.types.messages import Image

from .conftest import Threads, blob_in

HISTORY = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
STEPS = 9


def seeds() -> range:
    """The seeds of this run."""
    first, _, end = os.environ.get("GOAITOOLS_SIZE_SEEDS", "0:3").partition(":")
    return range(int(first), int(end))


def draw_limits(rng: random.Random) -> BlobLimits:
    """Limits of which at least one is in reach."""
    given = {
        "max_blob_bytes": round(4_096 * 16 ** rng.random()),
        "max_decoded_bytes": round(16_384 * 8 ** rng.random()),
        "max_entries": rng.randrange(16, 60),
        "max_segments": rng.randrange(8, 12),
        "max_meta_bytes": rng.randrange(8_192, 20_000),
    }
    names = rng.sample(list(given), rng.randrange(1, 4))
    return BlobLimits(**{name: given[name] for name in names})


class Conversation:
    """One conversation, its provider and its tool."""

    def __init__(self, kept: Threads, store: Any, save: str, wire: str, seed: int) -> None:
        self.rng = random.Random(f"{seed}/{wire}/{save}")
        self.limits = draw_limits(self.rng)
        self.most = 3 * min(self.limits.max_blob_bytes, self.limits.max_decoded_bytes, 200_000)
        self.wire, self.store, self.kept, self.save = wire, store, kept, save
        self.backend = ScriptedBackend(wire=wire)
        self.runs: list[int] = []
        self.ids = self.checked = 0
        self.log: list[str] = []

    def size(self) -> int:
        """From a few bytes to three times the limits."""
        return round(self.most ** self.rng.random())

    def text(self) -> str:
        """Text of any size, with letters of one to six bytes in JSON, that compresses or not."""
        letters = self.rng.choice(("a", "abcdefghijklmnopqrstuvwxyz0123456789", 'ä€"\\', "\x01\n", "😀b"))
        return "".join(self.rng.choices(letters, k=self.size() // 2))

    def take(self, number: int) -> Any:
        """Take one."""
        self.runs.append(number)
        kind = self.rng.random()
        if kind < 0.6:
            return self.text()
        picture = Image.from_bytes(self.rng.randbytes(self.size()))
        return picture if kind < 0.8 else [self.text()[:200], picture, "and", picture]

    def talk(self) -> Any:
        """Another process."""
        return self.kept(
            self.backend,
            self.store,
            chat={
                "tools": [tool(self.take)],
                "codec": Plain(limits=self.limits),
                "tool_threads": False,
                "max_tool_result_bytes": self.rng.choice((256, 4_096, 256 * 1024)),
                "keep_results": self.rng.choice(("cut", "store")),
            },
            save=self.save,
        )

    def broken(self) -> Raw:
        """A streamed reply that breaks off."""
        shape = SHAPES[self.wire]
        whole = shape.reply(self.text(), [], reasoning="", model="m", number=900 + self.ids, sent=100)
        events = shape.as_events(whole)
        return Raw(events[: self.rng.randrange(1, len(events))])

    def step(self) -> None:
        """Something large may happen."""
        kind = self.rng.choice(("say", "say", "call", "call", "call", "break"))
        self.ids += 1
        fields: dict[str, Any] = {"turn_id": f"m{self.ids}"} if self.rng.random() < 0.6 else {}
        if self.rng.random() < 0.2:
            fields["metadata"] = {"page": "x" * self.rng.randrange(500)}
        if kind == "say":
            self.backend.then(self.text())
        elif kind == "break":
            self.backend.then(self.broken())
        else:
            for _ in range(self.rng.randrange(1, 3)):
                calls = [("take", {"number": n}) for n in range(self.rng.randrange(1, 6))]
                self.backend.then(Calls(calls, self.text()[:2_000]))
            self.backend.then(self.text())
        self.log.append(kind)
        self.try_it(f"Do {self.ids}.", streamed=kind == "break" or self.rng.random() < 0.5, **fields)

    def try_it(self, said: str, *, streamed: bool, **fields: Any) -> None:
        """Send a message. If its turn fails, the row has what was done, and it is not done again."""
        before, failure = len(self.runs), None
        try:
            self.send(said, streamed=streamed, **fields)
        except TurnError as exc:
            failure = exc
        if failure is not None:
            self.log.append(type(failure).__name__)
            ran = len(self.runs) - before
            assert failure.unsaved is None
            assert failure.state == blob_in(self.store)
            assert sum(record.started is not None for record in failure.tool_log) == ran
            opened = load_state(failure.state, codec=Plain(limits=self.limits)).open
            calls = opened.calls if opened is not None else ()
            assert all(call.state == "done" for call in calls)
            if isinstance(failure, StateSizeError) and "turn_id" in fields and not self.left():
                self.backend.then("Done.")
                self.send_again(said, **fields)
                assert len(self.runs) == before + ran
        self.skip()

    def send_again(self, said: str, **fields: Any) -> None:
        """The same message once more: its turn goes on, or is told of; at worst it is too large still."""
        try:
            self.send(said, streamed=False, **fields)
        except StateSizeError:
            self.log.append("again too large")

    def left(self) -> bool:
        """Whether the script has calls left."""
        return any(isinstance(step, Calls) for step in self.backend._steps)

    def skip(self) -> None:
        """Forget what was not asked for."""
        self.backend._steps.clear()

    def send(self, said: str, *, streamed: bool, **fields: Any) -> Any:
        """A turn."""
        talk = self.talk()
        return talk.start(said, **fields).result() if streamed else talk.send(said, **fields)

    def check(self) -> None:
        """A small event and a small message work, and everything that was sent is a valid history."""
        self.talk().append(event("The gate opens."))
        if self.rng.random() < 0.7:
            self.backend.then("Welcome.")
            result = self.send("Hello.", streamed=self.rng.random() < 0.5)
            assert (result.text, result.status) == ("Welcome.", "complete")
            soft = self.limits
            assert len(result.state) <= soft.max_blob_bytes
            assert result.state == blob_in(self.store)
        for body in self.backend.bodies()[self.checked :]:
            assert check_history(self.wire, body[HISTORY[self.wire]]) == []
        self.checked = len(self.backend.requests)


@pytest.mark.parametrize("wire", list(HISTORY))
@pytest.mark.parametrize("seed", seeds())
def test_the_next_small_message_is_answered(
    kept: Threads, store: Any, save: str, wire: str, seed: int
) -> None:
    """Under any limits, and after any sizes."""
    talk = Conversation(kept, store, save, wire, seed)

    for _ in range(STEPS):
        try:
            talk.step()
            talk.check()
        except BaseException as exc:
            exc.add_note(f"seed {seed}, {wire}, {save}: {talk.limits}, {talk.log}")
            raise

    assert talk.log
