"""Histories in a provider's own JSON as states: what is no history."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py.states import state_from_messages


@pytest.mark.parametrize("found", [None, "hello", b"[]", 5, {"role": "user", "content": "Hello."}])
def test_a_history_is_a_list(wire: str, found: Any) -> None:
    """Anything else is a TypeError that says what was found, before it is looked into."""
    with pytest.raises(TypeError, match=f"messages must be a list of dicts, not {type(found).__name__}"):
        state_from_messages(wire, found)


@pytest.mark.parametrize("found", [None, "hello", ["user", "hello"]])
def test_a_message_is_a_dict(wire: str, found: Any) -> None:
    """Of a list too, it is said what one of its items is."""
    with pytest.raises(TypeError, match=f"each message must be a dict .*, not {type(found).__name__}"):
        state_from_messages(wire, [{"role": "user", "content": "Hello."}, found])
