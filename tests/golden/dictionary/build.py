"""Rebuild dictionary 1 from `corpus.txt`: ``python tests/golden/dictionary/build.py FILE``.

Owns: how conversations written for this project become training samples, and the training parameters.
Must never know: a conversation that anybody really had. A trained dictionary holds pieces of its training
text verbatim, so only text written for the purpose may go in.

The same corpus, script and zstd release give the same bytes. Another zstd release may select other pieces;
the shipped file stays what it is, because blobs depend on it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import zstandard

__all__ = ["MAX_BYTES", "build", "samples"]

MAX_BYTES = 8192

# Long segments keep a wire's skeleton in one piece: 500 to 850 measured alike on conversations that are not
# in the corpus, and 5 % better than the trainer's own choice on blobs of two messages.
_SEGMENT_BYTES = 850
_MATCH_BYTES = 6
_ENTROPY_LEVEL = 4

# Random text is no use in a dictionary, so ids and signatures are shorter here than in life. On blobs of two
# messages that is 1 % better.
_LONGEST_NOISE = 12

Wire = Literal["chat", "responses", "anthropic"]
Line = tuple[str, str]
Entry = tuple[str, str]  # role letter (u, a, t), JSON text

_WIRES: tuple[Wire, ...] = ("chat", "responses", "anthropic")
_PREFIXES = (2, 3, 4, 5, 6, 8, 10, 20)
_FINISH = {
    "chat": ("stop", "tool_calls"),
    "responses": ("completed",) * 2,
    "anthropic": ("end_turn", "tool_use"),
}
_IDENTITY = {
    "chat": ("openai", "openai", ("gpt-5-mini", "gpt-4o", "gpt-4o-mini", "gpt-5", "gpt-4.1")),
    "responses": ("openai-responses", "openai", ("gpt-5", "gpt-5-mini")),
    "anthropic": ("anthropic", "anthropic", ("claude-sonnet-4-5", "claude-opus-4-5", "claude-haiku-4-5")),
}
_PICTURE_HEAD = {"png": "iVBORw0KGgoAAAANSUhEUgAA", "jpeg": "/9j/4AAQSkZJRgABAQAAAQABAAD/"}
_BASE62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


class _Noise:
    """Ids, counts and signatures that look random and are the same on every machine, for ever."""

    def __init__(self) -> None:
        self._count = 0

    def raw(self, size: int) -> bytes:
        self._count += 1
        return hashlib.shake_128(f"goaitools dictionary 1/{self._count}".encode()).digest(size)

    def number(self, low: int, high: int) -> int:
        return low + int.from_bytes(self.raw(8), "big") % (high - low)

    def often(self, percent: int) -> bool:
        return self.number(0, 100) < percent

    def word(self, size: int) -> str:
        return "".join(_BASE62[byte % 62] for byte in self.raw(min(size, _LONGEST_NOISE)))

    def hex(self, size: int) -> str:
        return self.raw(min(size, _LONGEST_NOISE // 2)).hex()

    def base64(self, size: int) -> str:
        return base64.b64encode(self.raw(min(size, _LONGEST_NOISE))).decode("ascii")

    def digest(self) -> str:
        return base64.urlsafe_b64encode(self.raw(8)).decode("ascii").rstrip("=")


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _dialogues(corpus: str) -> Iterator[list[Line]]:
    for block in corpus.split("\n\n"):
        lines = [(line[0], line[2:]) for line in block.splitlines() if line and line[0] != "#"]
        if lines:
            yield [(kind, text.replace("\\n", "\n") if kind in "ua" else text) for kind, text in lines]


# ------------------------------------------------------------------------- one dialogue in one wire


def _user(wire: Wire, text: str, picture: str, noise: _Noise) -> Any:
    if not picture:
        head = {"type": "message"} if wire == "responses" and noise.often(30) else {}
        return {**head, "role": "user", "content": text}
    data = _PICTURE_HEAD[picture] + noise.base64(60)
    url = f"data:image/{picture};base64,{data}"
    content: list[dict[str, Any]]
    if wire == "chat":
        content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
    elif wire == "responses":
        content = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
    else:
        source = {"type": "base64", "media_type": f"image/{picture}", "data": data}
        content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
    return {"role": "user", "content": content}


def _answer(wire: Wire, text: str, noise: _Noise) -> Iterator[Any]:
    if wire == "chat":
        extra: dict[str, Any] = {"refusal": None, "annotations": []} if noise.often(50) else {}
        yield {"role": "assistant", "content": text, **extra}
    elif wire == "responses":
        if noise.often(40):
            secret = "gAAAAA" + noise.base64(60)
            yield {
                "type": "reasoning",
                "id": "rs_" + noise.hex(25),
                "encrypted_content": secret,
                "summary": [],
            }
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
        head = {"type": "message", "role": "assistant", "status": "completed", "id": "msg_" + noise.hex(25)}
        yield {**head, "content": [part]}
    else:
        thinking = {"type": "thinking", "thinking": "The user wants to ", "signature": noise.base64(60)}
        content: list[Any] = [thinking] if noise.often(40) else []
        yield {"role": "assistant", "content": [*content, {"type": "text", "text": text}]}


def _call(wire: Wire, name: str, arguments: str, result: str, noise: _Noise) -> Iterator[tuple[str, Any]]:
    if wire == "anthropic":
        call_id = "toolu_01" + noise.word(22)
        use = {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
        said = [{"type": "text", "text": "Let me check that for you."}] if noise.often(50) else []
        yield "a", {"role": "assistant", "content": [*said, use]}
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": False}
        yield "t", {"role": "user", "content": [answer]}
        return
    call_id = "call_" + noise.word(24)
    if wire == "chat":
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        yield "a", {"role": "assistant", "content": None, "tool_calls": [call]}
        yield "t", {"role": "tool", "tool_call_id": call_id, "content": result}
    else:
        head = {"type": "function_call", "id": "fc_" + noise.hex(25), "call_id": call_id}
        yield "a", {**head, "name": name, "arguments": arguments, "status": "completed"}
        yield "t", {"type": "function_call_output", "call_id": call_id, "output": result}


def _entries(dialogue: list[Line], wire: Wire, noise: _Noise) -> Iterator[Entry]:
    context = picture = called = ""
    for kind, text in dialogue:
        if kind == "x":
            context = f"<app-context>{text}</app-context>\n"
        elif kind == "p":
            picture = text
        elif kind == "e":
            topic, _, news = text.partition(" | ")
            event = f'<app-event topic="{topic}" id="{noise.word(8)}">{news}</app-event>'
            yield "u", _dumps(_user(wire, event, "", noise))
        elif kind == "u":
            yield "u", _dumps(_user(wire, context + text, picture, noise))
            context = picture = ""
        elif kind == "a":
            for value in _answer(wire, text, noise):
                yield "a", _dumps(value)
        elif kind == "c":
            called = text
        elif kind == "r":
            name, _, arguments = called.partition(" ")
            for role, value in _call(wire, name, arguments, text, noise):
                yield role, _dumps(value)
        else:
            raise ValueError(f"corpus.txt: a line may start with one of u a c r e x p, not {kind!r}")


# ---------------------------------------------------------------------- what stands beside entries


class _Turns:
    """What stands beside the entries of a conversation: rows of turns, and the sums of the meta data."""

    def __init__(self, entries: list[Entry], wire: Wire, noise: _Noise) -> None:
        self.rows: list[str] = []
        self.total = [0] * 6
        self.usage = [0] * 6
        self.at = 0
        stop, tool_calls = _FINISH[wire]
        iterations: list[list[Any]] = []
        roles = ""
        start = count = 0
        read = noise.number(40, 3000)
        for (role, text), following in zip(entries, [*(entry for entry, _ in entries[1:]), ""], strict=True):
            roles += "e" if "<app-event" in text[:60] else role
            count += 1
            if role != "a" or following == "a":
                continue
            cached = read // 128 * 128 if read > 1024 and noise.often(60) else 0
            written = noise.number(20, 900) if cached and wire == "anthropic" else 0
            reasoning = 64 * noise.number(1, 9) if wire == "responses" and noise.often(50) else 0
            wrote, ms = noise.number(9, 300), noise.number(300, 6000)
            self.usage = [read, cached, written, wrote, reasoning, 1]
            self.total = [a + b for a, b in zip(self.total, self.usage, strict=True)]
            finish = tool_calls if following == "t" else stop
            iterations.append([roles, finish, *self.usage[:5], start, ms])
            roles = ""
            start += ms + noise.number(1, 900)
            read += wrote + noise.number(20, 400)
            if following != "t":
                self.rows.append(_dumps([self.at, count, iterations]))
                self.at += start + noise.number(3000, 90_000)
                iterations, start, count = [], 0, 0


def _meta(entries: list[Entry], turns: _Turns, wire: Wire, noise: _Noise) -> str:
    wire_name, family, models = _IDENTITY[wire]
    count = len(turns.rows)
    tokens = turns.usage[0] + turns.usage[3]
    meta: dict[str, Any] = {
        "wire": wire_name,
        "family": family,
        "model": models[noise.number(0, len(models))],
        "id": noise.hex(8),
        "rev": count,
    }
    if count > 1:
        meta["parent"] = noise.digest()
    meta["created"] = noise.number(1_700_000_000_000, 1_800_000_000_000)
    if count > 1:
        meta["updated"] = turns.at
    if noise.often(5):
        meta["status"] = ("awaiting_tools", "truncated", "refused", "limited")[noise.number(0, 4)]
    meta |= {"messages": len(entries), "turns": count, "processed": count, "tokens": tokens}
    meta |= {"total": turns.total, "usage": turns.usage}
    if noise.often(80):
        meta["preamble"] = noise.digest()
    if noise.often(60):
        meta["tools"] = noise.digest()
    if noise.often(20):
        meta["context"] = noise.digest()
    if noise.often(15):
        meta["events"] = [noise.digest() for _ in range(min(count, 3))]
    if noise.often(20):
        meta["ring"] = [[noise.digest(), noise.digest(), n, ""] for n in range(1, min(count, 4) + 1)]
    estimated = [noise.number(0, 2000), noise.number(0, 2000)] if noise.often(70) else [0, 0]
    meta["gauge"] = [tokens, turns.usage[4], *estimated, noise.number(0, 900)]
    if noise.often(15):
        meta["cost"] = [noise.number(100_000, 90_000_000), 0]
    if noise.often(10):
        meta["warned"] = 1
    meta["rules"] = 1
    if noise.often(15):
        meta["title"] = "A title"
    return _dumps(meta)


def samples(corpus: str) -> list[bytes]:
    """The segments that these conversations would be stored as: hot ones of several lengths, then metas."""
    noise = _Noise()
    hot: list[bytes] = []
    metas: list[bytes] = []
    for dialogue in _dialogues(corpus):
        for wire in _WIRES:
            entries = list(_entries(dialogue, wire, noise))
            for length in _PREFIXES:
                if length > max(len(entries), 2):
                    break
                prefix = entries[:length]
                text = ",\n".join(json_text for _, json_text in prefix)
                turns = _Turns(prefix, wire, noise)
                hot.append(f"{text}\n{','.join(turns.rows)}".encode())
                metas.append(_meta(prefix, turns, wire, noise).encode())
    return hot + metas


def build(corpus: str) -> bytes:
    """Train a dictionary of at most `MAX_BYTES` from the text of `corpus.txt`."""
    texts: list[bytes | bytearray | memoryview] = [*samples(corpus)]
    trained = zstandard.train_dictionary(
        MAX_BYTES, texts, k=_SEGMENT_BYTES, d=_MATCH_BYTES, level=_ENTROPY_LEVEL, dict_id=1
    )
    return trained.as_bytes()


def main() -> None:
    content = build(Path(__file__).with_name("corpus.txt").read_text(encoding="utf-8"))
    sys.stdout.write(
        f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}, "
        f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))}\n"
    )
    Path(sys.argv[1]).write_bytes(content)


if __name__ == "__main__":
    main()
