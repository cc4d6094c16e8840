"""Facts about real traffic: chats, driven by recorded answers, say what real clients said and servers took.

Every exchange of every recording is driven: through the public chat, the state as bytes in between, over
the official SDK and a transport that answers with the recorded bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from goaitools_py import (
    AuthenticationError,
    ContextTooLongError,
    ModelSettings,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    TurnError,
    rawjson,
    state_messages,
    user,
)
from goaitools_py.testing import check_history

from ._drive import GO_ON, Colour, Driven, Failed, NotDrivable, drive, served
from ._recorded import Exchange, Link, Record, Thread, comparable, place_of_answer, threads
from ._rules import against_accepted, against_answer
from ._script import Answer, Ask, Endpoint, completion, script, wordless

FIRST_PARTY = ("api.openai.com", ".openai.azure.com")

# --------------------------------------------------------------------------------------------- driving


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One thread, driven. `crash` is anything but a result or an error that a turn may end in."""

    thread: Thread
    driven: Driven | None = field(repr=False)
    crash: Exception | None = None

    @property
    def where(self) -> str:
        return f"{self.thread.record.id}{self.thread.places}"

    @property
    def host(self) -> str:
        return str(self.thread.exchanges[0].request["host"])

    @property
    def last_asked(self) -> Exchange | None:
        """The recorded exchange of the last request."""
        return [exchange for exchange, _ in self.sent()][-1] if self.driven and self.driven.sent else None

    def sent(self) -> Iterator[tuple[Exchange, bytes]]:
        """The requests that stand for a recorded one."""
        if self.driven is not None:
            by_place = {exchange.at: exchange for exchange in self.thread.exchanges}
            for ask, body in zip(self.driven.asks, self.driven.sent, strict=True):
                if ask.answer.of is not None:
                    yield by_place[ask.answer.of], body


def answer_of(exchange: Exchange) -> Answer:
    kind = exchange.response["headers"].get("content-type", "application/json")
    return Answer(body=exchange.answer_bytes, status=exchange.status, content_type=kind, of=exchange.at)


def endpoint_of(exchange: Exchange) -> Endpoint:
    url = "https://{host}{path}".format_map(exchange.request)
    return Endpoint(url=url, is_streamed=exchange.is_streamed, body=exchange.body)


def replay(colour: Colour, thread: Thread) -> Replay:
    story = script(
        thread.messages,
        answers={at: answer_of(exchange) for at, exchange in thread.answers.items()},
        last=answer_of(thread.exchanges[-1]),
        endpoints={exchange.at: endpoint_of(exchange) for exchange in thread.exchanges},
    )
    try:
        return Replay(thread=thread, driven=drive(colour, story, connect=served))
    except NotDrivable:
        raise
    except Exception as crash:
        return Replay(thread=thread, driven=None, crash=crash)


@dataclass(frozen=True, kw_only=True)
class Replays:
    """All threads of all records, driven; `undrivable` are the others and why."""

    records: Sequence[Record] = field(repr=False)
    all: tuple[Replay, ...] = field(repr=False)
    undrivable: tuple[str, ...]

    @property
    def failures(self) -> list[tuple[Replay, Failed]]:
        return [(one, one.driven.failed) for one in self.all if one.driven and one.driven.failed]


@pytest.fixture(scope="module")
def replays(records: list[Record], colour: Colour) -> Replays:
    """Every thread, driven once for all tests of a colour."""
    driven: list[Replay] = []
    undrivable: list[str] = []
    for record in records:
        for thread in threads(record):
            try:
                driven.append(replay(colour, thread))
            except NotDrivable as reason:
                undrivable.append(f"{record.id}{thread.places}: {reason}")
    return Replays(records=records, all=tuple(driven), undrivable=tuple(undrivable))


def is_first_party(host: str) -> bool:
    return host.endswith(FIRST_PARTY)


# ------------------------------------------------------------------------------------- no surprises


def test_no_recording_ends_in_a_crash(replays: Replays) -> None:
    """A thread ends in a result, or in the turn's own error."""
    crashes = [f"{one.where}: {type(one.crash).__name__}: {one.crash}" for one in replays.all if one.crash]

    assert crashes == []


