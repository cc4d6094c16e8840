"""A lease that is held for a block is given back, however the block and the release end."""

from __future__ import annotations

import pytest

from goaitools_py.stores.taking import held
from goaitools_py.types.errors import StoreUnavailableError


class Lease:
    """A lease of which each release fails as told."""

    def __init__(self, *failures: type[BaseException]) -> None:
        self.failures = list(failures)
        self.is_taken = False
        self.releases = 0

    def take(self) -> None:
        self.is_taken = True

    def release(self) -> None:
        self.releases += 1
        if self.failures:
            raise self.failures.pop(0)
        self.is_taken = False


@pytest.mark.parametrize("exit", [KeyboardInterrupt, SystemExit])
def test_an_exit_inside_the_release_leaves_no_lease(exit: type[BaseException]) -> None:
    """Ctrl-C at the end of ``with store.lease(key)``, for example."""
    lease = Lease(exit)

    with pytest.raises(exit), held(lease, lease.take):
        assert lease.is_taken

    assert (lease.is_taken, lease.releases) == (False, 2)


def test_a_store_that_is_down_is_asked_once() -> None:
    """The lease ends by itself, and the block's own error is not replaced."""
    lease = Lease(StoreUnavailableError)

    with pytest.raises(ZeroDivisionError), held(lease, lease.take):
        raise ZeroDivisionError

    assert lease.releases == 1
