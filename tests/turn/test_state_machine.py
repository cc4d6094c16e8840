"""A conversation against a plain list: whatever happens to it, in whatever order, it holds what it must.

Hypothesis draws the steps: turns with tools, streams that are given up, faults, deaths, repeated ids,
approvals, appended events, cuts, forks, and going back. After every step, at every checkpoint and in every
request the history's marks are those of the list (`_plain_model`), and every request keeps the provider's
rules.
``GOAITOOLS_MACHINE_RUNS=500`` runs so many conversations per wire and colour, with other seeds each time.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from goaitools_py import (
    NO_COMPACTION,
    AbortTurn,
    Approve,
    ChatResult,
    CheckpointError,
    Compactor,
    ContextTooLongError,
    Deny,
    DropOldest,
    Image,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ModelRequested,
    ModelSettings,
    ProviderRejectedError,
    ToolContext,
    ToolError,
    ToolPendingError,
    ToolReturn,
    TurnConflictError,
    TurnError,
    assistant,
    event,
    system,
    tool,
    user,
)
from goaitools_py.open_turn.journal import SYNTHETIC
from goaitools_py.open_turn.turn_ids import UNANSWERED
from goaitools_py.sim import Reply
from goaitools_py.state.records import digest8
from goaitools_py.state.state import dump_state, load_state
from goaitools_py.states import (
    fork_state,
    inspect_state,
    pending_calls,
    read_history,
    state_from_messages,
    state_messages,
)
from goaitools_py.testing import check_history
from tests import _history_laws

from ._plain_model import Broken, Call, Model, TurnId, Waiting, require
from ._plain_provider import HOLLOW, Fault, Provider, Say
from ._random_known import unsigned
from ._reading import HISTORY, MARK, read_body

FEW = 10
STEPS = 12
MARKS = re.compile(r"\b[AERSTU]\d+x\b")


def _raising(_: Any) -> Any:
    raise LookupError("a strategy that fails")


COMPACTORS = {
    "cuts": Compactor(MessageLimit(8), KeepRecentTurns(2)),
    "drops": Compactor(MessageLimit(6), DropOldest(target_messages=4)),
    "raises": Compactor(MessageLimit(1), _raising),
    "empties": Compactor(MessageLimit(1), lambda _: ()),
    "never": NO_COMPACTION,
}
CUTS = ("cuts", "drops")
PIXEL = b"\x89PNG\r\n\x1a\n"
POISON = (400, 413, 422)
IDEMPOTENT = ("note",)
INVALID = ("nothing", "wrong")
"""Calls that no tool is run for: of a tool that is not there, and with arguments that do not fit."""


class Killed(BaseException):
    """The process is gone."""


@dataclass(frozen=True)
class Plan:
    """How one turn goes."""

    script: tuple[Say | Fault, ...] = ()
    is_streamed: bool = False
    stop: int | None = None
    """At which event of a stream it is given up."""
    death: tuple[str, int] | None = None
    """Where the process dies: in a tool, or at a checkpoint, before or after it was kept."""
    appends: int | None = None
    """At which event of a stream something is appended."""
    compactor: str = ""
    retries: int = 0
    context: str = ""
    extra: str = ""
    """What comes with the user's message."""
    max_iterations: int = 10
    max_calls: int | None = None
    on_limit: str = "answer"
    tool_errors: str = "to_model"
    late: tuple[str, int] | None = None
    """Where the deadline passes: in a tool, at a checkpoint or at an event."""


