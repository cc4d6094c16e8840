"""Classifies an exception of an SDK: a redirect that is followed, or a `BackendError`.

Owns: an SDK's exceptions as `BackendError`. Must never know: which SDK it is, how often to retry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import httpx2

from ..base import BackendError
from .exchange import body_of, is_timeout, status_errors, wire_errors
from .redirects import MAX_REDIRECTS, redirect_of
from .sdk import Sdk, SdkClient, SdkErrors

__all__ = ["redirected"]

_Client = TypeVar("_Client", bound=SdkClient)


def redirected(
    sdk: Sdk[_Client], client: _Client, error: Exception, given: dict[str, Any], hop: int
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Follow a redirect within the origin: return the method that sends the request, and its arguments. Any
    other error is raised in its final form. Called while the error is handled."""
    response = _answer_behind(sdk.errors, error)
    try:
        redirect = None if response is None else redirect_of(response)
    except BackendError as found:
        found.sdk_error = error
        raise found from None
    if redirect is None or hop == MAX_REDIRECTS:
        _raise_for(sdk, client, error)
    given = {**given, "path": redirect.url}
    if redirect.is_post and "content" in given:
        return client.post, given
    given.pop("content", None)
    return client.get, given


def _raise_for(sdk: Sdk[_Client], client: _Client, error: Exception) -> NoReturn:
    """Raise the exception for a failed post. Called while the error is handled."""
    found = _finding(sdk, error, client.base_url.host or "the server")
    if isinstance(found, BackendError):
        if found.status == 401:
            sdk.refused(client)
        found.sdk_error = error
        raise found from None
    if found is error:
        raise
    raise found from None


def _finding(sdk: Sdk[Any], error: Exception, host: str) -> Exception:
    """The exception for a failure: a `BackendError`, or the exception itself if it is a defect."""
    response = _answer_behind(sdk.errors, error)
    if response is not None:
        return BackendError(
            f"{host} answered {response.status_code}",
            status=response.status_code,
            headers=dict(response.headers.items()),
            body=body_of(response) or b"",
            request_id=response.headers.get(sdk.errors.request_id),
        )
    of_sdk = isinstance(error, sdk.errors.base)
    origin = error.__cause__ if of_sdk and isinstance(error.__cause__, Exception) else error
    reason = type(origin).__name__
    if isinstance(error, sdk.errors.timeout) or is_timeout(origin):
        return BackendError(f"{host} did not answer in time ({reason})", timed_out=True)
    if sdk.lacks_credentials(error):
        text = f"no usable credentials for {host} ({reason})"
        return BackendError(text, kind="auth", key_variable=sdk.key_variable)
    if isinstance(origin, (sdk.errors.base, *wire_errors())):
        return BackendError(f"no answer from {host} ({reason})")
    return origin  # an SDK may wrap any exception of an HTTP client as a lost connection


def _answer_behind(errors: SdkErrors, error: Exception) -> httpx2.Response | None:
    """The error answer behind an exception; None without one."""
    if isinstance(error, errors.base):
        stated = error if isinstance(error, errors.status) else error.__cause__
        known = isinstance(stated, (errors.status, *status_errors()))
        return getattr(stated, "response") if known else None  # noqa: B009 - the classes are values here
    # If the body of an error answer breaks off, the network raises, while the SDK handles the status. The
    # status says more than "connection lost".
    link: BaseException | None = error
    while link is not None and isinstance(error, wire_errors()):
        if isinstance(link, status_errors()) and (link is error or body_of(link.response) is None):
            return link.response
        link = link.__context__
    return None
