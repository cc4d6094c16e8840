"""The contract that a dialect has to keep: the built-in wires keep it, and each of its checks can fail."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from goaitools_py.backends.base import Delta, Dialect, Fault, ProtocolFault, Reply
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.protocols import EntryView, Fitted
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.testing import (
    DialectSamples,
    SampleError,
    SampleReply,
    _contract_hostile,
    _contract_optional,
    _contract_replies,
    _contract_writing,
    dialect_contract,
)
from goaitools_py.testing._contract import DialectCase, DialectCheck
from goaitools_py.testing._reply_shapes import SHAPES
from goaitools_py.types.messages import Text

from ..replay._recorded import read_lines

ERRORS: dict[str, tuple[SampleError, ...]] = {
    "openai": (
        SampleError(status=400, body=b'{"error":{"code":"context_length_exceeded"}}', kind="context"),
        SampleError(body=b'{"error":{"code":429,"message":"slow down"}}', kind="rate_limit"),
        SampleError(body=b'data: {"error":{"code":503}}\n\n', streamed=True, kind="unavailable"),
    ),
    "openai-responses": (
        SampleError(status=400, body=b'{"error":{"code":"context_length_exceeded"}}', kind="context"),
        SampleError(
            body=b'event: error\ndata: {"type":"error","code":"server_error","message":"","param":null}\n\n',
            streamed=True,
            kind="unavailable",
        ),
    ),
    "anthropic": (
        SampleError(
            status=400,
            body=b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long"}}',
            kind="context",
        ),
        SampleError(
            body=b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
            streamed=True,
            kind="unavailable",
        ),
    ),
}

SAID: tuple[tuple[str, list[tuple[str, Any]], str], ...] = (
    ("Hello there, Ada: 你好 👋.", [], ""),
    ("", [("get_score", {"team": "Red"}), ("roll_dice", {"sides": 6})], ""),
    ("Let me look at it.", [("get_score", {"team": "Blue"})], "They ask for the score."),
    ("All is well.", [], "Thinking it over."),
)


def samples_of(wire: str, count: int = len(SAID)) -> DialectSamples:
    """Scripted replies of a wire, each as body and as stream."""
    shape, replies = SHAPES[wire], []
    for number, (text, calls, reasoning) in enumerate(SAID[:count]):
        body = shape.reply(text, calls, reasoning=reasoning, model="m", number=number, sent=400)
        replies.append(
            SampleReply(
                body=rawjson.dumps(body),
                stream=b"".join(shape.as_events(body)),
                text=text,
                calls=tuple(name for name, _ in calls),
                kept=(text.encode(),),
            )
        )
    return DialectSamples(replies=tuple(replies), errors=ERRORS[wire])


@pytest.mark.parametrize("wire", SHAPES)
def test_a_built_in_wire_keeps_the_contract(wire: str) -> None:
    """Each wire that the package brings keeps what it asks of others."""
    dialect_contract(dialect_of(wire), samples_of(wire))


# ------------------------------------------------------------------------------------ broken dialects


class Bent:
    """The Chat Completions dialect with some of its methods replaced."""

    def __init__(self, **bent: Callable[..., Any]) -> None:
        self._inner = dialect_of("openai")
        self._bent = bent

    def __getattr__(self, name: str) -> Any:
        bent = self._bent.get(name)
        if bent is None:
            return getattr(self._inner, name)
        straight = getattr(self._inner, name, None)  # an additional method may be missing
        if straight is not None and not callable(straight):
            return bent(straight)

        def call(*args: Any, **named: Any) -> Any:
            return bent(straight, *args, **named)

        call.__name__ = name
        return call


def own(**methods: Callable[..., Any]) -> Dialect:
    """The Chat Completions dialect with methods of its own. `isinstance` does not see those of a `Bent`."""
    made: Any = type("Own", (OpenAIChatDialect,), methods)
    dialect: Dialect = made()
    return dialect


class BentDecoder:
    """A decoder of the Chat Completions wire with some of its methods replaced."""

    def __init__(self, inner: Any, bent: dict[str, Callable[..., Any]]) -> None:
        self._inner = inner
        self._bent = bent

    def __getattr__(self, name: str) -> Any:
        straight = getattr(self._inner, name)
        bent = self._bent.get(name)
        if bent is None:
            return straight
        return (lambda *args: bent(straight, *args)) if callable(straight) else bent(straight)


def streaming(**bent: Callable[..., Any]) -> Bent:
    """A dialect whose decoders are bent."""
    return Bent(decoder=lambda decoder: BentDecoder(decoder(), bent))


def on_reply(**changes: Any) -> Bent:
    """A dialect whose unary replies have some fields changed; a function makes the value of the reply."""

    def bent(reply: Callable[[bytes], Reply], body: bytes) -> Reply:
        read = reply(body)
        return replace(read, **{k: v(read) if callable(v) else v for k, v in changes.items()})

    return Bent(reply=bent)


def on_view(change: Callable[[Any], Any]) -> Bent:
    """A dialect whose `view` changes each message."""
    return Bent(view=lambda view, entries: tuple(map(change, view(entries))))


def on_request(change: Callable[[Any, Any], Any]) -> Bent:
    """A dialect whose `request` is changed after it was made: `change` gets the parts and the request."""
    return Bent(request=lambda request, parts: change(parts, request(parts)))


def on_parts(**changes: Any) -> Bent:
    """A dialect that takes no notice of some parts of a request."""
    return Bent(request=lambda request, parts: request(replace(parts, **changes)))


def reparsed(request: Any, parts: Any) -> Any:
    """A request whose history was parsed and written again."""
    entries = json.loads(b"[" + b",".join(parts.history) + b"]")
    return request(replace(parts, history=[json.dumps(entry).encode() for entry in entries]))


def laid_out(entries: Sequence[bytes]) -> list[bytes]:
    return [json.dumps(json.loads(entry), indent=1).encode() for entry in entries]


def raises(error: Exception) -> Callable[..., Any]:
    def bent(straight: Any, *args: Any) -> Any:
        raise error

    return bent


def quoting(reply: Any, body: bytes) -> Any:
    try:
        return reply(body)
    except ProtocolFault as fault:
        raise ProtocolFault(f"not a reply: {body[:200]!r}", fault.fault) from None


def quoting_cause(reply: Any, body: bytes) -> Any:
    try:
        return reply(body)
    except ProtocolFault as fault:
        raise fault from ValueError(repr(body[:200]))


def unhardened(reply: Any, body: bytes) -> Any:
    message = json.loads(body)["choices"][0]["message"]
    return replace(reply(body), text=message["content"] or "")


def per_chunk(feed: Any, chunk: bytes) -> list[Delta]:
    """A decoder that believes that an event is a chunk."""
    return feed(chunk if chunk.endswith(b"\n\n") else chunk + b"\n\n")  # type: ignore[no-any-return]


def swallowed(feed: Any, chunk: bytes) -> list[Delta]:
    try:
        return feed(chunk)  # type: ignore[no-any-return]
    except ProtocolFault:
        return []


def always_whole(finish: Any) -> Reply:
    try:
        return finish()  # type: ignore[no-any-return]
    except ProtocolFault:
        return Reply(entries=(b'{"role":"assistant","content":""}',))


def pooled() -> Bent:
    """A dialect that hands a decoder out again while its stream is still read."""
    pool: list[Any] = []

    def bent(decoder: Any) -> Any:
        if not pool or pool[-1].is_done:
            pool.append(decoder())
        return pool[-1]

    return Bent(decoder=bent)


def slow(feed: Any, chunk: bytes) -> list[Delta]:
    """A decoder that takes a hundred times as long as a linear one, on any machine."""
    began = time.thread_time()
    while time.thread_time() - began < 80e-6:
        pass
    return feed(chunk)  # type: ignore[no-any-return]


def _leak(parts: Any, request: Any) -> Any:
    return replace(request, headers={"x-session": parts.cache_key or ""})


def _counting(parts: Any, request: Any) -> Any:
    return replace(request, body=b'{"count":%d,' % len(parts.history) + request.body[1:])


def _without_ids(with_call_ids: Any, reply: Reply, ids: Sequence[str]) -> Reply:
    return replace(reply, calls=with_call_ids(reply, ids).calls)


def _kept_beside_nothing(without_calls: Any, reply: Reply) -> Reply:
    cut = without_calls(reply)
    return cut if cut.entries else replace(cut, entries=(b'{"role":"assistant","content":""}',))


_numbers = itertools.count()

W, R, H, P = _contract_writing, _contract_replies, _contract_hostile, _contract_optional

BROKEN: list[tuple[DialectCheck, Any, str]] = [
    (W._names, Bent(wire=lambda _: ""), "wire is ''"),
    (W._names, Bent(family=lambda _: f"f{next(_numbers)}"), "family is"),
    (W._entries_are_lines, Bent(entries=lambda e, m: laid_out(e(m))), "text has a line break"),
    (W._entries_are_lines, Bent(entries=lambda e, m: e(m) * 2), "became 2 entries"),
    (W._entries_are_in_order, Bent(entries=lambda e, m: e(m)[::-1]), "one by one gives other entries"),
    (W._view_of_entries, on_view(lambda m: replace(m, event_id=None)), "an event: wanted"),
    (W._view_of_entries, on_view(lambda m: replace(m, raw=None)), "raw is not the entry's bytes but None"),
    (
        W._no_imitation,
        Bent(entries=lambda e, m: [entry.replace(b"&lt;", b"<") for entry in e(m)]),
        "own block stands in the entry",
    ),
    (
        W._context_is_kept,
        Bent(entries=lambda e, m: [entry.replace(b"<app-c", b"&lt;app-c") for entry in e(m)]),
        "the block is not in the entry",
    ),
    (W._media, on_view(lambda m: replace(m, parts=(Text(m.text),))), "view() does not find it"),
    (W._results, Bent(results=lambda r, given: r(given)[::-1]), "view() reads"),
    (W._results, Bent(results=lambda r, given: r(given) + r(given)), "2 results became 4 entries"),
    (
        W._any_result,
        Bent(results=lambda r, given: r(given) if given[0].text else raises(ValueError())(r)),
        "no parts with flag 'ok': raised ValueError",
    ),
    (W._tools, Bent(tools=lambda t, given: b"".join(t([one]) for one in given)), "written in 6 ways"),
    (W._tools, Bent(tools=lambda t, given: t(given) or b"[]"), "no tools became b'[]'"),
    (W._fitted, Bent(fitted=lambda f, g, k, **n: {**g}), "it gave dict, not Fitted"),
    (W._fitted, Bent(fitted=lambda f, g, k, **n: Fitted(k)), "was given for this model, and is None"),
    (W._fitted, Bent(fitted=lambda f, g, k, **n: Fitted({**g, "odd": 1})), "request() refuses what it gave"),
    (W._fitted, Bent(fitted=lambda f, g, k, **n: Fitted(g, (str(k),))), "a note quotes the value"),
    (W._fitted, Bent(fitted=lambda f, g, k, **n: Fitted(g, (f"{next(_numbers)}",))), "in two ways"),
    (W._marks, Bent(marks=lambda _, entries: {"x": ("y", 1)}), "a history without entries has"),
    (
        W._marks,
        Bent(marks=lambda _, entries: {"x": ("y", 1)} if entries else {}),
        "the entries of a reply have",
    ),
    (W._preamble, Bent(preamble=lambda p, given: p(given) or b"[]"), "no messages became b'[]'"),
    (W._preamble, Bent(preamble=lambda p, given: p(given[-1:])), "of two system messages came"),
    (W._request, on_parts(preamble=b""), "'game guide' of the preamble"),
    (W._request, on_parts(tools=b""), "'roll_dice' of the preamble or the tools"),
    (W._request, on_parts(history=[]), "no array of the body ends with"),
    (W._request, on_parts(model="gpt"), "neither body nor path names the model"),
    (W._splicing, Bent(request=reparsed), "as bytes: the pieces are not in the body as they were"),
    (
        W._splicing,
        Bent(request=lambda r, parts: r(replace(parts, history=[*parts.history][::-1]))),
        "several entries in a piece: the pieces are not in the body",
    ),
    (W._no_parsing, Bent(request=reparsed), "no JSON made it raise"),
    (W._growing, on_request(_counting), "changed when the history grew"),
    (W._stream_flag, on_parts(stream=False), "ModelRequest.stream is False without and False with"),
    (
        W._stream_flag,
        Bent(request=lambda r, p: replace(r(replace(p, stream=False)), stream=p.stream)),
        "are the same with and without stream=True",
    ),
    (
        W._output,
        Bent(output=lambda o, *a, **k: o(*a, **k)[:-1] + b',"n":%d}' % next(_numbers)),
        "two equal schemas gave two different formats",
    ),
    (W._output, Bent(request=lambda r, p: r(replace(p, output=b""))), "does not hold what output()"),
    (
        W._output,
        Bent(request=lambda r, p: r(replace(p, tools=b"") if p.output else p)),
        "with a format the tools changed",
    ),
    (
        W._forbid_tools,
        Bent(request=lambda r, p: r(replace(p, tools=b"") if p.forbid_tools else p)),
        "with forbid_tools the tools changed",
    ),
    (W._settings, on_parts(settings={}), "max_output_tokens was taken, and changed nothing"),
    (W._settings, on_parts(settings={}), "temperature was taken, and changed nothing"),
    (W._cache_key, on_request(_leak), "the cache key that was given stands in the request"),
    (
        W._carried,
        Bent(request=lambda r, p: r(replace(p, history=[])) if p.drop_signed else r(p)),
        "the history is not in the body as it was",
    ),
    (R._reading, on_reply(text="something else"), "wanted text"),
    (R._reading, on_reply(calls=()), "wanted calls of ('get_score', 'roll_dice'), got ()"),
    (R._reading, on_reply(id=lambda _: str(next(_numbers))), "reading it twice gives two different replies"),
    (R._reading, on_reply(usage=lambda r: replace(r.usage, requests=0)), "usage.requests must be 1, got 0"),
    (R._reading, on_reply(entries=()), "nothing of it would be stored"),
    (R._well_formed, on_reply(entries=lambda r: tuple(laid_out(r.entries))), "entries[0] has a line break"),
    (R._well_formed, on_reply(run_calls=True), "run_calls is true without calls"),
    (R._well_formed, on_reply(stop="length"), "has stop 'end', not 'length'"),
    (
        R._well_formed,
        on_reply(calls=lambda r: tuple(replace(call, id="same") for call in r.calls)),
        "two calls have one id",
    ),
    (R._well_formed, on_reply(carried={"container": ("x" * 257, 0)}), "must be at most 256 characters"),
    (
        R._verbatim,
        on_reply(entries=lambda r: tuple(json.dumps(json.loads(e)).encode() for e in r.entries)),
        "is not in the entries as it came",
    ),
    (R._view, Bent(view=lambda v, e: v(e) * 2), "were read as 2 messages"),
    (R._view, on_view(lambda m: replace(m, role="user")), "wanted role 'assistant', got 'user'"),
    (R._view, on_view(lambda m: replace(m, tool_calls=())), "wanted the calls"),
    (R._view_of_an_exchange, Bent(view=lambda v, e: v(e)[::-1]), "wanted ['user', 'assistant', 'tool'"),
    (R._without_calls, Bent(without_calls=lambda w, reply: reply), "calls are left in the reply"),
    (
        R._without_calls,
        Bent(without_calls=lambda w, reply: replace(w(reply), entries=reply.entries)),
        "calls are left in the entries",
    ),
    (R._without_calls, Bent(without_calls=_kept_beside_nothing), "so entries must be ()"),
    (R._with_call_ids, Bent(with_call_ids=_without_ids), "the new ids are not in the calls and in the"),
    (
        R._with_call_ids,
        Bent(with_call_ids=lambda w, reply, ids: w(reply, [*ids][: len(reply.calls)])),
        "an id too many must be a ValueError",
    ),
    (
        R._with_call_ids,
        Bent(with_call_ids=lambda w, r, ids: replace(w(r, ids), run_calls=False)),
        "something else than the ids changed",
    ),
    (R._unsigned, Bent(unsigned=lambda u, e: [bytes(bytearray(one)) for one in e]), "callers changed"),
    (R._unsigned, Bent(unsigned=lambda u, e: list(e)[1:]), "1 entries became 0"),
    (R._unsigned, on_reply(signed=True), "the reply is signed, and unsigned() took nothing out"),
    (R._settled, Bent(settled=lambda s, e: [bytes(bytearray(one)) for one in e]), "was not paused"),
    (R._settled, Bent(settled=lambda s, e: []), "1 entries became 0"),
    (
        R._rules,
        on_reply(
            entries=lambda r: tuple(
                e.replace(b'"type"', b'"kind"').replace(b'"id"', b'"no"') for e in r.entries
            )
        ),
        "with its results: messages[1]: tool_calls[0]: needs an id",
    ),
    (R._twins, streaming(finish=lambda f: replace(f(), text=f().text[1:])), "says another text or calls"),
    (R._twins, streaming(finish=lambda f: replace(f(), reasoning="x")), "one body gives"),
    (R._twins, streaming(feed=lambda f, c: f(c)[1:]), "do not join to the reply's text"),
    (R._any_cut, streaming(feed=per_chunk), "cut after byte"),
    (R._early_end, streaming(finish=always_whole), "and finish() took it for a reply"),
    (R._early_end, streaming(partial_text=lambda _: ""), "and the text deltas joined are"),
    (
        R._early_end,
        Bent(decoder=lambda d: BentDecoder(d(), {"finish": lambda f: _protocol(f)})),
        "kind 'protocol'",
    ),
    (R._done, streaming(is_done=lambda _: False), "is_done is false at the end of the stream"),
    (R._done, streaming(is_done=lambda _: True), "is_done is true before anything came"),
    (
        R._done,
        streaming(finish=lambda f: replace(f(), id=str(next(_numbers)))),
        "finish() said something else when it was asked again",
    ),
    (R._apart, pooled(), "read at the same time as others, a stream raised ProtocolFault"),
    (R._error_events, streaming(feed=swallowed), "in one piece: no exception"),
    (R._error_events, streaming(feed=lambda f, c: _protocol(f, c)), "wanted kind 'unavailable'"),
    (H._statuses, Bent(fault=lambda f, *a: replace(f(*a), kind="rejected")), "wanted 'auth', got 'rejected'"),
    (H._statuses, Bent(fault=lambda f, *a: replace(f(*a), retryable=True)), "retryable must be False"),
    (H._statuses, Bent(fault=lambda f, s, h, b: replace(f(s, h, b), code=str(b))), "code must be a name"),
    (H._retry_after, Bent(fault=lambda f, s, h, b: f(s, {}, b)), "'retry-after: 7': got None"),
    (H._sample_errors, Bent(fault=lambda f, s, h, b: f(s, h, b"")), "wanted kind 'context', got 'rejected'"),
    (
        H._sample_errors,
        Bent(reply=lambda r, body: Reply(entries=(b"{}",)) if b"error" in body else r(body)),
        "reply() took it for a reply",
    ),
    (H._odd_bodies, Bent(reply=quoting), "quotes the body"),
    (H._odd_bodies, Bent(reply=quoting_cause), "quotes the body"),
    (H._odd_bodies, Bent(reply=unhardened), "raised JSONDecodeError"),
    (H._odd_streams, streaming(feed=swallowed, finish=always_whole), "was taken for a reply"),
    (H._long_event, streaming(feed=slow), "an event of 4 MiB that does not end"),
    (H._odd_values, Bent(reply=unhardened), "= 1.5: raised"),
    (
        H._odd_values,
        on_reply(text=lambda r: r.text.replace("\ufffd", "\ud800")),
        "text holds half a surrogate pair",
    ),
    (H._odd_events, streaming(finish=lambda f: replace(f(), run_calls=True)), "true without calls"),
    (
        H._odd_entries,
        Bent(view=lambda v, entries: [json.loads(e)["role"] for e in entries] and v(entries)),
        "view() of b'{}': raised KeyError",
    ),
    (P._checking, own(history_problems=lambda s, e, f: []), "a result that no call wants"),
    (P._checking, own(entry_problems=lambda s, e: []), "an entry that is not an object"),
    (P._checking, own(entry_problems=lambda s, e: ["always"]), "of a valid entry (0): always"),
    (
        P._viewing,
        own(history_forms=lambda s, e: [EntryView(bytes(bytearray(one))) for one in e]),
        "has no change, and is another object",
    ),
    (P._viewing, own(history_forms=lambda s, e: [EntryView(b"") for _ in e]), "does not stay as it is"),
    (P._viewing, own(unique_calls=lambda s, e: [EntryView(one) for one in e]), "no other id"),
    (
        P._splitting,
        own(results=lambda s, r: [b",".join(OpenAIChatDialect.results(s, r))]),
        "needs SplitsResults",
    ),
    (P._translating, own(reply_pieces=lambda s, e: []), "the pieces have the text ''"),
    (
        P._translating,
        own(write_reply=lambda s, t, c: ([b'{"role":"assistant","content":"x"}'], 0)),
        "other calls",
    ),
    (P._translating, own(call_id=lambda s, id, *, taken=False: id), "gives the id that is taken"),
]


def _protocol(straight: Any, *args: Any) -> Any:
    try:
        return straight(*args)
    except ProtocolFault:
        raise ProtocolFault("no kind", Fault(kind="protocol")) from None


def _id(value: object) -> str | None:
    return value.wants.partition(" ")[0].strip("()") if isinstance(value, DialectCheck) else None


@pytest.mark.parametrize(("check", "dialect", "finding"), BROKEN, ids=_id)
def test_a_broken_dialect_is_caught(check: DialectCheck, dialect: Dialect, finding: str) -> None:
    """Each check finds a dialect that does what it forbids, and says what came."""
    found = list(itertools.islice(check.run(DialectCase(dialect, samples_of("openai", 2))), 2000))

    assert any(finding in line for line in found), found[:5]


def test_a_reader_that_was_slow_once_is_not_slow() -> None:
    """On a shared machine another program can take the time of one reading."""
    slow_chunks = itertools.chain(itertools.repeat(True, 16_384), itertools.repeat(False))
    dialect = streaming(feed=lambda feed, chunk: slow(feed, chunk) if next(slow_chunks) else feed(chunk))

    assert list(H._long_event.run(DialectCase(dialect, samples_of("openai", 2)))) == []
    assert next(slow_chunks) is False


def test_every_check_is_seen_to_fail() -> None:
    """No check is in the contract that no broken dialect of this module falls foul of."""
    checks = [check for module in (W, R, H, P) for check in module.CHECKS]

    assert {check.wants for check in checks} == {check.wants for check, _, _ in BROKEN}


def test_all_findings_are_told_at_once() -> None:
    """The error names the wire, what the protocol wants and what came, for everything that is wrong."""
    dialect: Any = Bent(
        preamble=lambda p, given: p(given) or b"[]",
        unsigned=lambda u, entries: [],
        fault=raises(KeyError("x")),
    )

    with pytest.raises(AssertionError) as caught:
        dialect_contract(dialect, samples_of("openai", 2))

    told = str(caught.value)
    assert "findings about the dialect of wire 'openai':" in told
    assert '- preamble() encodes leading system messages, b"" for none: no messages became' in told
    assert "- unsigned() gives one entry for each" in told
    assert "- fault() says what an error status means, whatever the body is: raised KeyError: 'x' (at" in told


@pytest.mark.parametrize(
    ("left", "lacking"),
    [
        (DialectSamples(replies=(), errors=ERRORS["openai"]), "a reply with calls as a stream"),
        (replace(samples_of("openai"), errors=()), "a stream with an error event"),
        (replace(samples_of("openai"), errors=ERRORS["openai"][1:]), "an error answer (status 400"),
        (samples_of("openai", 1), "a reply with calls as a body"),
    ],
)
def test_samples_that_would_prove_nothing_are_refused(left: DialectSamples, lacking: str) -> None:
    """A check over no samples would pass: so the samples have to hold what the checks need."""
    with pytest.raises(AssertionError, match="the samples must hold") as caught:
        dialect_contract(dialect_of("openai"), left)

    assert lacking in str(caught.value)


# ----------------------------------------------------------------------------------- recorded traffic


def _chat_said(body: Any) -> tuple[str, tuple[str, ...]]:
    message = body["choices"][0]["message"]
    calls = message.get("tool_calls") or ()
    return message.get("content") or "", tuple(call["function"]["name"] for call in calls)


def _chat_streamed(events: list[Any]) -> tuple[str, tuple[str, ...]]:
    deltas = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    text = "".join(delta.get("content") or "" for delta in deltas)
    return text, tuple(call["name"] for call in calls if call.get("name"))


def _responses_said(body: Any) -> tuple[str, tuple[str, ...]]:
    output = body["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    return (
        "".join(part["text"] for part in parts),
        tuple(item["name"] for item in output if item["type"] == "function_call"),
    )


def _responses_streamed(events: list[Any]) -> tuple[str, tuple[str, ...]]:
    return _responses_said(events[-1]["response"])


def _anthropic_said(body: Any) -> tuple[str, tuple[str, ...]]:
    blocks = body["content"]
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    return text, tuple(block["name"] for block in blocks if block["type"] == "tool_use")


def _anthropic_streamed(events: list[Any]) -> tuple[str, tuple[str, ...]]:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    begun = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    text = "".join(delta.get("text", "") for delta in deltas)
    return text, tuple(block["name"] for block in begun if block["type"] == "tool_use")


RECORDED: dict[str, tuple[str, str, str, Any, Any]] = {
    "openai": ("openai-chat", "api.openai.com", "/completions", _chat_said, _chat_streamed),
    "openai-responses": (
        "openai-responses",
        "api.openai.com",
        "/responses",
        _responses_said,
        _responses_streamed,
    ),
    "anthropic": (
        "anthropic-messages",
        "api.anthropic.com",
        "/messages",
        _anthropic_said,
        _anthropic_streamed,
    ),
}

LARGEST = 8_000
"""Bytes of a recorded answer that the contract is tried on: it reads each some thousand times."""

OF_A_KIND = 2


def recorded_samples(wire: str, folder: Path) -> tuple[SampleReply, ...]:
    """Some real answers of each kind, with text or with calls, as a body or as a stream."""
    file, host, path, said, streamed = RECORDED[wire]
    kinds: dict[tuple[bool, bool], dict[bytes, SampleReply]] = {}
    for line in read_lines(folder / "recorded" / f"{file}.jsonl.zst"):
        for exchange in json.loads(line)["exchanges"]:
            response = exchange["response"]
            asked = exchange["request"]
            if asked["host"] != host or not asked["path"].endswith(path) or response["status"] != 200:
                continue
            if "sse" in response:
                raw = response["sse"].encode()
                data = [one[6:] for one in raw.split(b"\n") if one.startswith(b"data: {")]
                text, calls = streamed([json.loads(one) for one in data])
                sample = SampleReply(stream=raw, text=text, calls=calls)
            else:
                raw = json.dumps(response["body"]).encode()
                text, calls = said(response["body"])
                sample = SampleReply(body=raw, text=text, calls=calls)
            if len(raw) <= LARGEST and (text or calls):
                kinds.setdefault(("sse" in response, bool(calls)), {})[raw] = sample
    picked = []
    for found in kinds.values():
        ordered = sorted(found, key=len)
        picked += [found[raw] for raw in ordered[:: max(1, len(ordered) // OF_A_KIND)]]
    return tuple(picked)


@pytest.mark.parametrize("wire", SHAPES)
def test_a_built_in_wire_keeps_the_contract_over_recorded_answers(wire: str, data_dir: Path) -> None:
    """What real servers said, read by a few lines of its own here, holds the contract as well."""
    samples = recorded_samples(wire, data_dir)

    assert len(samples) >= 4 * OF_A_KIND
    dialect_contract(dialect_of(wire), DialectSamples(replies=samples, errors=ERRORS[wire]))
