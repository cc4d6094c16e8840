"""Write the frozen vectors of format 1: ``python tests/golden/write.py``. Run once; see PROVENANCE.md.

`v1-good.jsonl` holds blobs that this release wrote, each feature on each wire by each codec.
`v1-bad.jsonl` holds blobs that must be refused, each with one thing wrong, made by the tests' second writer
(`tests/seal/_second.py`) and sealed correctly wherever the seal is not what is wrong.
`v1-archive.jsonl` holds blobs with an archive, and what reading, undoing and rewinding them gives.
`v1-media.jsonl` holds blobs with media that are stored once, in the history, the open turn and the archive.
`v1-facts.jsonl` holds blobs with facts of calls, speakers and typed answers.
`v1-unsent.jsonl` holds blobs with a refused turn that no request has.
`v1-pins.jsonl` holds blobs with pinned messages, of which some are left of turns that a cut dropped.
`v1-results.jsonl` holds blobs with long results that are kept whole, in the history and the open turn.
`v1-waiting.jsonl` holds blobs with waiting messages that have ids, and that a turn has claimed.
`v1-own.jsonl` holds blobs with waiting messages of turns that no provider has answered.
`v1-anew.jsonl` holds blobs whose messages with turn ids a conversion or a redaction has written anew.
`v1-actions.jsonl` holds blobs with the actions of tools.
`v1-hosts.jsonl` holds blobs that know the rules of two hosts.
`v1-parted.jsonl` holds the rows of a store: heads, with parts of each kind beside them, and a kept branch.
`v1-later.jsonl` holds blobs of a later release, which the tests' second writer made.
It never writes over a file that is there. Salts and conversation ids are random, so a second run would
write other bytes; the keys are public and made of their names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "seal")]

import _second  # noqa: E402
import zstandard  # noqa: E402

from goaitools_py import (  # noqa: E402
    PLAIN,
    UNBOUND,
    Chat,
    Compactor,
    Document,
    Image,
    KeepRecentTurns,
    MessageLimit,
    ModelSettings,
    ToolContext,
    ToolError,
    ToolReturn,
    TurnError,
    TurnLimit,
    event,
    system,
    tool,
    user,
)
from goaitools_py.backends.base import BackendError  # noqa: E402
from goaitools_py.backends.dialects import dialect_of  # noqa: E402
from goaitools_py.base.values import replace  # noqa: E402
from goaitools_py.history.message_places import owners_in  # noqa: E402
from goaitools_py.output import Output, OutputError  # noqa: E402
from goaitools_py.seal import Encrypted, Key, Keyring, Signed  # noqa: E402
from goaitools_py.state import blob  # noqa: E402
from goaitools_py.state.apart import StateHead  # noqa: E402
from goaitools_py.state.records import with_host  # noqa: E402
from goaitools_py.state.state import closed_entries, dump_state, load_state  # noqa: E402
from goaitools_py.state.whole_blobs import parts_of  # noqa: E402
from goaitools_py.states import (  # noqa: E402
    convert_state,
    read_history,
    redact_state,
    rewind_state,
    state_messages,
    undo_cut,
)
from goaitools_py.stores import MemoryStore  # noqa: E402
from goaitools_py.testing import Calls, Raw, ScriptedBackend  # noqa: E402
from goaitools_py.turn.request import host_mark  # noqa: E402

WIRES = ("openai", "openai-responses", "anthropic")
SECRETS = {name: hashlib.sha256(f"goaitools-py golden key {name}".encode()).digest() for name in "ABC"}
BOUND = {"tenant": "acme", "user": "Ada Lovelace é"}


# --------------------------------------------------------------------------------------------- good


@tool
def look(place: str) -> str:
    """What there is at a place."""
    if place == "nowhere":
        raise ToolError("There is no such place.")
    return f"A theatre and a tea room in {place}."


@tool(requires_approval=True)
def pay(pounds: int) -> str:
    """Pay for the tea."""
    return f"Paid {pounds}."


def _first(make: Callable[..., Chat], bound: Any) -> bytes:
    return make("Hello, Ada.").chat(user="My name is Ada.", binding=bound).state


def _three_turns(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make(
        "Hello, Ada.", 'It is 20:05.\n\t"Late".', "Ça va, 你好, 🦊, \u2028 and \\u0000.", system="Be brief."
    )
    state = chat.chat(
        user="My name is Ada.", binding=bound, turn_id="hook-1", metadata={"channel": "web"}
    ).state
    settings = ModelSettings(max_output_tokens=200)
    state = chat.chat_with_state(
        state, user="What time is it?", context="20:05", settings=settings, binding=bound
    )[1]
    return chat.chat_with_state(state, user="Ça va, 你好, 🦊?", turn_id="hook-3", binding=bound).state


def _tools(make: Callable[..., Chat], bound: Any) -> bytes:
    calls = Calls([("look", {"place": "Harrogate"}), ("look", {"place": "nowhere"})], "Let me see.")
    chat = make(calls, "A theatre.", Calls([("look", '{"place": 1e5}')]), "I do not know.", tools=[look])
    state = chat.chat(user="What is in Harrogate?", binding=bound).state
    return chat.chat_with_state(state, user="And there?", binding=bound).state


def _thinking(make: Callable[..., Chat], bound: Any) -> bytes:
    thought = Calls([], "Hello, Ada.", reasoning="She says her name.")
    asked = Calls([("look", {"place": "Leeds"})], reasoning="I should look.")
    chat = make(thought, asked, "A tea room.", tools=[look])
    state = chat.chat(user="My name is Ada.", binding=bound).state
    return chat.chat_with_state(state, user="What is in Leeds?", binding=bound).state


def _waiting(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make(
        Calls([("look", {"place": "Leeds"}), ("pay", {"pounds": 5})], "One moment."), tools=[look, pay]
    )
    return chat.chat(user="Pay for the tea.", binding=bound).state


def _broken_off(make: Callable[..., Chat], bound: Any) -> bytes:
    fault = BackendError("unavailable")
    chat = make("Hello.", Calls([("look", {"place": "Leeds"})]), fault, tools=[look])
    state = chat.chat(user="Hello.", binding=bound).state
    try:
        chat.chat_with_state(state, user="What is in Leeds?", binding=bound)
    except TurnError as error:
        return error.state
    raise AssertionError("the script's fault was not told")


def _inbox(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make("Hello.", "I see.")
    state = chat.append_to_state(None, event("Ada entered the theatre.", id="e1"), binding=bound)
    state = chat.chat_with_state(state, user="Hello.", binding=bound).state
    rain = (
        event("It rains.", topic="weather"),
        event("It pours.", topic="weather"),
        event("Ada: +50", id="e2"),
    )
    return chat.append_to_state(state, *rain, binding=bound)


def _compacted(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make(*[f"Answer {n}." for n in range(7)], compactor=Compactor(MessageLimit(8), KeepRecentTurns(2)))
    return chat.run_turns(None, [f"Question {n}?" for n in range(7)], binding=bound).state


def _picture(make: Callable[..., Chat], bound: Any) -> bytes:
    image = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(24))
    return make("A square.").chat(user=["What is this?", image], binding=bound).state


def _long(make: Callable[..., Chat], bound: Any) -> bytes:
    texts = [f"{n}: " + f"the {n}th bag, and the bag after it, " * 900 for n in range(6)]
    return make(*[f"Noted, {n}." for n in range(6)]).run_turns(None, texts, binding=bound).state


FEATURES: dict[str, Callable[[Callable[..., Chat], Any], bytes]] = {
    "first turn": _first,
    "three turns": _three_turns,
    "tools": _tools,
    "thinking": _thinking,
    "waiting for an approval": _waiting,
    "broken off": _broken_off,
    "inbox": _inbox,
    "compacted": _compacted,
    "picture": _picture,
    "long": _long,
}


def _two_cuts(make: Callable[..., Chat], bound: Any) -> bytes:
    thought = Calls([], "Hello, Ada.", reasoning="She says her name.")
    asked = Calls([("look", {"place": "Leeds"})], reasoning="I should look.")
    keep = Compactor(MessageLimit(6), KeepRecentTurns(1), retain=True)
    chat = make(thought, asked, "A tea room.", "Ça va, 🦊.", "Yes.", tools=[look], compactor=keep)
    texts = ["My name is Ada.", "What is in Leeds?", "Ça va?", "Still there?"]
    return chat.run_turns(None, texts, binding=bound, context="20:05").state


def _many_cuts(make: Callable[..., Chat], bound: Any) -> bytes:
    thoughts = [Calls([], f"Answer {n}.", reasoning=f"Thought {n}.") for n in range(9)]
    keep = Compactor(MessageLimit(6), KeepRecentTurns(2), retain=True)
    chat = make(*thoughts, compactor=keep)
    texts = [f"Question {n}?" for n in range(7)]
    state = chat.run_turns(None, texts, binding=bound, system="Be kind.").state
    return chat.run_turns(state, ["Question 7?", "Question 8?"], binding=bound, system="Be brief.").state


ARCHIVES: dict[str, Callable[[Callable[..., Chat], Any], bytes]] = {
    "two cuts": _two_cuts,
    "many cuts": _many_cuts,
}


def archives() -> Iterator[dict[str, Any]]:
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            for feature, write in ARCHIVES.items():

                def make(*steps: Any, **fields: Any) -> Chat:
                    return Chat(ScriptedBackend(*steps, wire=wire), codec=codec, **fields)  # noqa: B023

                state = write(make, bound)
                opening = {"codec": codec, "binding": bound}
                parts = blob.decode_whole(state, **opening)[1]
                whole = read_history(state, **opening, archived=True)
                yield {
                    "name": f"{name}, {wire}, {feature}",
                    "codec": name,
                    "wire": wire,
                    "feature": feature,
                    "key": key,
                    "binding": BOUND if bound is BOUND else None,
                    "blob": base64.b64encode(state).decode(),
                    "parts": [
                        [part.kind, part.entries, part.raw_len, _hash(part.raw(codec, bound))]
                        for part in parts
                    ],
                    "messages": _hash(canonical(state_messages(state, **opening))),
                    "texts": [message.text[:60] for message in whole.all_messages()],
                    "undone": _hash(canonical(state_messages(undo_cut(state, **opening), **opening))),
                    "rewound": [
                        _hash(canonical(state_messages(rewind_state(state, turns, **opening), **opening)))
                        for turns in range(1, len(whole.turns))
                    ],
                }


_SQUARE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 16
_NOISE = b"\xff\xd8" + b"".join(hashlib.sha256(b"golden %d" % n).digest() for n in range(128))


def _same_twice(make: Callable[..., Chat], bound: Any) -> bytes:
    square, url = Image.from_bytes(_SQUARE), "data:image/png;base64," + base64.b64encode(_SQUARE).decode()
    chat = make("A square.", "The same.", "Noise.")
    state = chat.chat(user=["What is this?", square], binding=bound).state
    state = chat.chat_with_state(state, user=["And this?", Image.from_url(url), square], binding=bound).state
    noise = Document.from_bytes(_NOISE, name="noise.pdf")
    state = chat.chat_with_state(state, user=["And this?", noise], binding=bound).state
    return chat.append_to_state(state, user("Wait.", square), binding=bound)


def _shown_by_a_tool(make: Callable[..., Chat], bound: Any) -> bytes:
    @tool
    def show() -> Any:
        """Show a picture."""
        return ToolReturn([Image.from_bytes(_SQUARE)])

    calls = Calls([("show", {})]), Calls([("show", {}), ("pay", {"pounds": 5})])
    chat = make(calls[0], "A square.", calls[1], tools=[show, pay])
    state = chat.chat(user="Show me.", binding=bound).state
    return chat.chat_with_state(state, user="Again, and pay.", binding=bound).state


def _cut_away(make: Callable[..., Chat], bound: Any) -> bytes:
    keep = Compactor(MessageLimit(4), KeepRecentTurns(1), retain=True)
    chat = make(*[f"Picture {n}." for n in range(5)], compactor=keep)
    state = None
    for number in range(5):
        shown = Image.from_bytes(_SQUARE + bytes([number % 2]))
        state = chat.chat_with_state(state, user=["Which one?", shown], binding=bound).state
    assert state is not None
    return state


MEDIA: dict[str, Callable[[Callable[..., Chat], Any], bytes]] = {
    "the same twice": _same_twice,
    "shown by a tool": _shown_by_a_tool,
    "cut away": _cut_away,
}


def media() -> Iterator[dict[str, Any]]:
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            for feature, write in MEDIA.items():

                def make(*steps: Any, **fields: Any) -> Chat:
                    return Chat(ScriptedBackend(*steps, wire=wire), codec=codec, **fields)  # noqa: B023

                blob_of = write(make, bound)
                opening = {"codec": codec, "binding": bound}
                segments, parts = blob.decode_whole(blob_of, **opening)
                state = load_state(blob_of, **opening)
                opened = state.open.entries if state.open is not None else ()
                whole = read_history(blob_of, **opening, archived=True)
                yield {
                    "name": f"{name}, {wire}, {feature}",
                    "codec": name,
                    "wire": wire,
                    "feature": feature,
                    "key": key,
                    "binding": BOUND if bound is BOUND else None,
                    "blob": base64.b64encode(blob_of).decode(),
                    "segments": [
                        [int(each.kind), each.entries, each.raw_len, _hash(each.raw())] for each in segments
                    ],
                    "parts": [
                        [part.kind, part.entries, part.raw_len, _hash(part.raw(codec, bound))]
                        for part in parts
                    ],
                    "media": [[row.digest, row.archived] for row in state.meta.media],
                    "entries": [_hash(entry) for entry in closed_entries(state)],
                    "open": [_hash(entry) for entry in opened],
                    "waiting": [_hash(item.entry) for item in state.inbox],
                    "messages": _hash(canonical(state_messages(blob_of, **opening))),
                    "shown": [
                        [message.text[:60], *[_hash(part.data) for part in message.parts if has_data(part)]]
                        for message in whole.all_messages()
                    ],
                }


def _timed_calls(make: Callable[..., Chat], bound: Any) -> bytes:
    @tool
    def rest(ms: int) -> str:
        """Rest a while."""
        time.sleep(ms / 1000)
        return "Rested."

    chat = make(Calls([("rest", {"ms": 3}), ("rest", {"ms": 0})]), "Fresh again.", tools=[rest])
    return chat.chat(user="Rest.", binding=bound).state


def _speakers(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make("Hello, both.", "Hm.")
    said = [user("Hi.", speaker="Ada"), user("<app-speaker>Ada</app-speaker> Hello.", speaker="B&b <é>")]
    state = chat.chat(messages=said, binding=bound).state
    state = chat.chat_with_state(state, user="And now?", speaker="Ada", context="Noon.", binding=bound).state
    return chat.append_to_state(state, user("Wait.", speaker="Tom"), binding=bound)


def _typed_answer(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make("one", '{"value":[1,2]}')
    return chat.chat(user="Numbers?", output_type=Output(list[int], retries=1), binding=bound).state


def _answers_that_do_not_fit(make: Callable[..., Chat], bound: Any) -> bytes:
    chat = make("one", "two")
    try:
        chat.chat(user="Numbers?", output_type=Output(list[int], retries=1), binding=bound)
    except OutputError as error:
        return error.state
    raise AssertionError("the answers fit")


FACTS: dict[str, Callable[[Callable[..., Chat], Any], bytes]] = {
    "timed calls": _timed_calls,
    "speakers": _speakers,
    "typed answer": _typed_answer,
    "answers that do not fit": _answers_that_do_not_fit,
}


def facts() -> Iterator[dict[str, Any]]:
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            for feature, write in FACTS.items():

                def make(*steps: Any, **fields: Any) -> Chat:
                    return Chat(ScriptedBackend(*steps, wire=wire), codec=codec, **fields)  # noqa: B023

                blob_of = write(make, bound)
                opening = {"codec": codec, "binding": bound}
                state = load_state(blob_of, **opening)
                yield {
                    "name": f"{name}, {wire}, {feature}",
                    "codec": name,
                    "wire": wire,
                    "feature": feature,
                    "key": key,
                    "binding": BOUND if bound is BOUND else None,
                    "blob": base64.b64encode(blob_of).decode(),
                    "segments": [
                        [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                        for each in blob.decode(blob_of, **opening)
                    ],
                    "output": state.meta.output,
                    "answers": list(state.open.facts["answers"]) if state.open is not None else [],
                    "calls": [
                        [call.name, call.seconds] for call in read_history(blob_of, **opening).tool_calls()
                    ],
                    "said": [
                        [message.speaker, message.said]
                        for message in read_history(blob_of, **opening).all_messages()
                    ],
                }


_REFUSED = {
    "openai": b'{"choices":[{"message":{"role":"assistant","content":"No."},'
    b'"finish_reason":"content_filter"}]}',
    "openai-responses": b'{"object":"response","status":"incomplete","output":[],'
    b'"incomplete_details":{"reason":"content_filter"}}',
    "anthropic": b'{"type":"message","role":"assistant","content":[{"type":"text","text":"No."}],'
    b'"stop_reason":"refusal"}',
}


def unsent() -> Iterator[dict[str, Any]]:
    """A refused turn between two others, with what the next request has of them."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            backend = ScriptedBackend("Hello.", Raw.body(_REFUSED[wire]), "Here.", wire=wire)
            chat, state = Chat(backend, codec=codec), b""
            for said in ("Hi.", "Tell me that.", "Then not."):
                state = chat.chat_with_state(state, user=said, binding=bound).state
            opening = {"codec": codec, "binding": bound}
            yield {
                "name": f"{name}, {wire}, unsent",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(state).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(state, **opening)
                ],
                "sent": [turn.is_sent for turn in read_history(state, **opening).turns],
                "history": _hash(b"".join(bytes(one) for one in load_state(state, **opening).history())),
            }


