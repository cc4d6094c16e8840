"""All stores of the package keep the contract that it gives to others, on real servers."""

from __future__ import annotations

import pytest

from goaitools_py.testing import store_contract

from ._places import KINDS, Place, maker


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_store_of_the_package_keeps_the_contract(place: Place) -> None:
    """Bytes, keys, versions, rivals, delete, list and lease are as the protocol wants them."""
    store_contract(maker(place))
