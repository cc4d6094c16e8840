"""Reads a typed answer: the value in a complete reply, and partial values while the reply comes.

Owns: the way from a reply's text to a value, and how many answers may not fit. Must never know: how the type
is described to a provider, or when the model is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..backends.read_entries import read_entries
from ..open_turn import attempts, journal
from ..open_turn.turn_ids import StoredReply, TurnKey, answered_in
from ..output.misfit import Misfit, problem_words
from ..state.state import ConversationState
from ..types.errors import OutputError, ToolError
from ..types.events import Event, OutputDelta, TextDelta
from ..types.messages import Text
from .flow import Effect, Emit, Flow, Invoke
from .ledger import Ledger

if TYPE_CHECKING:
    from ..output.wanted import Wanted

__all__ = ["TypedAnswer", "counted", "judged", "lenient", "with_partials"]

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


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 problem", "2 problems"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class TypedAnswer:
    """The answer of a turn that has to fit a type.

    Attributes:
        value: The value of the answer that fitted; None before.
    """

    def __init__(self, ledger: Ledger, wanted: Wanted) -> None:
        self._ledger = ledger
        self._wanted = wanted
        self.value: Any = None
        self._misfits = 0
        """The number of answers in this call that did not fit the type."""

    def begin_later(self) -> None:
        """Begin the answer to later messages: the misfits of the turn before do not count."""
        self._misfits = 0

    def fits(self, text: str, *, is_new: bool) -> Flow[bool]:
        """Check the answer at the end of the open turn.

        If it does not fit, put the reason into the inbox, so that the next request tells the model.

        Args:
            text: The answer.
            is_new: False: an earlier call of the chat got the answer, and this one asks again at least once.

        Raises:
            OutputError: The answer does not fit, and the retries are used up.
        """
        ledger, wanted = self._ledger, self._wanted
        try:
            self.value = yield from judged(wanted, text)
        except Misfit as misfit:
            problems = misfit.problems
        else:
            return True
        self._misfits += is_new
        if ledger.plan.one_step and is_new and ledger.state.open is not None:
            # The misfits of earlier steps count, too.
            self._misfits = len(ledger.state.open.facts.get(attempts.ANSWERS, ()))
        if self._misfits > wanted.asked.retries:
            raise ledger.error(
                OutputError,
                f"{counted(self._misfits, 'answer')} of the model did not fit {wanted.shape.name} "
                f"({counted(len(problems), 'problem')} in the last one, see err.errors); err.state has the "
                "turn, and resume(err.state, output_type=…) asks again",
                errors=problems,
            )
        ledger.state = attempts.told(ledger.state, problem_words(problems), ledger.dialect)
        return False

    def is_called(self, *, is_new: bool) -> bool:
        """True if a call of the answer's tool in the journal fits. Its value is then `value`.

        `is_new`: False: an earlier call of the chat got the reply, and its misfits do not count.

        Raises:
            OutputError: The calls of the tool did not fit, and the retries are used up.
        """
        ledger, wanted = self._ledger, self._wanted
        opened = ledger.state.open
        if wanted.tool is None or opened is None or journal.is_waiting(ledger.state):
            return False
        calls = [call for call in opened.calls if call.name == wanted.tool.name and call.state == "done"]
        if taken := [call.arguments for call in calls if call.flag == "ok"]:
            self.value = wanted.last_answer(taken)
            return True
        if is_new and calls:
            self._misfits += 1
            if self._misfits > wanted.asked.retries:
                raise ledger.error(
                    OutputError,
                    f"{self._misfits} calls of {wanted.tool.name} did not fit; err.state has the turn, and "
                    "resume(err.state, output_type=…) asks again",
                    errors=[("", "".join(p.text for p in calls[-1].parts if isinstance(p, Text)))],
                )
        return False

    def stored(self, state: ConversationState, stored: StoredReply, key: TurnKey | None) -> Any:
        """The value in the stored reply of a finished turn; None if it does not fit."""
        wanted = self._wanted
        found = None if wanted.tool is None or key is None else answered_in(state, key.id)
        if found is not None and wanted.tool is not None:
            said = read_entries(self._ledger.dialect, found[0].entries)
            calls = [
                call.arguments for one in said for call in one.tool_calls if call.name == wanted.tool.name
            ]
            if (value := wanted.last_answer(calls)) is not None:
                return value
        return lenient(wanted, stored.text) if stored.status == "complete" else None


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