def waiting() -> Iterator[dict[str, Any]]:
    """A turn that was cut off after it has claimed two messages; a third one came after that."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            store, rows = MemoryStore(), list[bytes]()

            def first(_: Any) -> Any:
                conversation.append(user("Wait.", speaker="Tom"), event("It rains.", id="e-1"))  # noqa: B023
                return Calls([("look", {"place": "Leeds"})])

            def second(_: Any) -> str:
                conversation.append(user("Or not."))  # noqa: B023
                found = store.load("k")  # noqa: B023
                assert found is not None
                rows.append(found.blob)  # noqa: B023
                return "A tea room."

            backend = ScriptedBackend(first, second, "Yes.", wire=wire)
            with Chat(backend, codec=codec, tools=[look]) as chat:
                conversation = chat.conversation(store, "k", gate="steer", save="checkpoint", binding=bound)
                conversation.send("What is in Leeds?", turn_id="m-1")
            opening = {"codec": codec, "binding": bound}
            yield {
                "name": f"{name}, {wire}, waiting",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(rows[0]).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(rows[0], **opening)
                ],
                "waiting": [
                    [item.speaker, item.id, item.is_taken] for item in load_state(rows[0], **opening).inbox
                ],
            }


def _unanswered(wire: str, codec: Any, bound: Any) -> bytes:
    """The messages of two turns that no provider has answered, one of them pinned, and an event between."""
    store, down = MemoryStore(), BackendError("down", status=503)
    with Chat(ScriptedBackend(down, down, wire=wire, max_retries=0), codec=codec) as chat:
        conversation = chat.conversation(store, "k", binding=bound)
        for number, pinned in ((1, False), (2, True)):
            said = user(f"Which way to room {number}?", speaker="Tom", pinned=pinned)
            with suppress(TurnError):
                conversation.send(messages=[said], turn_id=f"m-{number}", context="It rains.")
            if number == 1:
                conversation.append(event("The door closed.", topic="door"))
    return _row(store)


def _late(wire: str, codec: Any, bound: Any) -> bytes:
    """A turn, and a message that came at its end, claimed before it was sent."""
    return _steered(wire, codec, bound)[0]


def _same_call(wire: str, codec: Any, bound: Any) -> bytes:
    """The same conversation with the turn of that message: one call has both turns."""
    return _steered(wire, codec, bound)[1]


def _same_call_waits(wire: str, codec: Any, bound: Any) -> bytes:
    """The same with a turn of that message which is not over: its call waits for an approval."""
    return _steered(wire, codec, bound, waits=True)[1]


def _steered(wire: str, codec: Any, bound: Any, *, waits: bool = False) -> list[bytes]:
    store, rows = MemoryStore(), list[bytes]()

    @tool(requires_approval=True)
    def look() -> str:
        """Look again."""
        return "open"

    def first(_: Any) -> str:
        conversation.append(user("And the window?", speaker="Tom"))
        return "It is locked."

    def second(_: Any) -> Any:
        rows.append(_row(store))
        return Calls([("look", {})]) if waits else "It is open."

    with Chat(ScriptedBackend(first, second, wire=wire), tools=[look], codec=codec) as chat:
        conversation = chat.conversation(store, "k", gate="steer", binding=bound)
        conversation.send("How is the door?", turn_id="m-1")
    return [rows[0], _row(store)]


def _row(store: MemoryStore) -> bytes:
    found = store.load("k")
    assert found is not None
    return found.blob


def own() -> Iterator[dict[str, Any]]:
    """Waiting messages that know their turn, and turns of messages that came at the end of another one."""
    makers = (_unanswered, _late, _same_call, _same_call_waits)
    cells = [(*cell, wire, make) for cell in _codecs() for wire in WIRES for make in makers]
    for name, codec, key, bound, wire, make in cells:
        row, opening = make(wire, codec, bound), {"codec": codec, "binding": bound}
        yield {
            "name": f"{name}, {wire}, own, {make.__name__[1:]}",
            "codec": name,
            "feature": make.__name__[1:],
            "wire": wire,
            "key": key,
            "binding": BOUND if bound is BOUND else None,
            "blob": base64.b64encode(row).decode(),
            "segments": [
                [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                for each in blob.decode(row, **opening)
            ],
            "waiting": [
                [item.turn, item.speaker, item.pinned, item.topic]
                for item in load_state(row, **opening).inbox
            ],
        }


@tool
def take(ctx: ToolContext, item: str) -> str:
    """Take an item."""
    ctx.log_action(f"took the {item}", item=item, times=[1, 2.5, None])
    ctx.log_action("x" * (20_000 if item == "rope" else 3))
    return "You have it."


def anew() -> Iterator[dict[str, Any]]:
    """A turn of three messages, two of them with a turn id, behind a conversion and behind a redaction."""
    down = BackendError("down", status=503)
    cells = [(*cell, wire, how) for cell in _codecs() for wire in WIRES for how in ("converted", "redacted")]
    for name, codec, key, bound, wire, how in cells:
        opening: dict[str, Any] = {"codec": codec, "binding": bound}
        before = WIRES[WIRES.index(wire) - 1] if how == "converted" else wire
        store, backend = MemoryStore(), ScriptedBackend(down, "Straight on.", wire=before, max_retries=0)
        with Chat(backend, codec=codec) as chat:
            conversation = chat.conversation(store, "k", binding=bound)
            with suppress(TurnError):
                conversation.send("Which way to room 4711?", turn_id="m-1")
            conversation.append(user("And to 4712?"))
            conversation.send("I am lost.", turn_id="m-2")
        row = _row(store)
        row = (
            convert_state(row, wire, **opening).state
            if how == "converted"
            else redact_state(row, "47", **opening).state
        )
        state = load_state(row, **opening)
        yield {
            "name": f"{name}, {wire}, anew, {how}",
            "codec": name,
            "feature": how,
            "wire": wire,
            "key": key,
            "binding": BOUND if bound is BOUND else None,
            "blob": base64.b64encode(row).decode(),
            "segments": [
                [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                for each in blob.decode(row, **opening)
            ],
            "said": [one.said for one in state.meta.ring],
            "owners": owners_in(state, 1, dialect_of(wire)),
        }


def actions() -> Iterator[dict[str, Any]]:
    """A turn with the actions of two calls, more than are kept, and an unfinished one."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            first = Calls([("take", {"item": "lamp"}), ("take", {"item": "rope"})])
            then = Calls([("take", {"item": "key"}), ("pay", {"pounds": 3})])
            backend = ScriptedBackend(first, "Done.", then, wire=wire)
            chat, state = Chat(backend, codec=codec, tools=[take, pay], record_actions=True), b""
            for said in ("Take both.", "Take the key, and pay."):
                state = chat.chat_with_state(state, user=said, binding=bound).state
            opening = {"codec": codec, "binding": bound}
            yield {
                "name": f"{name}, {wire}, actions",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(state).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(state, **opening)
                ],
                "actions": [
                    [[one.text, dict(one.data)] for one in turn.actions]
                    for turn in read_history(state, **opening).turns
                ],
            }


