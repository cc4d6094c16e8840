"""A store for plain code in an event loop: it keeps the whole protocol; a folder keeps a part."""

from __future__ import annotations

import asyncio
from pathlib import Path

from goaitools_py.cli.chat_stores import FolderStore, FullThreadedStore, ThreadedStore
from goaitools_py.states import state_from_messages
from goaitools_py.stores import MemoryStore
from goaitools_py.stores.base import AsyncLeasing, AsyncParted, AsyncStopping
from goaitools_py.stores.layout import takes_facts
from goaitools_py.testing import store_contract


def test_a_full_store_keeps_the_protocol() -> None:
    """Facts, parts, flags and leases pass through; the lease that runs out is seen."""
    store = MemoryStore()
    store_contract(lambda: FullThreadedStore(store), lease_ttl=0.2)
    full = FullThreadedStore(store)
    assert takes_facts(full)
    assert isinstance(full, AsyncParted)
    assert isinstance(full, AsyncLeasing)
    assert isinstance(full, AsyncStopping)


def test_a_folder_of_files_has_no_more_than_its_methods(tmp_path: Path) -> None:
    """Each method is awaited, and does what the folder does. It has no lease and no parts."""

    async def use() -> list[str]:
        store = ThreadedStore(FolderStore(tmp_path, ".goai"))
        assert not takes_facts(store)
        assert not isinstance(store, (AsyncParted, AsyncLeasing, AsyncStopping))
        blob = state_from_messages("openai", [{"role": "user", "content": "x"}])
        version = await store.save("ada", blob, expected=None)
        stored = await store.load("ada")
        assert stored is not None
        assert (stored.blob, stored.version) == (blob, version)
        await store.save("bob", blob, expected=None)
        assert await store.delete("bob")
        assert not await store.delete("bob")
        return [found.key for found in (await store.list()).keys]

    assert asyncio.run(use()) == ["ada"]
