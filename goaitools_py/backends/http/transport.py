"""A bridge that lets an SDK built on `httpx2` send through a caller's classic `httpx` client.

Owns: the way of a request to `httpx`, of its response back, and of errors from one library to the other.
Must never know: an SDK, a provider, the meaning of the bytes.

Both SDKs use `httpx2` today, but many callers have their proxies, mounts, authentication and event hooks on
`httpx` clients, and so have test tools such as `respx`. The bridge is an `httpx2` transport that sends
through an `httpx` client, with that client's configuration. It streams the body, and does not collect it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2

__all__ = ["AsyncClassicTransport", "ClassicTransport", "bridge", "bridge_async"]


def bridge(client: object) -> httpx2.Client:
    """An `httpx2` client that sends through an `httpx.Client`. Closing it does not close that client."""
    if not isinstance(client, httpx.Client):
        raise TypeError(f"http_client= must be an httpx2.Client or httpx.Client, not {_type_name(client)}")
    return httpx2.Client(transport=ClassicTransport(client), timeout=_timeout(client))


def bridge_async(client: object) -> httpx2.AsyncClient:
    """An `httpx2` client that sends through an `httpx.AsyncClient`. Closing it does not close that
    client."""
    if not isinstance(client, httpx.AsyncClient):
        raise TypeError(
            f"http_client= must be an httpx2.AsyncClient or httpx.AsyncClient, not {_type_name(client)}"
        )
    return httpx2.AsyncClient(transport=AsyncClassicTransport(client), timeout=_timeout(client))


def _type_name(value: object) -> str:
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}"


def _timeout(client: httpx.Client | httpx.AsyncClient) -> httpx2.Timeout:
    # The SDKs take their default timeouts from their HTTP client.
    return httpx2.Timeout(**client.timeout.as_dict())


class ClassicTransport(httpx2.BaseTransport):
    """An `httpx2` transport that sends through a classic `httpx.Client`."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the headers have come. Raises only errors of `httpx2`."""
        request.read()
        with _errors_as_httpx2():
            sent = self._client.build_request(**_carried(request))
            try:
                response = self._client.send(sent, stream=True, follow_redirects=False)
            except httpx.HTTPStatusError as error:  # an event hook that raises for status
                response = error.response
        return _returned(response, _Body(response))


class AsyncClassicTransport(httpx2.AsyncBaseTransport):
    """An `httpx2` transport that sends through a classic `httpx.AsyncClient`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the headers have come. Raises only errors of `httpx2`."""
        await request.aread()
        with _errors_as_httpx2():
            sent = self._client.build_request(**_carried(request))
            try:
                response = await self._client.send(sent, stream=True, follow_redirects=False)
            except httpx.HTTPStatusError as error:  # an event hook that raises for status
                response = error.response
        return _returned(response, _AsyncBody(response))


def _carried(request: httpx2.Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": str(request.url),
        "headers": request.headers.raw,
        "content": request.content,
        "extensions": request.extensions,  # the timeouts of this request are in here
    }


def _returned(
    response: httpx.Response, body: httpx2.SyncByteStream | httpx2.AsyncByteStream
) -> httpx2.Response:
    # The body is handed out decompressed: an event hook may have read it already, and that decompresses it.
    decoded = "content-encoding" in response.headers
    dropped = (b"content-encoding", b"content-length") if decoded else ()
    return httpx2.Response(
        status_code=response.status_code,
        headers=[(name, value) for name, value in response.headers.raw if name.lower() not in dropped],
        stream=body,
        extensions=response.extensions,
    )


def _unreadable(response: httpx.Response) -> bool:
    """True for a response that a hook closed before its body was read: the body is lost."""
    return response.is_closed and not response.is_stream_consumed


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        if _unreadable(self._response):
            return
        with _errors_as_httpx2():
            yield from self._response.iter_bytes()

    def close(self) -> None:
        with _errors_as_httpx2():
            self._response.close()


class _AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if _unreadable(self._response):
            return
        with _errors_as_httpx2():
            async for chunk in self._response.aiter_bytes():
                yield chunk

    async def aclose(self) -> None:
        with _errors_as_httpx2():
            await self._response.aclose()


@contextlib.contextmanager
def _errors_as_httpx2() -> Iterator[None]:
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
