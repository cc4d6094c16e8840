"""`goaitools doctor --live` against aimock, a server that this project did not write, on each provider API.

aimock says what a script says, and has no keys, no cache and no counts: here it proves that the command's
requests are taken, and that the report names what this host does not have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from goaitools_py.cli import main

from .test_aimock import fails

TEAMS = [{"name": "get-score_V2", "arguments": {"team": team}} for team in ("Red", "Blue")]

LACKS = {
    "a count of tokens": "not offered",
    "a cache": "not offered",
    "a wrong key": "not offered",
    "a context overflow": "skipped",
}
USAGE = {"usage": {"input_tokens": 20, "output_tokens": 5}}


def test_the_doctor_asks_it(
    aimock: Any, wire: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is ok, but for the four that aimock has nothing for."""
    model = f"doctor-{wire}"
    monkeypatch.setenv("OPENAI_BASE_URL", f"{aimock.url}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", aimock.url)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-key")

    def on(text: str, *, said: dict[str, Any] | None = None, **match: Any) -> dict[str, Any]:
        return {"match": {"model": model, **match}, "response": {"content": text, **USAGE, **(said or {})}}

    def calls(text: str, *wanted: Any) -> dict[str, Any]:
        match = {"model": model, "userMessage": text, "hasToolResult": False}
        return {"match": match, "response": {"toolCalls": list(wanted), **USAGE}}

    unknown = fails(404)
    unknown["match"] = {"model": "goaitools-doctor-no-such-model"}
    fixtures = [
        calls("both at once", *TEAMS),
        calls("Call get-score_V2", TEAMS[0]),
        on("Red has 42, Blue has 57.", hasToolResult=True),
        on('{"team":"Red","points":42}', userMessage="42 points"),
        on("Hello, Zoë 東京 🙂.", userMessage="Zoë 東京"),
        on("8", userMessage="prime", said={"reasoning": "Let me see."}),
        on("Once upon", userMessage="long story", said={"finishReason": "length"}),
        on("Ada"),
        unknown,
    ]
    aimock.control("POST", "fixtures", {"fixtures": fixtures})

    code = main(["doctor", "--live", f"{wire}:{model}", "--yes", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert {one["asked"]: one["came"] for one in found["rows"] if one["came"] != "ok"} == LACKS
    assert (code, found["answered_as"]) == (0, model)
