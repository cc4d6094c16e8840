"""What a repair promises of every history, and a short way to say what it made.

Owns: the checks that hold whatever the damage was. Must never know: any one kind of damage.
"""

from __future__ import annotations

from collections.abc import Sequence

from goaitools_py.backends.dialects import dialect_of
from goaitools_py.history.rewrite.mend import Mended, mended
from goaitools_py.testing import check_history

__all__ = ["UNKNOWN", "assert_mended", "mend", "said"]

UNKNOWN = "The outcome of this tool call is unknown: it may or may not have taken effect."


def mend(wire: str, entries: Sequence[bytes]) -> Mended:
    """What becomes of a history; and whatever that is, it is valid, and it is that again."""
    found = mended(entries, dialect_of(wire))
    made = [one.entry for one in found.entries]
    assert check_history(wire, made, unique_ids=False) == []
    again = mended(made, dialect_of(wire))
    assert again.log == ()
    assert all(one.entry is entry for one, entry in zip(again.entries, made, strict=True))
    assert mended(list(entries), dialect_of(wire)) == found
    return found


def said(wire: str, entries: Sequence[bytes]) -> list[str]:
    """Who speaks and what: ``u hello``, ``a [c1 c2]`` for calls, ``t c1 text`` for a result."""
    lines: list[str] = []
    for message in dialect_of(wire).view(entries):
        match message.role:
            case "tool":
                lines.append(f"t {message.tool_call_id} {message.text}")
            case "assistant":
                calls = " ".join(call.id for call in message.tool_calls)
                lines.append(f"a {message.text}{f'[{calls}]' if calls else ''}")
            case role:
                lines.append(f"{role[0]} {message.text}")
    return lines


def valid_prefix(wire: str, entries: Sequence[bytes]) -> int:
    """How many entries make a closed valid history, before the first damaged place."""
    end = 0
    while end < len(entries) and not check_history(wire, entries[: end + 1], open_end=True, unique_ids=False):
        end += 1
    while check_history(wire, entries[:end], unique_ids=False):
        end -= 1
    return end


def assert_mended(wire: str, entries: Sequence[bytes]) -> None:
    found = mend(wire, entries)

    good = valid_prefix(wire, entries)
    assert [one.entry for one in found.entries][:good] == list(entries[:good])
    assert bool(found.log) == bool(check_history(wire, list(entries), unique_ids=False))
