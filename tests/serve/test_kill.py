"""A server process dies in the middle of a turn, or is told to end: the page that comes back sees all."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ._relays import relays
from ._world import asynchronous, said

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).resolve().parents[2]
TURNS = "/conversations/hall/turns"


@asynccontextmanager
async def server(folder: Path, *steps: str) -> AsyncIterator[tuple[Any, httpx.AsyncClient]]:
    """A process, and a client of it."""
    (folder / "port").unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.serve._process", str(folder), *steps, cwd=ROOT
    )
    try:
        while not (folder / "port").exists():
            assert process.returncode is None
            await asyncio.sleep(0.02)
        url = f"http://127.0.0.1:{(folder / 'port').read_text()}"
        headers = {"accept": "text/event-stream"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=40) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def events_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.split("\n\n"):
        members = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in members:
            found.append((members["event"], json.loads(members["data"])))
    return found


async def until_it_looks(client: httpx.AsyncClient, folder: Path) -> str:
    """Send a message, and read the stream until the tool runs that is held."""
    seen = ""
    async with client.stream("POST", TURNS, json=said()) as stream:
        async for piece in stream.aiter_text():
            seen += piece
            if '"look"' in seen:
                break
    while "look" not in (folder / "effects").read_text():
        await asyncio.sleep(0.01)
    return seen


@asynchronous
async def test_a_process_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The next process goes on when the page comes back: the call that was done is not done again, the one
    that ran gets the same key, and the page sees the whole turn."""
    (tmp_path / "hold").touch()
    async with server(tmp_path, "fire", "look") as (process, client):
        seen = await until_it_looks(client, tmp_path)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    (tmp_path / "hold").unlink()

    async with server(tmp_path, "Done.") as (process, client):
        assert (await client.get(f"{TURNS}/current")).text == ""  # it waits for the lease, and only looks
        whole = events_in((await client.post(f"{TURNS}/current", json={})).text)
        messages = (await client.get("/conversations/hall/messages")).json()
        assert (await client.post(TURNS, json=said())).text.count("event: done") == 1  # the message again

    kinds = [name for name, _ in whole if name != "text"]
    assert kinds == ["started", "tool_call", "tool_result", "tool_call", "tool_result", "done"]
    assert [data for name, data in events_in(seen) if name != "text"][:2] == [
        data for name, data in whole if name != "text"
    ][:2]
    text = "".join(data["text"] for name, data in whole if name == "text")
    assert text == "I fire. I look. Done." == messages[1]["text"]
    effects = (tmp_path / "effects").read_text().splitlines()
    assert effects[0] == "fire"
    assert len(effects) == 3
    assert effects[1] == effects[2]  # the same key: what it does is done once


@asynchronous
async def test_a_process_that_is_told_to_end_finishes_its_turns(tmp_path: Path) -> None:
    """It takes no new ones, and its page gets the rest."""
    (tmp_path / "hold").touch()
    async with server(tmp_path, "look", "Done.") as (process, client):
        async with client.stream("POST", TURNS, json=said()) as stream:
            text = ""
            async for piece in stream.aiter_text():
                text += piece
                if '"look"' in text and process.returncode is None and (tmp_path / "hold").exists():
                    process.send_signal(signal.SIGTERM)
                    (tmp_path / "hold").unlink()
        assert events_in(text)[-1][0] == "done"
        assert await process.wait() in (0, -signal.SIGTERM)


@pytest.mark.parametrize("where", ["the process that dies", "another process"])
@asynchronous
async def test_a_stop_outlives_the_process_that_runs_the_turn(tmp_path: Path, where: str) -> None:
    """It was answered, and then the process is killed: the page that comes back pays for nothing, also while
    the lease of the dead process lasts. A message is answered in a new turn."""
    for name in ("hold", "effects"):
        (tmp_path / name).touch()
    async with server(tmp_path, "look", "Never said.") as (process, client):
        await until_it_looks(client, tmp_path)
        async with server(tmp_path, "Next.") as (_, other):
            stops = client if where == "the process that dies" else other
            assert (await stops.delete(f"{TURNS}/current")).json() == {"stopped": True}
            process.send_signal(signal.SIGKILL)
            await process.wait()
            back = [await other.post(f"{TURNS}/current", json={})]
            for path in (f"{TURNS}/current", "/aisdk/hall/stream", "/agui/hall/stream"):
                back.append(await other.get(path))
            assert {(one.status_code, one.headers["turn-status"]) for one in back} == {(204, "stopped")}
            while (await other.post(TURNS, json=said("Next", "m2"))).status_code == 409:
                await asyncio.sleep(0.05)  # the lease of the dead process lasts for a moment
            stored = (await other.get("/conversations/hall/messages")).json()
    assert [message["text"] for message in stored] == ["Hello", "I look. ", "Next", "Next."]
    assert len((tmp_path / "effects").read_text().splitlines()) == 1


@pytest.mark.service
@pytest.mark.parametrize("path", [TURNS, f"{TURNS}/current"])
@asynchronous
async def test_a_message_outlives_the_process_that_has_read_it(tmp_path: Path, path: str) -> None:
    """Its stream, at another process, follows the turn. It is cut off, without an end, when the process of
    the turn is killed. The page that comes back gets the turn, which has each message once."""
    for name in ("hold", "stay", "effects"):
        (tmp_path / name).touch()

    async def let_it_go_on(client: httpx.AsyncClient) -> None:
        while "Well?" not in (await client.get("/conversations/hall/messages")).text:
            await asyncio.sleep(0.02)
        (tmp_path / "hold").unlink()

    async with relays("redis", 1) as (relay,):
        (tmp_path / "relay").write_text(relay._prefix)
        async with (
            server(tmp_path, "look", "stay") as (process, client),
            server(tmp_path, "Done.") as (_, other),
        ):
            await until_it_looks(client, tmp_path)
            seen = ""
            async with asyncio.TaskGroup() as group:
                group.create_task(let_it_go_on(other))
                async with other.stream("POST", TURNS, json=said("Well?", "m2")) as stream:
                    async for piece in stream.aiter_text():
                        seen += piece
                        if '"stay"' in seen and process.returncode is None:
                            process.send_signal(signal.SIGKILL)
                            await process.wait()
                            (tmp_path / "stay").unlink()
            again = said("Well?", "m2") if path == TURNS else {}
            whole = events_in((await other.post(path, json=again)).text)
            stored = (await other.get("/conversations/hall/messages")).json()

    assert [name for name, _ in events_in(seen) if name != "text"] == [
        "started", "tool_call", "tool_result", "tool_call",
    ]  # fmt: skip
    assert (whole[-1][0], whole[-1][1]["text"]) == ("done", "Done.")
    assert [one["text"] for one in stored if one["role"] == "user"] == ["Hello", "Well?"]
    keys = [line for line in (tmp_path / "effects").read_text().splitlines() if line.startswith("stay")]
    assert len(set(keys)) == 1
