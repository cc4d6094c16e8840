"""The part of the dialect contract about other things than replies: error responses, and arbitrary bytes.

Owns: these checks. Must never know: a particular provider API, a test framework.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from ..backends.base import Dialect, FaultKind, ProtocolFault, Reply
from ._contract import CANARY, DialectCase, Findings, check, described, flaws_of, outcome, quoted_by, shown

__all__ = ["CHECKS"]

_SEED: Final = 20_240_229
_MUTANTS: Final = 400
"""The largest number of changed copies of one sample."""

_SECONDS: Final = 1.0
"""CPU seconds for reading one hostile body of a megabyte. A linear reader needs a fifth of it."""
_TRIES: Final = 3
"""The fastest reading counts: on a shared machine another program makes a single one several times slower."""

_KINDS: Final[Mapping[int, tuple[tuple[FaultKind, ...], bool | None]]] = {
    400: (("rejected",), False),
    401: (("auth",), False),
    403: (("auth",), False),
    404: (("rejected",), False),
    408: (("unavailable",), True),
    409: (("unavailable",), None),
    413: (("rejected", "context"), False),
    422: (("rejected",), False),
    429: (("rate_limit",), True),
    500: (("unavailable",), True),
    503: (("unavailable",), True),
    529: (("unavailable",), True),
}
"""The kinds that a status may mean, and whether to retry; None where providers differ."""

_ODD_BODIES: Final[Mapping[str, bytes]] = {
    "nothing": b"",
    "null": b"null",
    "HTML": f"<html><body>502 {CANARY}</body></html>".encode(),
    "a string": f'"{CANARY}"'.encode(),
    "a number": b"17",
    "a list": f'["{CANARY}"]'.encode(),
    "an empty object": b"{}",
    "an object of something else": f'{{"{CANARY}":{{"{CANARY}":["{CANARY}"]}}}}'.encode(),
    "an error object": f'{{"error":{{"message":"{CANARY}","type":"{CANARY} x","code":null}}}}'.encode(),
    "an error string": f'{{"error":"{CANARY}"}}'.encode(),
    "an error list": f'{{"error":["{CANARY}"],"type":["{CANARY}"],"message":[1]}}'.encode(),
    "a cut-off object": f'{{"error":{{"message":"{CANARY}'.encode(),
    "no UTF-8": b'{"' + CANARY.encode() + b'":"\xff\xfe"}',
    "UTF-16": f'{{"a":"{CANARY}"}}'.encode("utf-16"),
    "a NUL": b"\x00",
}

_LARGE_BODIES: Final[Mapping[str, bytes]] = {
    "a million brackets": b"[" * 1_000_000,
    "deep objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "a million digits": b'{"a":' + b"7" * 1_000_000 + b"}",
    "a million backslashes": b'{"a":"' + b"\\" * 1_000_000 + b'"}',
    "an open string of a megabyte": b'{"a":"' + b"x" * 1_000_000,
    "a megabyte of spaces": b" " * 1_000_000,
}


# ------------------------------------------------------------------------------------ error answers


@check("fault() says what an error status means, whatever the body is")
def _statuses(case: DialectCase) -> Findings:
    for status, (kinds, retryable) in _KINDS.items():
        for what, body in _ODD_BODIES.items():
            fault = case.dialect.fault(status, {}, body)
            if fault.kind not in kinds:
                yield f"{status} with {what}: wanted {' or '.join(map(repr, kinds))}, got {fault.kind!r}"
            elif retryable is not None and fault.retryable is not retryable:
                yield f"{status} with {what}: retryable must be {retryable}"
            if CANARY in fault.code:
                yield f"{status} with {what}: code must be a name, not the provider's prose"
    for what, body in _LARGE_BODIES.items():
        yield from _timed(f"500 with {what}", partial(case.dialect.fault, 500, {}, body))


@check("fault() reads when to try again from the header retry-after, in seconds")
def _retry_after(case: DialectCase) -> Findings:
    for status in (429, 503):
        fault = case.dialect.fault(status, {"retry-after": "7"}, b"")
        if fault.retry_after != 7.0:
            yield f"{status} with 'retry-after: 7': got {fault.retry_after!r}"
        for odd in ("soon", "", "nan", "-5", "1e999", "Wed, 21 Oct 2015 07:28:00 GMT"):
            wait = case.dialect.fault(status, {"retry-after": odd}, b"").retry_after
            if wait is not None and not 0 <= wait < 1e9:
                yield f"{status} with 'retry-after: {odd}': got {wait!r}"
    if case.dialect.fault(500, {}, b"").retry_after is not None:
        yield "without the header retry_after must be None"


@check("fault(), reply() and feed() say of each sample error what it means")
def _sample_errors(case: DialectCase) -> Findings:
    for number, sample in enumerate(case.samples.errors):
        name = f"errors[{number}]"
        if sample.status >= 400:
            fault = case.dialect.fault(sample.status, sample.headers, sample.body)
            if fault.kind != sample.kind:
                yield f"{name}: wanted kind {sample.kind!r}, got {fault.kind!r}"
        elif not sample.streamed:
            body = sample.body
            _, found, problem = outcome(partial(case.dialect.reply, body))
            if found is None:
                yield f"{name}: reply() {problem or 'took it for a reply'}"
            elif found.fault.kind != sample.kind:
                yield f"{name}: wanted kind {sample.kind!r}, got {found.fault.kind!r}"


# ------------------------------------------------------------------------- bytes that are no reply


@check("reply() raises ProtocolFault, and nothing else, for a body that is no reply; its text quotes nothing")
def _odd_bodies(case: DialectCase) -> Findings:
    for what, body in _ODD_BODIES.items():
        yield from _refused(what, partial(case.dialect.reply, body), [CANARY])
    for what, body in _LARGE_BODIES.items():
        yield from _timed(what, partial(case.dialect.reply, body))
        yield from _refused(what, partial(case.dialect.reply, body), [])
    for name, sample, _ in case.whole():
        words = _words_of(sample.text)
        for at in _some(range(len(sample.body.rstrip()) - 1), 60):
            cut = sample.body[:at]
            yield from _refused(
                f"{name} cut after byte {at}",
                partial(case.dialect.reply, cut),
                words,
            )


@check("feed() and finish() raise ProtocolFault, and nothing else, for bytes that are no stream")
def _odd_streams(case: DialectCase) -> Findings:
    for what, body in {**_ODD_BODIES, **_LARGE_BODIES}.items():
        for frame in (b"%b", b"%b\n\n", b"data: %b\n\n"):
            stream = frame % body
            yield from _timed(what, partial(_read, case.dialect, stream))
            yield from _refused(what, partial(_read, case.dialect, stream), [CANARY])
    for name, sample in case.streamed():
        hostile = sample.stream[: len(sample.stream) // 2] + b"\n\n" + b"[" * 1_000_000 + b"\n\n"
        yield from _timed(f"{name} with a million brackets", partial(_read, case.dialect, hostile))


@check("a decoder takes time in the length of an event, whatever way it is cut")
def _long_event(case: DialectCase) -> Findings:
    chunk = b"x" * 256

    def feed() -> None:
        decoder = case.dialect.decoder()
        for _ in range(16_384):
            list(decoder.feed(chunk))

    yield from _timed("an event of 4 MiB that does not end, in pieces of 256 bytes", feed)


@check("a reply with odd values in it is a ProtocolFault, or a reply that is well formed all the same")
def _odd_values(case: DialectCase) -> Findings:
    for name, sample, _ in case.whole():
        words = [CANARY, *_words_of(sample.text)]
        for what, body in _mutants(sample.body):
            yield from _sound(f"{name} with {what}", case.dialect, partial(case.dialect.reply, body), words)


@check("a stream with odd values in it is a ProtocolFault, or a reply that is well formed all the same")
def _odd_events(case: DialectCase) -> Findings:
    for name, sample in case.streamed():
        words = [CANARY, *_words_of(sample.text)]
        for what, stream in _stream_mutants(sample.stream):
            yield from _sound(
                f"{name} with {what}", case.dialect, partial(_read, case.dialect, stream), words
            )


@check("view(), unsigned() and settled() read entries of any JSON object, or raise ValueError")
def _odd_entries(case: DialectCase) -> Findings:
    dialect = case.dialect
    hostile = [
        b"{}",
        b'{"role":"assistant"}',
        b'{"role":5,"type":[],"content":{"a":[null]}}',
        b"not JSON",
        b"[]",
    ]
    hostile += [entry for _, _, reply in case.whole() for one in reply.entries for _, entry in _mutants(one)]
    for entry in hostile:
        for read in (dialect.view, dialect.unsigned, dialect.settled):
            try:
                read([entry])
            except ValueError:
                pass
            except Exception as error:
                yield f"{read.__name__}() of {shown(entry)}: raised {described(error)}"
    deep = b'{"role":"user","content":' + b"[" * 100_000
    for read in (dialect.view, dialect.unsigned, dialect.settled):
        yield from _timed(f"{read.__name__}() of deep nesting", partial(read, [deep]))


# ----------------------------------------------------------------------------------- how it is looked at


def _read(dialect: Dialect, stream: bytes) -> Reply:
    decoder = dialect.decoder()
    list(decoder.feed(stream))
    return decoder.finish()


def _refused(what: str, call: Callable[[], object], words: list[str]) -> Findings:
    _, fault, problem = outcome(call)
    if fault is None:
        yield f"{what}: {problem or 'was taken for a reply'}"
    elif word := quoted_by(fault, words):
        yield f"{what}: the exception's text, or a cause's, quotes the body ({shown(word)})"


def _sound(what: str, dialect: Dialect, call: Callable[[], Reply], words: list[str]) -> Findings:
    try:
        reply = call()
    except ProtocolFault as fault:
        if word := quoted_by(fault, words):
            yield f"{what}: the exception's text, or a cause's, quotes the body ({shown(word)})"
        return
    except Exception as error:
        yield f"{what}: raised {described(error)}"
        return
    yield from (f"{what}: {flaw}" for flaw in flaws_of(reply))
    try:
        calls = [call for message in dialect.view(reply.entries) for call in message.tool_calls]
        dialect.without_calls(reply)
        dialect.with_call_ids(reply, [f"call_{number}" for number, _ in enumerate(reply.calls)])
        dialect.unsigned(reply.entries)
        dialect.settled(reply.entries)
    except Exception as error:
        yield f"{what}: it was taken for a reply, and then {described(error)}"
        return
    if [call.id for call in calls] != [call.id for call in reply.calls]:
        yield f"{what}: view() reads other calls in the entries than the reply has"


def _timed(what: str, call: Callable[[], object]) -> Findings:
    fastest = math.inf
    for _ in range(_TRIES):
        began = time.thread_time()
        outcome(call)
        fastest = min(fastest, time.thread_time() - began)
        if fastest <= _SECONDS:
            return
    yield f"{what}: took {fastest:.1f} seconds"


def _words_of(text: str) -> list[str]:
    """A part of a reply's text that can be found in an exception's text."""
    return [text] if len(text) >= 8 else []


def _some(values: range, most: int) -> list[int]:
    return list(values) if len(values) <= most else sorted(random.Random(_SEED).sample(values, most))


# -------------------------------------------------------------------------------------- odd values

_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    10**400,
    1.5,
    CANARY,
    "\ud83d",
    "",
    [],
    {},
    [None],
    [CANARY],
    {"": None},
    [[[[[[[[[[[]]]]]]]]]]],
)
_LARGE_FLOAT: Final = "a number too large"
_DEEP: Final = "300 brackets"


def _mutants(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Copies of a JSON text with one value replaced or left out: a sample of all possible copies."""
    try:
        document = json.loads(body)
    except ValueError:
        return
    ways = [(path, odd) for path in _paths(document) for odd in (*_ODD, _LARGE_FLOAT, _DEEP, _Gone)]
    source = random.Random(_SEED)
    for path, odd in ways if len(ways) <= _MUTANTS else source.sample(ways, _MUTANTS):
        copy = json.loads(body)
        inner = copy
        for step in path[:-1]:
            inner = inner[step]
        if odd is _Gone:
            del inner[path[-1]]
        else:
            inner[path[-1]] = odd
        text = (
            json.dumps(copy)
            .replace(f'"{_LARGE_FLOAT}"', "1e999")
            .replace(f'"{_DEEP}"', "[" * 300 + "]" * 300)
        )
        where = ".".join(map(str, path))
        yield f"{where} {'left out' if odd is _Gone else f'= {shown(odd)}'}", text.encode()


