"""States of the right shape with other values in them, behind a seal that fits: any function on them gives a
value, or a typed error.

A digest that fits does not say who wrote a blob. So meta data, rows, entries, the journal and the archive may
hold any JSON, and each function on states reads it.
"""

from __future__ import annotations

import json
import random
import traceback
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from goaitools_py import Chat, event
from goaitools_py.errors import GoAIToolsError, StateError
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.parts import ARCHIVE, MEDIA, new_part
from goaitools_py.state.segments import stored_segment
from goaitools_py.states import (
    convert_state,
    diff_states,
    estimate_tokens,
    export_state,
    fork_state,
    inspect_state,
    pending_calls,
    read_history,
    rebase_state,
    redact_state,
    rewind_state,
    state_messages,
    to_markdown,
    undo_cut,
    update_state,
    upgrade_state,
    verify_state,
)
from goaitools_py.testing import ScriptedBackend
from tests.compaction._histories import WIRES

from .._odd_values import changed
from .test_export import rich

KINDS = {"sealed": Kind.SEALED, "hot": Kind.HOT, "inbox": Kind.INBOX, "open": Kind.OPEN}
PARTS = {"archive": ARCHIVE, "media": MEDIA}
FUNCTIONS: dict[str, Callable[[bytes, str], Any]] = {
    "inspect": lambda blob, wire: inspect_state(blob),
    "pending": lambda blob, wire: pending_calls(blob),
    "history": lambda blob, wire: read_history(blob, archived=True).to_dict(),
    "messages": lambda blob, wire: state_messages(blob),
    "markdown": lambda blob, wire: to_markdown(blob, archived=True),
    "tokens": lambda blob, wire: estimate_tokens(blob),
    "export": lambda blob, wire: json.dumps(export_state(blob)),
    "verify": lambda blob, wire: verify_state(blob),
    "upgrade": lambda blob, wire: upgrade_state(blob),
    "update": lambda blob, wire: update_state(blob, title="x", metadata={"a": "b"}),
    "fork": lambda blob, wire: fork_state(blob),
    "rewind": lambda blob, wire: rewind_state(blob, 1),
    "undo": lambda blob, wire: undo_cut(blob),
    "redact": lambda blob, wire: redact_state(blob, "Hello"),
    "convert": lambda blob, wire: [convert_state(blob, other) for other in WIRES if other != wire],
    "diff": lambda blob, wire: (
        diff_states(blob, rich(wire)).to_dict(), diff_states(rich(wire), blob).to_dict(),
    ),
    "rebase": lambda blob, wire: (
        rebase_state(blob, base=None, theirs=rich(wire)), rebase_state(rich(wire), base=None, theirs=blob),
        rebase_state(blob, base=rich(wire), theirs=blob),
    ),
    "append": lambda blob, wire: Chat(ScriptedBackend(wire=wire)).append_to_state(blob, event("It rains.")),
    "resume": lambda blob, wire: Chat(ScriptedBackend("Yes.", "Yes.", wire=wire)).resume(blob),
    "turn": lambda blob, wire: Chat(ScriptedBackend(*["Yes."] * 5, wire=wire)).chat_with_state(
        blob, user="Hi.", on_bad_state="raise", on_pending="deny", turn_id="t-1"
    ),
}  # fmt: skip
MAY_REFUSE = ("undo", "rewind")
"""They raise ValueError, as they say, where there is nothing to undo, or not so many turns."""
ROUNDS = 60


def mutated(r: random.Random, exported: dict[str, Any]) -> bytes:
    """A blob with odd values in one or two of its texts of JSON. Raises what the writer raises."""
    meta, segments, parts = exported["meta"], exported["segments"], exported.get("parts", [])
    for _ in range(r.randint(1, 2)):
        match r.randrange(8):
            case 0:
                meta = json.dumps(changed(r, json.loads(meta)))
            case 1 if parts:
                at = r.randrange(len(parts))
                text, _, lines = parts[at]["content"].rpartition("\n")
                if r.random() < 0.5:
                    entries = [json.dumps(changed(r, json.loads(one))) for one in text.split(",\n") if one]
                    text = ",\n".join(entries)
                else:
                    lines = json.dumps(changed(r, json.loads(f"[{lines}]")))[1:-1]
                parts = [*parts[:at], {**parts[at], "content": f"{text}\n{lines}"}, *parts[at + 1 :]]
            case _:
                at = r.randrange(len(segments))
                one = segments[at]
                if r.random() < 0.6 and one["entries"]:
                    which = r.randrange(len(one["entries"]))
                    entries = [*one["entries"]]
                    entries[which] = json.dumps(changed(r, json.loads(entries[which])))
                    one = {**one, "entries": entries}
                elif one["kind"] == "open":
                    one = {**one, "rows": json.dumps(changed(r, json.loads(one["rows"])))}
                else:
                    one = {**one, "rows": json.dumps(changed(r, json.loads(f"[{one['rows']}]")))[1:-1]}
                segments = [*segments[:at], one, *segments[at + 1 :]]
    made = [blobs.segment(Kind.META, meta.encode(), 0)]
    made += [
        stored_segment(KINDS[one["kind"]], [entry.encode() for entry in one["entries"]], one["rows"].encode())
        for one in segments
    ]
    return blobs.encode(
        made, [new_part(PARTS[one["kind"]], one["content"].encode(), one["count"]) for one in parts]
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("wire", WIRES)
def test_any_function_takes_any_values(wire: str, seed: int) -> None:
    """Nothing but a `StateError`, an error of a turn, or the ValueError that two functions document."""
    print("seed", seed)
    r = random.Random(f"odd states {wire} {seed}")
    exported = export_state(rich(wire))
    faults: dict[str, str] = {}
    read = 0
    for number in range(ROUNDS):
        try:
            blob = mutated(r, exported)
        except (ValueError, StateError):
            continue
        for name, function in FUNCTIONS.items():
            start = process_time()
            try:
                function(blob, wire)
                read += 1
            except GoAIToolsError:
                pass
            except Exception as error:
                if type(error) is not ValueError or name not in MAY_REFUSE:
                    faults.setdefault(f"{name}: {type(error).__name__}", f"{number}: {_where(error)}")
            if process_time() - start > 2:
                faults[f"{name} is slow"] = str(number)
    assert faults == {}
    assert read > ROUNDS


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(
        f"{frame.filename.rpartition('goaitools_py')[2]}:{frame.lineno}" for frame in reversed(frames)
    )
