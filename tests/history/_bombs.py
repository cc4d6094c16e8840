"""Blobs of a few hundred bytes that hold a million JSON values, each in another place of a state.

Owns: the fillings, the places where they stand, and the blobs. Must never know: what reads them.

A bomb is named ``place: filling``. Each is a valid state of its wire, but for those whose filling is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from goaitools_py.seal import BlobLimits
from goaitools_py.state import blob as blobs
from goaitools_py.state.blob import Kind
from goaitools_py.state.codec import LIMITS
from goaitools_py.state.parts import ARCHIVE, MAX_PART_BYTES, new_part

__all__ = ["FILLINGS", "PLACES", "WHOLE", "WIRES", "all_bombs", "bomb", "fillings_of"]

WIRES: Final = ("openai", "openai-responses", "anthropic")
_ROOM: Final = BlobLimits(
    max_blob_bytes=2**26, max_decoded_bytes=2**26, max_meta_bytes=2**22, max_entries=2**21, max_values=2**26
)

Filling = Callable[[int], str]
"""Gives a JSON text of about so many values."""


def _array(item: str, values: int = 1) -> Filling:
    return lambda count: "[" + ",".join([item] * max(1, count // values)) + "]"


def _nested(opening: str, closing: str, depth: int = 40) -> Filling:
    return _array(opening * (depth - 1) + "1" + closing * (depth - 1), depth)


FILLINGS: Final[dict[str, Filling]] = {
    "empty arrays": _array("[]", 2),
    "empty objects": _array("{}", 2),
    "zeros": _array("0"),
    "strings": _array('""'),
    "escapes": _array(r'"\n\"\\"'),
    "nested arrays": _nested("[", "]"),
    "nested objects": _nested('{"a":', "}"),
    "small objects": _array('{"a":0}', 2),
    "objects of four": _array('{"a":0,"b":0,"c":0,"d":0}', 5),
    "many keys": lambda count: "{" + ",".join([f'"{n:x}":0' for n in range(count)]) + "}",
    "large integers": _array(str(2**62)),
    "larger integers": _array(str(2**70)),
    "floats": _array("1e5"),
    "numbers beyond floats": _array("1e999"),
    "lone surrogates": _array(r'"\ud800"'),
    "a lone surrogate and zeros": lambda count: r'["\ud800",' + "0," * count + "0]",
    "texts": _array('{"type":"text","text":"a"}', 3),
    "thinking": _array('{"type":"thinking","thinking":"a","signature":"b"}', 4),
    "split texts": _array('{"type":"text","text":"a"},{"type":"text","text":"b"}', 6),
    "different texts": lambda count: (
        "[" + ",".join(f'{{"type":"text","text":"a{n:x}"}}' for n in range(count // 3)) + "]"
    ),
    "different uses": lambda count: (
        "["
        + ",".join(
            f'{{"type":"tool_use","id":"c{n:x}","name":"f","input":{{"a":{n}}}}}' for n in range(count // 6)
        )
        + "]"
    ),
    "different calls": lambda count: (
        "["
        + ",".join(
            f'{{"id":"c{n:x}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}'
            for n in range(count // 6)
        )
        + "]"
    ),
    "calls": _array('{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}', 6),
    "uses": _array('{"type":"tool_use","id":"c","name":"f","input":{}}', 5),
    "results": _array('{"type":"tool_result","tool_use_id":"c","content":"a"}', 4),
    "a broken end": lambda count: "[" + "[]," * (count // 2) + "}",
    "a long number": lambda count: "[" + "9" * count + "]",
    "a long text": lambda count: '"' + "a, [b] {c} " * (count // 4) + '"',
    "a long escaped text": lambda count: '"' + r"\n\"\\" * (count // 3) + '"',
    "JSON in a string": lambda count: json.dumps(FILLINGS["empty arrays"](count)),
    "JSON in a string in a string": lambda count: json.dumps(json.dumps(FILLINGS["zeros"](count))),
    "JSON in strings": lambda count: json.dumps([FILLINGS["empty arrays"](count // 8)] * 8),
    "objects in a string": lambda count: json.dumps(FILLINGS["small objects"](count)),
    "invalid JSON in a string": lambda count: json.dumps(FILLINGS["a broken end"](count)),
    "a surrogate in a string": lambda count: json.dumps(FILLINGS["a lone surrogate and zeros"](count)),
}


# ------------------------------------------------------------------------------------------------ places


def _exchange(wire: str, **said: str) -> list[str]:
    """The entries of a turn with a call, and a member `x` in the reply. Each of `said` is JSON text."""
    asked, text, x = said.get("asked", '"Hi."'), said.get("text", '"Yes."'), said.get("x", "0")
    arguments, result = said.get("arguments", '"{}"'), said.get("result", '"done"')
    if wire == "openai":
        call = f'{{"id":"c","type":"function","function":{{"name":"f","arguments":{arguments}}}}}'
        calls = said.get("calls", f"[{call}]")
        return [
            f'{{"role":"user","content":{asked}}}',
            f'{{"role":"assistant","content":null,"x":{x},"tool_calls":{calls}}}',
            f'{{"role":"tool","tool_call_id":"c","content":{result}}}',
            f'{{"role":"assistant","content":{text}}}',
        ]
    if wire == "anthropic":
        use = f'{{"type":"tool_use","id":"c","name":"f","input":{arguments}}}'
        return [
            f'{{"role":"user","content":{asked}}}',
            f'{{"role":"assistant","x":{x},"content":{said.get("calls", f"[{use}]")}}}',
            f'{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c","content":{result}}}]}}',
            f'{{"role":"assistant","content":{text}}}',
        ]
    return [
        f'{{"type":"message","role":"user","content":{asked}}}',
        f'{{"type":"function_call","id":"f","call_id":"c","name":"f","arguments":{arguments},"x":{x}}}',
        f'{{"type":"function_call_output","call_id":"c","output":{result}}}',
        f'{{"type":"message","role":"assistant","id":"m","content":{text}}}',
    ]


_TURN: Final = '[0,4,[["ua","",1,0,0,1,0,0,0],["ta","",1,0,0,1,0,0,0]]]'


class _Bomb:
    """The pieces of a blob."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.meta = (
            f'"wire":"{wire}","id":"b","rev":1,"created":1,"turns":1,"processed":1,"messages":4,"rules":9'
        )
        self.entries, self.rows = _exchange(wire), _TURN
        self.inbox: tuple[list[str], str] | None = None
        self.open: tuple[list[str], str] | None = None
        self.archive: tuple[list[str], str, int] | None = None

    def fits(self) -> bool:
        """Tell whether the meta data and the archive are not larger than they may be."""
        archived = self.archive or ([], "", 0)
        size = sum(map(len, archived[0])) + len(archived[1])
        return size < MAX_PART_BYTES - 2**10 and len(self.meta) < 2 * LIMITS.max_meta_bytes - 2**10

    def blob(self) -> bytes:
        segments = [blobs.segment(Kind.META, ("{" + self.meta + "}").encode(), 0)]
        for kind, found in (
            (Kind.HOT, (self.entries, self.rows)),
            (Kind.INBOX, self.inbox),
            (Kind.OPEN, self.open),
        ):
            if found is not None:
                entries, line = found
                raw = (",\n".join(entries) + "\n" + line).encode()
                segments.append(blobs.segment(kind, raw, len(entries)))
        parts = []
        if self.archive is not None:
            entries, line, count = self.archive
            parts = [new_part(ARCHIVE, (",\n".join(entries) + "\n" + line).encode(), count)]
        return blobs.encode(segments, parts, limits=_ROOM)


