"""A connection of your own: posts requests over plain httpx, and hands the response out in chunks."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from ollama_dialect import OllamaDialect

from goaitools_py.backends import BackendError, Dialect, ModelRequest, ResponseHead


@contextmanager
def _failures(kind: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        late = isinstance(error, httpx.TimeoutException)
        raise BackendError(f"{type(error).__name__} from Ollama", kind=kind, timed_out=late) from error  # type: ignore[arg-type]


class OllamaExchange:
    """One open response."""

    def __init__(self, response: httpx.Response) -> None:
        self.head = ResponseHead(status=response.status_code, headers=dict(response.headers))
        self._response = response
        self._chunks = response.iter_bytes()

    def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        with _failures("interrupted"):
            return next(self._chunks, b"")

    def close(self) -> None:
        """Give the connection back."""
        self._response.close()


class OllamaBackend:
    """A backend for `Chat`; one for `AsyncChat` has `asend` and `aclose` instead."""

    def __init__(self, model: str, base_url: str = "http://127.0.0.1:11434") -> None:
        self.dialect: Dialect = OllamaDialect()
        self.model: str | None = model
        self.max_retries = 2  # the engine retries, a backend never does
        self.context_window: int | None = None
        self._client = httpx.Client(base_url=base_url, trust_env=False)

    def send(self, request: ModelRequest) -> OllamaExchange:
        """Post a request; return once the headers of a good response are there."""
        headers = {"content-type": "application/json", **request.headers}
        with _failures("unavailable"):
            post = self._client.build_request(
                "POST", request.path, content=request.body, headers=headers, timeout=request.timeout
            )
            response = self._client.send(post, stream=True)
            if response.is_success:
                return OllamaExchange(response)
            body = response.read()  # reading to the end closes it; the dialect tells the error
        status = response.status_code
        raise BackendError(
            f"Ollama answered {status}", status=status, headers=dict(response.headers), body=body
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
