"""Numbers as bytes: unsigned LEB128 in its shortest form, below 2**32.

Owns: writing and strictly reading them. Must never know: the meaning of a number.
"""

from __future__ import annotations

from .frames import corrupt

__all__ = ["read_varints", "varints"]


def varints(*numbers: int) -> bytes:
    """The numbers, one behind the other."""
    out = bytearray()
    for number in numbers:
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def read_varints(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Read `count` numbers. Give them, and the place of the next byte. Raises `StateCorruptError`."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data[at : at + 5 * count]:
        at += 1
        number |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            if shift > 28:
                break
            continue
        if (byte == 0 and shift) or number >= 2**32:
            break
        numbers.append(number)
        if len(numbers) == count:
            return numbers, at
        number = shift = 0
    else:
        raise corrupt("the head of a segment is cut off")
    raise corrupt("a number in the head of a segment is too long")
