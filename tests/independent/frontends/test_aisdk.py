"""The AI SDK's own client reads our streams. Its messages are those of the history, for each way to talk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from goaitools_py import Approve, Conversation, Deny, TextDelta, ToolReturn
from goaitools_py.backends import BackendError
from goaitools_py.chat.sync_turn import Turn
from goaitools_py.frontends import AISDK, Waits, pieces_of
from goaitools_py.testing import Calls

from ._compare import comparable
from ._talks import WIRES, conversation

Stage = dict[str, Any]
"""One request: its stream, and the history after it."""
WITHOUT_CONTENT = {"finish-step", "finish", "abort", "error"}


def said(
    talk: Conversation,
    turn: Turn,
    *,
    goes_on: bool = False,
    before: Iterable[Any] = (),
    until: Any = None,
) -> Stage:
    """The whole stream of a turn, as a server sends it. `until`: the turn is stopped after such an event."""
    stream = AISDK.stream(goes_on=goes_on, before=tuple(before))
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
    return {"sse": b"".join(frames).decode(), "goes_on": goes_on, "history": shown(talk)}


def shown(found: Conversation) -> list[dict[str, Any]]:
    snapshot = found.snapshot()
    assert snapshot is not None
    id = snapshot.info.state.conversation_id
    return AISDK.history(snapshot.history, conversation_id=id, pending=snapshot.pending)


# ---------------------------------------------------------------------------------- the conversations


def plain(wire: str) -> list[Stage]:
    """Two turns with text, the second with reasoning."""
    talk = conversation(wire, "Good evening.", Calls([], "A lamp.", reasoning="They want light."))
    return [
        said(talk, talk.start("Hello?", turn_id="m1")),
        said(talk, talk.start("More", turn_id="m2")),
    ]


def with_tools(wire: str) -> list[Stage]:
    """Parallel calls, a result that is no object, an error, and arguments that are not JSON."""
    talk = conversation(
        wire,
        Calls(
            [("look", {"at": "door"}), ("count", {"numbers": [1, 2]})], text="Let me see.", reasoning="Hm."
        ),
        Calls([("fail", {"why": "dark"}), ("nothing", {})]),
        "Done.",
    )
    return [said(talk, talk.start("Look around", turn_id="m1"))]


def approved(wire: str) -> list[Stage]:
    """Of parallel calls one waits for an approval, which comes in a second request."""
    talk = conversation(
        wire, Calls([("look", {"at": "x"}), ("fire", {"at": "y"})], text="Now."), "Hit.", "And on."
    )
    first = said(talk, talk.start("Fire!", turn_id="m1"))
    (waiting,) = talk.pending()
    second = said(talk, talk.start_resume({waiting.id: Approve()}), goes_on=True)
    return [first, second, said(talk, talk.start("Next", turn_id="m2"))]


def waiting(wire: str) -> list[Stage]:
    """Nobody has answered yet: an approval, and an external call."""
    talk = conversation(wire, Calls([("fire", {"at": "y"}), ("ask_player", {"question": "Why?"})]))
    return [said(talk, talk.start("Fire!", turn_id="m1"))]


def denied(wire: str) -> list[Stage]:
    """The user denies."""
    talk = conversation(wire, Calls([("fire", {"at": "y"})]), "As you wish.")
    first = said(talk, talk.start("Fire!", turn_id="m1"))
    (call,) = talk.pending()
    return [first, said(talk, talk.start_resume({call.id: Deny("too loud")}), goes_on=True)]


def answered(wire: str) -> list[Stage]:
    """The page gives the result of an external call."""
    talk = conversation(wire, Calls([("ask_player", {"question": "Who?"})]), "Hello Ada.")
    first = said(talk, talk.start("Hi", turn_id="m1"))
    (call,) = talk.pending()
    return [first, said(talk, talk.start_resume({call.id: ToolReturn("Ada")}), goes_on=True)]


def approved_while_the_provider_fails(wire: str) -> list[Stage]:
    """The tool runs, the provider is away, and the page asks for the rest."""
    talk = conversation(wire, Calls([("fire", {"at": "y"})]), BackendError("away"), "Hit.")
    first = said(talk, talk.start("Fire!", turn_id="m1"))
    (call,) = talk.pending()
    second = said(talk, talk.start_resume({call.id: Approve()}), goes_on=True)
    return [first, second, said(talk, talk.start_resume(), goes_on=True)]


def stopped(wire: str) -> list[Stage]:
    """The user stops in mid-reply, and goes on with something else."""
    talk = conversation(wire, "A long story about a lamp.", "Short.")
    first = said(talk, talk.start("Tell me", turn_id="m1"), until=TextDelta)
    return [first, said(talk, talk.start("Shorter", turn_id="m2"))]


def reloaded(wire: str) -> list[Stage]:
    """A page that was loaded again follows the second half of a turn: it gets the first one, too."""
    talk = conversation(
        wire, Calls([("look", {"at": "x"}), ("fire", {"at": "y"})], text="Now.", reasoning="I see."), "Hit."
    )
    said(talk, talk.start("Fire!", turn_id="m1"))
    snapshot = talk.snapshot()
    assert snapshot is not None
    pieces = pieces_of(snapshot.history.turns[-1], snapshot.pending)
    before = [piece for piece in pieces if not isinstance(piece, Waits)]  # it is answered
    (call,) = snapshot.pending
    return [said(talk, talk.start_resume({call.id: Approve()}), before=before)]


CONVERSATIONS = {
    talk.__name__: talk
    for talk in (
        plain, with_tools, approved, waiting, denied, answered, approved_while_the_provider_fails, stopped,
        reloaded,
    )
}  # fmt: skip


@pytest.fixture(scope="session")
def found(read: Any) -> dict[tuple[str, str], tuple[list[Stage], dict[str, Any]]]:
    """Every conversation on every provider API, and what the client makes of it: all in one run of node."""
    talks = {(name, wire): talk(wire) for name, talk in CONVERSATIONS.items() for wire in WIRES}
    answer = read(conversations=list(talks.values()))["conversations"]
    return dict(zip(talks, zip(talks.values(), answer, strict=True), strict=True))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_client_holds_what_the_history_says(found: Any, name: str, wire: str) -> None:
    """Every chunk passes the client's schema, its messages after each request are the history's, and no chunk
    is idle: without any one that carries content they differ."""
    stages, answer = found[name, wire]
    expected = [comparable(stage["history"]) for stage in stages]
    fails = name == "approved_while_the_provider_fails"

    assert answer["refused"] == []
    assert [comparable(messages) for messages in answer["stages"]] == expected
    assert len(answer["errors"]) == fails
    idle = [
        one["type"]
        for one in answer["without"]
        if one["type"] not in WITHOUT_CONTENT
        and len(one["errors"]) == fails
        and [comparable(messages) for messages in one["stages"]] == expected
    ]
    # The second request of a reply names the message again, and a step of which nothing came shows nothing.
    assert sorted(idle) == ["start"] * sum(stage["goes_on"] for stage in stages) + ["start-step"] * fails


@pytest.mark.parametrize("wire", WIRES)
def test_the_client_takes_our_histories(read: Any, wire: str) -> None:
    """A history passes the check that the client has for stored messages."""
    histories = [stage["history"] for talk in CONVERSATIONS.values() for stage in talk(wire)]

    assert read(histories=histories)["histories"] == [None] * len(histories)


def test_what_is_wrong_is_noticed(read: Any) -> None:
    """The client refuses a chunk of no known type, and a message without parts; so the tests can fail."""
    wrong = [{"sse": 'data: {"type":"lamp"}\n\n', "goes_on": False}]

    answer = read(conversations=[wrong], histories=[[{"id": "1", "role": "user"}]])

    assert len(answer["conversations"][0]["refused"]) == 1
    assert answer["histories"][0] is not None
