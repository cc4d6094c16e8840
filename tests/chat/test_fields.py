"""The keywords that a type checker knows are the options that there are."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest

from goaitools_py import AsyncChat, AsyncConversation, Chat, ChatOptions, Conversation
from goaitools_py.chat import fields
from goaitools_py.chat.fields import ChatFields, DefaultFields, RunTurnsFields
from goaitools_py.types.options import OPTION_NAMES, PER_TURN


def test_a_turn_s_keywords_are_the_options() -> None:
    """Name by name, with the same type: who adds an option adds its keyword."""
    promised = get_type_hints(ChatOptions, localns=vars(fields))

    assert get_type_hints(ChatFields) == {name: promised[name] for name in OPTION_NAMES}


def test_a_chat_s_keywords_are_those_that_may_be_defaults() -> None:
    """What belongs to one turn is refused as a default at run time, and no keyword of a type checker's."""
    assert set(get_type_hints(DefaultFields)) == set(OPTION_NAMES) - PER_TURN


def test_run_turns_takes_all_but_what_it_says_itself() -> None:
    """It says each text as `user`."""
    assert set(get_type_hints(RunTurnsFields)) == set(OPTION_NAMES) - {"user"}


@pytest.mark.parametrize("face", [Chat, AsyncChat, Conversation, AsyncConversation])
def test_no_method_takes_just_any_keyword(face: type[Any]) -> None:
    """A public method with keywords of options names their types, for type checkers."""
    annotations = {
        name: keywords.annotation
        for name, method in inspect.getmembers(face, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
        for keywords in inspect.signature(inspect.unwrap(method)).parameters.values()
        if keywords.kind is inspect.Parameter.VAR_KEYWORD
    }

    assert len(annotations) >= 3
    assert [name for name, written in annotations.items() if not written.startswith("Unpack[")] == []
