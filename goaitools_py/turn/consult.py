"""A strategy's own questions to a model, while a history is being compacted.

Owns: the way from an `AskModel` to its `ModelAnswer`, and what it cost. Must never know: which turns stay,
or what becomes of the answer.

The question goes behind the very prefix that the provider has in its cache: preamble, tools, the oldest
turns, then the instruction. Another backend gets a transcript instead. Whatever goes wrong is told to the
strategy as `AskFailed`; it is never the turn's error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Final

from ..backends.base import (
    REDIRECTED,
    BackendError,
    CompactsHistory,
    Dialect,
    Fault,
    ModelRequest,
    ProtocolFault,
    Reply,
    RequestParts,
)
from ..compaction.base import AskFailed, AskModel, AskProvider, ModelAnswer
from ..compaction.turns import COMPACTED, TurnView, note_of
from ..messages import Message, Usage, user
from ..values import Value, replace
from .bodies import read_chunks
from .flow import CallModel, Flow, OpenBackend, Sleep
from .ledger import Ledger
from .voice import Voice

__all__ = ["Spent", "consult"]

MAX_ANSWER_BYTES: Final = 4 * 2**20
MAX_WAIT_SECONDS: Final = 20.0

"""No longer pause is made for a question that the conversation can do without."""

_MAY_PASS: Final = frozenset({"unavailable", "interrupted", "rate_limit"})
"""Kinds of failures without an answer that another try may not meet."""


class Spent(Value, frozen=True, kw_only=True):
    """What one answer consumed, and who gave it."""

    usage: Usage
    asked: str
    answered: str
    dialect: Dialect


def consult(
    ledger: Ledger,
    voice: Callable[[], Voice],
    asks: Generator[Any, Any, Any],
    booked: Callable[[Spent], None],
    asking: Callable[[], None],
) -> Flow[Any]:
    """Run a strategy that asks, to its end; the answer is what it returns.

    `asking` is called before each question; `AskFailed` from it is the question's answer. `booked` is told
    what an answer cost, as soon as it is there. What a strategy raises while it is given up takes the place
    of nothing: not of Ctrl-C, say.
    """
    answer: ModelAnswer | TurnView | None = None
    failure: AskFailed | None = None
    try:
        while True:
            try:
                question = asks.throw(failure) if failure is not None else asks.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = failure = None
            if not isinstance(question, (AskModel, AskProvider)):
                raise TypeError(
                    f"a strategy may yield AskModel or AskProvider, not {type(question).__name__}"
                )
            try:
                if isinstance(question, AskModel) or isinstance(ledger.dialect, CompactsHistory):
                    asking()
            except AskFailed as exc:
                failure = exc
                continue
            yield from ledger.checkpoint()  # it takes its time, and a reply may be waiting for it
            try:
                if isinstance(question, AskModel):
                    answer = yield from _answer(ledger, voice(), question, booked)
                else:
                    answer = yield from _compaction(ledger, voice(), question, booked)
            except AskFailed as exc:
                failure = exc
    finally:
        with suppress(Exception):
            asks.close()


def _answer(
    ledger: Ledger, voice: Voice, question: AskModel, booked: Callable[[Spent], None]
) -> Flow[ModelAnswer]:
    ledger.has_acted = True
    if question.backend is None:
        model, dialect = voice.model, ledger.dialect
        reply = yield from _ask(ledger, voice, question, forbid_tools=False)
        if reply.calls:
            booked(Spent(usage=_consumed(reply), asked=model, answered=reply.model, dialect=dialect))
            reply = yield from _ask(ledger, voice, question, forbid_tools=True)
    else:
        other = yield OpenBackend(question.backend)
        model, dialect = other.model, other.dialect
        reply = yield from _post(ledger, dialect, _transcript(other, question), other)
    booked(Spent(usage=_consumed(reply), asked=model, answered=reply.model, dialect=dialect))
    if reply.calls:
        raise AskFailed("the model asked for a tool instead of answering")
    return ModelAnswer(text=reply.text, stop=reply.stop, usage=reply.usage, model=reply.model)


def _consumed(reply: Reply) -> Usage:
    """What an answer took, a compaction of the provider's own accord included."""
    return reply.usage if reply.aside is None else reply.usage + reply.aside


def _compaction(
    ledger: Ledger, voice: Voice, question: AskProvider, booked: Callable[[Spent], None]
) -> Flow[TurnView | None]:
    """The provider's own compaction of these turns; None if this wire has none."""
    dialect = ledger.dialect
    if not isinstance(dialect, CompactsHistory):
        return None
    request = dialect.compaction_request(_parts(ledger, voice, question.turns), question.instructions)
    ledger.has_acted = True

    def read(body: bytes) -> Reply:
        try:
            return dialect.compacted(body)
        except ProtocolFault as exc:
            if exc.usage is not None:  # a server that knows no such thing has answered, and is paid
                booked(Spent(usage=exc.usage, asked=voice.model, answered="", dialect=dialect))
            raise

    reply = yield from _post(ledger, dialect, request, None, read)
    booked(Spent(usage=reply.usage, asked=voice.model, answered=reply.model, dialect=dialect))
    return note_of(question.turns[0].words, reply.entries, COMPACTED)


