"""A random conversation whose handles write its parts now into the rows, now beside them, in each store.

The same steps are done with the functions on states, with one blob that never was in parts. After each step
both have the same history, entry by entry; after each save the store has the parts that the heads list, and
no others. The writer's constants are small here, so that parts come and join all the time.

``GOAITOOLS_PARTS_SEEDS=0:200`` runs other seeds than the one of every day.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import (
    AsyncChat,
    Chat,
    Compactor,
    Image,
    KeepRecentTurns,
    ToolContext,
    TurnLimit,
    event,
    tool,
)
from goaitools_py import history as history_room
from goaitools_py import state as state_room
from goaitools_py.chat import kept as kept_room
from goaitools_py.seal import Encrypted, Key, Keyring, Signed
from goaitools_py.state.parts import ELSEWHERE, MEDIA, SEALED_HISTORY
from goaitools_py.state.state import closed_turns, load_state
from goaitools_py.state.whole_blobs import parts_of
from goaitools_py.states import (
    fork_state,
    read_history,
    redact_state,
    rewind_state,
    undo_cut,
    update_state,
    verify_state,
)
from goaitools_py.testing import Calls, ScriptedBackend

from ..stores._places import KINDS, maker, place_of
from .conftest import check_listed
from .test_places import Kit, Loop, Plain, entered

WIRES = ("openai", "openai-responses", "anthropic")
CODECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "signed": {"codec": Signed(Keyring(Key(b"k" * 32))), "binding": {"user": "1"}},
    "encrypted": {"codec": Encrypted(Keyring(Key(b"k" * 32))), "binding": {"user": "1"}},
}
STEPS = 28
SMALL = 150
WORDS = ("dragon", "harbour", "lamp", "wizard", "omelette", "Ada", "gate", "score", "thread", "moss")
PICTURES = [Image.from_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(n).randbytes(4_500)) for n in range(3)]


def seeds() -> range:
    """The seeds of this run."""
    first, _, end = os.environ.get("GOAITOOLS_PARTS_SEEDS", "0:1").partition(":")
    return range(int(first), int(end))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let a writer seal each turn or two. False if no writer of history in parts has the constant."""
    is_there = False
    for room in (state_room, history_room, kept_room):
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            module = importlib.import_module(found.name)
            if isinstance(getattr(module, "SMALL", None), int):
                monkeypatch.setattr(module, "SMALL", SMALL)
                is_there = True
    return is_there


