"""The checks of the store contract on values beside the blob: facts, the stop flag, parts, the age.

Owns: the trials with `facts`, `set_stop`, `save_parts` and `expire`. Must never know: an engine, a test
framework.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Final

from ..stores import RowFacts, StoredHead, StoredPart
from ..types.errors import StateConflictError
from ._contract import shown
from ._store_case import Face, Findings, StoreCase, StoreCheck, check, part_of

__all__ = ["CHECKS"]


# --------------------------------------------------------------------------------------------- facts


_FACTS: Final = RowFacts(
    title="Ada's trip ☃ 😀 🇬🇧",
    status="awaiting_tools",
    turns=12,
    total_tokens=2**40,
    cost_nano_dollars=1_234_567_890_123,
)


def _told(face: Face, key: str) -> RowFacts | None:
    return next((entry.facts for entry in face.list(key).keys if entry.key == key), None)


@check("list gives the facts of the last save, whatever their title")
def facts_are_listed(case: StoreCase) -> Findings:
    if not case.store.can_describe:
        return
    key = case.key("facts")
    version = case.store.describe(key, b"1", expected=None, facts=_FACTS)
    if (told := _told(case.other, key)) != _FACTS:
        yield f"after a first save with facts it gives {shown(told)}"
    later = RowFacts(title="", status="complete", turns=13, total_tokens=0, cost_nano_dollars=None)
    version = case.other.describe(key, b"2", expected=version, facts=later)
    if (told := _told(case.store, key)) != later:
        yield f"after another save it gives {shown(told)} instead of {shown(later)}"
    odd = RowFacts(title="\0\ud800" + "x" * 10_000, status="complete", turns=-1, cost_nano_dollars=2**70)
    version = case.store.describe(key, b"3", expected=version, facts=odd)
    if (stored := case.store.load(key)) is None or stored.blob != b"3":
        yield "a title that no column holds kept the blob from being saved"


@check("a save without facts, and a refused one, leave no facts of another blob")
def facts_are_of_the_blob(case: StoreCase) -> Findings:
    if not case.store.can_describe:
        return
    key = case.key("facts-old")
    version = case.store.describe(key, b"1", expected=None, facts=_FACTS)
    with suppress(StateConflictError):
        case.store.describe(key, b"2", expected=version + 1, facts=RowFacts(title="refused", status="failed"))
    if (told := _told(case.other, key)) != _FACTS:
        yield f"after a refused save it gives {shown(told)}"
    case.other.save(key, b"2", expected=version)
    if _told(case.store, key) is not None:
        yield "after a save without facts it gives those of the blob before"


# ------------------------------------------------------------------------------------------ stop flag


@check("the stop flag is set and cleared, and a save leaves it as it is")
def stop_is_a_flag(case: StoreCase) -> Findings:
    if not case.store.can_stop:
        return
    key, neighbour = case.key("stop"), case.key("stop not")
    if case.store.set_stop(key) is not False or case.other.stop_requested(key) is not False:
        yield "a flag was set where nothing is stored"
    version = case.store.save(key, b"1", expected=None)
    case.store.save(neighbour, b"1", expected=None)
    if case.other.stop_requested(key) is not False:
        yield "a new key has the flag"
    if case.store.set_stop(key) is not True or case.other.stop_requested(key) is not True:
        yield "the flag was not set"
    if case.other.stop_requested(neighbour) is not False:
        yield "another key has the flag too"
    try:
        version = case.other.save(key, b"2", expected=version)
    except StateConflictError:
        yield "the flag changed the version"
        return
    if case.store.stop_requested(key) is not True:
        yield "a save cleared the flag"
    if case.store.set_stop(key, False) is not True or case.other.stop_requested(key) is not False:
        yield "the flag was not cleared"
    if case.store.can_delete:
        case.store.set_stop(key)
        case.store.delete(key)
        case.store.save(key, b"3", expected=None)
        if case.other.stop_requested(key) is not False:
            yield "the flag of a deleted conversation is there again"


# --------------------------------------------------------------------------------------------- parts


def _differs(head: StoredHead | None, blob: bytes, parts: Iterable[StoredPart]) -> str | None:
    """Describe how a head differs from the expected one; None if it does not."""
    if head is None:
        return "nothing is stored"
    if head.blob != blob:
        return f"the head is {shown(head.blob)} instead of {shown(blob)}"
    found, wanted = {part.name: part for part in head.parts}, {part.name: part for part in parts}
    if len(found) != len(head.parts):
        return "a part is there twice"
    if found == wanted:
        return None
    return (
        f"{len(wanted.keys() - found.keys())} parts are missing, {len(found.keys() - wanted.keys())} too many"
    )


@check("parts come back with their head, of the kinds that were asked for, and by name")
def parts_come_back(case: StoreCase) -> Findings:
    if not case.store.can_part:
        return
    key = case.key("parts")
    noise = random.Random(11)
    large = part_of(noise.randbytes(min(300_000, case.max_blob_bytes)))
    archive, media, empty = part_of(bytes(range(256)) * 3), part_of(b"picture", 65), part_of(b"", 1)
    every = (archive, large, media, empty)
    version = case.store.save_parts(key, b"head", every, expected=None)
    if problem := _differs(case.other.load_head(key), b"head", every):
        yield f"after a first save: {problem}"
    if problem := _differs(case.other.load_head(key, kinds=(1, 65)), b"head", (media, empty)):
        yield f"kinds 1 and 65: {problem}"
    if problem := _differs(case.other.load_head(key, kinds=()), b"head", ()):
        yield f"no kinds: {problem}"
    if set(case.other.load_parts(key, (large.name, b"?" * 32))) != {large}:
        yield "load_parts gave something else than the named parts that are there"
    if (stored := case.store.load(key)) is None or (stored.blob, stored.version) != (b"head", version):
        yield "load does not give the head"
    if case.store.load_head(case.key("parts nowhere")) is not None:
        yield "load_head gave something for a key under which nothing was saved"


@check("a save adds and drops parts with its head, and a refused one changes nothing")
def parts_change_with_the_head(case: StoreCase) -> Findings:
    if not case.store.can_part:
        return
    key = case.key("parts-changed")
    one, two, three = (part_of(word) for word in (b"one", b"two", b"three"))
    first = case.store.save_parts(key, b"1", (one, two), expected=None)
    second = case.other.save_parts(key, b"2", (two, three), (one.name, three.name, b"?" * 32), expected=first)
    if problem := _differs(case.store.load_head(key), b"2", (two, three)):
        yield f"after a save that adds and drops: {problem}"
    for expected in (first, None):
        try:
            case.store.save_parts(key, b"3", (one,), (two.name,), expected=expected)
            yield f"expected={expected} raised no StateConflictError"
        except StateConflictError:
            pass
        if problem := _differs(case.other.load_head(key), b"2", (two, three)):
            yield f"after a refused save: {problem}"
    case.store.save(key, b"4", expected=second)
    if problem := _differs(case.other.load_head(key), b"4", (two, three)):
        yield f"after a save without parts: {problem}"


@check("list shows no parts, and delete takes them with their head")
def parts_go_with_the_head(case: StoreCase) -> Findings:
    if not case.store.can_part:
        return
    key, kept = case.key("parts-gone/a"), case.key("parts-gone/b")
    part = part_of(b"part")
    for name in (key, kept):
        case.store.save_parts(name, b"head", (part,), expected=None)
    if case.store.can_list:
        listed = sorted(entry.key for entry in case.other.list(case.key("parts-gone/")).keys)
        if listed != [key, kept]:
            yield f"list gives {len(listed)} keys instead of 2"
    if case.store.can_delete:
        case.store.delete(key)
        if case.other.load_parts(key, (part.name,)):
            yield "a part of a deleted key can still be loaded"
        case.store.save(key, b"another", expected=None)
        if problem := _differs(case.other.load_head(key), b"another", ()):
            yield f"under a key that was deleted and used again: {problem}"
        if problem := _differs(case.other.load_head(kept), b"head", (part,)):
            yield f"the neighbour of a deleted key: {problem}"


_SAVES: Final = 12
_WRITERS: Final = 3


@check("of racing saves each changes head and parts together: no reader sees one without the other")
def parts_and_head_race(case: StoreCase) -> Findings:
    """Each head names its parts, so a reader can compare."""
    if not case.store.can_part:
        return
    key = case.key("parts-race")
    case.store.save_parts(key, b"", expected=None)
    torn: list[str] = []
    ended: list[int] = []

    def write(face: Face, number: int) -> None:
        rng = random.Random(number)
        try:
            done = 0
            while done < _SAVES:
                found = face.load_head(key)
                if found is None:
                    raise RuntimeError("the head is gone")
                names = [found.blob[at : at + 32] for at in range(0, len(found.blob), 32)]
                gone = [name for name in names if rng.random() < 0.4]
                new = [part_of(rng.randbytes(200)) for _ in range(rng.randrange(3))]
                head = b"".join([name for name in names if name not in gone] + [one.name for one in new])
                try:
                    face.save_parts(key, head, new, gone, expected=found.version)
                except StateConflictError:
                    continue
                done += 1
        finally:
            ended.append(number)

    def read(face: Face) -> None:
        while len(ended) < _WRITERS:
            if problem := _torn(face.load_head(key)):
                torn.append(problem)

    faces = (case.store, case.other)
    jobs = [partial(write, faces[number % 2], number) for number in range(_WRITERS)]
    raised = case.race([*jobs, partial(read, case.other)])
    if raised:
        yield f"racing saves raised {type(raised[0]).__name__}"
    if problem := _torn(case.store.load_head(key)):
        torn.append(f"at the end, {problem}")
    yield from torn[:3]


def _torn(found: StoredHead | None) -> str | None:
    if found is None:
        return "the head was gone"
    named = {found.blob[at : at + 32] for at in range(0, len(found.blob), 32)}
    there = {part.name for part in found.parts}
    if named == there:
        return None
    return f"{len(named - there)} parts of the head were missing, {len(there - named)} belonged to no head"


# ----------------------------------------------------------------------------------------------- age


@check("a conversation that was not saved for the store's ttl is as if it were deleted")
def old_rows_are_gone(case: StoreCase) -> Findings:
    if case.expire is None:
        return
    key, neighbour, old = case.key("aged/a"), case.key("aged/b"), part_of(b"old")
    prefix = case.key("aged/")
    face, other = case.store, case.other
    versions = []
    for name in (key, neighbour):
        if face.can_part:
            versions.append(face.save_parts(name, b"old", (old,), expected=None))
        else:
            versions.append(face.save(name, b"old", expected=None))
        if face.can_stop:
            face.set_stop(name)
    case.expire(key)
    yield from _still_there(case, key, prefix, neighbour, old)
    for name, expected in ((key, versions[0]), (neighbour, None)):
        try:
            other.save(name, b"late", expected=expected)
            yield f"expected={expected} raised no StateConflictError"
        except StateConflictError:
            pass
    if (stored := face.load(neighbour)) is None or stored.blob != b"old":
        yield "a row that is younger is gone, too"
    with face.lease(key, 60.0) if face.can_lease else nullcontext():
        again = other.save(key, b"new", expected=None)
    if again == versions[0]:
        yield "the new conversation has the version of the old one"
    if (stored := face.load(key)) is None or (stored.blob, stored.version) != (b"new", again):
        yield f"a new conversation was saved, and load gives {shown(stored)}"
    if face.can_part and (problem := _differs(face.load_head(key), b"new", ())):
        yield f"a new conversation: {problem}"
    if face.can_stop and face.stop_requested(key):
        yield "the stop flag of the old conversation is there again"
    if face.can_part:
        case.expire(key)
        new = part_of(b"new")
        again = face.save_parts(key, b"newer", (old, new), (new.name,), expected=None)
        if problem := _differs(other.load_head(key), b"newer", (old, new)):
            yield f"a new conversation with parts: {problem}"
        if other.save_parts(key, b"newest", (), (old.name,), expected=again) and (
            problem := _differs(face.load_head(key), b"newest", (new,))
        ):
            yield f"its next save: {problem}"
    case.expire(key)
    if face.can_delete and face.delete(key) is not False:
        yield "delete found a row that is older"


def _still_there(case: StoreCase, key: str, prefix: str, neighbour: str, old: StoredPart) -> Findings:
    """Look at an old conversation with each method that reads."""
    face = case.other
    if face.load(key) is not None:
        yield "load gives it"
    if face.can_part and (face.load_head(key) or face.load_head(key, kinds=()) is not None):
        yield "load_head gives it"
    if face.can_part and face.load_parts(key, (old.name,)):
        yield "load_parts gives its part"
    if face.can_stop and (face.stop_requested(key) or face.set_stop(key)):
        yield "it still has a stop flag"
    for name in ("list", "recent") if face.has_recent else ("list",) if face.can_list else ():
        listed = [entry.key for entry in getattr(face, name)(prefix).keys]
        if listed != [neighbour]:
            yield f"{name} gives {len(listed)} keys in place of the younger one"


CHECKS: tuple[StoreCheck, ...] = (
    facts_are_listed,
    facts_are_of_the_blob,
    stop_is_a_flag,
    parts_come_back,
    parts_change_with_the_head,
    parts_go_with_the_head,
    parts_and_head_race,
    old_rows_are_gone,
)
