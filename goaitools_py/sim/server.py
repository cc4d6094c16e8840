"""The simulator: an offline model provider on loopback, with a script of replies and faults.

Owns: how one request is answered and recorded; and the simulator as a process of its own, with its text on
the terminal and the wait for Ctrl-C. Must never know: a provider's JSON (the files of each provider know it),
or sockets (`loopback` knows them).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from .anthropic.messages_api import AnthropicMessages
from .http_values import JSON, Body, BodyError, Response, dump, read_body
from .loopback import Loopback
from .model.game_master import GameMaster
from .model.prompt import REQUEST, Model, Prompt, Reply, Said
from .model.token_counts import PrefixCache, Tokens, cut, estimate, reply_tokens
from .openai.chat_api import OpenAIChat
from .openai.common_rules import Refusal
from .openai.responses_api import OpenAIResponses
from .provider_faults import Fault, Scripted, damage
from .wire import REQUEST_ID, SimExchange, SimSummary, Wire

__all__ = ["WIRES", "Recorded", "SimServer", "serve"]

_WIRES: tuple[Wire, ...] = (OpenAIChat(), OpenAIResponses(), AnthropicMessages())
WIRES: Final = tuple(wire.name for wire in _WIRES)
_VAGUE = "Bad request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One request, and how it was answered.

    Attributes:
        headers: The headers, names in lower case.
        parsed: The body's JSON object; None if the body was not an object.
        problems: Every rule of the provider that the request broke.
        status: The status of the response; 0 if the connection broke before it.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    parsed: Mapping[str, Any] | None = field(repr=False)
    problems: tuple[str, ...]
    status: int


class SimServer:
    """An offline provider: the APIs of OpenAI and Anthropic, answered by a simulated model.

    OpenAI's APIs are at ``base_url``; `base_url_for` gives the base URL for each provider API.

    Use it as a context manager, or call `start` and `stop`. A request is first checked against the provider's
    rules. One that breaks them gets 400 and does not use a step of the script.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        seed: Changes the replies. The same request and seed give the same reply.
        model: Called with each prompt; None means a `GameMaster`.
        chunk_bytes: Write bodies in pieces of this size, to find readers that depend on where pieces end.
        pause: Seconds to wait before each piece of a stream, as a model takes its time.
        max_recorded: The number of requests in `requests`; older ones are dropped.
        rules: The host that is simulated, such as "groq" or "ollama". Its rules hold for requests, and it
            writes replies in its manner. None: the company of each provider API.
        vague: Refuse with "Bad request" alone, because hosts change their words. A refusal with status 500
            comes with 400 then: without its words it would be a failure of the server.

    Raises:
        ValueError: The simulator has no rules of this host; the error lists those that it has.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
        model: Model | None = None,
        chunk_bytes: int | None = None,
        pause: float = 0.0,
        max_recorded: int = 10_000,
        rules: str | None = None,
        vague: bool = False,
    ) -> None:
        if chunk_bytes is not None and chunk_bytes < 1:
            raise ValueError(f"chunk_bytes must be at least 1, got {chunk_bytes}")
        self._host, self._port, self._seed = host, port, seed
        self._model: Model = model or GameMaster(seed)
        self._chunk_bytes, self._pause, self._vague = chunk_bytes, pause, vague
        self._wires = _WIRES if rules is None else _host_wires(rules)
        self._cache = PrefixCache()
        self._lock = threading.Lock()
        self._script: deque[Scripted] = deque()
        self._requests: deque[Recorded] = deque(maxlen=max_recorded)
        self._problems: deque[str] = deque(maxlen=max_recorded)
        self._count = 0
        self._loopback: Loopback | None = None

    # ---------------------------------------------------------------------------------------- serving

    def start(self) -> Self:
        """Begin to listen, unless it listens already."""
        if self._loopback is None:
            self._loopback = Loopback(
                self.respond,
                host=self._host,
                port=self._port,
                chunk_bytes=self._chunk_bytes,
                pause=self._pause,
            )
        return self

    def stop(self) -> None:
        """Close every connection and the port; `requests` and `problems` stay readable."""
        if self._loopback is not None:
            self._loopback.close()
            self._loopback = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """The base URL for OpenAI's client: ``http://127.0.0.1:40123/v1``. RuntimeError before `start`."""
        return self.base_url_for("openai")

    def base_url_for(self, wire: str) -> str:
        """The base URL for the client of a provider API. Anthropic's client takes it without ``/v1``.

        Args:
            wire: "openai", "openai-responses" or "anthropic".

        Raises:
            ValueError: The provider API is unknown.
            RuntimeError: Before `start`.
        """
        roots = {known.name: known.root for known in _WIRES}
        if wire not in roots:
            raise ValueError(f"the simulator has no wire {wire!r}, only {', '.join(map(repr, roots))}")
        if self._loopback is None:
            raise RuntimeError("the simulator is not running; use `with SimServer() as sim:` or call start()")
        host, port = self._loopback.address
        return f"http://{host}:{port}{roots[wire]}"

    # ------------------------------------------------------------------------------ script and record

    def push(self, *scripted: Scripted) -> None:
        """Queue replies and faults. Each answers one request; then the model answers again."""
        for one in scripted:
            if not isinstance(one, (Reply, Fault, Response)):
                found = type(one).__name__
                raise TypeError(f"push takes replies and faults, not {found}; a reply is Reply.text('…')")
        with self._lock:
            self._script.extend(scripted)

    @property
    def requests(self) -> list[Recorded]:
        """A copy of all recorded requests, oldest first."""
        with self._lock:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """A copy of all rule violations of all requests."""
        with self._lock:
            return list(self._problems)

    def clear(self) -> None:
        """Drop the script, the requests, their problems and the prompt cache."""
        with self._lock:
            self._script.clear()
            self._requests.clear()
            self._problems.clear()
            self._cache = PrefixCache()

    # -------------------------------------------------------------------------------------- answering

    def respond(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Answer one request without a socket, and record it.

        Args:
            path: With or without a query string.
            headers: Names in lower case.
        """
        endpoint = path.partition("?")[0]
        found = next((wire for wire in self._wires if endpoint in _endpoints(wire)), None)
        wire = found or _by_headers(headers)
        counts = endpoint == wire.count_path
        parsed: Body | None = None
        asked: Body | None = None
        refusals: Sequence[Refusal] = ()
        if found is None or method != "POST":
            response = _elsewhere(wire, method, path)
        else:
            try:
                parsed = read_body(body, headers)
                asked = wire.count_body(parsed) if counts else parsed
                refusals = wire.refusals(asked)
            except BodyError:
                refusals = (wire.not_json,)
            if refusals or asked is None:
                response = self._refused(wire, refusals[0])
            elif counts:
                # As in this server's usage: four bytes are one token.
                response = wire.count(estimate(wire.prompt(asked).content))
            elif endpoint == wire.compact_path or wire.compacts(asked):
                response = self._compacted(wire, asked)
            else:
                response = self._scripted(wire, wire.prompt(asked))
        recorded = Recorded(
            method=method,
            path=path,
            headers=dict(headers),
            body=body,
            parsed=parsed.values if parsed else None,
            problems=tuple(refusal.message for refusal in refusals),
            status=response.status,
        )
        with self._lock:
            self._requests.append(recorded)
            self._problems.extend(recorded.problems)
            self._count += 1
            request_id = f"req_sim_{self._count:06}"
        return replace(
            response,
            headers=(*response.headers, (wire.request_id_header, request_id)),
            pieces=tuple(piece.replace(REQUEST_ID, request_id.encode()) for piece in response.pieces),
        )

    def _refused(self, wire: Wire, refusal: Refusal) -> Response:
        if self._vague:
            refusal = Refusal(_VAGUE, status=400 if refusal.status >= 500 else refusal.status)
        return wire.error(refusal.status, refusal)

    def _scripted(self, wire: Wire, prompt: Prompt) -> Response:
        with self._lock:
            scripted = self._script.popleft() if self._script else None
        if isinstance(scripted, Response):
            return scripted
        reply = scripted.reply if isinstance(scripted, Fault) else scripted

        def answer() -> Response:
            return self._answered(wire, prompt, reply)

        return damage(scripted, wire, prompt, answer) if isinstance(scripted, Fault) else answer()

    def _compacted(self, wire: Wire, body: Body) -> Response:
        """The scripted answer, if there is one. A test lets a compaction fail with it."""
        with self._lock:
            scripted = self._script.popleft() if self._script else None
        if isinstance(scripted, Response):
            return scripted
        prompt = wire.prompt(body)

        def answer() -> Response:
            summary = self._summary(prompt)
            return wire.compaction(body, summary.text, summary.tokens)

        return damage(scripted, wire, prompt, answer) if isinstance(scripted, Fault) else answer()

    def _summary(self, prompt: Prompt, *said: Said) -> SimSummary:
        """The model's summary of a prompt, and of the messages since then."""
        history = (*prompt.history, *said, Said(role="user", text=REQUEST))
        summary = self._model(replace(prompt, history=history, stream=False))
        return SimSummary(text=summary.content, tokens=replace(self._tokens(prompt, summary), written=0))

    def _tokens(self, prompt: Prompt, reply: Reply) -> Tokens:
        cacheable = prompt.content[: prompt.cacheable]
        cached = self._cache.count(prompt.model, cacheable)
        return Tokens(
            prompt=estimate(prompt.content),
            cached=cached,
            completion=reply_tokens(reply),
            written=estimate(cacheable) - cached,
        )

    def _answered(self, wire: Wire, prompt: Prompt, reply: Reply | None) -> Response:
        """The answer. The provider may compact before or after it, if the request asks for that. A scripted
        reply is given whatever the model would have seen."""
        seen, summary = prompt, None
        if prompt.shortened is not None:
            summary = self._summary(prompt)
            seen = prompt.shortened(summary.text)
        reply = reply or cut(self._model(seen), prompt.max_tokens)
        tokens, most = self._tokens(seen, reply), prompt.compact_above
        if most is not None and tokens.prompt + tokens.completion > most and not reply.tool_calls:
            summary = self._summary(prompt, Said(role="assistant", text=reply.content))
        salt = f"{self._seed}:{prompt.model}".encode("utf-8", "replace")
        key = hashlib.blake2b(prompt.content, digest_size=16, key=salt[:64]).hexdigest()
        calls = [
            call if call.id is not None else replace(call, id=_call_id(key, index))
            for index, call in enumerate(reply.tool_calls)
        ]
        return wire.answer(
            SimExchange(prompt=seen, reply=reply, calls=calls, tokens=tokens, key=key, summary=summary)
        )


def _host_wires(rules: str) -> tuple[Wire, ...]:
    # Most simulators simulate no host: the tables are read by those that do.
    from .hosts import wires_of

    return wires_of(rules, _WIRES)


def _endpoints(wire: Wire) -> tuple[str, ...]:
    return tuple(filter(None, (wire.path, wire.count_path, wire.compact_path)))


def _call_id(key: str, index: int) -> str:
    return "call_" + hashlib.blake2b(f"{key}:{index}".encode(), digest_size=12).hexdigest()


def _by_headers(headers: Mapping[str, str]) -> Wire:
    """The provider of the client that asks for an unknown path. Only Anthropic's client names a version."""
    return AnthropicMessages() if "anthropic-version" in headers else OpenAIChat()


def _elsewhere(wire: Wire, method: str, path: str) -> Response:
    if (method, path.partition("?")[0]) == ("GET", "/v1/models"):
        model = {"id": "sim-game-master", "object": "model", "created": 0, "owned_by": "goaitools-sim"}
        return Response(headers=JSON, pieces=(dump({"object": "list", "data": [model]}),))
    return wire.error(404, wire.not_found(method, path))


_LOOK_SECONDS = 0.2
"""How often the waiting thread checks for a Ctrl-C that did not wake it."""


def serve(
    port: int,
    *,
    host: str = "127.0.0.1",
    seed: int = 0,
    as_json: bool = False,
    rules: str | None = None,
    vague: bool = False,
) -> None:
    """Serve until Ctrl-C. Print that it is a simulator, and its address.

    Args:
        port: 0 takes a free one.
        host: The address to listen on.
        seed: For the choices of the simulated model.
        as_json: Print the addresses as one line of JSON: {"base_urls": {provider API: URL}}.
        rules: The host that is simulated, as for `SimServer`.
        vague: As for `SimServer`.
    """
    server = SimServer(host=host, port=port, seed=seed, max_recorded=0, rules=rules, vague=vague)
    with server as sim, _until_interrupted():
        # The server answers before the first line is written, so Ctrl-C can come at any line from here on.
        sys.stdout.write(_addresses(sim) if as_json else _announcement(sim))
        sys.stdout.flush()
        _wait_for_ever()


def _announcement(sim: SimServer) -> str:
    return (
        f"goaitools simulator (no language model, nothing leaves this machine): {sim.base_url}\n"
        f"for Anthropic's client: {sim.base_url_for('anthropic')}\n"
    )


def _addresses(sim: SimServer) -> str:
    return json.dumps({"base_urls": {wire: sim.base_url_for(wire) for wire in WIRES}}) + "\n"


def _until_interrupted() -> contextlib.suppress:
    return contextlib.suppress(KeyboardInterrupt)


def _wait_for_ever() -> None:
    # One wait without a time limit can miss Ctrl-C: a signal that arrives just before the thread sleeps, or
    # on another thread, does not wake it. Python sees that signal when the wait ends, so it ends often.
    never = threading.Event()
    while not never.wait(_LOOK_SECONDS):
        pass
