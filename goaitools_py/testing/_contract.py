"""The shared parts of the dialect contract: its samples, and the form of a check.

Owns: the values of samples, the type of a check, small functions on replies and exceptions.
Must never know: a particular provider API, a test framework.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from ..backends.base import Dialect, FaultKind, ProtocolFault, Reply
from ..base import rawjson
from ..base.values import Value
from ..types.render import valid_text

__all__ = [
    "CANARY",
    "DialectCase",
    "DialectCheck",
    "DialectSamples",
    "SampleError",
    "SampleReply",
    "check",
    "first_findings",
    "flaws_of",
    "one_line_object",
    "quoted_by",
    "shown",
]

CANARY = "CANARY-7f3a"
"""A word in hostile bodies. No exception's text may hold it."""


class SampleReply(Value, frozen=True, kw_only=True):
    """One valid reply of the provider, and its content.

    Attributes:
        body: The reply as one body, or b"".
        stream: The same reply as a stream that ends with its terminal event, or b"".
        text: The reply's visible text.
        calls: The names of the called functions, in order.
        kept: Pieces of `body` that must be stored byte for byte, for example a signature, or a key that the
            dialect does not know.
    """

    _unshown = frozenset({"body", "stream", "text", "kept"})

    body: bytes = b""
    stream: bytes = b""
    text: str = ""
    calls: tuple[str, ...] = ()
    kept: tuple[bytes, ...] = ()


class SampleError(Value, frozen=True, kw_only=True):
    """One error of the provider, and its meaning.

    With a `status` of 400 or more, `body` is an error response. With 200 it is an error instead of a reply:
    one body or, if `streamed`, a stream that ends with its error event.
    """

    _unshown = frozenset({"body", "headers"})

    body: bytes
    kind: FaultKind
    status: int = 200
    headers: Mapping[str, str] = {}
    streamed: bool = False


class DialectSamples(Value, frozen=True, kw_only=True):
    """Responses of the provider, for `dialect_contract`.

    It needs at least a reply with text and one with calls, each as body and as stream, an error response, and
    a stream with an error event. Recorded bytes check more than invented ones.
    """

    replies: tuple[SampleReply, ...]
    errors: tuple[SampleError, ...]


class DialectCase(NamedTuple):
    """The input of a check."""

    dialect: Dialect
    samples: DialectSamples

    def whole(self) -> Iterator[tuple[str, SampleReply, Reply]]:
        """The samples with a body, each with its name and the reply that the dialect reads."""
        for number, sample in enumerate(self.samples.replies):
            if sample.body:
                yield f"replies[{number}]", sample, self.dialect.reply(sample.body)

    def streamed(self) -> Iterator[tuple[str, SampleReply]]:
        """The samples that have a stream, each with its name."""
        for number, sample in enumerate(self.samples.replies):
            if sample.stream:
                yield f"replies[{number}]", sample


Findings: TypeAlias = Iterator[str]
_Case = TypeVar("_Case")

_SHOWN_OF_A_CHECK = 3


class DialectCheck(NamedTuple):
    """One requirement of the protocol, and the function that looks for violations."""

    wants: str
    run: Callable[[DialectCase], Findings]


def check(wants: str) -> Callable[[Callable[[DialectCase], Findings]], DialectCheck]:
    """Make a check of a generator that yields violations of the rule `wants`."""

    def make(run: Callable[[DialectCase], Findings]) -> DialectCheck:
        return DialectCheck(wants, run)

    return make


def first_findings(run: Callable[[_Case], Findings], case: _Case) -> Findings:
    """The first findings of a check. An exception of the check is a finding, too."""
    try:
        yield from islice(run(case), _SHOWN_OF_A_CHECK)
    except Exception as error:
        yield f"raised {described(error)}"


# ------------------------------------------------------------------------------------- questions


def shown(value: object) -> str:
    """A value for a finding, shortened. Samples are test data and may be shown."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:90]}… ({len(text)} characters)"


def one_line_object(entry: object) -> str | None:
    """Why an entry is not one line with one JSON object; None if it is."""
    if not isinstance(entry, bytes):
        return f"is {type(entry).__name__}, not bytes"
    if b"\n" in entry:
        return "has a line break"
    try:
        rawjson.members(entry)
    except rawjson.RawJSONError as problem:
        return f"is no JSON object: {problem}"
    return None


def flaws_of(reply: Reply) -> Findings:
    """Problems that no reply may have."""
    for number, entry in enumerate(reply.entries):
        if problem := one_line_object(entry):
            yield f"entries[{number}] {problem}: {shown(entry)}"
    ids = [call.id for call in reply.calls]
    if not all(isinstance(id, str) and id for id in ids):
        yield f"a call has no id: {shown(ids)}"
    if len(set(ids)) != len(ids):
        yield f"two calls have one id: {shown(ids)}"
    if not all(isinstance(call.arguments, str) and isinstance(call.name, str) for call in reply.calls):
        yield "the name and the arguments of a call must be str"
    if reply.run_calls and not reply.calls:
        yield "run_calls is true without calls"
    if reply.run_calls and reply.stop != "end":
        yield f"a reply with calls that may run has stop 'end', not {reply.stop!r}"
    if reply.stop not in ("end", "length", "refusal", "pause"):
        yield f"stop is {reply.stop!r}"
    for name, (value, until) in reply.carried.items():
        if not isinstance(value, str) or len(value) > 256 or not isinstance(until, int) or until < 0:
            yield f"carried[{name!r}] must be at most 256 characters and a time in milliseconds, 0 for ever"
    for name, text in (("text", reply.text), ("reasoning", reply.reasoning)):
        if not isinstance(text, str):
            yield f"{name} is {type(text).__name__}, not str"
        elif valid_text(text) != text:
            yield f"{name} holds half a surrogate pair, which cannot be encoded; render.valid_text mends it"


def quoted_by(error: BaseException, words: Sequence[str]) -> str | None:
    """The first of `words` that a log of the exception and its causes would hold."""
    written = "".join(line for line in _messages(error))
    return next((word for word in words if word in written), None)


def _messages(error: BaseException) -> Iterator[str]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield from traceback.format_exception_only(link)
        waiting += (link.__cause__, link.__context__)


def outcome(call: Callable[[], object]) -> tuple[object, ProtocolFault | None, str]:
    """The result of a call, its `ProtocolFault`, or a description of another exception."""
    try:
        return call(), None, ""
    except ProtocolFault as fault:
        return None, fault, ""
    except Exception as error:
        return None, None, f"raised {described(error)}"


def described(error: BaseException) -> str:
    """An exception's type and text, and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:120]}{where}"
