"""The model that `goaitools doctor --live` asks: a chat with small limits, and the cost of its calls.

Owns: how a call is made and booked, the form of a check, and the exceptions for a check's outcome. Must
never know: the question of a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .. import ChatResult, Usage
    from ..backends.capabilities import Capabilities
    from ..types.events import Event

__all__ = ["THINKING_TOKENS", "DiffersError", "Live", "LiveCheck", "NotOfferedError", "SkippedError", "told"]

_T = TypeVar("_T")

_NO_KEY: Final = "sk-goaitools-doctor-not-a-key"
_FAILED: Final = object()
_OUTPUT: Final = 64
_THINKER_OUTPUT: Final = 512
"""Output tokens of one reply, if the model is known to think before each."""
THINKING_TOKENS: Final = 1_024
"""The smallest budget for thinking that Anthropic takes."""


class DiffersError(Exception):
    """The reply differs from the package's assumptions. The text is one of the check's own."""


class NotOfferedError(Exception):
    """The host does not offer the requested feature."""


class SkippedError(Exception):
    """The check was not made."""


class Live:
    """A model behind a name such as "openai:MODEL", with facts about all its answers.

    Attributes:
        name: The name, as `Chat` takes it.
        max_output: Output tokens of one reply, thinking included.
        window: Input tokens of the model's context, for the check of an overflow; 0: as in the package's
            table. None: no check of an overflow.
        spent: The tokens of all calls, as far as the provider reported them.
        costs: The price of each call that consumed tokens; None for an unknown price.
        answered_as: The model's name in the first reply.
        has_answered: True if a reply had room in its limit.
    """

    def __init__(self, name: str, *, max_output: int | None, timeout: float, window: int | None) -> None:
        from .. import NO_COMPACTION, Chat, ModelSettings, Usage
        from ..backends.by_name import backend_from_name
        from ..backends.capabilities import capabilities

        self.name, self.window = name, window
        self._timeout = timeout
        self._backend = backend_from_name(name, is_async=False)
        self.wire = self._backend.dialect.wire
        self.family: str = getattr(self._backend.dialect, "family", "")
        self.is_simulated = name.partition(":")[0] == "sim"
        self.known: Capabilities = capabilities(self._backend.model or "")
        self.max_output = max_output or (_THINKER_OUTPUT if self._always_thinks else _OUTPUT)
        settings = ModelSettings(max_output_tokens=self.max_output, **self._least_effort())
        self.chat: Any = Chat(
            self._backend, settings=settings, timeout=timeout, compactor=NO_COMPACTION, on_bad_state="raise"
        )
        self.spent: Usage = Usage()
        self.costs: list[Decimal | None] = []
        self.answered_as, self.has_answered = "", False
        self._made: dict[str, Any] = {}

    @property
    def model(self) -> str:
        """The model's name without the name of the provider API."""
        return self._backend.model or ""

    def connect(self) -> None:
        """Import the SDK and make its client, so that the time of the first check does not include this."""
        from ..backends import BackendError

        with suppress(BackendError):  # such as a missing key: the first check reports it
            self.chat.warm_up()

    def close(self) -> None:
        """Close the connections."""
        self.chat.close()

    # --------------------------------------------------------------------------------------- the calls

    def say(self, state: bytes | None, user: Any, **fields: Any) -> ChatResult:
        """One turn, as a whole."""
        return self._booked(lambda: self.chat.chat_with_state(state, user=user, **fields))

    def answer(self, state: bytes, answers: Mapping[str, Any], **fields: Any) -> ChatResult:
        """Resume a turn with the results of its calls."""
        return self._booked(lambda: self.chat.resume(state, answers, **fields))

    def stream(self, state: bytes | None, user: Any, **fields: Any) -> tuple[ChatResult, list[Event]]:
        """One turn as a stream, with its events."""
        events: list[Event] = []

        def run() -> ChatResult:
            with self.chat.start(state, user=user, **fields) as turn:
                events.extend(turn)
                result: ChatResult = turn.result()
                return result

        return self._booked(run), events

    def stop_in_stream(self, user: str) -> bytes | None:
        """Begin a turn, and stop it after its first text. Returns the state then; None if no text came."""
        from ..types.events import TextDelta

        with self.chat.start(None, user=user) as turn:
            if not any(isinstance(event, TextDelta) for event in turn):
                return None
        state: bytes = turn.state
        return state

    def with_wrong_key(self, user: str) -> None:
        """One turn with a key that no host has given out."""
        from .. import Chat, ModelSettings
        from ..backends import AnthropicBackend, OpenAIChatBackend, OpenAIResponsesBackend

        classes: Mapping[str, Any] = {
            "openai": OpenAIChatBackend,
            "openai-responses": OpenAIResponsesBackend,
            "anthropic": AnthropicBackend,
        }
        backend = classes[self.wire](self.model, api_key=_NO_KEY, max_retries=0)
        settings = ModelSettings(max_output_tokens=self.max_output)
        with Chat(backend, settings=settings, timeout=self._timeout) as chat:
            chat.chat(user=user)

    def _booked(self, run: Callable[[], ChatResult]) -> ChatResult:
        from .. import TurnError

        try:
            result = run()
        except TurnError as error:
            self._book(error.usage, error.cost_usd)
            raise
        self.answered_as = self.answered_as or result.model
        self.has_answered |= result.status != "truncated"
        self._book(result.usage, result.cost_usd)
        return result

    def _book(self, usage: Usage, cost: Decimal | None) -> None:
        self.spent += usage
        if usage.total_tokens:
            self.costs.append(cost)

    # ------------------------------------------------------------------------------------ the settings

    def _least_effort(self) -> dict[str, Any]:
        """The least thinking of a known model. More thinking would fill the small replies."""
        efforts = self.known.efforts
        return {"reasoning_effort": efforts[0]} if efforts else {}

    @property
    def _always_thinks(self) -> bool:
        """True if a known model thinks before each answer, also at its least effort."""
        efforts = self.known.efforts
        return bool(self.known.binds_thinking) or bool(efforts and efforts[0] not in ("none", "minimal"))

    @cached_property
    def thinking(self) -> dict[str, Any]:
        """Settings that ask for thinking. NotOfferedError if the model is known not to think."""
        from .. import ModelSettings

        more: dict[str, Any] = {"max_output_tokens": THINKING_TOKENS + self.max_output}
        efforts, kinds = self.known.efforts, self.known.thinking
        if self.wire == "anthropic" and (kinds is None or "enabled" in kinds):
            more["thinking_budget_tokens"] = THINKING_TOKENS
        elif self.wire == "anthropic" and kinds and "adaptive" in kinds:
            more["extra_body"] = {"thinking": {"type": "adaptive"}}
        elif self.wire == "anthropic" or efforts == ():
            raise NotOfferedError("the model does not think")
        else:
            more["reasoning_effort"] = "low" if efforts is None or "low" in efforts else efforts[-1]
        return {"settings": ModelSettings(**more)}

    # -------------------------------------------------------------------- replies that checks share

    def once(self, name: str, make: Callable[[Live], _T]) -> _T:
        """Return the value of `make`, made once. Checks share replies, and each check can run alone.

        Raises SkippedError if `make` failed before: the row of the first check that needed it tells why.
        """
        if name not in self._made:
            self._made[name] = _FAILED
            self._made[name] = make(self)
        if self._made[name] is _FAILED:
            raise SkippedError("a reply that it builds on did not come")
        found: _T = self._made[name]
        return found


class LiveCheck(NamedTuple):
    """One row.

    Attributes:
        asked: The question.
        expected: The expected outcome.
        run: Asks, and returns a note.
        calls: How many model calls it makes at most.
        tokens_in: The most input tokens of all its calls together, on any provider API.
        is_optional: True if a host may lack it: then a refused request means "not offered".
        thinks: True if its calls have room for thinking.
    """

    asked: str
    expected: str
    run: Callable[[Live], str]
    calls: int = 1
    tokens_in: int = 200
    is_optional: bool = False
    thinks: bool = False


def told(error: BaseException) -> str:
    """An error in fixed words: its class, its status and the provider's code."""
    status, code = getattr(error, "status_code", None), getattr(error, "code", "")
    is_plain = isinstance(code, str) and code.replace("_", "").replace("-", "").isalnum() and code.isascii()
    known = (type(error).__name__, str(status or ""), code[:40] if is_plain else "")
    return " ".join(part for part in known if part)
