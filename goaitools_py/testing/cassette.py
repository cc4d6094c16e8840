"""Records the traffic of a program with its provider once, and replays it in tests.

Owns: the file of a cassette, the texts scrubbed from it, and the report of a changed request.
Must never know: a particular provider API, a test framework.

A request is compared as JSON, without the members that differ from run to run. Its headers, which hold the
key, are never recorded.
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from ..backends.base import BackendError, Dialect, ModelRequest, ResponseHead
from ..backends.by_name import backend_from_name
from ..backends.dialects import dialect_of

__all__ = ["Cassette", "CassetteMode"]

CassetteMode: TypeAlias = Literal["replay", "record", "auto"]

IGNORED: Final = (("prompt_cache_key",), ("safety_identifier",), ("metadata", "user_id"))
"""The places in a request that differ from run to run: digests of the conversation's id."""

_VERSION: Final = 1
_SCRUBBED: Final = "[scrubbed]"
_SECRET_MEMBERS: Final = frozenset(
    {"authorization", "authorization_token", "api_key", "apikey", "token", "secret"}
)
_SECRET_VARIABLE: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)$")
_LOOKS_SECRET: Final = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}|\bBearer\s+[A-Za-z0-9._~+/-]{8,}=*", re.I
)
_LONE: Final = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair: JSON may have it, UTF-8 has no bytes for it."""
_LEVELS: Final = 3
"""So often JSON may stand in a string of JSON: the arguments of a call, in a body, in the file."""
_SHORTEST_SECRET: Final = 8
_KEPT_HEADERS: Final = ("content-type", "retry-after", "retry-after-ms", "x-should-retry", "date")
_MOST_LINES: Final = 60


class Cassette:
    """A file with the requests of a program and the provider's answers.

    ::

        with Cassette("tests/cassettes/score.jsonl") as cassette:
            chat = Chat(cassette.backend("openai:MODEL"), tools=[get_score])
            assert chat.chat(user="How is Red doing?").text == "Red has 30 points."

    Run it once with ``GOAITOOLS_RECORD=1`` and a key. From then on it needs neither a key nor a network.

    Args:
        path: The file, JSON lines.
        mode: "replay" never sends anything. "record" sends, and writes the file anew. "auto" is "record" if
            the environment variable GOAITOOLS_RECORD is 1, else "replay".
        scrub: Texts that must not be in the file, or a function from a text to the text to write. Values of
            environment variables that end with KEY, TOKEN, SECRET or PASSWORD are scrubbed anyway, and
            everything that looks like a key.
        ignore: Names of members that may differ in a request, wherever they stand in it, beside those that
            this package makes anew for each conversation.

    Raises:
        FileNotFoundError: There is nothing to replay; the text says how to record.
        ValueError: The file is no cassette.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: CassetteMode = "auto",
        scrub: Sequence[str] | Callable[[str], str] = (),
        ignore: Collection[str] = (),
    ) -> None:
        if mode not in ("replay", "record", "auto"):
            raise ValueError(f"mode must be 'replay', 'record' or 'auto', got {mode!r}")
        if isinstance(scrub, str) or isinstance(ignore, str):
            raise TypeError("scrub and ignore take a list of texts")
        self._path = Path(path)
        asked = os.environ.get("GOAITOOLS_RECORD") == "1"
        self.is_recording = mode == "record" or (mode == "auto" and asked)
        self._scrub = _scrubber(scrub)
        self._ignored = frozenset(ignore)
        self._head: dict[str, Any] = {}
        self._takes: list[dict[str, Any]] = []
        self._left: list[dict[str, Any]] = []
        if not self.is_recording:
            self._read()

    def _read(self) -> None:
        if not self._path.exists():
            raise FileNotFoundError(
                f"there is no cassette {self._path}; record it: GOAITOOLS_RECORD=1, a key, and the test once"
            )
        try:
            # Not `splitlines`: it also ends a line at U+2028, which JSON leaves as it is.
            lines = self._path.read_text(encoding="utf-8").split("\n")
            head, *takes = [json.loads(line) for line in lines if line]
            if head["cassette"] != _VERSION or not all("request" in take for take in takes):
                raise KeyError
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{self._path} is no cassette of version {_VERSION}") from None
        self._head, self._takes, self._left = head, takes, list(takes)

    def backend(self, backend: Any = None, *, dialect: Dialect | None = None) -> Any:
        """The backend for the chat, of both colours.

        Args:
            backend: The real backend, or a name such as "openai:MODEL". It is used for a recording only, so
                a replay may leave it out, and then needs no SDK.
            dialect: The dialect, if it is one of your own and `backend` is left out.

        Raises:
            TypeError: There is no backend, and the cassette is recording.
        """
        if not self.is_recording:
            return _Player(self, dialect or getattr(backend, "dialect", None))
        if backend is None:
            raise TypeError("a recording needs the real backend, or a name such as 'openai:MODEL'")
        return _Recorder(self, backend)

    def assert_finished(self) -> None:
        """Raise AssertionError if a recorded request was not made."""
        if self._left:
            raise AssertionError(
                f"{len(self._left)} of {len(self._takes)} recorded requests were not made; the first:\n"
                + "\n".join(_lines(self._left[0]["request"])[:_MOST_LINES])
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.assert_finished()

    # ---------------------------------------------------------------------------------------- recording

    def _begin(self, backend: Any, request: ModelRequest) -> dict[str, Any]:
        dialect: Dialect = backend.dialect
        names = ("wire", "family")
        self._head = {"cassette": _VERSION, **{name: getattr(dialect, name) for name in names}}
        self._head |= {name: getattr(backend, name) for name in ("model", "context_window")}
        take = {"request": self._seen(request)}
        self._takes.append(take)
        return take

    def _save(self) -> None:
        whole = [take for take in self._takes if len(take) > 1]
        lines = [json.dumps(line, ensure_ascii=False, sort_keys=True) for line in (self._head, *whole)]
        text = "".join(f"{line}\n" for line in lines)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        written = _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", self._scrub(text))
        beside.write_text(written, encoding="utf-8", newline="\n")
        os.replace(beside, self._path)

    def _seen(self, request: ModelRequest) -> dict[str, Any]:
        body = json.loads(request.body) if request.body else None
        return {"path": request.path, "stream": request.stream, "body": self._cleaned(body, ())}

    def _cleaned(self, value: Any, at: tuple[str, ...] | None) -> Any:
        """A request's value without members that differ. `at`: the names that lead to it; None in a list."""
        if isinstance(value, Mapping):
            return {
                name: _SCRUBBED
                if _is_secret(name, inner)
                else self._cleaned(inner, None if at is None else (*at, name))
                for name, inner in value.items()
                if name not in self._ignored and (at is None or (*at, name) not in IGNORED)
            }
        if isinstance(value, list):
            return [self._cleaned(inner, None) for inner in value]
        return value

    # ----------------------------------------------------------------------------------------- replaying

    def _answer(self, request: ModelRequest) -> dict[str, Any]:
        # Written and read again, so that it is scrubbed as the recorded one was.
        seen = json.loads(self._scrub(json.dumps(self._seen(request), ensure_ascii=False, sort_keys=True)))
        for at, take in enumerate(self._left):
            if take["request"] == seen:
                return self._left.pop(at)
        number = len(self._takes) - len(self._left) + 1
        if not self._left:
            raise AssertionError(
                f"request {number} came, but the cassette {self._path.name} has {len(self._takes)}:\n"
                + "\n".join(_lines(seen)[:_MOST_LINES])
            )
        raise AssertionError(
            f"request {number} is not the recorded one of {self._path.name}; if the change is meant, record "
            f"it again with GOAITOOLS_RECORD=1:\n{_difference(self._left[0]['request'], seen)}"
        )


def _is_secret(name: str, value: object) -> bool:
    return isinstance(value, str) and name.lower() in _SECRET_MEMBERS


def _scrubber(given: Sequence[str] | Callable[[str], str]) -> Callable[[str], str]:
    own = given if callable(given) else None
    words = set() if callable(given) else {word for word in given if word}
    words |= {
        value
        for name, value in os.environ.items()
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_SECRET
    }
    spelled = set(words)
    for _ in range(_LEVELS):
        spelled |= {
            json.dumps(one, ensure_ascii=is_ascii)[1:-1] for one in spelled for is_ascii in (True, False)
        }
    in_order = sorted(spelled, key=len, reverse=True)  # one may hold another

    def scrubbed(text: str) -> str:
        for word in in_order:
            text = text.replace(word, _SCRUBBED)
        text = _LOOKS_SECRET.sub(_SCRUBBED, text)
        return text if own is None else own(text)

    return scrubbed


def _lines(request: Mapping[str, Any]) -> list[str]:
    return json.dumps(request, ensure_ascii=False, indent=1, sort_keys=True).splitlines()


def _difference(recorded: Mapping[str, Any], seen: Mapping[str, Any]) -> str:
    lines = list(difflib.unified_diff(_lines(recorded), _lines(seen), "recorded", "now", lineterm="", n=3))
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"… and {more} more lines"] if more > 0 else [])])


