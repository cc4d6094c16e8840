"""The checks of the store contract on the optional methods of a store.

Owns: the trials with `delete`, `list`, `lease` and `is_held`. Must never know: an engine, a test
framework.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial

from ..stores import StoredKey
from ..types.errors import LeaseHeldError, StateConflictError
from ._contract import shown
from ._store_case import Face, Findings, StoreCase, StoreCheck, check

__all__ = ["CHECKS"]

_QUESTIONS = 20
"""How often a worker asks whether a lease is held while another one takes it again and again."""


# -------------------------------------------------------------------------------------------- delete


@check("delete forgets, and says whether there was anything")
def delete_forgets(case: StoreCase) -> Findings:
    if not case.store.can_delete:
        return
    key, kept = case.key("deleted"), case.key("deleted not")
    case.store.save(kept, b"kept", expected=None)
    if case.store.delete(key) is not False:
        yield "it did not give False where nothing was stored"
    version = case.store.save(key, b"blob", expected=None)
    if case.other.delete(key) is not True:
        yield "it did not give True where something was"
    if case.store.load(key) is not None:
        yield "the blob can still be loaded"
    try:
        case.store.save(key, b"late", expected=version)
        yield "a save that named the deleted version was done"
    except StateConflictError:
        pass
    if case.store.delete(key) is not False:
        yield "it did not give False the second time"
    if case.store.load(kept) is None:
        yield "another key was forgotten too"


@check("delete with expected forgets that version only")
def delete_compares(case: StoreCase) -> Findings:
    if not case.store.can_delete:
        return
    key = case.key("delete-expected")
    first = case.store.save(key, b"first", expected=None)
    version = case.store.save(key, b"second", expected=first)
    for expected in (first, version + 1, 0):
        try:
            case.other.delete(key, expected=expected)
            yield f"{version} was stored, expected={expected} raised no StateConflictError"
        except StateConflictError:
            pass
    stored = case.store.load(key)
    if stored is None or stored.version != version:
        yield "a refused delete changed what is stored"
    elif case.store.delete(key, expected=version) is not True:
        yield "it did not give True for the stored version"
    if case.store.delete(key, expected=version) is not False:
        yield "it did not give False where nothing is stored"


@check("no version of a deleted blob comes again, so that a late save cannot replace a new conversation")
def versions_do_not_come_again(case: StoreCase) -> Findings:
    if not case.store.can_delete:
        return
    key = case.key("reborn")
    lives: list[list[int]] = []
    for _ in range(3):
        versions: list[int] = []
        for _ in range(4):
            versions.append(case.store.save(key, b"blob", expected=versions[-1] if versions else None))
        lives.append(versions)
        case.store.delete(key)
    again = set(lives[0]) & set(lives[1]) | set(lives[1]) & set(lives[2]) | set(lives[0]) & set(lives[2])
    if again:
        yield f"{len(again)} versions came again, such as {min(again)}; begin with a random number"


# ---------------------------------------------------------------------------------------------- list


def _listed(face: Face, prefix: str, limit: int) -> tuple[list[StoredKey], list[str]]:
    """Give all keys of a listing, page by page, and the problems of the pages."""
    found: list[StoredKey] = []
    wrong: list[str] = []
    cursor: str | None = None
    cursors: set[str] = set()
    pages = 300 if limit < 100 else 5_000
    for _ in range(pages):
        page = face.list(prefix, cursor=cursor, limit=limit)
        if len(page.keys) > limit:
            wrong.append(f"a page has {len(page.keys)} keys, with limit={limit}")
        found += page.keys
        cursor = page.cursor
        if cursor is None:
            return found, wrong
        if not isinstance(cursor, str):
            return found, [*wrong, f"the cursor is {type(cursor).__name__}, not str"]
        if cursor in cursors:
            return found, [*wrong, "the same cursor came twice: it goes round in circles"]
        cursors.add(cursor)
    return found, [*wrong, f"after {pages} pages of {limit} there is still a cursor"]


@check("the pages of list hold every key with the prefix, and no other")
def list_is_complete(case: StoreCase) -> Findings:
    if not case.store.can_list:
        return
    names = [
        *(f"list/{number:02}" for number in range(23)),
        "list_/x", "listx/x", "LIST/x", "list%/x", "list*/x", "list[/x", "list\\/x", "list", "lis", "list/é",
        "list/\U0010ffff", "list/\U0010ffff\U0010ffff", "list/\ud7ff",
        "other",
    ]  # fmt: skip
    kept: dict[str, int] = {}
    for name in dict.fromkeys(names):
        kept[case.key(name)] = case.store.save(case.key(name), b"blob", expected=None)
    for prefix in (
        "list/",
        "list",
        "list_",
        "list%",
        "list*",
        "list[",
        "list\\",
        "LIST",
        "list/\U0010ffff",
        "-",
    ):
        wanted = {key for key in kept if key.startswith(case.prefix + prefix)}
        for limit in (1, 7, 1_000) if prefix == "list/" else (5,):
            found, wrong = _listed(case.other, case.prefix + prefix, limit)
            told = f"prefix {prefix!r}, limit {limit}"
            yield from (f"{told}: {problem}" for problem in wrong)
            keys = {entry.key for entry in found}
            if missing := wanted - keys:
                yield f"{told}: {len(missing)} of {len(wanted)} keys are missing"
            if strange := keys - wanted:
                yield f"{told}: {len(strange)} keys do not begin with the prefix"


@check("list stays within its prefix, whatever cursor it is given: it may come from a stranger")
def list_stays_within_its_prefix(case: StoreCase) -> Findings:
    if not case.store.can_list:
        return
    for name in ("within/a/1", "within/a/2", "within/b/1", "within/b/2", "within/c/1"):
        case.store.save(case.key(name), b"blob", expected=None)
    prefix = case.key("within/b/")
    cursors = [case.key(name) for name in ("within/a/1", "within/b/", "within/c/")]
    cursors += ["", "0", "[]", "9" * 40, "a\0b", "half \ud800", "x" * 9_999]
    wide = case.store.list(case.key("within/"), limit=1).cursor
    cursors += [wide] if wide else []
    for number, cursor in enumerate(cursors):
        try:
            found = case.store.list(prefix, cursor=cursor).keys
        except ValueError:
            continue  # a cursor that it did not give
        except Exception as error:
            yield f"strange cursor {number}: {type(error).__name__}; it is a ValueError, or another page"
            continue
        if any(not row.key.startswith(prefix) for row in found):
            yield f"strange cursor {number}: keys do not begin with the prefix"


@check("the pages of recent hold every key with the prefix once, the one that was saved last first")
def recent_is_in_order(case: StoreCase) -> Findings:
    if not case.store.has_recent:
        return
    names = [f"recent/{number:02}" for number in range(12)] + [
        "recent_/x",
        "recent",
        "recent/é/1",
        "elsewhere",
    ]
    versions = {name: case.store.save(case.key(name), b"blob", expected=None) for name in names}
    for name in ("recent/03", "recent/é/1"):
        case.store.save(case.key(name), b"newer", expected=versions[name])
    for prefix in ("recent/", "recent", "recent/0", "recent/é/", "recent%", "none/"):
        wanted = {case.key(name) for name in names if name.startswith(prefix)}
        for limit in (1, 5, 1_000):
            told = f"prefix {prefix!r}, limit {limit}"
            rows, wrong = _recent(case.other, case.key(prefix), limit)
            yield from (f"{told}: {problem}" for problem in wrong)
            if sorted(row.key for row in rows) != sorted(wanted):
                yield f"{told}: {len(rows)} keys came, not each of the {len(wanted)} once"
            times = [row.updated_at for row in rows]
            if times != sorted(times, reverse=True):
                yield f"{told}: the keys are not in the order of their saves, the newest first"
    for name in ("recent/03", "recent/00"):
        row = case.store.load(case.key(name))
        found = [one for one in case.store.recent(case.key(name)).keys if one.key == case.key(name)]
        if row is None or [(one.version, one.updated_at) for one in found] != [(row.version, row.updated_at)]:
            yield "recent gives another version or time than load"
    if case.store.can_delete:
        case.store.delete(case.key("recent/03"))
        if any(row.key == case.key("recent/03") for row in case.other.recent(case.key("recent/")).keys):
            yield "recent gives a key that was deleted"


@check("a key that is not saved meanwhile is on exactly one page of recent")
def recent_pages_hold_still(case: StoreCase) -> Findings:
    if not case.store.has_recent:
        return
    names = [f"still/{number}" for number in range(9)]
    versions = {name: case.store.save(case.key(name), b"blob", expected=None) for name in names}
    first = case.other.recent(case.key("still/"), limit=4)
    # Two from behind come to the front, and one in front goes: a cursor that counts rows is wrong then.
    moved = {"still/0", "still/1", "still/8"}
    for name in sorted(moved):
        case.store.save(case.key(name), b"newer", expected=versions[name])
    if case.store.can_delete:
        case.store.delete(case.key("still/7"))
        moved |= {"still/7"}
    seen = [row.key for row in first.keys]
    before = first.cursor
    while before is not None and len(seen) < 40:
        page = case.other.recent(case.key("still/"), before=before, limit=4)
        seen += [row.key for row in page.keys]
        before = page.cursor
    for name in sorted(set(names) - moved):
        if seen.count(case.key(name)) != 1:
            yield f"a key that was not saved came {seen.count(case.key(name))} times"


@check("recent stays within its prefix, whatever cursor it is given: it may come from a stranger")
def recent_stays_within_its_prefix(case: StoreCase) -> Findings:
    if not case.store.has_recent:
        return
    for name in ("kept/a/1", "kept/b/1", "kept/b/2", "kept/c/1"):
        case.store.save(case.key(name), b"blob", expected=None)
    prefix = case.key("kept/b/")
    wide = case.store.recent(case.key("kept/"), limit=1).cursor or ""
    cursors = [wide, "", "0", "9" * 40, f"{'9' * 15} x", "1 a\0b", "1 half \ud800", "-1 x", "x" * 9_999, "[]"]
    for number, cursor in enumerate(cursors):
        try:
            found = case.store.recent(prefix, before=cursor).keys
        except ValueError:
            continue  # a cursor that it did not give
        except Exception as error:
            yield f"strange cursor {number}: {type(error).__name__}; it is a ValueError, or another page"
            continue
        if any(not row.key.startswith(prefix) for row in found):
            yield f"strange cursor {number}: keys do not begin with the prefix"


def _recent(face: Face, prefix: str, limit: int) -> tuple[list[StoredKey], list[str]]:
    """Give all keys of ``recent``, page by page, and the problems of the pages."""
    found: list[StoredKey] = []
    before: str | None = None
    for _ in range(100):
        page = face.recent(prefix, before=before, limit=limit)
        if len(page.keys) > limit:
            return found, [f"a page has {len(page.keys)} keys, with limit={limit}"]
        found += page.keys
        before = page.cursor
        if before is None:
            return found, []
    return found, ["after 100 pages there is still a cursor"]


@check("list gives the same version and time as load")
def list_tells_the_same(case: StoreCase) -> Findings:
    if not case.store.can_list:
        return
    for name in ("a", "b"):
        first = case.store.save(case.key(f"told/{name}"), b"1", expected=None)
        case.store.save(case.key(f"told/{name}"), b"2", expected=first)
    found, _ = _listed(case.store, case.key("told/"), 10)
    if not found:
        yield "nothing was listed"
    for entry in found:
        stored = case.other.load(entry.key)
        if stored is None or (entry.version, entry.updated_at) != (stored.version, stored.updated_at):
            yield f"list tells {shown(entry)}, load {shown(stored)}"


@check("list without a prefix lists everything, and a deleted key is not listed")
def list_all(case: StoreCase) -> Findings:
    if not case.store.can_list:
        return
    key = case.key("among all")
    case.store.save(key, b"blob", expected=None)
    if key not in {entry.key for entry in _listed(case.store, "", 500)[0]}:
        yield "a saved key is missing"
    if case.store.can_delete:
        case.store.delete(key)
        if key in {entry.key for entry in _listed(case.other, case.prefix, 500)[0]}:
            yield "a deleted key is listed"


@check("list shows no key under which unreadable bytes were set aside, unless the prefix asks for it")
def list_hides_what_was_set_aside(case: StoreCase) -> Findings:
    if not case.store.can_list:
        return
    end = ".unreadable." + "0123456789abcdef01234567"
    own = [
        "aside/a",
        "aside/a.unreadable.",
        f"aside/a{end}0",
        f"aside/a{end[:-1]}",
        f"aside/a{end[:-1]}g",
        f"aside/a{end.upper()}",
        f"aside/a{end}/b",
        f"aside/a{end.replace('.', '-')}",
    ]
    hidden = [f"aside/a{end}", f"aside/b{end[:-1]}8", f"aside/a{end}{end}"]
    for name in (*own, *hidden):
        case.store.save(case.key(name), b"blob", expected=None)
    for limit in (1, 3, 100):
        found, wrong = _listed(case.other, case.key("aside/"), limit)
        yield from wrong
        keys = [entry.key.removeprefix(case.prefix) for entry in found]
        if shows := set(hidden) & set(keys):
            yield f"limit {limit}: it shows {len(shows)} keys that end in '.unreadable.' and 24 hex digits"
        if missing := set(own) - set(keys):
            yield f"limit {limit}: it lacks {len(missing)} keys that only look like those"
        if not set(keys) <= {*own, *hidden}:
            yield "it shows keys that begin with something else"
    asked, _ = _listed(case.other, case.key("aside/b.unreadable."), 10)
    if [entry.key for entry in asked] != [case.key(hidden[1])]:
        yield "with the prefix 'KEY.unreadable.' it does not show the key that was set aside"


# --------------------------------------------------------------------------------------------- lease


def _is_held(face: Face, key: str, ttl: float) -> bool:
    try:
        with face.lease(key, ttl):
            return False
    except LeaseHeldError:
        return True


@check("while a lease is held no other holder gets it, and afterwards the next one does")
def lease_is_exclusive(case: StoreCase) -> Findings:
    if not case.store.can_lease:
        return
    key, neighbour, ttl = case.key("leased"), case.key("leased too"), 60.0
    with case.store.lease(key, ttl) as renew:
        for name, face in (("the same store", case.store), ("another store", case.other)):
            if not _is_held(face, key, ttl):
                yield f"{name} got a lease that was held"
        if _is_held(case.other, neighbour, ttl):
            yield "the lease of another key was refused too"
        if renew() is not True:
            yield "renew did not give True while the lease was held"
        if not _is_held(case.other, key, ttl):
            yield "after renew another holder got it"
    if _is_held(case.other, key, ttl):
        yield "after the block it was still held"
    try:
        with case.other.lease(key, ttl):
            raise KeyError(key)
    except KeyError:
        pass
    except Exception as error:
        yield f"the block raised KeyError, and {type(error).__name__} came out"
    if _is_held(case.store, key, ttl):
        yield "after an exception in the block it was still held"


@check("of several workers that ask for a lease at the same time, exactly one gets it")
def lease_has_one_winner(case: StoreCase) -> Findings:
    if not case.store.can_lease:
        return
    key = case.key("lease-race")
    won: list[int] = []
    with ExitStack() as held:

        def take(face: Face, number: int) -> None:
            try:
                held.enter_context(face.lease(key, 60.0))
            except LeaseHeldError:
                return
            won.append(number)

        raised = case.race([partial(take, (case.store, case.other)[n % 2], n) for n in range(6)])
        if raised:
            yield f"asking raised {type(raised[0]).__name__}"
        elif len(won) != 1:
            yield f"{len(won)} of 6 got it"


@check("a lease stops no other worker from loading and saving")
def lease_is_no_lock(case: StoreCase) -> Findings:
    if not case.store.can_lease:
        return
    key = case.key("leased-and-saved")
    version: int | None = None
    with case.store.lease(key, 60.0):
        for face in (case.store, case.other):
            version = face.save(key, b"blob", expected=version)
            if (stored := case.other.load(key)) is None or stored.version != version:
                yield "what was saved during the lease could not be loaded"
    if (stored := case.other.load(key)) is None or stored.version != version:
        yield "what was saved during the lease was gone after it"


@check("a lease that is not renewed ends after ttl seconds, and then it is the next holder's alone")
def lease_runs_out(case: StoreCase) -> Findings:
    if not case.store.can_lease:
        return
    forgotten, kept, ttl = case.key("lease-forgotten"), case.key("lease-kept"), case.lease_ttl
    peeked = case.key("lease-peeked")
    begun = time.monotonic()
    with ExitStack() as first, ExitStack() as second:
        renew_forgotten = first.enter_context(case.store.lease(forgotten, ttl))
        renew_kept = first.enter_context(case.store.lease(kept, ttl))
        first.enter_context(case.store.lease(peeked, ttl))
        while time.monotonic() < begun + ttl * 0.6:
            time.sleep(ttl / 50)
        is_late = time.monotonic() > begun + ttl * 0.95  # the machine is too busy for this check
        if renew_kept() is not True and not is_late:
            yield "renew did not give True before the end"
        renewed = time.monotonic()
        while True:
            try:
                second.enter_context(case.other.lease(forgotten, 60.0))
                break
            except LeaseHeldError:
                if time.monotonic() > begun + 1.0 + ttl * 6:
                    yield f"after {time.monotonic() - begun:.1f} seconds a lease of {ttl} was still held"
                    return
                time.sleep(ttl / 50)
        taken = time.monotonic()
        if taken < begun + ttl * 0.9:
            yield f"it ended {begun + ttl - taken:.2f} seconds early"
        if not is_late and not _is_held(case.other, kept, 60.0) and time.monotonic() < renewed + ttl * 0.9:
            yield "a lease that was renewed ended all the same"
        if renew_forgotten() is not False:
            yield "renew of a lease that ran out did not give False"
        while case.store.can_peek and case.other.is_held(peeked):
            if time.monotonic() > begun + 1.0 + ttl * 6:
                yield "is_held gave True for a lease that ran out"
                break
            time.sleep(ttl / 50)
        if case.store.can_peek and not case.store.is_held(forgotten):
            yield "is_held gave False for a lease that another holder took over"
        first.close()
        if not _is_held(case.store, forgotten, 60.0):
            yield "the end of the old holder's block ended the new holder's lease"


@check("is_held tells whether a key is leased, and a lease that is taken meanwhile is never refused")
def peek_only_reads(case: StoreCase) -> Findings:
    if not (case.store.can_peek and case.store.can_lease):
        return
    key, neighbour, faces = case.key("peeked"), case.key("peeked too"), (case.store, case.other)
    if any(face.is_held(key) is not False for face in faces):
        yield "it did not give False where nobody had a lease"
    with case.store.lease(key, 60.0) as renew:
        if any(face.is_held(key) is not True for face in faces):
            yield "it did not give True while the lease was held"
        if case.other.is_held(neighbour) is not False:
            yield "it gave True for a key beside the one that was leased"
        if renew() is not True:
            yield "after the question the lease could not be renewed"
    if any(face.is_held(key) is not False for face in faces):
        yield "it did not give False after the lease"

    over = threading.Event()

    def ask() -> None:
        try:
            for _ in range(_QUESTIONS):
                case.other.is_held(key)
        finally:
            over.set()

    def hold() -> None:
        while not over.is_set():
            with case.store.lease(key, 60.0):
                pass

    raised = case.race([hold, ask])
    if raised:
        yield f"a lease beside questions raised {type(raised[0]).__name__}"


CHECKS: tuple[StoreCheck, ...] = (
    delete_forgets,
    delete_compares,
    versions_do_not_come_again,
    list_is_complete,
    recent_is_in_order,
    recent_pages_hold_still,
    recent_stays_within_its_prefix,
    list_stays_within_its_prefix,
    list_tells_the_same,
    list_all,
    list_hides_what_was_set_aside,
    lease_is_exclusive,
    lease_has_one_winner,
    lease_is_no_lock,
    lease_runs_out,
    peek_only_reads,
)
