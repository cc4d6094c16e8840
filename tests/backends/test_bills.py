"""What a server says that a request has consumed is what we count, whatever its counts include."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from goaitools_py.backends.base import ProtocolFault, Reply
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.wire.bill import merged
from goaitools_py.types.messages import Usage

JSON = dict[str, Any]
CHAT, RESPONSES, ANTHROPIC = "openai", "openai-responses", "anthropic"
FILES = {CHAT: "openai-chat", RESPONSES: "openai-responses", ANTHROPIC: "anthropic-messages"}


# ------------------------------------------------------------------- the same usage, whole and streamed


def whole(wire: str, usage: JSON, *, inner: JSON | None = None) -> bytes:
    """A body with this usage. `inner`: the usage of its choice."""
    if wire == CHAT:
        choice: JSON = {
            "index": 0,
            "message": {"role": "assistant", "content": "Hm."},
            "finish_reason": "stop",
        }
        choice |= {} if inner is None else {"usage": inner}
        return json.dumps({"id": "c", "choices": [choice]} | ({"usage": usage} if usage else {})).encode()
    if wire == RESPONSES:
        part = {"type": "output_text", "text": "Hm.", "annotations": []}
        item = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
        body = {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage}
        return json.dumps(body).encode()
    head = {"id": "m", "type": "message", "role": "assistant", "model": "m"}
    said = {"content": [{"type": "text", "text": "Hm."}], "stop_reason": "end_turn", "usage": usage}
    return json.dumps({**head, **said}).encode()


def streamed(wire: str, *usages: JSON, inner: JSON | None = None) -> bytes:
    """A stream with these usages, one event each."""
    events: list[JSON] = []
    if wire == CHAT:
        events.append({"id": "c", "choices": [{"index": 0, "delta": {"content": "Hm."}}]})
        end: JSON = {"index": 0, "delta": {}, "finish_reason": "stop"}
        events.append({"choices": [end if inner is None else {**end, "usage": inner}]})
        events += [{"choices": [], "usage": usage} for usage in usages if usage]
    elif wire == RESPONSES:
        body = json.loads(whole(wire, usages[-1]))
        events.append({"type": "response.output_item.done", "output_index": 0, "item": body["output"][0]})
        events.append({"type": "response.completed", "response": body})
    else:
        first, *later = usages if len(usages) > 1 else (usages[0], usages[0])
        events.append({"type": "message_start", "message": {"id": "m", "model": "m", "usage": first}})
        events.append(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        )
        delta = {"type": "text_delta", "text": "Hm."}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
        events.append({"type": "content_block_stop", "index": 0})
        for usage in later:
            events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
        events.append({"type": "message_stop"})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def decoded(wire: str, data: bytes) -> Reply:
    decoder = dialect_of(wire).decoder()
    decoder.feed(data)
    return decoder.finish()


def both(wire: str, usage: JSON, *, inner: JSON | None = None) -> Reply:
    """The reply with this usage; whole and streamed say the same of it."""
    reply = dialect_of(wire).reply(whole(wire, usage, inner=inner))
    other = decoded(wire, streamed(wire, usage, inner=inner))
    for name in ("usage", "asides", "context", "cost_usd"):
        assert getattr(reply, name) == getattr(other, name), name
    assert reply.usage.output_tokens >= reply.usage.reasoning_tokens
    return reply


# ------------------------------------------------------------------------------------- the recordings


@lru_cache(maxsize=3)
def _records(path: Path) -> list[JSON]:
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().splitlines()
    return [json.loads(line) for line in lines]


def responses(data_dir: Path, wire: str) -> Iterator[tuple[JSON, list[JSON]]]:
    """Each recorded response that is a reply, and the usages in it, in order."""
    path = data_dir / "recorded" / f"{FILES[wire]}.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no recorded traffic: {path.name} is not in the data directory")
    for record in _records(path):
        for exchange in record["exchanges"]:
            response, path_of = exchange["response"], exchange["request"]["path"]
            if response["status"] >= 300 or path_of.endswith(("/compact", "/count_tokens")):
                continue
            if "sse" in response:
                lines = response["sse"].splitlines()
                data = [line[5:].strip() for line in lines if line.startswith("data:")]
                events = [json.loads(one) for one in data if one.startswith("{")]
            else:
                events = [response.get("body")]
            usages = [usage for event in events for usage in _usages(event)]
            if usages:
                yield response, usages


def _usages(event: Any) -> Iterator[JSON]:
    for holder in (event, *((event.get(key) or {}) for key in ("message", "response"))):
        if isinstance(holder, dict) and holder.get("usage"):
            yield holder["usage"]


def in_all(wire: str, usages: list[JSON]) -> tuple[int, int]:
    """The server's own bill, read by other eyes: the tokens of the reply, and those of other runs."""
    told: JSON = {}
    for usage in usages:
        told |= {key: value for key, value in usage.items() if value is not None}
    if wire != ANTHROPIC:
        assert told["total_tokens"] == sum(
            told[key]
            for key in told
            if key in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
        )
        return told["total_tokens"], 0
    runs = [one for one in told.get("iterations", ()) if one["type"] not in ("message", "fallback_message")]
    names = "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"
    own, beside = (sum(one.get(name) or 0 for one in ones for name in names) for ones in ([told], runs))
    return own, beside


