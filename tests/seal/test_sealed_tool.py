"""A sealed chat as a tool: an owner is asked for where the tool is made."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import AsyncChat, Chat
from goaitools_py.seal import Encrypted, Key, Keyring
from goaitools_py.stores import AsyncMemoryStore, MemoryStore
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.errors import GoAIToolsError


@pytest.mark.parametrize(("chat", "store"), [(Chat, MemoryStore), (AsyncChat, AsyncMemoryStore)])
def test_an_owner_is_asked_for_where_the_tool_is_made(chat: Any, store: Any) -> None:
    """Not in the first call, which a model has paid for."""
    codec = Encrypted(Keyring(Key(bytes(32))))
    inner = chat(ScriptedBackend("Hello."), codec=codec)
    with pytest.raises((TypeError, ValueError, GoAIToolsError), match="binding"):
        inner.as_tool("inner", "Ask it.", store=store())
    owned = chat(ScriptedBackend("Hello."), codec=codec, binding={"user": "ada"})
    assert owned.as_tool("inner", "Ask it.", store=store()).name == "inner"
