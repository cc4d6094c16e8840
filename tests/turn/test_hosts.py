"""A conversation that grew at one host goes on at any other host of its provider API, and back.

The hosts are simulated: `SimServer(rules=…)` refuses what a host refuses, from a table that the package does
not read. So the package learns only from refusals, as it does at a server of an unknown name.

A case is a pair of hosts. Its conversation is drawn from the pair's own seed, which a failure prints.
`.ci/run` samples 16 pairs of each provider API; `.ci/long cases` runs all.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import permutations
from typing import Any

import pytest

from goaitools_py import (
    Approve,
    Audio,
    Compactor,
    Deny,
    Image,
    KeepRecentTurns,
    Limits,
    MessageLimit,
    ModelSettings,
    Summarize,
    TurnError,
    event,
    system,
    tool,
    user,
)
from goaitools_py.sim import Fault, Reply
from goaitools_py.sim.hosts import HOSTS, HostRule
from goaitools_py.states import pending_calls, read_history, state_messages

from ..conftest import Face, Simulator
from ._reading import unmarked_history

MODELS = {"openai": "some-model", "openai-responses": "some-model", "anthropic": "claude-opus-5-5"}
SETTINGS = {
    "openai": ModelSettings(),
    "openai-responses": ModelSettings(reasoning_effort="low"),
    "anthropic": ModelSettings(thinking_budget_tokens=1024, max_output_tokens=4096),
}
MOST_REPAIRS = 4
"""Requests that one turn may send again after a refusal: three forms, and one without signed thinking."""
MOST_TURNS = 2
"""Small turns at a host until one is answered: a long history may need more repairs than one turn has."""
STEPS = (
    "plain",
    "plain",
    "call",
    "call",
    "calls",
    "empty",
    "cut",
    "event",
    "system",
    "down",
    "undone",
    "limit",
    "picture",
    "sound",
    "approval",
    "drop",
    "recall",
    "summary",
)
CUT = MessageLimit(3)
"""Fires in each conversation that has more than one turn."""
PIXEL = b"\x89PNG\r\n\x1a\n"
MARK = re.compile(r"U\d+x")
RULES = [
    (wire, host.name, rule) for wire, hosts in HOSTS.items() for host in hosts.values() for rule in host.rules
]


def get_score(team: str) -> str:
    """Current score of one team."""
    return f"{team} has 7 points"


@tool(requires_approval=True)
def pay(sum: int) -> str:
    """Pay this sum."""
    return f"{sum} was paid"


class Place:
    """A host that is simulated, and a chat that talks to it."""

    def __init__(self, face: Face, wire: str, rules: str, *, vague: bool) -> None:
        self.sim = Simulator(rules=rules, vague=vague)
        self.sim.wire, self.sim.is_other = wire, True
        self.face, self.name = face, rules

    def __enter__(self) -> Place:
        self.sim.start()
        self.backend = self.sim.backend(MODELS[self.sim.wire], is_async=self.face.is_async)
        self.chat = self.on()
        return self

    def __exit__(self, *_: object) -> None:
        if self.face.is_async:
            self.face.run(self.backend.aclose())
        else:
            self.backend.close()
        self.sim.stop()

    def on(self, *others: Place) -> Any:
        """A chat on this host, which falls back to others."""
        return self.face.chat(
            self.backend,
            tools=[get_score, pay],
            system="You are a game master.",
            settings=SETTINGS[self.sim.wire],
            fallbacks=[other.backend for other in others],
        )

    @property
    def refused(self) -> list[str]:
        """The reasons of the refused requests, the first of each."""
        return [request.problems[0] for request in self.sim.requests if request.problems]


class Story:
    """One conversation, wherever it is."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.count = draw, 0
        self.state: bytes | None = None
        self.kept: list[str] = []
        self.told: list[str] = []

    def turn(self, place: Place, *script: Any, chat: Any = None, **fields: Any) -> Any:
        """One turn, with what the model is to say. The result, or the error of the turn.

        A call that waits is denied by the message.
        """
        self.count += 1
        mark = f"U{self.count}x"
        chat = chat or place.chat
        media = fields.pop("media", None)
        said = user(f"{mark} is said.", *([media] if media else []))
        given: dict[str, Any] = {"messages": [said], "on_pending": "deny", **fields}
        is_streamed = self.draw.random() < 0.5
        run = chat.start if is_streamed else chat.chat_with_state
        outcome = self._outcome(place, script, lambda: run(self.state, **given), is_streamed=is_streamed)
        self.kept.append(mark)
        if isinstance(outcome, TurnError):
            back = MARK.findall(" ".join(message.text for message in outcome.pending_input))
            self.kept = [one for one in self.kept if one not in back]
        return outcome

    def answer(self, place: Place) -> None:
        """Approve or deny the calls that wait, wherever they came from."""
        waiting = pending_calls(self.state or b"")
        answers = {call.id: self.draw.choice((Approve(), Deny("Too much."))) for call in waiting}
        is_streamed = self.draw.random() < 0.5
        run = place.chat.start_resume if is_streamed else place.chat.resume
        script = [Reply.text("So be it.", thinking="Hm.")]
        outcome = self._outcome(place, script, lambda: run(self.state, answers), is_streamed=is_streamed)
        assert len(place.refused) <= MOST_REPAIRS + 1, place.refused
        assert isinstance(outcome, TurnError) or outcome.status == "complete"

    def _outcome(self, place: Place, script: Sequence[Any], run: Any, *, is_streamed: bool) -> Any:
        """Run a turn. Its result, or its error."""
        place.sim.clear()
        place.sim.push(*script)
        try:
            outcome = run().result() if is_streamed else run()
        except TurnError as error:
            outcome = error
        self.state = outcome.state or self.state
        self.told.append(f"{place.name}: {type(outcome).__name__} after {place.refused}")
        return outcome

    def grow(self, place: Place, steps: Sequence[str]) -> None:
        """Steps of a conversation at a host, well or badly as they go."""
        for step in steps:
            match step:
                case "event" | "system":
                    said = event("It rains.") if step == "event" else system("Speak of rain.")
                    self.state = place.chat.append_to_state(self.state, said)
                case "down":
                    self.turn(place, Fault.server_error(503))
                case "undone":
                    self.turn(place, called("Red"), Fault.server_error(503))
                case "limit":
                    limits = Limits(max_iterations=1)
                    self.turn(
                        place, called("Red"), limits=limits, on_limit=self.draw.choice(("raise", "answer"))
                    )
                case "empty":
                    self.turn(place, Reply.text(""))
                case "cut":
                    self.turn(place, Reply.text("I was about to", finish="length"))
                case "picture":
                    self.turn(place, media=Image.from_bytes(PIXEL))
                case "sound" if place.sim.wire == "openai":
                    self.turn(place, media=Audio.from_bytes(b"RIFF"))
                case "approval":
                    self.ask(place)
                    self.answer(place)
                case "drop":
                    self.turn(place, compactor=Compactor(CUT, KeepRecentTurns(1), retain=True))
                case "recall":
                    search = Reply.calls(("recall", '{"query":"said"}'))
                    self.turn(place, search, compactor=Compactor(CUT, KeepRecentTurns(1), recall=True))
                case "summary":
                    compactor = Compactor(CUT, Summarize(keep_turns=1), retain=True)
                    self.turn(place, Reply.text("They talked."), compactor=compactor)
                case "call" | "calls":
                    teams = ("Red",) if step == "call" else ("Red", "Blue")
                    self.turn(place, called(*teams, text=self.draw.choice(("", "Let me look."))))
                case _:
                    self.turn(place, Reply.text("Well said.", thinking="Hm, let me think."))

    def ask(self, place: Place) -> None:
        """A turn whose call waits for an approval."""
        self.turn(place, Reply.calls(("pay", '{"sum":5}'), thinking="Should I?"))

    def summarize(self, place: Place) -> None:
        """The host is asked for a summary, with a request that it takes."""
        place.sim.clear()
        place.sim.push(Reply.text("They talked."))
        report = place.chat.compact_state(self.state, Compactor(CUT, Summarize(keep_turns=1), retain=True))
        assert (report.outcome, place.refused) == ("compacted", [])
        self.state = report.state

    def settle(self, place: Place) -> None:
        """A small message is answered, with few requests. After that nothing is refused any more, and the
        prefix only grows.

        At times no tools are offered, although the history has calls. A call that waits is answered before,
        or denied by the message.
        """
        waited = bool(pending_calls(self.state or b""))
        if waited and self.draw.random() < 0.5:
            self.answer(place)
        fields: dict[str, Any] = {"tools": []} if self.draw.random() < 0.2 else {}
        for _ in range(MOST_TURNS):
            outcome = self.turn(place, **fields)
            refused, sent = len(place.refused), len(place.sim.requests)
            assert sent <= refused + 1, f"{sent} requests for {place.refused}"
            assert refused <= MOST_REPAIRS + 1, place.refused
            if not isinstance(outcome, TurnError):
                break
        assert not isinstance(outcome, TurnError), f"{outcome!r} at {place.name} after {place.refused}"
        if waited:
            # The turn that took up a waiting call may have gone without thinking. So what the host wants of
            # thinking is learned in the turn behind it.
            outcome = self.turn(place, **fields)
            assert not isinstance(outcome, TurnError), f"{outcome!r} at {place.name} after {place.refused}"
        seen = unmarked_history(place.sim.requests[-1])
        outcome = self.turn(place, **fields)
        assert not isinstance(outcome, TurnError), f"{outcome!r} at {place.name} after {place.refused}"
        assert (place.refused, len(place.sim.requests)) == ([], 1), "what was learned is forgotten"
        if not unmarked_history(place.sim.requests[-1]).startswith(seen.rstrip(b"]")):
            assert outcome.warnings, "bytes that the host had seen have changed, and nobody was told"
        self.check()

    def fall_back(self, home: Place, away: Place) -> None:
        """A turn in which the first host fails behind a call. What its fallback refuses is not the message's
        fault."""
        away.sim.clear()
        outcome = self.turn(home, called("Red"), Fault.server_error(503), chat=home.on(away))
        assert len(away.sim.requests) <= len(away.refused) + 1 <= MOST_REPAIRS + 2, away.refused
        if isinstance(outcome, TurnError):
            assert outcome.retryable, f"{outcome!r} after {home.refused} and then {away.refused}"
            assert not outcome.pending_input, "the refusal of the fallback is blamed on the message"

    def check(self) -> None:
        """Whatever hosts refused, the state has all that was said, with what a compaction has retained."""
        blob = self.state or b""
        held = str(state_messages(blob)) + str(
            [message.text for message in read_history(blob, archived=True).all_messages()]
        )
        gone = [mark for mark in self.kept if mark not in held]
        assert not gone, f"lost on the way: {gone}"


