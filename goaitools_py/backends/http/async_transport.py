"""A bridge that lets an SDK built on `httpx2` send through a caller's classic `httpx` client.

Owns: the transport, and how a body is read.
Must never know: an SDK, a provider, the meaning of the bytes.

Both SDKs use `httpx2` today, but many callers have their proxies, mounts, authentication and event hooks on
`httpx` clients, and so have test tools such as `respx`. The bridge is an `httpx2` transport that sends
through an `httpx` client, with that client's configuration. It streams the body, and does not collect it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import httpx2

from .classic_messages import (
    carried_request,
    errors_as_httpx2,
    is_unreadable,
    returned_response,
    timeout_of,
    type_name,
)

__all__ = ["AsyncClassicTransport", "bridge_async"]


def bridge_async(client: object) -> httpx2.AsyncClient:
    """An `httpx2` client that sends through an `httpx.AsyncClient`. Closing it does not close that
    client."""
    if not isinstance(client, httpx.AsyncClient):
        raise TypeError(
            f"http_client= must be an httpx2.AsyncClient or httpx.AsyncClient, not {type_name(client)}"
        )
    return httpx2.AsyncClient(transport=AsyncClassicTransport(client), timeout=timeout_of(client))


class AsyncClassicTransport(httpx2.AsyncBaseTransport):
    """An `httpx2` transport that sends through a classic `httpx.AsyncClient`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the headers have come. Raises only errors of `httpx2`."""
        await request.aread()
        with errors_as_httpx2():
            sent = self._client.build_request(**carried_request(request))
            try:
                response = await self._client.send(sent, stream=True, follow_redirects=False)
            except httpx.HTTPStatusError as error:  # an event hook that raises for status
                response = error.response
        return returned_response(response, _AsyncBody(response))


class _AsyncBody(httpx2.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if is_unreadable(self._response):
            return
        with errors_as_httpx2():
            async for chunk in self._response.aiter_bytes():
                yield chunk

    async def aclose(self) -> None:
        with errors_as_httpx2():
            await self._response.aclose()
