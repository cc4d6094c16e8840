"""Tools are encoded once, and what is sent is what would be sent without that."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, ProviderTool, Tool
from goaitools_py.testing import ScriptedBackend
from goaitools_py.turn import request
from goaitools_py.turn.request import tool_text


def made(number: int) -> Tool[..., Any]:
    """A tool with a schema of its own."""
    schema = {"type": "object", "properties": {f"p{number}": {"type": "string"}}}
    return Tool(f"tool_{number}", "A tool.", schema, external=True)


class Counting:
    """A dialect that counts how often it writes a list."""

    def __init__(self) -> None:
        self.written = 0

    def tools(self, specs: Any) -> bytes:
        self.written += 1
        return repr([getattr(spec, "name", None) or spec.raw for spec in specs]).encode()


def test_a_list_is_written_once() -> None:
    """The same specifications give the very same bytes and digest."""
    dialect: Any = Counting()
    specs = [made(1).spec(), made(2).spec()]

    first, again = tool_text(dialect, specs), tool_text(dialect, list(specs))

    assert first is again
    assert dialect.written == 1
    assert tool_text(dialect, specs[:1]).encoded == b"['tool_1']"
    assert tool_text(dialect, specs[:1]).digest != first.digest


def test_another_dialect_writes_its_own() -> None:
    """Two provider APIs never share a list."""
    one: Any = Counting()
    other: Any = Counting()
    specs = [made(1).spec()]

    tool_text(one, specs)
    tool_text(other, specs)

    assert (one.written, other.written) == (1, 1)


def test_a_provider_tool_that_was_changed_in_its_place_is_written_again() -> None:
    """A program may renew a key in the JSON that it gave."""
    dialect: Any = Counting()
    raw = {"type": "mcp", "authorization": "old"}
    hosted = ProviderTool(raw)

    before = tool_text(dialect, [hosted])
    raw["authorization"] = "new"
    after = tool_text(dialect, [hosted])

    assert (b"old" in before.encoded, b"new" in after.encoded) == (True, True)


def test_the_memory_is_bounded() -> None:
    """A program that makes new tools for each turn does not grow."""
    dialect: Any = Counting()
    for number in range(100):
        tool_text(dialect, [made(number).spec()])

    assert len(request._kept) <= 16


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_a_schema_that_depends_on_deps_is_written_each_turn(wire: str) -> None:
    """It may be another one each time."""
    names = iter("abc")
    dynamic: Tool[..., Any] = Tool(
        "dynamic", "Changes.", lambda deps: {"type": "object", "title": next(names)}, lambda: "done"
    )
    backend = ScriptedBackend("One.", "Two.", wire=wire)
    chat = Chat(backend, tools=[dynamic])

    chat.run_turns(None, ["1", "2"])

    assert [
        request.body.count(title) for request, title in zip(backend.requests, (b'"a"', b'"b"'), strict=True)
    ] == [
        1,
        1,
    ]