Place = Callable[[_Bomb, str, int], None]


def _in_entry(name: str) -> Place:
    def put(bomb: _Bomb, filling: str, count: int) -> None:
        bomb.entries = _exchange(bomb.wire, **{name: filling})

    return put


def _in_call_text(bomb: _Bomb, filling: str, count: int) -> None:
    """As the text of arguments, and as an object where a wire has objects."""
    bomb.entries = _exchange(
        bomb.wire, arguments=filling if bomb.wire == "anthropic" else json.dumps(filling)
    )


def _in_result_text(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.entries = _exchange(bomb.wire, result=json.dumps(filling))


def _in_facts(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.rows = _TURN[:-1] + ',{"future":' + filling + "}]"


def _in_known_facts(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.rows = _TURN[:-1] + ',{"citations":' + filling + "}]"


def _in_iteration_end(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.rows = _TURN[:-3] + ',{"x":' + filling + "}]]]"


def _in_meta(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.meta += ',"future":' + filling


def _in_info(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.meta += ',"sticky":{"a":' + filling + "}"


def _in_inbox(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.inbox = [_exchange(bomb.wire, asked=filling)[0]], '["u","",""]'


def _in_inbox_end(bomb: _Bomb, filling: str, count: int) -> None:
    bomb.inbox = [_exchange(bomb.wire)[0]], '["u","","",{"x":' + filling + "}]"


def _opened(bomb: _Bomb, entries: list[str], call: str, more: str = "") -> None:
    row = '{"at":0,"iterations":[["ua","",1,0,0,1,0,0,0]],"messages":2,"calls":[' + call + "]" + more + "}"
    bomb.open = entries[:2], row


def _call(arguments: str = '"{}"', more: str = "") -> str:
    return f'{{"id":"c","name":"f","arguments":{arguments},"state":"waiting","reason":"approval"{more}}}'


def _in_open_entry(bomb: _Bomb, filling: str, count: int) -> None:
    _opened(bomb, _exchange(bomb.wire, x=filling), _call())


def _in_open_arguments(bomb: _Bomb, filling: str, count: int) -> None:
    arguments = filling if bomb.wire == "anthropic" else json.dumps(filling)
    _opened(bomb, _exchange(bomb.wire, arguments=arguments), _call(json.dumps(filling)))


def _in_open_result(bomb: _Bomb, filling: str, count: int) -> None:
    done = '{"id":"c","name":"f","state":"done","parts":[{"text":' + json.dumps(filling) + "}]}"
    _opened(bomb, _exchange(bomb.wire), done)


def _in_open_facts(bomb: _Bomb, filling: str, count: int) -> None:
    _opened(bomb, _exchange(bomb.wire), _call(), ',"facts":{"citations":' + filling + "}")


def _in_open_future(bomb: _Bomb, filling: str, count: int) -> None:
    _opened(bomb, _exchange(bomb.wire), _call(more=',"x":' + filling), ',"y":0')


def _archived(bomb: _Bomb, entries: list[str], more: str = "", rows: str = _TURN) -> None:
    head = f'{{"n":1,"by":"x","wire":"{bomb.wire}","places":[0],"stays":[1]{more}}}'
    bomb.archive = entries, f"{head},{rows}", 1


def _in_archive(bomb: _Bomb, filling: str, count: int) -> None:
    _archived(bomb, _exchange(bomb.wire, x=filling))


def _in_archived_result(bomb: _Bomb, filling: str, count: int) -> None:
    _archived(bomb, _exchange(bomb.wire, result=json.dumps(filling)))


def _in_archived_cut(bomb: _Bomb, filling: str, count: int) -> None:
    _archived(bomb, _exchange(bomb.wire), ',"x":' + filling)


def _in_archived_facts(bomb: _Bomb, filling: str, count: int) -> None:
    _archived(bomb, _exchange(bomb.wire), rows=_TURN[:-1] + ',{"x":' + filling + "}]")


PLACES: Final[dict[str, Place]] = {
    "member": _in_entry("x"),
    "question": _in_entry("asked"),
    "reply": _in_entry("text"),
    "calls": _in_entry("calls"),
    "result": _in_entry("result"),
    "arguments": _in_call_text,
    "result text": _in_result_text,
    "facts": _in_facts,
    "known facts": _in_known_facts,
    "end of an iteration": _in_iteration_end,
    "meta": _in_meta,
    "sticky": _in_info,
    "inbox": _in_inbox,
    "end of the inbox": _in_inbox_end,
    "open entry": _in_open_entry,
    "open arguments": _in_open_arguments,
    "open result": _in_open_result,
    "open facts": _in_open_facts,
    "future of the open turn": _in_open_future,
    "archive": _in_archive,
    "archived result": _in_archived_result,
    "archived cut": _in_archived_cut,
    "archived facts": _in_archived_facts,
}


def _rows(values: int, row: Callable[[int], str]) -> Callable[[_Bomb, int], None]:
    def put(bomb: _Bomb, count: int) -> None:
        bomb.rows = row(count // values)

    return put


def _many_turns(bomb: _Bomb, count: int) -> None:
    turns = min(count // 40, 9_000 // 4)
    bomb.entries = _exchange(bomb.wire) * turns
    bomb.rows = ",".join([_TURN] * turns)


def _waiting(bomb: _Bomb, count: int) -> None:
    number = min(count // 10, 9_000)
    bomb.inbox = [_exchange(bomb.wire)[0]] * number, ",".join(['["u","",""]'] * number)


def _topics(bomb: _Bomb, count: int) -> None:
    number = min(count // 10, 9_000)
    rows = ",".join(f'["u","a{n:x}",""]' for n in range(number))
    bomb.inbox = [_exchange(bomb.wire)[0]] * number, rows


def _notes(bomb: _Bomb, count: int) -> None:
    """Turns that are notes of compactions."""
    turns = min(count // 40, 9_000 // 4)
    bomb.entries = _exchange(bomb.wire, asked='"a"') * turns
    bomb.rows = ",".join([_TURN[:-1] + ',{"n":0}]'] * turns)


def _open_calls(bomb: _Bomb, count: int) -> None:
    calls = [_call().replace('"c"', f'"{n:x}"') for n in range(count // 6)]
    _opened(bomb, _exchange(bomb.wire), ",".join(calls))


def _open_parts(bomb: _Bomb, count: int) -> None:
    parts = ",".join(['{"text":"a"}'] * (count // 2))
    _opened(bomb, _exchange(bomb.wire), '{"id":"c","name":"f","state":"done","parts":[' + parts + "]}")


def _many_cuts(bomb: _Bomb, count: int) -> None:
    number = count // 8
    cut = f'{{"n":1,"by":"x","wire":"{bomb.wire}"}}'
    bomb.archive = [], ",".join([cut] * number), number


WHOLE: Final[dict[str, Callable[[_Bomb, int], None]]] = {
    "many turns": _many_turns,
    "empty turns": _rows(4, lambda n: ",".join([_TURN, *["[0,0,[]]"] * n])),
    "empty iterations": _rows(
        10, lambda n: _TURN[:-2] + "," + ",".join(['["","",0,0,0,0,0,0,0]'] * n) + "]]"
    ),
    "ends of iterations": _rows(
        12, lambda n: _TURN[:-2] + "," + ",".join(['["","",0,0,0,0,0,0,0,{"m":1}]'] * n) + "]]"
    ),
    "facts of turns": _rows(6, lambda n: ",".join([_TURN, *['[0,0,[],{"x":0}]'] * n])),
    "waiting messages": _waiting,
    "waiting topics": _topics,
    "notes": _notes,
    "open calls": _open_calls,
    "parts of an open result": _open_parts,
    "many cuts": _many_cuts,
}
"""Bombs that are made of many rows, each of the right shape."""


def fillings_of(place: str) -> list[str]:
    """The fillings that make sense in a place: the shapes of parts and calls only where these are read."""
    shapes = {"texts", "thinking", "calls", "uses", "results", "split texts"}
    shapes |= {"different texts", "different uses", "different calls"}
    if place in ("member", "question", "reply", "calls", "result", "inbox"):
        return list(FILLINGS)
    return [name for name in FILLINGS if name not in shapes]


def bomb(wire: str, name: str, count: int) -> bytes:
    """The blob of a bomb with about so many JSON values."""
    while True:
        made = _Bomb(wire)
        if name in WHOLE:
            WHOLE[name](made, count)
        else:
            place, _, filling = name.partition(": ")
            PLACES[place](made, FILLINGS[filling](count), count)
        if made.fits():
            return made.blob()
        count //= 2


def all_bombs() -> list[str]:
    """The name of every bomb."""
    return [*WHOLE, *(f"{place}: {filling}" for place in PLACES for filling in fillings_of(place))]
