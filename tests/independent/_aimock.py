"""A running aimock, as a test sees it.

Owns: how it is scripted, and how its journal is read. Must never know: what a test expects.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
from typing import Any


class Aimock:
    """A running aimock. Each test scripts it under a name of its own, and sees its own requests alone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}"

    def control(self, method: str, path: str, body: Any = None, *, scene: str = "") -> Any:
        """Call one of aimock's own endpoints, and read its JSON."""
        headers = {"Content-Type": "application/json"} | ({"X-Test-Id": scene} if scene else {})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)) as line:
            line.request(method, f"/__aimock/{path}", json.dumps(body), headers)
            answer = line.getresponse()
            said = answer.read()
        assert answer.status == 200, said
        return json.loads(said)


class Scene:
    """One test's part of aimock: what it answers there, and what it was asked."""

    _numbers = itertools.count(1)

    def __init__(self, server: Aimock, face: Any, wire: str) -> None:
        self._server = server
        self._face = face
        self._wire = wire
        self._backends: list[Any] = []
        self.name = f"scene-{next(self._numbers)}"

    def chat(self, *, model: str = "aimock", max_retries: int = 0, **fields: Any) -> Any:
        """A new chat over a new backend, which speaks the test's wire with aimock."""
        backend = self._face.backend(
            model,
            wire=self._wire,
            base_url=self._server.url + ("" if self._wire == "anthropic" else "/v1"),
            api_key="not-a-key",
            max_retries=max_retries,
            default_headers={"X-AIMock-Context": self.name, "X-Test-Id": self.name},
        )
        self._backends.append(backend)
        return self._face.chat(backend, **fields)

    def answers(self, *fixtures: dict[str, Any]) -> None:
        """What aimock says to this test from now on: the first fixture that matches a request answers it."""
        mine = [{**fixture, "match": {**fixture["match"], "context": self.name}} for fixture in fixtures]
        self._server.control("POST", "fixtures", {"fixtures": mine})

    def suffers(self, **rates: float) -> None:
        """Make aimock fail this test's requests at these rates; none: let it answer again."""
        self._server.control("POST", "chaos", rates, scene=self.name)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """aimock's journal of this test's requests."""
        return self._server.control("GET", f"journal?testId={self.name}")  # type: ignore[no-any-return]

    @property
    def statuses(self) -> list[int]:
        """The status of each answer; 0 if there was none."""
        return [entry["response"]["status"] for entry in self.entries]

    @property
    def transcripts(self) -> list[list[tuple[str, ...]]]:
        """What each request said, in aimock's own reading of it."""
        return [_transcript(entry["body"]["messages"]) for entry in self.entries]

    def close(self) -> None:
        """Close the backends that were made for the test."""
        for backend in self._backends:
            if self._face.is_async:
                self._face.run(backend.aclose())
            else:
                backend.close()


def _transcript(messages: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """(role, text), ("call", id, name, arguments) and ("result", id, text), one after another.

    aimock reads each wire into Chat Completions' messages, and makes one message of each of Responses'
    items; so a reply is taken apart here.
    """
    said: list[tuple[str, ...]] = []
    for message in messages:
        content = message["content"] or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        if message["role"] == "tool":
            said.append(("result", message["tool_call_id"], text))
            continue
        if text:
            said.append((message["role"], text))
        for call in message.get("tool_calls") or ():
            said.append(("call", call["id"], call["function"]["name"], call["function"]["arguments"]))
    return said
