# generated from backends/http/async_transport.py by tests/make_sync.py; edit backends/http/async_transport.py
"""A bridge that lets an SDK built on `httpx2` send through a caller's classic `httpx` client.

Owns: the transport, and how a body is read.
Must never know: an SDK, a provider, the meaning of the bytes.

Both SDKs use `httpx2` today, but many callers have their proxies, mounts, authentication and event hooks on
`httpx` clients, and so have test tools such as `respx`. The bridge is an `httpx2` transport that sends
through an `httpx` client, with that client's configuration. It streams the body, and does not collect it.
"""

from __future__ import annotations

from collections.abc import Iterator

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

__all__ = ["ClassicTransport", "bridge"]


def bridge(client: object) -> httpx2.Client:
    """An `httpx2` client that sends through an `httpx.Client`. Closing it does not close that client."""
    if not isinstance(client, httpx.Client):
        raise TypeError(f"http_client= must be an httpx2.Client or httpx.Client, not {type_name(client)}")
    return httpx2.Client(transport=ClassicTransport(client), timeout=timeout_of(client))


class ClassicTransport(httpx2.BaseTransport):
    """An `httpx2` transport that sends through a classic `httpx.Client`."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; return when the headers have come. Raises only errors of `httpx2`."""
        request.read()
        with errors_as_httpx2():
            sent = self._client.build_request(**carried_request(request))
            try:
                response = self._client.send(sent, stream=True, follow_redirects=False)
            except httpx.HTTPStatusError as error:  # an event hook that raises for status
                response = error.response
        return returned_response(response, _Body(response))


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        if is_unreadable(self._response):
            return
        with errors_as_httpx2():
            yield from self._response.iter_bytes()

    def close(self) -> None:
        with errors_as_httpx2():
            self._response.close()
