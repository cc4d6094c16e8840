"""The errors of a turn that gets no reply: their class, their text, and their advice.

Owns: the way from a `Failure` to a `TurnError`. Must never know: whether a request is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..backends.base import BackendError, ProtocolFault
from ..backends.protocols import ChecksHistory, ViewsHistory, lacks
from ..types.errors import (
    AuthenticationError,
    ContextTooLongError,
    ProviderProtocolError,
    ProviderRejectedError,
    ProviderUnavailableError,
    RateLimitError,
    StateSizeError,
    StreamInterruptedError,
    TurnError,
)
from .ledger import Ledger
from .retry import Failure

__all__ = ["REFUSES_FORMS", "blames_content", "oversized", "turn_error"]

REFUSES_FORMS: Final = frozenset({400, 413, 422, 500, None})
"""Statuses by which servers refuse the form of a request, so that another form may help. None: the answer has
status 200, and the error is inside it. 500: a chat template has refused it, and the fault says "rejected"."""

_NO_CREDIT: Final = frozenset({"402", "base_resp_1008", "billing_error", "insufficient_balance"})
"""Codes inside an answer with status 200 for an account without credit."""

_NO_SUCH_PLACE: Final = 404
"""The status for a wrong address or model. The content of the request is not the cause."""

_ERRORS: Final[dict[str, tuple[type[TurnError], str, str]]] = {
    "unavailable": (
        ProviderUnavailableError,
        "the provider could not be reached or is failing",
        "try resume later",
    ),
    "rate_limit": (
        RateLimitError,
        "the provider limits the request rate",
        "try resume after err.retry_after seconds",
    ),
    "auth": (
        AuthenticationError,
        "the provider refused the credentials",
        "check the API key, then resume",
    ),
    "rejected": (
        ProviderRejectedError,
        "the provider refused the request",
        "see err.sdk_error for its words; err.state goes on without err.pending_input",
    ),
    "context": (
        ContextTooLongError,
        "the history does not fit into the model's context",
        "use a compactor, or send less; err.state goes on without err.pending_input",
    ),
    "protocol": (
        ProviderProtocolError,
        "the provider answered 200 with something that is not a reply",
        "check base_url and proxies; resume tries again",
    ),
    "signature": (
        ProviderRejectedError,
        "the provider refused signed thinking in the history",
        "see err.sdk_error for its words; err.state goes on without err.pending_input",
    ),
    "interrupted": (
        StreamInterruptedError,
        "the reply broke off before its end",
        "resume asks again",
    ),
    "forked": (
        ProviderUnavailableError,
        "the client that the backend was given was used before this process was forked, and two processes on "
        "one connection read each other's replies",
        "make the client and the backend in each process (after the fork), or let the backend make its own "
        "client, then resume",
    ),
}
"""For each kind of fault: the class of the error, the text of the problem, and the advice."""

_WAITED: Final[Mapping[str, str]] = {
    "call_timeout": "the model's reply did not end within timeout=Timeouts(call={:g}) s",
    "first_delta_timeout": "the model's reply did not begin within timeout=Timeouts(first_delta={:g}) s",
}
"""For each time limit: the text of the problem when its time has passed."""


def turn_error(ledger: Ledger, failure: Failure) -> TurnError:
    """The error of a turn that gets no reply, with its cause set.

    Programs print the chain of causes. So the chain has no body of the server, and no exception of an SDK,
    because its text may quote a body. Only `sdk_error` has them.
    """
    error = _error_of(ledger, failure)
    cause = failure.cause
    if isinstance(cause, BackendError):
        error.sdk_error = cause.sdk_error or cause.__cause__
        error.__cause__ = cause.bare()
    elif isinstance(cause, ProtocolFault):
        error.__cause__ = ProtocolFault(str(cause), cause.fault)
    else:
        error.because_of(cause)
    return error


def blames_content(failure: Failure) -> bool:
    """True if the provider refuses the content of the request, and would refuse the same request again.

    The messages that no model has accepted then leave the state. A 4xx status about the key, money, a rate or
    a conflict has another kind of fault. 3xx are redirects to another origin.
    """
    kind, status = failure.fault.kind, failure.status
    refuses = status is None or (400 <= status <= 500 and status != _NO_SUCH_PLACE)
    return kind in ("context", "signature") or (kind == "rejected" and refuses)


def _error_of(ledger: Ledger, failure: Failure) -> TurnError:
    if ledger.is_late:
        return ledger.deadline_error()
    fault = failure.fault
    cls, _, _ = _ERRORS[fault.kind]
    found, advice = _words(ledger, failure)
    known = (
        f"status {failure.status}" if failure.status else "",
        f"code {fault.code!r}" if fault.code else "",
        f"request id {failure.request_id}" if failure.request_id else "",
    )
    detail = ", ".join(part for part in known if part)
    drops_input = blames_content(failure)
    before = ledger.plan.stands_for
    if drops_input and before is not None:
        # The provider before may take what this one refuses, so the input and the results stay.
        return ledger.error(
            type(before),
            f"a fallback refused the request{f' ({detail})' if detail else ''}, after the provider before it "
            f"had failed ({type(before).__name__}); try resume later",
            retryable=before.retryable,
            retry_after=before.retry_after,
            status_code=failure.status,
            request_id=failure.request_id,
            code=fault.code or "",
        )
    # Results that the provider refuses would be sent with each later request: flagged errors take their
    # place.
    if drops_input:
        ledger.reject_results()
    return ledger.error(
        cls,
        f"{found}{f' ({detail})' if detail else ''}; {advice}",
        drop_input=drops_input,
        retryable=fault.retryable,
        retry_after=fault.retry_after,
        status_code=failure.status,
        request_id=failure.request_id,
        code=fault.code or "",
    )


def _model(ledger: Ledger) -> str:
    """The name of the model that was asked."""
    return (ledger.options.settings or {}).get("model") or ledger.plan.model or ""


def _words(ledger: Ledger, failure: Failure) -> tuple[str, str]:
    """The text of the problem, and the advice. The cases here are narrower than a kind of fault."""
    if failure.passed in _WAITED:
        return (
            _WAITED[failure.passed].format(getattr(ledger.options, failure.passed)),
            "resume asks again; a larger limit leaves the model more time",
        )
    cause = failure.cause
    redirect = getattr(cause, "redirect", None)
    if redirect is not None:
        asked, other = redirect
        return (
            f"{asked} redirected the request to {other}, another origin, and nothing was sent there",
            "if the other server is the right one, set base_url= to it, then resume",
        )
    if failure.fault.kind == "auth" and failure.status is None and isinstance(cause, BackendError):
        variable = getattr(failure.cause, "key_variable", "") or "(see err.sdk_error)"
        return (
            "there are no credentials for the provider, so it was not asked",
            f"set the environment variable {variable} or pass api_key=, then resume",
        )
    if failure.fault.kind == "protocol" and failure.status is not None:
        return (
            "the server refused what its own model wrote, such as a malformed tool call",
            "resume asks again; err.partial_text has the model's text, if the server shows it",
        )
    if failure.fault.kind == "rate_limit" and not failure.fault.retryable:
        return (
            "the account or the key has no quota left",
            "add credit, or raise the limit, then resume",
        )
    if failure.fault.kind == "rate_limit" and failure.fault.retry_after is None:
        return _ERRORS["rate_limit"][1], "try resume later"
    if failure.fault.kind == "rejected" and failure.status == _NO_SUCH_PLACE:
        return (
            "the provider does not know the model, or has nothing at this address",
            f"check the model's name {_model(ledger)!r}, and base_url=, then resume",
        )
    if failure.fault.kind == "auth" and (failure.status == 402 or failure.fault.code in _NO_CREDIT):
        return (
            "the provider wants to be paid first: the account or the key has no credit left",
            "add credit, or raise the key's limit, then resume",
        )
    if failure.fault.kind == "auth" and (variable := getattr(cause, "key_variable", "")):
        return (
            "the provider refused the credentials",
            f"check the API key (environment variable {variable}, or api_key=), then resume",
        )
    if failure.fault.kind == "auth" and failure.status == 403:
        return (
            "the provider does not allow this to the credentials",
            "check the API key, and what it may use, then resume",
        )
    if failure.fault.kind == "auth" and failure.status == 407:
        return (
            "the proxy refused the credentials",
            "check those in the proxy's URL, then resume",
        )
    if failure.fault.kind == "unavailable" and failure.status is None and isinstance(cause, BackendError):
        return (
            f"the provider could not be reached ({cause})",
            "try resume later; if this stays, check base_url= and the network",
        )
    _, found, advice = _ERRORS[failure.fault.kind]
    if failure.fault.kind == "rejected" and failure.status in REFUSES_FORMS:
        missing = lacks(ledger.dialect, ChecksHistory, ViewsHistory)
        advice = f"{advice}; the history was not repaired: {missing}" if missing else advice
    wanted = ledger.plan.output
    blames_type = (
        failure.fault.kind == "rejected" and failure.status in REFUSES_FORMS and ledger.state.meta.output
    )
    if wanted is not None and blames_type and (doubts := wanted.doubts):
        return found, f"{doubts}; {advice}"
    return found, advice


def oversized(ledger: Ledger, problem: str) -> StateSizeError:
    """The error of a turn with a reply that its state cannot hold.

    Args:
        ledger: The books of the turn.
        problem: The part that is too large, and its size.
    """
    return ledger.error(
        StateSizeError,
        f"{problem}; its text is in err.text or err.partial_text, err.state goes on without it: ask for "
        "less, or give the codec larger limits=BlobLimits(…)",
    )
