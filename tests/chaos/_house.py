"""Runs a turn into a fault, and checks what a caller has in hands after it.

Owns: chats on one simulator, the orders of a faulty turn, and the checks. Must never know: the table's lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from goaitools_py import ChatResult, ContextTooLongError, TextDelta, Timeouts, TurnError
from goaitools_py.sim import Reply
from goaitools_py.states import inspect_state, pending_calls, state_messages
from goaitools_py.testing import check_history

from ..conftest import ChatFace, Face, Simulator
from ..turn._reading import HISTORY, RESPONSES, texts, users
from ..turn.conftest import SkippingClock, texts_in
from ._table import Absent, Gates, Mode, Row

__all__ = ["ASKED", "House", "Meeting", "require"]

ASKED = "What is my name?"
KNOWN = "Your name is Ada."
REFUSED = "'refusal'"
"""What a message of Responses has in which a model refused, as a Python dict is written."""
RED = Reply.calls(("get_score", '{"team":"Red"}'))

SHORT_SECONDS = 0.3
"""What a chat without patience waits for a byte, and a turn without patience for the faulty answer."""
LONG_SECONDS = 300.0
PATIENCE = (SHORT_SECONDS, 3.0, 20.0)
"""What a turn without patience has: more if a busy machine does not bring it to its fault in that time."""


def _nothing() -> None:
    """What a tool does beside its work, if nobody says otherwise."""


class House:
    """One simulator, and a chat for each wire, colour and patience."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.in_tool: Callable[[], None] = _nothing
        self.sim = Simulator()
        self._faces = {colour: Face(colour == "async") for colour in ("sync", "async")}
        self._chats: dict[tuple[str, str, str], ChatFace] = {}
        self._known: dict[tuple[str, str], bytes] = {}

    def __enter__(self) -> Self:
        self.sim.start()
        return self

    def __exit__(self, *_: object) -> None:
        for face in self._faces.values():
            face.close()
        self.sim.stop()

    def get_score(self, team: str) -> str:
        """Current score of one team."""
        self.ran.append(team)
        self.in_tool()
        return f"{team} has 7 points"

    def chat(self, wire: str, colour: str, patience: str = "plenty") -> ChatFace:
        """The chat of a wire and a colour; with the patience "socket" it soon gives a silent line up."""
        key = (wire, colour, "socket" if patience == "socket" else "plenty")
        if key not in self._chats:
            face, self.sim.wire = self._faces[colour], wire
            hasty = {"timeout": SHORT_SECONDS, "max_retries": 1} if key[2] == "socket" else {"max_retries": 2}
            backend = self.sim.backend(is_async=face.is_async, **hasty)
            face._open.append(backend)
            self._chats[key] = face.chat(backend, tools=[self.get_score])
        return self._chats[key]

    def known_ada(self, wire: str, colour: str) -> bytes:
        """A state after two turns; in the second, which a cut of the older half leaves, a name is given."""
        if (wire, colour) not in self._known:
            self.sim.clear()
            result = self.chat(wire, colour).run_turns(None, ["Hello.", "My name is Ada."])
            self._known[wire, colour] = result.state
        return self._known[wire, colour]

    def said(self, wire: str) -> list[str]:
        """The texts of the last request's history."""
        request = self.sim.requests[-1].parsed
        assert request is not None
        return texts_in(request[HISTORY[wire]])


def require(condition: object, what: str, **found: object) -> None:
    """AssertionError that says what does not hold; in a soak no assertion is rewritten."""
    if not condition:
        raise AssertionError(f"{what}: {found}" if found else what)


