"""Every error this package raises on purpose, as one tree.

Owns: the classes and what each carries. Must never know: how any of them came about.

::

    GoAIToolsError
    ├── StateError                    a blob cannot be used            (.blob)
    │   ├── StateFormatError          not one of our blobs at all
    │   ├── StateVersionError         written by a newer release
    │   ├── StateCorruptError         damaged on the way
    │   ├── StateAuthError            a keyed codec refused it
    │   ├── StateTooLargeError        beyond a limit                   (.limit, .limit_name)
    │   ├── StateProviderError        written by another wire          (.expected, .found)
    │   └── StateInvalidError         decodes, but breaks a rule
    ├── TurnError                     raised after a turn began        (.state, .pending_input, …)
    │   ├── ProviderUnavailableError, RateLimitError, AuthenticationError,
    │   │   ProviderRejectedError, ProviderProtocolError, ContextTooLongError,
    │   │   StreamInterruptedError
    │   ├── DeadlineExceededError, LimitExceededError, BudgetExceededError
    │   └── StateSizeError, ToolFailedError, CheckpointError, StoreCommitError
    ├── ToolPendingError, TurnConflictError, TurnInProgressError, NothingToResumeError
    ├── CompactionError
    └── StoreError
        ├── StateConflictError
        ├── LeaseHeldError
        └── StoreUnavailableError

Raised by your own tools: `ToolError` (text for the model) and `AbortTurn` (end the turn).
No text or repr of these holds message content or a key. What another library raised, such as a provider's
SDK or a database driver, may quote both: it is at ``sdk_error``, and an exception of ours that names it
stands at ``__cause__`` in its place. What the caller's own code raised is printed with its text: a tool's
exception, the ``__cause__`` of `ToolFailedError`, and a builtin one, such as ValueError, of a callback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from decimal import Decimal

    from .messages import Message, ToolRecord, Usage
    from .result import Bill, TurnWarning

__all__ = [
    "AbortTurn",
    "AuthenticationError",
    "BudgetExceededError",
    "CheckpointError",
    "CompactionError",
    "ContextTooLongError",
    "DeadlineExceededError",
    "GoAIToolsError",
    "LeaseHeldError",
    "LimitExceededError",
    "NothingToResumeError",
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
]


class GoAIToolsError(Exception):
    """Base of every error of this package.

    Attributes:
        retryable: True if the same call may succeed later.
        turns_left: Of an error out of `run_turns`, which then has a `state` too: the texts that were not
            said. The failed turn's own is one of them if neither `state` nor `pending_input` holds it.
        sdk_error: What another library raised, if that is the reason: a provider's SDK, a database driver.
            Its text may quote a server's body, and with it messages and keys: it stands in no printed chain,
            and does not go along when the error is copied or sent to another process.
    """

    retryable: bool = False
    turns_left: tuple[str, ...] = ()
    sdk_error: BaseException | None = None

    def because_of(self, error: BaseException) -> Self:
        """This error with its reason: at `__cause__` what may be printed of it, at `sdk_error` another
        library's exception."""
        found = error
        while _is_ours(found) and found.__cause__ is not None:
            found = found.__cause__
        if _is_ours(found):
            self.sdk_error, self.__cause__ = getattr(error, "sdk_error", None), error
        elif type(found).__module__ == "builtins":
            self.sdk_error, self.__cause__ = found, error
        else:
            self.sdk_error, self.__cause__ = found, UnderlyingError.of(found)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args, {**self.__dict__, "sdk_error": None}


class UnderlyingError(GoAIToolsError):
    """Stands in a printed chain for an exception whose text may quote content: says its class, its code and
    where it was raised."""

    @classmethod
    def of(cls, error: BaseException) -> UnderlyingError:
        """What may be printed of an exception."""
        inner = getattr(error, "orig", None)  # SQLAlchemy: what the driver raised
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
    """A state blob cannot be used. `blob` holds the bytes that were given, untouched."""

    def __init__(self, message: str, *, blob: bytes = b"") -> None:
        super().__init__(message)
        self.blob = blob


class StateFormatError(StateError):
    """The value is not a state blob; the text names the likely damage."""


class StateVersionError(StateError):
    """The blob was written by a newer release, or uses a suite or compression unknown here."""


class StateCorruptError(StateError):
    """The blob is one of ours, but its bytes were cut or changed."""


class StateAuthError(StateError):
    """A keyed codec refused the blob: wrong key, wrong binding, tampered, too old. One text for all of these;
    only a blob of another suite than the codec's is told apart, which its header shows to everybody."""


class StateTooLargeError(StateError):
    """The blob, or what it declares to hold, is beyond a limit; or an append would take it there.

    `limit_name` is a field of `BlobLimits`, `limit` its value.
    """

    def __init__(self, message: str, *, blob: bytes = b"", limit_name: str = "", limit: int = 0) -> None:
        super().__init__(message, blob=blob)
        self.limit_name = limit_name
        self.limit = limit


class StateProviderError(StateError):
    """The blob is whole, and was written by another provider API than the chat's: a mistake in the
    configuration. A turn with ``on_foreign_state="fresh"`` begins a new conversation instead.

    `expected` and `found` are names of provider APIs, such as "anthropic": the chat's and the blob's.
    """

    def __init__(self, message: str, *, blob: bytes = b"", expected: str = "", found: str = "") -> None:
        super().__init__(message, blob=blob)
        self.expected = expected
        self.found = found


class StateInvalidError(StateError):
    """The blob decodes, but its content breaks a rule of the format."""


