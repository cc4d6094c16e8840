"""The log records of a turn, for the standard library's ``logging``.

Owns: the names of loggers and of events, the facts of each record, and the logger of content. Must never
know: how a turn runs, or where records go.

Every record has its name in ``record.event``, such as "tool.finished", and its facts as attributes
(``extra=``). Messages and results of tools are logged only if a chat was made with ``log_content=``, and only
by the logger ``goaitools_py.content``. Failures are logged at WARNING or ERROR. The rest is INFO and DEBUG,
and costs nothing while no logger has these levels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..turn.flow import Emit, Flow
from ..types.errors import GoAIToolsError, TurnError
from ..types.events import (
    Appended,
    Compacted,
    ContextWarning,
    Event,
    FellBack,
    ModelReplied,
    ModelRequested,
    Retried,
    StateConverted,
    StateSaved,
    ToolFinished,
    ToolPending,
    ToolProgress,
    ToolStarted,
    TurnCompleted,
    TurnStarted,
)
from ..types.result import state_bytes
from ..types.usage import Usage

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["LogContent", "LoggingWatch", "checked_content", "log", "log_failure", "logging_watch"]

LogContent: TypeAlias = bool | Callable[[str], str]
"""Whether content is logged: no, yes, or as this function gives it back."""

_CHILDREN: Final = ("turn", "model", "tool", "state", "content")
_DEBUG, _INFO, _WARNING, _ERROR = 10, 20, 30, 40
_PLAIN: Final = re.compile(r"[\w.:/+@-]{1,200}", re.ASCII)
_MOST_CHARACTERS: Final = 200
"""Of a value in a record: a model may write a name of a tool that is as long as it likes."""

_loggers: dict[str, Logger] = {}

Facts: TypeAlias = dict[str, Any]


def checked_content(log_content: LogContent) -> LogContent:
    """The value of ``log_content=``. Raises TypeError for anything but a bool or a function."""
    if isinstance(log_content, bool) or callable(log_content):
        return log_content
    raise TypeError(
        f"log_content must be True, False or a function that redacts a text, not {type(log_content).__name__}"
    )


def _made() -> dict[str, Logger]:
    import logging  # not at the top: it takes a tenth of this package's import time

    for name in _CHILDREN:
        _loggers[name] = logging.getLogger(f"goaitools_py.{name}")
    return _loggers


def logging_watch(content: LogContent = False) -> LoggingWatch | None:
    """The watch that logs a flow; None if no logger of this package listens at INFO or DEBUG.

    It runs before every turn, and looks at levels only: no function is called.
    """
    if "logging" not in sys.modules:
        return None
    for name, logger in (_loggers or _made()).items():
        if name == "content" and content is False:
            continue
        found: Any = logger
        while found is not None and not found.level:
            found = found.parent
        if found is not None and found.level <= _INFO and not logger.disabled:
            return LoggingWatch(content)
    return None


def log(child: str, level: int, event: str, facts: Mapping[str, Any], text: str = "") -> None:
    """Write one record.

    Args:
        child: The logger: "turn", "model", "tool", "state" or "content".
        level: As in ``logging``.
        event: The record's name.
        facts: Its attributes. None and "" are left out of the message.
        text: More words for the message.
    """
    logger = (_loggers or _made())[child]
    if not logger.isEnabledFor(level):
        return
    shown = {name: _short(value) for name, value in facts.items()}
    words = [event, *(f"{name}={_word(value)}" for name, value in shown.items() if value not in (None, ""))]
    logger.log(level, "%s", " ".join([*words, text] if text else words), extra={"event": event, **shown})


def _short(value: Any) -> Any:
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else value


def _word(value: Any) -> str:
    """A value in a message: a text that could be taken for another fact, or for a line, is quoted."""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else ascii(text)


def log_failure(error: GoAIToolsError, of: Mapping[str, str]) -> None:
    """Log that a turn raised. ERROR: the same call would fail again. WARNING: it may succeed later. INFO: the
    turn had not begun, and nothing was called.

    Args:
        error: The error of the turn. The texts of our errors have no content.
        of: The ids of the conversation and the turn, as far as they are known.
    """
    facts: Facts = {**of, "error": type(error).__name__, "retryable": error.retryable}
    for name in ("status_code", "request_id", "retry_after"):
        facts[name] = getattr(error, name, None)
    if not isinstance(error, TurnError):
        log("turn", _INFO, "turn.refused", facts, str(error))
        return
    log("turn", _WARNING if error.retryable else _ERROR, "turn.failed", facts, str(error))


class LoggingWatch:
    """Logs the events of a flow."""

    def __init__(self, content: LogContent) -> None:
        self._content = content

    def __call__(self, flow: Flow[Any]) -> Flow[Any]:
        """The same flow. Each of its events is logged before any observer gets it."""
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                effect = flow.send(answer) if failure is None else flow.throw(failure)
            except StopIteration as stop:
                return stop.value
            answer = failure = None
            if type(effect) is Emit:
                self.tell(effect.event)
            try:
                answer = yield effect
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as exc:
                failure = exc

    def tell(self, event: Event) -> None:
        """Log one event, if it has a record."""
        known = _RECORDS.get(type(event))
        if known is None:
            return
        child, level, name, facts = known
        of = {"conversation_id": event.conversation_id, "turn_ref": event.turn_ref}
        log(child, level, name, {**of, **facts(event)})
        if type(event) is TurnCompleted:
            for warning in event.result.warnings:
                log("turn", _INFO, "turn.warning", {**of, "code": warning.code}, warning.message)
        if self._content is not False:
            for what, text in _contents(event):
                self._say(what, text, of)

    def _say(self, what: str, text: str, of: Facts) -> None:
        if not (_loggers or _made())["content"].isEnabledFor(_INFO):
            return
        if callable(self._content):
            try:
                text = str(self._content(text))
            except Exception as exc:
                log(
                    "content", _WARNING, "content.unlogged", {**of, "what": what, "error": type(exc).__name__}
                )
                return
        logger = _loggers["content"]
        logger.info("%s turn=%s %s", what, _word(of["turn_ref"]), text, extra={"event": what, **of})


def _contents(event: Event) -> Iterator[tuple[str, str]]:
    """The texts of an event, by the names of records."""
    match event:
        case ModelRequested():
            yield "content.request", event.body.decode("utf-8", "replace")
        case ModelReplied():
            if event.text:
                yield "content.reply", event.text
            for call in event.tool_calls:
                yield "content.call", f"{call.name} {call.arguments}"
        case ToolStarted():
            yield "content.arguments", f"{event.name} {event.arguments}"
        case ToolProgress():
            if event.message:
                yield "content.progress", f"{event.name} {event.message}"
        case ToolFinished():
            yield "content.result", f"{event.name} {event.output}"
        case TurnCompleted():
            for action in event.result.actions:
                yield "content.action", action.text


def _tokens(usage: Usage) -> Facts:
    return {
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }


def _replied(event: ModelReplied) -> Facts:
    return {
        "iteration": event.iteration,
        "model": event.model,
        "seconds": event.seconds,
        "finish_reason": event.finish_reason,
        "request_id": event.request_id,
        **_tokens(event.usage),
    }


def _completed(event: TurnCompleted) -> Facts:
    result = event.result
    cost = result.cost_usd
    return {
        "status": result.status,
        "finish_reason": result.finish_reason,
        "iterations": result.iterations,
        "tool_calls": len(result.tool_log),
        "model": result.model,
        **_tokens(result.usage),
        "cost_usd": None if cost is None else float(cost),
        "context_used": result.context_used,
        "blob_bytes": state_bytes(result),
        "duplicate": result.duplicate,
    }


def _compacted(event: Compacted) -> Facts:
    report = event.report
    return {
        "outcome": report.outcome,
        "removed_turns": report.removed_turns,
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
    }


def _named(*names: str, **renamed: str) -> Callable[[Any], Facts]:
    """The facts of an event that are its fields."""
    pairs: Iterable[tuple[str, str]] = (*((name, name) for name in names), *renamed.items())
    fields = tuple(pairs)
    return lambda event: {fact: getattr(event, field) for fact, field in fields}


_RECORDS: Final[Mapping[type, tuple[str, int, str, Callable[[Any], Facts]]]] = {
    TurnStarted: ("turn", _INFO, "turn.started", _named()),
    TurnCompleted: ("turn", _INFO, "turn.completed", _completed),
    ModelRequested: ("model", _DEBUG, "model.requested", _named("iteration", "bytes_sent")),
    ModelReplied: ("model", _INFO, "model.replied", _replied),
    Retried: ("model", _INFO, "retry", _named("attempt", "pause", "reason", "status_code", "request_id")),
    FellBack: ("model", _INFO, "fallback", _named("failed", "to", "reason", "status_code")),
    ToolStarted: ("tool", _DEBUG, "tool.started", _named("call_id", "iteration", tool="name")),
    ToolProgress: ("tool", _DEBUG, "tool.progress", _named("call_id", "progress", "total", tool="name")),
    ToolFinished: (
        "tool",
        _INFO,
        "tool.finished",
        _named("call_id", "iteration", "flag", "seconds", tool="name"),
    ),
    ToolPending: ("tool", _INFO, "tool.pending", _named("call_id", "iteration", "reason", tool="name")),
    StateSaved: ("state", _INFO, "state.saved", _named("version", "blob_bytes", "message_count")),
    StateConverted: ("state", _INFO, "state.converted", _named("found", "to")),
    Appended: ("state", _INFO, "state.appended", _named("messages", "message_count")),
    Compacted: ("state", _INFO, "compacted", _compacted),
    ContextWarning: (
        "state",
        _INFO,
        "context.filled",
        _named("level", "used", "limit", "of", "message_count"),
    ),
}
"""By event: the logger, the level, the record's name, and its facts."""
