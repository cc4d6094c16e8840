"""An application that uses its chat and its store while it is loaded, before its server forks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from goaitools_py import Chat
from goaitools_py.stores import SQLiteStore

CHAT = Chat("openai:m")
STORE = SQLiteStore(os.environ["GOAITOOLS_TEST_STORE"])
PARENT = os.getpid()

CHAT.conversation(STORE, "loaded").send("loaded")


def say(key: str, text: str) -> dict[str, Any]:
    """One turn of a conversation; what was answered, and by which process."""
    reply = CHAT.conversation(STORE, key).send(text).text
    return {"reply": reply, "pid": os.getpid(), "parent": PARENT}


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """``GET /KEY/TEXT`` for a WSGI server."""
    _, key, text = environ["PATH_INFO"].split("/")
    body = json.dumps(say(key, text)).encode()
    start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
