"""Every error this package raises on purpose, as one tree.

Owns: the classes and their attributes. Must never know: the code that raises them.

::

    GoAIToolsError
    ├── StateError                    a blob cannot be used            (.blob)
    │   ├── StateFormatError          not one of our blobs at all
    │   ├── StateVersionError         written by a newer release
    │   ├── StateCorruptError         damaged on the way
    │   ├── StateAuthError            a keyed codec refused it
    │   ├── StateTooLargeError        beyond a limit                   (.limit, .limit_name)
    │   ├── StatePartMissingError     a listed part was not found     (.digest)
    │   ├── StateProviderError        of another provider API          (.expected, .found)
    │   └── StateInvalidError         decodes, but breaks a rule
    ├── TurnError                     raised after a turn began        (.state, .pending_input, …)
    │   ├── ProviderUnavailableError, RateLimitError, AuthenticationError,
    │   │   ProviderRejectedError, ProviderProtocolError, ContextTooLongError,
    │   │   StreamInterruptedError
    │   ├── DeadlineExceededError, LimitExceededError, BudgetExceededError
    │   ├── OutputError               the answer does not fit          (.errors)
    │   ├── StateSizeError, ToolFailedError, CheckpointError, StoreCommitError
    │   └── TurnStoppedError
    ├── ToolPendingError, TurnConflictError, TurnInProgressError, NothingToResumeError, EditError
    ├── CompactionError
    └── StoreError
        ├── StateConflictError
        ├── LeaseHeldError
        └── StoreUnavailableError

Raised by your own tools: `ToolError` (text for the model) and `AbortTurn` (end the turn).
No text or repr of these errors holds message content or a key. The exception of another library, such as a
provider's SDK or a database driver, may quote both. It is kept at ``sdk_error``, and ``__cause__`` is an
error of this package that names its class. Exceptions of your own code are printed with their text: an
exception of a tool (the ``__cause__`` of `ToolFailedError`), and a builtin exception such as ValueError from
a callback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from .usage import Bill, Usage

if TYPE_CHECKING:
    from decimal import Decimal

    from .messages import Message, ToolRecord
    from .turn_warnings import TurnWarning

__all__ = [
    "AbortTurn",
    "AuthenticationError",
    "BudgetExceededError",
    "CheckpointError",
    "CompactionError",
    "ContextTooLongError",
    "DeadlineExceededError",
    "EditError",
    "GoAIToolsError",
    "LeaseHeldError",
    "LimitExceededError",
    "NothingToResumeError",
    "OutputError",
    "ProviderProtocolError",
    "ProviderRejectedError",
    "ProviderUnavailableError",
    "RateLimitError",
    "StateAuthError",
    "StateConflictError",
    "StateCorruptError",
    "StateError",
    "StateFormatError",
    "StateInvalidError",
    "StatePartMissingError",
    "StateProviderError",
    "StateSizeError",
    "StateTooLargeError",
    "StateVersionError",
    "StoreCommitError",
    "StoreError",
    "StoreUnavailableError",
    "StreamInterruptedError",
    "ToolError",
    "ToolFailedError",
    "ToolPendingError",
    "TurnConflictError",
    "TurnError",
    "TurnInProgressError",
    "TurnStoppedError",
]


class GoAIToolsError(Exception):
    """Base of every error of this package.

    Attributes:
        retryable: True if the same call may succeed later.
        turns_left: For an error from `run_turns`, which then also has a `state`: the texts that were not
            sent. The text of the failed turn is among them if neither `state` nor `pending_input` holds it.
        sdk_error: The exception of another library that is the reason: a provider's SDK, a database driver.
            Its text may quote a server's body, with messages and keys. So it is in no printed traceback, and
            it is dropped when the error is copied or sent to another process.
    """

    retryable: bool = False
    turns_left: tuple[str, ...] = ()
    sdk_error: BaseException | None = None

    def because_of(self, error: BaseException) -> Self:
        """Set the reason: `__cause__` is the printable error, `sdk_error` is another library's exception."""
        found = error
        while _is_ours(found) and found.__cause__ is not None:
            found = found.__cause__
        if _is_ours(found):
            self.sdk_error, self.__cause__ = getattr(error, "sdk_error", None), error
        elif type(found).__module__ == "builtins" and not isinstance(found, UnicodeError):
            self.sdk_error, self.__cause__ = found, error  # a UnicodeError has the whole text in its `args`
        else:
            self.sdk_error, self.__cause__ = found, UnderlyingError.of(found)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**self.__dict__, "sdk_error": None}


