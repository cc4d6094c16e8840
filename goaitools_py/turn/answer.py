"""Reads a typed answer: the value in a complete reply, and partial values while the reply comes.

Owns: the way from a reply's text to a value. Must never know: how the type is described to a provider, or
when the model is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..output.misfit import Misfit
from ..types.errors import ToolError
from ..types.events import Event, OutputDelta, TextDelta
from .flow import Effect, Emit, Flow, Invoke

if TYPE_CHECKING:
    from ..output.wanted import Wanted

__all__ = ["judged", "lenient", "with_partials"]

_GROWS_BY: Final = 64
"""A text is read again when it has grown by 1/64. So reading a long text piece by piece stays cheap."""


def judged(wanted: Wanted, text: str) -> Flow[Any]:
    """The value in an answer.

    Raises:
        Misfit: The answer does not fit the type, or the caller's check refuses it.
        Exception: An exception of the caller's check, other than ValueError and ToolError.
    """
    value = wanted.shape.read(text)
    check = wanted.asked.validate
    if check is None:
        return value
    try:
        yield Invoke(check, (value,))
    except (ValueError, ToolError) as exc:
        refusal = str(exc)
    else:
        return value
    raise Misfit([("", refusal)])


def lenient(wanted: Wanted, text: str) -> Any:
    """The value in a stored reply; None if the reply does not fit the type."""
    try:
        return wanted.shape.read(text)
    except Misfit:
        return None


def with_partials(flow: Flow[Any], wanted: Wanted, said: str) -> Flow[Any]:
    """The flow of a model call, with an `OutputDelta` after each piece of text that changes the value.

    `said`: the beginning of the answer, before the provider paused it.
    """
    partials = _Partials(wanted, said)
    answer: Any = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                effect = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = failure = None
            try:
                answer = yield from _passed(effect, partials)
            except BaseException as exc:
                failure = exc
    finally:
        flow.close()


def _passed(effect: Effect, partials: _Partials) -> Flow[Any]:
    """Yield an effect, and a delta after it if there is one. Return the effect's answer."""
    if type(effect) is not Emit or type(effect.event) is not TextDelta:
        return (yield effect)
    delta = partials.after(effect.event)
    if delta is None:
        return (yield effect)
    yield Emit(effect.event)
    return (yield Emit(delta, effect.then))


class _Partials:
    """The text of an answer so far, and the newest value that was told."""

    def __init__(self, wanted: Wanted, said: str) -> None:
        self._shape = wanted.shape
        self._text = said
        self._read = 0
        self._told: Any = None

    def after(self, event: TextDelta) -> Event | None:
        """The event of the value after another piece of text; None if the value has not changed."""
        self._text += event.text
        if len(self._text) - self._read < max(1, self._read // _GROWS_BY):
            return None
        self._read = len(self._text)
        found = self._shape.partial(self._text)
        if found is None or found == self._told:
            return None
        self._told = found
        return OutputDelta(
            found, event.iteration, conversation_id=event.conversation_id, turn_ref=event.turn_ref
        )
