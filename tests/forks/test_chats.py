"""A chat that was used before a fork goes on in parent and children; each process gets its own replies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import CALLS, CHILDREN, FEW, family

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

WIRES = ["openai", "openai-responses", "anthropic"]


@pytest.mark.parametrize(("wire", "made"), [*((wire, "name") for wire in WIRES), ("openai", "backend")])
@pytest.mark.parametrize("colour", ["chat", "async_chat"])
def test_each_process_gets_its_own_replies(server: dict[str, str], colour: str, wire: str, made: str) -> None:
    """Over connections that are kept alive: parent and children ask at the same time."""
    is_full = (wire, made) == ("openai", "name") or CALLS > FEW
    children, calls = (CHILDREN, CALLS) if is_full else (2, 5)
    family(colour, env=server, wire=wire, made=made, children=children, calls=calls)


@pytest.mark.parametrize(("wire", "made"), [*((wire, "client") for wire in WIRES), ("openai", "http")])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_client_that_is_handed_in(server: dict[str, str], is_async: bool, wire: str, made: str) -> None:
    """Used before the fork it is refused in the child, with a text that says what to do; unused it works."""
    family("handed_in", env=server, wire=wire, made=made, is_async=is_async)


def test_a_fork_in_the_middle_of_a_stream(server: dict[str, str]) -> None:
    """The stream stays the parent's: a child neither reads of it nor ends it."""
    family("stream", env=server, wire="openai")


@pytest.mark.parametrize("leave", ["close", "cancel"])
def test_a_fork_in_the_middle_of_a_kept_turn(server: dict[str, str], tmp_path: Path, leave: str) -> None:
    """The turn stays the parent's: a child neither saves it nor gives its lease back."""
    family("kept", env=server, url=str(tmp_path / "states.sqlite3"), leave=leave)


def test_a_simulator_for_each_process() -> None:
    """A child does not depend on the simulator that runs in its parent."""
    family("sim")
