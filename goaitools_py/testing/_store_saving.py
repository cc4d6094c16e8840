"""The checks of the store contract on loading and saving: bytes, keys, versions, competing writers.

Owns: the trials. Must never know: an engine, a test framework.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from ..stores import Stored
from ..types.errors import StateConflictError
from ._contract import described, shown
from ._store_case import Face, Findings, StoreCase, StoreCheck, check

__all__ = ["CHECKS"]

_EVERY_BYTE = bytes(range(256)) * 3
_ODD_KEYS = (
    "ada", "Ada", "ADA", "ada ", " ada", "ada  ", "ada\t", "ada\n",
    "a", "á", "a\u0301", "ä", "ß", "ss", "İ", "i", "ı", "ﬁ", "fi", "ｗ", "w", "你好", "👋", "👋🏽",
    "1", "01", "1.0", "1e0", "None", "null", "nan", "true",
    "a/b", "a\\b", "a:b", "a b", "a%b", "a_b", "a*b", "a?b", "a[b]", "a{b}", "}", "{}", "a.b", "a..b", "../a",
    "'", '"', "'; DROP TABLE goaitools_state; --", "$1", "%s", ":key", "?", "\r\nSET x 1\r\n", "\x7f",
    "\ufeff",
)  # fmt: skip
"""Keys that some engines confuse with each other, or read as a pattern or an instruction."""
_LONGEST_KEY = 512


def _refused(save: Callable[[], object]) -> Exception | None:
    """Give the conflict that a save raised; None if the save was done."""
    try:
        save()
    except StateConflictError as error:
        return error
    return None


def _holds(stored: Stored | None, blob: bytes, version: int) -> str | None:
    """Describe how the stored value differs from the expected one; None if it does not."""
    if stored is None:
        return "nothing is stored"
    if stored.blob != blob:
        return f"the blob is {shown(stored.blob)} instead of {shown(blob)}"
    if stored.version != version:
        return f"the version is {stored.version!r} instead of {version!r}"
    return None


# --------------------------------------------------------------------------------------------- bytes


@check("load gives None for a key under which nothing was saved")
def nothing_is_none(case: StoreCase) -> Findings:
    key = case.key("nothing")
    if (found := case.store.load(key)) is not None:
        yield f"load gave {shown(found)}"
    case.store.save(case.key("something"), b"blob", expected=None)
    if (found := case.store.load(key)) is not None:
        yield f"after a save under another key load gave {shown(found)}"


@check("load gives the bytes that were saved, as bytes")
def bytes_come_back(case: StoreCase) -> Findings:
    noise = random.Random(7)
    blobs = {
        "empty": b"",
        "zero": b"\x00",
        "spaces": b"  blob \n\x00",
        "every": _EVERY_BYTE,
        "magic": b"\xf5GAS\x01\x00\x01\x00",
        "text": "Ä☃😀".encode("utf-16"),
        "65537": noise.randbytes(65_537),
        "largest": noise.randbytes(case.max_blob_bytes),
    }
    for name, blob in blobs.items():
        key = case.key(f"bytes-{name}")
        first = case.store.save(key, b"before", expected=None)
        version = case.store.save(key, blob, expected=first)
        for face in (case.store, case.other):
            stored = face.load(key)
            if problem := _holds(stored, blob, version):
                yield f"{len(blob)} bytes ({name}): {problem}"
            elif stored is not None and type(stored.blob) is not bytes:
                yield f"the blob is of type {type(stored.blob).__name__}"


@check("a first save keeps the bytes as later ones do")
def first_bytes_come_back(case: StoreCase) -> Findings:
    for name, blob in {"empty": b"", "every": _EVERY_BYTE, "70000": _EVERY_BYTE * 92}.items():
        key = case.key(f"first-{name}")
        version = case.store.save(key, blob, expected=None)
        if problem := _holds(case.other.load(key), blob, version):
            yield f"{len(blob)} bytes: {problem}"


@check("updated_at is the time of the save, in UTC")
def time_of_save(case: StoreCase) -> Findings:
    key, times = case.key("time"), []
    version: int | None = None
    for blob in (b"1", b"2"):
        begun = datetime.now(UTC)
        version = case.store.save(key, blob, expected=version)
        stored = case.store.load(key)
        at = None if stored is None else stored.updated_at
        if not isinstance(at, datetime) or at.utcoffset() != timedelta(0):
            yield f"updated_at is {at!r}; expected a datetime in UTC"
            return
        if abs(at - begun) > timedelta(minutes=5):
            yield f"updated_at is {at:%Y-%m-%d %H:%M:%S}, the clock says {begun:%Y-%m-%d %H:%M:%S}"
        times.append(at)
    if times[1] < times[0]:
        yield "the second save has an earlier updated_at than the first"


@check("a load sees what another store over the same storage has saved")
def fresh_loads(case: StoreCase) -> Findings:
    key = case.key("fresh")
    case.store.load(key)
    version = case.other.save(key, b"1", expected=None)
    for number in range(2, 5):
        if problem := _holds(case.store.load(key), b"%d" % (number - 1), version):
            yield problem
        version = case.other.save(key, b"%d" % number, expected=version)


# ---------------------------------------------------------------------------------------------- keys


@check("keys that differ in anything are different keys")
def keys_are_apart(case: StoreCase) -> Findings:
    keys = [case.key(f"odd-{name}") for name in _ODD_KEYS]
    for number, key in enumerate(keys):
        try:
            case.store.save(key, b"blob %d" % number, expected=None)
        except StateConflictError:
            yield f"{shown(_ODD_KEYS[number])} was taken for a key that was saved before"
    for number, key in enumerate(keys):
        stored = case.other.load(key)
        if stored is None or stored.blob != b"blob %d" % number:
            found = shown(stored and stored.blob)
            yield f"{shown(_ODD_KEYS[number])} loads {found}, not what was saved there"


@check("a key may have up to 512 bytes of UTF-8")
def long_keys(case: StoreCase) -> Findings:
    for letter in ("k", "é", "你", "👋"):
        name = letter * ((_LONGEST_KEY - len(case.prefix)) // len(letter.encode()))
        keys = [case.key(name), case.key(name[:-1])]
        for number, key in enumerate(keys):
            version = case.store.save(key, b"%d" % number, expected=None)
            if problem := _holds(case.store.load(key), b"%d" % number, version):
                yield f"a key of {len(key.encode())} bytes: {problem}"


@check("a key that cannot be kept as it is raises ValueError, and is not cut or changed")
def impossible_keys(case: StoreCase) -> Findings:
    pairs = (
        ("k" * 600 + "1", "k" * 600 + "2"),
        ("k" * 5_000 + "1", "k" * 5_000 + "2"),
        ("nul\x001", "nul\x002"),
        ("nul", "nul\x00"),
        ("half \ud800", "half \ud801"),
        ("half ?", "half \udc80"),
    )
    for pair in pairs:
        for number, name in enumerate(pair):
            what = f"a key like {shown(name[-12:])} ({len(name)} characters)"
            try:
                case.store.save(case.key(name), b"%d" % number, expected=None)
                stored = case.store.load(case.key(name))
            except ValueError:
                continue
            except Exception as error:
                yield f"{what}: raised {described(error)}"
                continue
            if stored is None or stored.blob != b"%d" % number:
                yield f"{what}: loads {shown(stored and stored.blob)}, not what was saved there"


# ------------------------------------------------------------------------------------------ versions


@check("each save gives a new version, which the next load tells too")
def new_versions(case: StoreCase) -> Findings:
    key = case.key("versions")
    seen: list[int] = []
    for number in range(5):
        version = case.store.save(key, b"%d" % number, expected=seen[-1] if seen else None)
        if not isinstance(version, int) or isinstance(version, bool):
            yield f"save gave {shown(version)}; a version is an int"
        if problem := _holds(case.other.load(key), b"%d" % number, version):
            yield f"after save {number + 1}: {problem}"
        if version in seen:
            yield f"save {number + 1} gave the version {version}, as an earlier one did"
        seen.append(version)


@check("the same bytes saved again have a new version")
def same_bytes_again(case: StoreCase) -> Findings:
    key = case.key("same")
    first = case.store.save(key, b"same", expected=None)
    second = case.store.save(key, b"same", expected=first)
    if second == first:
        yield "the version stayed as it was"
    if _refused(lambda: case.store.save(key, b"same", expected=first)) is None:
        yield "a save that names the version before that was done"


@check("a first save (expected=None) is refused if something is stored")
def first_save_replaces_nothing(case: StoreCase) -> Findings:
    for blob in (b"theirs", b""):
        key = case.key(f"first-save-{len(blob)}")
        version = case.store.save(key, blob, expected=None)
        for face in (case.store, case.other):
            if _refused(partial(face.save, key, b"mine", expected=None)) is None:
                yield f"a second first save was done, over {len(blob)} bytes"
        if problem := _holds(case.store.load(key), blob, version):
            yield f"after the refused save: {problem}"


@check("a save that names another version than the stored one is refused, and changes nothing")
def other_versions_are_refused(case: StoreCase) -> Findings:
    key = case.key("refused")
    first = case.store.save(key, b"first", expected=None)
    version = case.store.save(key, b"theirs", expected=first)
    for expected in (first, version + 1, version + 2, 0, -1, 2**62):
        for face in (case.store, case.other):
            if _refused(partial(face.save, key, b"mine", expected=expected)) is None:
                yield f"{version} was stored, a save that expected {expected} was done"
                return
    if problem := _holds(case.store.load(key), b"theirs", version):
        yield f"after the refused saves: {problem}"


@check("a save that expects a version is refused where nothing is stored")
def nothing_is_not_replaced(case: StoreCase) -> Findings:
    for expected in (1, 0):
        key = case.key(f"missing-{expected}")
        if _refused(partial(case.store.save, key, b"mine", expected=expected)) is None:
            yield f"a save that expected {expected} was done"
        if case.store.load(key) is not None:
            yield f"after a save that expected {expected}, something is stored"


@check("a conflict's text holds neither key nor blob")
def conflicts_are_silent(case: StoreCase) -> Findings:
    key = case.key("ada@example.org")
    version = case.store.save(key, b"CANARY-1", expected=None)
    for expected in (None, version + 7):
        error = _refused(partial(case.store.save, key, b"CANARY-2", expected=expected))
        told = "" if error is None else str(error)
        yield from (f"the text quotes {word!r}" for word in ("ada@example", "CANARY") if word in told)


# ------------------------------------------------------------------------------------------ rivals


def _sides(case: StoreCase) -> Iterator[Face]:
    while True:
        yield case.store
        yield case.other


def _save_once(face: Face, key: str, blob: bytes, expected: int | None, done: list[bytes]) -> None:
    if _refused(lambda: face.save(key, blob, expected=expected)) is None:
        done.append(blob)


@check("of saves at the same time that name one version, exactly one is done")
def one_winner(case: StoreCase) -> Findings:
    for round_ in range(4):
        key = case.key(f"winner-{round_}")
        expected = None if round_ % 2 else case.store.save(key, b"before", expected=None)
        done: list[bytes] = []

        rivals = [b"rival %d" % number for number in range(8)]
        raised = case.race(
            [
                partial(_save_once, face, key, blob, expected, done)
                for face, blob in zip(_sides(case), rivals, strict=False)
            ]
        )
        yield from (f"a save raised {described(error)}" for error in raised)
        if len(done) != 1 and not raised:
            yield f"{len(done)} of 8 were done"
        stored = case.store.load(key)
        if len(done) == 1 and (stored is None or stored.blob != done[0]):
            yield "what is stored is not what was saved"


@check("writers that load, add and save, and begin anew after a conflict, lose nothing and double nothing")
def nothing_is_lost(case: StoreCase) -> Findings:
    key, words = case.key("appended"), [b"%d;" % number for number in range(40)]
    gate = threading.Barrier(8)

    def append(face: Face, mine: list[bytes]) -> None:
        for number, word in enumerate(mine):
            case.append(face, key, word, gate=gate if number == 0 else None)

    raised = case.race(
        [partial(append, face, words[at::8]) for at, face in zip(range(8), _sides(case), strict=False)]
    )
    yield from (f"a writer raised {described(error)}" for error in raised)
    stored = case.store.load(key)
    there = [] if stored is None else [word + b";" for word in stored.blob.split(b";")[:-1]]
    if not raised and (lost := set(words) - set(there)):
        yield f"{len(lost)} of {len(words)} are lost"
    if len(there) != len(set(there)):
        yield f"{len(there) - len(set(there))} are there twice"


CHECKS: tuple[StoreCheck, ...] = (
    nothing_is_none,
    bytes_come_back,
    first_bytes_come_back,
    time_of_save,
    fresh_loads,
    keys_are_apart,
    long_keys,
    impossible_keys,
    new_versions,
    same_bytes_again,
    first_save_replaces_nothing,
    other_versions_are_refused,
    nothing_is_not_replaced,
    conflicts_are_silent,
    one_winner,
    nothing_is_lost,
)