# ------------------------------------------------------------------------------------------- responses


def _told(exc: BackendError) -> dict[str, Any]:
    return {
        "error": str(exc),
        "kind": exc.kind,
        "status": exc.status,
        "headers": _kept_headers(exc.headers),
        "body": _text(exc.body),
        "timed_out": exc.timed_out,
    }


def _raised(told: Mapping[str, Any]) -> BackendError:
    return BackendError(
        told["error"],
        kind=told["kind"],
        status=told["status"],
        headers=told["headers"],
        body=_bytes(told["body"]),
        timed_out=told["timed_out"],
    )


def _kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in _KEPT_HEADERS}


def _text(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


class _Recorder:
    """The real backend. Its traffic is written down."""

    def __init__(self, cassette: Cassette, backend: Any) -> None:
        self._cassette = cassette
        self._given = backend
        self._made: dict[bool, Any] = {}

    def _real(self, is_async: bool) -> Any:
        if not isinstance(self._given, str):
            return self._given
        if is_async not in self._made:
            self._made[is_async] = backend_from_name(self._given, is_async=is_async)  # type: ignore[call-overload]
        return self._made[is_async]

    def __getattr__(self, name: str) -> Any:
        if name in ("send", "asend", "close", "aclose"):
            raise AttributeError(name)
        return getattr(self._real(False), name)

    def send(self, request: ModelRequest) -> Any:
        real = self._real(False)
        take = self._cassette._begin(real, request)
        try:
            return _RecordedExchange(real.send(request), self._cassette, take)
        except BackendError as exc:
            take["response"] = _told(exc)
            self._cassette._save()
            raise

    async def asend(self, request: ModelRequest) -> Any:
        real = self._real(True)
        take = self._cassette._begin(real, request)
        try:
            return _RecordedAsyncExchange(await real.asend(request), self._cassette, take)
        except BackendError as exc:
            take["response"] = _told(exc)
            self._cassette._save()
            raise

    def close(self) -> None:
        self._real(False).close()

    async def aclose(self) -> None:
        if (other := self._made.pop(False, None)) is not None:
            other.close()  # made for its attributes
        await self._real(True).aclose()


class _Taped:
    def __init__(self, inner: Any, cassette: Cassette, take: dict[str, Any]) -> None:
        self._inner = inner
        self._cassette = cassette
        self._take = take
        self._chunks: list[bytes] = []
        self.head: ResponseHead = inner.head

    def _heard(self, chunk: bytes) -> bytes:
        self._chunks.append(chunk)
        return chunk

    def _write(self, failure: BackendError | None = None) -> None:
        head = {"status": self.head.status, "headers": _kept_headers(self.head.headers)}
        broken = {} if failure is None else {"broken": _told(failure)}
        self._take["response"] = {**head, "body": _text(b"".join(self._chunks)), **broken}
        self._cassette._save()


class _RecordedExchange(_Taped):
    def read(self) -> bytes:
        try:
            return self._heard(self._inner.read())
        except BackendError as exc:
            self._write(exc)
            raise

    def close(self) -> None:
        self._inner.close()
        if "response" not in self._take:
            self._write()


class _RecordedAsyncExchange(_Taped):
    async def read(self) -> bytes:
        try:
            return self._heard(await self._inner.read())
        except BackendError as exc:
            self._write(exc)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()
        if "response" not in self._take:
            self._write()


class _Player:
    """Answers from the cassette."""

    max_retries = 0

    def __init__(self, cassette: Cassette, dialect: Dialect | None) -> None:
        head = cassette._head
        self._cassette = cassette
        self.model = head["model"]
        self.context_window = head["context_window"]
        if dialect is None:
            dialect = dialect_of(head["wire"], family=head["family"], model=self.model or "")
        self.dialect: Dialect = dialect

    def send(self, request: ModelRequest) -> _PlayedExchange:
        return _PlayedExchange(self._response(request))

    async def asend(self, request: ModelRequest) -> _PlayedAsyncExchange:
        return _PlayedAsyncExchange(self._response(request))

    def _response(self, request: ModelRequest) -> Mapping[str, Any]:
        response: Mapping[str, Any] = self._cassette._answer(request)["response"]
        if "error" in response:
            raise _raised(response)
        return response

    def close(self) -> None:
        """Do nothing: no connection is open."""

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


class _Played:
    def __init__(self, response: Mapping[str, Any]) -> None:
        self.head = ResponseHead(status=response["status"], headers=response["headers"])
        self._body = _bytes(response["body"])
        self._broken = response.get("broken")

    def _take(self) -> bytes:
        body, self._body = self._body, b""
        if not body and self._broken is not None:
            raise _raised(self._broken)
        return body


class _PlayedExchange(_Played):
    def read(self) -> bytes:
        return self._take()

    def close(self) -> None:
        """Do nothing: no connection is open."""


class _PlayedAsyncExchange(_Played):
    async def read(self) -> bytes:
        return self._take()

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""