@pytest.mark.parametrize(("wire", "least"), [(CHAT, 500), (RESPONSES, 300), (ANTHROPIC, 400)])
def test_every_recorded_bill_is_ours(data_dir: Path, wire: str, least: int) -> None:
    """As it was recorded, and with the same usage whole and streamed."""
    compared = beside_too = 0
    for response, usages in responses(data_dir, wire):
        own, beside = in_all(wire, usages)
        data = response["sse"].encode() if "sse" in response else json.dumps(response["body"]).encode()
        try:
            reply = decoded(wire, data) if "sse" in response else dialect_of(wire).reply(data)
        except ProtocolFault:  # a recorded stream that broke off, or a response that failed
            continue
        again = both(wire, usages[-1] if wire != ANTHROPIC else {**usages[0], **usages[-1]})
        for one in (reply, again):
            assert one.usage.total_tokens == own
            assert sum(usage.total_tokens for usage in one.asides.values()) == beside
            assert one.usage.output_tokens >= one.usage.reasoning_tokens
        compared += 1
        beside_too += beside > 0
    assert compared >= least
    assert beside_too == (4 if wire == ANTHROPIC else 0)


def test_every_recorded_cost_is_ours(data_dir: Path) -> None:
    """OpenRouter's, with its own key for the provider behind it and with the user's."""
    found = []
    for _, usages in responses(data_dir, CHAT):
        usage = usages[-1]
        if "cost" in usage:
            behind = (usage["cost_details"]["upstream_inference_cost"] or 0) if usage["is_byok"] else 0
            assert both(CHAT, usage).cost_usd == Decimal(str(usage["cost"])) + Decimal(str(behind))
            found.append(usage["is_byok"])
    assert (len(found), sum(found)) == (13, 2)


# --------------------------------------------------------------- counts that leave out what is billed


def chat_usage(prompt: int, completion: int, total: int | None, **more: Any) -> JSON:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **more}


def thought(tokens: int) -> JSON:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


ODD = [
    pytest.param(chat_usage(12, 1, 399, **thought(386)), (12, 387, 386), id="xai"),
    pytest.param(chat_usage(279, 6, 374, **thought(89)), (279, 95, 89), id="xai-less-than-visible"),
    pytest.param(chat_usage(12, 100, 152, **thought(40)), (12, 140, 40), id="xai-more-visible"),
    pytest.param(chat_usage(12, 1, 13, **thought(386)), (12, 387, 386), id="a gateway's own total"),
    pytest.param(chat_usage(12, 1, None, **thought(386)), (12, 387, 386), id="no total"),
    pytest.param(chat_usage(20, 424, 1016), (20, 996, 572), id="gemini"),
    pytest.param(chat_usage(20, 424, 1016, **thought(0)), (20, 996, 572), id="gemini-zero"),
    pytest.param(chat_usage(11, 12, 398, prompt_audio_seconds=29), (386, 12, 0), id="mistral-sound"),
    pytest.param(
        chat_usage(11, 1, 498, prompt_audio_seconds=29, **thought(100)),
        (397, 101, 100),
        id="sound-and-thought",
    ),
    pytest.param(
        chat_usage(11, 12, 523, prompt_tokens_details={"cached_tokens": 500}), (511, 12, 0), id="cache-beside"
    ),
    pytest.param(chat_usage(33, 7163, 7196, reasoning_tokens=73997), (33, 81160, 73997), id="perplexity"),
    pytest.param(chat_usage(33, 716, 749, reasoning_tokens=700), (33, 716, 700), id="reasoning-at-the-top"),
    pytest.param(chat_usage(33, 716, 500), (33, 716, 0), id="a total below"),
]
"""Usages of hosts: input, output, reasoning. Sources: `backends.wire.bill`."""