class UnderlyingError(GoAIToolsError):
    """Replaces, in a printed traceback, an exception with a text that may quote content. It gives the
    exception's class, its code, and the place where it was raised."""

    @classmethod
    def of(cls, error: BaseException) -> UnderlyingError:
        """Make the replacement for an exception."""
        inner = getattr(error, "orig", None)  # SQLAlchemy: the driver's exception
        named = [error, inner] if isinstance(inner, BaseException) else [error]
        return cls(" of ".join(f"{_class_of(one)}{_code_of(one)}" for one in named) + _place_of(error))


_CODES: Final = ("sqlite_errorname", "sqlstate", "errno", "status_code")


def _class_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _code_of(error: BaseException) -> str:
    for name in _CODES:
        value = getattr(error, name, None)
        if isinstance(value, int) or (isinstance(value, str) and len(value) <= 40):
            return f" ({name} {value})"
    return ""


def _place_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f", raised at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == __name__.partition(".")[0]


# ------------------------------------------------------------------------------------------ states


class StateError(GoAIToolsError):
    """A state blob cannot be used. `blob` holds the given bytes, unchanged."""

    def __init__(self, message: str, *, blob: bytes = b"") -> None:
        super().__init__(message)
        self.blob = blob


class StateFormatError(StateError):
    """The value is not a state blob; the text names the likely damage."""


class StateVersionError(StateError):
    """The blob was written by a newer release, or uses a suite or compression unknown here."""


class StateCorruptError(StateError):
    """The blob was written by this package, but its bytes were cut or changed."""


class StateAuthError(StateError):
    """A keyed codec refused the blob: wrong key, wrong owner (`binding=`), changed bytes, or too old.

    The text is the same for all of these. Only a blob of another suite has its own text, because the header
    shows the suite anyway.
    """


class StateTooLargeError(StateError):
    """The blob, or the size that it declares, exceeds a limit; or an append would exceed it.

    `limit_name` is a field of `BlobLimits`, `limit` its value.
    """

    def __init__(self, message: str, *, blob: bytes = b"", limit_name: str = "", limit: int = 0) -> None:
        super().__init__(message, blob=blob)
        self.limit_name = limit_name
        self.limit = limit


class StateProviderError(StateError):
    """The blob is not damaged, but belongs to another provider API than the chat's. The configuration is
    wrong. A turn with ``on_foreign_state="fresh"`` begins a new conversation instead.

    `expected` is the provider API of the chat, `found` the provider API of the blob, such as "anthropic".
    """

    def __init__(self, message: str, *, blob: bytes = b"", expected: str = "", found: str = "") -> None:
        super().__init__(message, blob=blob)
        self.expected = expected
        self.found = found


class StatePartMissingError(StateError):
    """The blob lists a part of the conversation that is kept elsewhere and was not found there. Nothing is
    damaged: load the conversation with ``conversation.state()``, which gives it whole.

    `on_bad_state` does not apply: no bytes are set aside, and no conversation is begun or saved. `digest` is
    the SHA-256 of the part's stored bytes, in hexadecimal digits.
    """

    def __init__(self, message: str, *, blob: bytes = b"", digest: str = "") -> None:
        super().__init__(message, blob=blob)
        self.digest = digest


class StateInvalidError(StateError):
    """The blob decodes, but its content breaks a rule of the format."""


# ------------------------------------------------------------------------------------------- turns


