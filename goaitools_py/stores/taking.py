"""A lease that is held for a block, and given back if taking it is interrupted.

Owns: when a lease is given back, in a sync and an async form. Must never know: how a lease is given back.

Ctrl-C or a cancellation may come while the answer to the statement is on its way. Then the store may hold the
lease, and the caller does not know it. To end a lease that was not taken does no harm, because each has its
own token. After an ordinary error the lease is given back if it is known to be taken, such as when the load
after it failed. A store that does not answer would not answer the release either.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol

from ..base.late_calls import PATIENCE, AsyncUndisturbed, await_within
from ..base.run_twice import run_twice, run_twice_async
from ..types.errors import StoreUnavailableError

__all__ = ["held", "held_async", "taking", "taking_async"]


class Taken(Protocol):
    """A lease. `is_taken`: True once the store has said so."""

    @property
    def is_taken(self) -> bool: ...

    def release(self) -> object: ...


class AsyncTaken(Protocol):
    """`Taken` for async code."""

    @property
    def is_taken(self) -> bool: ...

    async def release(self) -> object: ...


@contextmanager
def taking(lease: Taken) -> Iterator[None]:
    """Around the step that takes a lease: gives it back if the step is interrupted, or fails after that."""
    try:
        yield
    except BaseException as exc:
        if lease.is_taken or not isinstance(exc, Exception):
            # Twice: if a second Ctrl-C interrupts the release, the lease is given back all the same.
            with suppress(Exception):  # then it ends by itself
                run_twice(lease.release)
        raise


@contextmanager
def held(lease: Taken, take: Callable[[], object]) -> Iterator[None]:
    """Take a lease, and give it back at the end of the block."""
    try:
        # `taking` covers the taking alone: after an error of the block, `finally` gives the lease back.
        with taking(lease):
            take()
        yield
    finally:
        if lease.is_taken:
            try:
                lease.release()
            except StoreUnavailableError:
                pass  # an error of the block must not be replaced by this one
            except Exception:
                raise
            except BaseException:
                # Once more: a Ctrl-C inside the release must not leave the lease until it ends by itself.
                lease.release()
                raise


@asynccontextmanager
async def taking_async(
    lease: AsyncTaken, rest: Callable[[], Awaitable[object]] | None = None
) -> AsyncIterator[None]:
    """As `taking`, awaited. `rest`: waits for the end of the step if that goes on after a cancellation.

    A store that does not answer holds a cancellation for some seconds only.
    """

    async def give_back() -> None:
        if rest is not None:
            # In this order: a statement that is still under way could take the lease after its release.
            await rest()
        # A late release goes on in a task of its own for a while, but its caller is not held any longer.
        with suppress(TimeoutError):
            await await_within(PATIENCE, lease.release())

    try:
        yield
    except BaseException as exc:
        if lease.is_taken or not isinstance(exc, Exception):
            with suppress(Exception):
                await run_twice_async(give_back)
        raise


@asynccontextmanager
async def held_async(lease: AsyncTaken, take: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """As `held`, awaited."""
    step = AsyncUndisturbed(take)
    try:
        async with taking_async(lease, step.rest):
            await step.call()
        yield
    finally:
        if lease.is_taken:
            end = AsyncUndisturbed(lease.release)
            try:
                with suppress(StoreUnavailableError):
                    await end.call()
            except BaseException:  # a cancellation does not reach the statement that gives the lease back
                await end.rest()
                raise
