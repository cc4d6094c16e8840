"""Random conversations in which a secret stands in many places, and a search for it in all bytes of a state.

Owns: where the secret is planted, and what counts as a trace of it. Must never know: how a redaction works.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, event, tool, user
from goaitools_py.base.values import replace
from goaitools_py.seal import BlobLimits, Codec, Plain
from goaitools_py.state import blob as blobs
from goaitools_py.state.records import RingRow, digest8
from goaitools_py.state.state import ConversationState, dump_state, load_state
from goaitools_py.states import update_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.messages import Text
from tests.compaction import _histories
from tests.compaction._histories import Book, Said, random_turn

SECRETS = (
    "hunter2-ZQ9",
    'Zoë "Quill" O\'Brien',
    "C:\\keys\\zq9",
    "Zürich\nQuai 9/7",
    "🦊 ZQ9 & <Söhne>",
)
LIMITS = BlobLimits(max_blob_bytes=2**24, max_decoded_bytes=2**26)


@tool(requires_approval=True)
def pay(to: str, memo: str) -> str:
    """Pay."""
    return f"paid {to}: {memo}"


def forms(secret: str) -> list[bytes]:
    """The secret as plain UTF-8, and as JSON escapes it once and twice, with ASCII only or not."""
    found = {secret}
    for _ in range(2):
        found |= {json.dumps(one, ensure_ascii=ascii)[1:-1] for one in found for ascii in (True, False)}
    found |= {one.replace("/", "\\/") for one in found}
    return [one.encode() for one in found]


def pieces(blob: bytes, codec: Codec, owner: Any) -> Iterator[bytes]:
    """All segments and parts of a state, inflated and decrypted."""
    segments, parts = blobs.decode_whole(blob, codec=codec, binding=owner, limits=LIMITS)
    for segment in segments:
        yield segment.raw()
    for part in parts:
        yield part.raw(codec, owner)


def traces(blob: bytes, secret: str, codec: Codec | None = None, owner: Any = None) -> int:
    """In how many segments and parts a form of the secret stands."""
    wanted = forms(secret)
    return sum(any(form in raw for form in wanted) for raw in pieces(blob, codec or Plain(), owner))


def has(entry: bytes, secret: str) -> bool:
    """Whether a form of the secret stands in an entry."""
    return any(form in entry for form in forms(secret))


def planted_turn(r: random.Random, wire: str, secret: str) -> list[Any]:
    """A random turn with the secret among its words, in arguments, and in results that are JSON."""
    words = (*_histories.WORDS, secret, f"({secret})")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_histories, "WORDS", words)
        steps = random_turn(r, wire)
    nested: Any = {"note": secret, "list": [f"x{secret}y", 7], secret: 1e5}
    text = json.dumps(nested, ensure_ascii=r.random() < 0.5)
    if r.random() < 0.5:
        text = json.dumps({"inner": text}, ensure_ascii=r.random() < 0.5)
    if r.random() < 0.3:
        text = f"The answer is {text}, as asked."
    call = ("look", {"at": text, secret: [secret, {"n": None}]})
    exchange = Said("", (call,), f"I think of {secret}." if wire != "openai" else "", ((Text(text),),))
    at = next((at for at, step in enumerate(steps) if isinstance(step, Said)), len(steps))
    return [*steps[:at], exchange, *steps[at:]] if r.random() < 0.6 else steps


def facts_with(r: random.Random, secret: str) -> dict[str, Any]:
    """Turn facts with the secret."""
    every: dict[str, Any] = {
        "metadata": {"name": secret, secret: "x"},
        "interrupted": f"I was about to say {secret}",
        "citations": [{"reply": 0, "kind": "url_citation", "url": f"https://x/{secret}", "title": secret}],
        "failed": ["RateLimitError", secret[:60]],
    }
    return {name: value for name, value in every.items() if r.random() < 0.3}


def conversation(r: random.Random, wire: str, secret: str, turns: int) -> ConversationState:
    """A conversation whose turns hold the secret here and there, with cuts, an archive, and an open turn."""
    book = Book(wire)
    cutter = Compactor(TurnLimit(1), KeepRecentTurns(r.choice([1, 2, 5])), retain=True)
    cuts = {r.randrange(turns + 1) for _ in range(r.choice([0, 1, 3]))}
    for number in range(turns):
        if r.random() < 0.3:
            book.add(*planted_turn(r, wire, secret), **facts_with(r, secret))
        else:
            book.add(*random_turn(r, wire))
        if number in cuts:
            with Chat(ScriptedBackend(wire=wire)) as chat:
                book.state = load_state(chat.compact_state(dump_state(book.state), cutter).state)
    blob = dump_state(book.state)
    is_open = r.random() < 0.5
    script = [Calls([("pay", {"to": secret, "memo": json.dumps({"for": secret})})])] if is_open else ["Done."]
    with Chat(ScriptedBackend(*script, wire=wire), tools=[pay]) as chat:
        said = user(f"Pay {secret} now.") if r.random() < 0.5 else user("Pay.")
        blob = chat.chat_with_state(blob, messages=[said], turn_id="t-1", context="It rains.").state
        if r.random() < 0.5:
            blob = chat.append_to_state(blob, event(f"{secret} came in", topic=secret, id=f"id {secret}"))
            blob = chat.append_to_state(blob, user(f"I am {secret}", speaker=secret))
    if r.random() < 0.5:
        blob = update_state(blob, title=f"About {secret}", metadata={secret: secret})
    state = load_state(blob)
    ring = (*state.meta.ring, RingRow(digest8("t-0"), digest8("m"), "complete", f"Hello {secret}."))
    more: dict[str, Any] = {"ring": ring, "info": {"who": secret}, "sticky": {"stop": [secret]}}
    chosen = {name: value for name, value in more.items() if r.random() < 0.4}
    return replace(state, meta=msgspec.structs.replace(state.meta, **chosen))