CALLED = st.sampled_from(
    ["act", "act", "act", "act", "note", "fail", "pay", "clerk", "grumble", "look", "abort", *INVALID]
)
ENDS = st.sampled_from(["", "", "", "", "", "length", "refusal"])
SAY = st.builds(Say, calls=st.lists(CALLED, max_size=3).map(tuple), thinks=st.booleans(), ends=ENDS)
CALLS = st.builds(Say, calls=st.lists(CALLED, min_size=1, max_size=3).map(tuple), thinks=st.booleans())
WAITS = st.builds(
    Say, calls=st.lists(st.sampled_from(["act", "pay", "clerk"]), min_size=2, max_size=3).map(tuple)
)
FAULT = st.builds(
    Fault,
    kind=st.sampled_from(
        ["429", "500", "401", "413", "400", "422", "context", "lost", "reset", "end", *HOLLOW]
    ),
    after=st.integers(1, 12),
)
SCRIPT = st.one_of(
    st.lists(st.one_of(CALLS, CALLS, SAY, FAULT), max_size=4).map(tuple),
    st.tuples(CALLS, FAULT),
    st.tuples(FAULT, FAULT),
)
DEATH = st.tuples(st.sampled_from(["tool", "before", "after", "refused"]), st.integers(1, 4))
PLAN = st.builds(
    Plan,
    script=SCRIPT,
    is_streamed=st.booleans(),
    stop=st.one_of(st.none(), st.none(), st.integers(0, 30)),
    death=st.one_of(st.none(), st.none(), DEATH),
    appends=st.one_of(st.none(), st.integers(0, 20)),
    compactor=st.sampled_from(["", "", "", "", "", "cuts", *COMPACTORS]),
    retries=st.sampled_from([0, 0, 1]),
    context=st.sampled_from(["", "", "noon", "night"]),
    extra=st.sampled_from(["", "", "", "system", "assistant", "image"]),
    max_iterations=st.sampled_from([10, 10, 10, 1, 2]),
    max_calls=st.sampled_from([None, None, None, 1, 3]),
    on_limit=st.sampled_from(["answer", "raise"]),
    tool_errors=st.sampled_from(["to_model", "to_model", "raise"]),
    late=st.one_of(
        st.none(),
        st.none(),
        st.none(),
        st.tuples(st.sampled_from(["tool", "checkpoint", "event"]), st.integers(1, 4)),
    ),
)
ANSWERS = st.sampled_from(["", "approve", "change", "deny", "give"])
NEWS = st.lists(
    st.tuples(st.sampled_from(["", "", "score", "weather"]), st.sampled_from(["", "", "e1", "e2", "e3"])),
    max_size=2,
)


def marks_of(value: Any) -> list[str]:
    """The marks in a JSON value or a text, in order. Signatures and ids have none by accident."""
    if isinstance(value, str):
        return MARKS.findall(value)
    if isinstance(value, Mapping):
        return [m for key, inner in value.items() if key not in ("signature", "id") for m in marks_of(inner)]
    return [m for inner in value for m in marks_of(inner)] if isinstance(value, list) else []


FLAGS = {text: flag for flag, text in SYNTHETIC.items()}
"""What the words of a result that no tool produced say of it."""


def _flag_of(tool: str, text: str) -> str:
    """The flag of a call's result, from its words."""
    if MARKS.findall(text):
        return "error" if tool == "grumble" and text.endswith("came of it") else "ok"
    if text.startswith(SYNTHETIC["denied"][:-1]):
        return "denied"
    return FLAGS.get(text, "unknown" if "unknown whether" in text else "error")


def _arguments(tool: str, token: str) -> str:
    return f'{{"{"tokem" if tool == "wrong" else "token"}":"{token}"}}'