# ------------------------------------------------------------------------------------------- turns


class TurnError(GoAIToolsError):
    """Raised after a turn began. Save `state` as you would after a success: nothing is lost.

    Attributes:
        state: A valid blob, or b"" if the first message of a conversation was refused; go on from it with
            ``chat.resume(err.state)``, or with a new message.
        pending_input: Messages that no model accepted and that are therefore *not* in `state`.
        text: The last complete reply of the turn, if there was one.
        partial_text: Text of a reply that broke off; it is not part of the history.
        usage: What this turn consumed so far.
        code: The provider's own code for what went wrong, or "". It is stored with the turn, as is the
            error's class; see `HistoryTurn.failure`.
        tool_log: Every tool call of this turn with its result.
        retryable: True if the same call may succeed later.
        retry_after: Seconds the provider asked to wait, or None.
        warnings: What a result would have carried as its warnings.
        discarded: Set if the given state was not used, because it is damaged or of another provider API: its
            bytes are in ``discarded.blob``, and `state` is that of a fresh conversation.
        status_code: The provider's HTTP status, or None.
        request_id: The provider's request id, or None.
        unsaved: Of a turn in a store: why `state` is not in it, or None if it is.
        base: Of a turn in a store that is not in it: what the turn began from.
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
        if usage is None:
            from .messages import Usage

            usage = Usage()
        self.state = state
        self.pending_input = pending_input
        self.text = text
        self.partial_text = partial_text
        self.usage = usage
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
        """What the turn cost so far, in US dollars; None means unknown. As `ChatResult.cost_usd`."""
        return None if self.bill is None else self.bill.cost_usd


class ProviderUnavailableError(TurnError):
    """No connection, a timeout, or a 408/409/5xx after retries. Retryable."""


class RateLimitError(TurnError):
    """The provider answered 429 after retries. Retryable; see `retry_after`."""


class AuthenticationError(TurnError):
    """The provider refused the credentials (401, 403)."""


class ProviderRejectedError(TurnError):
    """The provider refused the request (400, 404, 413, 422): the same request will be refused again.

    With `status_code` 301 to 308: the server redirects to another origin, which the text names, and nothing
    was sent there.
    """


class ProviderProtocolError(TurnError):
    """The provider said 200, but the body is not a reply. Retryable."""


class ContextTooLongError(TurnError):
    """The history does not fit into the model's context, even after a cut."""


class StreamInterruptedError(TurnError):
    """The reply broke off before its end; `partial_text` holds what came. Retryable."""


class DeadlineExceededError(TurnError):
    """The turn's `timeout` passed. Retryable with `resume`."""


class LimitExceededError(TurnError):
    """A limit of the turn was reached and `on_limit` is "raise"."""


class BudgetExceededError(TurnError):
    """A limit of the conversation is spent, or there is a limit on costs and a price is not known.
    Nothing was called."""


class StateSizeError(TurnError):
    """Something does not fit into the state, even after a cut; the text names the part and the limit.

    A message: nothing was sent, and it is in `pending_input`. A tool's result: `state` has a short record of
    it, `tool_log` the whole, and calls that had not started are "not_run". A reply: `text` has it, and
    `state` the turn; beyond twice the limits `state` has only the beginning of the reply.
    """


class ToolFailedError(TurnError):
    """A tool raised and `tool_errors` is "raise", or it raised `AbortTurn`. What it raised is `__cause__`."""


class CheckpointError(TurnError):
    """`on_checkpoint` raised, or the store did not take a checkpoint; no further tool was started. Retryable
    with `resume`."""


class StoreCommitError(TurnError):
    """The turn is complete, but the store did not take it: `Conversation.commit` tries again. Retryable."""


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
    """`resume` was given a conversation in which nothing is unfinished and nothing waits. Nothing was called.

    It is a ValueError too, as other mistakes in a call are.
    """


class TurnInProgressError(GoAIToolsError):
    """Another process runs a turn on this conversation."""

    retryable = True


class CompactionError(GoAIToolsError):
    """A compactor failed in `compact_state`; inside a turn this is a warning instead.

    Attributes:
        state: The conversation as it was, but with what the compactor's own model calls consumed on its
            books; b"" if there were none, or it was a dry run.
        usage: What they consumed.
    """

    def __init__(self, message: str, *, state: bytes = b"", usage: Usage | None = None) -> None:
        super().__init__(message)
        if usage is None:
            from .messages import Usage

            usage = Usage()
        self.state = state
        self.usage = usage


# ------------------------------------------------------------------------------------------ stores


class StoreError(GoAIToolsError):
    """A store could not do what was asked."""


class StateConflictError(StoreError):
    """Somebody else saved a newer version first.

    Attributes:
        state: The conversation with the turn that could not be saved, or the compacted one; nothing is lost.
        text: That turn's reply.
        base: What the turn, or the compaction, began from.
    """

    retryable = True

    def __init__(self, message: str, *, state: bytes = b"", text: str = "", base: bytes = b"") -> None:
        super().__init__(message)
        self.state = state
        self.text = text
        self.base = base


class LeaseHeldError(StoreError):
    """Somebody else holds the lease of this key."""

    retryable = True


class StoreUnavailableError(StoreError):
    """The store did not answer."""

    retryable = True


# ------------------------------------------------------------------------------------ inside tools


class ToolError(Exception):
    """Raise it in a tool: its text goes to the model as the call's error result."""


class AbortTurn(Exception):  # noqa: N818 - an instruction, not a fault
    """Raise it in a tool to end the turn: the call closes as an error, calls not started as not run."""
