"""A proof that a store keeps to the protocol, for whoever brings one.

Owns: the order of the checks, and the sentence in which their findings are told.
Must never know: an engine, a test framework.

::

    def test_my_store() -> None:
        store_contract(lambda: MyStore(URL))

    def test_my_async_store() -> None:
        @asynccontextmanager
        async def make_store() -> AsyncIterator[MyAsyncStore]:
            async with connect(URL) as connection:
                yield MyAsyncStore(connection)

        store_contract(make_store)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from typing import Any

from . import _store_extras, _store_saving
from ._contract import described
from ._store_case import Case, Check, Face, Loop, opened

__all__ = ["store_contract"]

_CHECKS: tuple[Check, ...] = (*_store_saving.CHECKS, *_store_extras.CHECKS)

_SHOWN_OF_A_CHECK = 3


def store_contract(
    make_store: Callable[[], Any], *, max_blob_bytes: int = 4 * 2**20 + 64, lease_ttl: float = 1.0
) -> None:
    """Prove a store against everything that conversations count on (`goaitools_py.stores.base`).

    A `delete`, `list` or `lease` is proved too if the store has one. All keys that are used begin with the
    same random text, so that a store with conversations in it is safe; where there is a `delete` they are
    deleted afterwards. It needs no test framework, and takes a few seconds. Call it outside async code.

    Args:
        make_store: Gives a store, blocking or async. It is called twice, and both look at the same storage.
            What it gives is entered if it can be (``with``, ``async with``). Async stores live in an event
            loop of the contract's own, and so does `make_store` if it is async itself. Blocking stores are
            called from several threads.
        max_blob_bytes: The largest blob that the store must keep. By default what a state may have.
        lease_ttl: Seconds of the lease that is left to run out.

    Raises:
        AssertionError: The store is not as it must be. The text has a line for each finding: what the
            protocol wants, then what came. All checks run; of one check's findings the first three are told.
    """
    with closing(Loop()) as loop, ExitStack() as stack:
        stores = [stack.enter_context(opened(make_store, loop)) for _ in range(2)]
        lines = list(_lacking(stores[0]))
        if not lines:
            case = Case(
                *(Face(store, loop) for store in stores),
                prefix=f"store-contract-{secrets.token_hex(6)}-",
                max_blob_bytes=max_blob_bytes,
                lease_ttl=lease_ttl,
            )
            stack.callback(case.forget)
            for check in _CHECKS:
                lines += (f"{check.wants}: {finding}" for finding in _run(check, case))
    if lines:
        raise AssertionError(
            f"{len(lines)} findings about {type(stores[0]).__name__}:" + "".join(f"\n- {x}" for x in lines)
        )


def _run(check: Check, case: Case) -> Iterator[str]:
    try:
        yield from islice(check.run(case), _SHOWN_OF_A_CHECK)
    except Exception as error:
        yield f"raised {described(error)}"


def _lacking(store: Any) -> Iterator[str]:
    """What is missing for any check to make sense."""
    for name in ("load", "save"):
        if not callable(getattr(store, name, None)):
            yield f"a store has a method {name!r}; what make_store gave has none"
