"""Every function on states, each as one call with a blob and its wire.

Owns: the calls, and which errors of arguments each documents. Must never know: where the blob comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from goaitools_py import AsyncChat, Chat, Compactor, KeepRecentTurns, TurnLimit, event
from goaitools_py.backends.dialects import dialect_for, known_dialect
from goaitools_py.cli import main
from goaitools_py.history.recall_archive import page_of, passages_of
from goaitools_py.seal import PLAIN
from goaitools_py.state.state import load_state
from goaitools_py.states import (
    convert_state,
    diff_states,
    estimate_tokens,
    export_state,
    fork_state,
    import_state,
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    save_state,
    state_from_messages,
    state_messages,
    to_markdown,
    undo_cut,
    update_state,
    upgrade_state,
    verify_state,
)
from goaitools_py.testing import ScriptedBackend

__all__ = ["FUNCTIONS", "MAY_REFUSE", "PREPARED", "TURNS", "VERIFIED", "WIRES"]

WIRES: Final = ("openai", "openai-responses", "anthropic")


def _chat(wire: str, **fields: Any) -> Chat:
    return Chat(ScriptedBackend(*["Yes."] * 5, wire=wire), **fields)


def _turn(blob: bytes, wire: str, **fields: Any) -> Any:
    fields = {"on_bad_state": "raise", "on_pending": "deny", "turn_id": "t-1", **fields}
    return _chat(wire).chat_with_state(blob, user="Hi.", **fields)


def _async_turn(blob: bytes, wire: str) -> Any:
    async def run() -> Any:
        async with AsyncChat(ScriptedBackend("Yes.", "Yes.", wire=wire)) as chat:
            return await chat.chat_with_state(blob, user="Hi.", on_pending="deny")

    return asyncio.run(run())


def _recalled(blob: bytes, wire: str) -> Any:
    dialect = dialect_for(wire, None)
    passages = passages_of(
        load_state(blob), dialect, codec=PLAIN, binding=None, loaded={}, dialect_of=known_dialect
    )
    return page_of(passages, "Hello done a")


def _saved(blob: bytes, wire: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_state(blob, Path(folder) / "a")


def _shown(blob: bytes, wire: str, *options: str) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder) / "a"
        path.write_bytes(blob)
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
            main(["inspect", str(path), *options])


def _compacted(blob: bytes, wire: str) -> Any:
    cut = Compactor(TurnLimit(1), KeepRecentTurns(1), retain=True)
    return _chat(wire).compact_state(blob, cut)


def _pending(blob: bytes, wire: str) -> None:
    for call in pending_calls(blob):
        with contextlib.suppress(ValueError):
            assert call.parsed is not call


def _called(blob: bytes, wire: str) -> Any:
    history = read_history(blob)
    for turn in history.turns:
        for message in turn.messages:
            for call in message.tool_calls:
                with contextlib.suppress(ValueError):
                    assert call.parsed is not call
    return history


def _imported(state: bytes | dict[str, Any], wire: str) -> bytes:
    return import_state(export_state(state) if isinstance(state, bytes) else state)


def _other(wire: str, at: int) -> str:
    """The provider API that a state is converted to."""
    return [other for other in WIRES if other != wire][at]


def _places(text: str) -> list[tuple[int, int]]:
    at = text.find("a")
    return [(at, at + 1)] if at >= 0 else []


FUNCTIONS: dict[str, Callable[[bytes, str], Any]] = {
    "inspect": lambda blob, wire: inspect_state(blob),
    "pending": _pending,
    "history": lambda blob, wire: read_history(blob, archived=True).to_dict(),
    "found": lambda blob, wire: read_history(blob, archived=True).find("Hello"),
    "messages": lambda blob, wire: state_messages(blob),
    "parsed calls": _called,
    "from messages": lambda blob, wire: [state_from_messages(w, state_messages(blob)) for w in WIRES],
    "markdown": lambda blob, wire: to_markdown(blob, archived=True),
    "tokens": lambda blob, wire: estimate_tokens(blob),
    "export": lambda blob, wire: export_state(blob),
    "exported JSON": lambda blob, wire: json.dumps(export_state(blob)),
    "import": _imported,
    "saved": _saved,
    "verify": lambda blob, wire: verify_state(blob),
    "upgrade": lambda blob, wire: upgrade_state(blob),
    "update": lambda blob, wire: update_state(blob, title="x", metadata={"a": "b"}),
    "fork": lambda blob, wire: fork_state(blob),
    "rewind": lambda blob, wire: rewind_state(blob, 1),
    "undo": lambda blob, wire: undo_cut(blob),
    "redact": lambda blob, wire: redact_state(blob, "Hello"),
    "redact what is there": lambda blob, wire: redact_state(blob, "done"),
    "redact a letter": lambda blob, wire: redact_state(blob, "a", "X"),
    "redact an expression": lambda blob, wire: redact_state(blob, re.compile(r"\b[ac][0-9a-f]*\b"), "X"),
    "redact by a function": lambda blob, wire: redact_state(blob, _places, "X"),
    "convert": lambda blob, wire: convert_state(blob, _other(wire, 0)),
    "convert to another": lambda blob, wire: convert_state(blob, _other(wire, 1)),
    "diff": lambda blob, wire: diff_states(blob, fork_state(blob)).to_dict(),
    "rebase": lambda blob, wire: rebase_state(blob, base=None, theirs=blob),
    "append": lambda blob, wire: _chat(wire).append_to_state(blob, event("It rains.")),
    "resume": lambda blob, wire: _chat(wire).resume(blob),
    "turn": _turn,
    "turn afresh": lambda blob, wire: _turn(blob, wire, on_bad_state="fresh"),
    "async turn": _async_turn,
    "compact": _compacted,
    "recall": _recalled,
    "inspect command": _shown,
    "inspect command with content": lambda blob, wire: _shown(blob, wire, "--show"),
}  # fmt: skip
PREPARED: Final[dict[str, Callable[[bytes], Any]]] = {"import": export_state}
"""What the caller has made of the blob before the function is called. Its cost is another function's."""
TURNS: Final = ("resume", "turn", "turn afresh", "async turn", "compact", "append")
"""They may also end with an error of a turn."""
VERIFIED: Final = ("history", "export", "redact", "markdown", "diff", "rewind")
"""What these refuse, `verify_state` finds. `state_messages` also refuses numbers that Python cannot hold."""
MAY_REFUSE: Final = ("undo", "rewind", "from messages", "redact by a function")
"""They raise ValueError or TypeError, as they say: where there is nothing to undo, not so many turns, or a
function that finds one more match each time that it is asked."""
