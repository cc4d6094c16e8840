"""One turn of a random conversation, or the rest of one, and all that must hold when it ends.

Owns: how a step becomes a call, what the provider answers, the rules between a turn and the blob before it.
Must never know: where a conversation goes on, or how steps are drawn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from goaitools_py import (
    NO_COMPACTION,
    ChatResult,
    Compactor,
    DeadlineExceededError,
    DropOldest,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ModelReplied,
    ModelSettings,
    TurnError,
)
from goaitools_py.backends.anthropic.sent_history import as_users
from goaitools_py.sim import Fault, Recorded, Reply
from goaitools_py.state.state import load_state
from goaitools_py.states import read_history
from goaitools_py.types.messages import Message

from ._random_known import MARKS, Broken, Killed, Known, Sent, marks_of, require, unsigned
from ._random_steps import HOLLOW, Said, Step
from ._reading import ANTHROPIC, read_body

__all__ = ["Attempt"]

SYSTEMS = ("You are the game master.", "You are a librarian.", None)
DOUBTFUL = {"reset", "hang up", "short", "error event"}
"""Faults of which a client may not know whether the provider took its request."""
POISON = (400, 413, 422)
"""Statuses that blame what is new in a request."""
STRONG = {
    "preamble_changed",
    "preamble_missing",
    "model_changed",
    "endpoint_changed",
    "emergency_cut",
    "turn_not_sent",
    "view_changed",
}
ANYTHING = {*STRONG, "tools_changed", "thinking_removed", "thinking_unbound"}
"""What may have been told to somebody who is dead."""
REFORMED = {"view_changed", "thinking_removed"}
"""What is told of a reply to a request whose form an earlier refusal has changed."""
FAULTS: dict[str, Callable[[int | None, Reply], Any]] = {
    "500": lambda *_: Fault.server_error(),
    "503": lambda *_: Fault.server_error(503),
    "529": lambda *_: Fault.overloaded(),
    "429": lambda *_: Fault.rate_limit(),
    "429 wait": lambda *_: Fault.rate_limit(retry_after=3),
    "quota": lambda *_: Fault.quota(),
    "401": lambda *_: Fault.unauthorized(),
    "404": lambda *_: Fault.not_found(),
    "400": lambda *_: Fault.bad_request(),
    "413": lambda *_: Fault.too_large(),
    "422": lambda *_: Fault.error(422, "unprocessable"),
    "context": lambda *_: Fault.context_length(),
    "error body": lambda *_: Fault.error_body(),
    "no choices": lambda *_: Fault.no_choices(),
    "null choices": lambda *_: Fault.no_choices(null=True),
    "null": lambda *_: Fault.null(),
    "broken": lambda *_: Fault.broken_json(),
    "html": lambda *_: Fault.html(),
    "html 502": lambda *_: Fault.html(502),
    "error event": lambda after, reply: Fault.error_event(after=after or 0, reply=reply),
    "reset": lambda after, reply: Fault.reset(after=after, reply=reply),
    "hang up": lambda after, reply: Fault.hang_up(after=after, reply=reply),
    "cut": lambda after, reply: Fault.cut_stream(after or 0, reply=reply),
    "short": lambda _, reply: Fault.short_body(reply=reply),
}


class Attempt:
    """One turn, or the rest of one, from a known blob."""

    def __init__(self, world: Any, step: Step, base: Known, *, is_probe: bool = False) -> None:
        self.world, self.step, self.base, self.is_probe = world, step, base, is_probe
        self.wire, self.sim = world.wire, world.sim
        self.begun = 0
        self.kept: list[Known] = []
        self.checkpoints = 0
        self.events = 0
        self.appended: list[str] = []
        self.turn: Any = None
        self.seen: Exception | None = None
        self.told = base.told
        self.codes: set[str] | None = None
        """What the turn has warned of; None while it runs, and if nobody could be told."""

    def go(self) -> None:
        """Run it, check it, and make its last blob the conversation's."""
        world, step, base = self.world, self.step, self.base
        opened = load_state(base.blob).open if base.blob else None
        self.is_resume = step.kind == "resume" and opened is not None and not self.is_probe
        self.begun_calls = {
            token
            for call in (opened.calls if opened else ())
            if call.state != "new"
            for token in MARKS.findall(call.arguments)
        }
        self.had_calls = opened is not None and bool(opened.calls)
        self.was_unbound = bool(base.blob) and load_state(base.blob).meta.unbound
        says = step.says if self.is_resume else step.says or ("user",)
        messages, self.said, self.topics = world.messages(says)
        if messages and messages[0].role == "system":
            self.said = self.said[1:]
        script = () if self.is_probe else step.script
        self.sim.clear()
        self.sim.push(*[self._scripted(said) for said in script])
        self.script = script
        self.effects_before = len(world.effects)
        error: BaseException | None = None
        result: ChatResult | None = None
        try:
            result = self._run(messages)
        except (TurnError, Killed, asyncio.CancelledError) as exc:
            error = exc
        except Exception as exc:
            if isinstance(exc, Broken):
                raise
            raise Broken(f"{type(exc).__name__} is no error of a turn: {str(exc)[:200]}") from exc
        if self.seen is not None:
            raise self.seen
        world.tally["turns"] += 1
        world.tally[type(error).__name__ if error is not None else "no error"] += 1
        self._check_requests(result, error)
        final = self._final(result, error)
        if self.is_probe:
            require(result is not None and result.status == "complete", f"a plain turn fails: {error!r}")
            once = 2 if base.is_imported else 1  # thinking of unknown origin may be refused, once
            require(len(self.sim.requests) <= once, f"a plain turn took {len(self.sim.requests)} requests")
            return
        if final is not None:
            for known in self.kept[-6:]:
                world.older = [*world.older, known][-12:]
            world.keep(final)

    # ----------------------------------------------------------------------------------- running

    def _fields(self, messages: list[Message]) -> dict[str, Any]:
        step = self.step
        compactor = {
            "recent": Compactor(MessageLimit(8), KeepRecentTurns(2)),
            "drop": Compactor(MessageLimit(6), DropOldest(target_messages=4)),
            "raises": Compactor(MessageLimit(1), _raising),
            "empty": Compactor(MessageLimit(1), lambda _: ()),
            "never": NO_COMPACTION,
        }.get(step.compactor)
        fields: dict[str, Any] = {
            "messages": messages,
            "system": SYSTEMS[step.system],
            "tools": self.world.tools(step.tools),
            "settings": self._settings(),
            "sticky_settings": step.sticky,
            "compactor": compactor,
            "limits": Limits(max_iterations=step.iterations),
            "on_limit": step.on_limit,
            "tool_errors": step.tool_errors,
            "on_checkpoint": self._checkpoint,
        }
        if step.max_calls:
            fields["limits"] = Limits(max_tool_calls=step.max_calls)
        if step.context:
            fields["context"] = f"It is {step.context} o'clock."
        if step.threads is not None:
            fields["tool_threads"] = step.threads
        if step.stop is not None and step.stop[0] == "pings":
            fields["timeout"] = 0.25
        return fields

    def _settings(self) -> ModelSettings:
        step, given = self.step, dict[str, Any]()
        if self.wire == "anthropic" and step.thinks == "on":
            given |= {"thinking_budget_tokens": 1024, "max_output_tokens": 4096}
        elif self.wire == "anthropic" and step.thinks == "off":
            given["thinking_budget_tokens"] = 0
        elif self.wire == "openai-responses" and step.thinks:
            given["reasoning_effort"] = "low" if step.thinks == "on" else "none"
        if step.choice and step.tools:
            given["tool_choice"] = "auto" if step.choice == "one" else step.choice
            if step.choice == "one":
                given["parallel_tool_calls"] = False
        return ModelSettings(**given)

    def _run(self, messages: list[Message]) -> ChatResult | None:
        world, step = self.world, self.step
        chat = world.chat(step)
        fields = self._fields(messages)
        stop = step.stop
        if self.is_resume or not step.streamed:
            if stop is not None and stop[0] == "deadline":
                # There is nothing to look at but checkpoints: time passes at one of them.
                self.deadline_at = stop[1] % 5 + 1
            call = chat.resume if self.is_resume else chat.chat_with_state
            answer: ChatResult = call(self.base.blob, **fields)
            return answer
        if stop is not None and stop[0] == "pings":
            self.sim.push(Fault.pings(after=stop[1] % 8))
        if stop is not None and stop[0] == "task" and world.face.is_async:
            return self._in_a_task(chat, fields)
        self.turn = chat.start(self.base.blob, **fields)
        for happened in self.turn:
            self._event(happened)
            if stop is not None and self.events == stop[1] + 1:
                if stop[0] == "deadline":
                    world.clock.advance(10_000)
                elif stop[0] in ("cancel", "task"):
                    self.turn.cancel()
                elif stop[0] in ("break", "raise"):
                    break
        if stop is not None and stop[0] in ("break", "raise", "cancel", "task"):
            self.turn.cancel()
            if self.turn.turn._steps.result is None:
                return None
        result: ChatResult = self.turn.result()
        return result

    def _in_a_task(self, chat: Any, fields: dict[str, Any]) -> ChatResult | None:
        stop = self.step.stop
        assert stop is not None

        def watch(happened: Any) -> None:
            self._event(happened)
            if self.events == stop[1] + 1:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()

        inner = chat.inner.start(self.base.blob, **fields, on_event=watch)
        self.turn = inner

        async def drain() -> ChatResult:
            answer: ChatResult = await inner.result()
            return answer

        async def run() -> ChatResult:
            return await asyncio.ensure_future(drain())

        made: ChatResult = self.world.face.run(run())
        return made

    def _event(self, happened: Any) -> None:
        self.events += 1
        if isinstance(happened, ModelReplied) or self.events in self.step.looks:
            self._note(self.turn.state)
        for at, kind in self.step.appends:
            if at == self.events:
                messages, marks, topics = self.world.messages([kind])
                try:
                    self.turn.append(*messages)
                except RuntimeError:
                    continue
                self.said = [*self.said, *marks]
                self.topics = [*self.topics, *topics]
                self._note(self.turn.state)

    def _checkpoint(self, blob: bytes) -> None:
        self.checkpoints += 1
        self._note(blob)
        stop = self.step.stop
        if stop is None or self.is_probe:
            return
        if getattr(self, "deadline_at", 0) == self.checkpoints:
            self.world.clock.advance(10_000)
        if stop[0] == "refused checkpoint" and self.checkpoints == stop[1]:
            raise OSError("the disk is full")
        if stop[0] == "killed" and self.checkpoints == stop[1]:
            raise Killed

    def _note(self, blob: bytes) -> None:
        """A blob of this instant: it may be all that is left."""
        try:
            self.kept.append(self._known(blob, self.kept[-1] if self.kept else self.base))
        except Exception as exc:  # an engine may swallow what a callback raises
            self.seen = self.seen or exc

    def _known(self, blob: bytes, before: Known, **more: Any) -> Known:
        said = more.pop("said", self.said)
        effects = frozenset(self.world.effects[self.effects_before :])
        return self.world.known(
            blob,
            before,
            said=[mark for mark in said if mark not in before.marks],
            topics=self.topics,
            may_cut=more.pop("may_cut", self._may_cut),
            pins_yield=self._is_too_long,
            ran=self.base.ran | effects,
            voice=self._voice,
            sent=self._last_sent(),
            told=self._told_so_far(),
            is_imported=self.base.is_imported and all(is_tried for _, is_tried in self._taken()),
            **more,
        )

    def _told_so_far(self) -> frozenset[str]:
        """What has been warned of; whatever it may be, where another voice speaks and the turn still runs."""
        if self.base.voice and self.base.voice != self._voice:
            return self.told | ANYTHING
        return self.told

    @property
    def _voice(self) -> tuple[Any, ...]:
        step = self.step
        return step.system, step.tools, step.model, step.family

    @property
    def _may_cut(self) -> bool:
        return self.step.compactor in ("recent", "drop") or self._is_too_long

    @property
    def _is_too_long(self) -> bool:
        return any(said.fault in ("context", "413") for said in self.script)

    # -------------------------------------------------------------------------------- the provider

    def _scripted(self, said: Said) -> Any:
        mark = self.world.mark
        reply: Reply
        thinking = "Hm, let me think." if said.thinking else ""
        text = f"{mark('A')} is what I say. " if said.text else ""
        match said.kind:
            case "calls":
                calls = [(name, self._arguments(state)) for name, state in said.calls]
                reply = Reply.calls(
                    *calls,
                    ids=said.ids,
                    text=text,
                    finish=said.finish,
                    thinking=thinking,
                    redacted=said.redacted,
                )
            case "pause":
                reply = Reply.pause(text, thinking=thinking, redacted=said.redacted)
            case "refuse":
                reply = Reply.refusal(text or "No.")
            case _:
                reply = Reply.text(text, finish=said.finish, thinking=thinking, redacted=said.redacted)
        if said.container:
            reply = replace(reply, container="container_sim_1")
        return FAULTS[said.fault](said.after, reply) if said.fault else reply

    def _arguments(self, state: str) -> str:
        token = self.world.mark("T")
        return {"ok": f'{{"token":"{token}"}}', "broken": f'{{"token":"{token}"', "list": f'["{token}"]'}.get(
            state, f'{{"tokem":"{token}"}}'
        )

    def _served(self) -> list[tuple[Recorded, Said]]:
        """The requests of this turn, each with what answered it."""
        script = list(self.script)
        served = []
        for request in self.sim.requests:
            is_valid = not request.problems and request.parsed is not None
            served.append((request, script.pop(0) if script and is_valid else Said()))
        return served

    def _taken(self) -> list[tuple[Sent, bool]]:
        """The requests that the provider took, each with whether its form was only tried: it came after a
        refusal. The state gets a tried form together with a reply to it, and not before."""
        taken: list[tuple[Sent, bool]] = []
        is_tried = False
        for request, said in self._served():
            if (
                request.status == 200
                and said.fault not in (*HOLLOW, *DOUBTFUL)
                # A cut body is no reply, a cut stream the beginning of one.
                and (said.fault != "cut" or (request.parsed or {}).get("stream"))
            ):
                taken.append((Sent.of(request, self.wire), is_tried))
            if request.status in POISON:
                is_tried = True
            elif request.status == 200 and not said.fault:
                is_tried = False
        return taken

    def _accepted(self) -> list[Sent]:
        return [sent for sent, _ in self._taken()]

    def _accepted_any(self) -> bool:
        """Whether the provider took, or may have taken, any request of this turn."""
        return bool(self._accepted()) or any(said.fault in DOUBTFUL for _, said in self._served())

    def _last_sent(self) -> Sent | None:
        served = self._served()
        if self._may_cut or (served and served[-1][1].fault in DOUBTFUL):
            return None
        taken = self._taken()
        while taken and taken[-1][1]:
            if self.codes is None or self.codes & REFORMED:
                return None  # the state may have this form, or the one before
            taken.pop()
        return taken[-1][0] if taken else self.base.sent

    # ------------------------------------------------------------------------------------ checking

    def _warnings(self, result: ChatResult | None, error: BaseException | None) -> set[str] | None:
        """The codes of what was warned of; None if nobody could be told."""
        if result is not None:
            return {warning.code for warning in result.warnings}
        if isinstance(error, TurnError):
            return {warning.code for warning in error.warnings}
        inner = getattr(self.turn, "turn", self.turn)
        if inner is not None:
            return {warning.code for warning in inner._engine._ledger.report.warnings}
        return None

    def _check_requests(self, result: ChatResult | None, error: BaseException | None) -> None:
        base = self.base
        codes = self.codes = self._warnings(result, error)
        if codes is None:  # nobody was told
            codes = ANYTHING if base.voice and base.voice != self._voice else set()
            if any(is_tried for _, is_tried in self._taken()):
                codes = codes | REFORMED
        problems = [problem for request in self.sim.requests for problem in request.problems]
        if base.is_imported and problems:
            problems = [p for p in problems if "signature" not in p and "`data`" not in p]
        if self.step.thinks == "off" and (self.was_unbound or "thinking_unbound" in codes):
            # With thinking switched off there is no member by which a request could ask to drop a block.
            problems = [p for p in problems if "signature" not in p and "`data`" not in p]
        require(not problems, f"the provider refuses a request: {problems[:1]}")
        tokens = self.world.effects[self.effects_before :]
        again = [t for t in tokens if t in base.ran or t in self.begun_calls or tokens.count(t) > 1]
        require(not again, f"a tool ran twice along one chain: {again}")
        told = codes | base.told
        self.told = frozenset(told)
        if "input_dropped" in codes:
            is_told = self.was_unbound or base.was_imported or told & {"thinking_unbound", "thinking_removed"}
            require(is_told, "the provider dropped thinking, and nothing had changed")
        self._check_prefix(told, is_broken_off=result is None)

    def _check_prefix(self, told: set[str], *, is_broken_off: bool) -> None:
        before = self.base.sent
        cut = self._may_cut or "emergency_cut" in told
        taken = self._taken()
        while is_broken_off and taken and taken[-1][1]:
            taken.pop()  # without a reply to the tried form nobody is told, and the state does not have it
        for sent, _ in taken:
            if before is not None and not cut:
                if not told & {"tools_changed"}:
                    require(before.tools == sent.tools, "the tools changed without a warning")
                if not told & {"preamble_changed", "preamble_missing"}:
                    require(before.system == sent.system, "the preamble changed without a warning")
                earlier, later = before.history.rstrip(b"]"), sent.history
                if not later.startswith(earlier):
                    self._check_change(earlier, later, told)
            before = sent

    def _check_change(self, earlier: bytes, later: bytes, told: set[str]) -> None:
        """Earlier bytes of the history are not there: somebody must have said why."""
        if told & STRONG or self.base.is_imported:
            return
        if self.base.blob and not all(turn.is_sent for turn in read_history(self.base.blob).turns):
            return  # a refused turn is left out from here on; who has the blob of a checkpoint was not told
        if told & {"turn_closed", "calls_dropped"} and b"server_tool_use" in earlier:
            return  # a hosted call that nobody will answer was cut out
        kept, _, last = earlier.rpartition(b",\n")
        is_system = self.world.wire == ANTHROPIC and last.startswith(b'{"role":"system"')
        if is_system and later.startswith(b",\n".join([kept, as_users(last)])):
            return  # no reply followed it, and now another message does: it cannot stay a system message
        if "thinking_removed" in told:
            old, new = (unsigned(read_body(b'{"h":%s}' % h).values["h"]) for h in (earlier + b"]", later))
            if new[: len(old)] == old:
                return
        raise Broken(f"earlier bytes of the history changed; warned of: {sorted(told)}")

    def _final(self, result: ChatResult | None, error: BaseException | None) -> Known | None:
        """Check what is left of the turn, and what it told."""
        before = self.kept[-1] if self.kept else self.base
        if result is not None:
            blob, text, log = result.state, result.text, result.tool_log
            cut = result.compaction is not None or self._may_cut
            known = replace(self._known(blob, before, may_cut=cut), told=frozenset(), is_imported=False)
            sent = Sent.of(self.sim.requests[-1], self.wire)
            known = replace(known, sent=None if cut else sent)
            lost = [mark for mark in MARKS.findall(text) if mark not in known.marks]
            require(not lost, "the answer is not in the state")
            self._check_log(log, known.marks, lost=())
            self._check_effects(known)
            return known
        if isinstance(error, TurnError):
            return self._after_error(error, before)
        if self.turn is not None:
            known = self._known(self.turn.state, before, said=self.said if self.events else ())
            if isinstance(error, asyncio.CancelledError):
                known = replace(known, sent=None)
            if self.events:
                self._check_effects(known)
            return known
        # Killed without a handle: what was kept last is all there is.
        return self.kept[-1] if self.kept else None

    def _after_error(self, error: TurnError, before: Known) -> Known | None:
        step = self.step
        is_scripted = any(said.fault or said.calls for said in self.script)
        has_reason = is_scripted or step.stop or step.on_limit == "raise" or self.had_calls
        require(has_reason, f"{type(error).__name__} came of nothing: {error}")
        returned = marks_of([message.text for message in error.pending_input])
        delivered = {mark for record in error.tool_log for mark in MARKS.findall(record.result)}
        is_poison = type(error).__name__ in ("ProviderRejectedError", "ContextTooLongError")
        if returned:
            require(is_poison, f"{type(error).__name__} gave messages back")
        if error.status_code in POISON and not self._accepted_any():
            left = [mark for mark in self.said if mark not in returned and mark not in self.topics]
            require(not left, f"refused for their content, and not given back: {left}")
        if not error.state:
            require(self.base.blob is None, "the error has no state")
            missing = [mark for mark in self.said if mark not in returned and mark not in self.topics]
            require(not missing, f"neither in the state nor given back: {missing}")
            return None
        lost = {*returned, *(delivered if is_poison else ())}
        known = self._known(error.state, before, lost=lost)
        both = [mark for mark in returned if mark in known.marks]
        require(not both, f"given back, and in the state as well: {both}")
        gone = [mark for mark in MARKS.findall(error.text) if mark not in known.marks]
        require(not gone, "the last whole answer is not in the error's state")
        self._check_log(error.tool_log, known.marks, lost=lost)
        self._check_effects(known)
        if isinstance(error, DeadlineExceededError):
            known = replace(known, sent=None)
        return known

    def _check_log(self, log: Iterable[Any], marks: Sequence[str], lost: Iterable[str]) -> None:
        missing = [
            mark
            for record in log
            for mark in MARKS.findall(record.result)
            if mark not in marks and mark not in lost
        ]
        require(not missing, f"results that the log has are not in the state: {missing}")

    def _check_effects(self, known: Known) -> None:
        """What a tool has done stands in the state: its call, and its result or a word about it."""
        tokens = self.world.effects[self.effects_before :]
        missing = [t for t in tokens if t not in known.marks]
        require(not missing, f"a tool ran of which the state does not know: {missing}")


def _raising(_: Any) -> Any:
    raise LookupError("a compactor that fails")
