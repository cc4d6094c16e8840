"""The part of the dialect contract about replies: read whole, stored, cut and viewed; and as streams, with
every cut, every early end and every error event.

Owns: these checks. Must never know: a particular provider API, how its events are framed, a test framework.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ..backends.base import Delta, Dialect, ProtocolFault, Reply, StreamDecoder
from ..backends.protocols import problems_of
from ..base import rawjson
from ..types.messages import user
from ._contract import DialectCase, Findings, SampleReply, check, described, flaws_of, outcome, shown
from ._contract_writing import answers_to, history_of

__all__ = ["CHECKS", "neutral"]


def neutral(reply: Reply) -> tuple[object, ...]:
    """The content of a reply, without the stored bytes."""
    return (
        reply.text,
        reply.reasoning,
        tuple((call.name, call.arguments, call.kind) for call in reply.calls),
        reply.stop,
        reply.run_calls,
    )


@check("reply() reads the text and the calls that the sample holds")
def _reading(case: DialectCase) -> Findings:
    for name, sample, reply in case.whole():
        calls = tuple(call.name for call in reply.calls)
        if reply.text != sample.text:
            yield f"{name}: wanted text {shown(sample.text)}, got {shown(reply.text)}"
        if calls != sample.calls:
            yield f"{name}: wanted calls of {shown(sample.calls)}, got {shown(calls)}"
        if not reply.entries:
            yield f"{name}: nothing of it would be stored"
        if reply != case.dialect.reply(sample.body):
            yield f"{name}: reading it twice gives two different replies"
        if reply.usage.requests != 1:
            yield f"{name}: usage.requests must be 1, got {reply.usage.requests}"


@check("a reply's entries are lines of JSON, its call ids unique, its calls run only if they are whole")
def _well_formed(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        yield from (f"{name}: {flaw}" for flaw in flaws_of(reply))


@check("reply() stores the provider's bytes, on one line each however they were laid out")
def _verbatim(case: DialectCase) -> Findings:
    for name, sample, reply in case.whole():
        stored = b",\n".join(reply.entries)
        for piece in sample.kept:
            if piece not in stored:
                yield f"{name}: {shown(piece)} is not in the entries as it came"
        laid_out = json.dumps(json.loads(sample.body), indent=2).replace("\n", "\r\n").encode()
        other = case.dialect.reply(laid_out)
        yield from (f"{name}, laid out over lines: {flaw}" for flaw in flaws_of(other))
        said = (other.text, other.stop, [call.name for call in other.calls])
        if said != (reply.text, reply.stop, [call.name for call in reply.calls]):
            yield f"{name}: laid out over lines it says something else"


@check("view() reads a reply's entries as one assistant message that says what the reply says")
def _view(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        seen = case.dialect.view(reply.entries)
        if len(seen) != 1:
            yield f"{name}: {len(reply.entries)} entries were read as {len(seen)} messages"
            continue
        (message,) = seen
        if message.role != "assistant":
            yield f"{name}: wanted role 'assistant', got {message.role!r}"
        if message.text != reply.text:
            yield f"{name}: wanted text {shown(reply.text)}, got {shown(message.text)}"
        if message.tool_calls != reply.calls:
            yield f"{name}: wanted the calls {shown(reply.calls)}, got {shown(message.tool_calls)}"
        if message.raw != b",\n".join(reply.entries):
            yield f"{name}: raw is not the entries joined by ',\\n' but {shown(message.raw)}"


@check("view() of a whole exchange finds its messages in order")
def _view_of_an_exchange(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        asked = case.dialect.entries([user("Well?")])
        results = case.dialect.results(answers_to(reply.calls)) if reply.calls else []
        seen = case.dialect.view([*asked, *reply.entries, *results, *asked])
        wanted = ["user", "assistant", *("tool" for _ in reply.calls), "user"]
        if [message.role for message in seen] != wanted:
            yield f"{name}: wanted {wanted}, got {[message.role for message in seen]}"


@check("without_calls() leaves the text, no call, and a history that the provider takes")
def _without_calls(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        cut = case.dialect.without_calls(reply)
        if not reply.calls:
            if cut.entries != reply.entries:
                yield f"{name}: it has no calls, and its entries changed"
            continue
        if cut.calls or cut.run_calls:
            yield f"{name}: calls are left in the reply"
        if any(message.tool_calls for message in case.dialect.view(cut.entries)):
            yield f"{name}: calls are left in the entries"
        if any(call.id.encode() in entry for call in reply.calls for entry in cut.entries):
            yield f"{name}: the id of a call is left in the entries"
        if cut.text != reply.text or "".join(m.text for m in case.dialect.view(cut.entries)) != reply.text:
            yield f"{name}: the text did not stay"
        if not reply.text and cut.entries:
            yield f"{name}: it said nothing beside its calls, so entries must be ()"
        yield from (f"{name}: {flaw}" for flaw in flaws_of(cut))


@check("with_call_ids() changes the calls' ids, in the calls and in the entries, and nothing else")
def _with_call_ids(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        if not reply.calls:
            continue
        old = [call.id for call in reply.calls]
        new = [f"call_{number:024d}" for number, _ in enumerate(old)]
        renamed = case.dialect.with_call_ids(reply, new)
        seen = [call for message in case.dialect.view(renamed.entries) for call in message.tool_calls]
        if [call.id for call in renamed.calls] != new or [call.id for call in seen] != new:
            yield f"{name}: the new ids are not in the calls and in the entries"
        if neutral(renamed) != neutral(reply):
            yield f"{name}: something else than the ids changed"
        back = case.dialect.with_call_ids(renamed, old)
        if list(map(_tokens, back.entries)) != list(map(_tokens, reply.entries)) or back.calls != reply.calls:
            yield f"{name}: giving the calls their old ids again does not give the same reply"
        if case.dialect.with_call_ids(reply, old).entries != reply.entries:
            yield f"{name}: giving the calls the ids that they have changes the entries"
        try:
            case.dialect.with_call_ids(reply, [*new, "one_more"])
            yield f"{name}: an id too many must be a ValueError"
        except ValueError:
            pass


@check("unsigned() gives one entry for each, the very same object where nothing is signed, and is idempotent")
def _unsigned(case: DialectCase) -> Findings:
    own = history_of(case.dialect)
    if not _same_objects(case.dialect.unsigned(own), own):
        yield "entries of callers changed"
    if list(case.dialect.unsigned([])) != []:
        yield "no entries became some"
    for name, _, reply in case.whole():
        entries = list(reply.entries)
        bare = case.dialect.unsigned(entries)
        if len(bare) != len(entries):
            yield f"{name}: {len(entries)} entries became {len(bare)}"
            continue
        if not reply.signed and not _same_objects(bare, entries):
            yield f"{name}: the reply is not signed, and its entries are not the objects they were"
        if reply.signed and bare == entries:
            yield f"{name}: the reply is signed, and unsigned() took nothing out"
        again = case.dialect.unsigned([entry for entry in bare if entry])
        if not _same_objects(again, [entry for entry in bare if entry]):
            yield f"{name}: doing it twice changes something"
        left = case.dialect.view([entry for entry in bare if entry])
        if "".join(m.text for m in left) != reply.text or sum(len(m.tool_calls) for m in left) != len(
            reply.calls
        ):
            yield f"{name}: text or calls are gone with the signed blocks"


@check("settled() gives one entry for each, the very same object where nothing is cut, and is idempotent")
def _settled(case: DialectCase) -> Findings:
    for name, _, reply in case.whole():
        entries = list(reply.entries)
        settled = case.dialect.settled(entries)
        if len(settled) != len(entries):
            yield f"{name}: {len(entries)} entries became {len(settled)}"
            continue
        if reply.stop != "pause" and not _same_objects(settled, entries):
            yield f"{name}: the reply was not paused, and its entries are not the objects they were"
        kept = [entry for entry in settled if entry]
        if not _same_objects(case.dialect.settled(kept), kept):
            yield f"{name}: doing it twice changes something"


@check("what the dialect makes is a history that the wire's rules allow (check_history)")
def _rules(case: DialectCase) -> Findings:
    dialect = case.dialect
    asked = dialect.entries([user("Well?")])
    for name, _, reply in case.whole():
        results = dialect.results(answers_to(reply.calls)) if reply.calls else []
        histories = {
            "with its results": [*asked, *reply.entries, *results, *asked],
            "without its calls": [*asked, *dialect.without_calls(reply).entries, *asked],
            "unsigned": [*asked, *filter(None, dialect.unsigned(reply.entries)), *results, *asked],
        }
        if not reply.calls:
            histories["settled"] = [*asked, *filter(None, dialect.settled(reply.entries)), *asked]
        for what, entries in histories.items():
            if (what == "with its results" or what == "unsigned") and reply.stop == "pause":
                continue
            for problem in problems_of(dialect, entries, unique_ids=True):
                yield f"{name} {what}: {problem}"


def _tokens(entry: bytes) -> bytes:
    """JSON without the spaces between its tokens."""
    return re.sub(rb'("(?:[^"\\]|\\.)*+")|[ \t\r\n]+', rb"\1", entry)


def _same_objects(got: object, wanted: list[bytes]) -> bool:
    return (
        isinstance(got, (list, tuple))
        and len(got) == len(wanted)
        and all(one is other for one, other in zip(got, wanted, strict=True))
    )


_OF_BODIES: Final = (
    _reading,
    _well_formed,
    _verbatim,
    _view,
    _view_of_an_exchange,
    _without_calls,
    _with_call_ids,
    _unsigned,
    _settled,
    _rules,
)


# ----------------------------------------------------------------------------------------------- streams


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


_OF_STREAMS: Final = (_twins, _any_cut, _early_end, _done, _apart, _error_events)

CHECKS: Final = (*_OF_BODIES, *_OF_STREAMS)
