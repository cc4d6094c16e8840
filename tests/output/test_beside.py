"""Typed answers beside other things: the bytes of a request, summaries, dialects of others, stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from goaitools_py import AsyncChat, Chat, Compactor, Summarize, TurnLimit
from goaitools_py.backends.anthropic.dialect import AnthropicDialect
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.backends.openai_chat.dialect import OpenAIChatDialect
from goaitools_py.backends.protocols import WritesOutput
from goaitools_py.base import rawjson
from goaitools_py.output import Output, OutputError
from goaitools_py.states import verify_state
from goaitools_py.stores import AsyncMemoryStore
from goaitools_py.testing import ScriptedBackend

WIRES = {
    "openai": ("response_format", "messages"),
    "openai-responses": ("text", "input"),
    "anthropic": ("output_config", "messages"),
}
GOOD = '{"guilty":true,"years":3}'


class Verdict(BaseModel):
    guilty: bool
    years: int


class Free(BaseModel):
    scores: dict[str, int]


VERDICT = Verdict(guilty=True, years=3)


class Wordless:
    """A dialect without a format for JSON: that of Chat Completions, with this method taken away."""

    def __init__(self) -> None:
        self._inner = dialect_of("openai")

    def __getattr__(self, name: str) -> Any:
        if name in ("output", "count_request", "counted"):
            raise AttributeError(name)
        return getattr(self._inner, name)


@pytest.mark.parametrize("wire", WIRES)
def test_a_native_format_changes_one_member(wire: str) -> None:
    """The history, the preamble and the tools have the same bytes with a format and without one."""
    member, history = WIRES[wire]
    bodies = []
    for how in ({}, {"output_type": Output(Verdict, mode="native")}):
        backend = ScriptedBackend(GOOD, wire=wire)
        Chat(backend, system="Judge fairly.").chat(user="Judge.", conversation_id="c", **how)
        bodies.append(backend.requests[0].body)

    plain, typed = map(rawjson.loads, bodies)
    changed = typed.pop(member)
    assert plain == typed
    assert "json_schema" in str(changed)
    start = bodies[0].index(b'"%s":[' % history.encode())
    end = bodies[0].index(b"Judge.")
    assert bodies[1][start:].startswith(bodies[0][start:end])


@pytest.mark.parametrize("wire", WIRES)
def test_a_summary_has_no_format(wire: str) -> None:
    """The model that summarises behind typed turns writes text."""
    backend = ScriptedBackend(GOOD, GOOD, "They judged.", wire=wire)
    compactor = Compactor(TurnLimit(1), Summarize(keep_turns=1))
    chat, native = Chat(backend, compactor=compactor), Output(Verdict, mode="native")
    state = chat.chat_with_state(None, user="Judge the butler. " * 100, output_type=Verdict).state

    result = chat.chat_with_state(state, user="Judge.", output_type=native)

    assert result.compaction is not None
    assert result.compaction.outcome == "compacted"
    assert result.output == VERDICT
    assert [WIRES[wire][0] in body for body in backend.bodies()] == [True, True, False]
    assert verify_state(result.state) == ()


def test_a_dialect_without_a_format_is_asked_in_words() -> None:
    """Unless the caller insists."""
    dialect: Any = Wordless()
    assert not isinstance(dialect, WritesOutput)
    backend = ScriptedBackend(GOOD, dialect=dialect)

    assert Chat(backend).chat(user="Judge.", output_type=Verdict).output == VERDICT
    assert "response_format" not in backend.bodies()[0]
    assert "JSON Schema" in str(backend.bodies()[0])
    with pytest.raises(ValueError, match="has no format for answers in JSON"):
        Chat(backend).chat(user="Judge.", output_type=Output(Verdict, mode="native"))
    assert len(backend.requests) == 1


def test_a_compatible_server_is_not_held_to_openai_s_rules() -> None:
    """It takes dicts with free keys, and so it gets them. Anthropic's form would lose them."""
    backend = ScriptedBackend('{"scores":{"Red":3}}', dialect=OpenAIChatDialect(family="localhost"))
    assert Chat(backend).chat(user="Count.", output_type=Free).output == Free(scores={"Red": 3})

    backend = ScriptedBackend(dialect=AnthropicDialect(family="localhost"))
    with pytest.raises(ValueError, match=r"no place for Free\.scores"):
        Chat(backend).chat(user="Count.", output_type=Free)


def test_a_schema_that_is_not_strict_is_the_type_s_own() -> None:
    """OpenAI then need not hold the model to it, and takes any type."""
    backend = ScriptedBackend('{"scores":{"Red":3}}')

    result = Chat(backend).chat(user="Count.", output_type=Output(Free, strict=False, name="free"))

    sent = backend.bodies()[0]["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"]) == ("free", False)
    assert sent["schema"] == Free.model_json_schema()
    assert result.output == Free(scores={"Red": 3})


@pytest.mark.parametrize("wire", WIRES)
def test_a_kept_conversation_on_an_event_loop(wire: str) -> None:
    """An answer that fails, its resume as a stream, and a delivery that comes twice."""

    async def run() -> list[Any]:
        backend = ScriptedBackend("no", "no", GOOD, wire=wire)
        conversation = AsyncChat(backend).conversation(AsyncMemoryStore(), "ada", save="checkpoint")
        with pytest.raises(OutputError) as error:
            await conversation.send("Judge.", turn_id="1", output_type=Verdict)
        assert error.value.unsaved is None
        async with conversation.start_resume(output_type=Verdict) as turn:
            resumed = await turn.result()
        again = await conversation.send("Judge.", turn_id="1", output_type=Verdict)
        return [resumed.output, again.output, again.duplicate, len(backend.requests)]

    assert asyncio.run(run()) == [VERDICT, VERDICT, True, 3]
