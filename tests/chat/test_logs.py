"""Logging: stable names, ids in `extra=`, no content unless asked, and no cost while it is off."""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, ToolContext, TurnError, TurnLimit, tool
from goaitools_py.chat import logs
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import Calls, ScriptedBackend

DOCS = Path(__file__).resolve().parents[2] / "docs" / "logging.md"


@tool
def whisper(ctx: ToolContext[Any], secret: str) -> str:
    """Whisper it."""
    ctx.log_action("canary-action")
    return "canary-result"


ASKS = Calls([("whisper", {"secret": "canary-argument"})])


def names(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events of this package's records, in order."""
    return [one.event for one in caplog.records if one.name.startswith("goaitools_py")]  # type: ignore[attr-defined]


def test_a_turn_is_logged_with_names_and_ids(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The order of a turn; each record has the ids of its conversation and turn, and none has content."""
    chat = face.chat(ScriptedBackend(ASKS, "canary-reply"), tools=[whisper])

    with caplog.at_level(logging.DEBUG, "goaitools_py"):
        result = chat.chat(user="canary-user", system="canary-system", conversation_id="ada")

    assert names(caplog) == [
        "turn.started",
        "model.requested",
        "model.replied",
        "tool.started",
        "tool.finished",
        "model.requested",
        "model.replied",
        "turn.completed",
    ]
    own = [one for one in caplog.records if one.name.startswith("goaitools_py")]
    assert {(one.conversation_id, one.turn_ref) for one in own} == {("ada", "ada-1")}  # type: ignore[attr-defined]
    assert not any("canary" in str(vars(one)) for one in own)
    finished = own[4]
    assert (finished.name, finished.tool, finished.flag) == ("goaitools_py.tool", "whisper", "ok")  # type: ignore[attr-defined]
    assert own[-1].output_tokens == result.usage.output_tokens  # type: ignore[attr-defined]
    assert "tool=whisper" in finished.getMessage()


def test_a_turn_that_is_only_logged_is_not_streamed(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Who logs changes no request."""
    backend = ScriptedBackend("Hello.")
    chat = face.chat(backend)

    with caplog.at_level(logging.DEBUG, "goaitools_py"):
        chat.chat(user="Hi.")

    assert "model.replied" in names(caplog)
    assert [b'"stream":true' in request.body for request in backend.requests] == [False]


def test_retries_and_failures_are_logged(
    face: Any, sim: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each retry, and at the end the turn: at WARNING, because it may succeed later."""
    from goaitools_py.sim import Fault
    from goaitools_py.turn import retry

    monkeypatch.setattr(retry, "FIRST_PAUSE_SECONDS", 0.001)
    chat = face.on(sim, max_retries=1)
    sim.push(Fault.error(503, "busy"), Fault.error(503, "busy"))

    with caplog.at_level(logging.INFO, "goaitools_py"), pytest.raises(TurnError):
        chat.chat(user="canary-user")

    assert names(caplog) == ["turn.started", "retry", "turn.failed"]
    retried, failed = (one for one in caplog.records if one.event in ("retry", "turn.failed"))  # type: ignore[attr-defined]
    assert (retried.attempt, retried.reason, retried.status_code) == (1, "unavailable", 503)  # type: ignore[attr-defined]
    assert (failed.levelname, failed.error) == ("WARNING", "ProviderUnavailableError")  # type: ignore[attr-defined]
    assert failed.turn_ref == retried.turn_ref != ""  # type: ignore[attr-defined]
    assert "canary" not in caplog.text


def test_a_failed_turn_is_logged_while_the_rest_is_off(
    face: Any, sim: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """At ERROR, if the same call would fail again; once, also if the handle is asked again."""
    from goaitools_py.sim import Fault

    caplog.set_level("WARNING")  # as Python's own is, whatever a package has set
    chat = face.on(sim)
    sim.push(Fault.error(401, "who are you"))
    turn = chat.start(None, user="Hi.")

    for _ in range(2):
        with pytest.raises(TurnError):
            turn.result()

    assert [(one.levelname, one.event) for one in caplog.records] == [("ERROR", "turn.failed")]  # type: ignore[attr-defined]


def test_what_a_store_gets_is_logged(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Saves of turns and appends, and cuts."""
    store = AsyncMemoryStore() if face.is_async else MemoryStore()
    chat = face.chat(ScriptedBackend(*["Yes."] * 3), compactor=Compactor(TurnLimit(1), KeepRecentTurns(1)))
    from goaitools_py import event

    with caplog.at_level(logging.INFO, "goaitools_py"):
        kept = chat.inner.conversation(store, "ada")
        for act in (lambda: kept.send("a"), lambda: kept.append(event("e")), lambda: kept.send("b")):
            answer = act()
            if face.is_async:
                face.run(answer)

    found = names(caplog)
    assert found.count("state.saved") == 3
    assert found.count("state.appended") == 1
    assert "compacted" in found
    saved = [one for one in caplog.records if one.event == "state.saved"]  # type: ignore[attr-defined]
    assert all(one.blob_bytes > 0 and one.turn_ref.startswith("ada-") for one in saved)  # type: ignore[attr-defined]


def test_content_is_logged_on_request_and_redacted(face: Any, caplog: pytest.LogCaptureFixture) -> None:
    """By one logger alone, and each text as the function gives it back."""
    chat = face.chat(
        ScriptedBackend(ASKS, "canary-reply"),
        tools=[whisper],
        log_content=lambda text: text.replace("canary", "[bird]"),
    )

    with caplog.at_level(logging.INFO, "goaitools_py"):
        chat.chat(user="canary-user")

    said = [one for one in caplog.records if one.name == "goaitools_py.content"]
    assert [one.event for one in said] == [  # type: ignore[attr-defined]
        "content.request",
        "content.call",
        "content.arguments",
        "content.result",
        "content.request",
        "content.reply",
        "content.action",
    ]
    text = "".join(one.getMessage() for one in said)
    for word in ("user", "argument", "result", "reply", "action"):
        assert f"[bird]-{word}" in text
    assert "canary" not in caplog.text


def test_a_redaction_that_fails_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The turn goes on, and a record names the exception's class."""

    def boom(text: str) -> str:
        raise LookupError(text)

    with caplog.at_level(logging.INFO, "goaitools_py"):
        result = Chat(ScriptedBackend("canary"), log_content=boom).chat(user="canary")

    assert result.text == "canary"
    assert "canary" not in caplog.text
    assert names(caplog).count("content.unlogged") == 2


def test_a_name_that_a_model_wrote_makes_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does it look like another fact."""
    name = "x\nturn.failed error=Fake" + "y" * 10_000
    logs.log("tool", logging.INFO, "tool.finished", {"tool": name})
    with caplog.at_level(logging.INFO, "goaitools_py"):
        logs.log("tool", logging.INFO, "tool.finished", {"tool": name})

    (record,) = caplog.records
    assert "\n" not in record.getMessage()
    assert "tool='x" in record.getMessage()
    assert len(record.getMessage()) < 300


def test_log_content_is_checked() -> None:
    """Before any turn."""
    with pytest.raises(TypeError, match="log_content"):
        Chat("sim", log_content="yes")  # type: ignore[arg-type]


def calls_of_a_turn() -> Counter[tuple[str, str]]:
    """The Python functions that a turn with a tool calls, by file and name, once it is warm."""
    chat = Chat(ScriptedBackend(*[ASKS, "Yes."] * 4), tools=[whisper])
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: Any, kind: str, _: Any) -> None:
        if kind == "call":
            found[Path(frame.f_code.co_filename).name, frame.f_code.co_name] += 1

    for _ in range(3):
        chat.chat(user="Hi.")
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        chat.chat(user="Hi.")
    finally:
        sys.setprofile(before)
    return found


def test_logging_that_is_off_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """One look at the loggers' levels, no event, no record, and no call of the logging module."""
    own = logging.getLogger("goaitools_py")
    level = own.level
    own.setLevel(logging.WARNING)
    try:
        off = calls_of_a_turn()
        own.setLevel(logging.DEBUG)
        on = calls_of_a_turn()
    finally:
        own.setLevel(level)

    assert {name: count for (file, name), count in off.items() if file == "logs.py"} == {"logging_watch": 1}
    assert not [name for file, name in off if Path(file).name == "__init__.py" and "log" in name.lower()]
    assert on["logs.py", "log"] == 8


def test_the_page_names_every_record() -> None:
    """And the levels that the code has."""
    page = DOCS.read_text(encoding="utf-8")
    levels = {10: "DEBUG", 20: "INFO"}

    for child, level, name, _ in logs._RECORDS.values():
        assert re.search(rf"`{re.escape(name)}` \| {levels[level]} ", page), name
        assert f"goaitools_py.{child}" in page