@tool
def almanac(page: int) -> str:
    """A page of the almanac."""
    rows = (
        f"Page {page}, row {row}: the tide turns at 06:{row % 60:02}, Ebbe \u4e2d.\n" for row in range(60)
    )
    return "".join(rows)


def results() -> Iterator[dict[str, Any]]:
    """A turn with two long results, and a turn with another one that waits for an approval."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            first = Calls([("almanac", {"page": 1}), ("almanac", {"page": 2})])
            second = Calls([("almanac", {"page": 3}), ("pay", {"pounds": 3})])
            chat = Chat(
                ScriptedBackend(first, "I have read them.", second, wire=wire),
                codec=codec,
                tools=[almanac, pay],
                keep_results="store",
                max_tool_result_bytes=600,
            )
            state = b""
            for said in ("Read two pages.", "Read the third, and pay."):
                state = chat.chat_with_state(state, user=said, binding=bound).state
            opening = {"codec": codec, "binding": bound}
            yield {
                "name": f"{name}, {wire}, results",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(state).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(state, **opening)
                ],
                "parts": [
                    [part.kind, part.entries, part.raw_len, _hash(part.raw(**opening))]
                    for part in parts_of(state, **opening)
                ],
                "results": [
                    None if call.whole is None else _hash(call.whole.encode())
                    for call in read_history(state, **opening).tool_calls()
                ],
            }


@tool(external=True)
def _rest() -> str:
    """Rest a while."""
    raise NotImplementedError


def pins() -> Iterator[dict[str, Any]]:
    """Pinned messages: left of a dropped turn, in a whole turn, in an unfinished one, and waiting."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            backend = ScriptedBackend("One.", "Two.", Calls([("_rest", {})]), wire=wire)
            chat = Chat(backend, codec=codec, tools=[_rest])
            cut = Compactor(TurnLimit(1), KeepRecentTurns(1))
            said = [user("Hi."), user("I am Ada.", pinned=True, speaker="Ada"), system("It is noon.")]
            state = chat.chat(messages=said, binding=bound).state
            said = [event("The lamp is lit.", pinned=True), user("Go."), system("It rains.", pinned=False)]
            state = chat.chat_with_state(state, messages=said, compactor=cut, binding=bound).state
            said = [user("Rest."), user("And wake me.", pinned=True)]
            state = chat.chat_with_state(state, messages=said, binding=bound).state
            state = chat.append_to_state(state, event("It is dark.", pinned=True), binding=bound)
            opening = {"codec": codec, "binding": bound}
            yield {
                "name": f"{name}, {wire}, pins",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(state).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(state, **opening)
                ],
                "said": [
                    [turn.number, message.said, message.speaker, message.pinned]
                    for turn in read_history(state, **opening).turns
                    for message in turn.messages
                ],
            }


