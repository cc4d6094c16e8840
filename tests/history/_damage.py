"""Histories of all wires as a broken writer could have left them, and blobs that hold them.

Owns: small words for entries of each wire, random valid histories, random damage, and forged blobs.
Must never know: how anything is repaired.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from goaitools_py import Message
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base import rawjson
from goaitools_py.base.values import replace
from goaitools_py.state.closed_turns import ClosedTurn, Iteration, TurnRecord
from goaitools_py.state.state import dump_state, new_state, rebuild
from goaitools_py.types.messages import Text, ToolCall, ToolResult

__all__ = ["Words", "as_turns", "damaged", "forged", "random_history"]


class Words:
    """Entries of one wire, in the words that the package writes itself."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.dialect = dialect_of(wire)

    def user(self, text: str) -> list[bytes]:
        """Something a user said."""
        return self.dialect.entries([Message(role="user", parts=(Text(text),))])

    def says(self, text: str) -> list[bytes]:
        """Something the model said, as the provider has it."""
        if self.wire != "openai-responses":
            return self.dialect.entries([Message(role="assistant", parts=(Text(text),))])
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed"}
        return [rawjson.dumps({**message, "content": [part]})]

    def calls(self, *ids: str, arguments: str = "{}") -> list[bytes]:
        """Calls of one reply."""
        calls = tuple(ToolCall(id=id, name="look", arguments=arguments) for id in ids)
        return self.dialect.entries([Message(role="assistant", tool_calls=calls)])

    def results(self, *ids: str, text: str = "") -> list[bytes]:
        """Results of one exchange."""
        return self.dialect.results(
            [ToolResult(call_id=id, parts=(Text(text or f"found {id}"),)) for id in ids]
        )

    def thought(self, number: int) -> list[bytes]:
        """Signed thinking, where it is an entry of its own."""
        item = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "c2VjcmV0"}
        return [rawjson.dumps(item)] if self.wire == "openai-responses" else []


def random_history(words: Words, dice: random.Random) -> list[bytes]:
    """A history that the provider takes: turns with and without tools, thinking, and reused ids."""
    entries: list[bytes] = []
    number = 0
    for turn in range(dice.randint(1, 4)):
        entries += words.user(f"question {turn}")
        for _ in range(dice.randrange(3)):
            ids = [f"call_{number + n if dice.random() < 0.9 else 0}_{n}" for n in range(dice.randint(1, 3))]
            number += len(ids)
            if dice.random() < 0.3:
                entries += words.thought(number)
            if dice.random() < 0.3:
                entries += words.says(f"wait {number}") if words.wire == "openai-responses" else []
            entries += words.calls(*ids) + words.results(*ids)
        if dice.random() < 0.3:
            entries += words.thought(1000 + turn)
        entries += words.says(f"answer {turn}")
    return entries


_JUNK = (
    b'{"role"',
    b"null",
    b"[]",
    b"{}",
    b'{"role":"bot","content":"x"}',
    b'{"role":"user"}',
    b'{"role":"user","content":[]}',
    b'{"role":"user","content":[{"type":"tool_result"}]}',
    b'{"role":"assistant","content":null}',
    b'{"role":"tool","content":"x"}',
    b'{"role":"tool","tool_call_id":"call_0_0","content":"x"}',
    b'{"type":"function_call_output","output":"x"}',
    b'{"type":"function_call","call_id":"call_0_0","name":"look","arguments":{}}',
    b'{"type":"reasoning","id":"rs_9","summary":[],"encrypted_content":"x"}',
    b'{"type":"compaction"}',
)


def damaged(entries: Sequence[bytes], dice: random.Random, *, times: int) -> list[bytes]:
    """The entries after some mishaps: dropped, doubled, swapped, moved, replaced, or with a broken member."""
    left = list(entries)
    for _ in range(times):
        if not left:
            break
        at, to = dice.randrange(len(left)), dice.randrange(len(left))
        match dice.choice(("drop", "double", "swap", "move", "junk", "member")):
            case "drop":
                del left[at]
            case "double":
                left.insert(dice.choice((at, to)), left[at])
            case "swap":
                left[at], left[to] = left[to], left[at]
            case "move":
                left.insert(to, left.pop(at))
            case "junk":
                left.insert(at, dice.choice(_JUNK))
            case _:
                left[at] = _with_broken_member(left[at], dice)
    return left


def _with_broken_member(entry: bytes, dice: random.Random) -> bytes:
    try:
        value: Any = rawjson.loads(entry)
    except rawjson.RawJSONError:
        return entry
    places: list[tuple[Any, Any]] = []

    def walk(holder: Any) -> None:
        pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in pairs:
            places.append((holder, key))
            if isinstance(inner, (dict, list)):
                walk(inner)

    if isinstance(value, (dict, list)):
        walk(value)
    if places:
        holder, key = dice.choice(places)
        if dice.random() < 0.5:
            del holder[key]
        else:
            holder[key] = dice.choice((None, [], {}, "", 1, "x", [None], [{}]))
    return rawjson.dumps(value)


# --------------------------------------------------------------------------------------------- blobs


def _letter(words: Words, entry: bytes) -> str:
    try:
        role = words.dialect.view([entry])[0].role
    except ValueError:
        return "u"
    return {"system": "s", "user": "u", "assistant": "a", "tool": "t"}[role]


def as_turns(words: Words, entries: Sequence[bytes]) -> list[ClosedTurn]:
    """Entries as turns, whatever they are; one begins at each user's that follows an answer."""
    turns: list[tuple[list[bytes], str]] = []
    for entry in entries:
        letter = _letter(words, entry)
        if not turns or (letter == "u" and turns[-1][1].endswith("a")):
            turns.append(([], ""))
        own, letters = turns[-1]
        turns[-1] = ([*own, entry], letters + letter)
    return [
        ClosedTurn(tuple(own), _record(at, letters, _count(words, own)))
        for at, (own, letters) in enumerate(turns)
    ]


def _count(words: Words, entries: Sequence[bytes]) -> int:
    try:
        return len(words.dialect.view(entries))
    except ValueError:
        return len(entries)


def _record(at: int, letters: str, messages: int) -> TurnRecord:
    cut = letters.rfind("t") + 1
    pieces = [piece for piece in (letters[:cut], letters[cut:]) if piece]
    iterations = tuple(Iteration(roles=piece, finish_reason="stop", ms=7) for piece in pieces)
    return TurnRecord(at=at, messages=messages, iterations=iterations, facts={"metadata": {"n": str(at)}})


def forged(words: Words, entries: Sequence[bytes], *, rules: int, **meta: Any) -> bytes:
    """A blob with a right digest that holds these entries and says under which rules it was written."""
    turns = as_turns(words, entries)
    state = rebuild(new_state(words.wire, id="forged", created=1_700_000_000_000), turns)
    known = msgspec.structs.replace(
        state.meta,
        rules=rules,
        rev=1,
        updated=9,
        messages=sum(turn.record.messages for turn in turns),
        turns=len(turns),
        processed=len(turns),
        **meta,
    )
    return dump_state(replace(state, meta=known))
