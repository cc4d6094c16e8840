"""After every reply in the data a conversation goes on, with a server that is as strict as any.

Each recorded answer is that of a second turn; then comes another message. A recorded answer that is no reply
raises a typed error, and the conversation goes on after that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

from goaitools_py import Chat, TurnError
from goaitools_py.backends.base import BackendError, ModelRequest
from goaitools_py.testing import Raw, ScriptedBackend, check_history

from ._recorded import Exchange, Record
from ._wire import Wire
from ._wire_anthropic import ANTHROPIC
from ._wire_chat import CHAT
from ._wire_responses import RESPONSES

HISTORY: Final = {"openai": "messages", "openai-responses": "input", "anthropic": "messages"}
_HALF: Final = re.compile(r"[\ud800-\udfff]")


def refusals(wire: str, request: ModelRequest) -> list[str]:
    """What strict servers would say: the rules of the provider API, Moonshot's, and any parser's."""
    body = json.loads(request.body)
    history = [entry for entry in body[HISTORY[wire]] if entry.get("role") not in ("system", "developer")]
    goes_on = history[-1].get("role") == "assistant"  # a paused reply is sent again as it is
    found = list(check_history(wire, history, unique_ids=False, open_end=goes_on))
    if wire == "openai":
        for entry in history:
            if entry["role"] == "assistant" and entry.get("content", 0) in ("", []):
                found.append("message with role 'assistant' must not be empty")
    if _HALF.search(json.dumps(body, ensure_ascii=False)):
        found.append("invalid high surrogate in string")
    return found


def outcome(exchange: Exchange, wire: str) -> str:
    """What becomes of one recorded answer, and of the turn behind it."""

    def recorded(request: ModelRequest) -> Raw:
        if exchange.status >= 300:
            raise BackendError("refused", status=exchange.status, body=exchange.answer_bytes)
        return Raw.body(exchange.answer_bytes)

    def checked(request: ModelRequest) -> str:
        assert refusals(wire, request) == []
        return "Here."

    backend = ScriptedBackend("Hello.", recorded, *[checked] * 12, wire=wire)
    with Chat(backend, on_pending="deny") as chat:
        state = chat.chat_with_state(None, user="Hi.").state
        word = "complete"
        try:
            run = chat.start if exchange.was_streamed else chat.chat_with_state
            made: Any = run(state, user="Go on.")
            result = made.result() if exchange.was_streamed else made
            state, word = result.state, result.status
        except TurnError as error:
            state, word = error.state, type(error).__name__
        after = chat.chat_with_state(state, user="And now?")
    assert after.text == "Here."
    assert after.status == "complete"
    return word


@pytest.mark.parametrize(("wire", "least"), [(CHAT, 550), (RESPONSES, 350), (ANTHROPIC, 500)])
def test_a_conversation_goes_on_after_every_reply(
    read_wire: Callable[[Wire], list[Record]], wire: Wire, least: int
) -> None:
    words: dict[str, int] = {}
    for record in read_wire(wire):
        for exchange in record.exchanges:
            try:
                word = outcome(exchange, wire.name)
            except Exception as problem:
                raise AssertionError(f"{record.id}, exchange {exchange.at}: {problem!r}") from problem
            words[word] = words.get(word, 0) + 1
    assert words["complete"] >= least, words
