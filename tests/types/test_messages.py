"""Facts about `goaitools_py.types.messages`: what makes a message, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from goaitools_py import Chat, event
from goaitools_py.states import read_history
from goaitools_py.testing import ScriptedBackend
from goaitools_py.types.messages import MAX_TOPIC_CHARACTERS


@pytest.mark.parametrize(("name", "value"), [("topic", 5), ("topic", b"score"), ("id", 5), ("id", b"e1")])
def test_topic_and_id_of_an_event_are_text(name: str, value: Any) -> None:
    """Where the event is made, not where a state takes it in; the text names the argument and the type."""
    with pytest.raises(TypeError, match=f"{name} must be str, not {type(value).__name__}"):
        event("It rains.", **{name: value})


@pytest.mark.parametrize("name", ["topic", "id"])
def test_an_event_is_not_hidden_by_an_empty_name(name: str) -> None:
    """Two events with an empty id would be one; None is what says that there is none."""
    with pytest.raises(ValueError, match=f"an event's {name} is empty.*pass None"):
        event("It rains.", **{name: ""})


def test_the_longest_topic_survives_a_state() -> None:
    """A topic is a name of bounded length; up to that it comes back from a state as it was."""
    longest = "é" * MAX_TOPIC_CHARACTERS
    chat = Chat(ScriptedBackend())

    state = chat.append_to_state(None, event("It rains.", topic=longest, id="e1"))
    state = chat.append_to_state(state, event("The sun shines.", topic=longest))

    assert [(message.text, message.topic) for message in read_history(state).waiting] == [
        ("The sun shines.", longest)
    ]
    with pytest.raises(ValueError, match="topic must have at most 256 characters, got 257"):
        event("It rains.", topic=longest + "é")
