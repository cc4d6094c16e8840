"""The questions that a strategy asks a model while a history is being compacted.

Owns: the way from an `AskModel` to its `ModelAnswer`, and its cost. Must never know: which turns stay, or the
use of the answer.

The question follows the prefix that the provider has in its cache: preamble, tools, the oldest turns, then
the instruction. Another backend gets a transcript instead. A question that fails raises `AskFailed` in the
strategy, and never fails the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from ..backends.base import Dialect, ModelRequest, ProtocolFault, Reply, RequestParts
from ..backends.protocols import CompactsHistory
from ..base.values import Value, replace
from ..compaction.base import AskFailed, AskModel, AskProvider, ModelAnswer
from ..compaction.turn_views import COMPACTED, TurnView, note_of
from ..types.messages import Message, Usage, user
from .flow import Flow, OpenBackend
from .ledger import Ledger
from .request import Voice, as_host_takes, carried
from .retry import Failure, fetch, with_retries

__all__ = ["Spent", "consult"]

MAX_ANSWER_BYTES: Final = 4 * 2**20
"""The largest body of an answer."""

MAX_WAIT_SECONDS: Final = 20.0
"""The longest pause before a retry of a question: the conversation does not need the answer."""


class Spent(Value, frozen=True, kw_only=True):
    """The costs of one answer: its usage, the model in the request, the model in the reply, and the dialect.

    `cost_usd`: its price in US dollars, if the provider names it.
    """

    usage: Usage
    asked: str
    answered: str
    dialect: Dialect
    cost_usd: Decimal | None = None


def _spent(reply: Reply, model: str, dialect: Dialect) -> Spent:
    """The costs of an answer, with a compaction that the provider did by itself."""
    usage = sum(reply.asides.values(), start=reply.usage)
    return Spent(usage=usage, asked=model, answered=reply.model, dialect=dialect, cost_usd=reply.cost_usd)


def consult(
    ledger: Ledger,
    voice: Callable[[], Voice],
    asks: Generator[Any, Any, Any],
    booked: Callable[[Spent], None],
    asking: Callable[[], None],
) -> Flow[Any]:
    """Run a strategy that asks questions to its end, and return its result.

    Args:
        ledger: The books of the turn.
        voice: Makes the other parts of a question's request. Called for each question.
        asks: The strategy, as a generator.
        booked: Called with the costs of an answer, as soon as the answer is there.
        asking: Called before each question. An `AskFailed` that it raises is thrown into the strategy.

    Raises:
        Exception: An exception of the strategy. If another exception, such as Ctrl-C, ends the strategy, that
            one is raised, and exceptions from closing the strategy are dropped.
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
            # A question takes long. Keep the turn's newest reply first, or a crash meanwhile would lose it.
            yield from ledger.checkpoint()
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
    # Before the request: a question costs money even if its answer never comes.
    ledger.has_acted = True
    if question.backend is None:
        model, dialect = voice.model, ledger.dialect
        reply = yield from _ask(ledger, voice, question, forbid_tools=False)
        if reply.calls:
            booked(_spent(reply, model, dialect))
            reply = yield from _ask(ledger, voice, question, forbid_tools=True)
    else:
        other = yield OpenBackend(question.backend)
        model, dialect = other.model, other.dialect
        reply = yield from _post(ledger, dialect, _transcript(other, question), other)
    booked(_spent(reply, model, dialect))
    if reply.calls:
        raise AskFailed("the model asked for a tool instead of answering")
    return ModelAnswer(text=reply.text, stop=reply.stop, usage=reply.usage, model=reply.model)


def _compaction(
    ledger: Ledger, voice: Voice, question: AskProvider, booked: Callable[[Spent], None]
) -> Flow[TurnView | None]:
    """The provider's own compaction of these turns; None if this provider API cannot compact."""
    dialect = ledger.dialect
    if not isinstance(dialect, CompactsHistory):
        return None
    parts = as_host_takes(ledger, _parts(ledger, voice, question.turns))
    request = dialect.compaction_request(parts, question.instructions)
    ledger.has_acted = True

    def read(body: bytes) -> Reply:
        try:
            return dialect.compacted(body)
        except ProtocolFault as exc:
            if exc.usage is not None:  # a server without this endpoint answered as usual, and charges for it
                booked(Spent(usage=exc.usage, asked=voice.model, answered="", dialect=dialect))
            raise

    reply = yield from _post(ledger, dialect, request, None, read)
    booked(_spent(reply, voice.model, dialect))
    return note_of(question.turns[0].words, reply.entries, COMPACTED)


