"""Checks that a store of your own follows the protocol.

Owns: the order of the checks, and the text of their findings.
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
from typing import Any

from . import _store_beside, _store_extras, _store_saving, _store_together
from ._contract import first_findings
from ._store_case import Face, Loop, StoreCase, StoreCheck, opened

__all__ = ["store_contract"]

_CHECKS: tuple[StoreCheck, ...] = (
    *_store_saving.CHECKS,
    *_store_extras.CHECKS,
    *_store_beside.CHECKS,
    *_store_together.CHECKS,
)


def store_contract(
    make_store: Callable[[], Any],
    *,
    max_blob_bytes: int = 4 * 2**20 + 64,
    lease_ttl: float = 1.0,
    expire: Callable[[str], None] | None = None,
) -> None:
    """Check a store against everything that conversations need (`goaitools_py.stores.base`).

    Optional methods are checked where the store has them: `delete`, `list`, `lease`, `is_held`,
    `set_stop`, `save_parts`, `lease_and_load` with `save_and_release`, `lease_and_load_head` with
    `save_parts_and_release`, and a `save` that takes ``facts``. All keys begin with the same random text, so
    the conversations of a store in use are safe. If the store has a `delete`, the keys are deleted
    afterwards. The check needs no test framework, and takes a few seconds. Call it outside async code.

    Args:
        make_store: Gives a store, sync or async. It is called twice; both stores must use the same storage.
            A context manager is entered (``with``, ``async with``). Async stores run in an event loop of the
            contract, and so does an async `make_store`. Sync stores are called from several threads.
        max_blob_bytes: The largest blob that the store must keep. The default is the largest state with
            the default limits.
        lease_ttl: Seconds of the lease that the check lets run out.
        expire: For stores that forget old conversations, with a `ttl` longer than the check takes: makes the
            save under a key older than that. None: this is not checked.

    Raises:
        AssertionError: The store violates the protocol. The text has a line for each finding: the rule
            of the protocol, then the violation. All checks run; each tells its first three findings.
    """
    with closing(Loop()) as loop, ExitStack() as stack:
        stores = [stack.enter_context(opened(make_store, loop)) for _ in range(2)]
        lines = list(_lacking(stores[0]))
        if not lines:
            case = StoreCase(
                *(Face(store, loop) for store in stores),
                prefix=f"store-contract-{secrets.token_hex(6)}-",
                max_blob_bytes=max_blob_bytes,
                lease_ttl=lease_ttl,
                expire=expire,
            )
            stack.callback(case.forget)
            for check in _CHECKS:
                lines += (f"{check.wants}: {finding}" for finding in first_findings(check.run, case))
    if lines:
        raise AssertionError(
            f"{len(lines)} findings about {type(stores[0]).__name__}:" + "".join(f"\n- {x}" for x in lines)
        )


def _lacking(store: Any) -> Iterator[str]:
    """Name the methods that every check needs and the store lacks."""
    for name in ("load", "save"):
        if not callable(getattr(store, name, None)):
            yield f"a store needs a method {name!r}; the one from make_store has none"
