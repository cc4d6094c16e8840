# generated from backends/http/async_fast_post.py by tests/make_sync.py; edit backends/http/async_fast_post.py
"""A short way from a post's bytes to the HTTP client, with the request that the SDK would have made.

Owns: when the short way is taken, and the outcome that the SDK sees afterwards.
Must never know: which SDK it is, a provider, the meaning of the bytes.

An SDK's own work for each post takes an eighth of a short turn. Here the SDK's client gets an
`RecordingClient` as its HTTP client. That sees each request just before it is sent. Once its head is known
(`heads`), new bytes are put behind that head, and the real HTTP client sends them: with its own cookies,
hooks, authentication, proxies and transport. A client of a backend that has none of these is left out, and
its transport gets the request. A change of a header, a key, a timeout, an address or a cookie takes effect at
once: with other wishes the SDK makes the head again.

The SDK still interprets the answer. If there is no answer, or its status is not 2xx, the SDK posts once more.
Then the recording client sends nothing, and returns the first outcome. So the exception is the SDK's.

All names of an SDK or of `httpx2` that are used here are public.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx2

from .heads import (
    ClientDefaults,
    Head,
    Heads,
    NoTransport,
    Post,
    completed,
    head_of,
    lone_transport,
    recorded,
    repeated,
    running_post,
)

__all__ = ["FastPost", "RecordingClient"]


class RecordingClient(httpx2.Client):
    """An HTTP client for an SDK. It sees each request, and another client does the work.

    Args:
        http_client: The client that does the work.
    """

    def __init__(self, http_client: httpx2.Client) -> None:
        super().__init__(transport=NoTransport(), timeout=http_client.timeout, trust_env=False)
        self._behind = http_client

    def build_request(self, *args: Any, **given: Any) -> httpx2.Request:
        """Built by the other client, with its headers, cookies and parameters."""
        return self._behind.build_request(*args, **given)

    def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Sent by the other client, unless an outcome is there already."""
        if (post := running_post.get()) is not None:
            if post.outcome is not None:
                return repeated(post.outcome)
            post.head = head_of(request, post.content, self._behind.cookies, how)
        return self._behind.send(request, **how)

    def close(self) -> None:
        """Close the other client, too."""
        self._behind.close()
        super().close()


class FastPost:
    """The `post` of an SDK's client, made cheaper.

    Args:
        client: The SDK's client, over a `RecordingClient` of `http_client`.
        http_client: It builds requests as `httpx2` does.
        defaults: The values that the client adds to each post.
    """

    def __init__(self, client: Any, http_client: httpx2.Client, defaults: ClientDefaults) -> None:
        self._client = client
        self._http_client = http_client
        self._defaults = defaults
        self._heads = Heads()

    def post(self, path: str, *, content: bytes, cast_to: Any, options: Mapping[str, Any]) -> Any:
        """As the client's `post`, with a whole address as `path`, and an `httpx2.Timeout` in the options."""
        http_client, limits = self._http_client, options["timeout"].as_dict()
        wishes = self._defaults.wishes(path, options, http_client)
        if wishes is None:
            return self._client.post(path, content=content, cast_to=cast_to, options=options)
        head = self._heads.find(wishes, limits)
        if head is None:
            with recorded(Post(content)) as post:
                try:
                    return self._client.post(path, content=content, cast_to=cast_to, options=options)
                finally:
                    self._heads.learn(wishes, post.head)
        request = head.request(content, limits, http_client.cookies)
        try:
            outcome: httpx2.Response | Exception = self._sent(request, head)
        except Exception as error:
            outcome = error
        if isinstance(outcome, httpx2.Response) and outcome.is_success:
            return outcome
        try:
            with recorded(Post(content, outcome)):
                return self._client.post(path, content=content, cast_to=cast_to, options=options)
        finally:
            del outcome

    def _sent(self, request: httpx2.Request, head: Head) -> httpx2.Response:
        """As the HTTP client's `send`. A client that would add nothing is left out."""
        http_client = self._http_client
        transport = lone_transport(http_client, head)
        if transport is None:
            return http_client.send(request, **head.how)
        began = time.perf_counter()
        try:
            response = transport.handle_request(request)
        except httpx2.RequestError as error:
            error.request = request
            raise
        return completed(http_client, request, response, began)
