"""Requests, responses and errors on their way between `httpx2` and a classic `httpx` client.

Owns: their translation. Must never know: an SDK, a provider, how a request is sent, the meaning of the bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2

__all__ = [
    "carried_request",
    "errors_as_httpx2",
    "is_unreadable",
    "returned_response",
    "timeout_of",
    "type_name",
]


def type_name(value: object) -> str:
    """The name of an object's class, behind the name of its package."""
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}"


def timeout_of(client: httpx.Client | httpx.AsyncClient) -> httpx2.Timeout:
    """The timeouts of a client."""
    # The SDKs take their default timeouts from their HTTP client.
    return httpx2.Timeout(**client.timeout.as_dict())


def carried_request(request: httpx2.Request) -> dict[str, Any]:
    """The arguments that make the same request with `httpx`."""
    return {
        "method": request.method,
        "url": str(request.url),
        "headers": request.headers.raw,
        "content": request.content,
        "extensions": request.extensions,  # the timeouts of this request are in here
    }


def returned_response(
    response: httpx.Response, body: httpx2.SyncByteStream | httpx2.AsyncByteStream
) -> httpx2.Response:
    """A response of `httpx` as one of `httpx2`."""
    # The body is handed out decompressed: an event hook may have read it already, and that decompresses it.
    decoded = "content-encoding" in response.headers
    dropped = (b"content-encoding", b"content-length") if decoded else ()
    return httpx2.Response(
        status_code=response.status_code,
        headers=[(name, value) for name, value in response.headers.raw if name.lower() not in dropped],
        stream=body,
        extensions=response.extensions,
    )


def is_unreadable(response: httpx.Response) -> bool:
    """True for a response that a hook closed before its body was read: the body is lost."""
    return response.is_closed and not response.is_stream_consumed


@contextlib.contextmanager
def errors_as_httpx2() -> Iterator[None]:
    """Raise errors of `httpx` as the errors of `httpx2` with the same names."""
    try:
        yield
    except httpx.RequestError as error:
        raise _twin(type(error))(str(error)) from error


def _twin(classic: type[httpx.RequestError]) -> type[httpx2.RequestError]:
    """The `httpx2` class of the same name, or of the nearest base class's name: both libraries have the same
    classes."""
    for base in classic.__mro__:
        twin = getattr(httpx2, base.__name__, None)
        if isinstance(twin, type) and issubclass(twin, httpx2.RequestError):
            return twin
    return httpx2.RequestError