@pytest.mark.parametrize(("usage", "counts"), ODD)
@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
def test_what_is_billed_is_counted(wire: str, usage: JSON, counts: tuple[int, int, int]) -> None:
    """Tokens beside the host's own counts are reasoning, or input, and visible tokens are never below 0."""
    if wire == RESPONSES:
        named = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
        named |= {f"{old}_details": f"{new}_details" for old, new in named.items()}
        if not {"prompt_audio_seconds", "reasoning_tokens"}.isdisjoint(usage):
            usage = chat_usage(11, 12, 398) | thought(0)
            counts = (11, 387, 375)  # this API has no such members; a total counts all the same
        usage = {named.get(key, key): value for key, value in usage.items()}
    found = both(wire, usage).usage

    assert (found.input_tokens, found.output_tokens, found.reasoning_tokens) == counts


def test_a_usage_of_the_choice_counts() -> None:
    """Moonshot's place; the usage at the top counts more."""
    inner = chat_usage(9, 3, 12)

    assert both(CHAT, {}, inner=inner).usage.total_tokens == 12
    assert both(CHAT, chat_usage(10, 4, 14), inner=inner).usage.total_tokens == 14
    assert both(CHAT, chat_usage(0, 0, 0), inner=inner).usage.total_tokens == 12


def test_a_usage_in_a_choice_beside_text_counts() -> None:
    """Also after events that were read as plain text."""
    deltas: list[JSON] = [{"index": 0, "delta": {"content": "a"}} for _ in range(4)]
    deltas[-1]["usage"] = chat_usage(9, 3, 12)
    events = [{"id": "c", "model": "m", "choices": [delta]} for delta in deltas]
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)

    reply = decoded(CHAT, data + b"data: [DONE]\n\n")

    assert (reply.text, reply.usage.total_tokens) == ("aaaa", 12)


# -------------------------------------------------------------------------------------- later zeros

DETAILS = {
    CHAT: ({"prompt_tokens_details": {"cached_tokens": 4}}, {"prompt_tokens_details": {"cached_tokens": 0}}),
    ANTHROPIC: (
        {"output_tokens_details": {"thinking_tokens": 2}},
        {"output_tokens_details": {"thinking_tokens": 0}},
    ),
}


@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_later_zeros_replace_no_number(wire: str) -> None:
    """Nor nulls, nor an empty object; a later number does, and what comes only later is there."""
    names = ("prompt_tokens", "completion_tokens") if wire == CHAT else ("input_tokens", "output_tokens")
    details, zeros = DETAILS[wire]
    numbers = dict.fromkeys(names, 1)
    first = {names[0]: 11, names[1]: 2, **details}

    def usage_of(*later: JSON) -> Usage:
        return decoded(wire, streamed(wire, numbers, first, *later)).usage

    known = usage_of()
    assert (known.input_tokens, known.output_tokens) == (11, 2)
    assert known.cached_input_tokens == 4 or known.reasoning_tokens == 2
    for later in (dict.fromkeys(names, 0) | zeros, dict.fromkeys(names), {}, {key: {} for key in details}):
        assert usage_of(later) == known
    one_side = usage_of({names[0]: 0, names[1]: 5} | (zeros if wire == CHAT else {}))
    assert (one_side.input_tokens, one_side.output_tokens) == (11, 5)
    assert one_side.cached_input_tokens == known.cached_input_tokens
    assert usage_of({names[1]: 5}).output_tokens == 5
    assert usage_of(dict.fromkeys(names, 0), {names[1]: 7}).output_tokens == 7


# ------------------------------------------------------------------------------- several runs in one


def run(kind: str, read: int, wrote: int, **more: Any) -> JSON:
    return {"type": kind, "input_tokens": read, "output_tokens": wrote, **more}


def runs(*listed: JSON, thinking: int = 0) -> JSON:
    own = [one for one in listed if one["type"] in ("message", "fallback_message")]
    total = {key: sum(one[key] for one in own) for key in ("input_tokens", "output_tokens")}
    return {**total, "iterations": list(listed), "output_tokens_details": {"thinking_tokens": thinking}}


def test_a_usage_does_not_grow_with_its_stream() -> None:
    """Other members in each event: each event costs the same."""
    known = b"null"
    for number in range(3000):
        known = merged(known, b'{"member_%d":1}' % number)

    assert len(known) < 10_000