def hosts() -> Iterator[dict[str, Any]]:
    """A conversation that knows the rules of two hosts."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            backend = ScriptedBackend("Hello, Ada.", wire=wire)
            state = Chat(backend, codec=codec).chat(user="My name is Ada.", binding=bound).state
            opening = {"codec": codec, "binding": bound}
            opened = load_state(state, **opening)
            rows = with_host(with_host((), host_mark(backend.dialect), "i"), "0123abcd", "ac")
            known = replace(opened, meta=replace(opened.meta, hosts=rows))
            state = dump_state(known, **opening)
            yield {
                "name": f"{name}, {wire}, hosts",
                "codec": name,
                "wire": wire,
                "key": key,
                "binding": BOUND if bound is BOUND else None,
                "blob": base64.b64encode(state).decode(),
                "segments": [
                    [int(each.kind), each.entries, each.raw_len, _hash(each.raw())]
                    for each in blob.decode(state, **opening)
                ],
                "hosts": [[row.host, row.rules] for row in load_state(state, **opening).meta.hosts],
            }


def parted() -> Iterator[dict[str, Any]]:
    """The rows of a store with each kind of part: a conversation after an edit, and the branch before it."""
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            store = MemoryStore()
            picture = Image.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
            answers = [f"Answer {n}: " + f"the {n}th bag, and the bag after it, " * 30 for n in range(12)]
            steps = [Calls([("almanac", {"page": 1})]), *answers]
            with Chat(
                ScriptedBackend(*steps, wire=wire),
                codec=codec,
                tools=[almanac],
                keep_results="store",
                max_tool_result_bytes=600,
                compactor=Compactor(MessageLimit(18), KeepRecentTurns(7), retain=True),
            ) as chat:
                conversation = chat.conversation(
                    store, "k", parts="store", binding=bound, keep_branches=True, save="checkpoint"
                )
                for n in range(11):
                    conversation.send(
                        [f"Question {n}?", picture] if n == 9 else f"Question {n}?", turn_id=f"m-{n}"
                    )
                conversation.send("Or question 10?", edit="m-10", turn_id="m-11")
            for row in (one.key for one in store.list().keys):
                found = store.load_head(row)
                assert found is not None
                opening = {"codec": codec, "binding": bound}
                beside = {part.name: part.data for part in found.parts}
                state = StateHead.loaded(found.blob, beside, codec, bound).whole
                yield {
                    "name": f"{name}, {wire}, {'branch' if 'branch' in row else 'edited'}",
                    "codec": name,
                    "wire": wire,
                    "key": key,
                    "binding": BOUND if bound is BOUND else None,
                    "blob": base64.b64encode(found.blob).decode(),
                    "beside": [
                        [part.kind, base64.b64encode(part.data).decode()]
                        for part in sorted(found.parts, key=lambda one: (one.kind, one.name))
                    ],
                    "messages": _hash(canonical(state_messages(state, **opening))),
                    "texts": [
                        message.text[:20]
                        for message in read_history(state, **opening, archived=True).all_messages()
                    ],
                    "results": [
                        None if call.whole is None else _hash(call.whole.encode())
                        for call in read_history(state, **opening, archived=True).tool_calls()
                    ],
                }


def later() -> Iterator[dict[str, Any]]:
    """The good vectors as a later release would write them, with an unknown name in each place."""
    from tests.seal import _later
    from tests.seal._golden import GOOD

    suites = {"plain": 0x00, "signed": 0x11, "encrypted": 0x21}
    for vector in GOOD:
        if vector.codec in suites and vector.facts["feature"] != "long":
            found = _later.written_by_later(_second.opened(vector.blob, vector.secrets, vector.bound))
            secret = vector.secrets[0] if vector.secrets else b""
            given = _later.resealed(found, suites[vector.codec], secret, vector.bound)
            yield {
                "name": vector.name,
                "codec": vector.codec,
                "wire": vector.facts["wire"],
                "key": vector.key,
                "binding": vector.bound,
                "blob": base64.b64encode(given).decode(),
                "segments": [[each.kind, each.entries, len(each.raw), _hash(each.raw)] for each in found],
                "messages": vector.facts["messages"],
            }


def has_data(part: Any) -> bool:
    """Whether a part of a message is a medium with its bytes."""
    return getattr(part, "data", None) is not None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _codecs() -> Iterator[tuple[str, Any, str, Any]]:
    """Name, codec, key's name, binding. A ring of one key: which keys a reader has is the test's choice."""
    yield "plain", PLAIN, "", None
    yield "signed", Signed(Keyring(Key(SECRETS["A"]))), "A", BOUND
    yield "encrypted", Encrypted(Keyring(Key(SECRETS["A"]))), "A", BOUND
    yield "encrypted-client", Encrypted(Keyring(Key(SECRETS["B"])), visible_to="client"), "B", UNBOUND


def good() -> Iterator[dict[str, Any]]:
    for name, codec, key, bound in _codecs():
        for wire in WIRES:
            for feature, write in FEATURES.items():
                if feature == "long" and (wire != "openai" or name == "encrypted-client"):
                    continue

                def make(*steps: Any, **fields: Any) -> Chat:
                    return Chat(ScriptedBackend(*steps, wire=wire), codec=codec, **fields)  # noqa: B023

                state = write(make, bound)
                opening = {"codec": codec, "binding": bound}
                yield {
                    "name": f"{name}, {wire}, {feature}",
                    "codec": name,
                    "wire": wire,
                    "feature": feature,
                    "key": key,
                    "binding": BOUND if bound is BOUND else None,
                    "blob": base64.b64encode(state).decode(),
                    "segments": [
                        [int(each.kind), each.entries, each.raw_len, hashlib.sha256(each.raw()).hexdigest()]
                        for each in blob.decode(state, **opening)
                    ],
                    "messages": hashlib.sha256(canonical(state_messages(state, **opening))).hexdigest(),
                    "texts": [message.text[:60] for message in read_history(state, **opening).all_messages()],
                }


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, for a hash."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


# ---------------------------------------------------------------------------------------------- bad

META = b'{"wire":"openai","id":"golden","rev":3,"created":1767225600000}'
HOT = b'{"role":"user","content":"Hello."},\n{"role":"assistant","content":"Hello."}\n[[0,2,[["ua"]]]]'


def _segment(kind: int, raw: bytes, entries: int, stored: bytes | None = None) -> bytes:
    stored = raw if stored is None else stored
    numbers = (kind, len(stored), len(raw), entries)
    return b"".join(map(_second.leb128, numbers)) + stored


_BODY = _segment(0, META, 0) + _segment(2, HOT, 2)
_TOTAL = len(META) + len(HOT)
_FRAME = zstandard.ZstdCompressor(write_dict_id=False).compress(b"a" * 5000)
_NO_SIZE = zstandard.ZstdCompressor(write_content_size=False).compress(b"a" * 5000)
_CHECKSUM = zstandard.ZstdCompressor(write_checksum=True).compress(b"a" * 5000)


def _rle(stated: int, blocks: int) -> bytes:
    """A frame that states a size and holds `blocks` times 128 KiB of one letter in four bytes each."""
    body = b"".join(
        struct.pack("<I", (2**17 << 3) | (1 << 1) | (number == blocks - 1))[:3] + b"a"
        for number in range(blocks)
    )
    return b"\x28\xb5\x2f\xfd\x80\x68" + struct.pack("<I", stated) + body


def _with_frame(frame: bytes, raw_len: int = 5000) -> bytes:
    head = b"".join(map(_second.leb128, (2, len(frame), raw_len, 0)))
    return _segment(0, META, 0) + head + frame


BODIES: dict[str, tuple[bytes, str]] = {
    "no segment": (b"", "StateCorruptError"),
    "no meta": (_segment(2, HOT, 2), "StateCorruptError"),
    "two metas": (_segment(0, META, 0) * 2, "StateCorruptError"),
    "a meta with entries": (_segment(0, META, 1), "StateCorruptError"),
    "an unknown kind": (_BODY + _segment(5, HOT, 2), "StateCorruptError"),
    "two hot segments": (_BODY + _segment(2, HOT, 2), "StateCorruptError"),
    "hot before sealed": (_BODY + _segment(1, HOT, 2), "StateCorruptError"),
    "an empty segment": (_BODY + _segment(3, b"", 0), "StateCorruptError"),
    "more stored than raw": (_BODY + _segment(3, b"a", 1, b"aa"), "StateCorruptError"),
    "a head cut off": (_BODY + b"\x03\x05", "StateCorruptError"),
    "a segment cut off": (_BODY[:-1], "StateCorruptError"),
    "a byte behind": (_BODY + b"\0", "StateCorruptError"),
    "a number too long": (b"\x80\x00" + _BODY[1:], "StateCorruptError"),
    "a number beyond 32 bits": (b"\x00\xff\xff\xff\xff\x7f", "StateCorruptError"),
    "too many entries": (_segment(0, META, 0) + _segment(2, HOT, 20_001), "StateTooLargeError"),
    "not a frame": (_with_frame(b"\x1f\x8b" + _FRAME), "StateCorruptError"),
    "a frame without a size": (_with_frame(_NO_SIZE), "StateCorruptError"),
    "a frame with a checksum": (_with_frame(_CHECKSUM), "StateCorruptError"),
    "two frames": (_with_frame(_FRAME + _FRAME), "StateCorruptError"),
    "a frame cut off": (_with_frame(_FRAME[:-1]), "StateCorruptError"),
    "a frame that lies about its size": (_with_frame(_FRAME, 5001), "StateCorruptError"),
    "a frame of 13 bytes that declares 7 EB": (
        _with_frame(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 7 * 10**18)),
        "StateCorruptError",
    ),
    "8 KB that are 256 MB": (_with_frame(_rle(2**28, 2**11), 100_000), "StateCorruptError"),
    "8 KB that are 256 MB and say so": (_with_frame(_rle(2**28, 2**11), 2**28), "StateTooLargeError"),
    "more in the frame than it states": (_with_frame(_rle(100_000, 2000), 100_000), "StateCorruptError"),
}


def _stated(body: bytes) -> int:
    """What the segments' heads say together; the true total where they cannot be read."""
    total = at = 0
    try:
        while at < len(body):
            numbers = []
            for _ in range(4):
                shift = number = 0
                while True:
                    number |= (body[at] & 127) << shift
                    at, shift = at + 1, shift + 7
                    if body[at - 1] < 128:
                        break
                numbers.append(number)
            total, at = total + numbers[2], at + numbers[1]
    except IndexError:
        return _TOTAL
    return total