class TurnError(GoAIToolsError):
    """Raised after a turn began. Save `state` as you would after a success; the attributes have the rest.

    Attributes:
        state: A valid blob, or b"" if the first message of a conversation was refused. Continue it with
            ``chat.resume(err.state)``, or with a new message.
        pending_input: Messages that no model accepted and that are therefore *not* in `state`. Messages that
            other callers had put into a stored conversation before are not among them: they wait on.
        text: The last complete reply of the turn, if there was one.
        partial_text: Text of a reply that broke off; it is not part of the history.
        usage: The tokens of this turn so far; after a `resume`, since then.
        code: The provider's own code for the fault, or "". The code and the class of the error are stored
            with the turn; see `HistoryTurn.failure`.
        tool_log: Every tool call of this turn with its result.
        retryable: True if the same call may succeed later.
        retry_after: Seconds the provider asked to wait, or None.
        warnings: The warnings that a result would have.
        discarded: Set if the given state was not used, because it is damaged or of another provider API. Its
            bytes are in ``discarded.blob``, and `state` belongs to a new conversation.
        status_code: The provider's HTTP status, or None.
        request_id: The provider's request id, or None.
        unsaved: For a conversation in a store: why `state` was not saved, or None if it was.
        base: For a conversation in a store, if `state` was not saved: the state that the turn began from.
    """

    unsaved: Exception | None = None
    base: bytes = b""

    def __init__(
        self,
        message: str,
        *,
        state: bytes = b"",
        pending_input: tuple[Message, ...] = (),
        text: str = "",
        partial_text: str = "",
        usage: Usage | None = None,
        tool_log: tuple[ToolRecord, ...] = (),
        retryable: bool = False,
        retry_after: float | None = None,
        warnings: tuple[TurnWarning, ...] = (),
        discarded: StateError | None = None,
        status_code: int | None = None,
        request_id: str | None = None,
        code: str = "",
        bill: Bill | None = None,
    ) -> None:
        super().__init__(message)
        self.state = state
        self.pending_input = pending_input
        self.text = text
        self.partial_text = partial_text
        self.usage = Usage() if usage is None else usage
        self.tool_log = tool_log
        self.retryable = retryable
        self.retry_after = retry_after
        self.warnings = warnings
        self.discarded = discarded
        self.status_code = status_code
        self.request_id = request_id
        self.code = code
        self.bill = bill

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost of the turn so far, in US dollars; None means unknown. As `ChatResult.cost_usd`."""
        return None if self.bill is None else self.bill.cost_usd


class ProviderUnavailableError(TurnError):
    """No connection, a timeout, or a 408/409/5xx after retries. Retryable."""


class RateLimitError(TurnError):
    """The provider answered 429 after retries. Retryable, unless a quota is used up; see `retry_after`."""


class AuthenticationError(TurnError):
    """The provider refused the credentials (401, 403), or wants to be paid first (402)."""


class ProviderRejectedError(TurnError):
    """The provider refused the request (400, 404, 413, 422, 446, 451 and the like; 402 or 403 for its
    content). The same request will be refused again.

    With `status_code` 301 to 308 the server redirects to another origin. The text names it, and nothing was
    sent there.
    """


class ProviderProtocolError(TurnError):
    """The provider answered 200, but the body is not a reply. Retryable."""


class ContextTooLongError(TurnError):
    """The history does not fit into the model's context, even after a cut."""


class StreamInterruptedError(TurnError):
    """The reply broke off before its end; `partial_text` holds the text that arrived. Retryable."""


class DeadlineExceededError(TurnError):
    """The turn's `timeout` passed. Retryable with `resume`."""


class LimitExceededError(TurnError):
    """A limit of the turn was reached and `on_limit` is "raise"."""


class BudgetExceededError(TurnError):
    """A limit of the conversation is used up, or there is a limit on costs and a price is unknown. No model
    was called."""