def test_nearly_every_exchange_is_driven(replays: Replays) -> None:
    """What cannot be driven is printed with its reason."""
    print("\nnot drivable:", *replays.undrivable, sep="\n  ")
    wanted = sum(len(record.exchanges) for record in replays.records)
    done = {(one.thread.record.id, exchange.at) for one in replays.all for exchange, _ in one.sent()}

    assert len(done) >= 0.95 * wanted


def test_only_answers_that_failed_raise(replays: Replays) -> None:
    """A 200 with a whole answer is a result; a stream that broke off is not a whole answer."""
    assert [one.where for one, _ in replays.failures if one.last_asked and one.last_asked.is_whole] == []


# --------------------------------------------------------------------------------- replayed answers


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the rules say of one link; `accepted` is None where the provider refused the request."""

    record: str
    link: Link
    verbatim: list[str]
    accepted: list[str] | None


def measure(replays: Replays) -> list[Measured]:
    measured: dict[tuple[str, Link], Measured] = {}
    for one in replays.all:
        record = one.thread.record
        sent = {exchange.at: body for exchange, body in one.sent()}
        by_place = {exchange.at: exchange for exchange in one.thread.exchanges}
        for link in record.links:
            if link.source in sent and link.target in sent and (record.id, link) not in measured:
                source, target = by_place[link.source], by_place[link.target]
                place = len(messages_in(sent[link.source]))  # an answer comes right after what it answers
                ours = messages_in(sent[link.target])[place]
                ours = with_given_ids(ours, source, earlier=messages_in(sent[link.source]))
                measured[record.id, link] = Measured(
                    record=record.id,
                    link=link,
                    verbatim=against_answer(ours, source, is_first_party=is_first_party(one.host)),
                    accepted=accepted_problems(ours, source, target) if target.status == 200 else None,
                )
    return list(measured.values())


def with_given_ids(ours: bytes, source: Exchange, *, earlier: Sequence[bytes]) -> bytes:
    """The replay with the ids that the server gave, where it gave none or one that it had given before."""
    taken = {call.get("id") for message in map(json.loads, earlier) for call in message.get("tool_calls", ())}
    given = [call.get("id") for call in (source.answer or {}).get("tool_calls") or ()]
    replay = json.loads(ours)
    calls = replay.get("tool_calls", [])
    renamed = [
        at
        for at, (call, id) in enumerate(zip(calls, given, strict=False))
        if call["id"] != id and (not id or id in taken or id in given[:at])
    ]
    if not renamed:
        return ours
    spans = rawjson.items(rawjson.members(ours)["tool_calls"])
    for at in renamed:
        spans[at] = rawjson.replaced(spans[at], {"id": rawjson.dumps(given[at])})
    return rawjson.replaced(ours, {"tool_calls": b"[" + b",".join(spans) + b"]"})


def messages_in(body: bytes) -> list[bytes]:
    return rawjson.items(rawjson.members(body)["messages"])


def accepted_problems(ours: bytes, source: Exchange, target: Exchange) -> list[str]:
    accepted = target.messages[place_of_answer(target.messages, source)]
    return against_accepted(json.loads(ours), source.answer or {}, accepted)


@pytest.fixture(scope="module")
def measured(replays: Replays) -> list[Measured]:
    """Every link that was driven, held against both rules; printed as a table."""
    found = measure(replays)
    every = Counter(link.kind for record in replays.records for link in record.links)
    verbatim = Counter(one.link.kind for one in found if not one.verbatim)
    judged = Counter(one.link.kind for one in found if one.accepted is not None)
    accepted = Counter(one.link.kind for one in found if one.accepted == [])
    driven = Counter(one.link.kind for one in found)
    print(f"\n{'link':24} recorded  driven  A: verbatim  B: accepted")
    for kind, count in every.most_common():
        took = f"{accepted[kind]} of {judged[kind]}"
        print(f"{kind:24} {count:8}  {driven[kind]:6}  {verbatim[kind]:11}  {took:>11}")
    return found


def test_nearly_every_link_is_driven(replays: Replays, measured: list[Measured]) -> None:
    """The rest holds answers of other threads, or earlier messages that the client edited."""
    links = [(record.id, link) for record in replays.records for link in record.links]
    missing = set(links) - {(one.record, one.link) for one in measured}
    print("\nlinks not driven:", *sorted(f"{id}: {link}" for id, link in missing), sep="\n  ")

    assert links
    assert len(measured) >= 0.95 * len(links)


def test_every_replayed_answer_is_the_providers_own(measured: list[Measured]) -> None:
    """Part for part, byte for byte in arguments, less the keys that only a response may have."""
    changed = [one for one in measured if one.verbatim]

    assert changed == []


def test_answers_that_were_taken_unchanged_are_replayed_so(measured: list[Measured]) -> None:
    """What the provider sent, got back unchanged and took with 200 is in our request, equal."""
    refused = [one for one in measured if one.link.kind == "exact" and one.accepted]

    assert refused == []


def test_answers_that_were_taken_in_part_are_replayed_so(measured: list[Measured]) -> None:
    """Clients that changed an answer a little before they sent it back disagree with us in 5 % at most."""
    judged = [one for one in measured if one.link.kind != "exact" and one.accepted is not None]
    refused = [one for one in judged if one.accepted]
    print("\nrefused:", *refused, sep="\n  ")

    assert len(refused) <= 0.05 * len(judged)


# ----------------------------------------------------------------------------------- whole requests


def test_every_request_obeys_the_sequence_rules(replays: Replays) -> None:
    """No history that was sent has an orphan, a reused id or a shape that the wire does not know."""
    problems = {
        f"{one.where}, exchange {exchange.at}": found
        for one in replays.all
        for exchange, body in one.sent()
        if (found := check_history("openai", messages_in(body)))
    }

    assert problems == {}


def test_every_first_party_request_is_of_the_published_type(
    replays: Replays, schema_problems: Callable[[bytes], list[str]]
) -> None:
    """OpenAI and Azure hold requests to it; other servers take more and want less."""
    bodies = [
        (f"{one.where}, exchange {exchange.at}", body)
        for one in replays.all
        for exchange, body in one.sent()
        if is_first_party(one.host)
    ]
    problems = {where: found for where, body in bodies if (found := schema_problems(body))}
    print(f"\n{len(bodies)} requests to first-party hosts, {len(problems)} not of the published type")

    assert problems == {}


def test_what_the_client_said_arrives_in_order(replays: Replays) -> None:
    """System, user and tool messages stand where the recorded client had them, with the same content.

    Two per cent may differ: where the client checked arguments in its own words.
    """
    total, other = 0, []
    for one in replays.all:
        for exchange, body in one.sent():
            total += 1
            ours = said_by_client(json.loads(body)["messages"])
            if [message for message in ours if message != said_by_client([GO_ON])[0]] != said_by_client(
                exchange.messages
            ):
                other.append(f"{one.where}, exchange {exchange.at}")
    print(f"\n{len(other)} of {total} requests with other words of the client:", *other, sep="\n  ")

    assert total
    assert len(other) <= 0.02 * total


def said_by_client(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Both sides of a comparison: no names, no ids (they may be rewritten), one word for the system."""
    return [
        comparable(
            {
                "role": "system" if message["role"] == "developer" else message["role"],
                "content": wordless(message.get("content")),
            }
        )
        for message in messages
        if message["role"] != "assistant"
    ]


