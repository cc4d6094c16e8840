"""The part of the dialect contract about streams: every cut, every early end, every error event.

Owns: these checks. Must never know: a particular provider API, how its events are framed, a test framework.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ..backends.base import Delta, Dialect, ProtocolFault, Reply, StreamDecoder
from ..base import rawjson
from ._contract import DialectCase, Findings, SampleReply, check, described, flaws_of, outcome, shown
from ._contract_replies import neutral

__all__ = ["CHECKS"]

_EVERY_CUT_BELOW: Final = 1_200
_CUTS: Final = 240
"""A stream of at most this many bytes is cut at every position, a longer one at this many positions."""

_RANDOM_WAYS: Final = 12
_SEED: Final = 20_240_229


def _positions(stream: bytes) -> Iterable[int]:
    if len(stream) <= _EVERY_CUT_BELOW:
        return range(1, len(stream))
    near_the_end = range(len(stream) - _CUTS // 4, len(stream))
    return sorted({*random.Random(_SEED).sample(range(1, len(stream)), _CUTS), *near_the_end})


def _fed(dialect: Dialect, chunks: Iterable[bytes]) -> tuple[StreamDecoder, list[Delta]]:
    decoder = dialect.decoder()
    return decoder, [delta for chunk in chunks for delta in decoder.feed(chunk)]


def _ended(decoder: StreamDecoder, deltas: list[Delta]) -> Reply:
    """The reply at the end of a stream. `deltas`: gets the deltas that only the end completes."""
    end: Callable[[], Iterable[Delta]] | None = getattr(decoder, "end", None)
    if end is not None:
        deltas += end()
    return decoder.finish()


def _said(deltas: Iterable[Delta]) -> dict[str, str]:
    said = {"text": "", "reasoning": ""}
    for delta in deltas:
        said[delta.kind] += delta.text
    return said


@check("a stream gives the same neutral reply as the same reply in one body")
def _twins(case: DialectCase) -> Findings:
    for name, sample in case.streamed():
        decoder, deltas = _fed(case.dialect, [sample.stream])
        reply = decoder.finish()
        yield from (f"{name} streamed: {flaw}" for flaw in flaws_of(reply))
        if reply.text != sample.text or tuple(call.name for call in reply.calls) != sample.calls:
            yield f"{name}: streamed it says another text or calls other functions than the sample does"
        if reply.usage.requests != 1:
            yield f"{name}: streamed, usage.requests must be 1, got {reply.usage.requests}"
        seen = case.dialect.view(reply.entries)
        if [(m.role, m.text, m.tool_calls) for m in seen] != [("assistant", reply.text, reply.calls)]:
            yield f"{name}: view() of the streamed entries does not say what the reply says"
        if _said(deltas)["text"] != reply.text:
            yield f"{name}: the text deltas do not join to the reply's text"
        if any(delta.kind not in ("text", "reasoning") or not delta.text for delta in deltas):
            yield f"{name}: a delta must have a kind of its own and some text"
        if sample.body:
            yield from _same_as_body(name, sample, case.dialect.reply(sample.body), reply)


def _same_as_body(name: str, sample: SampleReply, whole: Reply, streamed: Reply) -> Findings:
    if _without_spacing(streamed) != _without_spacing(whole):
        yield f"{name}: one body gives {shown(neutral(whole))}, the stream {shown(neutral(streamed))}"
    if whole.signed != streamed.signed:
        yield f"{name}: signed is {whole.signed} from one body and {streamed.signed} from the stream"
    if whole.finish_reason != streamed.finish_reason:
        yield f"{name}: finish_reason is {whole.finish_reason!r} and, streamed, {streamed.finish_reason!r}"
    for one, other in zip(whole.calls, streamed.calls, strict=False):
        if one.id != other.id and one.id.encode() in sample.stream:
            yield f"{name}: a call's id is {shown(one.id)} and, streamed, {shown(other.id)}"


def _without_spacing(reply: Reply) -> tuple[object, ...]:
    """The content of a reply, with parsed arguments, because a stream may have other white space."""
    text, reasoning, calls, *rest = neutral(reply)
    assert isinstance(calls, tuple)
    return text, reasoning, tuple((name, _value(written), kind) for name, written, kind in calls), *rest


def _value(arguments: str) -> object:
    try:
        return rawjson.loads(arguments.encode())
    except ValueError:
        return arguments


@check("a stream gives the same reply whatever way its bytes are cut")
def _any_cut(case: DialectCase) -> Findings:
    for name, sample in case.streamed():
        stream = sample.stream
        decoder, deltas = _fed(case.dialect, [stream])
        wanted, said = decoder.finish(), _said(deltas)
        ways: dict[str, list[bytes]] = {
            f"cut after byte {at}": [stream[:at], stream[at:]] for at in _positions(stream)
        }
        ways["byte by byte"] = [stream[at : at + 1] for at in range(len(stream))]
        ways["with empty chunks between"] = [b"", stream[:7], b"", stream[7:], b""]
        for way in range(_RANDOM_WAYS):
            ways[f"cut at random (seed {_SEED + way})"] = _random_chunks(stream, _SEED + way)
        for what, chunks in ways.items():
            try:
                decoder, deltas = _fed(case.dialect, chunks)
                if decoder.finish() != wanted or _said(deltas) != said:
                    yield f"{name} {what}: another reply, or other deltas, than in one piece"
            except Exception as error:
                yield f"{name} {what}: raised {described(error)}"


def _random_chunks(stream: bytes, seed: int) -> list[bytes]:
    source = random.Random(seed)
    at, chunks = 0, []
    while at < len(stream):
        size = source.choice((1, 2, 3, 17, 64, 400))
        chunks.append(stream[at : at + size])
        at += size
    return chunks


@check("finish() raises ProtocolFault (kind 'interrupted') unless the reply has come to its end")
def _early_end(case: DialectCase) -> Findings:
    for name, sample in case.streamed():
        stream = sample.stream
        decoder, _ = _fed(case.dialect, [stream])
        wanted = decoder.finish()
        was_whole_at = 0
        for at in (0, *_positions(stream)):
            decoder, deltas = _fed(case.dialect, [stream[:at]])
            done = decoder.is_done
            reply, fault, problem = outcome(partial(_ended, decoder, deltas))
            if problem:
                yield f"{name} ended after {at} of {len(stream)} bytes: finish() {problem}"
            elif fault is not None:
                if fault.fault.kind != "interrupted" or done:
                    yield (
                        f"{name} ended after {at} of {len(stream)} bytes: kind {fault.fault.kind!r}, "
                        f"is_done {done}"
                    )
                if was_whole_at:
                    yield f"{name}: whole after {was_whole_at} bytes, and interrupted after {at}"
                text = _said(deltas)["text"]
                if decoder.partial_text != text:
                    yield (
                        f"{name}: after {at} bytes partial_text is {shown(decoder.partial_text)}, "
                        f"and the text deltas joined are {shown(text)}"
                    )
            elif not isinstance(reply, Reply) or reply.entries != wanted.entries:
                yield f"{name} ended after {at} of {len(stream)} bytes, and finish() took it for a reply"
            else:
                was_whole_at = was_whole_at or at


@check("is_done is true right after the terminal event, and nothing after it matters")
def _done(case: DialectCase) -> Findings:
    for name, sample in case.streamed():
        decoder, _ = _fed(case.dialect, [sample.stream])
        if not decoder.is_done:
            yield f"{name}: is_done is false at the end of the stream"
        if case.dialect.decoder().is_done:
            yield f"{name}: is_done is true before anything came"
        wanted = decoder.finish()
        if decoder.finish() != wanted:
            yield f"{name}: finish() said something else when it was asked again"
        if list(decoder.feed(b"\n\n")) or not decoder.is_done or decoder.finish() != wanted:
            yield f"{name}: an empty line after the end changed the reply"


@check("each decoder has a stream of its own")
def _apart(case: DialectCase) -> Findings:
    streams = [sample.stream for _, sample in case.streamed()]
    alone = [_fed(case.dialect, [stream])[0].finish() for stream in streams]
    decoders = [case.dialect.decoder() for _ in streams]
    try:
        for at in range(0, max(map(len, streams)), 50):
            for decoder, stream in zip(decoders, streams, strict=True):
                list(decoder.feed(stream[at : at + 50]))
        together = [decoder.finish() for decoder in decoders]
    except Exception as error:
        yield f"read at the same time as others, a stream raised {described(error)}"
        return
    for number, (reply, wanted) in enumerate(zip(together, alone, strict=True)):
        if reply != wanted:
            yield f"stream {number} gives another reply when others are read at the same time"


@check("an error event in a stream is a ProtocolFault of the right kind")
def _error_events(case: DialectCase) -> Findings:
    for number, sample in enumerate(case.samples.errors):
        if not sample.streamed:
            continue
        name = f"errors[{number}]"
        ways = {"in one piece": [sample.body], "byte by byte": [bytes((byte,)) for byte in sample.body]}
        for what, chunks in ways.items():
            try:
                _fed(case.dialect, chunks)
                yield f"{name} {what}: no exception"
            except ProtocolFault as fault:
                if fault.fault.kind != sample.kind:
                    yield f"{name} {what}: wanted kind {sample.kind!r}, got {fault.fault.kind!r}"


CHECKS: Final = (_twins, _any_cut, _early_end, _done, _apart, _error_events)
