"""The simulator's three wires without a socket, as a backend that fails when it is told to.

Owns: requests, replies and faults. Must never know: what the conversation should hold; it tells whoever
listens what it was asked and what it has said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from goaitools_py.backends.base import BackendError, ModelRequest, ResponseHead
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.sim import Fault as SimFault
from goaitools_py.sim import Reply, SimServer

__all__ = ["Fault", "Provider", "Say"]

PATHS = {"openai": "/v1/chat/completions", "openai-responses": "/v1/responses", "anthropic": "/v1/messages"}
HEADERS = {"anthropic-version": "2023-06-01", "content-type": "application/json"}
STATUS = {"429": 429, "500": 500, "401": 401, "413": 413, "400": 400, "422": 422, "context": 400}
HOLLOW = {"html": SimFault.html, "null": SimFault.null, "broken": SimFault.broken_json}
"""200s that are no reply."""


@dataclass(frozen=True)
class Say:
    """A reply: the tools that it calls, whether it thinks first, and why it ends: "length", "refusal"."""

    calls: tuple[str, ...] = ()
    thinks: bool = False
    ends: str = ""


@dataclass(frozen=True)
class Fault:
    """What becomes of one request. `after`: so many pieces of a reply come before it breaks off."""

    kind: str
    after: int = 0


class Listener(Protocol):
    """Whom a provider tells what it was asked, and what it has said."""

    def asked(self, body: bytes) -> None:
        """A request came."""

    def judged(self, problems: Sequence[str]) -> None:
        """The rules that it broke."""

    def took(self, body: bytes) -> None:
        """It was accepted."""

    def says(self, said: Say) -> Reply:
        """A reply is needed."""
        ...

    def too_large(self) -> None:
        """The request was refused for its size."""

    def said(self) -> None:
        """The reply has come whole."""


class Provider:
    """One provider behind every chat of a conversation."""

    def __init__(self, wire: str, listener: Listener) -> None:
        self.wire, self.listener = wire, listener
        self.sim = SimServer(max_recorded=4)
        self.script: deque[Say | Fault] = deque()
        self.asked = 0
        self.refused: Fault | None = None
        """The refusal of a message: it is refused in each form. A new turn resets it."""

    def backend(self, *, is_async: bool, max_retries: int) -> Any:
        """A backend of a colour."""
        return (_AsyncBackend if is_async else _Backend)(self, max_retries)

    def answer(self, request: ModelRequest) -> tuple[ResponseHead, tuple[bytes, ...], Fault | None]:
        """A reply's head and pieces, and the fault that breaks it off. Raises `BackendError`."""
        self.asked += 1
        self.listener.asked(request.body)
        if self.refused is not None:
            raise _refusal(self.refused.kind)
        step = self.script.popleft() if self.script else Say()
        fault = step if isinstance(step, Fault) else None
        if fault is not None and fault.kind in HOLLOW:
            self.sim.push(HOLLOW[fault.kind]())
        else:
            self.sim.push(self.listener.says(step if isinstance(step, Say) else Say()))
        headers = {**HEADERS, **{name.lower(): value for name, value in request.headers.items()}}
        response = self.sim.respond("POST", PATHS[self.wire], headers, request.body)
        head = ResponseHead(status=200, headers={name.lower(): value for name, value in response.headers})
        self.listener.judged(self.sim.requests[-1].problems)
        if fault is not None and fault.kind == "lost":
            raise BackendError("no connection")
        if fault is not None and fault.kind in STATUS:
            if fault.kind in ("400", "422"):
                self.refused = fault
            if fault.kind == "413":
                self.listener.too_large()
            raise _refusal(fault.kind)
        if fault is None or fault.kind not in HOLLOW:
            self.listener.took(request.body)
        return head, response.pieces, fault


def _refusal(kind: str) -> BackendError:
    code = "context_length_exceeded" if kind == "context" else None
    text = "prompt is too long: maximum context length" if kind == "context" else "no"
    error = {"type": "invalid_request_error", "message": text, "code": code}
    body = rawjson.dumps({"type": "error", "error": error})
    return BackendError("refused", status=STATUS[kind], headers={}, body=body)


class _Pieces:
    def __init__(
        self,
        head: ResponseHead,
        pieces: tuple[bytes, ...],
        fault: Fault | None,
        whole: Callable[[], None],
        *,
        is_stream: bool,
    ) -> None:
        self.head = head
        self._fault = fault
        # A body that breaks off does so in its middle.
        is_cut = fault is not None and fault.kind not in HOLLOW
        self._left = deque(pieces[: fault.after if fault and is_stream else 0] if is_cut else pieces)
        self._whole = whole

    def take(self) -> bytes:
        if self._left:
            piece = self._left.popleft()
            if not self._left and self._fault is None:
                self._whole()
            return piece
        if self._fault is not None and self._fault.kind == "reset":
            raise BackendError("reset", kind="interrupted")
        return b""


class _Exchange(_Pieces):
    def read(self) -> bytes:
        return self.take()

    def close(self) -> None:
        """Nothing is open."""


class _AsyncExchange(_Pieces):
    async def read(self) -> bytes:
        return self.take()

    async def aclose(self) -> None:
        """Nothing is open."""


class _Base:
    def __init__(self, provider: Provider, max_retries: int) -> None:
        self.provider, self.max_retries = provider, max_retries
        self.dialect = dialect_of(provider.wire)
        self.model: str | None = "sim-model"
        self.context_window: int | None = None

    def _pieces(self, made: Any, request: ModelRequest) -> Any:
        head, pieces, fault = self.provider.answer(request)
        if fault is not None and not request.stream and fault.kind not in HOLLOW:
            fault = Fault("reset")  # a body that ends early is no answer, whatever ended it
        return made(head, pieces, fault, self.provider.listener.said, is_stream=request.stream)


class _Backend(_Base):
    def send(self, request: ModelRequest) -> Any:
        return self._pieces(_Exchange, request)

    def close(self) -> None:
        """Nothing is open."""


class _AsyncBackend(_Base):
    async def asend(self, request: ModelRequest) -> Any:
        return self._pieces(_AsyncExchange, request)

    async def aclose(self) -> None:
        """Nothing is open."""
