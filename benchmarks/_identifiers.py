"""Facts that an identifier names: numbers, codes, dates, addresses, and names in ten scripts.

Owns: the identifiers, the sentences around them, and the ways to ask. Must never know: how they are searched.

The identifiers of a kind begin alike, so that their first letters do not tell them apart.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

__all__ = ["WAYS", "Identified", "identified"]

WAYS: Final = ("as it was said", "in a question", "in another form", "not named")


class Identified(NamedTuple):
    """What was said once, its identifier, and a query for each of `WAYS`; for a name not the last one."""

    kind: str
    said: str
    value: str
    asked: tuple[str, ...]


_SUBJECTS: Final = (
    "Ottilie strongbox, Bertram sluice, Rosalind organ, Casimir lantern, Fenella carriage, "
    "Leopold telescope, Winifred barometer, Ambrose cupboard, Griselda kiln, Percival anvil, "
    "Thaddeus strongbox, Isolde sluice, Barnaby organ, Cordelia lantern, Ignatius carriage, "
    "Philippa telescope, Ferdinand barometer, Eudora cupboard, Montague kiln, Seraphina anvil"
)

_NAMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "Latin": ("Alexan", "dra der dros drina drei driou", "My neighbour {} has a goat."),
    "Cyrillic": ("Алексан", "дра др дрина дрович дров дриков", "Мой сосед {} держит козу."),
    "Greek": ("Αλεξαν", "δρα δρος δρινα δρακης δρου δρεας", "Ο γείτονας {} έχει κατσίκα."),
    "Arabic": ("عبدالر", "حمن حيم ؤوف زاق شيد قيب", "جاري {} عنده ماعز."),
    "Hebrew": ("אברהמ", "וב סון ביץ זון שוילי ינה", "לשכן {} יש עז."),
    "Devanagari": ("राजकुमा", "री र रन रेश रिका रवीर", "मेरे पड़ोसी {} की बकरी है।"),
    "Chinese": ("王小", "明 红 丽 军 华 芳", "我的邻居{}养了一只羊。"),
    "Japanese": ("アレクサン", "ドラ ダー ドル ドリナ ドロ ドリア", "隣の{}さんは山羊を飼っている。"),
    "Korean": ("알렉산", "드라 더 드르 드리나 드로 드로비치", "이웃 {} 씨는 염소를 키운다."),
    "Thai": ("อเล็กซาน", "ดรา เดอร์ ดรินา โดร ดรู เดรีย", "เพื่อนบ้าน{}เลี้ยงแพะ"),
}

_LETTERS: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


def _phone(chance: random.Random) -> tuple[str, str]:
    digits = f"{chance.randrange(10**7):07}"
    return f"+49 170 {digits[:3]} {digits[3:5]} {digits[5:]}", f"0170-{digits}"


def _booking(chance: random.Random) -> tuple[str, str]:
    end = "".join(chance.choices(_LETTERS, k=4))
    return f"XKQ7R{end}", f"xkq7r-{end.lower()}"


def _uuid(chance: random.Random) -> tuple[str, str]:
    value = str(uuid.UUID(int=0x0193F2A4_7C1E_7000_8000_000000000000 + chance.getrandbits(48)))
    return value, value.replace("-", "").upper()


def _order(chance: random.Random) -> tuple[str, str]:
    number = f"{chance.randrange(10**6):06}"
    return f"ORD-2026-{number}", f"order {number}"


def _date(chance: random.Random) -> tuple[str, str]:
    year, month, day = 2027 + chance.randrange(3), 1 + chance.randrange(12), 1 + chance.randrange(28)
    return f"{year}-{month:02}-{day:02}", f"{year}/{month:02}/{day:02}"


def _mail(chance: random.Random) -> tuple[str, str]:
    name = f"contact.{chance.choice('abcdefgh')}{chance.randrange(100):02}"
    return f"{name}@example.org", f"<{name.upper()}@EXAMPLE.ORG>"


def _amount(chance: random.Random) -> tuple[str, str]:
    crowns = 10_000 + chance.randrange(90_000)
    return f"{crowns:,}.50", f"{crowns}.50"


_KINDS: Final[Mapping[str, Callable[[random.Random], tuple[str, str]]]] = {
    "phone number": _phone,
    "booking code": _booking,
    "transaction id": _uuid,
    "order number": _order,
    "date of delivery": _date,
    "e-mail address": _mail,
    "amount in crowns": _amount,
}


def identified(seed: int) -> list[Identified]:
    """200 facts: 20 of each kind, and a name 60 times, six in each script."""
    chance = random.Random(seed)
    found = [*_numbered(chance), *_named()]
    chance.shuffle(found)
    return found


def _numbered(chance: random.Random) -> Iterator[Identified]:
    for kind, make in _KINDS.items():
        subjects = [one.split() for one in _SUBJECTS.split(", ")]
        values: dict[str, str] = {}
        while len(values) < len(subjects):
            values.update([make(chance)])
        for (person, thing), (value, other) in zip(subjects, values.items(), strict=True):
            said = f"The {kind} for the {thing} of {person} is {value}, as far as we know."
            question = f"To what does {value} belong?"
            unnamed = f"Which {kind} was it for {person}'s {thing}?"
            yield Identified(kind, said, value, (value, question, other, unnamed))


def _named() -> Iterator[Identified]:
    for script, (begin, ends, sentence) in _NAMES.items():
        for end in ends.split():
            name = begin + end
            said = sentence.format(name)
            yield Identified(f"{script} name", said, name, (name, f"Who is {name}?", name.upper()))