def called(*teams: str, text: str = "") -> Reply:
    """A reply that asks for scores."""
    calls = [("get_score", f'{{"team":"{team}"}}') for team in teams]
    return Reply.calls(*calls, text=text, thinking="I should look." if len(teams) == 1 else "")


class Told:
    """Prints a case, so that a failure can be run again, and adds what was said to the failure."""

    def __init__(self, *case: Any) -> None:
        self.seed = zlib.crc32("/".join(map(str, case)).encode())
        self.draw = random.Random(self.seed)
        self.steps = ["call", *self.draw.choices(STEPS, k=self.draw.randrange(3, 8))]
        self.story = Story(self.draw)
        self.is_async = self.draw.random() < 0.5
        print(f"case {case}, seed {self.seed}, {'async' if self.is_async else 'sync'}: {self.steps}")

    def __enter__(self) -> Told:
        return self

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if error is not None:
            for line in self.story.told:
                print("  ", line)


@pytest.fixture
def places() -> Iterator[Any]:
    """Makes the places of a case, each with a server of its own."""
    with ExitStack() as stack:

        def make(told: Told, wire: str, *names: str, vague: bool) -> list[Place]:
            face = Face(told.is_async)
            stack.callback(face.close)
            return [stack.enter_context(Place(face, wire, name, vague=vague)) for name in names]

        yield make


