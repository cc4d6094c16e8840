"""AG-UI's own client reads our streams. Its messages are those of the history, for each way to talk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from goaitools_py import Conversation, TextDelta
from goaitools_py.backends import BackendError
from goaitools_py.chat.sync_turn import Turn
from goaitools_py.frontends import AGUI, Ask, Shown, Waits, pieces_of
from goaitools_py.testing import Calls

from ._compare import results_in_order
from ._node import answer_of
from ._talks import WIRES, conversation

Stage = dict[str, Any]
"""One request: what the client sends, the stream that it gets, and the history after it."""

IDLE = {"RUN_FINISHED", "RUN_ERROR"}
"""Events of which the client's messages have nothing. A snapshot is idle, too, for a client that lacks
nothing."""


class Page:
    """A client's requests and their answers, one after the other, as the server handles them."""

    def __init__(self, wire: str, *steps: Any) -> None:
        self.talk = conversation(wire, *steps)
        self.stages: list[Stage] = []

    def say(self, text: str, *, until: Any = None) -> None:
        """A new message. `until`: the turn is stopped after such an event."""
        message = {"id": f"m{len(self.stages)}", "role": "user", "content": text}
        ask = read([message])
        turn = self.talk.start(list(ask.said), turn_id=ask.turn_id, metadata=dict(ask.metadata))
        self._add({"said": message}, ask, turn, None, until=until)

    def answer(self, payload: Any = None, *, status: str = "resolved", is_new: bool = False) -> None:
        """The answer to every call that waits; the stream begins with a snapshot. `is_new`: the client holds
        no messages."""
        entries = [
            {"interruptId": call.id, "status": status, **({} if payload is None else {"payload": payload})}
            for call in self.talk.pending()
        ]
        ask = read([], resume=entries)
        before = shown(self.talk, [entry["interruptId"] for entry in entries])
        turn = self.talk.start_resume(ask.answers_to(self.talk.pending()))
        self._add({"resume": entries, "is_new": is_new}, ask, turn, before)

    def go_on(self) -> None:
        """The rest of a turn that failed, to a client that has seen a part of it."""
        self._add({"resume": self.stages[-1]["resume"]}, read([]), self.talk.start_resume(), shown(self.talk))

    def _add(self, sent: Stage, ask: Ask, turn: Turn, before: Any, *, until: Any = None) -> None:
        front = AGUI.answering(ask, None if before is None else before[0])
        stream = front.stream(before=() if before is None else before[1])
        frames: list[bytes] = []
        try:
            with turn:
                for event in turn:
                    frames += stream.feed(event)
                    if until is not None and isinstance(event, until):
                        turn.cancel()
                        frames += stream.stop()
                        break
        except Exception as error:
            frames += stream.fail(error)
        stored, _ = shown(self.talk)
        self.stages.append(
            {
                **sent,
                "sse": b"".join(frames).decode(),
                "history": AGUI.history(stored.history, conversation_id="hall", pending=stored.pending),
                "waiting": [call.id for call in stored.pending if call.reason == "approval"],
            }
        )


def read(messages: list[dict[str, Any]], **members: Any) -> Ask:
    body = {"threadId": "hall", "runId": "r1", "protocolVersion": "1.0", "messages": messages, **members}
    return AGUI.read(orjson.dumps(body))


def shown(talk: Conversation, answered: Any = ()) -> tuple[Shown, tuple[Any, ...]]:
    """What is stored, and the pieces of the newest turn."""
    snapshot = talk.snapshot()
    assert snapshot is not None
    found = Shown(
        history=snapshot.history,
        conversation_id=snapshot.info.state.conversation_id,
        pending=snapshot.pending,
    )
    pieces = pieces_of(snapshot.history.turns[-1], snapshot.pending)
    return found, tuple(one for one in pieces if not (isinstance(one, Waits) and one.call_id in answered))


# ---------------------------------------------------------------------------------- the conversations


def plain(wire: str) -> Page:
    """Two turns with text, the second with reasoning."""
    page = Page(wire, "Good evening.", Calls([], "A lamp.", reasoning="They want light."))
    page.say("Hello?")
    page.say("More")
    return page


def with_tools(wire: str) -> Page:
    """Parallel calls, an error, and arguments that are not JSON."""
    calls = [("look", {"at": "door"}), ("count", {"numbers": [1, 2]})]
    page = Page(
        wire,
        Calls(calls, text="Let me see.", reasoning="Hm."),
        Calls([("fail", {"why": "dark"}), ("nothing", {})]),
        "Done.",
    )
    page.say("Look around")
    return page


