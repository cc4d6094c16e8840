"""The agent of AG-UI talks to a running server: what a page holds at the end is what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goaitools_py.backends import BackendError
from goaitools_py.testing import Calls

from ...serve._world import World, late_world
from ._compare import results_in_order, without_inner_calls
from ._node import pages_of

LOOK = Calls([("look", {"at": "door"})], text="Let me see.", reasoning="Dark.")
FIRE = Calls([("fire", {"at": "y"})], text="Now.")
HAND_OFF = Calls([("look", {"at": "x"}), ("gunner", {"message": "Fire!"})])
GUNNER = (Calls([("fire", {"at": "y"}), ("fire", {"at": "z"})], text="Shall I?"), "Both hit.")
SCRIPTS: dict[str, tuple[Any, ...]] = {
    "text": ("Good evening.", "A lamp."),
    "tools": (LOOK, "Done."),
    "approve": (FIRE, "Hit."),
    "changed": (FIRE, "Hit."),
    "deny": (FIRE, "As you wish."),
    "parallel": (Calls([("look", {"at": "x"}), ("fire", {"at": "y"}), ("fire", {"at": "z"})]), "Both."),
    "hand_off": (HAND_OFF, "Hit."),
    "hand_off_after_a_reload": (HAND_OFF, "Hit."),
    "client_tool": (Calls([("ask_player", {"question": "Who?"})]), "Hello Ada."),
    "approve_while_the_provider_fails": (FIRE, BackendError("away"), "Hit."),
    "stop": (LOOK, "Short."),
    "reload": (LOOK, "Done."),
    "reload_before_the_approval": (FIRE, "Hit."),
    "cut": (LOOK, "Done."),
    "double": (LOOK, "Done."),
    "edit": ("One.", "Two.", "Zwei.", "Deux."),
    "edit_after_a_reload": ("One.", "Eins."),
}
STEERS = ("steer",)
LATE = (
    "tools", "approve", "changed", "deny", "parallel", "approve_while_the_provider_fails", "stop", "reload",
    "cut", "double", "reload_before_the_approval", "client_tool",
)  # fmt: skip
TOOLS_RUN = {
    "tools": 1,
    "approve": 1,
    "changed": 1,
    "deny": 0,
    "parallel": 3,
    "approve_while_the_provider_fails": 1,
    "reload": 1,
    "hand_off": 3,
    "hand_off_after_a_reload": 3,
    "reload_before_the_approval": 1,
    "cut": 1,
    "double": 1,
}


@pytest.fixture(
    scope="session",
    params=[1, pytest.param(2, marks=pytest.mark.service)],
    ids=["one worker", "two workers in turn"],
)
def agui_pages(agui_folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the page holds after each scenario, and the tools that ran."""
    worlds = {
        name: World(*steps, gunner=GUNNER if HAND_OFF in steps else ()) for name, steps in SCRIPTS.items()
    } | {name: World(LOOK, "Done.", gate="steer", lease_ttl=30.0) for name in STEERS}
    worlds |= {f"late_{name}": late_world(*SCRIPTS[name]) for name in LATE}
    return pages_of("agui_chat.mjs", agui_folder, worlds, workers=request.param)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_agent_holds_what_is_stored(agui_pages: dict[str, Any], name: str) -> None:
    found = agui_pages[name]

    assert "failed" not in found, found.get("failed")
    assert found["warnings"] == []
    assert found["waiting"] == 0
    assert results_in_order(without_inner_calls(found["messages"])) == found["stored"]
    assert found["tools"] == TOOLS_RUN.get(name, found["tools"])


@pytest.mark.parametrize("name", LATE)
def test_the_agent_holds_a_turn_of_later_messages(agui_pages: dict[str, Any], name: str) -> None:
    """The turn follows in the same run. Its messages have the ids that the history has."""
    found = agui_pages[f"late_{name}"]

    assert "failed" not in found, found.get("failed")
    assert (found["warnings"], found["waiting"]) == ([], 0)
    own, stored = (
        [one for one in results_in_order(messages) if one["role"] != "user"]
        for messages in (found["messages"], found["stored"])
    )
    if name == "cut":  # reasoning keeps the place where the client had it first
        own, stored = (sorted(messages, key=lambda one: one["id"]) for messages in (own, stored))
    assert own == stored
    assert found["tools"] == TOOLS_RUN.get(name, found["tools"])


@pytest.mark.parametrize("name", STEERS)
def test_a_second_message_goes_to_the_turn_that_runs(agui_pages: dict[str, Any], name: str) -> None:
    """The next model call has it. The agent holds both messages and each piece of the reply once."""
    found = agui_pages[name]

    assert "failed" not in found, found.get("failed")
    assert (found["warnings"], found["waiting"]) == ([], 0)
    assert ["And the window?" in request for request in found["requests"]] == [False, True]
    own, stored = (
        [{**one, "id": one["content"] if one["role"] == "user" else one["id"]} for one in messages]
        for messages in (found["messages"], found["stored"])
    )
    # Reasoning keeps the place where the client had it first.
    assert sorted(own, key=lambda one: one["id"]) == sorted(stored, key=lambda one: one["id"])
    roles = [one["role"] for one in own if one["role"] != "reasoning"]
    assert roles == ["user", "user", "assistant", "tool", "assistant"]
    assert found["tools"] == 1