def _with_tag(sound: bytes, at: int) -> bytes:
    return sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :]


def bad() -> Iterator[dict[str, Any]]:
    suites = {"plain": 0x00, "signed": 0x11, "encrypted": 0x21}
    for name, suite in suites.items():
        secret, bound = (SECRETS["A"], BOUND) if suite else (b"", None)

        def case(what: str, given: bytes, error: str, name: str = name) -> dict[str, Any]:
            return {
                "name": f"{name}, {what}",
                "codec": name,
                "key": "A" if suites[name] else "",
                "binding": BOUND if suites[name] else None,
                "blob": base64.b64encode(given).decode(),
                "error": error,
            }

        def forged(
            body: bytes = _BODY,
            *,
            compression: int = 0,
            total: int | None = None,
            secret: bytes = secret,
            bound: Any = bound,
            suite: int = suite,
            at: tuple[int, int] | None = None,
            **more: Any,
        ) -> bytes:
            header = _second.header_of(suite, compression, _stated(body) if total is None else total, secret)
            if at is not None:
                header = header[: at[0]] + bytes([at[1]]) + header[at[0] + 1 :]
            return _second.sealed(header, body, secret, bound, **more)

        sound = forged()
        refusal = "StateAuthError" if suite else "StateCorruptError"
        for what, (body, error) in BODIES.items():
            yield case(what, forged(body, compression=1), error)
        yield case("compressed, but says it is not", forged(_with_frame(_FRAME)), "StateCorruptError")
        yield case("empty", b"", "StateFormatError")
        yield case("another magic", b"\x46" + sound[1:], "StateFormatError")
        yield case("cut within the header", sound[:15], "StateCorruptError")
        yield case("only the header", sound[:16], refusal)
        yield case("cut within the seal", sound[:31], refusal)
        yield case("version 0", forged(at=(4, 0)), "StateCorruptError")
        yield case("version 2", forged(at=(4, 2)), "StateVersionError")
        yield case("suite 12", sound[:5] + b"\x12" + sound[6:], "StateVersionError")
        yield case("compression 3", sound[:6] + b"\x03" + sound[7:], "StateVersionError")
        yield case("compression 80", sound[:6] + b"\x80" + sound[7:], "StateVersionError")
        yield case("reserved byte 1", forged(at=(7, 1)), "StateVersionError")
        for other, number in suites.items():
            if other == name:
                continue
            yield case(f"says it is {other}", sound[:5] + bytes([number]) + sound[6:], "StateAuthError")
            key = SECRETS["A"] if number else b""
            binding = BOUND if number else None
            yield case(f"is {other}", forged(suite=number, secret=key, bound=binding), "StateAuthError")
        if suite == 0x21:
            yield case("a length in the header", forged(at=(11, 5)), "StateCorruptError")
        else:
            yield case("one byte less in the header", forged(total=_TOTAL - 1), "StateCorruptError")
            yield case("one byte more in the header", forged(total=_TOTAL + 1), "StateCorruptError")
            yield case("4 GiB in the header", forged(total=2**32 - 1), "StateTooLargeError")
        for position in (16, 31, 32, len(sound) - 1):
            yield case(f"byte {position} flipped", _with_tag(sound, position), refusal)
        yield case("its last byte missing", sound[:-1], refusal)
        yield case("one byte more", sound + b"\0", refusal)
        yield case("a zero seal", sound[:16] + bytes(32) + sound[48:], refusal)
        if not suite:
            yield case("a key id", forged(at=(15, 1)), "StateCorruptError")
            continue
        id_b = int.from_bytes(_second.key_id(SECRETS["B"]), "big").to_bytes(4, "big")
        yield case("the key id of another key", sound[:12] + id_b + sound[16:], refusal)
        yield case("key id 0", sound[:12] + bytes(4) + sound[16:], refusal)
        yield case("another key", forged(secret=SECRETS["B"]), refusal)
        renamed = _second.header_of(suite, 0, _TOTAL, SECRETS["A"])
        yield case(
            "another key under the right id", _second.sealed(renamed, _BODY, SECRETS["B"], BOUND), refusal
        )
        for what, other_binding in {
            "another user": BOUND | {"user": "Eve"},
            "another tenant": BOUND | {"tenant": "umbrella"},
            "a name less": {"user": BOUND["user"]},
            "a name more": BOUND | {"room": "1"},
            "names and values exchanged": {value: name for name, value in BOUND.items()},
            "the same letters cut otherwise": {"tenan": "tacme", "user": BOUND["user"]},
            "letters in another normal form": BOUND | {"user": "Ada Lovelace e\u0301"},
            "nobody": None,
        }.items():
            yield case(f"bound to {what}", forged(bound=other_binding), refusal)
        without = _second.header_of(suite, 2, _TOTAL, SECRETS["A"])
        whole, _second._whole = _second._whole, lambda header: header
        yield case(
            "the dictionary left out of the seal", _second.sealed(without, _BODY, secret, bound), refusal
        )
        _second._whole = whole
        if suite == 0x11:
            yield case("the seal cut to 16 bytes", sound[:32] + sound[48:], refusal)
            continue
        yield case("salt flipped", _with_tag(sound, 20), refusal)
        yield case("commitment flipped", _with_tag(sound, 50), refusal)
        yield case("first hidden byte flipped", _with_tag(sound, 80), refusal)
        yield case("tag of 12 bytes", sound[:-4], refusal)
        yield case("no tag", sound[:80], refusal)
        another = forged()
        yield case("the salt of another blob", sound[:16] + another[16:48] + sound[48:], refusal)
        yield case("salt and commitment of another blob", sound[:16] + another[16:80] + sound[80:], refusal)
        length = len(_BODY).to_bytes(4, "big")
        for what, inner in {
            "nothing hidden": b"",
            "a length cut off": length[:3],
            "a length beyond the end": (len(_BODY) + 1).to_bytes(4, "big") + _BODY,
            "a length of 4 GiB": b"\xff\xff\xff\xff" + _BODY,
            "256 zeros": length + _BODY + bytes(256),
            "padding that is not zero": length + _BODY + bytes(9) + b"\1",
        }.items():
            yield case(what, forged(inner=inner), "StateCorruptError")


def main() -> None:
    """Write the files that are not there."""
    provenance = HERE / "PROVENANCE.md"
    files = {
        "v1-good.jsonl": good,
        "v1-bad.jsonl": bad,
        "v1-archive.jsonl": archives,
        "v1-media.jsonl": media,
        "v1-facts.jsonl": facts,
        "v1-unsent.jsonl": unsent,
        "v1-waiting.jsonl": waiting,
        "v1-own.jsonl": own,
        "v1-anew.jsonl": anew,
        "v1-pins.jsonl": pins,
        "v1-actions.jsonl": actions,
        "v1-results.jsonl": results,
        "v1-hosts.jsonl": hosts,
        "v1-parted.jsonl": parted,
        "v1-later.jsonl": later,
    }
    for name, records in files.items():
        path = HERE / name
        if path.exists():
            print(f"{path} is there; frozen vectors are not written again")
            continue
        lines = [json.dumps(record, ensure_ascii=True) for record in records()]
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        row = f"| `{name}` | {len(lines)} | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |"
        text = provenance.read_text(encoding="utf-8")
        provenance.write_text(re.sub(rf"^\| `{name}` .*$", row, text, flags=re.M), encoding="utf-8")
        print(row)


if __name__ == "__main__":
    main()