def test_the_state_holds_the_conversation(replays: Replays) -> None:
    """The last blob says what the last request said, without the preamble, and the answer to it."""
    wrong = []
    for one in replays.all:
        if one.driven is None or one.driven.result is None:
            continue
        asked = json.loads(one.driven.sent[-1])["messages"]
        kept = state_messages(one.driven.states[-1])
        lead = len(asked) + 1 - len(kept)
        if lead < 0 or kept[:-1] != asked[lead:] or kept[-1]["role"] != "assistant":
            wrong.append(one.where)

    assert wrong == []


# -------------------------------------------------------------------------------------------- faults

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


def refusals(replays: Replays, *, later: bool) -> Iterator[tuple[Driven, Failed]]:
    """Requests whose content was blamed: the first of a turn, or a later one."""
    for one, failed in replays.failures:
        is_blamed = type(failed.error) is ProviderRejectedError and is_poison(failed)
        if one.driven is not None and is_blamed and later == (failed.calls.resumes or failed.made > 1):
            yield one.driven, failed


def is_poison(failed: Failed) -> bool:
    return failed.error.status_code in (400, 413, 422)


def test_each_status_raises_its_error(replays: Replays) -> None:
    """The class says whose fault it is, whatever the provider's words are."""
    wrong = [
        f"{one.where}: {exchange.status} raised {type(failed.error).__name__}"
        for one, failed in replays.failures
        if (exchange := one.last_asked) is not None
        and exchange.status >= 400
        and not isinstance(failed.error, ERRORS.get(exchange.status, (ProviderUnavailableError,)))
    ]
    print(f"\n{len(replays.failures)} recorded failures")

    assert wrong == []


