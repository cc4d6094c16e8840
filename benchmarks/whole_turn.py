"""What the library costs in a whole turn, against the plain `openai` client with a JSON blob.

Owns: the two turns and the two floors that are compared. Must never know: how time is taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
from _conversations import compact, corpus
from _model import ANSWER_TEXT, MODEL, instant_client
from _report import Figure, Report, at_least, at_most, info
from _timing import Blocks, interleaved

from goaitools_py import Chat, state_from_messages
from goaitools_py.backends.base import RequestParts
from goaitools_py.backends.openai_backends import OpenAIChatBackend
from goaitools_py.records import Iteration, TurnRecord
from goaitools_py.state import dump_state, load_state, with_turn

__all__ = ["run"]

SIZES = (2, 10, 50, 200, 1000)
QUESTION = "And is my second bag still on the reservation?"
_TIMES_LESS = {200: 60.0, 1000: 120.0}
_KEY = "sk-none"


def run(*, short: bool = False) -> Report:
    """Measure every size. `short` leaves out 1000 messages and most rounds."""
    sizes = SIZES[:-1] if short else SIZES
    blocks = {size: interleaved(_sides(size), short=short) for size in sizes}
    figures: list[Figure] = []
    for size, found in blocks.items():
        figures += _of_one_size(size, found)
    if not short:
        slope = (blocks[1000]["ours"].minimum - blocks[200]["ours"].minimum) / 800
        figures.append(at_most(0.5, "slope from 200 to 1000 messages", slope, "µs/msg"))
    return Report(
        title="Whole turn: load, splice, SDK, read the reply, save",
        method=f"CPU time of one thread, model in process (MockTransport); {corpus().source}; "
        f"blocks interleaved; ratios and sums of the minima, medians beside them",
        figures=figures,
    )


def _of_one_size(size: int, found: dict[str, Blocks]) -> list[Figure]:
    ours, plain = found["ours"], found["plain"]
    codec, bare = found["codec"], found["bare"]
    less = plain.minimum / ours.minimum
    note = f"ratio of medians {plain.median / ours.median:.1f}"
    name = f"{size:>4} messages: times less than create()"
    floors = ours.minimum / (codec.minimum + bare.minimum)
    own = f"medians {ours.median:,.0f}, create() {plain.median:,.0f}"
    return [
        info(f"{size:>4} messages: ours", ours.minimum, "µs", note=own),
        at_least(_TIMES_LESS[size], name, less, "x", note=note)
        if size in _TIMES_LESS
        else info(name, less, "x", note=note),
        at_most(
            3.0,
            f"{size:>4} messages: times codec + bare post",
            floors,
            "x",
            note=f"codec {codec.minimum:,.0f} µs, bare post {bare.minimum:,.0f} µs",
        ),
    ]


def _sides(size: int) -> dict[str, Callable[[], object]]:
    history = [dict(message) for turn in corpus().of_length(size) for message in turn]
    http_client = instant_client()
    client = openai.OpenAI(api_key=_KEY, http_client=http_client)
    backend = OpenAIChatBackend(MODEL, http_client=http_client, api_key=_KEY)
    chat = Chat(backend)
    dialect = backend.dialect
    blob = state_from_messages("openai", history)
    json_blob = json.dumps(history)
    question = {"role": "user", "content": QUESTION}
    reply = {"role": "assistant", "content": ANSWER_TEXT}
    added = [compact(question), compact(reply)]
    body = compact({"model": MODEL, "messages": [*history, question]})

    def ours() -> object:
        return chat.chat_with_state(blob, user=QUESTION)

    def plain() -> object:
        messages = json.loads(json_blob)
        messages.append(question)
        completion = client.chat.completions.create(model=MODEL, messages=messages)
        messages.append({"role": "assistant", "content": completion.choices[0].message.content})
        return json.dumps(messages)

    def codec() -> object:
        state = load_state(blob, wire=dialect.wire)
        spliced: list[Any] = state.history()
        dialect.request(RequestParts(model=MODEL, history=[*spliced, added[0]]))
        turn = TurnRecord(at=0, messages=2, iterations=(Iteration(roles="ua"),))
        return dump_state(with_turn(state, added, turn))

    def bare() -> object:
        options: Any = {"headers": {"Content-Type": "application/json"}}
        post = client.post("/chat/completions", cast_to=httpx2.Response, content=body, options=options)
        return post.read()

    return {"ours": ours, "plain": plain, "codec": codec, "bare": bare}
