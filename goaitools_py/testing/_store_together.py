"""The checks of the store contract on steps that are done together: lease and load, save and release.

Owns: the trials with `lease_and_load` and `save_and_release`, and with their twins for parts. Must never
know: an engine, a test framework.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

from ..stores import RowFacts, StoredHead, StoredPart
from ..types.errors import LeaseHeldError, StateConflictError
from ._contract import shown
from ._store_case import Face, Findings, StoreCase, StoreCheck, check, part_of

__all__ = ["CHECKS"]

_ROUNDS = 12


def _is_held(face: Face, key: str) -> bool:
    try:
        with face.lease(key, 60.0):
            return False
    except LeaseHeldError:
        return True


@check("lease_and_load takes the lease and gives what is stored")
def lease_comes_with_the_blob(case: StoreCase) -> Findings:
    if not case.store.can_combine:
        return
    key, neighbour = case.key("together"), case.key("together too")
    lease, found = case.store.lease_and_load(key, 60.0)
    if found is not None:
        yield f"it gave {shown(found)} where nothing is stored"
    if not _is_held(case.other, key):
        yield "another store got the lease that was taken"
    if _is_held(case.other, neighbour):
        yield "the lease of another key was refused too"
    with suppress(LeaseHeldError):
        case.other.lease_and_load(key, 60.0)
        yield "it was given to two holders"
    if case.store.renew(lease) is not True:
        yield "renew did not give True while the lease was held"
    case.store.release(lease)
    if _is_held(case.other, key):
        yield "after release it was still held"
    version = case.store.save(key, b"blob", expected=None)
    lease, found = case.other.lease_and_load(key, 60.0)
    if found is None or (found.blob, found.version) != (b"blob", version):
        yield f"it gave {shown(found)} instead of what is stored"
    case.other.release(lease)


@check("save_and_release saves as save does, and only a save that is done ends the lease")
def save_ends_the_lease(case: StoreCase) -> Findings:
    if not case.store.can_combine:
        return
    key = case.key("saved-together")
    facts = RowFacts(title="trip", status="complete", turns=1)
    lease, _ = case.store.lease_and_load(key, 60.0)
    version = case.store.save_and_release(lease, key, b"1", expected=None, facts=facts)
    if (stored := case.other.load(key)) is None or (stored.blob, stored.version) != (b"1", version):
        yield "the blob was not stored"
    if case.store.can_describe and case.other.list(key).keys[0].facts != facts:
        yield "the facts were not stored"
    if _is_held(case.other, key):
        yield "after the save the lease was still held"
    second, _ = case.other.lease_and_load(key, 60.0)
    case.store.release(lease)
    if not _is_held(case.store, key):
        yield "release after the save ended another holder's lease"
    with suppress(StateConflictError):
        case.other.save_and_release(second, key, b"2", expected=version + 1, facts=facts)
        yield "a save that named another version was done"
    if not _is_held(case.store, key):
        yield "a refused save ended the lease"
    case.other.release(second)
    if case.store.load(key) != stored:
        yield "a refused save changed what is stored"
    version = case.store.save_and_release(second, key, b"3", expected=version, facts=facts)
    if (stored := case.other.load(key)) is None or (stored.blob, stored.version) != (b"3", version):
        yield "a lease that had ended kept the blob from being saved"


@check("the next holder of a lease loads what the holder before it has saved")
def load_follows_the_lease(case: StoreCase) -> Findings:
    if not case.store.can_combine:
        return
    key = case.key("handed-on")
    facts = RowFacts(status="complete")

    def work(face: Face) -> None:
        done = 0
        while done < _ROUNDS:
            try:
                lease, found = face.lease_and_load(key, 60.0)
            except LeaseHeldError:
                continue
            done += 1
            blob = (b"" if found is None else found.blob) + b"."
            expected = None if found is None else found.version
            try:
                face.save_and_release(lease, key, blob, expected=expected, facts=facts)
            except BaseException:
                face.release(lease)  # the other worker waits for it
                raise

    raised = case.race([lambda: work(case.store), lambda: work(case.other)])
    if raised:
        yield f"of two workers that took turns, one raised {type(raised[0]).__name__}"
    elif (stored := case.store.load(key)) is None or len(stored.blob) != 2 * _ROUNDS:
        yield "saves were lost"


# --------------------------------------------------------------------------------------------- parts


_MEDIA = 65


def _is(head: StoredHead | None, blob: bytes, *parts: StoredPart) -> bool:
    return head is not None and head.blob == blob and {*head.parts} == {*parts}


@check(
    "lease_and_load_head takes the lease and gives the head with its parts of the kinds that were asked for"
)
def lease_comes_with_the_head(case: StoreCase) -> Findings:
    if not case.store.can_combine_parts:
        return
    key = case.key("head-together")
    lease, found = case.store.lease_and_load_head(key, 60.0)
    if found is not None:
        yield f"it gave {shown(found)} where nothing is stored"
    if not _is_held(case.other, key):
        yield "another store got the lease that was taken"
    with suppress(LeaseHeldError):
        case.other.lease_and_load_head(key, 60.0)
        yield "it was given to two holders"
    if case.store.renew(lease) is not True:
        yield "renew did not give True while the lease was held"
    case.store.release(lease)
    if _is_held(case.other, key):
        yield "after release it was still held"
    archive, media = part_of(b"archive"), part_of(b"picture", _MEDIA)
    case.store.save_parts(key, b"head", (archive, media), expected=None)
    for kinds, wanted in ((None, (archive, media)), ((_MEDIA, 1), (media,)), ((), ())):
        lease, found = case.other.lease_and_load_head(key, 60.0, kinds=kinds)
        if not _is(found, b"head", *wanted):
            yield f"for kinds {kinds} it gave {shown(found)}, and not the head with {len(wanted)} parts"
        case.other.release(lease)


@check("save_parts_and_release saves as save_parts does, and only a save that is done ends the lease")
def save_of_parts_ends_the_lease(case: StoreCase) -> Findings:
    if not case.store.can_combine_parts:
        return
    key = case.key("parts-together")
    facts = RowFacts(title="trip", status="complete", turns=1)
    one, two, three = part_of(b"1"), part_of(b"2"), part_of(b"3")
    lease, _ = case.store.lease_and_load_head(key, 60.0)
    version = case.store.save_parts_and_release(lease, key, b"1", (one, two), expected=None, facts=facts)
    if not _is(case.other.load_head(key), b"1", one, two):
        yield "head and parts were not stored"
    if case.store.can_describe and case.other.list(key).keys[0].facts != facts:
        yield "the facts were not stored"
    if _is_held(case.other, key):
        yield "after the save the lease was still held"
    second, _ = case.other.lease_and_load_head(key, 60.0)
    case.store.release(lease)
    if not _is_held(case.store, key):
        yield "release after the save ended another holder's lease"
    with suppress(StateConflictError):
        case.other.save_parts_and_release(
            second, key, b"2", (three,), (one.name,), expected=version + 1, facts=facts
        )
        yield "a save that named another version was done"
    if not _is_held(case.store, key):
        yield "a refused save ended the lease"
    if not _is(case.store.load_head(key), b"1", one, two):
        yield "a refused save changed what is stored"
    case.other.release(second)
    case.store.save_parts_and_release(
        second, key, b"3", (three, three), (one.name, three.name), expected=version, facts=facts
    )
    if not _is(case.other.load_head(key), b"3", two, three):
        yield "a save after the end of its lease did not drop one part and add another"


@check("the next holder of a lease loads the head and the parts that the holder before it has saved")
def head_follows_the_lease(case: StoreCase) -> Findings:
    if not case.store.can_combine_parts:
        return
    key = case.key("head-handed-on")
    facts = RowFacts(status="complete")
    numbers = count()

    def work(face: Face) -> None:
        done = 0
        while done < _ROUNDS:
            try:
                lease, found = face.lease_and_load_head(key, 60.0)
            except LeaseHeldError:
                continue
            done += 1
            part = part_of(b"%d" % next(numbers))
            head = (b"" if found is None else found.blob) + b"."
            expected = None if found is None else found.version
            gone = [old.name for old in found.parts] if found is not None else []
            try:
                face.save_parts_and_release(lease, key, head, (part,), gone, expected=expected, facts=facts)
            except BaseException:
                face.release(lease)  # the other worker waits for it
                raise

    raised = case.race([lambda: work(case.store), lambda: work(case.other)])
    if raised:
        yield f"of two workers that took turns, one raised {type(raised[0]).__name__}"
    elif (found := case.store.load_head(key)) is None or (len(found.blob), len(found.parts)) != (
        2 * _ROUNDS,
        1,
    ):
        yield "saves were lost, or parts were left"


CHECKS: tuple[StoreCheck, ...] = (
    lease_comes_with_the_blob,
    save_ends_the_lease,
    load_follows_the_lease,
    lease_comes_with_the_head,
    save_of_parts_ends_the_lease,
    head_follows_the_lease,
)
