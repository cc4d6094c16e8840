"""A provider API of your own: Ollama's ``/api/chat`` as a pure dialect, bytes in and values out.

One entry is one element of "messages". The server's messages are stored as they came: the only
change is an id for a call that has none. See https://docs.ollama.com/api/chat.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from goaitools_py import Message, Text, ToolCall, ToolResult, Usage
from goaitools_py.backends import (
    BlockText,
    Delta,
    Fault,
    ModelRequest,
    ProtocolFault,
    ProviderTool,
    Reply,
    RequestParts,
    ToolSpec,
    event_block,
    rawjson,
    read_event,
    user_text,
    valid_text,
)

OPTIONS = {"temperature": "temperature", "top_p": "top_p", "seed": "seed", "stop": "stop"}
OPTIONS |= {"max_output_tokens": "num_predict"}
KINDS = {401: "auth", 403: "auth", 408: "unavailable", 409: "unavailable", 429: "rate_limit"}
JOIN = b",\n"  # the bytes between two entries, in a state and in a request


class OllamaDialect:
    """The pure functions that the engine needs."""

    wire = "ollama"  # a state of this provider API stays on it
    family = "ollama"

    # -------------------------------------------------------------------------------------- sending

    def entries(self, messages: Sequence[Message]) -> list[bytes]:
        return [rawjson.dumps({"role": m.role, "content": _content(m)}) for m in messages]

    def results(self, results: Sequence[ToolResult]) -> list[bytes]:
        return [
            rawjson.dumps(
                {"role": "tool", "tool_name": r.name, "tool_call_id": r.call_id, "content": _result_text(r)}
            )
            for r in results
        ]

    def preamble(self, messages: Sequence[Message]) -> bytes:
        return JOIN.join(self.entries(messages))

    def tools(self, tools: Sequence[ToolSpec | ProviderTool]) -> bytes:
        functions = {}
        for tool in tools:
            if isinstance(tool, ProviderTool):
                raise ValueError("Ollama hosts no tools")
            about = {"name": tool.name, "description": valid_text(tool.description)}
            functions[tool.name] = about | {"parameters": dict(tool.parameters)}
        listed = [{"type": "function", "function": functions[name]} for name in sorted(functions)]
        return rawjson.dumps(listed) if listed else b""  # sorted: equal tools, equal bytes

    def request(self, parts: RequestParts) -> ModelRequest:
        settings = dict(parts.settings)
        headers, extra = settings.pop("extra_headers", {}), settings.pop("extra_body", {})
        if unknown := settings.keys() - OPTIONS.keys():
            raise ValueError(f"the 'ollama' wire has no setting {', '.join(sorted(unknown))}")
        if taken := extra.keys() & {"messages", "stream", "tools"}:
            raise ValueError(f"extra_body cannot replace {', '.join(sorted(taken))}")
        options = {OPTIONS[name]: value for name, value in settings.items()}
        tail = {"stream": parts.stream} | ({"options": options} if options else {}) | dict(extra)
        history = JOIN.join(piece for piece in (parts.preamble, *parts.history) if piece)
        body = b"".join(
            (
                b'{"model":' + rawjson.dumps(parts.model),
                b',"tools":' + parts.tools if parts.tools else b"",
                b',"messages":[' + history + b"],",
                rawjson.dumps(tail)[1:],  # its members and the closing brace
            )
        )
        return ModelRequest(path="/api/chat", body=body, headers=dict(headers), stream=parts.stream)

    # -------------------------------------------------------------------------------------- reading

    def reply(self, body: bytes) -> Reply:
        answer = _line(body)
        return _reply(answer.get("message", b""), answer)

    def decoder(self) -> "OllamaDecoder":
        return OllamaDecoder()

    def view(self, entries: Sequence[bytes]) -> tuple[Message, ...]:
        return tuple(map(_view, entries))

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Fault:
        kind: Any = KINDS.get(status) or ("unavailable" if status >= 500 else "rejected")
        wait = headers.get("retry-after", "")
        retryable = kind in ("unavailable", "rate_limit")
        return Fault(kind=kind, retryable=retryable, retry_after=float(wait) if wait.isdecimal() else None)

    # ------------------------------------------------------------------------------- changing entries

    def without_calls(self, reply: Reply) -> Reply:
        entries = [rawjson.without(e, {"tool_calls"}) for e in reply.entries] if reply.text else []
        return replace(reply, entries=tuple(entries), calls=(), run_calls=False) if reply.calls else reply

    def with_call_ids(self, reply: Reply, ids: Sequence[str]) -> Reply:
        calls = tuple(replace(call, id=id) for call, id in zip(reply.calls, ids, strict=True))
        return replace(reply, entries=(_with_ids(reply.entries[0], ids),), calls=calls) if ids else reply

    def unsigned(self, entries: Sequence[bytes]) -> list[bytes]:
        return list(entries)  # Ollama signs nothing

    def settled(self, reply: Sequence[bytes]) -> list[bytes]:
        return list(reply)  # and pauses nothing


class OllamaDecoder:
    """One streamed response: a line of JSON for each piece, the last one with ``"done":true``."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._last: dict[str, bytes] = {}
        self._said: dict[str, list[str]] = {"content": [], "thinking": []}
        self._calls: list[bytes] = []

    @property
    def is_done(self) -> bool:
        return bool(self._last)

    @property
    def partial_text(self) -> str:
        return valid_text("".join(self._said["content"]))

    def feed(self, chunk: bytes) -> list[Delta]:
        self._held += chunk
        if b"\n" not in chunk:
            return []
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest)
        return [delta for line in lines if line.strip() and not self._last for delta in self._take(line)]

    def _take(self, line: bytes) -> list[Delta]:
        piece = _line(line)
        deltas = []
        try:
            message = rawjson.members(piece.get("message", b"{}"))
            for key, kind in (("content", "text"), ("thinking", "reasoning")):
                if text := rawjson.string(message.get(key, b"")):
                    self._said[key].append(text)
                    deltas.append(Delta(kind=kind, text=valid_text(text)))  # type: ignore[arg-type]
            self._calls += _items(message.get("tool_calls", b"null"))
        except ValueError:
            raise ProtocolFault("a line of the stream is not a piece of a reply") from None
        if piece.get("done") == b"true":
            self._last = piece
        return deltas

    def finish(self) -> Reply:
        if not self._last:
            raise ProtocolFault("the stream broke off", Fault(kind="interrupted", retryable=True))
        said = {key: valid_text("".join(pieces)) for key, pieces in self._said.items() if pieces}
        message = rawjson.dumps({"role": "assistant", "content": "", **said})
        if self._calls:
            message = rawjson.replaced(message, {"tool_calls": b"[" + b",".join(self._calls) + b"]"})
        return _reply(message, self._last)