class Pairs:
    """The cases of one provider API: every ordered pair of its hosts, with their own words and without."""

    wire = ""

    def test_a_conversation_goes_on_elsewhere_and_back(
        self, places: Any, clock: Any, here: str, there: str, vague: bool
    ) -> None:
        """It grew at one host. At the other small messages are answered, tools run, and then back again.

        Half of the cases go there within a turn: the first host fails behind a call, and its fallback takes
        the turn up.
        """
        with Told(self.wire, here, there, vague) as told:
            home, away = places(told, self.wire, here, there, vague=vague)
            story = told.story
            story.grow(home, told.steps)
            story.settle(home)

            if story.draw.random() < 0.5:
                story.fall_back(home, away)
            elif story.draw.random() < 0.5:
                story.ask(home)
            story.settle(away)
            outcome = story.turn(away, called("Red"))
            assert not isinstance(outcome, TurnError), f"{outcome!r} after {away.refused}"
            assert [record.call.name for record in outcome.tool_log] == ["get_score"]
            story.settle(away)
            if story.draw.random() < 0.3:
                story.summarize(away)
                story.settle(away)

            if story.draw.random() < 0.3:
                story.ask(away)
            story.settle(home)
            story.fall_back(home, away)
            story.settle(home)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The pairs of a class's provider API."""
    wire = getattr(metafunc.cls, "wire", "")
    if wire:
        cases = [
            pytest.param(here, there, vague, id=f"{here}-{there}" + "-vague" * vague)
            for vague in (False, True)
            for here, there in permutations(HOSTS[wire], 2)
        ]
        metafunc.parametrize(("here", "there", "vague"), cases)


