"""Carries the steps of a random conversation out, and checks every blob that a caller could hold.

Owns: the conversation's blobs, and the rules between two of them. Must never know: how steps are drawn, or
what happens within a turn.

Everything that is said, answered, called or found carries a number of its own ("U7x", "A8x", "T9x", "R9x"),
so that each can be counted in whatever state or request it stands.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from goaitools_py import (
    AbortTurn,
    Compactor,
    Image,
    KeepRecentTurns,
    MessageLimit,
    ProviderTool,
    Tool,
    ToolError,
    assistant,
    event,
    system,
    tool,
    user,
)
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, state_from_messages, state_messages
from goaitools_py.testing import check_history
from goaitools_py.types.messages import Message
from tests import _history_laws

from ._random_known import Broken, Known, marks_of, require
from ._random_steps import Step
from ._random_turn import Attempt
from ._reading import ANTHROPIC

__all__ = ["World"]

STEP_SECONDS = 30.0
MODELS = {
    # Models that bind their thinking, so that a server of any name is told what to do with it.
    "anthropic": ("claude-opus-5-5", "claude-sonnet-5-5"),
    "openai": ("sim-model", "sim-other"),
    "openai-responses": ("sim-model", "sim-other"),
}
FAMILIES = {"anthropic": ("", "anthropic"), "openai": ("", "openai"), "openai-responses": ("", "openai")}
PIXEL = b"\x89PNG\r\n\x1a\n"


class World:
    """One conversation on one wire, with a simulator of its own."""

    def __init__(self, face: Any, simulator: Any, clock: Any, wire: str) -> None:
        self.face, self.clock, self.wire = face, clock, wire
        self.sim = simulator(model=lambda _: Reply.text(f"{self.mark('A')} is what I say."))
        self.sim.wire = wire
        self.count = 0
        self.effects: list[str] = []
        self.now = Known()
        self.older: list[Known] = []
        self.backends: dict[Any, Any] = {}
        self.chats: dict[Any, Any] = {}
        self.tally: Counter[str] = Counter()

    def __enter__(self) -> World:
        self.sim.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.restart()
        self.sim.stop()

    def restart(self) -> None:
        """Nothing but the blobs is left."""
        for backend in self.backends.values():
            if self.face.is_async:
                self.face.run(backend.aclose())
            else:
                backend.close()
        self.backends.clear()
        self.chats.clear()

    def mark(self, letter: str) -> str:
        """A number for one thing that is said, answered, called or found."""
        self.count += 1
        return f"{letter}{self.count}x"

    # ------------------------------------------------------------------------------------ the steps

    def run(self, step: Step) -> None:
        """Carry a step out and check it, then see that a plain turn still works."""
        began = time.monotonic()
        self.tally[step.kind] += 1
        match step.kind:
            case "append":
                self._append(step)
            case "compact":
                self._compact(step)
            case "restart":
                self.restart()
            case "export":
                self._export()
            case "back":
                if self.older:
                    self.now = self.older[int(step.pick * len(self.older))]
            case _:
                Attempt(self, step, self.now).go()
        require(time.monotonic() - began < STEP_SECONDS, "a step took too long")
        self._probe(step)

    def keep(self, known: Known) -> None:
        """A blob to go on from; the one before may be gone back to."""
        self.older = [*self.older, self.now][-12:]
        self.now = known

    def _probe(self, step: Step) -> None:
        """On copies: a plain turn works, with the step's own voice and with the usual one."""
        usual = Step(thinks="on" if self.wire != "openai" else "")
        own = replace(
            usual,
            system=step.system,
            tools=step.tools,
            model=step.model,
            family=step.family,
            thinks=step.thinks,
        )
        for base in {self.now.blob: self.now, **{k.blob: k for k in self.older[-1:]}}.values():
            Attempt(self, own if step.kind in ("turn", "resume") else usual, base, is_probe=True).go()

    def _append(self, step: Step) -> None:
        kinds = [k for k in step.says if k in ("event", "topic", "named", "user", "system")]
        messages, added, topics = self.messages(kinds)
        chat = self.chat(Step())
        state = self.now.blob
        try:
            blob = chat.append_to_state(state, *messages)
        except Exception as exc:
            raise Broken(f"append_to_state raised {type(exc).__name__}") from exc
        self.keep(self.known(blob, self.now, said=added, topics=topics))

    def _compact(self, step: Step) -> None:
        if self.now.blob is None:
            return
        report = self.chat(Step()).compact_state(
            self.now.blob, Compactor(MessageLimit(1), KeepRecentTurns(step.keep))
        )
        was_cut = report.outcome == "compacted"
        known = self.known(report.state, self.now, may_cut=was_cut)
        self.keep(replace(known, sent=None) if was_cut else known)

    def _export(self) -> None:
        if self.now.blob is None:
            return
        messages = state_messages(self.now.blob)
        try:
            blob = state_from_messages(self.wire, messages, conversation_id="kept")
        except ValueError as exc:
            require("begin with a system message" in str(exc), f"an exported history is refused: {exc}")
            return
        known = self.known(blob, replace(self.now, usage=(0,) * 6))
        self.keep(replace(known, is_imported=True, was_imported=True, topics=frozenset(), sent=None))

    # -------------------------------------------------------------------------------------- blobs

    def known(
        self,
        blob: bytes,
        base: Known,
        *,
        said: Sequence[str] = (),
        topics: Iterable[str] = (),
        lost: Iterable[str] = (),
        may_cut: bool = False,
        pins_yield: bool = False,
        **changes: Any,
    ) -> Known:
        """Check a blob that grew from `base`, and note what it holds.

        Args:
            blob: The blob.
            base: What it grew from.
            said: Marks that it must hold beside those of `base`.
            topics: Those among them that a newer event may replace.
            lost: Marks that may be gone.
            may_cut: Whether the oldest marks may be gone too, but for those of pinned messages.
            pins_yield: Whether pinned messages may be gone with them: in an emergency.
            changes: What else is known.
        """
        self.tally["blobs"] += 1
        info = inspect_state(blob)
        messages = state_messages(blob)
        problems = check_history(self.wire, messages)
        require(not problems, f"the closed view breaks a rule: {problems[:1]}")
        marks = marks_of(messages)
        twice = [mark for mark, count in Counter(marks).items() if count > 1]
        require(not twice, f"said twice in one state: {twice}")
        replaced = base.topics | frozenset(topics)
        expected = [*base.marks, *said]
        gone = [m for m in expected if m not in marks and m not in replaced and m not in set(lost)]
        if gone and may_cut:
            kept = [place for place, mark in enumerate(base.marks) if mark in marks and mark[0] != "P"]
            # Whole turns go from the beginning on; the system's messages stay where they are.
            old = [m for m in gone if m in base.marks and (pins_yield or m[0] != "P")]
            gone = [m for m in gone if m not in old or (kept and base.marks.index(m) > kept[0])]
        require(not gone, f"lost without a word: {gone}")
        stayed = [mark for mark in base.marks if mark in marks and mark not in replaced]
        at = [marks.index(mark) for mark in stayed]
        require(at == sorted(at), "what was said before changed its order")
        self._check_order(blob)
        total = info.total_usage
        usage = tuple(getattr(total, name) for name in total.__struct_fields__)
        less = [name for name, a, b in zip(total.__struct_fields__, usage, base.usage, strict=True) if a < b]
        require(not less, f"the usage shrank: {less}")
        return replace(base, blob=blob, marks=marks, topics=replaced, usage=usage, **changes)

    def _check_order(self, blob: bytes) -> None:
        """Each reply's calls are followed by their results, in the order of the calls; the history keeps its
        laws."""
        waiting: list[str] = []
        try:
            history = _history_laws.check(blob)
        except AssertionError as exc:
            raise Broken(f"the history breaks a law: {exc}") from exc
        for message in history.all_messages():
            if message.tool_calls:
                require(not waiting, "a call has no result before the next reply")
                waiting = [call.id for call in message.tool_calls]
            elif message.role == "tool":
                require(waiting[:1] == [message.tool_call_id], "results are not in call order")
                del waiting[0]
        require(not waiting, "a call has no result in the closed view")

    # ------------------------------------------------------------------------------------ the voice

    def messages(self, kinds: Iterable[str]) -> tuple[list[Message], list[str], list[str]]:
        """Messages of these kinds, their marks, and those among them that may be replaced."""
        made: list[Message] = []
        marks: list[str] = []
        topics: list[str] = []
        for kind in kinds:
            letter = {"user": "U", "image": "U", "assistant": "S", "system": "P"}.get(kind, "E")
            mark = self.mark(letter)
            marks.append(mark)
            text = f"{mark} is said."
            match kind:
                case "user":
                    made.append(user(text))
                case "image":
                    made.append(user(text, Image.from_bytes(PIXEL)))
                case "assistant":
                    made.append(assistant(text))
                case "system":
                    made.append(system(text))
                case "topic":
                    made.append(event(text, topic="weather"))
                    topics.append(mark)
                case "named":
                    made.append(event(text, id=mark.lower()))
                case _:
                    made.append(event(text))
        return made, marks, topics

    def chat(self, step: Step) -> Any:
        """A chat on the step's model, endpoint and patience."""
        key = (step.model, step.family, step.retries)
        if key not in self.chats:
            model = MODELS[self.wire][step.model]
            backend = self.sim.backend(model, is_async=self.face.is_async, max_retries=step.retries)
            if family := FAMILIES[self.wire][step.family]:
                given = {"model": model} if self.wire == ANTHROPIC else {}
                backend.dialect = type(backend.dialect)(family=family, **given)
            self.backends[key] = backend
            self.chats[key] = self.face.chat(backend)
        return self.chats[key]

    def tools(self, number: int) -> list[Any]:
        """The tools of a step."""
        hosted = [
            ProviderTool({"type": "web_search_20250305", "name": "web_search"}),
            ProviderTool({"type": "code_execution_20250825", "name": "code_execution"}),
        ]
        own = self._own_tools
        return [[], own, [*own, rest], own[:2], [*own, *hosted]][number]

    @cached_property
    def _own_tools(self) -> list[Tool[..., Any]]:
        """What each does is noted before it returns, raises or dawdles."""

        def act(token: str) -> str:
            """Do it."""
            return self._effect(token)

        def fail(token: str) -> str:
            """Fail at it."""
            raise RuntimeError(self._effect(token))

        def grumble(token: str) -> str:
            """Refuse, having tried."""
            raise ToolError(self._effect(token))

        def look(token: str) -> list[Any]:
            """Bring a picture."""
            return [self._effect(token), Image.from_bytes(PIXEL)]

        def abort(token: str) -> str:
            """End the turn."""
            raise AbortTurn(self._effect(token))

        def dawdle(token: str) -> str:
            """Take longer than any turn may."""
            self.clock.advance(4_000)
            return self._effect(token)

        async def wander(token: str) -> str:
            """Do it, but not at once."""
            await asyncio.sleep(0)
            return self._effect(token)

        found = [act, fail, grumble, look, abort, dawdle, *([wander] if self.face.is_async else [])]
        return [tool(function) for function in found]

    def _effect(self, token: str) -> str:
        self.effects.append(token)
        return f"{token.replace('T', 'R')} came of it"


@tool
def rest(hours: int) -> str:
    """Rest for some hours."""
    return "rested"
