"""Classifies an exception of an SDK: a redirect that is followed, or a `BackendError`.

Owns: an SDK's exceptions as `BackendError`, and the statuses and origins of redirects. Must never know: which
SDK it is, how a request is sent, how often to retry.

A request has a key and a conversation in it. If an HTTP client follows a redirect to another origin, it
removes only the `Authorization` header: `x-api-key`, `api-key` and the body are sent to the other server. So
no HTTP client follows redirects here. The edge looks at each one, and follows it only within the origin that
the request was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import httpx2

from ..base import BackendError
from .exchange import body_of, is_timeout, status_errors, wire_errors
from .sdk import Sdk, SdkClient, SdkErrors

__all__ = ["MAX_REDIRECTS", "Redirect", "redirect_of", "redirected"]

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
            key_variable=sdk.key_variable if response.status_code == 401 else "",
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


MAX_REDIRECTS: Final = 20
"""How many redirects one request follows. HTTP clients have the same default."""

_KEEPS_METHOD: Final = frozenset({307, 308})
_STATUSES: Final = frozenset({301, 302, 303}) | _KEEPS_METHOD

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_SHOWN: Final = 100
"""How many characters of a host name an error shows: the server chose that name."""


class Redirect(NamedTuple):
    """A redirect within one origin.

    Attributes:
        url: The whole address to ask next.
        is_post: True if the request is sent there as it is. Otherwise it becomes a GET without a body: 301,
            302 and 303 change the method (RFC 9110, section 15.4).
    """

    url: str
    is_post: bool


def redirect_of(response: Any) -> Redirect | None:
    """The target of a redirect; None if the answer is not a redirect.

    Args:
        response: A response of `httpx` or `httpx2` that was not followed.

    Raises:
        BackendError: It leads to another origin: scheme, host or port differ. `redirect` names both origins.
    """
    location = response.headers.get("location")
    if response.status_code not in _STATUSES or not location:
        return None
    asked = httpx2.URL(str(response.request.url))
    try:
        url = asked.join(location)
    except (httpx2.InvalidURL, ValueError):
        return None
    if _origin(asked) != _origin(url):
        here, there = _shown(asked), _shown(url)
        raise BackendError(
            f"{here} redirected the request to {there}, which is another origin; nothing was sent there",
            status=response.status_code,
            redirect=(here, there),
        )
    return Redirect(str(url), is_post=response.status_code in _KEEPS_METHOD)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)


def _shown(url: httpx2.URL) -> str:
    """The origin as text. The port is left out if it is the scheme's own."""
    host = url.host[:_SHOWN]
    place = f"[{host}]" if ":" in host else host
    port = url.port
    return f"{url.scheme}://{place}" + ("" if port in (None, _DEFAULT_PORTS.get(url.scheme)) else f":{port}")