def test_runs_beside_the_totals_are_counted() -> None:
    """Whatever their kind is called; each for the model that ran."""
    cache = {"cache_read_input_tokens": 7, "cache_creation_input_tokens": 2}
    usage = runs(
        run("message", 1128, 121),
        run("advisor_message", 2529, 38, model="claude-opus-4-8"),
        run("compaction", 100, 5, **cache),
        run("some_day", 10, 1),
        run("message", 1289, 12),
    )

    reply = both(ANTHROPIC, usage)

    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.requests) == (2417, 133, 1)
    assert reply.asides == {
        "claude-opus-4-8": Usage(input_tokens=2529, output_tokens=38),
        "": Usage(input_tokens=119, cached_input_tokens=7, cache_write_tokens=2, output_tokens=6),
    }


@pytest.mark.parametrize(
    ("usage", "context"),
    [
        (runs(run("message", 1128, 121), run("message", 1289, 12)), (1289, 12, 0)),
        (runs(run("message", 1128, 121), run("message", 1289, 12), thinking=55), (1289, 12, 0)),
        (runs(run("message", 1128, 20), run("message", 1289, 112), thinking=55), (1289, 112, 35)),
        (runs(run("message", 1128, 20), run("fallback_message", 1289, 12)), (1289, 12, 0)),
        (runs(run("message", 9, 2), run("message", 11, 3), run("compaction", 800, 9)), (11, 3, 0)),
        (runs(run("message", 1128, 121)), None),
        (runs(run("compaction", 1128, 121), run("message", 20, 3)), None),
        ({"input_tokens": 5, "output_tokens": 2, "iterations": ["?", {}, 7]}, None),
        ({"input_tokens": 5, "output_tokens": 2, "iterations": {"type": "message"}}, None),
    ],
)
def test_the_newest_run_says_how_large_the_context_is(
    usage: JSON, context: tuple[int, int, int] | None
) -> None:
    """Not the sum of all; a single run is the totals."""
    found = both(ANTHROPIC, usage).context

    assert context == (found and (found.input_tokens, found.output_tokens, found.reasoning_tokens))


def test_a_reply_that_is_none_costs_all_of_its_runs() -> None:
    """What a broken response has consumed is counted with all that is beside the totals."""
    usage = runs(run("message", 5, 1), run("advisor_message", 2529, 38))
    body = json.loads(whole(ANTHROPIC, usage)) | {"content": [{"type": "tool_result"}]}

    with pytest.raises(ProtocolFault) as caught:
        dialect_of(ANTHROPIC).reply(json.dumps(body).encode())

    assert caught.value.usage is not None
    assert caught.value.usage.total_tokens == 2573


# --------------------------------------------------------------------------------------------- money


@pytest.mark.parametrize(
    ("more", "cost"),
    [
        ({"cost": 0.01058775, "is_byok": False}, "0.01058775"),
        ({"cost": 7.159e-05, "cost_details": {"upstream_inference_cost": None}}, "0.00007159"),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, "0.5"),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost": 0.3, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.3}}, "0.3"),
        ({"cost_in_usd_ticks": 318319000}, "0.0318319"),
        ({"cost": {"input_tokens_cost": 0.1, "total_cost": 0.82}}, "0.82"),
        ({"cost": 0.2}, None),
        ({"cost": "0.2", "is_byok": False}, None),
        ({"cost": True, "is_byok": False}, None),
        ({"cost": -1, "is_byok": False}, None),
        ({"cost": 10**400, "is_byok": False}, None),
        ({"cost_in_usd_ticks": None}, None),
        ({"cost": []}, None),
    ],
)
@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
def test_a_cost_that_the_server_names(wire: str, more: JSON, cost: str | None) -> None:
    """In US dollars where it says so; a number without a currency is none."""
    named = chat_usage(9, 3, 12) if wire == CHAT else {"input_tokens": 9, "output_tokens": 3}

    assert both(wire, named | more).cost_usd == (None if cost is None else Decimal(cost))


@pytest.mark.parametrize("make", [whole, streamed])
def test_no_usage_is_no_bill(make: Callable[..., bytes]) -> None:
    """A server that counts nothing."""
    data = make(CHAT, {})
    reply = decoded(CHAT, data) if make is streamed else dialect_of(CHAT).reply(data)

    assert (reply.usage, reply.cost_usd, reply.asides) == (Usage(requests=1), None, {})
