"""What the library costs in a whole turn on each wire, against the plain SDK with a JSON blob.

Owns: the two turns and the two floors that are compared. Must never know: how time is taken.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import httpx2
from _conversations import corpus
from _report import Figure, Report, at_least, at_most, info
from _timing import Blocks, interleaved
from _wires import WIRES, BenchedWire, History

from goaitools_py import Chat, user
from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.wire import grown_view
from goaitools_py.backends.wire.kept_views import KeptViews
from goaitools_py.base.values import replace
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.records import with_host
from goaitools_py.state.state import dump_state, load_state, with_turn
from goaitools_py.states import state_from_messages
from goaitools_py.turn.request import host_mark

__all__ = ["run"]

_AROUND = range(-70, 70, 2)
"""Entries more or fewer. The tail of a state is compressed with each turn until it has 32 KiB, about 70
entries here, and is then sealed, every other time together with the one before: that takes ten times as long.
What a turn costs is the mean over the turns of such a cycle."""

SIZES = {"openai": (2, 10, 50, 200, 1000), "openai-responses": (200, 1000), "anthropic": (200, 1000)}
_RULES = {"openai": "ilmuy", "openai-responses": "ajs", "anthropic": "ajs"}
"""Rules of a host: for Chat Completions those of Mistral."""
QUESTION = "And is my second bag still on the reservation?"
_TIMES_LESS = {
    ("openai", 200): 60.0,
    ("openai", 1000): 120.0,
    ("openai-responses", 200): 150.0,
    ("anthropic", 200): 3.0,
    ("anthropic", 1000): 7.0,
}


def run(*, short: bool = False) -> Report:
    """Measure every size on every wire. `short` leaves out 1000 entries and most rounds."""
    figures: list[Figure] = []
    for name, sizes in SIZES.items():
        wire = WIRES[name]
        blocks = {
            size: _measured(_sides(wire, size), len(_around(size)), short=short)
            for size in (sizes[:-1] if short else sizes)
        }
        for size, found in blocks.items():
            figures += _of_one_size(wire, size, found)
        figures.append(_viewed(wire, short=short))
        figures.append(_over_client(wire, short=short))
        if not short:
            figures.append(_slope(wire))
    return Report(
        title="Whole turn: load, splice, SDK, read the reply, save",
        method="CPU time of the process, all threads; model in process, as the transport of the HTTP clients "
        f"that SDK and backend make by themselves; {corpus().source}; an entry is a message, on "
        "openai-responses an item; the bare post is the same body through a plain httpx2.Client, without an "
        "SDK; "
        f"from 200 on ours and the codec are the mean over {len(_AROUND)} states of {-_AROUND[0]} entries "
        f"less to {_AROUND[-1]} more, for the tail grows with each turn until it is sealed, which is a part "
        "of two of them; blocks interleaved, for the slope those of both sizes; times and the slope's "
        "difference are of the minima; a ratio is the median of those of each round, the minima's beside it",
        figures=figures,
    )


def _measured(
    sides: Mapping[str, Callable[[], object]], rounds_of: int, *, short: bool = False
) -> dict[str, Blocks]:
    return interleaved(sides, short=short, rounds_of=rounds_of, clock=time.process_time_ns)


def _of_one_size(wire: BenchedWire, size: int, found: dict[str, Blocks]) -> list[Figure]:
    ours, plain = found["ours"], found["plain"]
    codec, bare = found["codec"], found["bare"]
    less = plain.times(ours)
    note = f"ratio of minima {plain.minimum / ours.minimum:.1f}"
    here = f"{wire.name}, {size:>4} entries"
    name = f"{here}: times less than {wire.create}"
    floors = ours.times(codec, bare)
    own = f"medians {ours.median:,.0f}, {wire.create} {plain.median:,.0f}"
    target = _TIMES_LESS.get((wire.name, size))
    return [
        info(f"{here}: ours", ours.minimum, "µs", note=own),
        info(name, less, "x", note=note) if target is None else at_least(target, name, less, "x", note=note),
        at_most(
            3.0,
            f"{here}: times codec + bare httpx2 post",
            floors,
            "x",
            note=f"codec {codec.minimum:,.0f} µs, bare post {bare.minimum:,.0f} µs",
        ),
    ]


def _slope(wire: BenchedWire) -> Figure:
    """What an entry more costs, both sizes measured in the same seconds."""
    few, many = 200, 1000
    sides = {str(size): _sides(wire, size)["ours"] for size in (few, many)}
    found = _measured(sides, len(_AROUND))
    least, usual = (
        (getattr(found[str(many)], kind) - getattr(found[str(few)], kind)) / (many - few)
        for kind in ("minimum", "median")
    )
    name = f"{wire.name}: slope from {few} to {many} entries"
    return at_most(0.5, name, least, "µs/entry", note=f"of medians {usual:.2f}")


def _viewed(wire: BenchedWire, *, short: bool) -> Figure:
    """How much longer a turn takes at a host that needs another form of the history."""
    size, rules = 200, _RULES[wire.name]
    tokens = len(json.dumps(_history(wire, size + _AROUND[-1]))) // 4
    first = load_state(state_from_messages(wire.name, _history(wire, size + _AROUND[0])))

    def side(letters: str) -> Callable[[], object]:
        backend = wire.backend(wire.instant(tokens))
        hosts = with_host((), host_mark(backend.dialect), letters) if letters else ()
        given = dump_state(replace(first, meta=replace(first.meta, hosts=hosts)))
        chat, place, state = Chat(backend), cycle(range(len(_AROUND))), given

        def turn() -> object:
            """A conversation that grows turn by turn, and then begins anew."""
            nonlocal state
            if not (at := next(place)):
                setattr(grown_view, "_views", KeptViews())  # noqa: B010 - as in a new process
            state = chat.chat_with_state(state if at else given, user=QUESTION).state
            return state

        return turn

    found = _measured({"viewed": side(rules), "plain": side("")}, len(_AROUND), short=short)
    return at_most(
        1.2,
        f"{wire.name}, {size:>4} entries, at a host with the rules {rules}: times a plain turn",
        found["viewed"].times(found["plain"]),
        "x",
        note=f"{found['viewed'].minimum:,.0f} and {found['plain'].minimum:,.0f} µs; a conversation grows by "
        f"{len(_AROUND)} turns, the first of them in a process that has not seen it",
    )


def _over_client(wire: BenchedWire, *, short: bool) -> Figure:
    """How much longer a turn takes with an SDK client that the caller has made."""
    size = 10
    blob, tokens = state_from_messages(wire.name, _history(wire, size)), 1_200

    def side(backend: Any) -> Callable[[], object]:
        chat = Chat(backend)
        return lambda: chat.chat_with_state(blob, user=QUESTION)

    client = wire.client(wire.instant(tokens))
    sides = {"theirs": side(wire.over_client(client)), "ours": side(wire.backend(wire.instant(tokens)))}
    found = _measured(sides, 1, short=short)
    return at_most(
        1.3,
        f"{wire.name}, {size:>4} entries, with a client= of your own: times a turn without",
        found["theirs"].times(found["ours"]),
        "x",
        note=f"{found['theirs'].minimum:,.0f} and {found['ours'].minimum:,.0f} µs",
    )


def _history(wire: BenchedWire, entries: int) -> History:
    """The corpus in the wire's JSON, whole turns of at most so many entries together."""
    found: History = []
    for turn in corpus().of_length(2 * entries):
        added = wire.translated([turn])
        if len(found) + len(added) <= entries:
            found += added
    return found