class TestChatCompletions(Pairs):
    """Hosts of Chat Completions."""

    wire = "openai"


@pytest.mark.parametrize(
    ("home", "away"),
    [("deepseek", "cerebras"), ("cerebras", "deepseek"), ("moonshot", "mistral"), ("gemini", "groq")],
)
def test_what_one_host_refuses_the_other_needs(places: Any, clock: Any, home: str, away: str) -> None:
    """Pairs that always run: a turn at the one does not block the conversation at the other."""
    TestChatCompletions().test_a_conversation_goes_on_elsewhere_and_back(places, clock, home, away, False)


class TestResponses(Pairs):
    """Hosts of the Responses API."""

    wire = "openai-responses"


class TestMessages(Pairs):
    """Hosts of the Messages API."""

    wire = "anthropic"


@pytest.mark.parametrize(
    ("wire", "host", "rule", "vague"),
    [
        pytest.param(
            wire, host, rule, vague, id=f"{wire}-{host}-{rule.name.replace(' ', '_')}" + "-vague" * vague
        )
        for vague in (False, True)
        for wire, host, rule in RULES
    ],
)
def test_after_each_refusal_the_next_message_is_answered(
    places: Any, clock: Any, wire: str, host: str, rule: HostRule, vague: bool
) -> None:
    """A host that refuses once, for whatever reason, blocks nothing."""
    with Told(wire, host, rule.name, vague) as told:
        (place,) = places(told, wire, host, vague=vague)
        story = told.story
        story.grow(place, told.steps)
        story.settle(place)
        words = "Bad request" if vague else rule.text.replace("{}", "1")
        code, status = (None, min(rule.status, 422)) if vague else (rule.code, rule.status)

        story.turn(place, Fault.error(status, words, type=rule.type, code=code))

        assert len(place.sim.requests) <= 1 + MOST_REPAIRS
        story.settle(place)