# --------------------------------------------------------------------------------- a message, a reply


def _content(message: Message) -> str:
    if message.is_event:
        return event_block(message.text, topic=message.topic, id=message.event_id)
    texts = []
    for part in message.parts:
        if not isinstance(part, Text):
            raise ValueError("the 'ollama' wire of this example takes text only")
        is_from_outside = message.role in ("user", "tool") and not isinstance(part, BlockText)
        texts.append(user_text(part.text) if is_from_outside else valid_text(part.text))
    return "\n".join(texts)


def _result_text(result: ToolResult) -> str:
    return "".join(
        user_text(part.text) if isinstance(part, Text) else f"[{part.media_type} left out]"
        for part in result.parts
    )


def _line(data: bytes) -> dict[str, bytes]:
    """The members of one JSON object from the server, unless it is an error."""
    try:
        found = rawjson.members(data)
    except ValueError:
        raise ProtocolFault("the answer is not a JSON object") from None  # its text never quotes the body
    if "error" in found:
        raise ProtocolFault("Ollama reported an error", Fault(kind="unavailable", retryable=True))
    return found


def _reply(message: bytes, answer: Mapping[str, bytes]) -> Reply:
    try:
        entry = _with_ids(rawjson.one_line(message))
        seen = _view(entry)
        reason = rawjson.string(answer.get("done_reason", b"")) or ""
        counts = [answer.get(key, b"") for key in ("prompt_eval_count", "eval_count")]
    except ValueError:
        raise ProtocolFault("the answer holds no message") from None
    read, written = (int(count) if count.isdigit() and len(count) < 16 else 0 for count in counts)
    return Reply(
        entries=(entry,),
        text=seen.text,
        reasoning=seen.reasoning,
        calls=seen.tool_calls,
        finish_reason=reason,
        stop="length" if reason == "length" else "end",
        run_calls=bool(seen.tool_calls) and reason != "length",  # cut-off calls never run
        usage=Usage(input_tokens=read, output_tokens=written, requests=1),
    )


def _view(entry: bytes) -> Message:
    message = rawjson.members(entry)
    text = valid_text(rawjson.string(message.get("content", b"")) or "")
    role: Any = rawjson.string(message.get("role", b""))
    told = read_event(text) if role == "user" else None
    return Message(
        role=role if role in ("system", "user", "tool") else "assistant",
        parts=(Text(told.text if told else text),) if text else (),
        tool_calls=tuple(map(_call, _items(message.get("tool_calls", b"null")))),
        tool_call_id=rawjson.string(message.get("tool_call_id", b"")),
        is_event=told is not None,
        topic=told.topic if told else None,
        event_id=told.id if told else None,
        reasoning=valid_text(rawjson.string(message.get("thinking", b"")) or ""),
        raw=entry,
    )


def _call(raw: bytes) -> ToolCall:
    call = rawjson.members(raw)
    function = rawjson.members(call.get("function", b"{}"))
    id, name = (
        rawjson.string(found.get(key, b"")) or "" for found, key in ((call, "id"), (function, "name"))
    )
    return ToolCall(id=id, name=name, arguments=function.get("arguments", b"{}").decode())


def _items(raw: bytes) -> list[bytes]:
    return [] if raw == b"null" else rawjson.items(raw)


def _with_ids(entry: bytes, ids: Sequence[str] = ()) -> bytes:
    """The entry with `ids` for its calls; without `ids`, with one for each call that lacks its own."""
    calls = _items(rawjson.members(entry).get("tool_calls", b"null"))
    seen = [_call(raw).id for raw in calls]
    made = hashlib.sha256(entry).hexdigest()[:16]  # no clock and no chance: the same reply, the same ids
    wanted = ids or [id if id and id not in seen[:n] else f"call_{made}_{n}" for n, id in enumerate(seen)]
    if list(wanted) == seen:
        return entry
    named = [rawjson.replaced(raw, {"id": rawjson.dumps(id)}) for raw, id in zip(calls, wanted, strict=True)]
    return rawjson.replaced(entry, {"tool_calls": b"[" + b",".join(named) + b"]"})
