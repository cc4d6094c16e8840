"""The checks of a store by `goaitools doctor`: a round trip, a race, the lease, the clock.

Owns: the saved data and the expected results. Must never know: an engine of a store, or how a finding is
printed. All of it happens under one new key.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any, Final

from .checks import Finding

__all__ = ["CHECKS", "contract", "new_key"]

_RACERS: Final = 8
_SKEW: Final = 30.0


def new_key() -> str:
    """A key that no conversation has."""
    return f"goaitools-doctor-{secrets.token_hex(8)}"


def round_trip(store: Any, key: str) -> Finding:
    """Save bytes of every value and load them."""
    blob = b"\xf5GAS" + bytes(range(256)) * 4 + secrets.token_bytes(64)
    began = time.monotonic()
    version = store.save(key, blob, expected=None)
    found = store.load(key)
    seconds = time.monotonic() - began
    if found is None or bytes(found.blob) != blob or found.version != version:
        return Finding("store round trip", "problem", "it does not give back the bytes that it was given")
    return Finding("store round trip", "ok", f"{len(blob):,} bytes in {seconds * 1000:.0f} ms")


def race(store: Any, key: str) -> Finding:
    """Several threads save over the same version at once: one may win, and its bytes must be there."""
    from ..types.errors import StateConflictError

    version = store.load(key).version
    barrier = threading.Barrier(_RACERS)
    won: list[bytes] = []
    failed: list[str] = []

    def save(number: int) -> None:
        blob = b"\xf5GAS" + bytes([number]) * 32
        barrier.wait()
        try:
            store.save(key, blob, expected=version)
        except StateConflictError:
            return
        except Exception as error:
            failed.append(type(error).__name__)
        else:
            won.append(blob)

    racers = [threading.Thread(target=save, args=(number,)) for number in range(_RACERS)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    if failed:
        return Finding("store race", "problem", f"{len(failed)} of {_RACERS} saves failed: {failed[0]}")
    if len(won) != 1 or bytes(store.load(key).blob) != won[0]:
        return Finding(
            "store race",
            "problem",
            f"{len(won)} of {_RACERS} saves of one version won, expected 1: turns would be lost",
        )
    return Finding("store race", "ok", f"1 of {_RACERS} saves of one version won")


def lease(store: Any, key: str) -> Finding:
    """A lease that is held is refused to another holder."""
    from ..types.errors import LeaseHeldError

    if not hasattr(store, "lease"):
        return Finding("store lease", "note", "it has none: two workers may pay for one turn; one is kept")
    with store.lease(key, 10.0):
        try:
            with store.lease(key, 10.0):
                return Finding("store lease", "problem", "two holders got one lease")
        except LeaseHeldError:
            return Finding("store lease", "ok", "one holder at a time")


def clock(store: Any, key: str) -> Finding:
    """Compare the time of a save with this machine's clock."""
    ahead = time.time() - store.load(key).updated_at.timestamp()
    if abs(ahead) > _SKEW:
        side = "ahead of" if ahead > 0 else "behind"
        return Finding("store clock", "problem", f"this machine is {abs(ahead):,.0f} s {side} it")
    return Finding("store clock", "ok", "as this machine's")


CHECKS: Final = (round_trip, race, lease, clock)


def contract(store: Any, other: Any) -> Finding:
    """Check all of the protocol, as `store_contract` does for a store of your own."""
    from ..testing import store_contract

    stores = iter((store, other))
    try:
        store_contract(lambda: next(stores))
    except AssertionError as error:
        return Finding("store contract", "problem", str(error))
    return Finding("store contract", "ok", "all checks passed")