def _ask(ledger: Ledger, voice: Voice, question: AskModel, *, forbid_tools: bool) -> Flow[Reply]:
    request = _behind(ledger, voice, question, forbid_tools=forbid_tools)
    return (yield from _post(ledger, ledger.dialect, request, None))


def _behind(ledger: Ledger, voice: Voice, question: AskModel, *, forbid_tools: bool) -> ModelRequest:
    """The question after the leading turns, which are written as in the conversation's own next request.

    Tools are forbidden only in a second try. At Anthropic another ``tool_choice`` makes the cached messages
    useless (platform.claude.com, prompt caching: "Changes to `tool_choice` parameter only affect message
    blocks"), and the question follows them to profit from that cache.
    """
    parts = _parts(ledger, voice, question.turns)
    if question.max_output_tokens is not None:
        # Thinking counts towards the limit, and another budget would make the cached messages useless.
        limit = question.max_output_tokens + parts.settings.get("thinking_budget_tokens", 0)
        parts = replace(parts, settings={**parts.settings, "max_output_tokens": limit})
    asked = ledger.dialect.entries([user(question.instruction)])
    whole = replace(parts, history=[*parts.history, *asked], forbid_tools=forbid_tools)
    return ledger.dialect.request(as_host_takes(ledger, whole))


def _parts(ledger: Ledger, voice: Voice, turns: Sequence[TurnView]) -> RequestParts:
    """These turns, written as in the conversation's own next request."""
    meta = ledger.state.meta
    return RequestParts(
        model=voice.model,
        history=[entry for turn in turns if turn.is_sent for entry in turn.entries],
        preamble=voice.preamble,
        tools=voice.tools.encoded,
        settings=voice.after_first().settings,
        cache_key=meta.id or None,
        carried=carried(meta, ledger.now.wall_ms) if meta.carry else {},
        has_system=meta.systems,
        # The signature of thinking covers the prefix before it. Within a turn the engine checks that the
        # prefix has not changed. Outside of a turn this line checks it.
        drop_signed=meta.unbound or (meta.signed and not voice.is_that_of(meta)),
    )


def _transcript(backend: Any, question: AskModel) -> ModelRequest:
    """The question to another backend: the turns as text, then the instruction."""
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
    """The messages of these turns as plain text, each with its role in front."""
    return "\n\n".join(_line(message) for turn in turns if turn.is_sent for message in turn.messages)


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
    """Send a question, with retries, and read its answer.

    Args:
        ledger: The books of the turn.
        dialect: The dialect of the backend.
        request: The question.
        backend: The backend; None for the turn's own.
        read: Reads the body, in place of the dialect's `reply`.

    Raises:
        AskFailed: There is no answer.
    """

    def attempt() -> Flow[Reply]:
        yield from ledger.tick()
        if ledger.is_late:
            raise AskFailed("the turn's time is up")
        times = ledger.call_times(is_streamed=False)
        body = yield from fetch(
            ledger, request, times, max_bytes=MAX_ANSWER_BYTES, dialect=dialect, backend=backend
        )
        try:
            return (read or dialect.reply)(body)
        except ProtocolFault as exc:
            # The server has answered, and would give the same answer again.
            raise Failure(replace(exc.fault, retryable=False), exc) from None

    return (yield from with_retries(ledger, attempt, error=_ask_failed, max_wait=MAX_WAIT_SECONDS))


def _ask_failed(failure: Failure) -> AskFailed:
    sdk_error = getattr(failure.cause, "sdk_error", None)
    if failure.passed == "timeout":
        return AskFailed("the turn's time is up", sdk_error=sdk_error)
    reason = failure.fault.code or failure.passed
    kind = f"{failure.fault.kind}: {reason}" if reason else failure.fault.kind
    return AskFailed(f"the model gave no answer ({kind})", sdk_error=sdk_error)