@dataclass(kw_only=True)
class Meeting:
    """One turn that meets a fault.

    Attributes:
        before: The state that the turn begins with, or that it resumes.
        after_tool: The model first calls a tool, and the fault answers the tool's result.
        asked: What the user says; nothing else in the history is equal.
        resumes: Go on with `resume`.
        is_begun: An earlier attempt at this turn is in the state.
    """

    house: House
    clock: SkippingClock
    row: Row
    wire: str
    colour: str
    mode: Mode
    after_tool: bool
    before: bytes | None
    asked: str = ASKED
    resumes: bool = False
    is_begun: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> ChatResult | TurnError:
        """Run the turn into its fault."""
        for seconds in PATIENCE:
            end = self._attempt(seconds)
            if self.row.patience != "turn" or len(self.house.sim.requests) > self.after_tool:
                break
        return end

    def _attempt(self, seconds: float) -> ChatResult | TurnError:
        row, sim, ran = self.row, self.house.sim, self.house.ran
        order = row.order[self.wire]
        assert not isinstance(order, Absent)
        gates = Gates(over=threading.Event(), shown=threading.Event())
        scripted = order(gates) if callable(order) else order
        sim.clear()
        ran.clear()
        if self.after_tool:
            sim.push(RED)
        sim.push(*[scripted] * (self.other_forms + (1 if row.is_met_once else row.sends[self.wire])))
        try:
            return self._turn(gates, seconds)
        except TurnError as err:
            return err
        finally:
            gates.over.set()
            gates.shown.set()
            self.house.in_tool = _nothing

    def _turn(self, gates: Gates, seconds: float) -> ChatResult:
        chat = self.house.chat(self.wire, self.colour, self.row.patience)
        fields: dict[str, Any] = dict(self.options)
        if not self.resumes:
            fields |= {"user": self.asked, "turn_id": self.asked}
        if self.row.patience == "turn":
            fields["timeout"] = seconds
            if self.after_tool:  # the tool takes all of the turn's time but what the fault may have
                fields |= {"timeout": Timeouts(turn=LONG_SECONDS, tool=None), "tool_threads": False}
                self.house.in_tool = lambda: self.clock.advance(LONG_SECONDS - seconds)
        if self.resumes:
            return chat.resume(self.before, **fields)
        if self.mode == "streamed":
            turn = chat.start(self.before, **fields)
            told = ""
            for event in turn:
                if isinstance(event, TextDelta):
                    told += event.text
                    if told == self.row.partial:
                        gates.shown.set()
            return turn.result()
        return chat.chat_with_state(self.before, **fields)

    # ------------------------------------------------------------------------------------- checks

    @property
    def lost_input(self) -> bool:
        """Whether the message is the caller's again."""
        return self.row.is_poison[self.wire] and not self.after_tool

    @property
    def other_forms(self) -> int:
        """How many other forms of the history are tried after a refusal of the request, and refused as well.

        Some hosts of Responses take no message in which a model refused. So it is sent as a text then.
        """
        is_refused = self.row.is_poison[self.wire] and self.row.ends[self.wire] is not ContextTooLongError
        held = state_messages(self.before) if self.before is not None else []
        return int(self.wire == RESPONSES and is_refused and REFUSED in str(held))

    def check_end(self, end: ChatResult | TurnError) -> None:
        """The turn ended as the table says."""
        row, wire = self.row, self.wire
        if isinstance(end, TurnError):
            require(type(end) is row.ends[wire], "another error", found=repr(end), cause=repr(end.__cause__))
            seen = (end.retryable, end.status_code)
            expected = (row.retryable[wire], row.status[wire])
            require(seen == expected, "another kind of error", found=seen, expected=expected)
            # On a busy machine who waits shortly may have read less than was sent.
            text = row.partial if row.patience == "plenty" else row.partial[: len(end.partial_text)]
            require(end.partial_text == text, "another partial text", found=end.partial_text)
            require(end.__cause__ is not None or row.patience == "turn", "an error without its cause")
        else:
            require(end.status == row.ends[wire], "another result", found=end.status)
        requests = self.house.sim.requests[self.after_tool :]
        forms = self.other_forms if REFUSED in str(requests[0].parsed) else 0  # a cut may have taken it
        sent = len(requests)
        require(sent == row.sends[wire] + forms, "more or fewer requests", found=sent)

    def check_state(self, end: ChatResult | TurnError) -> None:
        """The state is whole, the provider takes it, and nothing was lost or done twice."""
        state = end.state
        info = inspect_state(state)
        require(info.open_calls == 0 and pending_calls(state) == (), "a call is left open")
        problems = check_history(self.wire, state_messages(state))
        require(problems == [], "the closed view is no history", problems=problems)
        pending = end.pending_input if isinstance(end, TurnError) else ()
        said = users(state).count(self.asked), [message.text for message in pending].count(self.asked)
        require(sum(said) == 1, "the message is not there once", found=said)
        if not (self.is_begun and self.row.is_poison[self.wire]):  # then it depends on who had seen it before
            require(said[1] == self.lost_input, "the message is in the wrong place", found=said)
        self._check_past(state)
        self.check_tools()
        log = [(record.result, record.flag) for record in end.tool_log if record.call.arguments.endswith("}")]
        if not self.is_begun:  # or the log has what an earlier attempt did
            ran = [("Red has 7 points", "ok")] * self.after_tool
            require(log == ran, "the log is not what ran", found=log)

    def _check_past(self, state: bytes) -> None:
        """What was there is there still, but for what a cut took and the results that were refused."""
        row = self.row
        may_cut = row.ends[self.wire] is ContextTooLongError or "compactor" in self.options
        if self.before is not None and not may_cut:
            earlier = users(self.before)
            require(users(state)[: len(earlier)] == earlier, "an earlier message is gone")
        if self.after_tool:
            refused = row.is_poison[self.wire]
            result = "The result of this tool call could not be delivered." if refused else "Red has 7 points"
            require(result in texts(state, "tool"), "not the tool's result", found=texts(state, "tool"))

    def check_tools(self) -> None:
        """The tool has run once if at all, and never for a call that was cut."""
        require(self.house.ran == ["Red"] * self.after_tool, "tools ran", found=self.house.ran)

    # ------------------------------------------------------------------------------------ ways on

    def check_ways_on(self, end: ChatResult | TurnError) -> None:
        """Every way on works: another turn, `resume`, the same turn by its id."""
        chat = self.house.chat(self.wire, self.colour)
        self._turn_works(chat, end.state)
        if isinstance(end, TurnError) and not self.lost_input:
            self._works_as_resumed(chat.resume(end.state), chat)
        self._works_by_id(chat, end)
        require(self.house.sim.problems == [], "a later request was refused", found=self.house.sim.problems)

    def _turn_works(self, chat: ChatFace, state: bytes) -> None:
        result = chat.chat_with_state(state, user="And who am I?")
        require(result.status == "complete", "the next turn did not succeed", found=result.status)
        require(KNOWN in result.text, "the next turn has forgotten", found=result.text)
        said = self.house.said(self.wire).count(self.asked)
        is_sent = not (self.lost_input or self.row.is_unsent[self.wire])
        require(said == is_sent, "the message was not sent as often as it should", found=said)
        self.check_tools()

    def _works_as_resumed(self, result: ChatResult, chat: ChatFace) -> None:
        require(result.status == "complete", "resume did not succeed", found=result.status)
        require(users(result.state).count(self.asked) == 1, "the message is not there once after resume")
        self._turn_works(chat, result.state)

    def _works_by_id(self, chat: ChatFace, end: ChatResult | TurnError) -> None:
        asked = len(self.house.sim.requests)
        result = chat.chat_with_state(end.state, user=self.asked, turn_id=self.asked)
        sent = len(self.house.sim.requests) - asked
        if isinstance(end, ChatResult):
            require((result.duplicate, sent, result.text) == (True, 0, end.text), "no duplicate", sent=sent)
        else:
            require(result.status == "complete" and not result.duplicate, "again did not succeed")
            require(sent == 1, "again took more than one request", found=sent)
        require(users(result.state).count(self.asked) == 1, "the message is not there once by its id")
        require(texts(result.state, "tool")[:1] == texts(end.state, "tool")[:1], "a result has changed")
        self.check_tools()