def test_a_refused_first_request_leaves_the_state_as_it_was(replays: Replays) -> None:
    """What no model has accepted is in `pending_input`, and only there."""
    for _, failed in refusals(replays, later=False):
        assert failed.error.state == (failed.state or b"")
        assert len(failed.error.pending_input) == len(failed.calls.asks[0].messages)


def test_refused_results_are_flagged_and_not_lost(replays: Replays) -> None:
    """A later request that is refused may be so for its results: others stand in, `tool_log` has the real."""
    for driven, failed in refusals(replays, later=True):
        sent = last_results(json.loads(driven.sent[-1])["messages"])
        kept = last_results(state_messages(failed.error.state))

        assert list(kept) == list(sent)
        assert all(kept[call_id] != sent[call_id] for call_id in sent)
        assert {record.result for record in failed.error.tool_log} >= set(sent.values())


def last_results(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Call id and text of the results behind the last thing that the assistant said."""
    last = max(at for at, message in enumerate(messages) if message["role"] == "assistant")
    return {
        message["tool_call_id"]: comparable(message)["content"]
        for message in messages[last:]
        if message["role"] == "tool"
    }


def test_a_refused_request_does_not_wedge_the_conversation(replays: Replays, colour: Colour) -> None:
    """The next turn says what is new, and nothing of what was refused."""
    for _, failed in (*refusals(replays, later=False), *refusals(replays, later=True)):
        bodies = next_turn(colour, failed, resume=False)

        sent = json.loads(bodies[-1])["messages"]
        kept = state_messages(failed.error.state) if failed.error.state else []
        assert sent == [*kept, {"role": "user", "content": "Something else."}]
        assert check_history("openai", sent) == []


def test_a_failure_that_may_pass_keeps_the_message_once(replays: Replays, colour: Colour) -> None:
    """After 401, 404, 429 or 5xx `resume` sends the very same messages again."""
    for one, failed in replays.failures:
        if is_poison(failed) or isinstance(failed.error, ContextTooLongError) or one.driven is None:
            continue
        bodies = next_turn(colour, failed, resume=True)

        asked = json.loads(one.driven.sent[-1])["messages"]
        lead = next(at for at, message in enumerate(asked) if message["role"] != "system")
        assert json.loads(bodies[-1])["messages"] == asked[lead:]
        assert failed.error.pending_input == ()


def next_turn(colour: Colour, failed: Failed, *, resume: bool) -> Sequence[bytes]:
    """One more call of a chat after a failure, without preamble; the request bodies that it sent."""
    answer = Answer(body=completion({"role": "assistant", "content": "All right."}))
    first = failed.calls.asks[0]
    ask = Ask(answer=answer, endpoint=Endpoint(url=first.endpoint.url))
    backend, sent = served(colour, [ask])
    chat = colour.chat(backend, settings=ModelSettings(model="any"))
    if resume:
        colour.settle(chat.resume(failed.error.state))
    else:
        colour.settle(chat.chat_with_state(failed.error.state, messages=[user("Something else.")]))
    return sent