@pytest.fixture(params=[kind for kind in KINDS if not kind.startswith("callable")])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    """An empty store of each kind that keeps parts."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(request.param, tmp_path))
        loop = stack.enter_context(closing(Loop()))
        yield Kit(place, stack.enter_context(entered(maker(place), loop)), loop)


class Pair:
    """Conversations in a store, and the same conversations as blobs without a codec."""

    def __init__(self, kit: Kit, seed: int) -> None:
        self.kit, self.seed = kit, seed
        self.rng = random.Random(f"{kit.place.kind}/{seed}")
        self.wire = self.rng.choice(WIRES)
        self.sealed = CODECS[self.rng.choice([*CODECS])]
        self.blobs: dict[str, bytes | None] = {"ada": None}
        self.key, self.number = "ada", 0
        self.log: list[str] = []
        self.kinds: set[int] = set()
        # Each side has one script for all of its turns, so that both give each call the same id.
        self.scripts = ScriptedBackend(wire=self.wire), ScriptedBackend(wire=self.wire)
        colour: Any = AsyncChat if kit.is_async else Chat
        self.chat = colour(self.scripts[0], tools=[tool(self.roll)], **self.sealed)
        self.plain = Chat(self.scripts[1], tools=[tool(self.quiet, name="roll")])

    # ------------------------------------------------------------------------------- both sides

    def kept(self) -> Any:
        """A handle that writes in either way; the first one beside the rows."""
        fields: dict[str, Any] = {
            "parts": self.rng.choice(("inline", "store")) if self.kinds else "store",
            "save": self.rng.choice(("turn", "checkpoint")),
        }
        self.log[-1] += f" {fields['parts']} {fields['save']}"
        made = self.chat.conversation(self.kit.store, self.key, **fields)
        return Plain(made, self.kit.run) if self.kit.is_async else made

    def roll(self, ctx: ToolContext[Any], sides: int) -> str:
        """Roll a die."""
        self.check_rows()  # a tool that is not idempotent is claimed: the turn has been saved
        return f"{sides} of {sides}"

    def quiet(self, ctx: ToolContext[Any], sides: int) -> str:
        """Roll a die."""
        return f"{sides} of {sides}"

    def text(self, most: int = 40) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randrange(1, most)))

    def same(self, act: Callable[[], Any], on_blob: Callable[[bytes], bytes]) -> None:
        """Do a step on both sides. If the blob refuses it with a ValueError, so does the conversation."""
        blob = self.blobs[self.key]
        assert blob is not None
        try:
            self.blobs[self.key] = on_blob(blob)
        except ValueError:
            self.log[-1] += " refused"
            with pytest.raises(ValueError):  # noqa: PT011
                act()
        else:
            act()

    # ------------------------------------------------------------------------------------ steps

    def say(self) -> None:
        """A turn, with a picture, a tool, thinking or a cut now and then."""
        parts: Any = self.text()
        if not self.kinds or self.rng.random() < 0.25:
            parts = [parts, self.rng.choice(PICTURES)]
        script: list[Any] = [self.text()]
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            thinking = self.text() if self.rng.random() < 0.5 else ""
            script.insert(0, Calls([("roll", {"sides": self.rng.randrange(9)})], self.text(), thinking))
        fields: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            fields["compactor"] = Compactor(
                TurnLimit(5), KeepRecentTurns(self.rng.randrange(1, 4)), retain=True
            )
        for side in self.scripts:
            side.then(*script)
        result = self.kept().send(parts, **fields)
        expected = self.plain.chat_with_state(self.blobs[self.key], user=parts, **fields)
        self.blobs[self.key] = expected.state
        assert (result.text, result.status) == (expected.text, expected.status)

    def append(self) -> None:
        """An event that no model has seen."""
        message = event(self.text())
        self.same(lambda: self.kept().append(message), lambda blob: self.plain.append_to_state(blob, message))

    def undo(self) -> None:
        """The newest cut is undone."""
        self.same(lambda: self.kept().undo_cut(), undo_cut)

    def rewind(self) -> None:
        """Some turns are taken back."""
        turns = self.rng.randrange(1, 4)
        self.same(lambda: self.kept().rewind(turns), lambda blob: rewind_state(blob, turns))

    def compact(self) -> None:
        """A cut outside of a turn, with or without a record of it."""
        keep, retain = KeepRecentTurns(self.rng.randrange(1, 4)), self.rng.random() < 0.7
        cut = Compactor(TurnLimit(1), keep, retain=retain)
        self.same(lambda: self.kept().compact(cut), lambda blob: self.plain.compact_state(blob, cut).state)

    def redact(self) -> None:
        """A word goes, everywhere."""
        word = self.rng.choice(WORDS)
        self.same(lambda: self.kept().redact(word), lambda blob: redact_state(blob, word).state)

    def update(self) -> None:
        """A title."""
        title = self.text(4)
        self.same(lambda: self.kept().update(title=title), lambda blob: update_state(blob, title=title))

    def fork(self) -> None:
        """A copy, which goes on by itself; the copy of a copy, too."""
        self.number += 1
        new = f"copy-{self.number}"
        blob = self.blobs[self.key]
        assert blob is not None
        self.kept().fork(new)
        self.blobs[new] = fork_state(blob)

    def reset(self) -> None:
        """A conversation goes with its parts; the last one stays."""
        if len(self.blobs) > 1:
            self.kept().reset()
            del self.blobs[self.key]
            assert self.kit.face.load_head(self.key) is None

    def step(self) -> None:
        """One of them, on one of the conversations."""
        self.key = self.rng.choice([*self.blobs])
        acts = [self.say] * 9 + [self.append, self.undo, self.rewind, self.compact, self.redact]
        acts += [self.update, self.fork, self.reset]
        act = self.say if self.blobs[self.key] is None else self.rng.choice(acts)
        self.log.append(f"{self.key}: {act.__name__}")
        act()

    # ----------------------------------------------------------------------------------- checks

    def check_rows(self) -> None:
        """Names listed are names stored, under every key."""
        for key in self.blobs:
            head = self.kit.face.load_head(key)
            if head is not None:
                check_listed(head, **self.sealed)
                listed = [part for part in parts_of(head.blob, **self.sealed) if part.place == ELSEWHERE]
                self.kinds |= {part.kind for part in listed}

    def check(self) -> None:
        """The conversations are those of the blobs."""
        self.check_rows()
        for key, blob in self.blobs.items():
            assert blob is not None
            self.key = key
            whole = self.kept().state()
            assert whole is not None
            assert verify_state(whole, **self.sealed) == ()
            assert facts(whole, **self.sealed) == facts(blob)

    def finish(self) -> None:
        """All conversations go, and no part of them is left."""
        for key in self.blobs:
            self.key = key
            self.kept().reset()
        assert not self.kit.face.list("").keys


def facts(blob: bytes, **sealed: Any) -> dict[str, Any]:
    """All that both sides have to agree on."""
    state = load_state(blob, **sealed)
    read = read_history(blob, archived=True, **sealed)
    return {
        "entries": [turn.entries for turn in closed_turns(state)],
        "letters": [turn.letters for turn in closed_turns(state)],
        "waiting": [item.entry for item in state.inbox],
        "archived": [
            (turn.number, [(message.role, message.parts) for message in turn.messages]) for turn in read.turns
        ],
        "open": state.open is not None,
        "turns": state.meta.processed,
        "title": state.meta.title,
        "used": state.meta.total,
        "cuts": len(state.meta.cuts),
    }


@pytest.mark.parametrize("seed", seeds())
def test_a_conversation_is_the_same_wherever_its_parts_are(kit: Kit, small: bool, seed: int) -> None:
    """In each store, whatever was written how."""
    pair = Pair(kit, seed)
    try:
        for _ in range(STEPS):
            pair.step()
            pair.log.append("check")
            pair.check()
            pair.log.pop()
        pair.log.append("finish")
        pair.finish()
    except BaseException as exc:
        exc.add_note(f"seed {seed}, {kit.place.kind}, {pair.wire}, {[*pair.sealed]}: {pair.log}")
        raise
    assert MEDIA in pair.kinds
    assert not small or SEALED_HISTORY in pair.kinds