def approved(wire: str) -> Page:
    """Of parallel calls one waits for an approval, which comes in a second request."""
    steps = Calls([("look", {"at": "x"}), ("fire", {"at": "y"})], text="Now.", reasoning="I see.")
    page = Page(wire, steps, "Hit.", "And on.")
    page.say("Fire!")
    page.answer({"approved": True})
    page.say("Next")
    return page


def denied(wire: str) -> Page:
    """The user denies."""
    page = Page(wire, Calls([("fire", {"at": "y"})]), "As you wish.")
    page.say("Fire!")
    page.answer({"approved": False, "reason": "too loud"})
    return page


def cancelled(wire: str) -> Page:
    """The user leaves a call without an answer."""
    page = Page(wire, Calls([("fire", {"at": "y"})]), "As you wish.")
    page.say("Fire!")
    page.answer(status="cancelled")
    return page


def approved_while_the_provider_fails(wire: str) -> Page:
    """The tool runs, the provider is away, and the page asks for the rest."""
    page = Page(wire, Calls([("fire", {"at": "y"})], reasoning="Aim."), BackendError("away"), "Hit.")
    page.say("Fire!")
    page.answer({"approved": True})
    page.go_on()
    return page


def reloaded(wire: str) -> Page:
    """A page that was loaded again answers: it holds nothing of what was before."""
    page = Page(wire, "Hello.", Calls([("fire", {"at": "y"})], text="Now.", reasoning="Aim."), "Hit.")
    page.say("Hello?")
    page.say("Fire!")
    page.answer({"approved": True}, is_new=True)
    return page


def stopped(wire: str) -> Page:
    """The user stops in mid-reply, and goes on with something else."""
    page = Page(wire, "A long story about a lamp.", "Short.")
    page.say("Tell me", until=TextDelta)
    page.say("Shorter")
    return page


CONVERSATIONS = {
    page.__name__: page
    for page in (
        plain, with_tools, approved, denied, cancelled, approved_while_the_provider_fails, reloaded,
        stopped,
    )
}  # fmt: skip


@pytest.fixture(scope="session")
def agui_found(agui_folder: Path) -> dict[tuple[str, str], tuple[list[Stage], dict[str, Any]]]:
    """Every conversation on every provider API, and what the client makes of it: all in one run of node."""
    pages = {(name, wire): make(wire).stages for name, make in CONVERSATIONS.items() for wire in WIRES}
    answer = answer_of("agui_read.mjs", agui_folder, {"conversations": list(pages.values())})
    return dict(zip(pages, zip(pages.values(), answer, strict=True), strict=True))


def held(answer: dict[str, Any]) -> list[Any]:
    return [(results_in_order(stage["messages"]), stage["waiting"]) for stage in answer["stages"]]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_client_holds_what_the_history_says(agui_found: Any, name: str, wire: str) -> None:
    """Every event passes the client's schema and its checks of the order, its messages after each request are
    the history's, and no event is idle: without any one that carries content they differ, or the client
    fails."""
    stages, answer = agui_found[name, wire]
    expected = [(stage["history"], stage["waiting"]) for stage in stages]
    fails = name == "approved_while_the_provider_fails"
    if fails:  # a client keeps its interrupts until a run has finished
        expected[1] = (expected[1][0], expected[0][1])

    assert answer["refused"] == []
    assert answer["errors"] == []
    assert held(answer) == expected
    idle = {one["type"] for one in answer["without"] if one["errors"] == [] and held(one) == expected}
    assert idle <= (IDLE if name == "reloaded" else IDLE | {"MESSAGES_SNAPSHOT"})


def test_what_is_wrong_is_noticed(agui_folder: Path) -> None:
    """The client refuses an event of no known type, and a text without an end; so the tests can fail."""
    start = 'data: {"type":"RUN_STARTED","threadId":"hall","runId":"r1"}\n\n'
    end = 'data: {"type":"RUN_FINISHED","threadId":"hall","runId":"r1"}\n\n'
    lamp = start + 'data: {"type":"LAMP"}\n\n' + end
    text = start + 'data: {"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant"}\n\n' + end

    found = answer_of("agui_read.mjs", agui_folder, {"conversations": [[{"sse": lamp}], [{"sse": text}]]})

    assert len(found[0]["refused"]) == 1
    assert [bool(one["errors"]) for one in found] == [True, True]