class OutputError(TurnError):
    """The model's answers did not fit the `output_type`, also after the retries.

    The last answer is in `text`, and in `state` as the reply of an unfinished turn: ``chat.resume(err.state,
    output_type=…)`` asks the model again, and `resume` without a type takes the answer as text.

    Attributes:
        errors: The misfits, as pairs of a field, such as ``teams[2].name``, and the problem. A field
            may be a name that the model made up, so it is content.
    """

    def __init__(self, message: str, *, errors: tuple[tuple[str, str], ...] = (), **known: Any) -> None:
        super().__init__(message, **known)
        self.errors = errors


class StateSizeError(TurnError):
    """A part does not fit into the state, even after a cut. The text names the part and the limit.

    A message: nothing was sent, and the message is in `pending_input`. A tool's result: `state` has a short
    record, `tool_log` has the whole result, and calls that had not started are "not_run". A reply: `text` has
    it and `state` has the turn; above twice the limit, `state` has only the beginning of the reply.
    """


class ToolFailedError(TurnError):
    """A tool raised and `tool_errors` is "raise", or it raised `AbortTurn`. `__cause__` has the exception."""


class CheckpointError(TurnError):
    """`on_checkpoint` raised, or the store did not take a checkpoint; no further tool was started. Retryable
    with `resume`."""


class StoreCommitError(TurnError):
    """The turn is complete, but the store did not save it. `Conversation.commit` tries again. Retryable."""


class ToolPendingError(GoAIToolsError):
    """The state waits for tool answers; give them to `resume`.

    Attributes:
        pending: The calls that wait, as `PendingCall`.
    """

    def __init__(self, message: str, pending: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.pending = tuple(pending)


class TurnConflictError(GoAIToolsError):
    """The same `turn_id` came with other messages."""


class NothingToResumeError(GoAIToolsError, ValueError):
    """`resume` found no unfinished turn and no waiting call. No model was called.

    It is also a ValueError, like other mistakes in a call.
    """


class EditError(GoAIToolsError, ValueError):
    """The message of `edit` cannot be replaced: it is not there, or stands before the newest cut. Nothing was
    called, and nothing has changed."""


class TurnInProgressError(GoAIToolsError):
    """Another process runs a turn on this conversation."""

    retryable = True


class CompactionError(GoAIToolsError):
    """A compactor failed in `compact_state`; inside a turn this is a warning instead.

    Attributes:
        state: The unchanged conversation, with the usage of the compactor's own model calls added. b"" if
            there were no calls, or for a dry run.
        usage: The tokens of those calls.
    """

    def __init__(self, message: str, *, state: bytes = b"", usage: Usage | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.usage = Usage() if usage is None else usage


# ------------------------------------------------------------------------------------------ stores


class StoreError(GoAIToolsError):
    """A store could not do its work."""


class StateConflictError(StoreError):
    """Another process saved a newer version first.

    Attributes:
        state: The conversation with the turn, or the compaction, that could not be saved. Nothing is lost.
        text: The reply of that turn.
        base: The state that the turn, or the compaction, began from.
    """

    retryable = True

    def __init__(self, message: str, *, state: bytes = b"", text: str = "", base: bytes = b"") -> None:
        super().__init__(message)
        self.state = state
        self.text = text
        self.base = base


class TurnStoppedError(TurnError):
    """`stop` of the kept conversation has stopped the turn, perhaps from another worker. The store has the
    turn so far. `resume` continues it, and a new message closes it."""


class LeaseHeldError(StoreError):
    """Another process holds the lease of this key."""

    retryable = True


class StoreUnavailableError(StoreError):
    """The store did not answer."""

    retryable = True


# ------------------------------------------------------------------------------------ inside tools


class ToolError(Exception):
    """Raise it in a tool. Its text becomes the call's error result, which the model reads."""


class AbortTurn(Exception):  # noqa: N818 - an instruction, not a fault
    """Raise it in a tool to end the turn. The call ends as an error; calls that have not started are marked
    "not_run"."""
