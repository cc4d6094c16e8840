"""From entries to atoms, and from atoms to rounds.

Owns: which entries are dropped or written again because they are not valid alone. Must never know: which
result belongs to which call of another round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from ....backends.protocols import failed_calls
from ....base import rawjson
from ....base.values import replace
from ....types.messages import Message, ResultFlag, ToolCall, ToolResult
from .atoms import Atom, Round, Workbench

__all__ = ["read_atoms", "split_rounds"]


def read_atoms(bench: Workbench, entries: Sequence[bytes]) -> Iterator[Atom]:
    """The atoms of a history, in order. An entry that cannot be read is dropped."""
    for at, entry in enumerate(entries):
        pieces = [entry]
        try:
            bench.dialect.view(pieces)
        except ValueError:
            bench.log.append(("unreadable", at))
            continue
        if not bench.is_valid_alone(entry):
            pieces = _written_again(bench, entry)
            bench.log.append(("rewritten" if pieces else "empty", at))
        for piece in pieces:
            yield from bench.apart(piece, at)


def _written_again(bench: Workbench, entry: bytes) -> list[bytes]:
    """An entry that the provider refuses, written from its content. [] without content."""
    made: list[bytes] = []
    failed = failed_calls(bench.dialect, entry)
    for message in bench.dialect.view([entry]):
        calls = tuple(_readable(call) for call in message.tool_calls if call.id and call.name)
        if not message.parts and not calls and message.role != "tool":
            continue
        bare = replace(message, tool_calls=calls, raw=None, reasoning="")
        try:
            if message.role == "tool":
                id = message.tool_call_id or ""
                flag: ResultFlag = "error" if id in failed else "ok"
                result = ToolResult(call_id=id, parts=message.parts, flag=flag)
                written = bench.dialect.results([result])
            else:
                written = bench.dialect.entries([bare])
        except ValueError:
            continue  # white space only, for example
        made += [one for one in written if _is_sound(bench, message, one, entry)]
    return made


def _is_sound(bench: Workbench, message: Message, written: bytes, given: bytes) -> bool:
    # An entry of an unknown role must not become the user's words.
    is_users = message.role == "user" and _role(written) != _role(given)
    return not is_users and bench.is_valid_alone(written)


def _readable(call: ToolCall) -> ToolCall:
    """The call, its arguments unwrapped if they are JSON text inside a JSON string."""
    with suppress(ValueError):
        written = call.parsed
        if isinstance(written, str) and isinstance(rawjson.loads(written.encode()), dict):
            return replace(call, arguments=written)
    return call


def _role(entry: bytes) -> bytes:
    return rawjson.members(entry).get("role", b"")


def split_rounds(atoms: Iterable[Atom]) -> tuple[list[Atom | Round], list[Atom]]:
    """The history as rounds and single atoms, and the stray results: results that are not directly behind
    their call."""
    pieces: list[Atom | Round] = []
    strays: list[Atom] = []
    for atom in atoms:
        last = pieces[-1] if pieces else None
        if atom.message.role == "assistant":
            if isinstance(last, Round) and not last.own:
                last.run.append(atom)
            else:
                pieces.append(Round(run=[atom]))
        elif not atom.answers:
            pieces.append(atom)
        elif isinstance(last, Round) and last.has_call(atom.answers):
            last.own.append(atom)
        else:  # a stray result does not end the round: the model's next atoms continue the run before it
            strays.append(atom)
    return pieces, strays
