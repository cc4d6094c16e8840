"""Facts about real traffic: chats, driven by recorded answers, say what real clients said and servers took.

Owns: the facts that hold on every wire, as tests that each wire's own file inherits. Must never know: a
particular wire.

Every exchange of every recording that a stateless client could have made is driven: through the public
chat, the state as bytes in between, over the official SDK and a transport that answers with the recorded
bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from goaitools_py import (
    AuthenticationError,
    ContextTooLongError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    TurnError,
    user,
)
from goaitools_py.base import rawjson
from goaitools_py.open_turn.meter import server_window
from goaitools_py.state.state import load_state
from goaitools_py.states import state_messages
from goaitools_py.testing import check_history

from ._drive import GO_ON, Colour, Failed, Tools, recorded_tools, served, spoken
from ._recorded import is_plain, threads
from ._replays import Measured, Replays
from ._script import Answer, Ask
from ._wire import JSON, Wire

__all__ = ["RecordedTraffic"]

ERRORS: Mapping[int, tuple[type[TurnError], ...]] = {
    400: (ProviderRejectedError, ContextTooLongError),
    401: (AuthenticationError,),
    402: (AuthenticationError,),
    403: (AuthenticationError,),
    404: (ProviderRejectedError,),
    408: (ProviderUnavailableError,),
    409: (ProviderUnavailableError,),
    413: (ProviderRejectedError, ContextTooLongError),
    422: (ProviderRejectedError, ContextTooLongError),
    429: (RateLimitError,),
}


class RecordedTraffic:
    """The facts. Each wire's tests say which wire, and how much of its recordings there is to measure.

    Attributes:
        plain_links: Links in threads that hold nothing but answers and what clients may say.
        links: Links that were driven and measured.
        exchanges: Exchanges that were driven.
        floors: Shares of links that hold rule B, by kind of link; a kind without one is reported only.
        of_dialect: Links whose answer a chat has to send in part only, and why: the dialect is measured.
        broken: Records in which a 200 broke off, and what that has to raise.
        unpublished: Records in which a verbatim request is not of the published type, and why.
    """

    wire: ClassVar[Wire]
    plain_links: ClassVar[int]
    links: ClassVar[int]
    exchanges: ClassVar[int]
    floors: ClassVar[Mapping[str, float]]
    of_dialect: ClassVar[Mapping[str, str]] = {}
    unpublished: ClassVar[Mapping[str, str]] = {}
    broken: ClassVar[Mapping[str, type[TurnError]]] = {}

    # ------------------------------------------------------------------------------- no surprises

    def test_no_recording_ends_in_a_crash(self, replays: Replays) -> None:
        """A thread ends in a result, or in the turn's own error."""
        crashes = [
            f"{one.where}: {type(one.crash).__name__}: {one.crash}" for one in replays.all if one.crash
        ]

        assert crashes == []

    def test_every_exchange_that_can_be_is_driven(self, replays: Replays) -> None:
        """What cannot be driven is printed with its reason."""
        done = {(one.thread.record.id, exchange.at) for one in replays.all for exchange, _ in one.sent}
        wanted = {(record.id, exchange.at) for record in replays.records for exchange in record.exchanges}
        print(f"\n{len(done)} of {len(wanted)} exchanges driven; the others:")
        print(*replays.undrivable, sep="\n  ")
        print("not reached:", sorted(wanted - done))

        assert len(done) == self.exchanges

    def test_no_server_is_taken_for_one_that_cuts(self, replays: Replays) -> None:
        """No recorded usage looks like a prompt that was cut, whatever it counts as cached."""
        states = [
            (one.where, state)
            for one in replays.all
            if one.driven
            for state in one.driven.states
            if state  # that of a first turn that was refused is empty
        ]
        cut = [where for where, state in states if server_window(load_state(state).meta)]

        assert len(states) >= len(replays.records)
        assert cut == []

    def test_only_answers_that_failed_raise(self, replays: Replays) -> None:
        """A 200 with a whole answer is a result; a stream that broke off is not a whole answer."""
        raised = [
            f"{one.where}: {type(failed.error).__name__}"
            for one, failed in replays.failures
            if one.last_asked and one.last_asked.is_whole
        ]

        assert raised == []

    def test_every_answer_that_broke_off_raises(self, replays: Replays) -> None:
        """A 200 without a whole answer is no result."""
        raised = {one.where: type(failed.error) for one, failed in replays.failures}
        broken = {
            one.thread.record.id: raised.get(one.where)
            for one in replays.all
            for exchange, _ in one.sent
            if exchange.status == 200 and not exchange.is_whole
        }

        assert broken == self.broken

    # ---------------------------------------------------------------------------- replayed answers

    def test_every_link_that_can_be_is_driven(self, replays: Replays, measured: list[Measured]) -> None:
        """The rest holds answers of other threads, or earlier messages that the client edited."""
        links = [(record.id, link) for record in replays.records for link in record.links]
        missing = set(links) - {(one.record, one.link) for one in measured}
        print("\nlinks not driven:", *sorted(f"{id}: {link}" for id, link in missing), sep="\n  ")

        assert len(measured) == self.links

    def test_every_link_of_plain_threads_is_driven(self, replays: Replays, measured: list[Measured]) -> None:
        """Where a client added nothing but results and words of its own, no link is missed."""
        plain = {
            (record.id, link)
            for record in replays.records
            for thread in threads(record)
            if is_plain(thread)
            for link in record.links
            if {link.source, link.target} <= set(thread.places)
        }

        assert plain - {(one.record, one.link) for one in measured} == set()
        assert len(plain) == self.plain_links

    def test_every_replayed_answer_is_the_providers_own(self, measured: list[Measured]) -> None:
        """Part for part, byte for byte in arguments, less the keys that only a response may have."""
        changed = [one for one in measured if one.verbatim]
        not_sent = [one for one in measured if one.of == "dialect"]
        print(f"\n{len(not_sent)} links of what a dialect would store:", *not_sent, sep="\n  ")

        assert changed == []
        assert {one.record for one in not_sent} == set(self.of_dialect)

    def test_answers_that_were_taken_are_replayed_so(self, measured: list[Measured]) -> None:
        """What the provider sent, got back and took with 200 is in our request, equal."""
        judged = [one for one in measured if one.accepted is not None]
        refused = Counter(one.link.kind for one in judged if one.accepted)
        total = Counter(one.link.kind for one in judged)
        print("\nnot as taken:", *(one for one in judged if one.accepted), sep="\n  ")

        assert total.keys() >= self.floors.keys()
        assert [
            f"{kind}: {refused[kind]} of {total[kind]}"
            for kind, floor in self.floors.items()
            if total[kind] - refused[kind] < floor * total[kind]
        ] == []

    # ------------------------------------------------------------------------------ whole requests

    def test_every_request_obeys_the_sequence_rules(self, replays: Replays) -> None:
        """No history that was sent has an orphan, a reused id or a shape that the wire does not know."""
        problems: dict[str, list[str]] = {}
        for one in replays.all:
            for where, body in one.requests:
                history = one.elements(body)
                is_open = self.wire.is_spoken(json.loads(history[-1]))  # sent back, to be gone on with
                if found := check_history(self.wire.name, history, open_end=is_open):
                    problems[where] = found

        assert problems == {}

    def test_every_first_party_request_is_of_the_published_type(
        self, replays: Replays, schema_problems: Callable[[str], Callable[[bytes], list[str]]]
    ) -> None:
        """The wire's own hosts hold requests to it; other servers take more and want less."""
        total, problems = 0, {}
        for one in replays.all:
            exchange = one.thread.exchanges[0]
            for where, body in one.requests if exchange.is_first_party else ():
                total += 1
                published = rawjson.without(body, self.wire.retired)
                if found := schema_problems(self.wire.schema(exchange))(published):
                    problems[where] = found
        print(f"\n{total} requests to first-party hosts, {len(problems)} not of the published type:")
        print(problems)

        assert total
        assert {where[:16] for where in problems} == set(self.unpublished)

    def test_what_the_client_said_arrives_in_order(self, replays: Replays) -> None:
        """System, user and tool messages stand where the recorded client had them, with the same content.

        Two per cent may differ: where the client checked arguments in its own words.
        """
        total, other = 0, []
        for one in replays.all:
            for exchange, body in one.sent:
                total += 1
                history = json.loads(body)[self.wire.key]
                ours = history[self.wire.lead(history) :]
                theirs = exchange.history[self.wire.lead(exchange.history) :]
                nothing_new = self.wire.client_words([{"role": "user", "content": GO_ON}])
                said = [word for word in self.wire.client_words(ours) if word not in nothing_new]
                if said != self.wire.client_words(theirs):
                    other.append(f"{one.where}, exchange {exchange.at}")
        print(f"\n{len(other)} of {total} requests with other words of the client:", *other, sep="\n  ")

        assert total
        assert len(other) <= 0.02 * total

    def test_the_system_words_arrive(self, replays: Replays) -> None:
        """What the system says, in the history or beside it, is in the request word for word."""
        wrong = [
            f"{one.where}, exchange {exchange.at}"
            for one in replays.all
            for exchange, body in one.sent
            if self.lead_words(json.loads(body)) != self.lead_words(exchange.body)
        ]

        assert wrong == []

    def lead_words(self, body: JSON) -> list[str]:
        """Texts of the system's first words, wherever a request has them."""
        history = self.wire.history(body)
        lead = self.wire.client_words(history[: self.wire.lead(history)])
        beside = [message.text for message in self.wire.preamble(body)]
        return [*beside, *(_text(word["content"]) for word in lead)]

    def test_the_state_holds_the_conversation(self, replays: Replays) -> None:
        """The last blob says what the last request said, without the preamble, and the answer to it."""
        wrong = []
        for one in replays.all:
            if one.driven is None or one.driven.result is None:
                continue
            asked = json.loads(one.driven.sent[-1])[self.wire.key]
            said = asked[self.wire.lead(asked) :]
            kept = state_messages(one.driven.states[-1])
            answer = kept[len(said) :]
            is_empty = "empty_reply" in {warning.code for warning in one.driven.result.warnings}
            if (
                kept[: len(said)] != said
                or is_empty is bool(answer)
                or not all(map(self.wire.is_spoken, answer))
            ):
                wrong.append(one.where)

        assert wrong == []

    # -------------------------------------------------------------------------------------- faults

    def test_each_status_raises_its_error(self, replays: Replays) -> None:
        """The class says whose fault it is, whatever the provider's words are."""
        wrong = [
            f"{one.where}: {exchange.status} raised {type(failed.error).__name__}"
            for one, failed in replays.failures
            if (exchange := one.last_asked) is not None
            and exchange.status >= 400
            and not isinstance(failed.error, ERRORS.get(exchange.status, (ProviderUnavailableError,)))
            # A server that refuses what its own model wrote does not blame the request.
            and not (
                isinstance(failed.error, ProviderProtocolError) and failed.error.code == "tool_use_failed"
            )
        ]
        met = {exchange.status for one in replays.all for exchange, _ in one.sent}
        recorded = {
            exchange.status
            for record in replays.records
            for exchange in record.exchanges
            if exchange.at not in record.undrivable
        }
        print(f"\n{len(replays.failures)} recorded failures")

        assert wrong == []
        assert met == recorded

    def test_a_refused_first_request_leaves_the_state_as_it_was(self, replays: Replays) -> None:
        """What no model has accepted is in `pending_input`, and only there."""
        for failed in refusals(replays, later=False):
            assert failed.error.state == (failed.state or b"")
            assert len(failed.error.pending_input) == len(failed.calls.asks[0].messages)

    def test_refused_results_are_flagged_and_not_lost(self, replays: Replays) -> None:
        """A later request that is refused may be so for its results: others stand in, `tool_log` has them."""
        for failed in refusals(replays, later=True):
            sent = self.last_results(json.loads(failed.first)[self.wire.key])
            kept = self.last_results(state_messages(failed.error.state))

            assert list(kept) == list(sent)
            assert all(kept[call_id] != sent[call_id] for call_id in sent)
            assert {record.result for record in failed.error.tool_log} >= set(sent.values())

    def last_results(self, history: Sequence[JSON]) -> dict[str, str]:
        """Call id and text of the results behind the last thing that the assistant said."""
        last = max(at for at, element in enumerate(history) if self.wire.is_spoken(element))
        return self.wire.results(history[last + 1 :])

    def test_a_refused_request_does_not_wedge_the_conversation(
        self, replays: Replays, colour: Colour
    ) -> None:
        """The next turn says what is new, and nothing of what was refused."""
        for failed in (*refusals(replays, later=False), *refusals(replays, later=True)):
            bodies = self.next_turn(colour, failed, resume=False)

            sent = json.loads(bodies[-1])[self.wire.key]
            kept = state_messages(failed.error.state) if failed.error.state else []
            assert sent[self.wire.lead(sent) : -1] == kept
            assert self.wire.client_words(sent[-1:]) == self.wire.client_words(
                [{"role": "user", "content": "Something else."}]
            )
            assert check_history(self.wire.name, sent) == []

    def test_a_failure_that_may_pass_keeps_the_message_once(self, replays: Replays, colour: Colour) -> None:
        """After 401, 404, 429 or 5xx `resume` sends the very same messages again."""
        for _, failed in replays.failures:
            if is_poison(failed) or isinstance(failed.error, ContextTooLongError):
                continue
            bodies = self.next_turn(colour, failed, resume=True)

            asked = json.loads(failed.last)[self.wire.key]
            assert json.loads(bodies[-1])[self.wire.key] == asked
            assert failed.error.pending_input == ()

    def next_turn(self, colour: Colour, failed: Failed, *, resume: bool) -> Sequence[bytes]:
        """One more call of a chat after a failure, with preamble and tools; the bodies that it sent."""
        endpoint = replace(failed.calls.asks[0].endpoint, is_streamed=False)
        answer = Answer(body=spoken(self.wire, "All right."))
        backend, sent = served(self.wire, colour, [Ask(answer=answer, endpoint=endpoint)])
        chat = colour.chat(backend, tools=recorded_tools(failed.story, endpoint, Tools(())))
        lead = (*endpoint.preamble, *failed.story.preamble)
        if resume:
            colour.settle(chat.resume(failed.error.state, messages=lead))
        else:
            said = (*lead, user("Something else."))
            colour.settle(chat.chat_with_state(failed.error.state, messages=said))
        return sent


def refusals(replays: Replays, *, later: bool) -> Iterator[Failed]:
    """Requests whose content was blamed: the first of a turn, or a later one."""
    for _, failed in replays.failures:
        is_blamed = type(failed.error) is ProviderRejectedError and is_poison(failed)
        if is_blamed and later == (failed.calls.resumes or failed.made > 1):
            yield failed


def is_poison(failed: Failed) -> bool:
    return failed.error.status_code in (400, 413, 422)


def _text(content: Any) -> str:
    """The text of a message, which is in a part of its own where a cached prefix is to end with it."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