def _ask(ledger: Ledger, voice: Voice, question: AskModel, *, forbid_tools: bool) -> Flow[Reply]:
    request = _behind(ledger, voice, question, forbid_tools=forbid_tools)
    return (yield from _post(ledger, ledger.dialect, request, None))


def _behind(ledger: Ledger, voice: Voice, question: AskModel, *, forbid_tools: bool) -> ModelRequest:
    """The question behind the leading turns, as the conversation's own next request would have them.

    To forbid the tools is for a second try: at Anthropic another ``tool_choice`` throws away what is cached
    of the messages (platform.claude.com, prompt caching: "Changes to `tool_choice` parameter only affect
    message blocks"), and that is what the question stands here for.
    """
    parts = _parts(ledger, voice, question.turns)
    if question.max_output_tokens is not None:
        parts = replace(parts, settings={**parts.settings, "max_output_tokens": question.max_output_tokens})
    asked = ledger.dialect.entries([user(question.instruction)])
    return ledger.dialect.request(replace(parts, history=[*parts.history, *asked], forbid_tools=forbid_tools))


def _parts(ledger: Ledger, voice: Voice, turns: Sequence[TurnView]) -> RequestParts:
    """These turns as the conversation's own next request would have them."""
    meta = ledger.state.meta
    return RequestParts(
        model=voice.model,
        history=[entry for turn in turns for entry in turn.entries],
        preamble=voice.preamble,
        tools=voice.tools,
        settings=voice.after_first().settings,
        cache_key=meta.id or None,
        carried={name: value for name, (value, _) in meta.carry.items()},
        has_system=meta.systems,
        # Outside a turn nobody has seen to it that thinking stands behind the prefix that it was signed over.
        drop_signed=meta.unbound or (meta.signed and not voice.is_that_of(meta)),
    )


def _transcript(backend: Any, question: AskModel) -> ModelRequest:
    """The question to another model: the turns as text, then the instruction."""
    if not backend.model:
        raise AskFailed("the other backend names no model")
    said = f"{transcript(question.turns)}\n\n{question.instruction}"
    settings = {}
    if question.max_output_tokens is not None:
        settings["max_output_tokens"] = question.max_output_tokens
    dialect: Dialect = backend.dialect
    return dialect.request(
        RequestParts(model=backend.model, history=dialect.entries([user(said)]), settings=settings)
    )


def transcript(turns: Sequence[TurnView]) -> str:
    """What was said, as plain text with a line for who said it."""
    return "\n\n".join(_line(message) for turn in turns for message in turn.messages)


def _line(message: Message) -> str:
    if message.is_event:
        return f"event: {message.text}"
    calls = "".join(f"\n[calls {call.name} {call.arguments}]" for call in message.tool_calls)
    media = sum(1 for part in message.parts if not hasattr(part, "text"))
    return f"{message.role}: {message.text}{f' [{media} media parts]' if media else ''}{calls}"


def _post(
    ledger: Ledger,
    dialect: Dialect,
    request: ModelRequest,
    backend: Any,
    read: Callable[[bytes], Reply] | None = None,
) -> Flow[Reply]:
    """Send and read, with a few tries. Raises `AskFailed`. `read`: not the dialect's own `reply`."""
    retries = ledger.plan.max_retries
    for attempt in range(retries + 1):
        yield from ledger.tick()
        if ledger.is_late:
            raise AskFailed("the turn's time is up")
        times, chunks = ledger.call_times(is_streamed=False), list[bytes]()
        try:
            yield CallModel(replace(request, timeout=times.left(ledger.now.monotonic, begun=True)), backend)
            yield from read_chunks(ledger, times, chunks, max_bytes=MAX_ANSWER_BYTES)
            return (read or dialect.reply)(b"".join(chunks))
        except BackendError as exc:
            yield from ledger.tick()
            passed = times.passed(ledger.now.monotonic, begun=True) if exc.timed_out else ""
            if passed == "timeout":
                raise AskFailed("the turn's time is up", sdk_error=exc.sdk_error) from None
            if passed:
                fault = Fault(kind="unavailable", code=passed, retryable=True)
            elif exc.redirect is not None:
                fault = REDIRECTED
            elif exc.status is None:
                fault = Fault(kind=exc.kind, retryable=exc.kind in _MAY_PASS)
            else:
                fault = dialect.fault(exc.status, exc.headers, exc.body)
            sdk_error = exc.sdk_error
        except ProtocolFault as exc:
            fault, sdk_error = replace(exc.fault, retryable=False), None
        wait = 0.5 * 2.0**attempt if fault.retry_after is None else fault.retry_after
        left = ledger.left()
        longest = MAX_WAIT_SECONDS if left is None else min(MAX_WAIT_SECONDS, left)
        if not fault.retryable or attempt == retries or wait > longest:
            code = f": {fault.code}" if fault.code else ""
            raise AskFailed(f"the model gave no answer ({fault.kind}{code})", sdk_error=sdk_error)
        yield Sleep(wait)
    raise AssertionError("unreachable")
