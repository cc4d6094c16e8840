"""Runs a program's conversation again and again, and kills it at each of its effects, one after another.

Owns: where a kill comes, the lives before and after it, and the conditions at the end.
Must never know: the effects of the program's tools, which store it uses, a test framework.

A kill is simulated in this process: after it this life stores, asks and starts nothing. The next life begins
with a new chat, and with the state in the store.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

from ..backends.base import ModelRequest
from ..backends.dialects import dialect_of
from ..backends.read_entries import read_entries
from ..base import rawjson
from ..base.values import Value
from ..chat.async_chat import AsyncChat
from ..history.import_messages import state_messages
from ..history.stored_states import verify_state
from ..history.turns import read_history
from ..stores.memory import AsyncMemoryStore, MemoryStore
from ..types.errors import StateError
from ._async_crash_stores import async_mortal
from ._crash_stores import Held, mortal
from ._history_check import check_history
from .scripted import ScriptedBackend, Step

__all__ = ["CrashReport", "ScriptedTurn", "crash_points"]

ScriptedTurn: TypeAlias = tuple[str, Sequence[Step]]
"""The user's text, and the model's replies to it: steps as `ScriptedBackend` takes them."""

MOST_LIVES: Final = 8
_HISTORY: Final = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}


class Killed(BaseException):
    """The life ends here. No code of the program may catch it."""


class CrashReport(Value, frozen=True, kw_only=True):
    """The report of `crash_points`.

    Attributes:
        points: How many kills there were, by the effect at which they came, such as "after a save".
        in_doubt: In how many of the runs the model was told that the outcome of a call is unknown.
    """

    points: dict[str, int]
    in_doubt: int


def crash_points(
    make_chat: Callable[[Any], Any],
    script: Sequence[ScriptedTurn],
    *,
    make_store: Callable[[], Any] | None = None,
    effects: Callable[[], Iterable[Hashable]] = tuple,
    wire: str = "openai",
    parts: Literal["inline", "store"] = "inline",
) -> CrashReport:
    """Kill a conversation before and after each effect, and go on with it.

    ::

        def test_my_tools_survive() -> None:
            crash_points(
                lambda backend: Chat(backend, tools=[charge]),
                [("Pay 5 euros.", [Calls([("charge", {"euros": 5})]), "Paid."])],
                effects=lambda: bank.payments,
            )

    An effect is a request, a load, a save, or the beginning or end of a lease, if your store has leases. The
    conversation is kept with ``save="checkpoint"``. After a kill the same text is sent again under the same
    `turn_id`, as a queue does it. The lease of a life that was killed has run out by then. Call it outside
    async code.

    Args:
        make_chat: Gives the program's chat over the backend that it gets, a new one for each life. Tools must
            not wait for an approval.
        script: The turns of the conversation, each text another one.
        make_store: Gives your store, the same or another one for each run; None: one in memory. A run has a
            random key of its own, which begins with "crash-points-" and is not deleted.
        effects: Gives the effects of the tools until now, each as a value of its own.
        wire: The provider API that the model speaks.
        parts: As for `Chat.conversation`: "store" keeps history, archive and media beside the state.

    Returns:
        A `CrashReport`.

    Raises:
        AssertionError: After a kill, one of these happened: a text or a reply was lost or doubled; an effect
            came twice, or is missing and the model was not told so; the history is not valid; more than one
            reply was paid for again. All kills are made; the text has a line for each finding.
        ValueError: Two turns have the same text, or the script is empty.
    """
    texts = [text for text, _ in script]
    if not texts or len(set(texts)) < len(texts):
        raise ValueError("script must be a list of turns, each with a text of its own")
    reference = _CrashRun(make_chat, script, make_store, effects, wire, parts)
    reference.live_to_the_end(0)
    findings = [f"without a kill: {finding}" for finding in reference.findings(None)]
    points: Counter[str] = Counter()
    in_doubt = 0
    for at in range(1, reference.count + 1) if not findings else ():
        run = _CrashRun(make_chat, script, make_store, effects, wire, parts)
        run.live_to_the_end(at)
        points[run.killed_at] += 1
        in_doubt += run.has_doubts()
        findings += [f"kill {at}, {run.killed_at}: {finding}" for finding in run.findings(reference)]
    if findings:
        raise AssertionError(f"{len(findings)} findings:" + "".join(f"\n- {x}" for x in findings[:40]))
    return CrashReport(points=dict(points), in_doubt=in_doubt)


class _Life:
    """From a start of the program to its end, or to the kill. `left`: the effects until then; 0: no kill."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.count = 0
        self.killed_at = ""

    def passes(self, point: str) -> None:
        """An effect begins, or has just ended."""
        if self.killed_at:
            raise Killed  # the library cleans up, and a process that was killed does not
        self.count += 1
        if self.count == self.left:
            self.killed_at = point
            raise Killed