class _Gone:
    """Stands for a value that is left out."""


def _paths(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _paths(member, (*at, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _paths(element, (*at, index))


_SCALAR: Final = re.compile(rb'(?<=":)\s*+("(?:[^"\\]|\\.)*+"|-?\d[\d.eE+-]*+|true|false|null|\{\}|\[\])')

_ODD_TOKENS: Final = (
    b"null",
    b"true",
    b"-1",
    b"9" * 400,
    b"1e999",
    f'"{CANARY}"'.encode(),
    b'"\\ud83d"',
    b'""',
    b"[]",
    b"{}",
    b"[null]",
    b'{"":[null]}',
    b"[" * 300 + b"]" * 300,
)


def _stream_mutants(stream: bytes) -> Iterator[tuple[str, bytes]]:
    """Copies of a stream with one JSON scalar replaced, or one line left out."""
    spans = [match.span(1) for match in _SCALAR.finditer(stream)]
    ways = [(span, odd) for span in spans for odd in _ODD_TOKENS]
    for (start, end), odd in ways if len(ways) <= _MUTANTS else random.Random(_SEED).sample(ways, _MUTANTS):
        yield f"{shown(odd)} in place of bytes {start} to {end}", stream[:start] + odd + stream[end:]
    lines = stream.splitlines(keepends=True)
    for number in _some(range(len(lines)), 60):
        yield f"line {number} left out", b"".join(lines[:number] + lines[number + 1 :])
        yield f"line {number} twice", b"".join(lines[: number + 1] + lines[number:])


CHECKS: Final = (
    _statuses,
    _retry_after,
    _sample_errors,
    _odd_bodies,
    _odd_streams,
    _long_event,
    _odd_values,
    _odd_events,
    _odd_entries,
)