class Conversation(RuleBasedStateMachine):
    """One conversation on one wire, in one colour, and the list of what it must hold."""

    face: Any
    wire: str
    clock: Any

    def __init__(self) -> None:
        super().__init__()
        self.provider = Provider(self.wire, self)
        self.tools = self._tools()
        self.blob = b""
        self.model = Model()
        self.older: list[tuple[bytes, Model]] = []
        self.count = 0
        self.keys: dict[tuple[str, str], str] = {}
        """Of each call in each conversation: a fork is another one."""
        self.seen_before: set[str] = set()
        self.begun_before: set[str] = set()
        self.is_cut = False
        self._begin(Plan())

    def _begin(self, plan: Plan) -> None:
        self.plan = plan
        self.provider.refused = None
        self.provider.script.clear()
        self.provider.script.extend(plan.script)
        self.speaking: tuple[str, list[tuple[str, str]]] | None = None
        self.last_text: str | None = None
        self.ended = "complete"
        self.kept: tuple[bytes, Model] | None = None
        self.checkpoints = self.tools_run = 0
        self.effects: list[str] = []
        self.error: BaseException | None = None
        self.model.cut_off = None
        self.was_too_large = False
        for one in self.model.waiting:
            one.is_late = False

    def mark(self, letter: str) -> str:
        """A name for one thing that is said, answered or called."""
        self.count += 1
        return f"{letter}{self.count}x"

    # ------------------------------------------------------------------------------ the provider's ear

    def asked(self, body: bytes) -> None:
        """A request holds what the list holds, and begins as the last one that was accepted."""
        seen = marks_of(read_body(body).values[HISTORY[self.wire]])
        late = [one for one in self.model.waiting if one.is_late]
        self._compare([*seen, *(one.mark for one in late)], "a request")
        for one in late:
            one.is_late = False
        self.sent = frozenset(seen)

    def judged(self, problems: Sequence[str]) -> None:
        """Nothing in a request is against the provider's rules."""
        self._fail_if(problems, f"the provider refuses a request: {list(problems)[:1]}")

    def took(self, body: bytes) -> None:
        """The request was accepted: what it held is a part of every later one."""
        history = read_body(body).spans[HISTORY[self.wire]].replace(MARK, b"")
        before = self.model.sent
        if before and not history.startswith(before[:-1]):
            old, new = (unsigned(read_body(b'{"h":%s}' % one).values["h"]) for one in (before, history))
            is_right = self.model.was_cut and new[: len(old)] == old
            self._fail_if(not is_right, "earlier bytes of the history changed")
            self.model.was_cut = self.was_too_large
        self.model.accept(self.sent)
        self.model.sent = history

    def too_large(self) -> None:
        """Where nothing can be cut, the turn goes on without signed thinking, and so does the next one."""
        self.model.was_cut = self.was_too_large = True

    def says(self, said: Say) -> Reply:
        """A reply with marks of its own."""
        mark = self.mark("A")
        # Here a list cannot say what is sent: a refused turn is left out (`test_refused_turns` has that).
        ends = "" if said.ends == "refusal" and self.wire == "anthropic" else said.ends
        is_cut_short = ends == "length"
        calls = [(name, self.mark("T")) for name in said.calls] if ends != "refusal" else []
        self.speaking = mark, [] if is_cut_short else calls
        self.last_text = f"{mark} is what I say. "
        self.ended = {"length": "truncated", "refusal": "refused"}.get(ends, "complete")
        thinking = "Hm, let me see." if said.thinks and self.wire != "openai" else ""
        finish = "length" if is_cut_short else None
        made = [("act" if name == "wrong" else name, _arguments(name, token)) for name, token in calls]
        if ends == "refusal":
            return Reply.refusal(self.last_text)
        if made:
            return Reply.calls(*made, text=self.last_text, thinking=thinking, finish=finish)
        return Reply.text(self.last_text, thinking=thinking, finish=finish)

    def said(self) -> None:
        """The reply came whole, so it stays."""
        if self.speaking is not None:
            self.model.reply(*self.speaking)
            self.speaking = None
            self.model.excuse("invalid", tools=INVALID)
            if self.plan.max_calls is not None or self.plan.max_iterations < 10:
                self.model.excuse("limit")

    # ------------------------------------------------------------------------------------- the tools

    def _tools(self) -> list[Any]:
        def act(ctx: ToolContext[Any], token: str) -> str:
            """Do it, once."""
            return self._effect(ctx, token)

        def note(ctx: ToolContext[Any], token: str) -> str:
            """Do it, as often as you like."""
            return self._effect(ctx, token)

        def fail(ctx: ToolContext[Any], token: str) -> str:
            """Fail at it."""
            raise LookupError(self._effect(ctx, token))

        def grumble(ctx: ToolContext[Any], token: str) -> str:
            """Do it, and complain."""
            raise ToolError(self._effect(ctx, token))

        def look(ctx: ToolContext[Any], token: str) -> list[Any]:
            """Bring a picture."""
            return [self._effect(ctx, token), Image.from_bytes(PIXEL)]

        def abort(ctx: ToolContext[Any], token: str) -> str:
            """End the turn."""
            raise AbortTurn(self._effect(ctx, token))

        def pay(ctx: ToolContext[Any], token: str) -> str:
            """Do it when somebody has approved."""
            return self._effect(ctx, token)

        def clerk(token: str) -> str:
            """Somebody else does it."""
            raise AssertionError

        return [
            tool(act),
            tool(idempotent=True)(note),
            tool(fail),
            tool(grumble),
            tool(look),
            tool(abort),
            tool(requires_approval=True)(pay),
            tool(external=True)(clerk),
        ]

    def _effect(self, ctx: ToolContext[Any], token: str) -> str:
        if self.speaking is not None and token in [one for _, one in self.speaking[1]]:
            self.said()
        try:
            call = self.model.call(token)
            again = token in self.model.ran or token in self.effects
            require(not again or call.tool in IDEMPOTENT, f"the effect of {token} takes place again")
            key = self.keys.setdefault((ctx.conversation_id, token), ctx.idempotency_key)
            require(key == ctx.idempotency_key, "another key")
            most = self.plan.max_calls
            require(most is None or self.model.began < most, "more calls of the turn run than may")
        except Broken as exc:
            self.error = exc  # an exception here would be the tool's
            raise
        self.effects.append(token)
        self.tools_run += 1
        self.model.began += 1
        self._be_late("tool", self.tools_run)
        if self.plan.death == ("tool", self.tools_run):
            raise Killed
        if call.tool == "abort":
            self.model.excuse("aborted")
        if call.tool in ("fail", "abort"):
            call.excuse = "failed"
            self.model.failed.add(token)
        else:
            call.result = "R" + token[1:]
        return f"R{token[1:]} came of it"

    def _be_late(self, where: str, number: int) -> None:
        if self.plan.late == (where, number):
            self.clock.advance(10_000)

    # --------------------------------------------------------------------------------- looking at blobs

    def _fail_if(self, is_bad: object, what: str) -> None:
        if is_bad:
            self.error = self.error or Broken(what)  # the engine may take an exception for the provider's
            raise self.error

    def _compare(self, seen: list[str], where: str) -> None:
        if self.speaking is not None and self.speaking[0] in seen:
            self.said()
        if seen == self.model.view():
            return
        try:
            require(self.is_cut, f"{where} holds {seen}, and not {self.model.view()}")
            self.model.cut_to(seen)
        except Broken as exc:
            self._fail_if(True, str(exc))

    def see(self, blob: bytes) -> None:
        """A blob's history is the list, and one that the provider accepts."""
        messages = state_messages(blob) if blob else []
        problems = check_history(self.wire, messages)
        self._fail_if(problems, f"the closed view breaks a rule: {problems[:1]}")
        told = [
            mark
            for message in (read_history(blob).all_messages() if blob else ())
            for text in (message.text, *(call.arguments for call in message.tool_calls))
            for mark in MARKS.findall(text)
        ]
        self._compare(told, "a state")

    def _take(self, blob: bytes) -> None:
        """Go on from a blob: see it, and note which of its calls are in doubt."""
        self.see(blob)
        self.speaking = None
        opened = load_state(blob).open if blob else None
        model = self.model
        if opened is None and model.is_open:
            left = [call.token for call in model.calls if not call.result and not call.excuse]
            require(not left, f"a turn is closed although its calls {left} have no results")
            model.close(self.last_text)
        require((opened is not None) == model.is_open, "the state is open, or closed, and should not be")
        doubtful = {t for c in self._pending(blob, "in_doubt") for t in marks_of(c.arguments)}
        for call in model.calls:
            if call.token in doubtful and call.tool not in IDEMPOTENT and not call.result:
                call.excuse = "in doubt"
        self.blob = blob
        if blob:
            self._inspect()

    def _inspect(self) -> None:
        """What the blob says of itself agrees with the list; written or taken out again, it says the same."""
        info = inspect_state(self.blob)
        require(info.waiting_messages == len(self.model.waiting), "another number of messages waits")
        open_calls = [call for call in self.model.calls if not call.result]
        least = sum(not call.excuse for call in open_calls)  # one in doubt may be flagged by now
        require(least <= info.open_calls <= len(open_calls), "another number of calls is open")
        total = info.total_usage
        spent = tuple(getattr(total, name) for name in total.__struct_fields__)
        require(all(map(ge, spent, self.model.usage)), "less is spent than before")
        self.model.usage = spent
        if not self.model.is_open:
            flags = {
                id: flag
                for turn in read_history(self.blob).turns
                for id, flag in turn.facts.get("flags", {}).items()
            }
            wrong = [id for id in self.model.denied if flags.get(id, "denied") != "denied"]
            require(not wrong, "what was denied is not flagged so")
            self._compare_flags()
        again = dump_state(load_state(self.blob))
        require(dump_state(load_state(again)) == again, "encoding is not deterministic")
        self.see(again)
        exported = state_messages(again)
        leads = self.model.view()[:1]
        if exported and leads and leads[0] not in self.model.pinned:  # what leads would be the preamble
            imported = state_from_messages(self.wire, exported)
            require(state_messages(imported) == exported, "messages taken out and in again differ")

    def _compare_flags(self) -> None:
        """Each result of the history has the flag that its words have, and that of what its tool did."""
        for turn in _history_laws.check(self.blob).turns:
            flags = turn.facts.get("flags", {})
            calls = {call.id: call for message in turn.messages for call in message.tool_calls}
            require(set(flags) <= set(calls), "a flag is of no call")
            for message in turn.messages:
                if message.role != "tool":
                    continue
                call = calls[message.tool_call_id or ""]
                flag, wanted = flags.get(call.id, "ok"), _flag_of(call.name, message.text)
                require(flag == wanted, f"{call.name} is flagged {flag}, and its result reads as {wanted}")
                for token in marks_of(call.arguments):
                    has_failed = token in self.model.failed
                    require(not has_failed or flag in ("error", "unknown"), f"what failed is flagged {flag}")
                    has_run = has_failed or token in self.model.ran
                    require(not has_run or flag != "not_run", "what has run is flagged not_run")

    def _pending(self, blob: bytes, *reasons: str) -> list[Any]:
        return [call for call in (pending_calls(blob) if blob else ()) if call.reason in reasons]

    def _keep(self, blob: bytes) -> None:
        self.checkpoints += 1
        self._be_late("checkpoint", self.checkpoints)
        death = self.plan.death
        is_now = death is not None and death[1] == self.checkpoints
        if death is not None and is_now and death[0] == "before":
            raise Killed
        self.see(blob)
        self.kept = blob, self.model.copied()
        if death is not None and is_now and death[0] == "after":
            raise Killed
        if death is not None and is_now and death[0] == "refused":
            raise OSError("the disk is full")

    # ------------------------------------------------------------------------------------------ turns

    def _run(
        self, plan: Plan, method: str, *args: Any, before: Model | None = None, **fields: Any
    ) -> ChatResult | None:
        """One turn, or the rest of one. None if it did not come to its end.

        `before`: the list as it was for the given blob, if it has this turn's messages already.
        """
        base = self.blob, before or self.model.copied()
        self._begin(plan)
        self.seen_before = base[1].seen
        self.begun_before = {call.id for call in self._pending(self.blob, "in_doubt")}
        if plan.max_calls is not None:
            self.model.excuse("limit")
        faults = {one.kind for one in plan.script if isinstance(one, Fault)}
        self.model.yields = bool(faults & {"context", "413"})
        self.is_cut = plan.compactor in CUTS or self.model.yields
        thinks = {"openai": {}, "openai-responses": {"reasoning_effort": "low"}}.get(
            self.wire, {"thinking_budget_tokens": 1024, "max_output_tokens": 4096}
        )
        fields = {
            **fields,
            "settings": ModelSettings(**thinks),
            "system": "You are the game master.",
            "tools": self.tools,
            "tool_threads": False,
            "on_checkpoint": self._keep,
            "compactor": COMPACTORS.get(plan.compactor),
            "limits": Limits(max_iterations=plan.max_iterations, max_tool_calls=plan.max_calls),
            "on_limit": plan.on_limit,
            "tool_errors": plan.tool_errors,
        }
        chat = self.face.chat(self.provider.backend(is_async=self.face.is_async, max_retries=plan.retries))
        given = bytearray(self.blob)
        result = None
        try:
            if plan.is_streamed and method == "chat_with_state":
                result = self._stream(chat.start(given, *args, **fields))
            else:
                result = getattr(chat, method)(given, *args, **fields)
        except Killed:
            self._died(*base)
        except TurnError as exc:
            self._check()
            self._failed(exc)
        except Broken:
            raise
        except Exception:
            self._check()
            raise
        else:
            self._check()
            if result is not None:
                self._ended(result)
        self._check()
        require(bytes(given) == base[0], "the given state was changed")
        if self.blob != base[0]:
            self.older = [*self.older, base][-8:]
            if self.kept is not None:
                self.older[-1:] = [base, self.kept]
        return result

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _stream(self, turn: Any) -> ChatResult | None:
        plan = self.plan
        for number, happened in enumerate(turn):
            self.see(turn.state)
            self._be_late("event", number)
            if number == plan.appends:
                self._append_to(turn, is_late=isinstance(happened, ModelRequested))
                self.see(turn.state)
            if number == plan.stop:
                turn.cancel()
                self._take(turn.state)
                return None
        done: ChatResult = turn.result()
        return done

    def _append_to(self, turn: Any, *, is_late: bool) -> None:
        mark = self.mark("E")
        try:
            turn.append(event(f"{mark} happens meanwhile."))
        except RuntimeError:
            return
        self.model.admit(Waiting(mark, is_late=is_late))

    def _ended(self, result: ChatResult) -> None:
        if result.status == "limited":
            self.model.excuse("limit")
        self._take(result.state)
        if result.status == "awaiting_tools":
            waits = pending_calls(result.state)
            require(result.pending == waits, "what it waits for is not what its state waits for")
            require(self._pending(result.state, "approval", "external"), "it waits for nothing")
        else:
            found = {warning.code for warning in result.warnings} & {"limit_reached", "invalid_tool_calls"}
            status = "limited" if found and self.ended == "complete" else self.ended
            require(result.status == status, f"the status is {result.status}, not {status}")
            require(result.text == self.last_text, "the answer is not what the provider said")
            stored = {
                id: flag
                for turn in read_history(result.state).turns
                for id, flag in turn.facts.get("flags", {}).items()
            }
            if result.compaction is None and not result.duplicate:
                for record in result.tool_log:
                    flag = stored.get(record.call.id, "ok")
                    require(record.flag == flag, f"told as {record.flag}, and stored as {flag}")
            require(not self.model.is_open, "the turn is complete, and open")

    def _failed(self, exc: TurnError) -> None:
        model = self.model
        poison = isinstance(exc, ContextTooLongError) or (
            isinstance(exc, ProviderRejectedError) and exc.status_code in POISON
        )
        if poison:
            model.hand_back([m for message in exc.pending_input for m in MARKS.findall(message.text)])
            if not model.is_open:  # an event that a newer one of this call replaced is forgotten, too
                model.seen &= self.seen_before
            told = {mark for record in exc.tool_log for mark in MARKS.findall(record.result)}
            lost = [call.result for call in model.calls if call.result and call.result not in told]
            require(not lost, f"the results {lost} were refused, and the error has them not")
            for call in model.calls:
                call.result, call.excuse = "", "refused"
            if model.calls:
                model.denied.clear()
        else:
            require(not exc.pending_input, f"{type(exc).__name__} hands messages back")
        if isinstance(exc, CheckpointError):
            started = {call.id for call in self._pending(exc.state, "in_doubt")} - self.begun_before
            require(not started, "a call has started, of which nobody has kept that it would")
        self._take(exc.state or b"")

    def _died(self, blob: bytes, model: Model) -> None:
        """Nothing but what was kept is left."""
        self._check()
        done = self.effects
        at, self.model = self.kept if self.kept is not None else (blob, model)
        self.model = self.model.copied()
        doubtful = {t for c in self._pending(at, "in_doubt") for t in marks_of(c.arguments)}
        view = self.model.view()
        unknown = [token for token in done if token not in doubtful and "R" + token[1:] not in view]
        require(set(unknown) <= self.model.failed, f"{unknown} took place, and what was kept does not know")
        self.model.ran |= {token for token in done if self._tool_of(token) not in IDEMPOTENT}
        self._take(at)

    def _tool_of(self, token: str) -> str:
        return next((call.tool for call in self.model.calls if call.token == token), "")

    # ------------------------------------------------------------------------------------------ rules

    @rule(plan=PLAN, news=NEWS, has_id=st.booleans(), pending=st.sampled_from(["raise", "deny", "queue"]))
    def say(self, plan: Plan, news: list[tuple[str, str]], has_id: bool, pending: str) -> None:
        """The user says something new."""
        model = self.model
        mark = self.mark("U")
        fields: dict[str, Any] = {"user": f"{mark}, please.", "on_pending": pending}
        if plan.context:
            fields["context"] = f"It is {plan.context}."
        waits = self._pending(self.blob, "approval", "external")
        before = model.copied()
        id = f"id-{mark}" if has_id else ""
        if waits and pending == "raise":
            with pytest.raises(ToolPendingError):
                self._run(plan, "chat_with_state", **fields)
            return
        if waits and pending == "deny":
            model.denied |= {one.id for one in waits}
        if model.is_open and not (waits and pending == "queue"):
            for call in model.calls:
                call.excuse = call.excuse or "closed"
            model.close(None)
        if id:
            fields["turn_id"] = id
            model.ids[id] = TurnId(mark)
        else:
            made = []
            for topic, event_id in news:
                one = Waiting(self.mark("E"), topic, event_id)
                made.append(event(f"{one.mark} happens.", topic=topic or None, id=event_id or None))
                model.admit(one)
            fields["messages"] = made
            if plan.extra:
                self._say_more(plan.extra, mark, made, fields)
                self._run(plan, "chat_with_state", before=before, **fields)
                return
        model.admit(Waiting(mark))
        self._run(plan, "chat_with_state", before=before, **fields)

    def _say_more(self, kind: str, mark: str, made: list[Any], fields: dict[str, Any]) -> None:
        """Something beside the user's words: a picture, an assistant's before them, a system's behind."""
        words = fields.pop("user")
        said = user(words, Image.from_bytes(PIXEL)) if kind == "image" else user(words)
        more = self.mark("S")
        if kind == "assistant":
            made.append(assistant(f"{more}, I say."))
            self.model.admit(Waiting(more))
        made.append(said)
        self.model.admit(Waiting(mark))
        if kind == "system":
            made.append(system(f"{more}, I say."))
            self.model.admit(Waiting(more))
            self.model.pinned.add(more)

    @precondition(lambda self: self.model.is_open or self.model.waiting)
    @rule(plan=PLAN, kinds=st.lists(ANSWERS, max_size=3))
    def resume(self, plan: Plan, kinds: list[str]) -> None:
        """Somebody goes on with what is unfinished, and answers some of what it waits for."""
        answers: dict[str, Any] = {}
        before = self.model.copied()
        waits = self._pending(self.blob, "approval", "external", "in_doubt")
        for one, kind in zip(waits, kinds, strict=False):
            call = next(c for c in self.model.calls if marks_of(one.arguments)[0] in (c.asked, c.token))
            self._answer(one, call, kind, answers)
        self._run(plan, "resume", answers, before=before)

    def _answer(self, one: Any, call: Call, kind: str, answers: dict[str, Any]) -> None:
        if kind == "deny":
            answers[one.id] = Deny("no")
            self.model.denied.add(one.id)
            call.excuse = "denied"
        elif kind == "give":
            call.result = self.mark("R")
            answers[one.id] = ToolReturn(f"{call.result} was given")
        elif kind == "approve" and one.reason == "approval":
            answers[one.id] = Approve()
        elif kind == "change" and one.reason == "approval":
            call.token = self.mark("T")
            answers[one.id] = Approve({"token": call.token})

    @precondition(lambda self: self.model.waiting and not self.model.is_open)
    @rule(plan=PLAN)
    def answer_what_waits(self, plan: Plan) -> None:
        """Without a message the model answers what was appended."""
        self._run(plan, "chat_with_state")

    @precondition(lambda self: self.model.ids)
    @rule(plan=PLAN, which=st.integers(0, 9), is_other=st.integers(0, 2).map(lambda n: n == 0))
    def repeat(self, plan: Plan, which: int, is_other: bool) -> None:
        """A message comes once more under its id, or another one does."""
        ids = list(self.model.ids.items())
        id, known = ids[which % len(ids)]
        asked, blob = self.provider.asked, self.blob
        said = f"{known.said}, please."
        if is_other:
            with pytest.raises(TurnConflictError):
                self._run(plan, "chat_with_state", user="Something else.", turn_id=id)
        elif known.is_done and self._has_no_answer(id):
            return  # a new turn asks it again, which this machine does not model: see test_unanswered.py
        elif known.is_done:
            result = self._duplicate(said, id)
            require(known.text is None or result.text == known.text, "the stored reply is another one")
        else:
            self._run(plan, "chat_with_state", user=said, turn_id=id)
            return
        require(self.provider.asked == asked and not self.effects, "a repeated message did something")
        require(self.blob == blob, "a repeated message changed the state")

    def _has_no_answer(self, id: str) -> bool:
        """Whether the turn of an id failed, and a newer message closed it without a reply."""
        ring = load_state(self.blob).meta.ring
        return any(row[0] == digest8(id) and row[2] == UNANSWERED for row in ring)

    def _duplicate(self, said: str, id: str) -> ChatResult:
        self._begin(Plan())
        chat = self.face.chat(self.provider.backend(is_async=self.face.is_async, max_retries=0))
        result: ChatResult = chat.chat_with_state(self.blob, user=said, turn_id=id)
        require(result.duplicate, "a finished turn ran again")
        require(result.state == self.blob, "the state of a finished turn changed")
        return result

    @rule(news=NEWS, is_rewritten=st.booleans())
    def append(self, news: list[tuple[str, str]], is_rewritten: bool) -> None:
        """Something happens between two turns, perhaps to a state that was decoded and encoded."""
        chat = self.face.chat(self.provider.backend(is_async=self.face.is_async, max_retries=0))
        blob = dump_state(load_state(self.blob)) if self.blob and is_rewritten else self.blob
        for topic, event_id in news:
            one = Waiting(self.mark("E"), topic, event_id)
            message = event(f"{one.mark} happens.", topic=topic or None, id=event_id or None)
            blob = chat.append_to_state(blob, message)
            self.model.admit(one)
        self._begin(Plan())
        self.is_cut = False
        self._take(blob)

    @precondition(lambda self: self.blob)
    @rule(turns=st.integers(1, 3))
    def compact(self, turns: int) -> None:
        """Old turns are cut off; the newest stay."""
        chat = self.face.chat(self.provider.backend(is_async=self.face.is_async, max_retries=0))
        before = len(self.model.ends)
        report = chat.compact_state(self.blob, Compactor(MessageLimit(1), KeepRecentTurns(turns)))
        self._begin(Plan())
        self.is_cut, self.model.yields = True, False
        self._take(report.state)
        require(len(self.model.ends) >= min(before, turns), "more turns are gone than was asked for")

    @precondition(lambda self: self.older)
    @rule(which=st.integers(0, 7))
    def go_back(self, which: int) -> None:
        """An older blob, such as a checkpoint, is all that there is."""
        blob, model = self.older[which % len(self.older)]
        self._begin(Plan())
        self.model = model.copied()
        self.is_cut = False
        if model.is_open and not model.calls and load_state(blob).open is None:
            self.last_text = None
        self._take(blob)

    @precondition(lambda self: self.blob)
    @rule(goes_on_in=st.sampled_from(["fork", "first"]))
    def fork(self, goes_on_in: str) -> None:
        """Another conversation begins with what this one holds; one goes on, the other stays as it is."""
        first = self.blob
        forked = fork_state(first)
        ids = [inspect_state(blob).conversation_id for blob in (first, forked)]
        require(ids[0] != ids[1], "a fork has the id of the first conversation")
        require(state_messages(forked) == state_messages(first), "a fork holds something else")
        pending = [[call.id for call in pending_calls(blob)] for blob in (first, forked)]
        require(pending[0] == pending[1], "a fork waits for something else")
        self.older.append((first if goes_on_in == "fork" else forked, self.model.copied()))
        self._begin(Plan())
        self.is_cut = False
        self._take(forked if goes_on_in == "fork" else first)

    # What seldom comes of itself in so few steps: two that belong together.

    @rule(calls=CALLS, death=DEATH, plan=PLAN, kinds=st.lists(ANSWERS, max_size=3))
    def die_and_resume(self, calls: Say, death: tuple[str, int], plan: Plan, kinds: list[str]) -> None:
        """The process dies in a turn with calls, and another one goes on."""
        self.say(Plan(script=(calls,), death=death), [], False, "deny")
        self._resume_if_open(plan, kinds)

    @rule(calls=WAITS, plan=PLAN, kinds=st.lists(ANSWERS, min_size=1, max_size=3))
    def ask_and_answer(self, calls: Say, plan: Plan, kinds: list[str]) -> None:
        """The model wants something that somebody has to allow or to do, and is answered."""
        self.say(Plan(script=(calls,)), [], False, "deny")
        self._resume_if_open(plan, kinds)

    def _resume_if_open(self, plan: Plan, kinds: list[str]) -> None:
        if self.model.is_open or self.model.waiting:
            self.resume(plan, kinds)

    @rule(plan=PLAN, again=PLAN, is_other=st.booleans(), is_cut=st.booleans())
    def say_and_repeat(self, plan: Plan, again: Plan, is_other: bool, is_cut: bool) -> None:
        """A message comes, and comes again, perhaps when its turn has been cut off."""
        self.say(plan, [], True, "deny")
        if is_cut:
            self.say(Plan(), [], False, "deny")
            self.compact(1)
        if self.model.ids:
            self.repeat(again, -1, is_other)

    def teardown(self) -> None:
        """However it ended, a plain message is answered."""
        if sys.exc_info()[0] is not None:
            return  # it is broken already
        self.say(Plan(), [], False, "deny")
        require(not self.model.is_open and not self.model.waiting, "a plain turn does not end")
        asked = self.provider.asked
        with pytest.raises(ValueError, match="nothing to resume"):
            self._run(Plan(), "resume")
        require(self.provider.asked == asked, "a request for nothing")


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_conversation_holds_what_a_plain_list_does(wire: str, face: Any, clock: Any) -> None:
    """Users' words, replies and results stand in it once and in order, and no effect takes place twice."""
    machine = type("Conversation", (Conversation,), {"face": face, "wire": wire, "clock": clock})
    runs = os.environ.get("GOAITOOLS_MACHINE_RUNS")

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(runs or FEW),
            stateful_step_count=STEPS,
            derandomize=not runs,
            database=None,
            deadline=None,
            print_blob=bool(runs),
            suppress_health_check=list(HealthCheck),
        ),
    )