@contextmanager
def _silent_deaths() -> Iterator[None]:
    """Suppress the warnings of Python about refused clean-up, while the objects of a killed life go."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda found: None if isinstance(found.exc_value, Killed) else before(found)
    try:
        yield
    except Killed as exc:
        link: BaseException | None = exc
        while link is not None:
            traceback.clear_frames(link.__traceback__)
            link = link.__context__
        raise Killed from None
    finally:
        sys.unraisablehook = before


class _CrashRun:
    """One conversation with at most one kill, from the first life to the last."""

    def __init__(
        self,
        make_chat: Callable[[Any], Any],
        script: Sequence[ScriptedTurn],
        make_store: Callable[[], Any] | None,
        effects: Callable[[], Iterable[Hashable]],
        wire: str,
        parts: Literal["inline", "store"],
    ) -> None:
        self._make_chat, self._script, self._effects, self._wire = make_chat, script, effects, wire
        self._parts: Literal["inline", "store"] = parts
        self._before = Counter(effects())
        self.is_async = isinstance(make_chat(ScriptedBackend(wire=wire)), AsyncChat)
        default = AsyncMemoryStore if self.is_async else MemoryStore
        self._store: Any = (make_store or default)()
        self._model = _Model(script, wire)
        # Each run is another conversation: its calls have other idempotency keys.
        self._key = f"crash-points-{secrets.token_hex(6)}"
        self._texts: list[str] = []
        self._held: Held = {}
        self.count = 0
        self.killed_at = ""
        self.done: Counter[Hashable] = Counter()
        self._problems: list[str] = []

    def live_to_the_end(self, at: int) -> None:
        """Run lives to the end. The first is killed at its effect number `at`; the next ones are not."""
        for number in itertools.count():
            life = _Life(at if not number else 0)
            try:
                with _silent_deaths():
                    self._live(life)
            except Killed:
                self.killed_at = life.killed_at
                continue
            except Exception as exc:
                if self._model.problem:
                    self._problems.append(self._model.problem)
                self._problems.append(f"life {number + 1} ended with {type(exc).__name__}")
                if number < MOST_LIVES and not self._model.problem:
                    self._problems.pop()
                    continue
            self.count = life.count
            break
        self.done = Counter(self._effects()) - self._before

    def _live(self, life: _Life) -> None:
        chat = self._make_chat(_Backend(self._model, life))
        self._texts = []
        if self.is_async:
            asyncio.run(self._talk_async(chat, life))
            return
        for lease in self._left():
            lease.close()
        store = mortal(self._store, life.passes, self._held)
        kept = chat.conversation(store, self._key, save="checkpoint", parts=self._parts)
        for number, (text, _) in enumerate(self._script):
            self._texts.append(kept.send(text, turn_id=f"turn-{number}").text)

    async def _talk_async(self, chat: Any, life: _Life) -> None:
        for lease in self._left():
            await lease.aclose()
        store = async_mortal(self._store, life.passes, self._held)
        kept = chat.conversation(store, self._key, save="checkpoint", parts=self._parts)
        for number, (text, _) in enumerate(self._script):
            self._texts.append((await kept.send(text, turn_id=f"turn-{number}")).text)

    def _left(self) -> list[Any]:
        """Take the functions that end the leases of a killed life: the leases run out at once, without a
        wait."""
        left = [*self._held.values()]
        self._held.clear()
        return left

    # ------------------------------------------------------------------------------------------ the end

    def _blob(self) -> bytes:
        if self._parts == "store":
            return self._whole() or b""
        stored = asyncio.run(self._store.load(self._key)) if self.is_async else self._store.load(self._key)
        return b"" if stored is None else stored.blob

    def _whole(self) -> bytes | None:
        """The stored state with its parts."""
        chat = self._make_chat(ScriptedBackend(wire=self._wire))
        kept = chat.conversation(self._store, self._key, parts="store")
        found: bytes | None = asyncio.run(kept.state()) if self.is_async else kept.state()
        return found

    def has_doubts(self) -> bool:
        """True if a call of the history has an unknown outcome."""
        blob = self._blob()
        return bool(blob) and any(call.flag == "unknown" for call in read_history(blob).tool_calls())

    def findings(self, reference: _CrashRun | None) -> list[str]:
        """List the conditions that do not hold. `reference`: the run without a kill."""
        blob = self._blob()
        if self._problems or not blob:
            return self._problems or ["nothing was stored"]
        try:
            verify_state(blob)
        except StateError as exc:
            return [f"the state is damaged: {type(exc).__name__}"]
        found = [f"the history is not valid: {x}" for x in check_history(self._wire, state_messages(blob))]
        said = [m.said for m in read_history(blob).all_messages() if m.role == "user" and not m.is_event]
        if said != [text for text, _ in self._script]:
            found.append(f"{len(said)} user messages for {len(self._script)} texts, or in another order")
        if reference is None:
            return found
        if self._texts != reference._texts:
            found.append("the replies are not those of the run without a kill")
        twice = self.done - reference.done
        if twice:
            found.append(f"{twice.total()} effects came twice, or should not have come: {_names(twice)}")
        missing = reference.done - self.done
        if missing and not self.has_doubts():
            found.append(f"{missing.total()} effects are missing, and no call is in doubt: {_names(missing)}")
        again = self._model.asked - reference._model.asked
        if again > 1:
            found.append(f"{again} more requests than without a kill; one may be lost with its life")
        return found


def _names(effects: Counter[Hashable]) -> str:
    return ", ".join(repr(effect) for effect in list(effects)[:3])


class _Model:
    """Answers by the content of a request, and not by how often it was asked."""

    def __init__(self, script: Sequence[ScriptedTurn], wire: str) -> None:
        self.dialect = dialect_of(wire)
        self.wire = wire
        self.asked = 0
        self.problem = ""
        self._script = script

    def answer(self, request: ModelRequest) -> ScriptedBackend:
        """A script with one step: the reply to this request."""
        self.asked += 1
        entries = [rawjson.dumps(entry) for entry in rawjson.loads(request.body)[_HISTORY[self.wire]]]
        messages = read_entries(self.dialect, entries)
        for text, steps in reversed(self._script):
            ends = [at for at, one in enumerate(messages) if one.role == "user" and one.said == text]
            if ends:
                number = sum(one.role == "assistant" for one in messages[ends[-1] :])
                if number < len(steps):
                    return ScriptedBackend(steps[number], wire=self.wire)
                break
        self.problem = f"request {self.asked} has no reply in the script"
        raise AssertionError(self.problem)


class _Backend:
    """The model, as long as the life lasts."""

    model = "scripted"
    max_retries = 0
    context_window = None

    def __init__(self, model: _Model, life: _Life) -> None:
        self.dialect = model.dialect
        self._model = model
        self._life = life

    def send(self, request: ModelRequest) -> Any:
        self._life.passes("before a request")
        exchange = self._model.answer(request).send(request)
        self._life.passes("after a request")
        return exchange

    async def asend(self, request: ModelRequest) -> Any:
        self._life.passes("before a request")
        exchange = await self._model.answer(request).asend(request)
        self._life.passes("after a request")
        return exchange

    def close(self) -> None:
        """Do nothing: no connection is open."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
