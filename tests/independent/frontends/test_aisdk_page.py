"""The AI SDK's own chat talks to a running server: what a page holds at the end is what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goaitools_py.backends import BackendError
from goaitools_py.testing import Calls

from ...serve._world import World, late_world
from ._compare import comparable, without_inner_calls
from ._node import pages_of

LOOK = Calls([("look", {"at": "door"})], text="Let me see.", reasoning="Dark.")
FIRE = Calls([("fire", {"at": "y"})], text="Now.")
HAND_OFF = Calls([("look", {"at": "x"}), ("gunner", {"message": "Fire!"})])
GUNNER = (Calls([("fire", {"at": "y"}), ("fire", {"at": "z"})], text="Shall I?"), "Both hit.")
SCRIPTS: dict[str, tuple[Any, ...]] = {
    "text": ("Good evening.", "A lamp."),
    "tools": (LOOK, "Done."),
    "approve": (FIRE, "Hit."),
    "parallel": (Calls([("look", {"at": "x"}), ("fire", {"at": "y"}), ("fire", {"at": "z"})]), "Both."),
    "deny": (FIRE, "As you wish."),
    "approve_while_the_provider_fails": (FIRE, BackendError("away"), "Hit."),
    "stop": (LOOK, "Short."),
    "reload": (LOOK, "Done."),
    "cut": (LOOK, "Done."),
    "double": (LOOK, "Done."),
    "reload_before_the_approval": (FIRE, "Hit."),
    "hand_off": (HAND_OFF, "Hit."),
    "hand_off_after_a_reload": (HAND_OFF, "Hit."),
    "client_tool": (Calls([("ask_player", {"question": "Who?"})]), "Hello Ada."),
    "regenerate": ("One.", "Two.", "Three."),
    "edit": ("One.", "Two.", "Three.", "Zwei.", "Deux."),
    "edit_after_a_reload": ("One.", "Two.", "Eins.", "Un."),
    "edit_in_place_of_an_approval": (FIRE, "I do not."),
}
STEERS = ("steer", "steer_after_a_reload")
LATE = (
    "tools", "approve", "deny", "parallel", "approve_while_the_provider_fails", "stop", "reload", "cut",
    "double", "reload_before_the_approval", "client_tool",
)  # fmt: skip
TOOLS_RUN = {
    "tools": 1,
    "approve": 1,
    "parallel": 3,
    "approve_while_the_provider_fails": 1,
    "reload": 1,
    "hand_off": 3,
    "hand_off_after_a_reload": 3,
    "cut": 1,
    "double": 1,
    "reload_before_the_approval": 1,
}


@pytest.fixture(
    scope="session",
    params=[1, pytest.param(2, marks=pytest.mark.service)],
    ids=["one worker", "two workers in turn"],
)
def pages(client_folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the page holds after each scenario, and the tools that ran."""
    worlds = {
        name: World(*steps, gunner=GUNNER if HAND_OFF in steps else ()) for name, steps in SCRIPTS.items()
    } | {name: World(LOOK, "Done.", gate="steer", lease_ttl=30.0) for name in STEERS}
    worlds |= {f"late_{name}": late_world(*SCRIPTS[name]) for name in LATE}
    return pages_of("chat.mjs", client_folder, worlds, workers=request.param)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_holds_what_is_stored(pages: dict[str, Any], name: str) -> None:
    found = pages[name]

    assert "failed" not in found, found.get("failed")
    assert found["status"] == "ready"
    assert comparable(without_inner_calls(found["messages"])) == comparable(found["stored"])
    assert [one["role"] for one in found["messages"]] == [one["role"] for one in found["stored"]]
    assert found["tools"] == TOOLS_RUN.get(name, found["tools"])


@pytest.mark.parametrize("name", LATE)
def test_the_page_holds_a_turn_of_later_messages(pages: dict[str, Any], name: str) -> None:
    """The turn follows in the same stream: the page shows both as one reply, and so does the history."""
    found = pages[f"late_{name}"]

    assert "failed" not in found, found.get("failed")
    assert found["status"] == "ready"
    assert comparable(found["messages"]) == comparable(found["stored"])
    assert sum("Late." in request for request in found["requests"]) == len(found["requests"]) - 1
    assert found["tools"] == TOOLS_RUN.get(name, found["tools"])


@pytest.mark.parametrize("name", STEERS)
def test_a_second_message_goes_to_the_turn_that_runs(pages: dict[str, Any], name: str) -> None:
    """The next model call has it. The page holds both messages and the reply once. The second message stands
    behind the reply that it steers, because the page has said it there."""
    found = pages[name]

    assert "failed" not in found, found.get("failed")
    assert found["status"] == "ready"
    assert ["And the window?" in request for request in found["requests"]] == [False, True]
    assert comparable(found["messages"]) == comparable(found["stored"])
    shown = [one["parts"][0]["text"] for one in found["messages"] if one["role"] == "user"]
    assert shown == ["Look", "And the window?"]
    assert [one["role"] for one in found["messages"]] == ["user", "assistant", "user"]
    assert [one["role"] for one in found["stored"]] == ["user", "user", "assistant"]
    assert found["tools"] == 1