def _around(size: int) -> Sequence[int]:
    return _AROUND if size >= 200 else (0,)


def _sides(wire: BenchedWire, size: int) -> dict[str, Callable[[], object]]:
    history = _history(wire, size)
    tokens = max(1200, len(json.dumps(history)) // 4)
    client = wire.client(wire.instant(tokens))
    http, url = httpx2.Client(transport=wire.instant(tokens)), f"https://api.example.com/v1{wire.path}"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-none"}
    backend = wire.backend(wire.instant(tokens))
    chat = Chat(backend)
    dialect = backend.dialect
    blobs = [state_from_messages(wire.name, _history(wire, size + more)) for more in _around(size)]
    given, decoded = cycle(blobs), cycle(blobs)
    json_blob = json.dumps(history)
    question = dialect.entries([user(QUESTION)])
    reply = dialect.reply(wire.answer(tokens)).entries
    body = wire.body([*history, json.loads(question[0])])

    def ours() -> object:
        return chat.chat_with_state(next(given), user=QUESTION)

    def plain() -> object:
        return wire.plain(client, json_blob, QUESTION)

    def codec() -> object:
        state = load_state(next(decoded), wire=wire.name)
        spliced: list[Any] = state.history()
        dialect.request(RequestParts(model=wire.model, history=[*spliced, *question]))
        turn = TurnRecord(at=0, messages=2, iterations=(Iteration(roles="u" + "a" * len(reply)),))
        return dump_state(with_turn(state, ClosedTurn((*question, *reply), turn)))

    def bare() -> object:
        return http.post(url, content=body, headers=headers).read()

    return {"ours": ours, "plain": plain, "codec": codec, "bare": bare}
