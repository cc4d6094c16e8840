"""JSON with other values at some of its places: what a stranger sends who knows the shape.

Owns: the odd values, and how they are put in. Must never know: what reads the JSON.
"""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["ODD", "changed"]

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**53 + 1, 2**70, 1.5, 1e300, "", "x", "\0", "\u2028", "-1", "{}",
    "[" * 300, "é" * 300, [], {}, [[]], ["a"], [None], [{}], {"a": []}, {"": ""}, {"type": []},
    {"type": {}}, {"role": []}, {"id": {}}, [{"type": "text", "text": []}], [{"type": "text"}],
)  # fmt: skip
"""Values of each kind, some that cannot be hashed, and some at the bounds of their kind."""


def changed(r: random.Random, value: Any, *, most: int = 2, odd: tuple[Any, ...] = ODD) -> Any:
    """A copy of a JSON value with up to `most` changes: an odd value, a missing member, one twice, a swap."""
    made = copy.deepcopy(value)
    for _ in range(r.randint(1, most)):
        places = _places(made)
        if not places:
            return r.choice(odd)
        outer, last = r.choice(places)
        match r.randrange(6):
            case 0:
                del outer[last]
            case 1:
                other, at = r.choice(places)
                outer[last] = copy.deepcopy(other[at])
            case 2 if isinstance(outer, list):
                outer.insert(last, copy.deepcopy(outer[last]))
            case 2:
                outer[r.choice(["", "type", "id", "text", "__proto__", "x" * 300])] = outer[last]
            case _:
                outer[last] = copy.deepcopy(r.choice(odd))
    return made


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a value, with the name or number of each of its members."""
    found: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        one = left.pop()
        inner = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        for name, member in inner:
            found.append((one, name))
            left.append(member)
    return found
